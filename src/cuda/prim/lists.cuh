/*
 * Lists of tokens, row after row: where those of a row begin and end, and whether all of them are right.
 */
#pragma once

#include "cuda/prim/load.cuh"

struct syc_span {
    int64_t first, end;
};

SYC_INLINE int64_t syc_list_end(const syi_token_lists &l, int64_t b)
{
    return syc_index(l.indptr, b, l.indptr_type);
}

/* The elements of a row, none if there are no lists. */
SYC_INLINE syc_span syc_list_span(const syi_token_lists &l, int64_t b)
{
    if (l.indptr == NULL)
        return {0, 0};
    return {syc_list_end(l, b), syc_list_end(l, b + 1)};
}

SYC_INLINE int64_t syc_list_token(const syi_token_lists &l, int64_t j)
{
    return syc_index(l.token, j, l.token_type);
}

SYC_INLINE float syc_list_value(const syi_token_lists &l, int64_t j)
{
    return __uint_as_float(syc_load<u32>(l.value + j * 4));
}

/* A check (see syc_validate): for each list its ends, then its tokens, so that the first fault is that of the
   CPU. A list may have no ends, and is then one for all rows, or no tokens. */
template <int N> struct syc_lists_check {
    syi_token_lists list[N];
    int64_t ends[N]; /* entries of indptr; 0: batch + 1 */
    bool filled[N];  /* no list is empty */
    int64_t batch, vocab;
    bool ascending; /* the tokens of a row, and none twice */
    int64_t n;

    __device__ bool wrong_end(const syi_token_lists &l, int64_t b, bool full, syi_found *f) const
    {
        const int64_t value = syc_list_end(l, b), least = b > 0 ? syc_list_end(l, b - 1) : 0;
        if (full && b > 0 && value == least) {
            *f = {SYI_BAD_LIST_EMPTY, l.indptr_field, -1, b, value, least, 0};
            return true;
        }
        if (value >= least && value <= l.n)
            return false;
        const bool high = value > l.n;
        *f = {high        ? SYI_BAD_LIST_ENDS_HIGH
              : value < 0 ? SYI_BAD_LIST_ENDS_LOW
                          : SYI_BAD_LIST_ENDS_BACK,
              l.indptr_field,
              -1,
              b,
              value,
              high ? l.n : least,
              high ? least : l.n};
        return true;
    }

    /* The row of an element, if all ends are right; some row otherwise. */
    __device__ int64_t row_of(const syi_token_lists &l, int64_t j, int64_t rows) const
    {
        int64_t low = 0, high = rows; /* the row is the last that does not begin after j */
        while (high - low > 1) {
            const int64_t middle = low + (high - low) / 2;
            if (syc_list_end(l, middle) <= j)
                low = middle;
            else
                high = middle;
        }
        return low;
    }

    __device__ bool wrong_token(const syi_token_lists &l, int64_t j, int64_t rows, syi_found *f) const
    {
        if (l.indptr == NULL) {
            const int64_t token = syc_list_token(l, j);
            *f = {SYI_BAD_LIST_ONLY, l.token_field, -1, j, token, vocab, 0};
            return token < 0 || token >= vocab;
        }
        if (j < syc_list_end(l, 0) || j >= syc_list_end(l, rows))
            return false;
        const int64_t token = syc_list_token(l, j),
                      before = ascending && j > 0 ? syc_list_token(l, j - 1) : -1;
        if (token < 0 || token >= vocab) {
            *f = {SYI_BAD_LIST_TOKEN, l.token_field, row_of(l, j, rows), j, token, vocab, 0};
            return true;
        }
        if (!ascending || token > before)
            return false;
        const int64_t b = row_of(l, j, rows);
        *f = {SYI_BAD_LIST_ORDER, l.token_field, b, j, token, before, 0};
        return j > syc_list_end(l, b);
    }

    __device__ bool fault(int64_t i, syi_found *f) const
    {
        for (int k = 0; k < N; k++) {
            const syi_token_lists &l = list[k];
            const int64_t entries = ends[k] > 0 ? ends[k] : batch + 1, first = l.indptr != NULL ? entries : 0;
            const int64_t own = first + (l.token != NULL ? l.n : 0);
            if (i < own)
                return i < first ? wrong_end(l, i, filled[k], f) : wrong_token(l, i - first, entries - 1, f);
            i -= own;
        }
        return false;
    }

    __device__ bool wrong(int64_t i) const
    {
        syi_found f;
        return fault(i, &f);
    }

    __device__ void explain(int64_t i, syi_found *f) const { fault(i, f); }

    /* Sets n. */
    void count()
    {
        n = 0;
        for (int k = 0; k < N; k++)
            n += (list[k].indptr == NULL ? 0
                  : ends[k] > 0          ? ends[k]
                                         : batch + 1) +
                 (list[k].token != NULL ? list[k].n : 0);
    }
};
