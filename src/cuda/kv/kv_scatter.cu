/*
 * kv_scatter and kv_blocks on a device: slots and blocks are validated, those that occur twice by tables of
 * positions; then rows are copied in any order.
 */
#include "cuda/prim/hash.cuh"
#include "cuda/kv/kv_rows.cuh"
#include "cuda/prim/owners.cuh"
#include "cuda/runtime/backend.cuh"

/* ---- kv_scatter ---- */

struct scattered {
    int64_t n;
    syc_split by_k;
    syi_rows slots;
    sy_type type;
    int64_t n_rows;
    bool skips;
    bool clears; /* no dense row is written */

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
    __device__ int64_t near(int64_t) const { return 0; }
    __device__ int64_t slot_near(int64_t, int64_t i) const { return slot(i); }
    __device__ int64_t key(int, int64_t i) const { return slot(i); }
    template <class Firsts> __device__ bool fault(int64_t i, Firsts &firsts, syi_found *f) const
    {
        const int64_t s = value(i);
        f->batch = -1;
        f->position = i;
        if (s >= n_rows || s < (skips ? -1 : 0)) {
            syc_kv_set(f, skips ? SYI_BAD_KV_SLOT_OR_NONE : SYI_BAD_KV_SLOT, s, n_rows);
            return true;
        }
        const u64 first = s >= 0 ? firsts.of(0, s, i) : SYC_NO_POSITION;
        if (first >= (u64)i)
            return false;
        syc_kv_set(f, SYI_BAD_KV_SLOT_TWICE, s, (int64_t)first);
        return true;
    }
};

/* Of the tables that find slots which occur twice. */
static size_t table_bytes(const syi_kv_scatter_plan *p)
{
    if (!p->check_unique || p->n <= SYC_HASH_FEW)
        return 0;
    return syc_owners_fit(p->n) ? syc_owners_bytes(p->planes.pool.n_rows) : syc_hash_bytes(p->n, 1);
}

size_t syc_kv_scatter_workspace(const syc_device *, const syi_plan *plan)
{
    const syi_kv_scatter_plan *const p = &plan->kv_scatter;
    syc_scratch scratch = {NULL, 0};
    scratch.take<u8>((int64_t)table_bytes(p));
    syc_kv_take_list(&p->planes, &scratch);
    return scratch.used;
}

void syc_kv_scatter(syc_call *call, const syi_plan *plan)
{
    const syi_kv_scatter_plan *const p = &plan->kv_scatter;
    const scattered s = {p->n,          syc_split_by(p->k, p->n), p->slots,
                         p->slots.type, p->planes.pool.n_rows,    p->pad == SY_PAD_SKIP,
                         false};
    syc_scratch scratch = {call->scratch, 0};
    scratch.take<u8>((int64_t)table_bytes(p));
    int64_t *const list = syc_kv_take_list(&p->planes, &scratch);
    if (p->n == 0)
        return;
    call->queue.most_shared = !p->planes.at[0].packed;
    syc_kv_check_globals(call, &p->planes);
    if (!p->check_unique)
        syc_check(call, syc_unowned<scattered>{p->n, s});
    else if (p->n > SYC_HASH_FEW && syc_owners_fit(p->n))
        syc_check_owners(call, s);
    else
        syc_check_keys(call, s, 1);
    syc_kv_move<true>(call, s, &p->planes, p->n, list);
}

/* ---- kv_blocks ---- */

enum { WRITTEN, READ }; /* kinds of first positions */

struct pairs {
    int64_t n;
    syi_rows rows;
    sy_type type;
    bool one_cache;
    int64_t n_src, n_dst;

    __device__ int64_t source(int64_t i) const { return syc_index(syc_row(rows, i), 0, type); }
    __device__ int64_t destination(int64_t i) const { return syc_index(syc_row(rows, i), 1, type); }
    /* It copies something, and both blocks exist. */
    __device__ bool moves(int64_t i) const
    {
        const int64_t s = source(i), d = destination(i);
        return s >= 0 && s < n_src && d >= 0 && d < n_dst && !(one_cache && s == d);
    }
    __device__ int64_t key(int kind, int64_t i) const
    {
        return !moves(i) ? -1 : kind == WRITTEN ? destination(i) : source(i);
    }
    /* Position i is the later of the first that reads the block and the first that writes it. */
    template <class Firsts>
    __device__ bool crosses(int64_t i, int64_t block, int kind, Firsts &firsts, u64 *other) const
    {
        *other = firsts.of(kind == READ ? WRITTEN : READ, block, -1);
        return *other < (u64)i && firsts.of(kind, block, i) == (u64)i;
    }
    template <class Firsts> __device__ bool fault(int64_t i, Firsts &firsts, syi_found *f) const
    {
        const int64_t s = source(i), d = destination(i);
        u64 other = SYC_NO_POSITION;
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
        const u64 before = firsts.of(WRITTEN, d, i);
        if (before < (u64)i) {
            syc_kv_set(f, SYI_BAD_KV_PAIR_TWICE, d, (int64_t)before);
            return true;
        }
        if (!one_cache)
            return false;
        /* of two crossings the lower block is reported */
        const int64_t low = s < d ? s : d, high = s < d ? d : s;
        if (crosses(i, low, low == s ? READ : WRITTEN, firsts, &other))
            syc_kv_set(f, SYI_BAD_KV_PAIR_HAZARD, low, (int64_t)other);
        else if (crosses(i, high, high == s ? READ : WRITTEN, firsts, &other))
            syc_kv_set(f, SYI_BAD_KV_PAIR_HAZARD, high, (int64_t)other);
        else
            return false;
        return true;
    }
};

/* Blocks are cut into parts, a block of threads for each. */
enum { COPY_THREADS = 256, COPY_AHEAD = 4, COPY_PLANES = 16 };

template <typename V> static inline __host__ __device__ int part_bytes()
{
    enum { BYTES = syc_piece_vectors<V>::BYTES, VECTORS = COPY_THREADS * COPY_AHEAD };
    return BYTES == 1 ? (VECTORS - 1) * 16 : VECTORS * BYTES;
}

struct copied_plane {
    syi_rows from, to;
    int64_t bytes;   /* of a block */
    syc_split parts; /* of a block */
    int64_t first;   /* part of all planes */
};

struct copied_planes {
    int64_t n; /* parts of all pairs and planes */
    int count;
    copied_plane at[COPY_PLANES];
};

template <typename V>
static __global__ void __launch_bounds__(COPY_THREADS)
    copy_pairs(const __grid_constant__ struct pairs pairs, const __grid_constant__ copied_planes planes,
               const __grid_constant__ syc_gate gate)
{
    typedef syc_piece_vectors<V> Vectors;
    bool open = false;
    for (int64_t at = blockIdx.x; at < planes.n; at += gridDim.x) {
        int k = planes.count - 1;
        while (at < planes.at[k].first)
            k--;
        const copied_plane &p = planes.at[k];
        const int64_t i = syc_quotient(at - p.first, p.parts),
                      first = (at - p.first - i * p.parts.d) * part_bytes<V>();
        const int bytes = pairs.moves(i) ? (int)min((int64_t)part_bytes<V>(), p.bytes - first) : 0,
                  n = bytes > 0 ? (int)Vectors::count(bytes) : 0;
        syc_piece piece = {NULL, NULL};
        typename Vectors::Held held[COPY_AHEAD];
        if (n > 0) {
            piece = {syc_row(p.from, pairs.source(i)) + first,
                     syc_out_row(p.to, pairs.destination(i)) + first};
#pragma unroll
            for (int u = 0; u < COPY_AHEAD; u++)
                held[u] = (int)threadIdx.x + u * COPY_THREADS < n
                              ? Vectors::load(piece, threadIdx.x + u * COPY_THREADS, bytes)
                              : syc_zero<typename Vectors::Held>();
        }
        if (!open) {
            syc_wait_for_previous();
            if (!syc_all_clear(gate, syc_sees_fault(gate)))
                return;
            open = true;
        }
#pragma unroll
        for (int u = 0; u < COPY_AHEAD; u++)
            if ((int)threadIdx.x + u * COPY_THREADS < n)
                Vectors::store(piece, threadIdx.x + u * COPY_THREADS, bytes, held[u]);
    }
}

static int vector_of(const syi_kv_plane *p)
{
    return syc_vector_bytes((u64)(uintptr_t)p->cache | (u64)p->block_stride | (u64)(uintptr_t)p->dense.data |
                                (u64)p->dense.stride,
                            (u64)p->row_bytes);
}

/* The planes that are copied in vectors V, several in a launch. */
template <typename V>
static void copy_planes(syc_call *call, const struct pairs &pairs, const syi_kv_blocks_plan *plan)
{
    copied_planes planes = {0, 0, {}};
    for (int64_t i = 0; i < plan->n_planes; i++) {
        const syi_kv_plane *const p = &plan->planes[i];
        const int64_t bytes = (int64_t)p->row_bytes, parts = syc_ceil(bytes, part_bytes<V>());
        if (vector_of(p) == (int)syc_piece_vectors<V>::BYTES) {
            planes.at[planes.count++] = {
                {p->cache, p->block_stride}, p->dense, bytes, syc_split_by(parts, pairs.n * parts), planes.n};
            planes.n += pairs.n * parts;
        }
        if (planes.count == COPY_PLANES || (planes.count > 0 && i + 1 == plan->n_planes)) {
            syc_launch(&call->queue, copy_pairs<V>, SYC_EARLY, planes.n < INT32_MAX ? planes.n : INT32_MAX,
                       COPY_THREADS, 0, pairs, planes, call->gate);
            planes.n = planes.count = 0;
        }
    }
}

size_t syc_kv_blocks_workspace(const syc_device *, const syi_plan *plan)
{
    return syc_hash_bytes(plan->kv_blocks.n, plan->kv_blocks.one_cache ? 2 : 1);
}

void syc_kv_blocks(syc_call *call, const syi_plan *plan)
{
    const syi_kv_blocks_plan *const p = &plan->kv_blocks;
    const struct pairs pairs = {p->n, p->pairs, p->pairs.type, p->one_cache, p->n_src, p->n_dst};
    if (p->n == 0)
        return;
    syc_check_keys(call, pairs, p->one_cache ? 2 : 1);
    if (p->n_src == 0 || p->n_dst == 0) { /* every pair is wrong, and blocks may be of any length on paper */
        syc_only_report(call);
        return;
    }
    copy_planes<uint4>(call, pairs, p);
    copy_planes<u32>(call, pairs, p);
    copy_planes<syc_window>(call, pairs, p);
}
