/*
 * kv_gather on the CPU: all or nothing. The first pass translates every position and records the first fault;
 * the second translates again and copies. A position takes a few nanoseconds to translate and its row a hundred
 * to fetch, so translating twice is cheap and limits scratch to a fault and a batch of rows for each task.
 */
#include "cpu/kv_pages.h"
#include "cpu/backend.h"

struct job {
    const struct syi_kv_gather_plan *plan;
    const struct syi_kernels *kernels;
    int n_tasks;
    struct syi_found *found;    /* [task] */
    struct syi_kv_mover *mover; /* [task] */
};

static struct job lay_out(const sy_ctx *ctx, const struct syi_kv_gather_plan *p, struct syi_arena *arena)
{
    const int64_t n = p->pages.batch * p->pages.k;
    struct job job = {.plan = p, .kernels = ctx->kernels};
    job.n_tasks = syi_tasks(ctx, n, (uint64_t)n * p->planes.slot_bytes / 2);
    job.found = syi_take(arena, (size_t)job.n_tasks * sizeof *job.found);
    job.mover = syi_take(arena, (size_t)job.n_tasks * sizeof *job.mover);
    return job;
}

SYI_CPU_WORKSPACE(kv_gather)

static void copy_positions(void *data, int task)
{
    const struct job *job = data;
    const struct syi_kv_pages *pages = &job->plan->pages;
    struct syi_kv_mover *mover = &job->mover[task];
    struct syi_kv_walk walk;

    syi_kv_walk_begin(&walk, job->kernels, pages, job->n_tasks, task);
    syi_kv_move_begin(mover, job->kernels, &job->plan->planes, SYI_KV_FROM_CACHE, pages->pad != SY_PAD_SKIP,
                      walk.flat);
    while (walk.flat < walk.end) {
        int64_t capacity, *slot = syi_kv_move_capacity(mover, &capacity);
        syi_kv_walk_on(&walk, pages, slot, capacity);
        syi_kv_move_slots(mover, walk.n);
    }
    syi_kv_move_end(mover);
}

sy_status syi_cpu_kv_gather(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_kv_gather_plan *p = &plan->kv_gather;
    struct syi_arena arena = {workspace, 0};
    struct job job = lay_out(ctx, p, &arena);

    if (p->pages.batch == 0 || p->pages.k == 0)
        return SY_OK;
    SYI_TRY(syi_report(ctx, syi_kv_bad_global(&p->planes)));
    SYI_TRY(syi_kv_validate(ctx, &p->pages, job.n_tasks, job.found, NULL));
    syi_parallel(ctx, job.n_tasks, copy_positions, &job);
    return SY_OK;
}
