/*
 * Numbers in the caller's memory, which has no alignment (load.c).
 */
#ifndef SYI_CPU_LOAD_H
#define SYI_CPU_LOAD_H

#include "base/plan.h"

static inline int32_t syi_load_i32(const unsigned char *base, int64_t i)
{
    int32_t value;
    memcpy(&value, base + i * 4, sizeof value);
    return value;
}

static inline int64_t syi_load_i64(const unsigned char *base, int64_t i)
{
    int64_t value;
    memcpy(&value, base + i * 8, sizeof value);
    return value;
}

/* An index, int32 or int64. */
static inline int64_t syi_load_index(const unsigned char *base, int64_t i, sy_type type)
{
    return type == SY_TYPE_I32 ? syi_load_i32(base, i) : syi_load_i64(base, i);
}

static inline void syi_store_i32(unsigned char *base, int64_t i, int32_t value)
{
    memcpy(base + i * 4, &value, sizeof value);
}

static inline void syi_store_i64(unsigned char *base, int64_t i, int64_t value)
{
    memcpy(base + i * 8, &value, sizeof value);
}

static inline void syi_store_index(unsigned char *base, int64_t i, int64_t value, sy_type type)
{
    if (type == SY_TYPE_I32)
        syi_store_i32(base, i, (int32_t)value);
    else
        syi_store_i64(base, i, value);
}

/* An integer of any type (wider ones keep their bits), or a float of f32, f16, bf16, widened. */
int64_t syi_load_int(const unsigned char *p, sy_type type);
float syi_load_float(const unsigned char *p, sy_type type);
void syi_store_float(unsigned char *p, sy_type type, float value); /* rounded to the type */
int64_t syi_column_int(const struct syi_column *column, int64_t row);
float syi_column_float(const struct syi_column *column, int64_t row);

#endif
