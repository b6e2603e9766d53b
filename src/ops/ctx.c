/*
 * Contexts: creation, options, and what a caller may ask or change between calls.
 */
#include "ops/call.h"
#include "kernels/kernels.h"
#include "cpu/pool.h"

#include <stdio.h>
#include <unistd.h>

static const char no_number[] =
    "SWITCHYARD_THREADS in the environment is no number of threads, want 1 or more";

static sy_status reject(const sy_ctx_options *o, sy_status status, const char *sentence, const char *value)
{
    if (o->error != NULL && o->error_bytes > 0)
        snprintf(o->error, o->error_bytes, "sy_ctx_create: %s%s", sentence, value);
    return status;
}

/* Names what was asked for and what there is; `known` tells a table this CPU cannot run from no table at
   all. */
static sy_status reject_isa(const sy_ctx_options *o, bool known)
{
    char names[160];
    size_t used = (size_t)snprintf(names, sizeof names, "%.64s%s, want one of:", o->isa,
                                   known ? ", which this CPU cannot run" : "");
    for (int i = 0; sy_isa_name(i) != NULL && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, " %s", sy_isa_name(i));
    return reject(o, known ? SY_ERR_UNSUPPORTED : SY_ERR_VALUE, "isa is ", names);
}

sy_status sy_ctx_create_n(sy_ctx **ctx, const sy_ctx_options *options, size_t options_bytes)
{
    sy_ctx_options o = {0};
    if (ctx != NULL)
        *ctx = NULL;
    if (options != NULL) {
        memcpy(&o, options, options_bytes < sizeof o ? options_bytes : sizeof o);
        if (syi_unknown_field(options, options_bytes, sizeof o) < options_bytes)
            return reject(&o, SY_ERR_UNSUPPORTED, "options set a field this library does not know", "");
    }
    if (o.error != NULL && o.error_bytes > 0)
        o.error[0] = '\0';
    if (ctx == NULL)
        return reject(&o, SY_ERR_NULL, "ctx is NULL, want a place for the context", "");
    if ((o.alloc == NULL) != (o.dealloc == NULL))
        return reject(&o, SY_ERR_NULL, o.alloc == NULL ? "alloc" : "dealloc",
                      " is NULL, want alloc and dealloc");
    if (o.threads < 0) {
        char value[32];
        snprintf(value, sizeof value, "%d, want 0 or more", o.threads);
        return reject(&o, SY_ERR_VALUE, "threads is ", value);
    }
    const int threads = o.threads > 0 ? o.threads : syi_default_threads(o.parallel_for != NULL);
    if (threads == 0)
        return reject(&o, SY_ERR_VALUE, no_number, "");
    bool known;
    const struct syi_kernels *kernels = syi_kernels_named(o.isa, &known);
    if (kernels == NULL)
        return reject_isa(&o, known);
    if (o.alloc == NULL) {
        o.alloc = syi_default_alloc;
        o.dealloc = syi_default_dealloc;
    }
    sy_ctx *made = o.alloc(o.alloc_user, sizeof *made);
    if (made == NULL)
        return reject(&o, SY_ERR_NOMEM, "a context could not be allocated", "");
    *made = (sy_ctx){.kernels = kernels,
                     .threads = threads,
                     .owner_pid = (long)getpid(),
                     .parallel_for = o.parallel_for,
                     .parallel_user = o.parallel_user,
                     .alloc = o.alloc,
                     .dealloc = o.dealloc,
                     .alloc_user = o.alloc_user,
                     .trace = o.trace,
                     .trace_user = o.trace_user,
                     .synchronous = o.synchronous};
    syi_clear_fault(made, "sy_ctx");
    char sentence[400] = "";
    const sy_status st = syi_device_open(made, &o, sentence, sizeof sentence);
    if (st != SY_OK) {
        sy_ctx_destroy(made);
        return reject(&o, st, sentence, "");
    }
    *ctx = made;
    return SY_OK;
}

void sy_ctx_destroy(sy_ctx *ctx)
{
    if (ctx == NULL)
        return;
    syi_pool_close(ctx);
    syi_device_close(ctx);
    syi_workspace_free(ctx);
    ctx->dealloc(ctx->alloc_user, ctx);
}

const char *sy_ctx_error(const sy_ctx *ctx)
{
    return ctx != NULL ? ctx->error : "the context is NULL";
}

sy_status sy_ctx_fault_n(const sy_ctx *ctx, sy_fault *fault, size_t fault_bytes)
{
    if (ctx == NULL || fault == NULL)
        return SY_ERR_NULL;
    memset(fault, 0, fault_bytes);
    memcpy(fault, &ctx->fault, fault_bytes < sizeof *fault ? fault_bytes : sizeof *fault);
    return SY_OK;
}

sy_status sy_ctx_set_workspace(sy_ctx *ctx, void *data, size_t bytes)
{
    if (ctx == NULL)
        return SY_ERR_NULL;
    syi_clear_fault(ctx, "sy_ctx_set_workspace");
    if (bytes > 0 && data == NULL)
        return syi_fail(ctx, SY_ERR_NULL, "data", "is NULL for %zu bytes", bytes);
    if (bytes > 0 && (uintptr_t)data % SYI_ALIGN != 0)
        return syi_fail(ctx, SY_ERR_VALUE, "data", "is not aligned to %d bytes", SYI_ALIGN);
    if (ctx->cuda_device != NULL)
        return syi_device_lend(ctx, data, bytes);
    if (!ctx->workspace_lent)
        syi_workspace_free(ctx);
    ctx->workspace_lent = bytes > 0;
    ctx->workspace = bytes > 0 ? data : NULL;
    ctx->workspace_bytes = bytes;
    return SY_OK;
}

sy_status sy_ctx_set_threads(sy_ctx *ctx, int threads)
{
    if (ctx == NULL)
        return SY_ERR_NULL;
    syi_clear_fault(ctx, "sy_ctx_set_threads");
    if (threads < 0)
        return syi_fail(ctx, SY_ERR_VALUE, "threads", "is %d, want 0 or more", threads);
    const int most = threads > 0 ? threads : syi_default_threads(ctx->parallel_for != NULL);
    if (most == 0)
        return syi_fail(ctx, SY_ERR_VALUE, "threads", "is 0, and %s", no_number);
    ctx->threads = most;
    syi_device_processors(ctx, threads);
    return SY_OK;
}

sy_status sy_ctx_parallel(sy_ctx *ctx, int n_tasks, void (*task)(void *data, int index), void *data)
{
    if (ctx == NULL)
        return SY_ERR_NULL;
    syi_clear_fault(ctx, "sy_ctx_parallel");
    if (task == NULL)
        return syi_fail(ctx, SY_ERR_NULL, "task", "is NULL, want a function");
    const int most = syi_usable_threads(ctx);
    if (n_tasks < 0 || n_tasks > most)
        return syi_fail(ctx, SY_ERR_VALUE, "n_tasks", "is %d, want 0 to %d, the threads of the context",
                        n_tasks, most);
    syi_parallel(ctx, n_tasks, task, data);
    return SY_OK;
}

int sy_ctx_threads(const sy_ctx *ctx)
{
    return ctx != NULL ? syi_usable_threads(ctx) : 0;
}

const char *sy_ctx_isa(const sy_ctx *ctx)
{
    return ctx != NULL ? ctx->kernels->name : "";
}

const char *sy_isa_name(int i)
{
    const struct syi_kernels *kernels = syi_kernels_at(i);
    return kernels != NULL ? kernels->name : NULL;
}
