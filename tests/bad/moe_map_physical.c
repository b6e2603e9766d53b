/*
 * moe_map_physical rejects: one valid call, one spoiler per row, the status, the sentence and untouched outputs. Wrong contents
 * stand in tests/examples/moe_map_physical.txt.
 */
#include "support.h"

enum { TOKENS = 5, SLOTS = 2, EXPERTS = 4, REPLICAS = 3, PHYSICAL = 8 };

static void make(struct test_call *c)
{
    sy_moe_map_physical_args *a = &c->args.map_physical;
    static const int64_t slots[] = {TOKENS, SLOTS}, each[] = {EXPERTS};
    static const int32_t ids[] = {0, 1, 0, 2, 1, 0, 3, 0, 2, 1}, count[] = {3, 2, 2, 1},
                         table[] = {4, 6, 1, 0, 2, -1, 7, 3, -1, 5, -1, -1};
    *c = (struct test_call){.op = "moe_map_physical", .first_output = 4};
    memcpy(test_call_add(c, "ids", &a->ids, SY_I32, 2, slots)->mem, ids, sizeof ids);
    memcpy(test_call_add(c, "logical_to_physical", &a->logical_to_physical, SY_I32, 2,
                         (int64_t[]){EXPERTS, REPLICAS})
               ->mem,
           table, sizeof table);
    memcpy(test_call_add(c, "replica_count", &a->replica_count, SY_I32, 1, each)->mem, count, sizeof count);
    struct tensor *before = test_call_add(c, "counts_before", &a->counts_before, SY_I64, 1, each);
    memset(before->mem, 0, before->bytes);
    test_call_add(c, "physical_ids", &a->physical_ids, SY_I32, 2, slots);
    test_call_add(c, "load", &a->load, SY_I64, 1, (int64_t[]){PHYSICAL});
    test_call_add(c, "logical_load", &a->logical_load, SY_I64, 1, each);
    a->num_physical = PHYSICAL;
    a->rule = SY_REPLICA_BALANCED;
}

static void nothing_asked(struct test_call *c)
{
    for (int i = c->first_output; i < c->count; i++)
        *c->fields[i] = NULL;
}

/* The rule LOCAL, which takes no counts. */
static void near(struct test_call *c, int64_t device, int64_t devices)
{
    sy_moe_map_physical_args *a = &c->args.map_physical;
    a->counts_before = NULL;
    a->rule = SY_REPLICA_LOCAL;
    a->device = device;
    a->devices = devices;
}

static void no_devices(struct test_call *c)
{
    near(c, 0, 0);
}

static void device_before_the_first(struct test_call *c)
{
    near(c, -1, 4);
}

static void device_after_the_last(struct test_call *c)
{
    near(c, 4, 4);
}

static void devices_that_do_not_divide(struct test_call *c)
{
    near(c, 0, 5);
}

static const struct rejection rows[] = {
    {"no output", BAD_CALL(nothing_asked, SY_ERR_NULL, "physical_ids", "every other output", "at least one")},

    {"replica_count [3]", BAD_EXTENT("replica_count", 0, 3, "[3]", "[4]"), .query = true},
    {"counts_before [5]", BAD_EXTENT("counts_before", 0, 5, "[5]", "[4]"), .query = true},

    {"rule 5", BAD_FIELD("rule", 5, SY_ERR_VALUE, "rule", "5", "LOCAL"), .query = true},
    {"rule -1", BAD_FIELD("rule", -1, SY_ERR_VALUE, "rule", "-1", "LOCAL"), .query = true},
    {"num_physical -1", BAD_FIELD("num_physical", -1, SY_ERR_VALUE, "num_physical", "-1", "0 to"),
     .query = true},
    {"token_base -1", BAD_FIELD("token_base", -1, SY_ERR_VALUE, "token_base", "-1", "0 or more"),
     .query = true},
    {"node_size -1", BAD_FIELD("node_size", -1, SY_ERR_VALUE, "node_size", "-1", "0 or more"), .query = true},
    {"counts with another rule",
     BAD_FIELD("rule", SY_REPLICA_HASH, SY_ERR_VALUE, "counts_before", "another rule", "BALANCED"),
     .query = true},
    {"no devices", BAD_CALL(no_devices, SY_ERR_VALUE, "devices", "0", "1 or more"), .query = true},
    {"device -1", BAD_CALL(device_before_the_first, SY_ERR_VALUE, "device", "-1", "0 to 3"), .query = true},
    {"device 4", BAD_CALL(device_after_the_last, SY_ERR_VALUE, "device", "4", "0 to 3"), .query = true},
    {"5 devices", BAD_CALL(devices_that_do_not_divide, SY_ERR_VALUE, "devices", "5", "a divisor"),
     .query = true},

    {"physical_ids one token short", BAD_EXTENT("physical_ids", 0, 4, "[4,2]", "[5,2]")},
    {"load [7]", BAD_EXTENT("load", 0, 7, "[7]", "[8]")},
    {"logical_load [8]", BAD_EXTENT("logical_load", 0, 8, "[8]", "[4]")},

    {"ids with inner stride 2", BAD_STRIDE("ids", 1, 2, "2", "contiguous"), .query = true},
    {"load with stride 2", BAD_STRIDE("load", 0, 2, "2", "contiguous")},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("logical_load")},
    {"dtype", BAD_TYPE("load", kDLInt, 32, 1)},
    {"rank", BAD_RANK("logical_to_physical", 1, NULL, NULL)},
    {"input shape", BAD_EXTENT("replica_count", 0, 3, NULL, NULL)},
    {"value", BAD_FIELD("token_base", -1, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"output shape", BAD_EXTENT("physical_ids", 0, 4, NULL, NULL)},
    {"stride", BAD_STRIDE("counts_before", 0, 3, NULL, NULL)},
    {"device", BAD_DEVICE("physical_ids", kDLCUDA)},
    {"contents", BAD_NUMBER("ids", 3, EXPERTS, SY_ERR_INDEX, NULL, NULL)},
};

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    return test_run(&list, "bad_moe_map_physical");
}
