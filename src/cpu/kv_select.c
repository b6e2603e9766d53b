/*
 * kv_select on the CPU: which columns a row selects, exactly, then what is written of them.
 *
 * A threshold a little below the cut is guessed from a sample of the row. One pass turns scores into bits, score >= threshold; the
 * keys of the few thousand that are set give the exact cut, and walking the bits in order keeps the lowest of equal scores without
 * a sort. Where too many are set, a pass with > says whether the threshold itself is the cut. A wrong guess costs passes, never a
 * result. Rows with `position` are sorted by it first, so that places in the row are in the order of ties.
 *
 * With a table all entries are looked up before the first is written, so that the columns of all rows are kept.
 */
#include "plan/select_math.h"
#include "cpu/backend.h"
#include "kernels/kernels.h"

#include <math.h>

enum {
    SAMPLE = 2048, /* scores of the guess, RUN at a place */
    RUN = 4,
    DIGIT = 2048,       /* bins of a histogram */
    SPARE = 4096,       /* candidates besides four for each place */
    SHORT = 4 * SAMPLE, /* in a row of so many all live scores are candidates */
    FEW = 32            /* are sorted at once */
};

/* What selecting in a row needs. */
struct room {
    uint64_t *bits, *above; /* of N columns */
    uint32_t *key, *key_to; /* candidates */
    int32_t *place, *place_to;
    uint32_t *sample, *bin; /* [SAMPLE], [DIGIT + 1] */
    int32_t *chosen;        /* [room + 2] */
    unsigned char *sorted;  /* with `position`: the scores in its order */
    int32_t *column;        /* where they are */
};

/* One long row is marked by all threads; of several rows each thread has its own. */
struct slices {
    sy_ctx *ctx;
    const struct syi_kernels *kernels;
    int n;
    int64_t *count; /* [n] */
};

struct job {
    const struct syi_kv_select_plan *plan;
    struct slices slices;
    int n_tasks;
    struct room *room;       /* [task] */
    struct syi_found *found; /* [task] */
    int32_t *kept;           /* with a table: [B][room] */
    int32_t *n_kept;         /* [B] */
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t candidates_of(const struct syi_kv_select_plan *p)
{
    return least(p->n_columns, most(SHORT, 4 * p->room + SPARE)) + 2;
}

static struct room take_room(const struct syi_kv_select_plan *p, struct syi_arena *arena)
{
    struct room r = {.bits = NULL};
    const size_t words = (size_t)p->n_columns / 64 + 1, n = (size_t)candidates_of(p);
    const bool sorts = p->position.data != NULL;
    const size_t all = sorts && n < (size_t)p->n_columns ? (size_t)p->n_columns : n;
    r.bits = syi_take(arena, words * sizeof *r.bits);
    r.above = syi_take(arena, words * sizeof *r.above);
    r.key = syi_take(arena, all * sizeof *r.key);
    r.key_to = syi_take(arena, all * sizeof *r.key_to);
    r.place = syi_take(arena, all * sizeof *r.place);
    r.place_to = syi_take(arena, all * sizeof *r.place_to);
    r.sample = syi_take(arena, SAMPLE * sizeof *r.sample);
    r.bin = syi_take(arena, (DIGIT + 1) * sizeof *r.bin);
    r.chosen = syi_take(arena, ((size_t)p->room + 2) * sizeof *r.chosen);
    r.sorted = syi_take(arena, sorts ? (size_t)p->n_columns * sizeof(float) : 0);
    r.column = syi_take(arena, sorts ? (size_t)p->n_columns * sizeof *r.column : 0);
    return r;
}

static struct job lay_out(const sy_ctx *ctx, const struct syi_kv_select_plan *p, struct syi_arena *arena)
{
    struct job job = {.plan = p, .slices = {.kernels = ctx->kernels, .n = 1}};
    const uint64_t bytes = (uint64_t)p->batch * (uint64_t)p->n_columns * syi_float_bytes(p->scores.type);
    if (p->idle)
        return job;
    job.n_tasks = syi_tasks(ctx, p->batch, bytes);
    if (job.n_tasks == 1)
        job.slices.n = syi_tasks(ctx, p->n_columns / 64, bytes / (uint64_t)p->batch);
    job.slices.count = syi_take(arena, (size_t)job.slices.n * sizeof *job.slices.count);
    job.found = syi_take(arena, (size_t)job.n_tasks * sizeof *job.found);
    job.room = syi_take(arena, (size_t)job.n_tasks * sizeof *job.room);
    if (p->has_table) {
        job.kept = syi_take(arena, syi_size_mul((size_t)p->batch, (size_t)p->room * sizeof *job.kept) +
                                       2 * sizeof *job.kept);
        job.n_kept = syi_take(arena, (size_t)p->batch * sizeof *job.n_kept);
    }
    for (int task = 0; task < job.n_tasks; task++) {
        const struct room room = take_room(p, arena);
        if (job.room != NULL)
            job.room[task] = room;
    }
    return job;
}

SYI_CPU_WORKSPACE(kv_select)

/* ---- The order of keys ---- */

/* Sorts n keys downwards, or upwards, and their places with them; equal keys stay in their order. */
static void sort_keys(const struct room *r, int64_t n, bool down)
{
    const uint32_t turn = down ? UINT32_MAX : 0;
    for (int shift = 0; shift < 33; shift += 11) {
        uint32_t *const first = r->bin;
        memset(first, 0, (DIGIT + 1) * sizeof *first);
        for (int64_t i = 0; i < n; i++)
            first[1 + ((r->key[i] ^ turn) >> shift & (DIGIT - 1))]++;
        for (int d = 0; d < DIGIT; d++)
            first[d + 1] += first[d];
        for (int64_t i = 0; i < n; i++) {
            const uint32_t to = first[(r->key[i] ^ turn) >> shift & (DIGIT - 1)]++;
            r->key_to[to] = r->key[i];
            r->place_to[to] = r->place[i];
        }
        memcpy(r->key, r->key_to, (size_t)n * sizeof *r->key);
        memcpy(r->place, r->place_to, (size_t)n * sizeof *r->place);
    }
}

/* A range of keys, and how many are above it. */
struct range {
    uint32_t low, high;
    int64_t above;
};

/* The place `rank`, from 1, among n keys of the range that is one histogram long: the part of the range with that key. */
static int find_bin(const uint32_t *bin, int top, int64_t rank, struct range *range, int shift)
{
    int d = top;
    for (; d > 0 && range->above + bin[d] < rank; d--)
        range->above += bin[d];
    const uint32_t low = range->low + ((uint32_t)d << shift), last = low + ((1u << shift) - 1);
    range->high = last < range->high ? last : range->high;
    range->low = low;
    return d;
}

/* The few keys of a range in order: the cut is one of them. */
static uint32_t cut_of_few(const uint32_t *key, int64_t n, struct range range, int64_t rank, int64_t *larger)
{
    uint32_t few[FEW];
    int count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (key[i] - range.low > range.high - range.low)
            continue;
        int j = count++;
        for (; j > 0 && few[j - 1] < key[i]; j--)
            few[j] = few[j - 1];
        few[j] = key[i];
    }
    const uint32_t cut = few[rank - range.above - 1];
    *larger = range.above;
    for (int j = 0; j < count && few[j] > cut; j++)
        (*larger)++;
    return cut;
}

/* The key of place `rank` of n, and how many are larger. */
static uint32_t cut_of_keys(const uint32_t *key, int64_t n, int64_t rank, uint32_t *bin, int64_t *larger)
{
    struct range range = {UINT32_MAX, 0, 0};
    for (int64_t i = 0; i < n; i++) {
        range.low = key[i] < range.low ? key[i] : range.low;
        range.high = key[i] > range.high ? key[i] : range.high;
    }
    while (range.low < range.high) {
        const uint32_t span = range.high - range.low, low = range.low;
        const int bits = 32 - __builtin_clz(span), shift = bits > 11 ? bits - 11 : 0;
        memset(bin, 0, DIGIT * sizeof *bin);
        for (int64_t i = 0; i < n; i++)
            if (key[i] - low <= span)
                bin[(key[i] - low) >> shift]++;
        const int d = find_bin(bin, (int)(span >> shift), rank, &range, shift);
        if (shift > 0 && bin[d] <= FEW)
            return cut_of_few(key, n, range, rank, larger);
    }
    *larger = range.above;
    return range.low;
}

/* ---- Scores ---- */

/* The scores of one row, or of a part of it. */
struct scores {
    const struct slices *slices;
    const unsigned char *data;
    sy_type type;
    int64_t n;
};

/* The same of a whole row, whose keys are not in memory: a pass for each digit. 0: there are fewer live ones. */
static uint32_t cut_of_row(const struct scores *x, int64_t rank, uint32_t *bin, int64_t *larger)
{
    struct range range = {0, x->type == SY_TYPE_F32 ? UINT32_MAX : UINT16_MAX, 0};
    while (range.low < range.high) {
        const uint32_t span = range.high - range.low, low = range.low;
        const int bits = 32 - __builtin_clz(span), shift = bits > 11 ? bits - 11 : 0;
        memset(bin, 0, DIGIT * sizeof *bin);
        for (int64_t i = 0; i < x->n; i++) {
            const uint32_t key = syi_select_key(x->data, i, x->type);
            if (key - low <= span)
                bin[(key - low) >> shift]++;
        }
        find_bin(bin, (int)(span >> shift), rank, &range, shift);
    }
    *larger = range.above;
    return range.low;
}

struct marking {
    const struct scores *x;
    uint64_t *bits;
    uint32_t low, span; /* orders, as the kernels have them */
    int64_t n_blocks;
    int64_t *count; /* [slice] */
};

static void mark_slice(void *data, int task)
{
    const struct marking *m = data;
    const struct slices *s = m->x->slices;
    const int64_t first = syi_part(m->n_blocks, s->n, task), end = syi_part(m->n_blocks, s->n, task + 1);
    const unsigned char *from = m->x->data + (size_t)first * 64 * syi_float_bytes(m->x->type);
    const size_t n = (size_t)(end - first);
    m->count[task] =
        (int64_t)(m->x->type == SY_TYPE_F32
                      ? s->kernels->mark_32(m->bits + first, from, n, m->low, m->span)
                      : s->kernels->mark_16(m->bits + first, from, n, (uint16_t)m->low, (uint16_t)m->span));
}

/* Sets the bit of every score with a key of at least `least_key`, which is above 0; returns how many. */
static int64_t mark(const struct scores *x, uint32_t least_key, uint64_t *bits)
{
    const bool wide = x->type == SY_TYPE_F32;
    const uint32_t sign = wide ? 0x80000000u : 0x8000u, inf = wide ? 0x7f800000u : syi_select_inf16(x->type);
    const uint32_t lowest = wide ? 0x00800000u : x->type == SY_TYPE_BF16 ? 0x0080u : 0x0400u;
    const uint32_t key = least_key > lowest ? least_key : lowest;
    const uint32_t low = (key ^ sign) - (key == sign); /* with +0 comes -0, whose order is -1 */
    struct marking marking = {x, bits, low, inf - low, key > (inf | sign) ? 0 : x->n / 64, NULL};
    int64_t count = 0, only;
    marking.count = x->slices->n > 1 ? x->slices->count : &only; /* rows of other tasks have their own */
    syi_parallel(x->slices->ctx, x->slices->n, mark_slice, &marking);
    for (int i = 0; i < x->slices->n; i++)
        count += marking.count[i];
    for (int64_t i = marking.n_blocks * 64; i < x->n; i += 64) {
        uint64_t word = 0;
        for (int64_t j = i; j < least(x->n, i + 64); j++)
            word |= (uint64_t)(syi_select_key(x->data, j, x->type) >= key) << (j - i);
        bits[i / 64] = word;
        count += __builtin_popcountll(word);
    }
    return count;
}

/* A key, at least 1, that about `want` scores and a few more have or exceed: found in a sample of the row. */
static uint32_t guess(const struct room *r, const struct scores *x, int64_t want, int64_t times)
{
    const int64_t step = x->n / (SAMPLE / RUN);
    const size_t bytes = syi_float_bytes(x->type);
    unsigned char *const raw = (unsigned char *)r->key_to;
    uint32_t noise = 0x9e3779b9u;
    int64_t larger;
    for (int i = 0; i < SAMPLE; i += RUN) {
        noise = noise * 1664525u + 1013904223u;
        const int64_t at = i / RUN * step + (int64_t)((uint64_t)noise * (uint64_t)(step - RUN + 1) >> 32);
        memcpy(raw + (size_t)i * bytes, x->data + (size_t)at * bytes, RUN * bytes); /* misses that overlap */
    }
    for (int i = 0; i < SAMPLE; i++)
        r->sample[i] = syi_select_key(raw, i, x->type);
    const double expected = (double)want * SAMPLE / (double)x->n;
    const int64_t rank = least(SAMPLE, times * (int64_t)(expected + 3 * sqrt(expected) + 2));
    const uint32_t key = cut_of_keys(r->sample, SAMPLE, rank, r->bin, &larger);
    return key > 0 ? key : 1;
}

/* Places and keys of the bits that are set. Two places of a word are written whether it has them or not. */
static int64_t take(const struct scores *x, const uint64_t *bits, uint32_t *key, int32_t *place)
{
    const uint64_t top = UINT64_C(1) << 63;
    int64_t n = 0;
    for (int64_t w = 0; w * 64 < x->n; w++) {
        const uint64_t m = bits[w], m1 = m & (m - 1);
        const int32_t at = (int32_t)(w * 64);
        place[n] = at + __builtin_ctzll(m | top);
        place[n + 1] = at + __builtin_ctzll(m1 | top);
        n += (m != 0) + (m1 != 0);
        for (uint64_t rest = m1 & (m1 - 1); rest != 0; rest &= rest - 1)
            place[n++] = at + __builtin_ctzll(rest);
    }
    for (int64_t i = 0; i < n; i++)
        key[i] = syi_select_key(x->data, place[i], x->type);
    return n;
}

/* Of n candidates in order those above the cut, and the first `ties` that equal it. `to` has a place more than are written. */
static int64_t write_cut(const struct room *r, int64_t n, uint32_t cut, int64_t ties, int32_t *to)
{
    int64_t out = 0;
    for (int64_t i = 0; i < n; i++) {
        const bool equal = r->key[i] == cut;
        to[out] = r->place[i];
        out += (r->key[i] > cut) | (equal & (ties > 0));
        ties -= equal;
    }
    return out;
}

static int64_t select_marked(const struct room *r, const struct scores *x, const uint64_t *bits, int64_t want,
                             int32_t *to)
{
    int64_t larger = 0;
    const int64_t n = take(x, bits, r->key, r->place);
    if (n <= want)
        return write_cut(r, n, 0, 0, to);
    const uint32_t cut = cut_of_keys(r->key, n, want, r->bin, &larger);
    return write_cut(r, n, cut, want - larger, to);
}

/* All of r->above, fewer than want, and the first others that are marked. */
static int64_t select_level(const struct room *r, int64_t n, int64_t want, int64_t n_above, int32_t *to)
{
    int64_t out = 0, ties = want - n_above;
    for (int64_t w = 0; w * 64 < n; w++) {
        uint64_t keep = r->above[w], equal = r->bits[w] & ~r->above[w];
        for (; equal != 0 && ties > 0; equal &= equal - 1, ties--)
            keep |= equal & (0 - equal);
        for (; keep != 0; keep &= keep - 1)
            to[out++] = (int32_t)(w * 64 + __builtin_ctzll(keep));
    }
    return out;
}

/* The cut of the whole row by histograms. */
static int64_t select_slowly(const struct room *r, const struct scores *x, int64_t want, int32_t *to)
{
    int64_t larger = 0, out = 0;
    const uint32_t cut = cut_of_row(x, want, r->bin, &larger);
    int64_t ties = want - larger;
    for (int64_t i = 0; i < x->n; i++) {
        const uint32_t key = syi_select_key(x->data, i, x->type);
        if (key == 0 || key < cut || (key == cut && ties-- <= 0))
            continue;
        to[out++] = (int32_t)i;
    }
    return out;
}

/* The first `want` live scores in order; fewer where there are no more. Returns how many, their places ascending. */
static int64_t select_live(const struct room *r, const struct scores *x, int64_t want, int32_t *to)
{
    if (x->n <= SHORT || want > x->n / 4) {
        mark(x, 1, r->bits);
        return select_marked(r, x, r->bits, want, to);
    }
    const int64_t cap = 4 * want + SPARE;
    uint32_t key = guess(r, x, want, 1);
    int64_t n = mark(x, key, r->bits);
    if (n < want && key > 1) {
        key = guess(r, x, want, 3);
        n = mark(x, key, r->bits);
    }
    if (n <= cap && (n >= want || key == 1))
        return select_marked(r, x, r->bits, want, to);
    if (n > cap) {
        const int64_t above = mark(x, key + 1, r->above);
        if (above < want)
            return select_level(r, x->n, want, above, to);
        if (above <= cap)
            return select_marked(r, x, r->above, want, to);
    }
    return select_slowly(r, x, want, to);
}

/* All `live` live places of n, which `to` has, and the first dead ones. */
static int64_t add_dead(const struct scores *x, int64_t live, int64_t want, int32_t *to)
{
    int64_t out = 0, dead = want - live;
    for (int64_t i = 0; i < x->n; i++)
        if (syi_select_key(x->data, i, x->type) != 0 || dead-- > 0)
            to[out++] = (int32_t)i;
    return out;
}

/* ---- Rows ---- */

/* The columns that have a position, in its order: their scores, and where they are. */
static struct scores sort_row(const struct job *job, const struct room *r, const struct syi_select_row *row,
                              int64_t b)
{
    const struct syi_kv_select_plan *p = job->plan;
    const unsigned char *from = syi_at(p->scores, b), *position = syi_at(p->position, b);
    const size_t bytes = syi_float_bytes(p->scores.type);
    int64_t n = 0;
    for (int64_t i = 0; i < row->length; i++) {
        const int64_t t = syi_load_index(position, i, p->position.type);
        if (t < 0)
            continue;
        r->key[n] = (uint32_t)t;
        r->place[n++] = (int32_t)i;
    }
    sort_keys(r, n, false);
    for (int64_t i = 0; i < n; i++) {
        r->column[i] = r->place[i];
        memcpy(r->sorted + (size_t)i * bytes, from + (size_t)r->place[i] * bytes, bytes);
    }
    return (struct scores){&job->slices, r->sorted, p->scores.type, n};
}

/* The first of n sorted positions, which are in r->key, that is at least `t`. */
static int64_t place_of(const struct room *r, int64_t n, int64_t t)
{
    int64_t i = 0;
    while (i < n && r->key[i] < t)
        i++;
    return i;
}

static void sort_by_score(const struct room *r, const struct scores *x, int64_t n, int32_t *chosen)
{
    for (int64_t i = 0; i < n; i++) {
        r->key[i] = syi_select_key(x->data, chosen[i], x->type);
        r->place[i] = chosen[i];
    }
    sort_keys(r, n, true);
    memcpy(chosen, r->place, (size_t)n * sizeof *chosen);
}

/* Columns of row b, counted from its first, in the order of the outputs. Returns how many. */
static int64_t select_row(const struct job *job, const struct room *r, const struct syi_select_row *row,
                          int64_t b, int32_t *chosen)
{
    const struct syi_kv_select_plan *p = job->plan;
    const size_t bytes = syi_float_bytes(p->scores.type);
    const bool sorts = p->position.data != NULL;
    struct scores x = {&job->slices, syi_at(p->scores, b) + (size_t)row->start * bytes, p->scores.type,
                       row->length};
    int64_t head = row->head, tail = row->tail;
    if (sorts) {
        x = sort_row(job, r, row, b);
        tail = place_of(r, x.n, tail);
        head = place_of(r, x.n, head);
    }
    head = least(least(head, x.n), row->most);
    tail = most(least(tail, x.n), head);
    const int64_t last = least(x.n - tail, row->most - head), want = row->most - head - last;
    const struct scores middle = {x.slices, x.data + (size_t)head * bytes, x.type, tail - head};
    int64_t n = head;
    if (want > 0 && middle.n > 0) {
        int64_t found = select_live(r, &middle, want, chosen + head);
        if (p->args.dead == SY_KV_DEAD_KEEP && found < least(want, middle.n))
            found = add_dead(&middle, found, want, chosen + head);
        n += found;
    }
    for (int64_t i = 0; i < head; i++)
        chosen[i] = (int32_t)i;
    for (int64_t i = head; i < n; i++)
        chosen[i] += (int32_t)head;
    for (int64_t i = 0; i < last; i++)
        chosen[n++] = (int32_t)(tail + i);
    if (p->args.order == SY_KV_ORDER_SCORE)
        sort_by_score(r, &x, n, chosen);
    for (int64_t i = 0; i < n && sorts; i++)
        chosen[i] = r->column[chosen[i]];
    return n;
}

/* ---- Outputs ---- */

/* Bytes ff: -1 in every type of index. */
static void write_none(const struct syi_tensor *t, int64_t b, int64_t from, int64_t width)
{
    const size_t bytes = t->type == SY_TYPE_I64 ? 8 : 4;
    if (t->data != NULL)
        memset(syi_at(*t, b) + (size_t)from * bytes, 0xff, (size_t)(width - from) * bytes);
}

static void write_values(const struct syi_kv_select_plan *p, const struct syi_select_row *row, int64_t b,
                         const int32_t *chosen, int64_t n)
{
    const bool wide = p->scores.type == SY_TYPE_F32, widens = !wide && p->values.type == SY_TYPE_F32;
    const unsigned char *from = syi_at(p->scores, b) + (size_t)row->start * syi_float_bytes(p->scores.type);
    unsigned char *to = syi_at(p->values, b);
    const uint32_t none = wide || widens ? 0xff800000u : syi_select_inf16(p->scores.type) | 0x8000u;
    for (int64_t i = 0; i < p->k; i++) {
        uint32_t u = none;
        if (i < n)
            u = wide ? syi_load_u32(from + (size_t)chosen[i] * 4)
                     : syi_load_u16(from + (size_t)chosen[i] * 2);
        if (i < n && widens)
            u = syi_select_widened(u, p->scores.type);
        if (wide || widens)
            syi_store_u32(to + i * 4, u);
        else
            syi_store_u16(to + i * 2, (uint16_t)u);
    }
}

/* Entries of a row. Returns how many `count` has. */
static int64_t write_entries(const struct syi_kv_select_plan *p, const struct syi_select_row *row, int64_t b,
                             const int32_t *chosen, int64_t n)
{
    const struct syi_kv_sequence blocks =
        p->has_table ? syi_select_sequence(p, b) : (struct syi_kv_sequence){0};
    int64_t out = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t t = syi_select_position(p, b, chosen[i]);
        for (int64_t g = 0; g < p->expand; g++) {
            struct syi_found found;
            const struct syi_select_entry e = syi_select_entry_of(p, row, &blocks, t, g, &found);
            if (p->args.own_only && e.owner != p->args.rank)
                continue;
            if (p->indices.data != NULL)
                syi_store_index(syi_at(p->indices, b), out, e.index, p->indices.type);
            if (p->slots.data != NULL)
                syi_store_index(syi_at(p->slots, b), out, e.slot, p->slots.type);
            if (p->owner.data != NULL)
                syi_store_i32(syi_at(p->owner, b), out, e.owner);
            out++;
        }
    }
    return p->args.own_only ? out : n;
}

static uint32_t flags_of(const struct syi_kv_select_plan *p, const struct syi_select_row *row, int64_t b)
{
    const unsigned char *from = syi_at(p->scores, b) + (size_t)row->start * syi_float_bytes(p->scores.type);
    uint32_t any = 0, all = SY_ROW_EMPTY;
    for (int64_t i = 0; i < row->length; i++) {
        if (p->position.data != NULL && syi_select_position(p, b, i) < 0)
            continue;
        const uint32_t flags = syi_select_flags(from, i, p->scores.type);
        any |= flags;
        all &= flags;
    }
    return (any & ~SY_ROW_EMPTY) | all;
}

static void write_row(const struct syi_kv_select_plan *p, int64_t b, const int32_t *chosen, int64_t n)
{
    const struct syi_select_row row = syi_select_row_of(p, b);
    const int64_t width = p->k * p->expand, count = write_entries(p, &row, b, chosen, n);
    const int64_t written = p->args.own_only ? count : n * p->expand;
    write_none(&p->indices, b, written, width);
    write_none(&p->slots, b, written, width);
    write_none(&p->owner, b, written, width);
    if (p->values.data != NULL)
        write_values(p, &row, b, chosen, n);
    if (p->count.data != NULL)
        syi_store_index(p->count.data, b, count, p->count.type);
    if (p->row_flags.data != NULL)
        syi_store_u32(p->row_flags.data + b * 4, flags_of(p, &row, b));
}

/* ---- Phases ---- */

static struct syi_found validate_rows(const struct syi_kv_select_plan *p)
{
    struct syi_found found = syi_good();
    for (int64_t r = 0; p->has_table && syi_kv_lists(&p->pages.table) && r <= p->pages.table.rows; r++)
        if ((found = syi_kv_list_fault(&p->pages, r)).bad != SYI_GOOD)
            return found;
    for (int64_t b = 0; b < p->batch && found.bad == SYI_GOOD; b++)
        found = syi_select_row_fault(p, b);
    return found;
}

static void check_positions(void *data, int task)
{
    const struct job *job = data;
    const struct syi_kv_select_plan *p = job->plan;
    struct syi_found *found = &job->found[task];
    const int64_t end = syi_part(p->batch, job->n_tasks, task + 1);
    *found = syi_good();
    for (int64_t b = syi_part(p->batch, job->n_tasks, task); b < end; b++) {
        const struct syi_select_row row = syi_select_row_of(p, b);
        for (int64_t t = 0; t < row.length && found->bad == SYI_GOOD; t++)
            *found = syi_select_position_fault(p, &row, b, t);
    }
}

/* Looks up the entries of a row. */
static struct syi_found check_entries(const struct syi_kv_select_plan *p, const struct syi_select_row *row,
                                      int64_t b, const int32_t *chosen, int64_t n)
{
    const struct syi_kv_sequence blocks = syi_select_sequence(p, b);
    for (int64_t i = 0; i < n; i++) {
        const int64_t t = syi_select_position(p, b, chosen[i]);
        for (int64_t g = 0; g < p->expand; g++) {
            struct syi_found found;
            syi_select_entry_of(p, row, &blocks, t, g, &found);
            if (found.bad == SYI_GOOD)
                continue;
            found.batch = b;
            found.position = i * p->expand + g;
            return found;
        }
    }
    return syi_good();
}

/* Rows of a task: selected, and written, or with a table kept and looked up. */
static void select_rows(void *data, int task)
{
    const struct job *job = data;
    const struct syi_kv_select_plan *p = job->plan;
    struct syi_found *found = &job->found[task];
    const int64_t end = syi_part(p->batch, job->n_tasks, task + 1);
    *found = syi_good();
    for (int64_t b = syi_part(p->batch, job->n_tasks, task); b < end && found->bad == SYI_GOOD; b++) {
        const struct syi_select_row row = syi_select_row_of(p, b);
        int32_t *chosen = job->room[task].chosen;
        const int64_t n = select_row(job, &job->room[task], &row, b, chosen);
        if (!p->has_table) {
            write_row(p, b, chosen, n);
            continue;
        }
        memcpy(job->kept + b * p->room, chosen, (size_t)n * sizeof *chosen);
        job->n_kept[b] = (int32_t)n;
        *found = check_entries(p, &row, b, chosen, n);
    }
}

static void write_kept(void *data, int task)
{
    const struct job *job = data;
    const struct syi_kv_select_plan *p = job->plan;
    const int64_t end = syi_part(p->batch, job->n_tasks, task + 1);
    for (int64_t b = syi_part(p->batch, job->n_tasks, task); b < end; b++)
        write_row(p, b, job->kept + b * p->room, job->n_kept[b]);
}

sy_status syi_cpu_kv_select(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_kv_select_plan *p = &plan->kv_select;
    struct syi_arena arena = {workspace, 0};
    struct job job = lay_out(ctx, p, &arena);
    job.slices.ctx = ctx;
    if (p->idle)
        return SY_OK;
    SYI_TRY(syi_report(ctx, validate_rows(p)));
    if (p->position.data != NULL) {
        syi_parallel(ctx, job.n_tasks, check_positions, &job);
        SYI_TRY(syi_report(ctx, syi_first_bad(job.found, job.n_tasks)));
    }
    syi_parallel(ctx, job.n_tasks, select_rows, &job);
    SYI_TRY(syi_report(ctx, syi_first_bad(job.found, job.n_tasks)));
    if (p->has_table)
        syi_parallel(ctx, job.n_tasks, write_kept, &job);
    return SY_OK;
}
