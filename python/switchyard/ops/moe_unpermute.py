from __future__ import annotations

from .._caches import row_type
from .._declare import A, Any, Array, Operator, _words


def _tokens(routing_map: Any, probs: Any, num_tokens: int) -> Any:
    named = probs if probs is not None else routing_map
    return num_tokens if named is None else named.shape[0]


def _type(xp: Any, permuted_tokens: Any, row_format: str | None) -> Any:
    return row_type(xp, "moe_unpermute", permuted_tokens, row_format, None)


operator = Operator(
    "moe_unpermute", tuple, flows="permuted_tokens probs", extents={"T": _tokens}, types={"tokens": _type}
)


@operator.function
def moe_unpermute(
    permuted_tokens: A,
    sorted_indices: Array,
    routing_map: Array | None = None,
    probs: Array | None = None,
    permuted_scales: Array | None = None,
    *,
    num_tokens: int = 0,
    drop_and_pad: bool = False,
    zero_pad: bool = False,
    row_format: _words.MoeUnpermuteRowFormat | None = None,
    out: A | None = None,
) -> A:
    """Return permuted rows to their tokens: each token is the sum of its rows, weighted with its probs.

    The inverse of :func:`moe_permute`, with the ``sorted_indices`` it made. Sums are float32, in a fixed order, and
    rounded once to the type of the rows. A weight of exactly 0 adds nothing, and a token without rows is 0.

    Args:
        row_format: the rows are 8-bit codes of this format of :func:`quantize_rows`; their float32 numbers are added,
            and have no gradient.

    Returns:
        [T, H], of the type of ``permuted_tokens``; with row_format bfloat16, float32 in libraries without it, or the
        type of ``out``.

    >>> import numpy as np, switchyard
    >>> rows = np.array([[1, 1], [2, -1], [3, -3], [4, -5], [5, -7], [6, -9], [7, -11], [8, -13]], np.float32)
    >>> sorted_indices = np.array([0, 5, 3, 6, 1, 4, 2, 7], np.int32)
    >>> routing_map = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]], bool)
    >>> probs = np.array([[0.5, 0, 0.5], [0, 0.25, 0.75], [0.125, 0.875, 0], [0.625, 0, 0.375]], np.float32)
    >>> switchyard.moe_unpermute(rows, sorted_indices, routing_map, probs)
    array([[ 3.5  , -4.   ],
           [ 6.25 , -9.5  ],
           [ 4.625, -6.25 ],
           [ 4.875, -6.75 ]], dtype=float32)
    """
