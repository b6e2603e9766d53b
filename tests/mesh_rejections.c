/*
 * Calls of one device of a mesh of two, and what is wrong with one of them: of each kind of mistake one, since tests/case has
 * all of them on a mesh in one process. Every tensor has another size, so that a sentence about the wrong one shows.
 */
#include "mesh_rejections.h"

enum { B = 2, S = 3, N = 6, K = 2, E = 6, H = 5, X = 4, G = 2, T = 12, L = 3, ALIGN = 4, ROWS = 36 };

/* e on device e mod 2; tokens choose all kinds of experts, and none. */
static void put_experts(struct tensor *mapping, struct tensor *choices, int n)
{
    uint16_t *map = (uint16_t *)(void *)mapping->mem, *slot = (uint16_t *)(void *)choices->mem;
    for (int e = 0; e < E; e++)
        for (int d = 0; d < G; d++)
            map[e * G + d] = e % G == d;
    for (int i = 0; i < n; i++)
        slot[i] = i == 5 ? 65535 : (uint16_t)((i * 7 + i / 2) % E);
}

static void dispatch_inputs(struct test_call *c)
{
    sy_all_to_all_dispatch_args *a = &c->args.a2a_dispatch;
    *c = (struct test_call){.op = "all_to_all_dispatch", .first_output = 4};
    struct tensor *x = test_call_add(c, "input", &a->input, SY_BF16, 4, (int64_t[]){B, 1, S, H});
    struct tensor *indices =
        test_call_add(c, "expert_indices", &a->expert_indices, SY_U16, 4, (int64_t[]){B, 1, S, K});
    struct tensor *mapping =
        test_call_add(c, "expert_mapping", &a->expert_mapping, SY_U16, 2, (int64_t[]){E, G});
    test_call_add(c, "planes[0]", &a->planes[0], SY_F32, 4, (int64_t[]){B, 1, S, X});
    put_experts(mapping, indices, N * K);
    memset(x->mem, 0x42, x->bytes);
    a->num_planes = 1;
}

void mesh_make_dispatch(struct test_call *c)
{
    sy_all_to_all_dispatch_args *a = &c->args.a2a_dispatch;
    dispatch_inputs(c);
    test_call_add(c, "tokens", &a->tokens, SY_BF16, 4, (int64_t[]){1, B * G, S, H});
    test_call_add(c, "metadata", &a->metadata, SY_U16, 4, (int64_t[]){1, B * G, S, K});
    test_call_add(c, "plane_tokens[0]", &a->plane_tokens[0], SY_F32, 4, (int64_t[]){1, B * G, S, X});
    test_call_add(c, "present", &a->present, SY_U8, 1, (int64_t[]){T});
    test_call_add(c, "expert_counts", &a->expert_counts, SY_I64, 1, (int64_t[]){L});
    test_call_add(c, "rows_from", &a->rows_from, SY_I64, 1, (int64_t[]){G});
    test_call_add(c, "rows_to", &a->rows_to, SY_I64, 1, (int64_t[]){G});
    test_call_reset(c);
}

void mesh_make_expert(struct test_call *c)
{
    sy_all_to_all_dispatch_args *a = &c->args.a2a_dispatch;
    dispatch_inputs(c);
    test_call_add(c, "tokens", &a->tokens, SY_BF16, 2, (int64_t[]){ROWS, H});
    test_call_add(c, "plane_tokens[0]", &a->plane_tokens[0], SY_F32, 2, (int64_t[]){ROWS, X});
    test_call_add(c, "src", &a->src, SY_I32, 2, (int64_t[]){ROWS, 3});
    test_call_add(c, "expert_counts", &a->expert_counts, SY_I64, 1, (int64_t[]){L});
    test_call_add(c, "expert_offsets", &a->expert_offsets, SY_I64, 1, (int64_t[]){L + 1});
    a->layout = SY_LAYOUT_EXPERT;
    a->align = ALIGN;
    test_call_reset(c);
}

static void combine_inputs(struct test_call *c)
{
    sy_all_to_all_combine_args *a = &c->args.a2a_combine;
    *c = (struct test_call){.op = "all_to_all_combine", .first_output = 3};
    struct tensor *y = test_call_add(c, "input", &a->input, SY_BF16, 4, (int64_t[]){L, B * G, S, H});
    struct tensor *table =
        test_call_add(c, "expert_metadata", &a->expert_metadata, SY_U16, 4, (int64_t[]){1, B * G, S, K});
    struct tensor *mapping =
        test_call_add(c, "expert_mapping", &a->expert_mapping, SY_U16, 2, (int64_t[]){E, G});
    memset(y->mem, 0x3F, y->bytes);
    put_experts(mapping, table, T * K);
}

void mesh_make_combine(struct test_call *c)
{
    sy_all_to_all_combine_args *a = &c->args.a2a_combine;
    combine_inputs(c);
    test_call_add(c, "output", &a->output, SY_BF16, 4, (int64_t[]){K, B, S, H});
    test_call_add(c, "written", &a->written, SY_BOOL, 2, (int64_t[]){K, N});
    test_call_reset(c);
}

void mesh_make_sum(struct test_call *c)
{
    sy_all_to_all_combine_args *a = &c->args.a2a_combine;
    combine_inputs(c);
    test_call_add(c, "weights", &a->weights, SY_F32, 4, (int64_t[]){B, 1, S, K});
    test_call_add(c, "output", &a->output, SY_BF16, 3, (int64_t[]){B, S, H});
    c->first_output = 4;
    a->sum = true;
    test_call_reset(c);
}

/* Rows of int8 codes, each with its scale. Calls of several threads point to it. */
static const sy_row_format ones = {.bytes = sizeof ones,
                                   .q_type = {kDLInt, 8, 1},
                                   .scale_type = {kDLFloat, 32, 1},
                                   .group = 1,
                                   .scale_math = SY_SCALE_MATH_DIV};

static void make_codes(struct test_call *c)
{
    sy_all_to_all_combine_args *a = &c->args.a2a_combine;
    combine_inputs(c);
    test_call_tensor(c, "input")->t.dtype = SY_I8;
    test_call_add(c, "input_scales", &a->input_scales, SY_F32, 4, (int64_t[]){L, B * G, S, H});
    a->row_format = &ones;
    c->first_output = 4;
}

void mesh_make_codes(struct test_call *c)
{
    sy_all_to_all_combine_args *a = &c->args.a2a_combine;
    make_codes(c);
    test_call_add(c, "output", &a->output, SY_I8, 4, (int64_t[]){K, B, S, H});
    test_call_add(c, "output_scales", &a->output_scales, SY_F32, 4, (int64_t[]){K, B, S, H});
    test_call_reset(c);
}

void mesh_make_code_sum(struct test_call *c)
{
    sy_all_to_all_combine_args *a = &c->args.a2a_combine;
    make_codes(c);
    test_call_add(c, "output", &a->output, SY_BF16, 3, (int64_t[]){B, S, H});
    a->sum = true;
    test_call_reset(c);
}

/* ---- What is wrong ------------------------------------------------------------------------------------ */

static void set_shape(struct test_call *c, const char *name, int rank, const int64_t *shape)
{
    struct tensor *x = test_call_tensor(c, name);
    x->t.ndim = rank;
    memcpy(x->shape, shape, (size_t)rank * sizeof *shape);
}

static void input_bytes(struct test_call *c)
{
    test_call_tensor(c, "input")->shape[3] = INT64_C(1) << 61;
    test_call_tensor(c, "tokens")->shape[3] = INT64_C(1) << 61;
}

static void put_u16(struct test_call *c, const char *name, int at, uint16_t value)
{
    memcpy(test_call_tensor(c, name)->mem + 2 * at, &value, 2);
}

static void strictly_twice(struct test_call *c)
{
    put_u16(c, "expert_indices", 8, 4);
    put_u16(c, "expert_indices", 9, 4);
    c->args.a2a_dispatch.strict_unique = true;
}

/* The group's tokens do not fit: 5 rows for six tokens of this device alone. */
static void too_few_rows(struct test_call *c)
{
    static const char *const all[] = {"tokens", "plane_tokens[0]", "src"};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        test_call_tensor(c, all[i])->shape[0] = 5;
}

/* Three batches do not divide into two devices. */
static void odd_batches(struct test_call *c)
{
    set_shape(c, "input", 4, (int64_t[]){L, 3, S, H});
    set_shape(c, "expert_metadata", 4, (int64_t[]){1, 3, S, K});
}

static void expert_rows_too_few(struct test_call *c)
{
    set_shape(c, "input", 2, (int64_t[]){2, H});
    c->args.a2a_combine.layout = SY_LAYOUT_EXPERT;
}

/* One expert more for this device: its input has too few rows. */
static void one_more_expert(struct test_call *c)
{
    put_u16(c, "expert_mapping", 0, 1);
    put_u16(c, "expert_mapping", 1, 1);
}

static void no_format(struct test_call *c)
{
    c->args.a2a_combine.row_format = NULL;
}

static const struct rejection dispatch_rows[] = {
    {"no input", {SPOIL_TENSOR, .argument = "input"}, SY_ERR_NULL},
    {"input without data", {SPOIL_DATA, .argument = "input"}, SY_ERR_NULL},
    {"expert_indices as f32", {SPOIL_TYPE, "expert_indices", .type = {kDLFloat, 32, 1}}, SY_ERR_DTYPE},
    {"present of rank 2", {SPOIL_RANK, "present", .value = 2}, SY_ERR_SHAPE},
    {"planes one token long", {SPOIL_EXTENT, "planes[0]", 2, .value = 4}, SY_ERR_SHAPE},
    {"node_size 3", {SPOIL_FIELD, "node_size", .value = 3}, SY_ERR_VALUE},
    {"memory sharded", {SPOIL_FIELD, "memory", .value = SY_MEMORY_SHARDED}, SY_ERR_UNSUPPORTED},
    {"input of 2^64 bytes", {SPOIL_CALL, .with = input_bytes}, SY_ERR_OVERFLOW},
    {"tokens one batch short", {SPOIL_EXTENT, "tokens", 1, .value = 3}, SY_ERR_SHAPE},
    {"tokens with overlapping rows", {SPOIL_STRIDE, "tokens", 2, .value = 3}, SY_ERR_STRIDE},
    {"input on CUDA", {SPOIL_DEVICE, "input", .value = kDLCUDA}, SY_ERR_DEVICE},
    {"tokens over input", {SPOIL_OVER, "tokens", .other = "input"}, SY_ERR_ALIAS},
    {"a mapping of 2", {SPOIL_NUMBER, "expert_mapping", 7, .value = 2}, SY_ERR_ROUTING},
    {"an index of E", {SPOIL_NUMBER, "expert_indices", 7, .value = E}, SY_ERR_INDEX},
    {"an expert twice, strictly", {SPOIL_CALL, .with = strictly_twice}, SY_ERR_INDEX},
};

static const struct rejection expert_rows[] = {
    {"src of other rows", {SPOIL_EXTENT, "src", 0, .value = 35}, SY_ERR_SHAPE},
    {"an align of 2^31 - 1", {SPOIL_FIELD, "align", .value = INT32_MAX}, SY_ERR_OVERFLOW},
    {"too few rows", {SPOIL_CALL, .with = too_few_rows}, SY_ERR_CAPACITY},
};

static const struct rejection combine_rows[] = {
    {"no output", {SPOIL_TENSOR, .argument = "output"}, SY_ERR_NULL},
    {"output of another type", {SPOIL_TYPE, "output", .type = {kDLFloat, 16, 1}}, SY_ERR_DTYPE},
    {"batches that do not divide", {SPOIL_CALL, .with = odd_batches}, SY_ERR_SHAPE},
    {"replica 6", {SPOIL_FIELD, "replica", .value = 6}, SY_ERR_VALUE},
    {"output over input", {SPOIL_OVER, "output", .other = "input"}, SY_ERR_ALIAS},
    {"an input with rows for three of four experts", {SPOIL_CALL, .with = one_more_expert}, SY_ERR_SHAPE},
    {"an index of E", {SPOIL_NUMBER, "expert_metadata", 23, .value = E}, SY_ERR_INDEX},
    {"too few expert rows", {SPOIL_CALL, .with = expert_rows_too_few}, SY_ERR_CAPACITY},
};

static const struct rejection sum_rows[] = {
    {"weights as f64", {SPOIL_TYPE, "weights", .type = {kDLFloat, 64, 1}}, SY_ERR_DTYPE},
    {"output one sequence long", {SPOIL_EXTENT, "output", 1, .value = 4}, SY_ERR_SHAPE},
};

static const struct rejection code_rows[] = {
    {"no output_scales", {SPOIL_TENSOR, .argument = "output_scales"}, SY_ERR_NULL},
    {"scales without a format", {SPOIL_CALL, .with = no_format}, SY_ERR_VALUE},
};

static const struct rejection code_sum_rows[] = {
    {"output of codes", {SPOIL_TYPE, "output", .type = {kDLInt, 8, 1}}, SY_ERR_DTYPE},
};

const struct mesh_rejections mesh_rejections[MESH_REJECTIONS] = {
    {"dispatch", mesh_make_dispatch, dispatch_rows, COUNT_OF(dispatch_rows)},
    {"dispatch by expert", mesh_make_expert, expert_rows, COUNT_OF(expert_rows)},
    {"combine", mesh_make_combine, combine_rows, COUNT_OF(combine_rows)},
    {"sum", mesh_make_sum, sum_rows, COUNT_OF(sum_rows)},
    {"codes", mesh_make_codes, code_rows, COUNT_OF(code_rows)},
    {"sum of codes", mesh_make_code_sum, code_sum_rows, COUNT_OF(code_sum_rows)},
};
