/*
 * kv_translate on the CPU: all positions are validated, which translates them; then the slots are written, those that
 * were not kept are translated again.
 */
#include "cpu/kv_pages.h"
#include "cpu/backend.h"

struct job {
    const struct syi_kv_translate_plan *plan;
    const struct syi_kernels *kernels;
    int n_tasks;
    struct syi_found *found; /* [task] */
    struct syi_kv_kept kept;
};

/* Tasks are those for slots of 8 bytes, so that a query, which has no output, gives the same result. */
static struct job lay_out(const sy_ctx *ctx, const struct syi_kv_translate_plan *p, struct syi_arena *arena)
{
    const int64_t n = p->pages.batch * p->pages.k;
    struct job job = {
        .plan = p, .kernels = ctx->kernels, .n_tasks = syi_tasks(ctx, n, (uint64_t)n * sizeof(int64_t))};
    job.found = syi_take(arena, (size_t)job.n_tasks * sizeof *job.found);
    job.kept = syi_kv_take_kept(arena, n, job.n_tasks, p->slots.type);
    return job;
}

SYI_CPU_WORKSPACE(kv_translate)

static void write_slots(void *data, int task)
{
    const struct job *job = data;
    const struct syi_kv_translate_plan *p = job->plan;
    struct syi_kv_walk walk;
    int64_t slot[SYI_KV_CHUNK];
    const size_t width = p->slots.type == SY_TYPE_I32 ? 4 : 8;
    syi_kv_walk_begin(&walk, job->kernels, &p->pages, job->n_tasks, task);
    for (const int64_t first = walk.flat; walk.flat < walk.end;) {
        struct syi_kv_walk next = walk;
        syi_kv_walk_next(&next, &p->pages, SYI_KV_CHUNK);
        const unsigned char *kept = syi_kv_kept_at(&job->kept, task, walk.flat - first, next.n);
        unsigned char *to = syi_at(p->slots, next.b) + (size_t)next.j * width;
        if (kept != NULL) {
            memcpy(to, kept, (size_t)next.n * width);
            walk = next;
        } else {
            syi_kv_walk_on(&walk, &p->pages, slot, SYI_KV_CHUNK);
            syi_kv_store(to, p->slots.type, walk.n, slot);
        }
    }
}

/* From what was written: a row may have been translated by several tasks. */
static void count_valid(void *data, int task)
{
    const struct job *job = data;
    const struct syi_kv_translate_plan *p = job->plan;
    const int64_t end = syi_part(p->pages.batch, job->n_tasks, task + 1);
    for (int64_t b = syi_part(p->pages.batch, job->n_tasks, task); b < end; b++) {
        const unsigned char *row = syi_at(p->slots, b);
        int64_t n = 0;
        for (int64_t j = 0; j < p->pages.k; j++)
            n += syi_load_index(row, j, p->slots.type) >= 0;
        syi_store_index(p->valid.data, b, n, p->valid.type);
    }
}

sy_status syi_cpu_kv_translate(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_kv_translate_plan *p = &plan->kv_translate;
    struct syi_arena arena = {workspace, 0};
    struct job job = lay_out(ctx, p, &arena);
    if (p->pages.k > 0 && p->pages.batch > 0) {
        SYI_TRY(syi_kv_validate(ctx, &p->pages, job.n_tasks, job.found, &job.kept));
        syi_parallel(ctx, job.n_tasks, write_slots, &job);
    }
    if (p->valid.data != NULL)
        syi_parallel(ctx, job.n_tasks, count_valid, &job);
    return SY_OK;
}
