from __future__ import annotations

from .._declare import A, Any, Array, Generic, NamedTuple, Operator, _words
from .._row_formats import groups, has_scales, moved_scale_type, token_type


class MoePermuteIds(NamedTuple, Generic[A]):
    """Results of :func:`moe_permute_ids`."""

    permuted_tokens: A
    sorted_indices: A
    permuted_probs: A | None
    expert_counts: A | None
    expert_offsets: A | None
    permuted_scales: A | None = None


def _rows(T: Any, K: Any, num_out_tokens: int, window: bool, row_begin: int, row_end: int) -> Any:
    if window:
        return row_end - row_begin
    return min(num_out_tokens, T * K) if num_out_tokens > 0 else T * K + num_out_tokens


operator = Operator(
    "moe_permute_ids",
    MoePermuteIds,
    flows="tokens probs",
    extents={"M": _rows, "G": groups},
    types={"permuted_tokens": token_type, "permuted_scales": moved_scale_type},
    when={
        "expert_counts": lambda num_experts: num_experts,
        "expert_offsets": lambda num_experts: num_experts,
        "permuted_scales": has_scales,
    },
)


@operator.function
def moe_permute_ids(
    tokens: A,
    ids: Array,
    probs: Array | None = None,
    *,
    num_out_tokens: int = 0,
    num_experts: int = 0,
    window: bool = False,
    row_begin: int = 0,
    row_end: int = 0,
    allow_missing: bool = False,
    row_format: _words.MoePermuteIdsRowFormat | None = None,
    out: MoePermuteIds[Any] | None = None,
) -> MoePermuteIds[A]:
    """Copy each token row to one row per expert it names, grouped by expert.

    :func:`moe_permute` for a router that names experts instead of filling a map: ids may come in any order, repeat, and
    be any numbers. Slots are put in stable ascending order of their ids.

    Args:
        allow_missing: ids -1 and E mean no expert: such a slot has no row, and its sorted_indices is -1. Rows without a
            slot are at the end and zero.
        row_format: make 8-bit codes of the rows on the way, with scales: a format of :func:`quantize_rows`. Rows are
            then float32, float16 or bfloat16, and have no gradient.

    >>> import numpy as np, switchyard
    >>> tokens = np.array([[10], [20], [30]], np.float32)
    >>> ids = np.array([[2, 0], [1, 2], [0, 2]], np.int32)
    >>> rows = switchyard.moe_permute_ids(tokens, ids, num_experts=3)
    >>> rows.permuted_tokens[:, 0]
    array([10., 30., 20., 10., 20., 30.], dtype=float32)
    >>> rows.sorted_indices
    array([3, 0, 2, 4, 1, 5], dtype=int32)
    >>> rows.expert_offsets
    array([0, 2, 3, 6])
    >>> switchyard.moe_permute_ids(tokens, ids, window=True, row_begin=2, row_end=5).permuted_tokens[:, 0]
    array([20., 10., 20.], dtype=float32)
    """
