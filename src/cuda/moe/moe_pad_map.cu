/*
 * moe_pad_map on a device. The zeros of every column are counted in chunks of tokens; then a chunk has the
 * zeros before it, and fills those of its own that the column still lacks. A block takes a chunk of up to 256
 * columns; its threads take four columns each and a slice of the chunk's tokens.
 */
#include "cuda/runtime/backend.cuh"
#include "cuda/prim/load.cuh"
#include "cuda/runtime/scratch.cuh"

enum {
    THREADS = 256,
    MOST_IN_BYTE = 255, /* tokens of a slice: zeros are counted in bytes */
    AHEAD = 8,          /* tokens loaded at a time */
    FIND_COLUMNS = 32,
    FIND_PARTS = 16,
    FEW_THREADS = 1024, /* at most, of the block that does all of a small call */
    FEW_SLICES = 16,
    FEW_TOKENS = 32 /* of a slice */
};

struct pad {
    syi_moe_pad_map_plan p;
    syc_split alignment;
    bool words;              /* rows are aligned to four columns */
    int width, slices;       /* of a block: words of four columns, slices of tokens; powers of two */
    int64_t tiles;           /* blocks of a chunk */
    int64_t slice, n_chunks; /* tokens, chunks of `slices` slices */
    u32 *zeros;              /* [chunk][E]: of the chunk, later of those before it */
    u32 *count;              /* [E] */
};

/* What one thread of a block works on. */
struct part {
    int64_t chunk, e, first, end; /* first of four columns, tokens */
    int columns, place, slice;    /* of these four that exist; first column in the block */
};

SYC_INLINE part part_of(const struct pad &pad)
{
    part own;
    own.chunk = blockIdx.x / pad.tiles;
    own.slice = (int)threadIdx.x / pad.width;
    own.place = 4 * ((int)threadIdx.x % pad.width);
    own.e = ((int64_t)blockIdx.x - own.chunk * pad.tiles) * 4 * pad.width + own.place;
    own.columns = (int)max((int64_t)0, min((int64_t)4, pad.p.n_experts - own.e));
    own.first = min(pad.p.n_tokens, (own.chunk * pad.slices + own.slice) * pad.slice);
    own.end = own.columns > 0 ? min(pad.p.n_tokens, own.first + pad.slice) : own.first;
    return own;
}

/* Whether the four columns are there, as a word: loads are then without a branch, several at a time. */
SYC_INLINE bool whole_words(const struct pad &pad, const part &own)
{
    return pad.words && own.columns == 4;
}

SYC_INLINE u32 load_four(const struct pad &pad, const part &own, int64_t t)
{
    const u8 *const at = syc_row(pad.p.map, t) + own.e;
    u32 word = 0;
    for (int i = 0; i < own.columns; i++)
        word |= (u32)at[i] << (8 * i);
    return word;
}

SYC_INLINE void store_four(const struct pad &pad, const part &own, int64_t t, u32 word)
{
    u8 *const at = syc_out_row(pad.p.padded, t) + own.e;
    for (int i = 0; i < own.columns; i++)
        at[i] = (u8)(word >> (8 * i));
}

/* 1 in every byte that is zero. */
SYC_INLINE u32 zeros_of(u32 word)
{
    return ~(((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) | word) >> 7 & 0x01010101u;
}

/* Zeros of each of the four columns in the slice, a byte each. */
SYC_INLINE u32 count_slice(const struct pad &pad, const part &own)
{
    u32 sum = 0;
    if (whole_words(pad, own)) {
        const u8 *const at = syc_row(pad.p.map, own.first) + own.e;
        const int n = (int)(own.end - own.first);
#pragma unroll 8
        for (int t = 0; t < n; t++)
            sum += zeros_of(*(const u32 *)(at + t * pad.p.map.stride));
        return sum;
    }
#pragma unroll 1
    for (int64_t t = own.first; t < own.end; t++)
        sum += zeros_of(load_four(pad, own, t));
    return sum;
}

static __global__ void __launch_bounds__(THREADS) pad_count(const struct pad pad)
{
    __shared__ u32 sum[THREADS * 4];
    const part own = part_of(pad);
    syc_start_next();
    if (own.slice == 0)
        for (int i = 0; i < 4; i++)
            sum[own.place + i] = 0;
    __syncthreads();
    const u32 zeros = count_slice(pad, own);
    for (int i = 0; i < own.columns; i++)
        atomicAdd(&sum[own.place + i], zeros >> (8 * i) & 255);
    __syncthreads();
    for (int i = 0; i < own.columns && own.slice == 0; i++)
        pad.zeros[own.chunk * pad.p.n_experts + own.e + i] = sum[own.place + i];
}

/* What an expert with so many tokens lacks; past 63 bits more than there are. */
static __device__ int64_t lacks_of(const struct pad &pad, int64_t count)
{
    const int64_t over = count - syc_quotient(count, pad.alignment) * pad.p.args.alignment,
                  lacks = over > 0 ? pad.p.args.alignment - over : 0;
    return lacks > INT64_MAX - count ? INT64_MAX - count : lacks;
}

/* Stores the first fault of a block, as syc_validate does. */
static __device__ void conclude(const struct pad &pad, u64 first, const syc_gate &gate)
{
    gate.order[blockIdx.x] = first;
    if (first == SYC_NO_FAULT)
        return;
    const int64_t count = pad.count[first];
    gate.found[blockIdx.x] = {SYI_BAD_MAP_SHORT,           0, -1, (int64_t)first, count, pad.p.n_tokens,
                              count + lacks_of(pad, count)};
}

/* Sums the chunks of every column and validates; zeros becomes those of the chunks before. */
static __global__ void __launch_bounds__(FIND_COLUMNS *FIND_PARTS)
    pad_find(const struct pad pad, const syc_gate gate)
{
    __shared__ u32 sum[FIND_PARTS][FIND_COLUMNS];
    __shared__ u64 first;
    const int column = (int)threadIdx.x % FIND_COLUMNS, group = (int)threadIdx.x / FIND_COLUMNS;
    const int64_t n = pad.p.n_experts, each = (pad.n_chunks + FIND_PARTS - 1) / FIND_PARTS;
    const int64_t begin = min(pad.n_chunks, group * each), end = min(pad.n_chunks, begin + each);
    syc_start_next();
    syc_wait_for_previous();
    if (threadIdx.x == 0)
        first = SYC_NO_FAULT;
    for (int64_t tile = blockIdx.x; tile * FIND_COLUMNS < n; tile += gridDim.x) {
        const int64_t e = tile * FIND_COLUMNS + column;
        u32 own = 0, before = 0, all = 0;
        __syncthreads(); /* sum may still be read */
        if (e < n)
#pragma unroll 8
            for (int64_t q = begin; q < end; q++)
                own += __ldcg(pad.zeros + q * n + e);
        sum[group][column] = own;
        __syncthreads();
        for (int g = 0; g < FIND_PARTS; g++) {
            before += g < group ? sum[g][column] : 0;
            all += sum[g][column];
        }
        if (e >= n)
            continue;
#pragma unroll 8
        for (int64_t q = begin; q < end; q++) {
            const u32 zeros = __ldcg(pad.zeros + q * n + e);
            pad.zeros[q * n + e] = before;
            before += zeros;
        }
        if (group > 0)
            continue;
        const int64_t count = pad.p.n_tokens - (int64_t)all;
        pad.count[e] = (u32)count;
        if (lacks_of(pad, count) > (int64_t)all)
            atomicMin(&first, (u64)e);
    }
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    conclude(pad, first, gate);
}

/* The zeros of four columns of this slice that become ones. */
struct needs {
    u32 n[4];
};

/* Those of the chunk, less the zeros of its slices before. All threads of the block call it. */
static __device__ bool find_needs(const struct pad &pad, const part &own, struct needs *needs)
{
    __shared__ u32 slice[THREADS]; /* zeros of four columns */
    bool some = false;
    for (int i = 0; i < 4; i++) {
        needs->n[i] = 0;
        if (i >= own.columns)
            continue;
        const int64_t count = __ldcg(pad.count + own.e + i), lacks = lacks_of(pad, count);
        const int64_t before = __ldcg(pad.zeros + own.chunk * pad.p.n_experts + own.e + i);
        needs->n[i] = (u32)(lacks > before ? lacks - before : 0);
        some |= needs->n[i] > 0;
        if (own.chunk == 0 && own.slice == 0 && pad.p.counts.data != NULL)
            syc_store<u64>(pad.p.counts.data + (own.e + i) * 8, (u64)(count + lacks));
    }
    if (!__syncthreads_or(some))
        return false;
    slice[threadIdx.x] = count_slice(pad, own);
    __syncthreads();
    for (int before = own.place / 4; before < (int)threadIdx.x; before += pad.width)
        for (int i = 0; i < 4; i++) {
            const u32 zeros = slice[before] >> (8 * i) & 255;
            needs->n[i] -= min(needs->n[i], zeros);
        }
    return true;
}

SYC_INLINE u32 fill(u32 word, struct needs *needs)
{
    const u32 zeros = zeros_of(word);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 added = needs->n[i] > 0 ? zeros >> (8 * i) & 1 : 0;
        needs->n[i] -= added;
        word |= added << (8 * i);
    }
    return word;
}

SYC_INLINE void write_slice(const struct pad &pad, const part &own, bool some, struct needs *needs)
{
    if (!whole_words(pad, own)) {
#pragma unroll 1
        for (int64_t t = own.first; t < own.end; t++) {
            const u32 word = load_four(pad, own, t);
            store_four(pad, own, t, some ? fill(word, needs) : word);
        }
        return;
    }
    const u8 *const from = syc_row(pad.p.map, own.first) + own.e;
    u8 *const to = syc_out_row(pad.p.padded, own.first) + own.e;
    const int n = (int)(own.end - own.first);
#pragma unroll 1
    for (int t = 0; t < n; t += AHEAD) {
        u32 word[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            word[i] = t + i < n ? *(const u32 *)(from + (t + i) * pad.p.map.stride) : 0;
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (t + i < n)
                *(u32 *)(to + (t + i) * pad.p.padded.stride) = some ? fill(word[i], needs) : word[i];
    }
}

static __global__ void __launch_bounds__(THREADS) pad_write(const struct pad pad, const syc_gate gate)
{
    const part own = part_of(pad);
    struct needs needs;
    if (!syc_may_write(gate))
        return;
    const bool some = find_needs(pad, own, &needs);
    if (some || pad.p.padded.data != pad.p.map.data)
        write_slice(pad, own, some, &needs);
}

/* One chunk of few columns: all of it by one block. */
static __global__ void __launch_bounds__(FEW_THREADS)
    pad_few(const struct pad pad, const __grid_constant__ syc_gate gate)
{
    __shared__ u32 slice[FEW_THREADS]; /* zeros of four columns */
    __shared__ u64 first;
    const part own = part_of(pad);
    struct needs needs;
    bool wrong = threadIdx.x == 0 && __ldcg(gate.closed) != 0;
    if (threadIdx.x == 0)
        first = SYC_NO_FAULT;
    slice[threadIdx.x] = count_slice(pad, own);
    __syncthreads();
    u32 before[2] = {0, 0}, all[2] = {0, 0}; /* zeros of columns 0 and 2, 1 and 3, in halves of a word */
    for (int q = 0; q < pad.slices; q++) {
        const u32 zeros = slice[q * pad.width + own.place / 4], even = zeros & 0x00ff00ffu,
                  odd = zeros >> 8 & 0x00ff00ffu;
        before[0] += q < own.slice ? even : 0;
        before[1] += q < own.slice ? odd : 0;
        all[0] += even;
        all[1] += odd;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int64_t zeros = all[i % 2] >> (8 * (i & 2)) & 0xffffu,
                      earlier = before[i % 2] >> (8 * (i & 2)) & 0xffffu;
        const int64_t count = pad.p.n_tokens - zeros, lacks = lacks_of(pad, count);
        needs.n[i] = (u32)(lacks > earlier ? lacks - earlier : 0);
        if (i >= own.columns || own.slice > 0)
            continue;
        pad.count[own.e + i] = (u32)count;
        if (lacks > zeros) {
            atomicMin(&first, (u64)(own.e + i));
            wrong = true;
        }
    }
    if (__syncthreads_or(wrong)) {
        if (threadIdx.x == 0)
            conclude(pad, first, gate);
        if (threadIdx.x == 0)
            syc_report_rarely(gate);
        return;
    }
    for (int i = 0; i < own.columns && own.slice == 0 && pad.p.counts.data != NULL; i++) {
        const int64_t count = pad.count[own.e + i];
        syc_store<u64>(pad.p.counts.data + (own.e + i) * 8, (u64)(count + lacks_of(pad, count)));
    }
    write_slice(pad, own, true, &needs);
}

static struct pad lay_out(const syc_device *device, const syi_moe_pad_map_plan *p, syc_scratch *scratch)
{
    const u64 bits = (u64)(uintptr_t)p->map.data | (u64)(uintptr_t)p->padded.data | (u64)p->map.stride |
                     (u64)p->padded.stride;
    struct pad pad = {
        *p, syc_split_by(p->args.alignment, p->n_tokens), bits % 4 == 0, 1, THREADS, 1, 1, 1, NULL, NULL};
    while (pad.width < 64 && pad.width * 4 < p->n_experts)
        pad.width *= 2;
    pad.slices = THREADS / pad.width;
    pad.tiles = (p->n_experts + 4 * pad.width - 1) / (4 * pad.width);
    const int64_t blocks = grid_policy::INDEX * (int64_t)(device->processors > 0 ? device->processors : 1);
    const int64_t even = p->n_tokens / pad.slices * pad.tiles / blocks;
    pad.slice = even < AHEAD ? (int64_t)AHEAD : even > MOST_IN_BYTE ? (int64_t)MOST_IN_BYTE : even;
    pad.n_chunks = p->n_tokens / (pad.slice * pad.slices) + 1;
    pad.zeros = scratch->take<u32>(pad.n_chunks * p->n_experts);
    pad.count = scratch->take<u32>(p->n_experts);
    return pad;
}

SYC_WORKSPACE(moe_pad_map, moe_pad_map)

void syc_moe_pad_map(syc_call *call, const syi_plan *plan)
{
    syc_scratch scratch = {call->scratch, 0};
    const struct pad pad = lay_out(call->device, &plan->moe_pad_map, &scratch);
    const int64_t tiles = (pad.p.n_experts + FIND_COLUMNS - 1) / FIND_COLUMNS;
    if (tiles == 0)
        return;
    struct pad few = pad;
    few.slices = FEW_SLICES;
    few.slice = (pad.p.n_tokens + few.slices - 1) / few.slices;
    if (syc_takes(call, "one_block", pad.tiles == 1 && few.slice <= FEW_TOKENS ? NULL : "the map is large")) {
        call->gate.n = 1;
        syc_launch(&call->queue, pad_few, SYC_AFTER, 1, pad.width * FEW_SLICES, 0, few, call->gate);
        return;
    }
    syc_takes(call, "many_blocks");
    call->gate.n = (int)(tiles < SYC_MAX_CHECK_BLOCKS ? tiles : SYC_MAX_CHECK_BLOCKS);
    syc_launch(&call->queue, pad_count, SYC_AFTER, pad.n_chunks * pad.tiles, THREADS, 0, pad);
    syc_launch(&call->queue, pad_find, SYC_EARLY, call->gate.n, FIND_COLUMNS * FIND_PARTS, 0, pad,
               call->gate);
    syc_launch(&call->queue, pad_write, SYC_EARLY, pad.n_chunks * pad.tiles, THREADS, 0, pad, call->gate);
}
