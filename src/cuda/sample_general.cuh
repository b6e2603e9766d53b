/*
 * The steps of sample on one row, by a block, for every parameter, output and distribution: reading, cuts, lists, draws.
 */
#ifndef SYC_SAMPLE_GENERAL_CUH
#define SYC_SAMPLE_GENERAL_CUH

#include "cuda/lists.cuh"
#include "cuda/sample_select.cuh"

/* ---- Parameters of a row ------------------------------------------------------------------------------------------ */

static __device__ __forceinline__ float float_or(const struct syi_column &c, int64_t b, float missing)
{
    return c.rows.data != NULL ? syc_load_float(syc_row(c.rows, b), c.type) : missing;
}

static __device__ __forceinline__ int64_t int_or(const struct syi_column &c, int64_t b, int64_t missing)
{
    return c.rows.data != NULL ? syc_column_int(c, b) : missing;
}

static __device__ __forceinline__ struct syc_params params_of(const struct syi_sample_plan &p, float t, int64_t k, float top_p, float min_p)
{
    const float coldest = 1e-5f, hottest = 0x1p100f;
    const int64_t limit = p.k_limit == 0 ? p.vocab - 1 : min(p.vocab, p.k_limit);
    struct syc_params a = {};
    if (t != t)
        t = 1.0f;
    a.cold = t < coldest;
    a.greedy = a.cold || p.noise == SY_NOISE_NONE;
    t = t < coldest ? coldest : t > hottest ? hottest : t;
    a.inv_t = __fdiv_rn(1.0f, t);
    a.k = k >= 1 && k <= limit ? k : 0;
    a.top_p = top_p > 0.0f && top_p < 1.0f ? top_p : 1.0f;
    a.min_p = min_p > 0.0f ? min_p : 0.0f;
    a.one = top_p <= 0.0f;
    return a;
}

/* By one warp, a column to each lane, so that all are on their way at once; lane 0 has the result. */
static __device__ __forceinline__ struct syc_params load_params(const struct syi_sample_plan &p, int64_t b)
{
    enum { TOP_K, TOP_P, MIN_P, TEMPERATURE, SEED, OFFSET, STREAM, COLUMNS }; /* as they follow in the plan */
    static_assert(offsetof(struct syi_sample_plan, stream) ==
                      offsetof(struct syi_sample_plan, top_k) + STREAM * sizeof(struct syi_column), "columns are an array");
    const int own = min(syc_lane(), COLUMNS - 1);
    const struct syi_column c =
        *(const struct syi_column *)((const u8 *)&p + offsetof(struct syi_sample_plan, top_k) + own * sizeof(struct syi_column));
    u64 v = 0;
    if (own >= TOP_P && own <= TEMPERATURE)
        v = __float_as_uint(float_or(c, b, own == MIN_P ? 0.0f : 1.0f));
    else
        v = (u64)int_or(c, b, own == STREAM && !p.seed_per_row ? b : 0);
    const auto at = [&](int lane) { return __shfl_sync(SYC_ALL_LANES, v, lane); };
    const float t = __uint_as_float((u32)at(TEMPERATURE)), top_p = __uint_as_float((u32)at(TOP_P)),
                min_p = __uint_as_float((u32)at(MIN_P));
    struct syc_params a = params_of(p, t, (int64_t)at(TOP_K), top_p, min_p);
    a.noise = {at(SEED), at(OFFSET), (u32)at(STREAM)};
    return a;
}

SYC_COLD void read_parameters(struct syc_sample_row &r)
{
    const struct syi_sample_plan &p = *r.p;
    const struct syc_params a = params_of(p, float_or(p.temperature, r.b, 1.0f), int_or(p.top_k, r.b, 0), float_or(p.top_p, r.b, 1.0f),
                                          float_or(p.min_p, r.b, 0.0f));
    r.scale.inv_t = a.inv_t;
    r.cold = a.cold;
    r.greedy = a.greedy;
    r.k = a.k;
    r.top_p = a.top_p;
    r.min_p = a.min_p;
    r.one = a.one;
}

static __device__ struct syi_noise noise_of(const struct syc_sample_row &r)
{
    const struct syi_sample_plan &p = *r.p;
    return {(uint64_t)int_or(p.seed, r.b, 0), (uint64_t)int_or(p.offset, r.b, 0),
            (uint32_t)int_or(p.stream, r.b, p.seed_per_row ? 0 : r.b)};
}

/* Whether anything but the first token of the order is needed. */
static __device__ bool needs_candidates(const struct syc_sample_row &r)
{
    const struct syi_sample_plan &p = *r.p;
    const bool final = p.logprob_mode == SY_LOGPROB_FINAL && !r.cold;
    return !r.greedy || final || p.kept != NULL || p.masked.data != NULL || p.list_token.data != NULL ||
           p.list_prob.data != NULL;
}

/* ---- Reading ------------------------------------------------------------------------------------------------------ */

/* The row with its overrides, as f32, in scratch; what is not allowed is -inf. */
SYC_COLD void stage_row(const struct syc_sample_row &r, u32 *staged)
{
    const struct syi_sample_plan &p = *r.p;
    const u8 *const x = syc_row(p.logits, r.b), *const allow = r.logits.allow;
    const int bytes = p.type == SY_TYPE_F32 ? 4 : 2;
    const u32 vocab = r.vocab;
    for (u32 i = threadIdx.x; i < vocab; i += blockDim.x)
        staged[i] = syc_allowed(allow, i) ? __float_as_uint(syc_load_float(x + (int64_t)i * bytes, p.type)) :
                                              SYC_MINUS_INF_BITS;
    __syncthreads();
    const struct syc_span span = syc_list_span(p.overrides, r.b);
    for (int64_t j = span.first + threadIdx.x; j < span.end; j += blockDim.x) {
        const u32 token = (u32)syc_list_token(p.overrides, j);
        if (syc_allowed(allow, token))
            staged[token] = __float_as_uint(syc_list_value(p.overrides, j));
    }
    __syncthreads();
}

/* The larger of a word and those of a vector. */
template <sy_type T> static __device__ __forceinline__ u32 fold(u32 most, uint4 x)
{
    return syc_max_word<T>(most, syc_max_word<T>(syc_max_word<T>(x.x, x.y), syc_max_word<T>(x.z, x.w)));
}

template <sy_type T> static __device__ __forceinline__ u32 flags_of(uint4 x)
{
    return syc_word_flags<T>(x.x) | syc_word_flags<T>(x.y) | syc_word_flags<T>(x.z) | syc_word_flags<T>(x.w);
}

enum { AHEAD = 4 };

/* f(c, vector) for the vectors at, at + step, ... of a row; c counts them by AHEAD. */
template <sy_type T, class F> static __device__ __forceinline__ void each_vector(const struct syc_logits &row, u32 at, u32 step, F f)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const struct syc_logits l = row;
    const struct syc_vectors v = syc_vectors_of<T>(l);
    if (l.allow == NULL) {
        const uint4 *x = (const uint4 *)(l.x + (int64_t)v.head * (16 / n)) + at;
#pragma unroll 1
        for (; at + (AHEAD - 1) * step < v.n; at += AHEAD * step, x += AHEAD * step) {
            uint4 y[AHEAD];
#pragma unroll
            for (u32 c = 0; c < AHEAD; c++)
                y[c] = __ldcg(x + c * step);
#pragma unroll
            for (u32 c = 0; c < AHEAD; c++)
                f(c, y[c]);
        }
    }
    const u32 nothing = syc_minus_inf_word<T>();
#pragma unroll 1
    for (; at < v.n; at += AHEAD * step) {
        uint4 y[AHEAD];
#pragma unroll
        for (u32 c = 0; c < AHEAD; c++)
            y[c] = at + c * step < v.n ? syc_vector_at<T>(l, v.head + (at + c * step) * n) : make_uint4(nothing, nothing, nothing, nothing);
#pragma unroll
        for (u32 c = 0; c < AHEAD; c++)
            f(c, y[c]);
    }
}

/* Largest keys of a thread's cells; returns SY_ROW_NAN and SY_ROW_INF of what it read, where `wanted`. */
template <sy_type T, bool wanted> static __device__ __forceinline__ u32 read_cells(const struct syc_logits &l, u32 *cell)
{
    static_assert((int)AHEAD == (int)SYC_CELLS, "a vector for each cell of a thread");
    const u32 vectors = syc_vectors_of<T>(l).n;
    u32 flags = 0;
#pragma unroll
    for (u32 c = 0; c < SYC_CELLS; c++)
        cell[c] = syc_minus_inf_word<T>();
    each_vector<T>(l, threadIdx.x, blockDim.x, [&](u32 c, uint4 x) {
        cell[c] = fold<T>(cell[c], x);
        if (wanted)
            flags |= flags_of<T>(x);
    });
#pragma unroll
    for (u32 c = 0; c < SYC_CELLS; c++)
        cell[c] = threadIdx.x + c * blockDim.x < vectors ? syc_word_key<T>(cell[c]) : 0;
    return flags;
}

/* What a kernel before has found; the same of a thread. */
static __device__ __forceinline__ u32 take_cells(const struct syc_parts &split, int64_t b, u32 *cell)
{
#pragma unroll
    for (u32 c = 0; c < SYC_CELLS; c++)
        cell[c] = __ldcg(split.cell + b * SYC_FEW + c * SYC_SAMPLE_THREADS + threadIdx.x);
    return (int)threadIdx.x < split.parts ? (u32)__ldcg(split.most + b * split.parts + threadIdx.x) : 0;
}

/* Either; the tokens in no vector count for the first cell of the thread that read them. */
template <sy_type T>
static __device__ __forceinline__ u32 get_cells(const struct syi_sample_plan &p, const struct syc_parts &split, const struct syc_logits &l, int64_t b, u32 *cell)
{
    u32 flags;
    if (split.parts > 0)
        flags = take_cells(split, b, cell);
    else if (p.row_flags != NULL)
        flags = read_cells<T, true>(l, cell);
    else
        flags = read_cells<T, false>(l, cell);
    syc_each_rest<T>(l, [&](u32, u32 bits) {
        cell[0] = max(cell[0], syi_key(bits));
        flags |= syi_key_flags(bits);
    });
    return flags;
}

/* The largest key and the cells, and where it may be taken the first of the order; returns SY_ROW_* of the row. */
template <sy_type T> static __device__ __forceinline__ u32 scan_row(struct syc_sample_row &r, const u32 *cell, u32 flags)
{
    const struct syc_logits logits = r.logits;
    struct syc_sample_shared *const s = r.s;
    u32 key = 0, token = 0;
#pragma unroll
    for (u32 c = 0; c < SYC_CELLS; c++) {
        s->cell[c * blockDim.x + threadIdx.x] = cell[c];
        key = max(key, cell[c]);
    }
    key = (u32)syc_block_max(key, s->part);
    if (r.greedy || r.min_p >= 1.0f || r.p->probs_in) {
        token = ~0u; /* the least that has it */
        syc_each_hot<T>(logits, s, key, [&](u32 i, u32 bits) {
            if (syi_key(bits) == key)
                token = min(token, i);
        });
        token = ~(u32)syc_block_max(~token, s->part);
    }
    r.first = syc_rank_of(key, token);
    r.empty = key == SYI_KEY_MINUS_INF;
    r.scale.max = syi_key_value(key);
    if (r.p->row_flags == NULL)
        return 0;
    const bool nan = __syncthreads_or((flags & SY_ROW_NAN) != 0), inf = __syncthreads_or((flags & SY_ROW_INF) != 0);
    return (nan ? SY_ROW_NAN : 0u) | (inf ? SY_ROW_INF : 0u) | (r.empty ? SY_ROW_EMPTY : 0u);
}

/* ---- Cuts --------------------------------------------------------------------------------------------------------- */

static __device__ bool all_ties(const struct syc_sample_row &r) { return r.p->ties == SY_TIES_ALL; }

/*
 * Tokens by how far they are below the largest, linear in what they are: t of syc_weight_at, and for probabilities what
 * stands for it. So the tokens of any row spread over many bins, and a later bin is later in the order. The last one has
 * all that weigh nothing.
 */
enum { BINS_PER_UNIT = 64, FARTHEST = 30 };

static __device__ __forceinline__ float step_of(const struct syc_scale &scale)
{
    const float largest = 3.402823466e38f;
    return !scale.probs_in ? scale.inv_t : scale.max > 0.0f ? fminf(__fdiv_rn((float)FARTHEST, scale.max), largest) : 0.0f;
}

static __device__ __forceinline__ float below_largest(float value, float largest, float step)
{
    return fmaxf(__fmul_rn(__fsub_rn(value, largest), step), -(float)FARTHEST);
}

static __device__ __forceinline__ u32 bin_of(float t) /* the lower bits of a sum that has no bits below one */
{
    return __float_as_uint(__fmaf_rn(t, -(float)BINS_PER_UNIT, 8388608.0f)) & (SYC_BINS - 1);
}

/* All tokens are candidates, and +inf, which counts as FLT_MAX, is not among them. */
static __device__ __forceinline__ bool is_plain(const struct syc_sample_row &r)
{
    return !r.scale.probs_in && r.last == 0 && r.scale.max < 3.402823466e38f;
}

/* How many candidates are in each bin, low words only. */
template <sy_type T> SYC_COLD void count_bins(const struct syc_sample_row &r)
{
    struct syc_sample_shared *const s = r.s;
    const struct syc_logits logits = r.logits;
    const struct syc_scale scale = r.scale;
    const float step = step_of(scale);
    const u64 last = r.last;
    syc_clear_bins(s);
    if (is_plain(r))
        syc_each<T>(logits, [&](u32, u32 bits) {
            syc_shared_count(&s->bin.low[bin_of(below_largest(__uint_as_float(bits), scale.max, step))]);
        });
    else
        syc_each<T>(logits, [&](u32 i, u32 bits) {
            const u32 key = syi_key(bits);
            if (syc_rank_of(key, i) >= last)
                syc_shared_count(&s->bin.low[bin_of(below_largest(syi_key_value(key), scale.max, step))]);
        });
    __syncthreads();
}

/* The least key that is in a bin or before it. */
static __device__ __forceinline__ u32 bin_floor(const struct syc_sample_row &r, u32 bin)
{
    const struct syc_scale scale = r.scale;
    const float step = step_of(scale);
    return syc_least_key(SYI_KEY_MINUS_INF, syc_key_of(r.first), [&](u32 key) {
        return bin_of(below_largest(syi_key_value(key), scale.max, step)) <= bin;
    });
}

struct key_range {
    u32 low, high;
};

static __device__ __forceinline__ struct key_range keys_of_bins(const struct syc_sample_row &r, u32 first, u32 last)
{
    return {bin_floor(r, last), first == 0 ? syc_key_of(r.first) : bin_floor(r, first - 1) - 1};
}

static __device__ __forceinline__ struct key_range range_of_all(struct key_range own, u64 *part)
{
    const u32 low = ~(u32)syc_block_max((u32)~own.low, part);
    return {low, (u32)syc_block_max(own.high, part)};
}

/*
 * The edge of a prefix: candidates with keys in a range go to shared memory as far as there is room, and s->n_few is how
 * many they are. What comes before them is weighed by shares, and everything in r.mass. The range becomes that of the keys
 * that there are.
 */
template <sy_type T> SYC_COLD struct key_range list_edge(struct syc_sample_row &r, struct key_range edge)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    struct syc_sample_shared *const s = r.s;
    const struct syc_logits logits = r.logits;
    const struct syc_scale scale = r.scale;
    const bool plain = is_plain(r);
    const u64 last = r.last;
    const float low = syi_key_value(edge.low), high = syi_key_value(edge.high);
    struct key_range range = {~0u, 0};
    u64 total = 0, before = 0;
    r.spent = true;
    const auto put = [&](u32 i, u32 bits, u32 place) {
        const u32 key = syi_key(bits);
        range = {min(range.low, key), max(range.high, key)};
        if (place < SYC_EDGE)
            s->edge[place] = syc_rank_of(key, i);
    };
    const auto one = [&](u32 i, u32 bits) {
        const u32 key = syi_key(bits);
        if (syc_rank_of(key, i) < last)
            return;
        const u64 weight = syc_weight_of(scale, key);
        total += weight;
        if (key > edge.high)
            before += weight;
        else if (key >= edge.low)
            put(i, bits, syc_shared_add(&s->n_few, 1u));
    };
    __syncthreads();
    if (threadIdx.x == 0)
        s->n_few = 0;
    __syncthreads();
    syc_each_piece<T>(logits, [&](u32 first, uint4 x) {
        if (!plain) {
            syc_each_of<T>(first, x, one);
            return;
        }
        u32 here = 0;
        const auto look = [&](u32 i, u32 bits) {
            const float value = __uint_as_float(bits);
            const u64 weight = syc_weight_above(below_largest(value, scale.max, scale.inv_t));
            total += weight;
            if (value > high)
                before += weight;
            here |= value >= low && value <= high ? 1u << (i - first) : 0;
        };
        syc_each_of<T>(first, x, look);
        if (here == 0)
            return;
        const u32 word[4] = {x.x, x.y, x.z, x.w};
        u32 place = syc_shared_add(&s->n_few, (u32)__popc(here));
#pragma unroll
        for (u32 j = 0; j < n; j++)
            if (here >> j & 1)
                put(first + j, T == SY_TYPE_F32 ? word[j % 4] : syc_wide<T>(word[j / 2] >> (j % 2 * 16) & 0xffffu), place++);
    }, one);
    before = syc_warp_sum(before);
    if (syc_lane() == 0)
        s->share[syc_warp()] = before;
    r.mass = syc_block_sum(total, s->part);
    return range_of_all(range, s->part);
}

/* As syc_select_items, for the candidates of a row whose keys are in a range. */
template <sy_type T>
SYC_COLD bool select_row(const struct syc_sample_row &r, struct syc_items of, struct key_range range, u32 low, u32 high, u64 target, struct syc_cut *cut)
{
    const struct syc_logits logits = r.logits;
    const struct syc_scale scale = r.scale;
    const u64 bound = r.last;
    return syc_select(r.s, low, high, target, 0, cut, [&](auto f) {
        syc_each<T>(logits, [&](u32 i, u32 bits) {
            const u32 key = syi_key(bits);
            if (key - range.low <= range.high - range.low && syc_rank_of(key, i) >= bound)
                syc_visit(of.by, key, i, of.spare, of.key, scale, f);
        });
    });
}

/* The last of the shortest prefix of n items whose measure reaches a target; 0 when all do not. They are the candidates with
   keys in a range, in shared memory or else in the row. */
template <sy_type T>
SYC_COLD u64 find_last(const struct syc_sample_row &r, const u64 *item, u32 n, struct key_range range, u64 target, bool weights)
{
    constexpr int spare = syc_spare_bits<T>();
    struct syc_items of = {item, n, weights ? SYC_BY_WEIGHT : SYC_BY_KEY, spare, 0};
    struct syc_cut cut = {range.low >> spare, target, weights ? n * syc_weight_of(r.scale, range.low) : n};
    const auto select = [&](u32 low, u32 high, u64 left) {
        return item != NULL ? syc_select_items(r.s, of, r.scale, low, high, left, 0, &cut) : select_row<T>(r, of, range, low, high, left, &cut);
    };
    if (range.low == range.high ? target > cut.at : !select(range.low >> spare, range.high >> spare, target))
        return 0;
    const u32 key = syc_whole_key<T>(cut.value);
    const u64 each = weights ? syc_weight_of(r.scale, key) : 1, ties = weights ? (cut.rest + each - 1) / each : cut.rest;
    u32 token = r.vocab - 1;
    if (!all_ties(r) && ties * each < cut.at) {
        of.by = SYC_BY_TOKEN;
        of.key = key;
        select(~token, ~0u, ties);
        token = ~cut.value;
    }
    return syc_rank_of(key, token);
}

/* The same of candidates in shared memory, which stay. */
template <sy_type T> SYC_COLD void cut_few(struct syc_sample_row &r, u64 target, bool weights)
{
    struct key_range own = {~0u, 0};
    for (u32 j = threadIdx.x; j < r.n; j += blockDim.x)
        own = {min(own.low, syc_key_of(r.s->few[j])), max(own.high, syc_key_of(r.s->few[j]))};
    own = range_of_all(own, r.s->part);
    const u64 last = find_last<T>(r, r.s->few, r.n, own, target, weights);
    if (last != 0)
        syc_keep_few(r, last);
}

/* The share of a row that a token is in. */
template <sy_type T> static __device__ __forceinline__ u32 share_with(const struct syc_logits &l, u32 token)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const struct syc_vectors v = syc_vectors_of<T>(l);
    const u32 all = v.n == 0 ? l.vocab : v.n, at = v.n == 0 ? token : token < v.head ? 0 : (token - v.head) / n;
    const u32 warps = (u32)syc_warps(), each = ((all + warps - 1) / warps + 31) / 32 * 32;
    return at < all ? at / each : warps - 1;
}

/* The same of the candidates of an edge, of which `rest` is wanted. */
template <sy_type T> SYC_COLD void cut_edge(struct syc_sample_row &r, struct key_range range, u64 rest, bool weights)
{
    struct syc_sample_shared *const s = r.s;
    const u32 n = s->n_few;
    const u64 last = find_last<T>(r, n <= SYC_EDGE ? s->edge : NULL, n, range, rest, weights);
    r.last = max(r.last, last);
    r.shares = weights && n <= SYC_EDGE;
    for (u32 j = threadIdx.x; j < n && r.shares; j += blockDim.x)
        if (s->edge[j] >= r.last) {
            u32 *const share = (u32 *)&s->share[share_with<T>(r.logits, syc_token_of(s->edge[j]))];
            syc_shared_add(share, share + 1, syc_weight_of(r.scale, syc_key_of(s->edge[j])));
        }
    __syncthreads();
}

/* What the candidates of an edge weigh. */
template <sy_type T> SYC_COLD u64 weigh_edge(const struct syc_sample_row &r, struct key_range range)
{
    const struct syc_scale scale = r.scale;
    const struct syc_sample_shared *const s = r.s;
    const u32 n = s->n_few;
    const u64 last = r.last;
    u64 sum = 0;
    if (range.low == range.high)
        return n * syc_weight_of(scale, range.low);
    for (u32 j = threadIdx.x; j < n && n <= SYC_EDGE; j += blockDim.x)
        sum += syc_weight_of(scale, syc_key_of(s->edge[j]));
    if (n > SYC_EDGE)
        syc_each<T>(r.logits, [&](u32 i, u32 bits) {
            const u32 key = syi_key(bits);
            if (key - range.low <= range.high - range.low && syc_rank_of(key, i) >= last)
                sum += syc_weight_of(scale, key);
        });
    return syc_block_sum(sum, r.s->part);
}

static __device__ __forceinline__ bool has_few(struct syc_sample_row &r)
{
    __syncthreads();
    if (r.s->n_few > SYC_FEW)
        return false;
    r.n = r.s->n_few;
    r.few = true;
    r.by_token = false;
    return true;
}

/* The candidates of a row to shared memory. */
template <sy_type T> SYC_COLD void collect(struct syc_sample_row &r)
{
    struct syc_sample_shared *const s = r.s;
    const u64 last = r.last;
    __syncthreads();
    if (threadIdx.x == 0)
        s->n_few = 0;
    __syncthreads();
    syc_each<T>(r.logits, [&](u32 i, u32 bits) {
        const u64 rank = syc_rank_of(syi_key(bits), i);
        if (rank < last)
            return;
        const u32 place = syc_shared_add(&s->n_few, 1u);
        if (place < SYC_FEW)
            s->few[place] = rank;
    });
    has_few(r);
}

/* Takes all tokens from `least` on in the order into shared memory, if they are few enough and in some of the cells only. */
template <sy_type T> SYC_COLD bool gather(struct syc_sample_row &r, u64 least)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const struct syc_logits l = r.logits;
    struct syc_sample_shared *const s = r.s;
    const struct syc_vectors v = syc_vectors_of<T>(l);
    const float floor = syi_key_value(syc_key_of(least));
    const auto put = [&](u32 i, u32 bits) {
        const u64 rank = syc_rank_of(syi_key(bits), i);
        if (rank < least)
            return;
        const u32 place = syc_shared_add(&s->n_few, 1u);
        if (place < SYC_FEW)
            s->few[place] = rank;
    };
    __syncthreads();
    if (threadIdx.x == 0)
        s->n_few = s->n_hot = 0;
    __syncthreads();
    for (u32 c = threadIdx.x; c < SYC_FEW; c += blockDim.x)
        if (s->cell[c] >= syc_key_of(least) && s->cell[c] != 0)
            s->hot[atomicAdd(&s->n_hot, 1u)] = (u16)c;
    __syncthreads();
    const u32 hot = s->n_hot, turns = (v.n + SYC_FEW - 1) / SYC_FEW;
    if (r.spent || hot > SYC_FEW * 2 / 3)
        return false; /* then there are too many, most likely */
#pragma unroll 1
    for (u32 item = threadIdx.x; item < hot * turns; item += AHEAD * blockDim.x) {
        uint4 x[AHEAD];
        u32 at[AHEAD];
#pragma unroll
        for (u32 c = 0; c < AHEAD; c++) {
            const u32 turn = (item + c * blockDim.x) / hot;
            at[c] = turn * SYC_FEW + s->hot[item + c * blockDim.x - turn * hot];
            at[c] = turn < turns ? at[c] : v.n;
            x[c] = make_uint4(0, 0, 0, 0);
            if (at[c] < v.n)
                x[c] = syc_vector_at<T>(l, v.head + at[c] * n);
        }
#pragma unroll
        for (u32 c = 0; c < AHEAD; c++) {
            const u32 word[4] = {x[c].x, x[c].y, x[c].z, x[c].w}, first = v.head + at[c] * n;
            u32 here = 0;
            const auto look = [&](u32 i, u32 bits) { here |= __uint_as_float(bits) < floor ? 0 : 1u << (i - first); };
            syc_each_of<T>(first, x[c], look);
#pragma unroll 1
            for (here = at[c] < v.n ? here : 0; here != 0; here &= here - 1) {
                const u32 j = (u32)__ffs((int)here) - 1, w = T == SY_TYPE_F32 ? j : j / 2;
                const u32 own = w == 0 ? word[0] : w == 1 ? word[1] : w == 2 ? word[2] : word[3];
                put(first + j, T == SY_TYPE_F32 ? own : syc_wide<T>(own >> (j % 2 * 16) & 0xffffu));
            }
        }
    }
    syc_each_rest<T>(l, put);
    return has_few(r);
}

/* A key that so many cells reach, and not many more. */
static __device__ __forceinline__ u32 cell_floor(const struct syc_sample_row &r, u32 target)
{
    struct syc_sample_shared *const s = r.s;
    const u32 high = syc_key_of(r.first);
    struct syc_cut cut = {};
    const bool found = syc_select_items(s, {(const u64 *)s->cell, SYC_FEW, SYC_BY_CELL, 0, 0}, r.scale, SYI_KEY_MINUS_INF, high, target,
                                        SYC_FEW / 64, &cut);
    return found ? cut.value : SYI_KEY_MINUS_INF;
}

template <sy_type T> static __device__ __forceinline__ void keep_top_k(struct syc_sample_row &r, u64 k)
{
    r.ranked = true;
    if (k <= SYC_FEW && gather<T>(r, (u64)cell_floor(r, (u32)k) << 32)) {
        cut_few<T>(r, k, false);
        return;
    }
    count_bins<T>(r);
    syc_find_bin(r.s, [&](u32 i) { return (u64)r.s->bin.low[i]; }, [&](u64) { return k; });
    const u64 rest = r.s->answer[1];
    cut_edge<T>(r, list_edge<T>(r, keys_of_bins(r, (u32)r.s->answer[0], (u32)r.s->answer[0])), rest, false);
    if (k <= SYC_FEW && !all_ties(r))
        collect<T>(r);
}

/* Whether a row is weighed as a whole: top-k does not act. */
static __device__ bool weighs_all(const struct syc_sample_row &r)
{
    const struct syi_sample_plan &p = *r.p;
    return r.k == 0 && !r.one &&
           ((!p.probs_in && (r.top_p < 1.0f || p.list_prob.data != NULL)) || (p.noise == SY_NOISE_CDF && !r.greedy) ||
            (p.logprob != NULL && p.logprob_mode == SY_LOGPROB_FINAL && !r.cold));
}

/* Whether a kernel before has weighed the candidates. */
static __device__ bool is_weighed(const struct syc_sample_row &r)
{
    return r.split.weight != NULL && !r.few && r.last == 0 && weighs_all(r);
}

/* What one of `all` threads has of the weight of a share. */
template <sy_type T>
static __device__ __forceinline__ u64 weigh_share(const struct syc_logits &l, const struct syc_scale &scale, const struct syc_share &own, u32 one, u32 all)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    u64 sum = syc_weigh<T>(l, scale, own.whole + one * n, own.rest, all * n);
#pragma unroll 1
    for (u32 j = one; j < own.whole - own.first + own.end - own.rest; j += all) {
        const u32 i = own.first + j < own.whole ? own.first + j : own.first + j - own.whole + own.rest;
        sum += syc_weight_of_bits(scale, syc_bits_at<T>(l, i));
    }
    return sum;
}

/* How many candidates are above -inf, or what they weigh: then of a row the shares are known. */
template <sy_type T> SYC_COLD u64 measure(struct syc_sample_row &r, bool weights)
{
    struct syc_sample_shared *const s = r.s;
    const struct syc_logits logits = r.logits;
    const struct syc_scale scale = r.scale;
    const u64 last = r.last;
    const u32 n = r.few ? r.n : 0;
    u64 sum = 0;
    __syncthreads();
    if (weights && is_weighed(r))
        return syc_block_sum((int)threadIdx.x < r.split.parts ? __ldcg(r.split.weight + r.b * r.split.parts + threadIdx.x) : 0, s->part);
    if (weights && !r.few && r.shares)
        return syc_block_sum((int)threadIdx.x < syc_warps() ? s->share[threadIdx.x] : 0, s->part);
    for (u32 j = threadIdx.x; j < n; j += blockDim.x) {
        const u32 key = syc_few_at(r, j).key;
        sum += weights ? syc_weight_of(scale, key) : key != SYI_KEY_MINUS_INF;
    }
    if (!r.few && weights && last == 0)
        sum = weigh_share<T>(logits, scale, syc_share_of<T>(logits, syc_warp()), (u32)syc_lane(), 32);
    else if (!r.few && weights && !scale.probs_in && scale.max < 3.402823466e38f) {
        const float cut = syi_key_value(syc_key_of(last));
        const u32 token = syc_token_of(last);
        syc_each<T>(logits, [&](u32 i, u32 bits) {
            const float value = __uint_as_float(bits);
            const u64 weight = syc_weight_at(__fmul_rn(__fsub_rn(value, scale.max), scale.inv_t));
            sum += value > cut || (value == cut && i <= token) ? weight : 0;
        });
    } else if (!r.few)
        syc_each<T>(logits, [&](u32 i, u32 bits) {
            const u32 key = syi_key(bits);
            if (syc_rank_of(key, i) >= last)
                sum += weights ? syc_weight_of(scale, key) : key != SYI_KEY_MINUS_INF;
        });
    sum = syc_block_sum(sum, s->part);
    if (!r.few && weights) { /* of warps, before they were summed */
        if ((int)threadIdx.x < syc_warps())
            s->share[threadIdx.x] = s->part[threadIdx.x];
        r.shares = true;
        __syncthreads();
    }
    return sum;
}

/* What a bin weighs, about: all its tokens as one in its middle. */
static __device__ __forceinline__ u64 about_bin(const struct syc_sample_row &r, u32 bin)
{
    const float t = (float)bin * (-1.0f / BINS_PER_UNIT);
    const float value = r.scale.max > 0.0f ? r.scale.max * (1.0f + t / FARTHEST) : 0.0f;
    return (u64)r.s->bin.low[bin] * (r.scale.probs_in ? syi_weight(value) : syc_weight_above(t));
}

/*
 * The shortest prefix of a wide row whose weight reaches its target. The counts of bins tell well where it ends; a second
 * read weighs everything and lists the edge. If the cut is not there after all, a bin further on or back is next, then
 * two, and so on: sums of what comes before the edge and of the edge are exact each time.
 */
template <sy_type T> SYC_COLD void cut_wide(struct syc_sample_row &r)
{
    struct syc_sample_shared *const s = r.s;
    const bool probs = r.scale.probs_in;
    count_bins<T>(r);
    const bool found = syc_find_bin(s, [&](u32 i) { return about_bin(r, i); }, [&](u64 total) {
        const u64 target = syi_mass_target(r.top_p, probs ? SYI_WEIGHT_ONE : total);
        return target < total ? target : max(total, (u64)1);
    });
    u32 bin = found ? (u32)s->answer[0] : 0, more = bin, step = 1; /* the edge is in these bins */
    if (found && s->answer[1] < s->answer[2] / 64)
        bin = bin > 0 ? bin - 1 : 0;
    else if (found && s->answer[2] - s->answer[1] < s->answer[2] / 64)
        more++;
    __syncthreads();
#pragma unroll 1
    for (;;) {
        const struct key_range range = list_edge<T>(r, keys_of_bins(r, bin, more));
        const u64 target = syi_mass_target(r.top_p, probs ? SYI_WEIGHT_ONE : r.mass);
        if (target > r.mass)
            return; /* probabilities whose sum is less: all stay */
        const u64 before = syc_block_sum((int)threadIdx.x < syc_warps() ? s->share[threadIdx.x] : 0, s->part);
        const u64 here = s->n_few > 0 ? weigh_edge<T>(r, range) : 0;
        if (before < target && target <= before + here) {
            cut_edge<T>(r, range, target - before, true);
            return;
        }
        if (target <= before) {
            more = bin - 1;
            bin = bin > step ? bin - step : 0;
        } else {
            bin = more + 1;
            more = min(more + step, (u32)SYC_BINS - 1);
        }
        step *= 2;
    }
}

template <sy_type T> static __device__ __forceinline__ void keep_top_p(struct syc_sample_row &r)
{
    r.ranked = true;
    if (r.few) {
        r.mass = measure<T>(r, true);
        cut_few<T>(r, syi_mass_target(r.top_p, r.p->probs_in ? SYI_WEIGHT_ONE : r.mass), true);
    } else
        cut_wide<T>(r);
}

/* The least key that passes; e does not grow down the order. */
SYC_COLD u32 min_p_floor(const struct syc_sample_row &r)
{
    const float floor = r.p->probs_in ? __fmul_rn(r.min_p, r.scale.max > 0.0f ? r.scale.max : 0.0f) : r.min_p;
    return syc_least_key(SYI_KEY_MINUS_INF, syc_key_of(r.first), /* the first of the order passes */
                         [&](u32 key) { return syc_e_of(r.scale, key) >= floor; });
}

template <sy_type T> static __device__ __forceinline__ void keep_min_p(struct syc_sample_row &r)
{
    const u64 last = r.min_p >= 1.0f ? r.first : (u64)min_p_floor(r) << 32;
    if (last <= r.last)
        return;
    r.shares = false;
    if (r.few)
        syc_keep_few(r, last);
    else {
        r.last = last;
        gather<T>(r, last);
    }
}

/* Top-k, top-p and min-p, in that order. */
template <sy_type T> static __device__ __forceinline__ void filter_row(struct syc_sample_row &r)
{
    const struct syi_sample_plan &p = *r.p;
    const u64 k = r.one && !r.empty ? 1 : (u64)r.k;
    if (k > 0)
        keep_top_k<T>(r, k);
    if (r.empty)
        return;
    if (r.top_p < 1.0f)
        keep_top_p<T>(r);
    else if (!p.probs_in && p.list_prob.data != NULL)
        r.mass = measure<T>(r, true);
    if (r.min_p > 0.0f)
        keep_min_p<T>(r);
}

/* ---- Lists -------------------------------------------------------------------------------------------------------- */

/* Candidates in list order. */
template <sy_type T> static __device__ __forceinline__ struct syc_item listed_at(const struct syc_sample_row &r, u32 j)
{
    if (r.few)
        return syc_few_at(r, j);
    if (r.listed)
        return {~(u32)(r.list[j] >> 32), (u32)r.list[j]};
    return {syc_key_at<T>(r.logits, j), j};
}

/* Candidates of the row in index order, each warp those of its part; returns how many they are. */
template <sy_type T> SYC_COLD u32 compact_row(const struct syc_sample_row &row)
{
    const struct syc_sample_row r = row;
    const u32 begin = (u32)syc_warp_part(r.vocab, syc_warp()), end = (u32)syc_warp_part(r.vocab, syc_warp() + 1);
    u64 n = 0, total;
    for (u32 i = begin + (u32)syc_lane(); i < end; i += 32)
        n += syc_rank_of(syc_key_at<T>(r.logits, i), i) >= r.last;
    u64 place = syc_block_before(n, r.s->part, &total);
    place = __shfl_sync(SYC_ALL_LANES, place, 0);
    for (u32 at = begin; at < end; at += 32) {
        const u32 i = at + (u32)syc_lane(), key = i < end ? syc_key_at<T>(r.logits, i) : 0;
        const bool in = i < end && syc_rank_of(key, i) >= r.last;
        const u32 mask = __ballot_sync(SYC_ALL_LANES, in);
        if (in)
            r.list[place + (u32)__popc(mask & ((1u << syc_lane()) - 1u))] = (u64)~key << 32 | i;
        place += (u32)__popc(mask);
    }
    return (u32)total;
}

template <sy_type T> static __device__ __forceinline__ void make_list(struct syc_sample_row &r)
{
    if (r.few) {
        syc_order_few(r, !r.ranked);
        return;
    }
    if (r.last == 0 && !r.ranked)
        return;
    r.n = compact_row<T>(r);
    if (r.ranked)
        r.list = syc_sort_many(r.list, r.list + r.vocab, r.n, 64, r.s->digits);
    __syncthreads();
    r.listed = true;
}

/* ---- Choosing ----------------------------------------------------------------------------------------------------- */

/* The best of a thread: larger scores first, then larger `order`. A score is its bits and one, so that 0 is none. */
struct best {
    u64 score, order;
};

static __device__ __forceinline__ void compete(struct best &best, float e, float q, float eps, u64 order)
{
    const u64 score = (u64)__float_as_uint(syi_score(e, q, eps)) + 1;
    if (score > best.score || (score == best.score && order > best.order))
        best = {score, order};
}

/* The best of a block: its order; 0 when there is none. */
static __device__ u64 best_of_all(const struct best &own, u64 *part)
{
    const u64 score = syc_block_max(own.score, part);
    return syc_block_max(score != 0 && own.score == score ? own.order : 0, part);
}

static __device__ __forceinline__ float q_at(const struct syi_sample_plan &p, int64_t b, u32 i)
{
    return __uint_as_float(syc_load<u32>(syc_row(p.q, b) + (int64_t)i * 4));
}

/* q by place in the list: equal scores go to the earlier place. */
template <sy_type T> SYC_COLD u32 choose_by_list(const struct syc_sample_row &row)
{
    const struct syc_sample_row r = row;
    struct best best = {0, 0};
    for (u32 j = threadIdx.x; j < r.n; j += blockDim.x) {
        const float e = syc_e_of(r.scale, listed_at<T>(r, j).key);
        if (e > 0.0f)
            compete(best, e, q_at(*r.p, r.b, j), r.p->eps, (u64)(u32)~j | (u64)1 << 32);
    }
    const u64 place = best_of_all(best, r.s->part);
    return place != 0 ? listed_at<T>(r, ~(u32)place).token : syc_token_of(r.first);
}

/* Where the noise of a token comes from: the caller's q, or counted. */
struct noise_source {
    const u8 *q; /* NULL: counted */
    float eps;
    struct syi_noise noise;
    u32 drawn; /* group of four tokens whose words are in `word` */
    uint32_t word[4];
};

static __device__ __forceinline__ float noise_at(struct noise_source &from, u32 token)
{
    if (from.q != NULL)
        return __uint_as_float(syc_load<u32>(from.q + (int64_t)token * 4));
    if (token / 4 != from.drawn) {
        from.drawn = token / 4;
        syi_noise_words(&from.noise, from.drawn, from.word);
    }
    const u32 low = token % 2 == 0 ? from.word[0] : from.word[1], high = token % 2 == 0 ? from.word[2] : from.word[3];
    return syi_exponential(token % 4 < 2 ? low : high);
}

/* The vectors of this warp's share take part in a race. Noise is at least (word + 1/2) / 2^32, and a little less by rounding:
   few tokens can still reach the best score of the warp, and only those are scored. */
template <sy_type T> SYC_COLD struct best race_vectors(const struct syc_sample_row &r)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const struct syc_logits l = r.logits;
    const struct syc_scale scale = r.scale;
    const struct syi_noise noise = noise_of(r);
    const struct syc_share own = syc_share_of<T>(l, syc_warp());
    const u64 last = r.last;
    const bool ranked = r.ranked;
    const u32 nothing = syc_minus_inf_word<T>();
    struct best best = {0, 0};
    u32 most = 0; /* of the warp */
#pragma unroll 1
    for (u32 at = own.whole; at < own.rest; at += 32 * n) {
        const u32 first = at + (u32)syc_lane() * n;
        const uint4 x = first < own.rest ? syc_vector_at<T>(l, first) : make_uint4(nothing, nothing, nothing, nothing);
        const float reach = __uint_as_float(most > 0 ? most - 1 : 0);
        const u32 half[4] = {x.x, x.y, x.z, x.w};
        uint32_t word[n];
        u32 able = 0;
#pragma unroll
        for (u32 g = 0; g < n / 4; g++)
            syi_noise_words(&noise, first / 4 + g, word + 4 * g);
        const auto look = [&](u32 i, u32 bits) {
            const float e = syc_e_of(scale, syi_key(bits)), above = e * 4295010246.0f; /* 2^32 and a hundred-thousandth */
            able |= e > 0.0f && above >= reach * (float)word[(i - first) % n] ? 1u << (i - first) : 0;
        };
        syc_each_of<T>(first, x, look);
#pragma unroll 1
        for (; able != 0; able &= able - 1) {
            const u32 j = (u32)__ffs((int)able) - 1, w = T == SY_TYPE_F32 ? j : j / 2;
            u32 noisy = word[0];
#pragma unroll
            for (u32 k = 1; k < n; k++)
                noisy = j == k ? word[k] : noisy;
            const u32 both = w == 0 ? half[0] : w == 1 ? half[1] : w == 2 ? half[2] : half[3];
            const u32 key = syi_key(T == SY_TYPE_F32 ? both : syc_wide<T>(both >> (j % 2 * 16) & 0xffffu));
            if (syc_rank_of(key, first + j) >= last)
                compete(best, syc_e_of(scale, key), syi_exponential(noisy), 0.0f, syc_rank_of(ranked ? key : 1, first + j));
        }
        most = __reduce_max_sync(SYC_ALL_LANES, (u32)best.score); /* a score is finite: its bits and one are a word */
    }
    return best;
}

/* Noise by token: equal scores go to what is earlier in rank or index order. */
template <sy_type T> SYC_COLD u32 choose_by_token(const struct syc_sample_row &r)
{
    const bool race = r.p->noise == SY_NOISE_RACE, few = r.few, ranked = r.ranked;
    const struct syc_logits logits = r.logits;
    const struct syc_scale scale = r.scale;
    const u64 last = r.last;
    const struct syc_vectors v = syc_vectors_of<T>(logits);
    const bool by_vectors = race && !few && v.head % 4 == 0; /* then all but the ends of the row are done */
    const u32 skip = by_vectors ? v.n * (T == SY_TYPE_F32 ? 4 : 8) : 0;
    const u32 n = few ? r.n : r.vocab - skip, run = few ? 1 : 4; /* of a row four tokens at a time, with one counter */
    struct noise_source from = {race ? NULL : syc_row(r.p->q, r.b), race ? 0.0f : r.p->eps, noise_of(r), ~0u, {0, 0, 0, 0}};
    struct best best = {0, 0};
    if (by_vectors)
        best = race_vectors<T>(r);
#pragma unroll 1
    for (u32 turn = 0;; turn++) {
        const u32 at = (turn / run * blockDim.x + threadIdx.x) * run + turn % run, j = at < v.head ? at : at + skip;
        if (at >= n && turn % run == 0)
            break;
        if (at >= n)
            continue;
        const struct syc_item item = few ? syc_few_at(r, at) : syc_item{syc_key_at<T>(logits, j), j};
        const float e = syc_e_of(scale, item.key);
        if (e > 0.0f && syc_rank_of(item.key, item.token) >= last)
            compete(best, e, noise_at(from, item.token), from.eps, syc_rank_of(ranked ? item.key : 1, item.token));
    }
    const u64 order = best_of_all(best, r.s->part);
    return order != 0 ? syc_token_of(order) : syc_token_of(r.first);
}

/* The first of the tokens [first, end) at which the sum of f(token) over all up to it exceeds a target below the sum of
   all. */
template <class F>
static __device__ __forceinline__ u32 find_in_share(u64 *part, u64 *answer, u32 first, u32 end, u64 target, F f)
{
#pragma unroll 1
    do {
        const u32 each = (end - first + blockDim.x - 1) / blockDim.x;
        const u32 own = min(end, first + threadIdx.x * each), next = min(end, own + each);
        u64 sum = 0, all;
#pragma unroll 4
        for (u32 i = own; i < next; i++)
            sum += f(i);
        const u64 before = syc_block_before(sum, part, &all);
        if (before <= target && target < before + sum) {
            answer[0] = own;
            answer[1] = next;
            answer[2] = target - before;
        }
        __syncthreads();
        first = (u32)answer[0];
        end = (u32)answer[1];
        target = answer[2];
        __syncthreads();
    } while (end - first > 1);
    return first;
}

/* The part of the row at which the weights exceed a target, which becomes what is left of it. */
template <sy_type T> static __device__ struct syc_share weighed_share(const struct syc_sample_row &r, u64 *target)
{
    const u64 *const weight = r.split.weight + r.b * r.split.parts;
    int part = 0;
    for (; part + 1 < r.split.parts && __ldcg(weight + part) <= *target; part++)
        *target -= __ldcg(weight + part);
    return syc_part_of<T>(r.logits, part, r.split.parts);
}

/* The first candidate in index order up to which the weights exceed a uniform share of them all. */
template <sy_type T> SYC_COLD u32 choose_by_cdf(struct syc_sample_row &r)
{
    const struct syi_noise noise = noise_of(r);
    uint32_t word[4];
    const u64 total = measure<T>(r, true);
    if (total == 0)
        return syc_token_of(r.first);
    syi_noise_words(&noise, UINT32_MAX, word);
    u64 target = syi_share_of(word[0] | (u64)word[1] << 32, total);
    const struct syc_logits logits = r.logits;
    const struct syc_scale scale = r.scale;
    const u64 last = r.last;
    if (r.few) {
        struct syc_cut cut = {};
        syc_select_items(r.s, {r.s->few, r.n, SYC_BY_TOKEN_WEIGHT, 0, 0}, scale, ~(r.vocab - 1), ~0u, target + 1, 0, &cut);
        return ~cut.value;
    }
    const struct syc_share share = is_weighed(r) ? weighed_share<T>(r, &target) :
                                                   syc_share_of<T>(logits, syc_find_part(r.s->share, &target)); /* of measure */
    return find_in_share(r.s->part, r.s->answer, share.first, share.end, target, [&](u32 i) {
        const u32 key = syc_key_at<T>(logits, i);
        return syc_rank_of(key, i) >= last ? syc_weight_of(scale, key) : (u64)0;
    });
}

/* ---- Outputs ------------------------------------------------------------------------------------------------------ */

template <sy_type T> SYC_COLD void write_list(const struct syc_sample_row &row)
{
    const struct syc_sample_row r = row;
    const struct syi_sample_plan &p = *r.p;
    const float scale = __fmul_rn(__ull2float_rn(r.mass), 0x1p-40f);
    u8 *const tokens = p.list_token.data != NULL ? syc_out_row(p.list_token, r.b) : NULL;
    u8 *const probs = p.list_prob.data != NULL ? syc_out_row(p.list_prob, r.b) : NULL;
    for (u32 j = threadIdx.x; j < r.vocab; j += blockDim.x) {
        struct syc_item item = {SYI_KEY_MINUS_INF, 0};
        if (j < r.n)
            item = listed_at<T>(r, j);
        if (tokens != NULL)
            syc_store<u64>(tokens + (int64_t)j * 8, item.token);
        if (probs == NULL)
            continue;
        u32 prob = 0;
        if (item.key != SYI_KEY_MINUS_INF)
            prob = p.probs_in ? syc_bits_at<T>(r.logits, item.token) : __float_as_uint(__fdiv_rn(syc_e_of(r.scale, item.key), scale));
        syc_store<u32>(probs + (int64_t)j * 4, prob);
    }
}

/* The logarithm of the share of a key in a weight. */
SYC_COLD float log_share(struct syc_scale scale, u32 key, u64 total)
{
    const float value = syi_key_value(key), minus_inf = __uint_as_float(SYC_MINUS_INF_BITS);
    if (key == SYI_KEY_MINUS_INF)
        return minus_inf;
    if (!scale.probs_in)
        return (float)((double)__fmul_rn(__fsub_rn(value, scale.max), scale.inv_t) - syi_log_weight(total));
    const u64 own = syi_weight(value > 0.0f ? value : 0.0f);
    return own == 0 ? minus_inf : (float)(syi_log_weight(own) - syi_log_weight(total));
}

/* Of the caller's logits: temperature 1, whatever is allowed or overridden. */
SYC_COLD float raw_logprob(const struct syc_sample_row &r, u32 token)
{
    const struct syi_sample_plan &p = *r.p;
    const u8 *const x = syc_row(p.logits, r.b);
    const int bytes = p.type == SY_TYPE_F32 ? 4 : 2;
    const auto key_at = [&](u32 i) { return syi_key(__float_as_uint(syc_load_float(x + (int64_t)i * bytes, p.type))); };
    struct syc_scale raw = {0.0f, 1.0f, p.probs_in};
    u32 most = 0;
    u64 sum = 0;
    for (u32 i = threadIdx.x; i < r.vocab; i += blockDim.x)
        most = max(most, key_at(i));
    raw.max = syi_key_value((u32)syc_block_max(most, r.s->part));
    for (u32 i = threadIdx.x; i < r.vocab; i += blockDim.x)
        sum += syc_weight_of(raw, key_at(i));
    return log_share(raw, key_at(token), syc_block_sum(sum, r.s->part));
}

template <sy_type T> static __device__ __forceinline__ float logprob(struct syc_sample_row &r, u32 token)
{
    if (r.empty)
        return __uint_as_float(SYC_MINUS_INF_BITS);
    if (r.p->logprob_mode == SY_LOGPROB_RAW)
        return raw_logprob(r, token);
    return r.cold ? 0.0f : log_share(r.scale, syc_key_at<T>(r.logits, token), measure<T>(r, true));
}

/* Each token is read by the thread that writes it, so masked logits may be exactly over f32 logits. */
template <sy_type T> SYC_COLD void write_masked(const struct syc_sample_row &row)
{
    const struct syc_sample_row r = row;
    const struct syi_sample_plan &p = *r.p;
    const u8 *const allow = p.allow_bits.data != NULL ? syc_row(p.allow_bits, r.b) : NULL;
    const u32 fill = p.probs_in ? 0 : SYC_MINUS_INF_BITS;
    u8 *const out = syc_out_row(p.masked, r.b);
    for (u32 i = threadIdx.x; i < r.vocab; i += blockDim.x) {
        const u32 bits = syc_bits_at<T>(r.logits, i);
        const bool in = !r.empty && syc_rank_of(syi_key(bits), i) >= r.last && syc_allowed(allow, i);
        syc_store<u32>(out + (int64_t)i * 4, in && (bits & 0x7fffffffu) <= 0x7f800000u ? bits : fill);
    }
}

#endif
