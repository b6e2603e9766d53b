"""Rows of a paged KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import switchyard

from .. import _caches
from .._functions import operator_of
from .._numbers import count
from .._operator import Operator
from .._sentences import bad
from ..errors import Error, Status
from ..ops.kv_ragged import read_end
from . import _gradients, _library
from ._library import Given, element_type, function

_None = type(None)


def _lists(
    name: str, cache: Any, scale: Any, global_scale: Any, format: Any
) -> tuple[list[Any], list[Any], list[Any], list[str]]:
    """Caches, and as many scales and formats, as a schema has them."""
    planes = _caches.planes(name, cache, format, scale, global_scale)
    caches, formats, scales, globals = (list(values) for values in zip(*planes, strict=True))
    return caches, scales, globals, ["" if word is None else word for word in formats]


def _reject_missing(name: str, out: Sequence[Any]) -> None:
    """Rejects an `out` without an array for each cache, which a schema of lists cannot do in the operator's words."""
    for number, rows in enumerate(out):
        if rows is None:
            raise bad(Status.NULL, name, f"out of plane {number}" if number else "out", "is missing, want a tensor")


def _define_gather(operator: Operator[Any]) -> Any:
    """Defines an operator that copies rows out of several caches at once: with new rows, and into given ones.

    Values are those of the binding's table and then what the rule is asked; caches, scales and formats are lists.
    """
    name, fields = operator.name, [field.name for field in operator.table]
    check_words = _library.make_word_check(operator)
    scale_at, count = fields.index("scale"), len(fields) - 1  # the format is the last of them

    def calls(values: Given) -> list[Given]:
        caches, scales, globals, formats = values[0], values[scale_at], values[scale_at + 1], values[count - 1]
        found, numbers = values[1:scale_at], values[scale_at + 2 : count - 1]
        several = zip(caches, scales, globals, formats, strict=True)
        return [(cache, *found, *both, *numbers, word or None) for cache, *both, word in several]

    def run(several: list[Given], rows: Sequence[Tensor]) -> None:
        planes = [_caches.Plane(call[0], call[-1], *call[scale_at : scale_at + 2]) for call in several]
        operator.run(several[0], (rows[0],), _caches.further(planes, rows))

    def kernel(*values: Any) -> list[Tensor]:
        several = calls(values)
        rows = [operator.make(call, values[count:])[0] for call in several]
        run(several, rows)
        return rows

    def fake(*values: Any) -> list[Tensor]:
        _library.reject_device(name, values)
        return [_library.fake_results(operator, (*call, *values[count:]))[0] for call in calls(values)]

    def write(*values: Any) -> None:
        run(calls(values), values[-1])

    lists = {"cache": "Tensor[] cache", "scale": "Tensor?[] scale", "format": "str[] format"}
    lists["global_scale"] = "Tensor?[] global_scale"
    arguments = [lists.get(field.name) or _library.schema(field) for field in operator.given]
    wanted = [*arguments, *_library.asked(operator)]
    new = _library.register(name, f"({', '.join(wanted)}) -> Tensor[]", kernel, fake)
    into = _library.register(
        f"{name}_out", f"({', '.join(arguments)}, Tensor(a!)[] out) -> ()", write, _library.write_nothing(name)
    )
    _gradients.reject(name, "a cache is no part of a graph, want a detached one")

    def general(given: Given, out: Any, _: bool | None) -> Any:
        cache, both, format = given[0], given[scale_at : scale_at + 2], given[count - 1]
        _caches.check_dtype(name, given[-1], format)
        alone = isinstance(cache, Tensor) and isinstance(format, (str, _None))
        alone = alone and not any(isinstance(scale, (tuple, list)) for scale in both)
        if alone and _library.direct(given[: scale_at + 2], () if out is None else (out,)):
            if out is None:
                return operator.run(given[:count], None, (), given[count:])[0]
            operator.run(given[:count], (out,))
            return out
        given = check_words(given)
        caches, scales, globals, words = _lists(name, cache, both[0], both[1], format)
        values = (caches, *given[1:scale_at], scales, globals, *given[scale_at + 2 : count - 1], words)
        one = not isinstance(cache, (tuple, list))
        to = [] if out is None else list(_caches.beside(name, "out", out, cache, len(caches)))
        plain = _library.direct((*caches, *given[1:scale_at], *scales, *globals), to)
        if out is None:
            if not plain and _library.forward_ad._current_level >= 0:
                _library.reject_forward(name, values)
            rows = (kernel if plain else new)(*values, *given[count:])
            return rows[0] if one else tuple(rows)
        if not plain:
            _library.reject_out(name, ["out"] * len(caches), tuple(to))
            _reject_missing(name, to)
            _library.reject_tracked(name, (*values, to))
        (write if plain else into)(*values, to)
        return out if one else tuple(out)

    short = _library.shortened(operator, True, general)
    return lambda given, out: short(given, out) if given[-1] is None else general(given, out, None)


_read_words = _library.make_word_check(operator_of(switchyard.kv_scatter))
_gather = _define_gather(operator_of(switchyard.kv_gather))
_ragged = _define_gather(operator_of(switchyard.kv_ragged))


@function(switchyard.kv_gather)
def kv_gather(given: Given, out: Any, dtype: Any) -> Any:
    """Copy the cache rows of selected tokens, in the order of the indices: :func:`switchyard.kv_gather`.

    A cache that requires a gradient gets none: a backward pass that reaches it is rejected.

    >>> import torch, switchyard.torch
    >>> cache = 10 * torch.arange(6)[:, None] + torch.arange(2)
    >>> indices, blocks = torch.tensor([0, 4, 3]), torch.tensor([0, 2, 1])
    >>> switchyard.torch.kv_gather(cache, indices, blocks, block_size=2)
    tensor([[ 0,  1],
            [20, 21],
            [50, 51]])
    """
    return _gather(given if dtype is None else (*given[:-1], element_type("kv_gather", dtype)), out)


@function(switchyard.kv_ragged)
def kv_ragged(given: Given, out: Any, cu_lens: Any, rows: Any, dtype: Any) -> Any:
    """Copy a run of tokens of each sequence out of a paged cache: :func:`switchyard.kv_ragged`.

    A compiled graph needs ``rows`` or ``out``, because without them the number of rows is read from ``cu_lens``. A
    cache that requires a gradient gets none: a backward pass that reaches it is rejected.

    >>> import torch, switchyard.torch
    >>> cache, blocks = torch.arange(6.0)[:, None], torch.tensor([[2, 0], [1, 0]])
    >>> switchyard.torch.kv_ragged(cache, torch.tensor([0, 3, 4]), blocks, block_size=2)[:, 0]
    tensor([4., 5., 0., 2.])
    """
    if rows is None and out is None:
        rows = _end(cu_lens)
    elif not isinstance(rows, (int, torch.SymInt, _None)):
        rows = count("kv_ragged", "rows", rows)
    return _ragged((*given[:-2], rows, element_type("kv_ragged", dtype)), out)


@function(switchyard.kv_scatter)
def kv_scatter(given: Given, out: Any) -> None:
    """Write rows into a paged cache by slot, in place: :func:`switchyard.kv_scatter`.

    Rows that require a gradient are rejected, because it would end in the cache. Several caches at once in a compiled
    graph need PyTorch 2.5.

    >>> import torch, switchyard.torch
    >>> cache = torch.zeros(4, 1)
    >>> switchyard.torch.kv_scatter(cache, torch.tensor([[1.], [2]]), torch.tensor([3, 0]))
    >>> cache[:, 0]
    tensor([2., 0., 0., 1.])
    """
    _scatter(given, out)


def _scatter_in_full(given: Given, out: Any, _: bool | None) -> None:
    (cache,), src = out, given[0]
    if isinstance(cache, Tensor) and isinstance(src, Tensor):
        if _library.direct((), (cache, *given[:4])):
            _write_cache(cache, *given)
            return
        given = _read_words(given)
        _library.reject_tracked("kv_scatter", (cache, src, given[2]))
        _one_cache_op(cache, *given)
        return
    _, slots, scale, global_scale, *numbers, format, block_size = _read_words(given)
    caches, scales, globals, formats = _lists("kv_scatter", cache, scale, global_scale, format)
    rows = list(_caches.beside("kv_scatter", "src", src, cache, len(caches)))
    scaled = [i for i, values in enumerate(scales) if values is not None]
    scales_given = [scales[i] for i in scaled]
    _library.reject_tracked("kv_scatter", (caches, rows, scales_given))
    _caches_op(caches, rows, slots, scales_given, globals, scaled, *numbers, formats, block_size)


_scatter = _library.shortened(operator_of(switchyard.kv_scatter), False, _scatter_in_full)


@function(switchyard.kv_blocks)
def kv_blocks(given: Given, out: Any) -> None:
    """Copy whole blocks by pairs, in place or from one cache to another: :func:`switchyard.kv_blocks`.

    Tensors that require a gradient are rejected, because it would end in the cache.

    >>> import torch, switchyard.torch
    >>> cache = torch.arange(6.0)[:, None]
    >>> switchyard.torch.kv_blocks(torch.tensor([[0, 2]]), cache, block_size=2)
    >>> cache[:, 0]
    tensor([0., 1., 2., 3., 0., 1.])
    """
    (src, pairs, block_size), (cache, dst) = given, out
    read = src if cache is None else cache
    count = _caches.count("kv_blocks", "src" if cache is None else "cache", read)
    caches, sources, targets = (
        [] if tensors is None else list(_caches.beside("kv_blocks", field, tensors, read, count))
        for field, tensors in (("cache", cache), ("src", src), ("dst", dst))
    )
    if _library.direct((), (pairs, *caches, *sources, *targets)):
        _blocks_kernel(pairs, caches, sources, targets, block_size)
        return
    *_, block_size = operator_of(switchyard.kv_blocks).check_kinds(given)
    _library.reject_tracked("kv_blocks", (caches, sources, targets))
    _blocks(pairs, caches, sources, targets, block_size)


def _end(cu_lens: Tensor) -> int:
    """The last of the lengths."""
    plain = type(cu_lens) is Tensor and not torch.compiler.is_compiling()
    end = read_end(cu_lens) if plain else None
    return end if end is not None else max(int(cu_lens[-1]), 0) if cu_lens.numel() else 0


def _write_caches(
    caches: list[Tensor],
    rows: list[Tensor],
    slots: Tensor,
    given: list[Tensor],
    globals: list[Tensor | None],
    scaled: list[int],
    pad: str,
    check_unique: bool,
    layout: str,
    formats: list[str],
    block_size: int,
) -> None:
    scales = dict(zip(scaled, given, strict=True))
    planes = [_caches.Plane(cache, formats[i] or None, scales.get(i), globals[i]) for i, cache in enumerate(caches)]
    numbers = (pad, check_unique, layout, planes[0].format, block_size)

    def run(rows: list[Tensor]) -> None:
        values = (rows[0], slots, planes[0].scale, planes[0].global_scale, *numbers)
        operator_of(switchyard.kv_scatter).run(values, (caches[0],), _caches.further(planes, rows))

    try:
        run(rows)
    except Error as error:
        if error.status != Status.STRIDE:
            raise
        run([tensor.contiguous() for tensor in rows])  # rows may be copied, a cache never is


def _write_cache(cache: Tensor, src: Tensor, *others: Any) -> None:
    try:
        operator_of(switchyard.kv_scatter).run((src, *others), (cache,))
    except Error as error:
        if error.status != Status.STRIDE:
            raise
        operator_of(switchyard.kv_scatter).run((src.contiguous(), *others), (cache,))


def _blocks_kernel(
    pairs: Tensor, caches: list[Tensor], sources: list[Tensor], targets: list[Tensor], block_size: int
) -> None:
    more = caches or sources
    planes = tuple(
        value
        for i in range(1, len(more))
        for value in (more[i], targets[i] if i < len(targets) else None, None, None, None)
    )
    first = [tensors[0] if tensors else None for tensors in (caches, sources, targets)]
    operator_of(switchyard.kv_blocks).run((first[1], pairs, block_size), (first[0], first[2]), planes)


_one_cache_op = _library.register(
    "kv_scatter",
    "(Tensor(a!) cache, Tensor src, Tensor slots, Tensor(b!)? scale, Tensor? global_scale, str pad, bool check_unique, "
    "str layout, str? format, SymInt block_size) -> ()",
    _write_cache,
    _library.write_nothing("kv_scatter"),
)
_caches_op = _library.register(
    "kv_scatter_planes",
    "(Tensor(a!)[] cache, Tensor[] src, Tensor slots, Tensor(b!)[] scale, Tensor?[] global_scale, int[] scaled, "
    "str pad, bool check_unique, str layout, str[] format, SymInt block_size) -> ()",
    _write_caches,
    _library.write_nothing("kv_scatter"),
)
_blocks = _library.register(
    "kv_blocks",
    "(Tensor pairs, Tensor(a!)[] cache, Tensor[] src, Tensor(b!)[] dst, SymInt block_size) -> ()",
    _blocks_kernel,
    _library.write_nothing("kv_blocks"),
)
