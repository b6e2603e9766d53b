/*
 * quantize_rows on a device. Groups of the usual lengths: sixteen numbers per lane, the lanes of a group next
 * to each other in a warp, the next sixteen loaded meanwhile. Other groups, whole rows above all: a block per
 * group, whose numbers stay in registers as far as they fit.
 */
#include "cuda/runtime/backend.cuh"
#include "cuda/codes/kv_codes.cuh"
#include "cuda/codes/row_codes.cuh"

enum { THREADS = 256, HELD = 4 }; /* of a block; eights that a thread keeps */

/* Of a multiprocessor at a time. */
#define SYC_GROUP_BLOCKS(T, C) ((T) == SY_TYPE_F32 || (C) != SYI_CODE_I8 ? 3 : 4)

/* ---- Groups of lanes ---- */

/* by_row: sixteens of a row; a group has 2^shift of them. */
template <sy_type T, syi_code C>
static __global__ void __launch_bounds__(THREADS, T == SY_TYPE_F32 ? 3 : 4)
    quantize_units(const __grid_constant__ syi_row_codes_plan p, const syc_split by_row, int shift,
                   const __grid_constant__ syc_gate gate)
{
    const int64_t n = p.n_rows * by_row.d, step = (int64_t)gridDim.x * THREADS;
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = syc_quotient(i < n ? i : 0, by_row);
    syc_sixteen<T> held = syc_zero<syc_sixteen<T>>();
    if (i < n)
        held = syc_sixteen<T>::load(syc_row(p.dense, row), (u32)(i - row * by_row.d));
    if (!syc_all_open(syc_is_closed(gate)))
        return;
    while (i - syc_lane() < n) { /* the same for a warp */
        const u32 unit = (u32)(i - row * by_row.d);
        const bool there = i < n;
        const int64_t here = row;
        u8 *const codes = syc_out_row(p.codes, row) + (int64_t)unit * SYC_PACK_UNIT;
        float x[SYC_PACK_UNIT];
        held.widen(x);
        i += step;
        if (i < n) {
            row = syc_quotient(i, by_row);
            held = syc_sixteen<T>::load(syc_row(p.dense, row), (u32)(i - row * by_row.d));
        }
        u32 bits;
        const uint4 q = syc_codes_of<T, C>(p, x, shift, &bits);
        if (!there)
            continue;
        __stcs((uint4 *)codes, q);
        if ((unit & ((1u << shift) - 1u)) == 0)
            syc_place_scale(p, here, unit >> shift, bits);
    }
    if (p.layout != SY_SCALE_ROW)
        syc_clear_scales(&p);
}

/* ---- A block per group ---- */

template <sy_type T, syi_code C>
SYC_INLINE void store_eight(const syc_eight<T> &held, const syc_factor &f, bool finite, u8 *codes, int64_t j)
{
    float x[SYC_UNIT];
    held.widen(x);
    __stcs((uint2 *)codes + j,
           make_uint2(syc_code_four<T, C>(f, finite, x), syc_code_four<T, C>(f, finite, x + 4)));
}

template <sy_type T> SYC_INLINE syc_eight<T> load_eight(const u8 *from, int64_t j, int64_t units)
{
    return from != NULL && j < units ? syc_eight<T>::load(from, (u32)j) : syc_eight<T>::zero();
}

/* Rows are aligned, groups have whole eights, scales are in ROW. Each place of the next group is loaded as
   soon as the codes of this one are stored. */
template <sy_type T, syi_code C>
static __global__ void __launch_bounds__(THREADS, SYC_GROUP_BLOCKS(T, C))
    quantize_groups(const __grid_constant__ syi_row_codes_plan p, const __grid_constant__ syc_split by_row,
                    const __grid_constant__ syc_gate gate)
{
    __shared__ u32 part[2][SYC_BLOCK_WARPS];
    const int64_t size = T == SY_TYPE_F32 ? 4 : 2, units = (int64_t)p.group / SYC_UNIT,
                  n = p.n_rows * p.n_groups;
    const int step = (int)blockDim.x; /* few where groups are short */
    syc_eight<T> held[HELD];
    const auto source = [&](int64_t i) -> const u8 * {
        const int64_t row = syc_quotient(i < n ? i : 0, by_row);
        return i < n ? syc_row(p.dense, row) + (i - row * p.n_groups) * (int64_t)p.group * size : NULL;
    };
    const u8 *from = source(blockIdx.x);
#pragma unroll
    for (int u = 0; u < HELD; u++)
        held[u] = load_eight<T>(from, threadIdx.x + u * step, units);
    if (!syc_all_open(syc_is_closed(gate)))
        return;
    int turn = 0;
#pragma unroll 1
    for (int64_t i = blockIdx.x; i < n; i += gridDim.x, turn++) {
        const int64_t row = syc_quotient(i, by_row), g = i - row * p.n_groups;
        const u8 *const next = source(i + gridDim.x);
        u8 *const codes = syc_out_row(p.codes, row) + g * (int64_t)p.group;
        float x[SYC_UNIT];
        u32 most = 0, largest = 0;
        const auto look = [&](const syc_eight<T> &eight) {
            eight.widen(x);
            const u32 own = syc_largest_of(x);
            largest = max(largest, own);
            most = max(most, syc_largest_number(x, own));
        };
#pragma unroll
        for (int u = 0; u < HELD; u++)
            look(held[u]);
#pragma unroll 1
        for (int64_t j = threadIdx.x + HELD * step; j < units; j += step)
            look(syc_eight<T>::load(from, (u32)j));
        const syc_factor f = syc_factor_of<C>(p, syc_block_most(most, part, turn));
        const bool finite = largest < 0x7f800000u;
#pragma unroll
        for (int u = 0; u < HELD; u++) {
            const int64_t j = threadIdx.x + u * step;
            if (j < units)
                store_eight<T, C>(held[u], f, finite, codes, j);
            held[u] = load_eight<T>(next, j, units);
        }
#pragma unroll 1
        for (int64_t j = threadIdx.x + HELD * step; j < units; j += step)
            store_eight<T, C>(syc_eight<T>::load(from, (u32)j), f, finite, codes, j);
        if (threadIdx.x == 0)
            syc_store_scale(p, syc_out_row(p.scales, row), g, f.bits);
        from = next;
    }
}

/* ---- Launches ---- */

/* For syc_by_codes. */
struct quantize {
    syc_call *call;
    const syi_row_codes_plan *p;
    template <sy_type T, syi_code C> void run() const
    {
        const int64_t n_groups = p->n_rows * p->n_groups;
        const u64 dense = (u64)(uintptr_t)p->dense.data | (u64)p->dense.stride,
                  codes = (u64)(uintptr_t)p->codes.data | (u64)p->codes.stride;
        const bool odd = p->group % SYC_UNIT != 0 || p->group == 0 || dense % 16 != 0 ||
                         codes % SYC_UNIT != 0 || p->group / SYC_UNIT > INT32_MAX;
        const char *const why_not = syc_codes_why_not(p, dense | codes);
        if (syc_takes(call, "code_lanes", why_not)) {
            const int64_t per_row = p->n_groups * (int64_t)(p->group / SYC_PACK_UNIT);
            syc_launch(&call->queue, quantize_units<T, C>, SYC_AFTER,
                       syc_grid(call, syc_ceil(p->n_rows * per_row, THREADS), grid_policy::INDEX), THREADS, 0,
                       *p, syc_split_by(per_row, p->n_rows * per_row), syc_code_shift(p), call->gate);
        } else if (odd && syc_takes(call, "any_alignment")) {
            syc_code_by_blocks<T, false>(call, p, syc_same_rows{p->dense, p->n_rows}, p->n_rows, p->n_rows);
        } else if (!syc_takes(call, "held_groups",
                              p->layout != SY_SCALE_ROW ? "scales have a layout" : NULL)) {
            syc_takes(call, "code_blocks");
            syc_code_by_blocks<T, true>(call, p, syc_same_rows{p->dense, p->n_rows}, p->n_rows, p->n_rows);
        } else {
            const int64_t warps = syc_ceil((int64_t)p->group / SYC_UNIT, 32 * HELD),
                          threads = warps < THREADS / 32 ? 32 * warps : (int64_t)THREADS;
            const int64_t at_once =
                SYC_GROUP_BLOCKS(T, C) * THREADS / threads * (int64_t)call->device->processors;
            syc_launch(&call->queue, quantize_groups<T, C>, SYC_AFTER,
                       n_groups < at_once ? n_groups : at_once, (int)threads, 0, *p,
                       syc_split_by(p->n_groups, n_groups), call->gate);
        }
    }
};

SYC_NO_WORKSPACE(quantize_rows)

void syc_quantize_rows(syc_call *call, const syi_plan *plan)
{
    const syi_row_codes_plan *const p = &plan->quantize_rows.codes;
    if (plan->quantize_rows.plane.packed)
        syc_code_packed_rows(call, &plan->quantize_rows, true);
    else
        syc_by_codes(p, quantize{call, p});
}
