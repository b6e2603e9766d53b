/*
 * sample on the command line. Fields that may differ per row can be given as a tensor in the file or as one
 * option for all rows; large outputs are written only when asked for.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.sample.name)

static const struct op_tensor tensors[] = {
    {"logits", FIELD(logits), OP_INPUT, "[B,V]", "F32 F16 BF16", "one row per sequence"},
    {"top_k", FIELD(top_k), OP_OPTIONAL, "per row", "I32 I64", "keep the k largest; off unless 1 <= k < V"},
    {"top_p", FIELD(top_p), OP_OPTIONAL, "per row", "F32 or as logits",
     "keep the nucleus of mass p; off from 1 up"},
    {"min_p", FIELD(min_p), OP_OPTIONAL, "per row", "F32 or as logits",
     "keep prob >= min_p * largest; off from 0 down"},
    {"temperature", FIELD(temperature), OP_OPTIONAL, "per row", "F32 or as logits",
     "missing: 1; below 1e-5: greedy"},
    {"q", FIELD(q), OP_OPTIONAL, "[B,V]", "F32", "exponential noise of the caller"},
    {"seed", FIELD(seed), OP_OPTIONAL, "per row", "I64 U64 I32", "for the noise made here"},
    {"offset", FIELD(offset), OP_OPTIONAL, "per row", "I64 U64 I32", "step of the sequence; missing: 0"},
    {"stream", FIELD(stream), OP_OPTIONAL, "per row", "I32 U32 I64 U64",
     "request; missing: 0, or the row if seed is [1]"},
    {"allow_bits", FIELD(allow_bits), OP_OPTIONAL, "[B,ceil(V/32)]", "I32 U32",
     "bit 1: the token may be picked; one row may stand for all"},
    {"override_indptr", FIELD(override_indptr), OP_OPTIONAL, "[B+1]", "I64 I32",
     "where the overrides of each row begin, and the end"},
    {"override_token", FIELD(override_token), OP_OPTIONAL, "[N]", "I32 I64",
     "tokens whose logit is replaced, ascending in a row"},
    {"override_logit", FIELD(override_logit), OP_OPTIONAL, "[N]", "F32",
     "by what; see: switchyard run sample_overrides"},
    {"token", FIELD(token), OP_OUTPUT, "[B]", "I64", "the picked token"},
    {"kept", FIELD(kept), OP_OUTPUT, "[B]", "I32", "candidates left after the cuts"},
    {"row_flags", FIELD(row_flags), OP_OUTPUT, "[B]", "U32", "1: a NaN, 2: +inf, 4: no candidate"},
    {"masked_logits", FIELD(masked_logits), OP_OUTPUT, "[B,V]", "F32", "with --masked-logits"},
    {"list_token", FIELD(list_token), OP_OUTPUT, "[B,V]", "I64", "with --list: candidates in order"},
    {"list_prob", FIELD(list_prob), OP_OUTPUT, "[B,V]", "F32", "with --list: their probabilities"},
    {"logprob", FIELD(logprob), OP_OUTPUT, "[B]", "F32", "with --logprob raw or final"},
    {0},
};

static const struct op_field fields[] = {
    {.name = "top_k", .kind = OP_ROW_I64, .offset = FIELD(top_k), .text = "one value for all rows"},
    {.name = "top_p", .kind = OP_ROW_F32, .offset = FIELD(top_p), .text = "one value for all rows"},
    {.name = "min_p", .kind = OP_ROW_F32, .offset = FIELD(min_p), .text = "one value for all rows"},
    {.name = "temperature",
     .kind = OP_ROW_F32,
     .offset = FIELD(temperature),
     .text = "one value for all rows"},
    {.name = "seed", .kind = OP_ROW_U64, .offset = FIELD(seed), .text = "one value for all rows"},
    {.name = "offset", .kind = OP_ROW_U64, .offset = FIELD(offset), .text = "one value for all rows"},
    {.name = "stream", .kind = OP_ROW_U32, .offset = FIELD(stream), .text = "one value for all rows"},
    {.name = "eps", .kind = OP_FLOAT, .offset = FIELD(eps), .preset = "1e-8", .text = "added to |q|"},
    {.name = "k_limit",
     .kind = OP_INT64,
     .offset = FIELD(k_limit),
     .preset = "0",
     .text = "top-k is off above this; 0: no limit"},
    {.name = "top_k_guess",
     .kind = OP_INT64,
     .offset = FIELD(top_k_guess),
     .preset = "0",
     .text = "a hint, never changes a result"},
    {.name = "noise",
     .kind = OP_WORD,
     .offset = FIELD(noise),
     .words = {"none", "q", "race", "cdf"},
     .values = {SY_NOISE_NONE, SY_NOISE_Q, SY_NOISE_RACE, SY_NOISE_CDF},
     .text = "missing: q if q is given, cdf if seed is given, else none"},
    {.name = "q_order",
     .kind = OP_WORD,
     .offset = FIELD(q_order),
     .preset = "list",
     .words = {"list", "vocab"},
     .values = {SY_Q_LIST, SY_Q_VOCAB},
     .text = "q belongs to candidates in order, or to tokens"},
    {.name = "ties",
     .kind = OP_WORD,
     .offset = FIELD(ties),
     .preset = "exact",
     .words = {"exact", "all"},
     .values = {SY_TIES_EXACT, SY_TIES_ALL},
     .text = "of tokens equal to the cut: the lowest, or all"},
    {.name = "probs_in",
     .kind = OP_BOOL,
     .offset = FIELD(probs_in),
     .text = "logits are probabilities already"},
    {.name = "masked_logits",
     .kind = OP_BOOL,
     .offset = offsetof(struct op_call, want_masked_logits),
     .text = "write masked_logits"},
    {.name = "list",
     .kind = OP_BOOL,
     .offset = offsetof(struct op_call, want_list),
     .text = "write list_token and list_prob"},
    {.name = "logprob",
     .alias = "logprob_mode",
     .kind = OP_WORD,
     .offset = FIELD(logprob_mode),
     .preset = "none",
     .words = {"none", "raw", "final"},
     .values = {SY_LOGPROB_NONE, SY_LOGPROB_RAW, SY_LOGPROB_FINAL},
     .text = "write logprob: of the input, or of what was drawn from"},
    {.name = "empty_token",
     .kind = OP_WORD,
     .offset = FIELD(empty_token),
     .preset = "-1",
     .words = {"-1", "0"},
     .values = {SY_EMPTY_MINUS_ONE, SY_EMPTY_ZERO},
     .text = "token of a row without any candidate"},
    {0},
};

static const float example_logits[2][6] = {{0, 1, 2, 3, 2.5f, -1}, {4, 4, 4, 4, 1, 1}};
static const struct op_example example[] = {
    {"logits", "F32", 2, {2, 6}, example_logits},
    {0},
};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_sample_args *const args = &call->args.sample;
    sy_query query = {0};
    const sy_status status = sy_sample_query(ctx, args, &query);
    if (status != SY_OK)
        return status;
    const int64_t *const shape = args->logits->shape; /* [B,V] */
    args->token = op_output(outputs, "token", SY_I64, 1, shape);
    args->kept = op_output(outputs, "kept", SY_I32, 1, shape);
    args->row_flags = op_output(outputs, "row_flags", SY_U32, 1, shape);
    if (call->want_masked_logits)
        args->masked_logits = op_output(outputs, "masked_logits", SY_F32, 2, shape);
    if (call->want_list) {
        args->list_token = op_output(outputs, "list_token", SY_I64, 2, shape);
        args->list_prob = op_output(outputs, "list_prob", SY_F32, 2, shape);
    }
    if (args->logprob_mode != SY_LOGPROB_NONE)
        args->logprob = op_output(outputs, "logprob", SY_F32, 1, shape);
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_sample(ctx, &call->args.sample);
}

const struct op op_sample = {
    .name = "sample",
    .summary = "pick one token per row: temperature, top-k, top-p, min-p, then greedy or random",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--top-k 4 --top-p 0.75 --seed 7 --list",
    .example_text = "two rows of six logits",
    .size = size_outputs,
    .call = call_operator,
};
