/*
 * Exchanges of tensors on a GPU that its kernels execute (plan/mesh_device.h): of a mesh inside one process the whole call, in the order of
 * the context's stream; between processes that map each other's memory all but the agreement.
 */
#include "exchange/exchange.h"

static const struct syi_mesh_device *gpu_of(const sy_request *r)
{
    return r->memory->mesh;
}

/* Everything that is equal for all devices. by NULL: the mapping has not been read, and no expert has replicas as far as known. */
static struct syi_a2a_plan plan_of(const sy_comm *comm, const struct syi_exchange *x, const sy_routing *by,
                                   int64_t n_tokens, uint64_t sequence)
{
    struct syi_a2a_plan plan = {
        .id = x->id,
        .mesh = comm->mesh,
        .axis = x->axis,
        .n_devices = comm->n_devices,
        .n_positions = x->n_positions,
        .n_groups = comm->n_devices / x->n_positions,
        .own = comm->local ? -1 : comm->device,
        .n_tokens = n_tokens,
        .interleave = x->interleave,
        .n_slots = x->n_slots,
        .n_experts = by != NULL ? syi_routing_hosts(by)->n_experts : x->n_experts,
        .n_named = x->n_experts,
        .rule = x->rule,
        .align = x->align,
        .expert_rows = x->expert_rows,
        .hidden = x->hidden,
        .index_type = x->index_type,
        .type = x->type,
        .layout = x->layout,
        .strict = x->strict,
        .zero = x->zero,
        .local_reduce = x->local_reduce,
        .sum = x->sum,
        .routed = x->reuses_routing,
        .n_planes = x->n_planes,
        .number = 1 + (x->reuses_routing ? x->routing->epoch : sequence),
    };
    if (comm->local || !syi_exchange_encodes(x)) /* else they are made before rows are read */
        plan.codes = x->codes;
    for (int p = 0; p < x->n_planes; p++)
        plan.row_bytes[p] = x->row_bytes[p];
    if (by != NULL && x->rule.replica != SY_A2A_REPLICA_ALL)
        plan.pairs = by->replicas.pairs;
    return plan;
}

bool syi_exchange_runs_on_gpu(const sy_request *r, const sy_routing *by)
{
    const struct syi_exchange *x = &r->x;
    if (!r->comm->local || gpu_of(r) == NULL || (x->reuses_routing && !x->routing->on_gpu))
        return false;
    const struct syi_a2a_plan plan = plan_of(r->comm, x, by, x->max_tokens * r->comm->n_devices, r->sequence);
    return gpu_of(r)->can(&plan);
}

/* Whether the trace needs the number of rows, which the device knows. */
static bool counts_rows(const sy_request *r)
{
    return r->ctx->trace != NULL && !syi_is_combine(&r->x) && r->x.layout != SY_LAYOUT_PADDED &&
           !gpu_of(r)->captures(r->ctx);
}

/* Scratch: the devices, and for a trace their rows. */
static void lay_out(const sy_request *r, struct syi_arena *arena, struct syi_a2a_device **device,
                    struct syi_row_count **need)
{
    const size_t n = (size_t)r->comm->n_devices;
    *device = syi_take(arena, n * sizeof **device);
    *need = counts_rows(r) ? syi_take(arena, n * sizeof **need) : NULL;
}

sy_status syi_exchange_reserve_on_gpu(sy_request *r)
{
    struct syi_arena arena = {NULL, 0};
    struct syi_a2a_device *device;
    struct syi_row_count *need;
    lay_out(r, &arena, &device, &need);
    const size_t bytes = arena.used;
    if (syi_block_grow(r->comm, &r->block, bytes))
        return SY_OK;
    return syi_fail(r->ctx, SY_ERR_NOMEM, "scratch", "of %zu bytes could not be allocated", bytes);
}

/* The tensors of a device of this process. */
static void fill_shard(const struct syi_a2a_shard *shard, struct syi_a2a_device *to)
{
    *to = (struct syi_a2a_device){
        .indices = shard->indices,
        .metadata = shard->extras.metadata,
        .mask = shard->mask,
        .src = shard->extras.src,
        .weights = shard->weights,
        .expert_counts = shard->extras.expert_counts,
        .expert_offsets = shard->extras.expert_offsets,
        .rows_from = shard->extras.rows_from,
        .rows_to = shard->extras.rows_to,
        .weight_type = shard->weight_type,
    };
    memcpy(to->from, shard->from, sizeof to->from);
    memcpy(to->to, shard->to, sizeof to->to);
}

/* Of another process: what is read of it. */
static void fill_other(const sy_request *r, int device, struct syi_a2a_device *to)
{
    const int64_t row_bytes = r->x.n_slots * (int64_t)syi_index_bytes(r->x.index_type);
    *to = (struct syi_a2a_device){.indices = {NULL, row_bytes}};
    syi_exchange_tokens_of(r, device, to->from, &to->indices.data);
}

/* The tensors of every device, and the place of its tokens. Returns how many tokens there are. */
static int64_t fill_devices(const sy_request *r, struct syi_a2a_device *device)
{
    const struct syi_exchange *x = &r->x;
    const sy_comm *comm = r->comm;
    const bool combine = syi_is_combine(x);
    int64_t first = 0, table_first = 0;
    for (int d = 0; d < comm->n_devices; d++) {
        const bool here = comm->local || d == comm->device;
        const struct syi_a2a_shard *shard = &r->shard[comm->local ? d : 0];
        const int group = syi_group_of(comm->mesh, x->axis, d),
                  position = syi_position_of(comm->mesh, x->axis, d);
        const struct syi_token_order *order = &r->by->group[group].order;
        struct syi_a2a_device *to = &device[d];
        if (here)
            fill_shard(shard, to);
        else
            fill_other(r, d, to);
        to->first = first;
        to->n_tokens = order->first[position + 1] - order->first[position];
        to->before = order->first[position];
        to->group_tokens = syi_order_tokens(order);
        to->table_first = table_first;
        to->capacity = !comm->local ? (int64_t)r->agreed.header[d].capacity
                       : combine    ? shard->input_rows
                                    : shard->capacity;
        to->group = group;
        to->position = position;
        first += to->n_tokens;
        table_first += to->group_tokens;
    }
    return first;
}

/* Queues the exchange. */
static sy_status queue(sy_request *r)
{
    struct syi_a2a_device *device;
    struct syi_row_count *need;
    lay_out(r, &(struct syi_arena){r->block.data, 0}, &device, &need);
    if (!r->x.reuses_routing)
        syi_routing_order(r);
    struct syi_a2a_plan plan = plan_of(r->comm, &r->x, r->by, fill_devices(r, device), r->sequence);
    plan.device = device;
    plan.need = need;
    plan.local = r->by->hosts.local;
    const sy_status st = gpu_of(r)->run(r->ctx, &plan, r->x.routing != NULL ? &r->x.routing->device : NULL);
    if (st == SY_OK)
        syi_routing_give(r);
    return st;
}

/* Outside of a capture, queues something that ends when the work has. */
static sy_status mark(sy_request *r)
{
    r->way.marked = !gpu_of(r)->captures(r->ctx);
    return r->way.marked ? gpu_of(r)->mark(r->ctx, &r->mark) : SY_OK;
}

/* Rows of the outputs, for the trace. Inside a capture those that depend on choices are not known. */
static void count_rows(sy_request *r)
{
    struct syi_a2a_device *device;
    struct syi_row_count *need;
    const bool known = syi_is_combine(&r->x) || r->x.layout == SY_LAYOUT_PADDED;
    lay_out(r, &(struct syi_arena){r->block.data, 0}, &device, &need);
    if (!known && need == NULL)
        return;
    for (int s = 0; s < r->comm->n_shards; s++) {
        struct syi_a2a_shard *shard = &r->shard[s];
        shard->out.n_rows = syi_is_combine(&r->x) ? r->x.n_slots * shard->n_tokens
                            : need == NULL        ? device[s].group_tokens
                                                  : need[s].rows;
    }
    syi_exchange_count_bytes(r);
}

/* Its work has ended. Skipped: a fault of this call or of an earlier one was reported before it could write. */
static void end(sy_request *r, bool skipped)
{
    sy_status st = skipped ? r->kind->poll(r->ctx) : SY_OK;
    if (skipped && st == SY_OK) {
        syi_clear_fault(r->ctx, syi_call_name(r->op));
        st = syi_fail(r->ctx, SY_ERR_STATE, "ctx",
                      "had a fault, which was read before this request, want a new call");
    }
    if (st == SY_OK && r->ctx->trace != NULL)
        count_rows(r);
    syi_exchange_finish(r, st);
}

/* Whether it has ended; wait: when it has. */
static sy_status poll_mark(sy_request *r, bool wait)
{
    bool done = true, skipped = false;
    const sy_status st = r->way.marked ? gpu_of(r)->reached(r->ctx, &r->mark, wait, &done, &skipped) : SY_OK;
    if (st != SY_OK)
        syi_exchange_fail_gpu(r, st);
    else if (done)
        end(r, skipped);
    return SY_OK;
}

sy_status syi_exchange_poll(sy_request *r)
{
    return poll_mark(r, false);
}

void syi_exchange_sync(sy_request *r)
{
    if (r->now.step == SYI_STEP_QUEUED)
        poll_mark(r, true);
}

/* Later calls of the context come after it, so its routing may be used at once. */
void syi_exchange_run_on_gpu(sy_request *r)
{
    const bool waits = r->ctx->synchronous || r->ctx->trace != NULL;
    sy_status st = queue(r);
    r->way.marked = false;
    if (st == SY_OK && (waits || !r->blocking))
        st = mark(r);
    if (st != SY_OK) {
        syi_exchange_fail_gpu(r, st);
        return;
    }
    r->now.reached_routed = true;
    r->now.step = SYI_STEP_QUEUED;
    if (waits || !r->way.marked)
        poll_mark(r, true);
}

/* ---- Between processes ---- */

/* Of one group, so that all processes see whether rows fit. A combine has a routing; where its rows are copied for
   others, they are copied whole, of which PADDED has too many. */
bool syi_exchange_lists_on_gpu(const sy_request *r)
{
    const struct syi_exchange *x = &r->x;
    const bool combine = syi_is_combine(x);
    int ordinal = 0;
    void *stream;
    if (!r->way.direct || !r->memory->on_gpu || x->n_positions != r->comm->n_devices ||
        (combine && !(x->reuses_routing && (r->way.windowed || x->layout != SY_LAYOUT_PADDED))))
        return false;
    r->memory->place(r->ctx, &ordinal, &stream);
    if (x->reuses_routing && !(x->routing->on_gpu && x->routing->device.ordinal == ordinal))
        return false;
    const struct syi_a2a_plan plan = plan_of(r->comm, x, r->by, x->max_tokens * x->n_positions, r->sequence);
    return gpu_of(r)->can(&plan);
}

sy_status syi_exchange_queue_on_gpu(sy_request *r)
{
    struct syi_a2a_plan plan = plan_of(r->comm, &r->x, r->by, fill_devices(r, r->lists.devices), r->sequence);
    plan.device = r->lists.devices;
    plan.local = r->by->hosts.local;
    struct syi_device_routing *routing = r->x.reuses_routing ? &r->x.routing->device : &r->own.device;
    const sy_status st = gpu_of(r)->run(r->ctx, &plan, routing);
    return st == SY_OK ? r->memory->mark(r->ctx, &r->travel) : st;
}

/* All processes have the same counts, and reach the same verdict. */
void syi_exchange_read_counts(sy_request *r)
{
    const struct syi_exchange *x = &r->x;
    struct syi_a2a_shard *shard = &r->shard[0];
    const bool combine = syi_is_combine(x), counted = !combine && x->layout != SY_LAYOUT_PADDED;
    struct syi_row_counts *const counts = combine || x->reuses_routing ? NULL : r->own.device.row_counts;
    const struct syi_found *found = counts != NULL ? &counts->found : NULL;
    if (found != NULL && found->bad != SYI_GOOD) {
        syi_clear_fault(r->ctx, syi_call_name(r->op));
        r->agreed.verdict =
            (struct syi_verdict){r->kind->fail_found(r->ctx, found), (int)found->device - 1, -1, SYI_SAME};
        syi_exchange_note_error(r->ctx, &r->agreed.notice);
        return;
    }
    for (int d = 0; counted && !x->reuses_routing && d < r->comm->n_devices; d++) {
        const struct syi_row_count need = syi_row_counts_of(counts)[d];
        const int64_t capacity = (int64_t)r->agreed.header[d].capacity, key = need.overfull;
        r->own.need[d] = need.rows;
        if (r->agreed.verdict.status != SY_OK || (key < 0 && need.rows <= capacity))
            continue;
        const struct syi_a2a_hosts *hosts = syi_routing_hosts(r->by);
        syi_clear_fault(r->ctx, syi_call_name(r->op));
        const sy_status st =
            key >= 0
                ? syi_exchange_fail_experts(
                      r, d, hosts->local[hosts->owner != NULL ? key : d * hosts->n_experts + key], need.rows)
                : syi_exchange_fail_rows(r, d, "tokens", capacity, need.rows);
        r->agreed.verdict = (struct syi_verdict){st, d, -1, SYI_SAME};
        syi_exchange_note_error(r->ctx, &r->agreed.notice);
    }
    shard->out.n_rows = combine   ? x->n_slots * shard->n_tokens
                        : counted ? r->by->need[r->comm->device]
                                  : syi_order_tokens(&r->by->group[0].order);
}

sy_status syi_exchange_wait_gpu(sy_request *r, sy_status staged)
{
    sy_status st = staged == SY_OK ? r->memory->wait(r->ctx) : staged;
    if (st != SY_OK)
        return syi_fail_backend(r->ctx, st, "device");
    st = r->kind->poll(r->ctx);
    return st == SY_OK && (r->agreed.mine.flags & SYI_LISTS_ON_GPU) == 0 ? syi_exchange_read_choices(r) : st;
}

sy_status syi_exchange_read_choices(sy_request *r)
{
    if (syi_is_combine(&r->x) || r->x.reuses_routing)
        return SY_OK;
    const sy_status st = r->kind->choices(r->ctx, r);
    if (st == SY_OK)
        syi_exchange_pack_choices(r);
    return st;
}

int syi_exchange_list_on_gpu(const sy_request *r)
{
    int n = 0;
    for (int d = 0; d < r->comm->n_devices; d++)
        n += (r->agreed.header[d].flags & SYI_LISTS_ON_GPU) != 0;
    return n;
}

sy_status syi_exchange_check_counts(sy_request *r)
{
    const bool counted = !syi_is_combine(&r->x) && r->x.layout != SY_LAYOUT_PADDED;
    r->shard[0].out.n_rows = counted ? r->by->need[r->comm->device] : 0;
    const sy_status st = syi_exchange_check_capacity(r);
    return st == SY_OK ? syi_exchange_check_input(r) : st;
}

struct syi_a2a_plan syi_exchange_plan(const sy_routing *routing)
{
    return plan_of(routing->comm, &routing->of, routing, syi_order_tokens(&routing->group[0].order),
                   routing->epoch);
}
