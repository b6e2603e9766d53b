/*
 * Rows of exchanges between processes: memory of a request on the device through which they travel in
 * messages, a copy of it in pinned memory of the host where the transport cannot read the device, and an
 * event after the last work that uses them.
 */
#include "cuda/runtime/travel.cuh"

#include <cstdlib>

struct travel_state {
    int ordinal;
    cudaEvent_t used;
    bool marked; /* `used` is recorded, and the host has not seen it end */
    /* before it grew: freeing waits for the device, which may wait for another process */
    syi_travel smaller;
};

static sy_status failed(sy_ctx *ctx, const char *what, cudaError_t code)
{
    const sy_status st = syc_failed(ctx, what, code);
    return code == cudaErrorMemoryAllocation ? SY_ERR_NOMEM : st;
}

void syc_travel_free(syi_travel *travel)
{
    travel_state *const s = (travel_state *)travel->of_memory;
    if (s != NULL) {
        syc_travel_free(&s->smaller);
        syc_device there = {};
        there.ordinal = s->ordinal;
        syc_on_device on(&there);
        if (travel->wire != travel->rows)
            cudaFreeHost(travel->wire);
        cudaFree(travel->rows);
        if (s->used != NULL)
            cudaEventDestroy(s->used);
        free(s);
    }
    *travel = {};
}

sy_status syc_travel(sy_ctx *ctx, syi_travel *travel, size_t bytes, bool copied)
{
    const syc_device *const d = ctx->cuda_device;
    travel_state *s = (travel_state *)travel->of_memory;
    syc_on_device on(d);
    cudaError_t code = s != NULL && s->marked ? cudaEventSynchronize(s->used) : cudaSuccess;
    if (code != cudaSuccess)
        return failed(ctx, "earlier work with rows of other processes failed", code);
    if (s != NULL)
        s->marked = false;
    if (s != NULL && s->ordinal == d->ordinal && bytes <= travel->bytes &&
        copied == (travel->wire != travel->rows))
        return SY_OK;
    const syi_travel before = *travel;
    /* all earlier ones are kept: together less than this one */
    bytes = bytes > 2 * before.bytes ? bytes : 2 * before.bytes;
    *travel = {};
    s = (travel_state *)calloc(1, sizeof *s);
    code = s == NULL ? cudaErrorMemoryAllocation : cudaMalloc((void **)&travel->rows, bytes);
    if (code == cudaSuccess && copied)
        code = cudaHostAlloc((void **)&travel->wire, bytes, 0);
    else
        travel->wire = travel->rows;
    if (code == cudaSuccess)
        code = cudaEventCreateWithFlags(&s->used, cudaEventDisableTiming);
    if (s != NULL)
        s->ordinal = d->ordinal;
    travel->of_memory = s;
    travel->bytes = bytes;
    travel->memory = &syc_memory;
    if (code == cudaSuccess) {
        s->smaller = before;
        return SY_OK;
    }
    syc_travel_free(travel);
    *travel = before;
    return failed(ctx, "has no memory for rows of other processes", code);
}

sy_status syc_travel_copy(sy_ctx *ctx, const syi_travel *travel, size_t offset, size_t bytes, bool back)
{
    const syc_device *const d = ctx->cuda_device;
    if (bytes == 0 || travel->wire == travel->rows)
        return SY_OK;
    syc_on_device on(d);
    u8 *const there = travel->rows + offset, *const here = travel->wire + offset;
    const cudaError_t code =
        cudaMemcpyAsync(back ? there : here, back ? here : there, bytes, cudaMemcpyDefault, d->stream);
    return code == cudaSuccess ? SY_OK : failed(ctx, "could not copy rows of other processes", code);
}

sy_status syc_mark(sy_ctx *ctx, syi_travel *travel)
{
    const syc_device *const d = ctx->cuda_device;
    travel_state *const s = (travel_state *)travel->of_memory;
    syc_on_device on(d);
    const cudaError_t code = cudaEventRecord(s->used, d->stream);
    s->marked = code == cudaSuccess;
    return s->marked ? SY_OK : failed(ctx, "could not be marked", code);
}

sy_status syc_reached(sy_ctx *ctx, syi_travel *travel, bool *done)
{
    travel_state *const s = (travel_state *)travel->of_memory;
    syc_on_device on(ctx->cuda_device);
    const cudaError_t code = s->marked ? cudaEventQuery(s->used) : cudaSuccess;
    *done = code == cudaSuccess;
    s->marked = s->marked && !*done;
    if (code == cudaErrorNotReady)
        cudaGetLastError(); /* no error of the caller's next CUDA call */
    return code == cudaSuccess || code == cudaErrorNotReady
               ? SY_OK
               : failed(ctx, "could not pack rows for other processes", code);
}

void syc_place(const sy_ctx *ctx, int *ordinal, void **stream)
{
    *ordinal = ctx->cuda_device->ordinal;
    *stream = ctx->cuda_device->stream;
}
