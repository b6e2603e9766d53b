/*
 * moe_dispatch_grad_gate on the CPU. Samples are split over threads, and the rows of a sample's choices are
 * multiplied together. A few long rows are cut into the blocks of the dot product instead, and the blocks added
 * in order: the result is the same.
 */
#include "cpu/moe.h"
#include "cpu/backend.h"

struct job {
    const struct syi_moe_dispatch_grad_gate_plan *plan;
    syi_dot_rows_fn *dot_rows;
    size_t elem_bytes;
    int n_tasks;
    int64_t n_blocks; /* of a row */
    float *parts;     /* [k*S][n_blocks], or NULL: whole rows */
};

enum { CHOICES = 16 }; /* of one sample, multiplied by one call */

struct lookup {
    size_t n;
    int64_t choice[CHOICES];
    const void *row[CHOICES];
};

static int64_t n_entries(const struct syi_moe_dispatch_grad_gate_plan *p)
{
    return p->n_choices * p->n_samples;
}

static int64_t count_blocks(const struct syi_moe_dispatch_grad_gate_plan *p)
{
    return p->hidden / SYI_DOT_BLOCK + (p->hidden % SYI_DOT_BLOCK != 0);
}

static uint64_t work_bytes(const struct syi_moe_dispatch_grad_gate_plan *p)
{
    return (uint64_t)n_entries(p) * (uint64_t)p->hidden * syi_float_bytes(p->input.type) * 2;
}

/* Rows are longer than a block, and there are fewer samples than useful threads. */
static bool cuts_rows(const sy_ctx *ctx, const struct syi_moe_dispatch_grad_gate_plan *p)
{
    return count_blocks(p) > 1 && syi_tasks(ctx, INT64_MAX, work_bytes(p)) > p->n_samples;
}

size_t syi_cpu_moe_dispatch_grad_gate_workspace(const sy_ctx *ctx, const union syi_plan *plan)
{
    const struct syi_moe_dispatch_grad_gate_plan *p = &plan->moe_dispatch_grad_gate;
    if (!cuts_rows(ctx, p))
        return 0;
    return syi_align(
        syi_size_mul(syi_size_mul((size_t)n_entries(p), (size_t)count_blocks(p)), sizeof(float)));
}

static int64_t slot_of(const struct syi_moe_dispatch_grad_gate_plan *p, int64_t choice, int64_t s)
{
    return syi_slot(syi_load_i32(syi_at(p->indices, choice), s),
                    syi_load_i32(syi_at(p->locations, choice), s), p->n_experts, p->args.capacity);
}

static void store_gate(const struct syi_moe_dispatch_grad_gate_plan *p, int64_t choice, int64_t s,
                       float value)
{
    const size_t at = (size_t)s * syi_float_bytes(p->grad_gates.type);
    syi_store_float(syi_at(p->grad_gates, choice) + at, p->grad_gates.type, value);
}

/* Valid ones of the choices [first, first + CHOICES) of sample s; the others get a gradient of 0. */
static void look_up(const struct job *job, int64_t s, int64_t first, struct lookup *found)
{
    const struct syi_moe_dispatch_grad_gate_plan *p = job->plan;
    const int64_t end = p->n_choices - first < CHOICES ? p->n_choices : first + CHOICES;
    found->n = 0;
    for (int64_t choice = first; choice < end; choice++) {
        const int64_t slot = slot_of(p, choice, s);
        if (slot < 0) {
            store_gate(p, choice, s, 0.0f);
            continue;
        }
        found->choice[found->n] = choice;
        found->row[found->n] = syi_at(p->dispatch, slot);
        syi_fetch_head(found->row[found->n++], (size_t)p->hidden * job->elem_bytes, p->n_choices);
    }
}

/* The next rows are looked up and prefetched before these are multiplied. */
static void whole_rows(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_dispatch_grad_gate_plan *p = job->plan;
    const int64_t n_chunks = (p->n_choices + CHOICES - 1) / CHOICES; /* of a sample */
    const int64_t first = syi_part(p->n_samples, job->n_tasks, task) * n_chunks;
    const int64_t end = syi_part(p->n_samples, job->n_tasks, task + 1) * n_chunks;
    struct lookup found[2];
    float dot[CHOICES];
    if (first < end)
        look_up(job, first / n_chunks, 0, &found[first % 2]);
    for (int64_t chunk = first; chunk < end; chunk++) {
        const struct lookup *now = &found[chunk % 2];
        const int64_t s = chunk / n_chunks;
        if (chunk + 1 < end)
            look_up(job, (chunk + 1) / n_chunks, (chunk + 1) % n_chunks * CHOICES, &found[(chunk + 1) % 2]);
        job->dot_rows(dot, syi_at(p->input, s), now->row, now->n, (size_t)p->hidden);
        for (size_t j = 0; j < now->n; j++)
            store_gate(p, now->choice[j], s, dot[j]);
    }
}

static void row_blocks(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_dispatch_grad_gate_plan *p = job->plan;
    const int64_t n = n_entries(p) * job->n_blocks, end = syi_part(n, job->n_tasks, task + 1);
    for (int64_t i = syi_part(n, job->n_tasks, task); i < end; i++) {
        const int64_t entry = i / job->n_blocks, first = i % job->n_blocks * SYI_DOT_BLOCK;
        const int64_t left = p->hidden - first;
        const int64_t s = entry % p->n_samples, slot = slot_of(p, entry / p->n_samples, s);
        const size_t skip = (size_t)first * job->elem_bytes;
        job->parts[i] = 0.0f;
        if (slot >= 0)
            job->dot_rows(&job->parts[i], syi_at(p->input, s) + skip,
                          (const void *const[]){syi_at(p->dispatch, slot) + skip}, 1,
                          (size_t)(left < SYI_DOT_BLOCK ? left : SYI_DOT_BLOCK));
    }
}

/* Block sums in order, as the dot product of a whole row adds them. */
static void add_blocks(void *data, int task)
{
    const struct job *job = data;
    (void)task;
    for (int64_t entry = 0; entry < n_entries(job->plan); entry++) {
        float sum = 0.0f;
        for (int64_t b = 0; b < job->n_blocks; b++)
            sum += job->parts[entry * job->n_blocks + b];
        store_gate(job->plan, entry / job->plan->n_samples, entry % job->plan->n_samples, syi_canonical(sum));
    }
}

sy_status syi_cpu_moe_dispatch_grad_gate(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_dispatch_grad_gate_plan *p = &plan->moe_dispatch_grad_gate;
    struct job job = {.plan = p, .dot_rows = ctx->kernels->dot_rows[syi_float_of(p->input.type)]};
    job.elem_bytes = syi_float_bytes(p->input.type);
    job.n_blocks = count_blocks(p);
    if (n_entries(p) == 0)
        return SY_OK;
    if (!cuts_rows(ctx, p)) {
        job.n_tasks = syi_tasks(ctx, p->n_samples, work_bytes(p));
        syi_parallel(ctx, job.n_tasks, whole_rows, &job);
        return SY_OK;
    }
    job.parts = workspace;
    job.n_tasks = syi_tasks(ctx, n_entries(p) * job.n_blocks, work_bytes(p));
    syi_parallel(ctx, job.n_tasks, row_blocks, &job);
    syi_parallel(ctx, 1, add_blocks, &job);
    return SY_OK;
}
