from __future__ import annotations

from .._declare import A, Any, Array, Operator


def _tokens(sorted_indices: Any, probs: Any, num_tokens: int) -> Any:
    return probs.shape[0] if probs is not None else num_tokens or sorted_indices.shape[0]


operator = Operator(
    "moe_unpermute_ids", tuple, flows="permuted_tokens probs bias residual shared", extents={"T": _tokens}
)


@operator.function
def moe_unpermute_ids(
    permuted_tokens: A,
    sorted_indices: Array,
    probs: Array | None = None,
    bias: Array | None = None,
    bias_ids: Array | None = None,
    residual: Array | None = None,
    shared: Array | None = None,
    *,
    num_tokens: int = 0,
    row_begin: int = 0,
    num_rows: int = 0,
    by_choice: bool = False,
    out: A | None = None,
) -> A:
    """Return rows of :func:`moe_permute_ids` to their tokens, weighted and added up in the order of their slots.

    A slot without a row here (cut off, or in the window of another rank) adds nothing. Sums are float32 and rounded
    once to the type of the rows. A weight of exactly 0 adds nothing.

    The end of an MoE layer in one pass: the sum begins with ``residual``, then ``shared``, and with ``bias`` each row
    has the bias of its expert added before it is weighted. There an index of -1 is a row of zeros.

    >>> import numpy as np, switchyard
    >>> rows = np.array([[10], [30], [20], [10], [20], [30]], np.float32)
    >>> sorted_indices = np.array([3, 0, 2, 4, 1, 5], np.int32)
    >>> probs = np.array([[0.75, 0.25], [0.5, 0.5], [1, 2]], np.float32)
    >>> switchyard.moe_unpermute_ids(rows, sorted_indices, probs)[:, 0]
    array([10., 20., 90.], dtype=float32)
    >>> switchyard.moe_unpermute_ids(rows[2:5], sorted_indices, num_tokens=3, row_begin=2)[:, 0]
    array([10., 40.,  0.], dtype=float32)
    >>> residual = np.array([[1], [2], [3]], np.float32)
    >>> switchyard.moe_unpermute_ids(rows, sorted_indices, num_tokens=3, residual=residual)[:, 0]
    array([21., 42., 63.], dtype=float32)
    """
