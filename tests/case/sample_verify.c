/*
 * sample_verify: drafts that are the tokens which sample picks from the rows before them, and one token more.
 */
#include "sample.h"

enum { MOST_ROWS = 9 };

/* ---- Rows ---- */

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
    row.stages = a->stages;
    row.staged |= a->stages != SY_STAGES_DEFAULT;
    row.n_top = top->given ? top->shape[top->rank - 1] : 0;
    *got = (struct oracle_sample_result){.list = case_memory(c, n * sizeof *got->list),
                                         .prob = case_memory(c, n * sizeof *got->prob),
                                         .masked = case_memory(c, n * sizeof *got->masked),
                                         .top = case_memory(c, n * sizeof *got->top),
                                         .top_logprob = case_memory(c, n * sizeof *got->top_logprob)};
    oracle_sample_row(&row, got);
}

/* ---- The call ---- */

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
    make_stages(c, &a->stages);
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

/* ---- The oracle ---- */

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

struct verify_request {
    int64_t n;             /* rows */
    const int64_t *parent; /* [n] entry 0 is not read; NULL: a chain */
    const int64_t *draft;  /* [n] the same */
    const int64_t *picked; /* [n] what sample picks from each row */
    const bool *empty;     /* [n] the row has no candidate */
    int64_t n_stop;
    const int64_t *stop;
};

struct verify_result {
    int64_t accepted, count;
    int64_t *path;       /* [n] rows of the tokens, -1 after them */
    bool *accepted_rows; /* [n] */
};

static int64_t before(const struct verify_request *of, int64_t r)
{
    return of->parent != NULL ? of->parent[r] : r - 1;
}

static bool is_twin(const struct verify_request *of, int64_t a, int64_t b)
{
    return before(of, a) == before(of, b) && of->draft[a] == of->draft[b];
}

static bool is_stop(const struct verify_request *of, int64_t token)
{
    bool found = false;
    for (int64_t i = 0; i < of->n_stop; i++)
        found = found || of->stop[i] == token;
    return found;
}

/* Whether the draft before row r is what its ancestors give, and no row before it says the same. */
static bool is_accepted(const struct verify_request *of, const bool *accepted, int64_t r)
{
    const int64_t up = before(of, r);
    for (int64_t i = 1; i < r; i++)
        if (is_twin(of, i, r))
            return false;
    /* No token follows a stop token. */
    const bool ended = up > 0 && is_stop(of, of->draft[up]);
    return accepted[up] && !ended && !of->empty[up] && of->picked[up] == of->draft[r];
}

static int64_t depth(const struct verify_request *of, int64_t r)
{
    return r == 0 ? 0 : 1 + depth(of, before(of, r));
}

/* Nothing is walked: of every row it is decided whether the tokens of its ancestors lead to it, and the rows that are led to are
   sorted by depth. */
static void decide(const struct verify_request *of, struct verify_result *to)
{
    to->accepted = to->count = 0;
    for (int64_t r = 0; r < of->n; r++) {
        to->path[r] = -1;
        to->accepted_rows[r] = r == 0 || is_accepted(of, to->accepted_rows, r);
    }
    for (int64_t r = 0; r < of->n; r++) {
        if (!to->accepted_rows[r])
            continue;
        to->accepted += r > 0;
        if (r > 0 && is_stop(of, of->draft[r]))
            continue; /* its row gives no token */
        to->path[depth(of, r)] = r;
        to->count++;
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
    decide(&of, &is);
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

/* ---- Rejections ---- */

/* Without what depends on rows. */
#define NO_ROWS \
    " cu_lens,parent,allow_bits,override_indptr,override_token,override_logit,temperature,top_k,top_p,min_" \
    "p,seed,offset," \
    "stream,stop_indptr,stop_token=-"

static const struct rejection rejections[] = {
    {"outputs=-", SY_ERR_NULL, "missing", "at least one", .blame = "token"},
    {"stop_token=-", SY_ERR_NULL, "stop_indptr is given, want both"},
    {"override_token=-", SY_ERR_NULL, "all three"},
    {"top_logprob=-", SY_ERR_NULL, "top_token is given"},
    {"cu_lens=-", SY_ERR_NULL, "rank 2"},
    {"logits.shape[1]=0", SY_ERR_SHAPE, "0 tokens", "at least 1"},
    {"cu_lens.shape[0]=0", SY_ERR_SHAPE, "[0]", "an entry for each request"},
    {"draft_token.shape[0]=5", SY_ERR_SHAPE, "[5]", "[6]"},
    {"top_k.shape[0]=3", SY_ERR_SHAPE, "[3]", "[1], [2] or [2,1]"},
    {"allow_bits.shape[0]=5", SY_ERR_SHAPE, "[5,1]", "[6,1]"},
    {"mode=1", SY_ERR_UNSUPPORTED, "REJECT", "MATCH"},
    {"mode=2", SY_ERR_VALUE, "2", "MATCH"},
    {"noise=2", SY_ERR_VALUE, "Q", "AUTO, NONE, RACE or CDF"},
    {"noise=5", SY_ERR_VALUE, "5"},
    {"top_logprobs=9", SY_ERR_VALUE, "9", "0 to 8"},
    {"noise=cdf seed=-", SY_ERR_VALUE, "CDF", "seed"},
    {"logprob_mode=none top_logprobs=0", SY_ERR_VALUE, "NONE", "RAW or FINAL", .late = true},
    {"logprob,rank,top_token,top_logprob=-", SY_ERR_VALUE, "RAW", "or NONE", .blame = "logprob_mode"},
    {"logits.shape[1]=8388609 allow_bits.shape[1]=262145", SY_ERR_OVERFLOW, "8388609", "8388608"},
    {"logits.shape=[2,2^30,8] draft_token.shape=[2,2^30]" NO_ROWS, SY_ERR_OVERFLOW, "2147483648 rows",
     "2147483647"},
    {"logits.shape=[2,2^62,8] draft_token.shape=[2,2^62]" NO_ROWS, SY_ERR_OVERFLOW, "rows", "2147483647"},
    {"logits.shape=[2^40,0,8] draft_token.shape=[2^40,0]" NO_ROWS, SY_ERR_OVERFLOW, "requests", "2147483647"},
    {"top_token.shape[1]=1", SY_ERR_SHAPE, "[6,1]", "[6,2]"},
    {"top_token.shape[1]=0 top_logprobs=0", SY_ERR_SHAPE, "0 columns", "1 to 8"},
    {"top_token.shape[1]=9 top_logprobs=0", SY_ERR_SHAPE, "9 columns", "1 to 8"},
    {"top_logprob.shape[1]=1", SY_ERR_SHAPE, "[6,1]", "[6,2]"},
    {"draft_token.strides[0]=2", SY_ERR_STRIDE, "2", "contiguous"},
    {"allow_bits.strides[0]=0", SY_ERR_STRIDE, "0"},
    {"top_logprob.strides[1]=2", SY_ERR_STRIDE, "2"},
    {"top_token.data=logits", SY_ERR_ALIAS},
    {.change = NULL},
};

static const struct rejection ladder[] = {
    {"k_limit=-1", SY_ERR_VALUE},
    {"logits.shape[1]=8388609 allow_bits.shape[1]=262145", SY_ERR_OVERFLOW},
    {"count.shape[0]=3", SY_ERR_SHAPE},
    {"path.data=token", SY_ERR_ALIAS},
    {"cu_lens.data[1]=7", SY_ERR_INDEX},
    {.change = NULL},
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
