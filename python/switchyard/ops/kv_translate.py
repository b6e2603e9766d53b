from __future__ import annotations

import math

from .._declare import A, Any, Array, Generic, NamedTuple, Operator, _words


class KvTranslate(NamedTuple, Generic[A]):
    """Results of :func:`kv_translate`."""

    slots: A
    valid: A


operator = Operator("kv_translate", KvTranslate, extents={"B": lambda indices: math.prod(indices.shape[:-1])})


@operator.function
def kv_translate(
    indices: A,
    block_table: Array | None = None,
    req_id: Array | None = None,
    counts: Array | None = None,
    seq_lens: Array | None = None,
    page_indices: Array | None = None,
    indptr: Array | None = None,
    last_page_len: Array | None = None,
    *,
    block_size: int,
    num_rows: int = 0,
    pad: _words.KvTranslatePad = "error",
    world: int = 0,
    rank: int = 0,
    interleave: int = 0,
    out: KvTranslate[Any] | None = None,
) -> KvTranslate[A]:
    """Look up the rows of selected tokens in a paged KV cache, without copying them.

    This is the look-up step of :func:`kv_gather`, for kernels that read pages in place.

    Args:
        num_rows: rows of the cache, if known; then slots past it are rejected.
        world: ranks over which the tokens are distributed, if more than 1; then the table is that of ``rank``, and
            tokens of other ranks have the slot -1.

    >>> import numpy as np, switchyard
    >>> found = switchyard.kv_translate(np.array([4, 0, -1]), np.array([4, 1, 3]), block_size=2, pad="skip")
    >>> found.slots, found.valid
    (array([ 6,  8, -1]), array([2]))
    """
