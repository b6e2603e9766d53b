/*
 * Devices, streams, scratch memory and reports: everything a context needs of CUDA besides kernels.
 */
#include "cuda/device.cuh"
#include "cuda/context.h"

#include <cstdio>
#include <cstdlib>

static sy_status fail(char *error, size_t bytes, sy_status status, const char *what, cudaError_t code)
{
    snprintf(error, bytes, "%s: %s", what, cudaGetErrorString(code));
    return status;
}

static sy_status count(int *n, char *error, size_t bytes)
{
    const cudaError_t code = cudaGetDeviceCount(n);
    return code == cudaSuccess ? SY_OK : fail(error, bytes, SY_ERR_DEVICE, "no CUDA device can be used", code);
}

static sy_status describe(int ordinal, struct syc_device_info *info, char *error, size_t bytes)
{
    cudaDeviceProp properties;
    const cudaError_t code = cudaGetDeviceProperties(&properties, ordinal);
    if (code != cudaSuccess)
        return fail(error, bytes, SY_ERR_DEVICE, "the CUDA device cannot be described", code);
    snprintf(info->name, sizeof info->name, "%s", properties.name);
    info->major = properties.major;
    info->minor = properties.minor;
    info->processors = properties.multiProcessorCount;
    info->memory_bytes = properties.totalGlobalMem;
    return SY_OK;
}

/* ---- Contexts --------------------------------------------------------------------------------------------------- */

static void close_device(struct syc_device *device)
{
    if (device == NULL)
        return;
    cudaFree(device->scratch);
    cudaFree(device->words);
    if (device->report != NULL)
        cudaFreeHost(device->report);
    free(device);
}

/* Device memory of the gate: order and found of every block, and whether the gate is closed. */
static size_t gate_bytes(void)
{
    return SYC_MAX_CHECK_BLOCKS * (sizeof(u64) + sizeof(struct syi_found)) + sizeof(u32);
}

static cudaError_t prepare(struct syc_device *d)
{
    int major = 0;
    cudaError_t code = cudaSetDevice(d->ordinal);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&d->processors, cudaDevAttrMultiProcessorCount, d->ordinal);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, d->ordinal);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&d->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, d->ordinal);
    d->dependent = major >= 9;
    if (code == cudaSuccess)
        code = cudaMalloc(&d->words, gate_bytes());
    if (code == cudaSuccess)
        code = cudaHostAlloc((void **)&d->report, sizeof *d->report, cudaHostAllocMapped);
    if (code == cudaSuccess)
        code = cudaHostGetDevicePointer((void **)&d->report_on_device, d->report, 0);
    if (code == cudaSuccess) {
        memset(d->report, 0, sizeof *d->report);
        code = cudaMemsetAsync(d->words, 0, gate_bytes(), d->stream);
    }
    return code == cudaSuccess ? cudaStreamSynchronize(d->stream) : code;
}

static sy_status open_device(struct syc_device **device, int ordinal, void *stream, char *error, size_t bytes)
{
    int n = 0, before = 0;
    *device = NULL;
    const sy_status st = count(&n, error, bytes);
    if (st != SY_OK)
        return st;
    if (ordinal < 0 || ordinal >= n) {
        snprintf(error, bytes, "device is cuda:%d, want below %d, the CUDA devices of this machine", ordinal, n);
        return SY_ERR_DEVICE;
    }
    struct syc_device *made = (struct syc_device *)calloc(1, sizeof *made);
    if (made == NULL) {
        snprintf(error, bytes, "a device context could not be allocated");
        return SY_ERR_NOMEM;
    }
    made->ordinal = ordinal;
    made->stream = (cudaStream_t)stream;
    cudaGetDevice(&before);
    const cudaError_t code = prepare(made);
    cudaSetDevice(before);
    if (code != cudaSuccess) {
        close_device(made);
        return fail(error, bytes, code == cudaErrorMemoryAllocation ? SY_ERR_NOMEM : SY_ERR_DEVICE,
                    "the CUDA device cannot be used", code);
    }
    *device = made;
    return SY_OK;
}
