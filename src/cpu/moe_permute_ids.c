/*
 * moe_permute_ids on the CPU. Slots are ranked first, then rows are copied. A known number of experts is counted
 * as in moe_permute: per chunk of tokens and expert, scanned over (expert, chunk), so that every chunk ranks its
 * slots by itself. Ids that may be any numbers are sorted by radix. Then each token row is read once and written
 * to all its places in the window.
 */
#include "cpu/moe_rows.h"
#include "cpu/sort.h"

enum { MOST_COUNTED = 1 << 16 }; /* experts that get counters of their own in every chunk */

struct chunk_fault {
    int64_t token, slot; /* first id outside; token -1: none */
};

struct job {
    const struct syi_moe_permute_ids_plan *plan;
    const struct syi_kernels *kernels;
    int n_chunks;              /* of tokens, whose slots are ranked together */
    int n_tasks;               /* of the copying, which is far more work */
    int32_t *place;            /* [chunk][E]: counts, then next place; NULL: ids are sorted */
    struct chunk_fault *fault; /* [chunk] */
    struct syi_keyed *pair[2]; /* [T*K] */
};

static bool is_counted(const struct syi_moe_permute_ids_plan *p)
{
    return p->n_experts > 0 && p->n_experts <= MOST_COUNTED;
}

static struct job lay_out(const sy_ctx *ctx, const struct syi_moe_permute_ids_plan *p,
                          struct syi_arena *arena)
{
    const uint64_t total = (uint64_t)(p->n_tokens * p->n_slots);
    struct job job = {.plan = p, .kernels = ctx->kernels};
    job.n_chunks = syi_tasks(ctx, p->n_tokens, total * sizeof(int64_t));
    job.n_tasks = syi_tasks(ctx, p->n_tokens, (uint64_t)p->n_rows * p->row_bytes);
    job.fault = syi_take(arena, (size_t)job.n_chunks * sizeof *job.fault);
    if (is_counted(p))
        job.place = syi_take(arena, (size_t)job.n_chunks * (size_t)p->n_experts * sizeof *job.place);
    for (int i = 0; !is_counted(p) && i < 2; i++)
        job.pair[i] = syi_take(arena, syi_size_mul(total, sizeof *job.pair[i]));
    return job;
}

size_t syi_cpu_moe_permute_ids_workspace(const sy_ctx *ctx, const union syi_plan *plan)
{
    struct syi_arena arena = {NULL, 0};
    lay_out(ctx, &plan->moe_permute_ids, &arena);
    return arena.used;
}

static int64_t id_at(const struct syi_moe_permute_ids_plan *p, int64_t t, int64_t j)
{
    return syi_load_index(syi_row(p->ids, t), j, p->id_type);
}

/* ---- Ranks ------------------------------------------------------------------------------------------- */

/* Judges the ids of a chunk, and counts them where there are counters. */
static void count_chunk(void *data, int chunk)
{
    const struct job *job = data;
    const struct syi_moe_permute_ids_plan *p = job->plan;
    int32_t *count = job->place != NULL ? job->place + (int64_t)chunk * p->n_experts : NULL;
    const int64_t end = syi_part(p->n_tokens, job->n_chunks, chunk + 1);
    job->fault[chunk].token = -1;
    if (count != NULL)
        memset(count, 0, (size_t)p->n_experts * sizeof *count);
    for (int64_t t = syi_part(p->n_tokens, job->n_chunks, chunk); t < end && p->n_experts > 0; t++)
        for (int64_t j = 0; j < p->n_slots; j++) {
            const int64_t id = id_at(p, t, j);
            if (id < 0 || id >= p->n_experts) {
                job->fault[chunk] = (struct chunk_fault){t, j};
                return;
            }
            if (count != NULL)
                count[id]++;
        }
}

static sy_status refuse_outside(sy_ctx *ctx, const struct job *job)
{
    const struct syi_moe_permute_ids_plan *p = job->plan;
    for (int b = 0; b < job->n_chunks; b++) {
        const struct chunk_fault *f = &job->fault[b];
        if (f->token < 0)
            continue;
        const int64_t id = id_at(p, f->token, f->slot);
        const sy_fault fault = {SY_ERR_INDEX, SY_FAULT_INDEX_RANGE, "ids", f->token, f->slot,
                                id,           p->n_experts};
        return syi_fail_at(ctx, &fault, "at token %lld, slot %lld is %lld, want 0 or more and below %lld",
                           (long long)f->token, (long long)f->slot, (long long)id, (long long)p->n_experts);
    }
    return SY_OK;
}

/* Counts become first places: experts ascending, inside an expert chunks, that is slots, ascending. */
static void scan(const struct job *job)
{
    const struct syi_moe_permute_ids_plan *p = job->plan;
    int32_t total = 0;
    for (int64_t e = 0; e < p->n_experts; e++) {
        const int32_t first = total;
        for (int b = 0; b < job->n_chunks; b++) {
            int32_t *place = &job->place[b * p->n_experts + e];
            const int32_t count = *place;
            *place = total;
            total += count;
        }
        if (p->offsets != NULL)
            syi_store_i64(p->offsets, e, first);
        if (p->counts != NULL)
            syi_store_i64(p->counts, e, total - first);
    }
    if (p->offsets != NULL)
        syi_store_i64(p->offsets, p->n_experts, total);
}

static void rank_chunk(void *data, int chunk)
{
    const struct job *job = data;
    const struct syi_moe_permute_ids_plan *p = job->plan;
    int32_t *next = job->place + (int64_t)chunk * p->n_experts;
    const int64_t end = syi_part(p->n_tokens, job->n_chunks, chunk + 1);
    for (int64_t t = syi_part(p->n_tokens, job->n_chunks, chunk); t < end; t++)
        for (int64_t j = 0; j < p->n_slots; j++)
            syi_store_i32(p->sorted_indices, t * p->n_slots + j, next[id_at(p, t, j)]++);
}

/* The same for ids that have no counters: their distance from the lowest is the key. */
static void sort_ids(const struct job *job)
{
    const struct syi_moe_permute_ids_plan *p = job->plan;
    const int64_t total = p->n_tokens * p->n_slots;
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (int64_t i = 0; i < total; i++) {
        const int64_t id = id_at(p, i / p->n_slots, i % p->n_slots);
        low = id < low ? id : low;
        high = id > high ? id : high;
        job->pair[0][i] = (struct syi_keyed){(uint64_t)id, i};
    }
    for (int64_t i = 0; i < total; i++)
        job->pair[0][i].key -= (uint64_t)low;
    const struct syi_keyed *sorted =
        syi_sort_keyed(job->pair[0], job->pair[1], (size_t)total, (uint64_t)high - (uint64_t)low);
    for (int64_t i = 0; i < total; i++)
        syi_store_i32(p->sorted_indices, sorted[i].value, (int32_t)i);
    int64_t at = 0;
    for (int64_t e = 0; e < p->n_experts && (p->counts != NULL || p->offsets != NULL); e++) {
        const int64_t first = at;
        while (at < total && (int64_t)(sorted[at].key + (uint64_t)low) == e)
            at++;
        if (p->counts != NULL)
            syi_store_i64(p->counts, e, at - first);
        if (p->offsets != NULL)
            syi_store_i64(p->offsets, e, first);
    }
    if (p->offsets != NULL)
        syi_store_i64(p->offsets, p->n_experts, total);
}

/* ---- Rows -------------------------------------------------------------------------------------------- */

static void copy_tokens(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_permute_ids_plan *p = job->plan;
    const int64_t end = syi_part(p->n_tokens, job->n_tasks, task + 1);
    for (int64_t t = syi_part(p->n_tokens, job->n_tasks, task); t < end; t++) {
        void *places[SYI_FAN];
        size_t n = 0;
        for (int64_t j = 0; j < p->n_slots; j++) {
            const int64_t row = syi_load_i32(p->sorted_indices, t * p->n_slots + j) - p->row_begin;
            if (row < 0 || row >= p->n_rows)
                continue;
            if (p->prob_bytes > 0)
                memcpy(p->out_probs + (size_t)row * p->prob_bytes,
                       syi_row(p->probs, t) + (size_t)j * p->prob_bytes, p->prob_bytes);
            places[n++] = syi_row(p->out_tokens, row);
            if (n == SYI_FAN) {
                job->kernels->copy_fan(places, n, syi_row(p->tokens, t), p->row_bytes);
                n = 0;
            }
        }
        if (n > 0)
            job->kernels->copy_fan(places, n, syi_row(p->tokens, t), p->row_bytes);
    }
}

sy_status syi_cpu_moe_permute_ids(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_permute_ids_plan *p = &plan->moe_permute_ids;
    struct syi_arena arena = {workspace, 0};
    struct job job = lay_out(ctx, p, &arena);
    syi_parallel(ctx, job.n_chunks, count_chunk, &job);
    const sy_status st = refuse_outside(ctx, &job);
    if (st != SY_OK)
        return st;
    if (job.place != NULL) {
        scan(&job);
        syi_parallel(ctx, job.n_chunks, rank_chunk, &job);
    } else {
        sort_ids(&job);
    }
    if (p->n_rows > 0)
        syi_parallel(ctx, job.n_tasks, copy_tokens, &job);
    return SY_OK;
}
