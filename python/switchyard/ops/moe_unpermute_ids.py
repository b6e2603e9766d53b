from __future__ import annotations

from .._declare import A, Any, Array, Operator


def _tokens(sorted_indices: Any, probs: Any, num_tokens: int) -> Any:
    return probs.shape[0] if probs is not None else num_tokens or sorted_indices.shape[0]


operator = Operator("moe_unpermute_ids", tuple, flows=(0, 2, 3, 5, 6), extents={"T": _tokens})


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

    Args:
        permuted_tokens: [M, H] float32, float16 or bfloat16.
        sorted_indices: [T*K] int32, as moe_permute_ids made them.
        probs: [T, K] float32, float16 or bfloat16, in slot order; without them every weight is 1.
        bias: [B, H], of the type of the rows, for example one row for each expert; with bias_ids.
        bias_ids: [T, K] int32, the row of bias of each slot; -1: none.
        residual: [T, H], of the type of the rows: added first.
        shared: [T, H], of the type of the rows, for example the output of a shared expert: added second.
        num_tokens: T, if probs are not given; 0: every slot is a token of its own.
        row_begin: number of the first row of ``permuted_tokens``.
        num_rows: rows are numbered from 0 to num_rows - 1, as E*C of experts with a capacity; 0: T*K.
        by_choice: sorted_indices has the first slot of all tokens, then the second.
        out: [T, H], an array to write to, instead of a new one.

    Returns:
        [T, H], of the type of ``permuted_tokens``.

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
