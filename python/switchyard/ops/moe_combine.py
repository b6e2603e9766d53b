from __future__ import annotations

from .._declare import A, Array, Operator

operator = Operator("moe_combine", tuple, flows="gates expert_out", extents={"S": lambda indices: indices.shape[-1]})


@operator.function
def moe_combine(
    indices: Array,
    locations: Array,
    expert_out: A,
    gates: Array | None = None,
    *,
    num_experts: int,
    capacity: int,
    out: A | None = None,
) -> A:
    """Give each sample the sum of its choices' rows, each times its gate.

    The inverse of :func:`moe_dispatch`, with the same indices and locations, for one choice per sample or several. A
    choice whose expert or slot does not exist adds nothing. Sums are float32, choice by choice, and rounded once to the
    type of the rows. With the gradient of the dispatch buffer as ``expert_out`` the result is the gradient of the rows
    that were dispatched; ``moe_dispatch_grad_data`` is another name for it.

    >>> import numpy as np, switchyard
    >>> indices = np.array([[0, 0, 2, 1, 0], [1, 2, 1, 0, 1]], np.int32)
    >>> locations = np.array([[0, 1, 0, 0, 2], [1, 1, 2, 3, 3]], np.int32)
    >>> gates = np.array([[0.5, 0.75, 0.25, 0.5, 1], [0.5, 0.25, 0.75, 0.5, 0]], np.float32)
    >>> expert_out = np.array([[10], [20], [30], [40], [50], [60]], np.float32)
    >>> switchyard.moe_combine(indices, locations, expert_out, gates, num_experts=3, capacity=2)[:, 0]
    array([25. , 30. , 12.5, 15. ,  0. ], dtype=float32)
    """


moe_dispatch_grad_data = moe_combine
