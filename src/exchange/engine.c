/*
 * The engine: advances requests through their steps (exchange.h).
 */
#include "cpu/pool.h"
#include "kernels/kernels.h"
#include "exchange/exchange.h"

#include <stdio.h>

/* ---- Completion ---- */

/* How the rows of a request move, for the trace. */
static const char *way_of(const sy_request *r)
{
    static const char *const sent[] = {
        [SY_TRANSPORT_CPU] = "pinned", [SY_TRANSPORT_DEVICE] = "device", [SY_TRANSPORT_STREAM] = "stream"};
    const bool on_gpu = r->memory != NULL && r->memory->on_gpu;
    if (r->comm->local)
        return "local";
    if (r->way.direct)
        return on_gpu ? "mapped" : "shared";
    return on_gpu ? sent[r->comm->transport.device_rows] : "messages";
}

/* Other calls may use the context before the wait: its sentence is kept. */
static void keep_error(sy_request *r)
{
    r->result.fault = r->ctx->fault;
    memcpy(r->result.error, r->ctx->error, sizeof r->result.error);
}

void syi_exchange_finish(sy_request *r, sy_status status)
{
    if (status != SY_OK)
        keep_error(r);
    r->result.status = status;
    r->now.step = SYI_STEP_DONE;
    r->now.reached_routed = true;
    if (r->ctx->trace == NULL || !syi_call_moves_rows(r))
        return;
    const sy_trace report = {
        .op = syi_call_name(r->op),
        .isa = r->memory != NULL && r->memory->isa != NULL ? r->memory->isa : r->ctx->kernels->name,
        .status = status,
        .threads = syi_usable_threads(r->ctx),
        .bytes = status == SY_OK ? r->result.bytes : 0,
        .nanoseconds = syi_now() - r->start_ns,
        .rows = status == SY_OK ? way_of(r) : NULL,
    };
    r->ctx->trace(r->ctx->trace_user, &report);
}

sy_status syi_fail_transport(sy_ctx *ctx, const sy_comm *comm, sy_status status)
{
    if (status == SY_ERR_TIMEOUT)
        return syi_fail(ctx, status, "comm", "waited %lld ms for another process, which did not answer",
                        (long long)comm->options.timeout_ms);
    return syi_fail(ctx, status, "comm", "failed: %.300s", comm->transport.error(comm->transport.self));
}

/* The transport failed, or a process did not answer: no request of this comm is certain to end. */
void syi_exchange_break(sy_request *r, sy_status status)
{
    syi_comm_break(r->comm);
    syi_clear_fault(r->ctx, syi_call_name(r->op));
    syi_exchange_finish(r, syi_fail_transport(r->ctx, r->comm, status));
}

void syi_exchange_fail_gpu(sy_request *r, sy_status status)
{
    syi_clear_fault(r->ctx, syi_call_name(r->op));
    syi_exchange_finish(r, syi_fail_backend(r->ctx, status, "device"));
}

/* The same between processes, unless all is well: the others wait for rows that will not come. */
static sy_status end_if_gpu_failed(sy_request *r, sy_status status)
{
    if (status == SY_OK)
        return SY_OK;
    syi_comm_break(r->comm);
    syi_exchange_fail_gpu(r, status);
    return SY_OK;
}

/* A process sent invalid data: it runs another build of the library, or its memory is damaged. */
static sy_status reject_damaged(sy_request *r, int device)
{
    const struct syi_header *h = &r->agreed.header[device];
    syi_clear_fault(r->ctx, syi_call_name(r->op));
    syi_fail(r->ctx, SY_ERR_COMM, "comm",
             "received invalid data from device %d: %u tokens, stage %d, slot %d, window %d, offset %llu",
             device, (unsigned)h->tokens, h->stage, h->slot, h->window, (unsigned long long)h->offset);
    syi_exchange_finish(r, SY_ERR_COMM);
    return SY_OK;
}

/* ---- Steps ---- */

static bool older(const sy_request *a, const sy_request *b)
{
    return a != b && a->open && a->now.step != SYI_STEP_DONE && a->sequence < b->sequence;
}

/* Whether all older requests have come so far. */
static bool all_older(const sy_request *r, bool (*have)(const sy_request *older))
{
    const sy_comm *comm = r->comm;
    for (int i = 0; i < comm->n_requests; i++)
        if (older(&comm->requests[i], r) && !have(&comm->requests[i]))
            return false;
    return true;
}

static bool reached_choices(const sy_request *r)
{
    return r->now.step >= SYI_STEP_CHOICES;
}

static bool is_done(const sy_request *r)
{
    return r->now.step == SYI_STEP_DONE;
}

static bool began_all_operations(const sy_request *r)
{
    return r->now.posted && (r->now.step == SYI_STEP_ROWS || r->now.step == SYI_STEP_REJECTED);
}

static bool left_control_channel(const sy_request *r)
{
    return r->now.step >= SYI_STEP_ROWS && (r->now.step != SYI_STEP_REJECTED || r->now.posted);
}

static bool have_sent_rows(const sy_request *r)
{
    return r->now.step >= SYI_STEP_ROWS && (r->now.step != SYI_STEP_ROWS || r->now.posted);
}

/* Where all operations of a transport have one order: older requests have begun theirs, so those of a request follow each other. */
static bool may_begin(const sy_request *r)
{
    return !r->comm->transport.one_order || all_older(r, began_all_operations);
}

static void enter(sy_request *r, enum syi_step step)
{
    r->now.step = step;
    r->now.posted = false;
}

static sy_status post(sy_request *r, int channel, sy_axis axis, const void *send, size_t bytes, void *recv,
                      const size_t *counts)
{
    const sy_transport *t = &r->comm->transport;
    const sy_status st = t->gather(t->self, channel, axis, send, bytes, recv, counts, &r->now.ticket[0]);
    r->now.posted = true;
    r->now.waiting[0] = st == SY_OK;
    return st;
}

static sy_status post_header(sy_request *r, int channel)
{
    r->agreed.sent = r->agreed.mine;
    syi_seal_header(&r->agreed.sent);
    return post(r, channel, SY_AXIS_ALL, &r->agreed.sent, sizeof r->agreed.sent, r->agreed.header, NULL);
}

/* They have arrived; sealing is its own inverse. */
static void open_headers(sy_request *r)
{
    for (int d = 0; d < r->comm->n_devices; d++)
        syi_seal_header(&r->agreed.header[d]);
}

/* Whether every operation of the transport that the step waits for has ended. */
static sy_status arrived(sy_request *r, bool *all)
{
    const sy_transport *t = &r->comm->transport;
    *all = true;
    for (int p = 0; p < SY_A2A_MAX_PLANES; p++) {
        if (!r->now.waiting[p])
            continue;
        bool done = false;
        const sy_status st = t->test(t->self, &r->now.ticket[p], &done);
        if (st != SY_OK)
            return st;
        r->now.waiting[p] = !done;
        *all = *all && done;
    }
    return SY_OK;
}

static void reject(sy_request *r, const struct syi_notice *of_device, const struct syi_notice *of_other)
{
    const int other = r->agreed.verdict.other < 0 ? r->agreed.verdict.device : r->agreed.verdict.other;
    syi_clear_fault(r->ctx, syi_call_name(r->op));
    syi_fail_verdict(r->ctx, syi_call_name(r->agreed.header[other].op), &r->agreed.verdict, of_device,
                     of_other);
    syi_exchange_finish(r, r->agreed.verdict.status);
}

/* Reads the choices of all tokens, unless a routing has them; makes the lists, and checks that rows fit. */
static sy_status read_and_list(sy_request *r)
{
    if (r->now.listed)
        return r->now.list_status;
    r->now.list_status = r->x.reuses_routing ? syi_routing_fetch(r->ctx, r->x.routing) : syi_routing_read(r);
    r->now.listed = true;
    if (r->now.list_status == SY_OK && !r->x.reuses_routing) {
        syi_clear_fault(r->ctx, syi_call_name(r->op));
        r->now.list_status = syi_exchange_check_experts(r);
    }
    if (r->now.list_status == SY_OK) {
        syi_exchange_lists(r);
        syi_clear_fault(r->ctx, syi_call_name(r->op));
        r->now.list_status = syi_exchange_check_capacity(r);
    }
    if (r->now.list_status == SY_OK)
        r->now.list_status = syi_exchange_check_input(r);
    if (r->now.list_status != SY_OK)
        syi_exchange_note_error(r->ctx, &r->agreed.notice);
    return r->now.list_status;
}

/* Bytes that move, for the trace: each row is read and written, and the table. */
void syi_exchange_count_bytes(sy_request *r)
{
    const struct syi_exchange *x = &r->x;
    uint64_t rows = 0, row_bytes = 0;
    for (int s = 0; s < r->comm->n_shards; s++)
        rows += (uint64_t)r->shard[s].out.n_rows;
    for (int p = 0; p < x->n_planes; p++)
        row_bytes += x->row_bytes[p];
    r->result.bytes = 2 * rows * row_bytes;
}

/* ---- In one process ---- */

static void run_local(sy_request *r)
{
    const sy_comm *comm = r->comm;
    const struct syi_exchange *x = &r->x;
    r->agreed.verdict = syi_validate_headers(comm, r->agreed.header);
    struct syi_notice a, b;
    if (r->agreed.verdict.status != SY_OK) {
        syi_exchange_describe(r, x, &r->shard[r->agreed.verdict.device], &a);
        syi_exchange_describe(r, x, &r->shard[r->agreed.verdict.other < 0 ? 0 : r->agreed.verdict.other], &b);
        reject(r, &a, &b);
        return;
    }
    r->agreed.verdict = syi_exchange_validate_counts(r);
    if (r->agreed.verdict.status != SY_OK) {
        syi_exchange_note_counts(r, &a);
        reject(r, &a, &a);
        return;
    }
    if (r->way.runs_on_gpu) {
        syi_exchange_run_on_gpu(r);
        return;
    }
    if (!x->reuses_routing)
        syi_routing_order(r);
    sy_status st = read_and_list(r);
    if (st == SY_OK && syi_exchange_encodes(x))
        st = syi_exchange_encode(r);
    if (st != SY_OK) {
        syi_exchange_finish(r, st);
        return;
    }
    syi_exchange_find_sources(r);
    syi_exchange_write_extras(r);
    syi_exchange_direct(r);
    st = r->memory->end(r->ctx);
    if (st == SY_OK && r->memory->on_gpu && syi_exchange_encodes(x))
        st = r->memory->mark(r->ctx, &r->travel);
    if (st != SY_OK) {
        syi_exchange_fail_gpu(r, st);
        return;
    }
    syi_routing_give(r);
    syi_exchange_count_bytes(r);
    syi_exchange_finish(r, SY_OK);
}

/* ---- Between processes ---- */

/* A combine, or a dispatch with a known routing, can make its lists before other processes answer. */
static bool knows_choices(const sy_request *r)
{
    return r->x.reuses_routing || (syi_is_combine(&r->x) && !r->x.ragged);
}

/* Choices of the other processes come in a message. Of a combine on a GPU so do the places of staged rows. */
static bool gathers_choices(const sy_request *r)
{
    const bool on_gpu = r->memory->on_gpu;
    if (!syi_is_combine(&r->x))
        return !r->x.reuses_routing && (!r->way.direct || on_gpu);
    bool staged = false;
    for (int d = 0; d < r->comm->n_devices; d++)
        staged = staged || !syi_header_windowed(&r->agreed.header[d]);
    return r->way.direct && on_gpu && staged;
}

/* Queues the copy of rows for others, and waits until all of it and the input are written. */
static sy_status stage(sy_request *r)
{
    const sy_status st = syi_exchange_stage(r);
    return st == SY_OK ? r->memory->wait(r->ctx) : st;
}

/* All local work before the header is sent. */
static sy_status reserve_and_stage(sy_request *r)
{
    const bool tokens = !syi_is_combine(&r->x), on_gpu = r->memory->on_gpu;
    sy_status st = syi_exchange_reserve(r);
    if (st != SY_OK)
        return st;
    const bool listed = syi_exchange_lists_on_gpu(r);
    r->agreed.mine.flags |= listed ? SYI_LISTS_ON_GPU : 0;
    if (listed)
        r->memory->skip(r->ctx);
    if (listed && !tokens && !r->way.windowed)
        syi_exchange_take_whole(r);
    if (listed && tokens && r->way.windowed && !r->x.reuses_routing)
        syi_exchange_take_table(r);
    const bool fits = r->way.direct && r->way.stage_bytes <= syi_sharing_of(r)->slot_bytes,
               needs_no_lists =
                   tokens || (r->agreed.mine.flags & SYI_WHOLE) != 0; /* staged before the one wait */
    if (fits && needs_no_lists)
        st = syi_exchange_stage(r);
    if (on_gpu)
        st = syi_exchange_wait_gpu(r, st);
    if (st == SY_OK && listed && r->x.reuses_routing) {
        st = syi_exchange_check_counts(r);
    } else if (st == SY_OK && knows_choices(r)) {
        if (!r->x.reuses_routing)
            syi_routing_order(r);
        st = read_and_list(r);
    }
    if (st != SY_OK || !r->way.direct || (fits && needs_no_lists))
        return st;
    if (fits && (r->now.listed || r->way.windowed)) {
        st = stage(r);
        return st == SY_OK ? st : syi_fail_backend(r->ctx, st, "device");
    }
    r->agreed.mine.requested = syi_pages(r->way.stage_bytes);
    return SY_OK;
}

static bool max_requested(const sy_request *r, size_t *max)
{
    *max = 0;
    for (int d = 0; d < r->comm->n_devices; d++)
        *max = r->agreed.header[d].requested > *max ? r->agreed.header[d].requested : *max;
    return *max > 0;
}

/* The GPU lists no rows after all: choices that it was to validate are read here, and all agree once more. */
static void list_in_host(sy_request *r, sy_status st)
{
    if (st == SY_OK && (r->agreed.mine.flags & SYI_LISTS_ON_GPU) != 0)
        st = syi_exchange_read_choices(r);
    if (st != SY_OK && r->agreed.mine.status == SY_OK)
        syi_exchange_note_error(r->ctx, &r->agreed.notice);
    syi_exchange_leave_table(r);
    r->way.by_gpu = false;
    r->agreed.mine.flags &= (uint8_t)~SYI_LISTS_ON_GPU;
    r->agreed.mine.status = (uint8_t)st;
    enter(r, SYI_STEP_FALLBACK);
}

/* Memory cannot be shared any more: rows are sent in messages, which need other scratch. */
static void use_messages(sy_request *r)
{
    sy_status st = SY_OK;
    if (r->way.direct) {
        st = syi_exchange_reserve(r);
        if (st == SY_OK && r->memory->on_gpu && gathers_choices(r))
            st = syi_exchange_load_choices(r);
        if (st == SY_OK && r->now.listed)
            syi_exchange_lists(r);
    }
    list_in_host(r, st);
}

static enum syi_step grow_or_choices(const sy_request *r)
{
    size_t max;
    return r->way.direct && max_requested(r, &max) ? SYI_STEP_GROW : SYI_STEP_CHOICES;
}

static sy_status step_header(sy_request *r)
{
    sy_comm *comm = r->comm;
    if (!r->now.posted)
        return may_begin(r) ? post_header(r, SY_CHANNEL_HEADER) : SY_OK;
    if (!all_older(r, reached_choices))
        return SY_OK;
    open_headers(r);
    r->agreed.verdict = syi_validate_headers(comm, r->agreed.header);
    for (int d = 0; d < comm->n_devices; d++)
        if (r->agreed.header[d].sequence >= comm->sequence) /* a process that is late catches up */
            comm->sequence = r->agreed.header[d].sequence + 1;
    if (r->agreed.verdict.status != SY_OK) {
        enter(r, SYI_STEP_REJECTED);
        if (syi_exchange_list_on_gpu(r) > 0) /* faults of choices come before what processes disagree about */
            list_in_host(r, (sy_status)r->agreed.mine.status);
        return SY_OK;
    }
    comm->compared = true;
    if (!syi_call_moves_rows(r)) {
        syi_exchange_finish(r, SY_OK);
        return SY_OK;
    }
    r->way.by_gpu = r->way.direct && syi_exchange_list_on_gpu(r) == comm->n_devices;
    const int damaged = syi_exchange_damaged(r);
    if (damaged >= 0)
        return reject_damaged(r, damaged);
    r->agreed.verdict = syi_exchange_validate_counts(r);
    if (r->agreed.verdict.status != SY_OK) {
        syi_exchange_note_counts(r, &r->agreed.notice);
        reject(r, &r->agreed.notice, &r->agreed.notice);
        return SY_OK;
    }
    if (!r->x.reuses_routing && !r->now.listed)
        syi_routing_order(r);
    /* Of calls begun around the end of sharing, n_requests at most, some processes did not know it: all agree again. */
    const uint64_t lost_at = syi_sharing_of(r)->lost_at;
    if (lost_at > 0 && r->sequence <= lost_at + (uint64_t)comm->n_requests) {
        use_messages(r);
        return SY_OK;
    }
    if (!r->way.by_gpu && syi_exchange_list_on_gpu(r) > 0)
        list_in_host(r, SY_OK);
    else
        enter(r, grow_or_choices(r));
    return SY_OK;
}

/* Grows the stage. Older requests are done: the old stage is only read. */
static sy_status step_grow(sy_request *r)
{
    sy_comm *comm = r->comm;
    size_t max = 0;
    if (!r->now.posted) {
        if (!all_older(r, is_done))
            return SY_OK;
        max_requested(r, &max);
        if (max * SYI_PAGE > syi_sharing_of(r)->slot_bytes) {
            syi_stage_begin(comm, r->ctx, r->memory->on_gpu ? r->memory : NULL, max * SYI_PAGE);
            return post(r, SY_CHANNEL_CONTROL, SY_AXIS_ALL, &comm->share, sizeof comm->share, comm->shares,
                        NULL);
        }
        enter(r, SYI_STEP_PUBLISH);
        return SY_OK;
    }
    syi_stage_attach(comm, r->ctx);
    enter(r, SYI_STEP_MAPPED);
    return SY_OK;
}

static sy_status step_mapped(sy_request *r)
{
    sy_comm *comm = r->comm;
    if (!r->now.posted)
        return post(r, SY_CHANNEL_CONTROL, SY_AXIS_ALL, &comm->outcome, sizeof comm->outcome, comm->statuses,
                    NULL);
    if (syi_stage_end(comm)) {
        enter(r, SYI_STEP_PUBLISH);
        return SY_OK;
    }
    syi_sharing_of(r)->lost_at = r->sequence;
    use_messages(r);
    return SY_OK;
}

/* Makes the rows readable for others, and sends their place. */
static sy_status step_publish(sy_request *r)
{
    if (!r->now.posted) {
        if (syi_is_combine(&r->x) && !r->now.listed && !r->way.by_gpu)
            r->agreed.mine.status = (uint8_t)read_and_list(r);
        const sy_status st =
            r->agreed.mine.requested > 0 && r->agreed.mine.status == SY_OK ? stage(r) : SY_OK;
        return st == SY_OK ? post_header(r, SY_CHANNEL_CONTROL) : end_if_gpu_failed(r, st);
    }
    open_headers(r);
    const int damaged = syi_exchange_damaged(r);
    enter(r, SYI_STEP_CHOICES);
    return damaged >= 0 ? reject_damaged(r, damaged) : SY_OK;
}

/* All agree once more: after a fallback, or whether rows fit. A verdict of the first headers, which these may not repeat, stays. */
static sy_status agree_again(sy_request *r)
{
    if (!r->now.posted)
        return all_older(r, left_control_channel) ? post_header(r, SY_CHANNEL_CONTROL) : SY_OK;
    open_headers(r);
    const struct syi_verdict found = syi_validate_headers(r->comm, r->agreed.header);
    if (found.status != SY_OK || r->now.step == SYI_STEP_FITS)
        r->agreed.verdict = found;
    enter(r, r->agreed.verdict.status != SY_OK ? SYI_STEP_REJECTED
             : r->now.step == SYI_STEP_FITS    ? SYI_STEP_ROWS
                                               : grow_or_choices(r));
    return SY_OK;
}

/* Gathers the indices of all tokens of the group. */
static sy_status post_choices(sy_request *r)
{
    const struct syi_exchange *x = &r->x;
    const struct syi_a2a_group *group = &r->own.group[0];
    const size_t row_bytes = syi_exchange_choice_bytes(x);
    const struct syi_a2a_shard *shard = &r->shard[0];
    if (syi_is_combine(x))
        return post(r, SY_CHANNEL_TABLE, x->axis, r->lists.starts,
                    (size_t)x->n_positions * sizeof *r->lists.starts, r->lists.raw, NULL);
    const sy_status st = r->now.choices_packed ? SY_OK : syi_exchange_load_choices(r);
    if (st != SY_OK)
        return end_if_gpu_failed(r, st);
    for (int p = 0; p < x->n_positions; p++)
        r->agreed.counts[p] = (size_t)(group->order.first[p + 1] - group->order.first[p]) * row_bytes;
    return post(r, SY_CHANNEL_TABLE, x->axis, r->lists.mine_raw, (size_t)shard->n_tokens * row_bytes,
                r->lists.raw, x->ragged ? r->agreed.counts : NULL);
}

static sy_status step_choices(sy_request *r)
{
    if (!all_older(r, reached_choices) || !may_begin(r))
        return SY_OK;
    if (r->way.by_gpu) {
        enter(r, SYI_STEP_ROWS);
        return SY_OK;
    }
    if (gathers_choices(r) && !r->now.posted)
        return post_choices(r);
    const sy_status st = read_and_list(r);
    r->agreed.mine.status = (uint8_t)st;
    if (syi_exchange_may_overflow(r)) {
        enter(r, SYI_STEP_FITS);
        return SY_OK;
    }
    if (st != SY_OK) { /* local only: without checks no agreement follows */
        syi_exchange_finish(r, st);
        return SY_OK;
    }
    enter(r, SYI_STEP_ROWS);
    return SY_OK;
}

static void reach_routed(sy_request *r)
{
    if (!r->way.by_gpu)
        syi_exchange_write_extras(r);
    syi_routing_give(r);
    syi_exchange_count_bytes(r);
    r->now.reached_routed = true;
}

/* A GPU may have found that rows did not fit: all processes have then seen that. */
static void end_rows(sy_request *r)
{
    if (r->agreed.verdict.status != SY_OK)
        reject(r, &r->agreed.notice, &r->agreed.notice);
    else
        syi_exchange_finish(r, SY_OK);
}

/* A process that has given up, whose program may have written over tensors that were read in place; all its messages may have come. */
static int gave_up(const sy_request *r)
{
    for (int d = 0; d < r->comm->n_devices; d++) {
        const struct syi_header *h = &r->agreed.header[d];
        if ((syi_header_windowed(h) || (h->flags & SYI_TABLE_IN_PLACE) != 0) && syi_comm_gave_up(r->comm, d))
            return d;
    }
    return -1;
}

/* Rows have been read in place: signals that. Waits for the others where they may still read tensors of this call; and where GPUs list rows,
   since no message of the others has followed their headers. */
static sy_status signal_read(sy_request *r)
{
    const sy_transport *t = &r->comm->transport;
    const int lost = gave_up(r);
    if (lost >= 0) {
        syi_comm_break(r->comm);
        syi_clear_fault(r->ctx, syi_call_name(r->op));
        syi_fail(r->ctx, SY_ERR_COMM, "comm",
                 "is broken: device %d gave up and may have written over its rows, want a new one", lost);
        syi_exchange_finish(r, SY_ERR_COMM);
        return SY_OK;
    }
    const sy_status st = t->gather(t->self, SY_CHANNEL_FENCE, r->x.axis, NULL, 0, NULL, NULL, &r->fence);
    r->fencing = st == SY_OK;
    if (st != SY_OK)
        return st;
    if (r->way.windowed || r->way.by_gpu)
        enter(r, SYI_STEP_FENCE);
    else
        end_rows(r);
    return SY_OK;
}

/* Rows that the host lists: begins to move them. */
static sy_status move_listed(sy_request *r)
{
    const int damaged = r->way.direct ? syi_exchange_find_sources(r) : -1;
    if (damaged >= 0) {          /* nothing is written yet */
        syi_comm_break(r->comm); /* known only to this process */
        return reject_damaged(r, damaged);
    }
    reach_routed(r);
    if (r->way.direct)
        syi_exchange_direct(r);
    if (!r->memory->on_gpu)
        return SY_OK;
    r->now.packing = true;
    return r->way.direct ? syi_exchange_reading(r) : syi_exchange_pack(r);
}

static sy_status begin_rows(sy_request *r)
{
    sy_status st = SY_OK;
    if (!r->now.packing) {
        if (!all_older(r, have_sent_rows) || syi_routing_busy(r))
            return SY_OK;
        r->now.packing = r->way.by_gpu;
        st = r->way.by_gpu ? syi_exchange_queue_on_gpu(r) : move_listed(r);
    }
    bool ready = r->now.step == SYI_STEP_ROWS; /* else move_listed has rejected damaged memory */
    if (st == SY_OK && r->now.packing)
        st = syi_exchange_packed(r, &ready);
    if (st != SY_OK || !ready)
        return end_if_gpu_failed(r, st);
    if (r->way.by_gpu) {
        syi_exchange_read_counts(r);
        if (r->agreed.verdict.status == SY_OK)
            reach_routed(r);
    }
    if (r->way.direct)
        return signal_read(r);
    r->now.posted = true;
    return syi_exchange_post(r);
}

static sy_status step_rows(sy_request *r)
{
    if (!r->now.posted)
        return begin_rows(r);
    const sy_status st = syi_exchange_unpack(r);
    if (st == SY_OK)
        syi_exchange_finish(r, SY_OK);
    return end_if_gpu_failed(r, st);
}

static sy_status test_fence(sy_request *r)
{
    const sy_transport *t = &r->comm->transport;
    bool done = false;
    const sy_status st = r->fencing ? t->test(t->self, &r->fence, &done) : SY_OK;
    r->fencing = r->fencing && !done;
    return st;
}

static sy_status step_fence(sy_request *r)
{
    const sy_status st = test_fence(r);
    if (st == SY_OK && !r->fencing)
        end_rows(r);
    return st;
}

static sy_status step_rejected(sy_request *r)
{
    if (!r->now.posted) {
        if (!all_older(r, left_control_channel))
            return SY_OK;
        if (r->agreed.mine.status == SY_OK)
            syi_exchange_describe(r, &r->x, &r->shard[0], &r->agreed.notice);
        return post(r, SY_CHANNEL_CONTROL, SY_AXIS_ALL, &r->agreed.notice, sizeof r->agreed.notice,
                    r->agreed.notices, NULL);
    }
    reject(r, &r->agreed.notices[r->agreed.verdict.device],
           &r->agreed.notices[r->agreed.verdict.other < 0 ? 0 : r->agreed.verdict.other]);
    return SY_OK;
}

/* Each is called until it moves: first with `posted` false, when it may wait for older requests and then sends; then once all that it waits
   for has arrived. Those that send nothing enter the next step at once. An error is the transport's, and breaks the comm. */
static sy_status (*const steps[])(sy_request *r) = {
    [SYI_STEP_HEADER] = step_header,       [SYI_STEP_GROW] = step_grow,
    [SYI_STEP_MAPPED] = step_mapped,       [SYI_STEP_PUBLISH] = step_publish,
    [SYI_STEP_FALLBACK] = agree_again,     [SYI_STEP_CHOICES] = step_choices,
    [SYI_STEP_FITS] = agree_again,         [SYI_STEP_ROWS] = step_rows,
    [SYI_STEP_FENCE] = step_fence,         [SYI_STEP_REJECTED] = step_rejected,
    [SYI_STEP_QUEUED] = syi_exchange_poll,
};

bool syi_exchange_captured(const sy_request *r)
{
    return r->open && r->now.step != SYI_STEP_DONE && syi_call_moves_rows(r) &&
           r->agreed.mine.status == SY_OK && r->memory != NULL && r->memory->on_gpu &&
           (!r->comm->local || r->way.marked) && r->memory->mesh->captures(r->ctx);
}

/* Advances until data is missing or an older request must go first. */
static void advance(sy_request *r)
{
    bool moved = !syi_exchange_captured(r);
    while (moved && r->now.step != SYI_STEP_DONE) {
        const enum syi_step step = r->now.step;
        const bool posted = r->now.posted;
        bool all = true;
        sy_status st = arrived(r, &all);
        if (st == SY_OK && !all)
            return;
        if (st == SY_OK)
            st = steps[step](r);
        if (st != SY_OK)
            syi_exchange_break(r, st);
        moved = r->now.step != step || r->now.posted != posted;
    }
}

/* All open requests, the oldest first; and fences of those that are closed. */
void syi_exchange_progress(sy_comm *comm)
{
    uint64_t after = 0;
    for (int i = 0; i < comm->n_requests && !comm->broken; i++)
        if (comm->requests[i].fencing && comm->requests[i].now.step == SYI_STEP_DONE &&
            test_fence(&comm->requests[i]) != SY_OK)
            syi_comm_break(comm);
    for (int i = 0; i < comm->n_requests; i++) {
        sy_request *next = NULL;
        for (int j = 0; j < comm->n_requests; j++) {
            sy_request *r = &comm->requests[j];
            if (r->open && r->sequence > after && (next == NULL || r->sequence < next->sequence))
                next = r;
        }
        if (next == NULL)
            return;
        after = next->sequence;
        if (!comm->broken)
            advance(next);
    }
}

/* Whether processes exchange headers first. All of them must decide alike, so this uses nothing that may change at
   another time in another process, such as comm->shared; comm->compared is known before a call begins. */
static bool needs_header(const sy_request *r)
{
    const sy_comm *comm = r->comm;
    const bool an_operator = syi_call_moves_rows(r) || r->op == SYI_COMM_REJECT;
    return comm->options.check != SY_CHECK_NONE || comm->may_share || r->x.ragged || !an_operator ||
           !comm->compared;
}

/* The call is validated; a process that rejects it still takes part. */
void syi_exchange_begin(sy_request *r, sy_status validated)
{
    sy_status st = validated;
    sy_comm *comm = r->comm;
    if (st == SY_OK && comm->local)
        st = r->way.runs_on_gpu ? syi_exchange_reserve_on_gpu(r) : syi_exchange_reserve(r);
    else if (st == SY_OK && syi_call_moves_rows(r))
        st = reserve_and_stage(r);
    if (st != SY_OK)
        r->x.routing = NULL; /* it is not filled */
    if (comm->local) {
        if (st == SY_OK)
            run_local(r);
        else
            syi_exchange_finish(r, st);
        return;
    }
    r->agreed.mine.version = SYI_HEADER_VERSION;
    r->agreed.mine.op = r->op;
    r->agreed.mine.sequence = r->sequence;
    r->agreed.mine.status = (uint8_t)st;
    if (st != SY_OK)
        syi_exchange_note_error(r->ctx, &r->agreed.notice);
    keep_error(r);
    if (!needs_header(r)) {
        if (st != SY_OK) {
            syi_exchange_finish(r, st);
            return;
        }
        if (!r->x.reuses_routing && !r->now.listed)
            syi_routing_order(r);
    }
    enter(r, needs_header(r) ? SYI_STEP_HEADER : SYI_STEP_CHOICES);
    syi_exchange_progress(comm);
}
