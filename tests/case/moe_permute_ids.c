/*
 * moe_permute_ids: rows of tokens in the order of their ids, whole or a window, as they are or as codes.
 */
#include "rows.h"

/* Experts, low ones more often, or any numbers; missing ones; a wrong one. */
static void fill_ids(struct call *c, struct operand *ids, int64_t experts, bool missing)
{
    struct stream *const s = case_stream(c, "ids");
    const int64_t wrong = case_chance(c, "wrong", 6) ? stream_below(s, case_count(ids)) : -1;
    const int64_t odds = 1 + stream_below(s, 4); /* 1: all */
    const int64_t bad[] = {-2, experts + 1, INT32_MIN, INT32_MAX, ids->element == 8 ? INT64_C(1) << 32 : -3};
    for (int64_t i = 0; i < case_count(ids); i++) {
        int64_t id = stream_below(s, 1 + stream_below(s, experts > 0 ? experts : 50));
        if (experts == 0)
            id = ids->element == 8 && stream_chance(s, 4) ? (int64_t)stream_bits(s) : id - 20;
        if (missing && stream_chance(s, odds))
            id = stream_chance(s, 2) ? -1 : experts;
        if (experts > 0 && i >= wrong && wrong >= 0 && (i - wrong) % 7 == 0)
            id = bad[stream_below(s, 5)];
        case_put(ids, i, id);
    }
}

/* All, the first N, all but the last N; a window of them. */
static void choose_rows(struct call *c, sy_moe_permute_ids_args *a, int64_t total)
{
    const int64_t kind = case_pick(c, "kept", 4);
    int64_t kept = total;
    if (kind == 1 && total > 0)
        kept = a->num_out_tokens = 1 + case_pick(c, "rows", total);
    if (kind == 2)
        kept = total + (a->num_out_tokens = -case_pick(c, "rows", total + 1));
    if (kind == 3)
        a->num_out_tokens = total + case_pick(c, "rows", 9);
    a->window = case_flag(c, "window");
    if (a->window) {
        const int64_t where = case_pick(c, "begin", 4); /* from 2 on late, where missing slots leave rows */
        a->row_begin = where == 0 ? 0 : case_pick(c, "first", kept + 1);
        if (where >= 2)
            a->row_begin = kept - a->row_begin / 4;
        a->row_end = a->row_begin + case_pick(c, "last", kept - a->row_begin + 1);
        case_note(c, "window", a->row_end > a->row_begin);
    }
    case_extent(c, "M", a->window ? a->row_end - a->row_begin : kept);
    case_note(c, "cut", kept < total);
}

static void make(struct call *c)
{
    sy_moe_permute_ids_args *const a = case_args(c);
    const sy_row_format *const f = rows_format(c, 5);
    const bool coded = f != NULL;
    const int64_t tokens = case_size(c, "T", 0, coded ? 8 : 30, coded ? 12 : 90),
                  slots = case_size(c, "K", 0, 12, coded ? 12 : 70);
    const int64_t experts = case_pick(c, "any", 3) == 2 ? 0 : case_size(c, "E", 1, 20, 70000);
    case_extent(c, "E", experts);
    a->num_experts = experts;
    a->allow_missing = experts > 0 && case_flag(c, "allow_missing");
    choose_rows(c, a, tokens * slots);
    fill_ids(c, case_in(c, "ids"), experts, a->allow_missing);
    if (case_flag(c, "probs"))
        case_fill(c, case_in(c, "probs"));
    if (!coded) {
        case_size(c, "H", 0, 40, tokens * slots < 500 ? 1032 : 40);
        case_fill(c, case_in(c, "tokens"));
        return;
    }
    case_fill_groups(c, case_in_as(c, "tokens", case_number_type(c, "tokens"), -1, NULL),
                     f->group > 0 ? f->group : INT32_MAX);
    case_out_codes(c, "permuted_tokens", f->q_type, -1, NULL);
    case_out_codes(c, "permuted_scales", f->scale_type, -1, NULL);
}

struct slot {
    int64_t id, number;
};

static int by_id(const void *left, const void *right)
{
    const struct slot *a = left, *b = right;
    if (a->id != b->id)
        return a->id < b->id ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

/* The place of every slot in the stable ascending order of n ids, which are sorted as a whole by id and number; with experts >= 0 the
   ids -1 and `experts` take no part in the order and get -1. */
static void find_places(int64_t n, const int64_t *ids, int64_t experts, int32_t *places)
{
    struct slot *slots = calloc((size_t)n + 1, sizeof *slots);
    if (slots == NULL)
        abort();
    int64_t live = 0;
    for (int64_t i = 0; i < n; i++) {
        places[i] = -1;
        if (experts < 0 || (ids[i] != -1 && ids[i] != experts))
            slots[live++] = (struct slot){ids[i], i};
    }
    qsort(slots, (size_t)live, sizeof *slots, by_id);
    for (int64_t i = 0; i < live; i++)
        places[slots[i].number] = (int32_t)i;
    free(slots);
}

/* Row i / by of `from` to the place of slot i, where the window has it; zeros where no slot is. */
static void expect_rows(struct call *c, const char *field, const unsigned char *from, size_t bytes,
                        int64_t by, const int32_t *places)
{
    const sy_moe_permute_ids_args *const a = case_args(c);
    const struct operand *const out = case_field(c, field);
    const int64_t total = case_get_extent(c, "T") * case_get_extent(c, "K");
    if (!out->given)
        return;
    memset(out->want, 0, out->bytes);
    for (int64_t i = 0; i < total; i++)
        if (places[i] >= a->row_begin && places[i] - a->row_begin < out->shape[0] && bytes > 0)
            memcpy(out->want + (size_t)(places[i] - a->row_begin) * bytes, from + (size_t)(i / by) * bytes,
                   bytes);
}

/* The first id outside. */
static bool find_wrong(struct call *c, const int64_t *ids, int64_t total)
{
    const sy_moe_permute_ids_args *const a = case_args(c);
    const int64_t experts = a->num_experts, slots = case_get_extent(c, "K");
    for (int64_t i = 0; i < total && experts > 0; i++)
        if ((ids[i] < 0 || ids[i] >= experts) && !(a->allow_missing && (ids[i] == -1 || ids[i] == experts))) {
            c->want =
                (sy_fault){SY_ERR_INDEX, SY_FAULT_INDEX_RANGE, "ids", i / slots, i % slots, ids[i], experts};
            return true;
        }
    return false;
}

static void expect_experts(struct call *c, const int64_t *ids, int64_t total)
{
    struct operand *const counts = case_field(c, "expert_counts");
    struct operand *const offsets = case_field(c, "expert_offsets");
    const int64_t experts = case_get_extent(c, "E");
    int64_t *const n = case_memory(c, (size_t)(experts + 1) * sizeof *n), before = 0;
    for (int64_t i = 0; i < total; i++)
        if (ids[i] >= 0 && ids[i] < experts)
            n[ids[i]]++;
    for (int64_t e = 0; e <= experts; before += n[e++]) {
        if (counts->given && e < experts)
            case_put_want(counts, e, n[e]);
        if (offsets->given)
            case_put_want(offsets, e, before);
        case_note(c, "empty expert", experts > 0 && n[e] == 0);
    }
}

static void oracle(struct call *c)
{
    const sy_moe_permute_ids_args *const a = case_args(c);
    const struct operand *const x = case_field(c, "tokens"), *const probs = case_field(c, "probs");
    const int64_t slots = case_get_extent(c, "K"), total = case_get_extent(c, "T") * slots;
    const int64_t *const ids = case_wide(c, "ids");
    int32_t *const places = case_memory(c, (size_t)total * sizeof *places);
    const unsigned char *codes, *scales;
    c->query.rows = case_get_extent(c, "M");
    const bool wrong = find_wrong(c, ids, total);
    case_note(c, "wrong", wrong);
    if (wrong)
        return;
    find_places(total, ids, a->allow_missing ? a->num_experts : -1, places);
    case_expect(c, "sorted_indices", places);
    if (a->row_format == NULL)
        expect_rows(c, "permuted_tokens", x->dense, (size_t)x->shape[1] * x->element, slots, places);
    else {
        const size_t scale = a->row_format->scale_type.bits / 8;
        rows_codes(c, a->row_format, &codes, &scales);
        expect_rows(c, "permuted_tokens", codes, (size_t)x->shape[1], slots, places);
        expect_rows(c, "permuted_scales", scales, (size_t)case_get_extent(c, "G") * scale, slots, places);
        case_note(c, "codes", total > 0 && x->bytes > 0);
    }
    expect_rows(c, "permuted_probs", probs->dense, probs->element, 1, places);
    expect_experts(c, ids, total);
    int64_t live = 0;
    for (int64_t i = 0; i < total; i++) {
        const bool many = a->num_experts > 65536;
        live += places[i] >= 0;
        case_note(c, "missing", places[i] < 0);
        case_note(c, "missing of very many", places[i] < 0 && many);
        case_note(c, "repeated", i % slots > 0 && ids[i] == ids[i - 1]);
        case_note(c, "any ids", ids[i] < INT32_MIN || ids[i] > INT32_MAX);
    }
    case_note(c, "many slots", slots > 8);
    case_note(c, "window after all rows", a->row_begin > live && c->query.rows > 0 && x->bytes > 0);
}

#define CODED "T=3 E=2 K=2 H=256 row_format=fp8_128"
static const struct rejection rejections[] = {
    {"num_experts=0", SY_ERR_VALUE, "is 0", "number of experts", .line = "T=5 K=2 H=3 E=4 expert_counts",
     .late = true},
    {"num_experts=0", SY_ERR_VALUE, "is 0", "number of experts", .line = "T=5 K=2 H=3 E=4 expert_offsets",
     .late = true},
    {"num_experts=0", SY_ERR_VALUE, "is 0", "number of experts", .line = "T=5 K=2 H=3 E=4 allow_missing"},
    {"num_out_tokens=-11", SY_ERR_VALUE, "-11", "-10"},
    {"row_begin=1", SY_ERR_VALUE, "is 1 without window", "0"},
    {"row_end=1", SY_ERR_VALUE, "is 1 without window", "0"},
    {"row_begin=-1", SY_ERR_VALUE, "is -1", "0 to 10", .line = "T=5 K=2 H=3 E=4 window"},
    {"row_end=2 row_begin=3", SY_ERR_VALUE, "is 2", "3 to 10", .line = "T=5 K=2 H=3 E=4 window"},
    {"row_begin=11", SY_ERR_VALUE, "is 11", "0 to 10", .line = "T=5 K=2 H=3 E=4 window"},
    {"row_end=11", SY_ERR_VALUE, "is 11", "0 to 10", .line = "T=5 K=2 H=3 E=4 window"},
    {"ids.shape=[5,2^30]", SY_ERR_VALUE, "5368709120 slots", "2147483647"},
    {"ids.shape=[5,2^62]", SY_ERR_VALUE, "slots", "2147483647"},
    {"tokens.shape=[2^31-1,2^31-1] ids.shape=[2^31-1,1]", SY_ERR_OVERFLOW, "2147483647",
     .blame = "tokens|ids"},
    FORMAT_REJECTIONS(CODED),
    {.change = NULL},
};

const struct op_case case_moe_permute_ids = {
    .name = "moe_permute_ids",
    .make = make,
    .oracle = oracle,
    .hard = {"window", "cut", "wrong", "empty expert", "missing", "missing of very many", "repeated",
             "any ids", "many slots", "window after all rows", "codes"},
    .small = "T=5 K=2 H=3 E=4 tokens=f64",
    .shapes = {"T=1 K=8 E=256 H=64 bf16 probs", "T=50 K=4 E=30 H=8 bf16 expert_counts",
               "T=70 K=5 E=16 H=8200 bf16", "T=90 K=20 any=2 H=24 bf16 probs",
               "T=80 K=70 E=100 H=16 bf16 wrong", "T=61 K=4 E=5000 H=16 bf16"},
    .lines = {"T=2001 K=6 H=150 E=60 bf16 probs expert_counts expert_offsets",
              "T=2001 K=6 H=150 any=2 bf16 probs", "T=20001 K=6 H=2 E=60 wrong",
              "T=200 E=9 K=3 H=512 row_format=mxfp8 bf16"},
    .rejections = rejections,
    .calls = 240,
};
