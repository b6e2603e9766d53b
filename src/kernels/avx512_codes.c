/*
 * 8-bit codes to numbers with AVX-512, sixteen at a time; otherwise as avx2_codes.c. Tails are masked.
 */
#include "kernels/encode.h"

#include <immintrin.h>

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

static void put_f16(void *y, __mmask16 live, __m512 v)
{
    const __m256i half = _mm512_maskz_cvtps_ph(live, v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_mask_storeu_epi16(y, live, half);
}

static void put_bf16(void *y, __mmask16 live, __m512 v)
{
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i upper = _mm512_srli_epi32(_mm512_add_epi32(bits, up), 16);
    _mm256_mask_storeu_epi16(y, live, _mm512_cvtepi32_epi16(upper));
}

SYI_INLINE void put(char *y, size_t i, __mmask16 live, __m512 v, const enum syi_float type)
{
    if (type == SYI_FLOAT_F32)
        _mm512_mask_storeu_ps(y + 4 * i, live, v);
    else if (type == SYI_FLOAT_F16)
        put_f16(y + 2 * i, live, v);
    else
        put_bf16(y + 2 * i, live, v);
}

/* A canonical f32 NaN narrows to the canonical NaN of either 16-bit type. */
static __m512 times(__m512 x, __m512 w)
{
    const __m512 product = _mm512_mul_ps(x, w);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(product, product, _CMP_UNORD_Q);
    return _mm512_mask_mov_ps(product, is_nan, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
}

SYI_INLINE void decode_groups(char *y, const char *codes, const float *w, size_t group, size_t n_groups,
                              const enum syi_code code, const enum syi_float type)
{
    const size_t bytes = type == SYI_FLOAT_F32 ? 4 : 2;
    for (size_t g = 0; g < n_groups; g++, y += group * bytes, codes += group) {
        const __m512 weight = _mm512_set1_ps(w[g]);
        for (size_t i = 0; i < group; i += 16) {
            const __mmask16 live = (__mmask16)(group - i < 16 ? (1u << (group - i)) - 1 : 0xffffu);
            put(y, i, live, times(widen(_mm_maskz_loadu_epi8(live, codes + i), code), weight), type);
        }
    }
}

SYI_DEFINE_DECODERS(avx512, decode_groups)
SYI_DEFINE_ENCODERS(avx512, syi_encode_groups, syi_amax_groups)
