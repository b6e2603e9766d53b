/*
 * The texts of the library: status and fault names, the version, and the sentence and numbers of a failed
 * call.
 */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>

const char *sy_status_name(sy_status status)
{
#define NAME(name) [SY_ERR_##name] = "SY_ERR_" #name
    static const char *const names[] = {
        [SY_OK] = "SY_OK", NAME(NULL),        NAME(DTYPE), NAME(SHAPE),   NAME(STRIDE),   NAME(VALUE),
        NAME(OVERFLOW),    NAME(ALIAS),       NAME(INDEX), NAME(ROUTING), NAME(CAPACITY), NAME(STATE),
        NAME(DEVICE),      NAME(UNSUPPORTED), NAME(NOMEM), NAME(COMM),    NAME(MISMATCH), NAME(TIMEOUT)};
#undef NAME
    const size_t i = (size_t)status;
    return i < sizeof names / sizeof *names ? names[i] : "SY_ERR_UNKNOWN";
}

const char *sy_fault_name(sy_fault_code code)
{
#define NAME(name) [SY_FAULT_##name] = #name
    static const char *const names[] = {
        NAME(NONE),         NAME(NULL_POINTER), NAME(BAD_DTYPE),      NAME(BAD_RANK),    NAME(BAD_SHAPE),
        NAME(EMPTY),        NAME(BAD_VALUE),    NAME(BAD_BLOCK_SIZE), NAME(BAD_OPTION),  NAME(OVERFLOW),
        NAME(BAD_STRIDE),   NAME(BAD_DEVICE),   NAME(ALIAS),          NAME(NO_MEMORY),   NAME(UNSUPPORTED),
        NAME(LENGTH_RANGE), NAME(REQ_RANGE),    NAME(INDEX_RANGE),    NAME(TABLE_SHORT), NAME(BLOCK_RANGE),
        NAME(ROW_RANGE),    NAME(ROW_OVERFULL), NAME(SLOT_RANGE),     NAME(SLOT_COUNT),  NAME(DUPLICATE),
        NAME(INDEX_ORDER),  NAME(HAZARD)};
#undef NAME
    const size_t i = (size_t)code;
    return i < sizeof names / sizeof *names ? names[i] : "UNKNOWN";
}

#define TEXT_OF(x) #x
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *sy_version(void)
{
    return VERSION_TEXT(SY_VERSION_MAJOR, SY_VERSION_MINOR, SY_VERSION_PATCH);
}

int sy_results_version(void)
{
    return 4;
}

/* Of a fault that is none of contents; statuses that are not here have NONE. */
static const sy_fault_code code_of[SY_ERR_TIMEOUT + 1] = {
    [SY_ERR_NULL] = SY_FAULT_NULL_POINTER,
    [SY_ERR_DTYPE] = SY_FAULT_BAD_DTYPE,
    [SY_ERR_SHAPE] = SY_FAULT_BAD_SHAPE,
    [SY_ERR_STRIDE] = SY_FAULT_BAD_STRIDE,
    [SY_ERR_VALUE] = SY_FAULT_BAD_VALUE,
    [SY_ERR_OVERFLOW] = SY_FAULT_OVERFLOW,
    [SY_ERR_ALIAS] = SY_FAULT_ALIAS,
    [SY_ERR_DEVICE] = SY_FAULT_BAD_DEVICE,
    [SY_ERR_UNSUPPORTED] = SY_FAULT_UNSUPPORTED,
    [SY_ERR_NOMEM] = SY_FAULT_NO_MEMORY,
};

static void record(sy_ctx *ctx, const sy_fault *fault, const char *format, va_list values)
{
    ctx->fault = *fault;
    if (ctx->fault.code == SY_FAULT_NONE && (size_t)fault->status < sizeof code_of / sizeof *code_of)
        ctx->fault.code = code_of[fault->status];
    int n = snprintf(ctx->error, sizeof ctx->error, "%s: %s ", ctx->op, fault->argument);
    if (ctx->plane > 0)
        n = snprintf(ctx->error, sizeof ctx->error, "%s: %s of plane %lld ", ctx->op, fault->argument,
                     (long long)ctx->plane);
    if (ctx->device > 0)
        n = snprintf(ctx->error, sizeof ctx->error, "%s: %s of device %d ", ctx->op, fault->argument,
                     ctx->device - 1);
    const size_t used = n < 0 ? 0 : (size_t)n;
    if (used < sizeof ctx->error)
        vsnprintf(ctx->error + used, sizeof ctx->error - used, format, values);
}

sy_status syi_fail_at(sy_ctx *ctx, const sy_fault *fault, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    record(ctx, fault, format, values);
    va_end(values);
    return fault->status;
}

sy_status syi_fail_with(sy_ctx *ctx, sy_status status, sy_fault_code code, const char *argument,
                        int64_t value, int64_t limit, const char *format, ...)
{
    const sy_fault fault = {status, code, argument, -1, -1, value, limit};
    va_list values;
    va_start(values, format);
    record(ctx, &fault, format, values);
    va_end(values);
    return status;
}

sy_status syi_fail(sy_ctx *ctx, sy_status status, const char *argument, const char *format, ...)
{
    const sy_fault fault = {status, SY_FAULT_NONE, argument, -1, -1, 0, 0};
    va_list values;
    va_start(values, format);
    record(ctx, &fault, format, values);
    va_end(values);
    return status;
}

sy_status syi_fail_backend(sy_ctx *ctx, sy_status status, const char *argument)
{
    return syi_fail(ctx, status, argument, "%s", ctx->backend_error);
}

sy_status syi_reject(sy_ctx *ctx, enum syi_bad bad, int64_t batch, int64_t position, int64_t value,
                     int64_t limit)
{
#define STATUS(name, status, code, argument, text) [SYI_BAD_##name] = SY_ERR_##status,
    static const sy_status statuses[SYI_N_BAD] = {[SYI_GOOD] = SY_OK, SYI_CONTENT_FAULTS(STATUS)};
#undef STATUS
    ctx->found = syi_bad_at(bad, batch, position, value, limit);
    return statuses[bad];
}

void syi_clear_fault(sy_ctx *ctx, const char *op)
{
    ctx->op = op;
    ctx->found.bad = SYI_GOOD;
    ctx->plane = 0;
    ctx->device = 0;
    ctx->fault = (sy_fault){.argument = ""};
    ctx->error[0] = '\0';
}
