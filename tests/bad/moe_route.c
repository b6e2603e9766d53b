/*
 * moe_route rejects: one valid call, one spoiler per row, the status, the sentence and untouched outputs. Then pairs of
 * faults, of which the one that comes first in the documented order must win, and calls that look wrong but are not.
 */
#include "support.h"

enum { TOKENS = 5, EXPERTS = 6, K = 2, SHARED = 1, ROWS = 3 };

static void make(struct test_call *c)
{
    sy_moe_route_args *a = &c->args.route;
    const int64_t cells[] = {TOKENS, EXPERTS + SHARED}, slots[] = {TOKENS, K + SHARED};
    *c = (struct test_call){.op = "moe_route", .first_output = 7};
    test_call_add(c, "logits", &a->logits, SY_BF16, 2, (int64_t[]){TOKENS, EXPERTS});
    test_call_add(c, "bias", &a->bias, SY_F32, 1, (int64_t[]){EXPERTS});
    test_call_add(c, "finished", &a->finished, SY_BOOL, 1, (int64_t[]){TOKENS});
    struct tensor *ids = test_call_add(c, "ids_in", &a->ids_in, SY_I32, 2, (int64_t[]){ROWS, K});
    test_call_add(c, "ids_rows", &a->ids_rows, SY_I64, 1, (int64_t[]){TOKENS});
    test_call_add(c, "expert_scale", &a->expert_scale, SY_F32, 1, (int64_t[]){EXPERTS});
    test_call_add(c, "shared_logits", &a->shared_logits, SY_F16, 2, (int64_t[]){TOKENS, SHARED});
    test_call_add(c, "ids", &a->ids, SY_I32, 2, slots);
    test_call_add(c, "weights", &a->weights, SY_F16, 2, slots);
    test_call_add(c, "routing_map", &a->routing_map, SY_BOOL, 2, cells);
    test_call_add(c, "probs", &a->probs, SY_F32, 2, cells);
    test_call_add(c, "counts", &a->counts, SY_I64, 1, (int64_t[]){EXPERTS + SHARED});
    test_call_add(c, "scores", &a->scores, SY_F32, 2, (int64_t[]){TOKENS, EXPERTS});
    for (int32_t i = 0; i < ROWS * K; i++)
        memcpy(ids->mem + (size_t)i * 4, &i, sizeof i);
    a->k = K;
    a->groups = 3;
    a->top_groups = 2;
    a->n_shared = SHARED;
}

static void no_output(struct test_call *c)
{
    for (int i = c->first_output; i < c->count; i++)
        *c->fields[i] = NULL;
}

static void resize(struct test_call *c, int64_t tokens, int64_t experts)
{
    for (int i = 0; i < c->count; i++) {
        struct tensor *x = &c->tensors[i];
        for (int d = 0; d < x->t.ndim; d++) {
            if (x->shape[d] == TOKENS)
                x->shape[d] = tokens;
            else if (x->shape[d] >= EXPERTS)
                x->shape[d] += experts - EXPERTS;
        }
    }
    c->args.route.groups = 0;
}

static void shared_past_2_to_the_23(struct test_call *c)
{
    c->args.route.n_shared = (INT64_C(1) << 23) - EXPERTS + 1;
    c->args.route.shared_logits = NULL;
}

static void most_shared(struct test_call *c)
{
    c->args.route.n_shared = INT64_MAX;
    c->args.route.shared_logits = NULL;
}

static void experts_past_2_to_the_23(struct test_call *c)
{
    resize(c, 1, (INT64_C(1) << 23) + 1);
}

/* 2^40 * 2^22 elements of 2 bytes would still fit; their scores do not. */
static void cells_past_2_to_the_63(struct test_call *c)
{
    resize(c, INT64_C(1) << 39, INT64_C(1) << 22);
}

static void wraps_to_zero(struct test_call *c)
{
    resize(c, INT64_C(1) << 62, INT64_C(1) << 2);
}

static const struct rejection rows[] = {
    {"no output at all", BAD_CALL(no_output, SY_ERR_NULL, "ids", "every other output", "at least one")},

    {"unknown score", BAD_FIELD("score", 4, SY_ERR_VALUE, NULL, "is 4", "SIGMOID"), .query = true},
    {"negative score", BAD_FIELD("score", -1, SY_ERR_VALUE, NULL, "is -1", "SIGMOID"), .query = true},
    {"unknown group_score", BAD_FIELD("group_score", 3, SY_ERR_VALUE, NULL, "is 3", "SUMK"), .query = true},
    {"unknown slot_order", BAD_FIELD("slot_order", 2, SY_ERR_VALUE, NULL, "is 2", "EXPERT"), .query = true},
    {"unknown select", BAD_FIELD("select", 2, SY_ERR_VALUE, NULL, "is 2", "LOGIT"), .query = true},
    {"unknown eps_rule", BAD_FIELD("eps_rule", 2, SY_ERR_VALUE, NULL, "is 2", "MAX"), .query = true},
    {"unknown drop", BAD_FIELD("drop", 2, SY_ERR_VALUE, NULL, "is 2", "POSITION"), .query = true},

    {"ids without the shared slot", BAD_EXTENT("ids", 1, 2, "[5,2]", "[5,3]")},
    {"ids one row long", BAD_EXTENT("ids", 0, 6, "[6,3]", "[5,3]")},
    {"weights one column long", BAD_EXTENT("weights", 1, 4, "[5,4]", "[5,3]")},
    {"routing_map without the shared expert", BAD_EXTENT("routing_map", 1, 6, "[5,6]", "[5,7]")},
    {"probs one token long", BAD_EXTENT("probs", 0, 6, "[6,7]", "[5,7]")},
    {"counts without the shared expert", BAD_EXTENT("counts", 0, 6, "[6]", "[7]")},
    {"scores one token short", BAD_EXTENT("scores", 0, 4, "[4,6]", "[5,6]")},

    {"logits with inner stride 2", BAD_STRIDE("logits", 1, 2, "2", "contiguous"), .query = true},
    {"logits with overlapping rows", BAD_STRIDE("logits", 0, 5, "5", "6"), .query = true},
    {"bias with stride 0", BAD_STRIDE("bias", 0, 0, "0", "contiguous"), .query = true},
    {"finished with stride 2", BAD_STRIDE("finished", 0, 2, "2", "contiguous"), .query = true},
    {"ids_in with overlapping rows", BAD_STRIDE("ids_in", 0, 1, "1", "2"), .query = true},
    {"ids_rows with stride 0", BAD_STRIDE("ids_rows", 0, 0, "0", "contiguous"), .query = true},
    {"expert_scale with stride -1", BAD_STRIDE("expert_scale", 0, -1, "-1", "contiguous"), .query = true},
    {"shared_logits with overlapping rows", BAD_STRIDE("shared_logits", 0, 0, "0", "1"), .query = true},
    {"ids with overlapping rows", BAD_STRIDE("ids", 0, 2, "2", "3")},
    {"counts with stride -1", BAD_STRIDE("counts", 0, -1, "-1", "contiguous")},
    {"scores with inner stride -1", BAD_STRIDE("scores", 1, -1, "-1", "contiguous")},
};

static const struct rejection paper_rows[] = {
    {"experts past 2^23",
     BAD_CALL(experts_past_2_to_the_23, SY_ERR_OVERFLOW, "logits", "8388609", "8388608")},
    {"scores past 2^63 bytes",
     BAD_CALL(cells_past_2_to_the_63, SY_ERR_OVERFLOW, "logits", "549755813888", NULL)},
    {"shared experts past 2^23",
     BAD_CALL(shared_past_2_to_the_23, SY_ERR_OVERFLOW, "n_shared", "8388603", "8388608")},
    {"shared experts past 2^63",
     BAD_CALL(most_shared, SY_ERR_OVERFLOW, "n_shared", "9223372036854775807", "8388608")},
    {"tokens times experts of 2^64",
     BAD_CALL(wraps_to_zero, SY_ERR_OVERFLOW, "logits", "4611686018427387904", NULL)},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("finished")},
    {"dtype", BAD_TYPE("weights", kDLInt, 32, 1)},
    {"rank", BAD_RANK("counts", 2, NULL, NULL)},
    {"input shape", BAD_EXTENT("bias", 0, 5, NULL, NULL)},
    {"value", BAD_FIELD("capacity", -2, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"output shape", BAD_EXTENT("ids", 1, 2, NULL, NULL)},
    {"stride", BAD_STRIDE("logits", 0, 5, NULL, NULL)},
    {"device", BAD_DEVICE("probs", kDLCUDA)},
    {"alias", BAD_OVER("routing_map", "scores", 0)},
    {"contents", BAD_NUMBER("ids_in", 1, EXPERTS, SY_ERR_INDEX, NULL, NULL)},
};

/* ---- Calls that are fine ------------------------------------------------------------------------------------- */

static void one_array_for_two(struct test_call *c)
{
    test_call_tensor(c, "finished")->t.data = test_call_tensor(c, "logits")->mem;
}

static void inputs_may_overlap(void **state)
{
    (void)state;
    test_accepts(make, one_array_for_two);
}

static void query_answers_from_shapes(void **state)
{
    (void)state;
    int64_t shape[] = {1 << 20, 256};
    const DLTensor logits = sy_tensor(NULL, SY_BF16, 2, shape);
    const sy_moe_route_args args = {.logits = &logits, .k = 8, .capacity = 40000};
    sy_query q;
    sy_ctx *ctx = test_ctx(2, NULL);
    expect_status(ctx, sy_moe_route_query(ctx, &args, &q), SY_OK);
    assert_int_equal(q.rows, 1 << 20);
    assert_int_equal(q.slots, 0);
    assert_true(q.workspace_bytes > (size_t)8 << 20);
    sy_ctx_destroy(ctx);
}

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_query_rejections(&list, make, paper_rows, COUNT_OF(paper_rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    test_add(&list, "inputs_may_overlap", inputs_may_overlap, NULL);
    test_add(&list, "query_answers_from_shapes", query_answers_from_shapes, NULL);
    return test_run(&list, "bad_moe_route");
}
