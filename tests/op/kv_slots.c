/*
 * kv_slots, kv_scatter and kv_gather together. Random calls of kv_slots are in kv_gather.c, examples and rules in
 * tests/examples.
 */
#include "support.h"

/* Tokens of two sequences are written in any order; gathered by position, each sequence is whole again. */
static void slots_scatter_gather(void **state)
{
    (void)state;
    enum { S = 3, TOKENS = 7, BLOCKS = 7, N = 2 * TOKENS };
    int32_t table[2][3] = {{6, 1, 4}, {0, 5, 2}}, batch[N], position[N], slots[N], rows[N],
            indices[2][TOKENS], cache[BLOCKS * S] = {0}, out[2][TOKENS];
    for (int i = 0; i < N; i++) {
        const int token = i * 5 % N;
        batch[i] = token / TOKENS;
        position[i] = token % TOKENS;
        rows[i] = 100 * batch[i] + position[i];
        indices[i / TOKENS][i % TOKENS] = i % TOKENS;
    }
    const DLTensor t = sy_tensor(table, SY_I32, 2, (int64_t[]){2, 3}),
                   b = sy_tensor(batch, SY_I32, 1, (int64_t[]){N}),
                   p = sy_tensor(position, SY_I32, 1, (int64_t[]){N}),
                   s = sy_tensor(slots, SY_I32, 1, (int64_t[]){N}),
                   r = sy_tensor(rows, SY_I32, 2, (int64_t[]){N, 1}),
                   c = sy_tensor(cache, SY_I32, 3, (int64_t[]){BLOCKS, S, 1}),
                   i = sy_tensor(indices, SY_I32, 2, (int64_t[]){2, TOKENS}),
                   o = sy_tensor(out, SY_I32, 3, (int64_t[]){2, TOKENS, 1});
    sy_ctx *ctx = test_contexts[1];
    expect_status(ctx,
                  sy_kv_slots(ctx, &(sy_kv_slots_args){.batch = &b,
                                                       .position = &p,
                                                       .block_table = &t,
                                                       .block_size = S,
                                                       .num_rows = BLOCKS * S,
                                                       .slots = &s}),
                  SY_OK);
    expect_status(
        ctx,
        sy_kv_scatter(ctx, &(sy_kv_scatter_args){.cache = &c, .src = &r, .slots = &s, .check_unique = true}),
        SY_OK);
    expect_status(
        ctx,
        sy_kv_gather(
            ctx,
            &(sy_kv_gather_args){.cache = &c, .indices = &i, .block_table = &t, .block_size = S, .out = &o}),
        SY_OK);
    for (int at = 0; at < N; at++)
        assert_int_equal(out[at / TOKENS][at % TOKENS], 100 * (at / TOKENS) + at % TOKENS);
}

/* More tokens than a device validates at once, alone and as one sequence; of several faults the first is reported. */
static void many_tokens(void **state)
{
    (void)state;
    enum { N = 70001, S = 16, BLOCKS = 50, FIRST = 66662 };
    static int32_t batch[N], position[N], slots[N], table[2][BLOCKS];
    for (int i = 0; i < N; i++) {
        batch[i] = i % 3 == 0;
        position[i] = i % 17 == 0 ? -1 : (int32_t)((int64_t)i * 31 % (BLOCKS * S));
        table[i % 2][i / 2 % BLOCKS] = (i / 2 % BLOCKS * 7 + i % 2) % BLOCKS;
    }
    const DLTensor b = sy_tensor(batch, SY_I32, 1, (int64_t[]){N}),
                   p = sy_tensor(position, SY_I32, 1, (int64_t[]){N}),
                   t = sy_tensor(table, SY_I32, 2, (int64_t[]){2, BLOCKS}),
                   one = sy_tensor(table[1], SY_I32, 1, (int64_t[]){BLOCKS}),
                   s = sy_tensor(slots, SY_I32, 1, (int64_t[]){N});
    sy_kv_slots_args args = {
        .batch = &b, .position = &p, .block_table = &t, .block_size = S, .pad = SY_PAD_SKIP, .slots = &s};
    const sy_kv_translate_args sequence = {
        .indices = &p, .block_table = &one, .block_size = S, .pad = SY_PAD_SKIP, .slots = &s};
    sy_ctx *ctx = test_contexts[1];
    for (int call = 0; call < 3; call++) { /* with rows of a table, without, and kv_translate */
        args.batch = call == 0 ? &b : NULL;
        args.block_table = call == 0 ? &t : &one;
        expect_status(ctx, call < 2 ? sy_kv_slots(ctx, &args) : sy_kv_translate(ctx, &sequence), SY_OK);
        for (int i = 0; i < N; i++) {
            const int32_t at = position[i], r = call == 0 ? batch[i] : 1;
            assert_int_equal(slots[i], at < 0 ? -1 : table[r][at / S] * S + at % S);
        }
    }
    position[N - 1] = position[FIRST + 1] = BLOCKS * S;
    position[FIRST] = -2;
    memset(slots, 0x5a, sizeof slots);
    for (int call = 0; call < 3; call++) {
        args.batch = call == 0 ? &b : NULL;
        args.block_table = call == 0 ? &t : &one;
        expect_status(ctx, call < 2 ? sy_kv_slots(ctx, &args) : sy_kv_translate(ctx, &sequence),
                      SY_ERR_INDEX);
        assert_non_null(strstr(sy_ctx_error(ctx), "66662 is -2"));
        for (int i = 0; i < N; i++)
            assert_int_equal(slots[i], 0x5a5a5a5a);
    }
    batch[FIRST - 1] = 2;
    args.batch = &b;
    args.block_table = &t;
    expect_status(ctx, sy_kv_slots(ctx, &args), SY_ERR_INDEX);
    assert_non_null(strstr(sy_ctx_error(ctx), "66661 is 2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(slots_scatter_gather), cmocka_unit_test(many_tokens)};
    return cmocka_run_group_tests_name("op_kv_slots", tests, test_open_contexts, test_close_contexts);
}
