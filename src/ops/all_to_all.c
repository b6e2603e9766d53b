/*
 * The checks all_to_all_dispatch and all_to_all_combine share, and the order devices are validated in: everything about
 * device 0 comes before anything about device 1, in one process as in many.
 */
#include "ops/all_to_all.h"

/* ---- Shapes ---- */

sy_status syi_a2a_check_rank(struct syi_call *call, int i, int full, int shorter)
{
    const DLTensor *t = call->tensor[i];
    if (t == NULL || t->ndim == full || t->ndim == shorter)
        return SY_OK;
    return syi_fail_with(call->ctx, SY_ERR_SHAPE, SY_FAULT_BAD_RANK, syi_name(call, i), t->ndim, full,
                         "has rank %d, want %d or %d", (int)t->ndim, full, shorter);
}

sy_status syi_a2a_check_tokens(struct syi_call *call, int i, struct syi_a2a_tokens *tokens)
{
    const DLTensor *t = call->tensor[i];
    tokens->short_form = t->ndim == 2;
    tokens->batch = t->shape[0];
    tokens->run = 1;
    if (tokens->short_form)
        return SY_OK;
    tokens->run = t->shape[1] == 1 ? t->shape[2] : t->shape[1];
    if (t->shape[1] == 1 || t->shape[2] == 1)
        return SY_OK;
    return syi_fail(call->ctx, SY_ERR_SHAPE, syi_name(call, i),
                    "has shape [%lld,%lld,%lld,%lld], want 1 in dimension 1 or 2", (long long)t->shape[0],
                    (long long)t->shape[1], (long long)t->shape[2], (long long)t->shape[3]);
}

sy_status syi_a2a_check_like(struct syi_call *call, int i, int j)
{
    const DLTensor *t = call->tensor[i], *like = call->tensor[j];
    if (t == NULL)
        return SY_OK;
    int64_t shape[SYI_MAX_RANK];
    for (int d = 0; d < like->ndim; d++)
        shape[d] = like->shape[d];
    shape[like->ndim - 1] = t->shape[t->ndim - 1];
    SYI_TRY(syi_check_shape(call, i, like->ndim, shape));
    if (shape[like->ndim - 1] > 0)
        return SY_OK;
    return syi_fail_code(call, SY_ERR_SHAPE, SY_FAULT_EMPTY, syi_name(call, i), 0, 1,
                         "has rows of 0 elements, want 1 or more");
}

sy_status syi_a2a_check_spread(struct syi_call *call, int i, int lead, int64_t first, int64_t batch,
                               int64_t run, int64_t n_tokens, int64_t elems)
{
    const DLTensor *t = call->tensor[i];
    const int rank = t != NULL ? t->ndim : lead + (batch > 0 || run > 0 ? 3 : 2);
    int64_t shape[SYI_MAX_RANK];
    int n = 0;
    if (lead > 0 && rank > 2)
        shape[n++] = first;
    const int middle = rank - n - 1; /* dimensions of tokens */
    const int64_t *own = t != NULL ? t->shape + n : NULL;
    int64_t product = 1; /* of them; the tensor's bytes were counted */
    for (int d = 0; d < middle && own != NULL; d++)
        product *= own[d];
    if (middle == 1 || (batch == 0 && own != NULL && product != n_tokens)) {
        shape[n++] = n_tokens;
    } else if (batch == 0 && own != NULL) {
        for (int d = 0; d < middle; d++)
            shape[n++] = own[d];
    } else {
        shape[n++] = batch;
        if (middle == 3)
            shape[n++] = 1;
        shape[n++] = run;
    }
    shape[n++] = elems;
    return syi_check_shape(call, i, n, shape);
}

sy_status syi_a2a_check_row_elems(struct syi_call *call, int i, int64_t n)
{
    const DLTensor *t = call->tensor[i];
    return t->shape[t->ndim - 1] == n
               ? SY_OK
               : syi_fail_value(call, SY_ERR_SHAPE, syi_name(call, i), t->shape[t->ndim - 1], n,
                                "has rows of %lld elements, want %lld");
}

/* [E,D], [1,1,E,D] or [D,1,E,D]. */
sy_status syi_a2a_check_mapping(struct syi_call *call, int i, const sy_comm *comm, sy_type index_type,
                                struct syi_exchange *x)
{
    const DLTensor *t = call->tensor[i];
    const int64_t copies = t->ndim == 4 ? t->shape[0] : 1, experts = t->shape[t->ndim - 2];
    const bool copied = t->ndim == 2 || ((copies == 1 || copies == comm->n_devices) && t->shape[1] == 1);
    const int64_t want[4] = {copies == 1 ? 1 : comm->n_devices, 1, experts, comm->n_devices};
    if (!copied || t->shape[t->ndim - 1] != comm->n_devices)
        return t->ndim == 2 ? syi_check_matrix(call, i, experts, comm->n_devices)
                            : syi_check_shape(call, i, 4, want);
    const int64_t most = index_type == SY_TYPE_U16 ? UINT16_MAX : INT32_MAX;
    if (experts < 1 || experts > most) {
        return syi_fail_with(call->ctx, SY_ERR_SHAPE, SY_FAULT_NONE, syi_name(call, i), experts,
                             experts < 1 ? 1 : most, "has %lld experts, want 1 to %lld", (long long)experts,
                             (long long)most);
    }
    x->n_experts = experts;
    x->n_copies = copies;
    return SY_OK;
}

sy_status syi_a2a_check_rows(struct syi_call *call, const char *argument, int64_t a, int64_t b, int64_t *rows)
{
    if (syi_mul(a, b, rows) && *rows <= INT32_MAX)
        return SY_OK;
    return syi_fail_with(call->ctx, SY_ERR_OVERFLOW, SY_FAULT_NONE, argument, a, INT32_MAX,
                         "means %lld times %lld rows, want fewer than 2^31", (long long)a, (long long)b);
}

sy_status syi_a2a_check_layout_rows(struct syi_call *call, const struct syi_exchange *x, int64_t group_tokens,
                                    int64_t *rows)
{
    if (syi_exchange_max_rows(x, group_tokens, x->n_experts, rows))
        return SY_OK;
    const bool fixed = x->expert_rows > 0;
    return syi_fail_with(call->ctx, SY_ERR_OVERFLOW, SY_FAULT_NONE, fixed ? "expert_rows" : "align",
                         fixed ? x->expert_rows : x->align, INT32_MAX,
                         "is %lld for %lld experts, want fewer than 2^31 rows",
                         (long long)(fixed ? x->expert_rows : x->align), (long long)x->n_experts);
}

/* ---- Options ---- */

static sy_status check_axis(struct syi_call *call, sy_axis axis)
{
    const int a = (int)axis;
    if (a >= SY_AXIS_ALL && a <= SY_AXIS_1)
        return SY_OK;
    return syi_fail_with(call->ctx, SY_ERR_VALUE, SY_FAULT_BAD_OPTION, "cluster_axis", a, SY_AXIS_1,
                         "is axis %lld of a mesh, want all, 0 or 1", (long long)a - SY_AXIS_0);
}

/* Enums and hints. */
static sy_status check_words(struct syi_call *call, const struct syi_a2a_options *o)
{
    SYI_TRY(check_axis(call, o->axis));
    if (o->dim != 0)
        SYI_TRY(syi_check_value(call, o->dim_name, o->dim, 1, 2));
    SYI_TRY(syi_check_enum(call, "order", (int)o->order));
    SYI_TRY(syi_check_enum(call, "fill", (int)o->fill));
    SYI_TRY(syi_check_enum(call, "layout", (int)o->layout));
    SYI_TRY(syi_check_value(call, "align", o->align, 0, INT32_MAX));
    SYI_TRY(syi_check_value(call, "max_tokens", o->max_tokens, 0, INT32_MAX));
    SYI_TRY(syi_check_enum(call, "replica", (int)o->replica));
    SYI_TRY(syi_check_value(call, "node_size", o->node_size, 0, INT64_MAX));
    SYI_TRY(syi_check_value(call, "expert_rows", o->expert_rows, 0, INT32_MAX));
    SYI_TRY(syi_check_value(call, "num_links", o->num_links, 0, INT32_MAX));
    SYI_TRY(syi_check_enum(call, "topology", (int)o->topology));
    SYI_TRY(syi_check_enum(call, "memory", (int)o->memory));
    return syi_check_value(call, "subdevice_id", o->subdevice_id, 0, 0);
}

/* A group has whole nodes. Beside a routing whose axis is left out it is the mesh, a multiple of the routing's group. */
static sy_status check_nodes(struct syi_call *call, int64_t node_size, int n_positions)
{
    if (node_size == 0 || n_positions % node_size == 0)
        return SY_OK;
    return syi_fail_value(call, SY_ERR_VALUE, "node_size", node_size, n_positions,
                          "is %lld, want a divisor of %lld, the devices of a group");
}

sy_status syi_a2a_check_options(struct syi_call *call, const sy_comm *comm, const struct syi_a2a_options *o,
                                struct syi_exchange *x)
{
    SYI_TRY(check_words(call, o));
    if (o->memory == SY_MEMORY_SHARDED)
        return syi_fail(call->ctx, SY_ERR_UNSUPPORTED, "memory", "is sharded, want auto, dram or l1");
    x->axis = o->axis;
    x->n_positions = syi_group_size(comm->mesh, o->axis);
    x->ragged = o->max_tokens > 0;
    x->dim = o->dim == 2 ? 2 : 1;
    x->order = o->order;
    x->layout = o->layout;
    x->align = o->align > 0 ? o->align : 1;
    x->expert_rows = o->expert_rows;
    x->zero = o->fill == SY_FILL_ZERO;
    x->num_links = o->num_links > 0 ? o->num_links : 1;
    x->topology = o->topology;
    x->rule = (struct syi_a2a_rule){o->replica, (int)o->node_size};
    int64_t pairs; /* of experts and hosts, which choices name */
    SYI_TRY(check_nodes(call, o->node_size, x->n_positions));
    return o->replica == SY_A2A_REPLICA_ALL
               ? SY_OK
               : syi_a2a_check_rows(call, "expert_mapping", x->n_experts, comm->n_devices, &pairs);
}

/* ---- Routing given by the caller ---- */

sy_status syi_a2a_check_routing_comm(struct syi_call *call, const sy_comm *comm, const sy_routing *routing)
{
    return routing->comm == comm ? SY_OK
                                 : syi_fail(call->ctx, SY_ERR_STATE, "routing",
                                            "was made for another comm, want one of this comm");
}

static sy_status check_same(struct syi_call *call, const char *field, int64_t value, int64_t was)
{
    if (value == 0 || value == was)
        return SY_OK;
    return syi_fail_value(call, SY_ERR_VALUE, field, value, was,
                          "is %lld, want %lld as in the routing, or 0");
}

sy_status syi_a2a_check_routing(struct syi_call *call, const sy_comm *comm, const sy_routing *routing,
                                const struct syi_a2a_options *o)
{
    SYI_TRY(syi_a2a_check_routing_comm(call, comm, routing));
    if (!routing->filled)
        return syi_fail(call->ctx, SY_ERR_STATE, "routing", "is empty, want one that a dispatch has filled");
    if (syi_routing_awaited(routing))
        return syi_fail(call->ctx, SY_ERR_STATE, "routing",
                        "is being filled by an open request, want one that has reached SY_PHASE_ROUTED");
    const struct syi_exchange *of = &routing->of;
    SYI_TRY(check_same(call, "cluster_axis", (int64_t)o->axis, (int64_t)of->axis));
    SYI_TRY(check_same(call, o->dim_name, o->dim, of->dim));
    SYI_TRY(check_same(call, "order", (int64_t)o->order, (int64_t)of->order));
    SYI_TRY(check_same(call, "layout", (int64_t)o->layout, (int64_t)of->layout));
    SYI_TRY(check_same(call, "align", o->align, of->align));
    SYI_TRY(check_same(call, "max_tokens", o->max_tokens, of->ragged ? of->max_tokens : 0));
    SYI_TRY(check_same(call, "replica", (int64_t)o->replica, (int64_t)of->rule.replica));
    SYI_TRY(check_same(call, "node_size", o->node_size, of->rule.node_size));
    return check_same(call, "expert_rows", o->expert_rows, of->expert_rows);
}

void syi_a2a_take_routing(struct syi_exchange *x, const sy_routing *routing)
{
    const struct syi_exchange *of = &routing->of;
    x->axis = of->axis;
    x->dim = of->dim;
    x->order = of->order;
    x->n_positions = of->n_positions;
    x->interleave = of->interleave;
    x->max_tokens = of->max_tokens;
    x->ragged = of->ragged;
    x->n_slots = of->n_slots;
    x->n_experts = of->n_experts;
    x->index_type = of->index_type;
    x->layout = of->layout;
    x->align = of->align;
    x->expert_rows = of->expert_rows;
    x->batch = of->batch;
    x->run = of->run;
    x->rule = of->rule;
}

/* ---- Devices of one process ---- */

/* Remembers where a device's tensors lie; the mapping belongs to all of them. */
static int spans_of(const struct syi_call *call, struct syi_a2a_span *span)
{
    int n = 0;
    for (int i = 0; i < call->op->info.n_tensors; i++) {
        const DLTensor *t = call->tensor[i];
        int64_t bytes;
        if (t == NULL || !syi_span_bytes(t, &bytes) || bytes == 0)
            continue;
        const uintptr_t start = (uintptr_t)t->data + (uintptr_t)t->byte_offset;
        span[n++] = (struct syi_a2a_span){t, start, start + (uintptr_t)bytes, syi_name(call, i),
                                          (call->op->info.fields[i].flags & SY_FIELD_OUT) != 0};
    }
    return n;
}

/* No output of this device shares a byte with a tensor of one before it, and the other way round. */
static sy_status check_apart(struct syi_call *call, const sy_request *r, int shard)
{
    struct syi_a2a_span *mine = r->spans + (size_t)shard * SYI_MAX_TENSORS;
    r->n_spans[shard] = spans_of(call, mine);
    for (int i = 0; i < r->n_spans[shard]; i++)
        for (int s = 0; s < shard; s++) {
            const struct syi_a2a_span *other = r->spans + (size_t)s * SYI_MAX_TENSORS;
            for (int j = 0; j < r->n_spans[s]; j++)
                if ((mine[i].out || other[j].out) && mine[i].start < other[j].end &&
                    other[j].start < mine[i].end && mine[i].t != other[j].t &&
                    !syi_tensors_apart(mine[i].t, other[j].t))
                    return syi_fail(call->ctx, SY_ERR_ALIAS, mine[i].name,
                                    "overlaps %s of device %d in memory, want separate memory", other[j].name,
                                    s);
        }
    return SY_OK;
}

/* The tensors of one device: every field is an array of them, but for what all devices share. */
static void take_shard(struct syi_call *call, const DLTensor *const *all, int shard)
{
    for (int i = 0; i < call->op->info.n_tensors; i++) {
        const bool shared = call->op->info.fields[i].flags & SY_FIELD_SHARED;
        call->tensor[i] = all[i] == NULL ? NULL : shared ? all[i] : all[i] + shard;
    }
}

/* Everything that must be equal in all processes, in one number. */
static uint64_t hash_params(const sy_comm *comm, const struct syi_exchange *x, bool on_gpu)
{
    enum { ROW_BYTES = 16, REPLICA = ROW_BYTES + SY_A2A_MAX_PLANES, NODE_SIZE, EXPERT_ROWS, N_WORDS = 24 };
    int64_t words[N_WORDS] = {
        (int64_t)comm->options_hash,
        x->axis,
        x->interleave,
        x->ragged ? x->max_tokens : -1,
        x->n_slots,
        x->n_experts,
        (int64_t)x->index_type,
        (int64_t)x->layout,
        x->align,
        x->strict,
        x->local_reduce,
        x->sum,
        x->n_planes,
        (int64_t)x->elem_types,
        x->num_links,
        x->reuses_routing + 2 * on_gpu,
        [REPLICA] = (int64_t)x->rule.replica,
        [NODE_SIZE] = x->rule.node_size,
        [EXPERT_ROWS] = x->expert_rows,
    };
    for (int p = 0; p < x->n_planes; p++)
        words[ROW_BYTES + p] = (int64_t)x->row_bytes[p];
    return syi_a2a_hash_words(words, N_WORDS);
}

static void fill_header(sy_request *r, const struct syi_exchange *x, const struct syi_a2a_shard *shard,
                        sy_status status, struct syi_header *header)
{
    const sy_comm *comm = r->comm;
    *header = (struct syi_header){
        .version = SYI_HEADER_VERSION,
        .op = (uint8_t)r->x.id,
        .status = (uint8_t)status,
        .slot = (uint8_t)r->slot,
        .stage = SYI_NO_SEGMENT,
        .window = SYI_NO_SEGMENT,
        .sequence = r->sequence,
        .params = comm->options_hash,
    };
    if (status != SY_OK)
        return;
    const bool on_gpu = r->memory->on_gpu;
    header->params ^= on_gpu; /* also unchecked: it decides how rows move */
    header->axis = (uint8_t)x->axis;
    header->flags = x->ragged ? SYI_RAGGED : 0;
    header->tokens = (uint32_t)shard->n_tokens;
    header->capacity = (uint32_t)shard->capacity;
    header->table = (uint32_t)shard->table;
    if (!comm->local && comm->options.check == SY_CHECK_NONE)
        return;
    header->params = hash_params(comm, x, on_gpu);
    header->mapping = x->reuses_routing ? 0 : r->own.hosts.hash;
    header->routing = x->reuses_routing ? x->routing->epoch : shard->table_hash;
}

/* Tensors on a GPU: faults of earlier calls, whose work has ended on a mesh inside one process. */
static sy_status check_memory(struct syi_call *call, sy_request *r, const struct syi_a2a_shard *shard)
{
    const sy_comm *comm = r->comm;
    const struct syi_exchange *x = &r->x;
    if (!r->memory->on_gpu && !comm->local && comm->transport.only_device)
        return syi_fail(call->ctx, SY_ERR_UNSUPPORTED, "comm",
                        "is over %s, which moves rows on devices, want tensors on a device",
                        comm->transport.name);
    if (!r->memory->on_gpu)
        return SY_OK;
    sy_status st = comm->local ? SY_OK : syi_comm_check_device(call->ctx, comm, r->memory);
    if (st != SY_OK || call->query)
        return st;
    r->way.runs_on_gpu = syi_exchange_runs_on_gpu(r, NULL);
    if (!r->way.runs_on_gpu)
        st = r->memory->begin(call->ctx, x->reuses_routing ? NULL : &shard->indices,
                              !syi_is_combine(x) ? shard->n_tokens : shard->table,
                              syi_exchange_choice_bytes(x));
    if (st == SY_OK && !r->way.runs_on_gpu && comm->local)
        st = r->memory->wait(call->ctx);
    return st == SY_OK ? syi_device_poll(call->ctx) : syi_fail_backend(call->ctx, st, call->backend->name);
}

/* A device's tensors are wrong, and the contents of those before it, which come first, are on a GPU: they are read here, but for
   a capture. */
static sy_status read_earlier(struct syi_call *call, sy_request *r, const struct syi_exchange_op *op,
                              const DLTensor *const *all, int n, sy_status found)
{
    sy_ctx *const ctx = call->ctx;
    const sy_fault fault = ctx->fault;
    char error[sizeof ctx->error];
    memcpy(error, ctx->error, sizeof error);
    if (r->x.reuses_routing || r->memory->mesh->captures(ctx) || r->memory->begin(ctx, NULL, 0, 0) != SY_OK)
        return found;
    r->way.runs_on_gpu = false;
    for (int s = 0; s < n; s++) {
        ctx->device = s + 1;
        ctx->found.bad = SYI_GOOD;
        take_shard(call, all, s);
        const sy_status st = syi_describe_found(ctx, op->info, op->contents(call, r, &r->x, &r->shard[s]));
        if (st != SY_OK)
            return st;
    }
    ctx->fault = fault;
    memcpy(ctx->error, error, sizeof error);
    return found;
}

/* Every device's checks, then its contents, in order of device; their headers. Sets request->x. A query has no
   contents and no headers, and may have `capacity` for the shapes of some devices. */
static sy_status validate_shards(struct syi_call *call, sy_request *r, const struct syi_exchange_op *op,
                                 int capacity)
{
    const DLTensor *all[SYI_MAX_TENSORS];
    sy_shape *const shapes = call->shapes;
    memcpy(all, call->tensor, sizeof all);
    sy_status st = SY_OK;
    int64_t rows = 0;
    for (int s = 0; st == SY_OK && s < r->comm->n_shards; s++) {
        struct syi_exchange x = {.id = r->x.id};
        struct syi_a2a_shard *shard = &r->shard[call->query ? 0 : s];
        *shard = (struct syi_a2a_shard){.device = r->comm->device + s};
        call->ctx->device = shard->device + 1;
        take_shard(call, all, s);
        call->shapes = s < capacity ? shapes + (size_t)s * (size_t)op->info->n_tensors : NULL;
        st = op->check(call, r, &x, shard);
        if (st == SY_OK && s == 0) {
            r->x = x;
            r->memory = call->backend->memory;
            rows = call->rows;
            st = check_memory(call, r, shard);
        }
        shard->n_slots = x.n_slots;
        shard->n_experts = x.n_experts;
        shard->row_bytes = x.row_bytes[0];
        if (call->query)
            continue;
        if (st == SY_OK)
            st = check_apart(call, r, s);
        if (st == SY_OK)
            st = syi_describe_found(call->ctx, op->info, op->contents(call, r, &x, shard));
        if (st != SY_OK && r->way.runs_on_gpu && s > 0)
            st = read_earlier(call, r, op, all, s, st);
        fill_header(r, &x, shard, st, r->comm->local ? &r->agreed.header[s] : &r->agreed.mine);
    }
    call->ctx->device = 0;
    call->rows = rows; /* a query tells of the first */
    return st;
}

static const struct syi_op *op_of(const struct syi_exchange_op *op)
{
    return (const struct syi_op *)(const void *)op->info; /* its first member */
}

sy_status syi_a2a_validate(sy_ctx *ctx, const struct syi_exchange_op *op, const void *args, size_t args_bytes,
                           sy_request *r)
{
    struct syi_call call = {.ctx = ctx, .op = op_of(op), .backend = syi_host_backend};
    SYI_TRY(op->copy_args(&call, args, args_bytes));
    return validate_shards(&call, r, op, 0);
}

sy_status syi_a2a_infer(sy_ctx *ctx, sy_comm *comm, const struct syi_exchange_op *op, const void *args,
                        size_t args_bytes, sy_query *query, sy_shape *shapes, int n)
{
    struct syi_call call = {
        .ctx = ctx, .op = op_of(op), .query = true, .shapes = shapes, .backend = syi_host_backend};
    struct syi_a2a_shard one;
    sy_request r = {.comm = comm, .ctx = ctx, .x.id = (enum syi_op_id)op->info->number, .shard = &one};
    syi_clear_fault(ctx, op->info->name);
    SYI_TRY(op->copy_args(&call, args, args_bytes));
    if (comm == NULL)
        return syi_fail(ctx, SY_ERR_NULL, "comm", "is NULL, want a comm");
    SYI_TRY(validate_shards(&call, &r, op, n / op->info->n_tensors));
    *query = (sy_query){call.rows, call.slots, 0};
    return SY_OK;
}

sy_status syi_a2a_query(sy_ctx *ctx, sy_comm *comm, const struct syi_exchange_op *op, const void *args,
                        size_t args_bytes, sy_query *query, size_t query_bytes)
{
    if (ctx == NULL)
        return SY_ERR_NULL;
    sy_query answer;
    SYI_TRY(syi_a2a_infer(ctx, comm, op, args, args_bytes, &answer, NULL, 0));
    return syi_answer(ctx, &answer, query, query_bytes);
}
