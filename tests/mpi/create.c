/*
 * Making and ending comms over MPI: whatever is wrong, and wherever, all processes return the same.
 */
#include "transport_support.h"

#include <time.h>

/* What one process requests. */
struct ask {
    sy_mesh mesh;
    MPI_Comm on;
    sy_mpi_options options;
    size_t options_bytes;
    bool no_place; /* for the comm */
};

static struct ask good_ask(void)
{
    return (struct ask){.mesh = {1, n_ranks}, .on = MPI_COMM_WORLD, .options_bytes = sizeof(sy_mpi_options)};
}

static bool is_last(void)
{
    return this_rank == n_ranks - 1;
}

/* Creates; fails unless all processes return the same status and the sentence has the text. */
static void rejected(struct ask *ask, sy_status want, const char *says)
{
    char text[300] = "unchanged";
    sy_comm *comm = (sy_comm *)text;
    ask->options.comm.error = text;
    ask->options.comm.error_bytes = sizeof text;
    const sy_status status = sy_comm_create_mpi_n(ask->no_place ? NULL : &comm, ask->on, ask->mesh,
                                                  &ask->options, ask->options_bytes);
    if (status != want || strstr(text, says) == NULL)
        fail_msg("%s: %s; want %s: ... %s", sy_status_name(status), text, sy_status_name(want), says);
    if (!ask->no_place)
        assert_null(comm);
    assert_int_equal(strncmp(text, "sy_comm_create", strlen("sy_comm_create")), 0);
    expect_same_everywhere(text, strlen(text) + 1);
}

static void accepted(struct ask *ask)
{
    char text[300] = "unchanged";
    sy_comm *comm = NULL;
    ask->options.comm.error = text;
    ask->options.comm.error_bytes = sizeof text;
    const sy_status status =
        sy_comm_create_mpi_n(&comm, ask->on, ask->mesh, &ask->options, ask->options_bytes);
    if (status != SY_OK)
        fail_msg("%s: %s", sy_status_name(status), text);
    assert_string_equal(text, "");
    assert_int_equal(sy_comm_mesh(comm).rows, ask->mesh.rows);
    assert_int_equal(sy_comm_mesh(comm).cols, ask->mesh.cols);
    assert_int_equal(sy_comm_shards(comm), 1);
    assert_string_equal(sy_comm_transport_name(comm), "mpi");
    if (ask->options.comm.no_shared)
        assert_false(sy_comm_shares_memory(comm));
    int rank;
    MPI_Comm_rank(ask->on, &rank);
    assert_int_equal(sy_comm_first_device(comm), rank);
    sy_comm_destroy(comm);
}

TEST(test_every_mesh)
{
    for (int m = 0; m < n_meshes(); m++)
        for (int no_shared = 0; no_shared < 2; no_shared++) {
            struct ask ask = good_ask();
            ask.mesh = mesh_number(m);
            ask.options.comm.no_shared = no_shared;
            accepted(&ask);
        }
}

TEST(test_without_options)
{
    sy_comm *comm = NULL;
    assert_int_equal(sy_comm_create_mpi(&comm, MPI_COMM_WORLD, (sy_mesh){n_ranks, 1}, NULL), SY_OK);
    sy_comm_destroy(comm);
}

TEST(test_by_fortran_handle)
{
    sy_comm *comm = NULL;
    const MPI_Fint handle = MPI_Comm_c2f(MPI_COMM_WORLD);
    assert_int_equal(sy_comm_create_mpi_f_n(&comm, handle, (sy_mesh){1, n_ranks}, NULL, 0), SY_OK);
    assert_int_equal(sy_comm_first_device(comm), this_rank);
    sy_comm_destroy(comm);
}

/* Of a part of the processes, and two at a time. */
TEST(test_parts_of_the_world)
{
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, this_rank % 2, -this_rank, &half);
    int n;
    MPI_Comm_size(half, &n);
    sy_comm *whole = NULL;
    assert_int_equal(sy_comm_create_mpi(&whole, MPI_COMM_WORLD, (sy_mesh){1, n_ranks}, NULL), SY_OK);
    struct ask ask = good_ask();
    ask.mesh = (sy_mesh){n, 1};
    ask.on = half;
    accepted(&ask);
    MPI_Comm_free(&half);
    sy_comm_destroy(whole);
}

/* As many as there are identifiers of communicators in some MPIs, if they were never given back. */
TEST(test_many_lives)
{
    const int lives = n_ranks <= 2 ? 160 : 10;
    struct ask ask = good_ask();
    for (int i = 0; i < lives; i++)
        accepted(&ask);
}

TEST(test_error_handlers_are_left_alone)
{
    MPI_Errhandler before;
    MPI_Errhandler after;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
    struct ask ask = good_ask();
    accepted(&ask);
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &after);
    assert_true(before == after);
    MPI_Errhandler_free(&before);
    MPI_Errhandler_free(&after);
}

TEST(test_wrong_number_of_processes)
{
    struct ask ask = good_ask();
    ask.mesh = (sy_mesh){2, n_ranks};
    rejected(&ask, SY_ERR_COMM, "one for each device");
}

TEST(test_bad_meshes)
{
    static const sy_mesh bad[] = {{0, 1}, {1, 0}, {-1, -1}, {65536, 65536}, {INT_MAX, INT_MAX}, {65537, 1}};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct ask ask = good_ask();
        if (is_last())
            ask.mesh = bad[i];
        rejected(&ask, SY_ERR_VALUE, "mesh is ");
    }
}

/* Each of them in the last process alone. */
TEST(test_mistakes_of_one_process)
{
    struct ask ask = good_ask();
    ask.no_place = is_last();
    rejected(&ask, SY_ERR_NULL, "comm is NULL");
    ask = good_ask();
    ask.options.comm.alloc = is_last() ? limited_alloc : NULL;
    rejected(&ask, SY_ERR_NULL, "dealloc is NULL");
    ask = good_ask();
    ask.options.comm.max_inflight = is_last() ? -1 : 0;
    rejected(&ask, SY_ERR_VALUE, "max_inflight");
    ask = good_ask();
    ask.options.comm.timeout_ms = is_last() ? -5 : 0; /* for ever, and the default: each as it likes */
    accepted(&ask);
}

TEST(test_options_of_another_release)
{
    struct {
        sy_mpi_options known;
        int64_t unknown;
    } longer;
    memset(&longer, 0, sizeof longer);
    sy_comm *comm = NULL;
    longer.unknown = is_last();
    assert_int_equal(
        sy_comm_create_mpi_n(&comm, MPI_COMM_WORLD, (sy_mesh){1, n_ranks}, &longer.known, sizeof longer),
        SY_ERR_UNSUPPORTED);
    assert_null(comm);
    longer.unknown = 0;
    assert_int_equal(
        sy_comm_create_mpi_n(&comm, MPI_COMM_WORLD, (sy_mesh){1, n_ranks}, &longer.known, sizeof longer),
        SY_OK);
    sy_comm_destroy(comm);
    assert_int_equal(sy_comm_create_mpi_n(&comm, MPI_COMM_WORLD, (sy_mesh){1, n_ranks}, &longer.known, 1),
                     SY_OK);
    sy_comm_destroy(comm);
}

TEST(test_no_communicator)
{
    struct ask ask = good_ask();
    ask.on = MPI_COMM_NULL;
    rejected(&ask, SY_ERR_COMM, "MPI_COMM_NULL");
}

/* The n-th allocation fails in the last process, for every n: no process keeps anything. */
TEST(test_no_memory)
{
    int n_failed = 0;
    for (int n = 1; n <= 12; n++) { /* some of them only serve to find out whether memory can be shared */
        struct allocator memory = {.fail_at = is_last() ? n : 0};
        sy_comm *comm = NULL;
        const sy_mpi_options options = {.comm = limited_options(&memory)};
        const sy_status status = sy_comm_create_mpi(&comm, MPI_COMM_WORLD, (sy_mesh){1, n_ranks}, &options);
        expect_same_everywhere(&status, sizeof status);
        assert_true(status == SY_OK || status == SY_ERR_NOMEM);
        assert_true((status == SY_OK) == (comm != NULL));
        sy_comm_destroy(comm);
        assert_int_equal(memory.live, 0);
        assert_true(n < 12 || status == SY_OK);
        n_failed += status != SY_OK;
    }
    assert_true(n_failed >= 2);
}

/* ---- Of two processes and more ---- */

TEST(test_requests_that_differ)
{
    struct ask ask = good_ask();
    if (is_last())
        ask.mesh = (sy_mesh){n_ranks, 1};
    rejected(&ask, SY_ERR_MISMATCH, "mesh differs");
    ask = good_ask();
    ask.options.comm.no_shared = is_last();
    rejected(&ask, SY_ERR_MISMATCH, "no_shared differs");
    ask.options.comm.no_shared = !is_last();
    rejected(&ask, SY_ERR_MISMATCH, "no_shared differs");
    ask = good_ask();
    ask.options.comm.check = is_last() ? SY_CHECK_NONE : SY_CHECK_FULL;
    rejected(&ask, SY_ERR_MISMATCH, "check differs");
}

TEST(test_two_groups)
{
    MPI_Comm half;
    struct ask ask = good_ask();
    MPI_Comm_split(MPI_COMM_WORLD, this_rank % 2, this_rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - this_rank % 2, 5, &ask.on);
    rejected(&ask, SY_ERR_COMM, "two groups");
    MPI_Comm_free(&ask.on);
    MPI_Comm_free(&half);
}

static struct allocator left; /* what comms leave behind that were given up or broken */

/* All processes but the last destroy a comm that the last one calls. Its call times out, and later comms work. */
TEST(test_destroyed_while_one_calls)
{
    sy_ctx *ctx = NULL;
    assert_int_equal(sy_ctx_create(&ctx, NULL), SY_OK);
    for (int round = 0; round < 8; round++) {
        sy_comm *comm = NULL;
        const sy_mpi_options options = {.comm = {.timeout_ms = 200,
                                                 .no_shared = round % 2 == 1,
                                                 .alloc = limited_alloc,
                                                 .dealloc = limited_free,
                                                 .alloc_user = &left}};
        assert_int_equal(sy_comm_create_mpi(&comm, MPI_COMM_WORLD, (sy_mesh){1, n_ranks}, &options), SY_OK);
        assert_int_equal(sy_comm_reserve(ctx, comm, 100), SY_OK);
        if (is_last())
            assert_int_equal(sy_comm_reserve(ctx, comm, 100), SY_ERR_TIMEOUT);
        sy_comm_destroy(comm);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    sy_ctx_destroy(ctx);
}

static void *slow_alloc(void *user, size_t bytes)
{
    const struct timespec a_second = {.tv_sec = 1};
    int *const made = user;
    if (++*made == 2 && is_last()) /* by then all processes have come */
        nanosleep(&a_second, NULL);
    return limited_alloc(&left, bytes);
}

static void slow_free(void *user, void *ptr)
{
    (void)user;
    limited_free(&left, ptr);
}

/* The number of bytes of this stack that changed while another process caught up. */
static int catch_up(void)
{
    volatile unsigned char below[32768];
    int changed = 0;
    for (size_t i = 0; i < sizeof below; i++)
        below[i] = 0x5a;
    MPI_Barrier(MPI_COMM_WORLD);
    for (size_t i = 0; i < sizeof below; i++)
        changed += below[i] != 0x5a;
    return changed;
}

/* One process is slow in the middle. What it sends when the others have given up is not written into their stacks. */
TEST(test_a_process_that_is_late)
{
    struct ask ask = good_ask();
    sy_comm *comm = NULL;
    int made = 0;
    MPI_Comm some;
    MPI_Comm_dup(MPI_COMM_WORLD, &some);
    ask.options.comm =
        (sy_comm_options){.timeout_ms = 200, .alloc = slow_alloc, .dealloc = slow_free, .alloc_user = &made};
    assert_int_equal(sy_comm_create_mpi_n(&comm, some, ask.mesh, &ask.options, ask.options_bytes),
                     SY_ERR_TIMEOUT);
    assert_null(comm);
    assert_int_equal(catch_up(), 0);
}

/* One process comes late; the others give up in time, and none of them hangs. */
TEST(test_a_process_that_does_not_come)
{
    struct ask ask = good_ask();
    char text[300] = "";
    sy_comm *comm = NULL;
    MPI_Comm some; /* creation that was given up leaves its communicator unusable */
    MPI_Comm_dup(MPI_COMM_WORLD, &some);
    ask.options.comm = (sy_comm_options){.timeout_ms = 200,
                                         .alloc = limited_alloc,
                                         .dealloc = limited_free,
                                         .alloc_user = &left,
                                         .error = text,
                                         .error_bytes = sizeof text};
    if (!is_last()) {
        assert_int_equal(sy_comm_create_mpi_n(&comm, some, ask.mesh, &ask.options, ask.options_bytes),
                         SY_ERR_TIMEOUT);
        assert_null(comm);
        assert_non_null(strstr(text, "waited 200 ms for another process, which did not arrive in time"));
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* The last two leave something under way. */
TEST_GROUP(create)
{
    ranks_begin();
    return ranks_end(ranks_run(own_tests.tests, own_tests.count - (n_ranks < 2 ? 5 : 0)));
}
