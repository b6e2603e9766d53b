/*
 * Builds calls of `sample`, asks the oracle about the same argument struct, compares. Reads tensors by its
 * own strides.
 */
#include "oracle/sample_case.h"

#include <float.h>
#include <math.h>

#include "support.h"

static const struct {
    const char *name;
    size_t field;
    DLDataType type; /* outputs: the type they must have */
    bool matrix;
} slots[SLOT_COUNT] = {
#define FIELD(slot, name, type, matrix) [slot] = {#name, offsetof(sy_sample_args, name), type, matrix}
    FIELD(SLOT_LOGITS, logits, {0}, true),
    FIELD(SLOT_TOP_K, top_k, {0}, false),
    FIELD(SLOT_TOP_P, top_p, {0}, false),
    FIELD(SLOT_MIN_P, min_p, {0}, false),
    FIELD(SLOT_TEMPERATURE, temperature, {0}, false),
    FIELD(SLOT_Q, q, {0}, true),
    FIELD(SLOT_SEED, seed, {0}, false),
    FIELD(SLOT_OFFSET, offset, {0}, false),
    FIELD(SLOT_STREAM, stream, {0}, false),
    FIELD(SLOT_ALLOW_BITS, allow_bits, {0}, true),
    FIELD(SLOT_OVERRIDE_INDPTR, override_indptr, {0}, false),
    FIELD(SLOT_OVERRIDE_TOKEN, override_token, {0}, false),
    FIELD(SLOT_OVERRIDE_LOGIT, override_logit, {0}, false),
    FIELD(SLOT_GIVEN_TOKEN, given_token, {0}, false),
    FIELD(SLOT_SCORE_TOKEN, score_token, {0}, true),
#undef FIELD
#define FIELD(slot, name, code, bits, matrix) \
    [slot] = {#name, offsetof(sy_sample_args, name), {code, bits, 1}, matrix}
    FIELD(SLOT_TOKEN, token, 0, 64, false),
    FIELD(SLOT_KEPT, kept, 0, 32, false),
    FIELD(SLOT_ROW_FLAGS, row_flags, 1, 32, false),
    FIELD(SLOT_MASKED, masked_logits, 2, 32, true),
    FIELD(SLOT_LIST_TOKEN, list_token, 0, 64, true),
    FIELD(SLOT_LIST_PROB, list_prob, 2, 32, true),
    FIELD(SLOT_LOGPROB, logprob, 2, 32, false),
    FIELD(SLOT_RANK, rank, 0, 32, false),
    FIELD(SLOT_TOP_TOKEN, top_token, 0, 64, true),
    FIELD(SLOT_TOP_LOGPROB, top_logprob, 2, 32, true),
    FIELD(SLOT_SCORE_LOGPROB, score_logprob, 2, 32, true),
#undef FIELD
};

const char *sample_slot_name(enum sample_slot slot)
{
    return slots[slot].name;
}

const DLTensor **sample_slot_field(sy_sample_args *args, enum sample_slot slot)
{
    return (const DLTensor **)(void *)((unsigned char *)args + slots[slot].field);
}

/* ---- Building ---- */

static void attach(struct sample_case *c, enum sample_slot slot)
{
    *sample_slot_field(&c->args, slot) = &c->slot[slot].t;
}

void sample_open(struct sample_case *c, DLDataType type, int64_t batch, int64_t vocab,
                 const struct layout *layout)
{
    memset(c, 0, sizeof *c);
    c->batch = batch;
    c->vocab = vocab;
    tensor_make(&c->slot[SLOT_LOGITS], type, 2, (int64_t[]){batch, vocab}, layout);
    attach(c, SLOT_LOGITS);
}

void sample_close(struct sample_case *c)
{
    for (int s = 0; s < SLOT_COUNT; s++)
        tensor_free(&c->slot[s]);
}

void sample_add_rows(struct sample_case *c, enum sample_slot slot, DLDataType type, enum sample_rows kind)
{
    struct tensor *x = &c->slot[slot];
    int64_t step = kind == ROWS_STRIDED ? 3 : kind == ROWS_B1_STRIDED ? 2 : kind == ROWS_STRIDE_0 ? 0 : 1;
    int64_t room = kind == ROWS_ONE || step == 0 ? 1 : (c->batch - 1) * step + 1;
    int rank = kind == ROWS_B1 || kind == ROWS_B1_STRIDED ? 2 : 1;
    if (c->batch == 0)
        room = 0;
    tensor_make(x, type, 1, &room, NULL);
    x->t.ndim = rank;
    x->shape[0] = kind == ROWS_ONE ? 1 : c->batch;
    x->shape[1] = x->strides[1] = 1;
    x->strides[0] = step;
    x->t.strides = kind == ROWS_B || kind == ROWS_B1 || kind == ROWS_ONE ? NULL : x->strides;
    attach(c, slot);
}

void sample_add_q(struct sample_case *c, const struct layout *layout)
{
    tensor_make(&c->slot[SLOT_Q], SY_F32, 2, (int64_t[]){c->batch, c->vocab}, layout);
    attach(c, SLOT_Q);
}

void sample_add_allow(struct sample_case *c, DLDataType type, bool for_all, const struct layout *layout)
{
    struct tensor *x = &c->slot[SLOT_ALLOW_BITS];
    tensor_make(x, type, 2, (int64_t[]){for_all ? 1 : c->batch, (c->vocab + 31) / 32}, layout);
    for (int64_t row = 0; row < tensor_rows(x); row++)
        memset(tensor_row(x, row), 0, tensor_row_bytes(x));
    attach(c, SLOT_ALLOW_BITS);
}

void sample_add_outputs(struct sample_case *c, unsigned bits, const struct layout *layout)
{
    for (int s = SLOT_FIRST_OUTPUT; s <= SLOT_LOGPROB; s++) {
        if (!(bits & SLOT_BIT(s)))
            continue;
        bool matrix = slots[s].matrix;
        tensor_make(&c->slot[s], slots[s].type, matrix ? 2 : 1, (int64_t[]){c->batch, c->vocab},
                    matrix ? layout : NULL);
        attach(c, s);
    }
}

void sample_add_logprobs(struct sample_case *c, int64_t n_top, DLDataType top_type, int64_t n_score,
                         DLDataType score_type, const struct layout *layout)
{
    tensor_make(&c->slot[SLOT_RANK], SY_I32, 1, &c->batch, NULL);
    attach(c, SLOT_RANK);
    if (n_top > 0) {
        tensor_make(&c->slot[SLOT_TOP_TOKEN], top_type, 2, (int64_t[]){c->batch, n_top}, layout);
        tensor_make(&c->slot[SLOT_TOP_LOGPROB], SY_F32, 2, (int64_t[]){c->batch, n_top}, layout);
        attach(c, SLOT_TOP_TOKEN);
        attach(c, SLOT_TOP_LOGPROB);
    }
    if (n_score > 0) {
        tensor_make(&c->slot[SLOT_SCORE_TOKEN], score_type, 2, (int64_t[]){c->batch, n_score}, layout);
        tensor_make(&c->slot[SLOT_SCORE_LOGPROB], SY_F32, 2, (int64_t[]){c->batch, n_score}, layout);
        attach(c, SLOT_SCORE_TOKEN);
        attach(c, SLOT_SCORE_LOGPROB);
        for (int64_t i = 0; i < c->batch * n_score; i++)
            sample_put_bits(c, SLOT_SCORE_TOKEN, i / n_score, i % n_score, UINT64_MAX);
    }
}

/* ---- Elements ---- */

static unsigned char *element(const DLTensor *t, int64_t b, int64_t i)
{
    int64_t step[2] = {1, 1};
    if (t->strides) {
        step[0] = t->strides[0];
        step[1] = t->ndim == 2 ? t->strides[1] : 0;
    } else if (t->ndim == 2) {
        step[0] = t->shape[1];
    }
    if (t->ndim == 1 && t->shape[0] == 1)
        step[0] = 0;
    return (unsigned char *)t->data + t->byte_offset +
           (b * step[0] + i * step[1]) * (int64_t)type_bytes(t->dtype);
}

static bool is_type(DLDataType a, DLDataType b)
{
    return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

static float get_real(const DLTensor *t, int64_t b, int64_t i)
{
    const unsigned char *at = element(t, b, i);
    float value;
    uint16_t half;
    if (is_type(t->dtype, SY_F32)) {
        memcpy(&value, at, sizeof value);
        return value;
    }
    memcpy(&half, at, sizeof half);
    return (float)(is_type(t->dtype, SY_F16) ? f16_value(half) : bf16_value(half));
}

static int64_t get_int_at(const DLTensor *t, int64_t b, int64_t i)
{
    const unsigned char *at = element(t, b, i);
    int32_t narrow;
    int64_t wide;
    memcpy(&narrow, at, sizeof narrow);
    if (t->dtype.bits == 32)
        return t->dtype.code == 1 ? (int64_t)(uint32_t)narrow : narrow;
    memcpy(&wide, at, sizeof wide);
    return wide;
}

static int64_t get_int(const DLTensor *t, int64_t b)
{
    return get_int_at(t, b, 0);
}

static int64_t columns(const DLTensor *t)
{
    return t ? t->shape[1] : 0;
}

void sample_put(struct sample_case *c, enum sample_slot slot, int64_t b, int64_t i, double value)
{
    const DLTensor *t = &c->slot[slot].t;
    unsigned char *at = element(t, b, i);
    float single = (float)value;
    uint16_t half = is_type(t->dtype, SY_F16) ? f16_round(value) : bf16_round(value);
    if (is_type(t->dtype, SY_F32))
        memcpy(at, &single, sizeof single);
    else
        memcpy(at, &half, sizeof half);
}

void sample_put_row(struct sample_case *c, enum sample_slot slot, int64_t b, const double *values)
{
    for (int64_t i = 0; i < c->vocab; i++)
        sample_put(c, slot, b, i, values[i]);
}

void sample_put_bits(struct sample_case *c, enum sample_slot slot, int64_t b, int64_t i, uint64_t bits)
{
    const DLTensor *t = &c->slot[slot].t;
    memcpy(element(t, b, i), &bits, type_bytes(t->dtype)); /* little-endian */
}

void sample_put_int(struct sample_case *c, enum sample_slot slot, int64_t b, int64_t value)
{
    sample_put_bits(c, slot, b, 0, (uint64_t)value);
}

static unsigned char *allow_word(const DLTensor *t, int64_t b, int64_t token)
{
    return element(t, t->shape[0] == 1 ? 0 : b, token / 32);
}

static bool is_allowed(const DLTensor *t, int64_t b, int64_t token)
{
    uint32_t word;
    memcpy(&word, allow_word(t, b, token), sizeof word);
    return word >> token % 32 & 1;
}

void sample_allow(struct sample_case *c, int64_t b, int64_t token, bool allowed)
{
    unsigned char *at = allow_word(&c->slot[SLOT_ALLOW_BITS].t, b, token);
    uint32_t word;
    memcpy(&word, at, sizeof word);
    word = allowed ? word | 1u << token % 32 : word & ~(1u << token % 32);
    memcpy(at, &word, sizeof word);
}

void sample_add_overrides(struct sample_case *c, DLDataType indptr_type, DLDataType token_type,
                          const int64_t *count, int64_t spare)
{
    int64_t at = spare;
    tensor_make(&c->slot[SLOT_OVERRIDE_INDPTR], indptr_type, 1, (int64_t[]){c->batch + 1}, NULL);
    for (int64_t b = 0; b <= c->batch; b++) {
        sample_put_bits(c, SLOT_OVERRIDE_INDPTR, b, 0, (uint64_t)at);
        at += b < c->batch ? count[b] : spare;
    }
    tensor_make(&c->slot[SLOT_OVERRIDE_TOKEN], token_type, 1, &at, NULL);
    tensor_make(&c->slot[SLOT_OVERRIDE_LOGIT], SY_F32, 1, &at, NULL);
    for (int s = SLOT_OVERRIDE_INDPTR; s <= SLOT_OVERRIDE_LOGIT; s++)
        attach(c, (enum sample_slot)s);
}

void sample_override(struct sample_case *c, int64_t element, int64_t token, float logit)
{
    sample_put_bits(c, SLOT_OVERRIDE_TOKEN, element, 0, (uint64_t)token);
    sample_put_bits(c, SLOT_OVERRIDE_LOGIT, element, 0, f32_bits(logit));
}

/* ---- The oracle's answer ---- */

static void *array(int64_t n, size_t bytes)
{
    void *p = malloc((size_t)n * bytes + 1);
    assert_non_null(p);
    return p;
}

void sample_values_make(struct sample_values *values, int64_t vocab, int64_t n_score)
{
    values->score = array(n_score, sizeof *values->score);
    values->x = array(vocab, sizeof *values->x);
    values->raw = array(vocab, sizeof *values->raw);
    values->q = array(vocab, sizeof *values->q);
    values->allowed = array(vocab, sizeof *values->allowed);
}

void sample_values_free(struct sample_values *values)
{
    free(values->x);
    free(values->raw);
    free(values->q);
    free(values->allowed);
    free(values->score);
}

void sample_read_row(const struct sample_case *c, int64_t b, struct sample_values *values,
                     struct oracle_sample_row *row)
{
    const sy_sample_args *a = &c->args;
    *row = (struct oracle_sample_row){.x = values->x,
                                      .raw = values->raw,
                                      .allowed = a->allow_bits ? values->allowed : NULL,
                                      .vocab = c->vocab,
                                      .k = a->top_k ? get_int(a->top_k, b) : 0,
                                      .k_limit = a->k_limit,
                                      .p = a->top_p ? get_real(a->top_p, b, 0) : 1,
                                      .min_p = a->min_p ? get_real(a->min_p, b, 0) : 0,
                                      .temperature = a->temperature ? get_real(a->temperature, b, 0) : 1,
                                      .q = values->q,
                                      .eps = a->eps,
                                      .seed = a->seed ? (uint64_t)get_int(a->seed, b) : 0,
                                      .offset = a->offset ? (uint64_t)get_int(a->offset, b) : 0,
                                      .stream = (uint32_t)(a->stream ? get_int(a->stream, b)
                                                           : a->seed && a->seed->shape[0] == c->batch ? 0
                                                                                                      : b),
                                      .noise = a->noise,
                                      .q_order = a->q_order,
                                      .ties = a->ties,
                                      .logprob_mode = a->logprob_mode,
                                      .empty_token = a->empty_token,
                                      .probs_in = a->probs_in,
                                      .n_top = columns(a->top_token),
                                      .n_score = columns(a->score_token),
                                      .score = values->score};
    values->given = a->given_token ? get_int(a->given_token, b) : -1;
    row->given = values->given >= 0 ? &values->given : NULL;
    for (int64_t j = 0; j < row->n_score; j++)
        values->score[j] = get_int_at(a->score_token, b, j);
    if (row->noise == SY_NOISE_AUTO)
        row->noise = a->q ? SY_NOISE_Q : a->seed ? SY_NOISE_CDF : SY_NOISE_NONE;
    for (int64_t i = 0; i < c->vocab; i++) {
        values->x[i] = values->raw[i] = get_real(a->logits, b, i);
        if (a->q)
            values->q[i] = get_real(a->q, b, i);
        if (a->allow_bits)
            values->allowed[i] = is_allowed(a->allow_bits, b, i);
    }
    if (a->override_indptr)
        for (int64_t j = get_int(a->override_indptr, b); j < get_int(a->override_indptr, b + 1); j++)
            values->x[get_int(a->override_token, j)] = get_real(a->override_logit, j, 0);
}

static void count_seen(const struct sample_case *c, const struct oracle_sample_row *row,
                       const struct oracle_sample_result *r, struct sample_seen *seen)
{
    const float normal = is_type(c->args.logits->dtype, SY_F16) ? 0x1p-14f : FLT_MIN, *x = row->x;
    bool minus_zero = false, subnormal = false;
    int64_t first = 0, raw_first = 0;
    for (int64_t i = 0; i < c->vocab; i++) {
        first = oracle_sample_key(x[i]) > oracle_sample_key(x[first]) ? i : first;
        raw_first = oracle_sample_key(row->raw[i]) > oracle_sample_key(row->raw[raw_first]) ? i : raw_first;
        minus_zero = minus_zero || (x[i] == 0 && signbit(x[i]));
        subnormal = subnormal || (x[i] != 0 && fabsf(x[i]) < normal);
    }
    seen->rows++;
    seen->nan += (r->flags & SY_ROW_NAN) != 0;
    seen->inf += (r->flags & SY_ROW_INF) != 0;
    seen->empty += (r->flags & SY_ROW_EMPTY) != 0;
    seen->minus_zero += minus_zero;
    seen->subnormal += subnormal;
    seen->k_on += r->k_on;
    seen->k_tied += r->k_tied;
    seen->p_on += r->p_on;
    seen->p_tied += r->p_tied;
    seen->p_short += r->p_short;
    seen->mp_cut += r->mp_cut;
    seen->score_tied += r->score_tied;
    seen->ranked += r->ranked;
    seen->listed += r->n;
    seen->barred += row->allowed && !row->allowed[first];
    seen->overridden += first != raw_first;
    seen->given += row->given != NULL;
    seen->outside += r->rank > c->vocab;
}

void sample_want_make(const struct sample_case *c, struct sample_want *want, struct sample_seen *seen)
{
    int64_t rows = c->batch, vocab = c->vocab, n_score = columns(c->args.score_token);
    int64_t n_top = columns(c->args.top_token);
    size_t top_bytes = c->args.top_token ? type_bytes(c->args.top_token->dtype) : 0;
    *want = (struct sample_want){.token = array(rows, sizeof *want->token),
                                 .list_token = array(rows * vocab, sizeof *want->list_token),
                                 .n = array(rows, sizeof *want->n),
                                 .kept = array(rows, sizeof *want->kept),
                                 .flags = array(rows, sizeof *want->flags),
                                 .masked = array(rows * vocab, sizeof *want->masked),
                                 .list_prob = array(rows * vocab, sizeof *want->list_prob),
                                 .logprob = array(rows, sizeof *want->logprob),
                                 .rank = array(rows, sizeof *want->rank),
                                 .top_token = array(rows * n_top, top_bytes),
                                 .top_logprob = array(rows * n_top, sizeof *want->top_logprob),
                                 .score_logprob = array(rows * n_score, sizeof *want->score_logprob)};
    int64_t *top = array(n_top, sizeof *top);
    struct sample_values values;
    sample_values_make(&values, vocab, n_score);
    for (int64_t b = 0; b < rows; b++) {
        struct oracle_sample_row row;
        struct oracle_sample_result r = {.list = want->list_token + b * vocab,
                                         .prob = want->list_prob + b * vocab,
                                         .masked = want->masked + b * vocab,
                                         .top = top,
                                         .top_logprob = want->top_logprob + b * n_top,
                                         .score_logprob = want->score_logprob + b * n_score};
        sample_read_row(c, b, &values, &row);
        oracle_sample_row(&row, &r);
        want->token[b] = r.token;
        want->kept[b] = r.kept;
        want->flags[b] = r.flags;
        want->logprob[b] = r.logprob;
        want->n[b] = r.n;
        want->rank[b] = r.rank;
        for (int64_t i = 0; i < n_top && c->args.logprob_mode; i++)
            memcpy(want->top_token + (size_t)(b * n_top + i) * top_bytes, &top[i],
                   top_bytes); /* little-endian */
        if (seen)
            count_seen(c, &row, &r, seen);
    }
    sample_values_free(&values);
    free(top);
}

void sample_want_free(struct sample_want *want)
{
    free(want->token);
    free(want->list_token);
    free(want->n);
    free(want->kept);
    free(want->flags);
    free(want->masked);
    free(want->list_prob);
    free(want->logprob);
    free(want->rank);
    free(want->top_token);
    free(want->top_logprob);
    free(want->score_logprob);
    memset(want, 0, sizeof *want);
}

static const void *want_of(const struct sample_want *want, int slot)
{
    switch (slot) {
    case SLOT_TOKEN:
        return want->token;
    case SLOT_KEPT:
        return want->kept;
    case SLOT_ROW_FLAGS:
        return want->flags;
    case SLOT_MASKED:
        return want->masked;
    case SLOT_LIST_TOKEN:
        return want->list_token;
    case SLOT_LIST_PROB:
        return want->list_prob;
    case SLOT_RANK:
        return want->rank;
    case SLOT_TOP_TOKEN:
        return want->top_token;
    case SLOT_TOP_LOGPROB:
        return want->top_logprob;
    case SLOT_SCORE_LOGPROB:
        return want->score_logprob;
    default:
        return want->logprob;
    }
}

/* ---- Comparing ---- */

static void print_element(const char *label, DLDataType type, const unsigned char *at)
{
    uint64_t word = 0;
    memcpy(&word, at, type_bytes(type));
    if (type.code == 2)
        print_error("    %s %.9g (%08x)\n", label, (double)f32_from_bits((uint32_t)word), (unsigned)word);
    else
        print_error("    %s %lld\n", label, (long long)(type.bits == 32 ? (int32_t)word : (int64_t)word));
}

static void print_row(const struct sample_case *c, int64_t b)
{
    struct oracle_sample_row row;
    struct sample_values values;
    sample_values_make(&values, c->vocab, columns(c->args.score_token));
    sample_read_row(c, b, &values, &row);
    print_error("    logits %u bits code %u, row %lld of %lld, V %lld: k %lld limit %lld, p %.9g, min_p "
                "%.9g, T %.9g\n",
                (unsigned)c->args.logits->dtype.bits, (unsigned)c->args.logits->dtype.code, (long long)b,
                (long long)c->batch, (long long)c->vocab, (long long)row.k, (long long)row.k_limit,
                (double)row.p, (double)row.min_p, (double)row.temperature);
    print_error("    noise %d, q_order %d, eps %g, ties %d, logprob %d, probs_in %d, seed %llx, offset %llx, "
                "stream %x\n",
                (int)row.noise, (int)row.q_order, (double)row.eps, (int)row.ties, (int)row.logprob_mode,
                (int)row.probs_in, (unsigned long long)row.seed, (unsigned long long)row.offset,
                (unsigned)row.stream);
    for (int64_t i = 0; i < c->vocab && i < 12; i++)
        print_error("    x[%lld] = %.9g (%08x)%s%s\n", (long long)i, (double)row.x[i], f32_bits(row.x[i]),
                    f32_bits(row.x[i]) != f32_bits(row.raw[i]) ? ", overridden" : "",
                    row.allowed && !row.allowed[i] ? ", not allowed" : "");
    sample_values_free(&values);
}

/*
 * Says which row and element differ before the byte comparison fails; `dense` is the wanted [rows, ...]
 * array.
 */
static void explain(const struct sample_case *c, const struct tensor *x, const void *dense, const char *name,
                    const char *what)
{
    size_t size = type_bytes(x->t.dtype);
    int64_t per_row = x->t.ndim == 2 ? x->t.shape[1] : 1;
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t i = 0; i < per_row; i++) {
            const unsigned char *got = element(&x->t, b, x->t.ndim == 2 ? i : 0);
            const unsigned char *want = (const unsigned char *)dense + (size_t)(b * per_row + i) * size;
            if (!memcmp(got, want, size))
                continue;
            print_error("%s: %s of row %lld, element %lld\n", what, name, (long long)b, (long long)i);
            print_element("got ", x->t.dtype, got);
            print_element("want", x->t.dtype, want);
            print_row(c, b);
            return;
        }
}

void sample_run(struct sample_case *c, sy_ctx *ctx, const struct sample_want *want, const char *what)
{
    unsigned char *old[SLOT_COUNT];
    bool in_place = c->args.masked_logits && c->args.masked_logits->data == c->slot[SLOT_LOGITS].t.data;
    for (int s = 0; s < SLOT_COUNT; s++) {
        if (s >= SLOT_FIRST_OUTPUT && c->slot[s].mem)
            memset(c->slot[s].mem, 0xA5, c->slot[s].bytes);
        old[s] = tensor_snapshot(&c->slot[s]);
    }
    sy_status status = sy_sample(ctx, &c->args);
    if (status != SY_OK)
        print_error("%s: V %lld\n", what, (long long)c->vocab);
    expect_status(ctx, status, SY_OK);
    if (in_place) {
        tensor_expect(&c->slot[SLOT_LOGITS], want->masked, old[SLOT_LOGITS], "masked_logits in place");
        memcpy(c->slot[SLOT_LOGITS].mem, old[SLOT_LOGITS], c->slot[SLOT_LOGITS].bytes);
    }
    for (int s = 0; s < SLOT_COUNT; s++) {
        const struct tensor *x = &c->slot[s];
        if (!x->mem)
            continue;
        if (s >= SLOT_FIRST_OUTPUT && *sample_slot_field(&c->args, s) == &x->t) {
            explain(c, x, want_of(want, s), slots[s].name, what);
            tensor_expect(x, want_of(want, s), old[s], slots[s].name);
        } else {
            tensor_expect_unchanged(x, old[s], slots[s].name);
        }
    }
    for (int s = 0; s < SLOT_COUNT; s++)
        free(old[s]);
}

void sample_check(struct sample_case *c, sy_ctx *ctx, struct sample_seen *seen, const char *what)
{
    struct sample_want want;
    sample_want_make(c, &want, seen);
    sample_run(c, ctx, &want, what);
    sample_want_free(&want);
}

/* ---- Random rows ---- */

const char *sample_kind_name(enum sample_kind kind)
{
    static const char *const names[KIND_COUNT] = {"normal",   "ties",   "equal", "special",
                                                  "negative", "single", "empty", "infinite",
                                                  "spread",   "bits",   "zeros", "probs"};
    return names[kind];
}

double sample_normal(uint64_t *rng)
{
    double u = 1 - rng_unit(rng), v = rng_unit(rng);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static double special_value(uint64_t *rng)
{
    const double values[] = {NAN,  -INFINITY, INFINITY, -0.0,     0.0,      1e-45,           -1e-45,
                             6e-8, -6e-8,     1e-40,    -FLT_MAX, -65504.0, (double)FLT_MAX, 1.0};
    return values[rng_below(rng, sizeof values / sizeof values[0])];
}

static double random_value(enum sample_kind kind, double width, double base, uint64_t *rng)
{
    static const double zeros[] = {0.0, -0.0, 1e-45, -1e-45, 1e-40, -1e-40, 6e-8, -6e-8};
    switch (kind) {
    case KIND_TIES:
        return base + (double)rng_below(rng, 7) * 0.5;
    case KIND_EQUAL:
        return base;
    case KIND_SPECIAL:
        return rng_below(rng, 3) ? width * sample_normal(rng) : special_value(rng);
    case KIND_NEGATIVE:
        return -300 - 50 * rng_unit(rng);
    case KIND_SINGLE:
    case KIND_EMPTY:
        return rng_below(rng, 2) ? -INFINITY : (double)NAN;
    case KIND_INFINITE:
        return rng_below(rng, 4) ? width * sample_normal(rng) : INFINITY;
    case KIND_SPREAD:
        return (rng_below(rng, 2) ? 1 : -1) * ldexp(1 + rng_unit(rng), (int)rng_below(rng, 276) - 149);
    case KIND_ZEROS:
        return zeros[rng_below(rng, 8)];
    case KIND_PROBS:
        return rng_below(rng, 40) ? width * rng_unit(rng) : special_value(rng);
    default:
        return base + width * sample_normal(rng);
    }
}

void sample_fill_row(struct sample_case *c, int64_t b, enum sample_kind kind, uint64_t *rng)
{
    static const double widths[] = {0.01, 0.5, 1, 2, 4, 12, 100};
    double width = widths[rng_below(rng, 7)], base = floor(8 * sample_normal(rng)) / 4;
    const DLTensor *t = &c->slot[SLOT_LOGITS].t;
    if (kind == KIND_PROBS) /* a sum from far below 1 to far above */
        width = ldexp(4.0 / (double)c->vocab, -(int)rng_below(rng, 5)) * (rng_below(rng, 8) ? 1 : 1000);
    if (kind == KIND_BITS) {
        rng_fill(rng, element(t, b, 0), (size_t)c->vocab * type_bytes(t->dtype));
        return;
    }
    for (int64_t i = 0; i < c->vocab; i++)
        sample_put(c, SLOT_LOGITS, b, i, random_value(kind, width, base, rng));
    if (kind == KIND_SINGLE)
        sample_put(c, SLOT_LOGITS, b, rng_below(rng, c->vocab), base);
}

void sample_fill_allow(struct sample_case *c, uint64_t *rng)
{
    struct tensor *x = &c->slot[SLOT_ALLOW_BITS];
    for (int64_t row = 0; row < tensor_rows(x); row++) {
        const int64_t kind = rng_below(rng, 8), words = (int64_t)(tensor_row_bytes(x) / 4);
        for (int64_t i = 0; i < words; i++) {
            const uint64_t r = rng_u64(rng);
            const uint32_t one = 1u << (r >> 59), some = (uint32_t)r;
            const uint32_t by_kind[] = {0,
                                        UINT32_MAX,
                                        some,
                                        some,
                                        r >> 32 & 1 ? one : 0,
                                        r >> 32 & 1 ? ~one : UINT32_MAX,
                                        i / 64 % 2 ? UINT32_MAX : 0, /* whole stretches */
                                        i % 97 ? 0 : one};
            memcpy((unsigned char *)tensor_row(x, row) + i * 4, &by_kind[kind], 4);
        }
    }
}

static float override_value(const struct sample_case *c, int64_t b, int64_t kind, uint64_t *rng)
{
    const DLTensor *logits = c->args.logits;
    const float own = get_real(logits, b, rng_below(rng, c->vocab));
    switch (kind) {
    case 0:
        return own; /* ties with a token of the row */
    case 1:
        return (float)((double)own - 8 * rng_unit(rng)); /* a penalty */
    case 2:
        return -INFINITY; /* a ban */
    case 3:
        return (float)special_value(rng);
    case 4:
        return (float)((double)own + 4 * sample_normal(rng));
    default:
        return (float)(30 * sample_normal(rng));
    }
}

/* Ascending tokens, each subset equally likely. */
static void fill_overrides_of(struct sample_case *c, int64_t b, int64_t first, int64_t count, uint64_t *rng)
{
    const int64_t kind = rng_below(rng, 8);
    for (int64_t i = 0, left = count; i < c->vocab; i++)
        if (rng_below(rng, c->vocab - i) < left) {
            const float logit = override_value(c, b, kind < 6 ? kind : rng_below(rng, 6), rng);
            sample_override(c, first + count - left, i, logit);
            left--;
        }
}

void sample_fill_overrides(struct sample_case *c, uint64_t *rng)
{
    int64_t *count = array(c->batch, sizeof *count);
    const int64_t spare = rng_below(rng, 2) ? 0 : rng_below(rng, 9);
    const int64_t few = c->vocab < 8 ? c->vocab : 8, many = c->vocab < 600 ? c->vocab : 600;
    for (int64_t b = 0; b < c->batch; b++) {
        const int64_t counts[] = {0, rng_below(rng, few + 1), rng_below(rng, many + 1),
                                  rng_below(rng, 9) ? few : c->vocab};
        count[b] = counts[rng_below(rng, 4)];
    }
    sample_add_overrides(c, rng_below(rng, 3) ? SY_I64 : SY_I32, rng_below(rng, 3) ? SY_I32 : SY_I64, count,
                         spare);
    int64_t at = spare;
    for (int64_t b = 0; b < c->batch; b++) {
        fill_overrides_of(c, b, at, count[b], rng);
        at += count[b];
    }
    free(count);
}
