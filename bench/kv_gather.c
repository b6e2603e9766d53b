/*
 * kv_gather of 1152-byte rows (the latent rows of multi-head latent attention in bf16). Must move: every
 * selected row read and written, 4 bytes of index each. The limit is a copy of the output; random rows cannot
 * reach it, whole sequences can.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peers.h"

enum { ROW_ELEMENTS = 576, ROW_BYTES = 2 * ROW_ELEMENTS };

struct shape {
    int64_t sequences, tokens, k, block; /* tokens per sequence; k = tokens: the whole sequence in order */
};

static const struct shape full[] = {
    {1, 131072, 2048, 64},
    {16, 131072, 2048, 64},
    {1, 65536, 65536, 128},
    {1, 65536, 65536, 16},
};
static const struct shape quick[] = {{1, 32768, 1024, 64}, {1, 8192, 8192, 16}};
enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

struct set {
    int32_t *indices; /* [B,k]   */
    uint16_t *rows;   /* [B,k,D] */
    int64_t indices_shape[2], rows_shape[3];
    DLTensor indices_view, rows_view;
};

struct state {
    struct shape shape;
    int64_t n_sets;
    struct set *sets;
    uint16_t *cache; /* [sequences*tokens, D] */
    int32_t *table;  /* [B, tokens/S] */
    uint16_t *plain_rows;
    int64_t cache_shape[2], table_shape[2];
    DLTensor cache_view, table_view;
};

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct set *const set = &state->sets[turn % state->n_sets];
    return sy_kv_gather(ctx, &(sy_kv_gather_args){.cache = &state->cache_view,
                                                  .indices = &set->indices_view,
                                                  .block_table = &state->table_view,
                                                  .block_size = state->shape.block,
                                                  .out = &set->rows_view});
}

static void plain(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    const struct set *const set = &state->sets[turn % state->n_sets];
    uint16_t *const rows = turn == 0 ? state->plain_rows : set->rows;
    const int64_t blocks = s->tokens / s->block;
    for (int64_t b = 0; b < s->sequences; b++)
        for (int64_t j = 0; j < s->k; j++) {
            const int64_t t = set->indices[b * s->k + j];
            const int64_t row = state->table[b * blocks + t / s->block] * s->block + t % s->block;
            memcpy(rows + (b * s->k + j) * ROW_ELEMENTS, state->cache + row * ROW_ELEMENTS, ROW_BYTES);
        }
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    const size_t bytes = (size_t)(state->shape.sequences * state->shape.k) * ROW_BYTES;
    return memcmp(state->sets[0].rows, state->plain_rows, bytes) == 0 ? NULL
                                                                      : "out differs from the plain loop";
}

static void release(struct state *state)
{
    for (int64_t i = 0; state->sets && i < state->n_sets; i++) {
        free(state->sets[i].indices);
        free(state->sets[i].rows);
    }
    free(state->sets);
    free(state->cache);
    free(state->table);
    free(state->plain_rows);
}

static bool prepare_sets(struct state *state)
{
    const struct shape *const s = &state->shape;
    const size_t asked = (size_t)(s->sequences * s->k);
    state->n_sets = bench_sets(asked * ROW_BYTES);
    state->sets = bench_alloc((size_t)state->n_sets, sizeof *state->sets);
    for (int64_t i = 0; state->sets && i < state->n_sets; i++) {
        struct set *const set = &state->sets[i];
        set->indices = bench_alloc(asked, sizeof *set->indices);
        set->rows = bench_alloc(asked, ROW_BYTES);
        if (!set->indices || !set->rows)
            return false;
        uint64_t seed = 23 + (uint64_t)i;
        for (size_t j = 0; j < asked; j++)
            set->indices[j] = s->k == s->tokens ? (int32_t)((int64_t)j % s->k)
                                                : (int32_t)(bench_random(&seed) % (uint64_t)s->tokens);
        memset(set->rows, 0xa5, asked * ROW_BYTES);
        memcpy(set->indices_shape, (int64_t[]){s->sequences, s->k}, sizeof set->indices_shape);
        memcpy(set->rows_shape, (int64_t[]){s->sequences, s->k, ROW_ELEMENTS}, sizeof set->rows_shape);
        set->indices_view = sy_tensor(set->indices, SY_I32, 2, set->indices_shape);
        set->rows_view = sy_tensor(set->rows, SY_BF16, 3, set->rows_shape);
    }
    return state->sets != NULL;
}

static bool prepare(struct state *state)
{
    const struct shape *const s = &state->shape;
    const int64_t rows = s->sequences * s->tokens, blocks = rows / s->block;
    state->cache = bench_alloc((size_t)rows, ROW_BYTES);
    state->table = bench_alloc((size_t)blocks, sizeof *state->table);
    state->plain_rows = bench_alloc((size_t)(s->sequences * s->k), ROW_BYTES);
    if (!state->cache || !state->table || !state->plain_rows || !prepare_sets(state))
        return false;
    bench_fill_random(state->cache, (size_t)rows * ROW_BYTES, 29);
    /* Blocks of all sequences are shuffled in the pool, as they are after an engine has run for a while. */
    bench_shuffle(state->table, blocks, 3);
    memcpy(state->cache_shape, (int64_t[]){rows, ROW_ELEMENTS}, sizeof state->cache_shape);
    memcpy(state->table_shape, (int64_t[]){s->sequences, s->tokens / s->block}, sizeof state->table_shape);
    state->cache_view = sy_tensor(state->cache, SY_BF16, 2, state->cache_shape);
    state->table_view = sy_tensor(state->table, SY_I32, 2, state->table_shape);
    return true;
}

static const struct shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    const struct shape *const shape = shape_at(index);
    snprintf(text, bytes, "1152 B B=%d k=%d of %dk S=%d", (int)shape->sequences, (int)shape->k,
             (int)(shape->tokens / 1024), (int)shape->block);
}

void peers_kv_gather(int index, struct emit *json)
{
    const struct shape *const shape = shape_at(index);
    emit_integer(json, "sequences", shape->sequences);
    emit_integer(json, "tokens", shape->tokens);
    emit_integer(json, "k", shape->k);
    emit_integer(json, "block", shape->block);
    emit_integer(json, "row_elements", ROW_ELEMENTS);
}

static void run_case(struct bench *bench, int index, const char *name)
{
    const struct shape *const shape = shape_at(index);
    struct state state = {.shape = *shape};
    const size_t out_bytes = (size_t)(shape->sequences * shape->k) * ROW_BYTES;
    if (prepare(&state))
        bench_measure(bench, &(struct bench_case){
                                 .op = "kv_gather",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = 2 * (double)out_bytes + 4.0 * (double)(shape->sequences * shape->k),
                                 .limit = {.copy_bytes = out_bytes},
                             });
    else
        bench_no_memory(bench, "kv_gather", name);
    release(&state);
}

const struct bench_op bench_kv_gather = {"kv_gather", N_FULL, N_QUICK, describe, run_case};
