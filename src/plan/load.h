/*
 * Integers in the caller's memory, which has no alignment, for every backend.
 */
#pragma once

#include "plan/plan.h"

/* A device loads and stores whole numbers only where they are aligned; other ones are rare, and out of line. */
#ifdef __CUDACC__
static __device__ __noinline__ __attribute__((unused)) uint64_t syi_load_bytes(const unsigned char *p, int n)
{
    uint64_t bits = 0;
    for (int i = 0; i < n; i++)
        bits |= (uint64_t)p[i] << (8 * i);
    return bits;
}
static __device__ __noinline__ __attribute__((unused)) void syi_store_bytes(unsigned char *p, uint64_t bits,
                                                                            int n)
{
    for (int i = 0; i < n; i++)
        p[i] = (unsigned char)(bits >> (8 * i));
}
#endif

#ifdef __CUDA_ARCH__
#define SYI_LOAD(type, p) \
    return (uintptr_t)(p) % sizeof(type) == 0 ? *(const type *)(p) \
                                              : (type)syi_load_bytes((p), (int)sizeof(type))
#define SYI_STORE(type, p, value) \
    if ((uintptr_t)(p) % sizeof(type) == 0) \
        *(type *)(p) = (value); \
    else \
        syi_store_bytes((p), (value), (int)sizeof(type))
#else
#define SYI_LOAD(type, p) \
    type loaded; \
    memcpy(&loaded, (p), sizeof loaded); \
    return loaded
#define SYI_STORE(type, p, value) memcpy((p), &(value), sizeof(type))
#endif

SYI_BOTH static inline uint16_t syi_load_u16(const unsigned char *p)
{
    SYI_LOAD(uint16_t, p);
}

SYI_BOTH static inline uint32_t syi_load_u32(const unsigned char *p)
{
    SYI_LOAD(uint32_t, p);
}

SYI_BOTH static inline uint64_t syi_load_u64(const unsigned char *p)
{
    SYI_LOAD(uint64_t, p);
}

SYI_BOTH static inline void syi_store_u16(unsigned char *p, uint16_t value)
{
    SYI_STORE(uint16_t, p, value);
}

SYI_BOTH static inline void syi_store_u32(unsigned char *p, uint32_t value)
{
    SYI_STORE(uint32_t, p, value);
}

SYI_BOTH static inline void syi_store_u64(unsigned char *p, uint64_t value)
{
    SYI_STORE(uint64_t, p, value);
}

#undef SYI_LOAD
#undef SYI_STORE

SYI_BOTH static inline int32_t syi_load_i32(const unsigned char *base, int64_t i)
{
    return (int32_t)syi_load_u32(base + i * 4);
}

SYI_BOTH static inline int64_t syi_load_i64(const unsigned char *base, int64_t i)
{
    return (int64_t)syi_load_u64(base + i * 8);
}

/* An index, int32 or int64. */
SYI_BOTH static inline int64_t syi_load_index(const unsigned char *base, int64_t i, sy_type type)
{
    return type == SY_TYPE_I32 ? syi_load_i32(base, i) : syi_load_i64(base, i);
}

SYI_BOTH static inline void syi_store_i32(unsigned char *base, int64_t i, int32_t value)
{
    syi_store_u32(base + i * 4, (uint32_t)value);
}

SYI_BOTH static inline void syi_store_i64(unsigned char *base, int64_t i, int64_t value)
{
    syi_store_u64(base + i * 8, (uint64_t)value);
}

SYI_BOTH static inline void syi_store_index(unsigned char *base, int64_t i, int64_t value, sy_type type)
{
    if (type == SY_TYPE_I32)
        syi_store_i32(base, i, (int32_t)value);
    else
        syi_store_i64(base, i, value);
}

/* An integer of any type; those of 64 bits keep their bits. */
SYI_BOTH static inline int64_t syi_load_int(const unsigned char *p, sy_type type)
{
    switch (type) {
    case SY_TYPE_I32:
        return (int32_t)syi_load_u32(p);
    case SY_TYPE_U32:
        return syi_load_u32(p);
    case SY_TYPE_I16:
        return (int16_t)syi_load_u16(p);
    case SY_TYPE_U16:
        return syi_load_u16(p);
    case SY_TYPE_I8:
        return (int8_t)*p;
    case SY_TYPE_U8:
    case SY_TYPE_BOOL:
        return *p;
    default:
        return (int64_t)syi_load_u64(p);
    }
}

SYI_BOTH static inline int64_t syi_column_int(const struct syi_column *column, int64_t row)
{
    return column->held ? (int64_t)column->number : syi_load_int(syi_row_at(column->rows, row), column->type);
}

SYI_BOTH static inline bool syi_present(const struct syi_column *column)
{
    return column->rows.data != NULL;
}
