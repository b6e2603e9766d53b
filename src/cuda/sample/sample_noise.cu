/*
 * sample_noise on a device: the exponential variates of a race, four tokens per counter.
 */
#include "plan/sample_math.h"
#include "cuda/runtime/backend.cuh"
#include "cuda/prim/load.cuh"

static __global__ void __launch_bounds__(256)
    make_noise(const struct syi_sample_noise_plan p, const struct syc_gate gate)
{
    const struct syi_noise noise = {p.args.seed, p.args.offset, p.args.stream};
    const int64_t groups = (p.args.n + 3) / 4;
    if (!syc_may_write(gate))
        return;
    for (int64_t g = (int64_t)blockIdx.x * 256 + threadIdx.x; g < groups; g += (int64_t)gridDim.x * 256) {
        uint32_t word[4];
        syi_noise_words(&noise, (uint32_t)g, word);
        uint4 q;
        q.x = __float_as_uint(syi_exponential(word[0]));
        q.y = __float_as_uint(syi_exponential(word[1]));
        q.z = __float_as_uint(syi_exponential(word[2]));
        q.w = __float_as_uint(syi_exponential(word[3]));
        u8 *const to = p.q.data + g * 16;
        if (p.args.n - 4 * g >= 4 && (uintptr_t)to % 16 == 0) {
            *(uint4 *)to = q;
            continue;
        }
        const u32 each[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (4 * g + i < p.args.n)
                syc_store<u32>(to + 4 * i, each[i]);
    }
}

SYC_NO_WORKSPACE(sample_noise)

void syc_sample_noise(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_sample_noise_plan *const p = &plan->sample_noise;
    const int64_t wanted = ((p->args.n + 3) / 4 + 255) / 256, most = 8 * (int64_t)call->device->processors;
    syc_launch(&call->queue, make_noise, SYC_AFTER, wanted < most ? wanted : most, 256, 0, *p, call->gate);
}
