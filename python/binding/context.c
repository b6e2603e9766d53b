/*
 * One context per thread, created at its first call and destroyed when it ends: a context serves one thread at a time,
 * and Python calls from any number of threads.
 *
 * Threads and kernel table are settings of the process: a thread applies them at its next call. Calls on CUDA devices have
 * contexts of their own, in device.c; what is known of a failed one is copied into memory of the thread.
 */
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "binding.h"

struct local {
    sy_ctx *ctx;
    unsigned settings; /* generation of the settings the context was made with */
    struct syp_failure failure;
    bool kept; /* the failure is not that of `ctx` */
    char sentence[512];
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

static pthread_mutex_t settings_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint settings_generation;
static int settings_threads;
static const char *settings_isa; /* a name from sy_isa_name, a constant; NULL: the best */
static atomic_bool settings_synchronous;
static _Atomic(const char *) settings_library;
static struct text {
    struct text *next;
    char text[];
} * libraries; /* that were set: never freed, because contexts compare addresses */

static void forget(void *data)
{
    struct local *local = data;
    sy_ctx_destroy(local->ctx);
    free(local);
}

static void make_key(void)
{
    (void)pthread_key_create(&key, forget);
}

sy_ctx *syp_new_context(unsigned *generation)
{
    pthread_mutex_lock(&settings_lock);
    const int threads = settings_threads;
    const char *isa = settings_isa;
    *generation = atomic_load(&settings_generation);
    pthread_mutex_unlock(&settings_lock);

    sy_ctx *ctx = NULL;
    char sentence[256] = "";
    sy_ctx_options options = {
        .threads = threads, .isa = isa, .error = sentence, .error_bytes = sizeof sentence};
    syp_use_openmp(&options);
    const sy_status status = sy_ctx_create(&ctx, &options);
    if (status != SY_OK)
        syp_keep_failure(NULL, status, "", sentence);
    return status == SY_OK ? ctx : NULL;
}

static bool renew(struct local *local)
{
    sy_ctx_destroy(local->ctx);
    local->ctx = syp_new_context(&local->settings);
    return local->ctx != NULL;
}

/* What belongs to this thread; NULL without memory. */
static struct local *own(void)
{
    pthread_once(&once, make_key);
    struct local *local = pthread_getspecific(key);
    if (local != NULL)
        return local;
    local = calloc(1, sizeof *local);
    if (local == NULL || pthread_setspecific(key, local) != 0) {
        free(local);
        return NULL;
    }
    return local;
}

sy_ctx *syp_context(void)
{
    struct local *local = own();
    if (local == NULL)
        return NULL;
    if (local->ctx != NULL &&
        local->settings == atomic_load_explicit(&settings_generation, memory_order_relaxed))
        return local->ctx;
    return renew(local) ? local->ctx : NULL;
}

void syp_keep_failure(const sy_ctx *ctx, sy_status status, const char *argument, const char *sentence)
{
    struct local *local = own();
    if (local == NULL)
        return;
    local->kept = true;
    local->failure.error = local->sentence;
    snprintf(local->sentence, sizeof local->sentence, "%s", ctx != NULL ? sy_ctx_error(ctx) : sentence);
    if (ctx != NULL)
        sy_ctx_fault(ctx, &local->failure.fault);
    else
        local->failure.fault =
            (sy_fault){.status = status, .argument = argument, .batch = -1, .position = -1};
}

void syp_forget_failure(void)
{
    struct local *local = own();
    if (local != NULL)
        local->kept = false;
}

const struct syp_failure *syp_last_failure(void)
{
    static const struct syp_failure none = {.fault = {.status = SY_ERR_NOMEM, .batch = -1, .position = -1},
                                            .error = "there is no memory for a context of this thread"};
    struct local *local = own();
    if (local == NULL || (!local->kept && local->ctx == NULL))
        return &none;
    if (!local->kept) {
        sy_ctx_fault(local->ctx, &local->failure.fault);
        local->failure.error = sy_ctx_error(local->ctx);
    }
    return &local->failure;
}

void syp_configure_devices(bool synchronous, const char *library)
{
    pthread_mutex_lock(&settings_lock);
    struct text *found = library != NULL ? libraries : NULL;
    while (found != NULL && strcmp(found->text, library) != 0)
        found = found->next;
    if (found == NULL && library != NULL)
        found = calloc(1, sizeof *found + strlen(library) + 1);
    if (found != NULL && found->text[0] == '\0') {
        memcpy(found->text, library, strlen(library));
        found->next = libraries;
        libraries = found;
    }
    atomic_store(&settings_library, found != NULL ? found->text : NULL);
    atomic_store(&settings_synchronous, synchronous);
    pthread_mutex_unlock(&settings_lock);
}

struct syp_device_settings syp_settings_of_devices(void)
{
    return (struct syp_device_settings){atomic_load_explicit(&settings_synchronous, memory_order_relaxed),
                                        atomic_load_explicit(&settings_library, memory_order_acquire)};
}

/* The library's own copy of a name, which outlives the caller's; NULL when there is no such table here. */
static const char *find_isa(const char *name)
{
    for (int i = 0; sy_isa_name(i) != NULL; i++)
        if (strcmp(sy_isa_name(i), name) == 0)
            return sy_isa_name(i);
    return NULL;
}

void syp_meet_openmp(void)
{
    pthread_mutex_lock(&settings_lock);
    if (syp_find_openmp())
        atomic_fetch_add(&settings_generation, 1);
    pthread_mutex_unlock(&settings_lock);
}

bool syp_configure(int64_t threads, const char *isa)
{
    const char *name = isa != NULL ? find_isa(isa) : NULL;
    if ((isa != NULL && name == NULL) || threads < 0 || threads > INT_MAX)
        return false;
    pthread_mutex_lock(&settings_lock);
    settings_threads = (int)threads;
    settings_isa = name;
    atomic_fetch_add(&settings_generation, 1);
    pthread_mutex_unlock(&settings_lock);
    return true;
}
