/*
 * Exchanges of a mesh inside one process on a device: a captured round trip in every layout, replayed with changing and bad
 * contents, has the results and faults of the CPU; it takes no memory and waits for nothing. Then requests, what routings hold
 * after faults, contexts on two devices, and allocations and copies that fail. Calls and contents are those of tests/mesh_cases.h,
 * once in CPU memory and once on the device.
 */
#include "mesh_cases.h"
#include "support.h"

#include "cuda/cuda.h"

/* A dispatch and its combine on 2x2 devices: EXPERT, and sums along its routing; PACKED, and rows of local_reduce along its routing;
   PADDED, and slots by a table. The first two have room for any choices, and with `few` rows not for all. */
enum { TRIPS = 3, CALLS = 2 * TRIPS, PADDED = 4, D = 4, N = 5, K = 3, E = 12, ANY = -3 };
#define SIZES "form=2 short=1 S=5 K=3 E=12 H=24 experts=1 X=3 plane_type=1 "
static const struct {
    const char *line;
    int64_t room, few;
} trips[TRIPS] = {{SIZES "axis=1 layout=2 align=4 sum=1 sum_type=2 planes=1 index_type=1", 48, 16},
                  {SIZES "axis=2 layout=1 planes=1 fill=1", 10, 9},
                  {SIZES "axis=1 index_type=2", 0, 0}};

/* The calls in one memory. */
struct side {
    sy_ctx *ctx;
    int ordinal; /* of the device; -1: CPU memory */
    unsigned char *memory;
    sy_comm *comm;
    sy_routing *routing[TRIPS]; /* none of the last */
    struct mesh_case of[TRIPS];
    struct mesh_call *call[CALLS];
};

struct mirror {
    struct side there, here;
    size_t bytes;
    unsigned char *want, *got; /* all tensors: those here, and what came back */
    void *graph;
    uint64_t rng;
    bool few;
    int faults, full, differ, good; /* replays of each kind */
};

/* ---- Contents ---- */

/* Expert e is on device e mod 4, 11 nowhere; 3, where rows are not those of a whole device, also on device 1. Choices are distinct
   experts, and sometimes none: few tokens choose alike. Or a token has one, `only`. */
static void choose(struct mesh_case *m, uint64_t *rng, int64_t only)
{
    for (int e = 0; e < E; e++)
        for (int d = 0; d < D; d++)
            m->mapping[e * D + d] = e < 11 && (e % D == d || (e == 3 && d == 1 && !m->local_reduce));
    for (int d = 0; d < D; d++)
        for (int64_t n = 0; n < N; n++) {
            const int64_t first = rng_below(rng, E), step = 1 + 2 * rng_below(rng, 2);
            for (int64_t k = 0; k < K; k++)
                m->chosen[d][n * K + k] = only != ANY              ? (k == 0 ? only : -1)
                                          : rng_below(rng, 5) == 0 ? -1
                                                                   : (first + k * step) % E;
        }
}

static void free_calls(struct side *s)
{
    for (int i = 0; i < CALLS; i++)
        mesh_call_free(s->call[i]);
    for (int t = 0; t < TRIPS; t++)
        mesh_case_free(&s->of[t]);
}

/* All calls anew. */
static void make_calls(struct side *s, uint64_t *rng, int64_t only, bool few)
{
    static const int rows[] = {MESH_TOKENS, MESH_PLANE_TOKENS, MESH_SRC};
    free_calls(s);
    for (int t = 0; t < TRIPS; t++) {
        struct mesh_case *const m = &s->of[t];
        mesh_case_line(m, (sy_mesh){2, 2}, trips[t].line);
        choose(m, rng, only);
        mesh_case_renew(m, m->hidden, rng_u64(rng));
        m->room = trips[t].room;
        m->strict_unique = t == 2;
        s->call[2 * t] = mesh_dispatch_new(s->comm, m, s->routing[t]);
        s->call[2 * t + 1] = mesh_combine_new(s->comm, m, s->routing[t]);
        for (int i = 0; few && trips[t].few > 0 && i < 3 * D; i++)
            s->call[2 * t]->tensors[rows[i / D]][i % D].shape[0] = trips[t].few;
    }
}

static void put(const struct side *s, int call, int d, int64_t at, int64_t value)
{
    const size_t bytes = s->call[call]->fields[MESH_INDICES][d].dtype.bits / 8;
    memcpy(s->call[call]->tensors[MESH_INDICES][d].mem + (size_t)at * bytes, &value, bytes);
}

/* One bad choice, or a table that differs. */
static void corrupt(const struct side *s, uint64_t *rng)
{
    static const int of[] = {0, 2, PADDED, PADDED + 1}; /* the calls that read choices */
    const int i = (int)rng_below(rng, 4), d = (int)rng_below(rng, D);
    const int64_t value = rng_below(rng, 2) ? E : 1000;
    put(s, of[i], d, rng_below(rng, N * K), i == 3 && rng_below(rng, 2) ? 11 : value);
}

/* ---- Twins ---- */

/* Copies all tensors but the mappings, which stay in CPU memory, behind each other to `image`; NULL: their memory is s->memory from
   now on, where the same bytes are. Returns how many. */
static size_t lay_out(const struct side *s, unsigned char *image)
{
    size_t at = 0;
    for (int i = 0; i < CALLS * MESH_FIELDS * D; i++) {
        const int f = i / D % MESH_FIELDS, d = i % D;
        struct mesh_call *const c = s->call[i / D / MESH_FIELDS];
        const struct mesh_tensor *const x = &c->tensors[f][d];
        if (x->mem == NULL || f == MESH_MAPPING)
            continue;
        if (image != NULL) {
            memcpy(image + at, x->mem, x->bytes);
        } else if (s->memory != NULL) {
            c->fields[f][d].data = s->memory + at;
            c->fields[f][d].device = (DLDevice){kDLCUDA, s->ordinal};
        }
        at += (x->bytes + 63) / 64 * 64;
    }
    return at;
}

/* With the comm and the routings of `like`; NULL: with its own. */
static void side_open(struct side *s, sy_ctx *ctx, int ordinal, bool few, const struct side *like)
{
    uint64_t rng = 1;
    void *memory = NULL;
    *s = (struct side){.ctx = ctx, .ordinal = ordinal};
    if (like != NULL) {
        s->comm = like->comm;
        memcpy(s->routing, like->routing, sizeof s->routing);
    } else {
        assert_int_equal(sy_comm_create_local(&s->comm, (sy_mesh){2, 2}, NULL), SY_OK);
        for (int t = 0; t < TRIPS - 1; t++)
            expect_status(ctx, sy_routing_create(ctx, s->comm, &s->routing[t]), SY_OK);
    }
    make_calls(s, &rng, ANY, few);
    if (ordinal >= 0)
        expect_status(ctx, sy_device_alloc(ctx, lay_out(s, NULL), &memory), SY_OK);
    s->memory = memory;
    lay_out(s, NULL);
}

static void side_close(struct side *s, bool shares)
{
    for (int t = 0; t < TRIPS && !shares; t++)
        sy_routing_destroy(s->routing[t]);
    if (!shares)
        sy_comm_destroy(s->comm);
    if (s->memory != NULL)
        sy_device_free(s->ctx, s->memory);
    free_calls(s);
    sy_ctx_destroy(s->ctx);
}

static void mirror_open(struct mirror *w, uint64_t seed, bool few, sy_ctx *there, sy_ctx *here)
{
    *w = (struct mirror){.rng = seed, .few = few};
    side_open(&w->there, there, 0, few, NULL);
    side_open(&w->here, here, -1, few, NULL);
    w->bytes = lay_out(&w->here, NULL);
    w->want = calloc(1, w->bytes);
    w->got = calloc(1, w->bytes);
}

static void mirror_close(struct mirror *w)
{
    if (w->graph != NULL)
        syi_graph_free(w->there.ctx, w->graph);
    side_close(&w->there, false);
    side_close(&w->here, false);
    free(w->want);
    free(w->got);
}

/* What is in CPU memory, to the device. */
static void send_to(struct mirror *w, const struct side *there)
{
    lay_out(&w->here, w->want);
    expect_status(there->ctx, sy_device_copy(there->ctx, there->memory, w->want, w->bytes), SY_OK);
}

/* New contents there. */
static void fill(struct mirror *w, int64_t only)
{
    make_calls(&w->here, &w->rng, only, w->few);
    send_to(w, &w->there);
}

/* All bytes there are those here. */
static void expect_same(struct mirror *w, const struct side *there)
{
    lay_out(&w->here, w->want);
    expect_status(there->ctx, sy_device_copy(there->ctx, w->got, there->memory, w->bytes), SY_OK);
    expect_bytes(w->got, w->want, w->bytes);
}

/* ---- Calls ---- */

static sy_status call(struct side *s, int i)
{
    return mesh_call_run(s->ctx, s->comm, s->call[i]);
}

/* Three round trips. */
static sy_status run(struct side *s)
{
    sy_status st = SY_OK;
    for (int i = 0; i < CALLS && st == SY_OK; i++)
        st = call(s, i);
    return st;
}

static sy_status dispatch(struct side *s)
{
    return call(s, 0);
}

/* Captures calls, which return this status and a sentence with these words. */
static void *capture(struct side *s, sy_status (*calls)(struct side *s), sy_status want, const char *sentence)
{
    void *graph = NULL;
    char words[512];
    expect_status(s->ctx, syi_capture_begin(s->ctx), SY_OK);
    const sy_status st = calls(s);
    snprintf(words, sizeof words, "%s", sy_ctx_error(s->ctx));
    expect_status(s->ctx, syi_capture_end(s->ctx, &graph), SY_OK);
    if (st != want || strstr(words, sentence) == NULL)
        fail_msg("%s: %s", sy_status_name(st), words);
    return graph;
}

/* ---- Replays ---- */

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
    char words[512], why[300];
    sy_ctx *const ctx = w->there.ctx;
    make_calls(&w->here, &w->rng, ANY, w->few);
    if (bad)
        corrupt(&w->here, &w->rng);
    send_to(w, &w->there);
    sy_status st = w->graph != NULL ? syi_replay(ctx, w->graph, 1, NULL) : run(&w->there);
    if (st == SY_OK)
        st = sy_ctx_sync(ctx);
    snprintf(words, sizeof words, "%s", sy_ctx_error(ctx));
    const sy_status want = run(&w->here);
    *(want == SY_OK             ? &w->good
      : want == SY_ERR_CAPACITY ? &w->full
      : want == SY_ERR_MISMATCH ? &w->differ
                                : &w->faults) += 1;
    if (st != want || !same_words(words, sy_ctx_error(w->here.ctx)))
        fail_msg("seed %llu: device %s '%s', CPU %s '%s'", (unsigned long long)seed, sy_status_name(st),
                 words, sy_status_name(want), sy_ctx_error(w->here.ctx));
    for (int i = 0; i < CALLS && st == SY_OK; i++)
        if (!mesh_call_check(w->here.call[i], why, sizeof why))
            fail_msg("seed %llu: %s", (unsigned long long)seed, why);
    expect_same(w, &w->there);
}

static void a_round_trip_is_replayed(struct mirror *w)
{
    for (int i = 0; i < 6; i++) /* calls, not captured */
        expect_agreement(w, i % 3 == 1);
    w->graph = capture(&w->there, run, SY_OK, "");
    for (int i = 0; i < (emulator_count("emulator_slow_calls") > 0 ? 100 : 1000); i++)
        expect_agreement(w, i % 4 == 3);
    if (w->good < 20 || w->faults < 5 || w->full < 3 || w->differ < 1)
        fail_msg("replays: %d good, %d bad, %d full, %d differ", w->good, w->faults, w->full, w->differ);
}

/* The first capture of a shape takes the memory of the routings, too. */
static void the_first_call_is_captured(struct mirror *w)
{
    w->graph = capture(&w->there, run, SY_OK, "");
    for (int i = 0; i < 10; i++)
        expect_agreement(w, i % 4 == 3);
}

static void calls_take_no_memory_and_do_not_wait(struct mirror *w)
{
    for (int i = 0; i < 3; i++)
        expect_agreement(w, false);
    const unsigned long before = emulator_count("emulator_slow_calls");
    expect_status(w->there.ctx, run(&w->there), SY_OK);
    assert_int_equal(emulator_count("emulator_slow_calls"), before);
    expect_status(w->there.ctx, sy_ctx_sync(w->there.ctx), SY_OK);
}

static sy_status dispatch_padded(struct side *s)
{
    return call(s, PADDED);
}

/* The host reads it, which a capture rejects. */
static void a_mapping_on_the_device_cannot_be_captured(struct mirror *w)
{
    struct side *const s = &w->there;
    DLTensor *const mapping = s->call[PADDED]->fields[MESH_MAPPING];
    void *there = NULL;
    fill(w, ANY);
    expect_status(s->ctx, sy_device_alloc(s->ctx, (size_t)E * D * 2, &there), SY_OK);
    expect_status(s->ctx, sy_device_copy(s->ctx, there, mapping->data, (size_t)E * D * 2), SY_OK);
    mapping->data = there;
    mapping->device = (DLDevice){kDLCUDA, 0};
    expect_status(s->ctx, dispatch_padded(s), SY_OK);
    w->graph = capture(s, dispatch_padded, SY_ERR_UNSUPPORTED,
                       "expert_mapping of device 0 is on a device, where a capture cannot read it");
    expect_status(s->ctx, sy_ctx_sync(s->ctx), SY_OK);
    sy_device_free(s->ctx, there);
}

/* ---- Routings ---- */

/* After a dispatch that was rejected on the device its routing is empty: the host has given it away by then. */
static void a_routing_after_a_fault(struct mirror *w)
{
    struct side *const s = &w->there;
    for (int full = 0; full < 2; full++) {
        fill(w, 0);
        expect_status(s->ctx, dispatch(s), SY_OK);
        expect_status(s->ctx, call(s, 1), SY_OK);
        expect_status(s->ctx, sy_ctx_sync(s->ctx), SY_OK);
        for (int64_t i = 0; i < N * K; i++)
            for (int d = 0; d < D; d++)
                put(&w->here, 0, d, i, full ? 4 * (i % K) : -2);
        send_to(w, s);
        expect_status(s->ctx, dispatch(s), SY_OK);
        expect_status(s->ctx, sy_ctx_sync(s->ctx), full ? SY_ERR_CAPACITY : SY_ERR_INDEX);
        expect_status(s->ctx, call(s, 1), SY_OK);
        expect_status(s->ctx, sy_ctx_sync(s->ctx), SY_ERR_STATE);
        assert_string_equal(sy_ctx_error(s->ctx),
                            "all_to_all_combine: routing is empty, want one that a dispatch has filled");
    }
}

static void a_routing_of_a_device_stays_there(struct mirror *w)
{
    sy_ctx *const ctx = w->there.ctx;
    fill(w, ANY);
    expect_status(ctx, dispatch(&w->there), SY_OK);
    expect_status(ctx, sy_ctx_sync(ctx), SY_OK);
    w->here.call[1]->combine.routing = w->there.routing[0];
    expect_status(ctx, mesh_call_run(ctx, w->there.comm, w->here.call[1]), SY_ERR_DEVICE);
    assert_non_null(strstr(sy_ctx_error(ctx), "was filled by a dispatch on a device, want tensors there"));
}

/* ---- Requests ---- */

static sy_status start(struct side *s, sy_request **request)
{
    return mesh_call_start(s->ctx, s->comm, s->call[PADDED], request);
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
        make_calls(&w->here, &w->rng, ANY, false);
        if (bad)
            put(&w->here, PADDED, 2, 4, E);
        send_to(w, &w->there);
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
        expect_same(w, &w->there);
    }
}

/* A fault of a later call is not that of a request before it. */
static void a_request_does_not_take_later_faults(struct mirror *w)
{
    sy_request *request;
    sy_ctx *const ctx = w->there.ctx;
    fill(w, ANY);
    put(&w->here, 0, 1, 0, -2);
    send_to(w, &w->there);
    expect_status(ctx, start(&w->there, &request), SY_OK);
    expect_status(ctx, dispatch(&w->there), SY_OK); /* rejected on the device */
    expect_status(ctx, sy_request_wait(request, SY_PHASE_DONE), SY_OK);
    expect_status(ctx, sy_request_free(request), SY_OK);
    expect_status(ctx, sy_ctx_sync(ctx), SY_ERR_INDEX);
}

/* A fault of another call, not read yet, stops the exchange after it: slots of a position that its table has not. */
static void an_exchange_after_another_fault(struct mirror *w)
{
    int64_t one[] = {1, 1};
    struct side *const s = &w->there;
    fill(w, ANY);
    put(&w->here, 0, 0, 0, 9);
    put(&w->here, 0, 0, 1, 1);
    send_to(w, s);
    const DLDevice there = {kDLCUDA, 0};
    int32_t *const number = s->call[0]->fields[MESH_INDICES][0].data;
    const DLTensor position = {&number[0], there, 1, SY_I32, one, NULL, 0},
                   table = {&number[1], there, 2, SY_I32, one, NULL, 0},
                   slots = {s->call[0]->fields[MESH_SRC][0].data, there, 1, SY_I32, one, NULL, 0};
    const sy_kv_slots_args args = {
        .position = &position, .block_table = &table, .block_size = 2, .slots = &slots, .num_rows = 4};
    expect_status(s->ctx, sy_kv_slots(s->ctx, &args), SY_OK); /* queued */
    const sy_status after = dispatch(s);
    expect_status(s->ctx, after == SY_OK ? sy_ctx_sync(s->ctx) : after, SY_ERR_INDEX);
    assert_int_equal(strncmp(sy_ctx_error(s->ctx), "kv_slots: position of token 0 is 9", 34), 0);
    expect_same(w, s);
}

static void a_replay_that_was_rejected(struct mirror *w)
{
    struct side *const s = &w->there;
    fill(w, 0);
    expect_status(s->ctx, dispatch(s), SY_OK); /* takes the memory */
    expect_status(s->ctx, sy_ctx_sync(s->ctx), SY_OK);
    w->graph = capture(s, dispatch, SY_OK, "");
    for (int bad = 0; bad < 2; bad++) {
        if (bad)
            put(&w->here, 0, 3, N * K - 1, -2);
        send_to(w, s);
        expect_status(s->ctx, syi_replay(s->ctx, w->graph, 1, NULL), SY_OK);
        expect_status(s->ctx, sy_ctx_sync(s->ctx), bad ? SY_ERR_INDEX : SY_OK);
    }
    const sy_status st = call(s, 1);
    assert_int_equal(st == SY_OK ? sy_ctx_sync(s->ctx) : st, SY_ERR_STATE); /* the routing is empty */
}

/* ---- Two devices ---- */

/* One comm and its routings, by contexts on two devices in turn. */
static void a_comm_of_two_devices(struct mirror *w)
{
    struct side other;
    side_open(&other, device_ctx(1), 1, false, &w->there);
    struct side *const sides[] = {&w->there, &other};
    make_calls(&w->here, &w->rng, 0, false);
    for (int i = 0; i < 4; i++) { /* a dispatch makes the routing anew, on its device */
        struct side *const s = sides[i % 2], *const next = sides[1 - i % 2];
        char words[200];
        for (int k = 0; k < 2; k++)
            mesh_call_reset(w->here.call[k]);
        send_to(w, s);
        for (int k = 0; k < 2; k++) {
            expect_status(s->ctx, call(s, k), SY_OK);
            expect_status(w->here.ctx, call(&w->here, k), SY_OK);
        }
        expect_status(s->ctx, sy_ctx_sync(s->ctx), SY_OK);
        expect_same(w, s);
        expect_status(next->ctx, call(next, 1), SY_ERR_DEVICE);
        snprintf(words, sizeof words, "was filled by a dispatch on CUDA device %d, want tensors there",
                 i % 2);
        assert_non_null(strstr(sy_ctx_error(next->ctx), words));
    }
    for (int i = 0; i < 4; i++) { /* requests have an event of their device */
        sy_request *request = NULL;
        send_to(w, sides[i % 2]);
        expect_status(sides[i % 2]->ctx, start(sides[i % 2], &request), SY_OK);
        expect_status(sides[i % 2]->ctx, sy_request_free(request), SY_OK);
    }
    side_close(&other, true);
}

/* ---- What fails ---- */

/* PADDED both ways with a mapping of so many experts that the host reads the choices. */
static sy_status run_by_host(struct side *s)
{
    enum { MANY = 3200 };
    static uint16_t many[MANY][D];
    int64_t shape[] = {MANY, D};
    sy_status st = SY_OK;
    memcpy(many, s->of[2].mapping, (size_t)E * D * 2);
    for (int i = PADDED; i < CALLS && st == SY_OK; i++) {
        s->call[i]->fields[MESH_MAPPING][0] = sy_tensor(many, SY_U16, 2, shape);
        st = call(s, i);
    }
    return st;
}

/* Makes the n-th step of a kind fail on the emulated device (0: none), and returns how far the last such request was from that. */
static int fail_at(const char *what, int n)
{
    int (*set)(const char *what, int n) = NULL;
    *(void **)&set = emulated("emulator_fail");
    if (set == NULL)
        skip_because("only the emulated device fails on demand");
    return set(what, n);
}

/* The n-th step of a kind fails, for every n until none is left: the call says so, and the next is right. */
static void expect_failures(const char *what, sy_status (*calls)(struct side *s), int least)
{
    int n = 1;
    for (bool passed = false; !passed; n++) {
        struct mirror w;
        mirror_open(&w, 20, false, device_ctx(0), test_ctx(1, NULL));
        sy_ctx *const ctx = w.there.ctx;
        fill(&w, 0);
        fail_at(what, n);
        sy_status st = calls(&w.there);
        passed = fail_at(what, 0) > 0;
        if (!passed && st != SY_ERR_NOMEM && st != SY_ERR_DEVICE)
            fail_msg("%s %d: %s: %s", what, n, sy_status_name(st), sy_ctx_error(ctx));
        expect_status(ctx, sy_ctx_sync(ctx), SY_OK);
        expect_status(ctx, passed ? st : calls(&w.there), SY_OK);
        expect_status(ctx, sy_ctx_sync(ctx), SY_OK);
        expect_status(w.here.ctx, calls(&w.here), SY_OK);
        expect_same(&w, &w.there);
        mirror_close(&w);
    }
    if (n - 2 < least)
        fail_msg("%s: only %d failures", what, n - 2);
}

TEST(what_fails_is_reported)
{
    expect_failures("host", dispatch, 2);
    expect_failures("device", dispatch, 2);
    expect_failures("host", run_by_host, 4);
    expect_failures("device", run_by_host, 1);
    expect_failures("copy", run_by_host, 10);
}

/* ---- Without tokens ---- */

/* After a combine whose table may have an expert that is not there. */
static sy_status combine_and_dispatch(struct side *s)
{
    expect_status(s->ctx, call(s, PADDED + 1), SY_OK);
    return dispatch(s);
}

/* A dispatch that is skipped fills no routing, one of no tokens neither. */
static void a_routing_of_no_tokens(struct mirror *w)
{
    static const int of_tokens[][2] = {{0, MESH_INPUT},    {0, MESH_PLANE},  {0, MESH_INDICES},
                                       {0, MESH_METADATA}, {1, MESH_TOKENS}, {1, MESH_WEIGHTS}};
    struct side *const s = &w->there;
    for (size_t i = 0; i < COUNT_OF(of_tokens) * D; i++)
        s->call[of_tokens[i / D][0]]->tensors[of_tokens[i / D][1]][i % D].shape[0] = 0;
    w->graph = capture(s, combine_and_dispatch, SY_OK, "");
    for (int skipped = 0; skipped < 2; skipped++) {
        make_calls(&w->here, &w->rng, ANY, false);
        if (skipped)
            put(&w->here, PADDED + 1, 0, 0, E);
        send_to(w, s);
        expect_status(s->ctx, syi_replay(s->ctx, w->graph, 1, NULL), SY_OK);
        expect_status(s->ctx, sy_ctx_sync(s->ctx), skipped ? SY_ERR_INDEX : SY_OK);
        expect_status(s->ctx, call(s, 1), SY_OK);
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
TEST(traces_have_the_bytes)
{
    struct heard heard[2] = {{0}, {0}};
    struct mirror w;
    sy_ctx *ctx[2] = {NULL, NULL};
    sy_ctx_destroy(device_ctx(0)); /* or the test is skipped */
    for (int i = 0; i < 2; i++) {
        const sy_ctx_options options = {.device = {i == 0 ? kDLCUDA : kDLCPU, 0},
                                        .device_library = getenv("SWITCHYARD_TEST_CUDA_LIBRARY"),
                                        .trace = hear,
                                        .trace_user = &heard[i]};
        assert_int_equal(sy_ctx_create(&ctx[i], &options), SY_OK);
    }
    mirror_open(&w, 22, false, ctx[0], ctx[1]);
    fill(&w, 0);
    expect_status(ctx[0], run(&w.there), SY_OK);
    expect_status(ctx[1], run(&w.here), SY_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(heard[i].n, CALLS);
    for (int i = 0; i < CALLS; i++) {
        assert_true(heard[1].bytes[i] > 0);
        assert_int_equal(heard[0].bytes[i], heard[1].bytes[i]);
    }
    mirror_close(&w);
}

/* ---- A request during a capture ---- */

/* It stays open until the capture has ended, and the capture is not spoilt. */
static void a_request_before_a_capture(struct mirror *w)
{
    bool done = true;
    sy_request *request = NULL;
    sy_ctx *const ctx = w->there.ctx;
    fill(w, ANY);
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
    bool few;
} rows[] = {
    {"a_round_trip_is_replayed", a_round_trip_is_replayed, 11, true},
    {"the_first_call_is_captured", the_first_call_is_captured, 12, true},
    {"calls_take_no_memory_and_do_not_wait", calls_take_no_memory_and_do_not_wait, 13, false},
    {"a_mapping_on_the_device_cannot_be_captured", a_mapping_on_the_device_cannot_be_captured, 14, false},
    {"a_routing_after_a_fault", a_routing_after_a_fault, 15, true},
    {"a_routing_of_a_device_stays_there", a_routing_of_a_device_stays_there, 16, false},
    {"a_request_ends_with_its_event", a_request_ends_with_its_event, 17, false},
    {"a_request_does_not_take_later_faults", a_request_does_not_take_later_faults, 18, false},
    {"an_exchange_after_another_fault", an_exchange_after_another_fault, 24, false},
    {"a_replay_that_was_rejected", a_replay_that_was_rejected, 15, false},
    {"a_comm_of_two_devices", a_comm_of_two_devices, 19, false},
    {"a_routing_of_no_tokens", a_routing_of_no_tokens, 21, false},
    {"a_request_before_a_capture", a_request_before_a_capture, 23, false},
};

static void with_twin(void **state)
{
    const struct row *const row = *state;
    struct mirror w;
    mirror_open(&w, row->seed, row->few, device_ctx(0), test_ctx(1, NULL));
    row->run(&w);
    mirror_close(&w);
}

TEST_GROUP(mesh)
{
    unsetenv("SWITCHYARD_TEST_DEVICE"); /* contexts and tensors are made for the device here */
    setenv("EMULATED_DEVICES", "2", 1);
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        test_add(&own_tests, rows[i].name, with_twin, (void *)&rows[i]);
    return test_run(&own_tests, "cuda_mesh");
}
