/*
 * Meshes inside this process beyond single calls, which are the cases of both operators: worked examples and random problems
 * on up to 8 devices, dispatch and combine after each other and waited for in every way; several requests; comms and
 * routings; calls without a context, a comm or arguments.
 */
#include "case/stack.h"
#include "mesh_cases.h"
#include "support.h"
#include "support_memory.h"

static const sy_mesh meshes[] = {{1, 1}, {1, 2}, {2, 1}, {1, 3}, {2, 2}, {1, 5},
                                 {2, 3}, {3, 2}, {1, 8}, {2, 4}, {4, 2}, {8, 1}};

static sy_comm *local_comm(sy_mesh mesh)
{
    sy_comm *comm = NULL;
    char error[256] = "of a call before";
    const sy_comm_options options = {.max_inflight = 3, .error = error, .error_bytes = sizeof error};
    if (sy_comm_create_local(&comm, mesh, &options) != SY_OK)
        fail_msg("no comm: %s", error);
    assert_string_equal(error, "");
    return comm;
}

static void expect_call(struct mesh_call *call)
{
    char why[256];
    if (!mesh_call_check(call, why, sizeof why))
        fail_msg("%s", why);
}

/* ---- Problems by number ---- */

static void random_cases(void **state)
{
    const sy_mesh mesh = *(const sy_mesh *)*state;
    char why[400];
    sy_ctx *ctxs[] = {test_ctx(1, "scalar"), test_ctx(3, NULL)};
    sy_comm *comm = local_comm(mesh);
    for (size_t c = 0; c < COUNT_OF(ctxs); c++) {
        if (!run_mesh_cases(ctxs[c], comm, why, sizeof why))
            fail_msg("%s", why);
        sy_ctx_destroy(ctxs[c]);
    }
    sy_comm_destroy(comm);
}

/* ---- Requests ---- */

/* Three requests, waited for last to first. */
TEST(waited_for_in_reverse)
{
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

/* A rejected request is started, and test, wait and free alike report it. */
TEST(requests_return_rejections)
{
    sy_ctx *ctx = test_ctx(1, NULL);
    sy_comm *comm = local_comm((sy_mesh){1, 2});
    struct mesh_case m;
    char why[256];
    mesh_case_random(&m, (sy_mesh){1, 2}, 0);
    for (int way = 0; way < 3; way++) {
        sy_request *request = NULL;
        bool done = false;
        sy_status status = SY_ERR_SHAPE;
        struct mesh_call *call = mesh_combine_new(comm, &m, NULL);
        call->tensors[MESH_TOKENS][1].shape[0]++;
        expect_status(ctx, mesh_call_start(ctx, comm, call, &request), SY_OK);
        assert_non_null(request);
        if (way == 0)
            status = sy_request_wait(request, SY_PHASE_ROUTED);
        while (way == 1 && !done)
            status = sy_request_test(request, SY_PHASE_DONE, &done);
        expect_status(ctx, status, SY_ERR_SHAPE);
        expect_status(ctx, sy_request_free(request), SY_ERR_SHAPE);
        assert_non_null(strstr(sy_ctx_error(ctx), "output of device 1"));
        if (!mesh_call_untouched(call, why, sizeof why))
            fail_msg("%s", why);
        mesh_call_free(call);
    }
    mesh_case_free(&m);
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
}

/* ---- Comms ---- */

TEST(local_comms)
{
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

TEST(comms_that_cannot_be)
{
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

/* Every allocation fails once, of a comm and of a routing. */
TEST(creation_without_memory)
{
    sy_ctx *ctx = test_ctx(1, NULL);
    int n = 1;
    for (bool made = false; !made; n++) {
        struct allocator a = {.fail_at = n};
        sy_comm *comm = NULL;
        sy_routing *routing = NULL;
        const sy_comm_options options = limited_options(&a);
        const sy_status status = sy_comm_create_local(&comm, (sy_mesh){2, 3}, &options);
        assert_true(status == (comm != NULL ? SY_OK : SY_ERR_NOMEM));
        if (comm != NULL) {
            const sy_status second = sy_routing_create(ctx, comm, &routing);
            made = second == SY_OK;
            expect_status(ctx, second, made ? SY_OK : SY_ERR_NOMEM);
            assert_true(made == (routing != NULL));
        }
        sy_routing_destroy(routing);
        sy_comm_destroy(comm);
        assert_int_equal(a.live, 0);
    }
    assert_true(n > 3);
    sy_ctx_destroy(ctx);
}

static void create_comm(void *data)
{
    if (sy_comm_create_local((sy_comm **)data, (sy_mesh){2, 2}, NULL) != SY_OK)
        abort();
}

TEST(a_comm_on_a_small_stack)
{
    sy_comm *comm = NULL;
    if (STACK_UNKNOWN)
        skip_because("sanitizers make frames larger");
    assert_in_range(stack_of(create_comm, (void *)&comm), 1, STACK_MOST);
    sy_comm_destroy(comm);
}

/* ---- Calls ---- */

TEST(missing_context_or_comm)
{
    struct mesh_case m;
    sy_query q;
    sy_request *request = NULL;
    bool done;
    sy_ctx *ctx = test_ctx(1, NULL);
    sy_comm *comm = local_comm((sy_mesh){1, 2});
    mesh_case_random(&m, (sy_mesh){1, 2}, 0);
    for (int combines = 0; combines < 2; combines++) {
        m.combines = combines;
        struct mesh_call *const call = mesh_call_new(comm, &m, NULL);
        const sy_op_info *const op = mesh_call_op(call);
        expect_status(ctx, mesh_call_run(ctx, NULL, call), SY_ERR_NULL);
        assert_int_equal(mesh_call_start(NULL, comm, call, &request), SY_ERR_NULL);
        expect_status(ctx, mesh_call_start(ctx, NULL, call, &request), SY_ERR_NULL);
        expect_status(ctx, mesh_call_start(ctx, comm, call, NULL), SY_ERR_NULL);
        expect_status(ctx, sy_call_mesh_query(ctx, NULL, op, mesh_call_args(call), op->args_bytes, &q),
                      SY_ERR_NULL);
        assert_null(request);
        expect_status(ctx, mesh_call_run(ctx, comm, call), SY_OK);
        assert_string_equal(sy_ctx_error(ctx), "");
        mesh_call_free(call);
    }
    assert_int_equal(sy_request_wait(NULL, SY_PHASE_DONE), SY_ERR_NULL);
    assert_int_equal(sy_request_test(NULL, SY_PHASE_DONE, &done), SY_ERR_NULL);
    assert_int_equal(sy_request_tokens(NULL, 0), -1);
    mesh_case_free(&m);
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
}

TEST_GROUP(mesh)
{
    for (size_t i = 0; i < COUNT_OF(meshes); i++)
        test_add(&own_tests, test_name("problems on %dx%d", meshes[i].rows, meshes[i].cols), random_cases,
                 (void *)&meshes[i]);
    return test_run(&own_tests, "op_mesh");
}
