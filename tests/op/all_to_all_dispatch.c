/*
 * all_to_all_dispatch on a mesh inside this process: the worked examples, random problems of every kind against the
 * oracle, and what must not change a result: hints, threads, kernel tables, the way a call is waited for.
 */
#include "mesh_cases.h"
#include "support.h"

static const sy_mesh meshes[] = {{1, 1}, {1, 2}, {2, 1}, {1, 3}, {2, 2}, {1, 5},
                                 {2, 3}, {3, 2}, {1, 8}, {2, 4}, {4, 2}, {8, 1}};

static sy_comm *local_comm(sy_mesh mesh)
{
    sy_comm *comm = NULL;
    char error[256] = "";
    const sy_comm_options options = {.max_inflight = 3, .error = error, .error_bytes = sizeof error};
    if (sy_comm_create_local(&comm, mesh, &options) != SY_OK)
        fail_msg("no comm: %s", error);
    return comm;
}

static void expect_call(const struct mesh_call *call)
{
    char why[256];
    if (!mesh_call_check(call, why, sizeof why))
        fail_msg("%s", why);
}

/* ---- The worked examples ------------------------------------------------------------------------------ */

static void example(void **state)
{
    const int number = (int)(uintptr_t)*state;
    char why[256];
    struct mesh_case m;
    sy_ctx *ctx = test_ctx(2, NULL);
    sy_comm *comm = local_comm(mesh_example_mesh(number));
    mesh_example_make(&m, number);
    struct mesh_call *call = mesh_dispatch_new(comm, &m, NULL);
    if (!mesh_example_agrees(call, number, why, sizeof why))
        fail_msg("%s", why);
    expect_status(ctx, mesh_call_run(ctx, comm, call), SY_OK);
    expect_call(call);
    mesh_call_free(call);
    mesh_case_free(&m);
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
}

/* ---- Random problems ---------------------------------------------------------------------------------- */

static void random_cases(void **state)
{
    const sy_mesh mesh = *(const sy_mesh *)*state;
    char why[400];
    sy_ctx *ctxs[] = {test_ctx(1, "scalar"), test_ctx(3, NULL)};
    sy_comm *comm = local_comm(mesh);
    for (int i = 0; i < mesh_case_count(mesh); i++)
        for (size_t c = 0; c < COUNT_OF(ctxs); c++)
            if (!run_mesh_case(ctxs[c], comm, i, why, sizeof why))
                fail_msg("%s", why);
    sy_comm_destroy(comm);
    for (size_t c = 0; c < COUNT_OF(ctxs); c++)
        sy_ctx_destroy(ctxs[c]);
}

/* The hard things come up: counted over all cases of all meshes. */
static void the_cases_are_hard(void **state)
{
    (void)state;
    struct {
        int alone, no_experts, no_tokens, none_here, keep, filled, padding, twice, nowhere, planes,
            interleaved, gap, rule[5], nodes, spread;
    } seen = {0};
    for (size_t i = 0; i < COUNT_OF(meshes); i++)
        for (int number = 0; number < 60; number++) {
            struct mesh_case m;
            mesh_case_random(&m, meshes[i], number);
            const struct a2a_case *c = &m.a2a;
            const int n_devices = oracle_a2a_devices(c);
            int64_t tokens = 0;
            for (int d = 0; d < n_devices; d++) {
                struct a2a_from from[1024];
                const int64_t rows = oracle_a2a_dispatch(c, d, from);
                assert_true(rows <= (int64_t)COUNT_OF(from));
                tokens += c->tokens[d];
                seen.none_here += c->ragged && c->tokens[d] == 0;
                seen.no_experts += oracle_a2a_locals(c, d) == 0;
                for (int64_t r = 0; r < rows; r++)
                    *(from[r].device >= 0             ? &seen.filled
                      : c->layout == SY_LAYOUT_EXPERT ? &seen.padding
                                                      : &seen.keep) += 1;
                for (int64_t at = 0; at < c->tokens[d] * c->slots; at++) {
                    const int64_t e = c->chosen[d][at];
                    int holders = 0;
                    for (int h = 0; h < n_devices && e >= 0; h++)
                        holders += m.mapping[e * n_devices + h];
                    seen.twice += holders > 1;
                    seen.spread += holders > 1 && c->replica != SY_A2A_REPLICA_ALL;
                    seen.nowhere += e >= 0 && holders == 0;
                }
            }
            seen.alone += n_devices > 1 && oracle_a2a_group(c) == 1;
            seen.no_tokens += tokens == 0;
            seen.planes += m.n_planes > 0;
            seen.gap += m.gap > 0;
            if (c->replica != SY_A2A_REPLICA_ALL)
                seen.rule[c->replica - 1]++;
            seen.nodes +=
                c->replica == SY_A2A_REPLICA_LOCAL && c->node_size > 1 && c->node_size < oracle_a2a_group(c);
            seen.interleaved += c->dim == 2 && c->order == SY_ORDER_CONCAT && !c->ragged && c->batch > 1;
            mesh_case_free(&m);
        }
    const int *counters = &seen.alone;
    for (size_t i = 0; i < sizeof seen / sizeof(int); i++)
        if (counters[i] < 10)
            fail_msg("hard thing %zu came up %d times only", i, counters[i]);
}

/* ---- What changes nothing ----------------------------------------------------------------------------- */

static void hints_change_nothing(void **state)
{
    (void)state;
    static const int links[] = {0, 1, 2, 7, 100000};
    sy_ctx *ctx = test_ctx(2, NULL);
    const sy_mesh mesh = {2, 3};
    sy_comm *comm = local_comm(mesh);
    for (int number = 0; number < 6; number++) {
        struct mesh_case m;
        mesh_case_random(&m, mesh, number);
        for (int i = 0; i < 60; i++) {
            m.num_links = links[i % 5];
            m.topology = (sy_topology)(i / 5 % 5);
            m.memory = (sy_memory)(i / 25);
            struct mesh_call *calls[] = {mesh_dispatch_new(comm, &m, NULL), mesh_combine_new(comm, &m, NULL)};
            for (int j = 0; j < 2; j++) {
                expect_status(ctx, mesh_call_run(ctx, comm, calls[j]), SY_OK);
                expect_call(calls[j]);
                mesh_call_free(calls[j]);
            }
        }
        mesh_case_free(&m);
    }
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
}

/* Three requests, waited for last to first. */
static void waited_for_in_reverse(void **state)
{
    (void)state;
    sy_ctx *ctx = test_ctx(2, NULL);
    const sy_mesh mesh = {2, 2};
    sy_comm *comm = local_comm(mesh);
    for (int number = 0; number < 12; number++) {
        struct mesh_case m[3];
        struct mesh_call *calls[3];
        sy_request *requests[3] = {NULL}, *one_more = NULL;
        for (int i = 0; i < 3; i++) {
            mesh_case_random(&m[i], mesh, number + i);
            calls[i] =
                (number + i) % 2 ? mesh_combine_new(comm, &m[i], NULL) : mesh_dispatch_new(comm, &m[i], NULL);
            expect_status(ctx, mesh_call_start(ctx, comm, calls[i], &requests[i]), SY_OK);
        }
        expect_status(ctx, mesh_call_start(ctx, comm, calls[0], &one_more), SY_ERR_STATE);
        assert_null(one_more);
        for (int i = 2; i >= 0; i--) {
            bool done = false;
            expect_status(ctx, sy_request_wait(requests[i], SY_PHASE_ROUTED), SY_OK);
            expect_status(ctx, sy_request_wait(requests[i], SY_PHASE_DONE), SY_OK);
            expect_status(ctx, sy_request_test(requests[i], SY_PHASE_DONE, &done), SY_OK);
            assert_true(done);
            expect_call(calls[i]);
        }
        for (int i = 0; i < 3; i++) {
            expect_status(ctx, sy_request_free(requests[i]), SY_OK);
            mesh_call_free(calls[i]);
            mesh_case_free(&m[i]);
        }
    }
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
}

/* The second dispatch along a routing reads neither indices nor mapping. */
static void routing_is_reused(void **state)
{
    (void)state;
    sy_ctx *ctx = test_ctx(2, NULL);
    for (size_t i = 0; i < COUNT_OF(meshes); i++) {
        sy_comm *comm = local_comm(meshes[i]);
        sy_routing *routing = NULL;
        expect_status(ctx, sy_routing_create(ctx, comm, &routing), SY_OK);
        for (int number = 0; number < 20; number++) {
            struct mesh_case m;
            mesh_case_random(&m, meshes[i], number);
            struct mesh_call *first = mesh_dispatch_new(comm, &m, routing);
            expect_status(ctx, mesh_call_run(ctx, comm, first), SY_OK);
            expect_call(first);
            mesh_call_free(first);
            struct mesh_call *again = mesh_dispatch_new(comm, &m, routing);
            again->dispatch.reuse_routing = true;
            again->dispatch.expert_indices = NULL;
            again->dispatch.expert_mapping = NULL;
            again->dispatch.metadata = NULL;
            expect_status(ctx, mesh_call_run(ctx, comm, again), SY_OK);
            expect_call(again);
            mesh_call_free(again);
            mesh_case_free(&m);
        }
        sy_routing_destroy(routing);
        sy_comm_destroy(comm);
    }
    sy_ctx_destroy(ctx);
}

/* ---- Queries and comms -------------------------------------------------------------------------------- */

static void query_tells_rows_and_slots(void **state)
{
    (void)state;
    sy_ctx *ctx = test_ctx(1, NULL);
    const sy_mesh mesh = {2, 2};
    sy_comm *comm = local_comm(mesh);
    for (int number = 0; number < 30; number++) {
        struct mesh_case m;
        sy_query query;
        mesh_case_random(&m, mesh, number);
        struct mesh_call *call = mesh_dispatch_new(comm, &m, NULL);
        expect_status(ctx, sy_all_to_all_dispatch_query(ctx, comm, &call->dispatch, &query), SY_OK);
        assert_int_equal(query.slots, m.a2a.slots);
        for (int d = 0; d < 4; d++)
            if (!m.a2a.ragged && oracle_a2a_locals(&m.a2a, d) <= oracle_a2a_locals(&m.a2a, 0))
                assert_true(query.rows >= oracle_a2a_dispatch(&m.a2a, d, NULL));
        if (m.a2a.layout == SY_LAYOUT_PADDED && !m.a2a.ragged)
            assert_int_equal(query.rows, oracle_a2a_total(&m.a2a, 0));
        char why[256];
        if (!mesh_call_untouched(call, why, sizeof why))
            fail_msg("%s", why);
        mesh_call_free(call);
        mesh_case_free(&m);
    }
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
}

static void local_comms(void **state)
{
    (void)state;
    sy_comm *comm = NULL;
    sy_ctx *ctx = test_ctx(1, NULL);
    void *data = NULL;
    assert_int_equal(sy_comm_create_local(&comm, (sy_mesh){2, 3}, NULL), SY_OK);
    assert_int_equal(sy_comm_mesh(comm).rows, 2);
    assert_int_equal(sy_comm_mesh(comm).cols, 3);
    assert_int_equal(sy_comm_shards(comm), 6);
    assert_int_equal(sy_comm_first_device(comm), 0);
    assert_string_equal(sy_comm_transport_name(comm), "local");
    assert_true(sy_comm_shares_memory(comm));
    expect_status(ctx, sy_comm_alloc(ctx, comm, 1000, &data), SY_OK);
    assert_true((uintptr_t)data % 64 == 0);
    memset(data, 1, 1000);
    expect_status(ctx, sy_comm_free(ctx, comm, data), SY_OK);
    expect_status(ctx, sy_comm_reserve(ctx, comm, 1000), SY_OK);
    sy_comm_destroy(comm);
    sy_comm_destroy(NULL);
    sy_routing_destroy(NULL);
    assert_int_equal(sy_request_free(NULL), SY_OK);
    assert_int_equal(sy_comm_mesh(NULL).rows, 0);
    assert_int_equal(sy_comm_shards(NULL), 0);
    assert_int_equal(sy_comm_first_device(NULL), -1);
    assert_string_equal(sy_comm_transport_name(NULL), "");
    assert_false(sy_comm_shares_memory(NULL));
    sy_ctx_destroy(ctx);
}

static void comms_that_cannot_be(void **state)
{
    (void)state;
    static const sy_mesh bad[] = {{0, 2},     {2, 0},         {-1, 2},       {2, -1},
                                  {257, 257}, {65536, 65536}, {INT32_MAX, 2}};
    char error[256] = "";
    sy_comm_options options = {.error = error, .error_bytes = sizeof error};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        sy_comm *comm = (sy_comm *)(void *)&options;
        error[0] = '\0';
        assert_int_equal(sy_comm_create_local(&comm, bad[i], &options), SY_ERR_VALUE);
        assert_null(comm);
        assert_string_not_equal(error, "");
    }
    sy_comm *comm = NULL;
    assert_int_equal(sy_comm_create_local(NULL, (sy_mesh){1, 1}, NULL), SY_ERR_NULL);
    options.max_inflight = -1;
    assert_int_equal(sy_comm_create_local(&comm, (sy_mesh){1, 1}, &options), SY_ERR_VALUE);
    assert_null(comm);
}

int main(void)
{
    struct test_list list = {0};
    for (int i = 0; i < mesh_example_count(); i++)
        test_add(&list, test_name("example: %s", mesh_example_name(i)), example, (void *)(uintptr_t)i);
    for (size_t i = 0; i < COUNT_OF(meshes); i++)
        test_add(&list, test_name("random cases, %dx%d", meshes[i].rows, meshes[i].cols), random_cases,
                 (void *)&meshes[i]);
    test_add(&list, "the_cases_are_hard", the_cases_are_hard, NULL);
    test_add(&list, "hints_change_nothing", hints_change_nothing, NULL);
    test_add(&list, "waited_for_in_reverse", waited_for_in_reverse, NULL);
    test_add(&list, "routing_is_reused", routing_is_reused, NULL);
    test_add(&list, "local_comms", local_comms, NULL);
    test_add(&list, "comms_that_cannot_be", comms_that_cannot_be, NULL);
    test_add(&list, "query_tells_rows_and_slots", query_tells_rows_and_slots, NULL);
    return test_run(&list, "op_all_to_all_dispatch");
}
