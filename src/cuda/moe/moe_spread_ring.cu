/*
 * Gradients of moe_unpermute where there is much to move: the gradient of a token and the saved rows of its
 * slots are read once, into a ring (see moe_ring.cuh). Workers scale the gradient for each of its rows and
 * store it, other warps add up the dot products. All of them pass every item in order.
 */
#include "cuda/moe/moe_ring.cuh"
#include "cuda/moe/moe_spread.cuh"

enum {
    MOST_SLOTS = 16,
    DOT_THREADS = SYI_DOT_LANES / 2, /* of a dot product: two of its lanes each */
    DOT_SLOTS = 32 / DOT_THREADS,    /* dot products of a warp */
    MOST_TEAMS = 3,
    MOST_THREADS = SYC_WORKERS + MOST_SLOTS / DOT_SLOTS * 32 + 64, /* more teams have fewer slots */
    STAGES = 5
};

/* Rows of a stage begin in different banks. No piece is in two blocks of a dot product. */
static syc_items items_of(const syc_device *device, const syc_spread *s)
{
    const int size = s->type == SY_TYPE_F32 ? 4 : 2, lanes = SYI_DOT_LANES * size,
              rows = (int)s->lists.n_slots + 1;
    int unit = s->hidden > 1024 ? 128 : lanes, most = SYC_ITEM_PIECE;
    while (s->hidden > SYI_DOT_BLOCK && (most + lanes) * STAGES * rows > syc_items_memory(device))
        most /= 2;
    if (s->hidden > SYI_DOT_BLOCK)
        unit = most;
    return syc_items_of(device, s->hidden * size, rows, unit, lanes, most, STAGES, false);
}

/* Warps for the dot products of an item: additions of a lane follow each other, so where an item has few
   products several teams take items in turns. The pieces of a row are of one team. */
static int teams_of(const syc_items *r)
{
    return r->pieces > 1                  ? 1
           : r->rows <= DOT_SLOTS + 1     ? (int)MOST_TEAMS
           : r->rows <= 2 * DOT_SLOTS + 1 ? 2
                                          : 1;
}

/* Rows that are long enough. */
const char *syc_moe_spread_ring_why_not(const syc_device *device, const syc_spread *s, bool wants_grad_probs)
{
    const syc_moe_lists *const l = &s->lists;
    return !syc_has_bulk(device)                                 ? "the device has no bulk loads"
           : l->capacity || l->n_rows == 0                       ? "experts have capacity places, or no rows"
           : !wants_grad_probs                                   ? "there is no grad_probs"
           : l->n_slots < 2 || l->n_slots > MOST_SLOTS           ? "a token has one choice, or too many"
           : s->hidden * (s->type == SY_TYPE_F32 ? 4 : 2) < 4096 ? "rows are shorter than 4 KiB"
           : s->hidden % SYI_DOT_LANES != 0                      ? "rows are no multiple of 16 numbers"
           : l->n_tokens < moe_policy::SPREAD_RING_TOKENS * (int64_t)device->processors
               ? "tokens are fewer than 4 for each processor"
               : NULL;
}

/* ---- Stores ---- */

/* Rows and weights ahead, then their owners, which are loaded one batch of items later. */
struct owned {
    syc_slots_ahead ahead;
    int32_t row, owner, slot; /* of the batch that waits for its owners */
    float weight;
    int32_t live, to; /* of the present one: rows, and those that this slot owns */
    float by;

    __device__ __forceinline__ int32_t own_slot(const syc_moe_lists &l, const syc_items &r) const
    {
        int64_t own;
        return ahead.slot_at(l, r, &own) ? (int32_t)own : -1;
    }
    __device__ __forceinline__ void take(const syc_moe_lists &l, const syc_items &r)
    {
        live = row;
        to = owner == slot ? row : -1;
        by = weight;
        const int32_t next_slot = own_slot(l, r);
        ahead.next(l, r, SYC_WEIGHTS);
        ahead.i = 32 >> ahead.shift; /* the next call takes the batch after it */
        row = ahead.row;
        weight = ahead.weight;
        slot = next_slot;
        owner = -1;
        if (row >= 0)
            owner = syc_owner(l, row);
    }
};

template <class Numbers>
SYC_INLINE void store_rows(const syc_spread &s, const syc_items &r, const u8 *memory, syc_barrier *full,
                           syc_barrier *empty)
{
    const syc_moe_lists &l = s.lists;
    const int slots = (int)l.n_slots, v = (int)threadIdx.x & ((1 << r.shift) - 1),
              first = (int)threadIdx.x >> r.shift, step = SYC_WORKERS >> r.shift;
    syc_cursor c = {blockIdx.x, 0, 0, 0};
    owned held = {};
    held.ahead.begin(l, r, SYC_WEIGHTS, 0, 1);
    held.take(l, r);
    int i = 32 >> held.ahead.shift;
#pragma unroll 1
    for (; c.t < l.n_tokens; c.advance(r)) {
        if (i == 32 >> held.ahead.shift) {
            held.take(l, r);
            i = 0;
        }
        const int base = i++ << held.ahead.shift;
        const u32 live = syc_live_slots(l, held.live, base);
        const float w = syc_slot_weight(l, held.by, base, live);
        const int32_t row = __shfl_sync(SYC_ALL_LANES, held.to, (base + syc_lane()) & 31);
        const bool in = v * 16 < (int)c.bytes(r);
        float x[Numbers::N];
        syc_barrier_wait(full + c.stage, c.turn);
        const uint4 bits = in ? ((const uint4 *)c.row(memory, r, 0))[v] : make_uint4(0, 0, 0, 0);
        __syncwarp();
        if (syc_lane() == 0)
            syc_barrier_arrive(empty + c.stage);
        Numbers::widen(bits, x);
#pragma unroll 1
        for (int k = first; k < slots; k += step) {
            const int32_t to = __shfl_sync(SYC_ALL_LANES, row, k);
            const float by = __shfl_sync(SYC_ALL_LANES, w, k);
            if (to < 0 || !in)
                continue;
            float y[Numbers::N];
#pragma unroll
            for (int n = 0; n < Numbers::N; n++)
                y[n] = __fmul_rn(by, x[n]);
            Numbers::store(syc_out_row(s.rows, to) + c.offset(r), v,
                           by == 0.0f ? make_uint4(0, 0, 0, 0) : Numbers::narrow(y));
        }
    }
}

/* ---- Dot products ---- */

/* Two numbers that follow each other, as one word. */
template <sy_type type> struct couple {
    typedef syc_numbers<type, false> Numbers;
    typedef typename std::conditional<type == SY_TYPE_F32, u64, u32>::type V;

    SYC_INLINE void widen(V v, float (&x)[2])
    {
        float one[1];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            Numbers::widen((typename Numbers::Word)(v >> (i * 8 * Numbers::SIZE)), one);
            x[i] = one[0];
        }
    }
    SYC_INLINE void add_product(float (&sum)[2], V x, V y)
    {
        float p[2], q[2];
        widen(x, p);
        widen(y, q);
#pragma unroll
        for (int i = 0; i < 2; i++)
            sum[i] = __fadd_rn(sum[i], __fmul_rn(p[i], q[i]));
    }
};

/* Adds two lanes of the products of a piece of n bytes. */
template <sy_type type> SYC_INLINE void add_products(float (&sum)[2], const u8 *x, const u8 *y, int n)
{
    typedef typename couple<type>::V V;
    enum { STEP = SYI_DOT_LANES * syc_numbers<type, false>::SIZE, AHEAD = 8 };
    int i = 0;
#pragma unroll 1
    for (; i + AHEAD * STEP <= n; i += AHEAD * STEP) {
        V p[AHEAD], q[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            p[u] = *(const V *)(x + i + u * STEP);
            q[u] = *(const V *)(y + i + u * STEP);
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            couple<type>::add_product(sum, p[u], q[u]);
    }
#pragma unroll 1
    for (; i < n; i += STEP)
        couple<type>::add_product(sum, *(const V *)(x + i), *(const V *)(y + i));
}

SYC_INLINE float fold_lanes(const float (&sum)[2])
{
    float a = sum[0], b = sum[1];
#pragma unroll
    for (int half = DOT_THREADS / 2; half > 0; half /= 2) {
        a = __fadd_rn(a, __shfl_xor_sync(SYC_ALL_LANES, a, half));
        b = __fadd_rn(b, __shfl_xor_sync(SYC_ALL_LANES, b, half));
    }
    return __fadd_rn(a, b);
}

/* Zeros for the experts that a token is not routed to, by a warp. It is routed to the n from lane `base`
   on. */
SYC_INLINE void clear_probs(const syc_spread &s, int64_t t, float experts, int base, int n)
{
    u8 *const to = syc_out_row(s.grad_probs, t);
#pragma unroll 1
    for (int64_t first = 0; first < s.lists.n_experts; first += 1024) {
        u32 routed = 0; /* lane: 32 experts */
#pragma unroll 1
        for (int k = 0; k < n; k++) {
            const int64_t e = (int64_t)__float_as_uint(__shfl_sync(SYC_ALL_LANES, experts, base + k)) - first;
            routed |= e >> 5 == syc_lane() ? 1u << (e & 31) : 0;
        }
#pragma unroll 1
        for (int i = 0; i < 32 && first + i * 32 < s.lists.n_experts; i++) {
            const int64_t e = first + i * 32 + syc_lane();
            const u32 own = __shfl_sync(SYC_ALL_LANES, routed, i) >> syc_lane();
            if (e < s.lists.n_experts && (own & 1) == 0)
                syc_store_float(to + e * (s.prob_type == SY_TYPE_F32 ? 4 : 2), s.prob_type, 0.0f);
        }
    }
}

/* DOT_SLOTS slots for each warp of a team; `team` takes each of `teams` items. */
template <sy_type type>
SYC_INLINE void add_dots(const syc_spread &s, const syc_items &r, const u8 *memory, syc_barrier *full,
                         syc_barrier *empty, int warp, int team, int teams)
{
    enum { SIZE = syc_numbers<type, false>::SIZE };
    const syc_moe_lists &l = s.lists;
    const int slots = (int)l.n_slots, k = warp * DOT_SLOTS + syc_lane() / DOT_THREADS,
              lane = syc_lane() % DOT_THREADS;
    syc_cursor c = {blockIdx.x, 0, 0, 0};
    syc_slots_ahead ahead;
    ahead.begin(l, r, SYC_EXPERTS, team, teams);
    if (team > 0)
        c.advance(r, team);
    float sum[2] = {}, total = 0.0f;
#pragma unroll 1
    for (; c.t < l.n_tokens; c.advance(r, teams)) {
        const int base = ahead.next(l, r, SYC_EXPERTS);
        if (c.piece == 0)
            sum[0] = sum[1] = total = 0.0f;
        const u8 *const stage = c.row(memory, r, 0) + lane * 2 * SIZE;
        syc_barrier_wait(full + c.stage, c.turn);
        if (k < slots)
            add_products<type>(sum, stage, stage + (k + 1) * r.apart, (int)c.bytes(r));
        __syncwarp();
        if (syc_lane() == 0)
            syc_barrier_arrive(empty + c.stage);
        const bool last = c.piece + 1 == r.pieces;
        if (last || (c.offset(r) + r.piece) % (SYI_DOT_BLOCK * SIZE) == 0) {
            total = __fadd_rn(total, fold_lanes(sum));
            sum[0] = sum[1] = 0.0f;
        }
        if (!last)
            continue;
        const u32 live = syc_live_slots(l, ahead.row, base);
        const u32 e = __float_as_uint(
            __shfl_sync(SYC_ALL_LANES, ahead.weight, (base + __popc(live & ((1u << k) - 1u))) & 31));
        if (lane == 0 && (live >> k & 1) != 0)
            syc_store_float(syc_out_row(s.grad_probs, c.t) +
                                (int64_t)e * (s.prob_type == SY_TYPE_F32 ? 4 : 2),
                            s.prob_type, syc_canonical(total));
    }
}

/* ---- The ring ---- */

/* Zeros for rows that no slot names; by a warp. */
SYC_INLINE void clear_rows(const syc_spread &s, int64_t row_bytes)
{
    const syc_moe_lists &l = s.lists;
#pragma unroll 1
    for (int64_t first = (int64_t)blockIdx.x * 32; first < l.n_rows; first += (int64_t)gridDim.x * 32) {
        const int64_t row = first + syc_lane();
        u32 without = __ballot_sync(SYC_ALL_LANES, row < l.n_rows && !syc_names(l, syc_owner(l, row), row));
#pragma unroll 1
        for (; without != 0; without &= without - 1) {
            u8 *const to = syc_out_row(s.rows, first + __ffs((int)without) - 1);
#pragma unroll 4
            for (int64_t i = syc_lane() * 16; i < row_bytes; i += 512)
                __stcs((uint4 *)(to + i), make_uint4(0, 0, 0, 0));
        }
    }
}

/* Zeros for all tokens of the block; by a warp. */
SYC_INLINE void clear_all_probs(const syc_spread &s, const syc_items &r)
{
    syc_slots_ahead ahead;
    ahead.begin(s.lists, r, SYC_EXPERTS, 0, r.pieces);
#pragma unroll 1
    for (int64_t t = blockIdx.x; t < s.lists.n_tokens; t += gridDim.x) {
        const int base = ahead.next(s.lists, r, SYC_EXPERTS);
        clear_probs(s, t, ahead.weight, base, __popc(syc_live_slots(s.lists, ahead.row, base)));
    }
}

template <sy_type type>
/* of MOST_THREADS: 64 registers leave room for the kernel that validates */
static __global__ void __launch_bounds__(1024, 1)
    spread_ring(const __grid_constant__ syc_spread s, const __grid_constant__ syc_items r, int teams,
                const __grid_constant__ syc_gate gate)
{
    SYC_DYNAMIC_SHARED(u8, memory); /* [stage][token, slots][piece] */
    __shared__ syc_barrier full[SYC_ITEM_STAGES], empty[SYC_ITEM_STAGES];
    const int warp = syc_warp() - SYC_WORKERS / 32, dot_warps = syc_warps() - SYC_WORKERS / 32 - 2;
    const bool producer = warp == dot_warps;
    if (!SYC_BULK)
        return;
    const int of_team = ((int)s.lists.n_slots + DOT_SLOTS - 1) / DOT_SLOTS;
    syc_items_begin(r, full, empty, SYC_WORKERS / 32 + of_team);
    if (warp < 0)
        syc_list_tokens(s.lists);
    const bool good =
        syc_items_run(s.lists, r, full, empty, producer, gate, [&](const syc_cursor &c, int32_t row) {
            const u32 live = __ballot_sync(SYC_ALL_LANES, row >= 0), bytes = c.bytes(r);
            if (syc_lane() == 31)
                syc_barrier_expect(full + c.stage, (u32)(__popc(live) + 1) * bytes);
            __syncwarp();
            if (row >= 0)
                syc_bulk_load(c.row(memory, r, syc_lane() + 1), syc_row(s.saved, row) + c.offset(r), bytes,
                              full + c.stage);
            if (syc_lane() == 31)
                syc_bulk_load(c.row(memory, r, 0), syc_row(s.tokens, c.t) + c.offset(r), bytes,
                              full + c.stage);
        });
    if (!good || producer)
        return;
    if (warp < 0)
        store_rows<syc_numbers<type, true>>(s, r, memory, full, empty);
    else if (warp < dot_warps)
        add_dots<type>(s, r, memory, full, empty, warp % of_team, warp / of_team, teams);
    else {
        clear_rows(s, r.row_bytes);
        clear_all_probs(s, r);
    }
}

void syc_moe_spread_ring(syc_call *call, const syc_spread *s)
{
    syc_items r = items_of(call->device, s);
    const int teams = teams_of(&r), dot_warps = teams * ((int)(s->lists.n_slots + DOT_SLOTS - 1) / DOT_SLOTS);
    r.stages -= r.stages % teams; /* each stage always serves the same one */
    void (*const kernel)(syc_spread, syc_items, int, syc_gate) =
        s->type == SY_TYPE_F32   ? spread_ring<SY_TYPE_F32>
        : s->type == SY_TYPE_F16 ? spread_ring<SY_TYPE_F16>
                                 : spread_ring<SY_TYPE_BF16>;
    syc_launch_large(&call->queue, kernel, SYC_EARLY, call->device->processors,
                     SYC_WORKERS + dot_warps * 32 + 64, syc_items_bytes(call->device, &r), *s, r, teams,
                     call->gate);
}
