/*
 * 8-bit codes to numbers, in plain C: one product in f32, one rounding to the row type.
 */
#include "kernels/encode.h"

static void put_f32(unsigned char *y, size_t i, float value)
{
    value = syi_canonical(value);
    memcpy(y + i * sizeof value, &value, sizeof value);
}

static void put_f16(unsigned char *y, size_t i, float value)
{
    const uint16_t bits = syi_f32_to_f16(value);
    memcpy(y + i * sizeof bits, &bits, sizeof bits);
}

static void put_bf16(unsigned char *y, size_t i, float value)
{
    const uint16_t bits = syi_f32_to_bf16(value);
    memcpy(y + i * sizeof bits, &bits, sizeof bits);
}

static inline __attribute__((always_inline)) void decode(unsigned char *y, const uint8_t *codes, float w,
                                                         size_t n, float (*widen)(uint8_t),
                                                         void (*put)(unsigned char *, size_t, float))
{
    for (size_t i = 0; i < n; i++)
        put(y, i, w * widen(codes[i]));
}

static void e4m3_to_f32(void *dst, const void *codes, float w, size_t n)
{
    decode(dst, codes, w, n, syi_e4m3_to_f32, put_f32);
}

static void e4m3_to_f16(void *dst, const void *codes, float w, size_t n)
{
    decode(dst, codes, w, n, syi_e4m3_to_f32, put_f16);
}

static void e4m3_to_bf16(void *dst, const void *codes, float w, size_t n)
{
    decode(dst, codes, w, n, syi_e4m3_to_f32, put_bf16);
}

static void e5m2_to_f32(void *dst, const void *codes, float w, size_t n)
{
    decode(dst, codes, w, n, syi_e5m2_to_f32, put_f32);
}

static void e5m2_to_f16(void *dst, const void *codes, float w, size_t n)
{
    decode(dst, codes, w, n, syi_e5m2_to_f32, put_f16);
}

static void e5m2_to_bf16(void *dst, const void *codes, float w, size_t n)
{
    decode(dst, codes, w, n, syi_e5m2_to_f32, put_bf16);
}

static void i8_to_f32(void *dst, const void *codes, float w, size_t n)
{
    decode(dst, codes, w, n, syi_i8_to_f32, put_f32);
}

static void i8_to_f16(void *dst, const void *codes, float w, size_t n)
{
    decode(dst, codes, w, n, syi_i8_to_f32, put_f16);
}

static void i8_to_bf16(void *dst, const void *codes, float w, size_t n)
{
    decode(dst, codes, w, n, syi_i8_to_f32, put_bf16);
}

syi_decode_fn *const syi_decode_scalar[SYI_N_CODES][SYI_N_FLOATS] = {
    [SYI_CODE_E4M3] = {e4m3_to_f32, e4m3_to_f16, e4m3_to_bf16},
    [SYI_CODE_E5M2] = {e5m2_to_f32, e5m2_to_f16, e5m2_to_bf16},
    [SYI_CODE_I8] = {i8_to_f32, i8_to_f16, i8_to_bf16},
};

SYI_DEFINE_ENCODERS(scalar, syi_encode_group)
