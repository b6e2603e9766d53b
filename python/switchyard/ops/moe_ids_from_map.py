from __future__ import annotations

from .._declare import A, Any, Array, Generic, NamedTuple, Operator


class MoeIdsFromMap(NamedTuple, Generic[A]):
    """Results of :func:`moe_ids_from_map`."""

    ids: A
    weights: A | None


operator = Operator("moe_ids_from_map", MoeIdsFromMap, flows="probs")


@operator.function
def moe_ids_from_map(
    routing_map: A,
    probs: Array | None = None,
    *,
    k: int,
    out: MoeIdsFromMap[Any] | None = None,
) -> MoeIdsFromMap[A]:
    """List the experts of every token of a routing map, ascending, and the weights that go with them.

    These are the slots of packed :func:`moe_permute`. A token with more than ``k`` experts is rejected. Weights are
    copied byte for byte. The other way is :func:`moe_map_from_ids`.

    Args:
        probs: [T, E] float32, float16 or bfloat16; ignored off the map.

    >>> import numpy as np, switchyard
    >>> routing_map = np.array([[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 1, 1]], bool)
    >>> probs = np.array([[0.25, 9, 0.75, 9], [9, 0.5, 9, 9], [9, 9, 0.375, 0.5]], np.float32)
    >>> listed = switchyard.moe_ids_from_map(routing_map, probs, k=2)
    >>> listed.ids
    array([[ 0,  2],
           [ 1, -1],
           [ 2,  3]], dtype=int32)
    >>> listed.weights
    array([[0.25 , 0.75 ],
           [0.5  , 0.   ],
           [0.375, 0.5  ]], dtype=float32)
    """
