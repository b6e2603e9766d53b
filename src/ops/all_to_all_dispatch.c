/*
 * all_to_all_dispatch: check and plan.
 */
#include "plan/load.h"
#include "ops/all_to_all.h"
#include "ops/row_codes.h"

enum {
    INPUT,
    INDICES,
    MAPPING,
    PLANES, /* three */
    TOKENS = PLANES + SY_A2A_MAX_PLANES - 1,
    METADATA,
    PLANE_TOKENS, /* three */
    PRESENT = PLANE_TOKENS + SY_A2A_MAX_PLANES - 1,
    SRC,
    EXPERT_COUNTS,
    EXPERT_OFFSETS,
    ROWS_FROM,
    ROWS_TO,
    SCALE_TOKENS,
    N_TENSORS
};

#define CHOICE_TYPES (SYI_U16 | SYI_I32 | SYI_I64)
#define MASK_TYPES (SYI_U8 | SYI_BOOL)

#define OPERATOR all_to_all_dispatch
#define PLANE(i) \
    [PLANES + (i)] = SYI_TENSOR(planes[i], SY_FIELD_OPTIONAL | SY_FIELD_ANY_BYTES, 0, 0, 2, 4, \
                                "B 1 S X | N X", "sent with the token"), \
              [PLANE_TOKENS + (i)] = SYI_TENSOR( \
                  plane_tokens[i], SY_FIELD_OUT | SY_FIELD_OPTIONAL | SY_FIELD_KEEPS, 0, PLANES + 1 + (i), \
                  2, 4, "1 B*G S X | T X", "planes[" #i "] of the tokens sent here")

static const sy_field_info fields[] = {
    [INPUT] = SYI_TENSOR(input, SY_FIELD_ANY_BYTES, 0, 0, 2, 4, "B 1 S H | N H",
                         "tokens of this device; also [B,S,1,H]"),
    [INDICES] = SYI_INPUT(expert_indices, CHOICE_TYPES, 0, 2, 4, "B 1 S K | N K",
                          "experts of each token; all bits set: none"),
    [MAPPING] = SYI_TENSOR(expert_mapping, SY_FIELD_SHARED, SYI_U16, 0, 2, 4, "E D | 1 1 E D | D 1 E D",
                           "1 where a device hosts an expert"),
    PLANE(0),
    PLANE(1),
    PLANE(2),
    [TOKENS] = SYI_TENSOR(tokens, SY_FIELD_OUT | SY_FIELD_KEEPS, 0, INPUT + 1, 2, 4, "1 B*G S H | T H",
                          "tokens sent here; packed, expert: [R,H]"),
    [METADATA] = SYI_TENSOR(metadata, SY_FIELD_OUT | SY_FIELD_OPTIONAL | SY_FIELD_KEEPS, 0, INDICES + 1, 2, 4,
                            "1 B*G S K | T K", "experts of all tokens of the group"),
    [PRESENT] =
        SYI_EXTRA_OUTPUT(present, MASK_TYPES, 0, 1, 1, "T", "1 where a row was sent", .words = "masks"),
    [SRC] = SYI_OPTIONAL_OUTPUT(src, SYI_I32, 0, 2, 2, "R 2 | R 3",
                                "position, token (slot) of each; -1: padding"),
    [EXPERT_COUNTS] = SYI_EXTRA_OUTPUT(expert_counts, SYI_I64, 0, 1, 1, "L", "tokens of each local expert",
                                       .words = "counts"),
    [EXPERT_OFFSETS] =
        SYI_OPTIONAL_OUTPUT(expert_offsets, SYI_I64, 0, 1, 1, "L+1", "layout expert: first row of each"),
    [ROWS_FROM] =
        SYI_EXTRA_OUTPUT(rows_from, SYI_I64, 0, 1, 1, "G", "rows from each position", .words = "counts"),
    [ROWS_TO] =
        SYI_EXTRA_OUTPUT(rows_to, SYI_I64, 0, 1, 1, "G", "rows sent to each position", .words = "counts"),
    [SCALE_TOKENS] = SYI_TENSOR(scale_tokens, SY_FIELD_OUT | SY_FIELD_OPTIONAL | SY_FIELD_KEEPS,
                                SYI_SCALE_TYPES, 0, 2, 4, "1 B*G S Q | T Q", "with row_format: their scales"),
    SYI_SCALAR(num_planes, INT, .help = "number of further planes"),
    SYI_SCALAR(cluster_axis, ENUM, .words = "none 0 1",
               .help = "devices that exchange: all, those of a column (0), of a row (1)"),
    SYI_SCALAR(output_concat_dim, INT, .preset = "1",
               .help = "1 or 2: the dimension tokens of a group are concatenated along"),
    SYI_SCALAR(order, ENUM, .words = "concat flat", .help = "order of a group's tokens along dimension 2"),
    SYI_SCALAR(fill, ENUM, .words = "zero keep", .help = "rows that are not sent"),
    SYI_A2A_LAYOUT_FIELDS,
    SYI_SCALAR(reuse_routing, BOOL,
               .help = "routing is an input: expert_indices and expert_mapping are ignored"),
    SYI_SCALAR(routing, ROUTING, .help = "filled for the combine; optional"),
    SYI_A2A_HINT_FIELDS,
    SYI_A2A_REPLICA_FIELDS,
    SYI_ROW_FORMAT_FIELD,
    SYI_EXPERT_ROWS_FIELD,
};

const struct syi_op syi_op_all_to_all_dispatch = {
    .info = SYI_OP_INFO(all_to_all_dispatch, ALL_TO_ALL_DISPATCH,
                        "send tokens to the devices that host their experts", true)};

/* Planes that are asked for come with both their tensors. */
static sy_status check_planes_given(struct syi_call *call, int n)
{
    for (int p = 0; p < n; p++) {
        if (call->tensor[PLANES + p] == NULL)
            return syi_fail(call->ctx, SY_ERR_NULL, syi_name(call, PLANES + p), "is missing, want a tensor");
        if (call->tensor[PLANE_TOKENS + p] == NULL && !call->query)
            return syi_fail(call->ctx, SY_ERR_NULL, syi_name(call, PLANE_TOKENS + p),
                            "is missing, want a tensor");
    }
    return SY_OK;
}

static sy_status check_ranks(struct syi_call *call)
{
    for (int i = INPUT; i < PRESENT; i++)
        SYI_TRY(syi_a2a_check_rank(call, i, 4, 2));
    return syi_a2a_check_rank(call, SCALE_TOKENS, 4, 2);
}

/* Shapes of what comes in. */
static sy_status check_inputs(struct syi_call *call, const sy_comm *comm, struct syi_exchange *x,
                              struct syi_a2a_tokens *tokens)
{
    SYI_TRY(syi_a2a_check_tokens(call, INPUT, tokens));
    SYI_TRY(syi_a2a_check_like(call, INPUT, INPUT));
    SYI_TRY(syi_a2a_check_like(call, INDICES, INPUT));
    for (int p = 0; p < SY_A2A_MAX_PLANES - 1; p++)
        SYI_TRY(syi_a2a_check_like(call, PLANES + p, INPUT));
    if (call->tensor[MAPPING] != NULL)
        SYI_TRY(syi_a2a_check_mapping(call, MAPPING, comm, syi_type_at(call, INDICES), x));
    return SY_OK;
}

/* A given routing holds the mapping and sizes of the dispatch that fills it. */
static sy_status take_routing(struct syi_call *call, const sy_comm *comm, const struct syi_a2a_options *o,
                              const struct syi_a2a_shard *shard, int64_t n_tokens, struct syi_exchange *x)
{
    const sy_all_to_all_dispatch_args *a = &call->args.all_to_all_dispatch;
    const sy_routing *routing = a->routing;
    SYI_TRY(syi_a2a_check_routing(call, comm, routing, o));
    syi_a2a_take_routing(x, routing);
    const int64_t was = routing->tokens[shard->device - comm->device];
    if (n_tokens == was)
        return SY_OK;
    return syi_fail_value(call, SY_ERR_SHAPE, "input", n_tokens, was,
                          "has %lld tokens, want the %lld of the routing");
}

/* Values, and what follows from them. */
static sy_status check_fields(struct syi_call *call, const sy_comm *comm, const struct syi_a2a_shard *shard,
                              const struct syi_a2a_tokens *tokens, struct syi_exchange *x)
{
    const sy_all_to_all_dispatch_args *a = &call->args.all_to_all_dispatch;
    const struct syi_a2a_options o = {
        a->cluster_axis, "output_concat_dim", a->output_concat_dim, a->order,    a->fill,   a->layout,
        a->align,        a->max_tokens,       a->num_links,         a->topology, a->memory, a->subdevice_id,
        a->replica,      a->node_size,        a->expert_rows};
    const int64_t n_tokens = tokens->batch * tokens->run;
    const int most_planes = SY_A2A_MAX_PLANES - (a->row_format != NULL ? 2 : 1); /* scales are one, too */
    SYI_TRY(syi_check_value(call, "num_planes", a->num_planes, 0, most_planes));
    SYI_TRY(syi_a2a_check_options(call, comm, &o, x));
    if (a->reuse_routing)
        return take_routing(call, comm, &o, shard, n_tokens, x);
    SYI_TRY(syi_check_expert_rows(call, x->expert_rows, x->layout, x->align));
    if (a->routing != NULL)
        SYI_TRY(syi_a2a_check_routing_comm(call, comm, a->routing));
    x->n_slots = syi_extent(call, INDICES, call->tensor[INDICES]->ndim - 1);
    x->index_type = syi_type_at(call, INDICES);
    x->strict = a->strict_unique;
    x->batch = tokens->short_form ? 0 : tokens->batch;
    x->run = tokens->short_form ? 0 : tokens->run;
    x->max_tokens = x->ragged ? a->max_tokens : n_tokens;
    x->interleave = x->dim == 2 && x->order == SY_ORDER_CONCAT && !tokens->short_form ? tokens->run : 0;
    return SY_OK;
}

/* Sizes that must be countable. */
static sy_status check_counts(struct syi_call *call, const struct syi_a2a_tokens *tokens,
                              const struct syi_exchange *x, int64_t *group_tokens)
{
    const int64_t n_tokens = tokens->batch * tokens->run;
    SYI_TRY(syi_a2a_check_rows(call, "input", x->max_tokens, x->n_positions, group_tokens));
    int64_t slots = 0, rows = 0;
    SYI_TRY(syi_a2a_check_rows(call, "expert_indices", *group_tokens, x->n_slots, &slots));
    SYI_TRY(syi_a2a_check_layout_rows(call, x, *group_tokens, &rows));
    call->rows = rows;
    call->slots = x->n_slots;
    if (n_tokens <= x->max_tokens)
        return SY_OK;
    return syi_fail_value(call, SY_ERR_CAPACITY, "input", n_tokens, x->max_tokens,
                          "has %lld tokens, want at most max_tokens, %lld");
}

static sy_status check_short(struct syi_call *call, const struct syi_a2a_tokens *tokens)
{
    if (tokens->short_form)
        return SY_OK;
    return syi_fail_code(call, SY_ERR_SHAPE, SY_FAULT_BAD_RANK, "input", 4, 2,
                         "has rank 4 though max_tokens is given, want 2");
}

/* What the shapes of outputs follow from, apart from those of inputs. */
struct known {
    int64_t tokens; /* of the group; at most, where numbers differ and another process has some */
    int64_t rows;   /* of the tokens output; where there is none the most it can need */
    int64_t locals; /* experts of the device; -1: their mapping cannot be read */
};

/* Rows of the caller's choosing: any number, of the right length. */
static sy_status check_any_rows(struct syi_call *call, int i, int64_t rows, int64_t elems)
{
    const DLTensor *t = call->tensor[i];
    SYI_TRY(syi_check_matrix(call, i, t == NULL ? rows : t->shape[0], elems));
    if (t == NULL)
        return SY_OK;
    return syi_a2a_check_rows(call, syi_name(call, i), t->shape[0], 1, &rows);
}

/* The shape of what has a row per token of the group. */
static sy_status check_table(struct syi_call *call, int i, const struct syi_exchange *x, int64_t tokens,
                             int64_t elems)
{
    if (x->ragged || (call->tensor[i] == NULL && x->batch == 0 && x->run == 0))
        return check_any_rows(call, i, tokens, elems);
    const bool second = x->dim == 2;
    return syi_a2a_check_spread(call, i, 1, 1, second ? x->batch : x->batch * x->n_positions,
                                second ? x->run * x->n_positions : x->run, x->max_tokens * x->n_positions,
                                elems);
}

/* A row for each of the output, of `elems` elements. */
static sy_status check_rows_like(struct syi_call *call, int out, int64_t elems, const struct syi_exchange *x,
                                 const struct known *known)
{
    if (x->layout == SY_LAYOUT_PADDED)
        return check_table(call, out, x, known->tokens, elems);
    SYI_TRY(check_any_rows(call, out, known->rows, elems));
    return syi_check_matrix(call, out, known->rows, elems);
}

static sy_status check_rows_of_plane(struct syi_call *call, int in, int out, const struct syi_exchange *x,
                                     const struct known *known)
{
    if (call->tensor[in] == NULL)
        return SY_OK;
    return check_rows_like(call, out, syi_extent(call, in, call->tensor[in]->ndim - 1), x, known);
}

/* Outputs that not every layout has. */
static sy_status check_only(struct syi_call *call, int i, const struct syi_exchange *x, bool has)
{
    if (call->tensor[i] == NULL || has)
        return SY_OK;
    static const char *const layouts[] = {"padded", "packed", "expert"};
    return syi_fail(call->ctx, SY_ERR_VALUE, syi_name(call, i), "is given for layout %s, want none",
                    layouts[x->layout]);
}

static sy_status check_extras(struct syi_call *call, const struct syi_exchange *x, const struct known *known)
{
    const bool padded = x->layout == SY_LAYOUT_PADDED, expert = x->layout == SY_LAYOUT_EXPERT;
    SYI_TRY(check_only(call, PRESENT, x, padded));
    SYI_TRY(check_only(call, SRC, x, !padded));
    SYI_TRY(check_only(call, EXPERT_OFFSETS, x, expert));
    if (padded && (!x->ragged || call->tensor[PRESENT] == NULL))
        SYI_TRY(syi_check_vector(call, PRESENT, known->tokens));
    if (!padded)
        SYI_TRY(syi_check_matrix(call, SRC, known->rows, expert ? 3 : 2));
    SYI_TRY(syi_check_vector(call, ROWS_FROM, x->n_positions));
    return syi_check_vector(call, ROWS_TO, x->n_positions);
}

static sy_status check_outputs(struct syi_call *call, const struct syi_exchange *x,
                               const struct syi_coded *coded, const struct known *known)
{
    SYI_TRY(check_rows_of_plane(call, INPUT, TOKENS, x, known));
    SYI_TRY(check_table(call, METADATA, x, known->tokens, x->n_slots));
    for (int p = 0; p < SY_A2A_MAX_PLANES - 1; p++)
        SYI_TRY(check_rows_of_plane(call, PLANES + p, PLANE_TOKENS + p, x, known));
    if (coded->given != NULL)
        SYI_TRY(check_rows_like(call, SCALE_TOKENS, coded->n_groups, x, known));
    return check_extras(call, x, known);
}

/* ---- For sy_infer_mesh ---- */

/* In one process: of all devices of the group, of which later ones are not validated yet. */
static int64_t tokens_here(const struct syi_call *call, const sy_comm *comm, const struct syi_exchange *x,
                           int device)
{
    const DLTensor *inputs = call->tensor[INPUT] - device;
    int64_t n = 0;
    for (int d = 0; d < comm->n_devices; d++)
        if (syi_group_of(comm->mesh, x->axis, d) == syi_group_of(comm->mesh, x->axis, device) &&
            inputs[d].shape != NULL && inputs[d].ndim == 2 && inputs[d].shape[0] > 0 &&
            inputs[d].shape[0] <= x->max_tokens)
            n += inputs[d].shape[0];
    return n;
}

static int64_t local_experts(const struct syi_call *call, const struct syi_exchange *x, int device)
{
    const DLTensor *t = call->tensor[MAPPING];
    if (call->args.all_to_all_dispatch.reuse_routing)
        return call->args.all_to_all_dispatch.routing->hosts.n_local[device];
    if (t->data == NULL || !syi_in_cpu_memory(call, MAPPING))
        return -1;
    const struct syi_rows mapping = syi_rows_of(call, MAPPING);
    int64_t n = 0;
    for (int64_t e = 0; e < x->n_experts; e++)
        n += syi_load_u16(syi_row_at(mapping, e) + 2 * (size_t)device) == 1;
    return n;
}

static void record_outputs(struct syi_call *call, const sy_comm *comm, const struct syi_exchange *x,
                           const struct syi_coded *coded, struct known *known, int device)
{
    const sy_all_to_all_dispatch_args *a = &call->args.all_to_all_dispatch;
    known->locals = local_experts(call, x, device);
    if (a->reuse_routing)
        known->tokens = syi_routing_group_tokens(a->routing, device);
    else if (x->ragged && comm->local)
        known->tokens = tokens_here(call, comm, x, device);
    syi_exchange_max_rows(x, known->tokens, known->locals < 0 ? x->n_experts : known->locals, &known->rows);
    check_outputs(call, x, coded, known);
    syi_check_vector(call, EXPERT_COUNTS, known->locals);
    if (x->layout == SY_LAYOUT_EXPERT)
        syi_check_vector(call, EXPERT_OFFSETS, known->locals < 0 ? -1 : known->locals + 1);
}

/* Codes take the place of the rows, and scales are the last plane; the engine makes both. */
static void fill_codes(struct syi_call *call, const struct syi_coded *coded, struct syi_exchange *x,
                       struct syi_a2a_shard *shard)
{
    x->codes = syi_coded_plan(call, coded, shard->n_tokens);
    if (coded->given == NULL)
        return;
    x->elem_types = syi_coded_hash(x->elem_types, coded);
    const int last = x->n_planes++;
    x->row_bytes[0] = (size_t)coded->hidden;
    x->row_bytes[last] = x->codes.scale_bytes;
    shard->dense = shard->from[0];
    shard->to[last] = syi_rows_of(call, SCALE_TOKENS);
}

static void fill_planes(const struct syi_call *call, struct syi_exchange *x, struct syi_a2a_shard *shard)
{
    x->n_planes = 1 + call->args.all_to_all_dispatch.num_planes;
    x->elem_types = 0;
    for (int p = 0; p < x->n_planes; p++) {
        const int in = p == 0 ? INPUT : PLANES + p - 1, out = p == 0 ? TOKENS : PLANE_TOKENS + p - 1;
        const DLTensor *t = call->tensor[in];
        x->row_bytes[p] = (size_t)t->shape[t->ndim - 1] * syi_elem_bytes(t->dtype);
        x->elem_types = syi_hash_with(x->elem_types, syi_type_bits(t->dtype));
        shard->from[p] = syi_rows_of(call, in);
        shard->to[p] = syi_rows_of(call, out);
    }
}

/* Rows of a tensor with a row per token of the group; many when it is not there. */
static int64_t table_rows(const struct syi_call *call, int i)
{
    const DLTensor *t = call->tensor[i];
    if (t == NULL)
        return INT32_MAX;
    return t->ndim == 4 ? t->shape[1] * t->shape[2] : t->shape[0];
}

static void fill_shard(struct syi_call *call, const struct syi_coded *coded, struct syi_exchange *x,
                       struct syi_a2a_shard *shard)
{
    fill_planes(call, x, shard);
    fill_codes(call, coded, x, shard);
    const int64_t table = table_rows(call, METADATA), present = table_rows(call, PRESENT);
    shard->capacity = table_rows(call, TOKENS);
    shard->table = table < present ? table : present;
    shard->indices = syi_rows_of(call, INDICES);
    shard->extras.metadata = syi_rows_of(call, METADATA);
    shard->mask = (struct syi_rows){syi_data(call, PRESENT), 0};
    shard->extras.src = syi_rows_of(call, SRC);
    shard->extras.expert_counts = syi_data(call, EXPERT_COUNTS);
    shard->extras.expert_offsets = syi_data(call, EXPERT_OFFSETS);
    shard->extras.rows_from = syi_data(call, ROWS_FROM);
    shard->extras.rows_to = syi_data(call, ROWS_TO);
    x->mapping = syi_rows_of(call, MAPPING);
    x->mapping_in_cpu = syi_in_cpu_memory(call, MAPPING);
    x->routing = call->args.all_to_all_dispatch.routing;
    x->reuses_routing = call->args.all_to_all_dispatch.reuse_routing;
}

static sy_status check(struct syi_call *call, const sy_request *r, struct syi_exchange *x,
                       struct syi_a2a_shard *shard)
{
    const sy_all_to_all_dispatch_args *a = &call->args.all_to_all_dispatch;
    const int n_planes = a->num_planes < 0 || a->num_planes >= SY_A2A_MAX_PLANES ? 0 : a->num_planes;
    for (int p = n_planes; p < SY_A2A_MAX_PLANES - 1; p++)
        call->tensor[PLANES + p] = call->tensor[PLANE_TOKENS + p] = NULL;
    if (a->reuse_routing)
        call->tensor[INDICES] = call->tensor[MAPPING] = call->tensor[METADATA] = NULL;
    struct syi_a2a_tokens tokens = {0};
    struct syi_coded coded = {
        .given = a->row_format, .dense = INPUT, .codes = TOKENS, .scales = SCALE_TOKENS};
    struct known known = {0};
    SYI_TRY(check_planes_given(call, n_planes));
    SYI_TRY(syi_coded_begin(call, &coded));
    SYI_TRY(syi_check_tensors(call, false));
    SYI_TRY(check_ranks(call));
    SYI_TRY(syi_coded_check(call, &coded));
    SYI_TRY(check_inputs(call, r->comm, x, &tokens));
    SYI_TRY(syi_check_sizes(call));
    SYI_TRY(check_fields(call, r->comm, shard, &tokens, x));
    if (x->ragged)
        SYI_TRY(check_short(call, &tokens));
    SYI_TRY(check_counts(call, &tokens, x, &known.tokens));
    known.rows = syi_extent(call, TOKENS, 0);
    if (!call->query)
        SYI_TRY(check_outputs(call, x, &coded, &known));
    SYI_TRY(syi_check_layout(call));
    if (call->shapes != NULL)
        record_outputs(call, r->comm, x, &coded, &known, shard->device);
    shard->n_tokens = tokens.batch * tokens.run;
    fill_shard(call, &coded, x, shard);
    return SY_OK;
}

static sy_status read_choices(sy_ctx *ctx, const sy_request *r, const struct syi_exchange *x,
                              struct syi_a2a_shard *shard)
{
    struct syi_rows indices = shard->indices;
    const sy_status st = r->memory->read(ctx, &indices, shard->n_tokens, syi_exchange_choice_bytes(x));
    if (st != SY_OK)
        return syi_fail_backend(ctx, st, "expert_indices");
    shard->read = indices;
    return syi_a2a_read_choices(ctx, INDICES, indices, x->index_type, shard->n_tokens, x->n_slots,
                                x->n_experts, x->strict, NULL);
}

static sy_status choices(sy_ctx *ctx, sy_request *r)
{
    ctx->device = r->comm->device + 1;
    const sy_status st =
        syi_describe_found(ctx, &syi_op_all_to_all_dispatch.info, read_choices(ctx, r, &r->x, &r->shard[0]));
    ctx->device = 0;
    return st;
}

static sy_status fail_found(sy_ctx *ctx, const struct syi_found *found)
{
    ctx->device = (int)found->device;
    const sy_status st = syi_describe_found(ctx, &syi_op_all_to_all_dispatch.info, syi_report(ctx, *found));
    ctx->device = 0;
    return st;
}

static sy_status contents(struct syi_call *call, sy_request *r, const struct syi_exchange *x,
                          struct syi_a2a_shard *shard)
{
    const sy_comm *comm = r->comm;
    if (shard->device == comm->device)
        SYI_TRY(syi_routing_begin(r));
    const struct syi_a2a_hosts *hosts = x->reuses_routing ? &x->routing->hosts : &r->own.hosts;
    const int64_t n_local = hosts->n_local[shard->device];
    SYI_TRY(syi_check_vector(call, EXPERT_COUNTS, n_local));
    SYI_TRY(syi_check_vector(call, EXPERT_OFFSETS, n_local + 1));
    if (x->reuses_routing || r->way.runs_on_gpu || (r->memory->on_gpu && !comm->local))
        return SY_OK;
    return read_choices(call->ctx, r, x, shard);
}

static sy_status copy_args(struct syi_call *call, const void *args, size_t args_bytes)
{
    SYI_TRY(syi_copy_args(call, args, args_bytes));
    const sy_all_to_all_dispatch_args *a = &call->args.all_to_all_dispatch;
    call->spared = a->reuse_routing ? 1u << INDICES | 1u << MAPPING : 0;
    if (!a->reuse_routing)
        return SY_OK;
    return a->routing != NULL
               ? SY_OK
               : syi_fail(call->ctx, SY_ERR_NULL, "routing", "is NULL and to be reused, want a routing");
}

const struct syi_exchange_op syi_exchange_all_to_all_dispatch = {
    &syi_op_all_to_all_dispatch.info,
    syi_a2a_validate,
    copy_args,
    check,
    contents,
    choices,
    fail_found,
    syi_device_poll,
};

SYI_DEFINE_EXCHANGE(all_to_all_dispatch)
