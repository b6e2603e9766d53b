/*
 * Positions to slots. No branch of the translation depends on the data; only if there is a fault are the
 * positions examined again one by one, to find which.
 */
#include "cpu/kv_pages.h"
#include "cpu/load.h"
#include "cpu/pool.h"

static bool present(const struct syi_column *column)
{
    return column->rows.data != NULL;
}

/* The list of a sequence among all pages. */
static void take_list(const struct syi_kv_table *table, int64_t r, int64_t block_size,
                      struct syi_kv_sequence *sequence)
{
    const int64_t begin = syi_column_int(&table->indptr, r), bytes = table->type == SY_TYPE_I32 ? 4 : 8;
    sequence->columns = syi_column_int(&table->indptr, r + 1) - begin;
    sequence->length = sequence->columns * block_size;
    if (sequence->columns == 0)
        return;
    sequence->table = table->entries.data + begin * bytes;
    if (present(&table->last_page_len))
        sequence->length -= block_size - syi_column_int(&table->last_page_len, r);
}

struct syi_kv_sequence syi_kv_row_at(const struct syi_kv_pages *p, int64_t r)
{
    static const unsigned char no_table[8]; /* read, and not used, where there is no table entry */
    struct syi_kv_sequence sequence = {.table = no_table};
    if (p->table.rows == 0 || p->table.len == 0)
        return sequence;
    if (syi_kv_lists(&p->table)) {
        take_list(&p->table, r, p->pool.block_size, &sequence);
    } else {
        sequence.table = syi_row(p->table.entries, r);
        sequence.columns = p->table.len;
        sequence.length = p->table.len * p->pool.block_size;
    }
    return sequence;
}

struct syi_kv_sequence syi_kv_sequence_at(const struct syi_kv_pages *p, int64_t b)
{
    struct syi_kv_sequence sequence =
        syi_kv_row_at(p, present(&p->req_id) ? syi_column_int(&p->req_id, b) : b);
    sequence.live = present(&p->counts) ? syi_column_int(&p->counts, b) : p->k;
    if (present(&p->seq_lens))
        sequence.length = syi_column_int(&p->seq_lens, b);
    return sequence;
}

struct syi_found syi_kv_judge_lists(const struct syi_kv_pages *pages)
{
    const struct syi_kv_table *table = &pages->table;
    const int64_t block_size = pages->pool.block_size;
    int64_t before = 0;
    for (int64_t r = 0; r <= table->rows && syi_kv_lists(table); r++) {
        const int64_t at = syi_column_int(&table->indptr, r);
        if (at < before || at > table->len)
            return at < before ? syi_bad_at(SYI_BAD_KV_INDPTR_BACK, r, -1, at, before)
                               : syi_bad_at(SYI_BAD_KV_INDPTR_HIGH, r, -1, at, table->len);
        if (r > 0 && at > before && present(&table->last_page_len)) {
            const int64_t last = syi_column_int(&table->last_page_len, r - 1);
            if (last < 1)
                return syi_bad_at(SYI_BAD_KV_LAST_PAGE_LOW, r - 1, -1, last, 1);
            if (last > block_size)
                return syi_bad_at(SYI_BAD_KV_LAST_PAGE_HIGH, r - 1, -1, last, block_size);
        }
        before = at;
    }
    return syi_good();
}

struct syi_found syi_kv_judge_sequences(const struct syi_kv_pages *p)
{
    const struct syi_found first = syi_kv_judge_lists(p);
    if (first.bad != SYI_GOOD)
        return first;
    for (int64_t b = 0; b < p->batch; b++) {
        const int64_t count = present(&p->counts) ? syi_column_int(&p->counts, b) : 0;
        const int64_t length = present(&p->seq_lens) ? syi_column_int(&p->seq_lens, b) : 0;
        const int64_t request = present(&p->req_id) ? syi_column_int(&p->req_id, b) : 0;
        if (count < 0 || count > p->k)
            return syi_bad_at(count < 0 && p->k == 0 ? SYI_BAD_KV_COUNT_NEGATIVE : SYI_BAD_KV_COUNT, b, -1,
                              count, p->k);
        if (length < 0)
            return syi_bad_at(SYI_BAD_KV_LENGTH, b, -1, length, 0);
        if (present(&p->req_id) && (request < 0 || request >= p->table.rows))
            return syi_bad_at(syi_kv_lists(&p->table) ? SYI_BAD_KV_P_REQUEST : SYI_BAD_KV_REQUEST, b, -1,
                              request, p->table.rows);
    }
    return syi_good();
}

/* ---- Tokens shared by ranks ---- */

/* The number of token t in this rank's share; -1: another rank's. */
static int64_t own_token(const struct syi_kv_share *share, int64_t t)
{
    const int64_t run = t / share->run;
    return run % share->world == share->rank ? run / share->world * share->run + t % share->run : -1;
}

/* The token that is number `own` of this rank's share. */
static int64_t shared_token(const struct syi_kv_share *share, int64_t own)
{
    int64_t t;
    if (!syi_mul(own / share->run, share->world, &t) || !syi_add(t, share->rank, &t) ||
        !syi_mul(t, share->run, &t) || !syi_add(t, own % share->run, &t))
        return INT64_MAX;
    return t;
}

/* The slots of a share, where the other ranks' tokens have -1. */
static bool translate_share(const struct syi_kv_pages *p, const struct syi_kv_sequence *seq, int64_t j,
                            int64_t n, int64_t *slot)
{
    const int64_t block_size = p->pool.block_size;
    bool good = true;
    for (int64_t i = 0; i < n; i++) {
        const int64_t t = j + i < seq->live ? syi_load_index(seq->indices, j + i, p->index_type) : -1;
        const bool fine = j + i >= seq->live || syi_kv_fault_of(p, seq, t).bad == SYI_GOOD;
        const int64_t own = fine && t >= 0 ? own_token(&p->share, t) : -1;
        const int64_t column = own >= 0 ? syi_kv_block(&p->pool, own) : 0;
        good &= fine;
        slot[i] = own < 0 ? -1
                          : syi_load_index(seq->table, column, p->table.type) * block_size +
                                (own - column * block_size);
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
    const bool lists = syi_kv_lists(&p->table);
    const struct syi_kv_pool *pool = &p->pool;
    if (t == -1 && p->pad != SY_PAD_ERROR)
        return syi_good();
    /* seq_lens counts the tokens of all ranks, a table or a list those of this one. */
    const bool shared = p->share.world > 1, own_length = shared && !present(&p->seq_lens);
    const int64_t own = shared && t >= 0 ? own_token(&p->share, t) : t;
    if (t < 0 || (own_length ? own : t) >= seq->length)
        return syi_bad_at(SYI_BAD_KV_INDEX, -1, -1, t,
                          own_length ? shared_token(&p->share, seq->length) : seq->length);
    if (own < 0)
        return syi_good();
    const int64_t column = syi_kv_block(pool, own);
    if (column >= seq->columns)
        return syi_bad_at(lists ? SYI_BAD_KV_P_TABLE_SHORT : SYI_BAD_KV_TABLE_SHORT, -1, -1, column,
                          seq->columns);
    const int64_t block = syi_load_index(seq->table, column, p->table.type);
    if (block < 0 || block >= pool->n_blocks)
        return syi_bad_at(lists ? SYI_BAD_KV_P_BLOCK : SYI_BAD_KV_BLOCK, -1, -1, block, pool->n_blocks);
    const int64_t row = block * pool->block_size + (own - column * pool->block_size);
    if (row >= pool->n_rows)
        return syi_bad_at(lists ? SYI_BAD_KV_P_ROW : SYI_BAD_KV_ROW, -1, -1, row, pool->n_rows);
    return syi_good();
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

void syi_kv_walk_next(struct syi_kv_walk *w, const struct syi_kv_pages *pages, int64_t room)
{
    const int64_t k = pages->k;
    w->b = w->flat / k;
    const int64_t stop = w->end < (w->b + 1) * k ? w->end : (w->b + 1) * k;
    w->j = w->flat - w->b * k;
    w->n = stop - w->flat < room ? stop - w->flat : room;
    w->flat += w->n;
}

bool syi_kv_walk_on(struct syi_kv_walk *w, const struct syi_kv_pages *pages, int64_t *slot, int64_t room)
{
    syi_kv_walk_next(w, pages, room);
    w->sequence = syi_kv_sequence_at(pages, w->b);
    w->sequence.indices = syi_row(pages->indices, w->b);
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

sy_status syi_kv_judge(sy_ctx *ctx, const struct syi_kv_pages *pages, int n_tasks, struct syi_found *found,
                       const struct syi_kv_kept *kept)
{
    struct job job = {pages, n_tasks, found, kept};
    const sy_status st = syi_report(ctx, syi_kv_judge_sequences(pages));
    if (st != SY_OK)
        return st;
    syi_parallel(ctx, n_tasks, check_positions, &job);
    return syi_report(ctx, syi_first_bad(found, n_tasks));
}
