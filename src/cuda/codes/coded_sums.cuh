/*
 * Sums of rows that are codes. A block owns a part of the rows, the same for all of its sums; it lists the
 * rows of many sums in shared memory, one after the other, and each thread adds sixteen numbers of one while
 * those of the next are copied to its places there, in the order of the rows, from +0 on. Rows that are not
 * aligned are added a number at a time.
 *
 * Sums is a struct with `u8 *to(int64_t item)`, NULL where nothing is written, `int64_t n_rows(int64_t
 * item)`, and `row_at(int64_t item, int64_t k)`: a row of the plan's tensors, struct syc_coded_row, or of
 * any, struct syc_coded_place. All of them run after the kernels before.
 */
#pragma once

#include "plan/row_math.h"
#include "cuda/prim/block.cuh"
#include "cuda/codes/codes.cuh"
#include "cuda/prim/count.cuh"
#include "cuda/prim/load.cuh"
#include "cuda/prim/slots.cuh"

/* Most of a block; blocks of a multiprocessor; sums and rows that are listed together; rows on their way. */
enum {
    SYC_CODED_SUM_THREADS = 256,
    SYC_CODED_SUM_BLOCKS = 4,
    SYC_CODED_SUM_ITEMS = 32,
    SYC_CODED_SUM_ROWS = 256,
    SYC_CODED_SUM_AHEAD = 6
};

struct syc_coded_row {
    int64_t row; /* -1: none */
    float weight;
};

struct syc_coded_place {
    const u8 *codes, *scales; /* NULL: none */
    float weight;
};

SYC_INLINE syc_coded_place syc_coded_place_of(const syi_row_codes_plan &p, const syc_coded_row &row)
{
    return {row.row < 0 ? NULL : syc_row(p.codes, row.row), row.row < 0 ? NULL : syc_row(p.scales, row.row),
            row.weight};
}
SYC_INLINE syc_coded_place syc_coded_place_of(const syi_row_codes_plan &, const syc_coded_place &row)
{
    return row;
}

/* ---- To shared memory, asynchronously ---- */

/* 4 or 16 bytes, aligned to as many, for the thread that copies them; copies make groups, which end in
   order. */
template <typename V> SYC_INLINE void syc_copy(V *to, const void *from)
{
#ifdef SWITCHYARD_CUDA_EMULATED
    *to = *(const V *)from;
#else
    if constexpr (sizeof(V) == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)),
                     "l"(from)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((u32)__cvta_generic_to_shared(to)),
                     "l"(from)
                     : "memory");
#endif
}

SYC_INLINE void syc_end_copies()
{
#ifndef SWITCHYARD_CUDA_EMULATED
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* All groups but the last N have ended. */
template <int N> SYC_INLINE void syc_wait_copies()
{
#ifndef SWITCHYARD_CUDA_EMULATED
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

/* ---- Sums ---- */

/* Sixteen codes of any kind, exactly; a NaN has any payload. */
SYC_INLINE void syc_widen_codes(syi_code code, const uint4 &codes, float (&x)[SYC_PACK_UNIT])
{
    const u32 q[4] = {codes.x, codes.y, codes.z, codes.w};
    if (code == SYI_CODE_I8) {
#pragma unroll
        for (int j = 0; j < 4; j++)
            syc_four_codes(SYI_CODE_I8, q[j], x + 4 * j);
        return;
    }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    u32 two[8]; /* of f16: e5m2 is its upper half */
    if (code == SYI_CODE_E4M3) {
#pragma unroll
        for (int j = 0; j < 4; j++)
            asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h; "
                "}"
                : "=r"(two[2 * j]), "=r"(two[2 * j + 1])
                : "r"(q[j]));
    } else {
#pragma unroll
        for (int j = 0; j < 8; j++)
            two[j] = __byte_perm(q[j / 2], 0, j % 2 == 0 ? 0x1404 : 0x3424);
    }
#pragma unroll
    for (int j = 0; j < 8; j++) /* halves in place: an instruction for each number */
        asm("{ .reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
            : "=f"(x[2 * j]), "=f"(x[2 * j + 1])
            : "r"(two[j]));
#else
#pragma unroll
    for (int j = 0; j < SYC_PACK_UNIT; j++)
        x[j] = syi_code_to_f32(code, (u8)(q[j / 4] >> 8 * (j % 4)));
#endif
}

/* Whether e8m0 scales are copied four together, which are of one row; rows of all plans are aligned to 4
   bytes then. */
SYC_INLINE bool syc_has_words(const syi_row_codes_plan &p)
{
    return p.scale_bytes % 4 == 0;
}

/* Rows on their way to a thread: their sixteen codes, and the scale as it is stored, or with words four e8m0
   scales. */
struct syc_coded_ring {
    uint4 codes[SYC_CODED_SUM_AHEAD][SYC_CODED_SUM_THREADS];
    u32 scale[SYC_CODED_SUM_AHEAD][SYC_CODED_SUM_THREADS];
};

/* Codes next to each other from number `at` on, the sum of which is of type T. WIDE: sixteen, aligned to as
   many bytes. Else one. */
template <sy_type T, bool WIDE> struct syc_coded_numbers {
    enum { N = WIDE ? SYC_PACK_UNIT : 1 };

    SYC_INLINE void copy(const syi_row_codes_plan &p, const syc_coded_place &row, int64_t at, int64_t group,
                         syc_coded_ring *ring, int i)
    {
        syc_copy(&ring->codes[i][threadIdx.x], row.codes + at);
        if (p.e8m0 && !syc_has_words(p))
            ring->scale[i][threadIdx.x] = row.scales[group];
        else
            syc_copy(&ring->scale[i][threadIdx.x], row.scales + (p.e8m0 ? group & ~(int64_t)3 : 4 * group));
    }
    SYC_INLINE void add(float by, float weight, const float (&x)[N], float (&sum)[N])
    {
#pragma unroll
        for (int j = 0; j < N; j++)
            sum[j] = __fadd_rn(sum[j], __fmul_rn(weight, __fmul_rn(by, x[j])));
    }
    SYC_INLINE void add_copied(const syi_row_codes_plan &p, int64_t group, const syc_coded_ring *ring, int i,
                               float weight, float (&sum)[N])
    {
        const u32 scale = ring->scale[i][threadIdx.x];
        add_codes(p.code,
                  p.e8m0 ? syi_e8m0_to_f32((u8)(scale >> (syc_has_words(p) ? 8 * (group & 3) : 0)))
                         : __uint_as_float(scale),
                  weight, ring->codes[i][threadIdx.x], sum);
    }
    SYC_INLINE void add_codes(syi_code code, float by, float weight, const uint4 &codes, float (&sum)[N])
    {
        float x[N];
        syc_widen_codes(code, codes, x);
        add(by, weight, x, sum);
    }
    SYC_INLINE void add_row(const syi_row_codes_plan &p, const syc_coded_place &row, int64_t at,
                            int64_t group, float (&sum)[N])
    {
        const float x[1] = {syi_code_to_f32(p.code, row.codes[at])};
        add(syi_row_load_scale(&p, row.scales, group), row.weight, x, sum);
    }
    SYC_INLINE void store(u8 *to, int64_t at, const float (&sum)[N])
    {
        if constexpr (WIDE) {
            float half[2][SYC_UNIT];
            memcpy(half, sum, sizeof half);
            syc_eight<T>::narrow(half[0]).store(to, (u32)(at / SYC_UNIT));
            syc_eight<T>::narrow(half[1]).store(to, (u32)(at / SYC_UNIT) + 1);
        } else {
            syc_store_float(to + at * (T == SY_TYPE_F32 ? 4 : 2), T, syc_canonical(sum[0]));
        }
    }
};

/* A row of a list; `to` is where the sum goes that it is the last of, else NULL. */
struct syc_coded_entry {
    syc_coded_place row;
    u8 *to;
};

/* NOLINT(readability-function-size): loads of what comes next are between the steps of this one */
/* The sums of a block. n_parts: of a sum, each of a number for each thread, and of the blocks, which are a
   multiple. */
template <sy_type T, bool WIDE, class Sums>
SYC_INLINE void syc_sum_coded_parts(const syi_row_codes_plan &p, const Sums &sums, int64_t n_items,
                                    u32 n_parts)
{
    typedef syc_coded_numbers<T, WIDE> Numbers;
    enum { ITEMS = SYC_CODED_SUM_ITEMS, AHEAD = SYC_CODED_SUM_AHEAD };
    __shared__ syc_coded_entry list[SYC_CODED_SUM_ROWS];
    __shared__ typename std::conditional<WIDE, syc_coded_ring, int>::type ring;
    __shared__ int64_t end[ITEMS]; /* of the rows of each sum, among those of all */
    const u32 lane = blockIdx.x / n_parts, lanes = gridDim.x / n_parts;
    const int64_t at = ((int64_t)(blockIdx.x - lane * n_parts) * blockDim.x + threadIdx.x) * Numbers::N,
                  group = at / (int64_t)p.group;
    const bool in = group < p.n_groups;
    float sum[Numbers::N] = {};
#pragma unroll 1
    for (int64_t first = lane; first < n_items; first += (int64_t)ITEMS * lanes) {
        __syncthreads(); /* the last list was read */
        if (threadIdx.x < ITEMS) {
            const int64_t item = first + (int64_t)threadIdx.x * lanes;
            const bool writes = item < n_items && sums.to(item) != NULL;
            /* without rows: zeros */
            end[threadIdx.x] = (int64_t)syc_warp_prefix(writes ? (u64)max(sums.n_rows(item), (int64_t)1) : 0);
        }
        __syncthreads();
        const int64_t n_rows = end[ITEMS - 1];
#pragma unroll 1
        for (int64_t begin = 0; begin < n_rows; begin += SYC_CODED_SUM_ROWS) {
            const int m = (int)min(n_rows - begin, (int64_t)SYC_CODED_SUM_ROWS);
            if (begin > 0)
                __syncthreads();
#pragma unroll 1
            for (int e = (int)threadIdx.x; e < m; e += (int)blockDim.x) {
                int i = 0;
#pragma unroll
                for (int step = ITEMS / 2; step > 0; step /= 2)
                    i += end[i + step - 1] <= begin + e ? step : 0;
                const int64_t item = first + (int64_t)i * lanes, k = begin + e - (i > 0 ? end[i - 1] : 0);
                syc_coded_place row = {NULL, NULL, 0.0f};
                if (k < sums.n_rows(item))
                    row = syc_coded_place_of(p, sums.row_at(item, k));
                list[e] = {row, begin + e + 1 == end[i] ? sums.to(item) : NULL};
            }
            __syncthreads();
            const auto copy = [&](int e, int i) {
                if constexpr (WIDE) {
                    if (in && e < m && list[e].row.codes != NULL)
                        Numbers::copy(p, list[e].row, at, group, &ring, i);
                    syc_end_copies();
                }
            };
#pragma unroll 1
            for (int e = 0; e < AHEAD; e++)
                copy(e, e);
#pragma unroll 1
            for (int e = 0, i = 0; e < m; e++, i = i + 1 < AHEAD ? i + 1 : 0) {
                const syc_coded_entry entry = list[e];
                const bool adds = in && entry.row.codes != NULL;
                if constexpr (WIDE) {
                    syc_wait_copies<AHEAD - 1>();
                    if (adds)
                        Numbers::add_copied(p, group, &ring, i, entry.row.weight, sum);
                } else {
                    if (adds)
                        Numbers::add_row(p, entry.row, at, group, sum);
                }
                copy(e + AHEAD, i);
                if (entry.to == NULL)
                    continue;
                if (in)
                    Numbers::store(entry.to, at, sum);
#pragma unroll
                for (int j = 0; j < Numbers::N; j++)
                    sum[j] = 0.0f;
            }
        }
    }
}

template <sy_type T, bool WIDE, class Sums>
static __global__ void __launch_bounds__(SYC_CODED_SUM_THREADS, SYC_CODED_SUM_BLOCKS)
    syc_sum_coded(const __grid_constant__ syi_row_codes_plan p, const __grid_constant__ Sums sums,
                  int64_t n_items, u32 n_parts, const __grid_constant__ syc_gate gate)
{
    if (syc_may_write(gate))
        syc_sum_coded_parts<T, WIDE>(p, sums, n_items, n_parts);
}

/* Parts of a sum, threads of each, and blocks for all sums: of few sums the parts are short. */
struct syc_coded_shape {
    u32 n_parts;
    int threads;
    int64_t blocks;
};

template <sy_type T, bool WIDE>
static syc_coded_shape syc_coded_shape_of(const syc_call *call, const syi_row_codes_plan *p, int64_t n_items)
{
    const int64_t most = SYC_CODED_SUM_BLOCKS * (int64_t)call->device->processors;
    const int64_t units = syc_ceil(p->n_groups * (int64_t)p->group, syc_coded_numbers<T, WIDE>::N);
    int64_t n_parts = syc_ceil(units, SYC_CODED_SUM_THREADS);
    if (units == 0)
        return {1, 32, 0};
    while (n_items * n_parts * 2 <= most && units > n_parts * 64)
        n_parts *= 2;
    const int64_t lanes = most / n_parts < 1 ? 1 : most / n_parts;
    return {(u32)n_parts, (int)(syc_ceil(syc_ceil(units, n_parts), 32) * 32),
            n_parts * (n_items < lanes ? n_items : lanes)};
}

template <sy_type T, bool WIDE, class Sums>
static void syc_launch_coded_sums(syc_call *call, const syi_row_codes_plan *p, const Sums &sums,
                                  int64_t n_items)
{
    const syc_coded_shape shape = syc_coded_shape_of<T, WIDE>(call, p, n_items);
    syc_launch(&call->queue, syc_sum_coded<T, WIDE, Sums>, SYC_EARLY, shape.blocks, shape.threads, 0, *p,
               sums, n_items, shape.n_parts, call->gate);
}

/* Whether sixteen numbers are loaded and stored at a time. The bits are those of addresses and distances of
   all rows, `out` of the sums. */
static inline bool syc_sums_sixteens(const syi_row_codes_plan *p, u64 codes, u64 scales, u64 out)
{
    return p->group % SYC_PACK_UNIT == 0 && out % 16 == 0 && codes % SYC_PACK_UNIT == 0 &&
           ((p->e8m0 && p->scale_bytes % 4 != 0) || scales % 4 == 0);
}

/* Calls f.run<T, WIDE>() for the type of sums. */
template <class F> static void syc_by_sum(syi_float type, bool wide, const F &f)
{
    syc_by_type(type == SYI_FLOAT_F32   ? SY_TYPE_F32
                : type == SYI_FLOAT_F16 ? SY_TYPE_F16
                                        : SY_TYPE_BF16,
                wide ? 0 : 1, f);
}

/* For it: sums that other kernels validate. */
template <class Sums> struct syc_coded_sums {
    syc_call *call;
    const syi_row_codes_plan *p;
    const Sums &sums;
    int64_t n_items;
    template <sy_type T, bool WIDE> void run() const
    {
        syc_launch_coded_sums<T, WIDE>(call, p, sums, n_items);
    }
};

/* Of n_items sums, in rows of `to` that are of the plan's type. */
template <class Sums>
static void syc_sum_coded_rows(syc_call *call, const syi_row_codes_plan *p, syi_rows to, const Sums &sums,
                               int64_t n_items)
{
    if (n_items == 0 || p->group == 0 || p->n_groups == 0) {
        syc_only_report(call);
        return;
    }
    syc_by_sum(p->type,
               syc_sums_sixteens(p, syc_alignment(p->codes), syc_alignment(p->scales), syc_alignment(to)),
               syc_coded_sums<Sums>{call, p, sums, n_items});
}
