/*
 * Tokens and their permuted rows on a device: which rows belong to a token and with which weights, for moe_unpermute,
 * moe_unpermute_ids and the gradients of moe_permute and moe_unpermute. moe_unpermute.cu has the kernels that validate
 * and add up.
 */
#ifndef SYC_MOE_SUMS_CUH
#define SYC_MOE_SUMS_CUH

#include "cuda/block.cuh"
#include "cuda/context.cuh"
#include "cuda/load.cuh"

/*
 * The entries of a token, in the order in which they are added: its slots (packed), or the rows that name it (capacity).
 * Packed entries may have no row.
 */
struct syc_moe_lists {
    int64_t n_tokens, n_slots, n_experts;
    int64_t row_begin, n_rows; /* rows that exist */
    bool capacity, zero_pad;
    bool by_slot;              /* probs [T,K]; else [T,E] */
    const u8 *indices;
    struct syi_rows map, probs;
    sy_type prob_type;
    struct syc_split by_slots; /* capacity: the expert of a row */
    /* Scratch, which the validation fills. */
    int32_t *experts;          /* packed, with a map: [T][K], the routed experts of each token; or NULL */
    float *weights;            /* their weights; or NULL */
    int32_t *start, *list;     /* capacity: [T+1], [M]: the rows of each token, ascending */
    int32_t *clear;            /* [M] words to set to -1; or NULL */
};

static inline struct syc_moe_lists syc_moe_lists_of(const struct syi_moe_rows_plan *p)
{
    struct syc_moe_lists l = {};
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

/* Takes scratch memory, or only measures it. Sizes are those of tensors that exist, so sums do not wrap. */
struct syc_arena {
    unsigned char *base;
    size_t used;
    void *take(int64_t n, size_t bytes)
    {
        void *const data = base != NULL ? base + used : NULL;
        used += ((size_t)n * bytes + 255) / 256 * 256;
        return data;
    }
};

/* Takes the rows of each token (capacity) or the experts of each slot, if they are needed. */
static inline void syc_moe_take_lists(struct syc_moe_lists *l, bool with_experts, struct syc_arena *arena)
{
    if (l->capacity) {
        l->start = (int32_t *)arena->take(l->n_tokens + 1, sizeof *l->start);
        l->list = (int32_t *)arena->take(l->n_rows, sizeof *l->list);
    } else if (with_experts) {
        l->experts = (int32_t *)arena->take(l->n_rows, sizeof *l->experts);
    }
}

/* Launches the validation, which fills the scratch of the lists too. */
void syc_moe_validate(struct syc_call *call, const struct syc_moe_lists *lists);

/* The sum of the entries of each token: rows [M,H] to out [T,H]. Scratch comes after what the arena has in use. */
struct syc_moe_sums {
    struct syc_moe_lists lists;
    int64_t hidden;
    sy_type type;
    struct syi_rows rows, out;
};
void syc_moe_take_sums(const struct syc_device *device, struct syc_moe_sums *sums, struct syc_arena *arena);
void syc_moe_sum(struct syc_call *call, const struct syc_moe_sums *sums); /* after the validation */

/* The same for packed rows whose vectors of 16 bytes are aligned (moe_sum_ring.cu). */
bool syc_moe_ring_pays(const struct syc_device *device, const struct syc_moe_sums *sums);
void syc_moe_sum_ring(struct syc_call *call, const struct syc_moe_sums *sums);

/* ---- Entries ------------------------------------------------------------------------------------------------------ */

static __device__ __forceinline__ u32 syc_lanes_below() { return (1u << syc_lane()) - 1u; }

static __device__ __forceinline__ int64_t syc_entries(const struct syc_moe_lists &l, int64_t t)
{
    return l.capacity ? __ldcg(l.start + t + 1) - __ldcg(l.start + t) : l.n_slots;
}

/* The row of an entry, or -1: none, or not among those that exist. */
static __device__ __forceinline__ int32_t syc_entry_row(const struct syc_moe_lists &l, int64_t t, int64_t entry)
{
    if (l.capacity)
        return __ldcg(l.list + __ldcg(l.start + t) + entry);
    const int64_t row = (int64_t)(int32_t)syc_load<u32>(l.indices + (t * l.n_slots + entry) * 4) - l.row_begin;
    return row >= 0 && row < l.n_rows ? (int32_t)row : -1;
}

static __device__ __forceinline__ float syc_prob(const struct syc_moe_lists &l, int64_t t, int64_t column)
{
    return syc_load_float(syc_row(l.probs, t) + column * (l.prob_type == SY_TYPE_F32 ? 4 : 2), l.prob_type);
}

/* Four bytes of a map, as bits: whether each of experts e to e + 3 is routed. */
static __device__ __forceinline__ u32 syc_map_bits(const u8 *row, int64_t e, int64_t n_experts)
{
    u32 bits = 0;
    if (e + 4 <= n_experts && ((uintptr_t)(row + e) & 3) == 0) {
        const u32 word = __ldg((const u32 *)(row + e));
#pragma unroll
        for (int b = 0; b < 4; b++)
            bits |= (word >> (8 * b) & 255u) != 0 ? 1u << b : 0;
        return bits;
    }
#pragma unroll 1
    for (int b = 0; b < 4 && e + b < n_experts; b++)
        bits |= row[e + b] != 0 ? 1u << b : 0;
    return bits;
}

/* Calls put(n, e) for the n-th routed expert e of a token, in any order; the warp returns how many there are. */
template <class Put> static __device__ __forceinline__ int64_t syc_for_experts(const struct syc_moe_lists &l, int64_t t, Put put)
{
    const u8 *const row = syc_row(l.map, t);
    int64_t found = 0;
    for (int64_t first = 0; first < l.n_experts; first += 128) {
        const int64_t e = first + syc_lane() * 4;
        const u32 bits = syc_map_bits(row, e, l.n_experts);
        int before = 0, all = 0;
#pragma unroll
        for (int b = 0; b < 4; b++) {
            const u32 routed = __ballot_sync(SYC_ALL_LANES, (bits >> b & 1u) != 0);
            before += __popc(routed & syc_lanes_below());
            all += __popc(routed);
        }
        for (u32 left = bits; left != 0; left &= left - 1)
            put(found + before++, e + __ffs((int)left) - 1);
        found += all;
    }
    return found;
}

/*
 * The weight of the entry first + lane of a token with row `row`, 0 for none. The warp calls it for first = 0, 32 ... and
 * keeps *live, the rows so far, between. `mine` is shared memory of 32 weights of this warp: a token of up to 32 slots
 * finds its weights there by itself, before the validation has ended.
 */
static __device__ __forceinline__ float syc_entry_weight(const struct syc_moe_lists &l, int64_t t, int64_t first, int32_t row,
                                                         float *mine, int64_t *live)
{
    const u32 rows = __ballot_sync(SYC_ALL_LANES, row >= 0);
    const int64_t rank = *live + __popc(rows & syc_lanes_below());
    *live += __popc(rows);
    if (l.probs.data != NULL && l.map.data != NULL && l.weights == NULL) {
        syc_for_experts(l, t, [&](int64_t n, int64_t e) {
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

/* ---- Elements ------------------------------------------------------------------------------------------------------- */

/*
 * Rows in pieces: a vector of 16 bytes, or one element where rows are not aligned. `at` counts pieces.
 */
template <sy_type type> struct syc_vector {
    static constexpr int N = type == SY_TYPE_F32 ? 4 : 8, BYTES = 16;
    typedef uint4 raw;
    static __device__ __forceinline__ raw load(const u8 *row, int64_t at) { return __ldcs((const uint4 *)row + at); }
    static __device__ __forceinline__ void store(u8 *row, int64_t at, raw v) { __stcs((uint4 *)row + at, v); }
    static __device__ __forceinline__ void widen(raw v, float *x)
    {
        const u32 w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (type == SY_TYPE_F32)
                x[k] = __uint_as_float(w[k]);
            else if (type == SY_TYPE_BF16) {
                x[2 * k] = __uint_as_float(w[k] << 16);
                x[N == 8 ? 2 * k + 1 : 0] = __uint_as_float(w[k] & 0xffff0000u);
            } else {
                x[2 * k] = syc_from_f16((u16)w[k]);
                x[N == 8 ? 2 * k + 1 : 0] = syc_from_f16((u16)(w[k] >> 16));
            }
        }
    }
    static __device__ __forceinline__ raw narrow(const float *x)
    {
        u32 w[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float low = x[N == 8 ? 2 * k : k], high = x[N == 8 ? 2 * k + 1 : k];
            w[k] = type == SY_TYPE_F32    ? __float_as_uint(syc_canonical(low))
                   : type == SY_TYPE_BF16 ? (u32)syc_to_bf16(low) | (u32)syc_to_bf16(high) << 16
                                          : (u32)syc_to_f16(low) | (u32)syc_to_f16(high) << 16;
        }
        return make_uint4(w[0], w[1], w[2], w[3]);
    }
};

template <sy_type type> struct syc_element {
    static constexpr int N = 1, BYTES = type == SY_TYPE_F32 ? 4 : 2;
    typedef u32 raw;
    static __device__ __forceinline__ raw load(const u8 *row, int64_t at)
    {
        return type == SY_TYPE_F32 ? syc_load<u32>(row + at * 4) : (u32)syc_load<u16>(row + at * 2);
    }
    static __device__ __forceinline__ void store(u8 *row, int64_t at, raw v)
    {
        if (type == SY_TYPE_F32)
            syc_store<u32>(row + at * 4, v);
        else
            syc_store<u16>(row + at * 2, (u16)v);
    }
    static __device__ __forceinline__ void widen(raw v, float *x)
    {
        x[0] = type == SY_TYPE_F32 ? __uint_as_float(v) : type == SY_TYPE_BF16 ? syc_from_bf16((u16)v) : syc_from_f16((u16)v);
    }
    static __device__ __forceinline__ raw narrow(const float *x)
    {
        return type == SY_TYPE_F32    ? __float_as_uint(syc_canonical(x[0]))
               : type == SY_TYPE_BF16 ? (u32)syc_to_bf16(x[0])
                                      : (u32)syc_to_f16(x[0]);
    }
};

/* sum = sum + w * x, each rounded. A row of weight 0 is not read as a number at all. */
template <class Piece> static __device__ __forceinline__ void syc_add_row(float *sum, float w, typename Piece::raw v)
{
    float x[Piece::N];
    if (w == 0.0f)
        return;
    Piece::widen(v, x);
#pragma unroll
    for (int n = 0; n < Piece::N; n++)
        sum[n] = __fadd_rn(sum[n], __fmul_rn(w, x[n]));
}

/* ---- How blocks of 256 threads share rows ------------------------------------------------------------------------------- */

/* `width` threads, one warp or more, work on one item; items with long rows are cut into parts. */
struct syc_groups {
    int shift;                 /* log2 of width */
    struct syc_divisor parts;
    int64_t pieces, part;      /* of a row, of a part */
};

struct syc_place {
    int group, offset;         /* of the block; the thread in it */
    int64_t item, begin, end;  /* the pieces of the part */
};

enum { SYC_GROUP_THREADS = 256 };

/* `ahead`: pieces a thread loads at a time. */
static inline struct syc_groups syc_groups_of(int64_t items, int64_t pieces, int ahead, int processors)
{
    struct syc_groups g = {5, {1, 0, 0}, pieces, pieces};
    while (g.shift < 8 && ((int64_t)ahead << g.shift) < pieces)
        g.shift++;
    const int64_t blocks = (items + (SYC_GROUP_THREADS >> g.shift) - 1) >> (8 - g.shift);
    const int64_t round = (int64_t)ahead << g.shift, most = (pieces + round - 1) / round;
    const int64_t wanted = blocks > 0 ? (3 * (int64_t)processors + blocks - 1) / blocks : 1;
    const int64_t parts = wanted < most ? wanted : most;
    g.parts = syc_divisor_of((u32)(parts > 0 ? parts : 1));
    g.part = (pieces + g.parts.d - 1) / g.parts.d;
    return g;
}

static inline int64_t syc_groups_blocks(const struct syc_groups *g, int64_t items)
{
    return ((items + (SYC_GROUP_THREADS >> g->shift) - 1) >> (8 - g->shift)) * g->parts.d;
}

static __device__ __forceinline__ struct syc_place syc_place_of(const struct syc_groups &g, u32 block)
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

/* Whether the vectors of these rows are aligned. */
static inline bool syc_aligned_rows(struct syi_rows rows, int64_t row_bytes, u64 by)
{
    return (((u64)(uintptr_t)rows.data | (u64)rows.stride | (u64)row_bytes) & (by - 1)) == 0;
}

#endif
