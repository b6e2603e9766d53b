/*
 * CUDA devices of contexts: libswitchyard_cuda is loaded when the first context asks for one, and what kernels found in
 * contents is read back here.
 */
#include "ops/call.h"
#include "cuda/cuda.h"
#include "exchange/exchange.h"

#include <dlfcn.h>
#include <stdio.h>

#define TEXT_OF(x) #x
#define NAME_OF(abi) "libswitchyard_cuda.so." TEXT_OF(abi)
static const char file_name[] = NAME_OF(SY_VERSION_ABI);

/* By default beside this library, which its run path names, or where the system looks. Never closed: CUDA does not survive
   it. */
static const struct syc_library *load(const char *file, char *sentence, size_t bytes)
{
    void *const handle = dlopen(file != NULL ? file : file_name, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *const reason = dlerror();
        snprintf(sentence, bytes, "%s could not be loaded: %s", file_name,
                 reason != NULL ? reason : "no reason given");
        return NULL;
    }
    const struct syc_library *(*entry)(void) = NULL;
    *(void **)&entry = dlsym(handle, "syi_cuda_library");
    const struct syc_library *const library = entry != NULL ? entry() : NULL;
    if (library != NULL && library->build == SYC_BUILD)
        return library;
    snprintf(sentence, bytes, "%s is of another version, want %d.%d.%d", file_name, SY_VERSION_MAJOR,
             SY_VERSION_MINOR, SY_VERSION_PATCH);
    return NULL;
}

sy_status syi_device_open(sy_ctx *ctx, const sy_ctx_options *o, char *sentence, size_t bytes)
{
    const DLDevice device = o->device;
    if (device.device_type == 0 || device.device_type == kDLCPU) {
        if (o->stream == NULL)
            return SY_OK;
        snprintf(sentence, bytes, "stream is given without a CUDA device, want both or neither");
        return SY_ERR_VALUE;
    }
    if (device.device_type != kDLCUDA) {
        snprintf(sentence, bytes, "device has type %d, want 1 (CPU) or 2 (CUDA)", (int)device.device_type);
        return SY_ERR_DEVICE;
    }
    ctx->cuda = load(o->device_library, sentence, bytes);
    if (ctx->cuda == NULL)
        return SY_ERR_UNSUPPORTED;
    const sy_status st = ctx->cuda->open(&ctx->cuda_device, device.device_id, o->stream, sentence, bytes);
    if (st == SY_OK)
        syi_device_processors(ctx, o->threads);
    return st;
}

void syi_device_processors(sy_ctx *ctx, int n)
{
    if (ctx->cuda_device != NULL)
        ctx->cuda->set_processors(ctx->cuda_device, n);
}

const struct syi_backend *syi_device_backend(const sy_ctx *ctx)
{
    return ctx->cuda_device != NULL ? ctx->cuda->backend : NULL;
}

/* Calls on CPU memory keep the context's own scratch memory. */
sy_status syi_device_lend(sy_ctx *ctx, void *data, size_t bytes)
{
    if (bytes > 0 && !ctx->cuda->owns(ctx->cuda_device, data))
        return syi_fail(ctx, SY_ERR_DEVICE, "data",
                        "is not memory of the context's device, want device memory");
    ctx->device_workspace = bytes > 0 ? data : NULL;
    ctx->device_workspace_bytes = bytes;
    return SY_OK;
}

void syi_device_close(sy_ctx *ctx)
{
    if (ctx->cuda_device != NULL)
        ctx->cuda->close(ctx->cuda_device);
}

/* A fault of an earlier call becomes the context's error. */
sy_status syi_device_poll(sy_ctx *ctx)
{
    struct syc_report report;
    if (ctx->cuda_device == NULL || !ctx->cuda->take_report(ctx->cuda_device, &report))
        return SY_OK;
    const sy_op_info *const op = sy_op_at(report.op);
    syi_clear_fault(ctx, op->name);
    ctx->found = report.found;
    if (report.found.bad == SYI_BAD_TABLES_DIFFER)
        return syi_exchange_fail_tables(ctx, op->name, &report.found);
    ctx->device = (int)report.found.device;
    const sy_status st = syi_describe_found(ctx, op, SY_ERR_INDEX);
    ctx->device = 0;
    return st;
}

void syi_device_time_begin(sy_ctx *ctx)
{
    ctx->cuda->time_begin(ctx->cuda_device);
}

uint64_t syi_device_time_end(sy_ctx *ctx)
{
    return ctx->cuda->time_end(ctx->cuda_device);
}

sy_status syi_device_wait(sy_ctx *ctx)
{
    char sentence[256] = "";
    const sy_status st = ctx->cuda->wait(ctx->cuda_device, sentence, sizeof sentence);
    return st == SY_OK ? syi_device_poll(ctx)
                       : syi_fail(ctx, st, "stream", "could not be waited for: %s", sentence);
}

sy_status sy_ctx_sync(sy_ctx *ctx)
{
    if (ctx == NULL)
        return SY_ERR_NULL;
    syi_clear_fault(ctx, "sy_ctx_sync");
    return ctx->cuda_device != NULL ? syi_device_wait(ctx) : SY_OK;
}

/* For calls on the memory of a device. */
static sy_status need_device(sy_ctx *ctx, const char *function)
{
    syi_clear_fault(ctx, function);
    if (ctx->cuda_device != NULL)
        return SY_OK;
    return syi_fail(ctx, SY_ERR_DEVICE, "ctx", "has no device, want one that was created for a CUDA device");
}

sy_status sy_device_alloc(sy_ctx *ctx, size_t bytes, void **data)
{
    char sentence[256] = "";
    if (ctx == NULL || data == NULL)
        return SY_ERR_NULL;
    *data = NULL;
    SYI_TRY(need_device(ctx, "sy_device_alloc"));
    const sy_status st = ctx->cuda->alloc(ctx->cuda_device, bytes, data, sentence, sizeof sentence);
    return st == SY_OK ? SY_OK : syi_fail(ctx, st, "bytes", "is %zu: %s", bytes, sentence);
}

void sy_device_free(sy_ctx *ctx, void *data)
{
    if (ctx != NULL && ctx->cuda_device != NULL && data != NULL)
        ctx->cuda->free(ctx->cuda_device, data);
}

sy_status sy_device_copy(sy_ctx *ctx, void *to, const void *from, size_t bytes)
{
    char sentence[256] = "";
    if (ctx == NULL)
        return SY_ERR_NULL;
    SYI_TRY(need_device(ctx, "sy_device_copy"));
    if (bytes == 0)
        return SY_OK;
    if (to == NULL || from == NULL)
        return syi_fail(ctx, SY_ERR_NULL, to == NULL ? "to" : "from", "is NULL for %zu bytes", bytes);
    const sy_status st = ctx->cuda->copy(ctx->cuda_device, to, from, bytes, sentence, sizeof sentence);
    return st == SY_OK ? SY_OK : syi_fail(ctx, st, "bytes", "is %zu: %s", bytes, sentence);
}

sy_status sy_comm_alloc_device(sy_ctx *ctx, sy_comm *comm, size_t bytes, void **data)
{
    const struct syi_backend *const backend = ctx != NULL ? syi_device_backend(ctx) : NULL;
    return syi_comm_alloc_device(ctx, comm, bytes, data, backend != NULL ? backend->memory : NULL);
}

/* ---- Graphs ---- */

sy_status syi_own_stream(sy_ctx *ctx)
{
    char sentence[256] = "";
    SYI_TRY(need_device(ctx, "stream"));
    const sy_status st = ctx->cuda->own_stream(ctx->cuda_device, sentence, sizeof sentence);
    return st == SY_OK ? SY_OK : syi_fail(ctx, st, "stream", "cannot be made: %s", sentence);
}

sy_status syi_capture_begin(sy_ctx *ctx)
{
    char sentence[256] = "";
    SYI_TRY(need_device(ctx, "capture"));
    SYI_TRY(syi_device_poll(ctx));
    const sy_status st = ctx->cuda->capture_begin(ctx->cuda_device, sentence, sizeof sentence);
    return st == SY_OK ? SY_OK : syi_fail(ctx, st, "stream", "cannot be captured: %s", sentence);
}

sy_status syi_capture_end(sy_ctx *ctx, void **graph)
{
    char sentence[256] = "";
    struct syc_graph *made = NULL;
    syi_clear_fault(ctx, "capture");
    const sy_status st = ctx->cuda->capture_end(ctx->cuda_device, &made, sentence, sizeof sentence);
    *graph = made;
    return st == SY_OK ? SY_OK : syi_fail(ctx, st, "stream", "was not captured: %s", sentence);
}

sy_status syi_replay(sy_ctx *ctx, void *graph, int times, float *milliseconds)
{
    char sentence[256] = "";
    syi_clear_fault(ctx, "replay");
    const sy_status st =
        ctx->cuda->replay(ctx->cuda_device, graph, times, milliseconds, sentence, sizeof sentence);
    return st == SY_OK ? SY_OK : syi_fail(ctx, st, "graph", "was not replayed: %s", sentence);
}

void syi_graph_free(sy_ctx *ctx, void *graph)
{
    ctx->cuda->graph_free(ctx->cuda_device, graph);
}

sy_status sy_ctx_set_stream(sy_ctx *ctx, void *stream)
{
    if (ctx == NULL)
        return SY_ERR_NULL;
    SYI_TRY(need_device(ctx, "sy_ctx_set_stream"));
    ctx->cuda->set_stream(ctx->cuda_device, stream);
    return SY_OK;
}

sy_status sy_ctx_device_info_n(sy_ctx *ctx, sy_device_info *info, size_t info_bytes)
{
    sy_device_info known = {0};
    struct syc_device_info found = {0};
    char sentence[256] = "";
    if (ctx == NULL || info == NULL)
        return SY_ERR_NULL;
    memset(info, 0, info_bytes);
    SYI_TRY(need_device(ctx, "sy_ctx_device_info"));
    sy_status st = ctx->cuda->count(&known.count, sentence, sizeof sentence);
    if (st == SY_OK)
        st = ctx->cuda->describe(ctx->cuda_device, &found, sentence, sizeof sentence);
    if (st != SY_OK)
        return syi_fail(ctx, st, "device", "cannot be described: %s", sentence);
    memcpy(known.name, found.name, sizeof known.name);
    known.major = found.major;
    known.minor = found.minor;
    known.processors = found.processors;
    known.memory_bytes = found.memory_bytes;
    memcpy(info, &known, info_bytes < sizeof known ? info_bytes : sizeof known);
    return SY_OK;
}
