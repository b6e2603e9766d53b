/*
 * sample: check and plan. In a tensor's contents only token numbers and the indices of the overrides can be wrong, so
 * every other rejection is here.
 */
#include "ops/sample.h"

enum {
    LOGITS,
    TOP_K,
    TOP_P,
    MIN_P,
    TEMPERATURE,
    Q,
    SEED,
    OFFSET,
    STREAM,
    TOP_N_SIGMA,
    TYPICAL_P,
    XTC_PROBABILITY,
    XTC_THRESHOLD,
    DYNATEMP_RANGE,
    DYNATEMP_EXPONENT,
    ALLOW_BITS,
    OVERRIDE_INDPTR,
    OVERRIDE_TOKEN,
    OVERRIDE_LOGIT,
    GIVEN_TOKEN,
    SCORE_TOKEN,
    TOKEN,
    KEPT,
    ROW_FLAGS,
    MASKED,
    LIST_TOKEN,
    LIST_PROB,
    LOGPROB,
    RANK,
    TOP_TOKEN,
    TOP_LOGPROB,
    SCORE_LOGPROB,
    N_TENSORS
};

#define OPERATOR sample

static const sy_field_info fields[] = {
    [LOGITS] = SYI_INPUT(logits, SYI_FLOAT_TYPES, 0, 2, 2, "B V", "one row per sequence"),
    SYI_SAMPLE_PARAMETERS,
    [Q] = SYI_OPTIONAL(q, SYI_F32, 0, 2, 2, "B V", "the caller's exponential noise"),
    [OFFSET] = SYI_PER_ROW(offset, SYI_COUNTER_TYPES, 0, "step of the sequence; missing: 0"),
    [STREAM] = SYI_PER_ROW(stream, SYI_COUNTER_TYPES | SYI_U32, 0,
                           "request number; missing: 0, or the row if seed is [1]"),
    SYI_SAMPLE_STAGES,
    [ALLOW_BITS] = SYI_TENSOR(allow_bits, SY_FIELD_OPTIONAL | SY_FIELD_ONE_ROW, SYI_I32 | SYI_U32, 0, 2, 2,
                              "B ceil(V/32)", "bit 1: the token may be picked; or one row for all"),
    SYI_SAMPLE_OVERRIDES("B+1", "N"),
    [GIVEN_TOKEN] = SYI_PER_ROW(given_token, SYI_INDEX_TYPES, 0, "0 or more: the row's token; -1: pick one"),
    [SCORE_TOKEN] = SYI_OPTIONAL(score_token, SYI_INDEX_TYPES, 0, 2, 2, "B S", "tokens to score; -1: none"),
    [TOKEN] = SYI_OPTIONAL_OUTPUT(token, SYI_I64, 0, 1, 1, "B", "the picked token"),
    [KEPT] = SYI_OPTIONAL_OUTPUT(kept, SYI_I32, 0, 1, 1, "B", "candidates left after the cuts"),
    [ROW_FLAGS] = SYI_OPTIONAL_OUTPUT(row_flags, SYI_U32, 0, 1, 1, "B", "1: a NaN, 2: +inf, 4: no candidate"),
    [MASKED] = SYI_EXTRA_OUTPUT(masked_logits, SYI_F32, 0, 2, 2, "B V", "-inf where a token was cut",
                                .words = "masked_logits", .alias = LOGITS + 1),
    [LIST_TOKEN] =
        SYI_EXTRA_OUTPUT(list_token, SYI_I64, 0, 2, 2, "B V", "candidates in order", .words = "list"),
    [LIST_PROB] =
        SYI_EXTRA_OUTPUT(list_prob, SYI_F32, 0, 2, 2, "B V", "their probabilities", .words = "list"),
    [LOGPROB] = SYI_OPTIONAL_OUTPUT(logprob, SYI_F32, 0, 1, 1, "B",
                                    "log-probability of token; with logprob_mode raw or final"),
    [RANK] =
        SYI_EXTRA_OUTPUT(rank, SYI_I32, 0, 1, 1, "B", "place of token among all, from 1", .words = "rank"),
    [TOP_TOKEN] = SYI_OPTIONAL_OUTPUT(top_token, SYI_INDEX_TYPES, 0, 2, 2, "B M",
                                      "the most likely tokens; with top_logprobs", .preset = "i64"),
    [TOP_LOGPROB] = SYI_OPTIONAL_OUTPUT(top_logprob, SYI_F32, 0, 2, 2, "B M", "their log-probabilities",
                                        .with = TOP_TOKEN + 1),
    [SCORE_LOGPROB] = SYI_OPTIONAL_OUTPUT(score_logprob, SYI_F32, 0, 2, 2, "B S",
                                          "log-probabilities of score_token", .with = SCORE_TOKEN + 1),
    SYI_SCALAR(eps, F32, .range = "0..finite", .preset = "1e-8", .help = "added to |q|"),
    SYI_SCALAR(noise, ENUM, .words = "auto none q race cdf",
               .help = "auto: q if q is given, cdf if seed is given, else none"),
    SYI_SCALAR(q_order, ENUM, .words = "list vocab",
               .help = "q belongs to candidates in order, or to tokens"),
    SYI_SAMPLE_OPTIONS,
    SYI_SCALAR(probs_in, BOOL, .help = "logits are already probabilities"),
    SYI_SCALAR(top_k_guess, I64, .help = "a hint; no result depends on it"),
    SYI_SCALAR(top_logprobs, I64, .range = "0..V", .help = "M: tokens of top_token; 0: none"),
    SYI_SAMPLE_ORDER,
};

sy_status syi_sample_overrides_given(struct syi_call *call, int first)
{
    for (int i = first; i < first + 3; i++)
        for (int j = first; j < first + 3; j++)
            if (call->tensor[i] == NULL && call->tensor[j] != NULL)
                return syi_fail(
                    call->ctx, SY_ERR_NULL, syi_name(call, i),
                    "is missing while %s is given, want all three of override_indptr, override_token "
                    "and override_logit, or none",
                    syi_name(call, j));
    return SY_OK;
}

sy_status syi_sample_check_vocab(struct syi_call *call, int64_t vocab)
{
    if (vocab > 0)
        return SY_OK;
    return syi_fail_code(call, SY_ERR_SHAPE, SY_FAULT_EMPTY, "logits", 0, 1,
                         "has a vocabulary of 0 tokens, want at least 1");
}

sy_status syi_sample_check_vocab_limit(struct syi_call *call, int64_t vocab)
{
    static const int64_t max_vocab = INT64_C(1) << 23; /* weight sums stay below 2^63 */
    if (vocab <= max_vocab)
        return SY_OK;
    return syi_fail_value(call, SY_ERR_OVERFLOW, "logits", vocab, max_vocab,
                          "has a vocabulary of %lld tokens, want at most %lld");
}

sy_status syi_sample_check_seed(struct syi_call *call, sy_noise noise, const DLTensor *seed)
{
    if ((noise != SY_NOISE_RACE && noise != SY_NOISE_CDF) || seed != NULL)
        return SY_OK;
    return syi_fail(call->ctx, SY_ERR_VALUE, "noise", "is %s but seed is missing, want a seed",
                    noise == SY_NOISE_RACE ? "RACE" : "CDF");
}

/* The stages of tensors from top_n_sigma on, by bit: 1 << 0 top_n_sigma, then typical_p, xtc, dynamic temperature. */
static const struct {
    int first, last; /* tensors, from top_n_sigma on; those after the first come with it */
    const char *with;
    uint32_t orders; /* that have it, by bit */
} stage_tensors[] = {
    {0, 0, NULL, 0x3}, {1, 1, NULL, 0xb}, {2, 3, "xtc_probability", 0x3}, {4, 5, "dynatemp_range", 0xf}};
enum { N_STAGE_TENSORS = sizeof stage_tensors / sizeof *stage_tensors };

sy_status syi_sample_stages_given(struct syi_call *call, int first)
{
    for (int i = 0; i < N_STAGE_TENSORS; i++) {
        const int a = first + stage_tensors[i].first, b = first + stage_tensors[i].last;
        if (call->tensor[a] == NULL && call->tensor[b] != NULL)
            return syi_fail(call->ctx, SY_ERR_NULL, syi_name(call, a),
                            "is missing while %s is given, want both", syi_name(call, b));
    }
    return SY_OK;
}

bool syi_sample_has_stages(const struct syi_call *call, int first, sy_stages stages)
{
    bool any = stages != SY_STAGES_DEFAULT;
    for (int i = 0; i < N_STAGE_TENSORS; i++)
        any = any || call->tensor[first + stage_tensors[i].first] != NULL;
    return any;
}

sy_status syi_sample_check_stages(struct syi_call *call, int first, sy_stages stages, bool seeded)
{
    for (int i = 0; i < N_STAGE_TENSORS; i++) {
        const int tensor = first + stage_tensors[i].first;
        if (call->tensor[tensor] != NULL && !(stage_tensors[i].orders >> stages & 1u))
            return syi_fail(call->ctx, SY_ERR_VALUE, "stages",
                            "is %s while %s is given, want an order that has it",
                            stages == SY_STAGES_VLLM ? "VLLM" : "HF", syi_name(call, tensor));
    }
    if (call->tensor[first + stage_tensors[2].first] != NULL && !seeded)
        return syi_fail(call->ctx, SY_ERR_VALUE, "xtc_probability",
                        "is given but seed is missing, want a seed");
    return SY_OK;
}

static sy_status check_together(struct syi_call *call)
{
    SYI_TRY(call->tensor[LOGITS] != NULL ? syi_check_some_output(call) : SY_OK);
    SYI_TRY(syi_sample_stages_given(call, TOP_N_SIGMA));
    return syi_sample_overrides_given(call, OVERRIDE_INDPTR);
}

static sy_status check_vocab(struct syi_call *call)
{
    return syi_sample_check_vocab(call, syi_extent(call, LOGITS, 1));
}

static sy_noise resolve_noise(const sy_sample_args *a)
{
    if (a->noise != SY_NOISE_AUTO)
        return a->noise;
    return a->q != NULL ? SY_NOISE_Q : a->seed != NULL ? SY_NOISE_CDF : SY_NOISE_NONE;
}

sy_status syi_sample_check_logprobs(struct syi_call *call, sy_logprob mode, const char *asks,
                                    const int *outputs, size_t n)
{
    const bool none = mode == SY_LOGPROB_NONE;
    bool any = call->query;
    if (none && asks != NULL)
        return syi_fail(call->ctx, SY_ERR_VALUE, "logprob_mode",
                        "is NONE while %s is given, want RAW or FINAL", asks);
    for (size_t i = 0; i < n; i++) {
        any = any || call->tensor[outputs[i]] != NULL;
        if (none && call->tensor[outputs[i]] != NULL)
            return syi_fail(call->ctx, SY_ERR_VALUE, "logprob_mode",
                            "is NONE while the %s output is given, want RAW or FINAL, or no output",
                            syi_name(call, outputs[i]));
    }
    if (!none && !any)
        return syi_fail(call->ctx, SY_ERR_VALUE, "logprob_mode",
                        "is %s while the logprob output is missing, want the output, or NONE",
                        mode == SY_LOGPROB_RAW ? "RAW" : "FINAL");
    return SY_OK;
}

static sy_status check_values(struct syi_call *call)
{
    static const int outputs[] = {LOGPROB, RANK, TOP_TOKEN, SCORE_LOGPROB};
    const sy_sample_args *a = &call->args.sample;
    SYI_TRY(syi_check_scalars(call, N_TENSORS, call->op->info.n_fields));
    if (a->noise == SY_NOISE_Q && a->q == NULL)
        return syi_fail(call->ctx, SY_ERR_VALUE, "noise", "is Q but q is missing, want q");
    SYI_TRY(syi_sample_check_seed(call, a->noise, a->seed));
    SYI_TRY(syi_sample_check_stages(call, TOP_N_SIGMA, a->stages, a->seed != NULL));
    if (a->probs_in && syi_sample_has_stages(call, TOP_N_SIGMA, a->stages))
        return syi_fail(call->ctx, SY_ERR_VALUE, "probs_in",
                        "is true in a call with stages, want top_k, top_p and min_p in the default order");
    SYI_TRY(syi_sample_check_logprobs(call, a->logprob_mode,
                                      a->score_token != NULL ? "score_token"
                                      : a->top_logprobs > 0  ? "top_logprobs"
                                                             : NULL,
                                      outputs, sizeof outputs / sizeof *outputs));
    return syi_sample_check_vocab_limit(call, syi_bound(call, 'V'));
}

sy_status syi_sample_check_top_columns(struct syi_call *call, int top_token, int64_t n, int64_t vocab)
{
    if (call->tensor[top_token] == NULL || (n >= 1 && n <= vocab))
        return SY_OK;
    return syi_fail_value(call, SY_ERR_SHAPE, "top_token", n, vocab, "has %lld columns, want 1 to %lld");
}

/* Columns of top_token and top_logprob; 0: none. */
static int64_t top_columns(const struct syi_call *call)
{
    const int64_t stated = call->args.sample.top_logprobs;
    return stated > 0 ? stated : syi_extent(call, TOP_TOKEN, 1);
}

static sy_status check_outputs(struct syi_call *call)
{
    const int64_t n = top_columns(call);
    const bool logprobs = call->args.sample.logprob_mode != SY_LOGPROB_NONE;
    SYI_TRY(syi_check_shapes(call, TOKEN, logprobs ? TOP_TOKEN : LOGPROB));
    if (!logprobs)
        return SY_OK;
    SYI_TRY(syi_sample_check_top_columns(call, TOP_TOKEN, n, syi_bound(call, 'V')));
    if (n > 0)
        syi_bind(call, 'M', n);
    return syi_check_shapes(call, TOP_TOKEN, N_TENSORS);
}

void syi_sample_choose_distribution(struct syi_sample_plan *p)
{
    const bool edits = p->temperature.rows.data != NULL || p->staged || p->allow_bits.data != NULL ||
                       p->overrides.indptr != NULL;
    const bool weighs = p->noise == SY_NOISE_NONE || p->noise == SY_NOISE_CDF;
    if (p->logprob_mode == SY_LOGPROB_RAW && weighs && !syi_sample_filters(p) && !edits && !p->args.probs_in)
        p->logprob_mode = SY_LOGPROB_FINAL;
}

static void plan_sample(struct syi_call *call)
{
    struct syi_sample_plan *p = syi_bind_plan(call, "BV");
    const sy_sample_args *a = &p->args;
    p->overrides = syi_token_lists_of(call, OVERRIDE_INDPTR, OVERRIDE_TOKEN, OVERRIDE_LOGIT);
    p->n_top = call->tensor[TOP_TOKEN] != NULL ? top_columns(call) : 0;
    if (call->query && a->logprob_mode != SY_LOGPROB_NONE) /* scratch for every output the call may have */
        p->n_top = a->top_logprobs > 0 ? a->top_logprobs : p->vocab;
    p->n_score = syi_extent(call, SCORE_TOKEN, 1);
    p->empty_token = a->empty_token == SY_EMPTY_ZERO ? 0 : -1;
    p->noise = resolve_noise(a);
    p->logprob_mode = a->logprob_mode;
    p->stages = a->stages;
    p->staged = syi_sample_has_stages(call, TOP_N_SIGMA, a->stages);
    p->seed_per_row = a->seed != NULL && syi_extent(call, SEED, 0) == p->batch;
    p->lists = call->query || p->list_token.data != NULL || p->list_prob.data != NULL;
    syi_sample_choose_distribution(p);
    call->rows = p->batch;
    call->bytes = (uint64_t)p->batch * (uint64_t)p->vocab * syi_bytes_at(call, LOGITS);
    call->bytes += (uint64_t)syi_extent(call, ALLOW_BITS, 0) * (uint64_t)syi_extent(call, ALLOW_BITS, 1) * 4;
    for (int i = OVERRIDE_INDPTR; i <= OVERRIDE_LOGIT; i++)
        call->bytes += (uint64_t)syi_extent(call, i, 0) * syi_bytes_at(call, i);
}

static const struct syi_steps own = {.together = check_together,
                                     .bind = check_vocab,
                                     .values = check_values,
                                     .outputs = check_outputs,
                                     .plan = plan_sample};

SYI_DEFINE_PLANNED(sample, SAMPLE,
                   "pick one token per row: temperature, top-k, top-p, min-p, then greedy or random",
                   score_logprob, 14)
