from __future__ import annotations

from .._declare import A, Any, Array, Generic, NamedTuple, Operator


class MoeMapFromIds(NamedTuple, Generic[A]):
    """Results of :func:`moe_map_from_ids`."""

    routing_map: A
    probs: A | None


operator = Operator("moe_map_from_ids", MoeMapFromIds, flows="weights")


@operator.function
def moe_map_from_ids(
    ids: A,
    weights: Array | None = None,
    *,
    num_experts: int,
    allow_missing: bool = False,
    out: MoeMapFromIds[Any] | None = None,
) -> MoeMapFromIds[A]:
    """Convert the expert ids of a router to the map and probs that :func:`moe_permute` takes.

    No expert may occur twice in a row. Weights are copied byte for byte. The other way is :func:`moe_ids_from_map`.

    Args:
        ids: [T, K] int32 or int64, each 0 or more and below ``num_experts``, in any order.

    >>> import numpy as np, switchyard
    >>> ids = np.array([[2, 0], [1, 2], [3, 0]], np.int32)
    >>> weights = np.array([[0.75, 0.25], [0.5, 0.5], [0.625, 0.375]], np.float32)
    >>> mapped = switchyard.moe_map_from_ids(ids, weights, num_experts=4)
    >>> mapped.routing_map.astype(int)
    array([[1, 0, 1, 0],
           [0, 1, 1, 0],
           [1, 0, 0, 1]])
    >>> mapped.probs
    array([[0.25 , 0.   , 0.75 , 0.   ],
           [0.   , 0.5  , 0.5  , 0.   ],
           [0.375, 0.   , 0.   , 0.625]], dtype=float32)
    """
