/*
 * kv_blocks: random pairs against the oracle, on every thread count. Examples and rules are in tests/examples.
 */
#include "support.h"

#include "oracle/kv_blocks.h"

/* ---- A call ------------------------------------------------------------------------------------------------- */

enum { MOST = 2500 };

struct input {
    int64_t n, n_src, n_dst, size, width; /* blocks of [size, width] 16-bit elements */
    bool one_cache, flat, wide;
    int64_t src_gap, dst_gap; /* elements between blocks */
    int64_t pairs[2 * MOST];
};

static void make_cache(struct tensor *x, const struct input *in, int64_t blocks, int64_t gap,
                       const void *dense)
{
    const int64_t paged[] = {blocks, in->size, in->width}, flat[] = {blocks * in->size, in->width};
    if (in->flat)
        tensor_make(x, SY_F16, 2, flat, &(struct layout){.inner = 2});
    else
        tensor_make(x, SY_F16, 3, paged, &(struct layout){.inner = 2, .row_gap = gap});
    tensor_put(x, dense);
}

static void make_pairs(struct tensor *x, const struct input *in)
{
    tensor_make(x, in->wide ? SY_I64 : SY_I32, 2, (int64_t[]){in->n, 2},
                &(struct layout){.row_gap = in->wide});
    for (int64_t i = 0; i < in->n; i++)
        for (int64_t k = 0; k < 2; k++)
            memcpy((unsigned char *)tensor_row(x, i) + (size_t)k * type_bytes(x->t.dtype),
                   &in->pairs[2 * i + k], type_bytes(x->t.dtype));
}

static const sy_fault_code codes[] = {SY_FAULT_NONE, SY_FAULT_BLOCK_RANGE, SY_FAULT_DUPLICATE,
                                      SY_FAULT_HAZARD};

static void check_on(sy_ctx *ctx, const struct input *in, const unsigned char *old_src,
                     const unsigned char *old_dst, const unsigned char *want,
                     const struct blocks_fault *fault)
{
    struct tensor src = {0}, dst, pairs;
    make_cache(&dst, in, in->n_dst, in->dst_gap, old_dst);
    make_pairs(&pairs, in);
    if (!in->one_cache)
        make_cache(&src, in, in->n_src, in->src_gap, old_src);
    const sy_kv_blocks_args args = {.cache = in->one_cache ? &dst.t : NULL,
                                    .src = in->one_cache ? NULL : &src.t,
                                    .dst = in->one_cache ? NULL : &dst.t,
                                    .pairs = &pairs.t,
                                    .block_size = in->flat ? in->size : 0};
    unsigned char *before = tensor_snapshot(&dst);
    sy_query query;
    expect_status(ctx, sy_kv_blocks_query(ctx, &args, &query), SY_OK);
    assert_int_equal(query.rows, in->n);
    expect_status(ctx, sy_kv_blocks(ctx, &args), fault->code == BLOCKS_FINE ? SY_OK : SY_ERR_INDEX);
    if (fault->code == BLOCKS_FINE) {
        tensor_expect(&dst, want, before, "dst");
    } else {
        sy_fault got;
        tensor_expect_unchanged(&dst, before, "dst");
        assert_int_equal(sy_ctx_fault(ctx, &got), SY_OK);
        assert_int_equal(got.code, codes[fault->code]);
        assert_int_equal(got.position, fault->position);
        if (fault->code != BLOCKS_HAZARD) { /* one pair can meet two others */
            assert_true(got.value == fault->value);
            assert_true(got.limit == fault->limit);
        }
    }
    free(before);
    tensor_free(&src);
    tensor_free(&dst);
    tensor_free(&pairs);
}

static struct blocks_fault check(const struct input *in)
{
    const size_t bytes = (size_t)(in->size * in->width) * 2;
    uint64_t rng = 5;
    unsigned char *src = malloc((size_t)in->n_src * bytes + 1), *dst = malloc((size_t)in->n_dst * bytes + 1),
                  *want = malloc((size_t)in->n_dst * bytes + 1);
    assert_true(src && dst && want);
    rng_fill(&rng, src, (size_t)in->n_src * bytes);
    rng_fill(&rng, dst, (size_t)in->n_dst * bytes);
    if (in->one_cache)
        memcpy(dst, src, (size_t)in->n_src * bytes);
    memcpy(want, dst, (size_t)in->n_dst * bytes);
    const struct blocks_case truth = {in->n, in->n_src, in->n_dst, in->one_cache, in->pairs, bytes, src};
    const struct blocks_fault fault = oracle_kv_blocks(&truth, want);
    for (int i = 0; i < TEST_CONTEXTS; i++)
        check_on(test_contexts[i], in, src, dst, want, &fault);
    free(src);
    free(dst);
    free(want);
    return fault;
}

/* ---- Random ------------------------------------------------------------------------------------------------- */

static int seen[BLOCKS_HAZARD + 1];

/* Sources from one part of the cache, destinations from another, each once; faults anywhere. */
static void fill(struct input *in, uint64_t *rng, int n_faults)
{
    const int64_t apart = in->one_cache ? in->n_src / 2 : 0;
    const int64_t room = in->n_dst - apart;
    for (int64_t i = 0; i < in->n; i++) {
        in->pairs[2 * i] = rng_below(rng, in->one_cache ? apart : in->n_src);
        in->pairs[2 * i + 1] = apart + (i * 7 + 3) % room;
    }
    for (int f = 0; f < n_faults; f++) {
        const int64_t i = rng_below(rng, in->n), written = in->pairs[2 * rng_below(rng, in->n) + 1];
        const int64_t odd[] = {-1, in->n_dst, in->n_src, written, written, written};
        in->pairs[2 * i + rng_below(rng, 2)] = odd[rng_below(rng, COUNT_OF(odd))];
    }
}

static void random_pairs(void **state)
{
    const int n_faults = (int)(uintptr_t)*state;
    static struct input in;
    for (uint64_t seed = 1; seed <= 150; seed++) {
        uint64_t rng = seed * 8 + (uint64_t)n_faults;
        in = (struct input){.n_src = 2 + rng_below(&rng, 30), .size = 1 + rng_below(&rng, 4)};
        in.width = 1 + rng_below(&rng, 20);
        in.one_cache = rng_below(&rng, 2);
        in.n_dst = in.one_cache ? in.n_src : 1 + rng_below(&rng, 30);
        in.flat = rng_below(&rng, 3) == 0;
        in.wide = rng_below(&rng, 2);
        in.src_gap = rng_below(&rng, 5);
        in.dst_gap = rng_below(&rng, 5);
        const int64_t room = in.n_dst - (in.one_cache ? in.n_src / 2 : 0);
        in.n = 1 + rng_below(&rng, room % 7 == 0 ? 1 : room);
        fill(&in, &rng, n_faults);
        seen[check(&in).code]++;
    }
}

/* Blocks of more than one piece, and more pieces than the kernel takes at once. */
static void large_for_every_thread_count(void **state)
{
    (void)state;
    static struct input in;
    in = (struct input){
        .n = 3, .n_src = 4, .n_dst = 5, .size = 150, .width = 1000, .pairs = {1, 4, 2, 0, 3, 2}};
    assert_int_equal(check(&in).code, BLOCKS_FINE);
    uint64_t rng = 9;
    in = (struct input){.n = 390, .n_src = 800, .n_dst = 800, .size = 4, .width = 300, .one_cache = true};
    fill(&in, &rng, 0);
    assert_int_equal(check(&in).code, BLOCKS_FINE);
    in.pairs[2 * 389 + 1] = in.pairs[2 * 17 + 1];
    assert_int_equal(check(&in).code, BLOCKS_DUPLICATE);
    in = (struct input){.n = MOST, .n_src = 5200, .n_dst = 5200, .size = 1, .width = 3, .one_cache = true};
    fill(&in, &rng, 0);
    assert_int_equal(check(&in).code, BLOCKS_FINE);
    in.pairs[2 * 2300] = in.pairs[2 * 2400 + 1];
    assert_int_equal(check(&in).code, BLOCKS_HAZARD);
    in.pairs[2 * 2350 + 1] = in.pairs[2 * 17 + 1];
    assert_int_equal(check(&in).code, BLOCKS_DUPLICATE);
}

/* There is none, so its length must not cost any time. */
static void long_blocks_of_an_empty_cache(void **state)
{
    (void)state;
    static struct input in;
    in = (struct input){
        .n = 1, .size = INT64_C(1) << 40, .width = 3, .one_cache = true, .flat = true, .pairs = {0, 1}};
    assert_int_equal(check(&in).code, BLOCKS_RANGE);
}

static void the_random_cases_were_hard(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(seen); i++)
        if (seen[i] < 10)
            fail_msg("%s occurred only %d times", sy_fault_name(codes[i]), seen[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"random_without_faults", random_pairs, NULL, NULL, (void *)0},
        {"random_with_one_fault", random_pairs, NULL, NULL, (void *)1},
        {"random_with_three_faults", random_pairs, NULL, NULL, (void *)3},
        cmocka_unit_test(large_for_every_thread_count),
        cmocka_unit_test(long_blocks_of_an_empty_cache),
        cmocka_unit_test(the_random_cases_were_hard),
    };
    return cmocka_run_group_tests_name("op_kv_blocks", tests, test_open_contexts, test_close_contexts);
}
