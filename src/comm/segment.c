/*
 * Memory that processes of one machine share, in CPU memory by the transport, on a GPU by its driver. All processes open and close segments in the same order, so a number
 * names the same segment in all of them. A step succeeds in all processes or in none: every step that can fail in one
 * is followed by a gather of its outcome.
 */
#include "comm/comm.h"

#include <stdatomic.h>

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
static sy_status open_plain(sy_comm *comm, sy_ctx *ctx, const struct syi_memory *memory,
                            struct syi_segment *s, size_t bytes)
{
    s->memory = memory;
    if (memory != NULL) {
        if (s->base == NULL)
            return SY_ERR_NOMEM;
        s->bytes[comm->device] = bytes;
        return memory->share(ctx, bytes, NULL, &s->handle, &s->base[comm->device]);
    }
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
    if (s->handle != NULL && s->memory != NULL)
        s->memory->unshare(s->handle);
    else if (s->handle != NULL)
        comm->transport.unshare(comm->transport.self, s->handle);
    syi_comm_delete(comm, s->raw);
    syi_comm_delete(comm, s->base);
    *s = (struct syi_segment){0};
}

/* ---- Opening, step by step ---- */

/* This process makes its part. */
static void begin(sy_comm *comm, sy_ctx *ctx, const struct syi_memory *memory, size_t bytes)
{
    const sy_transport *t = &comm->transport;
    comm->growing = free_segment(comm); /* the same in all processes: they have opened and closed the same */
    comm->share = (struct syi_share){.status = SY_ERR_NOMEM, .bytes = bytes};
    if (comm->growing == SYI_MAX_SEGMENTS)
        return;
    struct syi_segment *s = &comm->segment[comm->growing];
    s->memory = memory;
    if (!make_lists(comm, s))
        return;
    comm->share.status = (int64_t)(memory != NULL ? memory->share(ctx, bytes, comm->share.token, &s->handle,
                                                                  &s->base[comm->device])
                                                  : t->share(t->self, bytes, comm->share.token, &s->handle));
}

/* It maps the parts of the others, if all have made theirs. */
void syi_stage_attach(sy_comm *comm, sy_ctx *ctx)
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
    comm->outcome = (int32_t)(s->memory != NULL ? s->memory->attach(ctx, s->handle, comm->tokens,
                                                                    comm->n_devices, comm->device, s->base)
                                                : t->attach(t->self, s->handle, comm->tokens, s->base));
}

/* Some process has mapped memory of another one: on a GPU that must be freed later. */
static bool was_attached(const sy_comm *comm)
{
    for (int d = 0; d < comm->n_devices; d++)
        if (comm->shares[d].status != SY_OK)
            return false;
    return true;
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
    if (s->handle != NULL && s->memory == NULL)
        comm->transport.settle(comm->transport.self, s->handle);
    s->used = s->shared = shared;
    if (!shared && s->memory != NULL && was_attached(comm)) {
        comm->sharing[SYI_ON_GPU].on = false; /* one process cannot map another's, now or later */
        s->used = true;
        s->memory->detach(s->handle);
    } else if (!shared) {
        forget(comm, s);
    }
    return shared;
}

/* All steps, blocking: NOMEM if one process fails. */
static sy_status open_shared(sy_comm *comm, sy_ctx *ctx, const struct syi_memory *memory, size_t bytes)
{
    begin(comm, ctx, memory, bytes);
    sy_status st = syi_comm_gather(comm, &comm->share, sizeof comm->share, comm->shares);
    if (st == SY_OK) {
        syi_stage_attach(comm, ctx);
        st = syi_comm_gather(comm, &comm->outcome, sizeof comm->outcome, comm->statuses);
    }
    return st != SY_OK ? st : end(comm) ? SY_OK : SY_ERR_NOMEM;
}

/* ---- Who gave up ---- */

/* Once, before the first memory whose rows others read in place: a word that each process alone writes. */
static sy_status open_signs(sy_comm *comm)
{
    if (comm->signs != SYI_NO_SEGMENT)
        return SY_OK;
    const sy_status st = open_shared(comm, NULL, NULL, sizeof(_Atomic uint32_t));
    if (st != SY_OK)
        return st;
    comm->signs = comm->growing;
    atomic_init((_Atomic uint32_t *)comm->segment[comm->signs].base[comm->device], 0);
    return SY_OK;
}

void syi_comm_give_up(sy_comm *comm)
{
    if (comm->signs == SYI_NO_SEGMENT)
        return;
    _Atomic uint32_t *const sign = comm->segment[comm->signs].base[comm->device];
    atomic_store_explicit(sign, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* before what the program writes */
}

bool syi_comm_gave_up(const sy_comm *comm, int device)
{
    if (comm->signs == SYI_NO_SEGMENT)
        return false;
    _Atomic uint32_t *const sign = comm->segment[comm->signs].base[device];
    atomic_thread_fence(memory_order_acquire); /* after the rows */
    return atomic_load_explicit(sign, memory_order_relaxed) != 0;
}

/* ---- Segments ---- */

sy_status syi_segment_open(sy_comm *comm, sy_ctx *ctx, const struct syi_memory *memory, size_t bytes,
                           int *index)
{
    if (comm->sharing[syi_kind_of(memory)].on && !comm->local) {
        sy_status st = open_signs(comm);
        st = st == SY_OK ? open_shared(comm, ctx, memory, bytes) : st;
        *index = comm->growing;
        if (st != SY_ERR_NOMEM)
            return st;
        if (*index < SYI_MAX_SEGMENTS && comm->segment[*index].used)
            return SY_OK; /* not mapped by all, so it is memory of this process */
    }
    *index = free_segment(comm);
    if (*index == SYI_MAX_SEGMENTS)
        return SY_ERR_NOMEM;
    struct syi_segment *s = &comm->segment[*index];
    make_lists(comm, s);
    const sy_status st = syi_comm_agree(comm, open_plain(comm, ctx, memory, s, bytes));
    s->used = st == SY_OK;
    if (st != SY_OK)
        forget(comm, s);
    return st;
}

static bool is_mapped(const struct syi_segment *s)
{
    return s->used && s->shared && s->memory != NULL;
}

sy_status syi_segment_close(sy_comm *comm, int index)
{
    struct syi_segment *s = &comm->segment[index];
    if (is_mapped(s)) {
        s->memory->detach(s->handle);
        const sy_status st = syi_comm_agree(comm, SY_OK);
        if (st != SY_OK)
            return st;
    }
    forget(comm, s);
    return SY_OK;
}

void syi_segment_close_all(sy_comm *comm)
{
    bool mapped = false;
    for (int i = 0; i < SYI_MAX_SEGMENTS; i++)
        if (is_mapped(&comm->segment[i])) {
            comm->segment[i].memory->detach(comm->segment[i].handle);
            mapped = true;
        }
    if (mapped && syi_comm_agree(comm, SY_OK) != SY_OK)
        return;
    for (int i = 0; i < SYI_MAX_SEGMENTS; i++)
        if (comm->segment[i].used)
            forget(comm, &comm->segment[i]);
}

int syi_segment_of(const sy_comm *comm, enum syi_kind kind, const void *data, size_t bytes, size_t *offset)
{
    const uintptr_t at = (uintptr_t)data;
    for (int i = 0; i < SYI_MAX_SEGMENTS; i++) {
        const struct syi_segment *s = &comm->segment[i];
        if (!s->used || !s->shared || syi_kind_of(s->memory) != kind || s->slot_bytes > 0)
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

/* ---- The stage ---- */

/* All slots of a stage. */
static size_t bytes_for(const sy_comm *comm, enum syi_kind kind, size_t slot_bytes)
{
    const size_t twice = comm->sharing[kind].slot_bytes * 2, bytes = twice > slot_bytes ? twice : slot_bytes;
    const size_t slot = syi_size_mul(syi_size_add(bytes, SYI_PAGE - 1) / SYI_PAGE, SYI_PAGE);
    return syi_size_mul(slot, (size_t)comm->options.max_inflight);
}

/* The segment that was opened last becomes the stage. */
static bool use_stage(sy_comm *comm, enum syi_kind kind, bool shared)
{
    struct syi_sharing *sharing = &comm->sharing[kind];
    sharing->on = shared;
    if (!shared)
        return false;
    struct syi_segment *s = &comm->segment[comm->growing];
    sharing->stage = comm->growing;
    sharing->slot_bytes = s->slot_bytes = (size_t)s->bytes[comm->device] / (size_t)comm->options.max_inflight;
    return true;
}

void syi_stage_begin(sy_comm *comm, sy_ctx *ctx, const struct syi_memory *memory, size_t slot_bytes)
{
    comm->growing_kind = syi_kind_of(memory);
    begin(comm, ctx, memory, bytes_for(comm, comm->growing_kind, slot_bytes));
}

bool syi_stage_end(sy_comm *comm)
{
    return use_stage(comm, comm->growing_kind, end(comm));
}

sy_status syi_stage_grow(sy_comm *comm, size_t slot_bytes)
{
    if (slot_bytes <= comm->sharing[SYI_IN_CPU].slot_bytes)
        return SY_OK;
    const sy_status st = open_shared(comm, NULL, NULL, bytes_for(comm, SYI_IN_CPU, slot_bytes));
    use_stage(comm, SYI_IN_CPU, st == SY_OK);
    return st;
}
