/*
 * The CUDA backend as src/ops sees it: memory of one device, scratch memory there, and one row per operator.
 */
#include "cuda/runtime/backend.cuh"

#include <cstdio>
#include <cstdlib>

static bool accepts(const sy_ctx *ctx, DLDevice device, DLDevice first)
{
    return ctx->cuda_device != NULL && device.device_type == kDLCUDA &&
           device.device_id == ctx->cuda_device->ordinal && first.device_type == kDLCUDA;
}

sy_status syc_failed(sy_ctx *ctx, const char *what, cudaError_t code)
{
    snprintf(ctx->backend_error, sizeof ctx->backend_error, "%s: %s", what, cudaGetErrorString(code));
    cudaGetLastError();
    return SY_ERR_DEVICE;
}

sy_status syc_queued(sy_ctx *ctx, const syc_call *call, const char *what)
{
#ifdef SWITCHYARD_CUDA_EMULATED
    emulator::finish(); /* the device is done before the next call */
#endif
    return call->queue.error == cudaSuccess ? SY_OK : syc_failed(ctx, what, call->queue.error);
}

static sy_status no_memory(sy_ctx *ctx, const char *what, size_t bytes)
{
    snprintf(ctx->backend_error, sizeof ctx->backend_error, "%s of %zu bytes", what, bytes);
    return SY_ERR_NOMEM;
}

/* Planes are read by the host before the launch returns, so their memory can be used again at once. */
static sy_status host_scratch(sy_ctx *ctx, syc_device *d, size_t bytes, void **data)
{
    if (bytes > d->host_bytes) {
        free(d->host_scratch);
        d->host_scratch = malloc(bytes);
        d->host_bytes = d->host_scratch != NULL ? bytes : 0;
    }
    *data = d->host_scratch;
    return bytes > d->host_bytes ? no_memory(ctx, "could not be allocated: scratch memory of the host", bytes)
                                 : SY_OK;
}

/* Small memory at least doubles, so that what is kept beside the last is never much. */
static bool grow(syc_device *d, size_t bytes)
{
    const size_t twice = d->scratch_bytes < ((size_t)64 << 20) ? 2 * d->scratch_bytes : 0,
                 wanted = bytes > twice ? bytes : twice;
    void *made = NULL;
    syc_on_device on(d);
    syc_beside_captures beside;
    syc_kept *const kept = (syc_kept *)malloc(sizeof *kept);
    if (kept == NULL || cudaMalloc(&made, wanted) != cudaSuccess) {
        cudaGetLastError();
        free(kept);
        return false;
    }
    *kept = {d->scratch, d->smaller};
    d->smaller = kept;
    d->scratch = made;
    d->scratch_bytes = wanted;
    return true;
}

bool syc_own_scratch(syc_device *d, size_t bytes, void **data)
{
    const bool fits = bytes <= d->scratch_bytes || grow(d, bytes);
    *data = d->scratch;
    return fits;
}

static sy_status device_scratch(sy_ctx *ctx, syc_device *d, size_t bytes, void **data)
{
    if (ctx->device_workspace != NULL) {
        *data = ctx->device_workspace;
        return bytes <= ctx->device_workspace_bytes
                   ? SY_OK
                   : no_memory(ctx, "is too small: the call needs device memory", bytes);
    }
    return syc_own_scratch(d, bytes, data) ? SY_OK
                                           : no_memory(ctx, "could not be allocated: device memory", bytes);
}

static sy_status scratch(sy_ctx *ctx, size_t host_bytes, size_t own_bytes, syi_scratch *scratch)
{
    syc_device *const d = ctx->cuda_device;
    const sy_status st = host_bytes > 0 ? host_scratch(ctx, d, host_bytes, &scratch->host) : SY_OK;
    return st == SY_OK && own_bytes > 0 ? device_scratch(ctx, d, own_bytes, &scratch->own) : st;
}

static void describe(const sy_ctx *ctx, sy_trace *report)
{
    report->isa = "cuda";
    report->threads = ctx->cuda_device->processors;
    report->n_choices = report->status == SY_OK ? ctx->cuda_device->n_choices : 0;
    report->choices = ctx->cuda_device->choices;
}

template <size_t (*workspace)(const syc_device *, const syi_plan *)>
static size_t bytes_of(const sy_ctx *ctx, const syi_plan *plan)
{
    return workspace(ctx->cuda_device, plan);
}

template <int op, void (*launch)(syc_call *, const syi_plan *),
          size_t (*bytes)(const syc_device *, const syi_plan *)>
static sy_status run(sy_ctx *ctx, const syi_plan *plan, void *workspace)
{
    syc_on_device on(ctx->cuda_device);
    syc_call call = syc_begin(ctx->cuda_device, op, workspace);
#ifdef SWITCHYARD_CUDA_EMULATED
    /* what other calls left is of no use */
    cudaMemsetAsync(workspace, 0xa5, bytes(ctx->cuda_device, plan), call.queue.stream);
#endif
    launch(&call, plan);
    return syc_queued(ctx, &call, "could not be launched");
}

/* Rows of operators that are not here stay NULL, and src/ops rejects their calls. */
static constexpr syi_backend table(void)
{
    syi_backend backend = {"cuda", &syc_memory, accepts, scratch, describe, {}};
#define ROW(ID, name) \
    backend.op[SYI_##ID].workspace = bytes_of<syc_##name##_workspace>; \
    backend.op[SYI_##ID].run = run<SYI_##ID, syc_##name, syc_##name##_workspace>;
    SYC_OPERATORS(ROW)
#undef ROW
    return backend;
}

const syi_backend syc_backend = table();
