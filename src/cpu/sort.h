/*
 * Sorting keys that come from the caller's data: the time depends on their number and width, not on their
 * values.
 */
#pragma once

#include "base/base.h"

struct syi_keyed {
    uint64_t key;
    int64_t value;
};

/* By ascending key, equal keys in their old order. No key is above `most`. Returns `items` or `spare`, whichever holds
   the result; both have n entries, fewer than 2^32. */
struct syi_keyed *syi_sort_keyed(struct syi_keyed *items, struct syi_keyed *spare, size_t n, uint64_t most);
