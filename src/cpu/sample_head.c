/*
 * Rows that do not need the keys of all their tokens: top-k, greedy and most top-p rows need only their largest logits
 * (the head), other draws only weights. By the parameters of the row:
 *
 *     greedy                      find_first: the first token
 *     top-k                       collect_head: at least k candidates
 *     top-p alone                 guess_head: candidates, as long as the nucleus is small; else as below
 *     min-p alone                 decide_min_p: candidates, the token, or the full row
 *     a CDF draw without a list   syi_row_draw: the token, from sums of weights
 *     top-p, other draws          syi_nucleus_collect: candidates
 *     +inf or NaN as the maximum, and all else     the full row
 */
#include "cpu/sample.h"
#include "cpu/load.h"

bool syi_row_wants_candidates(const struct syi_row_state *r)
{
    const struct syi_sample_plan *p = r->plan;
    const bool final = p->logprob_mode == SY_LOGPROB_FINAL && !r->cold;
    return !r->greedy || final || p->kept.data != NULL || p->masked.data != NULL ||
           p->list_token.data != NULL || p->list_prob.data != NULL;
}

bool syi_may_scan(const struct syi_sample_plan *p)
{
    return !p->args.probs_in;
}

static bool lists_candidates(const struct syi_sample_plan *p)
{
    return p->list_token.data != NULL || p->list_prob.data != NULL;
}

/* All tokens are candidates. */
static bool is_whole(const struct syi_row_state *r)
{
    return r->k == 0 && !r->one && r->top_p >= 1.0f && r->min_p == 0.0f;
}

/* Computes the block maxima of the row if needed; whether they determine the head. */
static bool scan_row(struct syi_row_state *r)
{
    if (!r->scanned)
        syi_scan_part(r->kernels, &r->scan, 0, syi_scan_blocks(r->plan->vocab));
    r->scanned = true;
    if (r->logits.n_out > 0)
        syi_scan_leave_out(r->kernels, &r->scan);
    return syi_scan_top(&r->scan);
}

static void set_max(struct syi_row_state *r, uint32_t key)
{
    r->stats.max = key;
    r->max = syi_key_value(key);
}

/* The first token of the order into c, with the row's maximum. */
static void find_first(struct syi_row_state *r, struct syi_candidates *c)
{
    const struct syi_candidates *extra = &r->extra;
    syi_scan_first(r->kernels, &r->scan, c);
    for (int64_t i = 0; i < extra->n; i++)
        if (extra->key[i] > c->key[0] || (extra->key[i] == c->key[0] && extra->idx[i] < c->idx[0])) {
            c->key[0] = extra->key[i];
            c->idx[0] = extra->idx[i];
        }
    set_max(r, c->key[0]);
}

/* Those of syi_scan_collect, and the overrides. */
static bool collect(const struct syi_row_state *r, uint16_t threshold, const struct syi_limit *limit,
                    struct syi_candidates *c)
{
    if (!syi_scan_collect(r->kernels, &r->scan, threshold, limit, c))
        return false;
    /* Overrides below the threshold are not added: other tokens of that value have not been collected. An override may be
       between the threshold and the next lower 16-bit value. */
    const sy_type type = r->logits.type;
    const uint32_t below =
        syi_scan_key((uint16_t)(threshold - 1u), type) | (type == SY_TYPE_F32 ? 0xffffu : 0);
    if (r->logits.n_out > 0)
        syi_row_replace(r, c, below + 1);
    return true;
}

/* The tokens that reach a threshold into r->c, but for some after the first `most` of the order, with the row's maximum. With
   top-p the few candidates are cut later, by syi_row_cut. */
static bool collect_from(struct syi_row_state *r, uint16_t threshold, size_t most)
{
    const size_t n = r->plan->args.ties == SY_TIES_ALL ? 0 : most;
    const struct syi_limit limit = {.n = n, .exact = n > 0 && r->top_p >= 1.0f, .hist = r->scratch->hist};
    r->c = (struct syi_candidates){r->scratch->cand_key, r->scratch->cand_idx, 0};
    if (!collect(r, threshold, &limit, &r->c))
        return false;
    uint32_t max = 0;
    for (int64_t i = 0; i < r->c.n; i++)
        max = r->c.key[i] > max ? r->c.key[i] : max;
    set_max(r, max);
    return true;
}

/* An order that at least k tokens reach; at least `least`. */
static uint16_t threshold_of(const struct syi_row_state *r, size_t k, uint16_t least)
{
    const bool by_blocks = k <= syi_scan_blocks(r->plan->vocab) * 7 / 8;
    const uint16_t threshold =
        by_blocks ? syi_scan_threshold(r->kernels, &r->scan, k)
                  : syi_scan_threshold_each(r->kernels, &r->scan, k, (uint16_t *)(void *)r->scratch->key);
    return threshold > least ? threshold : least;
}

/* The first `k` of the order and perhaps more. -inf counts only in lists. */
static bool collect_head(struct syi_row_state *r, size_t k)
{
    const uint16_t least = lists_candidates(r->plan) ? 0 : syi_order_minus_inf(r->logits.type) + 1;
    return collect_from(r, threshold_of(r, k, least), k);
}

/* About the order of the least logit that min-p keeps. */
static uint32_t guess_min_p(const struct syi_row_state *r)
{
    const uint64_t weight = syi_weight(r->min_p);
    const double value = weight > 0 ? (double)r->max + syi_log_weight(weight) / (double)r->inv_t : 0.0;
    const uint16_t bits =
        r->logits.type == SY_TYPE_F16 ? syi_f32_to_f16((float)value) : syi_f32_to_bf16((float)value);
    return bits ^ (bits & 0x8000u ? 0xffffu : 0x8000u);
}

/* What min-p keeps reaches this order, and perhaps more does: exp is monotone, so it is the lowest order with a logit
   that min-p keeps. It is searched for near a guess, and else in sixteenths. */
static uint16_t min_p_threshold(const struct syi_row_state *r)
{
    enum { PROBES = 16 };
    const sy_type type = r->logits.type;
    const uint32_t bottom = syi_order_minus_inf(type) + 1u, top = r->scan.top;
    uint32_t low = bottom, high = top, guess = guess_min_p(r);
    bool guessed = guess > bottom + PROBES && guess + PROBES < top;
    while (low < high) {
        uint32_t key[PROBES];
        float e[PROBES];
        size_t i = 0;
        const uint32_t first = guessed ? guess - PROBES / 2 : low, range = guessed ? PROBES : high - low;
        for (uint32_t j = 0; j < PROBES; j++)
            key[j] = syi_scan_key((uint16_t)(first + range * j / PROBES), type) |
                     (type == SY_TYPE_F32 ? 0xffffu : 0);
        r->kernels->exp_keys(e, key, PROBES, r->max, r->inv_t);
        while (i < PROBES && e[i] < r->min_p)
            i++;
        high = i < PROBES ? first + range * (uint32_t)i / PROBES : high;
        low = i > 0 ? first + range * (uint32_t)(i - 1) / PROBES + 1 : low;
        guessed = false;
    }
    return (uint16_t)(low == 0x8000u ? 0x7fffu : low);
}

/* A draw in index order. Of tokens to score it must be known whether they are candidates. */
static bool draws_by_cdf(const struct syi_row_state *r)
{
    const struct syi_sample_plan *p = r->plan;
    const bool scores = p->n_score > 0 && p->logprob_mode == SY_LOGPROB_FINAL && !is_whole(r);
    return !r->greedy && !r->staged && !scores && p->noise == SY_NOISE_CDF && p->masked.data == NULL &&
           !lists_candidates(p);
}

/* Candidates of min-p without other filters, or the token. */
static enum syi_head decide_min_p(struct syi_row_state *r)
{
    const uint16_t threshold = min_p_threshold(r);
    if (!syi_scan_dense(r->kernels, &r->scan, threshold) && collect_from(r, threshold, 0)) {
        if (!draws_by_cdf(r))
            return SYI_HEAD_CANDIDATES;
        syi_row_draw_min_p(r);
        return SYI_HEAD_TOKEN;
    }
    if (!draws_by_cdf(r) || !syi_counts_whole(&r->logits))
        return SYI_HEAD_FULL_ROW;
    syi_row_walk(r, threshold);
    return SYI_HEAD_TOKEN;
}

/* A guess at the weight of the tokens below a threshold, from one in 256. */
static uint64_t guess_below(const struct syi_row_state *r, uint16_t threshold)
{
    enum { EVERY = 256, AT_ONCE = 256 };
    const struct syi_logits *row = &r->logits;
    const int64_t bytes = (int64_t)syi_float_bytes(row->type);
    uint32_t key[AT_ONCE];
    float e[AT_ONCE];
    uint64_t sum = 0;
    for (int64_t i = 0; i < row->n;) {
        size_t n = 0;
        for (; n < AT_ONCE && i < row->n; i += EVERY) {
            const uint16_t order = syi_scan_order(row, i);
            if (order > syi_order_minus_inf(row->type) && order < threshold) /* neither -inf nor NaN */
                key[n++] = syi_value_key(syi_load_float(row->x + i * bytes, row->type));
        }
        r->kernels->exp_keys(e, key, n, r->max, r->inv_t);
        sum += syi_weight_sum(e, (int64_t)n);
    }
    return sum * EVERY;
}

/* The row's maximum. That of an f32 row is known by its upper half until the blocks that have it are read. */
static void find_max(struct syi_row_state *r)
{
    const uint32_t top = syi_scan_key(r->scan.top, r->logits.type);
    uint32_t key;
    int32_t idx;
    struct syi_candidates first = {&key, &idx, 0};
    if (r->logits.type == SY_TYPE_F32)
        find_first(r, &first);
    else
        set_max(r, r->extra_stats.max > top ? r->extra_stats.max : top);
}

static uint64_t weigh_candidates(const struct syi_row_state *r)
{
    syi_row_exp(r, &r->c, r->scratch->e);
    return syi_weight_sum(r->scratch->e, r->c.n);
}

/* A head that holds the nucleus, as long as it need not be large. */
static bool find_head(struct syi_row_state *r)
{
    enum { FIRST = 64, LARGE = 1024 };
    const size_t n_blocks = syi_scan_blocks(r->plan->vocab);
    size_t k = n_blocks < FIRST ? n_blocks : FIRST;
    uint16_t threshold = syi_scan_threshold(r->kernels, &r->scan, k);
    if (syi_scan_crowded(r->kernels, &r->scan, threshold, FIRST) || !collect_from(r, threshold, 0))
        return false;
    uint64_t have = weigh_candidates(r);
    const struct syi_weigher weigher = syi_row_weigher(r);
    const uint64_t guess = r->mass.high == 0 ? have + guess_below(r, threshold) : r->mass.high;
    uint64_t enough = syi_mass_target(r->top_p, guess);
    for (size_t collected = k;;) {
        while (have <
               enough) { /* the maxima determine a threshold that is low enough before tokens are collected */
            k *= 2;
            if (k > n_blocks || k > LARGE)
                return false;
            threshold = syi_scan_threshold(r->kernels, &r->scan, k);
            have = syi_scan_weigh_maxima(r->kernels, &r->scan, threshold, r->max, r->inv_t) +
                   syi_weigh_extra(&weigher, syi_scan_key(threshold, r->logits.type));
        }
        if (r->mass.high != 0)
            return k == collected || collect_from(r, threshold, 0);
        if (r->plan->list_prob.data != NULL) /* summed only when the head is likely to be enough */
            syi_row_weigh(r);
        else
            syi_row_weigh_about(r);
        enough = syi_mass_target(r->top_p, r->mass.high);
    }
}

/* Top-p without top-k: block maxima and, where it is cheap and not likely to be in vain, the mass in one pass. */
static bool guess_head(struct syi_row_state *r)
{
    const struct syi_weigher before = syi_row_weigher(r);
    const bool weigh =
        !r->scanned && !r->exp_table->flat && r->plan->list_prob.data == NULL && syi_weigh_by_table(&before);
    const double sum = weigh ? syi_weigh_scan(&before) : 0;
    r->scanned = r->scanned || weigh;
    if (!scan_row(r))
        return false;
    find_max(r);
    const struct syi_weigher weigher = syi_row_weigher(r);
    if (weigh)
        r->mass = syi_weigh_scanned(&weigher, sum);
    const bool found = find_head(r);
    r->exp_table->flat = !found;
    return found;
}

/* Whether a draw can do without candidates: always but with min-p, and then from 16-bit rows, unless a token beside
   them has a value they cannot have, or tokens that weigh nothing are to be counted. */
static bool may_draw(const struct syi_row_state *r)
{
    const struct syi_sample_plan *p = r->plan;
    const bool counts = r->min_p > 0x1p-38f || r->top_p < 1.0f;
    return draws_by_cdf(r) && (r->min_p == 0.0f || (p->logits.type != SY_TYPE_F32 && syi_row_weighs_well(r) &&
                                                    r->min_p < 1.0f && r->extra.n == 0 && counts));
}

bool syi_row_max(struct syi_row_state *r)
{
    r->scan = (struct syi_scan){
        .row = r->logits, .max = r->scratch->block_max, .group = r->scratch->group_max, .low = NULL};
    if (!scan_row(r))
        return false;
    find_max(r);
    return true;
}

void syi_row_first(const struct syi_row_state *r, size_t n, struct syi_candidates *c)
{
    const struct syi_limit limit = {.n = n, .exact = true, .hist = r->scratch->hist};
    collect(r, threshold_of(r, n, syi_order_minus_inf(r->logits.type) + 1), &limit, c);
}

/* Fills the data for outputs of a row whose candidates are all its tokens. */
static void finish_whole(struct syi_row_state *r)
{
    const struct syi_sample_plan *p = r->plan;
    if (p->kept.data != NULL)
        r->final_count = syi_scan_count(&r->scan) + r->extra.n;
    if (p->logprob_mode == SY_LOGPROB_FINAL && !r->cold && r->final_weight == 0) {
        const struct syi_weigher weigher = syi_row_weigher(r);
        r->final_weight = syi_weigh(&weigher);
    }
}

/* Candidates, or the token itself, of a row with block maxima. */
static enum syi_head decide(struct syi_row_state *r)
{
    const size_t k = r->one ? 1 : (size_t)r->k;
    const bool by_min_p = k == 0 && r->top_p >= 1.0f && r->min_p > 0.0f;
    const bool weigh = r->plan->logprob_mode == SY_LOGPROB_FINAL && !r->cold;
    const bool whole = is_whole(r) && r->plan->masked.data == NULL && !lists_candidates(r->plan) &&
                       (!weigh || syi_row_weighs_well(r));
    if (!syi_row_wants_candidates(r) || (whole && r->greedy) || (by_min_p && r->min_p >= 1.0f)) {
        r->c = (struct syi_candidates){r->scratch->cand_key, r->scratch->cand_idx, 0};
        find_first(r, &r->c);
        if (is_whole(r))
            finish_whole(r);
        return SYI_HEAD_CANDIDATES;
    }
    if (k > 0)
        return collect_head(r, k) ? SYI_HEAD_CANDIDATES : SYI_HEAD_FULL_ROW;
    find_max(r);
    if (by_min_p) {
        const enum syi_head head = decide_min_p(r);
        if (head != SYI_HEAD_FULL_ROW)
            return head;
    }
    if (!may_draw(r) && r->top_p < 1.0f) {
        const struct syi_weigher weigher = syi_row_weigher(r);
        r->mass = syi_nucleus_collect(&weigher, r->top_p, &r->c);
        return SYI_HEAD_CANDIDATES;
    }
    if (!may_draw(r))
        return SYI_HEAD_FULL_ROW;
    syi_row_draw(r);
    if (is_whole(r))
        finish_whole(r);
    return SYI_HEAD_TOKEN;
}

/*
 * Tries to avoid the keys of the whole row: with the head for top-k, greedy, min-p and most top-p rows, with weights for
 * other CDF draws. Not on rows with an infinity or NaN on top.
 */
enum syi_head syi_row_head(struct syi_row_state *r)
{
    const struct syi_sample_plan *p = r->plan;
    const bool by_top_p = r->k == 0 && !r->one && r->top_p < 1.0f && syi_row_wants_candidates(r);
    const bool low = p->row_flags.data != NULL || (p->kept.data != NULL && is_whole(r));
    const bool all_wanted = is_whole(r) && !r->greedy && !may_draw(r);
    const bool all_weighed = p->list_prob.data != NULL && r->k == 0 && !r->one && !by_top_p;
    if (!syi_may_scan(p) || all_wanted || all_weighed || (r->extra_stats.flags & SY_ROW_INF))
        return SYI_HEAD_FULL_ROW;
    r->scan = (struct syi_scan){.row = r->logits,
                                .max = r->scratch->block_max,
                                .group = r->scratch->group_max,
                                .low = low ? r->scratch->low : NULL};
    const bool guessed = by_top_p && guess_head(r);
    if (!guessed && !scan_row(r))
        return SYI_HEAD_FULL_ROW;
    const enum syi_head head = guessed ? SYI_HEAD_CANDIDATES : decide(r);
    if (p->row_flags.data != NULL)
        r->stats.flags = r->extra_stats.flags | (syi_scan_has_nan(&r->scan) ? SY_ROW_NAN : 0);
    return head;
}
