/*
 * moe_combine on the CPU. Samples are split over threads; where there are fewer samples than threads, so are the
 * columns of a row. A row of the output is written once, from sums in registers.
 *
 * The rows of several samples are looked up before the first of them is added: a processor writes whole lines without
 * reading them only if there are no other stores in between.
 */
#include "cpu/moe.h"
#include "cpu/backend.h"

enum { BATCH = 32 }; /* samples looked up at a time */

/* Rows and gates of the valid choices of up to BATCH samples. */
struct lookup {
    const void **rows; /* [BATCH][k] */
    float *weights;    /* [BATCH][k] */
    size_t n_rows[BATCH];
};

struct job {
    const struct syi_moe_combine_plan *plan;
    syi_scale_fn *scale;
    syi_sum_rows_fn *sum_rows;
    int n_tasks, n_strips; /* column strips of a row */
    const void **rows;     /* [n_tasks][BATCH][k] */
    float *weights;        /* [n_tasks][BATCH][k] */
};

static struct job lay_out(const sy_ctx *ctx, const struct syi_moe_combine_plan *p, struct syi_arena *arena)
{
    const uint64_t row_bytes = (uint64_t)p->hidden * p->elem_bytes;
    const uint64_t bytes = (uint64_t)p->n_samples * row_bytes * ((uint64_t)p->n_choices + 1);
    struct job job = {.plan = p, .n_tasks = syi_tasks(ctx, INT64_MAX, bytes)};
    /* One more than needed, so that the pointer is valid without choices. */
    const size_t n = syi_size_add(syi_size_mul((size_t)p->n_choices, (size_t)job.n_tasks * BATCH), 1);
    job.rows = syi_take(arena, syi_size_mul(n, sizeof *job.rows));
    job.weights = syi_take(arena, syi_size_mul(n, sizeof *job.weights));
    return job;
}

SYI_CPU_WORKSPACE(moe_combine)

static float gate_of(const struct syi_moe_combine_plan *p, int64_t choice, int64_t s)
{
    if (p->gates.data == NULL)
        return 1.0f;
    const unsigned char *row = syi_at(p->gates, choice);
    if (p->gates.type == SY_TYPE_F32)
        return syi_f32_from_bits((uint32_t)syi_load_i32(row, s));
    return syi_load_float(row + 2 * s, p->gates.type);
}

/* Samples [s, s + n), their rows from byte `skip` on. */
static void look_up(const struct syi_moe_combine_plan *p, int64_t s, int64_t n, size_t skip,
                    struct lookup *found)
{
    for (int64_t i = 0; i < n; i++) {
        const void **rows = found->rows + i * p->n_choices;
        float *weights = found->weights + i * p->n_choices;
        size_t n_rows = 0;
        for (int64_t choice = 0; choice < p->n_choices; choice++) {
            const int64_t slot =
                syi_slot(syi_load_i32(syi_at(p->indices, choice), s + i),
                         syi_load_i32(syi_at(p->locations, choice), s + i), p->n_experts, p->args.capacity);
            if (slot < 0)
                continue;
            rows[n_rows] = syi_at(p->expert_out, slot) + skip;
            weights[n_rows++] = gate_of(p, choice, s + i);
        }
        found->n_rows[i] = n_rows;
    }
}

/* One choice is a product and keeps the sign of zero; several are a sum that begins with +0. */
static void add_rows(const struct job *job, int64_t s, int64_t n, size_t skip, size_t n_columns,
                     const struct lookup *found)
{
    const struct syi_moe_combine_plan *p = job->plan;
    for (int64_t i = 0; i < n; i++) {
        const void **rows = found->rows + i * p->n_choices;
        const float *weights = found->weights + i * p->n_choices;
        unsigned char *out = syi_at(p->output, s + i) + skip;
        for (size_t j = 0; i + 1 < n && j < found->n_rows[i + 1]; j++)
            syi_fetch_head(rows[(size_t)p->n_choices + j], n_columns * p->elem_bytes, p->n_choices);
        if (p->n_choices == 1 && found->n_rows[i] == 1)
            job->scale(out, rows[0], weights[0], n_columns);
        else
            job->sum_rows(out, rows, weights, found->n_rows[i], n_columns);
    }
}

static struct lookup lookup_of(const struct job *job, int task)
{
    const int64_t at = task * job->plan->n_choices * BATCH;
    return (struct lookup){.rows = job->rows + at, .weights = job->weights + at};
}

static void combine_rows(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_combine_plan *p = job->plan;
    struct lookup found = lookup_of(job, task);
    const int64_t end = syi_part(p->n_samples, job->n_tasks, task + 1);
    for (int64_t s = syi_part(p->n_samples, job->n_tasks, task); s < end; s += BATCH) {
        const int64_t n = end - s < BATCH ? end - s : BATCH;
        look_up(p, s, n, 0, &found);
        add_rows(job, s, n, 0, (size_t)p->hidden, &found);
    }
}

/* Fewer samples than tasks: pieces of rows. */
static void combine_strips(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_combine_plan *p = job->plan;
    struct lookup found = lookup_of(job, task);
    const int64_t n_pieces = p->n_samples * job->n_strips, end = syi_part(n_pieces, job->n_tasks, task + 1);
    for (int64_t i = syi_part(n_pieces, job->n_tasks, task); i < end; i++) {
        const int strip = (int)(i % job->n_strips);
        const int64_t first = syi_part(p->hidden, job->n_strips, strip);
        const int64_t n_columns = syi_part(p->hidden, job->n_strips, strip + 1) - first;
        const size_t skip = (size_t)first * p->elem_bytes;
        look_up(p, i / job->n_strips, 1, skip, &found);
        add_rows(job, i / job->n_strips, 1, skip, (size_t)n_columns, &found);
    }
}

sy_status syi_cpu_moe_combine(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_combine_plan *p = &plan->moe_combine;
    struct syi_arena arena = {workspace, 0};
    struct job job = lay_out(ctx, p, &arena);
    if (p->n_samples == 0 || p->hidden == 0)
        return SY_OK;
    job.scale = ctx->kernels->scale[syi_float_of(p->expert_out.type)];
    job.sum_rows = ctx->kernels->sum_rows[syi_float_of(p->expert_out.type)];
    if (p->n_samples >= job.n_tasks) {
        syi_parallel(ctx, job.n_tasks, combine_rows, &job);
    } else {
        job.n_strips = (job.n_tasks + (int)p->n_samples - 1) / (int)p->n_samples;
        syi_parallel(ctx, job.n_tasks, combine_strips, &job);
    }
    return SY_OK;
}
