/*
 * Any row of sample, by a block: the cells give a floor that few tokens reach, and those are gathered from the cells that reach it,
 * in shared memory. Rows that keep more are cut by histograms of their keys, which is exact for every distribution.
 */
#ifndef SYC_SAMPLE_ROWS_CUH
#define SYC_SAMPLE_ROWS_CUH

#include "cuda/bulk.cuh"
#include "cuda/sample_logprob.cuh"
#include "cuda/sample_nucleus.cuh"
#include "cuda/sample_top_k.cuh"
#include "cuda/sample_wide.cuh"

template <sy_type T> static __device__ __forceinline__ void sample_row(struct syc_sample_row &r, const u32 *cell, u32 flags)
{
    const struct syi_sample_plan &p = *r.p;
    const bool lists = p.list_token.data != NULL || p.list_prob.data != NULL;
    const bool by_list = p.noise == SY_NOISE_Q && p.args.q_order == SY_Q_LIST;
    flags = scan_row<T>(r, cell, flags);
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
    if (threadIdx.x != 0)
        return;
    if (p.token.data != NULL)
        syc_store<u64>(p.token.data + r.b * 8, (u64)token);
    if (p.row_flags.data != NULL)
        syc_store<u32>(p.row_flags.data + r.b * 4, flags);
    if (p.kept.data != NULL)
        syc_store<u32>(p.kept.data + r.b * 4, kept);
    if (p.logprob.data != NULL)
        syc_store<u32>(p.logprob.data + r.b * 4, __float_as_uint(lp));
}

/* Any row; all others come here, with their cells. */
template <sy_type T>
SYC_COLD void general_row(const struct syi_sample_plan &p, const struct sample_scratch &scratch, struct syc_sample_shared *s, struct syc_sample_row &r,
                          int64_t b, uint4 cells, u32 flags, bool known)
{
    u32 cell[SYC_CELLS] = {cells.x, cells.y, cells.z, cells.w};
    u8 *const own = scratch.data + blockIdx.x * scratch.of_block;
    const bool staged = p.overrides.indptr != NULL;
    __syncthreads();
    if (syc_warp() == 0) {
        const struct syc_params a = load_params(p, b);
        if (syc_lane() == 0) {
            r = {};
            r.p = &p;
            r.s = s;
            r.b = b;
            r.vocab = r.n = (u32)p.vocab;
            r.logits = {syc_row(p.logits, b), p.allow_bits.data != NULL ? syc_row(p.allow_bits, b) : NULL, r.vocab};
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
        flags = get_cells<T>(p, r.split, r.logits, b, cell);
    sample_row<T>(r, cell, flags);
}

union top_k_shared {
    struct syc_sample_shared general;
    struct top_shared top;
};

/* The same of calls that ask for more. */
union top_more_shared {
    union top_k_shared pick;
    struct logprob_shared more;
};

/* Kernels are compiled without what `extends` them, too: most calls ask for no more than a token. */
template <bool extends> static __device__ __forceinline__ void begin_more(struct quick_shared *s, const struct sample_scratch &scratch)
{
    if (threadIdx.x != 0)
        return;
    s->more = extends ? &scratch.more : NULL;
    if (extends)
        s->wrote = false;
}

/* A row that no kernel for rows of its kind has finished. */
template <sy_type T>
SYC_COLD enum quick other_row(const struct syi_sample_plan &p, const struct sample_scratch &scratch, union rows_shared *s, struct syc_sample_row &row, int64_t b,
                              const struct syc_gate *look, enum quick quick)
{
    u32 cell[SYC_CELLS] = {0, 0, 0, 0}, flags = 0;
    const bool unread = quick == QUICK_WIDE;
    if (threadIdx.x == 0)
        s->quick.more = NULL;
    if (quick == QUICK_NO)
        quick = quick_row<T>(p, scratch.split, &s->quick, b, look, cell, flags);
    if (quick == QUICK_NO || quick == QUICK_WIDE)
        general_row<T>(p, scratch, &s->general, row, b, make_uint4(cell[0], cell[1], cell[2], cell[3]), flags, !unread);
    __syncthreads();
    return quick;
}

template <sy_type T>
static __global__ void __launch_bounds__(SYC_SAMPLE_THREADS, 2)
    sample_rows(const __grid_constant__ struct syi_sample_plan p, const __grid_constant__ struct sample_scratch scratch,
                const __grid_constant__ struct syc_gate gate)
{
    __shared__ union rows_shared s;
    __shared__ struct syc_sample_row row;
    const struct syc_gate *look = &gate; /* until a row was processed */
    if (scratch.path == PATH_GENERAL && !syc_may_write(gate))
        return;
    if (scratch.left != NULL) { /* mostly nothing: all rows of the block at once */
        bool any = false;
        syc_wait_for_previous();
        for (int64_t b = blockIdx.x + (int64_t)threadIdx.x * gridDim.x; b < p.batch; b += (int64_t)SYC_SAMPLE_THREADS * gridDim.x)
            any |= __ldcg(scratch.left + b) != 0;
        if (__syncthreads_or(any) == 0)
            return;
    }
#pragma unroll 1
    for (int64_t b = blockIdx.x; b < p.batch; b += gridDim.x) {
        enum quick quick = scratch.path == PATH_GENERAL ? QUICK_WIDE : QUICK_NO;
        if (scratch.left != NULL)
            quick = (enum quick)__ldcg(scratch.left + b);
        if (quick == QUICK_DONE)
            continue;
        if (quick == QUICK_CLOSED || other_row<T>(p, scratch, &s, row, b, look, quick) == QUICK_CLOSED)
            return;
        look = NULL;
    }
}

/* Rows of calls with top-p alone; `blocks` blocks read a row together. The first tells the others whether there is more to do. Rows that take the general
   steps do so at once, or are left to sample_rows where those need scratch. */
struct nucleus_shared {
    struct far_gates far_gates;
    struct wide_gates wide_gates;
    struct wide_edge edge;
    union {
        struct {
            struct quick_shared quick;
            union far_shared far;
        };
        struct wide_shared wide;
        union rows_shared other;
        struct logprob_shared more;
    };
};

template <sy_type T, bool extends, bool plain>
static __global__ void __launch_bounds__(SYC_SAMPLE_THREADS, 2)
    nucleus_rows(const __grid_constant__ struct syi_sample_plan p, u32 blocks, struct start_late late, const __grid_constant__ struct sample_scratch scratch, const __grid_constant__ struct syc_gate gate)
{
    SYC_DYNAMIC_SHARED(struct nucleus_shared, s);
    syc_wait_for_previous();
    syc_start_next();
    begin_late(late);
    __shared__ struct syc_sample_row row;
    const u32 b = blockIdx.x / blocks, rank = blockIdx.x - b * blocks;
    if constexpr (!plain)
        begin_more<extends>(&s->quick, scratch); /* before others may send something to the same memory */
    if (blocks > 1) {
        if (threadIdx.x < WIDE_TURNS) /* a turn for each thread: one after the other they would take long */
            expect_wide(&s->wide_gates, threadIdx.x, rank, blocks);
        else if (threadIdx.x == WIDE_TURNS)
            expect_far(&s->far_gates, rank, blocks);
        syc_cluster_begin();
    }
    enum quick quick = nucleus_row<T, plain>(p, &s->quick, &s->far, &s->far_gates, rank, blocks, b, &gate, &s->edge);
    __syncthreads();
    if (rank == 0 && blocks > 1)
        tell_far(&s->far_gates, s->far_gates.asked ? 1 : 0, blocks, s->edge.key | (u64)s->edge.flags << 32, __float_as_uint(s->edge.certain) | (u64)__float_as_uint(s->edge.least) << 32,
                 quick | (u64)__float_as_uint(s->edge.inv_t) << 32);
    struct wide_edge edge = s->edge;
    const bool wrote = !extends || rank != 0 || quick == QUICK_CLOSED || (quick == QUICK_DONE && s->quick.wrote);
    if (rank != 0) {
        const u64 *word = s->far_gates.word[0];
        syc_wait_at(&s->far_gates.told[0]);
        if ((enum quick)(u32)word[2] == QUICK_SAMPLE) {
            sample_far<T>(p, &s->quick, &s->far, &s->far_gates, rank, blocks, b);
            word = s->far_gates.word[1];
            syc_wait_at(&s->far_gates.told[1]);
        }
        edge = {(u32)word[0], __uint_as_float((u32)word[1]), __uint_as_float((u32)(word[1] >> 32)), (u32)(word[0] >> 32), __uint_as_float((u32)(word[2] >> 32)), 0.0f, 0};
        quick = (enum quick)(u32)word[2];
    }
    if (quick == QUICK_EDGE)
        quick = wide_row<T>(p, &s->wide, &s->wide_gates, edge, rank, blocks, b) ? QUICK_DONE : QUICK_WIDE;
    if (rank == 0 && scratch.left != NULL) {
        if (threadIdx.x == 0)
            scratch.left[b] = quick;
    } else if (rank == 0 && (quick == QUICK_NO || quick == QUICK_WIDE)) {
        __syncthreads();
        other_row<T>(p, scratch, &s->other, row, b, NULL, quick);
    }
    if (!wrote)
        finish_more<T>(p, scratch.more, &s->more, b);
}

/* Two blocks of a multiprocessor run at once. */
static inline struct read_ahead ahead_of(const struct syc_device *device, const struct syi_sample_plan *p)
{
    const u32 at_once = 2 * (u32)device->processors, most = 24 << 10; /* 16 to 32 KiB were best on an H200 */
    const int64_t bytes = p->vocab * (p->logits.type == SY_TYPE_F32 ? 4 : 2);
    return {p->batch > (int64_t)at_once ? at_once : 0, (bytes < most ? (u32)bytes : most) / 16 * 16};
}

/* As many as keep the device busy, if each has vectors to read. */
template <sy_type T> void syc_sample_nucleus(struct syc_call *call, const struct syi_sample_plan *p, const struct sample_scratch *scratch)
{
    u32 blocks = 1;
    if (p->row_flags.data == NULL)
        while (call->device->dependent && blocks < MOST_CLUSTER && p->batch * blocks * 2 <= call->device->processors && syc_sample_vectors(p) >= (int64_t)blocks * 2 * SYC_FEW)
            blocks *= 2;
    const auto kernel = scratch->more.asked ? nucleus_rows<T, true, false> : is_plain_call(p) ? nucleus_rows<T, false, true> : nucleus_rows<T, false, false>;
    syc_allow_shared(&call->queue, kernel, sizeof(struct nucleus_shared));
    syc_launch_clusters(&call->queue, kernel, SYC_EARLY, p->batch * blocks, (int)blocks, SYC_SAMPLE_THREADS, sizeof(struct nucleus_shared), *p, blocks, late_of(call->device, p, blocks), *scratch,
                        call->gate);
}

/* Rows of calls with top-k; `blocks` blocks read a row together. What they cannot do takes the general steps at once, or is left to
   sample_rows where those need scratch. */
template <sy_type T, bool extends, bool few, bool plain>
static __global__ void __launch_bounds__(SYC_SAMPLE_THREADS, 2)
    top_k_rows(const __grid_constant__ struct syi_sample_plan p, u32 blocks, struct read_ahead ahead, struct start_late late, const __grid_constant__ struct sample_scratch scratch,
               const __grid_constant__ struct syc_gate gate)
{
    SYC_DYNAMIC_SHARED(union top_more_shared, all);
    union top_k_shared *const s = &all->pick;
    __shared__ struct syc_sample_row row;
    const u32 b = blockIdx.x / blocks, rank = blockIdx.x - b * blocks;
    syc_wait_for_previous();
    syc_start_next();
    if constexpr (!few)
        begin_late(late);
    begin_more<extends>(&s->top.quick, scratch);
    const enum quick quick = top_k_row<T, few, plain>(p, &s->top, rank, blocks, b, &gate, ahead);
    if (scratch.left != NULL) {
        if (threadIdx.x == 0 && rank == 0)
            scratch.left[b] = quick;
    } else if (quick == QUICK_NO) {
        general_row<T>(p, scratch, &s->general, row, b, make_uint4(0, 0, 0, 0), 0, false);
        __syncthreads(); /* the row has an address of thread 0 */
    }
    if (extends) {
        __syncthreads();
        if (rank == 0 && quick != QUICK_CLOSED && (quick != QUICK_DONE || !s->top.quick.wrote))
            finish_more<T>(p, scratch.more, &all->more, b);
    }
}

template <sy_type T> void syc_sample_top_k(struct syc_call *call, const struct syi_sample_plan *p, const struct sample_scratch *scratch)
{
    u32 blocks = 1; /* as many as keep the device busy, if each has vectors to read */
    while (call->device->dependent && blocks < TOP_CLUSTER && p->batch * blocks * 2 <= call->device->processors && syc_sample_vectors(p) > (int64_t)blocks * 2 * SYC_FEW)
        blocks *= 2;
    const bool extends = scratch->more.asked;
    struct start_late late = late_of(call->device, p, blocks);
    late.cycles /= 2; /* a row takes less time than one of top-p */
    const bool few = p->batch <= call->device->processors, plain = is_plain_call(p);
    const auto kernel = extends ? top_k_rows<T, true, false, false>
                        : few   ? (plain ? top_k_rows<T, false, true, true> : top_k_rows<T, false, true, false>)
                                : (plain ? top_k_rows<T, false, false, true> : top_k_rows<T, false, false, false>);
    syc_allow_shared(&call->queue, kernel, extends ? sizeof(union top_more_shared) : sizeof(union top_k_shared));
    syc_launch_clusters(&call->queue, kernel, SYC_EARLY, p->batch * blocks, (int)blocks, SYC_SAMPLE_THREADS,
                        extends ? sizeof(union top_more_shared) : sizeof(union top_k_shared), *p, blocks, ahead_of(call->device, p), late, *scratch,
                        call->gate);
}

template <sy_type T>
void syc_sample_general(struct syc_call *call, const struct syi_sample_plan *p, const struct sample_scratch *scratch, enum syc_start start, int64_t blocks)
{
    syc_launch(&call->queue, sample_rows<T>, start, blocks, SYC_SAMPLE_THREADS, 0, *p, *scratch, call->gate);
}

#endif
