/*
 * Spoilers of all_to_all_dispatch. Every tensor of the valid call has another size, so that a sentence about the wrong one
 * shows.
 */
#include "mesh_rejections.h"

enum { B = 2, S = 3, N = 6, K = 2, E = 6, H = 5, X = 4, G = 2, T = 12, L = 3, ALIGN = 4, ROWS = 36 };

void mesh_pair_up(void *args, DLTensor (*tensors)[REJECTION_DEVICES], const struct test_call *first,
                  const struct test_call *second)
{
    const sy_op_info *op = sy_op_find(second->op);
    memcpy(args, &second->args, op->args_bytes);
    for (int i = 0; i < op->n_tensors; i++) {
        const sy_field_info *field = sy_op_field(op, i);
        const DLTensor *one, *two, *both = tensors[i];
        memcpy(&one, (const char *)&first->args + field->offset, sizeof one);
        memcpy(&two, (const char *)&second->args + field->offset, sizeof two);
        if (one == NULL || two == NULL || (field->flags & SY_FIELD_SHARED))
            continue;
        tensors[i][0] = *one;
        tensors[i][1] = *two;
        memcpy((char *)args + field->offset, &both, sizeof both);
    }
}

/* e on device e mod 2; tokens choose all kinds of experts, and none. */
static void put_experts(struct tensor *mapping, struct tensor *indices)
{
    uint16_t *map = (uint16_t *)(void *)mapping->mem, *slot = (uint16_t *)(void *)indices->mem;
    for (int e = 0; e < E; e++)
        for (int d = 0; d < G; d++)
            map[e * G + d] = e % G == d;
    for (int i = 0; i < N * K; i++)
        slot[i] = i == 5 ? 65535 : (uint16_t)((i * 7 + i / 2) % E);
}

static void make_inputs(struct test_call *c)
{
    sy_all_to_all_dispatch_args *a = &c->args.a2a_dispatch;
    *c = (struct test_call){.op = "all_to_all_dispatch", .first_output = 4};
    struct tensor *x = test_call_add(c, "input", &a->input, SY_BF16, 4, (int64_t[]){B, 1, S, H});
    struct tensor *indices =
        test_call_add(c, "expert_indices", &a->expert_indices, SY_U16, 4, (int64_t[]){B, 1, S, K});
    struct tensor *mapping =
        test_call_add(c, "expert_mapping", &a->expert_mapping, SY_U16, 2, (int64_t[]){E, G});
    test_call_add(c, "planes[0]", &a->planes[0], SY_F32, 4, (int64_t[]){B, 1, S, X});
    put_experts(mapping, indices);
    memset(x->mem, 0x42, x->bytes);
    a->num_planes = 1;
}

void mesh_make_dispatch(struct test_call *c)
{
    sy_all_to_all_dispatch_args *a = &c->args.a2a_dispatch;
    make_inputs(c);
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
    make_inputs(c);
    test_call_add(c, "tokens", &a->tokens, SY_BF16, 2, (int64_t[]){ROWS, H});
    test_call_add(c, "plane_tokens[0]", &a->plane_tokens[0], SY_F32, 2, (int64_t[]){ROWS, X});
    test_call_add(c, "src", &a->src, SY_I32, 2, (int64_t[]){ROWS, 3});
    test_call_add(c, "expert_counts", &a->expert_counts, SY_I64, 1, (int64_t[]){L});
    test_call_add(c, "expert_offsets", &a->expert_offsets, SY_I64, 1, (int64_t[]){L + 1});
    a->layout = SY_LAYOUT_EXPERT;
    a->align = ALIGN;
    test_call_reset(c);
}

/* ---- Scalars ------------------------------------------------------------------------------------------ */

FIELDS_OF_BOTH(a2a_dispatch)
FIELD_SPOILER(a2a_dispatch, axis_minus_1, cluster_axis, -1)
FIELD_SPOILER(a2a_dispatch, dim_3, output_concat_dim, 3)
FIELD_SPOILER(a2a_dispatch, dim_minus_1, output_concat_dim, -1)
FIELD_SPOILER(a2a_dispatch, fill_2, fill, 2)
FIELD_SPOILER(a2a_dispatch, subdevice_minus_1, subdevice_id, -1)
FIELD_SPOILER(a2a_dispatch, planes_minus_1, num_planes, -1)
FIELD_SPOILER(a2a_dispatch, planes_4, num_planes, SY_A2A_MAX_PLANES)

static void align_minus_1(struct test_call *c)
{
    c->args.a2a_dispatch.align = -1;
}

static void max_tokens_minus_1(struct test_call *c)
{
    c->args.a2a_dispatch.max_tokens = -1;
}

static void node_of_minus_1(struct test_call *c)
{
    c->args.a2a_dispatch.node_size = -1;
}

static void node_of_3(struct test_call *c)
{
    c->args.a2a_dispatch.node_size = 3;
}

static void reuse_without_routing(struct test_call *c)
{
    c->args.a2a_dispatch.reuse_routing = true;
}

/* ---- Shapes ------------------------------------------------------------------------------------------- */

void mesh_set_shape(struct test_call *c, const char *name, int rank, const int64_t *shape)
{
    struct tensor *x = test_call_tensor(c, name);
    x->t.ndim = rank;
    memcpy(x->shape, shape, (size_t)rank * sizeof *shape);
}

static void middle_dimensions(struct test_call *c)
{
    mesh_set_shape(c, "input", 4, (int64_t[]){1, 2, 3, H});
}

static void ranks_that_differ(struct test_call *c)
{
    mesh_set_shape(c, "expert_indices", 4, (int64_t[]){3, 1, 2, K});
}

static void three_copies(struct test_call *c)
{
    mesh_set_shape(c, "expert_mapping", 4, (int64_t[]){3, 1, 2, 2});
}

static void mapping_second_dimension(struct test_call *c)
{
    mesh_set_shape(c, "expert_mapping", 4, (int64_t[]){1, 2, 3, 2});
}

static void concat_other_dimension(struct test_call *c)
{
    c->args.a2a_dispatch.output_concat_dim = 2;
}

static void more_experts_than_uint16(struct test_call *c)
{
    test_call_tensor(c, "expert_mapping")->shape[0] = 65536;
}

static void input_bytes(struct test_call *c)
{
    test_call_tensor(c, "input")->shape[3] = INT64_C(1) << 61;
    test_call_tensor(c, "tokens")->shape[3] = INT64_C(1) << 61;
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

static void mapping_of_65535(struct test_call *c)
{
    put_u16(c, "expert_mapping", 0, 65535);
}

static void index_of_e(struct test_call *c)
{
    put_u16(c, "expert_indices", 7, E);
}

static void index_of_65534(struct test_call *c)
{
    put_u16(c, "expert_indices", 11, 65534);
}

static void strictly_twice(struct test_call *c)
{
    put_u16(c, "expert_indices", 8, 4);
    put_u16(c, "expert_indices", 9, 4);
    c->args.a2a_dispatch.strict_unique = true;
}

static void align_of_2_to_the_31(struct test_call *c)
{
    c->args.a2a_dispatch.align = INT32_MAX;
}

SPOILER(expert_rows_minus_1, c->args.a2a_dispatch.expert_rows = -1)
SPOILER(expert_rows_3, c->args.a2a_dispatch.expert_rows = 3)
SPOILER(expert_rows_many, c->args.a2a_dispatch.expert_rows = INT32_MAX / ALIGN * ALIGN)

/* The group's tokens do not fit: 5 rows for six tokens of this device alone. */
static void too_few_rows(struct test_call *c)
{
    static const char *const all[] = {"tokens", "plane_tokens[0]", "src"};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        test_call_tensor(c, all[i])->shape[0] = 5;
}

/* ---- The table ---------------------------------------------------------------------------------------- */

static const struct rejection rows[] = {
    {"no input", NO_TENSOR("input")},
    {"no expert_indices", NO_TENSOR("expert_indices")},
    {"no expert_mapping", NO_TENSOR("expert_mapping")},
    {"no planes", NO_TENSOR("planes[0]")},
    {"no tokens", NO_TENSOR("tokens")},
    {"no plane_tokens", NO_TENSOR("plane_tokens[0]")},
    {"input without data", NO_DATA("input")},
    {"expert_indices without data", NO_DATA("expert_indices")},
    {"expert_mapping without data", NO_DATA("expert_mapping")},
    {"planes without data", NO_DATA("planes[0]")},
    {"tokens without data", NO_DATA("tokens")},
    {"metadata without data", NO_DATA("metadata")},
    {"plane_tokens without data", NO_DATA("plane_tokens[0]")},
    {"present without data", NO_DATA("present")},
    {"expert_counts without data", NO_DATA("expert_counts")},
    {"rows_from without data", NO_DATA("rows_from")},
    {"rows_to without data", NO_DATA("rows_to")},
    {"input without shape", NO_SHAPE("input")},
    {"expert_indices without shape", NO_SHAPE("expert_indices")},
    {"expert_mapping without shape", NO_SHAPE("expert_mapping")},
    {"tokens without shape", NO_SHAPE("tokens")},
    {"reuse_routing without routing", BAD_CALL(reuse_without_routing, SY_ERR_NULL, "routing", NULL, NULL)},

    {"input of 4 bits", BAD_TYPE("input", kDLInt, 4, 1)},
    {"input of no bits", BAD_TYPE("input", kDLUInt, 0, 1)},
    {"expert_indices as f32", BAD_TYPE("expert_indices", kDLFloat, 32, 1)},
    {"expert_indices as uint8", BAD_TYPE("expert_indices", kDLUInt, 8, 1)},
    {"expert_indices of two lanes", BAD_TYPE("expert_indices", kDLUInt, 16, 2)},
    {"expert_mapping as int32", BAD_TYPE("expert_mapping", kDLInt, 32, 1)},
    {"expert_mapping as bool", BAD_TYPE("expert_mapping", 6, 8, 1)},
    {"tokens of another type", BAD_TYPE("tokens", kDLFloat, 16, 1)},
    {"metadata of another type", BAD_TYPE("metadata", kDLInt, 32, 1)},
    {"plane_tokens of another type", BAD_TYPE("plane_tokens[0]", kDLInt, 32, 1)},
    {"present as int32", BAD_TYPE("present", kDLInt, 32, 1)},
    {"expert_counts as int32", BAD_TYPE("expert_counts", kDLInt, 32, 1)},
    {"rows_from as int32", BAD_TYPE("rows_from", kDLInt, 32, 1)},
    {"rows_to as uint64", BAD_TYPE("rows_to", kDLUInt, 64, 1)},

    {"input of rank 1", BAD_RANK("input", 1, "1", NULL)},
    {"input of rank 5", BAD_RANK("input", 5, "5", NULL)},
    {"expert_indices of rank 3", BAD_RANK("expert_indices", 3, "3", NULL)},
    {"expert_mapping of rank 3", BAD_RANK("expert_mapping", 3, "3", NULL)},
    {"tokens of rank 3", BAD_RANK("tokens", 3, "3", NULL)},
    {"present of rank 2", BAD_RANK("present", 2, "2", "1")},
    {"both middle dimensions of input above 1",
     BAD_CALL(middle_dimensions, SY_ERR_SHAPE, "input", "2", NULL)},
    {"expert_indices of other batches",
     BAD_CALL(ranks_that_differ, SY_ERR_SHAPE, "expert_indices|input", "3", NULL)},
    {"expert_indices one token short", BAD_EXTENT("expert_indices", 2, 2, "2", "3"),
     .blame = "expert_indices|input"},
    {"planes one token long", BAD_EXTENT("planes[0]", 2, 4, "4", "3")},
    {"expert_mapping for three devices", BAD_EXTENT("expert_mapping", 1, 3, "3", "2")},
    {"expert_mapping in three copies", BAD_CALL(three_copies, SY_ERR_SHAPE, "expert_mapping", "3", NULL)},
    {"expert_mapping with a second dimension of 2",
     BAD_CALL(mapping_second_dimension, SY_ERR_SHAPE, "expert_mapping", "2", NULL)},
    {"65536 experts", BAD_CALL(more_experts_than_uint16, SY_ERR_SHAPE, "expert_mapping", "65536", "65535")},
    {"no elements", BAD_EXTENT("input", 3, 0, "0", NULL)},
    {"no slots", BAD_EXTENT("expert_indices", 3, 0, "0", NULL)},
    {"no experts", BAD_EXTENT("expert_mapping", 0, 0, "0", NULL)},
    {"a negative extent", BAD_EXTENT("input", 0, -2, "-2", NULL)},

    {"cluster_axis 3", BAD_CALL(axis_3, SY_ERR_VALUE, "cluster_axis", "axis 2", NULL)},
    {"cluster_axis -1", BAD_CALL(axis_minus_1, SY_ERR_VALUE, "cluster_axis", "axis -2", NULL)},
    {"output_concat_dim 3", BAD_CALL(dim_3, SY_ERR_VALUE, "output_concat_dim", "3", NULL)},
    {"output_concat_dim -1", BAD_CALL(dim_minus_1, SY_ERR_VALUE, "output_concat_dim", "-1", NULL)},
    {"order 2", BAD_CALL(order_2, SY_ERR_VALUE, "order", "2", NULL)},
    {"fill 2", BAD_CALL(fill_2, SY_ERR_VALUE, "fill", "2", NULL)},
    {"layout 3", BAD_CALL(layout_3, SY_ERR_VALUE, "layout", "3", NULL)},
    {"align -1", BAD_CALL(align_minus_1, SY_ERR_VALUE, "align", "-1", NULL)},
    {"expert_rows of padded rows",
     BAD_CALL(expert_rows_3, SY_ERR_VALUE, "expert_rows", "3", "0: the layout is not expert")},
    {"max_tokens -1", BAD_CALL(max_tokens_minus_1, SY_ERR_VALUE, "max_tokens", "-1", NULL)},
    {"replica 6", BAD_CALL(replica_6, SY_ERR_VALUE, "replica", "6", NULL)},
    {"replica -1", BAD_CALL(replica_minus_1, SY_ERR_VALUE, "replica", "-1", NULL)},
    {"node_size -1", BAD_CALL(node_of_minus_1, SY_ERR_VALUE, "node_size", "-1", "0 or more")},
    {"node_size 3",
     BAD_CALL(node_of_3, SY_ERR_VALUE, "node_size", "3", "a divisor of 2, the devices of a group")},
    {"num_links -1", BAD_CALL(links_minus_1, SY_ERR_VALUE, "num_links", "-1", NULL)},
    {"topology 5", BAD_CALL(topology_5, SY_ERR_VALUE, "topology", "5", NULL)},
    {"memory 4", BAD_CALL(memory_4, SY_ERR_VALUE, "memory", "4", NULL)},
    {"memory sharded", BAD_CALL(memory_sharded, SY_ERR_UNSUPPORTED, "memory", NULL, NULL)},
    {"subdevice_id 1", BAD_CALL(subdevice_1, SY_ERR_VALUE, "subdevice_id", "1", "0")},
    {"subdevice_id -1", BAD_CALL(subdevice_minus_1, SY_ERR_VALUE, "subdevice_id", "-1", "0")},
    {"num_planes -1", BAD_CALL(planes_minus_1, SY_ERR_VALUE, "num_planes", "-1", "3")},
    {"num_planes 4", BAD_CALL(planes_4, SY_ERR_VALUE, "num_planes", "4", "3")},
    {"input of 2^64 bytes", BAD_CALL(input_bytes, SY_ERR_OVERFLOW, "input|tokens", NULL, NULL)},

    {"tokens one batch short", BAD_EXTENT("tokens", 1, 3, "[1,3,3,5]", "[1,4,3,5]")},
    {"tokens one element long", BAD_EXTENT("tokens", 3, 6, "[1,4,3,6]", "[1,4,3,5]")},
    {"tokens along the other dimension", BAD_CALL(concat_other_dimension, SY_ERR_SHAPE, "tokens", "4", "6")},
    {"metadata one slot long", BAD_EXTENT("metadata", 3, 3, "[1,4,3,3]", "[1,4,3,2]")},
    {"plane_tokens one element short", BAD_EXTENT("plane_tokens[0]", 3, 3, "[1,4,3,3]", "[1,4,3,4]")},
    {"present one short", BAD_EXTENT("present", 0, 11, "11", "12")},
    {"expert_counts for all experts", BAD_EXTENT("expert_counts", 0, 6, "6", "3")},
    {"rows_from one long", BAD_EXTENT("rows_from", 0, 3, "3", "2")},
    {"rows_to one short", BAD_EXTENT("rows_to", 0, 1, "1", "2")},

    {"input with inner stride 2", BAD_STRIDE("input", 3, 2, "2", "contiguous")},
    {"input with overlapping rows", BAD_STRIDE("input", 2, 4, "4", "5")},
    {"expert_indices with inner stride 2", BAD_STRIDE("expert_indices", 3, 2, "2", "contiguous")},
    {"tokens with inner stride -1", BAD_STRIDE("tokens", 3, -1, "-1", "contiguous")},
    {"tokens with overlapping rows", BAD_STRIDE("tokens", 2, 3, "3", "5")},
    {"metadata with inner stride 0", BAD_STRIDE("metadata", 3, 0, "0", "contiguous")},
    {"present with stride 2", BAD_STRIDE("present", 0, 2, "2", "contiguous")},

    {"input on CUDA", BAD_DEVICE("input", kDLCUDA)},
    {"expert_indices on CUDA", BAD_DEVICE("expert_indices", kDLCUDA)},
    {"expert_mapping on CUDA", BAD_DEVICE("expert_mapping", kDLCUDA)},
    {"tokens on Vulkan", BAD_DEVICE("tokens", kDLVulkan)},
    {"present on CUDA", BAD_DEVICE("present", kDLCUDA)},

    {"tokens over input", BAD_OVER("tokens", "input", 0)},
    {"tokens over the last byte of expert_indices", BAD_OVER("tokens", "expert_indices", N *K * 2 - 1)},
    {"metadata over expert_indices", BAD_OVER("metadata", "expert_indices", 0)},
    {"metadata over expert_mapping", BAD_OVER("metadata", "expert_mapping", 2)},
    {"metadata over tokens", BAD_OVER("metadata", "tokens", 64)},
    {"present over metadata", BAD_OVER("present", "metadata", T *K * 2 - 1)},
    {"plane_tokens over planes", BAD_OVER("plane_tokens[0]", "planes[0]", 0)},
    {"rows_from over rows_to", BAD_OVER("rows_from", "rows_to", 8)},

    {"a mapping of 2", BAD_CALL(mapping_of_2, SY_ERR_ROUTING, "expert_mapping", "2", NULL)},
    {"a mapping of 65535", BAD_CALL(mapping_of_65535, SY_ERR_ROUTING, "expert_mapping", "65535", NULL)},
    {"an index of E", BAD_CALL(index_of_e, SY_ERR_INDEX, "expert_indices", "6", "6")},
    {"an index of 65534", BAD_CALL(index_of_65534, SY_ERR_INDEX, "expert_indices", "65534", "6")},
    {"an expert twice, strictly", BAD_CALL(strictly_twice, SY_ERR_INDEX, "expert_indices", "4", NULL)},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("rows_to")},
    {"dtype", BAD_TYPE("rows_from", kDLInt, 32, 1)},
    {"rank", BAD_RANK("present", 2, NULL, NULL)},
    {"input shape", BAD_EXTENT("planes[0]", 2, 4, NULL, NULL)},
    {"value", BAD_CALL(links_minus_1, SY_ERR_VALUE, "num_links", NULL, NULL)},
    {"output shape", BAD_EXTENT("metadata", 3, 3, NULL, NULL)},
    {"stride", BAD_STRIDE("tokens", 2, 3, NULL, NULL)},
    {"device", BAD_DEVICE("expert_indices", kDLCUDA)},
    {"alias", BAD_OVER("plane_tokens[0]", "input", 0)},
    {"mapping", BAD_CALL(mapping_of_2, SY_ERR_ROUTING, "expert_mapping", NULL, NULL)},
    {"index", BAD_CALL(index_of_e, SY_ERR_INDEX, "expert_indices", NULL, NULL)},
};

static const struct rejection expert_rows[] = {
    {"no rows", NO_TENSOR("tokens")},
    {"src as int64", BAD_TYPE("src", kDLInt, 64, 1)},
    {"expert_offsets as int32", BAD_TYPE("expert_offsets", kDLInt, 32, 1)},
    {"tokens of rank 4", BAD_RANK("tokens", 4, "[36,5,1,1]", "[36,5]")},
    {"src of two columns", BAD_EXTENT("src", 1, 2, "2", "3")},
    {"src of other rows", BAD_EXTENT("src", 0, 35, "35", "36")},
    {"plane_tokens of other rows", BAD_EXTENT("plane_tokens[0]", 0, 35, "35", "36")},
    {"tokens one element short", BAD_EXTENT("tokens", 1, 4, "4", "5")},
    {"expert_offsets one short", BAD_EXTENT("expert_offsets", 0, 3, "3", "4")},
    {"src with inner stride 2", BAD_STRIDE("src", 1, 2, "2", "contiguous")},
    {"src over tokens", BAD_OVER("src", "tokens", 0)},
    {"an align of 2^31 - 1", BAD_CALL(align_of_2_to_the_31, SY_ERR_OVERFLOW, "align", "2147483647", NULL)},
    {"expert_rows -1", BAD_CALL(expert_rows_minus_1, SY_ERR_VALUE, "expert_rows", "-1", NULL)},
    {"expert_rows 3", BAD_CALL(expert_rows_3, SY_ERR_VALUE, "expert_rows", "3", "a multiple of align, 4")},
    {"expert_rows of 2^31 rows",
     BAD_CALL(expert_rows_many, SY_ERR_OVERFLOW, "expert_rows", "for 6 experts", NULL)},
    {"too few rows", BAD_CALL(too_few_rows, SY_ERR_CAPACITY, "tokens", "5", NULL)},
};

const struct mesh_rejections mesh_dispatch_rejections = {mesh_make_dispatch, rows, COUNT_OF(rows), ladder,
                                                         COUNT_OF(ladder)};
const struct mesh_rejections mesh_expert_rejections = {mesh_make_expert, expert_rows, COUNT_OF(expert_rows),
                                                       NULL, 0};
