/*
 * sample: check and plan. In a tensor's contents only the indices of the overrides can be wrong, so every other
 * rejection is here.
 */
#include "ops/call.h"

#include <math.h>

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
    ALLOW_BITS,
    OVERRIDE_INDPTR,
    OVERRIDE_TOKEN,
    OVERRIDE_LOGIT,
    TOKEN,
    KEPT,
    ROW_FLAGS,
    MASKED,
    LIST_TOKEN,
    LIST_PROB,
    LOGPROB,
    N_TENSORS
};

#define COUNTER_TYPES (SYI_BIT(SY_TYPE_I64) | SYI_BIT(SY_TYPE_U64) | SYI_BIT(SY_TYPE_I32))

static const sy_field_info fields[] = {
    [LOGITS] = SYI_TENSOR(sample, logits, 0, SYI_FLOAT_TYPES, 0, 2, 2, "B V", "one row per sequence"),
    [TOP_K] = SYI_TENSOR(sample, top_k, SY_FIELD_OPTIONAL | SY_FIELD_PER_ROW, SYI_INDEX_TYPES, 0, 1, 2,
                         "1 | B | B 1", "keep the k largest; disabled unless 1 <= k < V"),
    [TOP_P] = SYI_TENSOR(sample, top_p, SY_FIELD_OPTIONAL | SY_FIELD_PER_ROW, SYI_BIT(SY_TYPE_F32),
                         LOGITS + 1, 1, 2, "1 | B | B 1", "keep the nucleus of mass p; disabled when >= 1"),
    [MIN_P] = SYI_TENSOR(sample, min_p, SY_FIELD_OPTIONAL | SY_FIELD_PER_ROW, SYI_BIT(SY_TYPE_F32),
                         LOGITS + 1, 1, 2, "1 | B | B 1", "keep prob >= min_p * largest; disabled when <= 0"),
    [TEMPERATURE] =
        SYI_TENSOR(sample, temperature, SY_FIELD_OPTIONAL | SY_FIELD_PER_ROW, SYI_BIT(SY_TYPE_F32),
                   LOGITS + 1, 1, 2, "1 | B | B 1", "missing: 1; below 1e-5: greedy"),
    [Q] = SYI_TENSOR(sample, q, SY_FIELD_OPTIONAL, SYI_BIT(SY_TYPE_F32), 0, 2, 2, "B V",
                     "the caller's exponential noise"),
    [SEED] = SYI_TENSOR(sample, seed, SY_FIELD_OPTIONAL | SY_FIELD_PER_ROW, COUNTER_TYPES, 0, 1, 2,
                        "1 | B | B 1", "seed of noise made by the operator"),
    [OFFSET] = SYI_TENSOR(sample, offset, SY_FIELD_OPTIONAL | SY_FIELD_PER_ROW, COUNTER_TYPES, 0, 1, 2,
                          "1 | B | B 1", "step of the sequence; missing: 0"),
    [STREAM] =
        SYI_TENSOR(sample, stream, SY_FIELD_OPTIONAL | SY_FIELD_PER_ROW, COUNTER_TYPES | SYI_BIT(SY_TYPE_U32),
                   0, 1, 2, "1 | B | B 1", "request number; missing: 0, or the row if seed is [1]"),
    [ALLOW_BITS] =
        SYI_TENSOR(sample, allow_bits, SY_FIELD_OPTIONAL, SYI_BIT(SY_TYPE_I32) | SYI_BIT(SY_TYPE_U32), 0, 2,
                   2, "B ceil(V/32)", "bit 1: the token may be picked; or one row for all"),
    [OVERRIDE_INDPTR] = SYI_TENSOR(sample, override_indptr, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1,
                                   "B+1", "where the overrides of each row begin, and the end"),
    [OVERRIDE_TOKEN] = SYI_TENSOR(sample, override_token, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1, "N",
                                  "tokens whose logit is replaced, ascending in a row"),
    [OVERRIDE_LOGIT] = SYI_TENSOR(sample, override_logit, SY_FIELD_OPTIONAL, SYI_BIT(SY_TYPE_F32), 0, 1, 1,
                                  "N", "their new logits; sample_overrides makes them"),
    [TOKEN] = SYI_TENSOR(sample, token, SY_FIELD_OUT | SY_FIELD_OPTIONAL, SYI_BIT(SY_TYPE_I64), 0, 1, 1, "B",
                         "the picked token"),
    [KEPT] = SYI_TENSOR(sample, kept, SY_FIELD_OUT | SY_FIELD_OPTIONAL, SYI_BIT(SY_TYPE_I32), 0, 1, 1, "B",
                        "candidates left after the cuts"),
    [ROW_FLAGS] = SYI_TENSOR(sample, row_flags, SY_FIELD_OUT | SY_FIELD_OPTIONAL, SYI_BIT(SY_TYPE_U32), 0, 1,
                             1, "B", "1: a NaN, 2: +inf, 4: no candidate"),
    [MASKED] = SYI_TENSOR(sample, masked_logits, SY_FIELD_OUT | SY_FIELD_OPTIONAL | SY_FIELD_EXTRA,
                          SYI_BIT(SY_TYPE_F32), 0, 2, 2, "B V", "-inf where a token was cut",
                          .words = "masked_logits"),
    [LIST_TOKEN] = SYI_TENSOR(sample, list_token, SY_FIELD_OUT | SY_FIELD_OPTIONAL | SY_FIELD_EXTRA,
                              SYI_BIT(SY_TYPE_I64), 0, 2, 2, "B V", "candidates in order", .words = "list"),
    [LIST_PROB] = SYI_TENSOR(sample, list_prob, SY_FIELD_OUT | SY_FIELD_OPTIONAL | SY_FIELD_EXTRA,
                             SYI_BIT(SY_TYPE_F32), 0, 2, 2, "B V", "their probabilities", .words = "list"),
    [LOGPROB] = SYI_TENSOR(sample, logprob, SY_FIELD_OUT | SY_FIELD_OPTIONAL, SYI_BIT(SY_TYPE_F32), 0, 1, 1,
                           "B", "log-probability of token; with logprob_mode raw or final"),
    SYI_SCALAR(sample, eps, F32, .preset = "1e-8", .help = "added to |q|"),
    SYI_SCALAR(sample, noise, ENUM, .words = "auto none q race cdf",
               .help = "auto: q if q is given, cdf if seed is given, else none"),
    SYI_SCALAR(sample, q_order, ENUM, .words = "list vocab",
               .help = "q belongs to candidates in order, or to tokens"),
    SYI_SCALAR(sample, ties, ENUM, .words = "exact all",
               .help = "of tokens equal to the cut: the lowest, or all"),
    SYI_SCALAR(sample, logprob_mode, ENUM, .words = "none raw final",
               .help = "write logprob of the input logits, or of the final distribution"),
    SYI_SCALAR(sample, empty_token, ENUM, .words = "minus_one|-1 zero|0",
               .help = "token of a row without any candidate"),
    SYI_SCALAR(sample, k_limit, I64, .help = "top-k is disabled above this; 0: no limit"),
    SYI_SCALAR(sample, probs_in, BOOL, .help = "logits are already probabilities"),
    SYI_SCALAR(sample, top_k_guess, I64, .help = "a hint; no result depends on it"),
};

static bool any_output(const struct syi_call *call)
{
    for (int i = TOKEN; i < N_TENSORS; i++)
        if (call->tensor[i] != NULL)
            return true;
    return false;
}

/* The three tensors of the overrides come together. */
static sy_status check_overrides_given(struct syi_call *call)
{
    for (int i = OVERRIDE_INDPTR; i <= OVERRIDE_LOGIT; i++)
        for (int j = OVERRIDE_INDPTR; j <= OVERRIDE_LOGIT; j++)
            if (call->tensor[i] == NULL && call->tensor[j] != NULL)
                return syi_fail(
                    call->ctx, SY_ERR_NULL, fields[i].name,
                    "is missing while %s is given, want all three of override_indptr, override_token "
                    "and override_logit, or none",
                    fields[j].name);
    return SY_OK;
}

static sy_status check_edits(struct syi_call *call)
{
    const int64_t batch = syi_extent(call, LOGITS, 0), vocab = syi_extent(call, LOGITS, 1);
    /* A single row of bits is for all. */
    sy_status st = syi_check_matrix(call, ALLOW_BITS, syi_extent(call, ALLOW_BITS, 0) == 1 ? 1 : batch,
                                    vocab / 32 + (vocab % 32 != 0));
    if (st == SY_OK)
        st = syi_check_vector(call, OVERRIDE_INDPTR, batch < INT64_MAX ? batch + 1 : batch);
    if (st == SY_OK)
        st = syi_check_vector(call, OVERRIDE_LOGIT, syi_extent(call, OVERRIDE_TOKEN, 0));
    return st;
}

static sy_status check_inputs(struct syi_call *call)
{
    if (!call->query && call->tensor[LOGITS] != NULL && !any_output(call))
        return syi_fail(call->ctx, SY_ERR_NULL, "token",
                        "is missing and so is every other output, want at least one");
    sy_status st = check_overrides_given(call);
    if (st == SY_OK)
        st = syi_check_tensors(call, false);
    if (st != SY_OK)
        return st;
    const int64_t batch = syi_extent(call, LOGITS, 0), vocab = syi_extent(call, LOGITS, 1);
    if (vocab == 0) {
        const sy_fault fault = syi_value_fault(SY_ERR_SHAPE, SY_FAULT_EMPTY, "logits", 0, 1);
        return syi_fail_at(call->ctx, &fault, "has a vocabulary of 0 tokens, want at least 1");
    }
    for (int i = TOP_K; st == SY_OK && i <= STREAM; i++)
        st = i == Q ? syi_check_matrix(call, Q, batch, vocab) : syi_check_per_row(call, i, batch);
    return st == SY_OK ? check_edits(call) : st;
}

static sy_noise resolve_noise(const sy_sample_args *a)
{
    if (a->noise != SY_NOISE_AUTO)
        return a->noise;
    return a->q != NULL ? SY_NOISE_Q : a->seed != NULL ? SY_NOISE_CDF : SY_NOISE_NONE;
}

static sy_status check_enums(struct syi_call *call)
{
    const sy_sample_args *a = &call->args.sample;
    sy_status st = syi_check_enum(call, "noise", (int)a->noise);
    if (st == SY_OK)
        st = syi_check_enum(call, "q_order", (int)a->q_order);
    if (st == SY_OK)
        st = syi_check_enum(call, "ties", (int)a->ties);
    if (st == SY_OK)
        st = syi_check_enum(call, "logprob_mode", (int)a->logprob_mode);
    return st == SY_OK ? syi_check_enum(call, "empty_token", (int)a->empty_token) : st;
}

static sy_status check_values(struct syi_call *call)
{
    const sy_sample_args *a = &call->args.sample;
    if (!(a->eps >= 0.0f) || isinf(a->eps))
        return syi_fail(call->ctx, SY_ERR_VALUE, "eps", "is %g, want a finite number of 0 or more",
                        (double)a->eps);
    sy_status st = check_enums(call);
    if (st == SY_OK)
        st = syi_check_value(call, "k_limit", a->k_limit, 0, INT64_MAX);
    if (st != SY_OK)
        return st;
    if (a->noise == SY_NOISE_Q && a->q == NULL)
        return syi_fail(call->ctx, SY_ERR_VALUE, "noise", "is Q but q is missing, want q");
    if ((a->noise == SY_NOISE_RACE || a->noise == SY_NOISE_CDF) && a->seed == NULL)
        return syi_fail(call->ctx, SY_ERR_VALUE, "noise", "is %s but seed is missing, want a seed",
                        a->noise == SY_NOISE_RACE ? "RACE" : "CDF");
    if (!call->query && a->logprob != NULL && a->logprob_mode == SY_LOGPROB_NONE)
        return syi_fail(call->ctx, SY_ERR_VALUE, "logprob_mode",
                        "is NONE while the logprob output is given, want RAW or FINAL, or no output");
    if (!call->query && a->logprob == NULL && a->logprob_mode != SY_LOGPROB_NONE)
        return syi_fail(call->ctx, SY_ERR_VALUE, "logprob_mode",
                        "is %s while the logprob output is missing, want the output, or NONE",
                        a->logprob_mode == SY_LOGPROB_RAW ? "RAW" : "FINAL");
    return SY_OK;
}

static sy_status check_outputs(struct syi_call *call)
{
    const int64_t batch = syi_extent(call, LOGITS, 0), vocab = syi_extent(call, LOGITS, 1);
    sy_status st = SY_OK;
    const int end = call->args.sample.logprob_mode == SY_LOGPROB_NONE ? LOGPROB : N_TENSORS;
    for (int i = TOKEN; st == SY_OK && i < end; i++)
        st = fields[i].max_rank == 1 ? syi_check_vector(call, i, batch)
                                     : syi_check_matrix(call, i, batch, vocab);
    return st;
}

static void plan_sample(struct syi_call *call)
{
    const sy_sample_args *a = &call->args.sample;
    call->plan.sample = (struct syi_sample_plan){
        .batch = syi_extent(call, LOGITS, 0),
        .vocab = syi_extent(call, LOGITS, 1),
        .type = syi_type_at(call, LOGITS),
        .logits = syi_rows_of(call, LOGITS),
        .q = syi_rows_of(call, Q),
        .allow_bits = syi_rows_of(call, ALLOW_BITS),
        .overrides = syi_token_lists_of(call, OVERRIDE_INDPTR, OVERRIDE_TOKEN, OVERRIDE_LOGIT),
        .top_k = syi_column_of(call, TOP_K),
        .top_p = syi_column_of(call, TOP_P),
        .min_p = syi_column_of(call, MIN_P),
        .temperature = syi_column_of(call, TEMPERATURE),
        .seed = syi_column_of(call, SEED),
        .offset = syi_column_of(call, OFFSET),
        .stream = syi_column_of(call, STREAM),
        .seed_per_row =
            call->tensor[SEED] != NULL && syi_extent(call, SEED, 0) == syi_extent(call, LOGITS, 0),
        .eps = a->eps,
        .noise = resolve_noise(a),
        .q_order = a->q_order,
        .ties = a->ties,
        .logprob_mode = a->logprob_mode,
        .empty_token = a->empty_token == SY_EMPTY_ZERO ? 0 : -1,
        .k_limit = a->k_limit,
        .probs_in = a->probs_in,
        .token = syi_data(call, TOKEN),
        .kept = syi_data(call, KEPT),
        .row_flags = syi_data(call, ROW_FLAGS),
        .logprob = syi_data(call, LOGPROB),
        .masked = syi_rows_of(call, MASKED),
        .list_token = syi_rows_of(call, LIST_TOKEN),
        .list_prob = syi_rows_of(call, LIST_PROB),
    };
    if (call->query) { /* room for every output the call may ask for */
        call->plan.sample.list_token.data = (unsigned char *)call;
        call->plan.sample.list_prob.data = (unsigned char *)call;
    }
}

static sy_status check(struct syi_call *call)
{
    static const int64_t max_vocab = INT64_C(1) << 23; /* weight sums stay below 2^63 */
    call->may_alias[0] = LOGITS;
    call->may_alias[1] = MASKED;
    sy_status st = check_inputs(call);
    if (st == SY_OK)
        st = check_values(call);
    if (st == SY_OK && syi_extent(call, LOGITS, 1) > max_vocab) {
        const sy_fault fault =
            syi_value_fault(SY_ERR_OVERFLOW, SY_FAULT_NONE, "logits", syi_extent(call, LOGITS, 1), max_vocab);
        st = syi_fail_at(call->ctx, &fault, "has a vocabulary of %lld tokens, want at most %lld",
                         (long long)fault.value, (long long)max_vocab);
    }
    if (st == SY_OK)
        st = syi_check_sizes(call);
    if (st == SY_OK)
        st = check_outputs(call);
    if (st == SY_OK)
        st = syi_check_layout(call);
    if (st != SY_OK)
        return st;
    plan_sample(call);
    call->rows = call->plan.sample.batch;
    call->bytes = (uint64_t)call->plan.sample.batch * (uint64_t)call->plan.sample.vocab *
                  syi_elem_bytes(call->tensor[LOGITS]->dtype);
    call->bytes += (uint64_t)syi_extent(call, ALLOW_BITS, 0) * (uint64_t)syi_extent(call, ALLOW_BITS, 1) * 4;
    for (int i = OVERRIDE_INDPTR; i <= OVERRIDE_LOGIT; i++)
        if (call->tensor[i] != NULL)
            call->bytes += (uint64_t)syi_extent(call, i, 0) * syi_elem_bytes(call->tensor[i]->dtype);
    return SY_OK;
}

SYI_DEFINE_OP(sample, SAMPLE,
              "pick one token per row: temperature, top-k, top-p, min-p, then greedy or random")
