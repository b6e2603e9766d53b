/*
 * moe_route on the CPU: rows over threads, each row through scores, selection, weights and outputs. Few
 * experts are picked out of few, so selection finds a floor that little more than k experts reach and ranks
 * those by comparing each with each; nothing is sorted. Counts are kept per task and added up in the end.
 */
#include "cpu/moe_route.h"
#include "base/route_math.h"
#include "cpu/sample.h"
#include "kernels/kernels.h"
#include "cpu/backend.h"
#include "cpu/load.h"
#include "cpu/pool.h"

enum {
    ROWS = 4, /* lanes of keys that are compared at a time */
    COLUMNS = 4,
    LANES = ROWS * COLUMNS,
    WIDTH = 64,          /* keys whose comparisons fill a word */
    MOST_FOUND = 64,     /* candidates that are ranked by comparing each with each */
    BYTES_PER_LOGIT = 32 /* that could be copied while one is weighed, to size tasks */
};

typedef void keys_fn(uint32_t *key, const void *x, size_t n, struct syi_key_stats *stats);

/* Scratch of one task; arrays have E entries, or as stated, and go on to a multiple of WIDTH. */
struct scratch {
    uint32_t *key;         /* of the logits */
    float *score;          /* exponentials, then scores; in the end weights by expert */
    float *sum;            /* score + bias */
    uint32_t *value;       /* keys of the selection; 0: not selectable */
    uint32_t *group_value; /* [groups] */
    int32_t *winner;       /* [most_picks], by descending value */
    float *weight;         /* [K] */
    uint32_t *winner_key;  /* [K] */
    int32_t *found;        /* candidates, ascending */
    unsigned char *mark;   /* chosen experts, to be found in ascending order */
    uint32_t *many_key[3]; /* for a radix select */
    int32_t *many_idx[2];
    uint64_t *hist; /* [SYI_SELECT_BINS] */
};

struct job {
    const struct syi_moe_route_plan *plan;
    const struct syi_kernels *kernels;
    keys_fn *keys; /* of a row of logits */
    int n_tasks;
    float *bias;             /* [E] aligned, or NULL */
    bool plain_values;       /* values of the selection are numbers, and not -0: see plain_keys */
    struct scratch *scratch; /* [task] */
    struct syi_route_pairs pairs;
};

/* ---- Scratch ----------------------------------------------------------------------------------------- */

static int count_tasks(const sy_ctx *ctx, const struct syi_moe_route_plan *p)
{
    return syi_tasks(ctx, p->n_tokens, (uint64_t)p->n_tokens * (uint64_t)p->n_experts * BYTES_PER_LOGIT);
}

static size_t padded(int64_t n)
{
    return ((size_t)n + WIDTH - 1) / WIDTH * WIDTH;
}

/* The winners and the first loser; or the kept groups. */
static size_t most_picks(const struct syi_moe_route_plan *p)
{
    const bool groups = p->n_groups > 0 && p->top_groups > p->k;
    return (size_t)(groups ? p->top_groups : p->k) + 1;
}

static struct scratch take_scratch(struct syi_arena *arena, const struct syi_moe_route_plan *p)
{
    const size_t word = sizeof(uint32_t), n = padded(p->n_experts);
    struct scratch s = {.key = syi_take(arena, n * word)};
    s.score = syi_take(arena, n * word);
    s.sum = p->bias != NULL ? syi_take(arena, n * word) : NULL;
    s.value = syi_take(arena, n * word);
    if (p->n_groups > 0) {
        s.group_value = syi_take(arena, padded(p->n_groups) * word);
    }
    s.winner = syi_take(arena, (most_picks(p) > MOST_FOUND ? most_picks(p) : MOST_FOUND) * word);
    s.weight = syi_take(arena, (size_t)p->k * word);
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
    const size_t n_counts = syi_size_mul((size_t)job->n_tasks, (size_t)p->n_experts);
    if (p->bias != NULL)
        job->bias = syi_take(arena, (size_t)p->n_experts * sizeof *job->bias);
    job->scratch = syi_take(arena, (size_t)job->n_tasks * sizeof *job->scratch);
    for (int i = 0; i < job->n_tasks; i++) {
        const struct scratch s = take_scratch(arena, p);
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

/* ---- Scores ------------------------------------------------------------------------------------------ */

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

static void sigmoids(const struct job *job, const struct scratch *s, int64_t n)
{
    uint32_t *negative = s->value;
    for (int64_t i = 0; i < n; i++)
        negative[i] = syi_negative_key(s->key[i]);
    job->kernels->exp_keys(s->score, negative, (size_t)n, 0.0f, 1.0f);
    for (int64_t i = 0; i < n; i++)
        s->score[i] = syi_sigmoid(s->key[i], s->score[i]);
}

/* Without bias and groups softmax scores order like the logits but for rounding, and only those of the
   winners are needed. */
static bool few_shares(const struct syi_moe_route_plan *p)
{
    return p->score == SY_SCORE_SOFTMAX && p->bias == NULL && p->n_groups == 0 && p->scores.data == NULL;
}

/* The sums that the shares of a softmax need besides its exponentials. */
struct softmax {
    float max;
    uint64_t total; /* of all weights */
};

/* Keys and scores of a row; where few_shares, exponentials instead of scores. */
static struct softmax score_row(const struct job *job, const struct scratch *s, const unsigned char *logits)
{
    const struct syi_moe_route_plan *p = job->plan;
    const int64_t n = p->n_experts;
    struct syi_key_stats stats = {0, 0};
    job->keys(s->key, logits, (size_t)n, &stats);
    struct softmax softmax = {.max = syi_key_value(stats.max)};
    if (p->score == SY_SCORE_SIGMOID) {
        sigmoids(job, s, n);
    } else if (p->score == SY_SCORE_SOFTMAX) {
        job->kernels->exp_keys(s->score, s->key, (size_t)n, softmax.max, 1.0f);
        softmax.total = weigh(s->score, n);
        if (!few_shares(p))
            share_all(s->score, n, softmax.total);
    } else {
        for (int64_t i = 0; i < n; i++)
            s->score[i] = syi_key_value(s->key[i]);
    }
    return softmax;
}

/* ---- Selection --------------------------------------------------------------------------------------- */

/*
 * A floor that at least k <= LANES keys reach, and few more. The maxima of interleaved lanes form
 * rows and columns; each column is sorted, and the first r rows hold r maxima of every column.
 */
static uint32_t floor_of(const uint32_t *key, int64_t n, int64_t k)
{
    static const unsigned char exchange[][2] = {{0, 1}, {2, 3}, {0, 2}, {1, 3}, {1, 2}};
    uint32_t top[ROWS][COLUMNS] = {{0}};
    for (int64_t i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            uint32_t *lane = &top[l / COLUMNS][l % COLUMNS];
            *lane = key[i + l] > *lane ? key[i + l] : *lane;
        }
    for (size_t x = 0; x < sizeof exchange / sizeof *exchange; x++)
        for (int c = 0; c < COLUMNS; c++) {
            uint32_t *high = &top[exchange[x][0]][c], *low = &top[exchange[x][1]][c];
            const uint32_t larger = *high > *low ? *high : *low;
            *low = *high > *low ? *low : *high;
            *high = larger;
        }
    uint32_t floor = UINT32_MAX;
    for (int c = 0; c < COLUMNS; c++)
        floor = top[(k - 1) / COLUMNS][c] < floor ? top[(k - 1) / COLUMNS][c] : floor;
    return floor > 0 ? floor : 1;
}

/* The places of the keys that reach the floor, ascending, into s->found; returns how many. */
static size_t find_reaching(const struct job *job, const struct scratch *s, const uint32_t *key, int64_t n,
                            uint32_t floor)
{
    const size_t end = padded(n);
    unsigned char *reaches = s->mark;
    for (size_t i = 0; i < end; i += WIDTH)
        for (size_t l = 0; l < WIDTH; l++)
            reaches[i + l] = key[i + l] >= floor;
    return job->kernels->nonzero_u8(s->found, reaches, end);
}

static size_t all_places(const struct scratch *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        s->found[i] = (int32_t)i;
    return (size_t)n;
}

typedef uint32_t lanes4 __attribute__((vector_size(16))); /* a comparison gives all bits where it holds */

/* How many of `found` keys come before each of LANES of them that begin at place `first`, a multiple of LANES: larger
   ones, and equal ones of a lower place. Zeros follow the keys up to a multiple of LANES. */
static void count_before(const uint32_t *top, size_t found, size_t first, uint32_t *rank)
{
    static const lanes4 after[COLUMNS] = {{0, 1, 1, 1}, {0, 0, 1, 1}, {0, 0, 0, 1}, {0, 0, 0, 0}};
    lanes4 mine[ROWS], sum[ROWS] = {{0}, {0}, {0}, {0}};
    memcpy(mine, top + first, sizeof mine);
    for (size_t i = 0; i < found; i += COLUMNS)
        for (size_t c = 0; c < COLUMNS; c++)
            for (size_t v = 0; v < ROWS; v++) {
                const size_t at = first + v * COLUMNS;
                const uint32_t key = top[i + c];
                sum[v] -= (lanes4)(i < at   ? key >= mine[v]
                                   : i > at ? key > mine[v]
                                            : key + after[c] > mine[v]);
            }
    memcpy(rank, sum, sizeof sum);
}

/* s->found in order of their keys, `top`, into s->winner, equal ones by place. */
static void rank_found(const struct scratch *s, const uint32_t *top, size_t found)
{
    for (size_t first = 0; first < found; first += LANES) {
        uint32_t rank[LANES];
        const size_t n = found - first < LANES ? found - first : LANES;
        count_before(top, found, first, rank);
        for (size_t l = 0; l < n; l++)
            s->winner[rank[l]] = s->found[first + l];
    }
}

/*
 * At least the k first of the order into s->winner; returns how many, or 0 when more keys reach the floor
 * than can be compared each with each. 0 is below every selectable key, and follows the n keys up to
 * a multiple of WIDTH. Nothing here branches on a comparison of keys.
 */
static int64_t pick_few(const struct job *job, const struct scratch *s, const uint32_t *key, int64_t n,
                        int64_t k)
{
    uint32_t top[MOST_FOUND + LANES];
    const size_t found = n <= LANES ? all_places(s, n) : find_reaching(job, s, key, n, floor_of(key, n, k));
    if (found > MOST_FOUND)
        return 0;
    for (size_t i = 0; i < found; i++)
        top[i] = key[s->found[i]];
    memset(top + found, 0, LANES * sizeof *top);
    rank_found(s, top, found);
    return (int64_t)found;
}

/* At least the k first of the order into s->winner; returns how many. */
static int64_t pick(const struct job *job, const struct scratch *s, uint32_t *key, int64_t n, int64_t k)
{
    const int64_t few = k <= LANES ? pick_few(job, s, key, n, k) : 0;
    if (few > 0)
        return few;
    const int64_t many = k < n ? k + 1 : k;
    struct syi_candidates c = {key, NULL, n};
    struct syi_cut cut = {0, 0};
    syi_select(&c, NULL, (uint64_t)many, s->hist, &cut);
    syi_keep(&c, cut.key, (int64_t)cut.rest, s->many_key[0], s->found);
    const struct syi_candidates order = syi_rank_order(&c, &s->many_key[1], s->many_idx, s->hist);
    memcpy(s->winner, order.idx, (size_t)many * sizeof *s->winner);
    return many;
}

/* The two largest keys of a group, in columns side by side; the second is 0 in a group of one. */
static void two_largest(const uint32_t *key, int64_t n, uint32_t top[2])
{
    uint32_t first[COLUMNS] = {0}, second[COLUMNS] = {0};
    int64_t i = 0;
    for (; i + COLUMNS <= n; i += COLUMNS)
        for (int c = 0; c < COLUMNS; c++)
            syi_keep_two(&first[c], &second[c], key[i + c]);
    for (; i < n; i++)
        syi_keep_two(&first[0], &second[0], key[i]);
    for (int c = 1; c < COLUMNS; c++) {
        syi_keep_two(&first[0], &second[0], first[c]);
        syi_keep_two(&first[0], &second[0], second[c]);
    }
    top[0] = first[0];
    top[1] = second[0];
}

/* Excludes the experts of all groups but the best. */
static void keep_groups(const struct job *job, const struct scratch *s)
{
    const struct syi_moe_route_plan *p = job->plan;
    const int64_t size = p->n_experts / p->n_groups;
    for (int64_t g = 0; g < p->n_groups; g++) {
        uint32_t top[2];
        two_largest(s->value + g * size, size, top);
        s->group_value[g] = top[0];
        if (p->group_score == SY_GROUP_SUM2 && size > 1)
            s->group_value[g] = syi_key_sum(top[0], top[1]);
    }
    pick(job, s, s->group_value, p->n_groups, p->top_groups);
    for (int64_t j = 0; j < p->top_groups; j++)
        s->group_value[s->winner[j]] = 0;
    for (int64_t g = 0; g < p->n_groups; g++)
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
static float best_loser(const struct job *job, const struct scratch *s, const struct softmax *softmax)
{
    const struct syi_moe_route_plan *p = job->plan;
    const uint32_t key = key_of_loser(s->key, p->n_experts, s->key[s->winner[p->k - 1]]);
    float e;
    job->kernels->exp_keys(&e, &key, 1, softmax->max, 1.0f);
    return e;
}

/* Winners of a softmax whose shares were not formed. False when the share of the first loser equals that of the last
   winner: then all shares must be compared. */
static bool select_few(const struct job *job, const struct scratch *s, const struct softmax *softmax)
{
    const struct syi_moe_route_plan *p = job->plan;
    const double divisor = syi_share_divisor(softmax->total);
    memcpy(s->value, s->key, (size_t)p->n_experts * sizeof *s->value);
    const int64_t picked = pick(job, s, s->value, p->n_experts, p->k);
    for (int64_t j = 0; j < p->k; j++)
        s->weight[j] = syi_share(s->score[s->winner[j]], divisor);
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

/* Keys of the values of a row where scores are from 0 to 1 and biases are numbers: then a sum is neither NaN nor infinite,
   nor -0, which only that of two -0 is. */
static void plain_keys(const struct scratch *s, const float *bias, int64_t n)
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
    bool plain = p->score != SY_SCORE_NONE;
    for (int64_t i = 0; bias != NULL && i < p->n_experts; i++)
        plain &= bias[i] >= -0x1p126f && bias[i] <= 0x1p126f;
    return plain;
}

/* The chosen experts by descending value, and their scores as weights. */
static void select_experts(const struct job *job, const struct scratch *s, const struct softmax *softmax)
{
    const struct syi_moe_route_plan *p = job->plan;
    const int64_t n = p->n_experts;
    struct syi_key_stats unused = {0, 0};
    if (few_shares(p)) {
        if (select_few(job, s, softmax))
            return;
        share_all(s->score, n, softmax->total);
    }
    if (job->plain_values) {
        plain_keys(s, job->bias, n);
    } else {
        for (int64_t i = 0; p->bias != NULL && i < n; i++)
            s->sum[i] = s->score[i] + job->bias[i];
        job->kernels->keys_f32(s->value, p->bias != NULL ? s->sum : s->score, (size_t)n, &unused);
    }
    if (p->n_groups > 0)
        keep_groups(job, s);
    pick(job, s, s->value, n, p->k);
    for (int64_t j = 0; j < p->k; j++)
        s->weight[j] = syi_score_weight(s->score[s->winner[j]]);
}

/* ---- Weights ----------------------------------------------------------------------------------------- */

static void softmax_of_winners(const struct job *job, const struct scratch *s)
{
    const int64_t k = job->plan->k;
    uint32_t max = 0;
    for (int64_t j = 0; j < k; j++) {
        s->winner_key[j] = s->key[s->winner[j]];
        max = s->winner_key[j] > max ? s->winner_key[j] : max;
    }
    job->kernels->exp_keys(s->weight, s->winner_key, (size_t)k, syi_key_value(max), 1.0f);
    share_all(s->weight, k, weigh(s->weight, k));
}

static void weigh_winners(const struct job *job, const struct scratch *s)
{
    const struct syi_moe_route_plan *p = job->plan;
    if (p->softmax_after)
        softmax_of_winners(job, s);
    if (p->renormalize) {
        float sum = 0.0f;
        for (int64_t j = 0; j < p->k; j++)
            sum += s->weight[j];
        sum += p->eps;
        for (int64_t j = 0; j < p->k; j++)
            s->weight[j] = syi_renormalized(s->weight[j], sum);
    }
    for (int64_t j = 0; j < p->k; j++)
        s->weight[j] *= p->scale;
}

/* ---- Outputs ----------------------------------------------------------------------------------------- */

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
    const int64_t k = p->k;
    unsigned char *ids = p->ids.data != NULL ? syi_row(p->ids, t) : NULL;
    unsigned char *weights = p->weights.data != NULL ? syi_row(p->weights, t) : NULL;
    if (ids != NULL && p->id_type == SY_TYPE_I32)
        memcpy(ids, expert, (size_t)k * sizeof *expert);
    for (int64_t j = 0; j < k && ids != NULL && p->id_type == SY_TYPE_I64; j++)
        syi_store_i64(ids, j, expert[j]);
    if (weights != NULL && p->weight_type == SY_TYPE_F32)
        memcpy(weights, weight, (size_t)k * sizeof *weight);
    for (int64_t j = 0; j < k && weights != NULL && p->weight_type != SY_TYPE_F32; j++)
        store_float(weights, j, weight[j], p->weight_type);
}

static void clear_rows(const struct syi_moe_route_plan *p, int64_t t)
{
    if (p->map.data != NULL)
        memset(syi_row(p->map, t), 0, (size_t)p->n_experts);
    if (p->probs.data != NULL)
        memset(syi_row(p->probs, t), 0, (size_t)p->n_experts * syi_float_bytes(p->prob_type));
}

/* Winners and their weights in the order of the slots. */
static void sort_by_expert(const struct job *job, const struct scratch *s)
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

static void write_winners(const struct job *job, const struct scratch *s, int64_t t, int64_t *count)
{
    const struct syi_moe_route_plan *p = job->plan;
    struct syi_key_stats unused = {0, 0};
    if (p->slot_order == SY_SLOT_EXPERT)
        sort_by_expert(job, s);
    store_slots(p, t, s->winner, s->weight);
    clear_rows(p, t);
    for (int64_t j = 0; j < p->k && p->map.data != NULL; j++)
        syi_row(p->map, t)[s->winner[j]] = 1;
    for (int64_t j = 0; j < p->k && p->probs.data != NULL; j++)
        store_float(syi_row(p->probs, t), s->winner[j], s->weight[j], p->prob_type);
    for (int64_t j = 0; j < p->k; j++)
        count[s->winner[j]]++;
    if (p->capacity > 0) {
        memcpy(job->pairs.expert + t * p->k, s->winner, (size_t)p->k * sizeof *s->winner);
        job->kernels->keys_f32(job->pairs.key + t * p->k, s->weight, (size_t)p->k, &unused);
    }
}

static void write_finished(const struct job *job, const struct scratch *s, int64_t t)
{
    const struct syi_moe_route_plan *p = job->plan;
    clear_rows(p, t);
    for (int64_t j = 0; j < p->k; j++) {
        s->winner[j] = (int32_t)p->n_experts;
        s->weight[j] = 0.0f;
    }
    store_slots(p, t, s->winner, s->weight);
    if (p->capacity > 0)
        job->pairs.expert[t * p->k] = -1;
}

/* ---- Rows -------------------------------------------------------------------------------------------- */

static void route_rows(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_route_plan *p = job->plan;
    const struct scratch *s = &job->scratch[task];
    int64_t *count = job->pairs.count + task * p->n_experts;
    const int64_t end = syi_part(p->n_tokens, job->n_tasks, task + 1);

    memset(count, 0, (size_t)p->n_experts * sizeof *count);
    memset(s->value, 0, padded(p->n_experts) * sizeof *s->value);
    if (p->n_groups > 0)
        memset(s->group_value, 0, padded(p->n_groups) * sizeof *s->group_value);
    for (int64_t t = syi_part(p->n_tokens, job->n_tasks, task); t < end; t++) {
        const bool finished = p->finished != NULL && p->finished[t] != 0;
        struct softmax softmax = {0, 0};
        if (!finished || p->scores.data != NULL)
            softmax = score_row(job, s, syi_row(p->logits, t));
        if (p->scores.data != NULL)
            memcpy(syi_row(p->scores, t), s->score, (size_t)p->n_experts * sizeof *s->score);
        if (finished) {
            write_finished(job, s, t);
            continue;
        }
        select_experts(job, s, &softmax);
        weigh_winners(job, s);
        write_winners(job, s, t, count);
    }
}

static void add_counts(const struct job *job)
{
    const struct syi_moe_route_plan *p = job->plan;
    for (int64_t e = 0; e < p->n_experts; e++) {
        int64_t sum = 0;
        for (int b = 0; b < job->n_tasks; b++)
            sum += job->pairs.count[b * p->n_experts + e];
        syi_store_i64(p->counts, e, sum);
    }
}

static keys_fn *keys_for(const struct syi_kernels *kernels, sy_type type)
{
    return type == SY_TYPE_F32   ? kernels->keys_f32
           : type == SY_TYPE_F16 ? kernels->keys_f16
                                 : kernels->keys_bf16;
}

sy_status syi_cpu_moe_route(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_route_plan *p = &plan->moe_route;
    struct job job = {.plan = p,
                      .kernels = ctx->kernels,
                      .keys = keys_for(ctx->kernels, p->type),
                      .n_tasks = count_tasks(ctx, p)};
    struct syi_arena arena = {workspace, 0};

    take_all(&job, &arena);
    if (p->bias != NULL)
        memcpy(job.bias, p->bias, (size_t)p->n_experts * sizeof *job.bias);
    job.plain_values = has_plain_values(p, job.bias);
    syi_parallel(ctx, job.n_tasks, route_rows, &job);
    if (p->counts != NULL)
        add_counts(&job);
    if (p->capacity > 0)
        syi_route_drop(ctx, p, &job.pairs, arena.base + arena.used);
    return SY_OK;
}
