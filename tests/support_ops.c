/*
 * A valid call of every operator that moves data, one row each: what tests of contexts, threads and allocators loop
 * over.
 */
#include "support.h"

static void make_route(struct test_call *c, bool large, int variant)
{
    const int64_t tokens = large ? 3000 : 7, experts = large ? 96 : 8, k = 3;
    const int64_t cells[] = {tokens, experts}, slots[] = {tokens, k};
    sy_moe_route_args *a = &c->args.route;
    *c = (struct test_call){.op = "moe_route", .first_output = 2 + variant};
    struct tensor *logits = test_call_add(c, "logits", &a->logits, SY_F32, 2, cells);
    test_call_add(c, "bias", &a->bias, SY_F32, 1, (int64_t[]){experts});
    if (variant == 1) {
        struct tensor *ids = test_call_add(c, "ids_in", &a->ids_in, SY_I32, 2, slots);
        for (int64_t i = 0; i < tokens * k; i++)
            memcpy(ids->mem + 4 * i, &(int32_t){(int32_t)((i / k * 7 + i % k * 3) % experts)}, 4);
    }
    test_call_add(c, "ids", &a->ids, SY_I32, 2, slots);
    test_call_add(c, "weights", &a->weights, SY_F32, 2, slots);
    test_call_add(c, "routing_map", &a->routing_map, SY_BOOL, 2, cells);
    test_call_add(c, "probs", &a->probs, SY_BF16, 2, cells);
    test_call_add(c, "counts", &a->counts, SY_I64, 1, (int64_t[]){experts});
    test_call_add(c, "scores", &a->scores, SY_F32, 2, cells);
    for (int64_t i = 0; i < tokens * experts; i++) {
        const float x = (float)(i * 7919 % 1009) / 100;
        memcpy(logits->mem + 4 * i, &x, 4);
    }
    a->k = k;
    a->renormalize = true;
    a->capacity = tokens * k / experts;
}

static void make_map_from_ids(struct test_call *c, bool large, int variant)
{
    const int64_t tokens = large ? 9000 : 7, experts = large ? 96 : 8, slots = 3;
    sy_moe_map_from_ids_args *a = &c->args.map_from_ids;
    (void)variant;
    *c = (struct test_call){.op = "moe_map_from_ids", .first_output = 2};
    struct tensor *ids = test_call_add(c, "ids", &a->ids, SY_I32, 2, (int64_t[]){tokens, slots});
    test_call_add(c, "weights", &a->weights, SY_BF16, 2, (int64_t[]){tokens, slots});
    test_call_add(c, "routing_map", &a->routing_map, SY_BOOL, 2, (int64_t[]){tokens, experts});
    test_call_add(c, "probs", &a->probs, SY_BF16, 2, (int64_t[]){tokens, experts});
    for (int64_t i = 0; i < tokens * slots; i++) {
        const int32_t id = (int32_t)((i / slots * 7 + i % slots * 3) % experts);
        memcpy(ids->mem + 4 * i, &id, 4);
    }
    a->num_experts = experts;
}

static void make_ids_from_map(struct test_call *c, bool large, int variant)
{
    const int64_t tokens = large ? 15000 : 7, experts = large ? 96 : 8, slots = 3;
    sy_moe_ids_from_map_args *a = &c->args.ids_from_map;
    (void)variant;
    *c = (struct test_call){.op = "moe_ids_from_map", .first_output = 1};
    struct tensor *map =
        test_call_add(c, "routing_map", &a->routing_map, SY_BOOL, 2, (int64_t[]){tokens, experts});
    test_call_add(c, "ids", &a->ids, SY_I64, 2, (int64_t[]){tokens, slots});
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t j = 0; j < t % (slots + 1); j++)
            map->mem[t * experts + (t * 7 + j * 3) % experts] = 1;
    a->k = slots;
}

static void make_convert_indices(struct test_call *c, bool large, int variant)
{
    const int64_t tokens = large ? 3000 : 7, experts = large ? 60 : 4, rows = 2 * tokens;
    sy_moe_convert_indices_args *a = &c->args.convert_indices;
    (void)variant;
    *c = (struct test_call){.op = "moe_convert_indices", .first_output = 2};
    struct tensor *indices = test_call_add(c, "sorted_indices", &a->sorted_indices, SY_I32, 1, &rows);
    struct tensor *offsets =
        test_call_add(c, "expert_offsets", &a->expert_offsets, SY_I64, 1, (int64_t[]){experts + 1});
    test_call_add(c, "converted_indices", &a->converted_indices, SY_I32, 2,
                  (int64_t[]){tokens, 2 * experts + 1});
    for (int64_t i = 0; i < rows; i++) {
        const int32_t row = (int32_t)(i % 2 * tokens + i / 2);
        memcpy(indices->mem + 4 * i, &row, 4);
    }
    for (int64_t e = 0; e <= experts; e++)
        memcpy(offsets->mem + 8 * e, &(int64_t){rows * e / experts}, 8);
    a->to = SY_INDEX_TE;
    a->num_tokens = tokens;
}

static void make_permute_ids(struct test_call *c, bool large, int variant)
{
    const int64_t tokens = large ? 1500 : 13, experts = large ? 24 : 5, hidden = large ? 900 : 11, slots = 2;
    const int64_t rows = tokens * slots;
    sy_moe_permute_ids_args *a = &c->args.permute_ids;
    *c = (struct test_call){.op = "moe_permute_ids", .first_output = 3};
    test_call_add(c, "tokens", &a->tokens, SY_F16, 2, (int64_t[]){tokens, hidden});
    struct tensor *ids = test_call_add(c, "ids", &a->ids, SY_I64, 2, (int64_t[]){tokens, slots});
    test_call_add(c, "probs", &a->probs, SY_F32, 2, (int64_t[]){tokens, slots});
    test_call_add(c, "permuted_tokens", &a->permuted_tokens, SY_F16, 2, (int64_t[]){rows, hidden});
    test_call_add(c, "sorted_indices", &a->sorted_indices, SY_I32, 1, &rows);
    test_call_add(c, "permuted_probs", &a->permuted_probs, SY_F32, 1, &rows);
    for (int64_t i = 0; i < rows; i++)
        memcpy(ids->mem + 8 * i, &(int64_t){(i * 7 + i / 5) % experts}, 8);
    a->num_experts = variant ? 0 : experts; /* variant: ids of any value */
}

static void make_unpermute_ids(struct test_call *c, bool large, int variant)
{
    const int64_t tokens = large ? 1500 : 13, hidden = large ? 900 : 11, slots = 2, rows = tokens * slots;
    sy_moe_unpermute_ids_args *a = &c->args.unpermute_ids;
    *c = (struct test_call){.op = "moe_unpermute_ids", .first_output = variant ? 6 : 3};
    struct tensor *permuted =
        test_call_add(c, "permuted_tokens", &a->permuted_tokens, SY_BF16, 2, (int64_t[]){rows, hidden});
    struct tensor *indices = test_call_add(c, "sorted_indices", &a->sorted_indices, SY_I32, 1, &rows);
    struct tensor *probs = test_call_add(c, "probs", &a->probs, SY_F16, 2, (int64_t[]){tokens, slots});
    if (variant) {
        test_call_add(c, "bias", &a->bias, SY_BF16, 2, (int64_t[]){1, hidden});
        test_call_add(c, "bias_ids", &a->bias_ids, SY_I32, 2, (int64_t[]){tokens, slots});
        test_call_add(c, "residual", &a->residual, SY_BF16, 2, (int64_t[]){tokens, hidden});
    }
    test_call_add(c, "tokens", &a->tokens, SY_BF16, 2, (int64_t[]){tokens, hidden});
    for (int64_t i = 0; i < rows * hidden; i++)
        memcpy(permuted->mem + 2 * i, &(uint16_t){(uint16_t)(0x3f80 + i % 127)}, 2);
    for (int64_t i = 0; i < rows; i++) {
        memcpy(indices->mem + 4 * i, &(int32_t){(int32_t)(i * 7 % rows)}, 4);
        memcpy(probs->mem + 2 * i, &(uint16_t){(uint16_t)(0x3800 + i % 512)}, 2);
    }
}

static void make_align_block(struct test_call *c, bool large, int variant)
{
    const int64_t tokens = large ? 60000 : 13, experts = large ? 24 : 5, slots = 3, block = 16;
    const int64_t places = (tokens * slots + experts * (block - 1)) / block * block;
    sy_moe_align_block_args *a = &c->args.align_block;
    (void)variant;
    *c = (struct test_call){.op = "moe_align_block", .first_output = 1};
    struct tensor *ids = test_call_add(c, "ids", &a->ids, SY_I64, 2, (int64_t[]){tokens, slots});
    test_call_add(c, "sorted_slots", &a->sorted_slots, SY_I32, 1, &places);
    test_call_add(c, "block_experts", &a->block_experts, SY_I32, 1, (int64_t[]){places / block});
    test_call_add(c, "num_padded", &a->num_padded, SY_I32, 1, (int64_t[]){1});
    test_call_add(c, "expert_counts", &a->expert_counts, SY_I64, 1, &experts);
    for (int64_t i = 0; i < tokens * slots; i++)
        memcpy(ids->mem + 8 * i, &(int64_t){(i * 7 + i / 5) % experts}, 8);
    a->num_experts = experts;
    a->block_size = block;
}

static void make_pad_map(struct test_call *c, bool large, int variant)
{
    const int64_t tokens = large ? 9000 : 23, experts = large ? 130 : 7, shape[2] = {tokens, experts};
    sy_moe_pad_map_args *a = &c->args.pad_map;
    (void)variant;
    *c = (struct test_call){.op = "moe_pad_map", .first_output = 1};
    struct tensor *map = test_call_add(c, "routing_map", &a->routing_map, SY_BOOL, 2, shape);
    test_call_add(c, "padded_map", &a->padded_map, SY_BOOL, 2, shape);
    test_call_add(c, "expert_counts", &a->expert_counts, SY_I64, 1, &experts);
    for (int64_t i = 0; i < tokens * experts; i++)
        map->mem[i] = i * 7 % 5 == 0;
    a->alignment = 8;
}

static const sy_row_format mxfp8 = {.bytes = sizeof mxfp8,
                                    .q_type = {10, 8, 1},
                                    .scale_type = {14, 8, 1},
                                    .group = 32,
                                    .scale_math = SY_SCALE_MATH_UP};

static void make_quantize(struct test_call *c, bool large, int variant)
{
    const int64_t rows = large ? 500 : 3, groups = large ? 130 : 2, shape[2] = {rows, 32 * groups};
    sy_quantize_rows_args *a = &c->args.quantize;
    (void)variant;
    *c = (struct test_call){.op = "quantize_rows", .first_output = 1};
    a->format = &mxfp8;
    test_call_add(c, "input", &a->input, SY_BF16, 2, shape);
    test_call_add(c, "codes", &a->codes, SY_F8_E4M3, 2, shape);
    test_call_add(c, "scales", &a->scales, SY_F8_E8M0, 2, (int64_t[]){rows, groups});
}

static void make_dequantize(struct test_call *c, bool large, int variant)
{
    const int64_t rows = large ? 500 : 3, groups = large ? 130 : 2, shape[2] = {rows, 32 * groups};
    sy_dequantize_rows_args *a = &c->args.dequantize;
    (void)variant;
    *c = (struct test_call){.op = "dequantize_rows", .first_output = 2};
    a->format = &mxfp8;
    struct tensor *codes = test_call_add(c, "codes", &a->codes, SY_F8_E4M3, 2, shape);
    struct tensor *scales = test_call_add(c, "scales", &a->scales, SY_F8_E8M0, 2, (int64_t[]){rows, groups});
    test_call_add(c, "out", &a->out, SY_BF16, 2, shape);
    for (int64_t i = 0; i < rows * 32 * groups; i++)
        codes->mem[i] = (unsigned char)(i * 7);
    for (int64_t i = 0; i < rows * groups; i++)
        scales->mem[i] = (unsigned char)(100 + i % 50);
}

static void make_reorder_chunks(struct test_call *c, bool large, int variant)
{
    const int64_t rows = large ? 3000 : 30, ranks = 3, experts = 4, hidden = large ? 900 : 11;
    const int64_t shape[2] = {rows, hidden};
    sy_moe_reorder_chunks_args *a = &c->args.reorder_chunks;
    *c = (struct test_call){.op = "moe_reorder_chunks", .first_output = 3};
    test_call_add(c, "rows", &a->rows, SY_BF16, 2, shape);
    struct tensor *counts = test_call_add(c, "counts", &a->counts, SY_I64, 2, (int64_t[]){ranks, experts});
    test_call_add(c, "extra", &a->extra, SY_F32, 1, &rows);
    test_call_add(c, "reordered_rows", &a->reordered_rows, SY_BF16, 2, shape);
    test_call_add(c, "reordered_extra", &a->reordered_extra, SY_F32, 1, &rows);
    test_call_add(c, "expert_offsets", &a->expert_offsets, SY_I64, 1, (int64_t[]){experts + 1});
    for (int64_t i = 0; i < ranks * experts; i++) /* the last rows are of no chunk */
        memcpy(counts->mem + 8 * i, &(int64_t){i == 5 ? rows / 5 : i == 7 ? 0 : rows / 15}, 8);
    a->inverse = variant;
}

static void make_permute(struct test_call *c, bool large, int capacity)
{
    const int64_t tokens = large ? 1500 : 13, experts = large ? 24 : 5, hidden = large ? 900 : 11;
    const int64_t rows = capacity ? 2 * tokens / experts * experts : 2 * tokens;
    sy_moe_permute_args *a = &c->args.permute;
    *c = (struct test_call){.op = "moe_permute", .first_output = 3};
    test_call_add(c, "tokens", &a->tokens, SY_F16, 2, (int64_t[]){tokens, hidden});
    struct tensor *map =
        test_call_add(c, "routing_map", &a->routing_map, SY_BOOL, 2, (int64_t[]){tokens, experts});
    test_call_add(c, "probs", &a->probs, SY_F32, 2, (int64_t[]){tokens, experts});
    test_call_add(c, "permuted_tokens", &a->permuted_tokens, SY_F16, 2, (int64_t[]){rows, hidden});
    test_call_add(c, "sorted_indices", &a->sorted_indices, SY_I32, 1, (int64_t[]){rows});
    test_call_add(c, "permuted_probs", &a->permuted_probs, SY_F32, 1, (int64_t[]){rows});
    test_call_add(c, "expert_counts", &a->expert_counts, SY_I64, 1, (int64_t[]){experts});
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t e = 0; e < experts; e++)
            map->mem[t * experts + e] = e == t * 7 % experts || (t % 3 && e == t * t % experts);
    a->num_out_tokens = 2 * tokens;
    a->drop_and_pad = capacity;
}

/* Two experts per token and rows in a shuffled order; in capacity mode any token for any row. */
static void fill_slots(struct tensor *map, struct tensor *indices, bool capacity)
{
    const int64_t tokens = map->shape[0], experts = map->shape[1], rows = indices->shape[0];
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t e = 0; e < experts; e++)
            map->mem[t * experts + e] = e == t % experts || e == (t + 1 + t % (experts - 1)) % experts;
    for (int64_t i = 0; i < rows; i++) {
        const int32_t index = (int32_t)(i * 17 % rows % (capacity ? tokens : rows));
        memcpy(indices->mem + 4 * i, &index, 4);
    }
}

static void make_unpermute(struct test_call *c, bool large, int capacity)
{
    const int64_t tokens = large ? 1500 : 13, experts = large ? 24 : 5, hidden = large ? 450 : 11;
    const int64_t rows = capacity ? 2 * tokens / experts * experts : 2 * tokens;
    sy_moe_unpermute_args *a = &c->args.unpermute;
    *c = (struct test_call){.op = "moe_unpermute", .first_output = 4};
    test_call_add(c, "permuted_tokens", &a->permuted_tokens, SY_BF16, 2, (int64_t[]){rows, hidden});
    struct tensor *indices = test_call_add(c, "sorted_indices", &a->sorted_indices, SY_I32, 1, &rows);
    struct tensor *map =
        test_call_add(c, "routing_map", &a->routing_map, SY_BOOL, 2, (int64_t[]){tokens, experts});
    test_call_add(c, "probs", &a->probs, SY_F16, 2, (int64_t[]){tokens, experts});
    test_call_add(c, "tokens", &a->tokens, SY_BF16, 2, (int64_t[]){tokens, hidden});
    fill_slots(map, indices, capacity);
    a->drop_and_pad = capacity;
}

static void make_permute_grad(struct test_call *c, bool large, int capacity)
{
    const int64_t tokens = large ? 1500 : 13, experts = large ? 24 : 5, hidden = large ? 450 : 11;
    const int64_t rows = capacity ? 2 * tokens / experts * experts : 2 * tokens;
    sy_moe_permute_grad_args *a = &c->args.permute_grad;
    *c = (struct test_call){.op = "moe_permute_grad", .first_output = 4};
    test_call_add(c, "grad_permuted_tokens", &a->grad_permuted_tokens, SY_F16, 2, (int64_t[]){rows, hidden});
    struct tensor *indices = test_call_add(c, "sorted_indices", &a->sorted_indices, SY_I32, 1, &rows);
    test_call_add(c, "grad_permuted_probs", &a->grad_permuted_probs, SY_F32, 1, &rows);
    struct tensor *map =
        test_call_add(c, "routing_map", &a->routing_map, SY_BOOL, 2, (int64_t[]){tokens, experts});
    test_call_add(c, "grad_tokens", &a->grad_tokens, SY_F16, 2, (int64_t[]){tokens, hidden});
    test_call_add(c, "grad_probs", &a->grad_probs, SY_F32, 2, (int64_t[]){tokens, experts});
    fill_slots(map, indices, capacity);
    a->num_experts = experts;
    a->num_tokens = tokens;
    a->drop_and_pad = capacity;
}

static void make_unpermute_grad(struct test_call *c, bool large, int capacity)
{
    const int64_t tokens = large ? 1500 : 13, experts = large ? 24 : 5, hidden = large ? 450 : 11;
    const int64_t rows = capacity ? 2 * tokens / experts * experts : 2 * tokens;
    sy_moe_unpermute_grad_args *a = &c->args.unpermute_grad;
    *c = (struct test_call){.op = "moe_unpermute_grad", .first_output = 5};
    test_call_add(c, "grad_tokens", &a->grad_tokens, SY_F32, 2, (int64_t[]){tokens, hidden});
    struct tensor *indices = test_call_add(c, "sorted_indices", &a->sorted_indices, SY_I32, 1, &rows);
    test_call_add(c, "permuted_tokens", &a->permuted_tokens, SY_F32, 2, (int64_t[]){rows, hidden});
    struct tensor *map =
        test_call_add(c, "routing_map", &a->routing_map, SY_BOOL, 2, (int64_t[]){tokens, experts});
    test_call_add(c, "probs", &a->probs, SY_BF16, 2, (int64_t[]){tokens, experts});
    test_call_add(c, "grad_permuted_tokens", &a->grad_permuted_tokens, SY_F32, 2, (int64_t[]){rows, hidden});
    test_call_add(c, "grad_probs", &a->grad_probs, SY_BF16, 2, (int64_t[]){tokens, experts});
    fill_slots(map, indices, capacity);
    a->drop_and_pad = capacity;
}

static void make_dispatch(struct test_call *c, bool large, int in_place)
{
    const int64_t samples = large ? 1500 : 17, experts = large ? 20 : 3, capacity = large ? 60 : 5,
                  hidden = large ? 700 : 9;
    sy_moe_dispatch_args *a = &c->args.dispatch;
    *c = (struct test_call){.op = "moe_dispatch"};
    test_call_add(c, "gates", &a->gates, SY_F32, 1, (int64_t[]){samples});
    struct tensor *indices = test_call_add(c, "indices", &a->indices, SY_I32, 1, (int64_t[]){samples});
    struct tensor *locations = test_call_add(c, "locations", &a->locations, SY_I32, 1, (int64_t[]){samples});
    if (!in_place)
        test_call_add(c, "input", &a->input, SY_F32, 2, (int64_t[]){samples, hidden});
    c->first_output = c->count;
    test_call_add(c, "dispatch", &a->dispatch, SY_F32, 2, (int64_t[]){experts * capacity, hidden});
    if (in_place) {
        a->input = a->dispatch;
        indices->shape[0] = locations->shape[0] = c->tensors[0].shape[0] = experts * capacity;
    }
    for (int64_t i = 0; i < indices->shape[0]; i++) {
        const int32_t e = (int32_t)(i * 11 % (experts + 1)), slot = (int32_t)(i * i % (capacity + 1));
        memcpy(indices->mem + 4 * i, &e, 4);
        memcpy(locations->mem + 4 * i, &slot, 4);
    }
    a->num_experts = experts;
    a->capacity = capacity;
}

/* Two choices per sample, or fewer samples than threads. */
static void make_combine(struct test_call *c, bool large, int long_rows)
{
    const int64_t samples = long_rows ? 2 : large ? 1500 : 17, hidden = !large ? 9 : long_rows ? 70000 : 300;
    const int64_t choices = long_rows ? 3 : 2, experts = 4, capacity = large && !long_rows ? 300 : 5;
    sy_moe_combine_args *a = &c->args.combine;
    *c = (struct test_call){.op = "moe_combine", .first_output = 4};
    struct tensor *indices =
        test_call_add(c, "indices", &a->indices, SY_I32, 2, (int64_t[]){choices, samples});
    struct tensor *locations =
        test_call_add(c, "locations", &a->locations, SY_I32, 2, (int64_t[]){choices, samples});
    test_call_add(c, "gates", &a->gates, SY_F32, 2, (int64_t[]){choices, samples});
    test_call_add(c, "expert_out", &a->expert_out, SY_BF16, 2, (int64_t[]){experts * capacity, hidden});
    test_call_add(c, "output", &a->output, SY_BF16, 2, (int64_t[]){samples, hidden});
    for (int64_t i = 0; i < choices * samples; i++) {
        memcpy(indices->mem + 4 * i, &(int32_t){(int32_t)(i * 11 % (experts + 1))}, 4);
        memcpy(locations->mem + 4 * i, &(int32_t){(int32_t)(i * i % (capacity + 1))}, 4);
    }
    a->num_experts = experts;
    a->capacity = capacity;
}

/* Two choices per sample, or fewer samples than threads, whose rows are cut. */
static void make_grad_gate(struct test_call *c, bool large, int long_rows)
{
    const int64_t samples = long_rows ? 2 : large ? 1500 : 17, hidden = !large ? 9 : long_rows ? 90000 : 300;
    const int64_t choices = long_rows ? 3 : 2, experts = 4, capacity = large && !long_rows ? 300 : 5;
    sy_moe_dispatch_grad_gate_args *a = &c->args.grad_gate;
    *c = (struct test_call){.op = "moe_dispatch_grad_gate", .first_output = 4};
    struct tensor *indices =
        test_call_add(c, "indices", &a->indices, SY_I32, 2, (int64_t[]){choices, samples});
    struct tensor *locations =
        test_call_add(c, "locations", &a->locations, SY_I32, 2, (int64_t[]){choices, samples});
    test_call_add(c, "input", &a->input, SY_F16, 2, (int64_t[]){samples, hidden});
    struct tensor *slots =
        test_call_add(c, "dispatch", &a->dispatch, SY_F16, 2, (int64_t[]){experts * capacity, hidden});
    test_call_add(c, "grad_gates", &a->grad_gates, SY_F32, 2, (int64_t[]){choices, samples});
    for (int64_t i = 0; i < choices * samples; i++) {
        memcpy(indices->mem + 4 * i, &(int32_t){(int32_t)(i * 11 % (experts + 1))}, 4);
        memcpy(locations->mem + 4 * i, &(int32_t){(int32_t)(i * i % (capacity + 1))}, 4);
    }
    for (int64_t i = 0; i < experts * capacity * hidden; i++)
        memcpy(slots->mem + 2 * i, &(uint16_t){(uint16_t)(0x3000 + i * 7919 % 0x1000)}, 2);
    a->num_experts = experts;
    a->capacity = capacity;
}

static void make_locations(struct test_call *c, bool large, int variant)
{
    const int64_t choices = 3, samples = large ? 60000 : 19, experts = large ? 40 : 4;
    sy_moe_locations_args *a = &c->args.locations;
    (void)variant;
    *c = (struct test_call){.op = "moe_locations", .first_output = 1};
    struct tensor *indices =
        test_call_add(c, "indices", &a->indices, SY_I32, 2, (int64_t[]){choices, samples});
    test_call_add(c, "locations", &a->locations, SY_I32, 2, (int64_t[]){choices, samples});
    test_call_add(c, "counts", &a->counts, SY_I64, 1, (int64_t[]){experts});
    for (int64_t i = 0; i < choices * samples; i++)
        memcpy(indices->mem + 4 * i, &(int32_t){(int32_t)(i * i % (experts + 1))}, 4);
    a->num_experts = experts;
}

static void make_capacity(struct test_call *c, bool large, int variant)
{
    const int64_t experts = large ? 40000 : 4;
    sy_moe_capacity_args *a = &c->args.capacity;
    (void)variant;
    *c = (struct test_call){.op = "moe_capacity", .first_output = 1};
    struct tensor *counts = test_call_add(c, "counts", &a->counts, SY_I64, 1, &experts);
    test_call_add(c, "capacity", &a->capacity, SY_I64, 1, (int64_t[]){1});
    for (int64_t e = 0; e < experts; e++)
        memcpy(counts->mem + 8 * e, &(int64_t){e * 7919 % 1009}, 8);
    a->samples = 1000;
    a->num_experts = experts;
}

static void make_gather(struct test_call *c, bool large, int variant)
{
    (void)variant;
    const int64_t rows = large ? 2000 : 30, width = large ? 600 : 7, batch = large ? 5 : 2,
                  k = large ? 700 : 9;
    sy_kv_gather_args *a = &c->args.gather;
    *c = (struct test_call){.op = "kv_gather", .first_output = 3};
    test_call_add(c, "cache", &a->cache, SY_BF16, 2, (int64_t[]){rows, width});
    struct tensor *indices = test_call_add(c, "indices", &a->indices, SY_I32, 2, (int64_t[]){batch, k});
    struct tensor *table = test_call_add(c, "block_table", &a->block_table, SY_I32, 2, (int64_t[]){batch, 4});
    test_call_add(c, "out", &a->out, SY_BF16, 3, (int64_t[]){batch, k, width});
    for (int64_t i = 0; i < batch * k; i++) {
        const int32_t t = (int32_t)(i % 8 == 5 ? -1 : i * 13 % 20);
        memcpy(indices->mem + 4 * i, &t, 4);
    }
    for (int64_t i = 0; i < batch * 4; i++) {
        const int32_t block = (int32_t)(i * 3 % (rows / 5));
        memcpy(table->mem + 4 * i, &block, 4);
    }
    a->block_size = 5;
    a->pad = SY_PAD_ZERO;
}

/* Integers i * factor % below, or -1 once in eight where `padded`. */
static void put_multiples(struct tensor *x, int64_t factor, int64_t below, bool padded)
{
    for (int64_t i = 0; i < (int64_t)(x->bytes / 4); i++)
        memcpy(x->mem + 4 * i, &(int32_t){(int32_t)(padded && i % 8 == 5 ? -1 : i * factor % below)}, 4);
}

static void make_translate(struct test_call *c, bool large, int variant)
{
    (void)variant;
    const int64_t batch = large ? 50 : 3, k = large ? 4001 : 9;
    sy_kv_translate_args *a = &c->args.translate;
    *c = (struct test_call){.op = "kv_translate", .first_output = 2};
    put_multiples(test_call_add(c, "indices", &a->indices, SY_I32, 2, (int64_t[]){batch, k}), 13, 20, true);
    put_multiples(test_call_add(c, "block_table", &a->block_table, SY_I32, 2, (int64_t[]){batch, 4}), 3, 400,
                  false);
    test_call_add(c, "slots", &a->slots, SY_I32, 2, (int64_t[]){batch, k});
    test_call_add(c, "valid", &a->valid, SY_I64, 1, (int64_t[]){batch});
    a->block_size = 5;
    a->pad = SY_PAD_SKIP;
}

static void make_slots(struct test_call *c, bool large, int variant)
{
    (void)variant;
    const int64_t n = large ? 90003 : 17;
    sy_kv_slots_args *a = &c->args.slots;
    *c = (struct test_call){.op = "kv_slots", .first_output = 3};
    put_multiples(test_call_add(c, "position", &a->position, SY_I32, 1, &n), 13, 20, true);
    put_multiples(test_call_add(c, "batch", &a->batch, SY_I32, 1, &n), 7, 3, false);
    put_multiples(test_call_add(c, "block_table", &a->block_table, SY_I32, 2, (int64_t[]){3, 4}), 3, 400,
                  false);
    test_call_add(c, "slots", &a->slots, SY_I64, 1, &n);
    a->block_size = 5;
    a->pad = SY_PAD_SKIP;
}

static void make_scatter(struct test_call *c, bool large, int variant)
{
    (void)variant;
    const int64_t blocks = large ? 700 : 6, width = large ? 600 : 7, n = large ? 3000 : 19;
    sy_kv_scatter_args *a = &c->args.scatter;
    *c = (struct test_call){.op = "kv_scatter", .first_output = 2};
    test_call_add(c, "src", &a->src, SY_BF16, 2, (int64_t[]){n, width});
    struct tensor *slots = test_call_add(c, "slots", &a->slots, SY_I32, 1, (int64_t[]){n});
    test_call_add(c, "cache", &a->cache, SY_BF16, 3, (int64_t[]){blocks, 5, width});
    for (int64_t i = 0; i < n; i++)
        memcpy(slots->mem + 4 * i, &(int32_t){(int32_t)(i % 7 == 3 ? -1 : (n - i) * 13 % (blocks * 5))}, 4);
    a->pad = SY_PAD_SKIP;
    a->check_unique = true;
}

/* Half of the experts are here; variant 1: layout EXPERT. */
static void make_local_reduce(struct test_call *c, bool large, int variant)
{
    const int64_t tokens = large ? 1500 : 13, hidden = large ? 400 : 11, slots = 3, experts = large ? 6 : 4;
    sy_local_reduce_args *a = &c->args.local_reduce;
    *c = (struct test_call){.op = "local_reduce", .first_output = 4};
    if (variant)
        test_call_add(c, "input", &a->input, SY_BF16, 2, (int64_t[]){tokens * slots, hidden});
    else
        test_call_add(c, "input", &a->input, SY_BF16, 3, (int64_t[]){experts / 2, tokens, hidden});
    struct tensor *choice =
        test_call_add(c, "expert_metadata", &a->expert_metadata, SY_I32, 2, (int64_t[]){tokens, slots});
    struct tensor *mapping =
        test_call_add(c, "expert_mapping", &a->expert_mapping, SY_U16, 2, (int64_t[]){experts, 2});
    struct tensor *weights = test_call_add(c, "weights", &a->weights, SY_F32, 2, (int64_t[]){tokens, slots});
    test_call_add(c, "output", &a->output, SY_BF16, 2, (int64_t[]){tokens, hidden});
    for (int64_t i = 0; i < tokens * slots; i++) {
        memcpy(choice->mem + 4 * i, &(int32_t){(int32_t)(i * 7 % (experts + 1)) - 1}, 4);
        memcpy(weights->mem + 4 * i, &(float){(float)(i % 9) / 4}, 4);
    }
    for (int64_t i = 0; i < experts * 2; i++)
        memcpy(mapping->mem + 2 * i, &(uint16_t){i / 2 % 2 == i % 2}, 2);
    a->device = 1;
    a->layout = variant ? SY_LAYOUT_EXPERT : SY_LAYOUT_PADDED;
}

static void make_map_physical(struct test_call *c, bool large, int variant)
{
    const int64_t tokens = large ? 60000 : 13, experts = 5, slots = 3, replicas = 2;
    sy_moe_map_physical_args *a = &c->args.map_physical;
    (void)variant;
    *c = (struct test_call){.op = "moe_map_physical", .first_output = 2};
    struct tensor *ids = test_call_add(c, "ids", &a->ids, SY_I64, 2, (int64_t[]){tokens, slots});
    struct tensor *table = test_call_add(c, "logical_to_physical", &a->logical_to_physical, SY_I32, 2,
                                         (int64_t[]){experts, replicas});
    test_call_add(c, "physical_ids", &a->physical_ids, SY_I32, 2, (int64_t[]){tokens, slots});
    for (int64_t i = 0; i < tokens * slots; i++)
        memcpy(ids->mem + 8 * i, &(int64_t){(i * 7 + i / 5) % experts}, 8);
    for (int64_t i = 0; i < experts * replicas; i++)
        memcpy(table->mem + 4 * i, &(int32_t){(int32_t)(experts * replicas - 1 - i)}, 4);
    a->num_physical = experts * replicas;
    a->rule = SY_REPLICA_BALANCED;
}

static void make_place(struct test_call *c, bool large, int variant)
{
    const int64_t layers = large ? 60 : 2, experts = large ? 64 : 6, physical = large ? 96 : 8;
    sy_moe_place_args *a = &c->args.place;
    (void)variant;
    *c = (struct test_call){.op = "moe_place", .first_output = 1};
    struct tensor *loads = test_call_add(c, "loads", &a->loads, SY_I64, 2, (int64_t[]){layers, experts});
    test_call_add(c, "physical_to_logical", &a->physical_to_logical, SY_I32, 2,
                  (int64_t[]){layers, physical});
    for (int64_t i = 0; i < layers * experts; i++)
        memcpy(loads->mem + 8 * i, &(int64_t){i * 7919 % 1000}, 8);
    a->num_physical = physical;
    a->devices = 4;
    a->distinct = true;
}

static const struct {
    const char *name;
    void (*make)(struct test_call *c, bool large, int variant);
    int variant;
} calls[TEST_CPU_CALLS] = {
    {"packed moe_permute", make_permute, 0}, /* variant: packed or capacity */
    {"capacity moe_permute", make_permute, 1},
    {"moe_dispatch", make_dispatch, 0},
    {"in-place moe_dispatch", make_dispatch, 1},
    {"moe_combine", make_combine, 0},
    {"moe_combine of long rows", make_combine, 1},
    {"moe_dispatch_grad_gate", make_grad_gate, 0},
    {"moe_dispatch_grad_gate of long rows", make_grad_gate, 1},
    {"moe_locations", make_locations, 0},
    {"kv_gather", make_gather, 0},
    {"sample", test_make_sample, 0},
    {"overridden sample", test_make_sample, 1},
    {"sample with the most likely tokens", test_make_sample, 2},
    {"sample_verify", test_make_verify, 0},
    {"sample_overrides", test_make_overrides, 0},
    {"sample_overrides of drafts", test_make_overrides, 1},
    {"sample_noise", test_make_noise, 0},
    {"moe_route", make_route, 0},
    {"moe_route of given experts", make_route, 1},
    {"packed moe_unpermute", make_unpermute, 0},
    {"capacity moe_unpermute", make_unpermute, 1},
    {"kv_scatter", make_scatter, 0},
    {"moe_map_from_ids", make_map_from_ids, 0},
    {"moe_ids_from_map", make_ids_from_map, 0},
    {"packed moe_permute_grad", make_permute_grad, 0},
    {"capacity moe_permute_grad", make_permute_grad, 1},
    {"packed moe_unpermute_grad", make_unpermute_grad, 0},
    {"capacity moe_unpermute_grad", make_unpermute_grad, 1},
    {"kv_translate", make_translate, 0},
    {"kv_slots", make_slots, 0},
    {"moe_convert_indices", make_convert_indices, 0},
    {"moe_permute_ids", make_permute_ids, 0},
    {"moe_permute_ids of any ids", make_permute_ids, 1},
    {"moe_unpermute_ids", make_unpermute_ids, 0},
    {"moe_unpermute_ids with bias", make_unpermute_ids, 1},
    {"kv_ragged", test_make_ragged, 0},
    {"moe_align_block", make_align_block, 0},
    {"moe_pad_map", make_pad_map, 0},
    {"moe_reorder_chunks", make_reorder_chunks, 0},
    {"moe_reorder_chunks and back", make_reorder_chunks, 1},
    {"kv_blocks", test_make_blocks, 0},
    {"padded local_reduce", make_local_reduce, 0},
    {"local_reduce by expert", make_local_reduce, 1},
    {"quantize_rows", make_quantize, 0},
    {"dequantize_rows", make_dequantize, 0},
    {"moe_capacity", make_capacity, 0},
    {"moe_map_physical", make_map_physical, 0},
    {"moe_place", make_place, 0},
};

const char *test_call_name(int index)
{
    return calls[index].name;
}

static bool is_ordinary(const char *name)
{
    static const char *const names[] = {"tokens",
                                        "permuted_tokens",
                                        "grad_permuted_tokens",
                                        "grad_tokens",
                                        "probs",
                                        "grad_permuted_probs",
                                        "src",
                                        "cache",
                                        "input",
                                        "expert_out",
                                        "rows",
                                        "extra"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* Gates, rows, probs and caches get ordinary numbers; arrays with a meaning were filled by their maker. */
void test_call_make(struct test_call *call, int index, bool large)
{
    uint64_t rng = 2024;
    calls[index].make(call, large, calls[index].variant);
    for (int i = 0; i < call->count; i++) {
        const char *name = call->names[i];
        struct tensor *x = &call->tensors[i];
        if (strcmp(name, "gates") == 0)
            for (size_t at = 0; at < x->bytes; at += 4)
                memcpy(x->mem + at, &(float){(float)(2 * rng_unit(&rng) - 1)}, 4);
        else if (is_ordinary(name))
            rng_fill(&rng, x->mem, x->bytes);
    }
    test_call_reset(call);
}
