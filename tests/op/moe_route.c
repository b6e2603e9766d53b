/*
 * moe_route against its oracle: seeded shapes, options and subsets of outputs for every type of logits, on every kernel
 * table and several thread counts. Logits come in flavours that make ties, rounding ties, empty rows and special values;
 * what the generator must have produced is counted and asserted at the end. Every case is then replayed with the ids it
 * chose as given ones. Then rounding to 16 bits, and the shape of DeepSeek-V3 as a property.
 */
#include "support_random.h"

#include "oracle/moe_route.h"

#include <float.h>
#include <math.h>

enum { N_OUTPUTS = 6 };
enum { IDS, WEIGHTS, MAP, PROBS, COUNTS, SCORES };

static const DLDataType float_types[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};
static const DLDataType byte_types[] = {{6, 8, 1}, {kDLInt, 8, 1}, {kDLUInt, 8, 1}};

static struct {
    int cut_ties, rounded_ties, empty_rows, bias_decided, zero_sums, dropped, drop_ties, nan, plus_inf,
        minus_zero, finished, groups, many, logit_decided, unused, reordered, small_sums, by_rows,
        sums_of_many, replayed, replayed_by_expert, scaled, shared, gated, in_sum, absent[N_OUTPUTS];
} seen;

struct fixture {
    struct route_case in;
    struct route_result want;
    float *logits, *bias, *expert_scale, *shared_logits;
    int64_t *given;
    uint8_t *finished;
    struct tensor *x, *b, *f, *g, *r, *w, *s, *out[N_OUTPUTS];
    void *dense[N_OUTPUTS];
    sy_moe_route_args args;
};

/* ---- Input -------------------------------------------------------------------------------------------------- */

enum flavour { ORDINARY, TIES, NEAR, SPECIAL, EMPTY, FAR, FLAVOURS };

static double logit(uint64_t *rng, enum flavour flavour)
{
    static const double special[] = {NAN, INFINITY, -INFINITY, -0.0, 0.0, FLT_MAX, -FLT_MAX, 0x1p-149, 1, -1};
    switch (flavour) {
    case TIES:
        return (double)rng_below(rng, 5) / 2 - 1;
    case NEAR: /* so close together that their scores round to each other */
        return 3 + (double)rng_below(rng, 8) * 0x1p-22;
    case SPECIAL:
        return special[rng_below(rng, COUNT_OF(special))];
    case EMPTY:
        return rng_below(rng, 2) ? NAN : -INFINITY;
    case FAR:
        return 120 * rng_unit(rng) - 60;
    default:
        return 8 * rng_unit(rng) - 4;
    }
}

/* Rounds to the type, stores the bits in the tensor and the value for the oracle. */
static void put_float(struct tensor *x, int64_t row, int64_t i, double value, float *widened)
{
    unsigned char *to = (unsigned char *)tensor_row(x, row) + (size_t)i * type_bytes(x->t.dtype);
    const uint32_t wide = f32_round(value);
    const uint16_t f16 = f16_round(value), bf16 = bf16_round(value);
    if (x->t.dtype.bits == 32) {
        memcpy(to, &wide, 4);
        *widened = f32_from_bits(wide);
    } else if (x->t.dtype.code == kDLFloat) {
        memcpy(to, &f16, 2);
        *widened = (float)f16_value(f16);
    } else {
        memcpy(to, &bf16, 2);
        *widened = (float)bf16_value(bf16);
    }
}

static void fill_logits(struct fixture *f, uint64_t *rng, DLDataType type)
{
    const int64_t tokens = f->in.tokens, experts = f->in.experts;
    f->x = any_tensor(rng, type, 2, tokens, experts);
    f->logits = need(tokens * experts, sizeof *f->logits);
    for (int64_t t = 0; t < tokens; t++) {
        const enum flavour flavour = (enum flavour)rng_below(rng, FLAVOURS);
        for (int64_t e = 0; e < experts; e++) {
            float *value = &f->logits[t * experts + e];
            put_float(f->x, t, e, logit(rng, flavour), value);
            seen.nan += isnan(*value);
            seen.plus_inf += isinf(*value) && *value > 0;
            seen.minus_zero += *value == 0 && signbit(*value);
        }
    }
    f->in.logits = f->logits;
}

static void fill_bias(struct fixture *f, uint64_t *rng)
{
    static const float special[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, -0.0f};
    const bool numbers = rng_below(rng, 2); /* small ones only */
    f->bias = need(f->in.experts, sizeof *f->bias);
    f->b = any_tensor(rng, SY_F32, 1, f->in.experts, 0);
    for (int64_t e = 0; e < f->in.experts; e++)
        f->bias[e] = numbers || rng_below(rng, 20) ? (float)((rng_unit(rng) - 0.25) / 3)
                                                   : special[rng_below(rng, COUNT_OF(special))];
    tensor_put(f->b, f->bias);
    f->in.bias = f->bias;
    f->args.bias = &f->b->t;
}

static void fill_finished(struct fixture *f, uint64_t *rng)
{
    f->finished = need(f->in.tokens, 1);
    f->f = any_tensor(rng, byte_types[rng_below(rng, 3)], 1, f->in.tokens, 0);
    for (int64_t t = 0; t < f->in.tokens; t++) {
        f->finished[t] = rng_below(rng, 4) == 0 ? (uint8_t)(1 + rng_below(rng, 255)) : 0;
        seen.finished += f->finished[t] != 0;
    }
    tensor_put(f->f, f->finished);
    f->in.finished = f->finished;
    f->args.finished = &f->f->t;
}

static void fill_expert_scale(struct fixture *f, uint64_t *rng)
{
    static const float special[] = {NAN, INFINITY, -INFINITY, 0, -0.0f, 1e38f};
    f->expert_scale = need(f->in.experts, sizeof *f->expert_scale);
    f->w = any_tensor(rng, SY_F32, 1, f->in.experts, 0);
    for (int64_t e = 0; e < f->in.experts; e++)
        f->expert_scale[e] =
            rng_below(rng, 30) ? (float)(2 * rng_unit(rng)) : special[rng_below(rng, COUNT_OF(special))];
    tensor_put(f->w, f->expert_scale);
    f->in.expert_scale = f->expert_scale;
    f->args.expert_scale = &f->w->t;
    seen.scaled++;
}

static void fill_shared_logits(struct fixture *f, uint64_t *rng)
{
    const int64_t tokens = f->in.tokens, shared = f->in.shared;
    f->shared_logits = need(tokens * shared, sizeof *f->shared_logits);
    f->s = any_tensor(rng, float_types[rng_below(rng, 3)], 2, tokens, shared);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t i = 0; i < shared; i++)
            put_float(f->s, t, i, logit(rng, (enum flavour)rng_below(rng, FLAVOURS)),
                      &f->shared_logits[t * shared + i]);
    f->in.shared_logits = f->shared_logits;
    f->args.shared_logits = &f->s->t;
    seen.gated++;
}

/* ---- Given experts --------------------------------------------------------------------------------------------- */

static void put_id(struct tensor *x, int64_t row, int64_t j, int64_t id)
{
    const size_t bytes = type_bytes(x->t.dtype);
    memcpy((unsigned char *)tensor_row(x, row) + (size_t)j * bytes, &id, bytes);
}

/* An id that stands for no expert, as the type of the ids allows. */
static int64_t unused_id(const struct fixture *f, uint64_t *rng, DLDataType type)
{
    const int64_t columns = f->in.experts + f->in.shared, all_bits = (INT64_C(1) << (type.bits % 64)) - 1;
    if (type.code == kDLInt)
        return rng_below(rng, 2) ? -1 : columns;
    return rng_below(rng, 2) && all_bits >= columns ? all_bits : columns;
}

/* The distinct experts of a token, or of a row of a table. */
static void choose_given(const struct fixture *f, uint64_t *rng, bool missing, int64_t *given)
{
    const int64_t experts = f->in.experts, step = 1 + rng_below(rng, experts);
    bool *taken = need(experts, sizeof *taken);
    int64_t e = rng_below(rng, experts);
    for (int64_t j = 0; j < f->in.k; j++) {
        while (taken[e])
            e = (e + 1) % experts;
        taken[e] = true;
        given[j] = missing && rng_below(rng, 4) == 0 ? -1 : e;
        e = (e + step) % experts;
    }
}

/* Ids of any type that can hold them, in rows of the tokens or of a table; what nobody names is out of range. */
static void fill_given(struct fixture *f, uint64_t *rng)
{
    static const DLDataType types[] = {
        {kDLInt, 32, 1}, {kDLInt, 64, 1}, {kDLInt, 16, 1}, {kDLUInt, 16, 1}, {kDLUInt, 8, 1}};
    const struct route_case *in = &f->in;
    const bool table = rng_below(rng, 2), missing = rng_below(rng, 2);
    const DLDataType type = types[rng_below(rng, in->experts + in->shared < 256 ? 5 : 4)];
    const int64_t rows = table ? 1 + rng_below(rng, 2 * in->tokens + 1) : in->tokens;
    int64_t *of_row = need(rows * in->k, sizeof *of_row);
    f->given = need(in->tokens * in->k, sizeof *f->given);
    f->g = any_tensor(rng, type, 2, rows, in->k);
    for (int64_t r = 0; r < rows; r++) {
        choose_given(f, rng, missing, of_row + r * in->k);
        for (int64_t j = 0; j < in->k; j++) /* until somebody names the row */
            put_id(f->g, r, j, (INT64_C(1) << (type.bits - 2)) + 7);
    }
    f->args.ids_in = &f->g->t;
    f->args.allow_missing = missing;
    if (table) {
        f->r = any_tensor(rng, rng_below(rng, 2) ? SY_I32 : SY_I64, 1, in->tokens, 0);
        f->args.ids_rows = &f->r->t;
        seen.by_rows++;
    }
    for (int64_t t = 0; t < in->tokens; t++) {
        const bool finished = in->finished && in->finished[t];
        const int64_t row = table ? rng_below(rng, rows) : t;
        if (table) /* one element is a row of the tensor */
            memcpy((unsigned char *)f->r->t.data + f->r->t.byte_offset +
                       (size_t)t * type_bytes(f->r->t.dtype),
                   &(int64_t){finished ? -9 : row}, type_bytes(f->r->t.dtype));
        for (int64_t j = 0; j < in->k && !finished; j++) {
            const int64_t id = of_row[row * in->k + j];
            f->given[t * in->k + j] = id;
            put_id(f->g, row, j, id < 0 ? unused_id(f, rng, type) : id);
        }
    }
    f->in.given = f->given;
}

/* ---- Options and outputs ------------------------------------------------------------------------------------- */

static void choose_options(struct route_case *in, uint64_t *rng)
{
    static const float scales[] = {0, 1, 2.5f, -3, 1e30f, 0x1p-140f}, epsilons[] = {0, 0, 1e-20f, 0.5f};
    static const int64_t group_counts[] = {1, 2, 3, 4, 8};
    in->groups = rng_below(rng, 2) ? group_counts[rng_below(rng, COUNT_OF(group_counts))] : 0;
    if (in->groups > 0) {
        in->experts = (in->experts + in->groups - 1) / in->groups * in->groups;
        in->top_groups = 1 + rng_below(rng, in->groups);
    }
    const int64_t live = in->groups > 0 ? in->experts / in->groups * in->top_groups : in->experts;
    in->k = 1 + (rng_below(rng, 3) ? rng_below(rng, live < 8 ? live : 8) : rng_below(rng, live));
    in->softmax_after = rng_below(rng, 4) == 0;
    in->group_score = (sy_group_score)rng_below(rng, 3);
    in->select = rng_below(rng, 3) ? SY_SELECT_SCORE : SY_SELECT_LOGIT;
    in->eps_rule = (sy_eps_rule)rng_below(rng, 2);
    in->shared = rng_below(rng, 3) ? 0 : 1 + rng_below(rng, 3);
    in->shared_weight = rng_below(rng, 2) ? 0 : scales[rng_below(rng, COUNT_OF(scales))];
    in->slot_order = (sy_slot_order)rng_below(rng, 2);
    in->renormalize = rng_below(rng, 2);
    in->eps = epsilons[rng_below(rng, COUNT_OF(epsilons))];
    in->scale = scales[rng_below(rng, COUNT_OF(scales))];
    in->drop = (sy_drop)rng_below(rng, 2);
    in->capacity = rng_below(rng, 2) ? 1 + rng_below(rng, in->tokens + 2) : 0;
    seen.groups += in->groups > 1;
    seen.sums_of_many += in->groups > 1 && in->group_score == SY_GROUP_SUMK && in->k / in->top_groups > 2;
    seen.shared += in->shared > 0;
    seen.many += in->k > 64;
}

static void narrow(const float *from, int64_t n, DLDataType type, unsigned char *to)
{
    for (int64_t i = 0; i < n; i++) {
        const uint16_t bits =
            type.code == kDLFloat ? f16_round((double)from[i]) : bf16_round((double)from[i]);
        if (type.bits == 32)
            memcpy(to + i * 4, &from[i], 4);
        else
            memcpy(to + i * 2, &bits, 2);
    }
}

/* The oracle's result as the bytes of each output. */
static void want_outputs(struct fixture *f)
{
    const int64_t columns = f->in.experts + f->in.shared, slots = f->in.tokens * (f->in.k + f->in.shared),
                  cells = f->in.tokens * columns;
    f->want = (struct route_result){.ids = need(slots, 8),
                                    .weight = need(slots, 4),
                                    .map = need(cells, 1),
                                    .prob = need(cells, 4),
                                    .count = need(columns, 8),
                                    .score = need(cells, 4)};
    oracle_moe_route(&f->in, &f->want);
    for (int i = 0; i < N_OUTPUTS; i++)
        f->dense[i] = need(i < MAP ? slots : i == COUNTS ? columns : cells, 8);
    for (int64_t i = 0; i < slots; i++)
        if (f->out[IDS]->t.dtype.bits == 64)
            memcpy((char *)f->dense[IDS] + i * 8, &f->want.ids[i], 8);
        else
            memcpy((char *)f->dense[IDS] + i * 4, &(int32_t){(int32_t)f->want.ids[i]}, 4);
    narrow(f->want.weight, slots, f->out[WEIGHTS]->t.dtype, f->dense[WEIGHTS]);
    memcpy(f->dense[MAP], f->want.map, (size_t)cells);
    narrow(f->want.prob, cells, f->out[PROBS]->t.dtype, f->dense[PROBS]);
    memcpy(f->dense[COUNTS], f->want.count, (size_t)columns * 8);
    memcpy(f->dense[SCORES], f->want.score, (size_t)(f->in.tokens * f->in.experts) * 4);
}

static void make_outputs(struct fixture *f, uint64_t *rng)
{
    const int64_t tokens = f->in.tokens, k = f->in.k + f->in.shared, experts = f->in.experts + f->in.shared;
    const DLTensor **fields[] = {&f->args.ids,   &f->args.weights, &f->args.routing_map,
                                 &f->args.probs, &f->args.counts,  &f->args.scores};
    const int64_t must = rng_below(rng, N_OUTPUTS);
    f->out[IDS] = any_tensor(rng, rng_below(rng, 2) ? SY_I32 : SY_I64, 2, tokens, k);
    f->out[WEIGHTS] = any_tensor(rng, float_types[rng_below(rng, 3)], 2, tokens, k);
    f->out[MAP] = any_tensor(rng, byte_types[rng_below(rng, 3)], 2, tokens, experts);
    f->out[PROBS] = any_tensor(rng, float_types[rng_below(rng, 3)], 2, tokens, experts);
    f->out[COUNTS] = any_tensor(rng, SY_I64, 1, experts, 0);
    f->out[SCORES] = any_tensor(rng, SY_F32, 2, tokens, f->in.experts);
    for (int i = 0; i < N_OUTPUTS; i++) {
        *fields[i] = i == must || rng_below(rng, 3) ? &f->out[i]->t : NULL;
        seen.absent[i] += *fields[i] == NULL;
    }
}

static void fill_inputs(struct fixture *f, uint64_t *rng, DLDataType type)
{
    struct route_case *in = &f->in;
    const bool scored = in->score == SY_SCORE_SIGMOID || in->score == SY_SCORE_SQRTSOFTPLUS;
    fill_logits(f, rng, type);
    if (rng_below(rng, 2))
        fill_bias(f, rng);
    if (rng_below(rng, 3) == 0)
        fill_finished(f, rng);
    if (rng_below(rng, 4) == 0)
        fill_expert_scale(f, rng);
    if (in->shared > 0 && rng_below(rng, 3)) {
        fill_shared_logits(f, rng);
        in->shared_in_sum = in->renormalize && scored && !in->softmax_after && rng_below(rng, 2);
        seen.in_sum += in->shared_in_sum;
    }
    if (rng_below(rng, 3) == 0)
        fill_given(f, rng);
}

static void fixture_make(struct fixture *f, uint64_t *rng, DLDataType type)
{
    fill_inputs(f, rng, type);
    const struct route_case *in = &f->in;
    f->args.logits = &f->x->t;
    f->args.k = in->k;
    f->args.score = in->score;
    f->args.softmax_after = in->softmax_after;
    f->args.groups = in->groups;
    f->args.top_groups = in->top_groups;
    f->args.group_score = in->group_score;
    f->args.slot_order = in->slot_order;
    f->args.renormalize = in->renormalize;
    f->args.eps = in->eps;
    f->args.scale = in->scale;
    f->args.capacity = in->capacity;
    f->args.drop = in->drop;
    f->args.select = in->select;
    f->args.eps_rule = in->eps_rule;
    f->args.n_shared = in->shared;
    f->args.shared_weight = in->shared_weight;
    f->args.shared_in_sum = in->shared_in_sum;
    make_outputs(f, rng);
    want_outputs(f);
    seen.cut_ties += f->want.cut_ties;
    seen.rounded_ties += f->want.rounded_ties;
    seen.empty_rows += f->want.empty_rows;
    seen.bias_decided += f->want.bias_decided;
    seen.zero_sums += f->want.zero_sums;
    seen.dropped += f->want.dropped;
    seen.drop_ties += f->want.drop_ties;
    seen.logit_decided += f->want.logit_decided;
    seen.unused += f->want.unused;
    seen.reordered += f->want.reordered;
    seen.small_sums += f->want.small_sums;
}

static void fixture_check(const struct fixture *f, sy_ctx *ctx)
{
    const sy_moe_route_args *a = &f->args;
    const struct output out[] = {{"ids", f->out[IDS], f->dense[IDS], a->ids},
                                 {"weights", f->out[WEIGHTS], f->dense[WEIGHTS], a->weights},
                                 {"routing_map", f->out[MAP], f->dense[MAP], a->routing_map},
                                 {"probs", f->out[PROBS], f->dense[PROBS], a->probs},
                                 {"counts", f->out[COUNTS], f->dense[COUNTS], a->counts},
                                 {"scores", f->out[SCORES], f->dense[SCORES], a->scores}};
    const sy_fault none = {.status = SY_OK};
    fill_outputs(out, COUNT_OF(out));
    expect_outputs(ctx, sy_moe_route(ctx, a), &none, out, COUNT_OF(out));
}

/* The same call with the ids that it chose as given ones: every output has the same bytes. */
static void fixture_replay(struct fixture *f, sy_ctx *ctx, uint64_t *rng)
{
    const struct route_case *in = &f->in;
    const int64_t slots = in->k + in->shared;
    if (in->given)
        return;
    f->g = any_tensor(rng, rng_below(rng, 2) ? SY_I32 : SY_I64, 2, in->tokens, in->k);
    for (int64_t t = 0; t < in->tokens; t++)
        for (int64_t j = 0; j < in->k; j++)
            put_id(f->g, t, j, f->want.ids[t * slots + j]);
    f->args.ids_in = &f->g->t;
    fixture_check(f, ctx);
    seen.replayed += in->slot_order == SY_SLOT_VALUE;
    seen.replayed_by_expert += in->slot_order == SY_SLOT_EXPERT;
}

/* ---- Tests -------------------------------------------------------------------------------------------------- */

static uint64_t running_seed;

static int tell_seed(void **state)
{
    (void)state;
    if (running_seed != 0)
        print_error("the failing case has seed %llu\n", (unsigned long long)running_seed);
    running_seed = 0;
    return 0;
}

/* state: type of the logits and score as one number. */
static void random_cases(void **state)
{
    static const int64_t sizes[] = {1, 2, 7, 8, 15, 16, 17, 33, 60, 64, 128, 256, 300};
    const uintptr_t which = (uintptr_t)*state;
    for (uint64_t seed = 1; seed <= 80; seed++) {
        uint64_t rng = running_seed = seed * 1000 + which;
        struct fixture f = {0};
        f.in.tokens = rng_below(&rng, 20);
        f.in.experts = sizes[rng_below(&rng, COUNT_OF(sizes))];
        f.in.score = (sy_route_score)(which / 3);
        choose_options(&f.in, &rng);
        fixture_make(&f, &rng, float_types[which % 3]);
        for (int c = (int)(seed % 2); c < n_contexts; c += 2)
            fixture_check(&f, contexts[c]);
        fixture_replay(&f, contexts[seed % (uint64_t)n_contexts], &rng);
        free_all();
    }
    running_seed = 0;
}

/* Rows enough to be split over threads; and once as many experts and winners as a radix select is for. */
static void large_cases(void **state)
{
    static const struct route_case cases[] = {
        {.tokens = 3000, .experts = 64, .k = 6, .renormalize = true, .capacity = 200},
        {.tokens = 1500,
         .experts = 256,
         .k = 8,
         .score = SY_SCORE_SIGMOID,
         .groups = 8,
         .top_groups = 4,
         .group_score = SY_GROUP_SUM2,
         .renormalize = true,
         .eps = 1e-20f,
         .scale = 2.5f},
        {.tokens = 2000,
         .experts = 8,
         .k = 2,
         .score = SY_SCORE_NONE,
         .softmax_after = true,
         .capacity = 300,
         .drop = SY_DROP_POSITION,
         .slot_order = SY_SLOT_EXPERT},
        {.tokens = 9, .experts = 1000, .k = 30, .renormalize = true, .capacity = 2},
        {.tokens = 9, .experts = 512, .k = 9, .score = SY_SCORE_SIGMOID, .renormalize = true},
        {.tokens = 9, .experts = 512, .k = 32, .slot_order = SY_SLOT_EXPERT},
        {.tokens = 9, .experts = 1024, .k = 8, .softmax_after = true},
        {.tokens = 9,
         .experts = 768,
         .k = 12,
         .score = SY_SCORE_SIGMOID,
         .groups = 32,
         .top_groups = 5,
         .slot_order = SY_SLOT_EXPERT},
        {.tokens = 9, .experts = 720, .k = 8, .groups = 36, .top_groups = 5, .group_score = SY_GROUP_SUM2},
        {.tokens = 3, .experts = 5000, .k = 700, .slot_order = SY_SLOT_EXPERT},
        {.tokens = 3,
         .experts = 5000,
         .k = 4999,
         .score = SY_SCORE_SIGMOID,
         .groups = 1000,
         .top_groups = 1000},
        {.tokens = 3,
         .experts = 5000,
         .k = 70,
         .score = SY_SCORE_NONE,
         .groups = 1250,
         .top_groups = 300,
         .group_score = SY_GROUP_SUM2},
        {.tokens = 3,
         .experts = 5000,
         .k = 70,
         .score = SY_SCORE_SQRTSOFTPLUS,
         .groups = 10,
         .top_groups = 2,
         .group_score = SY_GROUP_SUMK,
         .renormalize = true,
         .shared = 40},
        {.tokens = 9,
         .experts = 1024,
         .k = 32,
         .score = SY_SCORE_SQRTSOFTPLUS,
         .groups = 4,
         .top_groups = 2,
         .group_score = SY_GROUP_SUMK,
         .renormalize = true,
         .shared = 1},
    };
    uint64_t rng = 7;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct fixture f = {.in = cases[i]};
        fixture_make(&f, &rng, float_types[i % 3]);
        for (int c = 0; c < n_contexts; c++)
            fixture_check(&f, contexts[c]);
        fixture_replay(&f, contexts[i % (size_t)n_contexts], &rng);
        free_all();
    }
}

static void the_random_cases_were_hard(void **state)
{
    (void)state;
    expect_hard(seen, 20);
}

/* ---- Without the oracle --------------------------------------------------------------------------------------- */

/* One rounding from f32 to the output: every weight of a sigmoid, in both 16-bit types. */
static void outputs_round_once(void **state)
{
    (void)state;
    enum { N = 4096 };
    static float x[N];
    static uint16_t f16[N], bf16[N];
    static float f32[N];
    for (int i = 0; i < N; i++)
        x[i] = ((float)i - 2048) / 97;
    sy_ctx *ctx = contexts[1];
    DLTensor logits = sy_tensor(x, SY_F32, 2, (int64_t[]){N, 1}),
             out[] = {sy_tensor(f32, SY_F32, 2, (int64_t[]){N, 1}),
                      sy_tensor(f16, SY_F16, 2, (int64_t[]){N, 1}),
                      sy_tensor(bf16, SY_BF16, 2, (int64_t[]){N, 1})};
    sy_moe_route_args args = {.logits = &logits, .k = 1, .score = SY_SCORE_SIGMOID, .weights = &out[0]};
    for (int i = 0; i < 3; i++) {
        args.weights = &out[i];
        args.probs = i == 0 ? NULL : &out[3 - i]; /* its own type, beside the other */
        expect_status(ctx, sy_moe_route(ctx, &args), SY_OK);
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(f16[i], f16_round((double)f32[i]));
        assert_int_equal(bf16[i], bf16_round((double)f32[i]));
    }
}

/* The score is the function it is meant to be: the documented distance, 2.2 units in the last place, beside that of the double. */
static void square_roots_of_softplus(void **state)
{
    (void)state;
    enum { N = 8192 };
    static float x[N], s[N];
    double worst = 0;
    for (int i = 0; i < N; i++)
        x[i] = -86 + (float)i * 186 / N;
    DLTensor logits = sy_tensor(x, SY_F32, 2, (int64_t[]){1, N}),
             scores = sy_tensor(s, SY_F32, 2, (int64_t[]){1, N});
    const sy_moe_route_args args = {
        .logits = &logits, .k = 1, .score = SY_SCORE_SQRTSOFTPLUS, .scores = &scores};
    expect_status(contexts[1], sy_moe_route(contexts[1], &args), SY_OK);
    for (int i = 0; i < N; i++) {
        const double e = exp(-fabs((double)x[i])), want = sqrt(log1p(e) + (x[i] > 0 ? (double)x[i] : 0));
        const double unit = (double)(f32_from_bits(f32_bits(s[i]) + 1) - s[i]);
        worst = fmax(worst, fabs((double)s[i] - want) / unit);
    }
    assert_true(worst > 0.5 && worst < 2.2);
}

/* The shape of DeepSeek-V3, as a property: the k best of the four best groups, weights that sum to the scale. */
static void grouped_gating_of_256_experts(void **state)
{
    (void)state;
    enum { T = 50, E = 256, K = 8 };
    static float x[T][E], bias[E], w[T][K], s[T][E];
    static int32_t ids[T][K];
    uint64_t rng = 4;
    for (int i = 0; i < T * E; i++)
        x[i / E][i % E] = (float)(6 * rng_unit(&rng) - 3);
    for (int e = 0; e < E; e++)
        bias[e] = (float)(rng_unit(&rng) / 10);
    sy_ctx *ctx = contexts[1];
    DLTensor lx = sy_tensor(x, SY_F32, 2, (int64_t[]){T, E}), lb = sy_tensor(bias, SY_F32, 1, (int64_t[]){E}),
             li = sy_tensor(ids, SY_I32, 2, (int64_t[]){T, K}),
             lw = sy_tensor(w, SY_F32, 2, (int64_t[]){T, K}), ls = sy_tensor(s, SY_F32, 2, (int64_t[]){T, E});
    const sy_moe_route_args args = {.logits = &lx,
                                    .bias = &lb,
                                    .k = K,
                                    .score = SY_SCORE_SIGMOID,
                                    .groups = 8,
                                    .top_groups = 4,
                                    .group_score = SY_GROUP_SUM2,
                                    .renormalize = true,
                                    .eps = 1e-20f,
                                    .scale = 2.5f,
                                    .ids = &li,
                                    .weights = &lw,
                                    .scores = &ls};
    expect_status(ctx, sy_moe_route(ctx, &args), SY_OK);
    for (int t = 0; t < T; t++) {
        double sum = 0;
        bool group[8] = {false};
        int groups = 0;
        for (int j = 0; j < K; j++) {
            sum += (double)w[t][j];
            groups += !group[ids[t][j] / 32];
            group[ids[t][j] / 32] = true;
        }
        assert_true(groups <= 4);
        assert_true(fabs(sum - 2.5) < 1e-5);
        for (int j = 1; j < K; j++)
            assert_true(s[t][ids[t][j]] + bias[ids[t][j]] <= s[t][ids[t][j - 1]] + bias[ids[t][j - 1]]);
    }
}

int main(void)
{
    static const char *const type_names[] = {"f32", "f16", "bf16"}, *const scores[] = {"softmax", "sigmoid",
                                                                                       "none",
                                                                                       "sqrtsoftplus"};
    enum { RANDOM = 12 };
    struct CMUnitTest tests[RANDOM + 5];
    for (uintptr_t i = 0; i < RANDOM; i++)
        tests[i] = (struct CMUnitTest){test_name("random_%s_%s", scores[i / 3], type_names[i % 3]),
                                       random_cases, NULL, tell_seed, (void *)i};
    tests[RANDOM] = (struct CMUnitTest)cmocka_unit_test(large_cases);
    tests[RANDOM + 1] = (struct CMUnitTest)cmocka_unit_test(the_random_cases_were_hard);
    tests[RANDOM + 2] = (struct CMUnitTest)cmocka_unit_test(outputs_round_once);
    tests[RANDOM + 3] = (struct CMUnitTest)cmocka_unit_test(grouped_gating_of_256_experts);
    tests[RANDOM + 4] = (struct CMUnitTest)cmocka_unit_test(square_roots_of_softplus);
    return cmocka_run_group_tests_name("op_moe_route", tests, open_contexts, close_contexts);
}
