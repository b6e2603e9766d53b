/*
 * Rows of sample that top-p alone cuts to a few hundred tokens, read once. While a row is read, each cell is weighed
 * roughly. The cells that have a large token, the heads, are read again and weighed exactly. What the others weigh is then
 * known within a bound, so the weight of the row lies between two numbers, and the nucleus is that of the row if both lead to
 * the same one. It is exact where it is used at all; docs/design.md has the proof of the bound. All other rows take the general
 * steps, which weigh every token exactly.
 */
#ifndef SYC_SAMPLE_NUCLEUS_CUH
#define SYC_SAMPLE_NUCLEUS_CUH

#include "cuda/cluster.cuh"
#include "cuda/sample_stream.cuh"

/* ---- Rough weights -------------------------------------------------------------------------------------------------- */

/*
 * The rough weight of a logit x is 2^(x * unit - base), where unit is log2(e) / T and base is an integer near what one of the
 * first tokens of a thread has. With N the integer nearest to x * unit, 2^(x * unit - N) is a polynomial and N - base goes to the
 * exponent. Each step is an IEEE operation, so that all devices have the same rough weights, and their distance from the
 * weights of src/base/sample_math.h has a bound: docs/design.md. It holds for logits up to MOST_OCTAVES above the base; those below
 * `low` count as if they had it, which is next to nothing.
 */
enum { MOST_OCTAVES = 100, LEAST_OCTAVES = -100 }; /* in octaves: of a logit above its base; of a base below the largest logit */

struct rough_scale {
    float unit, per_unit; /* and 1 / unit */
    float base, shift;    /* of the logits of a thread; 1.5 * 2^23 - base */
    u32 low;              /* a word of the least logit */
};

static __device__ __forceinline__ struct rough_scale rough_scale_of(float inv_t)
{
    const float unit = __fmul_rn(inv_t, __uint_as_float(0x3fb8aa3b));
    return {unit, __fdiv_rn(1.0f, unit), 0.0f, 0.0f, 0};
}

/* The integer nearest to a * b, where that is below 2^22. */
static __device__ __forceinline__ float nearest(float a, float b) { return __fsub_rn(__fmaf_rn(a, b, 12582912.0f), 12582912.0f); }

/* Puts the base near the larger logit of a word. NaN: there is none that will do. */
template <sy_type T> static __device__ __forceinline__ void put_base(struct rough_scale &r, u32 word)
{
    const float largest = syi_key_value(syc_word_key<T>(word)), much = 4e6f;
    const float at = __fmul_rn(largest, r.unit), base = at > -much && at < much ? nearest(largest, r.unit) : 0.0f;
    const float low = __fmul_rn(base - 84.0f, r.per_unit);
    const u32 half = T == SY_TYPE_F16 ? syc_to_f16(low) : T == SY_TYPE_BF16 ? __float_as_uint(low) >> 16 : 0;
    r.low = T == SY_TYPE_F32 ? __float_as_uint(low) : half | half << 16;
    const float octaves = __fmaf_rn(T == SY_TYPE_F32 ? low : __uint_as_float(syc_wide<T>(half)), r.unit, -base);
    r.base = octaves > -118.0f && octaves < -50.0f ? base : __uint_as_float(0x7fffffff);
    r.shift = 12582912.0f - base;
}

/* 2^r for |r| <= 1/2, with a relative error of at most 46 * 2^-24. */
static __device__ __forceinline__ float rough_exp2(float r)
{
    float y = __uint_as_float(0x3c1ccbeb);
    y = __fmaf_rn(y, r, __uint_as_float(0x3d650a20));
    y = __fmaf_rn(y, r, __uint_as_float(0x3e76036d));
    y = __fmaf_rn(y, r, __uint_as_float(0x3f31706e));
    return __fmaf_rn(y, r, __uint_as_float(0x3f7ffff4));
}

static __device__ __forceinline__ float rough_weight(const struct rough_scale &r, float x)
{
    const float shifted = __fmaf_rn(x, r.unit, r.shift), n = __fsub_rn(shifted, r.shift);
    const float y = rough_exp2(__fmaf_rn(x, r.unit, -n));
    return __uint_as_float(__float_as_uint(y) + (__float_as_uint(shifted) << 23));
}

/* The sum of a vector. */
template <sy_type T> static __device__ __forceinline__ float rough_sum(const struct rough_scale &r, uint4 x)
{
    const uint4 v = make_uint4(syc_max_word<T>(x.x, r.low), syc_max_word<T>(x.y, r.low), syc_max_word<T>(x.z, r.low), syc_max_word<T>(x.w, r.low));
    float sum[2] = {0.0f, 0.0f};
    const auto add = [&](u32 i, u32 bits) {
        const float e = rough_weight(r, __uint_as_float(bits));
        sum[i % 2] = i < 2 ? e : __fadd_rn(sum[i % 2], e);
    };
    syc_each_of<T>(0, v, add);
    return __fadd_rn(sum[0], sum[1]);
}

/* A sum relative to another base, which is not below it; infinite where that is not near enough. */
static __device__ __forceinline__ float move_base(float sum, float from, float to)
{
    const float octaves = __fsub_rn(from, to);
    return octaves >= (float)LEAST_OCTAVES && octaves <= 1.0f ? __fmul_rn(sum, __uint_as_float((u32)(127 + (int)octaves) << 23)) : __uint_as_float(0x7f800000);
}

/* The weight of a cell relative to the base that its own largest logit has; infinite where that is too far from the base that its
   logits were weighed with. */
static __device__ __forceinline__ float cell_weight(const struct rough_scale &r, float sum, u32 key)
{
    const float most = syi_key_value(key);
    return __fmaf_rn(most, r.unit, -r.base) <= (float)MOST_OCTAVES ? move_base(sum, r.base, nearest(most, r.unit)) : __uint_as_float(0x7f800000);
}

/* What a thread knows of its cells: the largest keys, 0 where there is no token, and rough weights. */
struct rough_cells {
    u32 key[SYC_CELLS];
    float weight[SYC_CELLS];
};

/* A vector joins a cell. */
template <sy_type T> static __device__ __forceinline__ void add_vector(struct rough_scale &r, bool &based, u32 &most, float &sum, uint4 x)
{
    most = fold<T>(most, x);
    if (!based) { /* until there is a logit above -inf */
        put_base<T>(r, most);
        based = most != syc_minus_inf_word<T>();
    }
    sum = __fadd_rn(sum, rough_sum<T>(r, x));
}

template <sy_type T, bool wanted> static __device__ __forceinline__ u32 read_rough(const struct syc_logits &l, struct rough_scale r, struct rough_cells &cells)
{
    const u32 vectors = syc_vectors_of<T>(l).n;
    u32 flags = 0;
    bool based = false;
#pragma unroll
    for (u32 c = 0; c < SYC_CELLS; c++) {
        cells.key[c] = syc_minus_inf_word<T>();
        cells.weight[c] = 0.0f;
    }
    each_vector<T>(l, threadIdx.x, blockDim.x, [&](u32 c, uint4 x) {
        add_vector<T>(r, based, cells.key[c], cells.weight[c], x);
        if (wanted)
            flags |= flags_of<T>(x);
    });
#pragma unroll
    for (u32 c = 0; c < SYC_CELLS; c++) {
        cells.key[c] = threadIdx.x + c * blockDim.x < vectors ? syc_word_key<T>(cells.key[c]) : 0;
        cells.weight[c] = cell_weight(r, cells.weight[c], cells.key[c]);
    }
    return flags;
}

/* A row that the blocks of a cluster read: each has as many cells, and the first gets them all. */
struct far_cells {
    u64 gate;
    u64 cell[SYC_FEW]; /* key and rough weight */
};

enum { MOST_FAR = SYC_CELLS }; /* blocks of a cluster: then each thread has a cell */

static __device__ __forceinline__ void expect_far(struct far_cells *far, u32 rank, u32 parts)
{
    if (threadIdx.x == 0)
        syc_expect(&far->gate, rank == 0 ? (SYC_FEW - SYC_FEW / parts) * 8 : 0);
    syc_cluster_begin();
}

template <sy_type T> static __device__ __forceinline__ void read_far(const struct syc_logits &l, struct rough_scale r, struct far_cells *far, u32 rank, u32 parts)
{
    const u32 vectors = syc_vectors_of<T>(l).n, own = SYC_CELLS / parts;
    bool based = false;
    syc_cluster_ready();
#pragma unroll 1
    for (u32 c = rank * own; c < (rank + 1) * own; c++) {
        const u32 cell = c * SYC_SAMPLE_THREADS + threadIdx.x;
        u32 most = syc_minus_inf_word<T>();
        float sum = 0.0f;
        each_vector<T>(l, cell, SYC_FEW, [&](u32, uint4 x) { add_vector<T>(r, based, most, sum, x); });
        const u32 key = cell < vectors ? syc_word_key<T>(most) : 0;
        const u64 both = (u64)__float_as_uint(cell_weight(r, sum, key)) << 32 | key;
        if (rank == 0)
            far->cell[cell] = both;
        else
            syc_send(&far->cell[cell], 0, both, &far->gate);
    }
}

static __device__ __forceinline__ void take_far(struct far_cells *far, struct rough_cells &cells)
{
    syc_wait_at(&far->gate);
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
    return sum == 0 ? 0 : ((sum >> 24) + 1) * (256 + vocab / 4096) + vocab + 2 * SYC_FEW;
}

enum rough { ROUGH_NONE, ROUGH_KNOWN, ROUGH_UNKNOWN }; /* what a cell weighs: nothing, within the bound, not known */

/* The weight of a cell relative to that of the largest logit, which is 2^(top + r). */
static __device__ __forceinline__ enum rough settle(u32 key, float *weight, float unit, const struct syc_scale &scale, float top, float r)
{
    const float nothing = -29.0f, infinity = __uint_as_float(0x7f800000);
    if (key == 0 || !(__fmul_rn(__fsub_rn(syi_key_value(key), scale.max), scale.inv_t) >= nothing))
        return ROUGH_NONE;
    *weight = __fmul_rn(move_base(*weight, nearest(syi_key_value(key), unit), top), rough_exp2(-r));
    return *weight < infinity ? ROUGH_KNOWN : ROUGH_UNKNOWN;
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

static __device__ __forceinline__ void add_octaves(struct quick_shared *s, const struct rough_cells &cells, const enum rough *known, const struct syc_scale &scale, float top_p)
{
    const float least = (1.0f - top_p) * (0.25f / SYC_FEW), few = 0.125f, bin_unit = 0x1p24f;
    float rest = 0.0f;
#pragma unroll
    for (u32 c = 0; c < SYC_CELLS; c++) {
        if (known[c] == ROUGH_NONE)
            continue;
        const float largest = syc_e_of(scale, cells.key[c]);
        const float others = known[c] == ROUGH_KNOWN ? fmaxf(cells.weight[c] - largest, 0.0f) : 0.0f;
        rest += (largest < least ? largest : 0.0f) + (others < least ? others : 0.0f);
        if (largest >= least)
            atomicAdd(&s->near.low[octave_of(largest)], (u32)(largest * bin_unit));
        if (others >= least)
            atomicAdd(&s->near.low[octave_of(others * few)], (u32)(fminf(others, 64.0f) * bin_unit));
    }
    const u32 all = __reduce_add_sync(SYC_ALL_LANES, (u32)(fminf(rest, 4.0f) * bin_unit));
    if (syc_lane() == 0 && all != 0)
        atomicAdd(&s->near.high[0], all);
}

/* The bin at which the sum from the top reaches a share of all, to s->bin; ~0: not known. By one warp. */
static __device__ __forceinline__ void find_octave(struct quick_shared *s, float share)
{
    constexpr int each = NEAR / 32;
    const int first = syc_lane() * each;
    u32 own = 0;
#pragma unroll
    for (int i = 0; i < each; i++)
        own += s->near.low[first + i];
    u32 upto = own;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const u32 up = __shfl_up_sync(SYC_ALL_LANES, upto, (unsigned)d);
        upto += syc_lane() >= d ? up : 0;
    }
    const u32 total = __shfl_sync(SYC_ALL_LANES, upto, 31) + s->near.high[0];
    const u32 target = (u32)min((u64)(share * (float)total), (u64)0xffffff00u) + 1;
    const u32 reached = __ballot_sync(SYC_ALL_LANES, upto >= target);
    if (reached == 0 && syc_lane() == 0)
        s->bin = ~0u;
    if (reached != 0 && syc_lane() == __ffs((int)reached) - 1) {
        u32 sum = upto - own;
        int i = first - 1;
        do {
            i++;
            sum += s->near.low[i];
        } while (sum < target && i < first + each - 1);
        s->bin = (u32)i;
    }
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

/* In pieces of 22 bits, so that 32 of them fit a word. */
static __device__ __forceinline__ u64 sum_of_warp(u64 v)
{
    const u32 low = __reduce_add_sync(SYC_ALL_LANES, (u32)v & 0x3fffffu), middle = __reduce_add_sync(SYC_ALL_LANES, (u32)(v >> 22) & 0x3fffffu);
    return low + ((u64)middle << 22) + ((u64)__reduce_add_sync(SYC_ALL_LANES, (u32)(v >> 44)) << 44);
}

/* What the heads weigh, as far as this thread reads them; lists their tokens that reach a key. Those in no vector count. */
template <sy_type T>
static __device__ __forceinline__ u64 weigh_heads(struct quick_shared *s, const struct syc_logits &row, const struct syc_scale &scale, u32 least)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const struct syc_logits l = row;
    const struct syc_vectors v = syc_vectors_of<T>(l);
    const u32 turns = (v.n + SYC_FEW - 1) / SYC_FEW, heads = s->n_heads;
    u64 sum = 0;
    const auto weight_of = [&](u32 bits) { return syc_weight_at(__fmul_rn(__fsub_rn(__uint_as_float(bits), scale.max), scale.inv_t)); };
    const auto put = [&](u32 i, u32 bits) {
        const u32 place = atomicAdd(&s->n_items, 1u);
        if (place < QUICK)
            s->item[place] = syc_rank_of(syi_key(bits), i);
    };
#pragma unroll 1
    for (u32 item = threadIdx.x; item < heads * turns; item += SYC_SAMPLE_THREADS) {
        const u32 turn = item / heads, at = turn * SYC_FEW + s->head[item - turn * heads], first = v.head + at * n;
        if (at >= v.n)
            continue;
        u32 which = 0;
        const auto look = [&](u32 i, u32 bits) {
            sum += weight_of(bits);
            which |= syi_key(bits) >= least ? 1u << (i - first) : 0;
        };
        syc_each_of<T>(first, syc_vector_at<T>(l, first), look);
#pragma unroll 1
        for (; which != 0; which &= which - 1) {
            const u32 i = first + (u32)__ffs((int)which) - 1;
            put(i, syc_bits_at<T>(l, i));
        }
    }
    syc_each_rest<T>(l, [&](u32 i, u32 bits) {
        sum += weight_of(bits);
        if (syi_key(bits) >= least)
            put(i, bits);
    });
    return sum;
}

/* Whether a row is one of those. */
static __device__ __forceinline__ bool is_nucleus(const struct syi_sample_plan &p, const struct syc_params &a)
{
    const bool first = a.greedy && (p.logprob == NULL || a.cold) && p.kept == NULL; /* nothing but the first token is wanted */
    return a.k == 0 && !a.one && a.top_p < 1.0f && !first;
}

static bool may_be_nucleus(const struct syi_sample_plan *p)
{
    return may_be_quick(p) && p->top_p.rows.data != NULL && !p->probs_in;
}

/* The tokens that a nucleus may have are listed, and the weight of the row is known to be from mass[0] to mass[1]. False: they
   are too many. `margin` is how far below its end tokens are listed. */
template <sy_type T>
static __device__ __forceinline__ bool list_nucleus(struct quick_shared *s, const struct syc_logits &l, const struct syc_scale &scale, const struct rough_cells &cells, const enum rough *known,
                                                    u32 key, u32 margin, u64 *mass)
{
    const u32 least = octave_key(scale, key, s->bin + margin);
    u32 mask = 0;
    u64 rough = 0;
#pragma unroll
    for (u32 c = 0; c < SYC_CELLS; c++) {
        const bool head = known[c] == ROUGH_UNKNOWN || (known[c] == ROUGH_KNOWN && cells.key[c] >= least);
        mask |= head ? 1u << c : 0;
        rough += known[c] == ROUGH_KNOWN && !head ? __float2ull_rn(cells.weight[c] * 0x1p40f) + 1 : 0;
    }
    if (mask != 0)
        for (u32 slot = atomicAdd(&s->n_heads, (u32)__popc(mask)); mask != 0; mask &= mask - 1, slot++)
            s->head[slot] = (u16)(((u32)__ffs((int)mask) - 1) * SYC_SAMPLE_THREADS + threadIdx.x);
    __syncthreads();
    if (s->n_heads > QUICK)
        return false;
    const u64 exact = sum_of_warp(weigh_heads<T>(s, l, scale, least));
    rough = sum_of_warp(rough);
    if (syc_lane() == 0) {
        s->wide[syc_warp()] = exact;
        s->rough[syc_warp()] = rough;
    }
    __syncthreads();
    const u32 w = (u32)syc_lane() % SYC_BLOCK_WARPS;
    const u64 all_exact = sum_of_warp(syc_lane() < SYC_BLOCK_WARPS ? s->wide[w] : 0),
              all_rough = sum_of_warp(syc_lane() < SYC_BLOCK_WARPS ? s->rough[w] : 0), error = rough_error(all_rough, l.vocab);
    mass[0] = all_exact + (all_rough > error ? all_rough - error : 0);
    mass[1] = all_exact + all_rough + error;
    return s->n_items <= QUICK;
}

/* Brings what the block reads first into the L2 cache. */
template <sy_type T> static __device__ __forceinline__ void prefetch_vectors([[maybe_unused]] const struct syc_logits &l)
{
#ifndef SWITCHYARD_CUDA_EMULATED
    const struct syc_vectors v = syc_vectors_of<T>(l);
    const u8 *const x = l.x + (int64_t)v.head * (T == SY_TYPE_F32 ? 4 : 2);
    const u32 at = threadIdx.x * (128 / 16); /* a line to each thread */
    if (at < v.n)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(x + (int64_t)at * 16));
#endif
}

/* As quick_row, for the rows that are a nucleus by their parameters. `parts` blocks read a row, of which the first does the rest;
   the others are done. */
template <sy_type T>
static __device__ __forceinline__ enum quick nucleus_row(const struct syi_sample_plan &p, struct quick_shared *s, struct far_cells *far, u32 rank, u32 parts, int64_t b,
                                                         const struct syc_gate *gate, u32 *cell, u32 &flags)
{
    const struct syc_logits l = {syc_row(p.logits, b), p.allow_bits.data != NULL ? syc_row(p.allow_bits, b) : NULL, (u32)p.vocab};
    if (parts > 1)
        expect_far(far, rank, parts);
    else
        prefetch_vectors<T>(l); /* while parameters come */
    const struct syc_params a = load_params(p, b);
    const struct rough_scale rough = rough_scale_of(a.inv_t);
    struct rough_cells cells;
    enum rough known[SYC_CELLS];
    u64 mass[2];
    u32 kept;
    if (rank != 0) {
        if (is_nucleus(p, a))
            read_far<T>(l, rough, far, rank, parts);
        return QUICK_DONE;
    }
    if (threadIdx.x == 0) {
        s->params = a;
        s->n_items = s->n_heads = 0;
    }
    s->near.low[threadIdx.x] = s->near.high[threadIdx.x] = 0;
    const bool fault = gate != NULL && syc_sees_fault(*gate);
    if (!is_nucleus(p, a)) {
        if (gate != NULL && !syc_all_clear(*gate, fault))
            return QUICK_CLOSED;
        return QUICK_NO;
    }
    if (parts > 1) {
        read_far<T>(l, rough, far, 0, parts);
        take_far(far, cells);
        flags = 0;
    } else if (p.row_flags != NULL)
        flags = read_rough<T, true>(l, rough, cells);
    else
        flags = read_rough<T, false>(l, rough, cells);
#pragma unroll
    for (u32 c = 0; c < SYC_CELLS; c++)
        cell[c] = cells.key[c];
    syc_each_rest<T>(l, [&](u32, u32 bits) {
        cell[0] = max(cell[0], syi_key(bits));
        flags |= syi_key_flags(bits);
    });
    u32 key = max(max(cell[0], cell[1]), max(cell[2], cell[3]));
    key = __reduce_max_sync(SYC_ALL_LANES, key);
    flags = any_flags(flags);
    if (syc_lane() == 0) {
        s->part[0][syc_warp()] = key;
        s->part[1][syc_warp()] = flags;
    }
    if (__syncthreads_or(fault) != 0) {
        if (blockIdx.x == 0 && threadIdx.x == 0)
            syc_report_rarely(*gate);
        return QUICK_CLOSED;
    }
    key = of_warps(s->part[0]);
    flags = any_flags(s->part[1][syc_lane() % SYC_BLOCK_WARPS]);
    if (key == SYI_KEY_MINUS_INF || key == SYI_KEY_MOST)
        return QUICK_WIDE;
    const struct syc_scale scale = {syi_key_value(key), a.inv_t, false};
    const float much = 4e6f, top = nearest(scale.max, rough.unit), rest = __fmaf_rn(scale.max, rough.unit, -top);
    if (!(__fmul_rn(scale.max, rough.unit) < much && __fmul_rn(scale.max, rough.unit) > -much))
        return QUICK_NO;
#pragma unroll
    for (u32 c = 0; c < SYC_CELLS; c++)
        known[c] = settle(cells.key[c], &cells.weight[c], rough.unit, scale, top, rest);
    add_octaves(s, cells, known, scale, a.top_p);
    __syncthreads();
    if (syc_warp() == 0)
        find_octave(s, a.top_p);
    __syncthreads();
    if (s->bin == ~0u || !list_nucleus<T>(s, l, scale, cells, known, key, 4, mass))
        return QUICK_WIDE;
    kept = finish_list(p, s, scale, key, 0, mass[0], mass[1], b);
    if (kept == UNDECIDED)
        return QUICK_WIDE;
    if (threadIdx.x != 0)
        return QUICK_DONE;
    if (p.token != NULL)
        syc_store<u64>(p.token + b * 8, (u64)s->token);
    if (p.row_flags != NULL)
        syc_store<u32>(p.row_flags + b * 4, flags);
    if (p.kept != NULL)
        syc_store<u32>(p.kept + b * 4, kept);
    if (p.logprob != NULL)
        syc_store<u32>(p.logprob + b * 4, __float_as_uint(a.cold ? 0.0f : log_share(scale, s->key, s->total)));
    return QUICK_DONE;
}

#endif
