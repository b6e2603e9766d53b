/*
 * Calls: the tensors of the devices of one process, and what the oracle says they must hold afterwards.
 */
#include "mesh_cases.h"

#include "call_args.h"
#include "oracle/quantize_rows.h"

/* ---- Tensors ---- */

static void *need(void *memory)
{
    if (memory == NULL)
        abort();
    return memory;
}

static unsigned char *row_of(const struct mesh_tensor *x, unsigned char *memory, int64_t row)
{
    return memory + (size_t)row * x->step;
}

/* Memory that begins and ends with bytes that nothing writes. */
enum { GUARD = 64, UNWRITTEN = 0xA5 };

static void allocate(struct mesh_tensor *x, size_t misalign)
{
    const size_t all = GUARD + misalign + x->bytes + GUARD;
    x->block = memset(need(aligned_alloc(64, (all + 63) / 64 * 64)), UNWRITTEN, all);
    x->mem = x->block + GUARD + misalign;
}

/* A tensor of evenly spaced rows. dense: its rows, which the call must leave alone; NULL: it is written. */
static struct mesh_tensor *add(struct mesh_call *c, enum mesh_field field, int shard, const char *name,
                               DLDataType type, int rank, const int64_t *shape, const void *dense)
{
    struct mesh_tensor *x = &c->tensors[field][shard];
    const int64_t width = shape[rank - 1], gap = rank > 1 ? c->of->gap : 0;
    int64_t stride = 1;
    x->name = name;
    x->rows = 1;
    for (int d = rank - 1; d >= 0; d--) {
        x->shape[d] = shape[d];
        x->strides[d] = stride;
        stride *= d == rank - 1 ? width + gap : shape[d];
        x->rows *= d == rank - 1 ? 1 : shape[d];
    }
    x->row_bytes = (size_t)width * type_bytes(type);
    x->step = (size_t)(width + gap) * type_bytes(type);
    x->bytes = x->rows > 0 ? (size_t)(x->rows - 1) * x->step + x->row_bytes : 0;
    allocate(x, c->of->misalign);
    for (int64_t r = 0; dense && x->row_bytes > 0 && r < x->rows; r++)
        memcpy(row_of(x, x->mem, r), (const unsigned char *)dense + (size_t)r * x->row_bytes, x->row_bytes);
    x->before = memcpy(need(malloc(x->bytes + 1)), x->mem, x->bytes);
    x->want = memcpy(need(malloc(x->bytes + 1)), x->mem, x->bytes);
    c->fields[field][shard] = sy_tensor(x->bytes > 0 ? x->mem : NULL, type, rank, x->shape);
    if (gap > 0)
        c->fields[field][shard].strides = x->strides;
    return x;
}

/* The row that must come out; NULL: zero bytes. */
static void want_row(struct mesh_tensor *x, int64_t row, const void *bytes)
{
    if (bytes)
        memcpy(row_of(x, x->want, row), bytes, x->row_bytes);
    else
        memset(row_of(x, x->want, row), 0, x->row_bytes);
}

static void want_all(struct mesh_tensor *x, const void *bytes)
{
    for (int64_t r = 0; x->row_bytes > 0 && r < x->rows; r++)
        want_row(x, r, (const unsigned char *)bytes + (size_t)r * x->row_bytes);
}

/* ---- Shapes ---- */

/* Tokens of a device: [B,1,S,width], [B,S,1,width] or [N,width]. */
static int home_shape(const struct mesh_case *m, int d, int64_t width, int64_t *shape)
{
    const struct a2a_case *c = &m->a2a;
    if (m->form == 2) {
        memcpy(shape, (int64_t[]){c->tokens[d], width}, 2 * sizeof *shape);
        return 2;
    }
    const int64_t middle = m->form == 0 ? 1 : c->seq, last = m->form == 0 ? c->seq : 1;
    memcpy(shape, (int64_t[]){c->batch, middle, last, width}, 4 * sizeof *shape);
    return 4;
}

/* Tokens of a group: [first,Bt,St,width] or [first,T,width]; FLAT_ONE: [1,Bt,St,width] or [T,width]. */
enum { FLAT_ONE = -1 };

static int group_shape(const struct mesh_case *m, int d, bool brief, int64_t first, int64_t width,
                       int64_t *shape)
{
    const struct a2a_case *c = &m->a2a;
    const int64_t total = oracle_a2a_total(c, d), size = oracle_a2a_group(c);
    if (brief && first == FLAT_ONE) {
        memcpy(shape, (int64_t[]){total, width}, 2 * sizeof *shape);
        return 2;
    }
    if (brief) {
        memcpy(shape, (int64_t[]){first, total, width}, 3 * sizeof *shape);
        return 3;
    }
    const int64_t batches = c->dim == 1 ? c->batch * size : c->batch,
                  seq = c->dim == 1 ? c->seq : c->seq * size;
    memcpy(shape, (int64_t[]){first == FLAT_ONE ? 1 : first, batches, seq, width}, 4 * sizeof *shape);
    return 4;
}

/* An expert, or none, as the bits of the index type. */
static unsigned char *index_bits(const struct mesh_case *m, const int64_t *chosen, int64_t n)
{
    const size_t size = type_bytes(m->index_type);
    unsigned char *bits = need(malloc((size_t)n * size + 1));
    for (int64_t i = 0; i < n; i++)
        memcpy(bits + (size_t)i * size, &chosen[i],
               size); /* little-endian; -1 has all bits set in every size */
    return bits;
}

/* The group's table of choices, in order of tau, as bits. */
static unsigned char *table_bits(const struct mesh_case *m, int d)
{
    const struct a2a_case *c = &m->a2a;
    int64_t *table = need(malloc((size_t)(oracle_a2a_total(c, d) * c->slots) * sizeof *table + 1));
    for (int q = 0; q < oracle_a2a_group(c); q++) {
        const int s = oracle_a2a_member(c, d, q);
        for (int64_t n = 0; n < c->tokens[s]; n++)
            memcpy(table + oracle_a2a_tau(c, s, n) * c->slots, c->chosen[s] + n * c->slots,
                   (size_t)c->slots * sizeof *table);
    }
    unsigned char *bits = index_bits(m, table, oracle_a2a_total(c, d) * c->slots);
    free(table);
    return bits;
}

static void add_mapping(struct mesh_call *c)
{
    const struct mesh_case *m = c->of;
    const int n_devices = oracle_a2a_devices(&m->a2a);
    const int copies = m->mapping_form == 2 ? n_devices : 1;
    const size_t cells = (size_t)(m->a2a.experts * n_devices);
    uint16_t *data = need(malloc(cells * (size_t)copies * 2));
    for (int i = 0; i < copies; i++)
        memcpy(data + cells * (size_t)i, m->a2a.mapping, cells * 2);
    const int64_t shape[] = {copies, 1, m->a2a.experts, n_devices};
    const int skip = m->mapping_form == 0 ? 2 : 0;
    add(c, MESH_MAPPING, 0, "expert_mapping", SY_U16, 4 - skip, shape + skip, data);
    free(data);
}

static int64_t room_for(const struct mesh_case *m, int64_t rows)
{
    return m->room > rows ? m->room : rows + m->spare;
}

/* ---- Dispatch ---- */

static void add_plane(struct mesh_call *c, int shard, const struct a2a_from *from, int i, int64_t room)
{
    const struct mesh_case *m = c->of;
    const int d = c->first + shard;
    const DLDataType type = i < 0 ? m->type : m->plane_type[i];
    const int64_t width = i < 0 ? m->hidden : m->plane_width[i], rows = oracle_a2a_dispatch(&m->a2a, d, NULL);
    const bool padded = m->a2a.layout == SY_LAYOUT_PADDED;
    const size_t row_bytes = (size_t)width * type_bytes(type);
    int64_t shape[4] = {room, width};
    const int rank = padded ? group_shape(m, d, m->short_out, FLAT_ONE, width, shape) : 2;
    struct mesh_tensor *x = add(c, i < 0 ? MESH_TOKENS : (enum mesh_field)(MESH_PLANE_TOKENS + i), shard,
                                i < 0 ? "tokens" : "plane_tokens", type, rank, shape, NULL);
    for (int64_t r = 0; r < rows; r++) {
        unsigned char *const *source = i < 0 ? m->rows : m->planes[i];
        if (from[r].device >= 0)
            want_row(x, r, source[from[r].device] + (size_t)from[r].row * row_bytes);
        else if (!padded || m->fill == SY_FILL_ZERO)
            want_row(x, r, NULL);
    }
}

static void add_src(struct mesh_call *c, int shard, const struct a2a_from *from, int64_t rows, int64_t room)
{
    const struct a2a_case *a = &c->of->a2a;
    const bool expert = a->layout == SY_LAYOUT_EXPERT;
    struct mesh_tensor *x =
        add(c, MESH_SRC, shard, "src", SY_I32, 2, (int64_t[]){room, expert ? 3 : 2}, NULL);
    for (int64_t r = 0; r < rows; r++) {
        const bool real = from[r].device >= 0;
        const int32_t source[] = {real ? oracle_a2a_position(a, from[r].device) : -1, (int32_t)from[r].row,
                                  (int32_t)from[r].slot};
        want_row(x, r, source);
    }
}

static void add_counts(struct mesh_call *c, int shard)
{
    const struct a2a_case *a = &c->of->a2a;
    const int d = c->first + shard;
    const int64_t locals = oracle_a2a_locals(a, d), size = oracle_a2a_group(a);
    int64_t *numbers = need(calloc((size_t)(locals + size + 1), sizeof *numbers));
    for (int64_t l = 0; l < locals; l++)
        numbers[l] = oracle_a2a_count(a, d, l);
    want_all(add(c, MESH_COUNTS, shard, "expert_counts", SY_I64, 1, &locals, NULL), numbers);
    if (a->layout == SY_LAYOUT_EXPERT) {
        int64_t at = 0;
        for (int64_t l = 0; l <= locals; l++) {
            const int64_t count = numbers[l];
            numbers[l] = at;
            at += a->expert_rows > 0 ? a->expert_rows : (count + a->align - 1) / a->align * a->align;
        }
        want_all(add(c, MESH_OFFSETS, shard, "expert_offsets", SY_I64, 1, (int64_t[]){locals + 1}, NULL),
                 numbers);
    }
    for (int64_t q = 0; q < size; q++)
        numbers[q] = oracle_a2a_rows(a, oracle_a2a_member(a, d, (int)q), d);
    want_all(add(c, MESH_FROM, shard, "rows_from", SY_I64, 1, &size, NULL), numbers);
    for (int64_t q = 0; q < size; q++)
        numbers[q] = oracle_a2a_rows(a, d, oracle_a2a_member(a, d, (int)q));
    want_all(add(c, MESH_TO, shard, "rows_to", SY_I64, 1, &size, NULL), numbers);
    free(numbers);
}

static void add_dispatch_shard(struct mesh_call *c, int shard)
{
    const struct mesh_case *m = c->of;
    const struct a2a_case *a = &m->a2a;
    const int d = c->first + shard;
    int64_t shape[4];
    add(c, MESH_INPUT, shard, "input", mesh_case_input_type(m, false), home_shape(m, d, m->hidden, shape),
        shape, m->coded ? m->dense[d] : m->rows[d]);
    unsigned char *bits = index_bits(m, a->chosen[d], a->tokens[d] * a->slots);
    add(c, MESH_INDICES, shard, "expert_indices", m->index_type, home_shape(m, d, a->slots, shape), shape,
        bits);
    free(bits);
    for (int i = 0; i < m->n_planes; i++)
        add(c, (enum mesh_field)(MESH_PLANE + i), shard, "planes", m->plane_type[i],
            home_shape(m, d, m->plane_width[i], shape), shape, m->planes[i][d]);

    const int64_t rows = oracle_a2a_dispatch(a, d, NULL), room = room_for(m, rows);
    struct a2a_from *from = need(malloc((size_t)(rows + 1) * sizeof *from));
    oracle_a2a_dispatch(a, d, from);
    for (int i = -1; i < m->n_planes + m->coded; i++)
        add_plane(c, shard, from, i, room);
    bits = table_bits(m, d);
    want_all(add(c, MESH_METADATA, shard, "metadata", m->index_type,
                 group_shape(m, d, m->short_out, FLAT_ONE, a->slots, shape), shape, NULL),
             bits);
    free(bits);
    if (a->layout == SY_LAYOUT_PADDED) {
        struct mesh_tensor *mask = add(c, MESH_MASK, shard, "present", m->mask_type, 1, &rows, NULL);
        for (int64_t r = 0; r < rows; r++)
            mask->want[r] = from[r].device >= 0;
    } else {
        add_src(c, shard, from, rows, room);
    }
    add_counts(c, shard);
    free(from);
}

static struct mesh_call *call_new(const sy_comm *comm, const struct mesh_case *m)
{
    struct mesh_call *c = need(calloc(1, sizeof *c));
    c->of = m;
    c->shards = sy_comm_shards(comm);
    c->first = sy_comm_first_device(comm);
    add_mapping(c);
    return c;
}

struct mesh_call *mesh_dispatch_new(const sy_comm *comm, const struct mesh_case *m, sy_routing *routing)
{
    struct mesh_call *c = call_new(comm, m);
    const struct a2a_case *a = &m->a2a;
    for (int i = 0; i < c->shards; i++)
        add_dispatch_shard(c, i);
    sy_all_to_all_dispatch_args *args = &c->dispatch;
    *args = (sy_all_to_all_dispatch_args){
        .input = c->fields[MESH_INPUT],
        .expert_indices = c->fields[MESH_INDICES],
        .expert_mapping = c->fields[MESH_MAPPING],
        .num_planes = m->n_planes,
        .cluster_axis = a->axis,
        .output_concat_dim = a->dim,
        .order = a->order,
        .fill = m->fill,
        .layout = a->layout,
        .align = a->align,
        .max_tokens = m->max_tokens,
        .strict_unique = m->strict_unique,
        .num_links = m->num_links,
        .topology = m->topology,
        .memory = m->memory,
        .routing = routing,
        .replica = a->replica,
        .node_size = a->node_size,
        .expert_rows = a->expert_rows,
        .tokens = c->fields[MESH_TOKENS],
    };
    for (int i = 0; i < m->n_planes; i++) {
        args->planes[i] = c->fields[MESH_PLANE + i];
        args->plane_tokens[i] = c->fields[MESH_PLANE_TOKENS + i];
    }
    args->row_format = m->coded ? &m->format : NULL;
    args->scale_tokens = m->coded ? c->fields[MESH_PLANE_TOKENS + m->n_planes] : NULL;
    if (m->without)
        return c;
    const bool padded = a->layout == SY_LAYOUT_PADDED;
    args->metadata = c->fields[MESH_METADATA];
    args->present = padded ? c->fields[MESH_MASK] : NULL;
    args->src = padded ? NULL : c->fields[MESH_SRC];
    args->expert_counts = c->fields[MESH_COUNTS];
    args->expert_offsets = a->layout == SY_LAYOUT_EXPERT ? c->fields[MESH_OFFSETS] : NULL;
    args->rows_from = c->fields[MESH_FROM];
    args->rows_to = c->fields[MESH_TO];
    return c;
}

/* ---- Combine ---- */

/* Rows of the output, [K,B,S,width] or [K,N,width], without K where they are sums. */
static struct mesh_tensor *add_rows_home(struct mesh_call *c, enum mesh_field field, int shard,
                                         const char *name, DLDataType type, int64_t width)
{
    const struct mesh_case *m = c->of;
    const struct a2a_case *a = &m->a2a;
    const int64_t full[] = {a->slots, a->batch, a->seq, width},
                  brief[] = {a->slots, a->tokens[c->first + shard], width};
    const bool by_token = m->short_out || m->form == 2;
    const int skip = m->sum, rank = (by_token ? 3 : 4) - skip;
    return add(c, field, shard, name, type, rank, (by_token ? brief : full) + skip, NULL);
}

/* The numbers of a device's results that are codes, as f32. */
static unsigned char *numbers_of(const struct mesh_case *m, int d)
{
    const int64_t n = oracle_a2a_inputs(&m->a2a, d, m->local_reduce) * m->hidden,
                  group = m->hidden / mesh_case_groups(m);
    const size_t size = type_bytes(m->format.scale_type);
    float *numbers = need(malloc((size_t)n * sizeof *numbers + 1));
    for (int64_t i = 0; i < n; i++) {
        uint32_t scale = 0;
        memcpy(&scale, m->scales[d] + (size_t)(i / group) * size, size); /* little-endian */
        numbers[i] = oracle_dequantize(&m->format, m->results[d][i], scale);
    }
    return (unsigned char *)numbers;
}

static void want_sums(struct mesh_call *c, int shard, struct mesh_tensor *x)
{
    const struct mesh_case *m = c->of;
    const struct a2a_case *a = &m->a2a;
    const int d = c->first + shard;
    struct a2a_sum sum = {.type = m->coded_results ? SY_F32 : m->type,
                          .weight_type = m->weight_type,
                          .out_type = m->type,
                          .hidden = m->hidden};
    unsigned char *numbers[A2A_DEVICES] = {NULL};
    for (int i = 0; i < oracle_a2a_devices(a); i++) {
        numbers[i] = m->coded_results ? numbers_of(m, i) : NULL;
        sum.inputs[i] = m->coded_results ? numbers[i] : m->results[i];
        sum.weights[i] = m->weighted ? m->weights[i] : NULL;
    }
    for (int64_t n = 0; n < a->tokens[d]; n++)
        oracle_a2a_sum(a, &sum, d, n, m->local_reduce, row_of(x, x->want, n));
    for (int i = 0; i < oracle_a2a_devices(a); i++)
        free(numbers[i]);
}

static void add_output(struct mesh_call *c, int shard)
{
    const struct mesh_case *m = c->of;
    const struct a2a_case *a = &m->a2a;
    const int d = c->first + shard;
    const int64_t n_tokens = a->tokens[d];
    struct mesh_tensor *x = add_rows_home(c, MESH_TOKENS, shard, "output",
                                          m->sum ? m->type : mesh_case_input_type(m, true), m->hidden),
                       *scales = NULL;
    if (m->sum) {
        want_sums(c, shard, x);
        return;
    }
    if (m->coded_results)
        scales = add_rows_home(c, MESH_PLANE_TOKENS, shard, "output_scales", mesh_case_scale_type(m),
                               mesh_case_groups(m));
    struct mesh_tensor *mask =
        add(c, MESH_MASK, shard, "written", m->mask_type, 2, (int64_t[]){a->slots, n_tokens}, NULL);
    for (int64_t i = 0; i < a->slots * n_tokens; i++) {
        const struct a2a_from from = oracle_a2a_combine(a, d, i % n_tokens, i / n_tokens, m->local_reduce);
        row_of(mask, mask->want, i / n_tokens)[i % n_tokens] = from.device >= 0;
        if (from.device < 0 && m->fill != SY_FILL_ZERO)
            continue;
        want_row(x, i, from.device < 0 ? NULL : m->results[from.device] + (size_t)from.row * x->row_bytes);
        if (scales != NULL)
            want_row(scales, i,
                     from.device < 0 ? NULL : m->scales[from.device] + (size_t)from.row * scales->row_bytes);
    }
}

/* Rows of the input, or their scales. */
static void add_results(struct mesh_call *c, enum mesh_field field, int shard, const char *name,
                        DLDataType type, int64_t width, const unsigned char *from)
{
    const struct mesh_case *m = c->of;
    const struct a2a_case *a = &m->a2a;
    const int d = c->first + shard;
    const int64_t rows = oracle_a2a_inputs(a, d, m->local_reduce), room = room_for(m, rows);
    int64_t shape[4] = {room, width};
    const size_t row_bytes = (size_t)width * type_bytes(type);
    int rank = 2;
    unsigned char *data = need(malloc((size_t)room * row_bytes + 1));
    memset(data, 0xFF, (size_t)room * row_bytes);
    memcpy(data, from, (size_t)rows * row_bytes);
    if (a->layout == SY_LAYOUT_PADDED) {
        const int64_t first = m->local_reduce ? 1 : oracle_a2a_locals(a, d);
        rank = group_shape(m, d, m->form == 2, first, width, shape);
    }
    add(c, field, shard, name, type, rank, shape, data);
    free(data);
}

static void add_combine_shard(struct mesh_call *c, int shard)
{
    const struct mesh_case *m = c->of;
    const struct a2a_case *a = &m->a2a;
    const int d = c->first + shard;
    int64_t shape[4];
    add_results(c, MESH_INPUT, shard, "input", mesh_case_input_type(m, true), m->hidden, m->results[d]);
    if (m->coded_results)
        add_results(c, MESH_PLANE, shard, "input_scales", mesh_case_scale_type(m), mesh_case_groups(m),
                    m->scales[d]);
    unsigned char *data = table_bits(m, d);
    const int rank = group_shape(m, d, m->form == 2, FLAT_ONE, a->slots, shape);
    add(c, MESH_INDICES, shard, "expert_metadata", m->index_type, rank, shape, data);
    free(data);
    if (m->weighted)
        add(c, MESH_WEIGHTS, shard, "weights", m->weight_type, home_shape(m, d, a->slots, shape), shape,
            m->weights[d]);
    add_output(c, shard);
}

struct mesh_call *mesh_combine_new(const sy_comm *comm, const struct mesh_case *m, const sy_routing *routing)
{
    struct mesh_call *c = call_new(comm, m);
    const struct a2a_case *a = &m->a2a;
    c->combines = true;
    for (int i = 0; i < c->shards; i++)
        add_combine_shard(c, i);
    c->combine = (sy_all_to_all_combine_args){
        .input = c->fields[MESH_INPUT],
        .weights = m->weighted ? c->fields[MESH_WEIGHTS] : NULL,
        .local_reduce = m->local_reduce,
        .sum = m->sum,
        .fill = m->fill,
        .strict_unique = m->strict_unique,
        .num_links = m->num_links,
        .topology = m->topology,
        .memory = m->memory,
        .routing = routing,
        .output = c->fields[MESH_TOKENS],
        .written = m->sum || m->without ? NULL : c->fields[MESH_MASK],
    };
    if (m->coded_results) {
        c->combine.row_format = &m->format;
        c->combine.input_scales = c->fields[MESH_PLANE];
        c->combine.output_scales = m->sum ? NULL : c->fields[MESH_PLANE_TOKENS];
    }
    if (routing == NULL) {
        c->combine.expert_metadata = c->fields[MESH_INDICES];
        c->combine.expert_mapping = c->fields[MESH_MAPPING];
    }
    if (routing == NULL || m->repeat) {
        c->combine.cluster_axis = a->axis;
        c->combine.output_shard_dim = a->dim;
        c->combine.order = a->order;
        c->combine.layout = a->layout;
        c->combine.align = a->align;
        c->combine.expert_rows = a->expert_rows;
        c->combine.max_tokens = m->max_tokens;
        c->combine.replica = a->replica;
        c->combine.node_size = a->node_size;
    }
    return c;
}

/* ---- Both ---- */

struct mesh_call *mesh_call_new(const sy_comm *comm, const struct mesh_case *m, sy_routing *routing)
{
    return m->combines ? mesh_combine_new(comm, m, routing) : mesh_dispatch_new(comm, m, routing);
}

const sy_op_info *mesh_call_op(const struct mesh_call *call)
{
    return sy_op_find(call->combines ? "all_to_all_combine" : "all_to_all_dispatch");
}

void *mesh_call_args(struct mesh_call *call)
{
    return call->combines ? (void *)&call->combine : &call->dispatch;
}

struct mesh_tensor *mesh_call_tensor(struct mesh_call *call, const DLTensor *t)
{
    const ptrdiff_t at = t - call->fields[0];
    return &call->tensors[at / A2A_DEVICES][at % A2A_DEVICES];
}

void mesh_call_free(struct mesh_call *call)
{
    for (int f = 0; call && f < MESH_FIELDS; f++)
        for (int i = 0; i < A2A_DEVICES; i++) {
            free(call->tensors[f][i].block);
            free(call->tensors[f][i].want);
            free(call->tensors[f][i].before);
        }
    free(call);
}

sy_status mesh_call_run(sy_ctx *ctx, sy_comm *comm, struct mesh_call *call)
{
    return call->combines ? sy_all_to_all_combine(ctx, comm, &call->combine)
                          : sy_all_to_all_dispatch(ctx, comm, &call->dispatch);
}

sy_status mesh_call_start(sy_ctx *ctx, sy_comm *comm, struct mesh_call *call, sy_request **request)
{
    return call->combines ? sy_all_to_all_combine_start(ctx, comm, &call->combine, request)
                          : sy_all_to_all_dispatch_start(ctx, comm, &call->dispatch, request);
}

/* Outputs of one field on all devices; false when a device has none, or one of an unknown size. */
static bool make_inferred(DLTensor *outputs, sy_shape *shapes, int step, int n)
{
    bool known = true;
    for (int i = 0; i < n; i++) {
        sy_shape *shape = &shapes[i * step];
        size_t bytes = type_bytes(shape->type);
        for (int d = 0; d < shape->rank; d++) {
            known = known && shape->extent[d] >= 0;
            bytes *= known ? (size_t)shape->extent[d] : 0;
        }
        known = known && shape->rank >= 0;
        outputs[i] = sy_tensor(need(malloc(known ? bytes + 1 : 1)), shape->type, shape->rank, shape->extent);
    }
    return known;
}

sy_status mesh_call_described(sy_ctx *ctx, sy_comm *comm, struct mesh_call *call)
{
    const sy_op_info *op = mesh_call_op(call);
    const int n = op->n_tensors * call->shards;
    sy_shape *shapes = need(calloc((size_t)n, sizeof *shapes));
    DLTensor *made = need(calloc((size_t)n, sizeof *made));
    union test_args args;
    memcpy(&args, mesh_call_args(call), op->args_bytes);
    const sy_status inferred = sy_infer_mesh(ctx, comm, op, &args, op->args_bytes, shapes, n);
    for (int i = 0; i < op->n_tensors; i++) {
        const DLTensor *outputs = &made[i * call->shards];
        if (make_inferred(&made[i * call->shards], &shapes[i], op->n_tensors, call->shards))
            memcpy((char *)&args + sy_op_field(op, i)->offset, &outputs, sizeof outputs);
    }
    const sy_status status = sy_call_mesh(ctx, comm, op, &args, op->args_bytes);
    for (int i = 0; i < n; i++)
        free(made[i].data);
    free(made);
    free(shapes);
    return inferred == SY_OK ? status : inferred;
}

void mesh_call_reset(struct mesh_call *call)
{
    for (int f = 0; f < MESH_FIELDS; f++)
        for (int i = 0; i < A2A_DEVICES; i++)
            if (call->tensors[f][i].mem)
                memcpy(call->tensors[f][i].mem, call->tensors[f][i].before, call->tensors[f][i].bytes);
}

/* Does the call name this field? What it leaves out nobody writes. */
static bool asked(struct mesh_call *call, int field)
{
    const sy_op_info *const op = mesh_call_op(call);
    const DLTensor *named = NULL;
    for (int i = 0; i < op->n_tensors && named != call->fields[field]; i++)
        memcpy(&named, (char *)mesh_call_args(call) + sy_op_field(op, i)->offset, sizeof named);
    return named == call->fields[field];
}

static bool same(struct mesh_call *call, bool after, char *why, size_t why_bytes)
{
    for (int f = 0; f < MESH_FIELDS; f++)
        for (int i = 0; i < call->shards; i++) {
            const struct mesh_tensor *x = &call->tensors[f][i];
            const unsigned char *want = after && asked(call, f) ? x->want : x->before;
            for (size_t at = 0; at < (x->mem != NULL ? (size_t)GUARD : 0); at++)
                if (x->mem[x->bytes + at] != UNWRITTEN || x->mem[-1 - (ptrdiff_t)at] != UNWRITTEN) {
                    snprintf(why, why_bytes, "a byte outside %s, device %d, is written", x->name,
                             call->first + i);
                    return false;
                }
            for (size_t at = 0; at < x->bytes; at++)
                if (x->mem[at] != want[at]) {
                    snprintf(why, why_bytes,
                             "byte %zu of %s, device %d, is %02x, want %02x (row %zu, byte %zu)", at, x->name,
                             call->first + i, x->mem[at], want[at], x->step ? at / x->step : 0,
                             x->step ? at % x->step : 0);
                    return false;
                }
        }
    return true;
}

bool mesh_call_check(struct mesh_call *call, char *why, size_t why_bytes)
{
    return same(call, true, why, why_bytes);
}

bool mesh_call_untouched(struct mesh_call *call, char *why, size_t why_bytes)
{
    return same(call, false, why, why_bytes);
}

/* Rows of a combine that travel from device h to device d. */
static int64_t rows_home(const struct mesh_case *m, int h, int d)
{
    const struct a2a_case *c = &m->a2a;
    int64_t rows = 0;
    for (int64_t i = 0; i < c->tokens[d] * c->slots; i++)
        rows += oracle_a2a_combine(c, d, i / c->slots, i % c->slots, m->local_reduce).device == h;
    return rows;
}

void mesh_call_bytes(const struct mesh_call *call, int64_t *sent, int64_t *received)
{
    const struct mesh_case *const m = call->of;
    const int64_t width = mesh_case_row_bytes(m, call->combines);
    const int own = call->first;
    *sent = *received = 0;
    for (int d = 0; d < oracle_a2a_devices(&m->a2a); d++)
        if (d != own) {
            *sent += width * (call->combines ? rows_home(m, own, d) : oracle_a2a_rows(&m->a2a, own, d));
            *received += width * (call->combines ? rows_home(m, d, own) : oracle_a2a_rows(&m->a2a, d, own));
        }
}

bool mesh_call_right(sy_ctx *ctx, sy_comm *comm, struct mesh_call *call, char *why, size_t why_bytes)
{
    const sy_status status = mesh_call_run(ctx, comm, call);
    if (status != SY_OK)
        snprintf(why, why_bytes, "%s: %s", sy_status_name(status), sy_ctx_error(ctx));
    const bool good = status == SY_OK && mesh_call_check(call, why, why_bytes);
    mesh_call_free(call);
    return good;
}
