/*
 * The rows of an exchange. The source of a row is a pick: a position and a row of it. Depending on the position it is in
 * a tensor of this process, in a tensor or a copy of rows in shared memory, or in a message.
 */
#include "exchange/exchange.h"
#include "cpu/pool.h"

/* ---- Scratch ---- */

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static const struct syi_a2a_hosts *hosts_of(const sy_request *r)
{
    return syi_routing_hosts(r->by);
}

/* The largest number of rows of a device's output. */
static int64_t max_picks(const sy_request *r, const struct syi_a2a_shard *shard)
{
    const struct syi_exchange *x = &r->x;
    if (syi_is_combine(x))
        return x->n_slots * shard->n_tokens;
    int64_t rows = 0;
    syi_exchange_max_rows(x, syi_exchange_max_tokens(x), hosts_of(r)->n_local[shard->device], &rows);
    return rows;
}

/* The largest number of devices that one choice of a token can reach. */
static int64_t max_holders(const struct syi_a2a_hosts *hosts)
{
    int64_t max = 0;
    for (int64_t e = 0; e < hosts->n_experts; e++)
        max = hosts->first[e + 1] - hosts->first[e] > max ? hosts->first[e + 1] - hosts->first[e] : max;
    return max;
}

/* The longest lists of any device here: rows it sends, itself included, and rows it receives. */
static void count_lists(sy_request *r)
{
    const struct syi_exchange *x = &r->x;
    const struct syi_a2a_hosts *hosts = hosts_of(r);
    const bool combine = syi_is_combine(x);
    const int64_t reach = smaller(x->n_slots * max_holders(hosts), x->n_positions);
    r->lists.n_sends = 0;
    r->lists.n_receives = combine ? 0 : syi_exchange_max_tokens(x);
    for (int s = 0; s < r->comm->n_shards; s++) {
        const int64_t tokens = r->shard[s].n_tokens, local = hosts->n_local[r->shard[s].device];
        const int64_t sends =
            combine ? syi_exchange_max_tokens(x) * smaller(x->n_slots, local) : tokens * reach;
        r->lists.n_sends = sends > r->lists.n_sends ? sends : r->lists.n_sends;
        if (combine && x->n_slots * tokens > r->lists.n_receives)
            r->lists.n_receives = x->n_slots * tokens;
    }
}

/* Lists of rows for messages and for the stage; one device at a time. */
static void lay_out_lists(sy_request *r, struct syi_arena *arena)
{
    const struct syi_exchange *x = &r->x;
    const size_t positions = (size_t)x->n_positions, tokens = (size_t)syi_exchange_max_tokens(x);
    r->lists.sends.first = syi_take(arena, (positions + 1) * sizeof *r->lists.sends.first);
    r->lists.receives.first = syi_take(arena, (positions + 1) * sizeof *r->lists.receives.first);
    r->lists.sends.rows = syi_take(arena, (size_t)r->lists.n_sends * sizeof *r->lists.sends.rows);
    r->lists.receives.rows = syi_take(arena, (size_t)r->lists.n_receives * sizeof *r->lists.receives.rows);
    r->lists.seen = syi_take(arena, tokens * sizeof *r->lists.seen);
}

/* The table of choices, or on a GPU where staged rows begin. */
static void lay_out_table(sy_request *r, struct syi_arena *arena)
{
    const struct syi_exchange *x = &r->x;
    const size_t starts = (size_t)x->n_positions * sizeof *r->lists.starts;
    const size_t table =
        syi_size_mul((size_t)syi_exchange_max_tokens(x) * (size_t)x->n_slots, syi_index_bytes(x->index_type));
    const size_t all_starts = r->memory->on_gpu ? syi_size_mul(starts, (size_t)x->n_positions) : 0;
    r->lists.raw = syi_take(arena, table > all_starts ? table : all_starts);
    r->lists.mine_raw =
        syi_take(arena, (size_t)(r->shard[0].n_tokens * x->n_slots) * syi_index_bytes(x->index_type));
    r->lists.starts = r->memory->on_gpu ? syi_take(arena, starts) : NULL;
}

/* Rows on a GPU travel through memory of their own. */
static void lay_out_messages(sy_request *r, struct syi_arena *arena, struct syi_arena *travel)
{
    const struct syi_exchange *x = &r->x;
    const size_t positions = (size_t)x->n_positions;
    const bool on_gpu = r->memory->on_gpu, pack = r->comm->options.pack || on_gpu;
    struct syi_arena *rows = on_gpu ? travel : arena;
    for (int p = 0; p < x->n_planes; p++) {
        r->lists.send[p] = syi_take(arena, positions * sizeof **r->lists.send);
        r->lists.recv[p] = syi_take(arena, positions * sizeof **r->lists.recv);
        r->lists.packed[p] = r->lists.landed[p] = NULL;
        if (pack)
            r->lists.packed[p] = syi_take(rows, syi_size_mul((size_t)r->lists.n_sends, x->row_bytes[p]));
        if (pack || x->sum)
            r->lists.landed[p] = syi_take(rows, syi_size_mul((size_t)r->lists.n_receives, x->row_bytes[p]));
    }
}

/* Places for what is made of each shard's rows. */
static void lay_out_codes(sy_request *r, struct syi_arena *rows)
{
    const struct syi_exchange *x = &r->x;
    const int last = x->n_planes - 1;
    for (int s = 0; syi_exchange_encodes(x) && s < r->comm->n_shards; s++)
        for (int p = 0; p <= last; p += last) { /* the first and the last */
            struct syi_a2a_shard *shard = &r->shard[s];
            const size_t bytes = syi_size_mul((size_t)shard->n_tokens, x->row_bytes[p]);
            shard->from[p] = (struct syi_rows){syi_take(rows, bytes), (int64_t)x->row_bytes[p]};
        }
}

/* Whether tokens are read here that are written to several rows. */
static bool fans_out(const sy_request *r)
{
    return !syi_is_combine(&r->x) && (r->comm->local || (r->way.direct && r->x.layout == SY_LAYOUT_EXPERT));
}

static void lay_out(sy_request *r, struct syi_arena *arena, struct syi_arena *travel)
{
    const struct syi_exchange *x = &r->x;
    const sy_comm *comm = r->comm;
    const size_t shards = (size_t)comm->n_shards, sources = (size_t)x->n_positions + 1;
    size_t all_picks = 0;
    r->lists.n_counters = 2 * (hosts_of(r)->n_experts + x->n_positions);
    const size_t tasks = (size_t)(r->lists.threads < comm->n_shards ? r->lists.threads : comm->n_shards);
    r->lists.counters = syi_take(arena, tasks * (size_t)r->lists.n_counters * sizeof *r->lists.counters);
    r->lists.expert_counts = syi_take(arena, (size_t)x->n_experts * sizeof *r->lists.expert_counts);
    r->lists.expert_offsets = syi_take(arena, ((size_t)x->n_experts + 1) * sizeof *r->lists.expert_offsets);
    r->lists.jobs = syi_take(arena, shards * sizeof *r->lists.jobs);
    r->lists.sums = syi_take(arena, shards * sizeof *r->lists.sums);
    for (int s = 0; s < comm->n_shards; s++) {
        struct syi_a2a_shard *shard = &r->shard[s];
        const size_t picks = (size_t)max_picks(r, shard);
        all_picks += picks;
        shard->out.pick = syi_take(arena, picks * sizeof *shard->out.pick);
        shard->out.slot =
            shard->extras.src.data != NULL ? syi_take(arena, picks * sizeof *shard->out.slot) : NULL;
        shard->out.source = syi_take(arena, (size_t)x->n_planes * sources * sizeof *shard->out.source);
    }
    lay_out_lists(r, arena);
    if (fans_out(r)) {
        r->lists.fan_first =
            syi_take(arena, ((size_t)syi_exchange_max_tokens(x) + 2) * sizeof *r->lists.fan_first);
        r->lists.fan_place = syi_take(arena, syi_size_mul(all_picks, sizeof *r->lists.fan_place));
    }
    const bool on_gpu = r->memory->on_gpu && !comm->local;
    r->lists.starts = NULL;
    if (!comm->local && (!r->way.direct || on_gpu))
        lay_out_table(r, arena);
    if (!comm->local && !r->way.direct)
        lay_out_messages(r, arena, travel);
    if (on_gpu) {
        const int64_t max = r->lists.n_sends > r->shard[0].n_tokens ? r->lists.n_sends : r->shard[0].n_tokens;
        r->lists.send_pick = syi_take(arena, (size_t)max * sizeof *r->lists.send_pick);
        r->lists.devices = syi_take(arena, (size_t)comm->n_devices * sizeof *r->lists.devices);
        syi_take(travel, 1); /* never empty */
    }
    lay_out_codes(r, r->memory->on_gpu ? travel : arena);
    r->lists.add_scratch = x->sum ? syi_take(arena, r->memory->add_scratch(r->ctx, x->n_slots)) : NULL;
}

/* The first row of each position, before them. */
static size_t starts_bytes(const struct syi_exchange *x)
{
    return syi_align(((size_t)x->n_positions + 1) * sizeof(int64_t));
}

/* Where a combine's stage has the rows of a plane. A row has all planes together, so that its number alone gives its place. */
static struct syi_rows staged_plane(const struct syi_exchange *x, unsigned char *rows, int plane)
{
    size_t before = 0, all = 0;
    for (int p = 0; p < x->n_planes; p++) {
        before += p < plane ? syi_align(x->row_bytes[p]) : 0;
        all += syi_align(x->row_bytes[p]);
    }
    return (struct syi_rows){rows + before, (int64_t)(x->n_planes == 1 ? x->row_bytes[0] : all)};
}

static size_t staged_row(const struct syi_exchange *x)
{
    return (size_t)staged_plane(x, NULL, 0).stride;
}

/* Bytes that a process copies into the stage because others cannot read them in place; never 0 if they read any. rows:
   tokens of a dispatch, rows a combine sends. */
static size_t stage_bytes(const sy_request *r, int64_t rows, bool windowed)
{
    const struct syi_exchange *x = &r->x;
    const bool table = !x->reuses_routing;
    if (syi_is_combine(x)) {
        const size_t starts = starts_bytes(x);
        return windowed ? 0 : syi_size_add(starts, syi_size_mul((size_t)rows, staged_row(x)));
    }
    size_t bytes = !table && windowed ? 0 : SYI_ALIGN;
    if (table)
        bytes = syi_size_add(bytes,
                             syi_size_mul((size_t)rows * (size_t)x->n_slots, syi_index_bytes(x->index_type)));
    for (int p = 0; p < x->n_planes && !windowed; p++)
        bytes = syi_size_add(syi_align(bytes), syi_size_mul((size_t)rows, x->row_bytes[p]));
    return syi_align(bytes);
}

static int64_t input_rows(const sy_request *r)
{
    const struct syi_a2a_shard *shard = &r->shard[0];
    return !syi_is_combine(&r->x)            ? shard->n_tokens
           : r->x.layout == SY_LAYOUT_PADDED ? shard->input_first * shard->input_rows
                                             : shard->input_rows;
}

/* Whether the input is in memory that the others can read, and its place. */
static bool find_window(sy_request *r)
{
    const struct syi_exchange *x = &r->x;
    const struct syi_a2a_shard *shard = &r->shard[0];
    const int64_t rows = input_rows(r);
    const bool compact = rows <= 1 || shard->from[0].stride == (int64_t)x->row_bytes[0];
    size_t offset = 0;
    if (!compact || x->n_planes > 1)
        return false;
    const int window = syi_segment_of(r->comm, syi_kind_of(r->memory), shard->from[0].data,
                                      (size_t)rows * x->row_bytes[0], &offset);
    r->agreed.mine.window = (uint8_t)window;
    r->agreed.mine.offset = offset;
    if (syi_is_combine(x))
        r->agreed.mine.capacity = (uint32_t)rows;
    return window != SYI_NO_SEGMENT;
}

/* A combine whose rows the device lists: those that others may read are as many as the routing has. */
void syi_exchange_take_whole(sy_request *r)
{
    const int64_t all = input_rows(r), need = r->by->need[r->comm->device];
    const int64_t rows = smaller(all, need);
    const size_t bytes = stage_bytes(r, rows, false);
    r->agreed.mine.flags |= SYI_WHOLE;
    r->agreed.mine.capacity = (uint32_t)rows;
    r->way.stage_bytes = bytes > r->way.stage_bytes ? bytes : r->way.stage_bytes;
}

/* A dispatch whose rows the device lists and others read in place: choices in memory that they can read are not copied either. */
void syi_exchange_take_table(sy_request *r)
{
    const struct syi_a2a_shard *shard = &r->shard[0];
    const size_t row_bytes = syi_exchange_choice_bytes(&r->x);
    size_t offset = 0;
    const int segment = shard->n_tokens > 1 && shard->indices.stride != (int64_t)row_bytes
                            ? SYI_NO_SEGMENT
                            : syi_segment_of(r->comm, SYI_ON_GPU, shard->indices.data,
                                             (size_t)shard->n_tokens * row_bytes, &offset);
    if (segment == SYI_NO_SEGMENT)
        return;
    r->agreed.mine.flags |= SYI_TABLE_IN_PLACE;
    r->agreed.mine.slot = (uint8_t)segment;
    r->agreed.mine.routing = offset;
    r->way.stage_bytes = 0;
}

void syi_exchange_leave_table(sy_request *r)
{
    if ((r->agreed.mine.flags & SYI_TABLE_IN_PLACE) == 0)
        return;
    r->agreed.mine.flags &= (uint8_t)~SYI_TABLE_IN_PLACE;
    r->agreed.mine.slot = (uint8_t)r->slot;
    r->agreed.mine.routing = 0;
    r->way.stage_bytes = stage_bytes(r, r->shard[0].n_tokens, r->way.windowed);
    r->agreed.mine.requested = syi_pages(r->way.stage_bytes);
}

sy_status syi_exchange_encode(sy_request *r)
{
    for (int s = 0; s < r->comm->n_shards; s++) {
        const struct syi_row_codes_plan plan = syi_exchange_codes(&r->x, &r->shard[s]);
        const sy_status st = plan.n_rows > 0 ? r->memory->encode(r->ctx, &plan) : SY_OK;
        if (st != SY_OK)
            return syi_fail_backend(r->ctx, st, "device");
    }
    return SY_OK;
}

sy_status syi_exchange_reserve(sy_request *r)
{
    sy_comm *comm = r->comm;
    if (r->memory->on_gpu && !comm->local)
        syi_comm_bind_device(r->ctx, comm, r->memory);
    r->way.direct = syi_sharing_of(r)->on && !comm->local;
    r->way.windowed = r->way.direct && find_window(r);
    r->lists.threads = r->ctx->threads;
    count_lists(r);
    const int64_t rows = syi_is_combine(&r->x) ? r->lists.n_sends : r->shard[0].n_tokens;
    r->way.stage_bytes = r->way.direct ? stage_bytes(r, rows, r->way.windowed) : 0;
    struct syi_arena arena = {NULL, 0}, travel = {NULL, 0};
    lay_out(r, &arena, &travel);
    if (!syi_block_grow(comm, &r->block, arena.used))
        return syi_fail(r->ctx, SY_ERR_NOMEM, "scratch", "of %zu bytes could not be allocated", arena.used);
    const bool copied = !comm->local && comm->transport.device_rows == SY_TRANSPORT_CPU;
    const sy_status st = travel.used > 0 ? r->memory->travel(r->ctx, &r->travel, travel.used, copied) : SY_OK;
    if (st != SY_OK)
        return syi_fail_backend(r->ctx, st, "device");
    arena = (struct syi_arena){r->block.data, 0};
    travel = (struct syi_arena){r->travel.rows, 0};
    lay_out(r, &arena, &travel);
    return syi_exchange_encodes(&r->x) && !comm->local ? syi_exchange_encode(r) : SY_OK;
}

/* ---- Lists ---- */

/* Picks of the devices of this process, some to each task. */
struct listing {
    sy_request *r;
    int n_tasks;
};

static void list_shard(sy_request *r, struct syi_a2a_shard *shard, int64_t *counters)
{
    const struct syi_exchange *x = &r->x;
    const struct syi_a2a_hosts *hosts = hosts_of(r);
    if (syi_is_combine(x)) {
        shard->out.n_rows = x->n_slots * shard->n_tokens;
        syi_a2a_combine_picks(hosts, shard->out.group, shard->out.position, x->local_reduce,
                              x->local_reduce && x->sum, shard->out.pick, counters);
        return;
    }
    shard->out.n_rows = syi_a2a_dispatch_picks(hosts, shard->out.group, shard->out.position, shard->out.pick,
                                               shard->out.slot, counters);
}

static void list_task(void *data, int task)
{
    const struct listing *l = data;
    sy_request *r = l->r;
    const int64_t n = r->comm->n_shards;
    for (int64_t s = syi_part(n, l->n_tasks, task); s < syi_part(n, l->n_tasks, task + 1); s++)
        list_shard(r, &r->shard[s], r->lists.counters + task * r->lists.n_counters);
}

void syi_exchange_lists(sy_request *r)
{
    const struct syi_exchange *x = &r->x;
    const sy_comm *comm = r->comm;
    for (int s = 0; s < comm->n_shards; s++) {
        struct syi_a2a_shard *shard = &r->shard[s];
        shard->out.position = syi_position_of(comm->mesh, x->axis, shard->device);
        shard->out.group = &r->by->group[comm->local ? syi_group_of(comm->mesh, x->axis, shard->device) : 0];
    }
    /* Processing a choice takes longer than moving its bytes. */
    const uint64_t work =
        16 * sizeof(int32_t) * (uint64_t)(syi_exchange_max_tokens(x) * x->n_slots) * (uint64_t)comm->n_shards;
    struct listing l = {r, syi_tasks(r->ctx, comm->n_shards, work)};
    l.n_tasks = l.n_tasks < r->lists.threads ? l.n_tasks : r->lists.threads;
    syi_parallel(r->ctx, l.n_tasks, list_task, &l);
    r->lists.has_sends = r->lists.has_receives = false;
}

void syi_exchange_list_sends(sy_request *r)
{
    const struct syi_a2a_shard *shard = &r->shard[0];
    if (r->lists.has_sends)
        return;
    r->lists.has_sends = true;
    if (syi_is_combine(&r->x))
        syi_a2a_combine_sends(hosts_of(r), shard->out.group, shard->out.position, r->x.local_reduce,
                              &r->lists.sends, r->lists.counters);
    else
        syi_a2a_dispatch_sends(hosts_of(r), shard->out.group, shard->out.position, &r->lists.sends,
                               r->lists.counters);
}

int64_t syi_exchange_pick_sends(sy_request *r, int64_t *starts)
{
    struct syi_request_lists *const l = &r->lists;
    int64_t n = 0;
    syi_exchange_list_sends(r);
    for (int p = 0; p < r->x.n_positions; p++) {
        if (starts != NULL)
            starts[p] = n;
        for (int64_t i = l->sends.first[p]; p != r->shard[0].out.position && i < l->sends.first[p + 1]; i++)
            l->send_pick[n++] = (struct syi_a2a_pick){0, l->sends.rows[i]};
    }
    return n;
}

void syi_exchange_list_receives(sy_request *r)
{
    const struct syi_a2a_shard *shard = &r->shard[0];
    if (r->lists.has_receives)
        return;
    r->lists.has_receives = true;
    if (syi_is_combine(&r->x))
        syi_a2a_combine_receives(shard->out.group, shard->out.pick, shard->n_tokens, &r->lists.receives);
    else
        syi_a2a_dispatch_receives(shard->out.group, shard->out.pick, shard->out.n_rows, &r->lists.receives,
                                  r->lists.seen);
}

int64_t syi_exchange_rows_before(const sy_request *r, const struct syi_a2a_lists *lists, int p)
{
    const int own = r->shard[0].out.position;
    return lists->first[p] - (p > own ? lists->first[own + 1] - lists->first[own] : 0);
}

/* ---- Rows others read ---- */

unsigned char *syi_exchange_slot(const sy_request *r, int device, const struct syi_header *h)
{
    const struct syi_segment *stage = &r->comm->segment[h->stage];
    return (unsigned char *)stage->base[device] + h->slot * stage->slot_bytes;
}

/* Dispatch: indices, then every plane's rows. The indices are copied last: a GPU signals the end of that. */
static void stage_tokens(sy_request *r, unsigned char *at)
{
    const struct syi_exchange *x = &r->x;
    const struct syi_a2a_shard *shard = &r->shard[0];
    const size_t table_bytes = x->reuses_routing ? 0 : syi_exchange_choice_bytes(x);
    const struct syi_rows table = {at, (int64_t)table_bytes};
    at += syi_align((size_t)shard->n_tokens * table_bytes);
    for (int p = 0; p < x->n_planes && !r->way.windowed; p++) {
        const struct syi_rows to = {at, (int64_t)x->row_bytes[p]};
        r->memory->pack(r->ctx, to, shard->from[p], NULL, shard->n_tokens, x->row_bytes[p]);
        at += syi_align((size_t)shard->n_tokens * x->row_bytes[p]);
    }
    if (!x->reuses_routing)
        r->memory->pack(r->ctx, table, shard->indices, NULL, shard->n_tokens, table_bytes);
}

/* Combine: the first row of each position, then the rows, in the order of a message. */
static void stage_results(sy_request *r, unsigned char *at)
{
    const struct syi_exchange *x = &r->x;
    const struct syi_a2a_shard *shard = &r->shard[0];
    unsigned char *rows = at + starts_bytes(x);
    int64_t start = 0;
    syi_exchange_list_sends(r);
    for (int p = 0; p < x->n_positions; p++) {
        const int64_t first = r->lists.sends.first[p],
                      n = p == shard->out.position ? 0 : r->lists.sends.first[p + 1] - first;
        memcpy(at + 8 * (size_t)p, &start, sizeof start);
        for (int plane = 0; plane < x->n_planes; plane++)
            r->memory->pack(r->ctx, staged_plane(x, rows + (size_t)start * staged_row(x), plane),
                            shard->from[plane], r->lists.sends.rows + first, n, x->row_bytes[plane]);
        start += n;
    }
}

/* The same on a GPU, where it is queued: the first rows are sent. */
static sy_status stage_on_gpu(sy_request *r, unsigned char *at)
{
    const struct syi_exchange *x = &r->x;
    const struct syi_a2a_shard *shard = &r->shard[0];
    const bool whole = (r->agreed.mine.flags & SYI_WHOLE) != 0;
    struct syi_a2a_job job = {.pick = r->lists.send_pick, .n_planes = x->n_planes};
    at += starts_bytes(x);
    for (int p = 0; p < x->n_planes; p++) {
        const struct syi_rows to = staged_plane(x, at, p);
        job.plane[p] = (struct syi_a2a_plane){&shard->from[p], to, x->row_bytes[p]};
        if (whole)
            r->memory->pack(r->ctx, to, shard->from[p], NULL, r->agreed.mine.capacity, x->row_bytes[p]);
    }
    if (whole)
        return SY_OK;
    job.n_rows = syi_exchange_pick_sends(r, r->lists.starts);
    if (job.n_rows > 0)
        r->memory->copy(r->ctx, &job, 1);
    return r->memory->flush(r->ctx);
}

sy_status syi_exchange_stage(sy_request *r)
{
    r->agreed.mine.stage = (uint8_t)syi_sharing_of(r)->stage;
    if ((r->agreed.mine.flags & SYI_TABLE_IN_PLACE) == 0)
        r->agreed.mine.slot = (uint8_t)r->slot;
    r->agreed.mine.requested = 0;
    if (!r->way.windowed) {
        r->agreed.mine.window = r->agreed.mine.stage;
        r->agreed.mine.offset = 0;
    }
    if (r->memory->on_gpu) /* sent by all where one has rows staged */
        memset(r->lists.starts, 0, (size_t)r->x.n_positions * sizeof *r->lists.starts);
    if (r->way.stage_bytes == 0)
        return SY_OK;
    unsigned char *at = syi_exchange_slot(r, r->comm->device, &r->agreed.mine);
    if (!syi_is_combine(&r->x))
        stage_tokens(r, at);
    else if (r->memory->on_gpu)
        return stage_on_gpu(r, at);
    else
        stage_results(r, at);
    return SY_OK;
}

/* A segment that a header names: a stage, or memory of sy_comm_alloc. */
static const struct syi_segment *segment_named(const sy_request *r, int index, bool stage)
{
    const struct syi_segment *s = index < SYI_MAX_SEGMENTS ? &r->comm->segment[index] : NULL;
    return s != NULL && s->used && s->shared && syi_kind_of(s->memory) == syi_kind_of(r->memory) &&
                   (s->slot_bytes > 0) == stage
               ? s
               : NULL;
}

/* Whether memory of sy_comm_alloc has so many bytes of a device from `offset` on. */
static bool reaches(const sy_request *r, int device, int segment, uint64_t offset, size_t bytes)
{
    const struct syi_segment *window = segment_named(r, segment, false);
    return window != NULL && offset <= window->bytes[device] &&
           bytes <= (size_t)(window->bytes[device] - offset);
}

/* Whether the memory that a header names exists, and is long enough for what this process will read. */
static bool readable(const sy_request *r, int device, const struct syi_header *h)
{
    const struct syi_exchange *x = &r->x;
    const bool combine = syi_is_combine(x), windowed = syi_header_windowed(h),
               in_place = (h->flags & SYI_TABLE_IN_PLACE) != 0;
    const int64_t whole = (h->flags & SYI_WHOLE) != 0 ? (int64_t)h->capacity : 0;
    const size_t staged = in_place ? 0 : stage_bytes(r, combine ? whole : (int64_t)h->tokens, windowed);
    if (in_place &&
        (combine || x->reuses_routing ||
         !reaches(r, device, h->slot, h->routing, (size_t)h->tokens * syi_exchange_choice_bytes(x))))
        return false;
    const struct syi_segment *stage = segment_named(r, h->stage, true);
    if (staged > 0 &&
        (stage == NULL || h->slot >= r->comm->options.max_inflight || staged > stage->slot_bytes))
        return false;
    if (!windowed)
        return staged > 0;
    if (x->n_planes > 1)
        return false;
    return reaches(r, device, h->window, h->offset,
                   syi_size_mul(combine ? h->capacity : h->tokens, x->row_bytes[0]));
}

int syi_exchange_damaged(const sy_request *r)
{
    for (int d = 0; d < r->comm->n_devices; d++) {
        const struct syi_header *h = &r->agreed.header[d];
        if (h->params != r->agreed.mine.params || (int64_t)h->tokens > r->x.max_tokens ||
            ((h->flags & SYI_WHOLE) != 0 && !r->way.by_gpu) || /* processes with one routing decide alike */
            (r->way.direct && syi_sharing_of(r)->on && h->requested == 0 && !readable(r, d, h)))
            return d;
    }
    return -1;
}

/* ---- Moving them ---- */

struct syi_rows *syi_exchange_sources_of(const sy_request *r, const struct syi_a2a_shard *shard, int plane)
{
    return shard->out.source + (size_t)plane * ((size_t)r->x.n_positions + 1);
}

/* Rows of another device of this process, or of this one. */
static void source_in_process(sy_request *r, struct syi_a2a_shard *shard, int position)
{
    const int s =
        syi_device_at(r->comm->mesh, r->x.axis, shard->out.group->index, position) - r->comm->device;
    for (int p = 0; p < r->x.n_planes; p++)
        syi_exchange_sources_of(r, shard, p)[position] = r->shard[s].from[p];
}

/* Rows that a header says to be in place. */
static struct syi_rows windowed_rows(const sy_request *r, int device)
{
    const struct syi_header *h = &r->agreed.header[device];
    unsigned char *window = r->comm->segment[h->window].base[device];
    return (struct syi_rows){window + h->offset, (int64_t)r->x.row_bytes[0]};
}

void syi_exchange_tokens_of(const sy_request *r, int device, struct syi_rows *rows, unsigned char **table)
{
    const struct syi_exchange *x = &r->x;
    const struct syi_header *h = &r->agreed.header[device];
    const size_t tokens = h->tokens;
    const bool windowed = syi_header_windowed(h), in_place = (h->flags & SYI_TABLE_IN_PLACE) != 0,
               staged = !windowed || !(x->reuses_routing || in_place);
    unsigned char *at = staged ? syi_exchange_slot(r, device, h) : NULL;
    *table = x->reuses_routing ? NULL
             : in_place        ? (unsigned char *)r->comm->segment[h->slot].base[device] + h->routing
                               : at;
    if (windowed) {
        rows[0] = windowed_rows(r, device);
        return;
    }
    const bool combine = syi_is_combine(x);
    if (combine)
        at += starts_bytes(x);
    else if (!x->reuses_routing)
        at += syi_align(tokens * syi_exchange_choice_bytes(x));
    for (int p = 0; p < x->n_planes; p++) {
        rows[p] = combine ? staged_plane(x, at, p) : (struct syi_rows){at, (int64_t)x->row_bytes[p]};
        at += combine ? 0 : syi_align(tokens * x->row_bytes[p]);
    }
}

/* Dispatch: rows in memory of another process. */
static void source_tokens(sy_request *r, struct syi_a2a_shard *shard, int position, int device)
{
    struct syi_rows rows[SY_A2A_MAX_PLANES];
    unsigned char *table;
    syi_exchange_tokens_of(r, device, rows, &table);
    for (int p = 0; p < r->x.n_planes; p++)
        syi_exchange_sources_of(r, shard, p)[position] = rows[p];
}

/* Combine: rows of another process in place, or those it copied for this one. */
static bool source_results(sy_request *r, struct syi_a2a_shard *shard, int position, int device)
{
    const struct syi_exchange *x = &r->x;
    const struct syi_header *h = &r->agreed.header[device];
    if (syi_header_windowed(h)) {
        syi_exchange_sources_of(r, shard, 0)[position] = windowed_rows(r, device);
        return true;
    }
    unsigned char *at = syi_exchange_slot(r, device, h);
    const size_t starts = starts_bytes(x), capacity = r->comm->segment[h->stage].slot_bytes - starts;
    for (int p = 0; p < x->n_planes; p++)
        syi_exchange_sources_of(r, shard, p)[position] = staged_plane(x, at + starts, p);
    int64_t start;
    syi_exchange_list_receives(r); /* before picks name rows of the stage: it reads positions only */
    const unsigned char *place =
        r->memory->on_gpu ? r->lists.raw + (size_t)position * (size_t)x->n_positions * sizeof start : at;
    memcpy(&start, place + 8 * (size_t)shard->out.position, sizeof start);
    const int64_t first = r->lists.receives.first[position],
                  n = r->lists.receives.first[position + 1] - first;
    if (start < 0 || start > INT32_MAX - n || syi_size_mul((size_t)(start + n), staged_row(x)) > capacity)
        return false;
    for (int64_t i = 0; i < n; i++)
        shard->out.pick[r->lists.receives.rows[first + i]].row = (int32_t)(start + i);
    return true;
}

static struct syi_a2a_job job_of(const sy_request *r, const struct syi_a2a_shard *shard)
{
    const struct syi_exchange *x = &r->x;
    struct syi_a2a_job job = {.n_rows = shard->out.n_rows,
                              .pick = shard->out.pick,
                              .zero = x->zero || (!syi_is_combine(x) && x->layout == SY_LAYOUT_EXPERT),
                              .n_planes = x->n_planes};
    for (int p = 0; p < x->n_planes; p++)
        job.plane[p] =
            (struct syi_a2a_plane){syi_exchange_sources_of(r, shard, p), shard->to[p], x->row_bytes[p]};
    return job;
}

/* Group by group. The jobs of a group are collected: those of a column are not neighbours. */
static void fan_out(sy_request *r)
{
    const sy_comm *comm = r->comm;
    for (int g = 0; g < r->by->n_groups; g++) {
        const struct syi_a2a_group *group = &r->by->group[g];
        int n = 0;
        for (int s = 0; s < comm->n_shards; s++)
            if (r->shard[s].out.group == group)
                r->lists.jobs[n++] = job_of(r, &r->shard[s]);
        const struct syi_a2a_fan fan = {group, r->lists.jobs, n, r->lists.fan_first, r->lists.fan_place};
        r->memory->fan_out(r->ctx, &fan);
    }
}

void syi_exchange_move_all(sy_request *r)
{
    const struct syi_exchange *x = &r->x;
    const int n = r->comm->n_shards;
    if (!x->sum) {
        for (int s = 0; s < n; s++)
            r->lists.jobs[s] = job_of(r, &r->shard[s]);
        r->memory->copy(r->ctx, r->lists.jobs, n);
        return;
    }
    for (int s = 0; s < n; s++) {
        const struct syi_a2a_shard *shard = &r->shard[s];
        r->lists.sums[s] = (struct syi_a2a_sum){
            .n_home = shard->n_tokens,
            .n_slots = x->n_slots,
            .hidden = x->hidden,
            .pick = shard->out.pick,
            .type = x->type,
            .source = syi_exchange_sources_of(r, shard, 0),
            .codes = x->codes,
            .scales = syi_exchange_sources_of(r, shard, x->n_planes - 1),
            .weights = shard->weights,
            .weight_type = shard->weight_type,
            .to = shard->to[0],
        };
    }
    const int threads = r->ctx->threads;
    r->ctx->threads =
        threads < r->lists.threads ? threads : r->lists.threads; /* the scratch has space for so many */
    r->memory->add(r->ctx, r->lists.sums, n, r->lists.add_scratch);
    r->ctx->threads = threads;
}

int syi_exchange_find_sources(sy_request *r)
{
    const sy_comm *comm = r->comm;
    for (int s = 0; s < comm->n_shards; s++) {
        struct syi_a2a_shard *shard = &r->shard[s];
        for (int p = 0; p < r->x.n_positions; p++) {
            const int device = syi_device_at(comm->mesh, r->x.axis, shard->out.group->index, p);
            if (comm->local || device == comm->device)
                source_in_process(r, shard, p);
            else if (!syi_is_combine(&r->x))
                source_tokens(r, shard, p, device);
            else if (!source_results(r, shard, p, device))
                return device;
        }
    }
    return -1;
}

void syi_exchange_direct(sy_request *r)
{
    if (fans_out(r))
        fan_out(r);
    else
        syi_exchange_move_all(r);
}
