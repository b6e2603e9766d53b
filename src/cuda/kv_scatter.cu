/*
 * kv_scatter and kv_blocks on a device: slots and blocks are validated, those that occur twice by a hash table of first
 * positions; then rows are copied in any order.
 */
#include "cuda/hash.cuh"
#include "cuda/kv_rows.cuh"
#include "cuda/backend.cuh"

/* ---- kv_scatter ----------------------------------------------------------------------------------------------------- */

struct scattered {
    int64_t n;
    struct syc_split by_k;
    struct syi_rows slots;
    sy_type type;
    int64_t n_rows;
    bool skips, unique;
    bool clears; /* no dense row is written */
    struct syc_hash hash;

    __device__ int64_t value(int64_t i) const
    {
        const int64_t row = syc_quotient(i, by_k);
        return syc_index(syc_row(slots, row), i - row * by_k.d, type);
    }
    __device__ int64_t slot(int64_t i) const
    {
        const int64_t s = value(i);
        return s >= 0 && s < n_rows ? s : -1;
    }
    __device__ bool fault(int64_t i, struct syi_found *f) const
    {
        const int64_t s = value(i);
        f->batch = -1;
        f->position = i;
        if (s >= n_rows || s < (skips ? -1 : 0)) {
            syc_kv_set(f, skips ? SYI_BAD_KV_SLOT_OR_NONE : SYI_BAD_KV_SLOT, s, n_rows);
            return true;
        }
        const u64 first = unique && s >= 0 ? syc_hash_get(hash, 0, (u64)s) : ~0ull;
        if (first >= (u64)i)
            return false;
        syc_kv_set(f, SYI_BAD_KV_SLOT_TWICE, s, (int64_t)first);
        return true;
    }
    __device__ bool wrong(int64_t i) const
    {
        struct syi_found f;
        return fault(i, &f);
    }
    __device__ void explain(int64_t i, struct syi_found *f) const { fault(i, f); }
};

static __global__ void __launch_bounds__(256) hash_slots(const struct scattered s)
{
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    const int64_t slot = i < s.n ? s.slot(i) : -1;
    if (slot >= 0)
        syc_hash_put(s.hash, 0, (u64)slot, (u64)i);
}

size_t syc_kv_scatter_workspace(const struct syc_device *, const union syi_plan *plan)
{
    return plan->kv_scatter.check_unique ? syc_hash_bytes(plan->kv_scatter.n, 1) : 0;
}

void syc_kv_scatter(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_kv_scatter_plan *const p = &plan->kv_scatter;
    struct scattered s = {p->n, syc_split_by(p->k, p->n), p->slots, p->slot_type, p->planes.pool.n_rows, p->pad == SY_PAD_SKIP, p->check_unique, false, {}};
    if (p->n == 0)
        return;
    if (p->check_unique) {
        s.hash = syc_hash_make(call, call->scratch, p->n, 1);
        syc_launch(&call->queue, hash_slots, SYC_AFTER, (p->n + 255) / 256, 256, 0, s);
    }
    syc_check(call, s);
    syc_kv_move<true>(call, s, &p->planes, p->n);
}

/* ---- kv_blocks ------------------------------------------------------------------------------------------------------ */

enum { WRITTEN, READ }; /* kinds of first positions */

struct pairs {
    int64_t n;
    struct syi_rows rows;
    sy_type type;
    bool one_cache;
    int64_t n_src, n_dst;
    struct syc_hash hash;

    __device__ int64_t source(int64_t i) const { return syc_index(syc_row(rows, i), 0, type); }
    __device__ int64_t destination(int64_t i) const { return syc_index(syc_row(rows, i), 1, type); }
    /* It copies something, and both blocks exist. */
    __device__ bool moves(int64_t i) const
    {
        const int64_t s = source(i), d = destination(i);
        return s >= 0 && s < n_src && d >= 0 && d < n_dst && !(one_cache && s == d);
    }
    /* Position i is the later of the first that reads the block and the first that writes it. */
    __device__ bool crosses(int64_t i, int64_t block, int kind, u64 *other) const
    {
        const u64 own = syc_hash_get(hash, kind, (u64)block);
        *other = syc_hash_get(hash, kind == READ ? WRITTEN : READ, (u64)block);
        return own == (u64)i && *other < own;
    }
    __device__ bool fault(int64_t i, struct syi_found *f) const
    {
        const int64_t s = source(i), d = destination(i);
        u64 other = ~0ull;
        f->batch = -1;
        f->position = i;
        if (s < 0 || s >= n_src) {
            syc_kv_set(f, SYI_BAD_KV_PAIR_READS, s, n_src);
            return true;
        }
        if (d < 0 || d >= n_dst) {
            syc_kv_set(f, SYI_BAD_KV_PAIR_WRITES, d, n_dst);
            return true;
        }
        if (one_cache && s == d)
            return false;
        const u64 first = syc_hash_get(hash, WRITTEN, (u64)d);
        if (first < (u64)i) {
            syc_kv_set(f, SYI_BAD_KV_PAIR_TWICE, d, (int64_t)first);
            return true;
        }
        if (!one_cache)
            return false;
        const int64_t low = s < d ? s : d, high = s < d ? d : s; /* of two crossings the lower block is reported */
        if (crosses(i, low, low == s ? READ : WRITTEN, &other))
            syc_kv_set(f, SYI_BAD_KV_PAIR_HAZARD, low, (int64_t)other);
        else if (crosses(i, high, high == s ? READ : WRITTEN, &other))
            syc_kv_set(f, SYI_BAD_KV_PAIR_HAZARD, high, (int64_t)other);
        else
            return false;
        return true;
    }
    __device__ bool wrong(int64_t i) const
    {
        struct syi_found f;
        return fault(i, &f);
    }
    __device__ void explain(int64_t i, struct syi_found *f) const { fault(i, f); }
};

static __global__ void __launch_bounds__(256) hash_pairs(const struct pairs p)
{
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i >= p.n || !p.moves(i))
        return;
    syc_hash_put(p.hash, WRITTEN, (u64)p.destination(i), (u64)i);
    if (p.one_cache)
        syc_hash_put(p.hash, READ, (u64)p.source(i), (u64)i);
}

struct copied {
    struct pairs pairs;
    struct syi_rows from, to;
    __device__ struct syc_piece at(int64_t i) const
    {
        if (!pairs.moves(i))
            return {NULL, NULL};
        return {syc_row(from, pairs.source(i)), syc_out_row(to, pairs.destination(i))};
    }
};

size_t syc_kv_blocks_workspace(const struct syc_device *, const union syi_plan *plan)
{
    return syc_hash_bytes(plan->kv_blocks.one_cache ? 2 * plan->kv_blocks.n : plan->kv_blocks.n, 2);
}

void syc_kv_blocks(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_kv_blocks_plan *const p = &plan->kv_blocks;
    struct pairs pairs = {p->n, p->pairs, p->type, p->one_cache, p->n_src, p->n_dst, {}};
    if (p->n == 0)
        return;
    pairs.hash = syc_hash_make(call, call->scratch, p->one_cache ? 2 * p->n : p->n, 2);
    syc_launch(&call->queue, hash_pairs, SYC_AFTER, (p->n + 255) / 256, 256, 0, pairs);
    syc_check(call, pairs);
    for (int64_t i = 0; i < p->n_planes; i++) {
        const struct syi_kv_plane *const plane = &p->planes[i];
        const struct copied rows = {pairs, {plane->cache, plane->block_stride}, plane->dense};
        syc_move_rows(call, rows, p->n, (int64_t)plane->row_bytes,
                      (u64)(uintptr_t)plane->cache | (u64)plane->block_stride | (u64)(uintptr_t)plane->dense.data | (u64)plane->dense.stride);
    }
}
