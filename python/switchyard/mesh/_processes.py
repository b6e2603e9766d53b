"""What meshes have in common whose devices are processes, one each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._arrays import Array
from .._sentences import sentence_of
from ..errors import rejection, status_of
from ._mesh import Mesh

CHECKS = ("full", "none")


class ProcessMesh(Mesh[Array, Any]):
    """A mesh with one process for each device."""

    @property
    def device(self) -> int:
        """The device of this process: its rank."""
        return self._handle.device

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            with self._handle.lock:
                self._handle.leave()

    @staticmethod
    def _show(results: Any) -> Any:
        """The results of the one device of this process."""
        planes = tuple(plane[0] for plane in getattr(results, "plane_tokens", ()))
        shown = {name: planes if name == "plane_tokens" else arrays[0] for name, arrays in results._asdict().items()}
        return type(results)(**shown)


def agree(name: str, rank: int, cause: BaseException | None, gather: Callable[[Any], list[Any]]) -> None:
    """Raises in all processes what one of them raises. `gather` returns what each of them calls it with."""
    mine = None if cause is None else (int(status_of(cause)), sentence_of(name, rank, cause))
    found = next((wrong for wrong in gather(mine) if wrong is not None), None)
    if cause is not None and not isinstance(cause, Exception):
        raise cause
    if found is not None:
        raise rejection(*found) from cause
