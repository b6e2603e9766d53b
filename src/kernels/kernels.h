/*
 * The whole list of inner loops. A table holds one implementation of each for one instruction set; operators
 * are written once on top of the table their context carries. scalar.c defines the bits all other tables
 * reproduce.
 *
 * Kernels know no operator, allocate nothing, accept any alignment, and never read or write outside their n
 * elements. Row data is passed as void because it has no alignment; keys, positions and exponentials are
 * scratch of our own.
 */
#ifndef SYI_KERNELS_H
#define SYI_KERNELS_H

#include "base/base.h"

/* Key of a logit: an unsigned integer that orders like the canonical value (NaN = -inf, +inf = FLT_MAX, -0
   = +0). */
#define SYI_KEY_MINUS_INF 0x007fffffu

struct syi_key_stats {
    uint32_t max;   /* largest key so far; start at 0 */
    uint32_t flags; /* SY_ROW_NAN, SY_ROW_INF seen so far; start at 0 */
};

struct syi_kernels {
    const char *name; /* shown by `switchyard info`, accepted by --isa */

    /* dst[0..bytes) = src[0..bytes) */
    void (*copy_row)(void *dst, const void *src, size_t bytes);

    /* dst[i] = round(w * src[i]) to the row type, through one rounding to f32; NaN results are canonical.
       dst may be src. */
    void (*scale_f32)(void *dst, const void *src, float w, size_t n);
    void (*scale_f16)(void *dst, const void *src, float w, size_t n);
    void (*scale_bf16)(void *dst, const void *src, float w, size_t n);

    /* Positions of the non-zero bytes, ascending; returns how many. pos has room for n. */
    size_t (*nonzero_u8)(int32_t *pos, const void *bytes, size_t n);

    /* Keys of a row of logits; adds to the statistics. */
    void (*keys_f32)(uint32_t *key, const void *x, size_t n, struct syi_key_stats *stats);
    void (*keys_f16)(uint32_t *key, const void *x, size_t n, struct syi_key_stats *stats);
    void (*keys_bf16)(uint32_t *key, const void *x, size_t n, struct syi_key_stats *stats);

    /* e[i] = exp((value of key[i] - m) * inv_t) by the library's own polynomial; every key <= the key of
       m. */
    void (*exp_keys)(float *e, const uint32_t *key, size_t n, float m, float inv_t);
};

extern const struct syi_kernels syi_kernels_scalar;

/* The i-th table this CPU can run, best first; NULL past the end. */
const struct syi_kernels *syi_kernels_at(int i);

/* The table of that name, or the best for NULL; NULL when there is none. */
const struct syi_kernels *syi_kernels_named(const char *name);

/* The canonical value a key stands for, and back. */
float syi_key_value(uint32_t key);
uint32_t syi_value_key(float canonical);

#endif
