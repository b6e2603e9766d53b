/*
 * The reference table: plain C, one IEEE operation per step in the order written. It defines the bits every
 * other table, thread count and device must reproduce. The file is built without contraction, so a*b+c is two
 * roundings and fmaf is exactly one.
 */
#include "kernels/typed.h"
#include "plan/load.h"

#include <math.h>

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

static void copy_fan(void *const *dst, size_t n, const void *src, size_t bytes)
{
    for (size_t i = 0; i < n; i++)
        memcpy(dst[i], src, bytes);
}

static void copy_rows(void *const *dst, const void *const *src, size_t n, size_t bytes)
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

SYI_INLINE float load(const void *x, size_t i, const enum syi_float type)
{
    return type == SYI_FLOAT_F32   ? load_f32(x, i)
           : type == SYI_FLOAT_F16 ? syi_f16_to_f32(load_u16(x, i))
                                   : syi_bf16_to_f32(load_u16(x, i));
}

/* A result of arithmetic, whose NaN becomes the canonical one of the type. */
SYI_INLINE void store(void *y, size_t i, float value, const enum syi_float type)
{
    if (type == SYI_FLOAT_F32) {
        value = syi_canonical(value);
        memcpy((char *)y + i * sizeof value, &value, sizeof value);
        return;
    }
    const uint16_t bits = type == SYI_FLOAT_F16 ? syi_f32_to_f16(value) : syi_f32_to_bf16(value);
    memcpy((char *)y + i * sizeof bits, &bits, sizeof bits);
}

SYI_INLINE void scale(void *y, const void *x, float w, size_t n, const enum syi_float type)
{
    for (size_t i = 0; i < n; i++)
        store(y, i, w * load(x, i, type), type);
}

SYI_EACH_FLOAT(SYI_DEFINE_SCALE)

/* ---- Sums of rows and dot products ---- */

/* A weight of one does not change x, so that rows without weights need no separate path. */
SYI_INLINE void sum_rows(void *y, const void *const *rows, const float *w, size_t n_rows, size_t n,
                         const enum syi_float type)
{
    for (size_t i = 0; i < n; i++) {
        float sum = 0.0f;
        for (size_t j = 0; j < n_rows; j++)
            sum += (w != NULL ? w[j] : 1.0f) * load(rows[j], i, type);
        store(y, i, sum, type);
    }
}

SYI_EACH_FLOAT(SYI_DEFINE_SUM_ROWS)

SYI_INLINE void add_dots(float *sum, const char *a, const char *const *rows, size_t n_rows, size_t n,
                         const enum syi_float type)
{
    for (size_t j = 0; j < n_rows; j++) {
        float lane[SYI_DOT_LANES] = {0};
        for (size_t i = 0; i < n; i++)
            lane[i % SYI_DOT_LANES] += load(a, i, type) * load(rows[j], i, type);
        sum[j] += syi_fold_lanes(lane);
    }
}

SYI_EACH_FLOAT(SYI_DEFINE_DOT_ROWS)

/* ---- Positions ---- */

static size_t nonzero_u8(int32_t *pos, const void *bytes, size_t n)
{
    const unsigned char *b = bytes;
    size_t found = 0;
    for (size_t i = 0; i < n; i++)
        if (b[i] != 0)
            pos[found++] = (int32_t)i;
    return found;
}

/* With and without rows. */
SYI_INLINE bool find_slots_of(unsigned char *slot, const unsigned char *token, const unsigned char *row,
                              const struct syi_slot_table l, size_t n)
{
    bool good = true;
    for (size_t i = 0; i < n; i++) {
        const uint32_t t = syi_load_u32(token + i * 4), r = row != NULL ? syi_load_u32(row + i * 4) : 0;
        const bool inside = (r < l.rows) & (t < l.length);
        const uint64_t column = inside ? (uint64_t)t * l.magic >> l.shift : 0,
                       at = column + (inside ? (uint64_t)r * l.columns : 0);
        const uint32_t block = syi_load_u32((const unsigned char *)l.block + at * 4),
                       s = t + (block - (uint32_t)column) * l.size;
        good &= inside & (block < l.n_blocks) & (s < l.n_slots);
        syi_store_u32(slot + i * 4, s);
    }
    return good;
}

static bool find_slots(void *slot, const void *token, const void *row, const struct syi_slot_table *table,
                       size_t n)
{
    return row != NULL ? find_slots_of(slot, token, row, *table, n)
                       : find_slots_of(slot, token, NULL, *table, n);
}

/* ---- Keys ---- */

SYI_INLINE void keys(uint32_t *key, const void *x, size_t n, struct syi_key_stats *stats,
                     const enum syi_float type)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = syi_f32_bits(load(x, i, type));
        key[i] = syi_key(bits);
        stats->flags |= syi_key_flags(bits);
        stats->max = key[i] > stats->max ? key[i] : stats->max;
    }
}

SYI_EACH_FLOAT(SYI_DEFINE_KEYS)

/* ---- exp ---- */

static void exp_keys(float *e, const uint32_t *key, size_t n, float m, float inv_t)
{
    for (size_t i = 0; i < n; i++)
        e[i] = syi_exp((syi_key_value(key[i]) - m) * inv_t);
}

/* ---- Weights ---- */

static uint64_t weigh_f32(const void *x, size_t n, float m, float inv_t)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += syi_weight(syi_exp((load_f32(x, i) - m) * inv_t));
    return sum;
}

SYI_INLINE double sum_exp(const void *x, size_t n, float m, float inv_t, const enum syi_float type)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)syi_exp((load(x, i, type) - m) * inv_t);
    return sum;
}

SYI_EACH_FLOAT(SYI_DEFINE_SUM_EXP)

/* ---- Rows of e ---- */

SYI_INLINE double exp_row(float *e, const void *x, size_t n, float m, float inv_t, const enum syi_float type)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)(e[i] = syi_exp((load(x, i, type) - m) * inv_t));
    return sum;
}

SYI_EACH_FLOAT(SYI_DEFINE_EXP_ROW)

static size_t split(int32_t *pos, const float *e, size_t n, float low, float high, double *sum)
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

static uint64_t weigh_e(const float *e, size_t n, float least)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += e[i] >= least ? syi_weight(e[i]) : 0;
    return sum;
}

/* ---- Order of raw logits ---- */

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

static void block_max_16(uint16_t *max, uint16_t *low, const void *x, size_t n_blocks)
{
    block_max(max, low, x, n_blocks, order_16);
}

static void block_max_32(uint16_t *max, uint16_t *low, const void *x, size_t n_blocks)
{
    block_max(max, low, x, n_blocks, order_32);
}

static size_t count_ge_u16(const uint16_t *v, size_t n, uint16_t threshold)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += v[i] >= threshold;
    return count;
}

static uint64_t reach(const void *x, uint16_t threshold, uint16_t (*order)(const void *, size_t))
{
    uint64_t hits = 0;
    for (size_t i = 0; i < SYI_BLOCK; i++)
        hits |= (uint64_t)(order(x, i) >= threshold) << i;
    return hits;
}

static uint64_t reach_16(const void *x, uint16_t threshold)
{
    return reach(x, threshold, order_16);
}

static uint64_t reach_32(const void *x, uint16_t threshold)
{
    return reach(x, threshold, order_32);
}

const struct syi_kernels syi_kernels_scalar = {
    .name = "scalar",
    .scale = SYI_FLOATS(scale),
    .sum_rows = SYI_FLOATS(sum_rows),
    .dot_rows = SYI_FLOATS(dot_rows),
    .decode = syi_decode_scalar,
    .encoders = &syi_encoders_scalar,
    .packers = &syi_packers_scalar,
    .block_max_16 = block_max_16,
    .block_max_32 = block_max_32,
    .count_ge_u16 = count_ge_u16,
    .reach_16 = reach_16,
    .reach_32 = reach_32,
    SYI_SAME_ENTRIES,
};
