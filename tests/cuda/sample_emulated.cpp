/*
 * Runs the device code of sample, sample_noise and sample_overrides on the emulator in place of the CPU's: a test program
 * linked with this file and --wrap for the functions below checks the kernels by the same cases and oracles. Each call of
 * sample takes the next combination of block size and room for candidates, so that both ways of every step are taken;
 * SWITCHYARD_EMULATED="threads most" takes one for all calls.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

extern "C" {
#include "base/plan.h" /* the library is C */
}
#include "cuda/sample.cu"
#include "cuda/sample_overrides.cu"

namespace
{
struct configuration {
    int threads;
    u32 most;
};
const configuration configurations[] = {{128, 2048}, {256, 2048}, {512, 2048}, {128, 0},   {256, 1},
                                        {512, 7},    {128, 64},   {256, 300},  {512, 1024}};

configuration next_configuration()
{
    static size_t calls;
    configuration c;
    const char *const fixed = std::getenv("SWITCHYARD_EMULATED");
    if (fixed != nullptr && std::sscanf(fixed, "%d %u", &c.threads, &c.most) == 2)
        return c;
    return configurations[calls++ % (sizeof configurations / sizeof *configurations)];
}

/* A call on an emulated device; memory of the kernels is not zero before. */
class emulated_call
{
  public:
    explicit emulated_call(size_t scratch_bytes)
        : scratch(scratch_bytes / 8 + 2, 0x5a5a5a5a5a5a5a5aull), order(SYC_MAX_CHECK_BLOCKS, 3), found(SYC_MAX_CHECK_BLOCKS)
    {
        device.processors = 3;
        device.shared_bytes = 227 * 1024;
        call.device = &device;
        call.queue.processors = 3;
        call.gate.order = order.data();
        call.gate.found = found.data();
        call.gate.closed = &closed;
        call.gate.report = &report;
        call.scratch = (unsigned char *)scratch.data();
        fp = syi_fp_enter();
    }

    sy_status finish(sy_ctx *ctx, const struct syi_token_lists *const *lists)
    {
        const uint64_t end = scratch[scratch.size() - 1];
        syi_fp_leave(fp);
        if (call.queue.error != cudaSuccess || end != 0x5a5a5a5a5a5a5a5aull) {
            std::fprintf(stderr, "sample_emulated: the launch failed or wrote past its scratch memory\n");
            std::abort();
        }
        return report.set != 0 ? fail(ctx, report.found, lists) : SY_OK;
    }

    struct syc_call call = {};

  private:
    /* The sentences of syi_check_lists. */
    static sy_status fail(sy_ctx *ctx, const struct syi_found &f, const struct syi_token_lists *const *lists)
    {
        const bool ends = f.bad <= SYI_BAD_LIST_ENDS_BACK, high = f.bad == SYI_BAD_LIST_ENDS_HIGH;
        const bool order = f.bad == SYI_BAD_LIST_ENDS_BACK || f.bad == SYI_BAD_LIST_ORDER;
        const struct syi_token_lists *const l = lists[f.field];
        sy_fault fault = {SY_ERR_INDEX, order ? SY_FAULT_INDEX_ORDER : SY_FAULT_INDEX_RANGE,
                          ends ? l->indptr_name : l->token_name, f.batch, f.position, f.value, f.limit};
        const long long b = f.batch, j = f.position, value = f.value, limit = f.limit, extra = f.extra;
        if (ends)
            return syi_fail_at(ctx, &fault, "at position %lld is %lld, want %lld to %lld (%s)", j, value,
                               high ? extra : limit, high ? limit : extra, sy_fault_name(fault.code));
        return syi_fail_at(ctx, &fault,
                           order ? "at row %lld, position %lld is %lld, want more than %lld before it (%s)"
                                 : "at row %lld, position %lld is %lld, want 0 or more and below %lld (%s)",
                           b, j, value, limit, sy_fault_name(fault.code));
    }

    struct syc_device device = {};
    std::vector<u64> scratch, order;
    std::vector<struct syi_found> found;
    u32 closed = 0;
    struct syc_report report = {};
    uint64_t fp;
};
} // namespace

extern "C" {
sy_status __wrap_syi_cpu_sample(sy_ctx *ctx, const union syi_plan *plan, void *)
{
    const configuration c = next_configuration();
    const struct syi_token_lists *lists[OVERRIDE_TOKEN + 1] = {};
    lists[OVERRIDE_INDPTR] = lists[OVERRIDE_TOKEN] = &plan->sample.overrides;
    struct syc_device device = {};
    device.processors = 3;
    emulated_call e(syc_sample_workspace(&device, plan));
    launch_sample(&e.call, &plan->sample, c.threads, c.most);
    return e.finish(ctx, lists);
}

sy_status __wrap_syi_cpu_sample_overrides(sy_ctx *ctx, const union syi_plan *plan, void *)
{
    const struct syi_sample_overrides_plan *const p = &plan->sample_overrides;
    const configuration c = next_configuration();
    const struct syi_token_lists *const lists[] = {nullptr,    &p->prompt, &p->prompt, &p->output,
                                                   &p->output, &p->bias,   &p->bias};
    struct syc_device device = {};
    device.processors = 3;
    emulated_call e(syc_sample_overrides_workspace(&device, plan));
    launch_overrides(&e.call, p, c.threads, c.most);
    return e.finish(ctx, lists);
}

sy_status __wrap_syi_cpu_sample_noise(sy_ctx *ctx, const union syi_plan *plan, void *)
{
    emulated_call e(0);
    syc_sample_noise(&e.call, plan);
    return e.finish(ctx, nullptr);
}
}
