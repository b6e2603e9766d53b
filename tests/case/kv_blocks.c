/*
 * kv_blocks: copies of whole blocks, within one cache or from one to another.
 */
#include "kv.h"

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

static sy_fault fault(sy_fault_code code, int64_t position, int64_t value, int64_t limit)
{
    return (sy_fault){SY_ERR_INDEX, code, "pairs", -1, position, value, limit};
}

/* What pair i does to one before it. */
static sy_fault validate(const int64_t *pairs, int64_t i, bool one_cache)
{
    const int64_t s = pairs[2 * i], d = pairs[2 * i + 1];
    if (one_cache && s == d) /* nothing moves */
        return (sy_fault){0};
    for (int64_t j = 0; j < i; j++)
        if (pairs[2 * j + 1] == d && !(one_cache && pairs[2 * j] == d))
            return fault(SY_FAULT_DUPLICATE, i, d, j);
    for (int64_t j = 0; j < i && one_cache; j++)
        if (pairs[2 * j] != pairs[2 * j + 1] && (pairs[2 * j + 1] == s || pairs[2 * j] == d))
            return fault(SY_FAULT_HAZARD, i, pairs[2 * j + 1] == s ? s : d, j);
    return (sy_fault){0};
}

/* Every pair against every earlier one: pairs [n,2] of blocks of two caches, or of one. */
static sy_fault first_fault(int64_t n, const int64_t *pairs, int64_t n_src, int64_t n_dst, bool one_cache)
{
    sy_fault f = {0};
    for (int64_t i = 0; i < n && f.status == SY_OK; i++) {
        const int64_t s = pairs[2 * i], d = pairs[2 * i + 1];
        f = s < 0 || s >= n_src   ? fault(SY_FAULT_BLOCK_RANGE, i, s, n_src)
            : d < 0 || d >= n_dst ? fault(SY_FAULT_BLOCK_RANGE, i, d, n_dst)
                                  : validate(pairs, i, one_cache);
    }
    return f;
}

static void oracle(struct call *c)
{
    const sy_kv_blocks_args *const a = case_args(c);
    const int64_t *const counts = c->own, *const pairs = case_wide(c, "pairs");
    const bool one = case_field(c, "cache")->given;
    const int64_t n = case_field(c, "pairs")->shape[0];
    c->query.rows = n;
    case_note(c, "planes", a->num_planes > 1);
    c->want = first_fault(n, pairs, counts[0], counts[1], one);
    if (c->want.status != SY_OK) {
        case_note(c, sy_fault_name(c->want.code), true);
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

static void dst_in_plane(struct call *c)
{
    c->planes[0].rows = c->planes[0].cache;
}

static const struct rejection rejections[] = {
    {"cache=-", SY_ERR_NULL, "is missing", "src and dst"},
    {"dst=-", SY_ERR_NULL, "is missing", .line = TWO},
    {"src=-", SY_ERR_NULL, "is missing", .line = TWO},
    {"src=cache", SY_ERR_VALUE, "beside cache"},
    {"planes=-", SY_ERR_NULL, "1", .line = LINE " planes=1"},
    {"cache.1=-", SY_ERR_NULL, "plane 1 is missing", .line = LINE " planes=1"},
    {"", SY_ERR_VALUE, "plane 1", .blame = "dst", .with = dst_in_plane, .line = LINE " planes=1"},
    {"cache.1.shape[0]=5", SY_ERR_SHAPE, "plane 1 has 5 blocks", "6", .line = LINE " planes=1"},
    {"dst.1.shape[0]=5", SY_ERR_SHAPE, "dst of plane 1 has 5 blocks", "4", .line = TWO " planes=1"},
    {"num_planes=256", SY_ERR_VALUE, "256", "255"},
    {"num_planes=-1", SY_ERR_VALUE, "-1", "255"},
    {"pairs.shape[0]=2^32", SY_ERR_OVERFLOW, "4294967296", "2^32"},
    {"cache.shape[2]=0", SY_ERR_SHAPE, "extent 0 in dimension 2"},
    {"dst.shape[2]=5", SY_ERR_SHAPE, "blocks of 10 elements", "8", .line = TWO},
    {"dst.dtype=bf16", SY_ERR_DTYPE, NULL, "the same", .line = TWO},
    {"cache.shape[0]=11", SY_ERR_SHAPE, "11 rows", "whole blocks of block_size 2", .line = LINE " form=1"},
    {"block_size=0", SY_ERR_VALUE, "0", "1 or more", .code = SY_FAULT_BAD_BLOCK_SIZE, .line = LINE " form=1"},
    {"cache.strides[0]=5", SY_ERR_STRIDE, "5", "contiguous", .line = LINE " form=1"},
    {"cache.strides[1]=5", SY_ERR_STRIDE, "5", "contiguous"},
    {"cache.strides[0]=7", SY_ERR_STRIDE, "7", "8"},
    {.change = NULL},
};

/* Shapes of inputs and contents among the phases that the engine pairs. */
static const struct rejection ladder[] = {
    {"pairs.ndim=3", SY_ERR_SHAPE},
    {"cache.shape[2]=0", SY_ERR_SHAPE},
    {"num_planes=256", SY_ERR_VALUE},
    {"cache.strides[0]=7", SY_ERR_STRIDE},
    {"pairs.device=8", SY_ERR_DEVICE},
    {"pairs.data[2]=6", SY_ERR_INDEX},
    {.change = NULL},
};

const struct op_case case_kv_blocks = {
    .name = "kv_blocks",
    .make = make,
    .oracle = oracle,
    .hard = {"BLOCK_RANGE", "DUPLICATE", "HAZARD", "planes", "to itself"},
    .small = LINE,
    .shapes = {"f16 blocks=6 N=3 S=5 D=4 planes=255", "f16 two blocks=6 to=6 N=3 S=5 D=4 planes=255"},
    .lines = {"f16 two blocks=4 to=5 N=3 S=150 D=1000", "f16 blocks=800 N=390 S=4 D=300",
              "f16 blocks=800 N=390 S=4 D=300 faults=2", "f16 blocks=5200 N=2500 S=1 D=3",
              "f16 blocks=5200 N=2500 S=1 D=3 hazard", "f16 blocks=5200 N=2500 S=1 D=3 faults=3"},
    .rejections = rejections,
    .ladder = ladder,
    .calls = 400,
};
