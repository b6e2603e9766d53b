/*
 * kv_scatter on the command line. The cache of the input file is changed and written to the output file.
 */
#include "op_kv.h"

#define FIELD(name) offsetof(struct op_call, args.kv_scatter.name)

static const struct op_tensor tensors[] = {
    {"cache", FIELD(cache), OP_UPDATED, "[rows,D] or [P,S,D...]", "any",
     "rows, or P blocks; --layout hnd: [P,H,S,D...]"},
    {"src", FIELD(src), OP_INPUT, "[...,D...]", "as cache", "one row for each slot"},
    {"slots", FIELD(slots), OP_INPUT, "[...]", "I32 I64", "where each row goes"},
    {"scale", FIELD(scale), OP_INOUT, "[G], [rows,G] or [P,S,G]", "F32",
     "--format e4m3, e5m2, int8: read as [G], else written"},
    {0},
};

static const struct op_field fields[] = {
    {.name = "pad",
     .kind = OP_WORD,
     .offset = FIELD(pad),
     .preset = "error",
     .words = {"error", "skip"},
     .values = {SY_PAD_ERROR, SY_PAD_SKIP},
     .text = "a slot of -1: refused, or its row is dropped"},
    {.name = "check_unique",
     .kind = OP_BOOL,
     .offset = FIELD(check_unique),
     .text = "refuse a slot that is named twice"},
    {.name = "layout",
     .kind = OP_WORD,
     .offset = FIELD(layout),
     .preset = "nhd",
     .words = {"nhd", "hnd"},
     .values = {SY_KV_NHD, SY_KV_HND},
     .text = "blocks of [S,H,D] (and caches without heads), or of [H,S,D]"},
    OP_FORMAT_FIELD,
    {.name = "block_size",
     .kind = OP_INT64,
     .offset = FIELD(block_size),
     .text = "S: rows per block, with --format ds4_fp8, indexer_fp8"},
    {0},
};

static const float example_cache[6][2] = {{0}};
static const float example_src[4][2] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
static const int32_t example_slots[4] = {5, -1, 0, 2};
static const struct op_example example[] = {
    {"cache", "F32", 2, {6, 2}, example_cache},
    {"src", "F32", 2, {4, 2}, example_src},
    {"slots", "I32", 1, {4}, example_slots},
    {0},
};

/* Nothing to make: the outputs are the cache and the scales that came. */
static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_kv_scatter_args *const args = &call->args.kv_scatter;
    (void)ctx;
    (void)outputs;
    args->format = op_kv_format(call, args->cache, args->num_planes);
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_kv_scatter(ctx, &call->args.kv_scatter);
}

const struct op op_kv_scatter = {
    .name = "kv_scatter",
    .summary = "write rows into a paged KV cache by slot",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--pad skip",
    .example_text = "four rows into a cache of six, one of them dropped",
    .plane_caches = {"cache"},
    .plane_rows = "src",
    .plane_scale = "scale",
    .planes = FIELD(planes),
    .num_planes = FIELD(num_planes),
    .size = size_outputs,
    .call = call_operator,
};
