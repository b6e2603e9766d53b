/* The operators that need no mesh: the fields of each call in order, and the two calls of each. */
#include <string.h>

#include "binding.h"

#define FIELD(op, kind, member) \
    { \
#member, SYP_##kind, offsetof(sy_##op##_args, member) \
    }
#define END \
    { \
        NULL, SYP_TENSOR, 0 \
    }

static const struct syp_field moe_route[] = {
    FIELD(moe_route, TENSOR, logits),    FIELD(moe_route, TENSOR, bias),
    FIELD(moe_route, TENSOR, finished),  FIELD(moe_route, I64, k),
    FIELD(moe_route, INT, score),        FIELD(moe_route, BOOL, softmax_after),
    FIELD(moe_route, I64, groups),       FIELD(moe_route, I64, top_groups),
    FIELD(moe_route, INT, group_score),  FIELD(moe_route, INT, slot_order),
    FIELD(moe_route, BOOL, renormalize), FIELD(moe_route, F32, eps),
    FIELD(moe_route, F32, scale),        FIELD(moe_route, I64, capacity),
    FIELD(moe_route, INT, drop),         FIELD(moe_route, TENSOR, ids),
    FIELD(moe_route, TENSOR, weights),   FIELD(moe_route, TENSOR, routing_map),
    FIELD(moe_route, TENSOR, probs),     FIELD(moe_route, TENSOR, counts),
    FIELD(moe_route, TENSOR, scores),    END,
};

static const struct syp_field moe_map_from_ids[] = {
    FIELD(moe_map_from_ids, TENSOR, ids),
    FIELD(moe_map_from_ids, TENSOR, weights),
    FIELD(moe_map_from_ids, I64, num_experts),
    FIELD(moe_map_from_ids, BOOL, allow_missing),
    FIELD(moe_map_from_ids, TENSOR, routing_map),
    FIELD(moe_map_from_ids, TENSOR, probs),
    END,
};

static const struct syp_field moe_ids_from_map[] = {
    FIELD(moe_ids_from_map, TENSOR, routing_map),
    FIELD(moe_ids_from_map, TENSOR, probs),
    FIELD(moe_ids_from_map, I64, k),
    FIELD(moe_ids_from_map, TENSOR, ids),
    FIELD(moe_ids_from_map, TENSOR, weights),
    END,
};

static const struct syp_field moe_permute[] = {
    FIELD(moe_permute, TENSOR, tokens),          FIELD(moe_permute, TENSOR, routing_map),
    FIELD(moe_permute, TENSOR, probs),           FIELD(moe_permute, I64, num_out_tokens),
    FIELD(moe_permute, BOOL, drop_and_pad),      FIELD(moe_permute, BOOL, zero_pad),
    FIELD(moe_permute, TENSOR, permuted_tokens), FIELD(moe_permute, TENSOR, sorted_indices),
    FIELD(moe_permute, TENSOR, permuted_probs),  FIELD(moe_permute, TENSOR, expert_counts),
    FIELD(moe_permute, TENSOR, expert_offsets),  END,
};

static const struct syp_field moe_unpermute[] = {
    FIELD(moe_unpermute, TENSOR, permuted_tokens),
    FIELD(moe_unpermute, TENSOR, sorted_indices),
    FIELD(moe_unpermute, TENSOR, routing_map),
    FIELD(moe_unpermute, TENSOR, probs),
    FIELD(moe_unpermute, I64, num_tokens),
    FIELD(moe_unpermute, BOOL, drop_and_pad),
    FIELD(moe_unpermute, BOOL, zero_pad),
    FIELD(moe_unpermute, TENSOR, tokens),
    END,
};

static const struct syp_field moe_permute_ids[] = {
    FIELD(moe_permute_ids, TENSOR, tokens),
    FIELD(moe_permute_ids, TENSOR, ids),
    FIELD(moe_permute_ids, TENSOR, probs),
    FIELD(moe_permute_ids, I64, num_out_tokens),
    FIELD(moe_permute_ids, I64, num_experts),
    FIELD(moe_permute_ids, BOOL, window),
    FIELD(moe_permute_ids, I64, row_begin),
    FIELD(moe_permute_ids, I64, row_end),
    FIELD(moe_permute_ids, BOOL, allow_missing),
    FIELD(moe_permute_ids, TENSOR, permuted_tokens),
    FIELD(moe_permute_ids, TENSOR, sorted_indices),
    FIELD(moe_permute_ids, TENSOR, permuted_probs),
    FIELD(moe_permute_ids, TENSOR, expert_counts),
    FIELD(moe_permute_ids, TENSOR, expert_offsets),
    END,
};

static const struct syp_field moe_unpermute_ids[] = {
    FIELD(moe_unpermute_ids, TENSOR, permuted_tokens),
    FIELD(moe_unpermute_ids, TENSOR, sorted_indices),
    FIELD(moe_unpermute_ids, TENSOR, probs),
    FIELD(moe_unpermute_ids, I64, num_tokens),
    FIELD(moe_unpermute_ids, I64, row_begin),
    FIELD(moe_unpermute_ids, TENSOR, tokens),
    END,
};

static const struct syp_field moe_align_block[] = {
    FIELD(moe_align_block, TENSOR, ids),
    FIELD(moe_align_block, TENSOR, expert_map),
    FIELD(moe_align_block, I64, num_experts),
    FIELD(moe_align_block, I64, block_size),
    FIELD(moe_align_block, BOOL, allow_missing),
    FIELD(moe_align_block, BOOL, skip_unmapped),
    FIELD(moe_align_block, TENSOR, sorted_slots),
    FIELD(moe_align_block, TENSOR, block_experts),
    FIELD(moe_align_block, TENSOR, num_padded),
    FIELD(moe_align_block, TENSOR, expert_counts),
    FIELD(moe_align_block, TENSOR, expert_offsets),
    END,
};

static const struct syp_field moe_pad_map[] = {
    FIELD(moe_pad_map, TENSOR, routing_map),
    FIELD(moe_pad_map, I64, alignment),
    FIELD(moe_pad_map, TENSOR, padded_map),
    FIELD(moe_pad_map, TENSOR, expert_counts),
    END,
};

static const struct syp_field moe_reorder_chunks[] = {
    FIELD(moe_reorder_chunks, TENSOR, rows),           FIELD(moe_reorder_chunks, TENSOR, counts),
    FIELD(moe_reorder_chunks, TENSOR, extra),          FIELD(moe_reorder_chunks, BOOL, inverse),
    FIELD(moe_reorder_chunks, TENSOR, reordered_rows), FIELD(moe_reorder_chunks, TENSOR, reordered_extra),
    FIELD(moe_reorder_chunks, TENSOR, expert_offsets), END,
};

static const struct syp_field moe_convert_indices[] = {
    FIELD(moe_convert_indices, TENSOR, sorted_indices),
    FIELD(moe_convert_indices, TENSOR, expert_offsets),
    FIELD(moe_convert_indices, INT, from),
    FIELD(moe_convert_indices, INT, to),
    FIELD(moe_convert_indices, I64, num_tokens),
    FIELD(moe_convert_indices, I64, num_rows),
    FIELD(moe_convert_indices, I64, k),
    FIELD(moe_convert_indices, TENSOR, converted_indices),
    END,
};

static const struct syp_field moe_permute_grad[] = {
    FIELD(moe_permute_grad, TENSOR, grad_permuted_tokens),
    FIELD(moe_permute_grad, TENSOR, sorted_indices),
    FIELD(moe_permute_grad, TENSOR, grad_permuted_probs),
    FIELD(moe_permute_grad, TENSOR, routing_map),
    FIELD(moe_permute_grad, I64, num_experts),
    FIELD(moe_permute_grad, I64, num_tokens),
    FIELD(moe_permute_grad, BOOL, drop_and_pad),
    FIELD(moe_permute_grad, BOOL, zero_pad),
    FIELD(moe_permute_grad, TENSOR, grad_tokens),
    FIELD(moe_permute_grad, TENSOR, grad_probs),
    END,
};

static const struct syp_field moe_unpermute_grad[] = {
    FIELD(moe_unpermute_grad, TENSOR, grad_tokens),
    FIELD(moe_unpermute_grad, TENSOR, sorted_indices),
    FIELD(moe_unpermute_grad, TENSOR, permuted_tokens),
    FIELD(moe_unpermute_grad, TENSOR, routing_map),
    FIELD(moe_unpermute_grad, TENSOR, probs),
    FIELD(moe_unpermute_grad, BOOL, drop_and_pad),
    FIELD(moe_unpermute_grad, BOOL, zero_pad),
    FIELD(moe_unpermute_grad, TENSOR, grad_permuted_tokens),
    FIELD(moe_unpermute_grad, TENSOR, grad_probs),
    END,
};

static const struct syp_field moe_dispatch[] = {
    FIELD(moe_dispatch, TENSOR, gates),        FIELD(moe_dispatch, TENSOR, indices),
    FIELD(moe_dispatch, TENSOR, locations),    FIELD(moe_dispatch, TENSOR, input),
    FIELD(moe_dispatch, I64, num_experts),     FIELD(moe_dispatch, I64, capacity),
    FIELD(moe_dispatch, BOOL, zero_unwritten), FIELD(moe_dispatch, BOOL, unique_slots),
    FIELD(moe_dispatch, TENSOR, dispatch),     END,
};

static const struct syp_field moe_combine[] = {
    FIELD(moe_combine, TENSOR, gates),     FIELD(moe_combine, TENSOR, indices),
    FIELD(moe_combine, TENSOR, locations), FIELD(moe_combine, TENSOR, expert_out),
    FIELD(moe_combine, I64, num_experts),  FIELD(moe_combine, I64, capacity),
    FIELD(moe_combine, TENSOR, output),    END,
};

static const struct syp_field moe_dispatch_grad_gate[] = {
    FIELD(moe_dispatch_grad_gate, TENSOR, indices),    FIELD(moe_dispatch_grad_gate, TENSOR, locations),
    FIELD(moe_dispatch_grad_gate, TENSOR, input),      FIELD(moe_dispatch_grad_gate, TENSOR, dispatch),
    FIELD(moe_dispatch_grad_gate, I64, num_experts),   FIELD(moe_dispatch_grad_gate, I64, capacity),
    FIELD(moe_dispatch_grad_gate, TENSOR, grad_gates), END,
};

static const struct syp_field moe_locations[] = {
    FIELD(moe_locations, TENSOR, indices),  FIELD(moe_locations, TENSOR, importance),
    FIELD(moe_locations, I64, num_experts), FIELD(moe_locations, TENSOR, locations),
    FIELD(moe_locations, TENSOR, counts),   END,
};

static const struct syp_field moe_capacity[] = {
    FIELD(moe_capacity, TENSOR, counts),   FIELD(moe_capacity, I64, samples),
    FIELD(moe_capacity, I64, num_experts), FIELD(moe_capacity, I64, k),
    FIELD(moe_capacity, F64, factor),      FIELD(moe_capacity, I64, alignment),
    FIELD(moe_capacity, TENSOR, capacity), END,
};

static const struct syp_field kv_gather[] = {
    FIELD(kv_gather, TENSOR, cache),         FIELD(kv_gather, TENSOR, indices),
    FIELD(kv_gather, TENSOR, block_table),   FIELD(kv_gather, TENSOR, req_id),
    FIELD(kv_gather, TENSOR, counts),        FIELD(kv_gather, TENSOR, seq_lens),
    FIELD(kv_gather, TENSOR, page_indices),  FIELD(kv_gather, TENSOR, indptr),
    FIELD(kv_gather, TENSOR, last_page_len), FIELD(kv_gather, TENSOR, scale),
    FIELD(kv_gather, I64, block_size),       FIELD(kv_gather, INT, pad),
    FIELD(kv_gather, INT, layout),           FIELD(kv_gather, FORMAT, format),
    FIELD(kv_gather, TENSOR, out),           END,
};

static const struct syp_field kv_translate[] = {
    FIELD(kv_translate, TENSOR, indices),
    FIELD(kv_translate, TENSOR, block_table),
    FIELD(kv_translate, TENSOR, req_id),
    FIELD(kv_translate, TENSOR, counts),
    FIELD(kv_translate, TENSOR, seq_lens),
    FIELD(kv_translate, TENSOR, page_indices),
    FIELD(kv_translate, TENSOR, indptr),
    FIELD(kv_translate, TENSOR, last_page_len),
    FIELD(kv_translate, I64, block_size),
    FIELD(kv_translate, I64, num_rows),
    FIELD(kv_translate, INT, pad),
    FIELD(kv_translate, I64, world),
    FIELD(kv_translate, I64, rank),
    FIELD(kv_translate, I64, interleave),
    FIELD(kv_translate, TENSOR, slots),
    FIELD(kv_translate, TENSOR, valid),
    END,
};

static const struct syp_field kv_slots[] = {
    FIELD(kv_slots, TENSOR, batch),
    FIELD(kv_slots, TENSOR, position),
    FIELD(kv_slots, TENSOR, block_table),
    FIELD(kv_slots, TENSOR, page_indices),
    FIELD(kv_slots, TENSOR, indptr),
    FIELD(kv_slots, TENSOR, last_page_len),
    FIELD(kv_slots, I64, block_size),
    FIELD(kv_slots, I64, num_rows),
    FIELD(kv_slots, INT, pad),
    FIELD(kv_slots, TENSOR, slots),
    END,
};

static const struct syp_field kv_scatter[] = {
    FIELD(kv_scatter, TENSOR, src),        FIELD(kv_scatter, TENSOR, slots),
    FIELD(kv_scatter, TENSOR, scale),      FIELD(kv_scatter, INT, pad),
    FIELD(kv_scatter, BOOL, check_unique), FIELD(kv_scatter, INT, layout),
    FIELD(kv_scatter, FORMAT, format),     FIELD(kv_scatter, I64, block_size),
    FIELD(kv_scatter, TENSOR, cache),      END,
};

static const struct syp_field kv_ragged[] = {
    FIELD(kv_ragged, TENSOR, cache),
    FIELD(kv_ragged, TENSOR, block_table),
    FIELD(kv_ragged, TENSOR, cu_lens),
    FIELD(kv_ragged, TENSOR, starts),
    FIELD(kv_ragged, TENSOR, req_id),
    FIELD(kv_ragged, TENSOR, page_indices),
    FIELD(kv_ragged, TENSOR, indptr),
    FIELD(kv_ragged, TENSOR, last_page_len),
    FIELD(kv_ragged, TENSOR, seq_lens),
    FIELD(kv_ragged, TENSOR, scale),
    FIELD(kv_ragged, I64, block_size),
    FIELD(kv_ragged, INT, layout),
    FIELD(kv_ragged, FORMAT, format),
    FIELD(kv_ragged, TENSOR, out),
    END,
};

static const struct syp_field kv_blocks[] = {
    FIELD(kv_blocks, TENSOR, src),   FIELD(kv_blocks, TENSOR, pairs), FIELD(kv_blocks, I64, block_size),
    FIELD(kv_blocks, TENSOR, cache), FIELD(kv_blocks, TENSOR, dst),   END,
};

static const struct syp_field sample[] = {
    FIELD(sample, TENSOR, logits),
    FIELD(sample, INTEGERS, top_k),
    FIELD(sample, REALS, top_p),
    FIELD(sample, REALS, min_p),
    FIELD(sample, REALS, temperature),
    FIELD(sample, TENSOR, q),
    FIELD(sample, INTEGERS, seed),
    FIELD(sample, INTEGERS, offset),
    FIELD(sample, INTEGERS, stream),
    FIELD(sample, TENSOR, allow_bits),
    FIELD(sample, TENSOR, override_indptr),
    FIELD(sample, TENSOR, override_token),
    FIELD(sample, TENSOR, override_logit),
    FIELD(sample, F32, eps),
    FIELD(sample, INT, noise),
    FIELD(sample, INT, q_order),
    FIELD(sample, INT, ties),
    FIELD(sample, INT, logprob_mode),
    FIELD(sample, INT, empty_token),
    FIELD(sample, I64, k_limit),
    FIELD(sample, I64, top_k_guess),
    FIELD(sample, BOOL, probs_in),
    FIELD(sample, TENSOR, token),
    FIELD(sample, TENSOR, kept),
    FIELD(sample, TENSOR, row_flags),
    FIELD(sample, TENSOR, masked_logits),
    FIELD(sample, TENSOR, list_token),
    FIELD(sample, TENSOR, list_prob),
    FIELD(sample, TENSOR, logprob),
    END,
};

static const struct syp_field sample_overrides[] = {
    FIELD(sample_overrides, TENSOR, logits),
    FIELD(sample_overrides, TENSOR, prompt_indptr),
    FIELD(sample_overrides, TENSOR, prompt_token),
    FIELD(sample_overrides, TENSOR, output_indptr),
    FIELD(sample_overrides, TENSOR, output_token),
    FIELD(sample_overrides, TENSOR, bias_indptr),
    FIELD(sample_overrides, TENSOR, bias_token),
    FIELD(sample_overrides, TENSOR, bias),
    FIELD(sample_overrides, REALS, repetition_penalty),
    FIELD(sample_overrides, REALS, frequency_penalty),
    FIELD(sample_overrides, REALS, presence_penalty),
    FIELD(sample_overrides, TENSOR, override_indptr),
    FIELD(sample_overrides, TENSOR, override_token),
    FIELD(sample_overrides, TENSOR, override_logit),
    END,
};

static const struct syp_field sample_noise[] = {
    FIELD(sample_noise, U64, seed), FIELD(sample_noise, U64, offset), FIELD(sample_noise, U32, stream),
    FIELD(sample_noise, I64, n),    FIELD(sample_noise, TENSOR, q),   END,
};

static const struct syp_field local_reduce[] = {
    FIELD(local_reduce, TENSOR, input),
    FIELD(local_reduce, TENSOR, expert_metadata),
    FIELD(local_reduce, TENSOR, expert_mapping),
    FIELD(local_reduce, TENSOR, weights),
    FIELD(local_reduce, I64, device),
    FIELD(local_reduce, INT, fill),
    FIELD(local_reduce, INT, layout),
    FIELD(local_reduce, I64, align),
    FIELD(local_reduce, INT, output_concat_dim),
    FIELD(local_reduce, INT, order),
    FIELD(local_reduce, I64, group_size),
    FIELD(local_reduce, TENSOR, output),
    END,
};

#define PLANES(op) offsetof(sy_##op##_args, planes), offsetof(sy_##op##_args, num_planes)
#define OPERATOR(op, OP, ...) \
    { \
#op, SYP_##OP, sizeof(sy_##op##_args), op, __VA_ARGS__ \
    }

static const struct syp_operator operators[] = {
    OPERATOR(moe_route, MOE_ROUTE, 0, 0),
    OPERATOR(moe_map_from_ids, MOE_MAP_FROM_IDS, 0, 0),
    OPERATOR(moe_ids_from_map, MOE_IDS_FROM_MAP, 0, 0),
    OPERATOR(moe_permute, MOE_PERMUTE, 0, 0),
    OPERATOR(moe_unpermute, MOE_UNPERMUTE, 0, 0),
    OPERATOR(moe_permute_ids, MOE_PERMUTE_IDS, 0, 0),
    OPERATOR(moe_unpermute_ids, MOE_UNPERMUTE_IDS, 0, 0),
    OPERATOR(moe_align_block, MOE_ALIGN_BLOCK, 0, 0),
    OPERATOR(moe_pad_map, MOE_PAD_MAP, 0, 0),
    OPERATOR(moe_reorder_chunks, MOE_REORDER_CHUNKS, 0, 0),
    OPERATOR(moe_convert_indices, MOE_CONVERT_INDICES, 0, 0),
    OPERATOR(moe_permute_grad, MOE_PERMUTE_GRAD, 0, 0),
    OPERATOR(moe_unpermute_grad, MOE_UNPERMUTE_GRAD, 0, 0),
    OPERATOR(moe_dispatch, MOE_DISPATCH, 0, 0),
    OPERATOR(moe_combine, MOE_COMBINE, 0, 0),
    OPERATOR(moe_dispatch_grad_gate, MOE_DISPATCH_GRAD_GATE, 0, 0),
    OPERATOR(moe_locations, MOE_LOCATIONS, 0, 0),
    OPERATOR(moe_capacity, MOE_CAPACITY, 0, 0),
    OPERATOR(kv_gather, KV_GATHER, PLANES(kv_gather)),
    OPERATOR(kv_translate, KV_TRANSLATE, 0, 0),
    OPERATOR(kv_slots, KV_SLOTS, 0, 0),
    OPERATOR(kv_scatter, KV_SCATTER, PLANES(kv_scatter)),
    OPERATOR(kv_ragged, KV_RAGGED, PLANES(kv_ragged)),
    OPERATOR(kv_blocks, KV_BLOCKS, PLANES(kv_blocks)),
    OPERATOR(sample, SAMPLE, 0, 0),
    OPERATOR(sample_overrides, SAMPLE_OVERRIDES, 0, 0),
    OPERATOR(sample_noise, SAMPLE_NOISE, 0, 0),
    OPERATOR(local_reduce, LOCAL_REDUCE, 0, 0),
};

const struct syp_operator *syp_find_operator(TVMFFIByteArray name)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (strlen(operators[i].name) == name.size && memcmp(operators[i].name, name.data, name.size) == 0)
            return &operators[i];
    return NULL;
}

sy_status syp_call(const struct syp_operator *op, sy_ctx *ctx, const union syp_args *args)
{
    switch (op->op) {
    case SYP_MOE_ROUTE:
        return sy_moe_route(ctx, &args->moe_route);
    case SYP_MOE_MAP_FROM_IDS:
        return sy_moe_map_from_ids(ctx, &args->moe_map_from_ids);
    case SYP_MOE_IDS_FROM_MAP:
        return sy_moe_ids_from_map(ctx, &args->moe_ids_from_map);
    case SYP_MOE_PERMUTE:
        return sy_moe_permute(ctx, &args->moe_permute);
    case SYP_MOE_UNPERMUTE:
        return sy_moe_unpermute(ctx, &args->moe_unpermute);
    case SYP_MOE_PERMUTE_IDS:
        return sy_moe_permute_ids(ctx, &args->moe_permute_ids);
    case SYP_MOE_UNPERMUTE_IDS:
        return sy_moe_unpermute_ids(ctx, &args->moe_unpermute_ids);
    case SYP_MOE_ALIGN_BLOCK:
        return sy_moe_align_block(ctx, &args->moe_align_block);
    case SYP_MOE_PAD_MAP:
        return sy_moe_pad_map(ctx, &args->moe_pad_map);
    case SYP_MOE_REORDER_CHUNKS:
        return sy_moe_reorder_chunks(ctx, &args->moe_reorder_chunks);
    case SYP_MOE_CONVERT_INDICES:
        return sy_moe_convert_indices(ctx, &args->moe_convert_indices);
    case SYP_MOE_PERMUTE_GRAD:
        return sy_moe_permute_grad(ctx, &args->moe_permute_grad);
    case SYP_MOE_UNPERMUTE_GRAD:
        return sy_moe_unpermute_grad(ctx, &args->moe_unpermute_grad);
    case SYP_MOE_DISPATCH:
        return sy_moe_dispatch(ctx, &args->moe_dispatch);
    case SYP_MOE_COMBINE:
        return sy_moe_combine(ctx, &args->moe_combine);
    case SYP_MOE_DISPATCH_GRAD_GATE:
        return sy_moe_dispatch_grad_gate(ctx, &args->moe_dispatch_grad_gate);
    case SYP_MOE_LOCATIONS:
        return sy_moe_locations(ctx, &args->moe_locations);
    case SYP_MOE_CAPACITY:
        return sy_moe_capacity(ctx, &args->moe_capacity);
    case SYP_KV_GATHER:
        return sy_kv_gather(ctx, &args->kv_gather);
    case SYP_KV_TRANSLATE:
        return sy_kv_translate(ctx, &args->kv_translate);
    case SYP_KV_SLOTS:
        return sy_kv_slots(ctx, &args->kv_slots);
    case SYP_KV_SCATTER:
        return sy_kv_scatter(ctx, &args->kv_scatter);
    case SYP_KV_RAGGED:
        return sy_kv_ragged(ctx, &args->kv_ragged);
    case SYP_KV_BLOCKS:
        return sy_kv_blocks(ctx, &args->kv_blocks);
    case SYP_SAMPLE:
        return sy_sample(ctx, &args->sample);
    case SYP_SAMPLE_OVERRIDES:
        return sy_sample_overrides(ctx, &args->sample_overrides);
    case SYP_SAMPLE_NOISE:
        return sy_sample_noise(ctx, &args->sample_noise);
    case SYP_LOCAL_REDUCE:
        return sy_local_reduce(ctx, &args->local_reduce);
    }
    return SY_ERR_UNSUPPORTED;
}

sy_status syp_query(const struct syp_operator *op, sy_ctx *ctx, const union syp_args *args, sy_query *query)
{
    switch (op->op) {
    case SYP_MOE_ROUTE:
        return sy_moe_route_query(ctx, &args->moe_route, query);
    case SYP_MOE_MAP_FROM_IDS:
        return sy_moe_map_from_ids_query(ctx, &args->moe_map_from_ids, query);
    case SYP_MOE_IDS_FROM_MAP:
        return sy_moe_ids_from_map_query(ctx, &args->moe_ids_from_map, query);
    case SYP_MOE_PERMUTE:
        return sy_moe_permute_query(ctx, &args->moe_permute, query);
    case SYP_MOE_UNPERMUTE:
        return sy_moe_unpermute_query(ctx, &args->moe_unpermute, query);
    case SYP_MOE_PERMUTE_IDS:
        return sy_moe_permute_ids_query(ctx, &args->moe_permute_ids, query);
    case SYP_MOE_UNPERMUTE_IDS:
        return sy_moe_unpermute_ids_query(ctx, &args->moe_unpermute_ids, query);
    case SYP_MOE_ALIGN_BLOCK:
        return sy_moe_align_block_query(ctx, &args->moe_align_block, query);
    case SYP_MOE_PAD_MAP:
        return sy_moe_pad_map_query(ctx, &args->moe_pad_map, query);
    case SYP_MOE_REORDER_CHUNKS:
        return sy_moe_reorder_chunks_query(ctx, &args->moe_reorder_chunks, query);
    case SYP_MOE_CONVERT_INDICES:
        return sy_moe_convert_indices_query(ctx, &args->moe_convert_indices, query);
    case SYP_MOE_PERMUTE_GRAD:
        return sy_moe_permute_grad_query(ctx, &args->moe_permute_grad, query);
    case SYP_MOE_UNPERMUTE_GRAD:
        return sy_moe_unpermute_grad_query(ctx, &args->moe_unpermute_grad, query);
    case SYP_MOE_DISPATCH:
        return sy_moe_dispatch_query(ctx, &args->moe_dispatch, query);
    case SYP_MOE_COMBINE:
        return sy_moe_combine_query(ctx, &args->moe_combine, query);
    case SYP_MOE_DISPATCH_GRAD_GATE:
        return sy_moe_dispatch_grad_gate_query(ctx, &args->moe_dispatch_grad_gate, query);
    case SYP_MOE_LOCATIONS:
        return sy_moe_locations_query(ctx, &args->moe_locations, query);
    case SYP_MOE_CAPACITY:
        return sy_moe_capacity_query(ctx, &args->moe_capacity, query);
    case SYP_KV_GATHER:
        return sy_kv_gather_query(ctx, &args->kv_gather, query);
    case SYP_KV_TRANSLATE:
        return sy_kv_translate_query(ctx, &args->kv_translate, query);
    case SYP_KV_SLOTS:
        return sy_kv_slots_query(ctx, &args->kv_slots, query);
    case SYP_KV_SCATTER:
        return sy_kv_scatter_query(ctx, &args->kv_scatter, query);
    case SYP_KV_RAGGED:
        return sy_kv_ragged_query(ctx, &args->kv_ragged, query);
    case SYP_KV_BLOCKS:
        return sy_kv_blocks_query(ctx, &args->kv_blocks, query);
    case SYP_SAMPLE:
        return sy_sample_query(ctx, &args->sample, query);
    case SYP_SAMPLE_OVERRIDES:
        return sy_sample_overrides_query(ctx, &args->sample_overrides, query);
    case SYP_SAMPLE_NOISE:
        return sy_sample_noise_query(ctx, &args->sample_noise, query);
    case SYP_LOCAL_REDUCE:
        return sy_local_reduce_query(ctx, &args->local_reduce, query);
    }
    return SY_ERR_UNSUPPORTED;
}
