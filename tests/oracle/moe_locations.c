/*
 * Both orders come from qsort with every tie decided, so nothing here counts, and nothing depends on stability.
 */
#include "moe_locations.h"

#include <math.h>
#include <stdlib.h>

#include "oracle/numbers.h"

struct ranked {
    double importance;
    int64_t sample;
};

static int sign_of(int64_t difference)
{
    return (difference > 0) - (difference < 0);
}

/* Larger first; NaN behind every number; equal ones, both zeros among them, by sample. */
static int by_importance(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    if (isnan(a->importance) != isnan(b->importance))
        return isnan(a->importance) ? 1 : -1;
    if (a->importance > b->importance)
        return -1;
    if (a->importance < b->importance)
        return 1;
    return sign_of(a->sample - b->sample);
}

struct entry {
    int64_t expert, visit, at; /* at: position in [k,S] */
};

static int by_expert(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    return a->expert != b->expert ? sign_of(a->expert - b->expert) : sign_of(a->visit - b->visit);
}

void oracle_moe_locations(const struct locations_case *in, int32_t *locations, int64_t *counts)
{
    const int64_t n = in->choices * in->samples;
    struct ranked *rank = calloc((size_t)in->samples + 1, sizeof *rank);
    struct entry *entries = calloc((size_t)n + 1, sizeof *entries);
    if (!(rank && entries))
        abort();
    for (int64_t i = 0; i < in->samples; i++)
        rank[i] = (struct ranked){in->importance ? in->importance[i] : 0, i};
    qsort(rank, (size_t)in->samples, sizeof *rank, by_importance);
    for (int64_t t = 0; t < in->choices; t++)
        for (int64_t r = 0; r < in->samples; r++) {
            const int64_t at = t * in->samples + rank[r].sample;
            entries[at] = (struct entry){in->indices[at], t * in->samples + r, at};
        }
    qsort(entries, (size_t)n, sizeof *entries, by_expert);
    for (int64_t e = 0; counts != NULL && e < in->experts; e++)
        counts[e] = 0;
    for (int64_t i = 0, first = 0; i < n; i++) {
        const int64_t e = entries[i].expert;
        const int real = e >= 0 && e < in->experts;
        first = e == entries[first].expert ? first : i;
        locations[entries[i].at] = real ? (int32_t)(i - first) : -1;
        if (real && counts != NULL)
            counts[e]++;
    }
    free(rank);
    free(entries);
}
