/*
 * moe_permute_ids: must read every token row once and write one row per slot, and move ids and indices. The limit
 * copies the rows that are written.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    int64_t tokens, experts, k, hidden; /* bf16 rows */
    bool known;                         /* num_experts is given */
};

static const struct shape full[] = {{4096, 64, 8, 2048, true},
                                    {4096, 64, 8, 2048, false},
                                    {4096, 8, 2, 4096, true},
                                    {128, 64, 8, 2048, true}};
static const struct shape quick[] = {{512, 64, 8, 512, true}, {512, 64, 8, 512, false}};

enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

struct set {
    uint16_t *tokens, *rows;
};

struct state {
    struct shape shape;
    int64_t n_sets;
    struct set *sets;
    int32_t *ids, *indices, *plain_indices;
    uint16_t *plain_rows;
    int64_t tokens_shape[2], ids_shape[2], rows_shape[2], slots_shape[1];
};

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    const struct set *const set = &state->sets[turn % state->n_sets];
    const DLTensor tokens = sy_tensor(set->tokens, SY_BF16, 2, state->tokens_shape),
                   ids = sy_tensor(state->ids, SY_I32, 2, state->ids_shape),
                   rows = sy_tensor(set->rows, SY_BF16, 2, state->rows_shape),
                   indices = sy_tensor(state->indices, SY_I32, 1, state->slots_shape);
    return sy_moe_permute_ids(
        ctx, &(sy_moe_permute_ids_args){.tokens = &tokens,
                                        .ids = &ids,
                                        .num_experts = state->shape.known ? state->shape.experts : 0,
                                        .permuted_tokens = &rows,
                                        .sorted_indices = &indices});
}

/* One pass over the slots for every expert: the definition, not an efficient method. */
static void plain(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    const struct set *const set = &state->sets[turn % state->n_sets];
    uint16_t *const rows = turn == 0 ? state->plain_rows : set->rows;
    int32_t row = 0;
    for (int64_t e = 0; e < s->experts; e++)
        for (int64_t i = 0; i < s->tokens * s->k; i++)
            if (state->ids[i] == e) {
                memcpy(rows + row * s->hidden, set->tokens + i / s->k * s->hidden,
                       (size_t)s->hidden * sizeof *rows);
                state->plain_indices[i] = row++;
            }
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    const size_t slots = (size_t)(state->shape.tokens * state->shape.k);
    if (memcmp(state->indices, state->plain_indices, slots * sizeof *state->indices) != 0)
        return "sorted_indices differ from the plain loop";
    const size_t bytes = slots * (size_t)state->shape.hidden * sizeof *state->plain_rows;
    return memcmp(state->sets[0].rows, state->plain_rows, bytes) == 0 ? NULL
                                                                      : "rows differ from the plain loop";
}

static void release(struct state *state)
{
    for (int64_t i = 0; state->sets && i < state->n_sets; i++) {
        free(state->sets[i].tokens);
        free(state->sets[i].rows);
    }
    free(state->sets);
    free(state->ids);
    free(state->indices);
    free(state->plain_indices);
    free(state->plain_rows);
}

static bool prepare(struct state *state)
{
    const struct shape *const s = &state->shape;
    const size_t slots = (size_t)(s->tokens * s->k), tokens = (size_t)(s->tokens * s->hidden),
                 rows = slots * (size_t)s->hidden;
    uint64_t seed = 12;
    state->n_sets = bench_sets((tokens + rows) * sizeof(uint16_t));
    state->sets = bench_alloc((size_t)state->n_sets, sizeof *state->sets);
    state->ids = bench_alloc(slots, sizeof *state->ids);
    state->indices = bench_alloc(slots, sizeof *state->indices);
    state->plain_indices = bench_alloc(slots, sizeof *state->plain_indices);
    state->plain_rows = bench_alloc(rows, sizeof *state->plain_rows);
    if (!state->sets || !state->ids || !state->indices || !state->plain_indices || !state->plain_rows)
        return false;
    for (int64_t i = 0; i < state->n_sets; i++) {
        struct set *const set = &state->sets[i];
        set->tokens = bench_alloc(tokens, sizeof *set->tokens);
        set->rows = bench_alloc(rows, sizeof *set->rows);
        if (!set->tokens || !set->rows)
            return false;
        bench_fill_random(set->tokens, tokens * sizeof *set->tokens, 40 + (uint64_t)i);
    }
    for (size_t i = 0; i < slots; i++)
        state->ids[i] = (int32_t)(bench_random(&seed) % (uint64_t)s->experts);
    memcpy(state->tokens_shape, (int64_t[]){s->tokens, s->hidden}, sizeof state->tokens_shape);
    memcpy(state->ids_shape, (int64_t[]){s->tokens, s->k}, sizeof state->ids_shape);
    memcpy(state->rows_shape, (int64_t[]){s->tokens * s->k, s->hidden}, sizeof state->rows_shape);
    state->slots_shape[0] = s->tokens * s->k;
    return true;
}

static const struct shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    const struct shape *const s = shape_at(index);
    snprintf(text, bytes, "bf16 T=%d E=%d K=%d H=%d%s", (int)s->tokens, (int)s->experts, (int)s->k,
             (int)s->hidden, s->known ? "" : " any ids");
}

static void run_case(struct bench *bench, int index, const char *name)
{
    struct state state = {.shape = *shape_at(index)};
    const struct shape *const s = &state.shape;
    if (prepare(&state)) {
        const size_t row = (size_t)s->hidden * sizeof(uint16_t), copied = (size_t)(s->tokens * s->k) * row;
        bench_measure(bench, &(struct bench_case){
                                 .op = "moe_permute_ids",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = (double)copied + (double)s->tokens * (double)row +
                                          8.0 * (double)(s->tokens * s->k),
                                 .limit = {.copy_bytes = copied},
                             });
    } else {
        bench_no_memory(bench, "moe_permute_ids", name);
    }
    release(&state);
}

const struct bench_op bench_moe_permute_ids = {"moe_permute_ids", N_FULL, N_QUICK, describe, run_case};
