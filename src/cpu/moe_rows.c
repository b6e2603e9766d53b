/*
 * Validation of sorted_indices, and gradients of probs. Tasks validate ranges of tokens or rows in order, and the first
 * fault of the first task with one is reported, so that it does not depend on their number.
 */
#include "cpu/moe_rows.h"
#include "cpu/load.h"
#include "cpu/pool.h"

struct job {
    const struct syi_moe_rows_plan *plan;
    const struct syi_kernels *kernels;
    int n_tasks;
    struct syi_found *found;     /* [task] the first */
    const unsigned char *values; /* [M], of the type of probs */
};

static int64_t count_experts(const struct job *job, int64_t t)
{
    const struct syi_moe_rows_plan *p = job->plan;
    int32_t pos[SYI_EXPERTS];
    int64_t routed = 0;
    for (int64_t e0 = 0; e0 < p->n_experts; e0 += SYI_EXPERTS)
        routed += (int64_t)syi_routed(job->kernels, syi_row_at(p->map, t), p->n_experts, e0, pos);
    return routed;
}

/* Packed: the slots of each token. */
static void validate_tokens(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_rows_plan *p = job->plan;
    const int64_t end = syi_part(p->n_tokens, job->n_tasks, task + 1);
    struct syi_found *found = &job->found[task];
    found->bad = SYI_GOOD;
    for (int64_t t = syi_part(p->n_tokens, job->n_tasks, task); t < end; t++) {
        int64_t live = 0;
        for (int64_t slot = t * p->n_slots; slot < (t + 1) * p->n_slots; slot++) {
            const int64_t row = syi_load_i32(p->sorted_indices, slot);
            if (row < -1 || row >= p->n_rows) {
                *found = syi_bad_at(SYI_BAD_SORTED_RANGE, -1, slot, row, p->n_rows);
                return;
            }
            live += row >= 0;
        }
        const int64_t routed = p->map.data != NULL ? count_experts(job, t) : live;
        if (routed != live) {
            *found = syi_bad_at(SYI_BAD_MAP_SLOTS, -1, t, routed, live);
            return;
        }
    }
}

/* Capacity: the token of each row. */
static void validate_rows(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_rows_plan *p = job->plan;
    const int64_t end = syi_part(p->n_rows, job->n_tasks, task + 1), least = p->zero_pad ? -1 : 0;
    job->found[task].bad = SYI_GOOD;
    for (int64_t row = syi_part(p->n_rows, job->n_tasks, task); row < end; row++) {
        const int64_t t = syi_load_i32(p->sorted_indices, row);
        if (t < least || t >= p->n_tokens) {
            job->found[task] = syi_bad_at(p->zero_pad ? SYI_BAD_SORTED_RANGE : SYI_BAD_SORTED_TOKEN, -1, row,
                                          t, p->n_tokens);
            return;
        }
    }
}

sy_status syi_moe_validate(sy_ctx *ctx, const struct syi_moe_rows_plan *p, struct syi_found *found)
{
    struct job job = {.plan = p, .kernels = ctx->kernels, .found = found};
    uint64_t bytes = (uint64_t)p->n_rows * sizeof(int32_t);
    if (p->map.data != NULL)
        bytes += (uint64_t)p->n_tokens * (uint64_t)p->n_experts;
    if (p->n_rows == 0)
        return SY_OK;
    job.n_tasks = syi_tasks(ctx, p->capacity ? p->n_rows : p->n_tokens, bytes);
    syi_parallel(ctx, job.n_tasks, p->capacity ? validate_rows : validate_tokens, &job);
    return syi_report(ctx, syi_first_bad(found, job.n_tasks));
}

/* ---- Gradients of probs ---- */

static void put_value(const struct job *job, int64_t t, int64_t e, int64_t row)
{
    const size_t bytes = syi_float_bytes(job->plan->prob_type);
    memcpy(syi_row_at(job->plan->grad_probs, t) + (size_t)e * bytes, job->values + (size_t)row * bytes,
           bytes);
}

/* Zeros, and in packed mode the values of the token's rows for its experts. */
static void fill_tokens(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_rows_plan *p = job->plan;
    const int64_t end = syi_part(p->n_tokens, job->n_tasks, task + 1);
    int32_t pos[SYI_EXPERTS];
    for (int64_t t = syi_part(p->n_tokens, job->n_tasks, task); t < end; t++) {
        int64_t slot = t * p->n_slots;
        memset(syi_row_at(p->grad_probs, t), 0, (size_t)p->n_experts * syi_float_bytes(p->prob_type));
        for (int64_t e0 = 0; e0 < p->n_experts && !p->capacity && p->n_rows > 0; e0 += SYI_EXPERTS) {
            const size_t routed = syi_routed(job->kernels, syi_row_at(p->map, t), p->n_experts, e0, pos);
            for (size_t r = 0; r < routed; r++)
                put_value(job, t, e0 + pos[r], syi_next_row(p, &slot));
        }
    }
}

/* Capacity: an expert's column belongs to one task, which processes its rows in order: the highest is kept. */
static void fill_experts(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_rows_plan *p = job->plan;
    const int64_t first = syi_part(p->n_experts, job->n_tasks, task) * p->n_slots;
    const int64_t end = syi_part(p->n_experts, job->n_tasks, task + 1) * p->n_slots;
    for (int64_t row = first; row < end; row++) {
        const int64_t t = syi_load_i32(p->sorted_indices, row);
        if (t >= 0)
            put_value(job, t, row / p->n_slots, row);
    }
}

void syi_moe_grad_probs(sy_ctx *ctx, const struct syi_moe_rows_plan *p, const unsigned char *values)
{
    struct job job = {.plan = p, .kernels = ctx->kernels, .values = values};
    const uint64_t cells = (uint64_t)p->n_tokens * (uint64_t)p->n_experts;
    job.n_tasks = syi_tasks(ctx, p->n_tokens, cells * (1 + syi_float_bytes(p->prob_type)));
    syi_parallel(ctx, job.n_tasks, fill_tokens, &job);
    if (!p->capacity)
        return;
    job.n_tasks = syi_tasks(ctx, p->n_experts, (uint64_t)p->n_rows * sizeof(int32_t));
    syi_parallel(ctx, job.n_tasks, fill_experts, &job);
}
