from __future__ import annotations

from typing import overload

from .. import _caches
from .._caches import asked_type, row_shape, row_type
from .._declare import A, Any, Array, Operator, Sequence, _words

operator = Operator(
    "kv_gather",
    tuple,
    asks={"dtype": ""},
    dtype=asked_type,
    zeros={"out": {"pad": "skip"}},
    shapes={"out": lambda indices, cache, layout, format: (*indices.shape, *row_shape(cache, layout, format))},
    types={"out": lambda xp, cache, format, dtype: row_type(xp, "kv_gather", cache, format, dtype)},
)


@overload
def kv_gather(
    cache: A,
    indices: Array,
    block_table: Array | None = None,
    req_id: Array | None = None,
    counts: Array | None = None,
    seq_lens: Array | None = None,
    page_indices: Array | None = None,
    indptr: Array | None = None,
    last_page_len: Array | None = None,
    scale: Array | None = None,
    global_scale: Array | None = None,
    *,
    block_size: int,
    pad: _words.KvGatherPad = "error",
    layout: _words.KvGatherLayout = "nhd",
    format: _words.KvGatherFormat | None = None,
    dtype: Any = None,
    out: Any = None,
) -> A: ...


@overload
def kv_gather(
    cache: Sequence[A],
    indices: Array,
    block_table: Array | None = None,
    req_id: Array | None = None,
    counts: Array | None = None,
    seq_lens: Array | None = None,
    page_indices: Array | None = None,
    indptr: Array | None = None,
    last_page_len: Array | None = None,
    scale: Array | Sequence[Array | None] | None = None,
    global_scale: Array | Sequence[Array | None] | None = None,
    *,
    block_size: int,
    pad: _words.KvGatherPad = "error",
    layout: _words.KvGatherLayout = "nhd",
    format: _words.KvGatherFormat | Sequence[_words.KvGatherFormat | None] | None = None,
    dtype: Any = None,
    out: Sequence[Any] | None = None,
) -> tuple[A, ...]: ...


def kv_gather(
    cache: Any,
    indices: Array,
    block_table: Array | None = None,
    req_id: Array | None = None,
    counts: Array | None = None,
    seq_lens: Array | None = None,
    page_indices: Array | None = None,
    indptr: Array | None = None,
    last_page_len: Array | None = None,
    scale: Any = None,
    global_scale: Any = None,
    *,
    block_size: int,
    pad: _words.KvGatherPad = "error",
    layout: _words.KvGatherLayout = "nhd",
    format: Any = None,
    dtype: Any = None,
    out: Any = None,
) -> Any:
    """Copy the cache rows of selected tokens, in the order of ``indices``.

    The cache is a pool of blocks of ``block_size`` rows; the block table of a sequence gives the block of each run of
    that many tokens. Row ``[..., j]`` of the result is the row of token ``indices[..., j]``. Every index is validated
    before the first row is copied.

    A tuple or list of caches is looked up with the same indices at once: keys and values, latent and rope parts,
    several layers. The result is then a tuple of arrays, and ``format``, ``scale``, ``global_scale`` and
    ``out`` may be tuples as well; a single format or scale applies to every cache.

    Args:
        cache: [rows, D], [blocks, S, D...] or, with layout "hnd", [blocks, H, S, D...], any type; or several.
        indices: [..., k] int32 or int64: tokens of a sequence, in any order.
        block_table: [R, n] or [n] int32 or int64: the block of each run of S tokens.
        req_id: [B] row of block_table of each row of indices; without it 0, 1, 2, ...
        counts: [B] the number of valid indices of each row; the rest is padding.
        seq_lens: [B] tokens of each sequence; without it as many as its row of the table can hold.
        page_indices: [N] lists of blocks, in place of block_table.
        indptr: [R+1] with page_indices: where each list begins, and the end.
        last_page_len: [R] with page_indices: tokens of each list's last block.
        scale: float32 [G], [rows, G] or [blocks, S, G], with the formats "e4m3", "e5m2" and "int8"; with
            "nvfp4" float8_e4m3fn or its bytes, one for 16 numbers.
        global_scale: [1] float32, with the formats "nvfp4", the scale of all numbers, and "nvfp4_amax", their largest
            magnitude.
        block_size: rows of a block, S.
        pad: "error" rejects an index of -1; "zero" writes a zero row for it; "skip" leaves the row of ``out`` unchanged
            (zero, without ``out``). Rows past counts are zero, or with "skip" unchanged.
        layout: "nhd", heads of a token side by side, or "hnd", tokens of a head side by side.
        format: how the rows of a quantised cache are packed; the result has them unpacked.
        dtype: with a format: "bfloat16" (the default, where the library of the cache has it), "float16" or "float32".
        out: an array to write to, instead of a new one.

    Returns:
        The rows, of shape [*indices.shape, *row]; a tuple of them for several caches.

    >>> import numpy as np, switchyard
    >>> cache = 10 * np.arange(6)[:, None] + np.arange(4)
    >>> switchyard.kv_gather(cache, np.array([0, 4, 3]), np.array([0, 2, 1]), block_size=2)
    array([[ 0,  1,  2,  3],
           [20, 21, 22, 23],
           [50, 51, 52, 53]])
    >>> latent, rope = cache[:, :3], cache[:, 3:]  # two caches in one array, looked up at once
    >>> rows = switchyard.kv_gather((latent, rope), np.array([4, 1]), np.array([0, 1, 2]), block_size=2)
    >>> rows[0].tolist(), rows[1].tolist()
    ([[40, 41, 42], [10, 11, 12]], [[43], [13]])
    """
    found_by = (indices, block_table, req_id, counts, seq_lens, page_indices, indptr, last_page_len)
    if dtype is None and not isinstance(cache, (tuple, list)):  # the common case of a decode loop, on the fast path
        given = (cache, *found_by, scale, global_scale, block_size, pad, layout, format)
        return operator(given, None if out is None else (out,), None)[0]
    return _caches.gather(
        operator, cache, found_by, scale, global_scale, (block_size, pad, layout), format, out, (dtype,)
    )
