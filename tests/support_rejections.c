/*
 * Tables of rejections as tests: one test for each row, one more for its query, and one for each step of a ladder.
 */
#include "support.h"

#include <stdlib.h>

/* What a test of a table needs. Kept reachable, so that a leak checker stays quiet. */
struct trial {
    struct trial *next;
    void (*make)(struct test_call *call);
    const struct rejection *row, *end; /* end: of the ladder that the row stands in */
};

static struct trial *trial_of(void (*make)(struct test_call *call), const struct rejection *row,
                              const struct rejection *end)
{
    static struct trial *trials;
    struct trial *one = malloc(sizeof *one);
    if (one == NULL)
        abort();
    *one = (struct trial){trials, make, row, end};
    return trials = one;
}

static void rejected(void **state)
{
    const struct trial *trial = *state;
    check_rejection(trial->make, trial->row);
}

static void query_rejected(void **state)
{
    const struct trial *trial = *state;
    check_query_rejection(trial->make, trial->row);
}

/* Together with every later fault, the earlier one is reported. */
static void wins(void **state)
{
    const struct trial *trial = *state;
    for (const struct rejection *later = trial->row + 1; later < trial->end; later++) {
        struct rejection both = *trial->row;
        both.second = later->spoil;
        check_rejection(trial->make, &both);
    }
}

void test_add_query_rejections(struct test_list *list, void (*make)(struct test_call *call),
                               const struct rejection *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        test_add(list, test_name("query: %s", rows[i].name), query_rejected, trial_of(make, &rows[i], NULL));
}

void test_add_rejections(struct test_list *list, void (*make)(struct test_call *call),
                         const struct rejection *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        test_add(list, rows[i].name, rejected, trial_of(make, &rows[i], NULL));
        if (rows[i].query)
            test_add_query_rejections(list, make, &rows[i], 1);
    }
}

void test_add_ladder(struct test_list *list, void (*make)(struct test_call *call),
                     const struct rejection *rows, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++)
        test_add(list, test_name("%s is told before all later faults", rows[i].name), wins,
                 trial_of(make, &rows[i], rows + n));
}
