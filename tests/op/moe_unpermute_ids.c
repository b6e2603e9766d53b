/*
 * moe_unpermute_ids: seeded cases against the oracle on every kernel table and several thread counts, and the round trip
 * with moe_permute_ids over windows, as ranks do it. Worked examples are in tests/examples.
 */
#include "support.h"

#include "oracle/moe_permute_ids.h"
#include "oracle/moe_rows_case.h"

#include <math.h>

static struct {
    int outside, missing, zero_weight, nan, empty, alone, no_bias;
} seen;

/* ---- Random cases against the oracle ------------------------------------------------------------------------- */

struct fixture {
    int64_t tokens, slots, hidden, rows, begin;
    enum rows_type type, prob_type;
    bool weighted, biased, by_choice, with[2]; /* residual, shared */
    int64_t biases, limit;
    struct tensor y, indices, probs, x, bias, bias_ids, added[2];
    unsigned char *dense_y, *dense_probs, *dense_bias, *dense_ids, *dense_added[2], *want;
};

/* Numbers, one in ten of them a zero of either sign; wild ones have any bits among them. */
static unsigned char *numbers(uint64_t *rng, enum rows_type type, int64_t n, bool wild)
{
    unsigned char *data = rows_numbers(rng, type, n, wild);
    for (int64_t i = 0; i < n; i++)
        if (rng_below(rng, 10) == 0)
            rows_store(type, data, i, rng_below(rng, 2) ? 0.0f : -0.0f);
        else if (wild && rng_below(rng, 12) == 0)
            rng_fill(rng, data + (size_t)i * rows_bytes(type), rows_bytes(type));
    return data;
}

/* The value of choice j of a token: false where it adds nothing. */
static bool value_of(const struct fixture *f, int64_t t, int64_t j, int64_t h, float *value)
{
    int32_t row, id = -1;
    memcpy(&row, f->indices.mem + (f->by_choice ? j * f->tokens + t : t * f->slots + j) * 4, 4);
    if (f->biased)
        memcpy(&id, f->dense_ids + (t * f->slots + j) * 4, 4);
    const bool there = row >= f->begin && row < f->begin + f->rows;
    seen.missing += row == -1;
    seen.outside += row >= 0 && !there;
    seen.alone += row == -1 && id >= 0;
    seen.no_bias += f->biased && id < 0 && there;
    const double x = there ? rows_value(f->type, f->dense_y, (row - f->begin) * f->hidden + h) : 0;
    *value = id < 0 ? (float)x : (float)(x + rows_value(f->type, f->dense_bias, id * f->hidden + h));
    return there || (row == -1 && id >= 0);
}

static void expect_sums(struct fixture *f)
{
    float weights[16], values[16];
    f->want = calloc((size_t)(f->tokens * f->hidden) + 1, rows_bytes(f->type));
    assert_non_null(f->want);
    for (int64_t i = 0; i < f->tokens * f->hidden; i++) {
        const int64_t t = i / f->hidden, h = i % f->hidden;
        int64_t n = 0;
        for (int a = 0; a < 2; a++)
            if (f->with[a]) {
                weights[n] = 1;
                values[n++] = (float)rows_value(f->type, f->dense_added[a], i);
            }
        for (int64_t j = 0; j < f->slots; j++) {
            if (!value_of(f, t, j, h, &values[n]))
                continue;
            weights[n] = (float)rows_value(f->prob_type, f->dense_probs, t * f->slots + j);
            seen.zero_weight += weights[n++] == 0;
        }
        const float sum = oracle_slot_sum(n, f->weighted ? weights : NULL, values);
        seen.nan += isnan(sum);
        seen.empty += n == 0;
        rows_store(f->type, f->want, i, sum);
    }
}

/* One case in two adds nothing but rows; the others a bias, a residual, a shared row, or several of them. */
static void make_added(struct fixture *f, uint64_t *rng, uint64_t *layout)
{
    const DLDataType type = rows_dl_type(f->type);
    const bool any = rng_below(rng, 2) == 0;
    const int64_t total = f->tokens * f->slots, x[] = {f->tokens, f->hidden}, ids[] = {f->tokens, f->slots};
    f->biases = 1 + rng_below(rng, 5);
    f->biased = any && rng_below(rng, 2) == 0;
    f->by_choice = any && rng_below(rng, 2) == 0;
    f->dense_bias = numbers(rng, f->type, f->biases * f->hidden, true);
    f->dense_ids = calloc((size_t)total + 1, 4);
    assert_non_null(f->dense_ids);
    for (int64_t i = 0; i < total; i++)
        memcpy(f->dense_ids + 4 * i, &(int32_t){(int32_t)(rng_below(rng, f->biases + 1) - 1)}, 4);
    rows_place(&f->bias, layout, type, 2, (int64_t[]){f->biases, f->hidden}, f->dense_bias);
    rows_place(&f->bias_ids, layout, SY_I32, 2, ids, f->dense_ids);
    for (int a = 0; a < 2; a++) {
        f->with[a] = any && rng_below(rng, 2) == 0;
        f->dense_added[a] = numbers(rng, f->type, f->tokens * f->hidden, true);
        rows_place(&f->added[a], layout, type, 2, x, f->dense_added[a]);
    }
}

/* Tensors are laid out at random, or compact without `layout`. */
static void check_case(struct fixture *f, uint64_t *rng, uint64_t *layout)
{
    const DLDataType type = rows_dl_type(f->type);
    const int64_t total = f->tokens * f->slots, y[] = {f->rows, f->hidden}, probs[] = {f->tokens, f->slots},
                  x[] = {f->tokens, f->hidden};
    f->weighted = rng_below(rng, 3) > 0;
    f->prob_type = (enum rows_type)rng_below(rng, ROWS_TYPES);
    f->dense_y = numbers(rng, f->type, f->rows * f->hidden, true);
    f->dense_probs = numbers(rng, f->prob_type, total, rng_below(rng, 4) == 0);
    rows_place(&f->y, layout, type, 2, y, f->dense_y);
    rows_place(&f->probs, layout, rows_dl_type(f->prob_type), 2, probs, f->dense_probs);
    rows_place(&f->x, layout, type, 2, x, NULL);
    tensor_make(&f->indices, SY_I32, 1, &total, NULL);
    f->limit = rng_below(rng, 3) == 0 ? total + rng_below(rng, 9) : 0;
    for (int64_t i = 0; i < total; i++)
        memcpy(f->indices.mem + i * 4,
               &(int32_t){(int32_t)(rng_below(rng, (f->limit ? f->limit : total) + 1) - 1)}, 4);
    make_added(f, rng, layout);
    expect_sums(f);
    const sy_moe_unpermute_ids_args args = {.permuted_tokens = &f->y.t,
                                            .sorted_indices = &f->indices.t,
                                            .probs = f->weighted ? &f->probs.t : NULL,
                                            .num_tokens = f->tokens,
                                            .row_begin = f->begin,
                                            .bias = f->biased ? &f->bias.t : NULL,
                                            .bias_ids = f->biased ? &f->bias_ids.t : NULL,
                                            .residual = f->with[0] ? &f->added[0].t : NULL,
                                            .shared = f->with[1] ? &f->added[1].t : NULL,
                                            .num_rows = f->limit,
                                            .by_choice = f->by_choice,
                                            .tokens = &f->x.t};
    for (size_t c = 0; c < rows_n_contexts; c++) {
        memset(f->x.mem, 0xA5, f->x.bytes);
        unsigned char *before = tensor_snapshot(&f->x);
        expect_status(rows_contexts[c], sy_moe_unpermute_ids(rows_contexts[c], &args), SY_OK);
        tensor_expect(&f->x, f->want, before, "tokens");
        free(before);
    }
    void *const arrays[] = {f->dense_y,   f->dense_probs,    f->want,          f->dense_bias,
                            f->dense_ids, f->dense_added[0], f->dense_added[1]};
    for (size_t i = 0; i < COUNT_OF(arrays); i++)
        free(arrays[i]);
    struct tensor *const all[] = {&f->y,    &f->indices,  &f->probs,    &f->x,
                                  &f->bias, &f->bias_ids, &f->added[0], &f->added[1]};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        tensor_free(all[i]);
}

static void random_cases(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 150; seed++) {
        uint64_t rng = seed;
        struct fixture f = {
            .tokens = 1 + rng_below(&rng, 20), .slots = rng_below(&rng, 10), .hidden = rng_below(&rng, 40)};
        f.begin = rng_below(&rng, 2) ? rng_below(&rng, f.tokens * f.slots + 1) : 0;
        f.rows = rng_below(&rng, f.tokens * f.slots + 3);
        f.type = (enum rows_type)(seed % ROWS_TYPES);
        check_case(&f, &rng, &rng);
    }
    struct fixture large = {
        .tokens = 1201, .slots = 6, .hidden = 65, .rows = 6000, .begin = 500, .type = ROWS_BF16};
    uint64_t rng = 77;
    check_case(&large, &rng, &rng);
    for (int i = 0; i < 4; i++) { /* long aligned rows; with probs and without */
        struct fixture wide = {.tokens = 40,
                               .slots = 2 + 2 * i,
                               .hidden = 520,
                               .rows = 70,
                               .begin = 5,
                               .type = (enum rows_type)(i % ROWS_TYPES)};
        check_case(&wide, &rng, NULL);
    }
    const int all[] = {seen.outside, seen.missing, seen.zero_weight, seen.nan,
                       seen.empty,   seen.alone,   seen.no_bias};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i] < 20)
            fail_msg("hard case number %zu occurred only %d times", i, all[i]);
}

/* Two ranks each take a window of the rows; their partial sums add up to the tokens times the sum of the weights. */
static void windows_of_two_ranks(void **state)
{
    enum { T = 30, K = 4, H = 6, TOTAL = T * K };
    static float tokens[T][H], rows[TOTAL][H], probs[T][K], part[2][T][H], whole[T][H];
    static int32_t ids[T][K], places[TOTAL];
    uint64_t rng = 6;
    (void)state;
    for (int t = 0; t < T; t++) {
        for (int h = 0; h < H; h++)
            tokens[t][h] = (float)(rng_below(&rng, 65) - 32);
        for (int j = 0; j < K; j++) {
            ids[t][j] = (int32_t)rng_below(&rng, 10);
            probs[t][j] = (float)(1 << rng_below(&rng, 3)) / 4;
        }
    }
    DLTensor x = sy_tensor(tokens, SY_F32, 2, (int64_t[]){T, H}),
             i = sy_tensor(ids, SY_I32, 2, (int64_t[]){T, K}),
             p = sy_tensor(probs, SY_F32, 2, (int64_t[]){T, K}),
             s = sy_tensor(places, SY_I32, 1, (int64_t[]){TOTAL});
    const int64_t cut[] = {0, 47, TOTAL};
    for (int rank = 0; rank < 3; rank++) { /* the third takes all */
        const int64_t begin = rank < 2 ? cut[rank] : 0, end = rank < 2 ? cut[rank + 1] : TOTAL;
        DLTensor y = sy_tensor(rows, SY_F32, 2, (int64_t[]){end - begin, H}),
                 out = sy_tensor(rank < 2 ? part[rank] : whole, SY_F32, 2, (int64_t[]){T, H});
        expect_status(rows_contexts[0],
                      sy_moe_permute_ids(rows_contexts[0], &(sy_moe_permute_ids_args){.tokens = &x,
                                                                                      .ids = &i,
                                                                                      .num_experts = 10,
                                                                                      .window = true,
                                                                                      .row_begin = begin,
                                                                                      .row_end = end,
                                                                                      .permuted_tokens = &y,
                                                                                      .sorted_indices = &s}),
                      SY_OK);
        expect_status(
            rows_contexts[0],
            sy_moe_unpermute_ids(rows_contexts[0], &(sy_moe_unpermute_ids_args){.permuted_tokens = &y,
                                                                                .sorted_indices = &s,
                                                                                .probs = &p,
                                                                                .row_begin = begin,
                                                                                .tokens = &out}),
            SY_OK);
    }
    for (int t = 0; t < T; t++)
        for (int h = 0; h < H; h++) {
            float sum = 0;
            for (int j = 0; j < K; j++)
                sum += probs[t][j];
            assert_true(part[0][t][h] + part[1][t][h] == whole[t][h]);
            assert_true(whole[t][h] == sum * tokens[t][h]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_cases),
        cmocka_unit_test(windows_of_two_ranks),
    };
    return cmocka_run_group_tests_name("op_moe_unpermute_ids", tests, rows_open_contexts,
                                       rows_close_contexts);
}
