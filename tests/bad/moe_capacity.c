/*
 * moe_capacity rejects: one valid call, one spoiler per row, the status, the sentence and an untouched output. Then pairs
 * of faults, of which the one that comes first in the documented order must win.
 */
#include "support.h"

enum { EXPERTS = 4 };

static void make(struct test_call *c)
{
    sy_moe_capacity_args *a = &c->args.capacity;
    *c = (struct test_call){.op = "moe_capacity", .first_output = 1};
    test_call_add(c, "counts", &a->counts, SY_I64, 1, (int64_t[]){EXPERTS});
    test_call_add(c, "capacity", &a->capacity, SY_I64, 1, (int64_t[]){1});
    a->samples = 100;
    a->num_experts = EXPERTS;
    a->k = 2;
    a->factor = -1.25;
    a->alignment = 4;
}

static void huge_share(struct test_call *c)
{
    c->args.capacity.factor = 1e18;
}

static void count_past_alignment(struct test_call *c)
{
    c->args.capacity.factor = 0;
    memcpy(test_call_tensor(c, "counts")->mem + 16, &(int64_t){INT64_MAX}, 8);
}

static const struct rejection rows[] = {
    {"capacity of two elements", BAD_EXTENT("capacity", 0, 2, "[2]", "[1]")},
    {"capacity of none", BAD_EXTENT("capacity", 0, 0, "[0]", "[1]")},

    {"counts with stride 2", BAD_STRIDE("counts", 0, 2, "2", "contiguous"), .query = true},

    {"demand that cannot be aligned",
     BAD_CALL(count_past_alignment, SY_ERR_OVERFLOW, "alignment", "9223372036854775807", "2^63")},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_SHAPE("capacity")},
    {"dtype", BAD_TYPE("counts", kDLFloat, 32, 1)},
    {"rank", BAD_RANK("capacity", 2, NULL, NULL)},
    {"input shape", BAD_EXTENT("counts", 0, 3, NULL, NULL)},
    {"value", BAD_FIELD("k", -2, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"overflow", BAD_CALL(huge_share, SY_ERR_OVERFLOW, "factor", NULL, NULL)},
    {"output shape", BAD_EXTENT("capacity", 0, 3, NULL, NULL)},
    {"stride", BAD_STRIDE("counts", 0, 3, NULL, NULL)},
    {"device", BAD_DEVICE("capacity", kDLCUDA)},
    {"alias", BAD_OVER("capacity", "counts", 0)},
};

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    return test_run(&list, "bad_moe_capacity");
}
