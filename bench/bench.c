/*
 * switchyard bench: which operators, how, and then one after the other.
 */
#include "report.h"

#include <string.h>

#include "cli/cli.h"

static const struct bench_op *const bench_ops[] = {&bench_moe_permute, &bench_moe_dispatch, &bench_sample,
                                                   &bench_kv_gather, NULL};

static const struct bench_op *find(const char *name)
{
    const struct bench_op *const *op = bench_ops;
    while (*op && strcmp((*op)->name, name) != 0)
        op++;
    return *op;
}

static int run_all(struct bench *bench, const struct bench_op *const *chosen)
{
    report_head(bench);
    for (; *chosen; chosen++)
        (*chosen)->run(bench);
    report_end(bench);
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
