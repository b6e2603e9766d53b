/*
 * sample_overrides on a device: a block per row. It marks the tokens of its lists in a bitmap and counts
 * them; walking the bitmap gives each token once and in order, whatever the order of the lists. Rows are
 * built side by side in scratch; a second kernel adds up how long they are, and a third moves them together.
 * Draft tokens before a row are part of its output.
 */
#include "plan/overrides.h"
#include "cuda/runtime/backend.cuh"
#include "cuda/prim/block.cuh"
#include "cuda/prim/lists.cuh"

enum {
    IN_PROMPT = 1,
    ONE = 2,
    THREADS = 512,
    FEW = 2048 /* biases sorted in shared memory, at most */
};

/* Scratch of a launch. */
struct overrides_scratch {
    u64 *bias;             /* [2][n of biases of all rows] */
    u64 *seq;              /* [2][rows][sequences] */
    int64_t n_bias, n_seq; /* of each half */
    int64_t *count;        /* [rows] overrides of a row */
    u32 *token;            /* [most] */
    float *logit;
    u32 *marks; /* [blocks][words + vocab]: a bit for each token, then its entry: IN_PROMPT, and ONE for each
                   output; then its place */
    int64_t words, of_block;
    u32 most; /* biases or sequences sorted in shared memory */
};

struct penalties {
    float repetition, frequency, presence; /* 1, 0, 0: off */
};

static __device__ float penalty_of(const struct syi_column &column, int64_t b, float off)
{
    const float value = column.rows.data != NULL ? syc_column_float(column, b) : off;
    return value == value ? value : off;
}

static __device__ float logit_at(const struct syi_sample_overrides_plan &p, int64_t row, u32 token)
{
    const int bytes = p.type == SY_TYPE_F32 ? 4 : 2;
    return syc_load_float(syc_row(p.logits, row) + (int64_t)token * bytes, p.type);
}

static __device__ float penalise(float x, const struct penalties &by, u32 entry)
{
    const u32 count = entry / ONE;
    if (entry != 0)
        x = x > 0.0f ? __fdiv_rn(x, by.repetition) : __fmul_rn(x, by.repetition);
    if (count > 0) {
        x = __fsub_rn(x, __fmul_rn(by.frequency, __ull2float_rn(count)));
        x = __fsub_rn(x, by.presence);
    }
    return x;
}

/* ---- One row ---- */

SYC_INLINE void mark_token(u32 token, u32 *bits, u32 *entry)
{
    atomicOr(&bits[token / 32], 1u << token % 32);
    entry[token] = 0;
}

static __device__ void mark(const struct syi_token_lists &l, int64_t first, int64_t end, u32 *bits,
                            u32 *entry)
{
    for (int64_t j = first + threadIdx.x; j < end; j += blockDim.x)
        mark_token((u32)syc_list_token(l, j), bits, entry);
}

/* f(token) for the draft tokens before a row, each by one thread. */
template <class F>
SYC_INLINE void each_draft(const struct syi_sample_overrides_plan &p, const struct syi_past &past, const F &f)
{
    u32 turn = 0;
#pragma unroll 1
    for (int64_t r = past.row; r > 0; r = syi_draft_parent(&p.drafts, &past.of, r)) {
        if (turn == threadIdx.x)
            f((u32)syi_draft_token(&p.drafts, &past.of, r));
        turn = turn + 1 < blockDim.x ? turn + 1 : 0;
    }
}

/* The elements of the list of stop tokens that a row bans. */
static __device__ struct syc_span banned(const struct syi_sample_overrides_plan &p,
                                         const struct syi_past &past)
{
    if (!syi_stop_banned(&p, &past))
        return {0, 0};
    return {syi_shared_first(&p.stop, past.of.b), syi_shared_end(&p.stop, past.of.b)};
}

/* Marks what may change, and counts. */
template <bool More>
SYC_INLINE void mark_row(const struct syi_sample_overrides_plan &p, const struct syi_past &past,
                         const struct penalties &by, u32 *bits, u32 *entry, int64_t words)
{
    const int64_t b = past.of.b, seq_end = More ? syi_seq_end(&p, b) : 0;
    const bool repetition = by.repetition != 1.0f,
               any = repetition || by.frequency != 0.0f || by.presence != 0.0f;
    const struct syc_span none = {0, 0}, prompt = repetition ? syc_list_span(p.prompt, b) : none,
                          output = any ? syc_list_span(p.output, b) : none, bias = syc_list_span(p.bias, b),
                          stop = More ? banned(p, past) : none;
    for (int64_t i = threadIdx.x; i < words; i += blockDim.x)
        bits[i] = 0;
    __syncthreads();
    mark(p.prompt, prompt.first, prompt.end, bits, entry);
    mark(p.output, output.first, output.end, bits, entry);
    if (More && any)
        each_draft(p, past, [&](u32 token) { mark_token(token, bits, entry); });
    mark(p.bias, bias.first, bias.end, bits, entry);
    for (int64_t s = (More ? syi_seq_first(&p, b) : 0) + threadIdx.x; s < seq_end; s += blockDim.x) {
        const int64_t token = syi_seq_match(&p, &past, s);
        if (token >= 0)
            mark_token((u32)token, bits, entry);
    }
    mark(p.stop, stop.first, stop.end, bits, entry);
    __syncthreads();
    for (int64_t j = prompt.first + threadIdx.x; j < prompt.end; j += blockDim.x)
        atomicOr(&entry[syc_list_token(p.prompt, j)], (u32)IN_PROMPT);
    for (int64_t j = output.first + threadIdx.x; j < output.end; j += blockDim.x)
        atomicAdd(&entry[syc_list_token(p.output, j)], (u32)ONE);
    if (More && any)
        each_draft(p, past, [&](u32 token) { atomicAdd(&entry[token], (u32)ONE); });
    __syncthreads();
}

/* The marked tokens in order and what penalties make of their logits; each entry becomes the token's place.
   With bias_first both is left to penalise_row. Returns how many. */
static __device__ u32 list_row(const struct syi_sample_overrides_plan &p, int64_t b,
                               const struct penalties &by, const u32 *bits, u32 *entry, int64_t words,
                               u32 *token, float *logit, u64 *part)
{
    const bool later = p.bias_first;
    const int64_t begin = syc_warp_part(words, syc_warp()), end = syc_warp_part(words, syc_warp() + 1);
    u64 own = 0, total;
    for (int64_t i = begin + syc_lane(); i < end; i += 32)
        own += (u64)__popc(bits[i]);
    u64 place = syc_block_before(own, part, &total);
    place = __shfl_sync(SYC_ALL_LANES, place, 0);
    for (int64_t at = begin; at < end; at += 32) {
        const int64_t i = at + syc_lane();
        u32 word = i < end ? bits[i] : 0;
        const u64 n = (u64)__popc(word), prefix = syc_warp_prefix(n);
        for (u64 to = place + prefix - n; word != 0; word &= word - 1, to++) {
            const u32 t = (u32)(i * 32) + (u32)__ffs((int)word) - 1;
            token[to] = t;
            const float x = logit_at(p, b, t);
            logit[to] = later ? x : penalise(x, by, entry[t]);
            if (!later)
                entry[t] = (u32)to;
        }
        place += __shfl_sync(SYC_ALL_LANES, prefix, 31);
    }
    __syncthreads();
    return (u32)total;
}

static __device__ void penalise_row(const struct penalties &by, u32 *entry, const u32 *token, float *logit,
                                    u32 n)
{
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
        logit[i] = penalise(logit[i], by, entry[token[i]]);
        entry[token[i]] = i;
    }
    __syncthreads();
}

/* The place of a token of the row: its entry, or, while entries still count, searched for. */
struct places {
    const u32 *entry, *token;
    u32 n; /* 0: of `entry` */
    __device__ u32 of(u32 wanted) const
    {
        u32 first = 0;
        if (n == 0)
            return entry[wanted];
        for (u32 left = n; left > 1; left -= left / 2)
            first += token[first + left / 2] <= wanted ? left / 2 : 0;
        return first;
    }
};

/* What is added to the tokens of a row: element i of its biases, or of its sequences. */
struct biases {
    const struct syi_sample_overrides_plan &p;
    int64_t first;
    __device__ int64_t token(int64_t i) const { return syc_list_token(p.bias, first + i); }
    __device__ float add(float x, int64_t i) const { return __fadd_rn(x, syc_list_value(p.bias, first + i)); }
};

struct sequences {
    const struct syi_sample_overrides_plan &p;
    const struct syi_past &past;
    int64_t first;
    __device__ int64_t token(int64_t i) const { return syi_seq_match(&p, &past, first + i); }
    __device__ float add(float x, int64_t i) const { return syi_seq_add(&p, x, first + i); }
};

/* Adds n elements to their tokens in the order of the list: sorted by token, then by place; those without a
   token are the last. `many` is scratch for more than shared memory holds, its second half `half` after the
   first. */
template <class From>
SYC_INLINE void add_elements(const From &from, int64_t n, const struct places &place, float *logit, u32 most,
                             u64 *few, u64 *many, int64_t half, u32 *digits)
{
    const bool is_few = n <= most;
    u64 *sorted = is_few ? few : many;
    const u64 flip = is_few ? ~(u64)0 : 0; /* few are sorted the other way */
    constexpr u32 none = 1u << 23;         /* above all tokens */
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const int64_t token = from.token(i);
        sorted[i] = ((u64)(token >= 0 ? (u32)token : none) << 32 | (u64)i) ^ flip;
    }
    if (is_few)
        syc_sort_few(few, (int)n);
    else {
        __syncthreads();
        sorted = syc_sort_many(sorted, sorted + half, n, 56, digits);
    }
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const u32 token = (u32)((sorted[i] ^ flip) >> 32);
        if (token == none || (i > 0 && (u32)((sorted[i - 1] ^ flip) >> 32) == token))
            continue;
        const u32 at = place.of(token);
        float x = logit[at];
        for (int64_t j = i; j < n && (u32)((sorted[j] ^ flip) >> 32) == token; j++)
            x = from.add(x, (u32)(sorted[j] ^ flip));
        logit[at] = x;
    }
    __syncthreads();
}

template <bool More>
SYC_INLINE void add_biases(const struct syi_sample_overrides_plan &p, const struct syi_past &past,
                           const struct places &place, float *logit, const struct overrides_scratch &scratch,
                           u64 *few, u32 *digits)
{
    const struct syc_span span = syc_list_span(p.bias, past.of.b);
    add_elements(biases{p, span.first}, span.end - span.first, place, logit, scratch.most, few,
                 scratch.bias + (More ? syi_biases_place(&p, &past) : span.first), scratch.n_bias, digits);
}

/* Sequences, then bans. */
SYC_INLINE void add_sequences(const struct syi_sample_overrides_plan &p, const struct syi_past &past,
                              const struct places &place, float *logit,
                              const struct overrides_scratch &scratch, u64 *few, u32 *digits)
{
    const struct syc_span stop = banned(p, past);
    const int64_t first = syi_seq_first(&p, past.of.b), n = syi_seq_end(&p, past.of.b) - first;
    if (n > 0)
        add_elements(sequences{p, past, first}, n, place, logit, scratch.most, few,
                     scratch.seq + (past.of.first + past.row) * p.seq_row.n, scratch.n_seq, digits);
    for (int64_t j = stop.first + threadIdx.x; j < stop.end; j += blockDim.x)
        logit[place.of((u32)syc_list_token(p.stop, j))] = __uint_as_float(0xff800000u);
    __syncthreads();
}

/* Leaves out what stays as it was; returns how many are left. */
static __device__ u32 keep_changed(const struct syi_sample_overrides_plan &p, int64_t b, u32 *token,
                                   float *logit, u32 n, u64 *part)
{
    u32 kept = 0;
    for (u32 first = 0; first < n; first += blockDim.x) {
        const u32 i = first + threadIdx.x, t = i < n ? token[i] : 0;
        const float before = i < n ? logit_at(p, b, t) : 0.0f, after = i < n ? syc_canonical(logit[i]) : 0.0f;
        const bool same = i >= n || before == after || (before != before && after != after);
        u64 total;
        const u64 place = syc_block_before(!same, part, &total); /* all have read theirs */
        if (!same) {
            token[kept + place] = t;
            logit[kept + place] = after;
        }
        kept += (u32)total;
        __syncthreads();
    }
    return kept;
}

/* syi_overrides_place of a row without drafts and bans. */
static __device__ int64_t plain_place(const struct syi_sample_overrides_plan &p, int64_t b)
{
    return syc_list_span(p.prompt, b).first - syc_list_span(p.prompt, 0).first +
           syc_list_span(p.output, b).first - syc_list_span(p.output, 0).first +
           syc_list_span(p.bias, b).first - syc_list_span(p.bias, 0).first;
}

/* More: rows of drafts, sequences or min_tokens. */
template <bool More>
static __global__ void __launch_bounds__(THREADS, More ? 1 : 2)
    build_rows(const struct syi_sample_overrides_plan p, const struct overrides_scratch scratch,
               const struct syc_gate gate)
{
    __shared__ u64 few[FEW];
    __shared__ u64 part[SYC_BLOCK_WARPS];
    __shared__ u32 digits[SYC_BLOCK_WARPS * SYC_DIGITS];
    u32 *const bits = scratch.marks + blockIdx.x * scratch.of_block, *const entry = bits + scratch.words;
    if (!syc_may_write(gate))
        return;
    for (int64_t row = blockIdx.x; row < p.drafts.n_rows; row += gridDim.x) {
        struct syi_past past = {{row, row, 1}, 0, 0, false};
        if (More)
            past = syi_past_of(&p, row);
        if (More && past.none) {
            if (threadIdx.x == 0)
                scratch.count[row] = 0;
            continue;
        }
        const int64_t b = past.of.b, place = More ? syi_overrides_place(&p, &past) : plain_place(p, row);
        const struct penalties by = {penalty_of(p.repetition, b, 1.0f), penalty_of(p.frequency, b, 0.0f),
                                     penalty_of(p.presence, b, 0.0f)};
        u32 *const token = scratch.token + place;
        float *const logit = scratch.logit + place;
        __syncthreads();
        mark_row<More>(p, past, by, bits, entry, scratch.words);
        const u32 n = list_row(p, row, by, bits, entry, scratch.words, token, logit, part);
        const struct places known = {entry, token, 0}, searched = {entry, token, n};
        if (n > 0)
            add_biases<More>(p, past, p.bias_first ? searched : known, logit, scratch, few, digits);
        if (p.bias_first)
            penalise_row(by, entry, token, logit, n);
        if (More)
            add_sequences(p, past, known, logit, scratch, few, digits);
        const u32 kept = keep_changed(p, row, token, logit, n, part);
        if (threadIdx.x == 0)
            scratch.count[row] = kept;
    }
}

/* ---- All rows ---- */

/* One block: where the overrides of each row begin. */
static __global__ void __launch_bounds__(THREADS)
    add_up(const struct syi_sample_overrides_plan p, const struct overrides_scratch scratch,
           const struct syc_gate gate)
{
    __shared__ u64 part[SYC_BLOCK_WARPS];
    u64 at = 0, total;
    if (!syc_may_write(gate))
        return;
    const int64_t rows = p.drafts.n_rows;
    for (int64_t first = 0; first < rows; first += blockDim.x) {
        const int64_t row = first + threadIdx.x;
        const u64 before =
            syc_block_before(row < rows && p.batch > 0 ? (u64)scratch.count[row] : 0, part, &total);
        if (row < rows)
            syc_store<u64>(p.indptr + row * 8, at + before);
        at += total;
    }
    if (threadIdx.x == 0)
        syc_store<u64>(p.indptr + rows * 8, at);
}

static __global__ void __launch_bounds__(256)
    move_rows(const __grid_constant__ struct syi_sample_overrides_plan p,
              const struct overrides_scratch scratch, const struct syc_gate gate)
{
    if (!syc_may_write(gate))
        return;
    for (int64_t row = blockIdx.x; row < p.drafts.n_rows; row += gridDim.x) {
        const int64_t n = scratch.count[row];
        if (n == 0)
            continue;
        const struct syi_past past = syi_past_of(&p, row);
        const int64_t place = syi_overrides_place(&p, &past), at = syc_index(p.indptr, row, SY_TYPE_I64);
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            syc_store<u32>(p.token + (at + i) * 4, scratch.token[place + i]);
            syc_store<u32>(p.logit + (at + i) * 4, __float_as_uint(scratch.logit[place + i]));
        }
    }
}

/* ---- The call ---- */

/* Lays out the scratch memory; returns its bytes. */
static size_t lay_out(const struct syc_device *device, const struct syi_sample_overrides_plan *p, u8 *base,
                      struct overrides_scratch *s, int64_t *blocks)
{
    const size_t n = (size_t)p->most, enough = (size_t)256 << 20;
    s->n_bias = p->bias.n * p->drafts.most;
    s->n_seq = p->seq_row.n * p->drafts.n_rows;
    const size_t bias = (size_t)(s->n_bias + s->n_seq) * 16, count = (size_t)p->drafts.n_rows * 8,
                 lists = (n + 1) / 2 * 8;
    s->words = (p->vocab + 31) / 32;
    s->of_block = (s->words + p->vocab + 31) / 32 * 32;
    const int64_t most = (int64_t)(enough / ((size_t)s->of_block * 4)),
                  wanted = 2 * (int64_t)device->processors;
    *blocks = most < wanted ? most : wanted;
    *blocks = *blocks < p->drafts.n_rows ? *blocks : p->drafts.n_rows;
    *blocks = *blocks > 1 ? *blocks : p->drafts.n_rows > 0;
    s->bias = (u64 *)base;
    s->seq = s->bias + 2 * s->n_bias;
    s->count = (int64_t *)(base + bias);
    s->token = (u32 *)(base + bias + count);
    s->logit = (float *)(base + bias + count + lists);
    s->marks = (u32 *)(base + bias + count + 2 * lists);
    s->most = FEW;
    return bias + count + 2 * lists + (size_t)*blocks * (size_t)s->of_block * 4;
}

size_t syc_sample_overrides_workspace(const struct syc_device *device, const union syi_plan *plan)
{
    struct overrides_scratch s;
    int64_t blocks;
    return lay_out(device, &plan->sample_overrides, NULL, &s, &blocks);
}

/* A check: the lists, then the rows of drafts. */
struct contents_check {
    struct syc_lists_check<6> lists;
    struct syi_draft_rows drafts;
    int64_t n;

    __device__ bool fault(int64_t i, struct syi_found *f) const
    {
        if (i < lists.n)
            return lists.fault(i, f);
        *f = syi_drafts_bad(&drafts, i - lists.n, lists.vocab);
        return f->bad != SYI_GOOD;
    }

    __device__ bool wrong(int64_t i) const
    {
        struct syi_found f;
        return fault(i, &f);
    }

    __device__ void explain(int64_t i, struct syi_found *f) const { fault(i, f); }
};

static void check_contents(struct syc_call *call, const struct syi_sample_overrides_plan *p)
{
    struct contents_check check = {};
    const struct syi_token_lists *const lists[] = {&p->prompt,  &p->output, &p->bias,
                                                   &p->seq_row, &p->seq,    &p->stop};
    for (int k = 0; k < 6; k++)
        check.lists.list[k] = *lists[k];
    check.lists.batch = p->batch;
    check.lists.vocab = p->vocab;
    check.lists.ends[4] = p->seq_row.n + 1;
    check.lists.filled[4] = true;
    check.lists.count();
    check.drafts = p->drafts;
    check.n = check.lists.n + (p->drafts.token.data != NULL ? syi_drafts_items(&p->drafts) : 0);
    syc_check(call, check);
}

/* `most` is for tests. */
static void launch_overrides(struct syc_call *call, const struct syi_sample_overrides_plan *p, int threads,
                             u32 most)
{
    struct overrides_scratch s;
    int64_t blocks;
    lay_out(call->device, p, call->scratch, &s, &blocks);
    s.most = most;
    if (p->batch > 0) {
        check_contents(call, p);
        const bool more =
            p->more >
            0; /* rows have room for more than their lists: syi_overrides_place is not plain_place */
        syc_launch(&call->queue, more ? build_rows<true> : build_rows<false>, SYC_EARLY, blocks, threads, 0,
                   *p, s, call->gate);
    }
    syc_launch(&call->queue, add_up, SYC_AFTER, 1, threads, 0, *p, s, call->gate);
    const int64_t movers = 4 * (int64_t)call->device->processors;
    syc_launch(&call->queue, move_rows, SYC_AFTER,
               p->batch == 0               ? 0
               : p->drafts.n_rows < movers ? p->drafts.n_rows
                                           : movers,
               256, 0, *p, s, call->gate);
}

void syc_sample_overrides(struct syc_call *call, const union syi_plan *plan)
{
    launch_overrides(call, &plan->sample_overrides, THREADS, FEW);
}
