from __future__ import annotations

from .._declare import A, Any, Array, Generic, NamedTuple, Operator


class MoeUnpermuteGrad(NamedTuple, Generic[A]):
    """Results of :func:`moe_unpermute_grad`."""

    grad_permuted_tokens: A
    grad_probs: A | None


operator = Operator("moe_unpermute_grad", MoeUnpermuteGrad, flows="grad_tokens permuted_tokens probs")


@operator.function
def moe_unpermute_grad(
    grad_tokens: A,
    sorted_indices: Array,
    permuted_tokens: Array | None = None,
    routing_map: Array | None = None,
    probs: Array | None = None,
    *,
    drop_and_pad: bool = False,
    zero_pad: bool = False,
    out: MoeUnpermuteGrad[Any] | None = None,
) -> MoeUnpermuteGrad[A]:
    """Compute the gradients of :func:`moe_unpermute`'s rows and probs from that of its tokens.

    A row gets its token's gradient times its weight; a weight gets the dot product of its token's gradient and its row,
    summed in float32 in a fixed order. Without probs rows are copies.

    >>> import numpy as np, switchyard
    >>> grad_tokens = np.array([[1, 0], [0, 1], [1, 1], [2, -1]], np.float32)
    >>> sorted_indices = np.array([0, 5, 3, 6, 1, 4, 2, 7], np.int32)
    >>> rows = np.array([[1, 1], [2, -1], [3, -3], [4, -5], [5, -7], [6, -9], [7, -11], [8, -13]], np.float32)
    >>> routing_map = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]], bool)
    >>> probs = np.array([[0.5, 0, 0.5], [0, 0.25, 0.75], [0.125, 0.875, 0], [0.625, 0, 0.375]], np.float32)
    >>> grads = switchyard.moe_unpermute_grad(grad_tokens, sorted_indices, rows, routing_map, probs)
    >>> grads.grad_permuted_tokens[:, 0]
    array([0.5  , 0.125, 1.25 , 0.   , 0.875, 0.5  , 0.   , 0.75 ],
          dtype=float32)
    >>> grads.grad_probs
    array([[  1.,   0.,   6.],
           [  0.,  -5., -11.],
           [  1.,  -2.,   0.],
           [  9.,   0.,  29.]], dtype=float32)
    """
