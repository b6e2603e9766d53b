/*
 * The device of the layers' calls. SWITCHYARD_COMPAT_DEVICE names it, cuda or cuda:N, so that a vendor's program needs no
 * change; without it all memory is the host's. SWITCHYARD_COMPAT_DEVICE_LIBRARY is another file of libswitchyard_cuda.
 * The vendors' functions for memory take no handle, so each thread has a context for them, which the vendor's call that
 * resets a device destroys.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <switchyard.h>

/* Whether the environment names a device. */
static inline bool syi_device_named(void)
{
    const char *name = getenv("SWITCHYARD_COMPAT_DEVICE");
    return name != NULL && name[0] != '\0';
}

/* The device that it names; type 0 if that is none. */
static inline DLDevice syi_device_wanted(void)
{
    const char *name = getenv("SWITCHYARD_COMPAT_DEVICE");
    char *end = NULL;
    long number = 0;
    if (name == NULL || strncmp(name, "cuda", 4) != 0 || (name[4] != '\0' && name[4] != ':'))
        return (DLDevice){0};
    if (name[4] == ':')
        number = strtol(name + 5, &end, 10);
    if ((end != NULL && (end == name + 5 || *end != '\0')) || number < 0 || number > INT32_MAX)
        return (DLDevice){0};
    return (DLDevice){kDLCUDA, (int32_t)number};
}

/* A context for calls on that device, each of which returns its own status. */
static inline sy_status syi_device_open(sy_ctx **ctx, char *sentence, size_t bytes)
{
    const sy_ctx_options options = {.device = syi_device_wanted(),
                                    .synchronous = true,
                                    .device_library = getenv("SWITCHYARD_COMPAT_DEVICE_LIBRARY"),
                                    .error = sentence,
                                    .error_bytes = bytes};
    *ctx = NULL;
    if (options.device.device_type != 0)
        return sy_ctx_create(ctx, &options);
    (void)snprintf(sentence, bytes, "SWITCHYARD_COMPAT_DEVICE is %s, want cuda or cuda:N",
                   getenv("SWITCHYARD_COMPAT_DEVICE"));
    return SY_ERR_DEVICE;
}

/* Whether the address is in memory of the context's device: only such memory can be lent. Allocations begin at multiples of
   64. */
static inline bool syi_device_has(sy_ctx *ctx, const void *data)
{
    const uintptr_t address = (uintptr_t)data / 64 * 64;
    if (ctx == NULL || address == 0 || sy_ctx_set_workspace(ctx, (void *)address, 64) != SY_OK)
        return false;
    return sy_ctx_set_workspace(ctx, NULL, 0) == SY_OK;
}

/* Both of host or device memory; the context may be NULL, which has none. Host memory may overlap. */
static inline sy_status syi_device_copy(sy_ctx *ctx, void *dst, const void *src, size_t bytes)
{
    if (syi_device_has(ctx, dst) || syi_device_has(ctx, src))
        return sy_device_copy(ctx, dst, src, bytes);
    memmove(dst, src, bytes);
    return SY_OK;
}

static inline sy_status syi_device_fill(sy_ctx *ctx, void *data, int value, size_t bytes)
{
    char block[4096];
    if (!syi_device_has(ctx, data)) {
        memset(data, value, bytes);
        return SY_OK;
    }
    memset(block, value, sizeof block);
    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < sizeof block ? bytes - at : sizeof block;
        const sy_status st = sy_device_copy(ctx, (char *)data + at, block, n);
        if (st != SY_OK)
            return st;
    }
    return SY_OK;
}
