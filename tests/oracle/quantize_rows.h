/*
 * Truth for quantize_rows and dequantize_rows: quotients and products of 128-bit integers, rounded once; a power of two
 * by looking at all of them, a code likewise.
 */
#pragma once

#include <switchyard.h>

/* One group of n numbers: its codes, and the scale as bits of an f32 or as a byte. */
uint32_t oracle_quantize_group(const sy_row_format *format, const float *x, int64_t n, uint8_t *codes);

/* Scales of `bytes` each, [rows,groups] one after the other, in another layout, whose elements it returns. What is no scale is 0. */
int64_t oracle_place_scales(sy_scale_layout layout, size_t bytes, int64_t rows, int64_t groups,
                            const unsigned char *by_rows, unsigned char *to);

/* The f32 that a code and the bits of its scale stand for. */
float oracle_dequantize(const sy_row_format *format, uint8_t code, uint32_t scale);
