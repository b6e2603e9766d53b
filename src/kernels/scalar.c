/*
 * The reference table: plain C, one IEEE operation per step in the order written. It defines the bits every
 * other table, thread count and device must reproduce. The file is built without contraction, so a*b+c is two
 * roundings and fmaf is exactly one.
 */
#include "kernels/kernels.h"

#include <math.h>

#define CANONICAL_NAN_BITS 0x7fc00000u

/* For short rows, page walks and first cache lines dominate: many rows at once overlap them. A long row is a stream, and
   a core prefetches few of them. */
size_t syi_abreast(size_t bytes)
{
    enum { SHORT = 8 * 1024, LONG = 64 * 1024 };
    return bytes < SHORT ? 16 : bytes < LONG ? 8 : 2;
}

void syi_fetch_rows(const void *const *rows, size_t left, size_t group, size_t bytes)
{
    enum { LINE = 64, HEAD = 128, SHORT = 512, LONG = 8 * 1024 };
    if (bytes <= SHORT) {
        const size_t end = left < 2 * group ? left : 2 * group;
        for (size_t i = group; i < end; i++)
            for (size_t at = 0; at < bytes; at += LINE)
                __builtin_prefetch((const char *)rows[i] + at, 0, 2);
    } else if (bytes < LONG) {
        for (size_t i = 0; i < group; i++) {
            __builtin_prefetch(rows[i], 0, 3);
            __builtin_prefetch((const char *)rows[i] + HEAD, 0, 3);
        }
    }
}

static void copy_fan_scalar(void *const *dst, size_t n, const void *src, size_t bytes)
{
    for (size_t i = 0; i < n; i++)
        memcpy(dst[i], src, bytes);
}

static void copy_rows_scalar(void *const *dst, const void *const *src, size_t n, size_t bytes)
{
    for (size_t i = 0; i < n; i++)
        memcpy(dst[i], src[i], bytes);
}

static float load_f32(const void *x, size_t i)
{
    float value;
    memcpy(&value, (const char *)x + i * sizeof value, sizeof value);
    return value;
}

static uint16_t load_u16(const void *x, size_t i)
{
    uint16_t value;
    memcpy(&value, (const char *)x + i * sizeof value, sizeof value);
    return value;
}

static void store_u16(void *x, size_t i, uint16_t value)
{
    memcpy((char *)x + i * sizeof value, &value, sizeof value);
}

static void scale_f32_scalar(void *dst, const void *src, float w, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float product = w * load_f32(src, i);
        if (product != product)
            product = syi_f32_from_bits(CANONICAL_NAN_BITS);
        memcpy((char *)dst + i * sizeof product, &product, sizeof product);
    }
}

static void scale_f16_scalar(void *dst, const void *src, float w, size_t n)
{
    for (size_t i = 0; i < n; i++)
        store_u16(dst, i, syi_f32_to_f16(w * syi_f16_to_f32(load_u16(src, i))));
}

static void scale_bf16_scalar(void *dst, const void *src, float w, size_t n)
{
    for (size_t i = 0; i < n; i++)
        store_u16(dst, i, syi_f32_to_bf16(w * syi_bf16_to_f32(load_u16(src, i))));
}

/* ---- Sums of rows and dot products ------------------------------------------------------------------- */

static float widen_f16(const void *x, size_t i)
{
    return syi_f16_to_f32(load_u16(x, i));
}

static float widen_bf16(const void *x, size_t i)
{
    return syi_bf16_to_f32(load_u16(x, i));
}

/* Element i of the sum. A weight of one does not change x, so that rows without weights need no separate path. */
static float sum_at(const void *const *rows, const float *w, size_t n_rows, size_t i,
                    float (*load)(const void *, size_t))
{
    float sum = 0.0f;
    for (size_t j = 0; j < n_rows; j++)
        sum += (w != NULL ? w[j] : 1.0f) * load(rows[j], i);
    return sum;
}

static void sum_rows_f32_scalar(void *dst, const void *const *rows, const float *w, size_t n_rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float sum = syi_canonical(sum_at(rows, w, n_rows, i, load_f32));
        memcpy((char *)dst + i * sizeof sum, &sum, sizeof sum);
    }
}

static void sum_rows_f16_scalar(void *dst, const void *const *rows, const float *w, size_t n_rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        store_u16(dst, i, syi_f32_to_f16(sum_at(rows, w, n_rows, i, widen_f16)));
}

static void sum_rows_bf16_scalar(void *dst, const void *const *rows, const float *w, size_t n_rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        store_u16(dst, i, syi_f32_to_bf16(sum_at(rows, w, n_rows, i, widen_bf16)));
}

static void add_dots(float *sum, const char *a, const char *const *rows, size_t n_rows, size_t n,
                     float (*load)(const void *, size_t))
{
    for (size_t j = 0; j < n_rows; j++) {
        float lane[SYI_DOT_LANES] = {0};
        for (size_t i = 0; i < n; i++)
            lane[i % SYI_DOT_LANES] += load(a, i) * load(rows[j], i);
        sum[j] += syi_fold_lanes(lane);
    }
}

static void add_dots_f32(float *sum, const char *a, const char *const *rows, size_t n_rows, size_t n)
{
    add_dots(sum, a, rows, n_rows, n, load_f32);
}

static void add_dots_f16(float *sum, const char *a, const char *const *rows, size_t n_rows, size_t n)
{
    add_dots(sum, a, rows, n_rows, n, widen_f16);
}

static void add_dots_bf16(float *sum, const char *a, const char *const *rows, size_t n_rows, size_t n)
{
    add_dots(sum, a, rows, n_rows, n, widen_bf16);
}

static void dot_rows_f32_scalar(float *dst, const void *a, const void *const *rows, size_t n_rows, size_t n)
{
    syi_dot_blocks(dst, a, rows, n_rows, n, 4, add_dots_f32);
}

static void dot_rows_f16_scalar(float *dst, const void *a, const void *const *rows, size_t n_rows, size_t n)
{
    syi_dot_blocks(dst, a, rows, n_rows, n, 2, add_dots_f16);
}

static void dot_rows_bf16_scalar(float *dst, const void *a, const void *const *rows, size_t n_rows, size_t n)
{
    syi_dot_blocks(dst, a, rows, n_rows, n, 2, add_dots_bf16);
}

/* ---- Positions --------------------------------------------------------------------------------------- */

static size_t nonzero_u8_scalar(int32_t *pos, const void *bytes, size_t n)
{
    const unsigned char *b = bytes;
    size_t found = 0;
    for (size_t i = 0; i < n; i++)
        if (b[i] != 0)
            pos[found++] = (int32_t)i;
    return found;
}

/* ---- Keys -------------------------------------------------------------------------------------------- */

static uint32_t key_of(uint32_t bits, struct syi_key_stats *stats)
{
    const uint32_t key = syi_key(bits);
    stats->flags |= syi_key_flags(bits);
    if (key > stats->max)
        stats->max = key;
    return key;
}

static void keys_f32_scalar(uint32_t *key, const void *x, size_t n, struct syi_key_stats *stats)
{
    for (size_t i = 0; i < n; i++)
        key[i] = key_of(syi_f32_bits(load_f32(x, i)), stats);
}

static void keys_f16_scalar(uint32_t *key, const void *x, size_t n, struct syi_key_stats *stats)
{
    for (size_t i = 0; i < n; i++)
        key[i] = key_of(syi_f32_bits(syi_f16_to_f32(load_u16(x, i))), stats);
}

static void keys_bf16_scalar(uint32_t *key, const void *x, size_t n, struct syi_key_stats *stats)
{
    for (size_t i = 0; i < n; i++)
        key[i] = key_of((uint32_t)load_u16(x, i) << 16, stats);
}

/* ---- exp --------------------------------------------------------------------------------------------- */

static void exp_keys_scalar(float *e, const uint32_t *key, size_t n, float m, float inv_t)
{
    for (size_t i = 0; i < n; i++)
        e[i] = syi_exp((syi_key_value(key[i]) - m) * inv_t);
}

/* ---- Weights ----------------------------------------------------------------------------------------- */

static uint64_t weigh_f32_scalar(const void *x, size_t n, float m, float inv_t)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += syi_weight(syi_exp((load_f32(x, i) - m) * inv_t));
    return sum;
}

static double sum_exp_f32_scalar(const void *x, size_t n, float m, float inv_t)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)syi_exp((load_f32(x, i) - m) * inv_t);
    return sum;
}

static double sum_exp_f16_scalar(const void *x, size_t n, float m, float inv_t)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)syi_exp((syi_f16_to_f32(load_u16(x, i)) - m) * inv_t);
    return sum;
}

static double sum_exp_bf16_scalar(const void *x, size_t n, float m, float inv_t)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)syi_exp((syi_bf16_to_f32(load_u16(x, i)) - m) * inv_t);
    return sum;
}

/* ---- Rows of e ----------------------------------------------------------------------------------------- */

static double exp_row_f32_scalar(float *e, const void *x, size_t n, float m, float inv_t)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)(e[i] = syi_exp((load_f32(x, i) - m) * inv_t));
    return sum;
}

static double exp_row_f16_scalar(float *e, const void *x, size_t n, float m, float inv_t)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)(e[i] = syi_exp((syi_f16_to_f32(load_u16(x, i)) - m) * inv_t));
    return sum;
}

static double exp_row_bf16_scalar(float *e, const void *x, size_t n, float m, float inv_t)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)(e[i] = syi_exp((syi_bf16_to_f32(load_u16(x, i)) - m) * inv_t));
    return sum;
}

static size_t split_scalar(int32_t *pos, const float *e, size_t n, float low, float high, double *sum)
{
    size_t found = 0;
    *sum = 0;
    for (size_t i = 0; i < n; i++) {
        *sum += e[i] >= high ? (double)e[i] : 0;
        pos[found] = (int32_t)i;
        found += e[i] >= low && e[i] < high;
    }
    return found;
}

static uint64_t weigh_e_scalar(const float *e, size_t n, float least)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += e[i] >= least ? syi_weight(e[i]) : 0;
    return sum;
}

/* ---- Order of raw logits ----------------------------------------------------------------------------- */

static uint16_t order_of(uint16_t bits)
{
    return bits & 0x8000u ? (uint16_t)~bits : (uint16_t)(bits | 0x8000u);
}

static uint16_t order_16(const void *x, size_t i)
{
    return order_of(load_u16(x, i));
}

static uint16_t order_32(const void *x, size_t i)
{
    return order_of((uint16_t)(syi_f32_bits(load_f32(x, i)) >> 16));
}

static void block_max(uint16_t *max, uint16_t *low, const void *x, size_t n_blocks,
                      uint16_t (*order)(const void *, size_t))
{
    uint16_t largest = 0;
    for (size_t b = 0; b < n_blocks; b++) {
        max[b] = 0;
        for (size_t i = b * SYI_BLOCK; i < (b + 1) * SYI_BLOCK; i++) {
            const uint16_t at = order(x, i), pattern = at ^ (at & 0x8000u ? 0x8000u : 0xffffu);
            max[b] = at > max[b] ? at : max[b];
            largest = pattern > largest ? pattern : largest;
        }
    }
    if (low != NULL)
        *low = largest;
}

static void block_max_16_scalar(uint16_t *max, uint16_t *low, const void *x, size_t n_blocks)
{
    block_max(max, low, x, n_blocks, order_16);
}

static void block_max_32_scalar(uint16_t *max, uint16_t *low, const void *x, size_t n_blocks)
{
    block_max(max, low, x, n_blocks, order_32);
}

static size_t count_ge_u16_scalar(const uint16_t *v, size_t n, uint16_t floor)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += v[i] >= floor;
    return count;
}

static uint64_t reach(const void *x, uint16_t floor, uint16_t (*order)(const void *, size_t))
{
    uint64_t hits = 0;
    for (size_t i = 0; i < SYI_BLOCK; i++)
        hits |= (uint64_t)(order(x, i) >= floor) << i;
    return hits;
}

static uint64_t reach_16_scalar(const void *x, uint16_t floor)
{
    return reach(x, floor, order_16);
}

static uint64_t reach_32_scalar(const void *x, uint16_t floor)
{
    return reach(x, floor, order_32);
}

const struct syi_kernels syi_kernels_scalar = {
    .name = "scalar",
    .copy_fan = copy_fan_scalar,
    .copy_rows = copy_rows_scalar,
    .scale_f32 = scale_f32_scalar,
    .scale_f16 = scale_f16_scalar,
    .scale_bf16 = scale_bf16_scalar,
    .decode = syi_decode_scalar,
    .encoders = &syi_encoders_scalar,
    .sum_rows_f32 = sum_rows_f32_scalar,
    .sum_rows_f16 = sum_rows_f16_scalar,
    .sum_rows_bf16 = sum_rows_bf16_scalar,
    .dot_rows_f32 = dot_rows_f32_scalar,
    .dot_rows_f16 = dot_rows_f16_scalar,
    .dot_rows_bf16 = dot_rows_bf16_scalar,
    .nonzero_u8 = nonzero_u8_scalar,
    .keys_f32 = keys_f32_scalar,
    .keys_f16 = keys_f16_scalar,
    .keys_bf16 = keys_bf16_scalar,
    .exp_keys = exp_keys_scalar,
    .weigh_f32 = weigh_f32_scalar,
    .sum_exp_f32 = sum_exp_f32_scalar,
    .sum_exp_f16 = sum_exp_f16_scalar,
    .sum_exp_bf16 = sum_exp_bf16_scalar,
    .exp_row_f32 = exp_row_f32_scalar,
    .exp_row_f16 = exp_row_f16_scalar,
    .exp_row_bf16 = exp_row_bf16_scalar,
    .split = split_scalar,
    .weigh_e = weigh_e_scalar,
    .block_max_16 = block_max_16_scalar,
    .block_max_32 = block_max_32_scalar,
    .count_ge_u16 = count_ge_u16_scalar,
    .reach_16 = reach_16_scalar,
    .reach_32 = reach_32_scalar,
};
