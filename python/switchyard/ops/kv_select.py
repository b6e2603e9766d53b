from __future__ import annotations

import math

from .._declare import A, Any, Array, Generic, NamedTuple, Operator, Sequence, _words


class KvSelect(NamedTuple, Generic[A]):
    """Results of :func:`kv_select`.

    slots: None without a table.
    owner: None unless ``world`` is more than 1.
    """

    indices: A
    values: A | None
    count: A
    slots: A | None
    owner: A | None
    row_flags: A | None


operator = Operator(
    "kv_select",
    KvSelect,
    asks={"values": "values", "row_flags": "row_flags"},
    extents={
        "B": lambda scores: math.prod(scores.shape[:-1]),
        "G": lambda expand: max(expand, 1),
    },
    when={
        "slots": lambda block_table, page_indices: block_table is not None or page_indices is not None,
        "owner": lambda world: world > 1,
    },
)


@operator.function
def kv_select(
    scores: A,
    lengths: Array | None = None,
    row_start: Array | None = None,
    row_k: int | Sequence[int] | Array | None = None,
    position: Array | None = None,
    block_table: Array | None = None,
    req_id: Array | None = None,
    seq_lens: Array | None = None,
    page_indices: Array | None = None,
    indptr: Array | None = None,
    index_base: Array | None = None,
    *,
    k: int = 0,
    order: _words.KvSelectOrder = "position",
    dead: _words.KvSelectDead = "skip",
    sink: int = 0,
    window: int = 0,
    query_rows: int = 0,
    expand: int = 0,
    block_size: int = 0,
    num_rows: int = 0,
    world: int = 0,
    rank: int = 0,
    interleave: int = 0,
    columns: _words.KvSelectColumns = "global",
    own_only: bool = False,
    values: bool = False,
    row_flags: bool = False,
    out: KvSelect[Any] | None = None,
) -> KvSelect[A]:
    """Select the positions of the ``k`` largest scores of each row, for :func:`kv_gather` and kernels that read pages.

    Of equal scores the lower positions are selected. NaN and -inf never are, unless ``dead`` is "keep" or they are
    among the first ``sink`` or the last ``window`` positions, which always are. A row with fewer positions ends
    with -1.

    Args:
        lengths: columns of each row; of shape [B / query_rows]: of the last row of each request, and one less in the
            row before it, and so on.
        position: what selections of several ranks are merged with: the token of each column, -1 for none.
        k: positions of each row; 0: as many as ``out`` has room for.
        expand: tokens of a position, where scores are of pages.
        world: ranks that share the tokens, if more than 1; then slots of tokens of other ranks are -1.
        own_only: write the entries that ``rank`` has, and no others.

    >>> import numpy as np, switchyard
    >>> scores = np.array([0.5, 2, -1, 2, 3, 2], np.float32)
    >>> switchyard.kv_select(scores, k=3).indices
    array([1, 3, 4], dtype=int32)
    >>> best = switchyard.kv_select(scores, k=3, order="score", values=True)
    >>> best.indices, best.values
    (array([4, 1, 3], dtype=int32), array([3., 2., 2.], dtype=float32))
    """
