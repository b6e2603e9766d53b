"""Tensors that hold an array, views of them, and tile shapes, which have no effect here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ._errors import rejection
from ._record import recorded
from ._types import DataType, TileOpFormat, stored_as, torch_name, type_of


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

    def __class_getitem__(cls, key: Any) -> type[Tensor]:
        """`Tensor[[...], DT_FP16]`, the annotation of a kernel's argument. It is not checked."""
        return cls

    def _set(
        self,
        array: Any,
        dtype: DataType,
        name: str,
        format: TileOpFormat | None = None,
        extents: Sequence[int] | None = None,
    ) -> None:
        """Hold an array; with larger extents it is the part in use of a view that reaches past the end."""
        self._part = array
        self._whole = array if extents is None else None
        self._extents = tuple(int(n) for n in (array.shape if extents is None else extents))
        self.dtype = dtype
        self.name = name
        self.format = TileOpFormat.TILEOP_ND if format is None else format
        self.valid_shape: tuple[int, ...] | None = None

    @property
    def array(self) -> Any:
        """The elements; of a view past the end a copy, with zeros there."""
        if self._whole is None:
            self._whole = _padded(self._part, self._extents)
        return self._whole

    def in_use(self) -> Any:
        """The elements inside valid_shape."""
        if self._whole is None:
            return self._part
        return self._whole if self.valid_shape is None else self._whole[tuple(slice(n) for n in self.valid_shape)]

    @property
    def shape(self) -> list[int]:
        return list(self._extents)

    @property
    def dim(self) -> int:
        return len(self._extents)

    def view(
        self,
        shape: Sequence[int] | None = None,
        offsets: Sequence[int] | None = None,
        *,
        valid_shape: Sequence[int] | None = None,
        dtype: DataType | None = None,
    ) -> Tensor:
        return view(self, shape, offsets, valid_shape=valid_shape, dtype=dtype)

    def move(self, other: Tensor) -> None:
        """Take the elements of a tensor of the same shape and type."""
        if other.shape != self.shape or other.dtype != self.dtype:
            found, want = (f"{one.shape} {one.dtype.name}" for one in (other, self))
            raise rejection("BAD_SHAPE", f"move: other is {found}, want {want}")
        _assign(self, ..., other)

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
        _assign(self, key, value)

    def __repr__(self) -> str:
        valid = "" if self.valid_shape is None else f", valid_shape={list(self.valid_shape)}"
        return f"Tensor({self.shape}, {self.dtype.name}, {self.name!r}{valid})"


def _torch() -> Any:
    import torch

    return torch


def _padded(part: Any, extents: tuple[int, ...]) -> Any:
    whole = np.zeros(extents, part.dtype) if isinstance(part, np.ndarray) else part.new_zeros(extents)
    whole[tuple(slice(int(n)) for n in part.shape)] = part
    return whole


def to_torch_array(tensor: Tensor) -> Any:
    """The elements as a PyTorch tensor of their type, without a copy."""
    if not isinstance(tensor.array, np.ndarray):
        return tensor.array
    return _like(tensor.array, _torch().empty(0, dtype=getattr(_torch(), torch_name(tensor.dtype))))


def _like(value: Any, target: Any) -> Any:
    """An array in the library of another that has elements of the same bytes; bfloat16 is uint16 in NumPy."""
    if isinstance(value, np.ndarray) and not isinstance(target, np.ndarray):
        return _torch().from_numpy(np.ascontiguousarray(value)).view(target.dtype)
    if isinstance(target, np.ndarray) and not isinstance(value, np.ndarray):
        torch = _torch()
        bits = value.contiguous().view(torch.int16) if value.dtype == torch.bfloat16 else value
        return np.asarray(bits.numpy()).view(target.dtype)
    return value


@recorded
def _assign(tensor: Tensor, key: Any, value: Any) -> None:
    target = tensor.array
    if isinstance(value, Tensor):
        value = _like(value.array, target)
    elif not isinstance(target, np.ndarray) and not hasattr(value, "device"):
        value = _torch().as_tensor(value, dtype=target.dtype)
    target[key] = value


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
    size = array.itemsize
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


@recorded
def view(
    input: Any,
    shape: Sequence[int] | None = None,
    offsets: Sequence[int] | None = None,
    *,
    valid_shape: Sequence[int] | None = None,
    dtype: DataType | None = None,
) -> Tensor:
    """The part of a tensor that begins at `offsets` and has this shape, in the same memory.

    `valid_shape` is the part that is in use: of an index row the number of indices, of a cache the rows and columns. A
    view whose part in use is inside the tensor may reach past its end: it is a copy then, with zeros there. With
    `dtype` alone the view has all the bytes as elements of that type.
    """
    tensor = as_tensor(input, "view: input")
    if shape is None or offsets is None:
        if dtype is None:
            raise rejection("BAD_SHAPE", "view: shape is None, want a shape and offsets, or a dtype")
        return _reinterpreted(tensor, DataType(dtype))
    extents, first = [int(n) for n in shape], [int(n) for n in offsets]
    if len(extents) != tensor.dim or len(first) != tensor.dim:
        raise rejection("BAD_RANK", f"view: shape {extents} at offsets {first}, want {tensor.dim} numbers each")
    valid = extents if valid_shape is None else [int(n) for n in valid_shape]
    if len(valid) != tensor.dim or any(v < 0 or v > n for v, n in zip(valid, extents, strict=False)):
        raise rejection("BAD_SHAPE", f"view: valid_shape is {list(valid)}, want at most the shape {extents}")
    ends = [(o, o + v, o + n, whole) for o, v, n, whole in zip(first, valid, extents, tensor.shape, strict=True)]
    if any(o < 0 or n < o or used > whole for o, used, n, whole in ends):
        used = "" if valid_shape is None else f", {valid} of it in use,"
        raise rejection(
            "BAD_SHAPE", f"view: shape {extents} at offsets {first}{used} leaves the tensor's {tensor.shape}"
        )
    inside = all(end <= whole for _, _, end, whole in ends)
    part = tensor.array[tuple(slice(o, end if inside else used) for o, used, end, _ in ends)]
    kind = _marked(part, tensor.dtype if dtype is None else dtype, "view: input")
    made = _wrap(part, kind, tensor.name, tensor.format)
    if not inside:
        made._set(part, kind, tensor.name, tensor.format, extents)
    made.valid_shape = None if valid_shape is None else tuple(valid)
    return made


def _reinterpreted(tensor: Tensor, dtype: DataType) -> Tensor:
    """All bytes of a tensor as elements of another type, along its last dimension."""
    stored = stored_as(dtype)
    if stored is None:
        raise rejection("BAD_DTYPE", f"view: dtype is {dtype.name}, want a type of whole bytes")
    array = tensor.array
    size = array.itemsize
    last = tensor.shape[-1] if tensor.dim else 0
    if not tensor.dim or last * size % stored.itemsize:
        text = f"view: input has {last} elements of {size} bytes, want a multiple of {stored.itemsize} bytes in a row"
        raise rejection("BAD_SHAPE", text)
    if isinstance(array, np.ndarray):
        return _wrap(np.ascontiguousarray(array).view(stored), dtype, tensor.name, tensor.format)
    kind = getattr(_torch(), torch_name(dtype))
    return _wrap(array.contiguous().view(kind), dtype, tensor.name, tensor.format)


@recorded
def assemble(*args: Any, parallel: bool = False) -> None:
    """Write a tensor into another at offsets: `assemble(x, offsets, out)`, or `assemble([(x, offsets), ...], out)`.

    Of a tensor with a valid_shape that part is written. `parallel` has no effect: writes are in order.
    """
    sources = args[0] if isinstance(args[0], (list, tuple)) else [args[:2]]
    out = as_tensor(args[-1], "assemble: out")
    writes = []
    for source, offsets in sources:
        tensor, first = as_tensor(source, "assemble: input"), [int(n) for n in offsets]
        if tensor.dtype != out.dtype:
            raise rejection("BAD_DTYPE", f"assemble: input is {tensor.dtype.name}, want {out.dtype.name} as out")
        if not len(first) == tensor.dim == out.dim:
            raise rejection("BAD_RANK", f"assemble: input of rank {tensor.dim} at offsets {first}, want rank {out.dim}")
        part = tensor.in_use()
        ends = [o + int(n) for o, n in zip(first, part.shape, strict=True)]
        if min(first, default=0) < 0 or any(end > n for end, n in zip(ends, out.shape, strict=True)):
            text = f"assemble: {list(part.shape)} at offsets {first} leaves the {out.shape} of out"
            raise rejection("BAD_SHAPE", text)
        writes.append((tuple(slice(o, end) for o, end in zip(first, ends, strict=True)), _like(part, out.array)))
    for place, part in writes:  # which may be a view of out
        out.array[place] = part if isinstance(part, np.ndarray) else part.clone()


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
