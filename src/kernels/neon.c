/*
 * AArch64 with Advanced SIMD, which every 64-bit Arm has. The same bits as scalar.c: the same operation per
 * element in the same order, fused only where scalar.c calls fmaf.
 */
#include "kernels/neon.h"

/* ---- Copies ------------------------------------------------------------------------------------------ */

static inline __attribute__((always_inline)) void fan(void *const *dst, const size_t n, const char *src,
                                                      size_t bytes)
{
    char *to[SYI_FAN];
    size_t at = 0;
    for (size_t i = 0; i < n; i++)
        to[i] = dst[i];
    for (; at + 128 <= bytes; at += 128) {
        const struct bytes_128 v = load_128(src + at);
        for (size_t i = 0; i < n; i++)
            store_128(to[i] + at, v);
    }
    if (at < bytes)
        for (size_t i = 0; i < n; i++)
            memcpy(to[i] + at, src + at, bytes - at);
}

static void copy_fan_neon(void *const *dst, size_t n, const void *src, size_t bytes)
{
    switch (n) { /* a constant count keeps the addresses in registers */
    case 8:
        fan(dst, 8, src, bytes);
        break;
    case 7:
        fan(dst, 7, src, bytes);
        break;
    case 6:
        fan(dst, 6, src, bytes);
        break;
    case 5:
        fan(dst, 5, src, bytes);
        break;
    case 4:
        fan(dst, 4, src, bytes);
        break;
    case 3:
        fan(dst, 3, src, bytes);
        break;
    case 2:
        fan(dst, 2, src, bytes);
        break;
    case 1:
        memcpy(dst[0], src, bytes);
        break;
    default:
        break;
    }
}

static void copy_abreast(void *const *dst, const void *const *src, size_t n, size_t bytes)
{
    size_t at = 0;
    for (; at + 128 <= bytes; at += 128)
        for (size_t i = 0; i < n; i++)
            store_128((char *)dst[i] + at, load_128((const char *)src[i] + at));
    if (at < bytes)
        for (size_t i = 0; i < n; i++)
            memcpy((char *)dst[i] + at, (const char *)src[i] + at, bytes - at);
}

static void copy_rows_neon(void *const *dst, const void *const *src, size_t n, size_t bytes)
{
    const size_t most = syi_abreast(bytes);
    for (size_t done = 0; done < n; done += most) {
        const size_t left = n - done, group = left < most ? left : most;
        syi_fetch_rows(src + done, left, group, bytes);
        copy_abreast(dst + done, src + done, group, bytes);
    }
}

/* ---- Scaling ----------------------------------------------------------------------------------------- */

/* A NaN product is the canonical one: syi_fp_enter has asked the processor for that. */
static uint8x16_t times_f32(uint8x16_t x, float w)
{
    return vreinterpretq_u8_f32(vmulq_n_f32(vreinterpretq_f32_u8(x), w));
}

static float32x4_t widen_f16(uint16x4_t x)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(x));
}

static float32x4_t widen_bf16(uint16x4_t x)
{
    return vreinterpretq_f32_u32(vshll_n_u16(x, 16));
}

/* Results of arithmetic, so every NaN is the canonical one and rounds to the canonical one. */
static uint16x8_t narrow_f16(float32x4_t low, float32x4_t high)
{
    return vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(low), high));
}

/* The upper half, rounded; a tie went up, and its last bit is cleared to make it even. */
static uint16x8_t narrow_bf16(float32x4_t low, float32x4_t high)
{
    const uint32x4_t a = vreinterpretq_u32_f32(low), b = vreinterpretq_u32_f32(high);
    const uint16x8_t rest = vuzp1q_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b));
    const uint16x8_t tie = vceqq_u16(rest, vdupq_n_u16(0x8000));
    return vbicq_u16(vrshrn_high_n_u32(vrshrn_n_u32(a, 16), b, 16), vshrq_n_u16(tie, 15));
}

static uint8x16_t times_f16(uint8x16_t x, float w)
{
    const uint16x8_t v = vreinterpretq_u16_u8(x);
    const float32x4_t low = widen_f16(vget_low_u16(v)), high = widen_f16(vget_high_u16(v));
    return vreinterpretq_u8_u16(narrow_f16(vmulq_n_f32(low, w), vmulq_n_f32(high, w)));
}

static uint8x16_t times_bf16(uint8x16_t x, float w)
{
    const uint16x8_t v = vreinterpretq_u16_u8(x);
    const float32x4_t low = widen_bf16(vget_low_u16(v)), high = widen_bf16(vget_high_u16(v));
    return vreinterpretq_u8_u16(narrow_bf16(vmulq_n_f32(low, w), vmulq_n_f32(high, w)));
}

static void scale_f32_neon(void *dst, const void *src, float w, size_t n)
{
    const size_t done = scale(dst, src, w, n * 4, times_f32);
    syi_kernels_scalar.scale_f32((char *)dst + done, (const char *)src + done, w, n - done / 4);
}

static void scale_f16_neon(void *dst, const void *src, float w, size_t n)
{
    const size_t done = scale(dst, src, w, n * 2, times_f16);
    syi_kernels_scalar.scale_f16((char *)dst + done, (const char *)src + done, w, n - done / 2);
}

static void scale_bf16_neon(void *dst, const void *src, float w, size_t n)
{
    const size_t done = scale(dst, src, w, n * 2, times_bf16);
    syi_kernels_scalar.scale_bf16((char *)dst + done, (const char *)src + done, w, n - done / 2);
}

/* ---- Positions --------------------------------------------------------------------------------------- */

/* One bit per byte of 64, set where the mask vectors are 0xff. */
static inline uint64_t bits_of(const uint8x16_t mask[4])
{
    static const uint8_t weight[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t bit = vld1q_u8(weight);
    const uint8x16_t low = vpaddq_u8(vandq_u8(mask[0], bit), vandq_u8(mask[1], bit));
    const uint8x16_t high = vpaddq_u8(vandq_u8(mask[2], bit), vandq_u8(mask[3], bit));
    const uint8x16_t all = vpaddq_u8(low, high);
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(all, all)), 0);
}

/* Four positions at a time, whether there are as many or not: how many bytes of 64 are set no branch predictor
   knows, but mostly how many fours. Those past the last are overwritten, or lie past what is found. */
static size_t push_fours(int32_t *pos, size_t found, uint64_t mask, size_t base)
{
    const size_t end = found + (size_t)__builtin_popcountll(mask);
    do {
        for (size_t i = 0; i < 4; i++, mask &= mask - 1)
            pos[found + i] = (int32_t)(base + (size_t)__builtin_ctzll(mask | UINT64_C(1) << 63));
        found += 4;
    } while (mask != 0);
    return end;
}

static uint64_t nonzero_64(const uint8_t *b)
{
    uint8x16_t mask[4];
    for (size_t i = 0; i < 4; i++) {
        const uint8x16_t v = vld1q_u8(b + 16 * i);
        mask[i] = vtstq_u8(v, v);
    }
    return bits_of(mask);
}

static size_t nonzero_u8_neon(int32_t *pos, const void *bytes, size_t n)
{
    const uint8_t *b = bytes;
    uint8_t rest[64] = {0};
    size_t found = 0, i = 0;
    for (; i + 64 <= n; i += 64) /* found <= i, so pos has room for all that is pushed */
        found = push_fours(pos, found, nonzero_64(b + i), i);
    if (i == n)
        return found;
    memcpy(rest, b + i, n - i);
    return syi_push_bits(pos, found, nonzero_64(rest), i);
}

/* ---- Keys -------------------------------------------------------------------------------------------- */

struct key_lanes {
    uint32x4_t max, nan, inf;
};

static uint32x4_t keys_of(uint32x4_t bits, struct key_lanes *lanes)
{
    const uint32x4_t magnitude = vandq_u32(bits, vdupq_n_u32(0x7fffffffu));
    const uint32x4_t nan = vcgtq_u32(magnitude, vdupq_n_u32(0x7f800000u));
    const uint32x4_t inf = vceqq_u32(bits, vdupq_n_u32(0x7f800000u));
    const uint32x4_t sign = vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(bits), 31));
    uint32x4_t key = veorq_u32(bits, vorrq_u32(sign, vdupq_n_u32(0x80000000u)));
    key = vbslq_u32(vceqq_u32(magnitude, vdupq_n_u32(0)), vdupq_n_u32(0x80000000u), key);
    key = vbslq_u32(nan, vdupq_n_u32(SYI_KEY_MINUS_INF), key);
    key = vbslq_u32(inf, vdupq_n_u32(0xff7fffffu), key);
    lanes->max = vmaxq_u32(lanes->max, key);
    lanes->nan = vorrq_u32(lanes->nan, nan);
    lanes->inf = vorrq_u32(lanes->inf, inf);
    return key;
}

static void add_lanes(struct syi_key_stats *stats, const struct key_lanes *lanes)
{
    const uint32_t max = vmaxvq_u32(lanes->max);
    stats->max = max > stats->max ? max : stats->max;
    stats->flags |= vmaxvq_u32(lanes->nan) != 0 ? SY_ROW_NAN : 0;
    stats->flags |= vmaxvq_u32(lanes->inf) != 0 ? SY_ROW_INF : 0;
}

static void keys_f32_neon(uint32_t *key, const void *x, size_t n, struct syi_key_stats *stats)
{
    const uint8_t *in = x;
    struct key_lanes lanes = {vdupq_n_u32(0), vdupq_n_u32(0), vdupq_n_u32(0)};
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1q_u32(key + i, keys_of(vreinterpretq_u32_u8(vld1q_u8(in + i * 4)), &lanes));
    add_lanes(stats, &lanes);
    syi_kernels_scalar.keys_f32(key + i, in + i * 4, n - i, stats);
}

static void keys_f16_neon(uint32_t *key, const void *x, size_t n, struct syi_key_stats *stats)
{
    const uint8_t *in = x;
    struct key_lanes lanes = {vdupq_n_u32(0), vdupq_n_u32(0), vdupq_n_u32(0)};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const uint16x8_t v = vreinterpretq_u16_u8(vld1q_u8(in + i * 2));
        vst1q_u32(key + i, keys_of(vreinterpretq_u32_f32(widen_f16(vget_low_u16(v))), &lanes));
        vst1q_u32(key + i + 4, keys_of(vreinterpretq_u32_f32(widen_f16(vget_high_u16(v))), &lanes));
    }
    add_lanes(stats, &lanes);
    syi_kernels_scalar.keys_f16(key + i, in + i * 2, n - i, stats);
}

static void keys_bf16_neon(uint32_t *key, const void *x, size_t n, struct syi_key_stats *stats)
{
    const uint8_t *in = x;
    struct key_lanes lanes = {vdupq_n_u32(0), vdupq_n_u32(0), vdupq_n_u32(0)};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const uint16x8_t v = vreinterpretq_u16_u8(vld1q_u8(in + i * 2));
        vst1q_u32(key + i, keys_of(vshll_n_u16(vget_low_u16(v), 16), &lanes));
        vst1q_u32(key + i + 4, keys_of(vshll_n_u16(vget_high_u16(v), 16), &lanes));
    }
    add_lanes(stats, &lanes);
    syi_kernels_scalar.keys_bf16(key + i, in + i * 2, n - i, stats);
}

/* ---- exp --------------------------------------------------------------------------------------------- */

static float32x4_t constant(uint32_t bits)
{
    return vreinterpretq_f32_u32(vdupq_n_u32(bits));
}

/* Step for step exp_scalar of scalar.c. */
static float32x4_t exp_neon(float32x4_t t)
{
    const float32x4_t magic = vdupq_n_f32(12582912.0f);
    const uint32x4_t live = vcgeq_f32(t, vdupq_n_f32(-86.0f));
    const float32x4_t n = vsubq_f32(vfmaq_f32(magic, t, constant(0x3fb8aa3b)), magic);
    float32x4_t r = vfmaq_f32(t, n, constant(0xbf318000));
    r = vfmaq_f32(r, n, constant(0x395e8083));
    float32x4_t c = constant(0x3ab526b0);
    c = vfmaq_f32(constant(0x3c091cc7), c, r);
    c = vfmaq_f32(constant(0x3d2aac58), c, r);
    c = vfmaq_f32(constant(0x3e2aaa49), c, r);
    c = vfmaq_f32(constant(0x3efffffe), c, r);
    const float32x4_t y = vaddq_f32(vdupq_n_f32(1.0f), vfmaq_f32(r, vmulq_f32(r, r), c));
    const uint32x4_t e =
        vaddq_u32(vreinterpretq_u32_f32(y), vshlq_n_u32(vreinterpretq_u32_s32(vcvtq_s32_f32(n)), 23));
    return vreinterpretq_f32_u32(vandq_u32(e, live));
}

static float32x4_t value_of(uint32x4_t key)
{
    const uint32x4_t negative = vmvnq_u32(vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(key), 31)));
    return vreinterpretq_f32_u32(veorq_u32(key, vorrq_u32(negative, vdupq_n_u32(0x80000000u))));
}

static float32x4_t exp_of(float32x4_t value, float m, float inv_t)
{
    return exp_neon(vmulq_n_f32(vsubq_f32(value, vdupq_n_f32(m)), inv_t));
}

static void exp_8(float *e, const uint32_t *key, float m, float inv_t)
{
    const float32x4_t low = exp_of(value_of(vld1q_u32(key)), m, inv_t); /* one alone would wait for itself */
    const float32x4_t high = exp_of(value_of(vld1q_u32(key + 4)), m, inv_t);
    vst1q_f32(e, low);
    vst1q_f32(e + 4, high);
}

static void exp_keys_neon(float *e, const uint32_t *key, size_t n, float m, float inv_t)
{
    uint32_t rest[8] = {0};
    float e_rest[8];
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        exp_8(e + i, key + i, m, inv_t);
    if (i < n) { /* the few candidates of a row leave seven over as often as none */
        memcpy(rest, key + i, (n - i) * sizeof *rest);
        exp_8(e_rest, rest, m, inv_t);
        memcpy(e + i, e_rest, (n - i) * sizeof *e);
    }
}

/*
 * exp_neon of value - m for weights, which are 0 below -28.5: a floor of -80, which is where a NaN goes too, takes the
 * place of the test for what is too small, and the integer in the lower bits of the sum with 1.5*2^23 that of its
 * conversion.
 */
static float32x4_t exp_to_weigh(float32x4_t value, float m, float inv_t)
{
    const float32x4_t magic = vdupq_n_f32(12582912.0f);
    const float32x4_t t =
        vmaxnmq_f32(vmulq_n_f32(vsubq_f32(value, vdupq_n_f32(m)), inv_t), vdupq_n_f32(-80.0f));
    const float32x4_t shifted = vfmaq_f32(magic, t, constant(0x3fb8aa3b)), n = vsubq_f32(shifted, magic);
    float32x4_t r = vfmaq_f32(t, n, constant(0xbf318000));
    r = vfmaq_f32(r, n, constant(0x395e8083));
    float32x4_t c = constant(0x3ab526b0);
    c = vfmaq_f32(constant(0x3c091cc7), c, r);
    c = vfmaq_f32(constant(0x3d2aac58), c, r);
    c = vfmaq_f32(constant(0x3e2aaa49), c, r);
    c = vfmaq_f32(constant(0x3efffffe), c, r);
    const float32x4_t y = vaddq_f32(vdupq_n_f32(1.0f), vfmaq_f32(r, vmulq_f32(r, r), c));
    return vreinterpretq_f32_u32(
        vaddq_u32(vreinterpretq_u32_f32(y), vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23)));
}

/* An f64 from 2^12 on has no bits below 2^-40, so adding 2^12 rounds e to nearest even, and the weight is what the
   lower bits have more than those of 2^12. */
static uint64x2_t add_weights(uint64x2_t sum, float64x2_t e)
{
    return vaddq_u64(sum, vreinterpretq_u64_f64(vaddq_f64(e, vdupq_n_f64(4096.0))));
}

static uint64_t weigh_f32_neon(const void *x, size_t n, float m, float inv_t)
{
    const uint8_t *in = x;
    uint64x2_t a = vdupq_n_u64(0), b = a, c = a, d = a;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const float32x4_t low = exp_to_weigh(vreinterpretq_f32_u8(vld1q_u8(in + i * 4)), m, inv_t);
        const float32x4_t high = exp_to_weigh(vreinterpretq_f32_u8(vld1q_u8(in + i * 4 + 16)), m, inv_t);
        a = add_weights(a, vcvt_f64_f32(vget_low_f32(low)));
        b = add_weights(b, vcvt_high_f64_f32(low));
        c = add_weights(c, vcvt_f64_f32(vget_low_f32(high)));
        d = add_weights(d, vcvt_high_f64_f32(high));
    }
    const uint64_t zero = vgetq_lane_u64(vreinterpretq_u64_f64(vdupq_n_f64(4096.0)), 0);
    return vaddvq_u64(vaddq_u64(vaddq_u64(a, b), vaddq_u64(c, d))) - zero * i +
           syi_kernels_scalar.weigh_f32(in + i * 4, n - i, m, inv_t);
}

static float32x4_t four_f32(const uint8_t *x)
{
    return vreinterpretq_f32_u8(vld1q_u8(x));
}

static float32x4_t four_f16(const uint8_t *x)
{
    return widen_f16(vreinterpret_u16_u8(vld1_u8(x)));
}

static float32x4_t four_bf16(const uint8_t *x)
{
    return widen_bf16(vreinterpret_u16_u8(vld1_u8(x)));
}

/*
 * exp to within 6e-6 for sums that need no more: a polynomial of one degree less, a remainder with one constant,
 * and no test for what underflows (a NaN counts as -87). Two thirds of the instructions of exp_neon.
 */
static float32x4_t rough_exp(float32x4_t value, float m, float inv_t)
{
    const float32x4_t magic = vdupq_n_f32(12582912.0f);
    const float32x4_t t =
        vmaxnmq_f32(vmulq_n_f32(vsubq_f32(value, vdupq_n_f32(m)), inv_t), vdupq_n_f32(-87.0f));
    const float32x4_t shifted = vaddq_f32(vmulq_f32(t, constant(0x3fb8aa3b)), magic);
    const float32x4_t r = vfmsq_f32(t, vsubq_f32(shifted, magic), constant(0x3f317218));
    const float32x4_t square = vmulq_f32(r, r);
    float32x4_t c = vfmaq_f32(constant(0x3f00035c), r, constant(0x3e2b8e98));
    c = vfmaq_f32(c, square, constant(0x3d291266));
    const float32x4_t y = vfmaq_f32(vaddq_f32(r, vdupq_n_f32(1.0f)), square, c);
    return vreinterpretq_f32_u32(
        vaddq_u32(vreinterpretq_u32_f32(y), vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23)));
}

/* Whole groups of 64 elements; *done says how many elements that is. */
static inline __attribute__((always_inline)) double sum_exp(const uint8_t *x, size_t n, float m, float inv_t,
                                                            size_t elem_bytes,
                                                            float32x4_t (*load)(const uint8_t *),
                                                            size_t *done)
{
    const size_t step = 4 * elem_bytes;
    float64x2_t sum = vdupq_n_f64(0);
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        float32x4_t a = vdupq_n_f32(0), b = a;
        for (size_t j = 0; j < 8; j++, x += 2 * step) { /* two chains: more would not fit the registers */
            a = vaddq_f32(a, rough_exp(load(x), m, inv_t));
            b = vaddq_f32(b, rough_exp(load(x + step), m, inv_t));
        }
        const float32x4_t all = vaddq_f32(a, b);
        sum = vaddq_f64(sum, vaddq_f64(vcvt_f64_f32(vget_low_f32(all)), vcvt_high_f64_f32(all)));
    }
    *done = i;
    return vaddvq_f64(sum);
}

static double sum_exp_f32_neon(const void *x, size_t n, float m, float inv_t)
{
    size_t done;
    const double sum = sum_exp(x, n, m, inv_t, 4, four_f32, &done);
    return sum + syi_kernels_scalar.sum_exp_f32((const uint8_t *)x + done * 4, n - done, m, inv_t);
}

static double sum_exp_f16_neon(const void *x, size_t n, float m, float inv_t)
{
    size_t done;
    const double sum = sum_exp(x, n, m, inv_t, 2, four_f16, &done);
    return sum + syi_kernels_scalar.sum_exp_f16((const uint8_t *)x + done * 2, n - done, m, inv_t);
}

static double sum_exp_bf16_neon(const void *x, size_t n, float m, float inv_t)
{
    size_t done;
    const double sum = sum_exp(x, n, m, inv_t, 2, four_bf16, &done);
    return sum + syi_kernels_scalar.sum_exp_bf16((const uint8_t *)x + done * 2, n - done, m, inv_t);
}

/* ---- Order of raw logits ----------------------------------------------------------------------------- */

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
static inline __attribute__((always_inline)) uint16x8_t
block_max_few(uint16_t *max, const uint8_t *x, size_t n_blocks, size_t elem_bytes,
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

/* The largest bit patterns of two blocks as signed integers, each in half a vector; if wanted, the unsigned ones go into
   *pattern. */
static inline __attribute__((always_inline)) int16x8_t max_of_two(const uint8_t *x, size_t step,
                                                                  uint16x8_t (*load)(const uint8_t *, size_t),
                                                                  bool wanted, uint16x8_t *pattern)
{
    int16x8_t m[2];
    for (size_t b = 0; b < 2; b++, x += step) {
        uint16x8_t u[8];
        int16x8_t s[8];
        for (size_t line = 0; line < step; line += 64) /* the core's own stream alone leaves 20 % unused */
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
    if (wanted) /* with more blocks at once gcc reads twice, for want of registers */
        __asm__ volatile("" : : : "memory");
    return vpmaxq_s16(m[0], m[1]);
}

/* The least of two blocks alike. */
static inline __attribute__((always_inline)) int16x8_t min_of_two(const uint8_t *x, size_t step,
                                                                  uint16x8_t (*load)(const uint8_t *, size_t))
{
    int16x8_t m[2];
    for (size_t b = 0; b < 2; b++, x += step) {
        m[b] = vreinterpretq_s16_u16(load(x, 0));
        for (size_t i = 8; i < SYI_BLOCK; i += 8)
            m[b] = vminq_s16(m[b], vreinterpretq_s16_u16(load(x, i)));
    }
    return vpminq_s16(m[0], m[1]);
}

/* Of eight; apart, because the loop over rows needs the registers. */
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
 * needs no conversion per element; of a block of negatives alone the least is wanted.
 */
static inline __attribute__((always_inline)) uint16x8_t
block_max_8(uint16_t *max, const uint8_t *x, size_t elem_bytes, uint16x8_t (*load)(const uint8_t *, size_t),
            bool wanted)
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

/* Returns the largest bit pattern, if wanted. */
static inline __attribute__((always_inline)) uint16_t block_max(uint16_t *max, const uint8_t *x,
                                                                size_t n_blocks, size_t elem_bytes,
                                                                uint16x8_t (*load)(const uint8_t *, size_t),
                                                                bool wanted)
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

static void block_max_16_neon(uint16_t *max, uint16_t *low, const void *x, size_t n_blocks)
{
    if (low != NULL)
        *low = block_max(max, x, n_blocks, 2, load_16, true);
    else
        block_max(max, x, n_blocks, 2, load_16, false);
}

/* Here the patterns cost nothing: memory is slower. */
static void block_max_32_neon(uint16_t *max, uint16_t *low, const void *x, size_t n_blocks)
{
    const uint16_t pattern = block_max(max, x, n_blocks, 4, load_32, true);
    if (low != NULL)
        *low = pattern;
}

static size_t count_ge_u16_neon(const uint16_t *v, size_t n, uint16_t floor)
{
    enum { MOST = 1 << 18 }; /* elements before the 16-bit counters are added up: 2^14 in each */
    const uint16x8_t least = vdupq_n_u16(floor);
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
    return count + syi_kernels_scalar.count_ge_u16(v + i, n - i, floor);
}

/* One bit per element of a block, set where the order is at least the floor. From a floor that no negative reaches, bit
   patterns compare as signed integers. */
static inline __attribute__((always_inline)) uint64_t hits(const uint8_t *x, uint16_t floor,
                                                           uint16x8_t (*load)(const uint8_t *, size_t))
{
    const uint16x8_t least = vdupq_n_u16(floor);
    const int16x8_t positive = vdupq_n_s16((int16_t)(floor & 0x7fff));
    uint8x16_t mask[4];
    for (size_t i = 0; i < 4 && floor >= 0x8000u; i++) {
        const uint16x8_t low = vcgeq_s16(vreinterpretq_s16_u16(load(x, i * 16)), positive);
        const uint16x8_t high = vcgeq_s16(vreinterpretq_s16_u16(load(x, i * 16 + 8)), positive);
        mask[i] = vuzp1q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high));
    }
    for (size_t i = 0; i < 4 && floor < 0x8000u; i++) {
        const uint16x8_t low = vcgeq_u16(order_of(load(x, i * 16)), least);
        const uint16x8_t high = vcgeq_u16(order_of(load(x, i * 16 + 8)), least);
        mask[i] = vuzp1q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high));
    }
    return bits_of(mask);
}

static uint64_t reach_16_neon(const void *x, uint16_t floor)
{
    return hits(x, floor, load_16);
}

static uint64_t reach_32_neon(const void *x, uint16_t floor)
{
    return hits(x, floor, load_32);
}

/* Slots both tables share. */
#define SLOTS \
    .copy_fan = copy_fan_neon, .copy_rows = copy_rows_neon, .scale_f32 = scale_f32_neon, \
    .sum_rows_f32 = syi_sum_rows_f32_neon, .dot_f32 = syi_dot_f32_neon, .dot_bf16 = syi_dot_bf16_neon, \
    .nonzero_u8 = nonzero_u8_neon, .keys_f32 = keys_f32_neon, .keys_f16 = keys_f16_neon, \
    .keys_bf16 = keys_bf16_neon, .exp_keys = exp_keys_neon, .weigh_f32 = weigh_f32_neon, \
    .sum_exp_f32 = sum_exp_f32_neon, .sum_exp_f16 = sum_exp_f16_neon, .sum_exp_bf16 = sum_exp_bf16_neon, \
    .block_max_16 = block_max_16_neon, .block_max_32 = block_max_32_neon, .count_ge_u16 = count_ge_u16_neon, \
    .reach_16 = reach_16_neon, .reach_32 = reach_32_neon, .decode = syi_decode_neon

const struct syi_kernels syi_kernels_neon = {
    .name = "neon",
    .needs = SYI_CPU_NEON,
    .scale_f16 = scale_f16_neon,
    .scale_bf16 = scale_bf16_neon,
    .sum_rows_f16 = syi_sum_rows_f16_neon,
    .sum_rows_bf16 = syi_sum_rows_bf16_neon,
    .dot_f16 = syi_dot_f16_neon,
    SLOTS,
};

const struct syi_kernels syi_kernels_neon_bf16 = {
    .name = "neon_bf16",
    .needs = SYI_CPU_NEON | SYI_CPU_BF16,
    .scale_f16 = syi_scale_f16_neon_bf16,
    .scale_bf16 = syi_scale_bf16_neon_bf16,
    .sum_rows_f16 = syi_sum_rows_f16_neon_bf16,
    .sum_rows_bf16 = syi_sum_rows_bf16_neon_bf16,
    .dot_f16 = syi_dot_f16_neon_bf16,
    SLOTS,
};
