/*
 * kv_gather and kv_scatter reject packed rows that cannot be: one valid call of each kind, one spoiler per row, the
 * status, the sentence, and unchanged outputs. tests/examples has formats with a name.
 */
#include "support.h"

enum { BLOCKS = 3, SIZE = 2, COUNT = 4, WIDE = 20 };

/* 8 codes at 0, 2 scales at 8, 2 rope numbers at 16. */
static const sy_kv_format row_format = {.bytes = sizeof(sy_kv_format),
                                        .q_type = {10, 8, 1},
                                        .scale_type = {2, 32, 1},
                                        .scales = SY_SCALES_ROW,
                                        .row_bytes = WIDE,
                                        .q_count = 8,
                                        .group = 4,
                                        .scale_off = 8,
                                        .rope_off = 16,
                                        .rope_bytes = 4};
static const sy_kv_format block_format = {.bytes = sizeof(sy_kv_format),
                                          .q_type = {10, 8, 1},
                                          .scale_type = {14, 8, 1},
                                          .scales = SY_SCALES_BLOCK,
                                          .row_bytes = 8,
                                          .q_count = 8,
                                          .group = 4,
                                          .scale_bytes = 3};
static const sy_kv_format tensor_format = {.bytes = sizeof(sy_kv_format), .q_type = {0, 8, 1}};

static sy_kv_format format; /* of the call, to be spoiled */

static void begin_gather(struct test_call *c, const sy_kv_format *f)
{
    sy_kv_gather_args *a = &c->args.gather;
    *c = (struct test_call){.op = "kv_gather"};
    format = *f;
    a->format = &format;
    a->block_size = SIZE;
    memset(test_call_add(c, "indices", &a->indices, SY_I32, 1, (int64_t[]){COUNT})->mem, 0, 4 * COUNT);
    memset(test_call_add(c, "block_table", &a->block_table, SY_I32, 1, (int64_t[]){BLOCKS})->mem, 0,
           4 * BLOCKS);
}

static void make_row(struct test_call *c)
{
    sy_kv_gather_args *a = &c->args.gather;
    begin_gather(c, &row_format);
    test_call_add(c, "cache", &a->cache, SY_U8, 3, (int64_t[]){BLOCKS, SIZE, WIDE});
    c->first_output = c->count;
    test_call_add(c, "out", &a->out, SY_BF16, 2, (int64_t[]){COUNT, 10});
}

static void make_block(struct test_call *c)
{
    sy_kv_gather_args *a = &c->args.gather;
    begin_gather(c, &block_format);
    test_call_add(c, "cache", &a->cache, SY_U8, 2, (int64_t[]){BLOCKS, SIZE * 11});
    c->first_output = c->count;
    test_call_add(c, "out", &a->out, SY_F32, 2, (int64_t[]){COUNT, 8});
}

static void make_tensor(struct test_call *c)
{
    sy_kv_gather_args *a = &c->args.gather;
    begin_gather(c, &tensor_format);
    test_call_add(c, "cache", &a->cache, SY_I8, 4, (int64_t[]){BLOCKS, SIZE, 2, 6});
    test_call_add(c, "scale", &a->scale, SY_F32, 3, (int64_t[]){BLOCKS, SIZE, 4});
    c->first_output = c->count;
    test_call_add(c, "out", &a->out, SY_F16, 3, (int64_t[]){COUNT, 2, 6});
}

static void begin_scatter(struct test_call *c, const sy_kv_format *f)
{
    sy_kv_scatter_args *a = &c->args.scatter;
    *c = (struct test_call){.op = "kv_scatter"};
    format = *f;
    a->format = &format;
    struct tensor *slots = test_call_add(c, "slots", &a->slots, SY_I32, 1, (int64_t[]){COUNT});
    for (int i = 0; i < COUNT; i++)
        memcpy(slots->mem + 4 * i, &(int32_t){i}, 4);
}

/* Inputs as far as a query is concerned. */
static void make_block_scatter(struct test_call *c)
{
    sy_kv_scatter_args *a = &c->args.scatter;
    begin_scatter(c, &block_format);
    a->block_size = SIZE;
    test_call_add(c, "src", &a->src, SY_BF16, 2, (int64_t[]){COUNT, 8});
    test_call_add(c, "cache", &a->cache, SY_U8, 2, (int64_t[]){BLOCKS, SIZE * 11});
    c->first_output = c->count;
}

static void make_tensor_scatter(struct test_call *c)
{
    sy_kv_scatter_args *a = &c->args.scatter;
    begin_scatter(c, &tensor_format);
    test_call_add(c, "src", &a->src, SY_F32, 2, (int64_t[]){COUNT, 6});
    test_call_add(c, "cache", &a->cache, SY_I8, 2, (int64_t[]){BLOCKS * SIZE, 6});
    test_call_add(c, "scale", &a->scale, SY_F32, 2, (int64_t[]){BLOCKS * SIZE, 3});
    c->first_output = c->count;
}

static void make_fp4_scatter(struct test_call *c)
{
    sy_kv_scatter_args *a = &c->args.scatter;
    sy_kv_format named;
    assert_int_equal(sy_kv_format_named("nvfp4", &named), SY_OK);
    begin_scatter(c, &named);
    test_call_add(c, "src", &a->src, SY_F32, 2, (int64_t[]){COUNT, 32});
    struct tensor *global = test_call_add(c, "global_scale", &a->global_scale, SY_F32, 1, (int64_t[]){1});
    memcpy(global->mem, &(float){1}, sizeof(float));
    test_call_add(c, "cache", &a->cache, SY_U8, 2, (int64_t[]){BLOCKS * SIZE, 16});
    test_call_add(c, "scale", &a->scale, SY_F8_E4M3, 2, (int64_t[]){BLOCKS * SIZE, 2});
    c->first_output = c->count;
}

/* ---- Spoilers ---------------------------------------------------------------------------------------- */

SPOILER(no_bytes, format.bytes = 0)
SPOILER(garbage_bytes, format.bytes = SIZE_MAX)
SPOILER(q_f32, format.q_type = SY_F32)
SPOILER(q_none, memset(&format.q_type, 0, sizeof format.q_type))
SPOILER(scale_bf16, format.scale_type = SY_BF16)
SPOILER(scales_4, format.scales = (sy_kv_scales)4)
SPOILER(scales_inline, format.scales = SY_SCALES_INLINE)
SPOILER(of_rows, (format.scale_math = SY_SCALE_MATH_DIV))
SPOILER(row_0, format.row_bytes = 0)
SPOILER(q_0, format.q_count = 0)
SPOILER(q_less, format.q_count = -8)
SPOILER(q_more, format.q_count = 24)
SPOILER(q_before, format.q_off = -1)
SPOILER(q_over_scales, format.q_off = 2)
SPOILER(q_most, (format.q_count = format.group = INT32_MAX, format.q_off = INT32_MAX))
SPOILER(group_0, format.group = 0)
SPOILER(group_3, format.group = 3)
SPOILER(group_less, format.group = -4)
SPOILER(scale_outside, format.scale_off = 13)
SPOILER(scale_on_rope, format.scale_off = 10)
SPOILER(scale_record, format.scale_bytes = 4)
SPOILER(rope_odd, format.rope_bytes = 3)
SPOILER(rope_outside, format.rope_bytes = 6)
SPOILER(rope_less, format.rope_bytes = -2)
SPOILER(rope_on_codes, format.rope_off = 6)
SPOILER(record_0, format.scale_bytes = 0)
SPOILER(record_short, format.scale_bytes = 1)
SPOILER(tensor_q_count, format.q_count = 8)
SPOILER(tensor_rope, format.rope_bytes = 2)
SPOILER(fp4_group, format.group = 32)
SPOILER(fp4_scale, format.scale_type = SY_F32)
SPOILER(fp4_inline, format.scales = SY_SCALES_INLINE)
SPOILER(fp4_global, format.global_is = (sy_global_is)2)
SPOILER(global_of_others, format.global_is = SY_GLOBAL_AMAX)
SPOILER(fp4_no_scale, c->args.scatter.scale = NULL)
SPOILER(no_format, c->args.gather.format = NULL)
SPOILER(scatter_no_format, c->args.scatter.format = NULL)

/* Heads of a packed row with something between them. */
static void in_pieces(struct test_call *c)
{
    struct tensor *cache = test_call_tensor(c, "cache");
    cache->t.ndim = 4;
    memcpy(cache->shape, (int64_t[]){1, 1, 2, WIDE / 2}, 4 * sizeof *cache->shape);
    memcpy(cache->strides, (int64_t[]){50, 50, WIDE / 2 + 1, 1}, 4 * sizeof *cache->strides);
    cache->t.strides = cache->strides;
    c->args.gather.block_size = 1;
}

/* One with a field that this library does not have. */
static void newer_format(struct test_call *c)
{
    static struct {
        sy_kv_format known;
        int32_t later[2];
    } newer;
    newer.known = format;
    newer.known.bytes = sizeof newer;
    newer.later[1] = 1;
    c->args.gather.format = &newer.known;
}

#define BAD_FORMAT(f, text, right) BAD_CALL(f, SY_ERR_VALUE, "format", text, right), .query = true

static const struct rejection row_rows[] = {
    {"codes of f32", BAD_FORMAT(q_f32, "q_type f32", "f8_e4m3, f8_e5m2 or i8")},
    {"codes of no type", BAD_FORMAT(q_none, "q_type", "f8_e4m3, f8_e5m2 or i8")},
    {"scales of bf16", BAD_FORMAT(scale_bf16, "scale_type bf16", "f32 or f8_e8m0")},
    {"scales nowhere", BAD_FORMAT(scales_4, "scales 4", "TENSOR, ROW, BLOCK, INLINE")},
    {"scales inline of a format with a rope part",
     BAD_FORMAT(scales_inline, "scales inline", "q8_0 or q4_0")},
    {"a format of quantize_rows",
     BAD_FORMAT(of_rows, "scale_math, code_math, a_min or global_is", "a format of caches")},
    {"rows of no bytes", BAD_FORMAT(row_0, "row_bytes 0", "1 or more")},
    {"no codes", BAD_FORMAT(q_0, "q_count 0", "1 or more")},
    {"less than no codes", BAD_FORMAT(q_less, "q_count -8", "1 or more")},
    {"codes past the row", BAD_FORMAT(q_more, "codes in bytes 0 to 24", "0 to 20")},
    {"codes before the row", BAD_FORMAT(q_before, "codes in bytes -1 to 7", "0 to 20")},
    {"codes upon scales", BAD_FORMAT(q_over_scales, "scales in bytes 8 to 16", "apart from codes")},
    {"offsets that wrap", BAD_FORMAT(q_most, "codes in bytes 2147483647 to 4294967294", "0 to 20")},
    {"groups of none", BAD_FORMAT(group_0, "group 0", "a divisor of q_count")},
    {"groups of three", BAD_FORMAT(group_3, "group 3", "a divisor of q_count")},
    {"groups of less", BAD_FORMAT(group_less, "group -4", "a divisor of q_count")},
    {"scales past the row", BAD_FORMAT(scale_outside, "scales in bytes 13 to 21", "0 to 20")},
    {"scales upon rope", BAD_FORMAT(scale_on_rope, "scales in bytes 10 to 18", "apart from rope")},
    {"a record in the row", BAD_FORMAT(scale_record, "scale_bytes 4", "0")},
    {"half a rope number", BAD_FORMAT(rope_odd, "rope_bytes 3", "even")},
    {"rope past the row", BAD_FORMAT(rope_outside, "rope in bytes 16 to 22", "0 to 20")},
    {"less than no rope", BAD_FORMAT(rope_less, "rope in bytes 16 to 14", "0 to 20")},
    {"rope upon codes", BAD_FORMAT(rope_on_codes, "rope in bytes 6 to 10", "apart from codes")},
    {"a format without its size", BAD_FORMAT(no_bytes, "bytes 0", "sizeof(sy_kv_format), 80")},
    {"a format of any size", BAD_FORMAT(garbage_bytes, "bytes 18446744073709551615", "80")},
    {"a newer format", BAD_CALL(newer_format, SY_ERR_UNSUPPORTED, "format", "byte 84", "at most 80 bytes"),
     .query = true},
    {"cache of f32", BAD_TYPE("cache", 2, 32, 1), .query = true},
    {"cache of bool", BAD_TYPE("cache", 6, 8, 1), .query = true},
    {"out of codes", BAD_TYPE("out", 1, 8, 1), .found = "u8", .wanted = "f16, f32 or bf16"},
    {"rows too short", BAD_EXTENT("cache", 2, WIDE - 1, "19 bytes", "at least 20"), .query = true},
    {"out as wide as the cache", BAD_EXTENT("out", 1, WIDE, "[4,20]", "[4,10]")},
    {"rows in pieces", BAD_CALL(in_pieces, SY_ERR_STRIDE, "cache", "heads of a row apart", "in one piece"),
     .query = true},
    {"out in the cache", BAD_OVER("out", "cache", 0)},
};

static const struct rejection block_rows[] = {
    {"no scale record", BAD_FORMAT(record_0, "scale_bytes 0", "1 or more")},
    {"a scale record too short", BAD_FORMAT(record_short, "scales in bytes 0 to 2", "0 to 1")},
    {"blocks too short", BAD_EXTENT("cache", 1, 21, "blocks of 21 bytes", "2 rows of 11"), .query = true},
    {"block_size 5", BAD_FIELD("block_size", 5, SY_ERR_SHAPE, "cache", "blocks of 22 bytes", "5 rows"),
     .query = true},
    {"block_size 2^63-1", BAD_FIELD("block_size", INT64_MAX, SY_ERR_SHAPE, "cache", "22 bytes", "at least"),
     .query = true},
    {"blocks that overlap", BAD_STRIDE("cache", 0, 21, "block stride 21", "22"), .query = true},
    {"bytes apart", BAD_STRIDE("cache", 1, 2, NULL, "contiguous"), .query = true},
    {"blocks of nothing", BAD_EXTENT("cache", 1, 0, "extent 0", NULL), .query = true},
};

#define AS_NAMED "as sy_kv_format_named sets nvfp4 or nvfp4_amax"

static const struct rejection fp4_rows[] = {
    {"groups of 32", BAD_FORMAT(fp4_group, "q_type f4_e2m1", AS_NAMED)},
    {"f32 scales of nvfp4", BAD_FORMAT(fp4_scale, "q_type f4_e2m1", AS_NAMED)},
    {"nvfp4 inline", BAD_FORMAT(fp4_inline, "q_type f4_e2m1", AS_NAMED)},
    {"global_is 2", BAD_FORMAT(fp4_global, "q_type f4_e2m1", AS_NAMED)},
    {"nvfp4 without scale", BAD_CALL(fp4_no_scale, SY_ERR_NULL, "scale", "is missing", "a tensor"),
     .query = true},
    {"global_scale of f16", BAD_TYPE("global_scale", 2, 16, 1), .query = true},
    {"global_scale of rank 2", BAD_RANK("global_scale", 2, "rank 2", "1"), .query = true},
    {"two global scales", BAD_EXTENT("global_scale", 0, 2, "[2]", "[1]"), .query = true},
    {"cache of int8", BAD_TYPE("cache", 0, 8, 1), .found = "i8", .wanted = "u8", .query = true},
    {"three scales of nvfp4", BAD_EXTENT("scale", 1, 3, "3 for a row", "rank 2 or 3 and 2")},
    {"scales of more rows", BAD_EXTENT("scale", 0, 7, "[7,2]", "[6,2]")},
    {"src as wide as the cache", BAD_EXTENT("src", 1, 16, "[4,16]", "[4,32]"), .query = true},
};

static const struct rejection tensor_scale_rows[] = {
    {"q_count beside a tensor", BAD_FORMAT(tensor_q_count, "q_count 8", "0")},
    {"rope beside a tensor", BAD_FORMAT(tensor_rope, "rope_bytes 2", "0")},
    {"a global scale beside a tensor", BAD_FORMAT(global_of_others, "global_is set", "0")},
    {"scale of bytes", BAD_TYPE("scale", 1, 8, 1), .found = "u8", .wanted = "f32", .query = true},
    {"scale without a format", BAD_CALL(no_format, SY_ERR_DTYPE, "out", "f16", "i8")},
    {"scale without data", NO_DATA("scale")},
    {"scale of f16", BAD_TYPE("scale", 2, 16, 1), .query = true},
    {"scale of rank 0", BAD_RANK("scale", 0, "rank 0", "1 to 3"), .query = true},
    {"scale of rank 4", BAD_RANK("scale", 4, "rank 4", "1 to 3"), .query = true},
    {"five scales", BAD_EXTENT("scale", 2, 5, "5 for a row", "12 elements and 2 heads"), .query = true},
    {"three scales", BAD_EXTENT("scale", 2, 3, "3 for a row", "2 heads"), .query = true},
    {"no scales", BAD_EXTENT("scale", 2, 0, "0 for a row", "2 heads"), .query = true},
    {"scales of more blocks", BAD_EXTENT("scale", 0, 4, "[4,2,4]", "[3,2,4]"), .query = true},
    {"scales of more rows", BAD_EXTENT("scale", 1, 3, "[3,3,4]", "[3,2,4]"), .query = true},
    {"scales backwards", BAD_STRIDE("scale", 1, -4, NULL, NULL), .query = true},
    {"out in the scales", BAD_OVER("out", "scale", 0)},
};

static const struct rejection scatter_rows[] = {
    {"block_size -2", BAD_FIELD("block_size", -2, SY_ERR_VALUE, NULL, "-2", "0 or more"), .query = true},
    {"src of u8", BAD_TYPE("src", 1, 8, 1), .query = true},
    {"src of packed rows", BAD_EXTENT("src", 1, 11, "[4,11]", "[4,8]"), .query = true},
    {"src in the cache", BAD_OVER("src", "cache", 0)},
};

static const struct rejection scatter_tensor_rows[] = {
    {"no scale to write", NO_TENSOR("scale"), .query = true},
    {"a scale row too few", BAD_EXTENT("scale", 0, 5, "[5,3]", "[6,3]"), .query = true},
    {"scale rows that overlap", BAD_STRIDE("scale", 0, 2, "row stride 2", "3"), .query = true},
    {"scales in the cache", BAD_OVER("scale", "cache", 0)},
    {"scales in src", BAD_OVER("scale", "src", 0)},
    {"a scale without a format", BAD_CALL(scatter_no_format, SY_ERR_DTYPE, "src", "f32", "i8"),
     .query = true},
};

static void calls_that_are_fine(void **state)
{
    (void)state;
    void (*const all[])(struct test_call *) = {make_row, make_block, make_tensor, make_block_scatter,
                                               make_tensor_scatter};
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        test_accepts_pinned(all[i]);
        test_accepts_adjacent(all[i]);
    }
}

int main(void)
{
    struct test_list list = {0};
    test_add_rejections(&list, make_row, row_rows, COUNT_OF(row_rows));
    test_add_rejections(&list, make_block, block_rows, COUNT_OF(block_rows));
    test_add_rejections(&list, make_tensor, tensor_scale_rows, COUNT_OF(tensor_scale_rows));
    test_add_rejections(&list, make_block_scatter, scatter_rows, COUNT_OF(scatter_rows));
    test_add_rejections(&list, make_fp4_scatter, fp4_rows, COUNT_OF(fp4_rows));
    test_add_rejections(&list, make_tensor_scatter, scatter_tensor_rows, COUNT_OF(scatter_tensor_rows));
    test_add(&list, "calls_that_are_fine", calls_that_are_fine, NULL);
    return test_run(&list, "bad_kv_format");
}
