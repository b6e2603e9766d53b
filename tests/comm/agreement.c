/*
 * One device is given something wrong, all devices answer alike: the same status, the same sentence, nothing written,
 * no process waits for ever, and the next call is as good as ever. Then devices that are right each by itself but disagree,
 * transports that fail, processes that do not come, and memory that is not there.
 */
#include "mesh_cases.h"
#include "support.h"
#include "mesh_rejections.h"
#include "support_memory.h"
#include "threads_transport.h"

#include <pthread.h>
#include <unistd.h>

enum { D = REJECTION_DEVICES };

/* Two devices, one thread each. `act` does what is to be tested and fills status and sentence. */
struct trial {
    struct threads_options transport;
    sy_comm_options comm;
    struct threads_hub *hub;
    struct test_call calls[D];
    void (*act)(struct trial *trial, int device, sy_ctx *ctx, sy_comm *comm);
    int kind;    /* of acts that have several */
    bool broken; /* the comm is not expected to work afterwards */
    int fail_at; /* call of device `failing` that its transport or allocator rejects */
    int failing;
    struct allocator allocators[D], ctx_allocators[D];
    sy_status status[D], after[D];
    char sentence[D][512], after_sentence[D][512];
    pthread_barrier_t all;
};

static void note(sy_ctx *ctx, sy_status status, sy_status *to, char *sentence)
{
    *to = status;
    snprintf(sentence, 512, "%s", sy_ctx_error(ctx));
}

static sy_status run_call(sy_ctx *ctx, sy_comm *comm, struct test_call *c)
{
    const sy_op_info *op = sy_op_find(c->op);
    return sy_call_mesh(ctx, comm, op, &c->args, op->args_bytes);
}

static void just_call(struct trial *trial, int device, sy_ctx *ctx, sy_comm *comm)
{
    note(ctx, run_call(ctx, comm, &trial->calls[device]), &trial->status[device], trial->sentence[device]);
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
    t->act(t, device, ctx, comm);
    t->allocators[device].fail_at = t->ctx_allocators[device].fail_at = 0;
    if (t->broken)
        note(ctx, run_call(ctx, comm, &t->calls[device]), &t->after[device], t->after_sentence[device]);
    else if (run_mesh_case(ctx, comm, 0, t->after_sentence[device], sizeof t->after_sentence[device]))
        t->after[device] = SY_OK;
    else
        t->after[device] = SY_ERR_STATE;
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
}

static void run_trial(struct trial *t)
{
    pthread_barrier_init(&t->all, NULL, D);
    t->hub = threads_hub_new((sy_mesh){1, D}, &t->transport);
    threads_run(D, device_thread, t);
    threads_hub_free(t->hub);
    pthread_barrier_destroy(&t->all);
    for (int d = 0; d < D; d++) {
        if ((t->allocators[d].live != 0 && !t->broken) || t->ctx_allocators[d].live != 0)
            fail_msg("device %d did not give back its memory", d);
        free_rest(&t->allocators[d]);
    }
}

static void make_both(struct trial *t, void (*make)(struct test_call *c))
{
    for (int d = 0; d < D; d++)
        make(&t->calls[d]);
}

static void free_both(struct trial *t)
{
    for (int d = 0; d < D; d++)
        test_call_free(&t->calls[d]);
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
        test_call_expect_untouched(&t->calls[d]);
    }
}

/* ---- One device is given something wrong -------------------------------------------------------------- */

struct spoiled {
    const struct mesh_rejections *of;
    int device;
    struct threads_options transport;
};

static void spoiled_on_one(void **state)
{
    const struct spoiled *s = *state;
    for (size_t i = 0; i < s->of->n; i++) {
        const struct rejection *row = &s->of->rows[i];
        struct trial t = {.transport = s->transport, .act = just_call};
        sy_status want = row->want;
        /* One more expert leaves the experts of device 0 alone: it is the mapping that differs. */
        if (s->device == 0 && strstr(row->name, "three of four experts"))
            want = SY_ERR_MISMATCH;
        make_both(&t, s->of->make);
        test_call_spoil(&t.calls[s->device], &row->spoil);
        run_trial(&t);
        expect_agreement(&t, want, row->name);
        char device[32];
        snprintf(device, sizeof device, "of device %d ", s->device);
        if (want == row->want && row->want != SY_ERR_NULL && strstr(t.sentence[0], device) == NULL)
            fail_msg("%s: the sentence does not tell the device: \"%s\"", row->name, t.sentence[0]);
        free_both(&t);
    }
}

/* Two devices are wrong in different ways: the lower one is reported. */
static void the_lower_device_is_reported(void **state)
{
    (void)state;
    static const struct spoil late = {.kind = SPOIL_EXTENT, .argument = "tokens", .dim = 3, .value = 6},
                              early = {.kind = SPOIL_TYPE, .argument = "present", .type = {kDLFloat, 32, 1}};
    for (int d = 0; d < D; d++) {
        struct trial t = {.act = just_call};
        make_both(&t, mesh_make_dispatch);
        test_call_spoil(&t.calls[d], &late);
        test_call_spoil(&t.calls[1 - d], &early);
        run_trial(&t);
        expect_agreement(&t, d == 0 ? SY_ERR_SHAPE : SY_ERR_DTYPE, "two wrong devices");
        free_both(&t);
    }
}

/* ---- Devices that disagree ---------------------------------------------------------------------------- */

static void set_extent(struct test_call *c, int64_t value, int dim, const char *a, const char *b)
{
    test_call_tensor(c, a)->shape[dim] = value;
    if (b)
        test_call_tensor(c, b)->shape[dim] = value;
}

static void other_hidden(struct test_call *c)
{
    set_extent(c, 4, 3, "input", "tokens");
}

static void other_slots(struct test_call *c)
{
    set_extent(c, 1, 3, "expert_indices", "metadata");
}

static void other_tokens(struct test_call *c)
{
    static const char *const inputs[] = {"input", "expert_indices", "planes[0]"}, *const outputs[] = {
                                                                                      "tokens", "metadata",
                                                                                      "plane_tokens[0]"};
    for (int i = 0; i < 3; i++)
        set_extent(c, 2, 2, inputs[i], outputs[i]);
    test_call_tensor(c, "present")->shape[0] = 8;
}

/* As many tokens, otherwise divided. */
static void other_batches(struct test_call *c)
{
    static const char *const inputs[] = {"input", "expert_indices", "planes[0]"}, *const outputs[] = {
                                                                                      "tokens", "metadata",
                                                                                      "plane_tokens[0]"};
    for (int i = 0; i < 3; i++) {
        struct tensor *x = test_call_tensor(c, inputs[i]), *y = test_call_tensor(c, outputs[i]);
        x->shape[0] = 3;
        x->shape[2] = 2;
        y->shape[1] = 3;
        y->shape[2] = 4;
    }
    c->args.a2a_dispatch.output_concat_dim = 2;
}

static void other_dimension(struct test_call *c)
{
    static const char *const outputs[] = {"tokens", "metadata", "plane_tokens[0]"};
    for (int i = 0; i < 3; i++) {
        struct tensor *y = test_call_tensor(c, outputs[i]);
        y->shape[1] = 2;
        y->shape[2] = 6;
    }
    c->args.a2a_dispatch.output_concat_dim = 2;
}

static void other_type(struct test_call *c)
{
    test_call_tensor(c, "input")->t.dtype = SY_F16;
    test_call_tensor(c, "tokens")->t.dtype = SY_F16;
}

static void other_plane(struct test_call *c)
{
    set_extent(c, 3, 3, "planes[0]", "plane_tokens[0]");
}

static void no_plane(struct test_call *c)
{
    c->args.a2a_dispatch.num_planes = 0;
}

static void other_axis(struct test_call *c)
{
    c->args.a2a_dispatch.cluster_axis = SY_AXIS_1;
}

static void other_mapping(struct test_call *c)
{
    memset(test_call_tensor(c, "expert_mapping")->mem, 0, 4); /* expert 0 nowhere */
    test_call_tensor(c, "expert_counts")->shape[0] = c->args.a2a_dispatch.expert_counts ? 3 : 0;
    c->args.a2a_dispatch.expert_counts = NULL;
}

static void fewer_experts(struct test_call *c)
{
    test_call_tensor(c, "expert_mapping")->shape[0] = 5; /* expert 5 is device 1's */
    uint16_t *slot = (uint16_t *)(void *)test_call_tensor(c, "expert_indices")->mem;
    for (int i = 0; i < 12; i++)
        slot[i] = slot[i] == 5 ? 4 : slot[i];
    c->args.a2a_dispatch.expert_counts = NULL;
}

static void ragged(struct test_call *c)
{
    static const char *const inputs[] = {"input", "expert_indices", "planes[0]"}, *const outputs[] = {
                                                                                      "tokens", "metadata",
                                                                                      "plane_tokens[0]"};
    for (int i = 0; i < 3; i++) {
        struct tensor *x = test_call_tensor(c, inputs[i]), *y = test_call_tensor(c, outputs[i]);
        x->shape[1] = x->shape[3];
        y->shape[1] = y->shape[3];
        x->shape[0] = 6;
        y->shape[0] = 12;
        x->t.ndim = y->t.ndim = 2;
    }
    c->args.a2a_dispatch.max_tokens = 6;
}

static void other_replica(struct test_call *c)
{
    c->args.a2a_dispatch.replica = SY_A2A_REPLICA_HASH;
}

static void other_node(struct test_call *c)
{
    c->args.a2a_dispatch.node_size = 2;
}

/* Every one of these is a valid call by itself. */
static const struct {
    const char *name;
    void (*change)(struct test_call *c);
} disagreements[] = {
    {"other elements", other_hidden},     {"other slots", other_slots},
    {"other tokens", other_tokens},       {"other batches", other_batches},
    {"other dimension", other_dimension}, {"other type", other_type},
    {"another plane", other_plane},       {"no plane", no_plane},
    {"another axis", other_axis},         {"another mapping", other_mapping},
    {"fewer experts", fewer_experts},     {"ragged", ragged},
    {"another replica", other_replica},   {"another size of nodes", other_node},
};

static void devices_disagree(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(disagreements); i++)
        for (int d = 0; d < D; d++) {
            struct trial t = {.act = just_call};
            make_both(&t, mesh_make_dispatch);
            disagreements[i].change(&t.calls[d]);
            run_trial(&t);
            expect_agreement(&t, SY_ERR_MISMATCH, disagreements[i].name);
            free_both(&t);
        }
}

static void packed(struct test_call *c)
{
    c->args.a2a_dispatch.layout = SY_LAYOUT_PACKED;
    test_call_tensor(c, "src")->shape[1] = 2;
    c->args.a2a_dispatch.expert_offsets = NULL;
}

#define WITH(name, field, value) \
    static void name(struct test_call *c) \
    { \
        c->args.field = (value); \
    }
WITH(other_align, a2a_dispatch.align, 3)
WITH(other_expert_rows, a2a_dispatch.expert_rows, 12)
WITH(combine_replica, a2a_combine.replica, SY_A2A_REPLICA_FIRST)
WITH(combine_node, a2a_combine.node_size, 2)

static void other_table(struct test_call *c)
{
    memset(test_call_tensor(c, "expert_metadata")->mem + 40, 1, 1); /* was 0 */
}

static void other_sums(struct test_call *c)
{
    test_call_tensor(c, "output")->t.dtype = SY_F16;
}

static void other_format(struct test_call *c)
{
    static const sy_row_format rows = {.bytes = sizeof rows,
                                       .q_type = {kDLInt, 8, 1},
                                       .scale_type = {kDLFloat, 32, 1},
                                       .group = 1,
                                       .scale_math = SY_SCALE_MATH_MUL};
    c->args.a2a_combine.row_format = &rows;
}

static void partial(struct test_call *c)
{
    test_call_tensor(c, "input")->shape[0] = 1;
    c->args.a2a_combine.local_reduce = true;
}

static void rows_or_sums(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        void (*make)(struct test_call *c);
        void (*change)(struct test_call *c);
    } others[] = {{"packed rows", mesh_make_expert, packed},
                  {"another align", mesh_make_expert, other_align},
                  {"fixed rows of experts", mesh_make_expert, other_expert_rows},
                  {"another table", mesh_make_combine, other_table},
                  {"another table of a sum", mesh_make_sum, other_table},
                  {"another replica", mesh_make_combine, combine_replica},
                  {"another size of nodes", mesh_make_combine, combine_node},
                  {"another format", mesh_make_codes, other_format},
                  {"another type of sums", mesh_make_code_sum, other_sums},
                  {"partial sums", mesh_make_combine, partial}};
    for (size_t i = 0; i < COUNT_OF(others); i++)
        for (int d = 0; d < D; d++) {
            struct trial t = {.act = just_call};
            make_both(&t, others[i].make);
            others[i].change(&t.calls[d]);
            run_trial(&t);
            expect_agreement(&t, SY_ERR_MISMATCH, others[i].name);
            free_both(&t);
        }
}

/* Dispatch here, combine there; slots here, a sum there. */
static void other_operators(void **state)
{
    (void)state;
    static void (*const makes[])(struct test_call * c) = {mesh_make_dispatch, mesh_make_expert,
                                                          mesh_make_combine, mesh_make_sum};
    for (size_t i = 0; i < COUNT_OF(makes); i++)
        for (size_t j = 0; j < COUNT_OF(makes); j++) {
            struct trial t = {.act = just_call};
            makes[i](&t.calls[0]);
            makes[j](&t.calls[1]);
            if (i != j) {
                run_trial(&t);
                expect_agreement(&t, SY_ERR_MISMATCH, "other operators");
            }
            free_both(&t);
        }
}

/* What each device does with its own rows is its own affair. */
static void keep(struct test_call *c)
{
    c->args.a2a_dispatch.fill = SY_FILL_KEEP;
}

static void ring(struct test_call *c)
{
    c->args.a2a_dispatch.topology = SY_TOPOLOGY_RING;
}

static void no_metadata(struct test_call *c)
{
    c->args.a2a_dispatch.metadata = c->args.a2a_dispatch.rows_to = NULL;
}

static void some_things_may_differ(void **state)
{
    (void)state;
    static void (*const changes[])(struct test_call * c) = {keep, ring, no_metadata};
    for (size_t i = 0; i < COUNT_OF(changes); i++) {
        struct trial t = {.act = just_call};
        make_both(&t, mesh_make_dispatch);
        changes[i](&t.calls[1]);
        run_trial(&t);
        for (int d = 0; d < D; d++)
            if (t.status[d] != SY_OK || t.after[d] != SY_OK)
                fail_msg("change %zu, device %d: %s %s", i, d, t.sentence[d], t.after_sentence[d]);
        free_both(&t);
    }
}

/* Started in another order: the first rejection is returned by both requests' waits, and no process waits for ever. */
static void start_two(struct trial *t, int device, sy_ctx *ctx, sy_comm *comm)
{
    struct test_call more;
    sy_request *requests[2] = {NULL, NULL};
    (device == 0 ? mesh_make_combine : mesh_make_dispatch)(&more);
    for (int i = 0; i < 2; i++) {
        struct test_call *c = i == 0 ? &t->calls[device] : &more;
        const sy_status status =
            strcmp(c->op, "all_to_all_combine") == 0
                ? sy_all_to_all_combine_start(ctx, comm, &c->args.a2a_combine, &requests[i])
                : sy_all_to_all_dispatch_start(ctx, comm, &c->args.a2a_dispatch, &requests[i]);
        if (status != SY_OK)
            abort();
    }
    const sy_status last = sy_request_wait(requests[1], SY_PHASE_DONE);
    note(ctx, sy_request_wait(requests[0], SY_PHASE_DONE), &t->status[device], t->sentence[device]);
    if (last != SY_ERR_MISMATCH)
        t->status[device] = SY_OK; /* which is wrong */
    sy_request_free(requests[0]);
    sy_request_free(requests[1]);
    test_call_free(&more);
}

static void started_in_another_order(void **state)
{
    (void)state;
    struct trial t = {.act = start_two};
    mesh_make_dispatch(&t.calls[0]);
    mesh_make_combine(&t.calls[1]);
    run_trial(&t);
    expect_agreement(&t, SY_ERR_MISMATCH, "started in another order");
    free_both(&t);
}

/* Device 1 combines along the routing of an older dispatch. */
static void combine_along_two(struct trial *t, int device, sy_ctx *ctx, sy_comm *comm)
{
    sy_routing *routings[2] = {NULL, NULL};
    struct test_call dispatch;
    mesh_make_dispatch(&dispatch);
    for (int i = 0; i < 2; i++) {
        dispatch.args.a2a_dispatch.routing = NULL;
        if (sy_routing_create(ctx, comm, &routings[i]) != SY_OK)
            abort();
        dispatch.args.a2a_dispatch.routing = routings[i];
        if (run_call(ctx, comm, &dispatch) != SY_OK)
            abort();
    }
    sy_all_to_all_combine_args *a = &t->calls[device].args.a2a_combine;
    a->expert_metadata = a->expert_mapping = NULL;
    a->routing = routings[device];
    just_call(t, device, ctx, comm);
    a->routing = NULL;
    sy_routing_destroy(routings[0]);
    sy_routing_destroy(routings[1]);
    test_call_free(&dispatch);
}

static void combined_along_another_routing(void **state)
{
    (void)state;
    struct trial t = {.act = combine_along_two};
    make_both(&t, mesh_make_combine);
    run_trial(&t);
    expect_agreement(&t, SY_ERR_MISMATCH, "another routing");
    free_both(&t);
}

/* ---- Transports that fail ----------------------------------------------------------------------------- */

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
            struct trial t = {.transport = *transport,
                              .act = call_with_failure,
                              .broken = true,
                              .failing = failing,
                              .fail_at = n};
            make_both(&t, n % 2 ? mesh_make_dispatch : mesh_make_combine);
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
            free_both(&t);
        }
        assert_true(n > 3);
    }
}

/* ---- Processes that do not come ----------------------------------------------------------------------- */

static void one_comes_late(struct trial *t, int device, sy_ctx *ctx, sy_comm *comm)
{
    if (device == 1)
        pthread_barrier_wait(&t->all); /* until device 0 has given up */
    just_call(t, device, ctx, comm);
    if (device == 0)
        pthread_barrier_wait(&t->all);
}

static void no_process_answers(void **state)
{
    (void)state;
    struct trial t = {.comm = {.timeout_ms = 100}, .act = one_comes_late, .broken = true};
    make_both(&t, mesh_make_dispatch);
    run_trial(&t);
    assert_int_equal(t.status[0], SY_ERR_TIMEOUT);
    assert_non_null(strstr(t.sentence[0], "100"));
    assert_int_equal(t.after[0], SY_ERR_COMM);
    assert_true(t.status[1] == SY_ERR_TIMEOUT || t.status[1] == SY_ERR_COMM);
    assert_int_equal(t.after[1], SY_ERR_COMM);
    free_both(&t);
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

static void no_process_comes_for_memory(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct trial t = {.transport = {.shared = true},
                          .comm = {.timeout_ms = 100},
                          .act = wait_in_vain,
                          .kind = kind,
                          .broken = true};
        make_both(&t, mesh_make_dispatch);
        run_trial(&t);
        assert_int_equal(t.status[0], SY_ERR_TIMEOUT);
        assert_non_null(strstr(t.sentence[0], "waited 100 ms for another process"));
        assert_int_equal(t.after[0], SY_ERR_COMM);
        assert_non_null(strstr(t.after_sentence[0], "comm is broken"));
        free_both(&t);
    }
}

/* ---- Memory that is not there ------------------------------------------------------------------------- */

static void call_without_memory(struct trial *t, int device, sy_ctx *ctx, sy_comm *comm)
{
    struct allocator *a = t->broken ? NULL : &t->allocators[device];
    if (a && device == t->failing) {
        a->calls = 0;
        a->fail_at = t->fail_at;
    }
    just_call(t, device, ctx, comm);
}

static void call_without_scratch(struct trial *t, int device, sy_ctx *ctx, sy_comm *comm)
{
    if (device == t->failing) {
        t->ctx_allocators[device].calls = 0;
        t->ctx_allocators[device].fail_at = t->fail_at;
    }
    just_call(t, device, ctx, comm);
}

/* The n-th allocation of one device fails, for every n: NOMEM everywhere, and the next call finds memory. */
static void memory_fails(void **state)
{
    const struct threads_options *transport = *state;
    static void (*const makes[])(struct test_call * c) = {mesh_make_dispatch, mesh_make_expert,
                                                          mesh_make_combine, mesh_make_sum};
    int failures = 0;
    for (size_t m = 0; m < COUNT_OF(makes); m++)
        for (int kind = 0; kind < 2 * D; kind++) {
            bool passed = false;
            for (int n = 1; !passed; n++) {
                struct trial t = {.transport = *transport,
                                  .act = kind < D ? call_without_memory : call_without_scratch,
                                  .failing = kind % D,
                                  .fail_at = n};
                make_both(&t, makes[m]);
                run_trial(&t);
                passed = t.status[0] == SY_OK && t.status[1] == SY_OK;
                if (!passed)
                    expect_agreement(&t, SY_ERR_NOMEM, t.calls[0].op);
                failures += !passed;
                free_both(&t);
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

static void memory_for_messages_fails(void **state)
{
    (void)state;
    int failures = 0;
    for (int kind = 0; kind < 2 * D; kind++)
        for (int n = 1; n < 12; n++) { /* without memory for the lists of a segment the call goes on */
            struct trial t = {
                .transport = {.shared = true}, .act = call_without_both, .failing = kind % D, .fail_at = n};
            make_both(&t, kind < D ? mesh_make_dispatch : mesh_make_sum);
            run_trial(&t);
            if (t.status[0] != SY_OK || t.status[1] != SY_OK)
                expect_agreement(&t, SY_ERR_NOMEM, t.calls[0].op);
            failures += t.status[0] != SY_OK;
            free_both(&t);
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

static void shared_memory_fails(void **state)
{
    (void)state;
    struct trial t = {.transport = {.shared = true}, .act = cases_without_sharing};
    make_both(&t, mesh_make_dispatch);
    run_trial(&t);
    for (int d = 0; d < D; d++)
        if (t.status[d] != SY_OK || t.after[d] != SY_OK)
            fail_msg("device %d: %s %s", d, t.sentence[d], t.after_sentence[d]);
    free_both(&t);
}

/* A comm that cannot be made gives back what it took. */
static void creation_fails(void **state)
{
    (void)state;
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

static void transports_that_are_incomplete(void **state)
{
    (void)state;
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
    static struct spoiled spoiled[MESH_REJECTIONS * D];
    struct test_list list = {0};
    for (size_t i = 0; i < MESH_REJECTIONS * D; i++) {
        spoiled[i] = (struct spoiled){&mesh_rejections[i / D], (int)(i % D), {.shared = i % 3 == 0}};
        test_add(&list, test_name("%s, device %d spoiled", mesh_rejections[i / D].name, (int)(i % D)),
                 spoiled_on_one, &spoiled[i]);
    }
    test_add(&list, "the_lower_device_is_reported", the_lower_device_is_reported, NULL);
    test_add(&list, "devices_disagree", devices_disagree, NULL);
    test_add(&list, "rows_or_sums", rows_or_sums, NULL);
    test_add(&list, "other_operators", other_operators, NULL);
    test_add(&list, "some_things_may_differ", some_things_may_differ, NULL);
    test_add(&list, "started_in_another_order", started_in_another_order, NULL);
    test_add(&list, "combined_along_another_routing", combined_along_another_routing, NULL);
    test_add(&list, "transport fails, messages", transport_fails, (void *)&messages);
    test_add(&list, "transport fails, shared memory", transport_fails, (void *)&shared);
    test_add(&list, "no_process_answers", no_process_answers, NULL);
    test_add(&list, "no_process_comes_for_memory", no_process_comes_for_memory, NULL);
    test_add(&list, "memory fails, messages", memory_fails, (void *)&messages);
    test_add(&list, "memory fails, shared memory", memory_fails, (void *)&shared);
    test_add(&list, "memory_for_messages_fails", memory_for_messages_fails, NULL);
    test_add(&list, "shared_memory_fails", shared_memory_fails, NULL);
    test_add(&list, "creation_fails", creation_fails, NULL);
    test_add(&list, "transports_that_are_incomplete", transports_that_are_incomplete, NULL);
    return test_run(&list, "comm_agreement");
}
