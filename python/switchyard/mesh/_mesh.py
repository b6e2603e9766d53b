"""Meshes of devices: inside this process, or one process each."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any, Concatenate, Generic, Protocol, TypeVar, cast

import numpy as np
from typing_extensions import ParamSpec, Self

from .. import _words
from .._arrays import Array
from .._binding import core
from .._docstrings import complete
from ..errors import Status, rejection
from ._call import Call
from ._combine import Combine
from ._dispatch import Dispatch
from ._handle import Handle, Request, Routing, reject_copy
from ._reading import whole
from ._results import AllToAllCombine, AllToAllDispatch

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound="Mesh[Any, Any]")
In = TypeVar("In")  # what a field of a call is: an array, or one for each device
Out = TypeVar("Out")


def begins(
    prepare: Callable[Concatenate[M, P], Prepared], blocking: bool = True
) -> Callable[[Callable[[M], R]], Callable[Concatenate[M, P], R]]:
    """A decorator for collective calls: `prepare` reads the arguments, the new method starts the call and waits for it
    if `blocking`. The decorated function gives the name, the docstring and the type of the result.

    Over MPI a process that cannot read its arguments rejects the call for all, and the wait raises the error, as in the
    other processes. An interrupt meanwhile does the same, and is raised here at once.
    """
    name = prepare.__qualname__ = prepare.__name__.removeprefix("_")  # Python's own messages contain it

    def decorate(described: Callable[[M], R]) -> Callable[Concatenate[M, P], R]:
        @functools.wraps(described)
        def begin(self: M, *args: P.args, **kwargs: P.kwargs) -> Any:
            try:
                call = prepare(self, *args, **kwargs)
            except BaseException as error:
                if not self._handle.collective:
                    raise
                request = self._handle.reject(name, error)
                if not isinstance(error, Exception):  # an interrupt, which this process goes on with
                    raise
            else:
                request = self._start(name, call, blocking)
            return request.wait() if blocking else request

        returns = described.__annotations__["return"]
        begin.__signature__ = inspect.signature(prepare).replace(return_annotation=returns)  # type: ignore[attr-defined]
        return cast("Callable[Concatenate[M, P], R]", begin)

    return decorate


class Prepared(Protocol):
    """A collective call whose arguments are read."""

    def start(self, blocking: bool) -> Request[Any]: ...


class Mesh(Generic[In, Out]):
    """Base class: rows x cols devices, and the operators that exchange between them.

    Several threads may use one mesh: a blocking call ends before the call of another thread begins. If `max_inflight`
    requests are open, it finishes the oldest first. Over MPI all processes must make their calls in the same order, so
    there the program has to order its threads.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    __reduce_ex__ = reject_copy

    def _start(self, name: str, call: Prepared, blocking: bool) -> Request[Any]:
        try:
            return call.start(blocking)
        except Exception as error:
            if not self._handle.collective:
                raise
            return self._handle.reject(name, error)

    @property
    def rows(self) -> int:
        return self._handle.rows

    @property
    def cols(self) -> int:
        return self._handle.cols

    @property
    def closed(self) -> bool:
        return self._handle.pointer is None

    def routing(self) -> Routing:
        """Make a routing, for a dispatch to fill and combines to use."""
        return Routing(self._handle)

    def alloc(self, shape: int | tuple[int, ...], dtype: Any) -> Out:
        """Make a NumPy array for each device here, in memory that exchanges read in place; contents unspecified.

        Processes of one machine read each other's rows in such arrays, so inputs in them are not copied first: let
        experts write their results there. Collective over MPI, where the memory is kept until the process ends. On a
        local mesh these are ordinary arrays.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Wait for open requests and free the mesh. Later calls are rejected; closing again does nothing."""
        self._handle.close()

    def __enter__(self) -> Self:
        if self.closed:
            raise rejection(Status.STATE, "mesh: the mesh is closed, want one that is open")
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = ", closed" if self.closed else ""
        return f"<switchyard.mesh.{type(self).__name__} of {self.rows}x{self.cols} devices{closed}>"

    # ---- Operators ----

    def _all_to_all_dispatch(
        self,
        input: In,
        expert_indices: In | None = None,
        expert_mapping: Array | None = None,
        *,
        planes: Sequence[In] = (),
        cluster_axis: int | None = None,
        output_concat_dim: int | None = None,
        order: _words.AllToAllDispatchOrder = "concat",
        fill: _words.AllToAllDispatchFill = "zero",
        layout: _words.AllToAllDispatchLayout = "padded",
        align: int = 0,
        max_tokens: int = 0,
        strict_unique: bool = False,
        reuse_routing: bool = False,
        num_links: int = 0,
        topology: _words.AllToAllDispatchTopology = "auto",
        memory: _words.AllToAllDispatchMemory = "auto",
        subdevice_id: int = 0,
        replica: _words.AllToAllDispatchReplica = "all",
        node_size: int = 0,
        row_format: _words.AllToAllDispatchRowFormat | None = None,
        expert_rows: int = 0,
        routing: Routing | None = None,
        want: Collection[str] | None = None,
        out: AllToAllDispatch[Any] | None = None,
    ) -> Call[Any]:
        return Dispatch(self._handle, locals(), self._show)

    @begins(_all_to_all_dispatch, blocking=False)
    def start_dispatch(self) -> Request[AllToAllDispatch[Out]]:  # type: ignore[empty-body]
        """Begin :meth:`all_to_all_dispatch` and return at once; arguments are the same.

        Inputs must not change, and results are not complete, before the request is done. A start beyond `max_inflight`
        open requests, of all threads together, is an error.
        """

    @begins(_all_to_all_dispatch)
    def all_to_all_dispatch(self) -> AllToAllDispatch[Out]:  # type: ignore[empty-body]
        """Send every token to each device that hosts one of its experts, once, and the table of choices to all.

        A device has N = B*S tokens of H elements with K experts each; a group of G devices (``cluster_axis``) has T =
        G*N tokens. A device gets the rows of those tokens of its group that chose one of its experts: padded, a row
        for every token, zero where none was sent (``fill``); packed, the rows that were sent; expert, a row for each
        token and expert of the device, by expert. Rows are copied as bytes.

        Args:
            expert_indices: the same with K; uint16, int32 or int64. All bits set (65535, -1) is no expert.
            planes: up to three more that travel with each row: scales, weights, ids.
            cluster_axis: the group that exchanges: None, all devices; 0, those of a column; 1, those of a row.
            output_concat_dim: 1 (the default) or 2: the dimension along which tokens of the group are concatenated.
            order: of tokens along dimension 2: "concat", or "flat", as along dimension 1.
            num_links, topology, memory, subdevice_id: hints; no result depends on them.
            replica: of an expert on several devices of the group "all" get the token, or one: the "first", one in turn
                ("round_robin"), by "hash" of the token, "balanced" over the choices, or the nearest ("local").
            row_format: make 8-bit codes of the rows before they are sent, with scales, which are one of the planes: a
                format of :func:`switchyard.quantize_rows`. Rows are then float32, float16 or bfloat16.
            expert_rows: expert: more than 0: every expert has so many rows, zero after its tokens; an expert with more
                is rejected.
            routing: is filled, for combines to use.
            want: names of the optional results to make; None: all.
            out: arrays to write to, instead of new ones; None in it leaves an optional result out.

        >>> import numpy as np
        >>> from switchyard.mesh import LocalMesh
        >>> x = np.array([[[11, -11], [12, -12]], [[21, -21], [22, -22]]], np.float32)     # two devices, two tokens
        >>> chosen = np.array([[[0, 2], [1, 0]], [[3, 2], [2, 0]]], np.int32)
        >>> hosts = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.uint16)                # experts 0, 1 and 2, 3
        >>> with LocalMesh(1, 2) as mesh:
        ...     there = mesh.all_to_all_dispatch(x, chosen, hosts, layout="expert")
        >>> there.tokens[0][:, 0], there.expert_counts[0]
        (array([11., 12., 22., 12.], dtype=float32), array([3, 1]))
        """

    def _all_to_all_combine(
        self,
        input: In,
        expert_metadata: In | None = None,
        expert_mapping: Array | None = None,
        weights: In | None = None,
        input_scales: In | None = None,
        *,
        local_reduce: bool = False,
        sum: bool = False,
        cluster_axis: int | None = None,
        output_shard_dim: int | None = None,
        order: _words.AllToAllCombineOrder = "concat",
        fill: _words.AllToAllCombineFill = "zero",
        layout: _words.AllToAllCombineLayout = "padded",
        align: int = 0,
        max_tokens: int = 0,
        strict_unique: bool = False,
        num_links: int = 0,
        topology: _words.AllToAllCombineTopology = "auto",
        memory: _words.AllToAllCombineMemory = "auto",
        subdevice_id: int = 0,
        replica: _words.AllToAllCombineReplica = "all",
        node_size: int = 0,
        row_format: _words.AllToAllCombineRowFormat | None = None,
        expert_rows: int = 0,
        routing: Routing | None = None,
        want: Collection[str] | None = None,
        out: AllToAllCombine[Any] | None = None,
    ) -> Call[Any]:
        return Combine(self._handle, locals(), self._show)

    @begins(_all_to_all_combine, blocking=False)
    def start_combine(self) -> Request[AllToAllCombine[Out]]:  # type: ignore[empty-body]
        """Begin :meth:`all_to_all_combine` and return at once; arguments are the same, and the rules are those of
        :meth:`start_dispatch`.
        """

    @begins(_all_to_all_combine)
    def all_to_all_combine(self) -> AllToAllCombine[Out]:  # type: ignore[empty-body]
        """Return the rows of the experts to the devices of their tokens: a row for each slot of a token, or their sum.

        Slot k of a token gets the row of the device that hosts its expert. With ``local_reduce`` a device has one row
        for each token, the sum over its experts, which goes to the slot of its lowest expert. With ``sum`` the rows of
        a token are multiplied by ``weights`` and added on its device, in f32 and in the order of slots, and rounded
        once.

        Args:
            weights: [B, 1, S, K] or [N, K] float32, float16 or bfloat16, with sum; None: ones.
            cluster_axis, order, layout, align, max_tokens, replica, node_size, expert_rows: as for the dispatch; not
                needed with `routing`.
            output_shard_dim: as output_concat_dim of the dispatch.
            num_links, topology, memory, subdevice_id: hints; no result depends on them.
            row_format: the rows are 8-bit codes of this format of :func:`switchyard.quantize_rows`; they come home with
                their scales, or with sum their float32 numbers are added: to bfloat16, float32 in libraries without
                it, or the type of `out`.
            want: names of the optional results to make; None: all.

        >>> import numpy as np
        >>> from switchyard.mesh import LocalMesh
        >>> x = np.array([[[11, -11], [12, -12]], [[21, -21], [22, -22]]], np.float32)
        >>> chosen = np.array([[[0, 2], [1, 0]], [[3, 2], [2, 0]]], np.int32)
        >>> hosts = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.uint16)
        >>> with LocalMesh(1, 2) as mesh:
        ...     routing = mesh.routing()
        ...     there = mesh.all_to_all_dispatch(x, chosen, hosts, layout="expert", routing=routing)
        ...     home = mesh.all_to_all_combine(there.tokens, sum=True, routing=routing)
        >>> home.output[1]                                  # two experts, which returned their rows unchanged
        array([[ 42., -42.],
               [ 44., -44.]], dtype=float32)
        """

    @staticmethod
    def _show(results: Any) -> Any:
        """Converts tuples of results, (None, ...) for one left out, to what this kind of mesh returns."""
        raise NotImplementedError


complete(Mesh.all_to_all_dispatch, "all_to_all_dispatch", AllToAllDispatch)
complete(Mesh.all_to_all_combine, "all_to_all_combine", AllToAllCombine)


class LocalMesh(Mesh["Array | Sequence[Array]", tuple[Any, ...]]):
    """A mesh of rows x cols devices inside this process; device d = r*cols + c.

    Every field of a call has one array for each device: a sequence of them, or one array whose first dimension is
    that of devices. Results are tuples with an array for each device.

    Args:
        rows, cols: the mesh; 1 x 1 to 65536 devices.
        max_inflight: requests open at a time; 0: 2.

    >>> from switchyard.mesh import LocalMesh
    >>> LocalMesh(2, 4)
    <switchyard.mesh.LocalMesh of 2x4 devices>
    """

    def __init__(self, rows: int, cols: int, *, max_inflight: int = 0) -> None:
        given = {"rows": rows, "cols": cols, "max_inflight": max_inflight}
        numbers = [whole("LocalMesh", field, value) for field, value in given.items()]
        super().__init__(Handle(numbers, False, lambda pointer: int(core.mesh_open(pointer, *numbers))))

    def alloc(self, shape: int | tuple[int, ...], dtype: Any) -> tuple[Any, ...]:
        return tuple(np.empty(shape, dtype) for _ in range(self._handle.shards))

    @staticmethod
    def _show(results: Any) -> Any:
        def there(arrays: tuple[Any, ...]) -> tuple[Any, ...] | None:
            return None if arrays and arrays[0] is None else arrays

        return type(results)(*(there(arrays) for arrays in results))
