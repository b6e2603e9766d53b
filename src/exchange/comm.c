/*
 * Comms: creation, memory for callers, and queries.
 */
#include "exchange/exchange.h"

#include <stdio.h>

enum { MOST_DEVICES = 65536, MOST_INFLIGHT = 128, DEFAULT_INFLIGHT = 2 };
#define DEFAULT_CHUNK ((size_t)1 << 30)

static sy_status reject(const sy_comm_options *o, sy_status status, const char *argument, const char *found,
                        int64_t value, const char *expected)
{
    if (o->error == NULL || o->error_bytes == 0)
        return status;
    if (found != NULL)
        snprintf(o->error, o->error_bytes, "sy_comm_create: %s %s, want %s", argument, found, expected);
    else
        snprintf(o->error, o->error_bytes, "sy_comm_create: %s is %lld, want %s", argument, (long long)value,
                 expected);
    return status;
}

static sy_status check_mesh(const sy_comm_options *o, sy_mesh mesh)
{
    if (mesh.rows < 1 || mesh.rows > MOST_DEVICES)
        return reject(o, SY_ERR_VALUE, "mesh.rows", NULL, mesh.rows, "1 to 65536");
    if (mesh.cols < 1 || mesh.cols > MOST_DEVICES / mesh.rows)
        return reject(o, SY_ERR_VALUE, "mesh.cols", NULL, mesh.cols, "1 or more, and at most 65536 devices");
    return SY_OK;
}

/* The options that the caller's header has, validated, with defaults filled in. */
static sy_status read_options(sy_comm **comm, const sy_comm_options *options, size_t options_bytes,
                              sy_comm_options *o)
{
    *o = (sy_comm_options){0};
    if (comm != NULL)
        *comm = NULL;
    if (options != NULL) {
        memcpy(o, options, options_bytes < sizeof *o ? options_bytes : sizeof *o);
        if (syi_unknown_field(options, options_bytes, sizeof *o) < options_bytes)
            return reject(o, SY_ERR_UNSUPPORTED, "options", "set a field this library does not know", 0,
                          "zeros");
    }
    if (o->error != NULL && o->error_bytes > 0)
        o->error[0] = '\0';
    if (comm == NULL)
        return reject(o, SY_ERR_NULL, "comm", "is NULL", 0, "a place for the comm");
    if ((o->alloc == NULL) != (o->dealloc == NULL))
        return reject(o, SY_ERR_NULL, o->alloc == NULL ? "alloc" : "dealloc", "is NULL", 0,
                      "alloc and dealloc");
    if (o->max_inflight < 0 || o->max_inflight > MOST_INFLIGHT)
        return reject(o, SY_ERR_VALUE, "max_inflight", NULL, o->max_inflight, "0 to 128");
    if ((int)o->check < SY_CHECK_FULL || (int)o->check > SY_CHECK_NONE)
        return reject(o, SY_ERR_VALUE, "check", NULL, (int64_t)o->check, "0 or 1: full, none");
    o->max_inflight = o->max_inflight > 0 ? o->max_inflight : DEFAULT_INFLIGHT;
    o->timeout_ms = o->timeout_ms == 0 ? SY_DEFAULT_TIMEOUT_MS : o->timeout_ms;
    o->chunk_bytes = o->chunk_bytes > 0 ? o->chunk_bytes : DEFAULT_CHUNK;
    if (o->alloc == NULL) {
        o->alloc = syi_default_alloc;
        o->dealloc = syi_default_dealloc;
    }
    return SY_OK;
}

/* Everything whose size depends only on the mesh. */
static void lay_out(sy_comm *comm, struct syi_arena *arena)
{
    const size_t shards = (size_t)comm->n_shards, devices = (size_t)comm->n_devices;
    const int n = comm->n_requests;
    comm->requests = syi_take(arena, (size_t)n * sizeof *comm->requests);
    comm->segment = syi_take(arena, SYI_MAX_SEGMENTS * sizeof *comm->segment);
    comm->statuses = syi_take(arena, devices * sizeof *comm->statuses);
    if (comm->may_share) {
        comm->shares = syi_take(arena, devices * sizeof *comm->shares);
        comm->tokens = syi_take(arena, devices * SY_SHARE_TOKEN_BYTES);
    }
    for (int i = 0; arena->base != NULL && i < SYI_MAX_SEGMENTS; i++)
        comm->segment[i] = (struct syi_segment){0};
    for (int i = 0; i < n; i++) {
        sy_request r = {.comm = comm, .slot = i, .now.step = SYI_STEP_DONE};
        r.shard = syi_take(arena, shards * sizeof *r.shard);
        r.agreed.header = syi_take(arena, devices * sizeof *r.agreed.header);
        r.agreed.counts = syi_take(arena, devices * sizeof *r.agreed.counts);
        r.n_spans = syi_take(arena, shards * sizeof *r.n_spans);
        r.spans = syi_take(arena, shards * SYI_MAX_TENSORS * sizeof *r.spans);
        r.agreed.notices = comm->local ? NULL : syi_take(arena, devices * sizeof *r.agreed.notices);
        if (arena->base != NULL)
            comm->requests[i] = r;
    }
}

/* Of the options that must be the same in all processes. */
static uint64_t hash_options(const sy_comm *comm)
{
    const int64_t words[] = {comm->mesh.rows,
                             comm->mesh.cols,
                             comm->may_share,
                             comm->options.max_inflight,
                             (int64_t)comm->options.check,
                             (int64_t)comm->options.chunk_bytes};
    return syi_a2a_hash_words(words, (int)(sizeof words / sizeof *words));
}

static sy_status make(sy_comm **comm, const sy_comm *like)
{
    struct syi_arena arena = {NULL, 0};
    sy_comm measure = *like;
    lay_out(&measure, &arena);
    const size_t head = syi_align(sizeof **comm);
    unsigned char *raw = syi_comm_new(like, head + arena.used + SYI_ALIGN);
    if (raw == NULL)
        return reject(&like->options, SY_ERR_NOMEM, "comm", "could not be allocated", 0, "memory");
    sy_comm *made = (sy_comm *)(void *)(raw + (SYI_ALIGN - (uintptr_t)raw % SYI_ALIGN) % SYI_ALIGN);
    *made = *like;
    made->raw = raw;
    arena = (struct syi_arena){(unsigned char *)made + head, 0};
    lay_out(made, &arena);
    made->options.error = NULL; /* the caller's, for creation only */
    made->options_hash = hash_options(made);
    *comm = made;
    return SY_OK;
}

sy_status sy_comm_create_local_n(sy_comm **comm, sy_mesh mesh, const sy_comm_options *options,
                                 size_t options_bytes)
{
    sy_comm like = {
        .mesh = mesh, .local = true, .sequence = 1, .signs = SYI_NO_SEGMENT, .sharing = {{.on = true}}};
    sy_status st = read_options(comm, options, options_bytes, &like.options);
    if (st == SY_OK)
        st = check_mesh(&like.options, mesh);
    if (st != SY_OK)
        return st;
    like.n_devices = like.n_shards = syi_mesh_devices(mesh);
    like.n_requests = like.options.max_inflight;
    return make(comm, &like);
}

static sy_status check_transport(const sy_comm_options *o, const sy_transport *t)
{
    if (t->name == NULL || t->gather == NULL || t->exchange == NULL || t->test == NULL ||
        t->destroy == NULL || t->error == NULL || (t->share == NULL) != (t->unshare == NULL) ||
        (t->share == NULL) != (t->attach == NULL) || (t->share == NULL) != (t->settle == NULL))
        return reject(o, SY_ERR_NULL, "transport", "lacks a function", 0,
                      "all but share, attach, settle and unshare, which go together");
    if ((int)t->device_rows < SY_TRANSPORT_CPU || (int)t->device_rows > SY_TRANSPORT_STREAM)
        return reject(o, SY_ERR_VALUE, "transport.device_rows", NULL, (int64_t)t->device_rows,
                      "0 to 2: cpu, device, stream");
    const sy_status st = check_mesh(o, t->mesh);
    if (st != SY_OK || (t->device >= 0 && t->device < syi_mesh_devices(t->mesh)))
        return st;
    return reject(o, SY_ERR_VALUE, "transport.device", NULL, t->device, "a device of the mesh");
}

sy_status sy_comm_create_n(sy_comm **comm, const sy_transport *transport, size_t transport_bytes,
                           const sy_comm_options *options, size_t options_bytes)
{
    sy_comm like = {.n_shards = 1, .sequence = 1, .signs = SYI_NO_SEGMENT};
    sy_status st = read_options(comm, options, options_bytes, &like.options);
    sy_transport *t = &like.transport;
    if (transport != NULL)
        memcpy(t, transport, transport_bytes < sizeof *t ? transport_bytes : sizeof *t);
    if (st == SY_OK && transport == NULL)
        return reject(&like.options, SY_ERR_NULL, "transport", "is NULL", 0, "a transport");
    if (st == SY_OK)
        st = check_transport(&like.options, t);
    if (st == SY_OK) {
        like.mesh = t->mesh;
        like.device = t->device;
        like.n_devices = syi_mesh_devices(t->mesh);
        like.may_share = t->share != NULL && !like.options.no_shared;
        for (int k = 0; k < SYI_KINDS; k++)
            like.sharing[k] = (struct syi_sharing){.on = like.may_share, .stage = SYI_NO_SEGMENT};
        like.n_requests = like.options.max_inflight + 1;
        st = make(comm, &like);
    }
    if (st != SY_OK && t->destroy != NULL)
        t->destroy(t->self, false);
    return st;
}

static void free_requests(sy_comm *comm)
{
    for (int i = 0; i < comm->n_requests; i++) {
        if (comm->requests[i].mark.by != NULL)
            comm->requests[i].mark.by->unmark(&comm->requests[i].mark);
        struct syi_travel *travel = &comm->requests[i].travel;
        if (travel->memory != NULL)
            travel->memory->travel_free(travel);
        syi_block_free(comm, &comm->requests[i].block);
        struct syi_device_routing *device = &comm->requests[i].own.device;
        if (device->by != NULL)
            device->by->forget(device);
        syi_block_free(comm, &comm->requests[i].own.block);
    }
}

void sy_comm_destroy(sy_comm *comm)
{
    if (comm == NULL)
        return;
    syi_exchange_close(comm);
    if (!comm->broken)
        syi_segment_close_all(comm);
    const bool broken = comm->broken; /* its memory is kept: late messages may still arrive in it */
    if (!comm->local)
        comm->transport.destroy(comm->transport.self, broken);
    if (broken)
        return;
    free_requests(comm);
    syi_comm_delete(comm, comm->raw);
}

sy_mesh sy_comm_mesh(const sy_comm *comm)
{
    return comm != NULL ? comm->mesh : (sy_mesh){0, 0};
}

int sy_comm_shards(const sy_comm *comm)
{
    return comm != NULL ? comm->n_shards : 0;
}

int sy_comm_first_device(const sy_comm *comm)
{
    return comm != NULL ? comm->device : -1;
}

const char *sy_comm_transport_name(const sy_comm *comm)
{
    return comm == NULL ? "" : comm->local ? "local" : comm->transport.name;
}

bool sy_comm_shares_memory(const sy_comm *comm)
{
    return comm != NULL && comm->sharing[SYI_IN_CPU].on;
}

bool sy_comm_shares_device_memory(const sy_comm *comm)
{
    bool shares = false;
    for (int i = 0; comm != NULL && i < SYI_MAX_SEGMENTS; i++)
        shares = shares || (comm->segment[i].shared && comm->segment[i].memory != NULL);
    return shares && comm->sharing[SYI_ON_GPU].on;
}

/* ---- Memory for callers ---- */

/* The conditions in every process before memory of the comm changes; all processes then agree on the outcome. */
static sy_status check_idle(sy_ctx *ctx, const sy_comm *comm)
{
    return comm->n_open == 0
               ? SY_OK
               : syi_fail(ctx, SY_ERR_STATE, "comm", "has %d open requests, want none", comm->n_open);
}

/* The same sentence in all processes. */
static sy_status report(sy_ctx *ctx, const sy_comm *comm, sy_status st)
{
    if (st == SY_ERR_NOMEM)
        return syi_fail(ctx, st, "memory", "could not be allocated in every process");
    return syi_fail_transport(ctx, comm, st);
}

static sy_status alloc(sy_ctx *ctx, sy_comm *comm, size_t bytes, void **data, bool on_gpu,
                       const struct syi_memory *memory)
{
    if (data != NULL)
        *data = NULL;
    sy_status st = syi_call_begin(&ctx, comm, on_gpu ? "sy_comm_alloc_device" : "sy_comm_alloc");
    if (st == SY_OK && on_gpu && memory == NULL)
        st =
            syi_fail(ctx, SY_ERR_DEVICE, "ctx", "has no device, want one that was created for a CUDA device");
    if (st == SY_OK)
        st = check_idle(ctx, comm);
    if (st == SY_OK && data == NULL)
        st = syi_fail(ctx, SY_ERR_NULL, "data", "is NULL, want a place for the pointer");
    if (st == SY_OK && on_gpu && !comm->local)
        st = syi_comm_check_device(ctx, comm, memory);
    const struct syi_header mine = {.op = on_gpu ? SYI_COMM_ALLOC_DEVICE : SYI_COMM_ALLOC};
    st = syi_call_agree(ctx, comm, &mine, st);
    if (st != SY_OK || data == NULL)
        return st;
    int index;
    if (on_gpu && !comm->local)
        syi_comm_bind_device(ctx, comm, memory);
    st = syi_segment_open(comm, ctx, memory, bytes > 0 ? bytes : 1, &index);
    if (st != SY_OK)
        return report(ctx, comm, st);
    *data = comm->segment[index].base[comm->device];
    return SY_OK;
}

sy_status sy_comm_alloc(sy_ctx *ctx, sy_comm *comm, size_t bytes, void **data)
{
    return alloc(ctx, comm, bytes, data, false, NULL);
}

sy_status syi_comm_alloc_device(sy_ctx *ctx, sy_comm *comm, size_t bytes, void **data,
                                const struct syi_memory *memory)
{
    return alloc(ctx, comm, bytes, data, true, memory);
}

/* The segment that begins at `data`; SYI_NO_SEGMENT when none does. NULL is in none, and freeing it has no effect. */
static int segment_at(const sy_comm *comm, const void *data)
{
    for (int i = 0; data != NULL && i < SYI_MAX_SEGMENTS; i++)
        if (comm->segment[i].used && comm->segment[i].slot_bytes == 0 &&
            comm->segment[i].base[comm->device] == data)
            return i;
    return SYI_NO_SEGMENT;
}

sy_status sy_comm_free(sy_ctx *ctx, sy_comm *comm, void *data)
{
    sy_status st = syi_call_begin(&ctx, comm, "sy_comm_free");
    if (st == SY_OK)
        st = check_idle(ctx, comm);
    const int index = st == SY_OK ? segment_at(comm, data) : SYI_NO_SEGMENT;
    if (st == SY_OK && data != NULL && index == SYI_NO_SEGMENT)
        st = syi_fail(ctx, SY_ERR_STATE, "data", "is not memory of sy_comm_alloc, want what it returned");
    const struct syi_header mine = {.op = SYI_COMM_FREE, .window = (uint8_t)index};
    st = syi_call_agree(ctx, comm, &mine, st);
    if (st != SY_OK || index == SYI_NO_SEGMENT)
        return st;
    st = syi_segment_close(comm, index);
    return st == SY_OK ? st : report(ctx, comm, st);
}

sy_status sy_comm_reserve(sy_ctx *ctx, sy_comm *comm, size_t bytes)
{
    sy_status st = syi_call_begin(&ctx, comm, "sy_comm_reserve");
    if (st == SY_OK)
        st = check_idle(ctx, comm);
    const struct syi_header mine = {.op = SYI_COMM_RESERVE, .requested = syi_pages(bytes)};
    st = syi_call_agree(ctx, comm, &mine, st);
    if (st != SY_OK || comm->local || !comm->sharing[SYI_IN_CPU].on)
        return st;
    const struct syi_header *header = comm->requests[comm->n_requests - 1].agreed.header;
    size_t max = 0;
    for (int d = 0; d < comm->n_devices; d++)
        max = header[d].requested > max ? header[d].requested : max;
    st = syi_stage_grow(comm, max * SYI_PAGE);
    return st == SY_OK ? st : report(ctx, comm, st);
}

sy_status sy_comm_reject(sy_ctx *ctx, sy_comm *comm, sy_status status, const char *sentence)
{
    sy_status st = syi_call_begin(&ctx, comm, "sy_comm_reject");
    if (st == SY_OK && (status == SY_OK || strncmp(sy_status_name(status), "SY_ERR_UNKNOWN", 14) == 0))
        st = syi_fail(ctx, SY_ERR_VALUE, "status", "is %d, want an error", (int)status);
    if (st == SY_OK) {
        st = status;
        ctx->fault = (sy_fault){.status = status, .argument = "", .batch = -1, .position = -1};
        snprintf(ctx->error, sizeof ctx->error, "%s", sentence != NULL ? sentence : "rejected by the caller");
    }
    const struct syi_header mine = {.op = SYI_COMM_REJECT};
    return syi_call_agree(ctx, comm, &mine, st);
}
