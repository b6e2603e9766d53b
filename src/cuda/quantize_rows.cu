/*
 * quantize_rows on a device. Groups of the usual lengths: sixteen numbers per lane, the lanes of a group next to each other in a
 * warp, the next sixteen loaded meanwhile. Other groups, whole rows above all: a block per group, whose numbers stay in registers as
 * far as they fit.
 */
#include "base/row_math.h"
#include "cuda/backend.cuh"
#include "cuda/block.cuh"
#include "cuda/codes.cuh"

enum { THREADS = 256, HELD = 4 }; /* of a block; eights that a thread keeps */

/* What the numbers of a group become codes by. */
struct factor {
    float by, reciprocal;
    u32 bits; /* of the scale, as it is stored */
    bool divides, usual;
};

template <enum syi_code C> static __device__ __forceinline__ struct factor factor_of(const struct syi_row_codes_plan &p, u32 most)
{
    struct syi_row_codes_plan known = p;
    known.code = C;
    const struct syi_row_scale scale = syi_row_scale_of(&known, most);
    const bool divides = syi_row_divides(&known);
    return {scale.by, divides ? __frcp_rn(scale.by) : 0.0f, scale.bits, divides,
            divides ? __float_as_uint(scale.by) - (87u << 23) <= 80u << 23 : __float_as_uint(scale.by) < 0x7f800000u};
}

/* Any numbers. */
SYC_COLD u32 any_four(enum syi_code code, bool divides, float by, float a, float b, float c, float d)
{
    const float x[4] = {a, b, c, d};
    u32 word = 0;
#pragma unroll
    for (int j = 0; j < 4; j++)
        word |= (u32)syi_f32_to_code(code, divides ? __fdiv_rn(x[j], by) : __fmul_rn(x[j], by)) << (8 * j);
    return word;
}

/* finite: the numbers are; then products are not NaN, and quotients are found by the reciprocal where it is usual. */
template <enum syi_code C> static __device__ __forceinline__ u32 code_four(const struct factor &f, bool finite, const float *x)
{
    if (!finite || !f.usual)
        return any_four(C, f.divides, f.by, x[0], x[1], x[2], x[3]);
    if (f.divides)
        return syc_pack_four<C>(x, f.by, f.reciprocal);
    float y[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
        y[j] = __fmul_rn(x[j], f.by);
    if constexpr (C == SYI_CODE_I8) {
        u32 b[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            b[j] = __float_as_uint(__fadd_rn(fmaxf(fminf(y[j], 127.0f), -128.0f), 0x1.8p23f));
        return __byte_perm(__byte_perm(b[0], b[1], 0x0040), __byte_perm(b[2], b[3], 0x0040), 0x5410);
    } else {
        return __byte_perm(syc_two_codes(C, y[0], y[1]), syc_two_codes(C, y[2], y[3]), 0x5410);
    }
}

/* The bits of the largest magnitude, of infinity or NaN where there is one. */
template <int N> static __device__ __forceinline__ u32 largest_of(const float (&x)[N])
{
    float larger = fabsf(x[0]);
#pragma unroll
    for (int j = 1; j < N; j++)
        larger = syc_larger(larger, x[j]);
    return __float_as_uint(larger) & 0x7fffffffu;
}

/* Of the magnitudes that are numbers; `largest` is largest_of. */
template <int N> static __device__ __forceinline__ u32 largest_number(const float (&x)[N], u32 largest)
{
    if (largest <= 0x7f800000u)
        return largest;
    u32 most = 0;
#pragma unroll
    for (int j = 0; j < N; j++)
        most = max(most, syi_kv_magnitude(x[j]));
    return most;
}

static __device__ __forceinline__ void store_scale(const struct syi_row_codes_plan &p, u8 *scales, int64_t g, u32 bits)
{
    if (!p.e8m0 && ((uintptr_t)scales & 3) == 0)
        ((u32 *)scales)[g] = bits;
    else
        syi_row_store_scale(&p, scales, g, bits);
}

/* ---- Groups of lanes ------------------------------------------------------------------------------------------------ */

/* by_row: sixteens of a row; a group has 2^shift of them. */
template <sy_type T, enum syi_code C>
static __global__ void __launch_bounds__(THREADS, T == SY_TYPE_F32 ? 3 : 4)
    quantize_units(const __grid_constant__ struct syi_row_codes_plan p, const struct syc_split by_row, int shift, const __grid_constant__ struct syc_gate gate)
{
    const int64_t n = p.n_rows * by_row.d, step = (int64_t)gridDim.x * THREADS;
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = syc_quotient(i < n ? i : 0, by_row);
    struct syc_sixteen<T> held = syc_zero<struct syc_sixteen<T>>();
    if (i < n)
        held = syc_sixteen<T>::load(syc_row(p.dense, row), (u32)(i - row * by_row.d));
    if (!syc_all_open(syc_is_closed(gate)))
        return;
    while (i - syc_lane() < n) { /* the same for a warp */
        const u32 unit = (u32)(i - row * by_row.d);
        const bool there = i < n;
        u8 *const codes = syc_out_row(p.codes, row) + (int64_t)unit * SYC_PACK_UNIT, *const scales = syc_out_row(p.scales, row);
        float x[SYC_PACK_UNIT];
        held.widen(x);
        i += step;
        if (i < n) {
            row = syc_quotient(i, by_row);
            held = syc_sixteen<T>::load(syc_row(p.dense, row), (u32)(i - row * by_row.d));
        }
        const u32 largest = largest_of(x), most = syc_most_of_span(largest_number(x, largest), 1u << shift);
        const struct factor f = factor_of<C>(p, most);
        u32 q[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            q[j] = code_four<C>(f, largest < 0x7f800000u, x + 4 * j);
        if (!there)
            continue;
        __stcs((uint4 *)codes, make_uint4(q[0], q[1], q[2], q[3]));
        if ((unit & ((1u << shift) - 1u)) == 0)
            store_scale(p, scales, unit >> shift, f.bits);
    }
}

/* ---- A block per group --------------------------------------------------------------------------------------------- */

template <sy_type T, enum syi_code C>
static __device__ __forceinline__ void store_eight(const struct syc_eight<T> &held, const struct factor &f, u8 *codes, int64_t j)
{
    float x[SYC_UNIT];
    held.widen(x);
    const bool finite = largest_of(x) < 0x7f800000u;
    __stcs((uint2 *)codes + j, make_uint2(code_four<C>(f, finite, x), code_four<C>(f, finite, x + 4)));
}

/* Rows are aligned, and groups have whole eights. */
template <sy_type T, enum syi_code C>
static __global__ void __launch_bounds__(THREADS, T == SY_TYPE_F32 ? 3 : 4)
    quantize_groups(const __grid_constant__ struct syi_row_codes_plan p, const __grid_constant__ struct syc_gate gate)
{
    __shared__ u64 part[SYC_BLOCK_WARPS];
    const int64_t size = T == SY_TYPE_F32 ? 4 : 2, units = (int64_t)p.group / SYC_UNIT;
    if (!syc_all_open(syc_is_closed(gate)))
        return;
    for (int64_t i = blockIdx.x; i < p.n_rows * p.n_groups; i += gridDim.x) {
        const int64_t row = i / p.n_groups, g = i - row * p.n_groups;
        const u8 *const from = syc_row(p.dense, row) + g * (int64_t)p.group * size;
        u8 *const codes = syc_out_row(p.codes, row) + g * (int64_t)p.group;
        struct syc_eight<T> held[HELD];
        float x[SYC_UNIT];
        u32 most = 0;
#pragma unroll
        for (int u = 0; u < HELD; u++) {
            const int64_t j = threadIdx.x + u * THREADS;
            held[u] = j < units ? syc_eight<T>::load(from, (u32)j) : syc_eight<T>::zero();
        }
#pragma unroll
        for (int u = 0; u < HELD; u++) {
            held[u].widen(x);
            most = max(most, largest_number(x, largest_of(x)));
        }
#pragma unroll 1
        for (int64_t j = threadIdx.x + HELD * THREADS; j < units; j += THREADS) {
            syc_eight<T>::load(from, (u32)j).widen(x);
            most = max(most, largest_number(x, largest_of(x)));
        }
        const struct factor f = factor_of<C>(p, (u32)syc_block_max(most, part));
#pragma unroll
        for (int u = 0; u < HELD; u++)
            if (threadIdx.x + u * THREADS < units)
                store_eight<T, C>(held[u], f, codes, threadIdx.x + u * THREADS);
#pragma unroll 1
        for (int64_t j = threadIdx.x + HELD * THREADS; j < units; j += THREADS)
            store_eight<T, C>(syc_eight<T>::load(from, (u32)j), f, codes, j);
        if (threadIdx.x == 0)
            store_scale(p, syc_out_row(p.scales, row), g, f.bits);
    }
}

/* Any rows and groups. */
template <sy_type T>
static __global__ void __launch_bounds__(THREADS) quantize_any(const __grid_constant__ struct syi_row_codes_plan p, const __grid_constant__ struct syc_gate gate)
{
    __shared__ u64 part[SYC_BLOCK_WARPS];
    const int64_t size = T == SY_TYPE_F32 ? 4 : 2, group = (int64_t)p.group;
    if (!syc_all_open(syc_is_closed(gate)))
        return;
    for (int64_t i = blockIdx.x; i < p.n_rows * p.n_groups; i += gridDim.x) {
        const int64_t row = i / p.n_groups, g = i - row * p.n_groups;
        const u8 *const from = syc_row(p.dense, row) + g * group * size;
        u8 *const codes = syc_out_row(p.codes, row) + g * group;
        u32 most = 0;
        for (int64_t j = threadIdx.x; j < group; j += THREADS)
            most = max(most, syi_kv_magnitude(syc_load_float(from + j * size, T)));
        const struct syi_row_scale scale = syi_row_scale_of(&p, (u32)syc_block_max(most, part));
        for (int64_t j = threadIdx.x; j < group; j += THREADS)
            codes[j] = syi_row_code(&p, syc_load_float(from + j * size, T), scale.by);
        if (threadIdx.x == 0)
            store_scale(p, syc_out_row(p.scales, row), g, scale.bits);
    }
}

/* ---- Launches ------------------------------------------------------------------------------------------------------ */

template <sy_type T, enum syi_code C> static void quantize(struct syc_call *call, const struct syi_row_codes_plan *p)
{
    const int64_t most = 8 * (int64_t)call->device->processors, n_groups = p->n_rows * p->n_groups, blocks = n_groups < most ? n_groups : most;
    const u64 dense = (u64)(uintptr_t)p->dense.data | (u64)p->dense.stride, codes = (u64)(uintptr_t)p->codes.data | (u64)p->codes.stride;
    const int64_t lanes = (int64_t)(p->group / SYC_PACK_UNIT), per_row = p->n_groups * lanes;
    if (p->group % SYC_UNIT != 0 || p->group == 0 || dense % 16 != 0 || codes % SYC_UNIT != 0 || p->group / SYC_UNIT > INT32_MAX) {
        syc_launch(&call->queue, quantize_any<T>, SYC_AFTER, blocks, THREADS, 0, *p, call->gate);
    } else if (p->group % SYC_PACK_UNIT == 0 && codes % SYC_PACK_UNIT == 0 && lanes <= 32 && (lanes & (lanes - 1)) == 0 && per_row < INT32_MAX) {
        const int64_t wanted = (p->n_rows * per_row + THREADS - 1) / THREADS;
        int shift = 0;
        while (lanes >> shift > 1)
            shift++;
        syc_launch(&call->queue, quantize_units<T, C>, SYC_AFTER, wanted < most ? wanted : most, THREADS, 0, *p, syc_split_by(per_row, p->n_rows * per_row), shift,
                   call->gate);
    } else {
        syc_launch(&call->queue, quantize_groups<T, C>, SYC_AFTER, blocks, THREADS, 0, *p, call->gate);
    }
}

template <sy_type T> static void quantize_to(struct syc_call *call, const struct syi_row_codes_plan *p)
{
    if (p->code == SYI_CODE_I8)
        quantize<T, SYI_CODE_I8>(call, p);
    else if (p->code == SYI_CODE_E4M3)
        quantize<T, SYI_CODE_E4M3>(call, p);
    else
        quantize<T, SYI_CODE_E5M2>(call, p);
}

size_t syc_quantize_rows_workspace(const struct syc_device *, const union syi_plan *) { return 0; }

void syc_quantize_rows(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_row_codes_plan *const p = &plan->row_codes;
    if (p->type == SYI_FLOAT_F32)
        quantize_to<SY_TYPE_F32>(call, p);
    else if (p->type == SYI_FLOAT_F16)
        quantize_to<SY_TYPE_F16>(call, p);
    else
        quantize_to<SY_TYPE_BF16>(call, p);
}
