/*
 * Codes of numbers, eight or sixteen at a time, and back. The arithmetic is that of src/plan/codes.h and
 * src/plan/kv_math.h. kv_codes.cu has the rows of caches, row_codes.cuh those of other operators.
 */
#pragma once

#include "plan/kv_math.h"
#include "cuda/prim/bulk.cuh"
#include "cuda/prim/slots.cuh"

/* ---- Units of numbers ---- */

/* numbers that a lane unpacks and packs together */
enum { SYC_UNIT = 8, SYC_PACK_UNIT = 16 };

/* Two numbers that are not NaN, rounded; the first in the lower half. */
template <sy_type T> SYC_INLINE u32 syc_two(float low, float high)
{
#ifdef SWITCHYARD_CUDA_EMULATED
    return T == SY_TYPE_F16 ? syc_to_f16(low) | (u32)syc_to_f16(high) << 16
                            : syc_to_bf16(low) | (u32)syc_to_bf16(high) << 16;
#else
    u32 bits;
    if (T == SY_TYPE_F16)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
#endif
}

/* Eight numbers of a dense row. */
template <sy_type T> struct syc_eight {
    enum { VECTORS = T == SY_TYPE_F32 ? 2 : 1 };
    uint4 v[VECTORS];

    SYC_INLINE syc_eight load(const u8 *dense, u32 unit)
    {
        syc_eight e;
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            e.v[i] = __ldcs((const uint4 *)dense + unit * VECTORS + i);
        return e;
    }
    SYC_INLINE syc_eight zero()
    {
        return syc_zero<syc_eight>();
    }
    __device__ __forceinline__ void store(u8 *dense, u32 unit) const
    {
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            __stcs((uint4 *)dense + unit * VECTORS + i, v[i]);
    }
    __device__ __forceinline__ void widen(float (&x)[SYC_UNIT]) const
    {
        typename syc_numbers<T, true>::Word bits[SYC_UNIT];
        memcpy(bits, v, sizeof bits);
#pragma unroll
        for (int j = 0; j < SYC_UNIT; j++)
            x[j] = T == SY_TYPE_F32   ? __uint_as_float(bits[j])
                   : T == SY_TYPE_F16 ? syc_widen_f16((u16)bits[j])
                                      : syc_from_bf16((u16)bits[j]);
    }
    /* Any numbers; NaN becomes the canonical one. */
    SYC_INLINE syc_eight narrow(const float (&x)[SYC_UNIT])
    {
        syc_eight e;
        float part[syc_numbers<T, true>::N];
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            memcpy(part, x + i * syc_numbers<T, true>::N, sizeof part);
            e.v[i] = syc_numbers<T, true>::narrow(part);
        }
        return e;
    }
    /* None is NaN. */
    SYC_INLINE syc_eight narrow_numbers(const float (&x)[SYC_UNIT])
    {
        syc_eight e;
        u32 words[VECTORS * 4];
#pragma unroll
        for (int j = 0; j < VECTORS * 4; j++)
            words[j] = T == SY_TYPE_F32 ? __float_as_uint(x[j])
                                        : syc_two<T>(x[2 * j % SYC_UNIT], x[(2 * j + 1) % SYC_UNIT]);
        memcpy(e.v, words, sizeof words);
        return e;
    }
};

/* ---- Unpacking ---- */

/* What codes of this type count from differs by this from what an f32 counts from. */
SYC_INLINE float syc_code_unit(syi_code code)
{
    return code == SYI_CODE_I8 ? 1.0f : code == SYI_CODE_E4M3 ? 0x1p120f : 0x1p112f;
}

/* Four codes that are finite: as syi_code_to_f32, divided by syc_code_unit. */
SYC_INLINE void syc_four_codes(syi_code code, u32 q, float *x)
{
    if (code == SYI_CODE_I8) { /* 2^23 + 128 + code has the code, its sign bit inverted, as its last byte */
        q ^= 0x80808080u;
#pragma unroll
        for (int j = 0; j < 4; j++)
            x[j] = __fadd_rn(__uint_as_float(__byte_perm(q, 0x4b000000u, 0x7440 + j)), -8388736.0f);
        return;
    }
    const int shift = code == SYI_CODE_E4M3 ? 4 : 3;
    const u32 mask = code == SYI_CODE_E4M3 ? 0x87f00000u : 0x8fe00000u;
#pragma unroll
    for (int j = 0; j < 4; j++)
        x[j] = __uint_as_float((u32)((int32_t)(q << (24 - 8 * j)) >> shift) & mask);
}

/* Products of a scale and any codes. */
template <sy_type T> SYC_COLD syc_eight<T> syc_unpack_any(syi_code code, uint2 q, float w)
{
    float x[SYC_UNIT];
#pragma unroll
    for (int j = 0; j < SYC_UNIT; j++)
        x[j] = __fmul_rn(w, syi_code_to_f32(code, (u8)((j < 4 ? q.x : q.y) >> 8 * (j % 4))));
    return syc_eight<T>::narrow(x);
}

/* The same; usually codes and scale are finite, and no product is NaN. */
template <sy_type T> SYC_INLINE syc_eight<T> syc_unpack_unit(syi_code code, uint2 q, float w)
{
    /* carries into the signs */
    const u32 above = code == SYI_CODE_I8 ? 0u : code == SYI_CODE_E4M3 ? 0x01010101u : 0x04040404u;
    const u32 special = ((q.x & 0x7f7f7f7fu) + above) | ((q.y & 0x7f7f7f7fu) + above);
    const float scale = __fmul_rn(w, syc_code_unit(code)); /* exact, or not finite */
    float x[SYC_UNIT];
    if ((special & 0x80808080u) != 0 || (__float_as_uint(scale) & 0x7f800000u) == 0x7f800000u)
        return syc_unpack_any<T>(code, q, w);
    syc_four_codes(code, q.x, x);
    syc_four_codes(code, q.y, x + 4);
#pragma unroll
    for (int j = 0; j < SYC_UNIT; j++)
        x[j] = __fmul_rn(scale, x[j]);
    return syc_eight<T>::narrow_numbers(x);
}

/* ---- Packing ---- */

/*
 * x / w for a scale w that was made for a group with x, between 2^-40 and 2^40; r is 1 / w, rounded. The
 * first correction leaves an error below one unit of the last place, then the remainder is exact, and the
 * second gives the quotient as division rounds it; for the 8 bits of a bf16 the first one does: all 2^7
 * significands of x and 2^23 of w were compared. Zeros keep their signs. Where the remainder could underflow,
 * x is below 2^-70, and any small number is right: its code is zero.
 */
template <sy_type T> SYC_INLINE float syc_quotient_of(float x, float w, float r)
{
    float q = __fmul_rn(x, r);
    if (T != SY_TYPE_BF16)
        q = __fmaf_rn(__fmaf_rn(q, w, -x), -r, q);
    return __fmaf_rn(__fmaf_rn(q, w, -x), -r, q);
}

/* The larger of a magnitude and that of b; NaN where one is. */
SYC_INLINE float syc_larger(float a, float b)
{
#ifdef SWITCHYARD_CUDA_EMULATED
    b = fabsf(b);
    return a != a ? a : b > a || b != b ? b : a;
#else
    float larger;
    /* one instruction */
    asm("{ .reg .f32 m; abs.f32 m, %2; max.NaN.f32 %0, %1, m; }" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
#endif
}

/* Two codes of numbers that are not NaN; the first in the lower byte. */
SYC_INLINE u32 syc_two_codes(syi_code code, float low, float high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    u16 codes;
    if (code == SYI_CODE_E4M3)
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    else
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    return codes;
#else
    return syi_f32_to_code(code, low) | (u32)syi_f32_to_code(code, high) << 8;
#endif
}

/* Four numbers divided by a scale that was made for them, all finite; r is 1 / w, rounded. */
template <sy_type T, syi_code C> SYC_INLINE u32 syc_pack_four(const float *x, float w, float r)
{
    float q[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
        q[j] = syc_quotient_of<T>(x[j], w, r);
    if constexpr (C == SYI_CODE_I8) { /* none is past 127; from 1.5 * 2^23 on an f32 has no bits below one */
        u32 b[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            b[j] = __float_as_uint(__fadd_rn(q[j], 0x1.8p23f));
        return __byte_perm(__byte_perm(b[0], b[1], 0x0040), __byte_perm(b[2], b[3], 0x0040), 0x5410);
    } else {
        return __byte_perm(syc_two_codes(C, q[0], q[1]), syc_two_codes(C, q[2], q[3]), 0x5410);
    }
}

/*
 * Four codes of int8 of bf16 numbers: the integers next to x * r. A quotient of numbers of eight bits that is
 * not itself in the middle of two integers is farther from it than both roundings of the product are wide, by
 * a factor of 64. In the middle are half of the largest magnitude, for which syc_near_reciprocal makes r,
 * and, where the largest is 127 times a power of two, quotients that are exact, as r is.
 */
SYC_INLINE u32 syc_pack_near(const float *x, float r)
{
    u32 b[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
        b[j] = __float_as_uint(__fmaf_rn(x[j], r, 0x1.8p23f)); /* no bits below one */
    return __byte_perm(__byte_perm(b[0], b[1], 0x0040), __byte_perm(b[2], b[3], 0x0040), 0x5410);
}

/* 1 / w, or the number next to it with which half of the largest magnitude becomes the integer that its
   quotient has. */
SYC_INLINE float syc_near_reciprocal(float largest, float w, float r)
{
    const float half = __fmul_rn(largest, 0.5f);
    const u32 right = __float_as_uint(__fadd_rn(syc_quotient_of<SY_TYPE_F32>(half, w, r), 0x1.8p23f));
    return __uint_as_float(__float_as_uint(r) + (right - __float_as_uint(__fmaf_rn(half, r, 0x1.8p23f))));
}

/* Of lanes with one scale, a power of two. */
SYC_INLINE u32 syc_most_of_span(u32 most, u32 span)
{
#pragma unroll
    for (u32 d = 1; d < 32; d *= 2)
        if (d < span)
            most = max(most, __shfl_xor_sync(SYC_ALL_LANES, most, (int)d));
    return most;
}

/* Sixteen numbers of a dense row. */
template <sy_type T> struct syc_sixteen {
    syc_eight<T> half[2];

    SYC_INLINE syc_sixteen load(const u8 *dense, u32 unit)
    {
        return {{syc_eight<T>::load(dense, 2 * unit), syc_eight<T>::load(dense, 2 * unit + 1)}};
    }
    __device__ __forceinline__ void widen(float (&x)[SYC_PACK_UNIT]) const
    {
        float part[SYC_UNIT];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            half[h].widen(part);
            memcpy(x + h * SYC_UNIT, part, sizeof part);
        }
    }
};
