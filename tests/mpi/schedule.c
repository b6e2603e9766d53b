/*
 * Many requests open at a time between processes: single situations, and random schedules.
 *
 *     SWITCHYARD_EXCHANGES=5000 mpirun -n 3 mpi_schedule         as many exchanges
 *     SWITCHYARD_SCHEDULE=1234567 mpirun -n 3 mpi_schedule       the schedules of one seed
 */
#include "ranks.h"
#include "schedule.h"

enum { USUAL_EXCHANGES = 2400, BLOCK = 300 }; /* a test has so many: one that lasts too long counts as hung */

static struct schedule_totals all;

#ifdef SWITCHYARD_TEST_NCCL
static const bool ever_shares = false; /* NCCL has messages only */
#else
static const bool ever_shares = true;
#endif
static bool can_share; /* the processes of this job, rows in CPU memory */

static sy_transport transport_new(sy_mesh mesh)
{
    const sy_transport t = ranks_transport(mesh);
    can_share = t.share != NULL && !test_on_device();
    return t;
}

static void situation(void **state)
{
    const struct schedule_case *c = *state;
    struct schedule_result result;
    const sy_transport t = transport_new((sy_mesh){1, n_ranks});
    if (c->shared && !can_share) {
        t.destroy(t.self, false);
        skip_because("this transport shares no memory");
    }
    schedule_play_case(c, &t, &result);
    if (!result.good)
        fail_msg("process %d: %s", this_rank, result.why);
}

static void play(struct schedule_totals *totals, uint64_t seed)
{
    struct schedule *s = schedule_new(seed, mesh_number((int)(seed / 3 % (uint64_t)n_meshes())));
    struct schedule_result mine, *results = calloc((size_t)n_ranks, sizeof *results);
    const sy_transport t = transport_new(s->mesh);
    assert_non_null(results);
    schedule_play(s, &t, &mine);
    ranks_gather(&mine, sizeof mine, results);
    schedule_add(totals, s, results, n_ranks);
    free(results);
    schedule_free(s);
}

static void schedules(void **state)
{
    struct schedule_totals totals = {0};
    uint64_t seed = *(const uint64_t *)*state;
    if (schedule_single_seed(&seed))
        play(&totals, seed);
    else
        while (totals.exchanges < BLOCK)
            play(&totals, seed++);
    schedule_merge(&all, &totals);
}

TEST(variety)
{
    if (!can_share)
        skip_because("this transport shares no memory");
    schedule_expect_variety(&all);
}

TEST_GROUP(schedule)
{
    struct test_list list = {0};
    uint64_t seed;
    ranks_begin();
    const bool single = schedule_single_seed(&seed);
    const int64_t n = single ? 1 : (schedule_exchanges(USUAL_EXCHANGES / n_ranks) + BLOCK - 1) / BLOCK;
    uint64_t *const seeds = calloc((size_t)n, sizeof *seeds);
    for (int i = 0; i < n_schedule_cases; i++)
        if (n_ranks >= schedule_cases[i].devices && n_ranks <= 4 &&
            (ever_shares || !schedule_cases[i].shared))
            test_add(&list, schedule_cases[i].name, situation, (void *)&schedule_cases[i]);
    for (int64_t i = 0; i < n; i++) {
        seeds[i] = (uint64_t)(1000000 * n_ranks + 1000 * i + 1);
        test_add(&list, test_name("schedules from seed %llu", (unsigned long long)seeds[i]), schedules,
                 &seeds[i]);
    }
    if (test_full() && !single && ever_shares)
        test_add(&list, "variety", variety, NULL);
    const int failed = ranks_run(list.tests, list.count);
    char text[400];
    schedule_print(&all, text, sizeof text);
    if (this_rank == 0)
        printf("# %d processes: %s\n", n_ranks, text);
    free(list.tests);
    free(seeds);
    return ranks_end(failed);
}
