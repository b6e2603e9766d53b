/*
 * moe_reorder_chunks: chunks of rows from the order by rank to that by expert, and back.
 */
#include "case.h"

#include "oracle/moe_reorder_chunks.h"

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

static void oracle(struct call *c)
{
    const struct operand *const counts = case_field(c, "counts");
    struct operand *const offsets = case_field(c, "expert_offsets");
    const struct chunks_case in = {case_get_extent(c, "N"), counts->shape[0], counts->shape[1],
                                   case_wide(c, "counts")};
    int64_t *const source = case_memory(c, (size_t)in.rows * sizeof *source), live, end = 0;
    const sy_fault fault = oracle_moe_reorder_chunks(&in, &live, source);
    c->query.rows = in.rows;
    case_note(c, "negative", fault.status != SY_OK && fault.value < 0);
    case_note(c, "too many", fault.status != SY_OK && fault.value > 0);
    if (fault.status != SY_OK) {
        c->want = fault;
        return;
    }
    expect_rows(c, "rows", "reordered_rows", source, live);
    expect_rows(c, "extra", "reordered_extra", source, live);
    for (int64_t e = 0; e <= in.experts; e++) {
        if (offsets->given)
            case_put_want(offsets, e, end);
        for (int64_t r = 0; e < in.experts && r < in.ranks; r++) {
            end += in.counts[r * in.experts + e];
            case_note(c, "empty chunk", in.counts[r * in.experts + e] == 0);
        }
    }
    case_note(c, "unused rows", live < in.rows);
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
