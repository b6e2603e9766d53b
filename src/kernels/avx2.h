/*
 * Words of AVX2 for avx2.c and avx2_codes.c: eight elements of a row as f32.
 */
#pragma once

#include "kernels/typed.h"

#include <immintrin.h>

SYI_INLINE __m256i words(uint32_t bits)
{
    return _mm256_set1_epi32((int)bits);
}

SYI_INLINE __m256 constant(uint32_t bits)
{
    return _mm256_castsi256_ps(words(bits));
}

SYI_INLINE __m256i load_words(const void *x)
{
    return _mm256_loadu_si256(x);
}

SYI_INLINE __m256 load(const void *x, const enum syi_float type)
{
    if (type == SYI_FLOAT_F16)
        return _mm256_cvtph_ps(_mm_loadu_si128(x));
    return _mm256_castsi256_ps(type == SYI_FLOAT_F32
                                   ? load_words(x)
                                   : _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(x)), 16));
}

SYI_INLINE void store_bf16(void *y, __m256i bits)
{
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), words(1));
    const __m256i upper = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, words(0x7fff)), odd), 16);
    _mm_storeu_si128(y, _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1)));
}

/* Rounds results of arithmetic, whose NaNs are canonical: an f32 one narrows to that of either 16-bit type. */
SYI_INLINE void store(void *y, __m256 v, const enum syi_float type)
{
    if (type == SYI_FLOAT_F32)
        _mm256_storeu_si256(y, _mm256_castps_si256(v));
    else if (type == SYI_FLOAT_F16)
        _mm_storeu_si128(y, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    else
        store_bf16(y, _mm256_castps_si256(v));
}

SYI_INLINE __m256 canonical(__m256 v)
{
    return _mm256_blendv_ps(v, constant(0x7fc00000u), _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}
