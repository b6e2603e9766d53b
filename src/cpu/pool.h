/*
 * Work cut into tasks over the threads of a context (pool.c).
 */
#pragma once

#include "base/base.h"

/* The number in SWITCHYARD_THREADS, or 0 when it holds none of at least 1. Else OMP_NUM_THREADS, but not for a caller's pool, of
   unknown size; else a thread for each CPU that this process may run on. */
int syi_default_threads(bool own_pool);

/* Threads this process can use: one in a forked child that has inherited the context and has no pool. */
int syi_usable_threads(const sy_ctx *ctx);

/* Tasks to cut `n_items` of `work_bytes` altogether into: 1 when small, never more than items or threads. */
int syi_tasks(const sy_ctx *ctx, int64_t n_items, uint64_t work_bytes);

/* Calls fn(data, task) for every task in [0, n_tasks), each with standard floating-point control. */
void syi_parallel(sy_ctx *ctx, int n_tasks, void (*fn)(void *data, int task), void *data);

/* Ends the threads of a context. */
void syi_pool_close(sy_ctx *ctx);

/* First item of a task when n items are cut into n_tasks even parts; part n_tasks begins at n. */
static inline int64_t syi_part(int64_t n, int n_tasks, int task)
{
    return n / n_tasks * task + (n % n_tasks) * task / n_tasks;
}
