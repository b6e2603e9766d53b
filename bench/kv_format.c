/*
 * kv_gather and kv_scatter of packed rows: 656 bytes of codes, scales and rope in the cache, 576 bf16 numbers outside.
 * Must move: packed rows on one side, dense ones on the other, 4 bytes of index or slot each. The limit of a gather is a
 * copy of the packed bytes and a fill of what dense rows have beyond them, of a scatter a copy that moves as much.
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CODES = 512, GROUP = 128, ROPE = 64, DENSE = CODES + ROPE, PACKED = 656, BLOCK = 64, MOST_SETS = 64 };

struct shape {
    const char *format;
    bool scatter;
    int64_t tokens, n; /* rows of the cache, rows selected */
};

static const struct shape full[] = {
    {"ds32_fp8", false, 131072, 2048},
    {"pto_int8", false, 131072, 2048},
    {"pto_int8", true, 131072, 8192},
};
static const struct shape quick[] = {{"ds32_fp8", false, 4096, 512}, {"pto_int8", true, 4096, 512}};
enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

struct state {
    struct shape shape;
    sy_kv_format format;
    float value[256]; /* of each code */
    int64_t n_sets;
    unsigned char *cache, *plain_cache;
    uint16_t *rows[MOST_SETS], *plain_rows;
    int32_t *order[MOST_SETS], *table; /* [n] tokens or slots, [blocks] */
};

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    const int64_t set = turn % state->n_sets;
    const DLTensor cache = sy_tensor(state->cache, SY_U8, 2, (int64_t[]){s->tokens, PACKED}),
                   rows = sy_tensor(state->rows[set], SY_BF16, 2, (int64_t[]){s->n, DENSE}),
                   order = sy_tensor(state->order[set], SY_I32, 1, (int64_t[]){s->n}),
                   table = sy_tensor(state->table, SY_I32, 1, (int64_t[]){s->tokens / BLOCK});
    if (s->scatter)
        return sy_kv_scatter(
            ctx,
            &(sy_kv_scatter_args){.cache = &cache, .src = &rows, .slots = &order, .format = &state->format});
    return sy_kv_gather(ctx, &(sy_kv_gather_args){.cache = &cache,
                                                  .indices = &order,
                                                  .block_table = &table,
                                                  .block_size = BLOCK,
                                                  .out = &rows,
                                                  .format = &state->format});
}

static void unpack(const struct state *state, uint16_t *dense, const unsigned char *row)
{
    for (int i = 0; i < CODES; i++) {
        float scale;
        memcpy(&scale, row + state->format.scale_off + (ptrdiff_t)(i / GROUP) * 4, sizeof scale);
        dense[i] = bench_bf16_round(state->value[row[i]] * scale);
    }
    memcpy(dense + CODES, row + state->format.rope_off, ROPE * sizeof *dense);
}

/* Of int8 rows. */
static void pack(const struct state *state, unsigned char *row, const uint16_t *dense)
{
    for (int g = 0; g < CODES / GROUP; g++) {
        float most = 1e-8f;
        for (int i = 0; i < GROUP; i++)
            most = fmaxf(most, fabsf(bench_bf16_value(dense[g * GROUP + i])));
        const float scale = most / 127;
        for (int i = 0; i < GROUP; i++)
            row[g * GROUP + i] = (unsigned char)(int)rintf(bench_bf16_value(dense[g * GROUP + i]) / scale);
        memcpy(row + state->format.scale_off + (ptrdiff_t)g * 4, &scale, sizeof scale);
    }
    memcpy(row + state->format.rope_off, dense + CODES, ROPE * sizeof *dense);
}

static void plain(void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    const int64_t set = turn % state->n_sets;
    unsigned char *const cache = turn == 0 && s->scatter ? state->plain_cache : state->cache;
    uint16_t *const rows = turn == 0 && !s->scatter ? state->plain_rows : state->rows[set];
    for (int64_t j = 0; j < s->n; j++) {
        const int64_t t = state->order[set][j];
        if (s->scatter)
            pack(state, cache + t * PACKED, rows + j * DENSE);
        else
            unpack(state, rows + j * DENSE,
                   cache + ((int64_t)state->table[t / BLOCK] * BLOCK + t % BLOCK) * PACKED);
    }
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    if (s->scatter)
        return memcmp(state->cache, state->plain_cache, (size_t)s->tokens * PACKED) == 0
                   ? NULL
                   : "cache differs from the plain loop";
    return memcmp(state->rows[0], state->plain_rows, (size_t)s->n * DENSE * 2) == 0
               ? NULL
               : "out differs from the plain loop";
}

static void release(struct state *state)
{
    for (int64_t set = 0; set < state->n_sets; set++) {
        free(state->order[set]);
        free(state->rows[set]);
    }
    free(state->cache);
    free(state->plain_cache);
    free(state->plain_rows);
    free(state->table);
}

/* Sign, four bits of exponent, three of fraction. */
static float e4m3_value(int code)
{
    const int exponent = code >> 3 & 15, fraction = code & 7;
    const float size =
        exponent == 0 ? ldexpf((float)fraction, -9) : ldexpf((float)(8 + fraction), exponent - 10);
    return code & 128 ? -size : size;
}

/* Codes that are numbers, and scales from 2^-7 up to 2^-6. */
static void fill_cache(struct state *state)
{
    const bool fp8 = strcmp(state->shape.format, "ds32_fp8") == 0;
    for (int code = 0; code < 256; code++)
        state->value[code] = fp8 ? e4m3_value(code) : (float)(code < 128 ? code : code - 256);
    if (state->shape.scatter)
        return;
    uint64_t seed = 17;
    for (int64_t t = 0; t < state->shape.tokens; t++) {
        unsigned char *const row = state->cache + t * PACKED;
        bench_fill_random(row, PACKED, bench_random(&seed));
        for (int i = 0; i < CODES; i++)
            row[i] = fp8 && (row[i] & 127) == 127 ? 0 : row[i];
        for (int g = 0; g < CODES / GROUP; g++) {
            const float scale = ldexpf(1 + (float)bench_unit(&seed), -7);
            memcpy(row + state->format.scale_off + (ptrdiff_t)g * 4, &scale, sizeof scale);
        }
    }
}

static bool prepare_sets(struct state *state, const int32_t *shuffled)
{
    const struct shape *const s = &state->shape;
    for (int64_t set = 0; set < state->n_sets; set++) {
        state->order[set] = bench_alloc((size_t)s->n, sizeof **state->order);
        state->rows[set] = bench_alloc((size_t)s->n * DENSE, sizeof **state->rows);
        if (!state->order[set] || !state->rows[set])
            return false;
        for (int64_t j = 0; j < s->n; j++)
            state->order[set][j] = shuffled[(set * s->n + j) % s->tokens];
        bench_fill_bf16(state->rows[set], (size_t)s->n * DENSE, 7 + (uint64_t)set);
    }
    return true;
}

static bool prepare(struct state *state)
{
    const struct shape *const s = &state->shape;
    const int64_t sets = bench_sets((size_t)s->n * DENSE * 2);
    state->n_sets = sets < MOST_SETS ? sets : MOST_SETS;
    state->cache = bench_alloc((size_t)s->tokens, PACKED);
    state->plain_cache = s->scatter ? bench_alloc((size_t)s->tokens, PACKED) : NULL;
    state->plain_rows = bench_alloc((size_t)s->n * DENSE, sizeof *state->plain_rows);
    state->table = bench_alloc((size_t)(s->tokens / BLOCK), sizeof *state->table);
    int32_t *const shuffled = bench_alloc((size_t)s->tokens, sizeof *shuffled);
    bool made = state->cache && (state->plain_cache || !s->scatter) && state->plain_rows && state->table &&
                shuffled && sy_kv_format_named(s->format, &state->format) == SY_OK;
    if (made) {
        bench_shuffle(shuffled, s->tokens, 5);
        bench_shuffle(state->table, s->tokens / BLOCK, 3);
        fill_cache(state);
        made = prepare_sets(state, shuffled);
    }
    free(shuffled);
    return made;
}

static const struct shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    const struct shape *const s = shape_at(index);
    snprintf(text, bytes, "%s %s%d of %dk S=%d", s->format, s->scatter ? "n=" : "k=", (int)s->n,
             (int)(s->tokens / 1024), BLOCK);
}

static void run_case(struct bench *bench, int index, const char *name)
{
    struct state *const state = calloc(1, sizeof *state);
    const char *const op = shape_at(index)->scatter ? "kv_scatter" : "kv_gather";
    bool made = false;
    if (state) {
        state->shape = *shape_at(index);
        made = prepare(state);
    }
    if (made) {
        const size_t n = (size_t)state->shape.n, moved = n * (PACKED + 2 * DENSE);
        const struct bench_work gather = {.copy_bytes = n * PACKED, .fill_bytes = n * (2 * DENSE - PACKED)};
        const struct bench_work scatter = {.copy_bytes = moved / 2};
        bench_measure(bench, &(struct bench_case){
                                 .op = op,
                                 .shape = name,
                                 .state = state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = (double)(moved + 4 * n),
                                 .limit = state->shape.scatter ? scatter : gather,
                             });
    } else {
        bench_no_memory(bench, op, name);
    }
    if (state)
        release(state);
    free(state);
}

const struct bench_op bench_kv_format = {"kv_format", N_FULL, N_QUICK, describe, run_case};
