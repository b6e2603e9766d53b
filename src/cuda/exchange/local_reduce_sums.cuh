/*
 * Kernels of local_reduce that add up listed rows, and their launches.
 */
#pragma once

#include "cuda/prim/bulk.cuh"
#include "cuda/codes/coded_sums.cuh"
#include "cuda/exchange/local_reduce.cuh"

/* ---- Sums ---- */

template <class Numbers> SYC_INLINE void add_vector(float (&sum)[Numbers::N], float weight, uint4 v)
{
    float x[Numbers::N];
    Numbers::widen(v, x);
#pragma unroll
    for (int i = 0; i < Numbers::N; i++)
        sum[i] = __fadd_rn(sum[i], __fmul_rn(weight, x[i]));
}

/* How many sums there are. */
SYC_INLINE int64_t all_sums(const reduce &job, int64_t most)
{
    return job.p.args.layout == SY_LAYOUT_PADDED ? most : min(most, (int64_t)__ldcg(job.n_sums));
}

/* Rows of any number and alignment, a vector for each thread at a time. */
template <sy_type T, bool WIDE>
static __global__ void __launch_bounds__(SYC_GROUP_THREADS)
    reduce_sum(const __grid_constant__ reduce job, int64_t most, const __grid_constant__ syc_groups groups,
               const __grid_constant__ syc_gate gate)
{
    typedef syc_row_numbers<T, WIDE> Numbers;
    enum { AHEAD = 4 };
    const struct syc_place p = syc_place_of(groups, blockIdx.x);
    if (!syc_may_write(gate) || p.item >= all_sums(job, most))
        return;
    const u32 n = job.apart > 0 ? __ldcg(job.n + p.item) : 0;
    if (n == 0 && job.p.args.fill == SY_FILL_KEEP)
        return;
#pragma unroll 1
    for (int64_t at = p.begin + p.offset; at < p.end; at += 1 << groups.shift) {
        u8 *const to = syc_out_row(job.p.output, p.item);
        const typename Numbers::At place =
            Numbers::place([&] { return to; }, at, job.p.hidden * Numbers::SIZE);
        float sum[Numbers::N] = {};
#pragma unroll 1
        for (u32 k0 = 0; k0 < n; k0 += AHEAD) {
            uint2 of[AHEAD]; /* struct entry */
            typename Numbers::V held[AHEAD];
#pragma unroll
            for (u32 k = 0; k < AHEAD; k++)
                of[k] = __ldcg((const uint2 *)(job.entry + p.item * job.apart + min(k0 + k, n - 1)));
#pragma unroll
            for (u32 k = 0; k < AHEAD; k++)
                held[k] = Numbers::load(syc_row(job.p.input, of[k].x), place);
#pragma unroll
            for (u32 k = 0; k < AHEAD; k++)
                if (k0 + k < n)
                    add_vector<Numbers>(sum, __uint_as_float(of[k].y),
                                        Numbers::take(held[k], syc_row(job.p.input, of[k].x), place));
        }
        Numbers::store(to, place, Numbers::narrow(sum));
    }
}

/*
 * Aligned rows that are long enough, where there are bulk loads and slots are not many: pieces of rows go
 * through a ring of stages in shared memory. The last warp of a block starts the loads of many and leaves an
 * order with each, the others add up what has arrived. Blocks take their first two sums, or parts of them, by
 * their numbers, and further ones as they get ready for them.
 */
enum {
    ADDERS = 256,      /* threads of a block that add */
    ADDER_VECTORS = 2, /* of a piece for each of them, at most */
    MOST_PIECE = ADDERS * ADDER_VECTORS * 16,
};

struct ring {
    syc_split parts; /* of a row */
    int64_t row_bytes;
    int piece, stages; /* bytes of a part; how many the ring holds */
};

/* What is done with a stage. */
struct alignas(16) order {
    u8 *to; /* the sum is complete and goes there; NULL: not yet */
    float weight;
    u32 bytes; /* of the piece, and 1 where nothing is added; 0: all is done */
};

/* How many rows a sum has, and, in lane k of a warp, row k. */
struct listed {
    u32 n;
    uint2 of; /* struct entry */

    SYC_INLINE listed load(const reduce &job, int64_t sum, bool in)
    {
        const bool has = in && syc_lane() < job.p.n_slots;
        return {in ? __ldcg(job.n + sum) : 0,
                has ? __ldcg((const uint2 *)(job.entry + sum * job.apart + syc_lane())) : make_uint2(0, 0)};
    }
};

/* Stages in turns: the phase of a barrier changes when all have been used. */
struct ring_stage {
    int at;
    u32 turn;

    __device__ __forceinline__ void advance(const struct ring &ring)
    {
        turn ^= at + 1 == ring.stages;
        at = at + 1 == ring.stages ? 0 : at + 1;
    }
};

/* Adds up stages until all is done. */
template <class Numbers>
SYC_INLINE void add_stages(const struct ring &ring, const u8 *memory, const struct order *orders,
                           syc_barrier *full, syc_barrier *empty)
{
    float all[ADDER_VECTORS][Numbers::N] = {};
#pragma unroll 1
    for (ring_stage stage = {0, 0};; stage.advance(ring)) {
        syc_barrier_wait(full + stage.at, stage.turn);
        const struct order order = orders[stage.at];
        const u32 bytes = order.bytes & ~1u;
        if (bytes == 0)
            return;
        if (order.bytes == bytes)
#pragma unroll
            for (int u = 0; u < ADDER_VECTORS; u++)
                if ((threadIdx.x + u * ADDERS) * 16 < bytes)
                    add_vector<Numbers>(
                        all[u], order.weight,
                        ((const uint4 *)(memory + stage.at * ring.piece))[threadIdx.x + u * ADDERS]);
        __syncwarp();
        if (syc_lane() == 0)
            syc_barrier_arrive(empty + stage.at);
        if (order.to == NULL)
            continue;
#pragma unroll
        for (int u = 0; u < ADDER_VECTORS; u++) {
            if ((threadIdx.x + u * ADDERS) * 16 < bytes)
                Numbers::store(order.to, threadIdx.x + u * ADDERS, Numbers::narrow(all[u]));
#pragma unroll
            for (int j = 0; j < Numbers::N; j++)
                all[u][j] = 0.0f;
        }
    }
}

template <sy_type T>
static __global__ void __launch_bounds__(ADDERS + 32, exchange_policy::RING_BLOCKS)
    reduce_ring(const __grid_constant__ reduce job, int64_t most, const __grid_constant__ struct ring ring,
                const __grid_constant__ syc_gate gate)
{
    SYC_DYNAMIC_SHARED(u8, memory); /* [stages][piece] */
    __shared__ syc_barrier full[exchange_policy::RING_STAGES], empty[exchange_policy::RING_STAGES];
    __shared__ struct order orders[exchange_policy::RING_STAGES];
    const bool loads = syc_warp() == ADDERS / 32;
    if (!SYC_BULK)
        return;
    if (threadIdx.x == 0) {
#pragma unroll 1
        for (int i = 0; i < ring.stages; i++) {
            syc_barrier_init(full + i, 1);
            syc_barrier_init(empty + i, ADDERS / 32);
        }
        syc_barrier_fence();
    }
    syc_wait_for_previous();
    int64_t q = blockIdx.x, next_q = q + gridDim.x, end = most * ring.parts.d;
    listed list = {}, next = {};
    if (loads) { /* lists past the end may be anything, and are not used */
        list = listed::load(job, syc_quotient(q, ring.parts), q < end);
        next = listed::load(job, syc_quotient(next_q, ring.parts), next_q < end);
        end = all_sums(job, most) * ring.parts.d;
    }
    if (!syc_all_clear(gate, syc_sees_fault(gate))) /* a barrier, too */
        return;
    if (!loads) {
        add_stages<syc_numbers<T, true>>(ring, memory, orders, full, empty);
        return;
    }
    ring_stage stage = {0, 0};
    const auto put = [&](u8 *to, float weight, u32 bytes, const u8 *from) {
        syc_barrier_wait(empty + stage.at, stage.turn ^ 1);
        if (syc_lane() == 0) {
            orders[stage.at] = {to, weight, bytes};
            syc_barrier_expect(full + stage.at, from != NULL ? bytes : 0);
            if (from != NULL)
                syc_bulk_load(memory + stage.at * ring.piece, from, bytes, full + stage.at);
        }
        stage.advance(ring);
    };
#pragma unroll 1
    while (q < end) {
        const int64_t sum = syc_quotient(q, ring.parts), offset = (q - sum * ring.parts.d) * ring.piece;
        const u32 bytes = (u32)min((int64_t)ring.piece, ring.row_bytes - offset);
        u8 *const to = syc_out_row(job.p.output, sum) + offset;
        const u64 taken = syc_lane() == 0 ? atomicAdd(job.taken, 1ull) : 0;
#pragma unroll 1
        for (u32 k = 0; k < list.n; k++) {
            const u32 row = __shfl_sync(SYC_ALL_LANES, list.of.x, (int)k);
            const float weight = __uint_as_float(__shfl_sync(SYC_ALL_LANES, list.of.y, (int)k));
            put(k + 1 == list.n ? to : NULL, weight, bytes, syc_row(job.p.input, row) + offset);
        }
        if (list.n == 0 && job.p.args.fill != SY_FILL_KEEP)
            put(to, 0.0f, bytes | 1, NULL);
        q = next_q;
        list = next;
        next_q = 2 * (int64_t)gridDim.x + (int64_t)__shfl_sync(SYC_ALL_LANES, taken, 0);
        next = listed::load(job, syc_quotient(next_q, ring.parts), next_q < end);
    }
    put(NULL, 0.0f, 0, NULL);
}

/* The most there can be. */
static int64_t sums_of(const syi_local_reduce_plan *p)
{
    return p->args.layout == SY_LAYOUT_EXPERT && p->out_rows < p->n_tokens ? p->out_rows : p->n_tokens;
}

/* For syc_by_type. */
struct launch_sum {
    syc_call *call;
    reduce job;

    template <sy_type T, bool WIDE> void run() const
    {
        const int64_t items = sums_of(&job.p), row_bytes = job.p.hidden * syc_numbers<T, WIDE>::SIZE;
        const syc_groups groups =
            syc_groups_of(items, syc_row_numbers<T, WIDE>::count(job.p.hidden), 1, call->device->processors);
        if (items == 0)
            syc_only_report(call);
        else if (syc_takes(call, "ring",
                           !WIDE                         ? "rows are not aligned to 16 bytes"
                           : !syc_has_bulk(call->device) ? "the device has no bulk loads"
                           : job.p.n_slots == 0 || job.p.n_slots > 32
                               ? "a token has more than 32 choices, or none"
                           : row_bytes < exchange_policy::RING_LEAST_ROW ? "rows are short"
                                                                         : NULL))
            launch_ring<T>(items, row_bytes);
        else if (syc_takes(call, "groups"))
            syc_launch(&call->queue, reduce_sum<T, WIDE>, SYC_EARLY, syc_groups_blocks(&groups, items),
                       SYC_GROUP_THREADS, 0, job, items, groups, call->gate);
    }
    template <sy_type T> void launch_ring(int64_t items, int64_t row_bytes) const
    {
        const int64_t parts = syc_ceil(row_bytes, MOST_PIECE), piece = syc_ceil(row_bytes, 16 * parts) * 16,
                      fit = exchange_policy::RING_BYTES / piece;
        const int64_t most = exchange_policy::RING_BLOCKS * (int64_t)call->device->processors,
                      all = items * parts;
        const struct ring ring = {
            syc_split_by(parts, all + 3 * most), row_bytes, (int)piece,
            (int)(fit < exchange_policy::RING_STAGES ? fit : (int64_t)exchange_policy::RING_STAGES)};
        syc_launch(&call->queue, reduce_ring<T>, SYC_EARLY, all < most ? all : most, ADDERS + 32,
                   (size_t)(ring.stages * ring.piece), job, items, ring, call->gate);
    }
};

/* For syc_sum_coded_rows. */
struct coded_sums {
    reduce job;

    __device__ u8 *to(int64_t item) const
    {
        const bool there = job.p.args.layout == SY_LAYOUT_PADDED || item < (int64_t)__ldcg(job.n_sums);
        return there && !(job.p.args.fill == SY_FILL_KEEP && __ldcg(job.n + item) == 0)
                   ? syc_out_row(job.p.output, item)
                   : NULL;
    }
    __device__ int64_t n_rows(int64_t item) const { return __ldcg(job.n + item); }
    __device__ syc_coded_row row_at(int64_t item, int64_t k) const
    {
        const uint2 found = __ldcg((const uint2 *)(job.entry + item * job.apart + k));
        return {(int64_t)found.x, __uint_as_float(found.y)};
    }
};
