/*
 * kv_scatter: random shapes against the oracle, with flat and paged caches, strides, both integer types, padding and
 * planted faults, on every thread count. Examples and rules are in tests/examples.
 */
#include "support.h"

#include "oracle/kv_scatter.h"

#define L(...) ((const int64_t[]){__VA_ARGS__})

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
    for (int i = 0; i < TEST_CONTEXTS; i++) {
        sy_ctx *ctx = test_contexts[i];
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
        {"random_without_faults", random_shapes, NULL, NULL, (void *)0},
        {"random_with_one_fault", random_shapes, NULL, NULL, (void *)1},
        {"random_with_three_faults", random_shapes, NULL, NULL, (void *)3},
        cmocka_unit_test(large_for_every_thread_count),
        cmocka_unit_test(the_random_cases_were_hard),
    };
    return cmocka_run_group_tests_name("op_kv_scatter", tests, test_open_contexts, test_close_contexts);
}
