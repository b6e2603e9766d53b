/*
 * moe_pad_map on the CPU: columns are counted in chunks of tokens, the map is copied, and a pass over the first tokens
 * gives the experts the tokens they need. That pass ends when no expert needs more, usually after little more than
 * `alignment` tokens.
 */
#include "cpu/backend.h"

enum {
    COLUMNS = 256,     /* experts counted at a time */
    MOST_IN_BYTE = 255 /* tokens counted before a byte overflows */
};

struct job {
    const struct syi_moe_pad_map_plan *plan;
    int n_chunks;
    int32_t *count; /* [chunk][E]; then the first holds the tokens each expert needs */
};

static struct job lay_out(const sy_ctx *ctx, const struct syi_moe_pad_map_plan *p, struct syi_arena *arena)
{
    struct job job = {.plan = p};
    job.n_chunks = syi_tasks(ctx, p->n_tokens, (uint64_t)p->n_tokens * (uint64_t)p->n_experts);
    job.count = syi_take(
        arena, syi_size_mul(syi_size_mul((size_t)job.n_chunks, (size_t)p->n_experts), sizeof *job.count));
    return job;
}

SYI_CPU_WORKSPACE(moe_pad_map)

/* Adds to the counts of n experts from e on. Compilers vectorise sums of bytes. */
static void count_block(struct syi_tensor map, int64_t t, int64_t end, int64_t e, int n, int32_t *count)
{
    uint8_t sum[COLUMNS] = {0};
    for (; t < end; t++) {
        const unsigned char *row = syi_at(map, t) + e;
        for (int i = 0; i < n; i++)
            sum[i] = (uint8_t)(sum[i] + (row[i] != 0));
    }
    for (int i = 0; i < n; i++)
        count[i] += sum[i];
}

static void count_chunk(void *data, int chunk)
{
    const struct job *job = data;
    const struct syi_moe_pad_map_plan *p = job->plan;
    int32_t *count = job->count + (int64_t)chunk * p->n_experts;
    const int64_t first = syi_part(p->n_tokens, job->n_chunks, chunk),
                  end = syi_part(p->n_tokens, job->n_chunks, chunk + 1);
    memset(count, 0, (size_t)p->n_experts * sizeof *count);
    for (int64_t e = 0; e < p->n_experts; e += COLUMNS) {
        const int n = p->n_experts - e < COLUMNS ? (int)(p->n_experts - e) : COLUMNS;
        for (int64_t t = first; t < end; t += MOST_IN_BYTE)
            count_block(p->map, t, end - t < MOST_IN_BYTE ? end : t + MOST_IN_BYTE, e, n, count + e);
    }
}

/* Tokens an expert has, and how many it needs; more than there are when the next multiple overflows. */
static int64_t tokens_of(const struct job *job, int64_t e, int64_t *lacks)
{
    int64_t count = 0, wanted;
    for (int b = 0; b < job->n_chunks; b++)
        count += job->count[b * job->plan->n_experts + e];
    *lacks = syi_round_up(count, job->plan->args.alignment, &wanted) ? wanted - count : INT64_MAX - count;
    return count;
}

static sy_status reject_short(sy_ctx *ctx, const struct job *job)
{
    const int64_t n_tokens = job->plan->n_tokens;
    for (int64_t e = 0; e < job->plan->n_experts; e++) {
        int64_t lacks;
        const int64_t count = tokens_of(job, e, &lacks);
        if (lacks <= n_tokens - count)
            continue;
        struct syi_found found = syi_bad_at(SYI_BAD_MAP_SHORT, -1, e, count, n_tokens);
        found.extra = count + lacks;
        return syi_report(ctx, found);
    }
    return SY_OK;
}

/* The first chunk of counters becomes the needed tokens. Returns their sum. */
static int64_t find_lacks(const struct job *job)
{
    const struct syi_moe_pad_map_plan *p = job->plan;
    int64_t all = 0;
    for (int64_t e = 0; e < p->n_experts; e++) {
        int64_t lacks;
        const int64_t count = tokens_of(job, e, &lacks);
        if (p->counts.data != NULL)
            syi_store_i64(p->counts.data, e, count + lacks);
        job->count[e] = (int32_t)lacks;
        all += lacks;
    }
    return all;
}

static void copy_chunk(void *data, int chunk)
{
    const struct job *job = data;
    const struct syi_moe_pad_map_plan *p = job->plan;
    const int64_t end = syi_part(p->n_tokens, job->n_chunks, chunk + 1);
    for (int64_t t = syi_part(p->n_tokens, job->n_chunks, chunk); t < end; t++)
        memcpy(syi_at(p->padded, t), syi_at(p->map, t), (size_t)p->n_experts);
}

static void pad(const struct job *job, int64_t left)
{
    const struct syi_moe_pad_map_plan *p = job->plan;
    int32_t *lacks = job->count;
    for (int64_t t = 0; left > 0; t++) { /* ends: every expert was found to have enough tokens left */
        unsigned char *row = syi_at(p->padded, t);
        for (int64_t e = 0; e < p->n_experts; e++)
            if (lacks[e] > 0 && row[e] == 0) {
                row[e] = 1;
                lacks[e]--;
                left--;
            }
    }
}

sy_status syi_cpu_moe_pad_map(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_pad_map_plan *p = &plan->moe_pad_map;
    struct syi_arena arena = {workspace, 0};
    struct job job = lay_out(ctx, p, &arena);
    if (p->n_experts == 0)
        return SY_OK;
    syi_parallel(ctx, job.n_chunks, count_chunk, &job);
    SYI_TRY(reject_short(ctx, &job));
    if (p->padded.data != p->map.data)
        syi_parallel(ctx, job.n_chunks, copy_chunk, &job);
    pad(&job, find_lacks(&job));
    return SY_OK;
}
