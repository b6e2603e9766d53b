/*
 * Packed rows of KV caches on the command line.
 */
#include "op_kv.h"

static bool is_bytes(const DLTensor *cache)
{
    return cache && cache->dtype.bits == 8 && cache->dtype.lanes == 1;
}

const sy_kv_format *op_kv_format(struct op_call *call, const DLTensor *cache, int64_t num_planes)
{
    static const char *const names[] = {OP_FORMAT_NAMES};
    if (call->format == 0)
        return NULL;
    sy_kv_format_named(names[call->format - 1], &call->kv_format);
    for (int64_t i = 0; i < num_planes; i++)
        if (is_bytes(call->planes[i].cache))
            call->planes[i].format = &call->kv_format;
    return is_bytes(cache) || !call->numbered ? &call->kv_format : NULL; /* else a plane that is not packed */
}

const DLTensor *op_kv_output(const struct op_call *call, const sy_kv_plane *plane, sy_kv_layout layout,
                             int lead, const int64_t *lead_shape, struct op_name name,
                             struct op_outputs *outputs)
{
    const DLDataType types[] = {SY_BF16, SY_F16, SY_F32};
    const sy_kv_format *const format = plane->format;
    int64_t shape[2 * ST_MAX_RANK];
    int rank = lead;
    for (int i = 0; i < lead; i++)
        shape[i] = lead_shape[i];
    if (format && format->scales != SY_SCALES_TENSOR)
        shape[rank++] = format->q_count + format->rope_bytes / 2;
    else
        rank += op_cache_row(plane->cache, layout, shape + rank);
    return op_output(outputs, name.text, format ? types[call->out_type] : plane->cache->dtype, rank, shape);
}
