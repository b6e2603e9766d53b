/*
 * The acl runtime over plain memory. Every device is this machine, its memory is malloc's or that of the device that the
 * environment names (device.c), and a stream runs its work immediately. Streams, events and contexts are small blocks, so
 * that each has its own address and leaks are detected.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../device.h"

/* The vendor's current device and context belong to a thread, without a handle. */
static _Thread_local int32_t current_device;
static _Thread_local aclrtContext current_context;

struct event {
    bool recorded;
    struct timespec when;
};

aclError aclInit(const char *configPath)
{
    (void)configPath;
    return ACL_SUCCESS;
}

aclError aclFinalize(void)
{
    syi_aclnn_device_close();
    return ACL_SUCCESS;
}

aclnnStatus aclnnInit(const char *configPath)
{
    (void)configPath;
    return ACLNN_SUCCESS;
}

aclnnStatus aclnnFinalize(void)
{
    return ACLNN_SUCCESS;
}

/* ---- Devices and contexts ---- */

static aclError check_device(const char *call, int32_t device)
{
    return device >= 0 ? ACL_SUCCESS
                       : syi_aclnn_fail_rt(ACL_ERROR_RT_INVALID_DEVICEID, call,
                                           "deviceId is negative, want 0 or more");
}

static aclError check_pointer(const char *call, const void *place)
{
    return place != NULL
               ? ACL_SUCCESS
               : syi_aclnn_fail_rt(ACL_ERROR_INVALID_PARAM, call, "an argument is null, want none to be");
}

/* Stores a value for the caller. */
static aclError give(const char *call, void *place, const void *value, size_t bytes)
{
    const aclError st = check_pointer(call, place);
    if (st == ACL_SUCCESS)
        memcpy(place, value, bytes);
    return st;
}

aclError aclrtSetDevice(int32_t deviceId)
{
    const aclError st = check_device(__func__, deviceId);
    if (st == ACL_SUCCESS)
        current_device = deviceId;
    return st;
}

/* The calling thread's part of the device; memory stays. */
aclError aclrtResetDevice(int32_t deviceId)
{
    syi_aclnn_device_close();
    return check_device(__func__, deviceId);
}

aclError aclrtResetDeviceForce(int32_t deviceId)
{
    syi_aclnn_device_close();
    return check_device(__func__, deviceId);
}

aclError aclrtGetDevice(int32_t *deviceId)
{
    return give(__func__, deviceId, &current_device, sizeof current_device);
}

aclError aclrtGetDeviceCount(uint32_t *count)
{
    return give(__func__, count, &(const uint32_t){1}, sizeof *count);
}

aclError aclrtSynchronizeDevice(void)
{
    return ACL_SUCCESS;
}

aclError aclrtGetRunMode(aclrtRunMode *runMode)
{
    return give(__func__, runMode, &(const aclrtRunMode){ACL_HOST}, sizeof *runMode);
}

const char *aclrtGetSocName(void)
{
    return "switchyard";
}

aclError aclrtGetVersion(int32_t *majorVersion, int32_t *minorVersion, int32_t *patchVersion)
{
    if (majorVersion == NULL || minorVersion == NULL || patchVersion == NULL)
        return check_pointer(__func__, NULL);
    *majorVersion = SY_VERSION_MAJOR;
    *minorVersion = SY_VERSION_MINOR;
    *patchVersion = SY_VERSION_PATCH;
    return ACL_SUCCESS;
}

/* A block that only provides a unique address. */
static aclError new_handle(const char *call, void **handle, size_t bytes)
{
    const aclError st = check_pointer(call, handle);
    if (st != ACL_SUCCESS)
        return st;
    *handle = calloc(1, bytes);
    return *handle != NULL ? ACL_SUCCESS : syi_aclnn_fail_rt(ACL_ERROR_BAD_ALLOC, call, "no memory");
}

static aclError free_handle(const char *call, void *handle)
{
    const aclError st = check_pointer(call, handle);
    free(handle);
    return st;
}

aclError aclrtCreateContext(aclrtContext *context, int32_t deviceId)
{
    const aclError st = check_device(__func__, deviceId);
    return st == ACL_SUCCESS ? new_handle(__func__, context, 1) : st;
}

aclError aclrtDestroyContext(aclrtContext context)
{
    if (current_context == context)
        current_context = NULL;
    return free_handle(__func__, context);
}

aclError aclrtSetCurrentContext(aclrtContext context)
{
    const aclError st = check_pointer(__func__, context);
    if (st == ACL_SUCCESS)
        current_context = context;
    return st;
}

aclError aclrtGetCurrentContext(aclrtContext *context)
{
    return give(__func__, context, &current_context, sizeof current_context);
}

/* ---- Streams ---- */

aclError aclrtCreateStream(aclrtStream *stream)
{
    return new_handle(__func__, stream, 1);
}

aclError aclrtCreateStreamWithConfig(aclrtStream *stream, uint32_t priority, uint32_t flag)
{
    (void)priority;
    (void)flag;
    return new_handle(__func__, stream, 1);
}

aclError aclrtDestroyStream(aclrtStream stream)
{
    return free_handle(__func__, stream);
}

aclError aclrtDestroyStreamForce(aclrtStream stream)
{
    return free_handle(__func__, stream);
}

aclError aclrtSynchronizeStream(aclrtStream stream)
{
    (void)stream;
    return ACL_SUCCESS;
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout)
{
    (void)stream;
    (void)timeout;
    return ACL_SUCCESS;
}

aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus *status)
{
    (void)stream;
    return give(__func__, status, &(const aclrtStreamStatus){ACL_STREAM_STATUS_COMPLETE}, sizeof *status);
}

/* ---- Events ---- */

aclError aclrtCreateEvent(aclrtEvent *event)
{
    return new_handle(__func__, event, sizeof(struct event));
}

aclError aclrtCreateEventWithFlag(aclrtEvent *event, uint32_t flag)
{
    (void)flag;
    return new_handle(__func__, event, sizeof(struct event));
}

aclError aclrtDestroyEvent(aclrtEvent event)
{
    return free_handle(__func__, event);
}

aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream)
{
    (void)stream;
    const aclError st = check_pointer(__func__, event);
    if (st != ACL_SUCCESS)
        return st;
    struct event *e = event;
    (void)clock_gettime(CLOCK_MONOTONIC, &e->when);
    e->recorded = true;
    return ACL_SUCCESS;
}

aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus *status)
{
    aclError st = check_pointer(__func__, event);
    if (st == ACL_SUCCESS)
        st = check_pointer(__func__, status);
    if (st == ACL_SUCCESS)
        *status = ((struct event *)event)->recorded ? ACL_EVENT_RECORDED_STATUS_COMPLETE
                                                    : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    return st;
}

aclError aclrtSynchronizeEvent(aclrtEvent event)
{
    return check_pointer(__func__, event);
}

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event)
{
    (void)stream;
    return check_pointer(__func__, event);
}

aclError aclrtEventElapsedTime(float *ms, aclrtEvent startEvent, aclrtEvent endEvent)
{
    const struct event *a = startEvent, *b = endEvent;
    if (ms == NULL || a == NULL || b == NULL || !a->recorded || !b->recorded)
        return syi_aclnn_fail_rt(ACL_ERROR_INVALID_PARAM, __func__,
                                 "an argument is null or an event was not recorded");
    *ms = (float)((double)(b->when.tv_sec - a->when.tv_sec) * 1e3 +
                  (double)(b->when.tv_nsec - a->when.tv_nsec) * 1e-6);
    return ACL_SUCCESS;
}

/* ---- Memory ---- */

static aclError allocate(const char *call, void **place, size_t bytes)
{
    const size_t boundary = 512;
    const aclError st = check_pointer(call, place);
    if (st != ACL_SUCCESS || place == NULL) /* the second is an error of check_pointer */
        return st;
    *place = NULL;
    if (bytes == 0)
        return syi_aclnn_fail_rt(ACL_ERROR_INVALID_PARAM, call, "size is 0, want 1 or more");
    if (bytes <= SIZE_MAX - boundary)
        *place = aligned_alloc(boundary, (bytes + boundary - 1) / boundary * boundary);
    return *place != NULL ? ACL_SUCCESS : syi_aclnn_fail_rt(ACL_ERROR_BAD_ALLOC, call, "no memory");
}

/* Device memory begins at a multiple of 256 there. */
static aclError allocate_device(const char *call, void **place, size_t bytes)
{
    sy_ctx *ctx;
    if (syi_aclnn_device(call, &ctx) != ACLNN_SUCCESS)
        return ACL_ERROR_INVALID_DEVICE;
    if (ctx == NULL || place == NULL || bytes == 0)
        return allocate(call, place, bytes);
    return sy_device_alloc(ctx, bytes, place) == SY_OK
               ? ACL_SUCCESS
               : syi_aclnn_fail_rt(ACL_ERROR_BAD_ALLOC, call, sy_ctx_error(ctx));
}

#define MALLOC(function) \
    aclError function(void **devPtr, size_t size, aclrtMemMallocPolicy policy) \
    { \
        (void)policy; \
        return allocate_device(__func__, devPtr, size); \
    }
MALLOC(aclrtMalloc)
MALLOC(aclrtMallocAlign32)
MALLOC(aclrtMallocCached)

aclError aclrtFree(void *devPtr)
{
    sy_ctx *ctx;
    if (syi_aclnn_device(__func__, &ctx) != ACLNN_SUCCESS)
        return ACL_ERROR_INVALID_DEVICE;
    if (!syi_device_has(ctx, devPtr))
        return free_handle(__func__, devPtr);
    sy_device_free(ctx, devPtr);
    return ACL_SUCCESS;
}

aclError aclrtMallocHost(void **hostPtr, size_t size)
{
    return allocate(__func__, hostPtr, size);
}

aclError aclrtFreeHost(void *hostPtr)
{
    return free_handle(__func__, hostPtr);
}

aclError aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind)
{
    if (kind < ACL_MEMCPY_HOST_TO_HOST || kind > ACL_MEMCPY_DEFAULT)
        return syi_aclnn_fail_rt(ACL_ERROR_INVALID_PARAM, __func__, "kind is none of aclrtMemcpyKind");
    if (dst == NULL || src == NULL)
        return syi_aclnn_fail_rt(ACL_ERROR_INVALID_PARAM, __func__, "dst or src is null");
    if (count > destMax)
        return syi_aclnn_fail_rt(ACL_ERROR_INVALID_PARAM, __func__, "count is more than destMax");
    sy_ctx *ctx;
    if (syi_aclnn_device(__func__, &ctx) != ACLNN_SUCCESS)
        return ACL_ERROR_INVALID_DEVICE;
    return syi_device_copy(ctx, dst, src, count) == SY_OK
               ? ACL_SUCCESS
               : syi_aclnn_fail_rt(ACL_ERROR_FAILURE, __func__, sy_ctx_error(ctx));
}

aclError aclrtMemcpyAsync(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind,
                          aclrtStream stream)
{
    (void)stream;
    return aclrtMemcpy(dst, destMax, src, count, kind);
}

aclError aclrtMemset(void *devPtr, size_t maxCount, int32_t value, size_t count)
{
    if (devPtr == NULL || count > maxCount)
        return syi_aclnn_fail_rt(ACL_ERROR_INVALID_PARAM, __func__,
                                 "devPtr is null, or count is more than maxCount");
    sy_ctx *ctx;
    if (syi_aclnn_device(__func__, &ctx) != ACLNN_SUCCESS)
        return ACL_ERROR_INVALID_DEVICE;
    return syi_device_fill(ctx, devPtr, value, count) == SY_OK
               ? ACL_SUCCESS
               : syi_aclnn_fail_rt(ACL_ERROR_FAILURE, __func__, sy_ctx_error(ctx));
}

aclError aclrtMemsetAsync(void *devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream)
{
    (void)stream;
    return aclrtMemset(devPtr, maxCount, value, count);
}
