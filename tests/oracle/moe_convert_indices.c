/*
 * The one question asked of the input is which token a row belongs to.
 */
#include "oracle/moe_convert_indices.h"

static int32_t token_of(const struct convert_case *c, int64_t row)
{
    const int64_t columns = 2 * c->experts + 1;
    if (c->from == SY_INDEX_ROW)
        return c->in[row];
    for (int64_t t = 0; t < c->tokens; t++) {
        const int64_t n = c->from == SY_INDEX_TE ? c->in[t * columns + 2 * c->experts] : c->slots;
        for (int64_t i = 0; i < n; i++)
            if (c->in[t * (c->from == SY_INDEX_TE ? columns : c->slots) + i] == row)
                return (int32_t)t;
    }
    return -1;
}

/* The n-th row of a token, from the top or from the bottom; -1: it has fewer. */
static int32_t nth_row(const struct convert_case *c, int64_t t, int64_t n, int descending)
{
    for (int64_t i = 0; i < c->rows; i++) {
        const int64_t row = descending ? c->rows - 1 - i : i;
        if (token_of(c, row) == t && n-- == 0)
            return (int32_t)row;
    }
    return -1;
}

static int32_t expert_of(const struct convert_case *c, int64_t row)
{
    int32_t e = 0;
    while (row >= c->offsets[e + 1])
        e++;
    return e;
}

static void write_te(const struct convert_case *c, int64_t t, int32_t *out)
{
    int32_t n = 0;
    for (int64_t i = 0; i < c->experts; i++) {
        out[i] = nth_row(c, t, i, 1);
        out[c->experts + i] = out[i] < 0 ? -1 : expert_of(c, out[i]);
        n += out[i] >= 0;
    }
    out[2 * c->experts] = n;
}

void oracle_moe_convert_indices(const struct convert_case *c, int32_t *out)
{
    for (int64_t row = 0; c->to == SY_INDEX_ROW && row < c->rows; row++)
        out[row] = token_of(c, row);
    for (int64_t i = 0; c->to == SY_INDEX_SLOT && i < c->tokens * c->slots; i++)
        out[i] = nth_row(c, i / c->slots, i % c->slots, 0);
    for (int64_t t = 0; c->to == SY_INDEX_TE && t < c->tokens; t++)
        write_te(c, t, out + t * (2 * c->experts + 1));
}
