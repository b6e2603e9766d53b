/*
 * local_reduce on a device. A first kernel validates and, in the layout of experts, counts the live slots of chunks of tokens; a
 * second one lists the rows of every sum, with their weights, by the counts of the chunks before. For many tokens or experts
 * slots are ranked by kernels of rank.cuh instead. Then the rows are added up, slots ascending, by threads that load them or from a ring
 * of bulk loads.
 */
#include "cuda/backend.cuh"
#include "cuda/bulk.cuh"
#include "cuda/coded_sums.cuh"
#include "cuda/local_reduce_served.cuh"
#include "cuda/moe_sums.cuh"
#include "cuda/scan.cuh"

#define NO_ROW (~0u)

enum { CHUNK = 32, MOST_CHUNKS = SYC_MAX_CHECK_BLOCKS - 4, MOST_SLOTS = 32, MOST_EXPERTS = 2048 }; /* tokens of a block; blocks, of EXPERT: a multiple of 4 */
static const u64 OVERFULL = 1ull << 40; /* in a sum of rows, for each expert that has too many: rows are numbers of 31 bits */

/* A row of a sum. */
struct entry {
    u32 row;
    float weight;
};

struct reduce {
    struct syi_local_reduce_plan p;
    struct syc_split interleave, per_position; /* tokens */
    struct syc_split align, each; /* rows of an expert; slots and one */
    struct syc_divisor slots;     /* for few */
    bool aligned; /* choices and the mapping, to their numbers */
    /* Sums, numbered by the rows of the output. */
    u32 *n_sums;   /* EXPERT: one word, how many there are */
    u64 *taken;    /* one word: parts of sums that blocks took beyond their first two */
    u32 *n;        /* [T] how many rows of the input a sum has */
    struct entry *entry; /* [T,apart] which */
    int64_t apart;       /* K, rounded up to pairs */
    u32 *chunks;   /* EXPERT: [E+1][MOST_CHUNKS] live slots of the experts on this device, one after the other, and tokens that have any */
    /* Only where kernels of rank.cuh are needed. */
    int64_t *block; /* [E] first row of an expert of this device */
    u32 *key;       /* [T,K+1] in order of position: experts of live slots, NO_ROW: none; then E if there is one */
    u32 *rank;          /* EXPERT: [T,K+1] with the keys */
    u32 *first, *count; /* EXPERT: [E+1] ranks of an expert; of the tokens that have rows */

    /* A number, of any alignment or, as `aligned` says, without a branch: then the loads of several go together. */
    template <typename V, bool ALIGNED> static __device__ __forceinline__ V number(const u8 *at)
    {
        return ALIGNED ? *(const V *)at : syc_load_here<V>(at);
    }
    /* Experts of slots from k on, the last of all again past the end; -1: none; as large as they are where they are wrong. */
    template <int N, bool ALIGNED> __device__ __forceinline__ void load_choices(int64_t t, int64_t k, int64_t end, int64_t (&e)[N]) const
    {
        const u8 *const row = syc_row(p.metadata, t);
        if (p.index_type == SY_TYPE_I32) {
#pragma unroll
            for (int u = 0; u < N; u++)
                e[u] = (int32_t)number<u32, ALIGNED>(row + 4 * min(k + u, end - 1));
        } else if (p.index_type == SY_TYPE_I64) {
#pragma unroll
            for (int u = 0; u < N; u++)
                e[u] = (int64_t)number<u64, ALIGNED>(row + 8 * min(k + u, end - 1));
        } else {
#pragma unroll
            for (int u = 0; u < N; u++)
                e[u] = number<u16, ALIGNED>(row + 2 * min(k + u, end - 1));
#pragma unroll
            for (int u = 0; u < N; u++)
                e[u] = e[u] == 0xffff ? -1 : e[u];
        }
    }
    __device__ int64_t choice(int64_t t, int64_t k) const
    {
        int64_t e[1];
        load_choices<1, false>(t, k, k + 1, e);
        return e[0];
    }
    __device__ u32 mapping(int64_t row, int64_t d) const { return syc_load_here<u16>(syc_row(p.mapping, row) + 2 * d); }
    __device__ bool hosted(int64_t e) const { return e >= 0 && e < p.n_experts && mapping(e, p.device) == 1; }

    /* The expert of a live slot: it is on this device, and no earlier slot names it. Else -1. */
    __device__ int live(int64_t t, int64_t k) const
    {
        const int64_t e = choice(t, k);
        return hosted(e) && !named_before(t, k, (int)e) ? (int)e : -1;
    }
    /* Calls each(e) for N slots of a token at a time, below `end`; the last perhaps several times. */
    template <bool ALIGNED, class Each> __device__ __forceinline__ void for_choices(int64_t t, int64_t end, const Each &each) const
    {
        int64_t e[4];
#pragma unroll 1
        for (int64_t k = 0; k < end; k += 4) {
            load_choices<4, ALIGNED>(t, k, end, e);
            each(e);
        }
    }
    template <bool ALIGNED> __device__ __forceinline__ bool names(int64_t t, int64_t k, int64_t expert) const
    {
        bool found = false;
        for_choices<ALIGNED>(t, k, [&](const int64_t (&e)[4]) { found |= e[0] == expert || e[1] == expert || e[2] == expert || e[3] == expert; });
        return found;
    }
    __device__ bool named_before(int64_t t, int64_t k, int e) const { return aligned ? names<true>(t, k, e) : names<false>(t, k, e); }
    template <bool ALIGNED> __device__ __forceinline__ bool hits(int64_t t) const
    {
        bool found = false;
        for_choices<ALIGNED>(t, p.n_experts > 0 ? p.n_slots : 0, [&](const int64_t (&e)[4]) {
            u16 here[4];
#pragma unroll
            for (int u = 0; u < 4; u++)
                here[u] = number<u16, ALIGNED>(syc_row(p.mapping, e[u] >= 0 && e[u] < p.n_experts ? e[u] : 0) + 2 * p.device);
#pragma unroll
            for (int u = 0; u < 4; u++)
                found |= here[u] == 1 && e[u] >= 0 && e[u] < p.n_experts;
        });
        return found;
    }
    __device__ bool hit(int64_t t) const { return aligned ? hits<true>(t) : hits<false>(t); }
    /* `small`: the slots of all tokens are less than 2^31. */
    template <bool small> static __device__ __forceinline__ int64_t quotient(int64_t i, const struct syc_split &by)
    {
        return small ? (int64_t)syc_divide((u32)i, by.small) : syc_quotient(i, by);
    }
    /* Token i in order of position. */
    template <bool small = false> __device__ int64_t token(int64_t i) const
    {
        if (p.interleave == 0)
            return i;
        const int64_t position = quotient<small>(i, per_position), n = i - position * per_position.d;
        const int64_t run = quotient<small>(n, interleave);
        return run * (p.n_positions * p.interleave) + position * p.interleave + n - run * p.interleave;
    }
    /* Of an expert here, with n rows that are tokens; OVERFULL more where expert_rows does not permit them. */
    __device__ u64 padded(u32 n) const
    {
        if (p.expert_rows > 0)
            return (u64)p.expert_rows + (n > (u64)p.expert_rows ? OVERFULL : 0);
        return (u64)(syc_quotient((int64_t)n + align.d - 1, align) * align.d);
    }
    /* Rows of an expert in the input, with padding. */
    __device__ u64 rows_of(int64_t e) const
    {
        if ((p.layout == SY_LAYOUT_PADDED || p.expert_rows > 0) && !hosted(e))
            return 0;
        return p.layout == SY_LAYOUT_PADDED ? (u64)p.n_tokens : padded(__ldcg(count + e));
    }
    __device__ __forceinline__ int expert(int64_t e) const { return e >= 0 && e < p.n_experts ? (int)e : -1; }

    /* Stores the rows of a sum, by a warp. `row_at(k)`: that of slot k of token t, NO_ROW: none. */
    template <class Row> __device__ __forceinline__ void list_rows(int64_t t, int64_t sum, const Row &row_at) const
    {
        u32 found = 0;
#pragma unroll 1
        for (int64_t first_slot = 0; first_slot < p.n_slots; first_slot += 32) {
            const int64_t k = first_slot + syc_lane();
            const u32 at = k < p.n_slots ? row_at(k) : NO_ROW, live = __ballot_sync(SYC_ALL_LANES, at != NO_ROW);
            if (at != NO_ROW) {
                const u8 *const w = syc_row(p.weights, t) + k * (p.weight_type == SY_TYPE_F32 ? 4 : 2);
                entry[sum * apart + found + __popc(live & syc_lanes_below())] = {at, p.weights.data == NULL ? 1.0f : syc_load_float(w, p.weight_type)};
            }
            found += (u32)__popc(live);
        }
        if (syc_lane() == 0)
            n[sum] = found;
    }
};

/* ---- Rows of experts ---------------------------------------------------------------------------------------------- */

/*
 * Keys (see rank.cuh): the live slots of a token, then the token itself, which has key E if there is one. Places on a device
 * ascend with the numbers of its experts, so experts are the keys. The first pass finds and stores them.
 */
template <bool small> static __device__ int find_key(const struct reduce &job, int64_t i)
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
    struct reduce job;

    __device__ int key(int64_t i) const
    {
        if (stored)
            return (int)__ldcg(job.key + i);
        const int found = find_key<true>(job, i);
        job.key[i] = (u32)found;
        return found;
    }
    __device__ bool wrong(int64_t) const { return false; } /* all is validated later */
    __device__ void explain(int64_t, struct syi_found *) const {}
};

/* The first pass by itself. */
static __global__ void __launch_bounds__(256) reduce_live(const struct reduce job, int64_t n)
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

/* ---- Validation --------------------------------------------------------------------------------------------------- */

/* Items in the order of their faults: entries of the mapping, its copies, its experts, choices, rows. */
struct reduce_check {
    int64_t n_entries, n_copied, n_choices;
    struct syc_split devices, slots;
    struct reduce job;

    __device__ bool bad_entry(int64_t i, struct syi_found *f) const
    {
        const int64_t e = syc_quotient(i, devices), d = i - e * devices.d;
        const u32 value = job.mapping(e, d);
        *f = {SYI_BAD_MAPPING_ENTRY, 0, e, d, value, 1, 0};
        return value > 1;
    }
    /* A row of a further copy: its first entry that is neither 0 nor 1, or else the first that differs. */
    __device__ bool bad_copy(int64_t i, struct syi_found *f) const
    {
        const int64_t row = job.p.n_experts + i, copy = row / job.p.n_experts, e = row - copy * job.p.n_experts;
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
    __device__ bool bad_choice(int64_t i, struct syi_found *f) const
    {
        const int64_t t = syc_quotient(i, slots), k = i - t * slots.d, e = job.choice(t, k);
        *f = {job.p.index_type == SY_TYPE_U16 ? SYI_BAD_CHOICE_U16 : SYI_BAD_CHOICE, job.p.metadata_field, t, k, e, job.p.n_experts, 0};
        return e < -1 || e >= job.p.n_experts;
    }
    __device__ bool fault(int64_t i, struct syi_found *f) const
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
        struct syi_found found;
#pragma unroll 1
        for (int64_t i = (int64_t)blockIdx.x * SYC_SCAN_THREADS + threadIdx.x; i < n(); i += (int64_t)gridDim.x * SYC_SCAN_THREADS)
            if (fault(i, &found)) {
                atomicMin(first, (u64)i);
                break;
            }
    }
    /* Thread 0 stores the fault of its block. Block 0 has the numbers of rows. */
    __device__ __forceinline__ void report(u64 first, int64_t rows, int64_t out_rows, const struct syc_gate &gate) const
    {
        const u64 of_rows = blockIdx.x == 0 ? bad_rows(rows, out_rows, &gate.found[0]) : SYC_NO_FAULT;
        gate.order[blockIdx.x] = min(first, of_rows);
        if (first < of_rows)
            fault((int64_t)first, &gate.found[blockIdx.x]);
    }
    /* The first expert with more than expert_rows rows. */
    __device__ bool bad_expert(struct syi_found *f) const
    {
        const struct syi_local_reduce_plan &p = job.p;
        for (int64_t e = 0, place = -1; e < p.n_experts; e++) {
            if (!job.hosted(e))
                continue;
            u32 rows = job.chunks == NULL ? __ldcg(job.count + e) : 0;
            place++;
            for (int64_t c = 0; job.chunks != NULL && c * CHUNK < p.n_tokens; c++)
                rows += __ldcg(job.chunks + place * MOST_CHUNKS + c);
            if (rows > (u64)p.expert_rows) {
                *f = {SYI_BAD_EXPERT_ROWS, 0, e, -1, p.expert_rows, rows, 0};
                return true;
            }
        }
        return false;
    }
    /* How many rows there are against how many are needed; returns the order of the fault. */
    __device__ u64 bad_rows(int64_t rows, int64_t out_rows, struct syi_found *f) const
    {
        const struct syi_local_reduce_plan &p = job.p;
        if (p.layout == SY_LAYOUT_PADDED) {
            int64_t n = 0;
            for (int64_t e = 0; e < p.n_experts && p.n_tokens == 0; e++)
                n += job.hosted(e);
            n = p.n_tokens > 0 ? rows / p.n_tokens : n;
            *f = {SYI_BAD_INPUT_EXPERTS, 0, -1, -1, p.n_local, n, p.device};
            return p.n_local != n ? (u64)(n_entries + n_copied) : SYC_NO_FAULT;
        }
        if (p.expert_rows > 0 && (u64)rows >= OVERFULL && bad_expert(f))
            return (u64)n();
        const bool in = rows > p.in_rows;
        *f = {in ? SYI_BAD_INPUT_ROWS : SYI_BAD_OUTPUT_ROWS, 0, -1, -1, in ? p.in_rows : p.out_rows, in ? rows : out_rows, 0};
        return in || out_rows > p.out_rows ? (u64)n() : SYC_NO_FAULT;
    }
};

/* Out of line, since kernels that run once are as fast as their code is fetched. */
SYC_COLD int64_t choice_anywhere(const struct reduce &job, int64_t t, int64_t k) { return job.choice(t, k); }
static __device__ __forceinline__ int64_t choice_of(const struct reduce &job, int64_t t, int64_t k)
{
    int64_t e[1];
    if (!job.aligned)
        return choice_anywhere(job, t, k);
    job.load_choices<1, true>(t, k, k + 1, e);
    return e[0];
}
SYC_COLD bool is_fault(const struct reduce_check &check, int64_t i, struct syi_found *f) { return check.fault(i, f); }
SYC_COLD u64 is_bad_rows(const struct reduce_check &check, int64_t rows, int64_t out_rows, struct syi_found *f)
{
    return check.bad_rows(rows, out_rows, f);
}

/* ---- Lists of rows: few tokens and experts -------------------------------------------------------------------------- */

/* What a block knows of the experts of this device, by their places; the last one is that of tokens which have any. Shared memory. */
struct tables {
    u32 *start;  /* [E+1] rows; then the first of them */
    u32 *before; /* [E+1] rows of tokens before the chunk */
    u32 *chunk;  /* [E+1] tokens of the chunk, as bits */
    u32 *hosts;  /* [E] bits: an expert is on this device */

    static size_t bytes(int64_t n_experts) { return ((size_t)n_experts + 1) * 3 * sizeof(u32) + ((size_t)n_experts + 31) / 32 * sizeof(u32); }
    __device__ tables(u32 *words, int n_experts)
        : start(words), before(words + n_experts + 1), chunk(words + 2 * (n_experts + 1)), hosts(words + 3 * (n_experts + 1))
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
    __device__ u32 rank(int key, int i) const { return before[key] + (u32)__popc(chunk[key] & ((1u << i) - 1u)); }
    /* Clears all, then finds the hosts; by the second half of the warps first, since the first half loads choices meanwhile. */
    __device__ __forceinline__ void begin(const struct reduce &job) const
    {
        const int n_experts = (int)job.p.n_experts, turned = ((int)threadIdx.x + SYC_SCAN_THREADS / 2) % SYC_SCAN_THREADS;
#pragma unroll 1
        for (int e = (int)threadIdx.x; e < 3 * (n_experts + 1); e += SYC_SCAN_THREADS)
            start[e] = 0;
#pragma unroll 1
        for (int e = turned; e - syc_lane() < n_experts; e += SYC_SCAN_THREADS) {
            const u32 bits = __ballot_sync(SYC_ALL_LANES, e < n_experts && job.mapping(e, job.p.device) == 1);
            if (syc_lane() == 0)
                hosts[e / 32] = bits;
        }
    }
};

/* The slots of a chunk: experts as far as they exist, weights; which slots of a token are live, as bits. Shared memory. */
struct chunk_slots {
    int expert[CHUNK * MOST_SLOTS];
    float weight[CHUNK * MOST_SLOTS];
    u16 place[CHUNK * MOST_SLOTS]; /* of live ones */
    u32 live[CHUNK];

    /* Calls each(i, n, k) for slot k of the token with number n. */
    template <class Each> static __device__ __forceinline__ void all(const struct reduce &job, int64_t first, const Each &each)
    {
        const int slots = (int)job.p.n_slots;
#pragma unroll 1
        for (int i = (int)threadIdx.x; i < CHUNK * slots; i += SYC_SCAN_THREADS) {
            const int token = (int)syc_divide((u32)i, job.slots);
            each(i, first + token, i - token * slots);
        }
    }
    /* `wrong(t, k)` is called for choices that are no experts. */
    template <class Wrong> __device__ __forceinline__ void load(const struct reduce &job, int64_t first, bool weighs, const Wrong &wrong)
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
                                : syc_load_float(syc_row(job.p.weights, t) + k * (job.p.weight_type == SY_TYPE_F32 ? 4 : 2), job.p.weight_type);
            if (e < -1 || e >= job.p.n_experts)
                wrong(t, k);
            else
                expert[i] = (int)e;
        });
    }
    /* The expert is on this device, and no earlier slot of the token names it. */
    __device__ __forceinline__ bool is_live(const struct tables &at, int i, int k) const
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
static __global__ void __launch_bounds__(SYC_SCAN_THREADS)
    reduce_count(const __grid_constant__ struct reduce_check check, const __grid_constant__ struct syc_gate gate)
{
    SYC_DYNAMIC_SHARED(u32, words);
    __shared__ struct chunk_slots chunk;
    __shared__ u64 fault;
    __shared__ u32 hits;
    const struct reduce &job = check.job;
    const int n_experts = (int)job.p.n_experts;
    const struct tables at(words, n_experts);
    const int64_t first = (int64_t)blockIdx.x * CHUNK;
    struct syi_found found;
    syc_start_next();
    if (threadIdx.x == 0) {
        fault = SYC_NO_FAULT;
        hits = 0;
    }
    __syncthreads();
    if (job.chunks != NULL) {
        chunk.load(job, first, false, [&](int64_t t, int k) { atomicMin(&fault, (u64)(check.n_entries + check.n_copied + 1 + t * job.p.n_slots + k)); });
        at.begin(job);
        __syncthreads();
        chunk_slots::all(job, first, [&](int i, int64_t n, int k) {
            if (!chunk.is_live(at, i, k))
                return;
            atomicAdd(&at.start[at.place(chunk.expert[i])], 1u);
            atomicOr(&hits, 1u << (int)(n - first));
        });
#pragma unroll 1
        for (int64_t i = blockIdx.x + (int64_t)gridDim.x * (SYC_SCAN_THREADS - 1 - (int)threadIdx.x); i < check.n_entries + check.n_copied;
             i += (int64_t)gridDim.x * SYC_SCAN_THREADS)
            if (is_fault(check, i, &found))
                atomicMin(&fault, (u64)i);
    } else {
#pragma unroll 1
        for (int64_t i = (int64_t)blockIdx.x * SYC_SCAN_THREADS + threadIdx.x; i < check.n(); i += (int64_t)gridDim.x * SYC_SCAN_THREADS)
            if (is_fault(check, i, &found)) {
                atomicMin(&fault, (u64)i);
                break;
            }
    }
    __syncthreads();
    const int n_local = job.chunks != NULL ? at.place(n_experts) : -1;
#pragma unroll 1
    for (int j = (int)threadIdx.x; j <= n_local; j += SYC_SCAN_THREADS)
        job.chunks[(int64_t)j * MOST_CHUNKS + blockIdx.x] = j == n_local ? (u32)__popc(hits) : at.start[j];
    if (threadIdx.x == 0) {
        gate.order[blockIdx.x] = fault;
        if (fault != SYC_NO_FAULT)
            is_fault(check, (int64_t)fault, &gate.found[blockIdx.x]);
    }
}

/* Adds up what chunks have of the experts on this device, eight lanes for each. */
static __device__ __forceinline__ void add_chunks(const struct reduce &job, const struct tables &at, int n_local, int chunks)
{
    const int lane = syc_lane() % 8;
#pragma unroll 1
    for (int begin = 0; begin <= n_local; begin += SYC_SCAN_THREADS / 8) { /* the same turns for all threads */
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

/* Waits for the counts and finds where the rows of experts begin, by the whole block; returns to the first warp how many there are. */
static __device__ __forceinline__ u64 find_starts(const struct reduce &job, const struct tables &at, int n_local, int chunks)
{
    const bool padded = job.p.layout == SY_LAYOUT_PADDED;
    u64 rows = 0;
    syc_wait_for_previous();
    if (!padded)
        add_chunks(job, at, n_local, chunks);
    __syncthreads();
#pragma unroll 1
    for (int begin = 0; begin < n_local && syc_warp() == 0; begin += 32) {
        const int j = begin + syc_lane();
        const u64 own = j >= n_local ? 0 : padded ? (u64)job.p.n_tokens : job.padded(at.start[j]), up_to = syc_warp_prefix(own);
        if (j < n_local)
            at.start[j] = (u32)(rows + up_to - own);
        rows += __shfl_sync(SYC_ALL_LANES, up_to, 31);
    }
    return rows;
}

/* Lists the rows of the sums of this block's tokens. Block 0 validates how many there are. */
static __global__ void __launch_bounds__(SYC_SCAN_THREADS)
    reduce_list(const __grid_constant__ struct reduce_check check, int chunks, const __grid_constant__ struct syc_gate gate)
{
    SYC_DYNAMIC_SHARED(u32, words);
    __shared__ struct chunk_slots chunk;
    const struct reduce &job = check.job;
    const bool padded = job.p.layout == SY_LAYOUT_PADDED;
    const struct tables at(words, (int)job.p.n_experts);
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
            job.entry[sum * job.apart + __popc(live & ((1u << k) - 1u))] = {at.start[place] + (padded ? (u32)n : at.rank(place, own)), chunk.weight[i]};
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
        gate.order[gate.n - 1] = is_bad_rows(check, (int64_t)rows, (int64_t)at.start[n_local], &gate.found[gate.n - 1]);
    }
}

/* ---- Lists of rows: any number ------------------------------------------------------------------------------------- */

/* After the ranks. Block 0 finds the first rows of experts. */
static __global__ void __launch_bounds__(SYC_SCAN_THREADS)
    reduce_validate(const __grid_constant__ struct reduce_check check, const __grid_constant__ struct syc_gate gate)
{
    __shared__ u64 first;
    const struct reduce &job = check.job;
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
        check.report(first, n_rows, job.count != NULL ? (int64_t)__ldcg(job.count + job.p.n_experts) : 0, gate);
}

/* A warp per token. Ranks and first rows may be anything where there are faults; then the lists are not used. */
static __global__ void __launch_bounds__(256) reduce_list_ranked(const __grid_constant__ struct reduce job)
{
    const int64_t n = (int64_t)blockIdx.x * 8 + syc_warp();
    const bool padded = job.p.layout == SY_LAYOUT_PADDED;
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
        return (u32)__ldcg(job.block + e) + (padded ? (u32)n : __ldcg(job.rank + n * job.each.d + k) - __ldcg(job.first + e));
    });
}

/* ---- Sums --------------------------------------------------------------------------------------------------------- */

template <class Numbers>
static __device__ __forceinline__ void add_vector(float (&sum)[Numbers::N], float weight, typename Numbers::V v)
{
    float x[Numbers::N];
    Numbers::widen(v, x);
#pragma unroll
    for (int i = 0; i < Numbers::N; i++)
        sum[i] = __fadd_rn(sum[i], __fmul_rn(weight, x[i]));
}

/* How many sums there are. */
static __device__ __forceinline__ int64_t all_sums(const struct reduce &job, int64_t most)
{
    return job.p.layout == SY_LAYOUT_PADDED ? most : min(most, (int64_t)__ldcg(job.n_sums));
}

/* Rows of any number and alignment, a vector for each thread at a time. */
template <sy_type T, bool WIDE>
static __global__ void __launch_bounds__(SYC_GROUP_THREADS)
    reduce_sum(const __grid_constant__ struct reduce job, int64_t most, const __grid_constant__ struct syc_groups groups, const __grid_constant__ struct syc_gate gate)
{
    typedef syc_numbers<T, WIDE> Numbers;
    enum { AHEAD = 4 };
    const struct syc_place p = syc_place_of(groups, blockIdx.x);
    if (!syc_may_write(gate) || p.item >= all_sums(job, most))
        return;
    const u32 n = job.apart > 0 ? __ldcg(job.n + p.item) : 0;
    if (n == 0 && job.p.keep)
        return;
#pragma unroll 1
    for (int64_t at = p.begin + p.offset; at < p.end; at += 1 << groups.shift) {
        float sum[Numbers::N] = {};
#pragma unroll 1
        for (u32 k0 = 0; k0 < n; k0 += AHEAD) {
            uint2 of[AHEAD]; /* struct entry */
            typename Numbers::V held[AHEAD];
#pragma unroll
            for (u32 k = 0; k < AHEAD; k++)
                of[k] = __ldcg((const uint2 *)(job.entry + p.item * job.apart + min(k0 + k, n - 1)));
#pragma unroll
            for (u32 k = 0; k < AHEAD; k++)
                held[k] = Numbers::load(syc_row(job.p.input, of[k].x), at);
#pragma unroll
            for (u32 k = 0; k < AHEAD; k++)
                if (k0 + k < n)
                    add_vector<Numbers>(sum, __uint_as_float(of[k].y), held[k]);
        }
        Numbers::store(syc_out_row(job.p.output, p.item), at, Numbers::narrow(sum));
    }
}

/*
 * Aligned rows that are long enough, where there are bulk loads and slots are not many: pieces of rows go through a ring of stages in
 * shared memory. The last warp of a block starts the loads of many and leaves an order with each, the others add up what has arrived.
 * Blocks take their first two sums, or parts of them, by their numbers, and further ones as they get ready for them.
 */
enum {
    ADDERS = 256,      /* threads of a block that add */
    ADDER_VECTORS = 2, /* of a piece for each of them, at most */
    MOST_PIECE = ADDERS * ADDER_VECTORS * 16,
    RING_BLOCKS = 4, /* of a multiprocessor */
    RING_BYTES = 46 * 1024,
    MOST_STAGES = 16,
    LEAST_ROW = 512 /* bytes */
};

struct ring {
    struct syc_split parts; /* of a row */
    int64_t row_bytes;
    int piece, stages; /* bytes of a part; how many the ring holds */
};

/* What is done with a stage. */
struct alignas(16) order {
    u8 *to; /* the sum is complete and goes there; NULL: not yet */
    float weight;
    u32 bytes; /* of the piece, and 1 where nothing is added; 0: all is done */
};

/* How many rows a sum has, and, in lane k of a warp, row k. */
struct listed {
    u32 n;
    uint2 of; /* struct entry */

    static __device__ __forceinline__ struct listed load(const struct reduce &job, int64_t sum, bool in)
    {
        const bool has = in && syc_lane() < job.p.n_slots;
        return {in ? __ldcg(job.n + sum) : 0, has ? __ldcg((const uint2 *)(job.entry + sum * job.apart + syc_lane())) : make_uint2(0, 0)};
    }
};

/* Stages in turns: the phase of a barrier changes when all have been used. */
struct ring_stage {
    int at;
    u32 turn;

    __device__ __forceinline__ void advance(const struct ring &ring)
    {
        turn ^= at + 1 == ring.stages;
        at = at + 1 == ring.stages ? 0 : at + 1;
    }
};

/* Adds up stages until all is done. */
template <class Numbers>
static __device__ __forceinline__ void add_stages(const struct ring &ring, const u8 *memory, const struct order *orders, struct syc_barrier *full, struct syc_barrier *empty)
{
    float all[ADDER_VECTORS][Numbers::N] = {};
#pragma unroll 1
    for (struct ring_stage stage = {0, 0};; stage.advance(ring)) {
        syc_barrier_wait(full + stage.at, stage.turn);
        const struct order order = orders[stage.at];
        const u32 bytes = order.bytes & ~1u;
        if (bytes == 0)
            return;
        if (order.bytes == bytes)
#pragma unroll
            for (int u = 0; u < ADDER_VECTORS; u++)
                if ((threadIdx.x + u * ADDERS) * 16 < bytes)
                    add_vector<Numbers>(all[u], order.weight, ((const uint4 *)(memory + stage.at * ring.piece))[threadIdx.x + u * ADDERS]);
        __syncwarp();
        if (syc_lane() == 0)
            syc_barrier_arrive(empty + stage.at);
        if (order.to == NULL)
            continue;
#pragma unroll
        for (int u = 0; u < ADDER_VECTORS; u++) {
            if ((threadIdx.x + u * ADDERS) * 16 < bytes)
                Numbers::store(order.to, threadIdx.x + u * ADDERS, Numbers::narrow(all[u]));
#pragma unroll
            for (int j = 0; j < Numbers::N; j++)
                all[u][j] = 0.0f;
        }
    }
}

template <sy_type T>
static __global__ void __launch_bounds__(ADDERS + 32, RING_BLOCKS)
    reduce_ring(const __grid_constant__ struct reduce job, int64_t most, const __grid_constant__ struct ring ring, const __grid_constant__ struct syc_gate gate)
{
    SYC_DYNAMIC_SHARED(u8, memory); /* [stages][piece] */
    __shared__ struct syc_barrier full[MOST_STAGES], empty[MOST_STAGES];
    __shared__ struct order orders[MOST_STAGES];
    const bool loads = syc_warp() == ADDERS / 32;
    if (!SYC_BULK)
        return;
    if (threadIdx.x == 0) {
#pragma unroll 1
        for (int i = 0; i < ring.stages; i++) {
            syc_barrier_init(full + i, 1);
            syc_barrier_init(empty + i, ADDERS / 32);
        }
        syc_barrier_fence();
    }
    syc_wait_for_previous();
    int64_t q = blockIdx.x, next_q = q + gridDim.x, end = most * ring.parts.d;
    struct listed list = {}, next = {};
    if (loads) { /* lists past the end may be anything, and are not used */
        list = listed::load(job, syc_quotient(q, ring.parts), q < end);
        next = listed::load(job, syc_quotient(next_q, ring.parts), next_q < end);
        end = all_sums(job, most) * ring.parts.d;
    }
    if (!syc_all_clear(gate, syc_sees_fault(gate))) /* a barrier, too */
        return;
    if (!loads) {
        add_stages<syc_numbers<T, true>>(ring, memory, orders, full, empty);
        return;
    }
    struct ring_stage stage = {0, 0};
    const auto put = [&](u8 *to, float weight, u32 bytes, const u8 *from) {
        syc_barrier_wait(empty + stage.at, stage.turn ^ 1);
        if (syc_lane() == 0) {
            orders[stage.at] = {to, weight, bytes};
            syc_barrier_expect(full + stage.at, from != NULL ? bytes : 0);
            if (from != NULL)
                syc_bulk_load(memory + stage.at * ring.piece, from, bytes, full + stage.at);
        }
        stage.advance(ring);
    };
#pragma unroll 1
    while (q < end) {
        const int64_t sum = syc_quotient(q, ring.parts), offset = (q - sum * ring.parts.d) * ring.piece;
        const u32 bytes = (u32)min((int64_t)ring.piece, ring.row_bytes - offset);
        u8 *const to = syc_out_row(job.p.output, sum) + offset;
        const u64 taken = syc_lane() == 0 ? atomicAdd(job.taken, 1ull) : 0;
#pragma unroll 1
        for (u32 k = 0; k < list.n; k++) {
            const u32 row = __shfl_sync(SYC_ALL_LANES, list.of.x, (int)k);
            const float weight = __uint_as_float(__shfl_sync(SYC_ALL_LANES, list.of.y, (int)k));
            put(k + 1 == list.n ? to : NULL, weight, bytes, syc_row(job.p.input, row) + offset);
        }
        if (list.n == 0 && !job.p.keep)
            put(to, 0.0f, bytes | 1, NULL);
        q = next_q;
        list = next;
        next_q = 2 * (int64_t)gridDim.x + (int64_t)__shfl_sync(SYC_ALL_LANES, taken, 0);
        next = listed::load(job, syc_quotient(next_q, ring.parts), next_q < end);
    }
    put(NULL, 0.0f, 0, NULL);
}

/* The most there can be. */
static int64_t sums_of(const struct syi_local_reduce_plan *p)
{
    return p->layout == SY_LAYOUT_EXPERT && p->out_rows < p->n_tokens ? p->out_rows : p->n_tokens;
}

/* For syc_by_type. */
struct launch_sum {
    struct syc_call *call;
    struct reduce job;

    template <sy_type T, bool WIDE> void run() const
    {
        const int64_t items = sums_of(&job.p), row_bytes = job.p.hidden * syc_numbers<T, WIDE>::SIZE;
        const struct syc_groups groups = syc_groups_of(items, job.p.hidden / syc_numbers<T, WIDE>::N, 1, call->device->processors);
        if (items == 0)
            syc_only_report(call);
        else if (WIDE && syc_has_bulk(call->device) && job.p.n_slots > 0 && job.p.n_slots <= 32 && row_bytes >= LEAST_ROW)
            launch_ring<T>(items, row_bytes);
        else
            syc_launch(&call->queue, reduce_sum<T, WIDE>, SYC_EARLY, syc_groups_blocks(&groups, items), SYC_GROUP_THREADS, 0, job, items, groups, call->gate);
    }
    template <sy_type T> void launch_ring(int64_t items, int64_t row_bytes) const
    {
        const int64_t parts = syc_ceil(row_bytes, MOST_PIECE), piece = syc_ceil(row_bytes, 16 * parts) * 16, fit = RING_BYTES / piece;
        const int64_t most = RING_BLOCKS * (int64_t)call->device->processors, all = items * parts;
        const struct ring ring = {syc_split_by(parts, all + 3 * most), row_bytes, (int)piece, (int)(fit < MOST_STAGES ? fit : (int64_t)MOST_STAGES)};
        syc_launch(&call->queue, reduce_ring<T>, SYC_EARLY, all < most ? all : most, ADDERS + 32, (size_t)(ring.stages * ring.piece), job, items, ring, call->gate);
    }
};

/* For syc_sum_coded_rows. */
struct coded_sums {
    struct reduce job;

    __device__ u8 *to(int64_t item) const
    {
        const bool there = job.p.layout == SY_LAYOUT_PADDED || item < (int64_t)__ldcg(job.n_sums);
        return there && !(job.p.keep && __ldcg(job.n + item) == 0) ? syc_out_row(job.p.output, item) : NULL;
    }
    __device__ int64_t n_rows(int64_t item) const { return __ldcg(job.n + item); }
    __device__ struct syc_coded_row row_at(int64_t item, int64_t k) const
    {
        const uint2 found = __ldcg((const uint2 *)(job.entry + item * job.apart + k));
        return {(int64_t)found.x, __uint_as_float(found.y)};
    }
};

/* ---- The call ------------------------------------------------------------------------------------------------------ */

/* Whether blocks have room for what they know of all experts, and of all chunks. */
static bool is_small(const struct syi_local_reduce_plan *p)
{
    return p->n_experts < MOST_EXPERTS && p->n_slots <= MOST_SLOTS && p->n_tokens <= INT32_MAX / (MOST_SLOTS + 1) && (p->layout == SY_LAYOUT_PADDED || p->n_tokens <= CHUNK * MOST_CHUNKS);
}

static struct reduce lay_out(const struct syi_local_reduce_plan *p, struct syc_scratch *scratch)
{
    const int64_t n = p->n_tokens * (p->n_slots + 1);
    const u64 index_bytes = p->index_type == SY_TYPE_I64 ? 8 : p->index_type == SY_TYPE_I32 ? 4 : 2;
    struct reduce job = {};
    job.p = *p;
    job.interleave = syc_split_by(p->interleave, p->n_tokens);
    job.per_position = syc_split_by(p->n_tokens / p->n_positions, p->n_tokens);
    job.align = syc_split_by(p->align, p->n_tokens + p->align);
    job.each = syc_split_by(p->n_slots + 1, n);
    job.slots = syc_divisor_of(p->n_slots > 0 && p->n_slots <= MOST_SLOTS ? (u32)p->n_slots : 1);
    job.aligned = syc_alignment(p->metadata) % index_bytes == 0 && syc_alignment(p->mapping) % 2 == 0;
    job.n_sums = scratch->take<u32>(1);
    job.taken = scratch->take<u64>(1);
    job.n = scratch->take<u32>(p->n_tokens);
    job.apart = (p->n_slots + 1) / 2 * 2;
    job.entry = scratch->take<struct entry>(p->n_tokens * job.apart);
    if (is_small(p) && p->layout == SY_LAYOUT_EXPERT)
        job.chunks = scratch->take<u32>((p->n_experts + 1) * MOST_CHUNKS);
    if (is_small(p))
        return job;
    job.block = scratch->take<int64_t>(p->n_experts);
    if (p->layout == SY_LAYOUT_PADDED)
        return job;
    job.key = scratch->take<u32>(n);
    job.rank = scratch->take<u32>(n);
    job.first = scratch->take<u32>(p->n_experts + 1);
    job.count = scratch->take<u32>(p->n_experts + 1);
    return job;
}

/* Experts and one more key are numbers of 31 bits: for more of them no memory is enough. */
size_t syc_local_reduce_workspace(const struct syc_device *device, const union syi_plan *plan)
{
    const struct syi_local_reduce_plan *const p = &plan->local_reduce;
    struct syc_scratch scratch = {NULL, 0};
    if (p->rule.replica != SY_A2A_REPLICA_ALL)
        scratch.take<u8>((int64_t)syc_served_bytes(p, device->processors));
    lay_out(p, &scratch);
    if (p->layout == SY_LAYOUT_PADDED || is_small(p))
        return scratch.used;
    if (p->n_experts == INT32_MAX)
        return SIZE_MAX;
    return scratch.used + syc_rank_bytes(p->n_tokens * (p->n_slots + 1), p->n_experts + 1, device->processors);
}

/* Ranks of all live slots, whatever is wrong with them: only scratch memory is written. */
static void rank(struct syc_call *call, const struct reduce &job, unsigned char *scratch)
{
    const int64_t n = job.p.n_tokens * (job.p.n_slots + 1);
    const int n_keys = (int)(job.p.n_experts + 1);
    const struct reduce_keys<false> keys = {n, n_keys, job};
    const struct reduce_keys<true> stored = {n, n_keys, job};
    const struct reduce_ranks out = {job.rank, job.first, job.count};
    struct syc_ranks ranks = syc_ranks_of(n, call->device->processors);
    if (n_keys > SYC_MOST_COUNTED || n > INT32_MAX) {
        syc_launch(&call->queue, reduce_live, SYC_AFTER, ranks.chunks, 256, 0, job, n);
        syc_rank(call, stored, out, scratch);
        return;
    }
    ranks.counts = (u32 *)scratch;
    syc_rank_launch(call, keys, stored, ranks, out, syc_open(call->gate));
}

/* Launches the kernels that validate and list the rows of all sums. */
static void find_rows(struct syc_call *call, const struct reduce &job, unsigned char *scratch)
{
    const struct syi_local_reduce_plan *const p = &job.p;
    struct reduce_check check = {p->n_experts * p->n_devices, (p->n_copies - 1) * p->n_experts, p->n_tokens * p->n_slots, {}, {}, job};
    check.devices = syc_split_by(p->n_devices, check.n_entries);
    check.slots = syc_split_by(p->n_slots, check.n_choices);
    const bool small = is_small(p), expert = p->layout == SY_LAYOUT_EXPERT;
    const int64_t tokens = small ? (int64_t)CHUNK : (int64_t)SYC_SCAN_THREADS, wanted = syc_ceil(p->n_tokens, tokens);
    const int64_t all = call->device->processors < SYC_MAX_CHECK_BLOCKS ? call->device->processors : (int64_t)SYC_MAX_CHECK_BLOCKS;
    const int64_t most = small ? (int64_t)MOST_CHUNKS : all, blocks = wanted < 1 ? 1 : wanted < most ? wanted : most;
    if (!small && expert)
        rank(call, job, scratch);
    call->gate.n = (int)blocks + small;
    if (small) {
        call->queue.most_shared = true; /* sums start beside it */
        syc_launch(&call->queue, reduce_count, SYC_AFTER, blocks, SYC_SCAN_THREADS, tables::bytes(p->n_experts), check, call->gate);
        syc_launch(&call->queue, reduce_list, SYC_EARLY, blocks, SYC_SCAN_THREADS, tables::bytes(p->n_experts), check, (int)blocks, call->gate);
        return;
    }
    syc_launch(&call->queue, reduce_validate, expert ? SYC_EARLY : SYC_AFTER, call->gate.n, SYC_SCAN_THREADS, 0, check, call->gate);
    syc_launch(&call->queue, reduce_list_ranked, SYC_EARLY, syc_ceil(p->n_tokens, 8), 256, 0, job);
}

void syc_local_reduce(struct syc_call *call, const union syi_plan *plan)
{
    struct syi_local_reduce_plan served = plan->local_reduce;
    struct syc_scratch scratch = {call->scratch, 0};
    if (served.rule.replica != SY_A2A_REPLICA_ALL)
        served.metadata = syc_served(call, &plan->local_reduce, scratch.take<u8>((int64_t)syc_served_bytes(&served, call->device->processors)));
    const struct syi_local_reduce_plan *const p = &served;
    const struct reduce job = lay_out(p, &scratch);
    find_rows(call, job, scratch.rest());
    const u64 row_bytes = (u64)p->hidden * (p->type == SY_TYPE_F32 ? 4 : 2);
    if (p->codes.given)
        syc_sum_coded_rows(call, &p->codes, p->output, coded_sums{job}, sums_of(p));
    else
        syc_by_type(p->type, syc_alignment(p->input) | syc_alignment(p->output) | row_bytes, launch_sum{call, job});
}
