/*
 * What the kernels of local_reduce share: choices, live slots, and where the lists of sums are.
 */
#pragma once

#include "cuda/moe/moe_sums.cuh"

#define NO_ROW (~0u)

/* tokens of a block; blocks, of EXPERT: a multiple of 4 */
enum { CHUNK = 32, MOST_CHUNKS = SYC_MAX_CHECK_BLOCKS - 4, MOST_SLOTS = 32, MOST_EXPERTS = 2048 };
enum { LIST_THREADS = 512 }; /* of blocks that list chunks: those that sum start beside two of them */
/* in a sum of rows, for each expert that has too many: rows are numbers of 31 bits */
static const u64 OVERFULL = 1ull << 40;

/* A row of a sum. */
struct entry {
    u32 row;
    float weight;
};

struct reduce {
    syi_local_reduce_plan p;
    syc_split interleave, per_position; /* tokens */
    syc_split align, each;              /* rows of an expert; slots and one */
    syc_divisor slots;                  /* for few */
    bool aligned;                       /* choices and the mapping, to their numbers */
    /* Sums, numbered by the rows of the output. */
    u32 *n_sums;         /* EXPERT: one word, how many there are */
    u64 *taken;          /* one word: parts of sums that blocks took beyond their first two */
    u32 *n;              /* [T] how many rows of the input a sum has */
    struct entry *entry; /* [T,apart] which */
    int64_t apart;       /* K, rounded up to pairs */
    /* EXPERT: [E+1][MOST_CHUNKS] live slots of the experts on this device, one after the other, and tokens
       that have any */
    u32 *chunks;
    /* Only where kernels of rank.cuh are needed. */
    int64_t *block; /* [E] first row of an expert of this device */
    /* [T,K+1] in order of position: experts of live slots, NO_ROW: none; then E if there is one */
    u32 *key;
    u32 *rank;          /* EXPERT: [T,K+1] with the keys */
    u32 *first, *count; /* EXPERT: [E+1] ranks of an expert; of the tokens that have rows */

    /* A number, of any alignment or, as `aligned` says, without a branch: then the loads of several go
       together. */
    template <typename V, bool ALIGNED> SYC_INLINE V number(const u8 *at)
    {
        return ALIGNED ? *(const V *)at : syc_load_here<V>(at);
    }
    /* Experts of slots from k on, the last of all again past the end; -1: none; as large as they are where
       they are wrong. */
    template <int N, bool ALIGNED>
    __device__ __forceinline__ void load_choices(int64_t t, int64_t k, int64_t end, int64_t (&e)[N]) const
    {
        const u8 *const row = syc_row(p.metadata, t);
        if (p.metadata.type == SY_TYPE_I32) {
#pragma unroll
            for (int u = 0; u < N; u++)
                e[u] = (int32_t)number<u32, ALIGNED>(row + 4 * min(k + u, end - 1));
        } else if (p.metadata.type == SY_TYPE_I64) {
#pragma unroll
            for (int u = 0; u < N; u++)
                e[u] = (int64_t)number<u64, ALIGNED>(row + 8 * min(k + u, end - 1));
        } else {
#pragma unroll
            for (int u = 0; u < N; u++)
                e[u] = number<u16, ALIGNED>(row + 2 * min(k + u, end - 1));
#pragma unroll
            for (int u = 0; u < N; u++)
                e[u] = e[u] == 0xffff ? -1 : e[u];
        }
    }
    __device__ int64_t choice(int64_t t, int64_t k) const
    {
        int64_t e[1];
        load_choices<1, false>(t, k, k + 1, e);
        return e[0];
    }
    __device__ u32 mapping(int64_t row, int64_t d) const
    {
        return syc_load_here<u16>(syc_row(p.mapping, row) + 2 * d);
    }
    __device__ bool hosted(int64_t e) const
    {
        return e >= 0 && e < p.n_experts && mapping(e, p.device) == 1;
    }

    /* The expert of a live slot: it is on this device, and no earlier slot names it. Else -1. */
    __device__ int live(int64_t t, int64_t k) const
    {
        const int64_t e = choice(t, k);
        return hosted(e) && !named_before(t, k, (int)e) ? (int)e : -1;
    }
    /* Calls each(e) for N slots of a token at a time, below `end`; the last perhaps several times. */
    template <bool ALIGNED, class Each>
    __device__ __forceinline__ void for_choices(int64_t t, int64_t end, const Each &each) const
    {
        int64_t e[4];
#pragma unroll 1
        for (int64_t k = 0; k < end; k += 4) {
            load_choices<4, ALIGNED>(t, k, end, e);
            each(e);
        }
    }
    template <bool ALIGNED> __device__ __forceinline__ bool names(int64_t t, int64_t k, int64_t expert) const
    {
        bool found = false;
        for_choices<ALIGNED>(t, k, [&](const int64_t(&e)[4]) {
            found |= e[0] == expert || e[1] == expert || e[2] == expert || e[3] == expert;
        });
        return found;
    }
    __device__ bool named_before(int64_t t, int64_t k, int e) const
    {
        return aligned ? names<true>(t, k, e) : names<false>(t, k, e);
    }
    template <bool ALIGNED> __device__ __forceinline__ bool hits(int64_t t) const
    {
        bool found = false;
        for_choices<ALIGNED>(t, p.n_experts > 0 ? p.n_slots : 0, [&](const int64_t(&e)[4]) {
            u16 here[4];
#pragma unroll
            for (int u = 0; u < 4; u++)
                here[u] = number<u16, ALIGNED>(
                    syc_row(p.mapping, e[u] >= 0 && e[u] < p.n_experts ? e[u] : 0) + 2 * p.device);
#pragma unroll
            for (int u = 0; u < 4; u++)
                found |= here[u] == 1 && e[u] >= 0 && e[u] < p.n_experts;
        });
        return found;
    }
    __device__ bool hit(int64_t t) const
    {
        return aligned ? hits<true>(t) : hits<false>(t);
    }
    /* `small`: the slots of all tokens are less than 2^31. */
    template <bool small> SYC_INLINE int64_t quotient(int64_t i, const syc_split &by)
    {
        return small ? (int64_t)syc_divide((u32)i, by.small) : syc_quotient(i, by);
    }
    /* Token i in order of position. */
    template <bool small = false> __device__ int64_t token(int64_t i) const
    {
        if (p.interleave == 0)
            return i;
        const int64_t position = quotient<small>(i, per_position), n = i - position * per_position.d;
        const int64_t run = quotient<small>(n, interleave);
        return run * (p.n_positions * p.interleave) + position * p.interleave + n - run * p.interleave;
    }
    /* Of an expert here, with n rows that are tokens; OVERFULL more where expert_rows does not permit
       them. */
    __device__ u64 padded(u32 n) const
    {
        if (p.args.expert_rows > 0)
            return (u64)p.args.expert_rows + (n > (u64)p.args.expert_rows ? OVERFULL : 0);
        return (u64)(syc_quotient((int64_t)n + align.d - 1, align) * align.d);
    }
    /* Rows of an expert in the input, with padding. */
    __device__ u64 rows_of(int64_t e) const
    {
        if ((p.args.layout == SY_LAYOUT_PADDED || p.args.expert_rows > 0) && !hosted(e))
            return 0;
        return p.args.layout == SY_LAYOUT_PADDED ? (u64)p.n_tokens : padded(__ldcg(count + e));
    }
    __device__ __forceinline__ int expert(int64_t e) const
    {
        return e >= 0 && e < p.n_experts ? (int)e : -1;
    }

    /* Stores the rows of a sum, by a warp. `row_at(k)`: that of slot k of token t, NO_ROW: none. */
    template <class Row>
    __device__ __forceinline__ void list_rows(int64_t t, int64_t sum, const Row &row_at) const
    {
        u32 found = 0;
#pragma unroll 1
        for (int64_t first_slot = 0; first_slot < p.n_slots; first_slot += 32) {
            const int64_t k = first_slot + syc_lane();
            const u32 at = k < p.n_slots ? row_at(k) : NO_ROW,
                      live = __ballot_sync(SYC_ALL_LANES, at != NO_ROW);
            if (at != NO_ROW) {
                const u8 *const w = syc_row(p.weights, t) + k * (p.weights.type == SY_TYPE_F32 ? 4 : 2);
                entry[sum * apart + found + __popc(live & syc_lanes_below())] = {
                    at, p.weights.data == NULL ? 1.0f : syc_load_float(w, p.weights.type)};
            }
            found += (u32)__popc(live);
        }
        if (syc_lane() == 0)
            n[sum] = found;
    }
};
