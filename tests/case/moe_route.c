/*
 * moe_route: the experts of each token, chosen by router logits or given, with their weights.
 */
#include "case.h"

#include "oracle/moe_route.h"

static sy_moe_route_args *args_of(struct call *c)
{
    return case_args(c);
}

static float any_scale(struct call *c, const char *name)
{
    static const float scales[] = {0, 1, 2.5f, -3, 1e30f, 0x1p-140f};
    return scales[case_pick(c, name, 6)];
}

/* Rows of one flavour each, so that some are all ties, all special or empty; near: scores that round to each other. */
static void fill_logits(struct call *c, struct operand *x)
{
    struct stream *const s = case_stream(c, x->field->name);
    const int64_t columns = x->shape[1];
    for (int64_t t = 0; t < x->shape[0]; t++) {
        const int64_t flavour = c->in->kind == READ_TEXT ? FINE : stream_below(s, FAR + 3);
        for (int64_t e = t * columns; e < (t + 1) * columns; e++)
            if (flavour <= FAR)
                case_put(x, e, (int64_t)case_float(s, x->type, (enum flavour)flavour));
            else
                case_put_real(x, x->dense, e,
                              flavour == FAR + 1 ? 3 + (double)stream_below(s, 8) * 0x1p-22
                                                 : (double)(stream_below(s, 240000) - 120000) / 2000);
    }
}

static void fill_numbers(struct call *c, const char *field)
{
    struct operand *const x = case_in(c, field);
    struct stream *const s = case_stream(c, field);
    const bool special = stream_chance(s, 4);
    for (int64_t i = 0; i < case_count(x); i++)
        case_put(x, i, (int64_t)case_float(s, x->type, special && stream_chance(s, 5) ? SPECIAL : FINE));
}

static void choose_options(struct call *c)
{
    static const int64_t sizes[] = {1, 2, 7, 8, 15, 16, 17, 33, 60, 64, 128, 256, 300};
    static const char *const outputs[] = {"ids", "weights", "routing_map", "probs", "counts", "scores"};
    static const char *const words[] = {"score",    "select", "group_score", "slot_order",
                                        "eps_rule", "drop",   "renormalize"};
    static const float epsilons[] = {0, 0, 1e-20f, 0.5f};
    sy_moe_route_args *const a = args_of(c);
    int64_t experts = c->in->kind == READ_TEXT ? case_size(c, "E", 1, 6, 6) : sizes[case_pick(c, "E", 13)];
    a->groups = case_flag(c, "grouped") ? 1 + case_pick(c, "groups", 8) : 0;
    if (a->groups > 0) {
        experts = (experts + a->groups - 1) / a->groups * a->groups;
        a->top_groups = 1 + case_pick(c, "top_groups", a->groups);
    }
    const int64_t live = a->groups > 0 ? experts / a->groups * a->top_groups : experts;
    a->k = case_size(c, "K", 1, live < 8 ? live : 8, live);
    const int64_t tokens = case_size(c, "T", 0, 20, 60);
    case_extent(c, "E", experts);
    for (int i = 0; i < 7; i++)
        case_any_scalar(c, words[i]);
    a->softmax_after = case_chance(c, "softmax_after", 4);
    a->eps = epsilons[case_pick(c, "eps", 4)];
    a->scale = any_scale(c, "scale");
    a->capacity = case_flag(c, "drops") ? 1 + case_pick(c, "capacity", tokens + 2) : 0;
    a->n_shared = case_chance(c, "shared", 3) ? 1 + case_pick(c, "n_shared", 3) : 0;
    a->shared_weight = any_scale(c, "shared_weight");
    case_extent(c, "S", a->n_shared);
    case_need(c, outputs[case_pick(c, "output", 6)]);
}

static void fill_given(struct call *c, int64_t experts)
{
    sy_moe_route_args *const a = args_of(c);
    struct stream *const s = case_stream(c, "given");
    const bool by_rows = case_flag(c, "ids_rows");
    const int64_t tokens = case_get_extent(c, "T"), columns = experts + a->n_shared;
    const int64_t rows = by_rows ? case_size(c, "V", 1, 20, 90) : tokens;
    case_extent(c, "V", rows);
    DLDataType type = case_type(c, "ids_in");
    if (type.bits == 8 && columns > 255)
        type = SY_I32;
    struct operand *const ids = case_in_as(c, "ids_in", type, 2, (int64_t[]){rows, a->k});
    const int64_t n = case_count(ids), none[] = {-1, columns}, far[] = {experts, -2, experts + 100, 77};
    case_any_scalar(c, "allow_missing");
    case_fill_ids(c, ids, experts);
    for (int64_t i = 0; i < n && a->allow_missing; i++)
        if (stream_chance(s, 4))
            case_put(ids, i, none[stream_below(s, 2)]);
    if (n > 0 && case_chance(c, "bad id", 4)) {
        const int64_t at = stream_below(s, n), like = at / a->k * a->k + stream_below(s, a->k);
        case_put(ids, at, stream_chance(s, 2) ? far[stream_below(s, 4)] : case_get(ids, like));
    }
    if (by_rows)
        case_fill_indices(c, case_in(c, "ids_rows"), rows, case_chance(c, "bad row", 4) ? 20 : 0);
}

static void make(struct call *c)
{
    sy_moe_route_args *const a = args_of(c);
    choose_options(c);
    fill_logits(c, case_in(c, "logits"));
    if (case_flag(c, "bias"))
        fill_numbers(c, "bias");
    if (case_chance(c, "finished", 3)) {
        struct operand *const x = case_in(c, "finished");
        struct stream *const s = case_stream(c, "finished");
        for (int64_t t = 0; t < case_count(x); t++)
            case_put(x, t, stream_chance(s, 4) ? 1 + stream_below(s, 255) : 0);
    }
    if (case_chance(c, "expert_scale", 4))
        fill_numbers(c, "expert_scale");
    const bool scored = a->score == SY_SCORE_SIGMOID || a->score == SY_SCORE_SQRTSOFTPLUS;
    if (a->n_shared > 0 && case_flag(c, "shared_logits")) {
        fill_logits(c, case_in(c, "shared_logits"));
        a->shared_in_sum = a->renormalize && scored && !a->softmax_after && case_flag(c, "shared_in_sum");
    }
    if (case_chance(c, "ids_in", 3))
        fill_given(c, case_get_extent(c, "E"));
}

/* ---- The oracle ---- */

static const float *floats_of(struct call *c, const char *field)
{
    const struct operand *const x = case_field(c, field);
    float *const wide = x->given ? case_memory(c, (size_t)case_count(x) * sizeof *wide) : NULL;
    for (int64_t i = 0; x->given && i < case_count(x); i++)
        wide[i] = (float)case_real(x, i);
    return wide;
}

/* The given experts of each token, -1: none; or what is wrong with them. */
static sy_fault read_given(struct call *c, int64_t *given)
{
    const sy_moe_route_args *const a = args_of(c);
    const struct operand *const ids = case_field(c, "ids_in");
    const int64_t tokens = case_get_extent(c, "T"), experts = case_get_extent(c, "E"), k = a->k;
    const int64_t *const all = case_wide(c, "ids_in"), *const rows = case_wide(c, "ids_rows");
    const uint8_t *const finished = case_dense(c, "finished");
    const int64_t every_bit = ids->type.code == kDLInt ? -1 : (INT64_C(1) << ids->type.bits) - 1;
    for (int64_t t = 0; t < tokens; t++) {
        const int64_t row = rows != NULL ? rows[t] : t;
        if (finished != NULL && finished[t] != 0)
            continue;
        if (row < 0 || row >= ids->shape[0])
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_INDEX_RANGE, "ids_rows", t, -1, row, ids->shape[0]};
        for (int64_t j = 0; j < k; j++) {
            const int64_t id = all[row * k + j];
            const bool none = a->allow_missing && (id == experts + a->n_shared || id == every_bit);
            given[t * k + j] = id >= 0 && id < experts ? id : -1;
            if (given[t * k + j] < 0 && !none)
                return (sy_fault){SY_ERR_INDEX, SY_FAULT_INDEX_RANGE, "ids_in", t, j, id, experts};
            for (int64_t i = 0; i < j && given[t * k + j] >= 0; i++)
                if (given[t * k + i] == id)
                    return (sy_fault){SY_ERR_ROUTING, SY_FAULT_DUPLICATE, "ids_in", t, j, id, i};
        }
    }
    return (sy_fault){0};
}

static void put_reals(struct call *c, const char *field, const float *from)
{
    const struct operand *const x = case_field(c, field);
    for (int64_t i = 0; x->given && i < case_count(x); i++)
        if (x->element == 4)
            memcpy(x->want + 4 * i, &from[i], 4);
        else
            case_put_real(x, x->want, i, (double)from[i]);
}

static void note(struct call *c, const struct route_case *in, const struct route_result *r)
{
    case_note(c, "cut tie", r->cut_ties > 0);
    case_note(c, "tie by rounding", r->rounded_ties > 0);
    case_note(c, "empty row", r->empty_rows > 0);
    case_note(c, "bias decides", r->bias_decided > 0);
    case_note(c, "sum of 0", r->zero_sums > 0);
    case_note(c, "dropped", r->dropped > 0);
    case_note(c, "tie of drops", r->drop_ties > 0);
    case_note(c, "logit decides", r->logit_decided > 0);
    case_note(c, "unused slot", r->unused > 0);
    case_note(c, "given in another order", r->reordered > 0);
    case_note(c, "sum below eps", r->small_sums > 0);
    case_note(c, "groups", in->a->groups > 1);
    case_note(c, "sums of many",
              in->a->groups > 1 && in->a->group_score == SY_GROUP_SUMK && in->a->k / in->a->top_groups > 2);
    case_note(c, "many chosen", in->a->k > 64);
    case_note(c, "shared in sum", in->a->shared_in_sum);
}

static void oracle(struct call *c)
{
    const sy_moe_route_args *const a = args_of(c);
    const int64_t tokens = case_get_extent(c, "T"), experts = case_get_extent(c, "E");
    const size_t slots = (size_t)(tokens * (a->k + a->n_shared)), columns = (size_t)(experts + a->n_shared),
                 cells = (size_t)tokens * columns;
    int64_t *const given = case_memory(c, (size_t)(tokens * a->k) * sizeof *given);
    c->query.rows = tokens;
    if (case_field(c, "ids_in")->given)
        c->want = read_given(c, given);
    case_note(c, "bad row", c->want.status == SY_ERR_INDEX && c->want.position < 0);
    case_note(c, "bad id", c->want.status == SY_ERR_INDEX && c->want.position >= 0);
    case_note(c, "given twice", c->want.status == SY_ERR_ROUTING);
    if (c->want.status != SY_OK)
        return;
    const struct route_case in = {.a = a,
                                  .tokens = tokens,
                                  .experts = experts,
                                  .logits = floats_of(c, "logits"),
                                  .bias = floats_of(c, "bias"),
                                  .finished = case_dense(c, "finished"),
                                  .given = case_field(c, "ids_in")->given ? given : NULL,
                                  .expert_scale = floats_of(c, "expert_scale"),
                                  .shared_logits = floats_of(c, "shared_logits")};
    struct route_result r = {.ids = case_memory(c, slots * 8),
                             .weight = case_memory(c, slots * 4),
                             .map = case_memory(c, cells),
                             .prob = case_memory(c, cells * 4),
                             .count = case_memory(c, columns * 8),
                             .score = case_memory(c, cells * 4)};
    oracle_moe_route(&in, &r);
    note(c, &in, &r);
    for (size_t i = 0; case_field(c, "ids")->given && i < slots; i++)
        case_put_want(case_field(c, "ids"), (int64_t)i, r.ids[i]);
    put_reals(c, "weights", r.weight);
    put_reals(c, "probs", r.prob);
    case_expect(c, "routing_map", r.map);
    case_expect(c, "counts", r.count);
    case_expect(c, "scores", r.score);
}

/* ---- Rejections ---- */

#define GROUPED .line = "T=5 E=6 K=2 grouped groups=2 top_groups=1 ids"
#define GATED "T=5 E=6 K=2 shared shared_logits ids"
static const struct rejection rejections[] = {
    {"outputs=-", SY_ERR_NULL, "every other output", "at least one", .blame = "ids"},
    {"ids_in=-", SY_ERR_NULL, "is missing", "ids_rows"},
    {"ids_in.shape[0]=4", SY_ERR_SHAPE, "[4,2]", "[5,2]", .line = "T=5 E=6 K=2 ids_in ids"},
    {"ids_in.shape[0]=6", SY_ERR_SHAPE, "[6,2]", "[5,2]", .line = "T=5 E=6 K=2 ids_in ids"},
    {"k=7", SY_ERR_VALUE, "7", "1 to 6", .line = "T=5 E=6 K=2 ids"},
    {"groups=4", SY_ERR_VALUE, "4", "a divisor of 6", GROUPED},
    {"top_groups=0", SY_ERR_VALUE, "0", "1 to 3", GROUPED},
    {"top_groups=4", SY_ERR_VALUE, "4", "1 to 3", GROUPED},
    {"k=5", SY_ERR_VALUE, "leaves 4 experts", "k = 5", .blame = "top_groups", GROUPED},
    {"n_shared=0", SY_ERR_VALUE, "0", "shared_logits", .line = GATED},
    {"shared_logits=-", SY_ERR_NULL, "is missing", "shared_in_sum",
     .line = GATED " renormalize score=sigmoid shared_in_sum"},
    {"shared_in_sum=1", SY_ERR_VALUE, NULL, "renormalize", .line = GATED " score=sigmoid"},
    {"shared_in_sum=1", SY_ERR_VALUE, "the score SOFTMAX", "SIGMOID", .line = GATED " renormalize"},
    {"shared_in_sum=1", SY_ERR_VALUE, "the score NONE", "SIGMOID", .line = GATED " renormalize score=none"},
    {"shared_in_sum=1", SY_ERR_VALUE, "softmax_after", "SIGMOID",
     .line = GATED " renormalize score=sigmoid softmax_after"},
    {"only=logits,ids logits.shape=[1,2^23+1] k=2", SY_ERR_OVERFLOW, "8388609", "8388608", .blame = "logits"},
    /* 2^40 * 2^22 elements of 2 bytes would still fit; their scores do not. */
    {"only=logits,ids logits.shape=[2^39,2^22] k=2", SY_ERR_OVERFLOW, "549755813888", .blame = "logits"},
    {"only=logits,ids logits.shape=[2^62,4] k=2", SY_ERR_OVERFLOW, "4611686018427387904", .blame = "logits"},
    {"only=logits,ids k=2 n_shared=2^23-5", SY_ERR_OVERFLOW, "8388603", "8388608", .blame = "n_shared"},
    {"only=logits,ids k=2 n_shared=2^63-1", SY_ERR_OVERFLOW, "9223372036854775807", "8388608",
     .blame = "n_shared"},
    {.change = NULL},
};

static const struct rejection ladder[] = {
    {"ids.shape[1]=2", SY_ERR_SHAPE},
    {"probs.device=8", SY_ERR_DEVICE},
    {"routing_map.data=scores", SY_ERR_ALIAS},
    {"ids_in.data[1]=6", SY_ERR_INDEX},
    {.change = NULL},
};

#define DEEPSEEK \
    "E=256 K=8 score=sigmoid grouped groups=7 top_groups=3 group_score=sum2 renormalize eps=2 scale=2"
const struct op_case case_moe_route = {
    .name = "moe_route",
    .make = make,
    .oracle = oracle,
    .hard = {"bad row", "bad id", "given twice", "cut tie", "tie by rounding", "empty row", "bias decides",
             "sum of 0", "dropped", "tie of drops", "logit decides", "unused slot", "given in another order",
             "sum below eps", "groups", "sums of many", "many chosen", "shared in sum"},
    .small = "T=5 E=6 K=2 V=3 ids_in ids_rows shared ids weights routing_map probs counts scores finished "
             "expert_scale shared_logits bias",
    .shapes =
        {"T=40 E=2048 K=16 ids weights", "T=40 E=700 K=31 bias scores ids weights bf16 finished",
         "T=9 E=4096 K=5 score=sigmoid bias renormalize slot_order=expert ids weights routing_map probs",
         "T=30 E=1000 K=8 score=none ids weights f16"},
    .lines =
        {"T=3000 E=64 K=6 renormalize drops capacity=199 ids weights routing_map probs counts",
         "T=700 " DEEPSEEK " bias ids weights scores f16",
         "T=60 " DEEPSEEK " ids weights probs bf16 bias shared",
         "T=2000 E=8 K=2 score=none softmax_after drops capacity=299 drop=position slot_order=expert "
         "routing_map",
         "T=9 E=1000 K=30 renormalize drops capacity=1 routing_map probs ids",
         "T=9 E=512 K=9 score=sigmoid renormalize ids weights",
         "T=9 E=512 K=32 slot_order=expert ids weights", "T=9 E=1024 K=8 softmax_after ids weights bf16",
         "T=3 E=5000 K=700 slot_order=expert ids weights",
         "T=9 E=768 K=12 score=sigmoid grouped groups=31 top_groups=4 slot_order=expert ids weights",
         "T=9 E=720 K=8 grouped groups=35 top_groups=4 group_score=sum2 ids weights",
         "T=3 E=5000 K=4999 score=sigmoid grouped groups=999 top_groups=999 ids weights",
         "T=3 E=5000 K=70 score=none grouped groups=1249 top_groups=299 group_score=sum2 ids weights f16",
         "T=3 E=5000 K=70 score=sqrtsoftplus grouped groups=9 top_groups=1 group_score=sumk renormalize "
         "shared "
         "n_shared=39 ids weights probs",
         "T=9 E=1024 K=32 score=sqrtsoftplus grouped groups=3 top_groups=1 group_score=sumk renormalize "
         "shared ids"},
    .rejections = rejections,
    .ladder = ladder,
    .calls = 900,
};
