/*
 * moe_route on the CPU: rows over threads, each row through scores, selection, weights and outputs. Counts are kept per
 * task and added up in the end.
 */
#include "cpu/moe_route.h"
#include "plan/route_math.h"
#include "cpu/sample.h"
#include "kernels/kernels.h"
#include "cpu/backend.h"

enum {
    LANES = 16,          /* independent sums */
    BYTES_PER_LOGIT = 32 /* that could be copied while one is weighed, to size tasks */
};

struct job {
    const struct syi_moe_route_plan *plan;
    const struct syi_kernels *kernels;
    syi_keys_fn *keys; /* of a row of logits */
    int n_tasks;
    float *bias;                       /* [E] aligned, or NULL */
    bool plain_values;                 /* values of the selection are numbers, and not -0: see plain_keys */
    struct syi_route_scratch *scratch; /* [task] */
    struct syi_found *found;           /* [task] what is wrong with given experts, if they are given */
    struct syi_route_pairs pairs;
};

/* ---- Scratch ---- */

static int count_tasks(const sy_ctx *ctx, const struct syi_moe_route_plan *p)
{
    return syi_tasks(ctx, p->n_tokens, (uint64_t)p->n_tokens * (uint64_t)p->n_experts * BYTES_PER_LOGIT);
}

/* The winners and the first loser; or the kept groups; or all slots. */
static size_t most_picks(const struct syi_moe_route_plan *p)
{
    const bool groups = p->args.groups > 0 && p->args.top_groups > p->n_slots;
    return (size_t)(groups ? p->args.top_groups : p->n_slots) + 1;
}

static struct syi_route_scratch take_scratch(struct syi_arena *arena, const struct syi_moe_route_plan *p)
{
    const size_t word = sizeof(uint32_t), n = syi_route_padded(p->n_experts);
    struct syi_route_scratch s = {.key = syi_take(arena, n * word)};
    s.score = syi_take(arena, n * word);
    s.sum = p->bias.data != NULL ? syi_take(arena, n * word) : NULL;
    s.value = syi_take(arena, n * word);
    if (p->args.groups > 0)
        s.group_value = syi_take(arena, syi_route_padded(p->args.groups) * word);
    if (p->group_sum > 2)
        s.group_key = syi_take(arena, syi_route_padded(p->n_experts / p->args.groups) * word);
    if (syi_experts_given(p))
        s.given = syi_take(arena, (size_t)p->k * word);
    s.winner = syi_take(arena, (most_picks(p) > SYI_ROUTE_FOUND ? most_picks(p) : SYI_ROUTE_FOUND) * word);
    s.weight = syi_take(arena, (size_t)p->n_slots * word);
    s.winner_key = syi_take(arena, (size_t)p->k * word);
    s.mark = syi_take(arena, n);
    s.found = syi_take(arena, n * word);
    for (int i = 0; i < 3; i++)
        s.many_key[i] = syi_take(arena, n * word);
    for (int i = 0; i < 2; i++)
        s.many_idx[i] = syi_take(arena, n * word);
    s.hist = syi_take(arena, SYI_SELECT_BINS * sizeof *s.hist);
    return s;
}

/* Lays out the scratch of the whole call; the rest of the arena is for dropping. */
static void take_all(struct job *job, struct syi_arena *arena)
{
    const struct syi_moe_route_plan *p = job->plan;
    const size_t n_pairs = p->capacity > 0 ? syi_size_mul((size_t)p->n_tokens, (size_t)p->k) : 0;
    const size_t n_counts = syi_size_mul((size_t)job->n_tasks, (size_t)p->n_columns);
    if (p->bias.data != NULL)
        job->bias = syi_take(arena, (size_t)p->n_experts * sizeof *job->bias);
    job->scratch = syi_take(arena, (size_t)job->n_tasks * sizeof *job->scratch);
    if (syi_experts_given(p))
        job->found = syi_take(arena, (size_t)job->n_tasks * sizeof *job->found);
    for (int i = 0; i < job->n_tasks; i++) {
        const struct syi_route_scratch s = take_scratch(arena, p);
        if (job->scratch != NULL)
            job->scratch[i] = s;
    }
    job->pairs.n_tasks = job->n_tasks;
    job->pairs.count = syi_take(arena, syi_size_mul(n_counts, sizeof *job->pairs.count));
    job->pairs.expert = syi_take(arena, syi_size_mul(n_pairs, sizeof *job->pairs.expert));
    job->pairs.key = syi_take(arena, syi_size_mul(n_pairs, sizeof *job->pairs.key));
}

size_t syi_cpu_moe_route_workspace(const sy_ctx *ctx, const union syi_plan *plan)
{
    const struct syi_moe_route_plan *p = &plan->moe_route;
    struct job job = {.plan = p, .n_tasks = count_tasks(ctx, p)};
    struct syi_arena arena = {NULL, 0};
    take_all(&job, &arena);
    return p->capacity > 0 ? syi_size_add(arena.used, syi_route_drop_bytes(p, job.n_tasks)) : arena.used;
}

/* ---- Scores ---- */

/* The weight of an exponential as an integer in the lower bits of a sum: an f64 from 2^12 on has no bits below 2^-40. */
static inline uint64_t weight_bits(double e)
{
    const double above = e + 0x1p12;
    uint64_t bits;
    memcpy(&bits, &above, sizeof bits);
    return bits;
}

/* The sum of all weights. LANES independent sums hide latency. */
static uint64_t weigh(const float *e, int64_t n)
{
    uint64_t lane[LANES] = {0}, total = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += weight_bits((double)e[i + l]);
    for (; i < n; i++)
        total += weight_bits((double)e[i]);
    for (int l = 0; l < LANES; l++)
        total += lane[l];
    return total - (uint64_t)n * weight_bits(0.0);
}

/* Exponentials become shares of their sum; all are 0 when there is none. */
static void share_all(float *e, int64_t n, uint64_t total)
{
    const double divisor = syi_share_divisor(total);
    for (int64_t i = 0; i < n; i++)
        e[i] = syi_share(e[i], divisor);
}

/* Scores of logits that need no others. */
static void lone_scores(const struct job *job, const struct syi_route_scratch *s, const uint32_t *key,
                        float *score, int64_t n)
{
    const sy_route_score kind = job->plan->args.score;
    uint32_t *negative = s->value;
    if (kind == SY_SCORE_NONE) {
        for (int64_t i = 0; i < n; i++)
            score[i] = syi_key_value(key[i]);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        negative[i] = syi_negative_key(key[i]);
    job->kernels->exp_keys(score, negative, (size_t)n, 0.0f, 1.0f);
#define SCORE_ALL(ID, function) \
    if (kind == SY_SCORE_##ID) \
        for (int64_t i = 0; i < n; i++) \
            score[i] = function(syi_key_value(key[i]), score[i]);
    SYI_LONE_SCORES(SCORE_ALL)
#undef SCORE_ALL
}

/* Without bias and groups softmax scores order like the logits but for rounding, and only those of the
   winners are needed; so are those of given experts. */
static bool few_shares(const struct syi_moe_route_plan *p)
{
    const bool by_logit = (p->bias.data == NULL && p->args.groups == 0) || syi_experts_given(p);
    return p->args.score == SY_SCORE_SOFTMAX && by_logit && p->scores.data == NULL;
}

/* The sums that the shares of a softmax need besides its exponentials. */
struct softmax {
    float max;
    uint64_t total; /* of all weights */
};

/* Keys and scores of a row; where few_shares, exponentials instead of scores. */
static struct softmax score_row(const struct job *job, const struct syi_route_scratch *s,
                                const unsigned char *logits)
{
    const struct syi_moe_route_plan *p = job->plan;
    const int64_t n = p->n_experts;
    struct syi_key_stats stats = {0, 0};
    job->keys(s->key, logits, (size_t)n, &stats);
    struct softmax softmax = {.max = syi_key_value(stats.max)};
    if (p->args.score != SY_SCORE_SOFTMAX) {
        lone_scores(job, s, s->key, s->score, n);
    } else {
        job->kernels->exp_keys(s->score, s->key, (size_t)n, softmax.max, 1.0f);
        softmax.total = weigh(s->score, n);
        if (!few_shares(p))
            share_all(s->score, n, softmax.total);
    }
    return softmax;
}

/* ---- Selection ---- */

/* The key of the sum of the largest values of a group, added from the largest on. */
static uint32_t sum_of_largest(const struct job *job, const struct syi_route_scratch *s, const uint32_t *key,
                               int64_t size)
{
    const int64_t n = job->plan->group_sum;
    uint32_t top[2];
    if (n <= 2) {
        syi_route_two_largest(key, size, top);
        return n == 2 ? syi_key_sum(top[0], top[1]) : top[0];
    }
    memcpy(s->group_key, key, (size_t)size * sizeof *key);
    syi_route_pick(job->kernels, s, s->group_key, size, n);
    float sum = syi_key_value(key[s->winner[0]]);
    for (int64_t j = 1; j < n; j++)
        sum += syi_key_value(key[s->winner[j]]);
    return syi_group_key(sum);
}

/* Excludes the experts of all groups but the best. */
static void keep_groups(const struct job *job, const struct syi_route_scratch *s)
{
    const struct syi_moe_route_plan *p = job->plan;
    const int64_t size = p->n_experts / p->args.groups;
    for (int64_t g = 0; g < p->args.groups; g++)
        s->group_value[g] = sum_of_largest(job, s, s->value + g * size, size);
    syi_route_pick(job->kernels, s, s->group_value, p->args.groups, p->args.top_groups);
    for (int64_t j = 0; j < p->args.top_groups; j++)
        s->group_value[s->winner[j]] = 0;
    for (int64_t g = 0; g < p->args.groups; g++)
        if (s->group_value[g] != 0)
            memset(s->value + g * size, 0, (size_t)size * sizeof *s->value);
}

/* The largest key below that of the last winner, where no equal one lost. */
static uint32_t key_of_loser(const uint32_t *key, int64_t n, uint32_t last)
{
    uint32_t loser = 0;
    for (int64_t i = 0; i < n; i++)
        loser = key[i] < last && key[i] > loser ? key[i] : loser;
    return loser;
}

/* The exponential of the best expert that did not win, when no more than the winners were picked. */
static float best_loser(const struct job *job, const struct syi_route_scratch *s,
                        const struct softmax *softmax)
{
    const struct syi_moe_route_plan *p = job->plan;
    const uint32_t key = key_of_loser(s->key, p->n_experts, s->key[s->winner[p->k - 1]]);
    float e;
    job->kernels->exp_keys(&e, &key, 1, softmax->max, 1.0f);
    return e;
}

/* Winners of a softmax whose shares were not formed. False when the share of the first loser equals that of the last
   winner: then all shares must be compared. */
static bool select_few(const struct job *job, const struct syi_route_scratch *s,
                       const struct softmax *softmax)
{
    const struct syi_moe_route_plan *p = job->plan;
    const double divisor = syi_share_divisor(softmax->total);
    memcpy(s->value, s->key, (size_t)p->n_experts * sizeof *s->value);
    const int64_t picked = syi_route_pick(job->kernels, s, s->value, p->n_experts, p->k);
    for (int64_t j = 0; j < p->k; j++)
        s->weight[j] = syi_share(s->score[s->winner[j]], divisor);
    if (p->args.select == SY_SELECT_LOGIT)
        return true;
    if (p->k < p->n_experts) {
        const float loser = picked > p->k ? s->score[s->winner[p->k]] : best_loser(job, s, softmax);
        if (syi_share(loser, divisor) == s->weight[p->k - 1])
            return false;
    }
    for (int64_t j = 1; j < p->k; j++) { /* equal shares of unequal logits: lower expert first */
        const int32_t expert = s->winner[j];
        int64_t at = j;
        for (; at > 0 && s->weight[at - 1] == s->weight[j] && s->winner[at - 1] > expert; at--)
            s->winner[at] = s->winner[at - 1];
        s->winner[at] = expert;
    }
    return true;
}

/* The key of a number that is not -0. */
static inline uint32_t plain_key(float value)
{
    const uint32_t bits = syi_f32_bits(value);
    return bits ^ ((bits >> 31 ? UINT32_MAX : 0) | 0x80000000u);
}

/* Keys of the values of a row where scores are from 0 to 2^64 and biases are numbers: then a sum is neither NaN nor infinite,
   nor -0, which only that of two -0 is. */
static void plain_keys(const struct syi_route_scratch *s, const float *bias, int64_t n)
{
    if (bias == NULL)
        for (int64_t i = 0; i < n; i++)
            s->value[i] = plain_key(s->score[i]);
    else
        for (int64_t i = 0; i < n; i++)
            s->value[i] = plain_key(s->score[i] + bias[i]);
}

static bool has_plain_values(const struct syi_moe_route_plan *p, const float *bias)
{
    bool plain = p->args.score != SY_SCORE_NONE && p->args.select == SY_SELECT_SCORE;
    for (int64_t i = 0; bias != NULL && i < p->n_experts; i++)
        plain &= bias[i] >= -0x1p126f && bias[i] <= 0x1p126f;
    return plain;
}

/* Keys of the values of a row. */
static void any_keys(const struct job *job, const struct syi_route_scratch *s, int64_t n)
{
    struct syi_key_stats unused = {0, 0};
    const bool by_logit = job->plan->args.select == SY_SELECT_LOGIT;
    if (job->bias == NULL && by_logit) {
        memcpy(s->value, s->key, (size_t)n * sizeof *s->value);
        return;
    }
    for (int64_t i = 0; job->bias != NULL && i < n; i++)
        s->sum[i] = (by_logit ? syi_key_value(s->key[i]) : s->score[i]) + job->bias[i];
    job->kernels->keys[SYI_FLOAT_F32](s->value, job->bias != NULL ? s->sum : s->score, (size_t)n, &unused);
}

/* The chosen experts by descending value, and their scores as weights. */
static void select_experts(const struct job *job, const struct syi_route_scratch *s,
                           const struct softmax *softmax)
{
    const struct syi_moe_route_plan *p = job->plan;
    const int64_t n = p->n_experts;
    if (few_shares(p)) {
        if (select_few(job, s, softmax))
            return;
        share_all(s->score, n, softmax->total);
    }
    if (job->plain_values)
        plain_keys(s, job->bias, n);
    else
        any_keys(job, s, n);
    if (p->args.groups > 0)
        keep_groups(job, s);
    syi_route_pick(job->kernels, s, s->value, n, p->k);
    for (int64_t j = 0; j < p->k; j++)
        s->weight[j] = syi_score_weight(s->score[s->winner[j]]);
}

/* ---- Given experts ---- */

/* Whether the scores of all experts of a row are needed, and not only those of its own. */
static bool scores_whole_row(const struct syi_moe_route_plan *p)
{
    return p->args.score == SY_SCORE_SOFTMAX || p->scores.data != NULL || !syi_experts_given(p);
}

/* The experts of a token into s->given by slot, and those that are used into s->winner; returns how many. */
static int64_t take_given(const struct syi_moe_route_plan *p, const struct syi_route_scratch *s, int64_t t)
{
    const int64_t row = syi_given_row(p, t);
    int64_t n = 0;
    for (int64_t j = 0; j < p->k; j++) {
        const int64_t id = syi_given_id(p, row, j);
        const bool used = syi_is_expert(p, id);
        s->given[j] = used ? (int32_t)id : -1;
        s->winner[n] = (int32_t)id;
        n += used;
    }
    return n;
}

/* Keys and scores of n winners, each at the place of its expert. */
static void score_given(const struct job *job, const struct syi_route_scratch *s, const unsigned char *logits,
                        int64_t n, const struct softmax *softmax)
{
    const struct syi_moe_route_plan *p = job->plan;
    if (!scores_whole_row(p)) {
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = s->winner[i] * (int64_t)syi_float_bytes(p->logits.type);
            s->winner_key[i] = syi_key(syi_f32_bits(syi_load_float(logits + at, p->logits.type)));
        }
        lone_scores(job, s, s->winner_key, s->weight, n);
        for (int64_t i = 0; i < n; i++) {
            s->key[s->winner[i]] = s->winner_key[i];
            s->score[s->winner[i]] = s->weight[i];
        }
    } else if (few_shares(p)) {
        const double divisor = syi_share_divisor(softmax->total);
        for (int64_t i = 0; i < n; i++)
            s->score[s->winner[i]] = syi_share(s->score[s->winner[i]], divisor);
    }
}

/* Puts n winners in order of their values, equal ones by expert. */
static void order_given(const struct job *job, const struct syi_route_scratch *s, int64_t n)
{
    const struct syi_moe_route_plan *p = job->plan;
    int32_t *expert = (int32_t *)s->winner_key; /* ascending */
    memset(s->mark, 0, (size_t)p->n_experts);
    for (int64_t i = 0; i < n; i++)
        s->mark[s->winner[i]] = 1;
    job->kernels->nonzero_u8(s->found, s->mark, (size_t)p->n_experts);
    memcpy(expert, s->found, (size_t)n * sizeof *expert);
    for (int64_t i = 0; i < n; i++) {
        const float of =
            p->args.select == SY_SELECT_LOGIT ? syi_key_value(s->key[expert[i]]) : s->score[expert[i]];
        const float value = job->bias != NULL ? of + job->bias[expert[i]] : of;
        s->value[i] = syi_key(syi_f32_bits(value));
    }
    memset(s->value + n, 0, (syi_route_padded(n) - (size_t)n) * sizeof *s->value);
    syi_route_pick(job->kernels, s, s->value, n, n);
    for (int64_t i = 0; i < n; i++)
        s->winner[i] = expert[s->winner[i]];
}

/* Weights of n winners, by slot of the experts that were given. */
static void put_given(const struct syi_moe_route_plan *p, const struct syi_route_scratch *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        s->score[s->winner[i]] = s->weight[i];
    for (int64_t j = 0; j < p->k; j++) {
        s->winner[j] = s->given[j];
        s->weight[j] = s->given[j] >= 0 ? s->score[s->given[j]] : 0.0f;
    }
}

/* ---- Weights ---- */

static void softmax_of_winners(const struct job *job, const struct syi_route_scratch *s, int64_t n)
{
    uint32_t max = 0;
    for (int64_t j = 0; j < n; j++) {
        s->winner_key[j] = s->key[s->winner[j]];
        max = s->winner_key[j] > max ? s->winner_key[j] : max;
    }
    job->kernels->exp_keys(s->weight, s->winner_key, (size_t)n, syi_key_value(max), 1.0f);
    share_all(s->weight, n, weigh(s->weight, n));
}

static uint32_t shared_key(const struct syi_moe_route_plan *p, int64_t t, int64_t i)
{
    const unsigned char *at =
        syi_at(p->shared_logits, t) + i * (int64_t)syi_float_bytes(p->shared_logits.type);
    return syi_key(syi_f32_bits(syi_load_float(at, p->shared_logits.type)));
}

/* The weights of n winners of token t; returns what they were divided by. */
static float weigh_winners(const struct job *job, const struct syi_route_scratch *s, int64_t t, int64_t n)
{
    const struct syi_moe_route_plan *p = job->plan;
    float divisor = 0.0f;
    if (p->args.softmax_after)
        softmax_of_winners(job, s, n);
    if (p->args.renormalize) {
        float sum = 0.0f;
        for (int64_t j = 0; j < n; j++)
            sum += s->weight[j];
        for (int64_t i = 0; p->args.shared_in_sum && i < p->args.n_shared; i++)
            sum += syi_lone_score(p->args.score, shared_key(p, t, i));
        divisor = syi_route_divisor(p, sum);
        for (int64_t j = 0; j < n; j++)
            s->weight[j] = syi_renormalized(s->weight[j], divisor);
    }
    for (int64_t j = 0; j < n; j++)
        s->weight[j] = syi_scaled_weight(p, s->winner[j], s->weight[j]);
    return divisor;
}

/* The slots of shared experts. */
static void add_shared(const struct syi_moe_route_plan *p, const struct syi_route_scratch *s, int64_t t,
                       float divisor)
{
    for (int64_t i = 0; i < p->args.n_shared; i++) {
        s->winner[p->k + i] = (int32_t)(p->n_experts + i);
        s->weight[p->k + i] =
            syi_shared_weight(p, p->shared_logits.data != NULL ? shared_key(p, t, i) : 0, divisor);
    }
}

/* ---- Outputs ---- */

static void store_float(unsigned char *row, int64_t i, float value, sy_type type)
{
    if (type == SY_TYPE_F32) {
        memcpy(row + i * 4, &value, sizeof value);
        return;
    }
    const uint16_t bits = type == SY_TYPE_F16 ? syi_f32_to_f16(value) : syi_f32_to_bf16(value);
    memcpy(row + i * 2, &bits, sizeof bits);
}

static void store_slots(const struct syi_moe_route_plan *p, int64_t t, const int32_t *expert,
                        const float *weight)
{
    const int64_t k = p->n_slots;
    unsigned char *ids = p->ids.data != NULL ? syi_at(p->ids, t) : NULL;
    unsigned char *weights = p->weights.data != NULL ? syi_at(p->weights, t) : NULL;
    if (ids != NULL && p->ids.type == SY_TYPE_I32)
        memcpy(ids, expert, (size_t)k * sizeof *expert);
    for (int64_t j = 0; j < k && ids != NULL && p->ids.type == SY_TYPE_I64; j++)
        syi_store_i64(ids, j, expert[j]);
    if (weights != NULL && p->weights.type == SY_TYPE_F32)
        memcpy(weights, weight, (size_t)k * sizeof *weight);
    for (int64_t j = 0; j < k && weights != NULL && p->weights.type != SY_TYPE_F32; j++)
        store_float(weights, j, weight[j], p->weights.type);
}

static void clear_rows(const struct syi_moe_route_plan *p, int64_t t)
{
    if (p->map.data != NULL)
        memset(syi_at(p->map, t), 0, (size_t)p->n_columns);
    if (p->probs.data != NULL)
        memset(syi_at(p->probs, t), 0, (size_t)p->n_columns * syi_float_bytes(p->probs.type));
}

/* Winners and their weights in the order of the slots. */
static void sort_by_expert(const struct job *job, const struct syi_route_scratch *s)
{
    const struct syi_moe_route_plan *p = job->plan;
    memset(s->mark, 0, (size_t)p->n_experts);
    for (int64_t j = 0; j < p->k; j++) {
        s->mark[s->winner[j]] = 1;
        s->score[s->winner[j]] = s->weight[j];
    }
    job->kernels->nonzero_u8(s->found, s->mark, (size_t)p->n_experts);
    for (int64_t j = 0; j < p->k; j++) {
        s->winner[j] = s->found[j];
        s->weight[j] = s->score[s->winner[j]];
    }
}

/* Moves the slots that are used together; returns how many there are. */
static int64_t leave_out_unused(const struct syi_moe_route_plan *p, const struct syi_route_scratch *s)
{
    int64_t n = 0;
    for (int64_t j = 0; j < p->n_slots; j++)
        if (s->winner[j] >= 0) {
            s->winner[n] = s->winner[j];
            s->weight[n++] = s->weight[j];
        }
    return n;
}

static void write_winners(const struct job *job, const struct syi_route_scratch *s, int64_t t, int64_t *count)
{
    const struct syi_moe_route_plan *p = job->plan;
    struct syi_key_stats unused = {0, 0};
    store_slots(p, t, s->winner, s->weight);
    clear_rows(p, t);
    const int64_t n = syi_experts_given(p) ? leave_out_unused(p, s) : p->n_slots,
                  chosen = n - p->args.n_shared;
    for (int64_t j = 0; j < n && p->map.data != NULL; j++)
        syi_at(p->map, t)[s->winner[j]] = 1;
    for (int64_t j = 0; j < n && p->probs.data != NULL; j++)
        store_float(syi_at(p->probs, t), s->winner[j], s->weight[j], p->probs.type);
    for (int64_t j = 0; j < n; j++)
        count[s->winner[j]]++;
    if (p->capacity > 0) {
        memcpy(job->pairs.expert + t * p->k, s->winner, (size_t)chosen * sizeof *s->winner);
        job->kernels->keys[SYI_FLOAT_F32](job->pairs.key + t * p->k, s->weight, (size_t)chosen, &unused);
        if (chosen < p->k)
            job->pairs.expert[t * p->k + chosen] = -1;
    }
}

static void write_finished(const struct job *job, const struct syi_route_scratch *s, int64_t t)
{
    const struct syi_moe_route_plan *p = job->plan;
    clear_rows(p, t);
    for (int64_t j = 0; j < p->n_slots; j++) {
        s->winner[j] = (int32_t)p->n_columns;
        s->weight[j] = 0.0f;
    }
    store_slots(p, t, s->winner, s->weight);
    if (p->capacity > 0)
        job->pairs.expert[t * p->k] = -1;
}

/* ---- Rows ---- */

/* The experts and weights of a token by slot. */
static void route_row(const struct job *job, const struct syi_route_scratch *s, int64_t t,
                      const struct softmax *softmax)
{
    const struct syi_moe_route_plan *p = job->plan;
    float divisor;
    if (syi_experts_given(p)) {
        const int64_t n = take_given(p, s, t);
        score_given(job, s, syi_at(p->logits, t), n, softmax);
        if (p->args.renormalize && n > 0)
            order_given(job, s, n);
        for (int64_t i = 0; i < n; i++)
            s->weight[i] = syi_score_weight(s->score[s->winner[i]]);
        divisor = weigh_winners(job, s, t, n);
        put_given(p, s, n);
    } else {
        select_experts(job, s, softmax);
        divisor = weigh_winners(job, s, t, p->k);
        if (p->args.slot_order == SY_SLOT_EXPERT)
            sort_by_expert(job, s);
    }
    add_shared(p, s, t, divisor);
}

static void route_rows(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_route_plan *p = job->plan;
    const struct syi_route_scratch *s = &job->scratch[task];
    int64_t *count = job->pairs.count + task * p->n_columns;
    const int64_t end = syi_part(p->n_tokens, job->n_tasks, task + 1);

    memset(count, 0, (size_t)p->n_columns * sizeof *count);
    memset(s->value, 0, syi_route_padded(p->n_experts) * sizeof *s->value);
    if (p->args.groups > 0)
        memset(s->group_value, 0, syi_route_padded(p->args.groups) * sizeof *s->group_value);
    if (p->group_sum > 2)
        memset(s->group_key, 0, syi_route_padded(p->n_experts / p->args.groups) * sizeof *s->group_key);
    for (int64_t t = syi_part(p->n_tokens, job->n_tasks, task); t < end; t++) {
        const bool finished = p->finished.data != NULL && p->finished.data[t] != 0;
        struct softmax softmax = {0, 0};
        if (p->scores.data != NULL || (!finished && scores_whole_row(p)))
            softmax = score_row(job, s, syi_at(p->logits, t));
        if (p->scores.data != NULL)
            memcpy(syi_at(p->scores, t), s->score, (size_t)p->n_experts * sizeof *s->score);
        if (finished) {
            write_finished(job, s, t);
            continue;
        }
        route_row(job, s, t, &softmax);
        write_winners(job, s, t, count);
    }
}

static void validate_rows(void *data, int task)
{
    const struct job *job = data;
    const int64_t n = job->plan->n_tokens, first = syi_part(n, job->n_tasks, task);
    unsigned char *mark = job->scratch[task].mark;
    memset(mark, 0, (size_t)job->plan->n_experts);
    job->found[task] = syi_route_validate(job->plan, first, syi_part(n, job->n_tasks, task + 1), mark);
}

static void add_counts(const struct job *job)
{
    const struct syi_moe_route_plan *p = job->plan;
    for (int64_t e = 0; e < p->n_columns; e++) {
        int64_t sum = 0;
        for (int b = 0; b < job->n_tasks; b++)
            sum += job->pairs.count[b * p->n_columns + e];
        syi_store_i64(p->counts.data, e, sum);
    }
}

sy_status syi_cpu_moe_route(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_route_plan *p = &plan->moe_route;
    struct job job = {.plan = p,
                      .kernels = ctx->kernels,
                      .keys = ctx->kernels->keys[syi_float_of(p->logits.type)],
                      .n_tasks = count_tasks(ctx, p)};
    struct syi_arena arena = {workspace, 0};

    take_all(&job, &arena);
    if (p->bias.data != NULL)
        memcpy(job.bias, p->bias.data, (size_t)p->n_experts * sizeof *job.bias);
    job.plain_values = has_plain_values(p, job.bias);
    if (syi_experts_given(p)) {
        syi_parallel(ctx, job.n_tasks, validate_rows, &job);
        const struct syi_found found = syi_first_bad(job.found, job.n_tasks);
        if (found.bad != SYI_GOOD)
            return syi_report(ctx, found);
    }
    syi_parallel(ctx, job.n_tasks, route_rows, &job);
    if (p->counts.data != NULL)
        add_counts(&job);
    if (p->capacity > 0)
        syi_route_drop(ctx, p, &job.pairs, arena.base + arena.used);
    return SY_OK;
}
