/*
 * all_to_all_combine: check and plan.
 */
#include "ops/all_to_all.h"
#include "ops/row_codes.h"

enum { INPUT, METADATA, MAPPING, WEIGHTS, SCALES, OUTPUT, WRITTEN, OUTPUT_SCALES, N_TENSORS };

#define CHOICE_TYPES (SYI_U16 | SYI_I32 | SYI_I64)
#define MASK_TYPES (SYI_U8 | SYI_BOOL)

#define OPERATOR all_to_all_combine

static const sy_field_info fields[] = {
    [INPUT] = SYI_TENSOR(input, SY_FIELD_ANY_BYTES, 0, 0, 2, 4, "L B*G S H | L T H",
                         "expert rows; L: of a device, local_reduce: 1"),
    [METADATA] = SYI_INPUT(expert_metadata, CHOICE_TYPES, 0, 2, 4, "1 B*G S K | T K",
                           "experts of all tokens, as dispatch wrote them"),
    [MAPPING] = SYI_TENSOR(expert_mapping, SY_FIELD_SHARED, SYI_U16, 0, 2, 4, "E D | 1 1 E D | D 1 E D",
                           "1 where a device hosts an expert"),
    [WEIGHTS] = SYI_OPTIONAL(weights, SYI_FLOAT_TYPES, 0, 2, 4, "B 1 S K | N K",
                             "weights of each token's slots; with sum"),
    [SCALES] = SYI_OPTIONAL(input_scales, SYI_SCALE_TYPES, 0, 2, 4, "L B*G S Q | L T Q",
                            "with row_format: scales of the rows"),
    [OUTPUT] = SYI_TENSOR(output, SY_FIELD_OUT | SY_FIELD_KEEPS, 0, INPUT + 1, 2, 4, "K B S H | K N H",
                          "rows of slots; sum: no K; fill keep: old rows"),
    [WRITTEN] =
        SYI_EXTRA_OUTPUT(written, MASK_TYPES, 0, 2, 2, "K N", "1 where a row was written", .words = "masks"),
    [OUTPUT_SCALES] =
        SYI_TENSOR(output_scales, SY_FIELD_OUT | SY_FIELD_OPTIONAL | SY_FIELD_KEEPS, SYI_SCALE_TYPES, 0, 2, 4,
                   "K B S Q | K N Q", "with row_format, without sum: their scales"),
    SYI_SCALAR(local_reduce, BOOL,
               .help = "the input holds one row per token, summed over the device's experts"),
    SYI_SCALAR(sum, BOOL, .help = "the output is the weighted sum over the slots"),
    SYI_SCALAR(cluster_axis, ENUM, .words = "none 0 1",
               .help = "devices that exchange: all, those of a column (0), of a row (1)"),
    SYI_SCALAR(output_shard_dim, INT, .preset = "1",
               .help = "1 or 2: the dimension tokens of a group are split along"),
    SYI_SCALAR(order, ENUM, .words = "concat flat", .help = "order of a group's tokens along dimension 2"),
    SYI_SCALAR(fill, ENUM, .words = "zero keep", .help = "slots that get no row"),
    SYI_A2A_LAYOUT_FIELDS,
    SYI_SCALAR(routing, ROUTING, .help = "of a dispatch, in place of expert_metadata and expert_mapping"),
    SYI_A2A_HINT_FIELDS,
    SYI_A2A_REPLICA_FIELDS,
    SYI_CODED_INPUT_FIELD,
    SYI_EXPERT_ROWS_FIELD,
};

const struct syi_op syi_op_all_to_all_combine = {
    .info = SYI_OP_INFO(all_to_all_combine, ALL_TO_ALL_COMBINE,
                        "return expert rows to the devices of their tokens", true)};

/* Fields that need each other, or exclude each other. */
static sy_status check_modes(struct syi_call *call)
{
    const sy_all_to_all_combine_args *a = &call->args.all_to_all_combine;
    if (call->tensor[WEIGHTS] != NULL && (!a->sum || a->local_reduce))
        return syi_fail(call->ctx, SY_ERR_VALUE, "weights", "are given %s, want none",
                        a->sum ? "for sums that have theirs already" : "without sum");
    if (call->tensor[WRITTEN] != NULL && a->sum)
        return syi_fail(call->ctx, SY_ERR_VALUE, "written", "is given with sum, want none");
    if (call->tensor[OUTPUT_SCALES] != NULL && (a->sum || a->row_format == NULL))
        return syi_fail(call->ctx, SY_ERR_VALUE, "output_scales", "is given%s, want none%s",
                        a->sum ? " with sum" : "", a->sum ? "" : ": there is no row_format");
    return SY_OK;
}

/* Tensors that a format needs; a sum has numbers, and slots have codes and scales of the types that came in. */
static sy_status check_codes_given(struct syi_call *call, struct syi_coded *coded)
{
    const bool sum = call->args.all_to_all_combine.sum;
    SYI_TRY(syi_coded_begin(call, coded));
    if (coded->given == NULL || sum)
        return SY_OK;
    call->floats = 0;
    return call->tensor[OUTPUT_SCALES] != NULL || call->query
               ? SY_OK
               : syi_fail(call->ctx, SY_ERR_NULL, "output_scales",
                          "is missing while row_format is given, want a tensor");
}

static sy_status check_codes(struct syi_call *call, struct syi_coded *coded)
{
    const DLTensor *in = call->tensor[SCALES], *out = call->tensor[OUTPUT_SCALES];
    SYI_TRY(syi_coded_check(call, coded));
    char names[2][40];
    if (coded->given == NULL || out == NULL || syi_same_type(in->dtype, out->dtype))
        return SY_OK;
    syi_describe_type(out->dtype, names[0], sizeof names[0]);
    syi_describe_type(in->dtype, names[1], sizeof names[1]);
    return syi_fail(call->ctx, SY_ERR_DTYPE, "output_scales", "is %s, want %s", names[0], names[1]);
}

/* The group's tokens: of the table where there is one. Bt, St; a short table is Bt = T, St = 1. */
static sy_status check_group_tokens(struct syi_call *call, const sy_comm *comm, struct syi_exchange *x,
                                    int64_t *bt, int64_t *st_out)
{
    const DLTensor *m = call->tensor[METADATA];
    const bool short_form = m->ndim == 2;
    if (m->ndim == 4 && m->shape[0] != 1)
        return syi_check_shape(call, METADATA, 4, (int64_t[]){1, m->shape[1], m->shape[2], m->shape[3]});
    *bt = m->shape[m->ndim == 4 ? 1 : 0];
    *st_out = short_form ? 1 : m->shape[m->ndim - 2];
    x->n_slots = m->shape[m->ndim - 1];
    x->index_type = syi_type_at(call, METADATA);
    if (x->n_slots < 1)
        return syi_fail_code(call, SY_ERR_SHAPE, SY_FAULT_EMPTY, "expert_metadata", 0, 1,
                             "has 0 slots per token, want 1 or more");
    return syi_a2a_check_mapping(call, MAPPING, comm, x->index_type, x);
}

/* Whether a group's tokens can be dealt out to its devices. */
static sy_status check_share(struct syi_call *call, struct syi_exchange *x, int64_t bt, int64_t st)
{
    const bool short_form = call->tensor[METADATA]->ndim == 2, second = x->dim == 2 && !short_form;
    const int64_t whole = second ? st : bt;
    if (whole % x->n_positions != 0) {
        return syi_fail_with(call->ctx, SY_ERR_SHAPE, SY_FAULT_NONE, "expert_metadata", whole, x->n_positions,
                             "has %lld tokens in dimension %d, want a multiple of the %d devices of a group",
                             (long long)whole, short_form ? 0 : x->dim, x->n_positions);
    }
    x->max_tokens = second ? bt * (st / x->n_positions) : bt / x->n_positions * st;
    x->batch = short_form ? 0 : second ? bt : bt / x->n_positions;
    x->run = short_form ? 0 : second ? st / x->n_positions : st;
    x->interleave = second && x->order == SY_ORDER_CONCAT ? x->run : 0;
    return SY_OK;
}

static sy_status check_ragged(struct syi_call *call, struct syi_exchange *x, int64_t max_tokens)
{
    if (call->tensor[METADATA]->ndim != 2)
        return syi_fail_with(call->ctx, SY_ERR_SHAPE, SY_FAULT_BAD_RANK, "expert_metadata", 4, 2,
                             "has rank %d though max_tokens is given, want 2",
                             (int)call->tensor[METADATA]->ndim);
    x->max_tokens = max_tokens;
    x->interleave = 0;
    return SY_OK;
}

/* Values, the routing, and how many tokens there are. */
static sy_status check_fields(struct syi_call *call, const sy_comm *comm, struct syi_exchange *x, int64_t bt,
                              int64_t st)
{
    const sy_all_to_all_combine_args *a = &call->args.all_to_all_combine;
    const struct syi_a2a_options o = {
        a->cluster_axis, "output_shard_dim", a->output_shard_dim, a->order,     a->fill,
        a->layout,       a->align,           a->max_tokens,       a->num_links, a->topology,
        a->memory,       a->subdevice_id,    a->replica,          a->node_size, a->expert_rows};
    SYI_TRY(syi_a2a_check_options(call, comm, &o, x));
    if (a->routing != NULL) {
        SYI_TRY(syi_a2a_check_routing(call, comm, a->routing, &o));
        syi_a2a_take_routing(x, a->routing);
    } else {
        SYI_TRY(syi_check_expert_rows(call, x->expert_rows, x->layout, x->align));
        SYI_TRY(x->ragged ? check_ragged(call, x, a->max_tokens) : check_share(call, x, bt, st));
    }
    SYI_TRY(check_modes(call));
    x->strict = a->strict_unique;
    x->local_reduce = a->local_reduce;
    x->sum = a->sum;
    if (x->layout == SY_LAYOUT_EXPERT && x->local_reduce)
        return syi_fail(call->ctx, SY_ERR_UNSUPPORTED, "layout",
                        "is expert with local_reduce, want padded or packed");
    return SY_OK;
}

/* Rows of the input; how many of them there must be depends on who hosts what. */
static sy_status check_input(struct syi_call *call, const struct syi_exchange *x, int64_t bt, int64_t st,
                             int64_t group_tokens, struct syi_a2a_shard *shard)
{
    const DLTensor *y = call->tensor[INPUT];
    const int64_t elems = y->shape[y->ndim - 1];
    if (elems < 1)
        return syi_fail_code(call, SY_ERR_SHAPE, SY_FAULT_EMPTY, "input", 0, 1,
                             "has rows of 0 elements, want 1 or more");
    if (x->layout != SY_LAYOUT_PADDED) {
        shard->input_rows = y->shape[0];
        int64_t rows;
        SYI_TRY(syi_check_matrix(call, INPUT, y->shape[0], elems));
        return syi_a2a_check_rows(call, "input", y->shape[0], 1, &rows);
    }
    SYI_TRY(syi_a2a_check_rank(call, INPUT, 4, 3));
    /* One row per token needs no dimension for it: [Bt,St,H]. */
    const bool plain =
        x->local_reduce && y->ndim == 3 && x->batch > 0 && y->shape[0] == bt && y->shape[1] == st;
    shard->input_first = plain ? 1 : y->shape[0];
    shard->input_rows = group_tokens;
    if (plain)
        return SY_OK;
    const int64_t want[4] = {y->shape[0], bt, st, elems};
    SYI_TRY(y->ndim == 4 && x->batch > 0 ? syi_check_shape(call, INPUT, 4, want) : SY_OK);
    const int64_t tokens = y->ndim == 4 ? y->shape[1] * y->shape[2] : y->shape[1];
    return tokens == group_tokens ? SY_OK
                                  : syi_fail_value(call, SY_ERR_SHAPE, "input", tokens, group_tokens,
                                                   "has rows for %lld tokens, want the %lld of the group");
}

static int64_t home_tokens(const struct syi_call *call, const sy_comm *comm, const struct syi_exchange *x,
                           const struct syi_a2a_shard *shard)
{
    const sy_all_to_all_combine_args *a = &call->args.all_to_all_combine;
    if (a->routing != NULL)
        return a->routing->tokens[shard->device - comm->device];
    if (!x->ragged)
        return x->max_tokens;
    const DLTensor *out = call->tensor[OUTPUT], *weights = call->tensor[WEIGHTS];
    if (out != NULL)
        return out->shape[a->sum ? 0 : 1];
    return weights != NULL && weights->ndim == 2 ? weights->shape[0] : x->max_tokens; /* a query */
}

/* For sy_infer_mesh: a device with neither a routing nor weights may have any number. */
static bool knows_tokens(const struct syi_call *call, const struct syi_exchange *x)
{
    return !x->ragged || call->args.all_to_all_combine.routing != NULL || call->tensor[WEIGHTS] != NULL;
}

static sy_status check_outputs(struct syi_call *call, const struct syi_exchange *x,
                               const struct syi_coded *coded, int64_t n_tokens)
{
    struct syi_coded out = *coded;
    const int64_t elems = syi_extent(call, INPUT, call->tensor[INPUT]->ndim - 1);
    SYI_TRY(x->sum ? SY_OK : syi_a2a_check_rank(call, OUTPUT, 4, 3));
    SYI_TRY(
        syi_a2a_check_spread(call, OUTPUT, x->sum ? 0 : 1, x->n_slots, x->batch, x->run, n_tokens, elems));
    out.codes = OUTPUT;
    out.scales = OUTPUT_SCALES;
    if (x->sum)
        return SY_OK;
    if (call->shapes == NULL) {
        SYI_TRY(syi_coded_scales(call, &out));
    } else if (coded->given != NULL) {
        syi_a2a_check_spread(call, OUTPUT_SCALES, 1, x->n_slots, x->batch, x->run, n_tokens, coded->n_groups);
        call->shapes[OUTPUT_SCALES].type = call->tensor[SCALES]->dtype;
    }
    return syi_check_matrix(call, WRITTEN, x->n_slots, n_tokens);
}

static sy_status check_home_tensors(struct syi_call *call, const struct syi_exchange *x, int64_t n_tokens,
                                    int64_t max_tokens)
{
    SYI_TRY(syi_a2a_check_rank(call, WEIGHTS, x->ragged ? 2 : 4, 2));
    struct syi_a2a_tokens tokens;
    if (call->tensor[WEIGHTS] != NULL)
        SYI_TRY(syi_a2a_check_tokens(call, WEIGHTS, &tokens));
    if (call->tensor[WEIGHTS] != NULL && !(tokens.batch == x->batch && tokens.run == x->run))
        SYI_TRY(syi_a2a_check_spread(call, WEIGHTS, 0, 0, x->batch, x->run, n_tokens, x->n_slots));
    if (call->tensor[WEIGHTS] != NULL)
        SYI_TRY(syi_a2a_check_row_elems(call, WEIGHTS, x->n_slots));
    if (!x->ragged || n_tokens <= max_tokens)
        return SY_OK;
    return syi_fail_value(call, SY_ERR_CAPACITY, "output", n_tokens, max_tokens,
                          "has %lld tokens, want at most max_tokens, %lld");
}

static sy_status check_counts(struct syi_call *call, const struct syi_exchange *x,
                              const struct syi_a2a_shard *shard, int64_t group_tokens)
{
    int64_t rows;
    SYI_TRY(syi_a2a_check_rows(call, "expert_metadata", group_tokens, x->n_slots, &rows));
    SYI_TRY(syi_a2a_check_rows(call, "expert_metadata", x->max_tokens, x->n_positions, &rows));
    SYI_TRY(syi_a2a_check_rows(call, "input", shard->input_rows,
                               x->layout == SY_LAYOUT_PADDED ? shard->input_first : 1, &rows));
    return syi_a2a_check_layout_rows(call, x, group_tokens, &rows);
}

/* Scales are a second plane. Sums of codes are of a type of their own, which devices agree on. */
static void fill_codes(struct syi_call *call, const struct syi_coded *coded, struct syi_exchange *x,
                       struct syi_a2a_shard *shard)
{
    if (coded->given == NULL)
        return;
    x->elem_types = syi_coded_hash(x->elem_types, coded);
    x->codes = syi_coded_plan(call, coded, 0);
    x->n_planes = 2;
    x->row_bytes[1] = x->codes.scale_bytes;
    shard->from[1] = syi_rows_of(call, SCALES);
    shard->to[1] = syi_rows_of(call, OUTPUT_SCALES);
    if (!x->sum)
        return;
    x->type = syi_coded_type(call, coded);
    x->elem_types = syi_hash_with(x->elem_types, (uint64_t)x->type);
}

static void fill_shard(struct syi_call *call, const struct syi_coded *coded, struct syi_exchange *x,
                       struct syi_a2a_shard *shard, int64_t group_tokens)
{
    const DLTensor *y = call->tensor[INPUT];
    x->hidden = y->shape[y->ndim - 1];
    x->type = syi_type_at(call, INPUT);
    x->n_planes = 1;
    x->row_bytes[0] = (size_t)x->hidden * syi_elem_bytes(y->dtype);
    x->elem_types = syi_type_bits(y->dtype);
    x->mapping = syi_rows_of(call, MAPPING);
    x->mapping_in_cpu = syi_in_cpu_memory(call, MAPPING);
    x->routing = (sy_routing *)(uintptr_t)call->args.all_to_all_combine.routing;
    x->reuses_routing = x->routing != NULL;
    shard->from[0] = syi_rows_of(call, INPUT);
    shard->to[0] = syi_rows_of(call, OUTPUT);
    fill_codes(call, coded, x, shard);
    shard->indices = syi_rows_of(call, METADATA);
    shard->weights = syi_rows_of(call, WEIGHTS);
    shard->weight_type = syi_type_at(call, WEIGHTS);
    shard->mask = syi_rows_of(call, WRITTEN);
    shard->table = group_tokens;
    call->rows = shard->n_tokens;
    call->slots = x->n_slots;
}

/* Shapes of what comes in, values, and sizes. */
static sy_status check_inputs(struct syi_call *call, const sy_comm *comm, const struct syi_coded *coded,
                              struct syi_exchange *x, struct syi_a2a_shard *shard, int64_t *group_tokens)
{
    const sy_routing *routing = call->args.all_to_all_combine.routing;
    int64_t bt = 0, st = 0;
    SYI_TRY(syi_a2a_check_rank(call, MAPPING, 4, 2));
    if (routing == NULL)
        SYI_TRY(check_group_tokens(call, comm, x, &bt, &st));
    SYI_TRY(syi_check_sizes(call));
    SYI_TRY(check_fields(call, comm, x, bt, st));
    *group_tokens = routing == NULL ? bt * st : syi_routing_group_tokens(routing, shard->device);
    if (routing != NULL && x->batch > 0) {
        bt = x->dim == 2 ? x->batch : x->batch * x->n_positions;
        st = x->dim == 2 ? x->run * x->n_positions : x->run;
    }
    SYI_TRY(check_input(call, x, bt, st, *group_tokens, shard));
    SYI_TRY(syi_coded_scales(call, coded));
    return check_counts(call, x, shard, *group_tokens);
}

static sy_status check(struct syi_call *call, const sy_request *r, struct syi_exchange *x,
                       struct syi_a2a_shard *shard)
{
    const sy_comm *comm = r->comm;
    const sy_all_to_all_combine_args *a = &call->args.all_to_all_combine;
    if (a->routing != NULL)
        call->tensor[METADATA] = call->tensor[MAPPING] = NULL;
    struct syi_coded coded = {.given = a->row_format, .dense = OUTPUT, .codes = INPUT, .scales = SCALES};
    int64_t group_tokens = 0;
    SYI_TRY(check_codes_given(call, &coded));
    SYI_TRY(syi_check_tensors(call, false));
    SYI_TRY(check_codes(call, &coded));
    SYI_TRY(check_inputs(call, comm, &coded, x, shard, &group_tokens));
    if (x->ragged)
        SYI_TRY(syi_a2a_check_rank(call, OUTPUT, a->sum ? 2 : 3, a->sum ? 2 : 3));
    shard->n_tokens = home_tokens(call, comm, x, shard);
    SYI_TRY(check_home_tensors(call, x, shard->n_tokens, x->max_tokens));
    if (!call->query)
        SYI_TRY(check_outputs(call, x, &coded, shard->n_tokens));
    SYI_TRY(syi_check_layout(call));
    if (call->shapes != NULL)
        SYI_TRY(check_outputs(call, x, &coded, knows_tokens(call, x) ? shard->n_tokens : -1));
    fill_shard(call, &coded, x, shard, group_tokens);
    return SY_OK;
}

/* The expert dimension of the input is that of the device. */
static sy_status check_local(struct syi_call *call, const struct syi_a2a_hosts *hosts,
                             const struct syi_exchange *x, const struct syi_a2a_shard *shard)
{
    const int64_t n_local = hosts->n_local[shard->device], want = x->local_reduce ? 1 : n_local;
    if (x->layout == SY_LAYOUT_PADDED && shard->input_first != want)
        return syi_fail_value(call, SY_ERR_SHAPE, "input", shard->input_first, want,
                              x->local_reduce
                                  ? "has %lld rows per token, want %lld with local_reduce"
                                  : "has rows of %lld experts, want %lld, as many as its device hosts");
    if (x->layout == SY_LAYOUT_PACKED && !x->local_reduce && n_local > 1)
        return syi_fail(call->ctx, SY_ERR_UNSUPPORTED, "layout",
                        "is packed for slots of %lld experts, want local_reduce or one expert",
                        (long long)n_local);
    return SY_OK;
}

static sy_status contents(struct syi_call *call, sy_request *r, const struct syi_exchange *x,
                          struct syi_a2a_shard *shard)
{
    const sy_comm *comm = r->comm;
    const bool first = shard->device == comm->device;
    if (first)
        SYI_TRY(syi_routing_begin(r));
    const struct syi_a2a_hosts *hosts = x->reuses_routing ? &x->routing->hosts : &r->own.hosts;
    if (x->local_reduce && x->rule.replica == SY_A2A_REPLICA_ALL)
        SYI_TRY(syi_a2a_check_single(call->ctx, hosts, comm->mesh, x->axis));
    SYI_TRY(check_local(call, hosts, x, shard));
    if (x->reuses_routing || r->way.runs_on_gpu)
        return SY_OK;
    const int home = syi_group_of(comm->mesh, x->axis, shard->device);
    const int lead =
        syi_device_at(comm->mesh, x->axis, home, 0) - comm->device; /* first device of its group, if here */
    struct syi_rows table = shard->indices;
    const size_t row_bytes = syi_exchange_choice_bytes(x);
    const sy_status st = r->memory->read(call->ctx, &table, shard->table, row_bytes);
    if (st != SY_OK)
        return syi_fail_backend(call->ctx, st, "expert_metadata");
    shard->table_hash = comm->options.check == SY_CHECK_NONE && !comm->local
                            ? 0
                            : syi_a2a_hash(0, table, shard->table, row_bytes);
    if (comm->local && !first && lead < shard->device && r->shard[lead].table_hash == shard->table_hash)
        return SY_OK; /* what its group's first device has, and was validated */
    /* One process, one table of a known number of tokens: read where it belongs while it is validated. */
    r->now.chosen = !comm->local && !x->ragged;
    return syi_a2a_read_choices(call->ctx, METADATA, table, x->index_type, shard->table, x->n_slots,
                                x->n_experts, x->strict, r->now.chosen ? r->own.choice : NULL);
}

static sy_status copy_args(struct syi_call *call, const void *args, size_t args_bytes)
{
    SYI_TRY(syi_copy_args(call, args, args_bytes));
    const sy_all_to_all_combine_args *a = &call->args.all_to_all_combine;
    call->spared = a->routing != NULL ? 1u << METADATA | 1u << MAPPING : 0;
    call->floats = a->sum ? INPUT + 1 : 0;
    return SY_OK;
}

const struct syi_exchange_op syi_exchange_all_to_all_combine = {
    &syi_op_all_to_all_combine.info,
    syi_a2a_validate,
    copy_args,
    check,
    contents,
    NULL,
    NULL,
    syi_device_poll,
};

SYI_DEFINE_EXCHANGE(all_to_all_combine)
