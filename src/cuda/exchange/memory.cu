/*
 * Memory of a device, for exchanges between the devices of a mesh. The engine validates choices and lists
 * rows in CPU memory. Its writes are collected in a block of that memory; at the end the block goes to the
 * device in one copy, and one kernel writes tables, one each plane of rows, one the sums.
 */
#include "cuda/runtime/backend.cuh"
#include "cuda/codes/row_codes.cuh"
#include "cuda/exchange/memory_rows.cuh"
#include "cuda/runtime/travel.cuh"

#include <cstdio>
#include <cstdlib>

enum { KINDS = 3, TABLE = 0, JOB = 1, SUM = 2 };
enum { MOST_PUBLISHED = 128 * 1024 }; /* bytes, which one block copies about as fast as many start */

/* Memory of the device, or pinned memory, before it grew: freeing waits for the device, which may wait for
   another process. */
struct smaller {
    u8 *there, *pinned;
    struct smaller *next;
};

/* A growing list of bytes of the host. What the device reads or writes is pinned once its size is known:
   copies then are queued, and do not go through memory of the driver. */
struct bytes {
    u8 *data;
    size_t used, room;
    bool pinned;
    struct smaller *smaller;
};

/* What a context keeps for exchanges. */
struct syc_exchange {
    /* ahead: of rows that will be read, copied before the stream is waited for */
    struct bytes block, read, ahead;
    syi_rows ahead_of;
    int64_t ahead_rows;
    size_t ahead_bytes;       /* 0: none */
    bool ahead_queued;        /* their copy */
    u32 *seen;                /* in memory of the host: the number of the last `publish` that has ended */
    u32 published;            /* the number of the last that was queued */
    bool last;                /* and nothing was queued after it */
    bool skipped;             /* they will not be read */
    bool waits;               /* something may be queued that was not waited for */
    cudaError_t packed;       /* the first failure of a copy that was queued since */
    struct bytes list[KINDS]; /* struct table, struct job, struct job */
    cudaEvent_t sent;         /* the last copy of the block; made by the first */
    bool sending;             /* that may not have ended */
    u8 *there;                /* the block on the device */
    size_t there_bytes;
    struct smaller *smaller;
    int n_planes;
    int64_t row_bytes[SY_A2A_MAX_PLANES];
    u64 alignment[SY_A2A_MAX_PLANES];
    int64_t n_slots, hidden;
    sy_type type, weight_type;
    syi_row_codes_plan codes; /* of sums */
    bool loaded;              /* its kernels */
    sy_status status;         /* of what was collected */
    cudaError_t error;
};

static void free_smaller(struct smaller *list)
{
    while (list != NULL) {
        struct smaller *const next = list->next;
        cudaFree(list->there);
        cudaFreeHost(list->pinned);
        free(list);
        list = next;
    }
}

static void free_bytes(struct bytes *b)
{
    if (b->pinned)
        cudaFreeHost(b->data);
    else
        free(b->data);
    free_smaller(b->smaller);
}

void syc_exchange_free(syc_exchange *e)
{
    if (e == NULL)
        return;
    free_bytes(&e->block);
    free_bytes(&e->read);
    free_bytes(&e->ahead);
    cudaFreeHost(e->seen);
    for (int k = 0; k < KINDS; k++)
        free_bytes(&e->list[k]);
    if (e->sent != NULL)
        cudaEventDestroy(e->sent);
    cudaFree(e->there);
    free_smaller(e->smaller);
    free(e);
}

/* ---- Collecting ---- */

/* Room for n more bytes, aligned; where they begin. NULL: there is no memory. */
static u8 *take(struct bytes *b, size_t n)
{
    const size_t at = (b->used + 15) / 16 * 16;
    if (b->data == NULL || at + n > b->room) {
        const size_t room = 2 * (at + n) + 4096;
        struct smaller *const old = b->pinned ? (struct smaller *)calloc(1, sizeof *old) : NULL;
        u8 *const made = b->pinned && old == NULL ? NULL : (u8 *)realloc(b->pinned ? NULL : b->data, room);
        if (made == NULL) {
            free(old);
            return NULL;
        }
        if (old != NULL) {
            memcpy(made, b->data, b->used);
            *old = {NULL, b->data, b->smaller};
            b->smaller = old;
            b->pinned = false;
        }
        b->data = made;
        b->room = room;
    }
    b->used = at + n;
    return b->data + at;
}

/* Empties the list and pins its memory, that of at least `room` bytes if it has none. False: there is no
   memory. */
static bool empty(struct bytes *b, size_t room)
{
    u8 *made = NULL;
    b->used = 0;
    room = room > b->room ? room : b->room;
    if (b->pinned || room == 0)
        return true;
    if (cudaHostAlloc((void **)&made, room, cudaHostAllocMapped | cudaHostAllocPortable) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    free(b->data);
    b->data = made;
    b->room = room;
    b->pinned = true;
    return true;
}

/* Room in the block, once the device has read what was there before. */
static u8 *take_block(syc_exchange *e, size_t n)
{
    if (e->sending)
        cudaEventSynchronize(e->sent); /* an error stays with the stream */
    e->sending = false;
    return take(&e->block, n);
}

/* Bytes into the block; their place. */
static size_t keep(syc_exchange *e, const void *from, size_t n)
{
    u8 *const to = take_block(e, n);
    if (to == NULL) {
        e->status = SY_ERR_NOMEM;
        return 0;
    }
    if (n > 0)
        memcpy(to, from, n);
    return (size_t)(to - e->block.data);
}

/* One more of a list, cleared; NULL: there is no memory. */
template <class T> static T *add_to(syc_exchange *e, int kind)
{
    static_assert(sizeof(T) % 16 == 0, "the elements of a list are next to each other");
    T *const item = (T *)take(&e->list[kind], sizeof(T));
    if (item == NULL)
        e->status = SY_ERR_NOMEM;
    else
        memset(item, 0, sizeof(T));
    return item;
}

template <class T> static int64_t length_of(const syc_exchange *e, int kind)
{
    return (int64_t)(e->list[kind].used / sizeof(T));
}

/* The exchange of this context, which `begin` makes. */
static syc_exchange *begun(const sy_ctx *ctx)
{
    return ctx->cuda_device->exchange;
}

static void write_rows(sy_ctx *ctx, syi_rows to, syi_rows from, bool of_tensor, int64_t n, size_t row_bytes)
{
    syc_exchange *const e = begun(ctx);
    if (n == 0 || row_bytes == 0)
        return;
    table *const t = add_to<table>(e, TABLE);
    if (t == NULL)
        return;
    *t = {to, from, n, (int64_t)row_bytes, 0, !of_tensor};
    if (of_tensor)
        return;
    const size_t at = (size_t)((u8 *)t - e->list[TABLE].data);
    size_t first = 0;
    for (int64_t r = 0; r < n; r++) { /* rows next to each other, the first aligned */
        u8 *const row =
            r == 0 ? take_block(e, row_bytes * (size_t)n) : e->block.data + first + (size_t)r * row_bytes;
        if (row == NULL) {
            e->status = SY_ERR_NOMEM;
            return;
        }
        if (r == 0)
            first = (size_t)(row - e->block.data);
        memcpy(row, syi_row_at(from, r), row_bytes);
    }
    table *const same = (table *)(e->list[TABLE].data + at);
    same->from = {NULL, (int64_t)row_bytes};
    same->from_block = first;
}

static u64 alignment_of(const syi_rows *source, int n)
{
    u64 bits = 0;
    for (int p = 0; p < n; p++)
        bits |= source[p].data != NULL ? syc_alignment(source[p]) : 0;
    return bits;
}

/* The positions that picks name. */
static int positions_of(const syi_a2a_pick *pick, int64_t n)
{
    int most = 0;
    for (int64_t i = 0; i < n; i++)
        most = pick[i].position >= most ? pick[i].position + 1 : most;
    return most;
}

static void copy_rows(sy_ctx *ctx, const syi_a2a_job *jobs, int n_jobs)
{
    syc_exchange *const e = begun(ctx);
    for (int j = 0; j < n_jobs; j++) {
        const syi_a2a_job *const from = &jobs[j];
        const int positions = positions_of(from->pick, from->n_rows);
        struct job made = {};
        const int64_t before = length_of<struct job>(e, JOB);
        const struct job *const last = before > 0 ? (struct job *)e->list[JOB].data + before - 1 : NULL;
        made.first = last != NULL ? last->first + last->n : 0;
        made.n = from->n_rows;
        made.zero = from->zero;
        made.picks = keep(e, from->pick, (size_t)from->n_rows * sizeof *from->pick);
        e->n_planes = from->n_planes;
        for (int p = 0; p < from->n_planes; p++) {
            const syi_a2a_plane *const plane = &from->plane[p];
            made.to[p] = plane->to;
            made.sources[p] = keep(e, plane->source, (size_t)positions * sizeof *plane->source);
            e->row_bytes[p] = (int64_t)plane->row_bytes;
            e->alignment[p] |= syc_alignment(plane->to) | alignment_of(plane->source, positions);
        }
        struct job *const to = add_to<struct job>(e, JOB);
        if (to != NULL)
            *to = made;
    }
}

static void fan_out(sy_ctx *ctx, const syi_a2a_fan *fan)
{
    copy_rows(ctx, fan->job, fan->n_jobs);
}

static size_t add_scratch(const sy_ctx *, int64_t)
{
    return 0;
}

static void add_rows(sy_ctx *ctx, const syi_a2a_sum *sums, int n_sums, void *)
{
    syc_exchange *const e = begun(ctx);
    int64_t first = 0;
    for (int s = 0; s < n_sums; s++) {
        const syi_a2a_sum *const from = &sums[s];
        const int64_t n_picks = from->n_slots * from->n_home;
        const int positions = positions_of(from->pick, n_picks);
        struct job made = {};
        made.first = first;
        made.n = from->n_home;
        made.to[0] = from->to;
        made.by = from->weights;
        made.picks = keep(e, from->pick, (size_t)n_picks * sizeof *from->pick);
        made.sources[0] = keep(e, from->source, (size_t)positions * sizeof *from->source);
        if (from->codes.given) {
            made.sources[1] = keep(e, from->scales, (size_t)positions * sizeof *from->scales);
            e->alignment[2] |= alignment_of(from->scales, positions);
        }
        e->alignment[0] |= alignment_of(from->source, positions);
        e->alignment[1] |= syc_alignment(from->to);
        e->codes = from->codes;
        e->n_slots = from->n_slots;
        e->hidden = from->hidden;
        e->type = from->type;
        e->weight_type = from->weight_type;
        first += from->n_home;
        struct job *const to = add_to<struct job>(e, SUM);
        if (to != NULL)
            *to = made;
    }
}

/* ---- Writing ---- */

/* The lists follow what they name, and everything goes to the device. Where the lists begin: place[kind]. */
static void send(syc_exchange *e, cudaStream_t stream, size_t *place)
{
    for (int k = 0; k < KINDS; k++)
        place[k] = keep(e, e->list[k].data, e->list[k].used);
    if (e->status != SY_OK)
        return;
    if (e->block.used > e->there_bytes) { /* the room of a block doubles, so few are kept */
        struct smaller *const old = (struct smaller *)calloc(1, sizeof *old);
        u8 *made = NULL;
        e->error = old == NULL ? cudaErrorMemoryAllocation : cudaMalloc((void **)&made, e->block.room);
        if (e->error != cudaSuccess) {
            free(old);
            return;
        }
        *old = {e->there, NULL, e->smaller};
        e->smaller = old;
        e->there = made;
        e->there_bytes = e->block.room;
    }
    if (e->sent == NULL &&
        (e->error = cudaEventCreateWithFlags(&e->sent, cudaEventDisableTiming)) != cudaSuccess)
        return;
    e->error = cudaMemcpyAsync(e->there, e->block.data, e->block.used, cudaMemcpyDefault, stream);
    if (e->error == cudaSuccess && e->block.pinned)
        e->error = cudaEventRecord(e->sent, stream);
    e->sending = e->block.pinned;
}

static void launch(syc_call *call, syc_exchange *e, const size_t *place)
{
    const int n_tables = (int)length_of<table>(e, TABLE), n_jobs = (int)length_of<struct job>(e, JOB),
              n_sums = (int)length_of<struct job>(e, SUM);
    const struct job *const jobs = (struct job *)e->list[JOB].data, *const sums =
                                                                        (struct job *)e->list[SUM].data;
    syc_launch(&call->queue, write_tables, SYC_AFTER, syc_grid(call, n_tables, exchange_policy::TABLE_BLOCKS),
               256, 0, (const u8 *)e->there, place[TABLE], n_tables, call->gate);
    for (int p = 0; n_jobs > 0 && p < e->n_planes; p++)
        syc_move_rows(call, planed_rows{e->there, place[JOB], n_jobs, p},
                      jobs[n_jobs - 1].first + jobs[n_jobs - 1].n, e->row_bytes[p], e->alignment[p]);
    const int64_t n_items = n_sums > 0 ? sums[n_sums - 1].first + sums[n_sums - 1].n : 0;
    const summed_rows summed = {e->n_slots, e->there, place[SUM], n_sums, e->weight_type};
    if (n_items > 0 && e->codes.given)
        syc_by_sum(e->codes.type,
                   syc_sums_sixteens(&e->codes, e->alignment[0], e->alignment[2], e->alignment[1]),
                   syc_coded_sums<summed_rows>{call, &e->codes, summed, n_items});
    else if (n_items > 0 && e->hidden > 0)
        syc_by_type(e->type,
                    e->alignment[0] | e->alignment[1] | (u64)e->hidden * (e->type == SY_TYPE_F32 ? 4u : 2u),
                    syc_launch_sums<summed_rows>{call, summed, n_items, e->hidden});
}

/*
 * Loads all kernels of this file. The driver loads a kernel when it is first launched, and may wait for the
 * device then: behind a kernel of NCCL, which waits for another process, that process may wait for this one.
 */
static cudaError_t load(syc_device *d)
{
    static const sy_type types[] = {SY_TYPE_F32, SY_TYPE_F16, SY_TYPE_BF16};
    syc_call call = syc_begin(d, SYI_ALL_TO_ALL_DISPATCH, NULL);
    call.queue.only_load = true;
    syc_launch(&call.queue, write_tables, SYC_AFTER, 1, 256, 0, (const u8 *)NULL, 0, 1, call.gate);
    syc_launch(&call.queue, store_twice, SYC_AFTER, 1, 256, 0, (u32 *)NULL, (u32 *)NULL, (const u32 *)NULL,
               (u32)0);
    syc_launch(&call.queue, publish, SYC_AFTER, 1, PUBLISH_THREADS, 0, (u32 *)NULL, (const u32 *)NULL, (u32)0,
               (u32 *)NULL, (u32)0);
    for (u64 alignment = 16; alignment > 0; alignment /= 4)
        syc_move_rows(&call, planed_rows{}, 1, 16, alignment);
    for (const sy_type type : types)
        for (u64 alignment = 16; alignment > 0; alignment /= 16)
            syc_by_type(type, alignment, syc_launch_sums<summed_rows>{&call, {}, 1, 16});
    for (int type = 0; type < SYI_N_FLOATS; type++)
        for (const size_t group : {16, 24, 1}) {
            syi_row_codes_plan codes = {};
            codes.type = (syi_float)type;
            codes.group = group;
            codes.n_groups = 1;
            for (const bool wide : {false, true})
                syc_by_sum(codes.type, wide, syc_coded_sums<summed_rows>{&call, &codes, summed_rows{}, 1});
            for (const syi_code code : {SYI_CODE_I8, SYI_CODE_E4M3, SYI_CODE_E5M2}) {
                codes.code = code;
                syc_code_rows(&call, &codes, syc_same_rows{}, 1, 1);
            }
        }
    return call.queue.error;
}

/* Runs what was collected. skips: unless the context has a fault that was not read. */
static sy_status run(sy_ctx *ctx, bool skips)
{
    syc_device *const d = ctx->cuda_device;
    syc_exchange *const e = begun(ctx);
    e->waits = true;
    size_t place[KINDS];
    syc_on_device on(d);
    syc_call call = syc_begin(d, SYI_ALL_TO_ALL_DISPATCH, NULL);
    call.gate.closed += skips ? 0 : 1; /* the word after it is never set */
    e->error = cudaSuccess;
    send(e, d->stream, place);
    if (e->status == SY_OK && e->error == cudaSuccess) {
        launch(&call, e, place);
        e->error = call.queue.error;
    }
    if (e->error == cudaSuccess && ctx->synchronous)
        e->error = cudaStreamSynchronize(d->stream);
#ifdef SWITCHYARD_CUDA_EMULATED
    emulator::finish();
#endif
    const sy_status st = e->status != SY_OK                      ? e->status
                         : e->error == cudaErrorMemoryAllocation ? SY_ERR_NOMEM
                         : e->error != cudaSuccess               ? SY_ERR_DEVICE
                                                                 : SY_OK;
    if (st != SY_OK)
        snprintf(ctx->backend_error, sizeof ctx->backend_error, "could not run the exchange: %s",
                 e->status != SY_OK ? "no memory of the host for its lists" : cudaGetErrorString(e->error));
    cudaGetLastError();
    e->block.used = 0;
    for (int k = 0; k < KINDS; k++)
        e->list[k].used = 0;
    memset(e->alignment, 0, sizeof e->alignment);
    e->status = SY_OK;
    return st;
}

static sy_status end(sy_ctx *ctx)
{
    return run(ctx, true);
}

static sy_status flush(sy_ctx *ctx)
{
    return run(ctx, false);
}

/* Other processes wait for the rows: faults of other calls do not skip it. */
static sy_status encode_rows(sy_ctx *ctx, const syi_row_codes_plan *p)
{
    syc_device *const d = ctx->cuda_device;
    syc_on_device on(d);
    syc_call call = syc_begin(d, SYI_ALL_TO_ALL_DISPATCH, NULL);
    call.gate.closed += 1; /* never set, as in run */
    syc_code_rows(&call, p, syc_same_rows{p->dense, p->n_rows}, p->n_rows, p->n_rows);
    return syc_queued(ctx, &call, "could not make codes of rows");
}

/* ---- Reading ---- */

static sy_status no_memory(sy_ctx *ctx, size_t bytes)
{
    snprintf(ctx->backend_error, sizeof ctx->backend_error, "has no memory for an exchange: %zu bytes",
             bytes);
    return SY_ERR_NOMEM;
}

/* Rows of `to` are not nearer to each other than row_bytes. */
static cudaError_t fetch(const syc_device *d, syi_rows to, syi_rows rows, int64_t n, size_t row_bytes)
{
    if (n == 1 || (rows.stride == (int64_t)row_bytes && to.stride == rows.stride))
        return cudaMemcpyAsync(to.data, rows.data, (size_t)n * row_bytes, cudaMemcpyDefault, d->stream);
    if (rows.stride >= (int64_t)row_bytes)
        return cudaMemcpy2DAsync(to.data, (size_t)to.stride, rows.data, (size_t)rows.stride, row_bytes,
                                 (size_t)n, cudaMemcpyDefault, d->stream);
    cudaError_t code = cudaSuccess;
    for (int64_t r = 0; r < n && code == cudaSuccess; r++)
        code =
            cudaMemcpyAsync(syi_row_at(to, r), syi_row_at(rows, r), row_bytes, cudaMemcpyDefault, d->stream);
    return code;
}

/* bytes, which a kernel writes to the host as fast as a copy does, and starts sooner */
enum { MOST_TWICE = 256 * 1024 };

static cudaError_t queue_ahead(const syc_device *d, syc_exchange *e)
{
    if (e->ahead_queued || e->ahead_bytes == 0)
        return cudaSuccess;
    const size_t row_bytes = e->ahead_bytes / (size_t)e->ahead_rows;
    e->ahead_queued = true;
    return fetch(d, {e->ahead.data, (int64_t)row_bytes}, e->ahead_of, e->ahead_rows, row_bytes);
}

/* The copy of the same rows for others, together with that for the host. False: each by itself. */
static bool pack_twice(syc_device *d, syc_exchange *e, syi_rows to, syi_rows from, int64_t n,
                       size_t row_bytes)
{
    const size_t bytes = (size_t)n * row_bytes;
    const u64 bits = (u64)(uintptr_t)to.data | (u64)(uintptr_t)from.data | bytes;
    if (e->ahead_queued || !e->ahead.pinned || bytes != e->ahead_bytes || bytes == 0 || bytes > MOST_TWICE ||
        from.data != e->ahead_of.data || bits % sizeof(u32) != 0 ||
        (n > 1 && (from.stride != (int64_t)row_bytes || to.stride != from.stride ||
                   e->ahead_of.stride != from.stride)))
        return false;
    syc_call call = syc_begin(d, SYI_ALL_TO_ALL_DISPATCH, NULL);
    const u32 words = (u32)(bytes / sizeof(u32));
    syc_launch(&call.queue, store_twice, SYC_AFTER, (words + 255) / 256, 256, 0, (u32 *)to.data,
               (u32 *)e->ahead.data, (const u32 *)from.data, words);
    e->ahead_queued = true;
    e->packed = call.queue.error;
    return true;
}

/* The copy of choices that the host does not read. False: by a copy of the driver. */
static bool pack_choices(syc_device *d, syc_exchange *e, syi_rows to, syi_rows from, int64_t n,
                         size_t row_bytes)
{
    const size_t bytes = (size_t)n * row_bytes;
    const u64 bits = (u64)(uintptr_t)to.data | (u64)(uintptr_t)from.data | bytes;
    if (!e->skipped || from.data != e->ahead_of.data || bytes > MOST_PUBLISHED || bits % sizeof(u32) != 0 ||
        (n > 1 && (from.stride != (int64_t)row_bytes || to.stride != from.stride)))
        return false;
    syc_call call = syc_begin(d, SYI_ALL_TO_ALL_DISPATCH, NULL);
    syc_launch(&call.queue, publish, SYC_AFTER, 1, PUBLISH_THREADS, 0, (u32 *)to.data, (const u32 *)from.data,
               (u32)(bytes / sizeof(u32)), e->seen, ++e->published);
    e->packed = call.queue.error;
    e->last = true;
    return true;
}

static void skip(sy_ctx *ctx)
{
    syc_exchange *const e = begun(ctx);
    e->skipped = true;
    e->ahead_bytes = 0;
}

static sy_status begin(sy_ctx *ctx, const syi_rows *ahead, int64_t n, size_t row_bytes)
{
    syc_device *const d = ctx->cuda_device;
    syc_on_device on(d);
    if (syc_captures(d)) {
        snprintf(ctx->backend_error, sizeof ctx->backend_error,
                 "cannot capture an exchange into a graph: its choices are read by the host");
        return SY_ERR_UNSUPPORTED;
    }
    if (d->exchange == NULL)
        d->exchange = (syc_exchange *)calloc(1, sizeof *d->exchange);
    if (d->exchange == NULL)
        return no_memory(ctx, sizeof *d->exchange);
    cudaError_t code = d->exchange->loaded ? cudaSuccess : load(d);
    if (code == cudaSuccess && !d->exchange->loaded)
        code = syc_mesh_load(d);
    d->exchange->loaded = code == cudaSuccess;
    if (code != cudaSuccess)
        return syc_failed(ctx, "kernels could not be loaded", code);
    syc_exchange *const e = d->exchange;
    const size_t bytes = ahead != NULL ? (size_t)n * row_bytes : 0;
    if (e->seen == NULL && cudaHostAlloc((void **)&e->seen, sizeof *e->seen,
                                         cudaHostAllocMapped | cudaHostAllocPortable) == cudaSuccess)
        *e->seen = 0;
    u8 *const to =
        e->seen != NULL && empty(&e->block, 0) && empty(&e->ahead, bytes) ? take(&e->ahead, bytes) : NULL;
    e->ahead_bytes = 0;
    e->waits = true;
    e->packed = cudaSuccess;
    if (to == NULL)
        return no_memory(ctx, bytes);
    if (bytes > 0)
        e->ahead_of = *ahead;
    e->ahead_rows = n;
    e->ahead_bytes = bytes;
    e->ahead_queued = e->skipped = e->last = false;
    return SY_OK;
}

/* Until the host sees the last word of `publish`, which it does sooner than the end of the stream; errors are
   the stream's. */
static cudaError_t wait_for_words(const syc_device *d, const syc_exchange *e)
{
    enum { LOOKS = 4096 }; /* between two queries */
    for (;;) {
        for (int i = 0; i < LOOKS; i++)
            if (__atomic_load_n(e->seen, __ATOMIC_ACQUIRE) == e->published)
                return cudaSuccess;
        const cudaError_t code = cudaStreamQuery(d->stream);
        if (code != cudaErrorNotReady)
            return code;
        cudaGetLastError(); /* no error of the caller's next CUDA call */
    }
}

static sy_status wait(sy_ctx *ctx)
{
    syc_device *const d = ctx->cuda_device;
    syc_exchange *const e = begun(ctx);
    if (!e->waits)
        return SY_OK;
    syc_on_device on(d);
    const cudaError_t queued = e->packed, read = queue_ahead(d, e);
    const cudaError_t code = read != cudaSuccess                ? read
                             : e->last && queued == cudaSuccess ? wait_for_words(d, e)
                                                                : cudaStreamSynchronize(d->stream);
    e->waits = code != cudaSuccess;
    e->packed = cudaSuccess;
    if (queued != cudaSuccess)
        return syc_failed(ctx, "could not copy rows for other processes", queued);
    return code == cudaSuccess ? SY_OK : syc_failed(ctx, "could not be waited for", code);
}

static void pack_rows(sy_ctx *ctx, syi_rows to, syi_rows from, const int32_t *, int64_t n, size_t row_bytes)
{
    syc_device *const d = ctx->cuda_device;
    syc_exchange *const e = begun(ctx);
    syc_on_device on(d);
    e->waits = true;
    e->last = false;
    if (n > 0 && row_bytes > 0 && e->packed == cudaSuccess && !pack_choices(d, e, to, from, n, row_bytes) &&
        !pack_twice(d, e, to, from, n, row_bytes))
        e->packed = fetch(d, to, from, n, row_bytes);
}

static sy_status read_rows(sy_ctx *ctx, syi_rows *rows, int64_t n, size_t row_bytes)
{
    syc_device *const d = ctx->cuda_device;
    syc_exchange *const e = begun(ctx);
    if (n == 0 || row_bytes == 0)
        return SY_OK;
    if (e->ahead_bytes == (size_t)n * row_bytes && e->ahead_of.data == rows->data &&
        e->ahead_of.stride == rows->stride) {
        const sy_status st = wait(ctx);
        e->ahead_bytes = 0; /* once: the tensor may be another one by the next call */
        *rows = {e->ahead.data, (int64_t)row_bytes};
        return st;
    }
    syc_on_device on(d);
    u8 *const to = empty(&e->read, (size_t)n * row_bytes) ? take(&e->read, (size_t)n * row_bytes) : NULL;
    if (to == NULL)
        return no_memory(ctx, (size_t)n * row_bytes);
    cudaError_t code = fetch(d, {to, (int64_t)row_bytes}, *rows, n, row_bytes);
    code = code == cudaSuccess ? cudaStreamSynchronize(d->stream) : code;
    if (code != cudaSuccess)
        return syc_failed(ctx, "could not be read", code);
    *rows = {to, (int64_t)row_bytes};
    return SY_OK;
}

const syi_memory syc_memory = {&syc_mesh_device,
                               "cuda",
                               true,
                               begin,
                               skip,
                               wait,
                               read_rows,
                               write_rows,
                               encode_rows,
                               pack_rows,
                               copy_rows,
                               fan_out,
                               NULL,
                               add_scratch,
                               add_rows,
                               end,
                               flush,
                               syc_travel,
                               syc_travel_free,
                               syc_travel_copy,
                               syc_mark,
                               syc_reached,
                               syc_place,
                               syc_share,
                               syc_attach,
                               syc_detach,
                               syc_unshare};
