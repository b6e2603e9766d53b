/*
 * moe_reorder_chunks on the CPU: counts are validated and summed in both orders, then threads take even ranges of the
 * rows that are written, whatever chunks these belong to.
 */
#include "cpu/backend.h"

struct job {
    const struct syi_moe_reorder_chunks_plan *plan;
    int n_tasks;
    int64_t live;      /* rows of all chunks */
    int64_t *ranked;   /* [R,E]: first row of a chunk, rank by rank */
    int64_t *gathered; /* [R,E]: the same expert by expert */
};

static struct job lay_out(const sy_ctx *ctx, const struct syi_moe_reorder_chunks_plan *p,
                          struct syi_arena *arena)
{
    const size_t cells = syi_size_mul((size_t)p->n_ranks, (size_t)p->n_experts);
    struct job job = {.plan = p};
    job.n_tasks = syi_tasks(ctx, p->n_rows, (uint64_t)p->n_rows * (uint64_t)(p->row_bytes + p->extra_bytes));
    job.ranked = syi_take(arena, syi_size_mul(cells, sizeof *job.ranked));
    job.gathered = syi_take(arena, syi_size_mul(cells, sizeof *job.gathered));
    return job;
}

SYI_CPU_WORKSPACE(moe_reorder_chunks)

static int64_t count_at(const struct syi_moe_reorder_chunks_plan *p, int64_t r, int64_t e)
{
    return syi_load_index(syi_at(p->counts, r), e, p->counts.type);
}

/* Places rank by rank; the first invalid count is a fault. */
static sy_status sum_ranks(sy_ctx *ctx, struct job *job)
{
    const struct syi_moe_reorder_chunks_plan *p = job->plan;
    for (int64_t r = 0; r < p->n_ranks && p->n_experts > 0; r++)
        for (int64_t e = 0; e < p->n_experts; e++) {
            const int64_t count = count_at(p, r, e), left = p->n_rows - job->live;
            if (count < 0 || count > left)
                return syi_reject(ctx, SYI_BAD_COUNT_LEFT, r, e, count, left);
            job->ranked[r * p->n_experts + e] = job->live;
            job->live += count;
        }
    return SY_OK;
}

static void sum_experts(const struct job *job)
{
    const struct syi_moe_reorder_chunks_plan *p = job->plan;
    int64_t at = 0;
    for (int64_t e = 0; e < p->n_experts; e++) {
        if (p->offsets.data != NULL)
            syi_store_i64(p->offsets.data, e, at);
        for (int64_t r = 0; r < p->n_ranks; r++) {
            job->gathered[r * p->n_experts + e] = at;
            at += count_at(p, r, e);
        }
    }
    if (p->offsets.data != NULL)
        syi_store_i64(p->offsets.data, p->n_experts, at);
}

/* The chunk that is written as number g: its place in the arrays of chunks. */
static int64_t chunk_at(const struct syi_moe_reorder_chunks_plan *p, int64_t g)
{
    return p->args.inverse ? g : g % p->n_ranks * p->n_experts + g / p->n_ranks;
}

/* The last chunk that is written at or before a row: the one that holds it, since later chunks begin later. */
static int64_t find_chunk(const struct job *job, const int64_t *to, int64_t row)
{
    int64_t low = 0, high = job->plan->n_ranks * job->plan->n_experts;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (to[chunk_at(job->plan, middle)] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* n rows of one tensor, each of so many bytes. */
static void copy_span(struct syi_tensor source, struct syi_tensor place, size_t bytes, int64_t from,
                      int64_t to, int64_t n)
{
    if (bytes > 0 && source.stride == (int64_t)bytes && place.stride == (int64_t)bytes)
        memcpy(syi_at(place, to), syi_at(source, from), (size_t)n * bytes);
    else
        for (int64_t row = 0; row < n && bytes > 0; row++)
            memcpy(syi_at(place, to + row), syi_at(source, from + row), bytes);
}

static void copy_rows(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_reorder_chunks_plan *p = job->plan;
    const int64_t *to = p->args.inverse ? job->ranked : job->gathered,
                  *from = p->args.inverse ? job->gathered : job->ranked;
    const int64_t end = syi_part(job->live, job->n_tasks, task + 1);
    int64_t row = syi_part(job->live, job->n_tasks, task);
    for (int64_t g = find_chunk(job, to, row); row < end; g++) {
        const int64_t i = chunk_at(p, g), done = row - to[i];
        const int64_t count = count_at(p, i / p->n_experts, i % p->n_experts) - done;
        const int64_t n = count < end - row ? count : end - row;
        copy_span(p->rows, p->out_rows, p->row_bytes, from[i] + done, row, n);
        copy_span(p->extra, p->out_extra, p->extra_bytes, from[i] + done, row, n);
        row += n;
    }
}

sy_status syi_cpu_moe_reorder_chunks(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_reorder_chunks_plan *p = &plan->moe_reorder_chunks;
    struct syi_arena arena = {workspace, 0};
    struct job job = lay_out(ctx, p, &arena);
    SYI_TRY(sum_ranks(ctx, &job));
    if (job.live > 0 || p->offsets.data != NULL)
        sum_experts(&job);
    if (job.live > 0)
        syi_parallel(ctx, job.n_tasks, copy_rows, &job);
    return SY_OK;
}
