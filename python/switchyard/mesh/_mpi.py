"""A mesh with one process for each device, over a communicator of mpi4py."""

from __future__ import annotations

import ctypes
import math
from typing import Any, Literal

import numpy as np

from .. import _binding
from .._arrays import Array
from .._sentences import bad, told
from ..errors import Error, Status, refusal
from ._handle import Handle
from ._mesh import Mesh, whole

MOST = (1 << 63) - 1  # bytes: more than any machine has, and refused in all processes
CHECKS = {"full": 0, "none": 1}


class MpiMesh(Mesh[Array, Any]):
    """A mesh of rows x cols processes: each is one device, its rank in the communicator.

    Every field of a call is one array, that of this process's device, and so are results. Making a mesh, its calls and
    closing it are collective: all processes make them, in the same order. What is wrong in one process is refused in
    all of them, with the same sentence.

    A mesh that is never closed is left to the end of the process; so is one whose `with` block ends in an exception,
    since other processes may not come to close it.

    Args:
        comm: a communicator of mpi4py with rows*cols processes; it is duplicated.
        rows, cols: the mesh.
        max_inflight: requests open at a time; 0: 2.
        timeout_ms: how long a wait may last before it fails and breaks the mesh; 0: for ever.
        check: "full", processes agree on a call before a row moves; "none", a refusal in one leaves others waiting.
        chunk_bytes: longest message; 0: 1 GiB.
        pack: rows travel packed, not straight from array to array.
        no_shared: rows travel in messages, even between processes of one machine.
    """

    def __init__(
        self,
        comm: Any,
        rows: int,
        cols: int,
        *,
        max_inflight: int = 0,
        timeout_ms: int = 0,
        check: Literal["full", "none"] = "full",
        chunk_bytes: int = 0,
        pack: bool = False,
        no_shared: bool = False,
    ) -> None:
        binding = _load(comm)
        given = {"rows": rows, "cols": cols, "max_inflight": max_inflight, "timeout_ms": timeout_ms}
        numbers = [_poor(field, value) for field, value in given.items()]
        options = [CHECKS.get(check, -1), _poor("chunk_bytes", chunk_bytes), bool(pack), bool(no_shared)]

        def opening(pointer: Any) -> int:
            return int(binding.open(pointer, comm.py2f(), *numbers, *options))

        super().__init__(Handle(numbers[0], numbers[1], True, opening))

    @property
    def device(self) -> int:
        """The device of this process: its rank."""
        return self._handle.device

    @property
    def shares_memory(self) -> bool:
        """Whether rows pass without messages."""
        return bool(self._handle.tell("shares"))

    def alloc(self, shape: int | tuple[int, ...], dtype: Any) -> Any:
        trouble = None
        try:
            kind, extents = np.dtype(dtype), (shape,) if isinstance(shape, int) else tuple(shape)
            size = kind.itemsize * math.prod(extents)
            if kind.hasobject or min(extents, default=0) < 0 or size > MOST:
                raise ValueError(f"no array of shape {shape} and type {kind}")
        except Exception as error:
            trouble, size = error, MOST
        try:
            address = self._handle.alloc(size)
        except Error as error:
            raise error from trouble
        memory = (ctypes.c_ubyte * size).from_address(address)
        return np.frombuffer(memory, np.uint8).view(kind).reshape(extents)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            with self._handle.lock:
                self._handle.leave()

    @staticmethod
    def _show(results: Any) -> Any:
        planes = tuple(plane[0] for plane in getattr(results, "plane_tokens", ()))
        shown = {name: planes if name == "plane_tokens" else arrays[0] for name, arrays in results._asdict().items()}
        return type(results)(**shown)


def _poor(field: str, value: Any) -> int:
    """A number; one that is none becomes what the library refuses, in all processes."""
    try:
        return whole("MpiMesh", field, value)
    except Error:
        return -1


def _load(comm: Any) -> Any:
    """The part of the binding that knows MPI, for communicators it can take."""
    built = _binding.mpi
    if built is None:
        said = "MpiMesh: this package was built without MPI, want one built where an MPI library is installed"
        raise refusal(Status.UNSUPPORTED, said)
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: it finds no MPI library
        said = f"MpiMesh: mpi4py is not here ({str(error).partition(chr(10))[0]}), want it with {built}"
        raise refusal(Status.UNSUPPORTED, said) from error
    if not isinstance(comm, MPI.Comm):
        raise bad(Status.DTYPE, "MpiMesh", "comm", f"is {told(comm)}, want a communicator of mpi4py")
    vendor, version = MPI.get_vendor()
    theirs = f"{vendor} {'.'.join(map(str, version))}"
    # One process has one MPI library. MPICH and its descendants share their interface, Open MPI has another.
    if (vendor == "Open MPI") != built.startswith("Open MPI"):
        raise refusal(Status.COMM, f"MpiMesh: mpi4py uses {theirs}, want {built}, as this package does")
    try:
        binding = _binding.mpi_module()
    except (OSError, RuntimeError) as error:
        said = f"MpiMesh: no {built}: {str(error).partition(chr(10))[0]}"
        raise refusal(Status.UNSUPPORTED, said) from error
    if str(binding.library()) != MPI.Get_library_version().rstrip("\x00"):
        said = f"MpiMesh: mpi4py uses {theirs}, and this package another copy, {str(binding.library())[:60]}"
        raise refusal(Status.COMM, f"{said}: want one MPI library in a process")
    return binding
