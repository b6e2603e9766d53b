/*
 * moe_dispatch_grad_gate on a device: dot products of rows, four threads each (dots.cuh). Where there are
 * few, a block of threads takes one block of one of them: products are independent, so all threads make them,
 * of vectors, and leave them in shared memory; LANES threads add them in the order of dots.cuh.
 */
#include "cuda/runtime/backend.cuh"
#include "cuda/prim/dots.cuh"

enum { LANES = SYI_DOT_LANES, BLOCK = SYI_DOT_BLOCK, AHEAD = 4, GROUP = SYC_SLOT_THREADS };

struct products {
    syi_moe_dispatch_grad_gate_plan call;
    int64_t n_blocks; /* of a row, 0: whole rows */
    syc_split by_block, by_choice;
    float *parts; /* [S*k][n_blocks], or NULL: one block is all of a row */
};

SYC_INLINE void store_gate(const struct products &p, int64_t choice, int64_t s, float sum)
{
    syc_store_float(syc_out_row(p.call.grad_gates, choice) +
                        s * (p.call.grad_gates.type == SY_TYPE_F32 ? 4 : 2),
                    p.call.grad_gates.type, syc_canonical(sum));
}

template <int N> SYC_INLINE void put_products(const float (&p)[N], float *to)
{
    if constexpr (N == 1) {
        to[0] = p[0];
    } else {
#pragma unroll
        for (int j = 0; j < N; j += 4)
            ((uint4 *)to)[j / 4] = make_uint4(__float_as_uint(p[j]), __float_as_uint(p[j + 1]),
                                              __float_as_uint(p[j + 2]), __float_as_uint(p[j + 3]));
    }
}

/* Lanes of the products of two rows: thread l of the block has that of l, for l < LANES. No lane is ever -0,
   so that zeros for missing elements change nothing. */
template <class Numbers> SYC_INLINE float add_products(const u8 *a, const u8 *b, int n, float *product)
{
    enum { N = Numbers::N, ROUND = AHEAD * GROUP * N };
    const int vectors = n / N, thread = (int)threadIdx.x;
    float sum = 0.0f;
    for (int first = 0; first < n; first += ROUND) {
        typename Numbers::V x[AHEAD], y[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const int v = first / N + u * GROUP + thread;
            x[u] = v < vectors ? Numbers::load(a, v) : syc_zero<typename Numbers::V>();
            y[u] = v < vectors ? Numbers::load(b, v) : syc_zero<typename Numbers::V>();
        }
        __syncthreads(); /* the products of the last round have been added */
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            float p[N], q[N];
            Numbers::widen(x[u], p);
            Numbers::widen(y[u], q);
#pragma unroll
            for (int j = 0; j < N; j++)
                p[j] = __fmul_rn(p[j], q[j]);
            put_products(p, product + (u * GROUP + thread) * N);
        }
        __syncthreads();
        const int steps = (min(n - first, (int)ROUND) + LANES - 1) / LANES;
        if (thread < LANES) {
#pragma unroll 8
            for (int i = 0; i < steps; i++)
                sum = __fadd_rn(sum, product[i * LANES + thread]);
        }
    }
    return sum;
}

/* One block of the product of two rows. slot -1: the choice has none. */
struct gate_piece {
    int64_t s, choice, first, slot;
};

SYC_INLINE gate_piece piece_at(const struct products &p, int64_t i)
{
    const int64_t entry = p.n_blocks <= 1 ? i : syc_quotient(i, p.by_block),
                  s = syc_quotient(entry, p.by_choice);
    const int64_t choice = entry - s * p.call.n_choices;
    if (s >= p.call.n_samples)
        return {0, 0, 0, -1};
    return {s, choice, p.n_blocks <= 1 ? 0 : (i - entry * p.n_blocks) * BLOCK,
            syc_slot_of(syc_row(p.call.indices, choice), syc_row(p.call.locations, choice), s,
                        p.call.n_experts, p.call.args.capacity)};
}

template <sy_type T, bool WIDE>
static __global__ void __launch_bounds__(GROUP, 3) multiply_few(const struct products p, const syc_gate gate)
{
    typedef syc_numbers<T, WIDE> Numbers;
    __shared__ uint4 product[AHEAD * GROUP * Numbers::N / 4];
    syc_start_next();
    const bool closed = syc_is_closed(gate);
    const gate_piece piece = piece_at(p, blockIdx.x);
    float sum = 0.0f;
    if (!syc_all_open(closed))
        return;
    if (piece.slot >= 0)
        sum = add_products<Numbers>(syc_row(p.call.input, piece.s) + piece.first * Numbers::SIZE,
                                    syc_row(p.call.dispatch, piece.slot) + piece.first * Numbers::SIZE,
                                    (int)min((int64_t)BLOCK, p.call.hidden - piece.first), (float *)product);
    if (threadIdx.x >= 32)
        return;
#pragma unroll
    for (int half = LANES / 2; half > 0; half /= 2)
        sum = __fadd_rn(sum, __shfl_xor_sync(SYC_ALL_LANES, sum, half));
    if (threadIdx.x == 0 && p.parts != NULL)
        p.parts[blockIdx.x] = sum;
    else if (threadIdx.x == 0)
        store_gate(p, piece.choice, piece.s, sum);
}

enum { DOT_THREADS = 64, DOT_ENTRIES = DOT_THREADS / 4 };

template <sy_type T, bool WIDE>
static __global__ void __launch_bounds__(DOT_THREADS, 8)
    multiply_many(const __grid_constant__ struct products p, const __grid_constant__ syc_gate gate)
{
    const bool closed = syc_is_closed(gate);
    const int64_t i = (int64_t)blockIdx.x * DOT_ENTRIES + threadIdx.x / 4;
    const gate_piece piece = piece_at(p, i);
    if (!syc_all_open(closed))
        return;
    const float sum =
        syc_dot<T, WIDE>(syc_row(p.call.input, piece.s),
                         piece.slot >= 0 ? syc_row(p.call.dispatch, piece.slot) : NULL, p.call.hidden);
    if (i < p.call.n_samples * p.call.n_choices && threadIdx.x % 4 == 0)
        store_gate(p, piece.choice, piece.s, sum);
}

static __global__ void __launch_bounds__(256) add_blocks(const struct products p, const syc_gate gate)
{
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x, s = syc_quotient(i, p.by_choice);
    float sum = 0.0f;
    if (!syc_may_write(gate) || i >= p.call.n_samples * p.call.n_choices)
        return;
    for (int64_t block = 0; block < p.n_blocks; block++)
        sum = __fadd_rn(sum, __ldcg(p.parts + i * p.n_blocks + block));
    store_gate(p, i - s * p.call.n_choices, s, sum);
}

struct launch_products {
    syc_call *call;
    struct products p;
    template <sy_type T, bool WIDE> void run() const
    {
        const int64_t n = p.call.n_samples * p.call.n_choices;
        if (syc_takes(call, "many", p.n_blocks > 0 ? "rows are few" : NULL))
            syc_launch(&call->queue, multiply_many<T, WIDE>, SYC_AFTER, (n + DOT_ENTRIES - 1) / DOT_ENTRIES,
                       DOT_THREADS, 0, p, call->gate);
        else if (syc_takes(call, "few"))
            syc_launch(&call->queue, multiply_few<T, WIDE>, SYC_AFTER, n * p.n_blocks, GROUP, 0, p,
                       call->gate);
    }
};

/* Blocks of a row that are computed by themselves, 0: rows are computed whole. */
static int64_t count_blocks(const syc_device *device, const syi_moe_dispatch_grad_gate_plan *p)
{
    return p->n_samples * p->n_choices > moe_policy::FEW_PRODUCTS * (int64_t)device->processors ? 0
           : p->hidden > BLOCK ? (p->hidden + BLOCK - 1) / BLOCK
                               : 1;
}

size_t syc_moe_dispatch_grad_gate_workspace(const syc_device *device, const syi_plan *plan)
{
    const syi_moe_dispatch_grad_gate_plan *const p = &plan->moe_dispatch_grad_gate;
    const int64_t n_blocks = count_blocks(device, p);
    return n_blocks > 1 ? (size_t)(p->n_choices * p->n_samples * n_blocks) * sizeof(float) : 0;
}

void syc_moe_dispatch_grad_gate(syc_call *call, const syi_plan *plan)
{
    const syi_moe_dispatch_grad_gate_plan *const p = &plan->moe_dispatch_grad_gate;
    const int64_t entries = p->n_choices * p->n_samples, n_blocks = count_blocks(call->device, p);
    const u64 alignment = syc_alignment(p->input) | syc_alignment(p->dispatch) |
                          (u64)p->hidden * syi_float_bytes(p->input.type);
    const struct products products = {*p, n_blocks, syc_split_by(n_blocks, entries * n_blocks),
                                      syc_split_by(p->n_choices, entries),
                                      n_blocks > 1 ? (float *)call->scratch : NULL};
    if (entries == 0)
        return;
    syc_by_type(p->input.type, alignment, launch_products{call, products});
    if (n_blocks > 1)
        syc_launch(&call->queue, add_blocks, SYC_EARLY, (entries + 255) / 256, 256, 0, products, call->gate);
}
