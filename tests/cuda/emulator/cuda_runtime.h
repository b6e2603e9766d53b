/*
 * The part of the CUDA runtime and of CUDA C that src/cuda uses, on a CPU: device memory is host memory, a launch runs
 * its blocks one after the other, and the threads of a block are fibers of the calling thread that change at barriers
 * and warp operations. It checks the logic of kernels on machines without a GPU; its speed means nothing, and it cannot
 * find races. A kernel that is launched early begins ahead of the kernels before it, so that what it reads of them without
 * waiting is wrong.
 */
#pragma once

/* Names of CUDA. NOLINTBEGIN(bugprone-reserved-identifier) */
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>

#define SWITCHYARD_CUDA_EMULATED 1

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)
#define __restrict__ __restrict
#define __shared__ static thread_local /* blocks take turns; kernels that one waits for have another thread */

/* ---- Fibers (emulator.cpp) ---- */

namespace emulator {
struct index {
    unsigned x, y, z;
};
unsigned thread(), threads(), block(), blocks();
void *dynamic_shared();
void sync_block();
int vote_block(int yes); /* sum over the block, with a barrier */

/* A cluster of blocks: a barrier, and the same place in the dynamic shared memory of another one. Static shared memory is one
   for all of them. */
void sync_cluster();
void *in_block(void *data, unsigned rank);

/* Every lane of `mask` puts a value and gets all 32, until it exchanges again; those of other lanes mean nothing. */
const uint64_t *exchange(uint32_t mask, uint64_t value);
void yield();
void progress(); /* of a loop that yields: what it waits for changed */
void sent();     /* the same, by a message to another block */

void wait_for_previous(); /* of a kernel that was launched early: runs the kernels before it */
} // namespace emulator

#define threadIdx (emulator::index{emulator::thread(), 0, 0})
#define blockIdx (emulator::index{emulator::block(), 0, 0})
#define blockDim (emulator::index{emulator::threads(), 1, 1})
#define gridDim (emulator::index{emulator::blocks(), 1, 1})

static inline void __syncthreads()
{
    emulator::sync_block();
}
static inline int __syncthreads_or(int yes)
{
    return emulator::vote_block(yes != 0) != 0;
}
static inline int __syncthreads_count(int yes)
{
    return emulator::vote_block(yes != 0);
}
static inline void __threadfence()
{
}
static inline void __syncwarp(uint32_t mask = 0xffffffffu)
{
    emulator::exchange(mask, 0);
}

/* ---- Warps ---- */

namespace emulator {
template <typename V> static inline uint64_t pack(V v)
{
    static_assert(sizeof v <= 8, "a warp exchanges at most 64 bits");
    uint64_t bits = 0;
    std::memcpy(&bits, &v, sizeof v);
    return bits;
}
template <typename V> static inline V unpack(uint64_t bits)
{
    V v;
    std::memcpy(&v, &bits, sizeof v);
    return v;
}
template <typename V, typename F> static inline V shuffle(uint32_t mask, V v, F from)
{
    const uint64_t *const all = exchange(mask, pack(v));
    return unpack<V>(all[from((int)(thread() % 32)) & 31]);
}
template <typename V, typename F> static inline V fold(uint32_t mask, V v, F f)
{
    const uint64_t *const all = exchange(mask, pack(v));
    bool first = true;
    V sum = v;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1) {
            sum = first ? unpack<V>(all[i]) : f(sum, unpack<V>(all[i]));
            first = false;
        }
    return sum;
}
} // namespace emulator

template <typename V> static inline V __shfl_sync(uint32_t mask, V v, int lane, int width = 32)
{
    return emulator::shuffle(mask, v, [=](int own) { return (own & ~(width - 1)) | (lane & (width - 1)); });
}
template <typename V> static inline V __shfl_xor_sync(uint32_t mask, V v, int bits)
{
    return emulator::shuffle(mask, v, [=](int own) { return own ^ bits; });
}
template <typename V> static inline V __shfl_up_sync(uint32_t mask, V v, unsigned by)
{
    return emulator::shuffle(mask, v, [=](int own) { return own >= (int)by ? own - (int)by : own; });
}
template <typename V> static inline V __shfl_down_sync(uint32_t mask, V v, unsigned by)
{
    return emulator::shuffle(mask, v, [=](int own) { return own + (int)by < 32 ? own + (int)by : own; });
}
static inline uint32_t __ballot_sync(uint32_t mask, int yes)
{
    const uint64_t *const all = emulator::exchange(mask, yes != 0);
    uint32_t bits = 0;
    for (int i = 0; i < 32; i++)
        bits |= (mask >> i & 1) && all[i] ? 1u << i : 0;
    return bits;
}
static inline int __any_sync(uint32_t mask, int yes)
{
    return __ballot_sync(mask, yes) != 0;
}
static inline int __all_sync(uint32_t mask, int yes)
{
    return __ballot_sync(mask, yes) == mask;
}
template <typename V> static inline uint32_t __match_any_sync(uint32_t mask, V v)
{
    const uint64_t *const all = emulator::exchange(mask, emulator::pack(v));
    uint32_t bits = 0;
    for (int i = 0; i < 32; i++)
        bits |= (mask >> i & 1) && all[i] == emulator::pack(v) ? 1u << i : 0;
    return bits;
}
template <typename V> static inline V __reduce_add_sync(uint32_t mask, V v)
{
    return emulator::fold(mask, v, [](V a, V b) { return (V)(a + b); });
}
template <typename V> static inline V __reduce_max_sync(uint32_t mask, V v)
{
    return emulator::fold(mask, v, [](V a, V b) { return a > b ? a : b; });
}
template <typename V> static inline V __reduce_min_sync(uint32_t mask, V v)
{
    return emulator::fold(mask, v, [](V a, V b) { return a < b ? a : b; });
}

/* ---- Memory ---- */

template <typename V> static inline V __ldg(const V *p)
{
    return *p;
}
template <typename V> static inline V __ldcs(const V *p)
{
    return *p;
}
template <typename V> static inline V __ldcg(const V *p)
{
    return *p;
}
template <typename V> static inline void __stcs(V *p, V v)
{
    *p = v;
}
template <typename V> static inline void __stcg(V *p, V v)
{
    *p = v;
}

namespace emulator {
template <typename V, typename F> static inline V replace(V *p, F f)
{
    const V old = *p;
    *p = f(old);
    return old;
}
} // namespace emulator
template <typename V> static inline V atomicAdd(V *p, V v)
{
    return emulator::replace(p, [=](V old) { return (V)(old + v); });
}
template <typename V> static inline V atomicMax(V *p, V v)
{
    return emulator::replace(p, [=](V old) { return old > v ? old : v; });
}
template <typename V> static inline V atomicMin(V *p, V v)
{
    return emulator::replace(p, [=](V old) { return old < v ? old : v; });
}
template <typename V> static inline V atomicOr(V *p, V v)
{
    return emulator::replace(p, [=](V old) { return old | v; });
}
template <typename V> static inline V atomicExch(V *p, V v)
{
    return emulator::replace(p, [=](V) { return v; });
}
template <typename V> static inline V atomicCAS(V *p, V was, V v)
{
    return emulator::replace(p, [=](V old) { return old == was ? v : old; });
}

struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    uint32_t x, y;
};
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return {x, y, z, w};
}
static inline uint2 make_uint2(uint32_t x, uint32_t y)
{
    return {x, y};
}

/* ---- Arithmetic; compiled without contraction ---- */

static inline float __uint_as_float(uint32_t bits)
{
    return emulator::unpack<float>(bits);
}
static inline uint32_t __float_as_uint(float v)
{
    return (uint32_t)emulator::pack(v);
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __frcp_rn(float a)
{
    return 1.0f / a;
}
/* Bytes of x (0 to 3) and y (4 to 7), each named by four bits. */
static inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t names)
{
    const uint64_t bytes = x | (uint64_t)y << 32;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++)
        out |= (uint32_t)(bytes >> 8 * (names >> 4 * i & 7) & 255) << 8 * i;
    return out;
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
namespace emulator {
float rough_power(float a); /* as ex2.approx.ftz, with errors up to the documented limit */
}
static inline unsigned long long __float2ull_rn(float a)
{
    return a > 0 ? (unsigned long long)rintf(a) : 0;
}
static inline float __ull2float_rn(unsigned long long a)
{
    return (float)a;
}
static inline int __popc(uint32_t v)
{
    return __builtin_popcount(v);
}
static inline int __ffsll(long long v)
{
    return __builtin_ffsll(v);
}
static inline int __popcll(unsigned long long v)
{
    return __builtin_popcountll(v);
}
static inline int __ffs(int v)
{
    return __builtin_ffs(v);
}
static inline int __clz(int v)
{
    return v == 0 ? 32 : __builtin_clz((unsigned)v);
}
static inline int __clzll(long long v)
{
    return v == 0 ? 64 : __builtin_clzll((unsigned long long)v);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline uint32_t __umulhi(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}
static inline uint32_t __dp4a(uint32_t a, uint32_t b, uint32_t sum)
{
    for (int shift = 0; shift < 32; shift += 8)
        sum += (a >> shift & 255) * (b >> shift & 255);
    return sum;
}
template <typename V> static inline V min(V a, V b)
{
    return a < b ? a : b;
}
template <typename V> static inline V max(V a, V b)
{
    return a > b ? a : b;
}

/* ---- Runtime ---- */

typedef int cudaError_t;
typedef struct emulated_stream *cudaStream_t;
typedef struct emulated_event *cudaEvent_t;
typedef struct emulated_graph *cudaGraph_t, *cudaGraphExec_t;
enum {
    cudaSuccess = 0,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901
};
enum { cudaStreamNonBlocking = 1 };
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed
};
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
enum {
    cudaHostAllocPortable = 1,
    cudaHostAllocMapped = 2,
    cudaEventDisableTiming = 2,
    cudaMemcpyDefault = 4
};
enum {
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem;
    int major, minor, multiProcessorCount;
};
enum { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
struct cudaPointerAttributes {
    int type, device;
};
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *data);
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device);
cudaError_t cudaMalloc(void **data, size_t bytes);
cudaError_t cudaFree(void *data);

/* Memory that another process maps: a file of this one. */
struct cudaIpcMemHandle_t {
    int process, file;
    size_t bytes;
    char unused[48];
};
enum { cudaIpcMemLazyEnablePeerAccess = 1 };
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *data);
cudaError_t cudaIpcOpenMemHandle(void **data, cudaIpcMemHandle_t handle, unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void *data);
cudaError_t cudaHostAlloc(void **data, size_t bytes, unsigned flags);
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags);
cudaError_t cudaFreeHost(void *data);
cudaError_t cudaMemsetAsync(void *data, int byte, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, int kind, cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);

/* Work of a capturing stream is kept and runs when the graph is launched; what allocates or waits invalidates the capture, unless
   its thread is in the relaxed mode. */
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

/* Events read a clock that every launch moves by a microsecond. */
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaGetLastError();

/* Loads a kernel, as its first launch would otherwise. */
struct cudaFuncAttributes {
    int unused;
};
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *kernel);
const char *cudaGetErrorString(cudaError_t error);

namespace emulator {
void finish(); /* runs what is pending */

/* Memory of the host, counted with other slow calls, and failing when a test asks for it. */
void *host_malloc(size_t bytes);
void *host_calloc(size_t n, size_t bytes);
void *host_realloc(void *data, size_t bytes);

/* A launch into a stream. It runs when something waits for it; early: what is ahead of wait_for_previous runs before
   kernels that nothing waited for. */
void launch(const void *kernel, cudaStream_t stream, bool early, unsigned grid, unsigned cluster,
            unsigned threads, size_t shared_bytes, std::function<void()> body);
} // namespace emulator

#define malloc(bytes) emulator::host_malloc(bytes)
#define calloc(n, bytes) emulator::host_calloc(n, bytes)
#define realloc(data, bytes) emulator::host_realloc(data, bytes)

/* NOLINTEND(bugprone-reserved-identifier) */
