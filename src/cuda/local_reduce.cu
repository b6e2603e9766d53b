/*
 * local_reduce on a device: the rows of every token's live slots are found (in the layout of experts by their ranks), then
 * blocks add them, slots ascending.
 */
#include "cuda/backend.cuh"
#include "cuda/load.cuh"
#include "cuda/rank.cuh"
#include "cuda/scan.cuh"
#include "cuda/scratch.cuh"

#define NO_ROW (~0u)

/* A row of the input and its weight. */
struct pick {
    u32 row;
    float weight;
};

struct reduce {
    struct syi_local_reduce_plan p;
    struct syc_split interleave, per_position; /* tokens */
    struct syc_split align, each; /* rows of an expert; slots and one */
    struct pick *pick; /* [T,K] of the live slots of a token, ascending */
    u32 *n_picks, *at; /* [T] picks, row of the output */
    int64_t *block;    /* [E] first row of an expert of this device */
    /* EXPERT only */
    u32 *key, *rank;    /* [T,K+1] in order of position: of slots and then of the token */
    u32 *first, *count; /* [E+1] ranks of an expert; of the tokens that have rows */

    /* The expert of a slot, -1: none; as large as it is where it is wrong. */
    __device__ int64_t choice(int64_t t, int64_t k) const
    {
        const u8 *const row = syc_row(p.metadata, t);
        if (p.index_type != SY_TYPE_U16)
            return syc_index(row, k, p.index_type);
        const u16 e = syc_load<u16>(row + 2 * k);
        return e == 0xffff ? -1 : (int64_t)e;
    }
    __device__ u32 mapping(int64_t row, int64_t d) const { return syc_load<u16>(syc_row(p.mapping, row) + 2 * d); }
    __device__ bool hosted(int64_t e) const { return e >= 0 && e < p.n_experts && mapping(e, p.device) == 1; }

    /* The expert of a live slot: it is on this device, and no earlier slot names it. Else -1. */
    __device__ int live(int64_t t, int64_t k) const
    {
        const int64_t e = choice(t, k);
        return hosted(e) && !named_before(t, k, (int)e) ? (int)e : -1;
    }
    __device__ bool named_before(int64_t t, int64_t k, int e) const
    {
#pragma unroll 1
        while (--k >= 0)
            if (choice(t, k) == e)
                return true;
        return false;
    }
    __device__ bool hit(int64_t t) const
    {
#pragma unroll 1
        for (int64_t k = 0; k < p.n_slots; k++)
            if (hosted(choice(t, k)))
                return true;
        return false;
    }
    /* Token i in order of position. */
    __device__ int64_t token(int64_t i) const
    {
        if (p.interleave == 0)
            return i;
        const int64_t position = syc_quotient(i, per_position), n = i - position * per_position.d;
        const int64_t run = syc_quotient(n, interleave);
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
 * ascend with the numbers of its experts, so experts are the keys.
 */
struct reduce_keys {
    int64_t n;
    int n_keys;
    u32 *found; /* [n], NO_ROW: none */

    __device__ int key(int64_t i) const { return (int)__ldcg(found + i); }
    __device__ bool wrong(int64_t) const { return false; } /* all is validated later */
    __device__ void explain(int64_t, struct syi_found *) const {}
};

static __global__ void __launch_bounds__(256) reduce_live(const struct reduce_keys keys, const struct reduce job)
{
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < keys.n; i += (int64_t)gridDim.x * 256) {
        const int64_t n = syc_quotient(i, job.each), k = i - n * job.each.d, t = job.token(n);
        if (k < job.p.n_slots)
            keys.found[i] = (u32)job.live(t, k);
        else
            keys.found[i] = job.hit(t) ? (u32)job.p.n_experts : NO_ROW;
    }
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

/* As syc_validate; block 0 finds the rows of experts too. */
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

/* The live slots of every token. */
static __global__ void __launch_bounds__(256) reduce_picks(const struct reduce job, const struct syc_gate gate)
{
    const struct syi_local_reduce_plan &p = job.p;
    const bool padded = p.layout == SY_LAYOUT_PADDED;
    const size_t weight_bytes = p.weight_type == SY_TYPE_F32 ? 4 : 2;
    syc_start_next();
    if (!syc_may_write(gate))
        return;
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < p.n_tokens; i += (int64_t)gridDim.x * 256) {
        const int64_t t = padded ? i : job.token(i);
        const u32 *const key = job.key + i * job.each.d, *const rank = job.rank + i * job.each.d;
        struct pick *const pick = job.pick + t * p.n_slots;
        u32 n = 0;
#pragma unroll 1
        for (int64_t k = 0; k < p.n_slots; k++) {
            const int64_t e = padded ? job.live(t, k) : (int64_t)(int32_t)__ldcg(key + k);
            if (e < 0)
                continue;
            pick[n].row = (u32)__ldcg(job.block + e) + (padded ? (u32)t : __ldcg(rank + k) - __ldcg(job.first + e));
            pick[n++].weight = p.weights.data == NULL
                                   ? 1.0f
                                   : syc_load_float(syc_row(p.weights, t) + (size_t)k * weight_bytes, p.weight_type);
        }
        job.n_picks[t] = n;
        if (padded)
            job.at[t] = n > 0 || !p.keep ? (u32)t : NO_ROW;
        else
            job.at[t] = n > 0 ? __ldcg(rank + p.n_slots) - __ldcg(job.first + p.n_experts) : NO_ROW;
    }
}

/* Four or eight elements of a row as floats. */
template <sy_type type> struct vector {
    enum { N = type == SY_TYPE_F32 ? 4 : 8, ABREAST = 2, AHEAD = 2 }; /* numbers; vectors and rows loaded at a time */
    u32 word[4];

    __device__ void load(const u8 *p)
    {
        const uint4 v = __ldcs((const uint4 *)p);
        word[0] = v.x, word[1] = v.y, word[2] = v.z, word[3] = v.w;
    }
    __device__ float at(int i) const
    {
        if (type == SY_TYPE_F32)
            return __uint_as_float(word[i & 3]);
        const u16 bits = (u16)(word[i / 2] >> (16 * (i & 1)));
        return type == SY_TYPE_F16 ? syc_from_f16(bits) : syc_from_bf16(bits);
    }
    static __device__ void store(u8 *p, const float *sum)
    {
        u32 out[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < N; i++)
            if (type == SY_TYPE_F32)
                out[i & 3] = __float_as_uint(syc_canonical(sum[i]));
            else
                out[i / 2] |= (u32)(type == SY_TYPE_F16 ? syc_to_f16(sum[i]) : syc_to_bf16(sum[i])) << (16 * (i & 1));
        __stcs((uint4 *)p, make_uint4(out[0], out[1], out[2], out[3]));
    }
};

/* One element of any alignment. */
template <sy_type type> struct element {
    enum { N = 1, ABREAST = 1, AHEAD = 4 };
    float value;

    __device__ void load(const u8 *p) { value = syc_load_float(p, type); }
    __device__ float at(int) const { return value; }
    static __device__ void store(u8 *p, const float *sum) { syc_store_float(p, type, syc_canonical(*sum)); }
};

enum { SUM_THREADS = 256, SUM_TILE = 2048 /* vectors of a row that a block takes at most */ };

struct sum_shape {
    int64_t tiles;           /* blocks of a row */
    int64_t tokens;          /* or tokens of a block */
    int64_t width;           /* vectors of a row */
    struct syc_divisor tile; /* vectors of a row in a block */
};

/* A vector of the output, and the rows that are added. */
struct sum_item {
    const struct pick *pick;
    u32 n;
    int64_t offset; /* bytes in a row */
    u8 *to;         /* NULL: none */
};

/* Adds the next rows to every item. */
template <class V> static __device__ __forceinline__ void add_rows(const struct syi_rows input, const struct sum_item *item, u32 j, float (*sum)[V::N])
{
    V row[V::ABREAST][V::AHEAD];
    float weight[V::ABREAST][V::AHEAD];
#pragma unroll
    for (int v = 0; v < V::ABREAST; v++)
#pragma unroll
        for (int u = 0; u < V::AHEAD; u++)
            if (j + (u32)u < item[v].n) {
                row[v][u].load(syc_row(input, item[v].pick[j + (u32)u].row) + item[v].offset);
                weight[v][u] = item[v].pick[j + (u32)u].weight;
            }
#pragma unroll
    for (int v = 0; v < V::ABREAST; v++)
#pragma unroll
        for (int u = 0; u < V::AHEAD; u++)
            if (j + (u32)u < item[v].n)
#pragma unroll
                for (int k = 0; k < V::N; k++)
                    sum[v][k] = __fadd_rn(sum[v][k], __fmul_rn(weight[v][u], row[v][u].at(k)));
}

template <class V>
static __global__ void __launch_bounds__(SUM_THREADS)
    reduce_sum(const struct reduce job, const struct sum_shape shape, const struct syc_gate gate)
{
    const int64_t group = blockIdx.x / shape.tiles, column = (blockIdx.x - group * shape.tiles) * shape.tile.d;
    const int64_t first = group * shape.tokens, bytes = V::N * (job.p.type == SY_TYPE_F32 ? 4 : 2);
    const u32 all = (u32)min(shape.tokens, job.p.n_tokens - first) * shape.tile.d;
    if (!syc_may_write(gate))
        return;
    for (u32 begin = threadIdx.x; begin < all; begin += V::ABREAST * SUM_THREADS) {
        struct sum_item item[V::ABREAST];
        float sum[V::ABREAST][V::N];
        u32 most = 0;
#pragma unroll
        for (int v = 0; v < V::ABREAST; v++) {
            const u32 i = begin + (u32)v * SUM_THREADS, token = syc_divide(i, shape.tile);
            const int64_t t = first + token, c = column + (i - token * shape.tile.d);
            const u32 at = i < all && c < shape.width ? job.at[t] : NO_ROW;
            item[v] = {job.pick + t * job.p.n_slots, at != NO_ROW ? job.n_picks[t] : 0, c * bytes,
                       at != NO_ROW ? syc_out_row(job.p.output, at) + c * bytes : NULL};
            most = max(most, item[v].n);
#pragma unroll
            for (int k = 0; k < V::N; k++)
                sum[v][k] = 0.0f;
        }
        for (u32 j = 0; j < most; j += V::AHEAD)
            add_rows<V>(job.p.input, item, j, sum);
#pragma unroll
        for (int v = 0; v < V::ABREAST; v++)
            if (item[v].to != NULL)
                V::store(item[v].to, sum[v]);
    }
}

template <class V> static void add(struct syc_call *call, const struct reduce &job)
{
    struct sum_shape shape = {1, 1, job.p.hidden / V::N, {0, 0, 0}};
    const int64_t tile = shape.width < SUM_TILE ? shape.width : (int64_t)SUM_TILE;
    shape.tiles = syc_ceil(shape.width, tile);
    shape.tokens = tile < SUM_TILE / 4 ? SUM_TILE / 2 / tile : 1;
    shape.tile = syc_divisor_of((u32)tile);
    syc_launch(&call->queue, reduce_sum<V>, SYC_EARLY, syc_ceil(job.p.n_tokens, shape.tokens) * shape.tiles, SUM_THREADS, 0, job,
               shape, call->gate);
}

template <sy_type type> static void add_type(struct syc_call *call, const struct reduce &job)
{
    const struct syi_local_reduce_plan *const p = &job.p;
    const u64 bits = (u64)(uintptr_t)p->input.data | (u64)(uintptr_t)p->output.data | (u64)p->input.stride | (u64)p->output.stride |
                     (u64)p->hidden * (type == SY_TYPE_F32 ? 4 : 2);
    if (bits % 16 == 0)
        add<struct vector<type>>(call, job);
    else
        add<struct element<type>>(call, job);
}

/* ---- The call ------------------------------------------------------------------------------------------------------ */

static struct reduce lay_out(const struct syi_local_reduce_plan *p, struct syc_scratch *scratch)
{
    struct reduce job = {*p, syc_split_by(p->interleave, p->n_tokens), syc_split_by(p->n_tokens / p->n_positions, p->n_tokens),
                         syc_split_by(p->align, p->n_tokens + p->align), syc_split_by(p->n_slots + 1, p->n_tokens * (p->n_slots + 1)),
                         NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL};
    job.pick = scratch->take<struct pick>(p->n_tokens * p->n_slots);
    job.n_picks = scratch->take<u32>(p->n_tokens);
    job.at = scratch->take<u32>(p->n_tokens);
    job.block = scratch->take<int64_t>(p->n_experts);
    if (p->layout == SY_LAYOUT_PADDED)
        return job;
    job.key = scratch->take<u32>(p->n_tokens * (p->n_slots + 1));
    job.rank = scratch->take<u32>(p->n_tokens * (p->n_slots + 1));
    job.first = scratch->take<u32>(p->n_experts + 1);
    job.count = scratch->take<u32>(p->n_experts + 1);
    return job;
}

size_t syc_local_reduce_workspace(const struct syc_device *device, const union syi_plan *plan)
{
    const struct syi_local_reduce_plan *const p = &plan->local_reduce;
    struct syc_scratch scratch = {NULL, 0};
    lay_out(p, &scratch);
    if (p->layout == SY_LAYOUT_PADDED)
        return scratch.used;
    return scratch.used + syc_rank_bytes(p->n_tokens * (p->n_slots + 1), p->n_experts + 1, device->processors);
}

static int64_t blocks_for(const struct syc_call *call, int64_t n, int most)
{
    const int64_t wanted = n / 256 + 1, limit = most * (int64_t)call->device->processors;
    return wanted < limit ? wanted : limit;
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
    if (expert) {
        const struct reduce_keys keys = {p->n_tokens * (p->n_slots + 1), (int)(p->n_experts + 1), job.key};
        const struct reduce_ranks ranks = {job.rank, job.first, job.count};
        syc_launch(&call->queue, reduce_live, SYC_AFTER, blocks_for(call, keys.n, 8), 256, 0, keys, job);
        syc_rank(call, keys, ranks, scratch.rest());
    }
    validate(call, job, expert ? SYC_EARLY : SYC_AFTER);
    syc_launch(&call->queue, reduce_picks, SYC_EARLY, blocks_for(call, p->n_tokens, 4), 256, 0, job, call->gate);
    if (p->type == SY_TYPE_F32)
        add_type<SY_TYPE_F32>(call, job);
    else if (p->type == SY_TYPE_F16)
        add_type<SY_TYPE_F16>(call, job);
    else
        add_type<SY_TYPE_BF16>(call, job);
}
