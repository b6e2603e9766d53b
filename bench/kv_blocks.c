/*
 * kv_blocks of 64 rows of 1152 bytes: random blocks to other random blocks of the same cache. Must move: every block
 * read and written. The limit is a copy of as many bytes.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_ELEMENTS = 64 * 576, BLOCK_BYTES = 2 * BLOCK_ELEMENTS, BLOCKS = 4096 };

static const int64_t full[] = {4, 64, 1024}, quick[] = {64};
enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

struct state {
    int64_t n, n_sets;
    uint16_t *cache, *plain_cache; /* [BLOCKS, 64, 576] */
    int32_t *pairs;                /* [n_sets, n, 2] */
};

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const DLTensor cache = sy_tensor(state->cache, SY_BF16, 3, (int64_t[]){BLOCKS, 64, 576}),
                   pairs = sy_tensor(state->pairs + turn % state->n_sets * state->n * 2, SY_I32, 2,
                                     (int64_t[]){state->n, 2});
    return sy_kv_blocks(ctx, &(sy_kv_blocks_args){.cache = &cache, .pairs = &pairs});
}

static void plain(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    uint16_t *const cache = turn == 0 ? state->plain_cache : state->cache;
    const int32_t *const pairs = state->pairs + turn % state->n_sets * state->n * 2;
    for (int64_t i = 0; i < state->n; i++)
        memcpy(cache + (int64_t)pairs[2 * i + 1] * BLOCK_ELEMENTS,
               cache + (int64_t)pairs[2 * i] * BLOCK_ELEMENTS, BLOCK_BYTES);
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    return memcmp(state->cache, state->plain_cache, (size_t)BLOCKS * BLOCK_BYTES) == 0
               ? NULL
               : "cache differs from the plain loop";
}

/* Of a shuffled list of all blocks the first are read and the next written; each set has its own. */
static bool prepare(struct state *state)
{
    state->n_sets = BLOCKS / (2 * state->n);
    state->cache = bench_alloc(BLOCKS, BLOCK_BYTES);
    state->plain_cache = bench_alloc(BLOCKS, BLOCK_BYTES);
    state->pairs = bench_alloc(BLOCKS, sizeof *state->pairs);
    if (!state->cache || !state->plain_cache || !state->pairs)
        return false;
    bench_shuffle(state->pairs, BLOCKS, 3);
    bench_fill_random(state->cache, (size_t)BLOCKS * BLOCK_BYTES, 29);
    memcpy(state->plain_cache, state->cache, (size_t)BLOCKS * BLOCK_BYTES);
    return true;
}

static int64_t pairs_at(int index)
{
    return index < N_FULL ? full[index] : quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    snprintf(text, bytes, "72 KiB n=%d of %d", (int)pairs_at(index), BLOCKS);
}

static void run_case(struct bench *bench, int index, const char *name)
{
    struct state state = {.n = pairs_at(index)};
    const size_t bytes = (size_t)state.n * BLOCK_BYTES;
    if (prepare(&state))
        bench_measure(bench, &(struct bench_case){
                                 .op = "kv_blocks",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = 2 * (double)bytes,
                                 .limit = {.copy_bytes = bytes},
                             });
    else
        bench_no_memory(bench, "kv_blocks", name);
    free(state.cache);
    free(state.plain_cache);
    free(state.pairs);
}

const struct bench_op bench_kv_blocks = {"kv_blocks", N_FULL, N_QUICK, describe, run_case};
