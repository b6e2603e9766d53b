/*
 * moe_capacity: the cost of a call. Must read: 8 bytes per expert, which is also the limit.
 */
#include "described.h"

static const char *const shapes[] = {
    "E=256",
    /* Quick. */
    "E=64",
};

static void make(struct bench_call *c)
{
    sy_moe_capacity_args *const a = c->args;
    a->samples = 4096;
    a->num_experts = bench_size(c, "E=");
    a->k = 8;
    a->factor = -1.25;
    a->alignment = 8;
    bench_in(c, &a->counts, SY_I64, DIMS(a->num_experts), BENCH_TURNS, fill_ids, 300);
    bench_out(c, &a->capacity, BENCH_ONCE);
    c->limit.read_bytes = bench_bytes(a->counts);
}

static void plain(const struct bench_call *c)
{
    const sy_moe_capacity_args *const a = c->args;
    const int64_t *const counts = a->counts->data;
    const int64_t fair_share = (a->samples + a->num_experts - 1) / a->num_experts;
    int64_t slots = a->k * (int64_t)(-a->factor * (double)fair_share), most = 0;
    for (int64_t e = 0; e < a->num_experts; e++)
        most = counts[e] > most ? counts[e] : most;
    slots = most < slots ? most : slots;
    *(int64_t *)a->capacity->data = (slots + a->alignment - 1) / a->alignment * a->alignment;
}

BENCH_OP(moe_capacity, shapes, 1, make, .plain = plain);
