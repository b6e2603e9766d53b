/*
 * kv_scatter: dense rows into the slots of paged caches.
 */
#include "kv.h"

#include "oracle/kv_scatter.h"

/* Distinct slots, mostly one after the other; with SKIP some are dropped. */
static void fill_slots(struct call *c, struct operand *slots, int64_t rows, bool skip)
{
    struct stream *const s = case_stream(c, "slots");
    bool *const taken = case_memory(c, (size_t)rows * sizeof *taken);
    int64_t next = 0;
    for (int64_t i = 0; i < case_count(slots); i++) {
        next = stream_chance(s, 9) ? stream_below(s, rows) : (next + 1) % rows;
        while (taken[next])
            next = (next + 1) % rows;
        taken[next] = true;
        case_put(slots, i, skip && stream_chance(s, 6) ? -1 : next);
    }
}

static void make(struct call *c)
{
    static const char *const planted[] = {"slots", NULL};
    sy_kv_scatter_args *const a = case_args(c);
    struct kv_caches *const k = kv_make_caches(c, "src");
    const int64_t most = case_size(c, "tokens", 0, 40, 300), n = most < k->rows ? most : k->rows;
    int64_t lead[3];
    const int rank = kv_shape(c, n, lead);
    bool by_block = false, paged = false;
    KV_TAKE(a, k);
    case_any_scalar(c, "pad");
    case_any_scalar(c, "check_unique");
    struct operand *const slots = case_in_as(c, "slots", (DLDataType){0}, rank, lead);
    fill_slots(c, slots, k->rows, a->pad == SY_PAD_SKIP);
    kv_plant(c, planted, k->rows, n > 0 ? case_get(slots, n / 2) : 0);
    const int64_t *const all = case_wide(c, "slots");
    if (oracle_kv_scatter(n, all, k->rows, a->pad == SY_PAD_SKIP, true).code == SCATTER_DUPLICATE)
        a->check_unique = true; /* the result is unspecified otherwise */
    for (int i = 0; i < k->n_planes; i++) {
        const struct kv_plane *const p = &k->plane[i];
        by_block = by_block || (p->format != NULL && p->format->scales == SY_SCALES_BLOCK);
        paged = paged || p->cache->rank > 2;
    }
    a->block_size = by_block || case_flag(c, "block_size") ? k->block_size : 0;
    case_note(c, "blocks of the caches", a->block_size == 0 && paged);
    kv_make_rows(c, k, "src", rank, lead);
}

static void oracle(struct call *c)
{
    const sy_kv_scatter_args *const a = case_args(c);
    const struct kv_caches *const k = c->own;
    const int64_t n = case_count(case_field(c, "slots")), *const slots = case_wide(c, "slots");
    const struct scatter_fault f =
        oracle_kv_scatter(n, slots, k->rows, a->pad == SY_PAD_SKIP, a->check_unique);
    kv_note(c, k);
    c->query.rows = n;
    if (n == 0 || !kv_check_globals(c, k))
        return;
    case_note(c, "slot outside", f.code == SCATTER_SLOT);
    case_note(c, "slot twice", f.code == SCATTER_DUPLICATE);
    if (f.code != SCATTER_FINE) {
        c->want = (sy_fault){SY_ERR_INDEX, f.code == SCATTER_SLOT ? SY_FAULT_SLOT_RANGE : SY_FAULT_DUPLICATE,
                             "slots",      -1,
                             f.position,   f.value,
                             f.limit};
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        case_note(c, "dropped", slots[i] < 0);
        if (slots[i] >= 0)
            kv_write(k, slots[i], i);
    }
}

static void rows_past_2_63(struct call *c)
{
    struct operand *const cache = case_field(c, "cache");
    cache->now_shape[0] = INT64_C(1) << 62;
    memcpy(cache->now_strides, (const int64_t[]){0, 7, 1}, 3 * sizeof *cache->now_strides);
    cache->t.strides = cache->now_strides;
}

static void uneven_slots(struct call *c)
{
    struct operand *const slots = case_field(c, "slots"), *const src = case_field(c, "src");
    memcpy(slots->now_shape, (const int64_t[]){2, 2, 2}, 3 * sizeof *slots->now_shape);
    memcpy(slots->now_strides, (const int64_t[]){7, 2, 1}, 3 * sizeof *slots->now_strides);
    memcpy(src->now_shape, (const int64_t[]){2, 2, 2, 7}, 4 * sizeof *src->now_shape);
    slots->t.ndim = 3;
    slots->t.strides = slots->now_strides;
    src->t.ndim = 4;
}

static void no_format(struct call *c)
{
    ((sy_kv_scatter_args *)case_args(c))->format = NULL;
}

#define FLAT "f32 flat S=4 blocks=6 D=7 tokens=10"
#define WITH_HEADS "bf16 hnd kind=2 S=4 blocks=6 H=4 D=5 tokens=7"
#define PLANES "f32 kind=1 S=4 blocks=6 D=7 tokens=10 planes=2"
#define BLOCKS "ds4_fp8 S=2 blocks=3 tokens=4"
#define SCALES "int8 flat S=2 blocks=3 D=6 tokens=4 parts=1"
#define FP4 "nvfp4 flat S=2 blocks=3 D=16 tokens=4"

static const struct rejection rejections[] = {
    {"src of rank 3", BAD_RANK("src", 3, "[10,7,1]", "[10,7]"), .inputs = true},
    {"slots of rank 2", BAD_RANK("slots", 2, NULL, "[10,1,7]"), .blame = "src", .inputs = true},
    {"src one row short", BAD_EXTENT("src", 0, 9, "[9,7]", "[10,7]"), .inputs = true},
    {"src one row long", BAD_EXTENT("src", 0, 11, "[11,7]", "[10,7]"), .inputs = true},
    {"src one column long", BAD_EXTENT("src", 1, 8, "[10,8]", "[10,7]"), .inputs = true},
    {"rows without bytes", BAD_EXTENT("cache", 2, 0, "extent 0 in dimension 2", NULL), .inputs = true},
    {"rows that overlap", BAD_STRIDE("cache", 1, 6, "row stride 6", "7"), .inputs = true},
    {"blocks that overlap", BAD_STRIDE("cache", 0, 27, "block stride 27", "28"), .inputs = true},
    {"elements apart", BAD_STRIDE("cache", 2, 2, "2", "contiguous"), .inputs = true},
    {"slots in uneven rows", BAD_CALL(uneven_slots, SY_ERR_STRIDE, "slots", "[7,2,1]", NULL), .inputs = true},
    {"2^65 rows", BAD_CALL(rows_past_2_63, SY_ERR_OVERFLOW, "cache|block_size", NULL, NULL), .inputs = true},
    {"2^32 slots", BAD_SIZE("slots", 0, INT64_C(1) << 32, SY_ERR_OVERFLOW, "4294967296", "2^32"),
     .second = {.kind = SPOIL_EXTENT, .field = "src", .value = INT64_C(1) << 32}, .inputs = true},
    {"block_size -2", BAD_SCALAR("block_size", -2, SY_ERR_VALUE, NULL, "-2", "0 or more"), .inputs = true},
    {"blocks of 3", BAD_SCALAR("block_size", 3, SY_ERR_SHAPE, "cache", "blocks of 4 rows", "3"),
     .inputs = true},
    {"layout 2", BAD_SCALAR("layout", 2, SY_ERR_VALUE, NULL, "2", "NHD, HND"), .inputs = true},
    {"flat rows that overlap", BAD_STRIDE("cache", 0, 6, "row stride 6", "7"), .inputs = true, .line = FLAT},
    {"flat elements apart", BAD_STRIDE("cache", 1, 2, "2", "contiguous"), .inputs = true, .line = FLAT},
    {"2^64 bytes", BAD_SIZE("cache", 0, INT64_C(1) << 60, SY_ERR_OVERFLOW, NULL, NULL), .inputs = true,
     .line = FLAT},

    {"heads outside rows of rank 2", BAD_RANK("cache", 2, "rank 2", "3 or more"), .inputs = true,
     .line = WITH_HEADS},
    {"a head less in src", BAD_EXTENT("src", 1, 3, "[7,3,5]", "[7,4,5]"), .inputs = true, .line = WITH_HEADS},
    {"heads that overlap", BAD_STRIDE("cache", 1, 19, "head stride 19", "20"), .inputs = true,
     .line = WITH_HEADS},

    {"no array of planes", BAD_SCALAR("num_planes", 1, SY_ERR_VALUE, "plane_bytes", "0", "40"),
     .second = {.kind = SPOIL_SCALAR, .field = "plane_bytes", .value = 0}, .inputs = true},
    {"256 planes", BAD_SCALAR("num_planes", 256, SY_ERR_VALUE, NULL, "256", "255"), .inputs = true},
    {"-1 planes", BAD_SCALAR("num_planes", -1, SY_ERR_VALUE, NULL, "-1", "255"), .inputs = true},
    {"no cache of a plane", NO_TENSOR("cache.1"), .blame = "cache", .found = "cache of plane 1 is missing",
     .inputs = true, .line = PLANES},
    {"blocks of another size", BAD_EXTENT("cache.2", 1, 3, "cache of plane 2 has blocks of 3", "4"),
     .blame = "cache", .inputs = true, .line = PLANES},
    {"a block more", BAD_EXTENT("cache.1", 0, 7, "cache of plane 1 has 28 rows", "24"), .blame = "cache",
     .inputs = true, .line = PLANES},
    {"a column more", BAD_EXTENT("src.1", 1, 8, "src of plane 1 has shape [10,8]", "[10,7]"), .blame = "src",
     .inputs = true, .line = PLANES},
    {"rows of a plane that overlap", BAD_STRIDE("cache.1", 1, 6, "cache of plane 1 has row stride 6", "7"),
     .blame = "cache", .inputs = true, .line = PLANES},

    {"no block size", BAD_SCALAR("block_size", 0, SY_ERR_VALUE, NULL, "0", "cannot be derived"),
     .code = SY_FAULT_BAD_BLOCK_SIZE, .inputs = true, .line = BLOCKS},
    {"src of packed rows", BAD_EXTENT("src", 1, 576, "[4,576]", "[4,512]"), .inputs = true, .line = BLOCKS},
    {"blocks too short", BAD_EXTENT("cache", 1, 1167, "blocks of 1167 bytes", "2 rows of 584"),
     .inputs = true, .line = BLOCKS},
    {"no scale to write", NO_TENSOR("scale"), .found = "is missing", .inputs = true, .line = SCALES},
    {"a scale for half a row", BAD_EXTENT("scale", 0, 4, "4 for a row", "6 elements"), .inputs = true,
     .line = SCALES},
    {"a scale row too few", BAD_EXTENT("scale", 0, 5, "[5,1]", "[6,1]"), .inputs = true,
     .line = SCALES " scale_rank=1"},
    {"a scale without a format", BAD_CALL(no_format, SY_ERR_DTYPE, "src", "f32", "i8"), .inputs = true,
     .line = SCALES},
    {"scales of bytes", BAD_TYPE("scale", 1, 8, 1), .found = "u8", .wanted = "f32", .inputs = true,
     .line = SCALES},
    {"groups of 32", BAD_FORMAT(group, 32, "q_type f4_e2m1", "as sy_kv_format_named sets"), .line = FP4},
    {"nvfp4 inline", BAD_FORMAT(scales, SY_SCALES_INLINE, "q_type f4_e2m1", "nvfp4_amax"), .line = FP4},
    {"global_is 2", BAD_FORMAT(global_is, 2, "q_type f4_e2m1", "nvfp4_amax"), .line = FP4},
    {"no scale of nvfp4", NO_TENSOR("scale"), .found = "is missing", .inputs = true, .line = FP4},
    {"no global scale", NO_TENSOR("global_scale"), .inputs = true, .line = FP4},
    {"two global scales", BAD_EXTENT("global_scale", 0, 2, "[2]", "[1]"), .inputs = true, .line = FP4},
    {"nvfp4 of i8", BAD_TYPE("cache", 0, 8, 1), .found = "i8", .wanted = "u8", .inputs = true, .line = FP4},
    {"three scales of nvfp4", BAD_EXTENT("scale", 1, 3, "3 for a row", "rank 2 or 3 and 2"), .line = FP4},
    {"nvfp4 scales of more rows", BAD_EXTENT("scale", 0, 7, "[7,2]", "[6,2]"), .line = FP4},
    {"src as wide as the cache", BAD_EXTENT("src", 1, 16, "[4,16]", "[4,32]"), .inputs = true, .line = FP4},
    {.name = NULL},
};

/* Shapes of inputs and sizes among the phases that the engine pairs. */
static const struct rejection ladder[] = {
    {"rank", BAD_RANK("slots", 0, NULL, NULL), .line = FLAT},
    {"input shape", BAD_EXTENT("src", 1, 6, NULL, NULL), .line = FLAT},
    {"value", BAD_SCALAR("pad", SY_PAD_ZERO, SY_ERR_VALUE, NULL, NULL, NULL), .line = FLAT},
    {"overflow", BAD_SIZE("cache", 0, INT64_C(1) << 60, SY_ERR_OVERFLOW, NULL, NULL), .line = FLAT},
    {"stride", BAD_STRIDE("cache", 0, 6, NULL, NULL), .line = FLAT},
    {"device", BAD_DEVICE("slots", 8), .line = FLAT},
    {"alias", BAD_OVER("src", "cache", 0), .line = FLAT},
    {"contents", BAD_NUMBER("slots", 7, 24, SY_ERR_INDEX, NULL, NULL), .line = FLAT},
    {.name = NULL},
};

const struct op_case case_kv_scatter = {
    .name = "kv_scatter",
    .make = make,
    .oracle = oracle,
    .hard = {KV_NOTES, "slot outside", "slot twice", "dropped", "blocks of the caches"},
    .small = "f32 kind=1 S=4 blocks=6 D=7 tokens=10 check_unique",
    .shapes = {"flat S=16 blocks=20 tokens=200 D=577 bf16 check_unique",
               "ds32_fp8 kind=1 S=16 blocks=20 tokens=300", "ds4_fp8 S=16 blocks=20 tokens=300",
               "nvfp4 kind=1 S=16 blocks=20 tokens=300 D=64"},
    .lines = {"flat S=16 blocks=200 tokens=2000 D=577 bf16 check_unique",
              "kind=1 S=16 blocks=200 tokens=2000 D=1152 u8 pad=skip check_unique",
              "kind=1 S=16 blocks=600 tokens=9000 D=64 u8 check_unique faults=2",
              "flat S=16 blocks=3 tokens=40 D=30000 u8",
              "hnd kind=2 S=20 blocks=300 tokens=4001 H=5 D=9 planes=1",
              "kind=1 S=16 blocks=400 tokens=6000 D=40 planes=3 pad=skip",
              "ds32_fp8 kind=1 S=16 blocks=60 tokens=900 pad=skip",
              "nvfp4 hnd kind=2 S=8 blocks=60 tokens=400 H=4 D=64"},
    .rejections = rejections,
    .ladder = ladder,
    .unchecked = " layout ",
    .calls = 400,
};
