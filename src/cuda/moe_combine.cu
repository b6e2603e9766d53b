/*
 * moe_combine on a device. One choice is a product, which keeps the sign of zero. Several are a sum that begins with +0: a
 * block takes parts of the rows of several samples, looks up the rows of their choices, and adds them in registers, in the
 * order of the choices.
 */
#include "cuda/slots.cuh"
#include "cuda/backend.cuh"

enum {
    CHOICES = 16, /* of a sample, looked up together */
    TOGETHER = 4, /* rows loaded before the first of them is added */
    PARTS = 64    /* most of a block */
};

struct combine {
    int64_t n_choices, n_experts, capacity;
    sy_type gate_type;
    struct syi_rows gates, indices, locations, expert_out, output;

    __device__ int64_t slot_of(int64_t choice, int64_t s) const
    {
        return syc_slot_of(syc_row(indices, choice), syc_row(locations, choice), s, n_experts, capacity);
    }
    __device__ float gate_of(int64_t choice, int64_t s) const
    {
        return syc_gate_of(gates.data != NULL ? syc_row(gates, choice) : NULL, s, gate_type);
    }
    /* One choice, for syc_scale_rows. */
    __device__ __forceinline__ struct syc_scaled_from find(int64_t s) const { return {slot_of(0, s), {}, gate_of(0, s)}; }
    __device__ const u8 *source(int64_t slot) const { return slot < 0 ? NULL : syc_row(expert_out, slot); }
    __device__ __forceinline__ struct syc_scaled at(int64_t s, const struct syc_scaled_from &found) const
    {
        return {source(found.id), syc_out_row(output, s), found.gate};
    }
};

struct choice {
    const u8 *row; /* from the first vector of the part on */
    float gate;
};

/* Looks up the choices [at, at + n) of n_parts parts from `first` on. */
static __device__ __forceinline__ void look_up(const struct combine &c, const struct syc_parts &parts, int64_t first, int n_parts, int64_t at,
                                               int n, int vector_bytes, struct choice *found)
{
    for (int i = (int)threadIdx.x; i < n_parts * n; i += SYC_SLOT_THREADS) {
        const struct syc_part own = syc_part_at(parts, first + i / n);
        const int64_t k = at + i % n, slot = k < c.n_choices ? c.slot_of(k, own.row) : -1;
        const float gate = k < c.n_choices ? c.gate_of(k, own.row) : 0.0f;
        found[i] = {slot >= 0 ? c.source(slot) + own.begin * vector_bytes : NULL, slot >= 0 ? gate : 0.0f};
    }
}

/* Adds vector v of n rows, a multiple of TOGETHER. Rows that are missing add +0, which changes no sum: none is ever -0. */
template <class Numbers>
static __device__ __forceinline__ void add_choices(const struct choice *choice, int n, u32 v, float (&sum)[Numbers::N])
{
#pragma unroll 1
    for (int k = 0; k < n; k += TOGETHER) {
        typename Numbers::V held[TOGETHER];
#pragma unroll
        for (int u = 0; u < TOGETHER; u++)
            held[u] = choice[k + u].row != NULL ? Numbers::load(choice[k + u].row, v) : syc_zero<typename Numbers::V>();
#pragma unroll
        for (int u = 0; u < TOGETHER; u++) {
            float x[Numbers::N];
            Numbers::widen(held[u], x);
#pragma unroll
            for (int j = 0; j < Numbers::N; j++)
                sum[j] = __fadd_rn(sum[j], __fmul_rn(choice[k + u].gate, x[j]));
        }
    }
}

template <sy_type T, bool WIDE>
static __global__ void __launch_bounds__(SYC_SLOT_THREADS)
    sum_rows(const struct combine c, const struct syc_parts parts, const struct syc_gate gate)
{
    typedef syc_numbers<T, WIDE> Numbers;
    __shared__ struct choice choice[PARTS * CHOICES];
    __shared__ struct syc_part part[PARTS];
    const int n = (int)(min(c.n_choices, (int64_t)CHOICES) + TOGETHER - 1) / TOGETHER * TOGETHER;
    const bool closed = syc_is_closed(gate);
    for (int64_t first = (int64_t)blockIdx.x * parts.per_block; first < parts.n; first += (int64_t)gridDim.x * parts.per_block) {
        const int own = (int)min((int64_t)parts.per_block, parts.n - first);
        const u32 all = (u32)own * parts.vectors.d;
        __syncthreads();
        if ((int)threadIdx.x < own)
            part[threadIdx.x] = syc_part_at(parts, first + threadIdx.x);
        look_up(c, parts, first, own, 0, n, Numbers::BYTES, choice);
        if (!syc_all_open(closed)) /* a barrier, too */
            return;
        for (u32 begin = 0; begin < all; begin += SYC_SLOT_THREADS) { /* the same turns for all threads */
            const u32 i = begin + threadIdx.x, p = syc_divide(i, parts.vectors), v = i - p * parts.vectors.d;
            const bool in = i < all && v < part[p].n;
            float sum[Numbers::N];
#pragma unroll
            for (int j = 0; j < Numbers::N; j++)
                sum[j] = 0.0f;
            if (in)
                add_choices<Numbers>(choice + (int)p * n, n, v, sum);
            for (int64_t at = CHOICES; at < c.n_choices; at += CHOICES) { /* more than fit at once are looked up every time */
                __syncthreads();
                look_up(c, parts, first, own, at, n, Numbers::BYTES, choice);
                __syncthreads();
                if (in)
                    add_choices<Numbers>(choice + (int)p * n, n, v, sum);
            }
            if (in)
                Numbers::store(syc_out_row(c.output, part[p].row), part[p].begin + v, Numbers::narrow(sum));
            if (c.n_choices > CHOICES) {
                __syncthreads();
                look_up(c, parts, first, own, 0, n, Numbers::BYTES, choice);
                __syncthreads();
            }
        }
    }
}

struct launch_sums {
    struct syc_call *call;
    struct combine c;
    int64_t n_samples, hidden;
    template <sy_type T, bool WIDE> void run() const
    {
        struct syc_parts parts = syc_parts_of(n_samples, hidden / syc_numbers<T, WIDE>::N, call->device->processors);
        parts.per_block = parts.per_block < PARTS ? parts.per_block : (int)PARTS;
        syc_launch(&call->queue, sum_rows<T, WIDE>, SYC_AFTER, syc_parts_blocks(parts), SYC_SLOT_THREADS, 0, c, parts, call->gate);
    }
};

size_t syc_moe_combine_workspace(const struct syc_device *, const union syi_plan *) { return 0; }

void syc_moe_combine(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_moe_combine_plan *const p = &plan->moe_combine;
    const u64 alignment = syc_alignment(p->expert_out) | syc_alignment(p->output) | (u64)p->hidden * p->elem_bytes;
    const struct combine combine = {p->n_choices, p->n_experts, p->capacity, p->gate_type, p->gates, p->indices, p->locations,
                                    p->expert_out, p->output};
    if (p->n_samples == 0 || p->hidden == 0)
        return;
    if (p->n_choices == 1)
        syc_by_type(p->type, alignment, syc_launch_scaling<struct combine>{call, combine, p->n_samples, p->hidden, SYC_AFTER});
    else
        syc_by_type(p->type, alignment, launch_sums{call, combine, p->n_samples, p->hidden});
}
