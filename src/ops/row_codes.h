/*
 * What all operators that make or read codes of rows validate alike.
 */
#pragma once

#include "ops/call.h"

/* Values of a format field: those names of sy_row_format_named that are not of caches, from 1; and of quantize_rows. */
#define SYI_ROW_FORMATS "- fp8_128 fp8_128_deepep fp8_128_deepgemm fp8_128_ue8m0 mxfp8 mxfp8_floor int8_token"
#define SYI_QUANTIZED_FORMATS SYI_ROW_FORMATS " q8_0 q4_0 nvfp4 nvfp4_amax"

#define SYI_QUANTIZED_SCALE_TYPES (SYI_SCALE_TYPES | SYI_BIT(SY_TYPE_F8_E4M3))
#define SYI_SCALE_TYPES (SYI_F32 | SYI_BIT(SY_TYPE_F8_E8M0) | SYI_U8)

/*
 * Steps for an operator with a row_format, whose `given` and tensors it fills in: before syi_check_tensors; after it, which sets
 * `hidden` also without a format; bytes of a row as it is written, scales included, once all sizes can be counted; the
 * plan. syi_check_described calls the first two.
 */
sy_status syi_coded_begin(struct syi_call *call, struct syi_coded *c);
sy_status syi_coded_check(struct syi_call *call, struct syi_coded *c);
sy_type syi_coded_type(const struct syi_call *call, const struct syi_coded *c); /* of the numbers */
int64_t syi_coded_bytes(const struct syi_call *call, const struct syi_coded *c);
sy_status syi_coded_scales(struct syi_call *call, const struct syi_coded *c); /* in the shape of the codes */
struct syi_row_codes_plan syi_coded_plan(struct syi_call *call, const struct syi_coded *c, int64_t n_rows);
uint64_t syi_coded_hash(uint64_t hash, const struct syi_coded *c); /* what devices must agree on */

/* Another number for such comparisons, and the type of elements as one. */
static inline uint64_t syi_hash_with(uint64_t hash, uint64_t more)
{
    return hash * 1000003u + more;
}

static inline uint64_t syi_type_bits(DLDataType type)
{
    return (uint64_t)type.code * 65536u + (uint64_t)type.bits * 256u + type.lanes;
}

/* The rows of a description that such an operator has. */
#define SYI_ROW_FORMAT_FIELD \
    SYI_SCALAR(row_format, FORMAT, .words = SYI_ROW_FORMATS, \
               .help = "write 8-bit codes of the rows, and a scale for each group")
#define SYI_CODED_INPUT_FIELD \
    SYI_SCALAR(row_format, FORMAT, .words = SYI_ROW_FORMATS, \
               .help = "the rows are 8-bit codes, with a scale for each group")

/* All checks of quantize_rows and dequantize_rows, and the plan: `given`, the tensors and `layout` are filled in. */
sy_status syi_check_row_codes(struct syi_call *call, struct syi_coded *c);

#define SYI_SCALE_LAYOUT_FIELD \
    SYI_SCALAR(scale_layout, ENUM, .words = "row col swizzle", .help = "where scales are stored")
#define SYI_SCALE_SHAPE "... G | A B C"
#define SYI_GLOBAL_FIELD(shape) \
    SYI_TENSOR(global_scale, SY_FIELD_OPTIONAL, SYI_F32, 0, 1, 1, shape, \
               "scale of all numbers; nvfp4_amax: the largest")
