/*
 * sample_verify: check and plan; and the shapes of rows of drafts, which sample_overrides takes too.
 */
#include "ops/sample.h"

enum {
    LOGITS,
    CU_LENS,
    DRAFT_TOKEN,
    PARENT,
    TEMPERATURE,
    TOP_K,
    TOP_P,
    MIN_P,
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
    STOP_TOKEN,
    STOP_INDPTR,
    ACCEPTED,
    COUNT,
    TOKEN,
    NEXT_TOKEN,
    PATH,
    ACCEPT_MASK,
    ROW_FLAGS,
    LOGPROB,
    RANK,
    TOP_TOKEN,
    TOP_LOGPROB,
    N_TENSORS
};

#define OPERATOR sample_verify

static const sy_field_info fields[] = {
    [LOGITS] = SYI_INPUT(logits, SYI_FLOAT_TYPES, 0, 2, 3, "N V | B R V",
                         "of each request the root, then a row for each draft"),
    [CU_LENS] = SYI_OPTIONAL(cu_lens, SYI_INDEX_TYPES, 0, 1, 1, "B+1",
                             "where each request's rows begin, and the end"),
    [DRAFT_TOKEN] = SYI_INPUT(draft_token, SYI_INDEX_TYPES, 0, 1, 2, "N | B R | B R-1",
                              "the token before each row but the root; -1: none"),
    [PARENT] = SYI_OPTIONAL(parent, SYI_INDEX_TYPES, 0, 1, 2, "N | B R",
                            "the row a draft continues; missing: that before it"),
    SYI_SAMPLE_PARAMETERS,
    [OFFSET] = SYI_PER_ROW(offset, SYI_COUNTER_TYPES, 0, "step of the first token; missing: 0"),
    [STREAM] = SYI_PER_ROW(stream, SYI_COUNTER_TYPES | SYI_U32, 0,
                           "request number; missing: 0, or place if seed is [1]"),
    SYI_SAMPLE_STAGES,
    [ALLOW_BITS] = SYI_OPTIONAL(allow_bits, SYI_I32 | SYI_U32, 0, 2, 3, "N ceil(V/32)",
                                "bit 1: the token may be picked; or one row"),
    SYI_SAMPLE_OVERRIDES("N+1", "K"),
    [STOP_TOKEN] = SYI_OPTIONAL(stop_token, SYI_INDEX_TYPES, 0, 1, 1, "S", "output ends after such a token"),
    [STOP_INDPTR] = SYI_OPTIONAL(stop_indptr, SYI_INDEX_TYPES, 0, 1, 1, "B+1",
                                 "those of each request; missing: all are for all"),
    [ACCEPTED] = SYI_OPTIONAL_OUTPUT(accepted, SYI_I32, 0, 1, 1, "B", "accepted drafts"),
    [COUNT] = SYI_OPTIONAL_OUTPUT(count, SYI_I32, 0, 1, 1, "B", "tokens written"),
    [TOKEN] = SYI_OPTIONAL_OUTPUT(token, SYI_I64, 0, 1, 2, "N | B R",
                                  "tokens of each request from its first slot, then -1"),
    [NEXT_TOKEN] = SYI_OPTIONAL_OUTPUT(next_token, SYI_I64, 0, 1, 1, "B", "the last token written"),
    [PATH] = SYI_OPTIONAL_OUTPUT(path, SYI_I32, 0, 1, 2, "N | B R",
                                 "row of the request that each token is from, then -1"),
    [ACCEPT_MASK] =
        SYI_EXTRA_OUTPUT(accept_mask, SYI_BOOL | SYI_U8, 0, 1, 2, "N | B R",
                         "1: the root and accepted drafts", .words = "accept_mask", .preset = "bool"),
    [ROW_FLAGS] = SYI_EXTRA_OUTPUT(row_flags, SYI_U32, 0, 1, 2, "N | B R",
                                   "1: a NaN, 2: +inf, 4: no candidate", .words = "row_flags"),
    [LOGPROB] = SYI_OPTIONAL_OUTPUT(logprob, SYI_F32, 0, 1, 2, "N | B R",
                                    "of each token; with logprob_mode raw or final"),
    [RANK] = SYI_EXTRA_OUTPUT(rank, SYI_I32, 0, 1, 2, "N | B R", "place of each token among all, from 1",
                              .words = "rank"),
    [TOP_TOKEN] = SYI_OPTIONAL_OUTPUT(top_token, SYI_INDEX_TYPES, 0, 2, 3, "N M | B R M",
                                      "the most likely tokens; with top_logprobs", .preset = "i64"),
    [TOP_LOGPROB] =
        SYI_OPTIONAL_OUTPUT(top_logprob, SYI_F32, 0, 2, 3, "N M | B R M", "their log-probabilities"),
    SYI_SCALAR(mode, ENUM, .words = "match -",
               .help = "match: a draft is accepted if it is the token that sample picks"),
    SYI_SCALAR(noise, ENUM, .words = "auto none - race cdf", .help = "auto: cdf if seed is given, else none"),
    SYI_SAMPLE_OPTIONS,
    SYI_SCALAR(top_logprobs, I64, .range = "0..V", .help = "M: tokens of top_token; 0: none"),
    SYI_SAMPLE_ORDER,
};

static const struct syi_draft_fields draft_fields = {LOGITS, CU_LENS, DRAFT_TOKEN, PARENT};

/* ---- Rows of drafts ---- */

static bool is_dense(const struct syi_call *call, int logits)
{
    return call->tensor[logits]->ndim == 3;
}

int64_t syi_drafts_rows(const struct syi_call *call, int logits)
{
    int64_t rows = syi_extent(call, logits, 0);
    if (is_dense(call, logits) && !syi_mul(rows, syi_extent(call, logits, 1), &rows))
        rows = INT64_MAX;
    return rows;
}

int64_t syi_drafts_requests(const struct syi_call *call, const struct syi_draft_fields *f)
{
    return is_dense(call, f->logits) ? syi_extent(call, f->logits, 0) : syi_extent(call, f->cu_lens, 0) - 1;
}

sy_status syi_drafts_given(struct syi_call *call, const struct syi_draft_fields *f)
{
    const DLTensor *logits = call->tensor[f->logits];
    if (logits == NULL || logits->ndim != 2 || call->tensor[f->cu_lens] != NULL)
        return SY_OK;
    return syi_fail(call->ctx, SY_ERR_NULL, "cu_lens",
                    "is missing while logits has rank 2, want where the rows of each request begin");
}

static sy_status check_cu_lens(struct syi_call *call, const struct syi_draft_fields *f)
{
    if (call->tensor[f->cu_lens] == NULL)
        return SY_OK;
    if (is_dense(call, f->logits))
        return syi_fail(call->ctx, SY_ERR_SHAPE, "cu_lens",
                        "is given while logits has rank 3, want logits of rank 2, or none");
    if (syi_extent(call, f->cu_lens, 0) > 0)
        return SY_OK;
    return syi_fail_code(call, SY_ERR_SHAPE, SY_FAULT_EMPTY, "cu_lens", 0, 1,
                         "has shape [0], want an entry for each request and one for the end");
}

static bool without_roots(const struct syi_call *call, const struct syi_draft_fields *f)
{
    return is_dense(call, f->logits) && syi_extent(call, f->token, 1) == syi_extent(call, f->logits, 1) - 1;
}

sy_status syi_drafts_fit(struct syi_call *call, const struct syi_draft_fields *f)
{
    SYI_TRY(check_cu_lens(call, f));
    call->form = is_dense(call, f->logits) ? 2 : 1;
    syi_bind(call, 'B', syi_drafts_requests(call, f));
    syi_bind(call, 'N', syi_drafts_rows(call, f->logits));
    syi_bind(call, 'R', syi_extent(call, f->logits, 1));
    SYI_TRY(without_roots(call, f)
                ? syi_check_matrix(call, f->token, syi_bound(call, 'B'), syi_bound(call, 'R') - 1)
                : syi_check_shapes(call, f->token, f->token + 1));
    return syi_check_shapes(call, f->parent, f->parent + 1);
}

sy_status syi_drafts_countable(struct syi_call *call, const struct syi_draft_fields *f)
{
    const int64_t rows = syi_drafts_rows(call, f->logits), requests = syi_drafts_requests(call, f);
    const bool few = rows <= INT32_MAX; /* requests may have none */
    if (few && requests <= INT32_MAX)
        return SY_OK;
    const int64_t n = few ? requests : rows;
    return syi_fail_with(call->ctx, SY_ERR_OVERFLOW, SY_FAULT_NONE,
                         few && !is_dense(call, f->logits) ? "cu_lens" : "logits", n, INT32_MAX,
                         "has %lld %s, want at most %d", (long long)n, few ? "requests" : "rows", INT32_MAX);
}

struct syi_draft_rows syi_drafts_of(const struct syi_call *call, const struct syi_draft_fields *f)
{
    return (struct syi_draft_rows){
        .n_requests = syi_drafts_requests(call, f),
        .n_rows = syi_drafts_rows(call, f->logits),
        .each = is_dense(call, f->logits) ? syi_extent(call, f->logits, 1) : -1,
        .cu_lens = syi_data(call, f->cu_lens),
        .lens_type = syi_type_at(call, f->cu_lens),
        .token_type = syi_type_at(call, f->token),
        .parent_type = syi_type_at(call, f->parent),
        .token = syi_rows_of(call, f->token),
        .parent = syi_rows_of(call, f->parent),
        .no_roots = without_roots(call, f),
        .most = INT64_MAX,
    };
}

/* ---- Inputs ---- */

static int64_t vocab_of(const struct syi_call *call)
{
    return syi_extent(call, LOGITS, call->tensor[LOGITS]->ndim - 1);
}

static sy_status check_given(struct syi_call *call)
{
    bool any = call->query || call->tensor[LOGITS] == NULL;
    for (int i = ACCEPTED; i < N_TENSORS; i++)
        any = any || call->tensor[i] != NULL;
    if (!any)
        return syi_fail(call->ctx, SY_ERR_NULL, "token",
                        "is missing and so is every other output, want at least one");
    SYI_TRY(syi_drafts_given(call, &draft_fields));
    SYI_TRY(syi_sample_overrides_given(call, OVERRIDE_INDPTR));
    if (call->tensor[STOP_INDPTR] != NULL && call->tensor[STOP_TOKEN] == NULL)
        return syi_fail(call->ctx, SY_ERR_NULL, "stop_token",
                        "is missing while stop_indptr is given, want both");
    return syi_check_both(call, "top_token", call->tensor[TOP_TOKEN], "top_logprob",
                          call->tensor[TOP_LOGPROB]);
}

/* Bits for each row, as rows of logits or one after the other, or one row for all. */
static sy_status check_bits(struct syi_call *call)
{
    const DLTensor *bits = call->tensor[ALLOW_BITS];
    const int64_t vocab = syi_bound(call, 'V'), words = vocab / 32 + (vocab % 32 != 0);
    if (bits == NULL)
        return SY_OK;
    if (bits->ndim == 3 && is_dense(call, LOGITS))
        return syi_check_shape(call, ALLOW_BITS, 3,
                               (int64_t[]){syi_bound(call, 'B'), syi_bound(call, 'R'), words});
    const bool one = bits->ndim == 2 && bits->shape[0] == 1;
    return syi_check_matrix(call, ALLOW_BITS, one ? 1 : syi_bound(call, 'N'), words);
}

/* Up to allow_bits, which has more forms than its text. */
enum { BOUND_HERE = (1 << (ALLOW_BITS + 1)) - 1 };

static sy_status bind(struct syi_call *call)
{
    SYI_TRY(syi_sample_check_vocab(call, vocab_of(call)));
    syi_bind(call, 'V', vocab_of(call));
    SYI_TRY(syi_drafts_fit(call, &draft_fields));
    SYI_TRY(syi_check_shapes(call, TEMPERATURE, ALLOW_BITS));
    return check_bits(call);
}

static sy_status check_values(struct syi_call *call)
{
    static const int outputs[] = {LOGPROB, RANK, TOP_TOKEN};
    const sy_sample_verify_args *a = &call->args.sample_verify;
    if (a->mode == SY_VERIFY_REJECT)
        return syi_fail(call->ctx, SY_ERR_UNSUPPORTED, "mode", "is REJECT, want MATCH: it is the only mode");
    SYI_TRY(syi_check_scalars(call, N_TENSORS, N_TENSORS + 1));
    if (a->noise == SY_NOISE_Q)
        return syi_fail(call->ctx, SY_ERR_VALUE, "noise",
                        "is Q, want AUTO, NONE, RACE or CDF: there is no q");
    SYI_TRY(syi_check_scalars(call, N_TENSORS + 1, call->op->info.n_fields));
    SYI_TRY(syi_sample_check_seed(call, a->noise, a->seed));
    SYI_TRY(syi_sample_check_stages(call, TOP_N_SIGMA, a->stages, a->seed != NULL));
    SYI_TRY(syi_sample_check_logprobs(call, a->logprob_mode, a->top_logprobs > 0 ? "top_logprobs" : NULL,
                                      outputs, sizeof outputs / sizeof *outputs));
    SYI_TRY(syi_sample_check_vocab_limit(call, vocab_of(call)));
    return syi_drafts_countable(call, &draft_fields);
}

/* ---- Outputs ---- */

/* Columns of top_token and top_logprob; 0: none. */
static int64_t top_columns(const struct syi_call *call)
{
    const int64_t stated = call->args.sample_verify.top_logprobs;
    const DLTensor *top = call->tensor[TOP_TOKEN];
    return stated > 0 || top == NULL ? stated : syi_extent(call, TOP_TOKEN, top->ndim - 1);
}

static sy_status check_outputs(struct syi_call *call)
{
    const bool logprobs = call->args.sample_verify.logprob_mode != SY_LOGPROB_NONE;
    const int64_t n = top_columns(call);
    SYI_TRY(syi_check_shapes(call, ACCEPTED, TOKEN)); /* those of requests first */
    SYI_TRY(syi_check_shapes(call, NEXT_TOKEN, PATH));
    SYI_TRY(syi_check_shapes(call, TOKEN, NEXT_TOKEN));
    SYI_TRY(syi_check_shapes(call, PATH, logprobs ? TOP_TOKEN : LOGPROB));
    if (!logprobs)
        return SY_OK;
    SYI_TRY(syi_sample_check_top_columns(call, TOP_TOKEN, n, vocab_of(call)));
    if (n > 0)
        syi_bind(call, 'M', n);
    return syi_check_shapes(call, TOP_TOKEN, N_TENSORS);
}

/* ---- The plan ---- */

static struct syi_sample_plan rows_of(const struct syi_call *call)
{
    const sy_sample_verify_args *a = &call->args.sample_verify;
    const bool seeded = call->tensor[SEED] != NULL;
    return (struct syi_sample_plan){
        .batch = syi_drafts_rows(call, LOGITS),
        .vocab = vocab_of(call),
        .args = {.q_order = SY_Q_VOCAB, .ties = a->ties, .k_limit = a->k_limit},
        .logits = syi_tensor_of(call, LOGITS),
        .allow_bits = syi_tensor_of(call, ALLOW_BITS),
        .overrides = syi_token_lists_of(call, OVERRIDE_INDPTR, OVERRIDE_TOKEN, OVERRIDE_LOGIT),
        .top_k = syi_column_of(call, TOP_K),
        .top_p = syi_column_of(call, TOP_P),
        .min_p = syi_column_of(call, MIN_P),
        .temperature = syi_column_of(call, TEMPERATURE),
        .seed = syi_column_of(call, SEED),
        .offset = syi_column_of(call, OFFSET),
        .stream = syi_column_of(call, STREAM),
        .top_n_sigma = syi_column_of(call, TOP_N_SIGMA),
        .typical_p = syi_column_of(call, TYPICAL_P),
        .xtc_probability = syi_column_of(call, XTC_PROBABILITY),
        .xtc_threshold = syi_column_of(call, XTC_THRESHOLD),
        .dynatemp_range = syi_column_of(call, DYNATEMP_RANGE),
        .dynatemp_exponent = syi_column_of(call, DYNATEMP_EXPONENT),
        .stages = a->stages,
        .staged = syi_sample_has_stages(call, TOP_N_SIGMA, a->stages),
        .seed_per_row = seeded && syi_extent(call, SEED, 0) == syi_drafts_requests(call, &draft_fields),
        .noise = a->noise != SY_NOISE_AUTO ? a->noise
                 : seeded                  ? SY_NOISE_CDF
                                           : SY_NOISE_NONE,
        .logprob_mode = a->logprob_mode,
        .empty_token = -1,
        .row_flags = syi_tensor_of(call, ROW_FLAGS),
        .logprob = syi_tensor_of(call, LOGPROB),
        .rank = syi_tensor_of(call, RANK),
        .n_top = call->tensor[TOP_TOKEN] != NULL ? top_columns(call) : 0,
        .top_token = syi_tensor_of(call, TOP_TOKEN),
        .top_logprob = syi_tensor_of(call, TOP_LOGPROB),
    };
}

static void plan_verify(struct syi_call *call)
{
    const sy_sample_verify_args *a = &call->args.sample_verify;
    struct syi_sample_verify_plan *plan = &call->plan.sample_verify;
    *plan = (struct syi_sample_verify_plan){
        .rows = rows_of(call),
        .drafts = syi_drafts_of(call, &draft_fields),
        .stop = syi_token_lists_of(call, STOP_INDPTR, STOP_TOKEN, -1),
        .token = syi_rows_of(call, TOKEN),
        .path = syi_rows_of(call, PATH),
        .accept_mask = syi_rows_of(call, ACCEPT_MASK),
        .row_flags = syi_rows_of(call, ROW_FLAGS),
        .logprob = syi_rows_of(call, LOGPROB),
        .rank = syi_rows_of(call, RANK),
        .accepted = syi_data(call, ACCEPTED),
        .count = syi_data(call, COUNT),
        .next_token = syi_data(call, NEXT_TOKEN),
        .empty_token = a->empty_token == SY_EMPTY_ZERO ? 0 : -1,
    };
    syi_sample_choose_distribution(&plan->rows);
    if (call->query && a->logprob_mode != SY_LOGPROB_NONE) /* scratch for every output the call may ask for */
        plan->rows.n_top = a->top_logprobs > 0 ? a->top_logprobs : plan->rows.vocab;
    call->rows = plan->rows.batch;
    call->bytes = (uint64_t)call->rows * (uint64_t)plan->rows.vocab * syi_bytes_at(call, LOGITS);
}

static const struct syi_steps own = {.together = check_given,
                                     .bind = bind,
                                     .values = check_values,
                                     .outputs = check_outputs,
                                     .plan = plan_verify,
                                     .late = BOUND_HERE};

SYI_DEFINE_DESCRIBED(sample_verify, SAMPLE_VERIFY,
                     "pick tokens along drafts: accept those that sample would pick, and one token more")
