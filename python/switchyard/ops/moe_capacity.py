from __future__ import annotations

import numpy as np

from .._declare import Any, Array, Operator
from .._operator import place

operator = Operator("moe_capacity", tuple)


def moe_capacity(
    counts: Array | None = None,
    *,
    samples: int = 0,
    num_experts: int,
    k: int = 1,
    factor: float = 0.0,
    alignment: int = 1,
) -> int:
    """Compute the number of slots of each expert: the ``capacity`` of :func:`moe_dispatch`.

    With P the samples per expert, rounded up, and M the largest of the counts: a positive factor gives
    ``k * trunc(factor * P)``, 0 gives M, so that nothing is dropped, and a negative one the smaller of M and
    ``k * trunc(-factor * P)``; then rounded up to a multiple of ``alignment``.

    Args:
        samples: S; over several ranks the largest.

    Returns:
        The number of slots of each expert.

    >>> import numpy as np, switchyard
    >>> switchyard.moe_capacity(samples=18432, num_experts=2, factor=1.25)
    11520
    >>> switchyard.moe_capacity(np.array([4, 4, 2]), samples=5, num_experts=3, k=2, factor=-0.5)
    2
    """
    given = (counts, samples, num_experts, k, factor, alignment)
    at: Any = place((counts,))
    if at.device is not None:
        made = at.empty((1,), at.dtype("int64"))
        operator.run(given, (made,))
        return int(at.number(made))
    capacity = np.empty(1, np.int64)
    operator.run(given, (capacity,))
    return int(capacity[0])
