/*
 * Spoilers of all_to_all_combine.
 */
#include "mesh_rejections.h"

enum { B = 2, S = 3, N = 6, K = 2, E = 6, H = 5, G = 2, T = 12, L = 3 };

static void make_inputs(struct test_call *c)
{
    sy_all_to_all_combine_args *a = &c->args.a2a_combine;
    *c = (struct test_call){.op = "all_to_all_combine", .first_output = 3};
    struct tensor *y = test_call_add(c, "input", &a->input, SY_BF16, 4, (int64_t[]){L, B * G, S, H});
    struct tensor *table =
        test_call_add(c, "expert_metadata", &a->expert_metadata, SY_U16, 4, (int64_t[]){1, B * G, S, K});
    struct tensor *mapping =
        test_call_add(c, "expert_mapping", &a->expert_mapping, SY_U16, 2, (int64_t[]){E, G});
    uint16_t *map = (uint16_t *)(void *)mapping->mem, *slot = (uint16_t *)(void *)table->mem;
    memset(y->mem, 0x3F, y->bytes);
    for (int e = 0; e < E; e++)
        for (int d = 0; d < G; d++)
            map[e * G + d] = e % G == d;
    for (int i = 0; i < T * K; i++)
        slot[i] = i == 5 ? 65535 : (uint16_t)((i * 7 + i / 2) % E);
}

void mesh_make_combine(struct test_call *c)
{
    sy_all_to_all_combine_args *a = &c->args.a2a_combine;
    make_inputs(c);
    test_call_add(c, "output", &a->output, SY_BF16, 4, (int64_t[]){K, B, S, H});
    test_call_add(c, "written", &a->written, SY_BOOL, 2, (int64_t[]){K, N});
    test_call_reset(c);
}

void mesh_make_sum(struct test_call *c)
{
    sy_all_to_all_combine_args *a = &c->args.a2a_combine;
    make_inputs(c);
    test_call_add(c, "weights", &a->weights, SY_F32, 4, (int64_t[]){B, 1, S, K});
    test_call_add(c, "output", &a->output, SY_BF16, 3, (int64_t[]){B, S, H});
    c->first_output = 4;
    a->sum = true;
    test_call_reset(c);
}

/* Rows of int8 codes, each with its scale. Calls of several threads point to it. */
#define CODES_OF(of_group) \
    { \
        .bytes = sizeof(sy_row_format), .q_type = {kDLInt, 8, 1}, .scale_type = {kDLFloat, 32, 1}, \
        .group = of_group, .scale_math = SY_SCALE_MATH_DIV \
    }
static const sy_row_format ones = CODES_OF(1), threes = CODES_OF(3), less = CODES_OF(-1);
static const sy_row_format unsized = {.scale_math = SY_SCALE_MATH_DIV},
                           of_caches = {.bytes = sizeof of_caches,
                                        .q_type = {kDLInt, 8, 1},
                                        .scale_type = {kDLFloat, 32, 1}};

static void make_codes(struct test_call *c)
{
    sy_all_to_all_combine_args *a = &c->args.a2a_combine;
    make_inputs(c);
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

/* ---- Scalars ------------------------------------------------------------------------------------------ */

FIELDS_OF_BOTH(a2a_combine)

static void node_of_3(struct test_call *c)
{
    c->args.a2a_combine.node_size = 3;
}

/* ---- Shapes ------------------------------------------------------------------------------------------- */

/* Three batches do not divide into two devices. */
static void odd_batches(struct test_call *c)
{
    mesh_set_shape(c, "input", 4, (int64_t[]){L, 3, S, H});
    mesh_set_shape(c, "expert_metadata", 4, (int64_t[]){1, 3, S, K});
}

static void partial_of_three(struct test_call *c)
{
    c->args.a2a_combine.local_reduce = true;
}

static void packed_slots(struct test_call *c)
{
    mesh_set_shape(c, "input", 2, (int64_t[]){T, H});
    c->args.a2a_combine.layout = SY_LAYOUT_PACKED;
}

static void expert_partial(struct test_call *c)
{
    mesh_set_shape(c, "input", 2, (int64_t[]){2 * T, H});
    c->args.a2a_combine.layout = SY_LAYOUT_EXPERT;
    c->args.a2a_combine.local_reduce = true;
}

static void expert_rows_too_few(struct test_call *c)
{
    mesh_set_shape(c, "input", 2, (int64_t[]){2, H});
    c->args.a2a_combine.layout = SY_LAYOUT_EXPERT;
}

/* Where the rows of the second expert would begin no longer fits a list of rows. */
static void align_of_2_to_the_31(struct test_call *c)
{
    mesh_set_shape(c, "input", 2, (int64_t[]){36, H});
    c->args.a2a_combine.layout = SY_LAYOUT_EXPERT;
    c->args.a2a_combine.align = INT32_MAX;
}

static void more_experts_than_uint16(struct test_call *c)
{
    test_call_tensor(c, "expert_mapping")->shape[0] = 65536;
}

/* ---- Contents ----------------------------------------------------------------------------------------- */

static void put_u16(struct test_call *c, const char *name, int at, uint16_t value)
{
    memcpy(test_call_tensor(c, name)->mem + 2 * at, &value, 2);
}

static void mapping_of_2(struct test_call *c)
{
    put_u16(c, "expert_mapping", 7, 2);
}

/* One expert more for this device: its input has too few rows. */
static void one_more_expert(struct test_call *c)
{
    put_u16(c, "expert_mapping", 0, 1);
    put_u16(c, "expert_mapping", 1, 1);
}

static void two_holders(struct test_call *c)
{
    put_u16(c, "expert_mapping", 4, 1);
    put_u16(c, "expert_mapping", 5, 1);
    mesh_set_shape(c, "input", 4, (int64_t[]){1, B * G, S, H});
    c->args.a2a_combine.local_reduce = true;
}

static void index_of_e(struct test_call *c)
{
    put_u16(c, "expert_metadata", 23, E);
}

static void strictly_twice(struct test_call *c)
{
    put_u16(c, "expert_metadata", 8, 4);
    put_u16(c, "expert_metadata", 9, 4);
    c->args.a2a_combine.strict_unique = true;
}

/* ---- The table ---------------------------------------------------------------------------------------- */

static const struct rejection rows[] = {
    {"no input", NO_TENSOR("input")},
    {"no output", NO_TENSOR("output")},
    {"input without data", NO_DATA("input")},
    {"output without shape", NO_SHAPE("output")},

    {"expert_metadata as f32", BAD_TYPE("expert_metadata", kDLFloat, 32, 1)},
    {"output of another type", BAD_TYPE("output", kDLFloat, 16, 1)},

    {"input of rank 2", BAD_RANK("input", 2, "2", NULL)},
    {"written of rank 1", BAD_RANK("written", 1, "1", "2")},
    {"batches that do not divide", BAD_CALL(odd_batches, SY_ERR_SHAPE, "expert_metadata|input", "3", "2")},
    {"input of other batches", BAD_EXTENT("input", 1, 3, "3", "4"), .blame = "input|expert_metadata"},
    {"65536 experts", BAD_CALL(more_experts_than_uint16, SY_ERR_SHAPE, "expert_mapping", "65536", "65535")},
    {"no slots", BAD_EXTENT("expert_metadata", 3, 0, "0", NULL)},
    {"local_reduce of three rows per token", BAD_CALL(partial_of_three, SY_ERR_SHAPE, "input", "3", "1")},

    {"cluster_axis 3", BAD_CALL(axis_3, SY_ERR_VALUE, "cluster_axis", "axis 2", NULL)},
    {"order 2", BAD_CALL(order_2, SY_ERR_VALUE, "order", "2", NULL)},
    {"layout 3", BAD_CALL(layout_3, SY_ERR_VALUE, "layout", "3", NULL)},
    {"replica 6", BAD_CALL(replica_6, SY_ERR_VALUE, "replica", "6", NULL)},
    {"replica -1", BAD_CALL(replica_minus_1, SY_ERR_VALUE, "replica", "-1", NULL)},
    {"node_size 3",
     BAD_CALL(node_of_3, SY_ERR_VALUE, "node_size", "3", "a divisor of 2, the devices of a group")},
    {"num_links -1", BAD_CALL(links_minus_1, SY_ERR_VALUE, "num_links", "-1", NULL)},
    {"topology 5", BAD_CALL(topology_5, SY_ERR_VALUE, "topology", "5", NULL)},
    {"memory 4", BAD_CALL(memory_4, SY_ERR_VALUE, "memory", "4", NULL)},
    {"memory sharded", BAD_CALL(memory_sharded, SY_ERR_UNSUPPORTED, "memory", NULL, NULL)},
    {"subdevice_id 1", BAD_CALL(subdevice_1, SY_ERR_VALUE, "subdevice_id", "1", "0")},
    {"packed rows of three experts", BAD_CALL(packed_slots, SY_ERR_UNSUPPORTED, "layout", NULL, NULL)},
    {"expert rows of local_reduce", BAD_CALL(expert_partial, SY_ERR_UNSUPPORTED, "layout", NULL, NULL)},

    {"an align of 2^31 - 1", BAD_CALL(align_of_2_to_the_31, SY_ERR_OVERFLOW, "align", "2147483647", NULL)},

    {"output one batch short", BAD_EXTENT("output", 1, 1, "[2,1,3,5]", "[2,2,3,5]")},

    {"output with overlapping rows", BAD_STRIDE("output", 2, 1, "1", "5")},

    {"input on CUDA", BAD_DEVICE("input", kDLCUDA)},

    {"output over input", BAD_OVER("output", "input", 0)},

    {"a mapping of 2", BAD_CALL(mapping_of_2, SY_ERR_ROUTING, "expert_mapping", "2", NULL)},
    {"an input with rows for three of four experts",
     BAD_CALL(one_more_expert, SY_ERR_SHAPE, "input", "3", "4")},
    {"local_reduce and two holders", BAD_CALL(two_holders, SY_ERR_ROUTING, "expert_mapping", "2", NULL)},
    {"an index of E", BAD_CALL(index_of_e, SY_ERR_INDEX, "expert_metadata", "6", "6")},
    {"an expert twice, strictly", BAD_CALL(strictly_twice, SY_ERR_INDEX, "expert_metadata", "4", NULL)},
    {"too few expert rows", BAD_CALL(expert_rows_too_few, SY_ERR_CAPACITY, "input", "2", NULL)},
};

static const struct rejection sum_rows[] = {
    {"rows as f64", BAD_TYPE("input", kDLFloat, 64, 1)},
    {"rows as uint8", BAD_TYPE("input", kDLUInt, 8, 1)},
    {"weights as f64", BAD_TYPE("weights", kDLFloat, 64, 1)},
    {"weights as int32", BAD_TYPE("weights", kDLInt, 32, 1)},
    {"weights without data", NO_DATA("weights")},
    {"weights of rank 3", BAD_RANK("weights", 3, "3", NULL)},
    {"weights one token short", BAD_EXTENT("weights", 2, 2, "2", "3")},
    {"weights one slot long", BAD_EXTENT("weights", 3, 3, "3", "2")},
    {"weights with inner stride 2", BAD_STRIDE("weights", 3, 2, "2", "contiguous")},
    {"weights on CUDA", BAD_DEVICE("weights", kDLCUDA)},
    {"output with slots", BAD_RANK("output", 5, "5", NULL)},
    {"output one sequence long", BAD_EXTENT("output", 1, 4, "4", "3")},
    {"output over weights", BAD_OVER("output", "weights", 0)},
};

SPOILER(no_format, c->args.a2a_combine.row_format = NULL)
SPOILER(format_of_threes, c->args.a2a_combine.row_format = &threes)
SPOILER(format_of_less, c->args.a2a_combine.row_format = &less)
SPOILER(format_unsized, c->args.a2a_combine.row_format = &unsized)
SPOILER(format_of_caches, c->args.a2a_combine.row_format = &of_caches)
SPOILER(add_codes_up, c->args.a2a_combine.sum = true)

/* What a format adds, for codes of slots and for those of sums. */
#define CODED_ROWS \
    {"no input_scales", NO_TENSOR("input_scales"), .found = "is missing while row_format is given"}, \
        {"a format without its size", \
         BAD_CALL(format_unsized, SY_ERR_VALUE, "row_format", "bytes 0", "sizeof(sy_kv_format), 80")}, \
        {"a format of caches", BAD_CALL(format_of_caches, SY_ERR_VALUE, "row_format", "scale_math 0", \
                                        "other formats are of caches")}, \
        {"groups of less", BAD_CALL(format_of_less, SY_ERR_VALUE, "row_format", "group -1", "1 or more")}, \
        {"groups of three", \
         BAD_CALL(format_of_threes, SY_ERR_SHAPE, "input", "rows of 5", "a multiple of 3")}, \
        {"input as it is", BAD_TYPE("input", kDLBfloat, 16, 1)}, \
        {"scales of e8m0", BAD_TYPE("input_scales", 14, 8, 1), .found = "f8_e8m0", .wanted = "f32"}, \
        {"input_scales of rank 5", BAD_RANK("input_scales", 5, "5", NULL)}, \
        {"input_scales one short", BAD_EXTENT("input_scales", 3, 4, "[3,4,3,4]", "[3,4,3,5]")}, \
        {"input_scales of fewer experts", BAD_EXTENT("input_scales", 0, 1, "[1,4,3,5]", "[3,4,3,5]")}, \
        {"input_scales with inner stride 2", BAD_STRIDE("input_scales", 3, 2, "2", "contiguous")}, \
        {"input_scales on CUDA", BAD_DEVICE("input_scales", kDLCUDA)}, \
    { \
        "output over input_scales", BAD_OVER("output", "input_scales", 0) \
    }

static const struct rejection code_rows[] = {
    CODED_ROWS,
    {"no output_scales", NO_TENSOR("output_scales"), .found = "is missing while row_format is given"},
    {"scales without a format",
     BAD_CALL(no_format, SY_ERR_VALUE, "input_scales", "is given", "no row_format")},
    {"codes as sums", BAD_CALL(add_codes_up, SY_ERR_DTYPE, "output", "i8", "f16, f32 or bf16")},
    {"output of numbers", BAD_TYPE("output", kDLBfloat, 16, 1), .found = "bf16", .wanted = "i8"},
    {"output_scales of e8m0", BAD_TYPE("output_scales", 14, 8, 1), .found = "f8_e8m0", .wanted = "f32"},
    {"output_scales as f16", BAD_TYPE("output_scales", kDLFloat, 16, 1)},
    {"output_scales one short", BAD_EXTENT("output_scales", 3, 4, "[2,2,3,4]", "[2,2,3,5]")},
    {"output_scales of another rank", BAD_RANK("output_scales", 3, NULL, NULL)},
    {"output_scales over input", BAD_OVER("output_scales", "input", 0)},
    {"output_scales over output", BAD_OVER("output_scales", "output", 0)},
};

static const struct rejection code_sum_rows[] = {
    CODED_ROWS,
    {"output of codes", BAD_TYPE("output", kDLInt, 8, 1), .found = "i8", .wanted = "f16, f32 or bf16"},
    {"output of f64", BAD_TYPE("output", kDLFloat, 64, 1)},
    {"codes of another format", BAD_TYPE("input", 10, 8, 1), .found = "f8_e4m3", .wanted = "i8"},
};

const struct mesh_rejections mesh_codes_rejections = {mesh_make_codes, code_rows, COUNT_OF(code_rows)};
const struct mesh_rejections mesh_code_sum_rejections = {mesh_make_code_sum, code_sum_rows,
                                                         COUNT_OF(code_sum_rows)};
const struct mesh_rejections mesh_combine_rejections = {mesh_make_combine, rows, COUNT_OF(rows)};
const struct mesh_rejections mesh_sum_rejections = {mesh_make_sum, sum_rows, COUNT_OF(sum_rows)};
