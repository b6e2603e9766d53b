/*
 * moe_map_physical on a device. The slots of every expert are counted, which tells the experts that are
 * named; the validation chooses for FIRST and LOCAL; BALANCED ranks the slots of an expert; then every slot
 * finds its replica. One block does all of it for few slots.
 */
#include "cuda/runtime/backend.cuh"
#include "cuda/prim/load.cuh"
#include "cuda/prim/rank.cuh"
#include "cuda/runtime/scratch.cuh"

enum { IN_SHARED = 8192 }; /* counters that every block has for itself */

/* Slots that are ranked at once: their ranks have 32 bits. Emulated calls have several such parts. */
#ifdef SWITCHYARD_CUDA_EMULATED
#define PART ((int64_t)60)
#define FEW 40 /* slots of one block */
#else
#define PART ((int64_t)1 << 30)
#define FEW (SYC_RANK_THREADS * SYC_RANK_EACH)
#endif

/* of one block: experts; physical ones, where they are counted */
enum { FEW_EXPERTS = 512, FEW_COUNTED = 4096 };

/* What is known of the experts that are named. */
struct named_experts {
    u32 *replicas;  /* [E] */
    int32_t *first; /* [E] FIRST and LOCAL: the physical expert */
    u64 *turn;      /* [E] BALANCED: slots before this part */
};

struct physical {
    syi_moe_map_physical_plan p;
    syc_split columns;
    int64_t n_slots; /* of all tokens */
    /* LOCAL: first physical experts of the device and of its node; how many the node has */
    int64_t here, near, node_rows;
    u64 *named; /* [E] slots of an expert */
    u64 *used;  /* [P] slots of a physical expert, NULL: not wanted */
    named_experts at;
    /* BALANCED only */
    u32 *in_part, *begin; /* [E] slots of this part, the rank of the first */
    u32 *rank;            /* [PART] */

    __device__ int64_t id(int64_t t, int64_t j) const
    {
        const u8 *const row = syc_row(p.ids, t);
        return p.ids.type == SY_TYPE_U16   ? (int64_t)syc_load<u16>(row + 2 * j)
               : p.ids.type == SY_TYPE_I32 ? (int64_t)(int32_t)syc_load<u32>(row + 4 * j)
                                           : (int64_t)syc_load<u64>(row + 8 * j);
    }
    __device__ int64_t id_of(int64_t i) const
    {
        const int64_t t = syc_quotient(i, columns);
        return id(t, i - t * columns.d);
    }
    __device__ bool has(int64_t e) const { return e >= 0 && e < p.n_experts; }
    __device__ int32_t entry(int64_t e, int64_t r) const
    {
        return (int32_t)syc_load<u32>(syc_row(p.table, e) + 4 * r);
    }
};

/* ---- Counting ---- */

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

static size_t shared_bytes(int64_t n)
{
    return n <= IN_SHARED ? (size_t)n * sizeof(u32) : 0;
}

static __global__ void __launch_bounds__(256) physical_count(const __grid_constant__ struct physical job)
{
    SYC_DYNAMIC_SHARED(u32, shared);
    const struct bins bins = {job.p.n_experts <= IN_SHARED ? shared : NULL, job.named, (int)job.p.n_experts};
    bins.begin();
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < job.n_slots;
         i += (int64_t)gridDim.x * 256) {
        const int64_t e = job.id_of(i);
        if (job.has(e))
            bins.add(e);
    }
    bins.end();
}

/* ---- Validation ---- */

/* A check (see syc_validate): slots, then experts, of which it stores what the choice of a replica needs. */
struct physical_check {
    int64_t n;
    struct physical job;

    __device__ bool bad_slot(int64_t i, syi_found *f) const
    {
        const syi_moe_map_physical_plan &p = job.p;
        const int64_t t = syc_quotient(i, job.columns), j = i - t * job.columns.d, e = job.id(t, j);
        const int64_t none = p.ids.type == SY_TYPE_U16 ? (int64_t)UINT16_MAX : (int64_t)-1;
        *f = {SYI_BAD_ID_RANGE, 0, t, j, e, p.n_experts, 0};
        return !job.has(e) && !(p.args.allow_missing && (e == p.n_experts || e == none));
    }
    __device__ int64_t count_replicas(int64_t e) const
    {
        if (job.p.replica_count.data != NULL)
            return (int32_t)syc_load<u32>(job.p.replica_count.data + 4 * e);
        enum { AHEAD = 8 };
#pragma unroll 1
        for (int64_t r = 0; r < job.p.n_replicas; r += AHEAD) {
            int32_t entry[AHEAD];
#pragma unroll
            for (int u = 0; u < AHEAD; u++)
                entry[u] = r + u < job.p.n_replicas ? job.entry(e, r + u) : -1;
#pragma unroll
            for (int u = 0; u < AHEAD; u++)
                if (entry[u] < 0)
                    return r + u;
        }
        return job.p.n_replicas;
    }
    __device__ bool bad_expert(int64_t e, int64_t n_of, bool named, syi_found *f) const
    {
        const syi_moe_map_physical_plan &p = job.p;
        if (named && (n_of < 1 || n_of > p.n_replicas)) {
            *f = {p.replica_count.data != NULL ? SYI_BAD_REPLICA_COUNT : SYI_BAD_REPLICA_NONE,
                  0,
                  -1,
                  e,
                  n_of,
                  p.n_replicas,
                  0};
            return true;
        }
        for (int64_t r = 0; r < n_of && r < p.n_replicas; r++) {
            const int64_t physical = job.entry(e, r);
            if (physical < 0 || physical >= p.n_physical) {
                *f = {SYI_BAD_REPLICA_ENTRY, 0, e, r, physical, p.n_physical, 0};
                return true;
            }
        }
        const int64_t before =
            p.counts_before.data != NULL ? (int64_t)syc_load<u64>(p.counts_before.data + 8 * e) : 0;
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
        for (int64_t skip = job.p.args.device % (near == 0 ? at[0] : near == 1 ? at[1] : n_of);; r++)
            if (distance(job.entry(e, r)) == near && skip-- == 0)
                return job.entry(e, r);
    }
    __device__ void keep(int64_t e, int64_t n_of, const named_experts &at) const
    {
        const syi_moe_map_physical_plan &p = job.p;
        at.replicas[e] = (u32)n_of;
        at.first[e] = p.args.rule == SY_REPLICA_LOCAL ? nearest(e, n_of) : job.entry(e, 0);
        if (at.turn != NULL)
            at.turn[e] = p.counts_before.data != NULL ? syc_load<u64>(p.counts_before.data + 8 * e) : 0;
    }
    __device__ bool wrong(int64_t i) const
    {
        syi_found f;
        if (i < job.n_slots)
            return bad_slot(i, &f);
        const int64_t e = i - job.n_slots;
        return wrong_expert(e, __ldcg(job.named + e) > 0, job.at);
    }
    __device__ bool wrong_expert(int64_t e, bool named, const named_experts &at) const
    {
        syi_found f;
        const int64_t n_of = count_replicas(e);
        if (bad_expert(e, n_of, named, &f))
            return true;
        if (named)
            keep(e, n_of, at);
        return false;
    }
    __device__ void explain(int64_t i, syi_found *f) const
    {
        explain_named(i, i >= job.n_slots && __ldcg(job.named + i - job.n_slots) > 0, f);
    }
    __device__ void explain_named(int64_t i, bool named, syi_found *f) const
    {
        if (i < job.n_slots)
            bad_slot(i, f);
        else
            bad_expert(i - job.n_slots, count_replicas(i - job.n_slots), named, f);
    }
};

/* ---- Ranks ---- */

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
    __device__ void explain(int64_t, syi_found *) const {}
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
            job.at.turn[e] += job.in_part[e];
        job.in_part[e] = n;
        job.begin[e] = at;
    }
    __device__ void end(u32) const {}
};

/* As syc_rank, behind the verdict of a validation that has been launched. */
static void rank_part(syc_call *call, const physical_keys &keys, const physical_ranks &out,
                      unsigned char *scratch)
{
    const int processors = call->device->processors;
    if (keys.n_keys > SYC_MOST_COUNTED) {
        syc_sort_memory memory;
        const syc_rank_elements<physical_keys> elements = {keys};
        syc_sort_lay_out(&memory, keys.n, processors, scratch);
        const syc_sorted sorted = syc_sort(call, &memory, elements, keys.n, syc_key_bits(keys.n_keys));
        syc_place_sorted(call, elements, sorted, keys.n, keys.n_keys, out);
        return;
    }
    syc_gate open = call->gate; /* ranks are scratch */
    syc_ranks ranks = syc_ranks_of(keys.n, processors);
    ranks.counts = (u32 *)scratch;
    open.n = 0;
    open.order = NULL;
    syc_rank_launch(call, keys, keys, ranks, out, open);
}

/* ---- Writing ---- */

SYC_COLD u32 remainder_of_large(u64 i, u32 n)
{
    return (u32)(i % n);
}
SYC_INLINE u32 remainder_of(u64 i, u32 n)
{
    return i >> 32 == 0 ? (u32)i % n : remainder_of_large(i, n);
}

/* The physical expert of a slot that names expert e of token t, which has so many replicas; `turn`: of
   BALANCED. */
SYC_INLINE int32_t replica_of(const struct physical &job, int64_t t, int64_t e, u32 replicas, int32_t first,
                              u64 turn)
{
    const u64 token = (u64)job.p.args.token_base + (u64)t;
    switch (job.p.args.rule) {
    case SY_REPLICA_ROUND_ROBIN:
        return job.entry(e, remainder_of(token, replicas));
    case SY_REPLICA_HASH:
        return job.entry(e, (u32)(token * 2654435769ull) % replicas);
    case SY_REPLICA_BALANCED:
        return job.entry(e, remainder_of(turn, replicas));
    default:
        return first;
    }
}

SYC_INLINE void store_physical(const syi_moe_map_physical_plan &p, int64_t t, int64_t j, int32_t physical)
{
    if (p.out.data == NULL)
        return;
    if (p.out.type == SY_TYPE_U16)
        syc_store<u16>(syc_out_row(p.out, t) + 2 * j, (u16)physical);
    else
        syc_store_index(syc_out_row(p.out, t), j, physical, p.out.type);
}

static __global__ void __launch_bounds__(256)
    physical_write(const __grid_constant__ struct physical job, int64_t from, int64_t end,
                   const __grid_constant__ syc_gate gate)
{
    SYC_DYNAMIC_SHARED(u32, shared);
    const syi_moe_map_physical_plan &p = job.p;
    const struct bins bins = {job.used != NULL && p.n_physical <= IN_SHARED ? shared : NULL, job.used,
                              (int)p.n_physical};
    bins.begin();
    if (!syc_may_write(gate))
        return;
    for (int64_t i = from + (int64_t)blockIdx.x * 256 + threadIdx.x; i < end; i += (int64_t)gridDim.x * 256) {
        const int64_t t = syc_quotient(i, job.columns), j = i - t * job.columns.d, e = job.id(t, j);
        int32_t physical = -1;
        if (job.has(e)) {
            const u64 turn = job.at.turn != NULL ? __ldcg(job.at.turn + e) +
                                                       (__ldcg(job.rank + i % PART) - __ldcg(job.begin + e))
                                                 : 0;
            physical = replica_of(job, t, e, __ldcg(job.at.replicas + e), __ldcg(job.at.first + e), turn);
            if (job.used != NULL)
                bins.add(physical);
        }
        store_physical(p, t, j, physical);
    }
    bins.end();
}

/* Adds modulo 2^64. */
static __device__ void add_all(u8 *sums, const u64 *counts, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; sums != NULL && i < n;
         i += (int64_t)gridDim.x * 256)
        syc_store<u64>(sums + 8 * i, syc_load<u64>(sums + 8 * i) + __ldcg(counts + i));
}

static __global__ void __launch_bounds__(256)
    physical_add(const __grid_constant__ struct physical job, const __grid_constant__ syc_gate gate)
{
    if (!syc_may_write(gate))
        return;
    add_all(job.p.load.data, job.used, job.p.n_physical);
    add_all(job.p.logical_load.data, job.named, job.p.n_experts);
}

/* ---- Few slots ---- */

static bool is_few(const syi_moe_map_physical_plan *p)
{
    return p->n_tokens * p->n_slots <= FEW && p->n_experts <= FEW_EXPERTS &&
           (p->load.data == NULL || p->n_physical <= FEW_COUNTED);
}

static size_t few_bytes(const syi_moe_map_physical_plan *p)
{
    return (size_t)syc_padded_keys((int)p->n_experts) * (sizeof(u64) + 3 * sizeof(u32) + SYC_RANK_WARPS) +
           (p->load.data != NULL ? (size_t)p->n_physical * sizeof(u32) : 0);
}

SYC_INLINE void add_counts(u8 *sums, const u32 *counts, int n)
{
#pragma unroll 1
    for (int i = (int)threadIdx.x; sums != NULL && i < n; i += SYC_RANK_THREADS)
        syc_store<u64>(sums + 8 * i, syc_load<u64>(sums + 8 * i) + counts[i]);
}

/* Rare, and out of line: a kernel that runs once is as fast as its code is fetched. */
SYC_COLD bool is_bad_slot(const physical_check &check, int64_t i)
{
    syi_found f;
    return check.bad_slot(i, &f);
}
SYC_COLD void report_few(const physical_check &check, u64 first, bool named, const syc_gate &gate)
{
    gate.order[0] = first;
    check.explain_named((int64_t)first, named, &gate.found[0]);
    __threadfence();
    syc_report_fault(gate);
}

/* NOLINT(readability-function-size): steps between barriers, which share counters in registers */
/* All of it: slots are ranked, which counts them, and experts validated. */
static __global__ void __launch_bounds__(SYC_RANK_THREADS)
    physical_few(const __grid_constant__ physical_check check, const __grid_constant__ syc_gate gate)
{
    SYC_DYNAMIC_SHARED(u64, shared);
    __shared__ u64 first;
    const struct physical &job = check.job;
    const syi_moe_map_physical_plan &p = job.p;
    const int n_experts = (int)p.n_experts, padded = syc_padded_keys(n_experts), n = (int)job.n_slots,
              each = (n + SYC_RANK_THREADS - 1) / SYC_RANK_THREADS;
    u32 *const named = (u32 *)(shared + padded), *const replicas = named + padded; /* slots of an expert */
    const named_experts at = {replicas, (int32_t *)replicas + padded, shared};
    u8 *const of_warp = (u8 *)(replicas + 2 * padded);
    u32 *const used = (u32 *)(of_warp + padded * SYC_RANK_WARPS);
    const bool closed = threadIdx.x == 0 && __ldcg(gate.closed) != 0;
    if (threadIdx.x == 0)
        first = SYC_NO_FAULT;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < padded * (1 + SYC_RANK_WARPS / 4); i += SYC_RANK_THREADS)
        (i < padded ? named : (u32 *)of_warp - padded)[i] = 0;
#pragma unroll 1
    for (int i = (int)threadIdx.x; p.load.data != NULL && i < (int)p.n_physical; i += SYC_RANK_THREADS)
        used[i] = 0;
    __syncthreads();
    int key[SYC_RANK_EACH];
    u32 rank[SYC_RANK_EACH] = {};
#pragma unroll
    for (int u = 0; u < SYC_RANK_EACH; u++) {
        const int i = (int)syc_rank_element(0, each, u), t = (int)syc_divide((u32)i, job.columns.small);
        const int64_t e = u < each && i < n ? job.id(t, i - t * (int)job.columns.d) : -1;
        key[u] = job.has(e) ? (int)e : -1;
        if (u < each && i < n && key[u] < 0 && is_bad_slot(check, i))
            atomicMin(&first, (u64)i);
    }
    syc_rank_round(key, rank, each, n_experts, named, of_warp);
#pragma unroll 1
    for (int e = (int)threadIdx.x; e < n_experts; e += SYC_RANK_THREADS)
        if (check.wrong_expert(e, named[e] > 0, at))
            atomicMin(&first, (u64)(n + e));
    if (__syncthreads_or(closed) != 0 || first != SYC_NO_FAULT) {
        if (threadIdx.x == 0 && first != SYC_NO_FAULT)
            report_few(check, first, (int64_t)first >= n && named[first - (u64)n] > 0, gate);
        return;
    }
#pragma unroll 1
    for (int u = 0; u < each; u++) {
        const int i = (int)syc_rank_element(0, each, u), t = (int)syc_divide((u32)i, job.columns.small);
        if (i >= n)
            break;
        int e = -1;
        u32 own = 0;
#pragma unroll
        for (int v = 0; v < SYC_RANK_EACH; v++) {
            e = v == u ? key[v] : e;
            own = v == u ? rank[v] : own;
        }
        const int32_t physical =
            e >= 0 ? replica_of(job, t, e, at.replicas[e], at.first[e], at.turn[e] + own) : -1;
        if (physical >= 0 && p.load.data != NULL)
            atomicAdd(&used[physical], 1u);
        store_physical(p, t, i - t * (int)job.columns.d, physical);
    }
    __syncthreads();
    if (p.load.data != NULL)
        add_counts(p.load.data, used, (int)p.n_physical);
    add_counts(p.logical_load.data, named, n_experts);
}

/* ---- The call ---- */

static struct physical lay_out(const syi_moe_map_physical_plan *p, syc_scratch *scratch)
{
    const int64_t n = p->n_experts;
    struct physical job = {};
    job.p = *p;
    job.n_slots = p->n_tokens * p->n_slots;
    job.columns = syc_split_by(p->n_slots, job.n_slots);
    job.here = p->args.device * p->per_device;
    if (p->args.node_size > 0) {
        job.near = p->args.device / p->args.node_size * p->args.node_size * p->per_device;
        job.node_rows =
            (p->args.node_size < INT32_MAX ? p->args.node_size : (int64_t)INT32_MAX) * p->per_device;
    }
    job.named = scratch->take<u64>(n);
    u64 *const used = scratch->take<u64>(p->n_physical); /* always: a query knows no outputs */
    job.used = p->load.data != NULL ? used : NULL;
    job.at.replicas = scratch->take<u32>(n);
    job.at.first = scratch->take<int32_t>(n);
    if (p->args.rule != SY_REPLICA_BALANCED)
        return job;
    job.at.turn = scratch->take<u64>(n);
    job.in_part = scratch->take<u32>(n);
    job.begin = scratch->take<u32>(n);
    job.rank = scratch->take<u32>(job.n_slots < PART ? job.n_slots : PART);
    return job;
}

/* Experts have numbers of 31 bits here: more than any memory holds. */
size_t syc_moe_map_physical_workspace(const syc_device *device, const syi_plan *plan)
{
    const syi_moe_map_physical_plan *const p = &plan->moe_map_physical;
    syc_scratch scratch = {NULL, 0};
    if (p->n_experts >= INT32_MAX)
        return SIZE_MAX;
    const struct physical job = lay_out(p, &scratch);
    return scratch.used + (job.at.turn != NULL ? syc_rank_bytes(job.n_slots < PART ? job.n_slots : PART,
                                                                p->n_experts, device->processors)
                                               : 0);
}

static int64_t blocks_for(const syc_call *call, int64_t n)
{
    return syc_grid(call, n / 256 + 1, grid_policy::COUNT);
}

static void clear(syc_call *call, u64 *data, int64_t n)
{
    if (data != NULL && n > 0 && call->queue.error == cudaSuccess)
        call->queue.error = cudaMemsetAsync(data, 0, (size_t)n * sizeof(u64), call->queue.stream);
}

void syc_moe_map_physical(syc_call *call, const syi_plan *plan)
{
    const syi_moe_map_physical_plan *const p = &plan->moe_map_physical;
    syc_scratch scratch = {call->scratch, 0};
    const struct physical job = lay_out(p, &scratch);
    const physical_check check = {job.n_slots + p->n_experts, job};
    if (syc_takes(call, "one_block", is_few(p) ? NULL : "slots are many")) {
        call->gate.n = 1;
        syc_launch(&call->queue, physical_few, SYC_AFTER, 1, SYC_RANK_THREADS, few_bytes(p), check,
                   call->gate);
        return;
    }
    syc_takes(call, "many_blocks");
    clear(call, job.named, p->n_experts);
    clear(call, job.used, p->n_physical);
    syc_launch(&call->queue, physical_count, SYC_AFTER, blocks_for(call, job.n_slots), 256,
               shared_bytes(p->n_experts), job);
    syc_check(call, check);
    int64_t from = 0;
    do { /* once even without slots: faults are reported */
        const int64_t n = job.n_slots - from < PART ? job.n_slots - from : PART;
        if (job.at.turn != NULL && n > 0)
            rank_part(call, {n, (int)p->n_experts, from, job}, {job, from > 0}, scratch.rest());
        syc_launch(&call->queue, physical_write, SYC_EARLY, blocks_for(call, n), 256,
                   job.used != NULL ? shared_bytes(p->n_physical) : 0, job, from, from + n, call->gate);
        from += n;
    } while (from < job.n_slots);
    if (p->load.data != NULL || p->logical_load.data != NULL)
        syc_launch(&call->queue, physical_add, SYC_AFTER,
                   blocks_for(call, p->n_physical > p->n_experts ? p->n_physical : p->n_experts), 256, 0, job,
                   call->gate);
}
