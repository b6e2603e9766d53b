/*
 * moe_convert_indices on the indices of packed moe_permute: must read one form and write the other. The limit
 * copies what is read and fills the rest of what is written.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    int64_t tokens, experts, k;
    sy_index_form to;
};

static const struct shape full[] = {{4096, 256, 8, SY_INDEX_ROW},
                                    {65536, 256, 8, SY_INDEX_ROW},
                                    {4096, 64, 8, SY_INDEX_TE},
                                    {4096, 256, 8, SY_INDEX_TE}};
static const struct shape quick[] = {{1024, 64, 8, SY_INDEX_ROW}, {1024, 64, 8, SY_INDEX_TE}};

enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

struct state {
    struct shape shape;
    int64_t n_sets, columns; /* columns of the output */
    int32_t *slots, **out, *plain_out;
    int64_t *offsets;
    int64_t slots_shape[1], offsets_shape[1], out_shape[2];
};

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    const bool te = state->shape.to == SY_INDEX_TE;
    const DLTensor slots = sy_tensor(state->slots, SY_I32, 1, state->slots_shape),
                   offsets = sy_tensor(state->offsets, SY_I64, 1, state->offsets_shape),
                   out = sy_tensor(state->out[turn % state->n_sets], SY_I32, te ? 2 : 1, state->out_shape);
    return sy_moe_convert_indices(ctx, &(sy_moe_convert_indices_args){.sorted_indices = &slots,
                                                                      .expert_offsets = te ? &offsets : NULL,
                                                                      .to = state->shape.to,
                                                                      .num_tokens = state->shape.tokens,
                                                                      .converted_indices = &out});
}

static void plain(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    int32_t *const out = turn == 0 ? state->plain_out : state->out[turn % state->n_sets];
    if (s->to == SY_INDEX_ROW) {
        for (int64_t i = 0; i < s->tokens * s->k; i++)
            out[state->slots[i]] = (int32_t)(i / s->k);
        return;
    }
    for (int64_t t = 0; t < s->tokens; t++) {
        int32_t *const entries = out + t * state->columns;
        memset(entries, 0xff, (size_t)state->columns * sizeof *entries);
        entries[2 * s->experts] = (int32_t)s->k;
        for (int64_t j = 0; j < s->k; j++) {
            const int32_t row = state->slots[t * s->k + s->k - 1 - j];
            int64_t e = 0;
            while (state->offsets[e + 1] <= row)
                e++;
            entries[j] = row;
            entries[s->experts + j] = (int32_t)e;
        }
    }
}

static size_t out_bytes(const struct state *state)
{
    const int64_t rows =
        state->shape.to == SY_INDEX_TE ? state->shape.tokens : state->shape.tokens * state->shape.k;
    return (size_t)(rows * state->columns) * sizeof(int32_t);
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    return memcmp(state->out[0], state->plain_out, out_bytes(state)) == 0
               ? NULL
               : "indices differ from the plain loop";
}

static void release(struct state *state)
{
    for (int64_t i = 0; state->out && i < state->n_sets; i++)
        free(state->out[i]);
    free(state->out);
    free(state->slots);
    free(state->plain_out);
    free(state->offsets);
}

/* Rows by expert, inside an expert by token: the indices of a map that bench_route makes. */
static bool permute(struct state *state)
{
    const struct shape *const s = &state->shape;
    uint8_t *const map = bench_alloc((size_t)(s->tokens * s->experts), 1);
    int64_t *const next = bench_alloc((size_t)s->experts + 1, sizeof *next);
    if (map && next) {
        bench_route(map, s->tokens, s->experts, s->k, 3);
        for (int64_t i = 0; i < s->tokens * s->experts; i++)
            state->offsets[i % s->experts + 1] += map[i];
        for (int64_t e = 0; e < s->experts; e++)
            state->offsets[e + 1] += state->offsets[e];
        memcpy(next, state->offsets, (size_t)s->experts * sizeof *next);
        for (int64_t i = 0, slot = 0; i < s->tokens * s->experts; i++)
            if (map[i])
                state->slots[slot++] = (int32_t)next[i % s->experts]++;
    }
    const bool done = map && next;
    free(map);
    free(next);
    return done;
}

static bool prepare(struct state *state)
{
    const struct shape *const s = &state->shape;
    const size_t slots = (size_t)(s->tokens * s->k);
    state->columns = s->to == SY_INDEX_TE ? 2 * s->experts + 1 : 1;
    state->n_sets = bench_sets(out_bytes(state));
    state->out = bench_alloc((size_t)state->n_sets, sizeof *state->out);
    state->slots = bench_alloc(slots, sizeof *state->slots);
    state->plain_out = bench_alloc(out_bytes(state), 1);
    state->offsets = bench_alloc((size_t)s->experts + 1, sizeof *state->offsets);
    if (!state->out || !state->slots || !state->plain_out || !state->offsets || !permute(state))
        return false;
    for (int64_t i = 0; i < state->n_sets; i++)
        if (!(state->out[i] = bench_alloc(out_bytes(state), 1)))
            return false;
    state->slots_shape[0] = s->tokens * s->k;
    state->offsets_shape[0] = s->experts + 1;
    state->out_shape[0] = s->to == SY_INDEX_TE ? s->tokens : s->tokens * s->k;
    state->out_shape[1] = state->columns;
    return true;
}

static const struct shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    const struct shape *const s = shape_at(index);
    snprintf(text, bytes, "slot to %s T=%d E=%d K=%d", s->to == SY_INDEX_TE ? "te" : "row", (int)s->tokens,
             (int)s->experts, (int)s->k);
}

static void run_case(struct bench *bench, int index, const char *name)
{
    struct state state = {.shape = *shape_at(index)};
    if (prepare(&state)) {
        const size_t read = (size_t)(state.shape.tokens * state.shape.k) * sizeof(int32_t);
        bench_measure(bench, &(struct bench_case){
                                 .op = "moe_convert_indices",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = (double)(read + out_bytes(&state)),
                                 .limit = {.copy_bytes = read, .fill_bytes = out_bytes(&state) - read},
                             });
    } else {
        bench_no_memory(bench, "moe_convert_indices", name);
    }
    release(&state);
}

const struct bench_op bench_moe_convert_indices = {"moe_convert_indices", N_FULL, N_QUICK, describe,
                                                   run_case};
