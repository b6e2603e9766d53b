/*
 * kv_gather: the rows of selected tokens out of paged caches.
 */
#include "kv.h"

static void make(struct call *c)
{
    static const char *const planted[] = {"indices", "indices",       "block_table", "page_indices", "indptr",
                                          "req_id",  "last_page_len", "counts",      "seq_lens",     NULL};
    sy_kv_gather_args *const a = case_args(c);
    struct kv_caches *const k = kv_make_caches(c, "out");
    const int64_t b = case_size(c, "B", 0, 4, 20), n = case_size(c, "k", 0, 12, 60);
    KV_TAKE(a, k);
    case_any_scalar(c, "pad");
    a->block_size = k->block_size;
    kv_make_pages(c, b, n, k->block_size, k->rows, a->pad);
    kv_plant(c, planted, k->rows / k->block_size, n);
    const struct operand *const indices = case_field(c, "indices");
    kv_make_rows(c, k, "out", indices->rank, indices->shape);
}

static void oracle(struct call *c)
{
    const sy_kv_gather_args *const a = case_args(c);
    const struct kv_caches *const k = c->own;
    const struct gather_case in = kv_find_pages(c, k->block_size, k->rows, a->pad);
    const int64_t n = c->query.rows = in.batch * in.k;
    int64_t *const slots = case_memory(c, (size_t)n * sizeof *slots);
    const struct gather_fault f = oracle_kv_gather(&in, slots);
    kv_note(c, k);
    if (n == 0 || !kv_check_globals(c, k) || !kv_expect(c, &f))
        return;
    for (int64_t i = 0; i < n; i++)
        if (slots[i] >= 0)
            kv_read(k, slots[i], i);
        else if (a->pad != SY_PAD_SKIP)
            kv_clear(k, i);
}

static void uneven_indices(struct call *c)
{
    struct operand *const x = case_field(c, "indices"), *const out = case_field(c, "out");
    memcpy(x->now_shape, (const int64_t[]){2, 2, 2}, 3 * sizeof *x->now_shape);
    memcpy(x->now_strides, (const int64_t[]){7, 2, 1}, 3 * sizeof *x->now_strides);
    memcpy(out->now_shape, (const int64_t[]){2, 2, 2, 7}, 4 * sizeof *out->now_shape);
    x->t.ndim = 3;
    x->t.strides = x->now_strides;
    out->t.ndim = 4;
    case_field(c, "req_id")->now_shape[0] = case_field(c, "counts")->now_shape[0] =
        case_field(c, "seq_lens")->now_shape[0] = 4;
}

static void positions_past_2_32(struct call *c)
{
    static const char *const fields[] = {"indices", "req_id", "counts", "seq_lens"};
    for (int i = 0; i < 4; i++)
        case_field(c, fields[i])->now_shape[0] = 65536;
    case_field(c, "indices")->now_shape[1] = 65536;
}

/* 2^62 + 1 rows of one byte are two blocks of 2^62 rows, and those end at 2^63. */
static void rows_past_2_63(struct call *c)
{
    struct operand *const cache = case_field(c, "cache");
    case_field(c, "block_table")->now_shape[1] = 0;
    cache->t.dtype = case_field(c, "out")->t.dtype = SY_I8;
    memcpy(cache->now_shape, (const int64_t[]){(INT64_C(1) << 62) + 1, 1}, 2 * sizeof *cache->now_shape);
    cache->t.ndim = 2;
    ((sy_kv_gather_args *)case_args(c))->block_size = INT64_C(1) << 62;
}

/* Rows inside heads inside blocks as strides say it, and 3 elements between two rows: the next head begins there. */
static void heads_in_rows(struct call *c)
{
    struct operand *const cache = case_field(c, "cache");
    memcpy(cache->now_strides, (const int64_t[]){60, 7, 18, 1}, 4 * sizeof *cache->now_strides);
    cache->t.strides = cache->now_strides;
}

static void rows_in_pieces(struct call *c)
{
    struct operand *const cache = case_field(c, "cache");
    memcpy(cache->now_shape, (const int64_t[]){3, 2, 2, 328}, 4 * sizeof *cache->now_shape);
    memcpy(cache->now_strides, (const int64_t[]){2000, 700, 330, 1}, 4 * sizeof *cache->now_strides);
    cache->t.ndim = 4;
    cache->t.strides = cache->now_strides;
}

static void no_planes(struct call *c)
{
    ((sy_kv_gather_args *)case_args(c))->planes = NULL;
}

static void no_format(struct call *c)
{
    ((sy_kv_gather_args *)case_args(c))->format = NULL;
}

/* One with a field that this library does not have. */
static void newer_format(struct call *c)
{
    static struct {
        sy_kv_format known;
        int32_t later[2];
    } newer;
    sy_kv_gather_args *const a = case_args(c);
    newer.known = *a->format;
    newer.known.bytes = sizeof newer;
    newer.later[1] = 1;
    a->format = &newer.known;
}

#define LINE "f32 S=4 blocks=6 D=7 B=3 k=5 n=8 R=2 req_id counts seq_lens pad=skip"
#define WITH_HEADS "bf16 hnd kind=2 S=4 blocks=6 H=3 D=5 B=2 k=7 n=3"
#define PLANES "f32 kind=1 S=4 blocks=6 D=7 B=2 k=5 n=3 planes=2"
#define ROWS "ds32_fp8 kind=1 S=2 blocks=3 B=1 k=4 n=3"
#define BLOCKS "indexer_fp8 S=2 blocks=3 B=1 k=4 n=3"
#define SCALES "int8 kind=2 S=2 blocks=3 H=2 D=6 B=1 k=4 n=3 parts=3 scale_rank=2"

static const struct rejection rejections[] = {
    KV_PAGE_REJECTIONS,
    {"indices in uneven rows", BAD_CALL(uneven_indices, SY_ERR_STRIDE, "indices", "[7,2,1]", NULL),
     .inputs = true},
    {"rows without bytes", BAD_EXTENT("cache", 2, 0, "extent 0 in dimension 2", NULL), .inputs = true,
     .line = LINE " kind=1"},
    {"out one row short", BAD_EXTENT("out", 1, 4, "[3,4,7]", "[3,5,7]")},
    {"blocks of 3", BAD_SCALAR("block_size", 3, SY_ERR_SHAPE, "cache", "blocks of 4 rows", "3"),
     .inputs = true, .line = LINE " kind=1"},
    {"rows that overlap", BAD_STRIDE("cache", 1, 6, "row stride 6", "7"), .inputs = true,
     .line = LINE " kind=1"},
    {"blocks that overlap", BAD_STRIDE("cache", 0, 27, "block stride 27", "28"), .inputs = true,
     .line = LINE " kind=1"},
    {"elements apart", BAD_STRIDE("cache", 2, 2, "2", "contiguous"), .inputs = true, .line = LINE " kind=1"},
    {"flat rows that overlap", BAD_STRIDE("cache", 0, 6, "row stride 6", "7"), .inputs = true},
    {"flat elements apart", BAD_STRIDE("cache", 1, 2, "2", "contiguous"), .inputs = true},
    {"a stride of -2^63", BAD_STRIDE("cache", 0, INT64_MIN, "-9223372036854775808", "7"), .inputs = true},
    {"2^64 bytes", BAD_SIZE("cache", 0, INT64_C(1) << 60, SY_ERR_OVERFLOW, NULL, NULL), .inputs = true},
    {"2^32 positions", BAD_CALL(positions_past_2_32, SY_ERR_OVERFLOW, "indices", NULL, NULL), .inputs = true},
    {"2^63 rows", BAD_CALL(rows_past_2_63, SY_ERR_OVERFLOW, "cache|block_size", NULL, NULL), .inputs = true},

    {"layout 2", BAD_SCALAR("layout", 2, SY_ERR_VALUE, NULL, "2", "NHD, HND"), .inputs = true},
    {"no heads", BAD_EXTENT("cache", 1, 0, "extent 0 in dimension 1", NULL), .inputs = true,
     .line = WITH_HEADS},
    {"heads without elements", BAD_EXTENT("cache", 3, 0, "extent 0 in dimension 3", NULL), .inputs = true,
     .line = WITH_HEADS},
    {"blocks of another size", BAD_EXTENT("cache", 2, 3, "blocks of 3 rows", "4"), .inputs = true,
     .line = WITH_HEADS},
    {"elements of heads apart", BAD_STRIDE("cache", 3, 2, NULL, "contiguous"), .inputs = true,
     .line = WITH_HEADS},
    {"rows of heads that overlap", BAD_STRIDE("cache", 2, 4, "row stride 4", "5"), .inputs = true,
     .line = WITH_HEADS},
    {"heads that overlap", BAD_STRIDE("cache", 1, 19, "head stride 19", "20"), .inputs = true,
     .line = WITH_HEADS},
    {"heads upon each other", BAD_STRIDE("cache", 1, 0, "head stride 0", "5"), .inputs = true,
     .line = WITH_HEADS},
    {"heads backwards", BAD_STRIDE("cache", 1, -20, "head stride -20", "5"), .inputs = true,
     .line = WITH_HEADS},
    {"blocks of heads that overlap", BAD_STRIDE("cache", 0, 59, "block stride 59", "60"), .inputs = true,
     .line = WITH_HEADS},
    {"rows that begin in the last head",
     BAD_CALL(heads_in_rows, SY_ERR_STRIDE, "cache", "row stride 18", "19"), .inputs = true,
     .line = WITH_HEADS},

    {"no array of planes", BAD_CALL(no_planes, SY_ERR_NULL, "planes", "2", NULL), .inputs = true,
     .line = PLANES},
    {"-1 planes", BAD_SCALAR("num_planes", -1, SY_ERR_VALUE, NULL, "-1", "255"), .inputs = true},
    {"256 planes", BAD_SCALAR("num_planes", 256, SY_ERR_VALUE, NULL, "256", "255"), .inputs = true},
    {"planes without a size",
     BAD_SCALAR("plane_bytes", 0, SY_ERR_VALUE, NULL, "0", "sizeof(sy_kv_plane), 40"), .inputs = true,
     .line = PLANES},
    {"planes of any size", BAD_SCALAR("plane_bytes", -1, SY_ERR_VALUE, NULL, NULL, "40"), .inputs = true,
     .line = PLANES},
    {"no cache of a plane", NO_TENSOR("cache.2"), .blame = "cache", .found = "cache of plane 2 is missing",
     .inputs = true, .line = PLANES},
    {"rows of a plane without bytes", BAD_EXTENT("cache.1", 2, 0, "plane 1", NULL), .blame = "cache",
     .inputs = true, .line = PLANES},
    {"blocks of another size in a plane",
     BAD_EXTENT("cache.1", 1, 3, "cache of plane 1 has blocks of 3", "4"), .blame = "cache", .inputs = true,
     .line = PLANES},
    {"a block less in a plane", BAD_EXTENT("cache.2", 0, 5, "cache of plane 2 has 20 rows", "24"),
     .blame = "cache", .inputs = true, .line = PLANES},
    {"2^64 rows of a plane", BAD_SIZE("cache.1", 0, INT64_C(1) << 62, SY_ERR_OVERFLOW, NULL, NULL),
     .blame = "cache|block_size", .inputs = true, .line = PLANES},
    {"rows of a plane that overlap", BAD_STRIDE("cache.1", 1, 6, "cache of plane 1 has row stride 6", "7"),
     .blame = "cache", .inputs = true, .line = PLANES},
    {"blocks of a plane that overlap",
     BAD_STRIDE("cache.2", 0, 27, "cache of plane 2 has block stride 27", "28"), .blame = "cache",
     .inputs = true, .line = PLANES},

    {"codes of f32", BAD_FORMAT(q_type, 0x12002, "q_type f32", "f8_e4m3, f8_e5m2 or i8"), .line = ROWS},
    {"codes of no type", BAD_FORMAT(q_type, 0, "q_type", "f8_e4m3, f8_e5m2 or i8"), .line = ROWS},
    {"scales of bf16", BAD_FORMAT(scale_type, 0x11004, "scale_type bf16", "f32 or f8_e8m0"), .line = ROWS},
    {"scales nowhere", BAD_FORMAT(scales, 4, "scales 4", "TENSOR, ROW, BLOCK, INLINE"), .line = ROWS},
    {"scales inline with a rope part", BAD_FORMAT(scales, SY_SCALES_INLINE, "scales inline", "q8_0 or q4_0"),
     .line = ROWS},
    {"a format of quantize_rows",
     BAD_FORMAT(scale_math, SY_SCALE_MATH_DIV, "scale_math", "a format of caches"), .line = ROWS},
    {"rows of no bytes", BAD_FORMAT(row_bytes, 0, "row_bytes 0", "1 or more"), .line = ROWS},
    {"no codes", BAD_FORMAT(q_count, 0, "q_count 0", "1 or more"), .line = ROWS},
    {"less than no codes", BAD_FORMAT(q_count, -128, "q_count -128", "1 or more"), .line = ROWS},
    {"codes past the row", BAD_FORMAT(q_count, 1024, "codes in bytes 0 to 1024", "0 to 656"), .line = ROWS},
    {"codes before the row", BAD_FORMAT(q_off, -1, "codes in bytes -1 to 511", "0 to 656"), .line = ROWS},
    {"codes upon scales", BAD_FORMAT(q_off, 2, "scales in bytes 512 to 528", "apart from codes"),
     .line = ROWS},
    {"an offset that wraps",
     BAD_FORMAT(q_off, INT32_MAX, "codes in bytes 2147483647 to 2147484159", "0 to 656"), .line = ROWS},
    {"groups of none", BAD_FORMAT(group, 0, "group 0", "a divisor of q_count"), .line = ROWS},
    {"groups of three", BAD_FORMAT(group, 3, "group 3", "a divisor of q_count"), .line = ROWS},
    {"groups of less", BAD_FORMAT(group, -4, "group -4", "a divisor of q_count"), .line = ROWS},
    {"scales past the row", BAD_FORMAT(scale_off, 650, "scales in bytes 650 to 666", "0 to 656"),
     .line = ROWS},
    {"scales upon rope", BAD_FORMAT(scale_off, 520, "scales in bytes 520 to 536", "apart from rope"),
     .line = ROWS},
    {"a record in the row", BAD_FORMAT(scale_bytes, 4, "scale_bytes 4", "0"), .line = ROWS},
    {"half a rope number", BAD_FORMAT(rope_bytes, 3, "rope_bytes 3", "even"), .line = ROWS},
    {"rope past the row", BAD_FORMAT(rope_bytes, 130, "rope in bytes 528 to 658", "0 to 656"), .line = ROWS},
    {"less than no rope", BAD_FORMAT(rope_bytes, -2, "rope in bytes 528 to 526", "0 to 656"), .line = ROWS},
    {"rope upon codes", BAD_FORMAT(rope_off, 500, "rope in bytes 500 to 628", "apart from codes"),
     .line = ROWS},
    {"a format without its size", BAD_FORMAT(bytes, 0, "bytes 0", "sizeof(sy_kv_format), 80"), .line = ROWS},
    {"a format of any size", BAD_FORMAT(bytes, -1, "bytes 4294967295", "80"), .line = ROWS},
    {"a newer format", BAD_CALL(newer_format, SY_ERR_UNSUPPORTED, "format", "byte 84", "at most 80 bytes"),
     .inputs = true, .line = ROWS},
    {"packed rows too short", BAD_EXTENT("cache", 2, 655, "655 bytes", "at least 656"), .inputs = true,
     .line = ROWS},
    {"a packed cache without a shape", .spoil = {.kind = SPOIL_NO_SHAPE, .field = "cache"},
     .want = SY_ERR_NULL, .found = "no shape", .inputs = true,
     .line = "q8_0 kind=1 S=2 blocks=3 D=20 B=1 k=4 n=3"},
    {"packed rows in pieces",
     BAD_CALL(rows_in_pieces, SY_ERR_STRIDE, "cache", "heads of a row apart", "in one piece"), .inputs = true,
     .line = ROWS},

    {"no scale record", BAD_FORMAT(scale_bytes, 0, "scale_bytes 0", "1 or more"), .line = BLOCKS},
    {"a scale record too short", BAD_FORMAT(scale_bytes, 3, "scales in bytes 0 to 4", "0 to 3"),
     .line = BLOCKS},
    {"blocks too short", BAD_EXTENT("cache", 1, 263, "blocks of 263 bytes", "2 rows of 132"), .inputs = true,
     .line = BLOCKS},
    {"more rows than a block has",
     BAD_SCALAR("block_size", 5, SY_ERR_SHAPE, "cache", "blocks of 264 bytes", "5 rows"), .inputs = true,
     .line = BLOCKS},
    {"2^63 rows of a block",
     BAD_SCALAR("block_size", INT64_MAX, SY_ERR_SHAPE, "cache", "264 bytes", "at least"), .inputs = true,
     .line = BLOCKS},
    {"packed blocks that overlap", BAD_STRIDE("cache", 0, 263, "block stride 263", "264"), .inputs = true,
     .line = BLOCKS},
    {"bytes apart", BAD_STRIDE("cache", 1, 2, NULL, "contiguous"), .inputs = true, .line = BLOCKS},
    {"blocks of nothing", BAD_EXTENT("cache", 1, 0, "extent 0", NULL), .inputs = true, .line = BLOCKS},

    {"q_count beside a tensor", BAD_FORMAT(q_count, 8, "q_count 8", "0"), .line = SCALES},
    {"rope beside a tensor", BAD_FORMAT(rope_bytes, 2, "rope_bytes 2", "0"), .line = SCALES},
    {"a global scale beside a tensor", BAD_FORMAT(global_is, SY_GLOBAL_AMAX, "global_is set", "0"),
     .line = SCALES},
    {"no scale", NO_TENSOR("scale"), .found = "is missing", .inputs = true, .line = SCALES},
    {"scale of bytes", BAD_TYPE("scale", 1, 8, 1), .found = "u8", .wanted = "f32", .inputs = true,
     .line = SCALES},
    {"scale without a format", BAD_CALL(no_format, SY_ERR_DTYPE, "out", "f32", "i8"), .line = SCALES},
    {"five scales", BAD_EXTENT("scale", 2, 5, "5 for a row", "12 elements and 2 heads"), .inputs = true,
     .line = SCALES},
    {"three scales", BAD_EXTENT("scale", 2, 3, "3 for a row", "2 heads"), .inputs = true, .line = SCALES},
    {"no scales", BAD_EXTENT("scale", 2, 0, "0 for a row", "2 heads"), .inputs = true, .line = SCALES},
    {"scales of more blocks", BAD_EXTENT("scale", 0, 4, "[4,2,4]", "[3,2,4]"), .inputs = true,
     .line = SCALES},
    {"scales of more rows", BAD_EXTENT("scale", 1, 3, "[3,3,4]", "[3,2,4]"), .inputs = true, .line = SCALES},
    {"scales backwards", BAD_STRIDE("scale", 1, -4, NULL, NULL), .inputs = true, .line = SCALES},
    {.name = NULL},
};

/* Shapes of inputs and sizes among the phases that the engine pairs. */
static const struct rejection ladder[] = {
    {"input shape", BAD_EXTENT("req_id", 0, 2, NULL, NULL)},
    {"value", BAD_SCALAR("pad", 3, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"overflow", BAD_SCALAR("block_size", INT64_C(1) << 61, SY_ERR_OVERFLOW, "block_table", NULL, NULL)},
    {"output shape", BAD_EXTENT("out", 2, 6, NULL, NULL)},
    {"stride", BAD_STRIDE("cache", 0, 6, NULL, NULL)},
    {.name = NULL},
};

const struct op_case case_kv_gather = {
    .name = "kv_gather",
    .make = make,
    .oracle = oracle,
    .hard = {KV_NOTES, KV_FAULTS, KV_PAGES},
    .small = LINE " flat",
    .shapes = {"bf16 flat B=3 k=700 D=33 n=50 S=16 blocks=40 counts pad=zero",
               "f32 kind=1 B=2 k=900 D=8 n=40 S=16 blocks=100 planes=2 pad=skip",
               "u8 kind=1 B=2 k=50 D=16 n=10 S=4 blocks=20 planes=10",
               "ds32_fp8 kind=1 B=2 k=150 n=20 S=16 blocks=20 pad=zero",
               "q8_0 kind=1 B=2 k=150 D=60 n=20 S=16 blocks=20"},
    .lines = {"bf16 flat B=3 k=1500 D=577 n=50 S=16 blocks=40 counts pad=zero",
              "bf16 kind=1 B=7 k=701 D=512 n=50 S=16 blocks=40 pad=skip faults=3",
              "bf16 flat B=2000 k=409 D=3 n=50 S=16 blocks=40 counts",
              "u8 flat B=1 k=8 D=600002 n=50 S=16 blocks=1",
              "f32 hnd kind=2 B=2 k=2000 D=9 H=5 n=90 S=20 blocks=300 planes=1 pad=zero",
              "f32 kind=1 B=2 k=3000 D=40 n=40 S=16 blocks=400 planes=3 pad=skip",
              "ds4_fp8 kind=1 B=2 k=500 n=40 S=16 blocks=40 pad=zero",
              "q4_0 kind=1 B=2 k=500 D=60 n=40 S=16 blocks=40 lists last_page_len"},
    .rejections = rejections,
    .ladder = ladder,
    .unchecked = " layout ",
    .calls = 600,
};
