/*
 * The gradient of moe_unpermute: that of a token goes to all rows of the token, times their weights.
 */
#pragma once

#include "cuda/moe/moe_sums.cuh"

struct syc_spread {
    syc_moe_lists lists;
    int64_t hidden;
    sy_type type, prob_type;
    syi_rows rows, tokens;      /* [M,H], written; [T,H] */
    syi_rows saved, grad_probs; /* [M,H], [T,E]; absent unless gradients of probs are asked for */
    int64_t items;              /* tokens, or rows */
    int64_t item_blocks;        /* blocks past these clear rows without an owner */
};

/* Both gradients of packed rows whose vectors of 16 bytes are aligned, by one kernel (moe_spread_ring.cu). */
const char *syc_moe_spread_ring_why_not(const syc_device *device, const syc_spread *spread,
                                        bool wants_grad_probs);
void syc_moe_spread_ring(syc_call *call, const syc_spread *spread);
