/*
 * What random runs against an oracle share.
 */
#include "support_random.h"

#include <math.h>

sy_ctx *contexts[16];
int n_contexts;
static unsigned char *before[8]; /* the outputs' memory before the call */

/* On another device (tests/device.c): two contexts, which every other case alternates between. */
int open_contexts(void **state)
{
    static const int threads[] = {1, 2, 3, 8};
    const int most = test_on_device() ? 2 : (int)COUNT_OF(contexts);
    const char *isa;
    (void)state;
    for (int i = 0; (isa = sy_isa_name(i)) != NULL; i++)
        for (size_t j = 0; j < COUNT_OF(threads) && n_contexts < most; j++)
            contexts[n_contexts++] = test_ctx(threads[j], isa);
    return 0;
}

int close_contexts(void **state)
{
    (void)state;
    while (n_contexts > 0)
        sy_ctx_destroy(contexts[--n_contexts]);
    free_all(); /* what a failed test left */
    for (size_t i = 0; i < COUNT_OF(before); i++)
        free(before[i]);
    return 0;
}

/* One list of all that free_all frees. */
static struct needed {
    struct needed *next;
    struct tensor tensor;
    void *memory;
} * all;

static struct needed *new_needed(void)
{
    struct needed *made = calloc(1, sizeof *made);
    assert_non_null(made);
    made->next = all;
    return all = made;
}

void *need(int64_t n, size_t bytes)
{
    struct needed *made = new_needed();
    made->memory = calloc((size_t)n + 1, bytes);
    assert_non_null(made->memory);
    return made->memory;
}

static struct {
    int gap, misaligned, offset;
} layouts;

struct tensor *any_tensor_of(uint64_t *rng, DLDataType type, int rank, const int64_t *shape)
{
    struct needed *made = new_needed();
    struct layout at = {0};
    if (rng != NULL) {
        at.strided = rng_below(rng, 2);
        at.row_gap = rng_below(rng, 3) ? 0 : 1 + rng_below(rng, 7);
        at.misalign = rng_below(rng, 3) ? 0 : (size_t)rng_below(rng, 64);
        at.byte_offset = rng_below(rng, 3) ? 0 : type_bytes(type);
    }
    layouts.gap += at.row_gap > 0;
    layouts.misaligned += at.misalign > 0;
    layouts.offset += at.byte_offset > 0;
    tensor_make(&made->tensor, type, rank, shape, &at);
    return &made->tensor;
}

struct tensor *any_tensor(uint64_t *rng, DLDataType type, int rank, int64_t d0, int64_t d1)
{
    return any_tensor_of(rng, type, rank, (int64_t[]){d0, d1});
}

void free_all(void)
{
    while (all != NULL) {
        struct needed *old = all;
        all = old->next;
        tensor_free(&old->tensor);
        free(old->memory);
        free(old);
    }
}

void put_numbers(struct tensor *x, const int64_t *numbers)
{
    const int64_t columns = x->shape[x->t.ndim - 1];
    const size_t bytes = type_bytes(x->t.dtype);
    for (int64_t i = 0; i < tensor_rows(x) * columns; i++) {
        const int32_t narrow = (int32_t)numbers[i];
        memcpy((char *)tensor_row(x, i / columns) + (size_t)(i % columns) * bytes,
               bytes == 8 ? (const void *)&numbers[i] : &narrow, bytes);
    }
}

void fill_floats(uint64_t *rng, DLDataType type, void *to, int64_t n, int64_t odds)
{
    const bool half = type.code == kDLFloat && type.bits == 16;
    for (int64_t i = 0; i < n; i++) {
        const int64_t kind = odds > 0 && rng_below(rng, odds) == 0 ? rng_below(rng, 5) : -1;
        double value = ldexp(2 * rng_unit(rng) - 1, (int)rng_below(rng, 9) - 4);
        if (kind == 0)
            value = ldexp(value, half ? -14 : -126);
        else if (kind == 1)
            value = ldexp(2 * rng_unit(rng) - 1, half ? 15 : 127);
        else if (kind == 2)
            value = -0.0;
        else if (kind == 3)
            value = rng_below(rng, 2) ? 1 : -1;
        const uint32_t wide = kind == 4 ? (uint32_t)rng_u64(rng) : f32_round(value);
        const uint16_t narrow = kind == 4 ? (uint16_t)wide : half ? f16_round(value) : bf16_round(value);
        if (type.bits == 32)
            memcpy((char *)to + i * 4, &wide, 4);
        else
            memcpy((char *)to + i * 2, &narrow, 2);
    }
}

int32_t any_outside(uint64_t *rng, int64_t limit)
{
    const int64_t far = rng_below(rng, 1000),
                  kinds[] = {INT32_MIN, INT32_MAX, -1, limit, limit + far, -1 - far};
    return (int32_t)kinds[rng_below(rng, COUNT_OF(kinds))];
}

void fill_outputs(const struct output *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        memset(out[i].t->mem, 0xA5, out[i].t->bytes);
    snap_outputs(out, n);
}

void snap_outputs(const struct output *out, size_t n)
{
    assert_true(n <= COUNT_OF(before));
    for (size_t i = 0; i < n; i++) {
        free(before[i]);
        before[i] = tensor_snapshot(out[i].t);
    }
}

void test_expect_outputs(sy_ctx *ctx, sy_status status, const sy_fault *fault, const struct output *out,
                         size_t n, const char *file, int line)
{
    test_expect_status(ctx, status, fault->status, file, line);
    if (status != SY_OK) {
        sy_fault got;
        sy_ctx_fault(ctx, &got);
        test_expect_fault(ctx, fault->code, fault->batch, fault->position, fault->value, fault->limit, file,
                          line);
        if (fault->argument != NULL && *fault->argument != '\0')
            assert_string_equal(got.argument, fault->argument);
    }
    for (size_t i = 0; i < n; i++) {
        if (status == SY_OK && out[i].given)
            tensor_expect(out[i].t, out[i].want, before[i], out[i].name);
        else
            tensor_expect_unchanged(out[i].t, before[i], out[i].name);
    }
}

void test_expect_hard(const int *counters, size_t n, int least)
{
    for (size_t i = 0; i < n; i++)
        if (counters[i] < least)
            fail_msg("hard case number %zu occurred only %d times", i, counters[i]);
    assert_true(layouts.gap >= least && layouts.misaligned >= least && layouts.offset >= least);
}
