"""The operators on paged caches, which may be several; and those whose results are no arrays in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import jax

from .. import _caches, _words
from .._sentences import bad
from ..errors import Status
from ..ops import kv_blocks as _kv_blocks
from ..ops import kv_gather as _kv_gather
from ..ops import kv_ragged as _kv_ragged
from ..ops import kv_scatter as _kv_scatter
from ..ops import moe_capacity as _moe_capacity
from ._call import is_traced
from ._functions import function, jax_operator

__all__ = ["kv_blocks", "kv_gather", "kv_ragged", "kv_scatter", "moe_capacity"]

Caches: TypeAlias = jax.Array | Sequence[jax.Array]
_MANY = (tuple, list)

_scatter = jax_operator(_kv_scatter.kv_scatter)
_blocks = jax_operator(_kv_blocks.kv_blocks)
_capacity = jax_operator(_moe_capacity.moe_capacity)


def _end(cu_lens: Any) -> int:
    if is_traced(cu_lens):
        text = "is None, want the number of rows of the result, because cu_lens is traced by JAX"
        raise bad(Status.VALUE, "kv_ragged", "rows", text)
    return _kv_ragged._end(cu_lens)


kv_gather = function(_kv_gather.kv_gather)
kv_ragged = function(_kv_ragged.kv_ragged, _end=_end)


def kv_scatter(
    cache: Caches,
    src: Caches,
    slots: Any,
    scale: Any = None,
    global_scale: Any = None,
    *,
    pad: _words.KvScatterPad = "error",
    check_unique: bool = False,
    layout: _words.KvScatterLayout = "nhd",
    format: _words.KvScatterFormat | Sequence[_words.KvScatterFormat | None] | None = None,
    block_size: int = 0,
) -> Any:
    """Write rows into a paged cache by slot: :func:`switchyard.kv_scatter`, but the new cache is returned.

    A cache that is donated to jax.jit is changed in place; any other is copied first.

    Returns:
        The new cache, or a tuple of them for several; with a scale that is written too, the pair of caches and scales.

    >>> import jax.numpy as jnp, switchyard.jax
    >>> switchyard.jax.kv_scatter(jnp.zeros((4, 1)), jnp.array([[1.0], [2.0]]), jnp.array([3, 0]))[:, 0]
    Array([2., 0., 0., 1.], dtype=float32)
    """
    planes = _caches.planes("kv_scatter", cache, format, scale, global_scale)
    rows = _caches.beside("kv_scatter", "src", src, cache, len(planes))
    calls = [
        _scatter.take(
            (beside, slots, plane.scale, plane.global_scale, pad, check_unique, layout, plane.format, block_size)
        )
        for plane, beside in zip(planes, rows, strict=True)
    ]
    for plane, call in zip(planes, calls, strict=True):
        _scatter.take_out(call, (plane.cache,))
    first = len(_scatter.table)
    each = _caches.PLANE_VALUES
    at_caches = [first - 1, *(first + each * at for at in range(len(planes) - 1))]
    at_scales = [2, *(first + 3 + each * at for at in range(len(planes) - 1))]
    scaled = [at for at, plane in zip(at_scales, planes, strict=True) if getattr(plane.scale, "ndim", 1) > 1]
    made = _scatter.launch(calls[0], (planes[0].cache,), _caches.further(planes, rows), (*at_caches, *scaled))
    many = isinstance(cache, _MANY)
    caches = tuple(made[at] for at in at_caches) if many else made[at_caches[0]]
    if not scaled:
        return caches
    scales = tuple(made.get(at, plane.scale) for at, plane in zip(at_scales, planes, strict=True))
    return caches, scales if many else scales[0]


def kv_blocks(
    pairs: Any,
    cache: Caches | None = None,
    src: Caches | None = None,
    dst: Caches | None = None,
    *,
    block_size: int = 0,
) -> Any:
    """Copy whole blocks by pairs: :func:`switchyard.kv_blocks`, but the new cache, or ``dst``, is returned.

    A cache that is donated to jax.jit is changed in place; any other is copied first.

    >>> import jax.numpy as jnp, switchyard.jax
    >>> switchyard.jax.kv_blocks(jnp.array([[0, 2]]), jnp.arange(6.0)[:, None], block_size=2)[:, 0]
    Array([0., 1., 2., 3., 0., 1.], dtype=float32)
    """
    read = src if cache is None else cache
    count = len(read) if isinstance(read, _MANY) else 1
    caches, sources, targets = (
        _caches.beside("kv_blocks", field, arrays, read, count)
        for field, arrays in (("cache", cache), ("src", src), ("dst", dst))
    )
    calls = [_blocks.take((source, pairs, block_size)) for source in sources]
    started = [_blocks.take_out(*call) for call in zip(calls, zip(caches, targets, strict=True), strict=True)]
    first, more = len(_blocks.table), sources if cache is None else caches
    planes = [value for at in range(1, count) for value in (more[at], targets[at], None, None, None)]
    part = 0 if cache is not None else 1
    written = [first - 2 + part, *(first + part + _caches.PLANE_VALUES * at for at in range(count - 1))]
    made = _blocks.launch(calls[0], started[0], planes, written)
    return tuple(made[at] for at in written) if isinstance(read, _MANY) else made[written[0]]


def moe_capacity(
    counts: Any = None,
    *,
    samples: int = 0,
    num_experts: int,
    k: int = 1,
    factor: float = 0.0,
    alignment: int = 1,
) -> Any:
    """Compute the number of slots of each expert: :func:`switchyard.moe_capacity`.

    A number that arrays can be made of; an array without dimensions where ``counts`` is traced by JAX.

    >>> import switchyard.jax
    >>> switchyard.jax.moe_capacity(samples=18432, num_experts=2, factor=1.25)
    11520
    """
    if is_traced(counts):
        return _capacity((counts, samples, num_experts, k, factor, alignment))[0][0]
    numbers: Any = {"samples": samples, "num_experts": num_experts, "k": k, "factor": factor, "alignment": alignment}
    return _moe_capacity.moe_capacity(counts, **numbers)
