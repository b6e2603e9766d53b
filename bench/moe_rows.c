/*
 * See moe_rows.h.
 */
#include "moe_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool make_sets(struct rows *r)
{
    const struct rows_shape *const s = &r->shape;
    const size_t row_elems = (size_t)(r->n_rows * s->hidden), token_elems = (size_t)(s->tokens * s->hidden);
    r->n_sets = bench_sets(row_elems * 2);
    r->sets = bench_alloc((size_t)r->n_sets, sizeof *r->sets);
    for (int64_t i = 0; r->sets && i < r->n_sets; i++) {
        struct rows_set *const set = &r->sets[i];
        set->permuted = bench_alloc(row_elems, 2);
        set->tokens = bench_alloc(token_elems, 2);
        if (!set->permuted || !set->tokens)
            return false;
        bench_fill_bf16(set->permuted, row_elems, 11 + (uint64_t)i);
        bench_fill_bf16(set->tokens, token_elems, 77 + (uint64_t)i);
        set->permuted_view = sy_tensor(set->permuted, SY_BF16, 2, r->permuted_shape);
        set->tokens_view = sy_tensor(set->tokens, SY_BF16, 2, r->tokens_shape);
    }
    return r->sets != NULL;
}

bool rows_make(struct rows *r, const struct rows_shape *shape)
{
    const size_t cells = (size_t)(shape->tokens * shape->experts);
    *r = (struct rows){.shape = *shape, .n_rows = shape->tokens * shape->k};
    memcpy(r->permuted_shape, (int64_t[]){r->n_rows, shape->hidden}, sizeof r->permuted_shape);
    memcpy(r->tokens_shape, (int64_t[]){shape->tokens, shape->hidden}, sizeof r->tokens_shape);
    memcpy(r->map_shape, (int64_t[]){shape->tokens, shape->experts}, sizeof r->map_shape);
    r->map = bench_alloc(cells, 1);
    r->probs = bench_alloc(cells, sizeof *r->probs);
    r->index = bench_alloc((size_t)r->n_rows, sizeof *r->index);
    r->sum = bench_alloc((size_t)shape->hidden, sizeof *r->sum);
    r->plain_tokens = bench_alloc((size_t)(shape->tokens * shape->hidden), 2);
    if (!r->map || !r->probs || !r->index || !r->sum || !r->plain_tokens || !make_sets(r))
        return false;
    uint64_t seed = 7;
    bench_route(r->map, shape->tokens, shape->experts, shape->k, seed);
    bench_slots(r->index, r->map, shape->tokens, shape->experts, shape->k);
    for (size_t i = 0; i < cells; i++)
        r->probs[i] = (float)bench_unit(&seed);
    r->map_view = sy_tensor(r->map, SY_BOOL, 2, r->map_shape);
    r->probs_view = sy_tensor(r->probs, SY_F32, 2, r->map_shape);
    r->index_view = sy_tensor(r->index, SY_I32, 1, r->permuted_shape);
    return true;
}

void rows_free(struct rows *r)
{
    for (int64_t i = 0; r->sets && i < r->n_sets; i++) {
        free(r->sets[i].permuted);
        free(r->sets[i].tokens);
    }
    free(r->sets);
    free(r->map);
    free(r->probs);
    free(r->index);
    free(r->sum);
    free(r->plain_tokens);
}

const struct rows_set *rows_of_turn(const struct rows *r, int64_t turn)
{
    return &r->sets[turn % r->n_sets];
}

size_t rows_bytes(const struct rows *r)
{
    return (size_t)((r->shape.tokens + r->n_rows) * r->shape.hidden) * sizeof(uint16_t);
}

void rows_describe(const struct rows_shape *shape, char *text, size_t bytes)
{
    snprintf(text, bytes, "bf16 T=%d E=%d K=%d H=%d%s", (int)shape->tokens, (int)shape->experts,
             (int)shape->k, (int)shape->hidden, shape->weighted ? "" : " plain");
}

void rows_plain_sum(const struct rows *r, const struct rows_set *set, uint16_t *tokens)
{
    const struct rows_shape *const s = &r->shape;
    for (int64_t t = 0; t < s->tokens; t++) {
        int64_t slot = t * s->k;
        memset(r->sum, 0, (size_t)s->hidden * sizeof *r->sum);
        for (int64_t e = 0; e < s->experts; e++) {
            if (r->map[t * s->experts + e] == 0)
                continue;
            const float weight = s->weighted ? r->probs[t * s->experts + e] : 1.0f;
            const uint16_t *const row = set->permuted + r->index[slot++] * s->hidden;
            for (int64_t h = 0; h < s->hidden; h++)
                r->sum[h] += weight * bench_bf16_value(row[h]);
        }
        for (int64_t h = 0; h < s->hidden; h++)
            tokens[t * s->hidden + h] = bench_bf16_round(r->sum[h]);
    }
}
