/*
 * Draws from rows with too many candidates to collect and rank them: whole rows, and large nuclei. The exponentials of a
 * row are computed once. Their sums by strip are fast and have a known error bound; only where the bound does not decide
 * a cut or a draw are the weights added up exactly.
 */
#include "cpu/sample.h"
#include "cpu/load.h"

#include <math.h>

enum { STRIP = SYI_PIECE };

#define LEAST 0x1p-41f /* values up to this have the weight 0 */
#define ABOVE 2.0f     /* larger than any value */

/* Unaligned logits in place: loops over these are vectorised. */
typedef uint16_t any_u16 __attribute__((aligned(1), may_alias));
typedef uint32_t any_u32 __attribute__((aligned(1), may_alias));

/* ---- Exponentials ---- */

static size_t strip_length(const struct syi_weigher *w, size_t strip)
{
    const size_t rest = (size_t)w->scan->row.n - strip * STRIP;
    return rest < STRIP ? rest : STRIP;
}

static uint64_t weight_about(double sum)
{
    return (uint64_t)(sum * 0x1p40);
}

/* e of a strip, without the additional tokens, and its approximate weight. */
static SYI_HAS_BUFFER uint64_t exp_strip(const struct syi_weigher *w, size_t strip, float *e)
{
    const struct syi_logits *row = &w->scan->row;
    const size_t first = strip * STRIP, n = strip_length(w, strip);
    unsigned char buffer[SYI_PIECE * 4];
    syi_exp_row_fn *const exp_row = w->kernels->exp_row[syi_float_of(row->type)];
    syi_weigh_fetch_next(w, first, n);
    if (!syi_any_allowed(row, first, n)) {
        memset(e, 0, n * sizeof *e);
        return 0;
    }
    return weight_about(exp_row(e, syi_piece(row, first, n, buffer), n, w->m, w->inv_t));
}

/* Writes the additional tokens in [first, first + n) to their places. */
static void exp_extra(const struct syi_weigher *w, float *e, size_t first, size_t n)
{
    const struct syi_candidates *c = &w->extra;
    for (int64_t i = 0; i < c->n; i++)
        if ((size_t)c->idx[i] >= first && (size_t)c->idx[i] < first + n)
            w->kernels->exp_keys(&e[(size_t)c->idx[i] - first], &c->key[i], 1, w->m, w->inv_t);
}

/* ---- Strips ---- */

/* How much the sum of a row's strips, or of the first of them, may be off when they are weighed by kernels that are
   themselves off: besides, a weight is rounded by at most 1/2, and the sum of a strip by 1. */
static uint64_t slack(const struct syi_weigher *w, uint64_t sum)
{
    return (uint64_t)((double)sum * SYI_ROW_SUM_ERROR) + (uint64_t)w->scan->row.n + 2;
}

/* The place of a draw: in a strip, beyond a weight there that is known within bounds. */
struct landing {
    size_t strip;
    struct syi_mass beyond;
};

static struct landing land(const struct syi_weigher *w, uint64_t uniform, bool exact)
{
    const size_t n_strips = syi_weigh_strips(w->scan->row.n);
    uint64_t total = 0, before = 0;
    for (size_t i = 0; i < n_strips; i++)
        total += w->table.strip[i];
    const uint64_t off = exact ? 0 : slack(w, total), least = total > off ? total - off : 0;
    const uint64_t target = syi_share_of(uniform, total);
    struct landing at = {0, {0, 0}};
    while (at.strip + 1 < n_strips && before + w->table.strip[at.strip] <= target)
        before += w->table.strip[at.strip++];
    const uint64_t before_off = exact || at.strip == 0 ? 0 : slack(w, before);
    const uint64_t low = syi_share_of(uniform, least), high = syi_share_of(uniform, total + off);
    at.beyond.low = low >= before + before_off ? low - before - before_off : UINT64_MAX; /* in doubt */
    at.beyond.high = high + before_off - before;
    return at;
}

/* The first of n tokens at which their weight exceeds what a draw lands beyond; -1 when that is in doubt. */
static int64_t find_in(const struct syi_kernels *kernels, const float *e, size_t n,
                       const struct syi_mass *beyond)
{
    enum { SOME = 32 };
    uint64_t seen = 0;
    size_t i = 0;
    if (beyond->low > beyond->high)
        return -1;
    for (uint64_t some; i + SOME <= n; i += SOME, seen += some) {
        some = kernels->weigh_e(e + i, SOME, 0.0f);
        if (seen + some > beyond->low)
            break;
    }
    for (; i < n; i++) {
        seen += syi_weight(e[i]);
        if (seen > beyond->low)
            return seen > beyond->high ? (int64_t)i : -1;
    }
    return -1;
}

/* ---- Whole rows ---- */

static uint64_t weigh_strips(const struct syi_weigher *w, bool exact)
{
    float *e = w->scratch->e;
    uint64_t total = 0;
    for (size_t i = 0; i < syi_weigh_strips(w->scan->row.n); i++) {
        const uint64_t about = exp_strip(w, i, e);
        w->table.strip[i] = exact ? w->kernels->weigh_e(e, strip_length(w, i), 0.0f) : about;
        total += w->table.strip[i];
    }
    return total + syi_weigh_extra_strips(w);
}

struct syi_drawn syi_nucleus_draw_whole(const struct syi_weigher *w, uint64_t uniform, bool weight)
{
    enum { LONG = 49152 }; /* from here on a table of the weights of 16-bit logits is worth its making */
    const bool by_table = w->scan->row.type != SY_TYPE_F32 && w->scan->row.n >= LONG;
    float *e = w->scratch->e;
    for (bool exact = weight || by_table;; exact = true) {
        const uint64_t total = by_table ? syi_weigh(w) : weigh_strips(w, exact);
        const struct landing at = land(w, uniform, exact);
        const size_t first = at.strip * STRIP, n = strip_length(w, at.strip);
        exp_strip(w, at.strip, e);
        exp_extra(w, e, first, n);
        const int64_t found = find_in(w->kernels, e, n, &at.beyond);
        if (found >= 0)
            return (struct syi_drawn){(int64_t)first + found, exact ? total : 0, 0};
    }
}

/* ---- Cut of a nucleus ---- */

/* A cut by mass: it is among the tokens whose e is in [low, high). They are listed or, if most of them have the same e
   and that is `low`, counted. */
struct nucleus {
    float low, high;
    bool counted;
    bool exact;
    struct syi_mass target;     /* of all that is kept */
    struct syi_mass above;      /* of the tokens from `high` on; strips have it as well */
    uint64_t within;            /* weight of those in the range */
    struct syi_candidates list; /* in index order, by bits of e */
    float *e;                   /* of those in the list */
    uint32_t *count;            /* of those in each strip */
};

/* Where it is, by the bits of e, and how many of the tokens that have it are kept; 0: in doubt. */
struct cut {
    uint32_t bits;
    uint64_t ties;
};

/* e of the whole row, and its approximate weight. */
static uint64_t exp_all(const struct syi_weigher *w)
{
    uint64_t total = 0;
    for (size_t i = 0; i < syi_weigh_strips(w->scan->row.n); i++)
        total += exp_strip(w, i, w->scratch->e + i * STRIP);
    exp_extra(w, w->scratch->e, 0, (size_t)w->scan->row.n);
    return total + syi_weigh_extra(w, 0);
}

/* A sample of the tokens of a row, one in so many: how many have an e in each sixteenth of a power of two. */
enum { SHIFT = 19, FIRST = 0x2b000000 >> SHIFT, BINS = (0x3f800000 >> SHIFT) - FIRST + 1 };
struct sample {
    size_t every;
    uint32_t count[BINS];
};

static float edge_of(uint32_t bin)
{
    return bin == 0 ? LEAST : bin >= BINS ? ABOVE : syi_f32_from_bits((FIRST + bin) << SHIFT);
}

static void take_sample(const struct syi_weigher *w, struct sample *s)
{
    enum { ENOUGH = 2048 };
    const size_t n = (size_t)w->scan->row.n;
    *s = (struct sample){.every = n / ENOUGH < 2 ? 1 : n / ENOUGH | 1};
    for (size_t i = 0; i < n; i += s->every) {
        const uint32_t bin = syi_f32_bits(w->scratch->e[i]) >> SHIFT;
        s->count[bin > FIRST ? bin - FIRST : 0]++;
    }
}

/*
 * The range of bins that contains the cut according to a sample. Its estimate of a weight of tokens of at most `each` is
 * rarely off by more than 1.5 sqrt(weight * each).
 */
static void guess_range(const struct sample *s, double below, uint32_t *low, uint32_t *high)
{
    double sum = 0;
    *low = *high = BINS;
    for (uint32_t bin = 0; bin < BINS && *high == BINS; bin++) {
        if (s->count[bin] == 0)
            continue;
        const double each = (double)edge_of(bin + 1) * 0x1p40 * (double)s->every;
        sum += s->count[bin] * each;
        const bool far = (sum - below) * (sum - below) > 2.25 * sum * each;
        if (*low == BINS && (sum > below || !far))
            *low = bin;
        if (sum > below && far)
            *high = bin + 1;
    }
    *low = *low < BINS ? *low : BINS - 1;
}

/* Whether most of a sample that is in a range has one e, and that is common. */
static bool find_common(const struct syi_weigher *w, const struct sample *s, struct nucleus *k)
{
    const size_t n = (size_t)w->scan->row.n;
    uint32_t sampled = 0, equal = 0;
    float most = 0.0f;
    for (size_t i = 0; i < n; i += s->every) {
        const float e = w->scratch->e[i];
        if (e < k->low || e >= k->high)
            continue;
        if (sampled++ == 0)
            most = e;
        equal += e == most;
    }
    if (equal * s->every < n / 16 || equal < sampled / 2)
        return false;
    k->low = most;
    k->high = syi_f32_from_bits(syi_f32_bits(most) + 1);
    return true;
}

static SYI_HAS_BUFFER void guess(const struct syi_weigher *w, struct nucleus *k, uint64_t total)
{
    struct sample s;
    uint32_t low, high, listed = 0;
    take_sample(w, &s);
    guess_range(&s, (double)(total > k->target.high ? total - k->target.high : 0), &low, &high);
    k->low = edge_of(low);
    k->high = edge_of(high);
    for (uint32_t bin = low; bin < high; bin++)
        listed += s.count[bin];
    k->counted = listed * s.every > (size_t)w->scan->row.n / 8 && find_common(w, &s, k);
}

/* Uses the list of the tokens in the range unchanged. */
static void fill_list(const struct syi_weigher *w, struct nucleus *k)
{
    for (int64_t i = 0; i < k->list.n; i++) {
        k->e[i] = w->scratch->e[k->list.idx[i]];
        k->list.key[i] = syi_f32_bits(k->e[i]);
    }
    k->within = w->kernels->weigh_e(k->e, (size_t)k->list.n, 0.0f);
}

static uint32_t count_equal(const float *e, size_t n, float value)
{
    uint32_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += e[i] == value;
    return count;
}

/* The strips without what is below `high`, and the list or the counts of what is in the range. */
static void split(const struct syi_weigher *w, struct nucleus *k)
{
    uint64_t sum = 0, counted = 0;
    k->list.n = 0;
    for (size_t i = 0; i < syi_weigh_strips(w->scan->row.n); i++) {
        const float *e = w->scratch->e + i * STRIP;
        const size_t n = strip_length(w, i);
        int32_t *idx = k->list.idx + k->list.n;
        double above;
        const size_t more = w->kernels->split(idx, e, n, k->counted ? k->high : k->low, k->high, &above);
        for (size_t j = 0; j < more; j++)
            idx[j] += (int32_t)(i * STRIP);
        if (k->counted)
            counted += k->count[i] = count_equal(e, n, k->low);
        k->list.n += (int64_t)more;
        w->table.strip[i] = weight_about(above);
        sum += w->table.strip[i];
    }
    const uint64_t off = slack(w, sum);
    k->above = (struct syi_mass){sum > off ? sum - off : 0, sum + off};
    k->exact = false;
    if (k->counted)
        k->within = counted * syi_weight(k->low);
    else
        fill_list(w, k);
}

/* The same strips exactly, and the target. */
static void make_exact(const struct syi_weigher *w, struct nucleus *k, float top_p)
{
    uint64_t all = 0, sum = 0;
    for (size_t i = 0; i < syi_weigh_strips(w->scan->row.n); i++) {
        const float *e = w->scratch->e + i * STRIP;
        const size_t n = strip_length(w, i);
        all += w->kernels->weigh_e(e, n, 0.0f);
        w->table.strip[i] = w->kernels->weigh_e(e, n, k->high);
        sum += w->table.strip[i];
    }
    k->above = (struct syi_mass){sum, sum};
    k->target.low = k->target.high = syi_mass_target(top_p, all);
    k->exact = true;
}

static struct cut find_in_range(const struct syi_weigher *w, const struct nucleus *k)
{
    const struct syi_mass rest = {k->target.low - k->above.high, k->target.high - k->above.low};
    const struct cut none = {0, 0};
    struct syi_cut cut = {syi_f32_bits(k->low), rest.high};
    if (k->target.low <= k->above.high || rest.high > k->within ||
        (!k->counted && !syi_select(&k->list, k->e, rest.high, w->scratch->hist, &cut)))
        return none;
    const uint64_t each = syi_weight(syi_f32_from_bits(cut.key)), above = rest.high - cut.rest;
    const uint64_t ties = (cut.rest + each - 1) / each;
    return rest.low > above && (rest.low - above + each - 1) / each == ties ? (struct cut){cut.key, ties}
                                                                            : none;
}

static struct cut find_cut(const struct syi_weigher *w, struct nucleus *k, float top_p, bool exact)
{
    const uint64_t total = exp_all(w), off = slack(w, total);
    k->target.low = syi_mass_target(top_p, total > off ? total - off : 0);
    k->target.high = syi_mass_target(top_p, total + off);
    guess(w, k, total);
    for (bool again = false;; again = true) {
        split(w, k);
        if (exact)
            make_exact(w, k, top_p);
        struct cut cut = find_in_range(w, k);
        if (cut.ties == 0 && !exact) {
            make_exact(w, k, top_p);
            cut = find_in_range(w, k);
        }
        if (cut.ties > 0)
            return cut;
        const bool higher = k->target.low <= k->above.low; /* the estimate was wrong */
        const float edge = higher ? k->high : k->low;
        k->low = higher ? edge : again || edge * 0.75f < LEAST ? LEAST : edge * 0.75f;
        k->high = !higher ? edge : again || edge * 1.25f > 1.0f ? ABOVE : edge * 1.25f;
        k->counted = false;
    }
}

/* ---- Kept tokens ---- */

static uint32_t key_of(const struct syi_weigher *w, int32_t token)
{
    const struct syi_logits *row = &w->scan->row;
    int64_t first = 0, end = w->extra.n;
    while (first < end) {
        const int64_t middle = first + (end - first) / 2;
        if (w->extra.idx[middle] < token)
            first = middle + 1;
        else
            end = middle;
    }
    if (first < w->extra.n && w->extra.idx[first] == token)
        return w->extra.key[first];
    const float value = syi_load_float(row->x + (size_t)token * syi_float_bytes(row->type), row->type);
    return syi_value_key(value == 0.0f ? 0.0f : value); /* -0 is +0 */
}

/* Whether all tokens of a row with this e have the same bits, by a quick test. */
static bool is_one_value(const struct syi_weigher *w, float e)
{
    const struct syi_logits *row = &w->scan->row;
    const float *own = w->scratch->e;
    const any_u32 *wide = (const any_u32 *)row->x;
    const any_u16 *narrow = (const any_u16 *)row->x;
    uint32_t least = UINT32_MAX, most = 0;
    for (int64_t i = 0; row->type == SY_TYPE_F32 && i < row->n; i++) {
        const uint32_t mask = own[i] == e ? 0 : UINT32_MAX;
        least = (wide[i] | mask) < least ? wide[i] | mask : least;
        most = (wide[i] & ~mask) > most ? wide[i] & ~mask : most;
    }
    for (int64_t i = 0; row->type != SY_TYPE_F32 && i < row->n; i++) {
        const uint32_t mask = own[i] == e ? 0 : UINT32_MAX;
        least = (narrow[i] | mask) < least ? narrow[i] | mask : least;
        most = (narrow[i] & ~mask) > most ? narrow[i] & ~mask : most;
    }
    return least == most && w->extra.n == 0;
}

/* Vectorised, without unpredictable branches. */
static void drop_below(float *e, int64_t n, float least)
{
    for (int64_t i = 0; i < n; i++)
        e[i] = syi_f32_from_bits(syi_f32_bits(e[i]) & (0u - (uint32_t)(e[i] >= least)));
}

/* Sets the e of listed tokens that are not kept to 0: all below the cut, and of those at it all but the first in the
   order. */
static void keep_listed(const struct syi_weigher *w, const struct nucleus *k, struct cut at, bool all_ties)
{
    struct syi_candidates at_cut = {k->list.key, NULL, 0};
    struct syi_cut cut = {0, 0};
    const float least = syi_f32_from_bits(at.bits);
    for (int64_t i = 0; i < k->list.n; i++)
        if (k->e[i] == least)
            at_cut.key[at_cut.n++] = key_of(w, k->list.idx[i]);
    drop_below(k->e, k->list.n, least);
    if (at.ties >= (uint64_t)at_cut.n)
        return;
    syi_select(&at_cut, NULL, at.ties, w->scratch->hist, &cut);
    for (int64_t i = 0, tie = 0; tie < at_cut.n; i++) {
        if (k->e[i] != least)
            continue;
        const uint32_t key = at_cut.key[tie++];
        if (key < cut.key || (key == cut.key && !all_ties && cut.rest == 0))
            k->e[i] = 0.0f;
        else if (key == cut.key)
            cut.rest--;
    }
}

/* The same where they are counted: the first few of those that are equal, or a list after all. */
static void keep_counted(const struct syi_weigher *w, struct nucleus *k, struct cut *at, bool all_ties)
{
    const uint64_t all = k->within / syi_weight(k->low);
    if (at->ties == all || is_one_value(w, k->low)) {
        at->ties = all_ties ? all : at->ties;
        return;
    }
    k->counted = false;
    split(w, k);
    keep_listed(w, k, *at, all_ties);
}

static int64_t count_from(const float *e, int64_t n, float least)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += e[i] >= least;
    return count;
}

/* Adds the kept tokens of the range to the strips; returns the weight of all. */
static uint64_t add_kept(const struct syi_weigher *w, const struct nucleus *k, struct cut at)
{
    uint64_t sum = 0, strip = 0;
    size_t own = 0;
    if (k->counted)
        for (size_t i = 0; i < syi_weigh_strips(w->scan->row.n); i++) {
            const uint64_t kept = k->count[i] < at.ties ? k->count[i] : at.ties;
            w->table.strip[i] += kept * syi_weight(k->low);
            at.ties -= kept;
        }
    for (int64_t i = 0; i < k->list.n; i++) { /* in index order, so that a strip is written once */
        const size_t other = (size_t)k->list.idx[i] / STRIP;
        if (other != own)
            w->table.strip[own] += strip;
        strip = (other != own ? 0 : strip) + syi_weight(k->e[i]);
        own = other;
    }
    w->table.strip[own] += strip;
    for (size_t i = 0; i < syi_weigh_strips(w->scan->row.n); i++)
        sum += w->table.strip[i];
    return sum;
}

/* The kept tokens of a strip: e, or 0. */
static void kept_of_strip(const struct syi_weigher *w, const struct nucleus *k, struct cut at, size_t strip,
                          float *e)
{
    const size_t first = strip * STRIP, n = strip_length(w, strip);
    const float *from = w->scratch->e + first;
    uint64_t ties = at.ties;
    for (size_t i = 0; k->counted && i < strip; i++)
        ties -= k->count[i] < ties ? k->count[i] : ties;
    for (size_t i = 0; i < n; i++) {
        const bool tie = k->counted && from[i] == k->low && ties > 0;
        ties -= tie;
        e[i] = from[i] >= k->high || tie ? from[i] : 0.0f;
    }
    for (int64_t i = 0; i < k->list.n; i++)
        if ((size_t)k->list.idx[i] / STRIP == strip)
            e[(size_t)k->list.idx[i] - first] = k->e[i];
}

/* The token of a draw from the kept ones; -1 when the bounds do not decide. */
static SYI_HAS_BUFFER int64_t draw_kept(const struct syi_weigher *w, const struct nucleus *k, struct cut at,
                                        uint64_t uniform)
{
    const struct landing on = land(w, uniform, k->exact);
    float e[STRIP];
    kept_of_strip(w, k, at, on.strip, e);
    const int64_t found = find_in(w->kernels, e, strip_length(w, on.strip), &on.beyond);
    return found >= 0 ? (int64_t)(on.strip * STRIP) + found : -1;
}

static struct nucleus start(const struct syi_weigher *w)
{
    const struct syi_sample_scratch *s = w->scratch;
    return (struct nucleus){
        .list = {s->key, s->cand_idx, 0}, .e = (float *)(void *)s->cand_key, .count = s->key};
}

struct syi_drawn syi_nucleus_draw(const struct syi_weigher *w, const struct syi_draw *d)
{
    struct nucleus k = start(w);
    struct cut at = find_cut(w, &k, d->top_p, d->exact);
    if (k.counted)
        keep_counted(w, &k, &at, d->all_ties);
    else
        keep_listed(w, &k, at, d->all_ties);
    if (d->exact && !k.exact)
        make_exact(w, &k, d->top_p);
    uint64_t weight = add_kept(w, &k, at);
    int64_t token = draw_kept(w, &k, at, d->uniform);
    if (token < 0) {
        make_exact(w, &k, d->top_p);
        weight = add_kept(w, &k, at);
        token = draw_kept(w, &k, at, d->uniform);
    }
    if (!d->exact)
        return (struct syi_drawn){token, 0, 0};
    const int64_t above = count_from(w->scratch->e, w->scan->row.n, k.high);
    const int64_t listed = count_from(k.e, k.list.n, LEAST);
    return (struct syi_drawn){token, weight, above + (k.counted ? (int64_t)at.ties : listed)};
}

struct syi_mass syi_nucleus_collect(const struct syi_weigher *w, float top_p, struct syi_candidates *c)
{
    struct nucleus k = start(w);
    const struct cut at = find_cut(w, &k, top_p, true);
    const size_t n = (size_t)w->scan->row.n;
    double none;
    *c = (struct syi_candidates){w->scratch->cand_key, w->scratch->cand_idx, 0};
    c->n = (int64_t)w->kernels->split(c->idx, w->scratch->e, n, syi_f32_from_bits(at.bits), ABOVE, &none);
    for (int64_t i = 0; i < c->n; i++)
        c->key[i] = key_of(w, c->idx[i]);
    const uint64_t total = w->kernels->weigh_e(w->scratch->e, n, 0.0f);
    return (struct syi_mass){total, total};
}
