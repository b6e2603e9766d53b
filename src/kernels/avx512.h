/*
 * Words of AVX-512 for avx512.c and avx512_codes.c: sixteen elements of a row as f32. A masked-off lane is neither read nor written.
 */
#pragma once

#define SYI_OWN_MARKS
#include "kernels/typed.h"

#include <immintrin.h>

/* The first `left` lanes; all of them when there are more elements than lanes. */
SYI_INLINE __mmask16 first_16(size_t left)
{
    return (__mmask16)(left < 16 ? (1u << left) - 1 : 0xffffu);
}

SYI_INLINE __m512i words(uint32_t bits)
{
    return _mm512_set1_epi32((int)bits);
}

SYI_INLINE __m512 constant(uint32_t bits)
{
    return _mm512_castsi512_ps(words(bits));
}

/* Masked-off lanes are minus infinity, which changes no maximum, sets no flag and has the weight 0. */
SYI_INLINE __m512 load(const void *x, __mmask16 live, const enum syi_float type)
{
    if (type == SYI_FLOAT_F32)
        return _mm512_castsi512_ps(_mm512_mask_loadu_epi32(words(0xff800000u), live, x));
    const __m256i off = _mm256_set1_epi16((short)(type == SYI_FLOAT_F16 ? 0xfc00u : 0xff80u));
    const __m256i half = _mm256_mask_loadu_epi16(off, live, x);
    return type == SYI_FLOAT_F16 ? _mm512_cvtph_ps(half)
                                 : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

SYI_INLINE void store_bf16(void *y, __mmask16 live, __m512i bits)
{
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), words(1));
    const __m512i upper = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, words(0x7fff)), odd), 16);
    _mm256_mask_storeu_epi16(y, live, _mm512_cvtepi32_epi16(upper));
}

/* Rounds results of arithmetic, whose NaNs are canonical: an f32 one narrows to that of either 16-bit type. */
SYI_INLINE void store(void *y, __mmask16 live, __m512 v, const enum syi_float type)
{
    if (type == SYI_FLOAT_F32)
        _mm512_mask_storeu_ps(y, live, v);
    else if (type == SYI_FLOAT_F16)
        _mm256_mask_storeu_epi16(
            y, live, _mm512_maskz_cvtps_ph(live, v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    else
        store_bf16(y, live, _mm512_castps_si512(v));
}

SYI_INLINE __m512 canonical(__m512 v)
{
    return _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), constant(0x7fc00000u));
}
