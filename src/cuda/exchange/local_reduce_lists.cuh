/*
 * Kernels of local_reduce that validate and list the rows of every sum.
 */
#pragma once

#include "cuda/exchange/local_reduce.cuh"
#include "cuda/prim/rank.cuh"
#include "cuda/prim/scan.cuh"

/* ---- Rows of experts ---- */

/*
 * Keys (see rank.cuh): the live slots of a token, then the token itself, which has key E if there is one.
 * Places on a device ascend with the numbers of its experts, so experts are the keys. The first pass finds
 * and stores them.
 */
template <bool small> static __device__ int find_key(const reduce &job, int64_t i)
{
    const int64_t n = job.quotient<small>(i, job.each), k = i - n * job.each.d, t = job.token<small>(n);
    if (k < job.p.n_slots)
        return job.live(t, k);
    return job.hit(t) ? (int)job.p.n_experts : -1;
}

template <bool stored> struct reduce_keys {
    enum { STORED }; /* see syc_keys_stored */
    int64_t n;
    int n_keys;
    reduce job;

    __device__ int key(int64_t i) const
    {
        if (stored)
            return (int)__ldcg(job.key + i);
        const int found = find_key<true>(job, i);
        job.key[i] = (u32)found;
        return found;
    }
    __device__ bool wrong(int64_t) const { return false; } /* all is validated later */
    __device__ void explain(int64_t, syi_found *) const {}
};

/* The first pass by itself. */
static __global__ void __launch_bounds__(256) reduce_live(const reduce job, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < n; i += (int64_t)gridDim.x * 256)
        job.key[i] = (u32)find_key<false>(job, i);
}

/* Out: the ranks. */
struct reduce_ranks {
    u32 *rank, *first, *count;

    __device__ void put(int64_t i, int, int64_t row) const { rank[i] = (u32)row; }
    __device__ void skip(int64_t i) const { rank[i] = NO_ROW; }
    __device__ void begin(int key, u32 at, u32 n) const
    {
        first[key] = at;
        count[key] = n;
    }
    __device__ void end(u32) const {}
};

/* ---- Validation ---- */

/* Items in the order of their faults: entries of the mapping, its copies, its experts, choices, rows. */
struct reduce_check {
    int64_t n_entries, n_copied, n_choices;
    syc_split devices, slots;
    reduce job;

    __device__ bool bad_entry(int64_t i, syi_found *f) const
    {
        const int64_t e = syc_quotient(i, devices), d = i - e * devices.d;
        const u32 value = job.mapping(e, d);
        *f = {SYI_BAD_MAPPING_ENTRY, 0, e, d, value, 1, 0};
        return value > 1;
    }
    /* A row of a further copy: its first entry that is neither 0 nor 1, or else the first that differs. */
    __device__ bool bad_copy(int64_t i, syi_found *f) const
    {
        const int64_t row = job.p.n_experts + i, copy = row / job.p.n_experts,
                      e = row - copy * job.p.n_experts;
        int64_t differs = -1;
        for (int64_t d = 0; d < job.p.n_devices; d++) {
            const u32 value = job.mapping(row, d);
            if (value > 1) {
                *f = {SYI_BAD_MAPPING_ENTRY, 0, e, d, value, 1, 0};
                return true;
            }
            differs = differs < 0 && value != job.mapping(e, d) ? d : differs;
        }
        if (differs < 0)
            return false;
        *f = {SYI_BAD_MAPPING_COPY, 0, e, differs, job.mapping(row, differs), job.mapping(e, differs), copy};
        return true;
    }
    __device__ bool bad_choice(int64_t i, syi_found *f) const
    {
        const int64_t t = syc_quotient(i, slots), k = i - t * slots.d, e = job.choice(t, k);
        *f = {job.p.metadata.type == SY_TYPE_U16 ? SYI_BAD_CHOICE_U16 : SYI_BAD_CHOICE,
              job.p.metadata_field,
              t,
              k,
              e,
              job.p.n_experts,
              0};
        return e < -1 || e >= job.p.n_experts;
    }
    __device__ bool fault(int64_t i, syi_found *f) const
    {
        if (i < n_entries)
            return bad_entry(i, f);
        if ((i -= n_entries) < n_copied)
            return bad_copy(i, f);
        i -= n_copied + 1; /* the experts are validated with the rows */
        return i >= 0 && bad_choice(i, f);
    }
    __device__ int64_t n() const { return n_entries + n_copied + 1 + n_choices; }

    /* First rows of all experts, by the whole block; returns their sum. */
    __device__ int64_t find_blocks() const
    {
        __shared__ u64 part[SYC_BLOCK_WARPS];
        u64 all = 0;
        for (int64_t begin = 0; begin < job.p.n_experts; begin += SYC_SCAN_THREADS) {
            const int64_t e = begin + threadIdx.x;
            const u64 before = syc_scan_up_to(e < job.p.n_experts ? job.rows_of(e) : 0, ~0ull, part, &all);
            if (e < job.p.n_experts)
                job.block[e] = (int64_t)before;
        }
        return (int64_t)all;
    }
    /* The first fault of this block's items, which are all of those in turn; `first` is shared memory. */
    __device__ __forceinline__ void find_fault(u64 *first) const
    {
        syi_found found;
#pragma unroll 1
        for (int64_t i = (int64_t)blockIdx.x * SYC_SCAN_THREADS + threadIdx.x; i < n();
             i += (int64_t)gridDim.x * SYC_SCAN_THREADS)
            if (fault(i, &found)) {
                atomicMin(first, (u64)i);
                break;
            }
    }
    /* Thread 0 stores the fault of its block. Block 0 has the numbers of rows. */
    __device__ __forceinline__ void report(u64 first, int64_t rows, int64_t out_rows,
                                           const syc_gate &gate) const
    {
        const u64 of_rows = blockIdx.x == 0 ? bad_rows(rows, out_rows, &gate.found[0]) : SYC_NO_FAULT;
        gate.order[blockIdx.x] = min(first, of_rows);
        if (first < of_rows)
            fault((int64_t)first, &gate.found[blockIdx.x]);
    }
    /* The first expert with more than expert_rows rows. */
    __device__ bool bad_expert(syi_found *f) const
    {
        const syi_local_reduce_plan &p = job.p;
        for (int64_t e = 0, place = -1; e < p.n_experts; e++) {
            if (!job.hosted(e))
                continue;
            u32 rows = job.chunks == NULL ? __ldcg(job.count + e) : 0;
            place++;
            for (int64_t c = 0; job.chunks != NULL && c * CHUNK < p.n_tokens; c++)
                rows += __ldcg(job.chunks + place * MOST_CHUNKS + c);
            if (rows > (u64)p.args.expert_rows) {
                *f = {SYI_BAD_EXPERT_ROWS, 0, e, -1, p.args.expert_rows, rows, 0};
                return true;
            }
        }
        return false;
    }
    /* How many rows there are against how many are needed; returns the order of the fault. */
    __device__ u64 bad_rows(int64_t rows, int64_t out_rows, syi_found *f) const
    {
        const syi_local_reduce_plan &p = job.p;
        if (p.args.layout == SY_LAYOUT_PADDED) {
            int64_t n = 0;
            for (int64_t e = 0; e < p.n_experts && p.n_tokens == 0; e++)
                n += job.hosted(e);
            n = p.n_tokens > 0 ? rows / p.n_tokens : n;
            *f = {SYI_BAD_INPUT_EXPERTS, 0, -1, -1, p.in_rows, n, p.device};
            return p.in_rows != n ? (u64)(n_entries + n_copied) : SYC_NO_FAULT;
        }
        if (p.args.expert_rows > 0 && (u64)rows >= OVERFULL && bad_expert(f))
            return (u64)n();
        const bool in = rows > p.in_rows;
        *f = {in ? SYI_BAD_INPUT_ROWS : SYI_BAD_OUTPUT_ROWS,
              0,
              -1,
              -1,
              in ? p.in_rows : p.out_rows,
              in ? rows : out_rows,
              0};
        return in || out_rows > p.out_rows ? (u64)n() : SYC_NO_FAULT;
    }
};

/* Out of line, since kernels that run once are as fast as their code is fetched. */
SYC_COLD int64_t choice_anywhere(const reduce &job, int64_t t, int64_t k)
{
    return job.choice(t, k);
}
SYC_INLINE int64_t choice_of(const reduce &job, int64_t t, int64_t k)
{
    int64_t e[1];
    if (!job.aligned)
        return choice_anywhere(job, t, k);
    job.load_choices<1, true>(t, k, k + 1, e);
    return e[0];
}
SYC_COLD bool is_fault(const reduce_check &check, int64_t i, syi_found *f)
{
    return check.fault(i, f);
}
SYC_COLD u64 is_bad_rows(const reduce_check &check, int64_t rows, int64_t out_rows, syi_found *f)
{
    return check.bad_rows(rows, out_rows, f);
}

/* ---- Lists of rows: few tokens and experts ---- */

/* What a block knows of the experts of this device, by their places; the last one is that of tokens which
   have any. Shared memory. */
struct list_tables {
    u32 *start;  /* [E+1] rows; then the first of them */
    u32 *before; /* [E+1] rows of tokens before the chunk */
    u32 *chunk;  /* [E+1] tokens of the chunk, as bits */
    u32 *hosts;  /* [E] bits: an expert is on this device */

    static size_t bytes(int64_t n_experts)
    {
        return ((size_t)n_experts + 1) * 3 * sizeof(u32) + ((size_t)n_experts + 31) / 32 * sizeof(u32);
    }
    __device__ list_tables(u32 *words, int n_experts)
        : start(words), before(words + n_experts + 1), chunk(words + 2 * (n_experts + 1)),
          hosts(words + 3 * (n_experts + 1))
    {
    }
    __device__ bool hosted(int e) const { return e >= 0 && (hosts[e / 32] >> (e % 32) & 1) != 0; }
    /* How many experts before e are on this device: its place. */
    __device__ __forceinline__ int place(int e) const
    {
        int n = e % 32 == 0 ? 0 : __popc(hosts[e / 32] & ((1u << e % 32) - 1u));
#pragma unroll 4
        for (int w = 0; w < e / 32; w++)
            n += __popc(hosts[w]);
        return n;
    }
    /* The place of token `first + i` among those of a key. */
    __device__ u32 rank(int key, int i) const
    {
        return before[key] + (u32)__popc(chunk[key] & ((1u << i) - 1u));
    }
    /* Clears all, then finds the hosts; by the second half of the warps first, since the first half loads
       choices meanwhile. */
    __device__ __forceinline__ void begin(const reduce &job) const
    {
        const int n_experts = (int)job.p.n_experts,
                  turned = ((int)threadIdx.x + LIST_THREADS / 2) % LIST_THREADS;
#pragma unroll 1
        for (int e = (int)threadIdx.x; e < 3 * (n_experts + 1); e += LIST_THREADS)
            start[e] = 0;
#pragma unroll 1
        for (int e = turned; e - syc_lane() < n_experts; e += LIST_THREADS) {
            const u32 bits = __ballot_sync(SYC_ALL_LANES, e < n_experts && job.mapping(e, job.p.device) == 1);
            if (syc_lane() == 0)
                hosts[e / 32] = bits;
        }
    }
};

/* The slots of a chunk: experts as far as they exist, weights; which slots of a token are live, as bits.
   Shared memory. */
struct chunk_slots {
    int expert[CHUNK * MOST_SLOTS];
    float weight[CHUNK * MOST_SLOTS];
    u16 place[CHUNK * MOST_SLOTS]; /* of live ones */
    u32 live[CHUNK];

    /* Calls each(i, n, k) for slot k of the token with number n. */
    template <class Each> SYC_INLINE void all(const reduce &job, int64_t first, const Each &each)
    {
        const int slots = (int)job.p.n_slots;
#pragma unroll 1
        for (int i = (int)threadIdx.x; i < CHUNK * slots; i += LIST_THREADS) {
            const int token = (int)syc_divide((u32)i, job.slots);
            each(i, first + token, i - token * slots);
        }
    }
    /* `wrong(t, k)` is called for choices that are no experts. */
    template <class Wrong>
    __device__ __forceinline__ void load(const reduce &job, int64_t first, bool weighs, const Wrong &wrong)
    {
        if (threadIdx.x < CHUNK)
            live[threadIdx.x] = 0;
        all(job, first, [&](int i, int64_t n, int k) {
            expert[i] = -1;
            if (n >= job.p.n_tokens)
                return;
            const int64_t t = job.token<true>(n), e = choice_of(job, t, k);
            if (weighs)
                weight[i] = job.p.weights.data == NULL
                                ? 1.0f
                                : syc_load_float(syc_row(job.p.weights, t) +
                                                     k * (job.p.weights.type == SY_TYPE_F32 ? 4 : 2),
                                                 job.p.weights.type);
            if (e < -1 || e >= job.p.n_experts)
                wrong(t, k);
            else
                expert[i] = (int)e;
        });
    }
    /* The expert is on this device, and no earlier slot of the token names it. */
    __device__ __forceinline__ bool is_live(const struct list_tables &at, int i, int k) const
    {
        const int e = expert[i];
        bool found = at.hosted(e);
#pragma unroll 1
        for (int j = i - k; j < i && found; j++)
            found = expert[j] != e;
        return found;
    }
};

/* Validates all but the numbers of rows, and counts the live slots of a chunk. */
static __global__ void __launch_bounds__(LIST_THREADS)
    reduce_count(const __grid_constant__ reduce_check check, const __grid_constant__ syc_gate gate)
{
    SYC_DYNAMIC_SHARED(u32, words);
    __shared__ chunk_slots chunk;
    __shared__ u64 fault;
    __shared__ u32 hits;
    const reduce &job = check.job;
    const int n_experts = (int)job.p.n_experts;
    const struct list_tables at(words, n_experts);
    const int64_t first = (int64_t)blockIdx.x * CHUNK;
    syi_found found;
    syc_start_next();
    if (threadIdx.x == 0) {
        fault = SYC_NO_FAULT;
        hits = 0;
    }
    __syncthreads();
    if (job.chunks != NULL) {
        chunk.load(job, first, false, [&](int64_t t, int k) {
            atomicMin(&fault, (u64)(check.n_entries + check.n_copied + 1 + t * job.p.n_slots + k));
        });
        at.begin(job);
        __syncthreads();
        chunk_slots::all(job, first, [&](int i, int64_t n, int k) {
            if (!chunk.is_live(at, i, k))
                return;
            atomicAdd(&at.start[at.place(chunk.expert[i])], 1u);
            atomicOr(&hits, 1u << (int)(n - first));
        });
#pragma unroll 1
        for (int64_t i = blockIdx.x + (int64_t)gridDim.x * (LIST_THREADS - 1 - (int)threadIdx.x);
             i < check.n_entries + check.n_copied; i += (int64_t)gridDim.x * LIST_THREADS)
            if (is_fault(check, i, &found))
                atomicMin(&fault, (u64)i);
    } else {
#pragma unroll 1
        for (int64_t i = (int64_t)blockIdx.x * LIST_THREADS + threadIdx.x; i < check.n();
             i += (int64_t)gridDim.x * LIST_THREADS)
            if (is_fault(check, i, &found)) {
                atomicMin(&fault, (u64)i);
                break;
            }
    }
    __syncthreads();
    const int n_local = job.chunks != NULL ? at.place(n_experts) : -1;
#pragma unroll 1
    for (int j = (int)threadIdx.x; j <= n_local; j += LIST_THREADS)
        job.chunks[(int64_t)j * MOST_CHUNKS + blockIdx.x] = j == n_local ? (u32)__popc(hits) : at.start[j];
    if (threadIdx.x == 0) {
        gate.order[blockIdx.x] = fault;
        if (fault != SYC_NO_FAULT)
            is_fault(check, (int64_t)fault, &gate.found[blockIdx.x]);
    }
}

/* Adds up what chunks have of the experts on this device, eight lanes for each. */
SYC_INLINE void add_chunks(const reduce &job, const struct list_tables &at, int n_local, int chunks)
{
    const int lane = syc_lane() % 8;
#pragma unroll 1
    for (int begin = 0; begin <= n_local; begin += LIST_THREADS / 8) { /* the same turns for all threads */
        const int j = begin + (int)threadIdx.x / 8;
        u32 all = 0, low = 0;
#pragma unroll 4
        for (int first = lane * 4; first < chunks && j <= n_local; first += 32) {
            const uint4 n = __ldcg((const uint4 *)(job.chunks + (int64_t)j * MOST_CHUNKS + first));
            const u32 each[4] = {n.x, n.y, n.z, n.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                all += first + i < chunks ? each[i] : 0;
                low += first + i < (int)blockIdx.x ? each[i] : 0;
            }
        }
        __syncwarp();
#pragma unroll
        for (int d = 1; d < 8; d *= 2) {
            all += __shfl_xor_sync(SYC_ALL_LANES, all, d);
            low += __shfl_xor_sync(SYC_ALL_LANES, low, d);
        }
        if (j <= n_local && lane == 0) {
            at.start[j] = all;
            at.before[j] = low;
        }
    }
}

/* Waits for the counts and finds where the rows of experts begin, by the whole block; returns to the first
   warp how many there are. */
SYC_INLINE u64 find_starts(const reduce &job, const struct list_tables &at, int n_local, int chunks)
{
    const bool padded = job.p.args.layout == SY_LAYOUT_PADDED;
    u64 rows = 0;
    syc_wait_for_previous();
    if (!padded)
        add_chunks(job, at, n_local, chunks);
    __syncthreads();
#pragma unroll 1
    for (int begin = 0; begin < n_local && syc_warp() == 0; begin += 32) {
        const int j = begin + syc_lane();
        const u64 own = j >= n_local ? 0
                        : padded     ? (u64)job.p.n_tokens
                                     : job.padded(at.start[j]),
                  up_to = syc_warp_prefix(own);
        if (j < n_local)
            at.start[j] = (u32)(rows + up_to - own);
        rows += __shfl_sync(SYC_ALL_LANES, up_to, 31);
    }
    return rows;
}

/* Lists the rows of the sums of this block's tokens. Block 0 validates how many there are. */
static __global__ void __launch_bounds__(LIST_THREADS)
    reduce_list(const __grid_constant__ reduce_check check, int chunks, const __grid_constant__ syc_gate gate)
{
    SYC_DYNAMIC_SHARED(u32, words);
    __shared__ chunk_slots chunk;
    const reduce &job = check.job;
    const bool padded = job.p.args.layout == SY_LAYOUT_PADDED;
    const struct list_tables at(words, (int)job.p.n_experts);
    u64 rows = 0;
    int n_local = 0;
    int64_t first = (int64_t)blockIdx.x * CHUNK;
    syc_start_next();
#pragma unroll 1
    for (bool begins = true;; begins = false) {
        chunk.load(job, first, true, [](int64_t, int) {});
        if (begins)
            at.begin(job);
        __syncthreads();
        n_local = at.place((int)job.p.n_experts);
        chunk_slots::all(job, first, [&](int i, int64_t n, int k) {
            if (!chunk.is_live(at, i, k))
                return;
            const int place = at.place(chunk.expert[i]);
            chunk.place[i] = (u16)place;
            atomicOr(&chunk.live[n - first], 1u << k);
            atomicOr(&at.chunk[place], 1u << (int)(n - first));
            atomicOr(&at.chunk[n_local], 1u << (int)(n - first));
        });
        if (begins)
            rows = find_starts(job, at, n_local, chunks);
        __syncthreads();
        chunk_slots::all(job, first, [&](int i, int64_t n, int k) {
            const int own = (int)(n - first), place = chunk.place[i];
            const u32 live = chunk.live[own];
            const int64_t sum = padded ? n : (int64_t)at.rank(n_local, own);
            if (k == 0 && n < job.p.n_tokens && (padded || live != 0))
                job.n[sum] = (u32)__popc(live);
            if ((live >> k & 1) == 0)
                return;
            job.entry[sum * job.apart + __popc(live & ((1u << k) - 1u))] = {
                at.start[place] + (padded ? (u32)n : at.rank(place, own)), chunk.weight[i]};
        });
        first += (int64_t)gridDim.x * CHUNK;
        if (first >= job.p.n_tokens) /* of EXPERT all chunks are of one block */
            break;
        __syncthreads();
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *job.taken = 0;
        if (!padded)
            *job.n_sums = at.start[n_local];
        gate.order[gate.n - 1] =
            is_bad_rows(check, (int64_t)rows, (int64_t)at.start[n_local], &gate.found[gate.n - 1]);
    }
}

/* ---- Lists of rows: any number ---- */

/* After the ranks. Block 0 finds the first rows of experts. */
static __global__ void __launch_bounds__(SYC_SCAN_THREADS)
    reduce_validate(const __grid_constant__ reduce_check check, const __grid_constant__ syc_gate gate)
{
    __shared__ u64 first;
    const reduce &job = check.job;
    int64_t n_rows = 0;
    syc_start_next();
    syc_wait_for_previous();
    if (threadIdx.x == 0)
        first = SYC_NO_FAULT;
    __syncthreads();
    if (blockIdx.x == 0)
        n_rows = check.find_blocks();
    check.find_fault(&first);
    __syncthreads();
    if (threadIdx.x == 0)
        check.report(first, n_rows, job.count != NULL ? (int64_t)__ldcg(job.count + job.p.n_experts) : 0,
                     gate);
}

/* A warp per token. Ranks and first rows may be anything where there are faults; then the lists are not
   used. */
static __global__ void __launch_bounds__(256) reduce_list_ranked(const __grid_constant__ reduce job)
{
    const int64_t n = (int64_t)blockIdx.x * 8 + syc_warp();
    const bool padded = job.p.args.layout == SY_LAYOUT_PADDED;
    syc_start_next();
    syc_wait_for_previous();
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *job.taken = 0;
        if (!padded)
            *job.n_sums = __ldcg(job.count + job.p.n_experts);
    }
    if (n >= job.p.n_tokens)
        return;
    const int64_t t = job.token(n);
    const u32 rank = padded ? NO_ROW : __ldcg(job.rank + n * job.each.d + job.p.n_slots);
    if (!padded && rank == NO_ROW)
        return;
    job.list_rows(t, padded ? n : (int64_t)(rank - __ldcg(job.first + job.p.n_experts)), [&](int64_t k) {
        const u32 e = padded ? (u32)job.live(t, k) : __ldcg(job.key + n * job.each.d + k);
        if (e == NO_ROW)
            return NO_ROW;
        return (u32)__ldcg(job.block + e) +
               (padded ? (u32)n : __ldcg(job.rank + n * job.each.d + k) - __ldcg(job.first + e));
    });
}
