/*
 * moe_combine on the CPU. Samples are split over threads; where there are fewer samples than threads, so are the
 * columns of a row. A row of the output is written once, from sums in registers.
 */
#include "cpu/moe.h"

struct job {
    const struct syi_moe_combine_plan *plan;
    syi_scale_fn *scale;
    syi_sum_rows_fn *sum_rows;
    int n_tasks, n_strips; /* column strips of a row */
    const void **rows;     /* [n_tasks][k]: rows of the valid choices of a sample */
    float *weights;        /* [n_tasks][k] */
};

static int count_tasks(const sy_ctx *ctx, const struct syi_moe_combine_plan *p)
{
    const uint64_t row_bytes = (uint64_t)p->hidden * p->elem_bytes;
    return syi_tasks(ctx, INT64_MAX, (uint64_t)p->n_samples * row_bytes * ((uint64_t)p->n_choices + 1));
}

static size_t lay_out(const struct syi_moe_combine_plan *p, void *base, struct job *job)
{
    struct syi_arena arena = {.base = base};
    /* One more than needed: without choices there is still something to point at. */
    const size_t n = syi_size_add(syi_size_mul((size_t)p->n_choices, (size_t)job->n_tasks), 1);
    job->rows = syi_take(&arena, syi_size_mul(n, sizeof *job->rows));
    job->weights = syi_take(&arena, syi_size_mul(n, sizeof *job->weights));
    return arena.used;
}

size_t syi_cpu_moe_combine_workspace(const sy_ctx *ctx, const union syi_plan *plan)
{
    const struct syi_moe_combine_plan *p = &plan->moe_combine;
    struct job job = {.n_tasks = count_tasks(ctx, p)};
    return lay_out(p, NULL, &job);
}

/* Rows and gates of the valid choices of a sample, from byte `skip` of a row on; returns how many. */
static size_t choices_of(const struct syi_moe_combine_plan *p, int64_t s, size_t skip, const void **rows,
                         float *weights)
{
    const size_t gate_bytes = syi_float_bytes(p->gate_type);
    size_t n = 0;
    for (int64_t t = 0; t < p->n_choices; t++) {
        const int64_t slot = syi_slot(syi_load_i32(syi_row(p->indices, t), s),
                                      syi_load_i32(syi_row(p->locations, t), s), p->n_experts, p->capacity);
        if (slot < 0)
            continue;
        rows[n] = syi_row(p->expert_out, slot) + skip;
        weights[n] = 1.0f;
        if (p->gates.data != NULL)
            weights[n] = syi_load_float(syi_row(p->gates, t) + (size_t)s * gate_bytes, p->gate_type);
        n++;
    }
    return n;
}

/* One choice is a product and keeps the sign of zero; several are a sum that begins with +0. */
static void combine_rows(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_combine_plan *p = job->plan;
    const void **rows = job->rows + task * p->n_choices;
    float *weights = job->weights + task * p->n_choices;
    const int64_t n_pieces = p->n_samples * job->n_strips, end = syi_part(n_pieces, job->n_tasks, task + 1);
    for (int64_t i = syi_part(n_pieces, job->n_tasks, task); i < end; i++) {
        const int64_t s = i / job->n_strips;
        const int strip = (int)(i % job->n_strips);
        const int64_t first = syi_part(p->hidden, job->n_strips, strip);
        const size_t n = (size_t)(syi_part(p->hidden, job->n_strips, strip + 1) - first);
        const size_t skip = (size_t)first * p->elem_bytes;
        const size_t n_rows = choices_of(p, s, skip, rows, weights);
        if (p->n_choices == 1 && n_rows == 1)
            job->scale(syi_row(p->output, s) + skip, rows[0], weights[0], n);
        else
            job->sum_rows(syi_row(p->output, s) + skip, rows, weights, n_rows, n);
    }
}

sy_status syi_cpu_moe_combine(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_combine_plan *p = &plan->moe_combine;
    struct job job = {.plan = p, .n_tasks = count_tasks(ctx, p)};
    if (p->n_samples == 0 || p->hidden == 0)
        return SY_OK;
    job.scale = syi_scale_for(ctx->kernels, p->type);
    job.sum_rows = syi_sum_rows_for(ctx->kernels, p->type);
    job.n_strips =
        p->n_samples >= job.n_tasks ? 1 : (job.n_tasks + (int)p->n_samples - 1) / (int)p->n_samples;
    lay_out(p, workspace, &job);
    syi_parallel(ctx, job.n_tasks, combine_rows, &job);
    return SY_OK;
}
