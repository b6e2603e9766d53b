/*
 * The choices of local_reduce that this device serves. Live choices are ranked by expert, in order of
 * position, since the rule BALANCED needs their ranks; then each finds its host.
 */
#include "cuda/exchange/local_reduce_served.cuh"
#include "cuda/prim/load.cuh"
#include "cuda/prim/rank.cuh"
#include "cuda/runtime/scratch.cuh"

struct served_table {
    syi_local_reduce_plan p;
    syc_split by_slots, by_run; /* choices of a token; tokens that lie together */
    u8 *to;
    int bytes; /* of an entry */

    /* The token of a group's number i, in order of position. */
    __device__ int64_t token(int64_t i) const
    {
        if (p.interleave == 0)
            return i;
        const int64_t each = p.n_tokens / p.n_positions, q = i / each, n = i - q * each,
                      b = syc_quotient(n, by_run);
        return b * (p.n_positions * p.interleave) + q * p.interleave + n - b * p.interleave;
    }
    __device__ int64_t load(int64_t t, int64_t k) const
    {
        const u8 *const row = syc_row(p.metadata, t);
        if (p.metadata.type != SY_TYPE_U16)
            return syc_index(row, k, p.metadata.type);
        const u16 value = syc_load<u16>(row + 2 * k);
        return value == 0xffffu ? -1 : (int64_t)value;
    }
    __device__ bool names(int64_t e) const { return e >= 0 && e < p.n_experts; }

    __device__ bool hosts(int q, int64_t e) const
    {
        const int d = syi_device_at(p.mesh, p.axis, syi_group_of(p.mesh, p.axis, p.device), q);
        return syc_load<u16>(syc_row(p.mapping, e) + 2 * (int64_t)d) == 1;
    }
    /* The position that serves a choice of token i, which `turn` choices of the expert come before; -1:
       none. */
    __device__ int holder(int64_t e, u32 i, u32 turn) const
    {
        const int size = syi_group_size(p.mesh, p.axis), own = (int)((int64_t)i / p.per_position),
                  node = p.rule.node_size;
        const bool local = p.rule.replica == SY_A2A_REPLICA_LOCAL;
        u32 all = 0, near = 0;
        if (local && hosts(own, e))
            return own;
#pragma unroll 1
        for (int q = 0; q < size; q++) {
            const bool has = hosts(q, e);
            all += has;
            near += has && node > 0 && q / node == own / node;
        }
        if (all == 0)
            return -1;
        u32 skip = 0;
        if (p.rule.replica == SY_A2A_REPLICA_ROUND_ROBIN)
            skip = i % all;
        if (p.rule.replica == SY_A2A_REPLICA_HASH)
            skip = i * 2654435769u % all;
        if (p.rule.replica == SY_A2A_REPLICA_BALANCED)
            skip = turn % all;
        if (local)
            skip = (u32)own % (near > 0 ? near : all);
        int q = 0;
#pragma unroll 1
        for (;; q++) {
            const bool may = !local || near == 0 || q / node == own / node;
            if (may && hosts(q, e) && skip-- == 0)
                return q;
        }
    }
    __device__ void store(int64_t t, int64_t k, int64_t value) const
    {
        u8 *const at = to + (t * p.n_slots + k) * bytes;
        if (bytes == 2)
            *(u16 *)at = (u16)value;
        else if (bytes == 4)
            *(u32 *)at = (u32)value;
        else
            *(int64_t *)at = value;
    }
};

enum { THREADS = 256 };

/* [n] experts of live choices in order of position, -1: none; how many choices of the expert come before. */
struct live_choices {
    int32_t *expert;
    u32 *turn;
};

/* By the first kernel. */
struct live_keys {
    int64_t n;
    int n_keys;
    const int32_t *expert;
    __device__ int key(int64_t j) const { return expert[j]; }
    __device__ bool wrong(int64_t) const { return false; }
    __device__ void explain(int64_t, syi_found *) const {}
};

struct turns {
    u32 *turn;
    enum { COUNTS_FROM_FIRST };
    __device__ void put(int64_t j, int, int64_t row) const { turn[j] = (u32)row; }
    __device__ void skip(int64_t) const {}
    __device__ void begin(int, u32, u32) const {}
    __device__ void end(u32) const {}
};

static __global__ void __launch_bounds__(THREADS)
    find_live(const __grid_constant__ served_table of, live_choices to, int64_t n)
{
    const int64_t j = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (j >= n)
        return;
    const int64_t i = syc_quotient(j, of.by_slots), k = j - i * of.p.n_slots, t = of.token(i),
                  e = of.load(t, k);
    bool live = of.names(e);
#pragma unroll 1
    for (int64_t before = 0; before < k && live; before++)
        live = of.load(t, before) != e;
    to.expert[j] = live ? (int32_t)e : -1;
}

static __global__ void __launch_bounds__(THREADS)
    keep_served(const __grid_constant__ served_table of, const live_choices from, bool turns, int64_t n)
{
    const int64_t j = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (j >= n)
        return;
    const int64_t i = syc_quotient(j, of.by_slots), k = j - i * of.p.n_slots, t = of.token(i),
                  e = of.load(t, k);
    const bool live = from.expert[j] >= 0;
    const bool own = live && of.holder(e, (u32)i, turns ? from.turn[j] : 0) ==
                                 syi_position_of(of.p.mesh, of.p.axis, of.p.device);
    of.store(t, k, own || !of.names(e) ? e : -1); /* what is no expert is rejected later */
}

static int64_t choices_of(const syi_local_reduce_plan *p)
{
    return p->n_tokens * p->n_slots;
}
static int entry_bytes(const syi_local_reduce_plan *p)
{
    return p->metadata.type == SY_TYPE_U16 ? 2 : p->metadata.type == SY_TYPE_I32 ? 4 : 8;
}

struct served_memory {
    u8 *table, *ranks;
    live_choices live;
};

static served_memory lay_out(const syi_local_reduce_plan *p, syc_scratch *scratch, int processors)
{
    const int64_t n = choices_of(p);
    served_memory m;
    m.table = scratch->take<u8>(n * entry_bytes(p));
    m.live.expert = scratch->take<int32_t>(n);
    m.live.turn = scratch->take<u32>(n);
    m.ranks = scratch->take<u8>((int64_t)syc_rank_bytes(n, p->n_experts, processors));
    return m;
}

size_t syc_served_bytes(const syi_local_reduce_plan *p, int processors)
{
    syc_scratch scratch = {NULL, 0};
    lay_out(p, &scratch, processors);
    return scratch.used;
}

syi_tensor syc_served(syc_call *call, const syi_local_reduce_plan *p, u8 *memory)
{
    const int64_t n = choices_of(p);
    const bool balanced = p->rule.replica == SY_A2A_REPLICA_BALANCED;
    syc_scratch scratch = {memory, 0};
    const served_memory m = lay_out(p, &scratch, call->device->processors);
    served_table of = {};
    of.p = *p;
    of.by_slots = syc_split_by(p->n_slots, n);
    of.by_run = syc_split_by(p->interleave > 0 ? p->interleave : 1, p->n_tokens);
    of.to = m.table;
    of.bytes = entry_bytes(p);
    syc_launch(&call->queue, find_live, SYC_AFTER, syc_ceil(n, THREADS), THREADS, 0, of, m.live, n);
    if (balanced)
        syc_rank(call, live_keys{n, (int)p->n_experts, m.live.expert}, turns{m.live.turn}, m.ranks);
    syc_launch(&call->queue, keep_served, SYC_AFTER, syc_ceil(n, THREADS), THREADS, 0, of, m.live, balanced,
               n);
    return {of.to, p->n_slots * of.bytes, p->metadata.type};
}
