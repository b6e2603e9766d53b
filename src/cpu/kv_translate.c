/*
 * kv_translate on the CPU: all positions are judged, then translated once more and written.
 */
#include "cpu/kv_pages.h"

struct job {
    const struct syi_kv_translate_plan *plan;
    int n_tasks;
};

/* By the 8-byte slots a task writes at most, so that a query, which knows no output, gives the same answer. */
static int count_tasks(const sy_ctx *ctx, const struct syi_kv_translate_plan *p)
{
    const int64_t n = p->pages.batch * p->pages.k;
    return syi_tasks(ctx, n, (uint64_t)n * sizeof(int64_t));
}

size_t syi_cpu_kv_translate_workspace(const sy_ctx *ctx, const union syi_plan *plan)
{
    return syi_align((size_t)count_tasks(ctx, &plan->kv_translate) * sizeof(sy_fault));
}

static void write_slots(void *data, int task)
{
    const struct job *job = data;
    const struct syi_kv_translate_plan *p = job->plan;
    struct syi_kv_walk walk;
    int64_t slot[SYI_KV_CHUNK];
    for (syi_kv_walk_begin(&walk, &p->pages, job->n_tasks, task); walk.flat < walk.end;) {
        syi_kv_walk_on(&walk, &p->pages, slot, SYI_KV_CHUNK);
        unsigned char *row = syi_row(p->slots, walk.b);
        const int64_t j = walk.flat - walk.n - walk.b * p->pages.k;
        for (int64_t i = 0; i < walk.n; i++)
            syi_store_index(row, j + i, slot[i], p->slot_type);
    }
}

/* From what was written: a row may have been translated by several tasks. */
static void count_valid(void *data, int task)
{
    const struct job *job = data;
    const struct syi_kv_translate_plan *p = job->plan;
    const int64_t end = syi_part(p->pages.batch, job->n_tasks, task + 1);
    for (int64_t b = syi_part(p->pages.batch, job->n_tasks, task); b < end; b++) {
        const unsigned char *row = syi_row(p->slots, b);
        int64_t n = 0;
        for (int64_t j = 0; j < p->pages.k; j++)
            n += syi_load_index(row, j, p->slot_type) >= 0;
        syi_store_index(p->valid, b, n, p->valid_type);
    }
}

sy_status syi_cpu_kv_translate(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_kv_translate_plan *p = &plan->kv_translate;
    struct job job = {p, count_tasks(ctx, p)};
    if (p->pages.k > 0 && p->pages.batch > 0) {
        const sy_status st = syi_kv_judge(ctx, &p->pages, job.n_tasks, workspace);
        if (st != SY_OK)
            return st;
        syi_parallel(ctx, job.n_tasks, write_slots, &job);
    }
    if (p->valid != NULL)
        syi_parallel(ctx, job.n_tasks, count_valid, &job);
    return SY_OK;
}
