"""Tensors of many devices: an array for each; mappers that split a tensor and composers that join it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from switchyard.errors import Status

from ._device import MeshDevice, MeshShape
from ._errors import SwitchyardError
from ._words import DRAM_MEMORY_CONFIG, REJECTED, DataType, Layout, MemoryConfig, bfloat16


def _is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _copied(array: Any) -> Any:
    return array.detach().clone() if _is_torch(array) else np.array(array)


class MeshTensor:
    """One array per device of a mesh, in the order of the devices. `shape` is that of a device, as in ttnn."""

    def __init__(
        self,
        shards: Sequence[Any],
        mesh_shape: MeshShape | Sequence[int],
        *,
        device: MeshDevice | None = None,
        layout: Layout = Layout.ROW_MAJOR,
        memory_config: MemoryConfig = DRAM_MEMORY_CONFIG,
    ) -> None:
        self.mesh_shape = mesh_shape if isinstance(mesh_shape, MeshShape) else MeshShape(mesh_shape)
        self.shards = list(shards)
        if len(self.shards) != self.mesh_shape.mesh_size():
            raise ValueError(
                f"MeshTensor: {len(self.shards)} arrays, want {self.mesh_shape.mesh_size()}: one per device"
            )
        self._device = device
        self.layout = layout
        self._memory_config = memory_config

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(n) for n in self.shards[0].shape)

    @property
    def dtype(self) -> DataType:
        name = str(self.shards[0].dtype).removeprefix("torch.")
        return DataType({"int16": "uint16"}.get(name, name))

    def _like(
        self, shards: Sequence[Any], memory_config: MemoryConfig | None = None, layout: Layout | None = None
    ) -> MeshTensor:
        """A tensor of other arrays on the same mesh."""
        place = self._memory_config if memory_config is None else memory_config
        kind = self.layout if layout is None else layout
        return MeshTensor(shards, self.mesh_shape, device=self.device(), layout=kind, memory_config=place)

    def get_layout(self) -> Layout:
        return self.layout

    def memory_config(self) -> MemoryConfig:
        return self._memory_config

    def device(self) -> MeshDevice:
        if self._device is None:
            self._device = MeshDevice(self.mesh_shape)
        return self._device

    def __repr__(self) -> str:
        return f"MeshTensor({len(self.shards)} x {list(self.shape)} {self.shards[0].dtype}, {self.mesh_shape})"


Tensor = MeshTensor


class _Mapper(Protocol):
    """Splits a tensor into one part per device of a mesh."""

    def __call__(self, array: Any) -> list[Any]: ...


def _cut(array: Any, dim: int, parts: int) -> list[Any]:
    extent = array.shape[dim]
    if extent % parts:
        raise ValueError(
            f"dimension {dim} has {extent} elements, want a multiple of {parts}, the devices it is cut for"
        )
    size = extent // parts
    whole = [slice(None)] * len(array.shape)
    cuts = []
    for i in range(parts):
        whole[dim] = slice(i * size, (i + 1) * size)
        cuts.append(array[tuple(whole)])
    return cuts


class ShardTensorToMesh:
    """One part of dimension `dim` for each device, row by row of the mesh."""

    def __init__(self, mesh_device: MeshDevice, dim: int) -> None:
        self.mesh_device, self.dim = mesh_device, dim

    def __call__(self, array: Any) -> list[Any]:
        return _cut(array, self.dim, self.mesh_device.get_num_devices())


class ShardTensor2dMesh:
    """Dimension dims[0] is split over the rows of the mesh, dims[1] over its columns; None: no split."""

    def __init__(self, mesh_device: MeshDevice, mesh_shape: Sequence[int], dims: tuple[int | None, int | None]) -> None:
        self.mesh_device, self.mesh_shape, self.dims = mesh_device, MeshShape(tuple(mesh_shape)), dims
        if len(dims) != 2:
            raise ValueError(f"ShardTensor2dMesh: dims is {dims}, want two: for rows and columns")
        if self.mesh_shape != mesh_device.shape:
            raise ValueError(f"ShardTensor2dMesh: mesh_shape is {self.mesh_shape}, want the mesh's {mesh_device.shape}")

    def __call__(self, array: Any) -> list[Any]:
        rows, cols = self.mesh_shape
        over_rows, over_cols = self.dims
        bands = [array] * rows if over_rows is None else _cut(array, over_rows, rows)
        return [
            part for band in bands for part in ([band] * cols if over_cols is None else _cut(band, over_cols, cols))
        ]


class ReplicateTensorToMesh:
    """The whole tensor for every device."""

    def __init__(self, mesh_device: MeshDevice) -> None:
        self.mesh_device = mesh_device

    def __call__(self, array: Any) -> list[Any]:
        return [array] * self.mesh_device.get_num_devices()


def _concat(arrays: Sequence[Any], dim: int) -> Any:
    if _is_torch(arrays[0]):
        return sys.modules["torch"].cat(list(arrays), dim=dim)
    return np.concatenate(list(arrays), axis=dim)


class ConcatMeshToTensor:
    """The devices' arrays one after the other, along dimension `dim`."""

    def __init__(self, mesh_device: MeshDevice, dim: int) -> None:
        self.mesh_device, self.dim = mesh_device, dim

    def compose(self, tensor: MeshTensor) -> Any:
        return _concat(tensor.shards, self.dim)


class ConcatMesh2dToTensor:
    """Joins the arrays of each column of the mesh along dims[0], then the results along dims[1]."""

    def __init__(self, mesh_device: MeshDevice, mesh_shape: Sequence[int], dims: tuple[int, int]) -> None:
        self.mesh_device, self.mesh_shape, self.dims = mesh_device, MeshShape(tuple(mesh_shape)), dims

    def compose(self, tensor: MeshTensor) -> Any:
        if self.mesh_shape != tensor.mesh_shape:
            text = f"mesh_shape is {self.mesh_shape}, want the {tensor.mesh_shape} of the tensor"
            raise ValueError(f"ConcatMesh2dToTensor: {text}")
        rows, cols = self.mesh_shape
        bands = [_concat(tensor.shards[row * cols : (row + 1) * cols], self.dims[1]) for row in range(rows)]
        return _concat(bands, self.dims[0])


def _converted(array: Any, dtype: DataType, name: str = "from_torch") -> Any:
    """The array in ttnn's type; signed 16-bit integers hold the bits of unsigned ones."""
    if dtype in REJECTED:
        raise SwitchyardError(Status.UNSUPPORTED, f"{name}: dtype is {dtype.value}, want {REJECTED[dtype]}")
    if _is_torch(array):
        torch = sys.modules["torch"]
        wanted = getattr(torch, dtype.value)
        return array.view(torch.uint16) if (array.dtype, wanted) == (torch.int16, torch.uint16) else array.to(wanted)
    if dtype == bfloat16:
        import ml_dtypes

        return array.astype(ml_dtypes.bfloat16, copy=False)
    if array.dtype == np.int16 and dtype == DataType.UINT16:
        return array.view(np.uint16)
    return array.astype(dtype.value, copy=False)


def from_torch(
    tensor: Any,
    dtype: DataType | None = None,
    *,
    layout: Layout | None = None,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
    mesh_mapper: _Mapper | None = None,
    tile: Any = None,
    pad_value: float = 0.0,
    cq_id: int | None = None,
) -> MeshTensor:
    """A tensor on a mesh from a PyTorch tensor or a NumPy array: split by the mapper, or whole for every device.

    It is a copy. Tiles, their padding and queues have no effect.
    """
    mesh_device = device if device is not None else getattr(mesh_mapper, "mesh_device", None)
    if mesh_device is None:
        mesh_device = MeshDevice(MeshShape(1, 1))
    array = _copied(tensor)
    array = array if dtype is None else _converted(array, dtype)
    parts = (mesh_mapper if mesh_mapper is not None else ReplicateTensorToMesh(mesh_device))(array)
    shards = [part.contiguous() if _is_torch(part) else np.ascontiguousarray(part) for part in parts]
    place = memory_config if memory_config is not None else DRAM_MEMORY_CONFIG
    kind = layout if layout is not None else Layout.ROW_MAJOR
    return MeshTensor(shards, mesh_device.shape, device=mesh_device, layout=kind, memory_config=place)


def to_torch(
    tensor: MeshTensor,
    dtype: Any = None,
    *,
    mesh_composer: ConcatMeshToTensor | ConcatMesh2dToTensor | None = None,
    device: MeshDevice | None = None,
    cq_id: int | None = None,
) -> Any:
    """The arrays of all devices, joined by the composer; a single device needs none. A copy."""
    if mesh_composer is None and len(tensor.shards) > 1:
        raise ValueError(f"to_torch: {len(tensor.shards)} devices have an array each, want a mesh_composer")
    whole = _copied(tensor.shards[0]) if mesh_composer is None else mesh_composer.compose(tensor)
    return whole if dtype is None else whole.to(dtype)


def get_device_tensors(tensor: MeshTensor) -> list[MeshTensor]:
    """A tensor for each device, in the same memory."""
    ids = tensor.device().get_device_ids()
    return [
        MeshTensor(
            [shard],
            (1, 1),
            device=MeshDevice(MeshShape(1, 1), [number]),
            layout=tensor.layout,
            memory_config=tensor.memory_config(),
        )
        for shard, number in zip(tensor.shards, ids, strict=True)
    ]


def aggregate_as_tensor(tensors: Sequence[Any], *, device: MeshDevice) -> MeshTensor:
    """The devices' tensors, or arrays, as one tensor again, in the same memory."""
    shards = [part for tensor in tensors for part in (tensor.shards if isinstance(tensor, MeshTensor) else [tensor])]
    return MeshTensor(shards, device.shape, device=device)


def to_layout(tensor: MeshTensor, layout: Layout, *args: Any, **kwargs: Any) -> MeshTensor:
    """The same tensor with another layout attribute."""
    return tensor._like(tensor.shards, layout=layout)


def deallocate(tensor: MeshTensor, force: bool = True) -> None:
    """No effect: Python frees unreferenced arrays."""
