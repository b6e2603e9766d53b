/*
 * moe_dispatch on a device. Where several samples may name one slot, or slots without a sample are cleared, a first kernel
 * leaves the sample of each slot in a table; the second copies rows, by slot where all of them are written, else by
 * sample. Only when dispatch is input itself are rows written one after the other, by threads that own columns.
 *
 * The table is never cleared. An entry counts only if its sample names the slot, and no other contents can pass for that:
 * whatever the memory held before, an entry that passes is a sample of this call.
 */
#include "cuda/slots.cuh"
#include "cuda/backend.cuh"

struct samples {
    int64_t n, n_experts, capacity;
    const u8 *indices, *locations;
    u64 *table; /* [E*C] or NULL */

    __device__ int64_t slot(int64_t s) const { return syc_slot_of(indices, locations, s, n_experts, capacity); }

    /* The sample of a slot, or -1. */
    __device__ int64_t sample_of(int64_t slot_) const
    {
        const u64 s = n > 0 ? __ldcg(table + slot_) : 0;
        return s < (u64)n && slot((int64_t)s) == slot_ ? (int64_t)s : -1;
    }
};

/* ---- The sample of each slot -------------------------------------------------------------------------------------- */

/*
 * The greatest sample that names a slot ends in its entry: a thread that takes a greater one out of the table by putting
 * its own in puts that back in the next turn. What is smaller, or does not name the slot, is dropped.
 */
static __global__ void __launch_bounds__(256) mark(const struct samples samples, bool unique)
{
    const int64_t s = (int64_t)blockIdx.x * 256 + threadIdx.x;
    syc_start_next();
    const int64_t slot = s < samples.n ? samples.slot(s) : -1;
    if (slot < 0)
        return;
    if (unique) {
        __stcg(samples.table + slot, (u64)s);
        return;
    }
    u64 put = (u64)s;
    for (;;) {
        const u64 old = atomicExch(samples.table + slot, put);
        if (old <= put || old >= (u64)samples.n || samples.slot((int64_t)old) != slot)
            return;
        put = old;
    }
}

/* ---- Rows --------------------------------------------------------------------------------------------------------- */

enum rows_by { BY_SAMPLE, BY_SLOT, ONLY_CLEAR }; /* ONLY_CLEAR: slots without a sample */

struct dispatch {
    struct samples samples;
    enum rows_by by;
    const u8 *gates;
    sy_type gate_type;
    struct syi_rows input, dispatch;
    struct syc_parts parts;
};

/* from NULL: zeros. n 0: nothing to do. */
struct item {
    const u8 *from;
    u8 *to;
    float gate;
    u32 n; /* vectors */
};

static __device__ __forceinline__ struct item item_at(const struct dispatch &d, int64_t i, int vector_bytes)
{
    const struct syc_part part = syc_part_at(d.parts, i);
    const int64_t offset = part.begin * vector_bytes;
    int64_t slot = part.row, s = part.row;
    if (d.by == BY_SAMPLE) {
        slot = d.samples.slot(s);
        if (slot < 0 || (d.samples.table != NULL && __ldcg(d.samples.table + slot) != (u64)s))
            return {NULL, NULL, 0, 0};
    } else {
        s = d.samples.sample_of(slot);
        if (s >= 0 && d.by == ONLY_CLEAR)
            return {NULL, NULL, 0, 0};
    }
    u8 *const to = syc_out_row(d.dispatch, slot) + offset;
    if (s < 0)
        return {NULL, to, 0, part.n};
    return {syc_row(d.input, s) + offset, to, syc_gate_of(d.gates, s, d.gate_type), part.n};
}

template <sy_type T, bool WIDE>
static __global__ void __launch_bounds__(SYC_SLOT_THREADS) scale_rows(const struct dispatch d, const struct syc_gate gate)
{
    typedef syc_numbers<T, WIDE> Numbers;
    enum { AHEAD = 4 };
    __shared__ struct item item[SYC_SLOT_THREADS];
    if (!syc_may_write(gate))
        return;
    for (int64_t first = (int64_t)blockIdx.x * d.parts.per_block; first < d.parts.n; first += (int64_t)gridDim.x * d.parts.per_block) {
        const int own = (int)min((int64_t)d.parts.per_block, d.parts.n - first);
        const u32 all = (u32)own * d.parts.vectors.d;
        if ((int)threadIdx.x < own)
            item[threadIdx.x] = item_at(d, first + threadIdx.x, Numbers::BYTES);
        __syncthreads();
        for (u32 begin = threadIdx.x; begin < all; begin += AHEAD * SYC_SLOT_THREADS) {
            typename Numbers::V held[AHEAD];
#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                const u32 i = begin + (u32)u * SYC_SLOT_THREADS, p = syc_divide(i, d.parts.vectors), v = i - p * d.parts.vectors.d;
                held[u] = syc_zero<typename Numbers::V>();
                if (i < all && v < item[p].n && item[p].from != NULL)
                    held[u] = Numbers::load(item[p].from, v);
            }
#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                const u32 i = begin + (u32)u * SYC_SLOT_THREADS, p = syc_divide(i, d.parts.vectors), v = i - p * d.parts.vectors.d;
                if (i < all && v < item[p].n) /* zeros times a gate of 0 are +0 */
                    Numbers::store(item[p].to, v, Numbers::scale(held[u], item[p].gate));
            }
        }
        __syncthreads();
    }
}

/* ---- In place ----------------------------------------------------------------------------------------------------- */

enum { COLUMN_THREADS = 64, TOGETHER = 8 };

/* Samples in order, TOGETHER of them loaded at a time; the row of one that a sample just before it wrote comes from there. */
template <sy_type T, bool WIDE>
static __global__ void __launch_bounds__(COLUMN_THREADS) scale_columns(const struct dispatch d, const struct syc_gate gate)
{
    typedef syc_numbers<T, WIDE> Numbers;
    __shared__ int64_t slot[COLUMN_THREADS];
    __shared__ float weight[COLUMN_THREADS];
    const int64_t column = (int64_t)blockIdx.x * COLUMN_THREADS + threadIdx.x, n = d.samples.n;
    if (!syc_may_write(gate))
        return;
    for (int64_t first = 0; first < n; first += COLUMN_THREADS) {
        const int64_t own = first + threadIdx.x;
        __syncthreads();
        slot[threadIdx.x] = own < n ? d.samples.slot(own) : -1;
        weight[threadIdx.x] = own < n ? syc_gate_of(d.gates, own, d.gate_type) : 0.0f;
        __syncthreads();
        for (int at = 0; at < COLUMN_THREADS && first + at < n && column < d.parts.width; at += TOGETHER) {
            typename Numbers::V x[TOGETHER];
#pragma unroll
            for (int u = 0; u < TOGETHER; u++)
                if (slot[at + u] >= 0)
                    x[u] = Numbers::load(syc_row(d.input, first + at + u), column);
#pragma unroll
            for (int u = 0; u < TOGETHER; u++) {
#pragma unroll
                for (int t = 0; t < u; t++)
                    if (slot[at + t] == first + at + u)
                        x[u] = x[t];
                if (slot[at + u] >= 0) {
                    x[u] = Numbers::scale(x[u], weight[at + u]);
                    Numbers::store(syc_out_row(d.dispatch, slot[at + u]), column, x[u]);
                }
            }
        }
    }
}

/* ---- Launches ----------------------------------------------------------------------------------------------------- */

struct launch_rows {
    struct syc_call *call;
    struct dispatch d;
    int64_t rows, hidden;
    enum syc_start start;
    template <sy_type T, bool WIDE> void run() const
    {
        struct dispatch own = d;
        own.parts = syc_parts_of(rows, hidden / syc_numbers<T, WIDE>::N);
        syc_launch(&call->queue, scale_rows<T, WIDE>, start, syc_parts_blocks(own.parts), SYC_SLOT_THREADS, 0, own, call->gate);
    }
};

struct launch_columns {
    struct syc_call *call;
    struct dispatch d;
    int64_t hidden;
    enum syc_start start;
    template <sy_type T, bool WIDE> void run() const
    {
        struct dispatch own = d;
        own.parts.width = hidden / syc_numbers<T, WIDE>::N;
        syc_launch(&call->queue, scale_columns<T, WIDE>, start, (own.parts.width + COLUMN_THREADS - 1) / COLUMN_THREADS, COLUMN_THREADS,
                   0, own, call->gate);
    }
};

static bool needs_table(const struct syi_moe_dispatch_plan *p)
{
    return p->hidden > 0 && p->n_samples > 0 && (p->zero_unwritten || (!p->unique_slots && !p->in_place));
}

size_t syc_moe_dispatch_workspace(const struct syc_device *, const union syi_plan *plan)
{
    const struct syi_moe_dispatch_plan *const p = &plan->moe_dispatch;
    return needs_table(p) ? (size_t)p->n_slots * sizeof(u64) : 0;
}

void syc_moe_dispatch(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_moe_dispatch_plan *const p = &plan->moe_dispatch;
    const bool table = needs_table(p);
    const struct samples samples = {p->n_samples, p->n_experts, p->capacity, p->indices, p->locations, table ? (u64 *)call->scratch : NULL};
    const u64 alignment = syc_alignment(p->input) | syc_alignment(p->dispatch) | (u64)p->hidden * p->elem_bytes;
    struct dispatch d = {samples, p->zero_unwritten ? BY_SLOT : BY_SAMPLE, p->gates, p->gate_type, p->input, p->dispatch, {}};
    enum syc_start start = SYC_AFTER;
    if (p->n_slots == 0 || p->hidden == 0 || (p->n_samples == 0 && !p->zero_unwritten))
        return;
    if (table) {
        /* Where only the slots without a sample matter, any sample of a slot will do. */
        syc_launch(&call->queue, mark, SYC_AFTER, (p->n_samples + 255) / 256, 256, 0, samples, p->unique_slots || p->in_place);
        start = SYC_EARLY;
    }
    if (p->in_place) {
        syc_by_type(p->type, alignment, launch_columns{call, d, p->hidden, start});
        d.by = ONLY_CLEAR;
    }
    if (!p->in_place || p->zero_unwritten)
        syc_by_type(p->type, alignment, launch_rows{call, d, p->zero_unwritten ? p->n_slots : p->n_samples, p->hidden, start});
}
