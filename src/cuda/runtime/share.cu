/*
 * Memory of a device that other processes of the machine map by a handle of the driver and read in place.
 * Several processes may use one device. Handles name whole allocations; blocks of 2 MiB keep small ones from
 * sharing an allocation of the driver.
 */
#include "cuda/runtime/travel.cuh"

#include <switchyard_transport.h>

#include <cstdlib>

enum { BLOCK = 2 << 20 };

struct share_token {
    cudaIpcMemHandle_t handle;
};
static_assert(sizeof(share_token) <= SY_SHARE_TOKEN_BYTES, "a token fits");

struct shared_memory {
    int ordinal, n;
    void *own, **mapped; /* [n] of the others; NULL: not mapped here */
};

static sy_status failed(sy_ctx *ctx, const char *what, cudaError_t code)
{
    syc_failed(ctx, what, code);
    return SY_ERR_NOMEM;
}

/* The device of memory that has no context. */
static syc_device device_of(const shared_memory *m)
{
    syc_device there = {};
    there.ordinal = m->ordinal;
    return there;
}

sy_status syc_share(sy_ctx *ctx, size_t bytes, unsigned char *token, void **handle, void **base)
{
    const syc_device *const d = ctx->cuda_device;
    *handle = *base = NULL;
    if (bytes > SIZE_MAX / 2)
        return failed(ctx, "device memory could not be allocated", cudaErrorMemoryAllocation);
    shared_memory *const made = (shared_memory *)calloc(1, sizeof *made);
    if (made == NULL)
        return failed(ctx, "no memory of the host", cudaErrorMemoryAllocation);
    syc_on_device on(d);
    made->ordinal = d->ordinal;
    share_token t = {};
    cudaError_t code = cudaMalloc(&made->own, token != NULL ? (bytes + BLOCK - 1) / BLOCK * BLOCK : bytes);
    if (code == cudaSuccess && token != NULL)
        code = cudaIpcGetMemHandle(&t.handle, made->own);
    if (code != cudaSuccess) {
        cudaFree(made->own);
        free(made);
        return failed(ctx, "device memory could not be allocated", code);
    }
    if (token != NULL)
        memcpy(token, &t, sizeof t);
    *handle = made;
    *base = made->own;
    return SY_OK;
}

sy_status syc_attach(sy_ctx *ctx, void *handle, const unsigned char *tokens, int n, int own, void **base)
{
    shared_memory *const m = (shared_memory *)handle;
    syc_on_device on(ctx->cuda_device);
    m->mapped = (void **)calloc((size_t)n, sizeof *m->mapped);
    m->n = m->mapped != NULL ? n : 0;
    cudaError_t code = m->mapped != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
    for (int p = 0; code == cudaSuccess && p < n; p++) {
        share_token t;
        if (p == own)
            continue;
        memcpy(&t, tokens + (size_t)p * SY_SHARE_TOKEN_BYTES, sizeof t);
        code = cudaIpcOpenMemHandle(&m->mapped[p], t.handle, cudaIpcMemLazyEnablePeerAccess);
        base[p] = m->mapped[p] = code == cudaSuccess ? m->mapped[p] : NULL;
    }
    return code == cudaSuccess ? SY_OK
                               : failed(ctx, "device memory of another process could not be mapped", code);
}

void syc_detach(void *handle)
{
    shared_memory *const m = (shared_memory *)handle;
    const syc_device there = device_of(m);
    syc_on_device on(&there);
    for (int p = 0; p < m->n; p++)
        if (m->mapped[p] != NULL)
            cudaIpcCloseMemHandle(m->mapped[p]);
    free(m->mapped);
    m->mapped = NULL;
    m->n = 0;
    cudaGetLastError();
}

void syc_unshare(void *handle)
{
    shared_memory *const m = (shared_memory *)handle;
    const syc_device there = device_of(m);
    syc_detach(m);
    syc_on_device on(&there);
    cudaFree(m->own);
    free(m);
}
