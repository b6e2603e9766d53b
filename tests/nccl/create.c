/*
 * Creation over NCCL: a mistake of one process is an error of all, in the same words; one that never comes is found.
 */
#include "ranks_nccl.h"
#include "support_memory.h"

/* What one process asks for otherwise than the others. */
static const struct attempt {
    const char *name;
    sy_status want;
    const char *words;
    sy_mesh more; /* added to the mesh */
    bool transposed, no_dealloc;
    int fail_at; /* allocation; the first is the transport's, and what follows is for the answer */
    int max_blocks, max_inflight;
    sy_check check;
} attempts[] = {
    {"no rows", SY_ERR_VALUE, "mesh is 0 x ", .more = {-1, 0}},
    {"a larger mesh", SY_ERR_COMM, "nccl has ", .more = {0, 1}},
    {"another mesh", SY_ERR_MISMATCH, "mesh differs: ", .transposed = true},
    {"half an allocator", SY_ERR_NULL, "dealloc is NULL", .no_dealloc = true},
    {"no memory", SY_ERR_NOMEM, "a transport could not be allocated", .fail_at = 1},
    {"negative blocks", SY_ERR_VALUE, "max_blocks is negative", .max_blocks = -1},
    {"other blocks", SY_ERR_MISMATCH, "max_blocks differs: ", .max_blocks = 3},
    {"another check", SY_ERR_MISMATCH, "check differs: ", .check = SY_CHECK_NONE},
    {"too many requests", SY_ERR_VALUE, "max_inflight is 1000", .max_inflight = 1000},
};

static void differ(const struct attempt *a, sy_mesh *mesh, sy_nccl_options *options, struct allocator *memory)
{
    *mesh = (sy_mesh){mesh->rows + a->more.rows, mesh->cols + a->more.cols};
    if (a->transposed)
        *mesh = (sy_mesh){mesh->cols, mesh->rows};
    if (a->no_dealloc)
        options->comm.dealloc = NULL;
    memory->fail_at = a->fail_at;
    options->max_blocks = a->max_blocks;
    options->comm.max_inflight = a->max_inflight;
    options->comm.check = a->check;
}

static void test_attempt(void **state)
{
    const struct attempt *const a = *state;
    for (int guilty = 0; guilty < n_ranks; guilty++) {
        char text[600] = "";
        struct allocator memory = {0};
        sy_mesh mesh = {1, n_ranks};
        sy_nccl_options options = {.comm = limited_options(&memory)};
        options.comm.error = text;
        options.comm.error_bytes = sizeof text;
        if (this_rank == guilty)
            differ(a, &mesh, &options, &memory);
        sy_comm *comm = (sy_comm *)(void *)&mesh;
        const sy_status status = sy_comm_create_nccl(&comm, ranks_nccl, mesh, &options);
        expect_same_everywhere(text, sizeof text);
        assert_null(comm);
        if (status != a->want || strstr(text, a->words) == NULL || strstr(text, "sy_comm_create") != text)
            fail_msg("%s: %s", sy_status_name(status), text);
    }
}

#ifdef SWITCHYARD_TESTS_FAKE_NCCL_H
/* ---- What fails in one process ---- */

/* From the first on: without a stream, two events and pinned memory a process cannot answer. */
static const struct failure {
    const char *what;
    int first;
    sy_status want;
    bool first_process; /* that alone does it */
} failures[] = {{"memory", 1, SY_ERR_NOMEM, false}, {"stream", 2, SY_ERR_COMM, false},
                {"event", 3, SY_ERR_COMM, false},   {"pinned", 2, SY_ERR_COMM, false},
                {"id", 1, SY_ERR_COMM, true},       {"init", 1, SY_ERR_COMM, false},
                {"late", 1, SY_ERR_COMM, false}};

/* The n-th step of a kind fails in one process, for every n until creation succeeds: all return the same, at once, and keep nothing. */
static void test_failure(void **state)
{
    const struct failure *const f = *state;
    for (int guilty = 0; guilty < (f->first_process ? 1 : n_ranks); guilty++) {
        sy_status status = f->want;
        const bool memory = strcmp(f->what, "memory") == 0;
        for (int n = f->first; status != SY_OK; n++) {
            char text[600] = "";
            struct allocator a = {.fail_at = memory && this_rank == guilty ? n : 0, .fail_all_after = true};
            sy_nccl_options options = {.comm = limited_options(&a)};
            options.comm.error = text;
            options.comm.error_bytes = sizeof text;
            const int before = fake_nccl_live();
            sy_comm *comm = NULL;
            fake_nccl_fail(f->what, this_rank == guilty ? n : 0);
            status = sy_comm_create_nccl(&comm, ranks_nccl, (sy_mesh){1, n_ranks}, &options);
            fake_nccl_fail("", 0);
            expect_same_everywhere(text, sizeof text);
            if (status != SY_OK && status != f->want)
                fail_msg("%s %d: %s: %s", f->what, n, sy_status_name(status), text);
            sy_comm_destroy(comm);
            assert_int_equal(a.live, 0);
            assert_int_equal(fake_nccl_live(), before);
        }
    }
}

/* A call that the others never join: what was under way is freed with the comm. */
TEST(test_nothing_is_kept)
{
    const sy_nccl_options options = {.comm = {.timeout_ms = 300}};
    sy_ctx *const ctx = test_ctx(1, NULL);
    const int before = fake_nccl_live();
    sy_comm *comm = NULL;
    assert_int_equal(sy_comm_create_nccl(&comm, ranks_nccl, (sy_mesh){1, n_ranks}, &options), SY_OK);
    if (this_rank == 0)
        assert_int_equal(sy_comm_reserve(ctx, comm, 1000), SY_ERR_TIMEOUT);
    ranks_barrier();
    sy_comm_destroy(comm);
    assert_int_equal(fake_nccl_live(), before);
    sy_ctx_destroy(ctx);
}
#endif

TEST(test_no_communicator)
{
    char text[300] = "";
    const sy_nccl_options options = {.comm = {.error = text, .error_bytes = sizeof text}};
    sy_comm *comm = NULL;
    assert_int_equal(sy_comm_create_nccl(&comm, NULL, (sy_mesh){1, n_ranks}, &options), SY_ERR_COMM);
    assert_string_equal(text, "sy_comm_create_nccl: nccl is NULL, want a communicator");
    assert_int_equal(sy_comm_create_nccl(NULL, ranks_nccl, (sy_mesh){1, n_ranks}, &options), SY_ERR_NULL);
    assert_string_equal(text, "sy_comm_create_nccl: comm is NULL, want a place for the comm");
}

TEST(test_a_comm)
{
    sy_comm *comm = NULL;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sy_comm_create_nccl(&comm, ranks_nccl, (sy_mesh){n_ranks, 1}, NULL), SY_OK);
        assert_string_equal(sy_comm_transport_name(comm), "nccl");
        assert_int_equal(sy_comm_first_device(comm), this_rank);
        assert_int_equal(sy_comm_shards(comm), 1);
        assert_false(sy_comm_shares_memory(comm));
        sy_comm_destroy(comm);
    }
}

/* The last process never calls. The communicator is then of no use, and the caller ends it. */
TEST(test_absent_process)
{
    char text[300] = "";
    const sy_nccl_options options = {.comm = {.timeout_ms = 500, .error = text, .error_bytes = sizeof text}};
    ncclComm_t nccl = ranks_nccl_new();
    sy_comm *comm = NULL;
    sy_status status = SY_ERR_TIMEOUT;
    if (this_rank != n_ranks - 1) {
        status = sy_comm_create_nccl(&comm, nccl, (sy_mesh){1, n_ranks}, &options);
        assert_non_null(strstr(text, "waited 500 ms for another process, which did not arrive in time"));
    }
    assert_int_equal(status, SY_ERR_TIMEOUT);
    assert_null(comm);
    ranks_barrier();
    ncclCommAbort(nccl);
}

TEST_GROUP(create)
{
    struct test_list list = {0};
    ranks_begin();
    test_add(&list, "a comm", test_a_comm, NULL);
    test_add(&list, "no communicator", test_no_communicator, NULL);
    for (size_t i = 0; i < COUNT_OF(attempts) && n_ranks > 1; i++)
        test_add(&list, test_name("one process: %s", attempts[i].name), test_attempt, (void *)&attempts[i]);
#ifdef SWITCHYARD_TESTS_FAKE_NCCL_H
    for (size_t i = 0; i < COUNT_OF(failures); i++)
        test_add(&list, test_name("one process: %s fails", failures[i].what), test_failure,
                 (void *)&failures[i]);
    if (n_ranks > 1)
        test_add(&list, "nothing is kept", test_nothing_is_kept, NULL);
#endif
    if (n_ranks > 1)
        test_add(&list, "a process that never comes", test_absent_process, NULL);
    return ranks_run_list(&list);
}
