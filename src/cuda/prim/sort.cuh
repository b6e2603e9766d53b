/*
 * Elements sorted by a 64-bit key, equal keys in order of position: eight bits at a time, each pass by stable
 * ranks.
 */
#pragma once

#include "cuda/prim/count.cuh"

struct syc_sorted {
    u64 *key;   /* [n] */
    u32 *value; /* [n] */
    u32 *n;     /* elements that have a key */
};

struct syc_sort_memory {
    syc_sorted side[2];
    syc_ranks ranks;
};

static inline size_t syc_sort_align(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Cuts the memory, or only measures it. */
static inline size_t syc_sort_lay_out(syc_sort_memory *m, int64_t n, int processors, unsigned char *memory)
{
    size_t used = 0;
    m->ranks = syc_ranks_of(n, processors);
    m->ranks.counts = (u32 *)(memory + used);
    used += syc_sort_align(syc_ranks_bytes(&m->ranks, 256));
    for (int i = 0; i < 2; i++) {
        m->side[i].key = (u64 *)(memory + used);
        used += syc_sort_align((size_t)n * sizeof(u64));
        m->side[i].value = (u32 *)(memory + used);
        used += syc_sort_align((size_t)n * sizeof(u32));
        m->side[i].n = (u32 *)(memory + used);
        used += 256;
    }
    return used;
}

/* One digit of what was sorted by the lower ones. Pass 0 reads the elements themselves. */
template <class Elements> struct syc_digits {
    int64_t n;
    int n_keys;
    int shift;
    Elements elements; /* `bool has(int64_t i)`, `u64 sort_key(int64_t i)` */
    syc_sorted from;

    __device__ int key(int64_t i) const
    {
        if (shift == 0)
            return elements.has(i) ? (int)(elements.sort_key(i) & 255) : -1;
        return i < (int64_t)__ldcg(from.n) ? (int)(__ldcg(from.key + i) >> shift & 255) : -1;
    }
    __device__ bool wrong(int64_t) const { return false; }
    __device__ void explain(int64_t, syi_found *) const {}
};

template <class Elements> struct syc_digit_out {
    int shift;
    Elements elements;
    syc_sorted from, to;

    __device__ void put(int64_t i, int, int64_t row) const
    {
        to.key[row] = shift == 0 ? elements.sort_key(i) : __ldcg(from.key + i);
        to.value[row] = shift == 0 ? (u32)i : __ldcg(from.value + i);
    }
    __device__ void skip(int64_t) const {}
    __device__ void begin(int, u32, u32) const {}
    __device__ void end(u32 all) const { *to.n = all; }
};

/* Sorts by the lower `bits` of the keys; returns where the result is. Faults found before by call->gate stay
   in force. */
template <class Elements>
static syc_sorted syc_sort(syc_call *call, syc_sort_memory *m, const Elements &elements, int64_t n, int bits)
{
    const syc_gate open = syc_open(call->gate); /* scratch may be written whatever was found */
    int side = 0;
    for (int shift = 0; shift < bits; shift += 8, side ^= 1) {
        const syc_digits<Elements> digits = {n, 256, shift, elements, m->side[side ^ 1]};
        const syc_digit_out<Elements> out = {shift, elements, m->side[side ^ 1], m->side[side]};
        syc_rank_launch(call, digits, digits, m->ranks, out, open);
    }
    return m->side[side ^ 1];
}

/* The first place whose key is not below this one. */
SYC_INLINE u32 syc_lower_bound(const syc_sorted &sorted, u64 key)
{
    u32 low = 0, high = __ldcg(sorted.n);
    while (low < high) {
        const u32 middle = low + (high - low) / 2;
        if (__ldcg(sorted.key + middle) < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

template <class Elements, class Out>
static __global__ void __launch_bounds__(256)
    syc_place(const Elements elements, const syc_sorted sorted, int64_t n, int64_t n_keys, const Out out,
              const syc_gate gate)
{
    const int64_t first = (int64_t)blockIdx.x * 256 + threadIdx.x, step = (int64_t)gridDim.x * 256;
    if (!syc_may_write(gate))
        return;
    const u32 all = __ldcg(sorted.n);
    for (int64_t i = first; i < n; i += step) {
        if (!elements.has(i))
            out.skip(i);
        if (i < (int64_t)all)
            out.put((int64_t)__ldcg(sorted.value + i), (int)__ldcg(sorted.key + i), i);
    }
    for (int64_t e = first; e < n_keys; e += step) {
        const u32 begin = syc_lower_bound(sorted, (u64)e);
        out.begin((int)e, begin, syc_lower_bound(sorted, (u64)e + 1) - begin);
    }
    if (first == 0)
        out.end(all);
}

/* Calls Out (see syc_rank_place) for n elements that are sorted; begin for keys below n_keys. */
template <class Elements, class Out>
static void syc_place_sorted(syc_call *call, const Elements &elements, const syc_sorted &sorted, int64_t n,
                             int64_t n_keys, const Out &out)
{
    const int64_t blocks = syc_grid(call, syc_ceil(n > n_keys ? n : n_keys, 256), grid_policy::INDEX);
    syc_launch(&call->queue, syc_place<Elements, Out>, SYC_AFTER, blocks < 1 ? 1 : blocks, 256, 0, elements,
               sorted, n, n_keys, out, call->gate);
}
