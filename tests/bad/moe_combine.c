/*
 * moe_combine rejects: one valid call, one spoiler per row, the status, the sentence and an untouched output. Then pairs
 * of faults, of which the one that comes first in the documented order must win, and calls that look wrong but are not.
 */
#include "support.h"

enum { CHOICES = 2, SAMPLES = 9, EXPERTS = 4, CAPACITY = 3, SLOTS = 12, HIDDEN = 7 };

static void make(struct test_call *c)
{
    sy_moe_combine_args *a = &c->args.combine;
    *c = (struct test_call){.op = "moe_combine", .first_output = 4};
    test_call_add(c, "gates", &a->gates, SY_F32, 2, (int64_t[]){CHOICES, SAMPLES});
    test_call_add(c, "indices", &a->indices, SY_I32, 2, (int64_t[]){CHOICES, SAMPLES});
    test_call_add(c, "locations", &a->locations, SY_I32, 2, (int64_t[]){CHOICES, SAMPLES});
    test_call_add(c, "expert_out", &a->expert_out, SY_F32, 2, (int64_t[]){SLOTS, HIDDEN});
    test_call_add(c, "output", &a->output, SY_F32, 2, (int64_t[]){SAMPLES, HIDDEN});
    a->num_experts = EXPERTS;
    a->capacity = CAPACITY;
}

/* Every input can be counted, the output cannot. */
static void output_bytes(struct test_call *c)
{
    const char *const all[] = {"gates", "indices", "locations"};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        test_call_tensor(c, all[i])->shape[1] = INT64_C(1) << 40;
    test_call_tensor(c, "expert_out")->shape[0] = 0;
    test_call_tensor(c, "expert_out")->shape[1] = INT64_C(1) << 40;
    c->args.combine.capacity = 0;
}

static void slot_bytes(struct test_call *c)
{
    c->args.combine.num_experts = INT64_C(1) << 31;
    c->args.combine.capacity = INT64_C(1) << 29;
}

static const struct rejection rows[] = {
    {"output one row long", BAD_EXTENT("output", 0, 10, "[10,7]", "[9,7]")},
    {"output one column short", BAD_EXTENT("output", 1, 6, "[9,6]", "[9,7]")},

    {"gates with inner stride 2", BAD_STRIDE("gates", 1, 2, "2", "contiguous"), .query = true},
    {"indices with overlapping rows", BAD_STRIDE("indices", 0, 8, "8", "9"), .query = true},
    {"locations with inner stride 0", BAD_STRIDE("locations", 1, 0, "0", "contiguous"), .query = true},
    {"expert_out with overlapping rows", BAD_STRIDE("expert_out", 0, 6, "6", "7"), .query = true},
    {"output with inner stride -1", BAD_STRIDE("output", 1, -1, "-1", "contiguous")},
    {"output with overlapping rows", BAD_STRIDE("output", 0, 5, "5", "7")},
};

static const struct rejection paper_rows[] = {
    {"output of 2^82 bytes",
     BAD_CALL(output_bytes, SY_ERR_OVERFLOW, "indices", "1099511627776 samples", "2^63")},
    {"slots of 2^65 bytes", BAD_CALL(slot_bytes, SY_ERR_OVERFLOW, "num_experts|capacity", NULL, NULL)},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("locations")},
    {"dtype", BAD_TYPE("output", kDLInt, 32, 1)},
    {"rank", BAD_RANK("indices", 3, NULL, NULL)},
    {"input shape", BAD_EXTENT("gates", 1, 8, NULL, NULL)},
    {"value", BAD_FIELD("capacity", -3, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"overflow",
     BAD_FIELD("num_experts", INT64_C(1) << 62, SY_ERR_OVERFLOW, "num_experts|capacity", NULL, NULL)},
    {"output shape", BAD_EXTENT("output", 1, 8, NULL, NULL)},
    {"stride", BAD_STRIDE("expert_out", 0, 6, NULL, NULL)},
    {"device", BAD_DEVICE("locations", kDLCUDA)},
    {"alias", BAD_OVER("gates", "output", 0)},
};

/* ---- Calls that are fine ------------------------------------------------------------------------------------- */

static void one_array_for_four(struct test_call *c)
{
    void *data = test_call_tensor(c, "expert_out")->mem;
    test_call_tensor(c, "gates")->t.data = data;
    test_call_tensor(c, "indices")->t.data = data;
    test_call_tensor(c, "locations")->t.data = data;
}

static void inputs_may_overlap(void **state)
{
    (void)state;
    test_accepts(make, one_array_for_four);
}

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_query_rejections(&list, make, paper_rows, COUNT_OF(paper_rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    test_add(&list, "inputs_may_overlap", inputs_may_overlap, NULL);
    return test_run(&list, "bad_moe_combine");
}
