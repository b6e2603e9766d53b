/*
 * Positions to slots. No branch of the translation depends on the data; only if there is a fault are the
 * positions examined again one by one, to find which.
 */
#include "cpu/kv_pages.h"
#include "cpu/load.h"
#include "cpu/pool.h"

static const unsigned char no_table[8]; /* read, and not used, where there is no table entry */

struct syi_kv_sequence syi_kv_row_at(const struct syi_kv_pages *p, int64_t r)
{
    struct syi_kv_sequence sequence = syi_kv_row_of(p, r);
    sequence.table = sequence.table != NULL ? sequence.table : no_table;
    return sequence;
}

struct syi_kv_sequence syi_kv_sequence_at(const struct syi_kv_pages *p, int64_t b)
{
    struct syi_kv_sequence sequence = syi_kv_sequence_of(p, b);
    sequence.table = sequence.table != NULL ? sequence.table : no_table;
    return sequence;
}

struct syi_found syi_kv_validate_lists(const struct syi_kv_pages *pages)
{
    struct syi_found found = syi_good();
    for (int64_t r = 0; r <= pages->table.rows && syi_kv_lists(&pages->table) && found.bad == SYI_GOOD; r++)
        found = syi_kv_list_fault(pages, r);
    return found;
}

struct syi_found syi_kv_validate_sequences(const struct syi_kv_pages *p)
{
    struct syi_found found = syi_kv_validate_lists(p);
    for (int64_t b = 0; b < p->batch && found.bad == SYI_GOOD; b++)
        found = syi_kv_sequence_fault(p, b);
    return found;
}

/* The slots of a share, where the other ranks' tokens have -1. */
static bool translate_share(const struct syi_kv_pages *p, const struct syi_kv_sequence *seq, int64_t j,
                            int64_t n, int64_t *slot)
{
    struct syi_found found;
    bool good = true;
    for (int64_t i = 0; i < n; i++) {
        slot[i] = -1;
        if (j + i >= seq->live)
            continue;
        slot[i] = syi_kv_slot_of(p, seq, syi_load_index(seq->indices, j + i, p->index_type), &found);
        good &= found.bad == SYI_GOOD;
    }
    return good;
}

/* The numbers of table rows from that of sequence s on, for the kernel; false where 32 bits do not hold them. */
static bool can_find(const struct syi_kv_pages *p, const struct syi_kv_sequence *s, int64_t rows,
                     struct syi_slot_table *table)
{
    const int64_t most = INT64_C(1) << 31, size = p->pool.block_size;
    const int64_t stride = rows > 1 ? p->table.entries.stride : s->columns * 4;
    int64_t entries;
    if (p->table.type != SY_TYPE_I32 || size > most / 2 || p->pool.n_rows < 1 || rows < 1 || s->length < 1 ||
        stride < 4 || stride % 4 != 0 || !syi_mul(rows, stride / 4, &entries) || entries >= most)
        return false;
    /* Of tokens of 31 bits, exactly: 2^shift / size, rounded up, has 32 bits. */
    const int shift = 31 + (size > 1 ? 64 - __builtin_clzll((uint64_t)size - 1) : 0);
    const uint64_t magic = size > 1 ? p->pool.block_magic >> (64 - shift) : UINT64_C(1) << 31;
    const int64_t n_blocks = p->pool.n_rows <= most ? p->pool.n_blocks : most / size;
    *table = (struct syi_slot_table){.block = s->table,
                                     .rows = (uint32_t)rows,
                                     .columns = (uint32_t)(stride / 4),
                                     .length = (uint32_t)(s->length < most ? s->length : most),
                                     .n_blocks = (uint32_t)n_blocks,
                                     .n_slots = (uint32_t)(p->pool.n_rows < most ? p->pool.n_rows : most),
                                     .size = (uint32_t)size,
                                     .magic = (uint32_t)magic + 1,
                                     .shift = shift};
    return true;
}

/* As words, where all are; else NULL. */
static const void *narrowed(int32_t *to, const unsigned char *index, int64_t n, sy_type type)
{
    int64_t lost = 0;
    if (type == SY_TYPE_I32)
        return index;
    for (int64_t i = 0; i < n; i++) {
        const int64_t x = syi_load_i64(index, i);
        to[i] = (int32_t)x;
        lost |= x;
    }
    return lost >= 0 && lost <= INT32_MAX ? to : NULL;
}

bool syi_kv_find_slots(const struct syi_kernels *kernels, const struct syi_kv_pages *p,
                       const struct syi_kv_find *find)
{
    struct syi_slot_table table;
    int32_t token[SYI_KV_FIND], row[SYI_KV_FIND], slot[SYI_KV_FIND];
    if (!can_find(p, &find->first, find->rows, &table))
        return false;
    const size_t token_bytes = p->index_type == SY_TYPE_I32 ? 4 : 8,
                 row_bytes = find->row_type == SY_TYPE_I32 ? 4 : 8;
    const bool wide = token_bytes == 8 || (find->row != NULL && row_bytes == 8) || find->type == SY_TYPE_I64;
    for (int64_t at = 0, n; at < find->n; at += n) {
        n = wide && find->n - at > SYI_KV_FIND ? SYI_KV_FIND : find->n - at;
        const void *const tokens = narrowed(token, find->token + (size_t)at * token_bytes, n, p->index_type);
        const void *const rows =
            find->row != NULL ? narrowed(row, find->row + (size_t)at * row_bytes, n, find->row_type) : NULL;
        if (tokens == NULL || (rows == NULL && find->row != NULL) ||
            !kernels->find_slots(find->type == SY_TYPE_I32 ? find->slot + at * 4 : (unsigned char *)slot,
                                 tokens, rows, &table, (size_t)n))
            return false;
        for (int64_t i = 0; i < n && find->type == SY_TYPE_I64; i++)
            syi_store_i64(find->slot, at + i, slot[i]);
    }
    return true;
}

void syi_kv_store(unsigned char *to, sy_type type, int64_t n, const int64_t *slot)
{
    for (int64_t i = 0; i < n && type == SY_TYPE_I32; i++)
        syi_store_i32(to, i, (int32_t)slot[i]);
    for (int64_t i = 0; i < n && type == SY_TYPE_I64; i++)
        syi_store_i64(to, i, slot[i]);
}

struct syi_kv_kept syi_kv_take_kept(struct syi_arena *arena, int64_t n, int n_tasks, sy_type type)
{
    const size_t most = (size_t)1024 * 1024, each = ((size_t)n / (size_t)n_tasks + 1) * sizeof(int64_t);
    const size_t bytes = each < most ? syi_align(each) : most;
    return (struct syi_kv_kept){syi_take(arena, (size_t)n_tasks * bytes), bytes, type};
}

/* The slots of positions [j, j + n) where some are padding or faults. An invalid number is replaced by 0 before it is
   used, and recorded. */
static bool translate_mixed(const struct syi_kv_pages *p, const struct syi_kv_sequence *seq, int64_t j,
                            int64_t n, uint64_t reach, int64_t *slot)
{
    const struct syi_kv_pool *pool = &p->pool;
    const bool pads = p->pad != SY_PAD_ERROR;
    bool good = true;
    for (int64_t i = 0; i < n; i++) {
        const int64_t t = syi_load_index(seq->indices, j + i, p->index_type);
        const bool inside = (uint64_t)t < reach;
        const int64_t token = inside ? t : 0;
        const int64_t column = syi_kv_block(pool, token), within = token - column * pool->block_size;
        const int64_t entry = syi_load_index(seq->table, column, p->table.type);
        const bool exists = (uint64_t)entry < (uint64_t)pool->n_blocks;
        const int64_t row = (exists ? entry : 0) * pool->block_size + within;
        const bool found = inside & exists & (row < pool->n_rows);
        slot[i] = found ? row : -1;
        good &= found | (pads & (t == -1));
    }
    return good;
}

/*
 * Phase 1: the slots of positions [j, j + n) of a sequence, -1 for padding. False when one of the positions is a fault;
 * fault_at returns which.
 */
static bool translate(const struct syi_kernels *kernels, const struct syi_kv_pages *p,
                      const struct syi_kv_sequence *seq, int64_t j, int64_t n, int64_t *slot)
{
    if (p->share.world > 1)
        return translate_share(p, seq, j, n, slot);
    const int64_t seen = seq->columns * p->pool.block_size, rest = seq->live - j;
    const uint64_t reach = (uint64_t)(seq->length < seen ? seq->length : seen);
    const int64_t live = rest < n ? rest > 0 ? rest : 0 : n;
    struct syi_kv_find find = {.first = *seq,
                               .rows = 1,
                               .token = seq->indices + j * (p->index_type == SY_TYPE_I32 ? 4 : 8),
                               .n = live,
                               .slot = (unsigned char *)slot,
                               .type = SY_TYPE_I64};
    find.first.length = (int64_t)reach;
    for (int64_t i = live; i < n; i++)
        slot[i] = -1;
    return syi_kv_find_slots(kernels, p, &find) || translate_mixed(p, seq, j, live, reach, slot);
}

struct syi_found syi_kv_fault_of(const struct syi_kv_pages *p, const struct syi_kv_sequence *seq, int64_t t)
{
    struct syi_found found = syi_good();
    syi_kv_slot_of(p, seq, t, &found);
    return found;
}

/* The same for a position; padding has none. */
static struct syi_found fault_at(const struct syi_kv_pages *p, const struct syi_kv_sequence *seq, int64_t b,
                                 int64_t j)
{
    struct syi_found found = syi_good();
    if (j < seq->live)
        found = syi_kv_fault_of(p, seq, syi_load_index(seq->indices, j, p->index_type));
    found.batch = b;
    found.position = j;
    return found;
}

void syi_kv_walk_begin(struct syi_kv_walk *w, const struct syi_kernels *kernels,
                       const struct syi_kv_pages *pages, int n_tasks, int task)
{
    w->kernels = kernels;
    const int64_t n = pages->batch * pages->k;
    w->flat = syi_part(n, n_tasks, task);
    w->end = syi_part(n, n_tasks, task + 1);
    w->n = 0;
}

void syi_kv_walk_next(struct syi_kv_walk *w, const struct syi_kv_pages *pages, int64_t capacity)
{
    const int64_t k = pages->k;
    w->b = w->flat / k;
    const int64_t stop = w->end < (w->b + 1) * k ? w->end : (w->b + 1) * k;
    w->j = w->flat - w->b * k;
    w->n = stop - w->flat < capacity ? stop - w->flat : capacity;
    w->flat += w->n;
}

bool syi_kv_walk_on(struct syi_kv_walk *w, const struct syi_kv_pages *pages, int64_t *slot, int64_t capacity)
{
    syi_kv_walk_next(w, pages, capacity);
    w->sequence = syi_kv_sequence_at(pages, w->b);
    w->sequence.indices = syi_row_at(pages->indices, w->b);
    return translate(w->kernels, pages, &w->sequence, w->j, w->n, slot);
}

struct job {
    const struct syi_kernels *kernels;
    const struct syi_kv_pages *pages;
    int n_tasks;
    struct syi_found *found; /* [task] the first */
    const struct syi_kv_kept *kept;
};

static void check_positions(void *data, int task)
{
    const struct job *job = data;
    const struct syi_kv_pages *p = job->pages;
    struct syi_found *found = &job->found[task];
    struct syi_kv_walk walk;
    int64_t slot[SYI_KV_CHUNK];

    found->bad = SYI_GOOD;
    syi_kv_walk_begin(&walk, job->kernels, p, job->n_tasks, task);
    for (const int64_t first = walk.flat; walk.flat < walk.end;) {
        if (!syi_kv_walk_on(&walk, p, slot, SYI_KV_CHUNK)) {
            for (int64_t j = walk.j; j < walk.j + walk.n && found->bad == SYI_GOOD; j++)
                *found = fault_at(p, &walk.sequence, walk.b, j);
            return;
        }
        unsigned char *kept =
            job->kept != NULL ? syi_kv_kept_at(job->kept, task, walk.flat - walk.n - first, walk.n) : NULL;
        if (kept != NULL)
            syi_kv_store(kept, job->kept->type, walk.n, slot);
    }
}

sy_status syi_kv_validate(sy_ctx *ctx, const struct syi_kv_pages *pages, int n_tasks, struct syi_found *found,
                          const struct syi_kv_kept *kept)
{
    struct job job = {ctx->kernels, pages, n_tasks, found, kept};
    SYI_TRY(syi_report(ctx, syi_kv_validate_sequences(pages)));
    syi_parallel(ctx, n_tasks, check_positions, &job);
    return syi_report(ctx, syi_first_bad(found, n_tasks));
}
