/*
 * kv_translate: the rows of a paged cache that hold selected tokens, of all ranks or of one.
 */
#include "kv.h"

/* Tokens of a rank are all tokens it has, dealt out in runs. */
static int64_t token_of_rank(const sy_kv_translate_args *a, int64_t own)
{
    const int64_t run = a->interleave > 0 ? a->interleave : 1;
    return a->world > 1 && own >= 0 ? (own / run * a->world + a->rank) * run + own % run : own;
}

static void share(struct call *c, sy_kv_translate_args *a)
{
    if (!case_chance(c, "shared", 3))
        return;
    a->world = case_size(c, "W", 1, 5, 100);
    a->rank = case_pick(c, "rank", a->world);
    a->interleave = case_size(c, "I", 0, 6, 40);
    if (case_chance(c, "far ranks", 9))
        a->world = a->interleave = INT32_MAX;
}

static void make(struct call *c)
{
    static const char *const planted[] = {"indices", "indices",       "block_table", "page_indices", "indptr",
                                          "req_id",  "last_page_len", "counts",      "seq_lens",     NULL};
    sy_kv_translate_args *const a = case_args(c);
    case_any_scalar(c, "pad");
    share(c, a);
    const int64_t b = case_size(c, "B", 0, 5, 20), k = case_size(c, "k", 0, 12, 60);
    const DLDataType type = case_out_as(c, "slots", case_type(c, "slots"), -1, NULL)->type;
    const int64_t rows = kv_choose_rows(c, type, &a->block_size);
    a->num_rows = case_flag(c, "unknown") ? 0 : rows;
    kv_make_pages(c, b, k, a->block_size, rows, a->pad);
    struct operand *const indices = case_field(c, "indices"), *const lengths = case_field(c, "seq_lens");
    struct stream *const s = case_stream(c, "others");
    for (int64_t i = 0; i < case_count(indices) && a->world > 1; i++) { /* and tokens that others have */
        const int64_t t = token_of_rank(a, case_get(indices, i));
        const int64_t limit = lengths->given ? case_get(lengths, i / k) : 1000;
        case_put(indices, i, t < 0 || stream_chance(s, 3) || t >= limit ? stream_below(s, limit) : t);
    }
    kv_plant(c, planted, rows / a->block_size, k);
}

static void oracle(struct call *c)
{
    const sy_kv_translate_args *const a = case_args(c);
    struct operand *const slots = case_field(c, "slots"), *const valid = case_field(c, "valid");
    const int64_t s = a->block_size;
    const int64_t most = slots->type.bits == 32 ? INT64_C(1) << 31 : INT64_MAX / s * s;
    struct gather_case in = kv_find_pages(c, s, a->num_rows > 0 ? a->num_rows : most, a->pad);
    in.world = a->world;
    in.rank = a->rank;
    in.interleave = a->interleave;
    const int64_t n = c->query.rows = in.batch * in.k;
    int64_t *const found = case_memory(c, (size_t)n * sizeof *found);
    int64_t *const live = case_memory(c, (size_t)in.batch * sizeof *live);
    const sy_fault f = oracle_kv_gather(&in, found);
    if (!kv_expect(c, &f))
        return;
    for (int64_t i = 0; i < n; i++) {
        case_put_want(slots, i, found[i]);
        live[i / in.k] += found[i] >= 0;
        case_note(c, "slot past 2^30", found[i] > 1 << 30);
        case_note(c, "a token of another rank", found[i] < 0 && a->world > 1 && in.indices[i] >= 0);
    }
    for (int64_t i = 0; valid->given && i < in.batch; i++)
        case_put_want(valid, i, live[i]);
}

#define LINE "i32 S=4 blocks=6 B=3 k=5 n=8 R=2 req_id counts seq_lens valid"

static const struct rejection rejections[] = {
    KV_PAGE_REJECTIONS,
    {"num_rows=2^31+1", SY_ERR_VALUE, "2147483649", "2147483648", .late = true},
    {"num_rows=-1", SY_ERR_VALUE, "-1", "0 or more"},
    {"world=-1", SY_ERR_VALUE, "-1", "0 to 2147483647"},
    {"world=2^31", SY_ERR_VALUE, "2147483648"},
    {"rank=1", SY_ERR_VALUE, "1", "0"},
    {"rank=2 world=2", SY_ERR_VALUE, "2", "0 to 1"},
    {"interleave=-1", SY_ERR_VALUE, "-1"},
    {"interleave=2^31", SY_ERR_VALUE, "2147483648"},
    {"block_size=2^62 num_rows=2^62+1 block_table.shape[1]=0", SY_ERR_OVERFLOW, .line = LINE " slots=i64"},
    {"indices.shape=[65536,65536] req_id,counts,seq_lens.shape[0]=65536", SY_ERR_OVERFLOW},
    {.change = NULL},
};

/* Shapes of inputs and sizes among the phases that the engine pairs. */
static const struct rejection ladder[] = {
    {"req_id.shape[0]=2", SY_ERR_SHAPE},
    {"pad=3", SY_ERR_VALUE},
    {"block_size=2^61", SY_ERR_OVERFLOW, .blame = "block_table"},
    {"slots.shape[1]=6", SY_ERR_SHAPE},
    {"block_table.strides[0]=7", SY_ERR_STRIDE},
    {.change = NULL},
};

const struct op_case case_kv_translate = {
    .name = "kv_translate",
    .make = make,
    .oracle = oracle,
    .hard = {KV_FAULTS, KV_PAGES, "slot past 2^30", "a token of another rank"},
    .small = LINE " slots=i32",
    .shapes = {"B=3 k=5000 n=40 S=128 blocks=120 counts valid pad=skip"},
    .lines = {"B=3 k=5000 n=40 S=128 blocks=120 seq_lens faults=3",
              "B=1 k=70001 n=50 S=16 blocks=50 pad=skip valid one", "B=2000 k=409 n=50 S=16 blocks=40 counts",
              "B=4 k=3000 n=30 S=12 blocks=90 shared W=4 I=6 valid"},
    .rejections = rejections,
    .ladder = ladder,
    .calls = 500,
};
