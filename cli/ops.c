/*
 * The list of operators and the memory of their outputs.
 */
#include "ops.h"

#include <stdlib.h>
#include <string.h>

#include "cli.h"

const struct op *const all_ops[] = {
    &op_moe_route,
    &op_moe_map_from_ids,
    &op_moe_ids_from_map,
    &op_moe_permute,
    &op_moe_permute_ids,
    &op_moe_unpermute_ids,
    &op_moe_align_block,
    &op_moe_pad_map,
    &op_moe_reorder_chunks,
    &op_moe_convert_indices,
    &op_moe_unpermute,
    &op_moe_permute_grad,
    &op_moe_unpermute_grad,
    &op_moe_dispatch,
    &op_moe_combine,
    &op_moe_dispatch_grad_gate,
    &op_moe_locations,
    &op_moe_capacity,
    &op_sample,
    &op_sample_overrides,
    &op_sample_noise,
    &op_kv_gather,
    &op_kv_translate,
    &op_kv_slots,
    &op_kv_scatter,
    &op_kv_ragged,
    &op_kv_blocks,
    &op_all_to_all_dispatch,
    &op_all_to_all_combine,
    &op_local_reduce,
    NULL,
};

const struct op *find_op(const char *name)
{
    for (const struct op *const *op = all_ops; *op; op++)
        if (strcmp((*op)->name, name) == 0 || ((*op)->alias && strcmp((*op)->alias, name) == 0))
            return *op;
    return NULL;
}

bool op_has_inputs(const struct op *op)
{
    for (const struct op_tensor *tensor = op->tensors; tensor->name; tensor++)
        if (tensor->role != OP_OUTPUT)
            return true;
    return false;
}

int unknown_op(const char *help, const char *name)
{
    char list[1024] = "";
    for (const struct op *const *op = all_ops; *op; op++) {
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used > 0 ? ", " : "", (*op)->name);
    }
    return usage_error(help, "unknown operator %s (there are: %s)", name, list);
}

struct op_name op_plane_name(const struct op_call *call, const char *name, int64_t i)
{
    struct op_name full;
    snprintf(full.text, sizeof full.text, call->numbered ? "%.16s.%d" : "%.16s", name, (int)i);
    return full;
}

int op_cache_row(const DLTensor *cache, sy_kv_layout layout, int64_t *shape)
{
    const int rows = layout == SY_KV_HND ? 2 : cache->ndim > 2 ? 1 : 0; /* the dimension of rows */
    int rank = 0;
    for (int d = 1; d < cache->ndim; d++)
        if (d != rows)
            shape[rank++] = cache->shape[d];
    return rank;
}

/* The list doubles; what is in it stays where it is. */
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
