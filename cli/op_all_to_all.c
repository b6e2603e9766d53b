/*
 * Outputs of the operators between devices on the command line, as sy_infer_mesh reports them. Old contents may be in the
 * input file.
 */
#include <string.h>

#include "mesh.h"

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

static bool has_rows_of_tokens(const char *name)
{
    return strncmp(name, "plane_tokens", 12) == 0 || strcmp(name, "src") == 0 ||
           strcmp(name, "scale_tokens") == 0;
}

/* Layouts without a row for every token: old contents of the tokens decide how many rows all such outputs have. */
static void fit_rows(const struct op *op, const struct op_call *call, sy_shape *shapes)
{
    const sy_all_to_all_dispatch_args *const args = &call->args.all_to_all_dispatch;
    const sy_field_info *tensor;
    for (int i = 0; args->tokens && args->layout != SY_LAYOUT_PADDED && (tensor = op_tensor(op, i)); i++)
        for (int d = 0; d < mesh_devices(call) && has_rows_of_tokens(tensor->name); d++)
            shapes[d * op->info->n_tensors + i].extent[0] =
                args->tokens[d].ndim > 0 ? args->tokens[d].shape[0] : 0;
}

/* -1 also in rows that the call does not write, which have no source. */
static void fill_src(const struct op_outputs *outputs, int first)
{
    for (int i = first; i < outputs->n; i++)
        memset(outputs->made[i]->view.data, 0xff, st_bytes(&outputs->made[i]->view));
}

/* A sum of codes has the type that was asked for. Outputs of unknown size are left to the operator to miss. */
static void make(const struct op *op, struct op_call *call, const sy_field_info *tensor, sy_shape *shapes,
                 struct op_outputs *outputs)
{
    const int first = outputs->n;
    const size_t step = (size_t)op->info->n_tensors;
    const bool sums = strcmp(tensor->name, "output") == 0 && call->args.all_to_all_combine.row_format &&
                      call->args.all_to_all_combine.sum;
    for (int d = 0; d < mesh_devices(call); d++) {
        sy_shape *const shape = &shapes[(size_t)d * step];
        if (shape->rank < 0 && (tensor->flags & SY_FIELD_EXTRA))
            *shape = op_empty_shape(tensor);
        if (shape->rank < 0 || shape->extent[0] < 0 || shape->extent[1] < 0)
            return;
        shape->type = sums ? op_out_type(call) : shape->type;
    }
    *op_pointer(op, call, tensor, 0) = mesh_output(call, outputs, op_file_name(tensor).text, shapes, step);
    if (strcmp(tensor->name, "src") == 0)
        fill_src(outputs, first);
}

sy_status op_size_mesh(sy_ctx *ctx, const struct op *op, struct op_call *call, struct op_outputs *outputs)
{
    const sy_op_info *const info = op->info;
    const bool dispatch = strcmp(info->name, "all_to_all_dispatch") == 0;
    sy_all_to_all_dispatch_args *const args = &call->args.all_to_all_dispatch;
    for (int i = 0; i < SY_A2A_MAX_PLANES - 1 && dispatch; i++)
        args->num_planes = args->planes[i] ? i + 1 : args->num_planes;
    if (!dispatch)
        fit_experts(call);
    op_set_formats(op, call);
    const int n = mesh_devices(call) * info->n_tensors;
    sy_shape *const shapes = mesh_array(call, (size_t)n, sizeof *shapes);
    if (!shapes)
        return mesh_fault(call, SY_ERR_NOMEM, "outputs of %d devices do not fit into memory", n);
    const sy_status status = mesh_check(
        call, sy_infer_mesh(ctx, call->mesh.local, info, call->args.bytes, info->args_bytes, shapes, n));
    if (status == SY_OK && dispatch)
        fit_rows(op, call, shapes);
    const sy_field_info *tensor;
    for (int i = 0; status == SY_OK && (tensor = op_tensor(op, i)) != NULL; i++)
        if ((tensor->flags & SY_FIELD_OUT) && !*op_pointer(op, call, tensor, 0) &&
            (!(tensor->flags & SY_FIELD_EXTRA) || op_requested(op, call, tensor->words)))
            make(op, call, tensor, shapes + i, outputs);
    return status;
}
