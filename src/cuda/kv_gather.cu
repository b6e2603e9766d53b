/*
 * kv_gather, kv_translate and kv_slots on a device: positions are validated by one kernel and translated again by the one
 * that copies rows or stores slots, which costs less than keeping the slots.
 */
#include "cuda/kv_rows.cuh"
#include "cuda/backend.cuh"

/* ---- kv_gather ------------------------------------------------------------------------------------------------------ */

struct gathered {
    struct syi_kv_pages pages;
    struct syc_split by_k;
    bool clears;

    __device__ int64_t slot(int64_t i) const
    {
        struct syi_found f;
        const int64_t b = syc_quotient(i, by_k);
        return syc_kv_slot_at(pages, b, i - b * pages.k, &f);
    }
};

size_t syc_kv_gather_workspace(const struct syc_device *, const union syi_plan *) { return 0; }

void syc_kv_gather(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_kv_gather_plan *const p = &plan->kv_gather;
    const int64_t n = p->pages.batch * p->pages.k;
    if (n == 0)
        return;
    syc_check(call, syc_kv_positions_of(&p->pages));
    syc_kv_move(call, gathered{p->pages, syc_split_by(p->pages.k, n), p->pages.pad != SY_PAD_SKIP}, &p->planes, n, false);
}

/* ---- kv_translate --------------------------------------------------------------------------------------------------- */

/* A block per sequence. */
static __global__ void __launch_bounds__(256) translate_rows(const struct syi_kv_translate_plan p, const struct syc_gate gate)
{
    const int64_t b = blockIdx.x;
    int64_t live = 0;
    if (!syc_may_write(gate))
        return;
    for (int64_t j = threadIdx.x; j < p.pages.k; j += 256) {
        struct syi_found f;
        const int64_t slot = syc_kv_slot_at(p.pages, b, j, &f);
        syc_store_index(syc_out_row(p.slots, b), j, slot, p.slot_type);
        live += slot >= 0;
    }
    if (p.valid == NULL)
        return;
    __shared__ u64 sum;
    if (threadIdx.x == 0)
        sum = 0;
    __syncthreads();
    atomicAdd(&sum, (u64)live);
    __syncthreads();
    if (threadIdx.x == 0)
        syc_store_index(p.valid, b, (int64_t)sum, p.valid_type);
}

size_t syc_kv_translate_workspace(const struct syc_device *, const union syi_plan *) { return 0; }

void syc_kv_translate(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_kv_translate_plan *const p = &plan->kv_translate;
    if (p->pages.batch > 0 && p->pages.k > 0)
        syc_check(call, syc_kv_positions_of(&p->pages));
    syc_launch(&call->queue, translate_rows, SYC_EARLY, p->pages.batch, 256, 0, *p, call->gate);
}

/* ---- kv_slots ------------------------------------------------------------------------------------------------------- */

/* Tokens that each name their table row. */
struct tokens {
    int64_t n, lists;
    struct syc_split by_k;
    struct syi_kv_slots_plan plan;

    __device__ int64_t slot(int64_t i, struct syi_found *f) const
    {
        const struct syi_kv_pages &p = plan.pages;
        const int64_t row = syc_quotient(i, by_k), j = i - row * p.k;
        const int64_t r = plan.batch.data != NULL ? syc_index(syc_row(plan.batch, row), j, plan.batch_type) : 0;
        if (r < 0 || r >= p.table.rows) {
            *f = syi_bad_at(syi_kv_lists(&p.table) ? SYI_BAD_KV_OF_TOKEN_P_REQUEST : SYI_BAD_KV_OF_TOKEN_REQUEST, -1, i, r, p.table.rows);
            return -1;
        }
        const struct syi_kv_sequence s = syi_kv_row_of(&p, r);
        const int64_t slot = syi_kv_slot_of(&p, &s, syc_index(syc_row(p.indices, row), j, p.index_type), f);
        f->bad = syi_kv_of_token(f->bad);
        f->position = i;
        return slot;
    }
    __device__ bool fault(int64_t i, struct syi_found *f) const
    {
        if (i < lists)
            *f = syi_kv_list_fault(&plan.pages, i);
        else
            slot(i - lists, f);
        return f->bad != SYI_GOOD;
    }
    __device__ bool wrong(int64_t i) const
    {
        struct syi_found f;
        return fault(i, &f);
    }
    __device__ void explain(int64_t i, struct syi_found *f) const { fault(i, f); }
};

static __global__ void __launch_bounds__(256) store_slots(const struct tokens tokens, const struct syc_gate gate)
{
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x, n = tokens.n - tokens.lists, k = tokens.plan.pages.k;
    struct syi_found f;
    const int64_t slot = i < n ? tokens.slot(i, &f) : -1;
    if (syc_may_write(gate) && i < n)
        syc_store_index(syc_out_row(tokens.plan.slots, syc_quotient(i, tokens.by_k)), i - syc_quotient(i, tokens.by_k) * k, slot,
                        tokens.plan.slot_type);
}

size_t syc_kv_slots_workspace(const struct syc_device *, const union syi_plan *) { return 0; }

void syc_kv_slots(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_kv_slots_plan *const p = &plan->kv_slots;
    const int64_t n = p->pages.batch * p->pages.k, lists = p->pages.table.indptr.rows.data != NULL ? p->pages.table.rows + 1 : 0;
    const struct tokens tokens = {lists + n, lists, syc_split_by(p->pages.k, n), *p};
    if (n == 0)
        return;
    syc_check(call, tokens);
    syc_launch(&call->queue, store_slots, SYC_EARLY, (n + 255) / 256, 256, 0, tokens, call->gate);
}
