/*
 * kv_gather and kv_scatter of packed rows: 656 bytes of codes, scales and rope in the cache, 576 bf16 numbers outside; or 1024
 * numbers in 1088 bytes of q8_0, 576 of q4_0, 512 of nvfp4 with 64 scales in a tensor.
 * Must move: packed rows on one side, dense ones on the other, 4 bytes of index or slot each. The limit of a gather is a
 * copy of the packed bytes and a fill of what dense rows have beyond them, of a scatter a copy that moves as much. "k="
 * gathers, "n=" scatters.
 */
#include "described.h"

#include <math.h>
#include <string.h>

enum {
    CODES = 512,
    GROUP = 128,
    ROPE = 64,
    BLOCK = 64,
    INLINE_GROUP = 32,
    INLINE_ROW = 1024,
    FP4_GROUP = 16,
    FP4_AMAX = 2 /* of all numbers */
};

static const char *const shapes[] = {
    "ds32_fp8 k=2048 of 128k S=64",
    "pto_int8 k=2048 of 128k S=64",
    "pto_int8 n=8192 of 128k S=64",
    "q8_0 k=2048 of 64k S=64",
    "q8_0 n=8192 of 64k S=64",
    "q4_0 k=2048 of 64k S=64",
    "q4_0 n=8192 of 64k S=64",
    "nvfp4 k=2048 of 64k S=64",
    "nvfp4 n=8192 of 64k S=64",
    /* Quick. */
    "ds32_fp8 k=512 of 4k S=64",
    "pto_int8 n=512 of 4k S=64",
    "q8_0 k=512 of 4k S=64",
    "q8_0 n=512 of 4k S=64",
    "q4_0 k=512 of 4k S=64",
    "q4_0 n=512 of 4k S=64",
    "nvfp4 k=512 of 4k S=64",
    "nvfp4 n=512 of 4k S=64",
};

static const char *const there[] = {
    "ds32_fp8 k=2048 of 128k S=64",  "ds32_fp8 k=65536 of 128k S=64", "pto_int8 k=65536 of 128k S=64",
    "pto_int8 n=65536 of 128k S=64", "q8_0 k=65536 of 128k S=64",     "q8_0 n=65536 of 128k S=64",
    "q4_0 k=65536 of 128k S=64",     "q4_0 n=65536 of 128k S=64",     "nvfp4 k=65536 of 128k S=64",
    "nvfp4 n=65536 of 128k S=64",
};

struct block {
    union {
        sy_kv_gather_args gather;
        sy_kv_scatter_args scatter;
    };
    sy_kv_format format;
};

static bool is_fp8(const struct bench_call *c)
{
    return bench_says(c->shape, "ds32_fp8");
}

static bool is_four(const struct bench_call *c)
{
    return bench_says(c->shape, "q4_0");
}

static bool is_inline(const struct bench_call *c)
{
    return is_four(c) || bench_says(c->shape, "q8_0");
}

static bool is_fp4(const struct bench_call *c)
{
    return bench_says(c->shape, "nvfp4");
}

/* Bytes of 32 numbers and their scale. */
static int64_t inline_bytes(const struct bench_call *c)
{
    return is_four(c) ? 18 : 34;
}

/* Bytes of a row in the cache and in the tensor of scales, numbers of a dense one. */
static int64_t packed_of(const struct bench_call *c)
{
    return is_inline(c) ? INLINE_ROW / INLINE_GROUP * inline_bytes(c) : is_fp4(c) ? INLINE_ROW / 2 : 656;
}

static int64_t scales_of(const struct bench_call *c)
{
    return is_fp4(c) ? INLINE_ROW / FP4_GROUP : 0;
}

static int64_t dense_of(const struct bench_call *c)
{
    return is_inline(c) || is_fp4(c) ? INLINE_ROW : CODES + ROPE;
}

/* Codes that are numbers, and scales from 2^-7 up to 2^-6. */
static BENCH_FILLER(fill_packed)
{
    const struct block *const b = c->args;
    const int64_t packed = packed_of(c);
    for (int64_t t = 0; t < x->shape[0]; t++) {
        unsigned char *const row = (unsigned char *)x->data + t * packed;
        bench_fill_random(row, (size_t)packed, bench_random(&seed));
        for (int64_t g = 0; g < packed && is_inline(c); g += inline_bytes(c)) { /* f16 of 2^-7 to 2^-6 */
            row[g + 1] = 0x20 | (row[g + 1] & 3);
        }
        if (is_inline(c) || is_fp4(c))
            continue;
        for (int i = 0; i < CODES; i++)
            row[i] = is_fp8(c) && (row[i] & 127) == 127 ? 0 : row[i];
        for (int g = 0; g < CODES / GROUP; g++) {
            const float scale = ldexpf(1 + (float)bench_unit(&seed), -7);
            memcpy(row + b->format.scale_off + (ptrdiff_t)g * 4, &scale, sizeof scale);
        }
    }
}

/* From 1 up to 2, as e4m3. */
static BENCH_FILLER(fill_fp4_scales)
{
    for (int64_t i = 0; i < bench_count(x); i++)
        ((uint8_t *)x->data)[i] = (uint8_t)(56 + bench_random(&seed) % 8);
}

static void make_gather(struct bench_call *c, struct block *b, int64_t n, int64_t tokens)
{
    sy_kv_gather_args *const a = &b->gather;
    float *const value = bench_scratch(c, 256 * sizeof *value); /* of each code */
    for (int code = 0; value && code < 256; code++)
        value[code] = bench_code_value(!is_fp8(c), (unsigned char)code);
    a->format = &b->format;
    a->block_size = BLOCK;
    bench_in(c, &a->cache, SY_U8, DIMS(tokens, packed_of(c)), BENCH_ONCE, fill_packed, 0);
    if (is_fp4(c)) {
        bench_in(c, &a->scale, SY_U8, DIMS(tokens, scales_of(c)), BENCH_ONCE, fill_fp4_scales, 0);
        bench_in(c, &a->global_scale, SY_F32, DIMS(1), BENCH_ONCE, fill_hundredths, INT64_C(100) * FP4_AMAX);
    }
    bench_in(c, &a->indices, SY_I32, DIMS(n), BENCH_TURNS, fill_next, tokens);
    bench_in(c, &a->block_table, SY_I32, DIMS(tokens / BLOCK), BENCH_ONCE, fill_shuffle, 0);
    bench_room(c, &a->out, SY_BF16, DIMS(n, dense_of(c)), BENCH_COPIES);
    const int64_t packed = packed_of(c) + scales_of(c);
    c->limit = (struct bench_work){.copy_bytes = (size_t)(n * packed),
                                   .fill_bytes = (size_t)(n * (2 * dense_of(c) - packed))};
}

static void make_scatter(struct bench_call *c, struct block *b, int64_t n, int64_t tokens)
{
    sy_kv_scatter_args *const a = &b->scatter;
    a->format = &b->format;
    bench_inout(c, &a->cache, SY_U8, DIMS(tokens, packed_of(c)), BENCH_ONCE, fill_bits, 0);
    bench_in(c, &a->src, SY_BF16, DIMS(n, dense_of(c)), BENCH_COPIES, fill_numbers, 0);
    if (is_fp4(c)) {
        bench_inout(c, &a->scale, SY_U8, DIMS(tokens, scales_of(c)), BENCH_ONCE, fill_bits, 0);
        bench_in(c, &a->global_scale, SY_F32, DIMS(1), BENCH_ONCE, fill_hundredths, INT64_C(100) * FP4_AMAX);
    }
    bench_in(c, &a->slots, SY_I32, DIMS(n), BENCH_TURNS, fill_next, tokens);
    c->limit.copy_bytes = (size_t)(n * (packed_of(c) + scales_of(c) + 2 * dense_of(c)) / 2);
}

static void make(struct bench_call *c)
{
    struct block *const b = c->args;
    const bool scatter = bench_size(c, "n=") > 0;
    const int64_t tokens = bench_size(c, "of "), n = bench_size(c, scatter ? "n=" : "k=");
    c->op = sy_op_find(scatter ? "kv_scatter" : "kv_gather");
    const char *const name = is_fp4(c)      ? "nvfp4_amax"
                             : is_four(c)   ? "q4_0"
                             : is_inline(c) ? "q8_0"
                             : is_fp8(c)    ? "ds32_fp8"
                                            : "pto_int8";
    (void)sy_kv_format_named(name, &b->format);
    (scatter ? make_scatter : make_gather)(c, b, n, tokens);
    c->bytes = bench_work_bytes(&c->limit) + 4.0 * (double)n;
}

static const float e2m1[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6};

static void unpack_fp4(uint16_t *dense, const unsigned char *row, const unsigned char *scales)
{
    const float decode = 1 / (2688.0f / FP4_AMAX);
    for (int i = 0; i < INLINE_ROW; i++) {
        const float x = e2m1[row[i / 2] >> i % 2 * 4 & 15] * bench_code_value(false, scales[i / FP4_GROUP]);
        dense[i] = bf16_from_float(x * decode);
    }
}

static void unpack_inline(const struct bench_call *c, uint16_t *dense, const unsigned char *row)
{
    const float *const value = c->scratch;
    for (int i = 0; i < INLINE_ROW; i++) {
        const int at = i % INLINE_GROUP;
        const unsigned char *const group = row + i / INLINE_GROUP * inline_bytes(c);
        const float scale = ldexpf((float)(1024 + (group[1] & 3) * 256 + group[0]), -17);
        const float code =
            is_four(c) ? (float)((group[2 + at % 16] >> at / 16 * 4 & 15) - 8) : value[group[2 + at]];
        dense[i] = bf16_from_float(code * scale);
    }
}

static void unpack(const struct bench_call *c, uint16_t *dense, const unsigned char *row)
{
    const struct block *const b = c->args;
    const float *const value = c->scratch;
    if (is_inline(c)) {
        unpack_inline(c, dense, row);
        return;
    }
    for (int i = 0; i < CODES; i++) {
        float scale;
        memcpy(&scale, row + b->format.scale_off + (ptrdiff_t)(i / GROUP) * 4, sizeof scale);
        dense[i] = bf16_from_float(value[row[i]] * scale);
    }
    memcpy(dense + CODES, row + b->format.rope_off, ROPE * sizeof *dense);
}

static void pack_inline(const struct bench_call *c, unsigned char *row, const uint16_t *dense)
{
    for (int first = 0; first < INLINE_ROW; first += INLINE_GROUP, row += inline_bytes(c)) {
        float most = 0;
        for (int i = first; i < first + INLINE_GROUP; i++)
            most = fabsf(bf16_to_float(dense[i])) > fabsf(most) ? bf16_to_float(dense[i]) : most;
        const float scale = is_four(c) ? most / -8 : fabsf(most) / 127, factor = scale != 0 ? 1 / scale : 0;
        const unsigned bits = bench_f16_from_float(scale);
        row[0] = (unsigned char)(bits & 255);
        row[1] = (unsigned char)(bits >> 8);
        for (int i = 0; i < INLINE_GROUP; i++) {
            const float y = bf16_to_float(dense[first + i]) * factor;
            if (!is_four(c))
                row[2 + i] = (unsigned char)(int)roundf(y);
            else if (i < 16)
                row[2 + i] = (unsigned char)fminf(15, truncf(y + 8.5f));
            else
                row[2 + i - 16] |= (unsigned char)((int)fminf(15, truncf(y + 8.5f)) << 4);
        }
    }
}

/* The nearest of two neighbours, of two as near the one with an even code. */
static unsigned e2m1_bits(float y)
{
    unsigned code = 0;
    for (unsigned next = 1; next < 8; next++) {
        const float middle = (e2m1[next - 1] + e2m1[next]) / 2;
        code = fabsf(y) > middle || (fabsf(y) == middle && next % 2 == 0) ? next : code;
    }
    return code + (signbit(y) ? 8 : 0);
}

static void pack_fp4(unsigned char *row, unsigned char *scales, const uint16_t *dense)
{
    const float all = 2688.0f / FP4_AMAX, decode = 1 / all;
    for (int g = 0; g < INLINE_ROW / FP4_GROUP; g++) {
        float most = 0;
        for (int i = g * FP4_GROUP; i < (g + 1) * FP4_GROUP; i++)
            most = fmaxf(most, fabsf(bf16_to_float(dense[i])));
        scales[g] = bench_e4m3(most * (all * (1.0f / 6)));
        const float factor = 1 / (bench_code_value(false, scales[g]) * decode);
        for (int i = g * FP4_GROUP; i < (g + 1) * FP4_GROUP; i += 2)
            row[i / 2] = (unsigned char)(e2m1_bits(bf16_to_float(dense[i]) * factor) |
                                         e2m1_bits(bf16_to_float(dense[i + 1]) * factor) << 4);
    }
}

/* Of int8 rows. */
static void pack(const struct bench_call *c, unsigned char *row, const uint16_t *dense)
{
    const struct block *const b = c->args;
    if (is_inline(c)) {
        pack_inline(c, row, dense);
        return;
    }
    for (int g = 0; g < CODES / GROUP; g++) {
        float most = 1e-8f;
        for (int i = 0; i < GROUP; i++)
            most = fmaxf(most, fabsf(bf16_to_float(dense[g * GROUP + i])));
        const float scale = most / 127;
        for (int i = 0; i < GROUP; i++)
            row[g * GROUP + i] = (unsigned char)(int)rintf(bf16_to_float(dense[g * GROUP + i]) / scale);
        memcpy(row + b->format.scale_off + (ptrdiff_t)g * 4, &scale, sizeof scale);
    }
    memcpy(row + b->format.rope_off, dense + CODES, ROPE * sizeof *dense);
}

static void plain(const struct bench_call *c)
{
    const struct block *const b = c->args;
    const bool scatter = bench_size(c, "n=") > 0;
    const DLTensor *const order = scatter ? b->scatter.slots : b->gather.indices;
    unsigned char *const cache = (scatter ? b->scatter.cache : b->gather.cache)->data;
    uint16_t *const rows = (scatter ? b->scatter.src : b->gather.out)->data;
    const int32_t *const table = scatter ? NULL : b->gather.block_table->data;
    for (int64_t j = 0; j < order->shape[0]; j++) {
        const int64_t t = ((const int32_t *)order->data)[j];
        const int64_t from = scatter ? t : (int64_t)table[t / BLOCK] * BLOCK + t % BLOCK;
        uint16_t *const dense = rows + j * dense_of(c);
        if (is_fp4(c)) {
            const DLTensor *const scale = scatter ? b->scatter.scale : b->gather.scale;
            unsigned char *const scales = (unsigned char *)scale->data + from * scales_of(c);
            if (scatter)
                pack_fp4(cache + from * packed_of(c), scales, dense);
            else
                unpack_fp4(dense, cache + from * packed_of(c), scales);
        } else if (scatter)
            pack(c, cache + from * packed_of(c), dense);
        else
            unpack(c, dense, cache + from * packed_of(c));
    }
}

BENCH_OP(kv_format, shapes, 8, make, .plain = plain, BENCH_THERE);
