/*
 * sample_overrides: every token whose logit penalties, biases, sequences and stop tokens change.
 */
#include "sample.h"

#include "oracle/sample_overrides.h"

enum { MOST_ROWS = 7 };

/* Lists of tokens for each row, mostly of few different ones. Returns the elements there are; 0: no list is given. */
static int64_t make_lists(struct call *c, const char *ends_field, const char *token_field, int64_t rows,
                          int64_t vocab)
{
    static const int64_t lengths[] = {5, 1, 40, 0, 400};
    struct stream *const s = case_stream(c, token_field);
    const int64_t longest = lengths[case_pick(c, ends_field, 5)], spare = stream_below(s, 3),
                  few = stream_chance(s, 2) && vocab > 4 ? 4 : vocab;
    int64_t count[16];
    for (int64_t b = 0; b < rows; b++)
        count[b] = c->in->kind == READ_TEXT ? longest : stream_below(s, longest + 1);
    struct operand *const ends =
        case_in_as(c, ends_field, case_type(c, ends_field), 1, (int64_t[]){rows + 1});
    const int64_t n = put_ends(ends, rows, count, c->in->kind == READ_TEXT ? 0 : spare);
    struct operand *const token = case_in_as(c, token_field, case_type(c, token_field), 1, &n);
    case_fill_indices(c, token, few, 0);
    return n;
}

static int64_t make_history(struct call *c, int64_t requests, int64_t vocab)
{
    int64_t n = 0;
    if (gives(c, "prompt", 4))
        n += make_lists(c, "prompt_indptr", "prompt_token", requests, vocab);
    if (gives(c, "output", 4))
        n += make_lists(c, "output_indptr", "output_token", requests, vocab);
    if (gives(c, "biased", 2)) {
        const int64_t biases = make_lists(c, "bias_indptr", "bias_token", requests, vocab);
        struct operand *const bias = case_in_as(c, "bias", SY_F32, 1, &biases);
        for (int64_t i = 0; i < biases; i++)
            put_real(bias, i, override_of(case_stream(c, "bias"), 6, 1));
        n += biases;
    }
    return n;
}

static void make_penalties(struct call *c)
{
    static const float repetition[] = {1.25f, 1, .5f, NAN, 0, -1},
                       frequency[] = {.375f, 0, -.75f, NAN, INFINITY, 1e-8f},
                       presence[] = {.5f, 0, -2, NAN, INFINITY, 1e-8f};
    maybe_reals(c, "repetition_penalty", repetition, 6, 2);
    maybe_reals(c, "frequency_penalty", frequency, 6, 1);
    maybe_reals(c, "presence_penalty", presence, 6, 1);
}

/* Returns how many. */
static int64_t make_sequences(struct call *c, int64_t requests, int64_t vocab)
{
    struct stream *const s = case_stream(c, "sequences");
    int64_t count[8], of_rows[16], n = case_size(c, "S", 0, 4, 8), left = n;
    for (int64_t i = 0; i < n; i++)
        count[i] = 1 + stream_below(s, 3);
    struct operand *const ends =
        case_in_as(c, "seq_indptr", case_type(c, "seq_indptr"), 1, (int64_t[]){n + 1});
    const int64_t tokens = put_ends(ends, n, count, c->in->kind == READ_TEXT ? 0 : stream_below(s, 2));
    struct operand *const token = case_in_as(c, "seq_token", case_type(c, "seq_token"), 1, &tokens);
    case_fill_indices(c, token, vocab < 4 ? vocab : 4, 0);
    if (gives(c, "seq_row_indptr", 2)) {
        struct operand *const rows =
            case_in_as(c, "seq_row_indptr", case_type(c, "seq_row_indptr"), 1, (int64_t[]){requests + 1});
        for (int64_t b = 0; b < requests; b++)
            left -= of_rows[b] = stream_below(s, left + 1);
        put_ends(rows, requests, of_rows, 0);
    }
    if (gives(c, "seq_bias", 2)) {
        struct operand *const bias = case_in_as(c, "seq_bias", SY_F32, 1, &n);
        for (int64_t i = 0; i < n; i++)
            put_real(bias, i, stream_chance(s, 3) ? -INFINITY : (float)(stream_below(s, 9) - 4));
    }
    return n;
}

/* Returns how many. */
static int64_t make_stops(struct call *c, int64_t requests, int64_t vocab)
{
    int64_t n = case_size(c, "K", 0, 3, 40);
    if (gives(c, "stop_indptr", 2))
        n = make_lists(c, "stop_indptr", "stop_token", requests, vocab);
    else {
        struct operand *const token = case_in_as(c, "stop_token", case_type(c, "stop_token"), 1, &n);
        case_fill_indices(c, token, vocab, 0);
    }
    struct operand *const least = case_field(c, "output_token")->given ? maybe_in(c, "min_tokens", 4) : NULL;
    for (int64_t i = 0; least != NULL && i < case_count(least); i++)
        case_put(least, i, stream_below(case_stream(c, "min_tokens"), 9) - 1);
    return n;
}

static void make_wrong(struct call *c, const struct drafts *d)
{
    static const char *const ends[] = {"prompt_indptr", "output_indptr",  "bias_indptr",
                                       "seq_indptr",    "seq_row_indptr", "stop_indptr"},
                             *const tokens[] = {"prompt_token", "output_token", "bias_token",
                                                "seq_token",    "stop_token",   "draft_token"};
    const bool lists = !case_chance(c, "wrong drafts", 3);
    for (int i = 0; i < 6 && lists; i++) {
        maybe_wrong(c, ends[i], 3);
        maybe_wrong(c, tokens[i], d->vocab);
    }
    maybe_wrong(c, "draft_token", d->vocab);
    maybe_wrong(c, "cu_lens", d->rows);
    maybe_wrong(c, "parent", 3);
}

static void make(struct call *c)
{
    sy_sample_overrides_args *const a = case_args(c);
    const bool drafts = case_flag(c, "drafts");
    struct drafts d = {0};
    a->max_rows = case_size(c, "max_rows", MOST_ROWS, MOST_ROWS, 9);
    if (drafts) {
        d = make_drafts(c);
        make_parents(c, &d);
        case_fill_indices(c, case_field(c, "draft_token"), d.vocab < 4 ? d.vocab : 4, 0);
        for (int64_t i = 0; i < case_count(case_field(c, "draft_token")); i++)
            if (stream_chance(case_stream(c, "none"), 9))
                case_put(case_field(c, "draft_token"), i, -1);
        if (case_chance(c, "few rows", 8) && d.each == 0)
            a->max_rows = 3;
    } else {
        d.vocab = case_size(c, "V", 1, 100, 1500);
        d.rows = d.requests = case_size(c, "B", 0, 5, 9);
        fill_rows(c, case_in_as(c, "logits", (DLDataType){0}, 2, (int64_t[]){d.requests, d.vocab}), d.vocab);
    }
    const int64_t lists = make_history(c, d.requests, d.vocab), most = !drafts      ? 1
                                                                       : d.each > 0 ? d.each
                                                                                    : a->max_rows;
    int64_t more = drafts ? most : 0;
    make_penalties(c);
    if (gives(c, "sequences", 2))
        more += make_sequences(c, d.requests, d.vocab);
    if (gives(c, "stops", 2))
        more += make_stops(c, d.requests, d.vocab);
    case_any_scalar(c, "history_scope");
    if (case_chance(c, "wrong", 6))
        make_wrong(c, &d);
    const int64_t room = most * lists + d.rows * more;
    c->query.rows = room;
    if (case_chance(c, "room", 2)) {
        const int64_t larger = room + 5;
        case_out_as(c, "override_token", SY_I32, 1, &larger);
        case_out_as(c, "override_logit", SY_F32, 1, &larger);
    }
}

/* ---- The oracle ---------------------------------------------------------------------------------------- */

static bool contents_wrong(struct call *c, const struct drafts *d, bool drafts)
{
    const sy_sample_overrides_args *const a = case_args(c);
    const int64_t v = d->vocab, b = d->requests;
    const struct operand *const seq = case_field(c, "seq_indptr");
    const int64_t n_seqs = seq->given ? case_count(seq) - 1 : 0;
    return lists_wrong(c, "prompt_indptr", "prompt_token", b, v, false, false) ||
           lists_wrong(c, "output_indptr", "output_token", b, v, false, false) ||
           lists_wrong(c, "bias_indptr", "bias_token", b, v, false, false) ||
           (case_field(c, "seq_row_indptr")->given && ends_wrong(c, "seq_row_indptr", b, n_seqs, false)) ||
           lists_wrong(c, "seq_indptr", "seq_token", n_seqs, v, false, true) ||
           lists_wrong(c, "stop_indptr", "stop_token", b, v, false, false) ||
           (drafts && drafts_wrong(c, d, d->each > 0 ? INT64_MAX : a->max_rows));
}

/* The list of a row, or the only one: what `ends` gives, where it is given. */
static const int64_t *list_of(struct call *c, const char *ends, const char *tokens, int64_t b, int64_t *n)
{
    const struct operand *const e = case_field(c, ends);
    const int64_t *const all = case_wide(c, tokens);
    *n = all == NULL ? 0 : e->given ? case_get(e, b + 1) - case_get(e, b) : case_count(case_field(c, tokens));
    return all == NULL || !e->given ? all : all + case_get(e, b);
}

static void add_sequences(struct call *c, struct overrides_row *row, int64_t b)
{
    const struct operand *const rows = case_field(c, "seq_row_indptr"), *const ends =
                                                                            case_field(c, "seq_indptr");
    const int64_t first = rows->given ? case_get(rows, b) : 0,
                  end = rows->given ? case_get(rows, b + 1) : case_count(ends) - 1;
    const int64_t **const seq = case_memory(c, 64 * sizeof *seq);
    int64_t *const n = case_memory(c, 64 * sizeof *n);
    for (int64_t i = first; i < end; i++)
        seq[i - first] = list_of(c, "seq_indptr", "seq_token", i, &n[i - first]);
    row->n_seqs = end - first;
    row->seq = seq;
    row->n_seq = n;
    row->seq_bias = case_dense(c, "seq_bias");
    row->seq_bias += row->seq_bias != NULL ? first : 0;
}

/* The output of a row of drafts, after that of its request. Returns false where a draft on its way is -1. */
static bool add_drafts(struct call *c, const struct drafts *d, struct overrides_row *row, int64_t b,
                       int64_t r)
{
    int64_t *const text = case_memory(c, (size_t)(row->n_output + MOST_ROWS) * sizeof *text);
    const int64_t depth = depth_of(c, d, b, r);
    bool any = true;
    if (row->n_output > 0)
        memcpy(text, row->output, (size_t)row->n_output * sizeof *text);
    for (int64_t i = row->n_output + depth; r > 0; r = parent_of(c, d, b, r)) {
        text[--i] = case_get(case_field(c, "draft_token"), draft_at(c, d, b, r));
        any = any && text[i] >= 0;
    }
    row->output = text;
    row->n_output += depth;
    return any;
}

static int64_t edit_row(struct call *c, const struct drafts *d, bool drafts, int64_t b, int64_t r, int64_t at)
{
    const sy_sample_overrides_args *const a = case_args(c);
    const int64_t row_number = drafts ? first_row(c, d, b) + r : b;
    float *const x = case_memory(c, (size_t)d->vocab * sizeof *x), *const logit = case_memory(
                                                                       c, (size_t)d->vocab * sizeof *logit);
    int32_t *const token = case_memory(c, (size_t)d->vocab * sizeof *token);
    for (int64_t i = 0; i < d->vocab; i++)
        x[i] = real_at(case_field(c, "logits"), row_number * d->vocab + i);
    struct overrides_row row = {.vocab = d->vocab,
                                .logits = x,
                                .bias = case_dense(c, "bias"),
                                .repetition = row_real(c, "repetition_penalty", b, 1),
                                .frequency = row_real(c, "frequency_penalty", b, 0),
                                .presence = row_real(c, "presence_penalty", b, 0),
                                .min_tokens = row_int(c, "min_tokens", b, 0),
                                .output_only = a->history_scope == SY_HISTORY_OUTPUT};
    row.prompt = list_of(c, "prompt_indptr", "prompt_token", b, &row.n_prompt);
    row.output = list_of(c, "output_indptr", "output_token", b, &row.n_output);
    row.bias_token = list_of(c, "bias_indptr", "bias_token", b, &row.n_bias);
    row.bias += row.bias != NULL ? case_get(case_field(c, "bias_indptr"), b) : 0;
    row.stop = list_of(c, "stop_indptr", "stop_token", b, &row.n_stop);
    if (case_field(c, "seq_indptr")->given)
        add_sequences(c, &row, b);
    if (drafts && !add_drafts(c, d, &row, b, r))
        return 0;
    const int64_t n = oracle_sample_overrides(&row, token, logit, NULL);
    for (int64_t i = 0; i < n; i++) {
        ((int32_t *)case_want(c, "override_token"))[at + i] = token[i];
        ((float *)case_want(c, "override_logit"))[at + i] = logit[i];
        case_note(c, "no number", isnan(logit[i]));
        case_note(c, "banned", logit[i] == -INFINITY);
    }
    case_note(c, "row without overrides", n == 0);
    case_note(c, "stop tokens are banned", row.n_stop > 0 && row.n_output < row.min_tokens);
    case_note(c, "overrides after drafts", n > 0 && r > 0);
    return n;
}

static void oracle(struct call *c)
{
    const struct operand *const logits = case_field(c, "logits"), *const ends = case_field(c, "cu_lens");
    int64_t *const indptr = case_want(c, "override_indptr"), at = 0;
    const bool drafts = case_field(c, "draft_token")->given, dense = logits->rank == 3;
    const struct drafts d = {.requests = ends->given ? case_count(ends) - 1 : logits->shape[0],
                             .rows = dense ? logits->shape[0] * logits->shape[1] : logits->shape[0],
                             .each = dense ? logits->shape[1] : 0,
                             .vocab = logits->shape[logits->rank - 1]};
    const bool wrong = d.requests > 0 && contents_wrong(c, &d, drafts);
    case_note(c, "wrong contents", wrong);
    case_note(c, "wrong drafts",
              wrong && (strcmp(c->want.argument, "cu_lens") == 0 || strcmp(c->want.argument, "parent") == 0 ||
                        strcmp(c->want.argument, "draft_token") == 0));
    memset(indptr, 0, (size_t)(d.rows + 1) * sizeof *indptr);
    for (int64_t b = 0, row = 0; !wrong && b < d.requests; b++) {
        const int64_t n = drafts ? first_row(c, &d, b + 1) - first_row(c, &d, b) : 1;
        for (int64_t r = 0; r < n; r++, row++) {
            indptr[row] = at;
            at += edit_row(c, &d, drafts, b, r, at);
        }
        for (int64_t i = row; i <= d.rows; i++) /* also of rows of no request */
            indptr[i] = at;
    }
}

/* ---- Rejections ---------------------------------------------------------------------------------------- */

static void leave_out(struct call *c, const char *field)
{
    *case_field(c, field)->at = NULL;
}

static void without_lists_of_sequences(struct call *c)
{
    leave_out(c, "seq_indptr");
    leave_out(c, "seq_token");
}

static void only_ends_of_stops(struct call *c)
{
    leave_out(c, "stop_token");
    leave_out(c, "min_tokens");
}

static void only_parents(struct call *c)
{
    leave_out(c, "draft_token");
    leave_out(c, "cu_lens");
}

static void without_output(struct call *c)
{
    leave_out(c, "output_indptr");
    leave_out(c, "output_token");
}

static void rank_three(struct call *c)
{
    only_parents(c);
    leave_out(c, "parent");
    call_apply(c, &(struct spoil){.kind = SPOIL_RANK, .field = "logits", .value = 3});
}

#define LISTS \
    "B=2 V=8 prompt output biased prompt_indptr=1 output_indptr=0 bias_indptr=1 repetition_penalty " \
    "presence_penalty"
#define DRAFTS \
    "B=2 R=3 V=8 drafts parent output sequences S=2 seq_row_indptr seq_bias stops stop_indptr min_tokens " \
    "form:min_tokens=1 stop_indptr=1"
#define MISSING(field, text) NO_TENSOR(field), .found = text, .inputs = true
#define LONG (INT64_C(1) << 30) + 1

static const struct rejection rejections[] = {
    {"repetition_penalty [3]", BAD_EXTENT("repetition_penalty", 0, 3, "[3]", "[1], [2] or [2,1]"),
     .inputs = true},
    {"presence_penalty [3]", BAD_EXTENT("presence_penalty", 0, 3, "[3]", "[1], [2] or [2,1]"),
     .inputs = true},
    {"prompt_token alone", MISSING("prompt_indptr", "prompt_token is given")},
    {"prompt_indptr alone", MISSING("prompt_token", "prompt_indptr is given")},
    {"output_token alone", MISSING("output_indptr", "output_token is given")},
    {"output_indptr alone", MISSING("output_token", "output_indptr is given")},
    {"no bias_indptr", MISSING("bias_indptr", "bias_token is given")},
    {"no bias", MISSING("bias", "bias_indptr is given")},
    {"bias alone", MISSING("bias_token", "is given")},
    {"V = 0", BAD_EXTENT("logits", 1, 0, "0 tokens", "at least 1"), .inputs = true},
    {"V = 2^23 + 1", BAD_SIZE("logits", 1, 8388609, SY_ERR_OVERFLOW, "8388609", "8388608"), .inputs = true},
    {"an output too long", BAD_SIZE("output_token", 0, LONG, SY_ERR_OVERFLOW, "1073741825", "1073741824"),
     .inputs = true},
    {"a prompt of more bytes than there are",
     BAD_SIZE("prompt_token", 0, INT64_C(1) << 62, SY_ERR_OVERFLOW, NULL, NULL), .inputs = true},
    {"override_token too short", BAD_EXTENT("override_token", 0, 13, "[13]", "[14] or more")},
    {"override_logit too long", BAD_EXTENT("override_logit", 0, 15, "[15]", "[14]")},
    {"override_token with stride 2", BAD_STRIDE("override_token", 0, 2, "2", "contiguous")},
    {"override_logit with stride 0", BAD_STRIDE("override_logit", 0, 0, "0", "contiguous")},
    {"override_token over logits", BAD_OVER("override_token", "logits", 4)},
    {"override_logit over override_token", BAD_OVER("override_logit", "override_token", 0)},

    {"cu_lens without drafts", NO_TENSOR("draft_token"), .found = "cu_lens is given", .line = DRAFTS},
    {"drafts without cu_lens", NO_TENSOR("cu_lens"), .found = "rank 2", .inputs = true, .line = DRAFTS},
    {"rank 3 without drafts", BAD_CALL(rank_three, SY_ERR_NULL, "draft_token", "rank 3", NULL),
     .inputs = true, .line = DRAFTS},
    {"seq_bias without sequences",
     BAD_CALL(without_lists_of_sequences, SY_ERR_NULL, "seq_token", "is given, want both", NULL),
     .inputs = true, .line = DRAFTS},
    {"seq_token without seq_indptr", MISSING("seq_indptr", "seq_token is given"), .line = DRAFTS},
    {"min_tokens without stop_token", MISSING("stop_token", "min_tokens is given, want both"),
     .line = DRAFTS},
    {"stop_indptr without stop_token",
     BAD_CALL(only_ends_of_stops, SY_ERR_NULL, "stop_token", "stop_indptr is given", NULL), .inputs = true,
     .line = DRAFTS},
    {"parents without drafts", BAD_CALL(only_parents, SY_ERR_NULL, "draft_token", "parent is given", NULL),
     .inputs = true, .line = DRAFTS},
    {"min_tokens without output",
     BAD_CALL(without_output, SY_ERR_NULL, "output_token", "min_tokens is given", NULL), .inputs = true,
     .line = DRAFTS},
    {"cu_lens [0]", BAD_EXTENT("cu_lens", 0, 0, "[0]", "an entry for each request"), .inputs = true,
     .line = DRAFTS},
    {"draft_token [5]", BAD_EXTENT("draft_token", 0, 5, "[5]", "[6]"), .inputs = true, .line = DRAFTS},
    {"seq_indptr [0]", BAD_EXTENT("seq_indptr", 0, 0, "[0]", "an entry for each sequence"), .inputs = true,
     .line = DRAFTS},
    {"seq_bias [1]", BAD_EXTENT("seq_bias", 0, 1, "[1]", "[2]"), .inputs = true, .line = DRAFTS},
    {"seq_bias [3]", BAD_EXTENT("seq_bias", 0, 3, "[3]", "[2]"), .inputs = true, .line = DRAFTS},
    {"min_tokens [3]", BAD_EXTENT("min_tokens", 0, 3, "[3]", "[1], [2] or [2,1]"), .inputs = true,
     .line = DRAFTS},
    {"an empty sequence", BAD_NUMBER("seq_indptr", 1, 0, SY_ERR_INDEX, "no sequence is empty", NULL),
     .line = DRAFTS},
    {"max_rows 0", BAD_SCALAR("max_rows", 0, SY_ERR_VALUE, NULL, "is 0", "1 or more"), .inputs = true,
     .line = DRAFTS},
    {"max_rows too large", BAD_SCALAR("max_rows", LONG, SY_ERR_OVERFLOW, NULL, "1073741825", "1073741824"),
     .inputs = true, .line = DRAFTS},
    {"sequences too long", BAD_SIZE("seq_token", 0, LONG, SY_ERR_OVERFLOW, "1073741825", "1073741824"),
     .inputs = true, .line = DRAFTS},
    {"too many stop tokens", BAD_SIZE("stop_token", 0, LONG, SY_ERR_OVERFLOW, "1073741825", "1073741824"),
     .inputs = true, .line = DRAFTS},
    {.name = NULL},
};

/* What the description does not have between its phases: overflow, and contents after everything. */
static const struct rejection ladder[] = {
    {"input shape", BAD_EXTENT("seq_row_indptr", 0, 2, NULL, NULL), .line = DRAFTS},
    {"value", BAD_SCALAR("max_rows", 0, SY_ERR_VALUE, NULL, NULL, NULL), .line = DRAFTS},
    {"overflow", BAD_SIZE("logits", 1, 8388609, SY_ERR_OVERFLOW, NULL, NULL), .line = DRAFTS},
    {"output shape", BAD_EXTENT("override_indptr", 0, 6, NULL, NULL), .line = DRAFTS},
    {"alias", BAD_OVER("override_token", "override_logit", 0), .line = DRAFTS},
    {"contents", BAD_NUMBER("seq_token", 0, 8, SY_ERR_INDEX, NULL, NULL), .line = DRAFTS},
    {.name = NULL},
};

const struct op_case case_sample_overrides = {
    .name = "sample_overrides",
    .make = make,
    .oracle = oracle,
    .hard = {"no number", "banned", "row without overrides", "stop tokens are banned",
             "overrides after drafts", "wrong contents", "wrong drafts"},
    .small = LISTS,
    .shapes = {"B=4 V=50 output output_indptr=2 presence_penalty presence_penalty:=2"},
    .lines =
        {"B=9 V=2000 prompt output biased prompt_indptr=4 output_indptr=4 bias_indptr=2 repetition_penalty "
         "frequency_penalty presence_penalty"},
    .rejections = rejections,
    .ladder = ladder,
    .unchecked = " cu_lens draft_token seq_indptr override_token override_logit ",
    .calls = 600,
};
