/*
 * A capacity for the experts of moe_route. The pairs are put in order of expert and token by counting, each
 * task into its own places, so that an expert's tokens are contiguous; then experts are split over threads and
 * the surplus of each is removed from the map. By position the first C are kept; by weight a radix select finds the
 * C-th largest, and ties go to the lower token.
 */
#include "cpu/moe_route.h"
#include "cpu/sample.h"
#include "cpu/pool.h"

struct job {
    const struct syi_moe_route_plan *plan;
    const struct syi_route_pairs *pairs;
    int64_t *first;  /* [E+1] where an expert's pairs begin */
    int64_t *token;  /* [T*K] by expert, then token */
    uint32_t *key;   /* [T*K] their weights */
    uint64_t **hist; /* [task][SYI_SELECT_BINS] */
};

static void lay_out(struct job *job, struct syi_arena *arena, int n_tasks)
{
    const struct syi_moe_route_plan *p = job->plan;
    const size_t n_pairs = syi_size_mul((size_t)p->n_tokens, (size_t)p->k);
    job->first = syi_take(arena, ((size_t)p->n_experts + 1) * sizeof *job->first);
    job->token = syi_take(arena, syi_size_mul(n_pairs, sizeof *job->token));
    job->key = syi_take(arena, syi_size_mul(n_pairs, sizeof *job->key));
    job->hist = syi_take(arena, (size_t)n_tasks * sizeof *job->hist);
    for (int i = 0; i < n_tasks; i++) {
        uint64_t *hist = syi_take(arena, SYI_SELECT_BINS * sizeof *hist);
        if (job->hist != NULL)
            job->hist[i] = hist;
    }
}

size_t syi_route_drop_bytes(const struct syi_moe_route_plan *p, int n_tasks)
{
    struct job job = {.plan = p};
    struct syi_arena arena = {NULL, 0};
    lay_out(&job, &arena, n_tasks);
    return arena.used;
}

/* Counts become first places: experts ascending, inside an expert tasks, that is tokens, ascending. */
static void scan(struct job *job)
{
    const int64_t n_experts = job->plan->n_experts, n_columns = job->plan->n_columns;
    int64_t total = 0;
    for (int64_t e = 0; e < n_experts; e++) {
        job->first[e] = total;
        for (int b = 0; b < job->pairs->n_tasks; b++) {
            int64_t *place = &job->pairs->count[b * n_columns + e];
            const int64_t count = *place;
            *place = total;
            total += count;
        }
    }
    job->first[n_experts] = total;
}

static void place_pairs(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_route_plan *p = job->plan;
    int64_t *next = job->pairs->count + task * p->n_columns;
    const int64_t end = syi_part(p->n_tokens, job->pairs->n_tasks, task + 1);
    for (int64_t t = syi_part(p->n_tokens, job->pairs->n_tasks, task); t < end; t++)
        for (int64_t i = t * p->k; i < (t + 1) * p->k && job->pairs->expert[i] >= 0; i++) {
            const int64_t place = next[job->pairs->expert[i]]++;
            job->token[place] = t;
            job->key[place] = job->pairs->key[i];
        }
}

static void take_out(const struct syi_moe_route_plan *p, int64_t t, int64_t e)
{
    if (p->map.data != NULL)
        syi_at(p->map, t)[e] = 0;
    if (p->probs.data != NULL) {
        const size_t bytes = syi_float_bytes(p->probs.type);
        memset(syi_at(p->probs, t) + (size_t)e * bytes, 0, bytes);
    }
}

static void drop_surplus(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_route_plan *p = job->plan;
    const int64_t end = syi_part(p->n_experts, job->pairs->n_tasks, task + 1);
    for (int64_t e = syi_part(p->n_experts, job->pairs->n_tasks, task); e < end; e++) {
        const int64_t first = job->first[e], n = job->first[e + 1] - first;
        const struct syi_candidates tokens = {job->key + first, NULL, n};
        struct syi_cut cut = {0, (uint64_t)p->capacity}; /* by position all are equal: the first are kept */
        if (n <= p->capacity)
            continue;
        if (p->args.drop == SY_DROP_PROB)
            syi_select(&tokens, NULL, (uint64_t)p->capacity, job->hist[task], &cut);
        for (int64_t i = 0; i < n; i++) {
            const uint32_t key = p->args.drop == SY_DROP_PROB ? tokens.key[i] : 0;
            if (key > cut.key)
                continue;
            if (key == cut.key && cut.rest > 0)
                cut.rest--;
            else
                take_out(p, job->token[first + i], e);
        }
    }
}

void syi_route_drop(sy_ctx *ctx, const struct syi_moe_route_plan *p, const struct syi_route_pairs *pairs,
                    void *scratch)
{
    struct job job = {.plan = p, .pairs = pairs};
    struct syi_arena arena = {scratch, 0};
    lay_out(&job, &arena, pairs->n_tasks);
    scan(&job);
    syi_parallel(ctx, pairs->n_tasks, place_pairs, &job);
    syi_parallel(ctx, pairs->n_tasks, drop_surplus, &job);
}
