/*
 * Transports that fail, processes that do not come, and memory that is not there, in one of two devices: all of them return
 * an error, no process waits for ever, and where the comm is not broken the next call is as good as ever.
 */
#include "mesh_misuse.h"
#include "support_memory.h"
#include "threads_transport.h"

#include "comm/comm.h"

#include <pthread.h>
#include <unistd.h>

enum { D = 2 };

/* Two devices, one thread each. `act` does what is to be tested and fills status and sentence. */
struct trial {
    const char *line; /* of the call; NULL: a dispatch */
    struct threads_options transport;
    sy_comm_options comm;
    struct threads_hub *hub;
    struct mesh_case of;
    struct mesh_call *call[D];
    void (*act)(struct trial *trial, int device, sy_ctx *ctx, sy_comm *comm);
    int kind;    /* of acts that have several */
    bool broken; /* the comm is not expected to work afterwards */
    int fail_at; /* call of device `failing` that its transport or allocator rejects */
    int failing;
    struct allocator allocators[D], ctx_allocators[D];
    sy_status status[D], after[D];
    char sentence[D][512], after_sentence[D][512];
    bool untouched[D];
    sy_fault fault[D];
    pthread_barrier_t all;
};

static void note(sy_ctx *ctx, sy_status status, sy_status *to, char *sentence)
{
    *to = status;
    snprintf(sentence, 512, "%s", sy_ctx_error(ctx));
}

static void just_call(struct trial *trial, int device, sy_ctx *ctx, sy_comm *comm)
{
    note(ctx, mesh_call_run(ctx, comm, trial->call[device]), &trial->status[device], trial->sentence[device]);
}

static void device_thread(int device, void *user)
{
    struct trial *t = user;
    sy_ctx *ctx = NULL;
    sy_comm *comm = NULL;
    sy_comm_options options = t->comm;
    options.alloc = limited_alloc;
    options.dealloc = limited_free;
    options.alloc_user = &t->allocators[device];
    const sy_ctx_options one_thread = {.threads = 1,
                                       .alloc = limited_alloc,
                                       .dealloc = limited_free,
                                       .alloc_user = &t->ctx_allocators[device]};
    const sy_transport transport = threads_transport(t->hub, device);
    if (sy_ctx_create(&ctx, &one_thread) != SY_OK || sy_comm_create(&comm, &transport, &options) != SY_OK)
        abort();
    t->call[device] = mesh_call_new(comm, &t->of, NULL);
    t->act(t, device, ctx, comm);
    char why[256];
    t->untouched[device] = mesh_call_untouched(t->call[device], why, sizeof why);
    t->allocators[device].fail_at = t->ctx_allocators[device].fail_at = 0;
    if (t->broken)
        note(ctx, mesh_call_run(ctx, comm, t->call[device]), &t->after[device], t->after_sentence[device]);
    else if (!run_mesh_case(ctx, comm, 0, t->after_sentence[device], sizeof t->after_sentence[device]))
        t->after[device] = SY_ERR_STATE;
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
}

static void run_trial(struct trial *t)
{
    mesh_case_line(&t->of, (sy_mesh){1, D}, t->line != NULL ? t->line : MESH_DISPATCH);
    pthread_barrier_init(&t->all, NULL, D);
    t->hub = threads_hub_new((sy_mesh){1, D}, &t->transport);
    threads_run(D, device_thread, t);
    threads_hub_free(t->hub);
    pthread_barrier_destroy(&t->all);
    for (int d = 0; d < D; d++) {
        if ((t->allocators[d].live != 0 && !t->broken) || t->ctx_allocators[d].live != 0)
            fail_msg("device %d did not give back its memory", d);
        free_rest(&t->allocators[d]);
        mesh_call_free(t->call[d]);
    }
    mesh_case_free(&t->of);
}

/* All devices have the status and one sentence, nothing is written, the comm still works. */
static void expect_agreement(const struct trial *t, sy_status want, const char *what)
{
    for (int d = 0; d < D; d++) {
        if (t->status[d] != want)
            fail_msg("%s: device %d has %s, want %s: \"%s\"", what, d, sy_status_name(t->status[d]),
                     sy_status_name(want), t->sentence[d]);
        if (strcmp(t->sentence[d], t->sentence[0]) != 0 || t->sentence[d][0] == '\0')
            fail_msg("%s: device 0 says \"%s\", device %d \"%s\"", what, t->sentence[0], d, t->sentence[d]);
        if (t->after[d] != SY_OK)
            fail_msg("%s: the next call of device %d fails: %s", what, d, t->after_sentence[d]);
        if (!t->untouched[d])
            fail_msg("%s: device %d has written", what, d);
    }
}

/* ---- Contents of one device that are rejected ---- */

static void bad_choice(struct trial *t, int device, sy_ctx *ctx, sy_comm *comm)
{
    const DLTensor *const indices = t->call[device]->dispatch.expert_indices;
    unsigned char *const first = (unsigned char *)indices->data + indices->byte_offset;
    const size_t bytes = (size_t)indices->dtype.bits / 8;
    unsigned char good[8];
    memcpy(good, first, bytes);
    if (device == t->failing)
        memset(first, 0x7f, bytes);
    just_call(t, device, ctx, comm);
    sy_ctx_fault(ctx, &t->fault[device]);
    memcpy(first, good, bytes);
}

/* Every device has the numbers of the fault, wherever it was found. */
static void faults_agree(void **state)
{
    const struct threads_options *transport = *state;
    for (int failing = 0; failing < D; failing++) {
        struct trial t = {.transport = *transport, .act = bad_choice, .failing = failing};
        run_trial(&t);
        expect_agreement(&t, SY_ERR_INDEX, "a bad choice");
        for (int d = 0; d < D; d++) {
            const sy_fault *const f = &t.fault[d], *const found = &t.fault[failing];
            assert_int_equal(f->status, SY_ERR_INDEX);
            assert_int_equal(f->code, found->code);
            assert_int_equal(f->batch, 0);
            assert_int_equal(f->position, 0);
            assert_int_equal(f->value, found->value);
            assert_int_equal(f->limit, found->limit);
            assert_true(f->value >= f->limit && f->limit > 0);
        }
    }
}

/* ---- Transports that fail ---- */

static void call_with_failure(struct trial *t, int device, sy_ctx *ctx, sy_comm *comm)
{
    if (device == t->failing)
        threads_fail_at(t->hub, device, t->fail_at);
    just_call(t, device, ctx, comm);
}

/* The n-th call of one device fails, for every n: it says COMM and why, the others come back too, and the comm is
   broken for good. */
static void transport_fails(void **state)
{
    const struct threads_options *transport = *state;
    for (int failing = 0; failing < D; failing++) {
        int n = 1;
        for (bool passed = false; !passed; n++) {
            struct trial t = {.line = n % 2 ? MESH_DISPATCH : MESH_COMBINE,
                              .transport = *transport,
                              .act = call_with_failure,
                              .broken = true,
                              .failing = failing,
                              .fail_at = n};
            run_trial(&t);
            passed = t.status[failing] == SY_OK;
            for (int d = 0; d < D && !passed; d++) {
                if (t.status[d] != SY_ERR_COMM && (d == failing || t.status[d] != SY_OK))
                    fail_msg("call %d of device %d fails: device %d has %s: %s", n, failing, d,
                             sy_status_name(t.status[d]), t.sentence[d]);
                if (t.after[d] != SY_ERR_COMM)
                    fail_msg("call %d of device %d failed: then device %d has %s: %s", n, failing, d,
                             sy_status_name(t.after[d]), t.after_sentence[d]);
            }
            if (!passed && strstr(t.sentence[failing], "told to fail") == NULL)
                fail_msg("the transport's reason is lost: \"%s\"", t.sentence[failing]);
        }
        assert_true(n > 3);
    }
}

/* ---- Processes that do not come ---- */

static void one_comes_late(struct trial *t, int device, sy_ctx *ctx, sy_comm *comm)
{
    if (device == 1)
        pthread_barrier_wait(&t->all); /* until device 0 has given up */
    just_call(t, device, ctx, comm);
    if (device == 0)
        pthread_barrier_wait(&t->all);
}

TEST(no_process_answers)
{
    struct trial t = {.comm = {.timeout_ms = 100}, .act = one_comes_late, .broken = true};
    run_trial(&t);
    assert_int_equal(t.status[0], SY_ERR_TIMEOUT);
    assert_non_null(strstr(t.sentence[0], "100"));
    assert_int_equal(t.after[0], SY_ERR_COMM);
    assert_true(t.status[1] == SY_ERR_TIMEOUT || t.status[1] == SY_ERR_COMM);
    assert_int_equal(t.after[1], SY_ERR_COMM);
}

/* Device 0 gives up and writes over its input, memory of the comm: before device 1 begins the call, or when that has sent its header. */
static void one_gives_up(struct trial *t, int device, sy_ctx *ctx, sy_comm *comm)
{
    const struct mesh_tensor *x = &t->call[device]->tensors[MESH_INPUT][0];
    const bool early = device == 1 && t->kind / 2 != 0;
    sy_request *request = NULL;
    void *memory = NULL;
    if (sy_comm_reserve(ctx, comm, 1 << 16) != SY_OK || sy_comm_alloc(ctx, comm, x->bytes, &memory) != SY_OK)
        abort();
    memcpy(memory, x->mem, x->bytes);
    if (device == 0 || t->kind % 2 != 0)
        t->call[device]->fields[MESH_INPUT][0].data = memory;
    if (early)
        mesh_call_start(ctx, comm, t->call[device], &request);
    pthread_barrier_wait(&t->all);
    if (device == 1)
        pthread_barrier_wait(&t->all); /* until device 0 has given up */
    if (!early)
        mesh_call_start(ctx, comm, t->call[device], &request);
    comm->options.timeout_ms = device == 0 ? 1 : comm->options.timeout_ms;
    note(ctx, sy_request_free(request), &t->status[device], t->sentence[device]);
    memset(memory, 0x5A, x->bytes);
    if (device == 0)
        pthread_barrier_wait(&t->all);
}

TEST(rows_of_one_that_gave_up)
{
    for (int kind = 0; kind < 4; kind++) {
        struct trial t = {.line = MESH_SIZES, .transport = {.shared = true}, .kind = kind, .broken = true};
        t.act = one_gives_up;
        run_trial(&t);
        assert_int_equal(t.status[0], SY_ERR_TIMEOUT);
        assert_int_equal(t.status[1], SY_ERR_COMM);
        assert_non_null(strstr(t.sentence[1], "device 0 gave up"));
    }
}

/* Device 1 comes to none of these calls. */
static void wait_in_vain(struct trial *t, int device, sy_ctx *ctx, sy_comm *comm)
{
    void *data = NULL;
    if (device == 0) {
        const sy_status st = t->kind == 0   ? sy_comm_alloc(ctx, comm, 100, &data)
                             : t->kind == 1 ? sy_comm_reserve(ctx, comm, 100)
                             : t->kind == 2 ? sy_comm_free(ctx, comm, NULL)
                                            : sy_comm_reject(ctx, comm, SY_ERR_VALUE, "mine");
        note(ctx, st, &t->status[0], t->sentence[0]);
    }
    pthread_barrier_wait(&t->all);
}

TEST(no_process_comes_for_memory)
{
    for (int kind = 0; kind < 4; kind++) {
        struct trial t = {.transport = {.shared = true}, .comm = {.timeout_ms = 100}, .kind = kind};
        t.act = wait_in_vain;
        t.broken = true;
        run_trial(&t);
        assert_int_equal(t.status[0], SY_ERR_TIMEOUT);
        assert_non_null(strstr(t.sentence[0], "waited 100 ms for another process"));
        assert_int_equal(t.after[0], SY_ERR_COMM);
        assert_non_null(strstr(t.after_sentence[0], "comm is broken"));
    }
}

/* ---- Memory that is not there ---- */

/* Of the comm, or of the context. */
static void call_without_memory(struct trial *t, int device, sy_ctx *ctx, sy_comm *comm)
{
    struct allocator *a = t->kind < D ? &t->allocators[device] : &t->ctx_allocators[device];
    if (device == t->failing) {
        a->calls = 0;
        a->fail_at = t->fail_at;
    }
    just_call(t, device, ctx, comm);
}

/* The n-th allocation of one device fails, for every n: NOMEM everywhere, and the next call finds memory. */
static void memory_fails(void **state)
{
    const struct threads_options *transport = *state;
    static const char *const lines[] = {MESH_DISPATCH, MESH_EXPERT, MESH_COMBINE, MESH_SUM};
    int failures = 0;
    for (size_t m = 0; m < COUNT_OF(lines); m++)
        for (int kind = 0; kind < 2 * D; kind++) {
            for (int n = 1, passed = 0; !passed; n++) {
                struct trial t = {.line = lines[m],
                                  .transport = *transport,
                                  .act = call_without_memory,
                                  .kind = kind,
                                  .failing = kind % D,
                                  .fail_at = n};
                run_trial(&t);
                passed = t.status[0] == SY_OK && t.status[1] == SY_OK;
                if (!passed)
                    expect_agreement(&t, SY_ERR_NOMEM, t.line);
                failures += !passed;
            }
        }
    assert_true(failures > 0);
}

/* Sharing ends in the call, and one device has no memory for messages: NOMEM everywhere, at every allocation. */
static void call_without_both(struct trial *t, int device, sy_ctx *ctx, sy_comm *comm)
{
    if (device == 0)
        threads_fail_share(t->hub);
    pthread_barrier_wait(&t->all);
    call_without_memory(t, device, ctx, comm);
}

TEST(memory_for_messages_fails)
{
    int failures = 0;
    for (int kind = 0; kind < 2 * D; kind++)
        for (int n = 1; n < 12; n++) { /* without memory for the lists of a segment the call goes on */
            struct trial t = {.line = kind < D ? MESH_DISPATCH : MESH_SUM,
                              .transport = {.shared = true},
                              .act = call_without_both,
                              .failing = kind % D,
                              .fail_at = n};
            run_trial(&t);
            if (t.status[0] != SY_OK || t.status[1] != SY_OK)
                expect_agreement(&t, SY_ERR_NOMEM, t.line);
            failures += t.status[0] != SY_OK;
        }
    assert_true(failures > 2 * D);
}

/* Where memory cannot be shared, rows travel in messages. */
static void cases_without_sharing(struct trial *t, int device, sy_ctx *ctx, sy_comm *comm)
{
    t->status[device] = SY_OK;
    for (int i = 0; i < mesh_case_count((sy_mesh){1, D}); i++) {
        if (device == 0 && i % 7 == 0)
            threads_fail_share(t->hub);
        pthread_barrier_wait(&t->all);
        if (!run_mesh_case(ctx, comm, i, t->sentence[device], sizeof t->sentence[device]))
            t->status[device] = SY_ERR_STATE;
    }
}

TEST(shared_memory_fails)
{
    struct trial t = {.transport = {.shared = true}, .act = cases_without_sharing};
    run_trial(&t);
    for (int d = 0; d < D; d++)
        if (t.status[d] != SY_OK || t.after[d] != SY_OK)
            fail_msg("device %d: %s %s", d, t.sentence[d], t.after_sentence[d]);
}

/* A comm that cannot be made gives back what it took. */
TEST(creation_fails)
{
    int failures = 0;
    const struct threads_options plain = {.shared = false};
    for (bool made = false; !made; failures += !made) {
        struct threads_hub *hub = threads_hub_new((sy_mesh){1, D}, &plain);
        struct allocator a = {.fail_at = failures + 1};
        char error[256] = "";
        sy_comm *comm = NULL;
        const sy_transport transport = threads_transport(hub, 0);
        const sy_comm_options options = {.alloc = limited_alloc,
                                         .dealloc = limited_free,
                                         .alloc_user = &a,
                                         .error = error,
                                         .error_bytes = sizeof error};
        const sy_status status = sy_comm_create(&comm, &transport, &options);
        made = status == SY_OK;
        if (!made) {
            assert_int_equal(status, SY_ERR_NOMEM);
            assert_null(comm);
            assert_string_not_equal(error, "");
            assert_int_equal(a.live, 0);
        } else {
            threads_fail_at(hub, 0, 1); /* the other device never comes */
            sy_comm_destroy(comm);
            free_rest(&a);
        }
        threads_hub_free(hub);
    }
    assert_true(failures > 0);
}

TEST(transports_that_are_incomplete)
{
    const struct threads_options shared = {.shared = true};
    struct threads_hub *hub = threads_hub_new((sy_mesh){1, D}, &shared);
    const sy_transport good = threads_transport(hub, 0);
    sy_transport bad[6] = {good, good, good, good, good, good};
    bad[0].gather = NULL;
    bad[1].exchange = NULL;
    bad[2].test = NULL;
    bad[3].error = NULL;
    bad[4].device = D;
    bad[5].device_rows = (sy_transport_device)3;
    for (int i = 0; i < 6; i++) {
        sy_comm *comm = NULL;
        assert_int_equal(sy_comm_create(&comm, &bad[i], NULL), i < 4 ? SY_ERR_NULL : SY_ERR_VALUE);
        assert_null(comm);
    }
    assert_int_equal(sy_comm_create(NULL, &good, NULL), SY_ERR_NULL);
    threads_hub_free(hub);
}

TEST_GROUP(agreement)
{
    static const struct threads_options messages = {.contagious = true},
                                        shared = {.shared = true, .contagious = true};
    test_add(&own_tests, "faults agree, messages", faults_agree, (void *)&messages);
    test_add(&own_tests, "faults agree, shared memory", faults_agree, (void *)&shared);
    test_add(&own_tests, "transport fails, messages", transport_fails, (void *)&messages);
    test_add(&own_tests, "transport fails, shared memory", transport_fails, (void *)&shared);
    test_add(&own_tests, "memory fails, messages", memory_fails, (void *)&messages);
    test_add(&own_tests, "memory fails, shared memory", memory_fails, (void *)&shared);
    return test_run(&own_tests, "comm_agreement");
}
