/*
 * sample_noise on the CPU: the exponential variates of a race, four tokens per counter.
 */
#include "cpu/sample.h"
#include "cpu/backend.h"

struct job {
    const struct syi_sample_noise_plan *plan;
    int64_t n_groups; /* of four tokens */
    int n_tasks;
};

SYI_CPU_NO_WORKSPACE(sample_noise)

static void make_noise(void *data, int task)
{
    const struct job *job = data;
    const struct syi_sample_noise_plan *p = job->plan;
    const struct syi_noise noise = {p->args.seed, p->args.offset, p->args.stream};
    const int64_t end = syi_part(job->n_groups, job->n_tasks, task + 1);
    for (int64_t group = syi_part(job->n_groups, job->n_tasks, task); group < end; group++) {
        uint32_t word[4];
        float q[4];
        syi_noise_words(&noise, (uint32_t)group, word);
        for (int i = 0; i < 4; i++)
            q[i] = syi_exponential(word[i]);
        const int64_t rest = p->args.n - 4 * group;
        memcpy(p->q.data + 4 * group * (int64_t)sizeof *q, q, (size_t)(rest < 4 ? rest : 4) * sizeof *q);
    }
}

sy_status syi_cpu_sample_noise(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    enum { COST = 16 }; /* a variate takes as long as that many bytes of a copy or more */
    const struct syi_sample_noise_plan *p = &plan->sample_noise;
    struct job job = {.plan = p, .n_groups = (p->args.n + 3) / 4};
    (void)workspace;
    if (p->args.n == 0)
        return SY_OK;
    job.n_tasks = syi_tasks(ctx, job.n_groups, (uint64_t)p->args.n * sizeof(float) * COST);
    syi_parallel(ctx, job.n_tasks, make_noise, &job);
    return SY_OK;
}
