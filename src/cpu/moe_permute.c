/*
 * moe_permute on the CPU: no sort. Tokens are cut into chunks; a first sweep counts per chunk and expert, a
 * scan over (expert, chunk) gives every chunk its private first rows, and a second sweep places tokens
 * without atomics. Chunking cannot change an output because rows are ordered by (expert, token) and chunks
 * are token ranges.
 */
#include "cpu/moe_rows.h"
#include "cpu/backend.h"
#include "cpu/row_codes.h"

struct chunk_fault {
    int64_t token; /* first token with too many experts, or -1 */
    int64_t routed;
};

struct job {
    const struct syi_moe_permute_plan *plan;
    const struct syi_kernels *kernels;
    struct syi_row_writer writer;
    int n_chunks;
    int32_t *place;            /* [chunk][E]: counts after sweep 1, next row after the scan */
    struct chunk_fault *fault; /* [chunk] */
    int64_t n_live;            /* packed: routed pairs S; rows from here on are zero */
};

static struct job lay_out(const sy_ctx *ctx, const struct syi_moe_permute_plan *p, struct syi_arena *arena)
{
    const uint64_t bytes =
        (uint64_t)p->n_tokens * (uint64_t)p->n_experts + (uint64_t)p->n_rows * p->row_bytes;
    struct job job = {.plan = p, .kernels = ctx->kernels, .n_chunks = syi_tasks(ctx, p->n_tokens, bytes)};
    const size_t n_chunks = p->idle ? 0 : (size_t)job.n_chunks;
    job.place =
        syi_take(arena, syi_size_mul(syi_size_mul(n_chunks, (size_t)p->n_experts), sizeof *job.place));
    job.fault = syi_take(arena, n_chunks * sizeof *job.fault);
    return job;
}

SYI_CPU_WORKSPACE(moe_permute)

/* Experts of a token from e0 on; see syi_routed. */
static size_t routed_in(const struct job *job, int64_t t, int64_t e0, int32_t pos[SYI_EXPERTS])
{
    return syi_routed(job->kernels, syi_at(job->plan->map, t), job->plan->n_experts, e0, pos);
}

/* Sweep 1: counts of one chunk. */
static void count_chunk(void *data, int chunk)
{
    const struct job *job = data;
    const struct syi_moe_permute_plan *p = job->plan;
    int32_t *count = job->place + (size_t)chunk * (size_t)p->n_experts;
    struct chunk_fault *fault = &job->fault[chunk];
    const int64_t end = syi_part(p->n_tokens, job->n_chunks, chunk + 1);
    int32_t pos[SYI_EXPERTS];

    memset(count, 0, (size_t)p->n_experts * sizeof *count);
    fault->token = -1;
    for (int64_t t = syi_part(p->n_tokens, job->n_chunks, chunk); t < end; t++) {
        int64_t routed = 0;
        for (int64_t e0 = 0; e0 < p->n_experts; e0 += SYI_EXPERTS) {
            const size_t n = routed_in(job, t, e0, pos);
            for (size_t i = 0; i < n; i++)
                count[e0 + pos[i]]++;
            routed += (int64_t)n;
        }
        if (routed > p->n_slots && fault->token < 0)
            *fault = (struct chunk_fault){t, routed};
    }
}

/* Turns counts into first rows (packed) or first positions inside the expert (capacity); fills counts,
   offsets. */
static void scan(struct job *job)
{
    const struct syi_moe_permute_plan *p = job->plan;
    int64_t total = 0;
    for (int64_t e = 0; e < p->n_experts; e++) {
        int64_t in_expert = 0;
        if (p->offsets.data != NULL)
            syi_store_i64(p->offsets.data, e, p->args.drop_and_pad ? e * p->n_slots : total);
        for (int b = 0; b < job->n_chunks; b++) {
            int32_t *place = &job->place[(size_t)b * (size_t)p->n_experts + (size_t)e];
            const int32_t count = *place;
            /* Rows fit int32 whenever rows are written at all: then total <= M. */
            *place = (int32_t)(p->args.drop_and_pad ? in_expert : total + in_expert);
            in_expert += count;
        }
        if (p->counts.data != NULL)
            syi_store_i64(p->counts.data, e, in_expert);
        total += in_expert;
    }
    if (p->offsets.data != NULL)
        syi_store_i64(p->offsets.data, p->n_experts, p->args.drop_and_pad ? p->n_rows : total);
    job->n_live = total;
}

/* Sweep 2, packed: each token row is read once and written to all its places while it is in cache. */
static void place_packed(void *data, int chunk)
{
    const struct job *job = data;
    const struct syi_moe_permute_plan *p = job->plan;
    int32_t *next = job->place + (size_t)chunk * (size_t)p->n_experts;
    const int64_t end = syi_part(p->n_tokens, job->n_chunks, chunk + 1);
    int32_t pos[SYI_EXPERTS];

    for (int64_t t = syi_part(p->n_tokens, job->n_chunks, chunk); t < end; t++) {
        struct syi_fan fan = {.writer = &job->writer, .from = syi_at(p->tokens, t)};
        int64_t slot = t * p->n_slots;
        for (int64_t e0 = 0; e0 < p->n_experts; e0 += SYI_EXPERTS) {
            const size_t n = routed_in(job, t, e0, pos);
            for (size_t i = 0; i < n; i++) {
                const int64_t e = e0 + pos[i];
                const int32_t row = next[e]++;
                syi_store_i32(p->sorted_indices.data, slot++, row);
                if (p->out_probs.data != NULL)
                    memcpy(p->out_probs.data + (size_t)row * p->prob_bytes,
                           syi_at(p->probs, t) + (size_t)e * p->prob_bytes, p->prob_bytes);
                syi_fan_add(&fan, row);
            }
        }
        syi_fan_write(&fan);
        for (; slot < (t + 1) * p->n_slots; slot++)
            syi_store_i32(p->sorted_indices.data, slot, -1);
    }
}

static void clear_tail(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_permute_plan *p = job->plan;
    const int64_t n = p->n_rows - job->n_live;
    const int64_t end = job->n_live + syi_part(n, job->n_chunks, task + 1);
    for (int64_t row = job->n_live + syi_part(n, job->n_chunks, task); row < end; row++) {
        syi_clear_row(&job->writer, row);
        if (p->out_probs.data != NULL)
            memset(p->out_probs.data + (size_t)row * p->prob_bytes, 0, p->prob_bytes);
    }
}

/* Sweep 2, capacity: routed tokens of the chunk into sorted_indices, as far as their expert has places. */
static void place_routed(void *data, int chunk)
{
    const struct job *job = data;
    const struct syi_moe_permute_plan *p = job->plan;
    int32_t *next = job->place + (size_t)chunk * (size_t)p->n_experts;
    const int64_t end = syi_part(p->n_tokens, job->n_chunks, chunk + 1);
    int32_t pos[SYI_EXPERTS];

    for (int64_t t = syi_part(p->n_tokens, job->n_chunks, chunk); t < end; t++)
        for (int64_t e0 = 0; e0 < p->n_experts; e0 += SYI_EXPERTS) {
            const size_t n = routed_in(job, t, e0, pos);
            for (size_t i = 0; i < n; i++) {
                const int64_t e = e0 + pos[i];
                const int64_t place = next[e]++;
                if (place < p->n_slots)
                    syi_store_i32(p->sorted_indices.data, e * p->n_slots + place, (int32_t)t);
            }
        }
}

/* Fills the rest of each expert's places with its unrouted tokens, ascending, then copies the expert's
   rows. The last chunk's `next` holds the expert's routed tokens. */
static void fill_experts(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_permute_plan *p = job->plan;
    const int32_t *routed = job->place + (size_t)(job->n_chunks - 1) * (size_t)p->n_experts;
    const int64_t last = syi_part(p->n_rows, job->n_chunks, task + 1);
    int64_t row = syi_part(p->n_rows, job->n_chunks, task);

    while (row < last) {
        const int64_t e = row / p->n_slots, first = e * p->n_slots;
        const int64_t stop = first + p->n_slots < last ? first + p->n_slots : last;
        int64_t unrouted =
            row - first - routed[e]; /* unrouted tokens that earlier rows, of another task, have taken */
        int64_t t = 0;
        for (; row < stop; row++) {
            const bool padding = row - first >= routed[e];
            if (padding && !p->args.zero_pad) {
                for (; syi_at(p->map, t)[e] != 0 || unrouted > 0; t++)
                    unrouted -= syi_at(p->map, t)[e] == 0;
                syi_store_i32(p->sorted_indices.data, row, (int32_t)t++);
            }
            if (padding && p->args.zero_pad) {
                syi_store_i32(p->sorted_indices.data, row, -1);
                syi_clear_row(&job->writer, row);
                if (p->out_probs.data != NULL)
                    memset(p->out_probs.data + (size_t)row * p->prob_bytes, 0, p->prob_bytes);
                continue;
            }
            const int64_t token = syi_load_i32(p->sorted_indices.data, row);
            syi_write_row(&job->writer, row, syi_at(p->tokens, token));
            if (p->out_probs.data != NULL)
                memcpy(p->out_probs.data + (size_t)row * p->prob_bytes,
                       syi_at(p->probs, token) + (size_t)e * p->prob_bytes, p->prob_bytes);
        }
    }
}

static sy_status reject_overfull(sy_ctx *ctx, const struct job *job)
{
    for (int b = 0; b < job->n_chunks; b++) {
        const struct chunk_fault *f = &job->fault[b];
        if (f->token >= 0)
            return syi_reject(ctx, SYI_BAD_MAP_OVERFULL, -1, f->token, f->routed, job->plan->n_slots);
    }
    return SY_OK;
}

sy_status syi_cpu_moe_permute(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_permute_plan *p = &plan->moe_permute;
    struct syi_arena arena = {workspace, 0};
    struct job job = lay_out(ctx, p, &arena);
    job.writer = syi_row_writer_of(ctx, &p->codes, p->out_tokens, p->row_bytes);

    if (p->idle)
        return SY_OK;

    syi_parallel(ctx, job.n_chunks, count_chunk, &job);
    if (p->n_rows > 0 && !p->args.drop_and_pad)
        SYI_TRY(reject_overfull(ctx, &job));
    scan(&job);
    if (p->n_rows == 0)
        return SY_OK;
    if (p->args.drop_and_pad) {
        syi_parallel(ctx, job.n_chunks, place_routed, &job);
        syi_parallel(ctx, job.n_chunks, fill_experts, &job);
    } else {
        syi_parallel(ctx, job.n_chunks, place_packed, &job);
        if (job.n_live < p->n_rows)
            syi_parallel(ctx, job.n_chunks, clear_tail, &job);
    }
    return SY_OK;
}
