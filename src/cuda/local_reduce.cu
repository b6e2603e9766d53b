/*
 * local_reduce on a device. In the layout of experts the live slots of all tokens are ranked; the validation stores what the
 * sums need; then blocks look up the rows of their tokens and add them, slots ascending.
 */
#include "cuda/backend.cuh"
#include "cuda/rank.cuh"
#include "cuda/scan.cuh"
#include "cuda/scratch.cuh"
#include "cuda/slots.cuh"

#define NO_ROW (~0u)

struct reduce {
    struct syi_local_reduce_plan p;
    struct syc_split interleave, per_position; /* tokens */
    struct syc_split align, each; /* rows of an expert; slots and one */
    bool aligned; /* choices and the mapping, to their numbers */
    int64_t *block; /* [E] first row of an expert of this device */
    float *weight;  /* [T,K], NULL: all are 1 */
    u32 *key;       /* [T,K+1] in order of position: experts of live slots, NO_ROW: none; then E if there is one */
    /* EXPERT only */
    u32 *rank;          /* [T,K+1] with the keys */
    u32 *first, *count; /* [E+1] ranks of an expert; of the tokens that have rows */

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
    /* Rows of an expert in the input, with padding. */
    __device__ u64 rows_of(int64_t e) const
    {
        if (p.layout == SY_LAYOUT_PADDED)
            return hosted(e) ? (u64)p.n_tokens : 0;
        return (u64)(syc_quotient((int64_t)__ldcg(count + e) + align.d - 1, align) * align.d);
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
    /* Stores what the sums need of a slot. */
    __device__ void note(int64_t i) const
    {
        const int64_t t = syc_quotient(i, slots), k = i - t * slots.d;
        if (job.weight != NULL)
            job.weight[i] = syc_load_float(syc_row(job.p.weights, t) + k * (job.p.weight_type == SY_TYPE_F32 ? 4 : 2), job.p.weight_type);
        if (job.p.layout == SY_LAYOUT_PADDED)
            job.key[t * job.each.d + k] = (u32)job.live(t, k);
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
    /* How many rows there are against how many are needed; returns the order of the fault. */
    __device__ u64 bad_rows(int64_t rows, struct syi_found *f) const
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
        const int64_t out_rows = __ldcg(job.count + p.n_experts);
        const bool in = rows > p.in_rows;
        *f = {in ? SYI_BAD_INPUT_ROWS : SYI_BAD_OUTPUT_ROWS, 0, -1, -1, in ? p.in_rows : p.out_rows, in ? rows : out_rows, 0};
        return in || out_rows > p.out_rows ? (u64)n() : SYC_NO_FAULT;
    }
};

/* As syc_validate; it stores what the sums need too, and block 0 finds the rows of experts. */
static __global__ void __launch_bounds__(SYC_SCAN_THREADS) reduce_validate(const struct reduce_check check, const struct syc_gate gate)
{
    __shared__ u64 first;
    struct syi_found found;
    int64_t n_rows = 0;
    syc_start_next();
    syc_wait_for_previous();
    if (threadIdx.x == 0)
        first = SYC_NO_FAULT;
    __syncthreads();
    if (blockIdx.x == 0)
        n_rows = check.find_blocks();
    for (int64_t i = (int64_t)blockIdx.x * SYC_SCAN_THREADS + threadIdx.x; i < check.n(); i += (int64_t)gridDim.x * SYC_SCAN_THREADS)
        if (check.fault(i, &found)) {
            atomicMin(&first, (u64)i);
            break;
        } else if (i >= check.n() - check.n_choices) {
            check.note(i - (check.n() - check.n_choices));
        }
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    const u64 rows = blockIdx.x == 0 ? check.bad_rows(n_rows, &gate.found[0]) : SYC_NO_FAULT;
    gate.order[blockIdx.x] = min(first, rows);
    if (first < rows)
        check.fault((int64_t)first, &gate.found[blockIdx.x]);
}

/* ---- Sums --------------------------------------------------------------------------------------------------------- */

enum {
    SUM_THREADS = 256,
    SUM_PICKS = 512, /* slots that a block looks up at a time */
    SUM_TILE = 2048  /* vectors of a row that a block takes at most */
};

struct sum_shape {
    int64_t tiles;           /* blocks of a row */
    int tokens, slots;       /* or tokens of a block; slots of a token that are looked up at a time */
    int64_t width;           /* vectors of a row */
    struct syc_divisor tile; /* vectors of a row in a block */
};

/* Rows of the input to add, and their weights. */
struct sum_picks {
    u32 row[SUM_PICKS];
    float weight[SUM_PICKS];
    u32 n[SUM_PICKS], at[SUM_PICKS]; /* of a token: rows, row of the output */
};

/* Looks up slots k to k + each of the tokens from `first` on, in order of position. By the whole block. */
static __device__ void look_up(const struct reduce &job, int64_t first, int tokens, int64_t k, int each, struct sum_picks *picks)
{
    const bool padded = job.p.layout == SY_LAYOUT_PADDED;
    __syncthreads(); /* picks may still be read */
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < tokens * each; i += SUM_THREADS) {
        const int64_t n = first + i / each, slot = k + i % each;
        const u32 e = __ldcg(job.key + n * job.each.d + slot);
        picks->row[i] = NO_ROW;
        if (e == NO_ROW)
            continue;
        const u32 rank = padded ? (u32)n : __ldcg(job.rank + n * job.each.d + slot) - __ldcg(job.first + e);
        picks->row[i] = (u32)__ldcg(job.block + e) + rank;
        picks->weight[i] = job.weight != NULL ? __ldcg(job.weight + job.token(n) * job.p.n_slots + slot) : 1.0f;
    }
    __syncthreads();
    for (int token = (int)threadIdx.x; token < tokens; token += SUM_THREADS) {
        const int64_t n = first + token;
        u32 found = 0, *const row = picks->row + token * each;
        float *const weight = picks->weight + token * each;
#pragma unroll 1
        for (int i = 0; i < each; i++)
            if (row[i] != NO_ROW) {
                weight[found] = weight[i];
                row[found++] = row[i];
            }
        picks->n[token] = found;
        const u32 rank = padded ? NO_ROW : __ldcg(job.rank + n * job.each.d + job.p.n_slots);
        if (!padded)
            picks->at[token] = rank != NO_ROW ? rank - __ldcg(job.first + job.p.n_experts) : NO_ROW;
        else if (found > 0 || k == 0)
            picks->at[token] = found > 0 || !job.p.keep ? (u32)n : NO_ROW;
    }
    __syncthreads();
}

/* A vector of the output. */
struct sum_item {
    const u32 *row;
    const float *weight;
    u32 n;
    int64_t at; /* vector of a row */
};

/* Adds the next rows to every item. */
template <class Numbers, int ABREAST, int AHEAD>
static __device__ __forceinline__ void add_rows(const struct syi_rows input, const struct sum_item *item, u32 j, float (*sum)[Numbers::N])
{
    typename Numbers::V held[ABREAST][AHEAD];
#pragma unroll
    for (int v = 0; v < ABREAST; v++)
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            if (j + (u32)u < item[v].n)
                held[v][u] = Numbers::load(syc_row(input, item[v].row[j + (u32)u]), item[v].at);
#pragma unroll
    for (int v = 0; v < ABREAST; v++)
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            if (j + (u32)u < item[v].n) {
                const float weight = item[v].weight[j + (u32)u];
                float x[Numbers::N];
                Numbers::widen(held[v][u], x);
#pragma unroll
                for (int k = 0; k < Numbers::N; k++)
                    sum[v][k] = __fadd_rn(sum[v][k], __fmul_rn(weight, x[k]));
            }
}

template <sy_type T, bool WIDE>
static __global__ void __launch_bounds__(SUM_THREADS)
    reduce_sum(const struct reduce job, const struct sum_shape shape, const struct syc_gate gate)
{
    typedef syc_numbers<T, WIDE> Numbers;
    enum { ABREAST = WIDE ? 2 : 1, AHEAD = WIDE ? 2 : 4 }; /* vectors and rows that a thread loads at a time */
    __shared__ struct sum_picks picks;
    const int64_t group = blockIdx.x / shape.tiles, column = (blockIdx.x - group * shape.tiles) * shape.tile.d;
    const int64_t first = group * shape.tokens;
    const int tokens = (int)min((int64_t)shape.tokens, job.p.n_tokens - first);
    const u32 all = (u32)tokens * shape.tile.d;
    if (!syc_may_write(gate))
        return;
    for (u32 begin = 0; begin < all; begin += ABREAST * SUM_THREADS) {
        float sum[ABREAST][Numbers::N] = {};
        for (int64_t k = 0; k < job.p.n_slots; k += shape.slots) {
            const int each = (int)min((int64_t)shape.slots, job.p.n_slots - k);
            struct sum_item item[ABREAST];
            u32 most = 0;
            if (begin == 0 || shape.slots < job.p.n_slots)
                look_up(job, first, tokens, k, each, &picks);
#pragma unroll
            for (int v = 0; v < ABREAST; v++) {
                const u32 i = begin + threadIdx.x + (u32)v * SUM_THREADS, token = syc_divide(i, shape.tile);
                const int64_t c = column + (i - token * shape.tile.d);
                const int at = (int)token * each;
                item[v] = {picks.row + at, picks.weight + at, i < all && c < shape.width ? picks.n[token] : 0, c};
                most = max(most, item[v].n);
            }
            for (u32 j = 0; j < most; j += AHEAD)
                add_rows<Numbers, ABREAST, AHEAD>(job.p.input, item, j, sum);
        }
#pragma unroll
        for (int v = 0; v < ABREAST; v++) {
            const u32 i = begin + threadIdx.x + (u32)v * SUM_THREADS, token = syc_divide(i, shape.tile);
            const int64_t c = column + (i - token * shape.tile.d);
            if (i < all && c < shape.width && picks.at[token] != NO_ROW)
                Numbers::store(syc_out_row(job.p.output, picks.at[token]), c, Numbers::narrow(sum[v]));
        }
    }
}

/* For syc_by_type. */
struct launch_sum {
    struct syc_call *call;
    struct reduce job;

    template <sy_type T, bool WIDE> void run() const
    {
        struct sum_shape shape = {1, 1, 1, job.p.hidden / syc_numbers<T, WIDE>::N, {0, 0, 0}};
        const int64_t tile = shape.width < SUM_TILE ? shape.width : (int64_t)SUM_TILE;
        shape.slots = (int)(job.p.n_slots < SUM_PICKS ? job.p.n_slots : (int64_t)SUM_PICKS);
        while (2 * shape.tokens * tile <= SUM_TILE / 2 && 2 * shape.tokens * shape.slots <= SUM_PICKS)
            shape.tokens *= 2;
        while (shape.tokens < 8 && 2 * shape.tokens * shape.slots <= SUM_PICKS && /* many blocks are left: their look-ups pay */
               job.p.n_tokens / (2 * shape.tokens) >= 6 * (int64_t)call->device->processors)
            shape.tokens *= 2;
        shape.tiles = syc_ceil(shape.width, tile);
        shape.tile = syc_divisor_of((u32)tile);
        syc_launch(&call->queue, reduce_sum<T, WIDE>, SYC_EARLY, syc_ceil(job.p.n_tokens, shape.tokens) * shape.tiles, SUM_THREADS, 0,
                   job, shape, call->gate);
    }
};

/* ---- The call ------------------------------------------------------------------------------------------------------ */

static struct reduce lay_out(const struct syi_local_reduce_plan *p, struct syc_scratch *scratch)
{
    const int64_t n = p->n_tokens * (p->n_slots + 1);
    const u64 index_bytes = p->index_type == SY_TYPE_I64 ? 8 : p->index_type == SY_TYPE_I32 ? 4 : 2;
    struct reduce job = {*p, syc_split_by(p->interleave, p->n_tokens), syc_split_by(p->n_tokens / p->n_positions, p->n_tokens),
                         syc_split_by(p->align, p->n_tokens + p->align), syc_split_by(p->n_slots + 1, n),
                         syc_alignment(p->metadata) % index_bytes == 0 && syc_alignment(p->mapping) % 2 == 0, NULL, NULL, NULL, NULL, NULL, NULL};
    job.block = scratch->take<int64_t>(p->n_experts);
    job.weight = p->weights.data != NULL ? scratch->take<float>(p->n_tokens * p->n_slots) : NULL;
    job.key = scratch->take<u32>(n);
    if (p->layout == SY_LAYOUT_PADDED)
        return job;
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
    lay_out(p, &scratch);
    if (p->layout == SY_LAYOUT_PADDED)
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
    struct syc_gate open = call->gate;
    open.order = NULL;
    ranks.counts = (u32 *)scratch;
    syc_rank_launch(call, keys, stored, ranks, out, open);
}

static void validate(struct syc_call *call, const struct reduce &job, enum syc_start start)
{
    const struct syi_local_reduce_plan *const p = &job.p;
    struct reduce_check check = {p->n_experts * p->n_devices, (p->n_copies - 1) * p->n_experts, p->n_tokens * p->n_slots, {}, {}, job};
    check.devices = syc_split_by(p->n_devices, check.n_entries);
    check.slots = syc_split_by(p->n_slots, check.n_choices);
    const int64_t wanted = syc_ceil(check.n_entries + check.n_copied + check.n_choices + 1, SYC_SCAN_THREADS);
    const int64_t most = call->device->processors < SYC_MAX_CHECK_BLOCKS ? call->device->processors : (int64_t)SYC_MAX_CHECK_BLOCKS;
    call->gate.n = (int)(wanted < most ? wanted : most);
    syc_launch(&call->queue, reduce_validate, start, call->gate.n, SYC_SCAN_THREADS, 0, check, call->gate);
}

void syc_local_reduce(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_local_reduce_plan *const p = &plan->local_reduce;
    struct syc_scratch scratch = {call->scratch, 0};
    const struct reduce job = lay_out(p, &scratch);
    const bool expert = p->layout == SY_LAYOUT_EXPERT;
    if (expert)
        rank(call, job, scratch.rest());
    validate(call, job, expert ? SYC_EARLY : SYC_AFTER);
    const u64 row_bytes = (u64)p->hidden * (p->type == SY_TYPE_F32 ? 4 : 2);
    syc_by_type(p->type, syc_alignment(p->input) | syc_alignment(p->output) | row_bytes, launch_sum{call, job});
    if (p->n_tokens == 0)
        syc_only_report(call);
}
