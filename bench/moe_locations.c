/*
 * moe_locations, experts drawn at random, some more popular than others. Must move: 4 bytes in and 4 bytes out
 * per choice, and the importance where there is one. The limit copies the choices.
 */
#include "described.h"

#include <stdlib.h>
#include <string.h>

static const char *const shapes[] = {
    "k=1 S=18432 E=2",
    "k=8 S=4096 E=256",
    "k=8 S=131072 E=256",
    "k=2 S=18432 E=64 by importance",
    /* Quick. */
    "k=2 S=4096 E=64",
    "k=2 S=4096 E=64 by importance",
};

struct ranked {
    float importance;
    int64_t sample;
};

static void make(struct bench_call *c)
{
    sy_moe_locations_args *const a = c->args;
    const int64_t choices = bench_size(c, "k="), samples = bench_size(c, "S=");
    a->num_experts = bench_size(c, "E=");
    bench_in(c, &a->indices, SY_I32, DIMS(choices, samples), BENCH_TURNS, fill_skewed, a->num_experts);
    if (bench_says(c->shape, "by importance"))
        bench_in(c, &a->importance, SY_F32, DIMS(samples), BENCH_ONCE, fill_unit, 100);
    bench_out(c, &a->locations, BENCH_COPIES);
    bench_out(c, &a->counts, BENCH_ONCE);
    bench_scratch(c, (size_t)samples * sizeof(struct ranked));
    c->limit.copy_bytes = bench_bytes(a->indices);
    c->bytes = bench_work_bytes(&c->limit) + (a->importance ? (double)bench_bytes(a->importance) : 0);
}

static int descending(const void *left, const void *right)
{
    const struct ranked *const a = left, *const b = right;
    if (a->importance != b->importance)
        return a->importance > b->importance ? -1 : 1;
    return a->sample < b->sample ? -1 : 1;
}

static void plain(const struct bench_call *c)
{
    const sy_moe_locations_args *const a = c->args;
    const int64_t choices = a->indices->shape[0], samples = a->indices->shape[1];
    const int32_t *const indices = a->indices->data;
    int32_t *const locations = a->locations->data;
    int64_t *const counts = a->counts->data;
    struct ranked *const order = c->scratch;
    for (int64_t i = 0; i < samples; i++)
        order[i] = (struct ranked){a->importance ? bench_load(a->importance, i) : 0, i};
    if (a->importance)
        qsort(order, (size_t)samples, sizeof *order, descending);
    memset(counts, 0, bench_bytes(a->counts));
    for (int64_t t = 0; t < choices; t++)
        for (int64_t r = 0; r < samples; r++) {
            const int64_t at = t * samples + order[r].sample, e = indices[at];
            locations[at] = e >= 0 && e < a->num_experts ? (int32_t)counts[e]++ : -1;
        }
}

BENCH_OP(moe_locations, shapes, 2, make, .plain = plain);
