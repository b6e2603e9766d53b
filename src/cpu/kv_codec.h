/*
 * Packed rows of quantised caches to dense rows of numbers, and back.
 */
#pragma once

#include "plan/plan.h"
#include "cpu/kv_rows.h"
#include "kernels/kernels.h"

/* `record` is where the scales of the row are, i its number among dense rows. */
void syi_kv_unpack(const struct syi_kernels *kernels, const struct syi_kv_codec *codec, unsigned char *dense,
                   const unsigned char *row, const unsigned char *record, int64_t i);

/* Writes the scales too, unless they are given. */
void syi_kv_pack(const struct syi_kernels *kernels, const struct syi_kv_codec *codec, unsigned char *row,
                 unsigned char *record, const unsigned char *dense, int64_t i);

/* The first of its global scales that is no positive number. */
struct syi_found syi_find_bad_global(const struct syi_kv_codec *codec);

/* All rows of quantize_rows or dequantize_rows. */
sy_status syi_code_packed_rows(sy_ctx *ctx, const struct syi_quantize_rows_plan *plan,
                               enum syi_kv_direction direction);
