/*
 * One row: groups of codes with a scale each, then the rope part. Loops over numbers have no branches and are compiled
 * without regard to floating-point traps, so that they become vector code; results do not depend on that.
 */
#include "cpu/kv_codec.h"
#include "plan/kv_math.h"
#include "cpu/load.h"
#include "cpu/pool.h"

static size_t dense_size(const struct syi_kv_codec *codec)
{
    return codec->dense == SYI_FLOAT_F32 ? 4 : 2;
}

/* ---- Unpack ---- */

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

/* Codes of 4 bits as int8. */
static void spread_nibbles(uint8_t *restrict codes, const unsigned char *restrict bytes)
{
    for (int j = 0; j < SYI_INLINE_GROUP / 2; j++) {
        codes[j] = (uint8_t)((bytes[j] & 15) - 8);
        codes[j + SYI_INLINE_GROUP / 2] = (uint8_t)((bytes[j] >> 4) - 8);
    }
}

static void unpack_inline(const struct syi_kernels *kernels, const struct syi_kv_codec *codec,
                          unsigned char *dense, const unsigned char *row)
{
    syi_decode_fn *const decode = kernels->decode[SYI_CODE_I8][codec->dense];
    const size_t bytes = syi_inline_bytes(codec);
    uint8_t codes[SYI_INLINE_GROUP];
    for (size_t g = 0; g < codec->n_groups;
         g++, row += bytes, dense += SYI_INLINE_GROUP * dense_size(codec)) {
        uint16_t bits;
        memcpy(&bits, row, sizeof bits);
        const float scale = syi_f16_to_f32(bits);
        if (codec->four)
            spread_nibbles(codes, row + SYI_INLINE_SCALE);
        decode(dense, codec->four ? codes : row + SYI_INLINE_SCALE, &scale, SYI_INLINE_GROUP, 1);
    }
}

/* The product of a code and the scale of its group is exact. */
static void unpack_fp4(const struct syi_kv_codec *codec, unsigned char *dense, const unsigned char *row,
                       const unsigned char *record, float decode)
{
    float x[SYI_FP4_GROUP];
    uint16_t narrow[SYI_FP4_GROUP];
    for (size_t g = 0; g < codec->n_groups; g++, dense += SYI_FP4_GROUP * dense_size(codec)) {
        const unsigned char *const codes = row + syi_fp4_offset(codec, g);
        const float scale = syi_e4m3_to_f32(record[g]);
        for (int j = 0; j < SYI_FP4_GROUP; j++) {
            const uint32_t code = (uint32_t)codes[j / 2] >> (j % 2 * 4) & 15u;
            x[j] = syi_canonical(syi_e2m1_to_f32(code) * scale * decode);
        }
        for (int j = 0; j < SYI_FP4_GROUP && codec->dense != SYI_FLOAT_F32; j++)
            narrow[j] = codec->dense == SYI_FLOAT_F16 ? syi_f32_to_f16(x[j]) : syi_f32_to_bf16(x[j]);
        if (codec->dense == SYI_FLOAT_F32)
            memcpy(dense, x, sizeof x);
        else
            memcpy(dense, narrow, sizeof narrow);
    }
}

void syi_kv_unpack(const struct syi_kernels *kernels, const struct syi_kv_codec *codec, unsigned char *dense,
                   const unsigned char *row, const unsigned char *record, int64_t i)
{
    syi_decode_fn *const decode = kernels->decode[codec->code][codec->dense];
    const size_t size = dense_size(codec);
    if (codec->fp4) {
        unpack_fp4(codec, dense, row, record, syi_fp4_scale_of(&codec->global, i).decode);
        return;
    }
    if (codec->inlined) {
        unpack_inline(kernels, codec, dense, row);
        return;
    }
    for (size_t g = 0; g < codec->n_groups; g++) {
        const float scale = syi_kv_scale(codec, record, g);
        decode(dense + g * codec->group * size, row + syi_kv_code_offset(codec, g), &scale, codec->group, 1);
    }
    if (codec->rope > 0)
        unpack_rope(codec, dense + codec->n_groups * codec->group * size, row + codec->rope_off);
}

/* ---- Pack ---- */

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

/* Bits of the largest magnitude of all numbers that share a scale. */
static uint32_t largest(const struct syi_kv_codec *codec, const unsigned char *dense)
{
    const size_t count = codec->group * codec->share;
    float x[STRIP];
    uint32_t most = 0;
    for (size_t at = 0, n; at < count; at += n) {
        n = count - at < STRIP ? count - at : STRIP;
        widen(x, dense + at * dense_size(codec), n, codec->dense);
        for (size_t i = 0; i < n; i++) {
            const uint32_t number = syi_kv_magnitude(x[i]);
            most = number > most ? number : most;
        }
    }
    return most;
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

/* The number of the largest magnitude, the first of several; its magnitude where codes are int8. */
static float largest_inline(const float *x, bool four)
{
    uint32_t most = 0, sign = 0;
    for (int i = 0; i < SYI_INLINE_GROUP; i++) {
        const uint32_t magnitude = syi_inline_magnitude(x[i]);
        sign = magnitude > most ? syi_f32_bits(x[i]) & 0x80000000u : sign;
        most = magnitude > most ? magnitude : most;
    }
    return syi_f32_from_bits(most | (four ? sign : 0));
}

static void pack_inline(const struct syi_kv_codec *codec, unsigned char *row, const unsigned char *dense)
{
    const size_t bytes = syi_inline_bytes(codec);
    const bool four = codec->four;
    float x[SYI_INLINE_GROUP];
    uint8_t codes[SYI_INLINE_GROUP];
    for (size_t g = 0; g < codec->n_groups;
         g++, row += bytes, dense += SYI_INLINE_GROUP * dense_size(codec)) {
        widen(x, dense, SYI_INLINE_GROUP, codec->dense);
        const float scale = syi_inline_scale(four, largest_inline(x, four)),
                    factor = syi_inline_factor(scale);
        const uint16_t bits = syi_f32_to_f16(scale);
        memcpy(row, &bits, sizeof bits);
        for (int i = 0; i < SYI_INLINE_GROUP; i++)
            codes[i] = syi_inline_code(four, x[i] * factor);
        for (int j = 0; j < SYI_INLINE_GROUP / 2 && four; j++)
            row[SYI_INLINE_SCALE + j] = (unsigned char)(codes[j] | codes[j + SYI_INLINE_GROUP / 2] << 4);
        if (!four)
            memcpy(row + SYI_INLINE_SCALE, codes, sizeof codes);
    }
}

static void pack_fp4(const struct syi_kv_codec *codec, unsigned char *row, unsigned char *record,
                     const unsigned char *dense, struct syi_fp4_scale scale)
{
    float x[SYI_FP4_GROUP];
    uint8_t code[SYI_FP4_GROUP];
    for (size_t g = 0; g < codec->n_groups; g++, dense += SYI_FP4_GROUP * dense_size(codec)) {
        unsigned char *const to = row + syi_fp4_offset(codec, g);
        uint32_t most = 0;
        widen(x, dense, SYI_FP4_GROUP, codec->dense);
        for (int j = 0; j < SYI_FP4_GROUP; j++) {
            const uint32_t magnitude = syi_inline_magnitude(x[j]);
            most = magnitude > most ? magnitude : most;
        }
        record[g] = syi_fp4_byte(scale, most);
        const float factor = syi_fp4_factor(scale, record[g]);
        for (int j = 0; j < SYI_FP4_GROUP; j++)
            code[j] = syi_f32_to_e2m1(x[j] * factor);
        for (size_t j = 0; j < SYI_FP4_BYTES; j++)
            to[j] = (unsigned char)(code[2 * j] | code[2 * j + 1] << 4);
    }
}

void syi_kv_pack(const struct syi_kv_codec *codec, unsigned char *row, unsigned char *record,
                 const unsigned char *dense, int64_t i)
{
    const size_t size = dense_size(codec);
    if (codec->fp4) {
        pack_fp4(codec, row, record, dense, syi_fp4_scale_of(&codec->global, i));
        return;
    }
    if (codec->inlined) {
        pack_inline(codec, row, dense);
        return;
    }
    if (codec->clear_row > 0)
        memset(row, 0, codec->clear_row);
    if (codec->clear_scale > 0)
        memset(record, 0, codec->clear_scale);
    for (size_t g = 0; g < codec->n_groups; g++) {
        const unsigned char *from = dense + g * codec->group * size;
        if (!codec->given && g % codec->share == 0)
            syi_kv_make_scale(codec, largest(codec, from), record, g / codec->share);
        pack_group(codec, row + syi_kv_code_offset(codec, g), from, syi_kv_scale(codec, record, g));
    }
    if (codec->rope > 0)
        pack_rope(codec, row + codec->rope_off, dense + codec->n_groups * codec->group * size);
}

struct syi_found syi_find_bad_global(const struct syi_kv_codec *codec)
{
    for (int64_t i = 0; i < codec->global.n; i++)
        if (syi_global_is_bad(&codec->global, i))
            return syi_bad_at(SYI_BAD_GLOBAL_SCALE, i, -1, 0, 0);
    return syi_good();
}

/* ---- Rows that are no cache ---- */

struct job {
    const struct syi_quantize_rows_plan *plan;
    const struct syi_kernels *kernels;
    enum syi_kv_direction direction;
    int n_tasks;
};

static void code_part(void *data, int task)
{
    const struct job *job = data;
    const struct syi_kv_plane *plane = &job->plan->plane;
    const struct syi_kv_codec *codec = &plane->codec;
    const int64_t n = job->plan->pool.n_rows, end = syi_part(n, job->n_tasks, task + 1);
    for (int64_t i = syi_part(n, job->n_tasks, task); i < end; i++) {
        unsigned char *const dense = syi_row_at(plane->dense, i),
                             *const row = plane->cache + i * plane->row_stride,
                             *const record = codec->scale + i * codec->scale_row_stride;
        if (job->direction == SYI_KV_TO_CACHE)
            syi_kv_pack(codec, row, record, dense, i);
        else
            syi_kv_unpack(job->kernels, codec, dense, row, record, i);
    }
}

sy_status syi_code_packed_rows(sy_ctx *ctx, const struct syi_quantize_rows_plan *plan,
                               enum syi_kv_direction direction)
{
    struct job job = {plan, ctx->kernels, direction, 1};
    const int64_t n = plan->pool.n_rows;
    const struct syi_found found = n > 0 ? syi_find_bad_global(&plan->plane.codec) : syi_good();
    if (found.bad != SYI_GOOD)
        return syi_report(ctx, found);
    job.n_tasks =
        syi_tasks(ctx, n, (uint64_t)n * (uint64_t)(plan->plane.row_bytes + plan->plane.codec.dense_bytes));
    syi_parallel(ctx, job.n_tasks, code_part, &job);
    return SY_OK;
}
