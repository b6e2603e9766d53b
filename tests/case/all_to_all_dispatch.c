/*
 * all_to_all_dispatch: tokens to the devices of their experts.
 */
#include "mesh.h"

static void make(struct call *c)
{
    mesh_make(c, false);
}

static void oracle(struct call *c)
{
    const sy_all_to_all_dispatch_args *const a = case_args(c);
    mesh_oracle(c);
    case_note(c, "reused", a->reuse_routing);
    case_note(c, "packed", a->layout == SY_LAYOUT_PACKED);
    case_note(c, "experts of fixed rows", a->expert_rows > 0);
    case_note(c, "three planes", a->num_planes == 3);
    case_note(c, "codes and planes", a->row_format != NULL && a->num_planes > 0);
    case_note(c, "kept", a->fill == SY_FILL_KEEP && a->layout == SY_LAYOUT_PADDED);
}

static sy_all_to_all_dispatch_args *args_of(struct call *c)
{
    return case_args(c);
}

static void reuse_empty_routing(struct call *c)
{
    mesh_empty_routing(c);
    args_of(c)->reuse_routing = true;
}

static void one_row_less(struct call *c)
{
    case_field(c, "tokens")->now_shape[0]--;
    case_field(c, "src")->now_shape[0]--;
}

#define SIZES "B=2 S=3 K=2 E=6 H=5 experts=1 "
#define RAGGED .line = SIZES "ragged=1 N=6 metadata"
#define EXPERT .line = SIZES "layout=2 align=4 planes=1 X=4 src"
static const struct rejection rejections[] = {
    MESH_VALUES,
    {"output_concat_dim=2", TOLD},
    {"output_concat_dim=3", SY_ERR_VALUE, "3"},
    {"output_concat_dim=-1", SY_ERR_VALUE, "-1"},
    {"num_planes=-1", SY_ERR_VALUE, "-1", "3"},
    {"num_planes=4", SY_ERR_VALUE, "4", "3"},
    {"num_planes=2", SY_ERR_NULL, "is missing", .blame = "planes[1]"},
    {"plane_tokens[0]=-", SY_ERR_NULL, "is missing"},
    {"reuse_routing=1", SY_ERR_NULL, .blame = "routing"},
    {"", SY_ERR_STATE, "is empty", .blame = "routing", .with = reuse_empty_routing},
    {"input.shape[0]=1", SY_ERR_SHAPE, "has 3 tokens", "the 6 of the routing", .line = SIZES "routing=2"},
    {"input@*.shape=[1,2,3,5]", SY_ERR_SHAPE, "[1,2,3,5]", "1 in dimension 1 or 2"},
    {"expert_mapping@*.shape=[3,1,2,2]", SY_ERR_SHAPE, "3"},
    {"expert_mapping@*.shape=[1,2,3,2]", SY_ERR_SHAPE, "2"},
    {"expert_indices.shape[3]=0", SY_ERR_SHAPE, "0"},
    {"planes[0].shape[3]=0", SY_ERR_SHAPE, "0"},
    {"output_concat_dim=2", SY_ERR_SHAPE, "[1,4,3,5]", "[1,2,6,5]", .blame = "tokens", .late = true},
    {"input@*.shape=[2,1,3,2^61] tokens@*.shape=[1,4,3,2^61]", SY_ERR_OVERFLOW, .blame = "input|tokens"},
    {"max_tokens=9", SY_ERR_SHAPE, "has rank 4 though max_tokens is given", "2", .blame = "input"},
    {"max_tokens=5", SY_ERR_CAPACITY, "6 tokens", "5", .blame = "input", RAGGED},
    {"align=2^31-1", SY_ERR_OVERFLOW, "2147483647", EXPERT},
    {"expert_rows=3", SY_ERR_VALUE, "3", "a multiple of align, 4", EXPERT},
    {"expert_rows=2147483644", SY_ERR_OVERFLOW, "for 6 experts", EXPERT},
    {"expert_rows=1", SY_ERR_CAPACITY, "is 1, want at least ", "the rows of expert 0",
     .line = SIZES "layout=2 expert_rows=1", .late = true},
    {"tokens@*.shape=[1,5] plane_tokens[0]@*.shape=[1,4] src@*.shape=[1,3]", SY_ERR_CAPACITY, "has 1 rows",
     EXPERT},
    {"", SY_ERR_CAPACITY, .blame = "tokens", .with = one_row_less, .line = SIZES "layout=1 src contents=5",
     .late = true},
    {"tokens@*.shape=[11,5]", SY_ERR_CAPACITY, "tokens of device 0 has 11 rows", "at least 12", .blame = "",
     RAGGED},
    {"metadata@*.shape=[11,2]", SY_ERR_CAPACITY, "present of device 0 has 11 rows", "at least 12",
     .blame = "", RAGGED},
    {"max_tokens=2^31-1", SY_ERR_OVERFLOW, "times 2 rows", "2^31", .blame = "input", RAGGED},
    {"tokens.strides[2]=3", SY_ERR_STRIDE, "[60,15,3,1]", "evenly spaced rows"},
    {"tokens.ndim=4", SY_ERR_SHAPE, ",5,1,1]", ",5]", EXPERT},
    {"src.shape[0]=35", SY_ERR_SHAPE, "35", EXPERT},
    {"present@*=rows_from present@*.dtype=u8", SY_ERR_VALUE, "is given for layout packed", "none",
     .line = SIZES "layout=1 rows_from"},
    {"num_planes=3 planes[2]@*=planes[0] plane_tokens[2]@*=plane_tokens[0]", SY_ERR_VALUE, "3", "0 to 2",
     .line = SIZES "coded=1 format=7 planes=2"},
    {"row_format=- tokens@*.dtype=f32", SY_ERR_VALUE, "is given", "none: there is no row_format",
     .blame = "scale_tokens", .line = SIZES "coded=1 format=7", .late = true},
    {"input@1.dtype=bf16", SY_ERR_MISMATCH, "device", .blame = "",
     .line = SIZES "coded=1 format=7 dense_type=0", .late = true},
    {"input@1.shape[3]=4 tokens@1.shape[3]=4", SY_ERR_MISMATCH, "device", .blame = "", .late = true},
    {"expert_indices.data[7]=6 tokens@1.shape[3]=4", SY_ERR_INDEX, "device 0"},
    {"expert_indices@1.data[7]=6 tokens.shape[3]=4", SY_ERR_SHAPE, "device 0", .blame = "tokens"},
    {.change = NULL},
};

const struct op_case case_all_to_all_dispatch = {
    .name = "all_to_all_dispatch",
    .make = make,
    .oracle = oracle,
    .hard = {MESH_HARD, "reused", "packed", "experts of fixed rows", "three planes", "codes and planes",
             "kept"},
    .small = SIZES "planes=1 X=4 plane_type=1 metadata present expert_counts rows_from rows_to",
    .shapes = {"mesh=6 replica=5 node=2 routing=2 B=2 S=3 K=3 E=8 experts=4"},
    .lines = {"mesh=5 form=2 S=40 K=4 E=16 H=2100",
              "mesh=5 form=2 S=40 K=4 E=16 H=900 layout=2 expert_counts",
              "mesh=3 form=2 S=30 K=3 E=9 layout=1 coded=1 format=1 groups=12 planes=2 src"},
    .rejections = rejections,
    .unchecked = " cluster_axis memory ",
    .rejected = "sharded",
    .attach = mesh_attach,
    .reroute = mesh_reroute,
    .calls = 700,
    .recorded = 300,
};
