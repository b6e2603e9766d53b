/*
 * Truth for quantize_rows and dequantize_rows: quotients and products of 128-bit integers, rounded once; a power of two
 * by looking at all of them, a code likewise.
 */
#ifndef SWITCHYARD_ORACLE_QUANTIZE_ROWS_H
#define SWITCHYARD_ORACLE_QUANTIZE_ROWS_H

#include <switchyard.h>

/* One group of n numbers: its codes, and the scale as bits of an f32 or as a byte. */
uint32_t oracle_quantize_group(const sy_row_format *format, const float *x, int64_t n, uint8_t *codes);

/* The f32 that a code and the bits of its scale stand for. */
float oracle_dequantize(const sy_row_format *format, uint8_t code, uint32_t scale);

#endif
