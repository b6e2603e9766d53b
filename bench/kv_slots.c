/*
 * kv_slots: int32 pairs of sequence and position to int32 slots. Must move: 8 bytes read and 4 written for every token.
 * The limit is a copy of half of them.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 128, TOKENS = 131072, BLOCK = 64, COLUMNS = TOKENS / BLOCK };

static const int64_t full[] = {128, 8192, 262144}, quick[] = {1024};
enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

struct state {
    int64_t n, n_sets;
    int32_t *batch, *position, *slots; /* [n_sets,n] */
    int32_t *plain_slots, *table;      /* [n], [SEQUENCES,COLUMNS] */
};

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const int64_t at = turn % state->n_sets * state->n;
    int64_t shape[] = {state->n}, table_shape[] = {SEQUENCES, COLUMNS};
    const DLTensor batch = sy_tensor(state->batch + at, SY_I32, 1, shape),
                   position = sy_tensor(state->position + at, SY_I32, 1, shape),
                   slots = sy_tensor(state->slots + at, SY_I32, 1, shape),
                   table = sy_tensor(state->table, SY_I32, 2, table_shape);
    return sy_kv_slots(ctx, &(sy_kv_slots_args){.batch = &batch,
                                                .position = &position,
                                                .block_table = &table,
                                                .block_size = BLOCK,
                                                .slots = &slots});
}

static void plain(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const int64_t at = turn % state->n_sets * state->n;
    int32_t *const slots = turn == 0 ? state->plain_slots : state->slots + at;
    for (int64_t i = 0; i < state->n; i++) {
        const int64_t t = state->position[at + i];
        const int64_t block = state->table[(int64_t)state->batch[at + i] * COLUMNS + t / BLOCK];
        slots[i] = (int32_t)(block * BLOCK + t % BLOCK);
    }
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    const size_t bytes = (size_t)state->n * sizeof *state->slots;
    return memcmp(state->slots, state->plain_slots, bytes) == 0 ? NULL : "slots differ from the plain loop";
}

/* The tokens of one sequence after the other, equally many of each, from a random start. */
static void fill_tokens(struct state *state, size_t n)
{
    uint64_t seed = 7;
    const size_t each = (size_t)(state->n + SEQUENCES - 1) / SEQUENCES;
    for (size_t i = 0; i < n; i++) {
        const size_t in_set = i % (size_t)state->n;
        state->batch[i] = (int32_t)(in_set / each);
        state->position[i] = in_set % each > 0 ? (state->position[i - 1] + 1) % TOKENS
                                               : (int32_t)(bench_random(&seed) % TOKENS);
    }
}

static bool prepare(struct state *state)
{
    state->n_sets = bench_sets((size_t)state->n * 2 * sizeof(int32_t));
    const size_t n = (size_t)(state->n_sets * state->n);
    state->batch = bench_alloc(n, sizeof(int32_t));
    state->position = bench_alloc(n, sizeof(int32_t));
    state->slots = bench_alloc(n, sizeof(int32_t));
    state->plain_slots = bench_alloc((size_t)state->n, sizeof(int32_t));
    state->table = bench_alloc((size_t)SEQUENCES * COLUMNS, sizeof(int32_t));
    if (!state->batch || !state->position || !state->slots || !state->plain_slots || !state->table)
        return false;
    fill_tokens(state, n);
    bench_shuffle(state->table, (int64_t)SEQUENCES * COLUMNS, 3);
    return true;
}

static int64_t tokens_at(int index)
{
    return index < N_FULL ? full[index] : quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    snprintf(text, bytes, "i32 n=%d of %d x %dk S=%d", (int)tokens_at(index), SEQUENCES, TOKENS / 1024,
             BLOCK);
}

static void run_case(struct bench *bench, int index, const char *name)
{
    struct state state = {.n = tokens_at(index)};
    const size_t bytes = (size_t)state.n * 3 * sizeof(int32_t);
    if (prepare(&state))
        bench_measure(bench, &(struct bench_case){
                                 .op = "kv_slots",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = (double)bytes,
                                 .limit = {.copy_bytes = bytes / 2},
                             });
    else
        bench_no_memory(bench, "kv_slots", name);
    free(state.batch);
    free(state.position);
    free(state.slots);
    free(state.plain_slots);
    free(state.table);
}

const struct bench_op bench_kv_slots = {"kv_slots", N_FULL, N_QUICK, describe, run_case};
