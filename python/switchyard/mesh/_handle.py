"""The parts of a mesh: the binding's mesh, its open requests, its routings. One call at a time."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast

from .._binding import core
from .._sentences import device_named, sentence_of
from ..errors import Error, Fault, Status, rejection, status_of

R = TypeVar("R")
Phase = Literal["routed", "done"]
Axis = int | str  # cluster_axis as the library has it: "none", 0 or 1
PHASES = {"routed": 0, "done": 1}

# Arrays of exchanges that failed or were abandoned: another process may still write to them.
_lost: list[object] = []


class Rejection(NamedTuple):
    """An error that may be raised several times."""

    status: int
    sentence: str
    fault: Fault

    def error(self) -> Error:
        return rejection(self.status, self.sentence, self.fault)


class Flight:
    """An open exchange, and everything it needs until it is done."""

    __slots__ = ("ended", "keep", "orphan", "pointer", "rejection", "tokens")

    def __init__(self, pointer: Any, keep: object) -> None:
        self.pointer = pointer
        self.keep = keep
        self.ended = pointer is None
        self.orphan = False  # its Request object was deleted
        self.rejection: Rejection | None = None
        self.tokens = -1  # of the group of this process's first device, once its choices are known


class Handle:
    """The binding's mesh. It is freed once, here; everything that uses it refers to this object."""

    def __init__(self, numbers: list[int], collective: bool, opening: Callable[[Any], int]) -> None:
        self.pointer: Any = None
        self.rows, self.cols, max_inflight = numbers[:3]
        self.max_inflight = max_inflight or 2
        self.collective = collective
        self.shards = 1 if collective else min(max(self.rows * self.cols, 1), 65536)
        self.lock = threading.Lock()
        self.flights: list[Flight] = []
        self.windows = False  # arrays exist that must outlive the mesh
        self.dropped: list[Any] = []  # routings to free at the next call
        self._free = core.mesh_free  # modules may be unloaded when this object is deleted
        pointer = core.mesh_new(self.shards)
        status = opening(pointer)
        if status:
            sentence = core.mesh_tell(pointer, "opening")
            core.mesh_free(pointer)
            raise rejection(status, sentence)
        self.pointer = pointer
        self.device: int = core.mesh_tell(pointer, "device")  # the first device of this process

    def use(self, name: str) -> Any:
        """The mesh, for a call under the lock."""
        if self.pointer is None:
            raise rejection(Status.STATE, f"{name}: the mesh is closed, want one that is open")
        while self.dropped:
            core.routing_free(self.pointer, self.dropped.pop())
        return self.pointer

    def tell(self, what: str) -> Any:
        with self.lock:
            return core.mesh_tell(self.use("mesh"), what)

    def infer(self, name: str, values: list[Any], xp: Any) -> Any:
        """Validates inputs and numbers of a call. Returns, for each device of this process, (shape, number of the type)
        of each result, None for those that the call has not. `xp`: of its arrays.
        """
        with self.lock:
            made = core.mesh_run(self.use(name), "infer", name, values, stream_of(xp))
            if isinstance(made, int):
                self._check(name, made)
            return made

    def sync(self) -> None:
        """Waits for the work of calls on a device."""
        with self.lock:
            self._check("sync", core.mesh_sync(self.use("sync")))

    def _check(self, name: str, status: int) -> None:
        if status < 0:  # Reader checks kinds, so this is rare
            raise rejection(Status.DTYPE, f"{name}: value {-1 - status} is of no kind the operator takes")
        if status:
            raise self.rejection(status).error()

    def rejection(self, status: int) -> Rejection:
        """The error of the last call; under the lock."""
        sentence, *fault = core.mesh_last(self.pointer)
        return Rejection(status, device_named(sentence), Fault(*fault))

    def start(self, name: str, values: list[Any], keep: object, blocking: bool, xp: Any) -> Flight:
        """Begins an exchange. With `blocking` it also ends here, before another thread's call begins. If `max_inflight`
        requests are open, it waits for the oldest first.

        A start that fails has failed in all processes: only a local mesh raises here.
        """
        with self.lock:
            pointer = self.use(name)
            for flight in [f for f in self.flights if f.orphan]:
                if core.request_run(pointer, flight.pointer, "test", 1) >= 0:
                    self._end(flight)
            if len(self.flights) >= self.max_inflight:
                for flight in [f for f in self.flights if f.orphan or blocking][:1]:
                    self._end(flight)
            status = core.mesh_run(pointer, "start", name, values, stream_of(xp))
            if status > 0 and self.collective:
                return self._over(status)
            self._check(name, status)
            flight = Flight(core.mesh_tell(pointer, "request"), keep)
            self.flights.append(flight)
            if blocking:
                self._end(flight)
            return flight

    def _over(self, status: int) -> Flight:
        """An exchange that ended with the last call; under the lock."""
        flight = Flight(None, None)
        flight.rejection = self.rejection(status) if status else None
        return flight

    def reject(self, name: str, error: BaseException) -> Request[Any]:
        """Rejects a call that the other processes make and this one cannot: all of them raise the same error."""
        if self.pointer is None:
            raise error
        with self.lock:
            status = core.mesh_reject(self.use(name), status_of(error), sentence_of(name, self.device, error))
            return Request(self, self._over(status), None, error)

    def advance(self, flight: Flight, phase: str, wait: bool) -> bool:
        """Advances a flight; True when it has reached the phase. Raises the error if it failed."""
        try:
            number = PHASES[phase]
        except (KeyError, TypeError):
            raise rejection(Status.VALUE, f"request: phase is {phase!r}, want routed or done") from None
        with self.lock:
            if not flight.ended:
                pointer = self.use("request")
                status = core.request_run(pointer, flight.pointer, "wait" if wait else "test", number)
                if status < 0:
                    return False
                if status or number:
                    self._end(flight)
                elif wait:
                    flight.tokens = core.mesh_tell(pointer, "tokens")
        if flight.rejection is not None:
            raise flight.rejection.error()
        return True

    def _end(self, flight: Flight) -> None:
        """Waits for a flight and frees it; under the lock."""
        status = core.request_run(self.pointer, flight.pointer, "free", 1)
        flight.ended = True
        flight.tokens = core.mesh_tell(self.pointer, "tokens")
        self.flights.remove(flight)
        if status:
            flight.rejection = self.rejection(status)
        if self.collective and status in (Status.COMM, Status.TIMEOUT):
            _lost.append(flight.keep)
        flight.keep = None

    def close(self) -> None:
        """Waits for open exchanges and frees everything. Collective over MPI."""
        with self.lock:
            if self.pointer is None:
                return
            for flight in list(self.flights):
                self._end(flight)
            pointer, self.pointer = self.pointer, None
            if not self.windows:
                self._free(pointer)

    def alloc(self, size: int) -> tuple[int, Flight]:
        """The address of memory that the processes of this machine share. Collective."""
        with self.lock:
            address = core.mesh_alloc(self.use("alloc"), size)
            self.windows = self.windows or address >= 0  # the same in all processes: none frees what another keeps
            return address, self._over(max(0, -1 - address))

    def leave(self) -> None:
        """Drops the mesh without the other processes, which may never close theirs: its memory is not freed."""
        self.pointer = None
        for flight in self.flights:
            _lost.append(flight.keep)
            flight.ended = True
            flight.rejection = Rejection(Status.STATE, "request: its mesh was left open and is gone", Fault())
        self.flights.clear()

    def __del__(self) -> None:
        if getattr(self, "pointer", None) is None:
            return
        if self.collective:
            warnings.warn("a mesh between processes was not closed", ResourceWarning, stacklevel=2, source=self)
            self.leave()
        else:
            pointer, self.pointer = self.pointer, None
            self._free(pointer)


def reject_copy(self: Any, protocol: object = None) -> Any:
    """__reduce_ex__ of what belongs to a mesh: pickle and copy reject it."""
    name = type(self).__name__
    raise rejection(Status.DTYPE, f"{name}: it is of this process alone, want one that is made where it is used")


class Routing:
    """Where the tokens of a dispatch went. Made by a mesh, filled by a dispatch, used by combines.

    Any number of combines may use it until another dispatch fills it again.
    """

    __slots__ = ("_filled", "_handle", "_pointer")

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._filled = False
        self._pointer: Any = None
        with handle.lock:
            made = core.routing_new(handle.use("routing"))
            if isinstance(made, int):
                raise handle.rejection(made).error()
            self._pointer = made

    __reduce_ex__ = reject_copy

    @property
    def filled(self) -> bool:
        """Whether a dispatch has filled it."""
        return self._filled

    def __repr__(self) -> str:
        return f"<switchyard.mesh.Routing, {'filled' if self.filled else 'empty'}>"

    def __del__(self) -> None:
        if getattr(self, "_pointer", None) is not None:
            self._handle.dropped.append(self._pointer)  # freed by the next call: this may be any thread


class Request(Generic[R]):
    """An exchange that was started. Its arrays are kept until it is done.

    A request that is deleted goes on; a later start frees it.
    """

    __slots__ = ("_cause", "_done", "_flight", "_handle", "_results")

    def __init__(
        self, handle: Handle, flight: Flight, results: Callable[[str], R] | None, cause: BaseException | None = None
    ) -> None:
        self._handle, self._flight = handle, flight
        self._results = results
        self._done: R | None = None
        self._cause = cause  # why this process rejected the call

    __reduce_ex__ = reject_copy

    def test(self, phase: Phase = "done") -> bool:
        """Whether the exchange has come to a phase. Advances all requests of the mesh; raises if it failed."""
        return self._advance(phase, False)

    def wait(self, phase: Phase = "done") -> R:
        """Wait until the exchange has reached a phase, and return its results.

        At "routed" the table of choices, the counts and the routing are complete, and other results are None. At
        "done" all are complete.
        """
        self._advance(phase, True)
        results = self._results  # another thread may wait for the same request
        if results is None:
            return cast("R", self._done)
        if not self._flight.ended:
            return results(phase)
        self._done, self._results = results("done"), None
        return self._done

    def close(self) -> None:
        """Wait until the exchange is done or has failed; raises nothing."""
        with contextlib.suppress(Exception):
            self._advance("done", True)

    def _advance(self, phase: str, wait: bool) -> bool:
        try:
            return self._handle.advance(self._flight, phase, wait)
        except Error as error:
            if self._flight.ended:
                self._results = None
            raise error from self._cause

    def __enter__(self) -> Request[R]:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self._advance("done", True)
        else:
            self.close()

    def __del__(self) -> None:
        flight = getattr(self, "_flight", None)
        if flight is not None:
            flight.orphan = True


def stream_of(xp: Any) -> int | None:
    """The stream of arrays on a device."""
    return None if xp.device is None else int(xp.stream())
