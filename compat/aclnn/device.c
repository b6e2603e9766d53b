/*
 * Calls on tensors in device memory. An operator that only passes its views on runs there. Others read or convert their
 * tensors here, so these are copied to the host, and the outputs back once the call has succeeded.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#include "../device.h"

static _Thread_local sy_ctx *device; /* of this thread */

aclnnStatus syi_aclnn_device(const char *call, sy_ctx **ctx)
{
    char sentence[256] = "";
    *ctx = NULL;
    if (!syi_device_named())
        return ACLNN_SUCCESS;
    if (device == NULL && syi_device_open(&device, sentence, sizeof sentence) != SY_OK)
        return syi_aclnn_fail(ACLNN_ERR_RUNTIME_ERROR, "%s: %s", call, sentence);
    *ctx = device;
    return ACLNN_SUCCESS;
}

void syi_aclnn_device_close(void)
{
    sy_ctx_destroy(device);
    device = NULL;
}

/* ---- Calls ---- */

/* Where the tensors of a call are: all on the device, or all on the host. Those without an element are nowhere. */
static aclnnStatus find(const aclOpExecutor *e, sy_ctx *ctx, bool *there)
{
    const struct syi_aclnn_view *first = NULL;
    *there = false;
    for (int i = 0; i < e->n_views; i++) {
        const struct syi_aclnn_view *view = &e->view[i];
        if (!view->taken || syi_aclnn_view_bytes(view) == 0)
            continue;
        const bool on_device = syi_device_has(ctx, syi_aclnn_view_data(view));
        if (first == NULL) {
            first = view;
            *there = on_device;
        } else if (on_device != *there) {
            return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID,
                                  "%s: %s is in %s memory, %s in %s memory, want both in one", e->op->name,
                                  first->name, *there ? "device" : "host", view->name,
                                  on_device ? "device" : "host");
        }
    }
    return ACLNN_SUCCESS;
}

static bool runs_there(const aclOpExecutor *e)
{
    bool packed = false;
    for (int i = 0; i < e->n_views; i++)
        packed = packed || (e->view[i].taken && e->view[i].packed);
    return e->op->on_device && !packed && e->lists_bytes == 0;
}

static aclnnStatus run_there(aclOpExecutor *e, sy_ctx *ctx)
{
    sy_ctx *own = e->ctx;
    for (int i = 0; i < e->n_views; i++) {
        e->view[i].dl.device = syi_device_wanted();
        e->view[i].dl.data = e->view[i].taken ? syi_aclnn_view_data(&e->view[i]) : NULL;
    }
    e->ctx = ctx;
    const aclnnStatus st = syi_aclnn_run(e);
    e->ctx = own;
    for (int i = 0; i < e->n_views; i++)
        e->view[i].dl.device = (DLDevice){kDLCPU, 0};
    return st;
}

/* A copy of device memory. Views that overlap, as halves of one tensor do, are parts of the same copy. */
struct copy {
    char *begin, *end; /* on the device */
    char *host;        /* of the first view with this copy; the others have NULL */
    char *base;        /* what the view had */
};

static void merge(struct copy *copies, int n)
{
    for (int changes = 1; changes > 0;) {
        changes = 0;
        for (int i = 0; i < n * n; i++) {
            struct copy *a = &copies[i / n], *b = &copies[i % n];
            if (a->begin >= b->end || b->begin >= a->end || (a->begin == b->begin && a->end == b->end))
                continue;
            a->begin = b->begin = a->begin < b->begin ? a->begin : b->begin;
            a->end = b->end = a->end > b->end ? a->end : b->end;
            changes++;
        }
    }
}

static const struct copy *owner(const struct copy *copies, int i)
{
    int first = 0;
    while (copies[first].begin != copies[i].begin || copies[first].end != copies[i].end)
        first++;
    return &copies[first];
}

static sy_status copy_in(aclOpExecutor *e, sy_ctx *ctx, struct copy *copies)
{
    for (int i = 0; i < e->n_views; i++) {
        struct copy *c = &copies[i];
        if (c->begin == c->end)
            continue;
        if (owner(copies, i) == c) {
            c->host = malloc((size_t)(c->end - c->begin));
            if (c->host == NULL)
                return SY_ERR_NOMEM;
            const sy_status st = sy_device_copy(ctx, c->host, c->begin, (size_t)(c->end - c->begin));
            if (st != SY_OK)
                return st;
        }
        e->view[i].base = owner(copies, i)->host + (c->base - c->begin);
    }
    return SY_OK;
}

static aclnnStatus run_here(aclOpExecutor *e, sy_ctx *ctx)
{
    struct copy copies[SYI_ACLNN_MAX_VIEWS] = {0};
    aclnnStatus st = ACLNN_SUCCESS;
    for (int i = 0; i < e->n_views; i++) {
        struct syi_aclnn_view *view = &e->view[i];
        copies[i].base = view->base;
        if (view->taken && syi_aclnn_view_bytes(view) > 0)
            syi_aclnn_view_span(view, &copies[i].begin, &copies[i].end);
    }
    merge(copies, e->n_views);
    sy_status status = copy_in(e, ctx, copies);
    if (status == SY_OK)
        st = syi_aclnn_run_on_host(e, NULL);
    for (int i = 0; status == SY_OK && st == ACLNN_SUCCESS && i < e->n_views; i++) {
        const struct copy *c = owner(copies, i);
        if (e->view[i].taken && e->view[i].output && c->host != NULL)
            status = sy_device_copy(ctx, c->begin, c->host, (size_t)(c->end - c->begin));
    }
    for (int i = 0; i < e->n_views; i++) {
        e->view[i].base = copies[i].base;
        free(copies[i].host);
    }
    if (status != SY_OK)
        return syi_aclnn_fail(ACLNN_ERR_RUNTIME_ERROR, "%s: %s", e->op->name,
                              status == SY_ERR_NOMEM ? "no memory for copies on the host"
                                                     : sy_ctx_error(ctx));
    return st;
}

aclnnStatus syi_aclnn_run_anywhere(aclOpExecutor *e, char *workspace)
{
    sy_ctx *ctx;
    bool there = false;
    aclnnStatus st = syi_aclnn_device(e->op->name, &ctx);
    if (st == ACLNN_SUCCESS && ctx == NULL)
        return syi_aclnn_run_on_host(e, workspace);
    if (st == ACLNN_SUCCESS)
        st = find(e, ctx, &there);
    if (st != ACLNN_SUCCESS)
        return st;
    if (!there) /* a workspace of aclrtMalloc is on the device */
        return syi_aclnn_run_on_host(e, syi_device_has(ctx, workspace) ? NULL : workspace);
    return runs_there(e) ? run_there(e, ctx) : run_here(e, ctx);
}
