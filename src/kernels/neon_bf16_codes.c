/*
 * 8-bit codes to numbers with NEON and BF16.
 */
#include "kernels/neon_codes.h"

static void put_bf16(uint8_t *y, struct eight v)
{
    vst1q_u8(y, vreinterpretq_u8_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(v.low), v.high)));
}

SYI_DEFINE_DECODERS(neon_bf16, decode_groups)
