/*
 * What the filters of sample leave of a row, of any shape: candidates in shared memory, or a prefix of the
 * order that is read from the row again.
 */
#pragma once

#include "cuda/sample/sample_read.cuh"

/* ---- Cuts ---- */

static __device__ bool all_ties(const syc_sample_row &r)
{
    return r.all_ties;
}

/*
 * Tokens by how far they are below the largest, linear in what they are: t of syc_weight_at, and for
 * probabilities what stands for it. So the tokens of any row spread over many bins, and a later bin is later
 * in the order. The last one has all that weigh nothing.
 */
enum { BINS_PER_UNIT = 64, FARTHEST = 30 };

SYC_INLINE float step_of(const syc_scale &scale)
{
    return !scale.probs_in    ? scale.inv_t
           : scale.max > 0.0f ? fminf(__fdiv_rn((float)FARTHEST, scale.max), LARGEST)
                              : 0.0f;
}

SYC_INLINE float below_largest(float value, float largest, float step)
{
    return fmaxf(__fmul_rn(__fsub_rn(value, largest), step), -(float)FARTHEST);
}

SYC_INLINE u32 bin_of(float t) /* the lower bits of a sum that has no bits below one */
{
    return __float_as_uint(__fmaf_rn(t, -(float)BINS_PER_UNIT, 8388608.0f)) & (SYC_BINS - 1);
}

/* All tokens are candidates, and +inf, which counts as FLT_MAX, is not among them. */
SYC_INLINE bool is_plain(const syc_sample_row &r)
{
    return !r.scale.probs_in && r.last == 0 && r.scale.max < LARGEST;
}

/* How many candidates are in each bin, low words only. */
template <sy_type T> SYC_COLD void count_bins(const syc_sample_row &r)
{
    syc_sample_shared *const s = r.s;
    const syc_logits logits = r.logits;
    const syc_scale scale = r.scale;
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
SYC_INLINE u32 bin_threshold(const syc_sample_row &r, u32 bin)
{
    const syc_scale scale = r.scale;
    const float step = step_of(scale);
    return syc_least_key(SYI_KEY_MINUS_INF, syc_key_of(r.first), [&](u32 key) {
        return bin_of(below_largest(syi_key_value(key), scale.max, step)) <= bin;
    });
}

struct key_range {
    u32 low, high;
};

SYC_INLINE key_range keys_of_bins(const syc_sample_row &r, u32 first, u32 last)
{
    return {bin_threshold(r, last), first == 0 || r.empty
                                        ? syc_key_of(r.first)
                                        : bin_threshold(r, first - 1) - 1}; /* empty: one key */
}

SYC_INLINE key_range range_of_all(key_range own, u64 *part)
{
    const u32 low = ~(u32)syc_block_max((u32)~own.low, part);
    return {low, (u32)syc_block_max(own.high, part)};
}

/*
 * The edge of a prefix: candidates with keys in a range go to shared memory as far as there is room, and
 * s->n_few is how many they are. What comes before them is weighed by shares, and everything in r.mass. The
 * range becomes that of the keys that there are.
 */
/* NOLINT(readability-function-size): two ways to look at a vector, which share their sums in registers */
template <sy_type T> SYC_COLD key_range list_edge(syc_sample_row &r, key_range edge)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    syc_sample_shared *const s = r.s;
    const syc_logits logits = r.logits;
    const syc_scale scale = r.scale;
    const bool plain = is_plain(r) && edge.low > SYI_KEY_MINUS_INF; /* NaN is -inf too */
    const u64 last = r.last;
    const float low = syi_key_value(edge.low), high = syi_key_value(edge.high);
    key_range range = {~0u, 0};
    u64 total = 0, before = 0;
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
    syc_change([&] {
        s->n_few = 0;
        r.spent = true;
    });
    syc_each_piece<T>(
        logits,
        [&](u32 first, uint4 x) {
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
                    put(first + j,
                        T == SY_TYPE_F32 ? word[j % 4] : syc_wide<T>(word[j / 2] >> (j % 2 * 16) & 0xffffu),
                        place++);
        },
        one);
    before = syc_warp_sum(before);
    if (syc_lane() == 0)
        s->share[syc_warp()] = before;
    total = syc_block_sum(total, s->part);
    syc_change([&] { r.mass = total; });
    return range_of_all(range, s->part);
}

/* As syc_select_items, for the candidates of a row whose keys are in a range. */
template <sy_type T>
SYC_COLD bool select_row(const syc_sample_row &r, syc_select_list of, key_range range, u32 low, u32 high,
                         u64 target, syc_cut *cut)
{
    const syc_logits logits = r.logits;
    const syc_scale scale = r.scale;
    const u64 bound = r.last;
    return syc_select(r.s, low, high, target, 0, cut, [&](auto f) {
        syc_each<T>(logits, [&](u32 i, u32 bits) {
            const u32 key = syi_key(bits);
            if (key - range.low <= range.high - range.low && syc_rank_of(key, i) >= bound)
                syc_visit(of.by, key, i, of.spare, of.key, scale, f);
        });
    });
}

/* The last of the shortest prefix of n items whose measure reaches a target; 0 when all do not. They are the
   candidates with keys in a range, in shared memory or else in the row. */
template <sy_type T>
SYC_COLD u64 find_last(const syc_sample_row &r, const u64 *item, u32 n, key_range range, u64 target,
                       bool weights)
{
    constexpr int spare = syc_spare_bits<T>();
    syc_select_list of = {item, n, weights ? SYC_BY_WEIGHT : SYC_BY_KEY, spare, 0};
    syc_cut cut = {range.low >> spare, target, weights ? n * syc_weight_of(r.scale, range.low) : n};
    const auto select = [&](u32 low, u32 high, u64 left) {
        return item != NULL ? syc_select_items(r.s, of, r.scale, low, high, left, 0, &cut)
                            : select_row<T>(r, of, range, low, high, left, &cut);
    };
    if (range.low == range.high ? target > cut.at : !select(range.low >> spare, range.high >> spare, target))
        return 0;
    const u32 key = syc_whole_key<T>(cut.value);
    const u64 each = weights ? syc_weight_of(r.scale, key) : 1,
              ties = weights ? (cut.rest + each - 1) / each : cut.rest;
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
template <sy_type T> SYC_COLD void cut_few(syc_sample_row &r, u64 target, bool weights)
{
    key_range own = {~0u, 0};
    for (u32 j = threadIdx.x; j < r.n; j += blockDim.x)
        own = {min(own.low, syc_key_of(r.s->few[j])), max(own.high, syc_key_of(r.s->few[j]))};
    own = range_of_all(own, r.s->part);
    const u64 last = find_last<T>(r, r.s->few, r.n, own, target, weights);
    if (last != 0)
        syc_keep_few(r, last);
}

/* The share of a row that a token is in. */
template <sy_type T> SYC_INLINE u32 share_with(const syc_logits &l, u32 token)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const syc_vectors v = syc_vectors_of<T>(l);
    const u32 all = v.n == 0 ? l.vocab : v.n, at = v.n == 0         ? token
                                                   : token < v.head ? 0
                                                                    : (token - v.head) / n;
    const u32 warps = (u32)syc_warps(), each = ((all + warps - 1) / warps + 31) / 32 * 32;
    return at < all ? at / each : warps - 1;
}

/* The same of the candidates of an edge, of which `rest` is wanted. */
template <sy_type T> SYC_COLD void cut_edge(syc_sample_row &r, key_range range, u64 rest, bool weights)
{
    syc_sample_shared *const s = r.s;
    const u32 n = s->n_few;
    const u64 last = max(r.last, find_last<T>(r, n <= SYC_EDGE ? s->edge : NULL, n, range, rest, weights));
    const bool shares = weights && n <= SYC_EDGE;
    for (u32 j = threadIdx.x; j < n && shares; j += blockDim.x)
        if (s->edge[j] >= last) {
            u32 *const share = (u32 *)&s->share[share_with<T>(r.logits, syc_token_of(s->edge[j]))];
            syc_shared_add(share, share + 1, syc_weight_of(r.scale, syc_key_of(s->edge[j])));
        }
    syc_change([&] {
        r.last = last;
        r.shares = shares;
    });
}

/* What the candidates of an edge weigh. */
template <sy_type T> SYC_COLD u64 weigh_edge(const syc_sample_row &r, key_range range)
{
    const syc_scale scale = r.scale;
    const syc_sample_shared *const s = r.s;
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

SYC_INLINE bool has_few(syc_sample_row &r)
{
    __syncthreads();
    const u32 n = r.s->n_few;
    if (n > SYC_FEW)
        return false;
    syc_change([&] {
        r.n = n;
        r.few = true;
        r.by_token = false;
    });
    return true;
}

/* The candidates of a row to shared memory. */
template <sy_type T> SYC_COLD void collect(syc_sample_row &r)
{
    syc_sample_shared *const s = r.s;
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

/* Takes all tokens from `least` on in the order into shared memory, if they are few enough, which the tiles
 * tell. */
template <sy_type T> SYC_COLD bool gather(syc_sample_row &r, u64 least)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    syc_sample_shared *const s = r.s;
    const syc_logits logits = r.logits;
    const u32 key = syc_key_of(least), nothing = syc_minus_inf_word<T>();
    const float threshold = syi_key_value(key);
    const bool all_of_key = (u32)least == 0 && key > SYI_KEY_MINUS_INF;
    u32 hot = 0;
    const auto put = [&](u32 i, u32 bits, u32 place) {
        if (place < SYC_FEW)
            s->few[place] = syc_rank_of(syi_key(bits), i);
    };
    for (u32 c = threadIdx.x; c < SYC_TILES && !r.spent; c += blockDim.x)
        hot += s->tile[c] >= key;
    hot = (u32)syc_block_sum(hot, s->part);
    if (r.spent || hot > SYC_TILES * 2 / 3)
        return false; /* then there are too many, most likely */
    if (threadIdx.x == 0)
        s->n_few = 0;
    __syncthreads();
    syc_each_piece<T>(
        logits,
        [&](u32 first, uint4 x) {
            if (syc_word_key<T>(fold<T>(nothing, x)) < key)
                return;
            const u32 word[4] = {x.x, x.y, x.z, x.w};
            u32 here = 0;
            const auto by_value = [&](u32 i, u32 bits) {
                here |= __uint_as_float(bits) >= threshold ? 1u << (i - first) : 0;
            };
            const auto by_rank = [&](u32 i, u32 bits) {
                here |= syc_rank_of(syi_key(bits), i) >= least ? 1u << (i - first) : 0;
            };
            if (all_of_key)
                syc_each_of<T>(first, x, by_value);
            else
                syc_each_of<T>(first, x, by_rank);
            u32 place = syc_shared_add(&s->n_few, (u32)__popc(here));
#pragma unroll
            for (u32 j = 0; j < n; j++)
                if (here >> j & 1)
                    put(first + j,
                        T == SY_TYPE_F32 ? word[j % 4] : syc_wide<T>(word[j / 2] >> (j % 2 * 16) & 0xffffu),
                        place++);
        },
        [&](u32 i, u32 bits) {
            if (syc_rank_of(syi_key(bits), i) >= least)
                put(i, bits, syc_shared_add(&s->n_few, 1u));
        });
    return has_few(r);
}

/* A key that so many tiles reach, and not many more. */
SYC_INLINE u32 tile_threshold(const syc_sample_row &r, u32 target)
{
    syc_sample_shared *const s = r.s;
    const u32 high = syc_key_of(r.first);
    syc_cut cut = {};
    const bool found = syc_select_items(s, {(const u64 *)s->tile, SYC_TILES, SYC_BY_TILE, 0, 0}, r.scale,
                                        SYI_KEY_MINUS_INF, high, target, SYC_TILES / 64, &cut);
    return found ? cut.value : SYI_KEY_MINUS_INF;
}

template <sy_type T> SYC_INLINE void keep_top_k(syc_sample_row &r, u64 k)
{
    if (r.empty) { /* all keys are the same: the first k tokens */
        const bool all = all_ties(r);
        syc_change([&] {
            r.last = all ? 0 : syc_rank_of(SYI_KEY_MINUS_INF, (u32)k - 1);
            r.n = all ? r.vocab : (u32)k;
        });
        if (!all && k <= SYC_FEW)
            collect<T>(r);
        return;
    }
    if (k <= SYC_FEW && gather<T>(r, (u64)tile_threshold(r, (u32)k) << 32)) {
        cut_few<T>(r, k, false);
        return;
    }
    count_bins<T>(r);
    syc_find_bin(
        r.s, [&](u32 i) { return (u64)r.s->bin.low[i]; }, [&](u64) { return k; });
    const u64 rest = r.s->answer[1];
    cut_edge<T>(r, list_edge<T>(r, keys_of_bins(r, (u32)r.s->answer[0], (u32)r.s->answer[0])), rest, false);
    if (k <= SYC_FEW && !all_ties(r))
        collect<T>(r);
}

/* Whether a row is weighed as a whole: top-k does not act. */
static __device__ bool weighs_all(const syc_sample_row &r)
{
    const syi_sample_plan &p = *r.p;
    return r.k == 0 && !r.one &&
           ((!p.args.probs_in && (r.top_p < 1.0f || p.list_prob.data != NULL)) ||
            (p.noise == SY_NOISE_CDF && !r.greedy) ||
            (p.logprob.data != NULL && p.logprob_mode == SY_LOGPROB_FINAL && !r.cold));
}

/* Whether a kernel before has weighed the candidates. */
static __device__ bool is_weighed(const syc_sample_row &r)
{
    return r.split.weight != NULL && !r.few && r.last == 0 && weighs_all(r);
}

/* What one of `all` threads has of the weight of a share. */
template <sy_type T>
SYC_INLINE u64 weigh_share(const syc_logits &l, const syc_scale &scale, const syc_share &own, u32 one,
                           u32 all)
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
template <sy_type T> SYC_COLD u64 measure(syc_sample_row &r, bool weights)
{
    syc_sample_shared *const s = r.s;
    const syc_logits logits = r.logits;
    const syc_scale scale = r.scale;
    const u64 last = r.last;
    const u32 n = r.few ? r.n : 0;
    u64 sum = 0;
    __syncthreads();
    if (weights && is_weighed(r))
        return syc_block_sum(
            (int)threadIdx.x < r.split.parts ? __ldcg(r.split.weight + r.b * r.split.parts + threadIdx.x) : 0,
            s->part);
    if (weights && !r.few && r.shares)
        return syc_block_sum((int)threadIdx.x < syc_warps() ? s->share[threadIdx.x] : 0, s->part);
    for (u32 j = threadIdx.x; j < n; j += blockDim.x) {
        const u32 key = syc_few_at(r, j).key;
        sum += weights ? syc_weight_of(scale, key) : key != SYI_KEY_MINUS_INF;
    }
    if (!r.few && weights && last == 0)
        sum = weigh_share<T>(logits, scale, syc_share_of<T>(logits, syc_warp()), (u32)syc_lane(), 32);
    else if (!r.few && !(weights && scale.probs_in) &&
             scale.max < LARGEST) { /* no +inf: values order like keys */
        const float none = __uint_as_float(SYC_MINUS_INF_BITS),
                    cut = last == 0 ? none : syi_key_value(syc_key_of(last));
        const u32 token = syc_token_of(last);
        u32 n_kept = 0;
        const auto kept = [&](u32 i, float value) { return value > cut || (value == cut && i <= token); };
        if (weights)
            syc_each<T>(logits, [&](u32 i, u32 bits) {
                const float value = __uint_as_float(bits);
                const u64 weight = syc_weight_of_value(scale, value);
                sum += kept(i, value) ? weight : 0;
            });
        else
            syc_each<T>(logits, [&](u32 i, u32 bits) {
                const float value = __uint_as_float(bits);
                n_kept += value > none && kept(i, value) ? 1 : 0;
            });
        sum += n_kept;
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
        syc_change([&] { r.shares = true; });
    }
    return sum;
}

/* What a bin weighs, about: all its tokens as one in its middle. */
SYC_INLINE u64 about_bin(const syc_sample_row &r, u32 bin)
{
    const float t = (float)bin * (-1.0f / BINS_PER_UNIT);
    const float value = r.scale.max > 0.0f ? r.scale.max * (1.0f + t / FARTHEST) : 0.0f;
    return (u64)r.s->bin.low[bin] * (r.scale.probs_in ? syi_weight(value) : syc_weight_above(t));
}

/*
 * The shortest prefix of a wide row whose weight reaches its target. The counts of bins tell well where it
 * ends; a second read weighs everything and lists the edge. If the cut is not there after all, a bin further
 * on or back is next, then two, and so on: sums of what comes before the edge and of the edge are exact each
 * time.
 */
template <sy_type T> SYC_COLD void cut_wide(syc_sample_row &r)
{
    syc_sample_shared *const s = r.s;
    const bool probs = r.scale.probs_in;
    count_bins<T>(r);
    const bool found = syc_find_bin(
        s, [&](u32 i) { return about_bin(r, i); },
        [&](u64 total) {
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
        const key_range range = list_edge<T>(r, keys_of_bins(r, bin, more));
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

/* What the candidates weigh, which the row keeps. */
template <sy_type T> SYC_INLINE u64 weigh(syc_sample_row &r)
{
    const u64 mass = measure<T>(r, true);
    syc_change([&] { r.mass = mass; });
    return mass;
}

template <sy_type T> SYC_INLINE void keep_top_p(syc_sample_row &r)
{
    if (!r.few) {
        cut_wide<T>(r);
        return;
    }
    const u64 mass = weigh<T>(r);
    cut_few<T>(r, syi_mass_target(r.top_p, r.p->args.probs_in ? SYI_WEIGHT_ONE : mass), true);
}

/* The least key that passes; e does not grow down the order. */
SYC_COLD u32 min_p_threshold(const syc_sample_row &r)
{
    const float threshold =
        r.p->args.probs_in ? __fmul_rn(r.min_p, r.scale.max > 0.0f ? r.scale.max : 0.0f) : r.min_p;
    return syc_least_key(SYI_KEY_MINUS_INF, syc_key_of(r.first), /* the first of the order passes */
                         [&](u32 key) { return syc_e_of(r.scale, key) >= threshold; });
}

template <sy_type T> SYC_INLINE void keep_min_p(syc_sample_row &r)
{
    const u64 last = r.min_p >= 1.0f ? r.first : (u64)min_p_threshold(r) << 32;
    if (last <= r.last)
        return;
    syc_change([&] {
        r.shares = false;
        r.last = r.few ? r.last : last;
    });
    if (r.few)
        syc_keep_few(r, last);
    else
        gather<T>(r, last);
}

/* Top-k, top-p and min-p, in that order. */
template <sy_type T> SYC_INLINE void filter_row(syc_sample_row &r)
{
    const syi_sample_plan &p = *r.p;
    const u64 k = r.one && !r.empty ? 1 : (u64)r.k;
    syc_change([&] { r.ranked = k > 0 || (!r.empty && r.top_p < 1.0f); });
    if (k > 0)
        keep_top_k<T>(r, k);
    if (r.empty)
        return;
    if (r.top_p < 1.0f)
        keep_top_p<T>(r);
    else if (!p.args.probs_in && p.list_prob.data != NULL)
        weigh<T>(r);
    if (r.min_p > 0.0f)
        keep_min_p<T>(r);
}
