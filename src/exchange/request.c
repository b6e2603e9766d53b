/*
 * Requests, and the calls that make them.
 */
#include "exchange/exchange.h"

#include <sched.h>

const char *syi_call_name(uint8_t op)
{
    static const char *const names[] = {"sy_comm_alloc", "sy_comm_free", "sy_comm_reserve", "sy_comm_reject",
                                        "sy_comm_alloc_device"};
    return op == SYI_ALL_TO_ALL_DISPATCH                         ? "all_to_all_dispatch"
           : op == SYI_ALL_TO_ALL_COMBINE                        ? "all_to_all_combine"
           : op >= SYI_COMM_ALLOC && op <= SYI_COMM_ALLOC_DEVICE ? names[op - SYI_COMM_ALLOC]
                                                                 : "sy_comm_reject";
}

static bool reached(const sy_request *r, sy_phase phase)
{
    return r->now.step == SYI_STEP_DONE || (phase == SY_PHASE_ROUTED && r->now.reached_routed);
}

/* Advances all requests until `until` returns true; fails after the comm's timeout. */
static sy_status wait_for(sy_request *r, bool (*until)(const sy_request *r, sy_phase phase), sy_phase phase)
{
    sy_comm *comm = r->comm;
    const uint64_t limit = syi_comm_limit(comm), begin = limit > 0 ? syi_now() : 0;
    for (int tries = 0; !until(r, phase); tries++) {
        if (comm->broken)
            return SY_ERR_COMM;
        syi_exchange_progress(comm);
        if (tries < 64)
            continue;
        sched_yield();
        if (limit > 0 && tries % 64 == 0 && syi_now() - begin > limit)
            return SY_ERR_TIMEOUT;
    }
    return SY_OK;
}

static bool fenced(const sy_request *r, sy_phase phase)
{
    (void)phase;
    return !r->fencing;
}

static const char is_broken[] = "is broken: another process may be gone, want a new one";

/* A request that is free and whose rows no process reads any more, or the one to wait for. */
static sy_status take_request(sy_ctx *ctx, sy_comm *comm, sy_request **request)
{
    sy_request *r = comm->requests;
    for (int i = 1; i < comm->options.max_inflight && (r->open || r->fencing); i++) {
        sy_request *other = &comm->requests[i];
        if (!other->open && (r->open || !other->fencing))
            r = other;
    }
    *request = r;
    const sy_status st = wait_for(r, fenced, SY_PHASE_DONE);
    if (st == SY_OK)
        return SY_OK;
    syi_comm_break(comm);
    return syi_fail(ctx, st, "comm", "%s", is_broken);
}

static bool past_header(const sy_request *r, sy_phase phase)
{
    (void)phase;
    return !r->open || r->now.step != SYI_STEP_HEADER;
}

/* Without checks headers are exchanged until a call was agreed on (needs_header): whether one was is known in all
   processes alike once the calls before this one have been answered. */
static sy_status wait_for_answers(sy_ctx *ctx, sy_comm *comm)
{
    const bool depends = comm->options.check == SY_CHECK_NONE && !comm->may_share && !comm->local;
    for (int i = 0; depends && !comm->compared && i < comm->n_requests; i++) {
        const sy_status st = wait_for(&comm->requests[i], past_header, SY_PHASE_DONE);
        if (st == SY_OK)
            continue;
        syi_comm_break(comm);
        return syi_fail(ctx, st, "comm", "%s", is_broken);
    }
    return SY_OK;
}

/* Takes the next number. */
static void open_request(sy_request *r, sy_ctx *ctx, uint8_t op)
{
    r->ctx = ctx;
    r->open = true;
    r->op = op;
    r->sequence = r->comm->sequence++;
    r->now = (struct syi_progress){.step = SYI_STEP_HEADER};
    r->way = (struct syi_way){.direct = false};
    r->result.status = SY_OK;
    r->result.fault = (sy_fault){.argument = ""};
    r->result.error[0] = '\0';
    r->result.bytes = 0;
    r->memory = NULL;
    r->start_ns = ctx->trace != NULL ? syi_now() : 0;
    r->x = (struct syi_exchange){.id = (enum syi_op_id)op};
    r->by = NULL;
    r->agreed.mine = (struct syi_header){.stage = SYI_NO_SEGMENT, .window = SYI_NO_SEGMENT};
}

/* An open request of the comm that does not advance, on which others between processes wait; NULL: none. */
static const sy_request *captured_request(const sy_comm *comm)
{
    for (int i = 0; i < comm->n_requests; i++)
        if (syi_exchange_captured(&comm->requests[i]))
            return &comm->requests[i];
    return NULL;
}

/* Nothing has happened, in this process or another: the same call may come after the capture. */
static sy_status fail_captured(sy_ctx *ctx)
{
    return syi_fail(ctx, SY_ERR_STATE, "comm",
                    "has a request whose context's stream is being captured, want the end of the capture");
}

/* ---- Calls ---- */

sy_status syi_call_begin(sy_ctx **ctx, sy_comm *comm, const char *name)
{
    const bool none = *ctx == NULL;
    if (none && comm == NULL)
        return SY_ERR_NULL;
    if (none)
        *ctx = &comm->spare;
    syi_clear_fault(*ctx, name);
    if (comm == NULL)
        return syi_fail(*ctx, SY_ERR_NULL, "comm", "is NULL, want a comm");
    if (comm->broken)
        return syi_fail(*ctx, SY_ERR_COMM, "comm", "%s", is_broken);
    if (!comm->local && captured_request(comm) != NULL)
        return fail_captured(*ctx);
    SYI_TRY(wait_for_answers(*ctx, comm));
    syi_clear_fault(*ctx, name); /* requests that were advanced meanwhile may have failed */
    (*ctx)->device = comm->local ? 0 : comm->device + 1; /* all processes return the sentence */
    return none ? syi_fail(*ctx, SY_ERR_NULL, "ctx", "is NULL, want a context") : SY_OK;
}

sy_status syi_call_agree(sy_ctx *ctx, sy_comm *comm, const struct syi_header *mine, sy_status found)
{
    if (comm == NULL || comm->broken || comm->local || captured_request(comm) != NULL)
        return found;
    sy_request *r = &comm->requests[comm->n_requests - 1];
    ctx->device = 0;
    open_request(r, ctx, mine->op);
    r->agreed.mine = *mine;
    r->agreed.mine.params = comm->options_hash;
    syi_exchange_begin(r, found);
    const sy_status st = sy_request_wait(r, SY_PHASE_DONE);
    r->open = false;
    if (st != SY_OK)
        return st;
    syi_exchange_close(comm);
    return comm->broken ? syi_fail(ctx, SY_ERR_COMM, "comm", "%s", is_broken) : SY_OK;
}

static sy_status check_start(sy_ctx *ctx, const sy_comm *comm, sy_request **request)
{
    if (request == NULL)
        return syi_fail(ctx, SY_ERR_NULL, "request", "is NULL, want a place for the request");
    if (comm->n_open < comm->options.max_inflight)
        return SY_OK;
    return syi_fail_with(ctx, SY_ERR_STATE, SY_FAULT_NONE, "comm", comm->n_open, comm->options.max_inflight,
                         "has %d open requests, want fewer than its max_inflight, %d", comm->n_open,
                         comm->options.max_inflight);
}

static sy_status start(sy_ctx *ctx, sy_comm *comm, const struct syi_exchange_op *op, const void *args,
                       size_t args_bytes, bool blocking, sy_request **request)
{
    if (request != NULL)
        *request = NULL;
    sy_status st = syi_call_begin(&ctx, comm, op->info->name);
    if (st == SY_OK)
        st = check_start(ctx, comm, request);
    if (st != SY_OK) {
        const struct syi_header mine = {.op = (uint8_t)op->info->number};
        return syi_call_agree(ctx, comm, &mine, st);
    }
    sy_request *r = NULL;
    ctx->device = 0;
    st = take_request(ctx, comm, &r);
    if (st != SY_OK)
        return st;
    syi_clear_fault(ctx, op->info->name); /* requests that were advanced meanwhile may have failed */
    open_request(r, ctx, (uint8_t)op->info->number);
    r->blocking = blocking;
    r->kind = op;
    comm->n_open++;
    syi_exchange_begin(r, op->validate(ctx, op, args, args_bytes, r));
    if (request != NULL) /* check_start rejects it */
        *request = r;
    return SY_OK;
}

sy_status syi_exchange_start(sy_ctx *ctx, sy_comm *comm, const struct syi_exchange_op *op, const void *args,
                             size_t args_bytes, sy_request **request)
{
    return start(ctx, comm, op, args, args_bytes, false, request);
}

sy_status syi_exchange_run(sy_ctx *ctx, sy_comm *comm, const struct syi_exchange_op *op, const void *args,
                           size_t args_bytes)
{
    sy_request *request;
    const sy_status st = start(ctx, comm, op, args, args_bytes, true, &request);
    return st == SY_OK ? sy_request_free(request) : st;
}

static void show_error(const sy_request *r)
{
    r->ctx->fault = r->result.fault;
    memcpy(r->ctx->error, r->result.error, sizeof r->result.error);
}

/* The status of a request that has reached a phase, with its sentence. */
static sy_status status_of(const sy_request *r)
{
    show_error(r);
    return r->result.status;
}

sy_status sy_request_test(sy_request *request, sy_phase phase, bool *done)
{
    if (request == NULL || done == NULL || !request->open)
        return request == NULL || done == NULL ? SY_ERR_NULL : SY_ERR_STATE;
    *done = reached(request, phase);
    if (!*done && !request->comm->broken)
        syi_exchange_progress(request->comm);
    if (!reached(request, phase) && request->comm->broken)
        syi_exchange_break(request, SY_ERR_COMM);
    *done = reached(request, phase);
    return *done ? status_of(request) : SY_OK;
}

sy_status sy_request_wait(sy_request *request, sy_phase phase)
{
    if (request == NULL)
        return SY_ERR_NULL;
    if (!request->open)
        return SY_ERR_STATE;
    const bool captured =
        request->comm->local ? syi_exchange_captured(request) : captured_request(request->comm) != NULL;
    if (!reached(request, phase) && captured && !request->comm->broken) {
        syi_clear_fault(request->ctx, syi_call_name(request->op));
        return fail_captured(request->ctx);
    }
    if (!reached(request, phase))
        syi_exchange_sync(request);
    const sy_status st = wait_for(request, reached, phase);
    if (st != SY_OK)
        syi_exchange_break(request, st);
    return status_of(request);
}

int64_t sy_request_tokens(const sy_request *request, int device)
{
    if (request == NULL || !request->open || !reached(request, SY_PHASE_ROUTED) ||
        request->result.status != SY_OK || device < 0 || device >= request->comm->n_devices)
        return -1;
    return syi_exchange_group_tokens(request, device);
}

void syi_exchange_close(sy_comm *comm)
{
    for (int i = 0; i < comm->n_requests && !comm->broken; i++) {
        sy_request *r = &comm->requests[i];
        if ((r->open && wait_for(r, reached, SY_PHASE_DONE) != SY_OK) ||
            wait_for(r, fenced, SY_PHASE_DONE) != SY_OK)
            syi_comm_break(comm);
    }
}

sy_status sy_request_free(sy_request *request)
{
    if (request == NULL)
        return SY_OK;
    const sy_status st = sy_request_wait(request, SY_PHASE_DONE);
    if (request->open && !reached(request, SY_PHASE_DONE))
        return st; /* during a capture */
    if (request->open)
        request->comm->n_open--;
    request->open = false;
    return st;
}
