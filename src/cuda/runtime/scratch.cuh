/*
 * Cuts arrays off the scratch memory of a call. Without a base it only measures.
 */
#pragma once

#include "cuda/runtime/context.cuh"

struct syc_scratch {
    unsigned char *base;
    size_t used;

    template <typename V> V *take(int64_t n)
    {
        V *const taken = (V *)(base + used);
        used += ((size_t)n * sizeof(V) + 255) / 256 * 256;
        return taken;
    }
    unsigned char *rest() const { return base + used; }
};
