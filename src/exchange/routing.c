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

static void lay_out(struct syi_arena *arena, const sy_comm *comm, const struct syi_exchange *x,
                    sy_routing *own)
{
    const size_t groups = (size_t)own->n_groups,
                 slots = (size_t)syi_exchange_max_tokens(x) * (size_t)x->n_slots;
    syi_a2a_hosts_take(arena, &own->hosts, x->n_experts, comm->n_devices);
    own->mapping = syi_take(arena, mapping_bytes(comm, x));
    own->group = syi_take(arena, groups * sizeof *own->group);
    own->first = syi_take(arena, groups * ((size_t)x->n_positions + 1) * sizeof *own->first);
    own->tokens = syi_take(arena, (size_t)comm->n_shards * sizeof *own->tokens);
    own->need = syi_take(arena, (size_t)comm->n_devices * sizeof *own->need);
    own->choice = syi_take(arena, syi_size_mul(groups, slots * sizeof *own->choice));
    if (x->rule.replica != SY_A2A_REPLICA_ALL)
        syi_a2a_replicas_take(arena, &own->replicas, x->n_experts, comm->n_devices,
                              comm->n_devices / x->n_positions);
}

/* Reads the mapping, unless it is equal to the one read last, as for consecutive layers. */
static sy_status read_hosts(sy_request *r)
{
    const struct syi_exchange *x = &r->x;
    sy_routing *own = &r->own;
    const size_t row_bytes = (size_t)r->comm->n_devices * sizeof(uint16_t), bytes = mapping_bytes(r->comm, x);
    const bool compact = x->mapping.stride == (int64_t)row_bytes || x->n_experts == 1;
    const bool plain = compact && x->n_copies == 1;
    struct syi_rows mapping = x->mapping;
    if (r->way.runs_on_gpu && !x->mapping_in_cpu && r->memory->mesh->captures(r->ctx))
        return syi_fail(r->ctx, SY_ERR_UNSUPPORTED, "expert_mapping",
                        "is on a device, where a capture cannot read it, want CPU memory");
    sy_status st = r->way.runs_on_gpu && !x->mapping_in_cpu ? r->memory->begin(r->ctx, NULL, 0, 0) : SY_OK;
    if (st == SY_OK && !x->mapping_in_cpu)
        st = r->memory->read(r->ctx, &mapping, x->n_copies * x->n_experts, row_bytes);
    if (st != SY_OK)
        return syi_fail_backend(r->ctx, st, "expert_mapping");
    if (plain && own->mapping_bytes == bytes && memcmp(own->mapping, mapping.data, bytes) == 0)
        return SY_OK;
    own->mapping_bytes = 0;
    st = syi_a2a_read_hosts(r->ctx, &own->hosts, mapping, x->n_copies);
    if (st != SY_OK || !plain)
        return st;
    memcpy(own->mapping, mapping.data, bytes);
    own->mapping_bytes = bytes;
    return SY_OK;
}

/* The one that the caller gives. What a device filled is in its memory. */
static sy_status use_routing(sy_request *r)
{
    const sy_routing *routing = r->x.routing;
    int ordinal = 0;
    void *stream;
    if (r->way.runs_on_gpu)
        r->memory->place(r->ctx, &ordinal, &stream);
    if (r->way.runs_on_gpu && routing->device.ordinal != ordinal)
        return syi_fail(r->ctx, SY_ERR_DEVICE, "routing",
                        "was filled by a dispatch on CUDA device %d, want tensors there",
                        routing->device.ordinal);
    r->by = routing;
    return SY_OK;
}

sy_status syi_routing_begin(sy_request *r)
{
    const struct syi_exchange *x = &r->x;
    sy_comm *comm = r->comm;
    sy_routing *own = &r->own;
    if (x->reuses_routing && x->routing->on_gpu && !r->way.runs_on_gpu && comm->local)
        return syi_fail(r->ctx, SY_ERR_DEVICE, "routing",
                        "was filled by a dispatch on a device, want tensors there");
    if (x->reuses_routing)
        return use_routing(r);
    if (own->hosts.n_experts != x->n_experts)
        own->mapping_bytes = 0;
    own->comm = comm;
    own->of = *x;
    own->n_groups = comm->local ? comm->n_devices / x->n_positions : 1;
    struct syi_arena arena = {NULL, 0};
    struct sy_routing measure = *own;
    lay_out(&arena, comm, x, &measure);
    const void *before = own->block.data;
    if (!syi_block_grow(comm, &own->block, arena.used))
        return syi_fail(r->ctx, SY_ERR_NOMEM, "routing", "of %zu bytes could not be allocated", arena.used);
    if (own->block.data != before)
        own->mapping_bytes = 0;
    arena = (struct syi_arena){own->block.data, 0};
    lay_out(&arena, comm, x, own);
    r->by = own;
    const sy_status st = read_hosts(r);
    if (st != SY_OK || x->rule.replica == SY_A2A_REPLICA_ALL)
        return st;
    syi_a2a_read_replicas(&own->replicas, &own->hosts, comm->mesh, x->axis);
    if (!r->way.runs_on_gpu || syi_exchange_runs_on_gpu(r, own))
        return SY_OK;
    r->way.runs_on_gpu = false; /* too many replicas for the device */
    const sy_status begun = r->memory->begin(r->ctx, NULL, 0, 0);
    return begun == SY_OK ? SY_OK : syi_fail_backend(r->ctx, begun, "expert_mapping");
}

void syi_routing_order(sy_request *r)
{
    const struct syi_exchange *x = &r->x;
    const sy_comm *comm = r->comm;
    sy_routing *own = &r->own;
    for (int g = 0; g < own->n_groups; g++) {
        const int index = comm->local ? g : syi_group_of(comm->mesh, x->axis, comm->device);
        int64_t *first = own->first + (size_t)g * ((size_t)x->n_positions + 1);
        first[0] = 0;
        for (int p = 0; p < x->n_positions; p++)
            first[p + 1] = first[p] + syi_exchange_tokens_at(r, syi_device_at(comm->mesh, x->axis, index, p));
        own->group[g] = (struct syi_a2a_group){
            .mesh = comm->mesh,
            .axis = x->axis,
            .index = index,
            .order = {x->n_positions, first, x->interleave},
            .n_slots = x->n_slots,
            .choice = own->choice + (size_t)g * (size_t)syi_exchange_max_tokens(x) * (size_t)x->n_slots,
            .layout = x->layout,
            .align = x->align,
            .expert_rows = x->expert_rows,
        };
    }
    for (int s = 0; s < comm->n_shards; s++)
        own->tokens[s] = r->shard[s].n_tokens;
}

struct syi_rows syi_routing_table(const sy_request *r, const struct syi_a2a_group *group, int position)
{
    const sy_comm *comm = r->comm;
    const int64_t row_bytes = r->x.n_slots * (int64_t)syi_index_bytes(r->x.index_type);
    const int device = syi_device_at(comm->mesh, group->axis, group->index, position);
    if (comm->local)
        return r->shard[device].indices;
    const bool on_gpu = r->memory->on_gpu; /* tables are then gathered in CPU memory */
    if (device == comm->device && !on_gpu)
        return r->shard[0].indices;
    if (r->way.direct && !on_gpu)
        return (struct syi_rows){syi_exchange_slot(r, device, &r->agreed.header[device]), row_bytes};
    return (struct syi_rows){r->lists.raw + group->order.first[position] * row_bytes, row_bytes};
}

/* Choices that were validated where they come from. */
static sy_status reread(sy_request *r, struct syi_rows rows, bool of_tensor, int64_t n, int32_t *choice)
{
    const struct syi_exchange *x = &r->x;
    const size_t row_bytes = syi_exchange_choice_bytes(x);
    const sy_status st = of_tensor ? r->memory->read(r->ctx, &rows, n, row_bytes) : SY_OK;
    if (st == SY_OK)
        syi_a2a_read_choices(r->ctx, 0, rows, x->index_type, n, x->n_slots, x->n_experts, false, choice);
    return st;
}

/* Dispatch: rows of every position go to their places. */
static sy_status read_position(sy_request *r, const struct syi_a2a_group *group, int32_t *choice,
                               int position)
{
    const struct syi_exchange *x = &r->x;
    const struct syi_token_order *order = &group->order;
    const struct syi_rows table = syi_routing_table(r, group, position);
    const int64_t n_tokens = order->first[position + 1] - order->first[position],
                  run = syi_run_of(order, n_tokens);
    sy_status st = SY_OK;
    for (int64_t n = 0; st == SY_OK && n < n_tokens; n += run) {
        const struct syi_rows rows = {syi_row_at(table, n), table.stride};
        st = reread(r, rows, r->comm->local, run, choice + syi_tau(order, position, n) * x->n_slots);
    }
    return st;
}

sy_status syi_routing_read(sy_request *r)
{
    const struct syi_exchange *x = &r->x;
    const sy_comm *comm = r->comm;
    sy_routing *own = &r->own;
    sy_status st = SY_OK;
    for (int g = 0; st == SY_OK && g < own->n_groups; g++) {
        int32_t *choice = own->choice + (size_t)g * (size_t)syi_exchange_max_tokens(x) * (size_t)x->n_slots;
        const int lead = comm->local ? syi_device_at(comm->mesh, x->axis, g, 0) : 0;
        const bool dispatch = !syi_is_combine(x);
        if (!dispatch && !r->now.chosen)
            st = reread(r, r->shard[lead].indices, true, syi_order_tokens(&own->group[g].order), choice);
        for (int p = 0; st == SY_OK && p < x->n_positions && dispatch; p++)
            st = read_position(r, &own->group[g], choice, p);
        if (st == SY_OK && x->rule.replica != SY_A2A_REPLICA_ALL)
            syi_a2a_serve(&own->replicas, x->n_experts, x->rule, &own->group[g], choice);
    }
    if (st == SY_OK)
        return SY_OK;
    syi_clear_fault(r->ctx, syi_call_name(r->op));
    return syi_fail_backend(r->ctx, st, syi_is_combine(x) ? "expert_metadata" : "expert_indices");
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

bool syi_routing_busy(const sy_request *r)
{
    const sy_comm *comm = r->comm;
    const sy_routing *to = r->x.reuses_routing ? NULL : r->x.routing;
    for (int i = 0; to != NULL && i < comm->n_requests; i++) {
        const sy_request *o = &comm->requests[i];
        if (o != r && o->open && o->now.step != SYI_STEP_DONE && o->by == to && o->sequence < r->sequence)
            return true;
    }
    return false;
}

void syi_routing_give(sy_request *r)
{
    sy_routing *to = r->x.routing;
    if (to == NULL || r->x.reuses_routing)
        return;
    const sy_routing before = *to, made = r->own;
    *to = made;
    r->own = before;
    if (!r->way.by_gpu) {
        to->device = before.device;
        r->own.device = made.device;
    }
    to->on_gpu = r->way.runs_on_gpu || r->way.by_gpu;
    to->fetched = false;
    to->filled = true;
    to->epoch = r->sequence;
    r->by = to;
}
