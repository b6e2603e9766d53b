/*
 * What quantize_rows and dequantize_rows validate alike.
 */
#ifndef SYI_OPS_ROW_CODES_H
#define SYI_OPS_ROW_CODES_H

#include "ops/call.h"

/* Values of a format field: those names of sy_row_format_named that are not of caches, from 1. */
#define SYI_ROW_FORMATS "- fp8_128 fp8_128_deepep fp8_128_deepgemm fp8_128_ue8m0 mxfp8 mxfp8_floor int8_token"

#define SYI_SCALE_TYPES (SYI_BIT(SY_TYPE_F32) | SYI_BIT(SY_TYPE_F8_E8M0) | SYI_BIT(SY_TYPE_U8))

/* All checks and the plan. The tensors are those of the numbers, the codes and the scales. */
sy_status syi_check_row_codes(struct syi_call *call, const sy_row_format *format, int dense, int codes,
                              int scales);

#endif
