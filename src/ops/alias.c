/*
 * No output shares a byte with another tensor of its call. Outputs may lie between the rows of others: parts of one
 * tensor are what planes of a cache often are.
 */
#include "ops/call.h"

static uintptr_t start_of(const DLTensor *t)
{
    return (uintptr_t)t->data + (uintptr_t)t->byte_offset;
}

/* The same rows: base, type and row stride. */
static bool same_rows(const DLTensor *a, const DLTensor *b)
{
    return start_of(a) == start_of(b) && syi_same_type(a->dtype, b->dtype) &&
           syi_stride(a, 0) == syi_stride(b, 0);
}

/* The bytes of a tensor as steps of elements. */
struct steps {
    int n;
    int64_t stride[2 * SYI_MAX_RANK]; /* bytes of one step along a dimension */
    int64_t reach[2 * SYI_MAX_RANK];  /* and of all of them */
    int64_t width;                    /* bytes from the first to behind the last */
};

static struct steps steps_of(const DLTensor *t)
{
    const int64_t elem_bytes = (int64_t)syi_elem_bytes(t->dtype);
    struct steps s;
    s.n = 0;
    s.width = elem_bytes;
    for (int d = 0; d < t->ndim; d++) {
        if (t->shape[d] <= 1 || syi_stride(t, d) == 0) /* its stride means nothing, or leads nowhere */
            continue;
        s.stride[s.n] = syi_stride(t, d) * elem_bytes;
        s.reach[s.n] = (t->shape[d] - 1) * s.stride[s.n];
        s.width += s.reach[s.n++];
    }
    return s;
}

static int64_t longest(const struct steps *s, int64_t step)
{
    for (int i = 0; i < s->n; i++)
        step = s->stride[i] > step ? s->stride[i] : step;
    return step;
}

/* Leaves out the steps that change no address modulo `step`. */
static void fold(struct steps *s, int64_t step)
{
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        if (s->stride[i] % step == 0) {
            s->width -= s->reach[i];
            continue;
        }
        s->stride[n] = s->stride[i];
        s->reach[n++] = s->reach[i];
    }
    s->n = n;
}

/*
 * No byte of one tensor is a byte of the other. Where the bytes from first to last meet, both are looked at modulo the
 * longest stride: what differs there differs. Two folded tensors inside one window of that length can be told apart
 * as they lie, and so on, stride by stride: columns of one matrix, keys and values of one block, layers of one pool.
 * Never true of tensors that share a byte; parts of no common shape may be called shared though they are not.
 */
bool syi_tensors_apart(const DLTensor *ta, const DLTensor *tb)
{
    struct steps a = steps_of(ta), b = steps_of(tb);
    int64_t gap = (int64_t)(start_of(tb) - start_of(ta)); /* from the first byte of a to that of b */
    while (gap < a.width && gap > -b.width) {
        const int64_t step = longest(&a, longest(&b, 0));
        if (step == 0)
            return false;
        fold(&a, step);
        fold(&b, step);
        gap %= step;
        gap += gap < 0 ? step : 0;
        if (a.width <= step && gap + b.width <= step)
            continue; /* the window begins with a */
        if (b.width > step || a.width > gap)
            return false;
        gap -= step; /* it begins with b */
    }
    return true;
}

/* A tensor of the call, its turn, and the bytes from first to last. */
struct item {
    const DLTensor *t;
    int rule;
    int64_t turn;
    uintptr_t start, end;
};

struct items {
    int n;
    struct item at[SYI_MAX_TENSORS + 3 * SY_KV_MAX_PLANES];
};

static sy_status collect(struct syi_call *call, void *data)
{
    struct items *items = data;
    for (int i = 0; i < call->op->n_rules; i++) {
        const DLTensor *t = syi_tensor_in_turn(call, i);
        int64_t bytes;
        if (t != NULL && syi_span_bytes(t, &bytes) && bytes > 0)
            items->at[items->n++] =
                (struct item){t, i, call->turns.now, start_of(t), start_of(t) + (uintptr_t)bytes};
    }
    return SY_OK;
}

static bool allowed_pair(const struct syi_call *call, const struct item *a, const struct item *b)
{
    const int *pair = call->may_alias;
    return pair[0] != pair[1] &&
           ((pair[0] == a->rule && pair[1] == b->rule) || (pair[0] == b->rule && pair[1] == a->rule)) &&
           same_rows(a->t, b->t);
}

static bool overlap(const struct syi_call *call, const struct item *a, const struct item *b)
{
    return a->start < b->end && b->start < a->end && !allowed_pair(call, a, b) &&
           !syi_tensors_apart(a->t, b->t);
}

static sy_status refuse_overlap(struct syi_call *call, const struct item *a, const struct item *b)
{
    const char *name = call->op->rules[a->rule].name, *other = call->op->rules[b->rule].name;
    call->ctx->plane = a->turn;
    if (b->turn == 0)
        return syi_fail(call->ctx, SY_ERR_ALIAS, name, "overlaps %s in memory, want separate memory", other);
    return syi_fail(call->ctx, SY_ERR_ALIAS, name,
                    "overlaps %s of plane %lld in memory, want separate memory", other, (long long)b->turn);
}

/* Of two outputs that overlap the first is blamed. */
sy_status syi_check_alias(struct syi_call *call)
{
    struct items items;
    items.n = 0;
    syi_every_turn(call, collect, &items);
    for (int i = 0; i < items.n; i++) {
        const struct item *a = &items.at[i];
        if (!(call->op->rules[a->rule].flags & SYI_OUT))
            continue;
        for (int j = 0; j < items.n; j++) {
            const struct item *b = &items.at[j];
            const bool judged = j <= i && (j == i || (call->op->rules[b->rule].flags & SYI_OUT));
            if (!judged && overlap(call, a, b))
                return refuse_overlap(call, a, b);
        }
    }
    return SY_OK;
}
