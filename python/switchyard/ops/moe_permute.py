from __future__ import annotations

from .._declare import A, Any, Array, Generic, NamedTuple, Operator, _words
from .._row_formats import groups, has_scales, moved_scale_type, token_type


class MoePermute(NamedTuple, Generic[A]):
    """Results of :func:`moe_permute`.

    permuted_tokens: [M, H]: token rows, grouped by expert.
    sorted_indices: [M] int32: the row of each slot of a token (packed), or the token of each row (capacity).
    permuted_probs: [M]: the weight of each row; None without probs.
    expert_counts: [E] int64: tokens of each expert.
    expert_offsets: [E+1] int64: first row of each expert, and the end.
    permuted_scales: [M, G]: scales of the rows, with row_format; else None.
    """

    permuted_tokens: A
    sorted_indices: A
    permuted_probs: A | None
    expert_counts: A
    expert_offsets: A
    permuted_scales: A | None = None


def _rows(T: Any, E: Any, num_out_tokens: int, drop_and_pad: bool) -> Any:
    groups = E if drop_and_pad else T
    return num_out_tokens // groups * groups if groups else 0


operator = Operator(
    "moe_permute",
    MoePermute,
    flows=(0, 2),
    extents={"M": _rows, "G": groups},
    types={"permuted_tokens": token_type, "permuted_scales": moved_scale_type},
    when={"permuted_scales": has_scales},
)


@operator.function
def moe_permute(
    tokens: A,
    routing_map: Array,
    probs: Array | None = None,
    *,
    num_out_tokens: int,
    drop_and_pad: bool = False,
    zero_pad: bool = False,
    row_format: _words.MoePermuteRowFormat | None = None,
    out: MoePermute[Any] | None = None,
) -> MoePermute[A]:
    """Copy each token row to one row per expert it is routed to, grouped by expert.

    Packed (the default): ``num_out_tokens // T`` slots per token, rows in the order of experts, then tokens.
    Capacity (``drop_and_pad``): ``num_out_tokens // E`` rows per expert, its tokens first, then others (or zero
    rows, with ``zero_pad``).

    Args:
        tokens: [T, H], any type of 1, 2, 4 or 8 bytes.
        routing_map: [T, E] bool, int8 or uint8; not 0 where a token goes to an expert.
        probs: [T, E] float32, float16 or bfloat16: weights, permuted with the rows.
        num_out_tokens: number of rows to allocate, 0 to T*E.
        drop_and_pad: a fixed number of rows for every expert.
        zero_pad: with drop_and_pad: rows without a routed token are zero, their index is -1.
        row_format: make 8-bit codes of the rows on the way, with scales: a format of :func:`quantize_rows`. Rows are
            then float32, float16 or bfloat16, and have no gradient.
        out: arrays to write to, instead of new ones; None in it leaves an optional output out.

    >>> import numpy as np, switchyard
    >>> tokens = np.array([[10, 11], [20, 21], [30, 31], [40, 41]], np.float32)
    >>> routing_map = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]], bool)
    >>> rows = switchyard.moe_permute(tokens, routing_map, num_out_tokens=8)
    >>> rows.permuted_tokens[:, 0]
    array([10., 30., 40., 20., 30., 10., 20., 40.], dtype=float32)
    >>> rows.sorted_indices
    array([0, 5, 3, 6, 1, 4, 2, 7], dtype=int32)
    """
