/*
 * Draft tokens of requests, as a chain or a tree: where a request's rows are, what is wrong with them, and which
 * list of stop tokens a request has. For every backend.
 */
#pragma once

#include "plan/load.h"

/* The first row of request b, or with b = n_requests the end of all. */
SYI_BOTH static inline int64_t syi_drafts_first(const struct syi_draft_rows *d, int64_t b)
{
    return d->each >= 0 ? b * d->each : syi_load_index(d->cu_lens, b, d->lens_type);
}

/* The request of a row that one has. */
SYI_BOTH static inline int64_t syi_drafts_request(const struct syi_draft_rows *d, int64_t row)
{
    int64_t low = 0, high = d->n_requests; /* it is the last that does not begin after the row */
    if (d->each >= 0)
        return row / d->each;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (syi_drafts_first(d, middle) <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* A request, its first row and how many it has. */
struct syi_draft {
    int64_t b, first, n;
};

SYI_BOTH static inline struct syi_draft syi_draft_of(const struct syi_draft_rows *d, int64_t b)
{
    const int64_t first = syi_drafts_first(d, b);
    return (struct syi_draft){b, first, syi_drafts_first(d, b + 1) - first};
}

/* Where row or slot r of a request is, of elements of so many bytes. */
SYI_BOTH static inline unsigned char *syi_draft_slot(const struct syi_draft_rows *d, struct syi_rows rows,
                                                     const struct syi_draft *of, int64_t r, int64_t bytes)
{
    return rows.data + (d->each >= 0 ? of->b * rows.stride : of->first * bytes) + r * bytes;
}

/* Of a row r >= 1. */
SYI_BOTH static inline int64_t syi_draft_token(const struct syi_draft_rows *d, const struct syi_draft *of,
                                               int64_t r)
{
    const int64_t bytes = d->token_type == SY_TYPE_I32 ? 4 : 8;
    return syi_load_index(syi_draft_slot(d, d->token, of, r - d->no_roots, bytes), 0, d->token_type);
}

SYI_BOTH static inline int64_t syi_draft_parent(const struct syi_draft_rows *d, const struct syi_draft *of,
                                                int64_t r)
{
    const int64_t bytes = d->parent_type == SY_TYPE_I32 ? 4 : 8;
    if (d->parent.data == NULL)
        return r - 1;
    return syi_load_index(syi_draft_slot(d, d->parent, of, r, bytes), 0, d->parent_type);
}

/* Draft tokens on the way from the root to a row. */
SYI_BOTH static inline int64_t syi_draft_depth(const struct syi_draft_rows *d, const struct syi_draft *of,
                                               int64_t r)
{
    int64_t depth = 0;
    for (; r > 0 && d->parent.data != NULL; depth++)
        r = syi_draft_parent(d, of, r);
    return depth + r;
}

/* ---- What is wrong with them ---- */

/* The items of a check, in the order of faults: ends of requests, then the parents of all rows, then their tokens. */
SYI_BOTH static inline int64_t syi_drafts_items(const struct syi_draft_rows *d)
{
    return (d->each >= 0 ? 0 : d->n_requests + 1) + (d->parent.data != NULL ? 2 : 1) * d->n_rows;
}

SYI_BOTH static inline struct syi_found syi_drafts_bad_end(const struct syi_draft_rows *d, int64_t b)
{
    const int64_t value = syi_drafts_first(d, b), before = b > 0 ? syi_drafts_first(d, b - 1) : 0;
    if (b == 0 && value != 0)
        return syi_bad_at(SYI_BAD_DRAFT_ROWS_FIRST, 0, -1, value, 0);
    if (value < before)
        return syi_bad_at(SYI_BAD_DRAFT_ROWS_BACK, b, -1, value, before);
    if (value > d->n_rows)
        return syi_bad_at(SYI_BAD_DRAFT_ROWS_HIGH, b, -1, value, d->n_rows);
    if (before >= 0 && value - before > d->most)
        return syi_bad_at(SYI_BAD_DRAFT_ROWS_MOST, b - 1, -1, value - before, d->most);
    return syi_good();
}

/* Item i. Rows are looked at even where the ends of requests are wrong, which is found before them. */
SYI_BOTH static inline struct syi_found syi_drafts_bad(const struct syi_draft_rows *d, int64_t i,
                                                       int64_t vocab)
{
    const int64_t ends = d->each >= 0 ? 0 : d->n_requests + 1;
    if (i < ends)
        return syi_drafts_bad_end(d, i);
    i -= ends;
    const bool parents = d->parent.data != NULL && i < d->n_rows;
    const int64_t row = i >= d->n_rows ? i - d->n_rows : i;
    if (d->n_requests == 0 || row >= syi_drafts_first(d, d->n_requests))
        return syi_good();
    struct syi_draft of = {syi_drafts_request(d, row), 0, 0};
    of.first = syi_drafts_first(d, of.b);
    if (of.first < 0 || of.first >= row || row >= syi_drafts_first(d, of.b + 1))
        return syi_good();
    const int64_t r = row - of.first;
    const int64_t value = parents ? syi_draft_parent(d, &of, r) : syi_draft_token(d, &of, r);
    if (parents && (value < 0 || value >= r))
        return syi_bad_at(SYI_BAD_DRAFT_PARENT, of.b, r, value, r);
    if (!parents && (value < -1 || value >= vocab))
        return syi_bad_at(SYI_BAD_DRAFT_TOKEN, of.b, r, value, vocab);
    return syi_good();
}

/* ---- One list for all requests, or one for each ---- */

SYI_BOTH static inline int64_t syi_shared_first(const struct syi_token_lists *l, int64_t b)
{
    return l->indptr != NULL ? syi_load_index(l->indptr, b, l->indptr_type) : 0;
}

SYI_BOTH static inline int64_t syi_shared_end(const struct syi_token_lists *l, int64_t b)
{
    return l->indptr != NULL ? syi_load_index(l->indptr, b + 1, l->indptr_type) : l->n;
}
