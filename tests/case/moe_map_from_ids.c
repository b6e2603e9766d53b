/*
 * moe_map_from_ids: the map of expert ids, and the probs of their weights.
 */
#include "case.h"

static void make(struct call *c)
{
    sy_moe_map_from_ids_args *const a = case_args(c);
    const int64_t experts = a->num_experts = case_size(c, "E", 0, 40, 900);
    const int64_t most = experts < 40 ? experts : 40, usual = most < 8 ? most : 8;
    case_extent(c, "T", case_size(c, "T", 0, 20, 700) + (case_chance(c, "many", 3) ? 256 : 0));
    case_any_scalar(c, "allow_missing");
    const int64_t k = case_size(c, "K", 0, usual, most);
    struct operand *const ids = case_in(c, "ids");
    struct stream *const s = case_stream(c, "faults");
    case_fill_ids(c, ids, experts);
    const int64_t n = case_count(ids), missing[] = {-1, experts};
    for (int64_t i = 0; i < n && a->allow_missing; i++)
        if (stream_chance(s, 4))
            case_put(ids, i, missing[stream_below(s, 2)]);
    const int64_t far[] = {
        INT32_MIN, INT32_MAX, -2, experts + 1, -1, experts, ids->type.bits == 64 ? INT64_C(1) << 32 : 1000};
    for (int64_t left = case_chance(c, "faulty", 2) ? 1 + stream_below(s, 2) : 0; left > 0 && n > 0; left--) {
        const int64_t last = 128 * stream_below(s, n / k / 128) + 127; /* of a block, every other time */
        const int64_t t = n / k > 127 && stream_chance(s, 2) ? last : stream_below(s, n / k);
        const int64_t j = stream_below(s, k), at = t * k + j,
                      like = t * k + (j + 1 + stream_below(s, k - 1)) % k;
        case_put(ids, at, stream_chance(s, 2) ? far[stream_below(s, 7)] : case_get(ids, like));
    }
    if (case_flag(c, "weights"))
        case_fill(c, case_in(c, "weights"));
}

static bool is_missing(const sy_moe_map_from_ids_args *a, int64_t id)
{
    return a->allow_missing && (id == -1 || id == a->num_experts);
}

static sy_fault first_fault(struct call *c, int64_t tokens, int64_t k)
{
    const sy_moe_map_from_ids_args *const a = case_args(c);
    const int64_t *const ids = case_wide(c, "ids");
    for (int64_t i = 0; i < tokens * k; i++) {
        const int64_t t = i / k, j = i % k, id = ids[i];
        if (is_missing(a, id))
            continue;
        if (id < 0 || id >= a->num_experts)
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_INDEX_RANGE, "ids", t, j, id, a->num_experts};
        for (int64_t before = 0; before < j; before++)
            if (ids[t * k + before] == id)
                return (sy_fault){SY_ERR_ROUTING, SY_FAULT_DUPLICATE, "ids", t, j, id, before};
    }
    return (sy_fault){0};
}

static void oracle(struct call *c)
{
    const struct operand *const ids = case_field(c, "ids"), *const weights = case_field(c, "weights");
    const int64_t tokens = ids->shape[0], k = ids->shape[1], experts = case_get_extent(c, "E");
    uint8_t *const map = case_want(c, "routing_map"), *const probs = case_want(c, "probs");
    c->query.rows = tokens;
    c->want = first_fault(c, tokens, k);
    case_note(c, "outside", c->want.status == SY_ERR_INDEX);
    case_note(c, "named twice", c->want.status == SY_ERR_ROUTING);
    case_note(c, "fault of a late token", c->want.status != SY_OK && c->want.batch > tokens / 2);
    case_note(c, "more than 255 tokens", tokens > 255);
    if (c->want.status != SY_OK)
        return;
    memset(map, 0, (size_t)(tokens * experts));
    if (probs != NULL)
        memset(probs, 0, (size_t)(tokens * experts) * weights->element);
    for (int64_t i = 0; i < tokens * k; i++) {
        const int64_t id = case_get(ids, i), cell = i / k * experts + id;
        case_note(c, "missing", id == -1 || id == experts);
        if (id == -1 || id == experts)
            continue;
        map[cell] = 1;
        if (probs != NULL)
            memcpy(probs + (size_t)cell * weights->element, weights->dense + (size_t)i * weights->element,
                   weights->element);
    }
}

static const struct rejection rejections[] = {
    {"num_experts=2^29 ids,weights.shape[0]=2^33", SY_ERR_OVERFLOW, "536870912 for 8589934592", "2^63"},
    {.change = NULL},
};

static const struct rejection ladder[] = {
    {"probs.data=weights", SY_ERR_ALIAS},
    {"ids.data[10]=7", SY_ERR_INDEX},
    {.change = NULL},
};

const struct op_case case_moe_map_from_ids = {
    .name = "moe_map_from_ids",
    .make = make,
    .oracle = oracle,
    .hard = {"outside", "named twice", "fault of a late token", "more than 255 tokens", "missing"},
    .small = "T=5 K=3 E=7 weights weights=f16",
    .lines = {"T=4001 K=8 E=130 weights", "T=4001 K=5 E=130 allow_missing ids=i64", "T=4001 K=8 E=130 faulty",
              "T=5 K=40 E=40000 weights weights=bf16", "T=3 K=33 E=16384 allow_missing faulty"},
    .rejections = rejections,
    .ladder = ladder,
    .calls = 600,
};
