/*
 * Routings: the hosts of all experts, and the choices of every token of a group. A call makes one in memory of its
 * request; if the caller passed a routing, the two are swapped.
 */
#include "exchange/exchange.h"

sy_status sy_routing_create(sy_ctx *ctx, sy_comm *comm, sy_routing **routing)
{
    if (routing != NULL)
        *routing = NULL;
    if (ctx == NULL)
        return SY_ERR_NULL;
    syi_clear_fault(ctx, "sy_routing_create");
    if (comm == NULL)
        return syi_fail(ctx, SY_ERR_NULL, "comm", "is NULL, want a comm");
    if (routing == NULL)
        return syi_fail(ctx, SY_ERR_NULL, "routing", "is NULL, want a place for the routing");
    *routing = syi_comm_new(comm, sizeof **routing);
    if (*routing == NULL)
        return syi_fail(ctx, SY_ERR_NOMEM, "routing", "could not be allocated");
    **routing = (sy_routing){.comm = comm};
    return SY_OK;
}

void sy_routing_destroy(sy_routing *routing)
{
    if (routing == NULL)
        return;
    const sy_comm *comm = routing->comm;
    if (routing->device.by != NULL)
        routing->device.by->forget(&routing->device);
    syi_block_free(comm, &routing->block);
    syi_comm_delete(comm, routing);
}

int64_t syi_routing_group_tokens(const sy_routing *routing, int device)
{
    const int group = routing->n_groups > 1 ? syi_group_of(routing->comm->mesh, routing->of.axis, device) : 0;
    return syi_order_tokens(&routing->group[group].order);
}

static size_t mapping_bytes(const sy_comm *comm, const struct syi_exchange *x)
{
    return syi_size_mul((size_t)x->n_experts, (size_t)comm->n_devices * sizeof(uint16_t));
}

static void lay_out(struct syi_arena *arena, const sy_comm *comm, const struct syi_exchange *x, sy_routing *r)
{
    const size_t groups = (size_t)r->n_groups,
                 slots = (size_t)syi_exchange_max_tokens(x) * (size_t)x->n_slots;
    syi_a2a_hosts_take(arena, &r->hosts, x->n_experts, comm->n_devices);
    r->mapping = syi_take(arena, mapping_bytes(comm, x));
    r->group = syi_take(arena, groups * sizeof *r->group);
    r->first = syi_take(arena, groups * ((size_t)x->n_positions + 1) * sizeof *r->first);
    r->tokens = syi_take(arena, (size_t)comm->n_shards * sizeof *r->tokens);
    r->need = syi_take(arena, (size_t)comm->n_devices * sizeof *r->need);
    r->choice = syi_take(arena, syi_size_mul(groups, slots * sizeof *r->choice));
    if (x->rule.replica != SY_A2A_REPLICA_ALL)
        syi_a2a_replicas_take(arena, &r->replicas, x->n_experts, comm->n_devices,
                              comm->n_devices / x->n_positions);
}

/* Reads the mapping, unless it is equal to the one read last, as for consecutive layers. */
static sy_status read_hosts(sy_request *request)
{
    const struct syi_exchange *x = &request->x;
    sy_routing *r = &request->own;
    const size_t row_bytes = (size_t)request->comm->n_devices * sizeof(uint16_t),
                 bytes = mapping_bytes(request->comm, x);
    const bool compact = x->mapping.stride == (int64_t)row_bytes || x->n_experts == 1;
    const bool plain = compact && x->n_copies == 1;
    struct syi_rows mapping = x->mapping;
    if (request->way.runs_on_gpu && !x->mapping_in_cpu && request->memory->mesh->captures(request->ctx))
        return syi_fail(request->ctx, SY_ERR_UNSUPPORTED, "expert_mapping",
                        "is on a device, where a capture cannot read it, want CPU memory");
    sy_status st = request->way.runs_on_gpu && !x->mapping_in_cpu
                       ? request->memory->begin(request->ctx, NULL, 0, 0)
                       : SY_OK;
    if (st == SY_OK && !x->mapping_in_cpu)
        st = request->memory->read(request->ctx, &mapping, x->n_copies * x->n_experts, row_bytes);
    if (st != SY_OK)
        return syi_fail_backend(request->ctx, st, "expert_mapping");
    if (plain && r->mapping_bytes == bytes && memcmp(r->mapping, mapping.data, bytes) == 0)
        return SY_OK;
    r->mapping_bytes = 0;
    st = syi_a2a_read_hosts(request->ctx, &r->hosts, mapping, x->n_copies);
    if (st != SY_OK || !plain)
        return st;
    memcpy(r->mapping, mapping.data, bytes);
    r->mapping_bytes = bytes;
    return SY_OK;
}

/* The one that the caller gives. What a device filled is in its memory. */
static sy_status use_routing(sy_request *request)
{
    const sy_routing *routing = request->x.routing;
    int ordinal = 0;
    void *stream;
    if (request->way.runs_on_gpu)
        request->memory->place(request->ctx, &ordinal, &stream);
    if (request->way.runs_on_gpu && routing->device.ordinal != ordinal)
        return syi_fail(request->ctx, SY_ERR_DEVICE, "routing",
                        "was filled by a dispatch on CUDA device %d, want tensors there",
                        routing->device.ordinal);
    request->by = routing;
    return SY_OK;
}

sy_status syi_routing_begin(sy_request *request)
{
    const struct syi_exchange *x = &request->x;
    sy_comm *comm = request->comm;
    sy_routing *r = &request->own;
    if (x->reuses_routing && x->routing->on_gpu && !request->way.runs_on_gpu && comm->local)
        return syi_fail(request->ctx, SY_ERR_DEVICE, "routing",
                        "was filled by a dispatch on a device, want tensors there");
    if (x->reuses_routing)
        return use_routing(request);
    if (r->hosts.n_experts != x->n_experts)
        r->mapping_bytes = 0;
    r->comm = comm;
    r->of = *x;
    r->n_groups = comm->local ? comm->n_devices / x->n_positions : 1;
    struct syi_arena arena = {NULL, 0};
    struct sy_routing measure = *r;
    lay_out(&arena, comm, x, &measure);
    const void *before = r->block.data;
    if (!syi_block_grow(comm, &r->block, arena.used))
        return syi_fail(request->ctx, SY_ERR_NOMEM, "routing", "of %zu bytes could not be allocated",
                        arena.used);
    if (r->block.data != before)
        r->mapping_bytes = 0;
    arena = (struct syi_arena){r->block.data, 0};
    lay_out(&arena, comm, x, r);
    request->by = r;
    const sy_status st = read_hosts(request);
    if (st != SY_OK || x->rule.replica == SY_A2A_REPLICA_ALL)
        return st;
    syi_a2a_read_replicas(&r->replicas, &r->hosts, comm->mesh, x->axis);
    if (!request->way.runs_on_gpu || syi_exchange_runs_on_gpu(request, r))
        return SY_OK;
    request->way.runs_on_gpu = false; /* too many replicas for the device */
    const sy_status begun = request->memory->begin(request->ctx, NULL, 0, 0);
    return begun == SY_OK ? SY_OK : syi_fail_backend(request->ctx, begun, "expert_mapping");
}

void syi_routing_order(sy_request *request)
{
    const struct syi_exchange *x = &request->x;
    const sy_comm *comm = request->comm;
    sy_routing *r = &request->own;
    for (int g = 0; g < r->n_groups; g++) {
        const int index = comm->local ? g : syi_group_of(comm->mesh, x->axis, comm->device);
        int64_t *first = r->first + (size_t)g * ((size_t)x->n_positions + 1);
        first[0] = 0;
        for (int p = 0; p < x->n_positions; p++)
            first[p + 1] =
                first[p] + syi_exchange_tokens_at(request, syi_device_at(comm->mesh, x->axis, index, p));
        r->group[g] = (struct syi_a2a_group){
            .mesh = comm->mesh,
            .axis = x->axis,
            .index = index,
            .order = {x->n_positions, first, x->interleave},
            .n_slots = x->n_slots,
            .choice = r->choice + (size_t)g * (size_t)syi_exchange_max_tokens(x) * (size_t)x->n_slots,
            .layout = x->layout,
            .align = x->align,
            .expert_rows = x->expert_rows,
        };
    }
    for (int s = 0; s < comm->n_shards; s++)
        r->tokens[s] = request->shard[s].n_tokens;
}

struct syi_rows syi_routing_table(const sy_request *request, const struct syi_a2a_group *group, int position)
{
    const sy_comm *comm = request->comm;
    const int64_t row_bytes = request->x.n_slots * (int64_t)syi_index_bytes(request->x.index_type);
    const int device = syi_device_at(comm->mesh, group->axis, group->index, position);
    if (comm->local)
        return request->shard[device].indices;
    const bool on_gpu = request->memory->on_gpu; /* tables are then gathered in CPU memory */
    if (device == comm->device && !on_gpu)
        return request->shard[0].indices;
    if (request->way.direct && !on_gpu) {
        const struct syi_header *h = &request->agreed.header[device];
        const struct syi_segment *stage = &comm->segment[h->stage];
        return (struct syi_rows){(unsigned char *)stage->base[device] + h->slot * stage->slot_bytes,
                                 row_bytes};
    }
    return (struct syi_rows){request->lists.raw + group->order.first[position] * row_bytes, row_bytes};
}

/* Choices that were validated where they come from. */
static sy_status reread(sy_request *request, struct syi_rows rows, bool of_tensor, int64_t n, int32_t *choice)
{
    const struct syi_exchange *x = &request->x;
    const size_t row_bytes = syi_exchange_choice_bytes(x);
    const sy_status st = of_tensor ? request->memory->read(request->ctx, &rows, n, row_bytes) : SY_OK;
    if (st == SY_OK)
        syi_a2a_read_choices(request->ctx, 0, rows, x->index_type, n, x->n_slots, x->n_experts, false,
                             choice);
    return st;
}

/* Dispatch: rows of every position go to their places. */
static sy_status read_position(sy_request *request, const struct syi_a2a_group *group, int32_t *choice,
                               int position)
{
    const struct syi_exchange *x = &request->x;
    const struct syi_token_order *order = &group->order;
    const struct syi_rows table = syi_routing_table(request, group, position);
    const int64_t n_tokens = order->first[position + 1] - order->first[position],
                  run = syi_run_of(order, n_tokens);
    sy_status st = SY_OK;
    for (int64_t n = 0; st == SY_OK && n < n_tokens; n += run) {
        const struct syi_rows rows = {syi_row(table, n), table.stride};
        st = reread(request, rows, request->comm->local, run,
                    choice + syi_tau(order, position, n) * x->n_slots);
    }
    return st;
}

sy_status syi_routing_read(sy_request *request)
{
    const struct syi_exchange *x = &request->x;
    const sy_comm *comm = request->comm;
    sy_routing *r = &request->own;
    sy_status st = SY_OK;
    for (int g = 0; st == SY_OK && g < r->n_groups; g++) {
        int32_t *choice = r->choice + (size_t)g * (size_t)syi_exchange_max_tokens(x) * (size_t)x->n_slots;
        const int lead = comm->local ? syi_device_at(comm->mesh, x->axis, g, 0) : 0;
        const bool dispatch = !syi_is_combine(x);
        if (!dispatch && !request->now.chosen)
            st = reread(request, request->shard[lead].indices, true, syi_order_tokens(&r->group[g].order),
                        choice);
        for (int p = 0; st == SY_OK && p < x->n_positions && dispatch; p++)
            st = read_position(request, &r->group[g], choice, p);
        if (st == SY_OK && x->rule.replica != SY_A2A_REPLICA_ALL)
            syi_a2a_serve(&r->replicas, x->n_experts, x->rule, &r->group[g], choice);
    }
    if (st == SY_OK)
        return SY_OK;
    syi_clear_fault(request->ctx, syi_call_name(request->op));
    return syi_fail_backend(request->ctx, st, syi_is_combine(x) ? "expert_metadata" : "expert_indices");
}

sy_status syi_routing_fetch(sy_ctx *ctx, sy_routing *routing)
{
    const struct syi_device_routing *device = &routing->device;
    const struct syi_token_order *order = &routing->group[0].order;
    if (!routing->on_gpu || routing->fetched)
        return SY_OK;
    const struct syi_a2a_plan plan = syi_exchange_plan(routing);
    sy_status st = SY_OK;
    for (int p = 0; st == SY_OK && p < order->n_positions; p++) {
        const int64_t n_tokens = order->first[p + 1] - order->first[p], run = syi_run_of(order, n_tokens);
        if (n_tokens > 0)
            st = device->by->fetch(ctx, device, &plan, order->first[p], run, n_tokens / run,
                                   routing->choice + syi_tau(order, p, 0) * plan.n_slots,
                                   run * (run < n_tokens ? order->n_positions : 1));
    }
    routing->fetched = st == SY_OK;
    return st == SY_OK ? SY_OK : syi_fail_backend(ctx, st, "routing");
}

bool syi_routing_awaited(const sy_routing *routing)
{
    const sy_comm *comm = routing->comm;
    for (int i = 0; i < comm->n_requests; i++) {
        const sy_request *r = &comm->requests[i];
        if (r->open && !r->now.reached_routed && !r->x.reuses_routing && r->x.routing == routing)
            return true;
    }
    return false;
}

bool syi_routing_busy(const sy_request *request)
{
    const sy_comm *comm = request->comm;
    const sy_routing *to = request->x.reuses_routing ? NULL : request->x.routing;
    for (int i = 0; to != NULL && i < comm->n_requests; i++) {
        const sy_request *o = &comm->requests[i];
        if (o != request && o->open && o->now.step != SYI_STEP_DONE && o->by == to &&
            o->sequence < request->sequence)
            return true;
    }
    return false;
}

void syi_routing_give(sy_request *request)
{
    sy_routing *to = request->x.routing;
    if (to == NULL || request->x.reuses_routing)
        return;
    const sy_routing before = *to, made = request->own;
    *to = made;
    request->own = before;
    if (!request->way.by_gpu) {
        to->device = before.device;
        request->own.device = made.device;
    }
    to->on_gpu = request->way.runs_on_gpu || request->way.by_gpu;
    to->fetched = false;
    to->filled = true;
    to->epoch = request->sequence;
    request->by = to;
}
