/*
 * What every kernel table writes in the same way: the entries for each type of number, and the loops around an instruction set's own.
 *
 * A table has one body for an entry, whose `type` is a constant after inlining:
 *
 *     SYI_INLINE void scale(void *dst, const void *src, float w, size_t n, const enum syi_float type) { ... }
 *     SYI_EACH_FLOAT(SYI_DEFINE_SCALE)     -> scale_f32, scale_f16, scale_bf16
 *     .scale = SYI_FLOATS(scale)           -> the entry of the table
 */
#pragma once

#include "kernels/kernels.h"

#define SYI_EACH_FLOAT(DEFINE) \
    DEFINE(f32, SYI_FLOAT_F32) \
    DEFINE(f16, SYI_FLOAT_F16) \
    DEFINE(bf16, SYI_FLOAT_BF16)

#define SYI_FLOATS(name) \
    { \
        name##_f32, name##_f16, name##_bf16 \
    }

/* Entries of one name in every table. */
#define SYI_SAME_ENTRIES \
    .copy_fan = copy_fan, .copy_rows = copy_rows, .nonzero_u8 = nonzero_u8, .find_slots = find_slots, \
    .keys = SYI_FLOATS(keys), .exp_keys = exp_keys, .weigh_f32 = weigh_f32, .sum_exp = SYI_FLOATS(sum_exp), \
    .exp_row = SYI_FLOATS(exp_row), .split = split, .weigh_e = weigh_e, .mark_16 = mark_16, \
    .mark_32 = mark_32

#define SYI_DEFINE_SCALE(name, type) \
    static void scale_##name(void *dst, const void *src, float w, size_t n) \
    { \
        scale(dst, src, w, n, type); \
    }

#define SYI_DEFINE_SUM_ROWS(name, type) \
    static void sum_rows_##name(void *dst, const void *const *rows, const float *w, size_t n_rows, size_t n) \
    { \
        sum_rows(dst, rows, w, n_rows, n, type); \
    }

/* Of a body `add_dots` for a block. */
#define SYI_DEFINE_DOT_ROWS(name, type) \
    static void add_dots_##name(float *sum, const char *a, const char *const *rows, size_t n_rows, size_t n) \
    { \
        add_dots(sum, a, rows, n_rows, n, type); \
    } \
    static void dot_rows_##name(float *dst, const void *a, const void *const *rows, size_t n_rows, size_t n) \
    { \
        syi_dot_blocks(dst, a, rows, n_rows, n, syi_float_size(type), add_dots_##name); \
    }

#define SYI_DEFINE_KEYS(name, type) \
    static void keys_##name(uint32_t *key, const void *x, size_t n, struct syi_key_stats *stats) \
    { \
        keys(key, x, n, stats, type); \
    }

#define SYI_DEFINE_SUM_EXP(name, type) \
    static double sum_exp_##name(const void *x, size_t n, float m, float inv_t) \
    { \
        return sum_exp(x, n, m, inv_t, type); \
    }

#define SYI_DEFINE_EXP_ROW(name, type) \
    static double exp_row_##name(float *e, const void *x, size_t n, float m, float inv_t) \
    { \
        return exp_row(e, x, n, m, inv_t, type); \
    }

/* Of a body `block_max` and the functions best_16 and best_32 for one block. */
#define SYI_DEFINE_BLOCK_MAX \
    static void block_max_16(uint16_t *max, uint16_t *low, const void *x, size_t n_blocks) \
    { \
        block_max(max, low, x, n_blocks, SYI_BLOCK_BYTES_16, best_16); \
    } \
    static void block_max_32(uint16_t *max, uint16_t *low, const void *x, size_t n_blocks) \
    { \
        block_max(max, low, x, n_blocks, SYI_BLOCK_BYTES_32, best_32); \
    }

#ifndef SYI_OWN_MARKS
/* 64 bytes of 0 or 1 to bits: eight bytes at a time, whose bits a product moves to the top one. */
SYI_INLINE uint64_t syi_bits_of(const uint8_t *byte)
{
    uint64_t bits = 0;
    for (int i = 0; i < SYI_BLOCK / 8; i++) {
        uint64_t eight;
        memcpy(&eight, byte + (size_t)i * 8, sizeof eight);
        bits |= (eight * UINT64_C(0x0102040810204080) >> 56) << (8 * i);
    }
    return bits;
}

/* Comparisons that compilers vectorise, for each table's instructions. */
#define SYI_DEFINE_MARK(width, top) \
    static inline size_t mark_##width(uint64_t *bits, const void *x, size_t n_blocks, uint##width##_t low, \
                                      uint##width##_t span) \
    { \
        size_t count = 0; \
        for (size_t b = 0; b < n_blocks; b++) { \
            uint##width##_t block[SYI_BLOCK]; \
            uint8_t in[SYI_BLOCK]; \
            memcpy(block, (const char *)x + b * sizeof block, sizeof block); \
            for (int i = 0; i < SYI_BLOCK; i++) { \
                const uint##width##_t flip = (uint##width##_t)((int##width##_t)block[i] >> (top)) >> 1; \
                in[i] = (uint##width##_t)((block[i] ^ flip) - low) <= span; \
            } \
            bits[b] = syi_bits_of(in); \
            count += (size_t)__builtin_popcountll(bits[b]); \
        } \
        return count; \
    }
SYI_DEFINE_MARK(16, 15)
SYI_DEFINE_MARK(32, 31)
#endif

SYI_INLINE size_t syi_float_size(const enum syi_float type)
{
    return type == SYI_FLOAT_F32 ? 4 : 2;
}

/* Rows of equal length, as many at a time as pays: `abreast` copies a group. */
SYI_INLINE void syi_copy_groups(void *const *dst, const void *const *src, size_t n, size_t bytes,
                                void (*abreast)(void *const *, const void *const *, size_t, size_t))
{
    const size_t most = syi_abreast(bytes);
    for (size_t done = 0; done < n; done += most) {
        const size_t left = n - done, group = left < most ? left : most;
        syi_fetch_rows(src + done, left, group, bytes);
        abreast(dst + done, src + done, group, bytes);
    }
}

/* Dot products by blocks of four, two and one rows: add_few has a constant number of them. */
typedef void syi_add_few_fn(float *sum, const char *a, const char *const *rows, const size_t n_rows, size_t n,
                            const enum syi_float type);
SYI_INLINE void syi_add_dots(float *sum, const char *a, const char *const *rows, size_t n_rows, size_t n,
                             const enum syi_float type, syi_add_few_fn *add_few)
{
    size_t j = 0;
    for (; j + 4 <= n_rows; j += 4)
        add_few(sum + j, a, rows + j, 4, n, type);
    for (; j + 2 <= n_rows; j += 2)
        add_few(sum + j, a, rows + j, 2, n, type);
    if (j < n_rows)
        add_few(sum + j, a, rows + j, 1, n, type);
}

/* The end of a split: values [i, n), after `found` positions and the sum of those before. */
SYI_INLINE size_t syi_split_rest(int32_t *pos, size_t found, const float *e, size_t i, size_t n, float low,
                                 float high, double before, double *sum)
{
    double rest;
    const size_t more = syi_kernels_scalar.split(pos + found, e + i, n - i, low, high, &rest);
    for (size_t j = found; j < found + more; j++)
        pos[j] += (int32_t)i;
    *sum = before + rest;
    return found + more;
}
