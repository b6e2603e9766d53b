/*
 * What the operators on paged KV caches validate alike: the shape and strides of a cache, the rows that go with it, and
 * the tensors that say which tokens are meant. Steps in the order an operator calls them.
 */
#pragma once

#include "ops/call.h"

/* Values of a format field: the names of sy_kv_format_named, from 1. */
#define SYI_KV_FORMATS "- ds32_fp8 pto_int8 ds4_fp8 indexer_fp8 e4m3 e5m2 int8 q8_0 q4_0 nvfp4 nvfp4_amax"

/* Of their scales; of nvfp4 bytes. */
#define SYI_KV_SCALE_TYPES (SYI_F32 | SYI_BIT(SY_TYPE_F8_E4M3) | SYI_U8)
#define SYI_KV_GLOBAL_FIELD \
    SYI_TENSOR(global_scale, SY_FIELD_OPTIONAL, SYI_F32, 0, 1, 1, "1", \
               "scale of all numbers; nvfp4_amax: the largest")
#define SYI_KV_SCALE_FIELD \
    SYI_OPTIONAL(scale, SYI_KV_SCALE_TYPES, 0, 1, 3, "G | rows G | blocks S G", \
                 "G, or G per row; of e4m3, e5m2, int8, nvfp4")
#define SYI_KV_PLANE_FIELDS(tensors) \
    SYI_SCALAR(planes, PLANES, .words = (tensors), .help = "further planes with the same slots"), \
        SYI_SCALAR(num_planes, I64, .help = "number of further planes"), \
        SYI_SCALAR(plane_bytes, SIZE, .help = "size of the struct of a plane"), \
        SYI_SCALAR(layout, ENUM, .words = "nhd hnd", \
                   .help = "blocks of [S,H,D] (and caches without heads), or of [H,S,D]"), \
        SYI_SCALAR(format, FORMAT, .words = SYI_KV_FORMATS, \
                   .help = "how rows are packed; e4m3, e5m2, int8, nvfp4 use scale")

/* ---- Formats of rows, of caches and others ---- */

/* The caller's struct can be read. */
sy_status syi_check_format_bytes(struct syi_call *call, const char *name, const sy_kv_format *given);

/* What this library knows of a format; fields that the caller's header does not have are zero. */
sy_kv_format syi_known_format(const sy_kv_format *given);

/* Formats that exist by name alone, with scales before the codes of each group, or of 4 bits with scales in a tensor and a
   global one: fields as a name sets them; bytes of a group; the plane of rows that are `codes` of the plan, each of so many bytes. */
bool syi_is_fp4_format(const sy_kv_format *f);
sy_status syi_check_packed_format(struct syi_call *call, const char *name, const sy_kv_format *f);
int64_t syi_packed_group_bytes(const sy_kv_format *f);
void syi_view_packed_rows(struct syi_call *call, const sy_kv_format *f, size_t row_bytes, int global,
                          struct syi_quantize_rows_plan *plan);

/* Tensor `global`, global_scale, is there where the format has it; and not otherwise. */
sy_status syi_check_global_given(struct syi_call *call, int global, bool has);
sy_status syi_check_no_global(struct syi_call *call, int global, bool has);

/* Of a valid one. */
enum syi_code syi_format_code(const sy_kv_format *f);

/* The product of extents [first, end); false when it does not fit. */
static inline bool syi_kv_product(const DLTensor *t, int first, int end, int64_t *n)
{
    *n = 1;
    for (int d = first; d < end; d++)
        if (!syi_mul(*n, t->shape[d], n))
            return false;
    return true;
}

/* ---- The caches of a call: [rows,D] flat, [blocks,S,D...], or [blocks,H,S,D...] ---- */

/* The fields of an argument struct that hold further planes. */
struct syi_kv_more {
    const sy_kv_plane *planes;
    int64_t n;
    size_t bytes;
};

/* Indices of fields in the operator's description, and what all planes share. */
struct syi_kv_subject {
    int cache, dense;     /* of a plane: its cache, the rows copied from or to it */
    int outer;            /* a tensor: dense has its dimensions ahead of those of a row; -1: one, of n rows */
    int scale, scale_out; /* scales of packed rows: read, written; 0: the operator has none */
    int global;           /* global scales of nvfp4 */
    size_t format;        /* field of the arguments */
    int64_t block_size;   /* S */
    sy_kv_layout layout;
    struct syi_kv_more more;
    struct syi_kv_planes *planes;
    int64_t n; /* rows of dense */
};

/* Of OPERATOR, in its check, which has its arguments `a` and its `plan`. */
#define SYI_KV_SUBJECT(dense, outer, scale_out) \
    { \
        CACHE, dense, outer, SCALE, scale_out, GLOBAL, offsetof(SYI_ARGS_OF(OPERATOR), format), \
            a->block_size, a->layout, {a->planes, a->num_planes, a->plane_bytes}, &plan->planes, 0 \
    }

/* S by the shape of a cache; 0 when it is flat, or packed by block. */
int64_t syi_kv_rows_of_block(const struct syi_call *call, const DLTensor *cache, sy_kv_layout layout);

/* For operators that fill `sets` themselves: rejects further planes that are NULL, or structs with fields this library does not know;
   then a further plane as it knows it. */
sy_status syi_kv_take_more(struct syi_call *call, struct syi_kv_more more);
sy_kv_plane syi_kv_further(const struct syi_plane_sets *sets);

/* Null, dtype, rank of all planes, which the steps of check.c validate from now on; formats make sense, which comes before the shapes
   they give a meaning; a row has bytes, where it is packed enough of them, and scales that fit. tables NULL: there are none. */
struct syi_kv_table_rules;
sy_status syi_kv_check_caches(struct syi_call *call, struct syi_kv_subject *subject,
                              const struct syi_kv_table_rules *tables);

/* Values: layout and number of planes; S is at least 1, and what every cache says. */
sy_status syi_kv_check_options(struct syi_call *call, const struct syi_kv_subject *subject);
sy_status syi_kv_check_num_planes(struct syi_call *call, int64_t n_planes);
sy_status syi_kv_check_block_size(struct syi_call *call, int64_t block_size);
sy_status syi_kv_check_blocks(struct syi_call *call, struct syi_kv_subject *subject);

/* Overflow: blocks and rows can be counted, and all caches have as many; n dense rows can be counted in 32 bits,
   their bytes in 63. Fills pool and slot_bytes of the planes. */
sy_status syi_kv_check_volume(struct syi_call *call, struct syi_kv_subject *subject);

/* Shape of the dense rows: the dimensions of tensor `many`, or n, then those of a cache row. */
sy_status syi_kv_check_dense(struct syi_call *call, struct syi_kv_subject *subject);

/* Stride, device, alias; rows and blocks of a cache do not overlap. */
sy_status syi_kv_check_strides(struct syi_call *call, struct syi_kv_subject *subject);

/* Fills the views, after all checks: the last step, because planes may need scratch memory. A query has none. */
sy_status syi_kv_view_planes(struct syi_call *call, struct syi_kv_subject *subject);

/* ---- Packed rows, for those steps (kv_format.c) ---- */

/* The present plane has its rows packed by block; its dense rows are one dimension of so many numbers, or 0:
   as a cache row. */
bool syi_kv_by_block(const struct syi_call *call);
int64_t syi_kv_unpacked(const struct syi_call *call);

/* What a cache says of its rows. */
struct syi_kv_rows {
    int64_t blocks, rows;   /* [rows] alone where blocks is -1 */
    int64_t elems, n_heads; /* of a row; 1: no heads */
};

/* Of the present plane: values; input shape; what the blocks must hold. */
sy_status syi_kv_check_format(struct syi_call *call, void *data);
sy_status syi_kv_check_packed(struct syi_call *call, const struct syi_kv_subject *subject,
                              const struct syi_kv_rows *rows);
sy_status syi_kv_check_packed_blocks(struct syi_call *call, const struct syi_kv_subject *subject);

/* Stride: the row of a format that lays it out is in one piece. */
sy_status syi_kv_check_packed_pieces(struct syi_call *call, const struct syi_kv_subject *subject, bool apart);

/* Bytes of a dense row beside a cache row of so many; false when they do not fit. */
bool syi_kv_dense_bytes(const struct syi_call *call, const struct syi_kv_subject *subject, int64_t row_bytes,
                        int64_t *bytes);

/* Fills the codec of a plane whose cache has been viewed as it is. */
void syi_kv_view_codec(struct syi_call *call, const struct syi_kv_subject *subject,
                       struct syi_kv_plane *plane);

/* ---- Where blocks are: a table [rows,n] or [n], or lists of pages one after the other ---- */

/* Numbers of the tensors; lists are page_indices [N] and indptr [rows+1], with or without last_page_len [rows]; -1: the
   operator has none. */
struct syi_kv_table_rules {
    int table, page_indices, indptr, last_page_len;
};

/* Rows of a description: a cache that is read, what an operator on pages takes, and these. */
#define SYI_KV_CACHE_FIELD \
    SYI_TENSOR(cache, SY_FIELD_ANY_BYTES | SY_FIELD_OWN_STRIDES, 0, 0, 2, SYI_MAX_RANK, \
               "rows D | blocks S D...", "rows, or blocks; layout hnd: [blocks,H,S,D...]")
#define SYI_KV_TABLE_FIELDS \
    [TABLE] = SYI_TENSOR(block_table, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 2, "R n | n", \
                         "physical block of each logical one"), \
    [PAGE_INDICES] = SYI_TENSOR(page_indices, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1, "N", \
                                "lists of blocks, in place of block_table"), \
    [INDPTR] = SYI_TENSOR(indptr, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1, "R+1", \
                          "where each list begins, and the end"), \
    [LAST_PAGE_LEN] = SYI_TENSOR(last_page_len, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1, "R", \
                                 "tokens of each list's last page; missing: S")

/* Null, for operators without caches: a table, or all it takes for lists. */
sy_status syi_kv_check_given(struct syi_call *call, const struct syi_kv_table_rules *rules);

/* Input shape: counts the rows of a table, or the lists. */
sy_status syi_kv_check_lists(struct syi_call *call, const struct syi_kv_table_rules *rules, int64_t *rows);

/* The same, with a row or list for each of `batch` sequences, or req_id for them. */
sy_status syi_kv_check_table(struct syi_call *call, const struct syi_kv_table_rules *rules, int req_id,
                             int64_t batch, const char *each);

/* Overflow: tokens of a row, or of all pages, in 63 bits; fills the extents. */
sy_status syi_kv_count_table(struct syi_call *call, const struct syi_kv_table_rules *rules,
                             int64_t block_size, struct syi_kv_table *table);

/* Fills the rest, after all checks. */
void syi_kv_view_table(const struct syi_call *call, const struct syi_kv_table_rules *rules,
                       struct syi_kv_table *table);

/* ---- Positions ---- */

/* Numbers of the tensors that say which tokens are meant; -1: the operator has no such tensor. */
struct syi_kv_page_rules {
    int indices, req_id, counts, seq_lens;
    struct syi_kv_table_rules tables;
};

/* Input shape: one table row, count and length for every index row. */
sy_status syi_kv_check_pages(struct syi_call *call, const struct syi_kv_page_rules *rules);

/* Values: one form of table, and lengths given once. */
sy_status syi_kv_check_page_form(struct syi_call *call, const struct syi_kv_page_rules *rules);

/* Overflow: positions in 32 bits, tokens of a table row in 63; fills the extents. */
sy_status syi_kv_check_positions(struct syi_call *call, const struct syi_kv_page_rules *rules,
                                 int64_t block_size, struct syi_kv_pages *pages);

/* Fills the views, after all checks. */
void syi_kv_view_pages(const struct syi_call *call, const struct syi_kv_page_rules *rules, sy_kv_pad pad,
                       struct syi_kv_pages *pages);

/* ---- Slots as numbers ---- */

struct syi_kv_slot_args {
    int slots;                    /* the tensor of slots */
    int64_t block_size, num_rows; /* num_rows 0: unknown */
    sy_kv_pad pad;
};

/* Values: also that the rows fit the type of the slots. The first: of an operator without pad. */
sy_status syi_kv_check_slot_rows(struct syi_call *call, const struct syi_kv_page_rules *rules,
                                 const struct syi_kv_slot_args *args);
sy_status syi_kv_check_slots(struct syi_call *call, const struct syi_kv_page_rules *rules,
                             const struct syi_kv_slot_args *args);

/* Values: ranks that share the tokens. */
sy_status syi_kv_check_share(struct syi_call *call, int64_t world, int64_t rank, int64_t interleave);

/* Overflow: positions, and as many rows as are known, or else as the tensor of slots can name; then the rows alone. */
sy_status syi_kv_number_slots(struct syi_call *call, const struct syi_kv_page_rules *rules,
                              const struct syi_kv_slot_args *args, struct syi_kv_pages *pages);
sy_status syi_kv_number_rows(struct syi_call *call, const struct syi_kv_slot_args *args,
                             struct syi_kv_pool *pool);
