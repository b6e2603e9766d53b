/*
 * The exact oracle of `sample`: every row is sorted completely, every sum is an integer, every choice is a
 * plain loop. Slow and short on purpose.
 */
#include "oracle/sample.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef unsigned __int128 u128;

static float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint32_t to_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float canonical(float x)
{
    if (isnan(x))
        return -INFINITY;
    if (isinf(x) && x > 0)
        return FLT_MAX;
    return x == 0 ? 0.0f : x;
}

uint32_t oracle_sample_key(float x)
{
    uint32_t u = to_bits(canonical(x));
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* ---- Arithmetic of 7.2, 7.3, 7.5, 7.7, 7.9 ---- */

float oracle_sample_exp(float t)
{
    static const uint32_t poly[] = {0x3c091cc7, 0x3d2aac58, 0x3e2aaa49, 0x3efffffe};
    if (!(t >= -86.0f))
        return 0.0f;
    float magic = fmaf(t, from_bits(0x3fb8aa3b), 12582912.0f);
    float n = magic - 12582912.0f;
    float r = fmaf(n, -from_bits(0x3f318000), t);
    r = fmaf(n, from_bits(0x395e8083), r);
    float c = from_bits(0x3ab526b0);
    for (int i = 0; i < 4; i++)
        c = fmaf(c, r, from_bits(poly[i]));
    float rr = r * r;
    float tail = fmaf(rr, c, r);
    float y = 1.0f + tail;
    return from_bits(to_bits(y) + (uint32_t)(int32_t)n * 0x00800000u);
}

/* e * 2^40 is exact in a double, and so are its floor and its fraction. */
uint64_t oracle_sample_weight(float e)
{
    double v = ldexp((double)e, 40), whole = floor(v), rest = v - whole;
    uint64_t w = (uint64_t)whole;
    return w + (rest > 0.5 || (rest == 0.5 && (w & 1)));
}

static uint64_t theta_of(float p, uint64_t weight_sum)
{
    int exponent;
    u128 mantissa = (u128)ldexp(frexp((double)p, &exponent), 24); /* p = mantissa * 2^(exponent - 24) */
    int s = 24 - exponent;
    if (s >= 120)
        return 1;
    u128 product = mantissa * weight_sum, low = ((u128)1 << s) - 1;
    return (uint64_t)((product >> s) + ((product & low) != 0));
}

static float score_of(float e, float q, float eps)
{
    /* On words: clang may compile the comparison of floats to a minimum that keeps a signalling NaN. */
    uint32_t bits = to_bits(q) & 0x7fffffffu;
    float a = bits < to_bits(0x1p100f) ? from_bits(bits) : 0x1p100f;
    float d = a + eps;
    if (!(d > 0x1p-100f))
        d = 0x1p-100f;
    return e / d;
}

/* ln(mant * 2^k), 1 <= mant < 2. */
static double ln_of_parts(double mant, int k)
{
    if (mant > 1.4142135623730951) {
        mant /= 2;
        k++;
    }
    double s = (mant - 1) / (mant + 1), z = s * s, g = 1.0 / 21;
    for (int d = 19; d >= 1; d -= 2)
        g = fma(g, z, 1.0 / d);
    return fma(k, 0.6931471805599453, (2 * s) * g);
}

/* The upper 53 bits of an integer. */
static double cut_to_double(u128 v)
{
    int k = 0;
    for (; v >> 53; v >>= 1)
        k++;
    return ldexp((double)(uint64_t)v, k);
}

static double ln_of(double x)
{
    int k;
    const double mant = 2 * frexp(x, &k);
    return ln_of_parts(mant, k - 1);
}

double oracle_sample_ln(uint64_t fixed40)
{
    return ln_of(ldexp(cut_to_double(fixed40), -40));
}

/* ---- Noise of 7.8 ---- */

void oracle_sample_philox(uint64_t seed, const uint32_t counter[4], uint32_t words[4])
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, c[4];
    memcpy(c, counter, sizeof c);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)c[0] * 0xD2511F53u, b = (uint64_t)c[2] * 0xCD9E8D57u;
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ key[0], (uint32_t)b,
                            (uint32_t)(a >> 32) ^ c[3] ^ key[1], (uint32_t)a};
        memcpy(c, next, sizeof c);
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    memcpy(words, c, sizeof c);
}

static void draw(uint64_t seed, uint64_t offset, uint32_t stream, uint32_t c0, uint32_t words[4])
{
    oracle_sample_philox(seed, (uint32_t[]){c0, (uint32_t)offset, (uint32_t)(offset >> 32), stream}, words);
}

uint32_t oracle_sample_race_word(uint64_t seed, uint64_t offset, uint32_t stream, int64_t token)
{
    uint32_t words[4];
    draw(seed, offset, stream, (uint32_t)(token / 4), words);
    return words[token % 4];
}

float oracle_sample_race_noise(uint32_t word)
{
    float s, k;
    if (word < 0x4afb16dau) {
        float v = ldexpf((float)(2 * (uint64_t)word + 1), -33);
        float d = 2.0f - v;
        s = v / d;
        k = 0.0f;
    } else {
        float y = ldexpf((float)(2 * (uint64_t)(uint32_t)~word + 1), -33);
        int64_t over = (int64_t)to_bits(y) - 0x3f3504f3;
        int64_t j = over >= 0 ? over / 0x800000 : -((-over + 0x7fffff) / 0x800000);
        float mant = from_bits((uint32_t)((int64_t)to_bits(y) - j * 0x800000));
        float above = 1.0f - mant, below = 1.0f + mant;
        s = above / below;
        k = (float)-j;
    }
    float z = s * s, g = from_bits(0x3e18f1fd);
    g = fmaf(g, z, from_bits(0x3e4caf61));
    g = fmaf(g, z, from_bits(0x3eaaaabd));
    g = fmaf(g, z, 1.0f);
    float product = (2.0f * s) * g;
    return fmaf(k, from_bits(0x3f317218), product);
}

/* ---- The row ---- */

struct token {
    float raw, z, t, e; /* t and e of the row's temperature; probs_in: t unused, e = max(z, 0) */
    uint64_t w;
    int64_t i;
    bool barred; /* not allowed: raw is -inf */
    bool in;     /* candidate so far */
};

struct state {
    const struct oracle_sample_row *row;
    struct token *by_rank; /* [V] */
    int64_t *rank_of;      /* [V] */
    int64_t *list;         /* [V] ranks of the candidates in list order */
    int64_t n;
    bool empty, cold, greedy;
    int64_t first; /* rank of the first candidate */
    bool draws;    /* by the numbers of the call: a temperature that the entropy makes does not change it */
};

static int before(const void *a, const void *b)
{
    const struct token *x = a, *y = b;
    if (x->z != y->z)
        return x->z > y->z ? -1 : 1;
    return x->i < y->i ? -1 : 1;
}

static float clamp_temperature(float t)
{
    if (isnan(t))
        return 1.0f;
    if (t < 1e-5f)
        return 1e-5f;
    return t > 0x1p100f ? 0x1p100f : t;
}

static void weigh(struct token *token, float max, float temperature, bool probs_in)
{
    if (probs_in) {
        token->t = 0.0f;
        token->e = token->z > 0 ? token->z : 0.0f;
        token->w = oracle_sample_weight(token->e < 1 ? token->e : 1.0f);
        return;
    }
    float inverse = 1.0f / temperature, difference = token->z - max;
    token->t = difference * inverse;
    token->e = oracle_sample_exp(token->t);
    token->w = oracle_sample_weight(token->e);
}

static void read_row(struct state *s, struct oracle_sample_result *out)
{
    const struct oracle_sample_row *row = s->row;
    for (int64_t i = 0; i < row->vocab; i++) {
        bool barred = row->allowed && !row->allowed[i];
        float x = barred ? -INFINITY : row->x[i];
        s->by_rank[i] = (struct token){.raw = x, .z = canonical(x), .i = i, .barred = barred};
        out->flags |= isnan(x) ? SY_ROW_NAN : isinf(x) && x > 0 ? SY_ROW_INF : 0;
    }
    qsort(s->by_rank, (size_t)row->vocab, sizeof *s->by_rank, before);
    float max = s->by_rank[0].z;
    s->empty = max == -INFINITY;
    out->flags |= s->empty ? SY_ROW_EMPTY : 0;
    for (int64_t r = 0; r < row->vocab; r++) {
        s->rank_of[s->by_rank[r].i] = r;
        if (!s->empty)
            weigh(&s->by_rank[r], max, clamp_temperature(row->temperature), row->probs_in);
    }
    s->cold = row->temperature < 1e-5f;
    s->greedy = row->noise == SY_NOISE_NONE || s->cold;
}

/* The prefix of length n, with ALL lengthened to the end of the tie at its last element. */
static int64_t cut(const struct state *s, int64_t n, int64_t limit, bool *tied)
{
    *tied = n < limit && s->by_rank[n].z == s->by_rank[n - 1].z;
    while (s->row->ties == SY_TIES_ALL && n < limit && s->by_rank[n].z == s->by_rank[n - 1].z)
        n++;
    return n;
}

/* Top-k and top-p: the length of the prefix of the order that stays. */
static int64_t filter_prefix(struct state *s, struct oracle_sample_result *out)
{
    const struct oracle_sample_row *row = s->row;
    int64_t n = row->vocab, limit = row->vocab - 1;
    if (row->k_limit > 0)
        limit = row->k_limit < row->vocab ? row->k_limit : row->vocab;
    out->k_on = row->k >= 1 && row->k <= limit;
    if (out->k_on)
        n = cut(s, row->k, n, &out->k_tied);
    bool p_zero = !s->empty && row->p <= 0;
    if (p_zero) {
        bool tied;
        n = cut(s, 1, row->vocab, &tied);
    }
    out->ranked = out->k_on || p_zero;
    for (int64_t r = 0; r < n; r++)
        out->weight_sum += s->by_rank[r].w;
    if (!s->empty && row->p > 0 && row->p < 1) {
        out->p_on = out->ranked = true;
        const uint64_t theta = theta_of(row->p, row->probs_in ? (uint64_t)1 << 40 : out->weight_sum);
        u128 sum = 0;
        int64_t m = 0;
        while (m < n && sum < theta)
            sum += s->by_rank[m++].w;
        out->p_short = sum < theta;
        if (!out->p_short)
            n = cut(s, m, n, &out->p_tied);
    }
    return n;
}

static bool passes_min_p(const struct state *s, int64_t rank)
{
    const struct oracle_sample_row *row = s->row;
    if (s->empty || !(row->min_p > 0))
        return true;
    if (row->min_p >= 1)
        return rank == 0;
    float threshold = row->min_p * s->by_rank[0].e;
    return s->by_rank[rank].e >= threshold;
}

static void make_list(struct state *s, struct oracle_sample_result *out)
{
    int64_t n = filter_prefix(s, out);
    for (int64_t r = 0; r < n; r++)
        s->by_rank[r].in = passes_min_p(s, r);
    for (int64_t j = 0; j < s->row->vocab; j++) {
        int64_t r = out->ranked ? j : s->rank_of[j];
        if (s->by_rank[r].in)
            s->list[s->n++] = r;
    }
    out->mp_cut = s->n < n;
}

/* ---- Stages ---- */

/* What the candidates are at a temperature: weights of their own largest logit. Returns their sum. */
static u128 weigh_state(struct state *s, float temperature)
{
    const float max = s->by_rank[s->first].z;
    u128 sum = 0;
    for (int64_t r = s->first; r < s->row->vocab; r++)
        if (s->by_rank[r].in) {
            weigh(&s->by_rank[r], max, temperature, false);
            sum += s->by_rank[r].w;
        }
    return sum;
}

static int64_t count_in(const struct state *s)
{
    int64_t n = 0;
    for (int64_t r = 0; r < s->row->vocab; r++)
        n += s->by_rank[r].in;
    return n;
}

static void find_first(struct state *s)
{
    s->first = 0;
    while (!s->by_rank[s->first].in)
        s->first++;
}

/* Keeps the first n candidates, and what equals the last of them where ties stay together. */
static void keep_first(struct state *s, int64_t n)
{
    float last = 0;
    for (int64_t r = 0; r < s->row->vocab; r++) {
        struct token *const t = &s->by_rank[r];
        if (!t->in)
            continue;
        t->in = n > 0 || (s->row->ties == SY_TIES_ALL && t->z == last);
        last = n-- > 0 ? t->z : last;
    }
}

static double mean_heat(const struct state *s, u128 sum)
{
    u128 heat = 0;
    for (int64_t r = 0; r < s->row->vocab; r++) {
        const struct token *const t = &s->by_rank[r];
        if (t->in && t->e > 0)
            heat += (u128)nearbyint(ldexp((double)(t->e * -t->t), 40));
    }
    return cut_to_double(heat) / cut_to_double(sum);
}

static void sigma_stage(struct state *s, struct oracle_sample_result *out)
{
    const float max = s->by_rank[s->first].z, n = s->row->n_sigma;
    u128 count = 0, sum = 0, squares = 0;
    if (!(n > 0))
        return;
    for (int64_t r = 0; r < s->row->vocab; r++) {
        const float d = max - s->by_rank[r].z;
        if (!s->by_rank[r].in || !(d < 512))
            continue;
        const u128 units = (u128)nearbyint(ldexp((double)d, 11));
        count++;
        sum += units;
        squares += units * units;
    }
    const double sigma =
        ldexp(sqrt(cut_to_double(count * squares - sum * sum)) / (double)(int64_t)count, -11);
    const float limit = (float)((double)n * sigma);
    for (int64_t r = 0; r < s->row->vocab; r++)
        if (s->by_rank[r].in && max - s->by_rank[r].z > limit) {
            s->by_rank[r].in = false;
            out->sigma_cut = true;
        }
}

struct near {
    float far;
    struct token *token;
};

static int nearer(const void *a, const void *b)
{
    const struct near *x = a, *y = b;
    if (x->far != y->far)
        return x->far < y->far ? -1 : 1;
    return before(x->token, y->token);
}

static void typical_stage(struct state *s, float temperature, struct oracle_sample_result *out)
{
    const float p = s->row->typical;
    if (!(p < 1) || !s->draws)
        return;
    const u128 all = weigh_state(s, temperature);
    const float mean = (float)mean_heat(s, all);
    const uint64_t target = p > 0 ? theta_of(p, (uint64_t)all) : 1;
    struct near *const near = malloc((size_t)s->row->vocab * sizeof *near);
    int64_t n = 0, i = 0;
    if (!near)
        abort();
    for (int64_t r = 0; r < s->row->vocab; r++) {
        struct token *const t = &s->by_rank[r];
        if (t->in && t->w > 0)
            near[n++] = (struct near){fabsf(-t->t - mean), t};
        out->typical_cut |= t->in;
        t->in = false;
    }
    qsort(near, (size_t)n, sizeof *near, nearer);
    for (u128 sum = 0; sum < target; i++) {
        near[i].token->in = true;
        sum += near[i].token->w;
    }
    out->typical_cut &= i < n;
    out->typical_tied |= i < n && near[i].far == near[i - 1].far;
    for (; s->row->ties == SY_TIES_ALL && i < n && near[i].far == near[i - 1].far; i++)
        near[i].token->in = true;
    out->ranked = true;
    free(near);
    find_first(s);
}

static void xtc_stage(struct state *s, float temperature, struct oracle_sample_result *out)
{
    const struct oracle_sample_row *const row = s->row;
    uint32_t words[4];
    int64_t last = -1, n = 0;
    if (!(row->xtc > 0) || !(row->likely > 0) || row->likely >= 1 || row->given || !s->draws)
        return;
    draw(row->seed, row->offset, row->stream, 0xffffffffu, words);
    if ((long double)(words[2] + ((uint64_t)words[3] << 32)) >= ldexpl((long double)row->xtc, 64))
        return;
    const uint64_t likely = theta_of(row->likely, (uint64_t)weigh_state(s, temperature));
    for (int64_t r = 0; r < row->vocab; r++)
        if (s->by_rank[r].in && s->by_rank[r].w >= likely) {
            last = r;
            n++;
        }
    for (int64_t r = 0; r < last && n > 1; r++) {
        out->xtc_cut |= s->by_rank[r].in;
        s->by_rank[r].in = false;
    }
    find_first(s);
}

static float temperature_stage(struct state *s, struct oracle_sample_result *out)
{
    const struct oracle_sample_row *const row = s->row;
    const float t = isnan(row->temperature)       ? 1.0f
                    : row->temperature > 0x1p100f ? 0x1p100f
                                                  : row->temperature;
    const int64_t n = count_in(s);
    float made = t;
    if (!(row->range > 0))
        return clamp_temperature(row->temperature);
    out->dynamic = true;
    if (n > 1) {
        const u128 all = weigh_state(s, 1);
        const double entropy = oracle_sample_ln((uint64_t)all) + mean_heat(s, all);
        const double share = entropy / ln_of((double)n), x = share < 1 ? share : 1, y = (double)row->exponent;
        const float low = t - row->range > 0 ? t - row->range : 0, high = t + row->range;
        const double power = isnan(y) || y == 1 ? x
                             : y <= 0           ? 1
                             : x > 0            ? (double)oracle_sample_exp((float)(y * ln_of(x)))
                                                : 0;
        made = (float)fma((double)high - (double)low, power, (double)low);
    }
    s->cold = made < 1e-5f;
    s->greedy = row->noise == SY_NOISE_NONE || s->cold;
    return clamp_temperature(made);
}

static void top_p_stage(struct state *s, float temperature, struct oracle_sample_result *out)
{
    const struct oracle_sample_row *const row = s->row;
    int64_t n = 0;
    u128 sum = 0;
    if (!(row->p < 1))
        return;
    out->p_on = out->ranked = true;
    const u128 all = weigh_state(s, temperature);
    const uint64_t theta = row->p > 0 ? theta_of(row->p, (uint64_t)all) : 1;
    for (int64_t r = 0; r < row->vocab && sum < theta; r++)
        if (s->by_rank[r].in) {
            sum += s->by_rank[r].w;
            n++;
        }
    keep_first(s, n);
}

static void min_p_stage(struct state *s, float temperature, struct oracle_sample_result *out)
{
    const struct oracle_sample_row *const row = s->row;
    if (!(row->min_p > 0))
        return;
    weigh_state(s, temperature);
    for (int64_t r = 0; r < row->vocab; r++)
        if (s->by_rank[r].in && (row->min_p >= 1 ? r > s->first : s->by_rank[r].e < row->min_p)) {
            s->by_rank[r].in = false;
            out->mp_cut = true;
        }
}

/* By letter: temperature, top-n-sigma, top-k, typical, top-p, min-p, XTC. */
static void run_stages(struct state *s, struct oracle_sample_result *out)
{
    static const char *const orders[] = {"tskypmx", "skypmxt", "tmkp", "tkpmy"};
    const struct oracle_sample_row *const row = s->row;
    const int64_t limit = row->k_limit == 0           ? row->vocab - 1
                          : row->k_limit < row->vocab ? row->k_limit
                                                      : row->vocab;
    float t = 1;
    for (int64_t r = 0; r < row->vocab; r++)
        s->by_rank[r].in = s->by_rank[r].z > -INFINITY;
    s->first = 0;
    s->cold = s->cold && !(row->range > 0);
    s->greedy = row->noise == SY_NOISE_NONE || s->cold;
    s->draws = !s->greedy;
    for (const char *stage = orders[row->stages]; *stage && !s->empty; stage++) {
        if (*stage == 't')
            t = temperature_stage(s, out);
        else if (*stage == 's')
            sigma_stage(s, out);
        else if (*stage == 'k' && row->k >= 1 && row->k <= limit) {
            out->k_on = out->ranked = true;
            keep_first(s, row->k);
        } else if (*stage == 'y')
            typical_stage(s, t, out);
        else if (*stage == 'p')
            top_p_stage(s, t, out);
        else if (*stage == 'm')
            min_p_stage(s, t, out);
        else if (*stage == 'x')
            xtc_stage(s, t, out);
    }
    if (!s->empty)
        out->weight_sum = (uint64_t)weigh_state(s, t);
    for (int64_t j = 0; j < row->vocab; j++) {
        const int64_t r = out->ranked ? j : s->rank_of[j];
        if (s->by_rank[r].in)
            s->list[s->n++] = r;
    }
}

static int64_t choose_by_score(const struct state *s, struct oracle_sample_result *out)
{
    const struct oracle_sample_row *row = s->row;
    int64_t best = -1;
    float best_score = 0;
    for (int64_t j = 0; j < s->n; j++) {
        const struct token *c = &s->by_rank[s->list[j]];
        if (c->e == 0)
            continue;
        float noise =
            row->noise == SY_NOISE_RACE
                ? oracle_sample_race_noise(oracle_sample_race_word(row->seed, row->offset, row->stream, c->i))
                : row->q[row->q_order == SY_Q_VOCAB ? c->i : j];
        float score = score_of(c->e, noise, row->noise == SY_NOISE_RACE ? 0.0f : row->eps);
        if (best >= 0 && score == best_score)
            out->score_tied = true;
        if (best < 0 || score > best_score) {
            best = s->list[j];
            best_score = score;
            out->score_tied = false;
        }
    }
    return best < 0 ? s->first : best;
}

static u128 candidate_weight(const struct state *s)
{
    u128 sum = 0;
    for (int64_t j = 0; j < s->n; j++)
        sum += s->by_rank[s->list[j]].w;
    return sum;
}

static int64_t choose_by_cdf(const struct state *s)
{
    const struct oracle_sample_row *row = s->row;
    uint32_t words[4];
    draw(row->seed, row->offset, row->stream, 0xffffffffu, words);
    u128 u = words[0] + ((u128)words[1] << 32), total = candidate_weight(s), target = u * total >> 64,
         sum = 0;
    for (int64_t i = 0; i < row->vocab; i++) {
        const struct token *c = &s->by_rank[s->rank_of[i]];
        sum += c->in ? c->w : 0;
        if (sum > target)
            return s->rank_of[i];
    }
    return 0; /* no weight at all */
}

static float share(const struct oracle_sample_row *row, const struct token *chosen, uint64_t total)
{
    if (!row->probs_in)
        return (float)((double)chosen->t - oracle_sample_ln(total));
    return chosen->w == 0 ? -INFINITY : (float)(oracle_sample_ln(chosen->w) - oracle_sample_ln(total));
}

/* A distribution as a list by rank: of the caller's values, whatever is allowed or overridden, or of the candidates. */
struct ranked {
    int64_t n;
    int64_t *token;
    float *logprob;
};

static void rank_raw(const struct oracle_sample_row *row, struct token *all, struct ranked *to)
{
    uint64_t total = 0;
    const float *x = row->raw ? row->raw : row->x;
    for (int64_t i = 0; i < row->vocab; i++)
        all[i] = (struct token){.z = canonical(x[i]), .i = i};
    qsort(all, (size_t)row->vocab, sizeof *all, before);
    for (to->n = 0; to->n < row->vocab && all[to->n].z > -INFINITY; to->n++) {
        weigh(&all[to->n], all[0].z, 1.0f, row->probs_in);
        total += all[to->n].w;
    }
    for (int64_t r = 0; r < to->n; r++) {
        to->token[r] = all[r].i;
        to->logprob[r] = share(row, &all[r], total);
    }
}

static void rank_final(const struct state *s, struct ranked *to)
{
    const uint64_t total = (uint64_t)candidate_weight(s);
    to->n = 0;
    for (int64_t r = 0; r < s->row->vocab && !s->empty; r++) {
        const struct token *c = &s->by_rank[r];
        if (s->cold ? r != s->first : !c->in || !(c->z > -INFINITY))
            continue;
        to->token[to->n] = c->i;
        to->logprob[to->n++] = s->cold ? 0.0f : share(s->row, c, total);
    }
}

static int64_t place_of(const struct ranked *list, int64_t token)
{
    int64_t r = 0;
    while (r < list->n && list->token[r] != token)
        r++;
    return r;
}

static float logprob_in(const struct ranked *list, int64_t token)
{
    const int64_t r = place_of(list, token);
    return r < list->n ? list->logprob[r] : -INFINITY;
}

static void write_logprobs(const struct state *s, struct oracle_sample_result *out)
{
    const struct oracle_sample_row *row = s->row;
    const size_t vocab = (size_t)row->vocab;
    struct ranked list = {0, malloc(vocab * sizeof *list.token), malloc(vocab * sizeof *list.logprob)};
    struct token *all = malloc(vocab * sizeof *all);
    if (!list.token || !list.logprob || !all)
        abort();
    if (row->logprob_mode == SY_LOGPROB_RAW)
        rank_raw(row, all, &list);
    else
        rank_final(s, &list);
    const int64_t place = place_of(&list, out->token);
    out->logprob = s->empty && !row->given ? -INFINITY : logprob_in(&list, out->token);
    out->rank = (int32_t)(s->empty ? 0 : place < list.n ? place + 1 : row->vocab + 1);
    for (int64_t r = 0; r < row->n_top; r++) {
        out->top[r] = r < list.n ? list.token[r] : -1;
        out->top_logprob[r] = r < list.n ? list.logprob[r] : -INFINITY;
    }
    for (int64_t j = 0; j < row->n_score; j++)
        out->score_logprob[j] = logprob_in(&list, row->score[j]);
    free(list.token);
    free(list.logprob);
    free(all);
}

static void write_out(const struct state *s, struct oracle_sample_result *out)
{
    bool probs_in = s->row->probs_in;
    float fill = probs_in ? 0.0f : -INFINITY, sum = (float)out->weight_sum * 0x1p-40f;
    for (int64_t i = 0; i < s->row->vocab; i++) {
        const struct token *c = &s->by_rank[s->rank_of[i]];
        out->masked[i] = s->empty || !c->in || c->barred || isnan(c->raw) ? fill : c->raw;
        out->list[i] = 0;
        out->prob[i] = 0;
    }
    out->n = s->n;
    for (int64_t j = 0; j < s->n; j++) {
        const struct token *c = &s->by_rank[s->list[j]];
        out->list[j] = c->i;
        out->kept += c->z > -INFINITY;
        if (c->z > -INFINITY)
            out->prob[j] = probs_in ? c->raw : c->e / sum;
    }
}

void oracle_sample_row(const struct oracle_sample_row *row, struct oracle_sample_result *out)
{
    struct oracle_sample_result arrays = *out;
    *out = (struct oracle_sample_result){.list = arrays.list,
                                         .prob = arrays.prob,
                                         .masked = arrays.masked,
                                         .top = arrays.top,
                                         .top_logprob = arrays.top_logprob,
                                         .score_logprob = arrays.score_logprob};
    size_t vocab = (size_t)row->vocab;
    struct state s = {.row = row};
    s.by_rank = malloc(vocab * sizeof *s.by_rank);
    s.rank_of = malloc(vocab * sizeof *s.rank_of);
    s.list = malloc(vocab * sizeof *s.list);
    if (!s.by_rank || !s.rank_of || !s.list)
        abort();
    read_row(&s, out);
    if (row->staged)
        run_stages(&s, out);
    else
        make_list(&s, out);
    int64_t rank = s.first;
    if (!s.empty && !s.greedy)
        rank = row->noise == SY_NOISE_CDF ? choose_by_cdf(&s) : choose_by_score(&s, out);
    out->token = s.empty ? (row->empty_token == SY_EMPTY_ZERO ? 0 : -1) : s.by_rank[rank].i;
    if (row->given)
        out->token = *row->given;
    if (row->logprob_mode != SY_LOGPROB_NONE)
        write_logprobs(&s, out);
    write_out(&s, out);
    free(s.by_rank);
    free(s.rank_of);
    free(s.list);
}
