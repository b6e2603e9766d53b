/*
 * Problems on a mesh as calls.
 */
#include "mesh.h"

#include <stdio.h>

enum routing { NO_ROUTING, FILLED_ROUTING, USED_ROUTING };

struct problem {
    struct mesh_case of;
    struct mesh_call *call; /* its tensors, and what must come out */
    bool combines;
    enum routing use;
    sy_routing *routing, *other;
    sy_comm *other_comm;
    sy_fault fault; /* of the contents */
};

static int64_t draw(void *user, const char *name, int64_t least, int64_t n)
{
    struct call *const c = user;
    char word[32];
    if (c->in->kind != READ_TEXT)
        return least + stream_below(case_stream(c, name), n);
    return case_line_word(c, name, word, sizeof word) ? strtoll(word, NULL, 10) : least;
}

/* ---- Routings ---- */

static void set_routing(struct call *c, const sy_routing *routing)
{
    memcpy((char *)&c->args + case_scalar(c, "routing")->offset, &routing, sizeof routing);
}

/* A routing of this comm; one that is used is filled by a dispatch. */
void mesh_attach(struct call *c, sy_comm *comm)
{
    struct problem *const p = c->problem;
    sy_routing_destroy(p->routing);
    p->routing = NULL;
    c->comm = comm;
    if (p->use == NO_ROUTING)
        return;
    if (sy_routing_create(case_ctx[0], comm, &p->routing) != SY_OK)
        case_fail(c, case_ctx[0], "no routing");
    if (p->use == USED_ROUTING) {
        struct mesh_call *const fill = mesh_dispatch_new(comm, &p->of, p->routing);
        const sy_status status = mesh_call_run(case_ctx[0], comm, fill);
        mesh_call_free(fill);
        if (status != SY_OK)
            case_fail(c, case_ctx[0], "the dispatch that fills its routing is rejected");
    }
    set_routing(c, p->routing);
}

static void give_other_routing(struct call *c, sy_comm *comm)
{
    struct problem *const p = c->problem;
    sy_routing_destroy(p->other);
    if (sy_routing_create(case_ctx[0], comm, &p->other) != SY_OK)
        abort();
    set_routing(c, p->other);
}

void mesh_foreign_routing(struct call *c)
{
    struct problem *const p = c->problem;
    if (p->other_comm == NULL && sy_comm_create_local(&p->other_comm, p->of.a2a.mesh, NULL) != SY_OK)
        abort();
    give_other_routing(c, p->other_comm);
}

void mesh_empty_routing(struct call *c)
{
    give_other_routing(c, c->comm);
}

/* None, an empty one, one of another comm, or that of a dispatch of this problem. */
void mesh_reroute(struct call *c, int64_t how)
{
    struct problem *const p = c->problem;
    if (how == 0)
        set_routing(c, NULL);
    else if (how == 1)
        mesh_empty_routing(c);
    else if (how == 2)
        mesh_foreign_routing(c);
    else {
        p->use = USED_ROUTING;
        mesh_attach(c, c->comm);
    }
}

static void free_problem(struct call *c)
{
    struct problem *const p = c->problem;
    sy_routing_destroy(p->routing);
    sy_routing_destroy(p->other);
    sy_comm_destroy(p->other_comm);
    mesh_call_free(p->call);
    mesh_case_free(&p->of);
}

/* ---- Operands ---- */

static const DLTensor *array_of(const struct problem *p, const sy_field_info *f)
{
    const DLTensor *all;
    const char *const args = p->combines ? (const char *)&p->call->combine : (const char *)&p->call->dispatch;
    memcpy(&all, args + f->offset, sizeof all);
    return all;
}

static const struct mesh_tensor *tensor_of(const struct problem *p, const struct operand *x)
{
    const int field = (int)((array_of(p, x->field) - p->call->fields[0]) / A2A_DEVICES);
    return &p->call->tensors[field][x->device];
}

static uint32_t bit_of(DLDataType type)
{
    return 1u << sy_type_of(type);
}

static bool is(const struct operand *x, const char *field)
{
    return strncmp(x->field->name, field, strlen(field)) == 0;
}

/* Types of codes, scales and numbers where a format or a sum decides. */
static uint32_t accepted(const struct problem *p, const struct operand *x)
{
    const struct mesh_case *const m = &p->of;
    const uint32_t numbers = bit_of(SY_F32) | bit_of(SY_F16) | bit_of(SY_BF16);
    const uint32_t codes = bit_of(m->format.q_type) | bit_of(SY_U8);
    const uint32_t scales =
        bit_of(m->format.scale_type) | (m->format.scale_type.bits == 8 ? bit_of(SY_U8) : 0);
    if (p->combines && is(x, "input") && m->sum && !m->coded_results)
        return numbers;
    if (!(p->combines ? m->coded_results : m->coded))
        return 0;
    if (is(x, "scale_tokens") || is(x, "input_scales"))
        return scales;
    if (is(x, "output_scales"))
        return bit_of(mesh_case_scale_type(m));
    if (is(x, p->combines ? "output" : "input"))
        return p->combines && !m->sum ? bit_of(m->code_type) : numbers;
    return is(x, p->combines ? "input" : "tokens") ? codes : 0;
}

/* The extent, from 1, that the call itself states; 0: none. */
static int loose_extent(const struct problem *p, const struct operand *x)
{
    const struct mesh_case *const m = &p->of;
    const bool rows = is(x, "tokens") || is(x, "plane_tokens") || is(x, "src") || is(x, "scale_tokens");
    if (p->combines)
        return m->a2a.ragged ? (m->sum ? 1 : 2) : 0;
    return (rows && m->a2a.layout != SY_LAYOUT_PADDED) ||
           (m->a2a.ragged && (rows || is(x, "metadata") || is(x, "present")));
}

static void add_operand(struct call *c, const struct problem *p, int i)
{
    const sy_field_info *const f = sy_op_field(c->info, i);
    const DLTensor *const all = array_of(p, f);
    if (all == NULL || ((f->flags & SY_FIELD_SHARED) && c->device > 0))
        return;
    const DLTensor *const t = &all[c->device];
    const bool out = f->flags & SY_FIELD_OUT;
    struct operand *const x = out ? case_out_as(c, f->name, t->dtype, t->ndim, t->shape)
                                  : case_in_as(c, f->name, t->dtype, t->ndim, t->shape);
    if (!out && x->bytes > 0)
        memcpy(x->dense, tensor_of(p, x)->mem, x->bytes);
    x->old = out ? tensor_of(p, x)->before : NULL;
    x->accepts = accepted(p, x);
    x->loose = loose_extent(p, x);
    x->needed = out && (!(f->flags & SY_FIELD_OPTIONAL) || x->accepts != 0 || is(x, "plane_tokens"));
}

/* ---- Contents that are wrong ---- */

static const char *choices_of(const struct problem *p)
{
    return p->combines ? "expert_metadata" : "expert_indices";
}

/* A choice of one device; of a table that its group shares it is the one of this device alone. */
static void corrupt_choice(struct call *c, struct problem *p)
{
    struct stream *const s = case_stream(c, "bad_choice");
    c->device = (int)stream_below(s, c->n_devices);
    struct operand *const x = case_field(c, choices_of(p));
    const int64_t n = case_count(x), k = p->of.a2a.slots, at = stream_below(s, n),
                  experts = p->of.a2a.experts;
    const int64_t near[] = {experts, experts + 1, 65534}, narrow[] = {-2, INT32_MIN, 65535},
                  wide[] = {INT64_C(1) << 32, INT64_MIN, -65536};
    const int64_t value = stream_chance(s, 2) || x->element == 2   ? near[stream_below(s, 3)]
                          : stream_chance(s, 2) || x->element == 4 ? narrow[stream_below(s, 3)]
                                                                   : wide[stream_below(s, 3)];
    c->device = 0;
    if (n == 0)
        return;
    case_put(x, at, value);
    p->fault = (sy_fault){SY_ERR_INDEX, SY_FAULT_INDEX_RANGE, choices_of(p), at / k, at % k, value, experts};
}

static void spoil_mapping(struct call *c, struct problem *p)
{
    struct stream *const s = case_stream(c, "bad_mapping");
    struct operand *const x = case_field(c, "expert_mapping");
    const int64_t n_devices = c->n_devices, cells = p->of.a2a.experts * n_devices,
                  at = stream_below(s, case_count(x)), cell = at % cells, was = case_get(x, at);
    const int64_t value = at >= cells && stream_chance(s, 2) ? !was : 2 + stream_below(s, 65534);
    case_put(x, at, value);
    const sy_status status = value > 1 ? SY_ERR_ROUTING : SY_ERR_MISMATCH;
    const int64_t e = cell / n_devices, d = cell % n_devices, limit = value > 1 ? 1 : was;
    p->fault = (sy_fault){status, SY_FAULT_BAD_VALUE, "expert_mapping", e, d, value, limit};
}

/* The first expert that a token of this device names twice; false: none does. */
static bool find_twice(struct call *c, struct problem *p)
{
    const struct operand *const x = case_field(c, choices_of(p));
    const int64_t k = p->of.a2a.slots;
    for (int64_t i = 0; i < case_count(x); i++)
        for (int64_t j = i / k * k; j < i; j++)
            if (case_get(x, i) == case_get(x, j) && case_get(x, i) != -1 &&
                !(x->element == 2 && case_get(x, i) == 65535)) {
                p->fault = (sy_fault){SY_ERR_INDEX, SY_FAULT_DUPLICATE, choices_of(p), i / k,
                                      i % k,        case_get(x, i),     j - i / k * k};
                return true;
            }
    return false;
}

static void corrupt_contents(struct call *c, struct problem *p, bool strict)
{
    if (p->use == USED_ROUTING)
        return;
    bool twice = false;
    for (c->device = 0; strict && c->device < c->n_devices && !twice; c->device += !twice)
        twice = find_twice(c, p);
    c->device = 0;
    const int64_t kind = c->in->kind == READ_TEXT || twice ? 0 : case_pick(c, "wrong", 16);
    if (kind == 1)
        corrupt_choice(c, p);
    else if (kind == 2)
        spoil_mapping(c, p);
    case_note(c, "expert twice", twice);
    case_note(c, "bad choice", kind == 1);
    case_note(c, "bad mapping", kind == 2);
}

/* ---- A call ---- */

/* A second dispatch along a routing has neither choices nor a mapping, and need not repeat what the routing has. */
static void use_again(sy_all_to_all_dispatch_args *a, bool repeat)
{
    a->reuse_routing = true;
    a->expert_indices = a->metadata = NULL;
    a->expert_mapping = NULL;
    if (repeat)
        return;
    a->cluster_axis = (sy_axis)0;
    a->output_concat_dim = 0;
    a->order = (sy_a2a_order)0;
    a->layout = (sy_a2a_layout)0;
    a->align = a->max_tokens = a->node_size = a->expert_rows = 0;
    a->replica = (sy_a2a_replica)0;
}

static void note_problem(struct call *c, const struct problem *p)
{
    const struct a2a_case *const a = &p->of.a2a;
    const int n_devices = c->n_devices;
    int64_t tokens = 0;
    for (int d = 0; d < n_devices; d++) {
        tokens += a->tokens[d];
        case_note(c, "device without experts", oracle_a2a_locals(a, d) == 0);
        case_note(c, "device without tokens", a->ragged && a->tokens[d] == 0);
    }
    for (int64_t e = 0; e < a->experts; e++) {
        int holders = 0;
        for (int d = 0; d < n_devices; d++)
            holders += a->mapping[e * n_devices + d];
        case_note(c, "expert on two devices", holders > 1 && a->replica == SY_A2A_REPLICA_ALL);
        case_note(c, "one host of several", holders > 1 && a->replica != SY_A2A_REPLICA_ALL);
        case_note(c, "expert nowhere", holders == 0);
    }
    case_note(c, "no tokens", tokens == 0);
    case_note(c, "groups of one", n_devices > 1 && oracle_a2a_group(a) == 1);
    case_note(c, "interleaved", a->dim == 2 && a->order == SY_ORDER_CONCAT && !a->ragged && a->batch > 1);
    case_note(c, "in nodes",
              a->replica == SY_A2A_REPLICA_LOCAL && a->node_size > 1 && a->node_size < oracle_a2a_group(a));
    case_note(c, "format of its own", c->format == MESH_FORMATS);
    case_note(c, "with a routing", p->use == USED_ROUTING);
}

static void make_tensors(struct call *c, struct problem *p)
{
    const bool strict = case_chance(c, "strict_unique", 5);
    p->call->dispatch.strict_unique = p->call->combine.strict_unique = strict;
    memcpy(&c->args, p->combines ? (void *)&p->call->combine : &p->call->dispatch, c->info->args_bytes);
    for (c->device = 0; c->device < c->n_devices; c->device++)
        for (int i = 0; i < c->info->n_tensors; i++)
            add_operand(c, p, i);
    c->device = 0;
    if (p->combines ? p->of.coded_results : p->of.coded)
        c->format = p->of.named > 0 ? p->of.named : MESH_FORMATS;
    corrupt_contents(c, p, strict);
    note_problem(c, p);
    if (p->routing != NULL)
        set_routing(c, p->routing);
}

void mesh_make(struct call *c, bool combines)
{
    static const sy_mesh meshes[] = {{1, 2}, {1, 1}, {2, 1}, {1, 3}, {3, 1}, {2, 2}, {1, 4}, {4, 1}};
    const sy_mesh mesh = meshes[case_pick(c, "mesh", 8)];
    struct problem *const p = case_memory(c, sizeof *p);
    case_mesh(c, mesh);
    c->problem = p;
    c->done = free_problem;
    p->combines = combines;
    mesh_case_make(&p->of, mesh, &(struct mesh_reader){draw, c});
    p->of.gap = 0; /* the engine lays out tensors */
    p->of.misalign = 0;
    p->of.without = false;
    p->use =
        combines ? (p->of.by_routing ? USED_ROUTING : NO_ROUTING) : (enum routing)case_pick(c, "routing", 3);
    mesh_attach(c, c->comm);
    p->call = combines ? mesh_combine_new(c->comm, &p->of, p->routing)
                       : mesh_dispatch_new(c->comm, &p->of, p->routing);
    if (!combines && p->use == USED_ROUTING)
        use_again(&p->call->dispatch, p->of.repeat);
    make_tensors(c, p);
}

void mesh_oracle(struct call *c)
{
    const struct problem *const p = c->problem;
    const struct a2a_case *const a = &p->of.a2a;
    c->want = p->fault;
    c->query.slots = a->slots;
    if (!a->ragged && (p->combines || a->layout == SY_LAYOUT_PADDED))
        c->query.rows = p->combines ? a->tokens[0] : oracle_a2a_total(a, 0);
    for (int i = 0; i < c->n_operands; i++) {
        struct operand *const x = &c->operand[i];
        if (x->given && x->out && x->bytes > 0)
            memcpy(x->want, tensor_of(p, x)->want, x->bytes);
    }
}
