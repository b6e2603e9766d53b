/*
 * Bulk loads: one thread starts the copy of a piece from global to shared memory, and a barrier in shared
 * memory counts its bytes. From sm_90 on; a kernel that uses them begins with `if (!SYC_BULK) return;` and is
 * launched only where syc_has_bulk is true.
 *
 * A barrier goes through phases. A phase ends when `n` arrivals were made and as many bytes were loaded as
 * expected. The wait for phase p (0, 1, 2 ...) takes p & 1; it must not be more than one phase behind.
 *
 *     syc_barrier_init(&full, 1);                       one thread; syc_barrier_fence(); __syncthreads()
 *     syc_barrier_expect(&full, bytes);                 one thread: an arrival, and the bytes of this phase
 *     syc_bulk_load(to, from, part, &full);             any threads; addresses and sizes are multiples of 16
 *     syc_barrier_wait(&full, phase & 1);               any threads, then they may read what was loaded
 */
#pragma once

#include "cuda/runtime/context.cuh"

#if defined(SWITCHYARD_CUDA_EMULATED) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900)
#define SYC_BULK 1
#else
#define SYC_BULK 0
#endif

/* both since sm_90 */
static inline bool syc_has_bulk(const syc_device *device)
{
    return device->dependent;
}

/* For launches of a kernel with more than 48 KiB of dynamic shared memory, at most device->shared_bytes. */
template <typename... P> static void syc_allow_shared(syc_queue *q, void (*kernel)(P...), size_t shared)
{
#ifndef SWITCHYARD_CUDA_EMULATED
    if (q->error == cudaSuccess)
        q->error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
#else
    (void)q;
    (void)kernel;
    (void)shared;
#endif
}

template <typename... P, typename... A>
static void syc_launch_large(syc_queue *q, void (*kernel)(P...), syc_start start, int64_t blocks, int threads,
                             size_t shared, A... arguments)
{
    syc_allow_shared(q, kernel, shared);
    syc_launch(q, kernel, start, blocks, threads, shared, arguments...);
}

/* For a kernel that ends while one with much shared memory starts beside it: both then divide the memory of a
   multiprocessor in the same way. */
template <typename... P> static void syc_prefer_shared(syc_queue *q, void (*kernel)(P...))
{
#ifndef SWITCHYARD_CUDA_EMULATED
    if (q->error == cudaSuccess)
        q->error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                        cudaSharedmemCarveoutMaxShared);
#else
    (void)q;
    (void)kernel;
#endif
}

#ifdef SWITCHYARD_CUDA_EMULATED
struct syc_barrier {
    u32 phase, count, missing; /* arrivals */
    int64_t bytes;             /* expected and not loaded */
};

static inline void syc_barrier_end_phase(syc_barrier *bar)
{
    if (bar->missing != 0 || bar->bytes != 0)
        return;
    bar->phase++;
    bar->missing = bar->count;
    emulator::progress();
}
static inline void syc_barrier_init(syc_barrier *bar, u32 n)
{
    *bar = {0, n, n, 0};
}
static inline void syc_barrier_fence() {}
static inline void syc_barrier_expect(syc_barrier *bar, u32 bytes)
{
    bar->bytes += bytes;
    bar->missing--;
    syc_barrier_end_phase(bar);
}
static inline void syc_barrier_arrive(syc_barrier *bar)
{
    syc_barrier_expect(bar, 0);
}
static inline void syc_barrier_wait(syc_barrier *bar, u32 parity)
{
    while ((bar->phase & 1) == parity)
        emulator::yield();
}
static inline void syc_bulk_prefetch(const void *from, u32 bytes)
{
    for (u32 i = 0; i < bytes; i += 16)
        (void)*(const volatile u8 *)((const u8 *)from + i);
}
static inline void syc_bulk_load(void *to, const void *from, u32 bytes, syc_barrier *bar)
{
    memcpy(to, from, bytes);
    bar->bytes -= bytes;
    syc_barrier_end_phase(bar);
}
#else
struct syc_barrier {
    u64 word;
};

SYC_INLINE u32 syc_shared(const void *p)
{
    return (u32)__cvta_generic_to_shared(p);
}

SYC_INLINE void syc_barrier_init(syc_barrier *bar, u32 n)
{
#if SYC_BULK
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(syc_shared(bar)), "r"(n) : "memory");
#endif
}

/* After the barriers are set up, by the thread that did it. */
SYC_INLINE void syc_barrier_fence()
{
#if SYC_BULK
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

SYC_INLINE void syc_barrier_arrive(syc_barrier *bar)
{
#if SYC_BULK
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(syc_shared(bar)) : "memory");
#endif
}

SYC_INLINE void syc_barrier_expect(syc_barrier *bar, u32 bytes)
{
#if SYC_BULK
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(syc_shared(bar)), "r"(bytes)
                 : "memory");
#endif
}

SYC_INLINE void syc_barrier_wait(syc_barrier *bar, u32 parity)
{
#if SYC_BULK
    u32 done = 0;
    while (!done)
        asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
            : "=r"(done)
            : "r"(syc_shared(bar)), "r"(parity)
            : "memory");
#endif
}

SYC_INLINE void syc_bulk_load(void *to, const void *from, u32 bytes, syc_barrier *bar)
{
#if SYC_BULK
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            syc_shared(to)),
        "l"(from), "r"(bytes), "r"(syc_shared(bar))
        : "memory");
#endif
}

/* To the second cache; address and size are multiples of 16. Where there are no bulk loads, nothing. */
SYC_INLINE void syc_bulk_prefetch(const void *from, u32 bytes)
{
#if SYC_BULK
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}
#endif

/* Rows that go to the second cache while the kernels before this one run: a part by each of its first
   blocks. */
struct syc_early {
    const u8 *from;
    int64_t bytes;
};

enum { SYC_EARLY_PART = 64 * 1024 };

/* Of n rows, all of which are read sooner or later; `blocks` blocks find room beside the kernels before. */
static inline syc_early syc_early_of(syi_rows rows, int64_t n, int64_t row_bytes, int64_t blocks)
{
    const bool compact = rows.stride == row_bytes && ((u64)(uintptr_t)rows.data | (u64)row_bytes) % 16 == 0;
    const int64_t all = compact ? n * row_bytes : 0, most = blocks * SYC_EARLY_PART;
    return {rows.data, all < most ? all : most};
}

SYC_INLINE void syc_load_early(const syc_early &early)
{
    const int64_t at = (int64_t)blockIdx.x * SYC_EARLY_PART;
    if (threadIdx.x == 0 && at < early.bytes)
        syc_bulk_prefetch(early.from + at, (u32)min((int64_t)SYC_EARLY_PART, early.bytes - at));
}
