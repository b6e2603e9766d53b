/*
 * Sums of the weights of whole rows: for top-p without top-k, for log-probabilities, and for draws from rows of few
 * values. A mass is first summed quickly with a known error bound, and exactly only if the bound does not decide. A
 * 16-bit row has few distinct values: both its exponentials and its exact weights are looked up by bit pattern.
 */
#include "cpu/sample.h"

enum {
    PATTERNS = SYI_PATTERNS,
    NEGATIVE = 0x8000, /* first pattern of the negative values, as many patterns as there are others */
    STRIP = SYI_PIECE, /* elements weighed together */
    MARK_SHIFT = 52    /* a strip weighs at most 2^50: the bits above count elements that are marked */
};

#define MARK (UINT64_C(1) << MARK_SHIFT)

/* exp(-28.5) * 2^40 < 1/2: below this all weights are 0. */
#define NO_WEIGHT (-28.5f)

/* ---- Weights by bit pattern ---- */

static float size_of(float value)
{
    return value < 0.0f ? -value : value;
}

static float value_of_pattern(uint32_t pattern, sy_type type)
{
    return type == SY_TYPE_F16 ? syi_f16_to_f32((uint16_t)pattern) : syi_bf16_to_f32((uint16_t)pattern);
}

static float value_of_order(uint32_t order, sy_type type)
{
    return value_of_pattern(order ^ (order & 0x8000u ? 0x8000u : 0xffffu), type);
}

/* The lowest order with a positive weight, by bisection: weights are monotone. */
static uint32_t first_weight(const struct syi_scan *s, float m, float inv_t)
{
    uint32_t low = syi_order_minus_inf(s->row.type) + 1u, high = s->top;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if ((value_of_order(middle, s->row.type) - m) * inv_t < NO_WEIGHT)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* e of n <= SYI_WEIGH_AT_ONCE patterns. */
static void exp_patterns(const struct syi_weigher *w, float *e, const uint16_t *pattern, size_t n)
{
    uint32_t key[SYI_WEIGH_AT_ONCE];
    struct syi_key_stats stats = {0, 0};
    w->kernels->keys[syi_float_of(w->scan->row.type)](key, pattern, n, &stats);
    w->kernels->exp_keys(e, key, n, w->m, w->inv_t);
}

/* Weights of the patterns [first, end), none above m. */
static SYI_HAS_BUFFER void weigh_patterns(const struct syi_weigher *w, uint32_t first, uint32_t end)
{
    uint16_t pattern[SYI_WEIGH_AT_ONCE];
    float e[SYI_WEIGH_AT_ONCE];
    while (first < end) {
        const uint32_t n = end - first < SYI_WEIGH_AT_ONCE ? end - first : SYI_WEIGH_AT_ONCE;
        for (uint32_t i = 0; i < n; i++)
            pattern[i] = (uint16_t)(first + i);
        exp_patterns(w, e, pattern, n);
        for (uint32_t i = 0; i < n; i++)
            w->table.weight[first + i] = syi_weight(e[i]);
        first += n;
    }
}

static void set_weights(const struct syi_weigher *w, uint32_t first, uint32_t end, uint64_t weight)
{
    for (uint32_t i = first; i < end; i++)
        w->table.weight[i] = weight;
}

/* Zero for the patterns that are too low for a positive weight. */
static void clear_below(const struct syi_weigher *w, uint32_t low)
{
    if (low > NEGATIVE)
        set_weights(w, 0, low - NEGATIVE, 0);
    set_weights(w, low < NEGATIVE ? PATTERNS - low : NEGATIVE, PATTERNS, 0);
}

/* How many patterns next to zero, on either side, are less than 2^-26 of the largest logit. */
static uint32_t patterns_near_zero(const struct syi_weigher *w)
{
    const float value = w->m > 0.0f && w->scan->top >= NEGATIVE ? w->m * 0x1p-26f : 0.0f;
    return w->scan->row.type == SY_TYPE_F16 ? syi_f32_to_f16(value) : syi_f32_to_bf16(value);
}

/*
 * The weight of every pattern that can occur in the row. The many next to zero have equal weights, because
 * subtracting m gives the same value: |z| < m * 2^-25 is less than half of the spacing below m.
 */
static void fill_table(const struct syi_weigher *w)
{
    const struct syi_scan *s = w->scan;
    const uint32_t low = first_weight(s, w->m, w->inv_t), near = patterns_near_zero(w);
    clear_below(w, low);
    if (s->top >= NEGATIVE) {
        const uint32_t first = low > NEGATIVE ? low - NEGATIVE : 0, rest = near > first ? near : first;
        if (first < near) {
            weigh_patterns(w, first, first + 1);
            set_weights(w, first + 1, near, w->table.weight[first]);
        }
        weigh_patterns(w, rest, s->top - NEGATIVE + 1u);
    }
    if (low < NEGATIVE) {
        const uint32_t end = PATTERNS - low, top = s->top < NEGATIVE ? PATTERNS - 1u - s->top : NEGATIVE;
        const uint32_t first = NEGATIVE + near < end ? NEGATIVE + near : end;
        if (near > 0)
            set_weights(w, NEGATIVE, first, w->table.weight[0]);
        weigh_patterns(w, first > top ? first : top, end);
    }
}

/* Sum of the table's entries for n <= STRIP elements. */
static uint64_t look_up(const uint64_t *weight, const unsigned char *x, size_t n)
{
    uint64_t sum[8] = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t four[2]; /* one load for four patterns */
        memcpy(four, x + i * 2, sizeof four);
        sum[0] += weight[four[0] & 0xffffu];
        sum[1] += weight[four[0] >> 16 & 0xffffu];
        sum[2] += weight[four[0] >> 32 & 0xffffu];
        sum[3] += weight[four[0] >> 48];
        sum[4] += weight[four[1] & 0xffffu];
        sum[5] += weight[four[1] >> 16 & 0xffffu];
        sum[6] += weight[four[1] >> 32 & 0xffffu];
        sum[7] += weight[four[1] >> 48];
    }
    for (; i < n; i++) {
        uint16_t pattern;
        memcpy(&pattern, x + i * 2, sizeof pattern);
        sum[0] += weight[pattern];
    }
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

/* ---- Strips ---- */

size_t syi_weigh_strips(int64_t vocab)
{
    return (size_t)(vocab + STRIP - 1) / STRIP;
}

static size_t strip_length(const struct syi_scan *s, size_t strip)
{
    const size_t rest = (size_t)s->row.n - strip * STRIP;
    return rest < STRIP ? rest : STRIP;
}

void syi_weigh_fetch_next(const struct syi_weigher *w, size_t first, size_t n)
{
    const size_t bytes = syi_float_bytes(w->scan->row.type);
    for (size_t at = first * bytes; w->next != NULL && at < (first + n) * bytes; at += 64)
        __builtin_prefetch(w->next + at, 0, 2);
}

static SYI_HAS_BUFFER uint64_t weigh_strip(const struct syi_weigher *w, size_t strip)
{
    const struct syi_logits *row = &w->scan->row;
    const size_t first = strip * STRIP, n = strip_length(w->scan, strip);
    unsigned char buffer[SYI_PIECE * 4];
    syi_weigh_fetch_next(w, first, n);
    if (!syi_any_allowed(row, first, n))
        return 0;
    const unsigned char *x = syi_piece(row, first, n, buffer);
    return row->type == SY_TYPE_F32 ? w->kernels->weigh_f32(x, n, w->m, w->inv_t)
                                    : look_up(w->table.weight, x, n);
}

/* Weights of the additional tokens from a key on, by strip as well unless that is NULL. */
static SYI_HAS_BUFFER uint64_t add_extra(const struct syi_weigher *w, uint32_t least, uint64_t *strip)
{
    const struct syi_candidates *c = &w->extra;
    float e[SYI_WEIGH_AT_ONCE];
    uint64_t sum = 0;
    for (int64_t i = 0; i < c->n; i += SYI_WEIGH_AT_ONCE) {
        const int64_t n = c->n - i < SYI_WEIGH_AT_ONCE ? c->n - i : SYI_WEIGH_AT_ONCE;
        w->kernels->exp_keys(e, c->key + i, (size_t)n, w->m, w->inv_t);
        for (int64_t j = 0; j < n; j++) {
            const uint64_t weight = c->key[i + j] >= least ? syi_weight(e[j]) : 0;
            sum += weight;
            if (strip != NULL)
                strip[c->idx[i + j] / STRIP] += weight;
        }
    }
    return sum;
}

uint64_t syi_weigh_extra(const struct syi_weigher *w, uint32_t least)
{
    return add_extra(w, least, NULL);
}

uint64_t syi_weigh_extra_strips(const struct syi_weigher *w)
{
    return add_extra(w, 0, w->table.strip);
}

uint64_t syi_weigh(const struct syi_weigher *w)
{
    uint64_t sum = 0;
    if (w->scan->row.type != SY_TYPE_F32)
        fill_table(w);
    for (size_t i = 0; i < syi_weigh_strips(w->scan->row.n); i++) {
        w->table.strip[i] = weigh_strip(w, i);
        sum += w->table.strip[i];
    }
    return sum + syi_weigh_extra_strips(w);
}

/* ---- Weight with a known error ---- */

/* From a sum of e and its relative error. A weight is rounded by at most 1/2. The weights of additional tokens are exact. */
static struct syi_mass mass_about(const struct syi_weigher *w, double sum, double error)
{
    const double weight = sum * 0x1p40, off = weight * error + (double)w->scan->row.n;
    const uint64_t beside = add_extra(w, 0, NULL);
    return (struct syi_mass){beside + (weight > off ? (uint64_t)(weight - off) : 0),
                             beside + (uint64_t)(weight + off) + 1};
}

/* Sum of an exponential table's entries for n elements, in f32 for at most sixteen at a time. */
static double sum_entries(const float *e, const unsigned char *x, size_t n)
{
    enum { AT_ONCE = 128 };
    double total = 0;
    size_t i = 0;
    for (; i + AT_ONCE <= n; i += AT_ONCE) {
        float sum[8] = {0};
        for (size_t j = i; j < i + AT_ONCE; j += 8) {
            uint64_t four[2]; /* one load for four patterns */
            memcpy(four, x + j * 2, sizeof four);
            sum[0] += e[four[0] & 0xffffu];
            sum[1] += e[four[0] >> 16 & 0xffffu];
            sum[2] += e[four[0] >> 32 & 0xffffu];
            sum[3] += e[four[0] >> 48];
            sum[4] += e[four[1] & 0xffffu];
            sum[5] += e[four[1] >> 16 & 0xffffu];
            sum[6] += e[four[1] >> 32 & 0xffffu];
            sum[7] += e[four[1] >> 48];
        }
        total += (double)(((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7])));
    }
    for (; i < n; i++) {
        uint16_t pattern;
        memcpy(&pattern, x + i * 2, sizeof pattern);
        total += (double)e[pattern];
    }
    return total;
}

/* Fills the table for a temperature. Infinities, NaNs, overflow and underflow count as 0. */
static void fill_exp_table(const struct syi_weigher *w)
{
    struct syi_exp_table *t = w->exp_table;
    const struct syi_weigher from_zero = {.kernels = w->kernels, .scan = w->scan, .m = 0, .inv_t = w->inv_t};
    uint16_t pattern[SYI_WEIGH_AT_ONCE];
    for (uint32_t first = 0; first < PATTERNS; first += SYI_WEIGH_AT_ONCE) {
        const uint32_t last = first + SYI_WEIGH_AT_ONCE - 1;
        const float least = size_of(value_of_pattern(first, w->scan->row.type) * w->inv_t);
        const float most = size_of(value_of_pattern(last, w->scan->row.type) * w->inv_t);
        const bool in_range = least < 86.0f, near_zero = most < 0x1p-26f;
        for (uint32_t i = first; i <= last; i++) {
            pattern[i - first] = (uint16_t)i;
            t->e[i] = near_zero ? 1.0f : 0.0f;
        }
        if (in_range && !near_zero)
            exp_patterns(&from_zero, t->e + first, pattern, SYI_WEIGH_AT_ONCE);
    }
    t->inv_t = w->inv_t;
}

/* The sum of the table's entries for the row; with `scan` the block maxima are computed in the same pass. */
static SYI_HAS_BUFFER double sum_by_table(const struct syi_weigher *w, bool scan)
{
    const struct syi_scan *s = w->scan;
    unsigned char buffer[SYI_PIECE * 4]; /* pieces of a few KiB fit the first cache in any case */
    double sum = 0;
    if (w->exp_table->inv_t != w->inv_t)
        fill_exp_table(w);
    for (size_t i = 0; i < syi_weigh_strips(s->row.n); i++) {
        const size_t first = i * STRIP, n = strip_length(s, i);
        const bool any = syi_any_allowed(&s->row, first, n);
        const unsigned char *x = any ? syi_piece(&s->row, first, n, buffer) : NULL;
        if (scan)
            syi_scan_piece(w->kernels, s, first, x, n);
        else
            syi_weigh_fetch_next(w, first, n);
        if (any)
            sum += sum_entries(w->exp_table->e, x, n);
    }
    return sum;
}

/* A maximum for which neither exp(m/T) overflows nor any positive weight underflows. */
static bool suits_table(const struct syi_weigher *w)
{
    return size_of(w->m * w->inv_t) < 50.0f;
}

/*
 * exp(z/T) / exp(m/T) stand for exp((z-m)/T). In units of 2^-24, each exponential is off by 2; its argument by its
 * own size, twice where a difference is scaled, and |z-m|/T < 29 where there is weight; sums of sixteen by 15.
 * Together less than 128 + 2 |m|/T.
 */
static struct syi_mass mass_by_table(const struct syi_weigher *w, double sum)
{
    const uint32_t key = syi_value_key(w->m);
    float largest;
    w->kernels->exp_keys(&largest, &key, 1, 0, w->inv_t);
    return mass_about(w, sum / (double)largest, (128 + 2 * (double)size_of(w->m * w->inv_t)) * 0x1p-24);
}

bool syi_weigh_by_table(const struct syi_weigher *w)
{
    /* A table pays off for several times as many logits; that of f16 has more patterns. */
    const sy_type type = w->scan->row.type;
    return type != SY_TYPE_F32 && w->scan->row.n * w->n_rows >= (type == SY_TYPE_BF16 ? 16384 : 131072);
}

double syi_weigh_scan(const struct syi_weigher *w)
{
    return sum_by_table(w, true);
}

struct syi_mass syi_weigh_scanned(const struct syi_weigher *w, double sum)
{
    return suits_table(w) ? mass_by_table(w, sum) : syi_weigh_about(w);
}

static SYI_HAS_BUFFER struct syi_mass weigh_by_sum(const struct syi_weigher *w)
{
    const struct syi_scan *s = w->scan;
    syi_sum_exp_fn *const sum_exp = w->kernels->sum_exp[syi_float_of(s->row.type)];
    unsigned char buffer[SYI_PIECE * 4];
    double sum = 0;
    for (size_t i = 0; i < syi_weigh_strips(s->row.n); i++) {
        const size_t first = i * STRIP, n = strip_length(s, i);
        syi_weigh_fetch_next(w, first, n);
        if (syi_any_allowed(&s->row, first, n))
            sum += sum_exp(syi_piece(&s->row, first, n, buffer), n, w->m, w->inv_t);
    }
    return mass_about(w, sum, SYI_SUM_EXP_ERROR);
}

/* Whether an additional token is so large that all weights of the row are 0, as with a bias that forces a token. */
static bool weighs_nothing(const struct syi_weigher *w)
{
    const sy_type type = w->scan->row.type;
    const uint32_t most = syi_scan_key(w->scan->top, type) | (type == SY_TYPE_F32 ? 0xffffu : 0);
    return (syi_key_value(most) - w->m) * w->inv_t < NO_WEIGHT;
}

struct syi_mass syi_weigh_about(const struct syi_weigher *w)
{
    if (weighs_nothing(w)) {
        const uint64_t beside = add_extra(w, 0, NULL);
        return (struct syi_mass){beside, beside};
    }
    return syi_weigh_by_table(w) && suits_table(w) ? mass_by_table(w, sum_by_table(w, false))
                                                   : weigh_by_sum(w);
}

/* ---- Draws ---- */

/* The tokens of a row that can be drawn: their weights are in the table, or a mark where only the first few tokens of a
   value are kept. */
struct kept {
    uint64_t weight; /* of all that is kept */
    uint64_t ties;   /* tokens of the marked value that are kept ... */
    uint64_t each;   /* ... and the weight of one */
    uint64_t count;  /* of all tokens that are kept */
};

/* The weight of a strip, with those of its ties that are kept; takes them off k->ties. */
static uint64_t take_strip(uint64_t sum, struct kept *k)
{
    const uint64_t ties = sum >> MARK_SHIFT, kept = ties < k->ties ? ties : k->ties;
    k->ties -= kept;
    return (sum & (MARK - 1)) + kept * k->each;
}

/* The first token of a strip at which the weight of the kept ones exceeds the target; `seen` is that before it. */
static SYI_HAS_BUFFER int64_t locate_in(const struct syi_weigher *w, struct kept k, size_t strip,
                                        uint64_t seen, uint64_t target)
{
    enum { SOME = 32 }; /* weighed together before they are weighed one by one */
    unsigned char buffer[SYI_PIECE * 4];
    const size_t first = strip * STRIP, n = strip_length(w->scan, strip);
    const unsigned char *x = syi_piece(&w->scan->row, first, n, buffer);
    size_t i = 0;
    for (; i + SOME <= n; i += SOME) {
        struct kept after = k;
        const uint64_t weight = take_strip(look_up(w->table.weight, x + i * 2, SOME), &after);
        if (seen + weight > target)
            break;
        seen += weight;
        k = after;
    }
    for (;; i++) {
        seen += take_strip(look_up(w->table.weight, x + i * 2, 1), &k);
        if (seen > target)
            return (int64_t)(first + i);
    }
}

/* The first token at which the weight of the kept ones, summed in index order, exceeds the target, which is
   less than all of it. */
static int64_t locate(const struct syi_weigher *w, struct kept k, uint64_t target)
{
    uint64_t seen = 0;
    for (size_t strip = 0;; strip++) {
        struct kept after = k;
        const uint64_t weight = take_strip(weigh_strip(w, strip), &after);
        if (seen + weight > target)
            return locate_in(w, k, strip, seen, target);
        seen += weight;
        k = after;
    }
}

/* Counts the patterns of n elements in two interleaved halves, so that equal neighbours do not wait for each
   other. */
static void count_piece(const unsigned char *x, size_t n, uint32_t *count)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        uint64_t four;
        memcpy(&four, x + i * 2, sizeof four);
        count[four & 0xffffu]++;
        count[PATTERNS + (four >> 16 & 0xffffu)]++;
        count[four >> 32 & 0xffffu]++;
        count[PATTERNS + (four >> 48)]++;
    }
    for (; i < n; i++) {
        uint16_t pattern;
        memcpy(&pattern, x + i * 2, sizeof pattern);
        count[pattern]++;
    }
}

/* How often each pattern occurs. */
static SYI_HAS_BUFFER void count_patterns(const struct syi_scan *s, uint32_t *count)
{
    const size_t positives = s->top >= NEGATIVE ? s->top - NEGATIVE + 1u : 0;
    const size_t n = (size_t)s->row.n, length = syi_piece_length(&s->row);
    unsigned char buffer[SYI_PIECE * 4];
    for (size_t half = 0; half < 2; half++) {
        memset(count + half * PATTERNS, 0, positives * sizeof *count);
        memset(count + half * PATTERNS + NEGATIVE, 0, NEGATIVE * sizeof *count);
    }
    for (size_t at = 0; at < n; at += length) {
        const size_t piece = n - at < length ? n - at : length;
        if (syi_any_allowed(&s->row, at, piece))
            count_piece(syi_piece(&s->row, at, piece, buffer), piece, count);
    }
}

/* Whether any of n patterns occurs. */
static bool any_occurs(const uint32_t *count, int32_t n)
{
    uint32_t any = 0;
    for (int32_t i = 0; i < n; i++)
        any |= count[i] | count[PATTERNS + i];
    return any != 0;
}

/* Adds those of `length` patterns that occur to the list, upwards from `first` or downwards to it, and their
   two counts together. */
static size_t list_occurring(const struct syi_weigher *w, size_t n, int32_t first, int32_t length, bool down)
{
    enum { GROUP = 32 }; /* most patterns do not occur: skipped together */
    uint32_t *count = w->table.count;
    for (int32_t done = 0; done < length; done += GROUP) {
        const int32_t size = length - done < GROUP ? length - done : GROUP;
        const int32_t low = down ? first + length - done - size : first + done;
        if (size == GROUP && !any_occurs(count + low, GROUP))
            continue;
        for (int32_t i = 0; i < size; i++) {
            const int32_t p = down ? low + size - 1 - i : low + i;
            count[p] += count[PATTERNS + p];
            w->table.pattern[n] = (uint16_t)p; /* no branch, which would be mispredicted */
            n += count[p] != 0;
        }
    }
    return n;
}

/* The patterns that occur and may weigh something, largest value first; -0 counts as +0. */
static size_t list_patterns(const struct syi_weigher *w, uint32_t low)
{
    const uint32_t top = w->scan->top;
    uint32_t *count = w->table.count;
    size_t n = 0;
    if (top >= NEGATIVE && low <= NEGATIVE) {
        count[0] += count[NEGATIVE];
        count[PATTERNS] += count[PATTERNS + NEGATIVE];
        count[NEGATIVE] = count[PATTERNS + NEGATIVE] = 0;
    }
    if (top >= NEGATIVE) {
        const int32_t first = low > NEGATIVE ? (int32_t)low - NEGATIVE : 0;
        n = list_occurring(w, n, first, (int32_t)top - NEGATIVE + 1 - first, true);
    }
    if (low < NEGATIVE) {
        const int32_t first = PATTERNS - 1 - (int32_t)(top < NEGATIVE ? top : NEGATIVE - 1u);
        n = list_occurring(w, n, first, PATTERNS - (int32_t)low - first, false);
    }
    return n;
}

static uint64_t weigh_list(const struct syi_weigher *w, size_t n)
{
    const struct syi_pattern_table *t = &w->table;
    uint64_t total = 0;
    for (size_t i = 0; i < n; i += SYI_WEIGH_AT_ONCE)
        exp_patterns(w, t->e + i, t->pattern + i, n - i < SYI_WEIGH_AT_ONCE ? n - i : SYI_WEIGH_AT_ONCE);
    for (size_t i = 0; i < n; i++)
        total += syi_weight(t->e[i]) * t->count[t->pattern[i]];
    return total;
}

/* Writes the weights of the tokens that top-p and min-p keep to the table. */
static struct kept keep_patterns(const struct syi_weigher *w, size_t n, const struct syi_draw *d)
{
    const struct syi_pattern_table *t = &w->table;
    const uint64_t total = weigh_list(w, n);
    const uint64_t enough = d->top_p < 1.0f ? syi_mass_target(d->top_p, total) : total;
    struct kept k = {.weight = 0};
    for (size_t i = 0; i < n; i++) {
        const uint64_t each = syi_weight(t->e[i]), count = t->count[t->pattern[i]];
        const uint64_t rest = k.weight < enough ? enough - k.weight : 0;
        uint64_t entry = 0;
        if (rest > 0 && t->e[i] >= d->min_p && each > 0) {
            const uint64_t need = (rest + each - 1) / each;
            entry = each;
            if (need < count && !d->all_ties) {
                entry = MARK;
                k.ties = need;
                k.each = each;
            }
            const uint64_t kept = need < count && !d->all_ties ? need : count;
            k.weight += kept * each;
            k.count += kept;
        }
        t->weight[t->pattern[i]] = entry;
    }
    if (w->scan->top >= NEGATIVE)
        t->weight[NEGATIVE] = t->weight[0]; /* -0 weighs what +0 weighs */
    return k;
}

struct syi_drawn syi_weigh_draw(const struct syi_weigher *w, const struct syi_draw *d)
{
    const uint32_t low = first_weight(w->scan, w->m, w->inv_t);
    count_patterns(w->scan, w->table.count);
    const size_t n = list_patterns(w, low);
    clear_below(w, low);
    const struct kept kept = keep_patterns(w, n, d);
    return (struct syi_drawn){locate(w, kept, syi_share_of(d->uniform, kept.weight)), kept.weight,
                              (int64_t)kept.count};
}
