/*
 * 8-bit codes to numbers, in plain C: one product in f32, one rounding to the row type.
 */
#include "kernels/pack.h"

SYI_INLINE void put(unsigned char *y, size_t i, float value, const enum syi_float type)
{
    if (type == SYI_FLOAT_F32) {
        value = syi_canonical(value);
        memcpy(y + i * sizeof value, &value, sizeof value);
        return;
    }
    const uint16_t bits = type == SYI_FLOAT_F16 ? syi_f32_to_f16(value) : syi_f32_to_bf16(value);
    memcpy(y + i * sizeof bits, &bits, sizeof bits);
}

SYI_INLINE void decode_groups(unsigned char *y, const uint8_t *codes, const float *w, size_t group,
                              size_t n_groups, const enum syi_code code, const enum syi_float type)
{
    for (size_t g = 0; g < n_groups; g++)
        for (size_t i = g * group; i < (g + 1) * group; i++)
            put(y, i, w[g] * syi_code_to_f32(code, codes[i]), type);
}

SYI_DEFINE_DECODERS(scalar, decode_groups)
SYI_DEFINE_ENCODERS(scalar, syi_encode_groups, syi_amax_groups)
SYI_DEFINE_PACKERS(scalar)
