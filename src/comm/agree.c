/*
 * What processes make of each other's headers. All of them see the same headers and come to the same verdict.
 */
#include "comm/comm.h"

#include <stdio.h>

static struct syi_verdict differs(int device, int other, const char *what)
{
    return (struct syi_verdict){SY_ERR_MISMATCH, device, other, what};
}

/* Tables of choices are equal inside a group; different groups route different tokens. */
static struct syi_verdict judge_groups(const sy_comm *comm, const struct syi_header *h)
{
    const sy_axis axis = (sy_axis)h[0].axis;
    for (int d = 0; d < comm->n_devices; d++) {
        const int first = syi_device_at(comm->mesh, axis, syi_group_of(comm->mesh, axis, d), 0);
        if (h[d].routing != h[first].routing)
            return differs(d, first, "the table of choices");
    }
    return (struct syi_verdict){SY_OK, 0, -1, ""};
}

struct syi_verdict syi_judge_headers(const sy_comm *comm, const struct syi_header *h)
{
    for (int d = 0; d < comm->n_devices; d++)
        if (h[d].version != SYI_HEADER_VERSION)
            return (struct syi_verdict){SY_ERR_MISMATCH, d, -1, "version"};
    for (int d = 0; d < comm->n_devices; d++)
        if (h[d].status != SY_OK)
            return (struct syi_verdict){(sy_status)h[d].status, d, -1, ""};
    for (int d = 1; d < comm->n_devices; d++) {
        const char *what = h[d].op != h[0].op                           ? "which operator"
                           : h[d].sequence != h[0].sequence             ? "how many calls came before"
                           : h[d].params != h[0].params                 ? "shapes, types or options"
                           : h[d].mapping != h[0].mapping               ? "expert_mapping"
                           : !h[0].ragged && h[d].tokens != h[0].tokens ? "the number of tokens"
                                                                        : NULL;
        if (what != NULL)
            return differs(d, 0, what);
    }
    return judge_groups(comm, h);
}

void syi_tell_verdict(sy_ctx *ctx, const char *op, const struct syi_verdict *verdict,
                      const struct syi_notice *a, const struct syi_notice *b)
{
    ctx->fault = (sy_fault){.status = verdict->status, .argument = "", .batch = -1, .position = -1};
    if (verdict->other < 0) {
        ctx->fault.code = (sy_fault_code)a->code;
        ctx->fault.batch = a->batch;
        ctx->fault.position = a->position;
        ctx->fault.value = a->value;
        ctx->fault.limit = a->limit;
        snprintf(ctx->error, sizeof ctx->error, "%.*s", SYI_TEXT_BYTES, a->text);
        return;
    }
    ctx->fault.value = verdict->device;
    ctx->fault.limit = verdict->other;
    snprintf(ctx->error, sizeof ctx->error,
             "%s: devices %d and %d disagree about %s, want the same everywhere: %.150s; %.150s", op,
             verdict->other, verdict->device, verdict->what, b->text, a->text);
}
