/*
 * Memory that processes of one machine share. Segments are opened and closed by all processes in the same order, so a
 * number names the same one everywhere.
 */
#include "comm/comm.h"

static int free_segment(const sy_comm *comm)
{
    int i = 0;
    while (i < SYI_MAX_SEGMENTS && comm->segment[i].used)
        i++;
    return i;
}

/* Of this process alone: its own place in base. */
static sy_status open_plain(sy_comm *comm, struct syi_segment *s, size_t bytes)
{
    if (bytes <= SIZE_MAX - SYI_ALIGN)
        s->raw = syi_comm_new(comm, bytes + SYI_ALIGN);
    if (s->raw == NULL)
        return SY_ERR_NOMEM;
    const uintptr_t at = (uintptr_t)s->raw;
    s->base[comm->device] = (unsigned char *)s->raw + (SYI_ALIGN - at % SYI_ALIGN) % SYI_ALIGN;
    return SY_OK;
}

static void forget(sy_comm *comm, struct syi_segment *s)
{
    syi_comm_delete(comm, s->raw);
    syi_comm_delete(comm, s->base);
    *s = (struct syi_segment){0};
}

/* Where the list of bases cannot be had, the others must know before they share. */
static sy_status open_shared(sy_comm *comm, struct syi_segment *s, size_t bytes)
{
    return comm->transport.share(comm->transport.self, bytes, s->base, &s->of_transport);
}

sy_status syi_segment_open(sy_comm *comm, size_t bytes, int *index)
{
    *index = free_segment(comm);
    if (*index == SYI_MAX_SEGMENTS)
        return SY_ERR_NOMEM;
    struct syi_segment *s = &comm->segment[*index];
    s->base = syi_comm_new(comm, (size_t)comm->n_devices * sizeof *s->base);
    sy_status st = syi_comm_agree(comm, s->base != NULL ? SY_OK : SY_ERR_NOMEM);
    for (int d = 0; st == SY_OK && d < comm->n_devices; d++)
        s->base[d] = NULL;
    bool shared = false;
    if (st == SY_OK && comm->shared && !comm->local) {
        st = open_shared(comm, s, bytes);
        shared = st == SY_OK;
        if (st == SY_ERR_NOMEM) /* everywhere, as a transport promises */
            st = SY_OK;
    }
    if (st == SY_OK && !shared)
        st = syi_comm_agree(comm, open_plain(comm, s, bytes));
    if (st != SY_OK) {
        forget(comm, s);
        return st;
    }
    s->used = true;
    s->bytes = bytes;
    return SY_OK;
}

sy_status syi_segment_close(sy_comm *comm, int index)
{
    struct syi_segment *s = &comm->segment[index];
    sy_status st = SY_OK;
    if (s->of_transport != NULL && !comm->broken)
        st = comm->transport.unshare(comm->transport.self, s->of_transport);
    forget(comm, s);
    return st;
}

int syi_segment_of(const sy_comm *comm, const void *data, size_t bytes, size_t *offset)
{
    const uintptr_t at = (uintptr_t)data;
    for (int i = 0; i < SYI_MAX_SEGMENTS; i++) {
        const struct syi_segment *s = &comm->segment[i];
        if (!s->used || s->of_transport == NULL || s->slot_bytes > 0)
            continue;
        const uintptr_t base = (uintptr_t)s->base[comm->device];
        if (at >= base && at - base <= s->bytes && s->bytes - (at - base) >= bytes) {
            *offset = at - base;
            return i;
        }
    }
    return SYI_NO_SEGMENT;
}

bool syi_stage_grow(sy_comm *comm, size_t slot_bytes)
{
    if (slot_bytes <= comm->stage_slot_bytes)
        return true;
    size_t bytes = comm->stage_slot_bytes * 2 > slot_bytes ? comm->stage_slot_bytes * 2 : slot_bytes;
    bytes = syi_size_mul(syi_size_add(bytes, SYI_PAGE - 1) / SYI_PAGE, SYI_PAGE);
    int index = SYI_NO_SEGMENT;
    const size_t all = syi_size_mul(bytes, (size_t)comm->options.max_inflight);
    const sy_status st = syi_segment_open(comm, all, &index);
    if (st == SY_OK && comm->segment[index].of_transport != NULL) {
        comm->stage = index;
        comm->segment[index].slot_bytes = bytes;
        comm->stage_slot_bytes = bytes;
        return true;
    }
    if (st == SY_OK)
        syi_segment_close(comm, index);
    comm->shared = false;
    return false;
}
