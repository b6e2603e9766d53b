/*
 * kv_translate: int32 indices to int32 slots. Must move: 4 bytes read and 4 written for every index; the table stays in
 * the caches. The limit is a copy of the indices: the time above it is the validation, done before anything is written,
 * and the table look-up.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    int64_t sequences, tokens, k, block;
};

static const struct shape full[] = {
    {1, 131072, 2048, 64}, {128, 131072, 2048, 64}, {128, 131072, 2048, 48}, {1, 131072, 131072, 64}};
static const struct shape quick[] = {{4, 32768, 512, 64}};
enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

struct state {
    struct shape shape;
    int64_t n_sets, columns;
    int32_t *indices, *slots, *plain_slots; /* [n_sets,B,k]; plain: [B,k] */
    int32_t *table;                         /* [B,columns] */
};

static int64_t asked(const struct state *state)
{
    return state->shape.sequences * state->shape.k;
}

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const int64_t at = turn % state->n_sets * asked(state);
    int64_t shape[] = {state->shape.sequences, state->shape.k};
    int64_t table_shape[] = {state->shape.sequences, state->columns};
    const DLTensor indices = sy_tensor(state->indices + at, SY_I32, 2, shape),
                   slots = sy_tensor(state->slots + at, SY_I32, 2, shape),
                   table = sy_tensor(state->table, SY_I32, 2, table_shape);
    return sy_kv_translate(ctx, &(sy_kv_translate_args){.indices = &indices,
                                                        .block_table = &table,
                                                        .block_size = state->shape.block,
                                                        .slots = &slots});
}

static void plain(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    const int32_t *const indices = state->indices + turn % state->n_sets * asked(state);
    int32_t *const slots =
        turn == 0 ? state->plain_slots : state->slots + turn % state->n_sets * asked(state);
    for (int64_t b = 0; b < s->sequences; b++)
        for (int64_t j = 0; j < s->k; j++) {
            const int64_t t = indices[b * s->k + j];
            const int64_t block = state->table[b * state->columns + t / s->block];
            slots[b * s->k + j] = (int32_t)(block * s->block + t % s->block);
        }
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    const size_t bytes = (size_t)asked(state) * sizeof *state->slots;
    return memcmp(state->slots, state->plain_slots, bytes) == 0 ? NULL : "slots differ from the plain loop";
}

static bool prepare(struct state *state)
{
    const struct shape *const s = &state->shape;
    const size_t n = (size_t)asked(state);
    uint64_t seed = 7;
    state->columns = (s->tokens + s->block - 1) / s->block;
    state->n_sets = bench_sets(n * sizeof(int32_t));
    state->indices = bench_alloc((size_t)state->n_sets * n, sizeof(int32_t));
    state->slots = bench_alloc((size_t)state->n_sets * n, sizeof(int32_t));
    state->plain_slots = bench_alloc(n, sizeof(int32_t));
    state->table = bench_alloc((size_t)(s->sequences * state->columns), sizeof(int32_t));
    if (!state->indices || !state->slots || !state->plain_slots || !state->table)
        return false;
    for (size_t i = 0; i < (size_t)state->n_sets * n; i++)
        state->indices[i] = (int32_t)(bench_random(&seed) % (uint64_t)s->tokens);
    bench_shuffle(state->table, s->sequences * state->columns, 3);
    return true;
}

static const struct shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    const struct shape *const shape = shape_at(index);
    snprintf(text, bytes, "i32 B=%d k=%d of %dk S=%d", (int)shape->sequences, (int)shape->k,
             (int)(shape->tokens / 1024), (int)shape->block);
}

static void run_case(struct bench *bench, int index, const char *name)
{
    struct state state = {.shape = *shape_at(index)};
    const size_t bytes = (size_t)asked(&state) * sizeof(int32_t);
    if (prepare(&state))
        bench_measure(bench, &(struct bench_case){
                                 .op = "kv_translate",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = 2 * (double)bytes,
                                 .limit = {.copy_bytes = bytes},
                             });
    else
        bench_no_memory(bench, "kv_translate", name);
    free(state.indices);
    free(state.slots);
    free(state.plain_slots);
    free(state.table);
}

const struct bench_op bench_kv_translate = {"kv_translate", N_FULL, N_QUICK, describe, run_case};
