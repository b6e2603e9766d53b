/*
 * Slots [T,K] that name experts, counted by expert in chunks of tokens: shared by moe_permute_ids and
 * moe_align_block. A scan over (expert, chunk) turns the counts into the first place of each chunk, and every chunk then
 * places its slots independently, in the order of the slots.
 */
#include "cpu/load.h"
#pragma once

struct syi_slot_fault {
    int64_t token, slot; /* first id outside; token -1: none */
};

struct syi_slots {
    struct syi_tensor ids;
    int64_t n_tokens, n_slots, n_experts;
    bool allow_missing; /* ids -1 and E name no expert */
    int n_chunks;
    int32_t *count;               /* [chunk][E]; NULL: ids are only validated */
    struct syi_slot_fault *fault; /* [chunk] */
};

/* Sets n_chunks and takes the arrays. */
void syi_slots_lay_out(const sy_ctx *ctx, struct syi_slots *s, bool counted, struct syi_arena *arena);

/* Counts, or rejects the first id that is neither an expert nor a missing one. */
sy_status syi_slots_count(sy_ctx *ctx, struct syi_slots *s);

static inline int64_t syi_slot_id(const struct syi_slots *s, int64_t t, int64_t j)
{
    return syi_load_index(syi_at(s->ids, t), j, s->ids.type);
}

/* Counters of a chunk. */
static inline int32_t *syi_slot_counts(const struct syi_slots *s, int chunk)
{
    return s->count + (int64_t)chunk * s->n_experts;
}
