from __future__ import annotations

from .._declare import A, Any, Array, Operator, _words

operator = Operator("kv_slots", tuple)


@operator.function
def kv_slots(
    position: A,
    batch: Array | None = None,
    block_table: Array | None = None,
    page_indices: Array | None = None,
    indptr: Array | None = None,
    last_page_len: Array | None = None,
    *,
    block_size: int,
    num_rows: int = 0,
    pad: _words.KvSlotsPad = "error",
    out: Any = None,
) -> A:
    """Look up the row of every token of a flat batch in a paged KV cache.

    Token i is number ``position[i]`` of sequence ``batch[i]``, whose block table gives its block. :func:`kv_scatter`
    takes the slots.

    Args:
        num_rows: rows of the cache, if known; then slots past it are rejected.

    >>> import numpy as np, switchyard
    >>> table = np.array([[2, 0], [1, -1]])
    >>> switchyard.kv_slots(np.array([2, 3, 0, 1]), np.array([0, 0, 1, 1]), table, block_size=2)
    array([0, 1, 2, 3])
    """
