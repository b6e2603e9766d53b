/*
 * Lists of tokens, row after row: where a row's begin and end, and whether all of them are right.
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
static sy_status check_indptr(sy_ctx *ctx, const struct syi_token_lists *l, int64_t batch)
{
    int64_t least = 0;
    for (int64_t b = 0; b <= batch; b++) {
        const int64_t value = indptr_at(l, b);
        if (value < least || value > l->n) {
            const bool back = value >= 0 && value < least;
            const sy_fault fault = {SY_ERR_INDEX,
                                    back ? SY_FAULT_INDEX_ORDER : SY_FAULT_INDEX_RANGE,
                                    l->indptr_name,
                                    -1,
                                    b,
                                    value,
                                    value > l->n ? l->n : least};
            return syi_fail_at(ctx, &fault, "at position %lld is %lld, want %lld to %lld (%s)", (long long)b,
                               (long long)value, (long long)least, (long long)l->n,
                               sy_fault_name(fault.code));
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
    sy_fault *fault; /* [task] the first */
};

static sy_fault check_row(const struct check *c, int64_t b)
{
    const struct syi_token_lists *l = c->lists;
    const struct syi_span span = syi_list_span(l, b);
    int64_t before = -1;
    for (int64_t j = span.first; j < span.end; j++) {
        const int64_t token = syi_list_token(l, j);
        if (token < 0 || token >= c->vocab)
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_INDEX_RANGE, l->token_name, b, j, token, c->vocab};
        if (c->ascending && token <= before)
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_INDEX_ORDER, l->token_name, b, j, token, before};
        before = token;
    }
    return (sy_fault){.status = SY_OK};
}

static void check_rows(void *data, int task)
{
    const struct check *check = data;
    const int64_t end = syi_part(check->batch, check->n_tasks, task + 1);
    sy_fault *fault = &check->fault[task];
    fault->status = SY_OK;
    for (int64_t b = syi_part(check->batch, check->n_tasks, task); b < end && fault->status == SY_OK; b++)
        *fault = check_row(check, b);
}

static sy_status report(sy_ctx *ctx, const sy_fault *f)
{
    const long long b = f->batch, j = f->position, value = f->value, limit = f->limit;
    if (f->code == SY_FAULT_INDEX_ORDER)
        return syi_fail_at(ctx, f, "at row %lld, position %lld is %lld, want more than %lld before it (%s)",
                           b, j, value, limit, sy_fault_name(f->code));
    return syi_fail_at(ctx, f, "at row %lld, position %lld is %lld, want 0 or more and below %lld (%s)", b, j,
                       value, limit, sy_fault_name(f->code));
}

sy_status syi_check_lists(sy_ctx *ctx, const struct syi_token_lists *l, const struct syi_list_limits *limits,
                          int n_tasks, sy_fault *faults)
{
    struct check check = {l, limits->batch, limits->vocab, limits->ascending, n_tasks, faults};
    if (l->indptr == NULL)
        return SY_OK;
    const sy_status st = check_indptr(ctx, l, limits->batch);
    if (st != SY_OK)
        return st;
    syi_parallel(ctx, n_tasks, check_rows, &check);
    for (int i = 0; i < n_tasks; i++)
        if (faults[i].status != SY_OK)
            return report(ctx, &faults[i]);
    return SY_OK;
}
