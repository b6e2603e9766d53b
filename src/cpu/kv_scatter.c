/*
 * kv_scatter on the CPU: all or nothing. Every slot is validated before the first row is written; uniqueness, if
 * requested, by sorting. Rows are then copied in any order: rows with the same slot leave a mixture of their bytes.
 */
#include "cpu/kv_rows.h"
#include "cpu/sort.h"
#include "cpu/backend.h"

struct job {
    const struct syi_kv_scatter_plan *plan;
    const struct syi_kernels *kernels;
    int n_tasks;
    struct syi_found *found;    /* [task] the first */
    struct syi_kv_mover *mover; /* [task] */
    struct syi_keyed *keyed[2]; /* [n] each; only if uniqueness is requested */
};

static struct job lay_out(const sy_ctx *ctx, const struct syi_kv_scatter_plan *p, struct syi_arena *arena)
{
    const size_t keyed = p->check_unique ? syi_size_mul((size_t)p->n, sizeof(struct syi_keyed)) : 0;
    struct job job = {.plan = p, .kernels = ctx->kernels};
    job.n_tasks = syi_tasks(ctx, p->n, (uint64_t)p->n * p->planes.slot_bytes / 2);
    job.found = syi_take(arena, (size_t)job.n_tasks * sizeof *job.found);
    job.mover = syi_take(arena, (size_t)job.n_tasks * sizeof *job.mover);
    job.keyed[0] = syi_take(arena, keyed);
    job.keyed[1] = syi_take(arena, keyed);
    return job;
}

SYI_CPU_WORKSPACE(kv_scatter)

/* The slots from `flat` on, as many as there are before `end` in one row, at most `capacity`. */
static int64_t load_slots(const struct syi_kv_scatter_plan *p, int64_t flat, int64_t end, int64_t *slot,
                          int64_t capacity)
{
    const int64_t b = flat / p->k, j = flat - b * p->k;
    const int64_t in_row = end - flat < p->k - j ? end - flat : p->k - j;
    const int64_t n = in_row < capacity ? in_row : capacity;
    const unsigned char *row = syi_at(p->slots, b);
    for (int64_t i = 0; i < n; i++)
        slot[i] = syi_load_index(row, j + i, p->slots.type);
    return n;
}

/* The first slot of a chunk that is neither a row nor padding; n when there is none. */
static int64_t find_fault(const struct syi_kv_scatter_plan *p, const int64_t *slot, int64_t n)
{
    const int64_t lowest = p->pad == SY_PAD_SKIP ? -1 : 0, n_rows = p->planes.pool.n_rows;
    bool good = true;
    for (int64_t i = 0; i < n; i++)
        good &= (slot[i] >= lowest) & (slot[i] < n_rows);
    if (good)
        return n;
    int64_t i = 0;
    while (slot[i] >= lowest && slot[i] < n_rows)
        i++;
    return i;
}

static void check_slots(void *data, int task)
{
    const struct job *job = data;
    const struct syi_kv_scatter_plan *p = job->plan;
    const int64_t end = syi_part(p->n, job->n_tasks, task + 1);
    const enum syi_bad bad = p->pad == SY_PAD_SKIP ? SYI_BAD_KV_SLOT_OR_NONE : SYI_BAD_KV_SLOT;
    struct syi_found *found = &job->found[task];
    int64_t slot[SYI_KV_CHUNK], n;

    found->bad = SYI_GOOD;
    for (int64_t at = syi_part(p->n, job->n_tasks, task); at < end && found->bad == SYI_GOOD; at += n) {
        n = load_slots(p, at, end, slot, SYI_KV_CHUNK);
        const int64_t i = find_fault(p, slot, n);
        if (i < n)
            *found = syi_bad_at(bad, -1, at + i, slot[i], p->planes.pool.n_rows);
    }
}

/* The first position below `end` whose slot occurs at an earlier one too. */
static struct syi_found find_duplicate(const struct job *job, int64_t end)
{
    const struct syi_kv_scatter_plan *p = job->plan;
    struct syi_found first = syi_good();
    int64_t *const slot = job->mover[0].slot, n; /* no row is moved before this has ended */
    size_t n_live = 0;
    for (int64_t at = 0; at < end; at += n) {
        n = load_slots(p, at, end, slot, SYI_KV_CHUNK);
        for (int64_t i = 0; i < n; i++)
            if (slot[i] >= 0)
                job->keyed[0][n_live++] = (struct syi_keyed){(uint64_t)slot[i], at + i};
    }
    const struct syi_keyed *sorted =
        syi_sort_keyed(job->keyed[0], job->keyed[1], n_live, (uint64_t)p->planes.pool.n_rows);
    for (size_t i = 1; i < n_live; i++)
        if (sorted[i].key == sorted[i - 1].key && (first.bad == SYI_GOOD || sorted[i].value < first.position))
            first = syi_bad_at(SYI_BAD_KV_SLOT_TWICE, -1, sorted[i].value, (int64_t)sorted[i].key,
                               sorted[i - 1].value);
    return first;
}

/* The first fault in order of position; at one position its range comes first. */
static sy_status validate(sy_ctx *ctx, struct job *job)
{
    const struct syi_kv_scatter_plan *p = job->plan;
    syi_parallel(ctx, job->n_tasks, check_slots, job);
    struct syi_found found = syi_first_bad(job->found, job->n_tasks);
    if (p->check_unique) {
        const struct syi_found duplicate = find_duplicate(job, found.bad == SYI_GOOD ? p->n : found.position);
        if (duplicate.bad != SYI_GOOD)
            found = duplicate;
    }
    return syi_report(ctx, found);
}

static void copy_rows(void *data, int task)
{
    const struct job *job = data;
    const struct syi_kv_scatter_plan *p = job->plan;
    const int64_t end = syi_part(p->n, job->n_tasks, task + 1);
    struct syi_kv_mover *mover = &job->mover[task];
    int64_t n;

    syi_kv_move_begin(mover, job->kernels, &p->planes, SYI_KV_TO_CACHE, false,
                      syi_part(p->n, job->n_tasks, task));
    for (int64_t at = syi_part(p->n, job->n_tasks, task); at < end; at += n) {
        int64_t capacity, *slot = syi_kv_move_capacity(mover, &capacity);
        n = load_slots(p, at, end, slot, capacity);
        syi_kv_move_slots(mover, n);
    }
    syi_kv_move_end(mover);
}

sy_status syi_cpu_kv_scatter(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_kv_scatter_plan *p = &plan->kv_scatter;
    struct syi_arena arena = {workspace, 0};
    struct job job = lay_out(ctx, p, &arena);
    if (p->n == 0)
        return SY_OK;
    SYI_TRY(syi_report(ctx, syi_kv_bad_global(&p->planes)));
    SYI_TRY(validate(ctx, &job));
    syi_parallel(ctx, job.n_tasks, copy_rows, &job);
    return SY_OK;
}
