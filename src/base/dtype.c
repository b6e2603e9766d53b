/*
 * Element types: names and sizes.
 */
#include "base/base.h"

#include <stdio.h>

static const char *const names[SY_N_TYPES] = {
    [SY_TYPE_I8] = "i8",
    [SY_TYPE_I16] = "i16",
    [SY_TYPE_I32] = "i32",
    [SY_TYPE_I64] = "i64",
    [SY_TYPE_U8] = "u8",
    [SY_TYPE_U16] = "u16",
    [SY_TYPE_U32] = "u32",
    [SY_TYPE_U64] = "u64",
    [SY_TYPE_F16] = "f16",
    [SY_TYPE_F32] = "f32",
    [SY_TYPE_F64] = "f64",
    [SY_TYPE_BF16] = "bf16",
    [SY_TYPE_BOOL] = "bool",
    [SY_TYPE_F8_E4M3] = "f8_e4m3",
    [SY_TYPE_F8_E5M2] = "f8_e5m2",
    [SY_TYPE_F8_E8M0] = "f8_e8m0",
    [SY_TYPE_OTHER] = "another type",
};

const uint8_t syi_type_table[SYI_TYPE_CODES][9] = {
    [0] = {[1] = SY_TYPE_I8, [2] = SY_TYPE_I16, [4] = SY_TYPE_I32, [8] = SY_TYPE_I64},
    [1] = {[1] = SY_TYPE_U8, [2] = SY_TYPE_U16, [4] = SY_TYPE_U32, [8] = SY_TYPE_U64},
    [2] = {[2] = SY_TYPE_F16, [4] = SY_TYPE_F32, [8] = SY_TYPE_F64},
    [4] = {[2] = SY_TYPE_BF16},
    [6] = {[1] = SY_TYPE_BOOL},
    [10] = {[1] = SY_TYPE_F8_E4M3},
    [12] = {[1] = SY_TYPE_F8_E5M2},
    [14] = {[1] = SY_TYPE_F8_E8M0},
};

sy_type sy_type_of(DLDataType type)
{
    return syi_type_of(type);
}

DLDataType sy_dtype(sy_type type)
{
    for (int code = 0; code < SYI_TYPE_CODES; code++)
        for (int bytes = 1; bytes <= 8; bytes++)
            if (syi_type_table[code][bytes] == type && type != SY_TYPE_OTHER)
                return (DLDataType){(uint8_t)code, (uint8_t)(8 * bytes), 1};
    return (DLDataType){255, 0, 1};
}

const char *sy_type_name(sy_type type)
{
    return names[(unsigned)type < SY_N_TYPES ? type : SY_TYPE_OTHER];
}

void syi_describe_type(DLDataType type, char *text, size_t text_bytes)
{
    const sy_type known = syi_type_of(type);
    if (known != SY_TYPE_OTHER)
        snprintf(text, text_bytes, "%s", names[known]);
    else
        snprintf(text, text_bytes, "type code %d with %d bits and %d lanes", type.code, type.bits,
                 type.lanes);
}
