/*
 * The CPU backend: ordinary and pinned memory, scratch memory of the context, and one row per operator.
 */
#include "cpu/backend.h"
#include "cpu/all_to_all.h"
#include "kernels/kernels.h"

static bool accepts(const sy_ctx *ctx, DLDevice device, DLDevice first)
{
    /* Pinned host memory of either vendor is ordinary memory to us, whatever device it was pinned for. */
    const int type = (int)device.device_type;
    (void)ctx;
    (void)first;
    return type == kDLCPU || type == kDLCUDAHost || type == kDLROCMHost;
}

static sy_status scratch(sy_ctx *ctx, size_t host_bytes, size_t own_bytes, struct syi_scratch *scratch)
{
    const size_t first = syi_align(host_bytes);
    SYI_TRY(syi_workspace(ctx, syi_size_add(first, own_bytes), &scratch->host));
    scratch->own = scratch->host != NULL ? (unsigned char *)scratch->host + first : NULL;
    return SY_OK;
}

static void describe(const sy_ctx *ctx, sy_trace *report)
{
    report->isa = ctx->kernels->name;
    report->threads = syi_usable_threads(ctx);
}

#define ROW(ID, op) [SYI_##ID] = {syi_cpu_##op##_workspace, syi_cpu_##op},
const struct syi_backend syi_cpu_backend = {.name = "cpu",
                                            .memory = &syi_cpu_memory,
                                            .accepts = accepts,
                                            .scratch = scratch,
                                            .describe = describe,
                                            .op = {SYI_BACKEND_OPERATORS(ROW)}};
#undef ROW
