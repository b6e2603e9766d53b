/*
 * What passes between the check of an operator and the backend that runs it: one plan per operator, filled by
 * src/ops after every check that needs no data, and the table of a backend.
 *
 * A plan is the call: the caller's `args`, for their scalars; its tensors in the order of the operator's description,
 * those per row before the others, then extents of the description, all of which syi_bind_plan fills; and facts, each derived once. A
 * backend reads no tensor through `args`. In a query no output is there, and facts are those of a call with all of them.
 *
 * Letters used in comments and names: t token, k slot, e expert, b batch row, j position, s sample, p page.
 */
#pragma once

#include "plan/codes.h"
#include "plan/replica.h"

/* Every operator that a backend runs, X where the CUDA backend has it, too, and those between devices, which an engine
   of its own runs. Enums, unions and tables of operators are made of these two lists; build and tests read them. */
#define SYI_BACKEND_LIST(X, CPU) \
    X(MOE_ROUTE, moe_route) \
    X(MOE_MAP_FROM_IDS, moe_map_from_ids) \
    X(MOE_IDS_FROM_MAP, moe_ids_from_map) \
    X(MOE_PERMUTE, moe_permute) \
    X(MOE_PERMUTE_IDS, moe_permute_ids) \
    X(MOE_UNPERMUTE_IDS, moe_unpermute_ids) \
    X(MOE_ALIGN_BLOCK, moe_align_block) \
    X(MOE_PAD_MAP, moe_pad_map) \
    X(MOE_REORDER_CHUNKS, moe_reorder_chunks) \
    X(MOE_CONVERT_INDICES, moe_convert_indices) \
    X(MOE_UNPERMUTE, moe_unpermute) \
    X(MOE_PERMUTE_GRAD, moe_permute_grad) \
    X(MOE_UNPERMUTE_GRAD, moe_unpermute_grad) \
    X(MOE_DISPATCH, moe_dispatch) \
    X(MOE_COMBINE, moe_combine) \
    X(MOE_DISPATCH_GRAD_GATE, moe_dispatch_grad_gate) \
    X(MOE_LOCATIONS, moe_locations) \
    X(MOE_CAPACITY, moe_capacity) \
    X(MOE_MAP_PHYSICAL, moe_map_physical) \
    CPU(MOE_PLACE, moe_place) \
    X(SAMPLE, sample) \
    X(SAMPLE_VERIFY, sample_verify) \
    X(SAMPLE_OVERRIDES, sample_overrides) \
    X(SAMPLE_NOISE, sample_noise) \
    X(KV_GATHER, kv_gather) \
    X(KV_TRANSLATE, kv_translate) \
    X(KV_SLOTS, kv_slots) \
    X(KV_SELECT, kv_select) \
    X(KV_SCATTER, kv_scatter) \
    X(KV_RAGGED, kv_ragged) \
    X(KV_BLOCKS, kv_blocks) \
    X(LOCAL_REDUCE, local_reduce) \
    X(QUANTIZE_ROWS, quantize_rows) \
    X(DEQUANTIZE_ROWS, dequantize_rows)
#define SYI_MESH_OPERATORS(MESH) \
    MESH(ALL_TO_ALL_DISPATCH, all_to_all_dispatch) \
    MESH(ALL_TO_ALL_COMBINE, all_to_all_combine)
#define SYI_BACKEND_OPERATORS(X) SYI_BACKEND_LIST(X, X)
#define SYI_OPERATORS(X) SYI_BACKEND_OPERATORS(X) SYI_MESH_OPERATORS(X)

#define SYI_OP_ID(ID, op) SYI_##ID,
enum syi_op_id { SYI_OPERATORS(SYI_OP_ID) SYI_N_OPS, SYI_N_BACKEND_OPS = SYI_ALL_TO_ALL_DISPATCH };
#undef SYI_OP_ID

enum { SYI_MAX_TENSORS = 36 }; /* of an operator */

/* A tensor as rows: row r begins at data + r*stride. data is NULL for a tensor that was not given. */
struct syi_rows {
    unsigned char *data;
    int64_t stride; /* bytes */
};

SYI_BOTH static inline unsigned char *syi_row_at(struct syi_rows rows, int64_t r)
{
    return rows.data + r * rows.stride;
}

/* A tensor of a call as rows, with its type. */
struct syi_tensor {
    unsigned char *data;
    int64_t stride; /* bytes */
    sy_type type;
#ifdef __cplusplus /* kernels take rows */
    SYI_BOTH operator syi_rows() const
    {
        return {data, stride};
    }
#endif
};

#ifndef __cplusplus
static inline struct syi_rows syi_tensor_rows(struct syi_tensor tensor)
{
    return (struct syi_rows){tensor.data, tensor.stride};
}
#endif

SYI_BOTH static inline unsigned char *syi_at(struct syi_tensor tensor, int64_t r)
{
    return tensor.data + r * tensor.stride;
}

/* Slot of a choice, or -1 when it is skipped. Both numbers are validated before they are multiplied. */
SYI_BOTH static inline int64_t syi_slot(int64_t e, int64_t place, int64_t n_experts, int64_t capacity)
{
    const bool valid = e >= 0 && e < n_experts && place >= 0 && place < capacity;
    return valid ? e * capacity + place : -1;
}

/* One integer or float per row, possibly the same for all (stride 0). */
struct syi_column {
    struct syi_rows rows;
    sy_type type;
    bool held;       /* a call on a device with one number of the host, which is here and not in `rows` */
    uint64_t number; /* an integer, or the bits of an f32 */
};

struct syi_moe_route_plan {
    sy_moe_route_args args;
    struct syi_tensor logits, bias, finished, ids_in, ids_rows, expert_scale, shared_logits;
    struct syi_tensor ids, weights, map, probs, counts, scores;
    int64_t n_tokens, n_experts, k;
    int64_t n_columns, n_slots; /* E+S, K+S */
    int64_t given_rows;         /* of ids_in */
    int64_t capacity;           /* 0: no limit, or one that nothing asked for can exceed */
    int64_t group_sum;          /* how many of its largest values are added for the score of a group */
    float scale, shared_weight; /* never 0 */
};

struct syi_moe_map_from_ids_plan {
    sy_moe_map_from_ids_args args;
    struct syi_tensor ids, weights, map, probs;
    int64_t n_tokens, n_experts, n_slots;
    size_t prob_bytes; /* of one weight, 0: none */
};

struct syi_moe_ids_from_map_plan {
    sy_moe_ids_from_map_args args;
    struct syi_tensor map, probs, ids, weights;
    int64_t n_tokens, n_experts, n_slots;
    size_t prob_bytes; /* of one weight, 0: none */
};

/* Rows of numbers, and the same as codes with a scale for each group. Of operators with a row_format: rows that are read, and
   the outputs they go to. */
struct syi_row_codes_plan {
    bool given; /* else rows move as they are */
    int64_t n_rows, n_groups;
    size_t group, scale_bytes; /* numbers of a group; bytes of the scales of a row */
    enum syi_code code;
    enum syi_float type;
    bool e8m0; /* scales are bytes, not f32 */
    sy_scale_math scale_math;
    sy_code_math code_math;
    float a_min;
    struct syi_rows dense, codes, scales;
    sy_scale_layout layout;            /* of the scales; of operators with a row_format ROW */
    int64_t scale_rows, scale_columns; /* with places that belong to no scale; not of ROW */
};

struct syi_moe_permute_plan {
    sy_moe_permute_args args;
    struct syi_tensor tokens, map, probs, out_tokens, sorted_indices, out_probs, counts, offsets, scales;
    int64_t n_tokens, n_experts;
    int64_t n_slots;              /* K per token (packed) or C per expert (capacity) */
    int64_t n_rows;               /* M */
    size_t row_bytes, prob_bytes; /* of one token row, of one probability */
    bool idle;                    /* there is nothing to write, and the map is not examined */
    struct syi_row_codes_plan codes;
};

/* moe_unpermute and the gradients: permuted rows on one side, token rows on the other. */
struct syi_moe_rows_plan {
    int64_t n_tokens, n_experts;
    int64_t n_slots; /* K per token (packed) or C per expert (capacity, when experts count) */
    int64_t n_rows;  /* M */
    int64_t hidden;
    bool capacity, zero_pad;
    sy_type type, prob_type;
    struct syi_rows permuted, tokens; /* [M,H], [T,H] */
    struct syi_rows map;              /* [T,E]; absent unless slots must be matched with experts */
    struct syi_rows probs;            /* [T,E]; absent: all weights are 1 */
    unsigned char *sorted_indices;    /* [M] int32 */
    struct syi_row_codes_plan codes;  /* of the permuted rows */
    /* Gradients of probs; absent unless they are asked for. */
    bool wants_grad_probs;
    unsigned char *grad_permuted_probs; /* [M], of moe_permute */
    struct syi_rows saved;              /* [M,H]: rows that were unpermuted */
    struct syi_rows grad_probs;         /* [T,E] */
};

struct syi_moe_permute_ids_plan {
    sy_moe_permute_ids_args args;
    struct syi_tensor tokens, ids, probs, out_tokens, sorted_indices, out_probs, counts, offsets, scales;
    int64_t n_tokens, n_slots;    /* T, K */
    int64_t n_experts;            /* 0: ids may be any numbers */
    int64_t row_begin, n_rows;    /* the window */
    size_t row_bytes, prob_bytes; /* of one token row, of one probability */
    struct syi_row_codes_plan codes;
};

struct syi_moe_unpermute_ids_plan {
    sy_moe_unpermute_ids_args args;
    struct syi_tensor permuted, sorted_indices, probs, bias, bias_ids, residual, shared, tokens;
    int64_t n_tokens, n_slots, n_rows, hidden; /* T, K, M, H */
    int64_t n_biases, limit;                   /* bias_ids and sorted_indices are below these */
};

/* Where sorted_indices has choice j of token t. */
SYI_BOTH static inline int64_t syi_choice_at(const struct syi_moe_unpermute_ids_plan *p, int64_t t, int64_t j)
{
    return p->args.by_choice ? j * p->n_tokens + t : t * p->n_slots + j;
}

struct syi_moe_align_block_plan {
    sy_moe_align_block_args args;
    struct syi_tensor ids, expert_map, sorted_slots, block_experts, num_padded, counts, offsets;
    int64_t n_tokens, n_slots, n_experts; /* T, K, E */
    int64_t n_places, n_blocks;           /* room in sorted_slots and block_experts */
};

struct syi_moe_pad_map_plan {
    sy_moe_pad_map_args args;
    struct syi_tensor map, padded, counts; /* map and padded are perhaps the same */
    int64_t n_tokens, n_experts;
};

struct syi_moe_reorder_chunks_plan {
    sy_moe_reorder_chunks_args args;
    struct syi_tensor rows, counts, extra, out_rows, out_extra, offsets;
    int64_t n_rows, n_ranks, n_experts; /* N, R, E */
    size_t row_bytes, extra_bytes;      /* of a row; 0: nothing to copy */
};

struct syi_moe_convert_indices_plan {
    sy_moe_convert_indices_args args;
    struct syi_tensor in, offsets, out;
    int64_t n_tokens, n_rows; /* T, M */
    int64_t n_slots;          /* K of a SLOT form */
    int64_t n_experts;        /* E of a TE form */
};

struct syi_moe_dispatch_plan {
    sy_moe_dispatch_args args;
    struct syi_tensor gates, indices, locations, input, dispatch, scales;
    int64_t n_samples, n_experts, n_slots; /* n_slots = E*C */
    int64_t hidden;
    size_t elem_bytes;
    bool in_place;
    struct syi_row_codes_plan codes;
};

struct syi_moe_combine_plan {
    sy_moe_combine_args args;
    struct syi_tensor gates, indices, locations, expert_out, output;
    int64_t n_samples, n_experts, hidden;
    int64_t n_choices; /* gates, indices and locations have k rows of S */
    size_t elem_bytes;
};

struct syi_moe_dispatch_grad_gate_plan {
    sy_moe_dispatch_grad_gate_args args;
    struct syi_tensor indices, locations, input, dispatch, grad_gates;
    int64_t n_samples, n_experts, hidden;
    int64_t n_choices; /* indices, locations and grad_gates have k rows of S */
};

struct syi_moe_locations_plan {
    sy_moe_locations_args args;
    struct syi_tensor indices, importance, locations, counts;
    int64_t n_samples, n_experts, n_choices; /* k*S fits an int32 */
};

struct syi_moe_capacity_plan {
    sy_moe_capacity_args args;
    struct syi_tensor counts, capacity;
    int64_t bound;     /* what the factor allows; INT64_MAX when it says nothing */
    int64_t alignment; /* >= 1 */
    int64_t n_experts; /* of counts; 0: they are not looked at */
};

struct syi_moe_map_physical_plan {
    sy_moe_map_physical_args args;
    struct syi_tensor ids, table, replica_count, counts_before, out, load, logical_load;
    int64_t n_tokens, n_slots, n_experts, n_replicas, n_physical; /* T, K, E, R, P */
    int64_t per_device;                                           /* LOCAL: physical experts on each device */
};

struct syi_moe_place_plan {
    sy_moe_place_args args;
    struct syi_tensor loads, previous, logical, physical, count, device_load, mapping;
    int64_t n_layers, n_experts, n_physical; /* L, E, P */
    int64_t n_devices, n_nodes;              /* one node: the global policy */
    int64_t n_groups;                        /* as many as nodes at least; 0: one node */
    int64_t n_replicas;                      /* R */
};

/* How the rows of a cache are numbered: slot s is row s % block_size of block s / block_size. */
struct syi_kv_pool {
    int64_t block_size, n_blocks;
    int64_t n_rows;       /* slots that exist; the last block may be partial */
    int block_shift;      /* log2 of block_size, or -1 */
    uint64_t block_magic; /* 2^64 / block_size rounded up, when both fit the multiplication; else 0 */
};

/* The scales of all numbers of a row. */
struct syi_global {
    const unsigned char *data; /* f32 */
    int64_t stride, n;         /* bytes, 0: one for all rows; numbers */
    bool amax;                 /* the largest magnitude of the numbers, not their scale */
};

/* How a packed row and a dense one correspond: groups of codes, each with a scale, then the rope part. */
struct syi_kv_codec {
    enum syi_code code;
    enum syi_float dense; /* type of the dense row */
    bool e8m0;            /* type of the scales; else f32 */
    bool given;           /* scales are input even where rows are packed */
    bool inlined,
        four; /* groups of an f16 scale and 32 codes, of int8 or 4 bits; of the rest n_groups is set */
    bool fp4; /* groups of 16 codes of e2m1, two of a byte, with scales of e4m3 and a global one */
    struct syi_global global;
    size_t q_off, group, n_groups;
    size_t share;    /* groups with one scale, counted from the first */
    size_t per_head; /* groups of a head; the next begins head_stride bytes after it */
    int64_t head_stride;
    size_t rope_off, rope; /* first byte, numbers */
    size_t dense_bytes;    /* of a dense row */
    size_t clear_row,
        clear_scale;      /* bytes to clear before packing: parts that do not cover row or scale record */
    unsigned char *scale; /* scale record of slot 0: its row, behind its block, or in a tensor */
    size_t scale_off;     /* first scale in the record */
    int64_t scale_block_stride, scale_row_stride; /* bytes */
};

/* A cache and the dense rows that come from its slots or go there. */
struct syi_kv_plane {
    unsigned char *cache;
    int64_t block_stride, row_stride, head_stride; /* bytes */
    int64_t n_heads;   /* pieces of a cache row, head_stride apart; in a dense row they follow each other */
    size_t head_bytes; /* of a piece */
    size_t row_bytes;  /* of all of them */
    struct syi_rows dense;
    bool packed; /* by the codec; else a dense row is a cache row */
    struct syi_kv_codec codec;
};

/* Rows of formats of caches are those of a plane with one block; codes is of the others. */
struct syi_quantize_rows_plan {
    struct syi_row_codes_plan codes;
    struct syi_kv_plane plane; /* packed: it is used */
    struct syi_kv_pool pool;
};

/* Where the blocks of sequences are: rows of a table, or lists of pages that follow each other. */
struct syi_kv_table {
    int64_t rows, len; /* sequences; entries of each, or of all lists */
    struct syi_rows entries;
    sy_type type;
    struct syi_column indptr, last_page_len; /* of lists: where they begin, [rows+1]; [rows] or absent */
};

SYI_BOTH static inline bool syi_kv_lists(const struct syi_kv_table *table)
{
    return table->indptr.rows.data != NULL;
}

/* Tokens dealt out to ranks in runs; world <= 1: all are here. */
struct syi_kv_share {
    int64_t world, rank, run;
};

/* Which slots a call means: positions of sequences, and the table that says where their blocks are. */
struct syi_kv_pages {
    int64_t batch, k;
    struct syi_rows indices;
    sy_type index_type;
    struct syi_kv_table table;
    struct syi_column req_id, counts, seq_lens; /* [B] or absent */
    sy_kv_pad pad;
    struct syi_kv_pool pool;
    struct syi_kv_share share;
};

/* All planes of a call: the same slots of each. */
struct syi_kv_planes {
    int64_t n;
    const struct syi_kv_plane *at; /* [n] */
    struct syi_kv_pool pool;       /* of every plane */
    uint64_t slot_bytes;           /* that move for one slot of all planes, read and written */
    bool packed;                   /* a plane at least is */
};

struct syi_kv_gather_plan {
    struct syi_kv_pages pages;
    struct syi_kv_planes planes;
};

struct syi_kv_translate_plan {
    struct syi_kv_pages pages;
    struct syi_tensor slots, valid; /* B rows of k; [B] or absent */
};

struct syi_kv_slots_plan {
    struct syi_kv_pages pages; /* positions as indices; each has its table row beside it */
    struct syi_tensor batch, slots;
};

/* Of kv_select; plan/select_math.h has what follows for a row. */
struct syi_kv_select_plan {
    sy_kv_select_args args;
    struct syi_column row_k;
    struct syi_tensor scores, lengths, row_start, position, block_table, req_id, seq_lens, page_indices,
        indptr, index_base;
    struct syi_tensor indices, values, count, slots, owner, row_flags;
    int64_t batch, n_columns, k, query_rows, expand; /* B, N, k, Q, G */
    struct syi_kv_pages pages;                       /* table, req_id, pool and share: where tokens are */
    bool has_table;      /* slots are looked up, also where they are not written */
    bool by_request;     /* lengths are those of requests */
    bool own;            /* columns are tokens of this rank */
    bool idle;           /* the call touches nothing */
    int64_t room;        /* most positions of a row that are selected; in a query without k: N */
    int64_t token_limit; /* entries of `indices` are below it */
};

struct syi_kv_scatter_plan {
    int64_t n, k;            /* slots, and how many of them are in one row */
    struct syi_tensor slots; /* n / k rows of k */
    sy_kv_pad pad;
    bool check_unique;
    struct syi_kv_planes planes;
};

struct syi_kv_ragged_plan {
    struct syi_kv_pages pages;         /* without indices: tokens follow from starts and cu_lens */
    struct syi_column cu_lens, starts; /* [B+1], [B] or absent */
    int64_t n_rows;                    /* of the dense side */
    struct syi_kv_planes planes;
};

/* Lists of tokens, row after row, and a value for each or none. */
struct syi_token_lists {
    int indptr_field, token_field; /* of the operator's description */
    unsigned char *indptr;         /* [B+1], or NULL: there are none */
    unsigned char *token, *value;  /* [n]; value f32 */
    sy_type indptr_type, token_type;
    int64_t n;
};

struct syi_kv_blocks_plan {
    int64_t n;               /* pairs */
    struct syi_tensor pairs; /* source and destination in each */
    bool one_cache;          /* sources and destinations are the same blocks */
    int64_t n_src, n_dst;    /* blocks of a plane */
    int64_t n_planes;
    const struct syi_kv_plane *planes; /* a block is a row: from cache, block_stride apart, to dense */
    size_t block_bytes;                /* of all planes */
};

struct syi_sample_plan {
    sy_sample_args args;
    struct syi_column top_k, top_p, min_p, temperature, seed, offset, stream;
    struct syi_column top_n_sigma, typical_p, xtc_probability, xtc_threshold, dynatemp_range,
        dynatemp_exponent;
    struct syi_column given_token;
    struct syi_tensor logits, q;
    struct syi_tensor allow_bits; /* rows of V bits, in whole words of 32; stride 0: one for all */
    struct syi_tensor override_indptr, override_token, override_logit, score_token;
    struct syi_tensor token, kept, row_flags, masked, list_token, list_prob;
    struct syi_tensor logprob, rank, top_token, top_logprob, score_logprob;
    int64_t batch, vocab;
    int64_t n_top, n_score; /* columns; 0: there are no such tensors */
    int64_t empty_token;
    struct syi_token_lists overrides; /* of the three tensors */
    sy_noise noise;                   /* never AUTO */
    sy_logprob logprob_mode;          /* FINAL where RAW is the same */
    bool seed_per_row;                /* the stream is then 0 where none is given, else the row */
    bool lists;                       /* there may be a list_token or list_prob */
    sy_stages stages;
    bool staged; /* the order is not the default one, or there are tensors of more stages */
};

/* Whether rows may have filters. */
SYI_BOTH static inline bool syi_sample_filters(const struct syi_sample_plan *p)
{
    return p->top_k.rows.data != NULL || p->top_p.rows.data != NULL || p->min_p.rows.data != NULL ||
           p->staged;
}

/* Whether candidates may be sorted. */
SYI_BOTH static inline bool syi_sample_sorts(const struct syi_sample_plan *p)
{
    return p->lists || (p->noise == SY_NOISE_Q && p->args.q_order == SY_Q_LIST);
}

/* Whether weights of tokens may be needed, of a few or of all. */
SYI_BOTH static inline bool syi_sample_weighs(const struct syi_sample_plan *p)
{
    return p->top_p.rows.data != NULL || p->noise == SY_NOISE_CDF || p->logprob_mode != SY_LOGPROB_NONE;
}

/* Whether the sum of the weights of all tokens of a row may be needed; lists and a nucleus of probabilities do without. */
SYI_BOTH static inline bool syi_sample_sums_all(const struct syi_sample_plan *p)
{
    return (!p->args.probs_in && (p->top_p.rows.data != NULL || p->list_prob.data != NULL)) ||
           p->noise == SY_NOISE_CDF || (p->logprob.data != NULL && p->logprob_mode == SY_LOGPROB_FINAL);
}

/* Rows of logits by request: its root, then one for each draft token. A chain has no parents. */
struct syi_draft_rows {
    int64_t n_requests, n_rows; /* B, N */
    int64_t each;               /* rows of every request; -1: cu_lens */
    unsigned char *cu_lens;     /* [B+1] */
    sy_type lens_type, token_type, parent_type;
    struct syi_rows token, parent; /* each: a row for each request; cu_lens: all N in one */
    bool no_roots;                 /* a row of token begins with row 1 */
    int64_t most;                  /* a request may have this many rows; INT64_MAX: any number */
};

struct syi_sample_verify_plan {
    struct syi_sample_plan
        rows; /* of N rows, with parameters of requests; outputs are by slot, but for token */
    struct syi_draft_rows drafts;
    struct syi_token_lists stop; /* token NULL: none; indptr NULL: one list for all requests */
    struct syi_rows token, path, accept_mask, row_flags, logprob,
        rank;                                     /* as the tokens of drafts, or absent */
    unsigned char *accepted, *count, *next_token; /* [B] or NULL */
    int64_t empty_token;
};

struct syi_sample_overrides_plan {
    int64_t batch, vocab; /* batch: requests, each with a row or with rows of drafts */
    sy_type type;
    struct syi_rows logits;
    struct syi_draft_rows drafts; /* without drafts each request has a row, and token is absent */
    struct syi_token_lists prompt, output, bias;
    struct syi_token_lists seq;     /* indptr [S+1]; value may be absent: -inf. n: tokens */
    struct syi_token_lists seq_row; /* indptr [B+1] or NULL, n: sequences */
    struct syi_token_lists stop;    /* token NULL: none; indptr NULL: one list for all requests */
    struct syi_column repetition, frequency, presence, min_tokens;
    bool output_only;                      /* the history does not begin with the prompt */
    bool bias_first;                       /* biases are added before penalties */
    int64_t more;                          /* overrides of a row beside those of the first three lists */
    int64_t most;                          /* overrides there can be */
    unsigned char *indptr, *token, *logit; /* [rows+1] i64, [n] i32, [n] f32; n at least `most` */
};

struct syi_sample_noise_plan {
    sy_sample_noise_args args;
    struct syi_tensor q;
};

struct syi_local_reduce_plan {
    sy_local_reduce_args args;
    struct syi_tensor input, metadata, mapping, weights, scales, output;
    int64_t n_tokens, n_slots, n_experts, hidden;
    int n_devices, device;
    int64_t n_copies;                /* of the mapping */
    int64_t align;                   /* >= 1 */
    int64_t n_positions, interleave; /* order of EXPERT rows: G and S, or 1 and 0 where they lie by token */
    int64_t in_rows;                 /* the first extent of the input; PADDED: experts */
    int64_t out_rows;                /* EXPERT */
    struct syi_a2a_rule rule;        /* of replicas; the next three with one */
    sy_mesh mesh;
    sy_axis axis;
    int64_t per_position;            /* tokens of each position, where LOCAL must know */
    sy_type type;                    /* of the numbers of a row */
    int metadata_field;              /* of the operator's description */
    struct syi_row_codes_plan codes; /* of the input */
};

/* Operators whose plan is that of another. */
#define syi_moe_unpermute_plan syi_moe_rows_plan
#define syi_moe_permute_grad_plan syi_moe_rows_plan
#define syi_moe_unpermute_grad_plan syi_moe_rows_plan
#define syi_dequantize_rows_plan syi_quantize_rows_plan

#define SYI_PLAN(ID, op) struct syi_##op##_plan op;
union syi_plan {
    struct syi_moe_rows_plan moe_rows; /* of three */
    SYI_BACKEND_OPERATORS(SYI_PLAN)
};
#undef SYI_PLAN

/* Scratch memory of a call: for the layer that calls the backend, always CPU memory, and for the backend. */
struct syi_scratch {
    void *host, *own;
};

struct syi_memory; /* plan/memory.h */

/* A backend runs plans on one kind of memory. Rows are indexed by operator id. */
struct syi_backend {
    const char *name;
    const struct syi_memory *memory; /* for operators between devices; NULL: they do not accept it */
    /* Whether a tensor on `device` can be part of a call whose first tensor is on `first`. */
    bool (*accepts)(const sy_ctx *ctx, DLDevice device, DLDevice first);
    /* Memory of these sizes until the next call, aligned to SYI_ALIGN; NOMEM with a sentence, or with ctx->backend_error,
       otherwise. */
    sy_status (*scratch)(sy_ctx *ctx, size_t host_bytes, size_t own_bytes, struct syi_scratch *scratch);
    /* Fills isa and threads of a trace. */
    void (*describe)(const sy_ctx *ctx, sy_trace *report);
    struct {
        /* Bytes of own scratch of a run with the context's thread count. */
        size_t (*workspace)(const sy_ctx *ctx, const union syi_plan *plan);
        /* Reads the data, rejects bad contents by syi_report before the first write, then writes. */
        sy_status (*run)(sy_ctx *ctx, const union syi_plan *plan, void *workspace);
    } op[SYI_N_BACKEND_OPS];
};
