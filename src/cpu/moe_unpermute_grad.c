/*
 * moe_unpermute_grad on the CPU. In packed mode a token's gradient is read once and written to all its rows; a
 * table holds the owning slot of each row, so that a row that two slots name has one writer, and rows without an owner
 * are cleared. In capacity mode every row has one token, and threads take rows; their dot products go through a
 * column of scratch, because two rows may belong to one token and expert.
 */
#include "cpu/moe_rows.h"
#include "cpu/backend.h"

enum { DUE = 16 }; /* dot products of one token, by one call */

struct job {
    const struct syi_moe_rows_plan *plan;
    const struct syi_kernels *kernels;
    syi_scale_fn *scale;
    syi_dot_rows_fn *dot_rows;
    size_t row_bytes;
    int n_tasks;
    struct syi_found *found; /* [thread] */
    int32_t *owner;          /* packed: [M], the slot a row gets its gradient from, or -1 */
    unsigned char *values;   /* capacity: [M], gradients of probs by row */
};

static struct job lay_out(const sy_ctx *ctx, const struct syi_moe_rows_plan *p, struct syi_arena *arena)
{
    struct job job = {.plan = p, .kernels = ctx->kernels};
    job.row_bytes = (size_t)p->hidden * syi_float_bytes(p->type);
    job.found = syi_take(arena, (size_t)ctx->threads * sizeof *job.found);
    if (!p->capacity)
        job.owner = syi_take(arena, syi_size_mul((size_t)p->n_rows, sizeof *job.owner));
    else if (p->wants_grad_probs)
        job.values = syi_take(arena, syi_size_mul((size_t)p->n_rows, syi_float_bytes(p->prob_type)));
    return job;
}

SYI_CPU_WORKSPACE(moe_unpermute_grad)

/* The gradient of one row of weight w. A row of weight 0 gets zeros. */
static void put_row(const struct job *job, int64_t row, int64_t t, float w)
{
    const struct syi_moe_rows_plan *p = job->plan;
    unsigned char *to = syi_row_at(p->permuted, row);
    if (w == 0.0f)
        memset(to, 0, job->row_bytes);
    else
        job->scale(to, syi_row_at(p->tokens, t), w, (size_t)p->hidden);
}

/* ---- Packed ---- */

/* Owners of the task's rows: the highest slot that names one. Rows without an owner are cleared. */
static void claim_rows(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_rows_plan *p = job->plan;
    const int64_t first = syi_part(p->n_rows, job->n_tasks, task);
    const int64_t end = syi_part(p->n_rows, job->n_tasks, task + 1);
    memset(job->owner + first, 0xff, (size_t)(end - first) * sizeof *job->owner);
    for (int64_t slot = 0; slot < p->n_rows; slot++) {
        const int64_t row = syi_load_i32(p->sorted_indices, slot);
        if (row >= first && row < end)
            job->owner[row] = (int32_t)slot;
    }
    for (int64_t row = first; row < end; row++)
        if (job->owner[row] < 0)
            memset(syi_row_at(p->permuted, row), 0, job->row_bytes);
}

/* Without probs: copies. */
static void fan_token(const struct job *job, int64_t t)
{
    const struct syi_moe_rows_plan *p = job->plan;
    void *dst[SYI_FAN];
    size_t n = 0;
    for (int64_t slot = t * p->n_slots; slot < (t + 1) * p->n_slots; slot++) {
        const int64_t row = syi_load_i32(p->sorted_indices, slot);
        if (row < 0 || job->owner[row] != slot)
            continue;
        dst[n++] = syi_row_at(p->permuted, row);
        if (n == SYI_FAN) {
            job->kernels->copy_fan(dst, n, syi_row_at(p->tokens, t), job->row_bytes);
            n = 0;
        }
    }
    job->kernels->copy_fan(dst, n, syi_row_at(p->tokens, t), job->row_bytes);
}

/* Rows of one token whose dot products are due: gradients of the probs of its experts. */
struct due {
    size_t n;
    int64_t expert[DUE];
    const void *saved[DUE];
};

static void put_dots(const struct job *job, int64_t t, struct due *due)
{
    const struct syi_moe_rows_plan *p = job->plan;
    const size_t prob_bytes = syi_float_bytes(p->prob_type);
    float dot[DUE];
    job->dot_rows(dot, syi_row_at(p->tokens, t), due->saved, due->n, (size_t)p->hidden);
    for (size_t j = 0; j < due->n; j++)
        syi_store_float(syi_row_at(p->grad_probs, t) + (size_t)due->expert[j] * prob_bytes, p->prob_type,
                        dot[j]);
    due->n = 0;
}

/* With probs: one expert after the other, each with its row. The saved rows are prefetched while gradients are
   written. */
static void scale_token(const struct job *job, int64_t t)
{
    const struct syi_moe_rows_plan *p = job->plan;
    int64_t slot = t * p->n_slots;
    int32_t pos[SYI_EXPERTS];
    struct due due = {.n = 0};
    if (p->wants_grad_probs)
        memset(syi_row_at(p->grad_probs, t), 0, (size_t)p->n_experts * syi_float_bytes(p->prob_type));
    for (int64_t e0 = 0; e0 < p->n_experts && p->n_rows > 0; e0 += SYI_EXPERTS) {
        const size_t routed = syi_routed(job->kernels, syi_row_at(p->map, t), p->n_experts, e0, pos);
        for (size_t r = 0; r < routed; r++) {
            const int64_t row = syi_next_row(p, &slot), e = e0 + pos[r];
            if (p->wants_grad_probs) {
                due.expert[due.n] = e;
                due.saved[due.n] = syi_row_at(p->saved, row);
                syi_fetch_head(due.saved[due.n++], job->row_bytes, p->n_slots);
            }
            if (job->owner[row] == slot - 1)
                put_row(job, row, t, syi_prob(p, t, e));
            if (due.n == DUE)
                put_dots(job, t, &due);
        }
    }
    if (due.n > 0)
        put_dots(job, t, &due);
}

static void spread_tokens(void *data, int task)
{
    const struct job *job = data;
    const int64_t n = job->plan->n_tokens, end = syi_part(n, job->n_tasks, task + 1);
    for (int64_t t = syi_part(n, job->n_tasks, task); t < end; t++) {
        if (job->plan->probs.data != NULL)
            scale_token(job, t);
        else
            fan_token(job, t);
    }
}

/* ---- Capacity ---- */

static void fill_rows(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_rows_plan *p = job->plan;
    const int64_t end = syi_part(p->n_rows, job->n_tasks, task + 1);
    for (int64_t row = syi_part(p->n_rows, job->n_tasks, task); row < end; row++) {
        const int64_t t = syi_load_i32(p->sorted_indices, row);
        if (t < 0)
            memset(syi_row_at(p->permuted, row), 0, job->row_bytes);
        else if (p->probs.data == NULL)
            memcpy(syi_row_at(p->permuted, row), syi_row_at(p->tokens, t), job->row_bytes);
        else
            put_row(job, row, t, syi_prob(p, t, row / p->n_slots));
        if (t >= 0 && p->wants_grad_probs) {
            float dot;
            job->dot_rows(&dot, syi_row_at(p->tokens, t), (const void *const[]){syi_row_at(p->saved, row)}, 1,
                          (size_t)p->hidden);
            syi_store_float(job->values + (size_t)row * syi_float_bytes(p->prob_type), p->prob_type, dot);
        }
    }
}

sy_status syi_cpu_moe_unpermute_grad(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_rows_plan *p = &plan->moe_rows;
    struct syi_arena arena = {workspace, 0};
    struct job job = lay_out(ctx, p, &arena);
    const uint64_t bytes = (uint64_t)(p->n_tokens + p->n_rows) * job.row_bytes;
    SYI_TRY(syi_moe_validate(ctx, p, job.found));
    job.scale = ctx->kernels->scale[syi_float_of(p->type)];
    job.dot_rows = ctx->kernels->dot_rows[syi_float_of(p->type)];
    job.n_tasks = syi_tasks(ctx, p->n_rows, bytes);
    syi_parallel(ctx, job.n_tasks, p->capacity ? fill_rows : claim_rows, &job);
    if (p->capacity) {
        if (p->wants_grad_probs)
            syi_moe_grad_probs(ctx, p, job.values);
        return SY_OK;
    }
    job.n_tasks = p->n_rows > 0 || p->wants_grad_probs ? syi_tasks(ctx, p->n_tokens, bytes) : 0;
    syi_parallel(ctx, job.n_tasks, spread_tokens, &job);
    return SY_OK;
}
