/*
 * Row formats: the named ones, of caches and of quantize_rows, and what a format means for the checks of a plane.
 */
#include "plan/kv_math.h"
#include "ops/kv.h"

/* ---- By name ---- */

#define TYPE(code, bits) \
    { \
        code, bits, 1 \
    }
#define E4M3 TYPE(10, 8)
#define E5M2 TYPE(12, 8)
#define E8M0 TYPE(14, 8)
#define I8 TYPE(0, 8)
#define F32 TYPE(2, 32)
#define U4 TYPE(1, 4)
#define E2M1 TYPE(17, 4)
#define F16 TYPE(2, 16)

/* NOLINTBEGIN(bugprone-macro-parentheses): types are lists in braces */
/* Rows of caches: codes, scales, where these are, bytes of a row, codes in it, those of a group; first scale, bytes of a record;
   first byte of the rope part, how many. */
#define CACHE(q, s, where, row, n, each, first, record, rope, size) \
    { \
        .q_type = q, .scale_type = s, .scales = SY_SCALES_##where, .row_bytes = row, .q_count = n, \
        .group = each, .scale_off = first, .scale_bytes = record, .rope_off = rope, .rope_bytes = size \
    }
/* Of quantize_rows: codes, scales, those of a group, the least amax, how scales and codes are made. */
#define ROWS(q, s, each, least, scale, code) \
    { \
        .q_type = q, .scale_type = s, .group = each, .a_min = least, .scale_math = SY_SCALE_MATH_##scale, \
        .code_math = SY_CODE_MATH_##code \
    }
/* NOLINTEND(bugprone-macro-parentheses) */

static const struct {
    const char *name;
    sy_kv_format format;
} named[] = {
    {"ds32_fp8", CACHE(E4M3, F32, ROW, 656, 512, 128, 512, 0, 528, 128)},
    {"pto_int8", CACHE(I8, F32, ROW, 656, 512, 128, 640, 0, 512, 128)},
    {"ds4_fp8", CACHE(E4M3, E8M0, BLOCK, 576, 448, 64, 0, 8, 448, 128)},
    {"indexer_fp8", CACHE(E4M3, F32, BLOCK, 128, 128, 128, 0, 4, 0, 0)},
    {"e4m3", {.q_type = E4M3}},
    {"e5m2", {.q_type = E5M2}},
    {"int8", {.q_type = I8}},
    {"q8_0", {.q_type = I8, .scale_type = F16, .scales = SY_SCALES_INLINE, .group = SYI_INLINE_GROUP}},
    {"q4_0", {.q_type = U4, .scale_type = F16, .scales = SY_SCALES_INLINE, .group = SYI_INLINE_GROUP}},
    {"fp8_128", ROWS(E4M3, F32, 128, 1e-10, DIV, DIV)},
    {"fp8_128_deepep", ROWS(E4M3, F32, 128, 1e-4, MUL, AMAX)},
    {"fp8_128_deepgemm", ROWS(E4M3, F32, 128, 1e-4, DIV, RCP)},
    {"fp8_128_ue8m0", ROWS(E4M3, E8M0, 128, 1e-4, UP, DIV)},
    {"mxfp8", ROWS(E4M3, E8M0, 32, 0, UP, DIV)},
    {"mxfp8_floor", ROWS(E4M3, E8M0, 32, 0, FLOOR, DIV)},
    {"int8_token", ROWS(I8, F32, 0, 0, DIV, AMAX)},
    {"nvfp4", {.q_type = E2M1, .scale_type = E4M3, .group = SYI_FP4_GROUP}},
    {"nvfp4_amax", {.q_type = E2M1, .scale_type = E4M3, .group = SYI_FP4_GROUP, .global_is = SY_GLOBAL_AMAX}},
};

sy_status sy_kv_format_named_n(const char *name, sy_kv_format *format, size_t format_bytes)
{
    if (name == NULL || format == NULL)
        return SY_ERR_NULL;
    memset(format, 0, format_bytes);
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (strcmp(named[i].name, name) == 0) {
            sy_kv_format found = named[i].format;
            found.bytes = format_bytes;
            memcpy(format, &found, sizeof found < format_bytes ? sizeof found : format_bytes);
            return SY_OK;
        }
    return SY_ERR_VALUE;
}

/* ---- What a format means ---- */

bool syi_kv_by_block(const struct syi_call *call)
{
    return call->sets.format != NULL && call->sets.format->scales == SY_SCALES_BLOCK;
}

static bool in_tensor(const sy_kv_format *f)
{
    return f->scales == SY_SCALES_TENSOR;
}

static bool is_inline(const sy_kv_format *f)
{
    return f->scales == SY_SCALES_INLINE;
}

bool syi_is_fp4_format(const sy_kv_format *f)
{
    return syi_same_type(f->q_type, (DLDataType)E2M1);
}

int64_t syi_packed_group_bytes(const sy_kv_format *f)
{
    if (syi_is_fp4_format(f))
        return SYI_FP4_BYTES;
    return (int64_t)syi_inline_bytes(&(struct syi_kv_codec){.four = f->q_type.bits == 4});
}

int64_t syi_kv_unpacked(const struct syi_call *call)
{
    const sy_kv_format *f = call->sets.format;
    if (f != NULL && is_inline(f)) { /* of a cache that is rejected anything but 0 */
        const DLTensor *cache = call->tensor[call->sets.rules[0]];
        const bool readable =
            cache != NULL && cache->shape != NULL && cache->ndim > 0 && cache->ndim <= SYI_MAX_RANK;
        const int64_t groups = readable ? cache->shape[cache->ndim - 1] / syi_packed_group_bytes(f) : 0;
        return (groups > 0 ? groups : 1) * SYI_INLINE_GROUP;
    }
    return f == NULL || in_tensor(f) ? 0 : (int64_t)f->q_count + f->rope_bytes / 2;
}

static int64_t scale_size(const sy_kv_format *f)
{
    return syi_type_of(f->scale_type) == SY_TYPE_F32 ? 4 : 1;
}

static const DLTensor *scale_of(const struct syi_call *call, const struct syi_kv_subject *subject)
{
    const DLTensor *read = subject->scale != 0 ? call->tensor[subject->scale] : NULL;
    return read == NULL && subject->scale_out != 0 ? call->tensor[subject->scale_out] : read;
}

/* ---- Formats that make sense ---- */

static sy_status reject(struct syi_call *call, const char *field, int64_t value, const char *want)
{
    return syi_fail_with(call->ctx, SY_ERR_VALUE, SY_FAULT_NONE, "format", value, 0, "has %s %lld, want %s",
                         field, (long long)value, want);
}

sy_status syi_check_packed_format(struct syi_call *call, const char *name, const sy_kv_format *f)
{
    const bool fp4 = syi_is_fp4_format(f);
    const bool codes =
        fp4 || syi_same_type(f->q_type, (DLDataType)I8) || syi_same_type(f->q_type, (DLDataType)U4);
    const int32_t others[] = {f->row_bytes,   f->q_off,    f->q_count,   f->scale_off,
                              f->scale_bytes, f->rope_off, f->rope_bytes};
    int32_t any = f->scale_math != SY_SCALE_MATH_CACHE || f->code_math != SY_CODE_MATH_DIV || f->a_min != 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        any |= others[i];
    if (fp4 && f->scales != SY_SCALES_TENSOR)
        any = 1;
    if (f->global_is != SY_GLOBAL_DECODE && !(fp4 && f->global_is == SY_GLOBAL_AMAX))
        any = 1;
    if (codes && syi_same_type(f->scale_type, fp4 ? (DLDataType)E4M3 : (DLDataType)F16) &&
        f->group == (fp4 ? SYI_FP4_GROUP : SYI_INLINE_GROUP) && any == 0)
        return SY_OK;
    return syi_fail(call->ctx, SY_ERR_VALUE, name, "has %s, want it as sy_kv_format_named sets %s",
                    fp4 ? "q_type f4_e2m1" : "scales inline", fp4 ? "nvfp4 or nvfp4_amax" : "q8_0 or q4_0");
}

sy_status syi_check_global_given(struct syi_call *call, int global, bool has)
{
    return !has || call->tensor[global] != NULL
               ? SY_OK
               : syi_fail(call->ctx, SY_ERR_NULL, "global_scale", "is missing, want a tensor");
}

sy_status syi_check_no_global(struct syi_call *call, int global, bool has)
{
    return has || global == 0 || call->tensor[global] == NULL
               ? SY_OK
               : syi_fail(call->ctx, SY_ERR_VALUE, "global_scale",
                          "is given, want none: there is no format nvfp4");
}

static sy_status check_types(struct syi_call *call, const sy_kv_format *f)
{
    char text[64];
    const sy_type q = syi_type_of(f->q_type), scale = syi_type_of(f->scale_type);
    syi_describe_type(q == SY_TYPE_F8_E4M3 || q == SY_TYPE_F8_E5M2 || q == SY_TYPE_I8 ? f->scale_type
                                                                                      : f->q_type,
                      text, sizeof text);
    if (q != SY_TYPE_F8_E4M3 && q != SY_TYPE_F8_E5M2 && q != SY_TYPE_I8)
        return syi_fail(call->ctx, SY_ERR_VALUE, "format", "has q_type %s, want f8_e4m3, f8_e5m2 or i8",
                        text);
    if (f->scale_math != SY_SCALE_MATH_CACHE || f->code_math != SY_CODE_MATH_DIV || f->a_min != 0 ||
        f->global_is != SY_GLOBAL_DECODE)
        return syi_fail(call->ctx, SY_ERR_VALUE, "format",
                        "has scale_math, code_math, a_min or global_is set, want 0: a format of caches");
    if ((int)f->scales < 0 || f->scales > SY_SCALES_BLOCK)
        return reject(call, "scales", (int)f->scales, "0 to 3: TENSOR, ROW, BLOCK, INLINE");
    if (!in_tensor(f) && scale != SY_TYPE_F32 && scale != SY_TYPE_F8_E8M0)
        return syi_fail(call->ctx, SY_ERR_VALUE, "format", "has scale_type %s, want f32 or f8_e8m0", text);
    return SY_OK;
}

/* All is in the cache and in the scales: the format has nothing more to say. */
static sy_status check_bare(struct syi_call *call, const sy_kv_format *f)
{
    const struct {
        const char *name;
        int32_t value;
    } fields[] = {{"row_bytes", f->row_bytes}, {"q_off", f->q_off},          {"q_count", f->q_count},
                  {"group", f->group},         {"scale_off", f->scale_off},  {"scale_bytes", f->scale_bytes},
                  {"rope_off", f->rope_off},   {"rope_bytes", f->rope_bytes}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].value != 0)
            return reject(call, fields[i].name, fields[i].value, "0: its scales are in a tensor");
    return SY_OK;
}

/* A part of a row or scale record: bytes [off, off + bytes) of `whole`. */
struct part {
    const char *name;
    int64_t off, bytes, whole;
    bool in_row;
};

static sy_status check_parts(struct syi_call *call, const struct part *part, int n)
{
    for (int i = 0; i < n; i++) {
        const struct part *a = &part[i];
        if (a->off < 0 || a->bytes < 0 || a->off + a->bytes > a->whole)
            return syi_fail(call->ctx, SY_ERR_VALUE, "format",
                            "has %s in bytes %lld to %lld, want them inside 0 to %lld", a->name,
                            (long long)a->off, (long long)a->off + a->bytes, (long long)a->whole);
        for (const struct part *b = part; b < a; b++)
            if (a->in_row && b->in_row && a->off < b->off + b->bytes && b->off < a->off + a->bytes)
                return syi_fail(call->ctx, SY_ERR_VALUE, "format",
                                "has %s in bytes %lld to %lld, want them apart from %s", a->name,
                                (long long)a->off, (long long)a->off + a->bytes, b->name);
    }
    return SY_OK;
}

static sy_status check_layout(struct syi_call *call, const sy_kv_format *f)
{
    const bool in_row = f->scales == SY_SCALES_ROW;
    if (f->row_bytes < 1)
        return reject(call, "row_bytes", f->row_bytes, "1 or more");
    if (f->q_count < 1)
        return reject(call, "q_count", f->q_count, "1 or more");
    if (f->group < 1 || f->q_count % f->group != 0)
        return reject(call, "group", f->group, "a divisor of q_count");
    if (f->rope_bytes % 2 != 0)
        return reject(call, "rope_bytes", f->rope_bytes, "an even number: bf16");
    if (in_row ? f->scale_bytes != 0 : f->scale_bytes < 1)
        return reject(call, "scale_bytes", f->scale_bytes,
                      in_row ? "0: its scales are in the row" : "1 or more");
    const int64_t scales = f->q_count / f->group * scale_size(f);
    const struct part parts[] = {
        {"codes", f->q_off, f->q_count, f->row_bytes, true},
        {"rope", f->rope_off, f->rope_bytes, f->row_bytes, f->rope_bytes > 0},
        {"scales", f->scale_off, scales, in_row ? f->row_bytes : f->scale_bytes, in_row},
    };
    return check_parts(call, parts, 3);
}

/* Of the tensors of a format: f32 scales, or of nvfp4 bytes. */
static sy_status check_tensor_types(struct syi_call *call, const struct syi_kv_subject *subject, bool fp4)
{
    const DLTensor *const tensors[] = {fp4 ? call->tensor[subject->cache] : NULL, scale_of(call, subject)};
    for (int k = 0; k < 2; k++) {
        const sy_type type = tensors[k] != NULL ? syi_type_of(tensors[k]->dtype) : SY_TYPE_U8;
        if (tensors[k] == NULL ||
            (fp4 ? type == SY_TYPE_U8 || (k == 1 && type == SY_TYPE_F8_E4M3) : type == SY_TYPE_F32))
            continue;
        char text[64];
        syi_describe_type(tensors[k]->dtype, text, sizeof text);
        return syi_fail(call->ctx, SY_ERR_DTYPE, k == 0 ? syi_name(call, subject->cache) : "scale",
                        "is %s, want %s", text,
                        !fp4     ? "f32"
                        : k == 0 ? "u8"
                                 : "f8_e4m3 or u8");
    }
    return SY_OK;
}

sy_status syi_kv_check_format(struct syi_call *call, void *data)
{
    const struct syi_kv_subject *subject = data;
    const sy_kv_format *f = call->sets.format;
    const DLTensor *scale = scale_of(call, subject);
    const bool wanted = f != NULL && in_tensor(f), fp4 = f != NULL && syi_is_fp4_format(f);
    const bool by_name = fp4 || (f != NULL && is_inline(f));
    SYI_TRY(f == NULL ? SY_OK : by_name ? syi_check_packed_format(call, "format", f) : check_types(call, f));
    if (f != NULL && !by_name)
        SYI_TRY(in_tensor(f) ? check_bare(call, f) : check_layout(call, f));
    if (wanted)
        SYI_TRY(check_tensor_types(call, subject, fp4));
    SYI_TRY(syi_check_global_given(call, subject->global, fp4));
    SYI_TRY(syi_check_no_global(call, subject->global, fp4));
    if (wanted == (scale != NULL))
        return SY_OK;
    if (wanted)
        return syi_fail(call->ctx, SY_ERR_NULL, "scale", "is missing, want a tensor: format has no scales");
    return syi_fail(call->ctx, SY_ERR_VALUE, "scale", "is given, want none: %s",
                    f == NULL ? "there is no format" : "the cache has the scales");
}

/* ---- Shapes ---- */

/* One set of scales, or one for every row as the cache has its rows. */
static sy_status check_scale(struct syi_call *call, const struct syi_kv_subject *subject,
                             const struct syi_kv_rows *rows)
{
    const DLTensor *scale = scale_of(call, subject);
    const int i = scale == call->tensor[subject->scale] ? subject->scale : subject->scale_out;
    const int64_t parts = scale->shape[scale->ndim - 1], heads = rows->n_heads;
    const bool by_block = scale->ndim == 3 && rows->blocks >= 0, fp4 = syi_is_fp4_format(call->sets.format);
    int64_t shape[3] = {rows->rows, parts, parts};
    if (fp4 && (scale->ndim == 1 || parts != rows->elems / SYI_FP4_BYTES))
        return syi_fail(call->ctx, SY_ERR_SHAPE, "scale",
                        "has rank %d and %lld for a row, want rank 2 or 3 and %lld, one for 16 numbers",
                        (int)scale->ndim, (long long)parts, (long long)(rows->elems / SYI_FP4_BYTES));
    if (!fp4 && (parts < 1 || rows->elems % parts != 0 || (parts % heads != 0 && heads % parts != 0)))
        return syi_fail(call->ctx, SY_ERR_SHAPE, "scale",
                        "has %lld for a row, want a number that cuts its %lld elements and %lld heads evenly",
                        (long long)parts, (long long)rows->elems, (long long)heads);
    if (scale->ndim == 1)
        return SY_OK;
    if (by_block) {
        shape[0] = rows->blocks;
        shape[1] = rows->rows;
    } else if (rows->blocks >= 0 && !syi_mul(rows->blocks, rows->rows, &shape[0])) {
        return SY_OK; /* rejected among the sizes */
    }
    return syi_check_shape(call, i, by_block ? 3 : 2, shape);
}

sy_status syi_kv_check_packed(struct syi_call *call, const struct syi_kv_subject *subject,
                              const struct syi_kv_rows *rows)
{
    const sy_kv_format *f = call->sets.format;
    if (f == NULL || f->scales == SY_SCALES_BLOCK)
        return SY_OK;
    if (syi_is_fp4_format(f)) {
        const int64_t head = rows->elems / rows->n_heads;
        SYI_TRY(syi_check_vector(call, subject->global, 1));
        if (head % SYI_FP4_BYTES != 0)
            return syi_fail(call->ctx, SY_ERR_SHAPE, syi_name(call, subject->cache),
                            "has heads of %lld bytes, want a multiple of %d as format says", (long long)head,
                            (int)SYI_FP4_BYTES);
    }
    if (in_tensor(f))
        return check_scale(call, subject, rows);
    if (is_inline(f)) {
        const DLTensor *cache = call->tensor[subject->cache];
        const int64_t each = syi_packed_group_bytes(f);
        if (rows->elems % each == 0 && rows->elems == cache->shape[cache->ndim - 1])
            return SY_OK;
        return syi_fail(call->ctx, SY_ERR_SHAPE, syi_name(call, subject->cache),
                        "has rows of %lld bytes, want a multiple of %lld in one dimension as format says",
                        (long long)rows->elems, (long long)each);
    }
    if (rows->elems >= f->row_bytes)
        return SY_OK;
    return syi_fail_value(call, SY_ERR_SHAPE, syi_name(call, subject->cache), rows->elems, f->row_bytes,
                          "has rows of %lld bytes, want at least %lld as format says");
}

sy_status syi_kv_check_packed_pieces(struct syi_call *call, const struct syi_kv_subject *subject, bool apart)
{
    if (!apart || syi_kv_unpacked(call) == 0)
        return SY_OK;
    return syi_fail(call->ctx, SY_ERR_STRIDE, syi_name(call, subject->cache),
                    "has the heads of a row apart, want rows in one piece as format says");
}

sy_status syi_kv_check_packed_blocks(struct syi_call *call, const struct syi_kv_subject *subject)
{
    const sy_kv_format *f = call->sets.format;
    const DLTensor *t = call->tensor[subject->cache];
    const int64_t each = (int64_t)f->row_bytes + f->scale_bytes;
    int64_t bytes, want;
    if (subject->block_size < 1)
        return syi_fail_code(call, SY_ERR_VALUE, SY_FAULT_BAD_BLOCK_SIZE, "block_size", subject->block_size,
                             1, "is %lld, want 1 or more: it cannot be derived from blocks of packed rows");
    if (!syi_kv_product(t, 1, t->ndim, &bytes))
        return SY_OK; /* rejected among the sizes */
    if (syi_mul(subject->block_size, each, &want) && bytes >= want)
        return SY_OK;
    return syi_fail(call->ctx, SY_ERR_SHAPE, syi_name(call, subject->cache),
                    "has blocks of %lld bytes, want at least %lld rows of %lld as format says",
                    (long long)bytes, (long long)subject->block_size, (long long)each);
}

bool syi_kv_dense_bytes(const struct syi_call *call, const struct syi_kv_subject *subject, int64_t row_bytes,
                        int64_t *bytes)
{
    const DLTensor *dense = call->tensor[subject->dense];
    const int64_t elems = syi_kv_unpacked(call);
    *bytes = row_bytes;
    if (call->sets.format == NULL)
        return true;
    if (syi_is_fp4_format(call->sets.format) && !syi_mul(row_bytes, 2, &row_bytes))
        return false;
    return syi_mul(elems > 0 ? elems : row_bytes, dense != NULL ? (int64_t)syi_elem_bytes(dense->dtype) : 4,
                   bytes);
}

/* ---- Views ---- */

enum syi_code syi_format_code(const sy_kv_format *f)
{
    const sy_type q = syi_type_of(f->q_type);
    return q == SY_TYPE_I8 ? SYI_CODE_I8 : q == SY_TYPE_F8_E5M2 ? SYI_CODE_E5M2 : SYI_CODE_E4M3;
}

/* Codes of 4 bits: global scales of rows, which have no heads that are shared. */
static void view_fp4(struct syi_call *call, const sy_kv_format *f, int global,
                     const struct syi_kv_plane *plane, struct syi_kv_codec *codec)
{
    const int64_t n = syi_extent(call, global, 0);
    codec->fp4 = true;
    codec->global = (struct syi_global){syi_rows_of(call, global).data, n == 1 ? 0 : 4, n,
                                        f->global_is == SY_GLOBAL_AMAX};
    codec->group = SYI_FP4_GROUP;
    codec->n_groups = plane->row_bytes / SYI_FP4_BYTES;
    codec->per_head = codec->n_groups / (size_t)plane->n_heads;
    codec->head_stride = plane->head_stride;
    codec->share = 1;
}

/* Scales in a tensor: the row is codes alone. */
static void view_tensor(struct syi_call *call, const struct syi_kv_subject *subject,
                        const struct syi_kv_plane *plane, struct syi_kv_codec *codec)
{
    const DLTensor *scale = scale_of(call, subject);
    const int i = scale == call->tensor[subject->scale] ? subject->scale : subject->scale_out;
    const struct syi_rows rows = syi_rows_of(call, i);
    const size_t parts = (size_t)scale->shape[scale->ndim - 1], heads = (size_t)plane->n_heads;
    /* Where heads lie apart, no group goes from one to the next. */
    codec->n_groups = parts > heads ? parts : heads;
    codec->share = codec->n_groups / parts;
    codec->group = plane->row_bytes / codec->n_groups;
    codec->per_head = codec->n_groups / heads;
    codec->head_stride = plane->head_stride;
    codec->given = scale->ndim == 1;
    codec->scale = rows.data;
    if (codec->given)
        return;
    if (syi_is_fp4_format(call->sets.format))
        view_fp4(call, call->sets.format, subject->global, plane, codec);
    codec->scale_row_stride = rows.stride;
    if (!syi_mul(subject->block_size, rows.stride, &codec->scale_block_stride))
        codec->scale_block_stride = 0; /* there is one block, and block 0 needs no stride */
}

static void view_inline(const sy_kv_format *f, const struct syi_kv_plane *plane, struct syi_kv_codec *codec)
{
    codec->inlined = true;
    codec->four = f->q_type.bits == 4;
    codec->group = SYI_INLINE_GROUP;
    codec->n_groups = codec->per_head = plane->row_bytes / (size_t)syi_packed_group_bytes(f);
    codec->share = 1;
    codec->scale = plane->cache;
    codec->scale_block_stride = plane->block_stride;
    codec->scale_row_stride = plane->row_stride;
}

/* Scales in the row or behind the rows of the block. */
static void view_packed(const struct syi_kv_subject *subject, const sy_kv_format *f,
                        struct syi_kv_plane *plane, struct syi_kv_codec *codec)
{
    const size_t n_scales = (size_t)(f->q_count / f->group), scales = n_scales * (size_t)scale_size(f);
    const bool in_row = f->scales == SY_SCALES_ROW;
    const size_t parts = (size_t)f->q_count + (size_t)f->rope_bytes + (in_row ? scales : 0);
    codec->group = (size_t)f->group;
    codec->n_groups = codec->per_head = n_scales;
    codec->share = 1;
    codec->q_off = (size_t)f->q_off;
    codec->rope_off = (size_t)f->rope_off;
    codec->rope = (size_t)f->rope_bytes / 2;
    codec->clear_row = parts < (size_t)f->row_bytes ? (size_t)f->row_bytes : 0;
    codec->clear_scale = !in_row && scales < (size_t)f->scale_bytes ? (size_t)f->scale_bytes : 0;
    if (!in_row)
        plane->row_stride = f->row_bytes;
    /* The product was compared with the bytes of a block, and an empty cache has no row to look for. */
    const size_t rows = in_row ? 0 : (size_t)subject->block_size * (size_t)f->row_bytes;
    codec->scale = plane->cache + rows;
    codec->scale_off = (size_t)f->scale_off;
    codec->scale_block_stride = plane->block_stride;
    codec->scale_row_stride = in_row ? plane->row_stride : f->scale_bytes;
    plane->row_bytes = plane->head_bytes = (size_t)f->row_bytes;
}

void syi_kv_view_codec(struct syi_call *call, const struct syi_kv_subject *subject,
                       struct syi_kv_plane *plane)
{
    const sy_kv_format *f = call->sets.format;
    struct syi_kv_codec *codec = &plane->codec;
    const sy_type dense = syi_type_at(call, subject->dense);
    plane->packed = true;
    codec->code = syi_format_code(f);
    codec->dense = syi_float_of(dense);
    codec->e8m0 = syi_type_of(f->scale_type) == SY_TYPE_F8_E8M0;
    if (in_tensor(f))
        view_tensor(call, subject, plane, codec);
    else if (is_inline(f))
        view_inline(f, plane, codec);
    else
        view_packed(subject, f, plane, codec);
    const size_t elems = codec->group * codec->n_groups + codec->rope;
    codec->dense_bytes = elems * (dense == SY_TYPE_F32 ? 4 : 2);
}

/* All in one block, whose rows are numbered without a division. */
void syi_view_packed_rows(struct syi_call *call, const sy_kv_format *f, size_t row_bytes, int global,
                          struct syi_quantize_rows_plan *plan)
{
    const struct syi_row_codes_plan *const p = &plan->codes;
    struct syi_kv_plane *const plane = &plan->plane;
    plan->pool = (struct syi_kv_pool){
        .block_size = INT64_C(1) << 62, .n_blocks = 1, .n_rows = p->n_rows, .block_shift = 62};
    *plane = (struct syi_kv_plane){.cache = p->codes.data,
                                   .row_stride = p->codes.stride,
                                   .n_heads = 1,
                                   .head_bytes = row_bytes,
                                   .row_bytes = row_bytes,
                                   .dense = p->dense,
                                   .packed = true};
    plane->codec.dense = p->type;
    if (syi_is_fp4_format(f)) {
        view_fp4(call, f, global, plane, &plane->codec);
        plane->codec.scale = p->scales.data;
        plane->codec.scale_row_stride = p->scales.stride;
    } else {
        view_inline(f, plane, &plane->codec);
    }
    plane->codec.dense_bytes =
        plane->codec.group * plane->codec.n_groups * (p->type == SYI_FLOAT_F32 ? 4 : 2);
}
