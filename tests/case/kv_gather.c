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
    const sy_fault f = oracle_kv_gather(&in, slots);
    kv_note(c, k);
    if (n == 0 || !kv_check_globals(c, k) || !kv_expect(c, &f))
        return;
    for (int64_t i = 0; i < n; i++)
        if (slots[i] >= 0)
            kv_read(k, slots[i], i);
        else if (a->pad != SY_PAD_SKIP)
            kv_clear(k, i);
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
    {"indices.shape=[2,2,2] indices.strides=[7,2,1] out.shape=[2,2,2,7] req_id,counts,seq_lens.shape[0]=4",
     SY_ERR_STRIDE, "[7,2,1]"},
    {"cache.shape[2]=0", SY_ERR_SHAPE, "extent 0 in dimension 2", .line = LINE " kind=1"},
    {"block_size=3", SY_ERR_SHAPE, "blocks of 4 rows", "3", .blame = "cache", .line = LINE " kind=1"},
    {"cache.strides[1]=6", SY_ERR_STRIDE, "row stride 6", "7", .line = LINE " kind=1"},
    {"cache.strides[0]=27", SY_ERR_STRIDE, "block stride 27", "28", .line = LINE " kind=1"},
    {"cache.strides[2]=2", SY_ERR_STRIDE, "2", "contiguous", .line = LINE " kind=1"},
    {"cache.strides[0]=6", SY_ERR_STRIDE, "row stride 6", "7"},
    {"cache.strides[1]=2", SY_ERR_STRIDE, "2", "contiguous"},
    {"cache.strides[0]=-2^63", SY_ERR_STRIDE, "-9223372036854775808", "7"},
    {"cache.shape[0]=2^60", SY_ERR_OVERFLOW},
    {"indices.shape=[65536,65536] req_id,counts,seq_lens.shape[0]=65536", SY_ERR_OVERFLOW},
    /* 2^62 + 1 rows of one byte are two blocks of 2^62 rows, and those end at 2^63. */
    {"cache.shape=[2^62+1,1] cache,out.dtype=i8 block_table.shape[1]=0 block_size=2^62", SY_ERR_OVERFLOW,
     .blame = "cache|block_size"},

    {"layout=2", SY_ERR_VALUE, "2", "NHD, HND"},
    {"cache.ndim=2", SY_ERR_SHAPE, "rank 2", "3 or more", .line = WITH_HEADS},
    {"cache.shape[1]=0", SY_ERR_SHAPE, "extent 0 in dimension 1", .line = WITH_HEADS},
    {"cache.shape[3]=0", SY_ERR_SHAPE, "extent 0 in dimension 3", .line = WITH_HEADS},
    {"cache.shape[2]=3", SY_ERR_SHAPE, "blocks of 3 rows", "4", .line = WITH_HEADS},
    {"cache.strides[3]=2", SY_ERR_STRIDE, NULL, "contiguous", .line = WITH_HEADS},
    {"cache.strides[2]=4", SY_ERR_STRIDE, "row stride 4", "5", .line = WITH_HEADS},
    {"cache.strides[1]=19", SY_ERR_STRIDE, "head stride 19", "20", .line = WITH_HEADS},
    {"cache.strides[1]=0", SY_ERR_STRIDE, "head stride 0", "5", .line = WITH_HEADS},
    {"cache.strides[1]=-20", SY_ERR_STRIDE, "head stride -20", "5", .line = WITH_HEADS},
    {"cache.strides[0]=59", SY_ERR_STRIDE, "block stride 59", "60", .line = WITH_HEADS},
    /* Rows inside heads inside blocks, as strides say it, and 3 elements between two rows: the next head begins there. */
    {"cache.strides=[60,7,18,1]", SY_ERR_STRIDE, "row stride 18", "19", .line = WITH_HEADS},

    {"planes=-", SY_ERR_NULL, "2", .line = PLANES},
    {"num_planes=-1", SY_ERR_VALUE, "-1", "255"},
    {"num_planes=256", SY_ERR_VALUE, "256", "255"},
    {"plane_bytes=0", SY_ERR_VALUE, "0", "sizeof(sy_kv_plane), 40", .line = PLANES},
    {"plane_bytes=-1", SY_ERR_VALUE, NULL, "40", .line = PLANES},
    {"cache.1.shape[2]=0", SY_ERR_SHAPE, "plane 1", .line = PLANES},
    {"cache.1.shape[1]=3", SY_ERR_SHAPE, "cache of plane 1 has blocks of 3", "4", .line = PLANES},
    {"cache.2.shape[0]=5", SY_ERR_SHAPE, "cache of plane 2 has 20 rows", "24", .line = PLANES},
    {"cache.1.shape[0]=2^62", SY_ERR_OVERFLOW, .blame = "cache|block_size", .line = PLANES},
    {"cache.1.strides[1]=6", SY_ERR_STRIDE, "cache of plane 1 has row stride 6", "7", .line = PLANES},
    {"cache.2.strides[0]=27", SY_ERR_STRIDE, "cache of plane 2 has block stride 27", "28", .line = PLANES},

    {"format.q_type=f32", SY_ERR_VALUE, "q_type f32", "f8_e4m3, f8_e5m2 or i8", .line = ROWS},
    {"format.q_type=none", SY_ERR_VALUE, "q_type", "f8_e4m3, f8_e5m2 or i8", .line = ROWS},
    {"format.scale_type=bf16", SY_ERR_VALUE, "scale_type bf16", "f32 or f8_e8m0", .line = ROWS},
    {"format.scales=4", SY_ERR_VALUE, "scales 4", "TENSOR, ROW, BLOCK, INLINE", .line = ROWS},
    {"format.scales=3", SY_ERR_VALUE, "scales inline", "q8_0 or q4_0", .line = ROWS},
    {"format.scale_math=1", SY_ERR_VALUE, "scale_math", "a format of caches", .line = ROWS},
    {"format.row_bytes=0", SY_ERR_VALUE, "row_bytes 0", "1 or more", .line = ROWS},
    {"format.q_count=0", SY_ERR_VALUE, "q_count 0", "1 or more", .line = ROWS},
    {"format.q_count=-128", SY_ERR_VALUE, "q_count -128", "1 or more", .line = ROWS},
    {"format.q_count=1024", SY_ERR_VALUE, "codes in bytes 0 to 1024", "0 to 656", .line = ROWS},
    {"format.q_off=-1", SY_ERR_VALUE, "codes in bytes -1 to 511", "0 to 656", .line = ROWS},
    {"format.q_off=2", SY_ERR_VALUE, "scales in bytes 512 to 528", "apart from codes", .line = ROWS},
    {"format.q_off=2^31-1", SY_ERR_VALUE, "codes in bytes 2147483647 to 2147484159", "0 to 656",
     .line = ROWS},
    {"format.group=0", SY_ERR_VALUE, "group 0", "a divisor of q_count", .line = ROWS},
    {"format.group=3", SY_ERR_VALUE, "group 3", "a divisor of q_count", .line = ROWS},
    {"format.group=-4", SY_ERR_VALUE, "group -4", "a divisor of q_count", .line = ROWS},
    {"format.scale_off=650", SY_ERR_VALUE, "scales in bytes 650 to 666", "0 to 656", .line = ROWS},
    {"format.scale_off=520", SY_ERR_VALUE, "scales in bytes 520 to 536", "apart from rope", .line = ROWS},
    {"format.scale_bytes=4", SY_ERR_VALUE, "scale_bytes 4", "0", .line = ROWS},
    {"format.rope_bytes=3", SY_ERR_VALUE, "rope_bytes 3", "even", .line = ROWS},
    {"format.rope_bytes=130", SY_ERR_VALUE, "rope in bytes 528 to 658", "0 to 656", .line = ROWS},
    {"format.rope_bytes=-2", SY_ERR_VALUE, "rope in bytes 528 to 526", "0 to 656", .line = ROWS},
    {"format.rope_off=500", SY_ERR_VALUE, "rope in bytes 500 to 628", "apart from codes", .line = ROWS},
    {"format.bytes=0", SY_ERR_VALUE, "bytes 0", "sizeof(sy_kv_format), 80", .line = ROWS},
    {"format.bytes=-1", SY_ERR_VALUE, "bytes 4294967295", "80", .line = ROWS},
    {"", SY_ERR_UNSUPPORTED, "byte 84", "at most 80 bytes", .blame = "format", .with = newer_format,
     .line = ROWS},
    {"cache.shape[2]=655", SY_ERR_SHAPE, "655 bytes", "at least 656", .line = ROWS},
    {"cache.shape=[3,2,2,328] cache.strides=[2000,700,330,1]", SY_ERR_STRIDE, "heads of a row apart",
     "in one piece", .line = ROWS},

    {"format.scale_bytes=0", SY_ERR_VALUE, "scale_bytes 0", "1 or more", .line = BLOCKS},
    {"format.scale_bytes=3", SY_ERR_VALUE, "scales in bytes 0 to 4", "0 to 3", .line = BLOCKS},
    {"cache.shape[1]=263", SY_ERR_SHAPE, "blocks of 263 bytes", "2 rows of 132", .line = BLOCKS},
    {"block_size=5", SY_ERR_SHAPE, "blocks of 264 bytes", "5 rows", .blame = "cache", .line = BLOCKS},
    {"block_size=2^63-1", SY_ERR_SHAPE, "264 bytes", "at least", .blame = "cache", .line = BLOCKS},
    {"cache.strides[0]=263", SY_ERR_STRIDE, "block stride 263", "264", .line = BLOCKS},
    {"cache.strides[1]=2", SY_ERR_STRIDE, NULL, "contiguous", .line = BLOCKS},
    {"cache.shape[1]=0", SY_ERR_SHAPE, "extent 0", .line = BLOCKS},

    {"format.q_count=8", SY_ERR_VALUE, "q_count 8", "0", .line = SCALES},
    {"format.rope_bytes=2", SY_ERR_VALUE, "rope_bytes 2", "0", .line = SCALES},
    {"format.global_is=1", SY_ERR_VALUE, "global_is set", "0", .line = SCALES},
    {"scale=-", SY_ERR_NULL, "is missing", .line = SCALES},
    {"scale.dtype=u8", SY_ERR_DTYPE, "u8", "f32", .line = SCALES},
    {"format=-", SY_ERR_DTYPE, "f32", "i8", .blame = "out", .line = SCALES, .late = true},
    {"scale.shape[2]=5", SY_ERR_SHAPE, "5 for a row", "12 elements and 2 heads", .line = SCALES},
    {"scale.shape[2]=3", SY_ERR_SHAPE, "3 for a row", "2 heads", .line = SCALES},
    {"scale.shape[2]=0", SY_ERR_SHAPE, "0 for a row", "2 heads", .line = SCALES},
    {"scale.strides[1]=-4", SY_ERR_STRIDE, .line = SCALES},
    {.change = NULL},
};

/* Shapes of inputs and sizes among the phases that the engine pairs. */
static const struct rejection ladder[] = {
    {"req_id.shape[0]=2", SY_ERR_SHAPE},
    {"pad=3", SY_ERR_VALUE},
    {"block_size=2^61", SY_ERR_OVERFLOW, .blame = "block_table"},
    {"out.shape[2]=6", SY_ERR_SHAPE},
    {"cache.strides[0]=6", SY_ERR_STRIDE},
    {.change = NULL},
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
               "q8_0 kind=1 B=2 k=150 D=60 n=20 S=16 blocks=20",
               "f32 flat B=1 k=20 D=4 n=6 S=5 blocks=6 planes=255",
               "f32 hnd kind=2 B=1 k=20 D=2 H=2 n=6 S=5 blocks=6 planes=255",
               "int8 flat B=1 k=20 D=4 n=6 S=5 blocks=6 planes=255 parts=3 scale_rank=1"},
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
