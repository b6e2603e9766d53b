/*
 * moe_map_from_ids on the CPU: every id is validated before a row is written. Tokens are split over threads; each task
 * has a table of its own with the token that named an expert last, as a tag of a byte, so an expert that is named twice
 * is found without comparing the ids of a row with each other.
 */
#include "cpu/backend.h"

enum {
    GROUP = 128, /* most tokens validated, or written, at a time */
    GROUP_BYTES =
        32 * 1024,   /* most bytes cleared before they are written: they are still in the first-level cache */
    USUAL_SLOTS = 8, /* as a constant, their loop is unrolled */
    MOST_TAG = 255   /* then the table is cleared and tags restart */
};

struct task_fault {
    int64_t token; /* first token with a fault, or -1 */
    int64_t slot;
    bool repeated; /* named twice; else outside */
};

struct job {
    const struct syi_moe_map_from_ids_plan *plan;
    int n_tasks;
    uint8_t *last;            /* [task][E]: tag of the token that named the expert last */
    struct task_fault *fault; /* [task] */
};

static struct job lay_out(const sy_ctx *ctx, const struct syi_moe_map_from_ids_plan *p,
                          struct syi_arena *arena)
{
    const uint64_t cells = (uint64_t)p->n_tokens * (uint64_t)p->n_experts;
    struct job job = {.plan = p,
                      .n_tasks = syi_tasks(ctx, p->n_tokens, cells * (1 + (uint64_t)p->prob_bytes))};
    job.last = syi_take(arena, syi_size_mul((size_t)job.n_tasks, (size_t)p->n_experts));
    job.fault = syi_take(arena, (size_t)job.n_tasks * sizeof *job.fault);
    return job;
}

SYI_CPU_WORKSPACE(moe_map_from_ids)

static int64_t id_at(const struct syi_moe_map_from_ids_plan *p, int64_t t, int64_t j)
{
    return syi_load_index(syi_at(p->ids, t), j, p->ids.type);
}

static bool is_missing(const struct syi_moe_map_from_ids_plan *p, int64_t id)
{
    return p->args.allow_missing && (id == -1 || id == p->n_experts);
}

/* The table of a task. */
struct seen {
    uint8_t *last; /* [E] */
    int64_t n_experts;
    int tag; /* of the token before */
};

static void forget(struct seen *seen)
{
    memset(seen->last, 0, (size_t)seen->n_experts);
    seen->tag = 0;
}

/* Whether all rows [t, end) name experts, each one once. Few rows at a time, and no branch depends on an id. A copy of
   the plan is passed, which the bytes written here cannot alias. */
static inline bool usual_rows(struct syi_moe_map_from_ids_plan p, struct seen *seen, int64_t t, int64_t end,
                              int64_t n_slots, sy_type type)
{
    uint8_t *last = seen->last;
    uint64_t outside = 0;
    unsigned tag = (unsigned)seen->tag, repeated = 0;
    for (int64_t u = t; u < end; u++) {
        const unsigned char *row = syi_at(p.ids, u);
        for (int64_t j = 0; j < n_slots; j++)
            outside |= (uint64_t)syi_load_index(row, j, type) >= (uint64_t)p.n_experts;
    }
    if (outside != 0)
        return false;
    for (; t < end; t++) {
        const unsigned char *row = syi_at(p.ids, t);
        tag++;
        for (int64_t j = 0; j < n_slots; j++) {
            uint8_t *of_id = &last[syi_load_index(row, j, type)];
            repeated |= *of_id == tag;
            *of_id = (uint8_t)tag;
        }
    }
    seen->tag = (int)tag;
    return repeated == 0;
}

/* The first fault of rows [t, end), where some ids may name no expert. */
static struct task_fault find_fault(struct syi_moe_map_from_ids_plan p, struct seen *seen, int64_t t,
                                    int64_t end)
{
    for (; t < end; t++) {
        const int tag = ++seen->tag;
        for (int64_t j = 0; j < p.n_slots; j++) {
            const int64_t id = id_at(&p, t, j);
            if (id >= 0 && id < p.n_experts && seen->last[id] != tag)
                seen->last[id] = (uint8_t)tag;
            else if (!is_missing(&p, id))
                return (struct task_fault){t, j, id >= 0 && id < p.n_experts};
        }
    }
    return (struct task_fault){-1, 0, false};
}

static void validate_ids(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_map_from_ids_plan *p = job->plan;
    const int64_t end = syi_part(p->n_tokens, job->n_tasks, task + 1);
    struct seen seen = {job->last + task * p->n_experts, p->n_experts, MOST_TAG};
    struct task_fault fault = {-1, 0, false};
    for (int64_t t = syi_part(p->n_tokens, job->n_tasks, task); t < end && fault.token < 0; t += GROUP) {
        const int64_t stop = end - t < GROUP ? end : t + GROUP;
        if (seen.tag + GROUP > MOST_TAG)
            forget(&seen);
        if (p->ids.type != SY_TYPE_I32  ? usual_rows(*p, &seen, t, stop, p->n_slots, SY_TYPE_I64)
            : p->n_slots == USUAL_SLOTS ? usual_rows(*p, &seen, t, stop, USUAL_SLOTS, SY_TYPE_I32)
                                        : usual_rows(*p, &seen, t, stop, p->n_slots, SY_TYPE_I32))
            continue;
        forget(&seen);
        fault = find_fault(*p, &seen, t, stop);
    }
    job->fault[task] = fault;
}

static struct syi_found found_at(const struct syi_moe_map_from_ids_plan *p, const struct task_fault *f)
{
    const int64_t id = id_at(p, f->token, f->slot);
    if (!f->repeated)
        return syi_bad_at(SYI_BAD_ID_RANGE, f->token, f->slot, id, p->n_experts);
    int64_t first = 0;
    while (id_at(p, f->token, first) != id)
        first++;
    return syi_bad_at(SYI_BAD_ID_TWICE, f->token, f->slot, id, first);
}

/* Consecutive rows are cleared together: a single row is too short to reach the speed of a fill. */
static void clear_group(struct syi_tensor rows, int64_t t, int64_t end, size_t row_bytes)
{
    if (rows.stride == (int64_t)row_bytes) {
        memset(syi_at(rows, t), 0, (size_t)(end - t) * row_bytes);
        return;
    }
    for (; t < end; t++)
        memset(syi_at(rows, t), 0, row_bytes);
}

static inline void write_ones(struct syi_moe_map_from_ids_plan p, int64_t t, int64_t end, sy_type type)
{
    for (; t < end; t++) {
        unsigned char *row = syi_at(p.map, t);
        const unsigned char *ids = syi_at(p.ids, t);
        for (int64_t j = 0; j < p.n_slots; j++) {
            const int64_t id = syi_load_index(ids, j, type);
            if (!is_missing(&p, id))
                row[id] = 1;
        }
    }
}

static void write_map(struct syi_moe_map_from_ids_plan p, int64_t t, int64_t end)
{
    clear_group(p.map, t, end, (size_t)p.n_experts);
    if (p.ids.type == SY_TYPE_I32)
        write_ones(p, t, end, SY_TYPE_I32);
    else
        write_ones(p, t, end, SY_TYPE_I64);
}

static void write_probs(struct syi_moe_map_from_ids_plan p, int64_t t, int64_t end)
{
    clear_group(p.probs, t, end, (size_t)p.n_experts * p.prob_bytes);
    for (; t < end; t++) {
        unsigned char *row = syi_at(p.probs, t);
        const unsigned char *weights = syi_at(p.weights, t);
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
    const int64_t row_bytes = p->n_experts * (1 + (int64_t)p->prob_bytes);
    const int64_t fit = GROUP_BYTES / row_bytes, group = fit < 1 ? 1 : fit < GROUP ? fit : GROUP;
    for (int64_t t = syi_part(p->n_tokens, job->n_tasks, task); t < end; t += group) {
        const int64_t stop = end - t < group ? end : t + group;
        write_map(*p, t, stop);
        if (p->prob_bytes > 0)
            write_probs(*p, t, stop);
    }
}

sy_status syi_cpu_moe_map_from_ids(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_map_from_ids_plan *p = &plan->moe_map_from_ids;
    struct syi_arena arena = {workspace, 0};
    struct job job = lay_out(ctx, p, &arena);
    syi_parallel(ctx, job.n_tasks, validate_ids, &job);
    for (int i = 0; i < job.n_tasks; i++)
        if (job.fault[i].token >= 0)
            return syi_report(ctx, found_at(p, &job.fault[i]));
    if (p->n_experts > 0)
        syi_parallel(ctx, job.n_tasks, write_rows, &job);
    return SY_OK;
}
