"""A mesh of devices inside this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from switchyard.mesh import LocalMesh

from ._words import CoreCoord


class MeshShape(tuple[int, ...]):
    """Rows and columns of a mesh: `MeshShape(2, 4)`, `MeshShape((2, 4))`."""

    def __new__(cls, *extents: int | Sequence[int]) -> MeshShape:
        flat: list[int] = []
        for extent in extents:
            flat += [int(extent)] if isinstance(extent, int) else [int(n) for n in extent]
        if len(flat) != 2 or min(flat) < 1:
            raise ValueError(f"MeshShape: {flat} are no rows and columns, want two numbers of 1 or more")
        return super().__new__(cls, flat)

    @property
    def rows(self) -> int:
        return self[0]

    @property
    def cols(self) -> int:
        return self[1]

    def mesh_size(self) -> int:
        return self.rows * self.cols

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (tuple, list)) and tuple(self) == tuple(other)

    __hash__ = tuple.__hash__

    def __repr__(self) -> str:
        return f"MeshShape([{self.rows}, {self.cols}])"


class MeshDevice:
    """Result of `open_mesh_device`: the shape, and the mesh that runs exchanges."""

    def __init__(self, shape: MeshShape, device_ids: Sequence[int] | None = None) -> None:
        self.shape = shape
        self._mesh: LocalMesh | None = None
        self._ids = list(range(shape.mesh_size()) if device_ids is None else device_ids)
        self.traces: dict[int, list[Callable[[], None]] | None] = {}
        self.capturing: int | None = None
        self._programs: set[object] = set()

    def get_num_devices(self) -> int:
        return self.shape.mesh_size()

    def get_device_ids(self) -> list[int]:
        return list(self._ids)

    def create_submesh(
        self, submesh_shape: MeshShape | Sequence[int], offset: Sequence[int] | None = None
    ) -> MeshDevice:
        """A mesh of some of these devices, beginning with the one at `offset`. Its tensors are its own."""
        shape = submesh_shape if isinstance(submesh_shape, MeshShape) else MeshShape(submesh_shape)
        row, col = (0, 0) if offset is None else tuple(offset)
        if min(row, col) < 0 or row + shape.rows > self.shape.rows or col + shape.cols > self.shape.cols:
            raise ValueError(f"create_submesh: {shape} at {[row, col]}, want a part of {self.shape}")
        ids = [
            self._ids[r * self.shape.cols + c]
            for r in range(row, row + shape.rows)
            for c in range(col, col + shape.cols)
        ]
        return MeshDevice(shape, ids)

    def create_submeshes(self, submesh_shape: MeshShape | Sequence[int]) -> list[MeshDevice]:
        """Meshes of this shape that have all devices, row by row."""
        shape = submesh_shape if isinstance(submesh_shape, MeshShape) else MeshShape(submesh_shape)
        if self.shape.rows % shape.rows or self.shape.cols % shape.cols:
            raise ValueError(f"create_submeshes: {shape} does not divide {self.shape}")
        rows, cols = range(0, self.shape.rows, shape.rows), range(0, self.shape.cols, shape.cols)
        return [self.create_submesh(shape, (row, col)) for row in rows for col in cols]

    def ran(self, program: object, again: Callable[[], None] | None = None) -> None:
        """A program of an operator has run here; `again` runs it into the same results."""
        self._programs.add(program)
        calls = None if self.capturing is None else self.traces[self.capturing]
        if calls is not None and again is not None:
            calls.append(again)

    def num_program_cache_entries(self) -> int:
        """How many programs ttnn would have compiled: one for each operator and shapes. Nothing is compiled here."""
        return len(self._programs)

    def disable_and_clear_program_cache(self) -> None:
        self._programs.clear()

    def compute_with_storage_grid_size(self) -> CoreCoord:
        """A grid for programs that compute core ranges from it. There are no cores."""
        return CoreCoord(8, 8)

    def create_sub_device_manager(self, *args: Any, **kwargs: Any) -> int:
        """No effect, and so for the next five: there are no cores to divide."""
        return 0

    def load_sub_device_manager(self, *args: Any, **kwargs: Any) -> None: ...

    def clear_loaded_sub_device_manager(self, *args: Any, **kwargs: Any) -> None: ...

    def remove_sub_device_manager(self, *args: Any, **kwargs: Any) -> None: ...

    def set_sub_device_stall_group(self, *args: Any, **kwargs: Any) -> None: ...

    def reset_sub_device_stall_group(self, *args: Any, **kwargs: Any) -> None: ...

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


Device = MeshDevice


def open_mesh_device(mesh_shape: MeshShape | Sequence[int], *args: Any, **kwargs: Any) -> MeshDevice:
    """A mesh of this shape. Other arguments of ttnn (trace regions, queues, cores) have no effect."""
    return MeshDevice(mesh_shape if isinstance(mesh_shape, MeshShape) else MeshShape(mesh_shape))


def close_mesh_device(mesh_device: MeshDevice) -> None:
    mesh_device.close()


def synchronize_device(device: MeshDevice, *args: Any, **kwargs: Any) -> None:
    """No effect: operators have ended when they return."""
