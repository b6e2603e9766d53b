/*
 * Contexts of CUDA devices: one for each device and stream, used by all threads in turn and kept until the process ends,
 * because graphs that were captured in a stream use the memory of its context.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "binding.h"

enum { MOST_CONTEXTS = 1024 };

struct syp_device {
    DLDevice device;
    void *stream;
    struct syp_device_settings settings;
    sy_ctx *ctx;
    pthread_mutex_t turn;
    struct syp_device *next;
};

static pthread_mutex_t growing = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct syp_device *) devices; /* the newest; the list only grows */
static int n_devices;

static struct syp_device *find(DLDevice device, void *stream, struct syp_device_settings settings)
{
    struct syp_device *found = atomic_load_explicit(&devices, memory_order_acquire);
    while (found != NULL && (found->device.device_id != device.device_id || found->stream != stream ||
                             found->settings.synchronous != settings.synchronous ||
                             found->settings.library != settings.library))
        found = found->next;
    return found;
}

static sy_status make(DLDevice device, void *stream, struct syp_device_settings settings,
                      struct syp_device **made, char *sentence, size_t bytes)
{
    struct syp_device *one = calloc(1, sizeof *one);
    *made = NULL;
    if (one == NULL || n_devices == MOST_CONTEXTS) {
        free(one);
        snprintf(sentence, bytes, "there is no memory for another context, of %d streams", n_devices);
        return SY_ERR_NOMEM;
    }
    const sy_ctx_options options = {.device = device,
                                    .stream = stream,
                                    .synchronous = settings.synchronous,
                                    .device_library = settings.library,
                                    .error = sentence,
                                    .error_bytes = bytes};
    const sy_status status = sy_ctx_create(&one->ctx, &options);
    if (status != SY_OK) {
        free(one);
        return status;
    }
    one->device = device;
    one->stream = stream;
    one->settings = settings;
    pthread_mutex_init(&one->turn, NULL);
    one->next = atomic_load(&devices);
    atomic_store_explicit(&devices, one, memory_order_release);
    n_devices++;
    *made = one;
    return SY_OK;
}

/* The context of a device and of a stream there. The thread has it until leave. */
static sy_status enter(DLDevice device, void *stream, struct syp_device **found, char *sentence, size_t bytes)
{
    const struct syp_device_settings settings = syp_settings_of_devices();
    sy_status status = SY_OK;
    *found = find(device, stream, settings);
    if (*found == NULL) {
        pthread_mutex_lock(&growing);
        *found = find(device, stream, settings);
        if (*found == NULL)
            status = make(device, stream, settings, found, sentence, bytes);
        pthread_mutex_unlock(&growing);
    }
    if (status == SY_OK)
        pthread_mutex_lock(&(*found)->turn);
    return status;
}

static sy_status leave(struct syp_device *device, sy_status status)
{
    if (status != SY_OK)
        syp_keep_failure(device->ctx, status, NULL, NULL);
    pthread_mutex_unlock(&device->turn);
    return status;
}

sy_status syp_call_on_device(DLDevice device, void *stream, const sy_op_info *op, const char *argument,
                             const void *args, enum syp_what what, sy_shape *shapes)
{
    char sentence[256] = "", text[512];
    struct syp_device *found = NULL;
    const sy_status status = enter(device, stream, &found, sentence, sizeof sentence);
    if (status == SY_OK)
        return leave(found, syp_run_in(found->ctx, op, args, what, shapes));
    const char *const colon = strchr(sentence, ':'); /* after the name of the function */
    snprintf(text, sizeof text, "%s: %s is on cuda:%d, and%s", op->name, argument, (int)device.device_id,
             colon != NULL ? colon + 1 : " no context can be made there");
    syp_keep_failure(NULL, status, argument, text);
    return status;
}

sy_status syp_sync(DLDevice device)
{
    for (struct syp_device *one = atomic_load_explicit(&devices, memory_order_acquire); one != NULL;
         one = one->next) {
        if (device.device_type == kDLCUDA && one->device.device_id != device.device_id)
            continue;
        pthread_mutex_lock(&one->turn);
        const sy_status status = sy_ctx_sync(one->ctx);
        leave(one, status);
        if (status == SY_OK)
            continue;
        pthread_mutex_lock(&one->turn);
        sy_ctx_sync(one->ctx); /* the device has taken back what stops later calls, in any stream */
        pthread_mutex_unlock(&one->turn);
        return status;
    }
    return SY_OK;
}

sy_status syp_device_alloc(DLDevice device, size_t bytes, struct syp_device **of, void **data)
{
    char sentence[256] = "";
    const sy_status status = enter(device, NULL, of, sentence, sizeof sentence);
    if (status == SY_OK)
        return leave(*of, sy_device_alloc((*of)->ctx, bytes, data));
    syp_keep_failure(NULL, status, "device", sentence);
    return status;
}

void syp_device_free(struct syp_device *of, void *data)
{
    pthread_mutex_lock(&of->turn);
    sy_device_free(of->ctx, data);
    pthread_mutex_unlock(&of->turn);
}

sy_status syp_device_copy(DLDevice device, void *stream, void *to, const void *from, size_t bytes)
{
    char sentence[256] = "";
    struct syp_device *found = NULL;
    const sy_status status = enter(device, stream, &found, sentence, sizeof sentence);
    if (status == SY_OK)
        return leave(found, sy_device_copy(found->ctx, to, from, bytes));
    syp_keep_failure(NULL, status, "device", sentence);
    return status;
}
