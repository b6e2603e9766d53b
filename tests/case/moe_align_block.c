/*
 * moe_align_block: slots by expert, every expert in whole blocks.
 */
#include "case.h"

#include "oracle/moe_align_block.h"

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

static void oracle(struct call *c)
{
    const sy_moe_align_block_args *const a = case_args(c);
    const struct operand *const ids = case_field(c, "ids"), *const sorted = case_field(c, "sorted_slots"),
                                *const blocks = case_field(c, "block_experts");
    const struct align_case in = {
        ids->shape[0],    ids->shape[1],    a->num_experts,      a->block_size,
        a->allow_missing, a->skip_unmapped, case_wide(c, "ids"), case_dense(c, "expert_map"),
        sorted->shape[0], blocks->shape[0]};
    struct align_result out = {(int32_t *)(void *)sorted->want, (int32_t *)(void *)blocks->want, 0,
                               case_memory(c, (size_t)in.experts * sizeof(int64_t)),
                               case_memory(c, (size_t)(in.experts + 1) * sizeof(int64_t))};
    c->want = oracle_moe_align_block(&in, &out);
    const bool ok = c->want.status == SY_OK;
    case_note(c, "wrong ids", !ok && strcmp(c->want.argument, "ids") == 0);
    case_note(c, "wrong map", !ok && strcmp(c->want.argument, "expert_map") == 0);
    if (!ok)
        return;
    case_expect(c, "num_padded", &out.padded);
    case_expect(c, "expert_counts", out.counts);
    case_expect(c, "expert_offsets", out.offsets);
    case_note(c, "every place in use", out.padded == in.places && in.block > 1 && in.places > 0);
    for (int64_t e = 0; e < in.experts; e++) {
        case_note(c, "empty expert", out.counts[e] == 0);
        case_note(c, "exactly blocks", in.block > 1 && out.counts[e] > 0 && out.counts[e] % in.block == 0);
        case_note(c, "unmapped", in.map != NULL && in.map[e] == -1 && !in.skip_unmapped);
        case_note(c, "skipped", in.map != NULL && in.map[e] == -1 && in.skip_unmapped);
    }
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
