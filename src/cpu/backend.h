/*
 * The CPU backend: operators over the kernel table, rows split over threads.
 */
#ifndef SYI_CPU_BACKEND_H
#define SYI_CPU_BACKEND_H

#include "base/plan.h"

extern const struct syi_backend syi_cpu_backend;

#define SYI_CPU_RUN(ID, op) \
    size_t syi_cpu_##op##_workspace(const sy_ctx *ctx, const union syi_plan *plan); \
    sy_status syi_cpu_##op(sy_ctx *ctx, const union syi_plan *plan, void *workspace);
SYI_BACKEND_OPERATORS(SYI_CPU_RUN)
#undef SYI_CPU_RUN

/* ---- Threads (pool.c) -------------------------------------------------------------------------------- */

/* Threads OpenMP would use by itself; for a caller's pool, of unknown size, one per CPU. At least 1. */
int syi_default_threads(bool own_pool);

/* Threads this process can really use: one in a forked child without a pool. */
int syi_usable_threads(const sy_ctx *ctx);

/* Tasks to cut `n_items` of `work_bytes` altogether into: 1 when small, never more than items or threads. */
int syi_tasks(const sy_ctx *ctx, int64_t n_items, uint64_t work_bytes);

/* Calls fn(data, task) for every task in [0, n_tasks), each with standard floating-point control. */
void syi_parallel(sy_ctx *ctx, int n_tasks, void (*fn)(void *data, int task), void *data);

/* First item of a task when n items are cut into n_tasks even parts; part n_tasks begins at n. */
static inline int64_t syi_part(int64_t n, int n_tasks, int task)
{
    return n / n_tasks * task + (n % n_tasks) * task / n_tasks;
}

/* Values in the caller's memory, which has no alignment. */
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
