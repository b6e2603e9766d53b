/*
 * kv_slots: the row of a paged cache for every token of a flat batch.
 */
#include "kv.h"

static void make(struct call *c)
{
    static const char *const planted[] = {"batch",        "position", "position",      "block_table",
                                          "page_indices", "indptr",   "last_page_len", NULL};
    sy_kv_slots_args *const a = case_args(c);
    const DLDataType type = case_out_as(c, "slots", case_type(c, "slots"), -1, NULL)->type;
    const int64_t rows = kv_choose_rows(c, type, &a->block_size), n = case_size(c, "R", 1, 4, 9);
    a->num_rows = case_flag(c, "unknown") ? 0 : rows;
    case_any_scalar(c, "pad");
    struct kv_table t = kv_make_table(c, n, a->block_size, rows, false);
    struct stream *const s = case_stream(c, "batch");
    int64_t shape[3];
    const int rank = kv_shape(c, case_size(c, "tokens", 0, 60, 900), shape);
    struct operand *const position = case_in_as(c, "position", (DLDataType){0}, rank, shape),
                          *const batch = n > 1 || case_flag(c, "batch")
                                             ? case_in_as(c, "batch", (DLDataType){0}, rank, shape)
                                             : NULL;
    int64_t r = 0;
    for (int64_t i = 0; i < case_count(position); i++) {
        r = stream_chance(s, 3) ? stream_below(s, n) : r;
        for (int64_t k = 0; k < n && kv_room(&t, r) == 0; k++)
            r = (r + 1) % n;
        const bool padding = a->pad != SY_PAD_ERROR && stream_chance(s, 5);
        case_put(position, i, padding ? -1 : kv_draw(c, &t, r, INT64_MAX));
        if (batch != NULL)
            case_put(batch, i, r);
    }
    kv_plant(c, planted, rows / a->block_size, t.columns * a->block_size);
}

/* Token by token: a wrong list comes first, whatever token is looked up. */
static void oracle(struct call *c)
{
    const sy_kv_slots_args *const a = case_args(c);
    struct operand *const slots = case_field(c, "slots");
    const int64_t s = a->block_size, *const batch = case_wide(c, "batch"),
                  *const position = case_wide(c, "position");
    const int64_t most = slots->type.bits == 32 ? INT64_C(1) << 31 : INT64_MAX / s * s;
    struct gather_case one = {.batch = 1,
                              .k = 1,
                              .rows = a->num_rows > 0 ? a->num_rows : most,
                              .block_size = s,
                              .padded = a->pad != SY_PAD_ERROR};
    kv_find_table(c, &one);
    c->query.rows = case_count(slots);
    for (int64_t i = 0; i < case_count(slots); i++) {
        int64_t slot;
        one.req_id = batch != NULL ? &batch[i] : NULL;
        one.indices = &position[i];
        sy_fault f = oracle_kv_gather(&one, &slot);
        if (f.status != SY_OK && f.code != SY_FAULT_LENGTH_RANGE) {
            f.batch = -1;
            f.position = i;
        }
        if (!kv_expect(c, &f))
            return;
        case_put_want(slots, i, slot);
        case_note(c, "padding", slot < 0);
        case_note(c, "slot past 2^30", slot > 1 << 30);
    }
}

#define LISTS "i32 batch=i32 position=i32 slots=i32 lists last_page_len S=4 blocks=6 R=2 n=8 tokens=6"

static const struct rejection rejections[] = {
    {"block_table=-", SY_ERR_NULL, "is missing", "page_indices and indptr"},
    {"page_indices=-", SY_ERR_NULL, .line = LISTS},
    {"indptr=-", SY_ERR_NULL, .line = LISTS},
    {"batch=-", SY_ERR_SHAPE, "2 rows", "want 1", .blame = "block_table"},
    {"batch.ndim=2", SY_ERR_SHAPE, "[6,1]", "[6]"},
    {"batch.shape[0]=5", SY_ERR_SHAPE, "[5]", "[6]"},
    {"indptr.shape[0]=0", SY_ERR_SHAPE, "[0]", .line = LISTS},
    {"last_page_len.shape[0]=1", SY_ERR_SHAPE, "[1]", "[2]", .line = LISTS},
    {"block_size=0", SY_ERR_VALUE, "0", "1 or more", .code = SY_FAULT_BAD_BLOCK_SIZE},
    {"num_rows=-1", SY_ERR_VALUE, "-1", "0 or more"},
    {"num_rows=2^31+1", SY_ERR_VALUE, "2147483649", "2147483648", .late = true},
    {"block_size=2^61", SY_ERR_OVERFLOW, "8 columns", "2^63", .blame = "block_table"},
    {"position.shape[0]=2^32 batch.shape[0]=2^32", SY_ERR_OVERFLOW, "4294967296", "2^32"},
    {.change = NULL},
};

/* Shapes of inputs and sizes among the phases that the engine pairs. */
static const struct rejection ladder[] = {
    {"batch.shape[0]=5", SY_ERR_SHAPE},
    {"pad=3", SY_ERR_VALUE},
    {"block_size=2^61", SY_ERR_OVERFLOW, .blame = "block_table"},
    {"slots.shape[0]=7", SY_ERR_SHAPE},
    {"position.strides[0]=2", SY_ERR_STRIDE},
    {.change = NULL},
};

const struct op_case case_kv_slots = {
    .name = "kv_slots",
    .make = make,
    .oracle = oracle,
    .hard = {KV_FAULTS, "padding", "slot past 2^30"},
    .small = "i32 batch=i32 position=i32 slots=i32 S=4 blocks=6 R=2 n=8 tokens=6",
    .shapes = {"R=2 n=50 S=16 blocks=50 tokens=70001 pad=skip"},
    .lines = {"R=1 n=50 S=16 blocks=50 tokens=300001 pad=skip one slots=i64",
              "R=9 n=50 S=12 blocks=90 tokens=70001 lists faults=3"},
    .rejections = rejections,
    .ladder = ladder,
    .calls = 400,
};
