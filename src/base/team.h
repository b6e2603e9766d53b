/*
 * The worker threads of a context (cpu/pool.c). A member of the context, so that starting them allocates nothing.
 *
 * Worker w, from 1 on, runs the tasks w, w + n, w + 2n, ... of a job of n threads; the caller is thread 0. A job is published by
 * `state`, which holds its number and n in one word: a worker that is not needed reads nothing else, so the caller waits only for
 * those that are. Who waits spins, then sleeps on a condition; `sleeping` and `caller_sleeps` say whether a signal is
 * needed. Both are written before the state that is waited for is read again, and the other side writes that state before it
 * reads them (all sequentially consistent), so no signal is missed.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* CUDA's C++ code reads contexts and knows no _Atomic; it never touches a team. */
#ifdef __cplusplus
#define SYI_ATOMIC(type) type
#else
#define SYI_ATOMIC(type) _Atomic(type)
#endif

struct syi_team {
    bool open;              /* the lock and the conditions are there */
    bool full;              /* a thread could not be started: no further attempt */
    SYI_ATOMIC(bool) spins; /* there is a CPU for each thread */
    int n_workers;
    int cpu;              /* where they were started */
    pthread_t last;       /* the worker that was started last; each joins the one before it */
    pthread_mutex_t lock; /* of the conditions and n_workers */
    pthread_cond_t wake, done;
    SYI_ATOMIC(uint64_t) state; /* number of the job << 32 | its threads */
    SYI_ATOMIC(int) left;       /* workers of the job that have not ended it */
    SYI_ATOMIC(int) sleeping;   /* workers that wait for `wake` */
    SYI_ATOMIC(bool) caller_sleeps;
    void (*task)(void *data, int index); /* the job */
    void *data;
    int n_tasks;
};
