from __future__ import annotations

from .. import _caches
from .._declare import Array, Operator, Sequence

operator = Operator("kv_blocks", tuple)


def kv_blocks(
    pairs: Array,
    cache: Array | Sequence[Array] | None = None,
    src: Array | Sequence[Array] | None = None,
    dst: Array | Sequence[Array] | None = None,
    *,
    block_size: int = 0,
) -> None:
    """Copy whole blocks of a paged KV cache in place, within it or from one to another.

    For every pair (s, d) block s of ``cache`` is copied to block d, or block s of ``src`` to block d of ``dst``. No
    block may be written twice, and within one cache none may be both read and written. Tuples or lists of caches are
    copied by the same pairs at once.

    Returns:
        None: the cache is changed in place.

    >>> import numpy as np, switchyard
    >>> cache = np.array([[[0, 1]], [[10, 11]], [[20, 21]], [[30, 31]]])
    >>> switchyard.kv_blocks(np.array([[0, 1], [0, 3]]), cache)
    >>> cache[:, 0].tolist()
    [[0, 1], [0, 1], [20, 21], [0, 1]]
    """
    read = src if cache is None else cache
    count = _caches.count("kv_blocks", "src" if cache is None else "cache", read)
    caches, sources, targets = (
        _caches.beside("kv_blocks", field, arrays, read, count)
        for field, arrays in (("cache", cache), ("src", src), ("dst", dst))
    )
    for one, source, target in zip(caches, sources, targets, strict=True):
        operator.look((source, pairs, block_size, one, target))
        for field, array in (("cache", one), ("dst", target)):
            if array is not None:
                operator.check_written(field, array)
    more = sources if cache is None else caches
    planes = tuple(value for i in range(1, count) for value in (more[i], targets[i], None, None, None))
    operator.run((sources[0], pairs, block_size), (caches[0], targets[0]), planes)
