/*
 * kv_gather on the CPU: all or nothing. The first pass translates every position and remembers the first that
 * is wrong; the second translates again and copies. A position takes a few nanoseconds to translate and its
 * row a hundred to fetch, so translating twice is cheap and keeps the call free of scratch except for one fault
 * per task.
 */
#include "cpu/kv_pages.h"

struct job {
    const struct syi_kv_gather_plan *plan;
    const struct syi_kernels *kernels;
    int n_tasks;
};

static int count_tasks(const sy_ctx *ctx, const struct syi_kv_gather_plan *p)
{
    const int64_t n = p->pages.batch * p->pages.k;
    return syi_tasks(ctx, n, (uint64_t)n * p->planes.slot_bytes / 2);
}

size_t syi_cpu_kv_gather_workspace(const sy_ctx *ctx, const union syi_plan *plan)
{
    return syi_align((size_t)count_tasks(ctx, &plan->kv_gather) * sizeof(sy_fault));
}

static void copy_positions(void *data, int task)
{
    const struct job *job = data;
    const struct syi_kv_pages *pages = &job->plan->pages;
    struct syi_kv_walk walk;
    struct syi_kv_mover mover;

    syi_kv_walk_begin(&walk, pages, job->n_tasks, task);
    syi_kv_move_begin(&mover, job->kernels, &job->plan->planes, SYI_KV_FROM_CACHE, pages->pad != SY_PAD_SKIP,
                      walk.flat);
    while (walk.flat < walk.end) {
        syi_kv_walk_on(&walk, pages);
        syi_kv_move_slots(&mover, walk.slot, walk.n);
    }
    syi_kv_move_end(&mover);
}

sy_status syi_cpu_kv_gather(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_kv_gather_plan *p = &plan->kv_gather;
    struct job job = {p, ctx->kernels, count_tasks(ctx, p)};

    if (p->pages.batch == 0 || p->pages.k == 0)
        return SY_OK;
    const sy_status st = syi_kv_judge(ctx, &p->pages, job.n_tasks, workspace);
    if (st == SY_OK)
        syi_parallel(ctx, job.n_tasks, copy_positions, &job);
    return st;
}
