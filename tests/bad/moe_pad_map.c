/*
 * moe_pad_map refuses: one valid call, one spoiler per row, the status, the sentence and untouched outputs. Then
 * pairs of faults, of which the one that comes first in the documented order must win, and calls that are fine.
 */
#include "support.h"

enum { TOKENS = 6, EXPERTS = 3 };

static sy_status run(sy_ctx *ctx, struct test_call *c)
{
    return sy_moe_pad_map(ctx, &c->args.pad_map);
}

static sy_status query(sy_ctx *ctx, struct test_call *c, sy_query *q)
{
    return sy_moe_pad_map_query(ctx, &c->args.pad_map, q);
}

static void make(struct test_call *c)
{
    sy_moe_pad_map_args *a = &c->args.pad_map;
    *c = (struct test_call){.op = "moe_pad_map", .first_output = 1, .run = run, .query = query};
    struct tensor *map =
        test_call_add(c, "routing_map", &a->routing_map, SY_U8, 2, (int64_t[]){TOKENS, EXPERTS});
    test_call_add(c, "padded_map", &a->padded_map, SY_U8, 2, (int64_t[]){TOKENS, EXPERTS});
    test_call_add(c, "expert_counts", &a->expert_counts, SY_I64, 1, (int64_t[]){EXPERTS});
    for (int i = 0; i < TOKENS * EXPERTS; i++)
        map->mem[i] = i % 4 == 0; /* 2, 1, 2 tokens */
    a->alignment = 4;
}

static void alignment_of_none(struct test_call *c)
{
    c->args.pad_map.alignment = 0;
}

static void alignment_negative(struct test_call *c)
{
    c->args.pad_map.alignment = INT64_MIN;
}

static void alignment_past_tokens(struct test_call *c)
{
    c->args.pad_map.alignment = 7;
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

static const struct refusal rows[] = {
    {"no map", NO_TENSOR("routing_map"), .query = true},
    {"no padded_map", NO_TENSOR("padded_map")},
    {"map without data", NO_DATA("routing_map")},
    {"padded_map without data", NO_DATA("padded_map")},
    {"expert_counts without data", NO_DATA("expert_counts")},
    {"map without shape", NO_SHAPE("routing_map"), .query = true},

    {"map as int32", BAD_TYPE("routing_map", kDLInt, 32, 1), .query = true},
    {"map as f32", BAD_TYPE("routing_map", kDLFloat, 32, 1), .query = true},
    {"padded_map of another type", BAD_TYPE("padded_map", kDLInt, 8, 1)},
    {"expert_counts as int32", BAD_TYPE("expert_counts", kDLInt, 32, 1)},

    {"map of rank 1", BAD_RANK("routing_map", 1, "1", "2"), .query = true},
    {"padded_map of rank 3", BAD_RANK("padded_map", 3, "3", "2")},
    {"map with negative experts", BAD_EXTENT("routing_map", 1, -3, "-3", NULL), .query = true},

    {"alignment 0", BAD_CALL(alignment_of_none, SY_ERR_VALUE, "alignment", "is 0", "1 or more"),
     .query = true},
    {"alignment -2^63",
     BAD_CALL(alignment_negative, SY_ERR_VALUE, "alignment", "-9223372036854775808", "1 or more"),
     .query = true},

    {"padded_map one token short", BAD_EXTENT("padded_map", 0, 5, "[5,3]", "[6,3]")},
    {"padded_map one expert long", BAD_EXTENT("padded_map", 1, 4, "[6,4]", "[6,3]")},
    {"expert_counts one short", BAD_EXTENT("expert_counts", 0, 2, "[2]", "[3]")},

    {"map with inner stride 2", BAD_STRIDE("routing_map", 1, 2, "2", "contiguous"), .query = true},
    {"map with overlapping rows", BAD_STRIDE("routing_map", 0, 2, "2", "3"), .query = true},
    {"padded_map with overlapping rows", BAD_STRIDE("padded_map", 0, 2, "2", "3")},
    {"map on CUDA", BAD_DEVICE("routing_map", kDLCUDA), .query = true},
    {"padded_map on CUDA", BAD_DEVICE("padded_map", kDLCUDA)},
    {"padded_map one row into the map", BAD_OVER("padded_map", "routing_map", 3)},
    {"expert_counts over the map", BAD_OVER("expert_counts", "routing_map", 0)},

    {"more tokens wanted than there are",
     BAD_CALL(alignment_past_tokens, SY_ERR_ROUTING, "routing_map", "2 of 6 tokens to expert 0", "7 tokens")},
    {"the last expert wants too many",
     BAD_CALL(last_expert_overfull, SY_ERR_ROUTING, "routing_map", "5 of 6 tokens to expert 2", "8 tokens")},
};

static const struct refusal paper_rows[] = {
    {"tokens past 2^31",
     BAD_CALL(tokens_past_int32, SY_ERR_VALUE, "routing_map", "2147483648 tokens", "2147483647")},
    {"experts past 2^31",
     BAD_CALL(experts_past_int32, SY_ERR_VALUE, "routing_map", "2147483648 experts", "2147483647")},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct refusal ladder[] = {
    {"null", NO_DATA("expert_counts")},
    {"dtype", BAD_TYPE("padded_map", kDLInt, 8, 1)},
    {"value", BAD_CALL(alignment_of_none, SY_ERR_VALUE, "alignment", NULL, NULL)},
    {"output shape", BAD_EXTENT("padded_map", 0, 5, NULL, NULL)},
    {"stride", BAD_STRIDE("routing_map", 0, 2, NULL, NULL)},
    {"device", BAD_DEVICE("padded_map", kDLCUDA)},
    {"contents", BAD_CALL(last_expert_overfull, SY_ERR_ROUTING, "routing_map", NULL, NULL)},
};

static void in_place(struct test_call *c)
{
    test_call_tensor(c, "padded_map")->t.data = test_call_tensor(c, "routing_map")->t.data;
}

static void pinned_host_memory_is_host_memory(void **state)
{
    (void)state;
    test_accepts_pinned(make);
}

static void adjacent_tensors_do_not_overlap(void **state)
{
    (void)state;
    test_accepts_adjacent(make);
}

static void in_place_is_fine(void **state)
{
    (void)state;
    test_accepts(make, in_place);
}

static void missing_arguments(void **state)
{
    (void)state;
    sy_query q;
    sy_ctx *ctx = test_ctx(1, NULL);
    assert_int_equal(sy_moe_pad_map(NULL, NULL), SY_ERR_NULL);
    assert_int_equal(sy_moe_pad_map(ctx, NULL), SY_ERR_NULL);
    assert_int_equal(sy_moe_pad_map_query(ctx, NULL, &q), SY_ERR_NULL);
    sy_ctx_destroy(ctx);
}

int main(void)
{
    struct test_list list = {0};
    test_add_refusals(&list, make, rows, COUNT_OF(rows));
    test_add_query_refusals(&list, make, paper_rows, COUNT_OF(paper_rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    test_add(&list, "pinned_host_memory_is_host_memory", pinned_host_memory_is_host_memory, NULL);
    test_add(&list, "adjacent_tensors_do_not_overlap", adjacent_tensors_do_not_overlap, NULL);
    test_add(&list, "in_place_is_fine", in_place_is_fine, NULL);
    test_add(&list, "missing_arguments", missing_arguments, NULL);
    return test_run(&list, "bad_moe_pad_map");
}
