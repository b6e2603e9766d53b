/*
 * all_to_all_dispatch and all_to_all_combine between processes: the cases that every kind of comm must solve, and a process
 * that never comes.
 */
#include "mesh_cases.h"
#include "support.h"
#include "ranks.h"

/* The ways rows can take. */
static const struct variant {
    const char *name;
    sy_comm_options options;
} variants[] = {
#ifndef SWITCHYARD_TEST_NCCL
    {"shared memory", {0}},
    {"unchecked", {.check = SY_CHECK_NONE}},
#endif
    {"messages", {.no_shared = true}},
    {"packed messages", {.no_shared = true, .pack = true}},
    {"short messages", {.no_shared = true, .chunk_bytes = 40}},
    {"unchecked messages", {.no_shared = true, .check = SY_CHECK_NONE}},
};

static sy_comm *comm_new(sy_mesh mesh, const sy_comm_options *options)
{
    char text[300] = "";
    sy_comm_options o = *options;
    o.error = text;
    o.error_bytes = sizeof text;
    sy_comm *comm = NULL;
    const sy_status status = ranks_comm(&comm, mesh, &o);
    if (status != SY_OK)
        fail_msg("%s: %s", sy_status_name(status), text);
    return comm;
}

/* ---- Cases ---- */

struct cases {
    sy_mesh mesh;
    const struct variant *variant;
};

static void test_cases(void **state)
{
    const struct cases *const c = *state;
    sy_ctx *const ctx = test_ctx(1, NULL);
    sy_comm *const comm = comm_new(c->mesh, &c->variant->options);
    char why[400] = "";
    const bool good = run_mesh_cases(ctx, comm, why, sizeof why);
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
    if (!good)
        fail_msg("%s", why);
}

/* ---- A process that never comes ---- */

/* The last process comes after the others have given up: they break the comm and say so, for good. The timeout counts for the
   creation of the comm too, which with NCCL takes some 300 ms where processors are busy. */
TEST(test_absent_process)
{
    const sy_mesh mesh = {1, n_ranks};
    sy_ctx *const ctx = test_ctx(1, NULL);
    const sy_comm_options options = {.timeout_ms = 1500};
    sy_comm *const comm = comm_new(mesh, &options);
    struct mesh_case m;
    mesh_case_line(&m, mesh, "B=2 S=3 K=2 E=6 H=5");
    struct mesh_call *const call = mesh_dispatch_new(comm, &m, NULL);
    const bool absent = this_rank == n_ranks - 1;
    const sy_status first = absent ? SY_ERR_TIMEOUT : mesh_call_run(ctx, comm, call);
    ranks_barrier();
    const sy_status second = mesh_call_run(ctx, comm, call);
    ranks_barrier();
    sy_comm_destroy(comm);
    assert_int_equal(first, SY_ERR_TIMEOUT);
    if (!absent)
        assert_int_equal(second, SY_ERR_COMM);
    else
        assert_int_not_equal(second, SY_OK);
    mesh_call_free(call);
    mesh_case_free(&m);
    sy_ctx_destroy(ctx);
}

TEST_GROUP(all_to_all)
{
    struct test_list list = {0};
    ranks_begin();
    struct cases *const all = calloc((size_t)n_meshes() * COUNT_OF(variants), sizeof *all);
    struct cases *next = all;
    for (int m = 0; m < n_meshes(); m++)
        for (size_t v = 0; v < COUNT_OF(variants); v++, next++) {
            *next = (struct cases){mesh_number(m), &variants[v]};
            test_add(&list, test_name("%dx%d, %s", next->mesh.rows, next->mesh.cols, variants[v].name),
                     test_cases, next);
        }
    if (n_ranks > 1)
        test_add(&list, "a process that never comes", test_absent_process, NULL);
    const int code = ranks_run_list(&list);
    free(all);
    return code;
}
