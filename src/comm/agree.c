/*
 * Compares the headers of all processes. All of them have the same headers and reach the same result.
 */
#include "comm/comm.h"

#include <stdio.h>

static const char *const what_differs[] = {
    [SYI_SAME] = "nothing",
    [SYI_VERSION] = "the version of the library",
    [SYI_OPERATOR] = "which operator",
    [SYI_SEQUENCE] = "how many calls came before",
    [SYI_MEMORY] = "which memory to free",
    [SYI_PARAMS] = "shapes, types or options",
    [SYI_MAPPING] = "expert_mapping",
    [SYI_TOKENS] = "the number of tokens",
    [SYI_TABLE] = "the table of choices",
};

void syi_seal_header(struct syi_header *header)
{
    uint64_t words[sizeof *header / sizeof(uint64_t)], hash = 0;
    const uint64_t params = header->params;
    header->params = 0;
    memcpy(words, header, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    header->params = params ^ hash;
}

static const struct syi_verdict agreed = {SY_OK, 0, -1, SYI_SAME};

static struct syi_verdict differs(int device, int other, enum syi_difference what)
{
    return (struct syi_verdict){SY_ERR_MISMATCH, device, other, what};
}

/* Tables of choices are equal inside a group; different groups route different tokens. */
static struct syi_verdict validate_groups(const sy_comm *comm, const struct syi_header *h)
{
    const sy_axis axis = (sy_axis)h[0].axis;
    for (int d = 0; d < comm->n_devices; d++) {
        const int first = syi_device_at(comm->mesh, axis, syi_group_of(comm->mesh, axis, d), 0);
        if (((h[d].flags | h[first].flags) & SYI_TABLE_IN_PLACE) == 0 && h[d].routing != h[first].routing)
            return differs(d, first, SYI_TABLE);
    }
    return agreed;
}

/* The windows of an operator's headers may differ: each device chooses the place of its rows. */
static bool differ_in_memory(const struct syi_header *a, const struct syi_header *b)
{
    return a->op == SYI_COMM_FREE && a->window != b->window;
}

static enum syi_difference difference(const struct syi_header *a, const struct syi_header *b)
{
    return a->op != b->op                                           ? SYI_OPERATOR
           : a->sequence != b->sequence                             ? SYI_SEQUENCE
           : differ_in_memory(a, b)                                 ? SYI_MEMORY
           : a->params != b->params                                 ? SYI_PARAMS
           : a->mapping != b->mapping                               ? SYI_MAPPING
           : (a->flags & SYI_RAGGED) == 0 && a->tokens != b->tokens ? SYI_TOKENS
                                                                    : SYI_SAME;
}

struct syi_verdict syi_validate_headers(const sy_comm *comm, const struct syi_header *h)
{
    for (int d = 1; d < comm->n_devices; d++)
        if (h[d].version != h[0].version)
            return differs(d, 0, SYI_VERSION);
    for (int d = 0; d < comm->n_devices; d++)
        if (h[d].status != SY_OK)
            return (struct syi_verdict){(sy_status)h[d].status, d, -1, SYI_SAME};
    for (int d = 1; d < comm->n_devices; d++)
        if (difference(&h[0], &h[d]) != SYI_SAME)
            return differs(d, 0, difference(&h[0], &h[d]));
    return validate_groups(comm, h);
}

void syi_fail_verdict(sy_ctx *ctx, const char *op, const struct syi_verdict *verdict,
                      const struct syi_notice *of_device, const struct syi_notice *of_other)
{
    ctx->fault = (sy_fault){.status = verdict->status, .argument = "", .batch = -1, .position = -1};
    if (verdict->other < 0) {
        ctx->fault.code = (sy_fault_code)of_device->code;
        ctx->fault.batch = of_device->batch;
        ctx->fault.position = of_device->position;
        ctx->fault.value = of_device->value;
        ctx->fault.limit = of_device->limit;
        snprintf(ctx->error, sizeof ctx->error, "%.*s", SYI_TEXT_BYTES, of_device->text);
        return;
    }
    ctx->fault.value = verdict->device;
    ctx->fault.limit = verdict->other;
    snprintf(ctx->error, sizeof ctx->error,
             "%s: devices %d and %d disagree about %s, want the same everywhere: %.150s; %.150s", op,
             verdict->other, verdict->device, what_differs[verdict->what], of_other->text, of_device->text);
}
