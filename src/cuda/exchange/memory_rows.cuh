/*
 * The kernels that write what memory.cu has collected, for it alone. `block` is the collected memory on the
 * device.
 */
#pragma once

#include "plan/memory.h"
#include "cuda/codes/coded_sums.cuh"
#include "cuda/moe/slot_sums.cuh"
#include "cuda/prim/rows.cuh"

enum { PUBLISH_THREADS = 1024 };

/* n rows to a tensor, from another one, or from the block at `from_block`. */
struct table {
    syi_rows to, from;
    int64_t n, row_bytes;
    size_t from_block;
    bool in_block;
};

/* Rows, or sums, of one device of the mesh: places in the block. */
struct job {
    int64_t first; /* rows of the jobs before */
    size_t picks, sources[SY_A2A_MAX_PLANES];
    syi_rows to[SY_A2A_MAX_PLANES], by;
    int64_t n;
    bool zero;
};

/* Blocks take the rows of one table together. */
static __global__ void __launch_bounds__(256)
    write_tables(const u8 *block, size_t tables, int n, const syc_gate gate)
{
    if (!syc_may_write(gate))
        return;
    for (int i = (int)blockIdx.x; i < n; i += (int)gridDim.x) {
        const table t = ((const table *)(block + tables))[i];
        const syi_rows from = {t.in_block ? (u8 *)block + t.from_block : t.from.data, t.from.stride};
        const syc_split by = {t.row_bytes, {0, 0, 0}};
        for (int64_t b = threadIdx.x; b < t.n * t.row_bytes; b += blockDim.x) {
            const int64_t row = syc_quotient(b, by), at = b - row * t.row_bytes;
            syc_out_row(t.to, row)[at] = syc_row(from, row)[at];
        }
    }
}

/* Words to two places at once: choices, for other processes and for the host. */
static __global__ void __launch_bounds__(256) store_twice(u32 *to, u32 *also, const u32 *from, u32 n)
{
    const u32 i = blockIdx.x * 256 + threadIdx.x;
    if (i < n)
        to[i] = also[i] = from[i];
}

/* Words for other processes, by one block; then `number` to the host, which sees that they and all before
   them in the stream are written. */
static __global__ void __launch_bounds__(PUBLISH_THREADS)
    publish(u32 *to, const u32 *from, u32 n, u32 *seen, u32 number)
{
#pragma unroll 4
    for (u32 i = threadIdx.x; i < n; i += PUBLISH_THREADS)
        to[i] = from[i];
    __syncthreads();
    if (threadIdx.x != 0)
        return;
#ifndef SWITCHYARD_CUDA_EMULATED
    __threadfence_system();
#endif
    *(volatile u32 *)seen = number;
}

/* The job of row i: the last that begins there or before. */
SYC_INLINE const struct job *job_of(const u8 *block, size_t jobs, int n, int64_t i)
{
    const struct job *const all = (const struct job *)(block + jobs);
    int low = 0;
    for (int high = n; high - low > 1;) {
        const int middle = (low + high) / 2;
        if (all[middle].first <= i)
            low = middle;
        else
            high = middle;
    }
    return &all[low];
}

struct planed_rows {
    const u8 *block;
    size_t jobs;
    int n_jobs, plane;
    __device__ syc_piece at(int64_t i) const
    {
        const struct job *const j = job_of(block, jobs, n_jobs, i);
        const int64_t r = i - j->first;
        const syi_a2a_pick pick = ((const syi_a2a_pick *)(block + j->picks))[r];
        u8 *const to = syc_out_row(j->to[plane], r);
        if (pick.position < 0)
            return {NULL, j->zero ? to : NULL};
        return {syc_row(((const syi_rows *)(block + j->sources[plane]))[pick.position], pick.row), to};
    }
};

struct summed_rows {
    int64_t n_choices;
    const u8 *block;
    size_t sums;
    int n_sums;
    sy_type weight_type;
    template <class Found>
    __device__ __forceinline__ void find(int64_t choice, int64_t i, const Found &found) const
    {
        const struct job *const j = job_of(block, sums, n_sums, i);
        const int64_t r = i - j->first;
        if (choice >= n_choices)
            return;
        const syi_a2a_pick pick = ((const syi_a2a_pick *)(block + j->picks))[choice * j->n + r];
        if (pick.position < 0)
            return;
        const u8 *const weights = j->by.data != NULL ? syc_row(j->by, r) : NULL;
        found(j, pick, syc_gate_of(weights, choice, weight_type));
    }
    __device__ const u8 *row_of(const struct job *j, const syi_a2a_pick &pick, int plane) const
    {
        return syc_row(((const syi_rows *)(block + j->sources[plane]))[pick.position], pick.row);
    }
    __device__ syc_added choice_at(int64_t choice, int64_t i) const
    {
        syc_added one = {NULL, 0.0f};
        find(choice, i, [&](const struct job *j, const syi_a2a_pick &pick, float weight) {
            one = {row_of(j, pick, 0), weight};
        });
        return one;
    }
    /* For syc_sum_coded. */
    __device__ int64_t n_rows(int64_t) const { return n_choices; }
    __device__ syc_coded_place row_at(int64_t i, int64_t choice) const
    {
        syc_coded_place one = {NULL, NULL, 0.0f};
        find(choice, i, [&](const struct job *j, const syi_a2a_pick &pick, float weight) {
            one = {row_of(j, pick, 0), row_of(j, pick, 1), weight};
        });
        return one;
    }
    __device__ u8 *to(int64_t i) const
    {
        const struct job *const j = job_of(block, sums, n_sums, i);
        return syc_out_row(j->to[0], i - j->first);
    }
};
