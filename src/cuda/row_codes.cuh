/*
 * Rows of numbers to codes, on their way to where an operator puts them. Groups of the usual lengths: eight numbers per
 * lane, the lanes of a group next to each other in a warp, everything read once and written to all places of the row. Other
 * groups, whole rows above all: a block per group, which is read twice.
 *
 * Rows is a struct that knows the places of item i, which is a source row or an output row: `enum { SCALED, EARLY }`, whether rows are
 * multiplied by gates, and whether item i is row i of the plan and worth loading beside the kernels before; `struct syc_coded_item
 * find(int64_t i)`; `int n_places()`; `int64_t place(int64_t i, int j, item)`, the j-th row of the outputs, -1 for none; `int64_t
 * first_clear()` and `void clear(int64_t row)` as in fan.cuh. All of them run after the kernels before.
 */
#ifndef SYC_ROW_CODES_CUH
#define SYC_ROW_CODES_CUH

#include "base/row_math.h"
#include "cuda/block.cuh"
#include "cuda/bulk.cuh"
#include "cuda/codes.cuh"
#include "cuda/load.cuh"

enum { SYC_CODE_THREADS = 256 };

/* ---- Codes of a group -------------------------------------------------------------------------------------------------- */

/* What the numbers of a group become codes by. */
struct syc_factor {
    float by, reciprocal;
    u32 bits; /* of the scale, as it is stored */
    bool divides, usual;
};

template <enum syi_code C> static __device__ __forceinline__ struct syc_factor syc_factor_of(const struct syi_row_codes_plan &p, u32 most)
{
    struct syi_row_codes_plan known = p;
    known.code = C;
    const struct syi_row_scale scale = syi_row_scale_of(&known, most);
    const bool divides = syi_row_divides(&known);
    return {scale.by, divides ? __frcp_rn(scale.by) : 0.0f, scale.bits, divides,
            divides ? __float_as_uint(scale.by) - (87u << 23) <= 80u << 23 : __float_as_uint(scale.by) < 0x7f800000u};
}

/* Any numbers. */
SYC_COLD u32 syc_any_four(enum syi_code code, bool divides, float by, float a, float b, float c, float d)
{
    const float x[4] = {a, b, c, d};
    u32 word = 0;
#pragma unroll
    for (int j = 0; j < 4; j++)
        word |= (u32)syi_f32_to_code(code, divides ? __fdiv_rn(x[j], by) : __fmul_rn(x[j], by)) << (8 * j);
    return word;
}

/* finite: the numbers are; then products are not NaN, and quotients are found by the reciprocal where it is usual. */
template <enum syi_code C> static __device__ __forceinline__ u32 syc_code_four(const struct syc_factor &f, bool finite, const float *x)
{
    if (!finite || !f.usual)
        return syc_any_four(C, f.divides, f.by, x[0], x[1], x[2], x[3]);
    if (f.divides)
        return syc_pack_four<C>(x, f.by, f.reciprocal);
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
template <int N> static __device__ __forceinline__ u32 syc_largest_of(const float (&x)[N])
{
    float larger = fabsf(x[0]);
#pragma unroll
    for (int j = 1; j < N; j++)
        larger = syc_larger(larger, x[j]);
    return __float_as_uint(larger) & 0x7fffffffu;
}

/* Of the magnitudes that are numbers; `largest` is syc_largest_of. */
template <int N> static __device__ __forceinline__ u32 syc_largest_number(const float (&x)[N], u32 largest)
{
    if (largest <= 0x7f800000u)
        return largest;
    u32 most = 0;
#pragma unroll
    for (int j = 0; j < N; j++)
        most = max(most, syi_kv_magnitude(x[j]));
    return most;
}

static __device__ __forceinline__ void syc_store_scale(const struct syi_row_codes_plan &p, u8 *scales, int64_t g, u32 bits)
{
    if (!p.e8m0 && ((uintptr_t)scales & 3) == 0)
        ((u32 *)scales)[g] = bits;
    else
        syi_row_store_scale(&p, scales, g, bits);
}

/* In other layouts than ROW. */
SYC_COLD void syc_store_scale_at(const struct syi_row_codes_plan *p, int64_t row, int64_t g, u32 bits)
{
    syc_store_scale(*p, p->scales.data + syi_scale_offset(p, row, g), 0, bits);
}

static __device__ __forceinline__ void syc_place_scale(const struct syi_row_codes_plan &p, int64_t row, int64_t g, u32 bits)
{
    if (p.layout == SY_SCALE_ROW)
        syc_store_scale(p, syc_out_row(p.scales, row), g, bits);
    else
        syc_store_scale_at(&p, row, g, bits);
}

/* Zeros where a layout has no scale: rows after the last, and columns after the last of each row. By all blocks. */
SYC_COLD void syc_clear_scales(const struct syi_row_codes_plan *p)
{
    const int64_t after = p->scale_columns - p->n_groups, below = (p->scale_rows - p->n_rows) * p->scale_columns;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < below + p->n_rows * after; i += (int64_t)gridDim.x * blockDim.x)
        if (i < below)
            syc_store_scale_at(p, p->n_rows + i / p->scale_columns, i % p->scale_columns, 0);
        else
            syc_store_scale_at(p, (i - below) / after, p->n_groups + (i - below) % after, 0);
}

/* ---- Rows ------------------------------------------------------------------------------------------------------------ */

struct syc_coded_item {
    const u8 *from; /* NULL: zero codes and scales */
    int64_t row;    /* for place() */
    float gate;
};

/* Every row to the row of the same number. */
struct syc_same_rows {
    enum { SCALED = 0, EARLY = 0 };
    struct syi_rows from;
    int64_t n;

    __device__ struct syc_coded_item find(int64_t i) const { return {syc_row(from, i), i, 1.0f}; }
    __device__ int n_places() const { return 1; }
    __device__ int64_t place(int64_t, int, const struct syc_coded_item &item) const { return item.row; }
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
    struct syi_rows from;
    int n_slots;

    __device__ struct syc_coded_item find(int64_t i) const { return {syc_row(from, i), i, 1.0f}; }
    __device__ int n_places() const { return n_slots; }
    __device__ int64_t place(int64_t i, int j, const struct syc_coded_item &) const { return places.row(i, j); }
    __device__ int64_t first_clear() const { return places.first_clear(); }
    __device__ void clear(int64_t row) const { places.clear(row); }
};

/* x times its gate, rounded to the type of the rows. */
template <sy_type T> static __device__ __forceinline__ float syc_gated(float x, float gate)
{
    const float y = __fmul_rn(gate, x);
    return T == SY_TYPE_F32 ? y : T == SY_TYPE_F16 ? syc_from_f16(syc_to_f16(y)) : syc_from_bf16(syc_to_bf16(y));
}

template <sy_type T, class Rows>
static __device__ __forceinline__ void syc_coded_eight(const struct syc_coded_item &item, int64_t unit, float (&x)[SYC_UNIT])
{
    syc_eight<T>::load(item.from, (u32)unit).widen(x);
    if constexpr (Rows::SCALED != 0)
#pragma unroll
        for (int j = 0; j < SYC_UNIT; j++)
            x[j] = syc_gated<T>(x[j], item.gate);
}

template <sy_type T, class Rows> static __device__ __forceinline__ float syc_coded_number(const struct syc_coded_item &item, int64_t i)
{
    const float x = syc_load_float(item.from + i * (T == SY_TYPE_F32 ? 4 : 2), T);
    return Rows::SCALED != 0 ? syc_gated<T>(x, item.gate) : x;
}

static __device__ __forceinline__ uint2 syc_encode_eight(const struct syi_row_codes_plan &p, const float (&x)[SYC_UNIT], float by)
{
    u32 word[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < SYC_UNIT; j++)
        word[j / 4] |= (u32)syi_row_code(&p, x[j], by) << (8 * (j % 4));
    return make_uint2(word[0], word[1]);
}

/* Rows of the outputs that belong to nothing; by all blocks. */
template <class Rows>
static __device__ __forceinline__ void syc_clear_coded(const struct syi_row_codes_plan &p, const Rows &rows, int64_t n_to)
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

/* ---- Groups of eights of lanes ------------------------------------------------------------------------------------- */

enum { SYC_CODE_BLOCKS = 4 }; /* of a multiprocessor */

/* Eight numbers of a row, loaded while others become codes. Of a warp whose lanes have one row, lane j knows its j-th place. */
template <sy_type T> struct syc_coded_unit {
    int64_t i;
    u32 unit;
    struct syc_coded_item item;
    struct syc_eight<T> held;
    int64_t place;
};

/* by_row: eights of a row; a group has 2^shift of them. whole: those of a warp are of one row. */
template <sy_type T, enum syi_code C, class Rows>
static __global__ void __launch_bounds__(SYC_CODE_THREADS, SYC_CODE_BLOCKS)
    syc_code_units(const __grid_constant__ struct syi_row_codes_plan p, const __grid_constant__ Rows rows, int64_t n_items, int64_t n_to,
                   const __grid_constant__ struct syc_split by_row, int shift, bool whole, const __grid_constant__ struct syc_early early,
                   const __grid_constant__ struct syc_gate gate)
{
    const int64_t n = n_items * by_row.d, step = (int64_t)gridDim.x * SYC_CODE_THREADS;
    const int k = rows.n_places();
    const bool together = whole && k <= 32;
    const auto load = [&](int64_t at) {
        struct syc_coded_unit<T> u;
        u.i = syc_quotient(at < n ? at : 0, by_row);
        u.unit = (u32)(at - u.i * by_row.d);
        u.item = at < n ? rows.find(u.i) : syc_coded_item{NULL, -1, 0.0f};
        u.held = u.item.from != NULL ? syc_eight<T>::load(u.item.from, u.unit) : syc_eight<T>::zero();
        u.place = together && syc_lane() < k && at < n ? rows.place(u.i, syc_lane(), u.item) : -1;
        return u;
    };
    syc_load_early(early);
    if (!syc_may_write(gate))
        return;
    int64_t at = (int64_t)blockIdx.x * SYC_CODE_THREADS + threadIdx.x;
    struct syc_coded_unit<T> next = load(at);
    for (; at - syc_lane() < n; at += step) { /* the same for a warp */
        const struct syc_coded_unit<T> own = next;
        const bool zeros = own.item.from == NULL;
        float x[SYC_UNIT];
        next = load(at + step);
        own.held.widen(x);
        if constexpr (Rows::SCALED != 0)
#pragma unroll
            for (int j = 0; j < SYC_UNIT; j++)
                x[j] = zeros ? 0.0f : syc_gated<T>(x[j], own.item.gate);
        const u32 largest = syc_largest_of(x);
        const struct syc_factor f = syc_factor_of<C>(p, syc_most_of_span(syc_largest_number(x, largest), 1u << shift));
        const bool finite = largest < 0x7f800000u, leads = (own.unit & ((1u << shift) - 1u)) == 0;
        const uint2 codes = !zeros ? make_uint2(syc_code_four<C>(f, finite, x), syc_code_four<C>(f, finite, x + 4)) : make_uint2(0, 0);
#pragma unroll 1
        for (int j = 0; j < k; j++) {
            const int64_t row = together ? __shfl_sync(SYC_ALL_LANES, own.place, j) : at < n ? rows.place(own.i, j, own.item) : -1;
            if (row < 0)
                continue;
            __stcs((uint2 *)syc_out_row(p.codes, row) + own.unit, codes);
            if (leads)
                syc_store_scale(p, syc_out_row(p.scales, row), own.unit >> shift, zeros ? 0 : f.bits);
        }
    }
    syc_clear_coded(p, rows, n_to);
}

/* ---- A block per group --------------------------------------------------------------------------------------------- */

/* WIDE: rows are aligned, and groups have whole eights. */
template <sy_type T, bool WIDE, class Rows>
static __global__ void __launch_bounds__(SYC_CODE_THREADS)
    syc_code_groups(const __grid_constant__ struct syi_row_codes_plan p, const __grid_constant__ Rows rows, int64_t n_items,
                    int64_t n_to, const __grid_constant__ struct syc_gate gate)
{
    __shared__ u64 part[SYC_BLOCK_WARPS];
    const int64_t group = (int64_t)p.group, eights = WIDE ? group / SYC_UNIT : 0, odd = WIDE ? 0 : group;
    if (!syc_may_write(gate))
        return;
    for (int64_t at = blockIdx.x; at < n_items * p.n_groups; at += gridDim.x) {
        const int64_t i = at / p.n_groups, g = at - i * p.n_groups;
        const struct syc_coded_item item = rows.find(i);
        const bool zeros = item.from == NULL;
        u32 most = 0;
        float x[SYC_UNIT];
        for (int64_t u = threadIdx.x; u < eights && !zeros; u += SYC_CODE_THREADS) {
            syc_coded_eight<T, Rows>(item, g * eights + u, x);
            most = max(most, syc_largest_number(x, syc_largest_of(x)));
        }
        for (int64_t u = threadIdx.x; u < odd && !zeros; u += SYC_CODE_THREADS)
            most = max(most, syi_kv_magnitude(syc_coded_number<T, Rows>(item, g * group + u)));
        const struct syi_row_scale scale = syi_row_scale_of(&p, (u32)syc_block_max(most, part));
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
            const u8 code = zeros ? (u8)0 : syi_row_code(&p, syc_coded_number<T, Rows>(item, g * group + u), scale.by);
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

/* ---- Launches ------------------------------------------------------------------------------------------------------ */

/* One block at least, which clears rows without groups. */
static int64_t syc_code_blocks(const struct syc_call *call, int64_t wanted)
{
    const int64_t most = 16 * (int64_t)call->device->processors;
    return wanted < 1 ? 1 : wanted < most ? wanted : most;
}

/* WIDE as for the kernel. */
template <sy_type T, bool WIDE, class Rows>
static void syc_code_by_blocks(struct syc_call *call, const struct syi_row_codes_plan *p, const Rows &rows, int64_t n, int64_t n_to)
{
    syc_launch(&call->queue, syc_code_groups<T, WIDE, Rows>, SYC_AFTER, syc_code_blocks(call, n * p->n_groups), SYC_CODE_THREADS, 0, *p, rows, n, n_to, call->gate);
}

template <sy_type T, class Rows>
static void syc_code_type(struct syc_call *call, const struct syi_row_codes_plan *p, const Rows &rows, int64_t n, int64_t n_to)
{
    const int64_t lanes = (int64_t)(p->group / SYC_UNIT), per_row = p->n_groups * lanes;
    const u64 dense = (u64)(uintptr_t)p->dense.data | (u64)p->dense.stride, codes = (u64)(uintptr_t)p->codes.data | (u64)p->codes.stride;
    const bool wide = p->group % SYC_UNIT == 0 && p->group > 0 && dense % 16 == 0 && codes % SYC_UNIT == 0 && per_row < INT32_MAX;
    const auto by_units = [&](auto kernel) {
        const int64_t wanted = (n * per_row + SYC_CODE_THREADS - 1) / SYC_CODE_THREADS, most = SYC_CODE_BLOCKS * (int64_t)call->device->processors;
        const int64_t row_bytes = per_row * SYC_UNIT * (T == SY_TYPE_F32 ? 4 : 2);
        const struct syc_early early = syc_early_of(p->dense, Rows::EARLY != 0 ? n : 0, row_bytes, 2 * (int64_t)call->device->processors);
        int shift = 0;
        while (lanes >> shift > 1)
            shift++;
        syc_launch(&call->queue, kernel, Rows::EARLY != 0 ? SYC_EARLY : SYC_AFTER, wanted < 1 ? 1 : wanted < most ? wanted : most, SYC_CODE_THREADS, 0, *p, rows, n,
                   n_to, syc_split_by(per_row, n * per_row), shift, per_row % 32 == 0, early, call->gate);
    };
    if (!wide)
        syc_code_by_blocks<T, false>(call, p, rows, n, n_to);
    else if (lanes > 32 || (lanes & (lanes - 1)) != 0)
        syc_code_by_blocks<T, true>(call, p, rows, n, n_to);
    else if (p->code == SYI_CODE_I8)
        by_units(syc_code_units<T, SYI_CODE_I8, Rows>);
    else if (p->code == SYI_CODE_E4M3)
        by_units(syc_code_units<T, SYI_CODE_E4M3, Rows>);
    else
        by_units(syc_code_units<T, SYI_CODE_E5M2, Rows>);
}

/* n items to outputs of n_to rows. */
template <class Rows>
static void syc_code_rows(struct syc_call *call, const struct syi_row_codes_plan *p, const Rows &rows, int64_t n, int64_t n_to)
{
    if (n == 0)
        return;
    if (p->type == SYI_FLOAT_F32)
        syc_code_type<SY_TYPE_F32>(call, p, rows, n, n_to);
    else if (p->type == SYI_FLOAT_F16)
        syc_code_type<SY_TYPE_F16>(call, p, rows, n, n_to);
    else
        syc_code_type<SY_TYPE_BF16>(call, p, rows, n, n_to);
}

#endif
