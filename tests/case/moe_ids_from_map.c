/*
 * moe_ids_from_map: the ids of a map, ascending, and the weights of its probs.
 */
#include "case.h"

static void make(struct call *c)
{
    sy_moe_ids_from_map_args *const a = case_args(c);
    case_size(c, "T", 0, 20, 300);
    const int64_t experts = case_size(c, "E", 0, 40, 700);
    a->k = case_size(c, "K", 0, 8, 12);
    struct operand *const map = case_in(c, "routing_map");
    struct stream *const s = case_stream(c, "routing_map");
    const bool faulty = case_chance(c, "faulty", 3);
    const int64_t seldom = 1 + stream_below(s, map->shape[0] / 2 + 1);
    for (int64_t t = 0; t < map->shape[0]; t++) {
        const int64_t most = faulty && stream_chance(s, seldom) ? experts : a->k,
                      odds = 1 + stream_below(s, stream_chance(s, 2) ? 6 : experts / (a->k + 1) + 1);
        for (int64_t e = 0, n = 0; e < experts && n < most; e++)
            if (stream_chance(s, odds)) {
                case_put(map, t * experts + e, 1 + stream_below(s, 255));
                n++;
            }
    }
    if (case_flag(c, "probs"))
        case_fill(c, case_in(c, "probs"));
}

static void oracle(struct call *c)
{
    const struct operand *const map = case_field(c, "routing_map"), *const probs = case_field(c, "probs");
    struct operand *const ids = case_field(c, "ids");
    const int64_t tokens = map->shape[0], experts = map->shape[1], k = ids->shape[1];
    uint8_t *const weights = case_want(c, "weights");
    c->query.rows = tokens;
    if (weights != NULL)
        memset(weights, 0, (size_t)(tokens * k) * probs->element);
    for (int64_t t = 0; t < tokens; t++) {
        int64_t n = 0;
        for (int64_t e = 0; e < experts; e++) {
            const int64_t cell = t * experts + e, slot = t * k + n;
            if (map->dense[cell] == 0 || n++ >= k)
                continue;
            case_put_want(ids, slot, e);
            if (weights != NULL)
                memcpy(weights + (size_t)slot * probs->element, probs->dense + (size_t)cell * probs->element,
                       probs->element);
        }
        case_note(c, "overfull", n > k);
        case_note(c, "late and overfull", n > k && t > tokens / 2);
        case_note(c, "full", n == k && k > 0);
        case_note(c, "many experts", n > 0 && experts > 256);
        if (n > k) {
            c->want = (sy_fault){SY_ERR_ROUTING, SY_FAULT_ROW_OVERFULL, "routing_map", -1, t, n, k};
            return;
        }
        for (; n < k; n++)
            case_put_want(ids, t * k + n, -1);
    }
}

static const struct rejection rejections[] = {
    {"routing_map.shape[1]=2^31", SY_ERR_VALUE, "2147483648 experts", "2147483647", .line = "T=5 K=3 E=7"},
    {"k=2^60", SY_ERR_OVERFLOW, "1152921504606846976 for 5", "2^63"},
    {.change = NULL},
};

const struct op_case case_moe_ids_from_map = {
    .name = "moe_ids_from_map",
    .make = make,
    .oracle = oracle,
    .hard = {"overfull", "late and overfull", "full", "many experts"},
    .small = "T=5 K=3 E=7 probs probs=f16",
    .lines = {"T=2501 K=8 E=130 probs", "T=2501 K=8 E=130 faulty", "T=9 K=8 E=9000 probs probs=bf16"},
    .rejections = rejections,
    .calls = 240,
};
