/*
 * sample_overrides on a device: a block per row. It marks the tokens of its lists in a bitmap and counts them; walking the
 * bitmap gives each token once and in order, whatever the order of the lists. Rows are built side by side in scratch; a
 * second kernel adds up how long they are, and a third moves them together.
 */
#include "cuda/backend.cuh"
#include "cuda/block.cuh"
#include "cuda/lists.cuh"

enum {
    IN_PROMPT = 1,
    ONE = 2,
    THREADS = 512,
    FEW = 2048 /* biases sorted in shared memory, at most */
};

/* Scratch of a launch. */
struct overrides_scratch {
    u64 *bias;       /* [2][n of biases] */
    int64_t *count;  /* [batch] overrides of a row */
    u32 *token;      /* [n of all lists] */
    float *logit;
    u32 *marks;      /* [blocks][words + vocab]: a bit for each token, then its entry: IN_PROMPT, and ONE for each output;
                        then its place */
    int64_t words, of_block;
    u32 most; /* biases sorted in shared memory */
};

struct penalties {
    float repetition, frequency, presence; /* 1, 0, 0: off */
};

static __device__ float penalty_of(const struct syi_column &column, int64_t b, float off)
{
    const float value = column.rows.data != NULL ? syc_column_float(column, b) : off;
    return value == value ? value : off;
}

static __device__ float logit_at(const struct syi_sample_overrides_plan &p, int64_t b, u32 token)
{
    const int bytes = p.type == SY_TYPE_F32 ? 4 : 2;
    return syc_load_float(syc_row(p.logits, b) + (int64_t)token * bytes, p.type);
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

/* ---- One row ------------------------------------------------------------------------------------------------------ */

static __device__ void mark(const struct syi_token_lists &l, struct syc_span span, u32 *bits, u32 *entry)
{
    for (int64_t j = span.first + threadIdx.x; j < span.end; j += blockDim.x) {
        const u32 token = (u32)syc_list_token(l, j);
        atomicOr(&bits[token / 32], 1u << token % 32);
        entry[token] = 0;
    }
}

/* Marks what penalties and biases can act on, and counts. */
static __device__ void mark_row(const struct syi_sample_overrides_plan &p, int64_t b, const struct penalties &by, u32 *bits,
                                u32 *entry, int64_t words)
{
    const bool repetition = by.repetition != 1.0f, any = repetition || by.frequency != 0.0f || by.presence != 0.0f;
    const struct syc_span none = {0, 0}, prompt = repetition ? syc_list_span(p.prompt, b) : none,
                          output = any ? syc_list_span(p.output, b) : none;
    for (int64_t i = threadIdx.x; i < words; i += blockDim.x)
        bits[i] = 0;
    __syncthreads();
    mark(p.prompt, prompt, bits, entry);
    mark(p.output, output, bits, entry);
    mark(p.bias, syc_list_span(p.bias, b), bits, entry);
    __syncthreads();
    for (int64_t j = prompt.first + threadIdx.x; j < prompt.end; j += blockDim.x)
        atomicOr(&entry[syc_list_token(p.prompt, j)], (u32)IN_PROMPT);
    for (int64_t j = output.first + threadIdx.x; j < output.end; j += blockDim.x)
        atomicAdd(&entry[syc_list_token(p.output, j)], (u32)ONE);
    __syncthreads();
}

/* The marked tokens in order and what penalties make of their logits; each entry becomes the token's place. Returns how
   many. */
static __device__ u32 list_row(const struct syi_sample_overrides_plan &p, int64_t b, const struct penalties &by,
                               const u32 *bits, u32 *entry, int64_t words, u32 *token, float *logit, u64 *part)
{
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
            logit[to] = penalise(logit_at(p, b, t), by, entry[t]);
            entry[t] = (u32)to;
        }
        place += __shfl_sync(SYC_ALL_LANES, prefix, 31);
    }
    __syncthreads();
    return (u32)total;
}

/* Adds the biases of a token in the order of the list: sorted by token, then by place. */
static __device__ void add_biases(const struct syi_sample_overrides_plan &p, int64_t b, const u32 *entry, float *logit,
                                  const struct overrides_scratch &scratch, u64 *few, u32 *digits)
{
    const struct syc_span span = syc_list_span(p.bias, b);
    const int64_t n = span.end - span.first;
    const bool is_few = n <= scratch.most;
    u64 *sorted = is_few ? few : scratch.bias + span.first;
    const u64 flip = is_few ? ~(u64)0 : 0; /* few are sorted the other way */
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        sorted[i] = ((u64)syc_list_token(p.bias, span.first + i) << 32 | (u64)i) ^ flip;
    if (is_few)
        syc_sort_few(few, (int)n);
    else {
        __syncthreads();
        sorted = syc_sort_many(sorted, sorted + p.bias.n, n, 56, digits);
    }
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const u32 token = (u32)((sorted[i] ^ flip) >> 32);
        if (i > 0 && (u32)((sorted[i - 1] ^ flip) >> 32) == token)
            continue;
        float x = logit[entry[token]];
        for (int64_t j = i; j < n && (u32)((sorted[j] ^ flip) >> 32) == token; j++)
            x = __fadd_rn(x, syc_list_value(p.bias, span.first + (u32)(sorted[j] ^ flip)));
        logit[entry[token]] = x;
    }
    __syncthreads();
}

/* Leaves out what stays as it was; returns how many are left. */
static __device__ u32 keep_changed(const struct syi_sample_overrides_plan &p, int64_t b, u32 *token, float *logit, u32 n,
                                   u64 *part)
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

/* Where a row builds: after all that the rows before it may have. */
static __device__ int64_t place_of(const struct syi_sample_overrides_plan &p, int64_t b)
{
    return syc_list_span(p.prompt, b).first - syc_list_span(p.prompt, 0).first + syc_list_span(p.output, b).first -
           syc_list_span(p.output, 0).first + syc_list_span(p.bias, b).first - syc_list_span(p.bias, 0).first;
}

static __global__ void __launch_bounds__(THREADS)
    build_rows(const struct syi_sample_overrides_plan p, const struct overrides_scratch scratch, const struct syc_gate gate)
{
    __shared__ u64 few[FEW];
    __shared__ u64 part[SYC_BLOCK_WARPS];
    __shared__ u32 digits[SYC_BLOCK_WARPS * SYC_DIGITS];
    u32 *const bits = scratch.marks + blockIdx.x * scratch.of_block, *const entry = bits + scratch.words;
    if (!syc_may_write(gate))
        return;
    for (int64_t b = blockIdx.x; b < p.batch; b += gridDim.x) {
        const struct penalties by = {penalty_of(p.repetition, b, 1.0f), penalty_of(p.frequency, b, 0.0f),
                                     penalty_of(p.presence, b, 0.0f)};
        const int64_t place = place_of(p, b);
        u32 *const token = scratch.token + place;
        float *const logit = scratch.logit + place;
        __syncthreads();
        mark_row(p, b, by, bits, entry, scratch.words);
        const u32 n = list_row(p, b, by, bits, entry, scratch.words, token, logit, part);
        add_biases(p, b, entry, logit, scratch, few, digits);
        const u32 kept = keep_changed(p, b, token, logit, n, part);
        if (threadIdx.x == 0)
            scratch.count[b] = kept;
    }
}

/* ---- All rows ----------------------------------------------------------------------------------------------------- */

/* One block: where the overrides of each row begin. */
static __global__ void __launch_bounds__(THREADS)
    add_up(const struct syi_sample_overrides_plan p, const struct overrides_scratch scratch, const struct syc_gate gate)
{
    __shared__ u64 part[SYC_BLOCK_WARPS];
    u64 at = 0, total;
    if (!syc_may_write(gate))
        return;
    for (int64_t first = 0; first < p.batch; first += blockDim.x) {
        const int64_t b = first + threadIdx.x;
        const u64 before = syc_block_before(b < p.batch ? (u64)scratch.count[b] : 0, part, &total);
        if (b < p.batch)
            syc_store<u64>(p.indptr + b * 8, at + before);
        at += total;
    }
    if (threadIdx.x == 0)
        syc_store<u64>(p.indptr + p.batch * 8, at);
}

static __global__ void __launch_bounds__(256)
    move_rows(const struct syi_sample_overrides_plan p, const struct overrides_scratch scratch, const struct syc_gate gate)
{
    if (!syc_may_write(gate))
        return;
    for (int64_t b = blockIdx.x; b < p.batch; b += gridDim.x) {
        const int64_t place = place_of(p, b), at = syc_index(p.indptr, b, SY_TYPE_I64);
        for (int64_t i = threadIdx.x; i < scratch.count[b]; i += blockDim.x) {
            syc_store<u32>(p.token + (at + i) * 4, scratch.token[place + i]);
            syc_store<u32>(p.logit + (at + i) * 4, __float_as_uint(scratch.logit[place + i]));
        }
    }
}

/* ---- The call ----------------------------------------------------------------------------------------------------- */

/* Lays out the scratch memory; returns its bytes. */
static size_t lay_out(const struct syc_device *device, const struct syi_sample_overrides_plan *p, u8 *base,
                      struct overrides_scratch *s, int64_t *blocks)
{
    const size_t n = (size_t)(p->prompt.n + p->output.n + p->bias.n), enough = (size_t)256 << 20;
    const size_t bias = (size_t)p->bias.n * 16, count = (size_t)p->batch * 8, lists = (n + 1) / 2 * 8;
    s->words = (p->vocab + 31) / 32;
    s->of_block = (s->words + p->vocab + 31) / 32 * 32;
    const int64_t most = (int64_t)(enough / ((size_t)s->of_block * 4)), wanted = 2 * (int64_t)device->processors;
    *blocks = most < wanted ? most : wanted;
    *blocks = *blocks < p->batch ? *blocks : p->batch;
    *blocks = *blocks > 1 ? *blocks : p->batch > 0;
    s->bias = (u64 *)base;
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

static void check_lists(struct syc_call *call, const struct syi_sample_overrides_plan *p)
{
    struct syc_lists_check<3> check = {};
    check.list[0] = p->prompt;
    check.list[1] = p->output;
    check.list[2] = p->bias;
    check.batch = p->batch;
    check.vocab = p->vocab;
    check.n = syc_list_items(&p->prompt, p->batch) + syc_list_items(&p->output, p->batch) +
              syc_list_items(&p->bias, p->batch);
    syc_check(call, check);
}

/* `most` is for tests. */
static void launch_overrides(struct syc_call *call, const struct syi_sample_overrides_plan *p, int threads, u32 most)
{
    struct overrides_scratch s;
    int64_t blocks;
    lay_out(call->device, p, call->scratch, &s, &blocks);
    s.most = most;
    if (p->batch > 0) {
        check_lists(call, p);
        syc_launch(&call->queue, build_rows, SYC_EARLY, blocks, threads, 0, *p, s, call->gate);
    }
    syc_launch(&call->queue, add_up, SYC_AFTER, 1, threads, 0, *p, s, call->gate);
    const int64_t movers = 4 * (int64_t)call->device->processors;
    syc_launch(&call->queue, move_rows, SYC_AFTER, p->batch < movers ? p->batch : movers, 256, 0, *p, s, call->gate);
}

void syc_sample_overrides(struct syc_call *call, const union syi_plan *plan)
{
    launch_overrides(call, &plan->sample_overrides, THREADS, FEW);
}
