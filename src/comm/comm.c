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

static int ordinal_of(const sy_ctx *ctx, const struct syi_memory *memory)
{
    int ordinal = 0;
    void *stream;
    memory->place(ctx, &ordinal, &stream);
    return ordinal;
}

sy_status syi_comm_check_device(sy_ctx *ctx, const sy_comm *comm, const struct syi_memory *memory)
{
    const int only = comm->transport.one_device > 0 ? comm->transport.one_device : comm->cuda_device;
    if (only == 0 || ordinal_of(ctx, memory) + 1 == only)
        return SY_OK;
    return syi_fail(ctx, SY_ERR_DEVICE, "ctx", "is on CUDA device %d, want %d, that of the comm",
                    ordinal_of(ctx, memory), only - 1);
}

void syi_comm_bind_device(const sy_ctx *ctx, sy_comm *comm, const struct syi_memory *memory)
{
    comm->cuda_device = ordinal_of(ctx, memory) + 1;
}

uint64_t syi_comm_limit(const sy_comm *comm)
{
    const int64_t ms = comm->options.timeout_ms;
    return ms < 0 ? 0 : ms > INT64_MAX / 1000000 ? UINT64_MAX : (uint64_t)ms * 1000000;
}

void syi_comm_break(sy_comm *comm)
{
    if (!comm->broken && comm->transport.stop != NULL)
        comm->transport.stop(comm->transport.self);
    comm->broken = true;
    syi_comm_give_up(comm);
}

sy_status syi_comm_gather(sy_comm *comm, const void *mine, size_t bytes, void *all)
{
    const sy_transport *t = &comm->transport;
    sy_transport_ticket ticket = {0};
    bool done = false;
    sy_status st = t->gather(t->self, SY_CHANNEL_CONTROL, SY_AXIS_ALL, mine, bytes, all, NULL, &ticket);
    const uint64_t limit = syi_comm_limit(comm), begin = limit > 0 ? syi_now() : 0;
    for (int tries = 0; st == SY_OK && !done; tries++) {
        st = t->test(t->self, &ticket, &done);
        if (tries > 100)
            sched_yield();
        if (st == SY_OK && !done && limit > 0 && tries % 64 == 63 && syi_now() - begin > limit)
            st = SY_ERR_TIMEOUT;
    }
    if (st != SY_OK)
        syi_comm_break(comm);
    return st;
}

sy_status syi_comm_agree(sy_comm *comm, sy_status status)
{
    if (comm->local)
        return status;
    comm->outcome = (int32_t)status;
    sy_status st = syi_comm_gather(comm, &comm->outcome, sizeof comm->outcome, comm->statuses);
    for (int d = 0; st == SY_OK && d < comm->n_devices; d++)
        st = (sy_status)comm->statuses[d];
    return st;
}
