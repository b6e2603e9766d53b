/*
 * Many requests open at a time between threads: single situations, and random schedules on 2 to 8 devices.
 *
 *     SWITCHYARD_EXCHANGES=40000 comm_schedule          as many exchanges, over all meshes
 *     SWITCHYARD_SCHEDULE=1234567 comm_schedule         the schedules of one seed, on every mesh
 */
#include "schedule.h"
#include "threads_transport.h"

enum { USUAL_EXCHANGES = 6000 };

static const sy_mesh meshes[] = {{1, 2}, {1, 3}, {2, 2}, {5, 1}, {2, 3}, {1, 7}, {4, 2}};
static struct schedule_totals all;

/* ---- Threads ---- */

struct team {
    const struct schedule *schedule;
    const struct schedule_case *situation;
    struct threads_hub *hub;
    struct schedule_result results[THREADS_MOST];
};

static void member(int device, void *user)
{
    struct team *team = user;
    const sy_transport transport = threads_transport(team->hub, device);
    if (team->schedule)
        schedule_play(team->schedule, &transport, &team->results[device]);
    else
        schedule_play_case(team->situation, &transport, &team->results[device]);
}

static void run_team(struct team *team, sy_mesh mesh, bool shared, int delay)
{
    const struct threads_options options = {
        .shared = shared, .delay = delay, .shuffled = delay > 0, .contagious = true};
    team->hub = threads_hub_new(mesh, &options);
    threads_run(mesh.rows * mesh.cols, member, team);
    threads_hub_free(team->hub);
}

/* ---- Single situations ---- */

static void situation(void **state)
{
    const struct schedule_case *c = *state;
    for (size_t i = 0; i < COUNT_OF(meshes) && meshes[i].rows * meshes[i].cols <= 4; i++) {
        const int n = meshes[i].rows * meshes[i].cols;
        struct team team = {.situation = c};
        if (n < c->devices)
            continue;
        run_team(&team, meshes[i], c->shared, 0);
        for (int d = 0; d < n; d++)
            if (!team.results[d].good)
                fail_msg("mesh %dx%d, device %d: %s", meshes[i].rows, meshes[i].cols, d, team.results[d].why);
    }
}

/* ---- Schedules ---- */

static void play(struct schedule_totals *totals, uint64_t seed, sy_mesh mesh)
{
    struct schedule *s = schedule_new(seed, mesh);
    struct team team = {.schedule = s};
    printf("# seed %llu\n", (unsigned long long)seed); /* of one that hangs, too */
    fflush(stdout);
    run_team(&team, mesh, s->shared, (int)(seed / 3 % 3) * 2);
    schedule_add(totals, s, team.results, mesh.rows * mesh.cols);
    schedule_free(s);
}

/* A mesh takes its part of all exchanges; larger ones take less. */
static void schedules(void **state)
{
    const sy_mesh *mesh = *state;
    const int n = mesh->rows * mesh->cols;
    const int64_t part = schedule_exchanges(USUAL_EXCHANGES) * (n <= 4 ? 20 : 10) / 100;
    struct schedule_totals totals = {0};
    char text[400];
    uint64_t seed;
    if (schedule_single_seed(&seed)) {
        play(&totals, seed, *mesh);
    } else {
        for (uint64_t i = 0; totals.exchanges < part; i++)
            play(&totals, 1000000 * (uint64_t)n + i + 1, *mesh);
    }
    schedule_print(&totals, text, sizeof text);
    printf("# %d devices: %s\n", n, text);
    schedule_merge(&all, &totals);
}

TEST(variety)
{
    schedule_expect_variety(&all);
}

TEST_GROUP(schedule)
{
    struct test_list list = {0};
    uint64_t seed;
    for (int i = 0; i < n_schedule_cases; i++)
        test_add(&list, schedule_cases[i].name, situation, (void *)&schedule_cases[i]);
    for (size_t i = 0; i < COUNT_OF(meshes); i++)
        test_add(&list, test_name("schedules on %d devices", meshes[i].rows * meshes[i].cols), schedules,
                 (void *)&meshes[i]);
    if (test_full() && !schedule_single_seed(&seed))
        test_add(&list, "variety", variety, NULL);
    return test_run(&list, "comm_schedule");
}
