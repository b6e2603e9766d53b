/*
 * Numbers in device memory of any alignment, and the conversions between float types, to the bit as src/base defines them.
 */
#ifndef SYC_LOAD_CUH
#define SYC_LOAD_CUH

#include "cuda/device.cuh"

/* An unaligned number, byte by byte. */
SYC_COLD u64 syc_load_bytes(const u8 *p, int n)
{
    u64 bits = 0;
    for (int i = 0; i < n; i++)
        bits |= (u64)p[i] << (8 * i);
    return bits;
}

template <typename V> static __device__ __forceinline__ V syc_load(const u8 *p)
{
    if (((uintptr_t)p & (sizeof(V) - 1)) == 0)
        return *(const V *)p;
    return (V)syc_load_bytes(p, (int)sizeof(V));
}

template <typename V> static __device__ __forceinline__ void syc_store(u8 *p, V v)
{
    if (((uintptr_t)p & (sizeof(V) - 1)) == 0)
        *(V *)p = v;
    else
        for (int i = 0; i < (int)sizeof(V); i++)
            p[i] = (u8)((u64)v >> (8 * i));
}

static __device__ __forceinline__ int64_t syc_index(const u8 *base, int64_t i, sy_type type)
{
    return type == SY_TYPE_I32 ? (int64_t)(int32_t)syc_load<u32>(base + i * 4) : (int64_t)syc_load<u64>(base + i * 8);
}

static __device__ __forceinline__ void syc_store_index(u8 *base, int64_t i, int64_t value, sy_type type)
{
    if (type == SY_TYPE_I32)
        syc_store<u32>(base + i * 4, (u32)value);
    else
        syc_store<u64>(base + i * 8, (u64)value);
}

static __device__ __forceinline__ const u8 *syc_row(struct syi_rows rows, int64_t r) { return rows.data + r * rows.stride; }
static __device__ __forceinline__ u8 *syc_out_row(struct syi_rows rows, int64_t r) { return rows.data + r * rows.stride; }

/* An integer of any type; wider ones keep their bits. */
static __device__ __forceinline__ int64_t syc_column_int(const struct syi_column &column, int64_t r)
{
    const u8 *const p = syc_row(column.rows, r);
    switch (column.type) {
    case SY_TYPE_I8:
        return (int8_t)*p;
    case SY_TYPE_U8:
    case SY_TYPE_BOOL:
        return *p;
    case SY_TYPE_I16:
        return (int16_t)syc_load<u16>(p);
    case SY_TYPE_U16:
        return syc_load<u16>(p);
    case SY_TYPE_I32:
        return (int32_t)syc_load<u32>(p);
    case SY_TYPE_U32:
        return syc_load<u32>(p);
    default:
        return (int64_t)syc_load<u64>(p);
    }
}

/* ---- Floats ------------------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ float syc_from_bf16(u16 bits) { return __uint_as_float((u32)bits << 16); }

static __device__ __forceinline__ float syc_from_f16(u16 bits)
{
    const u32 sign = (u32)(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u)
        return __uint_as_float(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    return __uint_as_float(sign | __float_as_uint(__fmul_rn(__uint_as_float(magnitude << 13), 0x1p112f)));
}

/* To nearest even; a NaN becomes the canonical quiet one. */
static __device__ __forceinline__ u16 syc_to_bf16(float value)
{
    const u32 bits = __float_as_uint(value);
    return (u16)(value != value ? 0x7fc0u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static __device__ __forceinline__ u16 syc_to_f16(float value)
{
    const u32 bits = __float_as_uint(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return 0x7e00;
    if (magnitude >= 0x477ff000u) /* rounds to 65536 or more */
        return (u16)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* subnormal: the sum rounds to its last place */
        const float sum = __fadd_rn(__uint_as_float(magnitude), 0.5f);
        return (u16)(sign | (__float_as_uint(sum) - 0x3f000000u));
    }
    const u32 rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return (u16)(sign | (rounded - 0x38000000u) >> 13);
}

static __device__ __forceinline__ float syc_load_float(const u8 *p, sy_type type)
{
    if (type == SY_TYPE_F32)
        return __uint_as_float(syc_load<u32>(p));
    return type == SY_TYPE_F16 ? syc_from_f16(syc_load<u16>(p)) : syc_from_bf16(syc_load<u16>(p));
}

static __device__ __forceinline__ float syc_canonical(float value) { return value != value ? __uint_as_float(0x7fc00000u) : value; }

static __device__ __forceinline__ void syc_store_float(u8 *p, sy_type type, float value)
{
    if (type == SY_TYPE_F32)
        syc_store<u32>(p, __float_as_uint(value));
    else
        syc_store<u16>(p, type == SY_TYPE_F16 ? syc_to_f16(value) : syc_to_bf16(value));
}

#endif
