/*
 * moe_unpermute: the weighted sum of each token's rows, of numbers or of codes.
 */
#include "rows.h"

static void make(struct call *c)
{
    sy_moe_unpermute_args *const a = case_args(c);
    const bool weighted = case_flag(c, "probs");
    const sy_row_format *const f = rows_format(c, 4);
    rows_make(c, 0, weighted, f != NULL);
    if (f != NULL) {
        case_in_codes(c, "permuted_tokens", "permuted_scales", f);
        case_out_as(c, "tokens", case_number_type(c, "tokens"), -1, NULL);
    } else
        case_fill_floats(c, case_in(c, "permuted_tokens"));
    if (weighted)
        case_fill_floats(c, case_in(c, "probs"));
    const bool known = weighted || case_field(c, "routing_map")->given;
    a->num_tokens = known && !case_flag(c, "num_tokens") ? 0 : case_get_extent(c, "T");
}

/* Rows as numbers. */
static const void *numbers_of(struct call *c, const sy_row_format *f)
{
    const struct operand *const rows = case_field(c, "permuted_tokens");
    const struct operand *const scales = case_field(c, "permuted_scales");
    const int64_t hidden = rows->shape[1];
    float *const numbers = case_memory(c, (size_t)case_count(rows) * sizeof *numbers);
    if (f == NULL)
        return rows->dense;
    for (int64_t i = 0; i < rows->shape[0]; i++)
        case_dequantize(f, rows->dense + i * hidden,
                        scales->dense + (size_t)(i * scales->shape[1]) * scales->element, hidden,
                        numbers + i * hidden);
    return numbers;
}

static void oracle(struct call *c)
{
    const sy_row_format *const f = ((const sy_moe_unpermute_args *)case_args(c))->row_format;
    const struct operand *const out = case_field(c, "tokens");
    struct rows_case in = rows_of(c, out, "probs", case_field(c, "probs")->given);
    const enum number_type type = in.type;
    struct rows_pairs pairs = rows_pairs(c, &in);
    const int64_t n = case_count(out);
    float *const sums = case_memory(c, (size_t)n * sizeof *sums);
    c->query.rows = in.tokens;
    in.type = f != NULL ? NUMBER_F32 : type;
    if (c->want.status == SY_OK)
        oracle_unpermute(&in, &pairs, numbers_of(c, f), f != NULL ? (unsigned char *)sums : out->want);
    for (int64_t i = 0; f != NULL && c->want.status == SY_OK && i < n; i++)
        case_put_real(out, out->want, i, (double)sums[i]);
    case_note(c, "codes", f != NULL && n > 0 && pairs.count > 0);
    oracle_pairs_free(&pairs);
}

#define CODED "T=3 E=2 K=2 H=256 row_format=fp8_128"
static const struct rejection rejections[] = {
    {"probs,routing_map.shape=[2^31,1] permuted_tokens.shape=[0,1] sorted_indices.shape=[0]", SY_ERR_VALUE,
     "2147483648", "2147483647"},
    {"num_tokens=2^63-1 permuted_tokens.shape=[0,1] sorted_indices.shape=[0] probs,routing_map=-",
     SY_ERR_VALUE, NULL, "2147483647"},
    {"probs,routing_map.shape=[1,2^31] permuted_tokens.shape=[0,1] sorted_indices.shape=[0]", SY_ERR_VALUE,
     "2147483648", "2147483647"},
    {"permuted_tokens.shape=[2^31,1] sorted_indices.shape=[2^31] probs,routing_map.shape=[1,1]", SY_ERR_VALUE,
     "2147483648", "2147483647"},
    {"permuted_tokens.shape=[0,2^31] sorted_indices.shape=[0] probs,routing_map.shape=[1,1]", SY_ERR_VALUE,
     "2147483648", "2147483647"},
    {"permuted_tokens.shape=[0,2^31-1] sorted_indices.shape=[0] probs,routing_map.shape=[2^31-1,0]",
     SY_ERR_OVERFLOW, NULL, "2^63", .blame = "tokens"},
    {"permuted_scales.shape[1]=1", SY_ERR_SHAPE, "[6,1]", "[6,2]", .line = CODED},
    FORMAT_REJECTIONS(CODED),
    {.change = NULL},
};

static const struct rejection ladder[] = {
    {"routing_map.shape[1]=9", SY_ERR_SHAPE},
    {"num_tokens=-1", SY_ERR_VALUE},
    {"tokens.shape[0]=5", SY_ERR_SHAPE},
    {"probs.strides[0]=4", SY_ERR_STRIDE},
    {.change = NULL},
};

const struct op_case case_moe_unpermute = {
    .name = "moe_unpermute",
    .make = make,
    .oracle = oracle,
    .hard = {ROWS_HARD, "codes"},
    .small = "T=6 E=5 K=2 H=7 f32 probs",
    .shapes = {"T=77 E=19 K=4 H=1040 bf16 probs style=1", "T=77 E=300 K=8 H=520 probs",
               "T=77 E=19 K=2 H=2048 f16 probs style=2", "T=33 E=20 K=16 H=264 bf16 style=1",
               "T=9 E=50 K=33 H=64 probs", "T=41 E=6 K=30 H=2056 drop_and_pad probs zero_pad style=1",
               "T=3 E=70 K=3 H=64 drop_and_pad bf16", "T=36 E=12 K=6 H=5120 row_format=mxfp8 probs",
               "T=36 E=12 K=4 H=5120 row_format=fp8_128 tokens=bf16",
               "T=33 E=12 K=9 H=2560 row_format=fp8_128_ue8m0 tokens=f16 probs",
               "T=40 E=20 K=16 H=640 row_format=mxfp8_floor tokens=bf16",
               "T=40 E=12 K=12 H=2560 row_format=int8_token", "T=77 E=19 K=4 H=1043 bf16 probs style=1",
               "T=40 E=20 K=16 H=8197 f16 probs", "T=50 E=20 K=7 H=2057 probs style=2",
               "T=41 E=6 K=30 H=2057 drop_and_pad probs f16"},
    .lines = {"T=2003 E=37 K=4 H=131 probs bf16", "T=61 E=700 K=351 H=31 probs",
              "T=3 E=5 K=3 H=100003 style=1", "T=1501 E=30 K=200 H=131 drop_and_pad probs style=1",
              "T=1501 E=30 K=200 H=131 drop_and_pad f16", "T=20011 E=37 K=4 H=11 probs style=2",
              "T=20011 E=37 K=2000 H=11 drop_and_pad style=2"},
    .rejections = rejections,
    .ladder = ladder,
    .calls = 180,
};
