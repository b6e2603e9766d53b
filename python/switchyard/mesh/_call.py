"""One call on a mesh, from its arguments to its results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

import numpy as np

from .. import _arrays
from .._binding import core
from .._operator import place
from .._sentences import bad, shown
from ..errors import Status
from ._handle import Axis, Handle, Request, Routing
from ._reading import Reader

R = TypeVar("R", bound=tuple[Any, ...])
Shards = tuple[Any, ...]  # an array for each device of this process

PADDED, PACKED, EXPERT = "padded", "packed", "expert"
KEEP = "keep"


class Call(Generic[R]):
    """What the two operators have in common. Results are built as tuples with an array for each device."""

    name: str
    returns: Any  # the class of its results
    optional: tuple[str, ...]  # results that may be left out

    def __init__(self, handle: Handle, given: dict[str, Any], show: Callable[[R], Any]) -> None:
        """Reads a call of these arguments, by name. `show` converts tuples to what the caller gets."""
        self.handle, self.show = handle, show
        self.reader = Reader(handle, self.name)
        self.input = self.reader.shards("input", given["input"])
        self.xp: Any = place((self.input[0],))
        self.reader.xp = self.xp
        self.take(given)
        numbers = self.reader.numbers(given)
        self.numbers = SimpleNamespace(**numbers)
        self.routing: Routing | None = given["routing"]
        self.values = [*self.tensors(), *numbers.values()]  # in the order of the binding's table
        self._add_results(given["out"], given["want"])

    # ---- What each operator implements ---------------------------------------------------------------------------

    def take(self, given: dict[str, Any]) -> None:
        """Takes its own inputs from the arguments, to which it adds numbers that are none."""
        raise NotImplementedError

    def tensors(self) -> list[Any]:
        """The inputs in the order of the binding's table."""
        raise NotImplementedError

    def make(self, wanted: Collection[str] | None) -> R:
        """New arrays for the results. May raise anything on invalid inputs."""
        raise NotImplementedError

    def fields(self, results: R) -> Iterable[tuple[str, Shards]]:
        """Results in the order of the binding's table."""
        raise NotImplementedError

    def results(self, made: R, phase: str, new: bool) -> R:
        """The results that are complete at a phase."""
        raise NotImplementedError

    # ---- The call ------------------------------------------------------------------------------------------------

    def _add_results(self, out: R | None, wanted: Collection[str] | None) -> None:
        """Adds the results to the values."""
        self.new = out is None
        try:
            self.made = self.make(self._names(wanted)) if out is None else self._given(out)
        except Exception:
            self.handle.query(self.name, self.values, self.xp)  # the operator's own error is the better one
            raise
        for field, arrays in self.fields(self.made):
            self.values += self.reader.tensors(field, arrays, write=True)

    def start(self, blocking: bool) -> Request[Any]:
        """Begins the exchange, and ends it if it is blocking."""
        flight = self.handle.start(self.name, self.values, self.reader.keep, blocking, self.xp)
        self.flight = flight
        return Request(self.handle, flight, self._shown_at)

    def _shown_at(self, phase: str) -> Any:
        if not self.new and phase == "done":
            _arrays.tell_written([array for _, arrays in self.fields(self.made) for array in arrays])
        if getattr(self.xp, "waits", False):  # the library has no stream in which results could be used
            self.handle.sync()
        return self.show(self.results(self.made, phase, self.new))

    def _given(self, out: Any) -> R:
        """The arrays of `out`, a tuple of them for each field."""
        if not isinstance(out, self.returns):
            raise bad(Status.DTYPE, self.name, "out", f"is {shown(out)}, want an {self.returns.__name__}")
        fields = {}
        for name, value in out._asdict().items():
            planes = enumerate(value) if name == "plane_tokens" else ()
            fields[name] = tuple(self.reader.shards(f"{name}[{p}]", plane) for p, plane in planes)
            if name != "plane_tokens":
                fields[name] = self.reader.shards(name, value)
        made: R = self.returns(**fields)
        return made

    def _names(self, wanted: Collection[str] | None) -> Collection[str] | None:
        if wanted is None:
            return None
        try:
            names = tuple(wanted)
        except TypeError:
            raise bad(Status.DTYPE, self.name, "want", f"is {shown(wanted)}, want names of results") from None
        unknown = [name for name in names if not isinstance(name, str) or name not in self.optional]
        if unknown:
            known = ", ".join(self.optional)
            raise bad(Status.VALUE, self.name, "want", f"has {shown(unknown[0])}, which is none of {known}")
        return names

    def type_like(self, array: Any) -> Any:
        """The element type of an array, which may be of another library, in that of the results."""
        return array.dtype if place((array,)) is self.xp else _arrays.type_like(self.xp, array)

    def finish(self, arrays: Shards) -> Shards:
        """Arrays handed over to their library."""
        return tuple(self.xp.finish(array) for array in arrays) if self.xp.takes_over else arrays

    def numbers_of(self, array: Any) -> Any:
        """The contents of an array as one of NumPy; waits for those on a device."""
        if self.xp.device is None or _arrays.devices.device_of(array) is None:
            return np.from_dlpack(array)
        host = np.empty(tuple(array.shape), str(array.dtype).removeprefix("torch."))
        core.copy(host, self.xp.view(array), self.xp.stream())
        return host

    @property
    def nothing(self) -> Shards:
        """A result that is left out."""
        return (None,) * self.handle.shards


def group_size(handle: Handle, axis: Axis) -> int:
    return {"none": handle.rows * handle.cols, 0: handle.rows, 1: handle.cols}[axis]


def group_of(handle: Handle, axis: Axis, device: int) -> range:
    """The devices that exchange with a device."""
    row, col = divmod(device, handle.cols)
    n = handle.rows * handle.cols
    row_of = range(row * handle.cols, (row + 1) * handle.cols)
    return {"none": range(n), 0: range(col, n, handle.cols), 1: row_of}[axis]


def sized(arrays: Shards, rows: list[int]) -> Shards:
    """The first rows of each."""
    if not hasattr(arrays[0], "__getitem__"):
        return arrays
    return tuple(array[:n] for array, n in zip(arrays, rows, strict=True))
