/*
 * moe_convert_indices on the CPU. Every form is validated and converted to one: the token of each row, or -1. Each form is written
 * from that; those that list the rows of a token take them from one counting pass over the rows, so they are ascending.
 */
#include "cpu/backend.h"

struct job {
    const struct syi_moe_convert_indices_plan *plan;
    int n_tasks;
    int32_t *owner;  /* [M]: token of each row, -1: none */
    int32_t *first;  /* [T+1]: where the rows of a token begin in `row` */
    int32_t *row;    /* [M]: rows by token, ascending */
    int32_t *expert; /* [M]: of each row, when a TE map is made */
};

static struct job lay_out(const sy_ctx *ctx, const struct syi_moe_convert_indices_plan *p,
                          struct syi_arena *arena)
{
    struct job job = {.plan = p};
    (void)ctx;
    const size_t column = (size_t)p->n_rows * sizeof(int32_t);
    job.owner = syi_take(arena, column);
    if (p->args.to != SY_INDEX_ROW) {
        job.first = syi_take(arena, ((size_t)p->n_tokens + 1) * sizeof(int32_t));
        job.row = syi_take(arena, column);
    }
    if (p->args.to == SY_INDEX_TE)
        job.expert = syi_take(arena, column);
    return job;
}

SYI_CPU_WORKSPACE(moe_convert_indices)

/* ---- Reading ---- */

/* The first slot that is out of range or names a row again. */
static sy_status reject_slot(sy_ctx *ctx, const struct job *job)
{
    const struct syi_moe_convert_indices_plan *p = job->plan;
    memset(job->owner, 0xff, (size_t)p->n_rows * sizeof *job->owner);
    for (int64_t slot = 0;; slot++) {
        const int64_t row = syi_load_i32(p->in.data, slot);
        if (row < -1 || row >= p->n_rows)
            return syi_reject(ctx, SYI_BAD_SORTED_RANGE, -1, slot, row, p->n_rows);
        if (row >= 0 && job->owner[row] >= 0) {
            int64_t earlier = job->owner[row] * p->n_slots;
            while (syi_load_i32(p->in.data, earlier) != row)
                earlier++;
            return syi_reject(ctx, SYI_BAD_SORTED_TWICE, -1, slot, row, earlier);
        }
        if (row >= 0)
            job->owner[row] = (int32_t)(slot / p->n_slots);
    }
}

/* Slots name each row once if as many rows have a token as slots are not -1: the loop over them stores and loads nothing back. */
static sy_status read_slots(sy_ctx *ctx, const struct job *job)
{
    const struct syi_moe_convert_indices_plan *p = job->plan;
    int64_t left = 0;
    if (p->n_rows > 0)
        memset(job->owner, 0xff, (size_t)p->n_rows * sizeof *job->owner);
    for (int64_t t = 0; t < p->n_tokens && p->n_slots > 0; t++)
        for (int64_t slot = t * p->n_slots; slot < (t + 1) * p->n_slots; slot++) {
            const int64_t row = syi_load_i32(p->in.data, slot);
            if (row < -1 || row >= p->n_rows)
                return reject_slot(ctx, job);
            if (row >= 0) {
                job->owner[row] = (int32_t)t;
                left++;
            }
        }
    for (int64_t row = 0; row < p->n_rows; row++)
        left -= job->owner[row] >= 0;
    return left == 0 ? SY_OK : reject_slot(ctx, job);
}

static sy_status read_rows(sy_ctx *ctx, const struct job *job)
{
    const struct syi_moe_convert_indices_plan *p = job->plan;
    for (int64_t row = 0; row < p->n_rows; row++) {
        const int32_t t = syi_load_i32(p->in.data, row);
        if (t < -1 || t >= p->n_tokens)
            return syi_reject(ctx, SYI_BAD_SORTED_RANGE, -1, row, t, p->n_tokens);
        job->owner[row] = t;
    }
    return SY_OK;
}

static sy_status read_te(sy_ctx *ctx, const struct job *job)
{
    const struct syi_moe_convert_indices_plan *p = job->plan;
    if (p->n_rows > 0)
        memset(job->owner, 0xff, (size_t)p->n_rows * sizeof *job->owner);
    for (int64_t t = 0; t < p->n_tokens; t++) {
        const unsigned char *entries = syi_at(p->in, t);
        const int64_t n = syi_load_i32(entries, 2 * p->n_experts);
        if (n < 0 || n > p->n_experts)
            return syi_reject(ctx, SYI_BAD_TE_RANGE, t, 2 * p->n_experts, n, p->n_experts + 1);
        for (int64_t i = 0; i < n; i++) {
            const int64_t row = syi_load_i32(entries, i);
            if (row < 0 || row >= p->n_rows)
                return syi_reject(ctx, SYI_BAD_TE_RANGE, t, i, row, p->n_rows);
            if (job->owner[row] >= 0)
                return syi_reject(ctx, SYI_BAD_TE_TWICE, t, i, row, job->owner[row]);
            job->owner[row] = (int32_t)t;
        }
    }
    return SY_OK;
}

/* ---- Between ---- */

/* Experts of the rows; rejects offsets that do not ascend from 0 to at most M, and rows in use after them. */
static sy_status find_experts(sy_ctx *ctx, const struct job *job)
{
    const struct syi_moe_convert_indices_plan *p = job->plan;
    int64_t row = 0;
    for (int64_t e = 0; e <= p->n_experts; e++) {
        const int64_t next = syi_load_i64(p->offsets.data, e);
        if (next < row || next > p->n_rows || (e == 0 && next != 0)) {
            const int64_t most = e == 0 ? 0 : p->n_rows;
            const bool low = next < row;
            struct syi_found found =
                syi_bad_at(low ? SYI_BAD_OFFSETS_LOW : SYI_BAD_OFFSETS_HIGH, -1, e, next, low ? row : most);
            found.extra = low ? most : row;
            return syi_report(ctx, found);
        }
        for (; row < next; row++)
            job->expert[row] = (int32_t)(e - 1);
    }
    for (const int64_t end = row; row < p->n_rows; row++)
        if (job->owner[row] >= 0) {
            struct syi_found found = syi_bad_at(SYI_BAD_OFFSETS_END, -1, p->n_experts, end, row + 1);
            found.extra = job->owner[row];
            return syi_report(ctx, found);
        }
    return SY_OK;
}

/* The rows of every token, ascending; rejects a token with more than `most`. */
static sy_status list_rows(sy_ctx *ctx, const struct job *job, enum syi_bad over, int64_t most)
{
    const struct syi_moe_convert_indices_plan *p = job->plan;
    memset(job->first, 0, ((size_t)p->n_tokens + 1) * sizeof *job->first);
    for (int64_t row = 0; row < p->n_rows; row++)
        if (job->owner[row] >= 0)
            job->first[job->owner[row]]++;
    int32_t total = 0;
    for (int64_t t = 0; t < p->n_tokens; t++) {
        const int32_t n = job->first[t];
        if (n > most)
            return syi_reject(ctx, over, -1, t, n, most);
        total += n;
        job->first[t] = total; /* the end; the pass below walks back to the beginning */
    }
    job->first[p->n_tokens] = total;
    for (int64_t row = p->n_rows; row-- > 0;)
        if (job->owner[row] >= 0)
            job->row[--job->first[job->owner[row]]] = (int32_t)row;
    return SY_OK;
}

/* ---- Writing ---- */

static void write_slots(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_convert_indices_plan *p = job->plan;
    const int64_t end = syi_part(p->n_tokens, job->n_tasks, task + 1);
    for (int64_t t = syi_part(p->n_tokens, job->n_tasks, task); t < end && p->n_slots > 0; t++) {
        const size_t n = (size_t)(job->first[t + 1] - job->first[t]);
        unsigned char *slots = p->out.data + (size_t)(t * p->n_slots) * sizeof(int32_t);
        memcpy(slots, job->row + job->first[t], n * sizeof(int32_t));
        memset(slots + n * sizeof(int32_t), 0xff, ((size_t)p->n_slots - n) * sizeof(int32_t));
    }
}

static void write_te(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_convert_indices_plan *p = job->plan;
    const int64_t end = syi_part(p->n_tokens, job->n_tasks, task + 1);
    for (int64_t t = syi_part(p->n_tokens, job->n_tasks, task); t < end; t++) {
        unsigned char *entries = syi_at(p->out, t);
        const int32_t n = job->first[t + 1] - job->first[t];
        memset(entries, 0xff, (size_t)p->n_experts * 2 * sizeof(int32_t));
        for (int32_t i = 0; i < n; i++) {
            const int32_t row = job->row[job->first[t + 1] - 1 - i];
            syi_store_i32(entries, i, row);
            syi_store_i32(entries, p->n_experts + i, job->expert[row]);
        }
        syi_store_i32(entries, 2 * p->n_experts, n);
    }
}

static sy_status validate(sy_ctx *ctx, const struct job *job)
{
    const struct syi_moe_convert_indices_plan *p = job->plan;
    SYI_TRY(p->args.from == SY_INDEX_SLOT  ? read_slots(ctx, job)
            : p->args.from == SY_INDEX_ROW ? read_rows(ctx, job)
                                           : read_te(ctx, job));
    if (p->args.to == SY_INDEX_ROW)
        return SY_OK;
    if (p->args.to == SY_INDEX_SLOT)
        return list_rows(ctx, job, SYI_BAD_ROWS_OVER_K, p->n_slots);
    SYI_TRY(find_experts(ctx, job));
    return list_rows(ctx, job, SYI_BAD_ROWS_OVER_EXPERTS, p->n_experts);
}

sy_status syi_cpu_moe_convert_indices(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_convert_indices_plan *p = &plan->moe_convert_indices;
    struct syi_arena arena = {workspace, 0};
    struct job job = lay_out(ctx, p, &arena);
    SYI_TRY(validate(ctx, &job));
    if (p->args.to == SY_INDEX_ROW) {
        if (p->n_rows > 0)
            memcpy(p->out.data, job.owner, (size_t)p->n_rows * sizeof *job.owner);
        return SY_OK;
    }
    const uint64_t columns =
        p->args.to == SY_INDEX_SLOT ? (uint64_t)p->n_slots : 2 * (uint64_t)p->n_experts + 1;
    job.n_tasks = syi_tasks(ctx, p->n_tokens, (uint64_t)p->n_tokens * columns * sizeof(int32_t));
    syi_parallel(ctx, job.n_tasks, p->args.to == SY_INDEX_SLOT ? write_slots : write_te, &job);
    return SY_OK;
}
