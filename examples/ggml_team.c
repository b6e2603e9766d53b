/*
 * An engine whose worker threads all enter every operation, as ggml's do: compute(ith, nth) is called by each of them
 * at once. The library expects one caller. So thread 0 makes the call, with a context whose parallel_for gives tasks to
 * the team, and the others run tasks until thread 0 has finished. No thread is created or woken for a call.
 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <switchyard.h>

enum { WORKERS = 4, TOKENS = 512, HIDDEN = 512, CHOICES = 2, EXPERTS = 8, STEPS = 3 };
enum { ROWS = TOKENS * CHOICES };

/* ---- The team ---- */

/* An offer of thread 0: a number of tasks, or none when the operation has ended. All other threads accept every offer
   and report when they have left it, so that thread 0 may make the next one. */
struct team {
    int n_workers;
    atomic_uint offer; /* counts offers; the next fields are written before it and read after it */
    int n_tasks;       /* 0: the operation has ended */
    void (*task)(void *data, int index);
    void *data;
    atomic_int next; /* next task that no thread has taken */
    atomic_int left; /* threads that have left the offer */
    int n_offered;   /* used by thread 0 only: tasks of all offers */
};

static void run_tasks(struct team *team)
{
    for (int i; (i = atomic_fetch_add(&team->next, 1)) < team->n_tasks;)
        team->task(team->data, i);
}

/* Thread 0: all tasks are done and all threads have left when this returns. */
static void offer_tasks(struct team *team, int n_tasks, void (*task)(void *, int), void *data)
{
    team->n_tasks = n_tasks;
    team->task = task;
    team->data = data;
    team->n_offered += n_tasks;
    atomic_store(&team->next, 0);
    atomic_store(&team->left, 0);
    atomic_fetch_add(&team->offer, 1);
    run_tasks(team);
    while (atomic_load(&team->left) < team->n_workers - 1)
        sched_yield();
}

/* The parallel_for of the context. */
static void team_parallel_for(void *user, int n_tasks, void (*task)(void *, int), void *data)
{
    offer_tasks(user, n_tasks, task, data);
}

/* Any other thread: takes part in offers until the operation has ended. `seen` counts the offers it has accepted. */
static void serve(struct team *team, unsigned *seen)
{
    for (bool ended = false; !ended;) {
        while (atomic_load(&team->offer) == *seen)
            sched_yield();
        ++*seen;
        ended = team->n_tasks == 0;
        run_tasks(team);
        atomic_fetch_add(&team->left, 1);
    }
}

/* ---- The engine ---- */

/* A graph of two operations: rows to their experts, and back. */
struct engine {
    struct team team;
    sy_ctx *ctx; /* of thread 0 */
    sy_status status;
    float tokens[TOKENS * HIDDEN], rows[TOKENS * CHOICES * HIDDEN], back[TOKENS * HIDDEN];
    int32_t ids[TOKENS * CHOICES], indices[TOKENS * CHOICES];
};

static sy_status permute(struct engine *e)
{
    sy_view x, i, y, s;
    return sy_moe_permute_ids(
        e->ctx, &(sy_moe_permute_ids_args){.tokens = sy_mat(&x, e->tokens, SY_F32, TOKENS, HIDDEN),
                                           .ids = sy_mat(&i, e->ids, SY_I32, TOKENS, CHOICES),
                                           .num_experts = EXPERTS,
                                           .permuted_tokens = sy_mat(&y, e->rows, SY_F32, ROWS, HIDDEN),
                                           .sorted_indices = sy_vec(&s, e->indices, SY_I32, ROWS)});
}

static sy_status unpermute(struct engine *e)
{
    sy_view y, s, z;
    return sy_moe_unpermute_ids(
        e->ctx, &(sy_moe_unpermute_ids_args){.permuted_tokens = sy_mat(&y, e->rows, SY_F32, ROWS, HIDDEN),
                                             .sorted_indices = sy_vec(&s, e->indices, SY_I32, ROWS),
                                             .num_tokens = TOKENS,
                                             .tokens = sy_mat(&z, e->back, SY_F32, TOKENS, HIDDEN)});
}

/* An operation of the engine: every thread calls it with its number. */
static void compute(struct engine *e, sy_status (*call)(struct engine *), int ith, unsigned *seen)
{
    if (ith != 0) {
        serve(&e->team, seen);
        return;
    }
    if (e->status == SY_OK)
        e->status = call(e);
    offer_tasks(&e->team, 0, NULL, NULL); /* the operation has ended */
}

struct worker {
    struct engine *engine;
    int ith;
};

static void *work(void *data)
{
    struct worker *w = data;
    unsigned seen = 0;
    for (int step = 0; step < STEPS; step++) {
        compute(w->engine, permute, w->ith, &seen);
        compute(w->engine, unpermute, w->ith, &seen);
    }
    return NULL;
}

/* ---- Main ---- */

static bool make(struct engine *e)
{
    for (int i = 0; i < TOKENS * HIDDEN; i++)
        e->tokens[i] = (float)(i % 1009);
    for (int i = 0; i < TOKENS * CHOICES; i++)
        e->ids[i] = (i * 5 + i / 3) % EXPERTS;
    const sy_ctx_options options = {
        .threads = WORKERS, .parallel_for = team_parallel_for, .parallel_user = &e->team};
    return sy_ctx_create(&e->ctx, &options) == SY_OK;
}

int main(void)
{
    static struct engine engine = {.team = {.n_workers = WORKERS}}; /* too large for a stack */
    struct worker worker[WORKERS];
    pthread_t thread[WORKERS];
    if (!make(&engine))
        return 1;
    for (int i = 0; i < WORKERS; i++)
        worker[i] = (struct worker){&engine, i};
    for (int i = 1; i < WORKERS; i++)
        if (pthread_create(&thread[i], NULL, work, &worker[i]) != 0)
            return 1; /* the team waits for all its threads */
    work(&worker[0]);
    for (int i = 1; i < WORKERS; i++)
        pthread_join(thread[i], NULL);
    if (engine.status != SY_OK) {
        printf("%s\n", sy_ctx_error(engine.ctx));
        return 1;
    }
    int wrong = 0;
    for (int i = 0; i < TOKENS * HIDDEN; i++)
        wrong += engine.back[i] != CHOICES * engine.tokens[i];
    printf("%d operations in %d tasks on a team of %d threads, %d values wrong\n", 2 * STEPS,
           engine.team.n_offered, WORKERS, wrong);
    sy_ctx_destroy(engine.ctx);
    return wrong != 0 || engine.team.n_offered == 0;
}
