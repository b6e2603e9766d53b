/*
 * NEON kernels of the scan over raw logits: maxima of blocks, and elements above a threshold.
 */
#include "kernels/neon.h"

static uint16x8_t load_16(const uint8_t *x, size_t i)
{
    return vreinterpretq_u16_u8(vld1q_u8(x + i * 2));
}

/* Upper halves of eight f32. */
static uint16x8_t load_32(const uint8_t *x, size_t i)
{
    return vuzp2q_u16(vreinterpretq_u16_u8(vld1q_u8(x + i * 4)),
                      vreinterpretq_u16_u8(vld1q_u8(x + i * 4 + 16)));
}

static uint16x8_t order_of(uint16x8_t bits)
{
    const uint16x8_t sign = vreinterpretq_u16_s16(vshrq_n_s16(vreinterpretq_s16_u16(bits), 15));
    return veorq_u16(bits, vorrq_u16(sign, vdupq_n_u16(0x8000u)));
}

/* block_max for less than eight blocks; returns the largest bit patterns. */
SYI_INLINE uint16x8_t block_max_few(uint16_t *max, const uint8_t *x, size_t n_blocks, size_t elem_bytes,
                                    uint16x8_t (*load)(const uint8_t *, size_t))
{
    uint16x8_t pattern = vdupq_n_u16(0);
    for (size_t b = 0; b < n_blocks; b++, x += SYI_BLOCK * elem_bytes) {
        uint16x8_t best = vdupq_n_u16(0);
        for (size_t j = 0; j < SYI_BLOCK; j += 8) {
            best = vmaxq_u16(best, order_of(load(x, j)));
            pattern = vmaxq_u16(pattern, load(x, j));
        }
        max[b] = vmaxvq_u16(best);
    }
    return pattern;
}

/* The largest bit patterns of two blocks as signed integers, each in half a vector; the unsigned ones are stored in
   *pattern on request. */
SYI_INLINE int16x8_t max_of_two(const uint8_t *x, size_t step, uint16x8_t (*load)(const uint8_t *, size_t),
                                bool wanted, uint16x8_t *pattern)
{
    int16x8_t m[2];
    for (size_t b = 0; b < 2; b++, x += step) {
        uint16x8_t u[8];
        int16x8_t s[8];
        for (size_t line = 0; line < step;
             line += 64) /* with the core's own prefetch alone, 20 % of the bandwidth is unused */
            __builtin_prefetch(x + 2048 + line, 0, 2);
        for (size_t i = 0; i < 8; i++) {
            u[i] = load(x, i * 8);
            s[i] = vreinterpretq_s16_u16(u[i]);
        }
        m[b] = vmaxq_s16(vmaxq_s16(vmaxq_s16(s[0], s[1]), vmaxq_s16(s[2], s[3])),
                         vmaxq_s16(vmaxq_s16(s[4], s[5]), vmaxq_s16(s[6], s[7])));
        u[0] = vmaxq_u16(vmaxq_u16(vmaxq_u16(u[0], u[1]), vmaxq_u16(u[2], u[3])),
                         vmaxq_u16(vmaxq_u16(u[4], u[5]), vmaxq_u16(u[6], u[7])));
        if (wanted)
            *pattern = vmaxq_u16(*pattern, u[0]);
    }
    if (wanted) /* with more blocks at once gcc runs out of registers and reads twice */
        __asm__ volatile("" : : : "memory");
    return vpmaxq_s16(m[0], m[1]);
}

/* The smallest of two blocks in the same way. */
SYI_INLINE int16x8_t min_of_two(const uint8_t *x, size_t step, uint16x8_t (*load)(const uint8_t *, size_t))
{
    int16x8_t m[2];
    for (size_t b = 0; b < 2; b++, x += step) {
        m[b] = vreinterpretq_s16_u16(load(x, 0));
        for (size_t i = 8; i < SYI_BLOCK; i += 8)
            m[b] = vminq_s16(m[b], vreinterpretq_s16_u16(load(x, i)));
    }
    return vpminq_s16(m[0], m[1]);
}

/* Of eight blocks; a separate function, because the loop over rows needs the registers. */
static __attribute__((noinline)) int16x8_t min_of_eight(const uint8_t *x, size_t elem_bytes)
{
    int16x8_t m[4];
    for (size_t i = 0; i < 4; i++) {
        const size_t step = SYI_BLOCK * elem_bytes;
        m[i] = elem_bytes == 4 ? min_of_two(x + i * 2 * step, step, load_32)
                               : min_of_two(x + i * 2 * step, step, load_16);
    }
    return vpminq_s16(vpminq_s16(m[0], m[1]), vpminq_s16(m[2], m[3]));
}

/*
 * As signed integers, bit patterns order like the values while any of them is non-negative, so the maximum
 * needs no conversion per element; of a block of only negatives the least pattern is needed.
 */
SYI_INLINE uint16x8_t block_max_8(uint16_t *max, const uint8_t *x, size_t elem_bytes,
                                  uint16x8_t (*load)(const uint8_t *, size_t), bool wanted)
{
    const size_t step = SYI_BLOCK * elem_bytes;
    uint16x8_t pattern = vdupq_n_u16(0);
    const int16x8_t a = max_of_two(x, step, load, wanted, &pattern);
    const int16x8_t b = max_of_two(x + 2 * step, step, load, wanted, &pattern);
    const int16x8_t c = max_of_two(x + 4 * step, step, load, wanted, &pattern);
    const int16x8_t d = max_of_two(x + 6 * step, step, load, wanted, &pattern);
    int16x8_t all = vpmaxq_s16(vpmaxq_s16(a, b), vpmaxq_s16(c, d));
    if (vminvq_s16(all) < 0)
        all = vbslq_s16(vcltzq_s16(all), min_of_eight(x, elem_bytes), all);
    vst1q_u16(max, order_of(vreinterpretq_u16_s16(all)));
    return pattern;
}

/* Returns the largest bit pattern, on request. */
SYI_INLINE uint16_t block_max(uint16_t *max, const uint8_t *x, size_t n_blocks, size_t elem_bytes,
                              uint16x8_t (*load)(const uint8_t *, size_t), bool wanted)
{
    /* Two halves in turn: two streams are read faster than one, if they are not short. */
    const size_t step = SYI_BLOCK * elem_bytes, half = n_blocks * step > 32768 ? n_blocks / 16 * 8 : 0;
    uint16x8_t pattern = vdupq_n_u16(0), other = pattern;
    for (size_t b = 0; b < half; b += 8) {
        pattern = vmaxq_u16(pattern, block_max_8(max + b, x + b * step, elem_bytes, load, wanted));
        other =
            vmaxq_u16(other, block_max_8(max + half + b, x + (half + b) * step, elem_bytes, load, wanted));
    }
    size_t b = 2 * half;
    for (; b + 8 <= n_blocks; b += 8)
        pattern = vmaxq_u16(pattern, block_max_8(max + b, x + b * step, elem_bytes, load, wanted));
    if (b < n_blocks && n_blocks >= 8) { /* the last eight, of which some are done already */
        b = n_blocks - 8;
        pattern = vmaxq_u16(pattern, block_max_8(max + b, x + b * step, elem_bytes, load, wanted));
    } else {
        pattern = vmaxq_u16(pattern, block_max_few(max, x, n_blocks - b, elem_bytes, load));
    }
    return vmaxvq_u16(vmaxq_u16(pattern, other));
}

void syi_block_max_16_neon(uint16_t *max, uint16_t *low, const void *x, size_t n_blocks)
{
    if (low != NULL)
        *low = block_max(max, x, n_blocks, 2, load_16, true);
    else
        block_max(max, x, n_blocks, 2, load_16, false);
}

/* Here the patterns cost nothing: memory is slower. */
void syi_block_max_32_neon(uint16_t *max, uint16_t *low, const void *x, size_t n_blocks)
{
    const uint16_t pattern = block_max(max, x, n_blocks, 4, load_32, true);
    if (low != NULL)
        *low = pattern;
}

size_t syi_count_ge_u16_neon(const uint16_t *v, size_t n, uint16_t threshold)
{
    enum { MOST = 1 << 18 }; /* elements before the 16-bit counters are added up: 2^14 in each */
    const uint16x8_t least = vdupq_n_u16(threshold);
    size_t count = 0, i = 0;
    while (i + 16 <= n) {
        const size_t stop = n - i > MOST ? i + MOST : n;
        uint16x8_t a = vdupq_n_u16(0), b = vdupq_n_u16(0);
        for (; i + 16 <= stop; i += 16) {
            a = vsubq_u16(a, vcgeq_u16(vld1q_u16(v + i), least));
            b = vsubq_u16(b, vcgeq_u16(vld1q_u16(v + i + 8), least));
        }
        count += vaddlvq_u16(a) + vaddlvq_u16(b);
    }
    return count + syi_kernels_scalar.count_ge_u16(v + i, n - i, threshold);
}

/* One bit per element of a block, set where the order is at least the threshold. From a threshold that no negative reaches, bit
   patterns compare as signed integers. */
SYI_INLINE uint64_t hits(const uint8_t *x, uint16_t threshold, uint16x8_t (*load)(const uint8_t *, size_t))
{
    const uint16x8_t least = vdupq_n_u16(threshold);
    const int16x8_t positive = vdupq_n_s16((int16_t)(threshold & 0x7fff));
    uint8x16_t mask[4];
    for (size_t i = 0; i < 4 && threshold >= 0x8000u; i++) {
        const uint16x8_t low = vcgeq_s16(vreinterpretq_s16_u16(load(x, i * 16)), positive);
        const uint16x8_t high = vcgeq_s16(vreinterpretq_s16_u16(load(x, i * 16 + 8)), positive);
        mask[i] = vuzp1q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high));
    }
    for (size_t i = 0; i < 4 && threshold < 0x8000u; i++) {
        const uint16x8_t low = vcgeq_u16(order_of(load(x, i * 16)), least);
        const uint16x8_t high = vcgeq_u16(order_of(load(x, i * 16 + 8)), least);
        mask[i] = vuzp1q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high));
    }
    return bits_of(mask);
}

uint64_t syi_reach_16_neon(const void *x, uint16_t threshold)
{
    return hits(x, threshold, load_16);
}

uint64_t syi_reach_32_neon(const void *x, uint16_t threshold)
{
    return hits(x, threshold, load_32);
}
