/*
 * See switchyard_cuda_tools.h.
 */
#include <switchyard_cuda_tools.h>

#include <cstdlib>

#include "cuda/runtime/backend.cuh"

struct sy_cuda_timer {
    syc_device *device;
    syc_graph *graph;
    cudaEvent_t begin, end;
    void *sink; /* of reads */
};

static void close_timer(sy_cuda_timer *timer)
{
    if (timer == NULL)
        return;
    {
        syc_on_device on(timer->device);
        syc_graph_free(timer->device, timer->graph);
        cudaFree(timer->sink);
        if (timer->begin != NULL)
            cudaEventDestroy(timer->begin);
        if (timer->end != NULL)
            cudaEventDestroy(timer->end);
    }
    syi_cuda_library()->close(timer->device);
    free(timer);
}

static sy_status open_timer(sy_cuda_timer **timer, int ordinal, char *sentence, size_t bytes)
{
    syc_device *device = NULL;
    *timer = NULL;
    const sy_status st = syi_cuda_library()->open(&device, ordinal, NULL, sentence, bytes);
    if (st != SY_OK)
        return st;
    sy_cuda_timer *const made = (sy_cuda_timer *)calloc(1, sizeof *made);
    if (made == NULL) {
        syi_cuda_library()->close(device);
        return syc_fail(sentence, bytes, SY_ERR_NOMEM, "a timer could not be allocated",
                        cudaErrorMemoryAllocation);
    }
    made->device = device;
    syc_on_device on(device);
    cudaError_t code = cudaMalloc(&made->sink, sizeof(u32));
    if (code == cudaSuccess)
        code = cudaEventCreate(&made->begin);
    if (code == cudaSuccess)
        code = cudaEventCreate(&made->end);
    if (code != cudaSuccess) {
        close_timer(made);
        return syc_fail(sentence, bytes, SY_ERR_DEVICE, "time cannot be measured", code);
    }
    *timer = made;
    return SY_OK;
}

/* ---- Calls ---- */

static sy_status record(sy_cuda_timer *timer, void **stream, char *sentence, size_t bytes)
{
    syc_graph_free(timer->device, timer->graph);
    timer->graph = NULL;
    const sy_status st = syc_capture_begin(timer->device, sentence, bytes);
    *stream = timer->device->stream;
    return st;
}

static sy_status finish(sy_cuda_timer *timer, char *sentence, size_t bytes)
{
    return syc_capture_end(timer->device, &timer->graph, sentence, bytes);
}

static sy_status replay(sy_cuda_timer *timer, double *seconds, char *sentence, size_t bytes)
{
    float milliseconds = 0;
    const sy_status st = syc_replay(timer->device, timer->graph, 1, &milliseconds, sentence, bytes);
    *seconds = 1e-3 * milliseconds;
    return st;
}

/* ---- Limits ---- */

enum { READ_THREADS = 512, READ_AT_ONCE = 8 };

static __device__ u32 fold(const uint4 v)
{
    return v.x ^ v.y ^ v.z ^ v.w;
}

static __global__ void __launch_bounds__(READ_THREADS) read_all(const uint4 *from, const int64_t n, u32 *sink)
{
    const int64_t step = (int64_t)gridDim.x * READ_THREADS;
    int64_t i = (int64_t)blockIdx.x * READ_THREADS + threadIdx.x;
    u32 sum = 0;
    for (; i + (READ_AT_ONCE - 1) * step < n; i += READ_AT_ONCE * step) {
        uint4 v[READ_AT_ONCE];
#pragma unroll
        for (int k = 0; k < READ_AT_ONCE; k++)
            v[k] = __ldcs(from + i + k * step);
#pragma unroll
        for (int k = 0; k < READ_AT_ONCE; k++)
            sum ^= fold(v[k]);
    }
    for (; i < n; i += step)
        sum ^= fold(__ldcs(from + i));
    if (sum == 0x9e3779b9u) /* keeps the loads */
        *sink = sum;
}

static cudaError_t queue_limit(sy_cuda_timer *timer, enum sy_cuda_limit limit, void *to, const void *from,
                               size_t n)
{
    syc_call call = syc_begin(timer->device, 0, NULL);
    if (limit == SY_CUDA_COPY)
        return cudaMemcpyAsync(to, from, n, cudaMemcpyDefault, timer->device->stream);
    if (limit == SY_CUDA_FILL)
        return cudaMemsetAsync(to, 0, n, timer->device->stream);
    syc_launch(&call.queue, read_all, SYC_AFTER, (int64_t)timer->device->processors * (2048 / READ_THREADS),
               READ_THREADS, 0, (const uint4 *)from, (int64_t)(n / sizeof(uint4)), (u32 *)timer->sink);
    return call.queue.error;
}

static sy_status measure_limit(sy_cuda_timer *timer, enum sy_cuda_limit limit, void *to, const void *from,
                               size_t n, double *seconds, char *sentence, size_t bytes)
{
    syc_on_device on(timer->device);
    const cudaStream_t stream = timer->device->stream;
    float milliseconds = 0;
    cudaError_t code = cudaEventRecord(timer->begin, stream);
    if (code == cudaSuccess)
        code = queue_limit(timer, limit, to, from, n);
    if (code == cudaSuccess)
        code = cudaEventRecord(timer->end, stream);
    if (code == cudaSuccess)
        code = cudaEventSynchronize(timer->end);
    if (code == cudaSuccess)
        code = cudaEventElapsedTime(&milliseconds, timer->begin, timer->end);
    *seconds = 1e-3 * milliseconds;
    return code == cudaSuccess ? SY_OK
                               : syc_fail(sentence, bytes, SY_ERR_DEVICE, "a limit cannot be measured", code);
}

/* ---- The table ---- */

#define NAME(ID, op) #op,
static const char *const operators[] = {SYC_OPERATORS(NAME) SYI_MESH_OPERATORS(NAME) NULL};
#undef NAME

extern "C" const struct sy_cuda_tools *sy_cuda_tools_entry(void)
{
    static const struct sy_cuda_tools tools = {sizeof tools, operators, open_timer, close_timer,
                                               record,       finish,    replay,     measure_limit};
    return &tools;
}
