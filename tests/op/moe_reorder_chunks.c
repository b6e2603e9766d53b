/*
 * moe_reorder_chunks: the worked examples of its page, then seeded cases against the oracle on every kernel table and
 * several thread counts, both directions, with strides, gaps, unused rows and faulty counts.
 */
#include "support.h"

#include "oracle/moe_reorder_chunks.h"

static sy_ctx *contexts[16];
static int n_contexts;
static struct {
    int empty_chunk, unused, strided, scalar_rows, negative, too_many, ok;
} seen;

static int open_contexts(void **state)
{
    static const int threads[] = {1, 2, 3, 8};
    const char *isa;
    (void)state;
    for (int i = 0; (isa = sy_isa_name(i)) != NULL; i++)
        for (size_t j = 0; j < COUNT_OF(threads) && n_contexts < (int)COUNT_OF(contexts); j++)
            contexts[n_contexts++] = test_ctx(threads[j], isa);
    return 0;
}

static int close_contexts(void **state)
{
    (void)state;
    while (n_contexts > 0)
        sy_ctx_destroy(contexts[--n_contexts]);
    return 0;
}

/* ---- Examples ------------------------------------------------------------------------------------------------ */

static void example(void **state)
{
    static const float want[2][8] = {{0, 1, 3, 4, 5, 2, 6, -9}, {0, 1, 5, 2, 3, 4, 6, -9}};
    const int64_t want_offsets[4] = {0, 3, 5, 7};
    (void)state;
    for (int inverse = 0; inverse < 2; inverse++) {
        float rows[8] = {0, 1, 2, 3, 4, 5, 6, 7}, out[8];
        int16_t probs[8] = {0, 10, 20, 30, 40, 50, 60, 70}, moved[8];
        int32_t counts[2][3] = {{2, 0, 1}, {1, 2, 1}};
        int64_t offsets[4];
        DLTensor x = sy_tensor(rows, SY_F32, 2, (int64_t[]){8, 1}),
                 p = sy_tensor(probs, SY_I16, 1, (int64_t[]){8}),
                 c = sy_tensor(counts, SY_I32, 2, (int64_t[]){2, 3}),
                 y = sy_tensor(out, SY_F32, 2, (int64_t[]){8, 1}),
                 m = sy_tensor(moved, SY_I16, 1, (int64_t[]){8}),
                 o = sy_tensor(offsets, SY_I64, 1, (int64_t[]){4});
        sy_moe_reorder_chunks_args args = {.rows = &x, .counts = &c, .extra = &p, .inverse = inverse};
        sy_query query;
        out[7] = -9; /* a row of no chunk */
        moved[7] = -90;
        expect_status(contexts[0], sy_moe_reorder_chunks_query(contexts[0], &args, &query), SY_OK);
        assert_int_equal(query.rows, 8);
        args.reordered_rows = &y;
        args.reordered_extra = &m;
        args.expert_offsets = &o;
        expect_status(contexts[0], sy_moe_reorder_chunks(contexts[0], &args), SY_OK);
        expect_bytes(out, want[inverse], sizeof out);
        for (int i = 0; i < 8; i++)
            assert_int_equal(moved[i], 10 * (int)want[inverse][i]);
        expect_bytes(offsets, want_offsets, sizeof offsets);
    }
}

/* Sums that wrap around would look small. */
static void counts_that_wrap(void **state)
{
    static const struct {
        int64_t counts[3], position, value, limit;
    } cases[] = {{{1, INT64_MAX, 2}, 1, INT64_MAX, 2},
                 {{INT64_MIN, INT64_MIN, 0}, 0, INT64_MIN, 3},
                 {{2, -1, 1}, 1, -1, 1},
                 {{3, 0, 1}, 2, 1, 0}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint8_t rows[3] = {1, 2, 3}, out[3] = {7, 7, 7};
        int64_t counts[3];
        memcpy(counts, cases[i].counts, sizeof counts);
        DLTensor x = sy_tensor(rows, SY_U8, 1, (int64_t[]){3}),
                 c = sy_tensor(counts, SY_I64, 2, (int64_t[]){1, 3}),
                 y = sy_tensor(out, SY_U8, 1, (int64_t[]){3});
        expect_status(
            contexts[0],
            sy_moe_reorder_chunks(
                contexts[0], &(sy_moe_reorder_chunks_args){.rows = &x, .counts = &c, .reordered_rows = &y}),
            SY_ERR_INDEX);
        expect_fault(contexts[0], SY_FAULT_LENGTH_RANGE, 0, cases[i].position, cases[i].value,
                     cases[i].limit);
        expect_bytes(out, ((const uint8_t[]){7, 7, 7}), sizeof out);
    }
}

/* Nothing of something, in every dimension. */
static void empty(void **state)
{
    static const int64_t shapes[][4] = {{0, 2, 2, 3}, {4, 0, 2, 3}, {4, 2, 0, 3}, {4, 2, 2, 0}, {0, 0, 0, 0}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        int64_t row_shape[3] = {shapes[i][0], 2, shapes[i][1]}, count_shape[2] = {shapes[i][2], shapes[i][3]};
        int64_t counts[6] = {0}, offsets[4] = {9, 9, 9, 9}, length = shapes[i][3] + 1;
        float rows[16] = {0}, out[16] = {0};
        const bool none = row_shape[0] * row_shape[2] == 0;
        DLTensor x = sy_tensor(none ? NULL : rows, SY_F32, 3, row_shape),
                 y = sy_tensor(none ? NULL : out, SY_F32, 3, row_shape),
                 c = sy_tensor(count_shape[0] * count_shape[1] > 0 ? counts : NULL, SY_I64, 2, count_shape),
                 o = sy_tensor(offsets, SY_I64, 1, &length);
        counts[0] = shapes[i][1] == 0 ? 4 : 0; /* rows without elements are rows */
        for (int inverse = 0; inverse < 2; inverse++)
            expect_status(
                contexts[0],
                sy_moe_reorder_chunks(contexts[0], &(sy_moe_reorder_chunks_args){.rows = &x,
                                                                                 .counts = &c,
                                                                                 .inverse = inverse,
                                                                                 .reordered_rows = &y,
                                                                                 .expert_offsets = &o}),
                SY_OK);
        for (int64_t e = 0; e < length; e++)
            assert_int_equal(offsets[e], e > 0 ? counts[0] * (count_shape[0] > 0) : 0);
    }
}

/* ---- Random cases against the oracle ------------------------------------------------------------------------- */

struct fixture {
    struct chunks_case in;
    int64_t live, *counts, *source;
    struct tensor rows, extra, count, out_rows, out_extra, offsets;
    unsigned char *dense_rows, *dense_extra, *want_rows, *want_extra;
    int64_t *want_offsets;
};

static void *need(size_t bytes)
{
    void *memory = calloc(bytes + 1, 1);
    assert_non_null(memory);
    return memory;
}

/* Bytes behind one index of the first dimension. */
static size_t bytes_of_row(const struct tensor *x)
{
    size_t bytes = type_bytes(x->t.dtype);
    for (int d = 1; d < x->t.ndim; d++)
        bytes *= (size_t)x->shape[d];
    return bytes;
}

/* A row is `inner` dimensions, of which the last has d1 elements; 0: one element. */
static void make_tensor(struct tensor *x, uint64_t *rng, DLDataType type, int inner, int64_t d0, int64_t d1)
{
    const struct layout at = {.inner = inner,
                              .strided = rng_below(rng, 2),
                              .row_gap = rng_below(rng, 3) ? 0 : 1 + rng_below(rng, 7),
                              .misalign = rng_below(rng, 3) ? 0 : (size_t)rng_below(rng, 64)};
    seen.strided += at.row_gap > 0;
    const int64_t shape[3] = {d0, inner == 2 ? 3 : d1, d1};
    tensor_make(x, type, 1 + inner, shape, &at);
}

static void fill_counts(struct fixture *f, uint64_t *rng, bool faulty)
{
    const struct chunks_case *in = &f->in;
    const int64_t cells = in->ranks * in->experts;
    const bool wide = rng_below(rng, 2);
    int64_t left = in->rows;
    make_tensor(&f->count, rng, wide ? SY_I64 : SY_I32, 1, in->ranks, in->experts);
    for (int64_t i = 0; i < cells; i++) {
        const int64_t share = 1 + 2 * left / (cells - i);
        f->counts[i] = rng_below(rng, 4) ? rng_below(rng, (share < left ? share : left) + 1) : 0;
        left -= f->counts[i];
        seen.empty_chunk += f->counts[i] == 0;
    }
    if (faulty && cells > 0)
        f->counts[rng_below(rng, cells)] = rng_below(rng, 2) ? -1 - rng_below(rng, 9) : in->rows + 1;
    seen.unused += left > 0;
    for (int64_t i = 0; i < cells; i++) {
        unsigned char *row = tensor_row(&f->count, i / in->experts);
        if (wide)
            memcpy(row + i % in->experts * 8, &f->counts[i], 8);
        else
            memcpy(row + i % in->experts * 4, &(int32_t){(int32_t)f->counts[i]}, 4);
    }
}

/* Moves the rows as the list says, or back; rows of no chunk stay as the outputs are filled. */
static void expect_rows(const struct fixture *f, const unsigned char *dense, unsigned char *want, size_t row,
                        bool inverse)
{
    memset(want, 0xA5, (size_t)f->in.rows * row);
    for (int64_t i = 0; i < f->live; i++) {
        const int64_t to = inverse ? f->source[i] : i, from = inverse ? i : f->source[i];
        memcpy(want + (size_t)to * row, dense + (size_t)from * row, row);
    }
}

static void fixture_make(struct fixture *f, uint64_t *rng, int64_t width)
{
    static const DLDataType types[] = {
        {kDLUInt, 8, 1}, {kDLBfloat, 16, 1}, {kDLFloat, 32, 1}, {kDLInt, 64, 1}, {5, 128, 1}};
    const DLDataType type = types[rng_below(rng, 5)], extra = types[rng_below(rng, 5)];
    const int inner = (int)rng_below(rng, 3), inner_extra = (int)rng_below(rng, 2);
    const int64_t width_extra = rng_below(rng, 4);
    make_tensor(&f->rows, rng, type, inner, f->in.rows, width);
    make_tensor(&f->out_rows, rng, type, inner, f->in.rows, width);
    make_tensor(&f->extra, rng, extra, inner_extra, f->in.rows, width_extra);
    make_tensor(&f->out_extra, rng, extra, inner_extra, f->in.rows, width_extra);
    make_tensor(&f->offsets, rng, SY_I64, 0, f->in.experts + 1, 0);
    seen.scalar_rows += inner == 0;
    const size_t bytes = (size_t)f->in.rows * bytes_of_row(&f->rows),
                 extra_bytes = (size_t)f->in.rows * bytes_of_row(&f->extra);
    f->dense_rows = need(bytes);
    f->dense_extra = need(extra_bytes);
    f->want_rows = need(bytes);
    f->want_extra = need(extra_bytes);
    f->want_offsets = need((size_t)(f->in.experts + 1) * 8);
    rng_fill(rng, f->dense_rows, bytes);
    rng_fill(rng, f->dense_extra, extra_bytes);
    tensor_put(&f->rows, f->dense_rows);
    tensor_put(&f->extra, f->dense_extra);
    for (int64_t i = 0; i < f->in.ranks * f->in.experts; i++)
        for (int64_t e = i % f->in.experts; e < f->in.experts; e++)
            f->want_offsets[e + 1] += f->counts[i];
}

static void fixture_run(struct fixture *f, sy_ctx *ctx, const sy_fault *fault, bool inverse, bool more)
{
    struct {
        struct tensor *t;
        const void *want;
        bool given;
        const char *name;
    } out[] = {{&f->out_rows, f->want_rows, true, "reordered_rows"},
               {&f->out_extra, f->want_extra, more, "reordered_extra"},
               {&f->offsets, f->want_offsets, more, "expert_offsets"}};
    const sy_moe_reorder_chunks_args args = {.rows = &f->rows.t,
                                             .counts = &f->count.t,
                                             .extra = more ? &f->extra.t : NULL,
                                             .inverse = inverse,
                                             .reordered_rows = &f->out_rows.t,
                                             .reordered_extra = more ? &f->out_extra.t : NULL,
                                             .expert_offsets = more ? &f->offsets.t : NULL};
    unsigned char *before[COUNT_OF(out)];
    for (size_t i = 0; i < COUNT_OF(out); i++) {
        memset(out[i].t->mem, 0xA5, out[i].t->bytes);
        before[i] = tensor_snapshot(out[i].t);
    }
    expect_rows(f, f->dense_rows, f->want_rows, bytes_of_row(&f->rows), inverse);
    expect_rows(f, f->dense_extra, f->want_extra, bytes_of_row(&f->extra), inverse);
    expect_status(ctx, sy_moe_reorder_chunks(ctx, &args), fault->status);
    if (fault->status != SY_OK)
        expect_fault(ctx, fault->code, fault->batch, fault->position, fault->value, fault->limit);
    for (size_t i = 0; i < COUNT_OF(out); i++) {
        if (out[i].given && fault->status == SY_OK)
            tensor_expect(out[i].t, out[i].want, before[i], out[i].name);
        else
            tensor_expect_unchanged(out[i].t, before[i], out[i].name);
        free(before[i]);
    }
}

static void check_case(struct fixture *f, uint64_t *rng, int64_t width, bool faulty)
{
    f->counts = need((size_t)(f->in.ranks * f->in.experts) * 8);
    f->source = need((size_t)f->in.rows * 8);
    fill_counts(f, rng, faulty);
    fixture_make(f, rng, width);
    f->in.counts = f->counts;
    const sy_fault fault = oracle_moe_reorder_chunks(&f->in, &f->live, f->source);
    seen.ok += fault.status == SY_OK;
    seen.negative += fault.status != SY_OK && fault.value < 0;
    seen.too_many += fault.status != SY_OK && fault.value > 0;
    for (int c = 0; c < n_contexts; c++)
        for (int inverse = 0; inverse < 2; inverse++)
            fixture_run(f, contexts[c], &fault, inverse, (c + inverse) % 2);
    struct tensor *const tensors[] = {&f->rows,     &f->extra,     &f->count,
                                      &f->out_rows, &f->out_extra, &f->offsets};
    void *const arrays[] = {f->counts,    f->source,     f->dense_rows,  f->dense_extra,
                            f->want_rows, f->want_extra, f->want_offsets};
    for (size_t i = 0; i < COUNT_OF(tensors); i++)
        tensor_free(tensors[i]);
    for (size_t i = 0; i < COUNT_OF(arrays); i++)
        free(arrays[i]);
}

static void random_cases(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        uint64_t rng = seed;
        struct fixture f = {.in = {.rows = rng_below(&rng, 60), .ranks = rng_below(&rng, 6)}};
        f.in.experts = rng_below(&rng, 8);
        check_case(&f, &rng, rng_below(&rng, 40), seed % 4 == 0);
    }
    const int all[] = {seen.empty_chunk, seen.unused,   seen.strided, seen.scalar_rows,
                       seen.negative,    seen.too_many, seen.ok};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i] < 10)
            fail_msg("hard case number %zu occurred only %d times", i, all[i]);
}

/* Enough bytes for several threads, with more chunks than rows and with fewer. */
static void large_cases(void **state)
{
    static const int64_t shapes[][2] = {{5, 7}, {64, 70}, {1, 3}, {9, 1}};
    uint64_t rng = 8;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        struct fixture f = {.in = {.rows = 2500, .ranks = shapes[i][0], .experts = shapes[i][1]}};
        check_case(&f, &rng, 300, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(example),      cmocka_unit_test(counts_that_wrap), cmocka_unit_test(empty),
        cmocka_unit_test(random_cases), cmocka_unit_test(large_cases),
    };
    return cmocka_run_group_tests_name("op_moe_reorder_chunks", tests, open_contexts, close_contexts);
}
