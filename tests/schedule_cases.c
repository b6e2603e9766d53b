/*
 * Single situations in which devices that do the same in another order must not meet each other's messages.
 */
#include "schedule.h"

#include <time.h>

enum { MOST = 4 };

/* The same shapes for every number, other contents; `words` are in its line. */
static void make_plain(struct mesh_case *m, sy_mesh mesh, const char *words, int64_t hidden, uint64_t number)
{
    char line[200];
    snprintf(line, sizeof line, "%s form=2 short=1 S=3 K=2 E=%d experts=1 type=1 index_type=1", words,
             mesh.rows * mesh.cols);
    mesh_case_line(m, mesh, line);
    mesh_case_renew(m, hidden, number);
}

/* Requests by name: A is 0, B is 1, ... */
struct named {
    struct mesh_case m[MOST];
    struct mesh_call *calls[MOST];
    sy_request *requests[MOST];
    bool good;
    char *why;
    size_t why_bytes;
};

static void start(struct named *all, int i, sy_ctx *ctx, sy_comm *comm)
{
    if (mesh_call_start(ctx, comm, all->calls[i], &all->requests[i]) != SY_OK) {
        snprintf(all->why, all->why_bytes, "request %c: %s", 'A' + i, sy_ctx_error(ctx));
        all->good = false;
    }
}

static void begin(struct named *all, int i, sy_ctx *ctx, sy_comm *comm, int64_t hidden, uint64_t number)
{
    make_plain(&all->m[i], sy_comm_mesh(comm), "", hidden, number);
    all->calls[i] =
        i % 2 ? mesh_combine_new(comm, &all->m[i], NULL) : mesh_dispatch_new(comm, &all->m[i], NULL);
    start(all, i, ctx, comm);
}

static void finish(struct named *all, int i, sy_ctx *ctx)
{
    char text[256] = "";
    sy_status status = sy_request_free(all->requests[i]);
    if (status != SY_OK)
        snprintf(text, sizeof text, "%s", sy_ctx_error(ctx));
    else if (!mesh_call_check(all->calls[i], text, sizeof text))
        status = SY_ERR_STATE;
    if (status != SY_OK && all->good)
        snprintf(all->why, all->why_bytes, "request %c: %s", 'A' + i, text);
    all->good = all->good && status == SY_OK;
    mesh_call_free(all->calls[i]);
    mesh_case_free(&all->m[i]);
}

/* A request that was rejected. */
static void discard(struct named *all, int i)
{
    sy_request_free(all->requests[i]);
    mesh_call_free(all->calls[i]);
    mesh_case_free(&all->m[i]);
}

/* Even devices free A before C starts and B before D does, odd devices the other way round. C and D have equal shapes. */
static bool free_crosswise_so_often(uint64_t rounds, int device, sy_ctx *ctx, sy_comm *comm, char *why,
                                    size_t why_bytes)
{
    struct named all = {.good = true, .why = why, .why_bytes = why_bytes};
    for (uint64_t round = 0; round < rounds; round++) {
        for (int i = 0; i < 2; i++)
            begin(&all, i, ctx, comm, 4, 10 * round + (uint64_t)i);
        finish(&all, device % 2, ctx);
        begin(&all, 2, ctx, comm, 4, 10 * round + 2);
        finish(&all, 1 - device % 2, ctx);
        begin(&all, 3, ctx, comm, 4, 10 * round + 3);
        for (int i = 0; i < 2; i++)
            finish(&all, 2 + (device + i) % 2, ctx);
    }
    return all.good;
}

static bool free_crosswise(int device, sy_ctx *ctx, sy_comm *comm, char *why, size_t why_bytes)
{
    return free_crosswise_so_often(20, device, ctx, comm, why, why_bytes);
}

/* More exchanges than a transport has tags; fewer where fewer are asked for, as on a slow device. */
static bool many(int device, sy_ctx *ctx, sy_comm *comm, char *why, size_t why_bytes)
{
    return free_crosswise_so_often((uint64_t)schedule_exchanges(10000) / 4, device, ctx, comm, why,
                                   why_bytes);
}

/* Even devices free A alone, odd devices B alone, before C and D start. */
static bool free_one(int device, sy_ctx *ctx, sy_comm *comm, char *why, size_t why_bytes)
{
    struct named all = {.good = true, .why = why, .why_bytes = why_bytes};
    for (int i = 0; i < 2; i++)
        begin(&all, i, ctx, comm, 4, 100 + (uint64_t)i);
    finish(&all, device % 2, ctx);
    for (int i = 2; i < 4; i++)
        begin(&all, i, ctx, comm, 4, 100 + (uint64_t)i);
    finish(&all, 3, ctx);
    finish(&all, 1 - device % 2, ctx);
    finish(&all, 2, ctx);
    return all.good;
}

/* A and B fill the same routing, B when A is ROUTED and its rows are still on their way. C takes the place of B. */
static bool fill_again(int device, sy_ctx *ctx, sy_comm *comm, char *why, size_t why_bytes)
{
    struct named all = {.good = true, .why = why, .why_bytes = why_bytes};
    sy_routing *routing = NULL;
    all.good = sy_routing_create(ctx, comm, &routing) == SY_OK;
    (void)device;
    for (uint64_t round = 0; round < 40; round++) {
        for (int i = 0; i < 2; i++) {
            make_plain(&all.m[i], sy_comm_mesh(comm), "layout=2", 4, 2 * round + (uint64_t)i);
            all.calls[i] = mesh_dispatch_new(comm, &all.m[i], routing);
            start(&all, i, ctx, comm);
            all.good = sy_request_wait(all.requests[i], SY_PHASE_ROUTED) == SY_OK && all.good;
        }
        finish(&all, 1, ctx);
        mesh_case_random(&all.m[2], sy_comm_mesh(comm), 1000 + (int)round);
        all.calls[2] = mesh_dispatch_new(comm, &all.m[2], NULL);
        start(&all, 2, ctx, comm);
        finish(&all, 0, ctx);
        finish(&all, 2, ctx);
    }
    sy_routing_destroy(routing);
    return all.good;
}

/* A reads a routing that B and C will fill. C is rejected, in all devices: their rows have different lengths. D reads the
   routing then: that of B, or D is rejected because B has not filled it yet. */
static bool fill_in_vain(int device, sy_ctx *ctx, sy_comm *comm, char *why, size_t why_bytes)
{
    struct named all = {.good = true, .why = why, .why_bytes = why_bytes};
    sy_routing *routing = NULL;
    all.good = sy_routing_create(ctx, comm, &routing) == SY_OK;
    for (uint64_t round = 0; round < 200; round++) {
        for (int i = 0; i < MOST; i++) {
            make_plain(&all.m[i], sy_comm_mesh(comm), i > 0 ? "layout=2 contents=1" : "layout=2",
                       i == 2 ? 4 + device : 4, 4 * round + (uint64_t)i);
            all.calls[i] = i == 0 || i == 3 ? mesh_combine_new(comm, &all.m[i], routing)
                                            : mesh_dispatch_new(comm, &all.m[i], routing);
        }
        struct mesh_call *fill = mesh_dispatch_new(comm, &all.m[0], routing);
        all.good = mesh_call_run(ctx, comm, fill) == SY_OK && all.good;
        mesh_call_free(fill);
        for (int i = 0; i < 3; i++)
            start(&all, i, ctx, comm);
        all.good = sy_request_wait(all.requests[2], SY_PHASE_DONE) == SY_ERR_MISMATCH && all.good;
        start(&all, 3, ctx, comm);
        if (sy_request_wait(all.requests[3], SY_PHASE_DONE) == SY_ERR_STATE)
            discard(&all, 3);
        else
            finish(&all, 3, ctx);
        finish(&all, 0, ctx);
        finish(&all, 1, ctx);
        discard(&all, 2);
    }
    sy_routing_destroy(routing);
    return all.good;
}

/* Plain calls, one after the other. */
static bool call_in_turn(int device, sy_ctx *ctx, sy_comm *comm, char *why, size_t why_bytes)
{
    const bool good = run_mesh_cases(ctx, comm, why, why_bytes);
    (void)device;
    if (good && sy_comm_shares_memory(comm))
        snprintf(why, why_bytes, "memory is still shared");
    return good && !sy_comm_shares_memory(comm);
}

/* Sharing ends with request B. Device 0 starts C after that, the others have started it long before. */
static bool end_sharing(int device, sy_ctx *ctx, sy_comm *comm, char *why, size_t why_bytes)
{
    struct named all = {.good = true, .why = why, .why_bytes = why_bytes};
    const struct timespec a_while = {.tv_nsec = 50000000};
    begin(&all, 0, ctx, comm, 4, 200);
    finish(&all, 0, ctx);
    if (device == 0)
        nanosleep(&a_while, NULL);
    begin(&all, 1, ctx, comm, 5000, 201);
    if (device == 0 && sy_request_wait(all.requests[1], SY_PHASE_ROUTED) != SY_OK)
        all.good = false;
    begin(&all, 2, ctx, comm, 4, 202);
    begin(&all, 3, ctx, comm, 4, 203);
    for (int i = 0; i < 3; i++)
        finish(&all, 1 + (device + i) % 3, ctx);
    if (all.good && sy_comm_shares_memory(comm))
        snprintf(why, why_bytes, "memory is still shared");
    return all.good && !sy_comm_shares_memory(comm);
}

/* ---- All of them ---- */

#define OPEN(...) .timeout_ms = 20000, .max_inflight = __VA_ARGS__
#define MESSAGES(...) {.no_shared = true, OPEN(__VA_ARGS__)}, false
#define SHARED(...) {OPEN(__VA_ARGS__)}, true
#define IN_TURN .doubt = 3, .work = call_in_turn

const struct schedule_case schedule_cases[] = {
    {"frees crosswise", 2, MESSAGES(4), .work = free_crosswise},
    {"frees crosswise, shared memory", 2, SHARED(4), .work = free_crosswise},
    {"frees crosswise, unchecked", 2, MESSAGES(4, .check = SY_CHECK_NONE), .work = free_crosswise},
    {"frees one of two", 2, MESSAGES(4), .work = free_one},
    {"many requests", 2, MESSAGES(4), .work = many},
    {"a routing filled again", 2, MESSAGES(3, .chunk_bytes = 1), .doubt = 2, .work = fill_again},
    {"a routing filled again, shared memory", 2, SHARED(3), .doubt = 2, .work = fill_again},
    {"a routing filled in vain", 2, MESSAGES(4), .doubt = 2, .work = fill_in_vain},
    {"a routing filled in vain, shared memory", 2, SHARED(4), .doubt = 2, .work = fill_in_vain},
    {"calls in turn, shared memory ends at once", 3, SHARED(0), .fail_share_from = 1, IN_TURN},
    {"calls in turn, shared memory ends", 3, SHARED(0), .fail_share_from = 2, IN_TURN},
    {"calls in turn, shared memory ends on one device", 3, SHARED(0), .fail_share_from = 2,
     .loss = LOSS_ON_LAST, IN_TURN},
    {"calls in turn, shared memory is out of reach", 3, SHARED(0), .fail_share_from = 2,
     .loss = LOSS_AT_ATTACH, IN_TURN},
    {"calls in turn, unchecked, shared memory ends", 3, SHARED(0, .check = SY_CHECK_NONE),
     .fail_share_from = 2, IN_TURN},
    {"shared memory ends in flight", 2, SHARED(4), .fail_share_from = 2, .work = end_sharing},
    {"shared memory ends in flight, unchecked", 2, SHARED(4, .check = SY_CHECK_NONE), .fail_share_from = 2,
     .work = end_sharing},
};
const int n_schedule_cases = (int)COUNT_OF(schedule_cases);

void schedule_play_case(const struct schedule_case *c, const sy_transport *transport,
                        struct schedule_result *result)
{
    struct schedule_probe probe = {.real = *transport,
                                   .fail_share_from = c->fail_share_from,
                                   .loss = c->loss,
                                   .doubt = c->doubt,
                                   .rng = (uint64_t)transport->device};
    const sy_transport t = schedule_probe_transport(&probe);
    const sy_ctx_options one_thread = {.threads = 1};
    sy_ctx *ctx = NULL;
    sy_comm *comm = NULL;
    *result = (struct schedule_result){.why = "no context or comm"};
    if (sy_ctx_create(&ctx, &one_thread) == SY_OK && sy_comm_create(&comm, &t, &c->options) == SY_OK)
        result->good = c->work(transport->device, ctx, comm, result->why, sizeof result->why);
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
}
