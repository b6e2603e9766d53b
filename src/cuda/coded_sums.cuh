/*
 * Sums of rows that are codes: a block takes a part of a sum, looks up its rows and weights, and adds up numbers in registers, in
 * the order of the rows, from +0 on; eight at a time where rows are aligned.
 *
 * Sums is a struct with `u8 *to(int64_t item)`, NULL where nothing is written, `int64_t n_rows(int64_t item)`, and
 * `row_at(int64_t item, int64_t k)`: a row of the plan's tensors, struct syc_coded_row, or of any, struct syc_coded_place. All of
 * them run after the kernels before.
 */
#ifndef SYC_CODED_SUMS_CUH
#define SYC_CODED_SUMS_CUH

#include "base/row_math.h"
#include "cuda/block.cuh"
#include "cuda/codes.cuh"
#include "cuda/load.cuh"
#include "cuda/slots.cuh"

enum { SYC_CODED_SUM_THREADS = 256, SYC_CODED_SUM_ROWS = 32 }; /* rows looked up together */

struct syc_coded_row {
    int64_t row; /* -1: none */
    float weight;
};

struct syc_coded_place {
    const u8 *codes, *scales; /* NULL: none */
    float weight;
};

static __device__ __forceinline__ struct syc_coded_place syc_coded_place_of(const struct syi_row_codes_plan &p, const struct syc_coded_row &row)
{
    return {row.row < 0 ? NULL : syc_row(p.codes, row.row), row.row < 0 ? NULL : syc_row(p.scales, row.row), row.weight};
}
static __device__ __forceinline__ struct syc_coded_place syc_coded_place_of(const struct syi_row_codes_plan &, const struct syc_coded_place &row)
{
    return row;
}

/* Of codes from number `at` on, the sum of which is of type T. */
template <sy_type T, bool WIDE> struct syc_coded_numbers {
    enum { N = WIDE ? SYC_UNIT : 1 };

    static __device__ __forceinline__ void add(const struct syi_row_codes_plan &p, const struct syc_coded_place &row, int64_t at, float (&sum)[N])
    {
        const float scale = syi_row_load_scale(&p, row.scales, at / (int64_t)p.group);
        float x[N];
        if constexpr (WIDE)
            syc_unpack_unit<SY_TYPE_F32>(p.code, __ldcs((const uint2 *)(row.codes + at)), scale).widen(x);
        else
            x[0] = syc_canonical(__fmul_rn(scale, syi_code_to_f32(p.code, row.codes[at])));
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

/* The sums of a block. n_parts: of a sum, each of `part` units. */
template <sy_type T, bool WIDE, class Sums>
static __device__ __forceinline__ void syc_sum_coded_parts(const struct syi_row_codes_plan &p, const Sums &sums, int64_t n_items, int64_t n_parts,
                                                           int64_t part)
{
    typedef syc_coded_numbers<T, WIDE> Numbers;
    __shared__ struct syc_coded_place rows[SYC_CODED_SUM_ROWS];
    const int64_t units = p.n_groups * (int64_t)p.group / Numbers::N;
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
                    rows[threadIdx.x] = syc_coded_place_of(p, sums.row_at(item, first + threadIdx.x));
                __syncthreads();
#pragma unroll 4
                for (int k = 0; k < m; k++)
                    if (unit < end && rows[k].codes != NULL)
                        Numbers::add(p, rows[k], unit * Numbers::N, sum);
            }
            if (unit < end)
                Numbers::store(to, unit * Numbers::N, sum);
        }
    }
}

template <sy_type T, bool WIDE, class Sums>
static __global__ void __launch_bounds__(SYC_CODED_SUM_THREADS, 3)
    syc_sum_coded(const __grid_constant__ struct syi_row_codes_plan p, const __grid_constant__ Sums sums, int64_t n_items, int64_t n_parts,
                  int64_t part, const __grid_constant__ struct syc_gate gate)
{
    if (syc_may_write(gate))
        syc_sum_coded_parts<T, WIDE>(p, sums, n_items, n_parts, part);
}

/* How many parts a sum has, each of SYC_CODED_SUM_THREADS units, and blocks for all of them. */
template <sy_type T, bool WIDE> static int64_t syc_coded_parts_of(const struct syi_row_codes_plan *p)
{
    const int64_t units = p->n_groups * (int64_t)p->group / syc_coded_numbers<T, WIDE>::N;
    return (units + SYC_CODED_SUM_THREADS - 1) / SYC_CODED_SUM_THREADS;
}

static inline int64_t syc_coded_blocks(const struct syc_call *call, int64_t n_items, int64_t n_parts)
{
    const int64_t most = 16 * (int64_t)call->device->processors, wanted = n_items * n_parts;
    return wanted < most ? wanted : most;
}

template <sy_type T, bool WIDE, class Sums>
static void syc_launch_coded_sums(struct syc_call *call, const struct syi_row_codes_plan *p, const Sums &sums, int64_t n_items)
{
    const int64_t n_parts = syc_coded_parts_of<T, WIDE>(p);
    syc_launch(&call->queue, syc_sum_coded<T, WIDE, Sums>, SYC_AFTER, syc_coded_blocks(call, n_items, n_parts), SYC_CODED_SUM_THREADS, 0, *p, sums,
               n_items, n_parts, (int64_t)SYC_CODED_SUM_THREADS, call->gate);
}

/* Whether eight numbers are loaded and stored at a time. The bits are those of addresses and distances of all rows, `out` of the sums. */
static inline bool syc_sums_eights(const struct syi_row_codes_plan *p, u64 codes, u64 out)
{
    return p->group % SYC_UNIT == 0 && out % 16 == 0 && codes % SYC_UNIT == 0;
}

/* Calls f.run<T, WIDE>() for the type of sums. */
template <class F> static void syc_by_sum(enum syi_float type, bool wide, const F &f)
{
    syc_by_type(type == SYI_FLOAT_F32 ? SY_TYPE_F32 : type == SYI_FLOAT_F16 ? SY_TYPE_F16 : SY_TYPE_BF16, wide ? 0 : 1, f);
}

/* For it: sums that other kernels validate. */
template <class Sums> struct syc_coded_sums {
    struct syc_call *call;
    const struct syi_row_codes_plan *p;
    const Sums &sums;
    int64_t n_items;
    template <sy_type T, bool WIDE> void run() const { syc_launch_coded_sums<T, WIDE>(call, p, sums, n_items); }
};

/* Of n_items sums, in rows of `to` that are of the plan's type. */
template <class Sums>
static void syc_sum_coded_rows(struct syc_call *call, const struct syi_row_codes_plan *p, struct syi_rows to, const Sums &sums, int64_t n_items)
{
    if (n_items == 0 || p->group == 0 || p->n_groups == 0) {
        syc_only_report(call);
        return;
    }
    syc_by_sum(p->type, syc_sums_eights(p, syc_alignment(p->codes), syc_alignment(to)), syc_coded_sums<Sums>{call, p, sums, n_items});
}

#endif
