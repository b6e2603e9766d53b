/*
 * moe_map_physical on a device. The slots of every expert are counted, which tells the experts that are named; the
 * validation chooses for FIRST and LOCAL; BALANCED ranks the slots of an expert; then every slot finds its replica.
 */
#include "cuda/backend.cuh"
#include "cuda/load.cuh"
#include "cuda/rank.cuh"
#include "cuda/scratch.cuh"

enum { IN_SHARED = 8192 }; /* counters that every block has for itself */

/* Slots that are ranked at once: their ranks have 32 bits. Emulated calls have several such parts. */
#ifdef SWITCHYARD_CUDA_EMULATED
#define PART ((int64_t)60)
#else
#define PART ((int64_t)1 << 30)
#endif

struct physical {
    struct syi_moe_map_physical_plan p;
    struct syc_split columns;
    int64_t n_slots;               /* of all tokens */
    int64_t here, near, node_rows; /* LOCAL: first physical experts of the device and of its node; how many the node has */
    u64 *named;                    /* [E] slots of an expert */
    u64 *used;                     /* [P] slots of a physical expert, NULL: not wanted */
    u32 *replicas;                 /* [E], of those that are named */
    int32_t *first;                /* [E] FIRST and LOCAL: the physical expert */
    /* BALANCED only */
    u64 *turn;               /* [E] slots before this part */
    u32 *in_part, *begin;    /* [E] slots of this part, the rank of the first */
    u32 *rank;               /* [PART] */

    __device__ int64_t id(int64_t t, int64_t j) const
    {
        const u8 *const row = syc_row(p.ids, t);
        return p.id_type == SY_TYPE_U16 ? (int64_t)syc_load_here<u16>(row + 2 * j)
               : p.id_type == SY_TYPE_I32 ? (int64_t)(int32_t)syc_load_here<u32>(row + 4 * j)
                                          : (int64_t)syc_load_here<u64>(row + 8 * j);
    }
    __device__ int64_t id_of(int64_t i) const
    {
        const int64_t t = syc_quotient(i, columns);
        return id(t, i - t * columns.d);
    }
    __device__ bool has(int64_t e) const { return e >= 0 && e < p.n_experts; }
    __device__ int32_t entry(int64_t e, int64_t r) const { return (int32_t)syc_load_here<u32>(syc_row(p.table, e) + 4 * r); }
};

/* ---- Counting ----------------------------------------------------------------------------------------------------- */

/* Counters of a block, or where they are too many those of all. */
struct bins {
    u32 *own; /* NULL: none */
    u64 *all;
    int n;

    __device__ void begin() const
    {
        for (int i = (int)threadIdx.x; own != NULL && i < n; i += 256)
            own[i] = 0;
        __syncthreads();
    }
    __device__ void add(int64_t i) const
    {
        if (own != NULL)
            atomicAdd(&own[i], 1u);
        else
            atomicAdd(&all[i], (u64)1);
    }
    __device__ void end() const
    {
        __syncthreads();
        for (int i = (int)threadIdx.x; own != NULL && i < n; i += 256)
            if (own[i] > 0)
                atomicAdd(&all[i], (u64)own[i]);
    }
};

static size_t shared_bytes(int64_t n) { return n <= IN_SHARED ? (size_t)n * sizeof(u32) : 0; }

static __global__ void __launch_bounds__(256) physical_count(const __grid_constant__ struct physical job)
{
    SYC_DYNAMIC_SHARED(u32, shared);
    const struct bins bins = {job.p.n_experts <= IN_SHARED ? shared : NULL, job.named, (int)job.p.n_experts};
    bins.begin();
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < job.n_slots; i += (int64_t)gridDim.x * 256) {
        const int64_t e = job.id_of(i);
        if (job.has(e))
            bins.add(e);
    }
    bins.end();
}

/* ---- Validation --------------------------------------------------------------------------------------------------- */

/* A check (see syc_validate): slots, then experts, of which it stores what the choice of a replica needs. */
struct physical_check {
    int64_t n;
    struct physical job;

    __device__ bool bad_slot(int64_t i, struct syi_found *f) const
    {
        const struct syi_moe_map_physical_plan &p = job.p;
        const int64_t t = syc_quotient(i, job.columns), j = i - t * job.columns.d, e = job.id(t, j);
        const int64_t none = p.id_type == SY_TYPE_U16 ? (int64_t)UINT16_MAX : (int64_t)-1;
        *f = {SYI_BAD_ID_RANGE, 0, t, j, e, p.n_experts, 0};
        return !job.has(e) && !(p.allow_missing && (e == p.n_experts || e == none));
    }
    __device__ int64_t count_replicas(int64_t e) const
    {
        if (job.p.replica_count != NULL)
            return (int32_t)syc_load<u32>(job.p.replica_count + 4 * e);
        int64_t r = 0;
        while (r < job.p.n_replicas && job.entry(e, r) >= 0)
            r++;
        return r;
    }
    __device__ bool bad_expert(int64_t e, int64_t n_of, struct syi_found *f) const
    {
        const struct syi_moe_map_physical_plan &p = job.p;
        if (__ldcg(job.named + e) > 0 && (n_of < 1 || n_of > p.n_replicas)) {
            *f = {p.replica_count != NULL ? SYI_BAD_REPLICA_COUNT : SYI_BAD_REPLICA_NONE, 0, -1, e, n_of, p.n_replicas, 0};
            return true;
        }
        for (int64_t r = 0; r < n_of && r < p.n_replicas; r++) {
            const int64_t physical = job.entry(e, r);
            if (physical < 0 || physical >= p.n_physical) {
                *f = {SYI_BAD_REPLICA_ENTRY, 0, e, r, physical, p.n_physical, 0};
                return true;
            }
        }
        const int64_t before = p.counts_before != NULL ? (int64_t)syc_load<u64>(p.counts_before + 8 * e) : 0;
        *f = {SYI_BAD_BEFORE_NEGATIVE, 0, -1, e, before, 0, 0};
        return before < 0;
    }
    /* 0: on the device; 1: on its node; 2: elsewhere. */
    __device__ int distance(int64_t physical) const
    {
        if (physical >= job.here && physical - job.here < job.p.per_device)
            return 0;
        return physical >= job.near && physical - job.near < job.node_rows ? 1 : 2;
    }
    /* Of the nearest replicas the one with number `device` mod how many there are. */
    __device__ int32_t nearest(int64_t e, int64_t n_of) const
    {
        int64_t at[3] = {0, 0, 0}, r = 0;
        for (int64_t i = 0; i < n_of; i++) {
            const int d = distance(job.entry(e, i));
            at[0] += d == 0;
            at[1] += d == 1;
        }
        const int near = at[0] > 0 ? 0 : at[1] > 0 ? 1 : 2;
        for (int64_t skip = job.p.device % (near == 0 ? at[0] : near == 1 ? at[1] : n_of);; r++)
            if (distance(job.entry(e, r)) == near && skip-- == 0)
                return job.entry(e, r);
    }
    __device__ void keep(int64_t e, int64_t n_of) const
    {
        const struct syi_moe_map_physical_plan &p = job.p;
        job.replicas[e] = (u32)n_of;
        job.first[e] = p.rule == SY_REPLICA_LOCAL ? nearest(e, n_of) : job.entry(e, 0);
        if (job.turn != NULL)
            job.turn[e] = p.counts_before != NULL ? syc_load<u64>(p.counts_before + 8 * e) : 0;
    }
    __device__ bool wrong(int64_t i) const
    {
        struct syi_found f;
        if (i < job.n_slots)
            return bad_slot(i, &f);
        const int64_t e = i - job.n_slots, n_of = count_replicas(e);
        if (bad_expert(e, n_of, &f))
            return true;
        if (__ldcg(job.named + e) > 0)
            keep(e, n_of);
        return false;
    }
    __device__ void explain(int64_t i, struct syi_found *f) const
    {
        if (i < job.n_slots)
            bad_slot(i, f);
        else
            bad_expert(i - job.n_slots, count_replicas(i - job.n_slots), f);
    }
};

/* ---- Ranks -------------------------------------------------------------------------------------------------------- */

/* Keys (see rank.cuh): experts of the slots of a part, which are validated. */
struct physical_keys {
    int64_t n;
    int n_keys;
    int64_t from;
    struct physical job;

    __device__ int key(int64_t i) const
    {
        const int64_t e = job.id_of(from + i);
        return job.has(e) ? (int)e : -1;
    }
    __device__ bool wrong(int64_t) const { return false; }
    __device__ void explain(int64_t, struct syi_found *) const {}
};

/* Out: the ranks of a part. */
struct physical_ranks {
    struct physical job;
    bool later; /* a part came before */

    __device__ void put(int64_t i, int, int64_t row) const { job.rank[i] = (u32)row; }
    __device__ void skip(int64_t) const {}
    __device__ void begin(int e, u32 at, u32 n) const
    {
        if (later)
            job.turn[e] += job.in_part[e];
        job.in_part[e] = n;
        job.begin[e] = at;
    }
    __device__ void end(u32) const {}
};

/* As syc_rank, behind the verdict of a validation that has been launched. */
static void rank_part(struct syc_call *call, const struct physical_keys &keys, const struct physical_ranks &out, unsigned char *scratch)
{
    const int processors = call->device->processors;
    if (keys.n_keys > SYC_MOST_COUNTED) {
        struct syc_sort_memory memory;
        const struct syc_rank_elements<struct physical_keys> elements = {keys};
        syc_sort_lay_out(&memory, keys.n, processors, scratch);
        const struct syc_sorted sorted = syc_sort(call, &memory, elements, keys.n, syc_key_bits(keys.n_keys));
        syc_place_sorted(call, elements, sorted, keys.n, keys.n_keys, out);
        return;
    }
    struct syc_gate open = call->gate; /* ranks are scratch */
    struct syc_ranks ranks = syc_ranks_of(keys.n, processors);
    ranks.counts = (u32 *)scratch;
    open.n = 0;
    open.order = NULL;
    syc_rank_launch(call, keys, keys, ranks, out, open);
}

/* ---- Writing ------------------------------------------------------------------------------------------------------ */

static __device__ __forceinline__ u32 remainder_of(u64 i, u32 n) { return i >> 32 == 0 ? (u32)i % n : (u32)(i % n); }

/* The physical expert of slot i, which names expert e of token t. */
static __device__ __forceinline__ int32_t replica_of(const struct physical &job, int64_t i, int64_t t, int64_t e)
{
    const u64 token = (u64)job.p.token_base + (u64)t;
    switch (job.p.rule) {
    case SY_REPLICA_ROUND_ROBIN:
        return job.entry(e, remainder_of(token, __ldcg(job.replicas + e)));
    case SY_REPLICA_HASH:
        return job.entry(e, (u32)(token * 2654435769ull) % __ldcg(job.replicas + e));
    case SY_REPLICA_BALANCED:
        return job.entry(e, remainder_of(__ldcg(job.turn + e) + (__ldcg(job.rank + i % PART) - __ldcg(job.begin + e)), __ldcg(job.replicas + e)));
    default:
        return __ldcg(job.first + e);
    }
}

static __global__ void __launch_bounds__(256)
    physical_write(const __grid_constant__ struct physical job, int64_t from, int64_t end, const __grid_constant__ struct syc_gate gate)
{
    SYC_DYNAMIC_SHARED(u32, shared);
    const struct syi_moe_map_physical_plan &p = job.p;
    const struct bins bins = {job.used != NULL && p.n_physical <= IN_SHARED ? shared : NULL, job.used, (int)p.n_physical};
    bins.begin();
    if (!syc_may_write(gate))
        return;
    for (int64_t i = from + (int64_t)blockIdx.x * 256 + threadIdx.x; i < end; i += (int64_t)gridDim.x * 256) {
        const int64_t t = syc_quotient(i, job.columns), j = i - t * job.columns.d, e = job.id(t, j);
        const int32_t physical = job.has(e) ? replica_of(job, i, t, e) : -1;
        if (physical >= 0 && job.used != NULL)
            bins.add(physical);
        if (p.out.data == NULL)
            continue;
        if (p.out_type == SY_TYPE_U16)
            syc_store<u16>(syc_out_row(p.out, t) + 2 * j, (u16)physical);
        else
            syc_store_index(syc_out_row(p.out, t), j, physical, p.out_type);
    }
    bins.end();
}

/* Adds modulo 2^64. */
static __device__ void add_all(u8 *sums, const u64 *counts, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; sums != NULL && i < n; i += (int64_t)gridDim.x * 256)
        syc_store<u64>(sums + 8 * i, syc_load<u64>(sums + 8 * i) + __ldcg(counts + i));
}

static __global__ void __launch_bounds__(256) physical_add(const __grid_constant__ struct physical job, const __grid_constant__ struct syc_gate gate)
{
    if (!syc_may_write(gate))
        return;
    add_all(job.p.load, job.used, job.p.n_physical);
    add_all(job.p.logical_load, job.named, job.p.n_experts);
}

/* ---- The call ----------------------------------------------------------------------------------------------------- */

static struct physical lay_out(const struct syi_moe_map_physical_plan *p, struct syc_scratch *scratch)
{
    const int64_t n = p->n_experts;
    struct physical job = {};
    job.p = *p;
    job.n_slots = p->n_tokens * p->n_slots;
    job.columns = syc_split_by(p->n_slots, job.n_slots);
    job.here = p->device * p->per_device;
    if (p->node_size > 0) {
        job.near = p->device / p->node_size * p->node_size * p->per_device;
        job.node_rows = (p->node_size < INT32_MAX ? p->node_size : (int64_t)INT32_MAX) * p->per_device;
    }
    job.named = scratch->take<u64>(n);
    if (p->load != NULL)
        job.used = scratch->take<u64>(p->n_physical);
    job.replicas = scratch->take<u32>(n);
    job.first = scratch->take<int32_t>(n);
    if (p->rule != SY_REPLICA_BALANCED)
        return job;
    job.turn = scratch->take<u64>(n);
    job.in_part = scratch->take<u32>(n);
    job.begin = scratch->take<u32>(n);
    job.rank = scratch->take<u32>(job.n_slots < PART ? job.n_slots : PART);
    return job;
}

/* Experts have numbers of 31 bits here: more than any memory holds. */
size_t syc_moe_map_physical_workspace(const struct syc_device *device, const union syi_plan *plan)
{
    const struct syi_moe_map_physical_plan *const p = &plan->moe_map_physical;
    struct syc_scratch scratch = {NULL, 0};
    if (p->n_experts >= INT32_MAX)
        return SIZE_MAX;
    const struct physical job = lay_out(p, &scratch);
    return scratch.used + (job.turn != NULL ? syc_rank_bytes(job.n_slots < PART ? job.n_slots : PART, p->n_experts, device->processors) : 0);
}

static int64_t blocks_for(const struct syc_call *call, int64_t n)
{
    const int64_t wanted = n / 256 + 1, most = 4 * (int64_t)call->device->processors;
    return wanted < most ? wanted : most;
}

static void clear(struct syc_call *call, u64 *data, int64_t n)
{
    if (data != NULL && n > 0 && call->queue.error == cudaSuccess)
        call->queue.error = cudaMemsetAsync(data, 0, (size_t)n * sizeof(u64), call->queue.stream);
}

void syc_moe_map_physical(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_moe_map_physical_plan *const p = &plan->moe_map_physical;
    struct syc_scratch scratch = {call->scratch, 0};
    const struct physical job = lay_out(p, &scratch);
    const struct physical_check check = {job.n_slots + p->n_experts, job};
    clear(call, job.named, p->n_experts);
    clear(call, job.used, p->n_physical);
    syc_launch(&call->queue, physical_count, SYC_AFTER, blocks_for(call, job.n_slots), 256, shared_bytes(p->n_experts), job);
    syc_check(call, check);
    int64_t from = 0;
    do { /* once even without slots: faults are reported */
        const int64_t n = job.n_slots - from < PART ? job.n_slots - from : PART;
        if (job.turn != NULL && n > 0)
            rank_part(call, {n, (int)p->n_experts, from, job}, {job, from > 0}, scratch.rest());
        syc_launch(&call->queue, physical_write, SYC_EARLY, blocks_for(call, n), 256, job.used != NULL ? shared_bytes(p->n_physical) : 0,
                   job, from, from + n, call->gate);
        from += n;
    } while (from < job.n_slots);
    if (p->load != NULL || p->logical_load != NULL)
        syc_launch(&call->queue, physical_add, SYC_AFTER, blocks_for(call, p->n_physical > p->n_experts ? p->n_physical : p->n_experts), 256, 0,
                   job, call->gate);
}
