/*
 * Memory that processes of one machine share. Segments are opened and closed by all processes in the same order, so a
 * number names the same one everywhere. What one process cannot do, none does: every step that can fail in one is
 * followed by a gather of its outcome.
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

/* Of this process alone: its own place in the lists. */
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

static void unshare(sy_comm *comm, struct syi_segment *s)
{
    if (s->of_transport != NULL)
        comm->transport.unshare(comm->transport.self, s->of_transport);
    s->of_transport = NULL;
}

static void forget(sy_comm *comm, struct syi_segment *s)
{
    unshare(comm, s);
    syi_comm_delete(comm, s->raw);
    syi_comm_delete(comm, s->base);
    *s = (struct syi_segment){0};
}

/* Whether all processes have made their part; copies tokens and sizes where they have. */
static bool all_made(const sy_comm *comm, struct syi_segment *s)
{
    for (int d = 0; d < comm->n_devices; d++)
        if (comm->shares[d].status != SY_OK)
            return false;
    for (int d = 0; d < comm->n_devices; d++) {
        memcpy(comm->tokens + (size_t)d * SY_SHARE_TOKEN_BYTES, comm->shares[d].token, SY_SHARE_TOKEN_BYTES);
        s->bytes[d] = comm->shares[d].bytes;
    }
    return true;
}

/* *shared: whether all processes have it and reach that of the others. */
static sy_status open_shared(sy_comm *comm, struct syi_segment *s, size_t bytes, bool *shared)
{
    const sy_transport *t = &comm->transport;
    struct syi_share mine = {.status = SY_ERR_NOMEM, .bytes = bytes};
    if (s->base != NULL)
        mine.status = (int64_t)t->share(t->self, bytes, mine.token, &s->of_transport);
    sy_status st = syi_comm_gather(comm, &mine, sizeof mine, comm->shares);
    *shared = st == SY_OK && all_made(comm, s);
    if (*shared) {
        st = syi_comm_agree(comm, t->attach(t->self, s->of_transport, comm->tokens, s->base));
        t->settle(t->self, s->of_transport);
        *shared = st == SY_OK;
        st = comm->broken ? st : SY_OK;
    }
    if (!*shared) {
        unshare(comm, s);
        if (s->base != NULL)
            memset(s->base, 0, (size_t)comm->n_devices * (sizeof *s->base + sizeof *s->bytes));
    }
    return st;
}

/* plain: where it cannot be shared, memory of each process will do. */
static sy_status open_segment(sy_comm *comm, size_t bytes, bool plain, int *index)
{
    *index = free_segment(comm);
    if (*index == SYI_MAX_SEGMENTS) /* in all processes: they have opened and closed the same */
        return SY_ERR_NOMEM;
    struct syi_segment *s = &comm->segment[*index];
    sy_status st = SY_OK;
    bool shared = false;
    make_lists(comm, s);
    if (comm->shared && !comm->local)
        st = open_shared(comm, s, bytes, &shared);
    if (st == SY_OK && !shared)
        st = plain ? syi_comm_agree(comm, open_plain(comm, s, bytes)) : SY_ERR_NOMEM;
    if (st != SY_OK) {
        forget(comm, s);
        return st;
    }
    s->used = true;
    return SY_OK;
}

sy_status syi_segment_open(sy_comm *comm, size_t bytes, int *index)
{
    return open_segment(comm, bytes, true, index);
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

bool syi_stage_grow(sy_comm *comm, size_t slot_bytes)
{
    if (slot_bytes <= comm->stage_slot_bytes)
        return true;
    size_t bytes = comm->stage_slot_bytes * 2 > slot_bytes ? comm->stage_slot_bytes * 2 : slot_bytes;
    bytes = syi_size_mul(syi_size_add(bytes, SYI_PAGE - 1) / SYI_PAGE, SYI_PAGE);
    int index = SYI_NO_SEGMENT;
    const size_t all = syi_size_mul(bytes, (size_t)comm->options.max_inflight);
    comm->shared = open_segment(comm, all, false, &index) == SY_OK;
    if (!comm->shared)
        return false;
    comm->stage = index;
    comm->segment[index].slot_bytes = bytes;
    comm->stage_slot_bytes = bytes;
    return true;
}
