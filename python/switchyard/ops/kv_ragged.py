from __future__ import annotations

import numpy as np

from .. import _caches
from .._binding import core
from .._caches import asked_type, gathers, row_shape, row_type
from .._declare import Any, Array, Operator, Sequence, _words
from .._numbers import count
from .._operator import place

operator = Operator(
    "kv_ragged",
    tuple,
    asks={"rows": "", "dtype": ""},
    dtype=asked_type,
    shapes={"out": lambda rows, cache, layout, format: (rows, *row_shape(cache, layout, format))},
    types={"out": lambda xp, cache, format, dtype: row_type(xp, "kv_ragged", cache, format, dtype)},
    zeros={"out": True},
)


@gathers
def kv_ragged(
    cache: Any,
    cu_lens: Array,
    block_table: Array | None = None,
    starts: Array | None = None,
    req_id: Array | None = None,
    page_indices: Array | None = None,
    indptr: Array | None = None,
    last_page_len: Array | None = None,
    scale: Array | Sequence[Array | None] | None = None,
    seq_lens: Array | None = None,
    global_scale: Array | Sequence[Array | None] | None = None,
    *,
    block_size: int,
    layout: _words.KvRaggedLayout = "nhd",
    format: _words.KvRaggedFormat | Sequence[_words.KvRaggedFormat | None] | None = None,
    rows: int | None = None,
    dtype: Any = None,
    out: Any = None,
) -> Any:
    """Copy a run of consecutive tokens of each sequence, one run after the other.

    Rows ``cu_lens[b]`` up to ``cu_lens[b+1]`` of the result are the tokens of sequence b from ``starts[b]`` on. Caches
    are as in :func:`kv_gather`, also several of them as a tuple.

    Args:
        rows: rows of the result; without it as many as cu_lens ends with. Rows past its end are zero.
        dtype: with a format: "bfloat16" (the default, where the library of the cache has it), "float16" or "float32".
        out: an array to write to, instead of a new one; rows past the end of cu_lens are unchanged.

    Returns:
        [N, *row]: the rows of all sequences, one after the other; a tuple of them for several caches.

    >>> import numpy as np, switchyard
    >>> cache, table = 10 * np.arange(8)[:, None], np.array([[3, 1], [0, 2]])
    >>> switchyard.kv_ragged(cache, np.array([0, 3, 5]), table, np.array([1, 0]), block_size=2).tolist()
    [[70], [20], [30], [0], [10]]
    """
    if rows is None and out is None:
        rows = _end(cu_lens)
    elif rows is not None:
        rows = count("kv_ragged", "rows", rows)
    found_by = (block_table, cu_lens, starts, req_id, page_indices, indptr, last_page_len, seq_lens)
    numbers = (block_size, layout)
    return _caches.gather(operator, cache, found_by, scale, global_scale, numbers, format, out, (rows, dtype))


def read_end(cu_lens: Any) -> int | None:
    """The last of the lengths, read by the binding, which is faster than some libraries; None if it cannot read it."""
    end = core.last_integer(cu_lens)
    if end is None and (there := place((cu_lens,))).device is not None:
        end = core.last_integer(there.view(cu_lens), there.stream())
    return None if end is None else max(int(end), 0)


def _end(cu_lens: Any) -> int:
    """The last of the lengths; 0 for invalid ones, which the operator then rejects."""
    try:
        if type(cu_lens) is not np.ndarray and (end := read_end(cu_lens)) is not None:
            return end
        lengths = cu_lens if hasattr(cu_lens, "__getitem__") else np.from_dlpack(cu_lens)
        return max(int(lengths[-1]), 0)
    except Exception:
        return 0
