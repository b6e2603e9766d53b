from __future__ import annotations

from .. import _caches
from .._caches import asked_type, gathers, row_shape, row_type
from .._declare import Any, Array, Operator, Sequence, _words

operator = Operator(
    "kv_gather",
    tuple,
    asks={"dtype": ""},
    dtype=asked_type,
    zeros={"out": {"pad": "skip"}},
    shapes={"out": lambda indices, cache, layout, format: (*indices.shape, *row_shape(cache, layout, format))},
    types={"out": lambda xp, cache, format, dtype: row_type(xp, "kv_gather", cache, format, dtype)},
)


@gathers
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
    scale: Array | Sequence[Array | None] | None = None,
    global_scale: Array | Sequence[Array | None] | None = None,
    *,
    block_size: int,
    pad: _words.KvGatherPad = "error",
    layout: _words.KvGatherLayout = "nhd",
    format: _words.KvGatherFormat | Sequence[_words.KvGatherFormat | None] | None = None,
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
        pad: "error" rejects an index of -1; "zero" writes a zero row for it; "skip" leaves the row of ``out`` unchanged
            (zero, without ``out``). Rows past counts are zero, or with "skip" unchanged.
        dtype: with a format: "bfloat16" (the default, where the library of the cache has it), "float16" or "float32".

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
