/*
 * moe_permute on a device. Packed: slots are ranked by expert, from bits in shared memory where experts are
 * few, else from lists of experts; then every token row is read once and written to the rows of its slots.
 * Capacity: the map becomes a row of bits per expert, from which each expert takes its tokens.
 */
#include "cuda/prim/block.cuh"
#include "cuda/moe/moe.cuh"
#include "cuda/runtime/backend.cuh"
#include "cuda/codes/row_codes.cuh"

/* ---- Packed, any number of experts ---- */

/* in the list; OVERFULL in the first slot of a token with too many experts */
enum { NO_EXPERT = -1, OVERFULL = -2 };

/* A warp per token. */
static __global__ void __launch_bounds__(256)
    list_experts(const syi_rows map, int64_t n_tokens, int64_t n_experts, int64_t k, int32_t *list)
{
    const int64_t t = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
    if (t >= n_tokens)
        return;
    int32_t *const own = list + t * k;
    const int64_t found = syc_each_expert(syc_row(map, t), n_experts, [=](int64_t j, int64_t e) {
        if (j < k)
            own[j] = (int32_t)e;
    });
    __syncwarp();
    for (int64_t j = (found > k ? 0 : found) + threadIdx.x % 32; j < k; j += 32)
        own[j] = found > k && j == 0 ? OVERFULL : NO_EXPERT;
}

/* The list as keys. */
struct listed_keys {
    int64_t n;
    int n_keys;
    syc_split by_k;
    syi_rows map;
    const int32_t *list;

    __device__ int key(int64_t i) const { return list[i] >= 0 ? list[i] : -1; }
    __device__ bool wrong(int64_t i) const { return list[i] == OVERFULL; }
    __device__ void explain(int64_t i, syi_found *f) const
    {
        const int64_t t = syc_quotient(i, by_k);
        int64_t routed = 0;
        for (int64_t e = 0; e < n_keys; e++)
            routed += syc_row(map, t)[e] != 0;
        *f = {SYI_BAD_MAP_OVERFULL, 0, -1, t, routed, by_k.d, 0};
    }
};

static size_t list_bytes(const syi_moe_permute_plan *p)
{
    return syc_sort_align((size_t)p->n_rows * sizeof(int32_t));
}

static void rank_listed(syc_call *call, const syi_moe_permute_plan *p, const syc_slot_rows &rows)
{
    int32_t *const list = (int32_t *)(call->scratch + 256);
    const listed_keys keys = {p->n_rows, (int)p->n_experts, rows.by_k, p->map, list};
    syc_launch(&call->queue, list_experts, SYC_AFTER, syc_ceil(p->n_tokens, 8), 256, 0, p->map, p->n_tokens,
               p->n_experts, p->n_slots, list);
    syc_rank(call, keys, rows, call->scratch + 256 + list_bytes(p));
}

/* ---- Packed, few experts ---- */

/*
 * Tokens are cut into chunks. The first kernel counts the tokens of each expert in a chunk and validates
 * them. The second ranks the slots of its chunk meanwhile, then adds what comes before. Both hold the map as
 * bits in shared memory: `rm`, the experts of each token, and `cm`, for 32 tokens each, the tokens of each
 * expert. They run for microseconds, and once: loops that are not unrolled are faster, because their code has
 * to be fetched.
 */
enum {
    INDEX_THREADS = SYC_RANK_THREADS,
    MOST_EXPERTS = INDEX_THREADS,
    MOST_SLOTS = 64,
    MOST_SHARED = 40 * 1024
};

struct chunks {
    syi_rows map;
    int64_t n_tokens;
    int n_experts, k;
    int shift;   /* 2^shift words of 32 experts */
    int tile;    /* tokens whose bits are in shared memory at a time, a multiple of 32 */
    int64_t per; /* tokens of a chunk, a multiple of tile */
    int n;       /* chunks */
    u16 *counts; /* scratch [n][experts, a multiple of 8] */
};

static inline __device__ __host__ int padded(int n_experts)
{
    return (n_experts + 7) & ~7;
}
/* words of a token in rm: odd, against bank conflicts */
static inline __device__ __host__ int line(int shift)
{
    return 1 << shift | 1;
}

/* Bit b: byte b is not 0. */
SYC_INLINE u32 bits_of(uint4 v)
{
    const auto ones = [](u32 x) { return ((((x & 0x7f7f7f7fu) + 0x7f7f7f7fu) | x) >> 7) & 0x01010101u; };
    return __dp4a(ones(v.x), 0x08040201u, __dp4a(ones(v.y), 0x80402010u, 0u)) |
           __dp4a(ones(v.z), 0x08040201u, __dp4a(ones(v.w), 0x80402010u, 0u)) << 8;
}

/*
 * The bits of n tokens from t0 on. WIDE: map rows are multiples of 16 aligned bytes. `turn`: where to begin;
 * blocks that read the same tokens begin at different ones.
 */
template <bool WIDE>
static __device__ void map_bits(const chunks &a, int64_t t0, int n, u32 *rm, u32 *cm, int turn)
{
    enum { AHEAD = WIDE ? 4 : 1 };
    const int parts = a.shift + (WIDE ? 1 : 2), step = INDEX_THREADS >> parts, ld = line(a.shift);
    const int part = (int)threadIdx.x & ((1 << parts) - 1), e = part * (WIDE ? 16 : 8),
              lane = (int)threadIdx.x % 32;
#pragma unroll 1
    for (int r0 = (int)threadIdx.x >> parts; r0 < n; r0 += AHEAD * step) {
        uint4 v[AHEAD];
        u32 bits = 0;
        int at[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const int r = r0 + u * step;
            at[u] = r >= n ? -1 : r + turn < n ? r + turn : r + turn - n;
            const u8 *const row = a.map.data + (t0 + at[u]) * a.map.stride;
            v[u] = make_uint4(0, 0, 0, 0);
            if (WIDE && at[u] >= 0 && e < a.n_experts)
                v[u] = __ldg((const uint4 *)(row + e));
            if (!WIDE && at[u] >= 0 && e < a.n_experts)
                bits = syc_experts_at(row, e, a.n_experts);
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            if (at[u] >= 0 && WIDE)
                ((u16 *)(rm + at[u] * ld))[part] = (u16)bits_of(v[u]);
            else if (at[u] >= 0)
                ((u8 *)(rm + at[u] * ld))[part] = (u8)bits;
    }
    __syncthreads();
#pragma unroll 1
    for (int i = (int)threadIdx.x / 32; i < ((n + 31) / 32) << a.shift; i += INDEX_THREADS / 32) {
        const int r = (i >> a.shift) * 32 + lane, w = i & ((1 << a.shift) - 1);
        cm[i * 32 + lane] = syc_transpose_bits(r < n ? rm[r * ld + w] : 0);
    }
    __syncthreads();
}

/* Experts in the first n words of a token. */
SYC_INLINE int count_words(const u32 *words, int n)
{
    int sum = 0;
#pragma unroll 4
    for (int w = 0; w < n; w++)
        sum += __popc(words[w]);
    return sum;
}

/* The first token with more than K experts, as token and number of experts; all ones: none. */
static __device__ void find_overfull(const chunks &a, int64_t t0, int n, const u32 *rm, u64 *first)
{
#pragma unroll 1
    for (int r = (int)threadIdx.x; r < n; r += INDEX_THREADS) {
        const int routed = count_words(rm + r * line(a.shift), 1 << a.shift);
        if (routed > a.k)
            atomicMin(first, (u64)(t0 + r) << 32 | (u32)routed);
    }
}

static __device__ void put_overfull(const chunks &a, const syc_gate &gate, int block, u64 first)
{
    gate.order[block] = first;
    if (first != SYC_NO_FAULT)
        gate.found[block] = {SYI_BAD_MAP_OVERFULL, 0,   -1, (int64_t)(first >> 32),
                             (int64_t)(u32)first,  a.k, 0};
}

template <bool WIDE>
static __global__ void __launch_bounds__(INDEX_THREADS, 2)
    count_map(const chunks a, const __grid_constant__ syc_gate gate)
{
    SYC_DYNAMIC_SHARED(u32, rm);
    __shared__ u64 first;
    const int e = (int)threadIdx.x, wide = 32 << a.shift;
    const int64_t begin = blockIdx.x * a.per, end = min(begin + a.per, a.n_tokens);
    u32 *const cm = rm + a.tile * line(a.shift);
    u32 sum = 0;
    syc_start_next();
    if (threadIdx.x == 0)
        first = SYC_NO_FAULT;
#pragma unroll 1
    for (int64_t t0 = begin; t0 < end; t0 += a.tile) {
        const int n = (int)min((int64_t)a.tile, end - t0);
        map_bits<WIDE>(a, t0, n, rm, cm, 0);
        if (e < a.n_experts)
#pragma unroll 4
            for (int g = 0; g < (n + 31) / 32; g++)
                sum += (u32)__popc(cm[g * wide + e]);
        find_overfull(a, t0, n, rm, &first);
        __syncthreads();
    }
    if (e < padded(a.n_experts))
        a.counts[blockIdx.x * (unsigned)padded(a.n_experts) + e] = (u16)sum;
    if (threadIdx.x == 0)
        put_overfull(a, gate, (int)blockIdx.x, first);
}

/* entries[r * K + j]: expert of slot j of token r, and its rank among the tokens of that expert in the tile;
   all ones: none. run[e]: tokens of expert e in the tile. */
template <bool WIDE>
static __device__ void rank_tile(const chunks &a, int64_t t0, int n, u32 *entries, u32 *work, u32 *run)
{
    const int words = 1 << a.shift, wide = 32 << a.shift, ld = line(a.shift), groups = (n + 31) / 32;
    u32 *const rm = work, *const cm = rm + a.tile * ld;
    u16 *const before = (u16 *)(cm + a.tile / 32 * wide); /* tokens of the expert in groups before */
    map_bits<WIDE>(a, t0, n, rm, cm, 0);
#pragma unroll 1
    for (int e = (int)threadIdx.x; e < wide; e += INDEX_THREADS) {
        u32 sum = 0;
#pragma unroll 4
        for (int g = 0; g < groups; g++) {
            before[g * wide + e] = (u16)sum;
            sum += (u32)__popc(cm[g * wide + e]);
        }
        run[e] = sum;
    }
    __syncthreads();
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < n << a.shift; i += INDEX_THREADS) { /* a thread per word of a token */
        const int r = i >> a.shift, w = i & (words - 1), g = (r >> 5) * wide;
        int j = count_words(rm + r * ld, w);
#pragma unroll 1
        for (u32 m = rm[r * ld + w]; m != 0; m &= m - 1, j++) {
            const int e = w * 32 + __ffs((int)m) - 1;
            if (j < a.k)
                entries[r * a.k + j] =
                    (u32)e << 16 | (before[g + e] + (u32)__popc(cm[g + e] & ((1u << (r & 31)) - 1)));
        }
        if (w == words - 1)
#pragma unroll 1
            for (; j < a.k; j++)
                entries[r * a.k + j] = ~0u;
    }
    __syncthreads();
}

/*
 * Sums of 8 experts over chunks, by a thread: sum[i * V + v] and before[i * V + v] are those of expert 8 v +
 * i, of all chunks and of those before this one. Halves of 16 bits do not overflow: see lay_out.
 */
static __device__ void add_counts(const chunks &a, u32 *sum, u32 *before)
{
    const int v8 = padded(a.n_experts) / 8, groups = min(INDEX_THREADS / v8, 16);
    const int g = (int)threadIdx.x / v8, v = (int)threadIdx.x - g * v8;
    uint4 all = make_uint4(0, 0, 0, 0), low = all;
    if (g >= groups)
        return;
#pragma unroll 4
    for (int r = g; r < a.n; r += groups)
        syc_add_counts(all, low, __ldcg((const uint4 *)a.counts + (int64_t)r * v8 + v), r);
    const u32 words[8] = {all.x, all.y, all.z, all.w, low.x, low.y, low.z, low.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        atomicAdd(&sum[2 * i * v8 + v], words[i] & 0xffff);
        atomicAdd(&sum[(2 * i + 1) * v8 + v], words[i] >> 16);
        atomicAdd(&before[2 * i * v8 + v], words[i + 4] & 0xffff);
        atomicAdd(&before[(2 * i + 1) * v8 + v], words[i + 4] >> 16);
    }
}

/* Waits for the counts; total[e]: rows of experts before e; base[e]: and those of e in chunks before. False:
   a fault. */
SYC_INLINE bool add_chunks(const chunks &a, const syc_slot_rows &out, u32 *work, u32 *total, u32 *base,
                           const syc_gate &gate)
{
    const int e = (int)threadIdx.x, v8 = padded(a.n_experts) / 8, at = (e & 7) * v8 + (e >> 3);
#pragma unroll 1
    for (int i = e; i < 16 * v8; i += INDEX_THREADS)
        work[i] = 0;
    __syncthreads();
    syc_wait_for_previous();
    const bool bad = syc_sees_fault(gate);
    add_counts(a, work, work + 8 * v8);
    if (!syc_all_clear(gate, bad))
        return false;
    const u32 own = e < a.n_experts ? work[at] : 0;
    if (e < a.n_experts)
        total[e] = own;
    const u32 all = syc_scan_block(total, (u32)a.n_experts);
    if (e < a.n_experts)
        base[e] = total[e] + work[8 * v8 + at];
    if (blockIdx.x == 0 && e < a.n_experts)
        out.begin(e, total[e], own);
    if (blockIdx.x == 0 && e == 0)
        out.end(all);
    __syncthreads();
    return true;
}

template <bool WIDE>
static __global__ void __launch_bounds__(INDEX_THREADS, 2)
    rank_map(const chunks a, const syc_slot_rows out, const __grid_constant__ syc_gate gate)
{
    SYC_DYNAMIC_SHARED(u32, run);
    const int wide = 32 << a.shift, e = (int)threadIdx.x;
    u32 *const total = run + wide, *const base = total + wide, *const entries = base + wide,
               *const work = entries + a.tile * a.k;
    const int64_t begin = blockIdx.x * a.per, end = min(begin + a.per, a.n_tokens);
    syc_start_next();
#pragma unroll 1
    for (int64_t t0 = begin; t0 < end; t0 += a.tile) {
        const int n = (int)min((int64_t)a.tile, end - t0);
        if (t0 > begin && e < a.n_experts)
            base[e] += run[e];
        __syncthreads();
        rank_tile<WIDE>(a, t0, n, entries, work, run);
        if (t0 == begin && !add_chunks(a, out, work, total, base, gate))
            return;
#pragma unroll 1
        for (int i = e; i < n * a.k; i += INDEX_THREADS) {
            const u32 entry = entries[i];
            if (entry == ~0u)
                out.skip(t0 * a.k + i);
            else
                out.put(t0 * a.k + i, (int)(entry >> 16), (int64_t)base[entry >> 16] + (entry & 0xffff));
        }
        __syncthreads();
    }
}

/* Dynamic shared memory of rank_map; count_map needs less. */
static size_t index_bytes(const chunks *a)
{
    const int wide = 32 << a->shift,
              bits = a->tile * line(a->shift) + a->tile / 32 * wide + a->tile / 32 * wide / 2;
    const int sums = 2 * padded(a->n_experts);
    return (size_t)(3 * wide + a->tile * a->k + (bits > sums ? bits : sums)) * sizeof(u32);
}

/* Chunks of the map, or n = 0: it is one for lists. */
static chunks chunks_of(const syi_moe_permute_plan *p, int processors)
{
    chunks a = {p->map, p->n_tokens, (int)p->n_experts, (int)p->n_slots, 0, 32, 0, 0, NULL};
    if (p->n_experts > MOST_EXPERTS || p->n_slots > MOST_SLOTS)
        return a;
    while (32 << a.shift < a.n_experts)
        a.shift++;
    const int64_t half = processors < 2                      ? 1
                         : processors < SYC_MAX_CHECK_BLOCKS ? processors / 2
                                                             : SYC_MAX_CHECK_BLOCKS / 2;
    const int64_t even = syc_ceil(syc_ceil(a.n_tokens, half), 32) * 32;
    a.tile = even < 32 ? 32 : even < 256 ? (int)even : 256;
    while (a.tile > 32 && index_bytes(&a) > MOST_SHARED)
        a.tile = (a.tile / 2 + 31) / 32 * 32;
    const int64_t tiles = syc_ceil(a.n_tokens, a.tile), groups = INDEX_THREADS / (padded(a.n_experts) / 8);
    a.per = syc_ceil(tiles, 2 * half) * a.tile;
    const int64_t n = syc_ceil(a.n_tokens, a.per);
    if (syc_ceil(n, groups < 16 ? groups : 16) * a.per <= 0xffff) /* else sums of 16 bits could overflow */
        a.n = (int)n;
    return a;
}

static size_t chunk_bytes(const chunks *a)
{
    return (size_t)a->n * (size_t)padded(a->n_experts) * sizeof(u16);
}

static bool is_wide(const syi_moe_permute_plan *p)
{
    return (((u64)(uintptr_t)p->map.data | (u64)p->map.stride | (u64)p->n_experts) & 15) == 0;
}

template <bool WIDE>
static void rank_chunks(syc_call *call, const chunks &a, const syc_slot_rows &out, bool ring)
{
    if (ring) {
        syc_prefer_shared(&call->queue, count_map<WIDE>);
        syc_prefer_shared(&call->queue, rank_map<WIDE>);
    }
    call->gate.n = a.n;
    syc_launch(&call->queue, count_map<WIDE>, SYC_AFTER, a.n, INDEX_THREADS, index_bytes(&a), a, call->gate);
    syc_launch(&call->queue, rank_map<WIDE>, SYC_EARLY, a.n, INDEX_THREADS, index_bytes(&a), a, out,
               call->gate);
}

/* ---- Packed, few tokens ---- */

enum { ALONE_SLOTS = 32, ALONE_TOKENS = 512 };

/* The rows of a token, and their experts, by a thread for each word of its map. */
SYC_INLINE void rank_token(const chunks &a, u32 t, const u32 *map, const u32 *cm, const u32 *base, int *rows,
                           int *experts)
{
    const int own = (int)threadIdx.x;
    const u32 wide = 32u << a.shift, *const tokens = cm + (t >> 5) * wide;
    int j = count_words(map, own);
#pragma unroll 1
    for (u32 m = map[own]; m != 0; m &= m - 1, j++) {
        const int e = own * 32 + __ffs((int)m) - 1;
        u32 row = base[e] + (u32)__popc(tokens[e] & ((1u << (t & 31)) - 1));
#pragma unroll 4
        for (u32 g = 0; g < t >> 5; g++)
            row += (u32)__popc(cm[g * wide + (u32)e]);
        rows[j] = (int)row;
        experts[j] = e;
    }
    if (own == (1 << a.shift) - 1)
#pragma unroll 1
        for (; j < a.k; j++)
            rows[j] = -1;
}

/* NOLINT(readability-function-size): steps between barriers, which share counters in registers */
/* One kernel: every block reads the whole map, then ranks and moves its own parts of tokens; the first is
   loaded meanwhile. */
template <bool WIDE>
static __global__ void __launch_bounds__(INDEX_THREADS, 2)
    permute_alone(const chunks a, const syc_slot_rows out, const syc_fan_shape s, u32 parts, u32 width,
                  const __grid_constant__ syc_gate gate)
{
    SYC_DYNAMIC_SHARED(u32, rm);
    __shared__ u64 first;
    __shared__ u32 base[MOST_EXPERTS];
    __shared__ int rows[ALONE_SLOTS], experts[ALONE_SLOTS];
    const int n = (int)a.n_tokens, words = 1 << a.shift, wide = 32 << a.shift, ld = line(a.shift),
              own = (int)threadIdx.x;
    const u32 all = (u32)(s.bytes / 16), items = (u32)n * parts;
    u32 *const cm = rm + n * ld, item = blockIdx.x;
    uint4 x = make_uint4(0, 0, 0, 0);
    const auto load = [&](u32 i) {
        const u32 t = i / parts, v = (i - t * parts) * width + threadIdx.x;
        if (threadIdx.x < width && v < all)
            x = __ldcs((const uint4 *)(s.from.data + t * s.from.stride) + v);
    };
    load(item);
    const bool closed = own == 0 && __ldcg(gate.closed) != 0;
    if (own == 0)
        first = SYC_NO_FAULT;
    map_bits<WIDE>(a, 0, n, rm, cm, (int)((u32)n * blockIdx.x / gridDim.x));
    find_overfull(a, 0, n, rm, &first);
    u32 sum = 0;
    if (own < a.n_experts) {
#pragma unroll 4
        for (int g = 0; g < (n + 31) / 32; g++)
            sum += (u32)__popc(cm[g * wide + own]);
        base[own] = sum;
    }
    if (__syncthreads_or(closed) != 0)
        return;
    if (first != SYC_NO_FAULT) {
        if (blockIdx.x == 0 && own == 0) {
            put_overfull(a, gate, 0, first);
            syc_report_rarely(gate);
        }
        return;
    }
    const u32 live = syc_scan_block(base, (u32)a.n_experts);
    if (blockIdx.x == 0 && own < a.n_experts)
        out.begin(own, base[own], sum);
    if (blockIdx.x == 0 && own == 0)
        out.end(live);
#pragma unroll 1
    for (;;) {
        const u32 t = item / parts, part = item - t * parts, v = part * width + threadIdx.x;
        if (own < words)
            rank_token(a, t, rm + t * (u32)ld, cm, base, rows, experts);
        __syncthreads();
        if (threadIdx.x < width && v < all)
#pragma unroll 4
            for (int j = 0; j < a.k; j++)
                if (rows[j] >= 0)
                    __stcs((uint4 *)(s.to.data + rows[j] * s.to.stride) + v, x);
        const int j = INDEX_THREADS - 1 - own; /* the last threads, which have least to do */
        if (part == 0 && j < a.k && rows[j] >= 0)
            out.put((int64_t)t * a.k + j, experts[j], rows[j]);
        else if (part == 0 && j < a.k)
            out.skip((int64_t)t * a.k + j);
        item += gridDim.x;
        if (item >= items)
            break;
        load(item);
        __syncthreads();
    }
    syc_fan_clear(out, s, (int64_t)live + blockIdx.x, gridDim.x);
}

/* One kernel does all of a small call: the whole map is little work for a block. */
static const char *alone_why_not(const syi_moe_permute_plan *p, const chunks *a, const syc_fan_shape *s,
                                 int processors)
{
    return p->codes.given                    ? "rows become codes"
           : a->n == 0 || a->k > ALONE_SLOTS ? "a token has too many choices"
           : a->n_tokens > ALONE_TOKENS      ? "there are too many tokens"
           : a->n_tokens * a->n_experts > moe_policy::ALONE_CELLS * (int64_t)processors ? "the map is large"
           : s->bytes == 0 || s->bytes >= 1 << 20 ? "rows are empty, or of 1 MiB and more"
           : syc_fan_alignment(s) % 16 != 0       ? "rows are not aligned to 16 bytes"
                                                  : NULL;
}

template <bool WIDE>
static void run_alone(syc_call *call, const chunks &a, const syc_slot_rows &out, const syc_fan_shape *s)
{
    const int64_t vectors = s->bytes / 16, processors = call->device->processors;
    const int64_t wanted = syc_ceil(grid_policy::PARTS * processors, 4 * a.n_tokens),
                  useful = syc_ceil(vectors, 64), least = syc_ceil(vectors, INDEX_THREADS);
    const int64_t some = wanted < useful ? wanted : useful, parts = some > least ? some : least,
                  items = a.n_tokens * parts;
    const size_t shared =
        (size_t)(a.n_tokens * line(a.shift) + syc_ceil(a.n_tokens, 32) * (32 << a.shift)) * sizeof(u32);
    call->gate.n = 1;
    syc_launch(&call->queue, permute_alone<WIDE>, SYC_AFTER, items < processors ? items : processors,
               INDEX_THREADS, shared, a, out, *s, (u32)parts, (u32)syc_ceil(vectors, parts), call->gate);
}

/* ---- Packed ---- */

static void permute_packed(syc_call *call, const syi_moe_permute_plan *p)
{
    const syc_split by_k = syc_split_by(p->n_slots, p->n_rows);
    const syc_slot_rows rows = {by_k,
                                0,
                                p->n_rows,
                                p->sorted_indices.data,
                                p->counts.data,
                                p->offsets.data,
                                p->out_probs.data,
                                p->probs,
                                (int)p->prob_bytes,
                                true,
                                p->n_experts,
                                (int64_t *)call->scratch};
    const syc_fan_shape shape = {p->tokens,  p->out_tokens, p->n_tokens,
                                 p->n_slots, p->n_rows,     (int64_t)p->row_bytes};
    chunks a = chunks_of(p, call->device->processors);
    a.counts = (u16 *)(call->scratch + 256);
    const bool coded = p->codes.given;
    if (syc_takes(call, "alone", alone_why_not(p, &a, &shape, call->device->processors))) {
        is_wide(p) ? run_alone<true>(call, a, rows, &shape) : run_alone<false>(call, a, rows, &shape);
        return;
    }
    const bool ring = !coded && syc_ring_stages(call->device, &shape) > 0;
    if (syc_takes(call, "rank_chunks", a.n > 0 ? NULL : "experts or choices are too many for shared memory"))
        is_wide(p) ? rank_chunks<true>(call, a, rows, ring) : rank_chunks<false>(call, a, rows, ring);
    else
        rank_listed(call, p, rows);
    if (coded)
        syc_code_rows(call, &p->codes, syc_fanned_rows<syc_slot_rows>{rows, p->tokens, (int)p->n_slots},
                      p->n_tokens, p->n_rows);
    else
        syc_fan(call, rows, &shape);
}

/* ---- Capacity, and counts alone ---- */

struct capacity {
    syi_moe_permute_plan plan;
    int64_t n_words; /* of 32 tokens */
    u32 *bits;       /* scratch [E][n_words]: tokens of each expert */
    u32 *routed;     /* scratch [E]: their number */
};

/* A warp turns the experts of 32 tokens into the tokens of 32 experts. */
static __global__ void __launch_bounds__(256) transpose_map(const capacity c)
{
    const int64_t tile = (int64_t)blockIdx.x * 8 + threadIdx.x / 32, across = (c.plan.n_experts + 31) / 32;
    const int64_t word = tile / across, first = (tile - word * across) * 32, t = word * 32 + threadIdx.x % 32;
    u32 experts = 0;
    if (t < c.plan.n_tokens)
        for (int b = 0; b < 32; b += 8)
            experts |= first + b < c.plan.n_experts
                           ? syc_experts_at(syc_row(c.plan.map, t), first + b, c.plan.n_experts) << b
                           : 0;
    const u32 tokens = syc_transpose_bits(experts);
    if (word < c.n_words && first + threadIdx.x % 32 < c.plan.n_experts)
        c.bits[(first + threadIdx.x % 32) * c.n_words + word] = tokens;
}

/* Token t gets place `place` of expert e, or none. */
SYC_INLINE void put_token(const syi_moe_permute_plan &p, int64_t e, int64_t place, int64_t t, bool routed)
{
    if (place >= p.n_slots)
        return;
    const int64_t row = e * p.n_slots + place;
    const bool zero = !routed && p.args.zero_pad;
    syc_store<u32>(p.sorted_indices.data + 4 * row, zero ? 0xffffffffu : (u32)t);
    if (p.prob_bytes == 0)
        return;
    u8 *const to = p.out_probs.data + row * (int64_t)p.prob_bytes;
    if (zero)
        for (size_t b = 0; b < p.prob_bytes; b++)
            to[b] = 0;
    else
        syc_copy_prob(to, syc_row(p.probs, t) + e * (int64_t)p.prob_bytes, (int)p.prob_bytes);
}

/* A block per expert: its tokens, then the others, both ascending, as far as it has places. */
enum { TAKE_THREADS = 1024 };

static __global__ void __launch_bounds__(TAKE_THREADS, 1) take_tokens(const capacity c, const syc_gate gate)
{
    __shared__ u64 part[SYC_BLOCK_WARPS];
    __shared__ int64_t places[TAKE_THREADS]; /* of the tokens of a word, and its bits */
    __shared__ u32 words[TAKE_THREADS];
    const int64_t e = blockIdx.x;
    const u32 *const bits = c.bits + e * c.n_words;
    u64 sum = 0, before = 0;
    if (!syc_may_write(gate))
        return;
    for (int64_t w = threadIdx.x; w < c.n_words; w += TAKE_THREADS)
        sum += (u64)__popc(__ldcg(bits + w));
    const u64 routed = syc_block_sum(sum, part);
    if (threadIdx.x == 0) {
        c.routed[e] = (u32)routed;
        if (c.plan.counts.data != NULL)
            syc_store<u64>(c.plan.counts.data + 8 * e, routed);
    }
    for (int64_t w0 = 0; w0 < c.n_words && c.plan.n_rows > 0; w0 += TAKE_THREADS) {
        const int64_t w = w0 + threadIdx.x;
        const u32 own = w < c.n_words ? __ldcg(bits + w) : 0;
        u64 all;
        words[threadIdx.x] = own;
        places[threadIdx.x] = (int64_t)(before + syc_block_before((u64)__popc(own), part, &all));
        before += all;
        __syncthreads();
        for (int i = (int)threadIdx.x / 32; w0 + i < min(c.n_words, w0 + TAKE_THREADS);
             i += TAKE_THREADS / 32) { /* a lane for each token */
            const int lane = (int)threadIdx.x % 32, here = __popc(words[i] & ((1u << lane) - 1u));
            const int64_t t = (w0 + i) * 32 + lane, place = places[i] + here;
            const bool in = (words[i] >> lane & 1) != 0;
            if (t < c.plan.n_tokens)
                put_token(c.plan, e, in ? place : (int64_t)routed + t - place, t, in);
        }
        __syncthreads();
    }
}

/* One block. */
static __global__ void __launch_bounds__(256, 2) put_offsets(const capacity c, const syc_gate gate)
{
    __shared__ u64 part[SYC_BLOCK_WARPS];
    u64 before = 0;
    if (!syc_may_write(gate))
        return;
    for (int64_t first = 0; first <= c.plan.n_experts; first += 256) {
        const int64_t e = first + threadIdx.x;
        u64 all, offset = before +
                          syc_block_before(e < c.plan.n_experts ? (u64)__ldcg(c.routed + e) : 0, part, &all);
        before += all;
        if (e <= c.plan.n_experts)
            syc_store<u64>(c.plan.offsets.data + 8 * e,
                           c.plan.args.drop_and_pad ? (u64)(e * c.plan.n_slots) : offset);
    }
}

struct taken_rows {
    syi_rows tokens, out;
    const u8 *sorted_indices;
    __device__ syc_piece at(int64_t row) const
    {
        syc_wait_for_previous();
        const int64_t t = (int32_t)syc_load<u32>(sorted_indices + 4 * row);
        return {t >= 0 ? syc_row(tokens, t) : NULL, syc_out_row(out, row)};
    }
};

/* The same for codes: an item is a row of the output. */
struct taken_codes {
    enum { SCALED = 0, EARLY = 0 };
    taken_rows rows;
    int64_t n_rows;

    __device__ syc_coded_item find(int64_t row) const { return {rows.at(row).from, row, 1.0f}; }
    __host__ __device__ int n_places() const { return 1; }
    __device__ int64_t place(int64_t, int, const syc_coded_item &item) const { return item.row; }
    __device__ int64_t first_clear() const { return n_rows; }
    __device__ void clear(int64_t) const {}
};

static size_t bits_bytes(const syi_moe_permute_plan *p)
{
    return syc_sort_align((size_t)p->n_experts * (size_t)syc_ceil(p->n_tokens, 32) * sizeof(u32));
}

static void permute_capacity(syc_call *call, const syi_moe_permute_plan *p)
{
    const capacity c = {*p, syc_ceil(p->n_tokens, 32), (u32 *)(call->scratch + 256),
                        (u32 *)(call->scratch + 256 + bits_bytes(p))};
    syc_launch(&call->queue, transpose_map, SYC_AFTER, syc_ceil(c.n_words * syc_ceil(p->n_experts, 32), 8),
               256, 0, c);
    syc_launch(&call->queue, take_tokens, SYC_AFTER, p->n_experts, TAKE_THREADS, 0, c, call->gate);
    if (p->offsets.data != NULL)
        syc_launch(&call->queue, put_offsets, SYC_AFTER, 1, 256, 0, c, call->gate);
    const taken_rows rows = {p->tokens, p->out_tokens, p->sorted_indices.data};
    if (p->n_rows > 0 && p->codes.given)
        syc_code_rows(call, &p->codes, taken_codes{rows, p->n_rows}, p->n_rows, p->n_rows);
    else if (p->n_rows > 0)
        syc_move_rows(call, rows, p->n_rows, (int64_t)p->row_bytes,
                      (u64)(uintptr_t)p->tokens.data | (u64)p->tokens.stride |
                          (u64)(uintptr_t)p->out_tokens.data | (u64)p->out_tokens.stride);
}

/* ---- Both ---- */

size_t syc_moe_permute_workspace(const syc_device *device, const syi_plan *plan)
{
    const syi_moe_permute_plan *const p = &plan->moe_permute;
    if (p->args.drop_and_pad || p->n_rows == 0)
        return 256 + bits_bytes(p) + (size_t)p->n_experts * sizeof(u32);
    const chunks a = chunks_of(p, device->processors);
    if (a.n > 0)
        return 256 + chunk_bytes(&a);
    return 256 + list_bytes(p) + syc_rank_bytes(p->n_rows, p->n_experts, device->processors);
}

void syc_moe_permute(syc_call *call, const syi_plan *plan)
{
    const syi_moe_permute_plan *const p = &plan->moe_permute;
    if (p->idle)
        return;
    if (p->args.drop_and_pad || p->n_rows == 0)
        permute_capacity(call, p);
    else
        permute_packed(call, p);
}
