from __future__ import annotations

from .._declare import A, Any, Array, Generic, NamedTuple, Operator


class MoeReorderChunks(NamedTuple, Generic[A]):
    """Results of :func:`moe_reorder_chunks`."""

    reordered_rows: A
    reordered_extra: A | None
    expert_offsets: A


operator = Operator(  # rows beyond the counts are not written
    "moe_reorder_chunks", MoeReorderChunks, flows="rows extra", zeros={"reordered_rows": True, "reordered_extra": True}
)


@operator.function
def moe_reorder_chunks(
    rows: A,
    counts: Array,
    extra: Array | None = None,
    *,
    inverse: bool = False,
    out: MoeReorderChunks[Any] | None = None,
) -> MoeReorderChunks[A]:
    """Group rows by expert after an exchange between ranks, or undo that before the next.

    Received rows are grouped by the rank they came from, inside that by expert. Both directions take the same counts,
    and one undoes the other. Rows from the sum of the counts on are zero in a new array and keep their values
    in ``out``.

    >>> import numpy as np, switchyard
    >>> counts = np.array([[2, 0, 1], [1, 2, 1]], np.int32)
    >>> gathered = switchyard.moe_reorder_chunks(np.arange(7, dtype=np.float32), counts)
    >>> gathered.reordered_rows
    array([0., 1., 3., 4., 5., 2., 6.], dtype=float32)
    >>> gathered.expert_offsets
    array([0, 3, 5, 7])
    >>> switchyard.moe_reorder_chunks(gathered.reordered_rows, counts, inverse=True).reordered_rows
    array([0., 1., 2., 3., 4., 5., 6.], dtype=float32)
    """
