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
FIELD_SPOILER(a2a_dispatch, planes_4, num_planes, SY_A2A_MAX_PLANES)

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

static void three_copies(struct test_call *c)
{
    mesh_set_shape(c, "expert_mapping", 4, (int64_t[]){3, 1, 2, 2});
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

static void index_of_e(struct test_call *c)
{
    put_u16(c, "expert_indices", 7, E);
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

SPOILER(expert_rows_3, c->args.a2a_dispatch.expert_rows = 3)

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
    {"no plane_tokens", NO_TENSOR("plane_tokens[0]")},
    {"input without data", NO_DATA("input")},
    {"present without data", NO_DATA("present")},
    {"input without shape", NO_SHAPE("input")},
    {"reuse_routing without routing", BAD_CALL(reuse_without_routing, SY_ERR_NULL, "routing", NULL, NULL)},

    {"expert_indices as f32", BAD_TYPE("expert_indices", kDLFloat, 32, 1)},
    {"tokens of another type", BAD_TYPE("tokens", kDLFloat, 16, 1)},

    {"input of rank 1", BAD_RANK("input", 1, "1", NULL)},
    {"present of rank 2", BAD_RANK("present", 2, "2", "1")},
    {"both middle dimensions of input above 1",
     BAD_CALL(middle_dimensions, SY_ERR_SHAPE, "input", "2", NULL)},
    {"planes one token long", BAD_EXTENT("planes[0]", 2, 4, "4", "3")},
    {"expert_mapping in three copies", BAD_CALL(three_copies, SY_ERR_SHAPE, "expert_mapping", "3", NULL)},
    {"65536 experts", BAD_CALL(more_experts_than_uint16, SY_ERR_SHAPE, "expert_mapping", "65536", "65535")},
    {"no elements", BAD_EXTENT("input", 3, 0, "0", NULL)},

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
    {"num_planes 4", BAD_CALL(planes_4, SY_ERR_VALUE, "num_planes", "4", "3")},
    {"input of 2^64 bytes", BAD_CALL(input_bytes, SY_ERR_OVERFLOW, "input|tokens", NULL, NULL)},

    {"tokens one batch short", BAD_EXTENT("tokens", 1, 3, "[1,3,3,5]", "[1,4,3,5]")},
    {"expert_counts for all experts", BAD_EXTENT("expert_counts", 0, 6, "6", "3")},
    {"rows_to one short", BAD_EXTENT("rows_to", 0, 1, "1", "2")},

    {"tokens with overlapping rows", BAD_STRIDE("tokens", 2, 3, "3", "5")},

    {"input on CUDA", BAD_DEVICE("input", kDLCUDA)},

    {"tokens over input", BAD_OVER("tokens", "input", 0)},

    {"a mapping of 2", BAD_CALL(mapping_of_2, SY_ERR_ROUTING, "expert_mapping", "2", NULL)},
    {"an index of E", BAD_CALL(index_of_e, SY_ERR_INDEX, "expert_indices", "6", "6")},
    {"an expert twice, strictly", BAD_CALL(strictly_twice, SY_ERR_INDEX, "expert_indices", "4", NULL)},
};

static const struct rejection expert_rows[] = {
    {"no rows", NO_TENSOR("tokens")},
    {"src as int64", BAD_TYPE("src", kDLInt, 64, 1)},
    {"tokens of rank 4", BAD_RANK("tokens", 4, "[36,5,1,1]", "[36,5]")},
    {"src of other rows", BAD_EXTENT("src", 0, 35, "35", "36")},
    {"expert_offsets one short", BAD_EXTENT("expert_offsets", 0, 3, "3", "4")},
    {"src over tokens", BAD_OVER("src", "tokens", 0)},
    {"an align of 2^31 - 1", BAD_CALL(align_of_2_to_the_31, SY_ERR_OVERFLOW, "align", "2147483647", NULL)},
    {"expert_rows 3", BAD_CALL(expert_rows_3, SY_ERR_VALUE, "expert_rows", "3", "a multiple of align, 4")},
    {"too few rows", BAD_CALL(too_few_rows, SY_ERR_CAPACITY, "tokens", "5", NULL)},
};

const struct mesh_rejections mesh_dispatch_rejections = {mesh_make_dispatch, rows, COUNT_OF(rows)};
const struct mesh_rejections mesh_expert_rejections = {mesh_make_expert, expert_rows, COUNT_OF(expert_rows)};
