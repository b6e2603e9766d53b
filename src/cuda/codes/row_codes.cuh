/*
 * Rows of numbers to codes, on their way to where an operator puts them. Groups of the usual lengths: a block
 * lists a batch of rows and their places; then sixteen numbers per lane, the lanes of a group next to each
 * other in a warp, everything read once and written to all places of the row. Other groups, whole rows above
 * all: a block per group, which is read twice.
 *
 * Rows is a struct that knows the places of item i, which is a source row or an output row: `enum { SCALED,
 * EARLY }`, whether rows are multiplied by gates, and whether item i is row i of the plan and worth loading
 * beside the kernels before; `struct syc_coded_item find(int64_t i)`; `int n_places()`; `int64_t
 * place(int64_t i, int j, item)`, the j-th row of the outputs, -1 for none; `int64_t first_clear()` and `void
 * clear(int64_t row)` as in fan.cuh. All of them run after the kernels before.
 */
#pragma once

#include "plan/row_math.h"
#include "cuda/prim/block.cuh"
#include "cuda/prim/bulk.cuh"
#include "cuda/codes/codes.cuh"
#include "cuda/prim/count.cuh"
#include "cuda/prim/load.cuh"

enum { SYC_CODE_THREADS = 256 };

/* ---- Codes of a group ---- */

/* What the numbers of a group become codes by. */
struct syc_factor {
    float by, reciprocal;
    u32 bits; /* of the scale, as it is stored */
    bool divides, usual;
};

template <syi_code C> SYC_INLINE syc_factor syc_factor_of(const syi_row_codes_plan &p, u32 most)
{
    syi_row_codes_plan known = p;
    known.code = C;
    const syi_row_scale scale = syi_row_scale_of(&known, most);
    const bool divides = syi_row_divides(&known);
    return {scale.by, divides ? __frcp_rn(scale.by) : 0.0f, scale.bits, divides,
            divides ? __float_as_uint(scale.by) - (87u << 23) <= 80u << 23
                    : __float_as_uint(scale.by) < 0x7f800000u};
}

/* Any numbers. */
SYC_COLD u32 syc_any_four(syi_code code, bool divides, float by, float a, float b, float c, float d)
{
    const float x[4] = {a, b, c, d};
    u32 word = 0;
#pragma unroll
    for (int j = 0; j < 4; j++)
        word |= (u32)syi_f32_to_code(code, divides ? __fdiv_rn(x[j], by) : __fmul_rn(x[j], by)) << (8 * j);
    return word;
}

/* finite: the numbers are; then products are not NaN, and quotients are found by the reciprocal where it is
   usual. */
template <sy_type T, syi_code C>
SYC_INLINE u32 syc_code_four(const syc_factor &f, bool finite, const float *x)
{
    if (!finite || !f.usual)
        return syc_any_four(C, f.divides, f.by, x[0], x[1], x[2], x[3]);
    if (f.divides)
        return syc_pack_four<T, C>(x, f.by, f.reciprocal);
    float y[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
        y[j] = __fmul_rn(x[j], f.by);
    if constexpr (C == SYI_CODE_I8) {
        u32 b[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            b[j] = __float_as_uint(__fadd_rn(fmaxf(fminf(y[j], 127.0f), -128.0f), 0x1.8p23f));
        return __byte_perm(__byte_perm(b[0], b[1], 0x0040), __byte_perm(b[2], b[3], 0x0040), 0x5410);
    } else {
        return __byte_perm(syc_two_codes(C, y[0], y[1]), syc_two_codes(C, y[2], y[3]), 0x5410);
    }
}

/* The bits of the largest magnitude, of infinity or NaN where there is one. */
template <int N> SYC_INLINE u32 syc_largest_of(const float (&x)[N])
{
    float larger = fabsf(x[0]);
#pragma unroll
    for (int j = 1; j < N; j++)
        larger = syc_larger(larger, x[j]);
    return __float_as_uint(larger) & 0x7fffffffu;
}

/* Of the magnitudes that are numbers; `largest` is syc_largest_of. */
template <int N> SYC_INLINE u32 syc_largest_number(const float (&x)[N], u32 largest)
{
    if (largest <= 0x7f800000u)
        return largest;
    u32 most = 0;
#pragma unroll
    for (int j = 0; j < N; j++)
        most = max(most, syi_kv_magnitude(x[j]));
    return most;
}

SYC_INLINE void syc_store_scale(const syi_row_codes_plan &p, u8 *scales, int64_t g, u32 bits)
{
    if (!p.e8m0 && ((uintptr_t)scales & 3) == 0)
        ((u32 *)scales)[g] = bits;
    else
        syi_row_store_scale(&p, scales, g, bits);
}

/* In other layouts than ROW. */
SYC_COLD void syc_store_scale_at(const syi_row_codes_plan *p, int64_t row, int64_t g, u32 bits)
{
    syc_store_scale(*p, p->scales.data + syi_scale_offset(p, row, g), 0, bits);
}

SYC_INLINE void syc_place_scale(const syi_row_codes_plan &p, int64_t row, int64_t g, u32 bits)
{
    if (p.layout == SY_SCALE_ROW)
        syc_store_scale(p, syc_out_row(p.scales, row), g, bits);
    else if (p.layout == SY_SCALE_COL && !p.e8m0)
        syc_store_scale(p, p.scales.data + (g * p.scale_rows + row) * p.scales.stride, 0, bits);
    else
        syc_store_scale_at(&p, row, g, bits);
}

/* Zeros where a layout has no scale: rows after the last, and columns after the last of each row. By all
   blocks. */
SYC_COLD void syc_clear_scales(const syi_row_codes_plan *p)
{
    const int64_t after = p->scale_columns - p->n_groups,
                  below = (p->scale_rows - p->n_rows) * p->scale_columns;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < below + p->n_rows * after;
         i += (int64_t)gridDim.x * blockDim.x)
        if (i < below)
            syc_store_scale_at(p, p->n_rows + i / p->scale_columns, i % p->scale_columns, 0);
        else
            syc_store_scale_at(p, (i - below) / after, p->n_groups + (i - below) % after, 0);
}

/* ---- Rows ---- */

struct syc_coded_item {
    const u8 *from; /* NULL: zero codes and scales */
    int64_t row;    /* for place() */
    float gate;
};

/* Every row to the row of the same number. */
struct syc_same_rows {
    enum { SCALED = 0, EARLY = 0 };
    syi_rows from;
    int64_t n;

    __device__ syc_coded_item find(int64_t i) const { return {syc_row(from, i), i, 1.0f}; }
    __host__ __device__ int n_places() const { return 1; }
    __device__ int64_t place(int64_t, int, const syc_coded_item &item) const { return item.row; }
    __device__ int64_t first_clear() const { return n; }
    __device__ void clear(int64_t) const {}
};

/* Whether scales may have other layouts than ROW. */
template <class Rows> constexpr bool syc_any_layout = false;
template <> constexpr bool syc_any_layout<syc_same_rows> = true;

/* A row to all its slots, by the places of syc_fan. */
template <class Places> struct syc_fanned_rows {
    enum { SCALED = 0, EARLY = 1 };
    Places places;
    syi_rows from;
    int n_slots;

    __device__ syc_coded_item find(int64_t i) const { return {syc_row(from, i), i, 1.0f}; }
    __host__ __device__ int n_places() const { return n_slots; }
    __device__ int64_t place(int64_t i, int j, const syc_coded_item &) const { return places.row(i, j); }
    __device__ int64_t first_clear() const { return places.first_clear(); }
    __device__ void clear(int64_t row) const { places.clear(row); }
};

/* x times its gate, rounded to the type of the rows. */
template <sy_type T> SYC_INLINE float syc_gated(float x, float gate)
{
    const float y = __fmul_rn(gate, x);
    return T == SY_TYPE_F32   ? y
           : T == SY_TYPE_F16 ? syc_from_f16(syc_to_f16(y))
                              : syc_from_bf16(syc_to_bf16(y));
}

/* The same for all numbers of a row; a NaN has any payload. */
template <sy_type T, int N> SYC_INLINE void syc_gate_all(float (&x)[N], float gate)
{
#pragma unroll
    for (int j = 0; j < N; j += 2) {
        x[j] = __fmul_rn(gate, x[j]);
        x[j + 1] = __fmul_rn(gate, x[j + 1]);
        if constexpr (T != SY_TYPE_F32) {
            const u32 two = syc_two<T>(x[j], x[j + 1]);
            x[j] = T == SY_TYPE_F16 ? syc_widen_f16((u16)two) : __uint_as_float(two << 16);
            x[j + 1] =
                T == SY_TYPE_F16 ? syc_widen_f16((u16)(two >> 16)) : __uint_as_float(two & 0xffff0000u);
        }
    }
}

template <sy_type T, class Rows>
SYC_INLINE void syc_coded_eight(const syc_coded_item &item, int64_t unit, float (&x)[SYC_UNIT])
{
    syc_eight<T>::load(item.from, (u32)unit).widen(x);
    if constexpr (Rows::SCALED != 0)
        syc_gate_all<T>(x, item.gate);
}

template <sy_type T, class Rows> SYC_INLINE float syc_coded_number(const syc_coded_item &item, int64_t i)
{
    const float x = syc_load_float(item.from + i * (T == SY_TYPE_F32 ? 4 : 2), T);
    return Rows::SCALED != 0 ? syc_gated<T>(x, item.gate) : x;
}

SYC_INLINE uint2 syc_encode_eight(const syi_row_codes_plan &p, const float (&x)[SYC_UNIT], float by)
{
    u32 word[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < SYC_UNIT; j++)
        word[j / 4] |= (u32)syi_row_code(&p, x[j], by) << (8 * (j % 4));
    return make_uint2(word[0], word[1]);
}

/* Rows of the outputs that belong to nothing; by all blocks. */
template <class Rows>
SYC_INLINE void syc_clear_coded(const syi_row_codes_plan &p, const Rows &rows, int64_t n_to)
{
    const int64_t hidden = (int64_t)p.group * p.n_groups;
#pragma unroll 1
    for (int64_t row = rows.first_clear() + blockIdx.x; row < n_to; row += gridDim.x) {
#pragma unroll 1
        for (int64_t i = threadIdx.x; i < hidden; i += SYC_CODE_THREADS)
            syc_out_row(p.codes, row)[i] = 0;
#pragma unroll 1
        for (int64_t g = threadIdx.x; g < p.n_groups; g += SYC_CODE_THREADS)
            syi_row_store_scale(&p, syc_out_row(p.scales, row), g, 0);
        if (threadIdx.x == 0)
            rows.clear(row);
    }
}

/* Of a lane; a group has 2^shift lanes, all of which are here. *bits: the scale. */
template <sy_type T, syi_code C>
SYC_INLINE uint4 syc_codes_of(const syi_row_codes_plan &p, const float (&x)[SYC_PACK_UNIT], int shift,
                              u32 *bits)
{
    const u32 largest = syc_largest_of(x);
    const syc_factor f = syc_factor_of<C>(p, syc_most_of_span(syc_largest_number(x, largest), 1u << shift));
    const bool finite = largest < 0x7f800000u;
    *bits = f.bits;
    return make_uint4(syc_code_four<T, C>(f, finite, x), syc_code_four<T, C>(f, finite, x + 4),
                      syc_code_four<T, C>(f, finite, x + 8), syc_code_four<T, C>(f, finite, x + 12));
}

/* ---- Groups of lanes ---- */

#define SYC_CODE_BLOCKS(T) ((T) == SY_TYPE_F32 ? 3 : 4) /* of a multiprocessor */
enum { SYC_CODE_ITEMS = 256, SYC_CODE_PLACES = 512 };   /* of a batch */

/* Which items a batch has: not neighbours, which may all be zeros and leave their multiprocessors idle, but
   one of each `columns`. The last items, too few for a whole batch each, follow in order. */
struct syc_deal {
    syc_split each;     /* items of a batch, about */
    int64_t columns, n; /* whole batches; their items */
};

static inline syc_deal syc_deal_of(int64_t n_items, int64_t each)
{
    const int64_t columns = each > 0 ? n_items / each : 0;
    return {syc_split_by(each, n_items), columns, columns * each};
}

SYC_INLINE int64_t syc_dealt(const syc_deal &deal, int64_t i)
{
    if (i >= deal.n)
        return i;
    const int64_t column = syc_quotient(i, deal.each);
    return (i - column * deal.each.d) * deal.columns + column;
}

/* Where a row goes: codes NULL for nowhere. */
struct syc_coded_target {
    u8 *codes, *scales;
};

SYC_INLINE syc_coded_target syc_coded_target_of(const syi_row_codes_plan &p, int64_t row)
{
    return {row < 0 ? NULL : syc_out_row(p.codes, row), row < 0 ? NULL : syc_out_row(p.scales, row)};
}

/* The 32 bytes at an address, to the second cache. */
SYC_INLINE void syc_prefetch(const void *from)
{
#ifndef SWITCHYARD_CUDA_EMULATED
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
#else
    (void)*(const volatile u8 *)from;
#endif
}

/* NOLINT(readability-function-size): loads of what comes next are between the steps of this one */
/* by_row: units of a row; a group has 2^shift of them. A batch of units has SYC_CODE_ITEMS rows at most.
   listed: and SYC_CODE_PLACES places. */
template <sy_type T, syi_code C, class Rows>
static __global__ void __launch_bounds__(SYC_CODE_THREADS, SYC_CODE_BLOCKS(T))
    syc_code_units(const __grid_constant__ syi_row_codes_plan p, const __grid_constant__ Rows rows,
                   int64_t n_items, int64_t n_to, const __grid_constant__ syc_split by_row,
                   const __grid_constant__ syc_divisor units, int shift, int64_t batch, bool listed,
                   const __grid_constant__ syc_deal deal, const __grid_constant__ syc_early early,
                   const __grid_constant__ syc_gate gate)
{
    __shared__ syc_coded_item item[SYC_CODE_ITEMS];
    __shared__ syc_coded_target target[SYC_CODE_PLACES];
    const int64_t n = n_items * by_row.d;
    const int k = rows.n_places();
    syc_load_early(early);
    if (!syc_may_write(gate))
        return;
#pragma unroll 1
    for (int64_t begin = (int64_t)blockIdx.x * batch; begin < n; begin += (int64_t)gridDim.x * batch) {
        const int64_t first = syc_quotient(begin, by_row), end = min(begin + batch, n);
        const u32 stop = (u32)(end - first * by_row.d);
        const int m = (int)syc_divide(stop - 1, units) + 1;
        __syncthreads(); /* the last batch was read */
#pragma unroll 1
        for (int j = (int)threadIdx.x; j < m; j += SYC_CODE_THREADS)
            item[j] = rows.find(syc_dealt(deal, first + j));
        __syncthreads();
#pragma unroll 1
        for (int j = (int)threadIdx.x; listed && j < m * k; j += SYC_CODE_THREADS)
            target[j] =
                syc_coded_target_of(p, rows.place(syc_dealt(deal, first + j / k), j % k, item[j / k]));
        __syncthreads();
        u32 at = (u32)(begin - first * by_row.d) + threadIdx.x, r = 0;
        syc_sixteen<T> held;
        const auto load = [&] {
            r = at < stop ? syc_divide(at, units) : 0;
            held = at < stop && item[r].from != NULL ? syc_sixteen<T>::load(item[r].from, at - r * units.d)
                                                     : syc_zero<syc_sixteen<T>>();
        };
        load();
#pragma unroll 1
        while (at - syc_lane() < stop) { /* the same for a warp */
            const bool there = at < stop, zeros = !there || item[r].from == NULL;
            const u32 unit = at - r * units.d;
            const int own = (int)r;
            const float by = Rows::SCALED != 0 ? item[r].gate : 1.0f;
            float x[SYC_PACK_UNIT];
            uint4 codes = make_uint4(0, 0, 0, 0);
            u32 bits = 0;
            held.widen(x);
            at += SYC_CODE_THREADS;
            load();
            if (const u32 later = at + 2 * SYC_CODE_THREADS; Rows::EARLY != 0 && later < stop) {
                const u32 q = syc_divide(later, units);
                if (item[q].from != NULL)
                    syc_prefetch(item[q].from + (later - q * units.d) * (u32)sizeof held);
            }
            if (__any_sync(SYC_ALL_LANES, !zeros)) {
                if constexpr (Rows::SCALED != 0)
                    syc_gate_all<T>(x, zeros ? 1.0f : by);
                const uint4 made = syc_codes_of<T, C>(p, x, shift, &bits);
                codes = zeros ? make_uint4(0, 0, 0, 0) : made;
                bits = zeros ? 0 : bits;
            }
            if (!there)
                continue;
#pragma unroll 1
            for (int j = 0; j < k; j++) {
                const syc_coded_target to =
                    listed ? target[own * k + j]
                           : syc_coded_target_of(p, rows.place(syc_dealt(deal, first + own), j, item[own]));
                if (to.codes == NULL)
                    continue;
                __stcs((uint4 *)to.codes + unit, codes);
                if ((unit & ((1u << shift) - 1u)) == 0)
                    syc_store_scale(p, to.scales, unit >> shift, bits);
            }
        }
    }
    syc_clear_coded(p, rows, n_to);
}

/* ---- A block per group ---- */

/* WIDE: rows are aligned, and groups have whole eights. */
template <sy_type T, bool WIDE, class Rows>
static __global__ void __launch_bounds__(SYC_CODE_THREADS)
    syc_code_groups(const __grid_constant__ syi_row_codes_plan p, const __grid_constant__ Rows rows,
                    int64_t n_items, int64_t n_to, const __grid_constant__ syc_gate gate)
{
    __shared__ u64 part[SYC_BLOCK_WARPS];
    const int64_t group = (int64_t)p.group, eights = WIDE ? group / SYC_UNIT : 0, odd = WIDE ? 0 : group;
    if (!syc_may_write(gate))
        return;
    for (int64_t at = blockIdx.x; at < n_items * p.n_groups; at += gridDim.x) {
        const int64_t i = at / p.n_groups, g = at - i * p.n_groups;
        const syc_coded_item item = rows.find(i);
        const bool zeros = item.from == NULL;
        u32 most = 0;
        float x[SYC_UNIT];
        for (int64_t u = threadIdx.x; u < eights && !zeros; u += SYC_CODE_THREADS) {
            syc_coded_eight<T, Rows>(item, g * eights + u, x);
            most = max(most, syc_largest_number(x, syc_largest_of(x)));
        }
        for (int64_t u = threadIdx.x; u < odd && !zeros; u += SYC_CODE_THREADS)
            most = max(most, syi_kv_magnitude(syc_coded_number<T, Rows>(item, g * group + u)));
        const syi_row_scale scale = syi_row_scale_of(&p, (u32)syc_block_max(most, part));
        const int k = rows.n_places();
        for (int64_t u = threadIdx.x; u < eights; u += SYC_CODE_THREADS) {
            if (!zeros)
                syc_coded_eight<T, Rows>(item, g * eights + u, x);
            const uint2 codes = zeros ? make_uint2(0, 0) : syc_encode_eight(p, x, scale.by);
            for (int j = 0; j < k; j++) {
                const int64_t row = rows.place(i, j, item);
                if (row >= 0)
                    __stcs((uint2 *)syc_out_row(p.codes, row) + g * eights + u, codes);
            }
        }
        for (int64_t u = threadIdx.x; u < odd; u += SYC_CODE_THREADS) {
            const u8 code =
                zeros ? (u8)0 : syi_row_code(&p, syc_coded_number<T, Rows>(item, g * group + u), scale.by);
            for (int j = 0; j < k; j++) {
                const int64_t row = rows.place(i, j, item);
                if (row >= 0)
                    syc_out_row(p.codes, row)[g * group + u] = code;
            }
        }
        for (int j = (int)threadIdx.x; j < k; j += SYC_CODE_THREADS) {
            const int64_t row = rows.place(i, j, item);
            if (syc_any_layout<Rows>)
                syc_place_scale(p, row, g, scale.bits);
            else if (row >= 0)
                syi_row_store_scale(&p, syc_out_row(p.scales, row), g, zeros ? 0 : scale.bits);
        }
    }
    if (syc_any_layout<Rows> && p.layout != SY_SCALE_ROW)
        syc_clear_scales(&p);
    syc_clear_coded(p, rows, n_to);
}

/* ---- Launches ---- */

/* One block at least, which clears rows without groups. */
static int64_t syc_code_blocks(const syc_call *call, int64_t wanted)
{
    return wanted < 1 ? 1 : syc_grid(call, wanted, grid_policy::CODES);
}

/* WIDE as for the kernel. */
template <sy_type T, bool WIDE, class Rows>
static void syc_code_by_blocks(syc_call *call, const syi_row_codes_plan *p, const Rows &rows, int64_t n,
                               int64_t n_to)
{
    syc_launch(&call->queue, syc_code_groups<T, WIDE, Rows>, SYC_AFTER,
               syc_code_blocks(call, n * p->n_groups), SYC_CODE_THREADS, 0, *p, rows, n, n_to, call->gate);
}

/* Groups of lanes with sixteen numbers each; rows are aligned to 16 bytes as the bits of all
   addresses and distances say. */
static inline const char *syc_codes_why_not(const syi_row_codes_plan *p, u64 alignment)
{
    const size_t lanes = p->group / SYC_PACK_UNIT;
    return alignment % 16 != 0                        ? "rows are not aligned to 16 bytes"
           : p->group % SYC_PACK_UNIT != 0            ? "groups are no multiple of 16 numbers"
           : lanes > 32 || (lanes & (lanes - 1)) != 0 ? "groups are no power of two up to 512 numbers"
           : lanes == 0 || p->n_groups == 0 || p->n_groups >= 1 << 20 ? "a row has no groups, or too many"
                                                                      : NULL;
}

/* Log2 of them. */
static inline int syc_code_shift(const syi_row_codes_plan *p)
{
    int shift = 0;
    while (p->group / SYC_PACK_UNIT >> shift > 1)
        shift++;
    return shift;
}

/* Calls f.run<T, C>() for the codes of a plan. */
template <sy_type T, class F> static void syc_by_code_of(syi_code code, const F &f)
{
    if (code == SYI_CODE_I8)
        f.template run<T, SYI_CODE_I8>();
    else if (code == SYI_CODE_E4M3)
        f.template run<T, SYI_CODE_E4M3>();
    else
        f.template run<T, SYI_CODE_E5M2>();
}
template <class F> static void syc_by_codes(const syi_row_codes_plan *p, const F &f)
{
    if (p->type == SYI_FLOAT_F32)
        syc_by_code_of<SY_TYPE_F32>(p->code, f);
    else if (p->type == SYI_FLOAT_F16)
        syc_by_code_of<SY_TYPE_F16>(p->code, f);
    else
        syc_by_code_of<SY_TYPE_BF16>(p->code, f);
}

template <class Rows> struct syc_launch_codes {
    syc_call *call;
    const syi_row_codes_plan *p;
    const Rows &rows;
    int64_t n, n_to;

    template <sy_type T, syi_code C> void run() const
    {
        const u64 dense = (u64)(uintptr_t)p->dense.data | (u64)p->dense.stride,
                  codes = (u64)(uintptr_t)p->codes.data | (u64)p->codes.stride;
        if (syc_takes(call, "code_lanes", syc_codes_why_not(p, dense | codes)))
            by_units<T, C>();
        else if (syc_takes(call, "code_blocks") && p->group % SYC_UNIT == 0 && p->group > 0 &&
                 dense % 16 == 0 && codes % SYC_UNIT == 0 && p->group / SYC_UNIT < INT32_MAX)
            syc_code_by_blocks<T, true>(call, p, rows, n, n_to);
        else
            syc_code_by_blocks<T, false>(call, p, rows, n, n_to);
    }
    template <sy_type T, syi_code C> void by_units() const
    {
        const int64_t per_row = p->n_groups * (int64_t)(p->group / SYC_PACK_UNIT), all = n * per_row;
        const int64_t k = rows.n_places(), fit = k > 0 ? SYC_CODE_PLACES / k : 0;
        /* a batch begins and ends inside of rows */
        const int64_t longest =
            ((fit < 4 || fit > SYC_CODE_ITEMS ? (int64_t)SYC_CODE_ITEMS : fit) - 2) * per_row;
        const int64_t whole = longest < SYC_CODE_THREADS ? 32 : (int64_t)SYC_CODE_THREADS,
                      limit = longest < whole ? whole : longest / whole * whole;
        const int64_t most = SYC_CODE_BLOCKS(T) * (int64_t)call->device->processors,
                      wanted = syc_code_blocks(call, syc_ceil(all, SYC_CODE_THREADS));
        /* of one length */
        const int64_t each = syc_ceil(all, wanted < most ? wanted : most), rounds = syc_ceil(each, limit);
        const int64_t batch = syc_ceil(syc_ceil(each, rounds < 1 ? 1 : rounds), whole) * whole,
                      blocks = syc_ceil(all, batch);
        const bool listed = per_row > 0 && ((batch - 1) / per_row + 2) * k <= SYC_CODE_PLACES;
        const int64_t row_bytes = per_row * SYC_PACK_UNIT * (T == SY_TYPE_F32 ? 4 : 2);
        const syc_deal deal = syc_deal_of(n, per_row > 0 ? batch / per_row : 0);
        const syc_early early = syc_early_of(p->dense, Rows::EARLY != 0 ? n : 0, row_bytes,
                                             2 * (int64_t)call->device->processors);
        const syc_divisor units = syc_divisor_of((u32)(per_row > 0 ? per_row : 1));
        syc_launch(&call->queue, syc_code_units<T, C, Rows>, SYC_EARLY,
                   blocks < 1      ? 1
                   : blocks < most ? blocks
                                   : most,
                   SYC_CODE_THREADS, 0, *p, rows, n, n_to, syc_split_by(per_row, all), units,
                   syc_code_shift(p), batch, listed, deal, early, call->gate);
    }
};

/* n items to outputs of n_to rows. */
template <class Rows>
static void syc_code_rows(syc_call *call, const syi_row_codes_plan *p, const Rows &rows, int64_t n,
                          int64_t n_to)
{
    if (n > 0)
        syc_by_codes(p, syc_launch_codes<Rows>{call, p, rows, n, n_to});
}
