/*
 * Rows of sample that top-p alone cuts to a few hundred tokens, read once. While a row is read, each cell is weighed
 * roughly. The cells that have a large token, the heads, are read again and weighed exactly. What the others weigh is then
 * known within a bound, so the weight of the row is between two numbers, and the nucleus is that of the row if both lead to
 * the same one. It is exact where it is used at all; docs/design.md has the proof of the bound. All other rows take the general
 * steps, which weigh every token exactly.
 */
#ifndef SYC_SAMPLE_NUCLEUS_CUH
#define SYC_SAMPLE_NUCLEUS_CUH

#include "cuda/cluster.cuh"
#include "cuda/sample_launch.cuh"
#include "cuda/sample_stream.cuh"

/* ---- Rough weights -------------------------------------------------------------------------------------------------- */

/*
 * The rough weight of a logit x is 2^(x * unit - base), where unit is log2(e) / T and base is an integer near what one of the
 * first tokens of a thread has. It comes from the one approximate instruction of the library, whose error is documented and tested; the
 * distance of a sum of them from the weights of src/base/sample_math.h has a bound: docs/design.md. It holds for logits up to
 * MOST_OCTAVES above the base.
 */
enum { MOST_OCTAVES = 100, LEAST_OCTAVES = -99 }; /* of a logit above its base; of a base below the largest logit */
#define FARTHEST_BASE 4.0e6f
#define FARTHEST_TOP 3.9e6f /* of a row that is weighed roughly */

struct rough_scale {
    float unit, base; /* base: of the logits of a thread; NaN: there is none that will do */
};

static __device__ __forceinline__ struct rough_scale rough_scale_of(float inv_t)
{
    return {__fmul_rn(inv_t, __uint_as_float(0x3fb8aa3b)), 0.0f};
}

/* The integer nearest to a * b, where that is below 2^22. */
static __device__ __forceinline__ float nearest(float a, float b) { return __fsub_rn(__fmaf_rn(a, b, 12582912.0f), 12582912.0f); }

/* Puts the base near the larger logit of a word; false where that is too far from 0, as -inf is: what was summed so far is nothing beside
   a row that is weighed roughly at all. */
template <sy_type T> static __device__ __forceinline__ bool put_base(struct rough_scale &r, u32 word)
{
    const float largest = syi_key_value(syc_word_key<T>(word)), at = __fmul_rn(largest, r.unit);
    const bool near = at > -FARTHEST_BASE && at < FARTHEST_BASE;
    r.base = near ? nearest(largest, r.unit) : 0.0f;
    return near;
}

/* 2^a with a relative error of at most 2^-22, 0 where that is below 2^-126. */
static __device__ __forceinline__ float rough_power(float a)
{
#ifdef SWITCHYARD_CUDA_EMULATED
    return emulator::rough_power(a);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a));
    return y;
#endif
}

/* The sum of a vector; of a NaN it is NaN. */
template <sy_type T> static __device__ __forceinline__ float rough_sum(const struct rough_scale &r, uint4 x)
{
    float sum[2] = {0.0f, 0.0f};
    const auto add = [&](u32 i, u32 bits) {
        const float e = rough_power(__fmaf_rn(__uint_as_float(bits), r.unit, -r.base));
        sum[i % 2] = i < 2 ? e : __fadd_rn(sum[i % 2], e);
    };
    syc_each_of<T>(0, x, add);
    return __fadd_rn(sum[0], sum[1]);
}

/* 2^(from - to), to move a sum to another base; infinite where those are farther apart than `up` or LEAST_OCTAVES. */
static __device__ __forceinline__ float octaves_between(float from, float to, int up)
{
    const float octaves = __fsub_rn(from, to);
    return octaves >= (float)LEAST_OCTAVES && octaves <= (float)up ? __uint_as_float((u32)(127 + (int)octaves) << 23) : __uint_as_float(0x7f800000);
}

/* The weight of a cell relative to the base that its own largest logit has; infinite where that is too far from the base that its
   logits were weighed with. */
static __device__ __forceinline__ float cell_weight(const struct rough_scale &r, float sum, u32 key)
{
    const float most = syi_key_value(key);
    return __fmul_rn(sum, octaves_between(r.base, nearest(most, r.unit), MOST_OCTAVES));
}

/* What a thread knows of its cells: the largest keys, 0 where there is no token, and rough weights. */
struct rough_cells {
    u32 key[SYC_CELLS];
    float weight[SYC_CELLS];

    /* The next cell is the first one, which comes last as it is now: loops need not be unrolled. */
    __device__ __forceinline__ void turn(u32 key_now, float weight_now)
    {
#pragma unroll
        for (u32 c = 0; c + 1 < SYC_CELLS; c++) {
            key[c] = key[c + 1];
            weight[c] = weight[c + 1];
        }
        key[SYC_CELLS - 1] = key_now;
        weight[SYC_CELLS - 1] = weight_now;
    }
};

/* A vector joins a cell. */
template <sy_type T> static __device__ __forceinline__ void add_vector(struct rough_scale &r, bool &based, u32 &most, float &sum, uint4 x)
{
    most = fold<T>(most, x);
    if (!based) /* until there is a logit near enough */
        based = put_base<T>(r, most);
    sum = __fadd_rn(sum, rough_sum<T>(r, x));
}

/* y: the first group, of SYC_CELLS vectors; the next one is on its way while a group is weighed. All weights have one base, r.base. */
template <sy_type T, bool wanted> static __device__ __forceinline__ u32 read_rough(const struct syc_logits &l, const struct syc_vectors &v, struct rough_scale &r, uint4 *y, struct rough_cells &cells)
{
    const u32 step = SYC_SAMPLE_THREADS;
    u32 flags = 0;
    bool based = false;
#pragma unroll
    for (u32 c = 0; c < SYC_CELLS; c++) {
        cells.key[c] = syc_minus_inf_word<T>();
        cells.weight[c] = 0.0f;
    }
    const auto begin = [&] {
        if (!based) /* until there is a logit near enough */
            based = put_base<T>(r, syc_max_word<T>(syc_max_word<T>(vector_max<T>(y[0]), vector_max<T>(y[1])), syc_max_word<T>(vector_max<T>(y[2]), vector_max<T>(y[3]))));
    };
    const auto add = [&](u32 c, uint4 now) {
        cells.key[c] = fold<T>(cells.key[c], now);
        cells.weight[c] = __fadd_rn(cells.weight[c], rough_sum<T>(r, now));
        if (wanted)
            flags |= flags_of<T>(now);
    };
    u32 at = threadIdx.x + SYC_FEW;
    const uint4 *x = vectors_at<T>(l, v, at);
#pragma unroll 1
    for (; is_whole(l, v, at, step); at += SYC_FEW, x += SYC_FEW) {
        begin();
#pragma unroll
        for (u32 c = 0; c < SYC_CELLS; c++) {
            const uint4 now = y[c];
            y[c] = __ldcg(x + c * step);
            add(c, now);
        }
    }
#pragma unroll 1
    for (bool more = v.n > 0; more; at += SYC_FEW) { /* of a row with a mask, each group is like the last of others */
        more = at - threadIdx.x < v.n;
        begin();
#pragma unroll
        for (u32 c = 0; c < SYC_CELLS; c++) {
            const uint4 now = y[c];
            if (more)
                y[c] = vector_or_nothing<T>(l, v, at + c * step);
            add(c, now);
        }
    }
#pragma unroll
    for (u32 c = 0; c < SYC_CELLS; c++)
        cells.key[c] = threadIdx.x + c * step < v.n ? syc_word_key<T>(cells.key[c]) : 0;
    return flags;
}

/* A row that the blocks of a cluster read: each has as many cells, and the first gets them all; then, of a row that keeps many tokens, what each has sampled. */
union far_shared {
    u64 cell[SYC_FEW]; /* key and rough weight */
    u64 sampled[MOST_CLUSTER - 1][SYC_SAMPLE_THREADS + 2]; /* weights of two bins each; two sums of sample_light */
};

/* What the first block tells the others: at once what comes of the row, or to sample it, and then that. */
enum { FAR_WORDS = 3 };
struct far_gates {
    u64 cells, sampled, told[2];
    u64 word[2][FAR_WORDS];
    bool asked; /* in the first block: it told the others to sample */
};

/* Blocks of a cluster that do so, at most as many as a thread has cells, and what the first gets. */
static __device__ __forceinline__ u32 far_parts(u32 blocks) { return min(blocks, (u32)SYC_CELLS); }
static __device__ __forceinline__ u32 far_bytes(u32 blocks) { return (SYC_FEW - SYC_FEW / far_parts(blocks)) * 8; }

/* By one thread, ahead of syc_cluster_begin. */
static __device__ __forceinline__ void expect_far(struct far_gates *g, u32 rank, u32 blocks)
{
    syc_expect(&g->cells, rank == 0 ? far_bytes(blocks) : 0);
    syc_expect(&g->sampled, rank == 0 ? (blocks - 1) * (SYC_SAMPLE_THREADS + 2) * 8 : 0);
    for (u32 i = 0; i < 2; i++)
        syc_expect(&g->told[i], rank == 0 ? 0 : FAR_WORDS * 8);
    g->asked = false;
}

/* By the first block, behind a barrier. */
static __device__ __forceinline__ void tell_far(struct far_gates *g, u32 i, u32 blocks, u64 first, u64 second, u64 third)
{
    if (threadIdx.x == 0 || threadIdx.x >= blocks)
        return;
    syc_send(&g->word[i][0], threadIdx.x, first, &g->told[i]);
    syc_send(&g->word[i][1], threadIdx.x, second, &g->told[i]);
    syc_send(&g->word[i][2], threadIdx.x, third, &g->told[i]);
}

/* The first cell of a thread. */
static __device__ __forceinline__ u32 far_cell(u32 rank, u32 parts) { return rank * (SYC_CELLS / parts) * SYC_SAMPLE_THREADS + threadIdx.x; }

/* y: the first vectors of that cell; the next ones are on their way while some are weighed. */
template <sy_type T>
static __device__ __forceinline__ void read_far(const struct syc_logits &l, const struct syc_vectors &v, struct rough_scale r, uint4 *y, union far_shared *far, u64 *far_gate, u32 rank, u32 parts)
{
    const u32 turns = (v.n + SYC_FEW - 1) / SYC_FEW, end = far_cell(rank + 1, parts);
    u32 most = syc_minus_inf_word<T>();
    float sum = 0.0f;
    bool based = false;
#pragma unroll 1
    for (u32 cell = far_cell(rank, parts), turn = 0; cell < end;) {
        const uint4 now[SYC_CELLS] = {y[0], y[1], y[2], y[3]};
        const u32 own = cell;
        const bool last = turn + SYC_CELLS >= turns;
        turn = last ? 0 : turn + SYC_CELLS;
        cell += last ? SYC_SAMPLE_THREADS : 0;
        if (cell < end)
            load_group<T>(l, v, cell + turn * SYC_FEW, SYC_FEW, y);
#pragma unroll
        for (u32 c = 0; c < SYC_CELLS; c++)
            add_vector<T>(r, based, most, sum, now[c]);
        if (!last)
            continue;
        const u32 key = own < v.n ? syc_word_key<T>(most) : 0;
        const u64 both = (u64)__float_as_uint(cell_weight(r, sum, key)) << 32 | key;
        if (rank == 0)
            far->cell[own] = both;
        else
            syc_send(&far->cell[own], 0, both, far_gate);
        most = syc_minus_inf_word<T>();
        sum = 0.0f;
    }
}

static __device__ __forceinline__ void take_far(const union far_shared *far, u64 *far_gate, struct rough_cells &cells)
{
    syc_wait_at(far_gate);
    __syncthreads();
#pragma unroll
    for (u32 c = 0; c < SYC_CELLS; c++) {
        const u64 both = far->cell[c * SYC_SAMPLE_THREADS + threadIdx.x];
        cells.key[c] = (u32)both;
        cells.weight[c] = __uint_as_float((u32)(both >> 32));
    }
}

/*
 * How far a sum of rough weights may be from that of the weights it stands for, in units of 2^-40: relative errors in
 * units of 2^-24, a unit for each token, and two for each cell. See docs/design.md.
 */
static __host__ __device__ __forceinline__ u64 rough_error(u64 sum, u32 vocab)
{
    return sum == 0 ? 0 : ((sum >> 24) + 1) * (320 + vocab / 4096) + vocab + 2 * SYC_FEW;
}

/* Where the largest logit of a row is: its weight is 2^(top + rest). Weights with a base, times `from`, are relative to it. */
struct rough_top {
    float top, power; /* 2^-rest */

    __device__ __forceinline__ float from(float base) const { return __fmul_rn(octaves_between(base, top, 0), power); }
};

/* False where it is too far from 0. */
static __device__ __forceinline__ bool find_top(struct rough_top &t, float max, float unit)
{
    const float at = __fmul_rn(max, unit);
    t.top = nearest(max, unit);
    t.power = rough_power(-__fmaf_rn(max, unit, -t.top));
    return at > -FARTHEST_TOP && at < FARTHEST_TOP;
}

/* A weight that is known within the bound; else it is infinite or NaN. */
static __device__ __forceinline__ bool is_known(float weight) { return weight < __uint_as_float(0x7f800000); }

/* Whether a cell weighs anything. */
static __device__ __forceinline__ bool has_weight(u32 key, const struct syc_scale &scale)
{
    return key != 0 && __fmul_rn(__fsub_rn(syi_key_value(key), scale.max), scale.inv_t) >= -29.0f;
}

/* ---- Where the nucleus ends, about ---------------------------------------------------------------------------------- */

/*
 * A histogram of weights by octave, eight bins each: the largest token of each cell, and the rest of the cell as if a few
 * tokens shared it. All of this only steers; what is found is verified exactly.
 */
static __device__ __forceinline__ u32 octave_of(float weight)
{
    const u32 bits = __float_as_uint(fminf(weight, 1.0f)), bin = (0x3f800000u - bits) >> 20;
    return min(bin, (u32)NEAR - 1);
}

/* Where a bin is, so that the lanes of a warp read a run of them each without waiting for one another. */
static __device__ __forceinline__ u32 octave_place(u32 bin) { return bin % (NEAR / 32) * 32 + bin / (NEAR / 32); }

/* Weights become relative to the largest logit; cells without weight have no key then. `spread`: cells are relative to their own largest logit. */
static __device__ __forceinline__ void settle_cells(struct quick_shared *s, struct rough_cells &cells, const struct rough_top &top, const struct rough_scale &r, bool spread, const struct syc_scale &scale, float top_p)
{
    const float least = (1.0f - top_p) * (0.25f / SYC_FEW), few = 0.125f, bin_unit = 0x1p24f;
    float rest = 0.0f, tops = 0.0f, whole = 0.0f, from = top.from(r.base);
    const auto add = [&](float weight, float by) {
        if (weight >= least)
            syc_shared_add(&s->near.low[octave_place(octave_of(weight * by))], (u32)(fminf(weight, 64.0f) * bin_unit));
        else
            rest += weight;
    };
#pragma unroll 2
    for (u32 c = 0; c < SYC_CELLS; c++) {
        u32 key = cells.key[0];
        if (spread)
            from = top.from(nearest(syi_key_value(key), r.unit));
        const float weight = __fmul_rn(cells.weight[0], from);
        if (has_weight(key, scale)) {
            const float largest = rough_power(__fmul_rn(__fsub_rn(syi_key_value(key), scale.max), r.unit)), others = is_known(weight) ? fmaxf(weight - largest, 0.0f) : 0.0f;
            tops += largest;
            whole += largest + others;
            add(largest, 1.0f);
            add(others, few);
        } else
            key = 0;
        cells.turn(key, weight);
    }
    const u32 all = __reduce_add_sync(SYC_ALL_LANES, (u32)(fminf(rest, 4.0f) * bin_unit)), all_tops = __reduce_add_sync(SYC_ALL_LANES, (u32)(tops * 0x1p18f)),
              of_all = __reduce_add_sync(SYC_ALL_LANES, (u32)(fminf(whole, 0x1p12f) * 0x1p10f));
    if (syc_lane() == 0) {
        syc_shared_add(&s->near.high[0], all);
        syc_shared_add(&s->near.high[1], all_tops >> 8);
        syc_shared_add(&s->near.high[2], of_all);
    }
}

/* Too many tokens share what top-p keeps: the largest of all cells together have less than half of it. */
static __device__ __forceinline__ bool is_wide(const struct quick_shared *s, float top_p) { return 2.0f * (float)s->near.high[1] < top_p * (float)s->near.high[2]; }

/* The bin at which the sum from the top reaches a share of all, to s->bin; ~0: not known. By one warp. */
static __device__ __forceinline__ void find_octave(struct quick_shared *s, float share)
{
    constexpr u32 each = NEAR / 32;
    const u32 lane = (u32)syc_lane();
    u32 own = 0;
#pragma unroll
    for (u32 i = 0; i < each; i++)
        own += s->near.low[i * 32 + lane];
    const u32 upto = syc_warp_prefix(own), total = __shfl_sync(SYC_ALL_LANES, upto, 31) + s->near.high[0];
    const u32 target = (u32)min((u64)(share * (float)total), (u64)0xffffff00u) + 1;
    const u32 reached = __ballot_sync(SYC_ALL_LANES, upto >= target);
    const u32 who = reached != 0 ? (u32)__ffs((int)reached) - 1 : 0, before = __shfl_sync(SYC_ALL_LANES, upto - own, (int)who);
    const u32 fine = __ballot_sync(SYC_ALL_LANES, before + syc_warp_prefix(lane < each ? s->near.low[lane * 32 + who] : 0u) >= target);
    if (lane == 0)
        s->bin = reached != 0 && fine != 0 ? who * each + (u32)__ffs((int)fine) - 1 : ~0u;
}

/* A key that tokens of that bin and above reach, with so many bins below it. The logarithm is taken by its linear pieces,
   which are below it. */
static __device__ __forceinline__ u32 octave_key(const struct syc_scale &scale, u32 key, u32 bin)
{
    const float t = (float)(bin + 1) * (-0.693147f / 8);
    const float value = __fadd_rn(scale.max, __fdiv_rn(t, scale.inv_t));
    return value == value ? min(key, max(syi_value_key(value), SYI_KEY_MINUS_INF)) : SYI_KEY_MINUS_INF;
}

/* ---- The row -------------------------------------------------------------------------------------------------------- */

/* What the heads weigh, as far as this thread reads them; lists their tokens that reach a key, with weights. Those in no vector count. Threads take words
   in turns, so that all have something to do where heads are few. */
template <sy_type T>
static __device__ __forceinline__ u64 weigh_heads(struct quick_shared *s, const struct syc_logits &row, const struct syc_scale &scale, u32 least)
{
    constexpr u32 each = T == SY_TYPE_F32 ? 1 : 2, words = 4, ahead = 4; /* tokens of a word, words of a vector, and those on their way at once */
    const struct syc_logits l = row;
    const struct syc_vectors v = syc_vectors_of<T>(l);
    const u32 turns = (v.n + SYC_FEW - 1) / SYC_FEW, bits = turns > 1 ? 32 - (u32)__clz((int)turns - 1) : 0; /* a head has 1 << bits vectors */
    const u32 all = s->n_heads * words << bits;
    const float floor = syi_key_value(least);
    u64 sum = 0;
    const auto look = [&](u32 i, u32 token_bits) {
        const u64 weight = syc_weight_of_value(scale, __uint_as_float(token_bits));
        sum += weight;
        if (!(__uint_as_float(token_bits) >= floor))
            return;
        const u32 place = syc_shared_add(&s->n_items, 1u);
        if (place < QUICK) {
            s->item[place] = syc_rank_of(syi_key(token_bits), i);
            s->weight[place] = weight;
        }
    };
#pragma unroll 1
    for (u32 item = threadIdx.x; item < all; item += ahead * SYC_SAMPLE_THREADS) {
        u32 x[ahead], first[ahead];
#pragma unroll
        for (u32 k = 0; k < ahead; k++) {
            const u32 one = item + k * SYC_SAMPLE_THREADS, vector = one / words, at = (vector & ((1u << bits) - 1)) * SYC_FEW + (one < all ? s->head[vector >> bits] : v.n);
            first[k] = v.head + (at * words + one % words) * each;
            x[k] = at < v.n ? syc_word_at<T>(l, first[k]) : syc_minus_inf_word<T>();
        }
#pragma unroll
        for (u32 k = 0; k < ahead && item + k * SYC_SAMPLE_THREADS < all; k++)
#pragma unroll
            for (u32 j = 0; j < each; j++)
                look(first[k] + j, T == SY_TYPE_F32 ? x[k] : syc_wide<T>(x[k] >> 16 * j & 0xffffu));
    }
    syc_each_rest<T>(l, look);
    return sum;
}

/*
 * The nucleus of the listed tokens, and its results, where nothing but top-p cuts them and the token is the first or drawn by weight:
 * each token is compared with all others, by a team of lanes, which gives its rank and what comes before it in the order, then, for a
 * draw, what comes before it by index. Returns false when the two bounds of the mass do not lead to the same tokens.
 */
static __device__ __forceinline__ bool finish_nucleus(const struct syi_sample_plan &p, struct quick_shared *s, const struct syc_scale &scale, const u64 *mass, u32 flags, int64_t b)
{
    constexpr int above = 50; /* the rank, above QUICK weights of at most 2^40 */
    const u32 n = s->n_items, bits = team_bits(n), i = threadIdx.x >> bits, in_team = threadIdx.x & ((1u << bits) - 1);
    const float top_p = s->params.top_p;
    const u64 item = i < n ? s->item[i] : 0, weight = i < n ? s->weight[i] : 0;
    const u64 before = team_sum<u64>(n, bits, i, in_team, [&](u32 j) { return s->item[j] > item ? s->weight[j] + ((u64)1 << above) : (u64)0; });
    const u64 least = syi_mass_target(top_p, mass[0]), enough = syi_mass_target(top_p, mass[1]);
    const u64 sum = before & (((u64)1 << above) - 1);
    const u32 rank = (u32)(before >> above);
    const bool speaks = i < n && in_team == 0;
    if (speaks && sum < least && least <= sum + weight)
        s->part[2][0] = rank;
    if (speaks && sum < enough && enough <= sum + weight) {
        s->part[2][1] = rank;
        s->total = sum + weight;
    }
    __syncthreads();
    const u32 last = s->part[2][1];
    if (s->part[2][0] != last)
        return false;
    bool chosen = speaks && rank == 0;
    if (!s->params.greedy) {
        if (speaks)
            s->sorted[i] = rank <= last ? weight : 0;
        __syncthreads();
        const u64 target = syi_share_of(s->uniform, s->total);
        const u64 lower = team_sum<u64>(n, bits, i, in_team, [&](u32 j) { return (u32)s->item[j] > (u32)item ? s->sorted[j] : (u64)0; });
        chosen = speaks && rank <= last && lower <= target && target < lower + weight;
    }
    if (chosen)
        put_results(p, b, (int64_t)syc_token_of(item), flags, last + 1, p.logprob.data == NULL || s->params.cold ? 0.0f : log_share(scale, syc_key_of(item), s->total));
    return true;
}

/* Whether a row is one of those. */
static __device__ __forceinline__ bool is_nucleus(const struct syi_sample_plan &p, const struct syc_params &a)
{
    const bool first = a.greedy && (p.logprob.data == NULL || a.cold) && p.kept.data == NULL; /* nothing but the first token is wanted */
    return a.k == 0 && !a.one && a.top_p < 1.0f && !first;
}

/* The tokens that a nucleus may have are listed, and the weight of the row is known to be from mass[0] to mass[1]. False: they
   are too many. `margin` is how far below its end tokens are listed. */
template <sy_type T>
static __device__ __forceinline__ bool list_nucleus(struct quick_shared *s, const struct syc_logits &l, const struct syc_scale &scale, struct rough_cells &cells, u32 key, u32 margin, u64 *mass)
{
    const u32 least = octave_key(scale, key, s->bin + margin);
    u32 mask = 0;
    u64 rough = 0;
#pragma unroll 1
    for (u32 c = 0; c < SYC_CELLS; c++) {
        const u32 own = cells.key[0];
        const float weight = cells.weight[0];
        const bool head = own != 0 && (own >= least || !is_known(weight));
        mask |= head ? 1u << c : 0;
        rough += own != 0 && !head ? __float2ull_rn(weight * 0x1p40f) + 1 : 0;
        cells.turn(own, weight);
    }
    if (mask != 0)
        for (u32 slot = syc_shared_add(&s->n_heads, (u32)__popc(mask)); mask != 0; mask &= mask - 1, slot++)
            s->head[slot] = (u16)(((u32)__ffs((int)mask) - 1) * SYC_SAMPLE_THREADS + threadIdx.x);
    __syncthreads();
    if (s->n_heads > QUICK)
        return false;
    const u64 exact = syc_warp_sum(weigh_heads<T>(s, l, scale, least));
    rough = syc_warp_sum(rough);
    if (syc_lane() == 0) {
        s->wide[syc_warp()] = exact;
        s->rough[syc_warp()] = rough;
    }
    __syncthreads();
    const u32 w = (u32)syc_lane() % SYC_BLOCK_WARPS;
    const u64 all_exact = syc_warp_sum(syc_lane() < SYC_BLOCK_WARPS ? s->wide[w] : 0),
              all_rough = syc_warp_sum(syc_lane() < SYC_BLOCK_WARPS ? s->rough[w] : 0), error = rough_error(all_rough, l.vocab);
    mass[0] = all_exact + (all_rough > error ? all_rough - error : 0);
    mass[1] = all_exact + all_rough + error;
    return s->n_items <= QUICK;
}

/*
 * Where a large nucleus ends, about: the weights of all heavy tokens, and of a sample of the others, by distance from the largest. `slack` is how
 * far the sample may mislead, and small enough that there is room for the tokens within it. Only steers.
 */
enum { EDGE_BINS = 2 * NEAR, EDGE_PER_UNIT = 64 };

/* What is sampled of a row of weight `mass`, in 2^-20: `each` vectors by a thread of each block. Tokens from `heavy` on are not. */
struct edge_sample {
    u32 each;
    float heavy, one, ratio; /* the second: a bin's unit; the last: vectors for each that is taken */
};

static __device__ __forceinline__ struct edge_sample edge_sample_of(u32 vectors, u64 mass, u32 parts)
{
    const u32 taken = max(min(vectors / (5 * SYC_SAMPLE_THREADS), 16u), 2u), each = (taken + parts - 1) / parts;
    const float about = fmaxf((float)mass * 0x1p-20f, 1.0f);
    return {each, about * (1.0f / 4096), 0x1p28f / about, (float)vectors / (float)max(min(vectors, each * parts * SYC_SAMPLE_THREADS), 1u)};
}

static __device__ __forceinline__ u64 in_fixed(float x, float one) { return (u64)(fminf(x, 0x1p20f) * one); }

/* A rough weight that only steers; of NaN it is 2^-100. */
static __device__ __forceinline__ float steering_weight(const struct syc_scale &scale, float unit, float x)
{
    return rough_power(fmaxf(__fmul_rn(__fsub_rn(x, scale.max), unit), -100.0f));
}

static __device__ __forceinline__ void add_to_bin(struct quick_shared *s, const struct syc_scale &scale, float x, float weight)
{
    const float t = fmaxf(__fmul_rn(__fsub_rn(x, scale.max), scale.inv_t), -(float)FARTHEST);
    syc_shared_add(&s->near.low[(u32)fminf(t * -(float)EDGE_PER_UNIT, (float)(EDGE_BINS - 1))], (u32)weight);
}

/* Four vectors of a sample, all over the row, from the i-th of each thread on. */
template <sy_type T> static __device__ __forceinline__ void load_sample(const struct syc_logits &l, const struct edge_sample &sample, u32 rank, u32 parts, u32 i, uint4 *x)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const struct syc_vectors v = syc_vectors_of<T>(l);
    const u32 apart = (u32)(sample.ratio * 256.0f), whole = apart >> 8, nothing = syc_minus_inf_word<T>(); /* vectors, and 8 bits of a fraction */
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        const u32 one = ((i + k) * parts + rank) * SYC_SAMPLE_THREADS + threadIdx.x, at = (u32)((u64)one * apart >> 8) + __umulhi(one * 0x9e3779b1u, whole); /* at no fixed distance */
        x[k] = i + k < sample.each && at < v.n ? syc_vector_at<T>(l, v.head + at * n) : make_uint4(nothing, nothing, nothing, nothing);
    }
}

/* Light tokens of a sample to the bins of this block; their sums in s->wide and s->rough, by warps. x: the first vectors. */
template <sy_type T> static __device__ __forceinline__ void sample_light(struct quick_shared *s, const struct syc_logits &l, const struct syc_scale &scale, const struct edge_sample &sample, u32 rank, u32 parts, uint4 *x)
{
    const float unit = rough_scale_of(scale.inv_t).unit, by = sample.ratio * sample.one;
    float light = 0.0f, squares = 0.0f;
    const auto look = [&](u32, u32 bits) {
        const float x = __uint_as_float(bits), weight = steering_weight(scale, unit, x);
        const bool is = weight < sample.heavy && weight > 0x1p-60f;
        if (is)
            add_to_bin(s, scale, x, weight * by);
        light += is ? weight : 0.0f;
        squares += is ? weight * weight : 0.0f;
    };
#pragma unroll 1
    for (u32 i = 0;;) {
#pragma unroll 1
        for (u32 k = 0; k < 4 && i + k < sample.each; k++) {
            syc_each_of<T>(0, x[0], look);
            x[0] = x[1];
            x[1] = x[2];
            x[2] = x[3];
        }
        i += 4;
        if (i >= sample.each)
            break;
        load_sample<T>(l, sample, rank, parts, i, x);
    }
    const u64 own_light = syc_warp_sum(in_fixed(light, 0x1p30f)), own_squares = syc_warp_sum(in_fixed(squares, 0x1p30f));
    if (syc_lane() == 0) {
        s->wide[syc_warp()] = own_light;
        s->rough[syc_warp()] = own_squares;
    }
    __syncthreads();
}

/* Of the warps of a block, known to all. */
static __device__ __forceinline__ u64 sum_of_warps(const u64 *part) { return syc_warp_sum(syc_lane() < SYC_BLOCK_WARPS ? part[syc_lane()] : 0); }

/* The part of another block than the first, once it was told to. */
template <sy_type T> SYC_COLD void sample_far(const struct syi_sample_plan &p, struct quick_shared *s, union far_shared *far, struct far_gates *g, u32 rank, u32 parts, int64_t b)
{
    const struct syc_logits l = {syc_row(p.logits, b), p.allow_bits.data != NULL ? syc_row(p.allow_bits, b) : NULL, (u32)p.vocab};
    const struct syc_scale scale = {syi_key_value((u32)g->word[0][0]), __uint_as_float((u32)(g->word[0][2] >> 32)), false};
    const u64 mass = g->word[0][1];
    const struct edge_sample sample = edge_sample_of(syc_vectors_of<T>(l).n, mass, parts);
    u32 *const bin = s->near.low;
    uint4 x[4];
    load_sample<T>(l, sample, rank, parts, 0, x);
    bin[threadIdx.x] = bin[threadIdx.x + SYC_SAMPLE_THREADS] = 0;
    __syncthreads();
    sample_light<T>(s, l, scale, sample, rank, parts, x);
    u64 *const to = far->sampled[rank - 1];
    syc_send(&to[threadIdx.x], 0, bin[2 * threadIdx.x] | (u64)bin[2 * threadIdx.x + 1] << 32, &g->sampled);
    if (syc_warp() < 2) {
        const u64 sum = sum_of_warps(syc_warp() == 0 ? s->wide : s->rough);
        if (syc_lane() == 0)
            syc_send(&to[SYC_SAMPLE_THREADS + syc_warp()], 0, sum, &g->sampled);
    }
}

/* In the first block, or the only one. */
template <sy_type T>
SYC_COLD struct wide_edge sample_edge(struct quick_shared *s, union far_shared *far, struct far_gates *g, u32 parts, struct syc_logits l, struct syc_scale scale, u32 top, uint4 keys, float top_p)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const struct syc_vectors v = syc_vectors_of<T>(l);
    const u32 turns = (v.n + SYC_FEW - 1) / SYC_FEW;
    const float unit = rough_scale_of(scale.inv_t).unit;
    u32 *const bin = s->near.low, *const answer = s->part[0], *const n_heads = &s->part[3][0];
    static_assert(sizeof s->near == EDGE_BINS * sizeof(u32), "one array");
    const u32 key[SYC_CELLS] = {keys.x, keys.y, keys.z, keys.w};
    const u64 mass = (u64)s->near.high[2] << 10; /* of settle_cells */
    if (parts > 1)
        tell_far(g, 0, parts, top, mass, QUICK_SAMPLE | (u64)__float_as_uint(scale.inv_t) << 32);
    const struct edge_sample sample = edge_sample_of(v.n, mass, parts);
    uint4 light_vectors[4]; /* on their way while heavy tokens are looked at */
    load_sample<T>(l, sample, 0, parts, 0, light_vectors);
    __syncthreads();
    bin[threadIdx.x] = bin[threadIdx.x + SYC_SAMPLE_THREADS] = 0;
    if (threadIdx.x == 0) {
        answer[0] = 0;
        answer[1] = EDGE_BINS - 1;
        if (parts > 1)
            g->asked = true;
    }
#pragma unroll
    for (u32 c = 0; c < SYC_CELLS; c++)
        if (key[c] != 0 && steering_weight(scale, unit, syi_key_value(key[c])) >= sample.heavy)
            s->head[syc_shared_add(n_heads, 1u)] = (u16)(c * SYC_SAMPLE_THREADS + threadIdx.x);
    __syncthreads();
    const u32 heads = *n_heads;
#pragma unroll 1
    for (u32 item = threadIdx.x; item < heads * turns; item += SYC_SAMPLE_THREADS) {
        const u32 turn = item / heads, at = turn * SYC_FEW + s->head[item - turn * heads];
        const auto look = [&](u32, u32 bits) {
            const float x = __uint_as_float(bits), weight = steering_weight(scale, unit, x);
            if (weight >= sample.heavy)
                add_to_bin(s, scale, x, weight * sample.one);
        };
        if (at < v.n)
            syc_each_of<T>(0, syc_vector_at<T>(l, v.head + at * n), look);
    }
    sample_light<T>(s, l, scale, sample, 0, parts, light_vectors);
    u64 light = sum_of_warps(s->wide), squares = sum_of_warps(s->rough), first = bin[2 * threadIdx.x], second = bin[2 * threadIdx.x + 1];
    if (parts > 1) {
        syc_wait_at(&g->sampled);
#pragma unroll 1
        for (u32 r = 0; r + 1 < parts; r++) {
            const u64 *const from = far->sampled[r];
            first += (u32)from[threadIdx.x];
            second += from[threadIdx.x] >> 32;
            light += from[SYC_SAMPLE_THREADS];
            squares += from[SYC_SAMPLE_THREADS + 1];
        }
    }
    u64 total;
    const u64 before = syc_block_before(first + second, s->wide, &total);
    const float all_light = (float)light * 0x1p-30f, deviation = all_light > 0.0f ? sqrtf((float)squares * 0x1p-30f) / all_light : 0.0f;
    const float share = fminf(sample.one * sample.ratio * all_light / (float)max(total, (u64)1), 1.0f); /* of the light tokens */
    const float within = fminf(fmaxf((top_p - (1.0f - share)) / fmaxf(share, 1e-6f), 0.05f), 0.95f);
    const float slack = 0.001f + 1.75f * deviation * (share * sqrtf(within * (1.0f - within)) + (1.0f - share) * (1.0f - top_p));
    const float from = (top_p - slack) * (float)total, to = (top_p + slack) * (float)total;
    const auto look = [&](u32 at, u64 low, u64 high) {
        if ((float)low < from && from <= (float)high)
            answer[0] = at;
        if ((float)low < to && to <= (float)high)
            answer[1] = at;
    };
    look(2 * threadIdx.x, before, before + first);
    look(2 * threadIdx.x + 1, before + first, before + first + second);
    __syncthreads();
    const float infinity = __uint_as_float(0x7f800000), bins = __fmul_rn((float)EDGE_PER_UNIT, scale.inv_t);
    return {0, answer[0] == 0 ? infinity : scale.max - (float)answer[0] / bins,
            answer[1] == EDGE_BINS - 1 ? scale.max - (float)FARTHEST / scale.inv_t : scale.max - (float)(answer[1] + 1) / bins, 0, 0.0f, 0.0f, 0};
}

/* As quick_row, for the rows that are a nucleus by their parameters. `plain`: see is_plain_call; finish_nucleus can finish all rows. `parts` blocks read a row, of which the first does the rest;
   the others are done. All have begun their cluster, and expect_far has run. Thread 0 stores the edge of a row that is QUICK_EDGE. */
template <sy_type T, bool plain = false>
static __device__ __forceinline__ enum quick nucleus_row(const struct syi_sample_plan &p, struct quick_shared *s, union far_shared *far, struct far_gates *g, u32 rank, u32 parts, int64_t b,
                                                         const struct syc_gate *gate, struct wide_edge *edge)
{
    const u32 closed = load_closed(gate, 64); /* a thread without duties: the predicate of another would be kept, in local memory, which is read before the row */
    const struct syc_logits l = {syc_row(p.logits, b), !plain && p.allow_bits.data != NULL ? syc_row(p.allow_bits, b) : NULL, (u32)p.vocab};
    const struct syc_vectors v = syc_vectors_of<T>(l);
    uint4 y[SYC_CELLS];
    if (parts == 1) /* while parameters come */
        load_group<T>(l, v, threadIdx.x, SYC_SAMPLE_THREADS, y);
    else if (rank < far_parts(parts))
        load_group<T>(l, v, far_cell(rank, far_parts(parts)), SYC_FEW, y);
    const struct syc_params loaded = load_params(p, b);
    const bool finishes = plain || ((loaded.greedy || p.noise == SY_NOISE_CDF) && loaded.min_p == 0.0f && p.args.ties != SY_TIES_ALL); /* by finish_nucleus */
    const bool is = is_nucleus(p, loaded); /* not in registers while the row is read: s->params has them */
    struct rough_scale rough = rough_scale_of(loaded.inv_t);
    struct rough_top top;
    struct rough_cells cells;
    u64 mass[2];
    u32 kept, flags = 0;
    if (parts > 1)
        syc_cluster_ready();
    if (rank != 0) {
        if (is && rank < far_parts(parts))
            read_far<T>(l, v, rough, y, far, &g->cells, rank, far_parts(parts));
        return QUICK_DONE;
    }
    if (threadIdx.x == 0) {
        s->params = loaded;
        s->n_items = s->n_heads = s->part[3][0] = 0; /* the last: of sample_edge */
        s->part[2][0] = UNDECIDED;
        s->part[2][1] = UNDECIDED - 1; /* differ, until both are found */
    }
    s->near.low[threadIdx.x] = s->near.high[threadIdx.x] = 0;
    if (!is)
        return __syncthreads_or(closed != 0) != 0 ? QUICK_CLOSED : QUICK_NO;
    if (parts > 1) {
        read_far<T>(l, v, rough, y, far, &g->cells, 0, far_parts(parts));
        take_far(far, &g->cells, cells);
    } else if (!plain && p.row_flags.data != NULL)
        flags = read_rough<T, true>(l, v, rough, y, cells);
    else
        flags = read_rough<T, false>(l, v, rough, y, cells);
    u32 key = max(max(cells.key[0], cells.key[1]), max(cells.key[2], cells.key[3]));
    syc_each_rest<T>(l, [&](u32, u32 bits) {
        key = max(key, syi_key(bits));
        flags |= syi_key_flags(bits);
    });
    key = __reduce_max_sync(SYC_ALL_LANES, key);
    flags = any_flags(flags);
    if (syc_lane() == 0) {
        s->part[0][syc_warp()] = key;
        s->part[1][syc_warp()] = flags;
    }
    if (__syncthreads_or(closed != 0) != 0)
        return QUICK_CLOSED;
    key = of_warps(s->part[0]);
    flags = any_flags(s->part[1][syc_lane() % SYC_BLOCK_WARPS]);
    if (key == SYI_KEY_MINUS_INF || key == SYI_KEY_MOST)
        return QUICK_WIDE;
    const struct syc_params &a = s->params;
    const struct syc_scale scale = {syi_key_value(key), a.inv_t, false};
    if (!find_top(top, scale.max, rough.unit))
        return QUICK_NO;
    settle_cells(s, cells, top, rough, parts > 1, scale, a.top_p);
    __syncthreads();
    if (syc_warp() == 0)
        find_octave(s, a.top_p);
    else if (threadIdx.x == SYC_SAMPLE_THREADS - 1)
        make_uniform(p, s);
    __syncthreads();
    const bool draws = !a.greedy && p.noise == SY_NOISE_CDF && a.min_p == 0.0f && edge != NULL; /* wide_row can */
    const auto tell = [&](struct wide_edge found) {
        if (threadIdx.x == 0)
            *edge = {key, found.certain, found.least, flags, a.inv_t, a.top_p, s->uniform};
        return QUICK_EDGE;
    };
    const bool listed = s->bin != ~0u && !is_wide(s, a.top_p) && list_nucleus<T>(s, l, scale, cells, key, 4, mass);
    if (!listed)
        ;
    else if (finishes && (plain || s->more == NULL)) {
        if (finish_nucleus(p, s, scale, mass, flags, b))
            return QUICK_DONE;
    } else {
        kept = finish_list(p, s, scale, key, 0, mass[0], mass[1], b, true);
        if (kept != UNDECIDED) {
            if (threadIdx.x == 0)
                put_results(p, b, (int64_t)s->token, flags, kept, p.logprob.data == NULL || a.cold ? 0.0f : log_share(scale, s->key, s->total));
            return QUICK_DONE;
        }
    }
    if (!draws)
        return QUICK_WIDE;
    if (listed && s->part[2][1] < QUICK) /* they are enough, but the bounds differ */
        return tell({0, __uint_as_float(0x7f800000), syi_key_value(octave_key(scale, key, s->bin + 4)), 0, 0.0f, 0.0f, 0});
    return tell(sample_edge<T>(s, far, g, parts, l, scale, key, make_uint4(cells.key[0], cells.key[1], cells.key[2], cells.key[3]), a.top_p));
}

#endif
