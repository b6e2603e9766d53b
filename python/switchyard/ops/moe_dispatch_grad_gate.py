from __future__ import annotations

from .._declare import A, Array, Operator

operator = Operator(
    "moe_dispatch_grad_gate",
    tuple,
    flows="input dispatch",
    asks={"dtype": ""},
    types={"grad_gates": lambda input, dtype: input.dtype if dtype is None else dtype},
)


@operator.function
def moe_dispatch_grad_gate(
    indices: Array,
    locations: Array,
    input: A,
    dispatch: Array,
    *,
    num_experts: int,
    capacity: int,
    out: A | None = None,
) -> A:
    """Compute the gradient of the gates: the dot product of each sample's row with the row in its slot.

    Where :func:`moe_dispatch` used the gates, ``input`` is what was dispatched and ``dispatch`` the gradient of its
    result. Where :func:`moe_combine` did, ``input`` is the gradient of its result and ``dispatch`` the rows it read.
    Sums are float32 in a fixed order. A choice whose expert or slot does not exist gets 0.

    Args:
        out: an array to write to, instead of a new one, shaped as indices; there the gradient may also be float32.

    Returns:
        Shaped as indices, of the type of ``input``.

    >>> import numpy as np, switchyard
    >>> indices, locations = np.array([[0, 0, 0, 0, 0], [1, 1, 0, 1, -1]], np.int32)
    >>> rows = np.array([[1, 2], [3, 4], [5, 6], [8, 10], [7, 7]], np.float32)
    >>> grad = np.array([[1, -1], [2, 0.5]], np.float32)
    >>> switchyard.moe_dispatch_grad_gate(indices, locations, rows, grad, num_experts=1, capacity=2)
    array([ 3.,  8., -1., 21.,  0.], dtype=float32)
    """
