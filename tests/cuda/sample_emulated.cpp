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

namespace {
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
class emulated_call {
  public:
    explicit emulated_call(size_t scratch_bytes)
        : scratch(scratch_bytes / 8 + 2, 0x5a5a5a5a5a5a5a5aull), order(SYC_MAX_CHECK_BLOCKS, 3),
          found(SYC_MAX_CHECK_BLOCKS)
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

    sy_status finish(sy_ctx *ctx)
    {
        const uint64_t end = scratch[scratch.size() - 1];
        syi_fp_leave(fp);
        if (call.queue.error != cudaSuccess || end != 0x5a5a5a5a5a5a5a5aull) {
            std::fprintf(stderr, "sample_emulated: the launch failed or wrote past its scratch memory\n");
            std::abort();
        }
        return report.set != 0 ? syi_report(ctx, report.found) : SY_OK;
    }

    struct syc_call call = {};

  private:
    struct syc_device device = {};
    std::vector<u64> scratch, order;
    std::vector<struct syi_found> found;
    u32 closed = 0;
    struct syc_report report = {};
    uint64_t fp;
};
} // namespace

/* A query asks for all outputs, so its scratch memory must be enough for a call with any of them; also where much is needed. */
static void expect_enough(const union syi_plan *plan)
{
    union syi_plan own = *plan, query;
    struct syc_device device = {};
    device.processors = 132;
    for (int64_t vocab = 1000; vocab <= 8000000; vocab *= 2) {
        own.sample.vocab = vocab;
        own.sample.batch = 4096;
        query = own;
        query.sample.list_token.data = query.sample.list_prob.data = (unsigned char *)&query;
        if (syc_sample_workspace(&device, &query) < syc_sample_workspace(&device, &own)) {
            std::fprintf(stderr,
                         "sample_emulated: a query promises too little scratch memory, vocabulary %lld\n",
                         (long long)vocab);
            std::abort();
        }
    }
}

extern "C" {
sy_status __wrap_syi_cpu_sample(sy_ctx *ctx, const union syi_plan *plan, void *)
{
    const configuration c = next_configuration();
    struct syc_device device = {};
    device.processors = 3;
    expect_enough(plan);
    emulated_call e(syc_sample_workspace(&device, plan));
    launch_sample(&e.call, &plan->sample, c.threads, c.most);
    return e.finish(ctx);
}

sy_status __wrap_syi_cpu_sample_overrides(sy_ctx *ctx, const union syi_plan *plan, void *)
{
    const configuration c = next_configuration();
    struct syc_device device = {};
    device.processors = 3;
    emulated_call e(syc_sample_overrides_workspace(&device, plan));
    launch_overrides(&e.call, &plan->sample_overrides, c.threads, c.most);
    return e.finish(ctx);
}

sy_status __wrap_syi_cpu_sample_noise(sy_ctx *ctx, const union syi_plan *plan, void *)
{
    emulated_call e(0);
    syc_sample_noise(&e.call, plan);
    return e.finish(ctx);
}
}
