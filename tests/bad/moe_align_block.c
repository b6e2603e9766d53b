/*
 * moe_align_block rejects: one valid call, one spoiler per row, the status, the sentence and untouched outputs. Then
 * pairs of faults, of which the one that comes first in the documented order must win.
 */
#include "support.h"

enum { TOKENS = 5, SLOTS = 2, EXPERTS = 4, BLOCK = 3, TOTAL = 10, PLACES = 18 };

static void make(struct test_call *c)
{
    sy_moe_align_block_args *a = &c->args.align_block;
    *c = (struct test_call){.op = "moe_align_block", .first_output = 2};
    struct tensor *ids = test_call_add(c, "ids", &a->ids, SY_I32, 2, (int64_t[]){TOKENS, SLOTS});
    struct tensor *map = test_call_add(c, "expert_map", &a->expert_map, SY_I32, 1, (int64_t[]){EXPERTS});
    test_call_add(c, "sorted_slots", &a->sorted_slots, SY_I32, 1, (int64_t[]){PLACES});
    test_call_add(c, "block_experts", &a->block_experts, SY_I32, 1, (int64_t[]){PLACES / BLOCK});
    test_call_add(c, "num_padded", &a->num_padded, SY_I32, 1, (int64_t[]){1});
    test_call_add(c, "expert_counts", &a->expert_counts, SY_I64, 1, (int64_t[]){EXPERTS});
    test_call_add(c, "expert_offsets", &a->expert_offsets, SY_I64, 1, (int64_t[]){EXPERTS + 1});
    for (int i = 0; i < TOTAL; i++)
        memcpy(ids->mem + 4 * i, &(int32_t){i * 3 % EXPERTS}, 4);
    for (int e = 0; e < EXPERTS; e++)
        memcpy(map->mem + 4 * e, &(int32_t){e - 1}, 4);
    a->num_experts = EXPERTS;
    a->block_size = BLOCK;
    a->skip_unmapped = true;
}

static void slots_past_int32(struct test_call *c)
{
    test_call_tensor(c, "ids")->shape[1] = INT64_C(1) << 30;
}

static void slots_past_int64(struct test_call *c)
{
    test_call_tensor(c, "ids")->shape[1] = INT64_C(1) << 62;
}

static void tokens_past_int32(struct test_call *c)
{
    test_call_tensor(c, "ids")->shape[0] = INT64_C(1) << 31;
    test_call_tensor(c, "ids")->shape[1] = 0;
}

static const struct rejection rows[] = {
    {"block_experts one short", BAD_EXTENT("block_experts", 0, 5, "5 elements", "at least 6")},
    {"num_padded of two", BAD_EXTENT("num_padded", 0, 2, "[2]", "[1]")},
    {"expert_counts one short", BAD_EXTENT("expert_counts", 0, 3, "[3]", "[4]")},
    {"expert_offsets one short", BAD_EXTENT("expert_offsets", 0, 4, "[4]", "[5]")},

    {"ids with inner stride 2", BAD_STRIDE("ids", 1, 2, "2", "contiguous"), .query = true},
    {"ids with overlapping rows", BAD_STRIDE("ids", 0, 1, "1", "2"), .query = true},
    {"expert_map with stride 2", BAD_STRIDE("expert_map", 0, 2, "2", "contiguous"), .query = true},
    {"sorted_slots with stride 2", BAD_STRIDE("sorted_slots", 0, 2, "2", "contiguous")},
};

static const struct rejection paper_rows[] = {
    {"slots past 2^31", BAD_CALL(slots_past_int32, SY_ERR_VALUE, "ids", "5368709120 slots", "2147483647")},
    {"slots past 2^63", BAD_CALL(slots_past_int64, SY_ERR_VALUE, "ids", "slots", "2147483647")},
    {"tokens past 2^31", BAD_CALL(tokens_past_int32, SY_ERR_VALUE, "ids", "2147483648 tokens", "2147483647")},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("expert_map")},
    {"dtype", BAD_TYPE("expert_offsets", kDLInt, 32, 1)},
    {"value", BAD_FIELD("block_size", 0, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"output shape", BAD_EXTENT("expert_counts", 0, 3, NULL, NULL)},
    {"stride", BAD_STRIDE("sorted_slots", 0, 2, NULL, NULL)},
    {"device", BAD_DEVICE("block_experts", kDLCUDA)},
    {"alias", BAD_OVER("num_padded", "expert_map", 0)},
    {"contents", BAD_NUMBER("ids", 7, EXPERTS, SY_ERR_INDEX, NULL, NULL)},
};

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_query_rejections(&list, make, paper_rows, COUNT_OF(paper_rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    return test_run(&list, "bad_moe_align_block");
}
