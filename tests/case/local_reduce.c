/*
 * local_reduce: for each token the sum of the rows that the experts of one device have made of it.
 */
#include "case.h"

#include <math.h>

#include "oracle/sum.h"

/* The call in numbers; rows are found by counting. */
struct view {
    const sy_local_reduce_args *a;
    int64_t tokens, slots, experts, devices, copies, hidden;
    int64_t size, others; /* of a group, and how many groups there are */
    int64_t positions,
        sequence; /* of tokens that do not lie in the order in which they were counted; else 0 */
    const int64_t *choice, *mapping;
    int64_t *order; /* the tokens as they were counted */
    int64_t *row;   /* [T,K]: row of the input, -1: none */
};

static sy_local_reduce_args *args_of(struct call *c)
{
    return case_args(c);
}

static bool hosts(const struct view *v, int64_t e, int64_t device)
{
    return v->mapping[e * v->devices + device] != 0;
}

/* The device at a position of the group. */
static int64_t member(const struct view *v, int64_t q)
{
    return v->a->group_stride > 1 ? q * v->others + v->a->device % v->others
                                  : v->a->device / v->size * v->size + q;
}

/* The device that serves a choice of expert e by token number i, which `same` choices of e came before; -1: none. */
static int64_t holder(const struct view *v, int64_t e, int64_t i, int64_t same)
{
    const int64_t node = v->a->node_size, own = i / (v->tokens / v->size);
    const bool local = v->a->replica == SY_A2A_REPLICA_LOCAL;
    int64_t all = 0, near = 0, wanted = 0;
    for (int64_t q = 0; q < v->size; q++) {
        all += hosts(v, e, member(v, q));
        near += node > 0 && hosts(v, e, member(v, q)) && q / node == own / node;
    }
    if (all == 0 || (local && hosts(v, e, member(v, own))))
        return all == 0 ? -1 : member(v, own);
    if (v->a->replica == SY_A2A_REPLICA_ROUND_ROBIN)
        wanted = i % all;
    else if (v->a->replica == SY_A2A_REPLICA_HASH)
        wanted = i * 2654435769 % 4294967296 % all;
    else if (v->a->replica == SY_A2A_REPLICA_BALANCED)
        wanted = same % all;
    else if (local)
        wanted = own % (near > 0 ? near : all);
    for (int64_t q = 0;; q++) {
        const bool may = !local || near == 0 || q / node == own / node;
        if (may && hosts(v, e, member(v, q)) && wanted-- == 0)
            return member(v, q);
    }
}

static bool is_live(const struct view *v, int64_t t, int64_t k)
{
    const int64_t *const choice = v->choice + t * v->slots;
    for (int64_t before = 0; before < k; before++)
        if (choice[before] == choice[k])
            return false;
    return choice[k] >= 0;
}

static void order_tokens(const struct view *v)
{
    int64_t n = 0;
    for (int64_t p = 0; p < (v->positions > 0 ? v->positions : 1); p++)
        for (int64_t t = 0; t < v->tokens; t++)
            if (v->positions == 0 || t % v->sequence / (v->sequence / v->positions) == p)
                v->order[n++] = t;
}

/* Rows of one expert from `first` on; returns how many there are. */
static int64_t find_expert(const struct view *v, int64_t e, int64_t first, bool here)
{
    int64_t n = 0, same = 0;
    for (int64_t i = 0; i < v->tokens; i++)
        for (int64_t k = 0; k < v->slots; k++) {
            const int64_t t = v->order[i], at = t * v->slots + k;
            if (v->choice[at] != e || !is_live(v, t, k))
                continue;
            const bool served = v->a->replica == SY_A2A_REPLICA_ALL || holder(v, e, i, same) == v->a->device;
            same++;
            if (here && served)
                v->row[at] = v->a->layout == SY_LAYOUT_EXPERT ? first + n++ : first + t;
        }
    return n;
}

/* Rows of all experts; returns how many the input needs, and the first expert with more than expert_rows. */
static int64_t find_rows(const struct view *v, sy_fault *overfull)
{
    const int64_t align = v->a->align > 0 ? v->a->align : 1;
    int64_t first = 0;
    order_tokens(v);
    for (int64_t i = 0; i < v->tokens * v->slots; i++)
        v->row[i] = -1;
    for (int64_t e = 0; e < v->experts; e++) {
        const bool here = hosts(v, e, v->a->device);
        const int64_t n = find_expert(v, e, first, here);
        if (here && v->a->expert_rows > 0 && n > v->a->expert_rows && overfull->status == SY_OK)
            *overfull =
                (sy_fault){SY_ERR_CAPACITY, SY_FAULT_NONE, "expert_rows", e, -1, v->a->expert_rows, n};
        if (here)
            first += v->a->layout == SY_LAYOUT_PADDED ? v->tokens
                     : v->a->expert_rows > 0          ? v->a->expert_rows
                                                      : (n + align - 1) / align * align;
    }
    return first;
}

static struct view view_of(struct call *c)
{
    const struct operand *const table = case_field(c, "expert_metadata");
    const struct operand *const map = case_field(c, "expert_mapping");
    const struct operand *const input = case_field(c, "input");
    struct view v = {.a = args_of(c), .slots = table->shape[table->rank - 1], .copies = 1};
    int64_t *const choice = case_wide(c, "expert_metadata");
    v.tokens = table->rank == 4 ? table->shape[1] * table->shape[2] : table->shape[0];
    v.experts = map->shape[map->rank - 2];
    v.devices = map->shape[map->rank - 1];
    v.copies = map->rank == 4 ? map->shape[0] : 1;
    v.hidden = input->given ? input->shape[input->rank - 1] : 0;
    v.size = v.a->group_size > 0 ? v.a->group_size : v.devices;
    v.others = v.size > 0 ? v.devices / v.size : 1;
    const bool ordered = v.a->layout == SY_LAYOUT_EXPERT || v.a->replica != SY_A2A_REPLICA_ALL;
    if (ordered && v.a->output_concat_dim == 2 && v.a->order == SY_ORDER_CONCAT) {
        v.positions = v.a->group_size;
        v.sequence = table->shape[2];
    }
    for (int64_t i = 0; i < v.tokens * v.slots; i++)
        choice[i] = table->type.bits == 16 && choice[i] == UINT16_MAX ? -1 : choice[i];
    v.choice = choice;
    v.mapping = case_wide(c, "expert_mapping");
    v.order = case_memory(c, (size_t)v.tokens * sizeof *v.order);
    v.row = case_memory(c, (size_t)(v.tokens * v.slots) * sizeof *v.row);
    return v;
}

/* ---- make ---- */

static void make_mesh(struct call *c, bool is_long, int64_t *sequence)
{
    sy_local_reduce_args *const a = args_of(c);
    const int64_t devices = case_size(c, "D", 1, 4, 6);
    int64_t size = 1 + case_pick(c, "size", devices);
    case_any_scalar(c, "replica");
    case_any_scalar(c, "order");
    case_any_scalar(c, "fill");
    case_any_scalar(c, "layout");
    while (a->replica != SY_A2A_REPLICA_ALL && devices % size != 0)
        size--;
    const bool by_default = a->replica <= SY_A2A_REPLICA_FIRST || a->layout == SY_LAYOUT_EXPERT;
    a->device = case_pick(c, "device", devices);
    a->output_concat_dim = (int)(is_long ? 1 + case_pick(c, "concat", 2) : case_pick(c, "concat", 2));
    if (by_default && case_chance(c, "no_dim", 4))
        a->output_concat_dim = 0;
    a->group_size = a->output_concat_dim < 2 && case_chance(c, "all", 4) ? 0 : size;
    size = a->group_size > 0 ? size : devices;
    a->node_size = case_pick(c, "node", size + 1);
    if (a->node_size > 0 && (size % a->node_size != 0 || a->replica == SY_A2A_REPLICA_ALL))
        a->node_size = 0;
    a->group_stride = a->replica != SY_A2A_REPLICA_ALL && devices % size == 0 && case_flag(c, "columns")
                          ? devices / size
                          : case_pick(c, "stride", 2);
    *sequence = size * (1 + case_pick(c, "each", 3));
}

static void make_table(struct call *c, int64_t batch, int64_t sequence, bool is_long)
{
    const int64_t experts = case_size(c, "E", 1, 9, 40), devices = case_get_extent(c, "D");
    const int64_t slots = case_size(c, "K", 1, 11, 20), copies = case_chance(c, "copies", 3) ? devices : 1;
    const bool map_long = copies > 1 || case_flag(c, "map_long");
    struct stream *const s = case_stream(c, "table");
    struct operand *const table =
        case_in_as(c, "expert_metadata", (DLDataType){0}, is_long ? 4 : 2,
                   is_long ? (int64_t[]){1, batch, sequence, slots} : (int64_t[]){batch * sequence, slots});
    struct operand *const map =
        case_in_as(c, "expert_mapping", SY_U16, map_long ? 4 : 2,
                   map_long ? (int64_t[]){copies, 1, experts, devices} : (int64_t[]){experts, devices});
    for (int64_t i = 0; i < case_count(table); i++)
        case_put(table, i, stream_chance(s, 5) ? -1 : stream_below(s, experts));
    if (case_count(table) > 0 && case_chance(c, "bad choice", 12)) {
        const int64_t at = stream_below(s, case_count(table));
        case_put(table, at, experts + stream_below(s, 3));
    }
    const int64_t odds = 1 + stream_below(s, devices + 1);
    for (int64_t i = 0; i < experts * devices; i++) {
        const bool hosted = stream_chance(s, odds);
        for (int64_t copy = 0; copy < copies; copy++)
            case_put(map, copy * experts * devices + i, hosted);
    }
    if (case_chance(c, "bad map", 12)) {
        const int64_t at = stream_below(s, case_count(map));
        case_put(map, at, stream_below(s, 3));
    }
}

static int64_t count_locals(const struct view *v)
{
    int64_t n = 0;
    for (int64_t e = 0; e < v->experts; e++)
        n += hosts(v, e, v->a->device);
    return n;
}

static struct operand *in_rows(struct call *c, const char *field, DLDataType type, const int64_t *head, int n,
                               int64_t columns)
{
    int64_t shape[4];
    memcpy(shape, head, (size_t)n * sizeof *head);
    shape[n] = columns;
    return case_in_as(c, field, type, n + 1, shape);
}

/* Rows that the call must not read are NaN. */
static void poison(struct operand *x, const struct view *v, int64_t columns)
{
    const int64_t rows = columns > 0 ? case_count(x) / columns : 0;
    const size_t bytes = (size_t)columns * x->element;
    for (int64_t r = 0; r < rows; r++) {
        bool read = false;
        for (int64_t i = 0; i < v->tokens * v->slots; i++)
            read |= v->row[i] == r;
        if (!read)
            memset(x->dense + (size_t)r * bytes, 0xff, bytes);
    }
}

static void make_input(struct call *c, const struct view *v, int64_t needed, const int64_t *grid)
{
    const sy_local_reduce_args *const a = args_of(c);
    const sy_row_format *const f = a->row_format;
    struct stream *const s = case_stream(c, "rows");
    const bool by_expert = a->layout == SY_LAYOUT_EXPERT,
               long_input = case_flag(c, "long_input") && grid[0] > 0;
    const int64_t wrong = case_chance(c, "bad rows", 15) ? 1 + stream_below(s, 2) : 0;
    const int64_t locals = count_locals(v) + (wrong > 0 && !by_expert);
    const int64_t rows = needed + stream_below(s, 3) - wrong;
    const int64_t experts[] = {rows > 0 ? rows : 0}, padded[] = {locals, v->tokens},
                  padded_long[] = {locals, grid[1], grid[2]};
    const int64_t *const head = by_expert ? experts : long_input ? padded_long : padded;
    const int n = by_expert ? 1 : long_input ? 3 : 2;
    const int64_t hidden = f == NULL || f->group == 0 ? case_size(c, "H", 1, 40, 300)
                                                      : f->group * case_size(c, "groups", 1, 3, 4);
    const bool bytes = f != NULL && case_flag(c, "bytes");
    struct operand *const input = in_rows(c, "input",
                                          f == NULL ? (DLDataType){0}
                                          : bytes   ? SY_U8
                                                    : f->q_type,
                                          head, n, hidden);
    if (f == NULL) {
        case_fill_floats(c, input);
        poison(input, v, hidden);
        return;
    }
    const int64_t groups = f->group > 0 ? hidden / f->group : 1;
    struct operand *const scales =
        in_rows(c, "input_scales", bytes && f->scale_type.bits == 8 ? SY_U8 : f->scale_type, head, n, groups);
    input->accepts = 1u << sy_type_of(f->q_type) | 1u << SY_TYPE_U8;
    scales->accepts = 1u << sy_type_of(f->scale_type) | (f->scale_type.bits == 8 ? 1u << SY_TYPE_U8 : 0);
    case_fill(c, input);
    for (int64_t i = 0; i < case_count(scales); i++)
        case_put(scales, i,
                 scales->element == 1 ? 120 + stream_below(s, 12) : (int64_t)case_float(s, SY_F32, FINE));
    poison(input, v, hidden);
    poison(scales, v, groups);
}

static void make(struct call *c)
{
    sy_local_reduce_args *const a = args_of(c);
    const bool is_long = case_flag(c, "long");
    int64_t sequence;
    make_mesh(c, is_long, &sequence);
    const int64_t batch = case_size(c, "B", 0, 4, 12);
    make_table(c, batch, sequence, is_long);
    a->align = case_pick(c, "align", 5);
    struct view v = view_of(c);
    if (a->layout == SY_LAYOUT_EXPERT && case_chance(c, "fixed", 3))
        a->expert_rows = (a->align > 0 ? a->align : 1) * (1 + case_pick(c, "fixed_rows", v.tokens + 2));
    if (c->in->kind == READ_TEXT || case_chance(c, "coded", 3))
        case_format(c, "row_format");
    sy_fault ignored = {0};
    const int64_t needed = find_rows(&v, &ignored), grid[] = {is_long, batch, sequence};
    make_input(c, &v, needed, grid);
    if (case_flag(c, "weights")) {
        const bool as_table = is_long && case_flag(c, "long_weights");
        case_fill_floats(c, case_in_as(c, "weights", (DLDataType){0}, as_table ? 4 : 2,
                                       as_table ? (int64_t[]){1, batch, sequence, v.slots}
                                                : (int64_t[]){v.tokens, v.slots}));
    }
    const int64_t hidden = case_field(c, "input")->shape[case_field(c, "input")->rank - 1];
    const bool long_out = is_long && a->layout == SY_LAYOUT_PADDED && case_flag(c, "long_output");
    const int64_t fewer = a->layout == SY_LAYOUT_EXPERT ? case_pick(c, "fewer", 3) : 0;
    struct operand *const out = case_out_as(
        c, "output",
        a->row_format == NULL ? (DLDataType){0}
                              : ((DLDataType[]){{2, 32, 1}, {2, 16, 1}, {4, 16, 1}})[case_pick(c, "sums", 3)],
        long_out ? 4 : 2,
        long_out ? (int64_t[]){1, batch, sequence, hidden}
                 : (int64_t[]){v.tokens > fewer ? v.tokens - fewer : v.tokens, hidden});
    if (a->row_format != NULL)
        out->accepts = 1u << SY_TYPE_F32 | 1u << SY_TYPE_F16 | 1u << SY_TYPE_BF16;
}

/* ---- The oracle ---- */

static sy_fault mapping_fault(const struct view *v)
{
    for (int64_t row = 0; row < v->copies * v->experts; row++) {
        const int64_t e = row % v->experts, *const first = v->mapping + e * v->devices,
                      *const copy = v->mapping + row * v->devices;
        for (int64_t d = 0; d < v->devices; d++)
            if (copy[d] > 1)
                return (sy_fault){SY_ERR_ROUTING, SY_FAULT_BAD_VALUE, "expert_mapping", e, d, copy[d], 1};
        for (int64_t d = 0; d < v->devices; d++)
            if (copy[d] != first[d])
                return (sy_fault){SY_ERR_MISMATCH, SY_FAULT_BAD_VALUE, "expert_mapping", e, d, copy[d],
                                  first[d]};
    }
    return (sy_fault){0};
}

static sy_fault contents_fault(struct call *c, const struct view *v)
{
    const struct operand *const input = case_field(c, "input");
    const sy_fault mapping = mapping_fault(v);
    const int64_t locals = count_locals(v);
    if (mapping.status != SY_OK)
        return mapping;
    if (v->a->layout == SY_LAYOUT_PADDED && input->shape[0] != locals)
        return (sy_fault){SY_ERR_SHAPE, SY_FAULT_BAD_SHAPE, "input", -1, -1, input->shape[0], locals};
    for (int64_t i = 0; i < v->tokens * v->slots; i++)
        if (v->choice[i] < -1 || v->choice[i] >= v->experts)
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_INDEX_RANGE, "expert_metadata", i / v->slots,
                              i % v->slots, v->choice[i],         v->experts};
    return (sy_fault){0};
}

/* A row of the input as numbers. */
static void numbers_of(struct call *c, int64_t row, int64_t hidden, float *x)
{
    const struct operand *const input = case_field(c, "input"), *const scales = case_field(c, "input_scales");
    const sy_row_format *const f = args_of(c)->row_format;
    for (int64_t h = 0; f == NULL && h < hidden; h++)
        x[h] = (float)case_real(input, row * hidden + h);
    if (f != NULL)
        case_dequantize(f, input->dense + row * hidden,
                        scales->dense + (size_t)(row * scales->shape[scales->rank - 1]) * scales->element,
                        hidden, x);
}

/* The sum of token t, from +0 on, in the order of its slots. */
static bool sum_of(struct call *c, const struct view *v, int64_t t, float *sum)
{
    const struct operand *const weights = case_field(c, "weights");
    float *const x = case_memory(c, (size_t)v->hidden * sizeof *x);
    bool any = false;
    for (int64_t h = 0; h < v->hidden; h++)
        sum[h] = 0;
    for (int64_t i = t * v->slots; i < (t + 1) * v->slots; i++) {
        if (v->row[i] < 0)
            continue;
        const double w = weights->given ? case_real(weights, i) : 1;
        numbers_of(c, v->row[i], v->hidden, x);
        for (int64_t h = 0; h < v->hidden; h++)
            sum[h] = oracle_plus_product(sum[h], w, (double)x[h]);
        any = true;
    }
    return any;
}

static void oracle(struct call *c)
{
    const struct view v = view_of(c);
    const struct operand *const out = case_field(c, "output"), *const input = case_field(c, "input");
    const bool by_expert = v.a->layout == SY_LAYOUT_EXPERT;
    float *const sum = case_memory(c, (size_t)v.hidden * sizeof *sum);
    sy_fault overfull = {0};
    int64_t rows = 0;
    c->query.rows = v.tokens;
    c->want = contents_fault(c, &v);
    case_note(c, "bad mapping", c->want.code == SY_FAULT_BAD_VALUE);
    case_note(c, "other experts", c->want.status == SY_ERR_SHAPE);
    case_note(c, "bad choice", c->want.status == SY_ERR_INDEX);
    if (c->want.status != SY_OK)
        return;
    const int64_t needed = find_rows(&v, &overfull);
    if (by_expert)
        c->want = overfull;
    if (by_expert && c->want.status == SY_OK && needed > input->shape[0])
        c->want = (sy_fault){SY_ERR_CAPACITY, SY_FAULT_NONE, "input", -1, -1, input->shape[0], needed};
    for (int64_t i = 0; i < v.tokens && c->want.status == SY_OK; i++) {
        const int64_t t = v.order[i];
        const bool any = sum_of(c, &v, t, sum);
        case_note(c, "elsewhere", !any);
        if (!any && (by_expert || v.a->fill == SY_FILL_KEEP))
            continue;
        const int64_t to = by_expert ? rows++ : t;
        for (int64_t h = 0; h < v.hidden && to < case_count(out) / v.hidden; h++)
            case_put_real(out, out->want, to * v.hidden + h, (double)sum[h]);
    }
    if (by_expert && c->want.status == SY_OK && rows > out->shape[0])
        c->want = (sy_fault){SY_ERR_CAPACITY, SY_FAULT_NONE, "output", -1, -1, out->shape[0], rows};
    case_note(c, "capacity", c->want.status == SY_ERR_CAPACITY);
    case_note(c, "interleaved", v.positions > 1 && v.tokens > v.sequence);
    case_note(c, "replicas", v.a->replica != SY_A2A_REPLICA_ALL && v.size > 1 && v.tokens > 0);
    case_note(c, "columns", v.a->replica != SY_A2A_REPLICA_ALL && v.a->group_stride > 1 && v.size > 1);
    case_note(c, "codes", v.a->row_format != NULL && c->want.status == SY_OK && rows + v.tokens > 0);
}

/* ---- Rejections ---- */

#define SMALL "long map_long copies long_input weights D=2 E=4 K=2 B=2 each=0 size=1 H=3 f32 device=1"
#define BY_EXPERT .line = SMALL " layout=expert"
#define REPLICAS(rule) .line = SMALL " replica=" rule
static const struct rejection rejections[] = {
    {"expert_metadata.ndim=3", SY_ERR_SHAPE, "3", "2 or 4"},
    {"expert_mapping.ndim=3", SY_ERR_SHAPE, "3", "2 or 4"},
    {"weights.ndim=3", SY_ERR_SHAPE, "3", "2 or 4"},
    {"input.ndim=2", SY_ERR_SHAPE, "2", "3 or 4"},
    {"output.ndim=3", SY_ERR_SHAPE, "3", "2 or 4"},
    {"input.ndim=3", SY_ERR_SHAPE, "3", "want 2", BY_EXPERT},
    {"output.ndim=3", SY_ERR_SHAPE, "3", "want 2", BY_EXPERT},
    {"output.shape[1]=2", SY_ERR_SHAPE, "2]", "3]", BY_EXPERT},
    {"expert_metadata.shape[0]=2", SY_ERR_SHAPE, "[2,2,2,2]", "[1,2,2,2]"},
    {"input.shape[1]=3", SY_ERR_SHAPE, ",3,2,3]", ",2,2,3]"},
    {"input.shape[2]=5", SY_ERR_SHAPE, ",2,5,3]", ",2,2,3]"},
    {"expert_metadata.shape[3]=0", SY_ERR_SHAPE, "no slots", "1"},
    {"input.shape[3]=0", SY_ERR_SHAPE, "no elements per row", "1"},
    {"expert_mapping.shape[2]=0", SY_ERR_SHAPE, "no experts", "1"},
    {"expert_mapping.shape[0]=3", SY_ERR_SHAPE, "[3,1,4,2]", "[2,1,4,2]"},
    {"expert_mapping.shape[1]=2", SY_ERR_SHAPE, "[2,2,4,2]", "[2,1,4,2]"},
    {"weights.shape[0]=3", SY_ERR_SHAPE, "[3,2]", "[4,2]"},
    {"weights.shape[1]=3", SY_ERR_SHAPE, "[4,3]", "[4,2]"},
    {"output.shape[0]=5", SY_ERR_SHAPE, "[5,3]", "[4,3]"},
    {"output.shape[1]=2", SY_ERR_SHAPE, "[4,2]", "[4,3]"},
    {"expert_mapping.shape=[1,1,65536,2]", SY_ERR_SHAPE, "65536 experts", "65535",
     .line = SMALL " expert_metadata=u16"},
    {"expert_mapping.shape=[1,1,4,65537]", SY_ERR_SHAPE, "65537 devices", "65536"},
    {"expert_metadata,input.shape[1]=2^16 expert_metadata,input.shape[2]=2^15 weights=-", SY_ERR_VALUE,
     "2147483648 tokens", "2147483647"},
    {"input.shape[0]=2 expert_metadata,input.shape[1]=2^15 expert_metadata,input.shape[2]=2^15 weights=-",
     SY_ERR_VALUE, "2147483648 rows", "2147483647"},
    {"device=2", SY_ERR_VALUE, "2", "0 to 1"},
    {"device=-1", SY_ERR_VALUE, "-1", "0 to 1"},
    {"layout=1", SY_ERR_VALUE, "PACKED", "EXPERT"},
    {"layout=3", SY_ERR_VALUE, "3", "EXPERT"},
    {"align=-1", SY_ERR_VALUE, "-1", "0 to"},
    {"align=2147483648", SY_ERR_VALUE, "2147483648", "0 to"},
    {"expert_rows=-1", SY_ERR_VALUE, "-1", "0 to"},
    {"expert_rows=4", SY_ERR_VALUE, "4", "the layout is not expert"},
    {"expert_rows=5", SY_ERR_VALUE, "5", "a multiple of align, 2", .line = SMALL " layout=expert align=2"},
    {"output_concat_dim=3", SY_ERR_VALUE, "3", "0 to 2"},
    {"output_concat_dim=0", SY_ERR_VALUE, "0", "1 or 2", REPLICAS("hash")},
    {"group_size=-1", SY_ERR_VALUE, "-1", "0 to 65536"},
    {"group_size=3", SY_ERR_VALUE, "3", "a divisor of the 2 devices", REPLICAS("hash")},
    {"group_size=3", SY_ERR_VALUE, "3", "a divisor of 2", .line = SMALL " layout=expert concat=1"},
    {"node_size=-1", SY_ERR_VALUE, "-1", "0 or more"},
    {"node_size=3", SY_ERR_VALUE, "3", "a divisor of 2", REPLICAS("local")},
    {"group_stride=-1", SY_ERR_VALUE, "-1", "0 or more"},
    {"group_stride=2", SY_ERR_VALUE, "2", "1, or 1", REPLICAS("hash")},
    {"input.strides[1]=13", SY_ERR_STRIDE, "13", "evenly"},
    {"expert_mapping.strides[0]=9", SY_ERR_STRIDE, "9", "evenly"},
    {"row_format=-", SY_ERR_DTYPE, .blame = "input", .line = SMALL " row_format=mxfp8 groups=2"},
    {.change = NULL},
};

static const struct rejection ladder[] = {
    {"expert_mapping.shape[1]=2", SY_ERR_SHAPE},
    {"device=2", SY_ERR_VALUE},
    {"output.shape[0]=9", SY_ERR_SHAPE},
    {"output.data=weights", SY_ERR_ALIAS},
    {"expert_mapping.data[2]=2", SY_ERR_ROUTING},
    {"expert_metadata.data[5]=4", SY_ERR_INDEX},
    {.change = NULL},
};

const struct op_case case_local_reduce = {
    .name = "local_reduce",
    .make = make,
    .oracle = oracle,
    .hard = {"bad mapping", "other experts", "bad choice", "elsewhere", "capacity", "interleaved", "replicas",
             "columns", "codes"},
    .small = SMALL,
    .shapes = {"D=2 size=1 E=50 K=40 B=9 each=1 H=40 bf16 layout=expert",
               "D=2 size=2 E=2100 K=3 B=40 each=2 H=24 f32 weights layout=expert replica=hash"},
    .lines = {"D=2 size=1 device=1 E=16 K=6 B=150 each=1 H=304 bf16 weights",
              "D=2 size=1 E=16 K=9 B=13 each=1 H=4104 f32 weights layout=expert",
              "D=2 size=1 E=16 K=9 B=13 each=1 H=4104 f16 weights layout=expert",
              "D=4 size=3 E=8 K=20 B=9 each=2 long concat=1 H=64 layout=expert replica=balanced columns"},
    .rejections = rejections,
    .ladder = ladder,
    .own_extents = " input expert_metadata expert_mapping weights input_scales output ",
    .unchecked = " layout ",
    .calls = 900,
};
