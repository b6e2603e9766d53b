/*
 * kv_gather and kv_scatter of two planes: keys and values of 8 heads of 128 bf16, token by token (NHD) or head by head
 * (HND), and the latent and rope parts of 1152-byte rows. Must move: every row of both planes read and written, 4 bytes
 * of index or slot each. The limit is a copy of the dense rows.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLANES = 2, HEADS = 8, HEAD = 128, LATENT = 512, ROPE = 64, MOST_SETS = 64 };

enum kind { LATENT_ROPE, NHD, HND };

struct shape {
    enum kind kind;
    bool scatter;
    int64_t tokens, n, block; /* rows of the cache, rows selected; if equal: all, in order of their blocks */
};

static const struct shape full[] = {
    {LATENT_ROPE, false, 131072, 2048, 64}, {LATENT_ROPE, true, 131072, 8192, 64},
    {NHD, false, 32768, 2048, 64},          {NHD, false, 32768, 32768, 16},
    {NHD, true, 32768, 8192, 64},           {HND, false, 32768, 2048, 64},
    {HND, false, 32768, 32768, 16},         {HND, true, 32768, 8192, 64},
};
static const struct shape quick[] = {{HND, false, 4096, 512, 64}, {LATENT_ROPE, true, 8192, 1024, 64}};
enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

/* A plane of one pool, in elements. */
struct plane {
    int64_t start, heads, width, head_stride, row_stride, block_stride;
    int64_t shape[4], strides[4], rows_shape[3];
    int rank;
};

struct state {
    struct shape shape;
    struct plane planes[PLANES];
    int64_t pool_elements, n_sets;
    uint16_t *cache, *plain_cache, *plain_rows[PLANES], *rows[MOST_SETS][PLANES];
    int32_t *order[MOST_SETS], *table; /* [n] tokens or slots, [blocks] */
};

static int64_t row_elements(const struct plane *p)
{
    return p->heads * p->width;
}

static void describe_plane(struct plane *p, const struct shape *s, int number)
{
    const int64_t blocks = s->tokens / s->block, size = s->block;
    const int64_t row = s->kind == LATENT_ROPE ? LATENT + ROPE : HEADS * HEAD, part = LATENT;
    p->row_stride = row;
    p->block_stride = size * row;
    if (s->kind == LATENT_ROPE) {
        p->start = number * part;
        p->heads = 1;
        p->width = number ? ROPE : LATENT;
        p->rank = 3;
        memcpy(p->shape, (int64_t[]){blocks, size, p->width}, 3 * sizeof *p->shape);
        memcpy(p->strides, (int64_t[]){p->block_stride, row, 1}, 3 * sizeof *p->strides);
        memcpy(p->rows_shape, (int64_t[]){s->n, p->width}, 2 * sizeof *p->rows_shape);
        return;
    }
    p->start = number * s->tokens * row;
    p->heads = HEADS;
    p->width = p->head_stride = HEAD;
    p->rank = 4;
    memcpy(p->shape, (int64_t[]){blocks, size, HEADS, HEAD}, sizeof p->shape);
    memcpy(p->rows_shape, (int64_t[]){s->n, HEADS, HEAD}, sizeof p->rows_shape);
    if (s->kind == HND) {
        p->head_stride = size * HEAD;
        p->row_stride = HEAD;
        memcpy(p->shape, (int64_t[]){blocks, HEADS, size, HEAD}, sizeof p->shape);
    }
    const bool apart = s->kind == HND;
    memcpy(p->strides,
           (int64_t[]){p->block_stride, apart ? p->head_stride : row, apart ? HEAD : p->head_stride, 1},
           sizeof p->strides);
}

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    const int64_t set = turn % state->n_sets;
    const sy_kv_layout layout = s->kind == HND ? SY_KV_HND : SY_KV_NHD;
    DLTensor cache[PLANES], rows[PLANES];
    for (int i = 0; i < PLANES; i++) {
        struct plane *const p = &state->planes[i];
        cache[i] = sy_tensor(state->cache + p->start, SY_BF16, p->rank, p->shape);
        cache[i].strides = p->strides;
        rows[i] = sy_tensor(state->rows[set][i], SY_BF16, p->rank - 1, p->rows_shape);
    }
    const sy_kv_plane more = {.cache = &cache[1], .rows = &rows[1]};
    const DLTensor order = sy_tensor(state->order[set], SY_I32, 1, (int64_t[]){s->n}),
                   table = sy_tensor(state->table, SY_I32, 1, (int64_t[]){s->tokens / s->block});
    if (s->scatter)
        return sy_kv_scatter(ctx, &(sy_kv_scatter_args){.cache = &cache[0],
                                                        .src = &rows[0],
                                                        .slots = &order,
                                                        .planes = &more,
                                                        .plane_bytes = sizeof(sy_kv_plane),
                                                        .num_planes = 1,
                                                        .layout = layout});
    return sy_kv_gather(ctx, &(sy_kv_gather_args){.cache = &cache[0],
                                                  .indices = &order,
                                                  .block_table = &table,
                                                  .block_size = s->block,
                                                  .out = &rows[0],
                                                  .planes = &more,
                                                  .plane_bytes = sizeof(sy_kv_plane),
                                                  .num_planes = 1,
                                                  .layout = layout});
}

static void plain(void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    const int64_t set = turn % state->n_sets;
    uint16_t *const cache = turn == 0 && s->scatter ? state->plain_cache : state->cache;
    for (int i = 0; i < PLANES; i++) {
        const struct plane *const p = &state->planes[i];
        uint16_t *rows = turn == 0 && !s->scatter ? state->plain_rows[i] : state->rows[set][i];
        for (int64_t j = 0; j < s->n; j++) {
            const int64_t t = state->order[set][j];
            const int64_t block = s->scatter ? t / s->block : state->table[t / s->block];
            uint16_t *const at = cache + p->start + block * p->block_stride + t % s->block * p->row_stride;
            for (int64_t h = 0; h < p->heads; h++, rows += p->width)
                memcpy(s->scatter ? at + h * p->head_stride : rows,
                       s->scatter ? rows : at + h * p->head_stride, (size_t)p->width * sizeof *rows);
        }
    }
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    if (state->shape.scatter)
        return memcmp(state->cache, state->plain_cache, (size_t)state->pool_elements * 2) == 0
                   ? NULL
                   : "cache differs from the plain loop";
    for (int i = 0; i < PLANES; i++) {
        const size_t bytes = (size_t)(state->shape.n * row_elements(&state->planes[i])) * 2;
        if (memcmp(state->rows[0][i], state->plain_rows[i], bytes) != 0)
            return "out differs from the plain loop";
    }
    return NULL;
}

static void release(struct state *state)
{
    for (int64_t set = 0; set < state->n_sets; set++)
        free(state->order[set]);
    for (int i = 0; i < PLANES; i++) {
        for (int64_t set = 0; set < state->n_sets; set++)
            free(state->rows[set][i]);
        free(state->plain_rows[i]);
    }
    free(state->cache);
    free(state->plain_cache);
    free(state->table);
}

/* Random tokens, distinct slots: the next of a shuffled order of all; or all in order. */
static void choose(const struct state *state, const int32_t *shuffled, int64_t set)
{
    const struct shape *const s = &state->shape;
    for (int64_t j = 0; j < s->n; j++)
        state->order[set][j] = s->n == s->tokens ? (int32_t)j : shuffled[(set * s->n + j) % s->tokens];
}

static bool prepare_sets(struct state *state, const int32_t *shuffled)
{
    const struct shape *const s = &state->shape;
    for (int64_t set = 0; set < state->n_sets; set++) {
        state->order[set] = bench_alloc((size_t)s->n, sizeof **state->order);
        if (!state->order[set])
            return false;
        choose(state, shuffled, set);
        for (int i = 0; i < PLANES; i++) {
            const size_t elements = (size_t)(s->n * row_elements(&state->planes[i]));
            state->rows[set][i] = bench_alloc(elements, 2);
            if (!state->rows[set][i])
                return false;
            bench_fill_random(state->rows[set][i], 2 * elements, 7 + (uint64_t)set);
        }
    }
    return true;
}

static bool prepare(struct state *state)
{
    const struct shape *const s = &state->shape;
    for (int i = 0; i < PLANES; i++)
        describe_plane(&state->planes[i], s, i);
    state->pool_elements = s->tokens * (s->kind == LATENT_ROPE ? LATENT + ROPE : PLANES * HEADS * HEAD);
    const int64_t elements = row_elements(&state->planes[0]) + row_elements(&state->planes[1]);
    const int64_t sets = bench_sets((size_t)(s->n * elements) * 2);
    state->n_sets = sets < MOST_SETS ? sets : MOST_SETS;
    state->cache = bench_alloc((size_t)state->pool_elements, 2);
    state->plain_cache = s->scatter ? bench_alloc((size_t)state->pool_elements, 2) : NULL;
    state->table = bench_alloc((size_t)(s->tokens / s->block), sizeof *state->table);
    bool made = state->cache && state->table && (state->plain_cache || !s->scatter);
    for (int i = 0; i < PLANES; i++) {
        state->plain_rows[i] = bench_alloc((size_t)(s->n * row_elements(&state->planes[i])), 2);
        made = made && state->plain_rows[i];
    }
    int32_t *const shuffled = bench_alloc((size_t)s->tokens, sizeof *shuffled);
    if (made && shuffled) {
        bench_shuffle(shuffled, s->tokens, 5);
        bench_shuffle(state->table, s->tokens / s->block, 3);
        made = prepare_sets(state, shuffled);
    }
    if (made && shuffled && !s->scatter)
        bench_fill_random(state->cache, (size_t)state->pool_elements * 2, 29);
    made = made && shuffled;
    free(shuffled);
    return made;
}

static const struct shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    static const char *const kinds[] = {"1024+128 B", "2 x 2048 B NHD", "2 x 2048 B HND"};
    const struct shape *const s = shape_at(index);
    snprintf(text, bytes, "%s %s%d of %dk S=%d", kinds[s->kind], s->scatter ? "n=" : "k=", (int)s->n,
             (int)(s->tokens / 1024), (int)s->block);
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
        const int64_t elements = row_elements(&state->planes[0]) + row_elements(&state->planes[1]);
        const size_t dense = (size_t)(state->shape.n * elements) * 2;
        bench_measure(bench, &(struct bench_case){
                                 .op = op,
                                 .shape = name,
                                 .state = state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = 2 * (double)dense + 4.0 * (double)state->shape.n,
                                 .limit = {.copy_bytes = dense},
                             });
    } else {
        bench_no_memory(bench, op, name);
    }
    if (state)
        release(state);
    free(state);
}

const struct bench_op bench_kv_planes = {"kv_planes", N_FULL, N_QUICK, describe, run_case};
