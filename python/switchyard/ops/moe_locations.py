from __future__ import annotations

from .._declare import A, Any, Array, Generic, NamedTuple, Operator


class MoeLocations(NamedTuple, Generic[A]):
    """Results of :func:`moe_locations`."""

    locations: A
    counts: A


operator = Operator("moe_locations", MoeLocations)


@operator.function
def moe_locations(
    indices: A,
    importance: Array | None = None,
    *,
    num_experts: int,
    out: MoeLocations[Any] | None = None,
) -> MoeLocations[A]:
    """Give every choice of every sample its slot inside the expert it names.

    Choices are visited one after the other, all samples of choice 0 first, samples in order, or by descending
    importance where that is given. No two choices get the same slot, so :func:`moe_dispatch` may be
    called with ``unique_slots``.

    Args:
        importance: [S] float32, float16 or bfloat16; of equal ones the lower sample comes first, NaN last.

    >>> import numpy as np, switchyard
    >>> indices = np.array([[0, 0, 2, 1, 0], [1, 2, 1, 0, 1]], np.int32)
    >>> slots = switchyard.moe_locations(indices, num_experts=3)
    >>> slots.locations
    array([[0, 1, 0, 0, 2],
           [1, 1, 2, 3, 3]], dtype=int32)
    >>> slots.counts
    array([4, 4, 2])
    """
