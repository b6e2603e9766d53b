from __future__ import annotations

from .._declare import A, Any, Array, Generic, NamedTuple, Operator


class MoePlace(NamedTuple, Generic[A]):
    """Results of :func:`moe_place`.

    physical_to_logical: [L, P] int32: the expert of each physical one.
    logical_to_physical: [L, E, P - E + 1] int32: the replicas of each expert, then -1.
    replica_count: [L, E] int32: how many replicas each expert has.
    device_load: [L, D] int64: the load of each device, in units of 2^-24.
    expert_mapping: [P, D] uint16: 1 where a device hosts a physical expert.
    """

    physical_to_logical: A
    logical_to_physical: A
    replica_count: A
    device_load: A
    expert_mapping: A


operator = Operator(
    "moe_place",
    MoePlace,
    extents={
        "P": lambda num_physical: num_physical,
        "D": lambda devices: devices,
        "R": lambda num_physical, loads: num_physical - loads.shape[1] + 1,
    },
)


@operator.function
def moe_place(
    loads: A,
    previous: Array | None = None,
    *,
    num_physical: int,
    devices: int,
    nodes: int = 1,
    groups: int = 0,
    distinct: bool = False,
    out: MoePlace[Any] | None = None,
) -> MoePlace[A]:
    """Give popular experts replicas, and spread all of them over devices by their loads.

    Args:
        loads: [L, E] int64: how often each expert of each layer is used, as ``moe_map_physical`` counts it.
        previous: [L, P] int32: physical_to_logical of an earlier call; experts that stay on a device keep their places.
        num_physical: P, at least E; each device has P / devices of them.
        devices: D.
        nodes: of D / nodes devices each; groups of experts stay on one node.
        groups: of E / groups neighbouring experts; 0, or a number that nodes do not divide: nodes do not matter.
        distinct: no two replicas of an expert on one device.
        out: arrays to write to, instead of new ones; None in it leaves one out.

    >>> import numpy as np, switchyard
    >>> placed = switchyard.moe_place(np.array([[25, 19, 15, 8]]), num_physical=8, devices=4, distinct=True)
    >>> placed.physical_to_logical
    array([[1, 0, 1, 2, 0, 3, 0, 2]], dtype=int32)
    >>> placed.replica_count
    array([[3, 2, 2, 1]], dtype=int32)
    """
