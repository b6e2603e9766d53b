/*
 * What a row of sample is read as: its parameters, its tiles, and the largest key.
 */
#pragma once

#include "cuda/prim/lists.cuh"
#include "cuda/sample/sample_select.cuh"

/* ---- Parameters of a row ---- */

SYC_INLINE float float_or(const syi_column &c, int64_t b, float missing)
{
    return c.rows.data != NULL ? syc_column_float(c, b) : missing;
}

SYC_INLINE int64_t int_or(const syi_column &c, int64_t b, int64_t missing)
{
    return c.rows.data != NULL ? syc_column_int(c, b) : missing;
}

SYC_INLINE syc_params params_of(const syi_sample_plan &p, float t, int64_t k, float top_p, float min_p)
{
    const float coldest = 1e-5f, hottest = 0x1p100f;
    const int64_t limit = p.args.k_limit == 0 ? p.vocab - 1 : min(p.vocab, p.args.k_limit);
    syc_params a = {};
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
SYC_INLINE syc_params load_params(const syi_sample_plan &p, int64_t b)
{
    enum { TOP_K, TOP_P, MIN_P, TEMPERATURE, SEED, OFFSET, STREAM, COLUMNS }; /* as they follow in the plan */
    static_assert(offsetof(syi_sample_plan, stream) ==
                      offsetof(syi_sample_plan, top_k) + STREAM * sizeof(syi_column),
                  "columns are an array");
    const int own = min(syc_lane(), COLUMNS - 1);
    const syi_column c =
        *(const syi_column *)((const u8 *)&p + offsetof(syi_sample_plan, top_k) + own * sizeof(syi_column));
    const u8 *const data = c.rows.data != NULL && !c.held ? syc_row(c.rows, b) : NULL;
    const bool wide = c.type == SY_TYPE_I64 || c.type == SY_TYPE_U64, is_signed = c.type == SY_TYPE_I32;
    const bool words = data != NULL && (uintptr_t)data % 4 == 0 &&
                       (wide || is_signed || c.type == SY_TYPE_U32 || c.type == SY_TYPE_F32);
    /* The usual types without a branch for each, in which lanes would wait one after the other. */
    const u32 low = words ? *(const u32 *)data : 0, high = words && wide ? *(const u32 *)(data + 4) : 0;
    u64 v = 0;
    if (words)
        v = (u64)(wide ? high : is_signed && low >> 31 ? ~0u : 0u) << 32 | low;
    else if (own >= TOP_P && own <= TEMPERATURE)
        v = __float_as_uint(float_or(c, b, own == MIN_P ? 0.0f : 1.0f));
    else
        v = (u64)int_or(c, b, own == STREAM && !p.seed_per_row ? b : 0);
    const auto at = [&](int lane) { return __shfl_sync(SYC_ALL_LANES, v, lane); };
    const float t = __uint_as_float((u32)at(TEMPERATURE)), top_p = __uint_as_float((u32)at(TOP_P)),
                min_p = __uint_as_float((u32)at(MIN_P));
    syc_params a = params_of(p, t, (int64_t)at(TOP_K), top_p, min_p);
    a.noise = {at(SEED), at(OFFSET), (u32)at(STREAM)};
    return a;
}

SYC_INLINE void set_params(syc_sample_row &r, const syc_params &a)
{
    r.scale.inv_t = a.inv_t;
    r.cold = a.cold;
    r.greedy = a.greedy;
    r.k = a.k;
    r.top_p = a.top_p;
    r.min_p = a.min_p;
    r.one = a.one;
    r.all_ties = r.p->args.ties == SY_TIES_ALL;
}

SYC_COLD void read_parameters(syc_sample_row &r)
{
    const syi_sample_plan &p = *r.p;
    set_params(r, params_of(p, float_or(p.temperature, r.b, 1.0f), int_or(p.top_k, r.b, 0),
                            float_or(p.top_p, r.b, 1.0f), float_or(p.min_p, r.b, 0.0f)));
}

static __device__ syi_noise noise_of(const syc_sample_row &r)
{
    const syi_sample_plan &p = *r.p;
    return {(uint64_t)int_or(p.seed, r.b, 0), (uint64_t)int_or(p.offset, r.b, 0),
            (uint32_t)int_or(p.stream, r.b, p.seed_per_row ? 0 : r.b)};
}

/* Whether anything but the first token of the order is needed. */
SYC_INLINE bool needs_candidates(const syc_sample_row &r)
{
    const syi_sample_plan &p = *r.p;
    const bool final = p.logprob_mode == SY_LOGPROB_FINAL && !r.cold;
    return !r.greedy || final || p.kept.data != NULL || p.masked.data != NULL || p.list_token.data != NULL ||
           p.list_prob.data != NULL;
}

/* ---- Reading ---- */

/* The row with its overrides, as f32, in scratch; what is not allowed is -inf. */
SYC_COLD void stage_row(const syc_sample_row &r, u32 *staged)
{
    const syi_sample_plan &p = *r.p;
    const u8 *const x = syc_row(p.logits, r.b), *const allow = r.logits.allow;
    const int bytes = p.logits.type == SY_TYPE_F32 ? 4 : 2;
    const u32 vocab = r.vocab;
    for (u32 i = threadIdx.x; i < vocab; i += blockDim.x)
        staged[i] = syc_allowed(allow, i)
                        ? __float_as_uint(syc_load_float(x + (int64_t)i * bytes, p.logits.type))
                        : SYC_MINUS_INF_BITS;
    __syncthreads();
    const syc_span span = syc_list_span(p.overrides, r.b);
    for (int64_t j = span.first + threadIdx.x; j < span.end; j += blockDim.x) {
        const u32 token = (u32)syc_list_token(p.overrides, j);
        if (syc_allowed(allow, token))
            staged[token] = __float_as_uint(syc_list_value(p.overrides, j));
    }
    __syncthreads();
}

/* The larger of a word and those of a vector. */
template <sy_type T> SYC_INLINE u32 fold(u32 most, uint4 x)
{
    return syc_max_word<T>(most, syc_max_word<T>(syc_max_word<T>(x.x, x.y), syc_max_word<T>(x.z, x.w)));
}

template <sy_type T> SYC_INLINE u32 flags_of(uint4 x)
{
    /* Adding to the bits without sign carries into the place of the sign where all bits of an exponent are
     * set. */
    constexpr u32 magnitude = T == SY_TYPE_F32 ? 0x7fffffffu : 0x7fff7fffu, sign = ~magnitude;
    constexpr u32 step = T == SY_TYPE_F32 ? 0x00800000u : T == SY_TYPE_F16 ? 0x04000400u : 0x00800080u;
    const u32 sums = ((x.x & magnitude) + step) | ((x.y & magnitude) + step) | ((x.z & magnitude) + step) |
                     ((x.w & magnitude) + step);
    if ((sums & sign) == 0)
        return 0;
    return syc_word_flags<T>(x.x) | syc_word_flags<T>(x.y) | syc_word_flags<T>(x.z) | syc_word_flags<T>(x.w);
}

enum { AHEAD = 4 };

/* f(c, vector) for the vectors at, at + step, ... of a row; c counts them by AHEAD. */
template <sy_type T, class F> SYC_INLINE void each_vector(const syc_logits &row, u32 at, u32 step, F f)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const syc_logits l = row;
    const syc_vectors v = syc_vectors_of<T>(l);
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
            y[c] = at + c * step < v.n ? syc_vector_at<T>(l, v.head + (at + c * step) * n)
                                       : make_uint4(nothing, nothing, nothing, nothing);
#pragma unroll
        for (u32 c = 0; c < AHEAD; c++)
            f(c, y[c]);
    }
}

/* Largest keys of a thread's tiles; returns SY_ROW_NAN and SY_ROW_INF of what it read, where `wanted`. */
template <sy_type T, bool wanted> SYC_INLINE u32 read_tiles(const syc_logits &l, u32 *tile)
{
    static_assert((int)AHEAD == (int)SYC_OWN_TILES, "a vector for each tile of a thread");
    const u32 vectors = syc_vectors_of<T>(l).n;
    u32 flags = 0;
#pragma unroll
    for (u32 c = 0; c < SYC_OWN_TILES; c++)
        tile[c] = syc_minus_inf_word<T>();
    each_vector<T>(l, threadIdx.x, blockDim.x, [&](u32 c, uint4 x) {
        tile[c] = fold<T>(tile[c], x);
        if (wanted)
            flags |= flags_of<T>(x);
    });
#pragma unroll
    for (u32 c = 0; c < SYC_OWN_TILES; c++)
        tile[c] = threadIdx.x + c * blockDim.x < vectors ? syc_word_key<T>(tile[c]) : 0;
    return flags;
}

/* What a kernel before has found; the same of a thread. */
SYC_INLINE u32 take_tiles(const syc_parts &split, int64_t b, u32 *tile)
{
#pragma unroll
    for (u32 c = 0; c < SYC_OWN_TILES; c++)
        tile[c] = __ldcg(split.tile + b * SYC_TILES + c * SYC_SAMPLE_THREADS + threadIdx.x);
    return (int)threadIdx.x < split.parts ? (u32)__ldcg(split.most + b * split.parts + threadIdx.x) : 0;
}

/* Either; the tokens in no vector count for the first tile of the thread that read them. */
template <sy_type T>
SYC_INLINE u32 get_tiles(const syi_sample_plan &p, const syc_parts &split, const syc_logits &l, int64_t b,
                         u32 *tile)
{
    u32 flags;
    if (split.parts > 0)
        flags = take_tiles(split, b, tile);
    else if (p.row_flags.data != NULL)
        flags = read_tiles<T, true>(l, tile);
    else
        flags = read_tiles<T, false>(l, tile);
    syc_each_rest<T>(l, [&](u32, u32 bits) {
        tile[0] = max(tile[0], syi_key(bits));
        flags |= syi_key_flags(bits);
    });
    return flags;
}

/* The largest key and the tiles, and where it may be taken the first of the order; returns SY_ROW_* of the
 * row. */
template <sy_type T> SYC_INLINE u32 scan_row(syc_sample_row &r, const u32 *tile, u32 flags)
{
    const syc_logits logits = r.logits;
    syc_sample_shared *const s = r.s;
    u32 key = 0, token = 0;
#pragma unroll
    for (u32 c = 0; c < SYC_OWN_TILES; c++) {
        s->tile[c * blockDim.x + threadIdx.x] = tile[c];
        key = max(key, tile[c]);
    }
    key = (u32)syc_block_max(key, s->part);
    if (r.greedy || r.min_p >= 1.0f || r.p->args.probs_in) {
        token = ~0u; /* the least that has it */
        syc_each_candidate_tile<T>(logits, s, key, [&](u32 i, u32 bits) {
            if (syi_key(bits) == key)
                token = min(token, i);
        });
        token = ~(u32)syc_block_max(~token, s->part);
    }
    const bool empty = key == SYI_KEY_MINUS_INF;
    syc_change([&] {
        r.first = syc_rank_of(key, token);
        r.empty = empty;
        r.scale.max = syi_key_value(key);
    });
    if (r.p->row_flags.data == NULL)
        return 0;
    const bool nan = __syncthreads_or((flags & SY_ROW_NAN) != 0),
               inf = __syncthreads_or((flags & SY_ROW_INF) != 0);
    return (nan ? SY_ROW_NAN : 0u) | (inf ? SY_ROW_INF : 0u) | (empty ? SY_ROW_EMPTY : 0u);
}
