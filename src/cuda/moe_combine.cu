/*
 * moe_combine on a device. A block takes parts of the rows of several samples, looks up the rows of their choices, and
 * adds them in registers, in the order of the choices.
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
    struct syc_parts parts;
};

/* The row of a choice from the first vector of the part on, and its gate. NULL: zeros. */
struct choice {
    const u8 *row;
    float gate;
};

/* A choice without a slot adds +0. One past the last adds -0, which changes nothing, not even -0. */
static __device__ __forceinline__ struct choice choice_at(const struct combine &c, const struct syc_part &part, int64_t choice, int vector_bytes)
{
    if (choice >= c.n_choices)
        return {NULL, -0.0f};
    const int64_t slot = syc_slot_of(syc_row(c.indices, choice), syc_row(c.locations, choice), part.row, c.n_experts, c.capacity);
    if (slot < 0)
        return {NULL, 0.0f};
    const u8 *const gates = c.gates.data != NULL ? syc_row(c.gates, choice) : NULL;
    return {syc_row(c.expert_out, slot) + part.begin * vector_bytes, syc_gate_of(gates, part.row, c.gate_type)};
}

template <sy_type T, bool WIDE>
static __global__ void __launch_bounds__(SYC_SLOT_THREADS) sum_rows(const struct combine c, const struct syc_gate gate)
{
    typedef syc_numbers<T, WIDE> Numbers;
    __shared__ struct choice choice[PARTS * CHOICES];
    __shared__ struct syc_part part[PARTS];
    const int lists = (int)min(c.n_choices, (int64_t)CHOICES), padded = (lists + TOGETHER - 1) / TOGETHER * TOGETHER;
    const float start = c.n_choices == 1 ? -0.0f : 0.0f; /* one choice is a product and keeps the sign of zero */
    if (!syc_may_write(gate))
        return;
    for (int64_t first = (int64_t)blockIdx.x * c.parts.per_block; first < c.parts.n; first += (int64_t)gridDim.x * c.parts.per_block) {
        const int own = (int)min((int64_t)c.parts.per_block, c.parts.n - first);
        const u32 all = (u32)own * c.parts.vectors.d;
        __syncthreads();
        if ((int)threadIdx.x < own)
            part[threadIdx.x] = syc_part_at(c.parts, first + threadIdx.x);
        for (u32 begin = 0; begin < all; begin += SYC_SLOT_THREADS) { /* the same turns for all threads */
            const u32 i = begin + threadIdx.x, p = syc_divide(i, c.parts.vectors), v = i - p * c.parts.vectors.d;
            float sum[Numbers::N];
#pragma unroll
            for (int j = 0; j < Numbers::N; j++)
                sum[j] = start;
            for (int64_t at = 0; at == 0 || at < c.n_choices; at += CHOICES) {
                if (begin == 0 || c.n_choices > CHOICES) { /* else those of the last turn are still right */
                    __syncthreads();
                    for (int k = (int)threadIdx.x; k < own * padded; k += SYC_SLOT_THREADS)
                        choice[k] = choice_at(c, part[k / padded], at + k % padded, Numbers::BYTES);
                    __syncthreads();
                }
                if (i >= all || v >= part[p].n)
                    continue;
                for (int k = 0; k < padded; k += TOGETHER) {
                    const struct choice *const next = choice + (int)p * padded + k;
                    typename Numbers::V held[TOGETHER];
#pragma unroll
                    for (int u = 0; u < TOGETHER; u++)
                        held[u] = next[u].row != NULL ? Numbers::load(next[u].row, v) : syc_zero<typename Numbers::V>();
#pragma unroll
                    for (int u = 0; u < TOGETHER; u++) {
                        float x[Numbers::N];
                        Numbers::widen(held[u], x);
#pragma unroll
                        for (int j = 0; j < Numbers::N; j++)
                            sum[j] = __fadd_rn(sum[j], __fmul_rn(next[u].gate, x[j]));
                    }
                }
            }
            if (i < all && v < part[p].n)
                Numbers::store(syc_out_row(c.output, part[p].row), part[p].begin + v, Numbers::narrow(sum));
        }
    }
}

struct launch_sums {
    struct syc_call *call;
    struct combine c;
    int64_t n_samples, hidden;
    template <sy_type T, bool WIDE> void run() const
    {
        struct combine own = c;
        own.parts = syc_parts_of(n_samples, hidden / syc_numbers<T, WIDE>::N);
        own.parts.per_block = own.parts.per_block < PARTS ? own.parts.per_block : PARTS;
        syc_launch(&call->queue, sum_rows<T, WIDE>, SYC_AFTER, syc_parts_blocks(own.parts), SYC_SLOT_THREADS, 0, own, call->gate);
    }
};

size_t syc_moe_combine_workspace(const struct syc_device *, const union syi_plan *) { return 0; }

void syc_moe_combine(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_moe_combine_plan *const p = &plan->moe_combine;
    const u64 alignment = syc_alignment(p->expert_out) | syc_alignment(p->output) | (u64)p->hidden * p->elem_bytes;
    if (p->n_samples == 0 || p->hidden == 0)
        return;
    syc_by_type(p->type, alignment,
                launch_sums{call,
                            {p->n_choices, p->n_experts, p->capacity, p->gate_type, p->gates, p->indices, p->locations, p->expert_out,
                             p->output, {}},
                            p->n_samples, p->hidden});
}
