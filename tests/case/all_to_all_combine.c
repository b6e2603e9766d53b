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

static sy_all_to_all_combine_args *args_of(struct call *c)
{
    return case_args(c);
}

static void odd_batches(struct call *c)
{
    mesh_shape(c, "input", 4, (int64_t[]){3, 3, 3, 5});
    mesh_shape(c, "expert_metadata", 4, (int64_t[]){1, 3, 3, 2});
}

static void packed_slots(struct call *c)
{
    mesh_shape(c, "input", 2, (int64_t[]){12, 5});
    args_of(c)->layout = SY_LAYOUT_PACKED;
}

static void expert_partial(struct call *c)
{
    mesh_shape(c, "input", 2, (int64_t[]){24, 5});
    args_of(c)->layout = SY_LAYOUT_EXPERT;
    args_of(c)->local_reduce = true;
}

static void one_row_less(struct call *c)
{
    case_field(c, "input")->now_shape[0]--;
}

static void bytes_added_up(struct call *c)
{
    mesh_type(c, "input", SY_U8);
    mesh_type(c, "output", SY_U8);
}

static void long_weights(struct call *c)
{
    mesh_shape(c, "weights", 4, (int64_t[]){1, 1, 6, 2});
}

static void weights_of_slots(struct call *c)
{
    mesh_give(c, "weights", "input");
}

static void written_with_sum(struct call *c)
{
    mesh_give(c, "written", "weights");
    mesh_type(c, "written", SY_U8);
    mesh_shape(c, "written", 2, (int64_t[]){2, 6});
}

/* The last slot of the last device's table names another expert. */
static void tables_differ(struct call *c)
{
    const struct operand *const x = &c->operand[c->info->n_tensors + 1];
    uint16_t expert;
    memcpy(&expert, x->block + x->first + 46, sizeof expert);
    call_apply(c, &(struct spoil){.kind = SPOIL_NUMBER,
                                  .field = "expert_metadata",
                                  .d = 23,
                                  .value = expert == 5 ? 0 : 5,
                                  .device = 1});
}

static void output_scales(struct call *c)
{
    mesh_give(c, "output_scales", "output");
}

static void only_scales(struct call *c)
{
    args_of(c)->row_format = NULL;
}

#define DEVICE_1(k, x, dim, n) \
    { \
        .kind = k, .field = x, .d = dim, .value = n, .device = 1 \
    }
#define SIZES "B=2 S=3 K=2 E=6 H=5 experts=1 "
#define SUM .line = SIZES "sum=1"
#define CODES .line = SIZES "coded=1 format=7 coded_results=1"
static const struct rejection rejections[] = {
    MESH_VALUES,
    {"told another output_shard_dim", TOLD("output_shard_dim", 2)},
    {"output_shard_dim 3", BAD_SCALAR("output_shard_dim", 3, SY_ERR_VALUE, NULL, "3", NULL), .inputs = true},
    {"an empty routing", BAD_CALL(mesh_empty_routing, SY_ERR_STATE, "routing", "is empty", NULL)},
    {"input of rank 2", BAD_RANK("input", 2, "2", NULL)},
    {"batches that do not divide", BAD_CALL(odd_batches, SY_ERR_SHAPE, "expert_metadata|input", "3", "2")},
    {"sequences that do not divide",
     BAD_SCALAR("output_shard_dim", 2, SY_ERR_SHAPE, "expert_metadata|input", "3", "2")},
    {"no slots", BAD_EXTENT("expert_metadata", 3, 0, "0", NULL)},
    {"local_reduce of three rows per token",
     BAD_SCALAR("local_reduce", 1, SY_ERR_SHAPE, "input", "has 3 rows per token", "1")},
    {"packed rows of three experts", BAD_CALL(packed_slots, SY_ERR_UNSUPPORTED, "layout", NULL, NULL)},
    {"expert rows of local_reduce", BAD_CALL(expert_partial, SY_ERR_UNSUPPORTED, "layout", NULL, NULL)},
    {"an align of 2^31 - 1", BAD_SCALAR("align", INT32_MAX, SY_ERR_OVERFLOW, NULL, "2147483647", NULL),
     .line = SIZES "layout=2"},
    {"rows for three of four experts", BAD_NUMBER("expert_mapping", 1, 1, SY_ERR_SHAPE, "3", "4"),
     .blame = "input"},
    {"local_reduce and two holders", BAD_NUMBER("expert_mapping", 1, 1, SY_ERR_ROUTING, "1", NULL),
     .code = SY_FAULT_DUPLICATE, .line = SIZES "local_reduce=1"},
    {"too few expert rows", BAD_SIZE("input", 0, 1, SY_ERR_CAPACITY, "has 1 rows", NULL),
     .line = SIZES "layout=2"},
    {"one row less", BAD_CALL(one_row_less, SY_ERR_CAPACITY, "input", NULL, NULL),
     .line = SIZES "layout=2 contents=5"},
    {"rows of other tokens", BAD_EXTENT("input", 1, 5, "has rows for 5 tokens", "6"), .line = SIZES "form=2"},
    {"tables of other tokens", .spoil = DEVICE_1(SPOIL_EXTENT, "output", 1, 5), .want = SY_ERR_MISMATCH,
     .blame = "", .line = SIZES "ragged=1 N=6"},
    {"2^32 rows",
     BAD_SCALAR("max_tokens", INT32_MAX, SY_ERR_OVERFLOW, "expert_metadata", "times 2 rows", "2^31"),
     .inputs = true, .line = SIZES "ragged=1 N=6"},
    {"sums of bytes", BAD_CALL(bytes_added_up, SY_ERR_DTYPE, "input", "u8", NULL), SUM},
    {"more tokens than expert_rows",
     BAD_SCALAR("expert_rows", 1, SY_ERR_CAPACITY, NULL, "is 1, want at least ", "the rows of expert 0"),
     .line = SIZES "layout=2 expert_rows=1"},
    {"tables that differ", BAD_CALL(tables_differ, SY_ERR_MISMATCH, "", "disagree", NULL)},
    {"weights without sum", BAD_CALL(weights_of_slots, SY_ERR_VALUE, "weights", "without sum", "none"),
     .line = SIZES "type=1"},
    {"weights of partial sums",
     BAD_SCALAR("local_reduce", 1, SY_ERR_VALUE, "weights", "for sums that have theirs already", "none"),
     SUM},
    {"written with sum", BAD_CALL(written_with_sum, SY_ERR_VALUE, "written", "is given with sum", "none"),
     SUM},
    {"scales of sums", BAD_CALL(output_scales, SY_ERR_VALUE, "output_scales", "is given with sum", "none"),
     .line = SIZES "sum=1 coded=1 format=7"},
    {"scales of rows as they are",
     BAD_CALL(output_scales, SY_ERR_VALUE, "output_scales", "is given", "none: there is no row_format"),
     .line = SIZES "type=1"},
    {"long weights where numbers differ", BAD_CALL(long_weights, SY_ERR_SHAPE, "weights", "rank 4", NULL),
     .line = SIZES "sum=1 ragged=1 N=6"},
    {"scales without a format",
     BAD_CALL(only_scales, SY_ERR_VALUE, "input_scales", "is given", "none: there is no row_format"), CODES},
    {"codes as sums", BAD_SCALAR("sum", 1, SY_ERR_DTYPE, "output", "i8", "f16, f32 or bf16"), CODES},
    {"output one batch short", BAD_EXTENT("output", 1, 1, "[2,1,3,5]", "[2,2,3,5]")},
    {"rows that overlap", BAD_STRIDE("output", 2, 1, "[30,15,1,1]", "evenly spaced rows")},
    {"weights apart", BAD_STRIDE("weights", 3, 2, "[6,6,2,2]", "contiguous"), SUM},
    {"output_scales of rank 3", BAD_RANK("output_scales", 3, NULL, NULL), CODES},
    {"output of numbers", BAD_TYPE("output", kDLBfloat, 16, 1), .found = "bf16", .wanted = "i8", CODES},
    {"rows of two lengths", .spoil = DEVICE_1(SPOIL_EXTENT, "input", 3, 4),
     .second = DEVICE_1(SPOIL_EXTENT, "output", 3, 4), .want = SY_ERR_MISMATCH, .blame = "",
     .found = "device"},
    {"the lower device", .spoil = {.kind = SPOIL_NUMBER, .field = "expert_metadata", .d = 7, .value = 6},
     .second = DEVICE_1(SPOIL_EXTENT, "output", 3, 4), .want = SY_ERR_INDEX, .found = "device 0"},
    {.name = NULL},
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
