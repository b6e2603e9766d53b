/*
 * The texts of the library: status and fault names, the version, and the sentence and numbers of a failed
 * call.
 */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>

const char *sy_status_name(sy_status status)
{
    static const char *const names[] = {
        [SY_OK] = "SY_OK",
        [SY_ERR_NULL] = "SY_ERR_NULL",
        [SY_ERR_DTYPE] = "SY_ERR_DTYPE",
        [SY_ERR_SHAPE] = "SY_ERR_SHAPE",
        [SY_ERR_STRIDE] = "SY_ERR_STRIDE",
        [SY_ERR_VALUE] = "SY_ERR_VALUE",
        [SY_ERR_OVERFLOW] = "SY_ERR_OVERFLOW",
        [SY_ERR_ALIAS] = "SY_ERR_ALIAS",
        [SY_ERR_INDEX] = "SY_ERR_INDEX",
        [SY_ERR_ROUTING] = "SY_ERR_ROUTING",
        [SY_ERR_CAPACITY] = "SY_ERR_CAPACITY",
        [SY_ERR_STATE] = "SY_ERR_STATE",
        [SY_ERR_DEVICE] = "SY_ERR_DEVICE",
        [SY_ERR_UNSUPPORTED] = "SY_ERR_UNSUPPORTED",
        [SY_ERR_NOMEM] = "SY_ERR_NOMEM",
        [SY_ERR_COMM] = "SY_ERR_COMM",
        [SY_ERR_MISMATCH] = "SY_ERR_MISMATCH",
        [SY_ERR_TIMEOUT] = "SY_ERR_TIMEOUT",
    };
    const size_t i = (size_t)status;
    return i < sizeof names / sizeof *names ? names[i] : "SY_ERR_UNKNOWN";
}

const char *sy_fault_name(sy_fault_code code)
{
    static const char *const names[] = {
        [SY_FAULT_NONE] = "NONE",
        [SY_FAULT_NULL_POINTER] = "NULL_POINTER",
        [SY_FAULT_BAD_DTYPE] = "BAD_DTYPE",
        [SY_FAULT_BAD_RANK] = "BAD_RANK",
        [SY_FAULT_BAD_SHAPE] = "BAD_SHAPE",
        [SY_FAULT_EMPTY] = "EMPTY",
        [SY_FAULT_BAD_VALUE] = "BAD_VALUE",
        [SY_FAULT_BAD_BLOCK_SIZE] = "BAD_BLOCK_SIZE",
        [SY_FAULT_BAD_OPTION] = "BAD_OPTION",
        [SY_FAULT_OVERFLOW] = "OVERFLOW",
        [SY_FAULT_BAD_STRIDE] = "BAD_STRIDE",
        [SY_FAULT_BAD_DEVICE] = "BAD_DEVICE",
        [SY_FAULT_ALIAS] = "ALIAS",
        [SY_FAULT_NO_MEMORY] = "NO_MEMORY",
        [SY_FAULT_UNSUPPORTED] = "UNSUPPORTED",
        [SY_FAULT_LENGTH_RANGE] = "LENGTH_RANGE",
        [SY_FAULT_REQ_RANGE] = "REQ_RANGE",
        [SY_FAULT_INDEX_RANGE] = "INDEX_RANGE",
        [SY_FAULT_TABLE_SHORT] = "TABLE_SHORT",
        [SY_FAULT_BLOCK_RANGE] = "BLOCK_RANGE",
        [SY_FAULT_ROW_RANGE] = "ROW_RANGE",
        [SY_FAULT_ROW_OVERFULL] = "ROW_OVERFULL",
        [SY_FAULT_SLOT_RANGE] = "SLOT_RANGE",
        [SY_FAULT_SLOT_COUNT] = "SLOT_COUNT",
        [SY_FAULT_DUPLICATE] = "DUPLICATE",
        [SY_FAULT_INDEX_ORDER] = "INDEX_ORDER",
        [SY_FAULT_HAZARD] = "HAZARD",
    };
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

static sy_fault_code code_of(sy_status status)
{
    switch (status) {
    case SY_ERR_NULL:
        return SY_FAULT_NULL_POINTER;
    case SY_ERR_DTYPE:
        return SY_FAULT_BAD_DTYPE;
    case SY_ERR_SHAPE:
        return SY_FAULT_BAD_SHAPE;
    case SY_ERR_STRIDE:
        return SY_FAULT_BAD_STRIDE;
    case SY_ERR_VALUE:
        return SY_FAULT_BAD_VALUE;
    case SY_ERR_OVERFLOW:
        return SY_FAULT_OVERFLOW;
    case SY_ERR_ALIAS:
        return SY_FAULT_ALIAS;
    case SY_ERR_DEVICE:
        return SY_FAULT_BAD_DEVICE;
    case SY_ERR_UNSUPPORTED:
        return SY_FAULT_UNSUPPORTED;
    case SY_ERR_NOMEM:
        return SY_FAULT_NO_MEMORY;
    default:
        return SY_FAULT_NONE;
    }
}

static void record(sy_ctx *ctx, const sy_fault *fault, const char *format, va_list values)
{
    ctx->fault = *fault;
    if (ctx->fault.code == SY_FAULT_NONE)
        ctx->fault.code = code_of(fault->status);
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

sy_status syi_fail(sy_ctx *ctx, sy_status status, const char *argument, const char *format, ...)
{
    const sy_fault fault = syi_value_fault(status, SY_FAULT_NONE, argument, 0, 0);
    va_list values;
    va_start(values, format);
    record(ctx, &fault, format, values);
    va_end(values);
    return status;
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
