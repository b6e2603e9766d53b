/*
 * sample: one token of each row, after temperature and cuts, greedy or drawn; and what else is known of the row. Long rows
 * take ways of their own, which depend on outputs and contents: so one in some calls has them.
 */
#include "sample.h"

/* ---- The call ---- */

static float weight_of(float x, float max, bool probs_in)
{
    return probs_in ? fminf(fmaxf(x, 0), 1) : oracle_sample_exp(x - max);
}

/* Ordinary ones, equal ones, a few values, odd ones among others, any bits, or the weights: then all scores are equal. */
static void fill_q(struct call *c, struct operand *q, bool probs_in)
{
    enum { PLAIN, EQUAL, THREE, ODD, BITS, WEIGHTS, STYLES };
    const struct operand *const logits = case_field(c, "logits");
    struct stream *const s = case_stream(c, "q");
    const int64_t vocab = q->shape[1];
    for (int64_t b = 0; b < q->shape[0]; b++) {
        const int64_t style = case_pick(c, "style", STYLES);
        float max = -INFINITY;
        for (int64_t i = b * vocab; i < (b + 1) * vocab; i++)
            max = fmaxf(max, real_at(logits, i));
        for (int64_t i = b * vocab; i < (b + 1) * vocab; i++) {
            const uint64_t any = stream_bits(s);
            put_real(q, i,
                     style == EQUAL                 ? 1
                     : style == THREE               ? (float)(1 + any % 3)
                     : style == ODD && any % 4 == 0 ? special_logit(s)
                     : style == BITS                ? f32_from_bits((uint32_t)any)
                     : style == WEIGHTS             ? weight_of(real_at(logits, i), max, probs_in)
                                                    : (float)ldexp(1 + any_unit(s), -(int)(any % 12)));
        }
    }
}

/* A plain call has no edits and few outputs: most of those that programs make, with ways of their own. */
static void make_options(struct call *c, int64_t vocab, bool plain)
{
    static const char *const scalars[] = {"noise", "q_order", "ties", "logprob_mode", "empty_token"};
    static const float eps[] = {1e-8f, 0, 0, 0, .5f, 0x1.fffffep127f};
    const int64_t limits[] = {0, 0, 0, 1, 13, 1024, vocab, vocab + 1, INT64_MAX},
                  guesses[] = {0, 32, -76, 1, INT64_MAX, INT64_MIN};
    sy_sample_args *const a = case_args(c);
    for (int i = 0; i < 5; i++)
        case_any_scalar(c, scalars[i]);
    a->eps = eps[case_pick(c, "eps", 6)];
    a->k_limit = limits[case_pick(c, "k_limit", 9)];
    a->top_k_guess = guesses[case_pick(c, "guess", 6)];
    a->probs_in = case_chance(c, "probs_in", 6);
    if (case_chance(c, "cdf", 4)) /* of which there are most ways */
        a->noise = SY_NOISE_CDF;
    if (!plain)
        return;
    a->noise = a->noise == SY_NOISE_NONE ? SY_NOISE_NONE : SY_NOISE_CDF;
    a->ties = SY_TIES_EXACT;
    a->logprob_mode = a->logprob_mode == SY_LOGPROB_RAW ? SY_LOGPROB_FINAL : a->logprob_mode;
}

static void make_tokens(struct call *c, struct operand *x, int64_t vocab)
{
    struct stream *const s = case_stream(c, x->field->name);
    for (int64_t i = 0; i < case_count(x); i++)
        case_put(x, i, stream_chance(s, 4) ? -1 : stream_below(s, vocab));
}

/* Row b as the oracle reads it; the result has room for it. */
static struct oracle_sample_row row_of(struct call *c, int64_t b, struct oracle_sample_result *r)
{
    const sy_sample_args *const a = case_args(c);
    const struct operand *const top = case_field(c, "top_token"), *const score = case_field(c, "score_token"),
                                *const q = case_field(c, "q"), *const logits = case_field(c, "logits");
    const int64_t vocab = logits->shape[1];
    const size_t n = (size_t)vocab;
    struct oracle_sample_row row = edited_row(c, b, b, vocab);
    int64_t *const given = case_memory(c, sizeof *given);
    *given = row_int(c, "given_token", b, -1);
    row.given = *given >= 0 ? given : NULL;
    row.k_limit = a->k_limit;
    row.q = q->given ? (const float *)(const void *)q->dense + b * vocab : NULL;
    row.eps = a->eps;
    row.noise = a->noise != SY_NOISE_AUTO      ? a->noise
                : q->given                     ? SY_NOISE_Q
                : case_field(c, "seed")->given ? SY_NOISE_CDF
                                               : SY_NOISE_NONE;
    row.q_order = a->q_order;
    row.ties = a->ties;
    row.logprob_mode = a->logprob_mode;
    row.empty_token = a->empty_token;
    row.probs_in = a->probs_in;
    row.stages = a->stages;
    row.staged |= a->stages != SY_STAGES_DEFAULT;
    row.n_top = top->given ? top->shape[1] : 0;
    row.n_score = score->given ? score->shape[1] : 0;
    row.score = score->given ? case_wide(c, "score_token") + b * row.n_score : NULL;
    *r = (struct oracle_sample_result){
        .list = case_memory(c, n * sizeof *r->list),
        .prob = case_memory(c, n * sizeof *r->prob),
        .masked = case_memory(c, n * sizeof *r->masked),
        .top = case_memory(c, (size_t)row.n_top * sizeof *r->top),
        .top_logprob = case_memory(c, (size_t)row.n_top * sizeof *r->top_logprob),
        .score_logprob = case_memory(c, (size_t)row.n_score * sizeof *r->score_logprob)};
    return row;
}

static float edge_weight(const struct oracle_sample_row *row, int64_t token, float max, float inverse)
{
    const float difference = row->x[token] - max;
    return row->probs_in ? weight_of(row->x[token], 0, true) : oracle_sample_exp(difference * inverse);
}

/* Cuts so close to a token that no estimate can decide them: top_p is the share of the first tokens, or the f32 next to it;
   min_p what a token has of the first, or next to it. */
static void put_edges(struct call *c, struct operand *top_p, struct operand *min_p, int64_t b)
{
    struct stream *const s = case_stream(c, "edge");
    const int64_t to = stream_below(s, 3), half = stream_below(s, 2);
    struct oracle_sample_result r;
    struct oracle_sample_row row = row_of(c, b, &r);
    row.p = 0.99999994f;
    row.min_p = 0;
    row.noise = SY_NOISE_NONE;
    row.logprob_mode = SY_LOGPROB_NONE;
    oracle_sample_row(&row, &r);
    const int64_t n = 1 + stream_below(s, r.n > 40 && !half ? 40 : r.n);
    const bool usual = row.temperature > 1e-4f && row.temperature < 1e4f;
    const float max = row.x[r.list[0]], inverse = usual ? 1.0f / row.temperature : 1;
    uint64_t first = 0;
    float e = 0;
    for (int64_t i = 0; i < n && i < r.n; i++)
        first += oracle_sample_weight(e = edge_weight(&row, r.list[i], max, inverse));
    const double all = row.probs_in ? 0x1p40 : (double)r.weight_sum;
    const struct operand *const ends = case_field(c, "override_indptr");
    const int64_t o = ends->given ? case_get(ends, b) : 0, n_o = ends->given ? case_get(ends, b + 1) - o : 0;
    if (n_o > 0 && !stream_chance(s, 4)) /* an override may lie between values that the logits can have */
        e = edge_weight(&row, case_get(case_field(c, "override_token"), o + stream_below(s, n_o)), max,
                        inverse);
    const float edges[] = {(float)((double)first / all), e};
    struct operand *const cuts[] = {top_p, min_p};
    for (int i = 0; i < 2; i++)
        if (cuts[i] != NULL)
            put_real(cuts[i], b, to == 0 ? edges[i] : nextafterf(edges[i], to == 1 ? 0 : 2));
}

/* A race of probabilities that are their noise, or the f32 below: every bit of the noise decides. */
static void fill_race(struct call *c, struct operand *logits)
{
    struct stream *const s = case_stream(c, "race");
    const int64_t vocab = logits->shape[1];
    struct oracle_sample_result r;
    for (int64_t b = 0; b < logits->shape[0]; b++) {
        const struct oracle_sample_row row = row_of(c, b, &r);
        for (int64_t i = 0; i < vocab; i++) {
            const uint32_t word = oracle_sample_race_word(row.seed, row.offset, row.stream, i);
            const float noise = oracle_sample_race_noise(word);
            put_real(logits, b * vocab + i, stream_chance(s, 3) ? noise : nextafterf(noise, 0));
        }
    }
}

/* One in some calls has long rows; on a device, whose kernels for them are many, more do. */
static struct operand *make_logits(struct call *c)
{
    static const int64_t vocabularies[] = {5000, 40960, 2500, 20011, 32000, 70000, 131072};
    const bool device = case_for_device(), text = c->in->kind == READ_TEXT,
               wide = case_chance(c, "wide", device ? 6 : 20) && !text;
    const int64_t rows = case_size(c, "B", 0, 4, 6),
                  vocab = case_size(c, "V", 1, case_chance(c, "short", 2) ? 20 : 300, 3000),
                  past = stream_below(case_stream(c, "past"), 70),
                  large = case_pick(c, "vocabulary", device ? 5 : 7);
    const int64_t b = wide && rows > 2 ? 2 : rows, v = wide ? vocabularies[large] + past : vocab;
    case_extent(c, "B", b);
    case_extent(c, "V", v);
    struct operand *const logits = case_in(c, "logits");
    fill_rows(c, logits, v);
    case_note(c, "long rows", wide && b > 0);
    return logits;
}

static void make_inputs(struct call *c, struct operand *logits, bool plain)
{
    const sy_sample_args *const a = case_args(c);
    const int64_t rows = logits->shape[0], vocab = logits->shape[1];
    for (int64_t b = 0; b < rows && a->probs_in; b++)
        if (case_chance(c, "probs", 2))
            fill_row(case_stream(c, "logits"), logits, b, vocab,
                     case_chance(c, "units", 3) ? ROW_UNITS : ROW_PROBS);
    enum { NO_EDGE, P, MIN_P, P_ALONE, MIN_P_ALONE, EDGES = 8 };
    const int64_t edge = case_pick(c, "edge", EDGES);
    if (edge != P_ALONE && edge != MIN_P_ALONE)
        maybe_cuts(c, vocab, plain);
    if (!plain && !a->probs_in)
        make_stages(c, &a->stages);
    make_counters(c, a->noise);
    if (a->noise == SY_NOISE_Q || case_chance(c, "q", 5))
        fill_q(c, case_in(c, "q"), a->probs_in);
    if (a->noise == SY_NOISE_RACE && a->probs_in && case_chance(c, "race", 2))
        fill_race(c, logits);
    if (!plain && gives(c, "allow_bits", 2))
        fill_allow(c, case_in(c, "allow_bits"));
    if (!plain && gives(c, "overridden", 2))
        make_overrides(c, logits, rows, vocab);
    struct operand *const top_p =
                              edge == P || edge == P_ALONE ? case_in_as(c, "top_p", SY_F32, 1, &rows) : NULL,
                          *const min_p = edge == MIN_P || edge == MIN_P_ALONE
                                             ? case_in_as(c, "min_p", SY_F32, 1, &rows)
                                             : NULL;
    for (int64_t b = 0; b < rows && (top_p != NULL || min_p != NULL); b++)
        put_edges(c, top_p, min_p, b);
    case_note(c, "cut on the edge", top_p != NULL || min_p != NULL);
}

static void make_outputs(struct call *c, int64_t rows, int64_t vocab, bool plain)
{
    static const char *const outputs[] = {"token",      "kept",      "row_flags", "masked_logits",
                                          "list_token", "list_prob", "logprob",   "rank"};
    sy_sample_args *const a = case_args(c);
    const bool logprobs = a->logprob_mode != SY_LOGPROB_NONE;
    const int64_t scores[] = {rows, case_size(c, "S", 1, 4, 40)};
    if (plain) {
        for (int i = 2; i < 8; i++)
            case_leave(c, outputs[i]);
        case_need(c, "token");
        case_field(c, "logprob")->left_out = false;
        case_field(c, "logprob")->needed = logprobs;
        case_leave(c, "top_token");
        case_leave(c, "score_logprob");
        return;
    }
    if (logprobs && gives(c, "score_token", 3)) {
        make_tokens(c, case_in_as(c, "score_token", case_type(c, "score_token"), 2, scores), vocab);
        case_need(c, "score_logprob");
    } else
        case_leave(c, "score_logprob");
    a->top_logprobs = make_top(c, 1, &rows, vocab, logprobs);
    choose_outputs(c, outputs, 8, 3, logprobs);
}

static void make(struct call *c)
{
    struct operand *const logits = make_logits(c);
    const int64_t rows = logits->shape[0], vocab = logits->shape[1];
    const bool plain = case_chance(c, "plain", case_for_device() ? 2 : 4);
    make_options(c, vocab, plain);
    make_inputs(c, logits, plain);
    if (!plain && case_chance(c, "given_token", 4))
        make_tokens(c, case_in(c, "given_token"), vocab);
    make_outputs(c, rows, vocab, plain);
    if (case_chance(c, "wrong", 12)) {
        maybe_wrong(c, "given_token", vocab);
        maybe_wrong(c, "score_token", vocab);
        maybe_wrong(c, "override_indptr", 3);
        maybe_wrong(c, "override_token", vocab);
    }
}

/* ---- The oracle ---- */

static bool named_wrong(struct call *c, const char *field, int64_t rows, int64_t vocab)
{
    const struct operand *const x = case_field(c, field);
    const bool scores = strcmp(field, "score_token") == 0;
    const int64_t n = scores && x->given ? x->shape[1] : 1;
    for (int64_t i = 0; x->given && i < rows * n; i++) {
        const int64_t token = scores ? case_get(x, i) : row_int(c, field, i, -1);
        if (token >= -1 && token < vocab)
            continue;
        c->want = wrong_index(SY_FAULT_INDEX_RANGE, field, i / n, scores ? i % n : -1, token, vocab);
        return true;
    }
    return false;
}

static void put_row(struct call *c, const char *field, int64_t b, const void *from)
{
    const struct operand *const x = case_field(c, field);
    const size_t bytes = x->given ? x->bytes / (size_t)x->shape[0] : 0;
    if (bytes > 0)
        memcpy(x->want + (size_t)b * bytes, from, bytes);
}

static void note_row(struct call *c, const struct oracle_sample_row *row,
                     const struct oracle_sample_result *r)
{
    int64_t first = 0, raw = 0;
    for (int64_t i = 0; i < row->vocab; i++) {
        first = oracle_sample_key(row->x[i]) > oracle_sample_key(row->x[first]) ? i : first;
        raw = oracle_sample_key(row->raw[i]) > oracle_sample_key(row->raw[raw]) ? i : raw;
    }
    case_note(c, "NaN", r->flags & SY_ROW_NAN);
    case_note(c, "+inf", r->flags & SY_ROW_INF);
    case_note(c, "no candidate", r->flags & SY_ROW_EMPTY);
    case_note(c, "k cuts ties", r->k_tied);
    case_note(c, "p cuts ties", r->p_tied);
    case_note(c, "p is not reached", r->p_short);
    case_note(c, "min_p cuts", r->mp_cut);
    case_note(c, "all three cut", r->k_on && r->p_on && r->mp_cut);
    case_note(c, "equal scores", r->score_tied);
    case_note(c, "top-n-sigma cuts", r->sigma_cut);
    case_note(c, "typical cuts", r->typical_cut);
    case_note(c, "typical cuts ties", r->typical_tied);
    case_note(c, "XTC removes", r->xtc_cut);
    case_note(c, "dynamic temperature", r->dynamic);
    case_note(c, "the first is not allowed", row->allowed != NULL && !row->allowed[first]);
    case_note(c, "the first is overridden", first != raw);
    case_note(c, "given", row->given != NULL);
    case_note(c, "outside the distribution", r->rank > row->vocab);
    case_note(c, "not the first is drawn", r->n > 0 && r->ranked && r->token != r->list[0]);
}

static void oracle(struct call *c)
{
    const struct operand *const logits = case_field(c, "logits");
    const int64_t rows = logits->shape[0], vocab = logits->shape[1];
    struct oracle_sample_result r;
    c->query.rows = rows;
    const bool wrong =
        rows > 0 &&
        (named_wrong(c, "given_token", rows, vocab) || named_wrong(c, "score_token", rows, vocab) ||
         lists_wrong(c, "override_indptr", "override_token", rows, vocab, true, false));
    case_note(c, "wrong contents", wrong);
    for (int64_t b = 0; b < rows && !wrong; b++) {
        const struct oracle_sample_row row = row_of(c, b, &r);
        oracle_sample_row(&row, &r);
        put_row(c, "token", b, &r.token);
        put_row(c, "kept", b, &r.kept);
        put_row(c, "row_flags", b, &r.flags);
        put_row(c, "masked_logits", b, r.masked);
        put_row(c, "list_token", b, r.list);
        put_row(c, "list_prob", b, r.prob);
        put_row(c, "logprob", b, &r.logprob);
        put_row(c, "rank", b, &r.rank);
        put_row(c, "top_logprob", b, r.top_logprob);
        put_row(c, "score_logprob", b, r.score_logprob);
        for (int64_t i = 0; i < row.n_top; i++)
            case_put_want(case_field(c, "top_token"), b * row.n_top + i, r.top[i]);
        note_row(c, &row, &r);
    }
}

/* ---- Rejections ---- */

#define NO_TOP "top_token top_logprob "
#define ALL_OUTPUTS \
    "token kept row_flags masked_logits list_token list_prob logprob rank " NO_TOP "score_logprob"

static const struct rejection rejections[] = {
    {"outputs=-", SY_ERR_NULL, "every other output", .blame = "token"},
    {"override_indptr=-", SY_ERR_NULL, "override_token is given"},
    {"override_token=-", SY_ERR_NULL, "override_indptr is given"},
    {"override_logit=-", SY_ERR_NULL, "all three"},
    {"top_p.dtype=f16 logits.dtype=bf16", SY_ERR_DTYPE, "f16", "f32 or bf16"},
    {"logits.shape[1]=0", SY_ERR_SHAPE, "0 tokens", "at least 1"},
    {"top_k.ndim=2 top_k.shape[1]=2", SY_ERR_SHAPE, "[3,2]", "[1], [3] or [3,1]"},
    {"top_k.shape[0]=2", SY_ERR_SHAPE, "[2]", "[1], [3] or [3,1]"},
    {"top_p.shape[0]=0", SY_ERR_SHAPE, "[0]", "[1], [3] or [3,1]"},
    {"min_p.shape[0]=7", SY_ERR_SHAPE, "[7]", "[1], [3] or [3,1]"},
    {"temperature.shape[0]=9", SY_ERR_SHAPE, "[9]", "[1], [3] or [3,1]"},
    {"seed.shape[0]=2", SY_ERR_SHAPE, "[2]", "[1], [3] or [3,1]"},
    {"offset.shape[0]=2", SY_ERR_SHAPE, "[2]", "[1], [3] or [3,1]"},
    {"stream.shape[0]=4", SY_ERR_SHAPE, "[4]", "[1], [3] or [3,1]"},
    {"given_token.shape[0]=4", SY_ERR_SHAPE, "[4]", "[1], [3] or [3,1]"},
    {"allow_bits.shape[1]=0", SY_ERR_SHAPE, "[3,0]", "[3,1]"},
    {"allow_bits.shape[0]=2", SY_ERR_SHAPE, "[2,1]", "[3,1]"},
    {"allow_bits.shape[1]=2", SY_ERR_SHAPE, "[3,2]", "[3,1]"},
    /* ceil(V/32) has no overflow of its own. */
    {"logits.shape[1]=2^63-1 q=-", SY_ERR_SHAPE, "[3,1]", "[3,288230376151711744]", .blame = "allow_bits"},
    {"xtc_probability=-", SY_ERR_NULL, "xtc_threshold is given, want both"},
    {"dynatemp_range=-", SY_ERR_NULL, "dynatemp_exponent is given, want both"},
    {"typical_p.shape[0]=2", SY_ERR_SHAPE, "[2]", "[1], [3] or [3,1]"},
    {"noise=none seed=-", SY_ERR_VALUE, "seed is missing", .blame = "xtc_probability"},
    {"stages=vllm", SY_ERR_VALUE, "VLLM while top_n_sigma is given"},
    {"stages=hf top_n_sigma=-", SY_ERR_VALUE, "HF while xtc_probability is given"},
    {"probs_in=1", SY_ERR_VALUE, "in a call with stages"},
    {"noise=race seed=-", SY_ERR_VALUE, "RACE", "seed"},
    {"noise=cdf seed=-", SY_ERR_VALUE, "CDF", "seed"},
    {"noise=q q=-", SY_ERR_VALUE, "is Q", "want q"},
    {"logprob_mode=none top_logprobs=0 score_token,score_logprob=-", SY_ERR_VALUE,
     "the logprob output is given, want RAW or FINAL", .late = true},
    {"logprob_mode=none top_logprobs=0 logprob,top_token,top_logprob,score_token,score_logprob=-",
     SY_ERR_VALUE, "the rank output is given, want RAW or FINAL", .late = true},
    {"logprob_mode=none top_logprobs=0 logprob,rank,score_token,score_logprob=-", SY_ERR_VALUE,
     "the top_token output is given, want RAW or FINAL", .late = true},
    {"logprob_mode=none top_logprobs=0", SY_ERR_VALUE, "score_token is given, want RAW or FINAL"},
    {"logprob,rank,top_token,top_logprob,score_token,score_logprob=-", SY_ERR_VALUE,
     "the logprob output is missing, want the output, or NONE", .blame = "logprob_mode"},
    /* The largest V is 2^23; what would have to follow is left out. */
    {"logits.shape[1]=8388609 q,allow_bits=-", SY_ERR_OVERFLOW, "8388609", "8388608"},
    {"only=logits,token logits,token.shape[0]=2^61", SY_ERR_OVERFLOW, .blame = "logits|token"},
    {"top_token,top_logprob.shape[1]=0 top_logprobs=0", SY_ERR_SHAPE, "0 columns", "1 to 8"},
    {"top_token,top_logprob.shape[1]=9 top_logprobs=0", SY_ERR_SHAPE, "9 columns", "1 to 8"},
    {"top_logprobs=5", SY_ERR_SHAPE, "[3,4]", "[3,5]", .blame = "top_token", .late = true},
    {"top_logprob.shape[1]=3", SY_ERR_SHAPE, "[3,3]", "[3,4]"},
    {"top_logprob.strides[0]=3", SY_ERR_STRIDE, "3"},
    {"top_token.data=score_token", SY_ERR_ALIAS},
    {"masked_logits.data=logits logits.dtype=bf16", SY_ERR_ALIAS, "logits"},
    /* The same base and another row stride, in memory that could hold both. */
    {"masked_logits,logits.data=list_token masked_logits.strides[0]=9 list_token=-", SY_ERR_ALIAS, "logits"},
    {"top_k.strides[0]=0", SY_OK},
    {"top_k.strides[0]=-1", SY_ERR_STRIDE, "-1"},
    {.change = NULL},
};

/* Overflow and contents, between and after the phases of the description. */
static const struct rejection ladder[] = {
    {"min_p.shape[0]=7", SY_ERR_SHAPE},
    {"eps=-1", SY_ERR_VALUE},
    {"logits.shape[1]=8388609 q,allow_bits=-", SY_ERR_OVERFLOW},
    {"row_flags.shape[0]=4", SY_ERR_SHAPE},
    {"list_prob.data=masked_logits", SY_ERR_ALIAS},
    {"given_token.data[1]=8", SY_ERR_INDEX},
    {.change = NULL},
};

#define FORM(field) " " field " form:" field "=1"

const struct op_case case_sample = {
    .name = "sample",
    .make = make,
    .oracle = oracle,
    .hard = {"NaN",
             "+inf",
             "no candidate",
             "k cuts ties",
             "p cuts ties",
             "p is not reached",
             "min_p cuts",
             "all three cut",
             "equal scores",
             "top-n-sigma cuts",
             "typical cuts",
             "typical cuts ties",
             "XTC removes",
             "dynamic temperature",
             "the first is not allowed",
             "the first is overridden",
             "given",
             "outside the distribution",
             "not the first is drawn",
             "long rows",
             "cut on the edge",
             "wrong contents"},
    .small =
        "f32 B=3 V=8 M=4 S=2 q allow_bits overridden logprob_mode=final top stated score_token " ALL_OUTPUTS
            FORM("top_k") FORM("top_p") FORM("min_p") FORM("temperature") FORM("seed") FORM("offset")
                FORM("stream") FORM("given_token") FORM("top_n_sigma") FORM("typical_p")
                    FORM("xtc_probability") FORM("xtc_threshold") FORM("dynatemp_range")
                        FORM("dynatemp_exponent"),
    .shapes = {"f32 B=9 V=65544 plain seed top_p token",
               "f32 B=9 V=65552 kind=17 plain seed top_p token kept"},
    .lines = {"bf16 B=48 V=3000 kind=5 top_k k=0 top_p top_p:=6 token kept q style=1"},
    .rejections = rejections,
    .ladder = ladder,
    .unchecked = " top_token top_logprob ",
    .calls = 2500,
};
