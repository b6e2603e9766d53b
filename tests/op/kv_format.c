/*
 * Packed rows: the named formats, then random formats, shapes and strides through kv_scatter, kv_gather and kv_ragged
 * against the oracle, on every kernel table and several thread counts. Examples are in tests/examples.
 */
#include "oracle/kv_format.h"
#include "support.h"

#include <float.h>
#include <math.h>

enum { MOST_CONTEXTS = 12 };
static sy_ctx *contexts[MOST_CONTEXTS];
static size_t n_contexts;

static int open_contexts(void **state)
{
    (void)state;
    contexts[n_contexts++] = test_ctx(3, NULL);
    contexts[n_contexts++] = test_ctx(8, NULL);
    for (int i = 0; sy_isa_name(i) != NULL && n_contexts < MOST_CONTEXTS; i++)
        contexts[n_contexts++] = test_ctx(1 + i % 2, sy_isa_name(i));
    return 0;
}

static int close_contexts(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_contexts; i++)
        sy_ctx_destroy(contexts[i]);
    return 0;
}

static sy_kv_format format_named(const char *name)
{
    sy_kv_format format;
    assert_int_equal(sy_kv_format_named(name, &format), SY_OK);
    return format;
}

/* ---- Names ------------------------------------------------------------------------------------------- */

static void names_have_their_layouts(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int32_t row, q, group, scale_off, scale_bytes, rope_off, rope;
    } want[] = {{"ds32_fp8", 656, 512, 128, 512, 0, 528, 128},
                {"pto_int8", 656, 512, 128, 640, 0, 512, 128},
                {"ds4_fp8", 576, 448, 64, 0, 8, 448, 128},
                {"indexer_fp8", 128, 128, 128, 0, 4, 0, 0},
                {"e4m3", 0, 0, 0, 0, 0, 0, 0},
                {"e5m2", 0, 0, 0, 0, 0, 0, 0},
                {"int8", 0, 0, 0, 0, 0, 0, 0},
                {"q8_0", 0, 0, 32, 0, 0, 0, 0},
                {"q4_0", 0, 0, 32, 0, 0, 0, 0},
                {"nvfp4", 0, 0, 16, 0, 0, 0, 0},
                {"nvfp4_amax", 0, 0, 16, 0, 0, 0, 0}};
    for (size_t i = 0; i < COUNT_OF(want); i++) {
        const sy_kv_format f = format_named(want[i].name);
        assert_int_equal(f.bytes, sizeof f);
        assert_int_equal(f.row_bytes, want[i].row);
        assert_int_equal(f.q_off, 0);
        assert_int_equal(f.q_count, want[i].q);
        assert_int_equal(f.group, want[i].group);
        assert_int_equal(f.scale_off, want[i].scale_off);
        assert_int_equal(f.scale_bytes, want[i].scale_bytes);
        assert_int_equal(f.rope_off, want[i].rope_off);
        assert_int_equal(f.rope_bytes, want[i].rope);
    }
    sy_kv_format f;
    assert_int_equal(sy_kv_format_named("ds32", &f), SY_ERR_VALUE);
    assert_int_equal(f.row_bytes, 0);
    assert_int_equal(sy_kv_format_named(NULL, &f), SY_ERR_NULL);
    assert_int_equal(sy_kv_format_named("int8", NULL), SY_ERR_NULL);
    f.scales = SY_SCALES_BLOCK;
    const size_t two = offsetof(sy_kv_format, scale_type); /* a caller that knew two fields */
    assert_int_equal(sy_kv_format_named_n("ds32_fp8", &f, two), SY_OK);
    assert_int_equal(f.bytes, two);
    assert_int_equal(f.q_type.code, SY_F8_E4M3.code);
    assert_int_equal(f.scales, SY_SCALES_BLOCK);
}

/* Rows 0 and 1 of a flat cache, or of one block of two rows. */
static void gather_two(const sy_kv_format *format, const DLTensor *cache, const DLTensor *scale,
                       const DLTensor *out)
{
    int32_t zero[] = {0}, both[] = {0, 1};
    const DLTensor table = sy_tensor(zero, SY_I32, 1, (int64_t[]){1}),
                   indices = sy_tensor(both, SY_I32, 1, (int64_t[]){2});
    for (size_t c = 0; c < n_contexts; c++)
        expect_status(contexts[c],
                      sy_kv_gather(contexts[c], &(sy_kv_gather_args){.cache = cache,
                                                                     .indices = &indices,
                                                                     .block_table = &table,
                                                                     .block_size = 2,
                                                                     .format = format,
                                                                     .scale = scale,
                                                                     .out = out}),
                      SY_OK);
}

/* A format of a caller whose header has a shorter struct, or a longer one that sets nothing unknown. */
static void formats_of_other_sizes(void **state)
{
    (void)state;
    uint8_t codes[2][2] = {{1, 2}, {3, 4}};
    float scales[] = {0.5f}, out[2][2];
    union {
        sy_kv_format known;
        unsigned char bytes[sizeof(sy_kv_format) + 16];
    } f = {.bytes = {0}};
    const DLTensor cache = sy_tensor(codes, SY_U8, 3, (int64_t[]){1, 2, 2}),
                   scale = sy_tensor(scales, SY_F32, 1, (int64_t[]){1}),
                   dense = sy_tensor(out, SY_F32, 2, (int64_t[]){2, 2});
    f.known.q_type = SY_I8;
    f.known.scales = SY_SCALES_BLOCK; /* not read: the field comes later */
    f.known.bytes = offsetof(sy_kv_format, scale_type);
    gather_two(&f.known, &cache, &scale, &dense);
    assert_true(out[0][0] == 0.5f && out[0][1] == 1 && out[1][0] == 1.5f && out[1][1] == 2);
    f.known.scales = SY_SCALES_TENSOR;
    f.known.bytes = sizeof f;
    memset(out, 0, sizeof out);
    gather_two(&f.known, &cache, &scale, &dense);
    assert_true(out[1][1] == 2);
}

/* ---- Random ------------------------------------------------------------------------------------------ */

static struct {
    int scales[4], code[3], type[3], heads_apart, shared, written, paged, padded, gaps, rope, e8m0, nan, even,
        fp4;
} seen;

struct fixture {
    struct packed_cache p;
    int64_t blocks, n, width; /* width: numbers of a dense row */
    enum oracle_float type;
    size_t size;
    bool padded;
    int32_t unit; /* of sizes, distances and addresses: 16, or 1 */
    sy_kv_layout layout;
    size_t cache_bytes, scale_bytes, dense_bytes;
    unsigned char *src, *want_cache;
    float *want_scale;
    bool fp4;
    int64_t one[1];
    DLTensor global;
    int64_t cache_shape[4], cache_strides[4], scale_shape[3], scale_strides[3], dense_shape[3], n_shape[1],
        table_shape[1];
    DLTensor cache, scale, dense, slots, indices, table;
    int32_t *to, *block_numbers;
};

static DLDataType q_types[] = {{10, 8, 1}, {12, 8, 1}, {0, 8, 1}};

/* Codes, rope and scales in any order, with gaps between them. */
static void random_format(struct fixture *f, uint64_t *rng)
{
    sy_kv_format *format = &f->p.format;
    const int32_t groups = 1 + (int32_t)rng_below(rng, 4);
    const bool e8m0 = rng_below(rng, 2);
    format->scale_type = e8m0 ? SY_F8_E8M0 : SY_F32;
    format->group = 1 + (int32_t)rng_below(rng, rng_below(rng, 8) == 0 ? 300 : 40);
    if (f->unit > 1)
        format->group = rng_below(rng, 8) == 0 ? 24 : 8 << rng_below(rng, 7);
    format->q_count = groups * format->group;
    format->rope_bytes = rng_below(rng, 3) == 0 ? 0 : 2 * f->unit * (int32_t)rng_below(rng, 20);
    const int32_t u = f->unit, scales = (groups * (e8m0 ? 1 : 4) + u - 1) / u * u;
    const int32_t codes_last = (int32_t)rng_below(rng, 2);
    int32_t at = u * (int32_t)rng_below(rng, 3);
    format->rope_off = at;
    at += format->rope_bytes;
    if (codes_last && format->scales == SY_SCALES_ROW) {
        format->scale_off = at;
        at += scales;
    }
    format->q_off = at + u * (int32_t)rng_below(rng, 3);
    at = format->q_off + (format->q_count + u - 1) / u * u;
    if (!codes_last && format->scales == SY_SCALES_ROW) {
        format->scale_off = at;
        at += scales;
    }
    format->row_bytes = at + u * (int32_t)rng_below(rng, 3);
    if (format->scales == SY_SCALES_BLOCK) {
        format->scale_off = u * (int32_t)rng_below(rng, 3);
        format->scale_bytes = format->scale_off + scales + u * (int32_t)rng_below(rng, 3);
    }
    seen.rope += format->rope_bytes > 0;
    seen.e8m0 += e8m0;
}

/* [blocks,S,W], [rows,W] or whole blocks. */
static void lay_out_packed(struct fixture *f, uint64_t *rng)
{
    struct packed_cache *p = &f->p;
    const int64_t gap = rng_below(rng, 2) ? f->unit * rng_below(rng, 9) : 0,
                  more = f->unit * rng_below(rng, 3);
    const bool by_block = p->format.scales == SY_SCALES_BLOCK, flat = rng_below(rng, 2);
    const bool inlined = p->format.scales == SY_SCALES_INLINE;
    const int64_t groups = 1 + rng_below(rng, 6);
    const int64_t wide =
        inlined ? groups * (p->format.q_type.bits == 4 ? 18 : 34) : p->format.row_bytes + more;
    p->elems = inlined ? 32 * groups : 0;
    seen.gaps += gap > 0;
    p->heads = 1;
    if (by_block) {
        const int64_t bytes = p->block_size * (p->format.row_bytes + p->format.scale_bytes) + more;
        p->row_stride = p->format.row_bytes;
        p->block_stride = bytes + gap;
        f->cache_shape[0] = f->blocks;
        f->cache_shape[1] = bytes;
        f->cache_strides[0] = p->block_stride;
        f->cache_strides[1] = 1;
    } else {
        p->row_stride = wide + gap;
        p->block_stride = p->block_size * p->row_stride + (flat ? 0 : gap);
        memcpy(f->cache_shape,
               flat ? (int64_t[]){f->blocks * p->block_size, wide, 0}
                    : (int64_t[]){f->blocks, p->block_size, wide},
               3 * sizeof(int64_t));
        memcpy(f->cache_strides,
               flat ? (int64_t[]){p->row_stride, 1, 0} : (int64_t[]){p->block_stride, p->row_stride, 1},
               3 * sizeof(int64_t));
        seen.paged += !flat;
    }
    f->cache_bytes = (size_t)(f->blocks * p->block_stride);
    f->cache = sy_tensor(NULL, SY_U8, by_block || flat ? 2 : 3, f->cache_shape);
}

/* [blocks,S,H,D] or [blocks,H,S,D], and scales for all rows or for each. */
static void lay_out_heads(struct fixture *f, uint64_t *rng)
{
    struct packed_cache *p = &f->p;
    const int64_t d = f->fp4        ? 8 * (1 + rng_below(rng, 5)) /* bytes of a head */
                      : f->unit > 1 ? 8 << rng_below(rng, 5)
                                    : 1 + rng_below(rng, 40);
    const int64_t heads = 1 + rng_below(rng, 4), size = p->block_size;
    const int64_t gap = rng_below(rng, 2) ? f->unit * rng_below(rng, 5) : 0;
    const int64_t parts[] = {1, heads, heads * d, d % 2 == 0 ? 2 * heads : heads};
    f->layout = rng_below(rng, 2) ? SY_KV_HND : SY_KV_NHD;
    const bool hnd = f->layout == SY_KV_HND;
    p->elems = heads * d * (f->fp4 ? 2 : 1);
    p->heads = heads;
    p->head_stride = hnd ? size * (d + gap) : d + gap;
    p->row_stride = hnd ? d + gap : heads * p->head_stride;
    p->block_stride = size * heads * (d + gap) + gap;
    memcpy(f->cache_shape,
           hnd ? (int64_t[]){f->blocks, heads, size, d} : (int64_t[]){f->blocks, size, heads, d},
           sizeof f->cache_shape);
    memcpy(f->cache_strides,
           hnd ? (int64_t[]){p->block_stride, p->head_stride, p->row_stride, 1}
               : (int64_t[]){p->block_stride, p->row_stride, p->head_stride, 1},
           sizeof f->cache_strides);
    f->cache_bytes = (size_t)(f->blocks * p->block_stride);
    f->cache = sy_tensor(NULL, f->fp4 ? SY_U8 : p->format.q_type, 4, f->cache_shape);
    p->parts = f->fp4 ? p->elems / 16 : parts[rng_below(rng, 4)];
    const int rank = f->fp4 ? 2 + (int)rng_below(rng, 2) : 1 + (int)rng_below(rng, 3);
    p->scale_stride = rank == 1 ? 0 : p->parts + gap;
    memcpy(f->scale_shape, (int64_t[]){f->blocks, size, p->parts}, sizeof f->scale_shape);
    memcpy(f->scale_strides, (int64_t[]){size * p->scale_stride, p->scale_stride, 1},
           sizeof f->scale_strides);
    if (rank < 3) {
        memcpy(f->scale_shape, (int64_t[]){rank == 1 ? p->parts : f->blocks * size, p->parts, 0},
               sizeof f->scale_shape);
        memcpy(f->scale_strides, (int64_t[]){rank == 1 ? 1 : p->scale_stride, 1, 0}, sizeof f->scale_strides);
    }
    f->scale_bytes =
        (size_t)(rank == 1 ? p->parts : f->blocks * size * p->scale_stride) * (f->fp4 ? 1 : sizeof(float));
    f->scale = sy_tensor(NULL, !f->fp4 ? SY_F32 : heads % 2 ? SY_U8 : SY_F8_E4M3, rank, f->scale_shape);
    f->scale.strides = f->scale_strides;
    seen.heads_apart += heads > 1 && p->head_stride != d;
    seen.shared += heads > 1 && p->head_stride != d && p->parts < heads;
    seen.written += rank > 1;
}

static void fill_numbers(struct fixture *f, uint64_t *rng)
{
    static const float hard[] = {0.0f,   -0.0f,     INFINITY, -INFINITY, NAN,
                                 1e-30f, -65504.0f, 448.0f,   1e-42f,    127.5f};
    const double spread = ldexp(1.0, (int)rng_below(rng, 40) - 20);
    const bool easy = rng_below(rng, 2) == 0; /* zeros and numbers of one size, as in most caches */
    for (int64_t i = 0; i < f->n * f->width; i++) {
        float x = (float)((rng_unit(rng) - 0.5) * spread);
        if (rng_below(rng, 60) == 0)
            x = hard[rng_below(rng, easy ? 2 : COUNT_OF(hard))];
        if (rng_below(rng, 400) == 0 && !easy)
            x = f32_from_bits((uint32_t)rng_u64(rng));
        const uint32_t word = f32_bits(x);
        const uint16_t half = f->type == ORACLE_F16 ? f16_round((double)x) : bf16_round((double)x);
        memcpy(f->src + (size_t)i * f->size, f->size == 4 ? (const void *)&word : &half, f->size);
        seen.nan += x != x;
    }
}

static void fixture_rows(struct fixture *f, uint64_t *rng)
{
    const int64_t rows = f->blocks * f->p.block_size;
    const int64_t step = rows % 7 == 0 ? 1 : 7, first = rng_below(rng, rows);
    f->n = rng_below(rng, rows) + 1;
    f->width = oracle_unpacked(&f->p);
    f->dense_bytes = (size_t)(f->n * f->width) * f->size;
    f->src = buf_new(f->dense_bytes, f->unit > 1 ? 0 : 1);
    f->to = calloc((size_t)f->n, sizeof *f->to);
    f->block_numbers = calloc((size_t)f->blocks, sizeof *f->block_numbers);
    assert_true(f->src && f->to && f->block_numbers);
    for (int64_t i = 0; i < f->n; i++)
        f->to[i] = f->padded && rng_below(rng, 6) == 0 ? -1 : (int32_t)((first + i * step) % rows);
    for (int64_t i = 0; i < f->blocks; i++)
        f->block_numbers[i] = (int32_t)i;
    fill_numbers(f, rng);
    f->n_shape[0] = f->n;
    f->table_shape[0] = f->blocks;
    memcpy(f->dense_shape, (int64_t[]){f->n, f->width, 0}, sizeof f->dense_shape);
    if (f->p.format.scales == SY_SCALES_TENSOR)
        memcpy(f->dense_shape, (int64_t[]){f->n, f->p.heads, f->p.elems / f->p.heads}, sizeof f->dense_shape);
    const DLDataType types[] = {SY_F32, SY_F16, SY_BF16};
    f->dense =
        sy_tensor(f->src, types[f->type], f->p.format.scales == SY_SCALES_TENSOR ? 3 : 2, f->dense_shape);
    f->slots = sy_tensor(f->to, SY_I32, 1, f->n_shape);
    f->table = sy_tensor(f->block_numbers, SY_I32, 1, f->table_shape);
}

static void fixture_make(struct fixture *f, uint64_t *rng)
{
    memset(f, 0, sizeof *f);
    const int scales = (int)rng_below(rng, 4), code = (int)rng_below(rng, 3);
    f->p.format = (sy_kv_format){
        .bytes = sizeof(sy_kv_format), .q_type = q_types[code], .scales = (sy_kv_scales)scales};
    f->p.block_size = 1 + rng_below(rng, 5);
    f->blocks = 1 + rng_below(rng, 6);
    f->type = (enum oracle_float)rng_below(rng, 3);
    f->size = f->type == ORACLE_F32 ? 4 : 2;
    f->padded = rng_below(rng, 2);
    f->unit = rng_below(rng, 2) ? 16 : 1;
    seen.even += f->unit > 1;
    seen.scales[scales]++;
    seen.code[code]++;
    seen.type[f->type]++;
    seen.padded += f->padded;
    if (scales == SY_SCALES_TENSOR) {
        static const float far[] = {1e-45f, 1e-39f, FLT_MIN, FLT_MAX, 1e38f};
        f->fp4 = rng_below(rng, 3) == 0;
        if (f->fp4) {
            f->p.format = format_named(code == 0 ? "nvfp4" : "nvfp4_amax");
            f->p.global = rng_below(rng, 6) == 0 ? far[rng_below(rng, COUNT_OF(far))]
                                                 : ldexpf(1 + (float)rng_unit(rng),
                                                          (int)rng_below(rng, 40) - (code == 0 ? 30 : 20));
            f->one[0] = 1;
            f->global = sy_tensor(&f->p.global, SY_F32, 1, f->one);
        }
        seen.fp4 += f->fp4;
        lay_out_heads(f, rng);
    } else if (scales == SY_SCALES_INLINE) {
        f->p.format = format_named(code == 0 ? "q8_0" : "q4_0");
        lay_out_packed(f, rng);
    } else {
        random_format(f, rng);
        lay_out_packed(f, rng);
    }
    f->cache.strides = f->cache_strides;
    f->p.cache = buf_new(f->cache_bytes, f->unit > 1 ? 0 : 3);
    f->want_cache = malloc(f->cache_bytes);
    f->p.scale = buf_new(f->scale_bytes, 0);
    f->want_scale = malloc(f->scale_bytes + 1);
    assert_true(f->want_cache && f->want_scale);
    rng_fill(rng, f->p.cache, f->cache_bytes);
    for (size_t i = 0; i < f->scale_bytes / 4 && !f->fp4; i++)
        f->p.scale[i] = (float)rng_unit(rng);
    if (f->fp4)
        rng_fill(rng, (unsigned char *)f->p.scale, f->scale_bytes);
    f->cache.data = f->p.cache;
    f->scale.data = f->p.scale;
    fixture_rows(f, rng);
}

static void fixture_free(struct fixture *f)
{
    buf_free(f->p.cache);
    buf_free(f->p.scale);
    buf_free(f->src);
    free(f->want_cache);
    free(f->want_scale);
    free(f->to);
    free(f->block_numbers);
}

static const DLTensor *scale_of(struct fixture *f)
{
    return f->p.format.scales == SY_SCALES_TENSOR ? &f->scale : NULL;
}

static const DLTensor *global_of(struct fixture *f)
{
    return f->fp4 ? &f->global : NULL;
}

/* Every context packs into the same old bytes; the last result stays for the gather. */
static void check_scatter(struct fixture *f)
{
    unsigned char *old_cache = malloc(f->cache_bytes);
    float *old_scale = malloc(f->scale_bytes + 1);
    assert_true(old_cache && old_scale);
    memcpy(old_cache, f->p.cache, f->cache_bytes);
    memcpy(old_scale, f->p.scale, f->scale_bytes);
    for (int64_t i = 0; i < f->n; i++)
        if (f->to[i] >= 0)
            oracle_pack(&f->p, f->to[i], f->type, f->src + (size_t)(i * f->width) * f->size);
    memcpy(f->want_cache, f->p.cache, f->cache_bytes);
    memcpy(f->want_scale, f->p.scale, f->scale_bytes);
    const sy_kv_scatter_args args = {.cache = &f->cache,
                                     .src = &f->dense,
                                     .slots = &f->slots,
                                     .pad = f->padded ? SY_PAD_SKIP : SY_PAD_ERROR,
                                     .check_unique = true,
                                     .layout = f->layout,
                                     .format = &f->p.format,
                                     .scale = scale_of(f),
                                     .global_scale = global_of(f),
                                     .block_size = f->p.block_size};
    for (size_t c = 0; c < n_contexts; c++) {
        sy_query query;
        memcpy(f->p.cache, old_cache, f->cache_bytes);
        memcpy(f->p.scale, old_scale, f->scale_bytes);
        expect_status(contexts[c], sy_kv_scatter_query(contexts[c], &args, &query), SY_OK);
        expect_status(contexts[c], sy_kv_scatter(contexts[c], &args), SY_OK);
        expect_bytes(f->p.cache, f->want_cache, f->cache_bytes);
        expect_bytes(f->p.scale, f->want_scale, f->scale_bytes);
    }
    free(old_cache);
    free(old_scale);
}

static void check_gather(struct fixture *f, uint64_t *rng)
{
    unsigned char *want = malloc(f->dense_bytes), *got = buf_new(f->dense_bytes, f->unit > 1 ? 0 : 2);
    const size_t row = (size_t)f->width * f->size;
    assert_non_null(want);
    const int64_t rows = f->blocks * f->p.block_size;
    rng_fill(rng, f->p.cache, f->cache_bytes / 2); /* codes and scales that packing never makes */
    for (int64_t i = 0; i < f->n; i++) {
        if (f->to[i] >= 0)
            f->to[i] = (int32_t)rng_below(rng, rows);
        memset(want + (size_t)i * row, 0, row);
        if (f->to[i] >= 0)
            oracle_unpack(&f->p, f->to[i], f->type, want + (size_t)i * row);
    }
    f->dense.data = got;
    for (size_t c = 0; c < n_contexts; c++) {
        memset(got, 0xA5, f->dense_bytes);
        const sy_kv_gather_args args = {.cache = &f->cache,
                                        .indices = &f->slots,
                                        .block_table = &f->table,
                                        .block_size = f->p.block_size,
                                        .pad = SY_PAD_ZERO,
                                        .layout = f->layout,
                                        .format = &f->p.format,
                                        .scale = scale_of(f),
                                        .global_scale = global_of(f),
                                        .out = &f->dense};
        sy_query query;
        expect_status(contexts[c], sy_kv_gather_query(contexts[c], &args, &query), SY_OK);
        assert_int_equal(query.rows, f->n);
        expect_status(contexts[c], sy_kv_gather(contexts[c], &args), SY_OK);
        expect_bytes(got, want, f->dense_bytes);
    }
    free(want);
    buf_free(got);
}

/* The first rows in order. */
static void check_ragged(struct fixture *f)
{
    const size_t row = (size_t)f->width * f->size;
    unsigned char *want = malloc(f->dense_bytes), *got = buf_new(f->dense_bytes, 0);
    int32_t ends[] = {0, (int32_t)f->n};
    const DLTensor cu = sy_tensor(ends, SY_I32, 1, (int64_t[]){2});
    assert_non_null(want);
    for (int64_t i = 0; i < f->n; i++)
        oracle_unpack(&f->p, i, f->type, want + (size_t)i * row);
    f->dense.data = got;
    expect_status(contexts[0],
                  sy_kv_ragged(contexts[0], &(sy_kv_ragged_args){.cache = &f->cache,
                                                                 .block_table = &f->table,
                                                                 .cu_lens = &cu,
                                                                 .block_size = f->p.block_size,
                                                                 .layout = f->layout,
                                                                 .format = &f->p.format,
                                                                 .scale = scale_of(f),
                                                                 .global_scale = global_of(f),
                                                                 .out = &f->dense}),
                  SY_OK);
    expect_bytes(got, want, f->dense_bytes);
    free(want);
    buf_free(got);
}

static void random_formats(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 480; seed++) {
        struct fixture f;
        uint64_t rng = seed;
        fixture_make(&f, &rng);
        check_scatter(&f);
        check_gather(&f, &rng);
        check_ragged(&f);
        fixture_free(&f);
    }
    for (int i = 0; i < 3; i++)
        assert_true(seen.scales[i] > 50 && seen.code[i] > 50 && seen.type[i] > 50);
    assert_true(seen.scales[SY_SCALES_INLINE] > 50 && seen.fp4 > 30);
    assert_true(seen.heads_apart > 20 && seen.shared > 5 && seen.written > 20 && seen.paged > 20);
    assert_true(seen.padded > 50 && seen.gaps > 50 && seen.rope > 50 && seen.e8m0 > 50 && seen.nan > 50 &&
                seen.even > 50);
}

/* One plane packed, one with scales of its own, one plain. */
static void planes_of_all_kinds(void **state)
{
    (void)state;
    const sy_kv_format latent = format_named("pto_int8"), value = format_named("e5m2");
    unsigned char rows[2][656], codes[2][3] = {{0x3c, 0xbc, 0x7c}, {0x01, 0x40, 0x00}};
    uint16_t plain[2][2] = {{1, 2}, {3, 4}}, wide[2][576], plain_out[2][2];
    float half = 0.5f, narrow[2][3], wanted[2][3] = {{0.5f, -0.5f, INFINITY}, {0x1p-17f, 1.0f, 0.0f}};
    int32_t at[] = {0, 1}, block = 0;
    memset(rows, 0, sizeof rows);
    rows[1][0] = 3;
    memcpy(rows[1] + 640, &half, sizeof half);
    DLTensor c[3] = {sy_tensor(rows, SY_U8, 2, (int64_t[]){2, 656}),
                     sy_tensor(codes, SY_U8, 2, (int64_t[]){2, 3}),
                     sy_tensor(plain, SY_U16, 2, (int64_t[]){2, 2})};
    DLTensor o[3] = {sy_tensor(wide, SY_BF16, 2, (int64_t[]){2, 576}),
                     sy_tensor(narrow, SY_F32, 2, (int64_t[]){2, 3}),
                     sy_tensor(plain_out, SY_U16, 2, (int64_t[]){2, 2})};
    const DLTensor scale = sy_tensor(&half, SY_F32, 1, (int64_t[]){1}),
                   i = sy_tensor(at, SY_I32, 1, (int64_t[]){2}),
                   t = sy_tensor(&block, SY_I32, 1, (int64_t[]){1});
    const sy_kv_plane more[2] = {{.cache = &c[1], .rows = &o[1], .format = &value, .scale = &scale},
                                 {.cache = &c[2], .rows = &o[2]}};
    expect_status(contexts[0],
                  sy_kv_gather(contexts[0], &(sy_kv_gather_args){.cache = &c[0],
                                                                 .indices = &i,
                                                                 .block_table = &t,
                                                                 .block_size = 2,
                                                                 .format = &latent,
                                                                 .out = &o[0],
                                                                 .planes = more,
                                                                 .plane_bytes = sizeof(sy_kv_plane),
                                                                 .num_planes = 2}),
                  SY_OK);
    assert_int_equal(wide[1][0], bf16_round(1.5));
    assert_int_equal(wide[1][1], 0);
    expect_bytes(narrow, wanted, sizeof narrow);
    expect_bytes(plain_out, plain, sizeof plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_have_their_layouts),
        cmocka_unit_test(formats_of_other_sizes),
        cmocka_unit_test(random_formats),
        cmocka_unit_test(planes_of_all_kinds),
    };
    return cmocka_run_group_tests_name("kv_format", tests, open_contexts, close_contexts);
}
