/*
 * all_to_all_combine on a mesh inside this process: the worked examples, the way there and back, rows nobody asks for,
 * routings that serve many calls, sums. Random problems run in op_all_to_all_dispatch, pair by pair.
 */
#include "mesh_cases.h"
#include "support.h"

static const sy_mesh meshes[] = {{1, 1}, {1, 2}, {2, 1}, {2, 2}, {3, 2}, {1, 8}, {2, 4}};

static sy_comm *local_comm(sy_mesh mesh)
{
    sy_comm *comm = NULL;
    assert_int_equal(sy_comm_create_local(&comm, mesh, NULL), SY_OK);
    return comm;
}

static void run_and_check(sy_ctx *ctx, sy_comm *comm, struct mesh_call *call)
{
    char why[256];
    expect_status(ctx, mesh_call_run(ctx, comm, call), SY_OK);
    if (!mesh_call_check(call, why, sizeof why))
        fail_msg("%s", why);
}

static void example(void **state)
{
    const int number = (int)(uintptr_t)*state;
    char why[256];
    struct mesh_case m;
    sy_ctx *ctx = test_ctx(2, NULL);
    sy_comm *comm = local_comm(mesh_example_mesh(number));
    mesh_example_make(&m, number);
    struct mesh_call *call = mesh_combine_new(comm, &m, NULL);
    if (!mesh_example_agrees(call, number, why, sizeof why))
        fail_msg("%s", why);
    run_and_check(ctx, comm, call);
    mesh_call_free(call);
    mesh_case_free(&m);
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
}

/* ---- There and back ----------------------------------------------------------------------------------- */

/* The results of experts that change nothing: the rows as they arrived. */
static void echo(struct mesh_case *m, const struct mesh_call *arrived)
{
    const size_t row_bytes = (size_t)m->hidden * type_bytes(m->type);
    for (int d = 0; d < oracle_a2a_devices(&m->a2a); d++) {
        const struct mesh_tensor *x = &arrived->tensors[MESH_TOKENS][d];
        const int64_t rows = oracle_a2a_dispatch(&m->a2a, d, NULL);
        const int64_t inputs = oracle_a2a_inputs(&m->a2a, d, m->local_reduce);
        for (int64_t r = 0; r < inputs; r++)
            memcpy(m->results[d] + (size_t)r * row_bytes, x->mem + (size_t)(r % rows) * x->step, row_bytes);
    }
}

/* Every live slot with a holder brings the token's own row home, all others nothing. */
static void expect_own_rows(const struct mesh_case *m, const struct mesh_call *home, int *brought)
{
    const struct a2a_case *c = &m->a2a;
    for (int d = 0; d < oracle_a2a_devices(c); d++)
        for (int64_t i = 0; i < c->tokens[d] * c->slots; i++) {
            const int64_t n = i % c->tokens[d], k = i / c->tokens[d], e = c->chosen[d][n * c->slots + k];
            const struct mesh_tensor *x = &home->tensors[MESH_TOKENS][d];
            const unsigned char *row = x->mem + (size_t)i * x->step;
            const unsigned char zero[1024] = {0};
            bool comes = e >= 0 && oracle_a2a_live(c, d, n, e) == k, hosted = false;
            for (int q = 0; comes && q < oracle_a2a_group(c); q++)
                hosted = hosted || m->mapping[e * oracle_a2a_devices(c) + oracle_a2a_member(c, d, q)] == 1;
            comes = comes && hosted;
            *brought += comes;
            expect_bytes(row, comes ? m->rows[d] + (size_t)n * x->row_bytes : zero, x->row_bytes);
        }
}

static void there_and_back(void **state)
{
    (void)state;
    int brought = 0, interleaved = 0;
    sy_ctx *ctx = test_ctx(3, NULL);
    for (size_t i = 0; i < COUNT_OF(meshes); i++) {
        sy_comm *comm = local_comm(meshes[i]);
        sy_routing *routing = NULL;
        expect_status(ctx, sy_routing_create(ctx, comm, &routing), SY_OK);
        for (int number = 0; number < 60; number++) {
            struct mesh_case m;
            mesh_case_random(&m, meshes[i], number);
            m.fill = SY_FILL_ZERO;
            if (!m.local_reduce && !m.sum) {
                struct mesh_call *out = mesh_dispatch_new(comm, &m, routing);
                run_and_check(ctx, comm, out);
                echo(&m, out);
                struct mesh_call *home = mesh_combine_new(comm, &m, number % 2 ? routing : NULL);
                run_and_check(ctx, comm, home);
                expect_own_rows(&m, home, &brought);
                interleaved += m.a2a.dim == 2 && m.a2a.batch > 1 && m.a2a.order == SY_ORDER_CONCAT;
                mesh_call_free(out);
                mesh_call_free(home);
            }
            mesh_case_free(&m);
        }
        sy_routing_destroy(routing);
        sy_comm_destroy(comm);
    }
    assert_true(brought > 1000 && interleaved > 10);
    sy_ctx_destroy(ctx);
}

/* ---- Rows nobody asks for ----------------------------------------------------------------------------- */

/* Other garbage in them, other bytes in front of KEEP: the same rows come out. */
static void garbage_stays_outside(void **state)
{
    (void)state;
    sy_ctx *ctx = test_ctx(2, NULL);
    int changed = 0;
    for (size_t i = 0; i < COUNT_OF(meshes); i++) {
        sy_comm *comm = local_comm(meshes[i]);
        for (int number = 0; number < 30; number++) {
            struct mesh_case m;
            uint64_t rng = (uint64_t)number;
            mesh_case_random(&m, meshes[i], number);
            struct mesh_call *call = mesh_combine_new(comm, &m, NULL);
            const size_t row_bytes = call->tensors[MESH_INPUT][0].row_bytes;
            unsigned char *nan = malloc(row_bytes);
            assert_non_null(nan);
            memset(nan, 0xFF, row_bytes);
            for (int d = 0; d < call->shards; d++) {
                struct mesh_tensor *x = &call->tensors[MESH_INPUT][d];
                for (int64_t r = 0; r < x->rows; r++)
                    if (memcmp(x->mem + (size_t)r * x->step, nan, row_bytes) == 0) {
                        rng_fill(&rng, x->mem + (size_t)r * x->step, row_bytes);
                        changed++;
                    }
                memcpy(x->want, x->mem, x->bytes);
            }
            free(nan);
            run_and_check(ctx, comm, call);
            mesh_call_free(call);
            mesh_case_free(&m);
        }
        sy_comm_destroy(comm);
    }
    assert_true(changed > 1000);
    sy_ctx_destroy(ctx);
}

/* ---- Routings ----------------------------------------------------------------------------------------- */

/* One dispatch, then combines of every kind along its routing. */
static void one_routing_for_many(void **state)
{
    (void)state;
    sy_ctx *ctx = test_ctx(2, NULL);
    for (size_t i = 0; i < COUNT_OF(meshes); i++) {
        sy_comm *comm = local_comm(meshes[i]);
        for (int number = 0; number < 30; number++) {
            struct mesh_case m;
            sy_routing *routing = NULL;
            expect_status(ctx, sy_routing_create(ctx, comm, &routing), SY_OK);
            mesh_case_random(&m, meshes[i], number);
            struct mesh_call *out = mesh_dispatch_new(comm, &m, routing);
            run_and_check(ctx, comm, out);
            mesh_call_free(out);
            for (int kind = 0; kind < 4; kind++) {
                m.fill = kind % 2 ? SY_FILL_KEEP : SY_FILL_ZERO;
                m.sum = m.sum && kind < 2;
                m.weighted = m.weighted && m.sum && kind == 0;
                m.repeat = kind % 2 == 0;
                struct mesh_call *home = mesh_combine_new(comm, &m, routing);
                run_and_check(ctx, comm, home);
                mesh_call_free(home);
            }
            sy_routing_destroy(routing);
            mesh_case_free(&m);
        }
        sy_comm_destroy(comm);
    }
    sy_ctx_destroy(ctx);
}

/* ---- Sums --------------------------------------------------------------------------------------------- */

/* Every table and thread count adds to the bits of the oracle; rows are wide enough for every kernel. */
static void sums_on_every_table(void **state)
{
    (void)state;
    const sy_mesh mesh = {2, 2};
    sy_comm *comm = local_comm(mesh);
    int sums = 0, partial = 0, coded = 0;
    for (int t = 0; sy_isa_name(t) != NULL; t++) {
        char error[128] = "";
        sy_ctx *ctx = NULL;
        const sy_ctx_options options = {
            .isa = sy_isa_name(t), .threads = 1 + 2 * (t % 2), .error = error, .error_bytes = sizeof error};
        if (sy_ctx_create(&ctx, &options) != SY_OK)
            continue; /* not on this processor */
        for (int number = 0; number < 90; number++) {
            struct mesh_case m;
            mesh_case_random(&m, mesh, number);
            sums += m.sum;
            partial += m.sum && m.local_reduce;
            coded += m.sum && m.coded_results;
            if (m.sum) {
                struct mesh_call *home = mesh_combine_new(comm, &m, NULL);
                run_and_check(ctx, comm, home);
                mesh_call_free(home);
            }
            mesh_case_free(&m);
        }
        sy_ctx_destroy(ctx);
    }
    assert_true(sums > 20 && partial > 5 && coded > 5);
    sy_comm_destroy(comm);
}

static void query_tells_tokens_and_slots(void **state)
{
    (void)state;
    sy_ctx *ctx = test_ctx(1, NULL);
    const sy_mesh mesh = {2, 2};
    sy_comm *comm = local_comm(mesh);
    for (int number = 0; number < 30; number++) {
        struct mesh_case m;
        sy_query query;
        char why[256];
        mesh_case_random(&m, mesh, number);
        struct mesh_call *call = mesh_combine_new(comm, &m, NULL);
        expect_status(ctx, sy_all_to_all_combine_query(ctx, comm, &call->combine, &query), SY_OK);
        if (!m.a2a.ragged)
            assert_int_equal(query.rows, m.a2a.tokens[0]);
        assert_int_equal(query.slots, m.a2a.slots);
        if (!mesh_call_untouched(call, why, sizeof why))
            fail_msg("%s", why);
        mesh_call_free(call);
        mesh_case_free(&m);
    }
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
}

int main(void)
{
    struct test_list list = {0};
    for (int i = 0; i < mesh_example_count(); i++)
        test_add(&list, test_name("example: %s", mesh_example_name(i)), example, (void *)(uintptr_t)i);
    test_add(&list, "there_and_back", there_and_back, NULL);
    test_add(&list, "garbage_stays_outside", garbage_stays_outside, NULL);
    test_add(&list, "one_routing_for_many", one_routing_for_many, NULL);
    test_add(&list, "sums_on_every_table", sums_on_every_table, NULL);
    test_add(&list, "query_tells_tokens_and_slots", query_tells_tokens_and_slots, NULL);
    return test_run(&list, "op_all_to_all_combine");
}
