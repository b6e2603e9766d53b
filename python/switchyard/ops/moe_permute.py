from __future__ import annotations

from .._declare import A, Any, Array, Generic, NamedTuple, Operator, _words
from .._row_formats import groups, has_scales, moved_scale_type, token_type


class MoePermute(NamedTuple, Generic[A]):
    """Results of :func:`moe_permute`."""

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
    flows="tokens probs",
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
        row_format: make 8-bit codes of the rows on the way, with scales: a format of :func:`quantize_rows`. Rows are
            then float32, float16 or bfloat16, and have no gradient.

    >>> import numpy as np, switchyard
    >>> tokens = np.array([[10, 11], [20, 21], [30, 31], [40, 41]], np.float32)
    >>> routing_map = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]], bool)
    >>> rows = switchyard.moe_permute(tokens, routing_map, num_out_tokens=8)
    >>> rows.permuted_tokens[:, 0]
    array([10., 30., 40., 20., 30., 10., 20., 40.], dtype=float32)
    >>> rows.sorted_indices
    array([0, 5, 3, 6, 1, 4, 2, 7], dtype=int32)
    """
