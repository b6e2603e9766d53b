/*
 * dequantize_rows on the CPU: every group by the decoder of the kernel table.
 */
#include "plan/row_math.h"
#include "cpu/backend.h"
#include "cpu/kv_codec.h"
#include "kernels/kernels.h"

enum { GROUPS = 64 }; /* at a time */

struct job {
    const struct syi_row_codes_plan *plan;
    syi_decode_fn *decode;
    size_t elem_bytes;
    int n_tasks;
};

SYI_CPU_NO_WORKSPACE(dequantize_rows)

static void decode_rows(void *data, int task)
{
    const struct job *job = data;
    const struct syi_row_codes_plan *p = job->plan;
    const int64_t end = syi_part(p->n_rows, job->n_tasks, task + 1);
    for (int64_t row = syi_part(p->n_rows, job->n_tasks, task); row < end; row++) {
        const unsigned char *codes = syi_row_at(p->codes, row), *scales = syi_row_at(p->scales, row);
        unsigned char *out = syi_row_at(p->dense, row);
        for (int64_t g = 0, n; g < p->n_groups; g += n) {
            const size_t at = (size_t)g * p->group;
            float scale[GROUPS];
            n = p->n_groups - g < GROUPS ? p->n_groups - g : GROUPS;
            for (int64_t i = 0; i < n; i++)
                scale[i] = p->layout == SY_SCALE_ROW
                               ? syi_row_load_scale(p, scales, g + i)
                               : syi_row_load_scale(p, p->scales.data + syi_scale_offset(p, row, g + i), 0);
            job->decode(out + at * job->elem_bytes, codes + at, scale, p->group, (size_t)n);
        }
    }
}

sy_status syi_cpu_dequantize_rows(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_row_codes_plan *p = &plan->quantize_rows.codes;
    struct job job = {.plan = p, .decode = ctx->kernels->decode[p->code][p->type]};
    (void)workspace;
    if (plan->quantize_rows.plane.packed)
        return syi_code_packed_rows(ctx, &plan->quantize_rows, SYI_KV_FROM_CACHE);
    job.elem_bytes = p->type == SYI_FLOAT_F32 ? 4 : 2;
    const uint64_t numbers = (uint64_t)p->n_rows * (uint64_t)p->n_groups * p->group;
    job.n_tasks = syi_tasks(ctx, p->n_rows, numbers * (job.elem_bytes + 1));
    syi_parallel(ctx, job.n_tasks, decode_rows, &job);
    return SY_OK;
}
