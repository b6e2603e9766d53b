/*
 * The runtime's memory. The host is the device, so all memory is from the heap, and copies of all directions
 * are the same; unless the environment names a device, whose memory cnrtMalloc returns then.
 */
#include "objects.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../device.h"

enum { CACHE_LINE_BYTES = 64 };

/* Not cleared and not touched: test programs allocate gigabytes only to have their size rejected. */
static cnrtRet_t allocate(void **ptr, size_t bytes, cnrtRet_t none_left)
{
    if (ptr == NULL)
        return cnrtErrorArgsInvalid;
    *ptr = NULL;
    if (bytes == 0)
        return cnrtSuccess;
    return posix_memalign(ptr, CACHE_LINE_BYTES, bytes) == 0 ? cnrtSuccess : none_left;
}

static _Thread_local sy_ctx *device; /* of this thread */

cnrtRet_t syi_mluop_device(sy_ctx **ctx)
{
    char sentence[256]; /* the vendor has no place for it */
    *ctx = NULL;
    if (!syi_device_named())
        return cnrtSuccess;
    if (device == NULL && syi_device_open(&device, sentence, sizeof sentence) != SY_OK)
        return cnrtErrorNoDevice;
    *ctx = device;
    return cnrtSuccess;
}

void syi_mluop_device_close(void)
{
    sy_ctx_destroy(device);
    device = NULL;
}

cnrtRet_t cnrtMalloc(void **ptr, size_t bytes)
{
    sy_ctx *ctx;
    const cnrtRet_t st = syi_mluop_device(&ctx);
    if (st != cnrtSuccess || ctx == NULL || ptr == NULL || bytes == 0)
        return st != cnrtSuccess ? st : allocate(ptr, bytes, cnrtErrorNoMem);
    return sy_device_alloc(ctx, bytes, ptr) == SY_OK ? cnrtSuccess : cnrtErrorNoMem;
}

cnrtRet_t cnrtFree(void *ptr)
{
    sy_ctx *ctx;
    const cnrtRet_t st = syi_mluop_device(&ctx);
    if (st != cnrtSuccess)
        return st;
    if (syi_device_has(ctx, ptr))
        sy_device_free(ctx, ptr);
    else
        free(ptr);
    return cnrtSuccess;
}

cnrtRet_t cnrtHostMalloc(void **ptr, size_t bytes)
{
    return allocate(ptr, bytes, cnrtErrorSysNoMem);
}

cnrtRet_t cnrtFreeHost(void *ptr)
{
    free(ptr);
    return cnrtSuccess;
}

cnrtRet_t cnrtMemcpy(void *dst, void *src, size_t bytes, cnrtMemTransDir_t dir)
{
    if ((int)dir < (int)cnrtMemcpyHostToDev || (int)dir > (int)cnrtMemcpyNoDirection)
        return cnrtErrorMemcpyDirectionInvalid;
    if (bytes > 0 && (dst == NULL || src == NULL))
        return cnrtErrorArgsInvalid;
    sy_ctx *ctx;
    const cnrtRet_t st = syi_mluop_device(&ctx);
    if (st != cnrtSuccess || bytes == 0)
        return st;
    return syi_device_copy(ctx, dst, src, bytes) == SY_OK ? cnrtSuccess : cnrtErrorSys;
}

cnrtRet_t cnrtMemcpyAsync_V3(void *dst, void *src, size_t bytes, cnrtQueue_t queue, cnrtMemTransDir_t dir)
{
    (void)queue;
    return cnrtMemcpy(dst, src, bytes, dir);
}

cnrtRet_t cnrtMemGetInfo(size_t *available, size_t *total)
{
    if (available == NULL || total == NULL)
        return cnrtErrorArgsInvalid;
    const long page = sysconf(_SC_PAGESIZE), all = sysconf(_SC_PHYS_PAGES), left = sysconf(_SC_AVPHYS_PAGES);
    if (page < 0 || all < 0 || left < 0)
        return cnrtErrorSys;
    *available = (size_t)left * (size_t)page;
    *total = (size_t)all * (size_t)page;
    return cnrtSuccess;
}

cnrtRet_t cnrtMemset(void *ptr, int value, size_t bytes)
{
    if (bytes > 0 && ptr == NULL)
        return cnrtErrorArgsInvalid;
    sy_ctx *ctx;
    const cnrtRet_t st = syi_mluop_device(&ctx);
    if (st != cnrtSuccess || bytes == 0)
        return st;
    return syi_device_fill(ctx, ptr, value, bytes) == SY_OK ? cnrtSuccess : cnrtErrorSys;
}

cnrtRet_t cnrtMemsetAsync(void *ptr, int value, size_t bytes, cnrtQueue_t queue)
{
    (void)queue;
    return cnrtMemset(ptr, value, bytes);
}
