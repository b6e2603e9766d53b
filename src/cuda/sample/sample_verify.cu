/*
 * sample_verify on a device. A kernel gives each row the parameters of its request, with the step of its
 * depth; the kernels of sample pick a token for every row, into scratch; then a warp for each request walks
 * along the drafts that match, and writes the outputs.
 */
#include "plan/drafts.h"
#include "cuda/runtime/backend.cuh"
#include "cuda/prim/block.cuh"
#include "cuda/prim/lists.cuh"
#include "cuda/sample/sample_launch.cuh"

enum { WARPS = 4 };

/* ---- Contents ---- */

/* A check: rows of drafts, then stop tokens. Those of overrides follow with sample. */
struct drafts_check {
    struct syi_draft_rows drafts;
    struct syc_lists_check<1> stop;
    int64_t items, n;

    __device__ bool fault(int64_t i, struct syi_found *f) const
    {
        if (i >= items)
            return stop.fault(i - items, f);
        *f = syi_drafts_bad(&drafts, i, stop.vocab);
        return f->bad != SYI_GOOD;
    }

    __device__ bool wrong(int64_t i) const
    {
        struct syi_found f;
        return fault(i, &f);
    }

    __device__ void explain(int64_t i, struct syi_found *f) const { fault(i, f); }
};

static void check_contents(struct syc_call *call, const struct syi_sample_verify_plan *p)
{
    struct drafts_check check = {};
    check.drafts = p->drafts;
    check.stop.list[0] = p->stop;
    check.stop.batch = p->drafts.n_requests;
    check.stop.vocab = p->rows.vocab;
    check.stop.count();
    check.items = syi_drafts_items(&p->drafts);
    check.n = check.items + check.stop.n;
    if (check.n == 0)
        return;
    syc_check(call, check);
    syc_only_report(call); /* the kernels of sample look for faults that are reported */
}

/* ---- Parameters of rows ---- */

enum {
    COLUMNS = 13
}; /* top_k, top_p, min_p, temperature, seed, offset, stream, then six of stages, as in the plan of sample */
enum { OFFSET = 5, STREAM = 6 };

static __host__ __device__ bool is_real(int k)
{
    return (k >= 1 && k <= 3) || k > STREAM;
}

static_assert(offsetof(struct syi_sample_plan, stream) ==
                      offsetof(struct syi_sample_plan, top_k) + STREAM * sizeof(struct syi_column) &&
                  offsetof(struct syi_sample_plan, given_token) ==
                      offsetof(struct syi_sample_plan, top_k) + COLUMNS * sizeof(struct syi_column),
              "columns are an array");

static __host__ __device__ const struct syi_column *columns_of(const struct syi_sample_plan *p)
{
    return &p->top_k;
}

/* Whether rows need a column of their own: where requests have different numbers, and for the steps of draws.
 */
static bool spreads(const struct syi_sample_plan *p, int k)
{
    const struct syi_column *const c = columns_of(p) + k;
    if (k == OFFSET || k == STREAM)
        return p->noise != SY_NOISE_NONE;
    return c->rows.data != NULL && !c->held && c->rows.stride != 0;
}

/* The numbers of rows: integers, or the bits of f32; 8 bytes each. */
struct spread {
    u64 *to[COLUMNS]; /* NULL: none */
};

static __device__ u64 number_of(const struct syi_sample_plan &p, int k, int64_t b, int64_t depth)
{
    const struct syi_column &c = columns_of(&p)[k];
    if (k == STREAM && c.rows.data == NULL)
        return p.seed_per_row ? 0 : (u64)b;
    if (k == OFFSET)
        return (c.rows.data != NULL ? (u64)syc_column_int(c, b) : 0) + (u64)depth;
    return is_real(k) ? __float_as_uint(syc_column_float(c, b)) : (u64)syc_column_int(c, b);
}

static __global__ void __launch_bounds__(128)
    spread_rows(const __grid_constant__ struct syi_sample_verify_plan p,
                const __grid_constant__ struct spread spread, const __grid_constant__ struct syc_gate gate)
{
    if (!syc_may_write(gate))
        return;
    const int64_t used = syi_drafts_first(&p.drafts, p.drafts.n_requests);
    for (int64_t row = (int64_t)blockIdx.x * 128 + threadIdx.x; row < p.drafts.n_rows;
         row += (int64_t)gridDim.x * 128) {
        const bool is_used = row < used;
        const struct syi_draft of = syi_draft_of(&p.drafts, is_used ? syi_drafts_request(&p.drafts, row) : 0);
        const int64_t depth = is_used ? syi_draft_depth(&p.drafts, &of, row - of.first) : 0;
#pragma unroll 1
        for (int k = 0; k < COLUMNS; k++)
            if (spread.to[k] != NULL)
                spread.to[k][row] = is_used ? number_of(p.rows, k, of.b, depth) : 0;
    }
}

/* ---- The walk ---- */

/* What the kernels of sample wrote, by row. */
struct picked {
    const int64_t *token; /* -1: no candidate */
    const u32 *flags, *logprob, *rank, *top_logprob;
    const int64_t *top_token;
};

static __device__ u8 *slot_of(const struct syi_sample_verify_plan &p, struct syi_rows rows,
                              const struct syi_draft &of, int64_t i, int64_t bytes)
{
    return syi_draft_slot(&p.drafts, rows, &of, i, bytes);
}

/* What a slot has beside its token; row -1: nothing. */
static __device__ void put_more(const struct syi_sample_verify_plan &p, const struct picked &picked,
                                const struct syi_draft &of, int64_t i, int64_t row)
{
    const int64_t n = p.rows.n_top;
    if (syc_lane() == 0 && p.row_flags.data != NULL)
        syc_store<u32>(slot_of(p, p.row_flags, of, i, 4), row >= 0 ? picked.flags[row] : 0);
    if (syc_lane() == 0 && p.logprob.data != NULL)
        syc_store<u32>(slot_of(p, p.logprob, of, i, 4), row >= 0 ? picked.logprob[row] : 0);
    if (syc_lane() == 0 && p.rank.data != NULL)
        syc_store<u32>(slot_of(p, p.rank, of, i, 4), row >= 0 ? picked.rank[row] : 0);
    for (int64_t j = syc_lane(); j < n; j += 32) {
        syc_store_index(syc_out_row(p.rows.top_token, of.first + i), j,
                        row >= 0 ? picked.top_token[row * n + j] : -1, p.rows.top_token.type);
        syc_store<u32>(syc_out_row(p.rows.top_logprob, of.first + i) + j * 4,
                       row >= 0 ? picked.top_logprob[row * n + j] : 0xff800000u);
    }
}

static __device__ void put_slot(const struct syi_sample_verify_plan &p, const struct syi_draft &of, int64_t i,
                                int64_t token, int64_t path)
{
    if (syc_lane() == 0 && p.token.data != NULL)
        syc_store<u64>(slot_of(p, p.token, of, i, 8), (u64)token);
    if (syc_lane() == 0 && p.path.data != NULL)
        syc_store<u32>(slot_of(p, p.path, of, i, 4), (u32)path);
}

/* The lowest row after `cur` that continues it with a token; 0: none. */
static __device__ int64_t child_of(const struct syi_draft_rows &d, const struct syi_draft &of, int64_t cur,
                                   int64_t token)
{
#pragma unroll 1
    for (int64_t first = cur + 1; first < of.n; first += 32) {
        const int64_t r = first + syc_lane();
        const bool is_child =
            r < of.n && syi_draft_parent(&d, &of, r) == cur && syi_draft_token(&d, &of, r) == token;
        const u32 all = __ballot_sync(SYC_ALL_LANES, is_child);
        if (all != 0)
            return first + __ffs((int)all) - 1;
    }
    return 0;
}

static __device__ bool stops(const struct syi_token_lists &stop, int64_t b, int64_t token)
{
    const int64_t end = syi_shared_end(&stop, b);
    bool found = false;
    for (int64_t j = syi_shared_first(&stop, b) + syc_lane(); j < end; j += 32)
        found |= syc_list_token(stop, j) == token;
    return __any_sync(SYC_ALL_LANES, found) != 0;
}

/* Slots without a token. */
static __device__ void put_nothing(const struct syi_sample_verify_plan &p, const struct picked &picked,
                                   const struct syi_draft &of, int64_t first)
{
#pragma unroll 1
    for (int64_t i = first; i < of.n; i++) {
        put_slot(p, of, i, -1, -1);
        put_more(p, picked, of, i, -1);
    }
}

static __device__ void put_mask(const struct syi_sample_verify_plan &p, const struct syi_draft &of,
                                int64_t accepted)
{
    for (int64_t r = syc_lane(); r < of.n && p.accept_mask.data != NULL; r += 32)
        *slot_of(p, p.accept_mask, of, r, 1) = r == accepted;
    __syncwarp();
}

static __device__ void walk(const struct syi_sample_verify_plan &p, const struct picked &picked, int64_t b)
{
    const struct syi_draft of = syi_draft_of(&p.drafts, b);
    int64_t cur = 0, count = 0, accepted = 0, next = -1;
    put_mask(p, of, 0);
#pragma unroll 1
    for (bool ends = of.n == 0; !ends; count++) {
        const int64_t x = picked.token[of.first + cur], child = x >= 0 ? child_of(p.drafts, of, cur, x) : 0;
        next = x >= 0 ? x : p.empty_token;
        put_slot(p, of, count, next, cur);
        put_more(p, picked, of, count, of.first + cur);
        if (child > 0) {
            accepted = count + 1;
            if (syc_lane() == 0 && p.accept_mask.data != NULL)
                *slot_of(p, p.accept_mask, of, child, 1) = 1;
        }
        ends = child == 0 || stops(p.stop, b, x);
        cur = child;
    }
    put_nothing(p, picked, of, count);
    if (syc_lane() != 0)
        return;
    if (p.accepted != NULL)
        syc_store<u32>(p.accepted + b * 4, (u32)accepted);
    if (p.count != NULL)
        syc_store<u32>(p.count + b * 4, (u32)count);
    if (p.next_token != NULL)
        syc_store<u64>(p.next_token + b * 8, (u64)next);
}

/* A warp for each request, and one for the rows that none has. */
static __global__ void __launch_bounds__(WARPS * 32)
    walk_requests(const __grid_constant__ struct syi_sample_verify_plan p,
                  const __grid_constant__ struct picked picked, const __grid_constant__ struct syc_gate gate)
{
    if (!syc_may_write(gate))
        return;
    const int64_t b = (int64_t)blockIdx.x * WARPS + syc_warp();
    if (b < p.drafts.n_requests)
        walk(p, picked, b);
    if (b != p.drafts.n_requests)
        return;
    const int64_t used = syi_drafts_first(&p.drafts, b);
    const struct syi_draft others = {b, used, p.drafts.n_rows - used};
    put_mask(p, others, -1);
    put_nothing(p, picked, others, 0);
}

/* ---- The call ---- */

struct verify_layout {
    struct spread spread;
    struct picked picked;
    union syi_plan rows; /* the call of sample with all rows */
    size_t bytes;        /* before its own scratch */
};

/* Scratch from `base` on, which is not NULL: a column without memory is not there. A query has no outputs,
 * and stands for all. */
static struct verify_layout lay_out(const struct syi_sample_verify_plan *p, u8 *base)
{
    struct verify_layout l = {};
    const size_t n = (size_t)p->drafts.n_rows, n_top = (size_t)p->rows.n_top * n;
    struct syi_sample_plan *const rows = &l.rows.sample;
    const auto take = [&](size_t bytes) {
        u8 *const at = base + l.bytes;
        l.bytes += (bytes + 63) / 64 * 64;
        return at;
    };
    *rows = p->rows;
    for (int k = 0; k < COLUMNS; k++) {
        const bool real = is_real(k);
        struct syi_column *const c = &rows->top_k + k;
        if (k == OFFSET || k == STREAM)
            *c = {}; /* of requests, and not used without draws */
        if (!spreads(&p->rows, k))
            continue;
        l.spread.to[k] = (u64 *)take(n * 8);
        *c = {};
        c->rows = {(u8 *)l.spread.to[k], 8};
        c->type = real ? SY_TYPE_F32 : SY_TYPE_I64;
    }
    rows->seed_per_row = true;
    rows->token.data = take(n * 8);
    u8 *const flags = take(n * 4), *const logprob = take(n * 4), *const rank = take(n * 4),
              *const top = take(n_top * 8), *const top_logprob = take(n_top * 4);
    rows->row_flags.data = rows->row_flags.data != NULL ? flags : NULL;
    rows->logprob.data = rows->logprob.data != NULL ? logprob : NULL;
    rows->rank.data = rows->rank.data != NULL ? rank : NULL;
    rows->top_token = {top, p->rows.n_top * 8, SY_TYPE_I64};
    rows->top_logprob = {top_logprob, p->rows.n_top * 4, SY_TYPE_F32};
    l.picked = {
        (const int64_t *)rows->token.data, (const u32 *)flags,  (const u32 *)logprob, (const u32 *)rank,
        (const u32 *)top_logprob,          (const int64_t *)top};
    return l;
}

size_t syc_sample_verify_workspace(const struct syc_device *device, const union syi_plan *plan)
{
    u8 somewhere;
    const struct verify_layout l = lay_out(&plan->sample_verify, &somewhere);
    return l.bytes + syc_sample_workspace(device, &l.rows);
}

void syc_sample_verify(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_sample_verify_plan *const p = &plan->sample_verify;
    u8 *const base = call->scratch;
    const struct verify_layout l = lay_out(p, base);
    const int64_t most = 8 * (int64_t)call->device->processors, blocks = (p->drafts.n_rows + 127) / 128;
    if (p->drafts.n_requests == 0)
        return;
    check_contents(call, p);
    syc_launch(&call->queue, spread_rows, SYC_EARLY, blocks < most ? blocks : most, 128, 0, *p, l.spread,
               call->gate);
    call->scratch = base + l.bytes;
    syc_sample(call, &l.rows);
    call->scratch = base;
    syc_launch(&call->queue, walk_requests, SYC_AFTER, (p->drafts.n_requests + WARPS) / WARPS, WARPS * 32, 0,
               *p, l.picked, call->gate);
}
