/*
 * Collective calls between threads of which one does not do its part: it makes a mistake, another call or none, has
 * other options, or sends a header that cannot be. No thread waits for ever, and none gets wrong rows.
 */
#include "mesh_misuse.h"
#include "threads_team.h"

#include "comm/comm.h"

#include <pthread.h>

static const struct way messages = {"messages", {.shared = false}, {.timeout_ms = 60000}},
                        shared = {"shared memory", {.shared = true}, {.timeout_ms = 60000}},
                        late = {"late through shared memory",
                                {.shared = true, .delay = 5},
                                {.timeout_ms = 60000}};

/* ---- Mistakes of one device ---- */

struct mistake {
    int guilty;
    char story[THREADS_MOST][600];
};

static bool make_mistake(struct team *team, int device, sy_ctx *ctx, sy_comm *comm, char *why,
                         size_t why_bytes)
{
    struct mistake *m = team->user;
    return run_mesh_misuse(ctx, comm, team->kind, m->guilty, m->story[device], sizeof m->story[0], why,
                           why_bytes);
}

static void mistakes(void **state)
{
    static const sy_mesh meshes[] = {{1, 2}, {1, 3}, {2, 2}};
    for (int i = 0; i < mesh_misuse_count(); i++)
        for (size_t m = 0; m < COUNT_OF(meshes); m++)
            for (int guilty = 0; guilty < meshes[m].rows * meshes[m].cols; guilty++) {
                struct mistake one = {.guilty = guilty};
                struct team team = {
                    .way = *state, .mesh = meshes[m], .kind = i, .work = make_mistake, .user = &one};
                const int n = meshes[m].rows * meshes[m].cols, other = guilty == 0 ? 1 : 0;
                run_team(&team);
                for (int d = 0; d < n; d++)
                    if (one.story[d][0] != '\0' && strcmp(one.story[d], one.story[other]) != 0)
                        fail_msg("%s: device %d says \"%s\", device %d \"%s\"", mesh_misuse_name(i), d,
                                 one.story[d], other, one.story[other]);
            }
}

/* ---- Options that differ ---- */

/* Each device makes its own comm, as team->kind says. */
static bool with_other_options(struct team *team, int device, sy_ctx *ctx, sy_comm *comm, char *why,
                               size_t why_bytes)
{
    static const sy_comm_options others[] = {
        {.max_inflight = 5}, {.check = SY_CHECK_NONE}, {.chunk_bytes = 4096}, {.no_shared = true}};
    sy_comm_options options = device == 1 ? others[team->kind] : (sy_comm_options){0};
    const sy_transport transport = threads_transport(team->hub, device);
    struct mesh_case m;
    sy_comm *own = NULL;
    (void)comm;
    options.timeout_ms = 60000;
    mesh_case_random(&m, team->mesh, 3);
    bool good = sy_comm_create(&own, &transport, &options) == SY_OK;
    for (int i = 0; i < 2; i++) { /* no process skips the second agreement because of the first */
        struct mesh_call *call = mesh_dispatch_new(own, &m, NULL);
        const sy_status st = mesh_call_run(ctx, own, call);
        snprintf(why, why_bytes, "%s: %s", sy_status_name(st), sy_ctx_error(ctx));
        good =
            good && st == SY_ERR_MISMATCH && strstr(why, "disagree about shapes, types or options") != NULL;
        mesh_call_free(call);
    }
    mesh_case_free(&m);
    sy_comm_destroy(own);
    return good;
}

static void options_differ(void **state)
{
    const struct way *way = *state;
    for (int kind = 0; kind < (way->transport.shared ? 4 : 3); kind++)
        run_team(&(struct team){.way = way, .mesh = {1, 2}, .kind = kind, .work = with_other_options});
}

/* ---- Barriers of the program ---- */

/* Devices start, or test, and meet at a barrier of their own before any of them waits: neither call may wait for another
   device. The first exchanges make the stage, and later ones make it larger. */
static bool barrier_before_wait(struct team *team, int device, sy_ctx *ctx, sy_comm *comm, char *why,
                                size_t why_bytes)
{
    pthread_barrier_t *const barrier = team->user;
    bool good = true;
    for (int number = 0; number < 12; number++) {
        struct mesh_case m;
        sy_request *request = NULL;
        mesh_case_random(&m, team->mesh, number);
        struct mesh_call *call = mesh_dispatch_new(comm, &m, NULL);
        for (int turn = 0; turn < 2; turn++) { /* every device is the last to start once */
            if (turn == (device == number % 2) && mesh_call_start(ctx, comm, call, &request) != SY_OK)
                good = false;
            pthread_barrier_wait(barrier);
        }
        for (int i = 0; i < 3; i++) { /* a device that only tests, while the other does nothing */
            bool done;
            if (device == (number + i) % 2)
                sy_request_test(request, SY_PHASE_DONE, &done);
            pthread_barrier_wait(barrier);
        }
        good = sy_request_free(request) == SY_OK && mesh_call_check(call, why, why_bytes) && good;
        mesh_call_free(call);
        mesh_case_free(&m);
    }
    return good;
}

static void barriers_before_waits(void **state)
{
    pthread_barrier_t barrier;
    struct team team = {.way = *state, .mesh = {1, 2}, .work = barrier_before_wait, .user = &barrier};
    pthread_barrier_init(&barrier, NULL, 2);
    run_team(&team);
    pthread_barrier_destroy(&barrier);
}

/* ---- Headers that are damaged ---- */

struct damage {
    int byte, mask, device;
    bool windowed, combines;
    const struct mesh_case *of; /* all devices read it */
    void (*seal)(void *header);
    sy_status status[THREADS_MOST];
    pthread_barrier_t damaged;
    struct mesh_call *call[THREADS_MOST]; /* freed when no device can use it any more */
};

/* A case whose counts may differ, or one whose counts may not; rows go both ways. */
static void case_for(struct mesh_case *m, bool ragged)
{
    mesh_case_line(m, (sy_mesh){1, 2}, ragged ? "ragged=1 N=4 K=2 E=4 experts=1" : MESH_SIZES);
    assert_true(oracle_a2a_rows(&m->a2a, 0, 1) > 0 && oracle_a2a_rows(&m->a2a, 1, 0) > 0);
}

static bool send_damaged(struct team *team, int device, sy_ctx *ctx, sy_comm *comm, char *why,
                         size_t why_bytes)
{
    struct damage *d = team->user;
    void *memory = NULL;
    struct mesh_call *call =
        d->combines ? mesh_combine_new(comm, d->of, NULL) : mesh_dispatch_new(comm, d->of, NULL);
    const struct mesh_tensor *x = &call->tensors[MESH_INPUT][0];
    bool good = !d->windowed || sy_comm_alloc(ctx, comm, x->bytes + 64, &memory) == SY_OK;
    if (memory != NULL) {
        memcpy(memory, x->mem, x->bytes);
        call->fields[MESH_INPUT][0].data = memory;
    }
    good =
        sy_comm_reserve(ctx, comm, 1 << 16) == SY_OK && good; /* so that the first header names its memory */
    if (device == d->device)
        threads_damage(team->hub, device, d->byte, d->mask, d->seal);
    const sy_status st = d->status[device] = mesh_call_run(ctx, comm, call);
    good = good && st != SY_OK && sy_ctx_error(ctx)[0] != '\0' && mesh_call_untouched(call, why, why_bytes);
    if (d->seal)
        good = good && st == SY_ERR_COMM &&
               strstr(sy_ctx_error(ctx), "received invalid data from device") != NULL;
    if (!good)
        snprintf(why, why_bytes, "byte %d ^ %d of device %d: %s: %s", d->byte, d->mask, d->device,
                 sy_status_name(st), sy_ctx_error(ctx));
    mesh_call_free(call);
    return good;
}

/* Every byte of a header, corrupted on its way: all devices have the same status, and right rows or none. */
static void headers_are_damaged(void **state)
{
    static const int masks[] = {0x01, 0x80, 0xFF};
    const int header_bytes = 64;
    struct mesh_case cases[2];
    for (int ragged = 0; ragged < 2; ragged++)
        case_for(&cases[ragged], ragged);
    for (int i = 0; i < 8 * 2 * header_bytes; i++)
        for (size_t k = 0; k < COUNT_OF(masks); k++) {
            struct damage d = {.byte = i / 16,
                               .mask = masks[k],
                               .device = i % 2,
                               .windowed = i / 2 % 2 != 0,
                               .combines = i / 4 % 2 != 0,
                               .of = &cases[i / 8 % 2]};
            run_team(&(struct team){.way = *state, .mesh = {1, 2}, .work = send_damaged, .user = &d});
            if (d.status[0] != d.status[1])
                fail_msg("byte %d ^ %d of device %d, %s: %s and %s", d.byte, d.mask, d.device,
                         d.combines ? "combine" : "dispatch", sy_status_name(d.status[0]),
                         sy_status_name(d.status[1]));
        }
    for (int ragged = 0; ragged < 2; ragged++)
        mesh_case_free(&cases[ragged]);
}

static void seal(void *header)
{
    syi_seal_header(header);
}

/* Headers in order that name memory that is not there, or too much of it. */
TEST(memory_that_is_not_there)
{
    static const struct {
        size_t byte;
        int mask;
        bool windowed, combines, ragged;
    } damages[] = {{offsetof(struct syi_header, slot), 0x80, false, false, false},
                   {offsetof(struct syi_header, slot), 0x02, false, true, false},
                   {offsetof(struct syi_header, stage), 0x40, false, false, false},
                   {offsetof(struct syi_header, stage), 0xFF, false, true, false},
                   {offsetof(struct syi_header, window), 0x40, true, true, false},
                   {offsetof(struct syi_header, window), 0xFF, true, false, false},
                   {offsetof(struct syi_header, offset) + 2, 0x01, true, true, false},
                   {offsetof(struct syi_header, offset) + 7, 0x80, true, false, false},
                   {offsetof(struct syi_header, capacity) + 3, 0x40, true, true, false},
                   {offsetof(struct syi_header, tokens) + 3, 0x40, true, false, true},
                   {offsetof(struct syi_header, tokens) + 3, 0x40, false, false, true}};
    for (size_t i = 0; i < COUNT_OF(damages); i++) {
        struct mesh_case m;
        case_for(&m, damages[i].ragged);
        for (int device = 0; device < 2; device++) {
            struct damage d = {.byte = (int)damages[i].byte,
                               .mask = damages[i].mask,
                               .device = device,
                               .windowed = damages[i].windowed,
                               .combines = damages[i].combines,
                               .of = &m,
                               .seal = seal};
            run_team(&(struct team){.way = &shared, .mesh = {1, 2}, .work = send_damaged, .user = &d});
        }
        mesh_case_free(&m);
    }
}

/* Comms that break keep their memory for late messages: it stays reachable from here, so that it is no leak. */
static sy_comm *broken_comm[THREADS_MOST];

/* Device 1 stages rows of a combine and then says that they begin where nothing is. Device 0 comes later and finds that out alone. */
static bool corrupt_starts(struct team *team, int device, sy_ctx *ctx, sy_comm *comm, char *why,
                           size_t why_bytes)
{
    struct damage *d = team->user;
    sy_request *request = NULL;
    const int64_t start = INT32_MAX;
    broken_comm[device] = comm;
    struct mesh_call *call = d->call[device] = mesh_combine_new(comm, d->of, NULL);
    bool good = sy_comm_reserve(ctx, comm, 1 << 16) == SY_OK;
    if (device == 0)
        pthread_barrier_wait(&d->damaged);
    good = mesh_call_start(ctx, comm, call, &request) == SY_OK && good;
    if (device == 1) {
        const struct syi_segment *stage = &comm->segment[comm->sharing[SYI_IN_CPU].stage];
        unsigned char *const slot = (unsigned char *)stage->base[1];
        for (size_t s = 0; s < stage->bytes[1]; s += stage->slot_bytes)
            memcpy(slot + s, &start, sizeof start); /* for device 0 */
        pthread_barrier_wait(&d->damaged);
    }
    const sy_status st = d->status[device] = sy_request_free(request);
    if (device == 0)
        good = good && st == SY_ERR_COMM && mesh_call_untouched(call, why, why_bytes) &&
               strstr(sy_ctx_error(ctx), "received invalid data from device 1") != NULL;
    if (!good && why[0] == '\0')
        snprintf(why, why_bytes, "%s: %s", sy_status_name(st), sy_ctx_error(ctx));
    return good;
}

TEST(starts_are_damaged)
{
    static const struct way brief = {"shared memory", {.shared = true}, {.timeout_ms = 500}};
    struct mesh_case m;
    struct damage d = {.device = 1, .of = &m};
    struct team team = {.way = &brief, .mesh = {1, 2}, .work = corrupt_starts, .user = &d};
    case_for(&m, false);
    pthread_barrier_init(&d.damaged, NULL, 2);
    run_team(&team);
    for (int device = 0; device < 2; device++)
        mesh_call_free(d.call[device]);
    mesh_case_free(&m);
    pthread_barrier_destroy(&d.damaged);
}

TEST_GROUP(collective)
{
    static const struct way *const ways[] = {&messages, &shared, &late};
    for (size_t w = 0; w < COUNT_OF(ways); w++) {
        test_add(&own_tests, test_name("mistakes: %s", ways[w]->name), mistakes, (void *)ways[w]);
        test_add(&own_tests, test_name("barriers before waits: %s", ways[w]->name), barriers_before_waits,
                 (void *)ways[w]);
        test_add(&own_tests, test_name("options differ: %s", ways[w]->name), options_differ, (void *)ways[w]);
        test_add(&own_tests, test_name("damaged headers: %s", ways[w]->name), headers_are_damaged,
                 (void *)ways[w]);
    }
    return test_run(&own_tests, "comm_collective");
}
