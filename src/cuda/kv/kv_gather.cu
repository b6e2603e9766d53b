/*
 * kv_gather, kv_translate and kv_slots on a device: positions are validated by one kernel and translated
 * again by the one that copies rows or stores slots, which costs less than keeping the slots.
 */
#include "cuda/prim/block.cuh"
#include "cuda/kv/kv_rows.cuh"
#include "cuda/runtime/backend.cuh"

/* ---- kv_gather ---- */

struct gathered {
    syi_kv_pages pages;
    syc_split by_k;
    bool clears;

    __device__ int64_t slot(int64_t i) const
    {
        syi_found f;
        const int64_t b = syc_quotient(i, by_k);
        return syc_kv_slot_at(pages, b, i - b * pages.k, &f);
    }
    __device__ int64_t near(int64_t) const { return 0; }
    __device__ int64_t slot_near(int64_t, int64_t i) const { return slot(i); }
};

/* The usual call: positions of int32 in the usual table. */
struct usual {
    int64_t n;
    const u8 *indices;
    int64_t index_stride;
    syc_divisor by_k;
    bool clears;
    syc_kv_usual table;

    /* -1: padding; -2: a fault. */
    __device__ int64_t look_up(int64_t i) const
    {
        const u32 b = syc_divide((u32)i, by_k), j = (u32)i - b * by_k.d;
        return table.slot_of(b, ((const int32_t *)(indices + b * index_stride))[j]);
    }
    __device__ int64_t slot(int64_t i) const
    {
        const int64_t row = look_up(i);
        return row < 0 ? -1 : row;
    }
    __device__ int64_t near(int64_t) const { return 0; }
    __device__ int64_t slot_near(int64_t, int64_t i) const { return slot(i); }
};

/* Its positions are the items. */
struct usual_check {
    int64_t n;
    struct usual usual;
    syi_kv_pages pages;

    __device__ int64_t look_up(int64_t i) const { return usual.look_up(i); }
    __device__ bool wrong(int64_t i) const { return look_up(i) == -2; }
    __device__ void explain(int64_t i, syi_found *f) const
    {
        const int64_t b = syc_divide((u32)i, usual.by_k);
        syc_kv_slot_at(pages, b, i - b * usual.by_k.d, f);
    }
};

/* Four positions at a time, for more of them than a validation has threads. */
template <class Check> struct fours {
    int64_t n;
    Check check;

    __device__ bool wrong(int64_t i) const
    {
        bool bad = false;
#pragma unroll
        for (int u = 0; u < 4; u++)
            bad |= check.look_up(min(4 * i + u, check.n - 1)) == -2;
        return bad;
    }
    __device__ void explain(int64_t i, syi_found *f) const
    {
        int64_t at = 4 * i;
#pragma unroll 1
        while (check.look_up(at) != -2)
            at++;
        check.explain(at, f);
    }
};

template <class Check> static void check_positions(syc_call *call, const Check &check)
{
    if (check.n > 256 * SYC_MAX_CHECK_BLOCKS)
        syc_check(call, fours<Check>{(check.n + 3) / 4, check});
    else
        syc_check(call, check);
}

static bool is_usual(const syi_kv_pages *p)
{
    return syc_kv_is_usual(p) && p->index_type == SY_TYPE_I32 &&
           ((u64)(uintptr_t)p->indices.data | (u64)p->indices.stride) % 4 == 0 &&
           syc_kv_below(p->batch, p->k);
}

static struct usual usual_of(const syi_kv_pages *p)
{
    return {p->batch * p->k,           p->indices.data,       p->indices.stride,
            syc_divisor_of((u32)p->k), p->pad != SY_PAD_SKIP, syc_kv_usual_of(p)};
}

size_t syc_kv_gather_workspace(const syc_device *, const syi_plan *plan)
{
    const syi_kv_gather_plan *const p = &plan->kv_gather;
    syc_scratch scratch = {NULL, 0};
    syc_kv_take_list(&p->planes, &scratch);
    return scratch.used;
}

void syc_kv_gather(syc_call *call, const syi_plan *plan)
{
    const syi_kv_gather_plan *const p = &plan->kv_gather;
    const int64_t n = p->pages.batch * p->pages.k;
    syc_scratch scratch = {call->scratch, 0};
    int64_t *const list = syc_kv_take_list(&p->planes, &scratch);
    if (n == 0)
        return;
    call->queue.most_shared = !p->planes.at[0].packed;
    syc_kv_check_globals(call, &p->planes);
    if (is_usual(&p->pages) && p->pages.table.rows >= p->pages.batch) {
        check_positions(call, usual_check{n, usual_of(&p->pages), p->pages});
        syc_kv_move<false>(call, usual_of(&p->pages), &p->planes, n, list);
        return;
    }
    syc_check(call, syc_kv_positions_of(&p->pages));
    syc_kv_move<false>(call, gathered{p->pages, syc_split_by(p->pages.k, n), p->pages.pad != SY_PAD_SKIP},
                       &p->planes, n, list);
}

/* ---- kv_translate ---- */

enum { TRANSLATE_THREADS = 512, TRANSLATE_EACH = 4, TRANSLATE_PART = TRANSLATE_THREADS * TRANSLATE_EACH };

/* Sequences are cut into parts of one length, a block for each. `counts`: of the positions with a slot, for
   each part; NULL: the only part of a sequence, or not requested. */
template <class Slots>
static __global__ void __launch_bounds__(TRANSLATE_THREADS)
    translate_parts(const Slots slots, const syi_kv_translate_plan p, const syc_split parts, u64 *counts,
                    const __grid_constant__ syc_gate gate)
{
    __shared__ u64 part[SYC_BLOCK_WARPS];
    const int64_t b = syc_quotient(blockIdx.x, parts), begin = (blockIdx.x - b * parts.d) * TRANSLATE_PART;
    int64_t slot[TRANSLATE_EACH];
    u64 live = 0;
#pragma unroll
    for (int u = 0; u < TRANSLATE_EACH; u++) {
        const int64_t j = begin + u * TRANSLATE_THREADS + threadIdx.x;
        slot[u] = j < p.pages.k ? slots.slot(b * p.pages.k + j) : -1;
        live += slot[u] >= 0;
    }
    syc_wait_for_previous();
    if (!syc_all_clear(gate, syc_sees_fault(gate)))
        return;
#pragma unroll
    for (int u = 0; u < TRANSLATE_EACH; u++) {
        const int64_t j = begin + u * TRANSLATE_THREADS + threadIdx.x;
        if (j < p.pages.k)
            syc_store_index(syc_out_row(p.slots, b), j, slot[u], p.slots.type);
    }
    if (p.valid.data == NULL)
        return;
    live = syc_block_sum(live, part);
    if (threadIdx.x == 0 && counts != NULL)
        counts[blockIdx.x] = live;
    else if (threadIdx.x == 0)
        syc_store_index(p.valid.data, b, (int64_t)live, p.valid.type);
}

/* A block per sequence. */
static __global__ void __launch_bounds__(256)
    sum_parts(const syi_kv_translate_plan p, int64_t parts, const u64 *counts,
              const __grid_constant__ syc_gate gate)
{
    __shared__ u64 part[SYC_BLOCK_WARPS];
    u64 live = 0;
    syc_wait_for_previous();
    if (!syc_all_clear(gate, syc_sees_fault(gate)))
        return;
    for (int64_t i = threadIdx.x; i < parts; i += 256)
        live += __ldcg(&counts[blockIdx.x * parts + i]);
    live = syc_block_sum(live, part);
    if (threadIdx.x == 0)
        syc_store_index(p.valid.data, blockIdx.x, (int64_t)live, p.valid.type);
}

/* Of a sequence; one without positions has one, too, for its count. */
static int64_t parts_of(const syi_kv_translate_plan *p)
{
    return p->pages.k > TRANSLATE_PART ? (p->pages.k - 1) / TRANSLATE_PART + 1 : 1;
}

/* With or without `valid`, which a query does not see. */
size_t syc_kv_translate_workspace(const syc_device *, const syi_plan *plan)
{
    const syi_kv_translate_plan *const p = &plan->kv_translate;
    const int64_t parts = parts_of(p);
    return parts > 1 ? (size_t)(p->pages.batch * parts) * sizeof(u64) : 0;
}

template <class Slots>
static void translate(syc_call *call, const syi_kv_translate_plan *p, const Slots &slots)
{
    const int64_t parts = parts_of(p), blocks = p->pages.batch * parts;
    u64 *const counts = p->valid.data != NULL && parts > 1 ? (u64 *)call->scratch : NULL;
    syc_launch(&call->queue, translate_parts<Slots>, SYC_EARLY, blocks, TRANSLATE_THREADS, 0, slots, *p,
               syc_split_by(parts, blocks), counts, call->gate);
    if (counts != NULL)
        syc_launch(&call->queue, sum_parts, SYC_EARLY, p->pages.batch, 256, 0, *p, parts, counts, call->gate);
}

void syc_kv_translate(syc_call *call, const syi_plan *plan)
{
    const syi_kv_translate_plan *const p = &plan->kv_translate;
    if (is_usual(&p->pages) && p->pages.table.rows >= p->pages.batch) {
        check_positions(call, usual_check{p->pages.batch * p->pages.k, usual_of(&p->pages), p->pages});
        translate(call, p, usual_of(&p->pages));
        return;
    }
    if (p->pages.batch > 0 && p->pages.k > 0)
        syc_check(call, syc_kv_positions_of(&p->pages));
    translate(call, p, gathered{p->pages, syc_split_by(p->pages.k, p->pages.batch * p->pages.k), false});
}

/* ---- kv_slots ---- */

/* Tokens that each name their table row. */
struct tokens {
    int64_t n, lists;
    syc_split by_k;
    syi_kv_slots_plan plan;

    __device__ int64_t slot(int64_t i, syi_found *f) const
    {
        const syi_kv_pages &p = plan.pages;
        const int64_t row = syc_quotient(i, by_k), j = i - row * p.k;
        const int64_t r =
            plan.batch.data != NULL ? syc_index(syc_row(plan.batch, row), j, plan.batch.type) : 0;
        if (r < 0 || r >= p.table.rows) {
            *f = syi_bad_at(syi_kv_lists(&p.table) ? SYI_BAD_KV_OF_TOKEN_P_REQUEST
                                                   : SYI_BAD_KV_OF_TOKEN_REQUEST,
                            -1, i, r, p.table.rows);
            return -1;
        }
        const syi_kv_sequence s = syi_kv_row_of(&p, r);
        const int64_t slot = syi_kv_slot_of(&p, &s, syc_index(syc_row(p.indices, row), j, p.index_type), f);
        f->bad = syi_kv_of_token(f->bad);
        f->position = i;
        return slot;
    }
    __device__ bool fault(int64_t i, syi_found *f) const
    {
        if (i < lists)
            *f = syi_kv_list_fault(&plan.pages, i);
        else
            slot(i - lists, f);
        return f->bad != SYI_GOOD;
    }
    __device__ bool wrong(int64_t i) const
    {
        syi_found f;
        return fault(i, &f);
    }
    __device__ void explain(int64_t i, syi_found *f) const { fault(i, f); }
};

/* The usual call, with table rows of int32. */
struct usual_tokens {
    int64_t n;
    const u8 *batch; /* NULL: row 0 */
    int64_t batch_stride;
    u32 rows;
    struct usual usual;
    struct tokens tokens;

    __device__ int64_t look_up(int64_t i) const
    {
        const u32 b = syc_divide((u32)i, usual.by_k), j = (u32)i - b * usual.by_k.d;
        const u32 r = batch != NULL ? ((const u32 *)(batch + b * batch_stride))[j] : 0;
        const int64_t slot = usual.table.slot_of(
            r < rows ? r : 0, ((const int32_t *)(usual.indices + b * usual.index_stride))[j]);
        return r < rows ? slot : -2;
    }
    __device__ int64_t slot(int64_t i, syi_found *) const { return look_up(i); }
    __device__ bool wrong(int64_t i) const { return look_up(i) == -2; }
    __device__ void explain(int64_t i, syi_found *f) const { tokens.explain(i, f); }
};

template <class Tokens>
static __global__ void __launch_bounds__(256)
    store_slots(const Tokens tokens, const syi_kv_slots_plan p, const syc_split by_k, int64_t n,
                const __grid_constant__ syc_gate gate)
{
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x, row = syc_quotient(i, by_k);
    syi_found f;
    const int64_t slot = i < n ? tokens.slot(i, &f) : -1;
    syc_wait_for_previous();
    if (syc_all_clear(gate, syc_sees_fault(gate)) && i < n)
        syc_store_index(syc_out_row(p.slots, row), i - row * p.pages.k, slot, p.slots.type);
}

SYC_NO_WORKSPACE(kv_slots)

void syc_kv_slots(syc_call *call, const syi_plan *plan)
{
    const syi_kv_slots_plan *const p = &plan->kv_slots;
    const int64_t n = p->pages.batch * p->pages.k,
                  lists = p->pages.table.indptr.rows.data != NULL ? p->pages.table.rows + 1 : 0;
    const struct tokens tokens = {lists + n, lists, syc_split_by(p->pages.k, n), *p};
    if (n == 0)
        return;
    if (is_usual(&p->pages) && p->pages.table.rows > 0 && p->pages.table.rows <= INT32_MAX &&
        (p->batch.data == NULL || p->batch.type == SY_TYPE_I32) &&
        ((u64)(uintptr_t)p->batch.data | (u64)p->batch.stride) % 4 == 0) {
        const usual_tokens usual = {
            n, p->batch.data, p->batch.stride, (u32)p->pages.table.rows, usual_of(&p->pages), tokens};
        check_positions(call, usual);
        syc_launch(&call->queue, store_slots<usual_tokens>, SYC_EARLY, (n + 255) / 256, 256, 0, usual, *p,
                   tokens.by_k, n, call->gate);
        return;
    }
    syc_check(call, tokens);
    syc_launch(&call->queue, store_slots<struct tokens>, SYC_EARLY, (n + 255) / 256, 256, 0, tokens, *p,
               tokens.by_k, n, call->gate);
}
