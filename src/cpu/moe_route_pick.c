/*
 * The k largest of a row of keys. Few experts are picked out of few, so a threshold is found that little more than k keys reach, and
 * those are ranked by comparing each with each; nothing is sorted.
 */
#include "cpu/moe_route.h"
#include "plan/route_math.h"
#include "cpu/sample.h"
#include "kernels/kernels.h"

enum {
    ROWS = 4, /* lanes of keys that are compared at a time */
    COLUMNS = 4,
    LANES = ROWS * COLUMNS
};

/*
 * A threshold that at least k <= LANES keys reach, and few more. The maxima of interleaved lanes form
 * rows and columns; each column is sorted, and the first r rows hold r maxima of every column.
 */
static uint32_t threshold_of(const uint32_t *key, int64_t n, int64_t k)
{
    static const unsigned char exchange[][2] = {{0, 1}, {2, 3}, {0, 2}, {1, 3}, {1, 2}};
    uint32_t top[ROWS][COLUMNS] = {{0}};
    for (int64_t i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            uint32_t *lane = &top[l / COLUMNS][l % COLUMNS];
            *lane = key[i + l] > *lane ? key[i + l] : *lane;
        }
    for (size_t x = 0; x < sizeof exchange / sizeof *exchange; x++)
        for (int c = 0; c < COLUMNS; c++) {
            uint32_t *high = &top[exchange[x][0]][c], *low = &top[exchange[x][1]][c];
            const uint32_t larger = *high > *low ? *high : *low;
            *low = *high > *low ? *low : *high;
            *high = larger;
        }
    uint32_t threshold = UINT32_MAX;
    for (int c = 0; c < COLUMNS; c++)
        threshold = top[(k - 1) / COLUMNS][c] < threshold ? top[(k - 1) / COLUMNS][c] : threshold;
    return threshold > 0 ? threshold : 1;
}

/* The places of the keys that reach the threshold, ascending, into s->found; returns how many. */
static size_t find_reaching(const struct syi_kernels *kernels, const struct syi_route_scratch *s,
                            const uint32_t *key, int64_t n, uint32_t threshold)
{
    const size_t end = syi_route_padded(n);
    unsigned char *reaches = s->mark;
    for (size_t i = 0; i < end; i += SYI_ROUTE_WIDTH)
        for (size_t l = 0; l < SYI_ROUTE_WIDTH; l++)
            reaches[i + l] = key[i + l] >= threshold;
    return kernels->nonzero_u8(s->found, reaches, end);
}

static size_t all_places(const struct syi_route_scratch *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        s->found[i] = (int32_t)i;
    return (size_t)n;
}

typedef uint32_t lanes4 __attribute__((vector_size(16))); /* a comparison gives all bits where it holds */

/* How many of `found` keys come before each of LANES of them that begin at place `first`, a multiple of LANES: larger
   ones, and equal ones of a lower place. Zeros follow the keys up to a multiple of LANES. */
static void count_before(const uint32_t *top, size_t found, size_t first, uint32_t *rank)
{
    static const lanes4 after[COLUMNS] = {{0, 1, 1, 1}, {0, 0, 1, 1}, {0, 0, 0, 1}, {0, 0, 0, 0}};
    lanes4 mine[ROWS], sum[ROWS] = {{0}, {0}, {0}, {0}};
    memcpy(mine, top + first, sizeof mine);
    for (size_t i = 0; i < found; i += COLUMNS)
        for (size_t c = 0; c < COLUMNS; c++)
            for (size_t v = 0; v < ROWS; v++) {
                const size_t at = first + v * COLUMNS;
                const uint32_t key = top[i + c];
                sum[v] -= (lanes4)(i < at   ? key >= mine[v]
                                   : i > at ? key > mine[v]
                                            : key + after[c] > mine[v]);
            }
    memcpy(rank, sum, sizeof sum);
}

/* s->found in order of their keys, `top`, into s->winner, equal ones by place. */
static void rank_found(const struct syi_route_scratch *s, const uint32_t *top, size_t found)
{
    for (size_t first = 0; first < found; first += LANES) {
        uint32_t rank[LANES];
        const size_t n = found - first < LANES ? found - first : LANES;
        count_before(top, found, first, rank);
        for (size_t l = 0; l < n; l++)
            s->winner[rank[l]] = s->found[first + l];
    }
}

/*
 * At least the k first of the order into s->winner; returns how many, or 0 when more keys reach the threshold
 * than can be compared each with each. 0 is below every selectable key, and follows the n keys up to
 * a multiple of SYI_ROUTE_WIDTH. Nothing here branches on a comparison of keys.
 */
static int64_t pick_few(const struct syi_kernels *kernels, const struct syi_route_scratch *s,
                        const uint32_t *key, int64_t n, int64_t k)
{
    uint32_t top[SYI_ROUTE_FOUND + LANES];
    const size_t found =
        n <= LANES ? all_places(s, n) : find_reaching(kernels, s, key, n, threshold_of(key, n, k));
    if (found > SYI_ROUTE_FOUND)
        return 0;
    for (size_t i = 0; i < found; i++)
        top[i] = key[s->found[i]];
    memset(top + found, 0, LANES * sizeof *top);
    rank_found(s, top, found);
    return (int64_t)found;
}

int64_t syi_route_pick(const struct syi_kernels *kernels, const struct syi_route_scratch *s, uint32_t *key,
                       int64_t n, int64_t k)
{
    const int64_t few = k <= LANES ? pick_few(kernels, s, key, n, k) : 0;
    if (few > 0)
        return few;
    const int64_t many = k < n ? k + 1 : k;
    struct syi_candidates c = {key, NULL, n};
    struct syi_cut cut = {0, 0};
    syi_select(&c, NULL, (uint64_t)many, s->hist, &cut);
    syi_keep(&c, cut.key, (int64_t)cut.rest, s->many_key[0], s->found);
    const struct syi_candidates order = syi_rank_order(&c, &s->many_key[1], s->many_idx, s->hist);
    memcpy(s->winner, order.idx, (size_t)many * sizeof *s->winner);
    return many;
}

/* In columns side by side. */
void syi_route_two_largest(const uint32_t *key, int64_t n, uint32_t top[2])
{
    uint32_t first[COLUMNS] = {0}, second[COLUMNS] = {0};
    int64_t i = 0;
    for (; i + COLUMNS <= n; i += COLUMNS)
        for (int c = 0; c < COLUMNS; c++)
            syi_keep_two(&first[c], &second[c], key[i + c]);
    for (; i < n; i++)
        syi_keep_two(&first[0], &second[0], key[i]);
    for (int c = 1; c < COLUMNS; c++) {
        syi_keep_two(&first[0], &second[0], first[c]);
        syi_keep_two(&first[0], &second[0], second[c]);
    }
    top[0] = first[0];
    top[1] = second[0];
}
