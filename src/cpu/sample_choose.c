/*
 * The choice among the candidates of a row: the first of the order, the best score with noise, or one draw.
 */
#include "cpu/sample.h"
#include "cpu/load.h"

/* Always a candidate. */
static int64_t first_of_order(const struct syi_row_state *r)
{
    int64_t i = 0;
    while (r->c.key[i] != r->stats.max)
        i++;
    return syi_token_at(&r->c, i);
}

void syi_row_list(struct syi_row_state *r)
{
    r->list = r->c;
    if (r->ranked)
        r->list = syi_rank_order(&r->c, r->scratch->sort_key, r->scratch->sort_idx, r->scratch->hist);
}

struct syi_noise syi_row_noise(const struct syi_row_state *r)
{
    const struct syi_sample_plan *p = r->plan;
    return (struct syi_noise){
        .seed = (uint64_t)syi_column_int(&p->seed, r->b),
        .offset = p->offset.rows.data != NULL ? (uint64_t)syi_column_int(&p->offset, r->b) : 0,
        .stream = (uint32_t)(p->stream.rows.data != NULL ? syi_column_int(&p->stream, r->b)
                             : p->seed_per_row           ? 0
                                                         : r->b),
    };
}

/* The source of a candidate's noise: the caller's q by list place or by token, or Philox by token. */
struct noise_source {
    const unsigned char *q; /* NULL: counted */
    bool by_list;
    float eps;
    struct syi_noise noise;
    int64_t drawn; /* group of four tokens whose words are in `word` */
    uint32_t word[4];
};

static float noise_at(struct noise_source *from, int64_t place, int64_t token)
{
    if (from->q != NULL)
        return syi_load_float(from->q + 4 * (from->by_list ? place : token), SY_TYPE_F32);
    if (token / 4 != from->drawn) {
        from->drawn = token / 4;
        syi_noise_words(&from->noise, (uint32_t)from->drawn, from->word);
    }
    return syi_exponential(from->word[token % 4]);
}

/* Largest score, ties to the earlier place of the list. The candidates are visited in list order only
   where q is given so; otherwise the place in a ranked list follows from the key. */
static int64_t choose_by_score(struct syi_row_state *r, struct noise_source *from)
{
    const struct syi_candidates *c = from->by_list ? &r->list : &r->c;
    const bool compare_keys = r->ranked && !from->by_list;
    float *e = r->scratch->e, best = 0.0f;
    int64_t winner = -1;
    uint32_t winner_key = 0;
    syi_row_exp(r, c, e);
    for (int64_t i = 0; i < c->n; i++) {
        if (!(e[i] > 0.0f))
            continue;
        const int64_t token = syi_token_at(c, i);
        const float score = syi_score(e[i], noise_at(from, i, token), from->eps);
        const bool earlier = compare_keys && c->key[i] > winner_key;
        if (winner < 0 || score > best || (score == best && earlier)) {
            best = score;
            winner = token;
            winner_key = c->key[i];
        }
    }
    return winner < 0 ? first_of_order(r) : winner;
}

static int64_t choose_by_q(struct syi_row_state *r)
{
    const struct syi_sample_plan *p = r->plan;
    struct noise_source from = {
        .q = syi_at(p->q, r->b), .by_list = p->args.q_order == SY_Q_LIST, .eps = p->args.eps};
    return choose_by_score(r, &from);
}

static int64_t choose_by_race(struct syi_row_state *r)
{
    struct noise_source from = {.noise = syi_row_noise(r), .drawn = -1};
    return choose_by_score(r, &from);
}

uint64_t syi_row_uniform(const struct syi_row_state *r)
{
    const struct syi_noise noise = syi_row_noise(r);
    uint32_t word[4];
    syi_noise_words(&noise, UINT32_MAX, word);
    return word[0] | (uint64_t)word[1] << 32;
}

/* The first of the weights whose inclusive sum exceeds a uniform share of their total, which is not 0. */
static int64_t find_share(const struct syi_row_state *r, const float *e, uint64_t total)
{
    const uint64_t target = (uint64_t)((syi_u128)syi_row_uniform(r) * total >> 64);
    uint64_t sum = 0;
    int64_t i = -1;
    do
        sum += syi_weight(e[++i]);
    while (sum <= target);
    return i;
}

static int64_t choose_by_cdf(struct syi_row_state *r)
{
    float *e = r->scratch->e;
    syi_row_exp(r, &r->c, e);
    const uint64_t total = syi_weight_sum(e, r->c.n);
    if (total == 0)
        return first_of_order(r);
    return syi_token_at(&r->c, find_share(r, e, total));
}

int64_t syi_row_choose(struct syi_row_state *r)
{
    if (r->empty)
        return r->plan->empty_token;
    if (r->greedy)
        return first_of_order(r);
    switch (r->plan->noise) {
    case SY_NOISE_Q:
        return choose_by_q(r);
    case SY_NOISE_RACE:
        return choose_by_race(r);
    default:
        return choose_by_cdf(r);
    }
}

void syi_row_draw(struct syi_row_state *r)
{
    const struct syi_weigher weigher = syi_row_weigher(r);
    const bool weight = r->plan->logprob_mode == SY_LOGPROB_FINAL;
    const struct syi_draw d = {.top_p = r->top_p,
                               .min_p = r->min_p,
                               .all_ties = r->plan->args.ties == SY_TIES_ALL,
                               .exact = weight || r->plan->kept.data != NULL,
                               .uniform = syi_row_uniform(r)};
    /* Rows of few values are cut by counting them, and min-p only so. */
    const bool by_value =
        d.min_p > 0.0f || (r->logits.type != SY_TYPE_F32 && syi_row_weighs_well(r) && r->extra.n == 0);
    const struct syi_drawn drawn = d.min_p == 0.0f && d.top_p >= 1.0f
                                       ? syi_nucleus_draw_whole(&weigher, d.uniform, weight)
                                   : by_value ? syi_weigh_draw(&weigher, &d)
                                              : syi_nucleus_draw(&weigher, &d);
    r->token = drawn.token;
    r->final_weight = drawn.weight;
    r->final_count = drawn.kept;
}

void syi_row_draw_min_p(struct syi_row_state *r)
{
    float *e = r->scratch->e;
    uint32_t count = 0;
    syi_row_exp(r, &r->c, e);
    for (int64_t i = 0; i < r->c.n; i++) {
        count += e[i] >= r->min_p;
        e[i] = e[i] >= r->min_p ? e[i] : 0.0f;
    }
    r->final_weight = syi_weight_sum(e, r->c.n);
    r->final_count = count;
    r->token = syi_token_at(&r->c, find_share(r, e, r->final_weight));
}
