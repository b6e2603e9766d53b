/*
 * switchyard demo: one decode step of a mixture-of-experts model at real shapes, told line by line. The
 * router itself is played by a plain loop here; the rest are the operators. Ends with a page to look at.
 */
#include "demo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

enum { TURNS = 7 };

struct demo_step *demo_measure(struct demo *demo, const char *op,
                               sy_status (*call)(sy_ctx *ctx, const void *args), const void *args,
                               double bytes, const struct bench_work *limit)
{
    struct demo_step *const step = &demo->steps[demo->n_steps++];
    double run[TURNS], bound[TURNS];
    step->op = op;
    step->bytes = bytes;
    step->limit = limit->read_bytes > 0 ? "read" : limit->fill_bytes > 0 ? "copy and fill" : "copy";
    step->good = call(demo->ctx, args) == SY_OK; /* also warms the workspace and touches the outputs */
    if (!step->good) {
        fprintf(stderr, "switchyard: demo: %s\n", sy_ctx_error(demo->ctx));
        return step;
    }
    /* Reading the whole arena makes the caches forget: both sides start cold. */
    const struct bench_work forget = {.read_bytes = demo->arena.bytes};
    for (int i = 0; i < TURNS; i++) {
        bench_limit_seconds(&demo->arena, &forget, demo->threads);
        const double begin = bench_now();
        call(demo->ctx, args);
        run[i] = bench_now() - begin;
        bench_limit_seconds(&demo->arena, &forget, demo->threads);
        bound[i] = bench_limit_seconds(&demo->arena, limit, demo->threads);
    }
    step->seconds = bench_median(run, TURNS);
    step->share = bytes / step->seconds / (bench_work_bytes(limit) / bench_median(bound, TURNS));
    return step;
}

void demo_tell(struct demo_step *step, const char *check, bool good)
{
    step->good = step->good && good;
    printf("   %-13s %s\n", step->op, step->what);
    printf("   %-13s %s, %.1f MB moved, %.1f GB/s, %.0f%% of a plain %s\n", "",
           bench_time(step->seconds).text, step->bytes * 1e-6, step->bytes / step->seconds * 1e-9,
           100 * step->share, step->limit);
    printf("   %-13s %s %s\n\n", "", step->good ? "ok:" : "WRONG: it is not so that", check);
    fflush(stdout);
}

/* ---- The router ---------------------------------------------------------------------------------------- */

/* The k best of one row of logits, best first. */
static void choose(const float *logits, int32_t chosen[DEMO_K])
{
    for (int j = 0; j < DEMO_K; j++) {
        chosen[j] = -1;
        for (int32_t e = 0; e < DEMO_EXPERTS; e++) {
            bool free_to_take = true;
            for (int i = 0; i < j; i++)
                free_to_take = free_to_take && chosen[i] != e;
            if (free_to_take && (chosen[j] < 0 || logits[e] > logits[chosen[j]]))
                chosen[j] = e;
        }
    }
}

static bool route(struct demo *demo)
{
    demo->map = bench_alloc((size_t)DEMO_TOKENS * DEMO_EXPERTS, sizeof *demo->map);
    demo->weights = bench_alloc((size_t)DEMO_TOKENS * DEMO_EXPERTS, sizeof *demo->weights);
    demo->first = bench_alloc(DEMO_TOKENS, sizeof *demo->first);
    if (!demo->map || !demo->weights || !demo->first)
        return false;
    uint64_t seed = 20;
    float popularity[DEMO_EXPERTS];
    for (int e = 0; e < DEMO_EXPERTS; e++)
        popularity[e] = (float)(0.25 * bench_normal(&seed));
    for (int64_t t = 0; t < DEMO_TOKENS; t++) {
        float logits[DEMO_EXPERTS];
        int32_t chosen[DEMO_K];
        double sum = 0;
        for (int e = 0; e < DEMO_EXPERTS; e++)
            logits[e] = (float)bench_normal(&seed) + popularity[e];
        choose(logits, chosen);
        for (int j = 0; j < DEMO_K; j++)
            sum += exp((double)logits[chosen[j]]);
        for (int j = 0; j < DEMO_K; j++) {
            demo->map[t * DEMO_EXPERTS + chosen[j]] = 1;
            demo->weights[t * DEMO_EXPERTS + chosen[j]] = (float)(exp((double)logits[chosen[j]]) / sum);
            demo->load[chosen[j]]++;
        }
        demo->first[t] = chosen[0];
    }
    int64_t most = 0, least = DEMO_TOKENS;
    for (int e = 0; e < DEMO_EXPERTS; e++) {
        most = demo->load[e] > most ? demo->load[e] : most;
        least = demo->load[e] < least ? demo->load[e] : least;
    }
    printf("   %-13s %d tokens choose %d of %d experts each; the busiest expert gets %d of them, the idlest "
           "%d\n\n",
           "(router)", DEMO_TOKENS, DEMO_K, DEMO_EXPERTS, (int)most, (int)least);
    return true;
}

/* ---- The walk ------------------------------------------------------------------------------------------ */

static int walk(struct demo *demo, const char *path)
{
    printf("switchyard %s: one decode step of a mixture-of-experts model, kernels %s, %d thread%s\n\n",
           sy_version(), sy_ctx_isa(demo->ctx), demo->threads, demo->threads == 1 ? "" : "s");
    if (!route(demo) || !demo_permute(demo) || !demo_dispatch(demo) || !demo_gather(demo) ||
        !demo_sample(demo))
        return plain_error("demo: not enough memory");
    bool good = demo->n_steps == DEMO_STEPS;
    for (int i = 0; i < demo->n_steps; i++)
        good = good && demo->steps[i].good;
    if (!demo_page(demo, path))
        return plain_error("%s: cannot be written", path);
    printf("%s Open %s to see it.\n", good ? "Every result was checked and is right." : "A RESULT IS WRONG.",
           path);
    return good ? EXIT_DONE : EXIT_REFUSED;
}

int command_demo(struct common *common, struct arg_list *list)
{
    const char *path = NULL;
    for (struct arg arg = arg_next(list); arg.kind != ARG_END; arg = arg_next(list)) {
        int code = EXIT_DONE;
        if (arg.kind == ARG_WORD)
            return usage_error("demo", "demo takes no word %s", arg.text);
        if (arg_is(&arg, "out")) {
            if (path)
                return usage_error("demo", "--out is given twice");
            path = arg_value(list, &arg);
            if (!path)
                return usage_error("demo", "--out needs a value");
        } else if (!common_option(common, list, &arg, &code)) {
            return usage_error("demo", "demo has no option --%.*s", arg.length, arg.text);
        }
        if (code != EXIT_DONE)
            return code;
    }
    struct demo *const demo = calloc(1, sizeof *demo);
    if (demo)
        demo->ctx = common_context(common);
    int code = EXIT_USAGE;
    if (demo && demo->ctx) {
        demo->threads = sy_ctx_threads(demo->ctx);
        struct bench_limits limits;
        code = bench_limits(&demo->arena, demo->threads, true, &limits)
                   ? walk(demo, path ? path : "demo.html")
                   : plain_error("demo: not enough memory");
        bench_arena_free(&demo->arena);
        sy_ctx_destroy(demo->ctx);
        free(demo->map);
        free(demo->weights);
        free(demo->first);
    }
    free(demo);
    return code;
}
