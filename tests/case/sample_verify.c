/*
 * sample_verify: drafts that are the tokens which sample picks from the rows before them, and one token more.
 */
#include "sample.h"

#include "oracle/sample_verify.h"

enum { MOST_ROWS = 9 };

/* ---- Rows ---------------------------------------------------------------------------------------------- */

/* What sample gives for a row of a request: `got` has room for lists of the vocabulary. */
static void sample_row(struct call *c, const struct drafts *d, int64_t b, int64_t r,
                       struct oracle_sample_result *got)
{
    const sy_sample_verify_args *const a = case_args(c);
    const struct operand *const top = case_field(c, "top_token");
    struct oracle_sample_row row = edited_row(c, b, first_row(c, d, b) + r, d->vocab);
    const size_t n = (size_t)d->vocab;
    row.offset += (uint64_t)depth_of(c, d, b, r);
    row.noise = a->noise != SY_NOISE_AUTO      ? a->noise
                : case_field(c, "seed")->given ? SY_NOISE_CDF
                                               : SY_NOISE_NONE;
    row.ties = a->ties;
    row.logprob_mode = a->logprob_mode;
    row.empty_token = a->empty_token;
    row.k_limit = a->k_limit;
    row.n_top = top->given ? top->shape[top->rank - 1] : 0;
    *got = (struct oracle_sample_result){.list = case_memory(c, n * sizeof *got->list),
                                         .prob = case_memory(c, n * sizeof *got->prob),
                                         .masked = case_memory(c, n * sizeof *got->masked),
                                         .top = case_memory(c, n * sizeof *got->top),
                                         .top_logprob = case_memory(c, n * sizeof *got->top_logprob)};
    oracle_sample_row(&row, got);
}

/* ---- The call ------------------------------------------------------------------------------------------ */

static void make_allow(struct call *c, const struct drafts *d)
{
    const int64_t words = (d->vocab + 31) / 32, form = case_pick(c, "form:allow_bits", 3),
                  rows[] = {form == 1 ? 1 : d->rows, words}, dense[] = {d->requests, d->each, words};
    const bool three = form == 2 && d->each > 0;
    fill_allow(c, case_in_as(c, "allow_bits", (DLDataType){0}, three ? 3 : 2, three ? dense : rows));
}

static void make_stops(struct call *c, const struct drafts *d)
{
    struct stream *const s = case_stream(c, "stops");
    int64_t count[16], n = case_size(c, "S", 0, 3, 40);
    if (gives(c, "stop_indptr", 2)) {
        struct operand *const ends =
            case_in_as(c, "stop_indptr", case_type(c, "stop_indptr"), 1, (int64_t[]){d->requests + 1});
        for (int64_t b = 0; b < d->requests; b++)
            count[b] = stream_below(s, 4);
        n = put_ends(ends, d->requests, count, stream_below(s, 2));
    }
    case_fill_indices(c, case_in_as(c, "stop_token", case_type(c, "stop_token"), 1, &n),
                      d->vocab < 6 ? d->vocab : 6, 0);
}

/* Mostly what the row before gives. */
static void fill_drafts(struct call *c, const struct drafts *d)
{
    struct operand *const x = case_field(c, "draft_token");
    struct stream *const s = case_stream(c, "draft_token");
    struct oracle_sample_result got = {0};
    for (int64_t i = 0; i < case_count(x); i++)
        case_put(x, i, -7); /* those of roots, and of no request, are not read */
    for (int64_t b = 0; b < d->requests; b++)
        for (int64_t r = 1; r < first_row(c, d, b + 1) - first_row(c, d, b); r++) {
            const int64_t kind = stream_below(s, 16), any = stream_below(s, d->vocab);
            sample_row(c, d, b, parent_of(c, d, b, r), &got);
            case_put(x, draft_at(c, d, b, r), kind == 0 ? -1 : kind < 4 ? any : got.token);
        }
}

static void make_wrong(struct call *c, const struct drafts *d)
{
    maybe_wrong(c, "cu_lens", d->rows);
    maybe_wrong(c, "parent", 2);
    maybe_wrong(c, "draft_token", d->vocab);
    maybe_wrong(c, "stop_indptr", 3);
    maybe_wrong(c, "stop_token", d->vocab);
    maybe_wrong(c, "override_indptr", 3);
    maybe_wrong(c, "override_token", d->vocab);
}

static void make(struct call *c)
{
    static const char *const outputs[] = {"token",       "accepted",  "count",   "next_token", "path",
                                          "accept_mask", "row_flags", "logprob", "rank"};
    static const char *const scalars[] = {"mode", "noise", "ties", "logprob_mode", "empty_token"};
    sy_sample_verify_args *const a = case_args(c);
    const int64_t limits[] = {0, 0, 3, 1024};
    const struct drafts d = make_drafts(c);
    for (int i = 0; i < 5; i++)
        case_any_scalar(c, scalars[i]);
    a->k_limit = limits[case_pick(c, "k_limit", 4)];
    maybe_cuts(c, d.vocab, false);
    make_counters(c, a->noise);
    if (gives(c, "allow_bits", 2))
        make_allow(c, &d);
    if (gives(c, "overridden", 2))
        make_overrides(c, case_field(c, "logits"), d.rows, d.vocab);
    if (gives(c, "stop_token", 2))
        make_stops(c, &d);
    make_parents(c, &d);
    fill_drafts(c, &d);
    if (case_chance(c, "wrong", 6))
        make_wrong(c, &d);
    const bool logprobs = a->logprob_mode != SY_LOGPROB_NONE;
    const int64_t shape[] = {d.each > 0 ? d.requests : d.rows, d.each};
    a->top_logprobs = make_top(c, d.each > 0 ? 2 : 1, shape, d.vocab, logprobs);
    if (case_flag(c, "accept_mask"))
        case_out_as(c, "accept_mask", case_type(c, "accept_mask"), -1, NULL);
    choose_outputs(c, outputs, 9, 9, logprobs);
}

/* ---- The oracle ---------------------------------------------------------------------------------------- */

/* An element of an output, where it is given. */
static void put(struct call *c, const char *field, int64_t i, int64_t value)
{
    struct operand *const x = case_field(c, field);
    if (x->given)
        case_put_want(x, i, value);
}

/* A slot, with the row that its token is of, or with none. */
static void put_slot(struct call *c, int64_t slot, int64_t row, const struct oracle_sample_result *got)
{
    const struct operand *const top = case_field(c, "top_token");
    const int64_t m = top->given ? top->shape[top->rank - 1] : 0;
    put(c, "token", slot, got != NULL ? got->token : -1);
    put(c, "path", slot, row);
    put(c, "row_flags", slot, got != NULL ? got->flags : 0);
    put(c, "logprob", slot, got != NULL ? f32_bits(got->logprob) : 0);
    put(c, "rank", slot, got != NULL ? got->rank : 0);
    for (int64_t j = 0; j < m; j++) {
        put(c, "top_token", slot * m + j, got != NULL ? got->top[j] : -1);
        put(c, "top_logprob", slot * m + j, f32_bits(got != NULL ? got->top_logprob[j] : -INFINITY));
    }
}

static struct verify_request request_of(struct call *c, const struct drafts *d, int64_t b,
                                        struct oracle_sample_result *got)
{
    const struct operand *const ends = case_field(c, "stop_indptr");
    const int64_t n = first_row(c, d, b + 1) - first_row(c, d, b), *const stop = case_wide(c, "stop_token");
    int64_t *const numbers = case_memory(c, 3 * MOST_ROWS * sizeof *numbers);
    bool *const empty = case_memory(c, MOST_ROWS);
    for (int64_t r = 0; r < n; r++) {
        sample_row(c, d, b, r, &got[r]);
        numbers[r] = got[r].token;
        empty[r] = got[r].flags & SY_ROW_EMPTY;
        if (r > 0) {
            numbers[MOST_ROWS + r] = case_get(case_field(c, "draft_token"), draft_at(c, d, b, r));
            numbers[2 * MOST_ROWS + r] = parent_of(c, d, b, r);
        }
    }
    struct verify_request of = {.n = n,
                                .picked = numbers,
                                .draft = numbers + MOST_ROWS,
                                .parent = numbers + 2 * MOST_ROWS,
                                .empty = empty,
                                .stop = stop,
                                .n_stop = stop != NULL ? case_count(case_field(c, "stop_token")) : 0};
    if (ends->given) {
        of.stop = stop + case_get(ends, b);
        of.n_stop = case_get(ends, b + 1) - case_get(ends, b);
    }
    return of;
}

static void verify(struct call *c, const struct drafts *d, int64_t b)
{
    struct oracle_sample_result got[MOST_ROWS];
    int64_t path[MOST_ROWS], first = first_row(c, d, b);
    bool mask[MOST_ROWS];
    struct verify_result is = {.path = path, .accepted_rows = mask};
    const struct verify_request of = request_of(c, d, b, got);
    oracle_sample_verify(&of, &is);
    for (int64_t s = 0; s < of.n; s++) {
        put(c, "accept_mask", first + s, mask[s]);
        if (s < is.count)
            put_slot(c, first + s, path[s], &got[path[s]]);
    }
    const int64_t last = is.count > 0 ? path[is.count - 1] : -1;
    put(c, "accepted", b, is.accepted);
    put(c, "count", b, is.count);
    put(c, "next_token", b, last >= 0 ? of.picked[last] : -1);
    case_note(c, "accepted", is.accepted > 0);
    case_note(c, "some accepted", is.accepted > 0 && is.accepted < of.n - 1);
    case_note(c, "all accepted", is.accepted == of.n - 1 && of.n > 3);
    case_note(c, "no rows", of.n == 0);
    case_note(c, "ends without a candidate", last >= 0 && of.empty[last]);
    case_note(c, "ends with a stop token", is.count > 0 && is.count == is.accepted);
    case_note(c, "a tree", is.count > 1 && last != is.count - 1);
}

static void oracle(struct call *c)
{
    const struct operand *const logits = case_field(c, "logits"), *const ends = case_field(c, "cu_lens");
    const bool dense = logits->rank == 3;
    const struct drafts d = {.requests = dense ? logits->shape[0] : case_count(ends) - 1,
                             .rows = dense ? logits->shape[0] * logits->shape[1] : logits->shape[0],
                             .each = dense ? logits->shape[1] : 0,
                             .vocab = logits->shape[logits->rank - 1]};
    c->query.rows = d.rows;
    const bool wrong = d.requests > 0 &&
                       (drafts_wrong(c, &d, INT64_MAX) ||
                        lists_wrong(c, "stop_indptr", "stop_token", d.requests, d.vocab, false, false) ||
                        (d.rows > 0 && /* contents of no rows are not read */
                         lists_wrong(c, "override_indptr", "override_token", d.rows, d.vocab, true, false)));
    case_note(c, "wrong contents", wrong);
    for (int64_t row = 0; d.requests > 0 && row < d.rows; row++) {
        put_slot(c, row, -1, NULL);
        put(c, "accept_mask", row, 0);
    }
    for (int64_t b = 0; b < d.requests && !wrong; b++)
        verify(c, &d, b);
    case_note(c, "rows of no request", d.requests > 0 && first_row(c, &d, d.requests) < d.rows);
}

/* ---- Rejections ---------------------------------------------------------------------------------------- */

static void leave_outputs(struct call *c)
{
    for (int i = 0; i < c->n_operands; i++)
        if (c->operand[i].out)
            *c->operand[i].at = NULL;
}

static void no_seed(struct call *c)
{
    sy_sample_verify_args *const a = case_args(c);
    a->seed = NULL;
    a->noise = SY_NOISE_CDF;
}

static void no_mode(struct call *c)
{
    sy_sample_verify_args *const a = case_args(c);
    a->top_logprobs = 0;
    a->logprob_mode = SY_LOGPROB_NONE;
}

static void mode_alone(struct call *c)
{
    sy_sample_verify_args *const a = case_args(c);
    a->logprob = a->rank = a->top_token = a->top_logprob = NULL;
}

static void set_columns(struct call *c, int64_t n)
{
    sy_sample_verify_args *const a = case_args(c);
    a->top_logprobs = 0;
    case_field(c, "top_token")->now_shape[1] = n;
}

static void no_columns(struct call *c)
{
    set_columns(c, 0);
}

static void columns_past_v(struct call *c)
{
    set_columns(c, 9);
}

static void larger_vocabulary(struct call *c)
{
    case_field(c, "logits")->now_shape[1] = 8388609;
    case_field(c, "allow_bits")->now_shape[1] = 262145;
}

/* [requests, each, 8] without what depends on rows. */
static void set_rows(struct call *c, int64_t requests, int64_t each)
{
    static const char *const left[] = {"cu_lens",        "parent",         "allow_bits",  "override_indptr",
                                       "override_token", "override_logit", "temperature", "top_k",
                                       "top_p",          "min_p",          "seed",        "offset",
                                       "stream",         "stop_indptr",    "stop_token"};
    struct operand *const logits = case_field(c, "logits"), *const draft = case_field(c, "draft_token");
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        *case_field(c, left[i])->at = NULL;
    logits->t.ndim = 3;
    draft->t.ndim = 2;
    logits->now_shape[0] = draft->now_shape[0] = requests;
    logits->now_shape[1] = draft->now_shape[1] = each;
    logits->now_shape[2] = 8;
}

static void rows_past_int32(struct call *c)
{
    set_rows(c, 2, 1 << 30);
}

static void rows_past_int64(struct call *c)
{
    set_rows(c, 2, INT64_C(1) << 62);
}

static void too_many_requests(struct call *c)
{
    set_rows(c, INT64_C(1) << 40, 0);
}

#define VALUE(field, n, text, right) BAD_SCALAR(field, n, SY_ERR_VALUE, NULL, text, right), .inputs = true
#define INPUT(field, d, n, text, right) BAD_EXTENT(field, d, n, text, right), .inputs = true

static const struct rejection rejections[] = {
    {"no output", BAD_CALL(leave_outputs, SY_ERR_NULL, "token", "missing", "at least one")},
    {"stop_indptr alone", NO_TENSOR("stop_token"), .found = "stop_indptr is given, want both",
     .inputs = true},
    {"two of the overrides", NO_TENSOR("override_token"), .found = "all three", .inputs = true},
    {"top_token alone", NO_TENSOR("top_logprob"), .found = "top_token is given"},
    {"no cu_lens", NO_TENSOR("cu_lens"), .found = "rank 2", .inputs = true},
    {"no vocabulary", INPUT("logits", 1, 0, "0 tokens", "at least 1")},
    {"cu_lens [0]", INPUT("cu_lens", 0, 0, "[0]", "an entry for each request")},
    {"draft_token [5]", INPUT("draft_token", 0, 5, "[5]", "[6]")},
    {"top_k [3]", INPUT("top_k", 0, 3, "[3]", "[1], [2] or [2,1]")},
    {"allow_bits [5,1]", INPUT("allow_bits", 0, 5, "[5,1]", "[6,1]")},
    {"mode reject", BAD_SCALAR("mode", SY_VERIFY_REJECT, SY_ERR_UNSUPPORTED, NULL, "REJECT", "MATCH"),
     .inputs = true},
    {"mode 2", VALUE("mode", 2, "2", "MATCH")},
    {"noise q", VALUE("noise", SY_NOISE_Q, "Q", "AUTO, NONE, RACE or CDF")},
    {"noise 5", VALUE("noise", 5, "5", NULL)},
    {"k_limit -1", VALUE("k_limit", -1, "-1", "0 or more")},
    {"top_logprobs V + 1", VALUE("top_logprobs", 9, "9", "0 to 8")},
    {"a draw without a seed", BAD_CALL(no_seed, SY_ERR_VALUE, "noise", "CDF", "seed"), .inputs = true},
    {"outputs without logprob_mode", BAD_CALL(no_mode, SY_ERR_VALUE, "logprob_mode", "NONE", "RAW or FINAL")},
    {"logprob_mode without outputs", BAD_CALL(mode_alone, SY_ERR_VALUE, "logprob_mode", "RAW", "or NONE")},
    {"V = 2^23 + 1", BAD_CALL(larger_vocabulary, SY_ERR_OVERFLOW, "logits", "8388609", "8388608"),
     .inputs = true},
    {"2^31 rows", BAD_CALL(rows_past_int32, SY_ERR_OVERFLOW, "logits", "2147483648 rows", "2147483647"),
     .inputs = true},
    {"2^63 rows", BAD_CALL(rows_past_int64, SY_ERR_OVERFLOW, "logits", "rows", "2147483647"), .inputs = true},
    {"2^40 requests", BAD_CALL(too_many_requests, SY_ERR_OVERFLOW, "logits", "requests", "2147483647"),
     .inputs = true},
    {"top_token [6,1]", BAD_EXTENT("top_token", 1, 1, "[6,1]", "[6,2]")},
    {"top_token of no columns", BAD_CALL(no_columns, SY_ERR_SHAPE, "top_token", "0 columns", "1 to 8")},
    {"top_token of V + 1 columns",
     BAD_CALL(columns_past_v, SY_ERR_SHAPE, "top_token", "9 columns", "1 to 8")},
    {"top_logprob [6,1]", BAD_EXTENT("top_logprob", 1, 1, "[6,1]", "[6,2]")},
    {"draft_token with stride 2", BAD_STRIDE("draft_token", 0, 2, "2", "contiguous"), .inputs = true},
    {"allow_bits with stride 0", BAD_STRIDE("allow_bits", 0, 0, "0", NULL), .inputs = true},
    {"top_logprob with stride 2", BAD_STRIDE("top_logprob", 1, 2, "2", NULL)},
    {"top_token over logits", BAD_OVER("top_token", "logits", 0)},
    {.name = NULL},
};

static const struct rejection ladder[] = {
    {"values", BAD_SCALAR("k_limit", -1, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"overflow", BAD_CALL(larger_vocabulary, SY_ERR_OVERFLOW, "logits", NULL, NULL)},
    {"output shape", BAD_EXTENT("count", 0, 3, NULL, NULL)},
    {"alias", BAD_OVER("path", "token", 0)},
    {"contents", BAD_NUMBER("cu_lens", 1, 7, SY_ERR_INDEX, NULL, NULL)},
    {.name = NULL},
};

#define FORM(field) " " field " form:" field "=1"

const struct op_case case_sample_verify = {
    .name = "sample_verify",
    .make = make,
    .oracle = oracle,
    .hard = {"accepted", "some accepted", "all accepted", "no rows", "ends without a candidate",
             "ends with a stop token", "a tree", "rows of no request", "wrong contents"},
    .small =
        "B=2 R=3 V=8 M=2 parent allow_bits overridden stop_token stop_indptr logprob_mode=raw top stated "
        "accepted count token path logprob rank" FORM("temperature") FORM("top_k") FORM("top_p") FORM("min_p")
            FORM("seed") FORM("offset") FORM("stream"),
    .lines = {"bf16 B=9 R=7 V=20000 top_p seed token count accepted",
              "B=9 R=7 V=5000 dense top_k token path"},
    .rejections = rejections,
    .ladder = ladder,
    .unchecked = " cu_lens draft_token allow_bits top_token top_logprob mode noise ",
    .calls = 400,
};
