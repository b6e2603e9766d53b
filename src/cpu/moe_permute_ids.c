/*
 * moe_permute_ids on the CPU. Slots are ranked first, then rows are copied. A known number of experts is counted
 * as in moe_permute: per chunk of tokens and expert, scanned over (expert, chunk), so that every chunk ranks its
 * slots by itself. Ids that may be any numbers are sorted by radix. Then each token row is read once and written
 * to all its places in the window.
 */
#include "cpu/moe_slots.h"
#include "cpu/sort.h"
#include "kernels/kernels.h"
#include "cpu/backend.h"
#include "cpu/row_codes.h"

enum { MOST_COUNTED = 1 << 16 }; /* most experts for which every chunk has counters */

struct job {
    const struct syi_moe_permute_ids_plan *plan;
    struct syi_row_writer writer;
    struct syi_slots slots;    /* without counters ids are sorted */
    int n_tasks;               /* tasks of the copy, which is far more work */
    int64_t n_live;            /* slots that name an expert: rows from here on are zero */
    struct syi_keyed *pair[2]; /* [T*K] */
};

static bool is_counted(const struct syi_moe_permute_ids_plan *p)
{
    return p->n_experts > 0 && p->n_experts <= MOST_COUNTED;
}

static struct job lay_out(const sy_ctx *ctx, const struct syi_moe_permute_ids_plan *p,
                          struct syi_arena *arena)
{
    const size_t total = (size_t)(p->n_tokens * p->n_slots);
    struct job job = {.plan = p,
                      .writer = syi_row_writer_of(ctx, &p->codes, p->out_tokens, p->row_bytes),
                      .slots = {.ids = p->ids,
                                .n_tokens = p->n_tokens,
                                .n_slots = p->n_slots,
                                .n_experts = p->n_experts,
                                .allow_missing = p->args.allow_missing},
                      .n_tasks = syi_tasks(ctx, p->n_tokens, (uint64_t)p->n_rows * p->row_bytes)};
    syi_slots_lay_out(ctx, &job.slots, is_counted(p), arena);
    for (int i = 0; !is_counted(p) && i < 2; i++)
        job.pair[i] = syi_take(arena, syi_size_mul(total, sizeof *job.pair[i]));
    return job;
}

SYI_CPU_WORKSPACE(moe_permute_ids)

/* ---- Ranks ---- */

/* Counts become first places: experts ascending, inside an expert chunks, that is slots, ascending. */
static void scan(struct job *job)
{
    const struct syi_moe_permute_ids_plan *p = job->plan;
    int32_t total = 0;
    for (int64_t e = 0; e < p->n_experts; e++) {
        const int32_t first = total;
        for (int b = 0; b < job->slots.n_chunks; b++) {
            int32_t *place = &syi_slot_counts(&job->slots, b)[e];
            const int32_t count = *place;
            *place = total;
            total += count;
        }
        if (p->offsets.data != NULL)
            syi_store_i64(p->offsets.data, e, first);
        if (p->counts.data != NULL)
            syi_store_i64(p->counts.data, e, total - first);
    }
    if (p->offsets.data != NULL)
        syi_store_i64(p->offsets.data, p->n_experts, total);
    job->n_live = total;
}

static void rank_chunk(void *data, int chunk)
{
    const struct job *job = data;
    const struct syi_moe_permute_ids_plan *p = job->plan;
    const struct syi_slots slots = job->slots; /* that no store can change */
    int32_t *next = syi_slot_counts(&slots, chunk);
    unsigned char *indices = p->sorted_indices.data;
    const int64_t end = syi_part(slots.n_tokens, slots.n_chunks, chunk + 1);
    for (int64_t t = syi_part(slots.n_tokens, slots.n_chunks, chunk); t < end; t++)
        for (int64_t j = 0; j < slots.n_slots; j++) {
            const int64_t id = syi_slot_id(&slots, t, j);
            const bool missing = slots.allow_missing && (id < 0 || id == slots.n_experts);
            syi_store_i32(indices, t * slots.n_slots + j, missing ? -1 : next[id]++);
        }
}

/* The same for ids that have no counters: their distance from the lowest is the key. */
static void sort_ids(struct job *job)
{
    const struct syi_moe_permute_ids_plan *p = job->plan;
    const int64_t slots = p->n_tokens * p->n_slots;
    int64_t low = INT64_MAX, high = INT64_MIN, total = 0;
    for (int64_t i = 0; i < slots; i++) {
        const int64_t id = syi_slot_id(&job->slots, i / p->n_slots, i % p->n_slots);
        if (p->args.allow_missing && (id < 0 || id == p->n_experts)) {
            syi_store_i32(p->sorted_indices.data, i, -1);
            continue;
        }
        low = id < low ? id : low;
        high = id > high ? id : high;
        job->pair[0][total++] = (struct syi_keyed){(uint64_t)id, i};
    }
    for (int64_t i = 0; i < total; i++)
        job->pair[0][i].key -= (uint64_t)low;
    const struct syi_keyed *sorted =
        syi_sort_keyed(job->pair[0], job->pair[1], (size_t)total, (uint64_t)high - (uint64_t)low);
    for (int64_t i = 0; i < total; i++)
        syi_store_i32(p->sorted_indices.data, sorted[i].value, (int32_t)i);
    int64_t at = 0;
    for (int64_t e = 0; e < p->n_experts && (p->counts.data != NULL || p->offsets.data != NULL); e++) {
        const int64_t first = at;
        while (at < total && (int64_t)(sorted[at].key + (uint64_t)low) == e)
            at++;
        if (p->counts.data != NULL)
            syi_store_i64(p->counts.data, e, at - first);
        if (p->offsets.data != NULL)
            syi_store_i64(p->offsets.data, e, first);
    }
    if (p->offsets.data != NULL)
        syi_store_i64(p->offsets.data, p->n_experts, total);
    job->n_live = total;
}

/* ---- Rows ---- */

/* The rows of the window that no slot has, where slots are missing. */
static void clear_rows(const struct job *job, int task)
{
    const struct syi_moe_permute_ids_plan *p = job->plan;
    const int64_t live = job->n_live - p->row_begin, first = live < 0 ? 0 : live, n = p->n_rows - first;
    if (n <= 0)
        return;
    const int64_t begin = first + syi_part(n, job->n_tasks, task),
                  end = first + syi_part(n, job->n_tasks, task + 1);
    for (int64_t row = begin; row < end; row++)
        syi_clear_row(&job->writer, row);
    if (p->prob_bytes > 0)
        memset(p->out_probs.data + (size_t)begin * p->prob_bytes, 0, (size_t)(end - begin) * p->prob_bytes);
}

static void copy_tokens(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_permute_ids_plan *p = job->plan;
    clear_rows(job, task);
    const int64_t end = syi_part(p->n_tokens, job->n_tasks, task + 1);
    for (int64_t t = syi_part(p->n_tokens, job->n_tasks, task); t < end; t++) {
        struct syi_fan fan = {.writer = &job->writer, .from = syi_at(p->tokens, t)};
        for (int64_t j = 0; j < p->n_slots; j++) {
            const int64_t row = syi_load_i32(p->sorted_indices.data, t * p->n_slots + j) - p->row_begin;
            if (row < 0 || row >= p->n_rows)
                continue;
            if (p->prob_bytes > 0)
                memcpy(p->out_probs.data + (size_t)row * p->prob_bytes,
                       syi_at(p->probs, t) + (size_t)j * p->prob_bytes, p->prob_bytes);
            syi_fan_add(&fan, row);
        }
        if (fan.n > 0)
            syi_fan_write(&fan);
    }
}

sy_status syi_cpu_moe_permute_ids(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_permute_ids_plan *p = &plan->moe_permute_ids;
    struct syi_arena arena = {workspace, 0};
    struct job job = lay_out(ctx, p, &arena);
    SYI_TRY(p->n_experts > 0 ? syi_slots_count(ctx, &job.slots) : SY_OK);
    if (is_counted(p)) {
        scan(&job);
        syi_parallel(ctx, job.slots.n_chunks, rank_chunk, &job);
    } else {
        sort_ids(&job);
    }
    if (p->n_rows > 0)
        syi_parallel(ctx, job.n_tasks, copy_tokens, &job);
    return SY_OK;
}
