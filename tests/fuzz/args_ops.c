/*
 * A valid call of every operator, made from the bytes: sizes, types, options, and which optional tensors are there.
 */
#include "args.h"

#include <string.h>

static const DLDataType f32 = {2, 32, 1}, i32 = {0, 32, 1}, i64 = {0, 64, 1}, byte_map = {6, 8, 1};

static DLDataType row_type(struct reader *r)
{
    static const DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
    return types[pick(r, 3)];
}

/* Experts that are given, factors of experts, gates of shared ones. */
static void add_given(struct call *c, struct reader *r, int64_t tokens, int64_t experts)
{
    static const DLDataType types[] = {{0, 32, 1}, {0, 64, 1}, {0, 16, 1}, {1, 16, 1}, {1, 8, 1}};
    sy_moe_route_args *a = &c->args.route;
    const bool scored = a->score == SY_SCORE_SIGMOID || a->score == SY_SCORE_SQRTSOFTPLUS;
    if (pick(r, 2)) {
        const bool table = pick(r, 2);
        a->allow_missing = pick(r, 2);
        add(c, "ids_in", &a->ids_in, types[pick(r, 5)], 2, table ? extent(r, 9) : tokens, a->k, 0);
        if (table)
            add(c, "ids_rows", &a->ids_rows, pick(r, 2) ? i64 : i32, 1, tokens, 0, 0);
    }
    if (pick(r, 3) == 0)
        add(c, "expert_scale", &a->expert_scale, f32, 1, experts, 0, 0);
    if (a->n_shared > 0 && pick(r, 2)) {
        add(c, "shared_logits", &a->shared_logits, row_type(r), 2, tokens, a->n_shared, 0);
        a->shared_in_sum = a->renormalize && scored && !a->softmax_after && pick(r, 2);
    }
}

static void make_route(struct call *c, struct reader *r)
{
    sy_moe_route_args *a = &c->args.route;
    const int64_t tokens = extent(r, 6), groups = pick(r, 4),
                  experts = (1 + extent(r, 20)) * (groups ? groups : 1);
    static const float scales[] = {0, 2.5f, -1, 1e30f};
    a->groups = groups;
    a->top_groups = groups ? 1 + pick(r, (int)groups) : 0;
    const int64_t most = groups ? experts / groups * a->top_groups : experts;
    a->k = 1 + pick(r, (int)(most < 40 ? most : 40));
    a->score = (sy_route_score)pick(r, 4);
    a->select = (sy_route_select)pick(r, 2);
    a->softmax_after = pick(r, 2);
    a->group_score = (sy_group_score)pick(r, 3);
    a->slot_order = (sy_slot_order)pick(r, 2);
    a->renormalize = pick(r, 2);
    a->eps = scales[pick(r, 2)];
    a->eps_rule = (sy_eps_rule)pick(r, 2);
    a->scale = scales[pick(r, 4)];
    a->n_shared = pick(r, 2) * extent(r, 4);
    a->shared_weight = scales[pick(r, 4)];
    const int64_t slots = a->k + a->n_shared, columns = experts + a->n_shared;
    a->capacity = pick(r, 3) * extent(r, 3);
    a->drop = (sy_drop)pick(r, 2);
    add(c, "logits", &a->logits, row_type(r), 2, tokens, experts, 0);
    add(c, "ids", &a->ids, pick(r, 2) ? i64 : i32, 2, tokens, slots, 0);
    output(c);
    add_given(c, r, tokens, experts);
    if (pick(r, 2))
        add(c, "bias", &a->bias, f32, 1, experts, 0, 0);
    if (pick(r, 2))
        add(c, "finished", &a->finished, byte_map, 1, tokens, 0, 0);
    if (pick(r, 2)) {
        add(c, "weights", &a->weights, row_type(r), 2, tokens, slots, 0);
        output(c);
        add(c, "routing_map", &a->routing_map, byte_map, 2, tokens, columns, 0);
        output(c);
        add(c, "probs", &a->probs, row_type(r), 2, tokens, columns, 0);
        output(c);
        add(c, "counts", &a->counts, i64, 1, columns, 0, 0);
        output(c);
    }
    if (pick(r, 2)) {
        add(c, "scores", &a->scores, f32, 2, tokens, experts, 0);
        output(c);
    }
}

static void make_map_from_ids(struct call *c, struct reader *r)
{
    sy_moe_map_from_ids_args *a = &c->args.map_from_ids;
    const int64_t tokens = extent(r, 9), slots = extent(r, 4);
    const DLDataType type = row_type(r);
    a->num_experts = extent(r, 20);
    a->allow_missing = pick(r, 2);
    add(c, "ids", &a->ids, pick(r, 2) ? i64 : i32, 2, tokens, slots, 0);
    add(c, "routing_map", &a->routing_map, byte_map, 2, tokens, a->num_experts, 0);
    output(c);
    if (pick(r, 2)) {
        add(c, "weights", &a->weights, type, 2, tokens, slots, 0);
        add(c, "probs", &a->probs, type, 2, tokens, a->num_experts, 0);
        output(c);
    }
}

static void make_ids_from_map(struct call *c, struct reader *r)
{
    sy_moe_ids_from_map_args *a = &c->args.ids_from_map;
    const int64_t tokens = extent(r, 9), experts = extent(r, 20);
    const DLDataType type = row_type(r);
    a->k = extent(r, 24);
    add(c, "routing_map", &a->routing_map, byte_map, 2, tokens, experts, 0);
    add(c, "ids", &a->ids, pick(r, 2) ? i64 : i32, 2, tokens, a->k, 0);
    output(c);
    if (pick(r, 2)) {
        add(c, "probs", &a->probs, type, 2, tokens, experts, 0);
        add(c, "weights", &a->weights, type, 2, tokens, a->k, 0);
        output(c);
    }
}

static void make_convert_indices(struct call *c, struct reader *r)
{
    sy_moe_convert_indices_args *a = &c->args.convert_indices;
    const int64_t tokens = extent(r, 9), slots = extent(r, 5), experts = extent(r, 6), rows = tokens * slots;
    a->from = (sy_index_form)pick(r, 3);
    a->to = (sy_index_form)((a->from + 1 + pick(r, 2)) % 3);
    a->num_tokens = tokens;
    a->num_rows = a->from == SY_INDEX_TE ? rows : 0;
    a->k = a->to == SY_INDEX_SLOT ? slots : 0;
    if (a->from == SY_INDEX_TE)
        add(c, "sorted_indices", &a->sorted_indices, i32, 2, tokens, 2 * experts + 1, 0);
    else
        add(c, "sorted_indices", &a->sorted_indices, i32, 1, rows, 0, 0);
    if (a->to == SY_INDEX_TE) {
        add(c, "expert_offsets", &a->expert_offsets, i64, 1, experts + 1, 0, 0);
        add(c, "converted_indices", &a->converted_indices, i32, 2, tokens, 2 * experts + 1, 0);
    } else {
        add(c, "converted_indices", &a->converted_indices, i32, 1, rows, 0, 0);
    }
    output(c);
}

static void make_permute_ids(struct call *c, struct reader *r)
{
    sy_moe_permute_ids_args *a = &c->args.permute_ids;
    const int64_t tokens = extent(r, 9), slots = extent(r, 5), total = tokens * slots;
    int64_t hidden = extent(r, 20);
    DLDataType type = row_type(r);
    const DLDataType prob = row_type(r);
    const struct coded coded = make_coded(c, r, &a->row_format, &type, &hidden);
    a->num_experts = extent(r, 8);
    a->allow_missing = a->num_experts > 0 && pick(r, 2);
    a->window = pick(r, 2);
    a->row_begin = a->window ? pick(r, (int)total + 1) : 0;
    a->row_end = a->window ? total : 0;
    add(c, "tokens", &a->tokens, type, 2, tokens, hidden, 0);
    add(c, "ids", &a->ids, pick(r, 2) ? i64 : i32, 2, tokens, slots, 0);
    add(c, "permuted_tokens", &a->permuted_tokens, coded.codes, 2, total - a->row_begin, hidden, 0);
    output(c);
    if (coded.on) {
        add(c, "permuted_scales", &a->permuted_scales, coded.scales, 2, total - a->row_begin, coded.groups,
            0);
        output(c);
    }
    add(c, "sorted_indices", &a->sorted_indices, i32, 1, total, 0, 0);
    output(c);
    if (pick(r, 2)) {
        add(c, "probs", &a->probs, prob, 2, tokens, slots, 0);
        add(c, "permuted_probs", &a->permuted_probs, prob, 1, total - a->row_begin, 0, 0);
        output(c);
    }
    if (a->num_experts > 0) {
        add(c, "expert_counts", &a->expert_counts, i64, 1, a->num_experts, 0, 0);
        output(c);
        add(c, "expert_offsets", &a->expert_offsets, i64, 1, a->num_experts + 1, 0, 0);
        output(c);
    }
}

static void make_unpermute_ids(struct call *c, struct reader *r)
{
    sy_moe_unpermute_ids_args *a = &c->args.unpermute_ids;
    const int64_t tokens = extent(r, 9), slots = extent(r, 5), hidden = extent(r, 20);
    const int64_t rows = pick(r, 3) ? tokens * slots : extent(r, 30);
    const DLDataType type = row_type(r);
    a->row_begin = pick(r, 4);
    a->num_tokens = tokens;
    add(c, "permuted_tokens", &a->permuted_tokens, type, 2, rows, hidden, 0);
    add(c, "sorted_indices", &a->sorted_indices, i32, 1, tokens * slots, 0, 0);
    if (pick(r, 2))
        add(c, "probs", &a->probs, row_type(r), 2, tokens, slots, 0);
    if (pick(r, 3) == 0) {
        add(c, "bias", &a->bias, type, 2, extent(r, 5), hidden, 0);
        add(c, "bias_ids", &a->bias_ids, i32, 2, tokens, slots, 0);
    }
    if (pick(r, 3) == 0)
        add(c, "residual", &a->residual, type, 2, tokens, hidden, 0);
    if (pick(r, 3) == 0)
        add(c, "shared", &a->shared, type, 2, tokens, hidden, 0);
    a->by_choice = pick(r, 4) == 0;
    a->num_rows = pick(r, 4) == 0 ? tokens * slots + pick(r, 9) : 0;
    add(c, "tokens", &a->tokens, type, 2, tokens, hidden, 0);
    output(c);
}

static void make_permute(struct call *c, struct reader *r)
{
    sy_moe_permute_args *a = &c->args.permute;
    const int64_t tokens = extent(r, 9), experts = extent(r, 7);
    const int64_t n = pick(r, (int)(experts < 20 ? experts : 20) + 1) * tokens + pick(r, 3);
    int64_t hidden = extent(r, 20);
    DLDataType type = row_type(r);
    const DLDataType prob = row_type(r);
    const struct coded coded = make_coded(c, r, &a->row_format, &type, &hidden);
    const bool capacity = pick(r, 2);
    a->num_out_tokens = n <= tokens * experts ? n : tokens * experts;
    a->drop_and_pad = capacity;
    a->zero_pad = pick(r, 2);
    const int64_t parts = capacity ? experts : tokens, rows = parts ? a->num_out_tokens / parts * parts : 0;
    add(c, "tokens", &a->tokens, type, 2, tokens, hidden, 0);
    add(c, "routing_map", &a->routing_map, byte_map, 2, tokens, experts, 0);
    add(c, "permuted_tokens", &a->permuted_tokens, coded.codes, 2, rows, hidden, 0);
    output(c);
    if (coded.on) {
        add(c, "permuted_scales", &a->permuted_scales, coded.scales, 2, rows, coded.groups, 0);
        output(c);
    }
    add(c, "sorted_indices", &a->sorted_indices, i32, 1, rows, 0, 0);
    output(c);
    if (pick(r, 2)) {
        add(c, "probs", &a->probs, prob, 2, tokens, experts, 0);
        add(c, "permuted_probs", &a->permuted_probs, prob, 1, rows, 0, 0);
        output(c);
        add(c, "expert_counts", &a->expert_counts, i64, 1, experts, 0, 0);
        output(c);
        add(c, "expert_offsets", &a->expert_offsets, i64, 1, experts + 1, 0, 0);
        output(c);
    }
}

/* The contents come from the bytes, so most indices are out of range; sizes small enough that some are not. */
static void make_unpermute(struct call *c, struct reader *r)
{
    sy_moe_unpermute_args *a = &c->args.unpermute;
    const int64_t tokens = extent(r, 9), experts = extent(r, 7), slots = extent(r, 4);
    int64_t hidden = extent(r, 20);
    DLDataType type = row_type(r);
    const struct coded coded = make_coded(c, r, &a->row_format, &type, &hidden);
    a->drop_and_pad = pick(r, 2);
    a->zero_pad = pick(r, 2);
    const int64_t rows = slots * (a->drop_and_pad ? experts : tokens);
    add(c, "permuted_tokens", &a->permuted_tokens, coded.codes, 2, rows, hidden, 0);
    if (coded.on)
        add(c, "permuted_scales", &a->permuted_scales, coded.scales, 2, rows, coded.groups, 0);
    add(c, "sorted_indices", &a->sorted_indices, i32, 1, rows, 0, 0);
    add(c, "tokens", &a->tokens, type, 2, tokens, hidden, 0);
    output(c);
    const int given = pick(r, 4);
    if (given > 0)
        add(c, "routing_map", &a->routing_map, byte_map, 2, tokens, experts, 0);
    if (given > 1)
        add(c, "probs", &a->probs, row_type(r), 2, tokens, experts, 0);
    if (given == 0)
        a->num_tokens = tokens;
}

static void make_permute_grad(struct call *c, struct reader *r)
{
    sy_moe_permute_grad_args *a = &c->args.permute_grad;
    const int64_t tokens = 1 + extent(r, 8), experts = 1 + extent(r, 6), hidden = extent(r, 20),
                  slots = extent(r, 4);
    const DLDataType type = row_type(r), prob = row_type(r);
    a->drop_and_pad = pick(r, 2);
    a->zero_pad = pick(r, 2);
    a->num_tokens = tokens;
    a->num_experts = experts;
    const int64_t rows = slots * (a->drop_and_pad ? experts : tokens);
    add(c, "grad_permuted_tokens", &a->grad_permuted_tokens, type, 2, rows, hidden, 0);
    add(c, "sorted_indices", &a->sorted_indices, i32, 1, rows, 0, 0);
    add(c, "grad_tokens", &a->grad_tokens, type, 2, tokens, hidden, 0);
    output(c);
    if (pick(r, 2))
        add(c, "routing_map", &a->routing_map, byte_map, 2, tokens, experts, 0);
    if (pick(r, 2)) {
        add(c, "grad_permuted_probs", &a->grad_permuted_probs, prob, 1, rows, 0, 0);
        add(c, "grad_probs", &a->grad_probs, prob, 2, tokens, experts, 0);
        output(c);
    }
}

static void make_unpermute_grad(struct call *c, struct reader *r)
{
    sy_moe_unpermute_grad_args *a = &c->args.unpermute_grad;
    const int64_t tokens = extent(r, 9), experts = extent(r, 7), hidden = extent(r, 20), slots = extent(r, 4);
    const DLDataType type = row_type(r), prob = row_type(r);
    a->drop_and_pad = pick(r, 2);
    a->zero_pad = pick(r, 2);
    const int64_t rows = slots * (a->drop_and_pad ? experts : tokens);
    add(c, "grad_tokens", &a->grad_tokens, type, 2, tokens, hidden, 0);
    add(c, "sorted_indices", &a->sorted_indices, i32, 1, rows, 0, 0);
    add(c, "grad_permuted_tokens", &a->grad_permuted_tokens, type, 2, rows, hidden, 0);
    output(c);
    if (pick(r, 2)) {
        add(c, "permuted_tokens", &a->permuted_tokens, type, 2, rows, hidden, 0);
        add(c, "routing_map", &a->routing_map, byte_map, 2, tokens, experts, 0);
        add(c, "probs", &a->probs, prob, 2, tokens, experts, 0);
        add(c, "grad_probs", &a->grad_probs, prob, 2, tokens, experts, 0);
        output(c);
    }
}

static void make_dispatch(struct call *c, struct reader *r)
{
    sy_moe_dispatch_args *a = &c->args.dispatch;
    const int64_t samples = extent(r, 12);
    int64_t hidden = extent(r, 20);
    DLDataType type = row_type(r);
    const struct coded coded = make_coded(c, r, &a->row_format, &type, &hidden);
    a->num_experts = extent(r, 6);
    a->capacity = extent(r, 6);
    a->zero_unwritten = pick(r, 2);
    a->unique_slots = pick(r, 2);
    add(c, "indices", &a->indices, i32, 1, samples, 0, 0);
    add(c, "locations", &a->locations, i32, 1, samples, 0, 0);
    add(c, "input", &a->input, type, 2, samples, hidden, 0);
    add(c, "dispatch", &a->dispatch, coded.codes, 2, a->num_experts * a->capacity, hidden, 0);
    output(c);
    if (coded.on) {
        add(c, "dispatch_scales", &a->dispatch_scales, coded.scales, 2, a->num_experts * a->capacity,
            coded.groups, 0);
        output(c);
    }
    if (pick(r, 2))
        add(c, "gates", &a->gates, pick(r, 2) ? type : f32, 1, samples, 0, 0);
}

static void make_combine(struct call *c, struct reader *r)
{
    sy_moe_combine_args *a = &c->args.combine;
    const int64_t choices = extent(r, 4), samples = extent(r, 8), hidden = extent(r, 20);
    const int rank = 1 + pick(r, 2);
    const int64_t first = rank == 1 ? samples : choices;
    const DLDataType type = row_type(r);
    a->num_experts = extent(r, 6);
    a->capacity = extent(r, 6);
    add(c, "indices", &a->indices, i32, rank, first, samples, 0);
    add(c, "locations", &a->locations, i32, rank, first, samples, 0);
    add(c, "expert_out", &a->expert_out, type, 2, a->num_experts * a->capacity, hidden, 0);
    add(c, "output", &a->output, type, 2, samples, hidden, 0);
    output(c);
    if (pick(r, 2))
        add(c, "gates", &a->gates, pick(r, 2) ? type : f32, rank, first, samples, 0);
}

static void make_grad_gate(struct call *c, struct reader *r)
{
    sy_moe_dispatch_grad_gate_args *a = &c->args.grad_gate;
    const int64_t choices = extent(r, 4), samples = extent(r, 8), hidden = extent(r, 20);
    const int rank = 1 + pick(r, 2);
    const int64_t first = rank == 1 ? samples : choices;
    const DLDataType type = row_type(r);
    a->num_experts = extent(r, 6);
    a->capacity = extent(r, 6);
    add(c, "indices", &a->indices, i32, rank, first, samples, 0);
    add(c, "locations", &a->locations, i32, rank, first, samples, 0);
    add(c, "input", &a->input, type, 2, samples, hidden, 0);
    add(c, "dispatch", &a->dispatch, type, 2, a->num_experts * a->capacity, hidden, 0);
    add(c, "grad_gates", &a->grad_gates, pick(r, 2) ? type : f32, rank, first, samples, 0);
    output(c);
}

static void make_locations(struct call *c, struct reader *r)
{
    sy_moe_locations_args *a = &c->args.locations;
    const int64_t choices = extent(r, 4), samples = extent(r, 12);
    const int rank = 1 + pick(r, 2);
    a->num_experts = extent(r, 6);
    add(c, "indices", &a->indices, i32, rank, rank == 1 ? samples : choices, samples, 0);
    add(c, "locations", &a->locations, i32, rank, rank == 1 ? samples : choices, samples, 0);
    output(c);
    if (pick(r, 2))
        add(c, "importance", &a->importance, row_type(r), 1, samples, 0, 0);
    if (pick(r, 2)) {
        add(c, "counts", &a->counts, i64, 1, a->num_experts, 0, 0);
        output(c);
    }
}

static void make_capacity(struct call *c, struct reader *r)
{
    static const double factors[] = {0, 1.25, -1.25, 1e30, -1e30, 0.5};
    sy_moe_capacity_args *a = &c->args.capacity;
    a->num_experts = extent(r, 6);
    a->samples = extent(r, 100);
    a->k = extent(r, 4);
    a->factor = factors[pick(r, 6)];
    a->alignment = pick(r, 9);
    if (pick(r, 4))
        add(c, "counts", &a->counts, pick(r, 2) ? i64 : i32, 1, a->num_experts, 0, 0);
    add(c, "capacity", &a->capacity, i64, 1, 1, 0, 0);
    output(c);
}

static void make_gather(struct call *c, struct reader *r)
{
    sy_kv_gather_args *a = &c->args.gather;
    const int64_t blocks = extent(r, 7), size = 1 + pick(r, 5), batch = extent(r, 4), k = extent(r, 8),
                  table = extent(r, 5);
    const DLDataType index = pick(r, 2) ? i64 : i32;
    struct own_plane own = {
        .cache = &a->cache, .scale = &a->scale, .global = &a->global_scale, .format = &a->format};
    a->block_size = size;
    a->pad = (sy_kv_pad)pick(r, 3);
    a->layout = pick(r, 4) ? SY_KV_NHD : SY_KV_HND;
    make_own(c, r, &own, a->layout, blocks, size);
    add(c, "indices", &a->indices, index, 2, batch, k, 0);
    make_table(c, r, batch, table,
               &(struct table_fields){&a->block_table, &a->page_indices, &a->indptr, &a->last_page_len});
    add(c, "out", &a->out, own.type, 3, batch, k, own.width);
    output(c);
    a->planes = c->planes;
    a->num_planes = make_planes(c, r, a->layout, blocks, size, batch, k, false);
    a->plane_bytes = sizeof(sy_kv_plane);
    if (pick(r, 2))
        add(c, "req_id", &a->req_id, i32, 1, batch, 0, 0);
    if (pick(r, 2))
        add(c, "counts", &a->counts, index, 1, batch, 0, 0);
    if (pick(r, a->last_page_len ? 8 : 2) == 1)
        add(c, "seq_lens", &a->seq_lens, i32, 1, batch, 0, 0);
}

static void make_scatter(struct call *c, struct reader *r)
{
    sy_kv_scatter_args *a = &c->args.scatter;
    const int64_t blocks = extent(r, 7), size = 1 + pick(r, 5);
    const int64_t n = pick(r, 3) ? pick(r, (int)(blocks * size) + 1) : extent(r, 12);
    struct own_plane own = {.cache = &a->cache,
                            .scale = &a->scale,
                            .global = &a->global_scale,
                            .format = &a->format,
                            .to_cache = true};
    a->pad = pick(r, 2) ? SY_PAD_SKIP : SY_PAD_ERROR;
    a->check_unique = pick(r, 2);
    a->layout = pick(r, 4) ? SY_KV_NHD : SY_KV_HND;
    make_own(c, r, &own, a->layout, blocks, size);
    a->block_size = pick(r, 4) ? size : 0;
    add(c, "src", &a->src, own.type, 2, n, own.width, 0);
    add(c, "slots", &a->slots, pick(r, 2) ? i64 : i32, 1, n, 0, 0);
    a->planes = c->planes;
    a->num_planes = make_planes(c, r, a->layout, blocks, size, -1, n, true);
    a->plane_bytes = sizeof(sy_kv_plane);
}

static void make_translate(struct call *c, struct reader *r)
{
    sy_kv_translate_args *a = &c->args.translate;
    const int64_t batch = extent(r, 4), k = extent(r, 8), table = extent(r, 5);
    const DLDataType index = pick(r, 2) ? i64 : i32;
    a->block_size = 1 + pick(r, 5);
    a->num_rows = extent(r, 40);
    a->pad = (sy_kv_pad)pick(r, 3);
    a->world = pick(r, 4);
    a->rank = a->world > 0 ? pick(r, (int)a->world) : 0;
    a->interleave = pick(r, 4);
    add(c, "indices", &a->indices, index, 2, batch, k, 0);
    make_table(c, r, batch, table,
               &(struct table_fields){&a->block_table, &a->page_indices, &a->indptr, &a->last_page_len});
    add(c, "slots", &a->slots, pick(r, 2) ? i64 : i32, 2, batch, k, 0);
    output(c);
    if (pick(r, 2)) {
        add(c, "valid", &a->valid, index, 1, batch, 0, 0);
        output(c);
    }
    if (pick(r, 2))
        add(c, "req_id", &a->req_id, i32, 1, batch, 0, 0);
    if (pick(r, 2))
        add(c, "counts", &a->counts, index, 1, batch, 0, 0);
    if (pick(r, a->last_page_len ? 8 : 2) == 1)
        add(c, "seq_lens", &a->seq_lens, i32, 1, batch, 0, 0);
}

static void make_slots(struct call *c, struct reader *r)
{
    sy_kv_slots_args *a = &c->args.slots;
    const int64_t n = extent(r, 12), rows = extent(r, 4), table = extent(r, 5);
    a->block_size = 1 + pick(r, 5);
    a->num_rows = extent(r, 40);
    a->pad = (sy_kv_pad)pick(r, 3);
    add(c, "position", &a->position, pick(r, 2) ? i64 : i32, 1, n, 0, 0);
    make_table(c, r, rows, table,
               &(struct table_fields){&a->block_table, &a->page_indices, &a->indptr, &a->last_page_len});
    add(c, "slots", &a->slots, pick(r, 2) ? i64 : i32, 1, n, 0, 0);
    output(c);
    if (rows != 1 || pick(r, 2))
        add(c, "batch", &a->batch, pick(r, 2) ? i64 : i32, 1, n, 0, 0);
}

/* ---- The operators ------------------------------------------------------------------------------------------- */

const struct fuzz_op fuzz_ops[] = {
    {"moe_unpermute_ids", make_unpermute_ids},
    {"moe_align_block", make_align_block},
    {"moe_pad_map", make_pad_map},
    {"moe_reorder_chunks", make_reorder_chunks},
    {"moe_permute_ids", make_permute_ids},
    {"moe_convert_indices", make_convert_indices},
    {"moe_ids_from_map", make_ids_from_map},
    {"moe_map_from_ids", make_map_from_ids},
    {"moe_route", make_route},
    {"moe_permute", make_permute},
    {"moe_dispatch", make_dispatch},
    {"moe_combine", make_combine},
    {"moe_dispatch_grad_gate", make_grad_gate},
    {"moe_locations", make_locations},
    {"moe_capacity", make_capacity},
    {"moe_map_physical", make_map_physical},
    {"moe_place", make_place},
    {"kv_gather", make_gather},
    {"kv_scatter", make_scatter},
    {"kv_translate", make_translate},
    {"kv_slots", make_slots},
    {"kv_ragged", make_ragged},
    {"kv_blocks", make_blocks},
    {"sample", make_sample},
    {"sample_verify", make_verify},
    {"sample_overrides", make_overrides},
    {"sample_noise", make_noise},
    {"moe_unpermute", make_unpermute},
    {"moe_permute_grad", make_permute_grad},
    {"moe_unpermute_grad", make_unpermute_grad},
    {"local_reduce", make_local_reduce},
    {"quantize_rows", make_quantize},
    {"dequantize_rows", make_dequantize},
    {"all_to_all_dispatch", make_a2a_dispatch},
    {"all_to_all_combine", make_a2a_combine},
};
const int n_fuzz_ops = (int)(sizeof fuzz_ops / sizeof fuzz_ops[0]);
