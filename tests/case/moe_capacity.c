/*
 * moe_capacity: slots for each expert by a share of the samples, by the largest count, or by the smaller of both.
 */
#include "case.h"

#include <math.h>

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

__extension__ typedef unsigned __int128 wide;

/* trunc(RN(factor * n)) for factor >= 0 and 0 <= n < 2^53; -1 when it is 2^63 or more. A double is m * 2^e with an integer m below
   2^53, so factor * n is the integer m * n below 2^106 times 2^e. It is brought to 53 bits, half to even, and then cut at the
   point. */
static int64_t share_of(double factor, int64_t n)
{
    int e = 0;
    const double fraction = frexp(factor, &e);
    wide product = (wide)(uint64_t)ldexp(fraction, 53) * (wide)(uint64_t)n;
    int shift = e - 53;
    int drop = 0;
    while (product >> drop >> 53 != 0)
        drop++;
    if (drop > 0) {
        const wide half = (wide)1 << (drop - 1), rest = product & (((wide)1 << drop) - 1);
        product >>= drop;
        shift += drop;
        if (rest > half || (rest == half && product % 2 == 1))
            product++;
    }
    for (; shift > 0 && product < (wide)1 << 64; shift--)
        product *= 2;
    if (product >= (wide)1 << 63 && shift >= 0)
        return -1;
    return shift < -127 ? 0 : (int64_t)(product >> (shift < 0 ? -shift : 0));
}

/* Integers all the way. -1 when it is 2^63 or more. */
static int64_t capacity_of(const sy_moe_capacity_args *a, int64_t k, int64_t alignment, const int64_t *counts)
{
    int64_t per_expert = 0, largest = 0;
    while (per_expert * a->num_experts < a->samples)
        per_expert++;
    for (int64_t e = 0; counts != NULL && e < a->num_experts; e++) { /* the count that no other exceeds */
        int64_t f = 0;
        while (f < a->num_experts && counts[f] <= counts[e])
            f++;
        largest = f == a->num_experts ? counts[e] : largest;
    }
    const int64_t one = share_of(fabs(a->factor), per_expert);
    const wide limit = (wide)1 << 63, all = one < 0 ? limit : (wide)(uint64_t)one * (wide)(uint64_t)k;
    wide slots = a->factor > 0 ? all : (wide)(uint64_t)largest;
    if (a->factor < 0 && all < slots)
        slots = all;
    while (slots < limit && slots % (wide)(uint64_t)alignment != 0)
        slots++;
    return slots < limit ? (int64_t)slots : -1;
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
    const int64_t want = capacity_of(a, a->k > 0 ? a->k : 1, alignment, counts);
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
