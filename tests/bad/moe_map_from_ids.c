/*
 * moe_map_from_ids rejects: one valid call, one spoiler per row, the status, the sentence and untouched outputs. Then
 * pairs of faults, of which the one that comes first in the documented order must win.
 */
#include "support.h"

enum { TOKENS = 5, SLOTS = 3, EXPERTS = 7 };

static void set_id(struct test_call *c, int token, int slot, int32_t id)
{
    memcpy(test_call_tensor(c, "ids")->mem + 4 * (token * SLOTS + slot), &id, sizeof id);
}

static void make(struct test_call *c)
{
    sy_moe_map_from_ids_args *a = &c->args.map_from_ids;
    *c = (struct test_call){.op = "moe_map_from_ids", .first_output = 2};
    test_call_add(c, "ids", &a->ids, SY_I32, 2, (int64_t[]){TOKENS, SLOTS});
    test_call_add(c, "weights", &a->weights, SY_F16, 2, (int64_t[]){TOKENS, SLOTS});
    test_call_add(c, "routing_map", &a->routing_map, SY_BOOL, 2, (int64_t[]){TOKENS, EXPERTS});
    test_call_add(c, "probs", &a->probs, SY_F16, 2, (int64_t[]){TOKENS, EXPERTS});
    for (int i = 0; i < TOKENS * SLOTS; i++)
        set_id(c, i / SLOTS, i % SLOTS, (i / SLOTS + 2 * (i % SLOTS)) % EXPERTS);
    a->num_experts = EXPERTS;
}

static void map_past_2_to_the_63(struct test_call *c)
{
    test_call_tensor(c, "ids")->shape[0] = INT64_C(1) << 33;
    test_call_tensor(c, "weights")->shape[0] = INT64_C(1) << 33;
    c->args.map_from_ids.num_experts = INT64_C(1) << 30;
}

static const struct rejection rows[] = {
    {"weights without probs", NO_TENSOR("probs")},
    {"probs without weights", NO_TENSOR("weights")},

    {"map one expert short", BAD_EXTENT("routing_map", 1, 6, "[5,6]", "[5,7]")},
    {"map one token long", BAD_EXTENT("routing_map", 0, 6, "[6,7]", "[5,7]")},
    {"probs one expert long", BAD_EXTENT("probs", 1, 8, "[5,8]", "[5,7]")},

    {"ids with inner stride 2", BAD_STRIDE("ids", 1, 2, "2", "contiguous"), .query = true},
    {"weights with overlapping rows", BAD_STRIDE("weights", 0, 2, "2", "3"), .query = true},
    {"map with overlapping rows", BAD_STRIDE("routing_map", 0, 6, "6", "7")},
};

static const struct rejection paper_rows[] = {
    {"map of 2^63 bytes", BAD_CALL(map_past_2_to_the_63, SY_ERR_OVERFLOW, "num_experts", "1073741824", NULL)},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("weights")},
    {"dtype", BAD_TYPE("routing_map", kDLInt, 32, 1)},
    {"value", BAD_FIELD("num_experts", -1, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"output shape", BAD_EXTENT("routing_map", 1, 6, NULL, NULL)},
    {"stride", BAD_STRIDE("weights", 0, 2, NULL, NULL)},
    {"device", BAD_DEVICE("ids", kDLCUDA)},
    {"alias", BAD_OVER("probs", "weights", 0)},
    {"contents", BAD_NUMBER("ids", 10, EXPERTS, SY_ERR_INDEX, NULL, NULL)},
};

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_query_rejections(&list, make, paper_rows, COUNT_OF(paper_rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    return test_run(&list, "bad_moe_map_from_ids");
}
