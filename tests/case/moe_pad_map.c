/*
 * moe_pad_map: every expert gets a multiple of `alignment` tokens.
 */
#include "case.h"

static void make(struct call *c)
{
    sy_moe_pad_map_args *const a = case_args(c);
    case_size(c, "T", 0, 60, 400);
    const int64_t experts = case_size(c, "E", 0, 30, 600);
    const int64_t k = case_size(c, "K", 0, experts < 8 ? experts : 8, experts);
    a->alignment = case_size(c, "a", 1, 9, 40);
    case_route(c, case_in(c, "routing_map"), k);
}

static int64_t tokens_of(int64_t tokens, int64_t experts, const uint8_t *map, int64_t e)
{
    int64_t n = 0;
    for (int64_t t = 0; t < tokens; t++)
        n += map[t * experts + e] != 0;
    return n;
}

/* Expert by expert, one token added at a time, and every column counted anew after each. The first expert that cannot be
   padded, or -1. */
static int64_t pad(int64_t tokens, int64_t experts, int64_t alignment, uint8_t *map, int64_t *counts)
{
    for (int64_t e = 0; e < experts; e++) {
        while (tokens_of(tokens, experts, map, e) % alignment) {
            int64_t t = 0;
            while (t < tokens && map[t * experts + e])
                t++;
            if (t == tokens)
                return e;
            map[t * experts + e] = 1;
        }
        counts[e] = tokens_of(tokens, experts, map, e);
    }
    return -1;
}

static void oracle(struct call *c)
{
    const sy_moe_pad_map_args *const a = case_args(c);
    const struct operand *const map = case_field(c, "routing_map");
    const int64_t tokens = map->shape[0], experts = map->shape[1];
    int64_t *const counts = case_memory(c, (size_t)experts * sizeof *counts);
    uint8_t *const padded = case_want(c, "padded_map");
    memcpy(padded, map->dense, map->bytes);
    const int64_t bad = pad(tokens, experts, a->alignment, padded, counts);
    c->query.rows = tokens;
    case_note(c, "rejected", bad >= 0);
    if (bad >= 0) {
        const int64_t n = tokens_of(tokens, experts, map->dense, bad);
        c->want = (sy_fault){SY_ERR_ROUTING, SY_FAULT_LENGTH_RANGE, "routing_map", -1, bad, n, tokens};
        return;
    }
    case_expect(c, "expert_counts", counts);
    for (int64_t e = 0; e < experts; e++) {
        case_note(c, "empty expert", counts[e] == 0);
        case_note(c, "expert with all tokens", counts[e] == tokens && tokens > 0);
        case_note(c, "padded", counts[e] > 0 && a->alignment > 1);
    }
    case_note(c, "many experts", experts > 256);
}

static const struct rejection rejections[] = {
    {"routing_map.shape[0]=2^31", SY_ERR_VALUE, "2147483648 tokens", "2147483647"},
    {"routing_map.shape[1]=2^31", SY_ERR_VALUE, "2147483648 experts", "2147483647"},
    {"routing_map.data[2]=1 routing_map.data[5]=1 routing_map.data[8]=1 routing_map.data[11]=1 "
     "routing_map.data[14]=1",
     SY_ERR_ROUTING, "expert 2", .code = SY_FAULT_LENGTH_RANGE},
    {.change = NULL},
};

const struct op_case case_moe_pad_map = {
    .name = "moe_pad_map",
    .make = make,
    .oracle = oracle,
    .hard = {"rejected", "empty expert", "expert with all tokens", "padded", "many experts"},
    .small = "u8 T=6 E=3 K=1 a=4 expert_counts",
    .lines = {"T=3001 E=130 K=8 a=128"},
    .rejections = rejections,
};
