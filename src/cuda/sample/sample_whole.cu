/*
 * Rows of sample without any filter, of which every token is weighed: draws from whole rows, and FINAL
 * log-probabilities of greedy ones. A block, or a cluster where rows are few, reads a row twice: for its
 * largest key, then from its end on, which is still in the cache, to weigh it in segments, one for each warp.
 * The first block looks for the token in the segment that has it. Where the first tokens of the order are
 * asked, the largest key of each thread gives a threshold, and the threads that reach it are read again.
 */
#include "cuda/prim/bulk.cuh"
#include "cuda/sample/sample_launch.cuh"
#include "cuda/sample/sample_logprob.cuh"
#include "cuda/sample/sample_segments.cuh"

enum {
    CLUSTER = sample_policy::CLUSTER,
    WIDE_CLUSTER = sample_policy::WHOLE_WIDE_CLUSTER,
    WIDE_WARPS = sample_policy::WHOLE_WIDE_WARPS
};
static_assert((int)WIDE_CLUSTER * (int)WIDE_WARPS <= (int)CLUSTER * (int)SYC_BLOCK_WARPS,
              "room for segments");

struct whole_shared {
    u64 gate[2];                            /* for `best` and `seen`, for `segment` */
    u64 best[WIDE_CLUSTER];                 /* of all blocks */
    u64 seen[WIDE_CLUSTER];                 /* the same: flags, and tokens above -inf << 32 */
    u64 segment[CLUSTER * SYC_BLOCK_WARPS]; /* weights, in the first; in all blocks where each warp has its
                                               segment at hand */
    u64 part[SYC_BLOCK_WARPS], answer[3], uniform;
    u32 flags[SYC_BLOCK_WARPS], above[SYC_BLOCK_WARPS];
    syc_params params;
};

/* Behind it, groups of vectors that are not read again: the first HELD of each warp. */
enum {
    HELD = sample_policy::WHOLE_HELD,
    HELD_AT = (sizeof(whole_shared) + 15) / 16 * 16,
    HELD_BYTES = HELD * SYC_BLOCK_WARPS * GROUP * 16
};

/* The same of calls that ask for more. */
struct whole_more_shared {
    whole_shared whole;
    union {
        listed_shared listed;
        logprob_shared more;
    };
};

/* ---- Weights ---- */

/* The smaller of two words' values; NaN where one is. */
template <sy_type T> SYC_INLINE u32 least_word(u32 a, u32 b)
{
    u32 c;
#ifdef SWITCHYARD_CUDA_EMULATED
    c = 0;
    for (int half = 0; half < (T == SY_TYPE_F32 ? 1 : 2); half++) {
        const int shift = half * 16;
        const auto value = [&](u32 w) {
            return __uint_as_float(T == SY_TYPE_F32 ? w : syc_wide<T>(w >> shift & 0xffffu));
        };
        const u32 least = value(a) < value(b) || value(a) != value(a) ? a : b;
        c |= T == SY_TYPE_F32 ? least : least & 0xffffu << shift;
    }
#else
    if (T == SY_TYPE_F32)
        asm("min.NaN.f32 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    else if (T == SY_TYPE_F16)
        asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    else
        asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
#endif
    return c;
}

template <sy_type T> SYC_INLINE u32 least_of(u32 least, uint4 x)
{
    return least_word<T>(least, least_word<T>(least_word<T>(x.x, x.y), least_word<T>(x.z, x.w)));
}

/* What a weight takes. STEPS_NEAR: none of a warp's tokens is NaN, or so far below the largest that its
   exponential times 2^40 is no normal number; STEPS_ONE: and the temperature is 1. */
enum steps { STEPS_ALL, STEPS_NEAR, STEPS_ONE };
template <enum steps S> struct by_steps {
    static constexpr enum steps steps = S;
};

template <sy_type T> SYC_INLINE enum steps steps_of(const syc_scale &scale, u32 least)
{
    const auto is_near = [&](u32 bits) {
        return __fmul_rn(__fsub_rn(__uint_as_float(bits), scale.max), scale.inv_t) >= -100.0f;
    };
    const bool near = T == SY_TYPE_F32
                          ? is_near(least)
                          : is_near(syc_wide<T>(least & 0xffffu)) && is_near(syc_wide<T>(least >> 16));
    return !__all_sync(SYC_ALL_LANES, near) ? STEPS_ALL : scale.inv_t == 1.0f ? STEPS_ONE : STEPS_NEAR;
}

/* The sum of a vector's weights. */
template <sy_type T, enum steps steps> SYC_INLINE u64 weigh_vector(const syc_scale &scale, uint4 x)
{
    u64 sum = 0;
    const auto add = [&](u32, u32 bits) {
        const float below = __fsub_rn(__uint_as_float(bits), scale.max),
                    t = steps == STEPS_ONE ? below : __fmul_rn(below, scale.inv_t);
        sum += steps == STEPS_ALL ? syc_weight_at(t) : syc_weight_above(t);
    };
    syc_each_of<T>(0, x, add);
    return sum;
}

/* f(by_steps). */
template <class F> SYC_INLINE u64 weigh_by(enum steps steps, F f)
{
    return steps == STEPS_ONE    ? f(by_steps<STEPS_ONE>())
           : steps == STEPS_NEAR ? f(by_steps<STEPS_NEAR>())
                                 : f(by_steps<STEPS_ALL>());
}

/* What a lane has of the weight of its segment; the first `held` groups are in shared memory, the last one is
 * in y. */
template <sy_type T>
SYC_INLINE u64 weigh_segment(const syc_logits &l, const syc_scale &scale, const syc_share &own, u32 groups,
                             u32 least, uint4 *y, const uint4 *hold, u32 held)
{
    if (!(scale.max < LARGEST)) /* +inf counts as FLT_MAX */
        return weigh_share<T>(l, scale, own, (u32)syc_lane(), 32);
    u64 sum = weigh_by(steps_of<T>(scale, least), [&](auto how) {
        u64 all = 0;
#pragma unroll 1
        for (u32 g = groups - 1;; g--) {
            uint4 next[SYC_OWN_TILES];
            if (g > held)
                load_from<T>(l, own, g - 1, next);
            else if (g > 0) {
#pragma unroll
                for (u32 c = 0; c < SYC_OWN_TILES; c++)
                    next[c] = hold[(g - 1) * GROUP + c * 32];
            }
#pragma unroll
            for (u32 c = 0; c < SYC_OWN_TILES; c++)
                all += weigh_vector<T, decltype(how)::steps>(scale, y[c]);
            if (g == 0)
                return all;
#pragma unroll
            for (u32 c = 0; c < SYC_OWN_TILES; c++)
                y[c] = next[c];
        }
    });
    each_beside(own, [&](u32 i) { sum += syc_weight_of_bits(scale, syc_bits_at<T>(l, i)); });
    return sum;
}

/* ---- Rows at hand ---- */

/* Each segment of a row is one group of vectors. Not for f16 in large blocks: registers would be spilled. */
template <sy_type T, u32 warps> SYC_INLINE bool is_at_hand(const syc_logits &l, u32 segments)
{
    const syc_vectors v = syc_vectors_of<T>(l);
    return (T != SY_TYPE_F16 || warps < SYC_BLOCK_WARPS) && v.head == 0 &&
           v.n * (T == SY_TYPE_F32 ? 4 : 8) == l.vocab && segment_vectors(v.n, segments) <= GROUP;
}

/* A draw from a row whose segments are held by the warps of a cluster, a group each: all of them get the
   weights of all, and the warp that has the token knows it. True in one lane of the cluster, which writes; of
   greedy rows, in one of the first block. */
template <sy_type T, u32 warps>
SYC_INLINE bool draw_at_hand(whole_shared *s, const syc_scale &scale, const syc_share &own, u32 rank,
                             u32 parts, u32 least, const uint4 *y, u64 *total, u32 *token)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const u32 lane = (u32)syc_lane(), segment = rank * warps + (u32)syc_warp();
    u64 weight[SYC_OWN_TILES];
    const u64 sum = syc_warp_sum(weigh_by(steps_of<T>(scale, least), [&](auto how) {
        u64 all = 0;
#pragma unroll
        for (u32 c = 0; c < SYC_OWN_TILES; c++)
            all += weight[c] = weigh_vector<T, decltype(how)::steps>(scale, y[c]);
        return all;
    }));
    if (lane < parts)
        syc_send(&s->segment[segment], lane, sum, &s->gate[1]);
    const u64 uniform = uniform_of(s->params.noise); /* while sums are on their way */
    syc_wait_at(&s->gate[1]);
    const segment_found found =
        find_segment(s->segment, parts * warps, [&](u64 all) { return syi_share_of(uniform, all); });
    *total = found.total;
    if (s->params.greedy)
        return segment == 0 && lane == 0;
    if (segment != found.segment)
        return false;
    u64 rest = found.rest, mine = 0;
    uint4 x = y[0];
    u32 which = 0;
    bool passed = true; /* all of the vectors before */
#pragma unroll
    for (u32 c = 0; c < SYC_OWN_TILES; c++) {
        const u64 all = syc_warp_sum(weight[c]);
        if (passed) {
            which = c;
            x = y[c];
            mine = weight[c];
        }
        passed = passed && rest >= all;
        rest -= passed ? all : 0;
    }
    u64 upto = syc_warp_prefix(mine);
    const int who = __ffs((int)__ballot_sync(SYC_ALL_LANES, rest < upto)) - 1;
    rest -= __shfl_sync(SYC_ALL_LANES, upto - mine, who);
    x = make_uint4(__shfl_sync(SYC_ALL_LANES, x.x, who), __shfl_sync(SYC_ALL_LANES, x.y, who),
                   __shfl_sync(SYC_ALL_LANES, x.z, who), __shfl_sync(SYC_ALL_LANES, x.w, who));
    upto = syc_warp_prefix(lane < n ? syc_weight_of_bits(scale, bits_of<T>(x, lane % n)) : 0);
    const u32 at = (u32)__ffs((int)__ballot_sync(SYC_ALL_LANES, rest < upto)) - 1;
    *token = own.whole + (which * 32 + (u32)who) * n + at;
    return lane == at;
}

/* ---- Rows ---- */

/* Lists the tokens that reach the key of the n-th largest of the threads, or all above -inf; false: they are
   too many. `own` is the largest key of a thread's vectors. One block has the row. */
template <sy_type T>
SYC_INLINE bool list_largest(listed_shared *s, const syc_logits &l, u32 own, u32 key, u32 n)
{
    constexpr u32 each = T == SY_TYPE_F32 ? 4 : 8;
    s->near.low[threadIdx.x] = 0;
    if (threadIdx.x == 0)
        s->n_items = s->n_candidate_tiles = 0;
    __syncthreads();
    const u32 threshold = guess_threshold(s, &own, own, key, n, true);
    const float least = syi_key_value(threshold);
    const auto put = [&](u32 i, u32 bits) {
        const u32 place = __uint_as_float(bits) >= least ? syc_shared_add(&s->n_items, 1u) : (u32)MOST_LISTED;
        if (place < MOST_LISTED)
            s->item[place] = syc_rank_of(syi_key(bits), i);
    };
    if (own >= threshold)
        s->candidate_tile[syc_shared_add(&s->n_candidate_tiles, 1u)] = (u16)threadIdx.x;
    __syncthreads();
    const u32 candidate_tiles = s->n_candidate_tiles,
              vectors = segment_vectors(syc_vectors_of<T>(l).n, SYC_BLOCK_WARPS) / 32;
#pragma unroll 1
    for (u32 item = threadIdx.x; item < candidate_tiles * vectors; item += 2 * SYC_SAMPLE_THREADS) {
        uint4 x[2];
        u32 first[2];
#pragma unroll
        for (u32 i = 0; i < 2; i++) { /* two on their way at once */
            const u32 one = item + i * SYC_SAMPLE_THREADS, turn = one / candidate_tiles,
                      thread = s->candidate_tile[one - turn * candidate_tiles];
            const syc_share share = segment_of<T>(l, thread / 32, SYC_BLOCK_WARPS);
            first[i] = share.whole + (turn * 32 + thread % 32) * each;
            x[i] = turn < vectors && first[i] < share.rest
                       ? syc_vector_at<T>(l, first[i])
                       : make_uint4(~0u, ~0u, ~0u, ~0u); /* NaN reach nothing */
        }
#pragma unroll
        for (u32 i = 0; i < 2; i++)
            if (word_value<T>(vector_max<T>(x[i])) >= least)
                syc_each_of<T>(first[i], x[i], put);
    }
    syc_each_rest<T>(l, put);
    __syncthreads();
    return s->n_items <= MOST_LISTED;
}

/* What else is asked of a row that was weighed, if its first tokens can be listed. */
template <sy_type T>
SYC_COLD void write_first(const syi_sample_plan &p, listed_shared *s, syc_logits l, syc_scale scale, u32 own,
                          u32 key, int64_t b)
{
    if (!list_largest<T>(s, l, own, key, max((u32)p.n_top, 1u)))
        return;
    rank_list(s, scale, s->n_items);
    write_more(p, s, scale, s->n_items, 0, b);
}

/* What is known of a row: of a warp, then of a block, then of all blocks. */
struct whole_seen {
    u64 first; /* of the order */
    u32 flags, above;
};

/* The groups of a warp, of which y is the first and stays the last; the first `held` go to shared memory.
   Returns the least word of a thread. */
template <sy_type T, bool may_hold>
SYC_INLINE u32 read_segment(const syc_logits &l, const syc_share &own, u32 groups, uint4 *y, uint4 *hold,
                            u32 held, bool extra, seen_tokens<T> &seen)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    seen.begin();
    u32 least = T == SY_TYPE_F32 ? 0x7f800000u : T == SY_TYPE_F16 ? 0x7c007c00u : 0x7f807f80u; /* +inf */
#pragma unroll 1
    for (u32 g = 0;;) {
        if (may_hold && g < held) {
#pragma unroll
            for (u32 c = 0; c < SYC_OWN_TILES; c++)
                hold[g * GROUP + c * 32] = y[c];
        }
#pragma unroll
        for (u32 c = 0; c < SYC_OWN_TILES; c++) {
            least = least_of<T>(least, y[c]);
            seen.vector(y[c], own.whole + (g * GROUP + c * 32 + (u32)syc_lane()) * n);
            if (extra)
                seen.count(y[c]);
        }
        if (++g == groups)
            return least;
        load_from<T>(l, own, g, y);
    }
}

/* What the warps of a block have seen goes to all; false: a fault was reported, as `closed` says in one
   thread. */
SYC_INLINE bool gather_block(whole_shared *s, const whole_seen &seen, u32 closed, u32 parts)
{
    if (syc_lane() == 0) {
        s->part[syc_warp()] = seen.first;
        s->flags[syc_warp()] = seen.flags;
        s->above[syc_warp()] = seen.above;
    }
    const bool clear = __syncthreads_or(closed != 0) == 0;
    if (parts > 1)
        syc_cluster_ready();
    return clear;
}

template <u32 warps> SYC_INLINE whole_seen seen_by_block(const whole_shared *s)
{
    const u32 lane = (u32)syc_lane();
    return {warp_max(s->part[lane % warps]), any_flags(s->flags[lane % warps]),
            __reduce_add_sync(SYC_ALL_LANES, lane < warps ? s->above[lane] : 0)};
}

/* What the blocks of a cluster have seen: all get the first token; flags and counts of all come with it, and
 * are taken when needed. */
SYC_INLINE void gather_cluster(whole_shared *s, whole_seen &seen, u32 rank, u32 parts)
{
    if (threadIdx.x < parts) {
        syc_send(&s->best[rank], threadIdx.x, seen.first, &s->gate[0]);
        syc_send(&s->seen[rank], threadIdx.x, seen.flags | (u64)seen.above << 32, &s->gate[0]);
    }
    syc_wait_at(&s->gate[0]);
    seen.first = warp_max((u32)syc_lane() < parts ? s->best[syc_lane()] : 0);
}

SYC_INLINE void take_seen(const whole_shared *s, u32 parts, whole_seen &seen)
{
    const u64 other = (u32)syc_lane() < parts ? s->seen[syc_lane()] : 0;
    seen.flags = any_flags((u32)other);
    seen.above = __reduce_add_sync(SYC_ALL_LANES, (u32)(other >> 32));
}

/* The token of a row at hand, and its results. */
template <sy_type T, u32 warps>
SYC_INLINE void finish_at_hand(const syi_sample_plan &p, whole_shared *s, const syc_logits &l,
                               const syc_scale &scale, const syc_share &own, u32 rank, u32 parts, u32 least,
                               const uint4 *y, whole_seen &seen, int64_t b)
{
    u64 total;
    u32 token = syc_token_of(seen.first);
    const bool has = draw_at_hand<T, warps>(s, scale, own, rank, parts, least, y, &total, &token);
    take_seen(s, parts, seen);
    if (has)
        put_results(p, b, (int64_t)token, seen.flags, seen.above,
                    p.logprob.data != NULL ? log_share(scale, syc_key_at<T>(l, token), total) : 0.0f);
}

/* What else is asked of a row whose results are written; `writes` in the thread that wrote them. */
template <sy_type T>
SYC_INLINE void finish_asked(const syi_sample_plan &p, const syc_logits &l, whole_more_shared *all,
                             const syc_more &more, const syc_scale &scale, u32 key, u32 most, bool weighs,
                             bool writes, u32 token, u64 total, int64_t b)
{
    listed_shared *const q = &all->listed;
    if (writes) {
        q->params = all->whole.params;
        q->more = &more;
        q->wrote = false;
        q->token = token;
        q->token_key = weighs ? syc_key_at<T>(l, token) : 0;
        q->total = total;
    }
    if (weighs)
        write_first<T>(p, q, l, scale, most, key, b);
    __syncthreads();
    if (!weighs || !q->wrote)
        finish_more<T>(p, more, &all->more, b);
}

/* The gates of a cluster, and the parameters of the row. */
SYC_INLINE void begin_whole(const syi_sample_plan &p, whole_shared *s, u32 parts, u32 segments, int64_t b)
{
    if (parts > 1) {
        if (threadIdx.x < 2) /* others than the first block get weights where segments are at hand */
            syc_expect(&s->gate[threadIdx.x], threadIdx.x == 0 ? 16 * parts : 8 * segments);
        syc_cluster_begin();
    }
    if (syc_warp() != 0)
        return;
    const syc_params a = load_params(p, b);
    if (syc_lane() != 0)
        return;
    s->params = a;
    if (parts == 1)
        s->uniform = uniform_of(a.noise);
}

/* NOLINT(readability-function-size): a kernel from its gates to its results, by barriers; what it calls is
 * above */
template <sy_type T, bool extends, u32 warps>
static __global__ void __launch_bounds__(32 * warps, 2)
    whole_rows(const __grid_constant__ struct syi_sample_plan p, u32 parts,
               const __grid_constant__ struct syc_more more, struct start_late late, u32 holds,
               const __grid_constant__ struct syc_gate gate)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    constexpr bool may_hold = T == SY_TYPE_F32 && !extends && warps == SYC_BLOCK_WARPS;
    SYC_DYNAMIC_SHARED(struct whole_more_shared, all);
    syc_wait_for_previous();
    syc_start_next();
    begin_late(late);
    whole_shared *const s = &all->whole;
    const u32 b = blockIdx.x / parts, rank = blockIdx.x - b * parts, segments = parts * warps,
              lane = (u32)syc_lane(), warp = (u32)syc_warp();
    const syc_logits l = row_logits(p, b);
    const syc_share own = segment_of<T>(l, rank * warps + warp, segments);
    const u32 groups = max(((own.rest - own.whole) / n + GROUP - 1) / GROUP, 1u), held = may_hold ? holds : 0;
    const u32 closed = load_closed(&gate);
    const bool extra = p.row_flags.data != NULL || p.kept.data != NULL;
    seen_tokens<T> tokens;
    uint4 y[SYC_OWN_TILES];
    load_from<T>(l, own, 0, y); /* on its way together with the parameters */
    begin_whole(p, s, parts, segments, b);

    /* The first token. */
    uint4 *const hold = (uint4 *)((u8 *)all + HELD_AT) + warp * held * GROUP + lane;
    const u32 least = read_segment<T, may_hold>(l, own, groups, y, hold, held, extra, tokens);
    u64 first = tokens.first();
    const u32 most = max(syc_key_of(first), (u32)SYI_KEY_MINUS_INF); /* of this thread */
    each_beside(own, [&](u32 i) { first = max(first, tokens.token(i, syc_bits_at<T>(l, i))); });
    whole_seen seen = {warp_max(first), any_flags(tokens.flags),
                       __reduce_add_sync(SYC_ALL_LANES, tokens.above)};
    if (!gather_block(s, seen, closed, parts))
        return;
    seen = seen_by_block<warps>(s);
    if (parts > 1)
        gather_cluster(s, seen, rank, parts);

    /* Weights. */
    const u32 key = syc_key_of(seen.first);
    const bool empty = key <= SYI_KEY_MINUS_INF, greedy = s->params.greedy;
    const bool weighs = !empty && (!greedy || (p.logprob.data != NULL && !s->params.cold));
    const syc_scale scale = {syi_key_value(key), s->params.inv_t, false};
    if (!extends && weighs && parts > 1 && scale.max < LARGEST && is_at_hand<T, warps>(l, segments)) {
        finish_at_hand<T, warps>(p, s, l, scale, own, rank, parts, least, y, seen, b);
        return;
    }
    if (weighs) {
        const u64 sum = syc_warp_sum(weigh_segment<T>(l, scale, own, groups, least, y, hold, held));
        if (lane == 0 && parts > 1)
            syc_send(&s->segment[rank * warps + warp], 0, sum, &s->gate[1]);
        else if (lane == 0)
            s->segment[warp] = sum;
    }
    if (rank != 0)
        return;
    if (parts > 1) {
        if (threadIdx.x == 0)
            s->uniform = uniform_of(s->params.noise); /* while sums are on their way */
        take_seen(s, parts, seen);
        if (weighs)
            syc_wait_at(&s->gate[1]);
    }
    __syncthreads();

    /* The token. */
    segment_found found = {0, 0, 0};
    u32 token = syc_token_of(seen.first);
    bool writes = threadIdx.x == 0;
    if (weighs)
        found =
            find_segment(s->segment, segments, [&](u64 total) { return syi_share_of(s->uniform, total); });
    if (weighs && !greedy)
        writes = find_token<T, 32 * warps>(l, segment_of<T>(l, found.segment, segments), found.rest, s->part,
                                           s->answer, &token,
                                           [&](u32, u32 bits) { return syc_weight_of_bits(scale, bits); });
    if (writes) {
        float lp = empty ? __uint_as_float(SYC_MINUS_INF_BITS) : 0.0f;
        if (p.logprob.data != NULL && weighs && !extends)
            lp = log_share(scale, syc_key_at<T>(l, token), found.total);
        put_results(p, b, empty ? p.empty_token : (int64_t)token, seen.flags | (empty ? SY_ROW_EMPTY : 0u),
                    seen.above, lp);
    }
    if constexpr (extends)
        finish_asked<T>(p, l, all, more, scale, key, most, weighs, writes, token, found.total, b);
}

/* The rank of a token that is not the first is not known. */
bool syc_sample_whole_knows_more(const syi_sample_plan *p)
{
    return p->n_top <= FIRST_MOST &&
           (p->rank.data == NULL || (p->noise == SY_NOISE_NONE && p->given_token.rows.data == NULL));
}

/* How many clusters of WIDE_CLUSTER blocks run at once on the device, which none has to: asked once. */
int syc_sample_wide_clusters([[maybe_unused]] const syc_device *device)
{
#ifdef SWITCHYARD_CUDA_EMULATED
    return INT32_MAX;
#else
    if (device->wide_clusters == 0) {
        const auto kernel = whole_rows<SY_TYPE_F32, false, WIDE_WARPS>;
        cudaLaunchAttribute cluster = {};
        cluster.id = cudaLaunchAttributeClusterDimension;
        cluster.val.clusterDim.x = WIDE_CLUSTER;
        cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(WIDE_CLUSTER);
        config.blockDim = dim3(32 * WIDE_WARPS);
        config.dynamicSmemBytes = sizeof(whole_shared);
        config.attrs = &cluster;
        config.numAttrs = 1;
        int n = 0;
        if (cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) != cudaSuccess ||
            cudaOccupancyMaxActiveClusters(&n, kernel, &config) != cudaSuccess)
            cudaGetLastError(); /* not an error of this call */
        device->wide_clusters = n > 0 ? n : -1;
    }
    return device->wide_clusters;
#endif
}

template <bool extends, u32 warps>
static void launch_parts(syc_call *call, const syi_sample_plan *p, syc_more more, u32 parts, u32 held)
{
    const size_t shared = extends ? sizeof(whole_more_shared) : HELD_AT + (held > 0 ? HELD_BYTES : 0);
    const auto kernel =
        syc_sample_kernel(p, whole_rows<SY_TYPE_F32, extends, warps>, whole_rows<SY_TYPE_F16, extends, warps>,
                          whole_rows<SY_TYPE_BF16, extends, warps>);
#ifndef SWITCHYARD_CUDA_EMULATED
    if (parts > (u32)CLUSTER && call->queue.error == cudaSuccess)
        call->queue.error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
#endif
    if (held > 0) {
        call->queue.most_shared = true;
        syc_allow_shared(&call->queue, kernel, shared);
    }
    syc_launch_clusters(&call->queue, kernel, SYC_EARLY, p->batch * parts, (int)parts, 32 * (int)warps,
                        shared, *p, parts, more, late_of(call->device, p, parts), held, call->gate);
}

size_t syc_sample_held_bytes(void)
{
    return HELD_AT + HELD_BYTES;
}

void syc_sample_whole_wide(syc_call *call, const sample_job *job)
{
    launch_parts<false, WIDE_WARPS>(call, job->p, job->more, WIDE_CLUSTER, 0);
}

void syc_sample_whole_held(syc_call *call, const sample_job *job)
{
    launch_parts<false, SYC_BLOCK_WARPS>(call, job->p, job->more, 2, HELD);
}

void syc_sample_whole(syc_call *call, const sample_job *job)
{
    if (job->more.asked)
        launch_parts<true, SYC_BLOCK_WARPS>(call, job->p, job->more, 1, 0);
    else
        launch_parts<false, SYC_BLOCK_WARPS>(call, job->p, job->more, syc_sample_parts(call->device, job->p),
                                             0);
}
