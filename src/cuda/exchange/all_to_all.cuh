/*
 * An exchange of a mesh inside one process, or the part of one process, as kernels see it.
 *
 * Tokens of all devices are numbered one after the other, device after device; so the tokens of a group are
 * in order of position. Choice k of token t is element t*K + k.
 */
#pragma once

#include "plan/mesh_device.h"
#include "cuda/runtime/context.cuh"
#include "cuda/prim/load.cuh"

/* That are arguments of kernels; more are in device memory. Few enough on the emulated device to test
   both. */
#ifdef SWITCHYARD_CUDA_EMULATED
enum { SYC_FEW_DEVICES = 4, SYC_FEW_WORDS = 3 };
#else
enum { SYC_FEW_DEVICES = 8, SYC_FEW_WORDS = 128 };
#endif

/* Where choices lead: device memory of the routing, or scratch. */
struct syc_leads {
    u64 *number;         /* of the dispatch that filled it; 0: none */
    syi_row_count *need; /* [D] */
    int32_t *choice;     /* [n] expert, -1: none, or named before */
    int32_t *rank;       /* [n] its rank among the tokens of this expert in the group */
    int32_t *count;      /* [groups][E], or [pairs], tokens */
    int32_t *first;      /* [D][E] first row (EXPERT) or place of an expert, -1: not on this device */
    /* [groups][E] lowest device of the group that hosts it, and `first` there; all bits set: none */
    u64 *holder;
    int32_t *packed; /* PACKED: [tokens][G] row there, -1: none */
    /* EXPERT: [n] device and row of each choice for a combine, all bits set: none; a dispatch writes it */
    u64 *pick;
};

/* A device of the mesh, and a row or place there. */
SYC_INLINE u64 syc_spot(int device, int64_t row)
{
    return (u64)device << 32 | (u64)row;
}
SYC_INLINE int syc_spot_device(u64 spot)
{
    return spot == ~0ull ? -1 : (int)(spot >> 32);
}
SYC_INLINE int64_t syc_spot_row(u64 spot)
{
    return (int64_t)(spot & 0xffffffffu);
}

/* Which experts a device hosts, a bit each. */
struct syc_hosted {
    int words; /* of a device */
    const u32 *more;
    u32 few[SYC_FEW_WORDS];
    __device__ u32 word(int device, int64_t i) const
    {
        return more != NULL ? more[device * words + i] : few[device * words + (int)i];
    }
};

struct syc_team {
    sy_mesh mesh;
    sy_axis axis;
    int n_devices, n_positions, n_groups;
    int64_t n_tokens, n_slots, n_experts, interleave, align;
    syc_split by_run;       /* interleave */
    syc_split by_positions; /* candidates of a token, where experts have several holders */
    sy_type index_type;
    sy_a2a_layout layout;
    bool combine, zero, local_reduce, routed;
    bool fixed;  /* every expert has `align` rows, of which some may be empty, and none may have more */
    bool alone;  /* one kernel is the whole call: it validates the routing itself */
    bool single; /* no expert has two holders in a group */
    bool paired; /* choices name pairs of an expert and a host, which belong to one group */
    int own;     /* -1; or only outputs of this device are here */
    syi_row_counts *row_counts; /* NULL, or in memory of the host: `need` for it */
    const int32_t *begins;      /* of the pairs of each expert and group, if there are any */
    u64 number;
    syc_leads leads;
    const syi_a2a_device *more; /* NULL: `few` */
    syi_a2a_device few[SYC_FEW_DEVICES];

    __device__ const syi_a2a_device &device(int d) const { return more != NULL ? more[d] : few[d]; }
    __device__ const syi_a2a_device &at(int group, int position) const
    {
        return device(syi_device_at(mesh, axis, group, position));
    }

    /* The device of a token: the last that begins there or before. */
    __device__ int device_of(int64_t t) const
    {
        int low = 0;
        for (int high = n_devices; high - low > 1;) {
            const int middle = (low + high) / 2;
            if (device(middle).first <= t)
                low = middle;
            else
                high = middle;
        }
        return low;
    }
    /* The row of a token among those of its group. */
    __device__ int64_t tau(const syi_a2a_device &of, int64_t n) const
    {
        if (interleave == 0)
            return of.before + n;
        const int64_t run = syc_quotient(n, by_run);
        return run * (n_positions * interleave) + of.position * interleave + n - run * interleave;
    }
    /* What a choice of a group names, among the keys of all groups. */
    __device__ int64_t key_of(int group, int64_t e) const { return paired ? e : group * n_experts + e; }

    /* Its row or place on a device, -1: the expert is not there. */
    __device__ int32_t first_of(int d, int32_t e) const { return __ldcg(leads.first + d * n_experts + e); }

    /* Whether token t has an expert on device d. */
    __device__ bool hits(int64_t t, int d) const
    {
#pragma unroll 1
        for (int64_t k = 0; k < n_slots; k++) {
            const int32_t e = __ldcg(leads.choice + t * n_slots + k);
            if (e >= 0 && first_of(d, e) >= 0)
                return true;
        }
        return false;
    }
};
