/*
 * moe_dispatch on a device. Where several samples may name one slot, or slots without a sample are cleared, a
 * first kernel leaves the sample of each slot in a table; the second copies rows, by slot where all of them
 * are written, else by sample. Only when dispatch is input itself are rows written one after the other, by
 * threads that own columns.
 *
 * The table is never cleared. An entry counts only if its sample names the slot, and no other contents can
 * pass for that: whatever the memory held before, an entry that passes is a sample of this call.
 */
#include "cuda/prim/slots.cuh"
#include "cuda/runtime/backend.cuh"
#include "cuda/codes/row_codes.cuh"

struct samples {
    int64_t n, n_experts, capacity;
    const u8 *indices, *locations;
    u64 *table; /* [E*C] or NULL */

    __device__ int64_t slot(int64_t s) const
    {
        return syc_slot_of(indices, locations, s, n_experts, capacity);
    }
};

/* ---- The sample of each slot ---- */

/*
 * The greatest sample that names a slot ends in its entry: a thread that takes a greater one out of the table
 * by putting its own in puts that back in the next turn. What is smaller, or does not name the slot, is
 * dropped.
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

/* ---- Rows ---- */

enum rows_by { BY_SAMPLE, BY_SLOT, ONLY_CLEAR }; /* ONLY_CLEAR: slots without a sample */

struct dispatch {
    struct samples samples;
    rows_by by;
    syi_tensor gates, input, dispatch;

    /* The sample that a slot may have, or the sample itself. */
    __device__ __forceinline__ syc_scaled_from find(int64_t row) const
    {
        if (by != BY_SAMPLE) {
            syc_wait_for_previous();
            const u64 s = samples.n > 0 ? __ldcg(samples.table + row) : 0;
            if (s >= (u64)samples.n)
                return {-1, {-1, -1}, 0.0f};
            row = (int64_t)s;
        }
        return {row, syc_choice_of(samples.indices, samples.locations, row),
                syc_gate_of(gates.data, row, gates.type)};
    }
    __device__ const u8 *source(int64_t s) const
    {
        return s < 0 || by == ONLY_CLEAR ? NULL : syc_row(input, s);
    }
    __device__ __forceinline__ syc_scaled at(int64_t row, const syc_scaled_from &found) const
    {
        const int64_t slot =
            syi_slot(found.choice.e, found.choice.place, samples.n_experts, samples.capacity);
        if (by == BY_SAMPLE) {
            syc_wait_for_previous();
            const bool writes =
                slot >= 0 && (samples.table == NULL || __ldcg(samples.table + slot) == (u64)row);
            return {source(row), writes ? syc_out_row(dispatch, slot) : NULL, found.gate};
        }
        if (slot != row)
            return {NULL, syc_out_row(dispatch, row), 0};
        return {source(found.id), by == ONLY_CLEAR ? NULL : syc_out_row(dispatch, row), found.gate};
    }
};

/* The same for codes, by kernels that run after the one before. */
struct coded_samples {
    enum { SCALED = 1, EARLY = 0 };
    struct dispatch d;
    int64_t n_slots;

    __device__ syc_coded_item find(int64_t i) const
    {
        const struct samples &s = d.samples;
        const bool by_slot = d.by == BY_SLOT;
        const u64 sample = by_slot ? (s.n > 0 ? __ldcg(s.table + i) : ~(u64)0) : (u64)i;
        const int64_t slot = sample < (u64)s.n ? s.slot((int64_t)sample) : -1;
        const bool own =
            by_slot ? slot == i : slot >= 0 && (s.table == NULL || __ldcg(s.table + slot) == sample);
        if (!own)
            return {NULL, by_slot ? i : -1, 0.0f};
        return {syc_row(d.input, (int64_t)sample), slot,
                syc_gate_of(d.gates.data, (int64_t)sample, d.gates.type)};
    }
    __host__ __device__ int n_places() const { return 1; }
    __device__ int64_t place(int64_t, int, const syc_coded_item &item) const { return item.row; }
    __device__ int64_t first_clear() const { return n_slots; }
    __device__ void clear(int64_t) const {}
};

/* ---- In place ---- */

enum { COLUMN_THREADS = 64, TOGETHER = 8 };

/* Samples in order, TOGETHER of them loaded at a time; the row of one that a sample just before it wrote
   comes from there. */
template <sy_type T, bool WIDE>
static __global__ void __launch_bounds__(COLUMN_THREADS)
    scale_columns(const struct dispatch d, int64_t width, const syc_gate gate)
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
        weight[threadIdx.x] = own < n ? syc_gate_of(d.gates.data, own, d.gates.type) : 0.0f;
        __syncthreads();
        for (int at = 0; at < COLUMN_THREADS && first + at < n && column < width; at += TOGETHER) {
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

/* ---- Launches ---- */

struct launch_columns {
    syc_call *call;
    struct dispatch d;
    int64_t hidden;
    syc_start start;
    template <sy_type T, bool WIDE> void run() const
    {
        const int64_t width = hidden / syc_numbers<T, WIDE>::N;
        syc_launch(&call->queue, scale_columns<T, WIDE>, start, (width + COLUMN_THREADS - 1) / COLUMN_THREADS,
                   COLUMN_THREADS, 0, d, width, call->gate);
    }
};

static bool needs_table(const syi_moe_dispatch_plan *p)
{
    return p->hidden > 0 && p->n_samples > 0 &&
           (p->args.zero_unwritten || (!p->args.unique_slots && !p->in_place));
}

size_t syc_moe_dispatch_workspace(const syc_device *, const syi_plan *plan)
{
    const syi_moe_dispatch_plan *const p = &plan->moe_dispatch;
    return needs_table(p) ? (size_t)p->n_slots * sizeof(u64) : 0;
}

void syc_moe_dispatch(syc_call *call, const syi_plan *plan)
{
    const syi_moe_dispatch_plan *const p = &plan->moe_dispatch;
    const bool table = needs_table(p);
    const struct samples samples = {p->n_samples,    p->n_experts,      p->args.capacity,
                                    p->indices.data, p->locations.data, table ? (u64 *)call->scratch : NULL};
    const u64 alignment =
        syc_alignment(p->input) | syc_alignment(p->dispatch) | (u64)p->hidden * p->elem_bytes;
    struct dispatch d = {samples, p->args.zero_unwritten ? BY_SLOT : BY_SAMPLE, p->gates, p->input,
                         p->dispatch};
    syc_start start = SYC_AFTER;
    if (p->n_slots == 0 || p->hidden == 0 || (p->n_samples == 0 && !p->args.zero_unwritten))
        return;
    if (table) {
        /* Where only the slots without a sample matter, any sample of a slot will do. */
        syc_launch(&call->queue, mark, SYC_AFTER, (p->n_samples + 255) / 256, 256, 0, samples,
                   p->args.unique_slots || p->in_place);
        start = SYC_EARLY;
    }
    if (p->codes.given) {
        syc_code_rows(call, &p->codes, coded_samples{d, p->n_slots},
                      p->args.zero_unwritten ? p->n_slots : p->n_samples, p->n_slots);
        return;
    }
    if (p->in_place) {
        syc_by_type(p->input.type, alignment, launch_columns{call, d, p->hidden, start});
        d.by = ONLY_CLEAR;
    }
    if (!p->in_place || p->args.zero_unwritten)
        syc_by_type(p->input.type, alignment,
                    syc_launch_scaling<struct dispatch>{
                        call, d, p->args.zero_unwritten ? p->n_slots : p->n_samples, p->hidden, start});
}
