/*
 * Floating-point control. Results are defined for round-to-nearest with subnormals kept; a caller may run
 * with anything else, and worker threads of a pool inherit what their creator had, so every worker sets and
 * restores it. <fenv.h> would do the rounding but leaves flush-to-zero to the platform.
 */
#include "base/base.h"

#if defined(__x86_64__)

uint64_t syi_fp_enter(void)
{
    uint32_t saved;
    const uint32_t standard = 0x1f80; /* all exceptions masked, nearest, no FTZ, no DAZ */
    __asm__ volatile("stmxcsr %0" : "=m"(saved));
    __asm__ volatile("ldmxcsr %0" : : "m"(standard));
    return saved;
}

void syi_fp_leave(uint64_t saved)
{
    const uint32_t control = (uint32_t)saved;
    __asm__ volatile("ldmxcsr %0" : : "m"(control));
}

#elif defined(__aarch64__)

/* Nearest, no flushing, and any NaN that arithmetic produces is the default one, 0x7fc00000: that is the canonical
   NaN of all results, so kernels need not look for others. */
static const uint64_t standard = UINT64_C(1) << 25;

uint64_t syi_fp_enter(void)
{
    uint64_t saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
    __asm__ volatile("msr fpcr, %0" : : "r"(standard));
    return saved;
}

void syi_fp_leave(uint64_t saved)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(saved));
}

#else

#include <fenv.h>

uint64_t syi_fp_enter(void)
{
    const int rounding = fegetround();
    fesetround(FE_TONEAREST);
    return (uint64_t)rounding;
}

void syi_fp_leave(uint64_t saved)
{
    fesetround((int)saved);
}

#endif
