/*
 * moe_unpermute_ids on a device: the sums of moe_unpermute, with the weights of slots. Calls that add more
 * than rows, or whose indices are in another order, have a kernel of their own: a thread per vector, which
 * reads the slots of its token in order.
 */
#include "cuda/runtime/backend.cuh"
#include "cuda/moe/moe_sums.cuh"

static syc_moe_sums sums_of(const syi_moe_unpermute_ids_plan *p)
{
    syc_moe_sums s = {};
    s.lists.n_tokens = p->n_tokens;
    s.lists.n_slots = p->n_slots;
    s.lists.row_begin = p->args.row_begin;
    s.lists.n_rows = p->n_rows;
    s.lists.by_slot = true;
    s.lists.by_token = syc_split_by(p->n_slots, p->n_tokens * p->n_slots);
    s.lists.indices = p->sorted_indices.data;
    s.lists.probs = p->probs;
    s.lists.prob_type = p->probs.type;
    s.hidden = p->hidden;
    s.type = p->permuted.type;
    s.rows = p->permuted;
    s.out = p->tokens;
    return s;
}

/* ---- With a bias, further rows, another order or number of indices ---- */

static bool is_plain(const syi_moe_unpermute_ids_plan *p)
{
    return p->bias_ids.data == NULL && p->residual.data == NULL && p->shared.data == NULL &&
           !p->args.by_choice && p->limit == p->n_tokens * p->n_slots;
}

/* All indices, then all bias_ids. */
struct ids_check {
    int64_t n;
    syi_moe_unpermute_ids_plan p;
    syc_split by_slots;

    __device__ int64_t slots() const { return p.n_tokens * p.n_slots; }
    __device__ int64_t token(int64_t i) const { return syc_quotient(i - slots(), by_slots); }
    __device__ int64_t at(int64_t i) const
    {
        if (i < slots())
            return (int32_t)syc_load<u32>(p.sorted_indices.data + i * 4);
        const int64_t t = token(i);
        return (int32_t)syc_load<u32>(syc_row(p.bias_ids, t) + (i - slots() - t * p.n_slots) * 4);
    }
    __device__ int64_t limit(int64_t i) const { return i < slots() ? p.limit : p.n_biases; }
    __device__ bool wrong(int64_t i) const { return at(i) < -1 || at(i) >= limit(i); }
    __device__ void explain(int64_t i, syi_found *f) const
    {
        if (i < slots())
            *f = syi_bad_at(SYI_BAD_SORTED_RANGE, -1, i, at(i), p.limit);
        else
            *f = syi_bad_at(SYI_BAD_BIAS_RANGE, token(i), i - slots() - token(i) * p.n_slots, at(i),
                            p.n_biases);
    }
};

/* sum = fl(sum + fl(w * fl(row + bias))) of vector v; NULL adds nothing, a bias without a row counts as zeros
   plus bias. */
template <class Numbers>
SYC_INLINE void add_entry(float (&sum)[Numbers::N], const u8 *row, const u8 *bias, float w,
                          const typename Numbers::At &at)
{
    float x[Numbers::N] = {}, b[Numbers::N];
    if (row == NULL && bias == NULL)
        return;
    if (row != NULL)
        Numbers::widen(Numbers::take(Numbers::load(row, at), row, at), x);
    if (bias != NULL) {
        Numbers::widen(Numbers::take(Numbers::load(bias, at), bias, at), b);
#pragma unroll
        for (int n = 0; n < Numbers::N; n++)
            x[n] = __fadd_rn(x[n], b[n]);
    }
#pragma unroll
    for (int n = 0; n < Numbers::N; n++)
        sum[n] = __fadd_rn(sum[n], __fmul_rn(w, x[n]));
}

template <class Numbers>
static __global__ void __launch_bounds__(256)
    sum_added(const __grid_constant__ syi_moe_unpermute_ids_plan p, const syc_split by_row, int64_t vectors,
              const __grid_constant__ syc_gate gate)
{
    if (!syc_may_write(gate)) /* from here on all indices are valid */
        return;
#pragma unroll 1
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < p.n_tokens * vectors;
         i += (int64_t)gridDim.x * 256) {
        const int64_t t = syc_quotient(i, by_row), v = i - t * vectors;
        u8 *const to = syc_out_row(p.tokens, t);
        const typename Numbers::At at = Numbers::place([&] { return to; }, v, p.hidden * Numbers::SIZE);
        float sum[Numbers::N] = {};
        add_entry<Numbers>(sum, p.residual.data != NULL ? syc_row(p.residual, t) : NULL, NULL, 1.0f, at);
        add_entry<Numbers>(sum, p.shared.data != NULL ? syc_row(p.shared, t) : NULL, NULL, 1.0f, at);
#pragma unroll 1
        for (int64_t j = 0; j < p.n_slots; j++) {
            const int64_t index = (int32_t)syc_load<u32>(p.sorted_indices.data + syi_choice_at(&p, t, j) * 4),
                          row = index - p.args.row_begin;
            const int32_t id =
                p.bias_ids.data != NULL ? (int32_t)syc_load<u32>(syc_row(p.bias_ids, t) + j * 4) : -1;
            const bool there = index >= 0 && row >= 0 && row < p.n_rows;
            const float w = syc_gate_of(p.probs.data != NULL ? syc_row(p.probs, t) : NULL, j, p.probs.type);
            if (w == 0.0f || (!there && index >= 0))
                continue;
            add_entry<Numbers>(sum, there ? syc_row(p.permuted, row) : NULL,
                               id >= 0 ? syc_row(p.bias, id) : NULL, w, at);
        }
        Numbers::store(to, at, Numbers::narrow(sum));
    }
}

struct added_launch {
    syc_call *call;
    const syi_moe_unpermute_ids_plan *p;

    template <sy_type T, bool WIDE> void run() const
    {
        const int64_t vectors = syc_row_numbers<T, WIDE>::count(p->hidden);
        syc_launch(&call->queue, sum_added<syc_row_numbers<T, WIDE>>, SYC_EARLY,
                   syc_grid(call, syc_ceil(p->n_tokens * vectors, 256), grid_policy::NUMBERS), 256, 0, *p,
                   syc_split_by(vectors, p->n_tokens * vectors), vectors, call->gate);
    }
};

static void unpermute_added(syc_call *call, const syi_moe_unpermute_ids_plan *p)
{
    const u64 row_bytes = (u64)p->hidden * (p->permuted.type == SY_TYPE_F32 ? 4 : 2);
    const int64_t slots = p->n_tokens * p->n_slots;
    syc_check(call,
              ids_check{p->bias_ids.data != NULL ? 2 * slots : slots, *p, syc_split_by(p->n_slots, slots)});
    if (p->hidden == 0 || p->n_tokens == 0)
        syc_only_report(call);
    else
        syc_by_type(p->permuted.type,
                    syc_alignment(p->permuted) | syc_alignment(p->tokens) | syc_alignment(p->bias) |
                        syc_alignment(p->residual) | syc_alignment(p->shared) | row_bytes,
                    added_launch{call, p});
}

size_t syc_moe_unpermute_ids_workspace(const syc_device *device, const syi_plan *plan)
{
    syc_scratch scratch = {NULL, 0};
    syc_moe_sums s = sums_of(&plan->moe_unpermute_ids);
    syc_moe_take_sums(device, &s, &scratch);
    return scratch.used;
}

void syc_moe_unpermute_ids(syc_call *call, const syi_plan *plan)
{
    const syi_moe_unpermute_ids_plan *const p = &plan->moe_unpermute_ids;
    if (!is_plain(p)) {
        unpermute_added(call, p);
        return;
    }
    syc_scratch scratch = {call->scratch, 0};
    syc_moe_sums s = sums_of(p);
    syc_moe_take_sums(call->device, &s, &scratch);
    syc_moe_validate(call, &s.lists);
    syc_moe_sum(call, &s);
}
