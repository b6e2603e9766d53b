#include "oracle/sample_verify.h"

#include <stddef.h>

static int64_t parent_of(const struct verify_request *of, int64_t r)
{
    return of->parent != NULL ? of->parent[r] : r - 1;
}

static bool is_twin(const struct verify_request *of, int64_t a, int64_t b)
{
    return parent_of(of, a) == parent_of(of, b) && of->draft[a] == of->draft[b];
}

static bool is_stop(const struct verify_request *of, int64_t token)
{
    bool found = false;
    for (int64_t i = 0; i < of->n_stop; i++)
        found = found || of->stop[i] == token;
    return found;
}

/* Whether the draft before row r is what its ancestors give, and no row before it says the same. */
static bool is_accepted(const struct verify_request *of, const bool *accepted, int64_t r)
{
    const int64_t up = parent_of(of, r);
    for (int64_t i = 1; i < r; i++)
        if (is_twin(of, i, r))
            return false;
    /* No token follows a stop token. */
    const bool ended = up > 0 && is_stop(of, of->draft[up]);
    return accepted[up] && !ended && !of->empty[up] && of->picked[up] == of->draft[r];
}

static int64_t depth_of(const struct verify_request *of, int64_t r)
{
    return r == 0 ? 0 : 1 + depth_of(of, parent_of(of, r));
}

void oracle_sample_verify(const struct verify_request *of, struct verify_result *to)
{
    to->accepted = to->count = 0;
    for (int64_t r = 0; r < of->n; r++) {
        to->path[r] = -1;
        to->accepted_rows[r] = r == 0 || is_accepted(of, to->accepted_rows, r);
    }
    for (int64_t r = 0; r < of->n; r++) {
        if (!to->accepted_rows[r])
            continue;
        to->accepted += r > 0;
        if (r > 0 && is_stop(of, of->draft[r]))
            continue; /* its row gives no token */
        to->path[depth_of(of, r)] = r;
        to->count++;
    }
}
