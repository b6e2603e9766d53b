/*
 * The optional outputs of a row: list, masked logits, count.
 */
#include "cpu/sample.h"
#include "cpu/load.h"

static const uint32_t minus_inf_bits = 0xff800000u;

static float minus_inf(void)
{
    return syi_f32_from_bits(minus_inf_bits);
}

static float own_logit(const struct syi_row_state *r, int64_t token)
{
    const struct syi_logits *row = &r->logits;
    return syi_load_float(row->x + (size_t)token * syi_float_bytes(row->type), row->type);
}

/* The logit of a token: from its row, or its override. */
static float logit_at(const struct syi_row_state *r, int64_t token)
{
    const struct syi_token_lists *o = &r->plan->overrides;
    const struct syi_span span = syi_list_span(o, r->b);
    const int64_t j = syi_list_find(o, span, token);
    return j < span.end && syi_list_token(o, j) == token ? syi_list_value(o, j) : own_logit(r, token);
}

void syi_row_write_list(const struct syi_row_state *r)
{
    const struct syi_sample_plan *p = r->plan;
    const float scale = (float)r->mass.high * 0x1p-40f;
    unsigned char *tokens = p->list_token.data != NULL ? syi_at(p->list_token, r->b) : NULL;
    unsigned char *probs = p->list_prob.data != NULL ? syi_at(p->list_prob, r->b) : NULL;
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
            prob =
                p->args.probs_in ? logit_at(r, syi_token_at(&r->list, (int64_t)i)) : r->scratch->e[i] / scale;
        memcpy(probs + i * 4, &prob, sizeof prob);
    }
    memset(probs + n * 4, 0, rest * 4);
}

/* A row is read in step with being written, so masked logits may be the f32 logits themselves. */
void syi_row_write_masked(const struct syi_row_state *r)
{
    const struct syi_sample_plan *p = r->plan;
    const float fill = p->args.probs_in ? 0.0f : minus_inf();
    struct syi_span replaced = syi_list_span(&p->overrides, r->b);
    unsigned char *out = syi_at(p->masked, r->b);
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

int32_t syi_row_count(const struct syi_row_state *r)
{
    int32_t n = 0;
    if (r->final_count > 0)
        return (int32_t)r->final_count;
    for (int64_t i = 0; i < r->c.n; i++)
        n += r->c.key[i] != SYI_KEY_MINUS_INF;
    return n;
}
