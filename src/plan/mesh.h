/*
 * Who exchanges with whom: groups of a mesh, and the order of a group's tokens.
 *
 * Letters: d device, p q position in a group, n token of a device, t token of a group.
 */
#pragma once

#include "base/base.h"

SYI_BOTH static inline int syi_mesh_devices(sy_mesh mesh)
{
    return mesh.rows * mesh.cols;
}

/* Devices of one group. */
SYI_BOTH static inline int syi_group_size(sy_mesh mesh, sy_axis axis)
{
    return axis == SY_AXIS_0 ? mesh.rows : axis == SY_AXIS_1 ? mesh.cols : syi_mesh_devices(mesh);
}

/* Which group a device belongs to: its column (axis 0), its row (axis 1). */
SYI_BOTH static inline int syi_group_of(sy_mesh mesh, sy_axis axis, int device)
{
    return axis == SY_AXIS_0 ? device % mesh.cols : axis == SY_AXIS_1 ? device / mesh.cols : 0;
}

SYI_BOTH static inline int syi_position_of(sy_mesh mesh, sy_axis axis, int device)
{
    return axis == SY_AXIS_0 ? device / mesh.cols : axis == SY_AXIS_1 ? device % mesh.cols : device;
}

SYI_BOTH static inline int syi_device_at(sy_mesh mesh, sy_axis axis, int group, int position)
{
    return axis == SY_AXIS_0   ? position * mesh.cols + group
           : axis == SY_AXIS_1 ? group * mesh.cols + position
                               : position;
}

/* The order of a group's tokens. */
struct syi_token_order {
    int n_positions;      /* G */
    const int64_t *first; /* [G+1] tokens of the positions before */
    int64_t interleave;   /* tokens of a batch that lie together, S; 0: tokens lie by position */
};

static inline int64_t syi_order_tokens(const struct syi_token_order *o)
{
    return o->first[o->n_positions];
}

/* How many tokens of a position, n_tokens altogether, have rows one after the other: all, or those of a batch. */
static inline int64_t syi_run_of(const struct syi_token_order *o, int64_t n_tokens)
{
    return o->interleave > 0 ? o->interleave : n_tokens;
}

/* The row of token n of position p. */
static inline int64_t syi_tau(const struct syi_token_order *o, int p, int64_t n)
{
    if (o->interleave == 0)
        return o->first[p] + n;
    return n / o->interleave * (o->n_positions * o->interleave) + p * o->interleave + n % o->interleave;
}
