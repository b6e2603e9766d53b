/*
 * Caches with heads: blocks of [S,H,D] and of [H,S,D], with gaps wherever they may be, read and written through either
 * view. The truth is the address of every element, computed one by one. Examples are in tests/examples.
 */
#include "support.h"

/* ---- Every address ----------------------------------------------------------------------------------- */

enum { MOST_PLANES = 2 };

struct plane {
    int64_t heads, width, head_stride, row_stride, block_stride, dense_stride; /* elements */
    int64_t elem_bytes, cache_bytes, dense_bytes;
    unsigned char *cache, *dense, *old_cache, *old_dense, *want;
    int64_t shape[5], strides[5], dense_shape[5], dense_strides[5];
    DLTensor cache_view, dense_view;
};

struct scene {
    sy_kv_layout layout;
    int64_t blocks, size, n;
    int n_planes;
    sy_kv_pad pad;
    struct plane planes[MOST_PLANES];
    int32_t *slots, *table;
    DLTensor slots_view, table_view;
    int64_t table_shape[1];
};

/* Heads inside rows or rows inside heads, by a coin: either may be seen through either layout. */
static void choose_strides(struct plane *p, const struct scene *s, uint64_t *rng)
{
    const int64_t step = p->width + (rng_below(rng, 2) ? rng_below(rng, 3) : 0);
    const int64_t gap = rng_below(rng, 2) ? rng_below(rng, 4) : 0;
    if (rng_below(rng, 2)) {
        p->row_stride = step;
        p->head_stride = s->size * step + gap;
        p->block_stride = p->heads * p->head_stride + gap;
    } else {
        p->head_stride = step;
        p->row_stride = p->heads * step + gap;
        p->block_stride = s->size * p->row_stride + gap;
    }
    p->dense_stride = p->heads * p->width + gap;
}

static void make_plane(struct plane *p, const struct scene *s, uint64_t *rng)
{
    static const uint8_t bits[] = {8, 16, 32, 64};
    const DLDataType type = {kDLUInt, bits[rng_below(rng, 4)], 1};
    p->elem_bytes = type.bits / 8;
    p->heads = 1 + rng_below(rng, 5);
    p->width = 1 + rng_below(rng, 9);
    choose_strides(p, s, rng);
    p->cache_bytes = s->blocks * p->block_stride * p->elem_bytes;
    p->dense_bytes = (s->n + 1) * p->dense_stride * p->elem_bytes;
    unsigned char **const memory[] = {&p->cache, &p->old_cache, &p->dense, &p->old_dense, &p->want};
    for (size_t i = 0; i < COUNT_OF(memory); i++)
        *memory[i] = malloc((size_t)(p->cache_bytes + p->dense_bytes));
    rng_fill(rng, p->old_cache, (size_t)p->cache_bytes);
    rng_fill(rng, p->old_dense, (size_t)p->dense_bytes);
    memcpy(p->shape, (int64_t[]){s->blocks, s->size, p->heads, p->width}, 4 * 8);
    memcpy(p->strides, (int64_t[]){p->block_stride, p->row_stride, p->head_stride, 1}, 4 * 8);
    if (s->layout == SY_KV_HND) {
        memcpy(p->shape + 1, (int64_t[]){p->heads, s->size}, 2 * 8);
        memcpy(p->strides + 1, (int64_t[]){p->head_stride, p->row_stride}, 2 * 8);
    }
    /* A head of one element needs no dimension in HND, and then has no stride to be wrong. */
    const int rank = s->layout == SY_KV_HND && p->width == 1 ? 3 : 4;
    p->cache_view = sy_tensor(p->cache, type, rank, p->shape);
    p->cache_view.strides = p->strides;
    memcpy(p->dense_shape, (int64_t[]){s->n, p->heads, p->width}, 3 * 8);
    memcpy(p->dense_strides, (int64_t[]){p->dense_stride, p->width, 1}, 3 * 8);
    p->dense_view = sy_tensor(p->dense, type, rank - 1, p->dense_shape);
    p->dense_view.strides = p->dense_strides;
}

static void make_scene(struct scene *s, uint64_t *rng)
{
    s->slots = calloc((size_t)s->n + 1, 4);
    s->table = calloc((size_t)s->blocks + 1, 4);
    assert_true(s->slots && s->table);
    for (int i = 0; i < s->n_planes; i++)
        make_plane(&s->planes[i], s, rng);
    for (int64_t i = 0; i < s->blocks; i++)
        s->table[i] = (int32_t)i;
    /* Slots of a scatter are distinct: the first n of all, dealt out from the middle. */
    for (int64_t i = 0; i < s->n; i++)
        s->slots[i] = (int32_t)((i + s->n / 2) % s->n);
    for (int64_t i = 0; i < s->n && s->pad != SY_PAD_ERROR; i++)
        if (rng_below(rng, 5) == 0)
            s->slots[i] = -1;
    s->table_shape[0] = s->blocks;
    s->slots_view = sy_tensor(s->slots, SY_I32, 1, &s->n);
    s->table_view = sy_tensor(s->table, SY_I32, 1, s->table_shape);
}

static void free_scene(struct scene *s)
{
    for (int i = 0; i < s->n_planes; i++) {
        struct plane *p = &s->planes[i];
        free(p->cache);
        free(p->dense);
        free(p->old_cache);
        free(p->old_dense);
        free(p->want);
    }
    free(s->slots);
    free(s->table);
}

/* What a plane's dense rows or cache should be afterwards. */
static void expect(const struct scene *s, struct plane *p, bool to_cache)
{
    memcpy(p->want, to_cache ? p->old_cache : p->old_dense,
           (size_t)(to_cache ? p->cache_bytes : p->dense_bytes));
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t e = 0; e < p->heads * p->width; e++) {
            const int64_t slot = s->slots[i], head = e / p->width, within = e % p->width;
            const int64_t dense = (i * p->dense_stride + e) * p->elem_bytes;
            const int64_t cached = (slot / s->size * p->block_stride + slot % s->size * p->row_stride +
                                    head * p->head_stride + within) *
                                   p->elem_bytes;
            if (slot >= 0 && to_cache)
                memcpy(p->want + cached, p->old_dense + dense, (size_t)p->elem_bytes);
            else if (slot >= 0)
                memcpy(p->want + dense, p->old_cache + cached, (size_t)p->elem_bytes);
            else if (!to_cache && s->pad != SY_PAD_SKIP)
                memset(p->want + dense, 0, (size_t)p->elem_bytes);
        }
}

static sy_status call(sy_ctx *ctx, const struct scene *s, bool to_cache)
{
    const struct plane *p = s->planes;
    const sy_kv_plane more = {.cache = &p[1].cache_view, .rows = &p[1].dense_view};
    if (to_cache)
        return sy_kv_scatter(ctx, &(sy_kv_scatter_args){.cache = &p->cache_view,
                                                        .src = &p->dense_view,
                                                        .slots = &s->slots_view,
                                                        .pad = s->pad,
                                                        .planes = &more,
                                                        .plane_bytes = sizeof(sy_kv_plane),
                                                        .num_planes = s->n_planes - 1,
                                                        .layout = s->layout});
    return sy_kv_gather(ctx, &(sy_kv_gather_args){.cache = &p->cache_view,
                                                  .indices = &s->slots_view,
                                                  .block_table = &s->table_view,
                                                  .block_size = s->size,
                                                  .pad = s->pad,
                                                  .out = &p->dense_view,
                                                  .planes = &more,
                                                  .plane_bytes = sizeof(sy_kv_plane),
                                                  .num_planes = s->n_planes - 1,
                                                  .layout = s->layout});
}

/* The rows of slots 0 to n - 1, in order: as kv_gather gives them. */
static void check_ragged(const struct scene *s)
{
    const struct plane *p = s->planes;
    const sy_kv_plane more = {.cache = &p[1].cache_view, .rows = &p[1].dense_view};
    int64_t cu_lens[] = {0, s->n};
    const DLTensor cu = sy_tensor(cu_lens, SY_I64, 1, (int64_t[]){2});
    for (int64_t i = 0; i < s->n; i++)
        s->slots[i] = (int32_t)i;
    for (int t = 0; t < TEST_CONTEXTS; t++) {
        expect_status(test_contexts[t], call(test_contexts[t], s, false), SY_OK);
        for (int i = 0; i < s->n_planes; i++) {
            memcpy(p[i].want, p[i].dense, (size_t)p[i].dense_bytes);
            memset(p[i].dense, 0xA5, (size_t)(s->n * p[i].dense_stride * p[i].elem_bytes));
        }
        expect_status(test_contexts[t],
                      sy_kv_ragged(test_contexts[t], &(sy_kv_ragged_args){.cache = &p->cache_view,
                                                                          .block_table = &s->table_view,
                                                                          .cu_lens = &cu,
                                                                          .block_size = s->size,
                                                                          .out = &p->dense_view,
                                                                          .planes = &more,
                                                                          .plane_bytes = sizeof(sy_kv_plane),
                                                                          .num_planes = s->n_planes - 1,
                                                                          .layout = s->layout}),
                      SY_OK);
        for (int i = 0; i < s->n_planes; i++)
            for (int64_t row = 0; row < s->n; row++)
                expect_bytes(p[i].dense + row * p[i].dense_stride * p[i].elem_bytes,
                             p[i].want + row * p[i].dense_stride * p[i].elem_bytes,
                             (size_t)(p[i].heads * p[i].width * p[i].elem_bytes));
    }
}

static void check(struct scene *s, bool to_cache)
{
    for (int i = 0; i < s->n_planes; i++)
        expect(s, &s->planes[i], to_cache);
    for (int t = 0; t < TEST_CONTEXTS; t++) {
        for (int i = 0; i < s->n_planes; i++) {
            memcpy(s->planes[i].cache, s->planes[i].old_cache, (size_t)s->planes[i].cache_bytes);
            memcpy(s->planes[i].dense, s->planes[i].old_dense, (size_t)s->planes[i].dense_bytes);
        }
        expect_status(test_contexts[t], call(test_contexts[t], s, to_cache), SY_OK);
        for (int i = 0; i < s->n_planes; i++) {
            const struct plane *p = &s->planes[i];
            expect_bytes(p->cache, to_cache ? p->want : p->old_cache, (size_t)p->cache_bytes);
            expect_bytes(p->dense, to_cache ? p->old_dense : p->want, (size_t)p->dense_bytes);
        }
    }
}

static void every_address(void **state)
{
    (void)state;
    int apart = 0, padded = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        uint64_t rng = seed;
        struct scene s = {.layout = seed % 2 ? SY_KV_HND : SY_KV_NHD};
        s.blocks = 1 + rng_below(&rng, 6);
        s.size = 1 + rng_below(&rng, 5);
        s.n = 1 + rng_below(&rng, s.blocks * s.size);
        s.n_planes = 1 + (int)rng_below(&rng, 2);
        s.pad = rng_below(&rng, 2) ? SY_PAD_SKIP : SY_PAD_ERROR;
        make_scene(&s, &rng);
        check(&s, true);
        if (s.pad == SY_PAD_SKIP && rng_below(&rng, 2))
            s.pad = SY_PAD_ZERO;
        check(&s, false);
        check_ragged(&s);
        apart += s.planes[0].heads > 1 && s.planes[0].head_stride > s.planes[0].row_stride;
        padded += s.planes[0].block_stride > s.planes[0].heads * s.planes[0].width * s.size;
        free_scene(&s);
    }
    assert_true(apart > 100 && padded > 100);
}

/* Several tasks, more pieces than are copied at once; without padding, whole blocks in order. */
static void large(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        uint64_t rng = seed;
        struct scene s = {.layout = SY_KV_HND, .blocks = 300, .size = 20, .n = 4001, .n_planes = 2};
        s.pad = seed % 2 ? SY_PAD_SKIP : SY_PAD_ERROR;
        make_scene(&s, &rng);
        check(&s, true);
        check(&s, false);
        check_ragged(&s);
        free_scene(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_address),
        cmocka_unit_test(large),
    };
    return cmocka_run_group_tests_name("op_kv_layout", tests, test_open_contexts, test_close_contexts);
}
