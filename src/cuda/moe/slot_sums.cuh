/*
 * Sums of rows that are looked up: a block takes parts of several items, looks up the rows of their choices,
 * and adds them in registers, in the order of the choices, from +0 on.
 *
 * Choices is a struct with `int64_t n_choices`, `struct syc_added choice_at(int64_t choice, int64_t item)`,
 * whose `row` is NULL and its gate 0 where there is none, or past the last choice, and `u8 *to(int64_t
 * item)`.
 */
#pragma once

#include "cuda/prim/slots.cuh"

enum {
    SYC_CHOICES = 16,  /* of an item, looked up together */
    SYC_TOGETHER = 4,  /* rows loaded before the first of them is added */
    SYC_SUM_PARTS = 64 /* most of a block */
};

struct syc_added {
    const u8 *row;
    float gate;
};

/* Looks up the choices [at, at + n) of n_parts parts from `first` on. */
template <class Choices>
SYC_INLINE void syc_look_up(const Choices &c, const syc_row_parts &parts, int64_t first, int n_parts,
                            int64_t at, int n, syc_added *found)
{
    for (int i = (int)threadIdx.x; i < n_parts * n; i += SYC_SLOT_THREADS)
        found[i] = c.choice_at(at + i % n, syc_part_at(parts, first + i / n).row);
}

/* Adds vector v of n rows, a multiple of SYC_TOGETHER. Rows that are missing add +0, which changes no sum:
   none is ever -0. */
template <class Numbers>
SYC_INLINE void syc_add_choices(const syc_added *choice, int n, const typename Numbers::At &at,
                                float (&sum)[Numbers::N])
{
#pragma unroll 1
    for (int k = 0; k < n; k += SYC_TOGETHER) {
        typename Numbers::V held[SYC_TOGETHER];
#pragma unroll
        for (int u = 0; u < SYC_TOGETHER; u++)
            held[u] = choice[k + u].row != NULL ? Numbers::load(choice[k + u].row, at)
                                                : syc_zero<typename Numbers::V>();
#pragma unroll
        for (int u = 0; u < SYC_TOGETHER; u++) {
            float x[Numbers::N];
            Numbers::widen(Numbers::take(held[u], choice[k + u].row, at), x);
#pragma unroll
            for (int j = 0; j < Numbers::N; j++)
                sum[j] = __fadd_rn(sum[j], __fmul_rn(choice[k + u].gate, x[j]));
        }
    }
}

/* The sums of all parts of a block. closed: nothing is written if any thread says so. */
template <sy_type T, bool WIDE, class Choices>
SYC_INLINE void syc_sum_parts(const Choices &c, const syc_row_parts &parts, bool closed)
{
    typedef syc_row_numbers<T, WIDE> Numbers;
    __shared__ syc_added choice[SYC_SUM_PARTS * SYC_CHOICES];
    __shared__ syc_part part[SYC_SUM_PARTS];
    const int n =
        (int)(min(c.n_choices, (int64_t)SYC_CHOICES) + SYC_TOGETHER - 1) / SYC_TOGETHER * SYC_TOGETHER;
    for (int64_t first = (int64_t)blockIdx.x * parts.per_block; first < parts.n;
         first += (int64_t)gridDim.x * parts.per_block) {
        const int own = (int)min((int64_t)parts.per_block, parts.n - first);
        const u32 all = (u32)own * parts.vectors.d;
        __syncthreads();
        if ((int)threadIdx.x < own)
            part[threadIdx.x] = syc_part_at(parts, first + threadIdx.x);
        syc_look_up(c, parts, first, own, 0, n, choice);
        if (!syc_all_open(closed)) /* a barrier, too */
            return;
        for (u32 begin = 0; begin < all; begin += SYC_SLOT_THREADS) { /* the same turns for all threads */
            const u32 i = begin + threadIdx.x, p = syc_divide(i, parts.vectors), v = i - p * parts.vectors.d;
            const bool in = i < all && v < part[p].n;
            const typename Numbers::At place =
                in ? Numbers::place([&] { return c.to(part[p].row); }, part[p].begin + v, parts.bytes)
                   : typename Numbers::At();
            float sum[Numbers::N];
#pragma unroll
            for (int j = 0; j < Numbers::N; j++)
                sum[j] = 0.0f;
            if (in)
                syc_add_choices<Numbers>(choice + (int)p * n, n, place, sum);
            /* more than fit at once are looked up every time */
            for (int64_t at = SYC_CHOICES; at < c.n_choices; at += SYC_CHOICES) {
                __syncthreads();
                syc_look_up(c, parts, first, own, at, n, choice);
                __syncthreads();
                if (in)
                    syc_add_choices<Numbers>(choice + (int)p * n, n, place, sum);
            }
            if (in)
                Numbers::store(c.to(part[p].row), place, Numbers::narrow(sum));
            if (c.n_choices > SYC_CHOICES) {
                __syncthreads();
                syc_look_up(c, parts, first, own, 0, n, choice);
                __syncthreads();
            }
        }
    }
}

template <sy_type T, bool WIDE, class Choices>
static __global__ void __launch_bounds__(SYC_SLOT_THREADS)
    syc_sum_choices(const Choices c, const syc_row_parts parts, const syc_gate gate)
{
    syc_sum_parts<T, WIDE>(c, parts, syc_is_closed(gate));
}

/* For syc_by_type. */
template <class Choices> struct syc_launch_sums {
    syc_call *call;
    Choices c;
    int64_t n_items, hidden;
    template <sy_type T, bool WIDE> void run() const
    {
        syc_row_parts parts =
            syc_parts_of<syc_row_numbers<T, WIDE>>(n_items, hidden, call->device->processors);
        parts.per_block = parts.per_block < SYC_SUM_PARTS ? parts.per_block : (int)SYC_SUM_PARTS;
        syc_launch(&call->queue, syc_sum_choices<T, WIDE, Choices>, SYC_AFTER, syc_parts_blocks(parts),
                   SYC_SLOT_THREADS, 0, c, parts, call->gate);
    }
};
