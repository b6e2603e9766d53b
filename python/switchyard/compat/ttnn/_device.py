"""A mesh of devices inside this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from switchyard.mesh import LocalMesh


class MeshShape:
    """Rows and columns of a mesh: `MeshShape(2, 4)`, `MeshShape((2, 4))`."""

    def __init__(self, *extents: int | Sequence[int]) -> None:
        flat: list[int] = []
        for extent in extents:
            flat += [int(extent)] if isinstance(extent, int) else [int(n) for n in extent]
        if len(flat) != 2 or min(flat) < 1:
            raise ValueError(f"MeshShape: {flat} are no rows and columns, want two numbers of 1 or more")
        self.rows, self.cols = flat

    def mesh_size(self) -> int:
        return self.rows * self.cols

    def __iter__(self) -> Iterator[int]:
        return iter((self.rows, self.cols))

    def __getitem__(self, axis: int) -> int:
        return (self.rows, self.cols)[axis]

    def __len__(self) -> int:
        return 2

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (MeshShape, tuple, list)) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((self.rows, self.cols))

    def __repr__(self) -> str:
        return f"MeshShape([{self.rows}, {self.cols}])"


class MeshDevice:
    """Result of `open_mesh_device`: the shape, and the mesh that runs exchanges."""

    def __init__(self, shape: MeshShape) -> None:
        self.shape = shape
        self._mesh: LocalMesh | None = None

    def get_num_devices(self) -> int:
        return self.shape.mesh_size()

    def get_device_ids(self) -> list[int]:
        return list(range(self.get_num_devices()))

    @property
    def mesh(self) -> LocalMesh:
        if self._mesh is None:
            self._mesh = LocalMesh(self.shape.rows, self.shape.cols)
        return self._mesh

    def enable_program_cache(self) -> None:
        """No effect: nothing is compiled here."""

    def close(self) -> None:
        if self._mesh is not None:
            self._mesh.close()
            self._mesh = None

    def __repr__(self) -> str:
        return f"MeshDevice({self.shape.rows}x{self.shape.cols}, in this process)"


def open_mesh_device(mesh_shape: MeshShape | Sequence[int], *args: Any, **kwargs: Any) -> MeshDevice:
    """A mesh of this shape. Other arguments of ttnn (trace regions, queues, cores) have no effect."""
    return MeshDevice(mesh_shape if isinstance(mesh_shape, MeshShape) else MeshShape(mesh_shape))


def close_mesh_device(mesh_device: MeshDevice) -> None:
    mesh_device.close()


def synchronize_device(device: MeshDevice, *args: Any, **kwargs: Any) -> None:
    """No effect: operators have ended when they return."""
