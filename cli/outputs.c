/*
 * Allocation of outputs, and which of them a call has.
 */
#include "ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Memory ---- */

/* The list doubles; its elements do not move. */
static struct op_made *new_made(struct op_outputs *outputs)
{
    const int n = outputs->n;
    if ((n & (n - 1)) == 0) {
        struct op_made **const more = realloc(outputs->made, (n > 0 ? 2 * (size_t)n : 1) * sizeof *more);
        if (!more)
            return NULL;
        outputs->made = more;
    }
    struct op_made *const made = calloc(1, sizeof *made);
    if (made)
        outputs->made[outputs->n++] = made;
    return made;
}

const DLTensor *op_output(struct op_outputs *outputs, const char *name, DLDataType type, int rank,
                          const int64_t *shape)
{
    size_t bytes = SIZE_MAX;
    void *const data = st_shape_bytes(shape, rank, type, &bytes) ? st_alloc(bytes) : NULL;
    struct op_made *const made = data ? new_made(outputs) : NULL;
    if (!made) {
        free(data);
        outputs->out_of_memory = true;
        snprintf(outputs->failed, sizeof outputs->failed, "%s", name);
        outputs->failed_bytes = bytes;
        return NULL;
    }
    snprintf(made->name, sizeof made->name, "%s", name);
    for (int d = 0; d < rank; d++)
        made->shape[d] = shape[d];
    made->view = sy_tensor(data, type, rank, made->shape);
    return &made->view;
}

void op_outputs_free(struct op_outputs *outputs)
{
    for (int i = 0; i < outputs->n; i++) {
        free(outputs->made[i]->view.data);
        free(outputs->made[i]);
    }
    free(outputs->made);
    outputs->made = NULL;
    outputs->n = 0;
}

/* ---- Packed rows ---- */

static bool is_bytes(const DLTensor *cache)
{
    return cache && cache->dtype.bits == 8 && cache->dtype.lanes == 1;
}

/* The field of the format, or NULL. */
static const sy_field_info *format_of(const struct op *op)
{
    for (int i = op->info->n_tensors; i < op->info->n_fields; i++)
        if (sy_op_field(op->info, i)->kind == SY_KIND_FORMAT)
            return sy_op_field(op->info, i);
    return NULL;
}

/* The requested format, for caches of one-byte elements; the call's own cache always gets it, unless it is one of several
   planes. */
void op_set_formats(const struct op *op, struct op_call *call)
{
    const sy_field_info *const format = format_of(op);
    if (!format || call->format == 0)
        return;
    const char *words = format->words, *word = words;
    char name[32];
    int length = 0;
    for (int i = 0; i <= call->format; i++)
        word = op_next_word(&words, &length);
    snprintf(name, sizeof name, "%.*s", length, word);
    sy_kv_format_named(name, &call->kv_format);
    for (int64_t i = 0; i < call->n_planes; i++)
        if (is_bytes(call->planes[i].cache))
            call->planes[i].format = &call->kv_format;
    const sy_kv_format *const own =
        is_bytes(*op_pointer(op, call, op_tensor(op, 0), 0)) || !call->numbered || op->info->mesh
            ? &call->kv_format
            : NULL;
    memcpy(call->args.bytes + format->offset, &own, sizeof own);
}

/* ---- Outputs ---- */

DLDataType op_out_type(const struct op_call *call)
{
    static const DLDataType unpacked[] = {{4, 16, 1}, {2, 16, 1}, {2, 32, 1}};
    return unpacked[call->out_type];
}

bool op_requested(const struct op *op, const struct op_call *call, const char *name)
{
    const sy_field_info *tensor;
    for (int i = 0; (tensor = op_tensor(op, i)) != NULL; i++)
        if (call->asked[i] && strcmp(tensor->words, name) == 0)
            return true;
    return false;
}

static bool is_wanted(const struct op *op, const struct op_call *call, const sy_field_info *output)
{
    return !(output->flags & SY_FIELD_EXTRA) || op_requested(op, call, output->words);
}

/* Makes one output as sy_infer reports it. */
static const DLTensor *make(const struct op_call *call, const sy_field_info *output, const char *name,
                            const sy_shape *shape, bool packed, struct op_outputs *outputs)
{
    DLDataType type = packed ? op_out_type(call) : shape->type;
    if (call->f32_gates && strcmp(output->name, "grad_gates") == 0)
        type = SY_F32;
    return op_output(outputs, name, type, shape->rank, shape->extent);
}

/* The call with a further plane in place of its own; used to infer the missing rows of that plane. */
static sy_status infer_plane(sy_ctx *ctx, const struct op *op, const struct op_call *call, int64_t plane,
                             sy_shape *shapes)
{
    struct op_call *const one = malloc(sizeof *one);
    if (!one)
        return SY_ERR_NOMEM;
    *one = *call;
    const sy_kv_plane *const from = &call->planes[plane];
    const int64_t none = 0;
    *op_pointer(op, one, op_tensor(op, 0), 0) = from->cache;
    for (int i = 0; i < op->info->n_fields; i++) {
        const sy_field_info *const field = sy_op_field(op->info, i);
        if (field->kind == SY_KIND_FORMAT)
            memcpy(one->args.bytes + field->offset, &from->format, sizeof from->format);
        if (strcmp(field->name, "scale") == 0)
            memcpy(one->args.bytes + field->offset, &from->scale, sizeof from->scale);
        if (strcmp(field->name, "global_scale") == 0)
            memcpy(one->args.bytes + field->offset, &from->global_scale, sizeof from->global_scale);
        if (strcmp(field->name, "num_planes") == 0)
            memcpy(one->args.bytes + field->offset, &none, sizeof none);
    }
    const sy_status status =
        sy_infer(ctx, op->info, one->args.bytes, op->info->args_bytes, shapes, SY_MAX_FIELDS);
    free(one);
    return status;
}

/* Rows of further planes, where the file has none. */
static sy_status size_planes(sy_ctx *ctx, const struct op *op, struct op_call *call,
                             const sy_field_info *output, struct op_outputs *outputs)
{
    sy_shape shapes[SY_MAX_FIELDS];
    for (int64_t i = 0; i < call->n_planes && !outputs->out_of_memory; i++) {
        const sy_status status = call->planes[i].rows ? SY_OK : infer_plane(ctx, op, call, i, shapes);
        if (status != SY_OK)
            return status;
        if (!call->planes[i].rows)
            call->planes[i].rows =
                make(call, output, op_plane_name(call, output->name, i + 1).text,
                     &shapes[op->info->n_tensors - 1], call->planes[i].format != NULL, outputs);
    }
    return SY_OK;
}

/* Old contents are used unchanged: the call itself checks them. Of an operator with a format, those of optional outputs
   belong to it. */
static bool is_missing(const struct op *op, struct op_call *call, const sy_field_info *tensor)
{
    const uint32_t both = SY_FIELD_KEEPS | SY_FIELD_OPTIONAL;
    if ((tensor->flags & both) == both && call->format == 0 && format_of(op))
        return false;
    return (tensor->flags & (SY_FIELD_OUT | SY_FIELD_INOUT)) == SY_FIELD_OUT &&
           *op_pointer(op, call, tensor, 0) == NULL && is_wanted(op, call, tensor);
}

sy_shape op_empty_shape(const sy_field_info *tensor)
{
    int type = 0;
    while (type < SY_N_TYPES - 1 && !(tensor->types >> type & 1u))
        type++;
    return (sy_shape){.rank = tensor->min_rank, .type = sy_dtype((sy_type)type)};
}

/* The outputs that are missing, as the call requires them. */
static sy_status make_missing(sy_ctx *ctx, const struct op *op, struct op_call *call,
                              const sy_field_info *last, struct op_outputs *outputs)
{
    sy_shape shapes[SY_MAX_FIELDS];
    const sy_field_info *tensor;
    const sy_status status =
        sy_infer(ctx, op->info, call->args.bytes, op->info->args_bytes, shapes, SY_MAX_FIELDS);
    for (int i = 0; status == SY_OK && (tensor = op_tensor(op, i)) != NULL; i++) {
        /* A requested output that these options exclude is passed empty: the call rejects it and names the option. */
        if (shapes[i].rank < 0 && (tensor->flags & SY_FIELD_EXTRA))
            shapes[i] = op_empty_shape(tensor);
        if (!is_missing(op, call, tensor) || shapes[i].rank < 0 || outputs->out_of_memory)
            continue;
        const bool plane = op->planes && tensor == last;
        const bool packed =
            tensor == last && call->format > 0 && is_bytes(*op_pointer(op, call, op_tensor(op, 0), 0));
        *op_pointer(op, call, tensor, 0) =
            make(call, tensor, plane ? op_plane_name(call, tensor->name, 0).text : tensor->name, &shapes[i],
                 packed, outputs);
    }
    return status;
}

sy_status op_size_outputs(sy_ctx *ctx, const struct op *op, struct op_call *call, struct op_outputs *outputs)
{
    const sy_field_info *tensor, *last = op_tensor(op, op->info->n_tensors - 1);
    bool any = false;
    op_set_formats(op, call);
    for (int i = 0; (tensor = op_tensor(op, i)) != NULL; i++)
        any = any || is_missing(op, call, tensor);
    const sy_status status = any ? make_missing(ctx, op, call, last, outputs) : SY_OK;
    const bool further = op->planes && (last->flags & (SY_FIELD_OUT | SY_FIELD_INOUT)) == SY_FIELD_OUT;
    return status == SY_OK && further ? size_planes(ctx, op, call, last, outputs) : status;
}
