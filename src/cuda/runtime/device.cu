/*
 * Devices, streams, scratch memory and reports: everything a context needs of CUDA besides kernels.
 */
#include "cuda/runtime/context.cuh"

#include <cstdio>
#include <cstdlib>

sy_status syc_fail(char *sentence, size_t bytes, sy_status status, const char *what, cudaError_t code)
{
    snprintf(sentence, bytes, "%s: %s", what, cudaGetErrorString(code));
    cudaGetLastError(); /* it is reported here, not by the caller's next CUDA call */
    return status;
}

static sy_status count(int *n, char *sentence, size_t bytes)
{
    const cudaError_t code = cudaGetDeviceCount(n);
    return code == cudaSuccess ? SY_OK
                               : syc_fail(sentence, bytes, SY_ERR_DEVICE, "no CUDA device can be used", code);
}

static sy_status describe_device(const syc_device *device, syc_device_info *info, char *sentence,
                                 size_t bytes)
{
    cudaDeviceProp properties;
    const cudaError_t code = cudaGetDeviceProperties(&properties, device->ordinal);
    if (code != cudaSuccess)
        return syc_fail(sentence, bytes, SY_ERR_DEVICE, "the CUDA device cannot be described", code);
    snprintf(info->name, sizeof info->name, "%.127s", properties.name);
    info->major = properties.major;
    info->minor = properties.minor;
    info->processors = properties.multiProcessorCount;
    info->memory_bytes = properties.totalGlobalMem;
    return SY_OK;
}

/* ---- Contexts ---- */

static void close_device(syc_device *device)
{
    if (device == NULL)
        return;
    syc_on_device on(device);
    cudaFree(device->scratch);
    while (device->smaller != NULL) {
        syc_kept *const next = device->smaller->next;
        cudaFree(device->smaller->data);
        free(device->smaller);
        device->smaller = next;
    }
    if (device->begin != NULL)
        cudaEventDestroy(device->begin);
    if (device->end != NULL)
        cudaEventDestroy(device->end);
    cudaFree(device->words);
    if (device->own != NULL)
        cudaStreamDestroy(device->own);
    if (device->capture != NULL)
        cudaStreamDestroy(device->capture);
    if (device->report != NULL)
        cudaFreeHost(device->report);
    free(device->host_scratch);
    syc_exchange_free(device->exchange);
    free(device);
}

/* Device memory of the gate: order and found of every block, whether the gate is closed, and a word that is
   always 0. */
static size_t gate_bytes(void)
{
    return SYC_GATE_WORDS * (sizeof(u64) + sizeof(syi_found)) + 2 * sizeof(u32);
}

static cudaError_t prepare(syc_device *d)
{
    int major = 0;
    cudaError_t code = cudaDeviceGetAttribute(&d->all, cudaDevAttrMultiProcessorCount, d->ordinal);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, d->ordinal);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&d->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, d->ordinal);
    d->processors = d->all;
    d->dependent = major >= 9;
    if (code == cudaSuccess)
        code = cudaMalloc(&d->words, gate_bytes());
    if (code == cudaSuccess)
        code = cudaHostAlloc((void **)&d->report, sizeof *d->report, cudaHostAllocMapped);
    if (code == cudaSuccess)
        code = cudaHostGetDevicePointer((void **)&d->report_on_device, d->report, 0);
    if (code != cudaSuccess)
        return code;
    memset(d->report, 0, sizeof *d->report);
    cudaStream_t once = NULL; /* the caller's may be captured */
    code = cudaStreamCreateWithFlags(&once, cudaStreamNonBlocking);
    if (code != cudaSuccess)
        return code;
    code = cudaMemsetAsync(d->words, 0, gate_bytes(), once);
    if (code == cudaSuccess)
        code = cudaStreamSynchronize(once);
    cudaStreamDestroy(once);
    return code;
}

static sy_status open_device(syc_device **device, int ordinal, void *stream, char *sentence, size_t bytes)
{
    int n = 0;
    *device = NULL;
    const sy_status st = count(&n, sentence, bytes);
    if (st != SY_OK)
        return st;
    if (ordinal < 0 || ordinal >= n) {
        snprintf(sentence, bytes,
                 "device is cuda:%d, want 0 or more and below %d, the CUDA devices of this machine", ordinal,
                 n);
        return SY_ERR_DEVICE;
    }
    syc_device *const made = (syc_device *)calloc(1, sizeof *made);
    if (made == NULL) {
        snprintf(sentence, bytes, "the state of a device could not be allocated");
        return SY_ERR_NOMEM;
    }
    made->ordinal = ordinal;
    made->stream = (cudaStream_t)stream;
    cudaError_t code = cudaSuccess;
    {
        syc_on_device on(made);
        syc_beside_captures beside;
        code = prepare(made);
    }
    if (code != cudaSuccess) {
        close_device(made);
        return syc_fail(sentence, bytes, code == cudaErrorMemoryAllocation ? SY_ERR_NOMEM : SY_ERR_DEVICE,
                        "the CUDA device cannot be used", code);
    }
    *device = made;
    return SY_OK;
}

static void set_stream(syc_device *device, void *stream)
{
    device->stream = (cudaStream_t)stream;
}

static void set_processors(syc_device *device, int n)
{
    device->processors = n > 0 && n < device->all ? n : device->all;
}

static sy_status wait_for(syc_device *device, char *sentence, size_t bytes)
{
    syc_on_device on(device);
    const cudaError_t code = cudaStreamSynchronize(device->stream);
    return code == cudaSuccess ? SY_OK
                               : syc_fail(sentence, bytes, SY_ERR_DEVICE, "the CUDA device reports", code);
}

static sy_status alloc_memory(syc_device *device, size_t n, void **data, char *sentence, size_t bytes)
{
    syc_on_device on(device);
    const cudaError_t code = cudaMalloc(data, n > 0 ? n : 1);
    if (code == cudaSuccess)
        return SY_OK;
    *data = NULL;
    return syc_fail(sentence, bytes, SY_ERR_NOMEM, "device memory could not be allocated", code);
}

static void free_memory(syc_device *device, void *data)
{
    syc_on_device on(device);
    cudaFree(data);
}

static sy_status copy_memory(syc_device *device, void *to, const void *from, size_t n, char *sentence,
                             size_t bytes)
{
    syc_on_device on(device);
    cudaError_t code = cudaMemcpyAsync(to, from, n, cudaMemcpyDefault, device->stream);
    code = code == cudaSuccess ? cudaStreamSynchronize(device->stream) : code;
    return code == cudaSuccess ? SY_OK
                               : syc_fail(sentence, bytes, SY_ERR_DEVICE, "memory could not be copied", code);
}

static void time_begin(syc_device *device)
{
    syc_on_device on(device);
    if (syc_captures(device))
        return;
    if (device->begin == NULL && cudaEventCreate(&device->begin) != cudaSuccess)
        device->begin = NULL;
    if (device->end == NULL && cudaEventCreate(&device->end) != cudaSuccess)
        device->end = NULL;
    if (device->begin != NULL)
        cudaEventRecord(device->begin, device->stream);
}

static uint64_t time_end(syc_device *device)
{
    syc_on_device on(device);
    float milliseconds = 0;
    if (syc_captures(device) || device->begin == NULL || device->end == NULL ||
        cudaEventRecord(device->end, device->stream) != cudaSuccess ||
        cudaEventSynchronize(device->end) != cudaSuccess ||
        cudaEventElapsedTime(&milliseconds, device->begin, device->end) != cudaSuccess)
        return 0;
    return (uint64_t)((double)milliseconds * 1e6 + 0.5);
}

static bool owns_memory(const syc_device *device, const void *data)
{
    cudaPointerAttributes attributes;
    syc_on_device on(device);
    if (cudaPointerGetAttributes(&attributes, data) == cudaSuccess)
        return (attributes.type == cudaMemoryTypeDevice && attributes.device == device->ordinal) ||
               attributes.type == cudaMemoryTypeManaged;
    cudaGetLastError();
    return false;
}

static u32 *closed_word(const syc_device *d)
{
    return (u32 *)((syi_found *)((u64 *)d->words + SYC_GATE_WORDS) + SYC_GATE_WORDS);
}

static bool take_report(syc_device *device, syc_report *report)
{
    if (*(volatile uint32_t *)&device->report->set == 0)
        return false;
    syc_on_device on(device);
    if (syc_captures(device))
        return false; /* the word would be cleared by replays; it is read after the capture */
    *report = *device->report;
    memset(device->report, 0, sizeof *device->report);
    cudaMemsetAsync(closed_word(device), 0, sizeof(u32), device->stream);
    return true;
}

syc_call syc_begin(syc_device *device, int op, void *scratch)
{
    u64 *const order = (u64 *)device->words;
    syi_found *const found = (syi_found *)(order + SYC_GATE_WORDS);
    const syc_queue queue = {device->stream, cudaSuccess, device->processors, device->dependent, false};
    const syc_gate gate = {order, found, 0, closed_word(device), device->report_on_device, op};
    device->n_choices = 0;
    return {device, queue, gate, (unsigned char *)scratch};
}

/* ---- The library ---- */

extern "C" const syc_library *syi_cuda_library(void)
{
    static const syc_library library = {
        SYC_BUILD,       &syc_backend,   count,         describe_device, open_device,    close_device,
        set_stream,      set_processors, wait_for,      alloc_memory,    free_memory,    copy_memory,
        time_begin,      time_end,       owns_memory,   take_report,     syc_own_stream, syc_capture_begin,
        syc_capture_end, syc_replay,     syc_graph_free};
    return &library;
}
