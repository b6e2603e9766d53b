/*
 * Checks a case, then times it and its limit: medians of interleaved repetitions.
 */
#include "report.h"

#include <math.h>

enum { LEAST_TURNS = 15, MOST_TURNS = 101 };

/* One timed sample lasts at least this long: shorter calls are repeated within it. */
static const double least_seconds = 200e-6;

static int repeats_within(double seconds)
{
    return seconds >= least_seconds ? 1 : (int)(least_seconds / fmax(seconds, 1e-8)) + 1;
}

/* Short samples are disturbed most by a busy machine, and are cheap: they get more turns, about 60 ms. */
static int turns_for(const struct bench *bench, double seconds)
{
    if (bench->quick)
        return 3;
    if (seconds > 0.5)
        return 5;
    const int turns = (int)(60e-3 / fmax(seconds, least_seconds));
    return turns < LEAST_TURNS ? LEAST_TURNS : turns > MOST_TURNS ? MOST_TURNS : turns;
}

/* Cold: every call uses the next buffers. Warm: always the same, after a call that is not timed, because other code has
   used the caches in between. */
static double time_run(struct bench_call *subject, bool warm, int inner, int64_t *turn)
{
    if (warm)
        bench_run(subject, *turn);
    const double begin = bench_now();
    for (int i = 0; i < inner; i++)
        bench_run(subject, warm ? *turn : (*turn)++);
    return (bench_now() - begin) / inner;
}

static double time_limit(struct bench *bench, struct bench_call *subject, bool warm, int inner)
{
    double sum = 0;
    bench->arena.stay = warm;
    if (warm)
        bench_limit_seconds(&bench->arena, &subject->limit, bench->ctx);
    for (int i = 0; i < inner; i++)
        sum += bench_limit_seconds(&bench->arena, &subject->limit, bench->ctx);
    return sum / inner;
}

/* The plain loop may take seconds where the operator takes milliseconds: then it runs once. */
static double time_plain(struct bench *bench, struct bench_call *subject, bool warm, int64_t turn)
{
    enum { MOST = 5 };
    double seconds[MOST];
    int n = 0, inner = 1;
    do {
        const double begin = bench_now();
        for (int i = 0; i < inner; i++)
            bench_plain(subject, warm ? turn : turn++);
        seconds[n] = (bench_now() - begin) / inner;
        if (n == 0 && inner == 1 && seconds[0] < least_seconds)
            inner = repeats_within(seconds[0]); /* the second call is timed */
        else
            n++;
    } while (n < (bench->quick ? 1 : MOST) && (n == 0 || seconds[0] < 0.1));
    return bench_median(seconds, n);
}

/* Operator and limit alternate, so that a slow phase of the machine affects both. */
static struct bench_times measure(struct bench *bench, struct bench_call *subject, bool warm)
{
    struct bench_times times = {.warm = warm};
    double run[MOST_TURNS], limit[MOST_TURNS];
    int64_t turn = 1; /* 0 is the checked one */
    const double seconds = time_run(subject, warm, 1, &turn);
    const int inner = repeats_within(seconds), turns = turns_for(bench, seconds);
    time_limit(bench, subject, warm, 1);
    for (int i = 0; i < turns; i++) {
        run[i] = time_run(subject, warm, inner, &turn);
        limit[i] = time_limit(bench, subject, warm, inner);
    }
    times.turns = turns;
    times.run = bench_median(run, turns);
    times.limit = bench_median(limit, turns);
    times.spread = (run[turns * 3 / 4] - run[turns / 4]) / times.run;
    times.plain = time_plain(bench, subject, warm, turn);
    return times;
}

/* NULL, or what is wrong. */
static const char *check(struct bench *bench, struct bench_call *subject)
{
    if (bench_run(subject, 0) != SY_OK)
        return sy_ctx_error(bench->ctx);
    bench_plain(subject, 0);
    return bench_check(subject);
}

void bench_measure(struct bench *bench, struct bench_call *subject)
{
    const struct bench_work *const limit = &subject->limit;
    const size_t most = limit->copy_bytes > limit->fill_bytes ? limit->copy_bytes : limit->fill_bytes;
    const char *wrong = check(bench, subject);
    if (!wrong && bench->check) {
        report_row(bench, subject, NULL);
        return;
    }
    if (!wrong && !bench_arena_reserve(&bench->arena, most > limit->read_bytes ? most : limit->read_bytes,
                                       bench->ctx, bench->quick))
        wrong = "not enough memory for its limit";
    if (wrong) {
        report_failure(bench, subject->op->name, subject->shape, wrong);
        return;
    }
    for (int warm = 0; warm < 2; warm++)
        if (warm ? bench->warm : bench->cold) {
            const struct bench_times times = measure(bench, subject, warm);
            bench->records[bench->n_records++] =
                (struct bench_record){bench->op, bench->index, warm, times.run};
            report_row(bench, subject, &times);
        }
}
