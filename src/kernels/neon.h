/*
 * What the NEON files share. The functions of neon_bf16.c are built with flags of their own and stand in the table of
 * neon.c.
 */
#ifndef SYI_NEON_H
#define SYI_NEON_H

#include "kernels/kernels.h"

#include <arm_neon.h>

/*
 * 128 bytes in eight registers, loaded and stored in order. The instructions are written out because the core
 * streams whole lines only when they leave in ascending order; a compiler that interleaved the stores of a
 * fan-out made it 1.7 times slower.
 */
struct bytes_128 {
    uint8x16_t a, b, c, d, e, f, g, h;
};

static inline __attribute__((always_inline)) struct bytes_128 load_128(const void *from)
{
    struct bytes_128 v;
    __asm__ volatile("ldp %q0, %q1, [%8]\n\tldp %q2, %q3, [%8, #32]\n\t"
                     "ldp %q4, %q5, [%8, #64]\n\tldp %q6, %q7, [%8, #96]"
                     : "=&w"(v.a), "=&w"(v.b), "=&w"(v.c), "=&w"(v.d), "=&w"(v.e), "=&w"(v.f), "=&w"(v.g),
                       "=&w"(v.h)
                     : "r"(from)
                     : "memory");
    return v;
}

static inline __attribute__((always_inline)) void store_128(void *to, struct bytes_128 v)
{
    __asm__ volatile("stp %q0, %q1, [%8]\n\tstp %q2, %q3, [%8, #32]\n\t"
                     "stp %q4, %q5, [%8, #64]\n\tstp %q6, %q7, [%8, #96]"
                     :
                     : "w"(v.a), "w"(v.b), "w"(v.c), "w"(v.d), "w"(v.e), "w"(v.f), "w"(v.g), "w"(v.h), "r"(to)
                     : "memory");
}

/* Scales whole vectors; returns how many bytes that were. */
static inline __attribute__((always_inline)) size_t scale(uint8_t *y, const uint8_t *x, float w, size_t bytes,
                                                          uint8x16_t (*times)(uint8x16_t, float))
{
    size_t at = 0;
    for (; at + 128 <= bytes; at += 128) {
        const struct bytes_128 v = load_128(x + at);
        store_128(y + at, (struct bytes_128){times(v.a, w), times(v.b, w), times(v.c, w), times(v.d, w),
                                             times(v.e, w), times(v.f, w), times(v.g, w), times(v.h, w)});
    }
    for (; at + 16 <= bytes; at += 16)
        vst1q_u8(y + at, times(vld1q_u8(x + at), w));
    return at;
}

void syi_scale_f16_neon_bf16(void *dst, const void *src, float w, size_t n);
void syi_scale_bf16_neon_bf16(void *dst, const void *src, float w, size_t n);

#endif
