/*
 * moe_unpermute on a device, and what it shares with moe_unpermute_ids and the gradients: the validation of
 * indices and the sums of the rows of each token, which are added in the order of the entries.
 */
#include "cuda/runtime/backend.cuh"
#include "cuda/codes/coded_sums.cuh"
#include "cuda/moe/moe_grads.cuh"

/* ---- Validation: packed ---- */

/* Indices without a map: one item per slot. */
struct slot_check {
    int64_t n, limit;
    const u8 *indices;

    __device__ int64_t at(int64_t i) const { return (int32_t)syc_load<u32>(indices + i * 4); }
    __device__ bool wrong(int64_t i) const { return at(i) < -1 || at(i) >= limit; }
    __device__ void explain(int64_t i, syi_found *f) const
    {
        *f = {SYI_BAD_SORTED_RANGE, 0, -1, i, at(i), limit, 0};
    }
};

enum { CHECK_THREADS = 256, CHECK_WARPS = CHECK_THREADS / 32 };

/* The fault of a token: the first index outside, or how many experts it has. One thread. */
SYC_COLD void explain_token(const syc_moe_lists &l, int64_t t, syi_found *f)
{
    int64_t live = 0, routed = 0;
    for (int64_t i = t * l.n_slots; i < (t + 1) * l.n_slots; i++) {
        const int64_t row = (int32_t)syc_load<u32>(l.indices + i * 4);
        live += row >= 0;
        if (row < -1 || row >= l.n_rows) {
            *f = {SYI_BAD_SORTED_RANGE, 0, -1, i, row, l.n_rows, 0};
            return;
        }
    }
    for (int64_t e = 0; e < l.n_experts; e++)
        routed += syc_row(l.map, t)[e] != 0;
    *f = {SYI_BAD_MAP_SLOTS, 0, -1, t, routed, live, 0};
}

/* A thread that takes a higher slot out of the table by putting its own in puts that back in the next
   turn. */
static __device__ __forceinline__ void claim_row(const syc_moe_lists &l, int32_t row, int32_t slot)
{
    for (;;) {
        const int32_t old = atomicExch(l.owner + row, slot);
        if (old <= slot || !syc_names(l, old, row))
            return;
        slot = old;
    }
}

/* The same where a thread can do it: few slots and experts. Loads of a token go together. */
struct token_check {
    enum { SLOTS = 4, EXPERTS = 64 }; /* at most */
    int64_t n;
    syc_moe_lists lists;

    __device__ bool wrong(int64_t t) const
    {
        const syc_moe_lists &l = lists;
        const u8 *const map = syc_row(l.map, t);
        const int slots = (int)l.n_slots;
        int32_t row[SLOTS];
        u64 routed = 0;
        int live = 0;
        bool bad = false;
#pragma unroll
        for (int j = 0; j < SLOTS; j++)
            row[j] = j < slots ? (int32_t)syc_load_here<u32>(l.indices + (t * slots + j) * 4) : -1;
#pragma unroll
        for (int e = 0; e < EXPERTS; e += 8)
            routed |= e < l.n_experts ? (u64)syc_experts_at(map, e, l.n_experts) << e : 0;
#pragma unroll
        for (int j = 0; j < SLOTS; j++) {
            bad |= row[j] < -1 || row[j] >= l.n_rows;
            live += row[j] >= 0;
        }
        const int n_routed = __popcll(routed);
        if (l.owner != NULL && !bad)
            claim(t, row);
        list(t, routed);
        return bad || live != n_routed;
    }
    __device__ __forceinline__ void claim(int64_t t, const int32_t (&row)[SLOTS]) const
    {
        const int32_t first = (int32_t)(t * lists.n_slots);
        int32_t old[SLOTS];
#pragma unroll
        for (int j = 0; j < SLOTS; j++)
            old[j] = row[j] >= 0 ? atomicExch(lists.owner + row[j], first + j) : -1;
#pragma unroll
        for (int j = 0; j < SLOTS; j++)
            if (old[j] > first + j && syc_names(lists, old[j], row[j]))
                claim_row(lists, row[j], old[j]);
    }
    /* Experts and weights. */
    __device__ __forceinline__ void list(int64_t t, u64 routed) const
    {
        const int64_t first = t * lists.n_slots;
        int e[SLOTS];
        float w[SLOTS];
#pragma unroll
        for (int j = 0; j < SLOTS; j++, routed &= routed - 1)
            e[j] = j < (int)lists.n_slots ? __ffsll((long long)routed) - 1 : -1;
#pragma unroll
        for (int j = 0; j < SLOTS; j++)
            w[j] = e[j] >= 0 && lists.weights != NULL ? syc_prob(lists, t, e[j]) : 0.0f;
#pragma unroll
        for (int j = 0; j < SLOTS; j++) {
            if (e[j] >= 0 && lists.experts != NULL)
                lists.experts[first + j] = e[j];
            if (e[j] >= 0 && lists.weights != NULL)
                lists.weights[first + j] = w[j];
        }
    }
    __device__ void explain(int64_t t, syi_found *f) const
    {
        explain_token(lists, t, f);
    }
};

/* As many lanes for a token as see its map row. With a map, every routed expert must have a slot with a
   row. */
static __global__ void __launch_bounds__(CHECK_THREADS, 5) /* 48 registers: two of them beside a ring */
    check_tokens(const __grid_constant__ syc_moe_lists l, const __grid_constant__ syc_gate gate)
{
    __shared__ u64 first;
    syc_start_next();
    if (threadIdx.x == 0)
        first = SYC_NO_FAULT;
    __syncthreads();
    const int lanes = l.map.data != NULL ? syc_map_lanes(l.n_experts) : 32, each = 32 / lanes,
              lane = syc_lane() & (lanes - 1);
#pragma unroll 1
    for (int64_t t0 = ((int64_t)blockIdx.x * CHECK_WARPS + syc_warp()) * each; t0 < l.n_tokens;
         t0 += (int64_t)gridDim.x * CHECK_WARPS * each) {
        const int64_t t = t0 + syc_lane() / lanes;
        const bool in = t < l.n_tokens;
        const u8 *const map = in && l.map.data != NULL ? syc_row(l.map, t) : NULL;
        u32 live = 0; /* numbers of slots and experts are below 2^31 */
        bool bad = false;
        int32_t row =
            in && lane < l.n_slots ? (int32_t)syc_load<u32>(l.indices + (t * l.n_slots + lane) * 4) : -1;
        const u64 bytes = syc_first_bytes(map, l.n_experts, lanes); /* together with the index */
#pragma unroll 1
        for (u32 j = (u32)lane; in && j < (u32)l.n_slots; j += (u32)lanes) {
            if (j != (u32)lane)
                row = (int32_t)syc_load<u32>(l.indices + (t * l.n_slots + j) * 4);
            bad |= row < -1 || row >= (int32_t)l.n_rows;
            live += row >= 0;
            if (l.owner != NULL && row >= 0 && row < (int32_t)l.n_rows)
                claim_row(l, row, (int32_t)(t * l.n_slots + j));
        }
        __syncwarp();
        const int64_t routed = l.map.data == NULL ? 0 : syc_list_token(l, t, map, lanes, bytes);
#pragma unroll 1
        for (int d = lanes / 2; d > 0; d /= 2) {
            live += __shfl_xor_sync(SYC_ALL_LANES, live, d);
            bad |= __shfl_xor_sync(SYC_ALL_LANES, (int)bad, d) != 0;
        }
        if (in && lane == 0 && (bad || (l.map.data != NULL && routed != live)))
            atomicMin(&first, (u64)t);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        gate.order[blockIdx.x] = first;
        if (first != SYC_NO_FAULT)
            explain_token(l, (int64_t)first, &gate.found[blockIdx.x]);
    }
}

/* ---- Validation: capacity ---- */

enum { INVERT_THREADS = 512, INVERT_WARPS = INVERT_THREADS / 32, INVERT_AHEAD = 16 };

/* What a warp of the kernel below goes through: the indices of its part, in order, several loads at a
   time. */
template <class Each> static __device__ __forceinline__ void for_indices(const syc_moe_lists &l, Each each)
{
    const int64_t end = syc_warp_part(l.n_rows, syc_warp() + 1);
    for (int64_t first = syc_warp_part(l.n_rows, syc_warp()); first < end; first += 32 * INVERT_AHEAD) {
        int32_t token[INVERT_AHEAD];
#pragma unroll
        for (int u = 0; u < INVERT_AHEAD; u++) {
            const int64_t i = first + u * 32 + syc_lane();
            token[u] = i < end ? (int32_t)syc_load<u32>(l.indices + i * 4) : -1;
        }
#pragma unroll
        for (int u = 0; u < INVERT_AHEAD; u++)
            each(first + u * 32 + syc_lane(), token[u], first + u * 32 + syc_lane() < end);
    }
}

/*
 * The rows of each token, ascending. A block has `per` tokens, at most INVERT_THREADS, and reads all indices:
 * its warps first count the rows of these tokens in their parts of the indices, then store them. Block 0
 * validates.
 */
static __global__ void __launch_bounds__(INVERT_THREADS)
    invert(const syc_moe_lists l, int per, const syc_gate gate)
{
    SYC_DYNAMIC_SHARED(u32, places); /* [warp][per] */
    __shared__ u64 part[SYC_BLOCK_WARPS], wrong;
    const int64_t t0 = (int64_t)blockIdx.x * per, least = l.zero_pad ? -1 : 0;
    const int own = (int)max((int64_t)0, min((int64_t)per, l.n_tokens - t0));
    u32 *const mine = places + syc_warp() * per;
    syc_start_next();
    if (threadIdx.x == 0)
        wrong = SYC_NO_FAULT;
    for (int i = (int)threadIdx.x; i < INVERT_WARPS * per; i += INVERT_THREADS)
        places[i] = 0;
    __syncthreads();
    u64 before = 0;
    for_indices(l, [&](int64_t i, int32_t t, bool in) {
        if (in && (t < least || t >= l.n_tokens))
            atomicMin(&wrong, (u64)i);
        before += t >= 0 && t < t0;
        if (t >= t0 && t < t0 + own)
            atomicAdd(&mine[t - t0], 1u);
    });
    const u64 first = syc_block_sum(before, part);
    u64 rows = 0, all;
    for (int w = 0; w < INVERT_WARPS && (int)threadIdx.x < own; w++)
        rows += places[w * per + threadIdx.x];
    u64 place = first + syc_block_before(rows, part, &all);
    if ((int)threadIdx.x < own) {
        l.start[t0 + threadIdx.x] = (int32_t)place;
        for (int w = 0; w < INVERT_WARPS; w++) {
            const u32 n = places[w * per + threadIdx.x];
            places[w * per + threadIdx.x] = (u32)place;
            place += n;
        }
    }
    if (threadIdx.x == 0 && t0 + own == l.n_tokens)
        l.start[l.n_tokens] = (int32_t)(first + all);
    __syncthreads();
    for_indices(l, [&](int64_t i, int32_t t, bool) {
        const int own_token = t >= t0 && t < t0 + own ? (int)(t - t0) : -1;
        if (__ballot_sync(SYC_ALL_LANES, own_token >= 0) == 0)
            return;
        const u32 same = __match_any_sync(SYC_ALL_LANES, own_token);
        if (own_token >= 0)
            l.list[mine[own_token] + (u32)__popc(same & syc_lanes_below())] = (int32_t)i;
        __syncwarp();
        if (own_token >= 0 && syc_lane() == __ffs((int)same) - 1)
            mine[own_token] += (u32)__popc(same);
        __syncwarp();
    });
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        gate.order[0] = wrong;
        if (wrong != SYC_NO_FAULT)
            gate.found[0] = {l.zero_pad ? (int32_t)SYI_BAD_SORTED_RANGE : (int32_t)SYI_BAD_SORTED_TOKEN,
                             0,
                             -1,
                             (int64_t)wrong,
                             (int32_t)syc_load<u32>(l.indices + wrong * 4),
                             l.n_tokens,
                             0};
    }
}

void syc_moe_validate(syc_call *call, const syc_moe_lists *l)
{
    const int64_t processors = call->device->processors;
    if (l->capacity) {
        const int64_t even = (l->n_tokens + processors - 1) / processors;
        const int per = (int)(even < 1 ? 1 : even < INVERT_THREADS ? even : (int64_t)INVERT_THREADS);
        const int64_t blocks = (l->n_tokens + per - 1) / per;
        call->gate.n = 1;
        syc_launch(&call->queue, invert, SYC_AFTER, blocks > 0 ? blocks : 1, INVERT_THREADS,
                   (size_t)INVERT_WARPS * (size_t)per * sizeof(u32), *l, per, call->gate);
    } else if (l->map.data != NULL && l->n_rows > 0 && l->n_slots <= token_check::SLOTS &&
               l->n_experts <= token_check::EXPERTS) {
        syc_prefer_shared(&call->queue, syc_validate<token_check>);
        syc_check(call, token_check{l->n_tokens, *l});
    } else if (l->n_rows > 0 && (l->map.data != NULL || l->owner != NULL)) {
        /* of a block */
        const int64_t tokens = CHECK_WARPS * 32 / (l->map.data != NULL ? syc_map_lanes(l->n_experts) : 32);
        const int64_t blocks = syc_grid(call, syc_ceil(l->n_tokens, tokens), grid_policy::CHECK);
        call->gate.n = (int)(blocks < SYC_MAX_CHECK_BLOCKS ? blocks : SYC_MAX_CHECK_BLOCKS);
        syc_prefer_shared(&call->queue, check_tokens);
        syc_launch(&call->queue, check_tokens, SYC_AFTER, call->gate.n, CHECK_THREADS, 0, *l, call->gate);
    } else {
        const int64_t n = l->n_tokens * l->n_slots;
        syc_prefer_shared(&call->queue, syc_validate<slot_check>);
        syc_check(call, slot_check{n, l->by_slot ? n : l->n_rows, l->indices});
    }
}

/* ---- Sums: a group of threads per token ---- */

/* Rows and weights of up to 32 entries, in shared memory; found and expert are for a token's own search. */
struct chunk {
    int32_t row[32], expert[32];
    float weight[32], found[32];
};

/* As syc_entry_row, packed. */
static __device__ __forceinline__ int32_t slot_row(const syc_moe_lists &l, int64_t t, int64_t slot)
{
    const int64_t row =
        (int64_t)(int32_t)syc_load_here<u32>(l.indices + (t * l.n_slots + slot) * 4) - l.row_begin;
    return row >= 0 && row < l.n_rows ? (int32_t)row : -1;
}

static __device__ __forceinline__ void put_rows(chunk *c, const syc_moe_lists &l, int64_t t, int64_t first,
                                                int64_t n)
{
    c->row[syc_lane()] = first + syc_lane() < n ? syc_entry_row(l, t, first + syc_lane()) : -1;
}

/* Chunks past the first, one after the other: *live counts their rows. */
SYC_COLD void put_chunk(chunk *c, const syc_moe_lists &l, int64_t t, int64_t first, int64_t n, int64_t *live)
{
    put_rows(c, l, t, first, n);
    c->weight[syc_lane()] = n > 0 ? syc_entry_weight(l, t, first, c->row[syc_lane()], c->found, live) : 0.0f;
}

/* The expert whose prob is the weight of entry `lane`, one that exists even if the map has too few; -1 where
   there is none. Their map row is loaded together with the rows of the entries, and nothing but this number
   is held beside what is added up. */
static __device__ __forceinline__ int64_t find_expert(chunk *c, const syc_moe_lists &l, int64_t t,
                                                      int32_t row)
{
    if (l.probs.data == NULL || l.map.data == NULL)
        return syc_lane();
    if (l.n_experts == 0)
        return -1;
    c->expert[syc_lane()] = 0;
    __syncwarp();
    syc_each_expert(syc_row(l.map, t), l.n_experts, [&](int64_t n, int64_t e) {
        if (n < 32)
            c->expert[n] = (int32_t)e;
    });
    __syncwarp();
    return c->expert[__popc(__ballot_sync(SYC_ALL_LANES, row >= 0) & syc_lanes_below())];
}

/*
 * The entries of a group's token, by how many there are. find: their rows, as far as they can be looked up
 * beside the kernel that validates; then the first rows are loaded; weigh_early: weights that can be looked
 * up beside it, too; weigh: all others. row(k), weight(k): of entry k of the chunk.
 */

/* Up to KU slots, of which every thread looks up all: it need not wait for another. The validating kernel
   makes weights. */
template <int KU> struct own_entries {
    enum { FEW = 1, SHARED = 0 };
    int32_t rows[KU];
    float weights[KU];

    __device__ __forceinline__ own_entries(chunk *, bool) {}
    static __device__ __forceinline__ int64_t count(const syc_moe_lists &l, int64_t) { return l.n_slots; }
    __device__ __forceinline__ void find(const syc_moe_lists &l, int64_t t, int64_t n)
    {
#pragma unroll
        for (int k = 0; k < KU; k++)
            rows[k] = k < n ? slot_row(l, t, k) : -1;
    }
    __device__ __forceinline__ void weigh_early(const syc_moe_lists &, int64_t, int64_t) {}
    __device__ __forceinline__ void weigh(const syc_moe_lists &l, int64_t t, int64_t n)
    {
        int64_t at = t * n;
#pragma unroll
        for (int k = 0; k < KU; k++) {
            weights[k] = rows[k] < 0            ? 0.0f
                         : l.probs.data == NULL ? 1.0f
                         : l.weights != NULL    ? __ldcg(l.weights + at)
                                                : syc_prob(l, t, k);
            at += rows[k] >= 0;
        }
    }
    __device__ __forceinline__ int32_t row(int k) const
    {
        return rows[k];
    }
    __device__ __forceinline__ float weight(int k) const
    {
        return weights[k];
    }
};

/* A chunk in shared memory, filled by a warp of the group. */
struct shared_entries {
    enum { SHARED = 1 };
    chunk *c;
    bool leads;

    __device__ __forceinline__ int32_t row(int k) const { return c->row[k]; }
    __device__ __forceinline__ float weight(int k) const { return c->weight[k]; }
    __device__ __forceinline__ void weigh(const syc_moe_lists &, int64_t, int64_t) {}
};

/* Up to KU slots. */
struct few_entries : shared_entries {
    enum { FEW = 1 };
    int64_t expert;

    __device__ __forceinline__ few_entries(chunk *chunk, bool warp) : shared_entries{chunk, warp}, expert(0)
    {
    }
    static __device__ __forceinline__ int64_t count(const syc_moe_lists &l, int64_t) { return l.n_slots; }
    __device__ __forceinline__ void find(const syc_moe_lists &l, int64_t t, int64_t n)
    {
        if (leads) {
            const int32_t row = syc_lane() < n ? syc_entry_row(l, t, syc_lane()) : -1;
            expert = n > 0 ? find_expert(c, l, t, row) : 0;
            c->row[syc_lane()] = row;
        }
        __syncthreads();
    }
    __device__ __forceinline__ void weigh_early(const syc_moe_lists &l, int64_t t, int64_t)
    {
        if (leads)
            c->weight[syc_lane()] = c->row[syc_lane()] < 0 || expert < 0 ? 0.0f
                                    : l.probs.data == NULL               ? 1.0f
                                                                         : syc_prob(l, t, expert);
    }
};

/* Any number, in chunks of 32. */
struct many_entries : shared_entries {
    enum { FEW = 0 };
    int64_t live; /* rows of the chunks so far */

    __device__ __forceinline__ many_entries(chunk *chunk, bool warp) : shared_entries{chunk, warp}, live(0) {}
    static __device__ __forceinline__ int64_t count(const syc_moe_lists &l, int64_t t)
    {
        if (l.capacity || l.weights != NULL)
            syc_wait_for_previous(); /* what it made is safe to use, whatever the indices are: rows exist */
        return t < l.n_tokens ? syc_entries(l, t) : 0;
    }
    __device__ __forceinline__ void find(const syc_moe_lists &l, int64_t t, int64_t n)
    {
        if (leads)
            put_rows(c, l, t, 0, n);
        __syncthreads();
    }
    __device__ __forceinline__ void weigh_early(const syc_moe_lists &l, int64_t t, int64_t n)
    {
        if (leads)
            c->weight[syc_lane()] =
                n > 0 ? syc_entry_weight(l, t, 0, c->row[syc_lane()], c->found, &live) : 0.0f;
    }
    /* Calls each(k0, loads) for every KU entries, from k0 of their chunk on. By the whole block; `one`: a
       chunk holds the entries of all of its groups. there: the first chunk and its first rows are. */
    template <int KU, class Each>
    __device__ __forceinline__ void for_chunks(const syc_moe_lists &l, int64_t t, int64_t n, bool one,
                                               bool there, const Each &each)
    {
#pragma unroll 1
        for (int64_t first = 0; one ? first == 0 : __syncthreads_or(first == 0 || first < n) != 0;
             first += 32) {
            if (!one && !there) {
                live = first == 0 ? 0 : live;
                if (leads)
                    put_chunk(c, l, t, first, n, &live);
                __syncthreads();
            }
#pragma unroll 1
            for (int k0 = 0; k0 < 32 && first + k0 < n; k0 += KU) {
                each(k0, !there);
                there = false;
            }
            there = false;
        }
    }
};

/* Pieces of the rows of KU entries, U for each: the parts of one thread. */
template <class Numbers, int KU, int U> struct row_pieces {
    typename Numbers::V y[KU][U];

    template <class Entries, class Place>
    __device__ __forceinline__ void load(const Entries &entries, int k0, const syi_rows &rows, int64_t at,
                                         int64_t end, int width, const Place &place)
    {
#pragma unroll
        for (int k = 0; k < KU; k++) {
            const int32_t row = entries.row(k0 + k);
#pragma unroll
            for (int u = 0; u < U; u++)
                if (row >= 0 && at + u * width < end)
                    y[k][u] = Numbers::load(syc_row(rows, row), place(at + u * width));
        }
    }
    template <class Entries>
    __device__ __forceinline__ void add(const Entries &entries, int k0, int u, const syi_rows &rows,
                                        const typename Numbers::At &place, float (&sum)[Numbers::N]) const
    {
#pragma unroll
        for (int k = 0; k < KU; k++)
            if (entries.weight(k0 + k) != 0.0f)
                syc_add_row<Numbers>(sum, entries.weight(k0 + k),
                                     Numbers::take(y[k][u], syc_row(rows, entries.row(k0 + k)), place));
    }
};

/* A block past those that add up: a warp per token. */
SYC_COLD void move_probs(const syc_moe_sums &s, const syc_gate &gate)
{
    const int64_t t = ((int64_t)blockIdx.x - s.sum_blocks) * (SYC_GROUP_THREADS / 32) + syc_warp();
    if (syc_may_write(gate) && t < s.lists.n_tokens)
        syc_fill_token(s.lists, syc_out_row(s.grad_probs, t), s.prob_bytes, t, syc_copied_probs{s.grad_rows});
}

/* A thread loads the pieces of KU rows at a time; the first of these loads are started before the validation
   has ended. MOVES: blocks past the others move gradients of probs. */
template <class Numbers, int KU, int U, class Entries, bool MOVES>
static __global__ void __launch_bounds__(SYC_GROUP_THREADS, Entries::FEW ? (KU == 2 ? 5 : 3)
                                                            : KU == 4    ? 3
                                                                         : 2)
    sum_groups(const __grid_constant__ syc_moe_sums s, const __grid_constant__ syc_groups groups,
               const __grid_constant__ syc_gate gate)
{
    __shared__ chunk chunks[Entries::SHARED ? SYC_GROUP_THREADS / 32 : 1];
    if (MOVES && (int64_t)blockIdx.x >= s.sum_blocks) {
        move_probs(s, gate);
        return;
    }
    const struct syc_place p = syc_place_of(groups, blockIdx.x);
    const syc_moe_lists &l = s.lists;
    const int width = 1 << groups.shift;
    Entries entries(&chunks[Entries::SHARED ? p.group : 0], p.offset < 32); /* a warp */
    row_pieces<Numbers, KU, U> pieces;
    const auto place = [&](int64_t v) {
        return Numbers::place([&] { return syc_out_row(s.out, p.item); }, v, s.hidden * Numbers::SIZE);
    };
    const int64_t counted = Entries::count(l, p.item), n = p.item < l.n_tokens ? counted : 0;
    entries.find(l, p.item, n);
    pieces.load(entries, 0, s.rows, p.begin + p.offset, p.end, width, place);
    entries.weigh_early(l, p.item, n);
    syc_wait_for_previous();
    entries.weigh(l, p.item, n);
    if (!syc_all_clear(gate, syc_sees_fault(gate)))
        return;
    const bool one = Entries::FEW || !__syncthreads_or(n > 32); /* chunk, for all groups of the block */
#pragma unroll 1
    for (int64_t round = p.begin; round < p.end; round += U * width) {
        const int64_t at = round + p.offset;
        float sum[U][Numbers::N] = {};
        if constexpr (!Entries::FEW)
            entries.template for_chunks<KU>(l, p.item, n, one, round == p.begin, [&](int k0, bool loads) {
                if (loads)
                    pieces.load(entries, k0, s.rows, at, p.end, width, place);
#pragma unroll
                for (int u = 0; u < U; u++)
                    if (at + u * width < p.end)
                        pieces.add(entries, k0, u, s.rows, place(at + u * width), sum[u]);
            });
        else if (round > p.begin)
            pieces.load(entries, 0, s.rows, at, p.end, width, place);
#pragma unroll
        for (int u = 0; u < U; u++)
            if (at + u * width < p.end) {
                if constexpr (Entries::FEW)
                    pieces.add(entries, 0, u, s.rows, place(at + u * width), sum[u]);
                if (p.item < l.n_tokens)
                    Numbers::store(syc_out_row(s.out, p.item), place(at + u * width),
                                   Numbers::narrow(sum[u]));
            }
    }
}

template <class Numbers, int KU, int U, class Entries, bool MOVES = true>
static void launch_groups(syc_call *call, const syc_moe_sums *s)
{
    const int64_t pieces = Numbers::count(s->hidden);
    const syc_groups groups = syc_groups_of(s->lists.n_tokens, pieces, U, call->device->processors);
    const int64_t moving = s->prob_bytes > 0 ? syc_ceil(s->lists.n_tokens, SYC_GROUP_THREADS / 32) : 0;
    syc_moe_sums sums = *s;
    sums.sum_blocks = syc_groups_blocks(&groups, s->lists.n_tokens);
    call->queue.most_shared = KU == 2; /* as the validating kernel, beside which it starts */
    syc_launch(&call->queue, sum_groups<Numbers, KU, U, Entries, MOVES>, SYC_EARLY, sums.sum_blocks + moving,
               SYC_GROUP_THREADS, 0, sums, groups, call->gate);
}

struct sums_launch {
    syc_call *call;
    const syc_moe_sums *s;

    template <sy_type T, bool WIDE> void run() const
    {
        const char *const capacity = s->lists.capacity ? "experts have capacity places" : NULL;
        /* windows also load what is between rows */
        const bool apart = WIDE || s->rows.stride >= s->hidden * syc_numbers<T, WIDE>::SIZE;
        if (syc_takes(call, "sum_ring",
                      apart ? syc_moe_ring_why_not(call->device, s) : "rows that are not aligned overlap"))
            syc_moe_sum_ring(call, s);
        else if constexpr (!WIDE) {
            syc_takes(call, "windows");
            launch_groups<syc_window_numbers<T>, 4, 1, many_entries>(call, s);
        } else if (!syc_takes(call, "of_two",
                              s->lists.n_slots > 2 ? "a token has more than 2 choices" : capacity)) {
            if (syc_takes(call, "of_eight",
                          s->lists.n_slots > 8 ? "a token has more than 8 choices" : capacity))
                launch_groups<syc_numbers<T, true>, 8, 1, few_entries>(call, s);
            else if (syc_takes(call, "of_many"))
                launch_groups<syc_numbers<T, true>, 8, 1, many_entries>(call, s);
        } else if (s->prob_bytes == 0)
            launch_groups<syc_numbers<T, true>, 2, 2, own_entries<2>, false>(call, s);
        else
            launch_groups<syc_numbers<T, true>, 2, 1, own_entries<2>>(call, s);
    }
};

void syc_moe_take_sums(const syc_device *device, syc_moe_sums *s, syc_scratch *scratch)
{
    syc_moe_lists *const l = &s->lists;
    if (l->map.data == NULL || l->probs.data == NULL)
        return;
    if (l->n_slots > 32 || l->n_slots <= 2 || (s->codes.given && !syc_moe_ring_pays(device, s)))
        l->weights = scratch->take<float>(l->n_rows);
    else if (syc_moe_ring_pays(device, s))
        s->ring_weights = scratch->take<float>(l->n_rows);
}

void syc_moe_sum(syc_call *call, const syc_moe_sums *s)
{
    const u64 row_bytes = (u64)s->hidden * (s->type == SY_TYPE_F32 ? 4 : 2);
    if (s->hidden == 0 || s->lists.n_tokens == 0)
        syc_only_report(call);
    else
        syc_by_type(s->type, syc_alignment(s->rows) | syc_alignment(s->out) | row_bytes,
                    sums_launch{call, s});
}

/* ---- moe_unpermute ---- */

static syc_moe_sums lay_out(const syc_device *device, const syi_moe_rows_plan *p, syc_scratch *scratch)
{
    syc_moe_sums s = {syc_moe_lists_of(p), p->hidden, p->type, p->permuted, p->tokens};
    /* slots that are in use are rejected, and no weight exists that could be loaded before that */
    if (p->n_experts == 0)
        s.lists.probs.data = NULL;
    s.codes = p->codes;
    syc_moe_take_lists(&s.lists, false, scratch);
    syc_moe_take_sums(device, &s, scratch);
    return s;
}

/* For syc_sum_coded_rows. */
struct coded_tokens {
    syc_moe_lists l;
    syi_rows out;

    __device__ u8 *to(int64_t t) const { return syc_out_row(out, t); }
    __device__ int64_t n_rows(int64_t t) const { return syc_entries(l, t); }
    __device__ syc_coded_row row_at(int64_t t, int64_t entry) const
    {
        const int32_t row = l.capacity ? syc_entry_row(l, t, entry) : slot_row(l, t, entry);
        float weight = 1.0f;
        if (row >= 0 && l.probs.data != NULL && l.map.data == NULL)
            weight = syc_prob(l, t, syc_quotient(row, l.by_slots));
        else if (row >= 0 && l.probs.data != NULL) {
            int64_t rank = 0;
#pragma unroll 8
            for (int64_t k = 0; k < entry; k++) /* packed */
                rank += slot_row(l, t, k) >= 0;
            weight = __ldcg(l.weights + t * l.n_slots + rank);
        }
        return {weight != 0.0f ? row : -1, weight}; /* a row of weight 0 is not read */
    }
};

SYC_WORKSPACE(moe_unpermute, moe_rows)

void syc_moe_unpermute(syc_call *call, const syi_plan *plan)
{
    syc_scratch scratch = {call->scratch, 0};
    const syc_moe_sums s = lay_out(call->device, &plan->moe_rows, &scratch);
    syc_moe_validate(call, &s.lists);
    if (s.codes.given && syc_takes(call, "sum_ring", syc_moe_ring_why_not(call->device, &s)))
        syc_moe_sum_ring(call, &s);
    else if (s.codes.given && syc_takes(call, "coded_sums"))
        syc_sum_coded_rows(call, &s.codes, s.out, coded_tokens{s.lists, s.out}, s.lists.n_tokens);
    else
        syc_moe_sum(call, &s);
}
