/*
 * kv_blocks on the command line. The cache, or dst, of the input file is changed and written to the output file.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.kv_blocks.name)

static const struct op_tensor tensors[] = {
    {"cache", FIELD(cache), OP_UPDATED, "[P,...] or [rows,D]", "any", "P blocks, or rows with --block-size"},
    {"src", FIELD(src), OP_OPTIONAL, "[P,...] or [rows,D]", "any",
     "in place of cache: where blocks come from"},
    {"dst", FIELD(dst), OP_UPDATED, "[P,...] or [rows,D]", "as src", "with src: where blocks go"},
    {"pairs", FIELD(pairs), OP_INPUT, "[N,2]", "I32 I64", "source and destination of each copy"},
    {0},
};

static const struct op_field fields[] = {
    {.name = "block_size",
     .kind = OP_INT64,
     .offset = FIELD(block_size),
     .text = "rows per block of flat caches"},
    {0},
};

static const float example_cache[4][1][2] = {{{0, 1}}, {{10, 11}}, {{20, 21}}, {{30, 31}}};
static const int32_t example_pairs[2][2] = {{0, 1}, {0, 3}};
static const struct op_example example[] = {
    {"cache", "F32", 3, {4, 1, 2}, example_cache},
    {"pairs", "I32", 2, {2, 2}, example_pairs},
    {0},
};

/* Nothing to make: the only output is a cache that came. */
static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    (void)ctx;
    (void)call;
    (void)outputs;
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_kv_blocks(ctx, &call->args.kv_blocks);
}

const struct op op_kv_blocks = {
    .name = "kv_blocks",
    .summary = "copy whole blocks of a paged KV cache, within it or to another",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "",
    .example_text = "one of four blocks copied over two others",
    .plane_caches = {"cache", "src"},
    .plane_rows = "dst",
    .planes = FIELD(planes),
    .num_planes = FIELD(num_planes),
    .size = size_outputs,
    .call = call_operator,
};
