/*
 * local_reduce rejects: valid calls of both layouts, one spoiler per row, the status, the sentence and untouched outputs.
 * Then pairs of faults, of which the one that comes first in the documented order must win, and calls that are fine.
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

static void device_two(struct test_call *c)
{
    c->args.local_reduce.device = 2;
}

static void device_negative(struct test_call *c)
{
    c->args.local_reduce.device = -1;
}

static void fill_of_two(struct test_call *c)
{
    memcpy(&c->args.local_reduce.fill, &(int){2}, sizeof(int));
}

static void layout_of_three(struct test_call *c)
{
    memcpy(&c->args.local_reduce.layout, &(int){3}, sizeof(int));
}

static void layout_packed(struct test_call *c)
{
    c->args.local_reduce.layout = SY_LAYOUT_PACKED;
}

static void align_negative(struct test_call *c)
{
    c->args.local_reduce.align = -1;
}

static void align_past_int32(struct test_call *c)
{
    c->args.local_reduce.align = INT64_C(1) << 31;
}

static void dim_three(struct test_call *c)
{
    c->args.local_reduce.output_concat_dim = 3;
}

static void order_of_two(struct test_call *c)
{
    memcpy(&c->args.local_reduce.order, &(int){2}, sizeof(int));
}

static void group_negative(struct test_call *c)
{
    c->args.local_reduce.group_size = -1;
}

static void group_of_none(struct test_call *c)
{
    c->args.local_reduce.group_size = 0;
}

static void group_of_three(struct test_call *c)
{
    c->args.local_reduce.group_size = 3;
}

static void short_metadata(struct test_call *c)
{
    struct tensor *x = test_call_tensor(c, "expert_metadata");
    x->t.ndim = 2;
    x->shape[0] = TOKENS;
    x->shape[1] = SLOTS;
}

static void put_choice(struct test_call *c, int i, uint16_t value)
{
    memcpy(test_call_tensor(c, "expert_metadata")->mem + 2 * i, &value, 2);
}

static void choice_of_four(struct test_call *c)
{
    put_choice(c, 9, EXPERTS);
}

static void choice_of_65534(struct test_call *c)
{
    put_choice(c, 0, 65534);
}

static void put_entry(struct test_call *c, int copy, int e, int d, uint16_t value)
{
    memcpy(test_call_tensor(c, "expert_mapping")->mem + 2 * ((copy * EXPERTS + e) * DEVICES + d), &value, 2);
}

static void entry_of_two(struct test_call *c)
{
    put_entry(c, 0, 1, 0, 2);
}

static void copies_differ(struct test_call *c)
{
    put_entry(c, 1, 3, 0, 1);
}

/* Another expert on device 1 in every copy. */
static void three_experts(struct test_call *c)
{
    put_entry(c, 0, 0, 1, 1);
    put_entry(c, 1, 0, 1, 1);
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

static void few_inputs(struct test_call *c)
{
    test_call_tensor(c, "input")->shape[0] = 6;
}

static void few_outputs(struct test_call *c)
{
    test_call_tensor(c, "output")->shape[0] = 6;
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

    {"device 2", BAD_CALL(device_two, SY_ERR_VALUE, "device", "is 2", "0 to 1"), .query = true},
    {"device -1", BAD_CALL(device_negative, SY_ERR_VALUE, "device", "-1", "0 to 1"), .query = true},
    {"fill 2", BAD_CALL(fill_of_two, SY_ERR_VALUE, "fill", "is 2", "KEEP"), .query = true},
    {"layout 3", BAD_CALL(layout_of_three, SY_ERR_VALUE, "layout", "is 3", "EXPERT"), .query = true},
    {"layout PACKED", BAD_CALL(layout_packed, SY_ERR_VALUE, "layout", "PACKED", "EXPERT"), .query = true},
    {"align -1", BAD_CALL(align_negative, SY_ERR_VALUE, "align", "-1", "0 to"), .query = true},
    {"align 2^31", BAD_CALL(align_past_int32, SY_ERR_VALUE, "align", "2147483648", "2147483647"),
     .query = true},
    {"output_concat_dim 3", BAD_CALL(dim_three, SY_ERR_VALUE, "output_concat_dim", "is 3", "0 to 2"),
     .query = true},
    {"order 2", BAD_CALL(order_of_two, SY_ERR_VALUE, "order", "is 2", "FLAT"), .query = true},
    {"group_size -1", BAD_CALL(group_negative, SY_ERR_VALUE, "group_size", "-1", "0 to 65536"),
     .query = true},

    {"output one row long", BAD_EXTENT("output", 0, 9, "[9,3]", "[8,3]")},
    {"output one column short", BAD_EXTENT("output", 1, 2, "[8,2]", "[8,3]")},
    {"output of rank 3", BAD_RANK("output", 3, "3", "2 or 4")},
    {"input with inner stride 2", BAD_STRIDE("input", 3, 2, "2", "contiguous"), .query = true},
    {"input with uneven rows", BAD_STRIDE("input", 1, 13, "13", "evenly"), .query = true},
    {"expert_mapping with uneven rows", BAD_STRIDE("expert_mapping", 0, 9, "9", "evenly"), .query = true},
    {"output with overlapping rows", BAD_STRIDE("output", 0, 2, "2", "3")},

    {"a mapping entry of 2",
     BAD_CALL(entry_of_two, SY_ERR_ROUTING, "expert_mapping", "at expert 1, device 0 is 2", "0 or 1")},
    {"copies that differ", BAD_CALL(copies_differ, SY_ERR_MISMATCH, "expert_mapping",
                                    "expert 3, device 0 is 1 in copy 1", "want 0")},
    {"another number of experts",
     BAD_CALL(three_experts, SY_ERR_SHAPE, "input", "has 2 experts", "want 3, those of device 1")},
    {"a choice of expert 4",
     BAD_CALL(choice_of_four, SY_ERR_INDEX, "expert_metadata", "token 4, slot 1 is 4", "below 4, or 65535")},
    {"a choice of 65534",
     BAD_CALL(choice_of_65534, SY_ERR_INDEX, "expert_metadata", "token 0, slot 0 is 65534", "below 4")},
};

static const struct rejection expert_rows[] = {
    {"EXPERT input of rank 3", BAD_RANK("input", 3, "3", "want 2"), .query = true},
    {"EXPERT output of rank 3", BAD_RANK("output", 3, "3", "want 2")},
    {"EXPERT output one column short", BAD_EXTENT("output", 1, 2, "[8,2]", "[8,3]")},
    {"no group_size", BAD_CALL(group_of_none, SY_ERR_VALUE, "group_size", "is 0", "1 to 65536"),
     .query = true},
    {"group_size 3", BAD_CALL(group_of_three, SY_ERR_VALUE, "group_size", "is 3", "divisor of 4"),
     .query = true},
    {"positions unknown", BAD_CALL(short_metadata, SY_ERR_SHAPE, "expert_metadata", "rank 2", "want 4"),
     .query = true},
    {"too few input rows", BAD_CALL(few_inputs, SY_ERR_CAPACITY, "input", "6 rows", "at least 7")},
    {"too few output rows", BAD_CALL(few_outputs, SY_ERR_CAPACITY, "output", "6 rows", "at least 7")},
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
    {"value", BAD_CALL(device_two, SY_ERR_VALUE, "device", NULL, NULL)},
    {"output shape", BAD_EXTENT("output", 0, 9, NULL, NULL)},
    {"stride", BAD_STRIDE("input", 1, 13, NULL, NULL)},
    {"device", BAD_DEVICE("expert_metadata", kDLCUDA)},
    {"alias", BAD_OVER("output", "input", 0)},
    {"mapping", BAD_CALL(entry_of_two, SY_ERR_ROUTING, "expert_mapping", NULL, NULL)},
    {"indices", BAD_CALL(choice_of_four, SY_ERR_INDEX, "expert_metadata", NULL, NULL)},
};

/* ---- What is fine -------------------------------------------------------------------------------------------- */

static void without_weights(struct test_call *c)
{
    *c->fields[3] = NULL;
}

static void one_copy(struct test_call *c)
{
    test_call_tensor(c, "expert_mapping")->shape[0] = 1;
}

static void no_tokens(struct test_call *c)
{
    test_call_tensor(c, "expert_metadata")->shape[1] = 0;
    test_call_tensor(c, "input")->shape[1] = 0;
    test_call_tensor(c, "weights")->shape[0] = 0;
    test_call_tensor(c, "output")->shape[0] = 0;
}

static void no_local_experts(struct test_call *c)
{
    for (int i = 0; i < DEVICES * EXPERTS; i++)
        put_entry(c, i / EXPERTS, i % EXPERTS, 1, 0);
    test_call_tensor(c, "input")->shape[0] = 0;
}

static void nothing_chosen(struct test_call *c)
{
    for (int i = 0; i < TOKENS * SLOTS; i++)
        put_choice(c, i, 65535);
    test_call_tensor(c, "input")->shape[0] = 0;
    test_call_tensor(c, "output")->shape[0] = 0;
}

static void accepted(void **state)
{
    (void)state;
    test_accepts(make, without_weights);
    test_accepts(make, one_copy);
    test_accepts(make, no_tokens);
    test_accepts(make, no_local_experts);
    test_accepts(make_expert, without_weights);
    test_accepts(make_expert, nothing_chosen);
    test_accepts_pinned(make);
    test_accepts_adjacent(make);
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
