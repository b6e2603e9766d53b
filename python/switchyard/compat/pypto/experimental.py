"""The two gathers of `pypto.experimental`: rows of a paged cache, by logical token."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

import switchyard

from ._errors import rejection, translated
from ._record import recorded
from ._tensor import Tensor, _padded, as_tensor
from ._types import DataType

__all__ = ["gather_in_l1", "gather_in_ub"]

Pad = Literal["error", "zero", "skip"]
_INDEX_TYPES = (DataType.DT_INT32, DataType.DT_INT64)


@recorded
def gather_in_ub(
    param: Any,
    indices: Any,
    block_table: Any,
    block_size: int,
    axis: int,
    *,
    pad: Pad = "error",
) -> Any:
    """Rows of a paged cache in the order of `indices`: out[j] = param[table[t // S] * S + t % S], t = indices[j].

    Args:
        param: [rows, hidden] the cache, elements of any whole bytes.
        indices: [1, k] int32 or int64, logical tokens; a view's valid_shape is the number in use, the rest gives zeros.
        block_table: [1, n] int32 or int64, physical block of each logical one.
        block_size: S, rows of a block.
        axis: -2.
        pad: an index of -1 gives an error ("error"), a zero row ("zero"), or an unwritten row ("skip"; zero if new).
    """
    name = "gather_in_ub"
    cache, tokens, table = _checked(name, ("param", param), ("indices", indices), ("block_table", block_table))
    if axis != -2:
        raise rejection("BAD_AXIS", f"{name}: axis is {axis}, want -2")
    _check_numbers(name, block_size, pad)
    return _gather(name, param, (cache, cache.shape[1]), tokens, table, block_size, pad)


@recorded
def gather_in_l1(
    src: Any,
    indices: Any,
    block_table: Any,
    block_size: int,
    size: int,
    is_b_matrix: bool,
    is_trans: bool,
    *,
    pad: Pad = "error",
) -> Any:
    """The first `size` columns of the rows of `gather_in_ub`. The two flags affect tiling on the accelerator only."""
    name = "gather_in_l1"
    cache, tokens, table = _checked(name, ("src", src), ("indices", indices), ("block_table", block_table))
    if not 1 <= size <= cache.shape[1]:
        raise rejection("BAD_SHAPE", f"{name}: size is {size}, want 1 to {cache.shape[1]}, the columns of src")
    _check_numbers(name, block_size, pad)
    return _gather(name, src, (cache, size), tokens, table, block_size, pad)


def _checked(name: str, *given: tuple[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """The cache, the indices and the table, after checks of type and shape."""
    cache, tokens, table = (as_tensor(value, f"{name}: {field}") for field, value in given)
    named = list(zip((field for field, _ in given), (cache, tokens, table), strict=True))
    for field, tensor in named[1:]:
        if tensor.dtype not in _INDEX_TYPES:
            raise rejection("BAD_DTYPE", f"{name}: {field} is {tensor.dtype.name}, want DT_INT32 or DT_INT64")
    for field, tensor in named:
        if tensor.dim != 2:
            raise rejection("BAD_RANK", f"{name}: {field} has rank {tensor.dim}, want 2")
    for field, tensor in named[1:]:
        if tensor.shape[0] != 1:
            raise rejection("BAD_SHAPE", f"{name}: {field} has shape {tensor.shape}, want [1, {tensor.shape[1]}]")
    for field, tensor in named:
        if 0 in tensor.shape:
            raise rejection("EMPTY", f"{name}: {field} has shape {tensor.shape}, want no extent of 0")
    return cache, tokens, table


def _check_numbers(name: str, block_size: int, pad: str) -> None:
    if isinstance(block_size, bool) or not isinstance(block_size, (int, np.integer)) or block_size < 1:
        raise rejection("BAD_BLOCK_SIZE", f"{name}: block_size is {block_size}, want an integer of 1 or more")
    if pad not in ("error", "zero", "skip"):
        raise rejection("BAD_OPTION", f"{name}: pad is {pad!r}, want error, zero or skip")


def _gather(
    name: str, given: Any, columns: tuple[Tensor, int], tokens: Tensor, table: Tensor, block_size: int, pad: Pad
) -> Any:
    """Rows of the first columns of the cache; zero past the columns in use."""
    cache, width = columns
    used = cache.in_use()[:, :width]
    live = None if tokens.valid_shape is None else tokens.valid_shape[1]
    counts = None if live is None else np.array([live], np.int64)
    try:
        rows = switchyard.kv_gather(
            used, tokens.array, table.in_use(), counts=counts, block_size=int(block_size), pad=pad
        )
    except switchyard.Error as error:
        raise translated(error, name) from None
    rows = rows[0]  # indices are [1, k], rows [1, k, hidden]
    if not isinstance(given, Tensor):
        return rows
    filled = (int(rows.shape[0]) if live is None else live, int(rows.shape[1]))
    made = Tensor.__new__(Tensor)
    made._set(rows if filled[1] == width else _padded(rows, (int(rows.shape[0]), width)), cache.dtype, cache.name)
    made.valid_shape = None if live is None and cache.valid_shape is None else filled
    return made
