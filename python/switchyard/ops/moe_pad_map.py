from __future__ import annotations

from .._declare import A, Any, Generic, NamedTuple, Operator


class MoePadMap(NamedTuple, Generic[A]):
    """Results of :func:`moe_pad_map`."""

    padded_map: A
    expert_counts: A


operator = Operator("moe_pad_map", MoePadMap)


@operator.function
def moe_pad_map(routing_map: A, *, alignment: int, out: MoePadMap[Any] | None = None) -> MoePadMap[A]:
    """Route further tokens to each expert until its count is a multiple of ``alignment``, lowest tokens first.

    An expert without tokens gets none. Added tokens have the weight 0 if probs are zero off the map, as
    :func:`moe_route` makes them. A call is rejected if an expert needs more tokens than there are.

    Args:
        out: arrays to write to, instead of new ones; ``routing_map`` itself is possible, and None for the counts.

    >>> import numpy as np, switchyard
    >>> routing_map = np.array([[1, 0, 0], [1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 0, 0]], np.uint8)
    >>> padded = switchyard.moe_pad_map(routing_map, alignment=4)
    >>> padded.padded_map
    array([[1, 0, 1],
           [1, 0, 1],
           [1, 0, 1],
           [1, 0, 1],
           [0, 0, 0]], dtype=uint8)
    >>> padded.expert_counts
    array([4, 0, 4])
    """
