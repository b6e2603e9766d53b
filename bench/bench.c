/*
 * switchyard bench: selects the cases and runs them one after the other.
 */
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "bench_list.h" /* BENCH_OPS: made by the build of every BENCH_OP */
#include "cli/cli.h"
#include "described.h"

#define DECLARE(op) extern const struct bench_op bench_##op;
BENCH_OPS(DECLARE)
#undef DECLARE

#define ADDRESS(op) &bench_##op,
static const struct bench_op *const bench_ops[] = {BENCH_OPS(ADDRESS)};
#undef ADDRESS

enum { N_OPS = sizeof bench_ops / sizeof *bench_ops, MOST_TEXTS = 16 };

/* Options of the command line. */
struct request {
    const struct bench_op *ops[N_OPS]; /* in the order they were named */
    int n_ops;
    const char *texts[MOST_TEXTS]; /* of --shape */
    int n_texts;
    bool list;
};

/* ---- Cases ---- */

static bool holds(const char *shape, const char *text)
{
    const size_t length = strlen(text);
    for (; strlen(shape) >= length; shape++) {
        if (strncasecmp(shape, text, length) == 0)
            return true;
        if (*shape == '\0')
            break;
    }
    return false;
}

static bool is_wanted(const struct request *request, const char *shape)
{
    bool wanted = request->n_texts == 0;
    for (int i = 0; i < request->n_texts && !wanted; i++)
        wanted = holds(shape, request->texts[i]);
    return wanted;
}

/* Whether the device has cases of its own for it. */
static bool has_own(const struct bench *bench, const struct bench_op *op)
{
    return bench->device.device.device_type == kDLCUDA && op->n_there > 0 && !bench->quick;
}

const char *bench_shape(const struct bench *bench, const struct bench_op *op, int index)
{
    return has_own(bench, op) ? op->there[index] : op->shapes[index];
}

/* Calls `visit` for every selected case; returns their number. */
static int each_case(struct bench *bench, const struct request *request,
                     void (*visit)(struct bench *bench, const struct bench_op *op, int index,
                                   const char *shape))
{
    int n = 0;
    for (int i = 0; i < request->n_ops; i++) {
        const struct bench_op *const op = request->ops[i];
        const int begin = bench->quick ? op->n_full : 0,
                  end = has_own(bench, op) ? op->n_there : op->n_full + (bench->quick ? op->n_quick : 0);
        for (int index = begin; index < end; index++) {
            const char *const shape = bench_shape(bench, op, index);
            if (!is_wanted(request, shape))
                continue;
            visit(bench, op, index, shape);
            n++;
        }
    }
    return n;
}

/* Columns are as wide as their longest entry. */
static void size_columns(struct bench *bench, const struct bench_op *op, int index, const char *shape)
{
    const int name_width = (int)strlen(op->name), shape_width = (int)strlen(shape);
    (void)index;
    bench->op_width = name_width > bench->op_width ? name_width : bench->op_width;
    bench->shape_width = shape_width > bench->shape_width ? shape_width : bench->shape_width;
}

static void list_case(struct bench *bench, const struct bench_op *op, int index, const char *shape)
{
    (void)index;
    printf("%-*s  %s\n", bench->op_width, op->name, shape);
}

static void run_case(struct bench *bench, const struct bench_op *op, int index, const char *shape)
{
    report_progress(bench, "[%d/%d] %s %s ...", bench->cases + 1, bench->total, op->name, shape);
    bench->op = op;
    bench->index = index;
    bench_described(bench, op, shape);
}

static void cliff_case(struct bench *bench, const struct bench_op *op, int index, const char *shape)
{
    bench->index = index;
    if (bench->chosen-- == 0)
        bench_cliff(bench, op, shape);
}

static void run_neighbours(struct bench *bench, const struct request *request)
{
    for (int64_t i = 0; i < bench->neighbours; i++) {
        bench->chosen = (int)(random_bits(&bench->seed) % (uint64_t)bench->total);
        each_case(bench, request, cliff_case);
    }
    printf("\n%d cliffs\n", bench->cliffs);
}

static void why_case(struct bench *bench, const struct bench_op *op, int index, const char *shape)
{
    (void)index;
    bench_described(bench, op, shape);
}

/* What ran of what the call was offered. */
static void print_taken(void *user, const sy_trace *trace)
{
    (void)user;
    for (int i = 0; i < trace->n_choices; i++)
        if (!trace->choices[i].why_not)
            printf(" %s", trace->choices[i].name);
}

/* ---- Command line ---- */

/* "kv_gather" is one operator, "kv" and "all_to_all" are all whose names begin so. */
static bool is_named(const struct bench_op *op, const char *name, bool family)
{
    const size_t length = strlen(name);
    return strncmp(op->name, name, length) == 0 && op->name[length] == (family ? '_' : '\0');
}

static int take_op(struct request *request, const char *name)
{
    int found = 0;
    for (int family = 0; family < 2 && found == 0; family++)
        for (int i = 0; i < N_OPS; i++) {
            if (!is_named(bench_ops[i], name, family))
                continue;
            for (int j = 0; j < request->n_ops; j++)
                if (request->ops[j] == bench_ops[i])
                    return usage_error("bench", "%s is named twice", bench_ops[i]->name);
            request->ops[request->n_ops++] = bench_ops[i];
            found++;
        }
    return found > 0 ? EXIT_DONE : usage_error("bench", "there is no benchmark of %s", name);
}

static int take_text(struct request *request, const char *text)
{
    if (!text || text[0] == '\0')
        return usage_error("bench", "--shape needs a text");
    if (request->n_texts == MOST_TEXTS)
        return usage_error("bench", "--shape is given more than %d times", MOST_TEXTS);
    request->texts[request->n_texts++] = text;
    return EXIT_DONE;
}

static int take_option(struct bench *bench, struct request *request, struct common *common,
                       struct arg_list *list, const struct arg *arg)
{
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {{"quick", &bench->quick}, {"cold", &bench->cold},   {"warm", &bench->warm},
                 {"peers", &bench->peers}, {"check", &bench->check}, {"list", &request->list},
                 {"why", &bench->why}};
    int code = EXIT_DONE;
    if (arg_is(arg, "shape"))
        return take_text(request, arg_value(list, arg));
    if (arg_is(arg, "json") && !arg->value) {
        bench->format = &report_json;
        return EXIT_DONE;
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (arg_is(arg, flags[i].name) && !arg->value) {
            *flags[i].flag = true;
            return EXIT_DONE;
        }
    if (arg_is(arg, "cliffs") || arg_is(arg, "seed")) {
        const char *const text = arg_value(list, arg);
        int64_t *const to = arg_is(arg, "cliffs") ? &bench->neighbours : (int64_t *)&bench->seed;
        if (!text || !parse_int64(text, to) || *to < 1)
            return usage_error("bench", "--%.*s needs a positive number", arg->length, arg->text);
        return EXIT_DONE;
    }
    if (!common_option(common, list, arg, &code))
        return usage_error("bench", "bench has no option --%.*s", arg->length, arg->text);
    return code;
}

/* The command line, quoted so that it can be pasted into a shell. */
static void remember_command(struct bench *bench, const struct arg_list *list)
{
    char *const text = bench->command;
    size_t used = (size_t)snprintf(text, sizeof bench->command, "switchyard");
    for (int i = 1; i < list->count && used < sizeof bench->command; i++) {
        const char *const word = list->texts[i];
        const bool plain = word[strcspn(word, " \t\n'\"\\$&|;<>()[]{}*?!~#`")] == '\0';
        used += (size_t)snprintf(text + used, sizeof bench->command - used, plain ? " %s" : " '%s'", word);
    }
}

/* A --shape text that matches no case is a mistake, also if others match. */
static int check_texts(struct bench *bench, const struct request *request)
{
    for (int i = 0; i < request->n_texts; i++) {
        struct request alone = *request;
        alone.texts[0] = request->texts[i];
        alone.n_texts = 1;
        if (each_case(bench, &alone, size_columns) == 0)
            return usage_error("bench", "no case has a shape with %s; switchyard bench --list%s shows them",
                               request->texts[i], bench->quick ? " --quick" : "");
    }
    return EXIT_DONE;
}

static int run_all(struct bench *bench, const struct request *request)
{
    bench->threads = sy_ctx_threads(bench->ctx);
    bench->machine = bench_machine();
    if (bench->device.tools && !bench->check && !bench_device_limits(bench))
        return EXIT_USAGE;
    bench->records = calloc(2 * (size_t)bench->total, sizeof *bench->records); /* cold and warm */
    if (!bench->records || (!bench->device.tools && !bench->check &&
                            !bench_limits(&bench->arena, bench->ctx, bench->quick, &bench->limits)))
        return plain_error("bench: not enough memory");
    bench->format->head(bench);
    if (bench->neighbours > 0)
        run_neighbours(bench, request);
    else
        each_case(bench, request, run_case);
    bench_arena_free(&bench->arena); /* the peers need the memory too */
    if (bench->peers) {
        if (bench->format->peers)
            bench->format->peers(bench);
        for (int i = 0; i < request->n_ops; i++)
            peers_run(bench, request->ops[i]);
        if (bench->n_peers == 0 && bench->n_notes == 0)
            report_note(bench, "peers: there are none of these cases");
    }
    bench->format->end(bench);
    return bench->failures + bench->cliffs > 0 ? EXIT_REJECTED : EXIT_DONE;
}

int command_bench(struct common *common, struct arg_list *list)
{
    struct bench bench = {.op_width = (int)strlen("operator")};
    struct request request = {.n_ops = 0};
    int code = EXIT_DONE;
    if (common->team)
        return common->team->bench(common, list);
    remember_command(&bench, list);
    for (struct arg arg = arg_next(list); arg.kind != ARG_END && code == EXIT_DONE; arg = arg_next(list))
        code = arg.kind == ARG_WORD ? take_op(&request, arg.text)
                                    : take_option(&bench, &request, common, list, &arg);
    if (code != EXIT_DONE)
        return code;
    if (request.list && bench.format)
        return usage_error("bench", "--list does not go together with --json");
    if (bench.neighbours > 0 && (bench.format || bench.check || bench.warm || bench.peers))
        return usage_error("bench", "--cliffs does not go together with --json, --check, --warm or --peers");
    if (bench.check && (bench.cold || bench.warm || bench.peers))
        return usage_error("bench", "--check times nothing: no --cold, --warm or --peers");
    if (bench.why && common->device.device_type != kDLCUDA)
        return usage_error("bench", "--why needs --device cuda");
    if (bench.why)
        common->trace = print_taken;
    if (!bench.format)
        bench.format = &report_text;
    bench.device.device = common->device;
    bench.cold = bench.cold || !bench.warm;
    if (request.n_ops == 0) {
        memcpy(request.ops, bench_ops, sizeof request.ops);
        request.n_ops = N_OPS;
    }
    code = check_texts(&bench, &request);
    if (code != EXIT_DONE)
        return code;
    bench.total = each_case(&bench, &request, size_columns);
    if (request.list) {
        each_case(&bench, &request, list_case);
        return EXIT_DONE;
    }
    bench.ctx = common_context(common);
    if (!bench.ctx)
        return EXIT_USAGE;
    if (!bench_device_open(&bench.device, bench.ctx, common))
        code = EXIT_USAGE;
    else if (!bench.why)
        code = run_all(&bench, &request);
    else if (each_case(&bench, &request, why_case) > 0 && bench.failures > 0)
        code = EXIT_REJECTED;
    free(bench.records);
    bench_device_close(&bench.device);
    sy_ctx_destroy(bench.ctx);
    return code;
}
