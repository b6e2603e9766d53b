/*
 * Which instruction sets this processor has and this operating system saves across a context switch; and the clock.
 */
#include "base/base.h"

#include <time.h>

#if defined(__x86_64__)

#include <cpuid.h>

/* Register state the system saves: bits 1 and 2 are SSE and AVX, 5 to 7 are AVX-512's. */
static uint32_t saved_state(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static bool all_set(uint32_t word, uint32_t bits)
{
    return (word & bits) == bits;
}

uint32_t syi_cpu_bits(void)
{
    const uint32_t fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28, f16c = 1u << 29;
    const uint32_t avx2 = 1u << 5, avx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* F, DQ, BW, VL */
    uint32_t a, b, c, d, bits = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !all_set(c, fma | osxsave | avx | f16c))
        return 0;
    const uint32_t state = saved_state();
    if (!all_set(state, 0x6) || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return 0;
    if (all_set(b, avx2))
        bits |= SYI_CPU_AVX2;
    if (all_set(b, avx2 | avx512) && all_set(state, 0xe6))
        bits |= SYI_CPU_AVX512;
    return bits;
}

#elif defined(__aarch64__) && defined(__linux__)

#include <sys/auxv.h>

uint32_t syi_cpu_bits(void)
{
    const unsigned long half = 1ul << 10 | 1ul << 23, brain = 1ul << 14; /* ASIMDHP, ASIMDFHM; BF16 */
    const bool all = (getauxval(AT_HWCAP) & half) == half && (getauxval(AT_HWCAP2) & brain) == brain;
    return SYI_CPU_NEON | (all ? SYI_CPU_BF16 : 0); /* NEON is part of the 64-bit architecture */
}

#elif defined(__aarch64__)

uint32_t syi_cpu_bits(void)
{
    return SYI_CPU_NEON;
}

#else

uint32_t syi_cpu_bits(void)
{
    return 0;
}

#endif

uint64_t syi_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}
