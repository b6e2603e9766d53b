/*
 * On a mesh inside this process the allocator of the comm, then that of the context, gives nothing at the n-th call, for
 * every n until the exchange succeeds: it answers NOMEM, writes nothing, and works the next time.
 */
#include "mesh_cases.h"
#include "support.h"

struct allocator {
    int calls, fail_at; /* the call with this number gives NULL; 0: none */
    int live;
};

static void *limited_alloc(void *user, size_t bytes)
{
    struct allocator *a = user;
    if (++a->calls == a->fail_at)
        return NULL;
    a->live++;
    return malloc(bytes);
}

static void limited_free(void *user, void *ptr)
{
    struct allocator *a = user;
    a->live -= ptr != NULL;
    free(ptr);
}

/* One call whose n-th allocation fails. Returns whether it got past that. */
static bool call_with_failure(const struct mesh_case *m, bool combines, bool of_comm, int n)
{
    struct allocator comm_memory = {0}, ctx_memory = {0}, *failing = of_comm ? &comm_memory : &ctx_memory;
    sy_ctx *ctx = NULL;
    sy_comm *comm = NULL;
    char why[256];
    const sy_ctx_options ctx_options = {
        .threads = 2, .alloc = limited_alloc, .dealloc = limited_free, .alloc_user = &ctx_memory};
    const sy_comm_options comm_options = {
        .alloc = limited_alloc, .dealloc = limited_free, .alloc_user = &comm_memory};
    assert_int_equal(sy_ctx_create(&ctx, &ctx_options), SY_OK);
    assert_int_equal(sy_comm_create_local(&comm, m->a2a.mesh, &comm_options), SY_OK);
    struct mesh_call *call = combines ? mesh_combine_new(comm, m, NULL) : mesh_dispatch_new(comm, m, NULL);
    failing->calls = 0;
    failing->fail_at = n;
    const sy_status status = mesh_call_run(ctx, comm, call);
    const bool passed = status == SY_OK;
    failing->fail_at = 0;
    if (!passed) {
        expect_status(ctx, status, SY_ERR_NOMEM);
        if (!mesh_call_untouched(call, why, sizeof why))
            fail_msg("%s", why);
        expect_status(ctx, mesh_call_run(ctx, comm, call), SY_OK);
    }
    if (!mesh_call_check(call, why, sizeof why))
        fail_msg("%s", why);
    mesh_call_free(call);
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
    assert_int_equal(comm_memory.live, 0);
    assert_int_equal(ctx_memory.live, 0);
    return passed;
}

static void every_allocation(void **state)
{
    (void)state;
    int failures = 0;
    for (int number = 0; number < 24; number++)
        for (int kind = 0; kind < 4; kind++) {
            struct mesh_case m;
            mesh_case_random(&m, (sy_mesh){2, 2}, number);
            for (int n = 1; !call_with_failure(&m, kind % 2, kind < 2, n); n++)
                failures++;
            mesh_case_free(&m);
        }
    assert_true(failures > 24);
}

static void creation(void **state)
{
    (void)state;
    int n = 1;
    for (bool made = false; !made; n++) {
        struct allocator a = {.fail_at = n};
        sy_comm *comm = NULL;
        const sy_comm_options options = {.alloc = limited_alloc, .dealloc = limited_free, .alloc_user = &a};
        const sy_status status = sy_comm_create_local(&comm, (sy_mesh){2, 3}, &options);
        made = status == SY_OK;
        assert_int_equal(status, made ? SY_OK : SY_ERR_NOMEM);
        assert_true(made == (comm != NULL));
        sy_comm_destroy(comm);
        assert_int_equal(a.live, 0);
    }
    assert_true(n > 2);
}

static void routings(void **state)
{
    (void)state;
    struct allocator a = {0};
    sy_comm *comm = NULL;
    sy_routing *routing = NULL;
    sy_ctx *ctx = test_ctx(1, NULL);
    const sy_comm_options options = {.alloc = limited_alloc, .dealloc = limited_free, .alloc_user = &a};
    assert_int_equal(sy_comm_create_local(&comm, (sy_mesh){1, 2}, &options), SY_OK);
    a.calls = 0;
    a.fail_at = 1;
    expect_status(ctx, sy_routing_create(ctx, comm, &routing), SY_ERR_NOMEM);
    assert_null(routing);
    a.fail_at = 0;
    expect_status(ctx, sy_routing_create(ctx, comm, &routing), SY_OK);
    sy_routing_destroy(routing);
    sy_comm_destroy(comm);
    assert_int_equal(a.live, 0);
    sy_ctx_destroy(ctx);
}

int main(void)
{
    struct test_list list = {0};
    test_add(&list, "creation", creation, NULL);
    test_add(&list, "routings", routings, NULL);
    test_add(&list, "every_allocation", every_allocation, NULL);
    return test_run(&list, "fault_all_to_all");
}
