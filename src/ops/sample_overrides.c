/*
 * sample_overrides: check and plan.
 */
#include "ops/call.h"

enum {
    LOGITS,
    PROMPT_INDPTR,
    PROMPT_TOKEN,
    OUTPUT_INDPTR,
    OUTPUT_TOKEN,
    BIAS_INDPTR,
    BIAS_TOKEN,
    BIAS,
    REPETITION,
    FREQUENCY,
    PRESENCE,
    INDPTR,
    TOKEN,
    LOGIT,
    N_TENSORS
};

static const sy_field_info fields[] = {
    [LOGITS] =
        SYI_TENSOR(sample_overrides, logits, 0, SYI_FLOAT_TYPES, 0, 2, 2, "B V", "one row per sequence"),
    [PROMPT_INDPTR] = SYI_TENSOR(sample_overrides, prompt_indptr, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1,
                                 "B+1", "where the prompt of each row begins, and the end"),
    [PROMPT_TOKEN] = SYI_TENSOR(sample_overrides, prompt_token, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1,
                                "P", "tokens of the prompts"),
    [OUTPUT_INDPTR] = SYI_TENSOR(sample_overrides, output_indptr, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1,
                                 "B+1", "where the output of each row begins, and the end"),
    [OUTPUT_TOKEN] = SYI_TENSOR(sample_overrides, output_token, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1,
                                "O", "tokens picked so far"),
    [BIAS_INDPTR] = SYI_TENSOR(sample_overrides, bias_indptr, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1,
                               "B+1", "where the biases of each row begin, and the end"),
    [BIAS_TOKEN] = SYI_TENSOR(sample_overrides, bias_token, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1, "N",
                              "tokens with a bias"),
    [BIAS] = SYI_TENSOR(sample_overrides, bias, SY_FIELD_OPTIONAL, SYI_BIT(SY_TYPE_F32), 0, 1, 1, "N",
                        "added at the end; -inf bans a token"),
    [REPETITION] = SYI_TENSOR(sample_overrides, repetition_penalty, SY_FIELD_OPTIONAL | SY_FIELD_PER_ROW,
                              SYI_BIT(SY_TYPE_F32), LOGITS + 1, 1, 2, "1 | B | B 1",
                              "divides positive logits, multiplies others; missing: 1"),
    [FREQUENCY] = SYI_TENSOR(sample_overrides, frequency_penalty, SY_FIELD_OPTIONAL | SY_FIELD_PER_ROW,
                             SYI_BIT(SY_TYPE_F32), LOGITS + 1, 1, 2, "1 | B | B 1",
                             "subtracted for each time in the output; missing: 0"),
    [PRESENCE] = SYI_TENSOR(sample_overrides, presence_penalty, SY_FIELD_OPTIONAL | SY_FIELD_PER_ROW,
                            SYI_BIT(SY_TYPE_F32), LOGITS + 1, 1, 2, "1 | B | B 1",
                            "subtracted once if in the output; missing: 0"),
    [INDPTR] = SYI_TENSOR(sample_overrides, override_indptr, SY_FIELD_OUT, SYI_BIT(SY_TYPE_I64), 0, 1, 1,
                          "B+1", "where the overrides of each row begin, and the end"),
    [TOKEN] = SYI_TENSOR(sample_overrides, override_token, SY_FIELD_OUT, SYI_BIT(SY_TYPE_I32), 0, 1, 1,
                         "P+O+N", "tokens with a new logit, ascending in a row"),
    [LOGIT] = SYI_TENSOR(sample_overrides, override_logit, SY_FIELD_OUT, SYI_BIT(SY_TYPE_F32), 0, 1, 1,
                         "P+O+N", "their new logits"),
};

/* The tensors [first, last] come together. */
static sy_status check_together(struct syi_call *call, int first, int last)
{
    for (int i = first; i <= last; i++)
        for (int j = first; j <= last; j++)
            if (call->tensor[i] == NULL && call->tensor[j] != NULL)
                return syi_fail(call->ctx, SY_ERR_NULL, fields[i].name,
                                "is missing while %s is given, want all or none of %s to %s", fields[j].name,
                                fields[first].name, fields[last].name);
    return SY_OK;
}

static sy_status check_given(struct syi_call *call)
{
    sy_status st = check_together(call, PROMPT_INDPTR, PROMPT_TOKEN);
    if (st == SY_OK)
        st = check_together(call, OUTPUT_INDPTR, OUTPUT_TOKEN);
    if (st == SY_OK)
        st = check_together(call, BIAS_INDPTR, BIAS);
    return st == SY_OK ? syi_check_tensors(call, false) : st;
}

static sy_status check_inputs(struct syi_call *call)
{
    static const int indptr[] = {PROMPT_INDPTR, OUTPUT_INDPTR, BIAS_INDPTR};
    const int64_t batch = syi_extent(call, LOGITS, 0);
    sy_status st = SY_OK;
    if (syi_extent(call, LOGITS, 1) == 0) {
        const sy_fault fault = syi_value_fault(SY_ERR_SHAPE, SY_FAULT_EMPTY, "logits", 0, 1);
        return syi_fail_at(call->ctx, &fault, "has a vocabulary of 0 tokens, want at least 1");
    }
    for (size_t i = 0; st == SY_OK && i < sizeof indptr / sizeof *indptr; i++)
        st = syi_check_vector(call, indptr[i], batch < INT64_MAX ? batch + 1 : batch);
    if (st == SY_OK)
        st = syi_check_vector(call, BIAS, syi_extent(call, BIAS_TOKEN, 0));
    for (int i = REPETITION; st == SY_OK && i <= PRESENCE; i++)
        st = syi_check_per_row(call, i, batch);
    return st;
}

static sy_status check_overflow(struct syi_call *call)
{
    static const int64_t max_vocab = INT64_C(1) << 23;  /* as sample */
    static const int64_t max_output = INT64_C(1) << 30; /* a token is counted in 31 bits */
    const int64_t vocab = syi_extent(call, LOGITS, 1), output = syi_extent(call, OUTPUT_TOKEN, 0);
    if (vocab > max_vocab) {
        const sy_fault fault = syi_value_fault(SY_ERR_OVERFLOW, SY_FAULT_NONE, "logits", vocab, max_vocab);
        return syi_fail_at(call->ctx, &fault, "has a vocabulary of %lld tokens, want at most %lld",
                           (long long)vocab, (long long)max_vocab);
    }
    if (output > max_output) {
        const sy_fault fault =
            syi_value_fault(SY_ERR_OVERFLOW, SY_FAULT_NONE, "output_token", output, max_output);
        return syi_fail_at(call->ctx, &fault, "has %lld tokens, want at most %lld", (long long)output,
                           (long long)max_output);
    }
    return syi_check_sizes(call);
}

/* The most overrides there can be. Every list has been counted in bytes, so their sum fits. */
static int64_t most_overrides(const struct syi_call *call)
{
    return syi_extent(call, PROMPT_TOKEN, 0) + syi_extent(call, OUTPUT_TOKEN, 0) +
           syi_extent(call, BIAS_TOKEN, 0);
}

static sy_status check_outputs(struct syi_call *call)
{
    const int64_t most = most_overrides(call), room = call->query ? most : syi_extent(call, TOKEN, 0);
    sy_status st = syi_check_vector(call, INDPTR, syi_extent(call, LOGITS, 0) + 1);
    if (st == SY_OK && call->query)
        st = syi_check_vector(call, TOKEN, most);
    if (st != SY_OK)
        return st;
    if (room < most) {
        const sy_fault fault =
            syi_value_fault(SY_ERR_SHAPE, SY_FAULT_BAD_SHAPE, "override_token", room, most);
        return syi_fail_at(call->ctx, &fault, "has shape [%lld], want [%lld] or more", (long long)room,
                           (long long)most);
    }
    return syi_check_vector(call, LOGIT, room);
}

static void plan_overrides(struct syi_call *call)
{
    call->plan.sample_overrides = (struct syi_sample_overrides_plan){
        .batch = syi_extent(call, LOGITS, 0),
        .vocab = syi_extent(call, LOGITS, 1),
        .type = syi_type_at(call, LOGITS),
        .logits = syi_rows_of(call, LOGITS),
        .prompt = syi_token_lists_of(call, PROMPT_INDPTR, PROMPT_TOKEN, -1),
        .output = syi_token_lists_of(call, OUTPUT_INDPTR, OUTPUT_TOKEN, -1),
        .bias = syi_token_lists_of(call, BIAS_INDPTR, BIAS_TOKEN, BIAS),
        .repetition = syi_column_of(call, REPETITION),
        .frequency = syi_column_of(call, FREQUENCY),
        .presence = syi_column_of(call, PRESENCE),
        .indptr = syi_data(call, INDPTR),
        .token = syi_data(call, TOKEN),
        .logit = syi_data(call, LOGIT),
    };
}

static sy_status check(struct syi_call *call)
{
    sy_status st = check_given(call);
    if (st == SY_OK)
        st = check_inputs(call);
    if (st == SY_OK)
        st = check_overflow(call);
    if (st == SY_OK)
        st = check_outputs(call);
    if (st == SY_OK)
        st = syi_check_layout(call);
    if (st != SY_OK)
        return st;
    plan_overrides(call);
    call->rows = most_overrides(call);
    for (int i = PROMPT_INDPTR; i <= BIAS;
         i++) /* what must be read; how much is written only the data tell */
        if (call->tensor[i] != NULL)
            call->bytes += (uint64_t)syi_extent(call, i, 0) * syi_elem_bytes(call->tensor[i]->dtype);
    return SY_OK;
}

SYI_DEFINE_OP(sample_overrides, SAMPLE_OVERRIDES,
              "build sample's overrides from penalties, biases and the tokens of each sequence")
