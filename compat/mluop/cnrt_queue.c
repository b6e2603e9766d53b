/*
 * The runtime's device, queues and notifiers. Work put into a queue has ended when the call returns, so
 * a queue holds nothing and a notifier is the time at which it was placed.
 */
#include "objects.h"

#include <stdlib.h>
#include <time.h>

struct CNqueue_st {
    int device;
};

struct CNnotifier_st {
    bool placed;
    struct timespec time;
};

cnrtRet_t cnrtGetDevice(int *ordinal)
{
    if (ordinal == NULL)
        return cnrtErrorArgsInvalid;
    *ordinal = 0;
    return cnrtSuccess;
}

cnrtRet_t cnrtSetDevice(int ordinal)
{
    return ordinal == 0 ? cnrtSuccess : cnrtErrorDeviceInvalid;
}

cnrtRet_t cnrtGetDeviceCount(unsigned int *count)
{
    if (count == NULL)
        return cnrtErrorArgsInvalid;
    *count = 1;
    return cnrtSuccess;
}

cnrtRet_t cnrtSyncDevice(void)
{
    return cnrtSuccess;
}

cnrtRet_t cnrtDeviceReset(void)
{
    syi_mluop_device_close();
    return cnrtSuccess;
}

cnrtRet_t cnrtGetLibVersion(int *major, int *minor, int *patch)
{
    if (major == NULL || minor == NULL || patch == NULL)
        return cnrtErrorArgsInvalid;
    *major = CNRT_MAJOR_VERSION;
    *minor = CNRT_MINOR_VERSION;
    *patch = CNRT_PATCH_VERSION;
    return cnrtSuccess;
}

#define CREATE_AND_DESTROY(object, name) \
    cnrtRet_t cnrt##object##Create(cnrt##object##_t *(name)) \
    { \
        if ((name) == NULL) \
            return cnrtErrorArgsInvalid; \
        *(name) = calloc(1, sizeof **(name)); \
        return *(name) != NULL ? cnrtSuccess : cnrtErrorSysNoMem; \
    } \
    cnrtRet_t cnrt##object##Destroy(cnrt##object##_t(name)) \
    { \
        free(name); \
        return (name) != NULL ? cnrtSuccess : cnrtErrorArgsInvalid; \
    }
CREATE_AND_DESTROY(Queue, queue)
CREATE_AND_DESTROY(Notifier, notifier)

cnrtRet_t cnrtQueueSync(cnrtQueue_t queue)
{
    (void)queue;
    return cnrtSuccess;
}

cnrtRet_t cnrtPlaceNotifier(cnrtNotifier_t notifier, cnrtQueue_t queue)
{
    (void)queue;
    if (notifier == NULL)
        return cnrtErrorArgsInvalid;
    if (clock_gettime(CLOCK_MONOTONIC, &notifier->time) != 0)
        return cnrtErrorSys;
    notifier->placed = true;
    return cnrtSuccess;
}

cnrtRet_t cnrtQueueWaitNotifier(cnrtNotifier_t notifier, cnrtQueue_t queue, unsigned int flags)
{
    (void)queue; /* what was placed has ended */
    return notifier != NULL && flags == 0 ? cnrtSuccess : cnrtErrorArgsInvalid;
}

static cnrtRet_t between(cnrtNotifier_t start, cnrtNotifier_t end, double nanoseconds_per_unit, float *time)
{
    if (start == NULL || end == NULL || time == NULL)
        return cnrtErrorArgsInvalid;
    if (!start->placed || !end->placed)
        return cnrtErrorIllegalState;
    const double seconds = (double)(end->time.tv_sec - start->time.tv_sec);
    const double nanoseconds = (double)(end->time.tv_nsec - start->time.tv_nsec);
    *time = (float)((seconds * 1e9 + nanoseconds) / nanoseconds_per_unit);
    return cnrtSuccess;
}

cnrtRet_t cnrtNotifierDuration(cnrtNotifier_t start, cnrtNotifier_t end, float *us)
{
    return between(start, end, 1e3, us);
}

cnrtRet_t cnrtNotifierElapsedTime(cnrtNotifier_t start, cnrtNotifier_t end, float *ms)
{
    return between(start, end, 1e6, ms);
}

const char *cnrtGetErrorStr(cnrtRet_t err_code)
{
    switch (err_code) {
#define NAME(e) \
    case e: \
        return #e
        NAME(cnrtSuccess);
        NAME(cnrtErrorNotReady);
        NAME(cnrtErrorInit);
        NAME(cnrtErrorNoDevice);
        NAME(cnrtErrorDeviceInvalid);
        NAME(cnrtErrorArgsInvalid);
        NAME(cnrtErrorSys);
        NAME(cnrtErrorSysNoMem);
        NAME(cnrtErrorInvalidResourceHandle);
        NAME(cnrtErrorIllegalState);
        NAME(cnrtErrorNotSupport);
        NAME(cnrtErrorQueue);
        NAME(cnrtErrorNoMem);
        NAME(cnrtErrorMemcpyDirectionInvalid);
#undef NAME
    default:
        return "cnrtErrorUnknown";
    }
}

cnrtRet_t cnrtGetLastError(void)
{
    return cnrtSuccess;
}

cnrtRet_t cnrtPeekAtLastError(void)
{
    return cnrtSuccess;
}
