/*
 * Element types: names, sizes, and the 16-bit float conversions. The conversions work on integers, so neither
 * a compiler flag nor the state of the floating-point unit can change a bit of them.
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

/* By type code and bytes. A call needs the type of each tensor several times, so nothing is searched. */
enum { N_CODES = 15 };
static const uint8_t type_table[N_CODES][9] = {
    [0] = {[1] = SY_TYPE_I8, [2] = SY_TYPE_I16, [4] = SY_TYPE_I32, [8] = SY_TYPE_I64},
    [1] = {[1] = SY_TYPE_U8, [2] = SY_TYPE_U16, [4] = SY_TYPE_U32, [8] = SY_TYPE_U64},
    [2] = {[2] = SY_TYPE_F16, [4] = SY_TYPE_F32, [8] = SY_TYPE_F64},
    [4] = {[2] = SY_TYPE_BF16},
    [6] = {[1] = SY_TYPE_BOOL},
    [10] = {[1] = SY_TYPE_F8_E4M3},
    [12] = {[1] = SY_TYPE_F8_E5M2},
    [14] = {[1] = SY_TYPE_F8_E8M0},
};

sy_type syi_type_of(DLDataType type)
{
    if (type.lanes != 1 || type.code >= N_CODES || type.bits > 64 || type.bits % 8 != 0)
        return SY_TYPE_OTHER;
    return (sy_type)type_table[type.code][type.bits / 8];
}

sy_type sy_type_of(DLDataType type)
{
    return syi_type_of(type);
}

DLDataType sy_dtype(sy_type type)
{
    for (int code = 0; code < N_CODES; code++)
        for (int bytes = 1; bytes <= 8; bytes++)
            if (type_table[code][bytes] == type && type != SY_TYPE_OTHER)
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

float syi_bf16_to_f32(uint16_t bits)
{
    return syi_f32_from_bits((uint32_t)bits << 16);
}

uint16_t syi_f32_to_bf16(float value)
{
    const uint32_t bits = syi_f32_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0x7fc0;
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float syi_f16_to_f32(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    const uint32_t exponent = (bits >> 10) & 31u;
    uint32_t mantissa = bits & 0x3ffu;
    if (exponent == 31)
        return syi_f32_from_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent != 0)
        return syi_f32_from_bits(sign | (exponent + 112u) << 23 | mantissa << 13);
    if (mantissa == 0)
        return syi_f32_from_bits(sign);
    uint32_t shift = 0;
    for (; !(mantissa & 0x400u); mantissa <<= 1)
        shift++;
    return syi_f32_from_bits(sign | (113u - shift) << 23 | (mantissa & 0x3ffu) << 13);
}

uint16_t syi_f32_to_f16(float value)
{
    const uint32_t bits = syi_f32_bits(value);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    if (magnitude > 0x7f800000u)
        return 0x7e00;
    if (magnitude >= 0x477ff000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x33000001u) /* 2^-25 and below round to zero */
        return sign;
    if (magnitude >= 0x38800000u) { /* normal in f16: drop 13 bits, the carry may reach the exponent */
        const uint32_t rebased = magnitude - (112u << 23);
        return (uint16_t)(sign | (rebased + 0xfffu + (rebased >> 13 & 1u)) >> 13);
    }
    const uint32_t shift = 126u - (magnitude >> 23); /* 14..24 */
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t kept = mantissa >> shift;
    const uint32_t rest = mantissa & ((1u << shift) - 1u);
    const uint32_t half = 1u << (shift - 1);
    return (uint16_t)(sign | (kept + (rest > half || (rest == half && (kept & 1u)))));
}
