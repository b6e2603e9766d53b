/*
 * kv_translate: tokens shared by ranks. Random calls are in kv_gather.c, examples and rules in tests/examples.
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(shared_tokens)};
    return cmocka_run_group_tests_name("op_kv_translate", tests, test_open_contexts, test_close_contexts);
}
