/*
 * What the aclnn door rejects: one valid call, one spoiler per row, the vendor's status, and outputs that stay what they
 * were. Rows stand in the order of the checks; a second table spoils two things at once, and the earlier one must win.
 */
#include "aclnn.h"

#include <math.h>

static const float x4[4][2] = {{10, 11}, {20, 21}, {30, 31}, {40, 41}};
static const uint8_t map2[4][3] = {{1, 0, 1}, {0, 1, 1}, {1, 1, 0}, {1, 0, 1}};
static const uint8_t crowded[4][3] = {{1, 1, 1}, {0, 1, 1}, {1, 1, 0}, {1, 0, 1}};
static const float probs2[4][3] = {{.5f, 0, .5f}, {0, .25f, .75f}, {.125f, .875f, 0}, {.625f, 0, .375f}};
static const int32_t slots2[8] = {0, 5, 3, 6, 1, 4, 2, 7}, tokens2[8] = {0, 0, 1, 1, 2, 2, 3, 3};
static const int32_t rows2[6] = {0, 1, 0, 1, 2, 3}, order2[6] = {0, 2, 1, 3, 4, 5},
                     sorted2[6] = {0, 0, 1, 1, 2, 3};
static const float ones[64] = {1};
static const int64_t restore[3] = {4, 2, 1};

/* ---- The valid calls --------------------------------------------------------------------------------- */

static struct call good_permute(void)
{
    struct call c = call_permute();
    c.args[PERMUTE_TOKENS] = (struct arg)ARG2(ACL_FLOAT, 4, 2, x4);
    c.args[PERMUTE_MAP] = (struct arg)ARG2(ACL_BOOL, 4, 3, map2);
    c.args[PERMUTE_PROBS] = (struct arg)ARG2(ACL_FLOAT, 4, 3, probs2);
    c.args[PERMUTE_OUT] = (struct arg)ARG2(ACL_FLOAT, 8, 2, NULL);
    c.args[PERMUTE_PROBS_OUT] = (struct arg)ARG1(ACL_FLOAT, 8, NULL);
    c.args[PERMUTE_INDICES] = (struct arg)ARG1(ACL_INT32, 8, NULL);
    c.number[0] = 8;
    return c;
}

static struct call good_unpermute(void)
{
    struct call c = call_unpermute();
    c.args[UNPERMUTE_ROWS] = (struct arg)ARG2(ACL_FLOAT, 8, 2, ones);
    c.args[UNPERMUTE_INDICES] = (struct arg)ARG1(ACL_INT32, 8, slots2);
    c.args[UNPERMUTE_MAP] = (struct arg)ARG2(ACL_BOOL, 4, 3, map2);
    c.args[UNPERMUTE_PROBS] = (struct arg)ARG2(ACL_FLOAT, 4, 3, probs2);
    c.args[UNPERMUTE_OUT] = (struct arg)ARG2(ACL_FLOAT, 4, 2, NULL);
    c.args[UNPERMUTE_OUT_INDEX] = (struct arg)ARG1(ACL_INT32, 8, NULL);
    c.args[UNPERMUTE_TOKEN_ID] = (struct arg)ARG1(ACL_INT32, 8, NULL);
    c.args[UNPERMUTE_KEPT_PROBS] = (struct arg)ARG1(ACL_FLOAT, 8, NULL);
    c.restore = restore;
    c.restore_count = 2;
    return c;
}

static struct call good_permute_grad(void)
{
    struct call c = call_permute_grad();
    c.args[PGRAD_ROWS] = (struct arg)ARG2(ACL_FLOAT, 8, 2, ones);
    c.args[PGRAD_PROBS] = (struct arg)ARG1(ACL_FLOAT, 8, ones);
    c.args[PGRAD_INDICES] = (struct arg)ARG1(ACL_INT32, 8, slots2);
    c.args[PGRAD_MAP] = (struct arg)ARG2(ACL_BOOL, 4, 3, map2);
    c.args[PGRAD_OUT] = (struct arg)ARG2(ACL_FLOAT, 4, 2, NULL);
    c.args[PGRAD_PROBS_OUT] = (struct arg)ARG2(ACL_FLOAT, 4, 3, NULL);
    c.number[0] = 3;
    c.number[1] = 4;
    return c;
}

static struct call good_unpermute_grad(void)
{
    struct call c = call_unpermute_grad();
    c.args[UGRAD_TOKENS] = (struct arg)ARG2(ACL_FLOAT, 4, 2, ones);
    c.args[UGRAD_OUT_INDEX] = (struct arg)ARG1(ACL_INT32, 8, slots2);
    c.args[UGRAD_TOKEN_ID] = (struct arg)ARG1(ACL_INT32, 8, tokens2);
    c.args[UGRAD_MAP] = (struct arg)ARG2(ACL_BOOL, 4, 3, map2);
    c.args[UGRAD_ROWS] = (struct arg)ARG2(ACL_FLOAT, 8, 2, ones);
    c.args[UGRAD_PROBS] = (struct arg)ARG2(ACL_FLOAT, 4, 3, probs2);
    c.args[UGRAD_OUT] = (struct arg)ARG2(ACL_FLOAT, 8, 2, NULL);
    c.args[UGRAD_PROBS_OUT] = (struct arg)ARG2(ACL_FLOAT, 4, 3, NULL);
    return c;
}

/* The same with two rows for each of three experts. */
static struct call padded_unpermute_grad(void)
{
    struct call c = good_unpermute_grad();
    c.args[UGRAD_OUT_INDEX] = (struct arg)ARG1(ACL_INT32, 6, order2);
    c.args[UGRAD_TOKEN_ID] = (struct arg)ARG1(ACL_INT32, 6, sorted2);
    c.args[UGRAD_ROWS] = (struct arg)ARG2(ACL_FLOAT, 6, 2, ones);
    c.args[UGRAD_OUT] = (struct arg)ARG2(ACL_FLOAT, 6, 2, NULL);
    c.flag[0] = true;
    return c;
}

static struct call padded_unpermute(void)
{
    struct call c = good_unpermute();
    c.args[UNPERMUTE_ROWS] = (struct arg)ARG2(ACL_FLOAT, 6, 2, ones);
    c.args[UNPERMUTE_INDICES] = (struct arg)ARG1(ACL_INT32, 6, rows2);
    for (int i = UNPERMUTE_OUT_INDEX; i <= UNPERMUTE_KEPT_PROBS; i++)
        c.args[i].dims[0] = 6;
    c.flag[0] = true;
    return c;
}

static struct call good_sample_v2(void)
{
    static const int32_t k[4] = {1, 2, 0, 9};
    struct call c = call_sample_v2();
    c.args[SAMPLE_LOGITS] = (struct arg)ARG2(ACL_FLOAT, 4, 8, ones);
    c.args[SAMPLE_K] = (struct arg)ARG1(ACL_INT32, 4, k);
    c.args[SAMPLE_P] = (struct arg)ARG1(ACL_FLOAT, 4, ones);
    c.args[SAMPLE_Q] = (struct arg)ARG2(ACL_FLOAT, 4, 8, ones);
    c.args[SAMPLE_MINP] = (struct arg)ARG1(ACL_FLOAT, 4, ones);
    c.args[SAMPLE_TOKEN] = (struct arg)ARG1(ACL_INT64, 4, NULL);
    c.args[SAMPLE_MASKED] = (struct arg)ARG2(ACL_FLOAT, 4, 8, NULL);
    c.args[SAMPLE_IDX] = (struct arg)ARG2(ACL_INT64, 4, 8, NULL);
    c.args[SAMPLE_LIST] = (struct arg)ARG2(ACL_FLOAT, 4, 8, NULL);
    c.flag[0] = true;
    return c;
}

static struct call good_lists(void)
{
    struct call c = good_sample_v2();
    c.args[SAMPLE_Q] = (struct arg)NO_ARG;
    c.flag[2] = true;
    return c;
}

static struct call good_sample(void)
{
    struct call c = good_sample_v2(), v1 = call_sample();
    for (int i = 0; i < v1.count; i++)
        v1.args[i] = c.args[i];
    v1.args[SAMPLE_LOGITS].type = ACL_FLOAT16; /* the memory is the same, only half of it is read */
    v1.args[SAMPLE_P].type = ACL_FLOAT16;
    v1.args[SAMPLE_MINP] = (struct arg)NO_ARG;
    v1.flag[0] = true;
    return v1;
}

/* ---- Spoilers ---------------------------------------------------------------------------------------- */

/* What is done to one of the tensors, or to a number. */
enum deed {
    NOTHING,
    MISSING, /* no tensor */
    NO_DATA, /* a tensor without memory */
    TYPE,    /* another type: value */
    RANK,    /* another rank: value, with extents of 1 behind the others */
    EXTENT,  /* of dimension 0: value */
    COLUMNS, /* of dimension 1: value */
    STRIDE,  /* of dimension 0: value */
    OFFSET,  /* value */
    FORMAT,  /* value */
    DATA,    /* other contents */
    NUMBER,  /* number[arg]: value */
    FLAG,    /* flag[arg]: value */
    EPS,     /* data is a double */
    RESTORE  /* no restore shape, or value numbers of it */
};

struct spoiler {
    enum deed deed;
    int arg;
    int64_t value;
    const void *data;
};

struct rejected {
    const char *name;
    struct call (*make)(void);
    struct spoiler spoil[3];
    aclnnStatus want;
};

static void apply(struct call *c, const struct spoiler *s)
{
    struct arg *a = &c->args[s->arg];
    if (s->deed == TYPE || s->deed == EXTENT || s->deed == COLUMNS)
        a->data = NULL; /* the values are too few for what it becomes, and nobody reads them */
    switch (s->deed) {
    case NOTHING:
        break;
    case MISSING:
        *a = (struct arg)NO_ARG;
        break;
    case NO_DATA:
        a->no_data = true;
        break;
    case TYPE:
        a->type = (aclDataType)s->value;
        break;
    case RANK:
        for (int d = a->rank; d < (int)s->value; d++)
            a->dims[d] = 1;
        a->rank = (int)s->value;
        break;
    case EXTENT:
        a->dims[0] = s->value;
        break;
    case COLUMNS:
        a->dims[1] = s->value;
        break;
    case STRIDE:
        a->strided = true;
        a->strides[0] = s->value;
        a->strides[1] = 1;
        break;
    case OFFSET:
        a->offset = s->value;
        break;
    case FORMAT:
        a->format = (aclFormat)s->value;
        break;
    case DATA:
        a->data = s->data;
        break;
    case NUMBER:
        c->number[s->arg] = s->value;
        break;
    case FLAG:
        c->flag[s->arg] = s->value != 0;
        break;
    case EPS:
        memcpy(&c->eps, s->data, sizeof c->eps);
        break;
    case RESTORE:
        c->restore = s->value == 0 ? NULL : s->data != NULL ? s->data : restore;
        c->restore_count = (uint64_t)s->value;
        break;
    }
}

#define P161001 ACLNN_ERR_PARAM_NULLPTR
#define P161002 ACLNN_ERR_PARAM_INVALID
#define P561002 ACLNN_ERR_INNER_TILING_ERROR
#define P561103 ACLNN_ERR_INNER_NULLPTR
#define HUGE_EXTENT (INT64_C(1) << 62)

static const double minus = -1e-9, nan_eps = NAN, inf_eps = INFINITY, beyond = 1e300;
static const int32_t below[8] = {0, 5, 3, 6, -2, 4, 2, 7}, behind[8] = {0, 5, 3, 8, 1, 4, 2, 7};
static const int32_t fewer[8] = {0, 5, 3, -1, 1, 4, 2, 7};
static const int32_t no_token[6] = {0, 1, 0, 4, 2, 3}, minus_token[6] = {0, 1, -1, 1, 2, 3};
static const int32_t twice[6] = {0, 2, 2, 3, 4, 5}, outside[6] = {0, 2, 1, 6, 4, 5};
static const int64_t other_hidden[2] = {4, 3}, minus_tokens[2] = {-4, 2}, five_tokens[2] = {5, 2};

#define PERMUTE(name, want, ...) \
    { \
        "permute: " name, good_permute, {__VA_ARGS__}, want \
    }
#define UNPERMUTE(name, want, ...) \
    { \
        "unpermute: " name, good_unpermute, {__VA_ARGS__}, want \
    }
#define PADDED(name, want, ...) \
    { \
        "padded unpermute: " name, padded_unpermute, {__VA_ARGS__}, want \
    }
#define PGRAD(name, want, ...) \
    { \
        "permute grad: " name, good_permute_grad, {__VA_ARGS__}, want \
    }
#define UGRAD(name, want, ...) \
    { \
        "unpermute grad: " name, good_unpermute_grad, {__VA_ARGS__}, want \
    }
#define PADDED_UGRAD(name, want, ...) \
    { \
        "padded unpermute grad: " name, padded_unpermute_grad, {__VA_ARGS__}, want \
    }
#define SAMPLE(name, want, ...) \
    { \
        "sample: " name, good_sample, {__VA_ARGS__}, want \
    }
#define SAMPLE2(name, want, ...) \
    { \
        "sample v2: " name, good_sample_v2, {__VA_ARGS__}, want \
    }
#define LISTS(name, want, ...) \
    { \
        "lists: " name, good_lists, {__VA_ARGS__}, want \
    }

#define NOTHING_WRONG \
    { \
        NOTHING, 0, 0, NULL \
    }
#define NO(arg) \
    { \
        MISSING, arg, 0, NULL \
    }
#define SET(deed, arg, value) \
    { \
        deed, arg, value, NULL \
    }
#define WITH(deed, arg, data) \
    { \
        deed, arg, 0, data \
    }

static const struct rejected rejections[] = {
    PERMUTE("nothing", 0, NOTHING_WRONG),
    PERMUTE("no tokens", P161001, NO(PERMUTE_TOKENS)),
    PERMUTE("no map", P161001, NO(PERMUTE_MAP)),
    PERMUTE("no rows out", P161001, NO(PERMUTE_OUT)),
    PERMUTE("no indices out", P161001, NO(PERMUTE_INDICES)),
    PERMUTE("tokens without data", P161001, SET(NO_DATA, PERMUTE_TOKENS, 1)),
    PERMUTE("rows out without data", P161001, SET(NO_DATA, PERMUTE_OUT, 1)),
    PERMUTE("probs without their output", P161001, NO(PERMUTE_PROBS_OUT)),
    PERMUTE("the output without probs", P161001, NO(PERMUTE_PROBS)),
    PERMUTE("int32 tokens", P161002, SET(TYPE, PERMUTE_TOKENS, ACL_INT32)),
    PERMUTE("double tokens", P161002, SET(TYPE, PERMUTE_TOKENS, ACL_DOUBLE)),
    PERMUTE("tokens of no type", P161002, SET(TYPE, PERMUTE_TOKENS, ACL_DT_UNDEFINED)),
    PERMUTE("tokens of a type beyond the list", P161002, SET(TYPE, PERMUTE_TOKENS, ACL_COMPLEX32)),
    PERMUTE("int32 map", P161002, SET(TYPE, PERMUTE_MAP, ACL_INT32)),
    PERMUTE("uint8 map", P161002, SET(TYPE, PERMUTE_MAP, ACL_UINT8)),
    PERMUTE("f16 probs of f32 tokens", P161002, SET(TYPE, PERMUTE_PROBS, ACL_FLOAT16),
            SET(TYPE, PERMUTE_PROBS_OUT, ACL_FLOAT16)),
    PERMUTE("f32 probs of f16 tokens", P161002, SET(TYPE, PERMUTE_TOKENS, ACL_FLOAT16),
            SET(TYPE, PERMUTE_OUT, ACL_FLOAT16)),
    PERMUTE("bf16 probs of f16 tokens", P161002, SET(TYPE, PERMUTE_PROBS, ACL_BF16)),
    PERMUTE("rows out of another type", P161002, SET(TYPE, PERMUTE_OUT, ACL_BF16)),
    PERMUTE("probs out of another type", P161002, SET(TYPE, PERMUTE_PROBS_OUT, ACL_FLOAT16)),
    PERMUTE("int64 indices", P161002, SET(TYPE, PERMUTE_INDICES, ACL_INT64)),
    PERMUTE("a private format", P161002, SET(FORMAT, PERMUTE_TOKENS, ACL_FORMAT_FRACTAL_NZ)),
    PERMUTE("tokens of rank 1", P161002, SET(RANK, PERMUTE_TOKENS, 1)),
    PERMUTE("tokens of rank 3", P161002, SET(RANK, PERMUTE_TOKENS, 3)),
    PERMUTE("map of rank 1", P161002, SET(RANK, PERMUTE_MAP, 1)),
    PERMUTE("probs of rank 1", P161002, SET(RANK, PERMUTE_PROBS, 1)),
    PERMUTE("rows out of rank 1", P161002, SET(RANK, PERMUTE_OUT, 1)),
    PERMUTE("indices of rank 2", P161002, SET(RANK, PERMUTE_INDICES, 2)),
    PERMUTE("negative extent", P161002, SET(EXTENT, PERMUTE_TOKENS, -4)),
    PERMUTE("negative stride", P161002, SET(STRIDE, PERMUTE_TOKENS, -2)),
    PERMUTE("negative offset", P161002, SET(OFFSET, PERMUTE_TOKENS, -1)),
    PERMUTE("extent beyond all memory", P161002, SET(EXTENT, PERMUTE_TOKENS, HUGE_EXTENT)),
    PERMUTE("rows out that meet", P161002, SET(STRIDE, PERMUTE_OUT, 1)),
    PERMUTE("rows out that are one", P161002, SET(STRIDE, PERMUTE_OUT, 0)),
    PERMUTE("map of other tokens", P161002, SET(EXTENT, PERMUTE_MAP, 3)),
    PERMUTE("probs of other experts", P161002, SET(COLUMNS, PERMUTE_PROBS, 2)),
    PERMUTE("probs of other tokens", P161002, SET(EXTENT, PERMUTE_PROBS, 3)),
    PERMUTE("fewer than no rows", P161002, SET(NUMBER, 0, -1)),
    PERMUTE("more rows than pairs", P161002, SET(NUMBER, 0, 13)),
    PERMUTE("too few rows out", P161002, SET(EXTENT, PERMUTE_OUT, 7)),
    PERMUTE("too many rows out", P161002, SET(EXTENT, PERMUTE_OUT, 9)),
    PERMUTE("narrow rows out", P161002, SET(COLUMNS, PERMUTE_OUT, 1)),
    PERMUTE("too few probs out", P161002, SET(EXTENT, PERMUTE_PROBS_OUT, 7)),
    PERMUTE("too few indices", P161002, SET(EXTENT, PERMUTE_INDICES, 7)),
    PERMUTE("a token with three experts", P161002, WITH(DATA, PERMUTE_MAP, crowded)),

    UNPERMUTE("nothing", 0, NOTHING_WRONG),
    UNPERMUTE("no rows", P161001, NO(UNPERMUTE_ROWS)),
    UNPERMUTE("no indices", P161001, NO(UNPERMUTE_INDICES)),
    UNPERMUTE("no tokens out", P161001, NO(UNPERMUTE_OUT)),
    UNPERMUTE("kept probs without data", P161001, SET(NO_DATA, UNPERMUTE_KEPT_PROBS, 1)),
    UNPERMUTE("neither probs nor restore shape", P161001, NO(UNPERMUTE_PROBS), SET(RESTORE, 0, 0)),
    UNPERMUTE("packed probs without map", P161001, NO(UNPERMUTE_MAP)),
    UNPERMUTE("int8 rows", P161002, SET(TYPE, UNPERMUTE_ROWS, ACL_INT8)),
    UNPERMUTE("int64 indices", P161002, SET(TYPE, UNPERMUTE_INDICES, ACL_INT64)),
    UNPERMUTE("int32 map", P161002, SET(TYPE, UNPERMUTE_MAP, ACL_INT32)),
    UNPERMUTE("bf16 probs", P161002, SET(TYPE, UNPERMUTE_PROBS, ACL_BF16)),
    UNPERMUTE("tokens out of another type", P161002, SET(TYPE, UNPERMUTE_OUT, ACL_BF16)),
    UNPERMUTE("float outIndex", P161002, SET(TYPE, UNPERMUTE_OUT_INDEX, ACL_FLOAT)),
    UNPERMUTE("float permuteTokenId", P161002, SET(TYPE, UNPERMUTE_TOKEN_ID, ACL_FLOAT)),
    UNPERMUTE("kept probs of another type", P161002, SET(TYPE, UNPERMUTE_KEPT_PROBS, ACL_FLOAT16)),
    UNPERMUTE("rows of rank 1", P161002, SET(RANK, UNPERMUTE_ROWS, 1)),
    UNPERMUTE("indices of rank 2", P161002, SET(RANK, UNPERMUTE_INDICES, 2)),
    UNPERMUTE("fewer indices than rows", P161002, SET(EXTENT, UNPERMUTE_INDICES, 4)),
    UNPERMUTE("rows that tokens do not divide", P161002, SET(EXTENT, UNPERMUTE_PROBS, 3),
              SET(EXTENT, UNPERMUTE_MAP, 3)),
    UNPERMUTE("map of other experts", P161002, SET(COLUMNS, UNPERMUTE_MAP, 2)),
    UNPERMUTE("a restore shape of one", P161002, NO(UNPERMUTE_PROBS), SET(RESTORE, 0, 1)),
    UNPERMUTE("a restore shape of three", P161002, NO(UNPERMUTE_PROBS), SET(RESTORE, 0, 3)),
    UNPERMUTE("a restore shape of other rows", P161002, NO(UNPERMUTE_PROBS), {RESTORE, 0, 2, other_hidden}),
    UNPERMUTE("a negative restore shape", P161002, NO(UNPERMUTE_PROBS), {RESTORE, 0, 2, minus_tokens}),
    UNPERMUTE("a restore shape that does not divide", P161002, NO(UNPERMUTE_PROBS),
              {RESTORE, 0, 2, five_tokens}),
    UNPERMUTE("a wrong restore shape beside probs", 0, {RESTORE, 0, 2, other_hidden}),
    UNPERMUTE("too few tokens out", P161002, SET(EXTENT, UNPERMUTE_OUT, 3)),
    UNPERMUTE("too few of outIndex", P161002, SET(EXTENT, UNPERMUTE_OUT_INDEX, 7)),
    UNPERMUTE("too few of permuteTokenId", P161002, SET(EXTENT, UNPERMUTE_TOKEN_ID, 7)),
    UNPERMUTE("too many kept probs", P161002, SET(EXTENT, UNPERMUTE_KEPT_PROBS, 9)),
    UNPERMUTE("an index below -1", P161002, WITH(DATA, UNPERMUTE_INDICES, below)),
    UNPERMUTE("an index behind the rows", P161002, WITH(DATA, UNPERMUTE_INDICES, behind)),
    UNPERMUTE("fewer slots than experts", P161002, WITH(DATA, UNPERMUTE_INDICES, fewer)),
    UNPERMUTE("a token with three experts", P161002, WITH(DATA, UNPERMUTE_MAP, crowded)),
    PADDED("nothing", 0, NOTHING_WRONG),
    PADDED("no map", 0, NO(UNPERMUTE_MAP)),
    PADDED("neither probs nor restore shape", P161001, NO(UNPERMUTE_PROBS), SET(RESTORE, 0, 0)),
    PADDED("rows that experts do not divide", P161002, SET(COLUMNS, UNPERMUTE_PROBS, 4),
           SET(COLUMNS, UNPERMUTE_MAP, 4)),
    PADDED("a token that is none", P161002, WITH(DATA, UNPERMUTE_INDICES, no_token)),
    PADDED("a token of -1", P161002, WITH(DATA, UNPERMUTE_INDICES, minus_token)),

    PGRAD("nothing", 0, NOTHING_WRONG),
    PGRAD("no experts", P161002, SET(NUMBER, 0, 0)),
    PGRAD("fewer than no tokens", P161002, SET(NUMBER, 1, -4)),
    PGRAD("no experts before no rows", P161002, SET(NUMBER, 0, 0), NO(PGRAD_ROWS)),
    PGRAD("no rows", P161001, NO(PGRAD_ROWS)),
    PGRAD("no indices", P161001, NO(PGRAD_INDICES)),
    PGRAD("no tokens out", P161001, NO(PGRAD_OUT)),
    PGRAD("probs without map", P161001, NO(PGRAD_MAP)),
    PGRAD("padded probs without map", P161001, NO(PGRAD_MAP), SET(FLAG, 0, 1)),
    PGRAD("neither probs nor map", 0, NO(PGRAD_MAP), NO(PGRAD_PROBS)),
    PGRAD("no place for probs", 0, NO(PGRAD_PROBS_OUT)),
    PGRAD("int32 rows", P161002, SET(TYPE, PGRAD_ROWS, ACL_INT32)),
    PGRAD("f16 probs", P161002, SET(TYPE, PGRAD_PROBS, ACL_FLOAT16)),
    PGRAD("int64 indices", P161002, SET(TYPE, PGRAD_INDICES, ACL_INT64)),
    PGRAD("int64 map", P161002, SET(TYPE, PGRAD_MAP, ACL_INT64)),
    PGRAD("tokens out of another type", P161002, SET(TYPE, PGRAD_OUT, ACL_BF16)),
    PGRAD("probs out of another type", P161002, SET(TYPE, PGRAD_PROBS_OUT, ACL_BF16)),
    PGRAD("rows of rank 1", P161002, SET(RANK, PGRAD_ROWS, 1)),
    PGRAD("probs of rank 2", P161002, SET(RANK, PGRAD_PROBS, 2)),
    PGRAD("fewer indices than rows", P161002, SET(EXTENT, PGRAD_INDICES, 4)),
    PGRAD("a map of other tokens", P161002, SET(EXTENT, PGRAD_MAP, 3)),
    PGRAD("rows that tokens do not divide", P161002, SET(NUMBER, 1, 3), SET(EXTENT, PGRAD_MAP, 3),
          SET(EXTENT, PGRAD_OUT, 3)),
    PGRAD("too few tokens out", P561103, SET(EXTENT, PGRAD_OUT, 3)),
    PGRAD("too few probs out", P561103, SET(EXTENT, PGRAD_PROBS_OUT, 3)),
    PGRAD("an index below -1", P161002, WITH(DATA, PGRAD_INDICES, below)),
    PGRAD("an index behind the rows", P161002, WITH(DATA, PGRAD_INDICES, behind)),
    PGRAD("fewer slots than experts", P161002, WITH(DATA, PGRAD_INDICES, fewer)),

    UGRAD("nothing", 0, NOTHING_WRONG),
    UGRAD("no tokens", P161001, NO(UGRAD_TOKENS)),
    UGRAD("no outIndex", P161001, NO(UGRAD_OUT_INDEX)),
    UGRAD("no permuteTokenId", P161001, NO(UGRAD_TOKEN_ID)),
    UGRAD("no rows out", P161001, NO(UGRAD_OUT)),
    UGRAD("probs without map", P561002, NO(UGRAD_MAP)),
    UGRAD("probs without rows", P561002, NO(UGRAD_ROWS)),
    UGRAD("no probs", 0, NO(UGRAD_PROBS)),
    UGRAD("only what is needed", 0, NO(UGRAD_PROBS), NO(UGRAD_MAP), NO(UGRAD_ROWS)),
    UGRAD("no place for probs", 0, NO(UGRAD_PROBS_OUT)),
    UGRAD("int32 tokens", P161002, SET(TYPE, UGRAD_TOKENS, ACL_INT32)),
    UGRAD("float outIndex", P161002, SET(TYPE, UGRAD_OUT_INDEX, ACL_FLOAT)),
    UGRAD("int64 permuteTokenId", P161002, SET(TYPE, UGRAD_TOKEN_ID, ACL_INT64)),
    UGRAD("int32 map", P161002, SET(TYPE, UGRAD_MAP, ACL_INT32)),
    UGRAD("rows of another type", P161002, SET(TYPE, UGRAD_ROWS, ACL_BF16)),
    UGRAD("f16 probs", P161002, SET(TYPE, UGRAD_PROBS, ACL_FLOAT16)),
    UGRAD("rows out of another type", P161002, SET(TYPE, UGRAD_OUT, ACL_BF16)),
    UGRAD("probs out of another type", P161002, SET(TYPE, UGRAD_PROBS_OUT, ACL_BF16)),
    UGRAD("tokens of rank 1", P161002, SET(RANK, UGRAD_TOKENS, 1)),
    UGRAD("outIndex of rank 2", P161002, SET(RANK, UGRAD_OUT_INDEX, 2)),
    UGRAD("a map of other tokens", P161002, SET(EXTENT, UGRAD_MAP, 3)),
    UGRAD("probs of other experts", P161002, SET(COLUMNS, UGRAD_PROBS, 2)),
    UGRAD("fewer rows than indices", P161002, SET(EXTENT, UGRAD_ROWS, 7)),
    UGRAD("too few of permuteTokenId", P161002, SET(EXTENT, UGRAD_TOKEN_ID, 7)),
    UGRAD("too few rows out", P161002, SET(EXTENT, UGRAD_OUT, 7)),
    UGRAD("too few probs out", P161002, SET(EXTENT, UGRAD_PROBS_OUT, 3)),
    UGRAD("an index below -1", P161002, WITH(DATA, UGRAD_OUT_INDEX, below)),
    UGRAD("an index behind the rows", P161002, WITH(DATA, UGRAD_OUT_INDEX, behind)),
    UGRAD("fewer slots than experts", P161002, WITH(DATA, UGRAD_OUT_INDEX, fewer)),
    UGRAD("wrong numbers nobody reads", 0, WITH(DATA, UGRAD_TOKEN_ID, behind)),
    PADDED_UGRAD("nothing", 0, NOTHING_WRONG),
    PADDED_UGRAD("a place named twice", P161002, WITH(DATA, UGRAD_OUT_INDEX, twice)),
    PADDED_UGRAD("a place outside", P161002, WITH(DATA, UGRAD_OUT_INDEX, outside)),
    PADDED_UGRAD("a token that is none", P161002, WITH(DATA, UGRAD_TOKEN_ID, no_token)),
    PADDED_UGRAD("a token of -1", P161002, WITH(DATA, UGRAD_TOKEN_ID, minus_token)),

    SAMPLE("nothing", 0, NOTHING_WRONG),
    SAMPLE("no logits", P161001, NO(SAMPLE_LOGITS)),
    SAMPLE("no topK", P161001, NO(SAMPLE_K)),
    SAMPLE("no topP", P161001, NO(SAMPLE_P)),
    SAMPLE("no logitsSelectIdx", P161001, NO(SAMPLE_TOKEN)),
    SAMPLE("no logitsTopKPSelect", P161001, NO(SAMPLE_MASKED)),
    SAMPLE("no logitsTopKPSelect, not asked for", 0, NO(SAMPLE_MASKED), SET(FLAG, 0, 0)),
    SAMPLE("a wrong logitsTopKPSelect, not asked for", 0, SET(TYPE, SAMPLE_MASKED, ACL_INT8),
           SET(FLAG, 0, 0)),
    SAMPLE("no q", 0, NO(SAMPLE_Q)),
    SAMPLE("logits without data", P161001, SET(NO_DATA, SAMPLE_LOGITS, 1)),
    SAMPLE("f32 logits", P161002, SET(TYPE, SAMPLE_LOGITS, ACL_FLOAT), SET(TYPE, SAMPLE_P, ACL_FLOAT)),
    SAMPLE("int64 topK", P161002, SET(TYPE, SAMPLE_K, ACL_INT64)),
    SAMPLE("f32 topP of f16 logits", P161002, SET(TYPE, SAMPLE_P, ACL_FLOAT)),
    SAMPLE("bf16 topP of f16 logits", P161002, SET(TYPE, SAMPLE_P, ACL_BF16)),
    SAMPLE("f16 q", P161002, SET(TYPE, SAMPLE_Q, ACL_FLOAT16)),
    SAMPLE("int32 index", P161002, SET(TYPE, SAMPLE_TOKEN, ACL_INT32)),
    SAMPLE("f16 masked logits", P161002, SET(TYPE, SAMPLE_MASKED, ACL_FLOAT16)),
    SAMPLE("logits of rank 1", P161002, SET(RANK, SAMPLE_LOGITS, 1)),
    SAMPLE("logits of rank 3", P161002, SET(RANK, SAMPLE_LOGITS, 3)),
    SAMPLE("topK as a column", 0, SET(RANK, SAMPLE_K, 2)),
    SAMPLE("topP as a column", 0, SET(RANK, SAMPLE_P, 2)),
    SAMPLE("topK for one row", P161002, SET(EXTENT, SAMPLE_K, 1)),
    SAMPLE("topP for three rows", P161002, SET(EXTENT, SAMPLE_P, 3)),
    SAMPLE("q of rank 1", P161002, SET(RANK, SAMPLE_Q, 1)),
    SAMPLE("q of other tokens", P161002, SET(COLUMNS, SAMPLE_Q, 7)),
    SAMPLE("indices for three rows", P161002, SET(EXTENT, SAMPLE_TOKEN, 3)),
    SAMPLE("masked logits of other tokens", P161002, SET(COLUMNS, SAMPLE_MASKED, 7)),
    SAMPLE("no rows", P161002, SET(EXTENT, SAMPLE_LOGITS, 0)),
    SAMPLE("no tokens", P161002, SET(COLUMNS, SAMPLE_LOGITS, 0)),
    SAMPLE("eps below 0", P161002, WITH(EPS, 0, &minus)),
    SAMPLE("eps NaN", P161002, WITH(EPS, 0, &nan_eps)),
    SAMPLE("eps infinite", P161002, WITH(EPS, 0, &inf_eps)),
    SAMPLE("eps beyond float", P161002, WITH(EPS, 0, &beyond)),
    SAMPLE("negative stride", P161002, SET(STRIDE, SAMPLE_K, -1)),

    SAMPLE2("nothing", 0, NOTHING_WRONG),
    SAMPLE2("no minPs", 0, NO(SAMPLE_MINP)),
    SAMPLE2("no lists, not asked for", 0, NO(SAMPLE_IDX), NO(SAMPLE_LIST)),
    SAMPLE2("no logitsSelectIdx", P161001, NO(SAMPLE_TOKEN)),
    SAMPLE2("double logits", P161002, SET(TYPE, SAMPLE_LOGITS, ACL_DOUBLE)),
    SAMPLE2("f16 minPs", P161002, SET(TYPE, SAMPLE_MINP, ACL_FLOAT16)),
    SAMPLE2("minPs for three rows", P161002, SET(EXTENT, SAMPLE_MINP, 3)),
    SAMPLE2("q of rank 1", P561002, SET(RANK, SAMPLE_Q, 1)),
    SAMPLE2("q of rank 3", P561002, SET(RANK, SAMPLE_Q, 3)),
    SAMPLE2("q of other tokens", P161002, SET(COLUMNS, SAMPLE_Q, 7)),
    SAMPLE2("ksMax 0", P161002, SET(NUMBER, 1, 0)),
    SAMPLE2("ksMax below 0", P161002, SET(NUMBER, 1, -8)),
    SAMPLE2("q beside lists", P561002, SET(FLAG, 2, 1)),
    LISTS("nothing", 0, NOTHING_WRONG),
    LISTS("no logitsSelectIdx", 0, NO(SAMPLE_TOKEN)),
    LISTS("no logitsIdx", P161001, NO(SAMPLE_IDX)),
    LISTS("no logitsSortMasked", P161001, NO(SAMPLE_LIST)),
    LISTS("int32 logitsIdx", P161002, SET(TYPE, SAMPLE_IDX, ACL_INT32)),
    LISTS("f16 logitsSortMasked", P161002, SET(TYPE, SAMPLE_LIST, ACL_FLOAT16)),
    LISTS("logitsIdx of other tokens", P161002, SET(COLUMNS, SAMPLE_IDX, 7)),
    LISTS("logitsSortMasked of other rows", P161002, SET(EXTENT, SAMPLE_LIST, 3)),

    /* Two faults of different numbers: the earlier step wins. */
    PERMUTE("null before type", P161001, SET(TYPE, PERMUTE_TOKENS, ACL_INT32), NO(PERMUTE_INDICES)),
    UGRAD("null before type, tiling", P561002, SET(TYPE, UGRAD_TOKENS, ACL_INT32), NO(UGRAD_MAP)),
    SAMPLE2("type before q's rank", P161002, SET(TYPE, SAMPLE_K, ACL_INT64), SET(RANK, SAMPLE_Q, 1)),
    SAMPLE2("q's rank before ksMax", P561002, SET(NUMBER, 1, 0), SET(RANK, SAMPLE_Q, 1)),
    SAMPLE2("shape before q beside lists", P161002, SET(EXTENT, SAMPLE_P, 3), SET(FLAG, 2, 1)),
    SAMPLE2("ksMax before q beside lists", P161002, SET(NUMBER, 1, 0), SET(FLAG, 2, 1)),
};

static void reject(void **state)
{
    const struct rejected *r = *state;
    struct call c = r->make();
    for (size_t i = 0; i < COUNT_OF(r->spoil); i++)
        apply(&c, &r->spoil[i]);
    call_make(&c);
    expect_aclnn(call_run(&c), r->want);
    for (int i = 0; i < c.count; i++)
        arg_expect_untouched(&c.args[i], i < c.first_output || r->want != 0, r->name);
    call_free(&c);
}

/* ---- Limits, validated without memory ------------------------------------------------------------------- */

/* Sizes nobody has memory for: the first phase reads no data, so each tensor gets an address far from the others. */
static void place(struct call *c, int i, aclDataType type, int rank, int64_t rows, int64_t columns)
{
    const int64_t dims[2] = {rows, columns};
    void *far_away = (void *)((uintptr_t)(i + 1) << 44);
    c->args[i].tensor =
        aclCreateTensor(dims, (uint64_t)rank, type, NULL, 0, ACL_FORMAT_ND, dims, (uint64_t)rank, far_away);
    assert_non_null(c->args[i].tensor);
}

static aclnnStatus only_ask(struct call *c)
{
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    const aclnnStatus st = c->ask(c, &size, &executor);
    if (st == ACLNN_SUCCESS)
        assert_int_equal(aclDestroyAclOpExecutor(executor), 0);
    call_free(c);
    return st;
}

/* T tokens, E experts, N rows asked for, M given. */
static aclnnStatus ask_permute(int64_t t, int64_t e, int64_t n, int64_t m, bool pad)
{
    struct call c = call_permute();
    place(&c, PERMUTE_TOKENS, ACL_FLOAT, 2, t, 2);
    place(&c, PERMUTE_MAP, ACL_BOOL, 2, t, e);
    place(&c, PERMUTE_OUT, ACL_FLOAT, 2, m, 2);
    place(&c, PERMUTE_INDICES, ACL_INT32, 1, m, 0);
    c.number[0] = n;
    c.flag[0] = pad;
    return only_ask(&c);
}

static void limits_of_permute(void **state)
{
    (void)state;
    const int64_t limit = 16777215, half = 8388608;
    expect_aclnn(ask_permute(limit - 1, 1, limit - 1, limit - 1, false), 0);
    expect_aclnn(ask_permute(limit, 1, 0, 0, false), P161002);
    expect_aclnn(ask_permute(limit, 1, 0, 0, true), P161002);
    expect_aclnn(ask_permute(1, limit - 1, 1, 1, false), 0);
    expect_aclnn(ask_permute(1, limit, 1, 1, false), P161002);
    expect_aclnn(ask_permute(1, limit, 1, 1, true), P161002);
    expect_aclnn(ask_permute(half - 1, 2, limit - 1, limit - 1, false), 0);
    expect_aclnn(ask_permute(half, 2, 2 * half, 2 * half, false), P161002); /* K*T */
    expect_aclnn(ask_permute(half, 2, 2 * half, 2 * half, true), 0);        /* padded: any number of rows */
    expect_aclnn(ask_permute(1, 600, 512, 512, false), 0);
    expect_aclnn(ask_permute(1, 600, 513, 513, false), P561103);
    expect_aclnn(ask_permute(1, 600, 513, 77, false), P561103); /* before the shapes of outputs */
    expect_aclnn(ask_permute(600, 600, 600, 600, true), 0);
}

static void limits_of_unpermute(void **state)
{
    (void)state;
    for (int64_t m = 512; m <= 513; m++) {
        const int64_t shape[2] = {1, 2};
        struct call c = call_unpermute();
        place(&c, UNPERMUTE_ROWS, ACL_FLOAT, 2, m, 2);
        place(&c, UNPERMUTE_INDICES, ACL_INT32, 1, m, 0);
        place(&c, UNPERMUTE_OUT, ACL_FLOAT, 2, 1, 2);
        c.restore = shape;
        c.restore_count = 2;
        expect_aclnn(only_ask(&c), m == 512 ? 0 : P561103);
        struct call g = call_permute_grad();
        place(&g, PGRAD_ROWS, ACL_FLOAT, 2, m, 2);
        place(&g, PGRAD_INDICES, ACL_INT32, 1, m, 0);
        place(&g, PGRAD_OUT, ACL_FLOAT, 2, 1, 2);
        g.number[0] = 600;
        g.number[1] = 1;
        expect_aclnn(only_ask(&g), m == 512 ? 0 : P561103);
        struct call u = call_unpermute_grad();
        place(&u, UGRAD_TOKENS, ACL_FLOAT, 2, 1, 2);
        place(&u, UGRAD_OUT_INDEX, ACL_INT32, 1, m, 0);
        place(&u, UGRAD_TOKEN_ID, ACL_INT32, 1, m, 0);
        place(&u, UGRAD_OUT, ACL_FLOAT, 2, m, 2);
        expect_aclnn(only_ask(&u), m == 512 ? 0 : P561103);
    }
}

static void limits_of_sample(void **state)
{
    (void)state;
    for (int64_t over = 0; over < 2; over++)
        for (int v2 = 0; v2 < 2; v2++)
            for (int bad_eps = 0; bad_eps < 2; bad_eps++) {
                struct call c = v2 ? call_sample_v2() : call_sample();
                place(&c, SAMPLE_LOGITS, ACL_BF16, 2, 3, (1 << 20) + over);
                place(&c, SAMPLE_K, ACL_INT32, 1, 3, 0);
                place(&c, SAMPLE_P, ACL_BF16, 1, 3, 0);
                place(&c, SAMPLE_TOKEN, ACL_INT64, 1, 3, 0);
                c.eps = bad_eps ? -1 : 0;
                /* The size comes before the value. */
                expect_aclnn(only_ask(&c), over ? P561002 : bad_eps ? P161002 : 0);
            }
}

/* The vendor copies the gradient into its output at the end: an output of another shape is a failure inside the
   operator. Rows without elements return before that, and nothing is written. */
static void shapes_of_permute_grad(void **state)
{
    (void)state;
    for (int64_t hidden = 0; hidden < 5; hidden += 4)
        for (int type = 0; type < 2; type++)
            for (int padded = 0; padded < 2; padded++) {
                struct call g = call_permute_grad();
                place(&g, PGRAD_ROWS, type ? ACL_FLOAT16 : ACL_FLOAT, 2, 16, hidden);
                place(&g, PGRAD_PROBS, type ? ACL_FLOAT16 : ACL_FLOAT, 1, 16, 0);
                place(&g, PGRAD_INDICES, ACL_INT32, 1, 16, 0);
                place(&g, PGRAD_MAP, ACL_INT8, 2, 8, 8);
                place(&g, PGRAD_OUT, type ? ACL_FLOAT16 : ACL_FLOAT, 2, 8, hidden);
                place(&g, PGRAD_PROBS_OUT, type ? ACL_FLOAT16 : ACL_FLOAT, 2, 8, 2); /* not 8 experts */
                g.number[0] = g.number[1] = 8;
                g.flag[0] = padded;
                expect_aclnn(only_ask(&g), hidden == 0 ? 0 : P561103);
            }
    struct call g = good_permute_grad();
    g.args[PGRAD_ROWS].dims[1] = g.args[PGRAD_OUT].dims[1] = 0;
    g.args[PGRAD_PROBS_OUT].dims[1] = 2;
    call_make(&g);
    expect_aclnn(call_run(&g), 0);
    arg_expect_untouched(&g.args[PGRAD_PROBS_OUT], true, g.op);
    call_free(&g);
}

/* ---- Overlap ----------------------------------------------------------------------------------------- */

/* Every pair of an output and another tensor, one's memory begun inside the other's. */
static void overlap(void **state)
{
    (void)state;
    struct call (*const makers[])(void) = {good_permute,      good_unpermute,      padded_unpermute,
                                           good_permute_grad, good_unpermute_grad, good_sample,
                                           good_sample_v2,    good_lists};
    for (size_t m = 0; m < COUNT_OF(makers); m++) {
        const struct call model = makers[m]();
        int pairs = 0;
        for (int i = model.first_output; i < model.count; i++)
            for (int j = 0; j < model.count; j++) {
                /* Outputs that are not asked for do not count. */
                const bool lists = model.flag[2],
                           idle = model.count > SAMPLE_IDX && (lists ? i == SAMPLE_TOKEN || j == SAMPLE_TOKEN
                                                                     : i >= SAMPLE_IDX || j >= SAMPLE_IDX);
                if (i == j || model.args[i].rank == 0 || model.args[j].rank == 0 || idle)
                    continue;
                struct call c = model;
                call_make(&c);
                const aclTensor *old = c.args[i].tensor;
                const struct arg *a = &c.args[i], *b = &c.args[j];
                c.args[i].tensor =
                    aclCreateTensor(a->dims, (uint64_t)a->rank, a->type, NULL, 0, ACL_FORMAT_ND, a->dims,
                                    (uint64_t)a->rank, b->mem + b->bytes - 1);
                assert_non_null(c.args[i].tensor);
                expect_aclnn(call_run(&c), P161002);
                assert_int_equal(aclDestroyTensor(old), 0);
                for (int k = 0; k < c.count; k++)
                    arg_expect_untouched(&c.args[k], true, "overlap");
                call_free(&c);
                pairs++;
            }
        assert_true(pairs >= 6);
    }
}

static void no_place_for_the_answer(void **state)
{
    (void)state;
    struct call (*const makers[])(void) = {good_permute,        good_unpermute, good_permute_grad,
                                           good_unpermute_grad, good_sample,    good_sample_v2};
    for (size_t m = 0; m < COUNT_OF(makers); m++) {
        struct call c = makers[m]();
        uint64_t size = 0;
        aclOpExecutor *executor = NULL;
        call_make(&c);
        expect_aclnn(c.ask(&c, NULL, &executor), P161001);
        expect_aclnn(c.ask(&c, &size, NULL), P161001);
        assert_null(executor);
        call_free(&c);
    }
}

static void types_that_are_taken(void **state)
{
    (void)state;
    struct call c = good_permute();
    c.args[PERMUTE_TOKENS] = (struct arg)ARG2(ACL_DOUBLE, 4, 2, NULL);
    call_make(&c);
    assert_int_equal(call_run(&c), 161002);
    assert_string_equal(
        aclGetRecentErrMsg(),
        "aclnnMoeTokenPermuteWithRoutingMap: tokens is DOUBLE (11), want FLOAT, FLOAT16 or BF16");
    call_free(&c);
}

int main(void)
{
    struct test_list list = {0};
    for (size_t i = 0; i < COUNT_OF(rejections); i++)
        test_add(&list, rejections[i].name, reject, (void *)(uintptr_t)&rejections[i]);
    test_add(&list, "types that are taken", types_that_are_taken, NULL);
    test_add(&list, "limits of permute", limits_of_permute, NULL);
    test_add(&list, "limits of unpermute", limits_of_unpermute, NULL);
    test_add(&list, "limits of sample", limits_of_sample, NULL);
    test_add(&list, "shapes of permute grad", shapes_of_permute_grad, NULL);
    test_add(&list, "overlap", overlap, NULL);
    test_add(&list, "no place for the answer", no_place_for_the_answer, NULL);
    return test_run(&list, "aclnn_rejections");
}
