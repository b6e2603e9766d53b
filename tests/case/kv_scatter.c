/*
 * kv_scatter: dense rows into the slots of paged caches.
 */
#include "kv.h"

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

/* Every slot against every earlier one. skip: -1 is dropped; unique: equal slots are a fault. */
static sy_fault first_fault(int64_t n, const int64_t *slots, int64_t rows, bool skip, bool unique)
{
    for (int64_t i = 0; i < n; i++) {
        if (skip && slots[i] == -1)
            continue;
        if (slots[i] < 0 || slots[i] >= rows)
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_SLOT_RANGE, "slots", -1, i, slots[i], rows};
        for (int64_t j = i - 1; unique && j >= 0; j--) /* the nearest earlier one is the one reported */
            if (slots[j] == slots[i])
                return (sy_fault){SY_ERR_INDEX, SY_FAULT_DUPLICATE, "slots", -1, i, slots[i], j};
    }
    return (sy_fault){0};
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
    if (first_fault(n, all, k->rows, a->pad == SY_PAD_SKIP, true).code == SY_FAULT_DUPLICATE)
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
    kv_note(c, k);
    c->query.rows = n;
    if (n == 0 || !kv_check_globals(c, k))
        return;
    c->want = first_fault(n, slots, k->rows, a->pad == SY_PAD_SKIP, a->check_unique);
    case_note(c, "slot outside", c->want.code == SY_FAULT_SLOT_RANGE);
    case_note(c, "slot twice", c->want.code == SY_FAULT_DUPLICATE);
    for (int64_t i = 0; i < n && c->want.status == SY_OK; i++) {
        case_note(c, "dropped", slots[i] < 0);
        if (slots[i] >= 0)
            kv_write(k, slots[i], i);
    }
}

#define FLAT "f32 flat S=4 blocks=6 D=7 tokens=10"
#define WITH_HEADS "bf16 hnd kind=2 S=4 blocks=6 H=4 D=5 tokens=7"
#define PLANES "f32 kind=1 S=4 blocks=6 D=7 tokens=10 planes=2"
#define BLOCKS "ds4_fp8 S=2 blocks=3 tokens=4"
#define SCALES "int8 flat S=2 blocks=3 D=6 tokens=4 parts=1"
#define FP4 "nvfp4 flat S=2 blocks=3 D=16 tokens=4"

static const struct rejection rejections[] = {
    {"src.ndim=3", SY_ERR_SHAPE, "[10,7,1]", "[10,7]"},
    {"slots.ndim=2", SY_ERR_SHAPE, NULL, "[10,1,7]", .blame = "src"},
    {"src.shape[0]=9", SY_ERR_SHAPE, "[9,7]", "[10,7]"},
    {"src.shape[0]=11", SY_ERR_SHAPE, "[11,7]", "[10,7]"},
    {"src.shape[1]=8", SY_ERR_SHAPE, "[10,8]", "[10,7]"},
    {"cache.shape[2]=0", SY_ERR_SHAPE, "extent 0 in dimension 2"},
    {"cache.strides[1]=6", SY_ERR_STRIDE, "row stride 6", "7"},
    {"cache.strides[0]=27", SY_ERR_STRIDE, "block stride 27", "28"},
    {"cache.strides[2]=2", SY_ERR_STRIDE, "2", "contiguous"},
    {"slots.shape=[2,2,2] slots.strides=[7,2,1] src.shape=[2,2,2,7]", SY_ERR_STRIDE, "[7,2,1]"},
    {"cache.shape[0]=2^62 cache.strides=[0,7,1]", SY_ERR_OVERFLOW, .blame = "cache|block_size"},
    {"slots.shape[0]=2^32 src.shape[0]=2^32", SY_ERR_OVERFLOW, "4294967296", "2^32"},
    {"block_size=-2", SY_ERR_VALUE, "-2", "0 or more"},
    {"block_size=3", SY_ERR_SHAPE, "blocks of 4 rows", "3", .blame = "cache"},
    {"layout=2", SY_ERR_VALUE, "2", "NHD, HND"},
    {"cache.strides[0]=6", SY_ERR_STRIDE, "row stride 6", "7", .line = FLAT},
    {"cache.strides[1]=2", SY_ERR_STRIDE, "2", "contiguous", .line = FLAT},
    {"cache.shape[0]=2^60", SY_ERR_OVERFLOW, .line = FLAT},

    {"cache.ndim=2", SY_ERR_SHAPE, "rank 2", "3 or more", .line = WITH_HEADS},
    {"src.shape[1]=3", SY_ERR_SHAPE, "[7,3,5]", "[7,4,5]", .line = WITH_HEADS},
    {"cache.strides[1]=19", SY_ERR_STRIDE, "head stride 19", "20", .line = WITH_HEADS},

    {"num_planes=1 plane_bytes=0", SY_ERR_VALUE, "0", "40", .blame = "plane_bytes"},
    {"num_planes=256", SY_ERR_VALUE, "256", "255"},
    {"num_planes=-1", SY_ERR_VALUE, "-1", "255"},
    {"cache.2.shape[1]=3", SY_ERR_SHAPE, "cache of plane 2 has blocks of 3", "4", .line = PLANES},
    {"cache.1.shape[0]=7", SY_ERR_SHAPE, "cache of plane 1 has 28 rows", "24", .line = PLANES},
    {"src.1.shape[1]=8", SY_ERR_SHAPE, "src of plane 1 has shape [10,8]", "[10,7]", .line = PLANES},
    {"cache.1.strides[1]=6", SY_ERR_STRIDE, "cache of plane 1 has row stride 6", "7", .line = PLANES},

    {"block_size=0", SY_ERR_VALUE, "0", "cannot be derived", .code = SY_FAULT_BAD_BLOCK_SIZE, .line = BLOCKS},
    {"src.shape[1]=576", SY_ERR_SHAPE, "[4,576]", "[4,512]", .line = BLOCKS},
    {"cache.shape[1]=1167", SY_ERR_SHAPE, "blocks of 1167 bytes", "2 rows of 584", .line = BLOCKS},
    {"scale=-", SY_ERR_NULL, "is missing", .line = SCALES},
    {"scale.shape[0]=4", SY_ERR_SHAPE, "4 for a row", "6 elements", .line = SCALES},
    {"scale.shape[0]=5", SY_ERR_SHAPE, "[5,1]", "[6,1]", .line = SCALES " scale_rank=1"},
    {"format=-", SY_ERR_DTYPE, "f32", "i8", .blame = "src", .line = SCALES},
    {"scale.dtype=u8", SY_ERR_DTYPE, "u8", "f32", .line = SCALES},
    {"format.group=32", SY_ERR_VALUE, "q_type f4_e2m1", "as sy_kv_format_named sets", .line = FP4},
    {"format.scales=3", SY_ERR_VALUE, "q_type f4_e2m1", "nvfp4_amax", .line = FP4},
    {"format.global_is=2", SY_ERR_VALUE, "q_type f4_e2m1", "nvfp4_amax", .line = FP4},
    {"scale=-", SY_ERR_NULL, "is missing", .line = FP4},
    {"global_scale=-", SY_ERR_NULL, .line = FP4},
    {"cache.dtype=i8", SY_ERR_DTYPE, "i8", "u8", .line = FP4},
    {"scale.shape[1]=3", SY_ERR_SHAPE, "3 for a row", "rank 2 or 3 and 2", .line = FP4},
    {"scale.shape[0]=7", SY_ERR_SHAPE, "[7,2]", "[6,2]", .line = FP4},
    {"src.shape[1]=16", SY_ERR_SHAPE, "[4,16]", "[4,32]", .line = FP4},
    {.change = NULL},
};

/* Shapes of inputs and sizes among the phases that the engine pairs. */
static const struct rejection ladder[] = {
    {"slots.ndim=0", SY_ERR_SHAPE, .line = FLAT},
    {"src.shape[1]=6", SY_ERR_SHAPE, .line = FLAT},
    {"pad=1", SY_ERR_VALUE, .line = FLAT},
    {"cache.shape[0]=2^60", SY_ERR_OVERFLOW, .line = FLAT},
    {"cache.strides[0]=6", SY_ERR_STRIDE, .line = FLAT},
    {"slots.device=8", SY_ERR_DEVICE, .line = FLAT},
    {"src.data=cache", SY_ERR_ALIAS, .line = FLAT},
    {"slots.data[7]=24", SY_ERR_INDEX, .line = FLAT},
    {.change = NULL},
};

const struct op_case case_kv_scatter = {
    .name = "kv_scatter",
    .make = make,
    .oracle = oracle,
    .hard = {KV_NOTES, "slot outside", "slot twice", "dropped", "blocks of the caches"},
    .small = "f32 kind=1 S=4 blocks=6 D=7 tokens=10 check_unique",
    .shapes = {"flat S=16 blocks=20 tokens=200 D=577 bf16 check_unique",
               "ds32_fp8 kind=1 S=16 blocks=20 tokens=300", "ds4_fp8 S=16 blocks=20 tokens=300",
               "nvfp4 kind=1 S=16 blocks=20 tokens=300 D=64",
               "f32 flat S=5 blocks=6 tokens=20 D=4 planes=255 check_unique",
               "f32 hnd kind=2 S=5 blocks=6 tokens=20 D=2 H=2 planes=255",
               "int8 flat S=5 blocks=6 tokens=20 D=4 planes=255 parts=3 scale_rank=1"},
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
