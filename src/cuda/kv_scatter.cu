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
    __device__ int64_t key(int, int64_t i) const { return slot(i); }
    __device__ bool fault(int64_t i, struct syi_found *f) const
    {
        const int64_t s = value(i);
        if (unique)
            syc_wait_for_previous(); /* the table */
        f->batch = -1;
        f->position = i;
        if (s >= n_rows || s < (skips ? -1 : 0)) {
            syc_kv_set(f, skips ? SYI_BAD_KV_SLOT_OR_NONE : SYI_BAD_KV_SLOT, s, n_rows);
            return true;
        }
        const u64 first = unique && s >= 0 ? syc_hash_get(*this, 0, s, i) : SYC_NO_POSITION;
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

size_t syc_kv_scatter_workspace(const struct syc_device *, const union syi_plan *plan)
{
    return plan->kv_scatter.check_unique ? syc_hash_bytes(plan->kv_scatter.n, 1) : 0;
}

void syc_kv_scatter(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_kv_scatter_plan *const p = &plan->kv_scatter;
    const struct scattered s = {p->n, syc_split_by(p->k, p->n), p->slots, p->slot_type, p->planes.pool.n_rows, p->pad == SY_PAD_SKIP, p->check_unique, false, syc_hash_at(call->scratch, p->n)};
    if (p->n == 0)
        return;
    if (p->check_unique)
        syc_hash_make(call, s, 1);
    syc_check(call, s, p->check_unique ? SYC_EARLY : SYC_AFTER);
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
    __device__ int64_t key(int kind, int64_t i) const { return !moves(i) ? -1 : kind == WRITTEN ? destination(i) : source(i); }
    /* Position i is the later of the first that reads the block and the first that writes it. */
    __device__ bool crosses(int64_t i, int64_t block, int kind, u64 *other) const
    {
        *other = syc_hash_get(*this, kind == READ ? WRITTEN : READ, block, -1);
        return *other < (u64)i && syc_hash_get(*this, kind, block, i) == (u64)i;
    }
    __device__ bool fault(int64_t i, struct syi_found *f) const
    {
        const int64_t s = source(i), d = destination(i);
        u64 other = SYC_NO_POSITION;
        syc_wait_for_previous(); /* the tables */
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
        const u64 before = syc_hash_get(*this, WRITTEN, d, i);
        if (before < (u64)i) {
            syc_kv_set(f, SYI_BAD_KV_PAIR_TWICE, d, (int64_t)before);
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

/* Blocks are cut into parts of PART vectors, a block of threads for each part. */
enum { COPY_THREADS = 256, COPY_AHEAD = 4, PART = COPY_THREADS * COPY_AHEAD };

template <typename V>
static __global__ void __launch_bounds__(COPY_THREADS)
    copy_pairs(const struct pairs pairs, const struct syi_rows from, const struct syi_rows to, int64_t width, const struct syc_split parts,
               const __grid_constant__ struct syc_gate gate)
{
    bool open = false;
    for (int64_t at = blockIdx.x; at < pairs.n * parts.d; at += gridDim.x) {
        const int64_t i = syc_quotient(at, parts), first = (at - i * parts.d) * PART;
        const int n = pairs.moves(i) ? (int)min((int64_t)PART, width - first) : 0;
        V held[COPY_AHEAD];
        if (n > 0) {
            const V *const source = (const V *)syc_row(from, pairs.source(i)) + first;
#pragma unroll
            for (int u = 0; u < COPY_AHEAD; u++)
                held[u] = (int)threadIdx.x + u * COPY_THREADS < n ? __ldcs(source + threadIdx.x + u * COPY_THREADS) : syc_zero<V>();
        }
        if (!open) {
            syc_wait_for_previous();
            if (!syc_all_clear(gate, syc_sees_fault(gate)))
                return;
            open = true;
        }
        if (n > 0) {
            V *const destination = (V *)syc_out_row(to, pairs.destination(i)) + first;
#pragma unroll
            for (int u = 0; u < COPY_AHEAD; u++)
                if ((int)threadIdx.x + u * COPY_THREADS < n)
                    __stcs(destination + threadIdx.x + u * COPY_THREADS, held[u]);
        }
    }
}

template <typename V> static void copy_plane(struct syc_call *call, const struct pairs &pairs, const struct syi_kv_plane *plane)
{
    const struct syi_rows from = {plane->cache, plane->block_stride};
    const int64_t width = (int64_t)(plane->row_bytes / sizeof(V)), parts = (width + PART - 1) / PART, blocks = pairs.n * parts;
    syc_launch(&call->queue, copy_pairs<V>, SYC_EARLY, blocks < INT32_MAX ? blocks : INT32_MAX, COPY_THREADS, 0, pairs, from, plane->dense,
               width, syc_split_by(parts, blocks), call->gate);
}

size_t syc_kv_blocks_workspace(const struct syc_device *, const union syi_plan *plan)
{
    return syc_hash_bytes(plan->kv_blocks.n, plan->kv_blocks.one_cache ? 2 : 1);
}

void syc_kv_blocks(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_kv_blocks_plan *const p = &plan->kv_blocks;
    const struct pairs pairs = {p->n, p->pairs, p->type, p->one_cache, p->n_src, p->n_dst, syc_hash_at(call->scratch, p->n)};
    if (p->n == 0)
        return;
    syc_hash_make(call, pairs, p->one_cache ? 2 : 1);
    syc_check(call, pairs, SYC_EARLY);
    for (int64_t i = 0; i < p->n_planes; i++) {
        const struct syi_kv_plane *const plane = &p->planes[i];
        switch (syc_vector_bytes((u64)(uintptr_t)plane->cache | (u64)plane->block_stride | (u64)(uintptr_t)plane->dense.data |
                                 (u64)plane->dense.stride | (u64)plane->row_bytes)) {
        case 16:
            copy_plane<uint4>(call, pairs, plane);
            break;
        case 4:
            copy_plane<u32>(call, pairs, plane);
            break;
        default:
            copy_plane<u8>(call, pairs, plane);
        }
    }
}
