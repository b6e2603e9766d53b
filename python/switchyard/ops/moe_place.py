from __future__ import annotations

from .._declare import A, Any, Array, Generic, NamedTuple, Operator


class MoePlace(NamedTuple, Generic[A]):
    """Results of :func:`moe_place`."""

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
        groups: of E / groups neighbouring experts; 0, or a number that nodes do not divide: nodes do not matter.

    >>> import numpy as np, switchyard
    >>> placed = switchyard.moe_place(np.array([[25, 19, 15, 8]]), num_physical=8, devices=4, distinct=True)
    >>> placed.physical_to_logical
    array([[1, 0, 1, 2, 0, 3, 0, 2]], dtype=int32)
    >>> placed.replica_count
    array([[3, 2, 2, 1]], dtype=int32)
    """
