"""A mesh with one process for each device, over a communicator of mpi4py."""

from __future__ import annotations

import ctypes
import importlib
import math
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from .. import _binding
from .._numbers import integer
from .._operator import choose
from .._sentences import bad, shown
from ..errors import Status, rejection
from ._handle import Handle, Request
from ._mesh import begins
from ._processes import CHECKS, ProcessMesh, agree
from ._reading import flag, whole

MOST = (1 << 63) - 1  # bytes


class MpiMesh(ProcessMesh):
    """A mesh of rows x cols processes: each is one device, its rank in the communicator.

    Every field of a call is one array, that of this process's device, and so are results. Making a mesh, its calls and
    closing it are collective: all processes make them, in the same order. What one process rejects, an argument that
    Python cannot read included, is an error in all of them, with the same sentence, and the mesh can be used further.
    Errors of a start come from the waits for its request.

    A mesh that is never closed is kept until the process ends; so is one whose `with` block ends in an exception,
    since closing needs the other processes.

    Args:
        comm: a communicator of mpi4py with rows*cols processes; it is duplicated.
        rows, cols: the mesh.
        max_inflight: requests open at a time; 0: 2.
        timeout_ms: how long a wait may last before it fails and breaks the mesh; 0: 600 s, negative: for ever.
        check: "full": processes agree on a call before rows move; "none": when one process rejects a call, others wait.
        chunk_bytes: longest message; 0: 1 GiB.
        pack: rows are packed into a buffer before they are sent, instead of sent from array to array.
        no_shared: rows are sent in messages, even between processes of one machine.
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
        cause: BaseException | None = None
        try:
            numbers = [whole("MpiMesh", field, value) for field, value in given.items()]
            options = [choose("MpiMesh", "check", CHECKS, check), whole("MpiMesh", "chunk_bytes", chunk_bytes)]
            options += [flag("MpiMesh", "pack", pack), flag("MpiMesh", "no_shared", no_shared)]
            if options[1] < 0:
                raise bad(Status.VALUE, "MpiMesh", "chunk_bytes", f"is {options[1]}, want 0 or more")
        except BaseException as error:
            if not comm:
                raise
            cause = error
        if comm:  # not MPI_COMM_NULL, which has no others
            agree("MpiMesh", comm.rank, cause, comm.allgather)

        def opening(pointer: Any) -> int:
            return int(binding.open(pointer, comm.py2f(), *numbers, *options))

        super().__init__(Handle(numbers, True, opening))

    @property
    def shares_memory(self) -> bool:
        """Whether rows are exchanged through shared memory, without messages."""
        return bool(self._handle.tell("shares"))

    def _alloc(self, shape: int | tuple[int, ...], dtype: Any) -> Block:
        return Block(self._handle, shape, dtype)

    @begins(_alloc)
    def alloc(self) -> Any:
        pass


class Block:
    """Shape and type of an array to make in shared memory."""

    def __init__(self, handle: Handle, shape: int | tuple[int, ...], dtype: Any) -> None:
        self.handle = handle
        try:
            self.dtype = np.dtype(dtype)
        except Exception as error:
            raise bad(Status.DTYPE, "alloc", "dtype", f"is {shown(dtype)}, want a type of NumPy") from error
        extents = shape if isinstance(shape, Iterable) else (shape,)
        try:
            self.shape = tuple(integer(extent) for extent in extents)
        except Exception as error:
            raise bad(Status.VALUE, "alloc", "shape", f"is {shown(shape)}, want extents of 0 or more") from error
        self.size = self.dtype.itemsize * math.prod(self.shape)
        if min(self.shape, default=0) < 0 or self.size > MOST:
            raise bad(Status.VALUE, "alloc", "shape", f"is {self.shape}, want extents of 0 or more that fit in memory")
        if self.dtype.hasobject:
            raise bad(Status.DTYPE, "alloc", "dtype", f"is {self.dtype}, want a type of plain numbers")

    def start(self, blocking: bool) -> Request[Any]:
        address, flight = self.handle.alloc(self.size)
        return Request(self.handle, flight, lambda phase: self.at(address))

    def at(self, address: int) -> Any:
        memory = (ctypes.c_ubyte * self.size).from_address(address)
        return np.frombuffer(memory, np.uint8).view(self.dtype).reshape(self.shape)


def _load(comm: Any) -> Any:
    """The part of the binding that uses MPI; rejects communicators of another MPI library."""
    built = _binding.mpi
    if built is None:
        text = "MpiMesh: this package was built without MPI, want one built where an MPI library is installed"
        raise rejection(Status.UNSUPPORTED, text)
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: it finds no MPI library
        text = f"MpiMesh: mpi4py is not here ({str(error).partition(chr(10))[0]}), want it with {built}"
        raise rejection(Status.UNSUPPORTED, text) from error
    if not isinstance(comm, MPI.Comm):
        raise bad(Status.DTYPE, "MpiMesh", "comm", f"is {shown(comm)}, want a communicator of mpi4py")
    vendor, version = MPI.get_vendor()
    theirs = f"{vendor} {'.'.join(map(str, version))}"
    # One process has one MPI library. MPICH and its descendants share their interface, Open MPI has another.
    if (vendor == "Open MPI") != built.startswith("Open MPI"):
        raise rejection(Status.COMM, f"MpiMesh: mpi4py uses {theirs}, want {built}, as this package does")
    try:
        binding = importlib.import_module("switchyard._mpi")
    except (ImportError, OSError, RuntimeError) as error:
        text = f"MpiMesh: no {built}: {str(error).partition(chr(10))[0]}"
        raise rejection(Status.UNSUPPORTED, text) from error
    if str(binding.library()) != MPI.Get_library_version().rstrip("\x00"):
        text = f"MpiMesh: mpi4py uses {theirs}, and this package another copy, {str(binding.library())[:60]}"
        raise rejection(Status.COMM, f"{text}: want one MPI library in a process")
    return binding
