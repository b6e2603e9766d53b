/*
 * The operators of this backend: scratch bytes of a plan, and its launches.
 */
#ifndef SYC_BACKEND_H
#define SYC_BACKEND_H

#include "cuda/context.cuh"

/* Those that are here. */
#define SYC_OPERATORS(X) \
    X(KV_GATHER, kv_gather) \
    X(KV_TRANSLATE, kv_translate) \
    X(KV_SLOTS, kv_slots) \
    X(KV_SCATTER, kv_scatter) \
    X(KV_RAGGED, kv_ragged) \
    X(KV_BLOCKS, kv_blocks) \
    X(SAMPLE, sample) \
    X(SAMPLE_OVERRIDES, sample_overrides) \
    X(SAMPLE_NOISE, sample_noise) \
    X(MOE_UNPERMUTE, moe_unpermute) \
    X(MOE_UNPERMUTE_IDS, moe_unpermute_ids) \
    X(MOE_PERMUTE_GRAD, moe_permute_grad) \
    X(MOE_UNPERMUTE_GRAD, moe_unpermute_grad)

#define SYC_DECLARE(ID, op) \
    size_t syc_##op##_workspace(const struct syc_device *device, const union syi_plan *plan); \
    void syc_##op(struct syc_call *call, const union syi_plan *plan);
SYC_OPERATORS(SYC_DECLARE)
#undef SYC_DECLARE

#endif
