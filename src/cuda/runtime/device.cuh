/*
 * What the kernels of this backend share: launching, validating ahead of writing, and copying rows.
 *
 * Every call follows one pattern. A first kernel validates contents: each of its blocks stores the first
 * fault it found, or that it found none, so nothing has to be reset between calls and a replayed graph
 * behaves like the first launch. The kernel that writes is launched as its programmatic dependent: it starts
 * early and may load inputs, then waits for the validation, and stores only when no block found a fault.
 * After bad contents no byte of any output is written, in stream order, without the host.
 */
#pragma once

#include <cuda_runtime.h>

#include "plan/plan.h"
#include "cuda/cuda.h"

typedef unsigned char u8;
typedef unsigned short u16;
typedef uint32_t u32;
typedef unsigned long long u64;

#define SYC_ALL_LANES 0xffffffffu

/* ---- Launching ---- */

#define SYC_INLINE static __device__ __forceinline__

/* A device function that stays out of line, because it is long and rarely runs. */
#ifdef SWITCHYARD_CUDA_EMULATED
#define SYC_COLD static __attribute__((noinline, unused))
#define SYC_DYNAMIC_SHARED(type, name) type *const name = (type *)emulator::dynamic_shared()
#else
#define SYC_COLD static __device__ __noinline__
#define SYC_DYNAMIC_SHARED(type, name) \
    extern __shared__ __align__(128) u8 syc_dynamic_shared[]; \
    type *const name = (type *)syc_dynamic_shared
#endif

/* The kernel that follows in the stream may start now; what it reads of this one it must wait for. */
SYC_INLINE void syc_start_next()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Waits until the kernel before has ended and its stores are visible. */
SYC_INLINE void syc_wait_for_previous()
{
#ifdef SWITCHYARD_CUDA_EMULATED
    emulator::wait_for_previous();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* The stream of a call and the first error of its launches. */
struct syc_queue {
    cudaStream_t stream;
    cudaError_t error;
    int processors;
    bool dependent; /* the device knows programmatic dependent launches */
    bool only_load; /* kernels are loaded and not launched */
    /* kernels divide the memory of a multiprocessor alike, most of it shared: one may start beside another */
    bool most_shared;
};

enum syc_start { SYC_AFTER, SYC_EARLY }; /* SYC_EARLY: the kernel calls syc_wait_for_previous */

/* `cluster` blocks run together, for cluster.cuh: 1 to 8, or 16 where kernel and device allow it. */
template <typename... P, typename... A>
static void syc_launch_clusters(syc_queue *q, void (*kernel)(P...), syc_start start, int64_t blocks,
                                int cluster, int threads, size_t shared, A... arguments)
{
    if (q->only_load && q->error == cudaSuccess) {
        cudaFuncAttributes unused;
        q->error = cudaFuncGetAttributes(&unused, (const void *)kernel);
        return;
    }
    if (q->error == cudaSuccess && blocks > INT32_MAX)
        q->error = cudaErrorInvalidConfiguration;
    if (q->error != cudaSuccess || blocks == 0)
        return;
#ifdef SWITCHYARD_CUDA_EMULATED
    emulator::launch((const void *)kernel, q->stream, start == SYC_EARLY && q->dependent, (unsigned)blocks,
                     (unsigned)cluster, (unsigned)threads, shared, [=] { kernel(arguments...); });
#else
    cudaLaunchAttribute attribute[3];
    unsigned n = 0;
    if (q->most_shared) {
        attribute[n].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
        attribute[n++].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
    }
    if (start == SYC_EARLY && q->dependent) {
        attribute[n].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute[n++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
        attribute[n].id = cudaLaunchAttributeClusterDimension;
        attribute[n].val.clusterDim.x = (unsigned)cluster;
        attribute[n].val.clusterDim.y = attribute[n].val.clusterDim.z = 1;
        n++;
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = shared;
    config.stream = q->stream;
    config.attrs = attribute;
    config.numAttrs = n;
    q->error = cudaLaunchKernelEx(&config, kernel, P(arguments)...);
#endif
}

template <typename... P, typename... A>
static void syc_launch(syc_queue *q, void (*kernel)(P...), syc_start start, int64_t blocks, int threads,
                       size_t shared, A... arguments)
{
    syc_launch_clusters(q, kernel, start, blocks, 1, threads, shared, arguments...);
}

/* ---- Validating ---- */

#define SYC_NO_FAULT (~0ull)

/* First fault of a block of the validating kernel: `order` is smaller for a fault that is reported first. */
struct syc_gate {
    u64 *order;       /* [n] */
    syi_found *found; /* [n], where order is not SYC_NO_FAULT */
    int n;            /* 0: nothing to validate */
    u32 *closed;      /* of the context: a fault was reported and the host has not read it */
    /* of the context, in memory of the host; NULL: the host learns of faults otherwise */
    syc_report *report;
    int op;
};

/* A gate that no fault closes: for kernels that write scratch memory alone. */
static inline syc_gate syc_open(syc_gate gate)
{
    gate.n = 0;
    gate.order = NULL;
    return gate;
}

/*
 * A check is a struct with `int64_t n`, the items it validates, `bool wrong(int64_t i)`, and `void
 * explain(int64_t i, struct syi_found *)`. The fault of a smaller item is reported first.
 */
template <class Check> SYC_COLD void syc_explain(const Check &check, u64 i, syi_found *f)
{
    check.explain((int64_t)i, f);
}

template <class Check>
static __global__ void __launch_bounds__(256)
    syc_validate(const syc_gate gate, const __grid_constant__ Check check)
{
    __shared__ u64 first;
    u64 own = SYC_NO_FAULT;
    syc_start_next();
    if (threadIdx.x == 0)
        first = SYC_NO_FAULT;
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < check.n; i += (int64_t)gridDim.x * 256)
        if (check.wrong(i)) {
            own = (u64)i;
            break;
        }
    if (__syncthreads_or(own != SYC_NO_FAULT) != 0) {
        atomicMin(&first, own);
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        gate.order[blockIdx.x] = first;
        if (first != SYC_NO_FAULT)
            syc_explain(check, first, &gate.found[blockIdx.x]);
    }
}

/* After the fault is in the report. */
SYC_INLINE void syc_close(const syc_gate &gate)
{
    gate.report->op = gate.op;
#ifndef SWITCHYARD_CUDA_EMULATED
    __threadfence_system();
#endif
    *(volatile u32 *)&gate.report->set = 1;
    *gate.closed = 1;
}

/* Reports the first fault to the host, unless one is reported already. */
static __device__ void syc_report_fault(const syc_gate &gate)
{
    u64 least = SYC_NO_FAULT;
    int where = -1;
    for (int i = 0; i < gate.n; i++)
        if (__ldcg(gate.order + i) < least) {
            least = __ldcg(gate.order + i);
            where = i;
        }
    if (where < 0 || gate.report == NULL || *gate.closed != 0)
        return;
    gate.report->found = gate.found[where];
    syc_close(gate);
}

/* The last thread of a block has no word of the validation to wait for, as a rule. */
SYC_INLINE bool syc_sees_closed(const syc_gate &gate)
{
    return threadIdx.x + 1 == blockDim.x && __ldcg(gate.closed) != 0;
}

/* Whether the kernel may write; all threads of a block call it, with the same result. Waits for the
   validation. */
SYC_INLINE bool syc_may_write(const syc_gate &gate)
{
    syc_wait_for_previous();
    bool bad = syc_sees_closed(gate);
    for (int i = (int)threadIdx.x; i < gate.n; i += (int)blockDim.x)
        bad |= __ldcg(gate.order + i) != SYC_NO_FAULT;
    if (__syncthreads_or(bad) == 0)
        return true;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        syc_report_fault(gate);
    return false;
}

/*
 * The same in two steps, for kernels that load more than faults after syc_wait_for_previous: what a thread
 * saw, and, a barrier, whether no thread of the block saw a fault. Reporting is out of line: it costs no
 * registers in a kernel whose gate is a __grid_constant__.
 */
SYC_INLINE bool syc_sees_fault(const syc_gate &gate)
{
    bool bad = syc_sees_closed(gate);
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < gate.n; i += (int)blockDim.x)
        bad |= __ldcg(gate.order + i) != SYC_NO_FAULT;
    return bad;
}

[[maybe_unused]] SYC_COLD void syc_report_rarely(const syc_gate &gate)
{
    syc_report_fault(gate);
}

SYC_INLINE bool syc_all_clear(const syc_gate &gate, bool sees_fault)
{
    if (__syncthreads_or(sees_fault) == 0)
        return true;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        syc_report_rarely(gate);
    return false;
}

/* ---- Numbers ---- */

static inline int64_t syc_ceil(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* i / d for i < 2^31, 0 < d < 2^31, without a division. */
struct syc_divisor {
    u32 d, magic, shift;
};

static inline syc_divisor syc_divisor_of(u32 d)
{
    u32 shift = 0;
    while (shift < 31 && (1u << shift) < d)
        shift++;
    return {d, (u32)((((u64)1 << 32) * (((u64)1 << shift) - d)) / d + 1), shift};
}

SYC_INLINE u32 syc_divide(u32 i, const syc_divisor &by)
{
    const u32 high = __umulhi(i, by.magic);
    return (u32)(((u64)high + i) >> by.shift);
}

/* i / d of 64 bits, cheap where both fit 31. */
struct syc_split {
    int64_t d;
    syc_divisor small; /* d 0: too large */
};

static inline syc_split syc_split_by(int64_t d, int64_t most)
{
    syc_split split = {d, {0, 0, 0}};
    if (d > 0 && d <= INT32_MAX && most <= INT32_MAX)
        split.small = syc_divisor_of((u32)d);
    return split;
}

SYC_INLINE int64_t syc_quotient(int64_t i, const syc_split &by)
{
    return by.small.d != 0 ? (int64_t)syc_divide((u32)i, by.small) : i / by.d;
}

template <typename V> SYC_INLINE V syc_zero()
{
    V v;
    memset(&v, 0, sizeof v);
    return v;
}
