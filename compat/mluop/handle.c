/*
 * Handles: one of our contexts and a queue. Calls have ended when they return, so the queue is stored and not
 * used.
 */
#include "objects.h"

#include <stdlib.h>

#include "../device.h"

mluOpStatus_t mluOpCreate(mluOpHandle_t *handle)
{
    if (handle == NULL)
        return MLUOP_STATUS_BAD_PARAM;
    *handle = NULL;
    struct mluOpContext *const made = malloc(sizeof *made);
    if (made == NULL)
        return MLUOP_STATUS_ALLOC_FAILED;
    *made = (struct mluOpContext){.arch = SYI_MLUOP_ARCH_370};
    char sentence[256]; /* the vendor has no place for it */
    made->on_device = syi_device_named();
    const sy_status st = made->on_device ? syi_device_open(&made->ctx, sentence, sizeof sentence)
                                         : sy_ctx_create(&made->ctx, NULL);
    if (st != SY_OK) {
        free(made);
        return st == SY_ERR_NOMEM ? MLUOP_STATUS_ALLOC_FAILED : MLUOP_STATUS_NOT_INITIALIZED;
    }
    *handle = made;
    return MLUOP_STATUS_SUCCESS;
}

mluOpStatus_t mluOpDestroy(mluOpHandle_t handle)
{
    if (handle == NULL)
        return MLUOP_STATUS_BAD_PARAM;
    sy_ctx_destroy(handle->ctx);
    free(handle);
    return MLUOP_STATUS_SUCCESS;
}

mluOpStatus_t mluOpSetQueue(mluOpHandle_t handle, cnrtQueue_t queue)
{
    if (handle == NULL)
        return MLUOP_STATUS_BAD_PARAM;
    handle->queue = queue;
    return MLUOP_STATUS_SUCCESS;
}

mluOpStatus_t mluOpGetQueue(mluOpHandle_t handle, cnrtQueue_t *queue)
{
    if (handle == NULL || queue == NULL)
        return MLUOP_STATUS_BAD_PARAM;
    *queue = handle->queue;
    return MLUOP_STATUS_SUCCESS;
}

const char *mluOpGetErrorString(mluOpStatus_t status)
{
    switch (status) {
#define NAME(s) \
    case s: \
        return #s
        NAME(MLUOP_STATUS_SUCCESS);
        NAME(MLUOP_STATUS_NOT_INITIALIZED);
        NAME(MLUOP_STATUS_ALLOC_FAILED);
        NAME(MLUOP_STATUS_BAD_PARAM);
        NAME(MLUOP_STATUS_INTERNAL_ERROR);
        NAME(MLUOP_STATUS_ARCH_MISMATCH);
        NAME(MLUOP_STATUS_EXECUTION_FAILED);
        NAME(MLUOP_STATUS_NOT_SUPPORTED);
        NAME(MLUOP_STATUS_NUMERICAL_OVERFLOW);
#undef NAME
    default:
        return "MLUOP_STATUS_UNKNOWN";
    }
}

void mluOpGetLibVersion(int *major, int *minor, int *patch)
{
    if (major != NULL)
        *major = MLUOP_MAJOR;
    if (minor != NULL)
        *minor = MLUOP_MINOR;
    if (patch != NULL)
        *patch = MLUOP_PATCHLEVEL;
}
