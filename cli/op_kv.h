/*
 * What the operators on KV caches have in common on the command line: packed rows.
 */
#ifndef SWITCHYARD_CLI_OP_KV_H
#define SWITCHYARD_CLI_OP_KV_H

#include "ops.h"

#define OP_FORMAT_NAMES "ds32_fp8", "pto_int8", "ds4_fp8", "indexer_fp8", "e4m3", "e5m2", "int8"

/* Numbers from 1; 0 is no format. */
#define OP_FORMAT_FIELD \
    { \
        .name = "format", .kind = OP_WORD, .offset = offsetof(struct op_call, format), \
        .words = {OP_FORMAT_NAMES}, .values = {1, 2, 3, 4, 5, 6, 7}, \
        .text = "how rows are packed; e4m3 on: see scale" \
    }

#define OP_OUT_TYPE_FIELD \
    { \
        .name = "out_type", .kind = OP_WORD, .offset = offsetof(struct op_call, out_type), .preset = "bf16", \
        .needs = "format", .words = {"bf16", "f16", "f32"}, .values = {0, 1, 2}, \
        .text = "of unpacked rows, with --format" \
    }

/* The format asked for, or NULL, for the call's own cache; planes of one-byte elements get it too. */
const sy_kv_format *op_kv_format(struct op_call *call, const DLTensor *cache, int64_t num_planes);

/* An output of `lead` dimensions and then what a row of the cache holds, packed or not. */
const DLTensor *op_kv_output(const struct op_call *call, const sy_kv_plane *plane, sy_kv_layout layout,
                             int lead, const int64_t *lead_shape, struct op_name name,
                             struct op_outputs *outputs);

#endif
