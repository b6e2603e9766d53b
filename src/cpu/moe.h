/*
 * Shared by the operators on expert slots: the kernels for their row type.
 */
#ifndef SYI_CPU_MOE_H
#define SYI_CPU_MOE_H

#include "base/plan.h"
#include "kernels/kernels.h"

typedef void syi_scale_fn(void *dst, const void *src, float w, size_t n);
typedef void syi_sum_rows_fn(void *dst, const void *const *rows, const float *w, size_t n_rows, size_t n);

typedef void syi_dot_rows_fn(float *dst, const void *a, const void *const *rows, size_t n_rows, size_t n);

static inline syi_scale_fn *syi_scale_for(const struct syi_kernels *k, sy_type type)
{
    return type == SY_TYPE_F32 ? k->scale_f32 : type == SY_TYPE_F16 ? k->scale_f16 : k->scale_bf16;
}

static inline syi_sum_rows_fn *syi_sum_rows_for(const struct syi_kernels *k, sy_type type)
{
    return type == SY_TYPE_F32 ? k->sum_rows_f32 : type == SY_TYPE_F16 ? k->sum_rows_f16 : k->sum_rows_bf16;
}

static inline syi_dot_rows_fn *syi_dot_rows_for(const struct syi_kernels *k, sy_type type)
{
    return type == SY_TYPE_F32 ? k->dot_rows_f32 : type == SY_TYPE_F16 ? k->dot_rows_f16 : k->dot_rows_bf16;
}

/* Prefetches the beginning of a row, one of n_rows that are read together after the current ones: into the second-level
   cache, since the first has those. More bytes for one row or two, whose misses overlap less. */
static inline void syi_fetch_head(const void *row, size_t bytes, int64_t n_rows)
{
    const size_t head = n_rows <= 2 ? 1024 : 256;
    for (size_t at = 0; at < bytes && at < head; at += 64)
        __builtin_prefetch((const char *)row + at, 0, 2);
}

#endif
