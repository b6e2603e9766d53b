/*
 * Two ways home: all rows of a token, weighted and added there; or local_reduce first, then one row per device, added
 * there. The second rounds once more for every device, so the two agree within that, and each of them to the bit
 * whatever the number of threads.
 */
#include "mesh_cases.h"
#include "support.h"

#include <math.h>

enum { B = 2, S = 5, N = 10, D = 4, T = 40, K = 3, E = 8, H = 33 };

static void *copy_of(const void *from, size_t bytes)
{
    void *memory = malloc(bytes + 1);
    assert_non_null(memory);
    return memcpy(memory, from, bytes);
}

/* Rows of experts and weights in [-1, 1): a sum of them has no surprises. */
static void fill_bf16(uint64_t *rng, unsigned char *rows, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(rows + 2 * i, &(uint16_t){bf16_round(2 * rng_unit(rng) - 1)}, 2);
}

static void make_slots(struct mesh_case *m, sy_a2a_layout layout, sy_a2a_replica replica)
{
    uint64_t rng = 7;
    uint16_t mapping[E * D] = {0};
    int64_t chosen[N * K];
    float weights[N * K];
    *m = (struct mesh_case){.a2a = {.mesh = {2, 2},
                                    .dim = 1,
                                    .layout = layout,
                                    .align = 2,
                                    .replica = replica,
                                    .node_size = 2,
                                    .batch = B,
                                    .seq = S,
                                    .experts = E,
                                    .slots = K},
                            .hidden = H,
                            .type = SY_BF16,
                            .index_type = SY_U16,
                            .weight_type = SY_F32,
                            .mask_type = SY_U8,
                            .form = 2,
                            .sum = true,
                            .weighted = true};
    for (int e = 0; e < E; e++)
        for (int d = 0; d < D; d++) /* with a rule some experts have two hosts, or all devices */
            mapping[e * D + d] = d == e * 3 % D || (replica && ((e % 3 == 0 && d == 2) || e == 5));
    m->mapping = copy_of(mapping, sizeof mapping);
    m->a2a.mapping = m->mapping;
    for (int d = 0; d < D; d++) {
        for (int i = 0; i < N * K; i++) {
            chosen[i] = rng_below(&rng, E + 1) - 1; /* some none, some twice */
            weights[i] = (float)rng_unit(&rng);
        }
        m->a2a.tokens[d] = N;
        m->chosen[d] = copy_of(chosen, sizeof chosen);
        m->a2a.chosen[d] = m->chosen[d];
        m->weights[d] = copy_of(weights, sizeof weights);
    }
    for (int d = 0; d < D; d++) {
        const int64_t rows = oracle_a2a_inputs(&m->a2a, d, false);
        m->results[d] = calloc((size_t)rows + 1, H * 2);
        assert_non_null(m->results[d]);
        fill_bf16(&rng, m->results[d], rows * H);
    }
}

/* What device d makes of its rows: one per token that has some. */
static unsigned char *reduced(sy_ctx *ctx, const struct mesh_case *m, const struct a2a_case *to, int d)
{
    uint16_t table[T * K];
    float weights[T * K];
    const bool padded = m->a2a.layout == SY_LAYOUT_PADDED;
    int64_t rows = oracle_a2a_inputs(&m->a2a, d, false), packed = oracle_a2a_inputs(to, d, true);
    int64_t slots_shape[] = {T, K}, mapping_shape[] = {E, D},
            in_shape[] = {oracle_a2a_locals(&m->a2a, d), T, H}, out_shape[] = {packed, H};
    int64_t flat_shape[] = {rows, H};
    unsigned char *out = calloc((size_t)packed + 1, H * 2);
    assert_non_null(out);
    for (int s = 0; s < D; s++)
        for (int i = 0; i < N * K; i++) {
            table[s * N * K + i] = (uint16_t)m->chosen[s][i];
            memcpy(&weights[s * N * K + i], m->weights[s] + 4 * i, 4);
        }
    const DLTensor input = padded ? sy_tensor(m->results[d], SY_BF16, 3, in_shape)
                                  : sy_tensor(m->results[d], SY_BF16, 2, flat_shape),
                   metadata = sy_tensor(table, SY_U16, 2, slots_shape),
                   mapping = sy_tensor(m->mapping, SY_U16, 2, mapping_shape),
                   weighted = sy_tensor(weights, SY_F32, 2, slots_shape),
                   output = sy_tensor(out, SY_BF16, 2, out_shape);
    expect_status(ctx,
                  sy_local_reduce(ctx, &(sy_local_reduce_args){.input = &input,
                                                               .expert_metadata = &metadata,
                                                               .expert_mapping = &mapping,
                                                               .weights = &weighted,
                                                               .device = d,
                                                               .layout = m->a2a.layout,
                                                               .align = m->a2a.align,
                                                               .replica = m->a2a.replica,
                                                               .node_size = m->a2a.node_size,
                                                               .output = &output}),
                  SY_OK);
    return out;
}

/* Sum of the sizes of what is added to an element at home d. */
static double magnitude(const struct mesh_case *m, int d, int64_t n, int64_t h)
{
    double sum = 0;
    for (int64_t k = 0; k < K; k++) {
        const struct a2a_from from = oracle_a2a_combine(&m->a2a, d, n, k, false);
        uint16_t bits;
        float weight;
        if (from.device < 0)
            continue;
        memcpy(&bits, m->results[from.device] + 2 * (from.row * H + h), 2);
        memcpy(&weight, m->weights[d] + 4 * (n * K + k), 4);
        sum += fabs(bf16_value(bits) * weight);
    }
    return sum;
}

static void expect_close(const struct mesh_case *m, const struct mesh_call *all, const struct mesh_call *sums)
{
    int differ = 0;
    for (int d = 0; d < D; d++)
        for (int64_t i = 0; i < (int64_t)N * H; i++) {
            uint16_t a, b;
            memcpy(&a, all->tensors[MESH_TOKENS][d].mem + 2 * i, 2);
            memcpy(&b, sums->tensors[MESH_TOKENS][d].mem + 2 * i, 2);
            differ += a != b;
            /* A rounding to bf16 moves a number by 2^-9 of itself at most: one for each of three devices and one more
               at home, against one at home; the f32 sums inside add next to nothing. */
            const double bound = 5.01 / 512 * magnitude(m, d, i / H, i % H);
            if (fabs(bf16_value(a) - bf16_value(b)) > bound)
                fail_msg("device %d, element %d: %g and %g", d, (int)i, bf16_value(a), bf16_value(b));
        }
    assert_true(differ > 0); /* or the second rounding was not there */
}

struct way {
    const char *name;
    sy_a2a_layout layout;
    sy_a2a_replica replica;
};

static void two_ways_home(void **state)
{
    const sy_a2a_layout layout = ((const struct way *)*state)->layout;
    const sy_a2a_replica replica = ((const struct way *)*state)->replica;
    unsigned char *first[D] = {NULL};
    sy_comm *comm = NULL;
    char why[256];
    assert_int_equal(sy_comm_create_local(&comm, (sy_mesh){2, 2}, NULL), SY_OK);
    for (int threads = 1; threads <= 3; threads++) {
        struct mesh_case slots, partial;
        sy_ctx *ctx = test_ctx(threads, NULL);
        make_slots(&slots, layout, replica);
        make_slots(&partial, layout, replica);
        partial.a2a.layout = layout == SY_LAYOUT_EXPERT ? SY_LAYOUT_PACKED : SY_LAYOUT_PADDED;
        partial.local_reduce = true;
        partial.weighted = false;
        for (int d = 0; d < D; d++) {
            free(partial.results[d]);
            partial.results[d] = reduced(ctx, &slots, &partial.a2a, d);
            const size_t bytes = (size_t)oracle_a2a_inputs(&partial.a2a, d, true) * H * 2;
            if (first[d] == NULL)
                first[d] = copy_of(partial.results[d], bytes);
            expect_bytes(partial.results[d], first[d], bytes);
        }
        struct mesh_call *all = mesh_combine_new(comm, &slots, NULL),
                         *sums = mesh_combine_new(comm, &partial, NULL);
        expect_status(ctx, mesh_call_run(ctx, comm, all), SY_OK);
        expect_status(ctx, mesh_call_run(ctx, comm, sums), SY_OK);
        if (!mesh_call_check(all, why, sizeof why) || !mesh_call_check(sums, why, sizeof why))
            fail_msg("%s", why);
        expect_close(&slots, all, sums);
        mesh_call_free(all);
        mesh_call_free(sums);
        mesh_case_free(&slots);
        mesh_case_free(&partial);
        sy_ctx_destroy(ctx);
    }
    for (int d = 0; d < D; d++)
        free(first[d]);
    sy_comm_destroy(comm);
}

int main(void)
{
    static const struct way ways[] = {
        {"padded", SY_LAYOUT_PADDED, SY_A2A_REPLICA_ALL},
        {"by expert", SY_LAYOUT_EXPERT, SY_A2A_REPLICA_ALL},
        {"padded, the first host", SY_LAYOUT_PADDED, SY_A2A_REPLICA_FIRST},
        {"by expert, hosts in turn", SY_LAYOUT_EXPERT, SY_A2A_REPLICA_ROUND_ROBIN},
        {"padded, by a hash", SY_LAYOUT_PADDED, SY_A2A_REPLICA_HASH},
        {"by expert, by a hash", SY_LAYOUT_EXPERT, SY_A2A_REPLICA_HASH},
        {"padded, balanced", SY_LAYOUT_PADDED, SY_A2A_REPLICA_BALANCED},
        {"by expert, balanced", SY_LAYOUT_EXPERT, SY_A2A_REPLICA_BALANCED},
        {"padded, the nearest host", SY_LAYOUT_PADDED, SY_A2A_REPLICA_LOCAL},
        {"by expert, the nearest host", SY_LAYOUT_EXPERT, SY_A2A_REPLICA_LOCAL},
    };
    struct test_list list = {0};
    for (size_t i = 0; i < COUNT_OF(ways); i++)
        test_add(&list, ways[i].name, two_ways_home, (void *)&ways[i]);
    return test_run(&list, "op_all_to_all_reduced");
}
