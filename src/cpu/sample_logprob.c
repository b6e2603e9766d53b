/*
 * Log-probabilities of a row: of its token, of tokens to score, of the first of the order; and the token's place in it.
 * All are of one distribution: that of the input, or that of the candidates.
 */
#include "cpu/sample.h"
#include "cpu/load.h"

/* The tokens of a distribution. */
enum support {
    NO_TOKEN,
    ONE_TOKEN, /* `only`, with certainty */
    LISTED,    /* row->c; those at -inf are not in it */
    SCANNED    /* the first `most` of the order of a row with block maxima */
};

struct distribution {
    enum support support;
    const struct syi_row_state *row;
    int64_t only, most;
    double log_weight; /* of all its tokens; not with probs_in and none of them positive */
};

static float minus_inf(void)
{
    return syi_f32_from_bits(0xff800000u);
}

/* ---- The distribution ---- */

/* The input row: every token, without mask and overrides, at temperature 1. Returns whether its largest logit is a
   number and follows from the block maxima. */
static bool raw_row(const struct syi_row_state *r, struct syi_row_state *raw)
{
    *raw = *r;
    raw->inv_t = 1.0f;
    raw->logits.allow = NULL;
    raw->logits.n_out = 0;
    raw->extra.n = 0;
    raw->stats = raw->extra_stats = (struct syi_key_stats){0, 0};
    raw->scanned = r->scanned && syi_counts_whole(&r->logits);
    raw->final_count = 0;
    return !r->plan->args.probs_in && syi_row_weighs_well(raw) && syi_row_max(raw);
}

/* The same by the keys of all tokens. */
static void read_raw(struct syi_row_state *raw)
{
    syi_row_keys(raw, &raw->logits, &raw->stats);
    raw->max = syi_key_value(raw->stats.max);
    raw->c = (struct syi_candidates){raw->scratch->key, NULL, raw->plan->vocab};
}

static double log_of(uint64_t weight)
{
    return weight > 0 ? syi_log_weight(weight) : 0.0;
}

static struct distribution of_candidates(const struct syi_row_state *r)
{
    syi_row_exp(r, &r->c, r->scratch->e);
    return (struct distribution){LISTED, r, -1, r->plan->vocab,
                                 log_of(syi_weight_sum(r->scratch->e, r->c.n))};
}

/* `raw` must live as long as the result. */
static struct distribution of_input(const struct syi_row_state *r, struct syi_row_state *raw)
{
    if (raw_row(r, raw)) {
        const struct syi_weigher weigher = syi_row_weigher(raw);
        return (struct distribution){SCANNED, raw, -1, r->plan->vocab, log_of(syi_weigh(&weigher))};
    }
    read_raw(raw);
    if (raw->stats.max == SYI_KEY_MINUS_INF)
        return (struct distribution){.support = NO_TOKEN, .row = raw};
    return of_candidates(raw);
}

static struct distribution of_final(const struct syi_row_state *r)
{
    if (r->empty)
        return (struct distribution){.support = NO_TOKEN, .row = r};
    if (r->cold)
        return (struct distribution){.support = ONE_TOKEN, .row = r, .only = r->first};
    if (r->final_weight == 0)
        return of_candidates(r);
    return (struct distribution){SCANNED, r, -1, r->final_count > 0 ? r->final_count : r->plan->vocab,
                                 log_of(r->final_weight)};
}

/* ---- Tokens ---- */

/* The key of a token in ascending candidates; that of -inf: it is none of them. */
static uint32_t key_among(const struct syi_candidates *c, int64_t token)
{
    int64_t first = 0, end = c->n;
    if (c->idx == NULL)
        return c->key[token];
    while (first < end) {
        const int64_t middle = first + (end - first) / 2;
        if (c->idx[middle] < token)
            first = middle + 1;
        else
            end = middle;
    }
    return first < c->n && c->idx[first] == token ? c->key[first] : SYI_KEY_MINUS_INF;
}

/* The key of a token's logit, or of what overrides it. */
static uint32_t key_in_row(const struct syi_row_state *r, int64_t token)
{
    const struct syi_logits *row = &r->logits;
    struct syi_key_stats stats = {0, 0};
    for (int64_t i = 0; i < r->extra.n; i++)
        if (r->extra.idx[i] == token)
            return r->extra.key[i];
    for (int64_t i = 0; i < row->n_out; i++)
        if (row->out[i] == token)
            return SYI_KEY_MINUS_INF;
    if (!syi_allowed(row, token))
        return SYI_KEY_MINUS_INF;
    const float own = syi_load_float(row->x + (size_t)token * syi_float_bytes(row->type), row->type);
    uint32_t key;
    r->kernels->keys[SYI_FLOAT_F32](&key, &own, 1, &stats);
    return key;
}

/* The key of -inf: the token is not in the distribution. */
static uint32_t key_of(const struct distribution *d, int64_t token)
{
    return d->support == LISTED ? key_among(&d->row->c, token) : key_in_row(d->row, token);
}

/* By the key of a token. */
static float share_of(const struct distribution *d, uint32_t key)
{
    const struct syi_row_state *r = d->row;
    const float value = syi_key_value(key);
    if (key == SYI_KEY_MINUS_INF)
        return minus_inf();
    if (!r->plan->args.probs_in)
        return (float)((double)((value - r->max) * r->inv_t) - d->log_weight);
    const uint64_t own = syi_weight(syi_positive(value));
    return own == 0 ? minus_inf() : (float)(syi_log_weight(own) - d->log_weight);
}

static float logprob_of(const struct distribution *d, int64_t token)
{
    if (token < 0 || d->support == NO_TOKEN)
        return minus_inf();
    if (d->support == ONE_TOKEN)
        return token == d->only ? 0.0f : minus_inf();
    return share_of(d, key_of(d, token));
}

static int64_t count_before(const struct syi_candidates *c, uint32_t key, int64_t token)
{
    int64_t count = 0;
    for (int64_t i = 0; i < c->n; i++)
        count += (c->key[i] > key) | ((c->key[i] == key) & (syi_token_at(c, i) < token));
    return count;
}

static int64_t rank_of(const struct distribution *d, int64_t token)
{
    const struct syi_row_state *r = d->row;
    const int64_t none = r->plan->vocab + 1;
    if (r->empty)
        return 0;
    if (d->support == NO_TOKEN)
        return none;
    if (d->support == ONE_TOKEN)
        return token == d->only ? 1 : none;
    const uint32_t key = key_of(d, token);
    if (key == SYI_KEY_MINUS_INF)
        return none;
    if (d->support == LISTED)
        return 1 + count_before(&r->c, key, token);
    return 1 + syi_scan_before(r->kernels, &r->scan, key, token) + count_before(&r->extra, key, token);
}

/* ---- The first of the order ---- */

/* The first n tokens and perhaps some at -inf, in index order. */
static struct syi_candidates find_top(const struct distribution *d, int64_t n)
{
    const struct syi_sample_scratch *s = d->row->scratch;
    struct syi_candidates top = {s->top_key, s->top_idx, 0};
    struct syi_cut cut;
    if (d->support == LISTED)
        top = d->row->c;
    else if (d->support == SCANNED)
        syi_row_first(d->row, (size_t)n, &top);
    if (n < top.n && syi_select(&top, NULL, (uint64_t)n, s->hist, &cut))
        syi_keep(&top, cut.key, (int64_t)cut.rest, s->top_key, s->top_idx);
    return top;
}

static void write_top(const struct distribution *d)
{
    const struct syi_row_state *r = d->row;
    const struct syi_sample_plan *p = r->plan;
    const int64_t most = d->most < p->n_top ? d->most : p->n_top;
    unsigned char *tokens = syi_at(p->top_token, r->b), *logprobs = syi_at(p->top_logprob, r->b);
    struct syi_candidates top = find_top(d, p->n_top);
    uint32_t place[SYI_FEW];
    const bool few = top.n <= SYI_FEW;
    if (few)
        syi_rank_few(&top, place);
    else
        top = syi_rank_order(&top, r->scratch->sort_key, r->scratch->sort_idx, r->scratch->hist);
    for (int64_t i = 0; i < p->n_top; i++) {
        int64_t token = i == 0 && d->support == ONE_TOKEN ? d->only : -1;
        float logprob = token >= 0 ? 0.0f : minus_inf();
        const int64_t at = few && i < top.n ? place[i] : i;
        if (i < most && i < top.n && top.key[at] != SYI_KEY_MINUS_INF) {
            token = syi_token_at(&top, at);
            logprob = share_of(d, top.key[at]);
        }
        syi_store_index(tokens, i, token, p->top_token.type);
        memcpy(logprobs + i * 4, &logprob, sizeof logprob);
    }
}

void syi_row_write_logprobs(const struct syi_row_state *r)
{
    const struct syi_sample_plan *p = r->plan;
    struct syi_row_state raw;
    const struct distribution d = p->logprob_mode == SY_LOGPROB_RAW ? of_input(r, &raw) : of_final(r);
    if (p->logprob.data != NULL) {
        const float logprob = logprob_of(&d, r->empty && r->given < 0 ? -1 : r->token);
        memcpy(p->logprob.data + r->b * 4, &logprob, sizeof logprob);
    }
    if (p->rank.data != NULL)
        syi_store_i32(p->rank.data, r->b, (int32_t)rank_of(&d, r->token));
    if (p->n_top > 0)
        write_top(&d);
    for (int64_t j = 0; j < p->n_score; j++) {
        const int64_t token = syi_load_index(syi_at(p->score_token, r->b), j, p->score_token.type);
        const float logprob = logprob_of(&d, token);
        memcpy(syi_at(p->score_logprob, r->b) + j * 4, &logprob, sizeof logprob);
    }
}
