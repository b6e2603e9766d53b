/*
 * Threads of a context.
 *
 *     job of n threads, T tasks        caller (thread 0): tasks 0, n, 2n, ...     then waits until left == 0
 *        state = number << 32 | n      worker w, 1 <= w < n:    w, w + n, ...     then left--; the last one wakes the caller
 *                                      worker w >= n: reads `state` only, and waits for the next job
 *
 * Who waits spins for a while and then sleeps on a condition (base/team.h has the protocol and why no signal is missed).
 *
 * Invariants
 * - Work is cut into tasks by position, never by arrival (syi_part), so the number of threads cannot change a result.
 * - Starting a thread may fail at any time: the context then works with the threads it has, or with the calling one alone.
 * - A context that a forked child inherits runs on the calling thread; one that is created in the child starts its own.
 * - No task keeps another's floating-point control: every one runs between syi_fp_enter and syi_fp_leave.
 *
 * Terms: a task is a part of the work, with an index; a worker is a thread that this context started; waking one takes microseconds, so
 * work below MIN_TASK_BYTES for each task stays on fewer threads.
 */
#define _GNU_SOURCE /* CPU sets */
#include "cpu/pool.h"

#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

enum {
    MIN_TASK_BYTES = 64 * 1024, /* smaller work is done before another thread has woken up */
    STACK_BYTES = 256 * 1024,   /* of a worker; tasks need 16 KB, debuggers and sanitizers more */
    /* How long a thread spins before it sleeps: a worker for the next call, which often comes soon, and the caller for
       workers that have as much to do as it had. Waking one that sleeps takes 7 us. */
    IDLE_NS = 500 * 1000,
    END_NS = 100 * 1000
};

/* ---- How many ---- */

/* CPUs that this process may run on. */
static int usable_cpus(void)
{
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
#endif
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return cpus < 1 ? 1 : cpus > INT_MAX ? INT_MAX : (int)cpus;
}

int syi_default_threads(bool own_pool)
{
    const char *own = getenv("SWITCHYARD_THREADS");
    if (own != NULL && *own != '\0') {
        char *end;
        const long given = strtol(own, &end, 10);
        return *end == '\0' && given > 0 && given <= INT_MAX ? (int)given : 0;
    }
    const char *wanted = own_pool ? NULL : getenv("OMP_NUM_THREADS");
    const long n = wanted != NULL ? strtol(wanted, NULL, 10) : 0;
    return n > 0 && n <= INT_MAX ? (int)n : usable_cpus();
}

/* Whether a variable of the environment has this value, in any case of letters. */
static bool is_set(const char *name, const char *value)
{
    const char *found = getenv(name);
    return found != NULL && strcasecmp(found, value) == 0;
}

/* Whether the threads of the context are in this process. */
static bool is_owner(const sy_ctx *ctx)
{
    return ctx->owner_pid == (long)getpid();
}

int syi_usable_threads(const sy_ctx *ctx)
{
    return ctx->parallel_for != NULL || is_owner(ctx) ? ctx->threads : 1;
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

/* ---- Workers ---- */

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* yield does nothing on most cores */
#endif
}

static bool has_job(const struct syi_team *team, uint64_t seen)
{
    return atomic_load_explicit(&team->state, memory_order_acquire) != seen;
}

static bool has_ended(const struct syi_team *team, uint64_t unused)
{
    (void)unused;
    return atomic_load_explicit(&team->left, memory_order_acquire) == 0;
}

/* Waits until a condition holds, for some time; false after that. Without sched_yield: that may give the CPU away for
   milliseconds. */
static bool spin(const struct syi_team *team, bool (*holds)(const struct syi_team *, uint64_t), uint64_t seen,
                 uint64_t most_ns)
{
    enum { BETWEEN_CLOCKS = 64 };
    const bool spins = atomic_load_explicit(&team->spins, memory_order_relaxed);
    const uint64_t start = spins ? syi_now() : 0;
    do {
        for (int i = 0; i < BETWEEN_CLOCKS; i++) {
            if (holds(team, seen))
                return true;
            relax();
        }
    } while (spins && syi_now() - start < most_ns);
    return false;
}

static uint64_t next_job(struct syi_team *team, uint64_t seen)
{
    if (!spin(team, has_job, seen, IDLE_NS)) {
        pthread_mutex_lock(&team->lock);
        atomic_fetch_add(&team->sleeping, 1);
        while (atomic_load(&team->state) == seen)
            pthread_cond_wait(&team->wake, &team->lock);
        atomic_fetch_sub(&team->sleeping, 1);
        pthread_mutex_unlock(&team->lock);
    }
    return atomic_load(&team->state);
}

static void end_part(struct syi_team *team)
{
    if (atomic_fetch_sub(&team->left, 1) != 1 || !atomic_load(&team->caller_sleeps))
        return;
    pthread_mutex_lock(&team->lock);
    pthread_cond_signal(&team->done);
    pthread_mutex_unlock(&team->lock);
}

/* With OMP_PROC_BIND each worker stays on a CPU of its own, counted from the one that starts them. */
static void stay_on_cpu(int own, int first)
{
#ifdef __linux__
    cpu_set_t usable, one;
    if (!is_set("OMP_PROC_BIND", "true") || sched_getaffinity(0, sizeof usable, &usable) != 0)
        return;
    int skip = own % (CPU_COUNT(&usable) > 0 ? CPU_COUNT(&usable) : 1), cpu = first;
    while (skip > 0 || !CPU_ISSET((size_t)cpu, &usable)) {
        cpu = (cpu + 1) % CPU_SETSIZE;
        skip -= CPU_ISSET((size_t)cpu, &usable) ? 1 : 0;
    }
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
#else
    (void)own, (void)first;
#endif
}

static void *work(void *argument)
{
    struct syi_team *const team = argument;
    pthread_mutex_lock(&team->lock);
    uint64_t seen = atomic_load(&team->state);
    const pthread_t before = team->last;
    const int own = ++team->n_workers;
    const int cpu = team->cpu;
    team->last = pthread_self();
    pthread_cond_signal(&team->done);
    pthread_mutex_unlock(&team->lock);
    stay_on_cpu(own, cpu);
    for (;;) {
        seen = next_job(team, seen);
        const int n = (int)(uint32_t)seen;
        if (n == 0)
            break;
        if (own >= n)
            continue;
        for (int i = own; i < team->n_tasks; i += n)
            team->task(team->data, i);
        end_part(team);
    }
    if (own > 1)
        pthread_join(before, NULL);
    return NULL;
}

/* Starts a worker and waits until it has entered itself; false: the system refuses. */
static bool start_worker(struct syi_team *team)
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, before;
    if (pthread_attr_init(&attr) != 0)
        return false;
    const int wanted = team->n_workers + 1;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the program's: workers inherit this mask */
    const bool started =
        pthread_attr_setstacksize(&attr, STACK_BYTES) == 0 && pthread_create(&thread, &attr, work, team) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (!started)
        return false;
    pthread_mutex_lock(&team->lock);
    while (team->n_workers < wanted)
        pthread_cond_wait(&team->done, &team->lock);
    pthread_mutex_unlock(&team->lock);
    return true;
}

static bool open_team(struct syi_team *team)
{
    if (team->open || team->full)
        return team->open;
    team->full = true;
    if (pthread_mutex_init(&team->lock, NULL) != 0)
        return false;
    if (pthread_cond_init(&team->wake, NULL) != 0) {
        pthread_mutex_destroy(&team->lock);
        return false;
    }
    if (pthread_cond_init(&team->done, NULL) != 0) {
        pthread_cond_destroy(&team->wake);
        pthread_mutex_destroy(&team->lock);
        return false;
    }
#ifdef __linux__
    team->cpu = sched_getcpu() >= 0 ? sched_getcpu() : 0;
#endif
    team->full = false;
    return team->open = true;
}

/* Threads for a job of so many tasks, the caller's included. */
static int enlist(struct syi_team *team, int n_tasks)
{
    if (!open_team(team))
        return 1;
    const int before = team->n_workers;
    while (team->n_workers + 1 < n_tasks && !team->full)
        team->full = !start_worker(team);
    if (team->n_workers != before)
        team->spins = team->n_workers < usable_cpus() && !is_set("OMP_WAIT_POLICY", "passive");
    return team->n_workers + 1 < n_tasks ? team->n_workers + 1 : n_tasks;
}

/* Publishes the next job for n threads; of none: the workers end. */
static void publish(struct syi_team *team, int n)
{
    const uint64_t number = atomic_load_explicit(&team->state, memory_order_relaxed) >> 32;
    atomic_store(&team->state, (number + 1) << 32 | (uint32_t)n);
    if (atomic_load(&team->sleeping) == 0)
        return;
    pthread_mutex_lock(&team->lock);
    pthread_cond_broadcast(&team->wake);
    pthread_mutex_unlock(&team->lock);
}

static void wait_for_workers(struct syi_team *team)
{
    if (spin(team, has_ended, 0, END_NS))
        return;
    pthread_mutex_lock(&team->lock);
    atomic_store(&team->caller_sleeps, true);
    while (atomic_load(&team->left) != 0)
        pthread_cond_wait(&team->done, &team->lock);
    atomic_store(&team->caller_sleeps, false);
    pthread_mutex_unlock(&team->lock);
}

void syi_pool_close(sy_ctx *ctx)
{
    struct syi_team *const team = &ctx->team;
    if (!team->open || !is_owner(ctx))
        return;
    if (team->n_workers > 0) {
        publish(team, 0);
        pthread_join(team->last, NULL);
    }
    pthread_cond_destroy(&team->done);
    pthread_cond_destroy(&team->wake);
    pthread_mutex_destroy(&team->lock);
    *team = (struct syi_team){0};
}

/* ---- Jobs ---- */

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
    struct syi_team *const team = &ctx->team;
    if (n_tasks > 1 && ctx->parallel_for != NULL) {
        ctx->parallel_for(ctx->parallel_user, n_tasks, run_task, &job);
        return;
    }
    const int n = n_tasks > 1 && is_owner(ctx) ? enlist(team, n_tasks) : 1;
    if (n > 1) {
        team->task = run_task;
        team->data = &job;
        team->n_tasks = n_tasks;
        atomic_store_explicit(&team->left, n - 1, memory_order_relaxed);
        publish(team, n);
    }
    for (int i = 0; i < n_tasks; i += n)
        run_task(&job, i);
    if (n > 1)
        wait_for_workers(team);
}
