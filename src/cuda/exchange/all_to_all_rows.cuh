/*
 * The kernels that move rows of a mesh or add them, for all_to_all.cu alone.
 */
#pragma once

#include "cuda/exchange/all_to_all_choices.cuh"
#include "cuda/prim/bulk.cuh"
#include "cuda/codes/coded_sums.cuh"
#include "cuda/codes/row_codes.cuh"
#include "cuda/prim/rows.cuh"
#include "cuda/moe/slot_sums.cuh"

/* ---- Dispatch ---- */

/* The rows that a block writes: copies from the front, zeros from the end. */
struct targets {
    u8 *to[THREADS], *scales[THREADS]; /* scales: where rows become codes */
    int n_copies, n_zeros;
    bool hit[THREADS]; /* PADDED: candidates that are no zeros */
};

/* A token and where it comes from. */
struct token {
    int t, n, device, group;
};

SYC_INLINE struct token token_at(const syc_team &m, u32 t)
{
    const int d = m.device_of(t);
    const syi_a2a_device &home = m.device(d);
    return {(int)t, (int)(t - home.first), d, home.group};
}

SYC_INLINE int64_t candidates_of(const syc_team &m)
{
    return m.layout != SY_LAYOUT_EXPERT ? m.n_positions : m.single ? m.n_slots : m.n_slots * m.n_positions;
}

SYC_INLINE void write_src(const syi_a2a_device &to, int64_t row, int position, int64_t n, int64_t k,
                          bool with_slot)
{
    u8 *const src = syc_out_row(to.src, row);
    syi_store_i32(src, 0, position);
    syi_store_i32(src, 1, (int32_t)n);
    if (with_slot)
        syi_store_i32(src, 2, (int32_t)k);
}

/* A candidate of a token, a choice on a device (EXPERT) or a device, as it was looked up. */
struct candidate {
    int device, row; /* -1: none */
    bool lowest;     /* EXPERT: no device before it in the group has the expert */
};

/*
 * Looks up the candidates from c on, one for each thread; whether those of PADDED are hit, by all warps. It
 * may run before the verdict, when what it reads is anything: so experts are compared with their number
 * before they are used.
 */
SYC_INLINE candidate look_up(const syc_team &m, const struct token &own, int64_t c, int64_t candidates,
                             struct targets *all)
{
    const int64_t i = c + threadIdx.x;
    if (m.layout == SY_LAYOUT_PADDED) {
#pragma unroll 1
        for (int q = syc_warp(); q < (int)min((int64_t)THREADS, candidates - c); q += THREADS / 32) {
            const int d = syi_device_at(m.mesh, m.axis, own.group, (int)c + q);
            bool hit = false;
#pragma unroll 1
            for (int64_t k = syc_lane(); k < m.n_slots; k += 32) {
                const int32_t e = __ldcg(m.leads.choice + own.t * m.n_slots + k);
                hit |= e >= 0 && e < m.n_experts && m.first_of(d, e) >= 0;
            }
            hit = __any_sync(SYC_ALL_LANES, hit);
            if (syc_lane() == 0)
                all->hit[q] = hit;
        }
    }
    if (i >= candidates)
        return {-1, -1, false};
    if (m.layout != SY_LAYOUT_EXPERT)
        return {syi_device_at(m.mesh, m.axis, own.group, (int)i),
                m.layout == SY_LAYOUT_PACKED ? __ldcg(m.leads.packed + own.t * m.n_positions + i) : 0, false};
    const int64_t k = m.single ? i : syc_quotient(i, m.by_positions), at = own.t * m.n_slots + k;
    const int32_t e = __ldcg(m.leads.choice + at), rank = __ldcg(m.leads.rank + at);
    const u64 holder = e >= 0 && e < m.n_experts ? __ldcg(m.leads.holder + m.key_of(own.group, e)) : ~0ull;
    if (holder == ~0ull)
        return {-1, -1, false};
    const int d = m.single ? syc_spot_device(holder)
                           : syi_device_at(m.mesh, m.axis, own.group, (int)(i - k * m.n_positions));
    const bool lowest = d == syc_spot_device(holder);
    const int first = lowest ? (int)syc_spot_row(holder) : m.first_of(d, e);
    return {d, first < 0 ? -1 : first + rank, lowest};
}

/* Adds the row of candidate c, of a plane and, unless it is 0, of that of scales; tables: writes what the
   caller asked to know. */
SYC_INLINE void find_target(const syc_team &m, const struct token &own, int64_t c, const candidate &found,
                            int plane, int scales, bool tables, struct targets *all)
{
    const syi_a2a_device &home = m.device(own.device);
    const bool expert = m.layout == SY_LAYOUT_EXPERT;
    const int64_t k = !expert ? 0 : m.single ? c : syc_quotient(c, m.by_positions);
    if (expert && tables && (found.lowest || (found.device < 0 && (m.single || c == k * m.n_positions))))
        m.leads.pick[own.t * m.n_slots + k] = found.lowest ? syc_spot(found.device, found.row) : ~0ull;
    if (found.row < 0 || (m.own >= 0 && found.device != m.own))
        return;
    const syi_a2a_device &to = m.device(found.device);
    const int64_t row = m.layout == SY_LAYOUT_PADDED ? m.tau(home, own.n) : (int64_t)found.row;
    const bool zero = m.layout == SY_LAYOUT_PADDED && !all->hit[threadIdx.x];
    if (tables && m.layout == SY_LAYOUT_PADDED && to.mask.data != NULL)
        to.mask.data[row] = !zero;
    if (tables && to.src.data != NULL)
        write_src(to, row, home.position, own.n, k, expert);
    if (zero && !m.zero)
        return;
    const int i = zero ? THREADS - 1 - atomicAdd(&all->n_zeros, 1) : atomicAdd(&all->n_copies, 1);
    all->to[i] = syc_out_row(to.to[plane], row);
    if (scales > 0)
        all->scales[i] = syc_out_row(to.to[scales], row);
}

/* The choices of a token in the table of every device of its group. */
SYC_INLINE void write_metadata(const syc_team &m, const struct token &own)
{
    const syi_a2a_device &home = m.device(own.device);
    const int64_t bytes = m.n_slots * (m.index_type == SY_TYPE_U16 ? 2 : m.index_type == SY_TYPE_I32 ? 4 : 8);
    const u8 *const from = syc_row(home.indices, own.n);
    const int64_t row = m.tau(home, own.n);
#pragma unroll 1
    for (int q = syc_warp(); q < m.n_positions; q += THREADS / 32) {
        const syi_rows to = m.at(own.group, q).metadata;
#pragma unroll 1
        for (int64_t b = syc_lane(); b < bytes && to.data != NULL; b += 32)
            syc_out_row(to, row)[b] = from[b];
    }
}

/* Counts and offsets that the caller asked for: a warp for each device. */
SYC_INLINE void write_counts(const syc_team &m, int d)
{
    const syi_a2a_device &to = m.device(d);
    int place = 0;
    if (to.expert_counts == NULL && to.expert_offsets == NULL)
        return;
#pragma unroll 1
    for (int64_t e = syc_lane(); e - syc_lane() < m.n_experts; e += 32) {
        const int32_t first = e < m.n_experts ? m.first_of(d, (int32_t)e) : -1;
        const u32 hosted = __ballot_sync(SYC_ALL_LANES, first >= 0);
        const int own = place + __popc(hosted & ((1u << syc_lane()) - 1u));
        if (first >= 0 && to.expert_counts != NULL)
            syc_store<u64>(to.expert_counts + 8 * own, (u64)__ldcg(m.leads.count + m.key_of(to.group, e)));
        if (first >= 0 && to.expert_offsets != NULL)
            syc_store<u64>(to.expert_offsets + 8 * own, (u64)first);
        place += __popc(hosted);
    }
    if (syc_lane() == 0 && to.expert_offsets != NULL)
        syc_store<u64>(to.expert_offsets + 8 * place, (u64)__ldcg(&m.leads.need[d].rows));
}

/* EXPERT: zeros after the rows of each expert of the devices here, up to a multiple of `align`; of `fixed`
   ones, which may be many, some rows at a time. */
enum { PADDED_ROWS = 16 };

static SYI_BOTH inline int64_t padded_parts(const syc_team &m)
{
    return m.fixed ? (m.align + PADDED_ROWS - 1) / PADDED_ROWS : 1;
}
static SYI_BOTH inline int64_t padded_experts(const syc_team &m)
{
    return (m.own >= 0 ? 1 : m.n_devices) * m.n_experts;
}

template <typename V>
SYC_COLD void write_padding(const syc_team &m, int plane, u32 all, int block, int blocks)
{
    const int64_t parts = padded_parts(m), n = padded_experts(m) * parts;
    /* in the tables, by device and expert */
    const auto place = [&](int64_t at) { return at / parts + (m.own >= 0 ? m.own * m.n_experts : 0); };
#pragma unroll 1
    /* each lane looks whether there is an expert; most devices do not host it */
    for (int64_t from = block; from < n; from += 32 * (int64_t)blocks) {
        const int64_t mine = from + syc_lane() * (int64_t)blocks;
        const int32_t own_first = mine < n ? __ldcg(m.leads.first + place(mine)) : -1;
#pragma unroll 1
        for (u32 which = __ballot_sync(SYC_ALL_LANES, own_first >= 0); which != 0; which &= which - 1) {
            const int lane = __ffs((int)which) - 1;
            const int64_t at = from + lane * (int64_t)blocks, i = place(at),
                          first = __shfl_sync(SYC_ALL_LANES, own_first, lane);
            const int d = (int)(i / m.n_experts);
            const syi_a2a_device &to = m.device(d);
            const u32 part = (u32)(at % parts) * PADDED_ROWS,
                      count = (u32)__ldcg(m.leads.count + m.key_of(to.group, i - (int64_t)d * m.n_experts)),
                      align = (u32)m.align;
            const u32 begin = m.fixed ? max(count, part) : count,
                      end = m.fixed ? min(align, part + PADDED_ROWS) : (count + align - 1) / align * align;
#pragma unroll 1
            for (u32 r = begin; r < end; r++) {
#pragma unroll 1
                for (u32 v = threadIdx.x; v < all; v += THREADS)
                    __stcs((V *)syc_out_row(to.to[plane], first + (int64_t)r) + v, syc_zero<V>());
                if (plane == 0 && threadIdx.x == 0 && to.src.data != NULL)
                    write_src(to, first + (int64_t)r, -1, -1, -1, true);
            }
        }
    }
}

/* The row of a token to the second cache, where it is found when a block has room for it. */
SYC_INLINE void prefetch_token(const syc_team &m, u32 t, int plane, u32 bytes)
{
    const syi_a2a_device &home = m.device(m.device_of(t));
    syc_bulk_prefetch(syc_row(home.from[plane], t - home.first), bytes);
}

/* Waits for the kernels before, finds where a token goes, THREADS candidates at a time, and calls store(c)
   for those from c on; nothing after a fault. By the whole block. scales: the plane of scales, 0: none.
   tables: this block writes what the call lists of the token. */
template <class Store>
SYC_INLINE void spread_to(const syc_team &m, const struct token &token, int plane, int scales, bool tables,
                          struct targets *targets, const syc_gate &gate, const Store &store)
{
    const int64_t candidates = candidates_of(m);
    if (threadIdx.x == 0)
        targets->n_copies = targets->n_zeros = 0;
    syc_wait_for_previous();
    const bool bad = syc_sees_fault(gate);
    candidate found = look_up(m, token, 0, candidates, targets);
    if (!syc_all_clear(gate, bad)) /* a barrier, too */
        return;
#pragma unroll 1
    for (int64_t c = 0; c < candidates; c += THREADS) {
        if (c > 0) {
            __syncthreads();
            if (threadIdx.x == 0)
                targets->n_copies = targets->n_zeros = 0;
            found = look_up(m, token, c, candidates, targets);
            __syncthreads();
        }
        if (c + threadIdx.x < candidates)
            find_target(m, token, c + threadIdx.x, found, plane, scales, tables, targets);
        __syncthreads();
        store(c);
    }
    if (tables && !m.routed)
        write_metadata(m, token);
}

/* A block for each part of `width` vectors of a token: reads it once and writes it to all of its rows.
   `counting` blocks after them write counts, the rest padding. */
template <typename V>
static __global__ void __launch_bounds__(THREADS, exchange_policy::SPREAD_BLOCKS)
    spread(const __grid_constant__ syc_team m, int plane, u32 parts, u32 width, u32 all, u32 ahead,
           int counting, const __grid_constant__ syc_gate gate)
{
    enum { AHEAD = 4 };
    __shared__ struct targets targets;
    const u32 blocks = (u32)m.n_tokens * parts;
    if (blockIdx.x >= blocks) {
        const int block = (int)(blockIdx.x - blocks), d = block * (THREADS / 32) + syc_warp();
        syc_wait_for_previous();
        if (!syc_all_clear(gate, syc_sees_fault(gate)))
            return;
        if (block >= counting)
            write_padding<V>(m, plane, all, block - counting, (int)(gridDim.x - blocks) - counting);
        else if (d < m.n_devices)
            write_counts(m, d);
        return;
    }
    const u32 t = blockIdx.x / parts, part = blockIdx.x - t * parts, begin = part * width;
    const u32 own = begin < all ? min(width, all - begin) : 0;
    struct token token = {(int)t, 0, m.device_of(t), 0};
    const syi_a2a_device &home = m.device(token.device);
    token.n = (int)(t - home.first);
    token.group = home.group;
    const V *const from = (const V *)syc_row(home.from[plane], token.n) + begin;
    V held[AHEAD];
    const auto load = [&](u32 first) {
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            if (first + (u32)u * THREADS < own)
                held[u] = __ldcs(from + first + u * THREADS);
    };
    load(threadIdx.x);
    if (threadIdx.x == 0 && ahead > 0 && t + ahead < (u32)m.n_tokens && part == 0)
        prefetch_token(m, t + ahead, plane, all * (u32)sizeof(V));
    spread_to(m, token, plane, 0, part == 0 && plane == 0, &targets, gate, [&](int64_t c) {
#pragma unroll 1
        for (u32 first = threadIdx.x; first < own; first += AHEAD * THREADS) {
            if (c > 0 || first >= AHEAD * THREADS)
                load(first);
#pragma unroll 1
            for (int j = 0; j < targets.n_copies; j++) {
                V *const to = (V *)targets.to[j] + begin + first;
#pragma unroll
                for (int u = 0; u < AHEAD; u++)
                    if (first + (u32)u * THREADS < own)
                        __stcs(to + u * THREADS, held[u]);
            }
#pragma unroll 1
            for (int j = 0; j < targets.n_zeros; j++) {
                V *const to = (V *)targets.to[THREADS - 1 - j] + begin + first;
#pragma unroll
                for (int u = 0; u < AHEAD; u++)
                    if (first + (u32)u * THREADS < own)
                        __stcs(to + u * THREADS, syc_zero<V>());
            }
        }
    });
}

/* The same for rows that become codes: units of sixteen numbers, a group has 2^shift of them, a part
   SPREAD_UNITS at most. They are made before the places of the rows are known. */
enum { SPREAD_AHEAD = 2, SPREAD_UNITS = SPREAD_AHEAD * THREADS };

template <sy_type T, syi_code C>
static __global__ void __launch_bounds__(THREADS, T == SY_TYPE_F32 ? 3 : 4)
    spread_codes(const __grid_constant__ syc_team m, const __grid_constant__ syi_row_codes_plan p, int scales,
                 u32 parts, u32 width, u32 all, int shift, int counting,
                 const __grid_constant__ syc_gate gate)
{
    __shared__ struct targets targets;
    const u32 blocks = (u32)m.n_tokens * parts;
    if (blockIdx.x >= blocks) {
        const int block = (int)(blockIdx.x - blocks), d = block * (THREADS / 32) + syc_warp();
        syc_wait_for_previous();
        if (!syc_all_clear(gate, syc_sees_fault(gate)))
            return;
        if (block >= counting) {
            write_padding<uint4>(m, 0, all, block - counting, (int)(gridDim.x - blocks) - counting);
            write_padding<u8>(m, scales, (u32)p.scale_bytes, block - counting,
                              (int)(gridDim.x - blocks) - counting);
        } else if (d < m.n_devices) {
            write_counts(m, d);
        }
        return;
    }
    const u32 t = blockIdx.x / parts, begin = (blockIdx.x - t * parts) * width + threadIdx.x,
              end = min(begin - threadIdx.x + width, all);
    const struct token token = token_at(m, t);
    const u8 *const from = syc_row(m.device(token.device).from[0], token.n);
    syc_sixteen<T> held[SPREAD_AHEAD];
    uint4 codes[SPREAD_AHEAD];
    u32 bits[SPREAD_AHEAD];
#pragma unroll
    for (int u = 0; u < SPREAD_AHEAD; u++)
        held[u] = begin + u * THREADS < end ? syc_sixteen<T>::load(from, begin + u * THREADS)
                                            : syc_zero<syc_sixteen<T>>();
#pragma unroll
    for (int u = 0; u < SPREAD_AHEAD; u++) {
        float x[SYC_PACK_UNIT];
        held[u].widen(x);
        codes[u] = syc_codes_of<T, C>(p, x, shift, &bits[u]);
    }
    const auto store = [&](int i, bool zero) {
#pragma unroll
        for (int u = 0; u < SPREAD_AHEAD; u++) {
            const u32 unit = begin + u * THREADS;
            if (unit >= end)
                break;
            __stcs((uint4 *)targets.to[i] + unit, zero ? make_uint4(0, 0, 0, 0) : codes[u]);
            if ((unit & ((1u << shift) - 1u)) == 0)
                syc_store_scale(p, targets.scales[i], unit >> shift, zero ? 0 : bits[u]);
        }
    };
    spread_to(m, token, 0, scales, blockIdx.x == t * parts, &targets, gate, [&](int64_t) {
#pragma unroll 1
        for (int j = 0; j < targets.n_copies; j++)
            store(j, false);
#pragma unroll 1
        for (int j = 0; j < targets.n_zeros; j++)
            store(THREADS - 1 - j, true);
    });
}

/* rows_from and rows_to: a block for each device that receives. */
static __global__ void __launch_bounds__(THREADS)
    count_rows(const __grid_constant__ syc_team m, const __grid_constant__ syc_gate gate)
{
    if (!syc_may_write(gate))
        return;
    const int d = (int)blockIdx.x;
    const syi_a2a_device &to = m.device(d);
#pragma unroll 1
    for (int p = 0; p < m.n_positions; p++) {
        const syi_a2a_device &from = m.at(to.group, p);
        int64_t n = 0;
#pragma unroll 1
        for (int64_t i = 0; i < from.n_tokens; i += THREADS)
            n += __syncthreads_count(i + threadIdx.x < from.n_tokens &&
                                     m.hits(from.first + i + threadIdx.x, d));
        if (threadIdx.x == 0 && to.rows_from != NULL)
            syc_store<u64>(to.rows_from + 8 * (int64_t)p, (u64)n);
        if (threadIdx.x == 0 && from.rows_to != NULL)
            syc_store<u64>(from.rows_to + 8 * (int64_t)to.position, (u64)n);
    }
}

/* ---- Combine ---- */

/* The row of a spot, of a plane. NULL: there is none. */
SYC_INLINE const u8 *row_of(const syc_team &m, u64 spot, int plane)
{
    return spot == ~0ull ? NULL : syc_row(m.device(syc_spot_device(spot)).from[plane], syc_spot_row(spot));
}

/* The spot of a token's slot: of the lowest position that hosts its expert. All bits set: there is none. */
SYC_INLINE u64 slot_row(const syc_team &m, const syi_a2a_device &home, int64_t t, int64_t k)
{
    const int64_t at = t * m.n_slots + k;
    if (m.alone && m.layout == SY_LAYOUT_EXPERT)
        return __ldcg(m.leads.pick + at);
    const int32_t e = __ldcg(m.leads.choice + at);
    const u64 holder = e < 0 ? ~0ull : __ldcg(m.leads.holder + m.key_of(home.group, e));
    if (holder == ~0ull)
        return ~0ull;
    const syi_a2a_device &from = m.device(syc_spot_device(holder));
    const int64_t row = m.layout == SY_LAYOUT_EXPERT ? syc_spot_row(holder) + __ldcg(m.leads.rank + at)
                        : m.layout == SY_LAYOUT_PACKED
                            ? (int64_t)__ldcg(m.leads.packed + t * m.n_positions + from.position)
                            : syc_spot_row(holder) * home.group_tokens + m.tau(home, t - home.first);
    return syc_spot(syc_spot_device(holder), row);
}

/* local_reduce: the row of a token from a position, which has one if it hosts an expert of the token. */
SYC_INLINE u64 reduced_row(const syc_team &m, const syi_a2a_device &home, int64_t t, int q)
{
    const int d = syi_device_at(m.mesh, m.axis, home.group, q);
    const bool packed = m.layout == SY_LAYOUT_PACKED;
    const int64_t row = packed         ? (int64_t)__ldcg(m.leads.packed + t * m.n_positions + q)
                        : m.hits(t, d) ? m.tau(home, t - home.first)
                                       : -1;
    return row < 0 ? ~0ull : syc_spot(d, row);
}

/* The slot that such a row goes to is the one of the position's lowest expert. */
SYC_INLINE u64 reduced_slot(const syc_team &m, const syi_a2a_device &home, int64_t t, int64_t k)
{
    const int32_t e = __ldcg(m.leads.choice + t * m.n_slots + k);
    const int d = e < 0 ? -1 : syc_spot_device(__ldcg(m.leads.holder + m.key_of(home.group, e)));
    if (d < 0)
        return ~0ull;
#pragma unroll 1
    for (int64_t i = 0; i < m.n_slots; i++) {
        const int32_t other = __ldcg(m.leads.choice + t * m.n_slots + i);
        if (other >= 0 && other < e && m.first_of(d, other) >= 0)
            return ~0ull;
    }
    return reduced_row(m, home, t, m.device(d).position);
}

/* Row i of the outputs of all devices here, [K,N] each, of a plane; the first writes `written`. */
SYC_INLINE syc_piece output_row(const syc_team &m, int64_t i, int plane)
{
    const syi_a2a_device &home = m.device(m.own >= 0 ? m.own : m.device_of(i / m.n_slots));
    const int64_t r = m.own >= 0 ? i : i - home.first * m.n_slots, k = r / home.n_tokens,
                  n = r - k * home.n_tokens;
    const u8 *const from = row_of(
        m, m.local_reduce ? reduced_slot(m, home, home.first + n, k) : slot_row(m, home, home.first + n, k),
        plane);
    if (plane == 0 && home.mask.data != NULL)
        syc_out_row(home.mask, k)[n] = from != NULL;
    return {from, from != NULL || m.zero ? syc_out_row(home.to[plane], r) : NULL};
}

/* A block copies `pieces` rows of `bytes` bytes, `width` vectors. */
template <typename V>
static __global__ void __launch_bounds__(THREADS)
    collect(const __grid_constant__ syc_team m, int plane, int64_t n, int pieces, syc_divisor width,
            int64_t bytes, const __grid_constant__ syc_gate gate)
{
    typedef syc_piece_vectors<V> Vectors;
    enum { AHEAD = 4 };
    __shared__ syc_piece piece[SYC_MOVE_PIECES];
    const int64_t first = (int64_t)blockIdx.x * pieces;
    const int own = (int)min((int64_t)pieces, n - first);
    const u32 all = (u32)own * width.d;
    syc_wait_for_previous();
    if (!may_move(m, gate))
        return;
    if ((int)threadIdx.x < own)
        piece[threadIdx.x] = output_row(m, first + threadIdx.x, plane);
    __syncthreads();
#pragma unroll 1
    for (u32 begin = threadIdx.x; begin < all; begin += AHEAD * THREADS) {
        typename Vectors::Held held[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const u32 i = begin + (u32)u * THREADS, p = syc_divide(i, width);
            held[u] = i < all ? Vectors::load(piece[p], i - p * width.d, bytes)
                              : syc_zero<typename Vectors::Held>();
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const u32 i = begin + (u32)u * THREADS, p = syc_divide(i, width);
            if (i < all)
                Vectors::store(piece[p], i - p * width.d, bytes, held[u]);
        }
    }
}

/* The rows of a token here: of its slots with their weights, or of the positions (local_reduce). */
struct summed {
    const syc_team &m;
    int64_t n_choices;
    __device__ __forceinline__ const syi_a2a_device &home_of(int64_t *t) const
    {
        const syi_a2a_device &home = m.device(m.own >= 0 ? m.own : m.device_of(*t));
        *t += m.own >= 0 ? home.first : 0;
        return home;
    }
    /* The spot of a choice, and its weight. */
    __device__ __forceinline__ u64 spot_at(int64_t choice, int64_t t, float *weight) const
    {
        const syi_a2a_device &home = home_of(&t);
        const u64 spot = m.local_reduce ? reduced_row(m, home, t, (int)choice) : slot_row(m, home, t, choice);
        const u8 *const weights =
            spot != ~0ull && home.weights.data != NULL ? syc_row(home.weights, t - home.first) : NULL;
        *weight = spot == ~0ull ? 0.0f : syc_gate_of(weights, choice, home.weight_type);
        return spot;
    }
    __device__ syc_added choice_at(int64_t choice, int64_t t) const
    {
        if (choice >= n_choices)
            return {NULL, 0.0f};
        float weight;
        const u8 *const row = row_of(m, spot_at(choice, t, &weight), 0);
        return {row, weight};
    }
    /* For syc_sum_coded_parts. */
    __device__ int64_t n_rows(int64_t) const { return n_choices; }
    __device__ syc_coded_place row_at(int64_t t, int64_t choice) const
    {
        float weight;
        const u64 spot = spot_at(choice, t, &weight);
        return {row_of(m, spot, 0), row_of(m, spot, 1), weight};
    }
    __device__ u8 *to(int64_t t) const
    {
        const syi_a2a_device &home = home_of(&t);
        return syc_out_row(home.to[0], t - home.first);
    }
};

template <sy_type T, bool WIDE>
static __global__ void __launch_bounds__(SYC_SLOT_THREADS, 4)
    add_up(const __grid_constant__ syc_team m, const __grid_constant__ syc_row_parts parts,
           const __grid_constant__ syc_gate gate)
{
    syc_wait_for_previous();
    if (!may_move(m, gate))
        return;
    const summed rows = {m, m.local_reduce ? m.n_positions : m.n_slots};
    syc_sum_parts<T, WIDE>(rows, parts, false);
}

template <sy_type T, bool WIDE>
static __global__ void __launch_bounds__(SYC_CODED_SUM_THREADS, SYC_CODED_SUM_BLOCKS)
    add_up_codes(const __grid_constant__ syc_team m, int64_t n_tokens,
                 const __grid_constant__ syi_row_codes_plan p, u32 n_parts,
                 const __grid_constant__ syc_gate gate)
{
    syc_wait_for_previous();
    if (!may_move(m, gate))
        return;
    const summed rows = {m, m.local_reduce ? m.n_positions : m.n_slots};
    syc_sum_coded_parts<T, WIDE>(p, rows, n_tokens, n_parts);
}

/* For syc_by_sum. */
struct launch_coded_sums {
    syc_call *call;
    const syc_team &m;
    int64_t n_tokens;
    const syi_row_codes_plan *p;
    template <sy_type T, bool WIDE> void run() const
    {
        const syc_coded_shape shape = syc_coded_shape_of<T, WIDE>(call, p, n_tokens);
        syc_launch(&call->queue, add_up_codes<T, WIDE>, SYC_EARLY, shape.blocks, shape.threads, 0, m,
                   n_tokens, *p, shape.n_parts, call->gate);
    }
};

/* For syc_by_type. */
struct launch_sums {
    syc_call *call;
    const syc_team &m;
    int64_t n_tokens, hidden;
    template <sy_type T, bool WIDE> void run() const
    {
        syc_row_parts parts =
            syc_parts_of<syc_row_numbers<T, WIDE>>(n_tokens, hidden, call->device->processors);
        parts.per_block = parts.per_block < SYC_SUM_PARTS ? parts.per_block : (int)SYC_SUM_PARTS;
        syc_launch(&call->queue, add_up<T, WIDE>, SYC_EARLY, syc_parts_blocks(parts), SYC_SLOT_THREADS, 0, m,
                   parts, call->gate);
    }
};
