/*
 * sample_overrides: check and plan.
 */
#include "ops/sample.h"

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
    CU_LENS,
    DRAFT_TOKEN,
    PARENT,
    SEQ_INDPTR,
    SEQ_TOKEN,
    SEQ_ROW_INDPTR,
    SEQ_BIAS,
    MIN_TOKENS,
    STOP_TOKEN,
    STOP_INDPTR,
    INDPTR,
    TOKEN,
    LOGIT,
    N_TENSORS
};

#define OPERATOR sample_overrides

static const sy_field_info fields[] = {
    [LOGITS] =
        SYI_INPUT(logits, SYI_FLOAT_TYPES, 0, 2, 3, "B V | B R V", "one row per sequence, or rows of drafts"),
    [PROMPT_INDPTR] = SYI_OPTIONAL(prompt_indptr, SYI_INDEX_TYPES, 0, 1, 1, "B+1",
                                   "where the prompt of each row begins, and the end"),
    [PROMPT_TOKEN] = SYI_OPTIONAL(prompt_token, SYI_INDEX_TYPES, 0, 1, 1, "P", "tokens of the prompts"),
    [OUTPUT_INDPTR] = SYI_OPTIONAL(output_indptr, SYI_INDEX_TYPES, 0, 1, 1, "B+1",
                                   "where the output of each row begins, and the end"),
    [OUTPUT_TOKEN] = SYI_OPTIONAL(output_token, SYI_INDEX_TYPES, 0, 1, 1, "O", "tokens picked so far"),
    [BIAS_INDPTR] = SYI_OPTIONAL(bias_indptr, SYI_INDEX_TYPES, 0, 1, 1, "B+1",
                                 "where the biases of each row begin, and the end"),
    [BIAS_TOKEN] = SYI_OPTIONAL(bias_token, SYI_INDEX_TYPES, 0, 1, 1, "N", "tokens with a bias"),
    [BIAS] = SYI_OPTIONAL(bias, SYI_F32, 0, 1, 1, "N", "added after penalties; -inf bans a token"),
    [REPETITION] =
        SYI_PER_ROW(repetition_penalty, SYI_F32, LOGITS + 1, "divides positive logits, multiplies others"),
    [FREQUENCY] =
        SYI_PER_ROW(frequency_penalty, SYI_F32, LOGITS + 1, "subtracted for each time in the output"),
    [PRESENCE] =
        SYI_PER_ROW(presence_penalty, SYI_F32, LOGITS + 1, "subtracted once if in the output; missing: 0"),
    [CU_LENS] = SYI_OPTIONAL(cu_lens, SYI_INDEX_TYPES, 0, 1, 1, "B+1",
                             "where the rows of each request begin, and the end"),
    [DRAFT_TOKEN] = SYI_OPTIONAL(draft_token, SYI_INDEX_TYPES, 0, 1, 2, "N | B R | B R-1",
                                 "the token before each row but the root; -1: none"),
    [PARENT] = SYI_OPTIONAL(parent, SYI_INDEX_TYPES, 0, 1, 2, "N | B R",
                            "the row a draft continues; missing: that before it"),
    [SEQ_INDPTR] =
        SYI_OPTIONAL(seq_indptr, SYI_INDEX_TYPES, 0, 1, 1, "S+1", "where each sequence begins, and the end"),
    [SEQ_TOKEN] = SYI_OPTIONAL(seq_token, SYI_INDEX_TYPES, 0, 1, 1, "Q",
                               "sequences: the last token is biased after the others"),
    [SEQ_ROW_INDPTR] = SYI_OPTIONAL(seq_row_indptr, SYI_INDEX_TYPES, 0, 1, 1, "B+1",
                                    "where the sequences of each row begin; missing: all"),
    [SEQ_BIAS] = SYI_OPTIONAL(seq_bias, SYI_F32, 0, 1, 1, "S", "added after bias; missing: -inf, which bans"),
    [MIN_TOKENS] =
        SYI_PER_ROW(min_tokens, SYI_INDEX_TYPES, 0, "stop tokens are banned while the output is shorter"),
    [STOP_TOKEN] = SYI_OPTIONAL(stop_token, SYI_INDEX_TYPES, 0, 1, 1, "K", "tokens that end a sequence"),
    [STOP_INDPTR] = SYI_OPTIONAL(stop_indptr, SYI_INDEX_TYPES, 0, 1, 1, "B+1",
                                 "where those of each row begin; missing: all for all"),
    [INDPTR] = SYI_OUTPUT(override_indptr, SYI_I64, 0, 1, 1, "rows+1",
                          "where the overrides of each row begin, and the end"),
    [TOKEN] =
        SYI_OUTPUT(override_token, SYI_I32, 0, 1, 1, "most", "tokens with a new logit, ascending in a row"),
    [LOGIT] = SYI_OUTPUT(override_logit, SYI_F32, 0, 1, 1, "most", "their new logits"),
    SYI_SCALAR(history_scope, ENUM, .words = "all output",
               .help = "sequences continue prompt and output, or the output alone"),
    SYI_SCALAR(max_rows, I64, .help = "with cu_lens: the most rows of a request"),
    SYI_SCALAR(bias_first, BOOL, .help = "biases are added before penalties"),
};

static const struct syi_draft_fields draft_fields = {LOGITS, CU_LENS, DRAFT_TOKEN, PARENT};

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

static bool has_drafts(const struct syi_call *call)
{
    return call->tensor[DRAFT_TOKEN] != NULL;
}

static int64_t vocab_of(const struct syi_call *call)
{
    return syi_extent(call, LOGITS, call->tensor[LOGITS]->ndim - 1);
}

/* Requests, each with a row or with rows of drafts. */
static int64_t batch_of(const struct syi_call *call)
{
    return has_drafts(call) ? syi_drafts_requests(call, &draft_fields) : syi_extent(call, LOGITS, 0);
}

/* The most rows of a request. */
static int64_t most_rows(const struct syi_call *call)
{
    if (!has_drafts(call))
        return 1;
    return call->tensor[CU_LENS] != NULL ? call->args.sample_overrides.max_rows : syi_extent(call, LOGITS, 1);
}

static int64_t n_sequences(const struct syi_call *call)
{
    const int64_t ends = syi_extent(call, SEQ_INDPTR, 0);
    return ends > 0 ? ends - 1 : 0;
}

/* Tensor i needs tensor j. */
static sy_status check_needs(struct syi_call *call, int i, int j)
{
    if (call->tensor[i] == NULL || call->tensor[j] != NULL)
        return SY_OK;
    return syi_fail(call->ctx, SY_ERR_NULL, fields[j].name, "is missing while %s is given, want both",
                    fields[i].name);
}

static sy_status check_drafts_given(struct syi_call *call)
{
    SYI_TRY(check_needs(call, CU_LENS, DRAFT_TOKEN));
    SYI_TRY(check_needs(call, PARENT, DRAFT_TOKEN));
    if (has_drafts(call))
        return syi_drafts_given(call, &draft_fields);
    if (call->tensor[LOGITS] != NULL && call->tensor[LOGITS]->ndim == 3)
        return syi_fail(call->ctx, SY_ERR_NULL, "draft_token",
                        "is missing while logits has rank 3, want the tokens of its rows");
    return SY_OK;
}

static sy_status check_given(struct syi_call *call)
{
    static const int needs[][2] = {{SEQ_ROW_INDPTR, SEQ_TOKEN},
                                   {SEQ_BIAS, SEQ_TOKEN},
                                   {MIN_TOKENS, STOP_TOKEN},
                                   {MIN_TOKENS, OUTPUT_TOKEN},
                                   {STOP_INDPTR, STOP_TOKEN}};
    SYI_TRY(check_together(call, PROMPT_INDPTR, PROMPT_TOKEN));
    SYI_TRY(check_together(call, OUTPUT_INDPTR, OUTPUT_TOKEN));
    SYI_TRY(check_together(call, BIAS_INDPTR, BIAS));
    SYI_TRY(check_together(call, SEQ_INDPTR, SEQ_TOKEN));
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        SYI_TRY(check_needs(call, needs[i][0], needs[i][1]));
    SYI_TRY(check_drafts_given(call));
    return syi_check_tensors(call, false);
}

static sy_status check_sequences(struct syi_call *call)
{
    if (call->tensor[SEQ_INDPTR] != NULL && syi_extent(call, SEQ_INDPTR, 0) == 0)
        return syi_fail_code(call, SY_ERR_SHAPE, SY_FAULT_EMPTY, "seq_indptr", 0, 1,
                             "has shape [0], want an entry for each sequence and one for the end");
    return syi_check_vector(call, SEQ_BIAS, n_sequences(call));
}

static sy_status check_inputs(struct syi_call *call)
{
    static const int indptr[] = {PROMPT_INDPTR, OUTPUT_INDPTR, BIAS_INDPTR, SEQ_ROW_INDPTR, STOP_INDPTR};
    SYI_TRY(syi_sample_check_vocab(call, vocab_of(call)));
    if (has_drafts(call))
        SYI_TRY(syi_drafts_fit(call, &draft_fields));
    syi_bind(call, 'B', batch_of(call));
    for (size_t i = 0; i < sizeof indptr / sizeof *indptr; i++)
        SYI_TRY(syi_check_shapes(call, indptr[i], indptr[i] + 1));
    SYI_TRY(syi_check_vector(call, BIAS, syi_extent(call, BIAS_TOKEN, 0)));
    SYI_TRY(syi_check_shapes(call, REPETITION, PRESENCE + 1));
    SYI_TRY(check_sequences(call));
    return syi_check_shapes(call, MIN_TOKENS, MIN_TOKENS + 1);
}

static sy_status check_values(struct syi_call *call)
{
    const sy_sample_overrides_args *a = &call->args.sample_overrides;
    SYI_TRY(syi_check_enum(call, "history_scope", (int)a->history_scope));
    return call->tensor[CU_LENS] != NULL ? syi_check_value(call, "max_rows", a->max_rows, 1, INT64_MAX)
                                         : SY_OK;
}

static sy_status check_length(struct syi_call *call, const char *name, const char *what, int64_t n)
{
    static const int64_t most = INT64_C(1) << 30; /* a token is counted in 31 bits */
    if (n <= most)
        return SY_OK;
    return syi_fail_with(call->ctx, SY_ERR_OVERFLOW, SY_FAULT_NONE, name, n, most,
                         "has %lld %s, want at most %lld", (long long)n, what, (long long)most);
}

/* The most overrides there can be, in all and of a row beside those of the first three lists. Every list has been
   counted in bytes, so their sum fits. */
static bool most_overrides(const struct syi_call *call, int64_t *more, int64_t *most)
{
    const int64_t lists = syi_extent(call, PROMPT_TOKEN, 0) + syi_extent(call, OUTPUT_TOKEN, 0) +
                          syi_extent(call, BIAS_TOKEN, 0);
    const int64_t rows = has_drafts(call) ? syi_drafts_rows(call, LOGITS) : syi_extent(call, LOGITS, 0);
    int64_t of_rows, bytes;
    *more = (has_drafts(call) ? most_rows(call) : 0) + syi_extent(call, STOP_TOKEN, 0) + n_sequences(call);
    return syi_mul(most_rows(call), lists, most) && syi_mul(rows, *more, &of_rows) &&
           syi_add(*most, of_rows, most) && syi_mul(*most, 4, &bytes);
}

static sy_status check_overflow(struct syi_call *call)
{
    int64_t more, most;
    SYI_TRY(syi_sample_check_vocab_limit(call, vocab_of(call)));
    if (has_drafts(call))
        SYI_TRY(syi_drafts_countable(call, &draft_fields));
    SYI_TRY(check_length(call, "output_token", "tokens", syi_extent(call, OUTPUT_TOKEN, 0)));
    SYI_TRY(check_length(call, "seq_token", "tokens", syi_extent(call, SEQ_TOKEN, 0)));
    SYI_TRY(check_length(call, "seq_indptr", "sequences", n_sequences(call)));
    SYI_TRY(check_length(call, "stop_token", "tokens", syi_extent(call, STOP_TOKEN, 0)));
    SYI_TRY(check_length(call, call->tensor[CU_LENS] != NULL ? "max_rows" : "logits", "rows of a request",
                         most_rows(call)));
    SYI_TRY(syi_check_sizes(call));
    if (!most_overrides(call, &more, &most))
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, "override_token",
                        "can have more than 2^63 bytes with these lists, want fewer");
    return SY_OK;
}

static sy_status check_outputs(struct syi_call *call)
{
    int64_t more, most;
    most_overrides(call, &more, &most);
    const int64_t length = call->query ? most : syi_extent(call, TOKEN, 0);
    SYI_TRY(syi_check_vector(call, INDPTR, syi_drafts_rows(call, LOGITS) + 1));
    if (call->query)
        SYI_TRY(syi_check_vector(call, TOKEN, most));
    if (length < most)
        return syi_fail_code(call, SY_ERR_SHAPE, SY_FAULT_BAD_SHAPE, "override_token", length, most,
                             "has shape [%lld], want [%lld] or more");
    return syi_check_vector(call, LOGIT, length);
}

/* Without drafts every request has one row. */
static struct syi_draft_rows rows_of(const struct syi_call *call)
{
    const int64_t batch = batch_of(call);
    struct syi_draft_rows rows = {.n_requests = batch, .n_rows = batch, .each = 1};
    if (has_drafts(call))
        rows = syi_drafts_of(call, &draft_fields);
    rows.most = most_rows(call);
    return rows;
}

static void plan_overrides(struct syi_call *call)
{
    struct syi_sample_overrides_plan *plan = &call->plan.sample_overrides;
    *plan = (struct syi_sample_overrides_plan){
        .batch = batch_of(call),
        .vocab = vocab_of(call),
        .type = syi_type_at(call, LOGITS),
        .logits = syi_rows_of(call, LOGITS),
        .drafts = rows_of(call),
        .prompt = syi_token_lists_of(call, PROMPT_INDPTR, PROMPT_TOKEN, -1),
        .output = syi_token_lists_of(call, OUTPUT_INDPTR, OUTPUT_TOKEN, -1),
        .bias = syi_token_lists_of(call, BIAS_INDPTR, BIAS_TOKEN, BIAS),
        .seq = syi_token_lists_of(call, SEQ_INDPTR, SEQ_TOKEN, SEQ_BIAS),
        .seq_row = {.indptr_field = SEQ_ROW_INDPTR,
                    .indptr = syi_data(call, SEQ_ROW_INDPTR),
                    .indptr_type = syi_type_at(call, SEQ_ROW_INDPTR),
                    .n = n_sequences(call)},
        .stop = syi_token_lists_of(call, STOP_INDPTR, STOP_TOKEN, -1),
        .repetition = syi_column_of(call, REPETITION),
        .frequency = syi_column_of(call, FREQUENCY),
        .presence = syi_column_of(call, PRESENCE),
        .min_tokens = syi_column_of(call, MIN_TOKENS),
        .output_only = call->args.sample_overrides.history_scope == SY_HISTORY_OUTPUT,
        .bias_first = call->args.sample_overrides.bias_first,
        .indptr = syi_data(call, INDPTR),
        .token = syi_data(call, TOKEN),
        .logit = syi_data(call, LOGIT),
    };
    most_overrides(call, &plan->more, &plan->most);
}

static sy_status check(struct syi_call *call)
{
    SYI_TRY(check_given(call));
    SYI_TRY(check_inputs(call));
    SYI_TRY(check_values(call));
    SYI_TRY(check_overflow(call));
    SYI_TRY(check_outputs(call));
    SYI_TRY(syi_check_layout(call));
    plan_overrides(call);
    call->rows = call->plan.sample_overrides.most;
    /* What must be read; how much is written only the data determine. */
    for (int i = PROMPT_INDPTR; i < INDPTR; i++)
        call->bytes += (uint64_t)syi_extent(call, i, 0) * syi_bytes_at(call, i);
    return SY_OK;
}

SYI_DEFINE_OP(sample_overrides, SAMPLE_OVERRIDES,
              "build sample's overrides from penalties, biases and the tokens of each sequence")
