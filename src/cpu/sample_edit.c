/*
 * Logits that are replaced before everything else. A row with overrides is read as if the overridden tokens were not
 * there; they are few, stand beside the row with keys of their own, and join the candidates wherever those are made.
 * So a 16-bit row stays one, although the values that replace some of its logits are f32.
 */
#include "cpu/backend.h"
#include "cpu/sample.h"

/* ---- The lists --------------------------------------------------------------------------------------- */

static int64_t indptr_at(const struct syi_overrides *o, int64_t b)
{
    return syi_load_int(o->indptr + b * (o->indptr_type == SYI_I64 ? 8 : 4), o->indptr_type);
}

int64_t syi_override_token(const struct syi_overrides *o, int64_t j)
{
    return syi_load_int(o->token + j * (o->token_type == SYI_I64 ? 8 : 4), o->token_type);
}

float syi_override_logit(const struct syi_overrides *o, int64_t j)
{
    return syi_load_float(o->logit + j * 4, SYI_F32);
}

struct syi_span syi_override_span(const struct syi_sample_plan *p, int64_t b)
{
    if (p->overrides.indptr == NULL)
        return (struct syi_span){0, 0};
    return (struct syi_span){indptr_at(&p->overrides, b), indptr_at(&p->overrides, b + 1)};
}

int64_t syi_override_find(const struct syi_overrides *o, struct syi_span span, int64_t token)
{
    while (span.first < span.end) {
        const int64_t middle = span.first + (span.end - span.first) / 2;
        if (syi_override_token(o, middle) < token)
            span.first = middle + 1;
        else
            span.end = middle;
    }
    return span.first;
}

/* ---- Contents ---------------------------------------------------------------------------------------- */

/* Each entry from the one before it, or 0, to the length of the lists. */
static sy_status check_indptr(sy_ctx *ctx, const struct syi_sample_plan *p)
{
    const struct syi_overrides *o = &p->overrides;
    int64_t least = 0;
    for (int64_t b = 0; b <= p->batch; b++) {
        const int64_t value = indptr_at(o, b);
        if (value < least || value > o->n) {
            const bool back = value >= 0 && value < least;
            const sy_fault fault = {SY_ERR_INDEX,
                                    back ? SY_FAULT_INDEX_ORDER : SY_FAULT_INDEX_RANGE,
                                    "override_indptr",
                                    -1,
                                    b,
                                    value,
                                    value > o->n ? o->n : least};
            return syi_fail_at(ctx, &fault, "at position %lld is %lld, want %lld to %lld (%s)", (long long)b,
                               (long long)value, (long long)least, (long long)o->n,
                               sy_fault_name(fault.code));
        }
        least = value;
    }
    return SY_OK;
}

static sy_fault check_tokens(const struct syi_sample_plan *p, int64_t b)
{
    const struct syi_span span = syi_override_span(p, b);
    int64_t before = -1;
    for (int64_t j = span.first; j < span.end; j++) {
        const int64_t token = syi_override_token(&p->overrides, j);
        if (token < 0 || token >= p->vocab)
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_INDEX_RANGE, "override_token", b, j, token, p->vocab};
        if (token <= before)
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_INDEX_ORDER, "override_token", b, j, token, before};
        before = token;
    }
    return (sy_fault){.status = SY_OK};
}

struct check {
    const struct syi_sample_plan *plan;
    int n_tasks;
    sy_fault *fault; /* [task] the first */
};

static void check_rows(void *data, int task)
{
    const struct check *check = data;
    const int64_t end = syi_part(check->plan->batch, check->n_tasks, task + 1);
    sy_fault *fault = &check->fault[task];
    fault->status = SY_OK;
    for (int64_t b = syi_part(check->plan->batch, check->n_tasks, task); b < end && fault->status == SY_OK;
         b++)
        *fault = check_tokens(check->plan, b);
}

sy_status syi_check_overrides(sy_ctx *ctx, const struct syi_sample_plan *p, int n_tasks, sy_fault *faults)
{
    struct check check = {p, n_tasks, faults};
    const sy_status st = check_indptr(ctx, p);
    if (st != SY_OK)
        return st;
    syi_parallel(ctx, n_tasks, check_rows, &check);
    for (int i = 0; i < n_tasks; i++) {
        const sy_fault *f = &faults[i];
        const long long b = f->batch, j = f->position, value = f->value, limit = f->limit;
        if (f->status != SY_OK && f->code == SY_FAULT_INDEX_ORDER)
            return syi_fail_at(ctx, f,
                               "at row %lld, position %lld is %lld, want more than %lld before it (%s)", b, j,
                               value, limit, sy_fault_name(f->code));
        if (f->status != SY_OK)
            return syi_fail_at(ctx, f,
                               "at row %lld, position %lld is %lld, want 0 or more and below %lld (%s)", b, j,
                               value, limit, sy_fault_name(f->code));
    }
    return SY_OK;
}

/* ---- A row ------------------------------------------------------------------------------------------- */

/* Keys of n values, of which those above -inf join the row's own. */
static void add_values(struct syi_row *r, const float *value, const int32_t *token, size_t n)
{
    uint32_t key[SYI_WEIGH_AT_ONCE];
    struct syi_candidates *c = &r->extra;
    r->kernels->keys_f32(key, value, n, &r->extra_stats);
    for (size_t i = 0; i < n; i++)
        if (key[i] != SYI_KEY_MINUS_INF) {
            c->key[c->n] = key[i];
            c->idx[c->n++] = token[i];
        }
}

void syi_row_overrides(struct syi_row *r)
{
    const struct syi_overrides *o = &r->plan->overrides;
    const struct syi_span span = syi_override_span(r->plan, r->b);
    float value[SYI_WEIGH_AT_ONCE];
    int32_t token[SYI_WEIGH_AT_ONCE];
    size_t n = 0;
    r->extra = (struct syi_candidates){r->scratch->extra_key, r->scratch->extra_idx, 0};
    for (int64_t j = span.first; j < span.end; j++) {
        token[n] = r->scratch->out[j - span.first] = (int32_t)syi_override_token(o, j);
        value[n] = syi_override_logit(o, j);
        n += syi_allowed(&r->logits, token[n]);
        if (n == SYI_WEIGH_AT_ONCE || j + 1 == span.end) {
            add_values(r, value, token, n);
            n = 0;
        }
    }
    r->logits.out = r->scratch->out;
    r->logits.n_out = span.end - span.first;
}

/* Removes the tokens that are out. */
static void drop_out(const struct syi_logits *row, struct syi_candidates *c)
{
    int64_t to = 0, j = 0;
    for (int64_t i = 0; i < c->n; i++) {
        while (j < row->n_out && row->out[j] < c->idx[i])
            j++;
        if (j < row->n_out && row->out[j] == c->idx[i])
            continue;
        c->key[to] = c->key[i];
        c->idx[to++] = c->idx[i];
    }
    c->n = to;
}

void syi_row_replace(const struct syi_row *r, struct syi_candidates *c, uint32_t least)
{
    const struct syi_candidates *extra = &r->extra;
    drop_out(&r->logits, c);
    int64_t i = c->n, to = i;
    for (int64_t j = 0; j < extra->n; j++)
        to += extra->key[j] >= least;
    c->n = to;
    for (int64_t j = extra->n - 1; to > i; j--) { /* from the end, where there is room */
        if (extra->key[j] < least)
            continue;
        for (; i > 0 && c->idx[i - 1] > extra->idx[j]; i--) {
            c->key[--to] = c->key[i - 1];
            c->idx[to] = c->idx[i - 1];
        }
        c->key[--to] = extra->key[j];
        c->idx[to] = extra->idx[j];
    }
}
