/*
 * Given experts of moe_route: every id is validated before a row is written. What no unfinished token names is not read.
 */
#include "cpu/moe_route.h"
#include "plan/route_math.h"

static int64_t first_slot_of(const struct syi_moe_route_plan *p, int64_t row, int64_t id)
{
    int64_t j = 0;
    while (syi_given_id(p, row, j) != id)
        j++;
    return j;
}

/* The first fault of a token; marks its experts. */
static struct syi_found validate_row(const struct syi_moe_route_plan *p, int64_t t, int64_t row,
                                     unsigned char *mark)
{
    for (int64_t j = 0; j < p->k; j++) {
        const int64_t id = syi_given_id(p, row, j);
        if (!syi_is_expert(p, id)) {
            if (!syi_is_unused(p, id))
                return syi_bad_at(SYI_BAD_GIVEN_ID, t, j, id, p->n_experts);
        } else if (mark[id]) {
            return syi_bad_at(SYI_BAD_GIVEN_TWICE, t, j, id, first_slot_of(p, row, id));
        } else {
            mark[id] = 1;
        }
    }
    return syi_good();
}

static void unmark_row(const struct syi_moe_route_plan *p, int64_t row, unsigned char *mark)
{
    for (int64_t j = 0; j < p->k; j++) {
        const int64_t id = syi_given_id(p, row, j);
        if (syi_is_expert(p, id))
            mark[id] = 0;
    }
}

struct syi_found syi_route_validate(const struct syi_moe_route_plan *p, int64_t t, int64_t end,
                                    unsigned char *mark)
{
    for (; t < end; t++) {
        if (p->finished.data != NULL && p->finished.data[t] != 0)
            continue;
        const int64_t row = syi_given_row(p, t);
        if (row < 0 || row >= p->given_rows)
            return syi_bad_at(SYI_BAD_GIVEN_ROW, t, -1, row, p->given_rows);
        const struct syi_found found = validate_row(p, t, row, mark);
        if (found.bad != SYI_GOOD)
            return found;
        unmark_row(p, row, mark);
    }
    return syi_good();
}
