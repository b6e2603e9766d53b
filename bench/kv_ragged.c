/*
 * kv_ragged of 1152-byte rows (the latent rows of multi-head latent attention in bf16): the last tokens of every
 * sequence, from the middle of a page on. Must move: every row read and written. The limit is a copy of the output.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_ELEMENTS = 576, ROW_BYTES = 2 * ROW_ELEMENTS };

struct shape {
    int64_t sequences, tokens, block; /* tokens selected of each sequence; it has as many more */
};

static const struct shape full[] = {
    {1, 65536, 128}, {1, 65536, 16}, {16, 4096, 64}, {128, 512, 64}, {256, 16, 16}};
static const struct shape quick[] = {{8, 1024, 64}};
enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

struct state {
    struct shape shape;
    int64_t n_sets;
    uint16_t **rows; /* [n_sets] of [B*tokens, D] */
    uint16_t *cache, *plain_rows;
    int32_t *table, *starts, *cu_lens;
};

static int64_t rows_of(const struct shape *s)
{
    return s->sequences * s->tokens;
}

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    const int64_t columns = 2 * s->tokens / s->block;
    const DLTensor cache = sy_tensor(state->cache, SY_BF16, 2, (int64_t[]){2 * rows_of(s), ROW_ELEMENTS}),
                   table = sy_tensor(state->table, SY_I32, 2, (int64_t[]){s->sequences, columns}),
                   starts = sy_tensor(state->starts, SY_I32, 1, (int64_t[]){s->sequences}),
                   cu_lens = sy_tensor(state->cu_lens, SY_I32, 1, (int64_t[]){s->sequences + 1}),
                   out = sy_tensor(state->rows[turn % state->n_sets], SY_BF16, 2,
                                   (int64_t[]){rows_of(s), ROW_ELEMENTS});
    return sy_kv_ragged(ctx, &(sy_kv_ragged_args){.cache = &cache,
                                                  .block_table = &table,
                                                  .cu_lens = &cu_lens,
                                                  .starts = &starts,
                                                  .block_size = s->block,
                                                  .out = &out});
}

static void plain(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    uint16_t *const rows = turn == 0 ? state->plain_rows : state->rows[turn % state->n_sets];
    const int64_t columns = 2 * s->tokens / s->block;
    for (int64_t b = 0; b < s->sequences; b++)
        for (int64_t u = 0; u < s->tokens; u++) {
            const int64_t t = state->starts[b] + u;
            const int64_t row = state->table[b * columns + t / s->block] * s->block + t % s->block;
            memcpy(rows + (state->cu_lens[b] + u) * ROW_ELEMENTS, state->cache + row * ROW_ELEMENTS,
                   ROW_BYTES);
        }
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    const size_t bytes = (size_t)rows_of(&state->shape) * ROW_BYTES;
    return memcmp(state->rows[0], state->plain_rows, bytes) == 0 ? NULL : "out differs from the plain loop";
}

static void release(struct state *state)
{
    for (int64_t i = 0; state->rows && i < state->n_sets; i++)
        free(state->rows[i]);
    free(state->rows);
    free(state->cache);
    free(state->plain_rows);
    free(state->table);
    free(state->starts);
    free(state->cu_lens);
}

static bool prepare(struct state *state)
{
    const struct shape *const s = &state->shape;
    const int64_t rows = rows_of(s), blocks = 2 * rows / s->block;
    state->n_sets = bench_sets((size_t)rows * ROW_BYTES);
    state->rows = bench_alloc((size_t)state->n_sets, sizeof *state->rows);
    state->cache = bench_alloc((size_t)(2 * rows), ROW_BYTES);
    state->plain_rows = bench_alloc((size_t)rows, ROW_BYTES);
    state->table = bench_alloc((size_t)blocks, sizeof *state->table);
    state->starts = bench_alloc((size_t)s->sequences, sizeof *state->starts);
    state->cu_lens = bench_alloc((size_t)s->sequences + 1, sizeof *state->cu_lens);
    if (!state->rows || !state->cache || !state->plain_rows || !state->table || !state->starts ||
        !state->cu_lens)
        return false;
    for (int64_t i = 0; i < state->n_sets; i++) {
        state->rows[i] = bench_alloc((size_t)rows, ROW_BYTES);
        if (!state->rows[i])
            return false;
        memset(state->rows[i], 0xa5, (size_t)rows * ROW_BYTES);
    }
    bench_fill_random(state->cache, (size_t)(2 * rows) * ROW_BYTES, 29);
    /* Blocks of all sequences are shuffled in the pool, as they are after an engine has run for a while. */
    bench_shuffle(state->table, blocks, 3);
    state->cu_lens[0] = 0;
    for (int64_t b = 0; b < s->sequences; b++) {
        state->starts[b] = (int32_t)(s->tokens - 1 - b * 7 % s->block % s->tokens);
        state->cu_lens[b + 1] = (int32_t)((b + 1) * s->tokens);
    }
    return true;
}

static const struct shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    const struct shape *const shape = shape_at(index);
    snprintf(text, bytes, "1152 B B=%d n=%d S=%d", (int)shape->sequences, (int)shape->tokens,
             (int)shape->block);
}

static void run_case(struct bench *bench, int index, const char *name)
{
    struct state state = {.shape = *shape_at(index)};
    const size_t out_bytes = (size_t)rows_of(&state.shape) * ROW_BYTES;
    if (prepare(&state))
        bench_measure(bench, &(struct bench_case){
                                 .op = "kv_ragged",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = 2 * (double)out_bytes,
                                 .limit = {.copy_bytes = out_bytes},
                             });
    else
        bench_no_memory(bench, "kv_ragged", name);
    release(&state);
}

const struct bench_op bench_kv_ragged = {"kv_ragged", N_FULL, N_QUICK, describe, run_case};
