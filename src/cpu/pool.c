/*
 * Threads. Work is cut into tasks by position, never by arrival, so the number of threads cannot change a
 * result. A parallel region costs microseconds, so small work runs on the calling thread.
 */
#include "cpu/pool.h"

#include <limits.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#endif

enum { MIN_TASK_BYTES = 64 * 1024 }; /* smaller work is done before another thread has woken up */

int syi_default_threads(bool own_pool)
{
    if (own_pool) {
        const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
        return cpus < 1 ? 1 : cpus > INT_MAX ? INT_MAX : (int)cpus;
    }
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

/* Not in a forked child, neither with the parent's context nor with its own: see syi_forked. */
static bool openmp_usable(const sy_ctx *ctx)
{
    return ctx->owner_pid == (long)getpid();
}

int syi_usable_threads(const sy_ctx *ctx)
{
    return ctx->parallel_for != NULL || openmp_usable(ctx) ? ctx->threads : 1;
}

int syi_tasks(const sy_ctx *ctx, int64_t n_items, uint64_t work_bytes)
{
    const uint64_t by_bytes = work_bytes / MIN_TASK_BYTES;
    int64_t n = ctx->threads;
    if (by_bytes < (uint64_t)n)
        n = (int64_t)by_bytes;
    if (n_items < n)
        n = n_items;
    return n < 1 ? 1 : (int)n;
}

struct job {
    void (*fn)(void *data, int task);
    void *data;
};

static void run_task(void *job_data, int task)
{
    const struct job *job = job_data;
    const uint64_t saved = syi_fp_enter();
    job->fn(job->data, task);
    syi_fp_leave(saved);
}

void syi_parallel(sy_ctx *ctx, int n_tasks, void (*fn)(void *data, int task), void *data)
{
    struct job job = {fn, data};
    if (n_tasks > 1 && ctx->parallel_for != NULL) {
        ctx->parallel_for(ctx->parallel_user, n_tasks, run_task, &job);
        return;
    }
#ifdef _OPENMP
    if (n_tasks > 1 && openmp_usable(ctx)) {
        /* libgomp ends the surplus threads for a smaller team and starts them again for a larger one, which takes
           longer than most calls: a team is kept, and threads without a task wait. */
        const int team = n_tasks > ctx->team ? n_tasks : ctx->team;
        ctx->team = team;
#pragma omp parallel for num_threads(team) schedule(static, 1)
        for (int i = 0; i < n_tasks; i++)
            run_task(&job, i);
        return;
    }
#endif
    for (int i = 0; i < n_tasks; i++)
        run_task(&job, i);
}
