/*
 * Rows between slots of a cache and dense rows, of all planes: copied, several planes in a launch, or coded
 * where a plane is packed.
 */
#pragma once

#include "cuda/kv/kv.cuh"
#include "cuda/codes/kv_codes.cuh"
#include "cuda/runtime/scratch.cuh"

/* ---- Copying ---- */

enum { SYC_KV_PLANES = 8 }; /* of a launch */

/* A plane as blocks of threads see it: rows are heads that follow each other, and a long head is cut into
   parts as in rows.cuh. */
struct syc_kv_part {
    int64_t first;     /* block of this plane */
    int64_t n;         /* parts of all rows */
    syc_divisor width; /* vectors of a part */
    int bytes;         /* of a part, at most */
    int per_block;     /* parts */
    u8 *cache;
    int64_t row_stride;
    syi_rows dense;
    bool flat;                            /* blocks follow each other without a gap */
    syc_split heads, parts;               /* of a row, of a head */
    int64_t head_bytes, part_bytes, last; /* where the last part of a head begins */
    int64_t block_stride, head_stride;
};

template <class Slots> struct syc_kv_copy {
    int count;
    Slots slots;
    syi_kv_pool pool;
    syc_kv_part at[SYC_KV_PLANES];
};

/*
 * Slots: a struct with `int64_t slot(int64_t i)`, the slot of dense row i, -1 for none, and `bool clears`: a
 * dense row without a slot becomes zero. It runs before the verdict of the validation, so it returns only
 * slots that exist. `int64_t near(int64_t i)` is called by all threads of a block with its first row, and
 * what it returns goes with `int64_t slot_near(int64_t near, int64_t i)` for the rows of the block.
 */
struct syc_kv_at {
    int64_t row, head, offset;
};

SYC_INLINE syc_kv_at syc_kv_part_at(const syc_kv_part &p, int64_t i)
{
    const int64_t whole = p.parts.d == 1 ? i : syc_quotient(i, p.parts),
                  row = p.heads.d == 1 ? whole : syc_quotient(whole, p.heads);
    return {row, whole - row * p.heads.d,
            p.parts.d == 1 ? 0 : min((i - whole * p.parts.d) * p.part_bytes, p.last)};
}

/* Where a part is in the cache; NULL: nowhere. */
template <class Slots>
SYC_INLINE u8 *syc_kv_in_cache(const syc_kv_copy<Slots> &copy, const syc_kv_part &p, const syc_kv_at &at,
                               int64_t near)
{
    const int64_t slot = copy.slots.slot_near(near, at.row);
    if (slot < 0)
        return NULL;
    return (p.flat ? p.cache + slot * p.row_stride
                   : syc_kv_cached(copy.pool, p.cache, p.block_stride, p.row_stride, slot)) +
           at.head * p.head_stride + at.offset;
}

/* As syc_move. Rows that go to the cache are loaded while the last threads, which load least, look up their
   slots. */
template <typename V, bool TO_CACHE, int AHEAD, class Slots>
static __global__ void __launch_bounds__(SYC_MOVE_THREADS)
    syc_kv_copy_rows(const __grid_constant__ syc_gate gate, const __grid_constant__ syc_kv_copy<Slots> copy)
{
    constexpr bool WINDOWS = syc_piece_vectors<V>::BYTES == 1; /* which depend on where they go */
    __shared__ syc_piece piece[SYC_MOVE_PIECES];
    int k = 0;
    while (k + 1 < copy.count && blockIdx.x >= copy.at[k + 1].first)
        k++;
    const syc_kv_part &p = copy.at[k];
    const int64_t first = (blockIdx.x - p.first) * p.per_block,
                  near = copy.slots.near(syc_quotient(syc_quotient(first, p.parts), p.heads));
    const int own = (int)min((int64_t)p.per_block, p.n - first),
              late = SYC_MOVE_THREADS - 1 - (int)threadIdx.x;
    if ((int)threadIdx.x < own) {
        const syc_kv_at at = syc_kv_part_at(p, first + threadIdx.x);
        u8 *const dense = syc_out_row(p.dense, at.row) + at.head * p.head_bytes + at.offset;
        const u8 *const from = TO_CACHE ? dense : syc_kv_in_cache(copy, p, at, near);
        piece[threadIdx.x] = {from, from == NULL && !copy.slots.clears ? NULL : dense};
        if (TO_CACHE && WINDOWS)
            piece[threadIdx.x].to = syc_kv_in_cache(copy, p, at, near);
    }
    __syncthreads();
    if (TO_CACHE && !WINDOWS && late < own)
        piece[late].to = syc_kv_in_cache(copy, p, syc_kv_part_at(p, first + late), near);
    syc_move_pieces<V, AHEAD>(piece, (u32)own * p.width.d, p.width, p.bytes, gate);
}

/* ---- Launching ---- */

static inline int syc_kv_vector(const syi_kv_plane *p)
{
    return syc_vector_bytes((u64)(uintptr_t)p->cache | (u64)p->block_stride | (u64)p->row_stride |
                                (u64)(uintptr_t)p->dense.data | (u64)p->dense.stride |
                                (p->n_heads > 1 ? (u64)p->head_stride : 0),
                            (u64)p->head_bytes);
}

static inline syc_kv_part syc_kv_part_of(const syi_kv_plane *p, const syi_kv_pool *pool, int64_t rows,
                                         int64_t (*count)(int64_t), int vector, int ahead, int processors)
{
    const int64_t bytes = (int64_t)p->head_bytes, parts = (bytes + SYC_MOST_PIECE - 1) / SYC_MOST_PIECE,
                  part = (bytes / vector + parts - 1) / parts * vector;
    const int64_t whole = rows * p->n_heads, n = whole * parts;
    return {0,
            n,
            syc_divisor_of((u32)count(part)),
            (int)part,
            (int)syc_pieces_of_block(n, count(part), part, processors, ahead),
            p->cache,
            p->row_stride,
            p->dense,
            p->block_stride == pool->block_size * p->row_stride,
            syc_split_by(p->n_heads, whole),
            syc_split_by(parts, n),
            bytes,
            part,
            bytes - part,
            p->block_stride,
            p->head_stride};
}

/* The planes that are copied in vectors V. */
template <typename V, bool TO_CACHE, int AHEAD = SYC_MOVE_AHEAD, class Slots>
static void syc_kv_copy_planes(syc_call *call, const Slots &slots, const syi_kv_planes *planes, int64_t n)
{
    syc_kv_copy<Slots> copy = {0, slots, planes->pool, {}};
    int64_t blocks = 0;
    for (int64_t i = 0; i <= planes->n; i++) {
        const syi_kv_plane *const p = &planes->at[i];
        syc_kv_part part = {};
        if (i < planes->n && !p->packed && p->head_bytes > 0 &&
            syc_kv_vector(p) == (int)syc_piece_vectors<V>::BYTES)
            part = syc_kv_part_of(p, &planes->pool, n, syc_piece_vectors<V>::count,
                                  (int)syc_piece_vectors<V>::BYTES, AHEAD, call->device->processors);
        const int64_t own = part.n > 0 ? (part.n - 1) / part.per_block + 1 : 0;
        if (copy.count == SYC_KV_PLANES || i == planes->n || blocks > INT32_MAX - own) {
            syc_launch(&call->queue, syc_kv_copy_rows<V, TO_CACHE, AHEAD, Slots>, SYC_EARLY, blocks,
                       SYC_MOVE_THREADS, 0, call->gate, copy);
            copy.count = 0;
            blocks = 0;
        }
        if (own > 0) {
            part.first = blocks;
            copy.at[copy.count++] = part;
            blocks += own;
        }
    }
}

/* To be called before other checks. */
static inline void syc_kv_check_globals(syc_call *call, const syi_kv_planes *planes)
{
    for (int64_t i = 0; i < planes->n; i++)
        if (planes->at[i].packed)
            syc_check_global(call, planes->at[i].codec, i);
}

/* Slots for kernels that are the same for all operators. */
template <class Slots>
static __global__ void __launch_bounds__(SYC_MOVE_THREADS)
    syc_list_slots(const __grid_constant__ Slots slots, int64_t *list, int64_t first, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * SYC_MOVE_THREADS + threadIdx.x;
    syc_start_next();
    if (i < n)
        list[i] = slots.slot(first + i);
    syc_wait_for_previous(); /* what comes after this kernel comes after the validation */
}

/* Rows that are listed at a time: a query does not know how many rows kv_ragged has. */
#ifdef SWITCHYARD_CUDA_EMULATED
enum { SYC_KV_LISTED = 96 }; /* so that tests have calls with several lists */
#else
enum { SYC_KV_LISTED = 256 * 1024 };
#endif

/* The list of slots, where planes are packed; of a call's scratch memory the last part. */
static inline int64_t *syc_kv_take_list(const syi_kv_planes *planes, syc_scratch *scratch)
{
    return scratch->take<int64_t>(planes->packed ? (int64_t)SYC_KV_LISTED : 0);
}

/* Rows from `first` on of a plane, and their codes. */
static inline syi_kv_plane syc_kv_plane_from(const syi_kv_plane &plane, int64_t first)
{
    syi_kv_plane rest = plane;
    rest.dense.data += first * plane.dense.stride;
    if (plane.codec.global.data != NULL)
        rest.codec.global.data += first * plane.codec.global.stride;
    return rest;
}

template <bool TO_CACHE, class Slots>
static void syc_kv_code_planes(syc_call *call, const Slots &slots, const syi_kv_planes *planes, int64_t n,
                               int64_t *list)
{
    for (int64_t first = 0; first < n; first += SYC_KV_LISTED) {
        const int64_t own = n - first < SYC_KV_LISTED ? n - first : (int64_t)SYC_KV_LISTED;
        syc_launch(&call->queue, syc_list_slots<Slots>, first == 0 ? SYC_EARLY : SYC_AFTER,
                   syc_ceil(own, SYC_MOVE_THREADS), SYC_MOVE_THREADS, 0, slots, list, first, own);
        for (int64_t i = 0; i < planes->n; i++)
            if (planes->at[i].packed)
                syc_kv_code(call,
                            {list, slots.clears, own, syc_kv_plane_from(planes->at[i], first), planes->pool},
                            TO_CACHE);
    }
}

template <bool TO_CACHE, class Slots>
static void syc_kv_move(syc_call *call, const Slots &slots, const syi_kv_planes *planes, int64_t n,
                        int64_t *list)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < planes->n; i++)
        bytes += planes->at[i].packed ? 0 : n * planes->at[i].n_heads * (int64_t)planes->at[i].head_bytes;
    const int64_t usual = kv_policy::USUAL_BLOCKS * (int64_t)call->device->processors;
    if (syc_takes(call, "full_blocks",
                  bytes <= usual * SYC_MOVE_AHEAD * SYC_MOVE_THREADS * 16 ? "rows are few"
                  : bytes > SYC_MANY_BYTES                                ? "rows are more than 64 MiB"
                                                                          : NULL))
        syc_kv_copy_planes<uint4, TO_CACHE, kv_policy::AHEAD>(call, slots, planes, n);
    else if (bytes == 0 || syc_takes(call, "blocks"))
        syc_kv_copy_planes<uint4, TO_CACHE>(call, slots, planes, n);
    syc_kv_copy_planes<u32, TO_CACHE>(call, slots, planes, n);
    syc_kv_copy_planes<syc_window, TO_CACHE>(call, slots, planes, n);
    if (planes->packed)
        syc_kv_code_planes<TO_CACHE>(call, slots, planes, n, list);
}
