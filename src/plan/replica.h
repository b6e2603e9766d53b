/*
 * Which host of an expert serves a choice, when an exchange has a rule for replicas. Shared with devices.
 *
 * Pairs of an expert and a device that hosts it are numbered by expert, group and position. A choice names a pair in place of
 * an expert: it is then an expert with one host, and rows find their way as they do without replicas.
 */
#pragma once

#include "plan/mesh.h"

struct syi_a2a_rule {
    sy_a2a_replica replica;
    int node_size; /* 0: nodes do not matter */
};

/* Pairs of expert e in a group begin at begin[e*groups + group], those of the next at the entry after it. */
struct syi_a2a_pairs {
    int64_t n_groups;
    int32_t *begin;  /* [E*groups + 1] */
    int32_t *device; /* [pairs] */
};

/* LOCAL: the host at position p, else one of its node, else any. */
SYI_BOTH static inline int32_t syi_nearest_pair(int node_size, sy_mesh mesh, sy_axis axis,
                                                const int32_t *device, int32_t n, int p)
{
    int32_t first = 0, near = 0; /* positions ascend: those of a node are neighbours */
    for (int32_t j = 0; j < n; j++) {
        const int q = syi_position_of(mesh, axis, device[j]);
        if (q == p)
            return j;
        if (node_size > 0 && q / node_size == p / node_size && near++ == 0)
            first = j;
    }
    return near > 0 ? first + p % near : p % n;
}

/* The pair that serves a choice: token i of a group, of position p; `turn` choices of the expert come before it. -1: no device of the
   group hosts the expert. */
SYI_BOTH static inline int32_t syi_pair_of(struct syi_a2a_rule rule, const struct syi_a2a_pairs *pairs,
                                           sy_mesh mesh, sy_axis axis, int64_t e, int group, int p,
                                           uint32_t i, uint32_t turn)
{
    const int32_t *const begin = pairs->begin + e * pairs->n_groups + group;
    const int32_t first = begin[0], n = begin[1] - first;
    if (n <= 1)
        return n == 1 ? first : -1;
    switch (rule.replica) {
    case SY_A2A_REPLICA_ROUND_ROBIN:
        return first + (int32_t)(i % (uint32_t)n);
    case SY_A2A_REPLICA_HASH:
        return first + (int32_t)(i * UINT32_C(2654435769) % (uint32_t)n);
    case SY_A2A_REPLICA_BALANCED:
        return first + (int32_t)(turn % (uint32_t)n);
    case SY_A2A_REPLICA_LOCAL:
        return first + syi_nearest_pair(rule.node_size, mesh, axis, pairs->device + first, n, p);
    default:
        return first;
    }
}
