/*
 * Shared by moe_permute, its inverse and their gradients: the experts of a token, and the validation of
 * sorted_indices.
 */
#pragma once

#include "cpu/moe.h"
#include "cpu/load.h"

enum { SYI_EXPERTS = 256 }; /* experts per kernel call, so that positions fit on the stack */

/* Routed experts in [e0, e0 + SYI_EXPERTS), ascending and counted from e0; returns how many. */
static inline size_t syi_routed(const struct syi_kernels *kernels, const unsigned char *map_row,
                                int64_t n_experts, int64_t e0, int32_t pos[SYI_EXPERTS])
{
    const int64_t left = n_experts - e0;
    return kernels->nonzero_u8(pos, map_row + e0, (size_t)(left < SYI_EXPERTS ? left : SYI_EXPERTS));
}

/* The next slot that holds a row, at or after *slot, which moves after it. There is one: see syi_moe_validate. */
static inline int32_t syi_next_row(const struct syi_moe_rows_plan *p, int64_t *slot)
{
    int32_t row;
    do
        row = syi_load_i32(p->sorted_indices, (*slot)++);
    while (row < 0);
    return row;
}

static inline float syi_prob(const struct syi_moe_rows_plan *p, int64_t t, int64_t e)
{
    return syi_load_float(syi_row_at(p->probs, t) + (size_t)e * syi_float_bytes(p->prob_type), p->prob_type);
}

/*
 * Rejects indices that name no row (packed) or no token (capacity), and, when the plan has a map, tokens with
 * another number of routed experts than of live slots, so that the n-th of one belongs to the n-th of the
 * other. `found` has room for ctx->threads of them.
 */
sy_status syi_moe_validate(sy_ctx *ctx, const struct syi_moe_rows_plan *p, struct syi_found *found);

/* Fills grad_probs: what each row has in `values` [M], of the type of probs, goes to its token and expert; zero
   elsewhere. The indices are validated. */
void syi_moe_grad_probs(sy_ctx *ctx, const struct syi_moe_rows_plan *p, const unsigned char *values);
