/*
 * Sums of rows that are codes: a block takes a part of a sum, looks up its rows and weights, and adds up numbers in registers, in
 * the order of the rows, from +0 on; eight at a time where rows are aligned.
 *
 * Sums is a struct with `u8 *to(int64_t item)`, NULL where nothing is written, `int64_t n_rows(int64_t item)`, and
 * `struct syc_coded_row row_at(int64_t item, int64_t k)`. All of them run after the kernels before.
 */
#ifndef SYC_CODED_SUMS_CUH
#define SYC_CODED_SUMS_CUH

#include "base/row_math.h"
#include "cuda/block.cuh"
#include "cuda/codes.cuh"
#include "cuda/load.cuh"

enum { SYC_CODED_SUM_THREADS = 256, SYC_CODED_SUM_ROWS = 32 }; /* rows looked up together */

struct syc_coded_row {
    int64_t row; /* -1: none */
    float weight;
};

/* Of codes from number `at` on, the sum of which is of type T. */
template <sy_type T, bool WIDE> struct syc_coded_numbers {
    enum { N = WIDE ? SYC_UNIT : 1 };

    static __device__ __forceinline__ void add(const struct syi_row_codes_plan &p, const struct syc_coded_row &row, int64_t at, float (&sum)[N])
    {
        const u8 *const codes = syc_row(p.codes, row.row);
        const float scale = syi_row_load_scale(&p, syc_row(p.scales, row.row), at / (int64_t)p.group);
        float x[N];
        if constexpr (WIDE)
            syc_unpack_unit<SY_TYPE_F32>(p.code, __ldcs((const uint2 *)(codes + at)), scale).widen(x);
        else
            x[0] = syc_canonical(__fmul_rn(scale, syi_code_to_f32(p.code, codes[at])));
#pragma unroll
        for (int j = 0; j < N; j++)
            sum[j] = __fadd_rn(sum[j], __fmul_rn(row.weight, x[j]));
    }
    static __device__ __forceinline__ void store(u8 *to, int64_t at, const float (&sum)[N])
    {
        if constexpr (WIDE)
            syc_eight<T>::narrow(sum).store(to, (u32)(at / SYC_UNIT));
        else
            syc_store_float(to + at * (T == SY_TYPE_F32 ? 4 : 2), T, syc_canonical(sum[0]));
    }
};

/* n_parts: of a sum, each of `part` units. */
template <sy_type T, bool WIDE, class Sums>
static __global__ void __launch_bounds__(SYC_CODED_SUM_THREADS, 3)
    syc_sum_coded(const __grid_constant__ struct syi_row_codes_plan p, const __grid_constant__ Sums sums, int64_t n_items, int64_t n_parts,
                  int64_t part, const __grid_constant__ struct syc_gate gate)
{
    typedef syc_coded_numbers<T, WIDE> Numbers;
    __shared__ struct syc_coded_row rows[SYC_CODED_SUM_ROWS];
    const int64_t units = p.n_groups * (int64_t)p.group / Numbers::N;
    if (!syc_may_write(gate))
        return;
#pragma unroll 1
    for (int64_t i = blockIdx.x; i < n_items * n_parts; i += gridDim.x) {
        const int64_t item = i / n_parts, begin = (i - item * n_parts) * part, end = min(begin + part, units);
        u8 *const to = sums.to(item);
        const int64_t n = to != NULL ? sums.n_rows(item) : 0;
#pragma unroll 1
        for (int64_t round = begin; to != NULL && round < end; round += SYC_CODED_SUM_THREADS) { /* the same turns for all threads */
            const int64_t unit = round + threadIdx.x;
            float sum[Numbers::N] = {};
#pragma unroll 1
            for (int64_t first = 0; first < n; first += SYC_CODED_SUM_ROWS) {
                const int m = (int)min(n - first, (int64_t)SYC_CODED_SUM_ROWS);
                __syncthreads();
                if ((int)threadIdx.x < m)
                    rows[threadIdx.x] = sums.row_at(item, first + threadIdx.x);
                __syncthreads();
#pragma unroll 4
                for (int k = 0; k < m; k++)
                    if (unit < end && rows[k].row >= 0)
                        Numbers::add(p, rows[k], unit * Numbers::N, sum);
            }
            if (unit < end)
                Numbers::store(to, unit * Numbers::N, sum);
        }
    }
}

template <sy_type T, bool WIDE, class Sums>
static void syc_launch_coded_sums(struct syc_call *call, const struct syi_row_codes_plan *p, const Sums &sums, int64_t n_items)
{
    const int64_t units = p->n_groups * (int64_t)p->group / syc_coded_numbers<T, WIDE>::N, most = 16 * (int64_t)call->device->processors;
    const int64_t n_parts = (units + SYC_CODED_SUM_THREADS - 1) / SYC_CODED_SUM_THREADS, wanted = n_items * n_parts;
    syc_launch(&call->queue, syc_sum_coded<T, WIDE, Sums>, SYC_AFTER, wanted < most ? wanted : most, SYC_CODED_SUM_THREADS, 0, *p, sums, n_items,
               n_parts, (int64_t)SYC_CODED_SUM_THREADS, call->gate);
}

/* Of n_items sums, in rows of `to` that are of the plan's type. */
template <class Sums>
static void syc_sum_coded_rows(struct syc_call *call, const struct syi_row_codes_plan *p, struct syi_rows to, const Sums &sums, int64_t n_items)
{
    const u64 out = (u64)(uintptr_t)to.data | (u64)to.stride, codes = (u64)(uintptr_t)p->codes.data | (u64)p->codes.stride;
    const bool wide = p->group % SYC_UNIT == 0 && out % 16 == 0 && codes % SYC_UNIT == 0;
    if (n_items == 0 || p->group == 0 || p->n_groups == 0) {
        syc_only_report(call);
        return;
    }
    const auto run = [&](auto narrow, auto eights) { wide ? eights(call, p, sums, n_items) : narrow(call, p, sums, n_items); };
    if (p->type == SYI_FLOAT_F32)
        run(syc_launch_coded_sums<SY_TYPE_F32, false, Sums>, syc_launch_coded_sums<SY_TYPE_F32, true, Sums>);
    else if (p->type == SYI_FLOAT_F16)
        run(syc_launch_coded_sums<SY_TYPE_F16, false, Sums>, syc_launch_coded_sums<SY_TYPE_F16, true, Sums>);
    else
        run(syc_launch_coded_sums<SY_TYPE_BF16, false, Sums>, syc_launch_coded_sums<SY_TYPE_BF16, true, Sums>);
}

#endif
