/*
 * moe_capacity on a device: one block finds the largest count, or the first negative one, and then writes or
 * reports.
 */
#include "cuda/runtime/backend.cuh"
#include "cuda/prim/block.cuh"
#include "cuda/prim/load.cuh"

/* What is wrong with the counts or with their largest; else the result in *rounded. */
static __device__ syi_found round_up(const syi_moe_capacity_plan &p, int64_t slots, int64_t *rounded)
{
    const int64_t rest = slots % p.alignment, more = rest > 0 ? p.alignment - rest : 0;
    if (slots > INT64_MAX - more)
        return {SYI_BAD_CAPACITY_ALIGNMENT, 0, -1, -1, p.alignment, slots, 0};
    *rounded = slots + more;
    return {SYI_GOOD, 0, -1, -1, 0, 0, 0};
}

static __global__ void __launch_bounds__(512) largest(const syi_moe_capacity_plan p, syc_gate gate)
{
    __shared__ u64 part[SYC_BLOCK_WARPS];
    u64 most = 0, after = 0; /* E less the first negative one */
    if (!syc_may_write(gate))
        return;
#pragma unroll 4
    for (int64_t e = threadIdx.x; e < p.n_experts; e += 512) {
        const int64_t count = syc_index(p.counts.data, e, p.counts.type);
        if (count < 0)
            after = max(after, (u64)(p.n_experts - e));
        else
            most = max(most, (u64)count);
    }
    most = syc_block_max(most, part);
    after = syc_block_max(after, part);
    if (threadIdx.x != 0)
        return;
    const int64_t slots = p.n_experts > 0 ? min((int64_t)most, p.bound) : p.bound,
                  bad = p.n_experts - (int64_t)after;
    int64_t rounded = 0;
    gate.found[0] = after > 0 ? syi_found{SYI_BAD_COUNT_NEGATIVE,
                                          0,
                                          -1,
                                          bad,
                                          syc_index(p.counts.data, bad, p.counts.type),
                                          0,
                                          0}
                              : round_up(p, slots, &rounded);
    if (gate.found[0].bad == SYI_GOOD) {
        syc_store<u64>(p.capacity.data, (u64)rounded);
        return;
    }
    gate.order[0] = 0;
    gate.n = 1;
    syc_report_fault(gate);
}

SYC_NO_WORKSPACE(moe_capacity)

void syc_moe_capacity(syc_call *call, const syi_plan *plan)
{
    syc_launch(&call->queue, largest, SYC_AFTER, 1, 512, 0, plan->moe_capacity, call->gate);
}
