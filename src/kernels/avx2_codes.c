/*
 * 8-bit codes to numbers with AVX2 and F16C. e4m3 and e5m2 are short forms of f16, which an instruction widens,
 * subnormals included; an f32 product with a subnormal would cost a hundred cycles here.
 */
#include "kernels/avx2.h"
#include "kernels/pack.h"

static __m128i shorts(int bits)
{
    return _mm_set1_epi16((short)bits);
}

/* In the places of an f16 the number is 2^8 times too small; 7f and ff become all ones, a NaN. */
static __m256 widen_e4m3(__m128i codes)
{
    const __m128i wide = _mm_cvtepi8_epi16(codes);
    const __m128i placed = _mm_and_si128(_mm_slli_epi16(wide, 7), shorts(0xbf80));
    const __m128i is_nan = _mm_cmpeq_epi16(_mm_or_si128(placed, shorts(0x8000)), shorts(0xbf80));
    return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(placed, is_nan)), _mm256_set1_ps(0x1p8f));
}

static __m256 widen_e5m2(__m128i codes)
{
    return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepi8_epi16(codes), 8));
}

SYI_INLINE __m256 widen(__m128i codes, const enum syi_code code)
{
    return code == SYI_CODE_E4M3   ? widen_e4m3(codes)
           : code == SYI_CODE_E5M2 ? widen_e5m2(codes)
                                   : _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
}

SYI_INLINE void decode_groups(char *y, const char *codes, const float *w, size_t group, size_t n_groups,
                              const enum syi_code code, const enum syi_float type)
{
    const size_t bytes = syi_float_size(type);
    for (size_t g = 0; g < n_groups; g++, y += group * bytes, codes += group) {
        const __m256 weight = _mm256_set1_ps(w[g]);
        size_t i = 0;
        for (; i + 8 <= group; i += 8)
            store(y + i * bytes,
                  canonical(_mm256_mul_ps(widen(_mm_loadl_epi64((const void *)(codes + i)), code), weight)),
                  type);
        if (i < group)
            syi_decode_scalar[code][type](y + i * bytes, codes + i, w + g, group - i, 1);
    }
}

SYI_DEFINE_DECODERS(avx2, decode_groups)
SYI_DEFINE_ENCODERS(avx2, syi_encode_groups, syi_amax_groups)
SYI_DEFINE_PACKERS(avx2)
