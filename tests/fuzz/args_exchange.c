/*
 * Valid calls of all_to_all_dispatch and all_to_all_combine on two devices of this process, made from the bytes. Each
 * device has tensors of its own, so a spoiler hits one of them. Mapping and indices are bytes of the arena like all else,
 * which are seldom valid, or tables of our own, which are and which nobody spoils.
 */
#include "args.h"

#include <stdlib.h>
#include <string.h>

enum { DEVICES = 2, EXPERTS = 5, LOCALS = 3, MOST_TOKENS = 8, MOST_SLOTS = 3 };

static const DLDataType u8 = {1, 8, 1}, u16 = {1, 16, 1}, i32 = {0, 32, 1}, i64 = {0, 64, 1},
                        f32 = {2, 32, 1};

/* Sizes on paper may ask for any amount of scratch; a small machine answers NOMEM. */
void *small_alloc(void *user, size_t bytes)
{
    (void)user;
    return bytes <= (size_t)16 << 20 ? malloc(bytes) : NULL;
}

void small_free(void *user, void *ptr)
{
    (void)user;
    free(ptr);
}

static sy_comm *comms[2];

sy_comm *mesh_comm(bool column)
{
    const sy_mesh meshes[] = {{1, DEVICES}, {DEVICES, 1}};
    const sy_comm_options options = {.alloc = small_alloc, .dealloc = small_free};
    if (comms[column] == NULL && sy_comm_create_local(&comms[column], meshes[column], &options) != SY_OK)
        abort();
    return comms[column];
}

void forget_comms(void)
{
    for (int i = 0; i < 2; i++) {
        sy_comm_destroy(comms[i]);
        comms[i] = NULL;
    }
}

/* Experts 0, 2, 4 on device 0, experts 1, 2, 3 on device 1. */
static const DLTensor *own_mapping(struct call *c)
{
    static uint16_t hosts[EXPERTS * DEVICES] = {1, 0, 0, 1, 1, 1, 0, 1, 1, 0};
    int64_t *shape = c->mesh_shape[DEVICES];
    shape[0] = EXPERTS;
    shape[1] = DEVICES;
    c->mesh_own[DEVICES] = sy_tensor(hosts, u16, 2, shape);
    return &c->mesh_own[DEVICES];
}

int field_number(const struct call *c, const char *name)
{
    const sy_op_info *const info = sy_op_find(fuzz_ops[c->op].name);
    int i = 0;
    while (strcmp(sy_op_field(info, i)->name, name) != 0)
        i++;
    return i;
}

/* Slots that name experts, none, or one of them twice. */
static void own_indices(struct call *c, const char *name, const int64_t *tokens, int64_t slots)
{
    static uint16_t table[MOST_TOKENS * MOST_SLOTS];
    for (int i = 0; i < MOST_TOKENS * MOST_SLOTS; i++)
        table[i] = (uint16_t)(i % 7 == 6 ? 65535 : i * i % EXPERTS);
    for (int i = 0; i < DEVICES; i++) {
        c->mesh_shape[i][0] = tokens[i];
        c->mesh_shape[i][1] = slots;
        c->mesh_own[i] = sy_tensor(table, u16, 2, c->mesh_shape[i]);
        c->mesh[field_number(c, name)][i] = &c->mesh_own[i];
    }
}

/* One tensor for each device. */
static void add_each(struct call *c, const char *name, DLDataType type, int rank, const int64_t *d0,
                     int64_t d1, int64_t d2)
{
    const int field = field_number(c, name);
    for (int i = 0; i < DEVICES; i++) {
        add(c, name, &c->mesh[field][i], type, rank, d0[i], d1, d2);
        if (sy_op_field(sy_op_find(fuzz_ops[c->op].name), field)->flags & SY_FIELD_OUT)
            output(c);
    }
}

static void add_experts(struct call *c, struct reader *r, const char *name, const int64_t *tokens,
                        int64_t slots, const DLTensor **mapping)
{
    if (pick(r, 4) != 3) {
        own_indices(c, name, tokens, slots);
        *mapping = own_mapping(c);
    } else {
        add_each(c, name, u16, 2, tokens, slots, 0);
        add(c, "expert_mapping", mapping, u16, 2, EXPERTS, DEVICES, 0);
    }
}

sy_comm *bind_args(const struct call *c, const sy_op_info *info, DLTensor (*both)[2], union test_args *args)
{
    *args = c->args;
    for (int i = 0; i < info->n_tensors && info->mesh; i++) {
        const sy_field_info *const field = sy_op_field(info, i);
        const DLTensor *const *const t = c->mesh[i], *each = NULL; /* where one is missing */
        if (field->flags & SY_FIELD_SHARED)
            continue;
        if (t[0] != NULL && t[1] != NULL) {
            both[i][0] = *t[0];
            both[i][1] = *t[1];
            each = both[i];
        }
        memcpy((char *)args + field->offset, &each, sizeof each);
    }
    return info->mesh ? mesh_comm(c->mesh_column) : NULL;
}

/* Tokens of each device, and of its group. */
static void pick_tokens(struct call *c, struct reader *r, bool ragged, sy_axis axis, int64_t *tokens,
                        int64_t *all)
{
    c->mesh_column = pick(r, 2);
    tokens[0] = pick(r, 5);
    tokens[1] = ragged ? pick(r, 5) : tokens[0];
    const bool alone = axis == (c->mesh_column ? SY_AXIS_1 : SY_AXIS_0);
    for (int i = 0; i < DEVICES; i++)
        all[i] = alone ? tokens[i] : tokens[0] + tokens[1];
}

/* ---- Dispatch ----------------------------------------------------------------------------------------- */

void make_a2a_dispatch(struct call *c, struct reader *r)
{
    static const DLDataType types[] = {{4, 16, 1}, {2, 32, 1}, {1, 8, 1}, {5, 128, 1}};
    static const int64_t locals[] = {LOCALS, LOCALS}, ends[] = {LOCALS + 1, LOCALS + 1};
    sy_all_to_all_dispatch_args *a = &c->args.a2a_dispatch;
    int64_t tokens[DEVICES], all[DEVICES];
    const int64_t slots = 1 + pick(r, MOST_SLOTS), room = pick(r, 40);
    int64_t hidden = 1 + pick(r, 7);
    DLDataType type = types[pick(r, 4)];
    const struct coded coded = make_coded(c, r, &a->row_format, &type, &hidden);
    a->cluster_axis = (sy_axis)pick(r, 3);
    a->max_tokens = pick(r, 4) == 3 ? 4 : 0;
    a->output_concat_dim = pick(r, 3);
    a->order = (sy_a2a_order)pick(r, 2);
    a->fill = (sy_fill)pick(r, 2);
    a->layout = (sy_a2a_layout)pick(r, 3);
    a->align = pick(r, 4);
    a->strict_unique = pick(r, 8) == 7;
    a->replica = (sy_a2a_replica)pick(r, 6);
    a->node_size = pick(r, 3);
    a->expert_rows =
        a->layout != SY_LAYOUT_EXPERT || pick(r, 2) ? 0 : (a->align > 0 ? a->align : 1) * pick(r, 5);
    a->num_links = pick(r, 3);
    pick_tokens(c, r, a->max_tokens > 0, a->cluster_axis, tokens, all);
    const int64_t rooms[] = {room, room}, *rows = a->layout == SY_LAYOUT_PADDED ? all : rooms;
    const int64_t positions = a->cluster_axis == (c->mesh_column ? SY_AXIS_1 : SY_AXIS_0) ? 1 : DEVICES;
    const int64_t group[] = {positions, positions};
    add_experts(c, r, "expert_indices", tokens, slots, &a->expert_mapping);
    add_each(c, "input", type, 2, tokens, hidden, 0);
    add_each(c, "tokens", coded.codes, 2, rows, hidden, 0);
    if (coded.on)
        add_each(c, "scale_tokens", coded.scales, 2, rows, coded.groups, 0);
    if (pick(r, 2))
        add_each(c, "metadata", u16, 2, all, slots, 0);
    if (pick(r, 2)) {
        static const char *const of[] = {"planes[0]", "planes[1]"}, *const to[] = {"plane_tokens[0]",
                                                                                   "plane_tokens[1]"};
        a->num_planes = 1 + pick(r, 2);
        for (int i = 0; i < a->num_planes; i++) {
            add_each(c, of[i], f32, 2, tokens, 3, 0);
            add_each(c, to[i], f32, 2, rows, 3, 0);
        }
    }
    if (a->layout == SY_LAYOUT_PADDED)
        add_each(c, "present", u8, 1, all, 0, 0);
    else
        add_each(c, "src", i32, 2, rows, a->layout == SY_LAYOUT_EXPERT ? 3 : 2, 0);
    if (pick(r, 2))
        add_each(c, "expert_counts", i64, 1, locals, 0, 0);
    if (a->layout == SY_LAYOUT_EXPERT && pick(r, 2))
        add_each(c, "expert_offsets", i64, 1, ends, 0, 0);
    if (pick(r, 2)) {
        add_each(c, "rows_from", i64, 1, group, 0, 0);
        add_each(c, "rows_to", i64, 1, group, 0, 0);
    }
}

/* ---- Combine ------------------------------------------------------------------------------------------ */

void make_a2a_combine(struct call *c, struct reader *r)
{
    static const DLDataType types[] = {{4, 16, 1}, {2, 32, 1}, {2, 16, 1}, {1, 8, 1}};
    sy_all_to_all_combine_args *a = &c->args.a2a_combine;
    int64_t tokens[DEVICES], all[DEVICES];
    const int64_t slots = 1 + pick(r, MOST_SLOTS), room = pick(r, 40);
    int64_t hidden = 1 + pick(r, 7);
    a->cluster_axis = (sy_axis)pick(r, 3);
    a->max_tokens = pick(r, 4) == 3 ? 4 : 0;
    a->local_reduce = pick(r, 3) == 2;
    a->sum = pick(r, 2);
    a->output_shard_dim = pick(r, 3);
    a->order = (sy_a2a_order)pick(r, 2);
    a->fill = (sy_fill)pick(r, 2);
    a->layout = (sy_a2a_layout)pick(r, 3);
    a->align = pick(r, 4);
    a->strict_unique = pick(r, 8) == 7;
    a->replica = (sy_a2a_replica)pick(r, 6);
    a->node_size = pick(r, 3);
    a->expert_rows =
        a->layout != SY_LAYOUT_EXPERT || pick(r, 2) ? 0 : (a->align > 0 ? a->align : 1) * pick(r, 5);
    DLDataType type = types[pick(r, a->sum ? 3 : 4)], weight_type = types[pick(r, 3)];
    const struct coded coded = make_coded(c, r, &a->row_format, &type, &hidden);
    pick_tokens(c, r, a->max_tokens > 0, a->cluster_axis, tokens, all);
    const int64_t rooms[] = {room, room},
                  rows_of[] = {a->local_reduce ? 1 : LOCALS, a->local_reduce ? 1 : LOCALS},
                  many[] = {slots, slots};
    add_experts(c, r, "expert_metadata", all, slots, &a->expert_mapping);
    for (int scales = 0; scales <= coded.on; scales++) {
        const int64_t n = scales ? coded.groups : hidden;
        const bool padded = a->layout == SY_LAYOUT_PADDED;
        add_each(c, scales ? "input_scales" : "input", scales ? coded.scales : coded.codes, padded ? 3 : 2,
                 padded ? rows_of : rooms, padded ? all[0] : n, n);
    }
    if (pick(r, 2) && a->sum)
        add_each(c, "weights", weight_type, 2, tokens, slots, 0);
    if (a->sum)
        add_each(c, "output", type, 2, tokens, hidden, 0);
    else
        add_each(c, "output", coded.codes, 3, many, tokens[0], hidden);
    if (!a->sum && coded.on)
        add_each(c, "output_scales", coded.scales, 3, many, tokens[0], coded.groups);
    if (pick(r, 2) && !a->sum)
        add_each(c, "written", u8, 2, many, tokens[0], 0);
}
