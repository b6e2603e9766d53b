/*
 * kv_translate: tokens shared by ranks, long sequences. Random calls are in kv_gather.c, examples and rules in tests/examples.
 */
#include "support.h"

/* Tokens dealt out to ranks like cards, a run at a time: each has a slot on one rank, in the order they came. */
static void shared_tokens(void **state)
{
    enum { TOKENS = 60, BLOCKS = 30 };
    int64_t indices[TOKENS], slots[TOKENS], valid[1], table[BLOCKS];
    (void)state;
    for (int i = 0; i < BLOCKS; i++)
        table[i] = i * 7 % BLOCKS;
    for (int i = 0; i < TOKENS; i++)
        indices[i] = i;
    const DLTensor x = sy_tensor(indices, SY_I64, 1, (int64_t[]){TOKENS}),
                   y = sy_tensor(slots, SY_I64, 1, (int64_t[]){TOKENS}),
                   v = sy_tensor(valid, SY_I64, 1, (int64_t[]){1}),
                   t = sy_tensor(table, SY_I64, 1, (int64_t[]){BLOCKS});
    for (int64_t world = 0; world < 5; world++)
        for (int64_t run = 0; run < 4; run++)
            for (int64_t rank = 0; rank < (world > 0 ? world : 1); rank++) {
                const int64_t size = 2 + run, ranks = world > 0 ? world : 1, of_run = run > 0 ? run : 1;
                sy_kv_translate_args args = {.indices = &x,
                                             .block_table = &t,
                                             .block_size = size,
                                             .slots = &y,
                                             .valid = &v,
                                             .world = world,
                                             .rank = rank,
                                             .interleave = run};
                sy_ctx *ctx = test_contexts[(world + run) % 4];
                expect_status(ctx, sy_kv_translate(ctx, &args), SY_OK);
                int64_t turn = 0, in_run = 0, own = 0; /* whose card it is, and how many this rank has */
                for (int64_t i = 0; i < TOKENS; i++) {
                    const bool mine = turn == rank;
                    assert_int_equal(slots[i], mine ? table[own / size] * size + own % size : -1);
                    own += mine;
                    if (++in_run == of_run) {
                        in_run = 0;
                        turn = turn + 1 == ranks ? 0 : turn + 1;
                    }
                }
                assert_int_equal(valid[0], own);
            }
}

/* Sequences that are long enough for a device to cut them, with padding among the tokens and behind them. */
static void long_sequences(void **state)
{
    enum { BATCH = 3, K = 5000, BLOCKS = 40, SIZE = 128 };
    static int32_t indices[BATCH][K], slots[BATCH][K], table[BATCH][BLOCKS];
    static int64_t wide[BATCH][K];
    int32_t valid[BATCH], counts[BATCH] = {K, 2049, 0};
    (void)state;
    for (int b = 0; b < BATCH; b++)
        for (int j = 0; j < K; j++) {
            indices[b][j] = (j + b) % 11 == 0 ? -1 : (j * 7 + b) % (BLOCKS * SIZE);
            table[b][j % BLOCKS] = (j % BLOCKS * 3 + b) % BLOCKS;
        }
    const DLTensor x = sy_tensor(indices, SY_I32, 2, (int64_t[]){BATCH, K}),
                   t = sy_tensor(table, SY_I32, 2, (int64_t[]){BATCH, BLOCKS}),
                   v = sy_tensor(valid, SY_I32, 1, (int64_t[]){BATCH}),
                   n = sy_tensor(counts, SY_I32, 1, (int64_t[]){BATCH}),
                   narrow = sy_tensor(slots, SY_I32, 2, (int64_t[]){BATCH, K}),
                   other = sy_tensor(wide, SY_I64, 2, (int64_t[]){BATCH, K});
    for (int call = 0; call < 4; call++) {
        const bool counted = call % 2;
        const sy_kv_translate_args args = {.indices = &x,
                                           .block_table = &t,
                                           .block_size = SIZE,
                                           .pad = SY_PAD_SKIP,
                                           .counts = counted ? &n : NULL,
                                           .slots = call < 2 ? &narrow : &other,
                                           .valid = &v};
        expect_status(test_contexts[call], sy_kv_translate(test_contexts[call], &args), SY_OK);
        for (int b = 0; b < BATCH; b++) {
            int32_t live = 0;
            for (int j = 0; j < K; j++) {
                const int32_t at = indices[b][j];
                const bool in = at >= 0 && (!counted || j < counts[b]);
                assert_int_equal(call < 2 ? slots[b][j] : wide[b][j],
                                 in ? table[b][at / SIZE] * SIZE + at % SIZE : -1);
                live += in;
            }
            assert_int_equal(valid[b], live);
        }
    }
    /* One bad token at the end: nothing is written. */
    indices[BATCH - 1][K - 1] = BLOCKS * SIZE;
    memset(slots, 0x5a, sizeof slots);
    memset(valid, 0x5a, sizeof valid);
    const sy_kv_translate_args args = {.indices = &x,
                                       .block_table = &t,
                                       .block_size = SIZE,
                                       .pad = SY_PAD_SKIP,
                                       .slots = &narrow,
                                       .valid = &v};
    expect_status(test_contexts[0], sy_kv_translate(test_contexts[0], &args), SY_ERR_INDEX);
    for (int i = 0; i < BATCH; i++)
        assert_int_equal(valid[i], 0x5a5a5a5a);
    for (int i = 0; i < BATCH * K; i++)
        assert_int_equal(slots[i / K][i % K], 0x5a5a5a5a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(shared_tokens), cmocka_unit_test(long_sequences)};
    return cmocka_run_group_tests_name("op_kv_translate", tests, test_open_contexts, test_close_contexts);
}
