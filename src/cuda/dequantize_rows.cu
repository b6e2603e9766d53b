/*
 * dequantize_rows on a device: eight numbers per thread where rows are aligned, else one.
 */
#include "base/row_math.h"
#include "cuda/backend.cuh"
#include "cuda/codes.cuh"

enum { THREADS = 256 };

/* `per_row` eights, or with WIDE false numbers, of a row. */
template <sy_type T, bool WIDE>
static __global__ void __launch_bounds__(THREADS)
    dequantize(const __grid_constant__ struct syi_row_codes_plan p, int64_t per_row, const struct syc_gate gate)
{
    const int64_t n = p.n_rows * per_row, each = WIDE ? (int64_t)SYC_UNIT : (int64_t)1, size = T == SY_TYPE_F32 ? 4 : 2;
    if (!syc_may_write(gate))
        return;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS) {
        const int64_t row = i / per_row, at = i - row * per_row;
        const float scale = syi_row_load_scale(&p, syc_row(p.scales, row), at * each / (int64_t)p.group);
        const u8 *const codes = syc_row(p.codes, row);
        u8 *const out = syc_out_row(p.dense, row);
        if (WIDE)
            syc_unpack_unit<T>(p.code, __ldcs((const uint2 *)codes + at), scale).store(out, (u32)at);
        else
            syc_store_float(out + at * size, T, syc_canonical(__fmul_rn(scale, syi_code_to_f32(p.code, codes[at]))));
    }
}

template <sy_type T> static void launch(struct syc_call *call, const struct syi_row_codes_plan *p)
{
    const u64 dense = (u64)(uintptr_t)p->dense.data | (u64)p->dense.stride, codes = (u64)(uintptr_t)p->codes.data | (u64)p->codes.stride;
    const int64_t numbers = p->n_groups * (int64_t)p->group;
    const bool wide = p->group % SYC_UNIT == 0 && dense % 16 == 0 && codes % SYC_UNIT == 0 && numbers < INT32_MAX;
    const int64_t per_row = wide ? numbers / SYC_UNIT : numbers, wanted = (p->n_rows * per_row + THREADS - 1) / THREADS;
    const int64_t most = 16 * (int64_t)call->device->processors, blocks = wanted < most ? wanted : most;
    if (wide)
        syc_launch(&call->queue, dequantize<T, true>, SYC_AFTER, blocks, THREADS, 0, *p, per_row, call->gate);
    else
        syc_launch(&call->queue, dequantize<T, false>, SYC_AFTER, blocks, THREADS, 0, *p, per_row, call->gate);
}

size_t syc_dequantize_rows_workspace(const struct syc_device *, const union syi_plan *) { return 0; }

void syc_dequantize_rows(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_row_codes_plan *const p = &plan->row_codes;
    if (p->type == SYI_FLOAT_F32)
        launch<SY_TYPE_F32>(call, p);
    else if (p->type == SYI_FLOAT_F16)
        launch<SY_TYPE_F16>(call, p);
    else
        launch<SY_TYPE_BF16>(call, p);
}
