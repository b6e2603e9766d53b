/*
 * kv_ragged on the command line. `out` gets the rows that cu_lens asks for.
 */
#include "op_kv.h"

#include <string.h>

#define FIELD(name) offsetof(struct op_call, args.kv_ragged.name)

static const struct op_tensor tensors[] = {
    {"cache", FIELD(cache), OP_INPUT, "[rows,D] or [P,S,D...]", "any",
     "rows, or P blocks; --layout hnd: [P,H,S,D...]"},
    {"block_table", FIELD(block_table), OP_OPTIONAL, "[R,n] or [n]", "I32 I64",
     "physical block of each logical one"},
    {"cu_lens", FIELD(cu_lens), OP_INPUT, "[B+1]", "I32 I64", "where each run begins in out, and the end"},
    {"starts", FIELD(starts), OP_OPTIONAL, "[B]", "I32 I64", "first token of each run; missing: 0"},
    {"req_id", FIELD(req_id), OP_OPTIONAL, "[B]", "I32 I64", "table row of each run; missing: 0, 1, ..."},
    {"seq_lens", FIELD(seq_lens), OP_OPTIONAL, "[B]", "I32 I64",
     "tokens of each run's sequence; missing: its blocks"},
    {"page_indices", FIELD(page_indices), OP_OPTIONAL, "[N]", "I32 I64",
     "lists of physical blocks, in place of block_table"},
    {"indptr", FIELD(indptr), OP_OPTIONAL, "[R+1]", "I32 I64", "where each list begins, and the end"},
    {"last_page_len", FIELD(last_page_len), OP_OPTIONAL, "[R]", "I32 I64",
     "tokens of each list's last page; missing: S"},
    {"scale", FIELD(scale), OP_OPTIONAL, "[G], [rows,G] or [P,S,G]", "F32",
     "for each G-th part of a row; --format e4m3, e5m2, int8"},
    {"out", FIELD(out), OP_OUTPUT, "[cu_lens[B],D...]", "as cache", "the rows of all runs"},
    {0},
};

static const struct op_field fields[] = {
    {.name = "block_size",
     .kind = OP_INT64,
     .offset = FIELD(block_size),
     .required = true,
     .text = "S: rows per block"},
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

static const float example_cache[8][1] = {{0}, {10}, {20}, {30}, {40}, {50}, {60}, {70}};
static const int32_t example_table[2][2] = {{3, 1}, {0, 2}};
static const int32_t example_starts[2] = {1, 0};
static const int32_t example_cu_lens[3] = {0, 3, 5};
static const struct op_example example[] = {
    {"cache", "F32", 2, {8, 1}, example_cache},
    {"block_table", "I32", 2, {2, 2}, example_table},
    {"starts", "I32", 1, {2}, example_starts},
    {"cu_lens", "I32", 1, {3}, example_cu_lens},
    {0},
};

/* The last entry of cu_lens. Where a larger one stands before it the call refuses that, and not the size of out. */
static int64_t count_rows(const DLTensor *cu_lens)
{
    int64_t most = 0;
    for (int64_t i = 0; i < cu_lens->shape[0]; i++) {
        int64_t wide = 0;
        int32_t narrow = 0;
        if (cu_lens->dtype.bits == 64)
            memcpy(&wide, (const char *)cu_lens->data + i * 8, sizeof wide);
        else
            memcpy(&narrow, (const char *)cu_lens->data + i * 4, sizeof narrow);
        most = wide + narrow > most ? wide + narrow : most;
    }
    return most;
}

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_kv_ragged_args *const args = &call->args.kv_ragged;
    sy_query query = {0};
    args->format = op_kv_format(call, args->cache, args->num_planes);
    const sy_status status = sy_kv_ragged_query(ctx, args, &query);
    if (status != SY_OK)
        return status;
    const int64_t rows = count_rows(args->cu_lens);
    const sy_kv_plane own = {.cache = args->cache, .format = args->format};
    args->out = op_kv_output(call, &own, args->layout, 1, &rows, op_plane_name(call, "out", 0), outputs);
    for (int64_t i = 0; i < args->num_planes && !outputs->out_of_memory; i++)
        call->planes[i].rows = op_kv_output(call, &call->planes[i], args->layout, 1, &rows,
                                            op_plane_name(call, "out", i + 1), outputs);
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_kv_ragged(ctx, &call->args.kv_ragged);
}

const struct op op_kv_ragged = {
    .name = "kv_ragged",
    .summary = "copy a run of tokens of each sequence out of a paged KV cache",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--block-size 2",
    .example_text = "three tokens of one sequence and two of another, in blocks of two",
    .plane_caches = {"cache"},
    .plane_rows = "out",
    .plane_scale = "scale",
    .planes = FIELD(planes),
    .num_planes = FIELD(num_planes),
    .size = size_outputs,
    .call = call_operator,
};
