/*
 * The demo's operators on a CUDA device: the step's tensors are copied there and back, so that all else of the demo stays as
 * it is. The call is a CUDA graph of its own, timed on the device with the caches cold, as is the limit beside it.
 */
#include "demo.h"

#include <string.h>

#include "cli/device.h"

static const size_t arena_bytes = (size_t)128 << 20; /* of each, more than the caches hold */

bool demo_open_device(struct demo *demo, const struct common *common)
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

void demo_close_device(struct demo *demo)
{
    sy_device_free(demo->ctx, demo->there[0]);
    sy_device_free(demo->ctx, demo->there[1]);
    bench_device_close(&demo->device);
}

bool demo_is_there(const struct demo *demo, const char *op)
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

void demo_measure_there(struct demo *demo, struct demo_step *step, const void *args,
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
                demo_add_turn(step, limit, run, bound);
        }
    status = device_return(demo->ctx, &tensors, status);
    step->good = status == SY_OK;
    if (!step->good)
        fprintf(stderr, "switchyard: demo: %s: %s\n", step->op, text);
}
