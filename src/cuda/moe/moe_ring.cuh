/*
 * Rings of stages in shared memory for the rows of tokens. A producer warp keeps bulk loads on their way,
 * other warps work on what has arrived. An item is a piece of all rows of one token; a stage holds one item.
 * Blocks are persistent, one per multiprocessor, and take tokens blockIdx.x, blockIdx.x + gridDim.x and so
 * on, so that the device works in one window of the rows of each expert.
 */
#pragma once

#include "cuda/moe/moe_sums.cuh"

enum {
    /* threads that take the vectors of a piece; those of several items if it is short */
    SYC_WORKERS = 512,
    SYC_ITEM_PIECE = SYC_WORKERS * 16,
    SYC_ITEM_STAGES = 48,
    SYC_ITEM_MEMORY = 192 * 1024,    /* leaves room beside it for the kernel that validates */
    SYC_MORE_THAN_HALF = 116 * 1024, /* of a multiprocessor, so that no two blocks share one */
    /* loaded before the verdict: what loads come after them waits for all of them */
    SYC_ITEM_EARLY = 128 * 1024
};

enum syc_beside { SYC_NOTHING, SYC_WEIGHTS, SYC_EXPERTS }; /* what is loaded with the rows of slots */

struct syc_items {
    int64_t row_bytes;
    int piece, pieces; /* bytes; of a row */
    int apart;         /* bytes from a row of a stage to the next */
    int rows, stages;  /* of a stage; of the ring */
    int shift;         /* log2 of the workers of an item */
    syc_divisor by_pieces;
};

static inline int64_t syc_items_memory(const syc_device *device)
{
    const int64_t most = device->shared_bytes - 8 * 1024;
    return most < SYC_ITEM_MEMORY ? most : (int64_t)SYC_ITEM_MEMORY;
}

/*
 * Pieces are multiples of `unit` bytes, `gap` bytes apart, and at most `most`; there are `least` stages or
 * more. With `groups`, workers of several items take them in turns: each stage always serves the same of
 * them.
 */
static inline syc_items syc_items_of(const syc_device *device, int64_t row_bytes, int rows, int unit, int gap,
                                     int64_t most, int least, bool groups)
{
    syc_items r = {row_bytes, 0, 0, 0, rows, 0, 5, {1, 0, 0}};
    const int64_t memory = syc_items_memory(device), fits = memory / (least * rows) - gap;
    for (most = most < fits ? most : fits; r.stages < least; most = most * 7 / 8) {
        const int64_t pieces = (row_bytes + most - 1) / most,
                      even = ((row_bytes + pieces - 1) / pieces + unit - 1) / unit * unit;
        r.piece = (int)(even <= most ? even : most / unit * unit);
        r.pieces = (int)((row_bytes + r.piece - 1) / r.piece);
        r.apart = r.piece + gap;
        for (r.shift = 5; (16 << r.shift) < r.piece;)
            r.shift++;
        const int turns = groups ? SYC_WORKERS >> r.shift : 1;
        const int64_t stages = memory / (rows * (int64_t)r.apart);
        r.stages = (int)(stages < SYC_ITEM_STAGES ? stages : (int64_t)SYC_ITEM_STAGES) / turns * turns;
    }
    r.by_pieces = syc_divisor_of((u32)r.pieces);
    return r;
}

/* Bytes of dynamic shared memory. */
static inline size_t syc_items_bytes(const syc_device *device, const syc_items *r)
{
    const int64_t used = (int64_t)r->stages * r->rows * r->apart, most = syc_items_memory(device);
    return (size_t)(used > SYC_MORE_THAN_HALF   ? used
                    : most < SYC_MORE_THAN_HALF ? most
                                                : (int64_t)SYC_MORE_THAN_HALF);
}

/* Where an item is: token, piece, stage, and how often the ring was passed. */
struct syc_cursor {
    int64_t t;
    int piece, stage;
    u32 turn;

    /* To the n-th item after it. The number of stages is a multiple of n, or n is 1. */
    __device__ __forceinline__ void advance(const syc_items &r, int n = 1)
    {
        for (piece += n; piece >= r.pieces; t += gridDim.x)
            piece -= r.pieces;
        stage += n;
        if (stage >= r.stages) {
            stage -= r.stages;
            turn ^= 1;
        }
    }
    __device__ __forceinline__ int64_t offset(const syc_items &r) const { return (int64_t)piece * r.piece; }
    __device__ __forceinline__ u32 bytes(const syc_items &r) const
    {
        return (u32)min((int64_t)r.piece, r.row_bytes - offset(r));
    }
    template <typename V> __device__ __forceinline__ V *row(V *memory, const syc_items &r, int i) const
    {
        return memory + (stage * r.rows + i) * r.apart;
    }
};

/*
 * Rows and weights, or experts, of the items that a warp takes, `step` apart, which are loaded long before
 * they are needed: the lanes hold those of as many items as there is room for, and nothing is computed from a
 * number before its turn. A load takes as long as all the bulk loads ahead of it: some microseconds.
 */
struct syc_slots_ahead {
    int shift, i, step; /* log2 of the lanes of an item; the next one of those that are held */
    u32 item;           /* the first one of those that are loaded */
    int32_t raw;
    float raw_weight;
    /* Lane (i << shift) + k has slot k. */
    int32_t row;  /* or -1 */
    float weight; /* or the number of an expert, as bits */

    __device__ __forceinline__ bool slot_at(const syc_moe_lists &l, const syc_items &r, int64_t *slot) const
    {
        const u32 own = item + (u32)((syc_lane() >> shift) * step),
                  j = r.pieces == 1 ? own : syc_divide(own, r.by_pieces);
        const int64_t t = blockIdx.x + (int64_t)j * gridDim.x;
        const int k = syc_lane() & ((1 << shift) - 1);
        *slot = t * l.n_slots + k;
        return t < l.n_tokens && k < l.n_slots;
    }
    __device__ __forceinline__ void load(const syc_moe_lists &l, const syc_items &r, syc_beside beside)
    {
        int64_t slot;
        const bool in = slot_at(l, r, &slot);
        raw = INT32_MIN;
        raw_weight = 1.0f;
        if (in)
            raw = (int32_t)syc_load<u32>(l.indices + slot * 4);
        if (in && beside == SYC_EXPERTS)
            raw_weight = __uint_as_float((u32)__ldcg(l.experts + slot));
        else if (in && beside == SYC_WEIGHTS && l.weights != NULL)
            raw_weight = __ldcg(l.weights + slot);
        else if (in && beside == SYC_WEIGHTS && l.probs.data != NULL) {
            const int64_t t = syc_quotient(slot, l.by_token);
            raw_weight = syc_prob(l, t, slot - t * l.n_slots);
        }
    }
    __device__ __forceinline__ void begin(const syc_moe_lists &l, const syc_items &r, syc_beside beside,
                                          int first, int apart)
    {
        for (shift = 0; (1 << shift) < l.n_slots;)
            shift++;
        item = (u32)first;
        step = apart;
        i = 32 >> shift;
        load(l, r, beside);
    }
    /* The lane of slot 0 of the next item. */
    __device__ __forceinline__ int next(const syc_moe_lists &l, const syc_items &r, syc_beside beside)
    {
        if (i == 32 >> shift) {
            const int64_t own = (int64_t)raw - l.row_begin;
            row = own >= 0 && own < l.n_rows ? (int32_t)own : -1;
            weight = raw_weight;
            item += (u32)((32 >> shift) * step);
            load(l, r, beside);
            i = 0;
        }
        return i++ << shift;
    }
};

/* Lists the experts and weights of this block's tokens by the workers, while the kernel before validates:
   nothing but scratch. */
SYC_INLINE void syc_list_tokens(const syc_moe_lists &l)
{
    const int lanes = syc_map_lanes(l.n_experts), each = 32 / lanes;
    const int64_t step = (int64_t)(SYC_WORKERS / 32) * each * gridDim.x,
                  first = blockIdx.x + (int64_t)syc_warp() * each * gridDim.x;
    const int64_t own = (int64_t)(syc_lane() / lanes) * gridDim.x;
    const auto map_of = [&](int64_t t) { return t < l.n_tokens ? syc_row(l.map, t) : NULL; };
    u64 next = syc_first_bytes(map_of(first + own), l.n_experts, lanes);
#pragma unroll 1
    for (int64_t t0 = first; t0 < l.n_tokens; t0 += step) {
        const u64 bytes = next;
        next = syc_first_bytes(map_of(t0 + step + own), l.n_experts, lanes);
        syc_list_token(l, t0 + own, map_of(t0 + own), lanes, bytes);
    }
}

/* Which slots of an item have a row, as bits. */
SYC_INLINE u32 syc_live_slots(const syc_moe_lists &l, int32_t row, int first)
{
    return __ballot_sync(SYC_ALL_LANES, row >= 0) >> first & ((1u << l.n_slots) - 1u);
}

/* The weight of slot `lane`, from those of the item; with l.weights they are those of its rows, one after the
   other. */
SYC_INLINE float syc_slot_weight(const syc_moe_lists &l, float weight, int first, u32 live)
{
    return __shfl_sync(SYC_ALL_LANES, weight,
                       (first + (l.weights != NULL ? __popc(live & syc_lanes_below()) : syc_lane())) & 31);
}

/* Barriers of the stages, by thread 0; all others wait for it. */
SYC_INLINE void syc_items_begin(const syc_items &r, syc_barrier *full, syc_barrier *empty, int arrivals)
{
    if (threadIdx.x == 0) {
#pragma unroll 1
        for (int i = 0; i < r.stages; i++) {
            syc_barrier_init(full + i, 1);
            syc_barrier_init(empty + i, (u32)arrivals);
        }
        syc_barrier_fence();
    }
    __syncthreads();
}

/*
 * Waits for the validation; returns whether the block may write. The producer starts some loads before it,
 * and goes on with all others until the last item, or, when nothing may be written, waits for those it
 * started: loads must end before the block does. `load(cursor, row)`, by the whole warp, loads an item; `row`
 * is that of slot `lane` of its token.
 */
template <class Load>
SYC_INLINE bool syc_items_run(const syc_moe_lists &l, const syc_items &r, syc_barrier *full,
                              syc_barrier *empty, bool producer, const syc_gate &gate, const Load &load)
{
    syc_cursor c = {blockIdx.x, 0, 0, 0};
    syc_slots_ahead ahead;
    const auto load_next = [&] {
        const int first = ahead.next(l, r, SYC_NOTHING);
        const int32_t row = __shfl_sync(SYC_ALL_LANES, ahead.row, (first + syc_lane()) & 31);
        load(c, syc_lane() < l.n_slots ? row : -1);
        c.advance(r);
    };
    const int early = min(r.stages, max(1, SYC_ITEM_EARLY / (r.rows * r.apart)));
    int started = 0;
    if (producer) {
        ahead.begin(l, r, SYC_NOTHING, 0, 1);
#pragma unroll 1
        for (; started < early && c.t < l.n_tokens; started++)
            load_next();
    }
    const bool good = syc_may_write(gate);
    if (producer) {
#pragma unroll 1
        for (int i = 0; i < started && !good; i++)
            syc_barrier_wait(full + i, 0);
#pragma unroll 1
        while (c.t < l.n_tokens && good) {
            syc_barrier_wait(empty + c.stage, c.turn ^ 1);
            load_next();
        }
    }
    return good;
}
