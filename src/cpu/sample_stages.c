/*
 * Rows whose stages have an order of their own, or that have more of them than top-k, top-p and min-p. A row is its candidates, a
 * temperature, and the largest logit of the candidates; each stage removes some or sets the temperature. Weights are of
 * the candidates that are left, at the temperature of that moment.
 */
#include "cpu/sample.h"
#include "cpu/load.h"

enum stage { END, TEMPERATURE, TOP_N_SIGMA, TOP_K, TYPICAL, TOP_P, MIN_P, XTC };

static const unsigned char orders[][8] = {
    [SY_STAGES_DEFAULT] = {TEMPERATURE, TOP_N_SIGMA, TOP_K, TYPICAL, TOP_P, MIN_P, XTC, END},
    [SY_STAGES_LLAMA] = {TOP_N_SIGMA, TOP_K, TYPICAL, TOP_P, MIN_P, XTC, TEMPERATURE, END},
    [SY_STAGES_VLLM] = {TEMPERATURE, MIN_P, TOP_K, TOP_P, END},
    [SY_STAGES_HF] = {TEMPERATURE, TOP_K, TOP_P, MIN_P, TYPICAL, END},
};

struct row {
    struct syi_row_state *r;
    float n_sigma, typical, xtc, likely; /* 0, 1, 0: off */
    float range, exponent, temperature;  /* range 0: the temperature does not depend on the entropy */
    bool weighed;                        /* scratch->e and `sums` are of the candidates as they are */
    struct syi_stage_sums sums;
};

static float number_of(const struct syi_column *column, int64_t b, float missing)
{
    return syi_present(column) ? syi_column_float(column, b) : missing;
}

static struct row parameters_of(struct syi_row_state *r)
{
    const struct syi_sample_plan *p = r->plan;
    const float n = number_of(&p->top_n_sigma, r->b, 0.0f), typical = number_of(&p->typical_p, r->b, 1.0f),
                xtc = number_of(&p->xtc_probability, r->b, 0.0f),
                likely = number_of(&p->xtc_threshold, r->b, 0.1f),
                range = number_of(&p->dynatemp_range, r->b, 0.0f), t = number_of(&p->temperature, r->b, 1.0f);
    const bool draws = p->noise != SY_NOISE_NONE && !(r->cold && !(range > 0.0f));
    return (struct row){.r = r,
                        .n_sigma = n > 0.0f ? n : 0.0f,
                        .typical = draws && typical < 1.0f ? typical : 1.0f,
                        .xtc = draws && r->given < 0 && likely > 0.0f && likely < 1.0f && xtc > 0.0f ? xtc
                                                                                                     : 0.0f,
                        .likely = likely,
                        .range = range > 0.0f ? range : 0.0f,
                        .exponent = number_of(&p->dynatemp_exponent, r->b, 1.0f),
                        .temperature = t == t ? t : 1.0f};
}

/* Whether the row differs from what the stages of every call make of it. */
static bool has_stages(const struct row *s)
{
    const struct syi_row_state *r = s->r;
    const struct syi_sample_plan *p = r->plan;
    const bool filters = r->top_p < 1.0f || r->min_p > 0.0f;
    if (s->n_sigma > 0.0f || s->typical < 1.0f || s->xtc > 0.0f || s->range > 0.0f)
        return true;
    if (p->list_token.data != NULL || p->list_prob.data != NULL ||
        (p->noise == SY_NOISE_Q && p->args.q_order == SY_Q_LIST)) /* q by place in the list */
        return true;
    return (p->stages == SY_STAGES_LLAMA && r->inv_t != 1.0f && filters) ||
           (p->stages == SY_STAGES_VLLM && r->min_p > 0.0f && r->top_p < 1.0f);
}

/* ---- Candidates ---- */

/* Weights of the candidates, and their sum. */
static void weigh(struct row *s)
{
    struct syi_row_state *r = s->r;
    if (s->weighed)
        return;
    syi_row_exp(r, &r->c, r->scratch->e);
    s->sums.weight = syi_weight_sum(r->scratch->e, r->c.n);
    s->weighed = true;
}

static float heat_of(const struct syi_row_state *r, int64_t i)
{
    return (syi_key_value(r->c.key[i]) - r->max) * r->inv_t;
}

/* The same with what the entropy needs. */
static void weigh_heat(struct row *s)
{
    const struct syi_row_state *r = s->r;
    weigh(s);
    s->sums.heat = 0;
    for (int64_t i = 0; i < r->c.n; i++)
        s->sums.heat += syi_heat(r->scratch->e[i], heat_of(r, i));
}

static void keep_from(struct row *s, uint32_t key, int64_t ties)
{
    struct syi_row_state *r = s->r;
    const int64_t before = r->c.n;
    syi_keep(&r->c, key, ties, r->scratch->cand_key, r->scratch->cand_idx);
    s->weighed = s->weighed && r->c.n == before;
}

/* The largest logit may have been removed. */
static void find_max(struct row *s)
{
    struct syi_row_state *r = s->r;
    uint32_t max = 0;
    for (int64_t i = 0; i < r->c.n; i++)
        max = r->c.key[i] > max ? r->c.key[i] : max;
    s->weighed = s->weighed && max == r->stats.max;
    r->stats.max = max;
    r->max = syi_key_value(max);
}

/* ---- Stages ---- */

static void set_temperature(struct row *s)
{
    const float coldest = 1e-5f, hottest = 0x1p100f;
    struct syi_row_state *r = s->r;
    float t = s->temperature < hottest ? s->temperature : hottest;
    if (s->range > 0.0f) {
        weigh_heat(s);
        t = syi_dynamic_temperature(&s->sums, r->c.n, t, s->range, s->exponent);
        r->cold = t < coldest;
        r->greedy = r->greedy || r->cold;
    }
    r->inv_t = 1.0f / (t < coldest ? coldest : t);
    s->weighed = s->weighed && r->inv_t == 1.0f;
}

static void keep_sigma(struct row *s)
{
    const struct syi_row_state *r = s->r;
    struct syi_stage_sums *sums = &s->sums;
    uint32_t least = r->stats.max;
    sums->n = sums->distance = sums->square = 0;
    for (int64_t i = 0; i < r->c.n; i++) {
        const float d = r->max - syi_key_value(r->c.key[i]);
        const uint64_t units = d < SYI_SIGMA_FAR ? syi_sigma_units(d) : 0;
        sums->n += d < SYI_SIGMA_FAR;
        sums->distance += units;
        sums->square += units * units;
    }
    const float limit = syi_sigma_limit(sums, s->n_sigma);
    for (int64_t i = 0; i < r->c.n; i++)
        if (r->c.key[i] < least && !(r->max - syi_key_value(r->c.key[i]) > limit))
            least = r->c.key[i];
    keep_from(s, least, INT64_MAX);
}

static void keep_top_k(struct row *s, int64_t k)
{
    struct syi_row_state *r = s->r;
    struct syi_cut cut;
    r->ranked = true;
    if (k < r->c.n && syi_select(&r->c, NULL, (uint64_t)k, r->scratch->hist, &cut))
        keep_from(s, cut.key, r->plan->args.ties == SY_TIES_ALL ? INT64_MAX : (int64_t)cut.rest);
}

/* How many tokens of a weight reach a rest. */
static int64_t ties_of(const struct syi_row_state *r, uint64_t rest, uint64_t weight)
{
    return r->plan->args.ties == SY_TIES_ALL ? INT64_MAX : (int64_t)((rest + weight - 1) / weight);
}

static void keep_top_p(struct row *s)
{
    struct syi_row_state *r = s->r;
    struct syi_cut cut;
    float e;
    weigh(s);
    r->ranked = true;
    if (!syi_select(&r->c, r->scratch->e, syi_mass_target(r->top_p, s->sums.weight), r->scratch->hist, &cut))
        return;
    syi_row_exp(r, &(struct syi_candidates){&cut.key, NULL, 1}, &e);
    keep_from(s, cut.key, ties_of(r, cut.rest, syi_weight(e)));
}

static void keep_min_p(struct row *s)
{
    struct syi_row_state *r = s->r;
    const float *e = r->scratch->e;
    uint32_t least = r->stats.max;
    weigh(s);
    for (int64_t i = 0; r->min_p < 1.0f && i < r->c.n; i++)
        if (e[i] >= r->min_p && r->c.key[i] < least)
            least = r->c.key[i];
    keep_from(s, least, r->min_p < 1.0f ? INT64_MAX : 1);
}

/* Candidates i for which `where` is true. */
static void keep_where(struct row *s, const uint32_t *code, uint32_t least, uint32_t key, int64_t ties)
{
    struct syi_row_state *r = s->r;
    const struct syi_sample_scratch *to = r->scratch;
    int64_t n = 0;
    for (int64_t i = 0; i < r->c.n; i++) {
        const uint32_t own = r->c.key[i];
        const int32_t idx = (int32_t)syi_token_at(&r->c, i);
        if (code[i] < least || (code[i] == least && (own < key || (own == key && ties-- <= 0))))
            continue;
        to->cand_key[n] = own;
        to->cand_idx[n++] = idx;
    }
    s->weighed = s->weighed && n == r->c.n;
    r->c = (struct syi_candidates){to->cand_key, to->cand_idx, n};
    find_max(s);
}

/* Tokens nearest to what is typical. A code is larger for a nearer token; those that weigh nothing have none. */
static void keep_typical(struct row *s)
{
    struct syi_row_state *r = s->r;
    const struct syi_sample_scratch *own = r->scratch;
    struct syi_candidates near = {own->code, NULL, r->c.n}, equal = {own->code + r->plan->vocab, NULL, 0};
    struct syi_cut cut, tie;
    float *e = own->e, e_tie;
    weigh_heat(s);
    const float mean = (float)syi_mean_heat(&s->sums);
    for (int64_t i = 0; i < r->c.n; i++)
        near.key[i] = syi_weight(e[i]) > 0 ? ~syi_f32_bits(syi_surprise(heat_of(r, i), mean)) : 0;
    const uint64_t target = s->typical > 0.0f ? syi_mass_target(s->typical, s->sums.weight) : 1;
    r->ranked = true;
    if (!syi_select(&near, e, target, own->hist, &cut))
        return;
    tie = (struct syi_cut){0, 0};
    int64_t ties = INT64_MAX;
    if (r->plan->args.ties == SY_TIES_EXACT) { /* of equally near ones the first of the order */
        for (int64_t i = 0; i < r->c.n; i++)
            if (near.key[i] == cut.key) {
                e[equal.n] = e[i]; /* not read any more */
                equal.key[equal.n++] = r->c.key[i];
            }
        syi_select(&equal, e, cut.rest, own->hist, &tie);
        syi_row_exp(r, &(struct syi_candidates){&tie.key, NULL, 1}, &e_tie);
        ties = ties_of(r, tie.rest, syi_weight(e_tie));
        s->weighed = false;
    }
    keep_where(s, near.key, cut.key, tie.key, ties);
}

/* Removes all tokens before the last likely one, if there are two. */
static void remove_top(struct row *s)
{
    struct syi_row_state *r = s->r;
    const struct syi_noise noise = syi_row_noise(r);
    uint32_t word[4], least = UINT32_MAX;
    int64_t n = 0, last = -1, to = 0;
    syi_noise_words(&noise, UINT32_MAX, word);
    if (!syi_below(word[2] | (uint64_t)word[3] << 32, s->xtc))
        return;
    weigh(s);
    const uint64_t likely = syi_mass_target(s->likely, s->sums.weight);
    for (int64_t i = 0; i < r->c.n; i++)
        if (syi_weight(r->scratch->e[i]) >= likely) {
            n++;
            last = r->c.key[i] <= least ? i : last;
            least = r->c.key[last];
        }
    if (n < 2)
        return;
    for (int64_t i = 0; i < r->c.n; i++) {
        const uint32_t key = r->c.key[i];
        const int32_t idx = (int32_t)syi_token_at(&r->c, i);
        if (key > least || (key == least && i < last))
            continue;
        r->scratch->cand_key[to] = key;
        r->scratch->cand_idx[to++] = idx;
    }
    r->c = (struct syi_candidates){r->scratch->cand_key, r->scratch->cand_idx, to};
    s->weighed = false;
    find_max(s);
}

static void run_stage(struct row *s, enum stage stage)
{
    struct syi_row_state *r = s->r;
    switch (stage) {
    case TEMPERATURE:
        set_temperature(s);
        break;
    case TOP_N_SIGMA:
        if (s->n_sigma > 0.0f)
            keep_sigma(s);
        break;
    case TOP_K:
        if (r->k > 0)
            keep_top_k(s, r->k);
        break;
    case TYPICAL:
        if (s->typical < 1.0f)
            keep_typical(s);
        break;
    case TOP_P:
        if (r->one)
            keep_top_k(s, 1);
        else if (r->top_p < 1.0f)
            keep_top_p(s);
        break;
    case MIN_P:
        if (r->min_p > 0.0f)
            keep_min_p(s);
        break;
    case XTC:
        if (s->xtc > 0.0f)
            remove_top(s);
        break;
    case END:
        break;
    }
}

/* ---- The row ---- */

/* The stages that the row begins with and that calls without stages have, in their order: top-k, top-p, min-p, at one
   temperature. The row is left with these. Returns where the others begin. */
static const unsigned char *find_usual(const struct row *s, const unsigned char *stage)
{
    struct syi_row_state *r = s->r;
    const float inv_t = r->inv_t;
    const struct syi_row_state all = *r;
    int place = 0; /* in top-k, top-p, min-p */
    r->k = 0;
    r->one = false;
    r->top_p = 1.0f;
    r->min_p = 0.0f;
    r->inv_t = 1.0f;
    for (; *stage != END; stage++) {
        const enum stage now = (enum stage) * stage;
        if (now == TEMPERATURE) {
            if (s->range > 0.0f || (place > 1 && inv_t != 1.0f))
                break;
            r->inv_t = inv_t;
        } else if (now == TOP_K && all.k > 0) {
            if (place > 1)
                break;
            r->k = all.k;
            place = 1;
        } else if (now == TOP_P && (all.one || all.top_p < 1.0f)) {
            if (place > 2)
                break;
            r->one = all.one;
            r->top_p = all.top_p;
            place = 2;
        } else if (now == MIN_P && all.min_p > 0.0f) {
            r->min_p = all.min_p;
            place = 3;
        } else if ((now == TOP_N_SIGMA && s->n_sigma > 0.0f) || (now == TYPICAL && s->typical < 1.0f) ||
                   (now == XTC && s->xtc > 0.0f))
            break;
    }
    return stage;
}

/* The candidates that the usual stages at the beginning leave. */
static void run_usual(struct row *s)
{
    struct syi_row_state *r = s->r;
    const struct syi_sample_scratch *to = r->scratch;
    const bool any = r->k > 0 || r->one || r->top_p < 1.0f || r->min_p > 0.0f;
    if (!any || syi_row_head(r) == SYI_HEAD_FULL_ROW)
        syi_row_read(r);
    if (any)
        syi_row_cut(r);
    syi_keep(&r->c, SYI_KEY_MINUS_INF + 1, INT64_MAX, to->cand_key, to->cand_idx);
}

bool syi_row_stages(struct syi_row_state *r)
{
    const struct syi_sample_plan *p = r->plan;
    struct row s = parameters_of(r);
    if (s.range > 0.0f) {
        r->cold = false;
        r->greedy = p->noise == SY_NOISE_NONE || r->given >= 0;
    }
    if (!has_stages(&s) || !syi_row_wants_candidates(r))
        return false;
    const struct syi_row_state all = *r;
    const unsigned char *stage = find_usual(&s, orders[p->stages]);
    r->staged = true;
    run_usual(&s);
    r->k = all.k;
    r->one = all.one;
    r->top_p = all.top_p;
    r->min_p = all.min_p;
    for (; *stage != END && !r->empty; stage++)
        run_stage(&s, (enum stage) * stage);
    if (p->list_prob.data != NULL && !r->empty) {
        weigh(&s);
        r->mass.low = r->mass.high = s.sums.weight;
    }
    return true;
}
