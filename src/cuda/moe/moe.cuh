/*
 * What the operators on routed tokens share on a device: experts of a token, ranked slots.
 */
#pragma once

#include "cuda/prim/fan.cuh"
#include "cuda/prim/load.cuh"
#include "cuda/prim/rank.cuh"

/* ---- Routing maps ---- */

/* Bit b: byte b is not 0. */
SYC_INLINE u32 syc_nonzero_bytes(u64 v)
{
    const u64 ones =
        ((((v & 0x7f7f7f7f7f7f7f7full) + 0x7f7f7f7f7f7f7f7full) | v) >> 7) & 0x0101010101010101ull;
    return (u32)(ones * 0x0102040810204080ull >> 56);
}

/* Experts e..e+7 of a map row, a byte each; those from E on are 0. */
SYC_INLINE u64 syc_map_bytes(const u8 *row, int64_t e, int64_t n_experts)
{
    u64 bytes = 0;
    if (e + 8 <= n_experts)
        bytes = syc_load<u64>(row + e);
    else
#pragma unroll 1
        for (int i = 0; e + i < n_experts; i++)
            bytes |= (u64)row[e + i] << (8 * i);
    return bytes;
}

/* The same as bits. */
SYC_INLINE u32 syc_experts_at(const u8 *row, int64_t e, int64_t n_experts)
{
    return syc_nonzero_bytes(syc_map_bytes(row, e, n_experts));
}

/* Lanes that see a map row at once, eight experts each. */
static inline __device__ __host__ int syc_map_lanes(int64_t n_experts)
{
    return n_experts <= 64 ? 8 : n_experts <= 128 ? 16 : 32;
}

/* What this lane sees of it first. Row NULL: nothing. */
SYC_INLINE u64 syc_first_bytes(const u8 *row, int64_t n_experts, int lanes)
{
    const int e = 8 * ((int)threadIdx.x & (lanes - 1));
    return row != NULL && e < n_experts ? syc_map_bytes(row, e, n_experts) : 0;
}

/*
 * Calls put(j, e) for the j-th expert e of a map row, in any order; returns how many there are. By a whole
 * warp, of which `lanes` have one row; `bytes` is syc_first_bytes of it.
 */
template <class Put>
static __device__ int64_t syc_each_expert(const u8 *row, int64_t n_experts, int lanes, u64 bytes,
                                          const Put &put)
{
    const int lane = (int)threadIdx.x & (lanes - 1);
    int64_t found = 0;
    for (int64_t e0 = 0; e0 < n_experts; e0 += 8 * lanes) {
        const int64_t e = e0 + 8 * lane;
        if (e0 > 0)
            bytes = e < n_experts && row != NULL ? syc_map_bytes(row, e, n_experts) : 0;
        u32 bits = syc_nonzero_bytes(bytes);
        const int own = __popc(bits);
        int sum = own;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const int up = __shfl_up_sync(SYC_ALL_LANES, sum, (unsigned)d);
            sum += lane >= d ? up : 0;
        }
        for (int64_t j = found + sum - own; bits != 0; bits &= bits - 1, j++)
            put(j, e + __ffs((int)bits) - 1);
        found += __shfl_sync(SYC_ALL_LANES, sum, ((int)threadIdx.x % 32) | (lanes - 1));
    }
    return found;
}

template <class Put>
static __device__ int64_t syc_each_expert(const u8 *row, int64_t n_experts, const Put &put)
{
    return syc_each_expert(row, n_experts, 32, syc_first_bytes(row, n_experts, 32), put);
}

/* Lane i holds row i of a matrix of bits; afterwards it holds column i. */
SYC_INLINE u32 syc_transpose_bits(u32 x)
{
    const int lane = (int)threadIdx.x % 32;
    u32 m = 0x0000ffffu;
#pragma unroll
    for (int j = 16; j > 0; j /= 2, m ^= m << j) {
        const u32 y = __shfl_xor_sync(SYC_ALL_LANES, x, j);
        x = (lane & j) != 0 ? (x & ~m) | ((y >> j) & m) : (x & m) | ((y & m) << j);
    }
    return x;
}

/* ---- Ranked slots ---- */

/* A probability of 2 or 4 bytes. */
SYC_INLINE void syc_copy_prob(u8 *to, const u8 *from, int bytes)
{
    if (bytes == 4)
        syc_store<u32>(to, syc_load<u32>(from));
    else
        syc_store<u16>(to, syc_load<u16>(from));
}

/* Slots [T,K] as keys: the experts that they name. */
struct syc_slot_keys {
    int64_t n;
    int n_keys;
    syc_split by_k;
    syi_tensor ids;
    bool allow_missing; /* ids -1 and E name no expert */

    __device__ int64_t id(int64_t i) const
    {
        const int64_t t = syc_quotient(i, by_k);
        return syc_index(syc_row(ids, t), i - t * by_k.d, ids.type);
    }
    __device__ int key(int64_t i) const
    {
        const int64_t e = id(i);
        return e >= 0 && e < n_keys ? (int)e : -1;
    }
    __device__ bool wrong(int64_t i) const
    {
        const int64_t e = id(i);
        return (e < 0 || e >= n_keys) && !(allow_missing && (e == -1 || e == n_keys));
    }
    __device__ void explain(int64_t i, syi_found *f) const
    {
        const int64_t t = syc_quotient(i, by_k);
        *f = {SYI_BAD_ID_RANGE, 0, t, i - t * by_k.d, id(i), n_keys, 0};
    }
};

/* Where ranked slots go, for syc_rank, and where the rows of tokens go, for syc_fan: a window of the ranked
   rows. */
struct syc_slot_rows {
    syc_split by_k;
    int64_t row_begin, n_rows;
    u8 *sorted_indices, *counts, *offsets, *out_probs; /* all but the first may be NULL */
    syi_rows probs; /* by token: of each slot, or, with `of_experts`, of each expert */
    int prob_bytes; /* 0: none */
    bool of_experts;
    int64_t n_experts;
    int64_t *live; /* scratch: slots that have a row */

    __device__ void put(int64_t i, int key, int64_t row) const
    {
        const int64_t at = row - row_begin;
        syc_store<u32>(sorted_indices + 4 * i, (u32)row);
        if (prob_bytes == 0 || at < 0 || at >= n_rows)
            return;
        const int64_t t = syc_quotient(i, by_k);
        syc_copy_prob(out_probs + at * prob_bytes,
                      syc_row(probs, t) + (of_experts ? (int64_t)key : i - t * by_k.d) * prob_bytes,
                      prob_bytes);
    }
    __device__ void skip(int64_t i) const { syc_store<u32>(sorted_indices + 4 * i, 0xffffffffu); }
    __device__ void begin(int e, u32 first, u32 count) const
    {
        if (counts != NULL)
            syc_store<u64>(counts + 8 * (int64_t)e, count);
        if (offsets != NULL)
            syc_store<u64>(offsets + 8 * (int64_t)e, first);
    }
    __device__ void end(u32 all) const
    {
        if (offsets != NULL)
            syc_store<u64>(offsets + 8 * n_experts, all);
        *live = all;
    }
    __device__ int64_t row(int64_t t, int64_t j) const
    {
        const int64_t at = (int32_t)syc_load_here<u32>(sorted_indices + 4 * (t * by_k.d + j)) - row_begin;
        return at < n_rows && at >= 0 ? at : -1;
    }
    __device__ int64_t first_clear() const { return max(*live - row_begin, (int64_t)0); }
    __device__ void clear(int64_t row) const
    {
#pragma unroll 1
        for (int b = 0; b < prob_bytes; b++)
            out_probs[row * prob_bytes + b] = 0;
    }
};
