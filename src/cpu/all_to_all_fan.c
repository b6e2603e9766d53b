/*
 * A dispatch inside one memory, by token: each is read once and written to all its rows, on all devices. By row,
 * a token would be read once for each of its rows, from main memory if tokens are many.
 */
#include "cpu/all_to_all.h"
#include "kernels/kernels.h"
#include "cpu/pool.h"

struct fanning {
    const struct syi_kernels *kernels;
    const struct syi_a2a_fan *fan;
    int n_tasks;
};

/* Lists the rows of every token: count, add up, place. */
static void list_places(const struct syi_a2a_fan *fan)
{
    const int64_t *first = fan->group->order.first, n_tokens = syi_order_tokens(&fan->group->order);
    int64_t *at = fan->first;
    memset(at, 0, ((size_t)n_tokens + 2) * sizeof *at);
    for (int j = 0; j < fan->n_jobs; j++)
        for (int64_t r = 0; r < fan->job[j].n_rows; r++) {
            const struct syi_a2a_pick pick = fan->job[j].pick[r];
            if (pick.position >= 0)
                at[first[pick.position] + pick.row + 2]++;
        }
    for (int64_t t = 0; t < n_tokens; t++)
        at[t + 2] += at[t + 1];
    for (int j = 0; j < fan->n_jobs; j++)
        for (int64_t r = 0; r < fan->job[j].n_rows; r++) {
            const struct syi_a2a_pick pick = fan->job[j].pick[r];
            if (pick.position >= 0)
                fan->place[at[first[pick.position] + pick.row + 1]++] = (struct syi_a2a_place){j, (int32_t)r};
        }
}

/* One plane of one token. */
static void fan_out(const struct fanning *f, int plane, int position, int64_t n, int64_t begin, int64_t end)
{
    const struct syi_a2a_fan *fan = f->fan;
    const struct syi_a2a_plane *any = &fan->job[0].plane[plane];
    const void *from = syi_row_at(any->source[position], n);
    void *to[SYI_FAN];
    for (int64_t i = begin; i < end;) {
        size_t m = 0;
        for (; i < end && m < SYI_FAN; i++)
            to[m++] = syi_row_at(fan->job[fan->place[i].job].plane[plane].to, fan->place[i].row);
        f->kernels->copy_fan(to, m, from, any->row_bytes);
    }
}

static void zero_rows(const struct syi_a2a_job *job, int64_t first, int64_t end)
{
    for (int p = 0; p < job->n_planes; p++)
        for (int64_t r = first; r < end; r++)
            if (job->pick[r].position < 0)
                memset(syi_row_at(job->plane[p].to, r), 0, job->plane[p].row_bytes);
}

/* A part of the tokens, and of the rows that are not sent. */
static void fan_task(void *data, int task)
{
    const struct fanning *f = data;
    const struct syi_a2a_fan *fan = f->fan;
    const struct syi_token_order *order = &fan->group->order;
    const int64_t n_tokens = syi_order_tokens(order), end = syi_part(n_tokens, f->n_tasks, task + 1);
    int position = 0;
    for (int64_t t = syi_part(n_tokens, f->n_tasks, task); t < end; t++) {
        while (t >= order->first[position + 1])
            position++;
        for (int p = 0; p < fan->job[0].n_planes; p++)
            fan_out(f, p, position, t - order->first[position], fan->first[t], fan->first[t + 1]);
    }
    for (int j = 0; j < fan->n_jobs; j++)
        if (fan->job[j].zero)
            zero_rows(&fan->job[j], syi_part(fan->job[j].n_rows, f->n_tasks, task),
                      syi_part(fan->job[j].n_rows, f->n_tasks, task + 1));
}

void syi_a2a_fan_out(sy_ctx *ctx, const struct syi_a2a_fan *fan)
{
    struct fanning f = {.kernels = ctx->kernels, .fan = fan};
    uint64_t bytes = 0;
    for (int j = 0; j < fan->n_jobs; j++)
        for (int p = 0; p < fan->job[j].n_planes; p++)
            bytes += 2 * (uint64_t)fan->job[j].n_rows * fan->job[j].plane[p].row_bytes;
    list_places(fan);
    f.n_tasks = syi_tasks(ctx, syi_order_tokens(&fan->group->order) + 1, bytes);
    syi_parallel(ctx, f.n_tasks, fan_task, &f);
}
