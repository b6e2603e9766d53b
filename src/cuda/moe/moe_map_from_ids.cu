/*
 * moe_map_from_ids on a device. The ids are validated, each against those before it in its row. Then a block
 * makes some rows of the map, or of the probs, in shared memory and stores them as they are: every byte is
 * written once, in long pieces.
 */
#include "cuda/runtime/backend.cuh"
#include "cuda/prim/load.cuh"
#include "cuda/prim/one_block.cuh"
#include "cuda/prim/rows.cuh"

enum { THREADS = 256, TILE = 16 * 1024, FEW_TILES = 4 }; /* FEW_TILES: that one block makes */

/* ---- Validation ---- */

SYC_INLINE int64_t id_at(const syi_moe_map_from_ids_plan &p, int64_t t, int64_t j)
{
    return syc_index(syc_row(p.ids, t), j, p.ids.type);
}

SYC_INLINE bool is_missing(const syi_moe_map_from_ids_plan &p, int64_t id)
{
    return p.args.allow_missing && (id == -1 || id == p.n_experts);
}

/* Whether slot j is wrong, and what is. */
SYC_COLD bool wrong_slot(const syi_moe_map_from_ids_plan &p, int64_t t, int64_t j, syi_found *f)
{
    const int64_t id = id_at(p, t, j);
    int64_t first = 0;
    *f = {SYI_BAD_ID_RANGE, 0, t, j, id, p.n_experts, 0};
    if (id < 0 || id >= p.n_experts)
        return !is_missing(p, id);
    while (first < j && id_at(p, t, first) != id)
        first++;
    *f = {SYI_BAD_ID_TWICE, 0, t, j, id, first, 0};
    return first < j;
}

/* An item is a slot. */
struct slots_check {
    syi_moe_map_from_ids_plan p;
    syc_split slots;
    int64_t n; /* T*K */

    __device__ bool fault(int64_t i, syi_found *f) const
    {
        const int64_t t = syc_quotient(i, slots);
        return wrong_slot(p, t, i - t * p.n_slots, f);
    }
    __device__ bool wrong(int64_t i) const
    {
        syi_found f;
        return fault(i, &f);
    }
    __device__ void explain(int64_t i, syi_found *f) const { fault(i, f); }
};

enum { FEW_SLOTS = 8 };

/* An item is a row of at most FEW_SLOTS, whose ids are compared in registers. */
struct rows_check {
    syi_moe_map_from_ids_plan p;
    int64_t n; /* T */

    __device__ bool wrong(int64_t t) const
    {
        const u8 *const row = syc_row(p.ids, t);
        u32 id[FEW_SLOTS]; /* as a missing one where there is none; equal to no other */
        bool bad = false;
#pragma unroll
        for (int j = 0; j < FEW_SLOTS; j++) {
            const int64_t own = j < (int)p.n_slots ? syc_index(row, j, p.ids.type) : -1;
            const bool in = own >= 0 && own < p.n_experts;
            bad |= !in && j < (int)p.n_slots && !is_missing(p, own);
            id[j] = in ? (u32)own : UINT32_MAX - (u32)j;
        }
#pragma unroll
        for (int j = 1; j < FEW_SLOTS; j++)
#pragma unroll
            for (int i = 0; i < j; i++)
                bad |= id[i] == id[j];
        return bad;
    }
    __device__ void explain(int64_t t, syi_found *f) const
    {
        for (int64_t j = 0; !wrong_slot(p, t, j, f);)
            j++;
    }
};

/* ---- Writing ---- */

/* How the map, or the probs, are cut: tiles of whole rows, or of a part of one row. */
struct tiles {
    syi_rows to;
    int bytes; /* of an element */
    int rows;  /* of a tile */
    int columns;
    int pitch;       /* bytes between rows in shared memory */
    int64_t n;       /* tiles */
    int64_t per_row; /* tiles of a row */
    bool joined;     /* whole rows follow each other in both places */
};

struct fill {
    syi_moe_map_from_ids_plan p;
    syc_split slots;
    struct tiles map, probs;
};

/* Stores `bytes` of shared memory by `step` threads, of which this is number `own`; both sides are equally
   far from a multiple of 16. */
SYC_INLINE void store_piece(u8 *to, const u8 *from, int bytes, int own, int step)
{
    const int head = min(bytes, (int)((16 - (uintptr_t)to % 16) % 16)), vectors = (bytes - head) / 16,
              tail = head + vectors * 16;
    for (int i = own; i < vectors; i += step)
        __stcs((uint4 *)(to + head) + i, ((const uint4 *)(from + head))[i]);
    for (int i = own; i < head + bytes - tail; i += step) {
        const int at = i < head ? i : i - head + tail;
        to[at] = from[at];
    }
}

struct tile {
    const struct tiles *of;
    u8 *to;
    int rows, columns;
};

/* Makes tile `number` in shared memory. All threads of the block call it; a barrier must follow. */
SYC_INLINE struct tile make_tile(const struct fill &f, int64_t number, uint4 *memory)
{
    u8 *const tile = (u8 *)memory;
    const syi_moe_map_from_ids_plan &p = f.p;
    const bool is_map = number < f.map.n;
    const struct tiles &own = is_map ? f.map : f.probs;
    number -= is_map ? 0 : f.map.n;
    const int64_t part = own.per_row > 1 ? number % own.per_row : 0,
                  t0 = (own.per_row > 1 ? number / own.per_row : number) * own.rows;
    const int64_t e0 = part * own.columns;
    const int rows = (int)min((int64_t)own.rows, p.n_tokens - t0),
              columns = (int)min((int64_t)own.columns, p.n_experts - e0);
    u8 *const to = syc_out_row(own.to, t0) + e0 * own.bytes;
    for (int i = (int)threadIdx.x; i < TILE / 16; i += THREADS)
        memory[i] = make_uint4(0, 0, 0, 0);
    __syncthreads();
    for (int64_t i = threadIdx.x; i < rows * p.n_slots; i += THREADS) {
        const int64_t r = syc_quotient(i, f.slots), j = i - r * p.n_slots;
        const int64_t e = syc_index(syc_row(p.ids, t0 + r), j, p.ids.type) - e0;
        u8 *const at =
            tile + (uintptr_t)(own.joined ? to : to + r * own.to.stride) % 16 + r * own.pitch + e * own.bytes;
        if (e < 0 || e >= columns)
            continue;
        if (is_map)
            *at = 1;
        else if (own.bytes == 4)
            syc_store<u32>(at, syc_load<u32>(syc_row(p.weights, t0 + r) + j * 4));
        else
            syc_store<u16>(at, syc_load<u16>(syc_row(p.weights, t0 + r) + j * 2));
    }
    return {&own, to, rows, columns};
}

SYC_INLINE void store_tile(const struct tile &t, const u8 *tile)
{
    const struct tiles &own = *t.of;
    if (own.joined) {
        store_piece(t.to, tile + (uintptr_t)t.to % 16, t.rows * own.pitch, (int)threadIdx.x, THREADS);
        return;
    }
    for (int r = (int)threadIdx.x / 32; r < t.rows; r += THREADS / 32) {
        u8 *const row = t.to + r * own.to.stride;
        store_piece(row, tile + (uintptr_t)row % 16 + r * own.pitch, t.columns * own.bytes,
                    (int)threadIdx.x % 32, 32);
    }
}

static __global__ void __launch_bounds__(THREADS)
    fill_rows(const __grid_constant__ struct fill f, const syc_gate gate)
{
    __shared__ uint4 memory[TILE / 16];
    const struct tile tile = make_tile(f, blockIdx.x, memory);
    if (syc_may_write(gate)) /* and all have written the tile */
        store_tile(tile, (const u8 *)memory);
}

/* All tiles by one block, which validates first. */
static __global__ void __launch_bounds__(THREADS)
    fill_few(const __grid_constant__ rows_check check, const __grid_constant__ struct fill f,
             const __grid_constant__ syc_gate gate)
{
    __shared__ uint4 memory[TILE / 16];
    if (!syc_validate_all(check, gate))
        return;
#pragma unroll 1
    for (int64_t i = 0; i < f.map.n + f.probs.n; i++) {
        const struct tile tile = make_tile(f, i, memory);
        __syncthreads();
        store_tile(tile, (const u8 *)memory);
        __syncthreads();
    }
}

static struct tiles cut(const syi_moe_map_from_ids_plan *p, syi_rows to, int bytes, int processors)
{
    const int64_t row = p->n_experts * bytes, blocks = processors > 0 ? 2 * processors : 1,
                  spread = (p->n_tokens + blocks - 1) / blocks;
    struct tiles tiles = {to, bytes, 1, (TILE - 16) / bytes, TILE, 0, 1, false};
    if (row > TILE - 16) {
        tiles.per_row = (p->n_experts + tiles.columns - 1) / tiles.columns;
        tiles.n = p->n_tokens * tiles.per_row;
        return tiles;
    }
    tiles.columns = (int)p->n_experts;
    tiles.joined = to.stride == row;
    tiles.pitch = tiles.joined ? (int)row : ((int)row + 15) / 16 * 16 + 16;
    const int64_t fit = tiles.joined ? (TILE - 16) / row : TILE / tiles.pitch, most = fit < 1 ? 1 : fit;
    tiles.rows = (int)(spread < most ? spread : most);
    tiles.n = (p->n_tokens + tiles.rows - 1) / tiles.rows;
    return tiles;
}

SYC_NO_WORKSPACE(moe_map_from_ids)

void syc_moe_map_from_ids(syc_call *call, const syi_plan *plan)
{
    const syi_moe_map_from_ids_plan *const p = &plan->moe_map_from_ids;
    const int64_t n = p->n_tokens * p->n_slots, row = p->n_experts * (int64_t)(1 + p->prob_bytes);
    const syc_split slots = syc_split_by(p->n_slots, n);
    const rows_check rows = {*p, p->n_slots > 0 ? p->n_tokens : 0};
    const bool few = p->n_slots <= FEW_SLOTS && row <= TILE && p->n_tokens * row <= FEW_TILES * TILE;
    struct fill fill = {*p, slots, {}, {}};
    if (p->n_tokens > 0 && p->n_experts > 0) {
        const int processors = few ? 0 : call->device->processors;
        fill.map = cut(p, p->map, 1, processors);
        if (p->prob_bytes > 0)
            fill.probs = cut(p, p->probs, (int)p->prob_bytes, processors);
    }
    if (syc_takes(call, "one_block", few ? NULL : "the map is large")) {
        call->gate.n = 1;
        syc_launch(&call->queue, fill_few, SYC_AFTER, 1, THREADS, 0, rows, fill, call->gate);
        return;
    }
    syc_takes(call, "many_blocks");
    if (p->n_slots <= FEW_SLOTS)
        syc_check(call, rows);
    else
        syc_check(call, slots_check{*p, slots, n});
    if (p->n_experts == 0)
        syc_only_report(call);
    else
        syc_launch(&call->queue, fill_rows, SYC_EARLY, fill.map.n + fill.probs.n, THREADS, 0, fill,
                   call->gate);
}
