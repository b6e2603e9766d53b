/*
 * moe_place: host code in integers, of which the loads and places are few bytes. The limit is a copy of both; the plain loop
 * searches all experts for every replica and all devices for every place.
 */
#include "described.h"

#include <stdlib.h>

static const char *const shapes[] = {
    "L=58 E=256 P=288 D=32",
    "L=1 E=256 P=320 D=64",
    /* Quick. */
    "L=4 E=64 P=80 D=8",
};

enum { MOST = 512 }; /* physical experts */

BENCH_OWN(fill_loads, bench_store_integer, (i * 7919 + 13) % 1009 * 1000)

static void make(struct bench_call *c)
{
    sy_moe_place_args *const a = c->args;
    a->num_physical = bench_size(c, "P=");
    a->devices = bench_size(c, "D=");
    bench_in(c, &a->loads, SY_I64, DIMS(bench_size(c, "L="), bench_size(c, "E=")), BENCH_TURNS, fill_loads,
             0);
    bench_out(c, &a->physical_to_logical, BENCH_COPIES);
    c->limit.copy_bytes = bench_bytes(a->loads);
}

/* One layer. */
static void place(const sy_moe_place_args *a, const int64_t *loads, int32_t *out)
{
    const int64_t experts = a->loads->shape[1], n = a->num_physical, size = n / a->devices;
    int64_t count[MOST] = {0}, slot[MOST] = {0}, sum[MOST] = {0}, held[MOST] = {0};
    bool placed[MOST] = {false};
    for (int64_t e = 0; e < experts; e++) {
        slot[e] = e;
        count[e] = 1;
    }
    for (int64_t i = experts; i < n; i++) {
        int64_t best = 0;
        for (int64_t e = 1; e < experts; e++)
            best = loads[e] * count[best] > loads[best] * count[e] ? e : best;
        slot[i] = best;
        count[best]++;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t next = -1, to = -1, most = -1;
        for (int64_t j = 0; j < n; j++) {
            const int64_t of = count[slot[j]] > 0 ? count[slot[j]] : 1,
                          load = loads[slot[j]] * (1 << 24) / of;
            if (!placed[j] && load > most) {
                most = load;
                next = j;
            }
        }
        for (int64_t d = 0; d < a->devices; d++)
            if (held[d] < size && (to < 0 || sum[d] < sum[to]))
                to = d;
        if (next < 0 || to < 0)
            return;
        placed[next] = true;
        sum[to] += most;
        out[to * size + held[to]++] = (int32_t)slot[next];
    }
}

static void plain(const struct bench_call *c)
{
    const sy_moe_place_args *const a = c->args;
    const int64_t *const loads = a->loads->data;
    int32_t *const out = a->physical_to_logical->data;
    for (int64_t l = 0; l < a->loads->shape[0]; l++)
        place(a, loads + l * a->loads->shape[1], out + l * a->num_physical);
}

BENCH_OP(moe_place, shapes, 1, make, .plain = plain);
