/*
 * moe_reorder_chunks: seeded cases against the oracle on every kernel table and several thread counts, both directions,
 * with strides, gaps, unused rows and faulty counts.
 */
#include "support_random.h"

#include "oracle/moe_reorder_chunks.h"

static struct {
    int empty_chunk, unused, strided, scalar_rows, negative, too_many, ok;
} seen;

struct fixture {
    struct chunks_case in;
    int64_t live, *counts, *source;
    struct tensor rows, extra, out_rows, out_extra, *count, *offsets;
    unsigned char *dense_rows, *dense_extra, *want_rows, *want_extra;
    int64_t *want_offsets;
};

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
    f->count = any_tensor(rng, wide ? SY_I64 : SY_I32, 2, in->ranks, in->experts);
    for (int64_t i = 0; i < cells; i++) {
        const int64_t share = 1 + 2 * left / (cells - i);
        f->counts[i] = rng_below(rng, 4) ? rng_below(rng, (share < left ? share : left) + 1) : 0;
        left -= f->counts[i];
        seen.empty_chunk += f->counts[i] == 0;
    }
    if (faulty && cells > 0)
        f->counts[rng_below(rng, cells)] = rng_below(rng, 2) ? -1 - rng_below(rng, 9) : in->rows + 1;
    seen.unused += left > 0;
    put_numbers(f->count, f->counts);
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
    f->offsets = any_tensor(rng, SY_I64, 1, f->in.experts + 1, 0);
    seen.scalar_rows += inner == 0;
    const size_t bytes = (size_t)f->in.rows * bytes_of_row(&f->rows),
                 extra_bytes = (size_t)f->in.rows * bytes_of_row(&f->extra);
    f->dense_rows = need((int64_t)bytes, 1);
    f->dense_extra = need((int64_t)extra_bytes, 1);
    f->want_rows = need((int64_t)bytes, 1);
    f->want_extra = need((int64_t)extra_bytes, 1);
    f->want_offsets = need(f->in.experts + 1, 8);
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
    const struct output out[] = {{"reordered_rows", &f->out_rows, f->want_rows, true},
                                 {"reordered_extra", &f->out_extra, f->want_extra, more},
                                 {"expert_offsets", f->offsets, f->want_offsets, more}};
    const sy_moe_reorder_chunks_args args = {.rows = &f->rows.t,
                                             .counts = &f->count->t,
                                             .extra = more ? &f->extra.t : NULL,
                                             .inverse = inverse,
                                             .reordered_rows = &f->out_rows.t,
                                             .reordered_extra = more ? &f->out_extra.t : NULL,
                                             .expert_offsets = more ? &f->offsets->t : NULL};
    expect_rows(f, f->dense_rows, f->want_rows, bytes_of_row(&f->rows), inverse);
    expect_rows(f, f->dense_extra, f->want_extra, bytes_of_row(&f->extra), inverse);
    fill_outputs(out, COUNT_OF(out));
    expect_outputs(ctx, sy_moe_reorder_chunks(ctx, &args), fault, out, COUNT_OF(out));
}

static void check_case(struct fixture *f, uint64_t *rng, int64_t width, bool faulty)
{
    f->counts = need(f->in.ranks * f->in.experts, 8);
    f->source = need(f->in.rows, 8);
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
    struct tensor *const tensors[] = {&f->rows, &f->extra, &f->out_rows, &f->out_extra};
    for (size_t i = 0; i < COUNT_OF(tensors); i++)
        tensor_free(tensors[i]);
    free_all();
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
    expect_hard(seen, 10);
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
        cmocka_unit_test(random_cases),
        cmocka_unit_test(large_cases),
    };
    return cmocka_run_group_tests_name("op_moe_reorder_chunks", tests, open_contexts, close_contexts);
}
