/*
 * The path every call takes: copy the argument struct, check, find scratch, run on the backend, report.
 */
#include "ops/call.h"
#include "cuda/cuda.h"

sy_status syi_check_tail(struct syi_call *call, const char *name, const void *data, size_t bytes,
                         size_t known)
{
    const size_t at = syi_unknown_field(data, bytes, known);
    if (at >= bytes)
        return SY_OK;
    return syi_fail(call->ctx, SY_ERR_UNSUPPORTED, name,
                    "sets a field at byte %zu, want at most %zu bytes: the caller's header is newer", at,
                    known);
}

/* Copies what the caller's header knew of the struct. Fields it did not know are zero, the default. */
sy_status syi_copy_args(struct syi_call *call, const void *args, size_t args_bytes)
{
    if (args == NULL)
        return syi_fail(call->ctx, SY_ERR_NULL, "args", "is NULL, want an argument struct");
    const size_t known = call->op->info.args_bytes;
    if (args_bytes < known)
        memset((unsigned char *)&call->args + args_bytes, 0, known - args_bytes);
    memcpy(&call->args, args, args_bytes < known ? args_bytes : known);
    if (args_bytes > known)
        SYI_TRY(syi_check_tail(call, "args", args, args_bytes, known));
    for (int i = 0; i < call->op->info.n_tensors; i++) {
        const sy_field_info *rule = &call->op->info.fields[i];
        call->tail[i] = rule->flags & SY_FIELD_PER_ROW ? 0 : 1;
        if (syi_looked_at(call, i))
            memcpy(&call->tensor[i], (const unsigned char *)&call->args + rule->offset,
                   sizeof call->tensor[i]);
    }
    return SY_OK;
}

sy_status syi_check_layout(struct syi_call *call)
{
    const bool usual = syi_layout_as_usual(call);
    sy_status st = usual ? SY_OK : syi_check_strides(call);
    if (st == SY_OK && !usual)
        st = syi_check_devices(call);
    return st == SY_OK && !call->query ? syi_check_alias(call) : st;
}

/* Bytes for planes that do not fit into the call. The check fills them in, so they are in CPU memory. */
static size_t planes_bytes(const struct syi_call *call)
{
    const size_t n = (size_t)call->sets.n + 1;
    return n > SYI_FEW_PLANES ? syi_align(n * sizeof *call->planes) : 0;
}

static size_t backend_bytes(const struct syi_call *call)
{
    return call->backend->op[call->op->info.number].workspace(call->ctx, &call->plan);
}

sy_status syi_take_scratch(struct syi_call *call)
{
    if (call->query || call->placed)
        return SY_OK;
    const size_t planes = planes_bytes(call), own = backend_bytes(call);
    struct syi_scratch scratch = {NULL, NULL};
    const bool lent =
        call->backend == syi_host_backend ? call->ctx->workspace_lent : call->ctx->device_workspace != NULL;
    sy_status st = lent && (planes > 0 || own > 0) ? syi_check_workspace(call) : SY_OK;
    if (st == SY_OK)
        st = call->backend->scratch(call->ctx, planes, own, &scratch);
    if (st != SY_OK && call->ctx->error[0] == '\0')
        return syi_fail(call->ctx, st, "scratch memory", "%s", call->ctx->backend_error);
    if (st != SY_OK)
        return st;
    if (planes > 0)
        call->planes = scratch.host;
    call->scratch = scratch.own;
    call->placed = true;
    return SY_OK;
}

static sy_status validate(struct syi_call *call, const void *args, size_t args_bytes)
{
    syi_clear_fault(call->ctx, call->op->info.name);
    SYI_TRY(syi_copy_args(call, args, args_bytes));
    SYI_TRY(call->op->check(call));
    return syi_take_scratch(call);
}

static sy_status run(struct syi_call *call)
{
    sy_ctx *const ctx = call->ctx;
    const bool on_device =
        (ctx->trace != NULL || ctx->synchronous) && call->backend == syi_device_backend(ctx);
    if (on_device && ctx->trace != NULL)
        syi_device_time_begin(ctx);
    const sy_status st = call->backend->op[call->op->info.number].run(ctx, &call->plan, call->scratch);
    if (on_device && ctx->trace != NULL && st == SY_OK)
        call->device_nanoseconds = syi_device_time_end(ctx);
    if (st == SY_OK)
        return on_device && ctx->synchronous ? syi_device_wait(ctx) : SY_OK;
    if (ctx->found.bad == SYI_GOOD)
        return syi_fail_backend(ctx, st, call->backend->name);
    return syi_describe_found(ctx, &call->op->info, st);
}

/* Its lists are not on the stack below the operator. */
static __attribute__((noinline)) void trace(const struct syi_call *call, sy_status status, uint64_t start)
{
    const char *names[SYI_MAX_TENSORS];
    const DLTensor *tensors[SYI_MAX_TENSORS];
    int n = 0;
    for (int i = 0; i < call->op->info.n_tensors; i++)
        if (call->tensor[i] != NULL) {
            names[n] = call->op->info.fields[i].name;
            tensors[n++] = call->tensor[i];
        }
    sy_trace report = {.op = call->op->info.name,
                       .status = status,
                       .n_tensors = n,
                       .names = names,
                       .tensors = tensors,
                       .bytes = status == SY_OK ? call->bytes : 0,
                       .nanoseconds = syi_now() - start,
                       .device_nanoseconds = call->device_nanoseconds};
    call->backend->describe(call->ctx, &report);
    call->ctx->trace(call->ctx->trace_user, &report);
}

static inline void begin(struct syi_call *call, sy_ctx *ctx, const struct syi_op *op)
{
    memset(call, 0, offsetof(struct syi_call, plan) + op->plan_bytes);
    call->ctx = ctx;
    call->op = op;
    call->backend = syi_host_backend;
}

sy_status syi_run(sy_ctx *ctx, const struct syi_op *op, const void *args, size_t args_bytes)
{
    if (ctx == NULL)
        return SY_ERR_NULL;
    struct syi_kv_plane few[SYI_FEW_PLANES];
    struct syi_call call;
    begin(&call, ctx, op);
    call.planes = few;
    const uint64_t start = ctx->trace != NULL ? syi_now() : 0;
    sy_status st = syi_device_poll(ctx);
    if (st == SY_OK)
        st = validate(&call, args, args_bytes);
    if (st == SY_OK)
        st = run(&call);
    if (ctx->trace != NULL)
        trace(&call, st, start);
    return st;
}

sy_status syi_infer(sy_ctx *ctx, const struct syi_op *op, const void *args, size_t args_bytes,
                    sy_query *query, sy_shape *shapes)
{
    struct syi_call call;
    begin(&call, ctx, op);
    call.query = true;
    call.shapes = shapes;
    SYI_TRY(validate(&call, args, args_bytes));
    *query = (sy_query){call.rows, call.slots, syi_size_add(planes_bytes(&call), backend_bytes(&call))};
    return SY_OK;
}

sy_status syi_answer(sy_ctx *ctx, const sy_query *answer, sy_query *query, size_t query_bytes)
{
    if (query == NULL)
        return syi_fail(ctx, SY_ERR_NULL, "query", "is NULL, want a struct for the answer");
    memset(query, 0, query_bytes);
    memcpy(query, answer, query_bytes < sizeof *answer ? query_bytes : sizeof *answer);
    return SY_OK;
}

sy_status syi_query(sy_ctx *ctx, const struct syi_op *op, const void *args, size_t args_bytes,
                    sy_query *query, size_t query_bytes)
{
    if (ctx == NULL)
        return SY_ERR_NULL;
    sy_query answer;
    SYI_TRY(syi_infer(ctx, op, args, args_bytes, &answer, NULL));
    return syi_answer(ctx, &answer, query, query_bytes);
}
