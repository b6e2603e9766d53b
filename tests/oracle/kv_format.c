#include "kv_format.h"

#include "codes.h"
#include <string.h>
#include <stdbool.h>

#include "oracle/numbers.h"

#include <float.h>
#include <math.h>

static enum oracle_code code_type(const struct packed_cache *p)
{
    return p->format.q_type.code == 10 ? ORACLE_E4M3 : p->format.q_type.code == 12 ? ORACLE_E5M2 : ORACLE_I8;
}

static bool in_tensor(const struct packed_cache *p)
{
    return p->format.scales == SY_SCALES_TENSOR;
}

static bool is_inline(const struct packed_cache *p)
{
    return p->format.scales == SY_SCALES_INLINE;
}

static int64_t count(const struct packed_cache *p)
{
    return in_tensor(p) || is_inline(p) ? p->elems : p->format.q_count;
}

static int64_t group(const struct packed_cache *p)
{
    return in_tensor(p) ? p->elems / p->parts : p->format.group;
}

int64_t oracle_unpacked(const struct packed_cache *p)
{
    return count(p) + p->format.rope_bytes / 2;
}

static unsigned char *row_at(const struct packed_cache *p, int64_t slot)
{
    return p->cache + slot / p->block_size * p->block_stride + slot % p->block_size * p->row_stride;
}

static unsigned char *code_at(const struct packed_cache *p, int64_t slot, int64_t i)
{
    const int64_t of_head = in_tensor(p) ? p->elems / p->heads : p->format.q_count;
    return row_at(p, slot) + p->format.q_off + i / of_head * p->head_stride + i % of_head;
}

static unsigned char *scale_at(const struct packed_cache *p, int64_t slot, int64_t g)
{
    const int64_t size = p->format.scale_type.bits == 8 ? 1 : 4;
    const int64_t block = slot / p->block_size, within = slot % p->block_size;
    if (in_tensor(p))
        return (unsigned char *)(p->scale + slot * p->scale_stride + g);
    if (p->format.scales == SY_SCALES_ROW)
        return row_at(p, slot) + p->format.scale_off + g * size;
    return p->cache + block * p->block_stride + p->block_size * p->format.row_bytes +
           within * p->format.scale_bytes + p->format.scale_off + g * size;
}

static double scale_value(const struct packed_cache *p, int64_t slot, int64_t g)
{
    float value;
    if (!in_tensor(p) && p->format.scale_type.bits == 8)
        return oracle_code_value(ORACLE_E8M0, *scale_at(p, slot, g));
    memcpy(&value, scale_at(p, slot, g), sizeof value);
    return (double)value;
}

/* ---- Groups of 32 with their scale before them ---- */

static unsigned char *group_at(const struct packed_cache *p, int64_t slot, int64_t i)
{
    return row_at(p, slot) + i / 32 * (p->format.q_type.bits == 4 ? 18 : 34);
}

static void unpack_inline(const struct packed_cache *p, int64_t slot, enum number_type type, void *dense)
{
    for (int64_t i = 0; i < p->elems; i++) {
        const unsigned char *at = group_at(p, slot, i), *codes = at + 2;
        const double scale = f16_value((uint16_t)(at[0] | at[1] << 8));
        const int nibble = i % 32 < 16 ? codes[i % 16] % 16 : codes[i % 16] / 16;
        const double code =
            p->format.q_type.bits == 4 ? nibble - 8 : oracle_code_value(ORACLE_I8, codes[i % 32]);
        number_put(type, dense, i, (double)(float)(code * scale));
    }
}

/* Half away from zero; NaN is 0, and what is too large the last code. */
static int away(double y)
{
    return isnan(y) ? 0 : (int)fmax(-128, fmin(127, y < 0 ? -floor(0.5 - y) : floor(y + 0.5)));
}

static void pack_inline(const struct packed_cache *p, int64_t slot, enum number_type type, const void *dense)
{
    const bool four = p->format.q_type.bits == 4;
    for (int64_t first = 0; first < p->elems; first += 32) {
        unsigned char *to = group_at(p, slot, first);
        double most = 0;
        for (int64_t i = first; i < first + 32; i++) {
            const double x = number_get(type, dense, i), bounded = fmax(-FLT_MAX, fmin(FLT_MAX, x));
            if (!isnan(x) && fabs(bounded) > fabs(most))
                most = bounded;
        }
        const float d = (float)(four ? most / -8 : fabs(most) / 127),
                    factor = d != 0 ? (float)(1 / (double)d) : 0;
        const uint16_t scale = f16_round((double)d);
        to[0] = (unsigned char)(scale & 255);
        to[1] = (unsigned char)(scale >> 8);
        memset(to + 2, 0, four ? 16 : 32);
        for (int i = 0; i < 32; i++) {
            const double y = (double)(float)(number_get(type, dense, first + i) * (double)factor);
            const double z = (double)(float)(y + 8.5);
            const int nibble = isnan(y) ? 8 : (int)fmax(0, fmin(15, trunc(z)));
            if (four)
                to[2 + i % 16] = (unsigned char)(to[2 + i % 16] + (i < 16 ? nibble : 16 * nibble));
            else
                to[2 + i] = (unsigned char)away(y);
        }
    }
}

/* ---- nvfp4: groups of 16, two codes of a byte ---- */

static const double magnitudes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

static bool is_fp4(const struct packed_cache *p)
{
    return p->format.q_type.bits == 4 && p->format.q_type.code == 17;
}

static unsigned char *byte_at(const struct packed_cache *p, int64_t slot, int64_t i)
{
    const int64_t of_head = p->elems / p->heads;
    return row_at(p, slot) + i / of_head * p->head_stride + i % of_head / 2;
}

static unsigned char *fp4_scale_at(const struct packed_cache *p, int64_t slot, int64_t i)
{
    return (unsigned char *)p->scale + slot * p->scale_stride + i / 16;
}

static float at_most(double x)
{
    return x > (double)FLT_MAX ? FLT_MAX : fminf((float)x, FLT_MAX);
}

/* All numbers by one factor, and back. */
static void global_scales(const struct packed_cache *p, float *there, float *back)
{
    const bool amax = p->format.global_is == SY_GLOBAL_AMAX;
    *there = at_most((amax ? 2688.0 : 1.0) / (double)p->global);
    *back = amax ? (float)(1 / (double)*there) : p->global;
}

static void unpack_fp4(const struct packed_cache *p, int64_t slot, enum number_type type, void *dense)
{
    float there, back;
    global_scales(p, &there, &back);
    for (int64_t i = 0; i < p->elems; i++) {
        const unsigned char byte = *byte_at(p, slot, i);
        const int code = i % 2 == 0 ? byte % 16 : byte / 16;
        const double x = code < 8 ? magnitudes[code] : -magnitudes[code - 8];
        const double scale = oracle_code_value(ORACLE_E4M3, *fp4_scale_at(p, slot, i));
        number_put(type, dense, i, (double)(float)(x * scale * (double)back));
    }
}

static int nearest_fp4(double y)
{
    int best = 0;
    for (int code = 1; code < 8 && !isnan(y); code++) {
        const double closer = fabs(fabs(y) - magnitudes[best]) - fabs(fabs(y) - magnitudes[code]);
        if (closer > 0 || (closer == 0 && code % 2 == 0))
            best = code;
    }
    return best + (signbit(y) && !isnan(y) ? 8 : 0);
}

static void pack_fp4(const struct packed_cache *p, int64_t slot, enum number_type type, const void *dense)
{
    float there, back;
    global_scales(p, &there, &back);
    const double by = (double)(float)((double)there * (double)(float)(1.0 / 6.0));
    for (int64_t i = 0; i < p->elems; i++) {
        double amax = 0;
        for (int64_t k = i / 16 * 16; k < i / 16 * 16 + 16; k++)
            if (!isnan(number_get(type, dense, k)))
                amax = fmax(amax, fmin(fabs(number_get(type, dense, k)), (double)FLT_MAX));
        const unsigned b = oracle_code_nearest(ORACLE_E4M3, (double)(float)(amax * by));
        const double s = (double)(float)(oracle_code_value(ORACLE_E4M3, b) * (double)back);
        const double factor = b == 0 ? 0 : s == 0 ? (double)FLT_MAX : (double)at_most((double)(float)(1 / s));
        const double bounded = fmax(-1e6, fmin(1e6, number_get(type, dense, i) * factor));
        const int code =
            nearest_fp4(isnan(number_get(type, dense, i) * factor) ? (double)NAN : (double)(float)bounded);
        unsigned char *byte = byte_at(p, slot, i);
        *fp4_scale_at(p, slot, i) = (unsigned char)b;
        *byte = (unsigned char)(i % 2 == 0 ? code : *byte % 16 + 16 * code);
    }
}

void oracle_unpack(const struct packed_cache *p, int64_t slot, enum number_type type, void *dense)
{
    if (is_fp4(p)) {
        unpack_fp4(p, slot, type, dense);
        return;
    }
    if (is_inline(p)) {
        unpack_inline(p, slot, type, dense);
        return;
    }
    const unsigned char *rope = row_at(p, slot) + p->format.rope_off;
    for (int64_t i = 0; i < count(p); i++) {
        const double x = oracle_code_value(code_type(p), *code_at(p, slot, i));
        number_put(type, dense, i, (double)(float)(x * scale_value(p, slot, i / group(p))));
    }
    for (int64_t i = 0; i < p->format.rope_bytes / 2; i++)
        if (type == NUMBER_BF16)
            memcpy((char *)dense + 2 * (count(p) + i), rope + 2 * i, 2);
        else
            number_put(type, dense, count(p) + i, number_get(NUMBER_BF16, rope, i));
}

static void make_scale(const struct packed_cache *p, int64_t slot, int64_t g, double amax)
{
    const double most = oracle_code_largest(code_type(p));
    if (!in_tensor(p) && p->format.scale_type.bits == 8) {
        unsigned code = 0;
        while (ldexp(1.0, (int)code - 127) * most < fmax(amax, (double)1e-4f))
            code++;
        *scale_at(p, slot, g) = (unsigned char)code;
        return;
    }
    const float scale = code_type(p) == ORACLE_I8 ? (float)(fmax(amax, (double)1e-8f) / most)
                                                  : fmaxf((float)(amax / most), FLT_MIN);
    memcpy(scale_at(p, slot, g), &scale, sizeof scale);
}

static void pack_scales(const struct packed_cache *p, int64_t slot, enum number_type type, const void *dense)
{
    for (int64_t g = 0; g < count(p) / group(p); g++) {
        double amax = 0;
        for (int64_t i = g * group(p); i < (g + 1) * group(p); i++)
            if (!isnan(number_get(type, dense, i)))
                amax = fmax(amax, fmin(fabs(number_get(type, dense, i)), (double)FLT_MAX));
        make_scale(p, slot, g, amax);
    }
}

void oracle_pack(const struct packed_cache *p, int64_t slot, enum number_type type, const void *dense)
{
    if (is_fp4(p)) {
        pack_fp4(p, slot, type, dense);
        return;
    }
    if (is_inline(p)) {
        pack_inline(p, slot, type, dense);
        return;
    }
    unsigned char *rope = row_at(p, slot) + p->format.rope_off;
    if (!in_tensor(p))
        memset(row_at(p, slot), 0, (size_t)p->format.row_bytes);
    if (p->format.scales == SY_SCALES_BLOCK)
        memset(scale_at(p, slot, 0) - p->format.scale_off, 0, (size_t)p->format.scale_bytes);
    if (!in_tensor(p) || p->scale_stride > 0)
        pack_scales(p, slot, type, dense);
    for (int64_t i = 0; i < count(p); i++) {
        const double quotient =
            (double)(float)(number_get(type, dense, i) / scale_value(p, slot, i / group(p)));
        *code_at(p, slot, i) = (unsigned char)oracle_code_nearest(code_type(p), quotient);
    }
    for (int64_t i = 0; i < p->format.rope_bytes / 2; i++)
        if (type == NUMBER_BF16)
            memcpy(rope + 2 * i, (const char *)dense + 2 * (count(p) + i), 2);
        else
            number_put(NUMBER_BF16, rope, i, number_get(type, dense, count(p) + i));
}
