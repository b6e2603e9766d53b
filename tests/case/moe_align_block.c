/*
 * moe_align_block: slots by expert, every expert in whole blocks.
 */
#include "case.h"

static void fill_ids(struct call *c, struct operand *ids, int64_t experts, bool missing)
{
    struct stream *const s = case_stream(c, "ids");
    const int64_t wrong = case_chance(c, "wrong_ids", 8) ? stream_below(s, case_count(ids)) : -1;
    const int64_t bad[] = {-2, experts + 1, INT32_MIN, experts + 9,
                           ids->element == 8 ? INT64_C(1) << 32 : -3};
    for (int64_t i = 0; i < case_count(ids); i++) {
        int64_t id = experts > 0 ? stream_below(s, 1 + stream_below(s, experts)) : -1;
        if (missing && stream_chance(s, 6))
            id = stream_chance(s, 2) ? -1 : experts;
        case_put(ids, i, wrong >= 0 && i >= wrong && (i - wrong) % 9 == 0 ? bad[stream_below(s, 5)] : id);
    }
}

static void fill_map(struct call *c, struct operand *map)
{
    struct stream *const s = case_stream(c, "expert_map");
    const int64_t wrong = case_chance(c, "wrong_map", 6) ? stream_below(s, case_count(map)) : -1;
    for (int64_t e = 0; e < case_count(map); e++)
        case_put(map, e, stream_chance(s, 3) ? -1 : stream_below(s, INT32_MAX));
    if (wrong >= 0 && wrong < case_count(map))
        case_put(map, wrong, stream_chance(s, 2) ? -2 : INT32_MIN);
}

/* P, or places that are not needed. */
static void make(struct call *c)
{
    sy_moe_align_block_args *const a = case_args(c);
    const bool few = case_chance(c, "few", 8);
    const int64_t tokens = few ? 1 : case_size(c, "T", 0, 30, 400),
                  slots = case_size(c, "K", few, few ? 3 : 9, few ? 3 : 9);
    const int64_t experts = few ? 2 : case_size(c, "E", 0, 20, 300);
    case_extent(c, "T", tokens);
    case_extent(c, "E", experts);
    a->num_experts = experts;
    a->block_size = case_size(c, "B", 1, 4, 70);
    a->allow_missing = experts == 0 || case_flag(c, "allow_missing");
    fill_ids(c, case_in(c, "ids"), experts, a->allow_missing);
    if (case_flag(c, "expert_map")) {
        fill_map(c, case_in(c, "expert_map"));
        case_any_scalar(c, "skip_unmapped");
    }
    const int64_t total = tokens * slots, used = experts < total ? experts : total;
    const int64_t places = (total + used * (a->block_size - 1)) / a->block_size * a->block_size;
    const int64_t longer = case_chance(c, "longer", 3) ? case_pick(c, "more", 40) : 0;
    c->query = (sy_query){.rows = places, .slots = places / a->block_size};
    case_out_as(c, "sorted_slots", SY_I32, 1, (int64_t[]){places + longer});
    case_out_as(c, "block_experts", SY_I32, 1, (int64_t[]){places / a->block_size + longer / 3});
    case_note(c, "longer", longer > 0);
}

static sy_fault first_fault(const sy_moe_align_block_args *a, const struct operand *ids, const int64_t *id,
                            const int32_t *map)
{
    const int64_t experts = a->num_experts, slots = ids->shape[1];
    for (int64_t i = 0; i < case_count(ids); i++)
        if ((id[i] < 0 || id[i] >= experts) && !(a->allow_missing && (id[i] == -1 || id[i] == experts)))
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_INDEX_RANGE, "ids", i / slots, i % slots, id[i],
                              experts};
    for (int64_t e = 0; map != NULL && e < experts; e++)
        if (map[e] < -1)
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_INDEX_RANGE, "expert_map", -1, e, map[e], -1};
    return (sy_fault){0};
}

/* For every expert one walk over all slots, and one element appended at a time; what has not been appended when all are done
   is filler. */
static void oracle(struct call *c)
{
    const sy_moe_align_block_args *const a = case_args(c);
    const struct operand *const ids = case_field(c, "ids"), *const sorted = case_field(c, "sorted_slots"),
                                *const blocks = case_field(c, "block_experts");
    const int64_t *const id = case_wide(c, "ids"), experts = a->num_experts, total = case_count(ids);
    const int32_t *const map = case_dense(c, "expert_map");
    int32_t *const slot = case_want(c, "sorted_slots"), *const block = case_want(c, "block_experts");
    int64_t *const counts = case_memory(c, (size_t)experts * sizeof *counts),
                   *const offsets = case_memory(c, (size_t)(experts + 1) * sizeof *offsets), n = 0, b = 0;
    c->want = first_fault(a, ids, id, map);
    const bool ok = c->want.status == SY_OK;
    case_note(c, "wrong ids", !ok && strcmp(c->want.argument, "ids") == 0);
    case_note(c, "wrong map", !ok && strcmp(c->want.argument, "expert_map") == 0);
    if (!ok)
        return;
    for (int64_t e = 0; e < experts; e++) {
        for (int64_t i = 0; i < total; i++)
            if (id[i] == e && !(a->skip_unmapped && map[e] == -1))
                slot[n++] = (int32_t)i;
        counts[e] = n - offsets[e];
        while (n % a->block_size)
            slot[n++] = (int32_t)total;
        while (b * a->block_size < n)
            block[b++] = map != NULL ? map[e] : (int32_t)e;
        offsets[e + 1] = n;
        case_note(c, "empty expert", counts[e] == 0);
        case_note(c, "exactly blocks", a->block_size > 1 && counts[e] > 0 && counts[e] % a->block_size == 0);
        case_note(c, "unmapped", map != NULL && map[e] == -1 && !a->skip_unmapped);
        case_note(c, "skipped", map != NULL && map[e] == -1 && a->skip_unmapped);
    }
    case_note(c, "every place in use", n == sorted->shape[0] && a->block_size > 1 && n > 0);
    case_expect(c, "num_padded", &(int32_t){(int32_t)n});
    case_expect(c, "expert_counts", counts);
    case_expect(c, "expert_offsets", offsets);
    while (n < sorted->shape[0])
        slot[n++] = (int32_t)total;
    while (b < blocks->shape[0])
        block[b++] = -1;
}

static const struct rejection rejections[] = {
    {"sorted_slots.shape[0]=17", SY_ERR_SHAPE, "17 elements", "at least 18"},
    {"block_experts.shape[0]=5", SY_ERR_SHAPE, "5 elements", "at least 6"},
    {"sorted_slots.strides[0]=2", SY_ERR_STRIDE, "2", "contiguous"},
    {"block_experts.data=ids", SY_ERR_ALIAS},
    {"sorted_slots.data=block_experts", SY_ERR_ALIAS},
    {"expert_map=-", SY_ERR_NULL, "is missing while skip_unmapped is set"},
    {"ids.shape=[5,2^30]", SY_ERR_VALUE, "5368709120 slots", "2147483647"},
    {"ids.shape=[5,2^62]", SY_ERR_VALUE, "slots", "2147483647"},
    {"ids.shape=[2^31,0]", SY_ERR_VALUE, "2147483648 tokens", "2147483647"},
    {"block_size=2147483647", SY_ERR_VALUE, "places", "2147483647"},
    {.change = NULL},
};

const struct op_case case_moe_align_block = {
    .name = "moe_align_block",
    .make = make,
    .oracle = oracle,
    .hard = {"longer", "wrong ids", "wrong map", "every place in use", "empty expert", "exactly blocks",
             "unmapped", "skipped"},
    .small = "T=5 K=2 E=4 B=3 expert_map skip_unmapped expert_counts",
    .lines = {"T=30001 K=5 E=60 B=16", "T=30001 K=5 E=60 B=70 expert_map skip_unmapped allow_missing",
              "T=30001 K=5 E=60 B=1 wrong_ids expert_counts", "T=30001 K=5 E=60 B=4 expert_map wrong_map"},
    .rejections = rejections,
    .unchecked = " sorted_slots block_experts ",
    .calls = 240,
};
