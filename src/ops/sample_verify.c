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

#define COUNTER_TYPES (SYI_BIT(SY_TYPE_I64) | SYI_BIT(SY_TYPE_U64) | SYI_BIT(SY_TYPE_I32))
#define PER_REQUEST(field, types, like, text) \
    SYI_TENSOR(sample_verify, field, SY_FIELD_OPTIONAL | SY_FIELD_PER_ROW, types, like, 1, 2, "1 | B | B 1", \
               text)
#define OUTPUT(field, flags, type, ...) \
    SYI_TENSOR(sample_verify, field, SY_FIELD_OUT | SY_FIELD_OPTIONAL | (flags), SYI_BIT(SY_TYPE_##type), 0, \
               __VA_ARGS__)

static const sy_field_info fields[] = {
    [LOGITS] = SYI_TENSOR(sample_verify, logits, 0, SYI_FLOAT_TYPES, 0, 2, 3, "N V | B R V",
                          "of each request the root, then a row for each draft"),
    [CU_LENS] = SYI_TENSOR(sample_verify, cu_lens, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1, "B+1",
                           "where each request's rows begin, and the end"),
    [DRAFT_TOKEN] = SYI_TENSOR(sample_verify, draft_token, 0, SYI_INDEX_TYPES, 0, 1, 2, "N | B R | B R-1",
                               "the token before each row but the root; -1: none"),
    [PARENT] = SYI_TENSOR(sample_verify, parent, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 2, "N | B R",
                          "the row a draft continues; missing: that before it"),
    [TEMPERATURE] =
        PER_REQUEST(temperature, SYI_BIT(SY_TYPE_F32), LOGITS + 1, "missing: 1; below 1e-5: greedy"),
    [TOP_K] = PER_REQUEST(top_k, SYI_INDEX_TYPES, 0, "keep the k largest; disabled unless 1 <= k < V"),
    [TOP_P] = PER_REQUEST(top_p, SYI_BIT(SY_TYPE_F32), LOGITS + 1,
                          "keep the nucleus of mass p; disabled when >= 1"),
    [MIN_P] = PER_REQUEST(min_p, SYI_BIT(SY_TYPE_F32), LOGITS + 1,
                          "keep prob >= min_p * largest; disabled when <= 0"),
    [SEED] = PER_REQUEST(seed, COUNTER_TYPES, 0, "seed of noise made by the operator"),
    [OFFSET] = PER_REQUEST(offset, COUNTER_TYPES, 0, "step of the first token; missing: 0"),
    [STREAM] = PER_REQUEST(stream, COUNTER_TYPES | SYI_BIT(SY_TYPE_U32), 0,
                           "request number; missing: 0, or place if seed is [1]"),
    [ALLOW_BITS] =
        SYI_TENSOR(sample_verify, allow_bits, SY_FIELD_OPTIONAL, SYI_BIT(SY_TYPE_I32) | SYI_BIT(SY_TYPE_U32),
                   0, 2, 3, "N ceil(V/32)", "bit 1: the token may be picked; or one row"),
    [OVERRIDE_INDPTR] = SYI_TENSOR(sample_verify, override_indptr, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1,
                                   1, "N+1", "where the overrides of each row begin, and the end"),
    [OVERRIDE_TOKEN] = SYI_TENSOR(sample_verify, override_token, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1,
                                  "K", "tokens whose logit is replaced, ascending in a row"),
    [OVERRIDE_LOGIT] = SYI_TENSOR(sample_verify, override_logit, SY_FIELD_OPTIONAL, SYI_BIT(SY_TYPE_F32), 0,
                                  1, 1, "K", "their new logits; sample_overrides makes them"),
    [STOP_TOKEN] = SYI_TENSOR(sample_verify, stop_token, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1, "S",
                              "output ends after such a token"),
    [STOP_INDPTR] = SYI_TENSOR(sample_verify, stop_indptr, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1, "B+1",
                               "those of each request; missing: all are for all"),
    [ACCEPTED] = OUTPUT(accepted, 0, I32, 1, 1, "B", "accepted drafts"),
    [COUNT] = OUTPUT(count, 0, I32, 1, 1, "B", "tokens written"),
    [TOKEN] = OUTPUT(token, 0, I64, 1, 2, "N | B R", "tokens of each request from its first slot, then -1"),
    [NEXT_TOKEN] = OUTPUT(next_token, 0, I64, 1, 1, "B", "the last token written"),
    [PATH] = OUTPUT(path, 0, I32, 1, 2, "N | B R", "row of the request that each token is from, then -1"),
    [ACCEPT_MASK] = SYI_TENSOR(sample_verify, accept_mask, SY_FIELD_OUT | SY_FIELD_OPTIONAL | SY_FIELD_EXTRA,
                               SYI_BIT(SY_TYPE_BOOL) | SYI_BIT(SY_TYPE_U8), 0, 1, 2, "N | B R",
                               "1: the root and accepted drafts", .words = "accept_mask", .preset = "bool"),
    [ROW_FLAGS] = OUTPUT(row_flags, SY_FIELD_EXTRA, U32, 1, 2, "N | B R",
                         "1: a NaN, 2: +inf, 4: no candidate", .words = "row_flags"),
    [LOGPROB] = OUTPUT(logprob, 0, F32, 1, 2, "N | B R", "of each token; with logprob_mode raw or final"),
    [RANK] = OUTPUT(rank, SY_FIELD_EXTRA, I32, 1, 2, "N | B R", "place of each token among all, from 1",
                    .words = "rank"),
    [TOP_TOKEN] =
        SYI_TENSOR(sample_verify, top_token, SY_FIELD_OUT | SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 2, 3,
                   "N M | B R M", "the most likely tokens; with top_logprobs", .preset = "i64"),
    [TOP_LOGPROB] = OUTPUT(top_logprob, 0, F32, 2, 3, "N M | B R M", "their log-probabilities"),
    SYI_SCALAR(sample_verify, mode, ENUM, .words = "match -",
               .help = "match: a draft is accepted if it is the token that sample picks"),
    SYI_SCALAR(sample_verify, noise, ENUM, .words = "auto none - race cdf",
               .help = "auto: cdf if seed is given, else none"),
    SYI_SCALAR(sample_verify, ties, ENUM, .words = "exact all",
               .help = "of tokens equal to the cut: the lowest, or all"),
    SYI_SCALAR(sample_verify, logprob_mode, ENUM, .words = "none raw final",
               .help = "write logprob of the input logits, or of the final distribution"),
    SYI_SCALAR(sample_verify, empty_token, ENUM, .words = "minus_one|-1 zero|0",
               .help = "token of a row without any candidate"),
    SYI_SCALAR(sample_verify, k_limit, I64, .help = "top-k is disabled above this; 0: no limit"),
    SYI_SCALAR(sample_verify, top_logprobs, I64, .help = "M: tokens of top_token; 0: none"),
};

static const struct syi_draft_fields draft_fields = {LOGITS, CU_LENS, DRAFT_TOKEN, PARENT};

/* ---- Rows of drafts ---------------------------------------------------------------------------------- */

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
    const sy_fault fault = syi_value_fault(SY_ERR_SHAPE, SY_FAULT_EMPTY, "cu_lens", 0, 1);
    return syi_fail_at(call->ctx, &fault,
                       "has shape [0], want an entry for each request and one for the end");
}

/* A tensor of a number for each row. */
static sy_status check_rows(struct syi_call *call, const struct syi_draft_fields *f, int i)
{
    return is_dense(call, f->logits)
               ? syi_check_matrix(call, i, syi_extent(call, f->logits, 0), syi_extent(call, f->logits, 1))
               : syi_check_vector(call, i, syi_extent(call, f->logits, 0));
}

static bool without_roots(const struct syi_call *call, const struct syi_draft_fields *f)
{
    return is_dense(call, f->logits) && syi_extent(call, f->token, 1) == syi_extent(call, f->logits, 1) - 1;
}

sy_status syi_drafts_fit(struct syi_call *call, const struct syi_draft_fields *f)
{
    sy_status st = check_cu_lens(call, f);
    if (st == SY_OK)
        st = without_roots(call, f) ? syi_check_matrix(call, f->token, syi_extent(call, f->logits, 0),
                                                       syi_extent(call, f->logits, 1) - 1)
                                    : check_rows(call, f, f->token);
    return st == SY_OK ? check_rows(call, f, f->parent) : st;
}

sy_status syi_drafts_countable(struct syi_call *call, const struct syi_draft_fields *f)
{
    const int64_t rows = syi_drafts_rows(call, f->logits), requests = syi_drafts_requests(call, f);
    const bool few = rows <= INT32_MAX; /* requests may have none */
    if (few && requests <= INT32_MAX)
        return SY_OK;
    const int64_t n = few ? requests : rows;
    const sy_fault fault =
        syi_value_fault(SY_ERR_OVERFLOW, SY_FAULT_NONE,
                        few && !is_dense(call, f->logits) ? "cu_lens" : "logits", n, INT32_MAX);
    return syi_fail_at(call->ctx, &fault, "has %lld %s, want at most %d", (long long)n,
                       few ? "requests" : "rows", INT32_MAX);
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

/* ---- Inputs ------------------------------------------------------------------------------------------ */

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
    sy_status st = syi_drafts_given(call, &draft_fields);
    if (st == SY_OK)
        st = syi_sample_overrides_given(call, OVERRIDE_INDPTR);
    if (st == SY_OK && call->tensor[STOP_INDPTR] != NULL && call->tensor[STOP_TOKEN] == NULL)
        st = syi_fail(call->ctx, SY_ERR_NULL, "stop_token",
                      "is missing while stop_indptr is given, want both");
    if (st == SY_OK)
        st = syi_check_both(call, "top_token", call->tensor[TOP_TOKEN], "top_logprob",
                            call->tensor[TOP_LOGPROB]);
    return st == SY_OK ? syi_check_tensors(call, false) : st;
}

/* Bits for each row, or one row for all. */
static sy_status check_bits(struct syi_call *call)
{
    const DLTensor *bits = call->tensor[ALLOW_BITS];
    const int64_t vocab = vocab_of(call), words = vocab / 32 + (vocab % 32 != 0);
    if (bits == NULL)
        return SY_OK;
    if (bits->ndim == 3 && is_dense(call, LOGITS))
        return syi_check_shape(call, ALLOW_BITS, 3,
                               (int64_t[]){syi_extent(call, LOGITS, 0), syi_extent(call, LOGITS, 1), words});
    return syi_check_matrix(
        call, ALLOW_BITS, bits->ndim == 2 && bits->shape[0] == 1 ? 1 : syi_drafts_rows(call, LOGITS), words);
}

static sy_status check_inputs(struct syi_call *call)
{
    sy_status st = check_given(call);
    if (st == SY_OK)
        st = syi_sample_some_vocab(call, vocab_of(call));
    if (st == SY_OK)
        st = syi_drafts_fit(call, &draft_fields);
    if (st != SY_OK)
        return st;
    const int64_t rows = syi_drafts_rows(call, LOGITS), requests = syi_drafts_requests(call, &draft_fields);
    for (int i = TEMPERATURE; st == SY_OK && i <= STREAM; i++)
        st = syi_check_per_row(call, i, requests);
    if (st == SY_OK)
        st = check_bits(call);
    if (st == SY_OK)
        st = syi_check_vector(call, OVERRIDE_INDPTR, rows < INT64_MAX ? rows + 1 : rows);
    if (st == SY_OK)
        st = syi_check_vector(call, OVERRIDE_LOGIT, syi_extent(call, OVERRIDE_TOKEN, 0));
    return st == SY_OK ? syi_check_vector(call, STOP_INDPTR, requests < INT64_MAX ? requests + 1 : requests)
                       : st;
}

static sy_status check_mode(struct syi_call *call)
{
    const sy_sample_verify_args *a = &call->args.sample_verify;
    if (a->mode == SY_VERIFY_REJECT)
        return syi_fail(call->ctx, SY_ERR_UNSUPPORTED, "mode", "is REJECT, want MATCH: it is the only mode");
    sy_status st = syi_check_enum(call, "mode", (int)a->mode);
    if (st == SY_OK && a->noise == SY_NOISE_Q)
        st = syi_fail(call->ctx, SY_ERR_VALUE, "noise", "is Q, want AUTO, NONE, RACE or CDF: there is no q");
    return st == SY_OK ? syi_check_enum(call, "noise", (int)a->noise) : st;
}

static sy_status check_values(struct syi_call *call)
{
    static const int outputs[] = {LOGPROB, RANK, TOP_TOKEN};
    const sy_sample_verify_args *a = &call->args.sample_verify;
    sy_status st = check_mode(call);
    if (st == SY_OK)
        st = syi_check_enum(call, "ties", (int)a->ties);
    if (st == SY_OK)
        st = syi_check_enum(call, "logprob_mode", (int)a->logprob_mode);
    if (st == SY_OK)
        st = syi_check_enum(call, "empty_token", (int)a->empty_token);
    if (st == SY_OK)
        st = syi_check_value(call, "k_limit", a->k_limit, 0, INT64_MAX);
    if (st == SY_OK)
        st = syi_check_value(call, "top_logprobs", a->top_logprobs, 0, vocab_of(call));
    if (st == SY_OK)
        st = syi_sample_seeded(call, a->noise, a->seed);
    return st == SY_OK
               ? syi_sample_logprobs(call, a->logprob_mode, a->top_logprobs > 0 ? "top_logprobs" : NULL,
                                     outputs, sizeof outputs / sizeof *outputs)
               : st;
}

/* ---- Outputs ----------------------------------------------------------------------------------------- */

/* Columns of top_token and top_logprob; 0: none. */
static int64_t top_columns(const struct syi_call *call)
{
    const int64_t stated = call->args.sample_verify.top_logprobs;
    const DLTensor *top = call->tensor[TOP_TOKEN];
    return stated > 0 || top == NULL ? stated : syi_extent(call, TOP_TOKEN, top->ndim - 1);
}

static sy_status check_top(struct syi_call *call, int i, int64_t n)
{
    const int64_t shape[] = {syi_extent(call, LOGITS, 0), syi_extent(call, LOGITS, 1), n};
    return is_dense(call, LOGITS) ? syi_check_shape(call, i, 3, shape)
                                  : syi_check_matrix(call, i, shape[0], n);
}

static sy_status check_outputs(struct syi_call *call)
{
    static const int of_request[] = {ACCEPTED, COUNT, NEXT_TOKEN},
                     of_slot[] = {TOKEN, PATH, ACCEPT_MASK, ROW_FLAGS, LOGPROB, RANK};
    const bool logprobs = call->args.sample_verify.logprob_mode != SY_LOGPROB_NONE;
    const int64_t requests = syi_drafts_requests(call, &draft_fields), n = top_columns(call);
    sy_status st = SY_OK;
    for (size_t i = 0; st == SY_OK && i < sizeof of_request / sizeof *of_request; i++)
        st = syi_check_vector(call, of_request[i], requests);
    for (size_t i = 0; st == SY_OK && i < sizeof of_slot / sizeof *of_slot; i++)
        if (logprobs || of_slot[i] < LOGPROB)
            st = check_rows(call, &draft_fields, of_slot[i]);
    if (st == SY_OK && logprobs)
        st = syi_sample_top_fits(call, TOP_TOKEN, n, vocab_of(call));
    for (int i = TOP_TOKEN; st == SY_OK && n > 0 && i <= TOP_LOGPROB; i++)
        st = check_top(call, i, n);
    return st;
}

/* ---- The plan ---------------------------------------------------------------------------------------- */

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
    if (call->query && a->logprob_mode != SY_LOGPROB_NONE) /* room for every output the call may ask for */
        plan->rows.n_top = a->top_logprobs > 0 ? a->top_logprobs : plan->rows.vocab;
}

static sy_status check(struct syi_call *call)
{
    sy_status st = check_inputs(call);
    if (st == SY_OK)
        st = check_values(call);
    if (st == SY_OK)
        st = syi_sample_countable(call, vocab_of(call));
    if (st == SY_OK)
        st = syi_drafts_countable(call, &draft_fields);
    if (st == SY_OK)
        st = syi_check_sizes(call);
    if (st == SY_OK)
        st = check_outputs(call);
    if (st == SY_OK)
        st = syi_check_layout(call);
    if (st != SY_OK)
        return st;
    plan_verify(call);
    call->rows = call->plan.sample_verify.rows.batch;
    call->bytes =
        (uint64_t)call->rows * (uint64_t)vocab_of(call) * syi_elem_bytes(call->tensor[LOGITS]->dtype);
    return SY_OK;
}

SYI_DEFINE_OP(sample_verify, SAMPLE_VERIFY,
              "pick tokens along drafts: accept those that sample would pick, and one token more")
