/*
 * AArch64 with Advanced SIMD, which every 64-bit Arm has. The same bits as scalar.c: the same operation per
 * element in the same order, fused only where scalar.c calls fmaf.
 */
#include "kernels/neon.h"

/* ---- Copies ---- */

SYI_INLINE void fan(void *const *dst, const size_t n, const char *src, size_t bytes)
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

static void copy_fan(void *const *dst, size_t n, const void *src, size_t bytes)
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

static void copy_rows(void *const *dst, const void *const *src, size_t n, size_t bytes)
{
    syi_copy_groups(dst, src, n, bytes, copy_abreast);
}

/* ---- Scaling ---- */

/* A NaN product is the canonical one: syi_fp_enter has enabled default NaNs. */
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

/* The upper half, rounded; a tie is rounded up, then its last bit is cleared to make it even. */
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

SYI_INLINE void scale(uint8_t *dst, const uint8_t *src, float w, size_t n, const enum syi_float type)
{
    const size_t bytes = syi_float_size(type);
    const size_t done = scale_bytes(dst, src, w, n * bytes,
                                    type == SYI_FLOAT_F32   ? times_f32
                                    : type == SYI_FLOAT_F16 ? times_f16
                                                            : times_bf16);
    syi_kernels_scalar.scale[type](dst + done, src + done, w, n - done / bytes);
}

SYI_EACH_FLOAT(SYI_DEFINE_SCALE)

/* ---- Positions ---- */

/* Always writes four positions at a time: the number of set bytes of 64 is hard to predict, the number of fours mostly
   is not. Positions past the last are overwritten, or are past the result. */
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

static size_t nonzero_u8(int32_t *pos, const void *bytes, size_t n)
{
    const uint8_t *b = bytes;
    uint8_t rest[64] = {0};
    size_t found = 0, i = 0;
    for (; i + 64 <= n; i += 64) /* found <= i, so pos has space for all that is written */
        found = push_fours(pos, found, nonzero_64(b + i), i);
    if (i == n)
        return found;
    memcpy(rest, b + i, n - i);
    return syi_push_bits(pos, found, nonzero_64(rest), i);
}

/* There is no gather. */
static bool find_slots(void *slot, const void *token, const void *row, const struct syi_slot_table *table,
                       size_t n)
{
    return syi_kernels_scalar.find_slots(slot, token, row, table, n);
}

/* ---- Keys ---- */

static float32x4_t constant(uint32_t bits)
{
    return vreinterpretq_f32_u32(vdupq_n_u32(bits));
}

struct key_lanes {
    uint32x4_t max, number, inf; /* number: all bits set while no NaN was seen */
};

/* Adding +0 makes a -0 positive and a NaN quiet; the larger of a quiet NaN and -inf is -inf. */
static uint32x4_t keys_of(uint32x4_t bits, struct key_lanes *lanes)
{
    const float32x4_t x = vreinterpretq_f32_u32(bits), infinity = constant(0x7f800000);
    const float32x4_t number = vmaxnmq_f32(vaddq_f32(x, vdupq_n_f32(0.0f)), vnegq_f32(infinity));
    const uint32x4_t value = vreinterpretq_u32_f32(vminnmq_f32(number, constant(0x7f7fffff)));
    const uint32x4_t sign = vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(value), 31));
    const uint32x4_t key = veorq_u32(value, vorrq_u32(sign, vdupq_n_u32(0x80000000u)));
    lanes->max = vmaxq_u32(lanes->max, key);
    lanes->number = vandq_u32(lanes->number, vceqq_f32(x, x));
    lanes->inf = vorrq_u32(lanes->inf, vceqq_f32(x, infinity));
    return key;
}

static void add_lanes(struct syi_key_stats *stats, const struct key_lanes *lanes)
{
    const uint32_t max = vmaxvq_u32(lanes->max);
    stats->max = max > stats->max ? max : stats->max;
    stats->flags |= vminvq_u32(lanes->number) == 0 ? SY_ROW_NAN : 0;
    stats->flags |= vmaxvq_u32(lanes->inf) != 0 ? SY_ROW_INF : 0;
}

/* The bits of eight elements as f32. */
struct eight_words {
    uint32x4_t low, high;
};

SYI_INLINE struct eight_words words_of(const uint8_t *x, const enum syi_float type)
{
    if (type == SYI_FLOAT_F32)
        return (struct eight_words){vreinterpretq_u32_u8(vld1q_u8(x)),
                                    vreinterpretq_u32_u8(vld1q_u8(x + 16))};
    const uint16x8_t v = vreinterpretq_u16_u8(vld1q_u8(x));
    if (type == SYI_FLOAT_BF16)
        return (struct eight_words){vshll_n_u16(vget_low_u16(v), 16), vshll_n_u16(vget_high_u16(v), 16)};
    return (struct eight_words){vreinterpretq_u32_f32(widen_f16(vget_low_u16(v))),
                                vreinterpretq_u32_f32(widen_f16(vget_high_u16(v)))};
}

SYI_INLINE void keys(uint32_t *key, const uint8_t *x, size_t n, struct syi_key_stats *stats,
                     const enum syi_float type)
{
    const size_t bytes = syi_float_size(type);
    struct key_lanes lanes = {vdupq_n_u32(0), vdupq_n_u32(UINT32_MAX), vdupq_n_u32(0)};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const struct eight_words v = words_of(x + i * bytes, type);
        vst1q_u32(key + i, keys_of(v.low, &lanes));
        vst1q_u32(key + i + 4, keys_of(v.high, &lanes));
    }
    for (; type == SYI_FLOAT_F32 && i + 4 <= n; i += 4)
        vst1q_u32(key + i, keys_of(vreinterpretq_u32_u8(vld1q_u8(x + i * 4)), &lanes));
    add_lanes(stats, &lanes);
    syi_kernels_scalar.keys[type](key + i, x + i * bytes, n - i, stats);
}

SYI_EACH_FLOAT(SYI_DEFINE_KEYS)

/* ---- exp ---- */

/* Step for step syi_exp. */
static float32x4_t exp_neon(float32x4_t t)
{
    const float32x4_t magic = vdupq_n_f32(12582912.0f);
    const uint32x4_t live = vcgeq_f32(t, vdupq_n_f32(-86.0f));
    const float32x4_t shifted = vfmaq_f32(magic, t, constant(0x3fb8aa3b)); /* n is in its lower bits */
    const float32x4_t n = vsubq_f32(shifted, magic);
    float32x4_t r = vfmaq_f32(t, n, constant(0xbf318000));
    r = vfmaq_f32(r, n, constant(0x395e8083));
    float32x4_t c = constant(0x3ab526b0);
    c = vfmaq_f32(constant(0x3c091cc7), c, r);
    c = vfmaq_f32(constant(0x3d2aac58), c, r);
    c = vfmaq_f32(constant(0x3e2aaa49), c, r);
    c = vfmaq_f32(constant(0x3efffffe), c, r);
    const float32x4_t y = vaddq_f32(vdupq_n_f32(1.0f), vfmaq_f32(r, vmulq_f32(r, r), c));
    const uint32x4_t e = vaddq_u32(vreinterpretq_u32_f32(y), vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23));
    return vreinterpretq_f32_u32(vandq_u32(e, live));
}

static float32x4_t value_of(uint32x4_t key)
{
    const uint32x4_t negative = vcgezq_s32(vreinterpretq_s32_u32(key));
    return vreinterpretq_f32_u32(veorq_u32(key, vorrq_u32(negative, vdupq_n_u32(0x80000000u))));
}

static float32x4_t exp_of(float32x4_t value, float m, float inv_t)
{
    return exp_neon(vmulq_n_f32(vsubq_f32(value, vdupq_n_f32(m)), inv_t));
}

static void exp_8(float *e, const uint32_t *key, float m, float inv_t)
{
    const float32x4_t low =
        exp_of(value_of(vld1q_u32(key)), m, inv_t); /* a single chain would wait for its own latency */
    const float32x4_t high = exp_of(value_of(vld1q_u32(key + 4)), m, inv_t);
    vst1q_f32(e, low);
    vst1q_f32(e + 4, high);
}

/* Four vectors interleaved: the dependency chain of one is longer than the core's window. */
static void exp_16(float *e, const uint32_t *key, float m, float inv_t)
{
    float32x4_t x[4];
    for (size_t i = 0; i < 4; i++)
        x[i] = value_of(vld1q_u32(key + 4 * i));
    for (size_t i = 0; i < 4; i++)
        x[i] = exp_of(x[i], m, inv_t);
    for (size_t i = 0; i < 4; i++)
        vst1q_f32(e + 4 * i, x[i]);
}

static void exp_keys(float *e, const uint32_t *key, size_t n, float m, float inv_t)
{
    uint32_t rest[8] = {0};
    float e_rest[8];
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        exp_16(e + i, key + i, m, inv_t);
    for (; i + 8 <= n; i += 8)
        exp_8(e + i, key + i, m, inv_t);
    if (i < n) { /* rows with few candidates often have a rest of up to seven */
        memcpy(rest, key + i, (n - i) * sizeof *rest);
        exp_8(e_rest, rest, m, inv_t);
        memcpy(e + i, e_rest, (n - i) * sizeof *e);
    }
}

/*
 * exp_neon of value - m for weights, which are 0 below -28.5: instead of a test for too small arguments they are clamped
 * to -80, as a NaN is, and instead of a conversion the integer is taken from the lower bits of the sum with 1.5*2^23.
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

/* An f64 from 2^12 on has no bits below 2^-40, so adding 2^12 rounds e to nearest even, and the weight is the
   difference of the bits to those of 2^12. */
#define NO_WEIGHTS UINT64_C(0x40b0000000000000) /* the bits of 2^12 */
static uint64x2_t add_weights(uint64x2_t sum, float64x2_t e)
{
    return vaddq_u64(sum, vreinterpretq_u64_f64(vaddq_f64(e, vdupq_n_f64(4096.0))));
}

static uint64_t weigh_f32(const void *x, size_t n, float m, float inv_t)
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
    return vaddvq_u64(vaddq_u64(vaddq_u64(a, b), vaddq_u64(c, d))) - NO_WEIGHTS * i +
           syi_kernels_scalar.weigh_f32(in + i * 4, n - i, m, inv_t);
}

SYI_INLINE float32x4_t load_four(const uint8_t *x, const enum syi_float type)
{
    return type == SYI_FLOAT_F32   ? vreinterpretq_f32_u8(vld1q_u8(x))
           : type == SYI_FLOAT_F16 ? widen_f16(vreinterpret_u16_u8(vld1_u8(x)))
                                   : widen_bf16(vreinterpret_u16_u8(vld1_u8(x)));
}

/*
 * exp to within 6e-6 for sums that need no more: a polynomial of one degree less, a remainder with one constant,
 * and no test for underflow (a NaN counts as -87). Two thirds of the instructions of exp_neon.
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

/* Whole groups of 64 elements. */
SYI_INLINE double sum_exp(const uint8_t *x, size_t n, float m, float inv_t, const enum syi_float type)
{
    const size_t step = 4 * syi_float_size(type);
    float64x2_t sum = vdupq_n_f64(0);
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        float32x4_t a = vdupq_n_f32(0), b = a;
        for (size_t j = 0; j < 8; j++, x += 2 * step) { /* two chains: more would not fit the registers */
            a = vaddq_f32(a, rough_exp(load_four(x, type), m, inv_t));
            b = vaddq_f32(b, rough_exp(load_four(x + step, type), m, inv_t));
        }
        const float32x4_t all = vaddq_f32(a, b);
        sum = vaddq_f64(sum, vaddq_f64(vcvt_f64_f32(vget_low_f32(all)), vcvt_high_f64_f32(all)));
    }
    return vaddvq_f64(sum) + syi_kernels_scalar.sum_exp[type](x, n - i, m, inv_t);
}

SYI_EACH_FLOAT(SYI_DEFINE_SUM_EXP)

/* The initial value of a sum, loaded each time: a register copy would use a slot of the arithmetic pipes. */
struct start {
    uint32_t word[4];
};
#define START(bits) \
    { \
        { \
            (bits), (bits), (bits), (bits) \
        } \
    }
enum { START_C1, START_C2, START_C3, START_C4, START_MAGIC, N_STARTS };
static const struct start starts[N_STARTS] = {START(0x3c091cc7), START(0x3d2aac58), START(0x3e2aaa49),
                                              START(0x3efffffe), START(0x4b400000)};

SYI_INLINE float32x4_t start_from(int i)
{
    float32x4_t v;
    __asm__ volatile("ldr %q0, %1" : "=w"(v) : "m"(starts[i]));
    return v;
}

/* exp_to_weigh of eight vectors interleaved, which hides latency; neighbouring operations with the same constant share
   its load, because registers are scarce. */
#define EACH_OF_EIGHT _Pragma("GCC unroll 8") for (size_t j = 0; j < 8; j++)
SYI_INLINE void exp_eight(float32x4_t t[8], float m, float inv_t)
{
    const float32x4_t magic = vdupq_n_f32(12582912.0f);
    float32x4_t shifted[8], n[8], c[8], square[8];
    EACH_OF_EIGHT
    t[j] = vmaxnmq_f32(vmulq_n_f32(vsubq_f32(t[j], vdupq_n_f32(m)), inv_t), vdupq_n_f32(-80.0f));
    EACH_OF_EIGHT
    shifted[j] = vfmaq_f32(start_from(START_MAGIC), t[j], constant(0x3fb8aa3b));
    EACH_OF_EIGHT
    n[j] = vsubq_f32(shifted[j], magic);
    EACH_OF_EIGHT
    t[j] = vfmaq_f32(t[j], n[j], constant(0xbf318000));
    EACH_OF_EIGHT
    t[j] = vfmaq_f32(t[j], n[j], constant(0x395e8083));
    EACH_OF_EIGHT
    c[j] = vfmaq_f32(start_from(START_C1), t[j], constant(0x3ab526b0));
    EACH_OF_EIGHT
    c[j] = vfmaq_f32(start_from(START_C2), c[j], t[j]);
    EACH_OF_EIGHT
    square[j] = vmulq_f32(t[j], t[j]);
    EACH_OF_EIGHT
    c[j] = vfmaq_f32(start_from(START_C3), c[j], t[j]);
    EACH_OF_EIGHT
    c[j] = vfmaq_f32(start_from(START_C4), c[j], t[j]);
    EACH_OF_EIGHT
    t[j] = vaddq_f32(vdupq_n_f32(1.0f), vfmaq_f32(t[j], square[j], c[j]));
    EACH_OF_EIGHT
    t[j] = vreinterpretq_f32_u32(
        vaddq_u32(vreinterpretq_u32_f32(t[j]), vshlq_n_u32(vreinterpretq_u32_f32(shifted[j]), 23)));
}

/* e of a row and their sum: every eight in f32, three roundings, then in f64. */
SYI_INLINE double exp_row(float *e, const uint8_t *x, size_t n, float m, float inv_t,
                          const enum syi_float type)
{
    const size_t step = 4 * syi_float_size(type);
    float64x2_t low = vdupq_n_f64(0), high = low;
    size_t i = 0;
    for (; i + 32 <= n; i += 32, x += 8 * step) {
        float32x4_t t[8];
        EACH_OF_EIGHT
        t[j] = load_four(x + j * step, type);
        exp_eight(t, m, inv_t);
        EACH_OF_EIGHT
        vst1q_f32(e + i + 4 * j, t[j]);
        const float32x4_t all = vaddq_f32(vaddq_f32(vaddq_f32(t[0], t[1]), vaddq_f32(t[2], t[3])),
                                          vaddq_f32(vaddq_f32(t[4], t[5]), vaddq_f32(t[6], t[7])));
        low = vaddq_f64(low, vcvt_f64_f32(vget_low_f32(all)));
        high = vaddq_f64(high, vcvt_high_f64_f32(all));
    }
    return vaddvq_f64(vaddq_f64(low, high)) + syi_kernels_scalar.exp_row[type](e + i, x, n - i, m, inv_t);
}

SYI_EACH_FLOAT(SYI_DEFINE_EXP_ROW)

/* A mask with one byte for each of sixteen e: whether it is in a range. */
static uint8x16_t narrow_mask(const uint32x4_t in[4])
{
    const uint16x8_t low = vuzp1q_u16(vreinterpretq_u16_u32(in[0]), vreinterpretq_u16_u32(in[1]));
    const uint16x8_t high = vuzp1q_u16(vreinterpretq_u16_u32(in[2]), vreinterpretq_u16_u32(in[3]));
    return vuzp1q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high));
}

static size_t split(int32_t *pos, const float *e, size_t n, float low, float high, double *sum)
{
    const float32x4_t least = vdupq_n_f32(low), above = vdupq_n_f32(high);
    float64x2_t total = vdupq_n_f64(0);
    size_t i = 0, found = 0;
    for (; i + 64 <= n; i += 64) {
        uint8x16_t mask[4];
        for (size_t j = 0; j < 4; j++) {
            uint32x4_t in[4];
            float32x4_t v[4];
            for (size_t l = 0; l < 4; l++) {
                const float32x4_t x = vld1q_f32(e + i + 16 * j + 4 * l);
                const uint32x4_t top = vcgeq_f32(x, above);
                in[l] = vbicq_u32(vcgeq_f32(x, least), top);
                v[l] = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), top));
            }
            const float32x4_t all = vaddq_f32(vaddq_f32(v[0], v[1]), vaddq_f32(v[2], v[3]));
            total = vaddq_f64(total, vaddq_f64(vcvt_f64_f32(vget_low_f32(all)), vcvt_high_f64_f32(all)));
            mask[j] = narrow_mask(in);
        }
        found = syi_push_some(pos, found, bits_of(mask), i);
    }
    return syi_split_rest(pos, found, e, i, n, low, high, vaddvq_f64(total), sum);
}

static uint64_t weigh_e(const float *e, size_t n, float least)
{
    const float32x4_t from = vdupq_n_f32(least);
    uint64x2_t a = vdupq_n_u64(0), b = a, c = a, d = a;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const float32x4_t x = vld1q_f32(e + i), y = vld1q_f32(e + i + 4);
        const float32x4_t low =
            vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), vcgeq_f32(x, from)));
        const float32x4_t high =
            vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(y), vcgeq_f32(y, from)));
        a = add_weights(a, vcvt_f64_f32(vget_low_f32(low)));
        b = add_weights(b, vcvt_high_f64_f32(low));
        c = add_weights(c, vcvt_f64_f32(vget_low_f32(high)));
        d = add_weights(d, vcvt_high_f64_f32(high));
    }
    return vaddvq_u64(vaddq_u64(vaddq_u64(a, b), vaddq_u64(c, d))) - NO_WEIGHTS * i +
           syi_kernels_scalar.weigh_e(e + i, n - i, least);
}

/* Entries that both tables share. */
#define SHARED \
    SYI_SAME_ENTRIES, .block_max_16 = syi_block_max_16_neon, .block_max_32 = syi_block_max_32_neon, \
                      .count_ge_u16 = syi_count_ge_u16_neon, .reach_16 = syi_reach_16_neon, \
                      .reach_32 = syi_reach_32_neon, .encoders = &syi_encoders_neon, \
                      .packers = &syi_packers_neon

const struct syi_kernels syi_kernels_neon = {
    .name = "neon",
    .needs = SYI_CPU_NEON,
    .scale = SYI_FLOATS(scale),
    .sum_rows = {syi_sum_rows_f32_neon, syi_sum_rows_f16_neon, syi_sum_rows_bf16_neon},
    .dot_rows = {syi_dot_rows_f32_neon, syi_dot_rows_f16_neon, syi_dot_rows_bf16_neon},
    .decode = syi_decode_neon,
    SHARED,
};

const struct syi_kernels syi_kernels_neon_bf16 = {
    .name = "neon_bf16",
    .needs = SYI_CPU_NEON | SYI_CPU_BF16,
    .scale = {scale_f32, syi_scale_f16_neon_bf16, syi_scale_bf16_neon_bf16},
    .sum_rows = {syi_sum_rows_f32_neon, syi_sum_rows_f16_neon_bf16, syi_sum_rows_bf16_neon_bf16},
    .dot_rows = {syi_dot_rows_f32_neon, syi_dot_rows_f16_neon_bf16, syi_dot_rows_bf16_neon},
    .decode = syi_decode_neon_bf16,
    SHARED,
};
