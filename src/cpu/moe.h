/*
 * Shared by the operators on expert slots: the kernels for their row type.
 */
#pragma once

#include "plan/plan.h"
#include "kernels/kernels.h"

/* Prefetches the beginning of a row, one of n_rows that are read together after the current ones: into the second-level
   cache, since the first has those. More bytes for one row or two, whose misses overlap less. */
static inline void syi_fetch_head(const void *row, size_t bytes, int64_t n_rows)
{
    const size_t head = n_rows <= 2 ? 1024 : 256;
    for (size_t at = 0; at < bytes && at < head; at += 64)
        __builtin_prefetch((const char *)row + at, 0, 2);
}
