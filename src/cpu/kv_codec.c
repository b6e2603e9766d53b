/*
 * One row: groups of codes with a scale each, then the rope part. Loops over numbers have no branches and are compiled
 * without regard to floating-point traps, so that they become vector code; results do not depend on that.
 */
#include "cpu/kv_codec.h"
#include "cpu/load.h"

#include <float.h>

static size_t dense_size(const struct syi_kv_codec *codec)
{
    return codec->dense == SYI_FLOAT_F32 ? 4 : 2;
}

/* The scale of group g. */
static float load_scale(const struct syi_kv_codec *codec, const unsigned char *record, size_t g)
{
    const unsigned char *scales = record + codec->scale_off;
    const size_t at = g / codec->share;
    float value;
    if (codec->e8m0)
        return syi_e8m0_to_f32(scales[at]);
    memcpy(&value, scales + at * sizeof value, sizeof value);
    return value;
}

/* The first code of group g. */
static size_t code_offset(const struct syi_kv_codec *codec, size_t g)
{
    const size_t head = g / codec->per_head;
    return codec->q_off + head * (size_t)codec->head_stride + (g - head * codec->per_head) * codec->group;
}

/* ---- Unpack ------------------------------------------------------------------------------------------ */

static const sy_type type_of[SYI_N_FLOATS] = {SY_TYPE_F32, SY_TYPE_F16, SY_TYPE_BF16};

/* bf16 is copied unchanged. */
static void unpack_rope(const struct syi_kv_codec *codec, unsigned char *dense, const unsigned char *rope)
{
    const size_t size = dense_size(codec);
    if (codec->dense == SYI_FLOAT_BF16) {
        memcpy(dense, rope, codec->rope * size);
        return;
    }
    for (size_t i = 0; i < codec->rope; i++)
        syi_store_float(dense + i * size, type_of[codec->dense],
                        syi_canonical(syi_load_float(rope + 2 * i, SY_TYPE_BF16)));
}

void syi_kv_unpack(const struct syi_kernels *kernels, const struct syi_kv_codec *codec, unsigned char *dense,
                   const unsigned char *row, const unsigned char *record)
{
    syi_decode_fn *const decode = kernels->decode[codec->code][codec->dense];
    const size_t size = dense_size(codec);
    for (size_t g = 0; g < codec->n_groups; g++)
        decode(dense + g * codec->group * size, row + code_offset(codec, g), load_scale(codec, record, g),
               codec->group);
    if (codec->rope > 0)
        unpack_rope(codec, dense + codec->n_groups * codec->group * size, row + codec->rope_off);
}

/* ---- Pack -------------------------------------------------------------------------------------------- */

enum { STRIP = 256 }; /* numbers of a group at a time, as f32 */

static void widen(float *restrict x, const unsigned char *restrict from, size_t n, enum syi_float type)
{
    if (type == SYI_FLOAT_F32) {
        memcpy(x, from, n * sizeof *x);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * i, sizeof bits);
        x[i] = type == SYI_FLOAT_F16 ? syi_f16_to_f32(bits) : syi_f32_from_bits((uint32_t)bits << 16);
    }
}

/* Bits of the largest magnitude; those of f32 order like the numbers. NaN counts as 0. */
static uint32_t largest(const float *x, size_t n, uint32_t most)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = syi_f32_bits(x[i]) & 0x7fffffffu;
        const uint32_t number = bits > 0x7f800000u ? 0 : bits;
        most = number > most ? number : most;
    }
    return most;
}

/* Of all numbers that share a scale. */
static float scaled_largest(const struct syi_kv_codec *codec, const unsigned char *dense)
{
    const size_t count = codec->group * codec->share;
    float x[STRIP];
    uint32_t most = 0;
    for (size_t at = 0, n; at < count; at += n) {
        n = count - at < STRIP ? count - at : STRIP;
        widen(x, dense + at * dense_size(codec), n, codec->dense);
        most = largest(x, n, most);
    }
    return most < 0x7f800000u ? syi_f32_from_bits(most) : FLT_MAX;
}

/* The least power of two that is not below a normal number: its exponent, one more where it has a fraction. */
static uint8_t power_above(float value)
{
    const uint32_t bits = syi_f32_bits(value);
    return (uint8_t)((bits >> 23) + ((bits & 0x7fffffu) != 0));
}

/* Makes and stores scale number g. */
static void make_scale(const struct syi_kv_codec *codec, float amax, unsigned char *record, size_t g)
{
    static const float most[SYI_N_CODES] = {448.0f, 57344.0f, 127.0f};
    unsigned char *scales = record + codec->scale_off;
    if (codec->e8m0) {
        scales[g] = power_above((amax > 1e-4f ? amax : 1e-4f) / most[codec->code]);
        return;
    }
    float scale =
        codec->code == SYI_CODE_I8 ? (amax > 1e-8f ? amax : 1e-8f) / 127.0f : amax / most[codec->code];
    scale = scale > FLT_MIN ? scale : FLT_MIN; /* int8: a lower bound */
    memcpy(scales + g * sizeof scale, &scale, sizeof scale);
}

static inline __attribute__((always_inline)) void encode_by(uint8_t *restrict codes, const float *restrict x,
                                                            float scale, size_t n, uint8_t (*narrow)(float))
{
    for (size_t i = 0; i < n; i++)
        codes[i] = narrow(x[i] / scale);
}

static void encode(enum syi_code code, uint8_t *codes, const float *x, float scale, size_t n)
{
    if (code == SYI_CODE_E4M3)
        encode_by(codes, x, scale, n, syi_f32_to_e4m3);
    else if (code == SYI_CODE_E5M2)
        encode_by(codes, x, scale, n, syi_f32_to_e5m2);
    else
        encode_by(codes, x, scale, n, syi_f32_to_i8);
}

static void pack_group(const struct syi_kv_codec *codec, unsigned char *codes, const unsigned char *dense,
                       float scale)
{
    float x[STRIP];
    for (size_t at = 0, n; at < codec->group; at += n) {
        n = codec->group - at < STRIP ? codec->group - at : STRIP;
        widen(x, dense + at * dense_size(codec), n, codec->dense);
        encode(codec->code, codes + at, x, scale, n);
    }
}

static void pack_rope(const struct syi_kv_codec *codec, unsigned char *rope, const unsigned char *dense)
{
    const size_t size = dense_size(codec);
    if (codec->dense == SYI_FLOAT_BF16) {
        memcpy(rope, dense, codec->rope * size);
        return;
    }
    for (size_t i = 0; i < codec->rope; i++)
        syi_store_float(rope + 2 * i, SY_TYPE_BF16, syi_load_float(dense + i * size, type_of[codec->dense]));
}

void syi_kv_pack(const struct syi_kv_codec *codec, unsigned char *row, unsigned char *record,
                 const unsigned char *dense)
{
    const size_t size = dense_size(codec);
    if (codec->clear_row > 0)
        memset(row, 0, codec->clear_row);
    if (codec->clear_scale > 0)
        memset(record, 0, codec->clear_scale);
    for (size_t g = 0; g < codec->n_groups; g++) {
        const unsigned char *from = dense + g * codec->group * size;
        if (!codec->given && g % codec->share == 0)
            make_scale(codec, scaled_largest(codec, from), record, g / codec->share);
        pack_group(codec, row + code_offset(codec, g), from, load_scale(codec, record, g));
    }
    if (codec->rope > 0)
        pack_rope(codec, row + codec->rope_off, dense + codec->n_groups * codec->group * size);
}
