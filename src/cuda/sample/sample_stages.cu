/*
 * Calls of sample whose stages have an order of their own, or that have more of them than top-k, top-p and
 * min-p. A block has a row: it copies the logits to scratch as f32, with overrides and without what is not
 * allowed, and each stage makes those that it removes -inf. What is left is a row without filters, with a
 * temperature of its own, for the kernels of all other calls. Log-probabilities of the input are of the
 * input.
 */
#include "cuda/runtime/backend.cuh"
#include "cuda/prim/block.cuh"
#include "cuda/prim/lists.cuh"
#include "cuda/sample/sample_launch.cuh"
#include "cuda/sample/sample_select.cuh"

enum { THREADS = 512, BINS = 256, MINUS_INF = (int)0xff800000u };

enum stage { END, TEMPERATURE, TOP_N_SIGMA, TOP_K, TYPICAL, TOP_P, MIN_P, XTC };

/* Four bits for each stage, the first in the lowest. */
static __device__ u32 order_of(sy_stages stages)
{
    return stages == SY_STAGES_LLAMA  ? 0x1765432
           : stages == SY_STAGES_VLLM ? 0x5361
           : stages == SY_STAGES_HF   ? 0x46531
                                      : 0x7654321;
}

/* What is made of the rows. */
struct staged {
    u32 *logit;         /* [B,V] */
    float *temperature; /* [B] */
    int64_t *count;     /* [B] candidates, where the list is in rank order; else 0 */
    int64_t *token;     /* [B] */
    u32 *flags;         /* [B] */
    u32 *q;             /* [B,V] q by place in the row; only with q by place in the list */
};

struct stage_shared {
    u64 part[SYC_BLOCK_WARPS];
    u32 low[BINS], high[BINS];
    u64 rest;
    u32 bin;
    bool found;
};

/* A row; all threads have the same, and each has the tokens threadIdx.x, + blockDim.x, ... of x. */
struct stage_row {
    stage_shared *s;
    u32 *x;
    u32 vocab;
    bool all_ties, ranked, cold, draws;
    u32 top;          /* largest key of the candidates */
    float max, inv_t; /* its value; 1 / temperature */
};

static __device__ u32 key_at(const stage_row &r, u32 i)
{
    return syi_key(r.x[i]);
}

static __device__ float heat_of(const stage_row &r, u32 key)
{
    return __fmul_rn(__fsub_rn(syi_key_value(key), r.max), r.inv_t);
}

static __device__ u64 weight_of(const stage_row &r, u32 key)
{
    return syi_weight(syi_exp(heat_of(r, key)));
}

/* f(token, key) for the candidates of a thread. */
template <class F> SYC_INLINE void each(const stage_row &r, F f)
{
    for (u32 i = threadIdx.x; i < r.vocab; i += blockDim.x) {
        const u32 key = key_at(r, i);
        if (key != SYI_KEY_MINUS_INF)
            f(i, key);
    }
}

template <class F> SYC_INLINE u64 sum(const stage_row &r, F f)
{
    u64 own = 0;
    each(r, [&](u32 i, u32 key) { own += f(i, key); });
    return syc_block_sum(own, r.s->part);
}

static __device__ u64 weigh(const stage_row &r)
{
    return sum(r, [&](u32, u32 key) { return weight_of(r, key); });
}

/* Removes the candidates for which `stays` is false. */
template <class F> SYC_INLINE void keep(stage_row &r, F stays)
{
    each(r, [&](u32 i, u32 key) {
        if (!stays(i, key))
            r.x[i] = (u32)MINUS_INF;
    });
    u64 top = 0;
    each(r, [&](u32, u32 key) { top = key > top ? key : top; });
    r.top = (u32)syc_block_max(top, r.s->part);
    r.max = syi_key_value(r.top);
}

/* The largest code at which the measure of all codes >= it reaches a target, in *code; *rest: what those
   equal to it must contribute. False: all together do not reach it. f(token, key, &measure) is the code of a
   candidate, 0: none. */
template <class F> SYC_INLINE bool select(const stage_row &r, u64 target, u32 *code, u64 *rest, F f)
{
    stage_shared *const s = r.s;
    u32 found = 0;
    *rest = target;
    for (int shift = 24; shift >= 0; shift -= 8) {
        __syncthreads();
        for (u32 i = threadIdx.x; i < BINS; i += blockDim.x)
            s->low[i] = s->high[i] = 0;
        __syncthreads();
        each(r, [&](u32 i, u32 key) {
            u64 measure = 1;
            const u32 own = f(i, key, &measure);
            if (own == 0 || (shift < 24 && own >> (shift + 8) != found >> (shift + 8)))
                return;
            const u32 bin = own >> shift & (BINS - 1);
            syc_shared_add(&s->low[bin], &s->high[bin], measure);
        });
        __syncthreads();
        if (threadIdx.x == 0) {
            u64 left = *rest;
            s->found = false;
            for (u32 bin = BINS; bin-- > 0 && !s->found;) {
                const u64 here = s->low[bin] | (u64)s->high[bin] << 32;
                s->found = here >= left;
                s->bin = bin;
                left -= s->found ? 0 : here;
            }
            s->rest = left;
        }
        __syncthreads();
        if (!s->found)
            return false;
        found |= s->bin << shift;
        *rest = s->rest;
    }
    *code = found;
    return true;
}

/* The last of the first n tokens for which `is` is true. */
template <class F> SYC_INLINE u32 last_of(const stage_row &r, u64 n, F is)
{
    u32 code = 0;
    u64 rest;
    return select(r, n, &code, &rest, [&](u32 i, u32 key, u64 *) { return is(key) ? ~i : 0; }) ? ~code
                                                                                               : r.vocab;
}

static __device__ u64 ties_of(u64 rest, u64 weight)
{
    return (rest + weight - 1) / weight;
}

/* ---- Stages ---- */

/* Keeps what is before a key, and of those equal to it so many. */
static __device__ void keep_from(stage_row &r, u32 cut, u64 ties)
{
    const u32 last = r.all_ties ? r.vocab : last_of(r, ties, [&](u32 key) { return key == cut; });
    keep(r, [&](u32 i, u32 key) { return key > cut || (key == cut && i <= last); });
}

static __device__ void keep_top_k(stage_row &r, u64 k)
{
    u32 cut = 0;
    u64 rest;
    r.ranked = true;
    if (select(r, k, &cut, &rest, [](u32, u32 key, u64 *) { return key; }))
        keep_from(r, cut, rest);
}

static __device__ void keep_top_p(stage_row &r, float p)
{
    u32 cut = 0;
    u64 rest;
    const u64 all = weigh(r);
    const auto weighed = [&](u32, u32 key, u64 *measure) {
        *measure = weight_of(r, key);
        return key;
    };
    r.ranked = true;
    if (select(r, syi_mass_target(p, all), &cut, &rest, weighed))
        keep_from(r, cut, ties_of(rest, weight_of(r, cut)));
}

static __device__ void keep_min_p(stage_row &r, float p)
{
    if (p >= 1.0f) {
        const u32 top = r.top, first = last_of(r, 1, [&](u32 key) { return key == top; });
        keep(r, [&](u32 i, u32) { return i == first; });
    } else
        keep(r, [&](u32, u32 key) { return syi_exp(heat_of(r, key)) >= p; });
}

static __device__ void keep_sigma(stage_row &r, float n)
{
    const auto below = [&](u32 key) { return __fsub_rn(r.max, syi_key_value(key)); };
    const auto units = [&](u32 key) {
        const float d = below(key);
        return d < SYI_SIGMA_FAR ? syi_sigma_units(d) : 0;
    };
    syi_stage_sums sums = {};
    sums.n = sum(r, [&](u32, u32 key) { return (u64)(below(key) < SYI_SIGMA_FAR); });
    sums.distance = sum(r, [&](u32, u32 key) { return units(key); });
    sums.square = sum(r, [&](u32, u32 key) { return units(key) * units(key); });
    const float limit = syi_sigma_limit(&sums, n), max = r.max;
    keep(r, [&](u32, u32 key) { return !(__fsub_rn(max, syi_key_value(key)) > limit); });
}

static __device__ void weigh_heat(const stage_row &r, syi_stage_sums *sums)
{
    sums->weight = weigh(r);
    sums->heat = sum(r, [&](u32, u32 key) {
        const float t = heat_of(r, key);
        return syi_heat(syi_exp(t), t);
    });
}

static __device__ void keep_typical(stage_row &r, float p)
{
    syi_stage_sums sums = {};
    u32 cut = 0, tie = 0;
    u64 rest, tie_rest = 0;
    weigh_heat(r, &sums);
    const float mean = (float)syi_mean_heat(&sums);
    const auto code = [&](u32 key) {
        return weight_of(r, key) > 0 ? ~__float_as_uint(syi_surprise(heat_of(r, key), mean)) : 0u;
    };
    r.ranked = true;
    if (!select(r, p > 0.0f ? syi_mass_target(p, sums.weight) : 1, &cut, &rest,
                [&](u32, u32 key, u64 *measure) {
                    *measure = weight_of(r, key);
                    return code(key);
                }))
        return;
    u32 last = r.vocab;
    if (!r.all_ties) { /* of equally near ones the first of the order */
        select(r, rest, &tie, &tie_rest, [&](u32, u32 key, u64 *measure) {
            *measure = weight_of(r, key);
            return code(key) == cut ? key : 0u;
        });
        last = last_of(r, ties_of(tie_rest, weight_of(r, tie)),
                       [&](u32 key) { return key == tie && code(key) == cut; });
    }
    const stage_row before = r; /* its largest logit */
    const auto own = [&](u32 key) {
        return weight_of(before, key) > 0 ? ~__float_as_uint(syi_surprise(heat_of(before, key), mean)) : 0u;
    };
    keep(r, [&](u32 i, u32 key) {
        const u32 c = own(key);
        return c > cut || (c == cut && (key > tie || (key == tie && i <= last)));
    });
}

static __device__ void remove_top(stage_row &r, float likely, u64 coin, float probability)
{
    if (!syi_below(coin, probability))
        return;
    const u64 least = syi_mass_target(likely, weigh(r));
    const u64 n = sum(r, [&](u32, u32 key) { return (u64)(weight_of(r, key) >= least); });
    u64 last = 0; /* the complement of key and token: smallest key, then highest token */
    each(r, [&](u32 i, u32 key) {
        const u64 rank = (u64)~key << 32 | i;
        last = weight_of(r, key) >= least && rank > last ? rank : last;
    });
    last = syc_block_max(last, r.s->part);
    if (n >= 2)
        keep(r, [&](u32 i, u32 key) { return ((u64)~key << 32 | i) >= last; });
}

static __device__ float number_of(const syi_column &column, int64_t b, float missing)
{
    return column.rows.data != NULL ? syc_column_float(column, b) : missing;
}

static __device__ int64_t integer_of(const syi_column &column, int64_t b, int64_t missing)
{
    return column.rows.data != NULL ? syc_column_int(column, b) : missing;
}

static __device__ syi_noise noise_of(const syi_sample_plan &p, int64_t b)
{
    return {(uint64_t)integer_of(p.seed, b, 0), (uint64_t)integer_of(p.offset, b, 0),
            (uint32_t)integer_of(p.stream, b, p.seed_per_row ? 0 : b)};
}

static __device__ void set_temperature(stage_row &r, const syi_sample_plan &p, int64_t b, float *made)
{
    const float t = number_of(p.temperature, b, 1.0f), hottest = 0x1p100f,
                given = t != t        ? 1.0f
                        : t < hottest ? t
                                      : hottest,
                range = number_of(p.dynatemp_range, b, 0.0f);
    float now = given;
    if (range > 0.0f) {
        syi_stage_sums sums = {};
        weigh_heat(r, &sums);
        const u64 n = sum(r, [](u32, u32) { return (u64)1; });
        now =
            syi_dynamic_temperature(&sums, (int64_t)n, given, range, number_of(p.dynatemp_exponent, b, 1.0f));
        r.cold = now < 1e-5f;
    }
    *made = now;
    r.inv_t = __fdiv_rn(1.0f, now < 1e-5f ? 1e-5f : now);
}

static __device__ void run_stages(stage_row &r, const syi_sample_plan &p, int64_t b, float *temperature)
{
    const float n = number_of(p.top_n_sigma, b, 0.0f), typical = number_of(p.typical_p, b, 1.0f),
                top_p = number_of(p.top_p, b, 1.0f), min_p = number_of(p.min_p, b, 0.0f),
                xtc = number_of(p.xtc_probability, b, 0.0f), likely = number_of(p.xtc_threshold, b, 0.1f);
    const int64_t k = integer_of(p.top_k, b, 0), given = integer_of(p.given_token, b, -1),
                  limit = p.args.k_limit == 0 ? (int64_t)r.vocab - 1 : min(p.args.k_limit, (int64_t)r.vocab);
#pragma unroll 1
    for (u32 order = order_of(p.stages); order != 0; order >>= 4) {
        switch ((enum stage)(order & 15u)) {
        case TEMPERATURE:
            set_temperature(r, p, b, temperature);
            break;
        case TOP_N_SIGMA:
            if (n > 0.0f)
                keep_sigma(r, n);
            break;
        case TOP_K:
            if (k >= 1 && k <= limit)
                keep_top_k(r, (u64)k);
            break;
        case TYPICAL:
            if (typical < 1.0f && r.draws)
                keep_typical(r, typical);
            break;
        case TOP_P:
            if (top_p <= 0.0f)
                keep_top_k(r, 1);
            else if (top_p < 1.0f)
                keep_top_p(r, top_p);
            break;
        case MIN_P:
            if (min_p > 0.0f)
                keep_min_p(r, min_p);
            break;
        case XTC:
            if (xtc > 0.0f && likely > 0.0f && likely < 1.0f && r.draws && given < 0) {
                const syi_noise noise = noise_of(p, b);
                uint32_t word[4];
                syi_noise_words(&noise, UINT32_MAX, word);
                remove_top(r, likely, word[2] | (u64)word[3] << 32, xtc);
            }
            break;
        case END:
            break;
        }
    }
}

/* The row as f32; returns its flags. */
static __device__ u32 copy_row(const stage_row &r, const syi_sample_plan &p, int64_t b)
{
    const u8 *const allow = p.allow_bits.data != NULL ? syc_row(p.allow_bits, b) : NULL, *const x = syc_row(
                                                                                             p.logits, b);
    const int bytes = p.logits.type == SY_TYPE_F32 ? 4 : 2;
    const auto allowed = [&](u32 i) { return allow == NULL || (allow[i / 8] >> i % 8 & 1) != 0; };
    for (u32 i = threadIdx.x; i < r.vocab; i += blockDim.x)
        r.x[i] = allowed(i) ? __float_as_uint(syc_load_float(x + (int64_t)i * bytes, p.logits.type))
                            : (u32)MINUS_INF;
    __syncthreads();
    if (p.overrides.indptr != NULL) {
        const syc_span span = syc_list_span(p.overrides, b);
        for (int64_t j = span.first + threadIdx.x; j < span.end; j += blockDim.x) {
            const u32 i = (u32)syc_list_token(p.overrides, j);
            r.x[i] = allowed(i) ? __float_as_uint(syc_list_value(p.overrides, j)) : (u32)MINUS_INF;
        }
    }
    __syncthreads();
    u64 own = 0;
    for (u32 i = threadIdx.x; i < r.vocab; i += blockDim.x)
        own |= syi_key_flags(r.x[i]) == SY_ROW_NAN ? 1u : syi_key_flags(r.x[i]) == SY_ROW_INF ? 1u << 24 : 0;
    const u64 nan = syc_block_max(own & 1, r.s->part), inf = syc_block_max(own >> 24, r.s->part);
    return (nan ? SY_ROW_NAN : 0) | (inf ? SY_ROW_INF : 0);
}

/* f(token, place in token order) for the tokens of a row, a block at a time, with whether they are
   candidates. Returns how many are. */
template <class F> SYC_INLINE u32 each_place(const stage_row &r, F f)
{
    u32 n = 0;
    for (u32 first = 0; first < r.vocab; first += blockDim.x) {
        const u32 i = first + threadIdx.x;
        const bool in = i < r.vocab && key_at(r, i) != SYI_KEY_MINUS_INF;
        u64 all;
        const u64 before = syc_block_before(in, r.s->part, &all);
        f(i, n + (u32)before, in);
        n += (u32)all;
    }
    return n;
}

static __global__ void __launch_bounds__(THREADS)
    make_rows(const __grid_constant__ syi_sample_plan p, const staged made, const syc_gate gate)
{
    __shared__ stage_shared s;
    if (!syc_may_write(gate))
        return;
    for (int64_t b = blockIdx.x; b < p.batch; b += gridDim.x) {
        stage_row r = {&s, made.logit + b * p.vocab, (u32)p.vocab, p.args.ties == SY_TIES_ALL};
        const float t = number_of(p.temperature, b, 1.0f);
        const bool dynamic = number_of(p.dynatemp_range, b, 0.0f) > 0.0f;
        float temperature = t;
        u32 flags = copy_row(r, p, b);
        r.inv_t = 1.0f;
        r.cold = t < 1e-5f && !dynamic;
        r.draws = p.noise != SY_NOISE_NONE && !r.cold;
        keep(r, [](u32, u32) { return true; }); /* finds the largest */
        if (r.top == 0)
            flags |= SY_ROW_EMPTY;
        else
            run_stages(r, p, b, &temperature);
        const u64 n = sum(r, [](u32, u32) { return (u64)1; });
        const u8 *const q = made.q != NULL ? syc_row(p.q, b) : NULL;
        u32 *const to = made.q + b * p.vocab;
        for (u32 i = threadIdx.x; q != NULL && i < r.vocab; i += blockDim.x)
            to[i] = syc_load<u32>(q + (int64_t)i * 4);
        if (q != NULL && !r.ranked)
            each_place(r, [&](u32 i, u32 place, bool in) {
                if (in)
                    to[i] = syc_load<u32>(q + (int64_t)place * 4);
            });
        if (threadIdx.x == 0) {
            made.temperature[b] = r.cold ? 0.0f : temperature;
            made.count[b] = r.ranked ? (int64_t)n : 0;
            made.flags[b] = flags;
        }
    }
}

/* What kernels after those of rows write. */
static __global__ void __launch_bounds__(256)
    finish_rows(const __grid_constant__ syi_sample_plan p, const staged made, const syc_gate gate)
{
    if (!syc_may_write(gate))
        return;
    for (int64_t b = (int64_t)blockIdx.x * 256 + threadIdx.x; b < p.batch; b += (int64_t)gridDim.x * 256) {
        const bool empty = (made.flags[b] & SY_ROW_EMPTY) != 0 && made.token[b] < 0;
        if (p.token.data != NULL)
            syc_store<u64>(p.token.data + b * 8, (u64)(empty ? p.empty_token : made.token[b]));
        if (p.row_flags.data != NULL)
            syc_store<u32>(p.row_flags.data + b * 4, made.flags[b]);
    }
}

/* Lists in token order, which have all tokens by now. */
static __global__ void __launch_bounds__(THREADS)
    finish_lists(const __grid_constant__ syi_sample_plan p, const staged made, const syc_gate gate)
{
    __shared__ stage_shared s;
    if (!syc_may_write(gate))
        return;
    for (int64_t b = blockIdx.x; b < p.batch; b += gridDim.x) {
        const stage_row r = {&s, made.logit + b * p.vocab, (u32)p.vocab};
        u8 *const tokens = p.list_token.data != NULL ? syc_out_row(p.list_token, b) : NULL,
                  *const probs = p.list_prob.data != NULL ? syc_out_row(p.list_prob, b) : NULL;
        if (made.count[b] != 0)
            continue;
        const u32 n = each_place(r, [&](u32 i, u32 place, bool in) {
            const u32 prob = in && probs != NULL ? syc_load<u32>(probs + (int64_t)i * 4) : 0;
            __syncthreads(); /* all have read theirs */
            if (in && tokens != NULL)
                syc_store<u64>(tokens + (int64_t)place * 8, i);
            if (in && probs != NULL)
                syc_store<u32>(probs + (int64_t)place * 4, prob);
        });
        for (u32 j = n + threadIdx.x; j < r.vocab; j += blockDim.x) {
            if (tokens != NULL)
                syc_store<u64>(tokens + (int64_t)j * 8, 0);
            if (probs != NULL)
                syc_store<u32>(probs + (int64_t)j * 4, 0);
        }
    }
}

/* ---- The call ---- */

struct stages_layout {
    staged made;
    size_t bytes;
};

static stages_layout lay_out(const syi_sample_plan *p, u8 *base)
{
    stages_layout l = {};
    const size_t rows = (size_t)p->batch;
    const auto take = [&](size_t bytes) {
        u8 *const at = base + l.bytes;
        l.bytes += syc_in_lines(bytes);
        return at;
    };
    l.made.logit = (u32 *)take(rows * (size_t)p->vocab * 4);
    l.made.temperature = (float *)take(rows * 4);
    l.made.count = (int64_t *)take(rows * 8);
    l.made.token = (int64_t *)take(rows * 8);
    l.made.flags = (u32 *)take(rows * 4);
    if (p->noise == SY_NOISE_Q && p->args.q_order == SY_Q_LIST)
        l.made.q = (u32 *)take(rows * (size_t)p->vocab * 4);
    return l;
}

/* The call with the rows that are made. */
static syi_sample_plan picks_of(const syi_sample_plan *p, const staged &made)
{
    syi_sample_plan picks = *p;
    picks.staged = false;
    picks.logits = {(u8 *)made.logit, p->vocab * 4, SY_TYPE_F32};
    picks.allow_bits.data = NULL;
    picks.overrides = {};
    picks.top_p = picks.min_p = {};
    picks.temperature = {};
    picks.temperature.rows = {(u8 *)made.temperature, 4};
    picks.temperature.type = SY_TYPE_F32;
    picks.top_k = {}; /* all candidates: the list is in rank order */
    picks.top_k.rows = {(u8 *)made.count, 8};
    picks.top_k.type = SY_TYPE_I64;
    picks.args.k_limit = p->vocab;
    if (made.q != NULL)
        picks.q = {(u8 *)made.q, p->vocab * 4, SY_TYPE_F32};
    picks.token.data = (u8 *)made.token;
    picks.empty_token = -1;
    picks.row_flags.data = NULL;
    picks.masked.data = NULL;
    if (p->logprob_mode == SY_LOGPROB_RAW) {
        picks.logprob_mode = SY_LOGPROB_NONE;
        picks.logprob.data = picks.rank.data = NULL;
        picks.n_top = picks.n_score = 0;
    }
    return picks;
}

static syi_sample_plan masks_of(const syi_sample_plan *p, const staged &made)
{
    syi_sample_plan masks = picks_of(p, made);
    masks.noise = SY_NOISE_NONE;
    masks.logprob_mode = SY_LOGPROB_NONE;
    masks.logprob.data = masks.rank.data = masks.token.data = masks.kept.data = NULL;
    masks.list_token.data = masks.list_prob.data = NULL;
    masks.lists = false;
    masks.given_token = {};
    masks.n_top = masks.n_score = 0;
    masks.masked = p->masked;
    return masks;
}

/* What is of the input, for the tokens that were picked. */
static syi_sample_plan raw_of(const syi_sample_plan *p, const staged &made)
{
    syi_sample_plan raw = *p;
    raw.staged = false;
    raw.top_k = raw.top_p = raw.min_p = raw.temperature = {};
    raw.noise = SY_NOISE_NONE;
    raw.given_token = {};
    raw.given_token.rows = {(u8 *)made.token, 8};
    raw.given_token.type = SY_TYPE_I64;
    raw.token.data = raw.kept.data = raw.row_flags.data = raw.masked.data = NULL;
    raw.list_token.data = raw.list_prob.data = NULL;
    raw.lists = false;
    return raw;
}

size_t syc_sample_stages_workspace(const syc_device *device, const syi_sample_plan *p)
{
    u8 somewhere;
    const stages_layout l = lay_out(p, &somewhere);
    syi_plan picks, masks, raw;
    picks.sample = picks_of(p, l.made);
    masks.sample = masks_of(p, l.made);
    raw.sample = raw_of(p, l.made);
    size_t most = syc_sample_workspace(device, &picks);
    const size_t others[] = {syc_sample_workspace(device, &masks), syc_sample_workspace(device, &raw)};
    for (const size_t other : others)
        most = other > most ? other : most;
    return l.bytes + most;
}

void syc_sample_stages(syc_call *call, const syi_sample_plan *p)
{
    u8 *const base = call->scratch;
    const stages_layout l = lay_out(p, base);
    const int64_t most = 4 * (int64_t)call->device->processors;
    syi_plan picks, masks, raw;
    picks.sample = picks_of(p, l.made);
    masks.sample = masks_of(p, l.made);
    raw.sample = raw_of(p, l.made);
    syc_sample_check_named(call, p);
    if (p->overrides.indptr != NULL)
        syc_sample_check_overrides(call, p);
    syc_launch(&call->queue, make_rows, SYC_AFTER, p->batch < most ? p->batch : most, THREADS, 0, *p, l.made,
               call->gate);
    call->scratch = base + l.bytes;
    syc_sample(call, &picks);
    if (p->logprob_mode == SY_LOGPROB_RAW)
        syc_sample(call, &raw);
    if (p->masked.data != NULL)
        syc_sample(call, &masks);
    call->scratch = base;
    if (p->list_token.data != NULL || p->list_prob.data != NULL)
        syc_launch(&call->queue, finish_lists, SYC_AFTER, p->batch < most ? p->batch : most, THREADS, 0, *p,
                   l.made, call->gate);
    syc_launch(&call->queue, finish_rows, SYC_AFTER, p->batch < 256 * most ? (p->batch + 255) / 256 : most,
               256, 0, *p, l.made, call->gate);
}
