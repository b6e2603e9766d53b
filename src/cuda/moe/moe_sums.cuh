/*
 * Tokens and their permuted rows on a device: which rows belong to a token and with which weights, for
 * moe_unpermute, moe_unpermute_ids and the gradients of moe_permute and moe_unpermute. moe_unpermute.cu has
 * the kernels that validate and add up.
 */
#pragma once

#include "cuda/prim/block.cuh"
#include "cuda/moe/moe.cuh"
#include "cuda/runtime/scratch.cuh"
#include "cuda/prim/slots.cuh"

/*
 * The entries of a token, in the order in which they are added: its slots (packed), or the rows that name it
 * (capacity). Packed entries may have no row.
 */
struct syc_moe_lists {
    int64_t n_tokens, n_slots, n_experts;
    int64_t row_begin, n_rows; /* rows that exist */
    bool capacity, zero_pad;
    bool by_slot; /* probs [T,K]; else [T,E] */
    const u8 *indices;
    syi_rows map, probs;
    sy_type prob_type;
    syc_split by_slots; /* capacity: the expert of a row */
    syc_split by_token; /* packed: the token of a slot, where probs are by slot */
    /* Scratch, which the validation fills. */
    int32_t *experts;      /* packed, with a map: [T][K], the routed experts of each token; or NULL */
    float *weights;        /* their weights; or NULL */
    int32_t *start, *list; /* capacity: [T+1], [M]: the rows of each token, ascending */
    int32_t *owner;        /* packed: [M], see syc_owner; or NULL */
};

static inline syc_moe_lists syc_moe_lists_of(const syi_moe_rows_plan *p)
{
    syc_moe_lists l = {};
    l.n_tokens = p->n_tokens;
    l.n_slots = p->n_slots;
    l.n_experts = p->n_experts;
    l.n_rows = p->n_rows;
    l.capacity = p->capacity;
    l.zero_pad = p->zero_pad;
    l.indices = p->sorted_indices;
    l.map = p->map;
    l.probs = p->probs;
    l.prob_type = p->prob_type;
    l.by_slots = syc_split_by(p->n_slots, p->n_rows);
    return l;
}

/* Takes the rows of each token (capacity) or the experts of each slot, if they are needed. */
static inline void syc_moe_take_lists(syc_moe_lists *l, bool with_experts, syc_scratch *scratch)
{
    if (l->capacity) {
        l->start = scratch->take<int32_t>(l->n_tokens + 1);
        l->list = scratch->take<int32_t>(l->n_rows);
    } else if (with_experts) {
        l->experts = scratch->take<int32_t>(l->n_rows);
    }
}

/* Launches the validation, which fills the scratch of the lists too. */
void syc_moe_validate(syc_call *call, const syc_moe_lists *lists);

/* The sum of the entries of each token: rows [M,H] to out [T,H]. */
struct syc_moe_sums {
    syc_moe_lists lists;
    int64_t hidden;
    sy_type type;
    syi_rows rows, out;
    /* Gradients of probs that are moved beside the sums: from grad_rows [M] to grad_probs [T,E]. prob_bytes
       0: none. */
    const u8 *grad_rows;
    syi_rows grad_probs;
    int prob_bytes;
    int64_t sum_blocks;       /* blocks past these move them */
    float *ring_weights;      /* scratch [T][K] of a ring, which fills it itself; or NULL */
    syi_row_codes_plan codes; /* given: of the rows, and `type` is that of the sums */
};
void syc_moe_take_sums(const syc_device *device, syc_moe_sums *sums, syc_scratch *scratch);
void syc_moe_sum(syc_call *call, const syc_moe_sums *sums); /* after the validation */

/* The same for packed rows whose vectors of 16 bytes are aligned, and for codes, whose alignment
   syc_moe_ring_why_not knows (moe_sum_ring.cu). */
const char *syc_moe_ring_why_not(const syc_device *device, const syc_moe_sums *sums);
static inline bool syc_moe_ring_pays(const syc_device *device, const syc_moe_sums *sums)
{
    return syc_moe_ring_why_not(device, sums) == NULL;
}
void syc_moe_sum_ring(syc_call *call, const syc_moe_sums *sums);

/* ---- Entries ---- */

SYC_INLINE u32 syc_lanes_below()
{
    return (1u << syc_lane()) - 1u;
}

SYC_INLINE int64_t syc_entries(const syc_moe_lists &l, int64_t t)
{
    return l.capacity ? __ldcg(l.start + t + 1) - __ldcg(l.start + t) : l.n_slots;
}

/* The row of an entry, or -1: none, or not among those that exist. */
SYC_INLINE int32_t syc_entry_row(const syc_moe_lists &l, int64_t t, int64_t entry)
{
    if (l.capacity)
        return __ldcg(l.list + __ldcg(l.start + t) + entry);
    const int64_t row =
        (int64_t)(int32_t)syc_load<u32>(l.indices + (t * l.n_slots + entry) * 4) - l.row_begin;
    return row >= 0 && row < l.n_rows ? (int32_t)row : -1;
}

/*
 * The slot from which a row gets its gradient: the highest that names it. The table is never cleared;
 * whatever a word held before, it counts only if its slot names the row.
 */
SYC_INLINE int32_t syc_owner(const syc_moe_lists &l, int64_t row)
{
    return __ldcg(l.owner + row);
}
SYC_INLINE bool syc_names(const syc_moe_lists &l, int32_t slot, int64_t row)
{
    return slot >= 0 && slot < l.n_rows && (int32_t)syc_load<u32>(l.indices + (int64_t)slot * 4) == row;
}

SYC_INLINE float syc_prob(const syc_moe_lists &l, int64_t t, int64_t column)
{
    return syc_load_float(syc_row(l.probs, t) + column * (l.prob_type == SY_TYPE_F32 ? 4 : 2), l.prob_type);
}

/* Lists the experts and weights of a token, as far as they are wanted; returns how many it is routed to. See
   syc_each_expert. */
SYC_INLINE int64_t syc_list_token(const syc_moe_lists &l, int64_t t, const u8 *map, int lanes, u64 bytes)
{
    return syc_each_expert(map, l.n_experts, lanes, bytes, [&](int64_t n, int64_t e) {
        if (n < l.n_slots && l.experts != NULL)
            l.experts[t * l.n_slots + n] = (int32_t)e;
        if (n < l.n_slots && l.weights != NULL)
            l.weights[t * l.n_slots + n] = syc_prob(l, t, e);
    });
}

/*
 * The weight of the entry first + lane of a token with row `row`, 0 for none. The warp calls it for first =
 * 0, 32 ... and keeps *live, the rows so far, between. `mine` is shared memory of 32 weights of this warp: a
 * token of up to 32 slots finds its weights there by itself, before the validation has ended.
 */
SYC_INLINE float syc_entry_weight(const syc_moe_lists &l, int64_t t, int64_t first, int32_t row, float *mine,
                                  int64_t *live)
{
    const u32 rows = __ballot_sync(SYC_ALL_LANES, row >= 0);
    const int64_t rank = *live + __popc(rows & syc_lanes_below());
    *live += __popc(rows);
    if (l.probs.data != NULL && l.map.data != NULL && l.weights == NULL) {
        syc_each_expert(syc_row(l.map, t), l.n_experts, [&](int64_t n, int64_t e) {
            if (n < 32)
                mine[n] = syc_prob(l, t, e);
        });
        __syncwarp();
        const float weight = mine[rank & 31];
        __syncwarp();
        return row >= 0 ? weight : 0.0f;
    }
    if (row < 0)
        return 0.0f;
    if (l.probs.data == NULL)
        return 1.0f;
    if (l.map.data != NULL)
        return __ldcg(l.weights + t * l.n_slots + rank);
    return syc_prob(l, t, l.by_slot ? first + syc_lane() : syc_quotient(row, l.by_slots));
}

/* ---- Sums and groups of threads ---- */

/* sum = sum + w * x, each rounded. A row of weight 0 is not read as a number at all. */
template <class Numbers> SYC_INLINE void syc_add_row(float (&sum)[Numbers::N], float w, uint4 v)
{
    float x[Numbers::N];
    if (w == 0.0f)
        return;
    Numbers::widen(v, x);
#pragma unroll
    for (int n = 0; n < Numbers::N; n++)
        sum[n] = __fadd_rn(sum[n], __fmul_rn(w, x[n]));
}

/* `width` threads, one warp or more, work on one item; items with long rows are cut into parts. */
struct syc_groups {
    int shift; /* log2 of width */
    syc_divisor parts;
    int64_t pieces, part; /* of a row, of a part */
};

struct syc_place {
    int group, offset;        /* of the block; the thread in it */
    int64_t item, begin, end; /* the pieces of the part */
};

enum { SYC_GROUP_THREADS = 256 };

/* `ahead`: pieces a thread loads at a time. */
static inline syc_groups syc_groups_of(int64_t items, int64_t pieces, int ahead, int processors)
{
    syc_groups g = {5, {1, 0, 0}, pieces, pieces};
    while (g.shift < 8 && ((int64_t)ahead << g.shift) < pieces)
        g.shift++;
    const int64_t blocks = (items + (SYC_GROUP_THREADS >> g.shift) - 1) >> (8 - g.shift);
    const int64_t round = (int64_t)ahead << g.shift, most = (pieces + round - 1) / round;
    const int64_t wanted = blocks > 0 ? (grid_policy::PARTS * (int64_t)processors + blocks - 1) / blocks : 1;
    const int64_t parts = wanted < most ? wanted : most;
    g.parts = syc_divisor_of((u32)(parts > 0 ? parts : 1));
    g.part = (pieces + g.parts.d - 1) / g.parts.d;
    return g;
}

static inline int64_t syc_groups_blocks(const syc_groups *g, int64_t items)
{
    return ((items + (SYC_GROUP_THREADS >> g->shift) - 1) >> (8 - g->shift)) * g->parts.d;
}

SYC_INLINE struct syc_place syc_place_of(const syc_groups &g, u32 block)
{
    const u32 whole = syc_divide(block, g.parts), part = block - whole * g.parts.d;
    struct syc_place p;
    p.group = (int)threadIdx.x >> g.shift;
    p.item = ((int64_t)whole << (8 - g.shift)) + p.group;
    p.offset = (int)threadIdx.x & ((1 << g.shift) - 1);
    p.begin = part * g.part;
    p.end = min((part + 1) * g.part, g.pieces);
    return p;
}
