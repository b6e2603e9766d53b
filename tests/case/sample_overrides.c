/*
 * sample_overrides: every token whose logit penalties, biases, sequences and stop tokens change.
 */
#include "sample.h"

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
    case_any_scalar(c, "bias_first");
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

/* ---- The oracle ---- */

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

struct overrides_row {
    int64_t vocab, n_prompt, n_output, n_bias;
    const float *logits;
    const int64_t *prompt, *output, *bias_token;
    const float *bias;
    float repetition, frequency, presence; /* as given, NaN too */
    /* Zeros: none. Sequence s is n_seq[s] tokens; their bias -inf where seq_bias is NULL. */
    int64_t n_seqs, n_stop, min_tokens;
    const int64_t *const *seq;
    const int64_t *n_seq, *stop;
    const float *seq_bias;
    bool output_only, bias_first;
};

static int64_t how_often(int64_t token, const int64_t *list, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += list[i] == token;
    return count;
}

/* Whether prompt and output, as one text, end with the first tokens of a sequence. */
static bool continues(const struct overrides_row *row, const int64_t *seq, int64_t n)
{
    const int64_t prompt = row->output_only ? 0 : row->n_prompt, all = prompt + row->n_output;
    if (all < n)
        return false;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = all - n + i;
        if ((at < prompt ? row->prompt[at] : row->output[at - prompt]) != seq[i])
            return false;
    }
    return true;
}

/* Each sum is made in double, as all steps below. */
static float with_biases(const struct overrides_row *row, int64_t token, float x)
{
    for (int64_t i = 0; i < row->n_bias; i++)
        if (row->bias_token[i] == token)
            x = (float)((double)x + (double)row->bias[i]);
    return x;
}

/* Each step is made in double and rounded to f32, which is the f32 result because a double has more than twice the bits. */
static float edited(const struct overrides_row *row, int64_t token)
{
    const int64_t count = how_often(token, row->output, row->n_output);
    const bool seen = count > 0 || how_often(token, row->prompt, row->n_prompt) > 0;
    float x = row->bias_first ? with_biases(row, token, row->logits[token]) : row->logits[token];
    if (seen && !isnan(row->repetition))
        x = (float)(x > 0 ? (double)x / (double)row->repetition : (double)x * (double)row->repetition);
    if (count > 0 && !isnan(row->frequency)) {
        const float often = (float)((double)row->frequency * (double)(float)count);
        x = (float)((double)x - (double)often);
    }
    if (count > 0 && !isnan(row->presence))
        x = (float)((double)x - (double)row->presence);
    x = row->bias_first ? x : with_biases(row, token, x);
    for (int64_t s = 0; s < row->n_seqs; s++) {
        const int64_t before = row->n_seq[s] - 1;
        const float bias = row->seq_bias != NULL ? row->seq_bias[s] : -INFINITY;
        if (row->seq[s][before] == token && continues(row, row->seq[s], before))
            x = isinf(bias) && bias < 0 ? bias : (float)((double)x + (double)bias);
    }
    if (row->n_output < row->min_tokens && how_often(token, row->stop, row->n_stop) > 0)
        x = -INFINITY;
    return isnan(x) ? (float)NAN : x;
}

/* Every token of the vocabulary is asked how often it is in each list. Returns how many have overrides. */
static int64_t override(const struct overrides_row *row, int32_t *token, float *logit)
{
    int64_t n = 0;
    for (int64_t t = 0; t < row->vocab; t++) {
        const float before = row->logits[t], after = edited(row, t);
        if (before == after || (isnan(before) && isnan(after)))
            continue;
        token[n] = (int32_t)t;
        logit[n++] = after;
    }
    return n;
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
    const struct operand *const rows = case_field(c, "seq_row_indptr");
    const struct operand *const ends = case_field(c, "seq_indptr");
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
    float *const x = case_memory(c, (size_t)d->vocab * sizeof *x);
    float *const logit = case_memory(c, (size_t)d->vocab * sizeof *logit);
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
                                .output_only = a->history_scope == SY_HISTORY_OUTPUT,
                                .bias_first = a->bias_first};
    row.prompt = list_of(c, "prompt_indptr", "prompt_token", b, &row.n_prompt);
    row.output = list_of(c, "output_indptr", "output_token", b, &row.n_output);
    row.bias_token = list_of(c, "bias_indptr", "bias_token", b, &row.n_bias);
    row.bias += row.bias != NULL ? case_get(case_field(c, "bias_indptr"), b) : 0;
    row.stop = list_of(c, "stop_indptr", "stop_token", b, &row.n_stop);
    if (case_field(c, "seq_indptr")->given)
        add_sequences(c, &row, b);
    if (drafts && !add_drafts(c, d, &row, b, r))
        return 0;
    const int64_t n = override(&row, token, logit);
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

/* ---- Rejections ---- */

#define LISTS \
    "B=2 V=8 prompt output biased prompt_indptr=1 output_indptr=0 bias_indptr=1 repetition_penalty " \
    "presence_penalty"
#define DRAFTS \
    "B=2 R=3 V=8 drafts parent output sequences S=2 seq_row_indptr seq_bias stops stop_indptr min_tokens " \
    "form:min_tokens=1 stop_indptr=1"

static const struct rejection rejections[] = {
    {"repetition_penalty.shape[0]=3", SY_ERR_SHAPE, "[3]", "[1], [2] or [2,1]"},
    {"presence_penalty.shape[0]=3", SY_ERR_SHAPE, "[3]", "[1], [2] or [2,1]"},
    {"prompt_indptr=-", SY_ERR_NULL, "prompt_token is given"},
    {"prompt_token=-", SY_ERR_NULL, "prompt_indptr is given"},
    {"output_indptr=-", SY_ERR_NULL, "output_token is given"},
    {"output_token=-", SY_ERR_NULL, "output_indptr is given"},
    {"bias_indptr=-", SY_ERR_NULL, "bias_token is given"},
    {"bias=-", SY_ERR_NULL, "bias_indptr is given"},
    {"bias_token=-", SY_ERR_NULL, "is given"},
    {"logits.shape[1]=0", SY_ERR_SHAPE, "0 tokens", "at least 1"},
    {"logits.shape[1]=8388609", SY_ERR_OVERFLOW, "8388609", "8388608"},
    {"output_token.shape[0]=2^30+1", SY_ERR_OVERFLOW, "1073741825", "1073741824"},
    {"prompt_token.shape[0]=2^62", SY_ERR_OVERFLOW},
    {"override_token.shape[0]=13", SY_ERR_SHAPE, "[13]", "[14] or more"},
    {"override_logit.shape[0]=15", SY_ERR_SHAPE, "[15]", "[14]"},
    {"override_token.strides[0]=2", SY_ERR_STRIDE, "2", "contiguous"},
    {"override_logit.strides[0]=0", SY_ERR_STRIDE, "0", "contiguous"},
    {"override_token.data=logits+4", SY_ERR_ALIAS},
    {"override_logit.data=override_token", SY_ERR_ALIAS},

    {"draft_token=-", SY_ERR_NULL, "cu_lens is given", .line = DRAFTS},
    {"cu_lens=-", SY_ERR_NULL, "rank 2", .line = DRAFTS},
    {"draft_token,cu_lens,parent=- logits.ndim=3", SY_ERR_NULL, "rank 3", .line = DRAFTS},
    {"seq_token,seq_indptr=-", SY_ERR_NULL, "is given, want both", .line = DRAFTS},
    {"seq_indptr=-", SY_ERR_NULL, "seq_token is given", .line = DRAFTS},
    {"stop_token=-", SY_ERR_NULL, "min_tokens is given, want both", .line = DRAFTS},
    {"stop_token,min_tokens=-", SY_ERR_NULL, "stop_indptr is given", .line = DRAFTS},
    {"draft_token,cu_lens=-", SY_ERR_NULL, "parent is given", .line = DRAFTS},
    {"output_token,output_indptr=-", SY_ERR_NULL, "min_tokens is given", .line = DRAFTS},
    {"cu_lens.shape[0]=0", SY_ERR_SHAPE, "[0]", "an entry for each request", .line = DRAFTS},
    {"draft_token.shape[0]=5", SY_ERR_SHAPE, "[5]", "[6]", .line = DRAFTS},
    {"seq_indptr.shape[0]=0", SY_ERR_SHAPE, "[0]", "an entry for each sequence", .line = DRAFTS},
    {"seq_bias.shape[0]=1", SY_ERR_SHAPE, "[1]", "[2]", .line = DRAFTS},
    {"seq_bias.shape[0]=3", SY_ERR_SHAPE, "[3]", "[2]", .line = DRAFTS},
    {"min_tokens.shape[0]=3", SY_ERR_SHAPE, "[3]", "[1], [2] or [2,1]", .line = DRAFTS},
    {"seq_indptr.data[1]=0", SY_ERR_INDEX, "no sequence is empty", .line = DRAFTS},
    {"max_rows=0", SY_ERR_VALUE, "is 0", "1 or more", .line = DRAFTS},
    {"max_rows=2^30+1", SY_ERR_OVERFLOW, "1073741825", "1073741824", .line = DRAFTS},
    {"seq_token.shape[0]=2^30+1", SY_ERR_OVERFLOW, "1073741825", "1073741824", .line = DRAFTS},
    {"stop_token.shape[0]=2^30+1", SY_ERR_OVERFLOW, "1073741825", "1073741824", .line = DRAFTS},
    {.change = NULL},
};

/* What the description does not have between its phases: overflow, and contents after everything. */
static const struct rejection ladder[] = {
    {"seq_row_indptr.shape[0]=2", SY_ERR_SHAPE, .line = DRAFTS},
    {"max_rows=0", SY_ERR_VALUE, .line = DRAFTS},
    {"logits.shape[1]=8388609", SY_ERR_OVERFLOW, .line = DRAFTS},
    {"override_indptr.shape[0]=6", SY_ERR_SHAPE, .line = DRAFTS},
    {"override_token.data=override_logit", SY_ERR_ALIAS, .line = DRAFTS},
    {"seq_token.data[0]=8", SY_ERR_INDEX, .line = DRAFTS},
    {.change = NULL},
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
