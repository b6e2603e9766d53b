/*
 * sample_overrides on the command line. What comes out has the names under which sample takes it.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.sample_overrides.name)

static const struct op_tensor tensors[] = {
    {"logits", FIELD(logits), OP_INPUT, "[B,V]", "F32 F16 BF16", "one row per sequence"},
    {"prompt_indptr", FIELD(prompt_indptr), OP_OPTIONAL, "[B+1]", "I64 I32",
     "where the prompt of each row begins, and the end"},
    {"prompt_token", FIELD(prompt_token), OP_OPTIONAL, "[P]", "I32 I64", "tokens of the prompts"},
    {"output_indptr", FIELD(output_indptr), OP_OPTIONAL, "[B+1]", "I64 I32", "the same of the output"},
    {"output_token", FIELD(output_token), OP_OPTIONAL, "[O]", "I32 I64", "tokens picked so far"},
    {"bias_indptr", FIELD(bias_indptr), OP_OPTIONAL, "[B+1]", "I64 I32", "the same of the biases"},
    {"bias_token", FIELD(bias_token), OP_OPTIONAL, "[N]", "I32 I64", "tokens with a bias"},
    {"bias", FIELD(bias), OP_OPTIONAL, "[N]", "F32", "added at the end; -inf bans a token"},
    {"repetition_penalty", FIELD(repetition_penalty), OP_OPTIONAL, "per row", "F32 or as logits",
     "divides, or multiplies below 0; missing: 1"},
    {"frequency_penalty", FIELD(frequency_penalty), OP_OPTIONAL, "per row", "F32 or as logits",
     "taken off as often as the token is in the output"},
    {"presence_penalty", FIELD(presence_penalty), OP_OPTIONAL, "per row", "F32 or as logits",
     "taken off once if it is there"},
    {"override_indptr", FIELD(override_indptr), OP_OUTPUT, "[B+1]", "I64",
     "where the overrides of each row begin, and the end"},
    {"override_token", FIELD(override_token), OP_OUTPUT, "[P+O+N]", "I32",
     "ascending in a row; 0 from the end on"},
    {"override_logit", FIELD(override_logit), OP_OUTPUT, "[P+O+N]", "F32", "their logits; 0 from the end on"},
    {0},
};

static const struct op_field fields[] = {
    {.name = "repetition_penalty",
     .kind = OP_ROW_F32,
     .offset = FIELD(repetition_penalty),
     .text = "one value for all rows"},
    {.name = "frequency_penalty",
     .kind = OP_ROW_F32,
     .offset = FIELD(frequency_penalty),
     .text = "one value for all rows"},
    {.name = "presence_penalty",
     .kind = OP_ROW_F32,
     .offset = FIELD(presence_penalty),
     .text = "one value for all rows"},
    {0},
};

static const float example_logits[1][6] = {{0, 1, 2, 3, 2.5f, -1}};
static const int64_t example_prompt_indptr[2] = {0, 2}, example_output_indptr[2] = {0, 3};
static const int32_t example_prompt_token[2] = {5, 3}, example_output_token[3] = {3, 4, 3};
static const struct op_example example[] = {
    {"logits", "F32", 2, {1, 6}, example_logits},
    {"prompt_indptr", "I64", 1, {2}, example_prompt_indptr},
    {"prompt_token", "I32", 1, {2}, example_prompt_token},
    {"output_indptr", "I64", 1, {2}, example_output_indptr},
    {"output_token", "I32", 1, {3}, example_output_token},
    {0},
};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_sample_overrides_args *const args = &call->args.sample_overrides;
    sy_query query = {0};
    const sy_status status = sy_sample_overrides_query(ctx, args, &query);
    if (status != SY_OK)
        return status;
    const int64_t ends = args->logits->shape[0] + 1;
    args->override_indptr = op_output(outputs, "override_indptr", SY_I64, 1, &ends);
    args->override_token = op_output(outputs, "override_token", SY_I32, 1, &query.rows);
    args->override_logit = op_output(outputs, "override_logit", SY_F32, 1, &query.rows);
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_sample_overrides(ctx, &call->args.sample_overrides);
}

const struct op op_sample_overrides = {
    .name = "sample_overrides",
    .summary = "build sample's overrides from penalties, biases and what a sequence has had already",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--repetition-penalty 2 --frequency-penalty 0.5",
    .example_text = "one row of six logits, a prompt of two tokens, an output of three",
    .size = size_outputs,
    .call = call_operator,
};
