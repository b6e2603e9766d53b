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
    WIDE_ROW = 1024, /* of the formats without rope */
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
    const struct layout *of;
    sy_kv_format format;
    const DLTensor *cache, *scale, *global_scale, *order, *table, *dense; /* scale, table: may be NULL */
    float *value;                                                         /* of each 8-bit code */
};

/* The rows of a format: bytes in the cache and in the tensor of scales, numbers outside. */
struct layout {
    const char *word, *format;
    int64_t packed, scales, dense;
    int64_t group; /* bytes of 32 numbers and their scale; 0: scales are elsewhere */
    bool fp8;
    void (*unpack)(const struct block *b, uint16_t *dense, const unsigned char *row,
                   const unsigned char *scales);
    void (*pack)(const struct block *b, unsigned char *row, unsigned char *scales, const uint16_t *dense);
};

/* ---- The plain loops ---- */

static const float e2m1[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6};

static void unpack_fp4(const struct block *b, uint16_t *dense, const unsigned char *row,
                       const unsigned char *scales)
{
    const float decode = 1 / (2688.0f / FP4_AMAX);
    (void)b;
    for (int i = 0; i < WIDE_ROW; i++) {
        const float x = e2m1[row[i / 2] >> i % 2 * 4 & 15] * bench_code_value(false, scales[i / FP4_GROUP]);
        dense[i] = bf16_from_float(x * decode);
    }
}

static bool is_four(const struct block *b)
{
    return b->of->group == 18;
}

static void unpack_inline(const struct block *b, uint16_t *dense, const unsigned char *row,
                          const unsigned char *scales)
{
    (void)scales;
    for (int i = 0; i < WIDE_ROW; i++) {
        const int at = i % INLINE_GROUP;
        const unsigned char *const group = row + i / INLINE_GROUP * b->of->group;
        const float scale = ldexpf((float)(1024 + (group[1] & 3) * 256 + group[0]), -17);
        const float code =
            is_four(b) ? (float)((group[2 + at % 16] >> at / 16 * 4 & 15) - 8) : b->value[group[2 + at]];
        dense[i] = bf16_from_float(code * scale);
    }
}

static void unpack(const struct block *b, uint16_t *dense, const unsigned char *row,
                   const unsigned char *scales)
{
    (void)scales;
    for (int i = 0; i < CODES; i++) {
        float scale;
        memcpy(&scale, row + b->format.scale_off + (ptrdiff_t)(i / GROUP) * 4, sizeof scale);
        dense[i] = bf16_from_float(b->value[row[i]] * scale);
    }
    memcpy(dense + CODES, row + b->format.rope_off, ROPE * sizeof *dense);
}

static void pack_inline(const struct block *b, unsigned char *row, unsigned char *scales,
                        const uint16_t *dense)
{
    (void)scales;
    for (int first = 0; first < WIDE_ROW; first += INLINE_GROUP, row += b->of->group) {
        float most = 0;
        for (int i = first; i < first + INLINE_GROUP; i++)
            most = fabsf(bf16_to_float(dense[i])) > fabsf(most) ? bf16_to_float(dense[i]) : most;
        const float scale = is_four(b) ? most / -8 : fabsf(most) / 127, factor = scale != 0 ? 1 / scale : 0;
        const unsigned bits = bench_f16_from_float(scale);
        row[0] = (unsigned char)(bits & 255);
        row[1] = (unsigned char)(bits >> 8);
        for (int i = 0; i < INLINE_GROUP; i++) {
            const float y = bf16_to_float(dense[first + i]) * factor;
            if (!is_four(b))
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

static void pack_fp4(const struct block *b, unsigned char *row, unsigned char *scales, const uint16_t *dense)
{
    const float all = 2688.0f / FP4_AMAX, decode = 1 / all;
    (void)b;
    for (int g = 0; g < WIDE_ROW / FP4_GROUP; g++) {
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
static void pack(const struct block *b, unsigned char *row, unsigned char *scales, const uint16_t *dense)
{
    (void)scales;
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

static const struct layout layouts[] = {
    {"ds32_fp8", "ds32_fp8", 656, 0, CODES + ROPE, 0, true, unpack, NULL},
    {"pto_int8", "pto_int8", 656, 0, CODES + ROPE, 0, false, unpack, pack},
    {"q8_0", "q8_0", (int64_t)WIDE_ROW / 32 * 34, 0, WIDE_ROW, 34, false, unpack_inline, pack_inline},
    {"q4_0", "q4_0", (int64_t)WIDE_ROW / 32 * 18, 0, WIDE_ROW, 18, false, unpack_inline, pack_inline},
    {"nvfp4", "nvfp4_amax", WIDE_ROW / 2, WIDE_ROW / FP4_GROUP, WIDE_ROW, 0, false, unpack_fp4, pack_fp4},
};

static void plain(const struct bench_call *c)
{
    const struct block *const b = c->args;
    const int32_t *const order = b->order->data, *const table = b->table ? b->table->data : NULL;
    for (int64_t j = 0; j < b->order->shape[0]; j++) {
        const int64_t t = order[j], row = table ? (int64_t)table[t / BLOCK] * BLOCK + t % BLOCK : t;
        unsigned char *const packed = (unsigned char *)b->cache->data + row * b->of->packed;
        unsigned char *const scales = b->scale ? (unsigned char *)b->scale->data + row * b->of->scales : NULL;
        uint16_t *const dense = (uint16_t *)b->dense->data + j * b->of->dense;
        if (table)
            b->of->unpack(b, dense, packed, scales);
        else
            b->of->pack(b, packed, scales, dense);
    }
}

/* ---- Data ---- */

/* Codes that are numbers, and scales from 2^-7 up to 2^-6. */
static BENCH_FILLER(fill_packed)
{
    const struct block *const b = c->args;
    const int64_t packed = b->of->packed, group = b->of->group;
    for (int64_t t = 0; t < x->shape[0]; t++) {
        unsigned char *const row = (unsigned char *)x->data + t * packed;
        bench_fill_random(row, (size_t)packed, random_bits(&seed));
        for (int64_t g = 0; g < packed && group > 0; g += group) /* f16 of 2^-7 to 2^-6 */
            row[g + 1] = 0x20 | (row[g + 1] & 3);
        if (b->of->unpack != unpack)
            continue;
        for (int i = 0; i < CODES; i++)
            row[i] = b->of->fp8 && (row[i] & 127) == 127 ? 0 : row[i];
        for (int g = 0; g < CODES / GROUP; g++) {
            const float scale = ldexpf(1 + (float)random_unit(&seed), -7);
            memcpy(row + b->format.scale_off + (ptrdiff_t)g * 4, &scale, sizeof scale);
        }
    }
}

/* From 1 up to 2, as e4m3. */
BENCH_OWN(fill_fp4_scales, bench_store_integer, (int64_t)(56 + random_bits(&seed) % 8))

static void make_gather(struct bench_call *c, int64_t n, int64_t tokens)
{
    struct block *const b = c->args;
    b->value = bench_scratch(c, 256 * sizeof *b->value);
    for (int code = 0; b->value && code < 256; code++)
        b->value[code] = bench_code_value(!b->of->fp8, (unsigned char)code);
    bench_in(c, &b->cache, SY_U8, DIMS(tokens, b->of->packed), BENCH_ONCE, fill_packed, 0);
    if (b->of->scales > 0)
        bench_in(c, &b->scale, SY_U8, DIMS(tokens, b->of->scales), BENCH_ONCE, fill_fp4_scales, 0);
    bench_in(c, &b->table, SY_I32, DIMS(tokens / BLOCK), BENCH_ONCE, fill_shuffle, 0);
    bench_room(c, &b->dense, SY_BF16, DIMS(n, b->of->dense), BENCH_COPIES);
    b->gather = (sy_kv_gather_args){.cache = b->cache,
                                    .scale = b->scale,
                                    .global_scale = b->global_scale,
                                    .indices = b->order,
                                    .block_table = b->table,
                                    .block_size = BLOCK,
                                    .format = &b->format,
                                    .out = b->dense};
    c->limit.copy_bytes = (size_t)(n * (b->of->packed + b->of->scales));
    c->limit.fill_bytes = (size_t)(n * 2 * b->of->dense) - c->limit.copy_bytes;
}

static void make_scatter(struct bench_call *c, int64_t n, int64_t tokens)
{
    struct block *const b = c->args;
    bench_inout(c, &b->cache, SY_U8, DIMS(tokens, b->of->packed), BENCH_ONCE, fill_bits, 0);
    bench_in(c, &b->dense, SY_BF16, DIMS(n, b->of->dense), BENCH_COPIES, fill_numbers, 0);
    if (b->of->scales > 0)
        bench_inout(c, &b->scale, SY_U8, DIMS(tokens, b->of->scales), BENCH_ONCE, fill_bits, 0);
    b->scatter = (sy_kv_scatter_args){.cache = b->cache,
                                      .src = b->dense,
                                      .slots = b->order,
                                      .format = &b->format,
                                      .scale = b->scale,
                                      .global_scale = b->global_scale};
    c->limit.copy_bytes = (size_t)(n * (b->of->packed + b->of->scales + 2 * b->of->dense) / 2);
}

static void make(struct bench_call *c)
{
    struct block *const b = c->args;
    const bool scatter = bench_size(c, "n=") > 0;
    const int64_t tokens = bench_size(c, "of "), n = bench_size(c, scatter ? "n=" : "k=");
    c->op = sy_op_find(scatter ? "kv_scatter" : "kv_gather");
    for (b->of = layouts; !bench_says(c->shape, b->of->word);)
        b->of++;
    (void)sy_kv_format_named(b->of->format, &b->format);
    bench_in(c, &b->order, SY_I32, DIMS(n), BENCH_TURNS, fill_next, tokens);
    if (b->of->scales > 0)
        bench_in(c, &b->global_scale, SY_F32, DIMS(1), BENCH_ONCE, fill_hundredths, INT64_C(100) * FP4_AMAX);
    (scatter ? make_scatter : make_gather)(c, n, tokens);
    c->bytes = bench_work_bytes(&c->limit) + 4.0 * (double)n;
}

BENCH_OP(kv_format, shapes, 8, make, .plain = plain, BENCH_THERE);
