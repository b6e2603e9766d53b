/*
 * moe_place rejects: one valid call, one spoiler per row, the status, the sentence and untouched outputs. Numbers that do not
 * divide each other, and most wrong contents, stand in tests/examples/moe_place.txt.
 */
#include "support.h"

enum { LAYERS = 2, EXPERTS = 4, PHYSICAL = 8, DEVICES = 4, REPLICAS = 5 };

static void make(struct test_call *c)
{
    sy_moe_place_args *a = &c->args.place;
    static const int64_t by_expert[] = {LAYERS, EXPERTS}, places[] = {LAYERS, PHYSICAL};
    static const int64_t loads[] = {25, 19, 15, 8, 3, 3, 3, 3};
    *c = (struct test_call){.op = "moe_place", .first_output = 2};
    memcpy(test_call_add(c, "loads", &a->loads, SY_I64, 2, by_expert)->mem, loads, sizeof loads);
    struct tensor *previous = test_call_add(c, "previous", &a->previous, SY_I32, 2, places);
    memset(previous->mem, 0, previous->bytes);
    test_call_add(c, "physical_to_logical", &a->physical_to_logical, SY_I32, 2, places);
    test_call_add(c, "logical_to_physical", &a->logical_to_physical, SY_I64, 3,
                  (int64_t[]){LAYERS, EXPERTS, REPLICAS});
    test_call_add(c, "replica_count", &a->replica_count, SY_I32, 2, by_expert);
    test_call_add(c, "device_load", &a->device_load, SY_I64, 2, (int64_t[]){LAYERS, DEVICES});
    test_call_add(c, "expert_mapping", &a->expert_mapping, SY_U16, 2, (int64_t[]){PHYSICAL, DEVICES});
    a->num_physical = PHYSICAL;
    a->devices = DEVICES;
    a->nodes = 2;
    a->groups = 2;
    a->distinct = true;
}

static void nothing_asked(struct test_call *c)
{
    for (int i = c->first_output; i < c->count; i++)
        *c->fields[i] = NULL;
}

/* Eight replicas would fit four devices, not the two of a node. */
static void more_than_a_node_holds(struct test_call *c)
{
    c->args.place.num_physical = 12;
    test_call_tensor(c, "previous")->shape[1] = 12;
}

static void places_past_int32(struct test_call *c)
{
    c->args.place = (sy_moe_place_args){
        .loads = c->args.place.loads, .num_physical = INT64_C(1) << 31, .devices = DEVICES};
}

static void last_load_negative(struct test_call *c)
{
    memcpy(test_call_tensor(c, "loads")->mem + 8 * (LAYERS * EXPERTS - 1), &(int64_t){-1}, 8);
}

/* 2^59 layers of one expert, each in 2^30 places. */
static void places_past_int64(struct test_call *c)
{
    struct tensor *loads = test_call_tensor(c, "loads");
    loads->shape[0] = INT64_C(1) << 59;
    loads->shape[1] = 1;
    c->args.place = (sy_moe_place_args){.loads = &loads->t, .num_physical = 1 << 30, .devices = 1};
}

static const struct rejection rows[] = {
    {"no output", BAD_CALL(nothing_asked, SY_ERR_NULL, "physical_to_logical", "missing", "at least one")},

    {"no experts", BAD_EXTENT("loads", 1, 0, "no experts", "at least 1"), .query = true},
    {"previous of one layer", BAD_EXTENT("previous", 0, 1, "[1,8]", "[2,8]"), .query = true},

    {"devices 0", BAD_FIELD("devices", 0, SY_ERR_VALUE, "devices", "0", "1 or more"), .query = true},
    {"devices 3", BAD_FIELD("devices", 3, SY_ERR_VALUE, "devices", "3", "a divisor"), .query = true},
    {"nodes -1", BAD_FIELD("nodes", -1, SY_ERR_VALUE, "nodes", "-1", "0 or more"), .query = true},
    {"nodes 3", BAD_FIELD("nodes", 3, SY_ERR_VALUE, "nodes", "3", "a divisor"), .query = true},
    {"groups -1", BAD_FIELD("groups", -1, SY_ERR_VALUE, "groups", "-1", "0 or more"), .query = true},
    {"groups 3", BAD_FIELD("groups", 3, SY_ERR_VALUE, "groups", "3", "a divisor"), .query = true},
    {"more replicas than a node has devices",
     BAD_CALL(more_than_a_node_holds, SY_ERR_VALUE, "num_physical", "12", "8"), .query = true},

    {"physical_to_logical [2,7]", BAD_EXTENT("physical_to_logical", 1, 7, "[2,7]", "[2,8]")},
    {"logical_to_physical of 5 experts", BAD_EXTENT("logical_to_physical", 1, 5, "[2,5,5]", "[2,4,5]")},
    {"replica_count [1,4]", BAD_EXTENT("replica_count", 0, 1, "[1,4]", "[2,4]")},
    {"device_load [2,8]", BAD_EXTENT("device_load", 1, 8, "[2,8]", "[2,4]")},
    {"expert_mapping [4,4]", BAD_EXTENT("expert_mapping", 0, 4, "[4,4]", "[8,4]")},

    {"loads with inner stride 2", BAD_STRIDE("loads", 1, 2, "2", "contiguous"), .query = true},
    {"replica_count with overlapping rows", BAD_STRIDE("replica_count", 0, 3, "3", "4")},

    {"a negative load",
     BAD_CALL(last_load_negative, SY_ERR_INDEX, "loads", "layer 1, expert 3", "0 or more")},
    {"previous -1", BAD_NUMBER("previous", 9, -1, SY_ERR_INDEX, "layer 1, place 1 is -1", "below 4")},
};

static const struct rejection paper_rows[] = {
    {"places past 2^31",
     BAD_CALL(places_past_int32, SY_ERR_OVERFLOW, "num_physical", "2147483648", "2147483647")},
    {"places of all layers past 2^63",
     BAD_CALL(places_past_int64, SY_ERR_OVERFLOW, "loads", "576460752303423488 layers", "8589934591")},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("device_load")},
    {"dtype", BAD_TYPE("expert_mapping", kDLInt, 32, 1)},
    {"rank", BAD_RANK("logical_to_physical", 2, NULL, NULL)},
    {"input shape", BAD_EXTENT("previous", 1, 7, NULL, NULL)},
    {"value", BAD_FIELD("groups", 3, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"output shape", BAD_EXTENT("replica_count", 0, 1, NULL, NULL)},
    {"stride", BAD_STRIDE("physical_to_logical", 0, 7, NULL, NULL)},
    {"device", BAD_DEVICE("loads", kDLCUDA)},
    {"alias", BAD_OVER("physical_to_logical", "previous", 0)},
    {"contents", BAD_CALL(last_load_negative, SY_ERR_INDEX, "loads", NULL, NULL)},
};

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_query_rejections(&list, make, paper_rows, COUNT_OF(paper_rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    return test_run(&list, "bad_moe_place");
}
