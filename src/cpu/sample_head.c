/*
 * Rows that can do without the keys of all their tokens: top-k, greedy and most top-p rows are decided on their
 * head, other draws on weights alone.
 */
#include "cpu/sample.h"
#include "cpu/backend.h"

bool syi_row_wants_candidates(const struct syi_row *r)
{
    const struct syi_sample_plan *p = r->plan;
    const bool final = p->logprob_mode == SY_LOGPROB_FINAL && !r->cold;
    return !r->greedy || final || p->kept != NULL || p->masked.data != NULL || p->list_token.data != NULL ||
           p->list_prob.data != NULL;
}

bool syi_may_scan(const struct syi_sample_plan *p)
{
    return !p->probs_in && p->row_flags == NULL && p->logprob_mode != SY_LOGPROB_RAW;
}

/* Whether the token is all that is asked for. */
static bool token_only(const struct syi_sample_plan *p)
{
    return p->kept == NULL && p->row_flags == NULL && p->logprob == NULL && p->masked.data == NULL &&
           p->list_token.data == NULL && p->list_prob.data == NULL;
}

/* The block maxima of the row, if they are not there, and whether the head can be told from them. */
static bool scan_row(struct syi_row *r)
{
    if (!r->scanned)
        syi_scan_part(r->kernels, &r->scan, 0, syi_scan_blocks(r->plan->vocab));
    r->scanned = true;
    if (r->logits.n_out > 0)
        syi_scan_leave_out(r->kernels, &r->scan);
    return syi_scan_top(&r->scan);
}

/* The tokens that reach a floor into r->c, with the row's maximum. */
static bool collect_from(struct syi_row *r, uint16_t floor)
{
    r->c = (struct syi_candidates){r->scratch->kept_key, r->scratch->kept_idx, 0};
    if (!syi_scan_collect(r->kernels, &r->scan, floor, &r->c))
        return false;
    /* Overrides below the floor do not join: others that are no lower have not been collected. */
    if (r->logits.n_out > 0)
        syi_row_replace(r, &r->c, syi_scan_key(floor, r->logits.type));
    for (int64_t i = 0; i < r->c.n; i++)
        r->stats.max = r->c.key[i] > r->stats.max ? r->c.key[i] : r->stats.max;
    r->max = syi_key_value(r->stats.max);
    return true;
}

/* The first `k` of the order and perhaps more. */
static bool collect_head(struct syi_row *r, size_t k)
{
    return k <= syi_scan_blocks(r->plan->vocab) && collect_from(r, syi_scan_floor(r->kernels, &r->scan, k));
}

/* A guess at the weight of the tokens below a floor, from one in 256. */
static uint64_t guess_below(const struct syi_row *r, uint16_t floor)
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
            if (order > syi_order_minus_inf(row->type) && order < floor) /* neither -inf nor NaN */
                key[n++] = syi_value_key(syi_load_float(row->x + i * bytes, row->type));
        }
        r->kernels->exp_keys(e, key, n, r->max, r->inv_t);
        sum += syi_weight_sum(e, (int64_t)n);
    }
    return sum * EVERY;
}

/* The row's maximum. That of an f32 row is known by its upper half until the blocks that have it are read. */
static bool find_max(struct syi_row *r)
{
    if (r->logits.type == SYI_F32)
        return collect_head(r, 1);
    r->stats.max = syi_scan_key(r->scan.top, r->logits.type);
    if (r->extra_stats.max > r->stats.max)
        r->stats.max = r->extra_stats.max;
    r->max = syi_key_value(r->stats.max);
    return true;
}

static uint64_t weigh_candidates(const struct syi_row *r)
{
    syi_row_exp(r, &r->c, r->scratch->e);
    return syi_weight_sum(r->scratch->e, r->c.n);
}

/* A head that holds the nucleus, as long as it need not be large. */
static bool find_head(struct syi_row *r)
{
    enum { FIRST = 64, LARGE = 1024 };
    const size_t n_blocks = syi_scan_blocks(r->plan->vocab);
    size_t k = n_blocks < FIRST ? n_blocks : FIRST;
    uint16_t floor = syi_scan_floor(r->kernels, &r->scan, k);
    if (!collect_from(r, floor))
        return false;
    uint64_t have = weigh_candidates(r);
    if (r->mass.high == 0) {
        if (have < syi_mass_target(r->top_p, have + guess_below(r, floor)) / 4)
            return false;
        if (r->plan->list_prob.data != NULL)
            syi_row_weigh(r);
        else
            syi_row_weigh_about(r);
    }
    const uint64_t enough = syi_mass_target(r->top_p, r->mass.high);
    if (have >= enough)
        return true;
    const struct syi_weigher weigher = syi_row_weigher(r);
    while (have < enough) { /* the maxima tell which floor is low enough before a token is collected */
        k *= 2;
        if (k > n_blocks || k > LARGE)
            return false;
        floor = syi_scan_floor(r->kernels, &r->scan, k);
        have = syi_scan_weigh_maxima(r->kernels, &r->scan, floor, r->max, r->inv_t) +
               syi_weigh_extra(&weigher, syi_scan_key(floor, r->logits.type));
    }
    return collect_from(r, floor);
}

/* Top-p without top-k: block maxima and, where it is cheap and not likely to be in vain, the mass in one pass. */
static bool guess_head(struct syi_row *r)
{
    const struct syi_weigher before = syi_row_weigher(r);
    const bool weigh =
        !r->scanned && !r->exp_table->flat && r->plan->list_prob.data == NULL && syi_weigh_by_table(&before);
    const double sum = weigh ? syi_weigh_scan(&before) : 0;
    r->scanned = r->scanned || weigh;
    if (!scan_row(r) || !find_max(r))
        return false;
    const struct syi_weigher weigher = syi_row_weigher(r);
    if (weigh)
        r->mass = syi_weigh_scanned(&weigher, sum);
    const bool found = find_head(r);
    r->exp_table->flat = !found;
    return found;
}

/* Whether a draw can do without candidates: from any whole row, and from 16-bit rows cut by p or min-p, unless a
   token beside them has a value they cannot have. */
static bool may_draw(const struct syi_row *r, size_t k)
{
    const struct syi_sample_plan *p = r->plan;
    const bool whole = r->top_p >= 1.0f && r->min_p == 0.0f;
    return k == 0 && p->noise == SY_NOISE_CDF && token_only(p) &&
           (whole || (p->type != SYI_F32 && r->min_p < 1.0f && r->extra.n == 0));
}

/*
 * Tries to do without the keys of the whole row: with the head alone for top-k, greedy and most top-p rows,
 * by weights alone for other CDF draws. Not on rows with an infinity or NaN on top.
 */
enum syi_head syi_row_head(struct syi_row *r)
{
    const struct syi_sample_plan *p = r->plan;
    const size_t k = r->one || !syi_row_wants_candidates(r) ? 1 : (size_t)r->k;
    const bool guess = k == 0 && r->top_p < 1.0f;
    const bool draws = may_draw(r, k);
    if (!syi_may_scan(p) || (k == 0 && !guess && !draws) || (r->extra_stats.flags & SY_ROW_INF))
        return SYI_HEAD_NONE;
    r->scan =
        (struct syi_scan){.row = r->logits, .max = r->scratch->block_max, .group = r->scratch->group_max};
    if (guess && guess_head(r))
        return SYI_HEAD_READ;
    if (!scan_row(r))
        return SYI_HEAD_NONE;
    if (k > 0)
        return collect_head(r, k) ? SYI_HEAD_READ : SYI_HEAD_NONE;
    if (!draws || !find_max(r))
        return SYI_HEAD_NONE;
    r->token = syi_row_draw(r);
    return SYI_HEAD_DRAWN;
}
