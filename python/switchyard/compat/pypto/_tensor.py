"""Tensors that hold an array, views of them, and tile shapes, which have no effect here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ._errors import rejection
from ._types import DataType, TileOpFormat, stored_as, type_of


class Tensor:
    """PyPTO's tensor. There it is symbolic; here it holds data: zeros, or the array it was made from.

    `t[...]` reads and writes elements; `numpy()` and `array` give the array itself.
    """

    def __init__(
        self,
        shape: Sequence[int] | None = None,
        dtype: DataType | None = None,
        name: str = "",
        format: TileOpFormat | None = None,
        data_ptr: int | None = None,
        device: Any = None,
        ori_shape: Sequence[int] | None = None,
    ) -> None:
        dtype = DataType.DT_FP32 if dtype is None else DataType(dtype)
        stored = stored_as(dtype)
        if stored is None:
            raise rejection("BAD_DTYPE", f"tensor: dtype is {dtype.name}, want a type of whole bytes")
        if data_ptr is not None:
            raise rejection(
                "BAD_OPTION", "tensor: data_ptr is given, want None: from_numpy and from_torch take data over"
            )
        extents = tuple(int(n) for n in (shape if shape is not None else ()))
        if any(n < 0 for n in extents):
            raise rejection("BAD_SHAPE", f"tensor: shape is {list(extents)}, want no negative extent")
        self._set(np.zeros(extents, stored), dtype, name, format)

    def _set(self, array: Any, dtype: DataType, name: str, format: TileOpFormat | None = None) -> None:
        self.array = array
        self.dtype = dtype
        self.name = name
        self.format = TileOpFormat.TILEOP_ND if format is None else format
        self.valid_shape: tuple[int, ...] | None = None

    @property
    def shape(self) -> list[int]:
        return [int(n) for n in self.array.shape]

    @property
    def dim(self) -> int:
        return len(self.array.shape)

    def numpy(self) -> Any:
        """The elements as a NumPy array, without a copy; bfloat16 as its bits."""
        array = self.array
        if isinstance(array, np.ndarray):
            return array
        if self.dtype == DataType.DT_BF16:
            array = array.view(_torch().int16)
            return array.numpy().view(np.uint16)
        return array.numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __getitem__(self, key: Any) -> Any:
        return self.array[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(self.array, np.ndarray) and not hasattr(value, "device"):
            value = _torch().as_tensor(value, dtype=self.array.dtype)
        self.array[key] = value

    def __repr__(self) -> str:
        valid = "" if self.valid_shape is None else f", valid_shape={list(self.valid_shape)}"
        return f"Tensor({self.shape}, {self.dtype.name}, {self.name!r}{valid})"


def _torch() -> Any:
    import torch

    return torch


def _wrap(array: Any, dtype: DataType, name: str = "", format: TileOpFormat | None = None) -> Tensor:
    made = Tensor.__new__(Tensor)
    made._set(array, dtype, name, format)
    return made


def as_tensor(value: Any, what: str) -> Tensor:
    """A tensor, or one around a plain array."""
    if isinstance(value, Tensor):
        return value
    if value is None:
        raise rejection("NULL_POINTER", f"{what} is missing, want a tensor")
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        raise rejection("BAD_DTYPE", f"{what} is a {type(value).__name__}, want a tensor or an array")
    dtype = type_of(value)
    if dtype is None:
        raise rejection("BAD_DTYPE", f"{what} is {value.dtype}, want a type that PyPTO has")
    return _wrap(value, dtype)


def _marked(array: Any, dtype: DataType | None, what: str) -> DataType:
    own = type_of(array)
    if dtype is None:
        if own is None:
            raise rejection("BAD_DTYPE", f"{what} is {array.dtype}, want a type that PyPTO has")
        return own
    stored = stored_as(DataType(dtype))
    size = array.itemsize if isinstance(array, np.ndarray) else array.element_size()
    if stored is None or stored.itemsize != size:
        raise rejection("BAD_DTYPE", f"{what} has elements of {size} bytes, want those of {DataType(dtype).name}")
    return DataType(dtype)


def from_torch(
    tensor: Any,
    name: str = "",
    *,
    dynamic_axis: Sequence[int] | None = None,
    tensor_format: TileOpFormat | None = None,
    dtype: DataType | None = None,
) -> Tensor:
    """A tensor around a contiguous PyTorch tensor, without a copy; `dtype` is the type of its bits."""
    if not hasattr(tensor, "is_contiguous"):
        raise rejection("BAD_DTYPE", f"from_torch: tensor is a {type(tensor).__name__}, want a PyTorch tensor")
    if not tensor.is_contiguous():
        raise rejection("BAD_STRIDE", "from_torch: tensor is not contiguous, want one that is")
    return _wrap(tensor.detach(), _marked(tensor, dtype, "from_torch: tensor"), name, tensor_format)


def from_numpy(
    array: Any, name: str = "", *, tensor_format: TileOpFormat | None = None, dtype: DataType | None = None
) -> Tensor:
    """A tensor around a NumPy array, without a copy; `dtype` is the type of its bits, such as DT_BF16 over uint16."""
    if not isinstance(array, np.ndarray):
        raise rejection("BAD_DTYPE", f"from_numpy: array is a {type(array).__name__}, want a NumPy array")
    return _wrap(array, _marked(array, dtype, "from_numpy: array"), name, tensor_format)


def view(
    input: Any,
    shape: Sequence[int],
    offsets: Sequence[int],
    *,
    valid_shape: Sequence[int] | None = None,
    dtype: DataType | None = None,
) -> Tensor:
    """The part of a tensor that begins at `offsets` and has this shape, in the same memory.

    `valid_shape` is the part that is in use: of an index row the number of indices, of a cache the rows and columns.
    """
    tensor = as_tensor(input, "view: input")
    extents, first = [int(n) for n in shape], [int(n) for n in offsets]
    if len(extents) != tensor.dim or len(first) != tensor.dim:
        raise rejection("BAD_RANK", f"view: shape {extents} at offsets {first}, want {tensor.dim} numbers each")
    if any(o < 0 or n < 0 or o + n > whole for n, o, whole in zip(extents, first, tensor.shape, strict=True)):
        raise rejection("BAD_SHAPE", f"view: shape {extents} at offsets {first} leaves the tensor's {tensor.shape}")
    part = tensor.array[tuple(slice(o, o + n) for n, o in zip(extents, first, strict=True))]
    made = _wrap(
        part, _marked(part, tensor.dtype if dtype is None else dtype, "view: input"), tensor.name, tensor.format
    )
    if valid_shape is not None:
        valid = tuple(int(n) for n in valid_shape)
        if len(valid) != tensor.dim or any(v < 0 or v > n for v, n in zip(valid, extents, strict=False)):
            raise rejection("BAD_SHAPE", f"view: valid_shape is {list(valid)}, want at most the shape {extents}")
        made.valid_shape = valid
    return made


_tile_shapes: tuple[int, ...] = ()


def set_vec_tile_shapes(*shapes: int) -> None:
    """Stores a hint about tiling on the accelerator; results do not depend on it."""
    global _tile_shapes  # noqa: PLW0603 -- a setting of the process, as in PyPTO
    if any(not isinstance(n, int) or n < 0 for n in shapes):
        raise rejection("BAD_OPTION", f"set_vec_tile_shapes: shapes are {list(shapes)}, want integers of 0 or more")
    _tile_shapes = shapes


def get_vec_tile_shapes() -> list[int]:
    """The shapes of the last `set_vec_tile_shapes`."""
    return list(_tile_shapes)
