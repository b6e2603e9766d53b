from __future__ import annotations

import math

from .._declare import A, Any, Array, Generic, NamedTuple, Operator, _words


class KvTranslate(NamedTuple, Generic[A]):
    """Results of :func:`kv_translate`.

    slots: [..., k]: cache row of each index, -1 for padding; type of indices.
    valid: [B]: how many slots of each row are not padding; type of indices.
    """

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
        indices: [..., k] int32 or int64: tokens of a sequence, in any order.
        block_table: [R, n] or [n] int32 or int64: the block of each run of S tokens.
        req_id: [B] row of block_table of each row of indices; without it 0, 1, 2, ...
        counts: [B] the number of valid indices of each row; the rest is padding.
        seq_lens: [B] tokens of each sequence; without it as many as its row of the table can hold.
        page_indices: [N] lists of blocks, in place of block_table.
        indptr: [R+1] with page_indices: where each list begins, and the end.
        last_page_len: [R] with page_indices: tokens of each list's last block.
        block_size: rows of a block, S.
        num_rows: rows of the cache, if known; then slots past it are rejected.
        pad: "error" rejects an index of -1; "zero" and "skip" give it the slot -1.
        world: ranks over which the tokens are distributed, if more than 1; then the table is that of ``rank``, and
            tokens of other ranks have the slot -1.
        rank: with world: the rank whose slots are returned.
        interleave: with world: consecutive tokens of a rank; 0 is 1.
        out: arrays to write to, instead of new ones; None in it leaves ``valid`` out.

    >>> import numpy as np, switchyard
    >>> found = switchyard.kv_translate(np.array([4, 0, -1]), np.array([4, 1, 3]), block_size=2, pad="skip")
    >>> found.slots, found.valid
    (array([ 6,  8, -1]), array([2]))
    """
