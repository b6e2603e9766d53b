/*
 * Sums of the rows of each token where there is much to add (see moe_ring.cuh).
 */
#include "cuda/moe_ring.cuh"

static struct syc_items items_of(const struct syc_device *device, const struct syc_moe_sums *s)
{
    return syc_items_of(device, s->hidden * (s->type == SY_TYPE_F32 ? 4 : 2), (int)s->lists.n_slots, 16, 0, SYC_ITEM_PIECE, 6, true);
}

/* Whether rows are many and long enough, whatever their alignment. */
bool syc_moe_ring_pays(const struct syc_device *device, const struct syc_moe_sums *s)
{
    const struct syc_moe_lists *const l = &s->lists;
    return syc_has_bulk(device) && !l->capacity && l->n_slots >= 4 && l->n_slots <= 16 && s->hidden >= 256 &&
           l->n_tokens >= 8 * (int64_t)device->processors;
}

template <sy_type type>
static __global__ void __launch_bounds__(1024, 1) /* of SYC_WORKERS + 32: 64 registers leave room for the kernel that validates */
    sum_ring(const __grid_constant__ struct syc_moe_sums s, const __grid_constant__ struct syc_items r, const __grid_constant__ struct syc_gate gate)
{
    typedef syc_numbers<type, true> Numbers;
    SYC_DYNAMIC_SHARED(u8, memory); /* [stage][slot][piece] */
    __shared__ struct syc_barrier full[SYC_ITEM_STAGES], empty[SYC_ITEM_STAGES];
    const struct syc_moe_lists &l = s.lists;
    const int slots = (int)l.n_slots, turns = SYC_WORKERS >> r.shift;
    const bool producer = syc_warp() == SYC_WORKERS / 32;
    if (!SYC_BULK)
        return;
    syc_items_begin(r, full, empty, (1 << r.shift) / 32);
    if (l.weights != NULL && !producer)
        syc_list_tokens(l);
    const bool good = syc_items_run(l, r, full, empty, producer, gate, [&](const struct syc_cursor &c, int32_t row) {
        const u32 live = __ballot_sync(SYC_ALL_LANES, row >= 0), bytes = c.bytes(r);
        if (syc_lane() == 0)
            syc_barrier_expect(full + c.stage, (u32)__popc(live) * bytes);
        __syncwarp();
        if (row >= 0)
            syc_bulk_load(c.row(memory, r, syc_lane()), syc_row(s.rows, row) + c.offset(r), bytes, full + c.stage);
    });
    if (!good || producer)
        return;
    const int v = (int)threadIdx.x & ((1 << r.shift) - 1);
    struct syc_cursor c = {blockIdx.x, 0, 0, 0};
    struct syc_ahead ahead;
    ahead.begin(l, r, SYC_WEIGHTS, (int)threadIdx.x >> r.shift, turns);
    if (threadIdx.x >> r.shift > 0)
        c.advance(r, (int)threadIdx.x >> r.shift);
#pragma unroll 1
    for (; c.t < l.n_tokens; c.advance(r, turns)) {
        const int base = ahead.next(l, r, SYC_WEIGHTS);
        const u32 live = syc_live_slots(l, ahead.row, base);
        const float own = syc_slot_weight(l, ahead.weight, base, live), w = (live >> syc_lane() & 1) != 0 ? own : 0.0f;
        const bool in = v * 16 < (int)c.bytes(r);
        const u8 *const stage = c.row(memory, r, 0);
        float sum[Numbers::N] = {};
        syc_barrier_wait(full + c.stage, c.turn);
#pragma unroll 1
        for (int j0 = 0; j0 < slots; j0 += 4) {
            uint4 y[4];
            float each[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                each[k] = __shfl_sync(SYC_ALL_LANES, w, j0 + k);
                y[k] = each[k] != 0.0f && in ? ((const uint4 *)(stage + (j0 + k) * r.apart))[v] : make_uint4(0, 0, 0, 0);
            }
#pragma unroll
            for (int k = 0; k < 4; k++)
                syc_add_row<Numbers>(sum, each[k], y[k]);
        }
        __syncwarp();
        if (syc_lane() == 0)
            syc_barrier_arrive(empty + c.stage);
        if (in)
            Numbers::store(syc_out_row(s.out, c.t) + c.offset(r), v, Numbers::narrow(sum));
    }
}

void syc_moe_sum_ring(struct syc_call *call, const struct syc_moe_sums *s)
{
    const struct syc_items r = items_of(call->device, s);
    void (*const kernel)(struct syc_moe_sums, struct syc_items, struct syc_gate) = s->type == SY_TYPE_F32   ? sum_ring<SY_TYPE_F32>
                                                                                   : s->type == SY_TYPE_F16 ? sum_ring<SY_TYPE_F16>
                                                                                                            : sum_ring<SY_TYPE_BF16>;
    struct syc_moe_sums sums = *s;
    sums.lists.weights = s->ring_weights;
    syc_launch_large(&call->queue, kernel, SYC_EARLY, call->device->processors, SYC_WORKERS + 32, syc_items_bytes(call->device, &r), sums, r,
                     call->gate);
}
