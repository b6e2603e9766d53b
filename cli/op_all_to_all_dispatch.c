/*
 * all_to_all_dispatch on the command line. Old contents of the outputs may stand in the input file.
 */
#include <string.h>

#include "op_a2a.h"

#define FIELD(name) offsetof(struct op_call, args.all_to_all_dispatch.name)

static const struct op_tensor tensors[] = {
    {"input", FIELD(input), OP_INPUT, "[D,B,1,S,H] or [D,N,H]", "any",
     "tokens of each device; also [D,B,S,1,H]"},
    {"expert_indices", FIELD(expert_indices), OP_INPUT, "[D,B,1,S,K] or [D,N,K]", "U16 I32 I64",
     "experts of each token; all bits set: none"},
    {"expert_mapping", FIELD(expert_mapping), OP_SHARED, A2A_MAPPING_SHAPES, "U16",
     "1 where a device hosts an expert"},
    {"plane.0", FIELD(planes[0]), OP_OPTIONAL, "[D,B,1,S,X] or [D,N,X]", "any",
     "travels with the token; also plane.1, plane.2"},
    {"plane.1", FIELD(planes[1]), OP_OPTIONAL, "[D,B,1,S,X] or [D,N,X]", "any", ""},
    {"plane.2", FIELD(planes[2]), OP_OPTIONAL, "[D,B,1,S,X] or [D,N,X]", "any", ""},
    {"tokens", FIELD(tokens), OP_INOUT, "[D,1,B*G,S,H] or [D,T,H]", "as input",
     "tokens sent here; packed, expert: [D,R,H]"},
    {"metadata", FIELD(metadata), OP_INOUT, "[D,1,B*G,S,K] or [D,T,K]", "as indices",
     "experts of all tokens of the group"},
    {"plane_tokens.0", FIELD(plane_tokens[0]), OP_INOUT, "[D,1,B*G,S,X] or [D,T,X]", "as plane.0",
     "with plane.0, and so on"},
    {"plane_tokens.1", FIELD(plane_tokens[1]), OP_INOUT, "[D,1,B*G,S,X] or [D,T,X]", "as plane.1", ""},
    {"plane_tokens.2", FIELD(plane_tokens[2]), OP_INOUT, "[D,1,B*G,S,X] or [D,T,X]", "as plane.2", ""},
    {"present", FIELD(present), OP_OUTPUT, "[D,T]", "U8", "1 where a row was sent; --masks"},
    {"src", FIELD(src), OP_OUTPUT, "[D,R,2] or [D,R,3]", "I32",
     "packed, expert: position, token (slot); -1: none"},
    {"expert_counts", FIELD(expert_counts), OP_OUTPUT, "[D,L]", "I64",
     "tokens of each local expert; --counts"},
    {"expert_offsets", FIELD(expert_offsets), OP_OUTPUT, "[D,L+1]", "I64", "expert: first row of each"},
    {"rows_from", FIELD(rows_from), OP_OUTPUT, "[D,G]", "I64", "rows from each position; --counts"},
    {"rows_to", FIELD(rows_to), OP_OUTPUT, "[D,G]", "I64", "rows to each position; --counts"},
    {0},
};

static const struct op_field fields[] = {
    A2A_WHERE_FIELDS("output_concat_dim", "1 or 2: the dimension tokens of a group are concatenated along"),
    A2A_HOW_FIELDS,
    {.name = "masks",
     .kind = OP_BOOL,
     .offset = offsetof(struct op_call, mesh.masks),
     .text = "also present"},
    {.name = "counts",
     .kind = OP_BOOL,
     .offset = offsetof(struct op_call, mesh.counts),
     .text = "also expert_counts, rows_from, rows_to"},
    {0},
};

static const float example_input[2][2][2] = {{{11, -11}, {12, -12}}, {{21, -21}, {22, -22}}};
static const uint16_t example_indices[2][2][2] = {{{0, 2}, {1, 0}}, {{3, 2}, {2, 0}}};
static const uint16_t example_mapping[4][2] = {{1, 0}, {1, 0}, {0, 1}, {0, 1}};
static const struct op_example example[] = {
    {"input", "F32", 5, {2, 1, 1, 2, 2}, example_input},
    {"expert_indices", "U16", 5, {2, 1, 1, 2, 2}, example_indices},
    {"expert_mapping", "U16", 2, {4, 2}, example_mapping},
    {0},
};

/* ---- Sizes: the query has accepted the inputs ----------------------------------------------------------- */

enum { TOKENS, METADATA = 4, PRESENT, SRC, COUNTS, OFFSETS, PEERS }; /* 1, 2, 3: planes */

static int64_t tokens_of(const struct op_call *call, int device)
{
    const DLTensor *const input = &call->args.all_to_all_dispatch.input[device];
    int64_t n = 1;
    for (int i = 0; i + 1 < input->ndim; i++)
        n *= input->shape[i];
    return n;
}

/* Without max_tokens all devices have as many. Where they do not, every device's outputs follow from its own inputs,
   so that the operator compares the devices and returns MISMATCH. */
static int64_t group_tokens(const struct op_call *call, int device)
{
    int64_t n = 0;
    if (call->args.all_to_all_dispatch.max_tokens == 0)
        return tokens_of(call, device) * mesh_group_size(call);
    for (int d = 0; d < mesh_devices(call); d++)
        n += mesh_same_group(call, device, d) ? tokens_of(call, d) : 0;
    return n;
}

/* A row of `like` for every token of the group. */
static struct mesh_shape table_shape(const struct op_call *call, const DLTensor *like, int device)
{
    const int64_t width = like->shape[like->ndim - 1], g = mesh_group_size(call);
    if (like->ndim == 2)
        return (struct mesh_shape){2, {group_tokens(call, device), width}};
    const int64_t b = like->shape[0], s = like->shape[1] * like->shape[2];
    return call->mesh.dim == 2 ? (struct mesh_shape){4, {1, b, s * g, width}}
                               : (struct mesh_shape){4, {1, b * g, s, width}};
}

/* Rows of layouts without a row for every token: as many as there can be, or what old contents have. */
static int64_t layout_rows(const struct op_call *call, int device)
{
    const sy_all_to_all_dispatch_args *const args = &call->args.all_to_all_dispatch;
    const int64_t n = group_tokens(call, device);
    if (args->tokens)
        return args->tokens[device].ndim > 0 ? args->tokens[device].shape[0] : 0;
    if (args->layout != SY_LAYOUT_EXPERT)
        return n;
    const int64_t k = args->expert_indices->shape[args->expert_indices->ndim - 1];
    const int64_t l = mesh_local_experts(call, args->expert_mapping, device);
    return n * (k < l ? k : l) + l * (args->align > 0 ? args->align - 1 : 0);
}

static struct mesh_shape shape_of(const struct op_call *call, int which, int device)
{
    const sy_all_to_all_dispatch_args *const args = &call->args.all_to_all_dispatch;
    switch (which) {
    case METADATA:
        return table_shape(call, &args->expert_indices[device], device);
    case PRESENT:
        return (struct mesh_shape){1, {group_tokens(call, device)}};
    case SRC:
        return (struct mesh_shape){2, {layout_rows(call, device), args->layout == SY_LAYOUT_EXPERT ? 3 : 2}};
    case COUNTS:
    case OFFSETS:
        return (struct mesh_shape){
            1, {mesh_local_experts(call, args->expert_mapping, device) + (which == OFFSETS)}};
    case PEERS:
        return (struct mesh_shape){1, {mesh_group_size(call)}};
    default:
        break;
    }
    const DLTensor *const rows = &(which == TOKENS ? args->input : args->planes[which - 1])[device];
    if (args->layout == SY_LAYOUT_PADDED)
        return table_shape(call, rows, device);
    return (struct mesh_shape){2, {layout_rows(call, device), rows->shape[rows->ndim - 1]}};
}

/* Rows that do not exist come from nowhere: -1 also where the call does not write. */
static const DLTensor *make_src(struct op_call *call, struct op_outputs *outputs)
{
    const int before = outputs->n;
    const DLTensor *const src = mesh_output(call, outputs, "src", SY_I32, shape_of, SRC);
    for (int i = before; i < outputs->n; i++) {
        const DLTensor *const made = &outputs->made[i]->view;
        size_t bytes = 0;
        if (st_shape_bytes(made->shape, made->ndim, made->dtype, &bytes))
            memset(made->data, 0xff, bytes);
    }
    return src;
}

static void make_extras(struct op_call *call, struct op_outputs *outputs)
{
    sy_all_to_all_dispatch_args *const args = &call->args.all_to_all_dispatch;
    if (call->mesh.masks)
        args->present = mesh_output(call, outputs, "present", SY_U8, shape_of, PRESENT);
    if (args->layout != SY_LAYOUT_PADDED)
        args->src = make_src(call, outputs);
    if (args->layout == SY_LAYOUT_EXPERT)
        args->expert_offsets = mesh_output(call, outputs, "expert_offsets", SY_I64, shape_of, OFFSETS);
    if (!call->mesh.counts)
        return;
    args->expert_counts = mesh_output(call, outputs, "expert_counts", SY_I64, shape_of, COUNTS);
    args->rows_from = mesh_output(call, outputs, "rows_from", SY_I64, shape_of, PEERS);
    args->rows_to = mesh_output(call, outputs, "rows_to", SY_I64, shape_of, PEERS);
}

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_all_to_all_dispatch_args *const args = &call->args.all_to_all_dispatch;
    args->cluster_axis = mesh_axis(call);
    args->output_concat_dim = call->mesh.dim == 2 ? 2 : 1;
    args->num_links = (int)call->mesh.links;
    for (int i = 0; i < SY_A2A_MAX_PLANES - 1; i++)
        args->num_planes = args->planes[i] ? i + 1 : args->num_planes;
    sy_query query = {0};
    const sy_status status =
        mesh_judge(call, sy_all_to_all_dispatch_query(ctx, call->mesh.local, args, &query));
    if (status != SY_OK)
        return status;
    static const char *const names[] = {"plane_tokens.0", "plane_tokens.1", "plane_tokens.2"};
    make_extras(call, outputs); /* before tokens: their rows are those of old contents where there are any */
    if (!args->metadata)
        args->metadata =
            mesh_output_like(call, outputs, "metadata", args->expert_indices, shape_of, METADATA);
    for (int i = 0; i < SY_A2A_MAX_PLANES - 1; i++)
        if (args->planes[i] && !args->plane_tokens[i])
            args->plane_tokens[i] =
                mesh_output_like(call, outputs, names[i], args->planes[i], shape_of, i + 1);
    if (!args->tokens)
        args->tokens = mesh_output_like(call, outputs, "tokens", args->input, shape_of, TOKENS);
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_all_to_all_dispatch(ctx, call->mesh.comm, &call->args.all_to_all_dispatch);
}

const struct op op_all_to_all_dispatch = {
    .name = "all_to_all_dispatch",
    .summary = "send tokens to the devices that host their experts",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--mesh 1x2",
    .example_text = "two devices with two tokens and two of four experts each",
    .mesh_dim = "output_concat_dim",
    .size = size_outputs,
    .call = call_operator,
};
