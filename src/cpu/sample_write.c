/*
 * The optional outputs of a row: log-probability, list, masked logits, count.
 */
#include "cpu/sample.h"
#include "cpu/load.h"

static const uint32_t minus_inf_bits = 0xff800000u;

static float minus_inf(void)
{
    return syi_f32_from_bits(minus_inf_bits);
}

/* The input row: every token, without mask and overrides, at temperature 1. Returns whether its largest logit is a
   number and follows from the block maxima. */
static bool raw_row(const struct syi_row *r, struct syi_row *raw)
{
    *raw = *r;
    raw->inv_t = 1.0f;
    raw->logits.allow = NULL;
    raw->logits.n_out = 0;
    raw->extra.n = 0;
    raw->stats = raw->extra_stats = (struct syi_key_stats){0, 0};
    raw->scanned = r->scanned && syi_counts_whole(&r->logits);
    raw->final_count = 0;
    return !r->plan->probs_in && syi_row_weighs_well(raw) && syi_row_max(raw);
}

/* The same by the keys of all tokens. */
static void read_raw(struct syi_row *raw)
{
    syi_row_keys(raw, &raw->logits, &raw->stats);
    raw->max = syi_key_value(raw->stats.max);
    raw->c = (struct syi_candidates){raw->scratch->key, NULL, raw->plan->vocab};
}

/* The share of a logit in a weight, by the logit's key. */
static float log_share_of(const struct syi_row *r, uint32_t key, uint64_t total)
{
    const float value = syi_key_value(key);
    if (key == SYI_KEY_MINUS_INF) /* the token was picked by its override */
        return minus_inf();
    if (!r->plan->probs_in)
        return (float)((double)((value - r->max) * r->inv_t) - syi_log_weight(total));
    const uint64_t own = syi_weight(syi_positive(value));
    return own == 0 ? minus_inf() : (float)(syi_log_weight(own) - syi_log_weight(total));
}

/* The share of the token among the candidates of a row. */
static float log_share(const struct syi_row *r)
{
    syi_row_exp(r, &r->c, r->scratch->e);
    const uint64_t total = syi_weight_sum(r->scratch->e, r->c.n);
    int64_t at = r->c.idx == NULL ? r->token : 0;
    while (syi_token_at(&r->c, at) != r->token)
        at++;
    return log_share_of(r, r->c.key[at], total);
}

/* The key of a token's logit, or of what overrides it. */
static uint32_t key_of_token(const struct syi_row *r)
{
    struct syi_key_stats stats = {0, 0};
    const float own =
        syi_load_float(r->logits.x + (size_t)r->token * syi_float_bytes(r->logits.type), r->logits.type);
    uint32_t key;
    for (int64_t i = 0; i < r->extra.n; i++)
        if (r->extra.idx[i] == r->token)
            return r->extra.key[i];
    r->kernels->keys_f32(&key, &own, 1, &stats);
    return key;
}

float syi_row_logprob(const struct syi_row *r)
{
    if (r->empty)
        return minus_inf();
    if (r->plan->logprob_mode == SY_LOGPROB_FINAL && r->final_weight > 0)
        return r->cold ? 0.0f : log_share_of(r, key_of_token(r), r->final_weight);
    if (r->plan->logprob_mode == SY_LOGPROB_FINAL)
        return r->cold ? 0.0f : log_share(r);
    struct syi_row raw;
    if (!raw_row(r, &raw)) {
        read_raw(&raw);
        return log_share(&raw);
    }
    const struct syi_weigher weigher = syi_row_weigher(&raw);
    return log_share_of(&raw, key_of_token(&raw), syi_weigh(&weigher));
}

static float own_logit(const struct syi_row *r, int64_t token)
{
    const struct syi_logits *row = &r->logits;
    return syi_load_float(row->x + (size_t)token * syi_float_bytes(row->type), row->type);
}

/* The logit of a token: from its row, or its override. */
static float logit_at(const struct syi_row *r, int64_t token)
{
    const struct syi_token_lists *o = &r->plan->overrides;
    const struct syi_span span = syi_list_span(o, r->b);
    const int64_t j = syi_list_find(o, span, token);
    return j < span.end && syi_list_token(o, j) == token ? syi_list_value(o, j) : own_logit(r, token);
}

void syi_row_write_list(const struct syi_row *r)
{
    const struct syi_sample_plan *p = r->plan;
    const float scale = (float)r->mass.high * 0x1p-40f;
    unsigned char *tokens = p->list_token.data != NULL ? syi_row(p->list_token, r->b) : NULL;
    unsigned char *probs = p->list_prob.data != NULL ? syi_row(p->list_prob, r->b) : NULL;
    const size_t n = (size_t)r->list.n, rest = (size_t)p->vocab - n;
    if (tokens != NULL) {
        for (size_t i = 0; i < n; i++)
            syi_store_i64(tokens, (int64_t)i, syi_token_at(&r->list, (int64_t)i));
        memset(tokens + n * 8, 0, rest * 8);
    }
    if (probs == NULL)
        return;
    syi_row_exp(r, &r->list, r->scratch->e);
    for (size_t i = 0; i < n; i++) {
        float prob = 0.0f;
        if (r->list.key[i] != SYI_KEY_MINUS_INF)
            prob = p->probs_in ? logit_at(r, syi_token_at(&r->list, (int64_t)i)) : r->scratch->e[i] / scale;
        memcpy(probs + i * 4, &prob, sizeof prob);
    }
    memset(probs + n * 4, 0, rest * 4);
}

/* A row is read in step with being written, so masked logits may be the f32 logits themselves. */
void syi_row_write_masked(const struct syi_row *r)
{
    const struct syi_sample_plan *p = r->plan;
    const float fill = p->probs_in ? 0.0f : minus_inf();
    struct syi_span replaced = syi_list_span(&p->overrides, r->b);
    unsigned char *out = syi_row(p->masked, r->b);
    int64_t next = 0;
    for (int64_t i = 0; i < p->vocab; i++) {
        float value = fill, logit = own_logit(r, i);
        if (replaced.first < replaced.end && syi_list_token(&p->overrides, replaced.first) == i)
            logit = syi_list_value(&p->overrides, replaced.first++);
        if (next < r->c.n && syi_token_at(&r->c, next) == i) {
            next++;
            if (!r->empty && logit == logit && syi_allowed(&r->logits, i))
                value = logit;
        }
        memcpy(out + i * 4, &value, sizeof value);
    }
}

int32_t syi_row_count(const struct syi_row *r)
{
    int32_t n = 0;
    if (r->final_count > 0)
        return (int32_t)r->final_count;
    for (int64_t i = 0; i < r->c.n; i++)
        n += r->c.key[i] != SYI_KEY_MINUS_INF;
    return n;
}
