/*
 * switchyard demo: one decode step of a mixture-of-experts model at real shapes, explained line by line. Router,
 * experts and vocabulary are plain products with random weights; what moves and picks the tokens are the operators.
 * Ends with a page to look at.
 */
#include "demo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/device.h"

enum { BAR = 20 };

/* ---- Shared by the steps ---- */

void *demo_take(struct demo *demo, size_t count, size_t bytes)
{
    void *const data = demo->n_buffers < DEMO_BUFFERS ? bench_alloc(count, bytes) : NULL;
    if (data)
        demo->buffers[demo->n_buffers++] = data;
    else
        demo->no_memory = true;
    return data;
}

struct demo_step *demo_begin(struct demo *demo, const char *op)
{
    struct demo_step *const step = &demo->steps[demo->n_steps++];
    step->op = op;
    step->good = true;
    return step;
}

static void add_turn(struct demo_step *step, const struct bench_work *limit, double run, double bound)
{
    step->seconds = step->seconds > 0 ? fmin(step->seconds, run) : run;
    step->bound = step->bound > 0 ? fmin(step->bound, bound) : bound;
    step->share = step->bytes / step->seconds / (bench_work_bytes(limit) / step->bound);
}

bool demo_share_holds(const struct demo_step *step)
{
    return step->share <= DEMO_MOST_SHARE;
}

struct bench_text demo_limit_time(const struct demo_step *step)
{
    return bench_time(step->seconds * step->share);
}

/* ---- On a device ---- */

/* The tensors of a step are copied there and back, so that all else stays as it is. The call is a CUDA graph of its own, timed on
   the device with the caches cold, as is the limit beside it. */

static const size_t arena_bytes = (size_t)128 << 20; /* of each, more than the caches hold */

static bool open_device(struct demo *demo, const struct common *common)
{
    demo->device.device = common->device;
    if (!bench_device_open(&demo->device, demo->ctx, common))
        return false;
    for (int i = 0; i < 2 && demo->device.tools; i++)
        if (sy_device_alloc(demo->ctx, arena_bytes, &demo->there[i]) != SY_OK) {
            plain_error("demo: %s", sy_ctx_error(demo->ctx));
            return false;
        }
    return true;
}

static void close_device(struct demo *demo)
{
    sy_device_free(demo->ctx, demo->there[0]);
    sy_device_free(demo->ctx, demo->there[1]);
    bench_device_close(&demo->device);
}

static bool is_there(const struct demo *demo, const char *op)
{
    return demo->device.tools && !sy_op_find(op)->mesh && device_has(demo->device.tools, op);
}

/* Records the call, which has been made once. */
static sy_status record(struct demo *demo, const sy_op_info *op, const void *args, char *text, size_t bytes)
{
    const struct bench_device *const d = &demo->device;
    void *stream = NULL;
    sy_status status = d->tools->record(d->timer, &stream, text, bytes);
    if (status != SY_OK)
        return status;
    sy_ctx_set_stream(demo->ctx, stream);
    status = sy_call(demo->ctx, op, args, op->args_bytes);
    if (status != SY_OK)
        snprintf(text, bytes, "%s", sy_ctx_error(demo->ctx));
    sy_ctx_set_stream(demo->ctx, NULL);
    const sy_status finished = d->tools->finish(d->timer, text, status == SY_OK ? bytes : 0);
    return status == SY_OK ? finished : status;
}

/* Adds the seconds of one limit; none for no bytes. */
static sy_status add_limit(const struct demo *demo, enum sy_cuda_limit limit, size_t n, double *sum,
                           char *text, size_t bytes)
{
    const size_t whole = (n < arena_bytes ? n + 15 : arena_bytes) / 16 * 16;
    double seconds = 0;
    if (n == 0)
        return SY_OK;
    const sy_status status = demo->device.tools->limit(demo->device.timer, limit, demo->there[0],
                                                       demo->there[1], whole, &seconds, text, bytes);
    *sum += seconds;
    return status;
}

/* One turn: the call and its limit, each after a fill of the whole arena, which evicts the caches. */
static sy_status time_turn(const struct demo *demo, const struct bench_work *limit, double *run,
                           double *bound, char *text, size_t bytes)
{
    const struct bench_device *const d = &demo->device;
    double unused = 0;
    sy_status status = add_limit(demo, SY_CUDA_FILL, arena_bytes, &unused, text, bytes);
    if (status == SY_OK)
        status = d->tools->replay(d->timer, run, text, bytes);
    if (status == SY_OK)
        status = add_limit(demo, SY_CUDA_FILL, arena_bytes, &unused, text, bytes);
    *bound = 0;
    if (status == SY_OK)
        status = add_limit(demo, SY_CUDA_COPY, limit->copy_bytes, bound, text, bytes);
    if (status == SY_OK)
        status = add_limit(demo, SY_CUDA_FILL, limit->fill_bytes, bound, text, bytes);
    if (status == SY_OK)
        status = add_limit(demo, SY_CUDA_READ, limit->read_bytes, bound, text, bytes);
    return status;
}

static void measure_there(struct demo *demo, struct demo_step *step, const void *args,
                          const struct bench_work *limit)
{
    const sy_op_info *const op = sy_op_find(step->op);
    _Alignas(64) unsigned char moved[1024];
    struct device_tensors tensors;
    char text[256] = "";
    memcpy(moved, args, op->args_bytes);
    sy_status status = device_send(demo->ctx, demo->device.device, op, moved, 1, &tensors);
    if (status == SY_OK)
        status = sy_call(demo->ctx, op, moved, op->args_bytes);
    if (status == SY_OK)
        status = sy_ctx_sync(demo->ctx);
    if (status != SY_OK)
        snprintf(text, sizeof text, "%s", sy_ctx_error(demo->ctx));
    if (status == SY_OK)
        status = record(demo, op, moved, text, sizeof text);
    for (int round = 0; round < DEMO_ROUNDS && (round == 0 || !demo_share_holds(step)); round++)
        for (int i = 0; i < DEMO_TURNS && status == SY_OK; i++) {
            double run = 0, bound = 0;
            status = time_turn(demo, limit, &run, &bound, text, sizeof text);
            if (status == SY_OK)
                add_turn(step, limit, run, bound);
        }
    status = device_return(demo->ctx, &tensors, status);
    step->good = status == SY_OK;
    if (!step->good)
        fprintf(stderr, "switchyard: demo: %s: %s\n", step->op, text);
}

/* ---- A step ---- */

static sy_status call(const struct demo *demo, const sy_op_info *op, const void *args)
{
    return sy_call_mesh(demo->ctx, demo->comm, op, args, op->args_bytes);
}

struct demo_step *demo_measure(struct demo *demo, const char *op, const void *args, double bytes,
                               const struct bench_work *limit)
{
    const sy_op_info *const info = sy_op_find(op);
    struct demo_step *const step = demo_begin(demo, op);
    step->bytes = bytes;
    step->limit = limit->read_bytes > 0 ? "read" : limit->fill_bytes > 0 ? "copy and fill" : "copy";
    step->there = is_there(demo, op);
    if (step->there) {
        measure_there(demo, step, args, limit);
        return step;
    }
    step->good = call(demo, info, args) == SY_OK; /* also warms the workspace and touches the outputs */
    if (!step->good) {
        fprintf(stderr, "switchyard: demo: %s\n", sy_ctx_error(demo->ctx));
        return step;
    }
    /* Reading the whole arena evicts the caches: both sides start cold. */
    const struct bench_work forget = {.read_bytes = demo->arena.bytes};
    for (int round = 0; round < DEMO_ROUNDS && (round == 0 || !demo_share_holds(step)); round++)
        for (int i = 0; i < DEMO_TURNS; i++) {
            bench_limit_seconds(&demo->arena, &forget, demo->ctx);
            const double begin = bench_now();
            call(demo, info, args);
            const double run = bench_now() - begin;
            bench_limit_seconds(&demo->arena, &forget, demo->ctx);
            add_turn(step, limit, run, bench_limit_seconds(&demo->arena, limit, demo->ctx));
        }
    return step;
}

/* The line with the time of a step and its share of the limit. */
static void print_time(const struct demo_step *step)
{
    char bar[BAR + 1] = "";
    const struct bench_text time = bench_time(step->seconds), size = demo_size(step->bytes);
    for (int i = 0; i < BAR; i++)
        bar[i] = i < BAR * step->share + 0.5 ? '#' : '.';
    if (!step->limit)
        printf("%23s%s, %.3g GFLOP/s: no operator, plain C in its place\n", "", time.text,
               step->bytes / step->seconds * 1e-9);
    else if (demo_share_holds(step))
        printf("%23s%-7s [%s] %.0f%% of a plain %s of its %s%s\n", "", time.text, bar, 100 * step->share,
               step->limit, size.text, step->there ? ", on the device" : "");
    else
        printf("%23s%-7s a plain %s of its %s took %s%s: is the machine busy?\n", "", time.text, step->limit,
               size.text, demo_limit_time(step).text, step->there ? " on the device" : "");
}

void demo_print(struct demo *demo, struct demo_step *step, const char *check, bool good)
{
    snprintf(step->check, sizeof step->check, "%s", check);
    step->good = step->good && good;
    printf("%d  %-19s %s\n", demo->n_steps, step->op, step->what);
    if (step->detail[0] != 0)
        printf("%23s%s\n", "", step->detail);
    if (step->sketch[0] != 0)
        printf("%23s%s\n", "", step->sketch);
    print_time(step);
    printf("%23s%s %s\n\n", "", step->good ? "ok:" : "WRONG: it is not so that", check);
    fflush(stdout);
}

struct bench_text demo_size(double bytes)
{
    struct bench_text text;
    const bool small = bytes < 1e6;
    snprintf(text.text, sizeof text.text, "%.3g %s", bytes * (small ? 1e-3 : 1e-6), small ? "KB" : "MB");
    return text;
}

bool demo_all_good(const struct demo *demo)
{
    bool good = demo->n_steps == DEMO_STEPS;
    for (int i = 0; i < demo->n_steps; i++)
        good = good && demo->steps[i].good;
    return good;
}

void demo_fill(float *values, size_t n, float size, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        values[i] = ((float)(random_bits(&seed) >> 40) * 0x1p-23f - 1) * size;
}

/* ---- The walk ---- */

bool demo_busy(const struct demo *demo)
{
    return demo->others >= 0.1;
}

/* Seconds of the operators, and of the plain C between them. */
static void print_sum(const struct demo *demo)
{
    double operators = 0, plain = 0;
    for (int i = 0; i < demo->n_steps; i++)
        *(demo->steps[i].limit ? &operators : &plain) += demo->steps[i].seconds;
    char ours[24];
    snprintf(ours, sizeof ours, "%s", bench_time(operators).text);
    printf("   The operators took %s together, the experts %s.\n", ours, bench_time(plain).text);
}

/* The steps one after the other, until memory is missing or a check fails. */
static bool walk(struct demo *demo)
{
    static void (*const steps[DEMO_STEPS])(struct demo * demo) = {
        demo_route,   demo_permute, demo_dispatch, demo_experts, demo_unpermute,
        demo_combine, demo_scatter, demo_gather,   demo_sample,
    };
    printf(
        "switchyard %s: one decode step of a mixture-of-experts model\n"
        "   %d sequences, one token each; hidden size %d, %d experts, %d for each token (OLMoE's "
        "shapes)\n"
        "   kernels %s, %d thread%s; weights are random, every result is checked, a bar is the share of the\n"
        "   speed that a plain copy or read of the same bytes has on this machine, right now\n",
        sy_version(), DEMO_TOKENS, DEMO_HIDDEN, DEMO_EXPERTS, DEMO_K, sy_ctx_isa(demo->ctx), demo->threads,
        demo->threads == 1 ? "" : "s");
    if (demo->device.tools) {
        printf("   operators on cuda:%d, where it has them: ", demo->device.device.device_id);
        device_print(&demo->device.info);
        printf("\n");
    }
    printf("\n");
    fflush(stdout);
    bool good = true;
    const struct bench_usage before = bench_usage();
    for (int i = 0; i < DEMO_STEPS && good && !demo->no_memory; i++) {
        steps[i](demo);
        good = demo->n_steps > 0 && demo->steps[demo->n_steps - 1].good;
    }
    demo->others = bench_others(&before);
    return !demo->no_memory;
}

/* The page is opened before the steps, so that an error is reported without waiting. */
static int show(struct demo *demo, const char *path)
{
    FILE *const page = fopen(path, "w");
    if (!page)
        return plain_error("%s: cannot be written", path);
    if (!walk(demo)) {
        fclose(page);
        remove(path);
        return plain_error("demo: not enough memory");
    }
    demo_page(demo, page);
    const bool bad = ferror(page) != 0;
    if (fclose(page) != 0 || bad)
        return plain_error("%s: cannot be written", path);
    print_sum(demo);
    if (demo_busy(demo))
        printf("   Other programs used %.0f%% of the CPUs meanwhile: on a free machine times are shorter.\n",
               100 * demo->others);
    printf("   %s Open ",
           demo_all_good(demo) ? "Every result was checked and is right." : "A RESULT IS WRONG.");
    text_print(stdout, path);
    printf(" to see it.\n");
    return demo_all_good(demo) ? EXIT_DONE : EXIT_REJECTED;
}

static int run(struct common *common, const char *path)
{
    struct demo *const demo = calloc(1, sizeof *demo);
    if (!demo)
        return plain_error("demo: not enough memory");
    int code = EXIT_USAGE;
    demo->ctx = common_context(common);
    if (demo->ctx) {
        struct bench_limits limits;
        demo->threads = sy_ctx_threads(demo->ctx);
        demo->machine = bench_machine();
        if (!bench_limits(&demo->arena, demo->ctx, true, &limits))
            code = plain_error("demo: not enough memory");
        else if (open_device(demo, common))
            code = show(demo, path);
        close_device(demo);
    }
    for (int i = 0; i < demo->n_buffers; i++)
        free(demo->buffers[i]);
    bench_arena_free(&demo->arena);
    sy_routing_destroy(demo->routing);
    sy_comm_destroy(demo->comm);
    sy_ctx_destroy(demo->ctx);
    free(demo);
    return code;
}

int demo_options(struct common *common, struct arg_list *list, const char **path)
{
    for (struct arg arg = arg_next(list); arg.kind != ARG_END; arg = arg_next(list)) {
        int code = EXIT_DONE;
        if (arg.kind == ARG_WORD)
            return usage_error("demo", "demo takes no word %s", arg.text);
        if (arg_is(&arg, "out")) {
            if (*path)
                return usage_error("demo", "--out is given twice");
            *path = arg_value(list, &arg);
            if (!*path)
                return usage_error("demo", "--out needs a value");
        } else if (!common_option(common, list, &arg, &code)) {
            return usage_error("demo", "demo has no option --%.*s", arg.length, arg.text);
        }
        if (code != EXIT_DONE)
            return code;
    }
    return EXIT_DONE;
}

int command_demo(struct common *common, struct arg_list *list)
{
    const char *path = NULL;
    if (common->team)
        return common->team->demo(common, list);
    const int code = demo_options(common, list, &path);
    return code == EXIT_DONE ? run(common, path ? path : "demo.html") : code;
}
