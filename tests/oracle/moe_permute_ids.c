/*
 * A weight of exactly 0 adds nothing, not even 0 times infinity.
 */
#include "oracle/moe_permute_ids.h"

#include <stdlib.h>

#include "oracle/numbers.h"

struct slot {
    int64_t id, number;
};

static int by_id(const void *left, const void *right)
{
    const struct slot *a = left, *b = right;
    if (a->id != b->id)
        return a->id < b->id ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

void oracle_id_places(int64_t n, const int64_t *ids, int64_t experts, int32_t *places)
{
    struct slot *slots = calloc((size_t)n + 1, sizeof *slots);
    if (slots == NULL)
        abort();
    int64_t live = 0;
    for (int64_t i = 0; i < n; i++) {
        places[i] = -1;
        if (experts < 0 || (ids[i] != -1 && ids[i] != experts))
            slots[live++] = (struct slot){ids[i], i};
    }
    qsort(slots, (size_t)live, sizeof *slots, by_id);
    for (int64_t i = 0; i < live; i++)
        places[slots[i].number] = (int32_t)i;
    free(slots);
}

float oracle_slot_sum(int64_t k, const float *weights, const float *values)
{
    double sum = 0;
    for (int64_t j = 0; j < k; j++) {
        if (weights && weights[j] == 0)
            continue;
        const double product = weights ? (double)weights[j] * (double)values[j] : (double)values[j];
        sum = (double)f32_from_bits(f32_round(sum + (double)f32_from_bits(f32_round(product))));
    }
    return f32_from_bits(f32_round(sum));
}
