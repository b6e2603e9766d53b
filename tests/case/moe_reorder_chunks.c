/*
 * moe_reorder_chunks: chunks of rows from the order by rank to that by expert, and back.
 */
#include "case.h"

/* Rows of no dimension, of one, of two, which lie in one piece; the output is as the input. */
static struct operand *make_rows(struct call *c, const char *field, const char *width, const char *out)
{
    char name[40] = "inner:";
    const int inner = (int)case_pick(c, strcat(name, field), 3);
    const int64_t wide = case_size(c, width, 0, 40, 300);
    const int64_t shape[3] = {case_get_extent(c, "N"), inner == 2 ? 3 : wide, wide};
    struct operand *const x = case_in_as(c, field, (DLDataType){0}, 1 + inner, shape);
    case_fill(c, x);
    x->upper = case_field(c, out)->upper = 1;
    case_note(c, "rows of one element", inner == 0);
    return x;
}

static void make(struct call *c)
{
    struct stream *const s = case_stream(c, "counts");
    const int64_t rows = case_size(c, "N", 0, 60, 900);
    case_size(c, "R", 0, 6, 9);
    case_size(c, "E", 0, 8, 20);
    struct operand *const counts = case_in(c, "counts");
    const int64_t cells = case_count(counts);
    int64_t left = rows;
    for (int64_t i = 0; i < cells; i++) {
        const int64_t share = 1 + 2 * left / (cells - i), most = share < left ? share : left;
        const int64_t n = stream_chance(s, 4) ? 0 : stream_below(s, most + 1);
        case_put(counts, i, n);
        left -= n;
    }
    if (case_chance(c, "wrong", 5) && cells > 0) {
        const int64_t at = stream_below(s, cells);
        case_put(counts, at, stream_chance(s, 2) ? -1 - stream_below(s, 9) : rows + 1);
    }
    make_rows(c, "rows", "W", "reordered_rows");
    if (case_flag(c, "extra"))
        make_rows(c, "extra", "X", "reordered_extra");
    case_any_scalar(c, "inverse");
}

/* Rows of no chunk stay as they are. */
static void expect_rows(struct call *c, const char *field, const char *to, const int64_t *source,
                        int64_t live)
{
    const sy_moe_reorder_chunks_args *const a = case_args(c);
    const struct operand *const x = case_field(c, field), *const out = case_field(c, to);
    const size_t bytes = x->given && x->shape[0] > 0 ? x->bytes / (size_t)x->shape[0] : 0;
    for (int64_t i = 0; bytes > 0 && i < live; i++) {
        const int64_t at = a->inverse ? source[i] : i, from = a->inverse ? i : source[i];
        memcpy(out->want + (size_t)at * bytes, x->dense + (size_t)from * bytes, bytes);
    }
}

struct name {
    int64_t expert, rank, row;
};

static int by_name(const void *left, const void *right)
{
    const struct name *a = left, *b = right;
    if (a->expert != b->expert)
        return a->expert < b->expert ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return (a->row > b->row) - (a->row < b->row);
}

/* Every row gets a name, and all of them are sorted: the row that comes to stand at each place when experts are brought
   together. Returns the rows of all chunks; -1: a count is wrong. */
static int64_t sort_rows(struct call *c, const int64_t *counts, int64_t *source)
{
    const int64_t rows = case_get_extent(c, "N"), experts = case_get_extent(c, "E");
    struct name *const names = case_memory(c, (size_t)rows * sizeof *names);
    int64_t live = 0;
    for (int64_t i = 0; i < case_get_extent(c, "R") * experts; i++) {
        const int64_t r = i / experts, e = i % experts, left = rows - live;
        if (counts[i] < 0 || counts[i] > left) {
            c->want = (sy_fault){SY_ERR_INDEX, SY_FAULT_LENGTH_RANGE, "counts", r, e, counts[i], left};
            return -1;
        }
        for (int64_t n = 0; n < counts[i]; n++, live++)
            names[live] = (struct name){e, r, live};
    }
    qsort(names, (size_t)live, sizeof *names, by_name);
    for (int64_t i = 0; i < live; i++)
        source[i] = names[i].row;
    return live;
}

static void oracle(struct call *c)
{
    struct operand *const offsets = case_field(c, "expert_offsets");
    const int64_t rows = case_get_extent(c, "N"), experts = case_get_extent(c, "E"),
                  ranks = case_get_extent(c, "R"), *const counts = case_wide(c, "counts");
    int64_t *const source = case_memory(c, (size_t)rows * sizeof *source), end = 0;
    const int64_t live = sort_rows(c, counts, source);
    c->query.rows = rows;
    case_note(c, "negative", live < 0 && c->want.value < 0);
    case_note(c, "too many", live < 0 && c->want.value > 0);
    if (live < 0)
        return;
    expect_rows(c, "rows", "reordered_rows", source, live);
    expect_rows(c, "extra", "reordered_extra", source, live);
    for (int64_t e = 0; e <= experts; e++) {
        if (offsets->given)
            case_put_want(offsets, e, end);
        for (int64_t r = 0; e < experts && r < ranks; r++) {
            end += counts[r * experts + e];
            case_note(c, "empty chunk", counts[r * experts + e] == 0);
        }
    }
    case_note(c, "unused rows", live < rows);
}

#define SCALARS "N=7 R=2 E=3 extra X=1"
static const struct rejection rejections[] = {
    {"counts.shape=[2^31,3]", SY_ERR_VALUE, "2147483648 ranks", "2147483647"},
    {"counts.shape=[0,2^63-1]", SY_ERR_VALUE, "experts", "2147483647"},
    {"rows.shape=[7,2^61]", SY_ERR_OVERFLOW},
    {"reordered_rows.ndim=1", SY_ERR_SHAPE, "[7]", "[7,4]"},
    {"extra.shape[0]=8", SY_ERR_SHAPE, "8 rows", "7", .line = SCALARS},
    {"extra.strides[0]=0", SY_ERR_STRIDE, "0", "1", .line = SCALARS},
    {.change = NULL},
};

const struct op_case case_moe_reorder_chunks = {
    .name = "moe_reorder_chunks",
    .make = make,
    .oracle = oracle,
    .hard = {"rows of one element", "negative", "too many", "empty chunk", "unused rows"},
    .small = "N=7 R=2 E=3 inner:rows=1 W=4 f64",
    .shapes = {"N=300 R=5 E=7 inner:rows=1 W=512 bf16", "N=300 R=64 E=70 inner:rows=1 W=64 inverse"},
    .lines = {"N=2500 R=5 E=7 inner:rows=1 W=300 f32 extra", "N=2500 R=64 E=70 inner:rows=1 W=300 inverse",
              "N=2500 R=1 E=3 inner:rows=2 W=300", "N=2500 R=9 E=1 inner:rows=1 W=300 f64 inverse"},
    .rejections = rejections,
    .calls = 160,
};
