/*
 * Blocks that run together and store into each other's shared memory, on devices that have clusters (sm_90).
 * A gate opens once the bytes it expects have come; each is used once. What is sent must be in dynamic shared
 * memory, as must gates.
 */
#pragma once

#include "cuda/runtime/device.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define SYC_HAS_CLUSTERS 1
SYC_INLINE u32 syc_shared_address(const void *p)
{
    return (u32)__cvta_generic_to_shared(p);
}

SYC_INLINE u32 syc_address_in(const void *p, u32 rank)
{
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(syc_shared_address(p)), "r"(rank));
    return there;
}
#endif

/* By one thread, ahead of a barrier of the block and syc_cluster_begin: the gate expects so many bytes. */
SYC_INLINE void syc_expect([[maybe_unused]] u64 *gate, [[maybe_unused]] u32 bytes)
{
#ifdef SWITCHYARD_CUDA_EMULATED
    *gate = bytes;
#elif defined(SYC_HAS_CLUSTERS)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n\tfence.mbarrier_init.release.cluster;\n\t"
                 "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(syc_shared_address(gate)),
                 "r"(bytes)
                 : "memory");
#endif
}

/* The same where the bytes are known later: they are announced by one thread, ahead of a barrier of the
   block, and may come before. */
SYC_INLINE void syc_expect_later([[maybe_unused]] u64 *gate)
{
#ifdef SWITCHYARD_CUDA_EMULATED
    *gate = 0;
#elif defined(SYC_HAS_CLUSTERS)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n\tfence.mbarrier_init.release.cluster;" ::"r"(
                     syc_shared_address(gate))
                 : "memory");
#endif
}
SYC_INLINE void syc_expect_now([[maybe_unused]] u64 *gate, [[maybe_unused]] u32 bytes)
{
#ifdef SWITCHYARD_CUDA_EMULATED
    *gate += bytes;
#elif defined(SYC_HAS_CLUSTERS)
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(syc_shared_address(gate)),
                 "r"(bytes)
                 : "memory");
#endif
}

/* All threads: this block has made its gates; those of all blocks are made. Arriving is relaxed: a release
   would wait for all stores of the GPU, and gates have a fence of their own. */
SYC_INLINE void syc_cluster_begin()
{
#if defined(SYC_HAS_CLUSTERS)
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
SYC_INLINE void syc_cluster_ready()
{
#ifdef SWITCHYARD_CUDA_EMULATED
    emulator::sync_cluster();
#elif defined(SYC_HAS_CLUSTERS)
    __syncwarp();
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/* All threads of all blocks: what they stored before is seen by each of them. Without clusters, of the block.
 */
static __device__ __forceinline__ void syc_cluster_sync()
{
#ifdef SWITCHYARD_CUDA_EMULATED
    emulator::sync_cluster();
#elif defined(SYC_HAS_CLUSTERS)
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
#else
    __syncthreads();
#endif
}

/* A number in the shared memory of block `rank`. */
static __device__ __forceinline__ u32 syc_peek(const u32 *p, [[maybe_unused]] u32 rank)
{
#ifdef SWITCHYARD_CUDA_EMULATED
    return *(u32 *)emulator::in_block((void *)p, rank);
#elif defined(SYC_HAS_CLUSTERS)
    u32 v;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(syc_address_in(p, rank)) : "memory");
    return v;
#else
    return *p;
#endif
}

/* Stores a number into block `rank`, which has it when its gate is open. */
SYC_INLINE void syc_send([[maybe_unused]] u64 *to, [[maybe_unused]] u32 rank, [[maybe_unused]] u64 v,
                         [[maybe_unused]] u64 *gate)
{
#ifdef SWITCHYARD_CUDA_EMULATED
    *(u64 *)emulator::in_block(to, rank) = v;
    *(u64 *)emulator::in_block(gate, rank) -= 8;
    emulator::sent();
#elif defined(SYC_HAS_CLUSTERS)
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(
                     syc_address_in(to, rank)),
                 "l"(v), "r"(syc_address_in(gate, rank))
                 : "memory");
#endif
}

/* The same of a run of this block's shared memory, by one thread; 16 bytes each, at places that are multiples
   of them. What threads have stored there is seen once they have called syc_stored, ahead of a barrier with
   that thread. The block stays, and the run as it is, until the other one has it. */
SYC_INLINE void syc_stored()
{
#if defined(SYC_HAS_CLUSTERS)
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
SYC_INLINE void syc_send_run([[maybe_unused]] u64 *to, [[maybe_unused]] u32 rank,
                             [[maybe_unused]] const u64 *run, [[maybe_unused]] u32 bytes,
                             [[maybe_unused]] u64 *gate)
{
#ifdef SWITCHYARD_CUDA_EMULATED
    u64 *const there = (u64 *)emulator::in_block(to, rank);
    for (u32 i = 0; i < bytes / 8; i++)
        there[i] = run[i];
    *(u64 *)emulator::in_block(gate, rank) -= bytes;
    emulator::sent();
#elif defined(SYC_HAS_CLUSTERS)
    asm volatile(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            syc_address_in(to, rank)),
        "r"(syc_shared_address(run)), "r"(bytes), "r"(syc_address_in(gate, rank))
        : "memory");
#endif
}

SYC_INLINE void syc_wait_at([[maybe_unused]] u64 *gate)
{
#ifdef SWITCHYARD_CUDA_EMULATED
    while (*gate != 0)
        emulator::yield();
#elif defined(SYC_HAS_CLUSTERS)
    asm volatile("{\n\t.reg .pred open;\n\tagain:\n\tmbarrier.try_wait.parity.shared::cta.b64 open, [%0], "
                 "0;\n\t@!open bra again;\n\t}" ::"r"(syc_shared_address(gate))
                 : "memory");
#endif
}
