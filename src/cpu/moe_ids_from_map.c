/*
 * moe_ids_from_map on the CPU: rows over threads, once to count and once to write.
 */
#include "cpu/moe_rows.h"
#include "cpu/backend.h"

struct task_fault {
    int64_t token; /* first token with too many experts, or -1 */
    int64_t routed;
};

struct job {
    const struct syi_moe_ids_from_map_plan *plan;
    const struct syi_kernels *kernels;
    int n_tasks;
    struct task_fault *fault; /* [task] */
};

static int count_tasks(const sy_ctx *ctx, const struct syi_moe_ids_from_map_plan *p)
{
    return syi_tasks(ctx, p->n_tokens,
                     (uint64_t)p->n_tokens * ((uint64_t)p->n_experts + (uint64_t)p->n_slots));
}

size_t syi_cpu_moe_ids_from_map_workspace(const sy_ctx *ctx, const union syi_plan *plan)
{
    return syi_align((size_t)count_tasks(ctx, &plan->moe_ids_from_map) * sizeof(struct task_fault));
}

/* Bytes that are not 0. A count of few bytes fits a byte, and compilers add sixteen of those at once. */
static int64_t count_routed(const unsigned char *row, int64_t n)
{
    enum { FEW = 128 };
    int64_t routed = 0;
    for (; n >= FEW; n -= FEW, row += FEW) {
        uint8_t count = 0;
        for (int i = 0; i < FEW; i++)
            count = (uint8_t)(count + (row[i] != 0));
        routed += count;
    }
    for (int64_t i = 0; i < n; i++)
        routed += row[i] != 0;
    return routed;
}

static void count_rows(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_ids_from_map_plan *p = job->plan;
    const int64_t end = syi_part(p->n_tokens, job->n_tasks, task + 1);
    job->fault[task].token = -1;
    for (int64_t t = syi_part(p->n_tokens, job->n_tasks, task); t < end; t++) {
        const int64_t routed = count_routed(syi_at(p->map, t), p->n_experts);
        if (routed > p->n_slots) {
            job->fault[task] = (struct task_fault){t, routed};
            return;
        }
    }
}

static void write_rows(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_ids_from_map_plan *p = job->plan;
    const int64_t end = syi_part(p->n_tokens, job->n_tasks, task + 1);
    int32_t pos[SYI_EXPERTS];
    for (int64_t t = syi_part(p->n_tokens, job->n_tasks, task); t < end; t++) {
        int64_t slot = 0;
        for (int64_t e0 = 0; e0 < p->n_experts; e0 += SYI_EXPERTS) {
            const size_t n = syi_routed(job->kernels, syi_at(p->map, t), p->n_experts, e0, pos);
            for (size_t i = 0; i < n; i++, slot++) {
                const int64_t e = e0 + pos[i];
                syi_store_index(syi_at(p->ids, t), slot, e, p->ids.type);
                if (p->prob_bytes > 0)
                    memcpy(syi_at(p->weights, t) + (size_t)slot * p->prob_bytes,
                           syi_at(p->probs, t) + (size_t)e * p->prob_bytes, p->prob_bytes);
            }
        }
        if (p->prob_bytes > 0)
            memset(syi_at(p->weights, t) + (size_t)slot * p->prob_bytes, 0,
                   (size_t)(p->n_slots - slot) * p->prob_bytes);
        for (; slot < p->n_slots; slot++)
            syi_store_index(syi_at(p->ids, t), slot, -1, p->ids.type);
    }
}

sy_status syi_cpu_moe_ids_from_map(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_ids_from_map_plan *p = &plan->moe_ids_from_map;
    struct job job = {.plan = p, .kernels = ctx->kernels, .n_tasks = count_tasks(ctx, p), .fault = workspace};
    syi_parallel(ctx, job.n_tasks, count_rows, &job);
    for (int i = 0; i < job.n_tasks; i++) {
        const struct task_fault *f = &job.fault[i];
        if (f->token >= 0)
            return syi_reject(ctx, SYI_BAD_MAP_OVER_K, -1, f->token, f->routed, p->n_slots);
    }
    if (p->n_slots > 0)
        syi_parallel(ctx, job.n_tasks, write_rows, &job);
    return SY_OK;
}
