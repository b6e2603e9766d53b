/*
 * kv_blocks: copies of whole blocks, within one cache or from one to another.
 */
#include "kv.h"

#include "oracle/kv_blocks.h"

enum { ONE_CACHE, SOURCE, DESTINATION };
static const char *const names[] = {"cache", "src", "dst"};

/* A cache of n blocks of [S,D], in three ways. */
static struct operand *add_cache(struct call *c, int plane, int role, DLDataType type, int64_t n, int64_t s,
                                 int64_t d)
{
    const int64_t form = case_pick(c, "form", 3), shapes[][4] = {{n, s, d}, {n * s, d}, {n, d, 1, s}};
    const int ranks[] = {3, 2, 4};
    sy_kv_plane *const more = plane > 0 ? &c->planes[plane - 1] : NULL;
    struct operand *x;
    if (plane > 0)
        x = case_plane_as(c, case_field(c, names[role]), role == DESTINATION ? &more->rows : &more->cache,
                          type, ranks[form], shapes[form]);
    else
        x = (role == SOURCE ? case_in_as : case_inout_as)(c, names[role], type, ranks[form], shapes[form]);
    x->compact = form == 1;
    x->upper = 1;
    case_fill(c, x);
    return x;
}

/* In one cache sources from one half, destinations from the other; and blocks that are copied to themselves. */
static void fill_pairs(struct call *c, struct operand *pairs, int64_t n_src, int64_t n_dst, bool one)
{
    struct stream *const s = case_stream(c, "pairs");
    const int64_t half = one ? n_src / 2 : 0, free = n_dst - half;
    for (int64_t i = 0; i < pairs->shape[0]; i++) {
        const int64_t to = half + (i + free / 3) % (free > 0 ? free : 1);
        case_put(pairs, 2 * i, one && stream_chance(s, 9) ? to : stream_below(s, one ? half : n_src));
        case_put(pairs, 2 * i + 1, to);
    }
}

static void make(struct call *c)
{
    static const char *const planted[] = {"pairs", NULL};
    sy_kv_blocks_args *const a = case_args(c);
    const bool two = case_flag(c, "two");
    const int64_t n_src = case_size(c, "blocks", 0, 20, 80),
                  n_dst = two ? case_size(c, "to", 0, 20, 80) : n_src;
    const int64_t free = two ? n_dst : n_dst - n_dst / 2, wanted = case_size(c, "N", 0, 15, 80);
    const int64_t n = wanted < free ? wanted : free;
    int64_t s = case_size(c, "S", 1, 4, 20);
    if (n_src == 0 && n_dst == 0 && case_chance(c, "long", 2)) /* its length must not cost any time */
        s = INT64_C(1) << 40;
    a->num_planes = kv_more_planes(c);
    for (int i = 0; i <= a->num_planes; i++) {
        const DLDataType type = case_type(c, two ? "src" : "cache");
        const int64_t d = case_size(c, "D", 1, 20, 80);
        add_cache(c, i, two ? SOURCE : ONE_CACHE, type, n_src, s, d);
        if (two)
            add_cache(c, i, DESTINATION, type, n_dst, s, d);
    }
    a->block_size = s;
    a->planes = c->planes;
    a->plane_bytes = sizeof(sy_kv_plane);
    struct operand *const pairs = case_in_as(c, "pairs", (DLDataType){0}, 2, (const int64_t[]){n, 2});
    fill_pairs(c, pairs, n_src, n_dst, !two);
    kv_plant(c, planted, n_dst, n > 0 ? case_get(pairs, n / 2 * 2 + 1) : 0);
    if (case_chance(c, "hazard", 6) && n > 1)
        case_put(pairs, 2 * (n - 1), case_get(pairs, 1));
    c->own = memcpy(case_memory(c, 2 * sizeof n_src), (const int64_t[]){n_src, n_dst}, 2 * sizeof n_src);
}

static void oracle(struct call *c)
{
    static const sy_fault_code codes[] = {SY_FAULT_NONE, SY_FAULT_BLOCK_RANGE, SY_FAULT_DUPLICATE,
                                          SY_FAULT_HAZARD};
    const sy_kv_blocks_args *const a = case_args(c);
    const int64_t *const counts = c->own, *const pairs = case_wide(c, "pairs");
    const bool one = case_field(c, "cache")->given;
    const int64_t n = case_field(c, "pairs")->shape[0];
    const struct blocks_fault f = oracle_kv_blocks(n, pairs, counts[0], counts[1], one);
    c->query.rows = n;
    case_note(c, "planes", a->num_planes > 1);
    if (f.code != BLOCKS_FINE) {
        c->want = (sy_fault){SY_ERR_INDEX, codes[f.code], "pairs", -1, f.position, f.value, f.limit};
        case_note(c, sy_fault_name(codes[f.code]), true);
        return;
    }
    for (int k = 0; k < c->n_operands; k++) { /* each that is written, from src of its plane or from itself */
        const struct operand *const to = &c->operand[k], *from = to;
        if (!to->given || !to->out)
            continue;
        for (int j = 0; j < c->n_operands && !one; j++)
            if (c->operand[j].plane == to->plane && strcmp(c->operand[j].field->name, "src") == 0)
                from = &c->operand[j];
        const size_t bytes = counts[1] > 0 ? to->bytes / (size_t)counts[1] : 0;
        for (int64_t i = 0; i < n; i++)
            if (!one || pairs[2 * i] != pairs[2 * i + 1])
                memcpy(to->want + (size_t)pairs[2 * i + 1] * bytes,
                       from->dense + (size_t)pairs[2 * i] * bytes, bytes);
    }
    for (int64_t i = 0; i < n; i++)
        case_note(c, "to itself", one && pairs[2 * i] == pairs[2 * i + 1]);
}

#define LINE "f16 blocks=6 S=2 D=4 N=3"
#define TWO "f16 two blocks=6 to=4 S=2 D=4 N=3"

static void no_array(struct call *c)
{
    ((sy_kv_blocks_args *)case_args(c))->planes = NULL;
}

static void both_forms(struct call *c)
{
    sy_kv_blocks_args *const a = case_args(c);
    a->src = a->cache;
}

static void dst_in_plane(struct call *c)
{
    c->planes[0].rows = c->planes[0].cache;
}

static const struct rejection rejections[] = {
    {"no cache", NO_TENSOR("cache"), .found = "is missing", .wanted = "src and dst", .inputs = true},
    {"no dst", NO_TENSOR("dst"), .found = "is missing", .line = TWO},
    {"no src", NO_TENSOR("src"), .found = "is missing", .inputs = true, .line = TWO},
    {"cache and src", BAD_CALL(both_forms, SY_ERR_VALUE, "src", "beside cache", NULL), .inputs = true},
    {"no array of planes", BAD_CALL(no_array, SY_ERR_NULL, "planes", "1", NULL), .inputs = true,
     .line = LINE " planes=1"},
    {"no cache of a plane", NO_TENSOR("cache.1"), .blame = "cache", .found = "plane 1 is missing",
     .inputs = true, .line = LINE " planes=1"},
    {"dst in a plane of one cache", BAD_CALL(dst_in_plane, SY_ERR_VALUE, "dst", "plane 1", NULL),
     .inputs = true, .line = LINE " planes=1"},
    {"a plane of fewer blocks", BAD_EXTENT("cache.1", 0, 5, "plane 1 has 5 blocks", "6"), .blame = "cache",
     .inputs = true, .line = LINE " planes=1"},
    {"a plane of more blocks in dst", BAD_EXTENT("dst.1", 0, 5, "dst of plane 1 has 5 blocks", "4"),
     .blame = "dst", .line = TWO " planes=1"},
    {"256 planes", BAD_SCALAR("num_planes", 256, SY_ERR_VALUE, NULL, "256", "255"), .inputs = true},
    {"-1 planes", BAD_SCALAR("num_planes", -1, SY_ERR_VALUE, NULL, "-1", "255"), .inputs = true},
    {"pairs of three", BAD_EXTENT("pairs", 1, 3, "[3,3]", "[3,2]"), .inputs = true},
    {"2^32 pairs", BAD_SIZE("pairs", 0, INT64_C(1) << 32, SY_ERR_OVERFLOW, "4294967296", "2^32"),
     .inputs = true},
    {"blocks without elements", BAD_EXTENT("cache", 2, 0, "extent 0 in dimension 2", NULL), .inputs = true},
    {"other blocks in dst", BAD_EXTENT("dst", 2, 5, "blocks of 10 elements", "8"), .line = TWO},
    {"another type of dst", BAD_TYPE("dst", 4, 16, 1), .wanted = "the same", .line = TWO},
    {"a partial block", BAD_EXTENT("cache", 0, 11, "11 rows", "whole blocks of block_size 2"), .inputs = true,
     .line = LINE " form=1"},
    {"rows without a block size", BAD_SCALAR("block_size", 0, SY_ERR_VALUE, NULL, "0", "1 or more"),
     .code = SY_FAULT_BAD_BLOCK_SIZE, .inputs = true, .line = LINE " form=1"},
    {"rows with gaps", BAD_STRIDE("cache", 0, 5, "5", "contiguous"), .inputs = true, .line = LINE " form=1"},
    {"blocks in pieces", BAD_STRIDE("cache", 1, 5, "5", "contiguous"), .inputs = true},
    {"blocks that overlap", BAD_STRIDE("cache", 0, 7, "7", "8"), .inputs = true},
    {.name = NULL},
};

/* Shapes of inputs and contents among the phases that the engine pairs. */
static const struct rejection ladder[] = {
    {"rank", BAD_RANK("pairs", 3, NULL, NULL)},
    {"input shape", BAD_EXTENT("cache", 2, 0, NULL, NULL)},
    {"value", BAD_SCALAR("num_planes", 256, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"stride", BAD_STRIDE("cache", 0, 7, NULL, NULL)},
    {"device", BAD_DEVICE("pairs", 8)},
    {"contents", BAD_NUMBER("pairs", 2, 6, SY_ERR_INDEX, NULL, NULL)},
    {.name = NULL},
};

const struct op_case case_kv_blocks = {
    .name = "kv_blocks",
    .make = make,
    .oracle = oracle,
    .hard = {"BLOCK_RANGE", "DUPLICATE", "HAZARD", "planes", "to itself"},
    .small = LINE,
    .lines = {"f16 two blocks=4 to=5 N=3 S=150 D=1000", "f16 blocks=800 N=390 S=4 D=300",
              "f16 blocks=800 N=390 S=4 D=300 faults=2", "f16 blocks=5200 N=2500 S=1 D=3",
              "f16 blocks=5200 N=2500 S=1 D=3 hazard", "f16 blocks=5200 N=2500 S=1 D=3 faults=3"},
    .rejections = rejections,
    .ladder = ladder,
    .calls = 400,
};
