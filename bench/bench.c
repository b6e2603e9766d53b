/*
 * switchyard bench: the cases of every operator, measured and printed.
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static const struct bench_op *const bench_ops[] = {&bench_moe_permute, &bench_moe_dispatch, &bench_sample,
                                                   &bench_kv_gather, NULL};

enum { MOST_TURNS = 15 };

/* One timed sample lasts at least this long: shorter calls are repeated within it. */
static const double least_seconds = 200e-6;

struct times {
    double run, spread, limit, plain;
};

/* ---- Measuring ----------------------------------------------------------------------------------------- */

static double time_run(struct bench *bench, const struct bench_case *subject, int inner, int64_t *turn)
{
    const double begin = bench_now();
    for (int i = 0; i < inner; i++)
        subject->run(bench->ctx, subject->state, (*turn)++);
    return (bench_now() - begin) / inner;
}

static double time_limit(struct bench *bench, const struct bench_case *subject, int inner)
{
    double sum = 0;
    for (int i = 0; i < inner; i++)
        sum += bench_limit_seconds(&bench->arena, &subject->limit, bench->threads);
    return sum / inner;
}

/* Operator and limit take turns, so that a slow moment of the machine meets both. */
static struct times measure(struct bench *bench, const struct bench_case *subject)
{
    struct times times = {0};
    double run[MOST_TURNS], limit[MOST_TURNS];
    int64_t turn = 1;
    const double once = time_run(bench, subject, 1, &turn);
    const double seconds = fmax(once, 1e-7);
    const int inner = seconds >= least_seconds ? 1 : (int)(least_seconds / seconds) + 1;
    const int turns = bench->quick ? 3 : seconds > 0.5 ? 5 : MOST_TURNS;
    time_limit(bench, subject, 1);
    for (int i = 0; i < turns; i++) {
        run[i] = time_run(bench, subject, inner, &turn);
        limit[i] = time_limit(bench, subject, inner);
    }
    times.run = bench_median(run, turns);
    times.limit = bench_median(limit, turns);
    times.spread = (run[turns * 3 / 4] - run[turns / 4]) / times.run;
    /* The plain loop may take seconds where the operator takes milliseconds: then once is enough. */
    double plain[3];
    int n_plain = 0;
    do {
        const double begin = bench_now();
        subject->plain(subject->state, ++turn);
        plain[n_plain++] = bench_now() - begin;
    } while (n_plain < 3 && !bench->quick && plain[0] < 0.2);
    times.plain = bench_median(plain, n_plain);
    return times;
}

/* ---- Printing ------------------------------------------------------------------------------------------ */

static const char *limit_name(const struct bench_work *limit)
{
    if (limit->read_bytes > 0)
        return "read";
    return limit->fill_bytes > 0 ? "copy+fill" : "copy";
}

struct bench_text bench_time(double seconds)
{
    static const char *const units[] = {"us", "ms", "s"};
    struct bench_text text;
    double value = seconds * 1e6;
    int unit = 0;
    for (; value >= 999.5 && unit < 2; unit++) /* three digits would round to the next unit */
        value *= 1e-3;
    snprintf(text.text, sizeof text.text, "%.3g %s", value, units[unit]);
    return text;
}

static void print_row(const struct bench_case *subject, const struct times *times)
{
    char share[24], bytes[24];
    const double rate = subject->bytes / times->run;
    const double limit_rate = bench_work_bytes(&subject->limit) / times->limit;
    const double percent = 100 * rate / limit_rate;
    snprintf(share, sizeof share, "%.*f%% of %s", percent < 10 ? 1 : 0, percent, limit_name(&subject->limit));
    snprintf(bytes, sizeof bytes, "%.4g MB", subject->bytes * 1e-6);
    printf("%-13s %-42s %9s %4.0f%%  %9s %7.1f GB/s  %-17s %6.2f x  %9s (%.1f x)\n", subject->op,
           subject->shape, bench_time(times->run).text, 100 * times->spread, bytes, rate * 1e-9, share,
           times->run / times->limit, bench_time(times->plain).text, times->plain / times->run);
    fflush(stdout);
}

static void json_row(struct bench *bench, const struct bench_case *subject, const struct times *times)
{
    struct emit *const json = &bench->json;
    const double rate = subject->bytes / times->run;
    const double limit_rate = bench_work_bytes(&subject->limit) / times->limit;
    emit_begin(json, NULL, '{');
    emit_string(json, "op", subject->op);
    emit_string(json, "shape", subject->shape);
    emit_bool(json, "checked", true);
    emit_number(json, "seconds", times->run);
    emit_number(json, "spread", times->spread);
    emit_number(json, "bytes", subject->bytes);
    emit_number(json, "gb_per_s", rate * 1e-9);
    emit_string(json, "limit", limit_name(&subject->limit));
    emit_number(json, "limit_seconds", times->limit);
    emit_number(json, "limit_gb_per_s", limit_rate * 1e-9);
    emit_number(json, "share_of_limit", rate / limit_rate);
    emit_number(json, "times_limit", times->run / times->limit);
    emit_number(json, "plain_seconds", times->plain);
    emit_number(json, "times_faster_than_plain", times->plain / times->run);
    emit_end(json, '}');
}

static void fail_case(struct bench *bench, const char *op, const char *shape, const char *reason)
{
    bench->failures++;
    fprintf(stderr, "switchyard: bench: %s %s: %s\n", op, shape, reason);
    if (!bench->as_json)
        return;
    emit_begin(&bench->json, NULL, '{');
    emit_string(&bench->json, "op", op);
    emit_string(&bench->json, "shape", shape);
    emit_bool(&bench->json, "checked", false);
    emit_string(&bench->json, "reason", reason);
    emit_end(&bench->json, '}');
}

void bench_no_memory(struct bench *bench, const char *op, const char *shape)
{
    bench->cases++;
    fail_case(bench, op, shape, "not enough memory");
}

void bench_measure(struct bench *bench, const struct bench_case *subject)
{
    const struct bench_work *const limit = &subject->limit;
    const size_t most = limit->copy_bytes > limit->fill_bytes ? limit->copy_bytes : limit->fill_bytes;
    bench->cases++;
    if (!bench_arena_reserve(&bench->arena, most > limit->read_bytes ? most : limit->read_bytes,
                             bench->threads)) {
        fail_case(bench, subject->op, subject->shape, "not enough memory for its limit");
        return;
    }
    if (subject->run(bench->ctx, subject->state, 0) != SY_OK) {
        fail_case(bench, subject->op, subject->shape, sy_ctx_error(bench->ctx));
        return;
    }
    subject->plain(subject->state, 0);
    const char *const wrong = subject->check(subject->state);
    if (wrong) {
        fail_case(bench, subject->op, subject->shape, wrong);
        return;
    }
    const struct times times = measure(bench, subject);
    if (bench->as_json)
        json_row(bench, subject, &times);
    else
        print_row(subject, &times);
}

/* ---- Command line -------------------------------------------------------------------------------------- */

static const struct bench_op *find(const char *name)
{
    const struct bench_op *const *op = bench_ops;
    while (*op && strcmp((*op)->name, name) != 0)
        op++;
    return *op;
}

static void print_head(const struct bench *bench)
{
    printf("switchyard %s, kernels %s, %d thread%s, cold buffers%s\n", sy_version(), sy_ctx_isa(bench->ctx),
           bench->threads, bench->threads == 1 ? "" : "s", bench->quick ? ", quick" : "");
    if (bench_limit_threads(bench->threads) != bench->threads)
        printf("note: built without OpenMP, the limits are those of one thread\n");
    printf("\n%-13s %-42s %9s %5s  %9s %12s  %-17s %8s  %s\n", "operator", "shape", "time", "+-", "bytes",
           "rate", "share of limit", "x limit", "plain loop");
}

static void json_head(struct bench *bench)
{
    struct emit *const json = &bench->json;
    emit_begin(json, NULL, '{');
    emit_string(json, "version", sy_version());
    emit_integer(json, "results_version", sy_results_version());
    emit_string(json, "isa", sy_ctx_isa(bench->ctx));
    emit_integer(json, "threads", bench->threads);
    emit_integer(json, "limit_threads", bench_limit_threads(bench->threads));
    emit_bool(json, "quick", bench->quick);
    emit_begin(json, "cases", '[');
}

static int run_all(struct bench *bench, const struct bench_op *const *chosen)
{
    bench->json = (struct emit){.out = stdout};
    if (bench->as_json)
        json_head(bench);
    else
        print_head(bench);
    for (; *chosen; chosen++)
        (*chosen)->run(bench);
    if (bench->as_json) {
        emit_end(&bench->json, ']');
        emit_bool(&bench->json, "pass", bench->failures == 0);
        emit_end(&bench->json, '}');
    } else {
        printf("\n%d case%s checked against a plain loop, %d wrong\n", bench->cases,
               bench->cases == 1 ? "" : "s", bench->failures);
    }
    bench_arena_free(&bench->arena);
    return bench->failures > 0 ? EXIT_REFUSED : EXIT_DONE;
}

int command_bench(struct common *common, struct arg_list *list)
{
    enum { MOST = 16 };
    struct bench bench = {0};
    const struct bench_op *chosen[MOST + 1] = {NULL};
    int n = 0;
    for (struct arg arg = arg_next(list); arg.kind != ARG_END; arg = arg_next(list)) {
        int code = EXIT_DONE;
        if (arg.kind == ARG_WORD) {
            const struct bench_op *const op = find(arg.text);
            if (!op)
                return usage_error("bench", "there is no benchmark of %s", arg.text);
            if (n == MOST)
                return usage_error("bench", "too many operators");
            chosen[n++] = op;
        } else if (arg_is(&arg, "json") && !arg.value) {
            bench.as_json = true;
        } else if (arg_is(&arg, "quick") && !arg.value) {
            bench.quick = true;
        } else if (!common_option(common, list, &arg, &code)) {
            return usage_error("bench", "bench has no option --%.*s", arg.length, arg.text);
        }
        if (code != EXIT_DONE)
            return code;
    }
    bench.ctx = common_context(common);
    if (!bench.ctx)
        return EXIT_USAGE;
    bench.threads = sy_ctx_threads(bench.ctx);
    const int code = run_all(&bench, n > 0 ? chosen : bench_ops);
    sy_ctx_destroy(bench.ctx);
    return code;
}
