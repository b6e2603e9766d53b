/*
 * moe_dispatch_grad_gate rejects: one valid call, one spoiler per row, the status, the sentence and an untouched output.
 * Then pairs of faults, of which the one that comes first in the documented order must win, and calls that look wrong but
 * are not.
 */
#include "support.h"

enum { CHOICES = 2, SAMPLES = 9, EXPERTS = 4, CAPACITY = 3, SLOTS = 12, HIDDEN = 7 };

static void make(struct test_call *c)
{
    sy_moe_dispatch_grad_gate_args *a = &c->args.grad_gate;
    *c = (struct test_call){.op = "moe_dispatch_grad_gate", .first_output = 4};
    test_call_add(c, "indices", &a->indices, SY_I32, 2, (int64_t[]){CHOICES, SAMPLES});
    test_call_add(c, "locations", &a->locations, SY_I32, 2, (int64_t[]){CHOICES, SAMPLES});
    test_call_add(c, "input", &a->input, SY_F32, 2, (int64_t[]){SAMPLES, HIDDEN});
    test_call_add(c, "dispatch", &a->dispatch, SY_F32, 2, (int64_t[]){SLOTS, HIDDEN});
    test_call_add(c, "grad_gates", &a->grad_gates, SY_F32, 2, (int64_t[]){CHOICES, SAMPLES});
    a->num_experts = EXPERTS;
    a->capacity = CAPACITY;
}

static void input_bytes(struct test_call *c)
{
    test_call_tensor(c, "indices")->shape[1] = INT64_C(1) << 40;
    test_call_tensor(c, "locations")->shape[1] = INT64_C(1) << 40;
    test_call_tensor(c, "input")->shape[0] = INT64_C(1) << 40;
    test_call_tensor(c, "input")->shape[1] = INT64_C(1) << 40;
}

static const struct rejection rows[] = {
    {"grad_gates of rank 1", BAD_RANK("grad_gates", 1, "[2]", "[2,9]")},

    {"grad_gates one sample long", BAD_EXTENT("grad_gates", 1, 10, "[2,10]", "[2,9]")},
    {"grad_gates of one choice", BAD_EXTENT("grad_gates", 0, 1, "[1,9]", "[2,9]")},

    {"indices with overlapping rows", BAD_STRIDE("indices", 0, 8, "8", "9"), .query = true},
    {"locations with inner stride 2", BAD_STRIDE("locations", 1, 2, "2", "contiguous"), .query = true},
    {"input with overlapping rows", BAD_STRIDE("input", 0, 6, "6", "7"), .query = true},
    {"dispatch with inner stride 0", BAD_STRIDE("dispatch", 1, 0, "0", "contiguous"), .query = true},
    {"grad_gates with overlapping rows", BAD_STRIDE("grad_gates", 0, 5, "5", "9")},
};

static const struct rejection paper_rows[] = {
    {"input of 2^82 bytes", BAD_CALL(input_bytes, SY_ERR_OVERFLOW, "input", "1099511627776", "2^63")},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("locations")},
    {"dtype", BAD_TYPE("grad_gates", kDLInt, 32, 1)},
    {"rank", BAD_RANK("indices", 3, NULL, NULL)},
    {"input shape", BAD_EXTENT("input", 0, 8, NULL, NULL)},
    {"value", BAD_FIELD("capacity", -3, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"overflow",
     BAD_FIELD("num_experts", INT64_C(1) << 62, SY_ERR_OVERFLOW, "num_experts|capacity", NULL, NULL)},
    {"output shape", BAD_EXTENT("grad_gates", 1, 8, NULL, NULL)},
    {"stride", BAD_STRIDE("dispatch", 0, 6, NULL, NULL)},
    {"device", BAD_DEVICE("locations", kDLCUDA)},
    {"alias", BAD_OVER("dispatch", "grad_gates", 0)},
};

/* ---- Calls that are fine ------------------------------------------------------------------------------------- */

static void one_array_for_four(struct test_call *c)
{
    void *data = test_call_tensor(c, "dispatch")->mem;
    test_call_tensor(c, "indices")->t.data = data;
    test_call_tensor(c, "locations")->t.data = data;
    test_call_tensor(c, "input")->t.data = data;
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
    return test_run(&list, "bad_moe_dispatch_grad_gate");
}
