/*
 * all_to_all_dispatch and all_to_all_combine between threads that know of each other only through a transport: the same
 * cases as on a local mesh, on every way rows can take; bytes on the wire; routings; memory of the comm.
 */
#include "mesh_cases.h"
#include "support.h"
#include "threads_team.h"

enum { LAST = 60 };

static const struct way ways[] = {
    {"messages", {.shared = false}, {0}},
    {"shared memory", {.shared = true}, {0}},
    {"messages in spite of shared memory", {.shared = true}, {.no_shared = true}},
    {"packed messages", {.shared = false}, {.pack = true}},
    {"messages of one row", {.shared = false}, {.chunk_bytes = 1}},
    {"packed messages of one row", {.shared = false}, {.pack = true, .chunk_bytes = 1}},
    {"late and in any order", {.delay = 5, .shuffled = true}, {.chunk_bytes = 24}},
    {"late through shared memory", {.shared = true, .delay = 5}, {0}},
    {"nothing checked", {.shared = false}, {.check = SY_CHECK_NONE}},
};
static const sy_mesh meshes[] = {{1, 1}, {1, 2}, {2, 1}, {2, 2}, {1, 3}, {2, 3}, {1, 8}, {4, 2}};

/* Of the meshes other ones for each way. */
static void run_on_meshes(const struct way *way,
                          bool (*work)(struct team *, int, sy_ctx *, sy_comm *, char *, size_t))
{
    for (size_t i = 0; i < COUNT_OF(meshes); i++)
        if (test_third(i + 2 * (size_t)(way - ways)))
            run_team(&(struct team){.way = way, .work = work, .mesh = meshes[i]});
}

/* ---- The cases of every comm ---- */

static bool all_cases(struct team *team, int device, sy_ctx *ctx, sy_comm *comm, char *why, size_t why_bytes)
{
    (void)team;
    (void)device;
    return run_mesh_cases(ctx, comm, why, why_bytes);
}

static void cases(void **state)
{
    run_on_meshes(*state, all_cases);
}

/* ---- Bytes on the wire ---- */

/* One call, and what came over the wire while it ran. */
static bool counted_call(struct team *team, sy_ctx *ctx, sy_comm *comm, struct mesh_call *call, char *why,
                         size_t why_bytes)
{
    const struct mesh_case *m = call->of;
    const struct threads_counters before = threads_count(team->hub, call->first);
    const sy_status status = mesh_call_run(ctx, comm, call);
    const struct threads_counters after = threads_count(team->hub, call->first);
    const int64_t headers = 64 * (oracle_a2a_devices(&m->a2a) - 1);
    const int64_t others = oracle_a2a_total(&m->a2a, call->first) - m->a2a.tokens[call->first];
    const int64_t table = call->combines ? 0 : others * m->a2a.slots * (int64_t)type_bytes(m->index_type);
    /* Where rows are packed and not all devices have room for the most, they ask each other once more. */
    const bool may_ask = m->a2a.layout != SY_LAYOUT_PADDED;
    const int64_t control = after.gathered[SY_CHANNEL_CONTROL] - before.gathered[SY_CHANNEL_CONTROL];
    int64_t sent, received;
    mesh_call_bytes(call, &sent, &received);
    const struct {
        const char *what;
        int64_t got, want;
    } counts[] = {
        {"bytes of headers", after.gathered[SY_CHANNEL_HEADER] - before.gathered[SY_CHANNEL_HEADER], headers},
        {"bytes of tables", after.gathered[SY_CHANNEL_TABLE] - before.gathered[SY_CHANNEL_TABLE], table},
        {"bytes of control", control, may_ask && control > 0 ? headers : 0},
        {"bytes sent", after.sent - before.sent, sent},
        {"bytes received", after.received - before.received, received},
    };
    if (status != SY_OK) {
        snprintf(why, why_bytes, "%s", sy_ctx_error(ctx));
        return false;
    }
    for (size_t i = 0; i < COUNT_OF(counts); i++)
        if (counts[i].got != counts[i].want) {
            snprintf(why, why_bytes, "%s: %s: %lld, want %lld", call->combines ? "combine" : "dispatch",
                     counts[i].what, (long long)counts[i].got, (long long)counts[i].want);
            return false;
        }
    return true;
}

static bool count_bytes(struct team *team, int device, sy_ctx *ctx, sy_comm *comm, char *why,
                        size_t why_bytes)
{
    bool good = true;
    (void)device;
    for (int number = 0; number < test_rounds(LAST); number++) {
        struct mesh_case m;
        char one[2][200];
        mesh_case_random(&m, team->mesh, number);
        struct mesh_call *out = mesh_dispatch_new(comm, &m, NULL), *home = mesh_combine_new(comm, &m, NULL);
        const bool there = counted_call(team, ctx, comm, out, one[0], sizeof one[0]);
        const bool back = counted_call(team, ctx, comm, home, one[1], sizeof one[1]);
        if (good && !(there && back))
            snprintf(why, why_bytes, "case %d: %s", number, there ? one[1] : one[0]);
        good = good && there && back;
        mesh_call_free(out);
        mesh_call_free(home);
        mesh_case_free(&m);
    }
    return good;
}

TEST(bytes_on_the_wire)
{
    static const int by_message[] = {0, 2, 3, 4};
    for (size_t w = 0; w < COUNT_OF(by_message); w++)
        for (size_t i = 0; i < COUNT_OF(meshes); i++)
            run_team(&(struct team){.way = &ways[by_message[w]], .mesh = meshes[i], .work = count_bytes});
}

/* No message is longer than asked for, unless it is one row; more links give more messages. */
static bool cut_messages(struct team *team, int device, sy_ctx *ctx, sy_comm *comm, char *why,
                         size_t why_bytes)
{
    int64_t messages[3];
    static const int links[] = {1, 3, 100000};
    bool good = true;
    for (int i = 0; i < 3; i++) {
        struct mesh_case m;
        mesh_case_random(&m, team->mesh, 9);
        m.num_links = links[i];
        struct mesh_call *call = mesh_dispatch_new(comm, &m, NULL);
        const int64_t before = threads_count(team->hub, device).messages;
        good = mesh_call_right(ctx, comm, call, why, why_bytes) && good;
        messages[i] = threads_count(team->hub, device).messages - before;
        mesh_case_free(&m);
    }
    const int64_t longest = threads_count(team->hub, device).longest;
    if (good)
        snprintf(why, why_bytes, "%lld, %lld and %lld messages of %lld bytes at most", (long long)messages[0],
                 (long long)messages[1], (long long)messages[2], (long long)longest);
    return good && messages[0] <= messages[1] && messages[1] <= messages[2] &&
           (team->way->comm.chunk_bytes == 0 || longest <= 512);
}

TEST(messages_are_cut)
{
    for (int w = 0; w < 5; w += 4)
        run_team(&(struct team){.way = &ways[w], .mesh = {1, 2}, .work = cut_messages});
}

/* ---- Routings and memory ---- */

/* A second dispatch along the routing gathers no table; many combines use it. Some are called by description, too. */
static bool reuse(struct team *team, int device, sy_ctx *ctx, sy_comm *comm, char *why, size_t why_bytes)
{
    bool good = true;
    for (int number = 0; number < test_rounds(LAST); number++) {
        struct mesh_case m;
        sy_routing *routing = NULL;
        mesh_case_random(&m, team->mesh, number);
        good = sy_routing_create(ctx, comm, &routing) == SY_OK && good;
        for (int i = 0; i < 4; i++) {
            struct mesh_call *call =
                i < 2 ? mesh_dispatch_new(comm, &m, routing) : mesh_combine_new(comm, &m, routing);
            if (i == 1) {
                call->dispatch.reuse_routing = true;
                call->dispatch.expert_indices = call->dispatch.expert_mapping = call->dispatch.metadata =
                    NULL;
            }
            if (number % 4 == 0 && mesh_call_described(ctx, comm, call) != SY_OK) {
                if (good)
                    snprintf(why, why_bytes, "case %d, by description: %s", number, sy_ctx_error(ctx));
                good = false;
            }
            const int64_t before = threads_count(team->hub, device).gathered[SY_CHANNEL_TABLE];
            if (mesh_call_run(ctx, comm, call) != SY_OK) {
                if (good)
                    snprintf(why, why_bytes, "case %d: %s", number, sy_ctx_error(ctx));
                good = false;
            }
            good = good && mesh_call_check(call, why, why_bytes);
            if (good && i > 0 && threads_count(team->hub, device).gathered[SY_CHANNEL_TABLE] != before) {
                snprintf(why, why_bytes, "case %d: the table was gathered again", number);
                good = false;
            }
            mesh_call_free(call);
        }
        sy_routing_destroy(routing);
        mesh_case_free(&m);
    }
    return good;
}

static void routings_are_reused(void **state)
{
    run_on_meshes(*state, reuse);
}

/* The input of each call is in memory of the comm. */
static bool own_memory(struct team *team, int device, sy_ctx *ctx, sy_comm *comm, char *why, size_t why_bytes)
{
    bool good = sy_comm_reserve(ctx, comm, 4096) == SY_OK;
    (void)device;
    for (int number = 0; number < test_rounds(LAST); number++) {
        struct mesh_case m;
        void *memory = NULL;
        mesh_case_random(&m, team->mesh, number);
        struct mesh_call *call =
            number % 2 ? mesh_combine_new(comm, &m, NULL) : mesh_dispatch_new(comm, &m, NULL);
        const struct mesh_tensor *x = &call->tensors[MESH_INPUT][0];
        good = sy_comm_alloc(ctx, comm, x->bytes + 8, &memory) == SY_OK && good;
        if (memory && x->bytes > 0) {
            memcpy((unsigned char *)memory + 8, x->mem, x->bytes);
            call->fields[MESH_INPUT][0].data = (unsigned char *)memory + 8;
        }
        char one[400];
        if (!mesh_call_right(ctx, comm, call, one, sizeof one)) {
            if (good)
                snprintf(why, why_bytes, "case %d: %s", number, one);
            good = false;
        }
        good = sy_comm_free(ctx, comm, memory) == SY_OK && good;
        mesh_case_free(&m);
    }
    return good;
}

static void inputs_in_memory_of_the_comm(void **state)
{
    run_on_meshes(*state, own_memory);
}

/* ---- Sharing ends ---- */

/* Device 0 has more to show than the first page holds, device 1 has not. */
static void make_uneven(struct mesh_case *m, int kind)
{
    mesh_case_line(m, (sy_mesh){1, 2},
                   kind == 2 ? "sum=1 ragged=1 N=40 K=2 E=4 experts=1"
                             : "ragged=1 N=40 K=2 E=4 experts=1 type=1");
    m->a2a.tokens[1] = 1;
    mesh_case_renew(m, 64, 5);
}

/* The first of two requests needs more memory than can be shared; the second has shown its rows already. */
static bool lose_memory(struct team *team, int device, sy_ctx *ctx, sy_comm *comm, char *why,
                        size_t why_bytes)
{
    bool good = run_mesh_case(ctx, comm, 0, why, why_bytes) && sy_comm_shares_memory(comm);
    struct mesh_case m[2];
    make_uneven(&m[0], team->kind);
    mesh_example_make(&m[1], 0);
    if (device == 0)
        threads_fail_share(team->hub);
    struct mesh_call *calls[2];
    sy_request *requests[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        calls[i] =
            team->kind == 0 ? mesh_dispatch_new(comm, &m[i], NULL) : mesh_combine_new(comm, &m[i], NULL);
        good = mesh_call_start(ctx, comm, calls[i], &requests[i]) == SY_OK && good;
    }
    for (int i = 1; i >= 0; i--)
        if (sy_request_free(requests[i]) != SY_OK) {
            snprintf(why, why_bytes, "request %d: %s", i, sy_ctx_error(ctx));
            good = false;
        }
    for (int i = 0; i < 2; i++) {
        good = good && mesh_call_check(calls[i], why, why_bytes);
        mesh_call_free(calls[i]);
        mesh_case_free(&m[i]);
    }
    return run_mesh_case(ctx, comm, 1, why, why_bytes) && !sy_comm_shares_memory(comm) && good;
}

TEST(sharing_ends)
{
    for (int kind = 0; kind < 3; kind++) /* dispatch, slots, sum */
        run_team(&(struct team){.way = &ways[1], .mesh = {1, 2}, .work = lose_memory, .kind = kind});
}

static bool describe(struct team *team, int device, sy_ctx *ctx, sy_comm *comm, char *why, size_t why_bytes)
{
    (void)ctx;
    snprintf(why, why_bytes, "the comm describes itself wrongly");
    return sy_comm_mesh(comm).rows == team->mesh.rows && sy_comm_mesh(comm).cols == team->mesh.cols &&
           sy_comm_shards(comm) == 1 && sy_comm_first_device(comm) == device &&
           strcmp(sy_comm_transport_name(comm), "threads") == 0 &&
           sy_comm_shares_memory(comm) == (team->way->transport.shared && !team->way->comm.no_shared);
}

TEST(comms_describe_themselves)
{
    for (size_t w = 0; w < COUNT_OF(ways); w++)
        run_team(&(struct team){.way = &ways[w], .mesh = {2, 2}, .work = describe});
}

TEST_GROUP(exchange)
{
    for (size_t w = 0; w < COUNT_OF(ways); w++)
        test_add(&own_tests, test_name("cases: %s", ways[w].name), cases, (void *)&ways[w]);
    for (size_t w = 0; w < 8; w++)
        test_add(&own_tests, test_name("routings: %s", ways[w].name), routings_are_reused, (void *)&ways[w]);
    test_add(&own_tests, "inputs in memory of the comm, shared", inputs_in_memory_of_the_comm,
             (void *)&ways[1]);
    test_add(&own_tests, "inputs in memory of the comm, not shared", inputs_in_memory_of_the_comm,
             (void *)&ways[0]);
    return test_run(&own_tests, "comm_exchange");
}
