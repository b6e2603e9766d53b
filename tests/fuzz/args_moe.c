/*
 * Valid calls of the operators on blocks and chunks of experts, made from the bytes.
 */
#include "args.h"

static const DLDataType i32 = {0, 32, 1}, i64 = {0, 64, 1};

void make_align_block(struct call *c, struct reader *r)
{
    sy_moe_align_block_args *a = &c->args.align_block;
    const int64_t tokens = extent(r, 9), slots = extent(r, 5), experts = extent(r, 8), total = tokens * slots;
    a->num_experts = experts;
    a->block_size = 1 + pick(r, 5);
    a->allow_missing = pick(r, 2);
    const int64_t blocks =
        (total + (experts < total ? experts : total) * (a->block_size - 1)) / a->block_size;
    add(c, "ids", &a->ids, pick(r, 2) ? i64 : i32, 2, tokens, slots, 0);
    if (pick(r, 2)) {
        add(c, "expert_map", &a->expert_map, i32, 1, experts, 0, 0);
        a->skip_unmapped = pick(r, 2);
    }
    add(c, "sorted_slots", &a->sorted_slots, i32, 1, blocks * a->block_size + pick(r, 3), 0, 0);
    output(c);
    add(c, "block_experts", &a->block_experts, i32, 1, blocks + pick(r, 2), 0, 0);
    output(c);
    add(c, "num_padded", &a->num_padded, i32, 1, 1, 0, 0);
    output(c);
    if (pick(r, 2)) {
        add(c, "expert_counts", &a->expert_counts, i64, 1, experts, 0, 0);
        output(c);
        add(c, "expert_offsets", &a->expert_offsets, i64, 1, experts + 1, 0, 0);
        output(c);
    }
}

void make_map_physical(struct call *c, struct reader *r)
{
    static const DLDataType types[] = {{0, 32, 1}, {0, 64, 1}, {1, 16, 1}};
    sy_moe_map_physical_args *a = &c->args.map_physical;
    const int64_t tokens = extent(r, 9), slots = extent(r, 5), experts = extent(r, 8),
                  replicas = extent(r, 4);
    a->rule = (sy_replica_rule)pick(r, 5);
    a->devices = 1 + pick(r, 4);
    a->device = pick(r, (int)a->devices);
    a->node_size = pick(r, 3);
    a->num_physical = a->devices * (1 + pick(r, 6));
    a->token_base = pick(r, 2) ? (int64_t)1 << 33 : 0;
    a->allow_missing = pick(r, 2);
    add(c, "ids", &a->ids, types[pick(r, 3)], 2, tokens, slots, 0);
    add(c, "logical_to_physical", &a->logical_to_physical, i32, 2, experts, replicas, 0);
    if (pick(r, 2))
        add(c, "replica_count", &a->replica_count, i32, 1, experts, 0, 0);
    if (a->rule == SY_REPLICA_BALANCED && pick(r, 2))
        add(c, "counts_before", &a->counts_before, i64, 1, experts, 0, 0);
    const int outputs = pick(r, 4);
    if (outputs != 1) {
        add(c, "physical_ids", &a->physical_ids, types[pick(r, 3)], 2, tokens, slots, 0);
        output(c);
    }
    if (outputs > 0) {
        add(c, "load", &a->load, i64, 1, a->num_physical, 0, 0);
        output(c);
    }
    if (outputs > 1) {
        add(c, "logical_load", &a->logical_load, i64, 1, experts, 0, 0);
        output(c);
    }
}

void make_place(struct call *c, struct reader *r)
{
    static const DLDataType types[] = {{0, 32, 1}, {0, 64, 1}};
    sy_moe_place_args *a = &c->args.place;
    const int64_t layers = extent(r, 3), experts = 1 + extent(r, 8);
    a->nodes = pick(r, 3);
    a->devices = (a->nodes > 0 ? a->nodes : 1) * (1 + pick(r, 3));
    a->groups = pick(r, 3) == 0 ? experts : pick(r, 2);
    a->distinct = pick(r, 2);
    a->num_physical = a->devices * (experts / a->devices + pick(r, 4));
    add(c, "loads", &a->loads, types[1], 2, layers, experts, 0);
    if (pick(r, 2))
        add(c, "previous", &a->previous, types[0], 2, layers, a->num_physical, 0);
    const int outputs = pick(r, 4);
    if (outputs != 1) {
        add(c, "physical_to_logical", &a->physical_to_logical, types[pick(r, 2)], 2, layers, a->num_physical,
            0);
        output(c);
    }
    if (outputs > 0) {
        add(c, "logical_to_physical", &a->logical_to_physical, types[pick(r, 2)], 3, layers, experts,
            extent(r, 6));
        output(c);
        add(c, "device_load", &a->device_load, types[1], 2, layers, a->devices, 0);
        output(c);
    }
    if (outputs > 2) {
        add(c, "replica_count", &a->replica_count, types[pick(r, 2)], 2, layers, experts, 0);
        output(c);
        add(c, "expert_mapping", &a->expert_mapping, (DLDataType){1, 16, 1}, 2, a->num_physical, a->devices,
            0);
        output(c);
    }
}

void make_pad_map(struct call *c, struct reader *r)
{
    static const DLDataType types[] = {{6, 8, 1}, {0, 8, 1}, {1, 8, 1}};
    sy_moe_pad_map_args *a = &c->args.pad_map;
    const int64_t tokens = extent(r, 12), experts = extent(r, 9);
    const DLDataType type = types[pick(r, 3)];
    a->alignment = 1 + pick(r, 4);
    add(c, "routing_map", &a->routing_map, type, 2, tokens, experts, 0);
    add(c, "padded_map", &a->padded_map, type, 2, tokens, experts, 0);
    output(c);
    if (pick(r, 2)) {
        add(c, "expert_counts", &a->expert_counts, i64, 1, experts, 0, 0);
        output(c);
    }
}

void make_reorder_chunks(struct call *c, struct reader *r)
{
    static const DLDataType types[] = {{2, 32, 1}, {4, 16, 1}, {1, 8, 1}, {5, 128, 1}};
    sy_moe_reorder_chunks_args *a = &c->args.reorder_chunks;
    const int64_t rows = extent(r, 30), ranks = extent(r, 4), experts = extent(r, 5), width = extent(r, 9);
    const DLDataType type = types[pick(r, 4)], extra = types[pick(r, 4)];
    const int rank = 1 + pick(r, 3);
    a->inverse = pick(r, 2);
    add(c, "rows", &a->rows, type, rank, rows, width, 2);
    add(c, "counts", &a->counts, pick(r, 2) ? i64 : i32, 2, ranks, experts, 0);
    add(c, "reordered_rows", &a->reordered_rows, type, rank, rows, width, 2);
    output(c);
    if (pick(r, 2)) {
        add(c, "extra", &a->extra, extra, 1, rows, 0, 0);
        add(c, "reordered_extra", &a->reordered_extra, extra, 1, rows, 0, 0);
        output(c);
    }
    if (pick(r, 2)) {
        add(c, "expert_offsets", &a->expert_offsets, i64, 1, experts + 1, 0, 0);
        output(c);
    }
}

/* Any arithmetic, codes and groups; now and then a field that is anything. Returns the type of the scales. */
static DLDataType make_row_format(struct call *c, struct reader *r, int64_t *group)
{
    static const DLDataType codes[] = {{10, 8, 1}, {12, 8, 1}, {0, 8, 1}};
    static const size_t sizes[] = {0, 7, 8, 56, 64, SIZE_MAX};
    sy_row_format *f = &c->format;
    const bool power = pick(r, 2);
    f->bytes = pick(r, 30) ? sizeof *f : sizes[pick(r, 6)];
    f->q_type = codes[pick(r, power ? 2 : 3)];
    f->scale_type = power ? (DLDataType){14, 8, 1} : (DLDataType){2, 32, 1};
    f->group = (int32_t)*group;
    f->scale_math = (sy_scale_math)(power ? 3 + pick(r, 2) : 1 + pick(r, 2));
    f->code_math = (sy_code_math)(power ? 0 : pick(r, 3));
    f->a_min = pick(r, 3) ? 0 : 1e-4;
    if (pick(r, 8) == 7)
        f->group = (int32_t)hostile(r);
    if (pick(r, 12) == 11)
        f->scale_math = (sy_scale_math)(pick(r, 9) - 2);
    if (pick(r, 12) == 11)
        f->a_min = (double)hostile(r);
    if (*group == 0)
        *group = 1 + pick(r, 20);
    return f->scale_type;
}

struct coded make_coded(struct call *c, struct reader *r, const sy_row_format **field, DLDataType *type,
                        int64_t *hidden)
{
    static const DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
    struct coded coded = {.on = pick(r, 4) == 3, .codes = *type};
    if (!coded.on)
        return coded;
    int64_t group = pick(r, 9);
    coded.groups = group == 0 ? 1 : extent(r, 3);
    coded.scales = make_row_format(c, r, &group);
    coded.codes = c->format.q_type;
    *hidden = group * coded.groups;
    *type = types[pick(r, 3)];
    *field = &c->format;
    return coded;
}

/* Scales in any layout, mostly one that the format permits; the codes beside them in two dimensions. */
static sy_scale_layout add_scales(struct call *c, struct reader *r, const DLTensor **field, DLDataType type,
                                  int64_t rows, int64_t groups)
{
    const sy_scale_layout layout =
        (sy_scale_layout)(pick(r, 20) ? pick(r, type.bits == 8 ? 3 : 2) : pick(r, 5) - 1);
    const int64_t parts = 32 / type.bits, words = (groups + parts - 1) / parts;
    if (layout == SY_SCALE_COL)
        add(c, "scales", field, type, 3, words, (rows + 3) / 4 * 4, parts);
    else if (layout == SY_SCALE_SWIZZLE)
        add(c, "scales", field, type, 3, (rows + 127) / 128, words, 512);
    else
        add(c, "scales", field, type, 2, rows, groups, 0);
    return layout;
}

/* A format of caches; bytes of 32 numbers. With nvfp4 global_scale. */
static int64_t make_packed_format(struct call *c, struct reader *r, int64_t rows, const DLTensor **global)
{
    static const char *const names[] = {"q8_0", "q4_0", "nvfp4", "nvfp4_amax"};
    const int which = pick(r, 4);
    (void)sy_row_format_named(names[which], &c->format);
    if (which > 1)
        add(c, "global_scale", global, (DLDataType){2, 32, 1}, 1, pick(r, 2) ? rows : 1, 0, 0);
    if (pick(r, 12) == 11)
        c->format.group = (int32_t)hostile(r);
    return which == 0 ? 34 : which == 1 ? 18 : 16;
}

void make_quantize(struct call *c, struct reader *r)
{
    static const DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
    sy_quantize_rows_args *a = &c->args.quantize;
    if (pick(r, 4) == 3) {
        const int64_t n = extent(r, 9), packs = extent(r, 5),
                      bytes = make_packed_format(c, r, n, &a->global_scale);
        a->format = &c->format;
        add(c, "input", &a->input, types[pick(r, 3)], 2, n, packs * 32, 0);
        add(c, "codes", &a->codes, SY_U8, 2, n, packs * bytes, 0);
        output(c);
        if (bytes != 16)
            return;
        add(c, "scales", &a->scales, SY_U8, 2, n, packs * 2, 0);
        output(c);
        return;
    }
    int64_t group = pick(r, 9);
    const int64_t rows = extent(r, 9), groups = group == 0 ? 1 : extent(r, 5);
    const DLDataType scales = make_row_format(c, r, &group);
    a->format = &c->format;
    add(c, "input", &a->input, types[pick(r, 3)], 2, rows, groups * group, 0);
    add(c, "codes", &a->codes, c->format.q_type, 2, rows, groups * group, 0);
    output(c);
    a->scale_layout = add_scales(c, r, &a->scales, scales, rows, groups);
    output(c);
}

void make_dequantize(struct call *c, struct reader *r)
{
    static const DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
    sy_dequantize_rows_args *a = &c->args.dequantize;
    if (pick(r, 4) == 3) {
        const int64_t n = extent(r, 9), packs = extent(r, 5),
                      bytes = make_packed_format(c, r, n, &a->global_scale);
        a->format = &c->format;
        add(c, "codes", &a->codes, SY_U8, 2, n, packs * bytes, 0);
        if (bytes == 16)
            add(c, "scales", &a->scales, SY_U8, 2, n, packs * 2, 0);
        add(c, "out", &a->out, types[pick(r, 3)], 2, n, packs * 32, 0);
        output(c);
        return;
    }
    int64_t group = pick(r, 9);
    const int64_t rows = extent(r, 9), groups = group == 0 ? 1 : extent(r, 5);
    const DLDataType scales = make_row_format(c, r, &group);
    a->format = &c->format;
    add(c, "codes", &a->codes, c->format.q_type, 2, rows, groups * group, 0);
    a->scale_layout = add_scales(c, r, &a->scales, scales, rows, groups);
    add(c, "out", &a->out, types[pick(r, 3)], 2, rows, groups * group, 0);
    output(c);
}
