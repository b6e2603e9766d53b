/*
 * Earlier slots with the same row are searched for, one by one.
 */
#include "oracle/moe_convert_indices.h"

#include <stdbool.h>

static const sy_fault none = {.status = SY_OK, .argument = ""};

static sy_fault bad(sy_fault_code code, int64_t batch, int64_t position, int64_t value, int64_t limit)
{
    return (sy_fault){SY_ERR_ROUTING, code, "sorted_indices", batch, position, value, limit};
}

static sy_fault read_slots(const struct convert_case *c)
{
    for (int64_t i = 0; i < c->tokens * c->slots_in; i++) {
        const int32_t row = c->in[i];
        if (row < -1 || row >= c->rows)
            return bad(SY_FAULT_SLOT_RANGE, -1, i, row, c->rows);
        for (int64_t j = 0; row >= 0 && c->owner[row] >= 0; j++)
            if (c->in[j] == row)
                return bad(SY_FAULT_DUPLICATE, -1, i, row, j);
        if (row >= 0)
            c->owner[row] = (int32_t)(i / c->slots_in);
    }
    return none;
}

static sy_fault read_rows(const struct convert_case *c)
{
    for (int64_t row = 0; row < c->rows; row++) {
        c->owner[row] = c->in[row];
        if (c->in[row] < -1 || c->in[row] >= c->tokens)
            return bad(SY_FAULT_SLOT_RANGE, -1, row, c->in[row], c->tokens);
    }
    return none;
}

static sy_fault read_te(const struct convert_case *c)
{
    const int64_t columns = 2 * c->experts + 1;
    for (int64_t t = 0; t < c->tokens; t++) {
        const int32_t *const own = c->in + t * columns, n = own[columns - 1];
        if (n < 0 || n > c->experts)
            return bad(SY_FAULT_SLOT_RANGE, t, columns - 1, n, c->experts + 1);
        for (int64_t i = 0; i < n; i++) {
            if (own[i] < 0 || own[i] >= c->rows)
                return bad(SY_FAULT_SLOT_RANGE, t, i, own[i], c->rows);
            if (c->owner[own[i]] >= 0)
                return bad(SY_FAULT_DUPLICATE, t, i, own[i], c->owner[own[i]]);
            c->owner[own[i]] = (int32_t)t;
        }
    }
    return none;
}

/* Offsets ascend from 0 to at most M, and every row with a token has an expert. */
static sy_fault check_offsets(const struct convert_case *c)
{
    for (int64_t e = 0; e <= c->experts; e++) {
        const int64_t low = e > 0 ? c->offsets[e - 1] : 0, high = e > 0 ? c->rows : 0, at = c->offsets[e];
        if (at < low || at > high)
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_LENGTH_RANGE, "expert_offsets", -1, e,
                              at,           at < low ? low : high};
    }
    for (int64_t row = c->offsets[c->experts]; row < c->rows; row++)
        if (c->owner[row] >= 0)
            return (sy_fault){SY_ERR_ROUTING, SY_FAULT_SLOT_RANGE,    "expert_offsets", -1,
                              c->experts,     c->offsets[c->experts], row + 1};
    return none;
}

static sy_fault check_tokens(const struct convert_case *c, int64_t most)
{
    for (int64_t t = 0; t < c->tokens; t++) {
        int64_t n = 0;
        for (int64_t row = 0; row < c->rows; row++)
            n += c->owner[row] == t;
        if (n > most)
            return bad(SY_FAULT_ROW_OVERFULL, -1, t, n, most);
    }
    return none;
}

/* The n-th row of a token, from the top or from the bottom; -1: it has fewer. */
static int32_t nth_row(const struct convert_case *c, int64_t t, int64_t n, bool descending)
{
    for (int64_t i = 0; i < c->rows; i++) {
        const int64_t row = descending ? c->rows - 1 - i : i;
        if (c->owner[row] == t && n-- == 0)
            return (int32_t)row;
    }
    return -1;
}

static void write_te(const struct convert_case *c, int64_t t, int32_t *out)
{
    int32_t n = 0;
    for (int64_t i = 0; i < c->experts; i++) {
        int32_t e = 0;
        out[i] = nth_row(c, t, i, true);
        while (out[i] >= c->offsets[e + 1])
            e++;
        out[c->experts + i] = out[i] < 0 ? -1 : e;
        n += out[i] >= 0;
    }
    out[2 * c->experts] = n;
}

sy_fault oracle_moe_convert_indices(const struct convert_case *c, int32_t *out)
{
    for (int64_t row = 0; row < c->rows; row++)
        c->owner[row] = -1;
    sy_fault fault = c->from == SY_INDEX_SLOT  ? read_slots(c)
                     : c->from == SY_INDEX_ROW ? read_rows(c)
                                               : read_te(c);
    if (fault.status == SY_OK && c->to == SY_INDEX_TE)
        fault = check_offsets(c);
    if (fault.status == SY_OK && c->to != SY_INDEX_ROW)
        fault = check_tokens(c, c->to == SY_INDEX_SLOT ? c->slots_out : c->experts);
    for (int64_t row = 0; fault.status == SY_OK && c->to == SY_INDEX_ROW && row < c->rows; row++)
        out[row] = c->owner[row];
    for (int64_t i = 0; fault.status == SY_OK && c->to == SY_INDEX_SLOT && i < c->tokens * c->slots_out; i++)
        out[i] = nth_row(c, i / c->slots_out, i % c->slots_out, false);
    for (int64_t t = 0; fault.status == SY_OK && c->to == SY_INDEX_TE && t < c->tokens; t++)
        write_te(c, t, out + t * (2 * c->experts + 1));
    return fault;
}
