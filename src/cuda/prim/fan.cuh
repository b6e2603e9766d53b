/*
 * Fan-out: every source row is read once and written to several places.
 *
 * Places is a struct that knows them. Its functions read what kernels before wrote: `int64_t row(int64_t t,
 * int64_t j)`, the place of slot j of row t, -1 for none; `int64_t first_clear()`: rows from there on become
 * zero; `void clear(int64_t row)`, what else a cleared row needs. Contents were validated by a kernel before
 * (see device.cuh).
 */
#pragma once

#include "cuda/prim/bulk.cuh"
#include "cuda/prim/count.cuh"
#include "cuda/prim/rows.cuh"

struct syc_fan_shape {
    syi_rows from, to;
    int64_t n_from, n_slots, n_to; /* source rows, places of each, rows of `to` */
    int64_t bytes;                 /* of a row */
};

/* Of all addresses, distances and sizes. */
static inline u64 syc_fan_alignment(const syc_fan_shape *s)
{
    return (u64)(uintptr_t)s->from.data | (u64)s->from.stride | (u64)(uintptr_t)s->to.data |
           (u64)s->to.stride | (u64)s->bytes;
}

/* ---- A block per row, or per part of one: its vectors in registers, or its bytes in shared memory ---- */

enum { SYC_FAN_SLOTS = 64 }; /* places that are in shared memory at a time */

/* A part is `width` vectors of `all`. */
template <class Places>
static __global__ void __launch_bounds__(SYC_MOVE_THREADS, 6)
    syc_fan_part(const Places places, const syc_fan_shape s, u32 parts, u32 width, u32 all,
                 const __grid_constant__ syc_gate gate)
{
    __shared__ int rows[SYC_FAN_SLOTS];
    const u32 t = blockIdx.x / parts, part = blockIdx.x - t * parts, begin = part * width;
    const u32 own = begin < all ? min(width, all - begin) : 0, step = SYC_MOVE_AHEAD * SYC_MOVE_THREADS;
    typedef uint4 V;
    const V *const from = (const V *)(s.from.data + t * s.from.stride) + begin;
    const int k = (int)s.n_slots;
    V held[SYC_MOVE_AHEAD];
    const auto load = [&](u32 first) {
#pragma unroll
        for (int u = 0; u < SYC_MOVE_AHEAD; u++) {
            if (first + (u32)u * SYC_MOVE_THREADS < own)
                held[u] = __ldcs(from + first + u * SYC_MOVE_THREADS);
        }
    };
    const auto read_rows = [&](int j0) {
        if (threadIdx.x < SYC_FAN_SLOTS && j0 + (int)threadIdx.x < k)
            rows[threadIdx.x] = (int)places.row(t, j0 + threadIdx.x);
    };
    load(threadIdx.x);
    syc_wait_for_previous();
    const bool bad = syc_sees_fault(gate);
    const int64_t clear = places.first_clear();
    read_rows(0);
    if (!syc_all_clear(gate, bad))
        return;
#pragma unroll 1
    for (u32 first = 0;;) {
#pragma unroll 1
        for (int j0 = 0; j0 < k; j0 += SYC_FAN_SLOTS) {
            if (k > SYC_FAN_SLOTS && (first > 0 || j0 > 0)) {
                __syncthreads();
                read_rows(j0);
                __syncthreads();
            }
#pragma unroll 1
            for (int j = 0; j < min((int)SYC_FAN_SLOTS, k - j0); j++) {
                const u32 v = first + threadIdx.x;
                V *const to = (V *)(s.to.data + rows[j] * s.to.stride) + begin + v;
                if (rows[j] >= 0)
#pragma unroll
                    for (int u = 0; u < SYC_MOVE_AHEAD; u++)
                        if (v + (u32)u * SYC_MOVE_THREADS < own)
                            __stcs(to + u * SYC_MOVE_THREADS, held[u]);
            }
        }
        first += step;
        if (first >= own)
            break;
        load(first + threadIdx.x);
    }
#pragma unroll 1
    for (int64_t row = clear + t; row < s.n_to; row += s.n_from) {
#pragma unroll 1
        for (u32 v = threadIdx.x; v < own; v += SYC_MOVE_THREADS)
            __stcs((V *)(s.to.data + row * s.to.stride) + begin + v, syc_zero<V>());
        if (part == 0 && threadIdx.x == 0)
            places.clear(row);
    }
}

/* Bytes of a row in shared memory, beside what windows at their ends need. */
enum { SYC_FAN_CHUNK = (SYC_MOVE_AHEAD * SYC_MOVE_THREADS - 1) * 16 };

/* The same for any rows: they are kept as they lie in memory, and leave in windows of each place. */
/* NOLINT(readability-function-size): loads of what comes next are between the steps of this one */
template <class Places>
static __global__ void __launch_bounds__(SYC_MOVE_THREADS, 6)
    syc_fan_windows(const Places places, const syc_fan_shape s, u32 parts, u32 width,
                    const __grid_constant__ syc_gate gate)
{
    __shared__ uint4 held[SYC_FAN_CHUNK / 16 + 4]; /* from the second on */
    __shared__ int rows[SYC_FAN_SLOTS];
    const u32 t = blockIdx.x / parts, part = blockIdx.x - t * parts;
    const int64_t begin = (int64_t)part * width * 16, own = min((int64_t)width * 16, s.bytes - begin);
    const u8 *const from = s.from.data + t * s.from.stride + begin;
    const int k = (int)s.n_slots;
    const auto load = [&](int64_t first, int n) {
        const u8 *const row = from + first;
        const int apart = (int)((uintptr_t)row & 15);
        syc_window own[SYC_MOVE_AHEAD];
#pragma unroll
        for (int u = 0; u < SYC_MOVE_AHEAD; u++)
            own[u] = syc_load_window(row, n, ((int)threadIdx.x + u * SYC_MOVE_THREADS) * 16 - apart);
#pragma unroll
        for (int u = 0; u < SYC_MOVE_AHEAD; u++) {
            const int i = (int)threadIdx.x + u * SYC_MOVE_THREADS;
            held[1 + i] = syc_shift_window(own[u], row, n, i * 16 - apart);
        }
    };
    const auto read_rows = [&](int j0) {
        if (threadIdx.x < SYC_FAN_SLOTS && j0 + (int)threadIdx.x < k)
            rows[threadIdx.x] = (int)places.row(t, j0 + threadIdx.x);
    };
    load(0, (int)min(own, (int64_t)SYC_FAN_CHUNK));
    syc_wait_for_previous();
    const bool bad = syc_sees_fault(gate);
    const int64_t clear = places.first_clear();
    read_rows(0);
    if (!syc_all_clear(gate, bad))
        return;
#pragma unroll 1
    for (int64_t first = 0; first < own; first += SYC_FAN_CHUNK) {
        const int n = (int)min(own - first, (int64_t)SYC_FAN_CHUNK), windows = (int)syc_windows(n),
                  apart = 16 + (int)((uintptr_t)(from + first) & 15);
#pragma unroll 1
        for (int j0 = 0; j0 < k; j0 += SYC_FAN_SLOTS) {
            if (first > 0 || j0 > 0) {
                __syncthreads();
                if (j0 == 0)
                    load(first, n);
                if (k > SYC_FAN_SLOTS)
                    read_rows(j0);
                __syncthreads();
            }
            int j = 0;
#pragma unroll 1
            for (int i = (int)threadIdx.x;; i += SYC_MOVE_THREADS) {
                for (; i >= windows && j < min((int)SYC_FAN_SLOTS, k - j0); j++)
                    i -= windows;
                if (j >= min((int)SYC_FAN_SLOTS, k - j0))
                    break;
                u8 *const to = s.to.data + rows[j] * s.to.stride + begin + first;
                const int at = (int)syc_window_at(to, i, 1), place = at + apart;
                if (rows[j] >= 0 && at < n)
                    syc_store_window(to, n, at,
                                     syc_shift_bytes({held[place / 16], held[place / 16 + 1]}, place % 16));
            }
        }
    }
#pragma unroll 1
    for (int64_t row = clear + t; row < s.n_to; row += s.n_from) {
        u8 *const to = s.to.data + row * s.to.stride + begin;
#pragma unroll 1
        for (int64_t i = threadIdx.x; i < syc_windows(own); i += SYC_MOVE_THREADS)
            syc_store_window(to, own, syc_window_at(to, i, 1), make_uint4(0, 0, 0, 0));
        if (part == 0 && threadIdx.x == 0)
            places.clear(row);
    }
}

/* Parts of a row, so that there are three blocks for each multiprocessor, and at most 2^20 vectors in a
   part. */
template <class Places>
static void syc_fan_parts(syc_call *call, const Places &places, const syc_fan_shape *s)
{
    const int64_t vectors = syc_ceil(s->bytes, 16), least = syc_ceil(vectors, (int64_t)1 << 20);
    const int64_t wanted = syc_ceil(grid_policy::PARTS * (int64_t)call->device->processors, s->n_from),
                  useful = syc_ceil(vectors, SYC_MOVE_THREADS / 2);
    const int64_t some = wanted < useful ? wanted : useful, parts = some > least ? some
                                                                    : least > 1  ? least
                                                                                 : 1;
    const u32 width = (u32)syc_ceil(vectors, parts);
    if (syc_fan_alignment(s) % 16 == 0)
        syc_launch(&call->queue, syc_fan_part<Places>, SYC_EARLY, s->n_from * parts, SYC_MOVE_THREADS, 0,
                   places, *s, (u32)parts, width, (u32)vectors, call->gate);
    else
        syc_launch(&call->queue, syc_fan_windows<Places>, SYC_EARLY, s->n_from * parts, SYC_MOVE_THREADS, 0,
                   places, *s, (u32)parts, width, call->gate);
}

/* ---- A ring of rows in shared memory ---- */

enum { SYC_RING_THREADS = 512, SYC_RING_STAGES = 64, SYC_RING_BYTES = 196 * 1024 };

/* Rows from `row` on, every step-th, become zero. */
template <class Places>
static __device__ __forceinline__ void syc_fan_clear(const Places &places, const syc_fan_shape &s,
                                                     int64_t row, int64_t step)
{
#pragma unroll 1
    for (; row < s.n_to; row += step) {
#pragma unroll 1
        for (u32 v = threadIdx.x; v < (u32)(s.bytes / 16); v += blockDim.x)
            __stcs((uint4 *)(s.to.data + row * s.to.stride) + v, make_uint4(0, 0, 0, 0));
        if (threadIdx.x == 0)
            places.clear(row);
    }
}

/*
 * Block c moves rows c, c + G, c + 2G ..., so that the whole device works in one window of the source. A
 * block fills its ring by bulk loads, the first time before the verdict, stores all of it, and fills it
 * again: memory runs faster when it reads and writes in turns.
 */
/* NOLINT(readability-function-size): loads of what comes next are between the steps of this one */
template <class Places>
static __global__ void __launch_bounds__(SYC_RING_THREADS, 1)
    syc_fan_ring(const Places places, const syc_fan_shape s, int stages, const syc_divisor by_k,
                 const __grid_constant__ syc_gate gate)
{
    SYC_DYNAMIC_SHARED(u8, ring); /* stages rows, then the places of two rounds */
    __shared__ syc_barrier full[SYC_RING_STAGES];
    if (!SYC_BULK)
        return;
    const u32 bytes = (u32)s.bytes, width = bytes / 16;
    const int64_t c = blockIdx.x, step = gridDim.x, n = (s.n_from - c + step - 1) / step;
    const int k = (int)s.n_slots;
    int *const rows = (int *)(ring + (u32)stages * bytes);
    const auto fill = [&](int64_t p) {
#pragma unroll 1
        for (int i = 0; i < (int)min((int64_t)stages, n - p); i++) {
            syc_barrier_expect(&full[i], bytes);
            syc_bulk_load(ring + (u32)i * bytes, s.from.data + (c + (p + i) * step) * s.from.stride, bytes,
                          &full[i]);
        }
    };
    const auto read_rows = [&](int64_t p, u32 round) {
        int *const to = rows + (round & 1) * (u32)(stages * k);
#pragma unroll 1
        for (u32 i = threadIdx.x; (int64_t)i < min((int64_t)stages, n - p) * k; i += SYC_RING_THREADS) {
            const u32 slot = syc_divide(i, by_k);
            to[i] = (int)places.row(c + (p + slot) * step, i - slot * by_k.d);
        }
    };
    if (threadIdx.x == 0) {
#pragma unroll 1
        for (int i = 0; i < stages; i++)
            syc_barrier_init(&full[i], 1);
        syc_barrier_fence();
        fill(0);
    }
    syc_wait_for_previous();
    const bool bad = syc_sees_fault(gate);
    const int64_t clear = places.first_clear();
    read_rows(0, 0);
    if (!syc_all_clear(gate, bad)) { /* loads must end before the block may */
        if (threadIdx.x == 0)
            for (int i = 0; i < (int)min((int64_t)stages, n); i++)
                syc_barrier_wait(&full[i], 0);
        return;
    }
    u32 round = 0;
#pragma unroll 1
    for (int64_t p = 0; p < n; p += stages, round++) {
        const int m = (int)min((int64_t)stages, n - p);
        const int *const now = rows + (round & 1) * (u32)(stages * k);
        if (p + stages < n)
            read_rows(p + stages, round + 1);
        int i = 0;
#pragma unroll 1
        for (u32 v = threadIdx.x;; v += SYC_RING_THREADS) {
            for (; v >= width && i < m; i++)
                v -= width;
            if (i >= m)
                break;
            syc_barrier_wait(&full[i], round & 1);
            const uint4 x = ((const uint4 *)(ring + (u32)i * bytes))[v];
#pragma unroll 1
            for (int j0 = 0; j0 < k; j0 += 8)
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    const int row = j0 + j < k ? now[i * k + j0 + j] : -1;
                    if (row >= 0)
                        __stcs((uint4 *)(s.to.data + row * s.to.stride) + v, x);
                }
        }
        __syncthreads();
        if (threadIdx.x == 0)
            fill(p + stages);
    }
    syc_fan_clear(places, s, clear + c, step);
}

static inline int64_t syc_ring_room(const syc_device *device, const syc_fan_shape *s)
{
    const int64_t own = device->shared_bytes - 2048;
    return (own < SYC_RING_BYTES ? own : (int64_t)SYC_RING_BYTES) / (s->bytes + 8 * s->n_slots);
}

/* The ring pays for many places of many rows. */
static inline const char *syc_ring_why_not(const syc_device *device, const syc_fan_shape *s)
{
    return !syc_has_bulk(device)                             ? "the device has no bulk loads"
           : syc_fan_alignment(s) % 16 != 0 || s->bytes == 0 ? "rows are not aligned to 16 bytes"
           : s->n_slots < 4 || s->n_slots > 64 ? "a row has fewer than 4 places, or more than 64"
           : s->n_from < moe_policy::RING_ROWS * (int64_t)device->processors
               ? "rows are fewer than 15 for each processor"
           : syc_ring_room(device, s) < 4 ? "four rows do not fit into shared memory"
                                          : NULL;
}

/* Most rows of a ring; 0: the rows are moved by parts. */
static inline int syc_ring_stages(const syc_device *device, const syc_fan_shape *s)
{
    if (syc_ring_why_not(device, s) != NULL)
        return 0;
    const int64_t most = syc_ring_room(device, s);
    const int64_t each = syc_ceil(s->n_from, device->processors),
                  rounds = syc_ceil(each, most < SYC_RING_STAGES ? most : (int64_t)SYC_RING_STAGES);
    return (int)syc_ceil(each, rounds); /* rounds of one length */
}

template <class Places>
static void syc_fan_rings(syc_call *call, const Places &places, const syc_fan_shape *s, int stages)
{
    /* one block at a time */
    const size_t used = (size_t)stages * (size_t)(s->bytes + 8 * s->n_slots), least = 116 * 1024;
    const size_t shared = used > least || call->device->shared_bytes < (int)least ? used : least;
    syc_prefer_shared(&call->queue, syc_fan_ring<Places>);
    syc_launch_large(&call->queue, syc_fan_ring<Places>, SYC_EARLY, call->device->processors,
                     SYC_RING_THREADS, shared, places, *s, stages, syc_divisor_of((u32)s->n_slots),
                     call->gate);
}

/* ---- Any rows ---- */

template <class Places> static void syc_fan(syc_call *call, const Places &places, const syc_fan_shape *s)
{
    const int stages = syc_ring_stages(call->device, s);
    if (s->n_from == 0)
        return;
    if (syc_takes(call, "ring", syc_ring_why_not(call->device, s))) {
        syc_fan_rings(call, places, s, stages);
        return;
    }
    syc_takes(call, "parts");
    syc_fan_parts(call, places, s);
}
