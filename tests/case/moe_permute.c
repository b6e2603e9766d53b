/*
 * moe_permute: rows of tokens by expert, in both modes, as they are or as codes.
 */
#include "rows.h"

#include "oracle/moe_permute.h"

/* N: as many slots as the fullest token needs, and a rest; one too few; all pairs; any number. */
static int64_t choose_rows(struct call *c, int64_t tokens, int64_t experts, int64_t most)
{
    const int64_t kind = case_pick(c, "rows", 8), pairs = tokens * experts;
    const int64_t rest = case_pick(c, "rest", 2) * case_pick(c, "more", tokens > 0 ? tokens : 1);
    const int64_t n = kind < 4    ? most * tokens + rest
                      : kind == 4 ? (most > 0 ? most - 1 : 0) * tokens
                      : kind == 5 ? pairs
                                  : stream_below(case_stream(c, "rows"), pairs + 1);
    return n < pairs ? n : pairs;
}

static void make(struct call *c)
{
    sy_moe_permute_args *const a = case_args(c);
    const sy_row_format *const f = rows_format(c, 4);
    const bool coded = f != NULL;
    const int64_t tokens = case_size(c, "T", 0, coded ? 8 : 40, coded ? 12 : 90);
    const int64_t experts = case_size(c, "E", 0, coded ? 9 : 12, coded ? 20 : 600);
    const int64_t k = case_size(c, "K", 0, experts < 4 ? experts : 4, experts);
    case_any_scalar(c, "drop_and_pad");
    case_any_scalar(c, "zero_pad");
    a->num_out_tokens = choose_rows(c, tokens, experts, case_route(c, case_in(c, "routing_map"), k));
    if (!coded)
        case_size(c, "H", 0, 70, a->num_out_tokens < 500 ? 1040 : 70);
    if (case_flag(c, "probs"))
        case_fill(c, case_in(c, "probs"));
    if (!coded) {
        case_fill(c, case_in(c, "tokens"));
        return;
    }
    case_fill_groups(c, case_in_as(c, "tokens", case_number_type(c, "tokens"), -1, NULL),
                     f->group > 0 ? f->group : INT32_MAX);
    case_out_codes(c, "permuted_tokens", f->q_type, -1, NULL);
    case_out_codes(c, "permuted_scales", f->scale_type, -1, NULL);
}

static void note(struct call *c, const struct permute_case *in, const struct permute_truth *out)
{
    const bool ok = out->bad_token < 0;
    case_note(c, "rejected", !ok);
    case_note(c, "no rows", out->rows == 0);
    case_note(c, "all pairs", in->out_tokens == in->tokens * in->experts && out->rows > 0);
    case_note(c, "a rest", out->rows < in->out_tokens && out->rows > 0);
    case_note(c, "many experts", in->experts > 256 && ok && out->rows > 0);
    case_note(c, "every slot used", !in->capacity && ok && out->pairs == out->rows && out->rows > 0);
    case_note(c, "padding as zeros", in->capacity && in->zero_pad && out->rows > 0);
    for (int64_t e = 0; e < in->experts; e++) {
        case_note(c, "empty expert", out->counts[e] == 0);
        case_note(c, "overfull expert", in->capacity && out->rows > 0 && out->counts[e] > out->slots);
        case_note(c, "short expert", in->capacity && out->counts[e] < out->slots);
    }
    for (int64_t i = 0; ok && i < out->rows; i++)
        case_note(c, "unused slot", !in->capacity && out->indices[i] == -1);
}

/* Codes are rows like others, and so are their scales. */
static void expect_scales(struct call *c, struct permute_case *in, const sy_row_format *f)
{
    struct permute_case of = *in;
    struct permute_truth out;
    of.hidden = case_get_extent(c, "G");
    of.token_bytes = f->scale_type.bits / 8;
    rows_codes(c, f, &in->x, &of.x);
    in->token_bytes = 1;
    oracle_moe_permute(&of, &out);
    if (out.bad_token < 0)
        case_expect(c, "permuted_scales", out.x);
    case_note(c, "codes", out.rows > 0 && in->hidden > 0);
    oracle_moe_permute_free(&out);
}

static void oracle(struct call *c)
{
    const sy_moe_permute_args *const a = case_args(c);
    const struct operand *const x = case_field(c, "tokens"), *const map = case_field(c, "routing_map"),
                                *const probs = case_field(c, "probs");
    struct permute_case in = {map->shape[0],   map->shape[1], x->shape[1], a->num_out_tokens,
                              a->drop_and_pad, a->zero_pad,   x->element,  probs->given ? probs->element : 0,
                              x->dense,        map->dense,    probs->dense};
    struct permute_truth out;
    if (a->row_format != NULL)
        expect_scales(c, &in, a->row_format);
    oracle_moe_permute(&in, &out);
    c->query.rows = out.rows;
    c->query.slots = out.slots;
    note(c, &in, &out);
    if (out.bad_token >= 0)
        c->want = (sy_fault){SY_ERR_ROUTING, SY_FAULT_ROW_OVERFULL, "routing_map", -1,
                             out.bad_token,  out.bad_count,         out.slots};
    else {
        case_expect(c, "permuted_tokens", out.x);
        case_expect(c, "sorted_indices", out.indices);
        case_expect(c, "permuted_probs", out.probs);
        case_expect(c, "expert_counts", out.counts);
        case_expect(c, "expert_offsets", out.offsets);
    }
    oracle_moe_permute_free(&out);
}

#define CODED "T=3 E=2 K=2 H=256 row_format=fp8_128"
static const struct rejection rejections[] = {
    {"tokens.shape=[2^31,1] routing_map.shape=[2^31,1] num_out_tokens=0", SY_ERR_VALUE, "2147483648",
     "2147483647"},
    {"routing_map.shape=[1,2^31] tokens.shape=[1,1] num_out_tokens=0", SY_ERR_VALUE, "2147483648",
     "2147483647"},
    {"tokens.shape=[1,2^31] routing_map.shape=[1,1] num_out_tokens=0", SY_ERR_VALUE, "2147483648",
     "2147483647"},
    {"num_out_tokens=2^31 tokens.shape=[65536,1] routing_map.shape=[65536,65536]", SY_ERR_VALUE,
     "2147483648"},
    {"num_out_tokens=2^31 tokens.shape=[65536,1] routing_map.shape=[65536,65536]", SY_ERR_VALUE, "2147483648",
     .line = "T=6 E=5 K=2 H=7 f64 drop_and_pad"},
    {"permuted_tokens.shape[0]=11", SY_ERR_SHAPE, "[11,7]", "[12,7]"},
    {"permuted_tokens.shape[0]=13", SY_ERR_SHAPE, "[13,7]", "[12,7]"},
    {"sorted_indices.shape[0]=11", SY_ERR_SHAPE, "[11]", "[12]"},
    {"permuted_probs.shape[0]=13", SY_ERR_SHAPE, "[13]", "[12]", .line = "T=6 E=5 K=2 H=7 f64 probs"},
    {"tokens.shape=[2^31-1,2^31-1] routing_map.shape=[2^31-1,1] num_out_tokens=0", SY_ERR_OVERFLOW},
    {"num_out_tokens=2^31-1 tokens.shape=[1,2^31-1] routing_map.shape=[1,2^31-1]", SY_ERR_OVERFLOW},
    /* Contents come last. */
    {"permuted_tokens.data=tokens routing_map.data[0]=1 routing_map.data[1]=1 routing_map.data[2]=1",
     SY_ERR_ALIAS},
    FORMAT_REJECTIONS(CODED),
    {.change = NULL},
};

const struct op_case case_moe_permute = {
    .name = "moe_permute",
    .make = make,
    .oracle = oracle,
    .hard = {"rejected", "no rows", "all pairs", "a rest", "many experts", "every slot used",
             "padding as zeros", "empty expert", "overfull expert", "short expert", "unused slot", "codes"},
    .small = "T=6 E=5 K=2 H=7 f64",
    .shapes = {"T=2 E=256 H=64 K=8 bf16 probs", "T=4 E=112 H=64 K=8 bf16 route=1 rows=4",
               "T=3 E=16 H=20000 K=2 bf16 probs", "T=2 E=200 H=64 K=9 bf16",
               "T=40 E=12 H=1000 K=3 bf16 route=1", "T=70 E=16 H=8200 K=4 bf16 probs route=1",
               "T=70 E=17 H=38 K=6 bf16 rows=4", "T=1100 E=6 H=8 K=2 bf16 probs route=1",
               "T=600 E=520 H=8 K=2 bf16", "T=20 E=5000 H=16 K=3 bf16", "T=10 E=100 H=24 K=70 bf16 probs",
               "T=90 E=300 H=264 K=20 bf16 route=1 drop_and_pad",
               "T=70 E=16 H=1032 K=4 bf16 probs drop_and_pad zero_pad", "T=40 E=12 H=9001 K=3 bf16 route=1",
               "T=3 E=100 H=8203 K=70 bf16 probs", "T=70 E=16 H=1033 K=4 bf16 drop_and_pad"},
    .lines = {"T=3001 E=37 H=257 K=4 bf16 probs route=1 expert_counts expert_offsets",
              "T=3001 E=37 H=257 K=4 bf16 probs drop_and_pad expert_offsets", "T=3 E=5 H=400001 K=3 bf16",
              "T=250007 E=4 H=3 K=4 bf16 route=1", "T=200003 E=16 H=1 K=2 u8 route=1 rows=4",
              "T=300 E=9 K=3 H=512 row_format=mxfp8 bf16", "T=300 E=9 K=3 H=512 row_format=fp8_128_deepgemm"},
    .rejections = rejections,
    .calls = 180,
};
