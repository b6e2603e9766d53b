/*
 * No output shares a byte with another tensor of its call, and no tensor with a lent workspace. Outputs may lie between
 * the rows of others: parts of one tensor are what planes of a cache often are.
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

/* A tensor of the call, its plane, and the bytes from first to last. */
struct item {
    const DLTensor *t;
    uintptr_t start, end;
    short rule, plane;
    bool out;
};

/* The tensors of a few planes: all of them would be a list too long for a small stack. */
enum { AT_ONCE = 16, BLOCKS = SY_KV_MAX_PLANES / AT_ONCE + 1 };

struct items {
    int n;
    struct item at[SYI_MAX_TENSORS + 3 * (AT_ONCE - 1)];
};

static void collect(struct syi_call *call, int first, struct items *items)
{
    const bool spans_known = call->compact && call->sets.n == 0;
    items->n = 0;
    for (int plane = first; plane < first + AT_ONCE && plane <= call->sets.n; plane++) {
        if (call->sets.n > 0)
            syi_take_plane(call, plane);
        for (int i = 0; i < call->op->info.n_tensors; i++) {
            const DLTensor *t = syi_tensor_of_plane(call, i);
            int64_t bytes = spans_known ? call->span[i] : 0;
            if (t != NULL && (spans_known || (syi_span_bytes(t, &bytes) && bytes > 0)))
                items->at[items->n++] = (struct item){.t = t,
                                                      .start = start_of(t),
                                                      .end = start_of(t) + (uintptr_t)bytes,
                                                      .rule = (short)i,
                                                      .plane = (short)plane,
                                                      .out = call->op->info.fields[i].flags & SY_FIELD_OUT};
        }
    }
}

static bool allowed_pair(const struct syi_call *call, const struct item *a, const struct item *b)
{
    const int *pair = call->may_alias;
    return pair[0] != pair[1] &&
           ((pair[0] == a->rule && pair[1] == b->rule) || (pair[0] == b->rule && pair[1] == a->rule)) &&
           same_rows(a->t, b->t);
}

static sy_status reject_overlap(struct syi_call *call, const struct item *a, const struct item *b)
{
    const char *name = syi_name(call, a->rule), *other = syi_name(call, b->rule);
    call->ctx->plane = a->plane;
    if (b->plane == 0)
        return syi_fail(call->ctx, SY_ERR_ALIAS, name, "overlaps %s in memory, want separate memory", other);
    return syi_fail(call->ctx, SY_ERR_ALIAS, name,
                    "overlaps %s of plane %lld in memory, want separate memory", other, (long long)b->plane);
}

/* The first item below `end` of `a` that is an output and overlaps one of `b`, and that one; end: there is none. A pair
   of outputs is compared once, where the first of them is in `a`. */
static int find_overlap(const struct syi_call *call, const struct items *a, const struct items *b, int end,
                        struct item *other)
{
    for (int i = 0; i < end; i++) {
        const struct item *x = &a->at[i];
        for (int j = 0; j < b->n && x->out; j++) {
            const struct item *y = &b->at[j];
            if (x->start >= y->end || y->start >= x->end)
                continue;
            const bool before = y->plane < x->plane || (y->plane == x->plane && y->rule <= x->rule);
            if ((before && y->out) || allowed_pair(call, x, y) || syi_tensors_apart(x->t, y->t))
                continue;
            *other = *y;
            return i;
        }
    }
    return end;
}

/* The bytes from first to last of some inputs or outputs. */
struct hull {
    uintptr_t start, end;
};

static bool meet(const struct hull *a, const struct hull *b)
{
    return a->start < b->end && b->start < a->end;
}

/* Those of all inputs, then those of all outputs. */
static void hulls_of(const struct items *items, struct hull *hull)
{
    hull[0] = hull[1] = (struct hull){UINTPTR_MAX, 0};
    for (int i = 0; i < items->n; i++) {
        const struct item *x = &items->at[i];
        struct hull *of = &hull[x->out];
        of->start = x->start < of->start ? x->start : of->start;
        of->end = x->end > of->end ? x->end : of->end;
    }
}

/* Most calls are compact, and no output has an address of another tensor. */
static bool clearly_apart(const struct syi_call *call)
{
    uintptr_t start[SYI_MAX_TENSORS], end[SYI_MAX_TENSORS];
    int n = 0, n_outputs = 0, output[SYI_MAX_TENSORS];
    bool apart = call->compact && call->sets.n == 0;
    for (int i = 0; apart && i < call->op->info.n_tensors; i++) {
        if (call->tensor[i] == NULL)
            continue;
        start[n] = start_of(call->tensor[i]);
        end[n] = start[n] + (uintptr_t)call->span[i];
        output[n_outputs] = n++;
        n_outputs += (call->op->info.fields[i].flags & SY_FIELD_OUT) != 0;
    }
    for (int k = 0; k < n_outputs; k++)
        for (int i = 0, o = output[k]; i < n; i++)
            apart &= (i == o) | (start[o] >= end[i]) | (start[i] >= end[o]);
    return apart;
}

/* Of two outputs that overlap the first is blamed. Blocks of planes whose hulls do not meet need no closer look. */
static __attribute__((noinline)) sy_status check_closely(struct syi_call *call)
{
    struct items a, b;
    struct hull hull[BLOCKS][2];
    const int n_blocks = (int)(call->sets.n / AT_ONCE) + 1;
    sy_status st = SY_OK;
    for (int k = 0; k < n_blocks && n_blocks > 1; k++) {
        collect(call, k * AT_ONCE, &a);
        hulls_of(&a, hull[k]);
    }
    for (int k = 0; st == SY_OK && k < n_blocks; k++) {
        struct item other = {0};
        collect(call, k * AT_ONCE, &a);
        int found = a.n;
        for (int m = 0; m < n_blocks; m++) {
            if (m == k) {
                found = find_overlap(call, &a, &a, found, &other);
            } else if (meet(&hull[k][1], &hull[m][0]) || meet(&hull[k][1], &hull[m][1])) {
                collect(call, m * AT_ONCE, &b);
                found = find_overlap(call, &a, &b, found, &other);
            }
        }
        if (found < a.n)
            st = reject_overlap(call, &a.at[found], &other);
    }
    if (call->sets.n > 0)
        syi_take_plane(call, 0);
    return st;
}

sy_status syi_check_alias(struct syi_call *call)
{
    return clearly_apart(call) ? SY_OK : check_closely(call);
}

static sy_status check_apart_from(struct syi_call *call, void *data)
{
    const DLTensor *lent = data;
    for (int i = 0; i < call->op->info.n_tensors; i++) {
        const DLTensor *t = syi_tensor_of_plane(call, i);
        int64_t bytes;
        if (t != NULL && syi_span_bytes(t, &bytes) && bytes > 0 && !syi_tensors_apart(t, lent))
            return syi_fail(call->ctx, SY_ERR_ALIAS, syi_name(call, i),
                            "overlaps the workspace in memory, want separate memory");
    }
    return SY_OK;
}

sy_status syi_check_workspace(struct syi_call *call)
{
    const bool usual = call->backend == syi_host_backend;
    const size_t bytes = usual ? call->ctx->workspace_bytes : call->ctx->device_workspace_bytes;
    void *const data = usual ? call->ctx->workspace : call->ctx->device_workspace;
    int64_t extent = bytes < INT64_MAX ? (int64_t)bytes : INT64_MAX;
    DLTensor lent = {.data = data, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = &extent};
    return syi_for_every_plane(call, check_apart_from, &lent);
}
