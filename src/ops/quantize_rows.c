/*
 * quantize_rows: check and plan.
 */
#include "ops/row_codes.h"

enum { INPUT, GLOBAL, CODES, SCALES, N_TENSORS };

#define OPERATOR quantize_rows

static const sy_field_info fields[] = {
    [INPUT] = SYI_INPUT(input, SYI_FLOAT_TYPES, 0, 1, SYI_MAX_RANK, "... H", "rows of numbers"),
    [GLOBAL] = SYI_GLOBAL_FIELD("1 | T"),
    [CODES] =
        SYI_OUTPUT(codes, SYI_CODE_TYPES, 0, 1, SYI_MAX_RANK, "... C", "codes of the format, or their bytes"),
    [SCALES] = SYI_OPTIONAL_OUTPUT(scales, SYI_QUANTIZED_SCALE_TYPES, 0, 1, SYI_MAX_RANK, SYI_SCALE_SHAPE,
                                   "scale of each group of a row; not of q8_0, q4_0"),
    SYI_SCALAR(format, FORMAT, SY_FIELD_REQUIRED, .words = SYI_QUANTIZED_FORMATS,
               .help = "codes, groups, scales and their arithmetic"),
    SYI_SCALE_LAYOUT_FIELD,
};

static sy_status check(struct syi_call *call)
{
    const sy_quantize_rows_args *a = &call->args.quantize_rows;
    struct syi_coded coded = {.given = a->format,
                              .dense = INPUT,
                              .codes = CODES,
                              .scales = SCALES,
                              .layout = a->scale_layout,
                              .global = GLOBAL};
    return syi_check_row_codes(call, &coded);
}

SYI_DEFINE_OP(quantize_rows, QUANTIZE_ROWS, "make codes of 4 or 8 bits of rows, with a scale for each group")
