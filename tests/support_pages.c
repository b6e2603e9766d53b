/*
 * Valid calls of the operators on whole pages, for the table of support_ops.c.
 */
#include "support.h"

/* Integers i * factor % below. */
static void put_multiples(struct tensor *x, int64_t factor, int64_t below)
{
    for (int64_t i = 0; i < (int64_t)(x->bytes / 4); i++)
        memcpy(x->mem + 4 * i, &(int32_t){(int32_t)(i * factor % below)}, 4);
}

void test_make_ragged(struct test_call *c, bool large, int variant)
{
    (void)variant;
    const int64_t blocks = large ? 400 : 6, width = large ? 600 : 7, tokens = large ? 18 : 4;
    const int64_t batch = large ? 200 : 3;
    sy_kv_ragged_args *a = &c->args.ragged;
    *c = (struct test_call){.op = "kv_ragged", .first_output = 4};
    test_call_add(c, "cache", &a->cache, SY_BF16, 3, (int64_t[]){blocks, 5, width});
    put_multiples(test_call_add(c, "block_table", &a->block_table, SY_I32, 2, (int64_t[]){batch, 4}), 3,
                  blocks);
    put_multiples(test_call_add(c, "cu_lens", &a->cu_lens, SY_I32, 1, (int64_t[]){batch + 1}), tokens,
                  batch * tokens + 1);
    put_multiples(test_call_add(c, "starts", &a->starts, SY_I32, 1, (int64_t[]){batch}), 1, 3);
    test_call_add(c, "out", &a->out, SY_BF16, 2, (int64_t[]){batch * tokens + 1, width});
    a->block_size = 5;
}

/* Every second block to the one after it. */
void test_make_blocks(struct test_call *c, bool large, int variant)
{
    (void)variant;
    const int64_t n = large ? 300 : 3, width = large ? 600 : 7;
    sy_kv_blocks_args *a = &c->args.blocks;
    *c = (struct test_call){.op = "kv_blocks", .first_output = 1};
    put_multiples(test_call_add(c, "pairs", &a->pairs, SY_I32, 2, (int64_t[]){n, 2}), 1, 2 * n);
    test_call_add(c, "cache", &a->cache, SY_BF16, 3, (int64_t[]){2 * n, 5, width});
}
