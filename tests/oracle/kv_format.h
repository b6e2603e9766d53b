/*
 * Packed rows element by element: where a code, a scale and a rope number stand, by the format's own fields, and what
 * they mean in double. The nearest code is looked for among all.
 */
#pragma once

#include <switchyard.h>

#include "oracle/numbers.h"

/* A cache of one-byte elements. Strides are in bytes, those of scale in numbers. */
struct packed_cache {
    sy_kv_format format;
    unsigned char *cache;
    int64_t block_size, block_stride, row_stride;
    /* Formats with their scales in a tensor; elems also inline. */
    int64_t elems, heads, head_stride; /* of a row; heads 1: in one piece */
    float *scale;
    int64_t parts, scale_stride; /* scales of a row; 0: one row of them for all */
    float global;                /* nvfp4, whose scales are bytes */
};

int64_t oracle_unpacked(const struct packed_cache *p); /* numbers of a dense row */

void oracle_unpack(const struct packed_cache *p, int64_t slot, enum number_type type, void *dense);
void oracle_pack(const struct packed_cache *p, int64_t slot, enum number_type type, const void *dense);
