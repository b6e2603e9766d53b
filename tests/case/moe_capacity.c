/*
 * moe_capacity: slots for each expert by a share of the samples, by the largest count, or by the smaller of both.
 */
#include "case.h"

#include "oracle/moe_capacity.h"

static void make(struct call *c)
{
    enum { DEMAND, SHARE, CEILING, SIGNS };
    sy_moe_capacity_args *const a = case_args(c);
    const int64_t sign = case_pick(c, "sign", SIGNS), alignment = case_size(c, "a", 0, 16, 100);
    struct stream *const s = case_stream(c, "factor");
    const bool tenths = stream_chance(s, 2), huge = sign == CEILING && stream_chance(s, 10);
    a->samples = case_size(c, "S", 0, 20000, 40000);
    a->num_experts = case_size(c, "E", 1, 16, 300);
    a->k = case_size(c, "k", 0, 8, 8);
    a->alignment = alignment;
    /* 2^-4 .. 2^3 with every mantissa bit, or with few of them, so that products are ties. */
    const uint64_t exponent = (uint64_t)(1019 + (huge ? 64 : stream_below(s, 8)));
    const uint64_t bits = exponent << 52 | stream_bits(s) >> 12;
    memcpy(&a->factor, &bits, sizeof bits);
    if (tenths)
        a->factor = (double)(1 + stream_below(s, 30)) / 10;
    if (sign == SHARE && case_chance(c, "vast", 12)) { /* 2^62 and more, and every number fits */
        a->factor = 0x1p62 + (double)(stream_bits(s) >> 11) * 0x1p8;
        a->samples = a->num_experts;
        a->k = a->alignment = 1;
    }
    a->factor *= sign == DEMAND ? 0 : sign == SHARE ? 1 : -1;
    if (sign == SHARE && !case_flag(c, "counts_too"))
        return;
    struct operand *const counts = case_in(c, "counts");
    struct stream *const demand = case_stream(c, "counts");
    for (int64_t e = 0; e < a->num_experts; e++)
        case_put(counts, e, stream_below(demand, 2 * a->samples / a->num_experts + 2));
    if (case_chance(c, "negative", 12)) {
        const int64_t at = stream_below(demand, a->num_experts);
        case_put(counts, at, -1 - stream_below(demand, 1000));
    } else if (counts->type.bits == 64 && case_chance(c, "past 2^63", 12))
        case_put(counts, stream_below(demand, a->num_experts), INT64_MAX);
}

static void oracle(struct call *c)
{
    const sy_moe_capacity_args *const a = case_args(c);
    const int64_t *const counts = a->factor <= 0 ? case_wide(c, "counts") : NULL;
    const int64_t alignment = a->alignment > 0 ? a->alignment : 1;
    int64_t negative = 0;
    while (counts != NULL && negative < a->num_experts && counts[negative] >= 0)
        negative++;
    const bool rejected = counts != NULL && negative < a->num_experts;
    case_note(c, "negative count", rejected);
    if (rejected) {
        c->want =
            (sy_fault){SY_ERR_INDEX, SY_FAULT_LENGTH_RANGE, "counts", -1, negative, counts[negative], 0};
        return;
    }
    const int64_t want =
        oracle_moe_capacity(a->samples, a->num_experts, a->k > 0 ? a->k : 1, a->factor, alignment, counts);
    case_note(c, "past 2^63", want < 0);
    case_note(c, "share", a->factor > 0);
    case_note(c, "ceiling", a->factor < 0);
    case_note(c, "exactly aligned", want > 0 && alignment > 1 && want % alignment == 0);
    c->query = (sy_query){.rows = 1, .slots = a->factor > 0 ? want : 0};
    if (want < 0)
        c->want = (sy_fault){SY_ERR_OVERFLOW, SY_FAULT_OVERFLOW, "alignment", -1, -1, alignment, INT64_MAX};
    else
        case_expect(c, "capacity", &want);
}

static const struct rejection rejections[] = {
    {"counts=-", SY_ERR_NULL, "is missing", "factor is -"},
    {"counts=-", SY_ERR_NULL, "is missing", "factor is 0", .line = "E=4 sign=0 S=100"},
    {"factor=1e18", SY_ERR_OVERFLOW, "1e+18 for 100 samples", "2^63", .code = SY_FAULT_NONE},
    {.change = NULL},
};

static const struct rejection ladder[] = {
    {"k=-2", SY_ERR_VALUE},
    {"factor=1e18", SY_ERR_OVERFLOW},
    {"capacity.shape[0]=3", SY_ERR_SHAPE},
    {.change = NULL},
};

const struct op_case case_moe_capacity = {
    .name = "moe_capacity",
    .make = make,
    .oracle = oracle,
    .hard = {"negative count", "past 2^63", "share", "ceiling", "exactly aligned"},
    .small = "E=4 sign=2 S=100 k=2 a=4",
    .rejections = rejections,
    .ladder = ladder,
    .calls = 3000,
    .never_empty = true,
};
