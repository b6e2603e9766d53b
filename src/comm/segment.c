/*
 * Memory that processes of one machine share. All processes open and close segments in the same order, so a number
 * names the same segment in all of them. A step succeeds in all processes or in none: every step that can fail in one
 * is followed by a gather of its outcome.
 */
#include "comm/comm.h"

static int free_segment(const sy_comm *comm)
{
    int i = 0;
    while (i < SYI_MAX_SEGMENTS && comm->segment[i].used)
        i++;
    return i;
}

/* Lists of all devices' memory. */
static bool make_lists(sy_comm *comm, struct syi_segment *s)
{
    const size_t n = (size_t)comm->n_devices;
    s->base = syi_comm_new(comm, n * (sizeof *s->base + sizeof *s->bytes));
    if (s->base == NULL)
        return false;
    s->bytes = (uint64_t *)(void *)(s->base + n);
    memset(s->base, 0, n * (sizeof *s->base + sizeof *s->bytes));
    return true;
}

/* For memory of this process only: its own place in the lists. */
static sy_status open_plain(sy_comm *comm, struct syi_segment *s, size_t bytes)
{
    if (s->base != NULL && bytes <= SIZE_MAX - SYI_ALIGN)
        s->raw = syi_comm_new(comm, bytes + SYI_ALIGN);
    if (s->raw == NULL)
        return SY_ERR_NOMEM;
    const uintptr_t at = (uintptr_t)s->raw;
    s->base[comm->device] = (unsigned char *)s->raw + (SYI_ALIGN - at % SYI_ALIGN) % SYI_ALIGN;
    s->bytes[comm->device] = bytes;
    return SY_OK;
}

static void forget(sy_comm *comm, struct syi_segment *s)
{
    if (s->of_transport != NULL)
        comm->transport.unshare(comm->transport.self, s->of_transport);
    syi_comm_delete(comm, s->raw);
    syi_comm_delete(comm, s->base);
    *s = (struct syi_segment){0};
}

/* ---- Opening, step by step ---------------------------------------------------------------------------- */

/* This process makes its part. */
static void begin(sy_comm *comm, size_t bytes)
{
    const sy_transport *t = &comm->transport;
    comm->growing = free_segment(comm); /* the same in all processes: they have opened and closed the same */
    comm->share = (struct syi_share){.status = SY_ERR_NOMEM, .bytes = bytes};
    if (comm->growing == SYI_MAX_SEGMENTS)
        return;
    struct syi_segment *s = &comm->segment[comm->growing];
    if (make_lists(comm, s))
        comm->share.status = (int64_t)t->share(t->self, bytes, comm->share.token, &s->of_transport);
}

/* It maps the parts of the others, if all have made theirs. */
static void attach(sy_comm *comm)
{
    const sy_transport *t = &comm->transport;
    comm->outcome = SY_ERR_NOMEM;
    for (int d = 0; d < comm->n_devices; d++)
        if (comm->shares[d].status != SY_OK)
            return;
    struct syi_segment *s = &comm->segment[comm->growing];
    for (int d = 0; d < comm->n_devices; d++) {
        memcpy(comm->tokens + (size_t)d * SY_SHARE_TOKEN_BYTES, comm->shares[d].token, SY_SHARE_TOKEN_BYTES);
        s->bytes[d] = comm->shares[d].bytes;
    }
    comm->outcome = (int32_t)t->attach(t->self, s->of_transport, comm->tokens, s->base);
}

/* Whether all processes have; else this one frees its part. */
static bool end(sy_comm *comm)
{
    bool shared = true;
    for (int d = 0; d < comm->n_devices; d++)
        shared = shared && comm->statuses[d] == SY_OK;
    if (comm->growing == SYI_MAX_SEGMENTS)
        return false;
    struct syi_segment *s = &comm->segment[comm->growing];
    if (s->of_transport != NULL)
        comm->transport.settle(comm->transport.self, s->of_transport);
    s->used = shared;
    if (!shared)
        forget(comm, s);
    return shared;
}

/* All steps, blocking: NOMEM if one process fails. */
static sy_status open_shared(sy_comm *comm, size_t bytes)
{
    begin(comm, bytes);
    sy_status st = syi_comm_gather(comm, &comm->share, sizeof comm->share, comm->shares);
    if (st == SY_OK) {
        attach(comm);
        st = syi_comm_gather(comm, &comm->outcome, sizeof comm->outcome, comm->statuses);
    }
    return st != SY_OK ? st : end(comm) ? SY_OK : SY_ERR_NOMEM;
}

/* ---- Segments ----------------------------------------------------------------------------------------- */

sy_status syi_segment_open(sy_comm *comm, size_t bytes, int *index)
{
    if (comm->shared && !comm->local) {
        const sy_status st = open_shared(comm, bytes);
        *index = comm->growing;
        if (st != SY_ERR_NOMEM)
            return st;
    }
    *index = free_segment(comm);
    if (*index == SYI_MAX_SEGMENTS)
        return SY_ERR_NOMEM;
    struct syi_segment *s = &comm->segment[*index];
    make_lists(comm, s);
    const sy_status st = syi_comm_agree(comm, open_plain(comm, s, bytes));
    s->used = st == SY_OK;
    if (st != SY_OK)
        forget(comm, s);
    return st;
}

void syi_segment_close(sy_comm *comm, int index)
{
    forget(comm, &comm->segment[index]);
}

int syi_segment_of(const sy_comm *comm, const void *data, size_t bytes, size_t *offset)
{
    const uintptr_t at = (uintptr_t)data;
    for (int i = 0; i < SYI_MAX_SEGMENTS; i++) {
        const struct syi_segment *s = &comm->segment[i];
        if (!s->used || s->of_transport == NULL || s->slot_bytes > 0)
            continue;
        const uintptr_t base = (uintptr_t)s->base[comm->device];
        const size_t all = (size_t)s->bytes[comm->device];
        if (at >= base && at - base <= all && all - (at - base) >= bytes) {
            *offset = at - base;
            return i;
        }
    }
    return SYI_NO_SEGMENT;
}

/* ---- The stage ---------------------------------------------------------------------------------------- */

static size_t slot_for(const sy_comm *comm, size_t slot_bytes)
{
    const size_t bytes = comm->stage_slot_bytes * 2 > slot_bytes ? comm->stage_slot_bytes * 2 : slot_bytes;
    return syi_size_mul(syi_size_add(bytes, SYI_PAGE - 1) / SYI_PAGE, SYI_PAGE);
}

/* The segment that was opened last becomes the stage. */
static bool use_stage(sy_comm *comm, bool shared)
{
    comm->shared = shared;
    if (!shared)
        return false;
    comm->stage = comm->growing;
    comm->stage_slot_bytes =
        (size_t)comm->segment[comm->stage].bytes[comm->device] / (size_t)comm->options.max_inflight;
    comm->segment[comm->stage].slot_bytes = comm->stage_slot_bytes;
    return true;
}

void syi_stage_begin(sy_comm *comm, size_t slot_bytes)
{
    begin(comm, syi_size_mul(slot_for(comm, slot_bytes), (size_t)comm->options.max_inflight));
}

void syi_stage_attach(sy_comm *comm)
{
    attach(comm);
}

bool syi_stage_end(sy_comm *comm)
{
    return use_stage(comm, end(comm));
}

sy_status syi_stage_grow(sy_comm *comm, size_t slot_bytes)
{
    if (slot_bytes <= comm->stage_slot_bytes)
        return SY_OK;
    const sy_status st =
        open_shared(comm, syi_size_mul(slot_for(comm, slot_bytes), (size_t)comm->options.max_inflight));
    use_stage(comm, st == SY_OK);
    return st;
}
