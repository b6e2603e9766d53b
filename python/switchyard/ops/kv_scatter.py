from __future__ import annotations

from .. import _caches
from .._arrays import is_array
from .._declare import Any, Array, Operator, Sequence, _words

_MANY = (tuple, list)

operator = Operator("kv_scatter", tuple, flows="src slots scale global_scale cache", changes="scale")


def kv_scatter(
    cache: Array | Sequence[Array],
    src: Array | Sequence[Array],
    slots: Array,
    scale: Array | Sequence[Array | None] | None = None,
    global_scale: Array | Sequence[Array | None] | None = None,
    *,
    pad: _words.KvScatterPad = "error",
    check_unique: bool = False,
    layout: _words.KvScatterLayout = "nhd",
    format: _words.KvScatterFormat | Sequence[_words.KvScatterFormat | None] | None = None,
    block_size: int = 0,
) -> None:
    """Write rows into a paged KV cache by slot, in place.

    Row i of ``src`` becomes row ``slots[i]`` of the cache; other rows are unchanged. Every slot is validated before the
    first row is written. Read-only arrays, including those of JAX, are rejected.

    A tuple or list of caches, with as many sources, is written by the same slots at once; ``format`` and ``scale`` may
    be tuples as well, and a single one applies to every cache.

    Args:
        src: [..., D...], the dimensions of slots and then a cache row; type of cache, or with a format bfloat16,
            float16 or float32.
        check_unique: reject a slot that occurs twice; without it the bytes of that row are unspecified.

    Returns:
        None: the cache is changed in place.

    >>> import numpy as np, switchyard
    >>> cache = np.zeros((6, 2), int)
    >>> rows = np.array([[1, 2], [3, 4], [5, 6], [7, 8]])
    >>> switchyard.kv_scatter(cache, rows, np.array([5, -1, 0, 2]), pad="skip")
    >>> cache.tolist()
    [[5, 6], [0, 0], [7, 8], [0, 0], [0, 0], [1, 2]]
    """
    if not (
        isinstance(cache, _MANY)
        or isinstance(src, _MANY)
        or isinstance(scale, _MANY)
        or isinstance(format, _MANY)
        or isinstance(global_scale, _MANY)
    ):
        given = (src, slots, scale, global_scale, pad, check_unique, layout, format, block_size)
        operator(given, (cache,))
        return
    planes = _caches.planes("kv_scatter", cache, format, scale, global_scale)
    rows = _caches.beside("kv_scatter", "src", src, cache, len(planes))
    calls = [
        (beside, slots, plane.scale, plane.global_scale, pad, check_unique, layout, plane.format, block_size)
        for plane, beside in zip(planes, rows, strict=True)
    ]
    for plane, call in zip(planes, calls, strict=True):
        _check(plane.cache, call)
    operator.run(calls[0], (planes[0].cache,), _caches.further(planes, rows))


def _check(cache: Any, given: tuple[Any, ...]) -> None:
    operator.look((*given, cache))
    operator.check_written("cache", cache)
    if is_array(given[2]) and getattr(given[2], "ndim", 1) > 1:
        operator.check_written("scale", given[2])
