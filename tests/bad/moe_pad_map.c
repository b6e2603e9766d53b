/*
 * moe_pad_map rejects: one valid call, one spoiler per row, the status, the sentence and untouched outputs. Then
 * pairs of faults, of which the one that comes first in the documented order must win.
 */
#include "support.h"

enum { TOKENS = 6, EXPERTS = 3 };

static void make(struct test_call *c)
{
    sy_moe_pad_map_args *a = &c->args.pad_map;
    *c = (struct test_call){.op = "moe_pad_map", .first_output = 1};
    struct tensor *map =
        test_call_add(c, "routing_map", &a->routing_map, SY_U8, 2, (int64_t[]){TOKENS, EXPERTS});
    test_call_add(c, "padded_map", &a->padded_map, SY_U8, 2, (int64_t[]){TOKENS, EXPERTS});
    test_call_add(c, "expert_counts", &a->expert_counts, SY_I64, 1, (int64_t[]){EXPERTS});
    for (int i = 0; i < TOKENS * EXPERTS; i++)
        map->mem[i] = i % 4 == 0; /* 2, 1, 2 tokens */
    a->alignment = 4;
}

static void last_expert_overfull(struct test_call *c)
{
    for (int t = 0; t < 5; t++)
        test_call_tensor(c, "routing_map")->mem[t * EXPERTS + 2] = 1;
}

static void tokens_past_int32(struct test_call *c)
{
    test_call_tensor(c, "routing_map")->shape[0] = INT64_C(1) << 31;
}

static void experts_past_int32(struct test_call *c)
{
    test_call_tensor(c, "routing_map")->shape[1] = INT64_C(1) << 31;
}

static const struct rejection rows[] = {
    {"padded_map one token short", BAD_EXTENT("padded_map", 0, 5, "[5,3]", "[6,3]")},
    {"padded_map one expert long", BAD_EXTENT("padded_map", 1, 4, "[6,4]", "[6,3]")},
    {"expert_counts one short", BAD_EXTENT("expert_counts", 0, 2, "[2]", "[3]")},

    {"map with inner stride 2", BAD_STRIDE("routing_map", 1, 2, "2", "contiguous"), .query = true},
    {"map with overlapping rows", BAD_STRIDE("routing_map", 0, 2, "2", "3"), .query = true},
    {"padded_map with overlapping rows", BAD_STRIDE("padded_map", 0, 2, "2", "3")},
};

static const struct rejection paper_rows[] = {
    {"tokens past 2^31",
     BAD_CALL(tokens_past_int32, SY_ERR_VALUE, "routing_map", "2147483648 tokens", "2147483647")},
    {"experts past 2^31",
     BAD_CALL(experts_past_int32, SY_ERR_VALUE, "routing_map", "2147483648 experts", "2147483647")},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("expert_counts")},
    {"dtype", BAD_TYPE("padded_map", kDLInt, 8, 1)},
    {"value", BAD_FIELD("alignment", 0, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"output shape", BAD_EXTENT("padded_map", 0, 5, NULL, NULL)},
    {"stride", BAD_STRIDE("routing_map", 0, 2, NULL, NULL)},
    {"device", BAD_DEVICE("padded_map", kDLCUDA)},
    {"contents", BAD_CALL(last_expert_overfull, SY_ERR_ROUTING, "routing_map", NULL, NULL)},
};

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_query_rejections(&list, make, paper_rows, COUNT_OF(paper_rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    return test_run(&list, "bad_moe_pad_map");
}
