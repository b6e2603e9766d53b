/*
 * KV caches beyond a call and its oracle (tests/case/kv_*.c): names and sizes of formats and planes,
 * which memory planes may share.
 */
#include "case/case.h"
#include "support.h"

#define L(...) ((const int64_t[]){__VA_ARGS__})

/* The functions with types: one operator for all, a macro defines them. */
TEST(missing_context_arguments_or_query)
{
    sy_ctx *ctx = case_ctx[0];
    const sy_kv_gather_args args = {.block_size = 1};
    sy_query q;
    assert_int_equal(sy_kv_gather(NULL, &args), SY_ERR_NULL);
    assert_int_equal(sy_kv_gather(ctx, NULL), SY_ERR_NULL);
    assert_string_not_equal(sy_ctx_error(ctx), "");
    assert_int_equal(sy_kv_gather_query(NULL, &args, &q), SY_ERR_NULL);
    assert_int_equal(sy_kv_gather_query(ctx, NULL, &q), SY_ERR_NULL);
    assert_int_equal(sy_kv_gather_query(ctx, &args, NULL), SY_ERR_NULL);
}

/* ---- Formats ---- */

static sy_kv_format format_named(const char *name)
{
    sy_kv_format format;
    assert_int_equal(sy_kv_format_named(name, &format), SY_OK);
    return format;
}

TEST(names_have_their_layouts)
{
    static const struct {
        const char *name;
        int32_t row, q, group, scale_off, scale_bytes, rope_off, rope;
    } want[] = {{"ds32_fp8", 656, 512, 128, 512, 0, 528, 128},
                {"pto_int8", 656, 512, 128, 640, 0, 512, 128},
                {"ds4_fp8", 576, 448, 64, 0, 8, 448, 128},
                {"indexer_fp8", 128, 128, 128, 0, 4, 0, 0},
                {"e4m3", 0, 0, 0, 0, 0, 0, 0},
                {"e5m2", 0, 0, 0, 0, 0, 0, 0},
                {"int8", 0, 0, 0, 0, 0, 0, 0},
                {"q8_0", 0, 0, 32, 0, 0, 0, 0},
                {"q4_0", 0, 0, 32, 0, 0, 0, 0},
                {"nvfp4", 0, 0, 16, 0, 0, 0, 0},
                {"nvfp4_amax", 0, 0, 16, 0, 0, 0, 0}};
    for (size_t i = 0; i < COUNT_OF(want); i++) {
        const sy_kv_format f = format_named(want[i].name);
        assert_int_equal(f.bytes, sizeof f);
        assert_int_equal(f.row_bytes, want[i].row);
        assert_int_equal(f.q_off, 0);
        assert_int_equal(f.q_count, want[i].q);
        assert_int_equal(f.group, want[i].group);
        assert_int_equal(f.scale_off, want[i].scale_off);
        assert_int_equal(f.scale_bytes, want[i].scale_bytes);
        assert_int_equal(f.rope_off, want[i].rope_off);
        assert_int_equal(f.rope_bytes, want[i].rope);
    }
    sy_kv_format f;
    assert_int_equal(sy_kv_format_named("ds32", &f), SY_ERR_VALUE);
    assert_int_equal(f.row_bytes, 0);
    assert_int_equal(sy_kv_format_named(NULL, &f), SY_ERR_NULL);
    assert_int_equal(sy_kv_format_named("int8", NULL), SY_ERR_NULL);
    f.scales = SY_SCALES_BLOCK;
    const size_t two = offsetof(sy_kv_format, scale_type); /* a caller that knew two fields */
    assert_int_equal(sy_kv_format_named_n("ds32_fp8", &f, two), SY_OK);
    assert_int_equal(f.bytes, two);
    assert_int_equal(f.q_type.code, SY_F8_E4M3.code);
    assert_int_equal(f.scales, SY_SCALES_BLOCK);
}

static struct call *gather(const char *line)
{
    return case_of_line(all_cases[sy_op_find("kv_gather")->number], line, 1);
}

static void check_everywhere(struct call *c)
{
    for (int i = 0; i < n_case_ctx; i++) {
        call_lay_out(c, 0, false);
        call_check(c, case_ctx[i], call_run(c, case_ctx[i]));
    }
}

/* A format of a caller whose header has a shorter struct, or a longer one that sets nothing unknown. */
TEST(formats_of_other_sizes)
{
    struct call *const c = gather("int8 flat B=2 k=5 D=6 n=4 S=2 blocks=3 parts=1");
    sy_kv_gather_args *const args = case_args(c);
    union {
        sy_kv_format known;
        unsigned char bytes[sizeof(sy_kv_format) + 16];
    } f = {.bytes = {0}};
    f.known = *args->format;
    args->format = &f.known;
    f.known.scales = SY_SCALES_BLOCK; /* not read: the field comes later */
    f.known.bytes = offsetof(sy_kv_format, scale_type);
    check_everywhere(c);
    f.known.scales = SY_SCALES_TENSOR;
    f.known.bytes = sizeof f;
    check_everywhere(c);
    case_delete(c);
}

/* ---- Planes ---- */

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
    return sy_kv_scatter(case_ctx[0], &(sy_kv_scatter_args){.cache = a,
                                                            .src = &from_a,
                                                            .slots = &s,
                                                            .planes = &more,
                                                            .plane_bytes = sizeof(sy_kv_plane),
                                                            .num_planes = 1});
}

/* Against marks in a pool: an element of both views is never accepted. Views of one stepping that share none are. */
TEST(every_shared_element_is_found)
{
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

/* Of several overlaps that of the first output is told, and of those the one with the first tensor, however many planes
   are between them. */
TEST(first_overlap_of_many_planes)
{
    enum { PLANES = SY_KV_MAX_PLANES + 1, SLOTS = 6, WIDTH = 4 };
    static float cache[PLANES][SLOTS][WIDTH], rows[PLANES][1][WIDTH];
    static int64_t cache_shape[] = {SLOTS, WIDTH}, rows_shape[] = {1, 1, WIDTH};
    static const struct {
        int out[2],
            over[2]; /* the rows of these planes are those of these caches; above PLANES: of these rows */
        const char *want;
    } cases[] = {
        {{5, 200}, {250, 3}, "kv_gather: out of plane 5 overlaps cache of plane 250 in memory"},
        {{200, 30}, {3, PLANES + 40}, "kv_gather: out of plane 30 overlaps out of plane 40 in memory"},
        {{254, 255}, {0, 254}, "kv_gather: out of plane 254 overlaps cache in memory"},
        {{0, 1}, {PLANES + 255, 17}, "kv_gather: out overlaps out of plane 255 in memory"},
        {{17, 16}, {PLANES + 0, 100}, "kv_gather: out overlaps out of plane 17 in memory"},
    };
    sy_ctx *ctx = case_ctx[0];
    int32_t slot[] = {1}, page[] = {0};
    const DLTensor index = sy_tensor(slot, SY_I32, 2, (int64_t[]){1, 1}),
                   table = sy_tensor(page, SY_I32, 2, (int64_t[]){1, 1});
    for (size_t c = 0; c < COUNT_OF(cases); c++) {
        DLTensor from[PLANES], to[PLANES];
        sy_kv_plane more[PLANES - 1];
        for (int i = 0; i < PLANES; i++) {
            from[i] = sy_tensor(cache[i], SY_F32, 2, cache_shape);
            to[i] = sy_tensor(rows[i], SY_F32, 3, rows_shape);
            if (i > 0)
                more[i - 1] = (sy_kv_plane){.cache = &from[i], .rows = &to[i]};
        }
        for (int k = 0; k < 2; k++) {
            const int over = cases[c].over[k];
            to[cases[c].out[k]].data = over < PLANES ? (void *)cache[over] : (void *)rows[over - PLANES];
        }
        const sy_kv_gather_args args = {.cache = &from[0],
                                        .indices = &index,
                                        .block_table = &table,
                                        .block_size = SLOTS,
                                        .planes = more,
                                        .plane_bytes = sizeof(sy_kv_plane),
                                        .num_planes = PLANES - 1,
                                        .out = &to[0]};
        expect_status(ctx, sy_kv_gather(ctx, &args), SY_ERR_ALIAS);
        if (strstr(sy_ctx_error(ctx), cases[c].want) != sy_ctx_error(ctx))
            fail_msg("\"%s\", want \"%s\"", sy_ctx_error(ctx), cases[c].want);
    }
}

/* Planes as a newer header might have them. */
struct newer_plane {
    sy_kv_plane known;
    const void *later[2];
};

/* A caller whose header has a shorter or a longer struct, which must set nothing that this library does not know. */
TEST(planes_of_other_sizes)
{
    struct call *const c = gather("i16 flat B=2 k=5 D=3 n=4 S=2 blocks=3 planes=2");
    sy_kv_gather_args *const args = case_args(c);
    struct newer_plane newer[2] = {{.known = c->planes[0]}, {.known = c->planes[1]}};
    const DLTensor *older[2][2]; /* cache and rows */
    for (int i = 0; i < 2; i++) {
        older[i][0] = c->planes[i].cache;
        older[i][1] = c->planes[i].rows;
    }
    args->planes = (const sy_kv_plane *)(const void *)older;
    args->plane_bytes = sizeof older[0];
    check_everywhere(c);
    args->planes = &newer[0].known;
    args->plane_bytes = sizeof newer[0];
    check_everywhere(c);
    call_lay_out(c, 0, false);
    newer[1].later[1] = newer;
    expect_status(case_ctx[0], call_run(c, case_ctx[0]), SY_ERR_UNSUPPORTED);
    assert_non_null(strstr(sy_ctx_error(case_ctx[0]), "kv_gather: planes sets a field at byte 4"));
    call_untouched(c, case_ctx[0]);
    case_delete(c);
}

TESTS_IN_CONTEXTS(kv_together, "op_kv_together")
