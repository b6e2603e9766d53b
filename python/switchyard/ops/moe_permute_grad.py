from __future__ import annotations

from .._declare import A, Any, Array, Generic, NamedTuple, Operator


class MoePermuteGrad(NamedTuple, Generic[A]):
    """Results of :func:`moe_permute_grad`."""

    grad_tokens: A
    grad_probs: A | None


operator = Operator(
    "moe_permute_grad",
    MoePermuteGrad,
    flows="grad_permuted_tokens grad_permuted_probs",
    extents={"T": lambda num_tokens: num_tokens, "E": lambda num_experts: num_experts},
)


@operator.function
def moe_permute_grad(
    grad_permuted_tokens: A,
    sorted_indices: Array,
    grad_permuted_probs: Array | None = None,
    routing_map: Array | None = None,
    *,
    num_experts: int,
    num_tokens: int,
    drop_and_pad: bool = False,
    zero_pad: bool = False,
    out: MoePermuteGrad[Any] | None = None,
) -> MoePermuteGrad[A]:
    """Compute the gradients of :func:`moe_permute`'s tokens and probs from those of its results.

    A token gets the sum of its rows' gradients, in float32 and a fixed order; a prob gets that of its row, unchanged.

    >>> import numpy as np, switchyard
    >>> grad_rows = np.array([[1, 1], [2, -1], [3, -3], [4, -5], [5, -7], [6, -9], [7, -11], [8, -13]], np.float32)
    >>> sorted_indices = np.array([0, 5, 3, 6, 1, 4, 2, 7], np.int32)
    >>> routing_map = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]], bool)
    >>> grads = switchyard.moe_permute_grad(
    ...     grad_rows, sorted_indices, np.arange(1, 9, dtype=np.float32), routing_map, num_experts=3, num_tokens=4
    ... )
    >>> grads.grad_tokens
    array([[  7.,  -8.],
           [ 11., -16.],
           [  7.,  -8.],
           [ 11., -16.]], dtype=float32)
    >>> grads.grad_probs
    array([[1., 0., 6.],
           [0., 4., 7.],
           [2., 5., 0.],
           [3., 0., 8.]], dtype=float32)
    """
