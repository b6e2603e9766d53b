/*
 * Sums of the rows of each token where there is much to add: a producer warp keeps bulk loads on their way into a ring of
 * stages in shared memory, two groups of threads add them up. An item is a piece of all rows of one token; a stage holds
 * one item. Blocks are persistent, one per multiprocessor, and take tokens blockIdx.x, blockIdx.x + gridDim.x and so on,
 * so that the device works in one window of the rows of each expert.
 */
#include "cuda/moe_sums.cuh"

enum {
    CONSUMERS = 256,       /* threads of a group: each adds one vector */
    GROUPS = 2,
    MOST_STAGES = 16,      /* even, so that a stage always serves the same group */
    MOST_PIECE = CONSUMERS * 16,
    MOST_MEMORY = 192 * 1024, /* leaves room beside it for the kernel that validates */
    MORE_THAN_HALF = 116 * 1024, /* of a multiprocessor, so that no two blocks share one */
    LEAST_STAGES = 6
};

struct ring {
    int64_t row_bytes;
    int piece, pieces; /* bytes; of a row */
    int stages;
};

static int64_t memory_of(const struct syc_device *device)
{
    const int64_t most = device->shared_bytes - 8 * 1024;
    return most < MOST_MEMORY ? most : (int64_t)MOST_MEMORY;
}

static struct ring ring_of(const struct syc_device *device, const struct syc_moe_sums *s)
{
    struct ring r = {s->hidden * (s->type == SY_TYPE_F32 ? 4 : 2), 0, 0, 0};
    const int64_t slots = s->lists.n_slots, memory = memory_of(device), fits = memory / (LEAST_STAGES * slots) / 16 * 16;
    const int64_t most = fits < MOST_PIECE ? fits : (int64_t)MOST_PIECE, pieces = (r.row_bytes + most - 1) / most;
    r.pieces = (int)pieces;
    r.piece = (int)(((r.row_bytes + pieces - 1) / pieces + 15) / 16 * 16);
    const int64_t stages = memory / (slots * r.piece) / 2 * 2;
    r.stages = (int)(stages < MOST_STAGES ? stages : (int64_t)MOST_STAGES);
    return r;
}

/* Whether rows are many and long enough, whatever their alignment. */
bool syc_moe_ring_pays(const struct syc_device *device, const struct syc_moe_sums *s)
{
    const struct syc_moe_lists *const l = &s->lists;
    return syc_has_bulk(device) && !l->capacity && l->n_slots >= 4 && l->n_slots <= 16 && s->hidden >= 256 &&
           l->n_tokens >= 8 * (int64_t)device->processors;
}

/* Where an item is: token, piece, stage, and how often the ring was passed. */
struct cursor {
    int64_t t;
    int piece, stage;
    u32 turn;

    __device__ __forceinline__ void advance(const struct ring &r)
    {
        if (++piece == r.pieces) {
            piece = 0;
            t += gridDim.x;
        }
        if (++stage == r.stages) {
            stage = 0;
            turn ^= 1;
        }
    }
};

/* What a lane holds of a token: the row of slot `lane`, and a weight. */
struct held {
    int32_t row;
    float weight;
};

static __device__ __forceinline__ struct held hold(const struct syc_moe_lists &l, int64_t t)
{
    struct held h = {-1, 1.0f};
    if (t >= l.n_tokens || syc_lane() >= l.n_slots)
        return h;
    h.row = syc_entry_row(l, t, syc_lane());
    if (l.weights != NULL)
        h.weight = __ldcg(l.weights + t * l.n_slots + syc_lane()); /* of the n-th row of the token */
    else if (l.probs.data != NULL)
        h.weight = syc_prob(l, t, syc_lane());
    return h;
}

/* The weight of slot `lane`, 0 for one without a row. */
static __device__ __forceinline__ float weight_of(const struct syc_moe_lists &l, struct held h)
{
    const u32 live = __ballot_sync(SYC_ALL_LANES, h.row >= 0);
    const float ranked = __shfl_sync(SYC_ALL_LANES, h.weight, __popc(live & syc_lanes_below()) & 31);
    return h.row < 0 ? 0.0f : l.weights != NULL ? ranked : h.weight;
}

template <sy_type type>
static __global__ void __launch_bounds__(GROUPS *CONSUMERS + 32, 1)
    sum_ring(const struct syc_moe_sums s, const struct ring r, const struct syc_gate gate)
{
    typedef syc_numbers<type, true> Numbers;
    SYC_DYNAMIC_SHARED(u8, memory); /* [stage][slot][piece] */
    __shared__ struct syc_barrier full[MOST_STAGES], empty[MOST_STAGES];
    const struct syc_moe_lists &l = s.lists;
    const int slots = (int)l.n_slots;
    const bool producer = threadIdx.x >= GROUPS * CONSUMERS;
    struct cursor c = {blockIdx.x, 0, 0, 0};
    if (!SYC_BULK)
        return;
    if (threadIdx.x == 0) {
#pragma unroll 1
        for (int i = 0; i < r.stages; i++) {
            syc_barrier_init(full + i, 1);
            syc_barrier_init(empty + i, CONSUMERS / 32);
        }
        syc_barrier_fence();
    }
    __syncthreads();
    int32_t row = -1, next = -1; /* of the producer's token, and of the one after it */
    const auto row_at = [&](int64_t t) {
        return t < l.n_tokens && syc_lane() < slots ? syc_entry_row(l, t, syc_lane()) : -1;
    };
    const auto load = [&] {
        if (c.piece == 0) {
            row = next;
            next = row_at(c.t + gridDim.x);
        }
        const u32 live = __ballot_sync(SYC_ALL_LANES, row >= 0);
        const u32 bytes = (u32)min((int64_t)r.piece, r.row_bytes - (int64_t)c.piece * r.piece);
        if (syc_lane() == 0)
            syc_barrier_expect(full + c.stage, (u32)__popc(live) * bytes);
        __syncwarp();
        if (row >= 0)
            syc_bulk_load(memory + (c.stage * slots + syc_lane()) * r.piece,
                          syc_row(s.rows, row) + (int64_t)c.piece * r.piece, bytes, full + c.stage);
        c.advance(r);
    };
    int started = 0;
    if (producer) {
        next = row_at(c.t);
#pragma unroll 1
        for (; started < r.stages && c.t < l.n_tokens; started++)
            load();
    }
    const bool good = syc_may_write(gate);
    if (producer) {
#pragma unroll 1
        for (int i = 0; i < started && !good; i++) /* loads must end before the block does */
            syc_barrier_wait(full + i, 0);
#pragma unroll 1
        while (c.t < l.n_tokens && good) {
            syc_barrier_wait(empty + c.stage, c.turn ^ 1);
            load();
        }
        return;
    }
    if (!good)
        return;
    const int v = (int)threadIdx.x % CONSUMERS;
    if (threadIdx.x >= CONSUMERS)
        c.advance(r);
    struct held ahead = hold(l, c.t);
#pragma unroll 1
    while (c.t < l.n_tokens) {
        const struct cursor at = c;
        const float w = weight_of(l, ahead);
        c.advance(r);
        c.advance(r);
        ahead = hold(l, c.t);
        const int64_t first = (int64_t)at.piece * r.piece;
        const bool in = v * 16 < min((int64_t)r.piece, r.row_bytes - first);
        const u8 *const stage = memory + at.stage * slots * r.piece;
        float sum[Numbers::N] = {};
        syc_barrier_wait(full + at.stage, at.turn);
#pragma unroll 1
        for (int j0 = 0; j0 < slots; j0 += 4) {
            uint4 y[4];
            float each[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                each[k] = __shfl_sync(SYC_ALL_LANES, w, j0 + k);
                y[k] = each[k] != 0.0f && in ? ((const uint4 *)(stage + (j0 + k) * r.piece))[v] : make_uint4(0, 0, 0, 0);
            }
#pragma unroll
            for (int k = 0; k < 4; k++)
                syc_add_row<Numbers>(sum, each[k], y[k]);
        }
        __syncwarp();
        if (syc_lane() == 0)
            syc_barrier_arrive(empty + at.stage);
        if (in)
            Numbers::store(syc_out_row(s.out, at.t) + first, v, Numbers::narrow(sum));
    }
}

void syc_moe_sum_ring(struct syc_call *call, const struct syc_moe_sums *s)
{
    const struct ring r = ring_of(call->device, s);
    const int64_t blocks = call->device->processors;
    const int64_t ring = r.stages * s->lists.n_slots * r.piece, most = memory_of(call->device);
    const int64_t alone = ring > MORE_THAN_HALF ? ring : most < MORE_THAN_HALF ? most : (int64_t)MORE_THAN_HALF;
    void (*const kernel)(struct syc_moe_sums, struct ring, struct syc_gate) = s->type == SY_TYPE_F32   ? sum_ring<SY_TYPE_F32>
                                                                              : s->type == SY_TYPE_F16 ? sum_ring<SY_TYPE_F16>
                                                                                                       : sum_ring<SY_TYPE_BF16>;
    syc_launch_large(&call->queue, kernel, SYC_EARLY, blocks, GROUPS * CONSUMERS + 32, (size_t)alone, *s, r, call->gate);
}
