/*
 * Any row of sample, by a block: the tiles give a threshold that few tokens reach, and those are gathered
 * from the tiles that reach it, in shared memory. Rows that keep more are cut by histograms of their keys,
 * which is exact for every distribution.
 */
#pragma once

#include "cuda/prim/bulk.cuh"
#include "cuda/sample/sample_logprob.cuh"
#include "cuda/sample/sample_nucleus.cuh"
#include "cuda/sample/sample_top_k.cuh"
#include "cuda/sample/sample_wide.cuh"

template <sy_type T> SYC_INLINE void sample_row(syc_sample_row &r, const u32 *tile, u32 flags)
{
    const syi_sample_plan &p = *r.p;
    const bool lists = p.list_token.data != NULL || p.list_prob.data != NULL;
    const bool by_list = p.noise == SY_NOISE_Q && p.args.q_order == SY_Q_LIST;
    flags = scan_row<T>(r, tile, flags);
    int64_t token = r.empty ? p.empty_token : (int64_t)syc_token_of(r.first);
    if (needs_candidates(r) && (!r.empty || lists)) {
        filter_row<T>(r);
        const bool draws = !r.empty && !r.greedy;
        if (draws && p.noise == SY_NOISE_CDF)
            token = choose_by_cdf<T>(r);
        else if (draws && !by_list)
            token = choose_by_token<T>(r);
        if (lists || (draws && by_list))
            make_list<T>(r);
        if (draws && by_list)
            token = choose_by_list<T>(r);
    }
    const u32 kept = p.kept.data != NULL ? (u32)measure<T>(r, false) : 0;
    if (lists)
        write_list<T>(r);
    const float lp = p.logprob.data != NULL ? logprob<T>(r, (u32)token) : 0.0f;
    if (p.masked.data != NULL) {
        __syncthreads(); /* all have read the row */
        write_masked<T>(r);
    }
    if (threadIdx.x == 0)
        put_results(p, r.b, token, flags, kept, lp);
}

/* Any row; all others come here, with their tiles. */
template <sy_type T>
SYC_COLD void general_row(const syi_sample_plan &p, const sample_scratch &scratch, syc_sample_shared *s,
                          syc_sample_row &r, int64_t b, uint4 tiles, u32 flags, bool known)
{
    u32 tile[SYC_OWN_TILES] = {tiles.x, tiles.y, tiles.z, tiles.w};
    u8 *const own = scratch.data + blockIdx.x * scratch.of_block;
    const bool staged = p.overrides.indptr != NULL;
    __syncthreads();
    if (syc_warp() == 0) {
        const syc_params a = load_params(p, b);
        if (syc_lane() == 0) {
            r = {};
            r.p = &p;
            r.s = s;
            r.b = b;
            r.vocab = r.n = (u32)p.vocab;
            r.logits = {syc_row(p.logits, b), p.allow_bits.data != NULL ? syc_row(p.allow_bits, b) : NULL,
                        r.vocab};
            r.scale.probs_in = p.args.probs_in;
            r.split = scratch.split;
            r.list = (u64 *)(own + scratch.lists);
            set_params(r, a);
        }
    }
    __syncthreads();
    if (staged) {
        stage_row(r, (u32 *)own);
        syc_change([&] { r.logits = {own, NULL, (u32)p.vocab}; });
    }
    if (!known)
        flags = get_tiles<T>(p, r.split, r.logits, b, tile);
    sample_row<T>(r, tile, flags);
}

union top_k_shared {
    syc_sample_shared general;
    rows_shared other;
    top_shared top;
};

/* The same of calls that ask for more. */
union top_more_shared {
    top_k_shared pick;
    logprob_shared more;
};
static_assert(sizeof(union top_more_shared) <= sample_policy::MASK_BESIDE, "room for masks");

/* Kernels are compiled without what `extends` them, too: most calls ask for no more than a token. */
template <bool extends> SYC_INLINE void begin_more(listed_shared *s, const sample_scratch &scratch)
{
    if (threadIdx.x != 0)
        return;
    s->more = extends ? &scratch.more : NULL;
    if (extends)
        s->wrote = false;
}

/* A row that no kernel for rows of its kind has finished. */
template <sy_type T>
SYC_COLD enum outcome other_row(const syi_sample_plan &p, const sample_scratch &scratch, rows_shared *s,
                                syc_sample_row &row, int64_t b, const syc_gate *look, enum outcome outcome)
{
    u32 tile[SYC_OWN_TILES] = {0, 0, 0, 0}, flags = 0;
    const bool staged = p.overrides.indptr != NULL, unread = outcome == ROW_WIDE || staged;
    if (threadIdx.x == 0)
        s->listed.more = NULL;
    if (outcome == ROW_LEFT && !staged)
        outcome = listed_row<T>(p, scratch.split, &s->listed, b, look, tile, flags);
    if (outcome == ROW_LEFT || outcome == ROW_WIDE)
        general_row<T>(p, scratch, &s->general, row, b, make_uint4(tile[0], tile[1], tile[2], tile[3]), flags,
                       !unread);
    __syncthreads();
    return outcome;
}

template <sy_type T>
static __global__ void __launch_bounds__(SYC_SAMPLE_THREADS, 2)
    sample_rows(const __grid_constant__ syi_sample_plan p, const __grid_constant__ sample_scratch scratch,
                const __grid_constant__ syc_gate gate)
{
    __shared__ rows_shared s;
    __shared__ syc_sample_row row;
    const syc_gate *look = &gate; /* until a row was processed */
    if (!scratch.listed && !syc_may_write(gate))
        return;
    if (scratch.left != NULL) { /* mostly nothing: all rows of the block at once */
        bool any = false;
        syc_wait_for_previous();
        for (int64_t b = blockIdx.x + (int64_t)threadIdx.x * gridDim.x; b < p.batch;
             b += (int64_t)SYC_SAMPLE_THREADS * gridDim.x)
            any |= __ldcg(scratch.left + b) != 0;
        if (__syncthreads_or(any) == 0)
            return;
    }
#pragma unroll 1
    for (int64_t b = blockIdx.x; b < p.batch; b += gridDim.x) {
        enum outcome outcome = scratch.listed ? ROW_LEFT : ROW_WIDE;
        if (scratch.left != NULL)
            outcome = (enum outcome)__ldcg(scratch.left + b);
        if (outcome == ROW_DONE)
            continue;
        if (outcome == ROW_CLOSED || other_row<T>(p, scratch, &s, row, b, look, outcome) == ROW_CLOSED)
            return;
        look = NULL;
    }
}

/* Rows of calls with top-p alone; `blocks` blocks read a row together. The first tells the others whether
   there is more to do. Rows that take the general steps do so at once, or are left to sample_rows where those
   need scratch. */
struct nucleus_shared {
    struct far_gates far_gates;
    struct wide_gates wide_gates;
    wide_edge edge;
    union {
        struct {
            listed_shared listed;
            far_shared far;
        };
        wide_shared wide;
        rows_shared other;
        logprob_shared more;
    };
};
static_assert(sizeof(struct nucleus_shared) <= sample_policy::MASK_BESIDE, "room for masks");

template <sy_type T, bool extends, bool plain>
static __global__ void __launch_bounds__(SYC_SAMPLE_THREADS, 2)
    nucleus_rows(const __grid_constant__ syi_sample_plan p, u32 blocks, start_late late,
                 const __grid_constant__ sample_scratch scratch, const __grid_constant__ syc_gate gate)
{
    SYC_DYNAMIC_SHARED(nucleus_shared, s);
    syc_wait_for_previous();
    syc_start_next();
    begin_late(late);
    __shared__ syc_sample_row row;
    const u32 b = blockIdx.x / blocks, rank = blockIdx.x - b * blocks;
    if constexpr (!plain)
        begin_more<extends>(&s->listed, scratch); /* before others may send something to the same memory */
    if (blocks > 1) {
        if (threadIdx.x <
            sample_policy::EDGE_READS) /* a turn for each thread: one after the other they would take long */
            expect_wide(&s->wide_gates, threadIdx.x, rank, blocks);
        else if (threadIdx.x == sample_policy::EDGE_READS)
            expect_far(&s->far_gates, rank, blocks);
        syc_cluster_begin();
    }
    enum outcome outcome = nucleus_row<T, plain>(p, (u32 *)(s + 1), &s->listed, &s->far, &s->far_gates, rank,
                                                 blocks, b, &gate, &s->edge);
    __syncthreads();
    if (rank == 0 && blocks > 1)
        send_verdict(&s->far_gates, s->far_gates.asked ? 1 : 0, blocks,
                     s->edge.key | (u64)s->edge.flags << 32,
                     __float_as_uint(s->edge.certain) | (u64)__float_as_uint(s->edge.least) << 32,
                     outcome | (u64)__float_as_uint(s->edge.inv_t) << 32);
    wide_edge edge = s->edge;
    const bool wrote =
        !extends || rank != 0 || outcome == ROW_CLOSED || (outcome == ROW_DONE && s->listed.wrote);
    if (rank != 0) {
        const u64 *word = s->far_gates.word[0];
        syc_wait_at(&s->far_gates.verdict[0]);
        if ((enum outcome)(u32)word[2] == ROW_SAMPLE) {
            sample_far<T>(p, &s->listed, &s->far, &s->far_gates, rank, blocks, b);
            word = s->far_gates.word[1];
            syc_wait_at(&s->far_gates.verdict[1]);
        }
        edge = {(u32)word[0],
                __uint_as_float((u32)word[1]),
                __uint_as_float((u32)(word[1] >> 32)),
                (u32)(word[0] >> 32),
                __uint_as_float((u32)(word[2] >> 32)),
                0.0f,
                0};
        outcome = (enum outcome)(u32)word[2];
    }
    if (outcome == ROW_EDGE)
        outcome = wide_row<T>(p, &s->wide, &s->wide_gates, edge, rank, blocks, b) ? ROW_DONE : ROW_WIDE;
    if (rank == 0 && scratch.left != NULL) {
        if (threadIdx.x == 0)
            scratch.left[b] = outcome;
    } else if (rank == 0 && (outcome == ROW_LEFT || outcome == ROW_WIDE)) {
        __syncthreads();
        other_row<T>(p, scratch, &s->other, row, b, NULL, outcome);
    }
    if (!wrote)
        finish_more<T>(p, scratch.more, &s->more, b);
}

/* Two blocks of a processor run at once. */
static inline struct read_ahead ahead_of(const struct syc_device *device, const struct syi_sample_plan *p)
{
    const u32 at_once = 2 * (u32)device->processors, most = sample_policy::AHEAD_BYTES;
    const int64_t bytes = p->vocab * (p->logits.type == SY_TYPE_F32 ? 4 : 2);
    return {p->batch > (int64_t)at_once ? at_once : 0, (bytes < most ? (u32)bytes : most) / 16 * 16};
}

template <sy_type T>
void syc_sample_nucleus(struct syc_call *call, const struct syi_sample_plan *p,
                        const struct sample_scratch *scratch)
{
    const u32 blocks = p->row_flags.data != NULL ? 1
                                                 : syc_sample_cluster(call->device, p, sample_policy::CLUSTER,
                                                                      syc_sample_vectors(p));
    const auto kernel = scratch->more.asked ? nucleus_rows<T, true, false>
                        : is_plain_call(p)  ? nucleus_rows<T, false, true>
                                            : nucleus_rows<T, false, false>;
    const size_t shared = sizeof(struct nucleus_shared) + syc_sample_mask_bytes(p);
    syc_allow_shared(&call->queue, kernel, shared);
    syc_launch_clusters(&call->queue, kernel, SYC_EARLY, p->batch * blocks, (int)blocks, SYC_SAMPLE_THREADS,
                        shared, *p, blocks, late_of(call->device, p, blocks), *scratch, call->gate);
}

/* Rows of calls with top-k; `blocks` blocks read a row together. What they cannot do takes the general steps
   at once, or is left to sample_rows where those need scratch. */
template <sy_type T, bool extends, bool few, bool plain>
static __global__ void __launch_bounds__(SYC_SAMPLE_THREADS, 2)
    top_k_rows(const __grid_constant__ syi_sample_plan p, u32 blocks, read_ahead ahead, start_late late,
               const __grid_constant__ sample_scratch scratch, const __grid_constant__ syc_gate gate)
{
    SYC_DYNAMIC_SHARED(top_more_shared, all);
    top_k_shared *const s = &all->pick;
    __shared__ syc_sample_row row;
    const u32 b = blockIdx.x / blocks, rank = blockIdx.x - b * blocks;
    syc_wait_for_previous();
    syc_start_next();
    if constexpr (!few)
        begin_late(late);
    begin_more<extends>(&s->top.listed, scratch);
    const enum outcome outcome =
        top_k_row<T, few, plain>(p, &s->top, (u32 *)(all + 1), rank, blocks, b, &gate, ahead);
    if (scratch.left != NULL) {
        if (threadIdx.x == 0 && rank == 0)
            scratch.left[b] = outcome;
    } else if (outcome == ROW_LEFT) {
        const bool off = s->top.listed.params.k == 0; /* of this row */
        __syncthreads();
        if (off)
            other_row<T>(p, scratch, &s->other, row, b, NULL, ROW_LEFT);
        else
            general_row<T>(p, scratch, &s->general, row, b, make_uint4(0, 0, 0, 0), 0, false);
        __syncthreads(); /* the row has an address of thread 0 */
    }
    if (extends) {
        __syncthreads();
        if (rank == 0 && outcome != ROW_CLOSED && (outcome != ROW_DONE || !s->top.listed.wrote))
            finish_more<T>(p, scratch.more, &all->more, b);
    }
}

template <sy_type T, bool few>
void syc_sample_top_k(struct syc_call *call, const struct syi_sample_plan *p,
                      const struct sample_scratch *scratch)
{
    const u32 blocks =
        syc_sample_cluster(call->device, p, sample_policy::TOP_K_CLUSTER, syc_sample_vectors(p) - 1);
    const bool extends = scratch->more.asked;
    const size_t bits = syc_sample_mask_bytes(p),
                 shared = (extends || bits > 0 ? sizeof(union top_more_shared) : sizeof(union top_k_shared)) +
                          bits;
    struct start_late late = late_of(call->device, p, blocks);
    late.cycles /= 2; /* a row takes less time than one of top-p */
    const auto kernel = !few && extends    ? top_k_rows<T, !few, few, false>
                        : is_plain_call(p) ? top_k_rows<T, false, few, true>
                                           : top_k_rows<T, false, few, false>;
    syc_allow_shared(&call->queue, kernel, shared);
    syc_launch_clusters(&call->queue, kernel, SYC_EARLY, p->batch * blocks, (int)blocks, SYC_SAMPLE_THREADS,
                        shared, *p, blocks, ahead_of(call->device, p), late, *scratch, call->gate);
}

template <sy_type T>
void syc_sample_general(syc_call *call, const syi_sample_plan *p, const sample_scratch *scratch,
                        enum syc_start start, int64_t blocks)
{
    syc_launch(&call->queue, sample_rows<T>, start, blocks, SYC_SAMPLE_THREADS, 0, *p, *scratch, call->gate);
}
