#include "moe_rows.h"

#include <stdlib.h>
#include <string.h>
#include <stdbool.h>

#include "oracle/sum.h"

static void *zeroed(int64_t count, size_t bytes)
{
    void *memory = calloc((size_t)count + 1, bytes + 1);
    if (memory == NULL)
        abort();
    return memory;
}

/* ---- Pairs ---- */

static void add_pair(const struct rows_case *in, struct rows_pairs *out, int64_t t, int64_t row, int64_t e)
{
    const float weight = in->probs ? (float)number_get(in->prob_type, in->probs, t * in->experts + e) : 1.0f;
    out->pair[out->count++] = (struct rows_pair){t, row, e, weight};
}

/* The token's experts in a list, its live slots in another: both in order, so they are taken side by side. */
static bool pair_token(const struct rows_case *in, struct rows_pairs *out, int64_t t, int64_t slots)
{
    int64_t *live = zeroed(slots, sizeof *live), *expert = zeroed(in->experts, sizeof *expert);
    int64_t n_live = 0, n_experts = 0;
    for (int64_t slot = t * slots; slot < (t + 1) * slots; slot++) {
        const int32_t row = in->indices[slot];
        if (row >= 0)
            live[n_live++] = row;
        if (row < -1 || row >= in->rows) {
            out->fault = (struct rows_fault){slot, row, in->rows, false};
            break;
        }
    }
    for (int64_t e = 0; in->by_expert && e < in->experts; e++)
        if (in->map[t * in->experts + e] != 0)
            expert[n_experts++] = e;
    if (out->fault.position < 0 && in->by_expert && n_experts != n_live)
        out->fault = (struct rows_fault){t, n_experts, n_live, true};
    for (int64_t i = 0; out->fault.position < 0 && i < n_live; i++)
        add_pair(in, out, t, live[i], in->by_expert ? expert[i] : -1);
    free(live);
    free(expert);
    return out->fault.position < 0;
}

struct rows_pairs oracle_pairs(const struct rows_case *in)
{
    struct rows_pairs out = {.pair = zeroed(in->rows, sizeof(struct rows_pair)), .fault = {.position = -1}};
    if (in->rows == 0)
        return out;
    for (int64_t t = 0; !in->capacity && t < in->tokens; t++)
        if (!pair_token(in, &out, t, in->rows / in->tokens))
            return out;
    for (int64_t row = 0; in->capacity && row < in->rows; row++) {
        const int32_t t = in->indices[row];
        if (t == -1 && in->zero_pad)
            continue;
        if (t < 0 || t >= in->tokens) {
            out.fault = (struct rows_fault){row, t, in->tokens, false};
            return out;
        }
        add_pair(in, &out, t, row, in->by_expert ? row / (in->rows / in->experts) : -1);
    }
    return out;
}

void oracle_pairs_free(struct rows_pairs *pairs)
{
    free(pairs->pair);
    *pairs = (struct rows_pairs){0};
}

/* ---- Sums ---- */

void oracle_unpermute(const struct rows_case *in, const struct rows_pairs *pairs, const void *permuted,
                      unsigned char *tokens)
{
    float *sum = zeroed(in->tokens * in->hidden, sizeof *sum);
    for (size_t i = 0; i < pairs->count; i++) {
        const struct rows_pair *p = &pairs->pair[i];
        for (int64_t h = 0; p->weight != 0.0f && h < in->hidden; h++) {
            float *at = &sum[p->token * in->hidden + h];
            *at = oracle_plus_product(*at, (double)p->weight,
                                      number_get(in->type, permuted, p->row * in->hidden + h));
        }
    }
    for (int64_t i = 0; i < in->tokens * in->hidden; i++)
        number_put(in->type, tokens, i, (double)sum[i]);
    free(sum);
}

/* ---- Gradients ---- */

void oracle_grad_probs(const struct rows_case *in, const struct rows_pairs *pairs, const void *values,
                       unsigned char *grad_probs)
{
    const size_t bytes = number_bytes(in->prob_type);
    memset(grad_probs, 0, (size_t)(in->tokens * in->experts) * bytes);
    for (size_t i = 0; i < pairs->count; i++) {
        const struct rows_pair *p = &pairs->pair[i];
        memcpy(grad_probs + (size_t)(p->token * in->experts + p->expert) * bytes,
               (const char *)values + (size_t)p->row * bytes, bytes);
    }
}

/* Pair after pair, so that a later one that names the same row or value replaces the earlier. */
void oracle_unpermute_grad(const struct rows_case *in, const struct rows_pairs *pairs,
                           const void *grad_tokens, const void *saved, unsigned char *grad_permuted,
                           unsigned char *grad_probs)
{
    const int64_t n = in->hidden;
    const size_t row_bytes = (size_t)n * number_bytes(in->type);
    memset(grad_permuted, 0, (size_t)in->rows * row_bytes);
    if (grad_probs)
        memset(grad_probs, 0, (size_t)(in->tokens * in->experts) * number_bytes(in->prob_type));
    for (size_t i = 0; i < pairs->count; i++) {
        const struct rows_pair *p = &pairs->pair[i];
        unsigned char *row = grad_permuted + (size_t)p->row * row_bytes;
        if (!in->probs)
            memcpy(row, (const char *)grad_tokens + (size_t)p->token * row_bytes, row_bytes);
        for (int64_t h = 0; in->probs && h < n; h++) {
            const double g = number_get(in->type, grad_tokens, p->token * n + h);
            number_put(in->type, row, h, p->weight == 0.0f ? 0.0f : (float)((double)p->weight * g));
        }
        if (grad_probs)
            number_put(in->prob_type, grad_probs, p->token * in->experts + p->expert,
                       oracle_dot(in->type, grad_tokens, p->token * n, saved, p->row * n, n));
    }
}
