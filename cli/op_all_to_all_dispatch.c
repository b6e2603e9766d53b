/*
 * Outputs of all_to_all_dispatch on the command line. Old contents may be in the input file.
 */
#include <string.h>

#include "mesh.h"

/* ---- Sizes: the query has accepted the inputs ----------------------------------------------------------- */

enum { TOKENS, METADATA = 4, PRESENT, SRC, COUNTS, OFFSETS, PEERS, SCALES }; /* 1, 2, 3: planes */

static int64_t tokens_of(const struct op_call *call, int device)
{
    const DLTensor *const input = &call->args.all_to_all_dispatch.input[device];
    int64_t n = 1;
    for (int i = 0; i + 1 < input->ndim; i++)
        n *= input->shape[i];
    return n;
}

/* Without max_tokens all devices have equally many. If they do not, every device's outputs follow from its own inputs,
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

/* A row of `like` for every token of the group, of another width. */
static struct mesh_shape table_shape(const struct op_call *call, const DLTensor *like, int64_t width,
                                     int device)
{
    const int64_t g = mesh_group_size(call);
    if (like->ndim == 2)
        return (struct mesh_shape){2, {group_tokens(call, device), width}};
    const int64_t b = like->shape[0], s = like->shape[1] * like->shape[2];
    return call->args.all_to_all_dispatch.output_concat_dim == 2
               ? (struct mesh_shape){4, {1, b, s * g, width}}
               : (struct mesh_shape){4, {1, b * g, s, width}};
}

/* Rows of layouts without a row for every token: the largest possible number, or that of old contents. */
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
    if (args->expert_rows > 0)
        return args->expert_rows <= INT32_MAX ? l * args->expert_rows : 0; /* else it is rejected */
    return n * (k < l ? k : l) + l * (args->align > 0 ? args->align - 1 : 0);
}

static struct mesh_shape shape_of(const struct op_call *call, int which, int device)
{
    const sy_all_to_all_dispatch_args *const args = &call->args.all_to_all_dispatch;
    switch (which) {
    case METADATA:
        return table_shape(call, &args->expert_indices[device],
                           args->expert_indices[device].shape[args->expert_indices[device].ndim - 1], device);
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
    const bool scales = which == SCALES;
    const DLTensor *const rows = &(which == TOKENS || scales ? args->input : args->planes[which - 1])[device];
    const int64_t elems = rows->shape[rows->ndim - 1];
    const int64_t width = !scales ? elems : args->row_format->group > 0 ? elems / args->row_format->group : 1;
    if (args->layout == SY_LAYOUT_PADDED)
        return table_shape(call, rows, width, device);
    return (struct mesh_shape){2, {layout_rows(call, device), width}};
}

/* -1 also in rows that the call does not write, which have no source. */
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

static void make_extras(const struct op *op, struct op_call *call, struct op_outputs *outputs)
{
    sy_all_to_all_dispatch_args *const args = &call->args.all_to_all_dispatch;
    if (op_requested(op, call, "masks"))
        args->present = mesh_output(call, outputs, "present", SY_U8, shape_of, PRESENT);
    if (args->layout != SY_LAYOUT_PADDED)
        args->src = make_src(call, outputs);
    if (args->layout == SY_LAYOUT_EXPERT)
        args->expert_offsets = mesh_output(call, outputs, "expert_offsets", SY_I64, shape_of, OFFSETS);
    if (!op_requested(op, call, "counts"))
        return;
    args->expert_counts = mesh_output(call, outputs, "expert_counts", SY_I64, shape_of, COUNTS);
    args->rows_from = mesh_output(call, outputs, "rows_from", SY_I64, shape_of, PEERS);
    args->rows_to = mesh_output(call, outputs, "rows_to", SY_I64, shape_of, PEERS);
}

/* 8-bit floats are bytes in files. */
static void make_codes(struct op_call *call, struct op_outputs *outputs)
{
    sy_all_to_all_dispatch_args *const args = &call->args.all_to_all_dispatch;
    const sy_row_format *const format = args->row_format;
    if (!args->scale_tokens)
        args->scale_tokens = mesh_output(call, outputs, "scale_tokens",
                                         format->scale_type.bits == 8 ? SY_U8 : SY_F32, shape_of, SCALES);
    if (!args->tokens)
        args->tokens = mesh_output(call, outputs, "tokens", format->q_type.code == kDLInt ? SY_I8 : SY_U8,
                                   shape_of, TOKENS);
}

sy_status op_size_dispatch(sy_ctx *ctx, const struct op *op, struct op_call *call, struct op_outputs *outputs)
{
    sy_all_to_all_dispatch_args *const args = &call->args.all_to_all_dispatch;
    for (int i = 0; i < SY_A2A_MAX_PLANES - 1; i++)
        args->num_planes = args->planes[i] ? i + 1 : args->num_planes;
    op_set_formats(op, call);
    sy_query query = {0};
    const sy_status status =
        mesh_check(call, sy_all_to_all_dispatch_query(ctx, call->mesh.local, args, &query));
    if (status != SY_OK)
        return status;
    static const char *const names[] = {"plane_tokens.0", "plane_tokens.1", "plane_tokens.2"};
    make_extras(op, call, outputs); /* before tokens: their rows are those of old contents, if any */
    if (!args->metadata)
        args->metadata =
            mesh_output_like(call, outputs, "metadata", args->expert_indices, shape_of, METADATA);
    for (int i = 0; i < SY_A2A_MAX_PLANES - 1; i++)
        if (args->planes[i] && !args->plane_tokens[i])
            args->plane_tokens[i] =
                mesh_output_like(call, outputs, names[i], args->planes[i], shape_of, i + 1);
    if (args->row_format)
        make_codes(call, outputs);
    else if (!args->tokens)
        args->tokens = mesh_output_like(call, outputs, "tokens", args->input, shape_of, TOKENS);
    return SY_OK;
}
