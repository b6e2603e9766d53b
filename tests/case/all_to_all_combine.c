/*
 * all_to_all_combine: rows of experts back to the devices of their tokens, as slots or as sums.
 */
#include "mesh.h"

static void make(struct call *c)
{
    mesh_make(c, true);
}

static void oracle(struct call *c)
{
    const sy_all_to_all_combine_args *const a = case_args(c);
    mesh_oracle(c);
    case_note(c, "sum", a->sum && a->weights == NULL && !a->local_reduce);
    case_note(c, "weighted sum", a->weights != NULL);
    case_note(c, "partial sums", a->sum && a->local_reduce);
    case_note(c, "sum of codes", a->sum && a->row_format != NULL);
    case_note(c, "codes of slots", !a->sum && a->row_format != NULL);
    case_note(c, "experts of fixed rows", a->expert_rows > 0);
}

static void one_row_less(struct call *c)
{
    case_field(c, "input")->now_shape[0]--;
}

/* The last slot of the last device's table names another expert. */
static void tables_differ(struct call *c)
{
    const struct operand *const x = &c->operand[c->info->n_tensors + 1];
    uint16_t expert;
    memcpy(&expert, x->block + x->first + 46, sizeof expert);
    call_apply(c, &(struct change){.kind = CHANGE_NUMBER,
                                   .field = "expert_metadata",
                                   .d = 23,
                                   .value = expert == 5 ? 0 : 5,
                                   .device = 1});
}

#define SIZES "B=2 S=3 K=2 E=6 H=5 experts=1 "
#define SUM .line = SIZES "sum=1"
#define CODES .line = SIZES "coded=1 format=7 coded_results=1"
static const struct rejection rejections[] = {
    MESH_VALUES,
    {"output_shard_dim=2", TOLD},
    {"output_shard_dim=3", SY_ERR_VALUE, "3"},
    {"", SY_ERR_STATE, "is empty", .blame = "routing", .with = mesh_empty_routing},
    {"input.ndim=2", SY_ERR_SHAPE, "2"},
    {"input@*.shape=[3,3,3,5] expert_metadata@*.shape=[1,3,3,2]", SY_ERR_SHAPE, "3", "2",
     .blame = "expert_metadata|input"},
    {"output_shard_dim=2", SY_ERR_SHAPE, "3", "2", .blame = "expert_metadata|input"},
    {"expert_metadata.shape[3]=0", SY_ERR_SHAPE, "0"},
    {"local_reduce=1", SY_ERR_SHAPE, "has 3 rows per token", "1", .blame = "input", .late = true},
    {"layout=packed input@*.shape=[12,5]", SY_ERR_UNSUPPORTED, .late = true},
    {"layout=expert input@*.shape=[24,5] local_reduce=1", SY_ERR_UNSUPPORTED},
    {"align=2^31-1", SY_ERR_OVERFLOW, "2147483647", .line = SIZES "layout=2"},
    {"expert_mapping.data[1]=1", SY_ERR_SHAPE, "3", "4", .blame = "input"},
    {"expert_mapping.data[1]=1", SY_ERR_ROUTING, "1", .code = SY_FAULT_DUPLICATE,
     .line = SIZES "local_reduce=1"},
    {"input.shape[0]=1", SY_ERR_CAPACITY, "has 1 rows", .line = SIZES "layout=2", .late = true},
    {"", SY_ERR_CAPACITY, .blame = "input", .with = one_row_less, .line = SIZES "layout=2 contents=5",
     .late = true},
    {"input.shape[1]=5", SY_ERR_SHAPE, "has rows for 5 tokens", "6", .line = SIZES "form=2"},
    {"output@1.shape[1]=5", SY_ERR_MISMATCH, .blame = "", .line = SIZES "ragged=1 N=6"},
    {"max_tokens=2^31-1", SY_ERR_OVERFLOW, "times 2 rows", "2^31", .blame = "expert_metadata",
     .line = SIZES "ragged=1 N=6"},
    {"input,output@*.dtype=u8", SY_ERR_DTYPE, "u8", SUM},
    {"expert_rows=1", SY_ERR_CAPACITY, "is 1, want at least ", "the rows of expert 0",
     .line = SIZES "layout=2 expert_rows=1", .late = true},
    {"", SY_ERR_MISMATCH, "disagree", .with = tables_differ, .late = true},
    {"weights@*=input", SY_ERR_VALUE, "without sum", "none", .line = SIZES "type=1"},
    {"local_reduce=1", SY_ERR_VALUE, "for sums that have theirs already", "none", .blame = "weights", SUM},
    {"written@*=weights written@*.dtype=u8 written@*.shape=[2,6]", SY_ERR_VALUE, "is given with sum", "none",
     SUM},
    {"output_scales@*=output", SY_ERR_VALUE, "is given with sum", "none",
     .line = SIZES "sum=1 coded=1 format=7"},
    {"output_scales@*=output", SY_ERR_VALUE, "is given", "none: there is no row_format",
     .line = SIZES "type=1"},
    {"weights@*.shape=[1,1,6,2]", SY_ERR_SHAPE, "rank 4", .line = SIZES "sum=1 ragged=1 N=6"},
    {"row_format=-", SY_ERR_VALUE, "is given", "none: there is no row_format", .blame = "input_scales",
     CODES},
    {"sum=1", SY_ERR_DTYPE, "i8", "f16, f32 or bf16", .blame = "output", CODES, .late = true},
    {"output.shape[1]=1", SY_ERR_SHAPE, "[2,1,3,5]", "[2,2,3,5]"},
    {"output.strides[2]=1", SY_ERR_STRIDE, "[30,15,1,1]", "evenly spaced rows"},
    {"weights.strides[3]=2", SY_ERR_STRIDE, "[6,6,2,2]", "contiguous", SUM},
    {"output_scales.ndim=3", SY_ERR_SHAPE, CODES},
    {"output.dtype=bf16", SY_ERR_DTYPE, "bf16", "i8", CODES},
    {"input@1.shape[3]=4 output@1.shape[3]=4", SY_ERR_MISMATCH, "device", .blame = "", .late = true},
    {"expert_metadata.data[7]=6 output@1.shape[3]=4", SY_ERR_INDEX, "device 0"},
    {.change = NULL},
};

const struct op_case case_all_to_all_combine = {
    .name = "all_to_all_combine",
    .make = make,
    .oracle = oracle,
    .hard = {MESH_HARD, "sum", "weighted sum", "partial sums", "sum of codes", "codes of slots",
             "experts of fixed rows"},
    .small = SIZES "written",
    .shapes = {"mesh=6 replica=5 node=2 by_routing=1 B=2 S=3 K=3 E=8 experts=4",
               "mesh=6 local_reduce=1 sum=1 B=2 S=4 K=4 E=8 H=33",
               "mesh=5 layout=1 sum=1 B=2 S=4 K=4 E=8 H=33 contents=3"},
    .lines = {"mesh=5 form=2 S=40 K=4 E=16 H=2100", "mesh=5 form=2 S=40 K=4 E=16 H=900 sum=1",
              "mesh=3 form=2 S=30 K=3 E=9 layout=1 sum=1 sum_type=2 H=1500",
              "mesh=3 form=2 S=20 K=3 E=9 layout=2 sum=1 coded=1 format=1 groups=12"},
    .rejections = rejections,
    .unchecked = " cluster_axis memory ",
    .rejected = "sharded",
    .attach = mesh_attach,
    .reroute = mesh_reroute,
    .calls = 700,
    .recorded = 300,
};
