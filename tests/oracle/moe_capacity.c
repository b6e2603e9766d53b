/*
 * A double is m * 2^e with an integer m below 2^53, so factor * n is the integer m * n below 2^106 times 2^e. It is
 * brought to 53 bits, half to even, and then cut at the point.
 */
#include "moe_capacity.h"

#include <math.h>
#include <stdlib.h>

__extension__ typedef unsigned __int128 wide;

int64_t oracle_share(double factor, int64_t n)
{
    int e = 0;
    const double fraction = frexp(factor, &e);
    wide product = (wide)(uint64_t)ldexp(fraction, 53) * (wide)(uint64_t)n;
    int shift = e - 53;
    int drop = 0;
    while (product >> drop >> 53 != 0)
        drop++;
    if (drop > 0) {
        const wide half = (wide)1 << (drop - 1), rest = product & (((wide)1 << drop) - 1);
        product >>= drop;
        shift += drop;
        if (rest > half || (rest == half && product % 2 == 1))
            product++;
    }
    for (; shift > 0 && product < (wide)1 << 64; shift--)
        product *= 2;
    if (product >= (wide)1 << 63 && shift >= 0)
        return -1;
    return shift < -127 ? 0 : (int64_t)(product >> (shift < 0 ? -shift : 0));
}

static int descending(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a < b) - (a > b);
}

int64_t oracle_moe_capacity(int64_t samples, int64_t experts, int64_t k, double factor, int64_t alignment,
                            const int64_t *counts)
{
    int64_t per_expert = 0, largest = 0;
    while (per_expert * experts < samples)
        per_expert++;
    if (counts != NULL) {
        int64_t *sorted = malloc((size_t)experts * sizeof *sorted);
        for (int64_t e = 0; sorted != NULL && e < experts; e++)
            sorted[e] = counts[e];
        qsort(sorted, (size_t)experts, sizeof *sorted, descending);
        largest = sorted[0];
        free(sorted);
    }
    const int64_t one = oracle_share(fabs(factor), per_expert);
    const wide limit = (wide)1 << 63, all = one < 0 ? limit : (wide)(uint64_t)one * (wide)(uint64_t)k;
    wide slots = factor > 0 ? all : (wide)(uint64_t)largest;
    if (factor < 0 && all < slots)
        slots = all;
    while (slots < limit && slots % (wide)(uint64_t)alignment != 0)
        slots++;
    return slots < limit ? (int64_t)slots : -1;
}
