/*
 * One row: groups of codes with a scale each, then the rope part. The loops over numbers are those of the kernel table; groups
 * that its encoders do not take, with a NaN, an infinity or a scale that is no usual divisor, are coded one number at a time.
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

/* Codes and scales of some groups are brought together, and decoded by one call. */
static void unpack_inline(const struct syi_kernels *kernels, const struct syi_kv_codec *codec,
                          unsigned char *dense, const unsigned char *row)
{
    enum { GROUPS = 16 };
    syi_decode_fn *const decode = kernels->decode[SYI_CODE_I8][codec->dense];
    const size_t bytes = syi_inline_bytes(codec);
    uint8_t codes[GROUPS][SYI_INLINE_GROUP];
    float scale[GROUPS];
    for (size_t first = 0, n; first < codec->n_groups; first += n) {
        n = codec->n_groups - first < GROUPS ? codec->n_groups - first : GROUPS;
        for (size_t g = 0; g < n; g++, row += bytes) {
            uint16_t bits;
            memcpy(&bits, row, sizeof bits);
            scale[g] = syi_f16_to_f32(bits);
            if (codec->four)
                spread_nibbles(codes[g], row + SYI_INLINE_SCALE);
            else
                memcpy(codes[g], row + SYI_INLINE_SCALE, SYI_INLINE_GROUP);
        }
        decode(dense + first * SYI_INLINE_GROUP * dense_size(codec), codes, scale, SYI_INLINE_GROUP, n);
    }
}

/* Groups of nvfp4 from number g on that follow each other without a gap. */
static size_t fp4_run(const struct syi_kv_codec *codec, size_t g)
{
    return codec->n_groups - g < codec->per_head ? codec->n_groups - g : codec->per_head;
}

static void unpack_fp4(const struct syi_kernels *kernels, const struct syi_kv_codec *codec,
                       unsigned char *dense, const unsigned char *row, const unsigned char *record,
                       float decode)
{
    for (size_t g = 0, n; g < codec->n_groups; g += n) {
        n = fp4_run(codec, g);
        kernels->packers->from_fp4[codec->dense](dense + g * SYI_FP4_GROUP * dense_size(codec),
                                                 row + syi_fp4_offset(codec, g), record + g, decode, n);
    }
}

void syi_kv_unpack(const struct syi_kernels *kernels, const struct syi_kv_codec *codec, unsigned char *dense,
                   const unsigned char *row, const unsigned char *record, int64_t i)
{
    syi_decode_fn *const decode = kernels->decode[codec->code][codec->dense];
    const size_t size = dense_size(codec);
    if (codec->fp4) {
        unpack_fp4(kernels, codec, dense, row, record, syi_fp4_scale_of(&codec->global, i).decode);
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

/* The largest magnitude of all numbers that share a scale, without NaNs, where the kernels found one. */
static uint32_t largest(const struct syi_kv_codec *codec, const unsigned char *dense, size_t n)
{
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t number =
            syi_kv_magnitude(syi_load_float(dense + i * dense_size(codec), type_of[codec->dense]));
        most = number > most ? number : most;
    }
    return most;
}

/* `most` is at least the largest magnitude of the group. The kernels divide finite numbers by usual scales. */
static void pack_group(const struct syi_kernels *kernels, const struct syi_kv_codec *codec,
                       unsigned char *codes, const unsigned char *dense, float scale, uint32_t most)
{
    const bool fits = codec->code != SYI_CODE_I8 || syi_f32_from_bits(most) <= 127.0f * scale;
    if (most < 0x7f800000u && syi_is_divisor(syi_f32_bits(scale)) && fits) {
        kernels->encoders->over[codec->code][codec->dense](codes, dense, &scale, codec->group, 1);
        return;
    }
    for (size_t i = 0; i < codec->group; i++) {
        const float x = syi_load_float(dense + i * dense_size(codec), type_of[codec->dense]);
        codes[i] = syi_f32_to_code(codec->code, x / scale);
    }
}

static void pack_groups(const struct syi_kernels *kernels, const struct syi_kv_codec *codec,
                        unsigned char *row, unsigned char *record, const unsigned char *dense)
{
    const size_t share = codec->given ? 1 : codec->share, n = share * codec->group;
    uint32_t most = 0;
    for (size_t g = 0; g < codec->n_groups; g++, dense += codec->group * dense_size(codec)) {
        if (g % share == 0) {
            kernels->encoders->amax[codec->dense](&most, dense, n, 1);
            if (!codec->given)
                syi_kv_make_scale(codec, most > 0x7f800000u ? largest(codec, dense, n) : most, record,
                                  g / share);
        }
        pack_group(kernels, codec, row + syi_kv_code_offset(codec, g), dense, syi_kv_scale(codec, record, g),
                   most);
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

static void pack_fp4(const struct syi_kernels *kernels, const struct syi_kv_codec *codec, unsigned char *row,
                     unsigned char *record, const unsigned char *dense, struct syi_fp4_scale scale)
{
    for (size_t g = 0, n; g < codec->n_groups; g += n) {
        n = fp4_run(codec, g);
        kernels->packers->fp4[codec->dense](row + syi_fp4_offset(codec, g), record + g,
                                            dense + g * SYI_FP4_GROUP * dense_size(codec), &scale, n);
    }
}

void syi_kv_pack(const struct syi_kernels *kernels, const struct syi_kv_codec *codec, unsigned char *row,
                 unsigned char *record, const unsigned char *dense, int64_t i)
{
    if (codec->fp4) {
        pack_fp4(kernels, codec, row, record, dense, syi_fp4_scale_of(&codec->global, i));
        return;
    }
    if (codec->inlined) {
        kernels->packers->inlined[codec->four][codec->dense](row, dense, codec->n_groups);
        return;
    }
    if (codec->clear_row > 0)
        memset(row, 0, codec->clear_row);
    if (codec->clear_scale > 0)
        memset(record, 0, codec->clear_scale);
    pack_groups(kernels, codec, row, record, dense);
    if (codec->rope > 0)
        pack_rope(codec, row + codec->rope_off, dense + codec->n_groups * codec->group * dense_size(codec));
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
            syi_kv_pack(job->kernels, codec, row, record, dense, i);
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
