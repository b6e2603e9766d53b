/*
 * moe_unpermute on the CPU: every token collects its rows and their weights, and one kernel call adds them up
 * and writes the token once. Threads take ranges of tokens. In packed mode a token's rows are in its slots;
 * in capacity mode the index goes from row to token, so each task first inverts the part of it that names its
 * own tokens, by counting.
 */
#include "cpu/moe_rows.h"
#include "cpu/backend.h"
#include "cpu/row_codes.h"

struct job {
    const struct syi_moe_rows_plan *plan;
    const struct syi_kernels *kernels;
    struct syi_row_adder adder;
    int n_tasks;
    struct syi_found *found; /* [task] */
    const void **row;        /* packed: [task][K]; capacity: [M], by token */
    const void **scales;     /* with `row`, of rows that are codes; else NULL */
    float *weight;           /* with `row`; NULL without probs */
    int32_t *count, *next;   /* capacity: [T] */
};

static struct job lay_out(const sy_ctx *ctx, const struct syi_moe_rows_plan *p, struct syi_arena *arena)
{
    const uint64_t row_bytes = (uint64_t)p->hidden * syi_float_bytes(p->type);
    struct job job = {.plan = p, .kernels = ctx->kernels};
    job.n_tasks = syi_tasks(ctx, p->n_tokens, (uint64_t)(p->n_tokens + p->n_rows) * row_bytes);
    const size_t places =
        p->capacity ? (size_t)p->n_rows : syi_size_mul((size_t)job.n_tasks, (size_t)p->n_slots);
    job.found = syi_take(arena, (size_t)ctx->threads * sizeof *job.found);
    job.row = syi_take(arena, syi_size_mul(places, sizeof *job.row));
    if (p->codes.given)
        job.scales = syi_take(arena, syi_size_mul(places, sizeof *job.scales));
    if (p->probs.data != NULL)
        job.weight = syi_take(arena, syi_size_mul(places, sizeof *job.weight));
    if (p->capacity) {
        job.count = syi_take(arena, syi_size_mul((size_t)p->n_tokens, sizeof *job.count));
        job.next = syi_take(arena, syi_size_mul((size_t)p->n_tokens, sizeof *job.next));
    }
    return job;
}

SYI_CPU_WORKSPACE(moe_unpermute)

static void put_row(const struct job *job, size_t place, int64_t row)
{
    job->row[place] = syi_row_at(job->plan->permuted, row);
    if (job->scales != NULL)
        job->scales[place] = syi_row_at(job->plan->codes.scales, row);
}

/* Packed: rows of one token in slot order, without those of weight 0, from `place` on; returns how many. */
static size_t rows_of_token(const struct job *job, int64_t t, size_t place, float *weight)
{
    const struct syi_moe_rows_plan *p = job->plan;
    int64_t slot = t * p->n_slots;
    const int64_t end = slot + p->n_slots;
    int32_t pos[SYI_EXPERTS];
    size_t n = 0;
    if (p->n_rows == 0)
        return 0;
    if (weight == NULL) {
        for (; slot < end; slot++) {
            const int32_t i = syi_load_i32(p->sorted_indices, slot);
            if (i >= 0)
                put_row(job, place + n++, i);
        }
        return n;
    }
    for (int64_t e0 = 0; e0 < p->n_experts; e0 += SYI_EXPERTS) {
        const size_t routed = syi_routed(job->kernels, syi_row_at(p->map, t), p->n_experts, e0, pos);
        for (size_t r = 0; r < routed; r++) {
            const int32_t i = syi_next_row(p, &slot);
            const float w = syi_prob(p, t, e0 + pos[r]);
            if (w == 0.0f)
                continue;
            put_row(job, place + n, i);
            weight[n++] = w;
        }
    }
    return n;
}

static size_t row_bytes_of(const struct syi_moe_rows_plan *p)
{
    return (size_t)p->hidden * (p->codes.given ? 1 : syi_float_bytes(p->type));
}

/* Adds the rows from `place` on. */
static void add_token(const struct job *job, int64_t t, size_t place, size_t n)
{
    syi_add_rows(&job->adder, syi_row_at(job->plan->tokens, t), job->row + place,
                 job->scales != NULL ? job->scales + place : NULL,
                 job->weight != NULL ? job->weight + place : NULL, n, (size_t)job->plan->hidden);
}

/* Prefetches the rows of a token. */
static void fetch_token(const struct syi_moe_rows_plan *p, int64_t t)
{
    const size_t row_bytes = row_bytes_of(p);
    for (int64_t slot = t * p->n_slots; slot < (t + 1) * p->n_slots && p->n_rows > 0; slot++) {
        const int32_t i = syi_load_i32(p->sorted_indices, slot);
        if (i >= 0)
            syi_fetch_head(syi_row_at(p->permuted, i), row_bytes, p->n_slots);
    }
}

static void sum_packed(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_rows_plan *p = job->plan;
    const int64_t end = syi_part(p->n_tokens, job->n_tasks, task + 1);
    const size_t place = (size_t)task * (size_t)p->n_slots;
    float *weight = job->weight != NULL ? job->weight + place : NULL;
    for (int64_t t = syi_part(p->n_tokens, job->n_tasks, task); t < end; t++) {
        const size_t n = rows_of_token(job, t, place, weight);
        if (t + 1 < end)
            fetch_token(p, t + 1);
        add_token(job, t, place, n);
    }
}

/* Capacity: rows of the task's tokens into job->row, ordered by token and row; returns where they begin. */
static int64_t invert(const struct job *job, int64_t first, int64_t end)
{
    const struct syi_moe_rows_plan *p = job->plan;
    int64_t before = 0; /* rows of earlier tokens: other tasks have their places */
    memset(job->count + first, 0, (size_t)(end - first) * sizeof *job->count);
    for (int64_t i = 0; i < p->n_rows; i++) {
        const int64_t t = syi_load_i32(p->sorted_indices, i);
        if (t >= first && t < end)
            job->count[t]++;
        before += t >= 0 && t < first;
    }
    int64_t place = before;
    for (int64_t t = first; t < end; t++) {
        job->next[t] = (int32_t)place;
        place += job->count[t];
    }
    for (int64_t i = 0; i < p->n_rows; i++) {
        const int64_t t = syi_load_i32(p->sorted_indices, i);
        if (t < first || t >= end)
            continue;
        const float w = job->weight != NULL ? syi_prob(p, t, i / p->n_slots) : 1.0f;
        if (w == 0.0f)
            continue;
        if (job->weight != NULL)
            job->weight[job->next[t]] = w;
        put_row(job, (size_t)job->next[t]++, i);
    }
    return before;
}

static void sum_capacity(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_rows_plan *p = job->plan;
    const int64_t first = syi_part(p->n_tokens, job->n_tasks, task);
    const int64_t end = syi_part(p->n_tokens, job->n_tasks, task + 1);
    const size_t row_bytes = row_bytes_of(p);
    int64_t place = invert(job, first, end);
    for (int64_t t = first; t < end; t++) {
        const int64_t next = place + job->count[t];
        for (int64_t i = next; t + 1 < end && i < job->next[t + 1]; i++)
            syi_fetch_head(job->row[i], row_bytes, job->next[t + 1] - next);
        add_token(job, t, (size_t)place, (size_t)(job->next[t] - place));
        place = next;
    }
}

sy_status syi_cpu_moe_unpermute(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_rows_plan *p = &plan->moe_rows;
    struct syi_arena arena = {workspace, 0};
    struct job job = lay_out(ctx, p, &arena);
    SYI_TRY(syi_moe_validate(ctx, p, job.found));
    job.adder = syi_row_adder_of(ctx, &p->codes, p->type);
    if (p->hidden > 0)
        syi_parallel(ctx, job.n_tasks, p->capacity ? sum_capacity : sum_packed, &job);
    return SY_OK;
}
