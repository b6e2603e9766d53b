/*
 * Exchanges of tensors on a device between processes, where they are unlike those in CPU memory: input in memory that others map,
 * processes that cannot map it, tensors in different memory or on another device, captures, and a process that stops. The cases that are alike are run by
 * mpi_all_to_all and others with SWITCHYARD_TEST_DEVICE=cuda, without which this program tests nothing.
 */
#include "mesh_cases.h"
#include "support.h"
#include "ranks.h"

#include "comm/comm.h"
#include "cuda/cuda.h"

#include <time.h>

static sy_comm *comm_of(const sy_comm_options *options)
{
    const sy_mpi_options o = {.comm = *options};
    sy_comm *comm = NULL;
    assert_int_equal(sy_comm_create_mpi(&comm, MPI_COMM_WORLD, (sy_mesh){1, n_ranks}, &o), SY_OK);
    return comm;
}

/* A context in CPU memory, and calls with tensors there. */
static void use_device(bool use)
{
    if (use)
        setenv("SWITCHYARD_TEST_DEVICE", "cuda", 1);
    else
        unsetenv("SWITCHYARD_TEST_DEVICE");
}

static bool is_emulated(void)
{
    return emulated("emulator_late_loads") != NULL;
}

/* ---- Kernels ---- */

/* Loading may wait for the device, and a kernel there for another process: so it comes first. */
TEST(test_kernels)
{
    if (!is_emulated())
        skip_because("only the emulated device counts what is loaded late");
    char why[300] = "";
    bool good = true;
    sy_ctx *const ctx = test_ctx(1, NULL);
    sy_comm *const comm = comm_of(&(sy_comm_options){0});
    const unsigned long before = emulator_count("emulator_late_loads");
    for (int number = 0; number < 20; number++)
        good = run_mesh_case(ctx, comm, number, why, sizeof why) && good;
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
    if (!good)
        fail_msg("%s", why);
    assert_int_equal(emulator_count("emulator_late_loads"), before);
}

/* ---- Memory that others map ---- */

enum { WINDOW_BYTES = 1 << 17, TABLE_BYTES = 1 << 14, ROUNDS = 40 };

/* Moves a tensor of the call to device memory with room for so many bytes; false: it has none. */
static bool move_to(sy_ctx *ctx, struct mesh_call *call, int field, unsigned char *to, size_t room)
{
    const struct mesh_tensor *const x = &call->tensors[field][0];
    if (x->mem == NULL || x->bytes == 0 || x->bytes > room)
        return false;
    assert_int_equal(sy_device_copy(ctx, to, x->mem, x->bytes), SY_OK);
    call->fields[field][0].data = to;
    call->fields[field][0].byte_offset = 0;
    call->fields[field][0].device = (DLDevice){kDLCUDA, 0};
    return true;
}

/* One call whose input is in `window`, which the caller writes over as soon as the call is done; NULL: in none. Not all processes do
   so: `some`. Choices of a dispatch are at the end of the window every other time. */
static bool run_in(sy_ctx *ctx, sy_comm *comm, struct mesh_call *call, void *window, bool some, char *why,
                   size_t why_bytes)
{
    static unsigned char junk[WINDOW_BYTES];
    static int turn;
    const bool there = window != NULL && !(some && this_rank % 2 == 0) &&
                       move_to(ctx, call, MESH_INPUT, window, WINDOW_BYTES - TABLE_BYTES);
    if (there && !call->combines && turn++ % 2 == this_rank % 2)
        move_to(ctx, call, MESH_INDICES, (unsigned char *)window + WINDOW_BYTES - TABLE_BYTES, TABLE_BYTES);
    const sy_status st = mesh_call_run(ctx, comm, call);
    if (st != SY_OK)
        snprintf(why, why_bytes, "%s: %s", sy_status_name(st), sy_ctx_error(ctx));
    memset(junk, 0xEE, sizeof junk);
    if (there)
        assert_int_equal(sy_device_copy(ctx, window, junk, WINDOW_BYTES), SY_OK);
    const bool good = st == SY_OK && mesh_call_check(call, why, why_bytes);
    mesh_call_free(call);
    return good;
}

static bool run_windows(sy_ctx *ctx, sy_comm *comm, void *window, char *why, size_t why_bytes)
{
    sy_routing *routing = NULL;
    bool good = sy_routing_create(ctx, comm, &routing) == SY_OK;
    for (int number = 0; number < ROUNDS; number++) {
        struct mesh_case m;
        char one[2][300] = {"", ""};
        mesh_case_random(&m, sy_comm_mesh(comm), number);
        m.misalign = 0;
        m.gap = number % 4 == 0 ? m.gap : 0;
        m.n_planes = number % 4 == 1 || m.coded ? m.n_planes : 0;
        struct mesh_call *const there = mesh_dispatch_new(comm, &m, routing);
        const bool first = run_in(ctx, comm, there, window, number % 3 == 0, one[0], sizeof one[0]);
        const bool here = number % 5 == 4; /* of a routing that a device has filled, in CPU memory */
        use_device(!here);
        struct mesh_call *const home = mesh_combine_new(comm, &m, m.by_routing ? routing : NULL);
        const bool second =
            run_in(ctx, comm, home, here ? NULL : window, number % 3 == 0, one[1], sizeof one[1]);
        use_device(true);
        if (good && !(first && second))
            snprintf(why, why_bytes, "case %d: %s", number, first ? one[1] : one[0]);
        good = good && first && second;
        mesh_case_free(&m);
    }
    sy_routing_destroy(routing);
    return good;
}

static const struct way {
    const char *name;
    sy_comm_options options;
    const char *fails; /* what an emulated device refuses */
    bool in_one;       /* in the last process alone */
} ways[] = {
    {"mapped memory", {0}, NULL, false},
    {"mapped memory, unchecked", {.check = SY_CHECK_NONE}, NULL, false},
    {"memory of a comm without sharing", {.no_shared = true}, NULL, false},
    {"memory that one process cannot map", {0}, "EMULATED_NO_MAPPING", true},
    {"memory that no process can map", {0}, "EMULATED_NO_IPC", false},
    {"memory that one process cannot make", {0}, "EMULATED_NO_IPC", true},
};

static void hear(void *user, const sy_trace *trace)
{
    snprintf(user, 20, "%s", trace->rows != NULL ? trace->rows : "none");
}

/* How rows move on this way. */
static const char *way_name(const struct way *way)
{
    return way->fails == NULL && !way->options.no_shared   ? "mapped"
           : getenv("SWITCHYARD_TEST_DEVICE_ROWS") != NULL ? "device"
                                                           : "pinned";
}

static int n_segments(const sy_comm *comm)
{
    int n = comm->signs == SYI_NO_SEGMENT ? 0 : -1; /* of callers */
    for (int i = 0; i < SYI_MAX_SEGMENTS; i++)
        n += comm->segment[i].used;
    return n;
}

/* By callers that have such memory first, and by exchanges that need a stage first. */
static void test_windows(void **state)
{
    const struct way *const way = *state;
    if (way->fails != NULL && !is_emulated())
        skip_because("only the emulated device fails on demand");
    char why[400] = "";
    bool good = true, right = true;
    for (int staged = 0; staged < 2; staged++) {
        sy_ctx *const ctx = test_ctx(1, NULL);
        sy_comm *const comm = comm_of(&way->options);
        void *window = NULL, *other = NULL;
        if (way->fails != NULL && (!way->in_one || this_rank == n_ranks - 1))
            setenv(way->fails, "1", 1);
        if (staged)
            good = run_mesh_case(ctx, comm, 5, why, sizeof why) && good;
        const int before = n_segments(comm);
        const bool made = sy_comm_alloc_device(ctx, comm, WINDOW_BYTES, &window) == SY_OK &&
                          sy_comm_alloc_device(ctx, comm, (size_t)this_rank * 100, &other) == SY_OK;
        right = right && n_segments(comm) == before + 2;
        good = made && run_windows(ctx, comm, window, why, sizeof why) && good;
        const bool shares = sy_comm_shares_device_memory(comm);
        char heard[20] = "";
        sy_ctx *tracer = NULL;
        assert_int_equal(sy_ctx_create(&tracer, &(sy_ctx_options){.trace = hear, .trace_user = heard}),
                         SY_OK);
        good = run_mesh_case(tracer, comm, 1, why, sizeof why) && good;
        right = right && (!is_emulated() || n_ranks == 1 || strcmp(heard, way_name(way)) == 0);
        sy_ctx_destroy(tracer);
        right = right &&
                (!is_emulated() || n_ranks == 1 || shares == (way->fails == NULL && !way->options.no_shared));
        good = sy_comm_free(ctx, comm, window) == SY_OK && good; /* `other` is freed with the comm */
        sy_comm_destroy(comm);
        sy_ctx_destroy(ctx);
        if (way->fails != NULL)
            unsetenv(way->fails);
    }
    if (!good || !right)
        fail_msg("%s %s", right ? "" : "how it was shared;", why);
}

/* ---- The same call again ---- */

/* Tensors are in the same place each time, so that a device may repeat what it did; contents are others. In one round a choice of the last
   process is wrong. */
static void again(sy_ctx *ctx, sy_comm *comm, sy_routing *routing, const char *layout)
{
    enum { ROUNDS_AGAIN = 6, WRONG_ROUND = 3, FIELDS = 3, ROWS = 80, ROOM = 4096 };
    static const int fields[FIELDS] = {MESH_INPUT, MESH_INDICES, MESH_TOKENS};
    static const int32_t wrong = 16;
    void *there[FIELDS] = {NULL};
    for (int i = 0; i < FIELDS; i++)
        assert_int_equal(sy_device_alloc(ctx, ROOM, &there[i]), SY_OK);
    for (int round = 0; round < ROUNDS_AGAIN; round++) {
        struct mesh_case m;
        char line[200], why[300] = "";
        snprintf(line, sizeof line,
                 "%s form=2 S=5 K=2 E=16 experts=1 H=4 type=1 index_type=1 without=1 contents=%d", layout,
                 round);
        mesh_case_line(&m, sy_comm_mesh(comm), line);
        m.room = ROWS;
        struct mesh_call *const call = mesh_dispatch_new(comm, &m, routing);
        const struct mesh_tensor *const tokens = &call->tensors[MESH_TOKENS][0];
        for (int i = 0; i < FIELDS; i++)
            assert_true(move_to(ctx, call, fields[i], there[i], ROOM));
        if (round == WRONG_ROUND && this_rank == n_ranks - 1)
            assert_int_equal(sy_device_copy(ctx, there[1], &wrong, sizeof wrong), SY_OK);
        const sy_status st = mesh_call_run(ctx, comm, call);
        assert_int_equal(st, round == WRONG_ROUND ? SY_ERR_INDEX : SY_OK);
        assert_int_equal(sy_device_copy(ctx, tokens->mem, there[2], tokens->bytes), SY_OK);
        if (!(st == SY_OK ? mesh_call_check : mesh_call_untouched)(call, why, sizeof why))
            fail_msg("round %d: %s", round, why);
        mesh_call_free(call);
        mesh_case_free(&m);
    }
    for (int i = 0; i < FIELDS; i++)
        sy_device_free(ctx, there[i]);
}

TEST(test_the_same_call_again)
{
    sy_ctx *const ctx = test_ctx(1, NULL);
    sy_comm *const comm = comm_of(&(sy_comm_options){0});
    sy_routing *routing = NULL;
    assert_int_equal(sy_routing_create(ctx, comm, &routing), SY_OK);
    again(ctx, comm, routing, "layout=2");
    again(ctx, comm, NULL, "layout=1");
    sy_routing_destroy(routing);
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
}

/* ---- Mistakes of one process ---- */

/* All processes return the same status and sentence. */
static void expect_all(sy_ctx *ctx, sy_status got, sy_status want)
{
    char text[600];
    memset(text, 0, sizeof text);
    snprintf(text, sizeof text, "%s: %s", sy_status_name(got), sy_ctx_error(ctx));
    if (got != want)
        fail_msg("%s, want %s", text, sy_status_name(want));
    expect_same_everywhere(text, sizeof text);
}

/* One process has its tensors in CPU memory. */
TEST(test_other_memory)
{
    static const sy_comm_options options[] = {{0}, {.no_shared = true}, {.check = SY_CHECK_NONE}};
    char why[300] = "";
    for (size_t o = 0; o < COUNT_OF(options); o++)
        for (int culprit = 0; culprit < n_ranks; culprit++) {
            sy_ctx *const ctx = test_ctx(1, NULL);
            sy_comm *const comm = comm_of(&options[o]);
            struct mesh_case m;
            mesh_case_random(&m, sy_comm_mesh(comm), 5);
            struct mesh_call *const call = mesh_dispatch_new(comm, &m, NULL);
            use_device(this_rank != culprit);
            const sy_status st = mesh_call_run(ctx, comm, call);
            use_device(true);
            expect_all(ctx, st, SY_ERR_MISMATCH);
            assert_true(mesh_call_untouched(call, why, sizeof why));
            mesh_call_free(call);
            mesh_case_free(&m);
            if (!run_mesh_case(ctx, comm, 0, why, sizeof why))
                fail_msg("the next call: %s", why);
            sy_comm_destroy(comm);
            sy_ctx_destroy(ctx);
        }
}

TEST(test_alloc_mistakes)
{
    sy_ctx *const ctx = test_ctx(1, NULL);
    use_device(false);
    sy_ctx *const plain = test_ctx(1, NULL);
    use_device(true);
    sy_comm *const comm = comm_of(&(sy_comm_options){0});
    for (int culprit = 0; culprit < n_ranks; culprit++) {
        const bool guilty = this_rank == culprit;
        void *data = NULL, *memory = NULL;
        sy_ctx *const own = guilty ? plain : ctx;
        expect_all(own, sy_comm_alloc_device(own, comm, 1000, &data), SY_ERR_DEVICE);
        expect_all(ctx, sy_comm_alloc_device(ctx, comm, 1000, guilty ? NULL : &data), SY_ERR_NULL);
        expect_all(ctx, sy_comm_alloc_device(ctx, comm, guilty ? SIZE_MAX / 4 : 1000, &data), SY_ERR_NOMEM);
        assert_null(data);
        const sy_status st =
            guilty ? sy_comm_alloc(ctx, comm, 1000, &data) : sy_comm_alloc_device(ctx, comm, 1000, &data);
        expect_all(ctx, st, n_ranks > 1 ? SY_ERR_MISMATCH : SY_OK);
        assert_int_equal(sy_comm_alloc_device(ctx, comm, 1000, &memory), SY_OK);
        expect_all(ctx, sy_comm_free(ctx, comm, guilty ? (void *)&memory : memory), SY_ERR_STATE);
        assert_int_equal(sy_comm_free(ctx, comm, memory), SY_OK);
    }
    char why[300] = "";
    if (!run_mesh_case(ctx, comm, 0, why, sizeof why))
        fail_msg("the next call: %s", why);
    sy_comm_destroy(comm);
    sy_ctx_destroy(plain);
    sy_ctx_destroy(ctx);
}

/* ---- Another device ---- */

sy_status __real_sy_all_to_all_dispatch_n(sy_ctx *ctx, sy_comm *comm, /* NOLINT */
                                          const sy_all_to_all_dispatch_args *args, size_t bytes);

/* Two tokens for expert 0, of memory that the call makes on the device of the context. */
static sy_status dispatch_on(sy_ctx *ctx, int ordinal, sy_comm *comm)
{
    enum { TOKENS = 2, HIDDEN = 4 };
    const int64_t in[] = {TOKENS, HIDDEN}, chosen[] = {TOKENS, 1}, out[] = {TOKENS * n_ranks, HIDDEN},
                  hosts[] = {n_ranks, n_ranks};
    static const float zeros[64];
    uint16_t mapping[64] = {0};
    void *data[3];
    for (int d = 0; d < n_ranks; d++)
        mapping[d * n_ranks + d] = 1;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sy_device_alloc(ctx, sizeof zeros * (size_t)n_ranks, &data[i]), SY_OK);
        assert_int_equal(sy_device_copy(ctx, data[i], zeros, sizeof zeros), SY_OK);
    }
    DLTensor t[] = {sy_tensor(data[0], SY_F32, 2, in), sy_tensor(data[1], SY_I32, 2, chosen),
                    sy_tensor(data[2], SY_F32, 2, out), sy_tensor(mapping, SY_U16, 2, hosts)};
    for (int i = 0; i < 3; i++)
        t[i].device = (DLDevice){kDLCUDA, ordinal};
    const sy_all_to_all_dispatch_args args = {
        .input = &t[0], .expert_indices = &t[1], .expert_mapping = &t[3], .tokens = &t[2]};
    const sy_status st = __real_sy_all_to_all_dispatch_n(ctx, comm, &args, sizeof args);
    if (st == SY_OK)
        sy_ctx_sync(ctx);
    for (int i = 0; i < 3; i++)
        sy_device_free(ctx, data[i]);
    return st;
}

/* A comm has memory on the device of its first call. One process comes with a context on another. */
static void test_other_device(void **state)
{
    const bool *const no_shared = *state;
    sy_ctx *const second = device_ctx(1), *const ctx[] = {device_ctx(0), second};
    for (int culprit = 0; culprit < n_ranks; culprit++) {
        sy_comm *const comm = comm_of(&(sy_comm_options){.no_shared = *no_shared});
        const int own = this_rank == culprit;
        void *data = NULL;
        assert_int_equal(dispatch_on(ctx[0], 0, comm), SY_OK);
        expect_all(ctx[own], dispatch_on(ctx[own], own, comm), SY_ERR_DEVICE);
        assert_non_null(strstr(sy_ctx_error(ctx[own]), "is on CUDA device 1, want 0, that of the comm"));
        expect_all(ctx[own], sy_comm_alloc_device(ctx[own], comm, 1000, &data), SY_ERR_DEVICE);
        assert_int_equal(dispatch_on(ctx[0], 0, comm), SY_OK);
        sy_comm_destroy(comm);
    }
    sy_ctx_destroy(ctx[0]);
    sy_ctx_destroy(ctx[1]);
}

/* ---- A capture ---- */

sy_status __real_sy_request_wait(sy_request *request, sy_phase phase); /* NOLINT */

/* While one process captures a stream, its request stays open; afterwards all get their rows. */
static void test_capture(void **state)
{
    const bool *const no_shared = *state;
    char why[300] = "";
    bool good = true;
    sy_ctx *const ctx = device_ctx(0);
    sy_comm *const comm = comm_of(&(sy_comm_options){.no_shared = *no_shared});
    for (int number = 0; number < 6; number++) {
        struct mesh_case m;
        mesh_case_random(&m, sy_comm_mesh(comm), number);
        struct mesh_call *const call = mesh_dispatch_new(comm, &m, NULL);
        sy_request *request = NULL;
        void *graph = NULL;
        bool done = false;
        sy_status st = SY_OK, tested = SY_OK, waited = SY_ERR_STATE, called = SY_ERR_STATE;
        const bool captures = this_rank == number % n_ranks;
        if (!captures)
            MPI_Barrier(MPI_COMM_WORLD);
        st = mesh_call_start(ctx, comm, call, &request);
        if (captures) {
            good = syi_capture_begin(ctx) == SY_OK && good;
            MPI_Barrier(MPI_COMM_WORLD);
            for (int i = 0; i < 200; i++)
                tested = sy_request_test(request, SY_PHASE_DONE, &done);
            waited = done ? waited : __real_sy_request_wait(request, SY_PHASE_DONE);
            called = sy_comm_reserve(ctx, comm, 1000);
            good = syi_capture_end(ctx, &graph) == SY_OK && good;
            syi_graph_free(ctx, graph);
        }
        st = st == SY_OK ? sy_request_free(request) : st;
        if (st != SY_OK || tested != SY_OK || waited != SY_ERR_STATE || called != SY_ERR_STATE || done)
            snprintf(why, sizeof why, "%s, %s, %s, %s, done %d", sy_status_name(st), sy_status_name(tested),
                     sy_status_name(waited), sy_status_name(called), done);
        good = why[0] == '\0' && mesh_call_check(call, why, sizeof why) && good;
        mesh_call_free(call);
        mesh_case_free(&m);
    }
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
    if (!good)
        fail_msg("%s", why);
}

/* ---- A fault of another call ---- */

/* Slots of a position that is not in the table: the context reports it later, and skips what comes after. */
static void make_fault(sy_ctx *ctx)
{
    static const int32_t position = 9, table = 1;
    int64_t shape[2] = {1, 1};
    void *data;
    assert_int_equal(sy_device_alloc(ctx, 3 * sizeof(int32_t), &data), SY_OK);
    int32_t *const at = data;
    assert_int_equal(sy_device_copy(ctx, &at[0], &position, sizeof position), SY_OK);
    assert_int_equal(sy_device_copy(ctx, &at[1], &table, sizeof table), SY_OK);
    DLTensor t[3] = {sy_tensor(&at[0], SY_I32, 1, shape), sy_tensor(&at[1], SY_I32, 2, shape),
                     sy_tensor(&at[2], SY_I32, 1, shape)};
    for (int i = 0; i < 3; i++)
        t[i].device = (DLDevice){kDLCUDA, 0};
    const sy_kv_slots_args args = {
        .position = &t[0], .block_table = &t[1], .block_size = 2, .slots = &t[2], .num_rows = 4};
    assert_int_equal(sy_kv_slots(ctx, &args), SY_OK); /* queued */
}

/* It comes between start and wait of an exchange in one process: the others still get its rows, and it gets theirs. */
static void test_other_fault(void **state)
{
    const bool *const no_shared = *state;
    char why[300] = "";
    bool good = true;
    sy_status found = SY_OK;
    sy_comm *const comm = comm_of(&(sy_comm_options){.no_shared = *no_shared});
    for (int number = 0; number < 12; number++) {
        sy_ctx *const ctx = device_ctx(0);
        struct mesh_case m;
        mesh_case_random(&m, sy_comm_mesh(comm), number);
        struct mesh_call *const call = mesh_dispatch_new(comm, &m, NULL);
        sy_request *request = NULL;
        const bool faulty = this_rank == number % n_ranks;
        if (!faulty)
            MPI_Barrier(MPI_COMM_WORLD);
        sy_status st = mesh_call_start(ctx, comm, call, &request);
        if (faulty) {
            make_fault(ctx);
            MPI_Barrier(MPI_COMM_WORLD);
        }
        st = st == SY_OK ? sy_request_free(request) : st;
        found = faulty ? sy_ctx_sync(ctx) : found;
        good = st == SY_OK && mesh_call_check(call, why, sizeof why) && good;
        mesh_call_free(call);
        mesh_case_free(&m);
        sy_ctx_destroy(ctx);
    }
    sy_comm_destroy(comm);
    if (!good || found != SY_ERR_INDEX)
        fail_msg("%s; the other call: %s", why, sy_status_name(found));
}

/* ---- A process that stops ---- */

static void sleep_ms(long ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* The last process starts a call and then does nothing: the others give up, and the comm is of no use. */
static void test_stopped(void **state)
{
    const bool *const no_shared = *state;
    sy_ctx *const ctx = test_ctx(1, NULL);
    sy_comm *const comm = comm_of(&(sy_comm_options){.timeout_ms = 500, .no_shared = *no_shared});
    char why[300] = "";
    const bool before = run_mesh_case(ctx, comm, 5, why, sizeof why);
    struct mesh_case m;
    mesh_case_random(&m, sy_comm_mesh(comm), 5);
    struct mesh_call *const call = mesh_dispatch_new(comm, &m, NULL);
    const bool stops = this_rank == n_ranks - 1;
    sy_request *request = NULL;
    MPI_Barrier(MPI_COMM_WORLD);
    sy_status first = SY_ERR_TIMEOUT;
    if (!stops) {
        sleep_ms(50); /* so that it could not do anything in its start */
        first = mesh_call_run(ctx, comm, call);
    } else {
        mesh_call_start(ctx, comm, call, &request);
        sleep_ms(1500);
    }
    const sy_status second = mesh_call_run(ctx, comm, stops ? mesh_dispatch_new(comm, &m, NULL) : call);
    MPI_Barrier(MPI_COMM_WORLD);
    sy_comm_destroy(comm); /* memory and tensors are kept: a message may still arrive there */
    assert_true(before);
    assert_int_equal(first, SY_ERR_TIMEOUT);
    assert_int_not_equal(second, SY_OK);
    if (!stops)
        assert_int_equal(second, SY_ERR_COMM);
}

TEST_GROUP(device)
{
    static const bool no_shared[] = {false, true};
    struct test_list list = {0};
    setenv("EMULATED_DEVICES", "2", 1);
    ranks_begin();
    if (test_on_device()) {
        test_add(&list, "kernels are loaded before", test_kernels, NULL);
        test_add(&list, "the same call again", test_the_same_call_again, NULL);
    }
    for (size_t i = 0; i < COUNT_OF(ways) && test_on_device(); i++)
        test_add(&list, ways[i].name, test_windows, (void *)&ways[i]);
    if (test_on_device())
        test_add(&list, "mistakes with memory of a device", test_alloc_mistakes, NULL);
    if (test_on_device() && n_ranks > 1) {
        test_add(&list, "tensors in other memory", test_other_memory, NULL);
        for (int i = 0; i < 2; i++) {
            test_add(&list, test_name("another device, %s", no_shared[i] ? "messages" : "mapped memory"),
                     test_other_device, (void *)&no_shared[i]);
            test_add(&list, test_name("a capture, %s", no_shared[i] ? "messages" : "mapped memory"),
                     test_capture, (void *)&no_shared[i]);
        }
        test_add(&list, "a fault of another call, mapped memory", test_other_fault, (void *)&no_shared[0]);
        test_add(&list, "a fault of another call, messages", test_other_fault, (void *)&no_shared[1]);
        test_add(&list, "a process that stops, mapped memory", test_stopped, (void *)&no_shared[0]);
        test_add(&list, "a process that stops, messages", test_stopped, (void *)&no_shared[1]);
    }
    return ranks_run_list(&list);
}
