/*
 * moe_map_from_ids on the CPU: every id is judged before a row is written. Tokens are cut over threads; each
 * task remembers in a table of its own which token named an expert last, so an expert that is named twice is
 * found without looking back through the row and without clearing anything between tokens.
 */
#include "cpu/backend.h"

enum { GROUP = 16 }; /* tokens written at a time, so that a cleared group is still in cache */

struct task_fault {
    int64_t token; /* first token with a fault, or -1 */
    int64_t slot;
    bool repeated; /* named twice; else outside */
};

struct job {
    const struct syi_moe_map_from_ids_plan *plan;
    int n_tasks;
    int64_t *last;            /* [task][E]: the token that named the expert last; -1: none */
    struct task_fault *fault; /* [task] */
};

static int count_tasks(const sy_ctx *ctx, const struct syi_moe_map_from_ids_plan *p)
{
    return syi_tasks(ctx, p->n_tokens,
                     (uint64_t)p->n_tokens * (uint64_t)p->n_experts * (1 + (uint64_t)p->prob_bytes));
}

static size_t lay_out(struct job *job, void *base)
{
    struct syi_arena arena = {base, 0};
    const size_t n = syi_size_mul((size_t)job->n_tasks, (size_t)job->plan->n_experts);
    job->last = syi_take(&arena, syi_size_mul(n, sizeof *job->last));
    job->fault = syi_take(&arena, (size_t)job->n_tasks * sizeof *job->fault);
    return arena.used;
}

size_t syi_cpu_moe_map_from_ids_workspace(const sy_ctx *ctx, const union syi_plan *plan)
{
    const struct syi_moe_map_from_ids_plan *p = &plan->moe_map_from_ids;
    struct job job = {.plan = p, .n_tasks = count_tasks(ctx, p)};
    return lay_out(&job, NULL);
}

static int64_t id_at(const struct syi_moe_map_from_ids_plan *p, int64_t t, int64_t j)
{
    return syi_load_index(syi_row(p->ids, t), j, p->id_type);
}

static bool is_missing(const struct syi_moe_map_from_ids_plan *p, int64_t id)
{
    return p->allow_missing && (id == -1 || id == p->n_experts);
}

/* A copy of the plan is passed along: what is written here could be part of the plan for all a compiler knows,
   and it would read every field again. */
static struct task_fault judge_rows(struct syi_moe_map_from_ids_plan p, int64_t *last, int64_t t, int64_t end)
{
    for (; t < end; t++)
        for (int64_t j = 0; j < p.n_slots; j++) {
            const int64_t id = id_at(&p, t, j);
            if (id >= 0 && id < p.n_experts && last[id] != t)
                last[id] = t;
            else if (!is_missing(&p, id))
                return (struct task_fault){t, j, id >= 0 && id < p.n_experts};
        }
    return (struct task_fault){-1, 0, false};
}

static void judge_ids(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_map_from_ids_plan *p = job->plan;
    int64_t *last = job->last + task * p->n_experts;
    memset(last, 0xff, (size_t)p->n_experts * sizeof *last);
    job->fault[task] = judge_rows(*p, last, syi_part(p->n_tokens, job->n_tasks, task),
                                  syi_part(p->n_tokens, job->n_tasks, task + 1));
}

static sy_status refuse(sy_ctx *ctx, const struct syi_moe_map_from_ids_plan *p, const struct task_fault *f)
{
    const int64_t id = id_at(p, f->token, f->slot);
    sy_fault fault = {SY_ERR_INDEX, SY_FAULT_INDEX_RANGE, "ids", f->token, f->slot, id, p->n_experts};
    if (!f->repeated)
        return syi_fail_at(ctx, &fault, "at token %lld, slot %lld is %lld, want 0 or more and below %lld",
                           (long long)f->token, (long long)f->slot, (long long)id, (long long)p->n_experts);
    int64_t first = 0;
    while (id_at(p, f->token, first) != id)
        first++;
    fault = (sy_fault){SY_ERR_ROUTING, SY_FAULT_DUPLICATE, "ids", f->token, f->slot, id, first};
    return syi_fail_at(ctx, &fault,
                       "at token %lld, slot %lld is %lld, as slot %lld is, want distinct experts",
                       (long long)f->token, (long long)f->slot, (long long)id, (long long)first);
}

/* Rows that follow each other are cleared as one: a row alone is too short to reach the speed of a fill. */
static void clear_group(struct syi_rows rows, int64_t t, int64_t end, size_t row_bytes)
{
    if (rows.stride == (int64_t)row_bytes) {
        memset(syi_row(rows, t), 0, (size_t)(end - t) * row_bytes);
        return;
    }
    for (; t < end; t++)
        memset(syi_row(rows, t), 0, row_bytes);
}

static void write_map(struct syi_moe_map_from_ids_plan p, int64_t t, int64_t end)
{
    clear_group(p.map, t, end, (size_t)p.n_experts);
    for (; t < end; t++) {
        unsigned char *row = syi_row(p.map, t);
        for (int64_t j = 0; j < p.n_slots; j++) {
            const int64_t id = id_at(&p, t, j);
            if (!is_missing(&p, id))
                row[id] = 1;
        }
    }
}

static void write_probs(struct syi_moe_map_from_ids_plan p, int64_t t, int64_t end)
{
    clear_group(p.probs, t, end, (size_t)p.n_experts * p.prob_bytes);
    for (; t < end; t++) {
        unsigned char *row = syi_row(p.probs, t);
        const unsigned char *weights = syi_row(p.weights, t);
        for (int64_t j = 0; j < p.n_slots; j++) {
            const int64_t id = id_at(&p, t, j);
            if (!is_missing(&p, id))
                memcpy(row + (size_t)id * p.prob_bytes, weights + (size_t)j * p.prob_bytes, p.prob_bytes);
        }
    }
}

static void write_rows(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_map_from_ids_plan *p = job->plan;
    const int64_t end = syi_part(p->n_tokens, job->n_tasks, task + 1);
    for (int64_t t = syi_part(p->n_tokens, job->n_tasks, task); t < end; t += GROUP) {
        const int64_t stop = end - t < GROUP ? end : t + GROUP;
        write_map(*p, t, stop);
        if (p->prob_bytes > 0)
            write_probs(*p, t, stop);
    }
}

sy_status syi_cpu_moe_map_from_ids(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_map_from_ids_plan *p = &plan->moe_map_from_ids;
    struct job job = {.plan = p, .n_tasks = count_tasks(ctx, p)};
    lay_out(&job, workspace);
    syi_parallel(ctx, job.n_tasks, judge_ids, &job);
    for (int i = 0; i < job.n_tasks; i++)
        if (job.fault[i].token >= 0)
            return refuse(ctx, p, &job.fault[i]);
    if (p->n_experts > 0)
        syi_parallel(ctx, job.n_tasks, write_rows, &job);
    return SY_OK;
}
