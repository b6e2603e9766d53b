/*
 * Gradients of moe_unpermute where there is much to move: the gradient of a token and the saved rows of its slots are read
 * once, by bulk loads into a ring of stages in shared memory. Warps that store scale the gradient for each of its rows;
 * others add up the dot products. An item is a piece of all rows of one token; a stage holds one item, and every warp
 * passes all items in order. Blocks are persistent and take tokens blockIdx.x, blockIdx.x + gridDim.x and so on.
 */
#include "cuda/moe_grads.cuh"
#include "cuda/moe_spread.cuh"

enum {
    STORERS = 512,           /* threads that store: each has one vector of a piece, for some of the slots */
    DOTTERS = 16,            /* threads of a dot product: one for each of its lanes */
    MOST_SLOTS = 16,
    MOST_THREADS = STORERS + MOST_SLOTS * DOTTERS + 64,
    STAGES = 5,
    MOST_STAGES = 16,
    MOST_PIECE = STORERS * 16,
    MOST_MEMORY = 192 * 1024 /* leaves room beside it for the kernel that validates */
};

struct ring {
    int64_t row_bytes;
    int piece, pieces; /* bytes; of a row */
    int apart;         /* bytes from a row of a stage to the next: eight rows begin in different banks */
    int stages, shift; /* log2 of the threads that store one slot */
};

static int64_t memory_of(const struct syc_device *device)
{
    const int64_t most = device->shared_bytes - 8 * 1024;
    return most < MOST_MEMORY ? most : (int64_t)MOST_MEMORY;
}

static struct ring ring_of(const struct syc_device *device, const struct syc_spread *s)
{
    const int size = s->type == SY_TYPE_F32 ? 4 : 2, group = SYI_DOT_LANES * size;
    struct ring r = {s->hidden * size, 0, 0, 0, 0, 5};
    const int64_t rows = s->lists.n_slots + 1, memory = memory_of(device);
    int64_t most = memory / (STAGES * rows) - group;
    if (most > MOST_PIECE)
        most = MOST_PIECE;
    while (s->hidden > SYI_DOT_BLOCK && (most & (most - 1)) != 0)
        most &= most - 1; /* a power of two: no piece is in two blocks of a dot product */
    const int64_t pieces = (r.row_bytes + most - 1) / most, even = (r.row_bytes + pieces - 1) / pieces;
    const int64_t unit = even > 1024 ? 128 : group, whole = (even + unit - 1) / unit * unit;
    r.piece = (int)(s->hidden > SYI_DOT_BLOCK || whole > most ? most / group * group : whole);
    r.pieces = (int)((r.row_bytes + r.piece - 1) / r.piece);
    r.apart = r.piece + group;
    const int64_t stages = memory / (rows * r.apart);
    r.stages = (int)(stages < MOST_STAGES ? stages : (int64_t)MOST_STAGES);
    while ((16 << r.shift) < r.piece)
        r.shift++;
    return r;
}

bool syc_moe_spread_ring_pays(const struct syc_device *device, const struct syc_spread *s)
{
    const struct syc_moe_lists *const l = &s->lists;
    return syc_has_bulk(device) && !l->capacity && s->grad_probs.data != NULL && l->n_rows > 0 && l->n_slots <= MOST_SLOTS &&
           s->hidden >= 256 && s->hidden % SYI_DOT_LANES == 0 && l->n_tokens >= 4 * (int64_t)device->processors;
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
    __device__ __forceinline__ u32 bytes(const struct ring &r) const
    {
        return (u32)min((int64_t)r.piece, r.row_bytes - (int64_t)piece * r.piece);
    }
};

static __device__ __forceinline__ int32_t row_at(const struct syc_moe_lists &l, int64_t t)
{
    return t < l.n_tokens && syc_lane() < l.n_slots ? syc_entry_row(l, t, syc_lane()) : -1;
}

/* ---- Stores ------------------------------------------------------------------------------------------------------- */

/* What a lane holds of slot `lane`: its row, the weight of the token's row `lane`, the owner of the row. */
struct held {
    int32_t row, owner;
    float weight;
};

template <class Numbers>
static __device__ __forceinline__ void store_rows(const struct syc_spread &s, const struct ring &r, const u8 *memory, struct syc_barrier *full,
                                                  struct syc_barrier *empty)
{
    const struct syc_moe_lists &l = s.lists;
    const int slots = (int)l.n_slots, v = (int)threadIdx.x & ((1 << r.shift) - 1), first = (int)threadIdx.x >> r.shift, step = STORERS >> r.shift;
    const auto hold = [&](int64_t t) {
        struct held h = {row_at(l, t), -1, 0.0f};
        if (t < l.n_tokens && syc_lane() < slots)
            h.weight = __ldcg(l.weights + t * slots + syc_lane());
        return h;
    };
    struct cursor c = {blockIdx.x, 0, 0, 0}, ahead = c;
    struct held now, next = hold(c.t), later;
    ahead.advance(r);
    if (next.row >= 0)
        next.owner = syc_owner(l, next.row);
    later = hold(ahead.t);
#pragma unroll 1
    for (; c.t < l.n_tokens; c.advance(r)) {
        now = next;
        next = later;
        if (next.row >= 0)
            next.owner = syc_owner(l, next.row);
        ahead.advance(r);
        later = hold(ahead.t);
        const u32 live = __ballot_sync(SYC_ALL_LANES, now.row >= 0);
        const float w = __shfl_sync(SYC_ALL_LANES, now.weight, __popc(live & syc_lanes_below()) & 31);
        const int32_t row = now.owner == (int32_t)(c.t * slots + syc_lane()) ? now.row : -1;
        const bool in = v * 16 < (int)c.bytes(r);
        float x[Numbers::N];
        syc_barrier_wait(full + c.stage, c.turn);
        const uint4 bits = in ? ((const uint4 *)(memory + c.stage * (slots + 1) * r.apart))[v] : make_uint4(0, 0, 0, 0);
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
            Numbers::store(syc_out_row(s.rows, to) + (int64_t)c.piece * r.piece, v, by == 0.0f ? make_uint4(0, 0, 0, 0) : Numbers::narrow(y));
        }
    }
}

/* ---- Dot products ------------------------------------------------------------------------------------------------- */

template <sy_type type> static __device__ __forceinline__ float number(const u8 *p)
{
    typedef syc_numbers<type, false> Numbers;
    float x[1];
    Numbers::widen(*(const typename Numbers::Word *)p, x);
    return x[0];
}

/* Adds lane `lane` of the products of a piece of n bytes. */
template <sy_type type> static __device__ __forceinline__ void add_products(float &sum, const u8 *x, const u8 *y, int n)
{
    enum { SIZE = syc_numbers<type, false>::SIZE, STEP = SYI_DOT_LANES * SIZE, AHEAD = 8 };
    int i = 0;
#pragma unroll 1
    for (; i + AHEAD * STEP <= n; i += AHEAD * STEP) {
        float p[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            p[u] = __fmul_rn(number<type>(x + i + u * STEP), number<type>(y + i + u * STEP));
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            sum = __fadd_rn(sum, p[u]);
    }
#pragma unroll 1
    for (; i < n; i += STEP)
        sum = __fadd_rn(sum, __fmul_rn(number<type>(x + i), number<type>(y + i)));
}

static __device__ __forceinline__ float fold_lanes(float sum)
{
#pragma unroll
    for (int half = SYI_DOT_LANES / 2; half > 0; half /= 2)
        sum = __fadd_rn(sum, __shfl_xor_sync(SYC_ALL_LANES, sum, half));
    return sum;
}

/* Whether a token is routed to eight experts, as bits: those from 8 * lane on after `first`. */
static __device__ __forceinline__ u32 routed_at(const struct syc_moe_lists &l, int64_t t, int64_t first)
{
    const int64_t e = first + 8 * syc_lane();
    return e < l.n_experts ? syc_experts_at(syc_row(l.map, t), e, l.n_experts) : 0;
}

/* Zeros for the experts that a token is not routed to, by a warp. `bits`: routed_at the first. */
static __device__ __forceinline__ void clear_probs(const struct syc_spread &s, int64_t t, u32 bits)
{
    const int64_t n = s.lists.n_experts;
    u8 *const to = syc_out_row(s.grad_probs, t);
#pragma unroll 1
    for (int64_t first = 0; first < n; first += 256) {
        if (first > 0)
            bits = routed_at(s.lists, t, first);
#pragma unroll 1
        for (int i = syc_lane(); i < 256 && first + i - syc_lane() < n; i += 32) {
            const u32 own = __shfl_sync(SYC_ALL_LANES, bits, i / 8) >> (i % 8);
            if (first + i < n && (own & 1) == 0)
                syc_store_float(to + (first + i) * (s.prob_type == SY_TYPE_F32 ? 4 : 2), s.prob_type, 0.0f);
        }
    }
}

/* Two slots for each of these warps. */
template <sy_type type>
static __device__ __forceinline__ void add_dots(const struct syc_spread &s, const struct ring &r, const u8 *memory, struct syc_barrier *full,
                                                struct syc_barrier *empty, int warp)
{
    enum { SIZE = syc_numbers<type, false>::SIZE };
    const struct syc_moe_lists &l = s.lists;
    const int slots = (int)l.n_slots, k = warp * 2 + syc_lane() / SYI_DOT_LANES, lane = syc_lane() % SYI_DOT_LANES;
    int32_t row = -1;
    u32 bits = 0;
    float sum = 0.0f, total = 0.0f;
    struct cursor c = {blockIdx.x, 0, 0, 0};
#pragma unroll 1
    for (; c.t < l.n_tokens; c.advance(r)) {
        if (c.piece == 0) { /* used at the end of the token */
            row = row_at(l, c.t);
            bits = warp == 0 ? routed_at(l, c.t, 0) : 0;
            sum = total = 0.0f;
        }
        const u8 *const stage = memory + c.stage * (slots + 1) * r.apart + lane * SIZE;
        syc_barrier_wait(full + c.stage, c.turn);
        if (k < slots)
            add_products<type>(sum, stage, stage + (k + 1) * r.apart, (int)c.bytes(r));
        __syncwarp();
        if (syc_lane() == 0)
            syc_barrier_arrive(empty + c.stage);
        const bool last = c.piece + 1 == r.pieces;
        if (last || (int64_t)(c.piece + 1) * r.piece % (SYI_DOT_BLOCK * SIZE) == 0) {
            total = __fadd_rn(total, fold_lanes(sum));
            sum = 0.0f;
        }
        if (!last)
            continue;
        const u32 live = __ballot_sync(SYC_ALL_LANES, row >= 0);
        if (warp == 0)
            clear_probs(s, c.t, bits);
        if (lane == 0 && k < slots && (live >> k & 1) != 0) {
            const int64_t e = __ldcg(l.experts + c.t * slots + __popc(live & ((1u << k) - 1u)));
            syc_store_float(syc_out_row(s.grad_probs, c.t) + e * (s.prob_type == SY_TYPE_F32 ? 4 : 2), s.prob_type, syc_canonical(total));
        }
    }
}

/* ---- The ring ------------------------------------------------------------------------------------------------------ */

/* Zeros for rows that no slot names; by a warp. */
static __device__ __forceinline__ void clear_rows(const struct syc_spread &s, int64_t row_bytes)
{
    const struct syc_moe_lists &l = s.lists;
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

template <sy_type type>
static __global__ void __launch_bounds__(MOST_THREADS, 1)
    spread_ring(const __grid_constant__ struct syc_spread s, const __grid_constant__ struct ring r, const __grid_constant__ struct syc_gate gate)
{
    SYC_DYNAMIC_SHARED(u8, memory); /* [stage][token, slots][piece] */
    __shared__ struct syc_barrier full[MOST_STAGES], empty[MOST_STAGES];
    const struct syc_moe_lists &l = s.lists;
    const int slots = (int)l.n_slots, dot_warps = (slots + 1) / 2, warp = syc_warp() - STORERS / 32;
    const bool producer = warp == dot_warps;
    if (!SYC_BULK)
        return;
    if (threadIdx.x == 0) {
#pragma unroll 1
        for (int i = 0; i < r.stages; i++) {
            syc_barrier_init(full + i, 1);
            syc_barrier_init(empty + i, (u32)(STORERS / 32 + dot_warps));
        }
        syc_barrier_fence();
    }
    __syncthreads();
    struct cursor c = {blockIdx.x, 0, 0, 0};
    int32_t row = -1, next = producer ? row_at(l, c.t) : -1; /* of the producer's token, and of the one after it */
    const auto load = [&] {
        if (c.piece == 0) {
            row = next;
            next = row_at(l, c.t + gridDim.x);
        }
        const u32 live = __ballot_sync(SYC_ALL_LANES, row >= 0), bytes = c.bytes(r);
        u8 *const stage = memory + c.stage * (slots + 1) * r.apart;
        const int64_t offset = (int64_t)c.piece * r.piece;
        if (syc_lane() == 31)
            syc_barrier_expect(full + c.stage, (u32)(__popc(live) + 1) * bytes);
        __syncwarp();
        if (row >= 0)
            syc_bulk_load(stage + (syc_lane() + 1) * r.apart, syc_row(s.saved, row) + offset, bytes, full + c.stage);
        if (syc_lane() == 31)
            syc_bulk_load(stage, syc_row(s.tokens, c.t) + offset, bytes, full + c.stage);
        c.advance(r);
    };
    int started = 0;
    if (producer) {
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
    if (warp < 0)
        store_rows<syc_numbers<type, true>>(s, r, memory, full, empty);
    else if (warp < dot_warps)
        add_dots<type>(s, r, memory, full, empty, warp);
    else
        clear_rows(s, r.row_bytes);
}

void syc_moe_spread_ring(struct syc_call *call, const struct syc_spread *s)
{
    const struct ring r = ring_of(call->device, s);
    const int64_t used = r.stages * (s->lists.n_slots + 1) * (int64_t)r.apart, most = memory_of(call->device), half = 116 * 1024;
    const size_t shared = (size_t)(used > half ? used : most < half ? most : half); /* no two blocks share a multiprocessor */
    void (*const kernel)(struct syc_spread, struct ring, struct syc_gate) = s->type == SY_TYPE_F32   ? spread_ring<SY_TYPE_F32>
                                                                            : s->type == SY_TYPE_F16 ? spread_ring<SY_TYPE_F16>
                                                                                                     : spread_ring<SY_TYPE_BF16>;
    syc_launch_large(&call->queue, kernel, SYC_EARLY, call->device->processors, STORERS + (int)(s->lists.n_slots + 1) / 2 * 32 + 64, shared, *s, r,
                     call->gate);
}
