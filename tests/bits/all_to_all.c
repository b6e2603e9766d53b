/*
 * all_to_all_dispatch and all_to_all_combine on a mesh inside this process: scenes of every layout, sums of every type, and every
 * rule of replicas.
 */
#include "bits.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_DEVICES = 4, MOST_EXPERTS = 9 };

static sy_comm *comm; /* of the current scene */

/* Names of sy_row_format_named that are not of caches. */
static const char *const row_formats[] = {"fp8_128", "fp8_128_deepep", "fp8_128_deepgemm", "fp8_128_ue8m0",
                                          "mxfp8",   "mxfp8_floor",    "int8_token"};

/* Codes of every kind, with scales of moderate size. */
static const DLTensor *fill_codes(const sy_row_format *format, int rank, const int64_t *shape, int64_t gap)
{
    return &fill_random(box_strided(format->q_type, rank, shape, gap))->t;
}

static const DLTensor *fill_scales(const sy_row_format *format, int rank, const int64_t *shape)
{
    struct box *scales = box_new(format->scale_type, rank, shape);
    if (format->scale_type.bits == 32)
        return &fill_flavour(scales, FINE)->t;
    for (int64_t i = 0; i < box_elems(scales); i++)
        put(scales, i, (uint64_t)(120 + below(12)));
    return &scales->t;
}

static sy_status call_dispatch(sy_ctx *ctx, const void *args)
{
    return sy_all_to_all_dispatch(ctx, comm, args);
}

static sy_status call_combine(sy_ctx *ctx, const void *args)
{
    return sy_all_to_all_combine(ctx, comm, args);
}

/* What both operators need to know of a mesh and its tokens. */
struct mesh_scene {
    sy_mesh mesh;
    sy_axis axis;
    int64_t devices, group, batch, seq, experts, slots, hidden;
    int64_t dim, node_size, locals[MOST_DEVICES];
    uint16_t hosts[MOST_EXPERTS * MOST_DEVICES];
};

/* Some experts have further holders, and positions are in nodes. */
static void add_replicas(struct mesh_scene *s)
{
    for (int64_t i = 0; i < s->experts * s->devices; i++)
        if (one_in(3) && !s->hosts[i]) {
            s->hosts[i] = 1;
            s->locals[i % s->devices]++;
        }
    s->node_size = below(s->group + 1);
    while (s->node_size > 0 && s->group % s->node_size != 0)
        s->node_size--;
}

static void make_mesh(struct mesh_scene *s, sy_a2a_replica replica)
{
    static const sy_mesh meshes[] = {{1, 2}, {2, 2}, {1, 3}, {2, 1}, {1, 1}};
    *s = (struct mesh_scene){.mesh = meshes[below(COUNT(meshes))]};
    s->axis = (sy_axis)below(3);
    s->devices = s->mesh.rows * s->mesh.cols;
    s->group = s->axis == SY_AXIS_0 ? s->mesh.rows : s->axis == SY_AXIS_1 ? s->mesh.cols : s->devices;
    s->batch = 1 + below(3);
    s->seq = below(5);
    s->experts = 1 + below(MOST_EXPERTS);
    s->slots = 1 + below(4);
    s->hidden = 1 + below(40);
    s->dim = 1 + below(2);
    for (int64_t e = 0; e < s->experts; e++) {
        int64_t at = below(s->devices); /* one holder each, so that partial sums are possible */
        s->hosts[e * s->devices + at] = 1;
        s->locals[at]++;
    }
    if (replica != SY_A2A_REPLICA_ALL)
        add_replicas(s);
    if (sy_comm_create_local(&comm, s->mesh, NULL) != SY_OK) {
        fprintf(stderr, "bits: no comm\n");
        exit(2);
    }
}

/* With a format rows are of whole groups; how many. */
static int64_t set_groups(struct mesh_scene *s, const sy_row_format *format)
{
    const int64_t groups = format && format->group > 0 ? 1 + s->hidden % 3 : 1;
    if (format && format->group > 0)
        s->hidden = groups * format->group;
    return groups;
}

static struct box *mapping_of(const struct mesh_scene *s)
{
    struct box *mapping = box_new(SY_U16, 2, (int64_t[]){s->experts, s->devices});
    for (int64_t i = 0; i < s->experts * s->devices; i++)
        put(mapping, i, s->hosts[i]);
    return mapping;
}

/* A few slots are not used; now and then one names an expert that does not exist. */
static void put_experts(const struct mesh_scene *s, struct box *indices)
{
    bool faulty = one_in(40);
    for (int64_t i = 0; i < box_elems(indices); i++) {
        int64_t expert = below(s->experts);
        bool unused = one_in(7);
        put(indices, i, unused ? UINT64_MAX : (uint64_t)expert);
    }
    if (faulty && box_elems(indices) > 0)
        put(indices, box_elems(indices) - 1, (uint64_t)s->experts);
}

/* Shapes of a device's tokens, and of its group's. */
#define HOME(s, width) \
    4, (int64_t[]) \
    { \
        (s)->batch, 1, (s)->seq, (width) \
    }
#define GROUP(s, first, width) \
    4, (int64_t[]) \
    { \
        (first), (s)->dim == 1 ? (s)->batch *(s)->group : (s)->batch, \
            (s)->dim == 1 ? (s)->seq : (s)->seq *(s)->group, (width) \
    }

static DLDataType any_index_type(void)
{
    return one_in(3) ? SY_U16 : index_type();
}

/* Memory for the rows of a device. */
static DLTensor row_output(const struct mesh_scene *s, DLDataType type, bool padded, int64_t rows,
                           int64_t width)
{
    return output(padded ? box_strided(type, GROUP(s, 1, width), 1)
                         : box_new(type, 2, (int64_t[]){rows, width}))
        ->t;
}

static void dispatch_scene(DLDataType type, sy_a2a_layout layout, sy_a2a_replica replica,
                           const sy_row_format *format, bool fixed)
{
    struct mesh_scene s;
    DLTensor input[MOST_DEVICES], indices[MOST_DEVICES], tokens[MOST_DEVICES], metadata[MOST_DEVICES],
        extra[MOST_DEVICES], counts[MOST_DEVICES], scales[MOST_DEVICES];
    make_mesh(&s, replica);
    const int64_t groups = set_groups(&s, format);
    DLDataType indexed = any_index_type();
    int64_t total = s.batch * s.seq * s.group;
    sy_all_to_all_dispatch_args args = {.input = input, .expert_indices = indices, .tokens = tokens};
    args.row_format = format;
    args.scale_tokens = format ? scales : NULL;
    args.align = 1 + below(4);
    args.order = (sy_a2a_order)below(2);
    args.fill = (sy_fill)below(2);
    args.num_links = (int)below(3);
    if (fixed)
        args.expert_rows = args.align * (1 + below(2 + total / args.align));
    for (int64_t d = 0; d < s.devices; d++) {
        int64_t most =
            layout == SY_LAYOUT_PACKED ? total : (total + 2 * args.align * fixed + args.align) * s.locals[d];
        int64_t rows = most + below(3);
        struct box *given = box_strided(type, HOME(&s, s.hidden), 2);
        input[d] = (format ? fill_flavour(given, (enum flavour)(d % 4)) : fill_random(given))->t;
        struct box *slots = box_new(indexed, HOME(&s, s.slots));
        put_experts(&s, slots);
        indices[d] = slots->t;
        bool padded = layout == SY_LAYOUT_PADDED;
        tokens[d] = row_output(&s, format ? SY_U8 : type, padded, rows, s.hidden);
        if (format)
            scales[d] = row_output(&s, format->scale_type, padded, rows, groups);
        metadata[d] = output(box_new(indexed, GROUP(&s, 1, s.slots)))->t;
        extra[d] = output(padded ? box_new(SY_U8, 1, &total)
                                 : box_new(SY_I32, 2, (int64_t[]){rows, layout == SY_LAYOUT_EXPERT ? 3 : 2}))
                       ->t;
        counts[d] = output(box_new(SY_I64, 1, &s.locals[d]))->t;
    }
    args.expert_mapping = &mapping_of(&s)->t;
    args.cluster_axis = s.axis;
    args.output_concat_dim = (int)s.dim;
    args.layout = layout;
    args.replica = replica;
    args.node_size = s.node_size;
    args.metadata = metadata;
    *(layout == SY_LAYOUT_PADDED ? &args.present : &args.src) = extra;
    args.expert_counts = counts;
    run_scene(call_dispatch, &args);
    sy_comm_destroy(comm);
}

enum combine_mode { SLOTS, PARTIAL, SUM, WEIGHTED_SUM, PARTIAL_SUM, BY_EXPERT };

/* Rows of a device's input of `width`, by expert or of all tokens. */
#define RESULTS(s, mode, partial, rows, locals, width) \
    (mode) == BY_EXPERT ? 2 : 4, (mode) == BY_EXPERT ? (int64_t[4]){(rows), (width)} : (int64_t[4]) \
    { \
        (partial) ? 1 : (locals), (s)->dim == 1 ? (s)->batch *(s)->group : (s)->batch, \
            (s)->dim == 1 ? (s)->seq : (s)->seq *(s)->group, (width) \
    }

static void combine_scene(DLDataType type, enum combine_mode mode, sy_a2a_replica replica,
                          const sy_row_format *format, bool fixed)
{
    static const DLDataType weight_types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
    struct mesh_scene s;
    DLTensor input[MOST_DEVICES], tables[MOST_DEVICES], weights[MOST_DEVICES], result[MOST_DEVICES],
        scales[MOST_DEVICES], result_scales[MOST_DEVICES];
    make_mesh(&s, replica);
    const int64_t groups = set_groups(&s, format);
    DLDataType indexed = any_index_type(), weighted = weight_types[below(3)];
    enum flavour flavour = (enum flavour)below(4);
    bool partial = mode == PARTIAL || mode == PARTIAL_SUM, sums = mode >= SUM && mode <= PARTIAL_SUM;
    int64_t total = s.batch * s.seq * s.group;
    sy_all_to_all_combine_args args = {.input = input, .expert_metadata = tables, .output = result};
    args.align = 1 + below(4);
    args.order = (sy_a2a_order)below(2);
    args.fill = (sy_fill)below(2);
    if (fixed)
        args.expert_rows = args.align * (1 + below(2 + total / args.align));
    struct box *same = box_new(indexed, GROUP(&s, 1, s.slots)); /* one table for all groups */
    put_experts(&s, same);
    for (int64_t d = 0; d < s.devices; d++) {
        tables[d] = same->t;
        int64_t rows = (total + 2 * args.align * fixed + args.align) * s.locals[d];
        if (format) {
            input[d] = *fill_codes(format, RESULTS(&s, mode, partial, rows, s.locals[d], s.hidden), 0);
            scales[d] = *fill_scales(format, RESULTS(&s, mode, partial, rows, s.locals[d], groups));
        } else {
            input[d] =
                fill_flavour(box_new(type, RESULTS(&s, mode, partial, rows, s.locals[d], s.hidden)), flavour)
                    ->t;
        }
        if (mode == WEIGHTED_SUM)
            weights[d] = fill_flavour(box_new(weighted, HOME(&s, s.slots)), PROBS)->t;
        result[d] = output(sums ? box_new(type, 3, (int64_t[]){s.batch, s.seq, s.hidden})
                                : box_new(format ? format->q_type : type, 4,
                                          (int64_t[]){s.slots, s.batch, s.seq, s.hidden}))
                        ->t;
        if (format && !sums)
            result_scales[d] =
                output(box_new(format->scale_type, 4, (int64_t[]){s.slots, s.batch, s.seq, groups}))->t;
    }
    args.row_format = format;
    args.input_scales = format ? scales : NULL;
    args.output_scales = format && !sums ? result_scales : NULL;
    args.expert_mapping = &mapping_of(&s)->t;
    args.weights = mode == WEIGHTED_SUM ? weights : NULL;
    args.local_reduce = partial;
    args.sum = sums;
    args.cluster_axis = s.axis;
    args.output_shard_dim = (int)s.dim;
    args.layout = mode == BY_EXPERT ? SY_LAYOUT_EXPERT : SY_LAYOUT_PADDED;
    args.replica = replica;
    args.node_size = s.node_size;
    run_scene(call_combine, &args);
    sy_comm_destroy(comm);
}

void all_to_all_lines(void)
{
    static const char *const layouts[] = {"padded", "packed", "expert"};
    static const char *const modes[] = {"slots", "partial", "sum", "weighted_sum", "partial_sum", "expert"};
    static const char *const rules[] = {NULL, "first", "round_robin", "hash", "balanced", "local"};
    char name[128];
    for (int l = 0; l < COUNT(layouts); l++) {
        snprintf(name, sizeof name, "all_to_all_dispatch bf16 %s", layouts[l]);
        begin_line(name);
        for (int i = 0; i < 40; i++)
            dispatch_scene(floats[2].type, (sy_a2a_layout)l, SY_A2A_REPLICA_ALL, NULL, false);
        end_line();
    }
    for (int t = 0; t < N_FLOATS; t++)
        for (int m = 0; m < COUNT(modes); m++) {
            snprintf(name, sizeof name, "all_to_all_combine %s %s", floats[t].name, modes[m]);
            begin_line(name);
            for (int i = 0; i < 40; i++)
                combine_scene(floats[t].type, (enum combine_mode)m, SY_A2A_REPLICA_ALL, NULL, false);
            end_line();
        }
    for (int r = 1; r < COUNT(rules); r++) {
        snprintf(name, sizeof name, "all_to_all_dispatch bf16 %s", rules[r]);
        begin_line(name);
        for (int i = 0; i < 30; i++)
            dispatch_scene(floats[2].type, (sy_a2a_layout)(i % COUNT(layouts)), (sy_a2a_replica)r, NULL,
                           false);
        end_line();
        snprintf(name, sizeof name, "all_to_all_combine bf16 %s", rules[r]);
        begin_line(name);
        for (int i = 0; i < 30; i++)
            combine_scene(floats[2].type, (enum combine_mode)(i % COUNT(modes)), (sy_a2a_replica)r, NULL,
                          false);
        end_line();
    }
    for (int f = 0; f < COUNT(row_formats); f++) {
        sy_row_format format;
        sy_row_format_named(row_formats[f], &format);
        snprintf(name, sizeof name, "all_to_all_dispatch %s", row_formats[f]);
        begin_line(name);
        for (int i = 0; i < 12; i++)
            dispatch_scene(floats[i % N_FLOATS].type, (sy_a2a_layout)(i / 4), SY_A2A_REPLICA_ALL, &format,
                           false);
        end_line();
        snprintf(name, sizeof name, "all_to_all_combine %s", row_formats[f]);
        begin_line(name);
        for (int i = 0; i < 18; i++)
            combine_scene(floats[i % N_FLOATS].type, (enum combine_mode)(i % COUNT(modes)),
                          SY_A2A_REPLICA_ALL, &format, false);
        end_line();
    }
    begin_line("all_to_all_dispatch bf16 expert_rows");
    for (int i = 0; i < 40; i++)
        dispatch_scene(floats[2].type, SY_LAYOUT_EXPERT, (sy_a2a_replica)(i % 6), NULL, true);
    end_line();
    begin_line("all_to_all_combine bf16 expert_rows");
    for (int i = 0; i < 40; i++)
        combine_scene(floats[2].type, BY_EXPERT, (sy_a2a_replica)(i % 6), NULL, true);
    end_line();
}
