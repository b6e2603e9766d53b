/*
 * kv_blocks: pairs within one cache and from one to another, with and without conflicts.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call(sy_ctx *ctx, const void *args)
{
    return sy_kv_blocks(ctx, args);
}

static void scene(bool two, bool faults)
{
    const int64_t blocks = 2 + below(30);
    const int64_t size = 1 + below(5);
    const int64_t width = one_in(5) ? 9000 : 1 + below(40);
    const int64_t n = 1 + below(blocks / 2);
    const int64_t half = two ? 0 : blocks / 2;
    const DLDataType type = index_type();
    struct box *from = fill_random(box_new(SY_BF16, 3, (int64_t[]){blocks, size, width}));
    struct box *to = two ? fill_random(box_new(SY_BF16, 3, (int64_t[]){blocks, size, width})) : from;
    struct box *pairs = box_new(type, 2, (int64_t[]){n, 2});
    for (int64_t i = 0; i < n; i++) {
        const int64_t s = faults && one_in(5) ? below(blocks + 1) : below(two ? blocks : half);
        const int64_t d = faults && one_in(9) ? below(blocks + 1) - 1 : half + i;
        put(pairs, 2 * i, (uint64_t)s);
        put(pairs, 2 * i + 1, (uint64_t)d);
    }
    output(to);
    const sy_kv_blocks_args args = {.cache = two ? NULL : &from->t,
                                    .src = two ? &from->t : NULL,
                                    .dst = two ? &to->t : NULL,
                                    .pairs = &pairs->t};
    run_scene(call, &args);
}

void kv_blocks_lines(void)
{
    char name[128];
    for (int two = 0; two < 2; two++)
        for (int f = 0; f < 2; f++) {
            snprintf(name, sizeof name, "kv_blocks %s %s", two ? "two caches" : "one cache",
                     f ? "faulty" : "valid");
            begin_line(name);
            for (int i = 0; i < 60; i++)
                scene(two, f);
            end_line();
        }
}
