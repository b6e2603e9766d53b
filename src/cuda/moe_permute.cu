/*
 * moe_permute and moe_permute_ids on a device. Both rank slots by expert and copy every token row to the rows of its slots. A
 * routing map first becomes a list of experts per token, in scratch memory, by the kernel that counts and validates.
 */
#include "cuda/moe.cuh"
#include "cuda/sort.cuh"
#include "cuda/backend.h"

/* ---- Slots ---------------------------------------------------------------------------------------------------------- */

/* Slots as keys: given ids, or those that were made of a map. */
struct slot_ids {
    int64_t n;
    int n_keys;
    int64_t k; /* slots of a token */
    struct syi_rows ids;
    sy_type type;
    bool allow_missing;

    __device__ int64_t id(int64_t i) const
    {
        const int64_t t = i / k;
        return syc_index(syc_row(ids, t), i - t * k, type);
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
    __device__ void explain(int64_t i, struct syi_found *f) const
    {
        const int64_t t = i / k;
        *f = {SYI_BAD_ID_RANGE, 0, t, i - t * k, id(i), n_keys, 0};
    }
};

/* Where ranked slots go. */
struct ranked {
    int64_t k, row_begin, n_rows; /* rows of the window */
    u8 *sorted_indices, *counts, *offsets, *out_probs;
    struct syi_rows probs; /* by token: of each slot, or, with `experts`, of each expert */
    int prob_bytes;
    bool experts;
    int n_experts;
    int64_t *live; /* scratch: slots that have a row */

    __device__ void put(int64_t i, int key, int64_t row) const
    {
        const int64_t t = i / k, at = row - row_begin;
        syc_store<u32>(sorted_indices + 4 * i, (u32)row);
        if (prob_bytes == 0 || at < 0 || at >= n_rows)
            return;
        const u8 *const from = syc_row(probs, t) + (experts ? (int64_t)key : i - t * k) * prob_bytes;
        if (prob_bytes == 4)
            syc_store<u32>(out_probs + 4 * at, syc_load<u32>(from));
        else if (prob_bytes == 2)
            syc_store<u16>(out_probs + 2 * at, syc_load<u16>(from));
        else
            for (int b = 0; b < prob_bytes; b++)
                out_probs[at * prob_bytes + b] = from[b];
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
            syc_store<u64>(offsets + 8 * (int64_t)n_experts, all);
        *live = all;
    }
};
