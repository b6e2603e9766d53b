/*
 * moe_locations: the slot of each choice inside the expert that it names.
 */
#include "case.h"

#include "oracle/moe_locations.h"

static void make(struct call *c)
{
    sy_moe_locations_args *const a = case_args(c);
    case_size(c, "k", 0, 4, 6);
    case_size(c, "S", 0, 90, 2000);
    a->num_experts = case_size(c, "E", 0, 20, 600);
    if (case_chance(c, "any", 12)) { /* scratch depends on the choices then */
        a->num_experts = INT64_MAX;
        case_leave(c, "counts");
    }
    case_extent(c, "E", a->num_experts);
    const int64_t most = a->num_experts > 1 << 30 ? 9 : a->num_experts;
    case_fill_indices(c, case_in(c, "indices"), case_chance(c, "skewed", 3) ? most / 8 + 1 : most, 16);
    if (case_flag(c, "importance"))
        case_fill_floats(c, case_in(c, "importance"));
}

static void oracle(struct call *c)
{
    const sy_moe_locations_args *const a = case_args(c);
    const struct operand *const indices = case_field(c, "indices"), *const x = case_field(c, "importance");
    const int64_t samples = indices->shape[indices->rank - 1], n = case_count(indices);
    struct locations_case in = {.samples = samples, .experts = a->num_experts};
    double *const importance = case_memory(c, (size_t)samples * sizeof *importance);
    in.choices = indices->rank == 2 ? indices->shape[0] : 1;
    in.indices = case_dense(c, "indices");
    in.importance = x->given ? importance : NULL;
    for (int64_t i = 0; x->given && i < samples; i++) {
        importance[i] = case_real(x, i);
        case_note(c, "NaN", importance[i] != importance[i]);
        case_note(c, "-0", importance[i] == 0 && case_get(x, i) != 0);
        case_note(c, "tie", i > 0 && importance[i] == importance[i - 1]);
    }
    for (int64_t i = 0; i < n; i++)
        case_note(c, "outside", in.indices[i] < 0 || in.indices[i] >= a->num_experts);
    case_note(c, "any number of experts", n > 0 && a->num_experts == INT64_MAX);
    c->query.rows = n;
    oracle_moe_locations(&in, case_want(c, "locations"), case_want(c, "counts"));
}

static void choices_of(struct call *c, int64_t choices, int64_t samples)
{
    case_field(c, "indices")->now_shape[0] = choices;
    case_field(c, "indices")->now_shape[1] = case_field(c, "importance")->now_shape[0] = samples;
}

/* Each dimension fits 31 bits, the product is 2^31. */
static void one_location_past_int32(struct call *c)
{
    choices_of(c, 1 << 15, 1 << 16);
}

static void bytes_past_int64(struct call *c)
{
    choices_of(c, INT64_C(1) << 31, INT64_C(1) << 31);
}

static const struct rejection rejections[] = {
    {"2^31 locations",
     BAD_CALL(one_location_past_int32, SY_ERR_OVERFLOW, "indices", "2147483648", "2147483647"),
     .inputs = true},
    {"indices of 2^64 bytes", BAD_CALL(bytes_past_int64, SY_ERR_OVERFLOW, "indices", "2147483648", NULL),
     .inputs = true},
    {"locations of another form", BAD_RANK("locations", 1, "[2]", "[2,9]")},
    {.name = NULL},
};

const struct op_case case_moe_locations = {
    .name = "moe_locations",
    .make = make,
    .oracle = oracle,
    .hard = {"NaN", "-0", "tie", "outside", "any number of experts"},
    .small = "k=2 S=9 E=4 importance counts",
    .lines = {"k=1 S=200003 E=2 counts", "k=3 S=70001 E=64 counts", "k=8 S=9001 E=257 skewed",
              "k=1 S=65537 E=40000 counts", "k=3 S=2003 E=70001 counts",
              "k=3 S=2003 E=70001 importance importance=f16 counts", "k=2 S=60013 E=16 importance",
              "k=3 S=40009 E=5 importance importance=bf16 counts"},
    .rejections = rejections,
    .calls = 400,
};
