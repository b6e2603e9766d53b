from __future__ import annotations

from .._declare import A, Any, Array, Generic, NamedTuple, Operator, _words


class MoeMapPhysical(NamedTuple, Generic[A]):
    """Results of :func:`moe_map_physical`."""

    physical_ids: A
    load: A
    logical_load: A


operator = Operator("moe_map_physical", MoeMapPhysical)


@operator.function
def moe_map_physical(
    ids: A,
    logical_to_physical: Array,
    replica_count: Array | None = None,
    counts_before: Array | None = None,
    *,
    num_physical: int,
    rule: _words.MoeMapPhysicalRule = "first",
    token_base: int = 0,
    device: int = 0,
    devices: int = 0,
    node_size: int = 0,
    allow_missing: bool = False,
    out: MoeMapPhysical[Any] | None = None,
) -> MoeMapPhysical[A]:
    """Choose a replica of the expert of every slot, and count how often each is used.

    Args:
        rule: the replica of token i: number 0, i mod n, a hash of i mod n, in turn for each expert, or the nearest one.

    >>> import numpy as np, switchyard
    >>> table = np.array([[4, 6, 1], [0, 2, -1], [7, 3, -1], [5, -1, -1]], np.int32)
    >>> ids = np.array([[0, 1], [0, 2], [1, 0], [3, 0], [2, 1]])
    >>> mapped = switchyard.moe_map_physical(ids, table, num_physical=8, rule="balanced")
    >>> mapped.physical_ids.tolist()
    [[4, 0], [6, 7], [2, 1], [5, 4], [3, 0]]
    >>> mapped.load
    array([2, 1, 1, 1, 2, 1, 1, 1])
    """
