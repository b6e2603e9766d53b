/*
 * moe_locations: the slot of each choice inside the expert that it names.
 */
#include "case.h"

#include <math.h>

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

struct locations_case {
    int64_t choices, samples, experts; /* k, S, E */
    const int32_t *indices;            /* [k,S] */
    const double *importance;          /* [S]; NULL: sample order */
};

struct ranked {
    double importance;
    int64_t sample;
};

static int sign_of(int64_t difference)
{
    return (difference > 0) - (difference < 0);
}

/* Larger first; NaN behind every number; equal ones, both zeros among them, by sample. */
static int by_importance(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    if (isnan(a->importance) != isnan(b->importance))
        return isnan(a->importance) ? 1 : -1;
    if (a->importance > b->importance)
        return -1;
    if (a->importance < b->importance)
        return 1;
    return sign_of(a->sample - b->sample);
}

struct entry {
    int64_t expert, visit, at; /* at: position in [k,S] */
};

static int by_expert(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    return a->expert != b->expert ? sign_of(a->expert - b->expert) : sign_of(a->visit - b->visit);
}

/* Choices sorted by expert, then by the order in which they are visited: a location is the place in the run of its expert. Both
   orders come from qsort with every tie decided, so nothing here counts, and nothing depends on stability. */
static void locate(struct call *c, const struct locations_case *in, int32_t *locations, int64_t *counts)
{
    const int64_t n = in->choices * in->samples;
    struct ranked *rank = case_memory(c, (size_t)in->samples * sizeof *rank);
    struct entry *entries = case_memory(c, (size_t)n * sizeof *entries);
    for (int64_t i = 0; i < in->samples; i++)
        rank[i] = (struct ranked){in->importance ? in->importance[i] : 0, i};
    qsort(rank, (size_t)in->samples, sizeof *rank, by_importance);
    for (int64_t t = 0; t < in->choices; t++)
        for (int64_t r = 0; r < in->samples; r++) {
            const int64_t at = t * in->samples + rank[r].sample;
            entries[at] = (struct entry){in->indices[at], t * in->samples + r, at};
        }
    qsort(entries, (size_t)n, sizeof *entries, by_expert);
    for (int64_t e = 0; counts != NULL && e < in->experts; e++)
        counts[e] = 0;
    for (int64_t i = 0, first = 0; i < n; i++) {
        const int64_t e = entries[i].expert;
        const int real = e >= 0 && e < in->experts;
        first = e == entries[first].expert ? first : i;
        locations[entries[i].at] = real ? (int32_t)(i - first) : -1;
        if (real && counts != NULL)
            counts[e]++;
    }
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
    locate(c, &in, case_want(c, "locations"), case_want(c, "counts"));
}

static const struct rejection rejections[] = {
    /* Each dimension fits 31 bits, the product is 2^31. */
    {"indices.shape=[2^15,2^16] importance.shape[0]=2^16", SY_ERR_OVERFLOW, "2147483648", "2147483647"},
    {"indices.shape=[2^31,2^31] importance.shape[0]=2^31", SY_ERR_OVERFLOW, "2147483648"},
    {"locations.ndim=1", SY_ERR_SHAPE, "[2]", "[2,9]"},
    {.change = NULL},
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
