/*
 * local_reduce rejects shapes, numbers past their range, strides, and what follows from the contents of the mapping. Then
 * pairs of faults, of which the one that comes first in the documented order is reported. Other rejections are in
 * tests/examples.
 */
#include "support.h"

enum { BATCH = 2, SEQUENCE = 4, TOKENS = 8, SLOTS = 2, HIDDEN = 3, EXPERTS = 4, DEVICES = 2, LOCAL = 2 };

/* Choices, and experts 0 and 1 on device 0, 2 and 3 on device 1; in D copies. */
static void put_routing(struct test_call *c)
{
    unsigned char *choice = test_call_tensor(c, "expert_metadata")->mem;
    unsigned char *mapping = test_call_tensor(c, "expert_mapping")->mem;
    for (int i = 0; i < TOKENS * SLOTS; i++)
        memcpy(choice + 2 * i, &(uint16_t){(uint16_t)(i == 3 ? 65535 : i * 3 % EXPERTS)}, 2);
    for (int i = 0; i < DEVICES * EXPERTS * DEVICES; i++)
        memcpy(mapping + 2 * i, &(uint16_t){i % DEVICES == i / DEVICES % EXPERTS / 2}, 2);
}

static void make(struct test_call *c)
{
    sy_local_reduce_args *a = &c->args.local_reduce;
    *c = (struct test_call){.op = "local_reduce", .first_output = 4};
    test_call_add(c, "input", &a->input, SY_F32, 4, (int64_t[]){LOCAL, BATCH, SEQUENCE, HIDDEN});
    test_call_add(c, "expert_metadata", &a->expert_metadata, SY_U16, 4,
                  (int64_t[]){1, BATCH, SEQUENCE, SLOTS});
    test_call_add(c, "expert_mapping", &a->expert_mapping, SY_U16, 4,
                  (int64_t[]){DEVICES, 1, EXPERTS, DEVICES});
    test_call_add(c, "weights", &a->weights, SY_F16, 2, (int64_t[]){TOKENS, SLOTS});
    test_call_add(c, "output", &a->output, SY_F32, 2, (int64_t[]){TOKENS, HIDDEN});
    put_routing(c);
    a->device = 1;
}

static void make_expert(struct test_call *c)
{
    sy_local_reduce_args *a = &c->args.local_reduce;
    *c = (struct test_call){.op = "local_reduce", .first_output = 4};
    test_call_add(c, "input", &a->input, SY_F32, 2, (int64_t[]){2 * TOKENS, HIDDEN});
    test_call_add(c, "expert_metadata", &a->expert_metadata, SY_U16, 4,
                  (int64_t[]){1, BATCH, SEQUENCE, SLOTS});
    test_call_add(c, "expert_mapping", &a->expert_mapping, SY_U16, 4,
                  (int64_t[]){DEVICES, 1, EXPERTS, DEVICES});
    test_call_add(c, "weights", &a->weights, SY_F16, 2, (int64_t[]){TOKENS, SLOTS});
    test_call_add(c, "output", &a->output, SY_F32, 2, (int64_t[]){TOKENS, HIDDEN});
    put_routing(c);
    a->layout = SY_LAYOUT_EXPERT;
    a->output_concat_dim = 2;
    a->group_size = 2;
}

/* ---- Spoilers ------------------------------------------------------------------------------------------------ */

/* Another expert on device 1 in every copy. */
static void three_experts(struct test_call *c)
{
    for (int copy = 0; copy < DEVICES; copy++)
        memcpy(test_call_tensor(c, "expert_mapping")->mem + 2 * (copy * EXPERTS * DEVICES + 1),
               &(uint16_t){1}, 2);
}

static void too_many_experts(struct test_call *c)
{
    struct tensor *x = test_call_tensor(c, "expert_mapping");
    x->shape[0] = 1;
    x->shape[2] = 65536;
}

static void too_many_devices(struct test_call *c)
{
    struct tensor *x = test_call_tensor(c, "expert_mapping");
    x->shape[0] = 1;
    x->shape[3] = 65537;
}

static void put_tokens(struct test_call *c, int64_t batch, int64_t sequence)
{
    struct tensor *x = test_call_tensor(c, "expert_metadata"), *y = test_call_tensor(c, "input");
    x->shape[1] = y->shape[1] = batch;
    x->shape[2] = y->shape[2] = sequence;
    *c->fields[3] = NULL;
}

static void tokens_past_int32(struct test_call *c)
{
    put_tokens(c, INT64_C(1) << 16, INT64_C(1) << 15);
}

static void rows_past_int32(struct test_call *c)
{
    put_tokens(c, INT64_C(1) << 15, INT64_C(1) << 15);
}

/* ---- Tables -------------------------------------------------------------------------------------------------- */

static const struct rejection rows[] = {
    {"input of rank 2", BAD_RANK("input", 2, "2", "3 or 4"), .query = true},

    {"expert_metadata of rank 3", BAD_RANK("expert_metadata", 3, "3", "2 or 4"), .query = true},
    {"expert_mapping of rank 3", BAD_RANK("expert_mapping", 3, "3", "2 or 4"), .query = true},
    {"weights of rank 3", BAD_RANK("weights", 3, "3", "2 or 4"), .query = true},
    {"expert_metadata of two", BAD_EXTENT("expert_metadata", 0, 2, "[2,2,4,2]", "[1,2,4,2]"), .query = true},
    {"another batch", BAD_EXTENT("input", 1, 3, "[2,3,4,3]", "[2,2,4,3]"), .query = true},
    {"another sequence", BAD_EXTENT("input", 2, 5, "[2,2,5,3]", "[2,2,4,3]"), .query = true},
    {"no slots", BAD_EXTENT("expert_metadata", 3, 0, "no slots", "1"), .query = true},
    {"no elements", BAD_EXTENT("input", 3, 0, "no elements per row", "1"), .query = true},
    {"no experts", BAD_EXTENT("expert_mapping", 2, 0, "no experts", "1"), .query = true},
    {"copies for other devices", BAD_EXTENT("expert_mapping", 0, 3, "[3,1,4,2]", "[2,1,4,2]"), .query = true},
    {"expert_mapping in two parts", BAD_EXTENT("expert_mapping", 1, 2, "[2,2,4,2]", "[2,1,4,2]"),
     .query = true},
    {"weights one token short", BAD_EXTENT("weights", 0, 7, "[7,2]", "[8,2]"), .query = true},
    {"weights one slot long", BAD_EXTENT("weights", 1, 3, "[8,3]", "[8,2]"), .query = true},

    {"fill 2", BAD_FIELD("fill", 2, SY_ERR_VALUE, NULL, "is 2", "KEEP"), .query = true},
    {"layout 3", BAD_FIELD("layout", 3, SY_ERR_VALUE, NULL, "is 3", "EXPERT"), .query = true},
    {"layout PACKED", BAD_FIELD("layout", SY_LAYOUT_PACKED, SY_ERR_VALUE, NULL, "PACKED", "EXPERT"),
     .query = true},
    {"order 2", BAD_FIELD("order", 2, SY_ERR_VALUE, NULL, "is 2", "FLAT"), .query = true},
    {"replica 6", BAD_FIELD("replica", 6, SY_ERR_VALUE, NULL, "is 6", "LOCAL"), .query = true},
    {"replica -1", BAD_FIELD("replica", -1, SY_ERR_VALUE, NULL, "is -1", "LOCAL"), .query = true},
    {"node_size -1", BAD_FIELD("node_size", -1, SY_ERR_VALUE, NULL, "is -1", "0 or more"), .query = true},
    {"group_stride -1", BAD_FIELD("group_stride", -1, SY_ERR_VALUE, NULL, "is -1", "0 or more"),
     .query = true},

    {"output one row long", BAD_EXTENT("output", 0, 9, "[9,3]", "[8,3]")},
    {"output one column short", BAD_EXTENT("output", 1, 2, "[8,2]", "[8,3]")},
    {"output of rank 3", BAD_RANK("output", 3, "3", "2 or 4")},
    {"input with inner stride 2", BAD_STRIDE("input", 3, 2, "2", "contiguous"), .query = true},
    {"input with uneven rows", BAD_STRIDE("input", 1, 13, "13", "evenly"), .query = true},
    {"expert_mapping with uneven rows", BAD_STRIDE("expert_mapping", 0, 9, "9", "evenly"), .query = true},
    {"output with overlapping rows", BAD_STRIDE("output", 0, 2, "2", "3")},

    {"another number of experts",
     BAD_CALL(three_experts, SY_ERR_SHAPE, "input", "has 2 experts", "want 3, those of device 1")},
};

static const struct rejection expert_rows[] = {
    {"EXPERT input of rank 3", BAD_RANK("input", 3, "3", "want 2"), .query = true},
    {"EXPERT output of rank 3", BAD_RANK("output", 3, "3", "want 2")},
    {"EXPERT output one column short", BAD_EXTENT("output", 1, 2, "[8,2]", "[8,3]")},
    {"too few input rows", .spoil = {.kind = SPOIL_EXTENT, .argument = "input", .value = 6},
     .want = SY_ERR_CAPACITY, .found = "6 rows", .wanted = "at least 7"},
};

static const struct rejection paper_rows[] = {
    {"experts past 65535",
     BAD_CALL(too_many_experts, SY_ERR_SHAPE, "expert_mapping", "65536 experts", "65535")},
    {"devices past 65536",
     BAD_CALL(too_many_devices, SY_ERR_SHAPE, "expert_mapping", "65537 devices", "65536")},
    {"tokens past 2^31",
     BAD_CALL(tokens_past_int32, SY_ERR_VALUE, "expert_metadata", "2147483648 tokens", "2147483647")},
    {"rows past 2^31", BAD_CALL(rows_past_int32, SY_ERR_VALUE, "input", "2147483648 rows", "2147483647")},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("weights")},
    {"dtype", BAD_TYPE("output", kDLInt, 32, 1)},
    {"input shape", BAD_EXTENT("expert_mapping", 1, 2, NULL, NULL)},
    {"value", BAD_FIELD("device", 2, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"output shape", BAD_EXTENT("output", 0, 9, NULL, NULL)},
    {"stride", BAD_STRIDE("input", 1, 13, NULL, NULL)},
    {"device", BAD_DEVICE("expert_metadata", kDLCUDA)},
    {"alias", BAD_OVER("output", "input", 0)},
    {"mapping", BAD_NUMBER("expert_mapping", DEVICES, 2, SY_ERR_ROUTING, NULL, NULL)},
    {"indices", BAD_NUMBER("expert_metadata", 9, EXPERTS, SY_ERR_INDEX, NULL, NULL)},
};

static void accepted(void **state)
{
    (void)state;
    test_accepts_adjacent(make_expert);
}

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_rejections(&list, make_expert, expert_rows, COUNT_OF(expert_rows));
    test_add_query_rejections(&list, make, paper_rows, COUNT_OF(paper_rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    test_add(&list, "accepted", accepted, NULL);
    return test_run(&list, "bad_local_reduce");
}
