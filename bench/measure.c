/*
 * Checks a case, then times it and its limit: medians of interleaved repetitions.
 *
 * On a CUDA device a call only queues work, so calls are recorded into a CUDA graph, one for each set of buffers in turn, and
 * the replay of the graph is timed on the device: what is measured is the work of a call, its validation included, not the
 * host's part. Limits are those of the device: a copy, a fill and a read of 2 GiB.
 */
#include "report.h"

#include <math.h>

#include "cli/device.h"

enum { LEAST_TURNS = 15, MOST_TURNS = 101, REPLAYS = 9, MOST_CALLS = 20000 };

/* One timed sample lasts at least this long: shorter calls are repeated within it. */
static const double least_seconds = 200e-6;

/* A replay lasts at least this long, so that its own start does not count. */
static const double least_replay = 5e-3;

/* ---- On the CPU ---- */

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

/* ---- The device ---- */

bool bench_can(const struct bench *bench, const sy_op_info *op)
{
    return !bench->device.tools || device_has(bench->device.tools, op->name);
}

/* Bytes per second of one limit; 0 after an error. */
static double rate_of(const struct bench *bench, enum sy_cuda_limit limit, void *to, const void *from,
                      size_t n)
{
    double seconds[REPLAYS];
    char sentence[256] = "";
    for (int i = -1; i < REPLAYS; i++) /* the first is not counted */
        if (bench->device.tools->limit(bench->device.timer, limit, to, from, n, &seconds[i < 0 ? 0 : i],
                                       sentence, sizeof sentence) != SY_OK) {
            plain_error("bench: %s", sentence);
            return 0;
        }
    return (limit == SY_CUDA_COPY ? 2 : 1) * (double)n / fmax(bench_median(seconds, REPLAYS), 1e-9);
}

bool bench_device_limits(struct bench *bench)
{
    const size_t n = (size_t)(bench->quick ? 4 : 2048) << 20;
    struct bench_limits *const limits = &bench->limits;
    void *from = NULL, *to = NULL;
    if (sy_device_alloc(bench->ctx, n, &from) != SY_OK || sy_device_alloc(bench->ctx, n, &to) != SY_OK) {
        plain_error("bench: %s", sy_ctx_error(bench->ctx));
    } else {
        limits->fill = rate_of(bench, SY_CUDA_FILL, from, NULL, n);
        limits->copy = rate_of(bench, SY_CUDA_COPY, to, from, n);
        limits->read[0] = rate_of(bench, SY_CUDA_READ, NULL, from, n);
    }
    sy_device_free(bench->ctx, from);
    sy_device_free(bench->ctx, to);
    return limits->copy > 0 && limits->fill > 0 && limits->read[0] > 0;
}

bool bench_device_open(struct bench_device *d, sy_ctx *ctx, const struct common *common)
{
    char sentence[256] = "";
    d->device = common->device;
    if (d->device.device_type != kDLCUDA)
        return true;
    d->tools = device_tools(common);
    if (!d->tools)
        return false;
    if (d->tools->open(&d->timer, d->device.device_id, sentence, sizeof sentence) != SY_OK) {
        plain_error("%s: %s", common->help, sentence);
        return false;
    }
    if (sy_ctx_device_info(ctx, &d->info) != SY_OK) {
        plain_error("%s: %s", common->help, sy_ctx_error(ctx));
        return false;
    }
    return true;
}

void bench_device_close(struct bench_device *d)
{
    if (d->timer)
        d->tools->close(d->timer);
}

/* Seconds of the same work at the device's rates. Where rows are copied, all bytes count as those of a copy. */
static double limit_seconds(const struct bench *bench, const struct bench_work *work)
{
    const struct bench_limits *const limits = &bench->limits;
    const double rate = work->copy_bytes > 0   ? limits->copy
                        : work->fill_bytes > 0 ? limits->fill
                                               : limits->read[0];
    return bench_work_bytes(work) / rate;
}

const char *bench_record(struct bench *bench, struct bench_call *c, bool warm, int calls, char *text,
                         size_t bytes)
{
    const struct sy_cuda_tools *const tools = bench->device.tools;
    void *stream = NULL;
    sy_status status = tools->record(bench->device.timer, &stream, text, bytes);
    if (status != SY_OK)
        return text;
    sy_ctx_set_stream(c->ctx, stream);
    for (int i = 0; i < calls && status == SY_OK; i++)
        status = bench_run_there(c, warm ? 1 : i + 1);
    if (status != SY_OK)
        snprintf(text, bytes, "%s", sy_ctx_error(c->ctx));
    sy_ctx_set_stream(c->ctx, NULL);
    const sy_status finished = tools->finish(bench->device.timer, text, status == SY_OK ? bytes : 0);
    return status == SY_OK && finished == SY_OK ? NULL : text;
}

/* A graph of one round through the buffers gives the time of a call, and that the size of the graph that is measured. */
static const char *measure_there(struct bench *bench, struct bench_call *c, bool warm,
                                 struct bench_times *times, char *text, size_t bytes)
{
    const struct bench_device *const d = &bench->device;
    const int round = warm ? 1 : (int)c->sets, turns = bench->quick ? 3 : REPLAYS;
    double seconds[REPLAYS] = {0};
    int calls = round;
    for (bool sized = false;; sized = true) {
        const char *const wrong = bench_record(bench, c, warm, calls, text, bytes);
        if (wrong)
            return wrong;
        for (int i = 0; i < (sized ? turns : 2); i++)
            if (d->tools->replay(d->timer, &seconds[i], text, bytes) != SY_OK)
                return text;
        if (sized)
            break;
        const double rounds = bench->quick ? 1 : ceil(least_replay / fmax(seconds[1], 1e-7));
        const int most = MOST_CALLS / round;
        calls = round * (int)fmax(1, fmin(rounds, most));
    }
    if (sy_ctx_sync(c->ctx) != SY_OK)
        return sy_ctx_error(c->ctx);
    const double median = bench_median(seconds, turns);
    *times = (struct bench_times){.run = median / calls,
                                  .spread = (seconds[turns * 3 / 4] - seconds[turns / 4]) / median,
                                  .limit = limit_seconds(bench, &c->limit),
                                  .turns = turns,
                                  .calls = calls,
                                  .warm = warm};
    return NULL;
}

/* ---- A case ---- */

/* NULL, or what is wrong. */
static const char *check(struct bench *bench, struct bench_call *subject)
{
    if (bench_run(subject, 0) != SY_OK)
        return sy_ctx_error(bench->ctx);
    bench_plain(subject, 0);
    return bench_check(subject);
}

/* The call of turn 0 on the device, on the CPU, and their results. */
static const char *check_there(struct bench_call *c)
{
    if (!bench_send(c))
        return c->fault;
    if (bench_run_there(c, 0) != SY_OK || sy_ctx_sync(c->ctx) != SY_OK || bench_run(c, 0) != SY_OK)
        return sy_ctx_error(c->ctx);
    return bench_check_there(c);
}

void bench_measure(struct bench *bench, struct bench_call *c)
{
    const bool there = bench->device.tools != NULL;
    const struct bench_work *const limit = &c->limit;
    const size_t most = limit->copy_bytes > limit->fill_bytes ? limit->copy_bytes : limit->fill_bytes;
    char text[256] = "";
    const char *wrong = there ? check_there(c) : check(bench, c);
    if (!wrong && bench->check) {
        report_row(bench, c, NULL);
        return;
    }
    if (!wrong && !there &&
        !bench_arena_reserve(&bench->arena, most > limit->read_bytes ? most : limit->read_bytes, bench->ctx,
                             bench->quick))
        wrong = "not enough memory for its limit";
    for (int warm = 0; warm < 2 && !wrong; warm++) {
        struct bench_times times;
        if (!(warm ? bench->warm : bench->cold))
            continue;
        if (there)
            wrong = measure_there(bench, c, warm, &times, text, sizeof text);
        else
            times = measure(bench, c, warm);
        if (wrong)
            break;
        bench->records[bench->n_records++] =
            (struct bench_record){bench->op, bench->index, warm, times.run, c->bytes};
        report_row(bench, c, &times);
    }
    if (wrong)
        report_failure(bench, c->op->name, c->shape, wrong);
}
