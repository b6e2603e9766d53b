/*
 * dequantize_rows: check and plan.
 */
#include "ops/row_codes.h"

enum { CODES, SCALES, GLOBAL, OUT, N_TENSORS };

#define OPERATOR dequantize_rows

static const sy_field_info fields[] = {
    [CODES] =
        SYI_INPUT(codes, SYI_CODE_TYPES, 0, 1, SYI_MAX_RANK, "... C", "codes of the format, or their bytes"),
    [SCALES] = SYI_OPTIONAL(scales, SYI_QUANTIZED_SCALE_TYPES, 0, 1, SYI_MAX_RANK, SYI_SCALE_SHAPE,
                            "scale of each group of a row; not of q8_0, q4_0"),
    [GLOBAL] = SYI_GLOBAL_FIELD("1 | T"),
    [OUT] =
        SYI_OUTPUT(out, SYI_FLOAT_TYPES, 0, 1, SYI_MAX_RANK, "... H", "rows of numbers", .preset = "bf16"),
    SYI_SCALAR(format, FORMAT, SY_FIELD_REQUIRED, .words = SYI_QUANTIZED_FORMATS,
               .help = "codes, groups and scales"),
    SYI_SCALE_LAYOUT_FIELD,
};

static sy_status check(struct syi_call *call)
{
    const sy_dequantize_rows_args *a = &call->args.dequantize_rows;
    struct syi_coded coded = {.given = a->format,
                              .dense = OUT,
                              .codes = CODES,
                              .scales = SCALES,
                              .layout = a->scale_layout,
                              .global = GLOBAL};
    return syi_check_row_codes(call, &coded);
}

SYI_DEFINE_OP(dequantize_rows, DEQUANTIZE_ROWS, "make numbers of codes of 4 or 8 bits and their scales")
