/*
 * moe_route on the CPU: rows over threads, each row through scores, selection, weights and outputs. Few
 * experts are picked out of few, so selection finds a floor that little more than k experts reach and ranks
 * those by comparing each with each; nothing is sorted. Counts are kept per task and added up in the end.
 */
#include "cpu/moe_route.h"
#include "cpu/backend.h"
#include "cpu/sample.h"
#include "kernels/kernels.h"

#include <float.h>

enum {
    ROWS = 4, /* of lanes of keys that are looked at side by side */
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
    uint32_t *value;       /* keys that are selected by; 0: does not compete */
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

/* The winners, the first loser; or the groups that stay. */
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

/* Cuts the scratch of the whole call; what it leaves of the arena is for dropping. */
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

/* The weight of an exponential, e*2^40 rounded to a whole number, plus 2^52: its lower bits are the integer,
   as in syi_weight, and taking 2^52 away leaves it as a double. */
static inline double weight_above(float e)
{
    return (double)e * 0x1p40 + 0x1p52;
}

static uint64_t weigh(const float *e, int64_t n)
{
    uint64_t total = 0;
    for (int64_t i = 0; i < n; i++) {
        const double above = weight_above(e[i]);
        uint64_t bits;
        memcpy(&bits, &above, sizeof bits);
        total += bits - UINT64_C(0x4330000000000000);
    }
    return total;
}

/* The weight of e over the total: one division, one rounding. */
static inline float share(float e, double total)
{
    return (float)((weight_above(e) - 0x1p52) / total);
}

/* Exponentials become shares of their sum; all are 0 when there is none. */
static void share_all(float *e, int64_t n, uint64_t total)
{
    const double divisor = total > 0 ? (double)total : 1.0;
    for (int64_t i = 0; i < n; i++)
        e[i] = share(e[i], divisor);
}

/* exp(-|x|): the key of -|x| is that of x with all bits flipped when x is positive. */
static void sigmoids(const struct job *job, const struct scratch *s, int64_t n)
{
    uint32_t *negative = s->value;
    for (int64_t i = 0; i < n; i++)
        negative[i] = s->key[i] >> 31 ? ~s->key[i] : s->key[i];
    job->kernels->exp_keys(s->score, negative, (size_t)n, 0.0f, 1.0f);
    for (int64_t i = 0; i < n; i++)
        s->score[i] = (s->key[i] >> 31 ? 1.0f : s->score[i]) / (1.0f + s->score[i]);
}

/* Without bias and groups softmax scores order like the logits but for rounding, and only those of the
   winners are needed. */
static bool few_shares(const struct syi_moe_route_plan *p)
{
    return p->score == SY_SCORE_SOFTMAX && p->bias == NULL && p->n_groups == 0 && p->scores.data == NULL;
}

/* Keys and scores of a row; returns the total weight of a softmax whose division is left for later. */
static uint64_t score_row(const struct job *job, const struct scratch *s, const unsigned char *logits)
{
    const struct syi_moe_route_plan *p = job->plan;
    const int64_t n = p->n_experts;
    struct syi_key_stats stats = {0, 0};
    uint64_t total = 0;
    job->keys(s->key, logits, (size_t)n, &stats);
    if (p->score == SY_SCORE_SIGMOID) {
        sigmoids(job, s, n);
    } else if (p->score == SY_SCORE_SOFTMAX) {
        job->kernels->exp_keys(s->score, s->key, (size_t)n, syi_key_value(stats.max), 1.0f);
        total = weigh(s->score, n);
        if (!few_shares(p))
            share_all(s->score, n, total);
    } else {
        for (int64_t i = 0; i < n; i++)
            s->score[i] = syi_key_value(s->key[i]);
    }
    return total;
}

/* ---- Selection --------------------------------------------------------------------------------------- */

/*
 * A floor that at least k <= LANES keys reach, and few more. The maxima of interleaved lanes stand in
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

/* One bit for each of WIDTH keys that reaches the floor. */
static uint64_t reaching(const uint32_t *key, uint32_t floor)
{
    uint64_t mask = 0;
    for (int part = 0; part < WIDTH; part += 16) {
        uint32_t bits = 0;
        for (int i = 0; i < 16; i++)
            bits += key[part + i] >= floor ? 1u << i : 0;
        mask |= (uint64_t)bits << part;
    }
    return mask;
}

/*
 * At least the k first of the order into s->winner; returns how many, or 0 when more keys reach the floor
 * than can be compared each with each. 0 is below every key of a competing expert, and stands behind the n keys up to
 * a multiple of WIDTH. Nothing here branches on a comparison of keys.
 */
static int64_t pick_few(const struct scratch *s, const uint32_t *key, int64_t n, int64_t k)
{
    uint32_t top[MOST_FOUND], rank[MOST_FOUND];
    const uint32_t floor = floor_of(key, n, k);
    size_t found = 0;
    for (int64_t i = 0; i < n; i += WIDTH)
        found = syi_push_bits(s->found, found, reaching(key + i, floor), (size_t)i);
    if (found > MOST_FOUND)
        return 0;
    for (size_t i = 0; i < found; i++) {
        uint32_t before = 0;
        top[i] = key[s->found[i]];
        for (size_t j = 0; j < i; j++) {
            const bool first = top[j] >= top[i];
            before += first;
            rank[j] += !first;
        }
        rank[i] = before;
    }
    for (size_t i = 0; i < found; i++)
        s->winner[rank[i]] = s->found[i];
    return (int64_t)found;
}

/* At least the k first of the order into s->winner; returns how many. */
static int64_t pick(const struct scratch *s, uint32_t *key, int64_t n, int64_t k)
{
    const int64_t few = k <= LANES ? pick_few(s, key, n, k) : 0;
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

/* Keeps the two largest of what was there and one more. */
static inline void keep_two(uint32_t *first, uint32_t *second, uint32_t key)
{
    const uint32_t smaller = key < *first ? key : *first;
    *first = key > *first ? key : *first;
    *second = smaller > *second ? smaller : *second;
}

/* The two largest keys of a group, in columns side by side; the second is 0 in a group of one. */
static void two_largest(const uint32_t *key, int64_t n, uint32_t top[2])
{
    uint32_t first[COLUMNS] = {0}, second[COLUMNS] = {0};
    int64_t i = 0;
    for (; i + COLUMNS <= n; i += COLUMNS)
        for (int c = 0; c < COLUMNS; c++)
            keep_two(&first[c], &second[c], key[i + c]);
    for (; i < n; i++)
        keep_two(&first[0], &second[0], key[i]);
    for (int c = 1; c < COLUMNS; c++) {
        keep_two(&first[0], &second[0], first[c]);
        keep_two(&first[0], &second[0], second[c]);
    }
    top[0] = first[0];
    top[1] = second[0];
}

/* Takes the experts of all groups but the best out of the race. */
static void keep_groups(const struct job *job, const struct scratch *s)
{
    const struct syi_moe_route_plan *p = job->plan;
    const int64_t size = p->n_experts / p->n_groups;
    for (int64_t g = 0; g < p->n_groups; g++) {
        uint32_t top[2];
        two_largest(s->value + g * size, size, top);
        s->group_value[g] = top[0];
        if (p->group_score == SY_GROUP_SUM2 && size > 1) /* may be +inf, which beats every number */
            s->group_value[g] = syi_value_key(syi_key_value(top[0]) + syi_key_value(top[1]));
    }
    pick(s, s->group_value, p->n_groups, p->top_groups);
    for (int64_t j = 0; j < p->top_groups; j++)
        s->group_value[s->winner[j]] = 0;
    for (int64_t g = 0; g < p->n_groups; g++)
        if (s->group_value[g] != 0)
            memset(s->value + g * size, 0, (size_t)size * sizeof *s->value);
}

/* Winners of a softmax whose shares were not formed. False when the share of the first loser may equal that
   of the last winner: then all shares must be looked at. */
static bool select_few(const struct job *job, const struct scratch *s, uint64_t total)
{
    const struct syi_moe_route_plan *p = job->plan;
    const double divisor = total > 0 ? (double)total : 1.0;
    memcpy(s->value, s->key, (size_t)p->n_experts * sizeof *s->value);
    const int64_t picked = pick(s, s->value, p->n_experts, p->k);
    for (int64_t j = 0; j < p->k; j++)
        s->weight[j] = share(s->score[s->winner[j]], divisor);
    if (p->k < p->n_experts &&
        (picked == p->k || share(s->score[s->winner[p->k]], divisor) == s->weight[p->k - 1]))
        return false;
    for (int64_t j = 1; j < p->k; j++) { /* equal shares of unequal logits: lower expert first */
        const int32_t expert = s->winner[j];
        int64_t at = j;
        for (; at > 0 && s->weight[at - 1] == s->weight[j] && s->winner[at - 1] > expert; at--)
            s->winner[at] = s->winner[at - 1];
        s->winner[at] = expert;
    }
    return true;
}

/* The chosen experts by descending value, and their scores as weights. */
static void select_experts(const struct job *job, const struct scratch *s, uint64_t total)
{
    const struct syi_moe_route_plan *p = job->plan;
    const int64_t n = p->n_experts;
    struct syi_key_stats unused = {0, 0};
    if (few_shares(p)) {
        if (select_few(job, s, total))
            return;
        share_all(s->score, n, total);
    }
    for (int64_t i = 0; p->bias != NULL && i < n; i++)
        s->sum[i] = s->score[i] + job->bias[i];
    job->kernels->keys_f32(s->value, p->bias != NULL ? s->sum : s->score, (size_t)n, &unused);
    if (p->n_groups > 0)
        keep_groups(job, s);
    pick(s, s->value, n, p->k);
    for (int64_t j = 0; j < p->k; j++) {
        const float score = s->score[s->winner[j]];
        s->weight[j] = score >= -FLT_MAX ? score : 0.0f;
    }
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
            s->weight[j] = sum != 0.0f ? s->weight[j] / sum : 0.0f;
    }
    for (int64_t j = 0; j < p->k; j++)
        s->weight[j] *= p->scale;
}

/* ---- Outputs ----------------------------------------------------------------------------------------- */

static void store_float(unsigned char *row, int64_t i, float value, enum syi_type type)
{
    if (type == SYI_F32) {
        memcpy(row + i * 4, &value, sizeof value);
        return;
    }
    const uint16_t bits = type == SYI_F16 ? syi_f32_to_f16(value) : syi_f32_to_bf16(value);
    memcpy(row + i * 2, &bits, sizeof bits);
}

static void store_slot(const struct syi_moe_route_plan *p, int64_t t, int64_t j, int32_t expert, float weight)
{
    if (p->ids.data != NULL)
        syi_store_index(syi_row(p->ids, t), j, expert, p->id_type);
    if (p->weights.data != NULL)
        store_float(syi_row(p->weights, t), j, weight, p->weight_type);
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
    clear_rows(p, t);
    for (int64_t j = 0; j < p->k; j++) {
        const int32_t e = s->winner[j];
        store_slot(p, t, j, e, s->weight[j]);
        if (p->map.data != NULL)
            syi_row(p->map, t)[e] = 1;
        if (p->probs.data != NULL)
            store_float(syi_row(p->probs, t), e, s->weight[j], p->prob_type);
        count[e]++;
    }
    if (p->capacity > 0) {
        memcpy(job->pairs.expert + t * p->k, s->winner, (size_t)p->k * sizeof *s->winner);
        job->kernels->keys_f32(job->pairs.key + t * p->k, s->weight, (size_t)p->k, &unused);
    }
}

static void write_finished(const struct job *job, int64_t t)
{
    const struct syi_moe_route_plan *p = job->plan;
    clear_rows(p, t);
    for (int64_t j = 0; j < p->k; j++)
        store_slot(p, t, j, (int32_t)p->n_experts, 0.0f);
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
        uint64_t total = 0;
        if (!finished || p->scores.data != NULL)
            total = score_row(job, s, syi_row(p->logits, t));
        if (p->scores.data != NULL)
            memcpy(syi_row(p->scores, t), s->score, (size_t)p->n_experts * sizeof *s->score);
        if (finished) {
            write_finished(job, t);
            continue;
        }
        select_experts(job, s, total);
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

static keys_fn *keys_for(const struct syi_kernels *kernels, enum syi_type type)
{
    return type == SYI_F32 ? kernels->keys_f32 : type == SYI_F16 ? kernels->keys_f16 : kernels->keys_bf16;
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
    syi_parallel(ctx, job.n_tasks, route_rows, &job);
    if (p->counts != NULL)
        add_counts(&job);
    if (p->capacity > 0)
        syi_route_drop(ctx, p, &job.pairs, arena.base + arena.used);
    return SY_OK;
}
