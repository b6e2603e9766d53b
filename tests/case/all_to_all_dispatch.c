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

static void middle_dimensions(struct call *c)
{
    mesh_shape(c, "input", 4, (int64_t[]){1, 2, 3, 5});
}

static void three_copies(struct call *c)
{
    mesh_shape(c, "expert_mapping", 4, (int64_t[]){3, 1, 2, 2});
}

static void mapping_second_dimension(struct call *c)
{
    mesh_shape(c, "expert_mapping", 4, (int64_t[]){1, 2, 3, 2});
}

static void input_bytes(struct call *c)
{
    mesh_shape(c, "input", 4, (int64_t[]){2, 1, 3, INT64_C(1) << 61});
    mesh_shape(c, "tokens", 4, (int64_t[]){1, 4, 3, INT64_C(1) << 61});
}

static void too_few_rows(struct call *c)
{
    mesh_shape(c, "tokens", 2, (int64_t[]){1, 5});
    mesh_shape(c, "plane_tokens[0]", 2, (int64_t[]){1, 4});
    mesh_shape(c, "src", 2, (int64_t[]){1, 3});
}

static void one_row_less(struct call *c)
{
    case_field(c, "tokens")->now_shape[0]--;
    case_field(c, "src")->now_shape[0]--;
}

static void fewer_tokens(struct call *c)
{
    mesh_shape(c, "tokens", 2, (int64_t[]){11, 5});
}

static void shorter_metadata(struct call *c)
{
    mesh_shape(c, "metadata", 2, (int64_t[]){11, 2});
}

static void three_planes_and_scales(struct call *c)
{
    mesh_give(c, "planes[2]", "planes[0]");
    mesh_give(c, "plane_tokens[2]", "plane_tokens[0]");
    args_of(c)->num_planes = 3;
}

static void only_scales(struct call *c)
{
    args_of(c)->row_format = NULL;
    mesh_type(c, "tokens", case_field(c, "input")->type);
}

static void present_of_packed(struct call *c)
{
    mesh_give(c, "present", "rows_from");
    mesh_type(c, "present", SY_U8);
}

#define DEVICE_1(k, x, dim, n) \
    { \
        .kind = k, .field = x, .d = dim, .value = n, .device = 1 \
    }
#define SIZES "B=2 S=3 K=2 E=6 H=5 experts=1 "
#define RAGGED .line = SIZES "ragged=1 N=6 metadata"
#define EXPERT .line = SIZES "layout=2 align=4 planes=1 X=4 src"
static const struct rejection rejections[] = {
    MESH_VALUES,
    {"told another output_concat_dim", TOLD("output_concat_dim", 2)},
    {"output_concat_dim 3", BAD_SCALAR("output_concat_dim", 3, SY_ERR_VALUE, NULL, "3", NULL)},
    {"output_concat_dim -1", BAD_SCALAR("output_concat_dim", -1, SY_ERR_VALUE, NULL, "-1", NULL)},
    {"num_planes -1", BAD_SCALAR("num_planes", -1, SY_ERR_VALUE, NULL, "-1", "3")},
    {"num_planes 4", BAD_SCALAR("num_planes", 4, SY_ERR_VALUE, NULL, "4", "3")},
    {"a plane more", BAD_SCALAR("num_planes", 2, SY_ERR_NULL, "planes[1]", "is missing", NULL)},
    {"a plane that goes nowhere", NO_TENSOR("plane_tokens[0]"), .found = "is missing"},
    {"reuse_routing without routing", BAD_SCALAR("reuse_routing", 1, SY_ERR_NULL, "routing", NULL, NULL)},
    {"reuse of an empty routing", BAD_CALL(reuse_empty_routing, SY_ERR_STATE, "routing", "is empty", NULL)},
    {"reuse for other tokens", BAD_EXTENT("input", 0, 1, "has 3 tokens", "the 6 of the routing"),
     .line = SIZES "routing=2"},
    {"both middle dimensions of input above 1",
     BAD_CALL(middle_dimensions, SY_ERR_SHAPE, "input", "[1,2,3,5]", "1 in dimension 1 or 2")},
    {"expert_mapping in three copies", BAD_CALL(three_copies, SY_ERR_SHAPE, "expert_mapping", "3", NULL)},
    {"expert_mapping with a second dimension of 2",
     BAD_CALL(mapping_second_dimension, SY_ERR_SHAPE, "expert_mapping", "2", NULL)},
    {"no slots", BAD_EXTENT("expert_indices", 3, 0, "0", NULL)},
    {"no elements of a plane", BAD_EXTENT("planes[0]", 3, 0, "0", NULL)},
    {"tokens along the other dimension",
     BAD_SCALAR("output_concat_dim", 2, SY_ERR_SHAPE, "tokens", "[1,4,3,5]", "[1,2,6,5]")},
    {"input of 2^64 bytes", BAD_CALL(input_bytes, SY_ERR_OVERFLOW, "input|tokens", NULL, NULL)},
    {"long input where numbers differ",
     BAD_SCALAR("max_tokens", 9, SY_ERR_SHAPE, "input", "has rank 4 though max_tokens is given", "2")},
    {"more tokens than max_tokens", BAD_SCALAR("max_tokens", 5, SY_ERR_CAPACITY, "input", "6 tokens", "5"),
     RAGGED},
    {"an align of 2^31 - 1", BAD_SCALAR("align", INT32_MAX, SY_ERR_OVERFLOW, NULL, "2147483647", NULL),
     EXPERT},
    {"expert_rows 3", BAD_SCALAR("expert_rows", 3, SY_ERR_VALUE, NULL, "3", "a multiple of align, 4"),
     EXPERT},
    {"expert_rows of 2^31 rows",
     BAD_SCALAR("expert_rows", INT32_MAX / 4 * 4, SY_ERR_OVERFLOW, NULL, "for 6 experts", NULL), EXPERT},
    {"more tokens than expert_rows",
     BAD_SCALAR("expert_rows", 1, SY_ERR_CAPACITY, NULL, "is 1, want at least ", "the rows of expert 0"),
     .line = SIZES "layout=2 expert_rows=1"},
    {"too few rows", BAD_CALL(too_few_rows, SY_ERR_CAPACITY, "tokens", "has 1 rows", NULL), EXPERT},
    {"one row less", BAD_CALL(one_row_less, SY_ERR_CAPACITY, "tokens", NULL, NULL),
     .line = SIZES "layout=1 src contents=5"},
    {"fewer rows than tokens of the group",
     BAD_CALL(fewer_tokens, SY_ERR_CAPACITY, "", "tokens of device 0 has 11 rows", "at least 12"), RAGGED},
    {"fewer choices than tokens of the group",
     BAD_CALL(shorter_metadata, SY_ERR_CAPACITY, "", "present of device 0 has 11 rows", "at least 12"),
     RAGGED},
    {"2^32 rows", BAD_SCALAR("max_tokens", INT32_MAX, SY_ERR_OVERFLOW, "input", "times 2 rows", "2^31"),
     .inputs = true, RAGGED},
    {"rows that overlap", BAD_STRIDE("tokens", 2, 3, "[60,15,3,1]", "evenly spaced rows")},
    {"EXPERT tokens of rank 4", BAD_RANK("tokens", 4, ",5,1,1]", ",5]"), EXPERT},
    {"src of other rows", BAD_EXTENT("src", 0, 35, "35", NULL), EXPERT},
    {"present of packed rows",
     BAD_CALL(present_of_packed, SY_ERR_VALUE, "present", "is given for layout packed", "none"),
     .line = SIZES "layout=1 rows_from"},
    {"three planes and scales", BAD_CALL(three_planes_and_scales, SY_ERR_VALUE, "num_planes", "3", "0 to 2"),
     .line = SIZES "coded=1 format=7 planes=2"},
    {"scales without a format",
     BAD_CALL(only_scales, SY_ERR_VALUE, "scale_tokens", "is given", "none: there is no row_format"),
     .line = SIZES "coded=1 format=7"},
    {"numbers of two sizes", .spoil = {.kind = SPOIL_TYPE, .field = "input", .type = {4, 16, 1}, .device = 1},
     .want = SY_ERR_MISMATCH, .blame = "", .found = "device", .line = SIZES "coded=1 format=7 dense_type=0"},
    {"rows of two lengths", .spoil = DEVICE_1(SPOIL_EXTENT, "input", 3, 4),
     .second = DEVICE_1(SPOIL_EXTENT, "tokens", 3, 4), .want = SY_ERR_MISMATCH, .blame = "",
     .found = "device"},
    {"the lower device", .spoil = {.kind = SPOIL_NUMBER, .field = "expert_indices", .d = 7, .value = 6},
     .second = DEVICE_1(SPOIL_EXTENT, "tokens", 3, 4), .want = SY_ERR_INDEX, .found = "device 0"},
    {"the lower device, too", .spoil = DEVICE_1(SPOIL_NUMBER, "expert_indices", 7, 6),
     .second = {.kind = SPOIL_EXTENT, .field = "tokens", .d = 3, .value = 4}, .want = SY_ERR_SHAPE,
     .blame = "tokens", .found = "device 0"},
    {.name = NULL},
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
