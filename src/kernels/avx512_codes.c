/*
 * 8-bit codes to numbers with AVX-512, sixteen at a time; otherwise as avx2_codes.c. Tails are masked.
 */
#include "kernels/avx512.h"
#include "kernels/pack.h"

static __m256i shorts(int bits)
{
    return _mm256_set1_epi16((short)bits);
}

/* In the places of an f16 the number is 2^8 times too small; 7f and ff become all ones, a NaN. */
static __m512 widen_e4m3(__m128i codes)
{
    const __m256i placed =
        _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7), shorts(0xbf80));
    const __mmask16 is_nan = _mm256_cmpeq_epi16_mask(_mm256_or_si256(placed, shorts(0x8000)), shorts(0xbf80));
    return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_mask_mov_epi16(placed, is_nan, shorts(0x7e00))),
                         _mm512_set1_ps(0x1p8f));
}

static __m512 widen_e5m2(__m128i codes)
{
    return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 8));
}

SYI_INLINE __m512 widen(__m128i codes, const enum syi_code code)
{
    return code == SYI_CODE_E4M3   ? widen_e4m3(codes)
           : code == SYI_CODE_E5M2 ? widen_e5m2(codes)
                                   : _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
}

SYI_INLINE void decode_groups(char *y, const char *codes, const float *w, size_t group, size_t n_groups,
                              const enum syi_code code, const enum syi_float type)
{
    const size_t bytes = syi_float_size(type);
    for (size_t g = 0; g < n_groups; g++, y += group * bytes, codes += group) {
        const __m512 weight = _mm512_set1_ps(w[g]);
        for (size_t i = 0; i < group; i += 16) {
            const __mmask16 live = first_16(group - i);
            const __m512 number = widen(_mm_maskz_loadu_epi8(live, codes + i), code);
            store(y + i * bytes, live, canonical(_mm512_mul_ps(number, weight)), type);
        }
    }
}

SYI_DEFINE_DECODERS(avx512, decode_groups)
SYI_DEFINE_ENCODERS(avx512, syi_encode_groups, syi_amax_groups)
SYI_DEFINE_PACKERS(avx512)
