/*
 * Lists of tokens, row after row: the range of each row, and validation of all.
 */
#include "cpu/sample.h"
#include "cpu/load.h"
#include "cpu/pool.h"

static int64_t indptr_at(const struct syi_token_lists *l, int64_t b)
{
    return syi_load_int(l->indptr + b * (l->indptr_type == SY_TYPE_I64 ? 8 : 4), l->indptr_type);
}

struct syi_span syi_list_span(const struct syi_token_lists *l, int64_t b)
{
    if (l->indptr == NULL)
        return (struct syi_span){0, 0};
    return (struct syi_span){indptr_at(l, b), indptr_at(l, b + 1)};
}

int64_t syi_list_find(const struct syi_token_lists *l, struct syi_span span, int64_t token)
{
    while (span.first < span.end) {
        const int64_t middle = span.first + (span.end - span.first) / 2;
        if (syi_list_token(l, middle) < token)
            span.first = middle + 1;
        else
            span.end = middle;
    }
    return span.first;
}

/* Each entry from the one before it, or 0, to the length of the lists. */
static sy_status check_indptr(sy_ctx *ctx, const struct syi_token_lists *l, int64_t batch, bool filled)
{
    int64_t least = 0;
    for (int64_t b = 0; b <= batch; b++) {
        const int64_t value = indptr_at(l, b);
        if (filled && b > 0 && value == least) {
            struct syi_found found = syi_bad_at(SYI_BAD_LIST_EMPTY, -1, b, value, least);
            found.field = l->indptr_field;
            return syi_report(ctx, found);
        }
        if (value < least || value > l->n) {
            const bool high = value > l->n;
            struct syi_found found = syi_bad_at(high        ? SYI_BAD_LIST_ENDS_HIGH
                                                : value < 0 ? SYI_BAD_LIST_ENDS_LOW
                                                            : SYI_BAD_LIST_ENDS_BACK,
                                                -1, b, value, high ? l->n : least);
            found.extra = high ? least : l->n;
            found.field = l->indptr_field;
            return syi_report(ctx, found);
        }
        least = value;
    }
    return SY_OK;
}

struct check {
    const struct syi_token_lists *lists;
    int64_t batch, vocab;
    bool ascending;
    int n_tasks;
    struct syi_found *found; /* [task] the first */
};

static struct syi_found check_row(const struct check *c, int64_t b)
{
    const struct syi_token_lists *l = c->lists;
    const struct syi_span span = syi_list_span(l, b);
    int64_t before = -1;
    for (int64_t j = span.first; j < span.end; j++) {
        const int64_t token = syi_list_token(l, j);
        if (token < 0 || token >= c->vocab)
            return syi_bad_at(SYI_BAD_LIST_TOKEN, b, j, token, c->vocab);
        if (c->ascending && token <= before)
            return syi_bad_at(SYI_BAD_LIST_ORDER, b, j, token, before);
        before = token;
    }
    return syi_good();
}

static void check_rows(void *data, int task)
{
    const struct check *check = data;
    const int64_t end = syi_part(check->batch, check->n_tasks, task + 1);
    struct syi_found *found = &check->found[task];
    found->bad = SYI_GOOD;
    for (int64_t b = syi_part(check->batch, check->n_tasks, task); b < end && found->bad == SYI_GOOD; b++)
        *found = check_row(check, b);
    found->field = check->lists->token_field;
}

/* One list for all rows. */
static struct syi_found check_list(const struct syi_token_lists *l, int64_t vocab)
{
    for (int64_t j = 0; j < l->n; j++) {
        const int64_t token = syi_list_token(l, j);
        if (token < 0 || token >= vocab) {
            struct syi_found found = syi_bad_at(SYI_BAD_LIST_ONLY, -1, j, token, vocab);
            found.field = l->token_field;
            return found;
        }
    }
    return syi_good();
}

sy_status syi_check_lists(sy_ctx *ctx, const struct syi_token_lists *l, const struct syi_list_limits *limits,
                          int n_tasks, struct syi_found *found)
{
    struct check check = {l, limits->batch, limits->vocab, limits->ascending, n_tasks, found};
    if (l->indptr == NULL)
        return syi_report(ctx, check_list(l, limits->vocab));
    SYI_TRY(check_indptr(ctx, l, limits->batch, limits->filled));
    if (l->token == NULL)
        return SY_OK;
    syi_parallel(ctx, n_tasks, check_rows, &check);
    return syi_report(ctx, syi_first_bad(found, n_tasks));
}
