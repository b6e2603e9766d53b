/*
 * local_reduce on the command line.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.local_reduce.name)

static const struct op_tensor tensors[] = {
    {"input", FIELD(input), OP_INPUT, "[L,T,H] or [L,Bt,St,H]", "F32 F16 BF16",
     "rows of the device's experts; --layout expert: [R,H]"},
    {"expert_metadata", FIELD(expert_metadata), OP_INPUT, "[T,K] or [1,Bt,St,K]", "U16 I32 I64",
     "experts of every token; 65535 or -1: none"},
    {"expert_mapping", FIELD(expert_mapping), OP_INPUT, "[E,D], [1,1,E,D]", "U16",
     "1 where device d hosts expert e; or D copies [D,1,E,D]"},
    {"weights", FIELD(weights), OP_OPTIONAL, "as metadata", "F32 F16 BF16",
     "weight of each slot; missing: 1"},
    {"output", FIELD(output), OP_INOUT, "[T,H] or [1,Bt,St,H]", "as input",
     "the sum of each token; old contents for --fill keep"},
    {0},
};

static const struct op_field fields[] = {
    {.name = "device",
     .kind = OP_INT64,
     .offset = FIELD(device),
     .preset = "0",
     .text = "whose rows these are"},
    {.name = "fill",
     .kind = OP_WORD,
     .offset = FIELD(fill),
     .preset = "zero",
     .words = {"zero", "keep"},
     .values = {SY_FILL_ZERO, SY_FILL_KEEP},
     .text = "rows of tokens that choose none of its experts"},
    {.name = "layout",
     .kind = OP_WORD,
     .offset = FIELD(layout),
     .preset = "padded",
     .words = {"padded", "expert"},
     .values = {SY_LAYOUT_PADDED, SY_LAYOUT_EXPERT},
     .text = "a row per expert and token, or only what was sent; output packed"},
    {.name = "align",
     .kind = OP_INT64,
     .offset = FIELD(align),
     .preset = "1",
     .text = "rows of an expert are padded to a multiple"},
    {.name = "output_concat_dim",
     .kind = OP_WORD,
     .offset = FIELD(output_concat_dim),
     .preset = "1",
     .words = {"1", "2"},
     .values = {1, 2},
     .text = "of the dispatch, with --layout expert"},
    {.name = "order",
     .kind = OP_WORD,
     .offset = FIELD(order),
     .preset = "concat",
     .words = {"concat", "flat"},
     .values = {SY_ORDER_CONCAT, SY_ORDER_FLAT},
     .text = "of the dispatch, with --output-concat-dim 2"},
    {.name = "group_size",
     .kind = OP_INT64,
     .offset = FIELD(group_size),
     .preset = "0",
     .text = "devices of the group, with --output-concat-dim 2"},
    {0},
};

static const float example_rows[2][4][1] = {{{11}, {12}, {-1}, {22}}, {{-1}, {24}, {-1}, {-1}}};
static const uint16_t example_choices[4][2] = {{0, 2}, {1, 0}, {3, 2}, {2, 0}};
static const uint16_t example_mapping[4][2] = {{1, 0}, {1, 0}, {0, 1}, {0, 1}};
static const struct op_example example[] = {
    {"input", "F32", 3, {2, 4, 1}, example_rows},
    {"expert_metadata", "U16", 2, {4, 2}, example_choices},
    {"expert_mapping", "U16", 2, {4, 2}, example_mapping},
    {0},
};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_local_reduce_args *const args = &call->args.local_reduce;
    sy_query query = {0};
    const sy_status status = sy_local_reduce_query(ctx, args, &query);
    if (status != SY_OK || args->output)
        return status;
    const DLTensor *const table = args->expert_metadata, *const rows = args->input;
    const int64_t hidden = rows->shape[rows->ndim - 1];
    const bool full = table->ndim == 4 && args->layout == SY_LAYOUT_PADDED;
    args->output = full ? op_output(outputs, "output", rows->dtype, 4,
                                    (int64_t[]){1, table->shape[1], table->shape[2], hidden})
                        : op_output(outputs, "output", rows->dtype, 2, (int64_t[]){query.rows, hidden});
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_local_reduce(ctx, &call->args.local_reduce);
}

const struct op op_local_reduce = {
    .name = "local_reduce",
    .summary = "add up what the experts of one device made of each token, for all_to_all_combine",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "",
    .example_text = "two experts of device 0, of four; the third token chose none of them",
    .size = size_outputs,
    .call = call_operator,
};
