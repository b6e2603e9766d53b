/*
 * One valid call of `sample` and one spoiler per row: the status, the sentence (operator, field, number), the
 * fault, the query's opinion, and every byte of every tensor unchanged. Then all pairs of faults: the earlier
 * check wins.
 */
#include "support.h"

#include <math.h>

#include "oracle/sample_case.h"

enum { BATCH = 3, VOCAB = 8, ELEMENTS = BATCH * VOCAB, CUDA = 2, CUDA_HOST = 3 };

enum action {
    NO_TENSOR, /* the field becomes NULL                                  */
    NO_DATA,   /* data NULL                                               */
    NO_SHAPE,  /* shape NULL                                              */
    TYPE,      /* v = code, bits, lanes                                   */
    SHAPE,     /* v = rank, extents                                       */
    STRIDES,   /* v = strides                                             */
    DEVICE,    /* v = device type                                         */
    OVER,      /* v = slot, bytes: data moves over another tensor's data */
    CONTENT,   /* v = element, value                                      */
    FIELD      /* set() does it                                           */
};

struct spoiler {
    const char *name;
    enum action action;
    enum sample_slot slot;
    int64_t v[4];
    void (*set)(struct sample_case *c);
    sy_status want;
    const char *field;  /* in the sentence; NULL: the slot's name */
    const char *number; /* in the sentence; NULL: none            */
};

/* ---- The valid call ---- */

static void open_valid(struct sample_case *c)
{
    uint64_t rng = 1;
    sample_open(c, SY_F32, BATCH, VOCAB, NULL);
    sample_add_rows(c, SLOT_TOP_K, SY_I32, ROWS_B);
    sample_add_rows(c, SLOT_TOP_P, SY_F32, ROWS_B);
    sample_add_rows(c, SLOT_MIN_P, SY_F32, ROWS_B);
    sample_add_rows(c, SLOT_TEMPERATURE, SY_F32, ROWS_B);
    sample_add_rows(c, SLOT_SEED, SY_I64, ROWS_B);
    sample_add_rows(c, SLOT_OFFSET, SY_I64, ROWS_B);
    sample_add_rows(c, SLOT_STREAM, SY_I32, ROWS_B);
    sample_add_q(c, NULL);
    sample_add_allow(c, SY_I32, false, NULL);
    sample_add_overrides(c, SY_I64, SY_I32, (int64_t[]){2, 0, 1}, 0);
    sample_override(c, 0, 1, 2.5f);
    sample_override(c, 1, VOCAB - 1, -1.0f);
    sample_override(c, 2, 0, -INFINITY);
    for (int64_t b = 0; b < BATCH; b++) {
        sample_fill_row(c, b, KIND_NORMAL, &rng);
        for (int64_t i = 0; i < VOCAB; i++) {
            sample_put(c, SLOT_Q, b, i, 1);
            sample_allow(c, b, i, i != 3);
        }
        sample_put_int(c, SLOT_TOP_K, b, 5);
        sample_put(c, SLOT_TOP_P, b, 0, .9);
        sample_put(c, SLOT_MIN_P, b, 0, .01);
        sample_put(c, SLOT_TEMPERATURE, b, 0, .8);
        for (int s = SLOT_SEED; s <= SLOT_STREAM; s++)
            sample_put_int(c, (enum sample_slot)s, b, s + b);
    }
    c->args.logprob_mode = SY_LOGPROB_FINAL;
    c->args.eps = 1e-8f;
    sample_add_outputs(c, SLOTS_ALL_OUTPUTS, NULL);
}

static void valid_call(void **state)
{
    (void)state;
    struct sample_case c;
    sy_ctx *ctx = test_ctx(1, NULL);
    open_valid(&c);
    sample_check(&c, ctx, NULL, "valid");
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* ---- Spoilers ---- */

static void apply(struct sample_case *c, const struct spoiler *s)
{
    struct tensor *x = &c->slot[s->slot];
    switch (s->action) {
    case NO_TENSOR:
        *sample_slot_field(&c->args, s->slot) = NULL;
        break;
    case NO_DATA:
        x->t.data = NULL;
        break;
    case NO_SHAPE:
        x->t.shape = NULL;
        break;
    case TYPE:
        x->t.dtype = (DLDataType){(uint8_t)s->v[0], (uint8_t)s->v[1], (uint16_t)s->v[2]};
        break;
    case SHAPE:
        x->t.ndim = (int)s->v[0];
        for (int d = 0; d < 3; d++)
            x->shape[d] = s->v[1 + d];
        break;
    case STRIDES:
        x->strides[0] = s->v[0];
        x->strides[1] = s->v[1];
        x->t.strides = x->strides;
        break;
    case DEVICE:
        x->t.device.device_type = (DLDeviceType)s->v[0];
        break;
    case OVER:
        x->t.data = (unsigned char *)c->slot[s->v[0]].t.data + s->v[1];
        break;
    case CONTENT:
        sample_put_bits(c, s->slot, s->v[0], 0, (uint64_t)s->v[1]);
        break;
    case FIELD:
        s->set(c);
        break;
    }
}

static void no_outputs(struct sample_case *c)
{
    for (int s = SLOT_FIRST_OUTPUT; s < SLOT_COUNT; s++)
        *sample_slot_field(&c->args, (enum sample_slot)s) = NULL;
}

static void eps_negative(struct sample_case *c)
{
    c->args.eps = -1;
}

static void eps_nan(struct sample_case *c)
{
    c->args.eps = NAN;
}

static void eps_inf(struct sample_case *c)
{
    c->args.eps = INFINITY;
}

static void k_limit_negative(struct sample_case *c)
{
    c->args.k_limit = -7;
}

static void bad_noise(struct sample_case *c)
{
    memcpy(&c->args.noise, &(int){5}, sizeof(int));
}

static void bad_q_order(struct sample_case *c)
{
    memcpy(&c->args.q_order, &(int){2}, sizeof(int));
}

static void bad_ties(struct sample_case *c)
{
    memcpy(&c->args.ties, &(int){2}, sizeof(int));
}

static void bad_logprob_mode(struct sample_case *c)
{
    memcpy(&c->args.logprob_mode, &(int){3}, sizeof(int));
}

static void bad_empty_token(struct sample_case *c)
{
    memcpy(&c->args.empty_token, &(int){2}, sizeof(int));
}

static void enum_far_out(struct sample_case *c)
{
    memcpy(&c->args.ties, &(int){-1}, sizeof(int));
}

static void q_without_q(struct sample_case *c)
{
    c->args.noise = SY_NOISE_Q;
    c->args.q = NULL;
}

static void race_without_seed(struct sample_case *c)
{
    c->args.noise = SY_NOISE_RACE;
    c->args.seed = NULL;
}

static void cdf_without_seed(struct sample_case *c)
{
    c->args.noise = SY_NOISE_CDF;
    c->args.seed = NULL;
}

static void logprob_without_mode(struct sample_case *c)
{
    c->args.logprob_mode = SY_LOGPROB_NONE;
}

static void mode_without_logprob(struct sample_case *c)
{
    c->args.logprob = NULL;
}

/* The largest V is 2^23. q and allow_bits would have to follow; leaving them out keeps the inputs consistent. */
static void huge_vocab(struct sample_case *c)
{
    c->slot[SLOT_LOGITS].shape[1] = ((int64_t)1 << 23) + 1;
    c->args.q = c->args.allow_bits = NULL;
}

/* ceil(V/32) has no overflow of its own. */
static void widest_vocab(struct sample_case *c)
{
    c->slot[SLOT_LOGITS].shape[1] = INT64_MAX;
    c->args.q = NULL;
}

/* Nothing but logits and token, and more rows than memory has addresses for. */
static void huge_batch(struct sample_case *c)
{
    for (int s = SLOT_TOP_K; s < SLOT_COUNT; s++)
        if (s != SLOT_TOKEN)
            *sample_slot_field(&c->args, (enum sample_slot)s) = NULL;
    c->args.logprob_mode = SY_LOGPROB_NONE;
    c->slot[SLOT_LOGITS].shape[0] = c->slot[SLOT_TOKEN].shape[0] = (int64_t)1 << 61;
}

static void half_logits(struct sample_case *c)
{
    c->slot[SLOT_LOGITS].t.dtype = SY_BF16;
    c->slot[SLOT_TOP_P].t.dtype = SY_F16;
}

/* masked_logits over bf16 logits: same base, but not the same elements. */
static void masked_over_half_logits(struct sample_case *c)
{
    c->slot[SLOT_LOGITS].t.dtype = SY_BF16;
    c->slot[SLOT_MASKED].t.data = c->slot[SLOT_LOGITS].t.data;
}

/* The same base and another row stride, inside memory that could hold both. */
static void masked_over_logits_other_stride(struct sample_case *c)
{
    struct tensor *x = &c->slot[SLOT_MASKED], *list = &c->slot[SLOT_LIST_TOKEN];
    c->args.list_token = NULL;
    c->slot[SLOT_LOGITS].t.data = x->t.data = list->mem; /* 192 bytes */
    x->strides[0] = VOCAB + 1;
    x->strides[1] = 1;
    x->t.strides = x->strides;
}

#define T(at, code, bits, lanes) .action = TYPE, .slot = at, .v = {code, bits, lanes}, .want = SY_ERR_DTYPE
#define S(at, ...) .action = SHAPE, .slot = at, .v = {__VA_ARGS__}, .want = SY_ERR_SHAPE
#define R(at, ...) .action = STRIDES, .slot = at, .v = {__VA_ARGS__}, .want = SY_ERR_STRIDE
#define D(at) .action = DEVICE, .slot = at, .v = {CUDA}, .want = SY_ERR_DEVICE, .number = "2"
#define O(at, ...) .action = OVER, .slot = at, .v = {__VA_ARGS__}, .want = SY_ERR_ALIAS
#define C(at, ...) .action = CONTENT, .slot = at, .v = {__VA_ARGS__}, .want = SY_ERR_INDEX
#define N(how, at) .action = how, .slot = at, .want = SY_ERR_NULL
#define V(function, text) .action = FIELD, .set = function, .field = text, .want = SY_ERR_VALUE

static const struct spoiler spoilers[] = {
    {"logits missing", N(NO_TENSOR, SLOT_LOGITS)},
    {"logits without data", N(NO_DATA, SLOT_LOGITS)},
    {"logits without shape", N(NO_SHAPE, SLOT_LOGITS)},
    {"top_k without data", N(NO_DATA, SLOT_TOP_K)},
    {"top_p without data", N(NO_DATA, SLOT_TOP_P)},
    {"q without data", N(NO_DATA, SLOT_Q)},
    {"allow_bits without data", N(NO_DATA, SLOT_ALLOW_BITS)},
    {"override_indptr missing", N(NO_TENSOR, SLOT_OVERRIDE_INDPTR)},
    {"override_token missing", N(NO_TENSOR, SLOT_OVERRIDE_TOKEN)},
    {"override_logit missing", N(NO_TENSOR, SLOT_OVERRIDE_LOGIT)},
    {"override_indptr without data", N(NO_DATA, SLOT_OVERRIDE_INDPTR)},
    {"override_token without data", N(NO_DATA, SLOT_OVERRIDE_TOKEN)},
    {"override_logit without data", N(NO_DATA, SLOT_OVERRIDE_LOGIT)},
    {"token without data", N(NO_DATA, SLOT_TOKEN)},
    {"list_prob without data", N(NO_DATA, SLOT_LIST_PROB)},
    {"no output at all", .action = FIELD, .set = no_outputs, .want = SY_ERR_NULL, .field = "output"},

    {"logits as f64", T(SLOT_LOGITS, 2, 64, 1), .number = "64"},
    {"logits as int32", T(SLOT_LOGITS, 0, 32, 1)},
    {"logits as fp8", T(SLOT_LOGITS, 10, 8, 1)},
    {"logits as pairs of f32", T(SLOT_LOGITS, 2, 32, 2)},
    {"top_k as f32", T(SLOT_TOP_K, 2, 32, 1)},
    {"top_k as uint32", T(SLOT_TOP_K, 1, 32, 1)},
    {"top_k as int16", T(SLOT_TOP_K, 0, 16, 1), .number = "16"},
    {"top_p as f64", T(SLOT_TOP_P, 2, 64, 1)},
    {"top_p as bf16 beside f32 logits", T(SLOT_TOP_P, 4, 16, 1)},
    {"top_p as f16 beside bf16 logits", .action = FIELD, .set = half_logits, .want = SY_ERR_DTYPE,
     .field = "top_p"},
    {"min_p as f16 beside f32 logits", T(SLOT_MIN_P, 2, 16, 1)},
    {"min_p as int32", T(SLOT_MIN_P, 0, 32, 1)},
    {"temperature as f64", T(SLOT_TEMPERATURE, 2, 64, 1)},
    {"temperature as bf16 beside f32 logits", T(SLOT_TEMPERATURE, 4, 16, 1)},
    {"q as bf16", T(SLOT_Q, 4, 16, 1)},
    {"q as f64", T(SLOT_Q, 2, 64, 1)},
    {"seed as uint32", T(SLOT_SEED, 1, 32, 1)},
    {"seed as f64", T(SLOT_SEED, 2, 64, 1)},
    {"offset as uint32", T(SLOT_OFFSET, 1, 32, 1)},
    {"offset as f32", T(SLOT_OFFSET, 2, 32, 1)},
    {"stream as int16", T(SLOT_STREAM, 0, 16, 1)},
    {"stream as f32", T(SLOT_STREAM, 2, 32, 1)},
    {"allow_bits as uint8", T(SLOT_ALLOW_BITS, 1, 8, 1), .number = "u8"},
    {"allow_bits as int64", T(SLOT_ALLOW_BITS, 0, 64, 1)},
    {"allow_bits as bool", T(SLOT_ALLOW_BITS, 6, 8, 1)},
    {"allow_bits as f32", T(SLOT_ALLOW_BITS, 2, 32, 1)},
    {"override_indptr as uint32", T(SLOT_OVERRIDE_INDPTR, 1, 32, 1)},
    {"override_indptr as int16", T(SLOT_OVERRIDE_INDPTR, 0, 16, 1), .number = "16"},
    {"override_token as uint32", T(SLOT_OVERRIDE_TOKEN, 1, 32, 1)},
    {"override_token as f32", T(SLOT_OVERRIDE_TOKEN, 2, 32, 1)},
    {"override_logit as bf16", T(SLOT_OVERRIDE_LOGIT, 4, 16, 1)},
    {"override_logit as int32", T(SLOT_OVERRIDE_LOGIT, 0, 32, 1)},
    {"token as int32", T(SLOT_TOKEN, 0, 32, 1), .number = "32"},
    {"kept as int64", T(SLOT_KEPT, 0, 64, 1)},
    {"row_flags as int32", T(SLOT_ROW_FLAGS, 0, 32, 1)},
    {"masked_logits as bf16", T(SLOT_MASKED, 4, 16, 1)},
    {"list_token as int32", T(SLOT_LIST_TOKEN, 0, 32, 1)},
    {"list_prob as f64", T(SLOT_LIST_PROB, 2, 64, 1)},
    {"logprob as f16", T(SLOT_LOGPROB, 2, 16, 1)},

    {"logits of rank 0", S(SLOT_LOGITS, 0, 0, 0)},
    {"logits of rank 1", S(SLOT_LOGITS, 1, ELEMENTS), .number = "1"},
    {"logits of rank 3", S(SLOT_LOGITS, 3, 1, BATCH, VOCAB), .number = "3"},
    {"V = 0", S(SLOT_LOGITS, 2, BATCH, 0), .number = "0"},
    {"negative B", S(SLOT_LOGITS, 2, -1, VOCAB), .number = "-1"},
    {"negative V", S(SLOT_LOGITS, 2, BATCH, -8), .number = "-8"},
    {"top_k one too long", S(SLOT_TOP_K, 1, BATCH + 1), .number = "4"},
    {"top_k one too short", S(SLOT_TOP_K, 1, BATCH - 1), .number = "2"},
    {"top_k [B,2]", S(SLOT_TOP_K, 2, BATCH, 2), .number = "2"},
    {"top_k [1,B]", S(SLOT_TOP_K, 2, 1, BATCH)},
    {"top_k [1,1] for three rows", S(SLOT_TOP_K, 2, 1, 1)},
    {"top_k of rank 0", S(SLOT_TOP_K, 0, 0)},
    {"top_p of rank 3", S(SLOT_TOP_P, 3, BATCH, 1, 1), .number = "3"},
    {"top_p empty", S(SLOT_TOP_P, 1, 0), .number = "0"},
    {"min_p too long", S(SLOT_MIN_P, 1, 7), .number = "7"},
    {"temperature too long", S(SLOT_TEMPERATURE, 1, 9), .number = "9"},
    {"seed too short", S(SLOT_SEED, 1, 2), .number = "2"},
    {"offset too short", S(SLOT_OFFSET, 1, 2), .number = "2"},
    {"stream too long", S(SLOT_STREAM, 1, 4), .number = "4"},
    {"q [B,V-1]", S(SLOT_Q, 2, BATCH, VOCAB - 1), .number = "7"},
    {"q [B-1,V]", S(SLOT_Q, 2, BATCH - 1, VOCAB), .number = "2"},
    {"q of rank 1", S(SLOT_Q, 1, VOCAB), .number = "1"},

    {"allow_bits of rank 1", S(SLOT_ALLOW_BITS, 1, BATCH), .number = "1"},
    {"allow_bits for two rows", S(SLOT_ALLOW_BITS, 2, 2, 1), .number = "[3,1]"},
    {"allow_bits of two words", S(SLOT_ALLOW_BITS, 2, BATCH, 2), .number = "[3,1]"},
    {"allow_bits of no word", S(SLOT_ALLOW_BITS, 2, BATCH, 0), .number = "[3,0]"},
    {"one row of too many words", S(SLOT_ALLOW_BITS, 2, 1, 3), .number = "[1,1]"},
    {"allow_bits for the widest V", .action = FIELD, .set = widest_vocab, .want = SY_ERR_SHAPE,
     .field = "allow_bits", .number = "[3,288230376151711744]"},

    {"override_indptr of rank 2", S(SLOT_OVERRIDE_INDPTR, 2, 1, BATCH + 1), .number = "2"},
    {"override_indptr [B]", S(SLOT_OVERRIDE_INDPTR, 1, BATCH), .number = "[4]"},
    {"override_indptr [B+2]", S(SLOT_OVERRIDE_INDPTR, 1, BATCH + 2), .number = "[4]"},
    {"override_token of rank 0", S(SLOT_OVERRIDE_TOKEN, 0, 0)},
    {"override_logit [N-1]", S(SLOT_OVERRIDE_LOGIT, 1, 2), .number = "[3]"},
    {"override_logit of rank 2", S(SLOT_OVERRIDE_LOGIT, 2, 1, 3), .number = "2"},

    {"eps negative", V(eps_negative, "eps"), .number = "-1"},
    {"eps NaN", V(eps_nan, "eps"), .number = "nan"},
    {"eps infinite", V(eps_inf, "eps"), .number = "inf"},
    {"k_limit negative", V(k_limit_negative, "k_limit"), .number = "-7"},
    {"unknown noise", V(bad_noise, "noise"), .number = "5"},
    {"unknown q_order", V(bad_q_order, "q_order"), .number = "2"},
    {"unknown ties", V(bad_ties, "ties"), .number = "2"},
    {"ties below the first", V(enum_far_out, "ties")},
    {"unknown logprob_mode", V(bad_logprob_mode, "logprob_mode"), .number = "3"},
    {"unknown empty_token", V(bad_empty_token, "empty_token"), .number = "2"},
    {"noise q without q", V(q_without_q, "q")},
    {"noise race without seed", V(race_without_seed, "seed")},
    {"noise cdf without seed", V(cdf_without_seed, "seed")},
    {"logprob without its mode", V(logprob_without_mode, "logprob")},
    {"logprob_mode without its output", V(mode_without_logprob, "logprob")},

    {"V = 2^23 + 1", .action = FIELD, .set = huge_vocab, .want = SY_ERR_OVERFLOW, .field = "logits",
     .number = "8388609"},
    {"more bytes than addresses", .action = FIELD, .set = huge_batch, .want = SY_ERR_OVERFLOW, .field = ""},

    {"token one too long", S(SLOT_TOKEN, 1, BATCH + 1), .number = "4"},
    {"token [B,1]", S(SLOT_TOKEN, 2, BATCH, 1), .number = "2"},
    {"kept one too short", S(SLOT_KEPT, 1, BATCH - 1), .number = "2"},
    {"row_flags of rank 0", S(SLOT_ROW_FLAGS, 0, 0)},
    {"masked_logits [B,V+1]", S(SLOT_MASKED, 2, BATCH, VOCAB + 1), .number = "9"},
    {"masked_logits of rank 1", S(SLOT_MASKED, 1, ELEMENTS)},
    {"list_token [B,V-1]", S(SLOT_LIST_TOKEN, 2, BATCH, VOCAB - 1), .number = "7"},
    {"list_prob [B-1,V]", S(SLOT_LIST_PROB, 2, BATCH - 1, VOCAB), .number = "2"},
    {"logprob [1]", S(SLOT_LOGPROB, 1, 1), .number = "1"},

    {"logits with element stride 2", R(SLOT_LOGITS, 2 * VOCAB, 2), .number = "2"},
    {"logits rows overlap", R(SLOT_LOGITS, VOCAB - 1, 1), .number = "7"},
    {"logits row stride 0", R(SLOT_LOGITS, 0, 1), .number = "0"},
    {"q rows overlap", R(SLOT_Q, VOCAB - 1, 1), .number = "7"},
    {"q with element stride 0", R(SLOT_Q, VOCAB, 0), .number = "0"},
    {"allow_bits rows overlap", R(SLOT_ALLOW_BITS, 0, 1), .number = "0"},
    {"override_indptr with stride 2", R(SLOT_OVERRIDE_INDPTR, 2), .number = "2"},
    {"override_token with stride 0", R(SLOT_OVERRIDE_TOKEN, 0), .number = "0"},
    {"override_logit with stride -1", R(SLOT_OVERRIDE_LOGIT, -1), .number = "-1"},
    {"top_k with stride -1", R(SLOT_TOP_K, -1), .number = "-1"},
    {"token with stride 2", R(SLOT_TOKEN, 2), .number = "2"},
    {"kept with stride 0", R(SLOT_KEPT, 0), .number = "0"},
    {"masked_logits rows overlap", R(SLOT_MASKED, VOCAB - 1, 1), .number = "7"},
    {"list_token with element stride 2", R(SLOT_LIST_TOKEN, VOCAB, 2), .number = "2"},
    {"list_prob row stride 0", R(SLOT_LIST_PROB, 0, 1), .number = "0"},

    {"logits on a GPU", D(SLOT_LOGITS)},
    {"top_k on a GPU", D(SLOT_TOP_K)},
    {"q on a GPU", D(SLOT_Q)},
    {"allow_bits on a GPU", D(SLOT_ALLOW_BITS)},
    {"override_token on a GPU", D(SLOT_OVERRIDE_TOKEN)},
    {"token on a GPU", D(SLOT_TOKEN)},
    {"list_prob on a GPU", D(SLOT_LIST_PROB)},

    {"token over logits", O(SLOT_TOKEN, SLOT_LOGITS, 0)},
    {"token over the end of q", O(SLOT_TOKEN, SLOT_Q, 4 * ELEMENTS - 1)},
    {"kept over row_flags", O(SLOT_KEPT, SLOT_ROW_FLAGS, 0)},
    {"logprob over top_p", O(SLOT_LOGPROB, SLOT_TOP_P, 0)},
    {"row_flags over seed", O(SLOT_ROW_FLAGS, SLOT_SEED, 4)},
    {"kept over allow_bits", O(SLOT_KEPT, SLOT_ALLOW_BITS, 8)},
    {"token over override_indptr", O(SLOT_TOKEN, SLOT_OVERRIDE_INDPTR, 8)},
    {"kept over override_token", O(SLOT_KEPT, SLOT_OVERRIDE_TOKEN, 0)},
    {"logprob over override_logit", O(SLOT_LOGPROB, SLOT_OVERRIDE_LOGIT, 0)},
    {"list_prob over masked_logits", O(SLOT_LIST_PROB, SLOT_MASKED, 0)},
    {"masked_logits over q", O(SLOT_MASKED, SLOT_Q, 0)},
    {"masked_logits over logits, shifted", O(SLOT_MASKED, SLOT_LOGITS, 4)},
    {"masked_logits over logits, one row on", O(SLOT_MASKED, SLOT_LOGITS, VOCAB * 4)},
    {"masked_logits over bf16 logits", .action = FIELD, .set = masked_over_half_logits, .want = SY_ERR_ALIAS,
     .field = "masked_logits"},
    {"masked_logits over logits, other stride", .action = FIELD, .set = masked_over_logits_other_stride,
     .want = SY_ERR_ALIAS, .field = "masked_logits"},

    {"overrides from -1", C(SLOT_OVERRIDE_INDPTR, 0, -1), .number = "position 0 is -1, want 0 to 3"},
    {"overrides end before they begin", C(SLOT_OVERRIDE_INDPTR, 2, 1),
     .number = "position 2 is 1, want 2 to 3 (INDEX_ORDER)"},
    {"overrides past the lists", C(SLOT_OVERRIDE_INDPTR, 3, 4), .number = "position 3 is 4, want 2 to 3"},
    {"overrides far past the lists", C(SLOT_OVERRIDE_INDPTR, 1, INT64_MAX), .number = "9223372036854775807"},
    {"overrides far before the lists", C(SLOT_OVERRIDE_INDPTR, 1, INT64_MIN),
     .number = "-9223372036854775808"},
    {"an override of token -1", C(SLOT_OVERRIDE_TOKEN, 2, -1),
     .number = "row 2, position 2 is -1, want 0 or more and below 8 (INDEX_RANGE)"},
    {"an override of token V", C(SLOT_OVERRIDE_TOKEN, 1, VOCAB), .number = "row 0, position 1 is 8"},
    {"a token overridden twice", C(SLOT_OVERRIDE_TOKEN, 1, 1),
     .number = "row 0, position 1 is 1, want more than 1 before it (INDEX_ORDER)"},
    {"overridden tokens descend", C(SLOT_OVERRIDE_TOKEN, 1, 0), .number = "want more than 1 before it"},
};

/* ---- Running them ---- */

/* The sentence opens with the operator and names the field and the number; the fault agrees. */
static void expect_sentence(sy_ctx *ctx, sy_status want, const char *field, const char *number)
{
    const char *text = sy_ctx_error(ctx);
    sy_fault fault;
    if (strncmp(text, "sample: ", 8) != 0)
        fail_msg("sentence \"%s\" does not start with the operator", text);
    if (!strstr(text + 8, field))
        fail_msg("sentence \"%s\" does not name %s", text, field);
    if (want != SY_ERR_NULL && !strstr(text + 8, ", want "))
        fail_msg("sentence \"%s\" does not say what is wanted", text);
    if (number && !strstr(text + 8, number))
        fail_msg("sentence \"%s\" does not hold %s", text, number);
    assert_int_equal(sy_ctx_fault(ctx, &fault), SY_OK);
    assert_int_equal(fault.status, want);
    assert_true(fault.code != SY_FAULT_NONE);
    assert_true(fault.argument[0] != 0 && strstr(text + 8, fault.argument) != NULL);
}

static void expect_rejected(struct sample_case *c, sy_ctx *ctx, sy_status want)
{
    unsigned char *old[SLOT_COUNT];
    for (int s = 0; s < SLOT_COUNT; s++)
        old[s] = tensor_snapshot(&c->slot[s]);
    expect_status(ctx, sy_sample(ctx, &c->args), want);
    for (int s = 0; s < SLOT_COUNT; s++) {
        tensor_expect_unchanged(&c->slot[s], old[s], sample_slot_name((enum sample_slot)s));
        free(old[s]);
    }
}

/* A query looks at inputs and scalar fields only, and needs no data. */
static sy_status query_opinion(const struct spoiler *s)
{
    bool output = s->action != FIELD && s->slot >= SLOT_FIRST_OUTPUT;
    bool alias = s->want == SY_ERR_ALIAS, content = s->want == SY_ERR_INDEX;
    bool about_outputs =
        s->set == no_outputs || s->set == logprob_without_mode || s->set == mode_without_logprob;
    return output || alias || content || about_outputs || s->action == NO_DATA ? SY_OK : s->want;
}

static void run_spoiler(void **state)
{
    const struct spoiler *s = *state;
    struct sample_case c;
    sy_query query;
    sy_ctx *ctx = test_ctx(2, NULL);
    open_valid(&c);
    apply(&c, s);
    expect_rejected(&c, ctx, s->want);
    expect_sentence(ctx, s->want, s->field ? s->field : sample_slot_name(s->slot), s->number);
    memset(&query, 0xA5, sizeof query);
    expect_status(ctx, sy_sample_query(ctx, &c.args, &query), query_opinion(s));
    if (query_opinion(s) == SY_OK)
        assert_int_equal(query.rows, BATCH);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* ---- Two faults at once ---- */

/* One fault of every class in the order of the checks, each on a field of its own. */
static const struct spoiler ordered[] = {
    {"null", N(NO_DATA, SLOT_KEPT)},
    {"dtype", T(SLOT_SEED, 2, 32, 1)},
    {"rank", S(SLOT_TOP_P, 3, BATCH, 1, 1), .number = "3"},
    {"input shape", S(SLOT_MIN_P, 1, 7), .number = "7"},
    {"value", V(eps_negative, "eps")},
    {"overflow", .action = FIELD, .set = huge_vocab, .want = SY_ERR_OVERFLOW, .field = "logits"},
    {"output shape", S(SLOT_ROW_FLAGS, 1, BATCH + 1)},
    {"stride", R(SLOT_LIST_TOKEN, VOCAB, 2)},
    {"device", D(SLOT_TEMPERATURE)},
    {"alias", O(SLOT_LIST_PROB, SLOT_MASKED, 0)},
    {"contents", C(SLOT_OVERRIDE_TOKEN, 0, -7)},
};

static void earlier_fault_wins(void **state)
{
    const size_t pair = *(const size_t *)*state, first = pair / COUNT_OF(ordered),
                 second = pair % COUNT_OF(ordered);
    for (int swapped = 0; swapped < 2; swapped++) {
        struct sample_case c;
        sy_ctx *ctx = test_ctx(1, NULL);
        open_valid(&c);
        apply(&c, &ordered[swapped ? second : first]);
        apply(&c, &ordered[swapped ? first : second]);
        expect_rejected(&c, ctx, ordered[first].want);
        const char *field =
            ordered[first].field ? ordered[first].field : sample_slot_name(ordered[first].slot);
        expect_sentence(ctx, ordered[first].want, field, NULL);
        sample_close(&c);
        sy_ctx_destroy(ctx);
    }
}

/* ---- Outside the table ---- */

static void null_pointers(void **state)
{
    (void)state;
    struct sample_case c;
    sy_query query;
    sy_ctx *ctx = test_ctx(1, NULL);
    open_valid(&c);
    assert_int_equal(sy_sample(NULL, &c.args), SY_ERR_NULL);
    assert_int_equal(sy_sample(ctx, NULL), SY_ERR_NULL);
    assert_int_equal(sy_sample_query(NULL, &c.args, &query), SY_ERR_NULL);
    assert_int_equal(sy_sample_query(ctx, NULL, &query), SY_ERR_NULL);
    assert_int_equal(sy_sample_query(ctx, &c.args, NULL), SY_ERR_NULL);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* A lent workspace that is too small is a rejection like any other. */
static void workspace_too_small(void **state)
{
    (void)state;
    struct sample_case c;
    sy_query query = {0};
    sy_ctx *ctx = test_ctx(1, NULL);
    uint64_t rng = 3;
    sample_open(&c, SY_F32, 1, 20000, NULL);
    sample_fill_row(&c, 0, KIND_NORMAL, &rng);
    sample_add_rows(&c, SLOT_TOP_P, SY_F32, ROWS_ONE);
    sample_put(&c, SLOT_TOP_P, 0, 0, .99);
    sample_add_outputs(&c, SLOTS_NO_LOGPROB, NULL);
    expect_status(ctx, sy_sample_query(ctx, &c.args, &query), SY_OK);
    assert_true(query.workspace_bytes > 64);
    void *memory = buf_new(query.workspace_bytes, 0);
    assert_int_equal(sy_ctx_set_workspace(ctx, memory, query.workspace_bytes - 64), SY_OK);
    expect_rejected(&c, ctx, SY_ERR_NOMEM);
    assert_true(strncmp(sy_ctx_error(ctx), "sample: ", 8) == 0);
    assert_int_equal(sy_ctx_set_workspace(ctx, memory, query.workspace_bytes), SY_OK);
    sample_check(&c, ctx, NULL, "enough");
    sy_ctx_destroy(ctx);
    buf_free(memory);
    sample_close(&c);
}

/* Page-locked host memory is CPU memory. */
static void pinned_memory_is_accepted(void **state)
{
    (void)state;
    struct sample_case c;
    sy_ctx *ctx = test_ctx(1, NULL);
    open_valid(&c);
    for (int s = 0; s < SLOT_COUNT; s += 2)
        c.slot[s].t.device.device_type = (DLDeviceType)CUDA_HOST;
    sample_check(&c, ctx, NULL, "pinned");
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* V = 2^23 is the largest that passes; only the query can be asked without 32 MiB per row. */
static void largest_vocab_passes(void **state)
{
    (void)state;
    int64_t shape[] = {1000, (int64_t)1 << 23};
    DLTensor logits = sy_tensor(NULL, SY_BF16, 2, shape);
    const sy_sample_args args = {.logits = &logits};
    sy_query query = {0};
    sy_ctx *ctx = test_ctx(1, NULL);
    expect_status(ctx, sy_sample_query(ctx, &args, &query), SY_OK);
    assert_int_equal(query.rows, 1000);
    shape[1]++;
    expect_status(ctx, sy_sample_query(ctx, &args, &query), SY_ERR_OVERFLOW);
    sy_ctx_destroy(ctx);
}

/* The first fault in order, in numbers, on any number of threads. */
static void the_first_wrong_override_is_named(void **state)
{
    (void)state;
    enum { ROWS = 40, EACH = 30, LONG = 2000 };
    for (int threads = 1; threads <= 8; threads++) {
        struct sample_case c;
        sy_fault fault;
        int64_t count[ROWS];
        uint64_t rng = 5;
        sy_ctx *ctx = test_ctx(threads, NULL);
        sample_open(&c, SY_BF16, ROWS, LONG, NULL);
        for (int b = 0; b < ROWS; b++) {
            sample_fill_row(&c, b, KIND_NORMAL, &rng);
            count[b] = EACH;
        }
        sample_add_overrides(&c, SY_I32, SY_I64, count, 3);
        for (int i = 0; i < ROWS * EACH; i++)
            sample_override(&c, 3 + i, i % EACH * 60, 1);
        sample_override(&c, 3 + 35 * EACH + 1, -5, 1);
        sample_override(&c, 3 + 7 * EACH + 4, 180, 1); /* as the one before it */
        sample_override(&c, 3 + 7 * EACH + 9, LONG, 1);
        sample_add_outputs(&c, SLOTS_NO_LOGPROB, NULL);
        expect_rejected(&c, ctx, SY_ERR_INDEX);
        assert_int_equal(sy_ctx_fault(ctx, &fault), SY_OK);
        assert_int_equal(fault.code, SY_FAULT_INDEX_ORDER);
        assert_string_equal(fault.argument, "override_token");
        assert_int_equal(fault.batch, 7);
        assert_int_equal(fault.position, 3 + 7 * EACH + 4);
        assert_int_equal(fault.value, 180);
        assert_int_equal(fault.limit, 180);
        sample_close(&c);
        sy_ctx_destroy(ctx);
    }
}

/* Without rows nothing is looked at, not even where the overrides begin. */
static void no_rows(void **state)
{
    (void)state;
    struct sample_case c;
    sy_ctx *ctx = test_ctx(1, NULL);
    sample_open(&c, SY_F32, 0, VOCAB, NULL);
    sample_add_overrides(&c, SY_I64, SY_I32, NULL, 0);
    sample_put_bits(&c, SLOT_OVERRIDE_INDPTR, 0, 0, UINT64_MAX);
    sample_add_outputs(&c, SLOTS_NO_LOGPROB, NULL);
    expect_status(ctx, sy_sample(ctx, &c.args), SY_OK);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* No other content ever causes an error, whatever the bits. */
static void other_contents_are_never_rejected(void **state)
{
    (void)state;
    uint64_t rng = 17;
    sy_ctx *ctx = test_ctx(1, NULL);
    for (int i = 0; i < 300; i++) {
        struct sample_case c;
        open_valid(&c);
        for (int s = 0; s < SLOT_FIRST_OUTPUT; s++)
            if (s != SLOT_OVERRIDE_INDPTR && s != SLOT_OVERRIDE_TOKEN)
                rng_fill(&rng, c.slot[s].mem, c.slot[s].bytes);
        c.args.noise = (sy_noise)rng_below(&rng, 5);
        c.args.probs_in = rng_below(&rng, 2) != 0;
        sample_check(&c, ctx, NULL, "bits");
        sample_close(&c);
    }
    sy_ctx_destroy(ctx);
}

/* A call with overrides, for what follows from the description. */
static void make(struct test_call *c)
{
    test_make_sample(c, false, 1);
}

int main(void)
{
    static size_t pairs[COUNT_OF(ordered) * COUNT_OF(ordered)];
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add(&list, "the valid call is valid", valid_call, NULL);
    for (size_t i = 0; i < COUNT_OF(spoilers); i++)
        test_add(&list, spoilers[i].name, run_spoiler, (void *)(uintptr_t)&spoilers[i]);
    for (size_t a = 0; a < COUNT_OF(ordered); a++)
        for (size_t b = a + 1; b < COUNT_OF(ordered); b++) {
            size_t *pair = &pairs[a * COUNT_OF(ordered) + b];
            *pair = a * COUNT_OF(ordered) + b;
            test_add(&list, test_name("%s before %s", ordered[a].name, ordered[b].name), earlier_fault_wins,
                     pair);
        }
    test_add(&list, "NULL context, arguments, query", null_pointers, NULL);
    test_add(&list, "lent workspace too small", workspace_too_small, NULL);
    test_add(&list, "page-locked memory is accepted", pinned_memory_is_accepted, NULL);
    test_add(&list, "V = 2^23 passes", largest_vocab_passes, NULL);
    test_add(&list, "the first wrong override is named", the_first_wrong_override_is_named, NULL);
    test_add(&list, "no rows", no_rows, NULL);
    test_add(&list, "other contents are never rejected", other_contents_are_never_rejected, NULL);
    return test_run(&list, "bad_sample");
}
