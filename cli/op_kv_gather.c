/*
 * kv_gather on the command line. A tensor `out` in the input file is the old contents that --pad skip keeps.
 */
#include "op_kv.h"

#define FIELD(name) offsetof(struct op_call, args.kv_gather.name)

static const struct op_tensor tensors[] = {
    {"cache", FIELD(cache), OP_INPUT, "[rows,D] or [P,S,D...]", "any",
     "rows, or P blocks; --layout hnd: [P,H,S,D...]"},
    {"indices", FIELD(indices), OP_INPUT, "[...,k]", "I32 I64", "logical tokens to gather"},
    {"block_table", FIELD(block_table), OP_OPTIONAL, "[R,n] or [n]", "I32 I64",
     "physical block of each logical one"},
    {"req_id", FIELD(req_id), OP_OPTIONAL, "[B]", "I32 I64",
     "table row of each index row; missing: 0, 1, ..."},
    {"counts", FIELD(counts), OP_OPTIONAL, "[B]", "I32 I64", "live indices of each index row; missing: k"},
    {"seq_lens", FIELD(seq_lens), OP_OPTIONAL, "[B]", "I32 I64",
     "tokens of each sequence; missing: its table"},
    {"page_indices", FIELD(page_indices), OP_OPTIONAL, "[N]", "I32 I64",
     "lists of physical blocks, in place of block_table"},
    {"indptr", FIELD(indptr), OP_OPTIONAL, "[R+1]", "I32 I64", "where each list begins, and the end"},
    {"last_page_len", FIELD(last_page_len), OP_OPTIONAL, "[R]", "I32 I64",
     "tokens of each list's last page; missing: S"},
    {"scale", FIELD(scale), OP_OPTIONAL, "[G], [rows,G] or [P,S,G]", "F32",
     "for each G-th part of a row; --format e4m3, e5m2, int8"},
    {"out", FIELD(out), OP_INOUT, "[...,k,D...]", "as cache",
     "gathered rows; old contents, missing: zero; see --format"},
    {0},
};

static const struct op_field fields[] = {
    {.name = "block_size",
     .kind = OP_INT64,
     .offset = FIELD(block_size),
     .required = true,
     .text = "S: rows per block"},
    {.name = "pad",
     .kind = OP_WORD,
     .offset = FIELD(pad),
     .preset = "error",
     .words = {"error", "zero", "skip"},
     .values = {SY_PAD_ERROR, SY_PAD_ZERO, SY_PAD_SKIP},
     .text = "an index of -1: refused, a zero row, or the row keeps its contents"},
    {.name = "layout",
     .kind = OP_WORD,
     .offset = FIELD(layout),
     .preset = "nhd",
     .words = {"nhd", "hnd"},
     .values = {SY_KV_NHD, SY_KV_HND},
     .text = "blocks of [S,H,D] (and caches without heads), or of [H,S,D]"},
    OP_FORMAT_FIELD,
    OP_OUT_TYPE_FIELD,
    {0},
};

static const float example_cache[6][4] = {{0, 1, 2, 3},     {10, 11, 12, 13}, {20, 21, 22, 23},
                                          {30, 31, 32, 33}, {40, 41, 42, 43}, {50, 51, 52, 53}};
static const int32_t example_indices[3] = {0, 4, 3};
static const int32_t example_table[3] = {0, 2, 1};
static const struct op_example example[] = {
    {"cache", "F32", 2, {6, 4}, example_cache},
    {"indices", "I32", 1, {3}, example_indices},
    {"block_table", "I32", 1, {3}, example_table},
    {0},
};

/* [...,k] of the indices, then what one cache row holds. */
static const DLTensor *make_out(const struct op_call *call, const sy_kv_plane *plane, int64_t i,
                                struct op_outputs *outputs)
{
    const sy_kv_gather_args *const args = &call->args.kv_gather;
    return op_kv_output(call, plane, args->layout, args->indices->ndim, args->indices->shape,
                        op_plane_name(call, "out", i), outputs);
}

/* Old contents are used as they came: the call itself judges them. */
static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_kv_gather_args *const args = &call->args.kv_gather;
    sy_query query = {0};
    args->format = op_kv_format(call, args->cache, args->num_planes);
    const sy_status status = sy_kv_gather_query(ctx, args, &query);
    if (status != SY_OK)
        return status;
    if (!args->out)
        args->out = make_out(call, &(sy_kv_plane){.cache = args->cache, .format = args->format}, 0, outputs);
    for (int64_t i = 0; i < args->num_planes && !outputs->out_of_memory; i++) {
        sy_kv_plane *const plane = &call->planes[i];
        if (!plane->rows)
            plane->rows = make_out(call, plane, i + 1, outputs);
    }
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_kv_gather(ctx, &call->args.kv_gather);
}

const struct op op_kv_gather = {
    .name = "kv_gather",
    .summary = "copy the rows of selected tokens out of a paged KV cache",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--block-size 2",
    .example_text = "six cache rows in blocks of two, three tokens asked for",
    .plane_caches = {"cache"},
    .plane_rows = "out",
    .plane_scale = "scale",
    .planes = FIELD(planes),
    .num_planes = FIELD(num_planes),
    .size = size_outputs,
    .call = call_operator,
};
