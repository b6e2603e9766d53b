/*
 * What the cases of the sampling operators share: rows of logits of every kind, numbers of rows, lists of tokens, bits,
 * overrides, rows of drafts; and what is wrong with the contents of lists and drafts.
 */
#pragma once

#include "case.h"

#include <math.h>
#include <stdio.h>

#include "oracle/numbers.h"
#include "oracle/sample.h"

/* ---- Numbers ---- */

static inline float real_at(const struct operand *x, int64_t i)
{
    return (float)case_real(x, i);
}

static inline void put_real(struct operand *x, int64_t i, float value)
{
    case_put_real(x, x->dense, i, (double)value);
}

static inline double any_unit(struct stream *s)
{
    return ldexp((double)(stream_bits(s) >> 11), -53);
}

/* A bell, by sums alone: the same for every compiler. */
static inline double any_bell(struct stream *s)
{
    double sum = -2;
    for (int i = 0; i < 4; i++)
        sum += any_unit(s);
    return sum * 1.75;
}

/* Of any size. */
static inline double spread_logit(struct stream *s)
{
    const double sign = stream_chance(s, 2) ? 1 : -1, mantissa = 1 + any_unit(s);
    return sign * ldexp(mantissa, (int)stream_below(s, 276) - 149);
}

/* ---- Rows of logits ---- */

enum row_kind {
    ROW_BELL, /* of any width: peaked to flat */
    ROW_PEAKED,
    ROW_TIED,   /* seven values */
    ROW_NEARLY, /* the upper half of the bits is the same */
    ROW_TWO,
    ROW_EQUAL,
    ROW_RISING,
    ROW_FALLING,
    ROW_SPECIAL,  /* NaN, infinities, zeros and subnormals among others */
    ROW_NEGATIVE, /* far below 0 */
    ROW_HIGH,     /* 0 is far below what weighs */
    ROW_TINY,     /* peaks over values that a row sees as one */
    ROW_SINGLE,   /* one is finite */
    ROW_FEW,      /* most are -inf */
    ROW_EMPTY,    /* NaN and -inf */
    ROW_INFINITE,
    ROW_NAN, /* which no maximum shows */
    ROW_RARE_NAN,
    ROW_SPREAD, /* magnitudes from 2^-149 to the largest */
    ROW_ZEROS,
    ROW_PROBS,
    ROW_UNITS, /* of weights: 0 and 1 as probabilities */
    ROW_BITS,
    ROW_KINDS
};

static inline float special_logit(struct stream *s)
{
    static const uint32_t bits[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0x7f817c01, 0x7f800000, 0xff800000,
                                    0x80000000, 0,          1,          0x80000001, 0x33800000, 0xb3800000,
                                    0x000116c2, 0xff7fffff, 0xc77fe000, 0x7f7fffff, 0x3f800000};
    return f32_from_bits(bits[stream_below(s, 17)]);
}

static inline double logit_of(struct stream *s, enum row_kind kind, double width, double base)
{
    const double bell = any_bell(s);
    switch (kind) {
    case ROW_PEAKED:
        return stream_chance(s, 200) ? 14 + 3 * bell : 2 * bell;
    case ROW_TIED:
        return base + (double)stream_below(s, 7) * 0.5;
    case ROW_NEARLY:
        return (double)f32_from_bits(0x41200000u + (uint32_t)stream_below(s, 300));
    case ROW_TWO:
        return stream_chance(s, 2) ? 0.5 : -3;
    case ROW_EQUAL:
        return base;
    case ROW_SPECIAL:
        return stream_chance(s, 3) ? (double)special_logit(s) : width * bell;
    case ROW_NEGATIVE:
        return -300 - 50 * any_unit(s);
    case ROW_HIGH:
        return stream_chance(s, 100) ? 0 : 900 + 10 * bell;
    case ROW_TINY:
        return stream_chance(s, 500) ? 9 + bell : ldexp(bell, -(int)stream_below(s, 30));
    case ROW_SINGLE:
    case ROW_EMPTY:
        return stream_chance(s, 2) ? -(double)INFINITY : (double)NAN;
    case ROW_FEW:
        return stream_chance(s, 50) ? bell : -(double)INFINITY;
    case ROW_INFINITE:
        return stream_chance(s, 4) ? (double)INFINITY : width * bell;
    case ROW_NAN:
    case ROW_RARE_NAN:
        return stream_chance(s, kind == ROW_NAN ? 20 : 5000) ? (double)NAN : 3 + fabs(bell);
    case ROW_SPREAD:
        return spread_logit(s);
    case ROW_ZEROS:
        return stream_chance(s, 3) ? ldexp(bell, -130) : stream_chance(s, 2) ? -0.0 : 0.0;
    case ROW_UNITS:
        return stream_chance(s, 2) ? 0x1p-40 : 0x1p-42;
    case ROW_PROBS:
        return stream_chance(s, 40) ? (double)special_logit(s) : width * any_unit(s);
    default:
        return base + width * bell;
    }
}

static inline void fill_row(struct stream *s, struct operand *x, int64_t row, int64_t vocab,
                            enum row_kind kind)
{
    static const double widths[] = {2, 0.01, 0.5, 1, 4, 12, 100};
    const double base = (double)stream_below(s, 33) / 4 - 4;
    double width = widths[stream_below(s, 7)];
    if (kind == ROW_PROBS) /* a sum from far below 1 to far above */
        width = ldexp(4.0 / (double)vocab, -(int)stream_below(s, 5));
    if (kind == ROW_PROBS && stream_chance(s, 8))
        width *= 1000;
    for (int64_t i = 0; i < vocab; i++) {
        const double at = 8 * (double)i / (double)vocab;
        const uint64_t any = stream_bits(s);
        if (kind == ROW_BITS)
            memcpy(x->dense + (size_t)(row * vocab + i) * x->element, &any, x->element);
        else
            put_real(x, row * vocab + i,
                     (float)(kind == ROW_RISING    ? at
                             : kind == ROW_FALLING ? 8 - at
                                                   : logit_of(s, kind, width, base)));
    }
    if (kind == ROW_SINGLE)
        put_real(x, row * vocab + stream_below(s, vocab), (float)base);
}

/* Each row of another kind, the ordinary ones more often, or all of that of a line: "kind=2". */
static inline void fill_rows(struct call *c, struct operand *x, int64_t vocab)
{
    for (int64_t row = 0; row < case_count(x) / vocab; row++) {
        const int64_t kind = case_pick(c, "kind", ROW_KINDS + ROW_RISING);
        fill_row(case_stream(c, "logits"), x, row, vocab,
                 (enum row_kind)(kind < ROW_KINDS ? kind : kind - ROW_KINDS));
    }
}

/* ---- Numbers of rows ---- */

/* Something that one in `odds` calls does not have, or that a line names. */
static inline bool gives(struct call *c, const char *field, int64_t odds)
{
    char name[40];
    snprintf(name, sizeof name, "give:%s", field);
    return c->in->kind == READ_TEXT ? case_flag(c, field) : case_pick(c, name, odds) > 0;
}

static inline struct operand *maybe_in(struct call *c, const char *field, int64_t odds)
{
    return gives(c, field, odds) ? case_in(c, field) : NULL;
}

/* Values of a table, any from 0 to `scale`, or any bits. "field:2" of a line is one of the table. */
static inline void maybe_reals(struct call *c, const char *field, const float *table, int64_t n, double scale)
{
    struct operand *const x = maybe_in(c, field, 3);
    struct stream *const s = case_stream(c, field);
    char name[40];
    snprintf(name, sizeof name, "%s:", field);
    for (int64_t i = 0; x != NULL && i < case_count(x); i++) {
        const int64_t pick = case_pick(c, name, 2 * n);
        const uint64_t bits = stream_bits(s);
        put_real(x, i, pick < n ? table[pick] : (float)(scale * any_unit(s)));
        if (c->in->kind != READ_TEXT && bits % 16 == 0)
            memcpy(x->dense + (size_t)i * x->element, (const char *)&bits + 4, x->element);
    }
}

static inline void maybe_top_k(struct call *c, int64_t vocab)
{
    struct operand *const x = maybe_in(c, "top_k", 2);
    struct stream *const s = case_stream(c, "top_k");
    for (int64_t i = 0; x != NULL && i < case_count(x); i++) {
        const int64_t least = x->element == 8 ? INT64_MIN : INT32_MIN, some = 1 + stream_below(s, vocab),
                      few = 1 + stream_below(s, vocab < 64 ? vocab : 64);
        const int64_t table[] = {50,  1,     2,          0,    -1,   vocab - 1, vocab, vocab, vocab + 1,
                                 300, least, -1 - least, some, some, few,       few,   few,   few};
        case_put(x, i, table[case_pick(c, "k", 18)]);
    }
}

static inline void maybe_cuts(struct call *c, int64_t vocab, bool no_min_p)
{
    static const float p[] = {.9f, .5f,    .99f,   .1f, .7f,  0.99999994f, 0x1p-65f, 0,        -0.0f,
                              -1,  1e-45f, 1e-30f, 1,   1.5f, NAN,         INFINITY, -INFINITY},
                       min_p[] = {.05f, .3f, .01f, .5f, 0.99999994f, 1e-30f,  1e-45f,
                                  0,    -1,  1,    2,   NAN,         INFINITY},
                       t[] = {1, .7f, .5f, 2, 1.1e-5f, 9e-6f, 1e-6f, 0, -1, 1e30f, NAN, INFINITY, -INFINITY};
    const int64_t only = case_pick(c, "only cut", 12); /* 1 to 3: no other; 4, 5: none */
    if (only < 1 || only > 5 || only == 1)
        maybe_top_k(c, vocab);
    if (only < 1 || only > 5 || only == 2)
        maybe_reals(c, "top_p", p, sizeof p / sizeof *p, 1);
    if ((only < 1 || only > 5 || only == 3) && !no_min_p)
        maybe_reals(c, "min_p", min_p, sizeof min_p / sizeof *min_p, .2);
    maybe_reals(c, "temperature", t, sizeof t / sizeof *t, 3);
}

/* Stages in another order, and more of them. */
static inline bool make_stages(struct call *c, const sy_stages *stages)
{
    static const float n[] = {1, .5f, 2, .01f, 0, -1, 1e30f, NAN, INFINITY},
                       typical[] = {.5f, .9f, .2f, .99f, 0, -1, 1e-30f, 1, NAN, INFINITY},
                       xtc[] = {1, .5f, 2, 1e-30f, 0, NAN},
                       likely[] = {.1f, .05f, .3f, .001f, 0, 1, NAN, .6f},
                       range[] = {.5f, 1, .8f, 0, -1, 100, NAN, INFINITY},
                       exponent[] = {1, 2, .5f, 0, -1, NAN, 30};
    const bool text = c->in->kind == READ_TEXT;
    if (!text && !case_chance(c, "staged", 3))
        return false;
    case_any_scalar(c, "stages");
    const bool all = *stages == SY_STAGES_DEFAULT || *stages == SY_STAGES_LLAMA;
    if (all)
        maybe_reals(c, "top_n_sigma", n, sizeof n / sizeof *n, 2);
    if (*stages != SY_STAGES_VLLM)
        maybe_reals(c, "typical_p", typical, sizeof typical / sizeof *typical, 1);
    if (all)
        maybe_reals(c, "xtc_probability", xtc, sizeof xtc / sizeof *xtc, 1);
    if (case_field(c, "xtc_probability")->given)
        maybe_reals(c, "xtc_threshold", likely, sizeof likely / sizeof *likely, .3);
    maybe_reals(c, "dynatemp_range", range, sizeof range / sizeof *range, 2);
    if (case_field(c, "dynatemp_range")->given)
        maybe_reals(c, "dynatemp_exponent", exponent, sizeof exponent / sizeof *exponent, 3);
    return true;
}

/* Seeds that rows share, any numbers, the largest. */
static inline void fill_counter(struct call *c, struct operand *x)
{
    const bool few = case_chance(c, "few", 3);
    for (int64_t i = 0; x != NULL && i < case_count(x); i++) {
        struct stream *const s = case_stream(c, x->field->name);
        const uint64_t any = stream_bits(s);
        case_put(x, i, few ? stream_below(s, 3) : any % 8 == 0 ? -1 - stream_below(s, 4) : (int64_t)any);
    }
}

/* A seed where the noise needs one. */
static inline void make_counters(struct call *c, sy_noise noise)
{
    const bool needed =
        noise == SY_NOISE_RACE || noise == SY_NOISE_CDF || case_field(c, "xtc_probability")->given;
    fill_counter(c, needed ? case_in(c, "seed") : maybe_in(c, "seed", 2));
    fill_counter(c, maybe_in(c, "offset", 2));
    fill_counter(c, maybe_in(c, "stream", 2));
}

/* The number of a row; the only one is for all. */
static inline int64_t row_int(struct call *c, const char *field, int64_t b, int64_t missing)
{
    const struct operand *const x = case_field(c, field);
    return x->given ? case_get(x, case_count(x) == 1 ? 0 : b) : missing;
}

static inline float row_real(struct call *c, const char *field, int64_t b, float missing)
{
    const struct operand *const x = case_field(c, field);
    return x->given ? real_at(x, case_count(x) == 1 ? 0 : b) : missing;
}

/* ---- Lists of tokens ---- */

/* In a call with wrong contents: of every other tensor one number. */
static inline void maybe_wrong(struct call *c, const char *field, int64_t limit)
{
    struct operand *const x = case_field(c, field);
    struct stream *const s = case_stream(c, "wrong number");
    if (!x->given || case_count(x) == 0 || stream_chance(s, 2))
        return;
    const int64_t i = stream_below(s, case_count(x)), before = i > 0 ? case_get(x, i - 1) : 1;
    const int64_t values[] = {-1, -2, limit, limit + 1, INT32_MIN, INT32_MAX, before, before - 1};
    case_put(x, i, values[stream_below(s, 8)]);
}

/* Ends of lists of `count` elements each, `spare` before and after them. Returns the elements there are. */
static inline int64_t put_ends(struct operand *x, int64_t rows, const int64_t *count, int64_t spare)
{
    int64_t at = spare;
    for (int64_t b = 0; b <= rows; b++) {
        case_put(x, b, at);
        at += b < rows ? count[b] : spare;
    }
    return at;
}

static inline sy_fault wrong_index(sy_fault_code code, const char *field, int64_t batch, int64_t position,
                                   int64_t value, int64_t limit)
{
    return (sy_fault){SY_ERR_INDEX, code, field, batch, position, value, limit};
}

/* Whether tokens are outside 0 to limit - 1, or do not ascend; batch -1: they are of no row. */
static inline bool tokens_wrong(struct call *c, const char *field, int64_t batch, int64_t first, int64_t end,
                                int64_t limit, bool ascending)
{
    const struct operand *const x = case_field(c, field);
    for (int64_t j = first, before = -1; j < end; j++) {
        const int64_t token = case_get(x, j);
        if (token < 0 || token >= limit)
            c->want = wrong_index(SY_FAULT_INDEX_RANGE, field, batch, j, token, limit);
        else if (ascending && token <= before)
            c->want = wrong_index(SY_FAULT_INDEX_ORDER, field, batch, j, token, before);
        before = token;
        if (c->want.status != SY_OK)
            return true;
    }
    return false;
}

static inline bool ends_wrong(struct call *c, const char *field, int64_t rows, int64_t n, bool filled)
{
    const struct operand *const x = case_field(c, field);
    for (int64_t b = 0, before = 0; b <= rows; b++) {
        const int64_t value = case_get(x, b);
        const bool empty = filled && b > 0 && value == before;
        if (!empty && (value > n || value < 0))
            c->want = wrong_index(SY_FAULT_INDEX_RANGE, field, -1, b, value, value > n ? n : before);
        else if (empty || value < before)
            c->want = wrong_index(SY_FAULT_INDEX_ORDER, field, -1, b, value, before);
        before = value;
        if (c->want.status != SY_OK)
            return true;
    }
    return false;
}

/* Lists of rows, or without ends one for all. */
static inline bool lists_wrong(struct call *c, const char *ends, const char *tokens, int64_t rows,
                               int64_t limit, bool ascending, bool filled)
{
    const struct operand *const e = case_field(c, ends), *const t = case_field(c, tokens);
    if (!t->given)
        return false;
    if (!e->given)
        return tokens_wrong(c, tokens, -1, 0, case_count(t), limit, ascending);
    bool wrong = ends_wrong(c, ends, rows, case_count(t), filled);
    for (int64_t b = 0; b < rows && !wrong; b++)
        wrong = tokens_wrong(c, tokens, b, case_get(e, b), case_get(e, b + 1), limit, ascending);
    return wrong;
}

/* ---- Edits of rows: bits and overrides ---- */

/* No token to all; few, half, all but a few, whole stretches. */
static inline void fill_allow(struct call *c, struct operand *x)
{
    struct stream *const s = case_stream(c, "allow_bits");
    const int64_t words = x->shape[x->rank - 1];
    for (int64_t i = 0, kind = 0; i < case_count(x); i++) {
        const uint64_t r = stream_bits(s);
        const uint32_t one = 1u << (r >> 59), some = (uint32_t)r;
        const uint32_t by_kind[] = {some,
                                    some,
                                    0,
                                    UINT32_MAX,
                                    r >> 32 & 1 ? one : 0,
                                    r >> 32 & 1 ? ~one : UINT32_MAX,
                                    i / 64 % 2 ? UINT32_MAX : 0,
                                    i % 97 ? 0 : one};
        kind = i % words == 0 ? case_pick(c, "allow", 8) : kind;
        case_put(x, i, by_kind[kind]);
    }
}

static inline float override_of(struct stream *s, int64_t kind, float own)
{
    switch (kind < 6 ? kind : stream_below(s, 6)) {
    case 0:
        return (float)((double)own - 8 * any_unit(s));
    case 1:
        return own; /* ties with a token of the row */
    case 2:
        return -INFINITY;
    case 3:
        return special_logit(s);
    case 4:
        return (float)((double)own + 4 * any_bell(s));
    default:
        return (float)(30 * any_bell(s)); /* above all, now and then: a token that is forced */
    }
}

/* Overrides of no token, a few, many, or all of each row. */
static inline void make_overrides(struct call *c, const struct operand *logits, int64_t rows, int64_t vocab)
{
    struct stream *const s = case_stream(c, "overrides");
    int64_t *const count = case_memory(c, (size_t)(rows + 1) * sizeof *count);
    const int64_t few = vocab < 8 ? vocab : 8, many = vocab < 600 ? vocab : 600, spare = stream_below(s, 4);
    for (int64_t b = 0; b < rows; b++) {
        const int64_t some = stream_below(s, few + 1), more = stream_below(s, many + 1);
        const int64_t counts[] = {some, more, 0, stream_chance(s, 9) ? vocab : few};
        count[b] = counts[case_pick(c, "overrides", 4)];
    }
    struct operand *const ends =
        case_in_as(c, "override_indptr", case_type(c, "override_indptr"), 1, (int64_t[]){rows + 1});
    const int64_t n = put_ends(ends, rows, count, spare);
    struct operand *const token = case_in_as(c, "override_token", case_type(c, "override_token"), 1, &n),
                          *const logit = case_in_as(c, "override_logit", SY_F32, 1, &n);
    for (int64_t b = 0, at = spare; b < rows; b++) {
        const int64_t kind = case_pick(c, "override", 8);
        for (int64_t i = 0, left = count[b]; left > 0; i++)
            if (stream_below(s, vocab - i) < left) {
                const float own = real_at(logits, b * vocab + stream_below(s, vocab));
                case_put(token, at, i);
                put_real(logit, at++, override_of(s, kind, own));
                left--;
            }
    }
}

/* Whether the call has tensors of more stages. */
static inline bool has_stages(struct call *c)
{
    return case_field(c, "top_n_sigma")->given || case_field(c, "typical_p")->given ||
           case_field(c, "xtc_probability")->given || case_field(c, "dynatemp_range")->given;
}

/* What all noises and cuts read of one row of logits. */
static inline struct oracle_sample_row edited_row(struct call *c, int64_t b, int64_t row, int64_t vocab)
{
    const struct operand *const logits = case_field(c, "logits"), *const allow = case_field(c, "allow_bits"),
                                *const ends = case_field(c, "override_indptr");
    float *const x = case_memory(c, (size_t)vocab * sizeof *x);
    float *const raw = case_memory(c, (size_t)vocab * sizeof *raw);
    bool *const allowed = case_memory(c, (size_t)vocab);
    const int64_t words = (vocab + 31) / 32, bits = case_count(allow) == words ? 0 : row * words;
    for (int64_t i = 0; i < vocab; i++) {
        x[i] = raw[i] = real_at(logits, row * vocab + i);
        allowed[i] = !allow->given || (case_get(allow, bits + i / 32) >> i % 32 & 1);
    }
    for (int64_t j = ends->given ? case_get(ends, row) : 0; ends->given && j < case_get(ends, row + 1); j++)
        x[case_get(case_field(c, "override_token"), j)] = real_at(case_field(c, "override_logit"), j);
    const struct operand *const seed = case_field(c, "seed");
    const bool own_seed = seed->given && seed->shape[0] == case_get_extent(c, "B");
    return (struct oracle_sample_row){
        .x = x,
        .raw = raw,
        .allowed = allow->given ? allowed : NULL,
        .vocab = vocab,
        .k = row_int(c, "top_k", b, 0),
        .p = row_real(c, "top_p", b, 1),
        .min_p = row_real(c, "min_p", b, 0),
        .temperature = row_real(c, "temperature", b, 1),
        .n_sigma = row_real(c, "top_n_sigma", b, 0),
        .typical = row_real(c, "typical_p", b, 1),
        .xtc = row_real(c, "xtc_probability", b, 0),
        .likely = row_real(c, "xtc_threshold", b, .1f),
        .range = row_real(c, "dynatemp_range", b, 0),
        .exponent = row_real(c, "dynatemp_exponent", b, 1),
        .staged = has_stages(c),
        .seed = (uint64_t)row_int(c, "seed", b, 0),
        .offset = (uint64_t)row_int(c, "offset", b, 0),
        .stream = (uint32_t)row_int(c, "stream", b, own_seed ? 0 : b),
    };
}

/* ---- Rows of drafts ---- */

struct drafts {
    int64_t requests, rows, each, vocab; /* each 0: ragged */
};

static inline int64_t first_row(struct call *c, const struct drafts *d, int64_t b)
{
    return d->each > 0 ? b * d->each : case_get(case_field(c, "cu_lens"), b);
}

/* Logits of requests with 0 to 7 rows, and, ragged, some of no request. */
static inline struct drafts make_drafts(struct call *c)
{
    struct drafts d = {.vocab = case_size(c, "V", 1, 40, 700)};
    struct stream *const s = case_stream(c, "drafts");
    int64_t count[16] = {0};
    d.requests = case_size(c, "B", 0, 4, 9);
    const bool dense = case_flag(c, "dense");
    const int64_t each = case_size(c, "R", 1, 7, 7);
    if (dense) {
        d.each = each;
        d.rows = d.requests * each;
    } else {
        struct operand *const ends =
            case_in_as(c, "cu_lens", case_type(c, "cu_lens"), 1, (int64_t[]){d.requests + 1});
        for (int64_t b = 0; b < d.requests; b++)
            count[b] = c->in->kind == READ_TEXT ? each : stream_below(s, each + 1);
        d.rows = put_ends(ends, d.requests, count, 0);
        d.rows += c->in->kind == READ_TEXT ? 0 : stream_below(s, 3);
    }
    case_extent(c, "N", d.rows);
    const int64_t shape[] = {d.requests, each, d.vocab}, ragged[] = {d.rows, d.vocab};
    fill_rows(c, case_in_as(c, "logits", (DLDataType){0}, dense ? 3 : 2, dense ? shape : ragged), d.vocab);
    return d;
}

static inline struct operand *number_of_rows(struct call *c, const char *field, const struct drafts *d,
                                             bool without_roots)
{
    const int64_t shape[] = {d->requests, d->each - without_roots};
    return case_in_as(c, field, case_type(c, field), d->each > 0 ? 2 : 1, d->each > 0 ? shape : &d->rows);
}

/* The element of row r of request b in draft_token; -1: it has none. */
static inline int64_t draft_at(struct call *c, const struct drafts *d, int64_t b, int64_t r)
{
    const struct operand *const x = case_field(c, "draft_token");
    if (x->rank == 2 && x->shape[1] == d->each - 1)
        return r > 0 ? b * (d->each - 1) + r - 1 : -1;
    return first_row(c, d, b) + r;
}

static inline int64_t parent_of(struct call *c, const struct drafts *d, int64_t b, int64_t r)
{
    const struct operand *const x = case_field(c, "parent");
    return x->given ? case_get(x, first_row(c, d, b) + r) : r - 1;
}

static inline int64_t depth_of(struct call *c, const struct drafts *d, int64_t b, int64_t r)
{
    int64_t depth = 0;
    for (; r > 0; depth++)
        r = parent_of(c, d, b, r);
    return depth;
}

/* draft_token, still empty, and parents of chains or trees: below each row. */
static inline void make_parents(struct call *c, const struct drafts *d)
{
    struct stream *const s = case_stream(c, "parent");
    const bool without_roots = case_flag(c, "no_roots") && d->each > 0;
    number_of_rows(c, "draft_token", d, without_roots);
    struct operand *const x = case_flag(c, "parent") ? number_of_rows(c, "parent", d, false) : NULL;
    for (int64_t b = 0, row = 0; x != NULL && b < d->requests; b++)
        for (int64_t r = 0; row < first_row(c, d, b + 1) && row < d->rows; r++, row++)
            case_put(x, row, r > 0 ? stream_below(s, r) : -3); /* that of a root is not read */
}

static inline bool ends_of_drafts_wrong(struct call *c, const struct drafts *d, int64_t most)
{
    for (int64_t b = 0, before = 0; b <= d->requests && d->each == 0; b++) {
        const int64_t value = first_row(c, d, b);
        sy_fault *const f = &c->want;
        if (b == 0 ? value != 0 : value < before)
            *f = wrong_index(SY_FAULT_LENGTH_RANGE, "cu_lens", b, -1, value, before);
        else if (value > d->rows)
            *f = wrong_index(SY_FAULT_LENGTH_RANGE, "cu_lens", b, -1, value, d->rows);
        else if (value - before > most)
            *f = wrong_index(SY_FAULT_LENGTH_RANGE, "cu_lens", b - 1, -1, value - before, most);
        before = value;
        if (f->status != SY_OK)
            return true;
    }
    return false;
}

/* Ends of requests, then the parents of all, then their drafts. */
static inline bool drafts_wrong(struct call *c, const struct drafts *d, int64_t most)
{
    if (ends_of_drafts_wrong(c, d, most))
        return true;
    for (int drafts = case_field(c, "parent")->given ? 0 : 1; drafts < 2; drafts++)
        for (int64_t b = 0; b < d->requests; b++)
            for (int64_t r = 1; r < first_row(c, d, b + 1) - first_row(c, d, b); r++) {
                const char *const field = drafts ? "draft_token" : "parent";
                const int64_t limit = drafts ? d->vocab : r,
                              value = drafts ? case_get(case_field(c, field), draft_at(c, d, b, r))
                                             : parent_of(c, d, b, r);
                if (value >= -drafts && value < limit)
                    continue;
                c->want = wrong_index(SY_FAULT_INDEX_RANGE, field, b, r, value, limit);
                return true;
            }
    return false;
}

/* ---- Outputs ---- */

/* Any of them, any but the large ones from `large` on, the first alone, or any one alone; with log-probabilities one of the last
   two, at least. */
static inline void choose_outputs(struct call *c, const char *const *names, int n, int large, bool logprobs)
{
    enum { ANY, SMALL, FIRST, ONE, KINDS };
    if (c->in->kind == READ_TEXT)
        return;
    const int64_t kind = case_pick(c, "outputs", KINDS), only = kind == ONE ? case_pick(c, "only", n - 2) : 0,
                  one = n - 2 + case_pick(c, "one logprob", 2);
    for (int i = 0; i < n; i++)
        if (kind == SMALL ? i >= large && i < n - 2 : kind != ANY && i != only)
            case_leave(c, names[i]);
    case_need(c, names[only]);
    case_field(c, names[one])->left_out = false;
    case_field(c, names[one])->needed = logprobs;
}

/* top_token and top_logprob of rows of this shape. Returns top_logprobs. */
static inline int64_t make_top(struct call *c, int rank, const int64_t *rows, int64_t vocab, bool logprobs)
{
    const bool given = case_flag(c, "top") && logprobs;
    const int64_t m = case_size(c, "M", 1, vocab < 20 ? vocab : 20, vocab < 400 ? vocab : 400);
    const int64_t shape[] = {rows[0], rank > 1 ? rows[1] : m, m};
    if (given) {
        case_out_as(c, "top_token", case_type(c, "top_token"), rank + 1, shape);
        case_out_as(c, "top_logprob", SY_F32, rank + 1, shape);
    } else {
        case_leave(c, "top_token");
        case_leave(c, "top_logprob");
    }
    return case_flag(c, "stated") && logprobs ? m : 0;
}
