"""Operators on one device's arrays, and the sum over devices: with NumPy's rules, on the host.

Sums and products of 16-bit types are computed in float32, element after element in order, and rounded once.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from switchyard.errors import Status

from ._errors import SwitchyardError
from ._tensor import MeshTensor, _concat, _converted, _copied, _is_torch
from ._trace import _recorded
from ._words import DataType, MemoryConfig, Topology


def _made(tensor: MeshTensor, shards: Sequence[Any], memory_config: MemoryConfig | None) -> MeshTensor:
    """A tensor like this one, of other arrays."""
    plain = [shard.contiguous() if _is_torch(shard) else np.ascontiguousarray(shard) for shard in shards]
    whole = [part.reshape(shard.shape) for part, shard in zip(plain, shards, strict=True)]
    return tensor._like(whole, memory_config)


def _each(tensor: MeshTensor, change: Callable[[Any], Any], memory_config: MemoryConfig | None) -> MeshTensor:
    return _made(tensor, [_own(change(shard), shard) for shard in tensor.shards], memory_config)


def _own(made: Any, source: Any) -> Any:
    """The array, or a copy where it is a view of its source."""
    if _is_torch(made):
        shares = made.untyped_storage().data_ptr() == source.untyped_storage().data_ptr()
    else:
        shares = np.may_share_memory(made, source)
    return _copied(made) if shares else made


def _name(array: Any) -> str:
    return str(array.dtype).removeprefix("torch.")


def _wide(array: Any) -> Any:
    """16-bit numbers in float32; of PyTorch's integers those that it does not add in int64; others as they are."""
    if _is_torch(array) and _name(array) in ("uint16", "uint32"):
        return array.long()
    if _name(array) not in ("bfloat16", "float16"):
        return array
    return array.float() if _is_torch(array) else array.astype(np.float32)


def _narrow(array: Any, like: Any) -> Any:
    return array.to(like.dtype) if _is_torch(array) else np.asarray(array).astype(like.dtype, copy=False)


def _bad(name: str, field: str, text: str, status: Status = Status.VALUE) -> SwitchyardError:
    return SwitchyardError(status, f"{name}: {field} {text}")


@_recorded
def reshape(input_tensor: MeshTensor, shape: Sequence[int], *, memory_config: MemoryConfig | None = None) -> MeshTensor:
    """The elements of each device in another shape; one extent may be -1."""
    return _each(input_tensor, lambda array: array.reshape(tuple(shape)), memory_config)


@_recorded
def permute(input_tensor: MeshTensor, dims: Sequence[int], *, memory_config: MemoryConfig | None = None) -> MeshTensor:
    return _each(
        input_tensor,
        lambda array: array.permute(*dims) if _is_torch(array) else array.transpose(*dims),
        memory_config,
    )


@_recorded
def repeat(
    input_tensor: MeshTensor, repeat_dims: Sequence[int], *, memory_config: MemoryConfig | None = None
) -> MeshTensor:
    """Copies along each dimension, as many as its number."""
    times = tuple(repeat_dims)
    if len(times) != len(input_tensor.shape):
        raise _bad(
            "repeat", "repeat_dims", f"has {len(times)} numbers, want {len(input_tensor.shape)}, one a dimension"
        )
    return _each(
        input_tensor,
        lambda array: array.repeat(*times) if _is_torch(array) else np.tile(array, times),
        memory_config,
    )


@_recorded
def slice(
    input_tensor: MeshTensor,
    starts: Sequence[int],
    ends: Sequence[int],
    steps: Sequence[int] | None = None,
    *,
    memory_config: MemoryConfig | None = None,
) -> MeshTensor:
    """Elements from `starts` up to `ends` of every dimension."""
    shape = input_tensor.shape
    every = [1] * len(shape) if steps is None else list(steps)
    bounds = list(zip(starts, ends, every, shape, strict=False))
    if not len(starts) == len(ends) == len(every) == len(shape):
        raise _bad("slice", "starts", f"is {list(starts)}, want {len(shape)} numbers in starts, ends and steps")
    if not all(0 <= start <= end <= extent and step > 0 for start, end, step, extent in bounds):
        raise _bad("slice", "ends", f"is {list(ends)} from {list(starts)} by {every}, want inside of {list(shape)}")
    part = tuple(builtins.slice(start, end, step) for start, end, step, _ in bounds)
    return _each(input_tensor, lambda array: array[part], memory_config)


@_recorded
def concat(tensors: Sequence[MeshTensor], dim: int = 0, *, memory_config: MemoryConfig | None = None) -> MeshTensor:
    """Each device's arrays one after the other."""
    parts = zip(*(tensor.shards for tensor in tensors), strict=True)
    return _made(tensors[0], [_concat(part, dim) for part in parts], memory_config)


@_recorded
def typecast(input_tensor: MeshTensor, dtype: DataType, *, memory_config: MemoryConfig | None = None) -> MeshTensor:
    """Elements in another type."""
    return _each(input_tensor, lambda array: _converted(array, dtype, "typecast"), memory_config)


@_recorded
def mul(
    input_tensor_a: MeshTensor, input_tensor_b: MeshTensor | float, *, memory_config: MemoryConfig | None = None
) -> MeshTensor:
    """Products of elements, or with a number; extents of 1 are repeated."""
    if not isinstance(input_tensor_b, MeshTensor):
        factor = input_tensor_b
        return _each(input_tensor_a, lambda array: _narrow(_wide(array) * _number(factor, array), array), memory_config)
    if input_tensor_b.dtype != input_tensor_a.dtype:
        found = f"is {input_tensor_b.dtype.value} beside {input_tensor_a.dtype.value}, want the same: typecast converts"
        raise _bad("mul", "input_tensor_b", found, Status.DTYPE)
    pairs = zip(input_tensor_a.shards, input_tensor_b.shards, strict=True)
    return _made(input_tensor_a, [_narrow(_wide(a) * _wide(b), a) for a, b in pairs], memory_config)


def _number(factor: float, array: Any) -> Any:
    if "float" in _name(array):
        return float(factor) if _is_torch(array) else np.float32(factor)
    if isinstance(factor, int):
        return factor if _is_torch(array) else np.array(factor, array.dtype)
    raise _bad("mul", "input_tensor_b", f"is {factor} beside {_name(array)}, want an integer", Status.DTYPE)


@_recorded
def sum(
    input_tensor: MeshTensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    memory_config: MemoryConfig | None = None,
) -> MeshTensor:
    """Sums over one dimension, several, or all."""
    rank = len(input_tensor.shape)
    given = range(rank) if dim is None else (dim,) if isinstance(dim, int) else dim
    axes = [axis + rank if axis < 0 else axis for axis in given]
    if not all(0 <= axis < rank for axis in axes):
        raise _bad("sum", "dim", f"is {dim}, want dimensions of {list(input_tensor.shape)}")
    rest = [axis for axis in range(rank) if axis not in axes]
    extents = [input_tensor.shape[axis] for axis in rest]
    kept = [1 if axis in axes else input_tensor.shape[axis] for axis in range(rank)]
    count = math.prod(input_tensor.shape[axis] for axis in axes)

    def summed(array: Any) -> Any:
        order = (*axes, *rest)
        moved = array.permute(*order) if _is_torch(array) else array.transpose(*order)
        parts = moved.reshape(count, *extents)
        total = _wide(parts[0]) if count else parts.sum(0)
        for part in parts[1:]:
            total = total + _wide(part)
        return _narrow(total.reshape(tuple(kept if keepdim else extents)), array)

    return _each(input_tensor, summed, memory_config)


@_recorded
def all_reduce(
    input_tensor: MeshTensor,
    cluster_axis: int | None = None,
    *,
    num_links: int | None = None,
    topology: Topology | None = None,
    memory_config: MemoryConfig | None = None,
) -> MeshTensor:
    """The sum over the devices of each row (axis 1), of each column (axis 0), or of all, in their order."""
    if cluster_axis not in (None, 0, 1):
        raise _bad("all_reduce", "cluster_axis", f"is {cluster_axis}, want None, 0 or 1")
    _, cols = input_tensor.mesh_shape
    totals: dict[int, Any] = {}
    of_device = [
        {None: 0, 0: device % cols, 1: device // cols}[cluster_axis] for device in range(len(input_tensor.shards))
    ]
    for group, shard in zip(of_device, input_tensor.shards, strict=True):
        totals[group] = totals[group] + _wide(shard) if group in totals else _wide(shard)
    shards = [_copied(_narrow(totals[group], input_tensor.shards[0])) for group in of_device]
    return _made(input_tensor, shards, memory_config)
