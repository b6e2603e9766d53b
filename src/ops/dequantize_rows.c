/*
 * dequantize_rows: check and plan.
 */
#include "ops/row_codes.h"

enum { CODES, SCALES, OUT, N_TENSORS };

static const sy_field_info fields[] = {
    [CODES] = SYI_TENSOR(dequantize_rows, codes, 0, SYI_CODE_TYPES, 0, 2, 2, "T H",
                         "codes of the format, or their bytes"),
    [SCALES] = SYI_TENSOR(dequantize_rows, scales, 0, SYI_SCALE_TYPES, 0, 2, 2, "T G",
                          "scale of each group of a row"),
    [OUT] = SYI_TENSOR(dequantize_rows, out, SY_FIELD_OUT, SYI_FLOAT_TYPES, 0, 2, 2, "T H", "rows of numbers",
                       .preset = "bf16"),
    SYI_SCALAR(dequantize_rows, format, FORMAT, SY_FIELD_REQUIRED, .words = SYI_ROW_FORMATS,
               .help = "codes, groups and scales"),
};

static sy_status check(struct syi_call *call)
{
    return syi_check_row_codes(call, call->args.dequantize_rows.format, OUT, CODES, SCALES);
}

SYI_DEFINE_OP(dequantize_rows, DEQUANTIZE_ROWS, "make numbers of 8-bit codes and their scales")
