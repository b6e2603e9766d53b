/*
 * The operators of this backend: scratch bytes of a plan, and its launches.
 */
#ifndef SYC_BACKEND_H
#define SYC_BACKEND_H

#include "cuda/context.cuh"

/* Those that are here. */
#define SYC_OPERATORS(X) \
    X(MOE_ROUTE, moe_route) \
    X(MOE_MAP_FROM_IDS, moe_map_from_ids) \
    X(MOE_IDS_FROM_MAP, moe_ids_from_map) \
    X(MOE_PERMUTE, moe_permute) \
    X(MOE_PERMUTE_IDS, moe_permute_ids) \
    X(MOE_UNPERMUTE_IDS, moe_unpermute_ids) \
    X(MOE_ALIGN_BLOCK, moe_align_block) \
    X(MOE_PAD_MAP, moe_pad_map) \
    X(MOE_REORDER_CHUNKS, moe_reorder_chunks) \
    X(MOE_CONVERT_INDICES, moe_convert_indices) \
    X(MOE_UNPERMUTE, moe_unpermute) \
    X(MOE_PERMUTE_GRAD, moe_permute_grad) \
    X(MOE_UNPERMUTE_GRAD, moe_unpermute_grad) \
    X(MOE_DISPATCH, moe_dispatch) \
    X(MOE_COMBINE, moe_combine) \
    X(MOE_DISPATCH_GRAD_GATE, moe_dispatch_grad_gate) \
    X(MOE_LOCATIONS, moe_locations) \
    X(MOE_CAPACITY, moe_capacity) \
    X(MOE_MAP_PHYSICAL, moe_map_physical) \
    X(SAMPLE, sample) \
    X(SAMPLE_VERIFY, sample_verify) \
    X(SAMPLE_OVERRIDES, sample_overrides) \
    X(SAMPLE_NOISE, sample_noise) \
    X(KV_GATHER, kv_gather) \
    X(KV_TRANSLATE, kv_translate) \
    X(KV_SLOTS, kv_slots) \
    X(KV_SCATTER, kv_scatter) \
    X(KV_RAGGED, kv_ragged) \
    X(KV_BLOCKS, kv_blocks) \
    X(LOCAL_REDUCE, local_reduce) \
    X(QUANTIZE_ROWS, quantize_rows) \
    X(DEQUANTIZE_ROWS, dequantize_rows)

#define SYC_DECLARE(ID, op) \
    size_t syc_##op##_workspace(const struct syc_device *device, const union syi_plan *plan); \
    void syc_##op(struct syc_call *call, const union syi_plan *plan);
SYC_OPERATORS(SYC_DECLARE)
#undef SYC_DECLARE

#endif
