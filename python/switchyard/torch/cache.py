"""Rows of a paged KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import torch
from torch import Tensor

from .. import _caches
from .._caches import LAYOUTS, PADS, Format, Layout, Pad
from .._operator import Operator, choose
from .._sentences import bad, shown
from ..errors import Error, Status
from ..ops import kv_blocks as _kv_blocks
from ..ops import kv_gather as _kv_gather
from ..ops import kv_ragged as _kv_ragged
from ..ops import kv_scatter as _kv_scatter
from ..ops import kv_slots as _kv_slots
from ..ops import kv_translate as _kv_translate
from ..ops.kv_scatter import Pad as ScatterPad
from ..ops.kv_translate import KvTranslate
from . import _gradients, _library
from ._library import define

_TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
_None = type(None)
_PAGES = "Tensor? page_indices, Tensor? indptr, Tensor? last_page_len"

_translate = define(
    _kv_translate.operator,
    _kv_translate.outputs,
    f"Tensor indices, Tensor? block_table, Tensor? req_id, Tensor? counts, Tensor? seq_lens, {_PAGES}, "
    "SymInt block_size, SymInt num_rows, int pad, SymInt world, SymInt rank, SymInt interleave",
    KvTranslate,
)
_slots = define(
    _kv_slots.operator,
    _kv_slots.outputs,
    f"Tensor? batch, Tensor position, Tensor? block_table, {_PAGES}, SymInt block_size, SymInt num_rows, int pad",
)


def _define_gather(operator: Operator[Any], rule: _library.Rule, arguments: str, found_by: int, asked: str) -> Any:
    """Defines an operator that copies rows out of several caches at once: with new rows, and into given ones.

    Values are the caches, `found_by` tensors that select the rows, scales, numbers and formats, as in the binding's
    table; then further arguments of the rule `outputs`.
    """
    name, names, wishes = operator.name, asked.split(), len(asked.split())

    def calls(values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        caches, found, (scales, *numbers, formats) = values[0], values[1 : 1 + found_by], values[1 + found_by :]
        several = zip(caches, scales, formats, strict=True)
        return [(cache, *found, scale, *numbers, word or None) for cache, scale, word in several]

    def run(several: list[tuple[Any, ...]], rows: Sequence[Tensor]) -> None:
        planes = [_caches.Plane(call[0], call[-1], call[1 + found_by]) for call in several]
        operator.run(several[0], (rows[0],), _caches.further(planes, rows))

    def kernel(*values: Any) -> list[Tensor]:
        several = calls(values[:-wishes])
        rows = [operator.make(_library.HERE, call, values[-wishes:])[0] for call in several]
        run(several, rows)
        return rows

    def fake(*values: Any) -> list[Tensor]:
        _library.reject_device(name, values)
        return [rule(_library.beside(values), *call, *values[-wishes:])[0] for call in calls(values[:-wishes])]

    def write(*values: Any) -> None:
        run(calls(values[:-1]), values[-1])

    types = {"rows": "SymInt", "dtype": "ScalarType?"}
    wanted = ", ".join(f"{types[word]} {word}" for word in names)
    new = _library.register(name, f"({arguments}, {wanted}) -> Tensor[]", kernel, fake)
    into = _library.register(
        f"{name}_out", f"({arguments}, Tensor(a!)[] out) -> ()", write, _library.write_nothing(name)
    )
    _gradients.reject(name, "a cache is no part of a graph, want a detached one")

    def call(
        cache: Any,
        found: tuple[Any, ...],
        scale: Any,
        numbers: tuple[Any, ...],
        format: Any,
        wished: tuple[Any, ...],
        out: Any,
    ) -> Any:
        dtype = wished[-1]
        alone = isinstance(cache, Tensor) and not isinstance(scale, (tuple, list)) and isinstance(format, (str, _None))
        into_one = () if out is None else (out,)
        if alone and (dtype is None or format) and _library.direct((cache, *found, scale), into_one):
            given = (cache, *found, scale, *numbers, format or None)
            if out is None:
                return operator.new(_library.PLAIN, given, wished)[0]
            operator.run(given, into_one)
            return out
        caches = _caches.spread(name, "cache", cache, None)
        if len(caches) == 0:
            raise bad(Status.VALUE, name, "cache", f"is an empty {type(cache).__name__}, want one tensor or more")
        scales = list(_caches.spread(name, "scale", scale, len(caches)))
        words = ["" if word is None else word for word in _caches.spread(name, "format", format, len(caches))]
        if dtype is not None and not any(words):
            text = f"is {dtype}, want a format with it: other rows come out as they are"
            raise bad(Status.VALUE, name, "dtype", text)
        values = (list(caches), *found, scales, *numbers, words)
        one = not isinstance(cache, (tuple, list))
        to = [] if out is None else list(_caches.beside(name, "out", out, cache, len(caches)))
        plain = _library.direct((*caches, *found, *scales), to)
        if out is None:
            if not plain and _library.forward_ad._current_level >= 0:
                _library.reject_forward(name, values)
            rows = (kernel if plain else new)(*values, *wished)
            return rows[0] if one else tuple(rows)
        if plain:
            write(*values, to)
        else:
            _library.reject_tracked(name, (*values, to))
            into(*values, to)
        return out if one else tuple(out)

    return call


_gather = _define_gather(
    _kv_gather.operator,
    _kv_gather.outputs,
    f"Tensor[] cache, Tensor indices, Tensor? block_table, Tensor? req_id, Tensor? counts, Tensor? seq_lens, {_PAGES}, "
    "Tensor?[] scale, SymInt block_size, int pad, int layout, str[] format",
    found_by=8,
    asked="dtype",
)
_ragged = _define_gather(
    _kv_ragged.operator,
    _kv_ragged.outputs,
    f"Tensor[] cache, Tensor? block_table, Tensor cu_lens, Tensor? starts, Tensor? req_id, {_PAGES}, "
    "Tensor? seq_lens, Tensor?[] scale, SymInt block_size, int layout, str[] format",
    found_by=8,
    asked="rows dtype",
)


@overload
def kv_gather(
    cache: Tensor,
    indices: Tensor,
    block_table: Tensor | None = None,
    req_id: Tensor | None = None,
    counts: Tensor | None = None,
    seq_lens: Tensor | None = None,
    page_indices: Tensor | None = None,
    indptr: Tensor | None = None,
    last_page_len: Tensor | None = None,
    scale: Tensor | None = None,
    *,
    block_size: int,
    pad: Pad = "error",
    layout: Layout = "nhd",
    format: Format | None = None,
    dtype: Any = None,
    out: Tensor | None = None,
) -> Tensor: ...


@overload
def kv_gather(
    cache: Sequence[Tensor],
    indices: Tensor,
    block_table: Tensor | None = None,
    req_id: Tensor | None = None,
    counts: Tensor | None = None,
    seq_lens: Tensor | None = None,
    page_indices: Tensor | None = None,
    indptr: Tensor | None = None,
    last_page_len: Tensor | None = None,
    scale: Tensor | Sequence[Tensor | None] | None = None,
    *,
    block_size: int,
    pad: Pad = "error",
    layout: Layout = "nhd",
    format: Format | Sequence[Format | None] | None = None,
    dtype: Any = None,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, ...]: ...


def kv_gather(
    cache: Any,
    indices: Tensor,
    block_table: Tensor | None = None,
    req_id: Tensor | None = None,
    counts: Tensor | None = None,
    seq_lens: Tensor | None = None,
    page_indices: Tensor | None = None,
    indptr: Tensor | None = None,
    last_page_len: Tensor | None = None,
    scale: Any = None,
    *,
    block_size: int,
    pad: Pad = "error",
    layout: Layout = "nhd",
    format: Any = None,
    dtype: Any = None,
    out: Any = None,
) -> Any:
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
    found = (indices, block_table, req_id, counts, seq_lens, page_indices, indptr, last_page_len)
    numbers = (
        block_size,
        choose("kv_gather", "pad", PADS, pad),
        choose("kv_gather", "layout", LAYOUTS, layout),
    )
    return _gather(cache, found, scale, numbers, format, (_type("kv_gather", dtype),), out)


@overload
def kv_ragged(
    cache: Tensor,
    cu_lens: Tensor,
    block_table: Tensor | None = None,
    starts: Tensor | None = None,
    req_id: Tensor | None = None,
    page_indices: Tensor | None = None,
    indptr: Tensor | None = None,
    last_page_len: Tensor | None = None,
    scale: Tensor | None = None,
    seq_lens: Tensor | None = None,
    *,
    block_size: int,
    layout: Layout = "nhd",
    format: Format | None = None,
    rows: int | None = None,
    dtype: Any = None,
    out: Tensor | None = None,
) -> Tensor: ...


@overload
def kv_ragged(
    cache: Sequence[Tensor],
    cu_lens: Tensor,
    block_table: Tensor | None = None,
    starts: Tensor | None = None,
    req_id: Tensor | None = None,
    page_indices: Tensor | None = None,
    indptr: Tensor | None = None,
    last_page_len: Tensor | None = None,
    scale: Tensor | Sequence[Tensor | None] | None = None,
    seq_lens: Tensor | None = None,
    *,
    block_size: int,
    layout: Layout = "nhd",
    format: Format | Sequence[Format | None] | None = None,
    rows: int | None = None,
    dtype: Any = None,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, ...]: ...


def kv_ragged(
    cache: Any,
    cu_lens: Tensor,
    block_table: Tensor | None = None,
    starts: Tensor | None = None,
    req_id: Tensor | None = None,
    page_indices: Tensor | None = None,
    indptr: Tensor | None = None,
    last_page_len: Tensor | None = None,
    scale: Any = None,
    seq_lens: Tensor | None = None,
    *,
    block_size: int,
    layout: Layout = "nhd",
    format: Any = None,
    rows: int | None = None,
    dtype: Any = None,
    out: Any = None,
) -> Any:
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
    found = (block_table, cu_lens, starts, req_id, page_indices, indptr, last_page_len, seq_lens)
    numbers = (block_size, choose("kv_ragged", "layout", LAYOUTS, layout))
    return _ragged(cache, found, scale, numbers, format, (rows, _type("kv_ragged", dtype)), out)


def kv_translate(
    indices: Tensor,
    block_table: Tensor | None = None,
    req_id: Tensor | None = None,
    counts: Tensor | None = None,
    seq_lens: Tensor | None = None,
    page_indices: Tensor | None = None,
    indptr: Tensor | None = None,
    last_page_len: Tensor | None = None,
    *,
    block_size: int,
    num_rows: int = 0,
    pad: Pad = "error",
    world: int = 0,
    rank: int = 0,
    interleave: int = 0,
    out: KvTranslate[Tensor] | None = None,
) -> KvTranslate[Tensor]:
    """Look up the rows of selected tokens in a paged cache: :func:`switchyard.kv_translate`.

    >>> import torch, switchyard.torch
    >>> switchyard.torch.kv_translate(torch.tensor([0, 4, 3]), torch.tensor([0, 2, 1]), block_size=2).slots
    tensor([0, 2, 5])
    """
    found = (indices, block_table, req_id, counts, seq_lens, page_indices, indptr, last_page_len)
    numbers = (block_size, num_rows, choose("kv_translate", "pad", PADS, pad), world, rank, interleave)
    made: KvTranslate[Tensor] = _translate((*found, *numbers), out)
    return made


def kv_slots(
    position: Tensor,
    batch: Tensor | None = None,
    block_table: Tensor | None = None,
    page_indices: Tensor | None = None,
    indptr: Tensor | None = None,
    last_page_len: Tensor | None = None,
    *,
    block_size: int,
    num_rows: int = 0,
    pad: Pad = "error",
    out: Tensor | None = None,
) -> Tensor:
    """Look up the row of every new token in a paged cache: :func:`switchyard.kv_slots`.

    >>> import torch, switchyard.torch
    >>> switchyard.torch.kv_slots(torch.tensor([0, 4, 3]), block_table=torch.tensor([0, 2, 1]), block_size=2)
    tensor([0, 2, 5])
    """
    found = (batch, position, block_table, page_indices, indptr, last_page_len)
    made: Tensor = _slots((*found, block_size, num_rows, choose("kv_slots", "pad", PADS, pad)), out)
    return made


@overload
def kv_scatter(
    cache: Tensor,
    src: Tensor,
    slots: Tensor,
    scale: Tensor | None = None,
    *,
    pad: ScatterPad = "error",
    check_unique: bool = False,
    layout: Layout = "nhd",
    format: Format | None = None,
    block_size: int = 0,
) -> None: ...


@overload
def kv_scatter(
    cache: Sequence[Tensor],
    src: Sequence[Tensor],
    slots: Tensor,
    scale: Tensor | Sequence[Tensor | None] | None = None,
    *,
    pad: ScatterPad = "error",
    check_unique: bool = False,
    layout: Layout = "nhd",
    format: Format | Sequence[Format | None] | None = None,
    block_size: int = 0,
) -> None: ...


def kv_scatter(
    cache: Any,
    src: Any,
    slots: Tensor,
    scale: Any = None,
    *,
    pad: ScatterPad = "error",
    check_unique: bool = False,
    layout: Layout = "nhd",
    format: Any = None,
    block_size: int = 0,
) -> None:
    """Write rows into a paged cache by slot, in place: :func:`switchyard.kv_scatter`.

    Rows that require a gradient are rejected, because it would end in the cache. Several caches at once in a compiled
    graph need PyTorch 2.5.

    >>> import torch, switchyard.torch
    >>> cache = torch.zeros(4, 1)
    >>> switchyard.torch.kv_scatter(cache, torch.tensor([[1.], [2]]), torch.tensor([3, 0]))
    >>> cache[:, 0]
    tensor([2., 0., 0., 1.])
    """
    numbers = (choose("kv_scatter", "pad", PADS, pad), check_unique, choose("kv_scatter", "layout", LAYOUTS, layout))
    if isinstance(cache, Tensor) and isinstance(src, Tensor):
        if _library.direct((), (cache, src, slots, scale)):
            _scatter_kernel(cache, src, slots, scale, *numbers, format, block_size)
            return
        _library.reject_tracked("kv_scatter", (cache, src, scale))
        _scatter(cache, src, slots, scale, *numbers, format, block_size)
        return
    caches = list(_caches.spread("kv_scatter", "cache", cache, None))
    if len(caches) == 0:
        raise bad(Status.VALUE, "kv_scatter", "cache", f"is an empty {type(cache).__name__}, want one tensor or more")
    rows = list(_caches.beside("kv_scatter", "src", src, cache, len(caches)))
    formats = ["" if word is None else word for word in _caches.spread("kv_scatter", "format", format, len(caches))]
    scales = _caches.spread("kv_scatter", "scale", scale, len(caches))
    scaled = [i for i, values in enumerate(scales) if values is not None]
    given = [scales[i] for i in scaled]
    _library.reject_tracked("kv_scatter", (caches, rows, given))
    _scatter_planes(caches, rows, slots, given, scaled, *numbers, formats, block_size)


def kv_blocks(
    pairs: Tensor,
    cache: Tensor | Sequence[Tensor] | None = None,
    src: Tensor | Sequence[Tensor] | None = None,
    dst: Tensor | Sequence[Tensor] | None = None,
    *,
    block_size: int = 0,
) -> None:
    """Copy whole blocks by pairs, in place or from one cache to another: :func:`switchyard.kv_blocks`.

    Tensors that require a gradient are rejected, because it would end in the cache.

    >>> import torch, switchyard.torch
    >>> cache = torch.arange(6.0)[:, None]
    >>> switchyard.torch.kv_blocks(torch.tensor([[0, 2]]), cache, block_size=2)
    >>> cache[:, 0]
    tensor([0., 1., 2., 3., 0., 1.])
    """
    read = src if cache is None else cache
    count = len(read) if isinstance(read, (tuple, list)) else 1
    caches, sources, targets = (
        [] if tensors is None else list(_caches.beside("kv_blocks", field, tensors, read, count))
        for field, tensors in (("cache", cache), ("src", src), ("dst", dst))
    )
    if _library.direct((), (pairs, *caches, *sources, *targets)):
        _blocks_kernel(pairs, caches, sources, targets, block_size)
        return
    _library.reject_tracked("kv_blocks", (caches, sources, targets))
    _blocks(pairs, caches, sources, targets, block_size)


def _end(cu_lens: Tensor) -> int:
    """The last of the lengths."""
    plain = type(cu_lens) is Tensor and not torch.compiler.is_compiling()
    end = _kv_ragged.read_end(cu_lens) if plain else None
    return end if end is not None else max(int(cu_lens[-1]), 0) if cu_lens.numel() else 0


def _type(name: str, dtype: Any) -> torch.dtype | None:
    """The type of unpacked rows, which may be given by name."""
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    if str(dtype) not in _TYPES:
        raise bad(Status.DTYPE, name, "dtype", f"is {shown(dtype)}, want bfloat16, float16 or float32")
    return _TYPES[str(dtype)]


def _scatter_planes_kernel(
    caches: list[Tensor],
    rows: list[Tensor],
    slots: Tensor,
    given: list[Tensor],
    scaled: list[int],
    pad: int,
    check_unique: bool,
    layout: int,
    formats: list[str],
    block_size: int,
) -> None:
    scales = dict(zip(scaled, given, strict=True))
    planes = [_caches.Plane(cache, formats[i] or None, scales.get(i)) for i, cache in enumerate(caches)]
    numbers = (pad, check_unique, layout, planes[0].format, block_size)

    def run(rows: list[Tensor]) -> None:
        values = (rows[0], slots, planes[0].scale, *numbers)
        _kv_scatter.operator.run(values, (caches[0],), _caches.further(planes, rows))

    try:
        run(rows)
    except Error as error:
        if error.status != Status.STRIDE:
            raise
        run([tensor.contiguous() for tensor in rows])  # rows may be copied, a cache never is


def _scatter_kernel(cache: Tensor, src: Tensor, slots: Tensor, scale: Tensor | None, *numbers: Any) -> None:
    pad, check_unique, layout, format, block_size = numbers
    given, scaled = ([], []) if scale is None else ([scale], [0])
    _scatter_planes_kernel([cache], [src], slots, given, scaled, pad, check_unique, layout, [format or ""], block_size)


def _blocks_kernel(
    pairs: Tensor, caches: list[Tensor], sources: list[Tensor], targets: list[Tensor], block_size: int
) -> None:
    more = caches or sources
    planes = tuple(
        value for i in range(1, len(more)) for value in (more[i], targets[i] if i < len(targets) else None, None, None)
    )
    first = [tensors[0] if tensors else None for tensors in (caches, sources, targets)]
    _kv_blocks.operator.run((first[1], pairs, block_size), (first[0], first[2]), planes)


_scatter = _library.register(
    "kv_scatter",
    "(Tensor(a!) cache, Tensor src, Tensor slots, Tensor(b!)? scale, int pad, bool check_unique, int layout, "
    "str? format, SymInt block_size) -> ()",
    _scatter_kernel,
    _library.write_nothing("kv_scatter"),
)
_scatter_planes = _library.register(
    "kv_scatter_planes",
    "(Tensor(a!)[] cache, Tensor[] src, Tensor slots, Tensor(b!)[] scale, int[] scaled, int pad, bool check_unique, "
    "int layout, str[] format, SymInt block_size) -> ()",
    _scatter_planes_kernel,
    _library.write_nothing("kv_scatter"),
)
_blocks = _library.register(
    "kv_blocks",
    "(Tensor pairs, Tensor(a!)[] cache, Tensor[] src, Tensor(b!)[] dst, SymInt block_size) -> ()",
    _blocks_kernel,
    _library.write_nothing("kv_blocks"),
)
