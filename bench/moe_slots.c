/*
 * Samples, their choices and expert slots, for the operators that bring rows back from slots: routed as moe_locations
 * would.
 */
#include "described.h"

/* Different experts for the choices of a sample. */
BENCH_OWN(fill_choices, bench_store_integer, bench_different(seed, i % x->shape[1], i / x->shape[1], n))

/* Each at the next free slot; where the samples are few, at any slot, so that the turns do not meet in the same ones. */
static BENCH_FILLER(fill_locations)
{
    const bool sparse = bench_count(x) < bench_size(c, "E=") * n / 4;
    const int32_t *const indices = bench_named(c, "indices")->data;
    int32_t used[256] = {0}, *const locations = x->data;
    for (int64_t at = 0; at < bench_count(x); at++) {
        const int32_t next = used[indices[at]]++;
        locations[at] = sparse ? (int32_t)(random_bits(&seed) % (uint64_t)n) : next;
    }
}

size_t slots_row_bytes(const struct bench_call *c)
{
    return (size_t)bench_size(c, "H=") * (bench_type(c).bits / 8);
}

int64_t slots_row(const DLTensor *indices, const DLTensor *locations, int64_t at, int64_t capacity)
{
    const int64_t e = ((const int32_t *)indices->data)[at], slot = ((const int32_t *)locations->data)[at];
    return e >= 0 && slot >= 0 && slot < capacity ? e * capacity + slot : -1;
}

int64_t slots_make(struct bench_call *c, const DLTensor **indices, const DLTensor **locations,
                   const DLTensor **slots)
{
    const int64_t k = bench_size(c, "k="), samples = bench_size(c, "S="), capacity = bench_size(c, "C=");
    const int64_t experts = bench_size(c, "E=");
    int64_t valid = 0;
    c->touched = (size_t)((k + 1) * samples) * slots_row_bytes(c);
    if (!bench_in(c, indices, SY_I32, DIMS(k, samples), BENCH_TURNS, fill_choices, experts) ||
        !bench_in(c, locations, SY_I32, DIMS(k, samples), BENCH_TURNS, fill_locations, capacity) ||
        !bench_in(c, slots, bench_type(c), DIMS(experts * capacity, bench_size(c, "H=")), BENCH_POOL,
                  fill_around_zero, 0))
        return 0;
    for (int64_t at = 0; at < k * samples; at++)
        valid += slots_row(*indices, *locations, at, capacity) >= 0;
    return valid;
}
