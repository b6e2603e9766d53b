/*
 * moe_unpermute_ids on the CPU: indices are validated, then every token collects the existing rows of its slots and one
 * kernel call adds them up. Threads take ranges of tokens.
 */
#include "cpu/moe_rows.h"
#include "cpu/backend.h"
#include "cpu/load.h"
#include "cpu/pool.h"

struct job {
    const struct syi_moe_unpermute_ids_plan *plan;
    syi_sum_rows_fn *sum;
    int n_validators, n_tasks; /* of slots, of tokens */
    int64_t *wrong;            /* [validator]: first index outside; -1: none */
    const void **row;          /* [task][K] */
    float *weight;             /* with `row`; NULL without probs */
};

static struct job lay_out(const sy_ctx *ctx, const struct syi_moe_unpermute_ids_plan *p,
                          struct syi_arena *arena)
{
    const uint64_t row_bytes = (uint64_t)p->hidden * syi_float_bytes(p->type);
    const uint64_t index_bytes = (uint64_t)(p->n_tokens * p->n_slots) * sizeof(int32_t);
    struct job job = {.plan = p};
    job.n_validators = syi_tasks(ctx, p->n_tokens, index_bytes);
    job.n_tasks = syi_tasks(ctx, p->n_tokens, (uint64_t)(p->n_tokens + p->n_rows) * row_bytes);
    const size_t places = syi_size_mul((size_t)job.n_tasks, (size_t)p->n_slots);
    job.wrong = syi_take(arena, (size_t)job.n_validators * sizeof *job.wrong);
    job.row = syi_take(arena, syi_size_mul(places, sizeof *job.row));
    if (p->probs.data != NULL)
        job.weight = syi_take(arena, syi_size_mul(places, sizeof *job.weight));
    return job;
}

size_t syi_cpu_moe_unpermute_ids_workspace(const sy_ctx *ctx, const union syi_plan *plan)
{
    struct syi_arena arena = {NULL, 0};
    lay_out(ctx, &plan->moe_unpermute_ids, &arena);
    return arena.used;
}

static void validate_slots(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_unpermute_ids_plan *p = job->plan;
    const int64_t total = p->n_tokens * p->n_slots, end = syi_part(total, job->n_validators, task + 1);
    job->wrong[task] = -1;
    for (int64_t i = syi_part(total, job->n_validators, task); i < end; i++) {
        const int64_t row = syi_load_i32(p->sorted_indices, i);
        if (row < -1 || row >= total) {
            job->wrong[task] = i;
            return;
        }
    }
}

static void sum_tokens(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_unpermute_ids_plan *p = job->plan;
    const int64_t end = syi_part(p->n_tokens, job->n_tasks, task + 1);
    const size_t place = (size_t)task * (size_t)p->n_slots;
    const void **row = job->row + place;
    float *weight = job->weight != NULL ? job->weight + place : NULL;
    for (int64_t t = syi_part(p->n_tokens, job->n_tasks, task); t < end; t++) {
        size_t n = 0;
        for (int64_t j = 0; j < p->n_slots; j++) {
            const int64_t i = syi_load_i32(p->sorted_indices, t * p->n_slots + j) - p->row_begin;
            if (i < 0 || i >= p->n_rows)
                continue;
            if (weight != NULL) {
                weight[n] = syi_load_float(syi_row(p->probs, t) + (size_t)j * syi_float_bytes(p->prob_type),
                                           p->prob_type);
                if (weight[n] == 0.0f)
                    continue;
            }
            row[n++] = syi_row(p->permuted, i);
        }
        job->sum(syi_row(p->tokens, t), row, weight, n, (size_t)p->hidden);
    }
}

sy_status syi_cpu_moe_unpermute_ids(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_unpermute_ids_plan *p = &plan->moe_unpermute_ids;
    struct syi_arena arena = {workspace, 0};
    struct job job = lay_out(ctx, p, &arena);
    job.sum = syi_sum_rows_for(ctx->kernels, p->type);
    syi_parallel(ctx, job.n_validators, validate_slots, &job);
    for (int i = 0; i < job.n_validators; i++)
        if (job.wrong[i] >= 0)
            return syi_reject(ctx, SYI_BAD_SORTED_RANGE, -1, job.wrong[i],
                              syi_load_i32(p->sorted_indices, job.wrong[i]), p->n_tokens * p->n_slots);
    if (p->hidden > 0)
        syi_parallel(ctx, job.n_tasks, sum_tokens, &job);
    return SY_OK;
}
