/*
 * Numbers in device memory of any alignment, by the functions of src/base.
 */
#pragma once

#include "plan/load.h"
#include "cuda/runtime/device.cuh"

template <typename V> SYC_INLINE V syc_load(const u8 *p)
{
    if constexpr (sizeof(V) == 1)
        return (V)*p;
    else if constexpr (sizeof(V) == 2)
        return (V)syi_load_u16(p);
    else if constexpr (sizeof(V) == 4)
        return (V)syi_load_u32(p);
    else
        return (V)syi_load_u64(p);
}

/* As syc_load, but without a call, across which values that are loaded together would leave their
   registers. */
template <typename V> SYC_INLINE V syc_load_here(const u8 *p)
{
    if (((uintptr_t)p & (sizeof(V) - 1)) == 0)
        return *(const V *)p;
    V bits = 0;
#pragma unroll
    for (int i = 0; i < (int)sizeof(V); i++)
        bits = (V)(bits | (V)p[i] << (8 * i));
    return bits;
}

template <typename V> SYC_INLINE void syc_store(u8 *p, V v)
{
    if constexpr (sizeof(V) == 1)
        *p = (u8)v;
    else if constexpr (sizeof(V) == 2)
        syi_store_u16(p, (uint16_t)v);
    else if constexpr (sizeof(V) == 4)
        syi_store_u32(p, (uint32_t)v);
    else
        syi_store_u64(p, (uint64_t)v);
}

SYC_INLINE int64_t syc_index(const u8 *base, int64_t i, sy_type type)
{
    return syi_load_index(base, i, type);
}

SYC_INLINE void syc_store_index(u8 *base, int64_t i, int64_t value, sy_type type)
{
    syi_store_index(base, i, value, type);
}

SYC_INLINE const u8 *syc_row(syi_rows rows, int64_t r)
{
    return syi_row_at(rows, r);
}
SYC_INLINE u8 *syc_out_row(syi_rows rows, int64_t r)
{
    return syi_row_at(rows, r);
}

/* An integer of any type; wider ones keep their bits. */
SYC_INLINE int64_t syc_column_int(const syi_column &column, int64_t r)
{
    return syi_column_int(&column, r);
}
SYC_INLINE bool syc_present(const syi_column &column)
{
    return syi_present(&column);
}

/* ---- Floats ---- */

SYC_INLINE float syc_from_bf16(u16 bits)
{
    return syi_bf16_to_f32(bits);
}
SYC_INLINE float syc_from_f16(u16 bits)
{
    return syi_f16_to_f32(bits);
}
SYC_INLINE u16 syc_to_bf16(float value)
{
    return syi_f32_to_bf16(value);
}
SYC_INLINE u16 syc_to_f16(float value)
{
    return syi_f32_to_f16(value);
}
SYC_INLINE float syc_canonical(float value)
{
    return syi_canonical(value);
}

SYC_INLINE float syc_load_float(const u8 *p, sy_type type)
{
    if (type == SY_TYPE_F32)
        return syi_f32_from_bits(syi_load_u32(p));
    return type == SY_TYPE_F16 ? syi_f16_to_f32(syi_load_u16(p)) : syi_bf16_to_f32(syi_load_u16(p));
}

SYC_INLINE float syc_column_float(const syi_column &column, int64_t r)
{
    return column.held ? __uint_as_float((u32)column.number)
                       : syc_load_float(syc_row(column.rows, r), column.type);
}

SYC_INLINE void syc_store_float(u8 *p, sy_type type, float value)
{
    if (type == SY_TYPE_F32)
        syi_store_u32(p, syi_f32_bits(value));
    else
        syi_store_u16(p, type == SY_TYPE_F16 ? syi_f32_to_f16(value) : syi_f32_to_bf16(value));
}
