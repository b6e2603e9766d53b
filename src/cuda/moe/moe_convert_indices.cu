/*
 * moe_convert_indices on a device. The owner of a row is the least position of sorted_indices that names it,
 * found by atomic minima. Forms that list the rows of a token have them by token already, or get them listed
 * in any order; a warp finds the place of each among them.
 */
#include "cuda/runtime/backend.cuh"
#include "cuda/prim/load.cuh"
#include "cuda/prim/one_block.cuh"
#include "cuda/runtime/scratch.cuh"

#define NOWHERE (~0ull)

enum { THREADS = 256, FEW = 1 << 14 }; /* FEW: numbers that one block validates and writes */

struct convert {
    syi_moe_convert_indices_plan p;
    syc_split columns; /* of the input: positions of a token */
    int64_t n_in;      /* positions: slots, rows, or E of every token */
    int64_t most;      /* rows of a token, where these are listed */
    u64 *at;           /* [M]: first position that names a row, unless rows name tokens */
    u32 *n_of, *list;  /* [T], [T][most]: rows of a token, if rows name tokens */

    __device__ bool by_row() const { return p.args.from == SY_INDEX_ROW; }
    __device__ bool by_slot() const { return p.args.from == SY_INDEX_SLOT; }
    __device__ int64_t entry(int64_t i) const { return syc_index(p.in.data, i, SY_TYPE_I32); }

    /* The row at a position; -1: none, or not a row. */
    __device__ int64_t row_at(int64_t i) const
    {
        int64_t row = -1;
        if (by_slot()) {
            row = entry(i);
        } else {
            const int64_t t = syc_quotient(i, columns);
            const u8 *const entries = syc_row(p.in, t);
            const int64_t n = syc_index(entries, 2 * p.n_experts, SY_TYPE_I32);
            if (n <= p.n_experts && i - t * p.n_experts < n)
                row = syc_index(entries, i - t * p.n_experts, SY_TYPE_I32);
        }
        return row < p.n_rows ? row : -1;
    }

    /* The token of a row, -1: none, or not a token. */
    __device__ int64_t owner(int64_t row) const
    {
        if (!by_row()) {
            const u64 first = __ldcg(at + row);
            return first == NOWHERE ? -1 : syc_quotient((int64_t)first, columns);
        }
        const int64_t t = entry(row);
        return t < p.n_tokens ? t : -1;
    }

    /* Entries of a token, the rows and -1; these rows are distinct when nothing is wrong. */
    __device__ int64_t n_entries(int64_t t) const
    {
        return by_slot()                    ? p.n_slots
               : p.args.from == SY_INDEX_TE ? syc_index(syc_row(p.in, t), 2 * p.n_experts, SY_TYPE_I32)
                                            : (int64_t)__ldcg(n_of + t);
    }
    __device__ u32 entry_of(int64_t t, int64_t j) const
    {
        return by_slot()                    ? (u32)entry(t * p.n_slots + j)
               : p.args.from == SY_INDEX_TE ? (u32)syc_index(syc_row(p.in, t), j, SY_TYPE_I32)
                                            : __ldcg(list + t * most + j);
    }
    /* Rows of a token. */
    __device__ int64_t n_rows(int64_t t) const
    {
        const int64_t entries = n_entries(t);
        int64_t n = 0;
        for (int64_t j = 0; by_slot() && j < entries; j++)
            n += (int32_t)entry_of(t, j) >= 0;
        return by_slot() ? n : entries;
    }
};

/* The threads of all blocks, or of one. */
struct crew {
    int64_t first, step;
};

SYC_INLINE struct crew all_threads()
{
    return {(int64_t)blockIdx.x * THREADS + threadIdx.x, (int64_t)gridDim.x * THREADS};
}

static __device__ void clear(const convert &job, struct crew crew)
{
    for (int64_t row = crew.first; row < job.p.n_rows && !job.by_row(); row += crew.step)
        job.at[row] = NOWHERE;
    for (int64_t t = crew.first; t < job.p.n_tokens && job.by_row(); t += crew.step)
        job.n_of[t] = 0;
}

static __device__ void own(const convert &job, struct crew crew)
{
    for (int64_t i = crew.first; i < job.n_in; i += crew.step)
        if (!job.by_row()) {
            const int64_t row = job.row_at(i);
            if (row >= 0)
                atomicMin(&job.at[row], (u64)i);
        } else {
            const int64_t t = job.owner(i);
            const int64_t n = t >= 0 ? (int64_t)atomicAdd(&job.n_of[t], 1u) : job.most;
            if (n < job.most)
                job.list[t * job.most + n] = (u32)i;
        }
}

static __global__ void __launch_bounds__(THREADS) convert_clear(const convert job)
{
    syc_start_next();
    clear(job, all_threads());
}

static __global__ void __launch_bounds__(THREADS) convert_own(const convert job)
{
    syc_start_next();
    syc_wait_for_previous();
    own(job, all_threads());
}

/* A check (see syc_validate): positions, then offsets, the rows past the last expert, the rows of tokens. */
struct convert_check {
    int64_t n, n_in, n_offsets, n_past;
    convert job;

    __device__ bool bad_slot(int64_t i, syi_found *f) const
    {
        const int64_t row = job.entry(i), n_rows = job.p.n_rows;
        const bool in = row >= 0 && row < n_rows;
        const int64_t first = in ? (int64_t)__ldcg(job.at + row) : i;
        if (in)
            *f = {SYI_BAD_SORTED_TWICE, 0, -1, i, row, first, 0};
        else
            *f = {SYI_BAD_SORTED_RANGE, 0, -1, i, row, n_rows, 0};
        return in ? first != i : row != -1;
    }
    __device__ bool bad_row(int64_t i, syi_found *f) const
    {
        const int64_t t = job.entry(i);
        *f = {SYI_BAD_SORTED_RANGE, 0, -1, i, t, job.p.n_tokens, 0};
        return t < -1 || t >= job.p.n_tokens;
    }
    /* Item 0 of a token is how many rows it has. */
    __device__ bool bad_te(int64_t i, syi_found *f) const
    {
        const syi_moe_convert_indices_plan &p = job.p;
        const int64_t t = i / (p.n_experts + 1), k = i - t * (p.n_experts + 1) - 1;
        const u8 *const entries = syc_row(p.in, t);
        const int64_t n = syc_index(entries, 2 * p.n_experts, SY_TYPE_I32);
        const bool bad = n < 0 || n > p.n_experts;
        if (k < 0)
            *f = {SYI_BAD_TE_RANGE, 0, t, 2 * p.n_experts, n, p.n_experts + 1, 0};
        if (k < 0 || bad || k >= n)
            return k < 0 && bad;
        const int64_t row = syc_index(entries, k, SY_TYPE_I32), at = t * p.n_experts + k;
        if (row < 0 || row >= p.n_rows) {
            *f = {SYI_BAD_TE_RANGE, 0, t, k, row, p.n_rows, 0};
            return true;
        }
        *f = {SYI_BAD_TE_TWICE, 0, t, k, row, job.owner(row), 0};
        return (int64_t)__ldcg(job.at + row) != at;
    }
    __device__ int64_t offset(int64_t e) const { return (int64_t)syc_load<u64>(job.p.offsets.data + e * 8); }
    __device__ bool bad_offset(int64_t e, syi_found *f) const
    {
        const int64_t next = offset(e), before = e > 0 ? offset(e - 1) : 0, most = e == 0 ? 0 : job.p.n_rows;
        const bool low = next < before;
        *f = {low ? SYI_BAD_OFFSETS_LOW : SYI_BAD_OFFSETS_HIGH,
              0,
              -1,
              e,
              next,
              low ? before : most,
              low ? most : before};
        return low || next > most;
    }
    __device__ bool bad_past(int64_t row, syi_found *f) const
    {
        const int64_t end = offset(job.p.n_experts), t = row >= end ? job.owner(row) : -1;
        *f = {SYI_BAD_OFFSETS_END, 0, -1, job.p.n_experts, end, row + 1, t};
        return t >= 0;
    }
    __device__ bool bad_token(int64_t t, syi_found *f) const
    {
        const int64_t n = job.n_rows(t);
        *f = {job.p.args.to == SY_INDEX_SLOT ? SYI_BAD_ROWS_OVER_K : SYI_BAD_ROWS_OVER_EXPERTS,
              0,
              -1,
              t,
              n,
              job.most,
              0};
        return n > job.most;
    }
    __device__ bool fault(int64_t i, syi_found *f) const
    {
        if (i < n_in)
            return job.by_slot() ? bad_slot(i, f) : job.by_row() ? bad_row(i, f) : bad_te(i, f);
        if ((i -= n_in) < n_offsets)
            return bad_offset(i, f);
        if ((i -= n_offsets) < n_past)
            return bad_past(i, f);
        return bad_token(i - n_past, f);
    }
    __device__ bool wrong(int64_t i) const
    {
        syi_found f;
        syc_wait_for_previous();
        return fault(i, &f);
    }
    __device__ void explain(int64_t i, syi_found *f) const { fault(i, f); }
};

/* The expert of a row: the last that does not begin after it. */
static __device__ int64_t expert_of(const syi_moe_convert_indices_plan &p, int64_t row)
{
    int64_t low = 0;
    for (int64_t high = p.n_experts; high - low > 1;) {
        const int64_t middle = low + (high - low) / 2;
        if ((int64_t)syc_load<u64>(p.offsets.data + middle * 8) <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The rows of a token by a warp. Slots have them ascending, the last column of TE forms first. */
static __device__ void write_token(const convert &job, int64_t t)
{
    const syi_moe_convert_indices_plan &p = job.p;
    const bool slots = p.args.to == SY_INDEX_SLOT;
    const int64_t entries = job.n_entries(t), most = job.most;
    const int lane = (int)threadIdx.x % 32;
    u8 *const out = slots ? p.out.data + t * p.n_slots * 4 : syc_out_row(p.out, t);
    int64_t n = entries;
    if (job.by_slot()) {
        n = 0;
        for (int64_t j = 0; j < entries; j += 32)
            n += __popc(
                __ballot_sync(SYC_ALL_LANES, j + lane < entries && (int32_t)job.entry_of(t, j + lane) >= 0));
    }
    for (int64_t j = lane; j < entries; j += 32) {
        const u32 row = job.entry_of(t, j);
        int64_t place = 0;
        if ((int32_t)row < 0)
            continue;
#pragma unroll 4
        for (int64_t i = 0; i < entries; i++)
            place += job.entry_of(t, i) < row; /* -1 is the largest */
        place = slots ? place : n - 1 - place;
        syc_store<u32>(out + place * 4, row);
        if (!slots)
            syc_store<u32>(out + (most + place) * 4, (u32)expert_of(p, row));
    }
    for (int half = 0; half < (slots ? 1 : 2); half++) {
        u8 *const to = out + half * most * 4;
        if ((uintptr_t)to % 4 == 0)
#pragma unroll 4
            for (int64_t k = n + lane; k < most; k += 32)
                ((u32 *)to)[k] = ~0u;
        else
#pragma unroll 1
            for (int64_t k = n + lane; k < most; k += 32)
                syc_store<u32>(to + k * 4, ~0u);
    }
    if (!slots && lane == 0)
        syc_store<u32>(out + 2 * most * 4, (u32)n);
}

static __device__ void write(const convert &job, struct crew crew)
{
    if (job.p.args.to == SY_INDEX_ROW)
        for (int64_t row = crew.first; row < job.p.n_rows; row += crew.step)
            syc_store<u32>(job.p.out.data + row * 4, (u32)job.owner(row));
    else
        for (int64_t t = crew.first / 32; t < job.p.n_tokens; t += crew.step / 32)
            write_token(job, t);
}

static __global__ void __launch_bounds__(THREADS)
    convert_write(const convert job, const __grid_constant__ syc_gate gate)
{
    if (syc_may_write(gate))
        write(job, all_threads());
}

static __global__ void __launch_bounds__(SYC_ONE_BLOCK)
    convert_few(const __grid_constant__ convert_check check, const __grid_constant__ syc_gate gate)
{
    const struct crew crew = {threadIdx.x, SYC_ONE_BLOCK};
    clear(check.job, crew);
    syc_next_step();
    own(check.job, crew);
    syc_next_step();
    if (syc_validate_all(check, gate))
        write(check.job, crew);
}

/* ---- Launches ---- */

static convert lay_out(const syc_device *, const syi_moe_convert_indices_plan *p, syc_scratch *scratch)
{
    const int64_t columns = p->args.from == SY_INDEX_SLOT ? p->n_slots
                            : p->args.from == SY_INDEX_TE ? p->n_experts
                                                          : 0;
    convert job = {*p,  {0, {0, 0, 0}}, p->args.from == SY_INDEX_ROW ? p->n_rows : p->n_tokens * columns,
                   0,   NULL,           NULL,
                   NULL};
    job.columns = syc_split_by(columns, job.n_in);
    job.most = p->args.to == SY_INDEX_SLOT ? p->n_slots : p->n_experts;
    if (p->args.from != SY_INDEX_ROW) {
        job.at = scratch->take<u64>(p->n_rows);
    } else {
        job.n_of = scratch->take<u32>(p->n_tokens);
        job.list = scratch->take<u32>(p->n_tokens * job.most);
    }
    return job;
}

SYC_WORKSPACE(moe_convert_indices, moe_convert_indices)

static int64_t blocks_for(const syc_call *call, int64_t n)
{
    return syc_grid(call, n / THREADS + 1, grid_policy::INDEX);
}

void syc_moe_convert_indices(syc_call *call, const syi_plan *plan)
{
    const syi_moe_convert_indices_plan *const p = &plan->moe_convert_indices;
    syc_scratch scratch = {call->scratch, 0};
    const convert job = lay_out(call->device, p, &scratch);
    const bool te = p->args.to == SY_INDEX_TE, rows = p->args.to == SY_INDEX_ROW;
    const int64_t n_in = p->args.from == SY_INDEX_TE ? p->n_tokens * (p->n_experts + 1) : job.n_in;
    convert_check check = {0, n_in, te ? p->n_experts + 1 : 0, te ? p->n_rows : 0, job};
    check.n = check.n_in + check.n_offsets + check.n_past + (rows ? 0 : p->n_tokens);
    const int64_t n_out = rows ? p->n_rows : p->n_tokens * (te ? 2 * job.most + 1 : job.most);
    if (syc_takes(call, "one_block", check.n <= FEW && n_out <= FEW ? NULL : "indices are many")) {
        call->gate.n = 1;
        syc_launch(&call->queue, convert_few, SYC_AFTER, 1, SYC_ONE_BLOCK, 0, check, call->gate);
        return;
    }
    syc_takes(call, "many_blocks");
    syc_launch(&call->queue, convert_clear, SYC_AFTER,
               blocks_for(call, p->args.from == SY_INDEX_ROW ? p->n_tokens : p->n_rows), THREADS, 0, job);
    syc_launch(&call->queue, convert_own, SYC_EARLY, blocks_for(call, job.n_in), THREADS, 0, job);
    syc_check(call, check, SYC_EARLY);
    syc_launch(&call->queue, convert_write, SYC_EARLY, blocks_for(call, rows ? p->n_rows : 32 * p->n_tokens),
               THREADS, 0, job, call->gate);
}
