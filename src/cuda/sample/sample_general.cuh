/*
 * The steps of sample on one row, by a block, for every parameter, output and distribution: lists, draws,
 * outputs.
 */
#pragma once

#include "cuda/sample/sample_cut.cuh"

/* ---- Lists ---- */

/* Candidates in list order. */
template <sy_type T> SYC_INLINE syc_item listed_at(const syc_sample_row &r, u32 j)
{
    if (r.few)
        return syc_few_at(r, j);
    if (r.listed)
        return {~(u32)(r.list[j] >> 32), (u32)r.list[j]};
    return {syc_key_at<T>(r.logits, j), j};
}

/* Candidates of the row in index order, each warp those of its part; returns how many they are. */
template <sy_type T> SYC_COLD u32 compact_row(const syc_sample_row &row)
{
    const syc_sample_row r = row;
    const u32 begin = (u32)syc_warp_part(r.vocab, syc_warp()),
              end = (u32)syc_warp_part(r.vocab, syc_warp() + 1);
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

template <sy_type T> SYC_INLINE void make_list(syc_sample_row &r)
{
    if (r.few) {
        syc_order_few(r, !r.ranked);
        return;
    }
    if (r.last == 0 && !r.ranked)
        return;
    const u32 n = compact_row<T>(r);
    u64 *const list = r.ranked ? syc_sort_many(r.list, r.list + r.vocab, n, 64, r.s->digits) : r.list;
    syc_change([&] {
        r.n = n;
        r.list = list;
        r.listed = true;
    });
}

/* ---- Choosing ---- */

/* The best of a thread: larger scores first, then larger `order`. A score is its bits and one, so that 0 is
 * none. */
struct best {
    u64 score, order;
};

SYC_INLINE void compete(struct best &best, float e, float q, float eps, u64 order)
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

SYC_INLINE float q_at(const syi_sample_plan &p, int64_t b, u32 i)
{
    return __uint_as_float(syc_load<u32>(syc_row(p.q, b) + (int64_t)i * 4));
}

/* q by place in the list: equal scores go to the earlier place. */
template <sy_type T> SYC_COLD u32 choose_by_list(const syc_sample_row &row)
{
    const syc_sample_row r = row;
    struct best best = {0, 0};
    for (u32 j = threadIdx.x; j < r.n; j += blockDim.x) {
        const float e = syc_e_of(r.scale, listed_at<T>(r, j).key);
        if (e > 0.0f)
            compete(best, e, q_at(*r.p, r.b, j), r.p->args.eps, (u64)(u32)~j | (u64)1 << 32);
    }
    const u64 place = best_of_all(best, r.s->part);
    return place != 0 ? listed_at<T>(r, ~(u32)place).token : syc_token_of(r.first);
}

/* Where the noise of a token comes from: the caller's q, or counted. */
struct noise_source {
    const u8 *q; /* NULL: counted */
    float eps;
    syi_noise noise;
    u32 drawn; /* group of four tokens whose words are in `word` */
    uint32_t word[4];
};

SYC_INLINE float noise_at(noise_source &from, u32 token)
{
    if (from.q != NULL)
        return __uint_as_float(syc_load<u32>(from.q + (int64_t)token * 4));
    if (token / 4 != from.drawn) {
        from.drawn = token / 4;
        syi_noise_words(&from.noise, from.drawn, from.word);
    }
    const u32 low = token % 2 == 0 ? from.word[0] : from.word[1],
              high = token % 2 == 0 ? from.word[2] : from.word[3];
    return syi_exponential(token % 4 < 2 ? low : high);
}

SYC_INLINE noise_source noise_source_of(const syi_sample_plan &p, const syi_noise &noise, int64_t b)
{
    const bool race = p.noise == SY_NOISE_RACE;
    return {race ? NULL : syc_row(p.q, b), race ? 0.0f : p.args.eps, noise, ~0u, {0, 0, 0, 0}};
}

/* The vectors of this warp's share take part in a race. Noise is at least (word + 1/2) / 2^32, and a little
   less by rounding: few tokens can still reach the best score of the warp, and only those are scored. */
template <sy_type T> SYC_COLD struct best race_vectors(const syc_sample_row &r)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const syc_logits l = r.logits;
    const syc_scale scale = r.scale;
    const syi_noise noise = noise_of(r);
    const syc_share own = syc_share_of<T>(l, syc_warp());
    const u64 last = r.last;
    const bool ranked = r.ranked;
    const u32 nothing = syc_minus_inf_word<T>();
    struct best best = {0, 0};
    u32 most = 0; /* of the warp */
#pragma unroll 1
    for (u32 at = own.whole; at < own.rest; at += 32 * n) {
        const u32 first = at + (u32)syc_lane() * n;
        const uint4 x =
            first < own.rest ? syc_vector_at<T>(l, first) : make_uint4(nothing, nothing, nothing, nothing);
        const float reach = __uint_as_float(most > 0 ? most - 1 : 0);
        const u32 half[4] = {x.x, x.y, x.z, x.w};
        uint32_t word[n];
        u32 able = 0;
#pragma unroll
        for (u32 g = 0; g < n / 4; g++)
            syi_noise_words(&noise, first / 4 + g, word + 4 * g);
        const auto look = [&](u32 i, u32 bits) {
            const float e = syc_e_of(scale, syi_key(bits)),
                        above = e * 4295010246.0f; /* 2^32 and a hundred-thousandth */
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
                compete(best, syc_e_of(scale, key), syi_exponential(noisy), 0.0f,
                        syc_rank_of(ranked ? key : 1, first + j));
        }
        most = __reduce_max_sync(SYC_ALL_LANES,
                                 (u32)best.score); /* a score is finite: its bits and one are a word */
    }
    return best;
}

/* Noise by token: equal scores go to what is earlier in rank or index order. */
template <sy_type T> SYC_COLD u32 choose_by_token(const syc_sample_row &r)
{
    const bool race = r.p->noise == SY_NOISE_RACE, few = r.few, ranked = r.ranked;
    const syc_logits logits = r.logits;
    const syc_scale scale = r.scale;
    const u64 last = r.last;
    const syc_vectors v = syc_vectors_of<T>(logits);
    const bool by_vectors = race && !few && v.head % 4 == 0; /* then all but the ends of the row are done */
    const u32 skip = by_vectors ? v.n * (T == SY_TYPE_F32 ? 4 : 8) : 0;
    const u32 n = few ? r.n : r.vocab - skip,
              run = few ? 1 : 4; /* of a row four tokens at a time, with one counter */
    noise_source from = noise_source_of(*r.p, noise_of(r), r.b);
    struct best best = {0, 0};
    if (by_vectors)
        best = race_vectors<T>(r);
#pragma unroll 1
    for (u32 turn = 0;; turn++) {
        const u32 at = (turn / run * blockDim.x + threadIdx.x) * run + turn % run,
                  j = at < v.head ? at : at + skip;
        if (at >= n && turn % run == 0)
            break;
        if (at >= n)
            continue;
        const syc_item item = few ? syc_few_at(r, at) : syc_item{syc_key_at<T>(logits, j), j};
        const float e = syc_e_of(scale, item.key);
        if (e > 0.0f && syc_rank_of(item.key, item.token) >= last)
            compete(best, e, noise_at(from, item.token), from.eps,
                    syc_rank_of(ranked ? item.key : 1, item.token));
    }
    const u64 order = best_of_all(best, r.s->part);
    return order != 0 ? syc_token_of(order) : syc_token_of(r.first);
}

/* The first of the tokens [first, end) at which the sum of f(token) over all up to it exceeds a target below
   the sum of all. */
template <class F> SYC_INLINE u32 find_in_share(u64 *part, u64 *answer, u32 first, u32 end, u64 target, F f)
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
template <sy_type T> static __device__ syc_share weighed_share(const syc_sample_row &r, u64 *target)
{
    const u64 *const weight = r.split.weight + r.b * r.split.parts;
    int part = 0;
    for (; part + 1 < r.split.parts && __ldcg(weight + part) <= *target; part++)
        *target -= __ldcg(weight + part);
    return syc_part_of<T>(r.logits, part, r.split.parts);
}

/* The first candidate in index order up to which the weights exceed a uniform share of them all. */
template <sy_type T> SYC_COLD u32 choose_by_cdf(syc_sample_row &r)
{
    const syi_noise noise = noise_of(r);
    uint32_t word[4];
    const u64 total = measure<T>(r, true);
    if (total == 0)
        return syc_token_of(r.first);
    syi_noise_words(&noise, UINT32_MAX, word);
    u64 target = syi_share_of(word[0] | (u64)word[1] << 32, total);
    const syc_logits logits = r.logits;
    const syc_scale scale = r.scale;
    const u64 last = r.last;
    if (r.few) {
        syc_cut cut = {};
        syc_select_items(r.s, {r.s->few, r.n, SYC_BY_TOKEN_WEIGHT, 0, 0}, scale, ~(r.vocab - 1), ~0u,
                         target + 1, 0, &cut);
        return ~cut.value;
    }
    const syc_share share =
        is_weighed(r) ? weighed_share<T>(r, &target)
                      : syc_share_of<T>(logits, syc_find_part(r.s->share, &target)); /* of measure */
    return find_in_share(r.s->part, r.s->answer, share.first, share.end, target, [&](u32 i) {
        const u32 key = syc_key_at<T>(logits, i);
        return syc_rank_of(key, i) >= last ? syc_weight_of(scale, key) : (u64)0;
    });
}

/* ---- Outputs ---- */

template <sy_type T> SYC_COLD void write_list(const syc_sample_row &row)
{
    const syc_sample_row r = row;
    const syi_sample_plan &p = *r.p;
    const float scale = __fmul_rn(__ull2float_rn(r.mass), 0x1p-40f);
    u8 *const tokens = p.list_token.data != NULL ? syc_out_row(p.list_token, r.b) : NULL;
    u8 *const probs = p.list_prob.data != NULL ? syc_out_row(p.list_prob, r.b) : NULL;
    for (u32 j = threadIdx.x; j < r.vocab; j += blockDim.x) {
        syc_item item = {SYI_KEY_MINUS_INF, 0};
        if (j < r.n)
            item = listed_at<T>(r, j);
        if (tokens != NULL)
            syc_store<u64>(tokens + (int64_t)j * 8, item.token);
        if (probs == NULL)
            continue;
        u32 prob = 0;
        if (item.key != SYI_KEY_MINUS_INF)
            prob = p.args.probs_in ? syc_bits_at<T>(r.logits, item.token)
                                   : __float_as_uint(__fdiv_rn(syc_e_of(r.scale, item.key), scale));
        syc_store<u32>(probs + (int64_t)j * 4, prob);
    }
}

/* The logarithm of the share of a key in a weight. */
SYC_COLD float log_share(syc_scale scale, u32 key, u64 total)
{
    const float value = syi_key_value(key), minus_inf = __uint_as_float(SYC_MINUS_INF_BITS);
    if (key == SYI_KEY_MINUS_INF)
        return minus_inf;
    if (!scale.probs_in)
        return (float)((double)__fmul_rn(__fsub_rn(value, scale.max), scale.inv_t) - syi_log_weight(total));
    const u64 own = syi_weight(value > 0.0f ? value : 0.0f);
    return own == 0 ? minus_inf : (float)(syi_log_weight(own) - syi_log_weight(total));
}

/* Of the candidates; of the input it is made by sample_logprob.cuh. */
template <sy_type T> SYC_INLINE float logprob(syc_sample_row &r, u32 token)
{
    if (r.empty)
        return __uint_as_float(SYC_MINUS_INF_BITS);
    return r.cold ? 0.0f : log_share(r.scale, syc_key_at<T>(r.logits, token), measure<T>(r, true));
}

/* Each token is read by the thread that writes it, so masked logits may be exactly over f32 logits. */
template <sy_type T> SYC_COLD void write_masked(const syc_sample_row &row)
{
    const syc_sample_row r = row;
    const syi_sample_plan &p = *r.p;
    const u8 *const allow = p.allow_bits.data != NULL ? syc_row(p.allow_bits, r.b) : NULL;
    const u32 fill = p.args.probs_in ? 0 : SYC_MINUS_INF_BITS;
    u8 *const out = syc_out_row(p.masked, r.b);
    for (u32 i = threadIdx.x; i < r.vocab; i += blockDim.x) {
        const u32 bits = syc_bits_at<T>(r.logits, i);
        const bool in = !r.empty && syc_rank_of(syi_key(bits), i) >= r.last && syc_allowed(allow, i);
        syc_store<u32>(out + (int64_t)i * 4, in && (bits & 0x7fffffffu) <= 0x7f800000u ? bits : fill);
    }
}
