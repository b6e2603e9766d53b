/*
 * Exchanges of a mesh inside one process on a device: a captured round trip in every layout, replayed with changing and bad
 * contents, has the results and faults of the CPU; it takes no memory and waits for nothing. Then requests, what routings hold
 * after faults, contexts on two devices, and allocations and copies that fail.
 */
#include "mesh_mirror.h"

#include "cuda/cuda.h"

/* One bad choice, or a table that differs. */
static void corrupt(const struct side *s, uint64_t *rng)
{
    const enum field f = (enum field)(CHOSEN + rng_below(rng, 4));
    const int d = (int)rng_below(rng, D);
    const int64_t value = rng_below(rng, 2) ? E : 1000;
    side_choose(s, f, d, rng_below(rng, N * K), f == TABLE && rng_below(rng, 2) ? 11 : value);
}

/* Takes the words that differ out of a sentence: numbers of calls, of which the CPU makes fewer after a fault, and the memory. */
static void without(char *words, const char *begin, const char *end)
{
    for (char *at = strstr(words, begin); at != NULL; at = strstr(at, begin)) {
        char *const rest = at + strlen(begin) + strcspn(at + strlen(begin), end);
        memmove(at, rest, strlen(rest) + 1);
    }
}

static bool same_words(const char *there, const char *here)
{
    char words[2][512];
    snprintf(words[0], sizeof words[0], "%s", there);
    snprintf(words[1], sizeof words[1], "%s", here);
    for (int i = 0; i < 2; i++) {
        without(words[i], "number ", " ");
        without(words[i], i == 0 ? ", cuda" : ", CPU memory", ";");
    }
    return strcmp(words[0], words[1]) == 0;
}

static void expect_agreement(struct mirror *w, bool bad)
{
    const uint64_t seed = w->rng;
    char words[512];
    sy_ctx *const ctx = w->there.ctx;
    side_fill(&w->here, &w->rng);
    if (bad)
        corrupt(&w->here, &w->rng);
    mirror_send(w);
    sy_status st = w->graph != NULL ? syi_replay(ctx, w->graph, 1, NULL) : side_run(&w->there);
    if (st == SY_OK)
        st = sy_ctx_sync(ctx);
    snprintf(words, sizeof words, "%s", sy_ctx_error(ctx));
    const sy_status want = side_run(&w->here);
    mirror_fetch(w, &w->there);
    const size_t at = tensors_difference(&w->back, &w->here.of);
    *(want == SY_OK             ? &w->good
      : want == SY_ERR_CAPACITY ? &w->full
      : want == SY_ERR_MISMATCH ? &w->differ
                                : &w->faults) += 1;
    if (st != want || !same_words(words, sy_ctx_error(w->here.ctx)) || at < w->back.bytes)
        fail_msg("seed %llu: device %s '%s', CPU %s '%s', first different byte %zu of %zu",
                 (unsigned long long)seed, sy_status_name(st), words, sy_status_name(want),
                 sy_ctx_error(w->here.ctx), at, w->back.bytes);
}

static void a_round_trip_is_replayed(struct mirror *w)
{
    for (int i = 0; i < 6; i++) /* calls, not captured */
        expect_agreement(w, i % 3 == 1);
    w->graph = side_capture(&w->there, side_run, SY_OK, "");
    for (int i = 0; i < (slow_calls() > 0 ? 100 : 1000); i++)
        expect_agreement(w, i % 4 == 3);
    if (w->good < 20 || w->faults < 5 || w->full < 3 || w->differ < 1)
        fail_msg("replays: %d good, %d bad, %d full, %d differ", w->good, w->faults, w->full, w->differ);
}

/* The first capture of a shape takes the memory of the routings, too. */
static void the_first_call_is_captured(struct mirror *w)
{
    w->graph = side_capture(&w->there, side_run, SY_OK, "");
    for (int i = 0; i < 10; i++)
        expect_agreement(w, i % 4 == 3);
}

static void calls_take_no_memory_and_do_not_wait(struct mirror *w)
{
    for (int i = 0; i < 3; i++)
        expect_agreement(w, false);
    const unsigned long before = slow_calls();
    expect_status(w->there.ctx, side_run(&w->there), SY_OK);
    assert_int_equal(slow_calls(), before);
    const sy_status st = sy_ctx_sync(w->there.ctx);
    assert_true(st == SY_OK || st == SY_ERR_CAPACITY);
}

/* ---- A mapping on the device ---- */

static sy_status dispatch_by_device(struct side *s)
{
    DLTensor mapping = side_mapping(s, 0);
    mapping.data = s->mapping_there;
    mapping.device = (DLDevice){kDLCUDA, s->of.ordinal};
    const sy_all_to_all_dispatch_args args = side_padded(s, &mapping);
    return sy_all_to_all_dispatch(s->ctx, s->comm, &args);
}

/* The host reads it, which a capture rejects. */
static void a_mapping_on_the_device_cannot_be_captured(struct mirror *w)
{
    struct side *const s = &w->there;
    mirror_fill(w);
    expect_status(s->ctx, sy_device_alloc(s->ctx, sizeof s->mapping[0], &s->mapping_there), SY_OK);
    expect_status(s->ctx, sy_device_copy(s->ctx, s->mapping_there, s->mapping[0], sizeof s->mapping[0]),
                  SY_OK);
    expect_status(s->ctx, dispatch_by_device(s), SY_OK);
    w->graph = side_capture(s, dispatch_by_device, SY_ERR_UNSUPPORTED,
                            "expert_mapping of device 0 is on a device, where a capture cannot read it");
    expect_status(s->ctx, sy_ctx_sync(s->ctx), SY_OK);
    sy_device_free(s->ctx, s->mapping_there);
}

/* ---- Routings ---- */

/* After a dispatch that was rejected on the device its routing is empty: the host has given it away by then. */
static void a_routing_after_a_fault(struct mirror *w)
{
    sy_ctx *const ctx = w->there.ctx;
    for (int full = 0; full < 2; full++) {
        side_fill(&w->here, &w->rng);
        side_choose_one(&w->here, 0);
        mirror_send(w);
        expect_status(ctx, side_dispatch(&w->there, w->there.routing[0]), SY_OK);
        expect_status(ctx, side_combine(&w->there, w->there.routing[0]), SY_OK);
        expect_status(ctx, sy_ctx_sync(ctx), SY_OK);
        for (int64_t i = 0; i < N * K; i++)
            for (int d = 0; d < D; d++)
                side_choose(&w->here, CHOSEN, d, i, full ? 4 * (i % K) : -2);
        mirror_send(w);
        expect_status(ctx, side_dispatch(&w->there, w->there.routing[0]), SY_OK);
        expect_status(ctx, sy_ctx_sync(ctx), full ? SY_ERR_CAPACITY : SY_ERR_INDEX);
        expect_status(ctx, side_combine(&w->there, w->there.routing[0]), SY_OK);
        expect_status(ctx, sy_ctx_sync(ctx), SY_ERR_STATE);
        assert_string_equal(sy_ctx_error(ctx),
                            "all_to_all_combine: routing is empty, want one that a dispatch has filled");
    }
}

static void a_routing_of_a_device_stays_there(struct mirror *w)
{
    sy_ctx *const ctx = w->there.ctx;
    mirror_fill(w);
    expect_status(ctx, side_dispatch(&w->there, w->there.routing[0]), SY_OK);
    const sy_status st = sy_ctx_sync(ctx);
    assert_true(st == SY_OK || st == SY_ERR_CAPACITY);
    memcpy(w->there.of.tensor, w->here.of.tensor, sizeof w->there.of.tensor);
    expect_status(ctx, side_combine(&w->there, w->there.routing[0]), SY_ERR_DEVICE);
    assert_non_null(strstr(sy_ctx_error(ctx), "was filled by a dispatch on a device, want tensors there"));
}

/* ---- Requests ---- */

static sy_status start(struct side *s, sy_request **request)
{
    const DLTensor mapping = side_mapping(s, 0);
    const sy_all_to_all_dispatch_args args = side_padded(s, &mapping);
    return sy_all_to_all_dispatch_start(s->ctx, s->comm, &args, request);
}

/* It is queued; a test asks an event, a wait waits for it, and both return the fault of the call. */
static void a_request_ends_with_its_event(struct mirror *w)
{
    sy_ctx *const ctx = w->there.ctx;
    for (int i = 0; i < 8; i++) {
        const bool bad = i % 2 == 1, tests = i % 4 < 2;
        sy_request *request = NULL, *own = NULL;
        bool done = false;
        sy_status st = SY_OK;
        side_fill(&w->here, &w->rng);
        if (bad)
            side_choose(&w->here, CHOSEN2, 2, 4, E);
        mirror_send(w);
        expect_status(ctx, start(&w->there, &request), SY_OK);
        assert_int_equal(sy_request_test(request, SY_PHASE_ROUTED, &done), SY_OK);
        assert_true(done); /* its routing may be used by calls after it */
        for (done = false; tests && !done;)
            st = sy_request_test(request, SY_PHASE_DONE, &done);
        st = tests ? st : sy_request_wait(request, SY_PHASE_DONE);
        expect_status(w->here.ctx, start(&w->here, &own), SY_OK);
        assert_int_equal(sy_request_wait(own, SY_PHASE_DONE), st);
        assert_int_equal(st, bad ? SY_ERR_INDEX : SY_OK);
        assert_string_equal(sy_ctx_error(ctx), sy_ctx_error(w->here.ctx));
        assert_int_equal(sy_request_free(request), st);
        assert_int_equal(sy_request_free(own), st);
        expect_status(ctx, sy_ctx_sync(ctx), SY_OK); /* the fault was read by the request */
        mirror_fetch(w, &w->there);
        assert_memory_equal(w->back.memory, w->here.of.memory, w->back.bytes);
    }
}

/* A fault of a later call is not that of a request before it. */
static void a_request_does_not_take_later_faults(struct mirror *w)
{
    sy_request *request[2];
    sy_ctx *const ctx = w->there.ctx;
    side_fill(&w->here, &w->rng);
    side_choose(&w->here, CHOSEN, 1, 0, -2);
    mirror_send(w);
    expect_status(ctx, start(&w->there, &request[0]), SY_OK);
    expect_status(ctx, side_dispatch(&w->there, NULL), SY_OK); /* rejected on the device */
    expect_status(ctx, sy_request_wait(request[0], SY_PHASE_DONE), SY_OK);
    expect_status(ctx, sy_request_free(request[0]), SY_OK);
    expect_status(ctx, sy_ctx_sync(ctx), SY_ERR_INDEX);
}

/* A fault of another call, not read yet, stops the exchange after it: slots of a position that its table has not. */
static void an_exchange_after_another_fault(struct mirror *w)
{
    int64_t one[] = {1, 1};
    struct side *const s = &w->there;
    side_fill(&w->here, &w->rng);
    side_choose(&w->here, CHOSEN, 0, 0, 9);
    side_choose(&w->here, CHOSEN, 0, 1, 1);
    mirror_send(w);
    const DLDevice there = {kDLCUDA, 0};
    int32_t *const number = s->tensor[CHOSEN][0].data;
    const DLTensor position = {&number[0], there, 1, SY_I32, one, NULL, 0},
                   table = {&number[1], there, 2, SY_I32, one, NULL, 0},
                   slots = {s->tensor[SRC][0].data, there, 1, SY_I32, one, NULL, 0};
    const sy_kv_slots_args args = {
        .position = &position, .block_table = &table, .block_size = 2, .slots = &slots, .num_rows = 4};
    expect_status(s->ctx, sy_kv_slots(s->ctx, &args), SY_OK); /* queued */
    const sy_status after = side_dispatch(s, NULL);
    expect_status(s->ctx, after == SY_OK ? sy_ctx_sync(s->ctx) : after, SY_ERR_INDEX);
    assert_int_equal(strncmp(sy_ctx_error(s->ctx), "kv_slots: position of token 0 is 9", 34), 0);
    mirror_fetch(w, s);
    assert_memory_equal(w->back.memory, w->here.of.memory, w->back.bytes);
}

static sy_status dispatch_first(struct side *s)
{
    return side_dispatch(s, s->routing[0]);
}

static void a_replay_that_was_rejected(struct mirror *w)
{
    sy_ctx *const ctx = w->there.ctx;
    side_fill(&w->here, &w->rng);
    side_choose_one(&w->here, 0);
    mirror_send(w);
    expect_status(ctx, side_dispatch(&w->there, w->there.routing[0]), SY_OK); /* takes the memory */
    expect_status(ctx, sy_ctx_sync(ctx), SY_OK);
    w->graph = side_capture(&w->there, dispatch_first, SY_OK, "");
    expect_status(ctx, syi_replay(ctx, w->graph, 1, NULL), SY_OK);
    expect_status(ctx, sy_ctx_sync(ctx), SY_OK);
    side_choose_one(&w->here, -2);
    mirror_send(w);
    expect_status(ctx, syi_replay(ctx, w->graph, 1, NULL), SY_OK);
    expect_status(ctx, sy_ctx_sync(ctx), SY_ERR_INDEX);
    const sy_status st = side_combine(&w->there, w->there.routing[0]);
    assert_int_equal(st == SY_OK ? sy_ctx_sync(ctx) : st, SY_ERR_STATE); /* the routing is empty */
}

/* ---- Two devices ---- */

static void expect_round_trip(const struct mirror *w, struct side *s)
{
    expect_status(s->ctx, sy_device_copy(s->ctx, s->of.memory, w->here.of.memory, w->here.of.bytes), SY_OK);
    expect_status(s->ctx, side_dispatch(s, s->routing[0]), SY_OK);
    expect_status(s->ctx, side_combine(s, s->routing[0]), SY_OK);
    expect_status(s->ctx, sy_ctx_sync(s->ctx), SY_OK);
    mirror_fetch(w, s);
}

/* One comm and its routings, by contexts on two devices in turn. */
static void a_comm_of_two_devices(struct mirror *w)
{
    struct side other;
    side_open(&other, device_ctx(1), 1);
    side_close_comm(&other);
    other.comm = w->there.comm;
    memcpy(other.routing, w->there.routing, sizeof other.routing);
    struct side *const sides[] = {&w->there, &other};
    side_fill(&w->here, &w->rng);
    side_choose_one(&w->here, 0);
    unsigned char *const want = malloc(w->back.bytes);
    for (int i = 0; i < 4; i++) { /* a dispatch makes the routing anew, on its device */
        expect_round_trip(w, sides[i % 2]);
        if (i == 0)
            memcpy(want, w->back.memory, w->back.bytes);
        assert_memory_equal(w->back.memory, want, w->back.bytes);
        sy_ctx *const ctx = sides[1 - i % 2]->ctx;
        expect_status(ctx, side_combine(sides[1 - i % 2], w->there.routing[0]), SY_ERR_DEVICE);
        char words[200];
        snprintf(words, sizeof words, "was filled by a dispatch on CUDA device %d, want tensors there",
                 i % 2);
        assert_non_null(strstr(sy_ctx_error(ctx), words));
    }
    for (int i = 0; i < 4; i++) { /* requests have an event of their device */
        sy_request *request = NULL;
        expect_status(sides[i % 2]->ctx, start(sides[i % 2], &request), SY_OK);
        expect_status(sides[i % 2]->ctx, sy_request_free(request), SY_OK);
    }
    other.comm = NULL;
    side_close(&other);
    free(want);
}

/* ---- What fails ---- */

/* PADDED both ways with a mapping of so many experts that the host reads the choices. */
static sy_status run_by_host(struct side *s)
{
    enum { MANY = 3200 };
    static uint16_t many[MANY][D];
    int64_t shape[] = {MANY, D};
    memcpy(many, s->mapping[0], sizeof s->mapping[0]);
    const DLTensor mapping = sy_tensor(many, SY_U16, 2, shape);
    const sy_all_to_all_dispatch_args there = side_padded(s, &mapping);
    const sy_all_to_all_combine_args home = side_slots(s, &mapping);
    const sy_status st = sy_all_to_all_dispatch(s->ctx, s->comm, &there);
    return st != SY_OK ? st : sy_all_to_all_combine(s->ctx, s->comm, &home);
}

/* The n-th step of a kind fails, for every n until none is left: the call says so, and the next is right. */
static void expect_failures(const char *what, sy_status (*calls)(struct side *s), int least)
{
    int n = 1;
    for (bool passed = false; !passed; n++) {
        struct mirror w;
        mirror_open(&w, 20);
        sy_ctx *const ctx = w.there.ctx;
        side_fill(&w.here, &w.rng);
        side_choose_one(&w.here, 0);
        mirror_send(&w);
        mirror_fail_at(what, n);
        sy_status st = calls(&w.there);
        passed = mirror_fail_at(what, 0) > 0;
        if (!passed && st != SY_ERR_NOMEM && st != SY_ERR_DEVICE)
            fail_msg("%s %d: %s: %s", what, n, sy_status_name(st), sy_ctx_error(ctx));
        expect_status(ctx, sy_ctx_sync(ctx), SY_OK);
        expect_status(ctx, passed ? st : calls(&w.there), SY_OK);
        expect_status(ctx, sy_ctx_sync(ctx), SY_OK);
        expect_status(w.here.ctx, calls(&w.here), SY_OK);
        mirror_fetch(&w, &w.there);
        assert_memory_equal(w.back.memory, w.here.of.memory, w.back.bytes);
        mirror_close(&w);
    }
    if (n - 2 < least)
        fail_msg("%s: only %d failures", what, n - 2);
}

TEST(what_fails_is_reported)
{
    expect_failures("host", dispatch_first, 2);
    expect_failures("device", dispatch_first, 2);
    expect_failures("host", run_by_host, 4);
    expect_failures("device", run_by_host, 1);
    expect_failures("copy", run_by_host, 10);
}

/* ---- Without tokens ---- */

/* After a combine whose table may have an expert that is not there. */
static sy_status combine_and_dispatch(struct side *s)
{
    const DLTensor mapping = side_mapping(s, 0);
    const sy_all_to_all_combine_args args = side_slots(s, &mapping);
    expect_status(s->ctx, sy_all_to_all_combine(s->ctx, s->comm, &args), SY_OK);
    return side_dispatch(s, s->routing[0]);
}

/* A dispatch that is skipped fills no routing, one of no tokens neither. */
static void a_routing_of_no_tokens(struct mirror *w)
{
    static const enum field of_tokens[] = {INPUT, PLANE, CHOSEN, METADATA, SUMS, WEIGHTS};
    struct side *const s = &w->there;
    for (size_t i = 0; i < COUNT_OF(of_tokens); i++)
        for (int d = 0; d < D; d++)
            s->shape[of_tokens[i]][d][0] = 0;
    w->graph = side_capture(s, combine_and_dispatch, SY_OK, "");
    for (int skipped = 0; skipped < 2; skipped++) {
        side_fill(&w->here, &w->rng);
        if (skipped)
            side_choose(&w->here, TABLE, 0, 0, E);
        mirror_send(w);
        expect_status(s->ctx, syi_replay(s->ctx, w->graph, 1, NULL), SY_OK);
        expect_status(s->ctx, sy_ctx_sync(s->ctx), skipped ? SY_ERR_INDEX : SY_OK);
        expect_status(s->ctx, side_combine(s, s->routing[0]), SY_OK);
        expect_status(s->ctx, sy_ctx_sync(s->ctx), skipped ? SY_ERR_STATE : SY_OK);
    }
}

/* ---- Traces ---- */

struct heard {
    int n;
    uint64_t bytes[8];
};

static void hear(void *user, const sy_trace *trace)
{
    struct heard *const h = user;
    h->bytes[h->n++ % 8] = trace->bytes;
}

/* The bytes of every call are those of the CPU. */
static void traces_have_the_bytes(struct mirror *w)
{
    struct heard heard[2] = {{0}, {0}};
    side_close(&w->there);
    side_close(&w->here);
    for (int i = 0; i < 2; i++) {
        const sy_ctx_options options = {.device = {i == 0 ? kDLCUDA : kDLCPU, 0},
                                        .device_library = getenv("SWITCHYARD_TEST_CUDA_LIBRARY"),
                                        .trace = hear,
                                        .trace_user = &heard[i]};
        sy_ctx *ctx = NULL;
        assert_int_equal(sy_ctx_create(&ctx, &options), SY_OK);
        side_open(i == 0 ? &w->there : &w->here, ctx, i == 0 ? 0 : -1);
    }
    side_fill(&w->here, &w->rng);
    side_choose_one(&w->here, 0);
    for (int64_t i = 0; i < N * K; i++)
        for (int d = 0; d < D; d++)
            side_choose(&w->here, CHOSEN1, d, i, i % K == 0 ? i % D : -1);
    mirror_send(w);
    expect_status(w->there.ctx, side_run(&w->there), SY_OK);
    expect_status(w->here.ctx, side_run(&w->here), SY_OK);
    assert_int_equal(heard[0].n, 6);
    assert_int_equal(heard[1].n, 6);
    for (int i = 0; i < 6; i++) {
        assert_true(heard[1].bytes[i] > 0);
        assert_int_equal(heard[0].bytes[i], heard[1].bytes[i]);
    }
}

/* ---- A request during a capture ---- */

/* It stays open until the capture has ended, and the capture is not spoilt. */
static void a_request_before_a_capture(struct mirror *w)
{
    bool done = true;
    sy_request *request = NULL;
    sy_ctx *const ctx = w->there.ctx;
    mirror_fill(w);
    expect_status(ctx, start(&w->there, &request), SY_OK);
    expect_status(ctx, syi_capture_begin(ctx), SY_OK);
    for (int i = 0; i < 4; i++)
        expect_status(ctx, sy_request_test(request, SY_PHASE_DONE, &done), SY_OK);
    assert_false(done);
    expect_status(ctx, sy_request_wait(request, SY_PHASE_DONE), SY_ERR_STATE);
    assert_non_null(strstr(sy_ctx_error(ctx), "stream is being captured, want the end of the capture"));
    expect_status(ctx, sy_request_free(request), SY_ERR_STATE);
    expect_status(ctx, syi_capture_end(ctx, &w->graph), SY_OK);
    expect_status(ctx, sy_request_free(request), SY_OK);
}

static const struct row {
    const char *name;
    void (*run)(struct mirror *w);
    uint64_t seed;
} rows[] = {
    {"a_round_trip_is_replayed", a_round_trip_is_replayed, 11},
    {"the_first_call_is_captured", the_first_call_is_captured, 12},
    {"calls_take_no_memory_and_do_not_wait", calls_take_no_memory_and_do_not_wait, 13},
    {"a_mapping_on_the_device_cannot_be_captured", a_mapping_on_the_device_cannot_be_captured, 14},
    {"a_routing_after_a_fault", a_routing_after_a_fault, 15},
    {"a_routing_of_a_device_stays_there", a_routing_of_a_device_stays_there, 16},
    {"a_request_ends_with_its_event", a_request_ends_with_its_event, 17},
    {"a_request_does_not_take_later_faults", a_request_does_not_take_later_faults, 18},
    {"an_exchange_after_another_fault", an_exchange_after_another_fault, 24},
    {"a_replay_that_was_rejected", a_replay_that_was_rejected, 15},
    {"a_comm_of_two_devices", a_comm_of_two_devices, 19},
    {"a_routing_of_no_tokens", a_routing_of_no_tokens, 21},
    {"traces_have_the_bytes", traces_have_the_bytes, 22},
    {"a_request_before_a_capture", a_request_before_a_capture, 23},
};

static void with_twin(void **state)
{
    const struct row *const row = *state;
    struct mirror w;
    mirror_open(&w, row->seed);
    row->run(&w);
    mirror_close(&w);
}

TEST_GROUP(mesh)
{
    struct test_list list = {0};
    unsetenv("SWITCHYARD_TEST_DEVICE"); /* contexts and tensors are made for the device here */
    setenv("EMULATED_DEVICES", "2", 1);
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        test_add(&list, rows[i].name, with_twin, (void *)&rows[i]);
    test_add(&list, "what_fails_is_reported", what_fails_is_reported, NULL);
    return test_run(&list, "cuda_mesh");
}
