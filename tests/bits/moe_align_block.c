/*
 * moe_align_block: scenes with and without an expert map, with missing ids and wrong ones.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_align(sy_ctx *ctx, const void *args)
{
    return sy_moe_align_block(ctx, args);
}

enum mode { PLAIN, MAPPED, SKIPPED, WRONG };

static struct box *make_ids(int64_t tokens, int64_t slots, int64_t experts, bool missing, bool wrong)
{
    struct box *ids = box_new(index_type(), 2, (int64_t[]){tokens, slots});
    for (int64_t i = 0; i < tokens * slots; i++) {
        int64_t id = below(experts);
        if (missing && one_in(6))
            id = one_in(2) ? -1 : experts;
        if (wrong && one_in(40))
            id = one_in(2) ? -2 - id : experts + 1 + id;
        put(ids, i, (uint64_t)id);
    }
    return ids;
}

static void align_scene(enum mode mode)
{
    static const int64_t sizes[] = {0, 1, 9, 30, 400, 5000};
    int64_t tokens = sizes[below(COUNT(sizes))], slots = below(9), experts = 1 + below(30),
            block = 1 + below(20), longer = below(5);
    int64_t total = tokens * slots, used = experts < total ? experts : total;
    int64_t blocks = (total + used * (block - 1)) / block, places = blocks * block + longer;
    sy_moe_align_block_args args = {
        .num_experts = experts, .block_size = block, .skip_unmapped = mode == SKIPPED};
    args.allow_missing = one_in(3);
    args.ids = &make_ids(tokens, slots, experts, args.allow_missing, mode == WRONG)->t;
    if (mode == MAPPED || mode == SKIPPED) {
        struct box *map = box_new(SY_I32, 1, &experts);
        for (int64_t e = 0; e < experts; e++)
            put(map, e, one_in(3) ? UINT32_MAX : (uint64_t)below(1000));
        args.expert_map = &map->t;
    }
    args.sorted_slots = &output(box_new(SY_I32, 1, &places))->t;
    args.block_experts = &output(box_new(SY_I32, 1, &(int64_t){blocks + longer}))->t;
    args.num_padded = &output(box_new(SY_I32, 1, &(int64_t){1}))->t;
    args.expert_counts = &output(box_new(SY_I64, 1, &experts))->t;
    args.expert_offsets = &output(box_new(SY_I64, 1, &(int64_t){experts + 1}))->t;
    run_scene(call_align, &args);
}

void moe_align_block_lines(void)
{
    static const char *const modes[] = {"plain", "mapped", "skipped", "wrong"};
    char name[128];
    for (int m = 0; m < COUNT(modes); m++) {
        snprintf(name, sizeof name, "moe_align_block %s", modes[m]);
        begin_line(name);
        for (int i = 0; i < (m == WRONG ? 12 : 40); i++)
            align_scene((enum mode)m);
        end_line();
    }
}
