"""One call on a mesh, from its arguments to its results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from types import SimpleNamespace
from typing import Any, Generic, TypeVar, cast

import numpy as np

from .. import _arrays, _binding
from .._arrays import NAMES, TYPES
from .._binding import Field, core
from .._operator import place
from .._sentences import bad, shown
from ..errors import Status
from ._handle import Handle, Request, Routing
from ._reading import Reader

R = TypeVar("R", bound=tuple[Any, ...])
Shards = tuple[Any, ...]  # an array for each device of this process


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
        self.arrays = {"input": self.input}  # by name
        self.prepare(given)
        table = _binding.table(self.name)
        tensors = [one for f in table if f.kind == "tensor" and not f.written for one in self._read(f, given)]
        numbers = self.reader.numbers(given)
        self.numbers = SimpleNamespace(**numbers)
        self.routing: Routing | None = given["routing"]
        self.values = [*tensors, *numbers.values()]  # in the order of the binding's table
        self.outputs = [field for field in table if field.written]
        self._add_results(given["out"], given["want"])

    # ---- What each operator implements ----

    def prepare(self, given: dict[str, Any]) -> None:
        """Adds to the arguments the fields that have other names."""

    def needed(self, there: Collection[str]) -> Collection[str]:
        """The optional results that are made also where they are not wanted, of those that a call has."""
        raise NotImplementedError

    def shape(self, field: str, d: int, extents: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a result by the library's, of which an extent that is not known is -1."""
        raise NotImplementedError

    def results(self, made: R, phase: str, new: bool) -> R:
        """The results that are complete at a phase."""
        raise NotImplementedError

    # ---- The call ----

    def _read(self, field: Field, given: dict[str, Any]) -> list[Any]:
        """The values of an input, whose arrays are kept by name."""
        name = field.name
        if field.flags & 2048:  # SY_FIELD_SHARED: one array for all devices
            self.arrays[name] = (self.reader.tensor(name, given[name]),)
            return [*self.arrays[name]]
        if name != "input":
            self.arrays[name] = self.reader.shards(name, given[name])
        return self.reader.tensors(name, self.arrays[name])

    def _add_results(self, out: R | None, wanted: Collection[str] | None) -> None:
        """Adds the results to the values."""
        self.new = out is None
        try:
            self.made = self._make(self._names(wanted)) if out is None else self._given(out)
        except Exception:
            self.handle.infer(self.name, self.values, self.xp)  # the operator's own error is the better one
            raise
        for field, arrays in self.fields(self.made):
            self.values += self.reader.tensors(field, arrays, write=True)

    def fields(self, results: R) -> Iterable[tuple[str, Shards]]:
        """Results in the order of the binding's table."""
        for field in self.outputs:
            name, _, number = field.name.rstrip("]").partition("[")
            arrays = getattr(results, name)
            if number:
                arrays = arrays[int(number)] if int(number) < len(arrays) else None
            yield field.name, arrays or self.nothing

    def usual(self, there: Collection[str]) -> Collection[str]:
        """The optional results of a call without `want`."""
        return [name for name in self.optional if name in there]

    def _make(self, wanted: Collection[str] | None) -> R:
        """New arrays for the results, by the library's description of this call."""
        described = self.handle.infer(self.name, self.values, self.xp)
        there = {f.name: each for f, *each in zip(self.outputs, *described, strict=True) if each[0] is not None}
        self.there = there.keys()
        self.wanted = self.usual(self.there) if wanted is None else wanted
        needed = self.needed(self.there)
        made: dict[str, Any] = dict.fromkeys(self.returns._fields, self.nothing)
        planes = []
        for field in self.outputs:
            name = field.name
            if name in self.wanted or (name in there and (name not in self.optional or name in needed)):
                arrays = self._new(field, there.get(name))
                made[name] = arrays
                planes += [arrays] if "[" in name else []
        if "plane_tokens" in made:
            made["plane_tokens"] = tuple(planes)
        return cast("R", self.returns(**{name: made[name] for name in self.returns._fields}))

    def _new(self, field: Field, described: list[Any] | None) -> Shards:
        """New arrays of a result. One that the call has not, and the caller wants, is for the operator to reject."""
        clear = self.many or (field.keeps and self.numbers.fill == "keep")
        new = self.xp.zeros if clear else self.xp.empty
        none = (0,) * len(field.shape.partition(" |")[0].split())
        made = []
        for d, (shape, number) in enumerate(described or [(none, 0)] * self.handle.shards):
            made.append(new(self.shape(field.name, d, shape), self._type(field, number, d)))
        return tuple(made)

    def _type(self, field: Field, number: int, d: int) -> Any:
        """The element type of a result: that of the input it is like, which may be none that the library numbers."""
        like = self.arrays.get(field.like, self.nothing)[d]
        name = "bool" if "bool" in field.types else NAMES[number]
        if like is not None and name in ("", str(like.dtype).removeprefix("torch.")):
            return self.type_like(like)
        found = self.xp.dtype(name or TYPES[field.types[0]])
        return self.xp.dtype("float32") if found is None else found

    @property
    def many(self) -> bool:
        """Whether tables are made for as many tokens as there may be: those of other processes are not known before."""
        may_differ = self.numbers.max_tokens > 0 or getattr(self.numbers, "reuse_routing", False)
        return self.handle.collective and may_differ and len(self.input[0].shape) == 2

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


def sized(arrays: Shards, rows: list[int]) -> Shards:
    """The first rows of each."""
    if not hasattr(arrays[0], "__getitem__"):
        return arrays
    return tuple(array[:n] for array, n in zip(arrays, rows, strict=True))
