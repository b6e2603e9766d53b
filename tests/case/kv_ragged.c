/*
 * kv_ragged: one run of tokens of each sequence out of paged caches.
 */
#include "kv.h"

/* Runs from any token on, as far as the rows of their pages are there. */
static void fill_runs(struct call *c, const struct kv_table *t, int64_t b, int64_t most)
{
    struct operand *const cu = case_in_as(c, "cu_lens", (DLDataType){0}, 1, (const int64_t[]){b + 1}),
                          *const req = case_field(c, "req_id"), *const lengths = case_field(c, "seq_lens"),
                          *const starts =
                              case_flag(c, "starts") ? case_in_as(c, "starts", (DLDataType){0}, 1, &b) : NULL;
    struct stream *const s = case_stream(c, "runs");
    cu->free = true;
    for (int64_t i = 0; i < b; i++) {
        const int64_t r = req->given ? case_get(req, i) : i, room = kv_room(t, r);
        const int64_t near = room > 1000 ? 1000 : room, first = starts != NULL ? stream_below(s, near) : 0;
        const int64_t wanted = stream_chance(s, 5) ? 0 : stream_below(s, most + 1);
        int64_t n = 0;
        while (n < wanted && first + n < room && kv_map(c, t, r, first + n))
            n++;
        if (starts != NULL)
            case_put(starts, i, first);
        if (lengths->given)
            case_put(lengths, i, first + n + stream_below(s, 2) * t->block_size);
        const bool beyond = lengths->given && first + n == room && stream_chance(s, 8);
        case_put(cu, i + 1, case_get(cu, i) + n + beyond);
        case_note(c, "empty run", n == 0);
        case_note(c, "pages cut", first % t->block_size != 0 && n > t->block_size);
    }
}

static void make(struct call *c)
{
    static const char *const planted[] = {"cu_lens",       "starts",   "block_table",
                                          "page_indices",  "indptr",   "req_id",
                                          "last_page_len", "seq_lens", NULL};
    sy_kv_ragged_args *const a = case_args(c);
    struct kv_caches *const k = kv_make_caches(c, "out");
    const int64_t b = case_size(c, "B", 0, 5, 20), most = case_size(c, "run", 0, 30, 100);
    KV_TAKE(a, k);
    a->block_size = k->block_size;
    const struct kv_table t = kv_make_sequences(c, b, -1, k->block_size, k->rows);
    fill_runs(c, &t, b, most);
    const int64_t rest = case_pick(c, "rest", 3), rows = case_get(case_field(c, "cu_lens"), b) + rest;
    case_note(c, "rows that are left", rest > 0);
    kv_plant(c, planted, k->rows / k->block_size, rows);
    kv_make_rows(c, k, "out", 1, &rows);
    k->plane[0].rows->spare = true;
}

static sy_fault check_lengths(const int64_t *cu_lens, int64_t batch, int64_t rows)
{
    for (int64_t b = 0; b <= batch; b++) {
        const int64_t at = cu_lens[b], least = b > 0 ? cu_lens[b - 1] : 0, most = b > 0 ? rows : 0;
        if (at < least || at > most)
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_LENGTH_RANGE,    "cu_lens", b, -1,
                              at,           at < least ? least : most};
    }
    return (sy_fault){0};
}

/* Every token as kv_gather has it, where the library goes page by page: the slots of rows that cu_lens has. */
static sy_fault find_slots(struct call *c, struct gather_case all, const int64_t *cu_lens, int64_t *slots)
{
    const int64_t batch = all.batch, *const starts = batch > 0 ? case_wide(c, "starts") : NULL;
    all.k = 1;
    if (batch == 0) { /* lists are validated without a run too: as for one of no tokens */
        all.batch = 1;
        all.req_id = all.seq_lens = NULL;
    }
    int64_t *const counts = case_memory(c, (size_t)all.batch * sizeof *counts);
    for (int64_t b = 0; b < batch; b++) {
        counts[b] = cu_lens[b + 1] - cu_lens[b];
        all.k = counts[b] > all.k ? counts[b] : all.k;
    }
    const size_t bytes = (size_t)(all.batch * all.k) * sizeof *slots;
    int64_t *const tokens = case_memory(c, bytes), *const found = case_memory(c, bytes);
    for (int64_t i = 0; i < all.batch * all.k; i++)
        tokens[i] = (int64_t)((uint64_t)(starts != NULL ? starts[i / all.k] : 0) + (uint64_t)(i % all.k));
    all.indices = tokens;
    all.counts = counts;
    const sy_fault fault = oracle_kv_gather(&all, found);
    for (int64_t b = 0; b < batch && fault.status == SY_OK; b++)
        memcpy(slots + cu_lens[b], found + b * all.k, (size_t)counts[b] * sizeof *slots);
    return fault;
}

static void oracle(struct call *c)
{
    const struct kv_caches *const k = c->own;
    struct gather_case in = {.batch = case_field(c, "cu_lens")->shape[0] - 1,
                             .rows = k->rows,
                             .block_size = k->block_size,
                             .req_id = case_wide(c, "req_id"),
                             .seq_lens = case_wide(c, "seq_lens")};
    const int64_t rows = k->plane[0].rows->shape[0], *const cu_lens = case_wide(c, "cu_lens");
    int64_t *const slots = case_memory(c, (size_t)rows * sizeof *slots);
    kv_find_table(c, &in);
    sy_fault f = check_lengths(cu_lens, in.batch, rows);
    if (f.status == SY_OK)
        f = find_slots(c, in, cu_lens, slots);
    kv_note(c, k);
    c->query.rows = 0;
    if (!kv_check_globals(c, k) || !kv_expect(c, &f))
        return;
    for (int64_t i = 0; i < cu_lens[in.batch]; i++)
        kv_read(k, slots[i], i);
}

#define LINE "f16 flat S=4 blocks=6 D=8 B=3 n=3 R=3 run=5 req_id seq_lens starts rest=1"
#define PLANES "f16 kind=1 S=4 blocks=6 D=8 B=3 n=3 run=5 planes=1"

static const struct rejection rejections[] = {
    {"block_table=-", SY_ERR_NULL, NULL, "page_indices and indptr"},
    {"cu_lens.shape[0]=0", SY_ERR_SHAPE, "[0]"},
    {"starts.shape[0]=2", SY_ERR_SHAPE, "[2]", "[3]"},
    {"out.ndim=3", SY_ERR_SHAPE, ",8,1]", ",8]"},
    {"block_size=0", SY_ERR_VALUE, "0", "1 or more", .code = SY_FAULT_BAD_BLOCK_SIZE},
    {"layout=2", SY_ERR_VALUE, "2", "NHD, HND"},
    {"num_planes=256", SY_ERR_VALUE, "256", "255"},
    {"out.shape[0]=2^32", SY_ERR_OVERFLOW, "4294967296", "2^32"},
    {"cache.strides[0]=7", SY_ERR_STRIDE, "row stride 7", "8"},
    {"cache.1.shape[0]=5", SY_ERR_SHAPE, "cache of plane 1 has 20 rows", "24", .line = PLANES},
    {"block_size=3", SY_ERR_SHAPE, "blocks of 4 rows", "3", .blame = "cache", .line = PLANES},
    {.change = NULL},
};

/* Shapes of inputs and sizes among the phases that the engine pairs. */
static const struct rejection ladder[] = {
    {"starts.shape[0]=2", SY_ERR_SHAPE},     {"block_size=0", SY_ERR_VALUE},
    {"out.shape[0]=2^32", SY_ERR_OVERFLOW},  {"out.shape[1]=7", SY_ERR_SHAPE},
    {"cu_lens.strides[0]=2", SY_ERR_STRIDE}, {.change = NULL},
};

const struct op_case case_kv_ragged = {
    .name = "kv_ragged",
    .make = make,
    .oracle = oracle,
    .hard = {KV_NOTES, KV_FAULTS, "TABLE_SHORT", "several rows of a sequence", "empty run", "pages cut",
             "rows that are left"},
    .small = LINE,
    .shapes = {"f16 flat B=10 n=20 S=12 blocks=83 D=30 run=120 starts",
               "f32 flat B=1 n=6 S=5 blocks=6 D=4 run=20 planes=255",
               "f32 hnd kind=2 B=1 n=6 S=5 blocks=6 D=2 H=2 run=20 planes=255",
               "int8 flat B=1 n=6 S=5 blocks=6 D=4 run=20 planes=255 parts=3 scale_rank=1"},
    .lines = {"f16 flat B=40 n=20 S=12 blocks=83 D=300 run=240 starts",
              "f16 kind=1 B=2 n=1 S=2000 blocks=2 D=400 run=2000 starts",
              "f16 flat B=64 n=3 S=4 blocks=25 D=5000 run=1 starts faults=3",
              "f32 hnd kind=2 B=9 n=40 S=20 blocks=300 H=5 D=9 run=700 planes=1",
              "ds32_fp8 kind=1 B=9 n=40 S=20 blocks=40 run=200"},
    .rejections = rejections,
    .ladder = ladder,
    .unchecked = " layout ",
    .calls = 600,
};
