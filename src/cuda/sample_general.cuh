/*
 * The steps of sample on one row, by a block, for every parameter, output and distribution: reading, cuts, lists, draws.
 */
#ifndef SYC_SAMPLE_GENERAL_CUH
#define SYC_SAMPLE_GENERAL_CUH

#include "cuda/lists.cuh"
#include "cuda/sample_row.cuh"

/* ---- Parameters of a row ------------------------------------------------------------------------------------------ */

static __device__ __forceinline__ float float_or(const struct syi_column &c, int64_t b, float missing)
{
    return c.rows.data != NULL ? syc_column_float(c, b) : missing;
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

/* The first of the order, and the cells; returns SY_ROW_* of the row. */
template <sy_type T> static __device__ __forceinline__ u32 scan_row(struct syc_sample_row &r)
{
    const struct syc_logits logits = r.logits;
    struct syc_sample_shared *const s = r.s;
    const bool wanted = r.p->row_flags != NULL;
    u32 cell[SYC_CELLS], key = 0;
    const u32 flags = get_cells<T>(*r.p, r.split, logits, r.b, cell);
#pragma unroll
    for (u32 c = 0; c < SYC_CELLS; c++) {
        s->cell[c * blockDim.x + threadIdx.x] = cell[c];
        key = max(key, cell[c]);
    }
    key = (u32)syc_block_max(key, s->part);
    u32 token = ~0u; /* the least that has it */
    syc_each_hot<T>(logits, s, key, [&](u32 i, u32 bits) {
        if (syi_key(bits) == key)
            token = min(token, i);
    });
    token = ~(u32)syc_block_max(~token, s->part);
    r.first = syc_rank_of(key, token);
    r.empty = key == SYI_KEY_MINUS_INF;
    r.scale.max = syi_key_value(key);
    if (!wanted)
        return 0;
    const bool nan = __syncthreads_or((flags & SY_ROW_NAN) != 0), inf = __syncthreads_or((flags & SY_ROW_INF) != 0);
    return (nan ? SY_ROW_NAN : 0u) | (inf ? SY_ROW_INF : 0u) | (r.empty ? SY_ROW_EMPTY : 0u);
}

/* ---- Cuts --------------------------------------------------------------------------------------------------------- */

static __device__ bool all_ties(const struct syc_sample_row &r) { return r.p->ties == SY_TIES_ALL; }

/* A key that so many cells reach, or cells of so much weight, and not many more; 0 when there is none. */
SYC_COLD u32 cell_floor(const struct syc_sample_row &r, u64 target, bool weights)
{
    struct syc_sample_shared *const s = r.s;
    const struct syc_scale scale = r.scale;
    struct syc_cut cut;
    const u32 n = SYC_CELLS * blockDim.x;
    const bool found = syc_select(s, target, &cut, 2, [&](auto f) {
        for (u32 i = threadIdx.x; i < n; i += blockDim.x)
            if (s->cell[i] != 0)
                f(s->cell[i], weights ? syc_weight_of(scale, s->cell[i]) : 1);
    });
    return found ? cut.key : 0;
}

/* The first n candidates of the order in shared memory stay, and what equals the last of them when ties stay together. */
static __device__ void keep_first(struct syc_sample_row &r, u32 n)
{
    if (all_ties(r) && n < r.n) {
        const u32 least = syc_few_at(r, n - 1).key;
        n = (u32)syc_sum_few(r, r.n, [&](u32 key) { return (u64)(key >= least); });
    }
    r.n = n;
    r.last = r.s->few[n - 1];
}

/*
 * The shortest prefix of the candidates whose measure reaches a target: how many they are, or what they weigh. `floor` is
 * a key that the last of them is known to reach. False when all do not reach the target.
 */
template <sy_type T> SYC_COLD bool cut_row(struct syc_sample_row &r, u64 target, bool weights, u32 floor)
{
    const struct syc_logits logits = r.logits;
    const struct syc_scale scale = r.scale;
    const u64 bound = r.last;
    struct syc_cut cut;
    const bool found = syc_select(r.s, target, &cut, T == SY_TYPE_F32 ? 3 : 2, [&](auto f) {
        syc_each<T>(logits, [&](u32 i, u32 bits) {
            const u32 key = syi_key(bits);
            if (key < floor || syc_rank_of(key, i) < bound)
                return;
            const u64 measure = weights ? syc_weight_of(scale, key) : 1;
            if (measure != 0)
                f(key, measure);
        });
    });
    if (!found)
        return false;
    if (T != SY_TYPE_F32 && (cut.key >> 31 == 0 || cut.key == 0xff7ffc00u))
        cut.key |= 0x3ffu; /* the lower bits of what has 16: ones below 0 and where +inf became FLT_MAX */
    const u64 each = weights ? syc_weight_of(scale, cut.key) : 1;
    const u64 ties = (cut.rest + each - 1) / each;
    u64 last = syc_rank_of(cut.key, r.vocab - 1);
    if (!all_ties(r) && ties < cut.at / each)
        last = syc_rank_of(cut.key, syc_find_in_row(r.s, 0, r.vocab, ties - 1, [&](u32 i) {
            const u32 key = syc_key_at<T>(logits, i);
            return (u64)(key == cut.key && syc_rank_of(key, i) >= bound);
        }));
    r.last = max(r.last, last);
    return true;
}

template <sy_type T> static __device__ __forceinline__ void keep_top_k(struct syc_sample_row &r, u64 k)
{
    r.ranked = true;
    const u32 floor = k <= SYC_CELLS * blockDim.x ? cell_floor(r, k, false) : 0;
    if (k <= SYC_FEW && syc_gather<T>(r, (u64)floor << 32))
        keep_first(r, (u32)k);
    else if (cut_row<T>(r, k, false, floor))
        syc_gather<T>(r, r.last);
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

/* How many candidates are above -inf, or what they weigh. Of a row s->part then has the sum of each warp's share. */
template <sy_type T> SYC_COLD u64 measure(const struct syc_sample_row &r, bool weights)
{
    const struct syc_logits logits = r.logits;
    const struct syc_scale scale = r.scale;
    const u64 last = r.last;
    const u32 n = r.few ? r.n : 0;
    u64 sum = 0;
    if (weights && is_weighed(r))
        return syc_block_sum((int)threadIdx.x < r.split.parts ? __ldcg(r.split.weight + r.b * r.split.parts + threadIdx.x) : 0, r.s->part);
    for (u32 j = threadIdx.x; j < n; j += blockDim.x) {
        const u32 key = syc_few_at(r, j).key;
        sum += weights ? syc_weight_of(scale, key) : key != SYI_KEY_MINUS_INF;
    }
    if (!r.few && weights && last == 0)
        sum = weigh_share<T>(logits, scale, syc_share_of<T>(logits, syc_warp()), (u32)syc_lane(), 32);
    else if (!r.few)
        syc_each<T>(logits, [&](u32 i, u32 bits) {
            const u32 key = syi_key(bits);
            if (syc_rank_of(key, i) >= last)
                sum += weights ? syc_weight_of(scale, key) : key != SYI_KEY_MINUS_INF;
        });
    return syc_block_sum(sum, r.s->part);
}

template <sy_type T> static __device__ __forceinline__ void keep_top_p(struct syc_sample_row &r)
{
    const u64 target = syi_mass_target(r.top_p, r.p->probs_in ? SYI_WEIGHT_ONE : r.mass);
    u32 floor = 0;
    r.ranked = true;
    if (!r.few && r.last == 0) { /* the cells are those of all candidates */
        floor = cell_floor(r, target, true);
        if (floor != 0)
            syc_gather<T>(r, (u64)floor << 32);
    }
    if (r.few) {
        const u32 n = syc_find_few(r, r.n, target - 1);
        keep_first(r, n < r.n ? n + 1 : n);
    } else if (cut_row<T>(r, target, true, floor))
        syc_gather<T>(r, r.last);
    else
        r.n = r.last == 0 ? r.vocab : r.n;
}

/* The least key that passes; e does not grow down the order. */
SYC_COLD u32 min_p_floor(const struct syc_sample_row &r)
{
    const float floor = r.p->probs_in ? __fmul_rn(r.min_p, r.scale.max > 0.0f ? r.scale.max : 0.0f) : r.min_p;
    u32 low = SYI_KEY_MINUS_INF, high = syc_key_of(r.first); /* the first of the order passes */
    while (low < high) {
        const u32 middle = low + (high - low) / 2;
        if (syc_e_of(r.scale, middle) >= floor)
            high = middle;
        else
            low = middle + 1;
    }
    return high;
}

template <sy_type T> static __device__ __forceinline__ void keep_min_p(struct syc_sample_row &r)
{
    const u64 last = r.min_p >= 1.0f ? r.first : (u64)min_p_floor(r) << 32;
    if (last <= r.last)
        return;
    if (!r.few) {
        r.last = last;
        syc_gather<T>(r, last);
        return;
    }
    u64 n = 0;
    for (u32 j = threadIdx.x; j < r.n; j += blockDim.x)
        n += r.s->few[j] >= last;
    r.n = (u32)syc_block_sum(n, r.s->part);
    r.last = r.s->few[r.n - 1];
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
    if (!p.probs_in && (r.top_p < 1.0f || p.list_prob.data != NULL))
        r.mass = measure<T>(r, true);
    if (r.top_p < 1.0f)
        keep_top_p<T>(r);
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

/* Candidates of the row in index order: each warp those of its part. */
template <sy_type T> SYC_COLD void compact_row(const struct syc_sample_row &row)
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
}

template <sy_type T> static __device__ __forceinline__ void make_list(struct syc_sample_row &r)
{
    if (r.few) {
        syc_order_few(r, !r.ranked);
        return;
    }
    if (r.last == 0 && !r.ranked)
        return;
    compact_row<T>(r);
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

/* Noise by token: equal scores go to what is earlier in rank or index order. */
template <sy_type T> SYC_COLD u32 choose_by_token(const struct syc_sample_row &r)
{
    const bool race = r.p->noise == SY_NOISE_RACE, few = r.few, ranked = r.ranked;
    const struct syc_logits logits = r.logits;
    const struct syc_scale scale = r.scale;
    const u64 last = r.last;
    const u32 n = few ? r.n : r.vocab, run = few ? 1 : 4; /* of a row four tokens at a time, with one counter */
    struct noise_source from = {race ? NULL : syc_row(r.p->q, r.b), race ? 0.0f : r.p->eps, noise_of(r), ~0u, {0, 0, 0, 0}};
    struct best best = {0, 0};
#pragma unroll 1
    for (u32 turn = 0;; turn++) {
        const u32 j = (turn / run * blockDim.x + threadIdx.x) * run + turn % run;
        if (j >= n && turn % run == 0)
            break;
        if (j >= n)
            continue;
        const struct syc_item item = few ? syc_few_at(r, j) : syc_item{syc_key_at<T>(logits, j), j};
        const float e = syc_e_of(scale, item.key);
        if (e > 0.0f && syc_rank_of(item.key, item.token) >= last)
            compete(best, e, noise_at(from, item.token), from.eps, syc_rank_of(ranked ? item.key : 1, item.token));
    }
    const u64 order = best_of_all(best, r.s->part);
    return order != 0 ? syc_token_of(order) : syc_token_of(r.first);
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
    if (r.few) {
        syc_order_few(r, true);
        return syc_few_at(r, syc_find_few(r, r.n, target)).token;
    }
    const struct syc_logits logits = r.logits;
    const struct syc_scale scale = r.scale;
    const u64 last = r.last;
    const struct syc_share share = is_weighed(r) ? weighed_share<T>(r, &target) :
                                                   syc_share_of<T>(logits, syc_find_part(r.s->part, &target)); /* of measure */
    return syc_find_in_row(r.s, share.first, share.end, target, [&](u32 i) {
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

template <sy_type T> static __device__ __forceinline__ float logprob(const struct syc_sample_row &r, u32 token)
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
