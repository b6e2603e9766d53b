/*
 * The runtime's memory. The host is the device, so all memory is from the heap, and copies of all directions
 * are the same.
 */
#include "objects.h"

#include <stdlib.h>
#include <string.h>

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

cnrtRet_t cnrtMalloc(void **ptr, size_t bytes)
{
    return allocate(ptr, bytes, cnrtErrorNoMem);
}

cnrtRet_t cnrtFree(void *ptr)
{
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
    if (bytes > 0)
        memmove(dst, src, bytes);
    return cnrtSuccess;
}

cnrtRet_t cnrtMemcpyAsync_V3(void *dst, void *src, size_t bytes, cnrtQueue_t queue, cnrtMemTransDir_t dir)
{
    (void)queue;
    return cnrtMemcpy(dst, src, bytes, dir);
}

cnrtRet_t cnrtMemset(void *ptr, int value, size_t bytes)
{
    if (bytes > 0 && ptr == NULL)
        return cnrtErrorArgsInvalid;
    if (bytes > 0)
        memset(ptr, value, bytes);
    return cnrtSuccess;
}

cnrtRet_t cnrtMemsetAsync(void *ptr, int value, size_t bytes, cnrtQueue_t queue)
{
    (void)queue;
    return cnrtMemset(ptr, value, bytes);
}
