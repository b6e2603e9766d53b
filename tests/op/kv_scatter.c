/*
 * kv_scatter: the worked example with its gather, one test per rule, then random shapes against the oracle, with flat
 * and paged caches, strides, both integer types, padding and planted faults, on every thread count.
 */
#include "support.h"

#include "oracle/kv_scatter.h"

#define L(...) ((const int64_t[]){__VA_ARGS__})
#define I(...) ((const int32_t[]){__VA_ARGS__})

static sy_ctx *contexts[4];
static const int thread_counts[4] = {1, 2, 3, 8};

static int open_contexts(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(contexts); i++)
        contexts[i] = test_ctx(thread_counts[i], NULL);
    return 0;
}

static int close_contexts(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(contexts); i++)
        sy_ctx_destroy(contexts[i]);
    return 0;
}

/* ---- Examples ----------------------------------------------------------------------------------------------- */

enum { ROWS = 6, WIDTH = 2, MOST = 8 };

/* Rows [1,2], [3,4], ... to these slots of a zero cache of six rows, flat or in blocks of two. */
struct example {
    int64_t n;
    const int64_t *slots;
    sy_kv_pad pad;
    bool unique, paged, wide;
};

struct call {
    int32_t cache[ROWS * WIDTH], src[MOST * WIDTH], narrow[MOST];
    int64_t wide[MOST], cache_shape[3], src_shape[2], slots_shape[1];
    DLTensor cache_view, src_view, slots_view;
    sy_kv_scatter_args args;
};

static void call_make(struct call *c, const struct example *ex)
{
    memset(c, 0, sizeof *c);
    for (int64_t i = 0; i < ex->n; i++) {
        c->wide[i] = ex->slots[i];
        c->narrow[i] = (int32_t)ex->slots[i];
        c->src[2 * i] = (int32_t)(2 * i + 1);
        c->src[2 * i + 1] = (int32_t)(2 * i + 2);
    }
    memcpy(c->cache_shape, ex->paged ? L(3, 2, WIDTH) : L(ROWS, WIDTH, 0), sizeof c->cache_shape);
    memcpy(c->src_shape, L(ex->n, WIDTH), sizeof c->src_shape);
    memcpy(c->slots_shape, L(ex->n), sizeof c->slots_shape);
    c->cache_view = sy_tensor(c->cache, SY_I32, ex->paged ? 3 : 2, c->cache_shape);
    c->src_view = sy_tensor(c->src, SY_I32, 2, c->src_shape);
    c->slots_view = ex->wide ? sy_tensor(c->wide, SY_I64, 1, c->slots_shape)
                             : sy_tensor(c->narrow, SY_I32, 1, c->slots_shape);
    c->args = (sy_kv_scatter_args){.cache = &c->cache_view,
                                   .src = &c->src_view,
                                   .slots = &c->slots_view,
                                   .pad = ex->pad,
                                   .check_unique = ex->unique};
}

/* In every form: flat and paged, int32 and int64, checked for uniqueness or not. */
static void check(struct example ex, const int32_t *want)
{
    for (int form = 0; form < 8; form++) {
        struct call c;
        sy_query query;
        sy_ctx *ctx = contexts[form % 4];
        ex.paged = form & 1;
        ex.wide = form & 2;
        ex.unique = form & 4;
        call_make(&c, &ex);
        expect_status(ctx, sy_kv_scatter_query(ctx, &c.args, &query), SY_OK);
        assert_int_equal(query.rows, ex.n);
        expect_status(ctx, sy_kv_scatter(ctx, &c.args), SY_OK);
        expect_bytes(c.cache, want, sizeof c.cache);
    }
}

static void check_refused(struct example ex, sy_fault_code code, int64_t position, int64_t value,
                          int64_t limit)
{
    for (int form = 0; form < 2; form++) {
        static const int32_t zero[ROWS * WIDTH];
        struct call c;
        sy_ctx *ctx = contexts[2 + form];
        ex.paged = form & 1;
        call_make(&c, &ex);
        expect_status(ctx, sy_kv_scatter(ctx, &c.args), SY_ERR_INDEX);
        expect_fault(ctx, code, -1, position, value, limit);
        expect_bytes(c.cache, zero, sizeof c.cache);
    }
}

static void example_8_scatter(void **state)
{
    (void)state;
    check((struct example){.n = 4, .slots = L(5, -1, 0, 2), .pad = SY_PAD_SKIP},
          I(5, 6, 0, 0, 7, 8, 0, 0, 0, 0, 1, 2));
}

static void example_8_then_gather(void **state)
{
    (void)state;
    struct call c;
    int32_t table[] = {2, 0, 1}, indices[] = {0, 1, 4}, out[6];
    call_make(&c, &(struct example){.n = 4, .slots = L(5, -1, 0, 2), .pad = SY_PAD_SKIP});
    expect_status(contexts[0], sy_kv_scatter(contexts[0], &c.args), SY_OK);
    const DLTensor t = sy_tensor(table, SY_I32, 1, (int64_t[]){3}),
                   i = sy_tensor(indices, SY_I32, 1, (int64_t[]){3}),
                   o = sy_tensor(out, SY_I32, 2, (int64_t[]){3, 2});
    expect_status(contexts[0],
                  sy_kv_gather(contexts[0], &(sy_kv_gather_args){.cache = &c.cache_view,
                                                                 .indices = &i,
                                                                 .block_table = &t,
                                                                 .block_size = 2,
                                                                 .out = &o}),
                  SY_OK);
    expect_bytes(out, I(0, 0, 1, 2, 7, 8), sizeof out);
}

static void every_row_once(void **state)
{
    (void)state;
    check((struct example){.n = 6, .slots = L(5, 4, 3, 2, 1, 0)}, I(11, 12, 9, 10, 7, 8, 5, 6, 3, 4, 1, 2));
    check((struct example){.n = 6, .slots = L(0, 1, 2, 3, 4, 5)}, I(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));
}

static void nothing_to_write(void **state)
{
    (void)state;
    static const int32_t zero[ROWS * WIDTH];
    check((struct example){.n = 0, .slots = L(0)}, zero);
    check((struct example){.n = 3, .slots = L(-1, -1, -1), .pad = SY_PAD_SKIP}, zero);
}

/* ---- Faults ------------------------------------------------------------------------------------------------- */

static void slots_outside(void **state)
{
    (void)state;
    check_refused((struct example){.n = 3, .slots = L(0, 6, -7)}, SY_FAULT_SLOT_RANGE, 1, 6, 6);
    check_refused((struct example){.n = 3, .slots = L(0, 1, INT32_MAX)}, SY_FAULT_SLOT_RANGE, 2, INT32_MAX,
                  6);
    check_refused((struct example){.n = 2, .slots = L(-1, 1)}, SY_FAULT_SLOT_RANGE, 0, -1, 6);
    check_refused((struct example){.n = 2, .slots = L(-1, -2), .pad = SY_PAD_SKIP}, SY_FAULT_SLOT_RANGE, 1,
                  -2, 6);
}

/* 2^32 and 2^63 would be row 0 after narrowing or wrapping. */
static void slots_that_wrap(void **state)
{
    (void)state;
    const int64_t values[] = {4294967296, 4294967301, INT64_MAX, INT64_MIN, -4294967296, 4611686018427387904};
    for (size_t i = 0; i < COUNT_OF(values); i++)
        check_refused((struct example){.n = 2, .slots = L(3, values[i]), .wide = true}, SY_FAULT_SLOT_RANGE,
                      1, values[i], 6);
}

static void duplicates(void **state)
{
    (void)state;
    check_refused((struct example){.n = 4, .slots = L(4, 2, 0, 2), .unique = true}, SY_FAULT_DUPLICATE, 3, 2,
                  1);
    check_refused((struct example){.n = 5, .slots = L(4, 2, 2, 4, 2), .unique = true}, SY_FAULT_DUPLICATE, 2,
                  2, 1);
    check((struct example){.n = 3, .slots = L(-1, 1, -1), .pad = SY_PAD_SKIP},
          I(0, 0, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0)); /* padding is not a slot */
}

/* The first position wins, whatever is wrong there; of one position the range. */
static void faults_in_order(void **state)
{
    (void)state;
    check_refused((struct example){.n = 4, .slots = L(1, 1, 9, 3), .unique = true}, SY_FAULT_DUPLICATE, 1, 1,
                  0);
    check_refused((struct example){.n = 4, .slots = L(1, 9, 1, 9), .unique = true}, SY_FAULT_SLOT_RANGE, 1, 9,
                  6);
    check_refused((struct example){.n = 4, .slots = L(1, 2, 9, 9), .unique = true}, SY_FAULT_SLOT_RANGE, 2, 9,
                  6);
}

/* A cache without rows is an argument like any other; its slots are the fault. */
static void no_rows(void **state)
{
    (void)state;
    struct call c;
    for (int form = 0; form < 3; form++) {
        call_make(&c, &(struct example){.n = 1, .slots = L(0), .paged = form > 0});
        c.cache_shape[form == 2] = 0; /* no rows, no blocks, blocks of no rows */
        expect_status(contexts[0], sy_kv_scatter(contexts[0], &c.args), SY_ERR_INDEX);
        expect_fault(contexts[0], SY_FAULT_SLOT_RANGE, -1, 0, 0, 0);
    }
}

/* ---- Shapes ------------------------------------------------------------------------------------------------- */

/* Slots [2,3] with a row stride, rows of two dimensions, pages of another layer between ours. */
static void leading_dimensions_and_gaps(void **state)
{
    (void)state;
    struct tensor cache, src, slots;
    unsigned char want[6 * 4], rows[6 * 4];
    const int32_t to[] = {5, 0, 3, 2, 4, 1};
    for (int i = 0; i < 24; i++)
        rows[i] = (unsigned char)(i + 1);
    for (int i = 0; i < 6; i++)
        memcpy(want + 4 * to[i], rows + 4 * i, 4);
    tensor_make(&cache, SY_U8, 4, L(3, 2, 2, 2),
                &(struct layout){.inner = 2, .row_gap = 3, .outer_gap = 17, .byte_offset = 2, .misalign = 1});
    tensor_make(&src, SY_U8, 4, L(2, 3, 2, 2), &(struct layout){.inner = 2, .row_gap = 5});
    tensor_make(&slots, SY_I32, 2, L(2, 3), &(struct layout){.row_gap = 2});
    tensor_put(&src, rows);
    tensor_put(&slots, to);
    unsigned char *before = tensor_snapshot(&cache);
    expect_status(
        contexts[1],
        sy_kv_scatter(
            contexts[1],
            &(sy_kv_scatter_args){.cache = &cache.t, .src = &src.t, .slots = &slots.t, .check_unique = true}),
        SY_OK);
    tensor_expect(&cache, want, before, "cache");
    free(before);
    tensor_free(&cache);
    tensor_free(&src);
    tensor_free(&slots);
}

/* ---- Random ------------------------------------------------------------------------------------------------- */

static struct {
    int code[SCATTER_DUPLICATE + 1], padded, paged, paged_gap, gap, misaligned, unnamed, element[17];
} seen;

struct fixture {
    struct scatter_case in;
    int64_t block_size, lead[2];
    bool paged;
    DLDataType element, slot_type;
    struct tensor cache, src, slots;
    unsigned char *want, *rows;
    int64_t *dense_slots;
    sy_kv_scatter_args args;
};

static struct layout any_layout(uint64_t *rng, size_t element)
{
    struct layout at = {.strided = rng_below(rng, 2)};
    if (rng_below(rng, 3) == 0)
        at.row_gap = 1 + rng_below(rng, 9);
    if (rng_below(rng, 3) == 0)
        at.misalign = (size_t)rng_below(rng, 64);
    seen.gap += at.row_gap > 0;
    seen.misaligned += at.misalign % element != 0;
    return at;
}

/* A random choice of distinct slots, here and there in order, so that there are runs to copy as one. */
static void fill_slots(struct fixture *f, uint64_t *rng)
{
    struct scatter_case *in = &f->in;
    bool *taken = calloc((size_t)in->rows + 1, sizeof *taken);
    assert_non_null(taken);
    int64_t next = 0;
    for (int64_t i = 0; i < in->n; i++) {
        if (rng_below(rng, 12) == 0)
            next = rng_below(rng, in->rows);
        while (taken[next])
            next = (next + 1) % in->rows;
        taken[next] = true;
        f->dense_slots[i] = next;
        if (in->skip && rng_below(rng, 9) == 0) {
            f->dense_slots[i] = -1;
            seen.padded++;
        }
    }
    for (int64_t r = 0; r < in->rows; r++)
        seen.unnamed += !taken[r];
    free(taken);
}

static void plant(struct fixture *f, uint64_t *rng)
{
    const int64_t n = f->in.n, odd[] = {-1, -2, INT32_MIN, INT32_MAX, f->in.rows, f->in.rows - 1};
    int64_t *slot = &f->dense_slots[rng_below(rng, n)];
    *slot = rng_below(rng, 2) && f->in.unique ? f->dense_slots[rng_below(rng, n)]
                                              : odd[rng_below(rng, f->in.unique ? 6 : 5)];
}

static void fixture_tensors(struct fixture *f, uint64_t *rng)
{
    struct scatter_case *in = &f->in;
    const size_t element = type_bytes(f->element), slot_bytes = type_bytes(f->slot_type);
    const int64_t width = (int64_t)(in->row_bytes / element);
    struct layout at = any_layout(rng, element), src_at = any_layout(rng, element),
                  slots_at = any_layout(rng, slot_bytes);
    if (f->paged && rng_below(rng, 2))
        at.outer_gap = 1 + rng_below(rng, 30);
    seen.paged += f->paged;
    seen.paged_gap += at.outer_gap > 0;
    if (f->paged)
        tensor_make(&f->cache, f->element, 3, L(in->rows / f->block_size, f->block_size, width), &at);
    else
        tensor_make(&f->cache, f->element, 2, L(in->rows, width), &at);
    tensor_make(&f->src, f->element, 3, L(f->lead[0], f->lead[1], width), &src_at);
    tensor_make(&f->slots, f->slot_type, 2, f->lead, &slots_at);
    tensor_put(&f->cache, f->want);
    tensor_put(&f->src, f->rows);
    for (int64_t i = 0; i < in->n; i++)
        memcpy((unsigned char *)tensor_row(&f->slots, i / f->lead[1]) + (size_t)(i % f->lead[1]) * slot_bytes,
               &f->dense_slots[i], slot_bytes);
    f->args = (sy_kv_scatter_args){.cache = &f->cache.t,
                                   .src = &f->src.t,
                                   .slots = &f->slots.t,
                                   .pad = in->skip ? SY_PAD_SKIP : SY_PAD_ERROR,
                                   .check_unique = in->unique};
}

static void fixture_make(struct fixture *f, uint64_t *rng, int faults)
{
    struct scatter_case *in = &f->in;
    in->n = f->lead[0] * f->lead[1];
    f->want = malloc((size_t)in->rows * in->row_bytes);
    f->rows = malloc((size_t)in->n * in->row_bytes);
    f->dense_slots = calloc((size_t)in->n, sizeof *f->dense_slots);
    assert_true(f->want && f->rows && f->dense_slots);
    rng_fill(rng, f->want, (size_t)in->rows * in->row_bytes);
    rng_fill(rng, f->rows, (size_t)in->n * in->row_bytes);
    in->src = f->rows;
    in->slots = f->dense_slots;
    fill_slots(f, rng);
    for (int i = 0; i < faults; i++)
        plant(f, rng);
    fixture_tensors(f, rng);
}

static void fixture_free(struct fixture *f)
{
    tensor_free(&f->cache);
    tensor_free(&f->src);
    tensor_free(&f->slots);
    free(f->want);
    free(f->rows);
    free(f->dense_slots);
}

/* On every thread count, each time from the same cache. */
static void fixture_check(struct fixture *f)
{
    unsigned char *before = tensor_snapshot(&f->cache);
    const struct scatter_fault want = oracle_kv_scatter(&f->in, f->want);
    seen.code[want.code]++;
    for (size_t i = 0; i < COUNT_OF(contexts); i++) {
        sy_ctx *ctx = contexts[i];
        memcpy(f->cache.mem, before, f->cache.bytes);
        expect_status(ctx, sy_kv_scatter(ctx, &f->args), want.code == SCATTER_FINE ? SY_OK : SY_ERR_INDEX);
        if (want.code == SCATTER_FINE) {
            tensor_expect(&f->cache, f->want, before, "cache");
        } else {
            expect_fault(ctx, want.code == SCATTER_SLOT ? SY_FAULT_SLOT_RANGE : SY_FAULT_DUPLICATE, -1,
                         want.position, want.value, want.limit);
            tensor_expect_unchanged(&f->cache, before, "cache");
        }
    }
    free(before);
}

static void random_shapes(void **state)
{
    static const DLDataType elements[] = {{kDLInt, 8, 1},    {kDLBfloat, 16, 1}, {kDLUInt, 24, 1},
                                          {kDLFloat, 32, 1}, {kDLFloat, 64, 1},  {kDLComplex, 128, 1}};
    const int faults = (int)(uintptr_t)*state;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        uint64_t rng = seed * 100 + (uint64_t)faults;
        struct fixture f = {.element = elements[seed % 6], .slot_type = seed % 4 < 2 ? SY_I32 : SY_I64};
        f.paged = rng_below(&rng, 2);
        f.block_size = 1 + rng_below(&rng, 9);
        f.lead[0] = 1 + rng_below(&rng, 4);
        f.lead[1] = 1 + rng_below(&rng, 40);
        f.in.rows = (f.lead[0] * f.lead[1] / f.block_size + 1 + rng_below(&rng, 6)) * f.block_size;
        f.in.row_bytes = (size_t)(1 + rng_below(&rng, 20)) * type_bytes(f.element);
        f.in.skip = rng_below(&rng, 2);
        f.in.unique = rng_below(&rng, 2);
        seen.element[type_bytes(f.element)]++;
        fixture_make(&f, &rng, faults);
        fixture_check(&f);
        fixture_free(&f);
    }
}

/* Rows enough for several tasks, short and long, flat and paged, single and in runs. */
static void large(int64_t n, int64_t rows, size_t row_bytes, bool paged, int faults)
{
    uint64_t rng = (uint64_t)n;
    struct fixture f = {.element = SY_U8, .slot_type = SY_I32, .paged = paged, .block_size = 16};
    f.in = (struct scatter_case){.rows = rows, .row_bytes = row_bytes, .unique = true, .skip = paged};
    f.lead[0] = 1;
    f.lead[1] = n;
    fixture_make(&f, &rng, faults);
    fixture_check(&f);
    fixture_free(&f);
}

static void large_for_every_thread_count(void **state)
{
    (void)state;
    large(2000, 3200, 1154, false, 0);
    large(2000, 3200, 1152, true, 0);
    large(9000, 9600, 64, true, 0);
    large(40, 48, 30000, false, 0);
    large(2000, 2000, 700, false, 3);
    large(6000, 6400, 200, true, 5);
}

static void the_random_cases_were_hard(void **state)
{
    (void)state;
    const int all[] = {seen.code[SCATTER_FINE],
                       seen.code[SCATTER_SLOT],
                       seen.code[SCATTER_DUPLICATE],
                       seen.padded,
                       seen.paged,
                       seen.paged_gap,
                       seen.gap,
                       seen.misaligned,
                       seen.unnamed,
                       seen.element[1],
                       seen.element[2],
                       seen.element[3],
                       seen.element[4],
                       seen.element[8],
                       seen.element[16]};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i] < 5)
            fail_msg("hard case number %zu occurred only %d times", i, all[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(example_8_scatter),
        cmocka_unit_test(example_8_then_gather),
        cmocka_unit_test(every_row_once),
        cmocka_unit_test(nothing_to_write),
        cmocka_unit_test(slots_outside),
        cmocka_unit_test(slots_that_wrap),
        cmocka_unit_test(duplicates),
        cmocka_unit_test(faults_in_order),
        cmocka_unit_test(no_rows),
        cmocka_unit_test(leading_dimensions_and_gaps),
        {"random_without_faults", random_shapes, NULL, NULL, (void *)0},
        {"random_with_one_fault", random_shapes, NULL, NULL, (void *)1},
        {"random_with_three_faults", random_shapes, NULL, NULL, (void *)3},
        cmocka_unit_test(large_for_every_thread_count),
        cmocka_unit_test(the_random_cases_were_hard),
    };
    return cmocka_run_group_tests_name("op_kv_scatter", tests, open_contexts, close_contexts);
}
