/*
 * Logits that are replaced before everything else. A row with overrides is read without the overridden tokens; they
 * are few, are kept in a separate list with keys of their own, and are added to the candidates. So a 16-bit row keeps
 * its type, although the values that replace some of its logits are f32.
 */
#include "cpu/sample.h"

/* Keys of n values, of which those above -inf join the row's own. */
static void add_values(struct syi_row_state *r, const float *value, const int32_t *token, size_t n)
{
    uint32_t key[SYI_WEIGH_AT_ONCE];
    struct syi_candidates *c = &r->extra;
    r->kernels->keys[SYI_FLOAT_F32](key, value, n, &r->extra_stats);
    for (size_t i = 0; i < n; i++)
        if (key[i] != SYI_KEY_MINUS_INF) {
            c->key[c->n] = key[i];
            c->idx[c->n++] = token[i];
        }
}

void syi_row_overrides(struct syi_row_state *r)
{
    const struct syi_token_lists *o = &r->plan->overrides;
    const struct syi_span span = syi_list_span(o, r->b);
    float value[SYI_WEIGH_AT_ONCE];
    int32_t token[SYI_WEIGH_AT_ONCE] = {0};
    size_t n = 0;
    r->extra = (struct syi_candidates){r->scratch->extra_key, r->scratch->extra_idx, 0};
    for (int64_t j = span.first; j < span.end; j++) {
        token[n] = r->scratch->out[j - span.first] = (int32_t)syi_list_token(o, j);
        value[n] = syi_list_value(o, j);
        n += syi_allowed(&r->logits, token[n]);
        if (n == SYI_WEIGH_AT_ONCE || j + 1 == span.end) {
            add_values(r, value, token, n);
            n = 0;
        }
    }
    r->logits.out = r->scratch->out;
    r->logits.n_out = span.end - span.first;
}

/* Removes the excluded tokens. */
static void drop_out(const struct syi_logits *row, struct syi_candidates *c)
{
    int64_t to = 0, j = 0;
    for (int64_t i = 0; i < c->n; i++) {
        while (j < row->n_out && row->out[j] < c->idx[i])
            j++;
        if (j < row->n_out && row->out[j] == c->idx[i])
            continue;
        c->key[to] = c->key[i];
        c->idx[to++] = c->idx[i];
    }
    c->n = to;
}

void syi_row_replace(const struct syi_row_state *r, struct syi_candidates *c, uint32_t least)
{
    const struct syi_candidates *extra = &r->extra;
    drop_out(&r->logits, c);
    int64_t i = c->n, to = i;
    for (int64_t j = 0; j < extra->n; j++)
        to += extra->key[j] >= least;
    c->n = to;
    for (int64_t j = extra->n - 1; to > i; j--) { /* from the end, where there is space */
        if (extra->key[j] < least)
            continue;
        for (; i > 0 && c->idx[i - 1] > extra->idx[j]; i--) {
            c->key[--to] = c->key[i - 1];
            c->idx[to] = c->idx[i - 1];
        }
        c->key[--to] = extra->key[j];
        c->idx[to] = extra->idx[j];
    }
}
