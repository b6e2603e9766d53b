/*
 * moe_reorder_chunks on a device: one block sums the counts in both orders and validates them, then every row
 * that is written finds its chunk.
 */
#include "cuda/runtime/backend.cuh"
#include "cuda/prim/load.cuh"
#include "cuda/prim/rows.cuh"
#include "cuda/prim/scan.cuh"
#include "cuda/runtime/scratch.cuh"

/* Chunks in the order in which they are written. */
struct reorder_chunks {
    int64_t n;          /* R*E */
    int64_t *to, *from; /* [n]: first row there, and where it comes from */
    int64_t *live;      /* rows of all chunks, 0 after a fault */
};

struct reorder {
    syi_moe_reorder_chunks_plan p;
    reorder_chunks chunks;
    syc_split experts, ranks;

    /* The chunk of cell i, row by row, or column by column. */
    __device__ void cell(int64_t i, bool by_expert, int64_t *r, int64_t *e) const
    {
        const int64_t high = syc_quotient(i, by_expert ? ranks : experts);
        const int64_t low = i - high * (by_expert ? p.n_ranks : p.n_experts);
        *r = by_expert ? low : high;
        *e = by_expert ? high : low;
    }
    __device__ int64_t count(int64_t r, int64_t e) const
    {
        return syc_index(syc_row(p.counts, r), e, p.counts.type);
    }
    __device__ int64_t place(int64_t r, int64_t e) const
    {
        return p.args.inverse ? r * p.n_experts + e : e * p.n_ranks + r;
    }

    /* First rows of all chunks in one of the orders. Sums stop past the last row; a wrong count is past it by
       itself. Returns the first cell whose rows end there. By the whole block. */
    __device__ u64 sum(bool by_expert, int64_t *rows, u64 *all) const
    {
        __shared__ u64 part[SYC_BLOCK_WARPS], first;
        const u64 most = (u64)p.n_rows + 1;
        *all = 0;
        if (threadIdx.x == 0)
            first = SYC_NO_FAULT;
        for (int64_t begin = 0; begin < chunks.n; begin += SYC_SCAN_THREADS) {
            const int64_t i = begin + threadIdx.x;
            int64_t r = 0, e = 0, n = 0;
            if (i < chunks.n) {
                cell(i, by_expert, &r, &e);
                n = count(r, e);
            }
            const u64 own = n < 0 || n > p.n_rows ? most : (u64)n;
            const u64 before = syc_scan_up_to(own, most, part, all);
            if (i >= chunks.n)
                continue;
            rows[place(r, e)] = (int64_t)before;
            if (syc_add_up_to(before, own, most) == most)
                atomicMin(&first, (u64)i);
        }
        __syncthreads();
        const u64 found = first;
        __syncthreads();
        return found;
    }
};

static __global__ void __launch_bounds__(SYC_SCAN_THREADS) reorder_sum(const reorder job, const syc_gate gate)
{
    u64 all = 0, first = SYC_NO_FAULT;
    syc_start_next();
#pragma unroll 1
    for (int by_rank = 0; by_rank < 2; by_rank++)
        first =
            job.sum(!by_rank, job.p.args.inverse == (by_rank == 1) ? job.chunks.to : job.chunks.from, &all);
    if (threadIdx.x != 0)
        return;
    *job.chunks.live = first == SYC_NO_FAULT ? (int64_t)all : 0;
    gate.order[0] = first;
    if (first == SYC_NO_FAULT)
        return;
    int64_t r, e;
    job.cell((int64_t)first, false, &r, &e);
    const int64_t before = (job.p.args.inverse ? job.chunks.to : job.chunks.from)[job.place(r, e)];
    gate.found[0] = {SYI_BAD_COUNT_LEFT, 0, r, e, job.count(r, e), job.p.n_rows - before, 0};
}

static __global__ void __launch_bounds__(256) reorder_offsets(const reorder job, const syc_gate gate)
{
    const int64_t *const gathered = job.p.args.inverse ? job.chunks.from : job.chunks.to;
    syc_start_next();
    if (!syc_may_write(gate))
        return;
    for (int64_t e = (int64_t)blockIdx.x * 256 + threadIdx.x; e <= job.p.n_experts;
         e += (int64_t)gridDim.x * 256) {
        const int64_t first = e == job.p.n_experts ? *job.chunks.live
                              : job.p.n_ranks > 0  ? gathered[job.place(0, e)]
                                                   : 0;
        syc_store<u64>(job.p.offsets.data + e * 8, (u64)first);
    }
}

/* Rows (see syc_move) of one of the two tensors. The sums are those of the kernel before. */
struct reorder_rows {
    reorder_chunks chunks;
    syi_rows from, to;

    __device__ syc_piece at(int64_t row) const
    {
        int64_t low = 0, high = chunks.n; /* the chunk is the last that does not begin after the row */
        syc_wait_for_previous();
        if (row >= *chunks.live)
            return {NULL, NULL};
        while (high - low > 1) {
            const int64_t middle = low + (high - low) / 2;
            if (chunks.to[middle] <= row)
                low = middle;
            else
                high = middle;
        }
        return {syc_row(from, chunks.from[low] + row - chunks.to[low]), syc_out_row(to, row)};
    }
};

static reorder lay_out(const syc_device *, const syi_moe_reorder_chunks_plan *p, syc_scratch *scratch)
{
    const int64_t n = p->n_ranks * p->n_experts;
    reorder job = {*p, {n, NULL, NULL, NULL}, syc_split_by(p->n_experts, n), syc_split_by(p->n_ranks, n)};
    job.chunks.to = scratch->take<int64_t>(n);
    job.chunks.from = scratch->take<int64_t>(n);
    job.chunks.live = scratch->take<int64_t>(1);
    return job;
}

SYC_WORKSPACE(moe_reorder_chunks, moe_reorder_chunks)

static void move(syc_call *call, const reorder &job, syi_rows from, syi_rows to, u64 row_bytes)
{
    const u64 bits = (u64)(uintptr_t)from.data | (u64)(uintptr_t)to.data | (u64)from.stride | (u64)to.stride;
    if (row_bytes > 0)
        syc_move_rows(call, reorder_rows{job.chunks, from, to}, job.p.n_rows, (int64_t)row_bytes,
                      bits | row_bytes);
}

void syc_moe_reorder_chunks(syc_call *call, const syi_plan *plan)
{
    syc_scratch scratch = {call->scratch, 0};
    const syi_moe_reorder_chunks_plan *const p = &plan->moe_reorder_chunks;
    const reorder job = lay_out(call->device, p, &scratch);
    const int64_t wanted = p->n_experts / 256 + 1;
    const bool moves = p->n_rows > 0 && (p->row_bytes > 0 || p->extra_bytes > 0);
    call->gate.n = 1;
    syc_launch(&call->queue, reorder_sum, SYC_AFTER, 1, SYC_SCAN_THREADS, 0, job, call->gate);
    if (p->offsets.data != NULL)
        syc_launch(&call->queue, reorder_offsets, SYC_EARLY, wanted < 64 ? wanted : 64, 256, 0, job,
                   call->gate);
    else if (!moves)
        syc_only_report(call);
    move(call, job, p->rows, p->out_rows, p->row_bytes);
    move(call, job, p->extra, p->out_extra, p->extra_bytes);
}
