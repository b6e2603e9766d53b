/*
 * Outputs of all_to_all_combine on the command line. Old contents may be in the input file.
 */
#include "mesh.h"

/* ---- Sizes ---------------------------------------------------------------------------------------------- */

enum { OUTPUT, WRITTEN, SCALES };

/* If devices have different numbers of experts, the slabs of a stacked input have the largest number of rows, and a
   device uses the first rows of its slab. The operator validates everything else. */
static void fit_experts(struct op_call *call)
{
    const sy_all_to_all_combine_args *const args = &call->args.all_to_all_combine;
    if (!args->input || args->input->ndim < 1 || call->numbered || args->local_reduce ||
        args->layout != SY_LAYOUT_PADDED)
        return;
    int64_t most = 0;
    for (int d = 0; d < mesh_devices(call); d++) {
        const int64_t here = mesh_local_experts(call, args->expert_mapping, d);
        most = here > most ? here : most;
    }
    if (most > 0 && args->input->shape[0] == most)
        mesh_shorten(call, &args->input, args->expert_mapping);
    if (most > 0 && args->input_scales && args->input_scales->ndim > 0 &&
        args->input_scales->shape[0] == most)
        mesh_shorten(call, &args->input_scales, args->expert_mapping);
}

/* The device's own tokens; -1 when their number is not known. */
static int64_t own_tokens(const struct op_call *call, int device)
{
    const sy_all_to_all_combine_args *const args = &call->args.all_to_all_combine;
    const DLTensor *const metadata = &args->expert_metadata[device];
    int64_t n = 1;
    if (args->max_tokens > 0)
        return args->weights  ? args->weights[device].shape[0]
               : args->output ? args->output[device].shape[args->sum ? 0 : 1]
                              : -1;
    for (int i = 0; i + 1 < metadata->ndim; i++)
        n *= metadata->shape[i];
    return n / mesh_group_size(call);
}

static struct mesh_shape shape_of(const struct op_call *call, int which, int device)
{
    const sy_all_to_all_combine_args *const args = &call->args.all_to_all_combine;
    const DLTensor *const metadata = &args->expert_metadata[device], *const input =
                                                                         &(which == SCALES
                                                                               ? args->input_scales
                                                                               : args->input)[device];
    const int64_t k = metadata->shape[metadata->ndim - 1], width = input->shape[input->ndim - 1];
    const int64_t n = own_tokens(call, device), g = mesh_group_size(call);
    if (which == WRITTEN)
        return (struct mesh_shape){2, {k, n}};
    if (metadata->ndim == 2)
        return args->sum ? (struct mesh_shape){2, {n, width}} : (struct mesh_shape){3, {k, n, width}};
    const int64_t *const group = metadata->shape + (metadata->ndim == 4); /* [Bt,St,K] after a 1, or alone */
    const int64_t b = group[0] / (args->output_shard_dim != 2 ? g : 1),
                  s = group[1] / (args->output_shard_dim == 2 ? g : 1);
    return args->sum ? (struct mesh_shape){3, {b, s, width}} : (struct mesh_shape){4, {k, b, s, width}};
}

sy_status op_size_combine(sy_ctx *ctx, const struct op *op, struct op_call *call, struct op_outputs *outputs)
{
    sy_all_to_all_combine_args *const args = &call->args.all_to_all_combine;
    fit_experts(call);
    op_set_formats(op, call);
    /* If numbers of tokens differ, they follow from the output, which is made to fit the weights. So the query cannot
       check the weights; the call does. Without weights the operator reports the missing output. */
    sy_all_to_all_combine_args checked = *args;
    if (args->max_tokens > 0 && !args->output)
        checked.weights = NULL;
    sy_query query = {0};
    const sy_status status =
        mesh_check(call, sy_all_to_all_combine_query(ctx, call->mesh.local, &checked, &query));
    if (status != SY_OK)
        return status;
    const bool known = own_tokens(call, 0) >= 0;
    if (!args->output && known && args->row_format && args->sum)
        args->output = mesh_output(call, outputs, "output", op_out_type(call), shape_of, OUTPUT);
    else if (!args->output && known)
        args->output = mesh_output_like(call, outputs, "output", args->input, shape_of, OUTPUT);
    if (!args->output_scales && known && args->row_format && !args->sum)
        args->output_scales =
            mesh_output_like(call, outputs, "output_scales", args->input_scales, shape_of, SCALES);
    if (op_requested(op, call, "masks") && known)
        args->written = mesh_output(call, outputs, "written", SY_U8, shape_of, WRITTEN);
    return SY_OK;
}
