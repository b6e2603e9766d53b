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

/* Only whether all are tokens, so that the loop can be vectorised. */
static inline bool load_as(const unsigned char *index, int64_t j, int64_t n, uint64_t limit, int64_t *t,
                           sy_type type)
{
    uint64_t outside = 0;
    for (int64_t i = 0; i < n; i++) {
        t[i] = syi_load_index(index, j + i, type);
        outside |= (uint64_t)t[i] >= limit;
    }
    return outside == 0;
}

bool syi_kv_load(const unsigned char *index, sy_type type, int64_t j, int64_t n, uint64_t limit, int64_t *t)
{
    return type == SY_TYPE_I32 ? load_as(index, j, n, limit, t, SY_TYPE_I32)
                               : load_as(index, j, n, limit, t, SY_TYPE_I64);
}

enum { STEP = 8, AHEAD = 64 }; /* tokens between prefetches of table entries, and how far ahead */

/* The pool and the table of a look-up as values, which no store can change. */
struct look_up {
    struct syi_kv_pool pool;
    const unsigned char *first;
    int64_t stride;
    sy_type type;
    bool shifts; /* the block size is a power of two */
};

static inline int64_t column_at(const struct look_up *l, int64_t t)
{
    return l->shifts ? t >> l->pool.block_shift : syi_kv_block(&l->pool, t);
}

/* The slot of token t of a table row. */
static inline bool look_up_one(const struct look_up *l, int64_t r, int64_t t, int64_t *slot)
{
    const int64_t column = column_at(l, t), size = l->pool.block_size;
    const uint64_t entry = (uint64_t)syi_load_index(l->first + r * l->stride, column, l->type);
    const uint64_t begin = l->shifts ? entry << l->pool.block_shift : entry * (uint64_t)size;
    const uint64_t at = begin + (uint64_t)(t - column * size);
    *slot = (int64_t)at;
    return (entry < (uint64_t)l->pool.n_blocks) & (at < (uint64_t)l->pool.n_rows);
}

/* With the type, the shift and whether there is an r as constants, or not. */
static inline bool look_up_all(struct look_up l, const int64_t *r, int64_t n, int64_t *slot)
{
    bool good = true;
    int64_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        const int64_t later = i + AHEAD < n ? i + AHEAD : i;
        if (r != NULL) /* the table row of a sequence ahead */
            __builtin_prefetch(l.first + r[later] * l.stride +
                               column_at(&l, slot[later]) * (l.type == SY_TYPE_I32 ? 4 : 8));
        for (int64_t j = i; j < i + STEP; j++)
            good &= look_up_one(&l, r != NULL ? r[j] : 0, slot[j], &slot[j]);
    }
    for (; i < n; i++)
        good &= look_up_one(&l, r != NULL ? r[i] : 0, slot[i], &slot[i]);
    return good;
}

bool syi_kv_look_up(const struct syi_kv_pages *p, const struct syi_kv_entries *table, const int64_t *r,
                    int64_t n, int64_t *slot)
{
    struct look_up l = {p->pool, table->first, table->stride, p->table.type, false};
    if (p->table.type != SY_TYPE_I32)
        return look_up_all(l, r, n, slot);
    l.type = SY_TYPE_I32;
    if (p->pool.block_shift < 0)
        return r != NULL ? look_up_all(l, r, n, slot) : look_up_all(l, NULL, n, slot);
    l.shifts = true;
    return r != NULL ? look_up_all(l, r, n, slot) : look_up_all(l, NULL, n, slot);
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
static bool translate(const struct syi_kv_pages *p, const struct syi_kv_sequence *seq, int64_t j, int64_t n,
                      int64_t *slot)
{
    if (p->share.world > 1)
        return translate_share(p, seq, j, n, slot);
    const int64_t seen = seq->columns * p->pool.block_size, rest = seq->live - j;
    const uint64_t reach = (uint64_t)(seq->length < seen ? seq->length : seen);
    const int64_t live = rest < n ? rest > 0 ? rest : 0 : n;
    const struct syi_kv_entries table = {seq->table, 0};
    for (int64_t i = live; i < n; i++)
        slot[i] = -1;
    return (syi_kv_load(seq->indices, p->index_type, j, live, reach, slot) &&
            syi_kv_look_up(p, &table, NULL, live, slot)) ||
           translate_mixed(p, seq, j, live, reach, slot);
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

void syi_kv_walk_begin(struct syi_kv_walk *w, const struct syi_kv_pages *pages, int n_tasks, int task)
{
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
    return translate(pages, &w->sequence, w->j, w->n, slot);
}

struct job {
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
    syi_kv_walk_begin(&walk, p, job->n_tasks, task);
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
    struct job job = {pages, n_tasks, found, kept};
    SYI_TRY(syi_report(ctx, syi_kv_validate_sequences(pages)));
    syi_parallel(ctx, n_tasks, check_positions, &job);
    return syi_report(ctx, syi_first_bad(found, n_tasks));
}
