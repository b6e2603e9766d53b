/*
 * The engine: advances requests through their steps. Every process does the same steps in the same order, because each
 * decision depends only on data that all of them have. Messages of one kind begin in order of the requests; a request
 * waits for older ones before it sends.
 */
#include "kernels/kernels.h"
#include "exchange/exchange.h"

#include <stdio.h>

static const char *name_of(uint8_t op)
{
    switch (op) {
    case SYI_ALL_TO_ALL_DISPATCH:
        return "all_to_all_dispatch";
    case SYI_ALL_TO_ALL_COMBINE:
        return "all_to_all_combine";
    case SYI_COMM_ALLOC:
        return "sy_comm_alloc";
    case SYI_COMM_FREE:
        return "sy_comm_free";
    case SYI_COMM_RESERVE:
        return "sy_comm_reserve";
    default:
        return "sy_comm_reject";
    }
}

/* Calls that end when all processes have agreed: no rows move. */
static bool moves_rows(const sy_request *r)
{
    return r->op == SYI_ALL_TO_ALL_DISPATCH || r->op == SYI_ALL_TO_ALL_COMBINE;
}

/* ---- Completion --------------------------------------------------------------------------------------- */

/* Saves the context's sentence for the wait: other calls may use the context before. */
static void keep_error(sy_request *r)
{
    r->fault = r->ctx->fault;
    memcpy(r->error, r->ctx->error, sizeof r->error);
}

static void finish(sy_request *r, sy_status status)
{
    r->status = status;
    r->step = SYI_STEP_DONE;
    r->routed = true;
    if (r->ctx->trace == NULL || !moves_rows(r))
        return;
    const sy_trace report = {.op = name_of(r->op),
                             .isa = r->memory != NULL && r->memory->isa != NULL ? r->memory->isa
                                                                                : r->ctx->kernels->name,
                             .status = status,
                             .threads = sy_ctx_threads(r->ctx),
                             .bytes = status == SY_OK ? r->bytes : 0,
                             .nanoseconds = syi_now() - r->start_ns};
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
    r->comm->broken = true;
    syi_clear_fault(r->ctx, name_of(r->op));
    syi_fail_transport(r->ctx, r->comm, status);
    keep_error(r);
    finish(r, status);
}

/* A process sent invalid data: it runs another build of the library, or its memory is damaged. */
static sy_status reject_damaged(sy_request *r, int device)
{
    const struct syi_header *h = &r->header[device];
    syi_clear_fault(r->ctx, name_of(r->op));
    syi_fail(r->ctx, SY_ERR_COMM, "comm",
             "received invalid data from device %d: %u tokens, stage %d, slot %d, window %d, offset %llu",
             device, (unsigned)h->tokens, h->stage, h->slot, h->window, (unsigned long long)h->offset);
    keep_error(r);
    finish(r, SY_ERR_COMM);
    return SY_OK;
}

/* ---- Steps -------------------------------------------------------------------------------------------- */

static bool older(const sy_request *a, const sy_request *b)
{
    return a != b && a->open && a->step != SYI_STEP_DONE && a->sequence < b->sequence;
}

/* Whether every older request has reached a step. */
static bool may_enter(const sy_request *r, enum syi_step step)
{
    const sy_comm *comm = r->comm;
    for (int i = 0; i < comm->n_requests; i++)
        if (older(&comm->requests[i], r) && comm->requests[i].step < step)
            return false;
    return true;
}

/* The control channel: older requests send nothing more on it. */
static bool may_control(const sy_request *r)
{
    const sy_comm *comm = r->comm;
    for (int i = 0; i < comm->n_requests; i++) {
        const sy_request *o = &comm->requests[i];
        if (older(o, r) && (o->step < SYI_STEP_ROWS || (o->step == SYI_STEP_REJECTED && !o->posted)))
            return false;
    }
    return true;
}

/* Rows: older requests have sent theirs. */
static bool may_move(const sy_request *r)
{
    const sy_comm *comm = r->comm;
    for (int i = 0; i < comm->n_requests; i++) {
        const sy_request *o = &comm->requests[i];
        if (older(o, r) && (o->step < SYI_STEP_ROWS || (o->step == SYI_STEP_ROWS && !o->posted)))
            return false;
    }
    return true;
}

static void enter(sy_request *r, enum syi_step step)
{
    r->step = step;
    r->posted = false;
}

static sy_status post(sy_request *r, int channel, sy_axis axis, const void *send, size_t bytes, void *recv,
                      const size_t *counts)
{
    const sy_transport *t = &r->comm->transport;
    const sy_status st = t->gather(t->self, channel, axis, send, bytes, recv, counts, &r->ticket[0]);
    r->posted = true;
    r->waiting[0] = st == SY_OK;
    return st;
}

static sy_status post_header(sy_request *r, int channel)
{
    r->sent = r->mine;
    syi_seal_header(&r->sent);
    return post(r, channel, SY_AXIS_ALL, &r->sent, sizeof r->sent, r->header, NULL);
}

/* They have arrived. */
static void open_headers(sy_request *r)
{
    for (int d = 0; d < r->comm->n_devices; d++)
        syi_seal_header(&r->header[d]);
}

/* Whether everything the step waits for has arrived. */
static sy_status arrived(sy_request *r, bool *all)
{
    const sy_transport *t = &r->comm->transport;
    *all = true;
    for (int p = 0; p < SY_A2A_MAX_PLANES; p++) {
        if (!r->waiting[p])
            continue;
        bool done = false;
        const sy_status st = t->test(t->self, &r->ticket[p], &done);
        if (st != SY_OK)
            return st;
        r->waiting[p] = !done;
        *all = *all && done;
    }
    return SY_OK;
}

/* The arguments of this process's call, sent to the others if they disagree. */
static void describe(const sy_request *r, const struct syi_exchange *x, const struct syi_a2a_shard *shard,
                     struct syi_notice *notice)
{
    static const char *const axes[] = {"all", "0", "1"};
    *notice = (struct syi_notice){.batch = -1, .position = -1};
    if (!moves_rows(r)) {
        snprintf(notice->text, sizeof notice->text, "device %d calls %s number %llu", r->comm->device,
                 name_of(r->op), (unsigned long long)r->sequence);
        return;
    }
    snprintf(notice->text, sizeof notice->text,
             "device %d calls %s number %llu with %lld tokens, %lld slots, %lld experts, rows of %zu bytes, "
             "axis %s",
             shard->device, name_of(r->op), (unsigned long long)r->sequence, (long long)shard->n_tokens,
             (long long)shard->n_slots, (long long)shard->n_experts, shard->row_bytes, axes[x->axis]);
}

static void note_error(const sy_ctx *ctx, struct syi_notice *notice)
{
    *notice = (struct syi_notice){.code = (int32_t)ctx->fault.code,
                                  .batch = ctx->fault.batch,
                                  .position = ctx->fault.position,
                                  .value = ctx->fault.value,
                                  .limit = ctx->fault.limit};
    snprintf(notice->text, sizeof notice->text, "%.*s", SYI_TEXT_BYTES - 1, ctx->error);
}

static void reject(sy_request *r, const struct syi_notice *of_device, const struct syi_notice *of_other)
{
    const int other = r->verdict.other < 0 ? r->verdict.device : r->verdict.other;
    syi_clear_fault(r->ctx, name_of(r->op));
    syi_tell_verdict(r->ctx, name_of(r->header[other].op), &r->verdict, of_device, of_other);
    keep_error(r);
    finish(r, r->verdict.status);
}

/* Checks counts that may differ and are known only from the headers of all processes. */
static struct syi_verdict validate_counts(const sy_request *r)
{
    const struct syi_exchange *x = &r->x;
    const sy_comm *comm = r->comm;
    for (int d = 0; x->ragged && !x->routed && d < comm->n_devices; d++) {
        int64_t tokens = 0;
        for (int p = 0; p < x->n_positions; p++)
            tokens +=
                r->header[syi_device_at(comm->mesh, x->axis, syi_group_of(comm->mesh, x->axis, d), p)].tokens;
        const struct syi_header *h = &r->header[d];
        const bool combine = x->id == SYI_ALL_TO_ALL_COMBINE;
        if (combine && h->table != tokens)
            return (struct syi_verdict){SY_ERR_MISMATCH, d, -1, SYI_TOKENS};
        if (!combine && (h->table < tokens || (x->layout == SY_LAYOUT_PADDED && h->room < tokens)))
            return (struct syi_verdict){SY_ERR_CAPACITY, d, -1, SYI_SAME};
    }
    return (struct syi_verdict){SY_OK, 0, -1, SYI_SAME};
}

/* The sentence about those counts, the same in every process. */
static void note_counts(sy_request *r, struct syi_notice *notice)
{
    const struct syi_exchange *x = &r->x;
    const int d = r->verdict.device;
    const struct syi_header *h = &r->header[d];
    int64_t tokens = 0;
    for (int p = 0; p < x->n_positions; p++)
        tokens += r->header[syi_device_at(r->comm->mesh, x->axis, syi_group_of(r->comm->mesh, x->axis, d), p)]
                      .tokens;
    const bool table = h->table < tokens || x->id == SYI_ALL_TO_ALL_COMBINE;
    const int64_t found = table ? (int64_t)h->table : (int64_t)h->room;
    const char *what = x->id == SYI_ALL_TO_ALL_COMBINE ? "expert_metadata"
                       : table                         ? "metadata or present"
                                                       : "tokens";
    syi_clear_fault(r->ctx, name_of(r->op));
    r->ctx->device = d + 1;
    const sy_fault fault = syi_value_fault(r->verdict.status, SY_FAULT_NONE, what, found, tokens);
    syi_fail_at(r->ctx, &fault, "has %lld rows, want %s%lld, the tokens of its group", (long long)found,
                x->id == SYI_ALL_TO_ALL_COMBINE ? "" : "at least ", (long long)tokens);
    r->ctx->device = 0;
    note_error(r->ctx, notice);
}

/* Finds a device of this process whose rows do not fit into its outputs. */
static sy_status check_room(sy_request *r)
{
    if (r->x.id == SYI_ALL_TO_ALL_COMBINE || r->x.layout == SY_LAYOUT_PADDED)
        return SY_OK;
    for (int s = 0; s < r->comm->n_shards; s++) {
        const struct syi_a2a_shard *shard = &r->shard[s];
        if (shard->n_rows <= shard->room)
            continue;
        r->ctx->device = shard->device + 1;
        const sy_fault fault =
            syi_value_fault(SY_ERR_CAPACITY, SY_FAULT_NONE, "tokens", shard->room, shard->n_rows);
        const sy_status st = syi_fail_at(r->ctx, &fault, "has %lld rows, want at least %lld",
                                         (long long)shard->room, (long long)shard->n_rows);
        r->ctx->device = 0;
        return st;
    }
    return SY_OK;
}

/* The same for a combine's input in these layouts. */
static sy_status check_input_rows(sy_request *r)
{
    if (r->x.id != SYI_ALL_TO_ALL_COMBINE || r->x.layout == SY_LAYOUT_PADDED)
        return SY_OK;
    for (int s = 0; s < r->comm->n_shards; s++) {
        const struct syi_a2a_shard *shard = &r->shard[s];
        const int64_t rows = syi_a2a_expert_rows(&r->by->hosts, shard->group, shard->position,
                                                 r->expert_counts, r->expert_offsets);
        if (rows <= shard->input_rows)
            continue;
        r->ctx->device = shard->device + 1;
        const sy_fault fault =
            syi_value_fault(SY_ERR_CAPACITY, SY_FAULT_NONE, "input", shard->input_rows, rows);
        const sy_status st = syi_fail_at(r->ctx, &fault, "has %lld rows, want at least %lld",
                                         (long long)shard->input_rows, (long long)rows);
        r->ctx->device = 0;
        return st;
    }
    return SY_OK;
}

/* Once choices are known: makes the lists, and checks that rows fit. */
static sy_status make_lists(sy_request *r)
{
    if (r->listed)
        return r->list_status;
    syi_exchange_lists(r);
    r->listed = true;
    syi_clear_fault(r->ctx, name_of(r->op));
    r->list_status = check_room(r);
    if (r->list_status == SY_OK)
        r->list_status = check_input_rows(r);
    if (r->list_status != SY_OK)
        note_error(r->ctx, &r->notice);
    return r->list_status;
}

/* Bytes that move, for the trace: each row is read and written, and the table. */
static void count_bytes(sy_request *r)
{
    const struct syi_exchange *x = &r->x;
    uint64_t rows = 0, row_bytes = 0;
    for (int s = 0; s < r->comm->n_shards; s++)
        rows += (uint64_t)r->shard[s].n_rows;
    for (int p = 0; p < x->n_planes; p++)
        row_bytes += x->row_bytes[p];
    r->bytes = 2 * rows * row_bytes;
}

/* ---- In one process ----------------------------------------------------------------------------------- */

static void run_local(sy_request *r)
{
    const sy_comm *comm = r->comm;
    const struct syi_exchange *x = &r->x;
    r->verdict = syi_validate_headers(comm, r->header);
    struct syi_notice a, b;
    if (r->verdict.status != SY_OK) {
        describe(r, x, &r->shard[r->verdict.device], &a);
        describe(r, x, &r->shard[r->verdict.other < 0 ? 0 : r->verdict.other], &b);
        reject(r, &a, &b);
        return;
    }
    r->verdict = validate_counts(r);
    if (r->verdict.status != SY_OK) {
        note_counts(r, &a);
        reject(r, &a, &a);
        return;
    }
    if (!x->routed) {
        syi_routing_order(r);
        syi_routing_read(r);
    }
    sy_status st = make_lists(r);
    if (st != SY_OK) {
        keep_error(r);
        finish(r, st);
        return;
    }
    syi_exchange_tables(r);
    syi_exchange_direct(r);
    st = r->memory->end(r->ctx);
    if (st != SY_OK) {
        syi_fail(r->ctx, st, "device", "%s", r->ctx->backend_error);
        keep_error(r);
        finish(r, st);
        return;
    }
    syi_routing_give(r);
    count_bytes(r);
    finish(r, SY_OK);
}

/* ---- Between processes -------------------------------------------------------------------------------- */

/* A combine, or a dispatch with a known routing, can make its lists before other processes answer. */
static bool knows_choices(const sy_request *r)
{
    return r->x.routed || (r->x.id == SYI_ALL_TO_ALL_COMBINE && !r->x.ragged);
}

/* All local work before the header is sent. */
static sy_status prepare(sy_request *r)
{
    sy_status st = syi_exchange_reserve(r);
    if (st == SY_OK && knows_choices(r)) {
        if (!r->x.routed) {
            syi_routing_order(r);
            syi_routing_read(r);
        }
        st = make_lists(r);
    }
    if (st != SY_OK || !r->direct)
        return st;
    const bool early = r->listed || r->x.id == SYI_ALL_TO_ALL_DISPATCH || r->windowed;
    if (early && r->stage_bytes <= r->comm->stage_slot_bytes)
        syi_exchange_stage(r);
    else
        r->mine.wanted = syi_pages(r->stage_bytes);
    return SY_OK;
}

static bool any_wanted(const sy_request *r, size_t *most)
{
    *most = 0;
    for (int d = 0; d < r->comm->n_devices; d++)
        *most = r->header[d].wanted > *most ? r->header[d].wanted : *most;
    return *most > 0;
}

/* Memory cannot be shared any more: rows are sent in messages, which need other scratch. */
static void use_messages(sy_request *r)
{
    if (r->direct) {
        const sy_status st = syi_exchange_reserve(r);
        if (st == SY_OK && r->listed)
            syi_exchange_lists(r);
        r->mine.status = (uint8_t)st;
        if (st != SY_OK)
            note_error(r->ctx, &r->notice);
    }
    enter(r, SYI_STEP_MESSAGE);
}

static sy_status step_header(sy_request *r)
{
    sy_comm *comm = r->comm;
    if (!may_enter(r, SYI_STEP_TABLE))
        return SY_OK;
    open_headers(r);
    r->verdict = syi_validate_headers(comm, r->header);
    for (int d = 0; d < comm->n_devices; d++)
        if (r->header[d].sequence >= comm->sequence) /* a process that is late catches up */
            comm->sequence = r->header[d].sequence + 1;
    if (r->verdict.status != SY_OK) {
        enter(r, SYI_STEP_REJECTED);
        return SY_OK;
    }
    comm->compared = true;
    if (!moves_rows(r)) {
        finish(r, SY_OK);
        return SY_OK;
    }
    const int damaged = syi_exchange_damaged(r);
    if (damaged >= 0)
        return reject_damaged(r, damaged);
    r->verdict = validate_counts(r);
    if (r->verdict.status != SY_OK) {
        note_counts(r, &r->notice);
        reject(r, &r->notice, &r->notice);
        return SY_OK;
    }
    if (!r->x.routed && !r->listed)
        syi_routing_order(r);
    /* Sharing may have ended after some processes had begun this call and before others had: all of them check. */
    if (comm->lost_at > 0 && r->sequence <= comm->lost_at + (uint64_t)comm->n_requests) {
        use_messages(r);
        return SY_OK;
    }
    size_t most;
    enter(r, r->direct && any_wanted(r, &most) ? SYI_STEP_GROW : SYI_STEP_TABLE);
    return SY_OK;
}

/* Grows the stage. Older requests are done: the old stage is only read. */
static sy_status step_grow(sy_request *r)
{
    sy_comm *comm = r->comm;
    size_t most = 0;
    if (r->posted) {
        syi_stage_attach(comm);
        enter(r, SYI_STEP_ATTACH);
        return SY_OK;
    }
    if (!may_enter(r, SYI_STEP_DONE))
        return SY_OK;
    any_wanted(r, &most);
    if (most * SYI_PAGE <= comm->stage_slot_bytes) {
        enter(r, SYI_STEP_STAGE);
        return SY_OK;
    }
    syi_stage_begin(comm, most * SYI_PAGE);
    return post(r, SY_CHANNEL_CONTROL, SY_AXIS_ALL, &comm->share, sizeof comm->share, comm->shares, NULL);
}

static sy_status step_attach(sy_request *r)
{
    sy_comm *comm = r->comm;
    if (!r->posted)
        return post(r, SY_CHANNEL_CONTROL, SY_AXIS_ALL, &comm->outcome, sizeof comm->outcome, comm->statuses,
                    NULL);
    if (syi_stage_end(comm)) {
        enter(r, SYI_STEP_STAGE);
        return SY_OK;
    }
    comm->lost_at = r->sequence;
    use_messages(r);
    return SY_OK;
}

/* Makes the rows readable for others, and sends their place. */
static sy_status step_stage(sy_request *r)
{
    if (r->posted) {
        open_headers(r);
        const int damaged = syi_exchange_damaged(r);
        enter(r, SYI_STEP_TABLE);
        return damaged >= 0 ? reject_damaged(r, damaged) : SY_OK;
    }
    if (r->x.id == SYI_ALL_TO_ALL_COMBINE && !r->listed) {
        syi_routing_read(r);
        r->mine.status = (uint8_t)make_lists(r);
    }
    if (r->mine.wanted > 0 && r->mine.status == SY_OK)
        syi_exchange_stage(r);
    return post_header(r, SY_CHANNEL_CONTROL);
}

static sy_status step_message(sy_request *r)
{
    if (!r->posted)
        return may_control(r) ? post_header(r, SY_CHANNEL_CONTROL) : SY_OK;
    open_headers(r);
    r->verdict = syi_validate_headers(r->comm, r->header);
    enter(r, r->verdict.status != SY_OK ? SYI_STEP_REJECTED : SYI_STEP_TABLE);
    return SY_OK;
}

/* Gathers the indices of all tokens of the group. */
static sy_status post_table(sy_request *r)
{
    const struct syi_exchange *x = &r->x;
    const struct syi_a2a_group *group = &r->own.group[0];
    const size_t row_bytes = (size_t)x->n_slots * syi_index_bytes(x->index_type);
    const struct syi_a2a_shard *shard = &r->shard[0];
    r->memory->pack(r->ctx, r->mine_raw, shard->indices, NULL, shard->n_tokens, row_bytes);
    for (int p = 0; p < x->n_positions; p++)
        r->counts[p] = (size_t)(group->order.first[p + 1] - group->order.first[p]) * row_bytes;
    return post(r, SY_CHANNEL_TABLE, x->axis, r->mine_raw, (size_t)shard->n_tokens * row_bytes, r->raw,
                x->ragged ? r->counts : NULL);
}

/* Whether a device may have more rows than fit, so that all processes must agree. */
static bool may_overflow(const sy_request *r)
{
    const struct syi_exchange *x = &r->x;
    const sy_comm *comm = r->comm;
    if (comm->options.check == SY_CHECK_NONE && !r->direct)
        return false;
    const bool combine = x->id == SYI_ALL_TO_ALL_COMBINE;
    if (x->layout == SY_LAYOUT_PADDED || (combine && !x->ragged) || x->routed)
        return false; /* those were checked with the headers */
    for (int d = 0; !combine && d < comm->n_devices; d++) {
        int64_t most;
        if (!syi_a2a_most_rows(x->most * x->n_positions, x->n_slots, r->by->hosts.n_local[d], x->layout,
                               x->align, &most) ||
            most > (int64_t)r->header[d].room)
            return true;
    }
    return combine;
}

static sy_status step_table(sy_request *r)
{
    const bool gathers = r->x.id == SYI_ALL_TO_ALL_DISPATCH && !r->x.routed && !r->direct;
    if (!may_enter(r, SYI_STEP_TABLE))
        return SY_OK;
    if (gathers && !r->posted)
        return post_table(r);
    if (!r->listed)
        syi_routing_read(r);
    const sy_status st = make_lists(r);
    r->mine.status = (uint8_t)st;
    if (may_overflow(r)) {
        enter(r, SYI_STEP_AGREED);
        return SY_OK;
    }
    if (st != SY_OK) { /* local only: without checks no agreement follows */
        keep_error(r);
        finish(r, st);
        return SY_OK;
    }
    enter(r, SYI_STEP_ROWS);
    return SY_OK;
}

static sy_status step_agreed(sy_request *r)
{
    if (!r->posted)
        return may_control(r) ? post_header(r, SY_CHANNEL_CONTROL) : SY_OK;
    open_headers(r);
    r->verdict = syi_validate_headers(r->comm, r->header);
    enter(r, r->verdict.status != SY_OK ? SYI_STEP_REJECTED : SYI_STEP_ROWS);
    return SY_OK;
}

static void become_routed(sy_request *r)
{
    syi_exchange_tables(r);
    syi_routing_give(r);
    count_bytes(r);
    r->routed = true;
}

/* Reads rows in place, and signals that it has. */
static sy_status read_rows(sy_request *r)
{
    const sy_transport *t = &r->comm->transport;
    const int damaged = syi_exchange_direct(r);
    r->comm->broken = r->comm->broken || damaged >= 0; /* known only to this process */
    if (damaged >= 0)
        return reject_damaged(r, damaged);
    const sy_status st = t->gather(t->self, SY_CHANNEL_FENCE, r->x.axis, NULL, 0, NULL, NULL, &r->fence);
    r->fencing = st == SY_OK;
    if (st != SY_OK)
        return st;
    if (r->windowed)
        enter(r, SYI_STEP_FENCE);
    else
        finish(r, SY_OK);
    return SY_OK;
}

static sy_status step_rows(sy_request *r)
{
    if (!r->posted) {
        if (!may_move(r) || syi_routing_busy(r))
            return SY_OK;
        become_routed(r);
        if (r->direct)
            return read_rows(r);
        r->posted = true;
        return syi_exchange_post(r);
    }
    syi_exchange_landed(r);
    finish(r, SY_OK);
    return SY_OK;
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
        finish(r, SY_OK);
    return st;
}

static sy_status step_rejected(sy_request *r)
{
    if (!r->posted) {
        if (!may_control(r))
            return SY_OK;
        if (r->mine.status == SY_OK)
            describe(r, &r->x, &r->shard[0], &r->notice);
        return post(r, SY_CHANNEL_CONTROL, SY_AXIS_ALL, &r->notice, sizeof r->notice, r->notices, NULL);
    }
    reject(r, &r->notices[r->verdict.device], &r->notices[r->verdict.other < 0 ? 0 : r->verdict.other]);
    return SY_OK;
}

static sy_status (*const steps[])(sy_request *r) = {
    [SYI_STEP_HEADER] = step_header,     [SYI_STEP_GROW] = step_grow,       [SYI_STEP_ATTACH] = step_attach,
    [SYI_STEP_STAGE] = step_stage,       [SYI_STEP_MESSAGE] = step_message, [SYI_STEP_TABLE] = step_table,
    [SYI_STEP_AGREED] = step_agreed,     [SYI_STEP_ROWS] = step_rows,       [SYI_STEP_FENCE] = step_fence,
    [SYI_STEP_REJECTED] = step_rejected,
};

/* Advances until data is missing or an older request must go first. */
static void advance(sy_request *r)
{
    bool moved = true;
    while (moved && r->step != SYI_STEP_DONE) {
        const enum syi_step step = r->step;
        const bool posted = r->posted;
        bool all = true;
        sy_status st = arrived(r, &all);
        if (st == SY_OK && !all)
            return;
        if (st == SY_OK)
            st = steps[step](r);
        if (st != SY_OK)
            syi_exchange_break(r, st);
        moved = r->step != step || r->posted != posted;
    }
}

/* All open requests, the oldest first; and fences of those that are closed. */
void syi_exchange_progress(sy_comm *comm)
{
    uint64_t after = 0;
    for (int i = 0; i < comm->n_requests && !comm->broken; i++)
        if (comm->requests[i].fencing && comm->requests[i].step == SYI_STEP_DONE)
            comm->broken = test_fence(&comm->requests[i]) != SY_OK;
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
    const bool an_operator = moves_rows(r) || r->op == SYI_COMM_REJECT;
    return comm->options.check != SY_CHECK_NONE || comm->may_share || r->x.ragged || !an_operator ||
           !comm->compared;
}

/* The call is validated; a process that rejects it still takes part. */
void syi_exchange_begin(sy_request *r, sy_status validated)
{
    sy_status st = validated;
    sy_comm *comm = r->comm;
    if (st == SY_OK && comm->local)
        st = syi_exchange_reserve(r);
    else if (st == SY_OK && moves_rows(r))
        st = prepare(r);
    if (st != SY_OK)
        r->x.routing = NULL; /* it is not filled */
    if (comm->local) {
        if (st == SY_OK) {
            run_local(r);
            return;
        }
        keep_error(r);
        finish(r, st);
        return;
    }
    r->mine.version = SYI_HEADER_VERSION;
    r->mine.op = r->op;
    r->mine.sequence = r->sequence;
    r->mine.status = (uint8_t)st;
    if (st != SY_OK)
        note_error(r->ctx, &r->notice);
    keep_error(r);
    if (!needs_header(r)) {
        if (st != SY_OK) {
            finish(r, st);
            return;
        }
        if (!r->x.routed && !r->listed)
            syi_routing_order(r);
        enter(r, SYI_STEP_TABLE);
    } else {
        enter(r, SYI_STEP_HEADER);
        st = post_header(r, SY_CHANNEL_HEADER);
        if (st != SY_OK)
            syi_exchange_break(r, st);
    }
    syi_exchange_progress(comm);
}
