/*
 * kv_slots on the CPU: the translation of kv_pages.c, but every token has its own table row. All are validated before
 * the first slot is written.
 */
#include "cpu/kv_pages.h"
#include "cpu/backend.h"

enum { CHUNK = 512 }; /* tokens translated at a time */

struct job {
    const struct syi_kv_slots_plan *plan;
    const struct syi_kernels *kernels;
    int n_tasks;
    struct syi_found *found; /* [task] the first */
    struct syi_kv_kept kept;
};

static int64_t n_tokens(const struct syi_kv_slots_plan *p)
{
    return p->pages.batch * p->pages.k;
}

static struct job lay_out(const sy_ctx *ctx, const struct syi_kv_slots_plan *p, struct syi_arena *arena)
{
    const uint64_t bytes = (uint64_t)n_tokens(p) * 3 * sizeof(int64_t);
    struct job job = {.plan = p, .kernels = ctx->kernels, .n_tasks = syi_tasks(ctx, n_tokens(p), bytes)};
    job.found = syi_take(arena, (size_t)job.n_tasks * sizeof *job.found);
    job.kept = syi_kv_take_kept(arena, n_tokens(p), job.n_tasks, p->slots.type);
    return job;
}

SYI_CPU_WORKSPACE(kv_slots)

/* Tokens [j, j + n) of one row of the tensors; `flat` counts them through all rows. */
struct chunk {
    int64_t flat, n, j;
    const unsigned char *batch, *position;
    unsigned char *slots;
};

static struct chunk chunk_at(const struct syi_kv_slots_plan *p, int64_t flat, int64_t end)
{
    const int64_t k = p->pages.k, b = flat / k, j = flat - b * k;
    const int64_t in_row = end - flat < k - j ? end - flat : k - j;
    return (struct chunk){
        .flat = flat,
        .n = in_row < CHUNK ? in_row : CHUNK,
        .j = j,
        .batch = p->batch.data != NULL ? syi_at(p->batch, b) : NULL,
        .position = syi_row_at(p->pages.indices, b),
        .slots = syi_at(p->slots, b),
    };
}

static int64_t batch_at(const struct syi_kv_slots_plan *p, const struct chunk *c, int64_t i)
{
    return c->batch != NULL ? syi_load_index(c->batch, c->j + i, p->batch.type) : 0;
}

/* One token of a sequence of `length` tokens: its slot, or -1 for padding. False when it is a fault. An invalid number
   is replaced by 0 before it is used. */
static inline bool place(const struct syi_kv_pages *pages, const unsigned char *table, uint64_t length,
                         bool known, int64_t t, int64_t *slot)
{
    const struct syi_kv_pool *pool = &pages->pool;
    const bool inside = (uint64_t)t < length;
    const int64_t token = inside ? t : 0, column = syi_kv_block(pool, token);
    const int64_t entry = syi_load_index(table, column, pages->table.type);
    const bool exists = (uint64_t)entry < (uint64_t)pool->n_blocks;
    const int64_t row = (exists ? entry : 0) * pool->block_size + (token - column * pool->block_size);
    const bool found = known & inside & exists & (row < pool->n_rows);
    *slot = found ? row : -1;
    return found | (known & (pages->pad != SY_PAD_ERROR) & (t == -1));
}

/* The slots of a chunk of a table where some tokens are padding or faults, or of lists. */
static bool translate_mixed(const struct syi_kv_slots_plan *p, const struct chunk *c, int64_t *slot)
{
    const struct syi_kv_pages *pages = &p->pages;
    bool good = true;
    for (int64_t i = 0; i < c->n; i++) {
        const int64_t r = batch_at(p, c, i), t = syi_load_index(c->position, c->j + i, pages->index_type);
        const bool known = (uint64_t)r < (uint64_t)pages->table.rows;
        const struct syi_kv_sequence row = syi_kv_row_at(pages, known ? r : 0);
        good &= place(pages, row.table, (uint64_t)row.length, known, t, &slot[i]);
    }
    return good;
}

/* The slots of a chunk, in the type of the output. False when one of the tokens is a fault. */
static bool translate(const struct job *job, const struct chunk *c, unsigned char *to)
{
    const struct syi_kv_slots_plan *p = job->plan;
    const struct syi_kv_pages *pages = &p->pages;
    const struct syi_kv_sequence first = syi_kv_row_at(pages, 0);
    int64_t slot[CHUNK];
    const struct syi_kv_find find = {
        .first = first,
        .rows = pages->table.rows,
        .token = c->position + c->j * (pages->index_type == SY_TYPE_I32 ? 4 : 8),
        .row = c->batch != NULL ? c->batch + c->j * (p->batch.type == SY_TYPE_I32 ? 4 : 8) : NULL,
        .row_type = p->batch.type,
        .n = c->n,
        .slot = to,
        .type = p->slots.type};
    if (!syi_kv_lists(&pages->table) && syi_kv_find_slots(job->kernels, pages, &find))
        return true;
    const bool good = translate_mixed(p, c, slot);
    syi_kv_store(to, p->slots.type, c->n, slot);
    return good;
}

static struct syi_found fault_at(const struct syi_kv_slots_plan *p, const struct chunk *c, int64_t i)
{
    const struct syi_kv_pages *pages = &p->pages;
    const int64_t r = batch_at(p, c, i), t = syi_load_index(c->position, c->j + i, pages->index_type);
    if (r < 0 || r >= pages->table.rows)
        return syi_bad_at(syi_kv_lists(&pages->table) ? SYI_BAD_KV_OF_TOKEN_P_REQUEST
                                                      : SYI_BAD_KV_OF_TOKEN_REQUEST,
                          -1, c->flat + i, r, pages->table.rows);
    const struct syi_kv_sequence row = syi_kv_row_at(pages, r);
    struct syi_found found = syi_kv_fault_of(pages, &row, t);
    found.bad = syi_kv_of_token(found.bad);
    found.position = c->flat + i;
    return found;
}

static void find_fault(const struct syi_kv_slots_plan *p, const struct chunk *c, struct syi_found *found)
{
    for (int64_t i = 0; i < c->n && found->bad == SYI_GOOD; i++)
        *found = fault_at(p, c, i);
}

static void check_tokens(void *data, int task)
{
    const struct job *job = data;
    const struct syi_kv_slots_plan *p = job->plan;
    const int64_t end = syi_part(n_tokens(p), job->n_tasks, task + 1);
    struct syi_found *found = &job->found[task];
    const int64_t first = syi_part(n_tokens(p), job->n_tasks, task);
    unsigned char own[CHUNK * sizeof(int64_t)];
    found->bad = SYI_GOOD;
    for (int64_t at = first; at < end && found->bad == SYI_GOOD;) {
        const struct chunk chunk = chunk_at(p, at, end);
        unsigned char *kept = syi_kv_kept_at(&job->kept, task, at - first, chunk.n);
        if (!translate(job, &chunk, kept != NULL ? kept : own))
            find_fault(p, &chunk, found);
        at += chunk.n;
    }
}

static void write_slots(void *data, int task)
{
    const struct job *job = data;
    const struct syi_kv_slots_plan *p = job->plan;
    const int64_t end = syi_part(n_tokens(p), job->n_tasks, task + 1);
    const int64_t first = syi_part(n_tokens(p), job->n_tasks, task);
    const size_t width = p->slots.type == SY_TYPE_I32 ? 4 : 8;
    for (int64_t at = first; at < end;) {
        const struct chunk chunk = chunk_at(p, at, end);
        const unsigned char *kept = syi_kv_kept_at(&job->kept, task, at - first, chunk.n);
        unsigned char *to = chunk.slots + (size_t)chunk.j * width;
        if (kept != NULL)
            memcpy(to, kept, (size_t)chunk.n * width);
        else
            translate(job, &chunk, to);
        at += chunk.n;
    }
}

/* All tokens of a small call, without scratch memory: slots are written once they are known to be good. */
static sy_status run_small(sy_ctx *ctx, const struct job *job, const struct chunk *all)
{
    const struct syi_kv_slots_plan *p = job->plan;
    unsigned char slots[CHUNK * sizeof(int64_t)];
    struct syi_found found = syi_good();
    if (!translate(job, all, slots))
        find_fault(p, all, &found);
    if (found.bad == SYI_GOOD)
        memcpy(all->slots, slots, (size_t)all->n * (p->slots.type == SY_TYPE_I32 ? 4 : 8));
    return syi_report(ctx, found);
}

sy_status syi_cpu_kv_slots(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_kv_slots_plan *p = &plan->kv_slots;
    struct syi_arena arena = {workspace, 0};
    struct job job = {.plan = p, .kernels = ctx->kernels};
    if (n_tokens(p) == 0)
        return SY_OK;
    SYI_TRY(syi_report(ctx, syi_kv_validate_lists(&p->pages)));
    const struct chunk all = chunk_at(p, 0, n_tokens(p));
    if (all.n == n_tokens(p))
        return run_small(ctx, &job, &all);
    job = lay_out(ctx, p, &arena);
    syi_parallel(ctx, job.n_tasks, check_tokens, &job);
    SYI_TRY(syi_report(ctx, syi_first_bad(job.found, job.n_tasks)));
    syi_parallel(ctx, job.n_tasks, write_slots, &job);
    return SY_OK;
}
