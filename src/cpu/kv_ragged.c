/*
 * kv_ragged on the CPU: all or nothing, as kv_gather. But consecutive tokens share their page, so a table entry is
 * validated and looked up once for the rows of a page.
 */
#include "cpu/kv_pages.h"
#include "cpu/backend.h"

struct job {
    const struct syi_kv_ragged_plan *plan;
    const struct syi_kernels *kernels;
    int64_t n; /* requested rows */
    int n_tasks;
    struct syi_found *found;    /* [task] the first */
    struct syi_kv_mover *mover; /* [task] */
};

/* The number of rows is in the data, so there is space for the largest number of tasks. */
static struct job lay_out(const sy_ctx *ctx, const struct syi_kv_ragged_plan *p, struct syi_arena *arena)
{
    struct job job = {.plan = p, .kernels = ctx->kernels};
    job.found = syi_take(arena, syi_size_mul((size_t)ctx->threads, sizeof *job.found));
    job.mover = syi_take(arena, syi_size_mul((size_t)ctx->threads, sizeof *job.mover));
    return job;
}

SYI_CPU_WORKSPACE(kv_ragged)

/* ---- Page by page ---- */

/* Walks dense rows, those of one sequence on one page at a time. */
struct walk {
    int64_t row, end;      /* begin of the current rows; end of all */
    int64_t b;             /* their sequence: */
    int64_t first, behind; /* its dense rows */
    struct syi_kv_sequence sequence;
    int64_t t, n; /* the token of `row`, and how many there are from there on */
};

static void enter(struct walk *w, const struct syi_kv_ragged_plan *p, int64_t b)
{
    w->b = b;
    w->first = syi_column_int(&p->cu_lens, b);
    w->behind = syi_column_int(&p->cu_lens, b + 1);
}

/* The last sequence that begins at `row` or before. */
static int64_t sequence_of(const struct syi_kv_ragged_plan *p, int64_t row)
{
    int64_t low = 0, high = p->pages.batch;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (syi_column_int(&p->cu_lens, middle) <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void walk_begin(struct walk *w, const struct job *job, int task)
{
    w->row = syi_part(job->n, job->n_tasks, task);
    w->end = syi_part(job->n, job->n_tasks, task + 1);
    w->n = 0;
    enter(w, job->plan, sequence_of(job->plan, w->row));
    w->sequence = syi_kv_sequence_at(&job->plan->pages, w->b);
}

/* Goes to the next rows; false when there are none. */
static bool walk_on(struct walk *w, const struct syi_kv_ragged_plan *p)
{
    const struct syi_kv_pool *pool = &p->pages.pool;
    w->row += w->n;
    if (w->row >= w->end)
        return false;
    if (w->row >= w->behind) {
        while (w->row >= w->behind)
            enter(w, p, w->b + 1);
        w->sequence = syi_kv_sequence_at(&p->pages, w->b);
    }
    const int64_t start = p->starts.rows.data != NULL ? syi_column_int(&p->starts, w->b) : 0;
    /* A token past 63 bits is past every sequence; an earlier fault is reported first. */
    if (!syi_add(start, w->row - w->first, &w->t))
        w->t = INT64_MAX;
    const int64_t left = (w->behind < w->end ? w->behind : w->end) - w->row;
    const int64_t page =
        w->t < 0 ? 1 : pool->block_size - (w->t - syi_kv_block(pool, w->t) * pool->block_size);
    w->n = left < page ? left : page;
    return true;
}

/* ---- Contents ---- */

static struct syi_found validate_lengths(const struct syi_kv_ragged_plan *p)
{
    struct syi_found found = syi_good();
    for (int64_t i = 0; i <= p->pages.batch && found.bad == SYI_GOOD; i++)
        found = syi_kv_dense_fault(&p->cu_lens, i, p->n_rows);
    return found;
}

/* The rows of a page are valid if the first and the last are. */
static struct syi_found validate_rows(const struct walk *w, const struct syi_kv_ragged_plan *p)
{
    const struct syi_kv_pages *pages = &p->pages;
    struct syi_found found = syi_kv_fault_of(pages, &w->sequence, w->t);
    int64_t i = 0;
    if (found.bad == SYI_GOOD && syi_kv_fault_of(pages, &w->sequence, w->t + w->n - 1).bad != SYI_GOOD)
        while (found.bad == SYI_GOOD)
            found = syi_kv_fault_of(pages, &w->sequence, w->t + ++i);
    if (found.bad == SYI_BAD_KV_INDEX)
        found.bad = p->starts.rows.data != NULL ? SYI_BAD_KV_STARTS_TOKEN : SYI_BAD_KV_DENSE_TOKEN;
    found.batch = w->b;
    found.position = w->row - w->first + i;
    return found;
}

static void check_rows(void *data, int task)
{
    const struct job *job = data;
    struct syi_found *found = &job->found[task];
    struct walk walk;
    found->bad = SYI_GOOD;
    walk_begin(&walk, job, task);
    while (found->bad == SYI_GOOD && walk_on(&walk, job->plan))
        *found = validate_rows(&walk, job->plan);
}

static sy_status validate(sy_ctx *ctx, struct job *job)
{
    const struct syi_kv_ragged_plan *p = job->plan;
    SYI_TRY(syi_report(ctx, syi_kv_bad_global(&p->planes)));
    SYI_TRY(syi_report(ctx, validate_lengths(p)));
    SYI_TRY(syi_report(ctx, syi_kv_validate_sequences(&p->pages)));
    job->n = syi_column_int(&p->cu_lens, p->pages.batch);
    if (job->n == 0)
        return SY_OK;
    job->n_tasks = syi_tasks(ctx, job->n, (uint64_t)job->n * p->planes.slot_bytes / 2);
    syi_parallel(ctx, job->n_tasks, check_rows, job);
    return syi_report(ctx, syi_first_bad(job->found, job->n_tasks));
}

/* ---- The copy ---- */

static void copy_rows(void *data, int task)
{
    const struct job *job = data;
    const struct syi_kv_pages *pages = &job->plan->pages;
    const int64_t block_size = pages->pool.block_size;
    struct syi_kv_mover *mover = &job->mover[task];
    struct walk walk;
    walk_begin(&walk, job, task);
    syi_kv_move_begin(mover, job->kernels, &job->plan->planes, SYI_KV_FROM_CACHE, false, walk.row);
    while (walk_on(&walk, job->plan)) {
        const int64_t column = syi_kv_block(&pages->pool, walk.t);
        const int64_t block = syi_load_index(walk.sequence.table, column, pages->table.type);
        syi_kv_move_run(mover, block * block_size + (walk.t - column * block_size), walk.n);
    }
    syi_kv_move_end(mover);
}

sy_status syi_cpu_kv_ragged(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    struct syi_arena arena = {workspace, 0};
    struct job job = lay_out(ctx, &plan->kv_ragged, &arena);
    SYI_TRY(validate(ctx, &job));
    if (job.n > 0)
        syi_parallel(ctx, job.n_tasks, copy_rows, &job);
    return SY_OK;
}
