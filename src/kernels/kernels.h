/*
 * All inner loops. A table holds one implementation of each for one instruction set; operators are written once on top of the table of
 * their context.
 *
 *     pick.c:  avx512 > avx2 > neon_bf16 > neon > scalar     the best whose `needs` this processor has, or the one that the caller names
 *     <isa>.c rows, keys, weights, maxima    <isa>_codes.c 8-bit codes    typed.h, encode.h what all tables write in the same way
 *
 * Invariants
 * - scalar.c defines the bits. Every other table does the same operation for each element in the same order, fused only where scalar.c
 *   calls fmaf; sum_exp alone may differ, within SYI_SUM_EXP_ERROR.
 * - A kernel has no code for single operators, allocates nothing, accepts any alignment, and never reads or writes outside its n elements.
 * - It runs between syi_fp_enter and syi_fp_leave: rounding to nearest, subnormals kept.
 *
 * Terms: an entry is a member of the table; a key is a logit as u32 in its order, an order the 16 bits by which block_max compares; a block is SYI_BLOCK elements; a lane is one of the SYI_DOT_LANES sums of a dot product, folded by halves. Row data is passed as
 * void because it has no alignment; keys, positions and exponentials are scratch of our own.
 */
#pragma once

#include "plan/codes.h"
#include "plan/sample_math.h"

#define SYI_INLINE static inline __attribute__((always_inline))

struct syi_key_stats {
    uint32_t max;   /* largest key so far; start at 0 */
    uint32_t flags; /* SY_ROW_NAN, SY_ROW_INF seen so far; start at 0 */
};

enum {
    SYI_FAN = 8,    /* most destinations of one copy_fan call */
    SYI_BLOCK = 64, /* elements under one maximum of block_max */
    SYI_BLOCK_BYTES_16 = 128,
    SYI_BLOCK_BYTES_32 = 256,
    SYI_DOT_ROWS = 8 /* rows read at the same time, so that their cache and page misses overlap */
};

/* Relative error of sum_exp: an exponential to 6e-6, and at most sixteen f32 added before the sum continues in
   f64. */
#define SYI_SUM_EXP_ERROR 0x1p-17

/* The same for exp_row and split: at most three roundings in f32, each by 2^-24, before a sum continues in f64. */
#define SYI_ROW_SUM_ERROR 0x1.81p-23

typedef void syi_decode_fn(void *dst, const void *codes, const float *w, size_t group, size_t n_groups);
typedef void syi_amax_fn(uint32_t *most, const void *x, size_t group, size_t n_groups);
typedef void syi_encode_fn(void *codes, const void *x, const float *by, size_t group, size_t n_groups);

/* Groups of `group` numbers to codes (encode.h). */
struct syi_encoders {
    /* The largest magnitude of each group, as the bits of an f32: 7f800000 with an infinity, more with a NaN. */
    syi_amax_fn *amax[SYI_N_FLOATS];
    /* codes[i] = round(x[i] * by), or x[i] / by, to nearest even, by[g] for group g; floats saturate. Codes are defined
       for groups whose numbers and `by` are finite, divisors from 2^-80 to 2^126, and of int8 whose results are at most
       127.5. */
    syi_encode_fn *times[SYI_N_CODES][SYI_N_FLOATS], *over[SYI_N_CODES][SYI_N_FLOATS];
};

/* What `over` demands of a divisor: from 2^-80 to 2^98, and a significand that is not all ones. */
static inline bool syi_is_divisor(uint32_t bits)
{
    return (bits >= 0x17800000u) & (bits < 0x70800000u) & ((~bits & 0x7fffffu) != 0);
}

struct syi_fp4_scale;
typedef void syi_pack_fn(void *row, const void *x, size_t n_groups);
typedef void syi_pack_fp4_fn(void *codes, void *scales, const void *x, const struct syi_fp4_scale *scale,
                             size_t n_groups);
typedef void syi_unpack_fp4_fn(void *x, const void *codes, const void *scales, float decode, size_t n_groups);

/* Any numbers to packed rows whose groups follow each other, each with the scale that is made for it (pack.h). */
struct syi_packers {
    syi_pack_fn *inlined[2][SYI_N_FLOATS]; /* q8_0, q4_0: 32 numbers and the scale in front of their codes */
    syi_pack_fp4_fn *fp4[SYI_N_FLOATS];    /* nvfp4: 16 numbers, scales apart */
    syi_unpack_fp4_fn *from_fp4[SYI_N_FLOATS];
};

/* Block tables of sequences, [rows][columns], and what tokens, blocks and slots are below. */
struct syi_slot_table {
    const void *block;
    uint32_t rows, columns;             /* at least 1; fewer than 2^31 entries */
    uint32_t length, n_blocks, n_slots; /* 1 to 2^31 */
    uint32_t size, magic;               /* tokens of a block; token t is in block t * magic >> shift */
    int shift;
};

/* Entries that there are for each type of number, by enum syi_float. */
typedef void syi_scale_fn(void *dst, const void *src, float w, size_t n);
typedef void syi_sum_rows_fn(void *dst, const void *const *rows, const float *w, size_t n_rows, size_t n);
typedef void syi_dot_rows_fn(float *dst, const void *a, const void *const *rows, size_t n_rows, size_t n);
typedef void syi_keys_fn(uint32_t *key, const void *x, size_t n, struct syi_key_stats *stats);
typedef double syi_sum_exp_fn(const void *x, size_t n, float m, float inv_t);
typedef double syi_exp_row_fn(float *e, const void *x, size_t n, float m, float inv_t);

struct syi_kernels {
    const char *name; /* shown by `switchyard info`, accepted by --isa */
    uint32_t needs;   /* SYI_CPU_* bits, all of them */

    /* One row to n <= SYI_FAN places: read once, every destination written in ascending order. */
    void (*copy_fan)(void *const *dst, size_t n, const void *src, size_t bytes);

    /* n rows of equal length, syi_abreast(bytes) of them at the same time, so that their cache and page misses
       overlap. */
    void (*copy_rows)(void *const *dst, const void *const *src, size_t n, size_t bytes);

    /* dst[i] = round(w * src[i]) to the row type, through one rounding to f32; NaN results are canonical.
       dst may be src. */
    syi_scale_fn *scale[SYI_N_FLOATS];

    /* The same for groups of `group` 8-bit codes, w[g] for group g, which become numbers of the row type. dst overlaps
       no code. */
    syi_decode_fn *const (*decode)[SYI_N_FLOATS]; /* [syi_code][syi_float] */

    /* And back. */
    const struct syi_encoders *encoders;
    const struct syi_packers *packers;

    /*
     * Weighted sum of rows: per element acc = +0, then acc = fl(acc + fl(w[j] * rows[j][i])) in f32 for
     * ascending j, then one rounding to the row type; NaN results are canonical. w NULL is all ones, no rows
     * at all give +0. dst overlaps no row.
     */
    syi_sum_rows_fn *sum_rows[SYI_N_FLOATS];

    /*
     * Dot products in f32 of one row and each of n_rows others: product i is rounded and added to lane
     * i % SYI_DOT_LANES, the lanes are folded by halves. Every SYI_DOT_BLOCK elements are folded by themselves,
     * and the blocks added in order to +0. A NaN result is canonical.
     */
    syi_dot_rows_fn *dot_rows[SYI_N_FLOATS];

    /* Positions of the non-zero bytes, ascending; returns how many. pos has space for n. */
    size_t (*nonzero_u8)(int32_t *pos, const void *bytes, size_t n);

    /* Of i32: slot[i] = block[row[i]][token[i] / size] * size + token[i] % size; row NULL: all 0. False when a row, token, block
       or slot is not below its limit: then slots are any, and nothing outside the table was read. */
    bool (*find_slots)(void *slot, const void *token, const void *row, const struct syi_slot_table *table,
                       size_t n);

    /* Keys of a row of logits; adds to the statistics. */
    syi_keys_fn *keys[SYI_N_FLOATS];

    /* e[i] = exp((value of key[i] - m) * inv_t) by the library's own polynomial. The argument is at most 86;
       for positive ones the result has only the precision of the polynomial. */
    void (*exp_keys)(float *e, const uint32_t *key, size_t n, float m, float inv_t);

    /* Sum of the fixed-point weights of a row of f32 logits. A NaN has the weight 0; no logit is above m. */
    uint64_t (*weigh_f32)(const void *x, size_t n, float m, float inv_t);

    /* Sum of e as in exp_keys over a row of logits, within SYI_SUM_EXP_ERROR of itself and 2^-100 per
       element: the only entry whose last bits may differ between tables, for callers whose results do not
       depend on them. */
    syi_sum_exp_fn *sum_exp[SYI_N_FLOATS];

    /* e as in exp_keys of a row of logits, or any value below 2^-100 where it is below that, as a NaN is; no logit
       is above m. Returns their sum within SYI_ROW_SUM_ERROR of itself. */
    syi_exp_row_fn *exp_row[SYI_N_FLOATS];

    /* Of n values, none negative: the sum of those from `high` on within SYI_ROW_SUM_ERROR of itself, and the
       positions of those from `low` on below it, ascending; returns how many. pos has space for n. */
    size_t (*split)(int32_t *pos, const float *e, size_t n, float low, float high, double *sum);

    /* Sum of the fixed-point weights of those of n values, none negative or above 1, that are at least `least`. */
    uint64_t (*weigh_e)(const float *e, size_t n, float least);

    /*
     * Order of raw logits, 16 bits wide: the bit pattern of a 16-bit float (or the upper half of an f32),
     * with the lower bits of negative ones inverted and the sign bit flipped. Not canonical: -0 is one below
     * +0, NaNs are beyond the infinities. block_max: the largest order in each run of SYI_BLOCK elements.
     * *low, unless NULL, is the largest bit pattern (or upper half) of all, which exceeds that of every number when
     * there is a -inf or a NaN with a sign; 0 for no blocks.
     */
    void (*block_max_16)(uint16_t *max, uint16_t *low, const void *x, size_t n_blocks);
    void (*block_max_32)(uint16_t *max, uint16_t *low, const void *x, size_t n_blocks);

    /* How many entries are >= threshold. */
    size_t (*count_ge_u16)(const uint16_t *v, size_t n, uint16_t threshold);

    /* Which of the SYI_BLOCK elements of a block have an order >= threshold, the first in the lowest bit. */
    uint64_t (*reach_16)(const void *x, uint16_t threshold);
    uint64_t (*reach_32)(const void *x, uint16_t threshold);

    /* Blocks of 64 floats to words, the first element in the lowest bit: which have order - low <= span, where an order is the
       bit pattern with all bits but the sign of negative ones inverted, as a signed number; -0 is -1. Returns how many. */
    size_t (*mark_16)(uint64_t *bits, const void *x, size_t n_blocks, uint16_t low, uint16_t span);
    size_t (*mark_32)(uint64_t *bits, const void *x, size_t n_blocks, uint32_t low, uint32_t span);
};

/* Appends the positions of the set bits of a mask, counted from `base`, to the `found` ones. */
static inline size_t syi_push_bits(int32_t *pos, size_t found, uint64_t mask, size_t base)
{
    for (; mask != 0; mask &= mask - 1)
        pos[found++] = (int32_t)(base + (size_t)__builtin_ctzll(mask));
    return found;
}

/* The same for a mask of 64 positions from `base` on; pos has space for all of them, since `found` <= base: the first
   four without a branch, which would be mispredicted. */
static inline size_t syi_push_some(int32_t *pos, size_t found, uint64_t mask, size_t base)
{
    uint64_t left = mask;
    for (size_t i = 0; i < 4; i++, left &= left - 1)
        pos[found + i] = (int32_t)(base + ((size_t)__builtin_ctzll(left | UINT64_C(1) << 63)));
    if (left != 0)
        syi_push_bits(pos, found + 4, left, base);
    return found + (size_t)__builtin_popcountll(mask);
}

/* Adds the lanes of a dot product by halves, lane 8 to lane 0 first. Lanes start at +0, so none is ever -0, and
   adding a zero for a missing element changes nothing. */
static inline float syi_fold_lanes(float *lane)
{
    for (size_t half = SYI_DOT_LANES / 2; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

/* Adds to sum[j] the dot product of `a` and rows[j], for at most SYI_DOT_BLOCK elements of at most SYI_DOT_ROWS
   rows. */
typedef void syi_dot_block_fn(float *sum, const char *a, const char *const *rows, size_t n_rows, size_t n);

/* Dot products of any length and number. */
static inline void syi_dot_blocks(float *dst, const char *a, const void *const *rows, size_t n_rows, size_t n,
                                  size_t elem_bytes, syi_dot_block_fn *add_block)
{
    for (size_t j = 0, group; j < n_rows; j += group) {
        const char *from[SYI_DOT_ROWS];
        float sum[SYI_DOT_ROWS] = {0};
        group = n_rows - j < SYI_DOT_ROWS ? n_rows - j : SYI_DOT_ROWS;
        for (size_t i = 0; i < n; i += SYI_DOT_BLOCK) {
            for (size_t g = 0; g < group; g++)
                from[g] = (const char *)rows[j + g] + i * elem_bytes;
            add_block(sum, a + i * elem_bytes, from, group, n - i < SYI_DOT_BLOCK ? n - i : SYI_DOT_BLOCK);
        }
        for (size_t g = 0; g < group; g++)
            dst[j + g] = syi_canonical(sum[g]);
    }
}

/* Rows that copy_rows copies at the same time: for shorter rows more misses must overlap. */
size_t syi_abreast(size_t bytes);

/* Prefetches before `group` of the `left` rows are copied: the heads of these rows, or if rows are so short that this is
   too late, all of the next group. */
void syi_fetch_rows(const void *const *rows, size_t left, size_t group, size_t bytes);

extern syi_decode_fn *const syi_decode_scalar[SYI_N_CODES][SYI_N_FLOATS];
extern syi_decode_fn *const syi_decode_neon[SYI_N_CODES][SYI_N_FLOATS];
extern syi_decode_fn *const syi_decode_neon_bf16[SYI_N_CODES][SYI_N_FLOATS];
extern syi_decode_fn *const syi_decode_avx2[SYI_N_CODES][SYI_N_FLOATS];
extern syi_decode_fn *const syi_decode_avx512[SYI_N_CODES][SYI_N_FLOATS];

extern const struct syi_encoders syi_encoders_scalar, syi_encoders_neon, syi_encoders_avx2,
    syi_encoders_avx512;

extern const struct syi_packers syi_packers_scalar, syi_packers_neon, syi_packers_avx2, syi_packers_avx512;

extern const struct syi_kernels syi_kernels_scalar;
extern const struct syi_kernels syi_kernels_neon;
extern const struct syi_kernels syi_kernels_neon_bf16;
extern const struct syi_kernels syi_kernels_avx2;
extern const struct syi_kernels syi_kernels_avx512;

/* The i-th table this CPU can run, best first; NULL past the end. */
const struct syi_kernels *syi_kernels_at(int i);

/* The table of that name, or the best for NULL; NULL when this CPU cannot run it or, with *known
   false, when there is no such table. */
const struct syi_kernels *syi_kernels_named(const char *name, bool *known);
