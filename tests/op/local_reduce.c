/*
 * local_reduce between a dispatch and a combine, through a mesh.
 */
#include "support.h"

enum {
    MESH_DEVICES = 4,
    MESH_GROUP = 2,
    MESH_B = 2,
    MESH_S = 2,
    MESH_E = 6,
    MESH_H = 5,
    MESH_K = 300 /* at most */
};
enum { MESH_N = MESH_B * MESH_S, MESH_T = MESH_GROUP * MESH_N, MESH_ROWS = MESH_T * MESH_K + MESH_E };

/* A 2x2 mesh whose rows exchange; every row of the mesh has all experts once. */
struct mesh_case {
    float x[MESH_DEVICES][MESH_N][MESH_H], home[MESH_DEVICES][MESH_N][MESH_H];
    float rows[MESH_DEVICES][MESH_ROWS][MESH_H], sums[MESH_DEVICES][MESH_T][MESH_H];
    int slots;
    uint16_t index[MESH_DEVICES][MESH_N * MESH_K], table[MESH_DEVICES][MESH_T * MESH_K];
    float weights[MESH_DEVICES][MESH_N * MESH_K], all_weights[MESH_DEVICES][MESH_T * MESH_K];
    uint16_t mapping[MESH_E][MESH_DEVICES];
};

/* Whole numbers, so that no sum is rounded. */
static void make_mesh(struct mesh_case *c, uint64_t *rng, bool replicas)
{
    for (int e = 0; e < MESH_E; e++)
        for (int d = 0; d < MESH_DEVICES; d++)
            c->mapping[e][d] = d % MESH_GROUP == e % MESH_GROUP || (replicas && e % 3 == 1);
    for (int d = 0; d < MESH_DEVICES; d++)
        for (int n = 0; n < MESH_N; n++) {
            const int t = n / MESH_S * MESH_GROUP * MESH_S + d % MESH_GROUP * MESH_S + n % MESH_S;
            for (int h = 0; h < MESH_H; h++)
                c->x[d][n][h] = (float)(rng_below(rng, 201) - 100);
            for (int k = 0; k < c->slots; k++) {
                const int at = n * c->slots + k;
                c->index[d][at] = (uint16_t)(rng_below(rng, 7) == 0 ? 65535 : rng_below(rng, MESH_E));
                c->weights[d][at] = (float)rng_below(rng, 9);
                for (int q = 0; q < MESH_GROUP; q++) /* to all of its row of the mesh */
                    c->all_weights[d / MESH_GROUP * MESH_GROUP + q][t * c->slots + k] = c->weights[d][at];
            }
        }
}

static void run_mesh(struct mesh_case *c, sy_ctx *ctx, sy_comm *comm, sy_a2a_replica replica)
{
    int64_t x_shape[] = {MESH_B, 1, MESH_S, MESH_H}, index_shape[] = {MESH_B, 1, MESH_S, c->slots},
            rows_shape[] = {MESH_ROWS, MESH_H}, sums_shape[] = {MESH_T, MESH_H},
            table_shape[] = {1, MESH_B, MESH_S * MESH_GROUP, c->slots}, home_shape[] = {MESH_N, MESH_H},
            hosts_shape[] = {MESH_E, MESH_DEVICES}, weights_shape[] = {MESH_T, c->slots};
    DLTensor x[MESH_DEVICES], index[MESH_DEVICES], rows[MESH_DEVICES], table[MESH_DEVICES],
        sums[MESH_DEVICES], home[MESH_DEVICES], hosts = sy_tensor(c->mapping, SY_U16, 2, hosts_shape);
    for (int d = 0; d < MESH_DEVICES; d++) {
        x[d] = sy_tensor(c->x[d], SY_F32, 4, x_shape);
        index[d] = sy_tensor(c->index[d], SY_U16, 4, index_shape);
        rows[d] = sy_tensor(c->rows[d], SY_F32, 2, rows_shape);
        table[d] = sy_tensor(c->table[d], SY_U16, 4, table_shape);
        sums[d] = sy_tensor(c->sums[d], SY_F32, 2, sums_shape);
        home[d] = sy_tensor(c->home[d], SY_F32, 2, home_shape);
    }
    const sy_all_to_all_dispatch_args dispatch = {.input = x,
                                                  .expert_indices = index,
                                                  .expert_mapping = &hosts,
                                                  .cluster_axis = SY_AXIS_1,
                                                  .output_concat_dim = 2,
                                                  .layout = SY_LAYOUT_EXPERT,
                                                  .align = 2,
                                                  .replica = replica,
                                                  .node_size = 1,
                                                  .tokens = rows,
                                                  .metadata = table};
    expect_status(ctx, sy_all_to_all_dispatch(ctx, comm, &dispatch), SY_OK);
    for (int d = 0; d < MESH_DEVICES; d++) {
        DLTensor weights = sy_tensor(c->all_weights[d], SY_F32, 2, weights_shape);
        const sy_local_reduce_args reduce_args = {.input = &rows[d],
                                                  .expert_metadata = &table[d],
                                                  .expert_mapping = &hosts,
                                                  .weights = &weights,
                                                  .device = d,
                                                  .layout = SY_LAYOUT_EXPERT,
                                                  .align = 2,
                                                  .output_concat_dim = 2,
                                                  .group_size = MESH_GROUP,
                                                  .replica = replica,
                                                  .node_size = 1,
                                                  .output = &sums[d]};
        expect_status(ctx, sy_local_reduce(ctx, &reduce_args), SY_OK);
    }
    const sy_all_to_all_combine_args combine = {.input = sums,
                                                .expert_metadata = table,
                                                .expert_mapping = &hosts,
                                                .local_reduce = true,
                                                .sum = true,
                                                .cluster_axis = SY_AXIS_1,
                                                .output_shard_dim = 2,
                                                .layout = SY_LAYOUT_PACKED,
                                                .replica = replica,
                                                .node_size = 1,
                                                .output = home};
    expect_status(ctx, sy_all_to_all_combine(ctx, comm, &combine), SY_OK);
}

/* Experts that change nothing: every token comes home times the weights of its live slots. */
static void there_and_back(void **state)
{
    static struct mesh_case c;
    sy_comm *comm = NULL;
    uint64_t rng = 41;
    (void)state;
    assert_int_equal(sy_comm_create_local(&comm, (sy_mesh){2, 2}, NULL), SY_OK);
    for (int round = 0; round < 24; round++) {
        const sy_a2a_replica replica = (sy_a2a_replica)(round % 6);
        c.slots = round % 12 < 6 ? 3 : MESH_K; /* so many are ranked by several blocks of a device */
        make_mesh(&c, &rng, replica != SY_A2A_REPLICA_ALL);
        run_mesh(&c, test_contexts[round % n_test_contexts], comm, replica);
        for (int d = 0; d < MESH_DEVICES; d++)
            for (int n = 0; n < MESH_N; n++) {
                float weight = 0;
                for (int k = 0; k < c.slots; k++) {
                    const int first = n * c.slots, at = first + k;
                    bool live = c.index[d][at] != 65535;
                    for (int before = first; before < at; before++)
                        live = live && c.index[d][before] != c.index[d][at];
                    weight += live ? c.weights[d][at] : 0;
                }
                for (int h = 0; h < MESH_H; h++)
                    assert_true(c.home[d][n][h] == weight * c.x[d][n][h]);
            }
    }
    sy_comm_destroy(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(there_and_back)};
    return cmocka_run_group_tests_name("op_local_reduce", tests, test_open_contexts, test_close_contexts);
}
