/*
 * dequantize_rows on a device: eights of numbers, four per thread at a time, where rows are aligned; else
 * single numbers.
 */
#include "plan/row_math.h"
#include "cuda/runtime/backend.cuh"
#include "cuda/prim/block.cuh"
#include "cuda/codes/codes.cuh"
#include "cuda/codes/kv_codes.cuh"

enum { THREADS = 256 };

SYC_INLINE float scale_at(const syi_row_codes_plan &p, int64_t row, int64_t g)
{
    const u8 *const at = p.scales.data + syi_scale_offset(&p, row, g);
    return p.e8m0 ? syi_e8m0_to_f32(*at) : __uint_as_float(syc_load_here<u32>(at));
}

/* Eights; by_row, by_group: of a row, of a group. A warp loads several, next to each other, at a time. */
template <sy_type T>
static __global__ void __launch_bounds__(THREADS, 4)
    dequantize_units(const __grid_constant__ syi_row_codes_plan p, const syc_split by_row,
                     const syc_split by_group, const __grid_constant__ syc_gate gate)
{
    enum { AHEAD = 4 };
    const int64_t n = p.n_rows * by_row.d, step = (int64_t)gridDim.x * THREADS * AHEAD;
    const bool closed = syc_is_closed(gate);
    bool open = false;
    for (int64_t first = ((int64_t)blockIdx.x * THREADS + syc_warp() * 32) * AHEAD + syc_lane();
         first - syc_lane() < n || !open; first += step) {
        uint2 q[AHEAD];
        float scale[AHEAD];
        u8 *out[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const int64_t i = first + u * 32, row = i < n ? syc_quotient(i, by_row) : 0,
                          at = i < n ? i - row * by_row.d : 0;
            q[u] = i < n ? __ldcs((const uint2 *)syc_row(p.codes, row) + at) : make_uint2(0, 0);
            scale[u] = i < n ? scale_at(p, row, syc_quotient(at, by_group)) : 0.0f;
            out[u] = i < n ? syc_out_row(p.dense, row) + at * (T == SY_TYPE_F32 ? 32 : 16) : NULL;
        }
        if (!open && !syc_all_open(closed))
            return;
        open = true;
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            if (out[u] != NULL)
                syc_unpack_unit<T>(p.code, q[u], scale[u]).store(out[u], 0);
    }
}

/* Any rows and groups. */
template <sy_type T>
static __global__ void __launch_bounds__(THREADS)
    dequantize_any(const __grid_constant__ syi_row_codes_plan p, const __grid_constant__ syc_gate gate)
{
    const int64_t per_row = p.n_groups * (int64_t)p.group, size = T == SY_TYPE_F32 ? 4 : 2;
    if (!syc_all_open(syc_is_closed(gate)))
        return;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < p.n_rows * per_row;
         i += (int64_t)gridDim.x * THREADS) {
        const int64_t row = i / per_row, at = i - row * per_row;
        const float scale = scale_at(p, row, at / (int64_t)p.group);
        syc_store_float(syc_out_row(p.dense, row) + at * size, T,
                        syc_canonical(__fmul_rn(scale, syi_code_to_f32(p.code, syc_row(p.codes, row)[at]))));
    }
}

template <sy_type T> static void launch(syc_call *call, const syi_row_codes_plan *p)
{
    const u64 dense = (u64)(uintptr_t)p->dense.data | (u64)p->dense.stride,
              codes = (u64)(uintptr_t)p->codes.data | (u64)p->codes.stride;
    const int64_t numbers = p->n_groups * (int64_t)p->group;
    const bool wide = p->group % SYC_UNIT == 0 && p->group > 0 && dense % 16 == 0 && codes % SYC_UNIT == 0 &&
                      numbers < INT32_MAX;
    const int64_t per_row = wide ? numbers / SYC_UNIT : numbers, n = p->n_rows * per_row,
                  each = wide ? 4 * (int64_t)THREADS : (int64_t)THREADS;
    const int64_t blocks = syc_grid(call, syc_ceil(n, each), grid_policy::CODES);
    if (syc_takes(call, "units", wide ? NULL : "groups are no multiple of 8, or rows are not aligned"))
        syc_launch(&call->queue, dequantize_units<T>, SYC_AFTER, blocks, THREADS, 0, *p,
                   syc_split_by(per_row, n), syc_split_by((int64_t)p->group / SYC_UNIT, per_row), call->gate);
    else if (syc_takes(call, "numbers"))
        syc_launch(&call->queue, dequantize_any<T>, SYC_AFTER, blocks, THREADS, 0, *p, call->gate);
}

SYC_NO_WORKSPACE(dequantize_rows)

void syc_dequantize_rows(syc_call *call, const syi_plan *plan)
{
    const syi_row_codes_plan *const p = &plan->quantize_rows.codes;
    if (plan->quantize_rows.plane.packed)
        syc_code_packed_rows(call, &plan->quantize_rows, false);
    else if (p->type == SYI_FLOAT_F32)
        launch<SY_TYPE_F32>(call, p);
    else if (p->type == SYI_FLOAT_F16)
        launch<SY_TYPE_F16>(call, p);
    else
        launch<SY_TYPE_BF16>(call, p);
}
