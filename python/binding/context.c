/*
 * One context per thread, created at its first call and destroyed when it ends: a context serves one thread at a time,
 * and Python calls from any number of threads.
 *
 * Threads and kernel table are settings of the process: a thread applies them at its next call. Calls on CUDA devices have
 * contexts of their own, in device.c; what is known of a failed one is copied into memory of the thread.
 */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Whether the interpreter ends. Python 3.13 has the first name, older ones the second. */
static int (*is_finalizing)(void);

static void find_interpreter(void)
{
    void *program = dlopen(NULL, RTLD_LAZY); /* never closed */
    void *found = program != NULL ? dlsym(program, "Py_IsFinalizing") : NULL;
    if (found == NULL && program != NULL)
        found = dlsym(program, "_Py_IsFinalizing");
    memcpy(&is_finalizing, &found, sizeof found);
}

bool syp_is_over(void)
{
    static pthread_once_t found = PTHREAD_ONCE_INIT;
    pthread_once(&found, find_interpreter);
    return is_finalizing != NULL && is_finalizing() != 0;
}

void syp_leave(bool was_over)
{
    while (!was_over && syp_is_over())
        pause();
}

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

static sy_status create(sy_ctx **ctx, int threads, const char *isa)
{
    char sentence[256] = "";
    const sy_ctx_options options = {
        .threads = threads, .isa = isa, .error = sentence, .error_bytes = sizeof sentence};
    const sy_status status = sy_ctx_create(ctx, &options);
    if (status != SY_OK)
        syp_raise(status == SY_ERR_NOMEM ? "MemoryError" : "ValueError", sentence);
    return status;
}

sy_ctx *syp_new_context(unsigned *generation)
{
    pthread_mutex_lock(&settings_lock);
    const int threads = settings_threads;
    const char *isa = settings_isa;
    *generation = atomic_load(&settings_generation);
    pthread_mutex_unlock(&settings_lock);

    sy_ctx *ctx = NULL;
    return create(&ctx, threads, isa) == SY_OK ? ctx : NULL;
}

static bool renew(struct local *local)
{
    sy_ctx_destroy(local->ctx);
    local->ctx = syp_new_context(&local->settings);
    return local->ctx != NULL;
}

/* What belongs to this thread; NULL after syp_raise. */
static struct local *own(void)
{
    pthread_once(&once, make_key);
    struct local *local = pthread_getspecific(key);
    if (local != NULL)
        return local;
    local = calloc(1, sizeof *local);
    if (local == NULL || pthread_setspecific(key, local) != 0) {
        free(local);
        syp_raise("MemoryError", "no memory for the context of this thread");
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
    const sy_ctx *ctx = syp_context();
    struct local *local = ctx != NULL ? own() : NULL;
    if (local == NULL || local->kept)
        return local != NULL ? &local->failure : NULL;
    sy_ctx_fault(ctx, &local->failure.fault);
    local->failure.error = sy_ctx_error(ctx);
    return &local->failure;
}

void syp_configure_devices(bool synchronous, TVMFFIByteArray library)
{
    pthread_mutex_lock(&settings_lock);
    struct text *found = library.data != NULL ? libraries : NULL;
    while (found != NULL &&
           (strlen(found->text) != library.size || memcmp(found->text, library.data, library.size) != 0))
        found = found->next;
    if (found == NULL && library.data != NULL)
        found = calloc(1, sizeof *found + library.size + 1);
    if (found != NULL && found->text[0] == '\0') {
        memcpy(found->text, library.data, library.size);
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
static const char *find_isa(TVMFFIByteArray name)
{
    for (int i = 0; sy_isa_name(i) != NULL; i++)
        if (strlen(sy_isa_name(i)) == name.size && memcmp(sy_isa_name(i), name.data, name.size) == 0)
            return sy_isa_name(i);
    return NULL;
}

bool syp_configure(int64_t threads, TVMFFIByteArray isa)
{
    const char *name = isa.data != NULL ? find_isa(isa) : NULL;
    if ((isa.data != NULL && name == NULL) || threads < 0 || threads > INT_MAX)
        return false;
    pthread_mutex_lock(&settings_lock);
    settings_threads = (int)threads;
    settings_isa = name;
    atomic_fetch_add(&settings_generation, 1);
    pthread_mutex_unlock(&settings_lock);
    return true;
}
