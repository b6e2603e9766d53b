/*
 * The exact arithmetic of moe_route, for every backend: scores, values of groups and weights. Every step is one IEEE
 * operation in the order written, or an integer; wherever a product is added to something, the product is exact.
 */
#pragma once

#include "plan/load.h"
#include "plan/sample_math.h"

/* The weight of an exponential, e*2^40 rounded to a whole number, plus 2^52: its lower bits are the integer,
   as in syi_weight, and taking 2^52 away leaves it as a double. */
SYI_BOTH static inline double syi_weight_above(float e)
{
    return (double)e * 0x1p40 + 0x1p52;
}

/* The weight of e over the total: one division, one rounding. */
SYI_BOTH static inline float syi_share(float e, double total)
{
    return (float)((syi_weight_above(e) - 0x1p52) / total);
}

/* What shares are divided by; all are 0 when nothing weighs anything. */
SYI_BOTH static inline double syi_share_divisor(uint64_t total)
{
    return total > 0 ? (double)total : 1.0;
}

/* syi_exp without a branch and without a conversion: the lower bits of t/ln2 + 1.5*2^23 are the integer. */
SYI_BOTH static inline float syi_exp_negative(float t)
{
    const float shifted = fmaf(t, syi_f32_from_bits(0x3fb8aa3b), 12582912.0f);
    const float e = syi_exp_rest(t, shifted - 12582912.0f);
    return t >= -86.0f ? syi_f32_from_bits(syi_f32_bits(e) + (syi_f32_bits(shifted) << 23)) : 0.0f;
}

/* The key of -|x| is that of x with all bits flipped when x is positive. */
SYI_BOTH static inline uint32_t syi_negative_key(uint32_t key)
{
    return key >> 31 ? ~key : key;
}

/* Quotients of scores: of 0 to 1 and 1 to 4, not subnormal. A backend may have its own, rounded once as well. */
#ifndef SYI_SCORE_QUOTIENT
#define SYI_SCORE_QUOTIENT(above, below) ((above) / (below))
#endif

/* The sigmoid of x, with e = exp(-|x|). */
SYI_BOTH static inline float syi_sigmoid(float x, float e)
{
    return SYI_SCORE_QUOTIENT(x >= 0.0f ? 1.0f : e, 1.0f + e);
}

/*
 * sqrt(ln(1 + e^x)) of x, with e = exp(-|x|): ln(1 + e) is 2 atanh(q) of q = e/(2+e), by a polynomial in q^2. The constants are
 * the contract.
 */
SYI_BOTH static inline float syi_sqrt_softplus(float x, float e)
{
    const float q = SYI_SCORE_QUOTIENT(e, 2.0f + e), z = q * q;
    float g = syi_f32_from_bits(0x3e0f6be1);
    g = fmaf(g, z, syi_f32_from_bits(0x3e0f5e86));
    g = fmaf(g, z, syi_f32_from_bits(0x3e4ce904));
    g = fmaf(g, z, syi_f32_from_bits(0x3eaaaa81));
    g = fmaf(g, z, 1.0f);
    return sqrtf((x > 0.0f ? x : 0.0f) +
                 (q + q) * g); /* adding 0 changes nothing; compilers vectorise a choice of numbers */
}

/* The scores of a logit that need no other, and their functions of x and exp(-|x|). NONE, the logit itself, needs neither. */
#define SYI_LONE_SCORES(X) X(SIGMOID, syi_sigmoid) X(SQRTSOFTPLUS, syi_sqrt_softplus)

#define SYI_IS_SCORE(ID, function) || score == SY_SCORE_##ID
SYI_BOTH static inline bool syi_is_lone_score(sy_route_score score)
{
    return false SYI_LONE_SCORES(SYI_IS_SCORE);
}
#undef SYI_IS_SCORE

/* The score of a logit alone, where it needs no other. */
SYI_BOTH static inline float syi_lone_score(sy_route_score score, uint32_t key)
{
    const float x = syi_key_value(key);
    if (score == SY_SCORE_NONE)
        return x;
    const float e = syi_exp(syi_key_value(syi_negative_key(key)));
#define SYI_SCORE_OF(ID, function) score == SY_SCORE_##ID ? function(x, e):
    return SYI_LONE_SCORES(SYI_SCORE_OF) x;
#undef SYI_SCORE_OF
}

/* The key of the score of a group, a sum of values: it may be +inf, which is larger than every number. Infinities of both
   signs add up to none, which counts as -inf. */
SYI_BOTH static inline uint32_t syi_group_key(float sum)
{
    return sum == sum ? syi_value_key(sum) : SYI_KEY_MINUS_INF;
}

/* The key of the sum of two values. */
SYI_BOTH static inline uint32_t syi_key_sum(uint32_t a, uint32_t b)
{
    return syi_value_key(syi_key_value(a) + syi_key_value(b));
}

/* Keeps the two largest of what was there and one more. */
SYI_BOTH static inline void syi_keep_two(uint32_t *first, uint32_t *second, uint32_t key)
{
    const uint32_t smaller = key < *first ? key : *first;
    *first = key > *first ? key : *first;
    *second = smaller > *second ? smaller : *second;
}

/* The weight of a score: that of -inf is 0. */
SYI_BOTH static inline float syi_score_weight(float score)
{
    return score >= -0x1.fffffep127f ? score : 0.0f;
}

/* What weights of this sum are divided by. */
SYI_BOTH static inline float syi_route_divisor(const struct syi_moe_route_plan *p, float sum)
{
    if (p->args.eps_rule == SY_EPS_ADD)
        return sum + p->args.eps;
    return sum > p->args.eps ? sum : p->args.eps;
}

SYI_BOTH static inline float syi_renormalized(float weight, float sum)
{
    return sum != 0.0f ? weight / sum : 0.0f;
}

/* The weight of an expert with its factors. That of the expert may be any bits. */
SYI_BOTH static inline float syi_scaled_weight(const struct syi_moe_route_plan *p, int64_t e, float weight)
{
    if (p->expert_scale.data == NULL)
        return weight * p->scale;
    const float factor = syi_f32_from_bits(syi_load_u32(p->expert_scale.data + e * 4));
    return syi_canonical(weight * factor * p->scale);
}

/* ---- Shared experts ---- */

/* The weight of a shared expert. With a gate it is of the key of the gate's logit; `divisor` is that of the token. */
SYI_BOTH static inline float syi_shared_weight(const struct syi_moe_route_plan *p, uint32_t key,
                                               float divisor)
{
    if (p->shared_logits.data == NULL)
        return p->shared_weight;
    if (!p->args.shared_in_sum)
        return syi_lone_score(SY_SCORE_SIGMOID, key) * p->shared_weight;
    return syi_renormalized(syi_lone_score(p->args.score, key), divisor) * p->scale * p->shared_weight;
}

/* ---- Given experts ---- */

SYI_BOTH static inline bool syi_experts_given(const struct syi_moe_route_plan *p)
{
    return p->ids_in.data != NULL;
}

/* The row of a token in the ids that are given; it may be outside. */
SYI_BOTH static inline int64_t syi_given_row(const struct syi_moe_route_plan *p, int64_t t)
{
    return p->ids_rows.data != NULL ? syi_load_index(p->ids_rows.data, t, p->ids_rows.type) : t;
}

SYI_BOTH static inline int64_t syi_given_id(const struct syi_moe_route_plan *p, int64_t row, int64_t j)
{
    const int64_t bytes = p->ids_in.type == SY_TYPE_I64   ? 8
                          : p->ids_in.type == SY_TYPE_I32 ? 4
                          : p->ids_in.type == SY_TYPE_U8  ? 1
                                                          : 2;
    return syi_load_int(syi_at(p->ids_in, row) + j * bytes, p->ids_in.type);
}

SYI_BOTH static inline bool syi_is_expert(const struct syi_moe_route_plan *p, int64_t id)
{
    return id >= 0 && id < p->n_experts;
}

/* Whether an id that is no expert stands for an unused slot. */
SYI_BOTH static inline bool syi_is_unused(const struct syi_moe_route_plan *p, int64_t id)
{
    const int64_t all_bits = p->ids_in.type == SY_TYPE_U8    ? 0xff
                             : p->ids_in.type == SY_TYPE_U16 ? 0xffff
                                                             : -1;
    return p->args.allow_missing && (id == p->n_columns || (id == all_bits && (id < 0 || id > p->n_columns)));
}
