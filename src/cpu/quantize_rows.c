/*
 * quantize_rows on the CPU: row by row.
 */
#include "cpu/backend.h"
#include "cpu/pool.h"
#include "cpu/row_codes.h"

struct job {
    struct syi_row_encoder encoder;
    int n_tasks;
};

size_t syi_cpu_quantize_rows_workspace(const sy_ctx *ctx, const union syi_plan *plan)
{
    (void)ctx;
    (void)plan;
    return 0;
}

static void encode_rows(void *data, int task)
{
    const struct job *job = data;
    const struct syi_row_codes_plan *p = job->encoder.plan;
    const int64_t end = syi_part(p->n_rows, job->n_tasks, task + 1);
    for (int64_t row = syi_part(p->n_rows, job->n_tasks, task); row < end; row++)
        syi_encode_row(&job->encoder, syi_row(p->codes, row), syi_row(p->scales, row),
                       syi_row(p->dense, row));
}

sy_status syi_cpu_quantize_rows(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_row_codes_plan *p = &plan->row_codes;
    struct job job = {syi_row_encoder_of(ctx, p), 1};
    (void)workspace;
    const uint64_t numbers = (uint64_t)p->n_rows * (uint64_t)p->n_groups * p->group;
    job.n_tasks = syi_tasks(ctx, p->n_rows, numbers * (job.encoder.elem_bytes + 1));
    syi_parallel(ctx, job.n_tasks, encode_rows, &job);
    return SY_OK;
}
