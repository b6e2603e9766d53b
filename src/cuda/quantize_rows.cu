/*
 * quantize_rows on a device. Groups of the usual lengths: eight numbers per lane, the lanes of a group next to each other
 * in a warp, everything read once. Other groups, whole rows above all: a block per group, which is read twice.
 */
#include "base/row_math.h"
#include "cuda/backend.cuh"
#include "cuda/block.cuh"
#include "cuda/codes.cuh"

enum { THREADS = 256 };

static __device__ __forceinline__ u32 largest_of_eight(const float (&x)[SYC_UNIT])
{
    u32 most = 0;
#pragma unroll
    for (int j = 0; j < SYC_UNIT; j++)
        most = max(most, syi_kv_magnitude(x[j]));
    return most;
}

static __device__ __forceinline__ uint2 encode_eight(const struct syi_row_codes_plan &p, const float (&x)[SYC_UNIT], float by)
{
    u32 word[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < SYC_UNIT; j++)
        word[j / 4] |= (u32)syi_row_code(&p, x[j], by) << (8 * (j % 4));
    return make_uint2(word[0], word[1]);
}

/* ---- Groups of eights of lanes ------------------------------------------------------------------------------------- */

template <sy_type T>
static __global__ void __launch_bounds__(THREADS)
    quantize_units(const __grid_constant__ struct syi_row_codes_plan p, int64_t per_row, const struct syc_gate gate)
{
    const int64_t lanes = (int64_t)p.group / SYC_UNIT, n = p.n_rows * per_row, step = (int64_t)gridDim.x * THREADS;
    if (!syc_may_write(gate))
        return;
    for (int64_t first = (int64_t)blockIdx.x * THREADS + threadIdx.x / 32 * 32; first < n; first += step) { /* the same for a warp */
        const int64_t i = first + threadIdx.x % 32, row = i / per_row, unit = i - row * per_row, g = unit / lanes;
        const bool there = i < n;
        float x[SYC_UNIT] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (there)
            syc_eight<T>::load(syc_row(p.dense, row), (u32)unit).widen(x);
        u32 most = largest_of_eight(x);
        for (int d = 1; d < (int)lanes; d *= 2)
            most = max(most, __shfl_xor_sync(SYC_ALL_LANES, most, d));
        const struct syi_row_scale scale = syi_row_scale_of(&p, most);
        if (!there)
            continue;
        __stcs((uint2 *)syc_out_row(p.codes, row) + unit, encode_eight(p, x, scale.by));
        if (unit == g * lanes)
            syi_row_store_scale(&p, syc_out_row(p.scales, row), g, scale.bits);
    }
}

/* ---- A block per group --------------------------------------------------------------------------------------------- */

/* WIDE: rows are aligned, and groups have whole eights. */
template <sy_type T, bool WIDE>
static __global__ void __launch_bounds__(THREADS) quantize_groups(const __grid_constant__ struct syi_row_codes_plan p, const struct syc_gate gate)
{
    __shared__ u64 part[SYC_BLOCK_WARPS];
    const int64_t size = T == SY_TYPE_F32 ? 4 : 2, group = (int64_t)p.group;
    if (!syc_may_write(gate))
        return;
    for (int64_t i = blockIdx.x; i < p.n_rows * p.n_groups; i += gridDim.x) {
        const int64_t row = i / p.n_groups, g = i - row * p.n_groups;
        const u8 *const from = syc_row(p.dense, row) + g * group * size;
        u8 *const codes = syc_out_row(p.codes, row) + g * group;
        u32 most = 0;
        float x[SYC_UNIT];
        for (int64_t j = threadIdx.x; WIDE && j < group / SYC_UNIT; j += THREADS) {
            syc_eight<T>::load(from, (u32)j).widen(x);
            most = max(most, largest_of_eight(x));
        }
        for (int64_t j = threadIdx.x; !WIDE && j < group; j += THREADS)
            most = max(most, syi_kv_magnitude(syc_load_float(from + j * size, T)));
        const struct syi_row_scale scale = syi_row_scale_of(&p, (u32)syc_block_max(most, part));
        for (int64_t j = threadIdx.x; WIDE && j < group / SYC_UNIT; j += THREADS) {
            syc_eight<T>::load(from, (u32)j).widen(x);
            __stcs((uint2 *)codes + j, encode_eight(p, x, scale.by));
        }
        for (int64_t j = threadIdx.x; !WIDE && j < group; j += THREADS)
            codes[j] = syi_row_code(&p, syc_load_float(from + j * size, T), scale.by);
        if (threadIdx.x == 0)
            syi_row_store_scale(&p, syc_out_row(p.scales, row), g, scale.bits);
    }
}

/* ---- Launches ------------------------------------------------------------------------------------------------------ */

template <sy_type T> static void quantize(struct syc_call *call, const struct syi_row_codes_plan *p)
{
    const int64_t lanes = (int64_t)(p->group / SYC_UNIT), per_row = p->n_groups * lanes, most = 16 * (int64_t)call->device->processors;
    const u64 dense = (u64)(uintptr_t)p->dense.data | (u64)p->dense.stride, codes = (u64)(uintptr_t)p->codes.data | (u64)p->codes.stride;
    const bool wide = p->group % SYC_UNIT == 0 && p->group > 0 && dense % 16 == 0 && codes % SYC_UNIT == 0 && per_row < INT32_MAX;
    const int64_t n_groups = p->n_rows * p->n_groups, wanted = wide ? (p->n_rows * per_row + THREADS - 1) / THREADS : 0;
    if (wide && lanes <= 32 && (lanes & (lanes - 1)) == 0)
        syc_launch(&call->queue, quantize_units<T>, SYC_AFTER, wanted < most ? wanted : most, THREADS, 0, *p, per_row, call->gate);
    else if (wide)
        syc_launch(&call->queue, quantize_groups<T, true>, SYC_AFTER, n_groups < most ? n_groups : most, THREADS, 0, *p, call->gate);
    else
        syc_launch(&call->queue, quantize_groups<T, false>, SYC_AFTER, n_groups < most ? n_groups : most, THREADS, 0, *p, call->gate);
}

size_t syc_quantize_rows_workspace(const struct syc_device *, const union syi_plan *) { return 0; }

void syc_quantize_rows(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_row_codes_plan *const p = &plan->row_codes;
    if (p->type == SYI_FLOAT_F32)
        quantize<SY_TYPE_F32>(call, p);
    else if (p->type == SYI_FLOAT_F16)
        quantize<SY_TYPE_F16>(call, p);
    else
        quantize<SY_TYPE_BF16>(call, p);
}
