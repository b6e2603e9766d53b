/*
 * all_to_all_combine on the command line. Old contents of the output may stand in the input file.
 */
#include "op_a2a.h"

#define FIELD(name) offsetof(struct op_call, args.all_to_all_combine.name)

static const struct op_tensor tensors[] = {
    {"input", FIELD(input), OP_INPUT, "[D,L,B*G,S,H] or [D,L,T,H]", "any",
     "expert rows, L the most of a device; reduced: 1"},
    {"expert_metadata", FIELD(expert_metadata), OP_INPUT, "[D,1,B*G,S,K] or [D,T,K]", "U16 I32 I64",
     "experts of all tokens, as dispatch made it"},
    {"expert_mapping", FIELD(expert_mapping), OP_SHARED, A2A_MAPPING_SHAPES, "U16",
     "1 where a device hosts an expert"},
    {"weights", FIELD(weights), OP_OPTIONAL, "[D,B,1,S,K] or [D,N,K]", "F32 F16 BF16",
     "of each token's slots; --sum"},
    {"output", FIELD(output), OP_INOUT, "[D,K,B,S,H] or [D,K,N,H]", "as input",
     "rows of slots; --sum: no K; in: for --fill keep"},
    {"written", FIELD(written), OP_OUTPUT, "[D,K,N]", "U8", "1 where a row came; --masks"},
    {0},
};

static const struct op_field fields[] = {
    A2A_WHERE_FIELDS("output_shard_dim", "1 or 2: the dimension tokens of a group are split along"),
    {.name = "local_reduce",
     .kind = OP_BOOL,
     .offset = FIELD(local_reduce),
     .text = "the input holds one row per token, summed over the device's experts"},
    {.name = "sum",
     .kind = OP_BOOL,
     .offset = FIELD(sum),
     .text = "the output is the weighted sum over the slots"},
    A2A_HOW_FIELDS,
    {.name = "masks",
     .kind = OP_BOOL,
     .offset = offsetof(struct op_call, mesh.masks),
     .text = "also written"},
    {0},
};

static const float example_input[2][2][4][2] = {
    {{{11, -11}, {12, -12}, {0, 0}, {22, -22}}, {{0, 0}, {24, -24}, {0, 0}, {0, 0}}},
    {{{33, -33}, {0, 0}, {63, -63}, {66, -66}}, {{0, 0}, {0, 0}, {84, -84}, {0, 0}}},
};
static const uint16_t example_metadata[2][4][2] = {{{0, 2}, {1, 0}, {3, 2}, {2, 0}},
                                                   {{0, 2}, {1, 0}, {3, 2}, {2, 0}}};
static const uint16_t example_mapping[4][2] = {{1, 0}, {1, 0}, {0, 1}, {0, 1}};
static const struct op_example example[] = {
    {"input", "F32", 5, {2, 2, 2, 2, 2}, example_input},
    {"expert_metadata", "U16", 5, {2, 1, 2, 2, 2}, example_metadata},
    {"expert_mapping", "U16", 2, {4, 2}, example_mapping},
    {0},
};

/* ---- Sizes ---------------------------------------------------------------------------------------------- */

enum { OUTPUT, WRITTEN };

/* Where devices have different numbers of experts, a stacked input has room for the most, and a device uses the first
   rows of its slab. Anything else is the operator's to judge. */
static void fit_experts(struct op_call *call)
{
    const sy_all_to_all_combine_args *const args = &call->args.all_to_all_combine;
    if (!args->input || args->input->ndim < 1 || call->numbered || args->local_reduce ||
        args->layout != SY_LAYOUT_PADDED)
        return;
    int64_t most = 0;
    for (int d = 0; d < mesh_devices(call); d++) {
        const int64_t here = mesh_local_experts(call, args->expert_mapping, d);
        most = here > most ? here : most;
    }
    if (most > 0 && args->input->shape[0] == most)
        mesh_shorten(call, FIELD(input), args->expert_mapping);
}

/* Tokens at home; -1 when nothing tells. */
static int64_t home_tokens(const struct op_call *call, int device)
{
    const sy_all_to_all_combine_args *const args = &call->args.all_to_all_combine;
    const DLTensor *const metadata = &args->expert_metadata[device];
    int64_t n = 1;
    if (args->max_tokens > 0)
        return args->weights  ? args->weights[device].shape[0]
               : args->output ? args->output[device].shape[args->sum ? 0 : 1]
                              : -1;
    for (int i = 0; i + 1 < metadata->ndim; i++)
        n *= metadata->shape[i];
    return n / mesh_group_size(call);
}

static struct mesh_shape shape_of(const struct op_call *call, int which, int device)
{
    const sy_all_to_all_combine_args *const args = &call->args.all_to_all_combine;
    const DLTensor *const metadata = &args->expert_metadata[device], *const input = &args->input[device];
    const int64_t k = metadata->shape[metadata->ndim - 1], width = input->shape[input->ndim - 1];
    const int64_t n = home_tokens(call, device), g = mesh_group_size(call);
    if (which == WRITTEN)
        return (struct mesh_shape){2, {k, n}};
    if (metadata->ndim == 2)
        return args->sum ? (struct mesh_shape){2, {n, width}} : (struct mesh_shape){3, {k, n, width}};
    const int64_t *const group = metadata->shape + (metadata->ndim == 4); /* [Bt,St,K] after a 1, or alone */
    const int64_t b = group[0] / (call->mesh.dim == 1 ? g : 1), s = group[1] / (call->mesh.dim == 2 ? g : 1);
    return args->sum ? (struct mesh_shape){3, {b, s, width}} : (struct mesh_shape){4, {k, b, s, width}};
}

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_all_to_all_combine_args *const args = &call->args.all_to_all_combine;
    args->cluster_axis = mesh_axis(call);
    args->output_shard_dim = call->mesh.dim == 2 ? 2 : 1;
    args->num_links = (int)call->mesh.links;
    fit_experts(call);
    /* Where numbers of tokens differ the output tells them. It is made to fit the weights, if there are any, so the query
       cannot judge these; the call does. Without any the operator misses its output, and says so. */
    sy_all_to_all_combine_args judged = *args;
    if (args->max_tokens > 0 && !args->output)
        judged.weights = NULL;
    sy_query query = {0};
    const sy_status status =
        mesh_judge(call, sy_all_to_all_combine_query(ctx, call->mesh.local, &judged, &query));
    if (status != SY_OK)
        return status;
    const bool known = home_tokens(call, 0) >= 0;
    if (!args->output && known)
        args->output = mesh_output_like(call, outputs, "output", args->input, shape_of, OUTPUT);
    if (call->mesh.masks && known)
        args->written = mesh_output(call, outputs, "written", SY_U8, shape_of, WRITTEN);
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_all_to_all_combine(ctx, call->mesh.comm, &call->args.all_to_all_combine);
}

const struct op op_all_to_all_combine = {
    .name = "all_to_all_combine",
    .summary = "bring expert rows home to the devices of their tokens",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--mesh 1x2",
    .example_text = "what the experts of all_to_all_dispatch's example made of its tokens",
    .mesh_dim = "output_shard_dim",
    .size = size_outputs,
    .call = call_operator,
};
