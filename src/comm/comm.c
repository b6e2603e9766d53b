/*
 * Memory of a comm, and waiting for its transport.
 */
#include "comm/comm.h"

#include <sched.h>

void *syi_comm_new(const sy_comm *comm, size_t bytes)
{
    return comm->options.alloc(comm->options.alloc_user, bytes > 0 ? bytes : 1);
}

void syi_comm_delete(const sy_comm *comm, void *data)
{
    if (data != NULL)
        comm->options.dealloc(comm->options.alloc_user, data);
}

bool syi_block_grow(const sy_comm *comm, struct syi_block *block, size_t bytes)
{
    if (bytes <= block->bytes)
        return true;
    if (bytes > SIZE_MAX - SYI_ALIGN)
        return false;
    unsigned char *raw = syi_comm_new(comm, bytes + SYI_ALIGN);
    if (raw == NULL)
        return false;
    syi_comm_delete(comm, block->raw);
    block->raw = raw;
    block->data = raw + (SYI_ALIGN - (uintptr_t)raw % SYI_ALIGN) % SYI_ALIGN;
    block->bytes = bytes;
    return true;
}

void syi_block_free(const sy_comm *comm, struct syi_block *block)
{
    syi_comm_delete(comm, block->raw);
    *block = (struct syi_block){0};
}

sy_status syi_comm_finish(sy_comm *comm, sy_transport_ticket *ticket)
{
    bool done = false;
    sy_status st = SY_OK;
    const uint64_t begin = comm->options.timeout_ms > 0 ? syi_now() : 0;
    const uint64_t limit = (uint64_t)comm->options.timeout_ms * UINT64_C(1000000);
    for (int turn = 0; st == SY_OK && !done; turn++) {
        st = comm->transport.test(comm->transport.self, ticket, &done);
        if (turn > 100)
            sched_yield();
        if (st == SY_OK && !done && limit > 0 && turn % 64 == 63 && syi_now() - begin > limit)
            st = SY_ERR_TIMEOUT;
    }
    comm->broken = comm->broken || st != SY_OK;
    return st;
}

sy_status syi_comm_tell(sy_comm *comm, int32_t mine)
{
    const sy_transport *t = &comm->transport;
    sy_transport_ticket ticket = {0};
    const sy_status st =
        t->gather(t->self, SY_CHANNEL_CONTROL, SY_AXIS_ALL, &mine, sizeof mine, comm->told, NULL, &ticket);
    comm->broken = comm->broken || st != SY_OK;
    return st == SY_OK ? syi_comm_finish(comm, &ticket) : st;
}

sy_status syi_comm_agree(sy_comm *comm, sy_status status)
{
    if (comm->local)
        return status;
    sy_status st = syi_comm_tell(comm, (int32_t)status);
    for (int d = 0; st == SY_OK && d < comm->n_devices; d++)
        st = (sy_status)comm->told[d];
    return st;
}
