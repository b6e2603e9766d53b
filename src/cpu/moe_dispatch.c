/*
 * moe_dispatch on the CPU. Samples are visited in order, rows split over threads; a winner table holds the
 * sample of each slot when several name it, so others are not read. Only when dispatch is input itself must the
 * rows be written one after the other, and then threads take columns instead.
 */
#include "cpu/moe.h"
#include "cpu/backend.h"
#include "cpu/row_codes.h"

struct job {
    const struct syi_moe_dispatch_plan *plan;
    syi_scale_fn *scale;
    int n_tasks;
    int32_t *winner;     /* [E*C]: sample of the slot, counted from `first`; -1: none; or NULL */
    uint8_t *written;    /* [E*C]: the slot has a sample; or NULL */
    int64_t first, last; /* samples of this segment */
    struct syi_row_writer writer;
    unsigned char *scaled; /* [task][H] a row times its gate, before it becomes codes; or NULL */
};

/* Samples per pass, so that a sample number fits the winner table; later passes overwrite earlier ones. */
static const int64_t SEGMENT = INT32_MAX;

/* Several samples may name one slot, and the order of writing must not matter. */
static bool needs_winners(const struct syi_moe_dispatch_plan *p)
{
    return p->hidden > 0 && p->n_samples > 0 && !p->args.unique_slots && !p->in_place;
}

/* The winner table also has the slots without a sample. */
static bool needs_written(const struct syi_moe_dispatch_plan *p)
{
    return p->hidden > 0 && p->args.zero_unwritten && !needs_winners(p);
}

static size_t row_bytes_of(const struct syi_moe_dispatch_plan *p)
{
    return syi_size_mul((size_t)p->hidden, p->elem_bytes);
}

/* Of the copy: as many as any segment has. */
static int count_tasks(const sy_ctx *ctx, const struct syi_moe_dispatch_plan *p, int64_t n)
{
    return syi_tasks(ctx, n, (uint64_t)n * row_bytes_of(p));
}

static struct job lay_out(const sy_ctx *ctx, const struct syi_moe_dispatch_plan *p, struct syi_arena *arena)
{
    struct job job = {.plan = p, .scale = ctx->kernels->scale[syi_float_of(p->input.type)]};
    if (needs_winners(p))
        job.winner = syi_take(arena, syi_size_mul((size_t)p->n_slots, sizeof *job.winner));
    if (needs_written(p))
        job.written = syi_take(arena, (size_t)p->n_slots);
    if (p->codes.given && p->gates.data != NULL)
        job.scaled =
            syi_take(arena, syi_size_mul((size_t)count_tasks(ctx, p, p->n_samples), row_bytes_of(p)));
    return job;
}

SYI_CPU_WORKSPACE(moe_dispatch)

static int64_t slot_of(const struct syi_moe_dispatch_plan *p, int64_t s)
{
    return syi_slot(syi_load_i32(p->indices.data, s), syi_load_i32(p->locations.data, s), p->n_experts,
                    p->args.capacity);
}

static float gate_of(const struct syi_moe_dispatch_plan *p, int64_t s)
{
    if (p->gates.data == NULL)
        return 1.0f;
    return syi_load_float(p->gates.data + (size_t)s * syi_float_bytes(p->gates.type), p->gates.type);
}

static void find_winners(const struct job *job)
{
    for (int64_t s = job->first; s < job->last; s++) {
        const int64_t slot = slot_of(job->plan, s);
        if (slot >= 0)
            job->winner[slot] = (int32_t)(s - job->first);
    }
}

/* Times its gate; a row that becomes codes needs no product with 1. */
static void write_sample(const struct job *job, int task, int64_t slot, int64_t s)
{
    const struct syi_moe_dispatch_plan *p = job->plan;
    unsigned char *scaled = job->scaled != NULL ? job->scaled + (size_t)task * row_bytes_of(p) : NULL;
    if (scaled != NULL || !p->codes.given)
        job->scale(scaled != NULL ? scaled : syi_at(p->dispatch, slot), syi_at(p->input, s), gate_of(p, s),
                   (size_t)p->hidden);
    if (p->codes.given)
        syi_write_row(&job->writer, slot, scaled != NULL ? scaled : syi_at(p->input, s));
}

static void scale_rows(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_dispatch_plan *p = job->plan;
    const int64_t n = job->last - job->first;
    const int64_t end = job->first + syi_part(n, job->n_tasks, task + 1);
    for (int64_t s = job->first + syi_part(n, job->n_tasks, task); s < end; s++) {
        const int64_t slot = slot_of(p, s);
        if (slot < 0 || (job->winner != NULL && job->winner[slot] != s - job->first))
            continue;
        if (job->written != NULL)
            job->written[slot] = 1;
        write_sample(job, task, slot, s);
    }
}

/* dispatch is input: every row is read after all writes of earlier samples, column by column range. */
static void scale_columns(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_dispatch_plan *p = job->plan;
    const int64_t first = syi_part(p->hidden, job->n_tasks, task);
    const size_t n = (size_t)(syi_part(p->hidden, job->n_tasks, task + 1) - first);
    const size_t skip = (size_t)first * p->elem_bytes;
    for (int64_t s = 0; s < p->n_samples; s++) {
        const int64_t slot = slot_of(p, s);
        if (slot < 0)
            continue;
        if (job->written != NULL && task == 0) /* all tasks visit all samples */
            job->written[slot] = 1;
        job->scale(syi_at(p->dispatch, slot) + skip, syi_at(p->input, s) + skip, gate_of(p, s), n);
    }
}

/* Slots without a sample are at the end of each expert, so tasks alternate every few slots. */
static void clear_unwritten(void *data, int task)
{
    enum { STRIPE = 32 };
    const struct job *job = data;
    const struct syi_moe_dispatch_plan *p = job->plan;
    for (int64_t first = (int64_t)task * STRIPE; first < p->n_slots;
         first += (int64_t)job->n_tasks * STRIPE) {
        const int64_t end = p->n_slots - first < STRIPE ? p->n_slots : first + STRIPE;
        for (int64_t slot = first; slot < end; slot++)
            if (job->written != NULL ? job->written[slot] == 0 : job->winner[slot] < 0)
                syi_clear_row(&job->writer, slot);
    }
}

sy_status syi_cpu_moe_dispatch(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_dispatch_plan *p = &plan->moe_dispatch;
    const uint64_t row_bytes = row_bytes_of(p);
    struct syi_arena arena = {workspace, 0};
    struct job job = lay_out(ctx, p, &arena);

    if (p->n_slots == 0 || p->hidden == 0)
        return SY_OK;
    job.writer = syi_row_writer_of(ctx, &p->codes, p->dispatch,
                                   p->codes.given ? (size_t)p->hidden : (size_t)row_bytes);
    if (job.winner != NULL)
        memset(job.winner, 0xff, (size_t)p->n_slots * sizeof *job.winner);
    if (job.written != NULL)
        memset(job.written, 0, (size_t)p->n_slots);
    for (job.first = 0; job.first < p->n_samples; job.first = job.last) {
        job.last = p->n_samples - job.first > SEGMENT ? job.first + SEGMENT : p->n_samples;
        if (job.winner != NULL)
            find_winners(&job);
        if (!p->in_place) {
            job.n_tasks = count_tasks(ctx, p, job.last - job.first);
            syi_parallel(ctx, job.n_tasks, scale_rows, &job);
        }
    }
    if (p->in_place) {
        job.n_tasks = syi_tasks(ctx, p->hidden, (uint64_t)p->n_samples * row_bytes);
        syi_parallel(ctx, job.n_tasks, scale_columns, &job);
    }
    if (p->args.zero_unwritten) {
        job.n_tasks = syi_tasks(ctx, p->n_slots, (uint64_t)p->n_slots * row_bytes);
        syi_parallel(ctx, job.n_tasks, clear_unwritten, &job);
    }
    return SY_OK;
}
