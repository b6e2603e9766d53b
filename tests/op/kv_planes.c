/*
 * Several planes in one call of kv_gather and kv_scatter: as if each had a call of its own, whatever their types, widths
 * and layouts, and whether they are tensors of their own or parts of one; and nothing is written to any of them when
 * something is wrong.
 */
#include "support.h"

#define L(...) ((const int64_t[]){__VA_ARGS__})

/* ---- Planes of any kind ------------------------------------------------------------------------------------- */

enum { MOST_PLANES = 12 };

struct fixture {
    int n_planes;
    int64_t blocks, block_size, batch, k, columns;
    sy_kv_pad pad;
    struct tensor cache[MOST_PLANES], rows[MOST_PLANES], indices, table, slots;
    sy_kv_plane more[MOST_PLANES];
};

/* A plane of type, width and layout chosen by its number: flat, paged, with gaps, with two dimensions in a row. */
static void make_plane(struct fixture *f, int i, uint64_t *rng)
{
    static const DLDataType types[] = {
        {kDLBfloat, 16, 1}, {kDLFloat, 32, 1}, {kDLUInt, 8, 1}, {kDLFloat, 64, 1}};
    const DLDataType type = types[i % 4];
    const int64_t width = 1 + rng_below(rng, 40), rows = f->blocks * f->block_size;
    const struct layout at = {.inner = i % 3 == 2 ? 2 : 1,
                              .row_gap = i % 2 ? 3 : 0,
                              .outer_gap = i % 3 ? 7 : 0,
                              .misalign = (size_t)i};
    const struct layout dense = {.inner = at.inner, .row_gap = i % 4 == 3 ? 5 : 0};
    if (i % 3 == 0)
        tensor_make(&f->cache[i], type, 2, L(rows, width), &(struct layout){.row_gap = at.row_gap});
    else if (i % 3 == 1)
        tensor_make(&f->cache[i], type, 3, L(f->blocks, f->block_size, width), &at);
    else
        tensor_make(&f->cache[i], type, 4, L(f->blocks, f->block_size, 2, width), &at);
    if (i % 3 == 2)
        tensor_make(&f->rows[i], type, 4, L(f->batch, f->k, 2, width), &dense);
    else
        tensor_make(&f->rows[i], type, 3, L(f->batch, f->k, width), &dense);
    rng_fill(rng, f->cache[i].mem, f->cache[i].bytes);
    rng_fill(rng, f->rows[i].mem, f->rows[i].bytes);
    if (i > 0)
        f->more[i - 1] = (sy_kv_plane){.cache = &f->cache[i].t, .rows = &f->rows[i].t};
}

static void fixture_make(struct fixture *f, uint64_t *rng)
{
    const int64_t n = f->batch * f->k, tokens = f->columns * f->block_size;
    int32_t *indices = calloc((size_t)n + 1, 4), *slots = calloc((size_t)n + 1, 4),
            *table = calloc((size_t)(f->batch * f->columns) + 1, 4);
    assert_true(indices && slots && table);
    for (int i = 0; i < f->n_planes; i++)
        make_plane(f, i, rng);
    for (int64_t i = 0; i < f->batch * f->columns; i++)
        table[i] = (int32_t)rng_below(rng, f->blocks);
    for (int64_t i = 0; i < n; i++) {
        const bool padding = f->pad != SY_PAD_ERROR && rng_below(rng, 6) == 0;
        const bool goes_on = i > 0 && indices[i - 1] >= 0 && rng_below(rng, 3) > 0;
        indices[i] = (int32_t)(padding   ? -1
                               : goes_on ? (indices[i - 1] + 1) % tokens
                                         : rng_below(rng, tokens));
        slots[i] = padding ? -1 : (int32_t)(i * 7 % (f->blocks * f->block_size));
    }
    tensor_make(&f->indices, SY_I32, 2, L(f->batch, f->k), NULL);
    tensor_make(&f->slots, SY_I32, 2, L(f->batch, f->k), NULL);
    tensor_make(&f->table, SY_I32, 2, L(f->batch, f->columns), NULL);
    tensor_put(&f->indices, indices);
    tensor_put(&f->slots, slots);
    tensor_put(&f->table, table);
    free(indices);
    free(slots);
    free(table);
}

static void fixture_free(struct fixture *f)
{
    for (int i = 0; i < f->n_planes; i++) {
        tensor_free(&f->cache[i]);
        tensor_free(&f->rows[i]);
    }
    tensor_free(&f->indices);
    tensor_free(&f->slots);
    tensor_free(&f->table);
}

static sy_status gather(sy_ctx *ctx, const struct fixture *f, int first, int n)
{
    return sy_kv_gather(ctx, &(sy_kv_gather_args){.cache = &f->cache[first].t,
                                                  .indices = &f->indices.t,
                                                  .block_table = &f->table.t,
                                                  .block_size = f->block_size,
                                                  .pad = f->pad,
                                                  .out = &f->rows[first].t,
                                                  .planes = f->more + first,
                                                  .plane_bytes = sizeof(sy_kv_plane),
                                                  .num_planes = n - 1});
}

static sy_status scatter(sy_ctx *ctx, const struct fixture *f, int first, int n)
{
    return sy_kv_scatter(ctx, &(sy_kv_scatter_args){.cache = &f->cache[first].t,
                                                    .src = &f->rows[first].t,
                                                    .slots = &f->slots.t,
                                                    .pad = f->pad,
                                                    .planes = f->more + first,
                                                    .plane_bytes = sizeof(sy_kv_plane),
                                                    .num_planes = n - 1});
}

/* All planes at once, from the same bytes as one after the other. */
static void check(struct fixture *f, bool to_cache)
{
    unsigned char *before[MOST_PLANES], *want[MOST_PLANES];
    struct tensor *changed = to_cache ? f->cache : f->rows;
    for (int i = 0; i < f->n_planes; i++) {
        before[i] = tensor_snapshot(&changed[i]);
        expect_status(test_contexts[0],
                      to_cache ? scatter(test_contexts[0], f, i, 1) : gather(test_contexts[0], f, i, 1),
                      SY_OK);
        want[i] = tensor_snapshot(&changed[i]);
        assert_int_not_equal(memcmp(before[i], want[i], changed[i].bytes), 0);
    }
    for (int t = 0; t < TEST_CONTEXTS; t++) {
        for (int i = 0; i < f->n_planes; i++)
            memcpy(changed[i].mem, before[i], changed[i].bytes);
        sy_ctx *ctx = test_contexts[t];
        expect_status(ctx, to_cache ? scatter(ctx, f, 0, f->n_planes) : gather(ctx, f, 0, f->n_planes),
                      SY_OK);
        for (int i = 0; i < f->n_planes; i++)
            tensor_expect_unchanged(&changed[i], want[i], "plane");
    }
    for (int i = 0; i < f->n_planes; i++) {
        free(before[i]);
        free(want[i]);
    }
}

static void as_if_each_had_a_call_of_its_own(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        uint64_t rng = seed;
        struct fixture f = {.n_planes = 2 + (int)rng_below(&rng, MOST_PLANES - 1)};
        f.blocks = 2 + rng_below(&rng, 20);
        f.block_size = 1 + rng_below(&rng, 7);
        f.batch = 1;
        f.k =
            1 + rng_below(&rng, f.blocks * f.block_size); /* slots are distinct when they have no factor 7 */
        if (f.blocks * f.block_size % 7 == 0)
            f.k = 1;
        f.columns = 1 + rng_below(&rng, 5);
        f.pad = rng_below(&rng, 2) ? SY_PAD_SKIP : SY_PAD_ERROR;
        fixture_make(&f, &rng);
        check(&f, true);
        if (seed % 3 == 0)
            f.pad = f.pad == SY_PAD_SKIP ? SY_PAD_ZERO : f.pad;
        check(&f, false);
        fixture_free(&f);
    }
}

/* More than one chunk of positions, several tasks, runs that go on from chunk to chunk. */
static void large_for_every_thread_count(void **state)
{
    (void)state;
    uint64_t rng = 9;
    struct fixture f = {.n_planes = 5,
                        .blocks = 400,
                        .block_size = 16,
                        .batch = 2,
                        .k = 3000,
                        .columns = 40,
                        .pad = SY_PAD_SKIP};
    fixture_make(&f, &rng);
    check(&f, true);
    check(&f, false);
    fixture_free(&f);
}

/* ---- Parts of one tensor ------------------------------------------------------------------------------------ */

/* A view of some columns, heads or blocks of a tensor: same strides, another start. */
struct part {
    int64_t shape[4], strides[4];
    DLTensor t;
};

static const DLTensor *part(struct part *p, void *data, int rank, const int64_t *shape,
                            const int64_t *strides)
{
    memcpy(p->shape, shape, (size_t)rank * 8);
    memcpy(p->strides, strides, (size_t)rank * 8);
    p->t = sy_tensor(data, SY_I16, rank, p->shape);
    p->t.strides = p->strides;
    return &p->t;
}

/* The latent part (3 of 5 elements) and the rope part (2) of a row, written as two planes, read as one row and back. */
static void latent_and_rope(void **state)
{
    (void)state;
    int16_t cache[6 * 5] = {0}, latent[2 * 3] = {1, 2, 3, 4, 5, 6}, rope[2 * 2] = {11, 12, 13, 14},
                      out[2 * 5] = {0};
    int32_t slots[] = {4, 1}, table[] = {0, 1, 2};
    struct part p[4];
    const DLTensor s = sy_tensor(slots, SY_I32, 1, (int64_t[]){2}),
                   b = sy_tensor(table, SY_I32, 1, (int64_t[]){3}),
                   l = sy_tensor(latent, SY_I16, 2, (int64_t[]){2, 3}),
                   r = sy_tensor(rope, SY_I16, 2, (int64_t[]){2, 2});
    const sy_kv_plane write = {.cache = part(&p[1], cache + 3, 3, L(3, 2, 2), L(10, 5, 1)), .rows = &r};
    expect_status(test_contexts[1],
                  sy_kv_scatter(test_contexts[1],
                                &(sy_kv_scatter_args){.cache = part(&p[0], cache, 3, L(3, 2, 3), L(10, 5, 1)),
                                                      .src = &l,
                                                      .slots = &s,
                                                      .planes = &write,
                                                      .plane_bytes = sizeof(sy_kv_plane),
                                                      .num_planes = 1}),
                  SY_OK);
    const int16_t rows[] = {1, 2, 3, 11, 12, 4, 5, 6, 13, 14};
    expect_bytes(cache + 20, rows, 10);
    expect_bytes(cache + 5, rows + 5, 10);
    /* Rope first, latent behind it: columns of one output. */
    const sy_kv_plane read = {.cache = &p[0].t, .rows = part(&p[2], out + 2, 2, L(2, 3), L(5, 1))};
    expect_status(
        test_contexts[1],
        sy_kv_gather(test_contexts[1], &(sy_kv_gather_args){.cache = &p[1].t,
                                                            .indices = &s,
                                                            .block_table = &b,
                                                            .block_size = 2,
                                                            .out = part(&p[3], out, 2, L(2, 2), L(5, 1)),
                                                            .planes = &read,
                                                            .plane_bytes = sizeof(sy_kv_plane),
                                                            .num_planes = 1}),
        SY_OK);
    const int16_t want[] = {11, 12, 1, 2, 3, 13, 14, 4, 5, 6};
    expect_bytes(out, want, sizeof want);
}

/* [blocks, 2, S, D]: keys and values side by side in every block. */
static void keys_and_values_of_one_pool(void **state)
{
    (void)state;
    int16_t cache[3 * 2 * 2] = {0}, keys[] = {1, 2, 3}, values[] = {-1, -2, -3};
    int32_t slots[] = {5, 0, 2};
    struct part p[2];
    const DLTensor s = sy_tensor(slots, SY_I32, 1, (int64_t[]){3}),
                   k = sy_tensor(keys, SY_I16, 2, (int64_t[]){3, 1}),
                   v = sy_tensor(values, SY_I16, 2, (int64_t[]){3, 1});
    const sy_kv_plane more = {.cache = part(&p[1], cache + 2, 3, L(3, 2, 1), L(4, 1, 1)), .rows = &v};
    expect_status(test_contexts[2],
                  sy_kv_scatter(test_contexts[2],
                                &(sy_kv_scatter_args){.cache = part(&p[0], cache, 3, L(3, 2, 1), L(4, 1, 1)),
                                                      .src = &k,
                                                      .slots = &s,
                                                      .planes = &more,
                                                      .plane_bytes = sizeof(sy_kv_plane),
                                                      .num_planes = 1}),
                  SY_OK);
    const int16_t want[] = {2, 0, -2, 0, 3, 0, -3, 0, 0, 1, 0, -1};
    expect_bytes(cache, want, sizeof want);
}

/* A random view: a dimension in rows, rows in blocks, blocks in the pool, some of them with gaps. */
static void random_view(struct part *p, int16_t *pool, int64_t elements, uint64_t *rng)
{
    const int64_t width = 1 + rng_below(rng, 4), row = width + rng_below(rng, 5);
    const int64_t block = row + width + rng_below(rng, 12);
    const int64_t start = rng_below(rng, elements - 2 * block - row - width + 1);
    part(p, pool + start, 3, L(3, 2, width), L(block, row, 1));
}

/* Marks the elements of a view; true when one of them is marked already. */
static bool mark(const struct part *p, const int16_t *pool, bool *marked)
{
    bool met = false;
    for (int64_t b = 0; b < p->shape[0]; b++)
        for (int64_t r = 0; r < p->shape[1]; r++)
            for (int64_t c = 0; c < p->shape[2]; c++) {
                bool *here =
                    &marked[(const int16_t *)p->t.data - pool + b * p->strides[0] + r * p->strides[1] + c];
                met = met || *here;
                *here = true;
            }
    return met;
}

static sy_status scatter_two(const DLTensor *a, const DLTensor *b)
{
    static int16_t values[2 * 8];
    int32_t slots[] = {4, 1};
    const DLTensor s = sy_tensor(slots, SY_I32, 1, (int64_t[]){2}),
                   from_a = sy_tensor(values, SY_I16, 2, (int64_t[]){2, a->shape[2]}),
                   from_b = sy_tensor(values, SY_I16, 2, (int64_t[]){2, b->shape[2]});
    const sy_kv_plane more = {.cache = b, .rows = &from_b};
    return sy_kv_scatter(test_contexts[0], &(sy_kv_scatter_args){.cache = a,
                                                                 .src = &from_a,
                                                                 .slots = &s,
                                                                 .planes = &more,
                                                                 .plane_bytes = sizeof(sy_kv_plane),
                                                                 .num_planes = 1});
}

/* Against marks in a pool: an element of both views is never accepted. Views of one stepping that share none are. */
static void every_shared_element_is_found(void **state)
{
    (void)state;
    enum { ELEMENTS = 64, ROOM = 96 };
    int16_t pool[ROOM];
    int shared = 0, interleaved = 0, tight = 0;
    uint64_t rng = 11;
    for (int i = 0; i < 20000; i++) {
        struct part a, b;
        bool marked[ROOM] = {false};
        random_view(&a, pool, ELEMENTS, &rng);
        if (i % 2) {
            random_view(&b, pool, ELEMENTS, &rng);
        } else { /* the same steps from another start, inside the same blocks */
            const int64_t last = a.strides[0] - a.strides[1];
            const int64_t widest = last < a.strides[1] ? last : a.strides[1];
            const int64_t width = 1 + rng_below(&rng, widest), start = rng_below(&rng, last - width + 1);
            part(&b, (int16_t *)a.t.data + start, 3, L(3, 2, width), a.strides);
        }
        mark(&a, pool, marked);
        const bool met = mark(&b, pool, marked);
        const int16_t *from = a.t.data, *to = b.t.data;
        const bool meet = from < to + 2 * b.strides[0] + b.strides[1] + b.shape[2] &&
                          to < from + 2 * a.strides[0] + a.strides[1] + a.shape[2];
        const sy_status st = scatter_two(&a.t, &b.t);
        assert_int_equal(scatter_two(&b.t, &a.t), st);
        if (met)
            assert_int_equal(st, SY_ERR_ALIAS);
        if (!met && i % 2 == 0)
            assert_int_equal(st, SY_OK);
        shared += met;
        interleaved += !met && meet && st == SY_OK;
        tight += !met && i % 2 == 0 && a.strides[0] % a.strides[1] != 0;
    }
    assert_true(shared > 1000 && interleaved > 1000 && tight > 1000);
}

/* Inputs may be the same tensor in every plane. */
static void one_cache_many_outputs(void **state)
{
    (void)state;
    int32_t cache[] = {10, 11, 12, 13}, indices[] = {3, 0}, table[] = {1, 0}, out[4][2];
    DLTensor outs[4];
    sy_kv_plane more[3];
    const DLTensor c = sy_tensor(cache, SY_I32, 2, (int64_t[]){4, 1}),
                   i = sy_tensor(indices, SY_I32, 1, (int64_t[]){2}),
                   t = sy_tensor(table, SY_I32, 1, (int64_t[]){2});
    int64_t shape[] = {2, 1};
    for (int p = 0; p < 4; p++)
        outs[p] = sy_tensor(out[p], SY_I32, 2, shape);
    for (int p = 0; p < 3; p++)
        more[p] = (sy_kv_plane){.cache = &c, .rows = &outs[p + 1]};
    expect_status(test_contexts[0],
                  sy_kv_gather(test_contexts[0], &(sy_kv_gather_args){.cache = &c,
                                                                      .indices = &i,
                                                                      .block_table = &t,
                                                                      .block_size = 2,
                                                                      .out = &outs[0],
                                                                      .planes = more,
                                                                      .plane_bytes = sizeof(sy_kv_plane),
                                                                      .num_planes = 3}),
                  SY_OK);
    for (int p = 0; p < 4; p++) {
        assert_int_equal(out[p][0], 11);
        assert_int_equal(out[p][1], 12);
    }
}

/* Planes as a newer header might have them. */
struct newer_plane {
    sy_kv_plane known;
    const void *later[2];
};

/* A caller whose header has a shorter or a longer struct, which must set nothing that this library does not know. */
static void planes_of_other_sizes(void **state)
{
    (void)state;
    enum { N = 3 };
    int16_t data[N][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}}, out[N][2];
    int32_t at[] = {3, 1}, block[] = {0};
    int64_t cache_shape[] = {4, 1}, out_shape[] = {2, 1};
    DLTensor caches[N], outs[N];
    struct newer_plane newer[N - 1] = {{.known = {.cache = NULL}}};
    const DLTensor *older[N - 1][2]; /* cache and rows */
    for (int i = 0; i < N; i++) {
        caches[i] = sy_tensor(data[i], SY_I16, 2, cache_shape);
        outs[i] = sy_tensor(out[i], SY_I16, 2, out_shape);
        if (i > 0) {
            newer[i - 1].known = (sy_kv_plane){.cache = &caches[i], .rows = &outs[i]};
            older[i - 1][0] = &caches[i];
            older[i - 1][1] = &outs[i];
        }
    }
    const DLTensor indices = sy_tensor(at, SY_I32, 1, (int64_t[]){2}),
                   table = sy_tensor(block, SY_I32, 1, (int64_t[]){1});
    sy_kv_gather_args args = {.cache = &caches[0],
                              .indices = &indices,
                              .block_table = &table,
                              .block_size = 4,
                              .out = &outs[0],
                              .num_planes = N - 1};
    for (int round = 0; round < 2; round++) {
        memset(out, 0, sizeof out);
        args.planes = round ? &newer[0].known : (const sy_kv_plane *)(const void *)older;
        args.plane_bytes = round ? sizeof newer[0] : sizeof older[0];
        expect_status(test_contexts[0], sy_kv_gather(test_contexts[0], &args), SY_OK);
        for (int i = 0; i < N; i++)
            assert_true(out[i][0] == data[i][3] && out[i][1] == data[i][1]);
    }
    memset(out, 0, sizeof out);
    newer[1].later[1] = out;
    expect_status(test_contexts[0], sy_kv_gather(test_contexts[0], &args), SY_ERR_UNSUPPORTED);
    assert_non_null(strstr(sy_ctx_error(test_contexts[0]), "kv_gather: planes sets a field at byte 4"));
    for (int i = 0; i < N; i++)
        assert_int_equal(out[i][0], 0);
}

/* As many as there may be. */
static void two_hundred_and_fifty_six_planes(void **state)
{
    (void)state;
    enum { N = SY_KV_MAX_PLANES + 1 };
    static int32_t cache[N][2], src[N][1];
    static DLTensor caches[N], srcs[N];
    static sy_kv_plane more[N];
    int32_t slots[] = {1};
    int64_t cache_shape[] = {2, 1}, src_shape[] = {1, 1};
    const DLTensor s = sy_tensor(slots, SY_I32, 1, (int64_t[]){1});
    for (int p = 0; p < N; p++) {
        src[p][0] = p + 1;
        caches[p] = sy_tensor(cache[p], SY_I32, 2, cache_shape);
        srcs[p] = sy_tensor(src[p], SY_I32, 2, src_shape);
        if (p > 0)
            more[p - 1] = (sy_kv_plane){.cache = &caches[p], .rows = &srcs[p]};
    }
    sy_kv_scatter_args args = {.cache = &caches[0],
                               .src = &srcs[0],
                               .slots = &s,
                               .planes = more,
                               .plane_bytes = sizeof(sy_kv_plane),
                               .num_planes = SY_KV_MAX_PLANES};
    expect_status(test_contexts[0], sy_kv_scatter(test_contexts[0], &args), SY_OK);
    for (int p = 0; p < N; p++)
        assert_int_equal(cache[p][1], p + 1);
    args.num_planes++;
    expect_status(test_contexts[0], sy_kv_scatter(test_contexts[0], &args), SY_ERR_VALUE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_if_each_had_a_call_of_its_own),
        cmocka_unit_test(large_for_every_thread_count),
        cmocka_unit_test(latent_and_rope),
        cmocka_unit_test(keys_and_values_of_one_pool),
        cmocka_unit_test(every_shared_element_is_found),
        cmocka_unit_test(one_cache_many_outputs),
        cmocka_unit_test(planes_of_other_sizes),
        cmocka_unit_test(two_hundred_and_fifty_six_planes),
    };
    return cmocka_run_group_tests_name("op_kv_planes", tests, test_open_contexts, test_close_contexts);
}
