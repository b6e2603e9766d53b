/*
 * The parameters of a row, and the cuts of top-k, top-p and min-p.
 */
#include "cpu/sample.h"
#include "cpu/load.h"

void syi_row_read_temperature(struct syi_row_state *r)
{
    const float coldest = 1e-5f, hottest = 0x1p100f;
    float t = 1.0f;
    if (r->plan->temperature.rows.data != NULL)
        t = syi_column_float(&r->plan->temperature, r->b);
    if (t != t)
        t = 1.0f;
    r->cold = t < coldest;
    r->given = syi_present(&r->plan->given_token) ? syi_column_int(&r->plan->given_token, r->b) : -1;
    r->greedy = r->cold || r->plan->noise == SY_NOISE_NONE || r->given >= 0;
    t = t < coldest ? coldest : t > hottest ? hottest : t;
    r->inv_t = 1.0f / t;
}

static bool top_k_on(const struct syi_sample_plan *p, int64_t k)
{
    if (p->args.k_limit == 0)
        return k >= 1 && k < p->vocab;
    return k >= 1 && k <= p->vocab && k <= p->args.k_limit;
}

void syi_row_read_filters(struct syi_row_state *r)
{
    const struct syi_sample_plan *p = r->plan;
    const int64_t k = p->top_k.rows.data != NULL ? syi_column_int(&p->top_k, r->b) : 0;
    const float top_p = p->top_p.rows.data != NULL ? syi_column_float(&p->top_p, r->b) : 1.0f;
    const float min_p = p->min_p.rows.data != NULL ? syi_column_float(&p->min_p, r->b) : 0.0f;
    r->k = top_k_on(p, k) ? k : 0;
    r->top_p = top_p > 0.0f && top_p < 1.0f ? top_p : 1.0f;
    r->min_p = min_p > 0.0f ? min_p : 0.0f;
    r->one = top_p <= 0.0f;
}

void syi_row_exp(const struct syi_row_state *r, const struct syi_candidates *c, float *e)
{
    if (!r->plan->args.probs_in) {
        r->kernels->exp_keys(e, c->key, (size_t)c->n, r->max, r->inv_t);
        return;
    }
    for (int64_t i = 0; i < c->n; i++)
        e[i] = syi_positive(syi_key_value(c->key[i]));
}

uint64_t syi_weight_sum(const float *e, int64_t n)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += syi_weight(e[i]);
    return sum;
}

struct syi_weigher syi_row_weigher(const struct syi_row_state *r)
{
    const bool last = r->b + 1 >= r->end;
    return (struct syi_weigher){.kernels = r->kernels,
                                .scan = &r->scan,
                                .m = r->max,
                                .inv_t = r->inv_t,
                                .next = last ? NULL : syi_at(r->plan->logits, r->b + 1),
                                .n_rows = r->end - r->b,
                                .table = r->scratch->table,
                                .exp_table = r->exp_table,
                                .extra = r->extra,
                                .scratch = r->scratch};
}

void syi_row_weigh(struct syi_row_state *r)
{
    const struct syi_weigher weigher = syi_row_weigher(r);
    r->mass.low = r->mass.high = syi_weigh(&weigher);
}

void syi_row_weigh_about(struct syi_row_state *r)
{
    const struct syi_weigher weigher = syi_row_weigher(r);
    r->mass = syi_weigh_about(&weigher);
}

static void cut_at(struct syi_row_state *r, uint32_t key, int64_t ties)
{
    syi_keep(&r->c, key, ties, r->scratch->cand_key, r->scratch->cand_idx);
}

/* The first k of the order. */
static void keep_top_k(struct syi_row_state *r, int64_t k)
{
    struct syi_cut cut;
    if (k < r->c.n && syi_select(&r->c, NULL, (uint64_t)k, r->scratch->hist, &cut))
        cut_at(r, cut.key, r->plan->args.ties == SY_TIES_ALL ? INT64_MAX : (int64_t)cut.rest);
    r->ranked = true;
}

/* Where the shortest prefix with mass p of a total ends. */
struct prefix {
    bool all; /* the candidates do not reach it: nothing is cut */
    uint32_t key;
    int64_t ties; /* tokens equal to the key that are kept */
};

static struct prefix find_prefix(const struct syi_row_state *r, const float *e, uint64_t total)
{
    struct syi_cut cut;
    if (!syi_select(&r->c, e, syi_mass_target(r->top_p, total), r->scratch->hist, &cut))
        return (struct prefix){.all = true};
    const struct syi_candidates at_cut = {&cut.key, NULL, 1};
    float e_cut;
    syi_row_exp(r, &at_cut, &e_cut);
    const uint64_t w = syi_weight(e_cut);
    const uint64_t ties = cut.rest / w + (cut.rest % w != 0);
    return (struct prefix){.key = cut.key,
                           .ties = r->plan->args.ties == SY_TIES_ALL ? INT64_MAX : (int64_t)ties};
}

/* The shortest prefix whose mass reaches p. A total that is known only within bounds is enough when both give
   the same prefix, which is nearly always. */
static void keep_top_p(struct syi_row_state *r)
{
    float *e = r->scratch->e;
    syi_row_exp(r, &r->c, e);
    if (r->plan->args.probs_in)
        r->mass = (struct syi_mass){SYI_WEIGHT_ONE, SYI_WEIGHT_ONE};
    else if (r->mass.high == 0)
        r->mass.low = r->mass.high = syi_weight_sum(e, r->c.n);
    struct prefix prefix = find_prefix(r, e, r->mass.high);
    if (r->mass.low < r->mass.high) {
        const struct prefix least = find_prefix(r, e, r->mass.low);
        if (least.key != prefix.key || least.ties != prefix.ties) {
            syi_row_weigh(r);
            prefix = find_prefix(r, e, r->mass.high);
        }
    }
    if (!prefix.all)
        cut_at(r, prefix.key, prefix.ties);
    r->ranked = true;
}

/* n first of a ranked list, and what equals the last of them when ties stay together. */
static int64_t with_ties(const struct syi_row_state *r, const uint32_t *key, int64_t n, int64_t all)
{
    while (r->plan->args.ties == SY_TIES_ALL && n < all && key[n] == key[n - 1])
        n++;
    return n;
}

/* Length of the shortest prefix of n weights that reaches a target; n when all do not. */
static int64_t prefix_of(const float *e, int64_t n, uint64_t target)
{
    uint64_t sum = 0;
    int64_t i = 0;
    while (i < n && sum < target)
        sum += syi_weight(e[i++]);
    return i;
}

/* Top-k, if it is on, and top-p of few candidates: one ranking serves both, and both bounds of the mass. */
static void keep_few(struct syi_row_state *r)
{
    uint32_t place[SYI_FEW], key[SYI_FEW];
    float e[SYI_FEW];
    syi_rank_few(&r->c, place);
    for (int64_t i = 0; i < r->c.n; i++)
        key[i] = r->c.key[place[i]];
    const int64_t kept = r->k > 0 && r->k < r->c.n ? with_ties(r, key, r->k, r->c.n) : r->c.n;
    r->kernels->exp_keys(e, key, (size_t)kept, r->max, r->inv_t);
    if (r->mass.high == 0)
        r->mass.low = r->mass.high = syi_weight_sum(e, kept);
    int64_t n = prefix_of(e, kept, syi_mass_target(r->top_p, r->mass.high)), ties = 0;
    if (r->mass.low < r->mass.high && n != prefix_of(e, kept, syi_mass_target(r->top_p, r->mass.low))) {
        syi_row_weigh(r);
        n = prefix_of(e, kept, syi_mass_target(r->top_p, r->mass.high));
    }
    n = with_ties(r, key, n, kept);
    while (ties < n && key[n - 1 - ties] == key[n - 1])
        ties++;
    cut_at(r, key[n - 1], ties);
    r->ranked = true;
}

static void keep_min_p(struct syi_row_state *r)
{
    if (r->min_p >= 1.0f) {
        cut_at(r, r->stats.max, 1);
        return;
    }
    const float threshold = r->plan->args.probs_in ? r->min_p * syi_positive(r->max) : r->min_p;
    float *e = r->scratch->e;
    syi_row_exp(r, &r->c, e);
    /* e never grows down the order, so the smallest key that passes is a cut. */
    uint32_t lowest = UINT32_MAX;
    for (int64_t i = 0; i < r->c.n; i++)
        if (e[i] >= threshold && r->c.key[i] < lowest)
            lowest = r->c.key[i];
    cut_at(r, lowest, INT64_MAX);
}

static void keep_top_k_and_p(struct syi_row_state *r)
{
    const struct syi_sample_plan *p = r->plan;
    if (r->one && !r->empty)
        keep_top_k(r, 1);
    else if (r->k > 0)
        keep_top_k(r, r->k);
    if (r->empty)
        return;
    if (r->top_p < 1.0f)
        keep_top_p(r);
    else if (p->list_prob.data != NULL && !p->args.probs_in) {
        syi_row_exp(r, &r->c, r->scratch->e);
        r->mass.low = r->mass.high = syi_weight_sum(r->scratch->e, r->c.n);
    }
}

void syi_row_cut(struct syi_row_state *r)
{
    if (r->top_p < 1.0f && r->c.n <= SYI_FEW && !r->empty && !r->plan->args.probs_in)
        keep_few(r);
    else
        keep_top_k_and_p(r);
    if (r->min_p > 0.0f && !r->empty)
        keep_min_p(r);
}
