/*
 * moe_convert_indices on a device. The owner of a row is the least position of sorted_indices that names it, found by
 * atomic minima; forms that list the rows of a token take them from a sort of the rows by token.
 */
#include "cuda/backend.cuh"
#include "cuda/load.cuh"
#include "cuda/scratch.cuh"
#include "cuda/sort.cuh"

#define NOWHERE (~0ull)

struct convert {
    struct syi_moe_convert_indices_plan p;
    struct syc_split columns; /* of the input: positions of a token */
    int64_t n_in;             /* positions: slots, rows, or E of every token */
    u64 *at;                  /* [M]: first position that names a row; NULL where rows name tokens */
    u32 *n_of;                /* [T]: rows of a token; NULL for the form of rows */

    __device__ int64_t entry(int64_t i) const { return syc_index(p.in.data, i, SY_TYPE_I32); }

    /* The row at a position; -1: none, or not a row. */
    __device__ int64_t row_at(int64_t i) const
    {
        int64_t row = -1;
        if (p.from == SY_INDEX_SLOT) {
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
        if (at != NULL) {
            const u64 first = __ldcg(at + row);
            return first == NOWHERE ? -1 : syc_quotient((int64_t)first, columns);
        }
        const int64_t t = entry(row);
        return t < p.n_tokens ? t : -1;
    }

    /* Elements (see syc_sort): rows by token. */
    __device__ bool has(int64_t row) const { return owner(row) >= 0; }
    __device__ u64 sort_key(int64_t row) const { return (u64)owner(row); }
};

static __global__ void __launch_bounds__(256) convert_own(const struct convert job)
{
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < job.n_in; i += (int64_t)gridDim.x * 256) {
        const int64_t row = job.row_at(i);
        if (row >= 0)
            atomicMin(&job.at[row], (u64)i);
    }
}

static __global__ void __launch_bounds__(256) convert_count(const struct convert job)
{
    for (int64_t row = (int64_t)blockIdx.x * 256 + threadIdx.x; row < job.p.n_rows; row += (int64_t)gridDim.x * 256) {
        const int64_t t = job.owner(row);
        if (t >= 0)
            atomicAdd(&job.n_of[t], 1u);
    }
}

/* A check (see syc_validate): positions, then offsets, the rows past the last expert, the rows of tokens. */
struct convert_check {
    int64_t n, n_in, n_offsets, n_past;
    struct convert job;

    __device__ bool bad_slot(int64_t i, struct syi_found *f) const
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
    __device__ bool bad_row(int64_t i, struct syi_found *f) const
    {
        const int64_t t = job.entry(i);
        *f = {SYI_BAD_SORTED_RANGE, 0, -1, i, t, job.p.n_tokens, 0};
        return t < -1 || t >= job.p.n_tokens;
    }
    /* Item 0 of a token is how many rows it has. */
    __device__ bool bad_te(int64_t i, struct syi_found *f) const
    {
        const struct syi_moe_convert_indices_plan &p = job.p;
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
    __device__ int64_t offset(int64_t e) const { return (int64_t)syc_load<u64>(job.p.offsets + e * 8); }
    __device__ bool bad_offset(int64_t e, struct syi_found *f) const
    {
        const int64_t next = offset(e), before = e > 0 ? offset(e - 1) : 0, most = e == 0 ? 0 : job.p.n_rows;
        const bool low = next < before;
        *f = {low ? SYI_BAD_OFFSETS_LOW : SYI_BAD_OFFSETS_HIGH, 0, -1, e, next, low ? before : most, low ? most : before};
        return low || next > most;
    }
    __device__ bool bad_past(int64_t row, struct syi_found *f) const
    {
        const int64_t end = offset(job.p.n_experts), t = row >= end ? job.owner(row) : -1;
        *f = {SYI_BAD_OFFSETS_END, 0, -1, job.p.n_experts, end, row + 1, t};
        return t >= 0;
    }
    __device__ bool bad_token(int64_t t, struct syi_found *f) const
    {
        const bool slots = job.p.to == SY_INDEX_SLOT;
        const int64_t n = __ldcg(job.n_of + t), most = slots ? job.p.n_slots : job.p.n_experts;
        *f = {slots ? SYI_BAD_ROWS_OVER_K : SYI_BAD_ROWS_OVER_EXPERTS, 0, -1, t, n, most, 0};
        return n > most;
    }
    __device__ bool fault(int64_t i, struct syi_found *f) const
    {
        if (i < n_in)
            return job.p.from == SY_INDEX_SLOT ? bad_slot(i, f) : job.p.from == SY_INDEX_ROW ? bad_row(i, f) : bad_te(i, f);
        if ((i -= n_in) < n_offsets)
            return bad_offset(i, f);
        if ((i -= n_offsets) < n_past)
            return bad_past(i, f);
        return bad_token(i - n_past, f);
    }
    __device__ bool wrong(int64_t i) const
    {
        struct syi_found f;
        return fault(i, &f);
    }
    __device__ void explain(int64_t i, struct syi_found *f) const { fault(i, f); }
};

static __global__ void __launch_bounds__(256) convert_to_rows(const struct convert job, const struct syc_gate gate)
{
    if (!syc_may_write(gate))
        return;
    for (int64_t row = (int64_t)blockIdx.x * 256 + threadIdx.x; row < job.p.n_rows; row += (int64_t)gridDim.x * 256)
        syc_store<u32>(job.p.out.data + row * 4, (u32)job.owner(row));
}

/* The expert of a row: the last that does not begin after it. */
static __device__ int64_t expert_of(const struct syi_moe_convert_indices_plan &p, int64_t row)
{
    int64_t low = 0;
    for (int64_t high = p.n_experts; high - low > 1;) {
        const int64_t middle = low + (high - low) / 2;
        if ((int64_t)syc_load<u64>(p.offsets + middle * 8) <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* How many elements before sorted element i have its token; at most `most` have. */
static __device__ int64_t rank_of(const struct syc_sorted &s, int64_t i, int64_t most)
{
    const u64 t = __ldcg(s.key + i);
    int64_t low = max((int64_t)0, i - most), high = i; /* the first of the token is in [low, high] */
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (__ldcg(s.key + middle) < t)
            low = middle + 1;
        else
            high = middle;
    }
    return i - low;
}

/* Entries of the output that no row has, by token and column, and the sorted rows. */
static __global__ void __launch_bounds__(256)
    convert_to_tokens(const struct convert job, const struct syc_sorted sorted, int64_t n_out, struct syc_split width,
                      const struct syc_gate gate)
{
    const struct syi_moe_convert_indices_plan &p = job.p;
    const bool slots = p.to == SY_INDEX_SLOT;
    const int64_t step = (int64_t)gridDim.x * 256, most = slots ? p.n_slots : p.n_experts;
    if (!syc_may_write(gate))
        return;
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < n_out; i += step) {
        const int64_t t = syc_quotient(i, width), k = i - t * width.d, n = __ldcg(job.n_of + t);
        u8 *const entries = slots ? p.out.data + t * p.n_slots * 4 : syc_out_row(p.out, t);
        if (!slots && k == 2 * most)
            syc_store<u32>(entries + k * 4, (u32)n);
        else if ((k < most ? k : k - most) >= n)
            syc_store<u32>(entries + k * 4, ~0u);
    }
    const int64_t n_sorted = __ldcg(sorted.n);
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < n_sorted; i += step) {
        const int64_t t = (int64_t)__ldcg(sorted.key + i), rank = rank_of(sorted, i, most);
        const u32 row = __ldcg(sorted.value + i);
        if (slots) {
            syc_store<u32>(p.out.data + (t * p.n_slots + rank) * 4, row);
            continue;
        }
        const int64_t k = (int64_t)__ldcg(job.n_of + t) - 1 - rank; /* the last row first */
        syc_store<u32>(syc_out_row(p.out, t) + k * 4, row);
        syc_store<u32>(syc_out_row(p.out, t) + (most + k) * 4, (u32)expert_of(p, row));
    }
}

static struct convert lay_out(const struct syi_moe_convert_indices_plan *p, struct syc_scratch *scratch)
{
    const int64_t columns = p->from == SY_INDEX_SLOT ? p->n_slots : p->from == SY_INDEX_TE ? p->n_experts : 0;
    struct convert job = {*p, {0, {0, 0, 0}}, p->from == SY_INDEX_ROW ? p->n_rows : p->n_tokens * columns, NULL, NULL};
    job.columns = syc_split_by(columns, job.n_in);
    if (p->from != SY_INDEX_ROW)
        job.at = scratch->take<u64>(p->n_rows);
    if (p->to != SY_INDEX_ROW)
        job.n_of = scratch->take<u32>(p->n_tokens);
    return job;
}

size_t syc_moe_convert_indices_workspace(const struct syc_device *device, const union syi_plan *plan)
{
    const struct syi_moe_convert_indices_plan *const p = &plan->moe_convert_indices;
    struct syc_scratch scratch = {NULL, 0};
    struct syc_sort_memory memory;
    lay_out(p, &scratch);
    return scratch.used + (p->to != SY_INDEX_ROW ? syc_sort_lay_out(&memory, p->n_rows, device->processors, NULL) : 0);
}

static int64_t blocks_for(const struct syc_call *call, int64_t n)
{
    const int64_t wanted = n / 256 + 1, most = 8 * (int64_t)call->device->processors;
    return wanted < most ? wanted : most;
}

static void clear(struct syc_call *call, void *data, int byte, size_t bytes)
{
    if (data != NULL && bytes > 0 && call->queue.error == cudaSuccess)
        call->queue.error = cudaMemsetAsync(data, byte, bytes, call->queue.stream);
}

/* Finds the owners and validates. */
static void prepare(struct syc_call *call, const struct convert &job)
{
    const struct syi_moe_convert_indices_plan *const p = &job.p;
    const bool te = p->to == SY_INDEX_TE;
    const int64_t n_in = p->from == SY_INDEX_TE ? p->n_tokens * (p->n_experts + 1) : job.n_in;
    struct convert_check check = {0, n_in, te ? p->n_experts + 1 : 0, te ? p->n_rows : 0, job};
    check.n = check.n_in + check.n_offsets + check.n_past + (job.n_of != NULL ? p->n_tokens : 0);
    clear(call, job.at, 0xff, (size_t)p->n_rows * sizeof(u64));
    clear(call, job.n_of, 0, (size_t)p->n_tokens * sizeof(u32));
    if (job.at != NULL)
        syc_launch(&call->queue, convert_own, SYC_AFTER, blocks_for(call, job.n_in), 256, 0, job);
    if (job.n_of != NULL)
        syc_launch(&call->queue, convert_count, SYC_AFTER, blocks_for(call, p->n_rows), 256, 0, job);
    syc_check(call, check);
}

void syc_moe_convert_indices(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_moe_convert_indices_plan *const p = &plan->moe_convert_indices;
    struct syc_scratch scratch = {call->scratch, 0};
    const struct convert job = lay_out(p, &scratch);
    prepare(call, job);
    if (p->to == SY_INDEX_ROW) {
        syc_launch(&call->queue, convert_to_rows, SYC_EARLY, blocks_for(call, p->n_rows), 256, 0, job, call->gate);
        return;
    }
    struct syc_sort_memory memory;
    int bits = 1;
    while (bits < 32 && p->n_tokens > (int64_t)1 << bits)
        bits++;
    syc_sort_lay_out(&memory, p->n_rows, call->device->processors, scratch.rest());
    const struct syc_sorted sorted = syc_sort(call, &memory, job, p->n_rows, bits);
    const int64_t width = p->to == SY_INDEX_SLOT ? p->n_slots : 2 * p->n_experts + 1, n_out = p->n_tokens * width;
    syc_launch(&call->queue, convert_to_tokens, SYC_AFTER, blocks_for(call, n_out > p->n_rows ? n_out : p->n_rows), 256, 0, job,
               sorted, n_out, syc_split_by(width, n_out), call->gate);
}
