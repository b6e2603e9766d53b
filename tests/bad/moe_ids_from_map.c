/*
 * moe_ids_from_map rejects: one valid call, one spoiler per row, the status, the sentence and untouched outputs. Then
 * pairs of faults, of which the one that comes first in the documented order must win.
 */
#include "support.h"

enum { TOKENS = 5, SLOTS = 3, EXPERTS = 7 };

static void make(struct test_call *c)
{
    sy_moe_ids_from_map_args *a = &c->args.ids_from_map;
    *c = (struct test_call){.op = "moe_ids_from_map", .first_output = 2};
    struct tensor *map =
        test_call_add(c, "routing_map", &a->routing_map, SY_BOOL, 2, (int64_t[]){TOKENS, EXPERTS});
    test_call_add(c, "probs", &a->probs, SY_F16, 2, (int64_t[]){TOKENS, EXPERTS});
    test_call_add(c, "ids", &a->ids, SY_I32, 2, (int64_t[]){TOKENS, SLOTS});
    test_call_add(c, "weights", &a->weights, SY_F16, 2, (int64_t[]){TOKENS, SLOTS});
    for (int t = 0; t < TOKENS; t++)
        for (int j = 0; j < SLOTS; j++)
            map->mem[t * EXPERTS + (t + 2 * j) % EXPERTS] = 1;
    a->k = SLOTS;
}

static void experts_past_int32(struct test_call *c)
{
    test_call_tensor(c, "routing_map")->shape[1] = INT64_C(1) << 31;
    test_call_tensor(c, "probs")->shape[1] = INT64_C(1) << 31;
}

static const struct rejection rows[] = {
    {"probs without weights", NO_TENSOR("weights")},
    {"weights without probs", NO_TENSOR("probs")},

    {"ids one slot short", BAD_EXTENT("ids", 1, 2, "[5,2]", "[5,3]")},
    {"ids one token long", BAD_EXTENT("ids", 0, 6, "[6,3]", "[5,3]")},
    {"weights one slot long", BAD_EXTENT("weights", 1, 4, "[5,4]", "[5,3]")},

    {"map with inner stride 2", BAD_STRIDE("routing_map", 1, 2, "2", "contiguous"), .query = true},
    {"ids with overlapping rows", BAD_STRIDE("ids", 0, 2, "2", "3")},
};

static const struct rejection paper_rows[] = {
    {"experts of 2^31",
     BAD_CALL(experts_past_int32, SY_ERR_VALUE, "routing_map", "2147483648", "2147483647")},
    {"ids of 2^65 bytes",
     BAD_FIELD("k", INT64_C(1) << 60, SY_ERR_OVERFLOW, NULL, "1152921504606846976", NULL)},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("probs")},
    {"dtype", BAD_TYPE("ids", kDLFloat, 32, 1)},
    {"value", BAD_FIELD("k", -1, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"output shape", BAD_EXTENT("ids", 1, 2, NULL, NULL)},
    {"stride", BAD_STRIDE("probs", 0, 2, NULL, NULL)},
    {"device", BAD_DEVICE("routing_map", kDLCUDA)},
    {"alias", BAD_OVER("weights", "ids", 0)},
    {"contents", BAD_NUMBER("routing_map", 2 * EXPERTS + 1, 200, SY_ERR_ROUTING, NULL, NULL)},
};

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_query_rejections(&list, make, paper_rows, COUNT_OF(paper_rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    return test_run(&list, "bad_moe_ids_from_map");
}
