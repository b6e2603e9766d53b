"""A mesh with one process for each GPU, over NCCL."""

from __future__ import annotations

import importlib
import struct
import sys
from typing import Any, Literal

from .._binding import core
from .._operator import choose
from .._sentences import bad, shown
from ..errors import Status, rejection
from ._handle import Handle
from ._processes import CHECKS, ProcessMesh, agree
from ._reading import whole

ID_WORDS = 16  # of an ncclUniqueId


class NcclMesh(ProcessMesh):
    """A mesh of rows x cols processes with a GPU each, made by :func:`from_torch_distributed`.

    Every field of a call is one array, that of this process's device, and so are results. Rows on the GPU are sent by
    NCCL without a copy through the host; arrays in CPU memory can be exchanged too, through pinned memory. Making a
    mesh, its calls and closing it are collective, as for :class:`MpiMesh`, and so are errors.
    """

    def alloc(self, shape: int | tuple[int, ...], dtype: Any) -> Any:
        text = "alloc: the mesh is over NCCL, which shares no CPU memory, want an array of your library"
        raise rejection(Status.UNSUPPORTED, text)


def from_torch_distributed(
    group: Any = None,
    rows: int | None = None,
    cols: int | None = None,
    *,
    max_inflight: int = 0,
    timeout_ms: int = 0,
    check: Literal["full", "none"] = "full",
    chunk_bytes: int = 0,
    max_blocks: int = 0,
) -> NcclMesh:
    """A mesh of the processes of a group of torch.distributed, one GPU each: no MPI is needed.

    The group, of any backend, only tells the processes of each other; the mesh has communicators of NCCL of its own, on
    the current CUDA device of each process. NCCL accepts one process per GPU. Collective.

    Args:
        group: a process group; None: the default one. The rank in it is the device of the mesh.
        rows: of the mesh; 1 if it is left out.
        cols: of the mesh; the processes of the group if it is left out.
        max_inflight: requests open at a time; 0: 2.
        timeout_ms: how long a wait may last before it fails and breaks the mesh; 0: 600 s, negative: for ever.
        check: "full": processes agree on a call before rows move; "none": when one process rejects a call, others wait.
        chunk_bytes: longest message; 0: 1 GiB.
        max_blocks: thread blocks of the kernels that send rows; 0: NCCL chooses.
    """
    name = "from_torch_distributed"
    dist = getattr(sys.modules.get("torch"), "distributed", None)
    if dist is None or not dist.is_available() or not dist.is_initialized():
        text = f"{name}: torch.distributed is not initialised, want init_process_group before"
        raise rejection(Status.STATE, text)
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise rejection(Status.STATE, f"{name}: this process is not in the group, want one that is")
    given = {"rows": 1 if rows is None else rows, "cols": n if cols is None else cols}
    given |= {"max_inflight": max_inflight, "timeout_ms": timeout_ms}
    cause: BaseException | None = None
    binding: Any = None
    try:
        numbers = [whole(name, field, value) for field, value in given.items()]
        if numbers[0] * numbers[1] != n or numbers[0] < 1:
            text = f"is {numbers[0]} x {numbers[1]}, want {n} devices, one for each process of the group"
            raise bad(Status.VALUE, name, "the mesh", text)
        options = [choose(name, "check", CHECKS, check), whole(name, "chunk_bytes", chunk_bytes)]
        options.append(whole(name, "max_blocks", max_blocks))
        for field, value in (("chunk_bytes", options[1]), ("max_blocks", options[2])):
            if value < 0:
                raise bad(Status.VALUE, name, field, f"is {shown(value)}, want 0 or more")
        binding = _load(name)
    except BaseException as error:
        cause = error

    def gather(mine: Any) -> list[Any]:
        told: list[Any] = [None] * n
        dist.all_gather_object(told, mine, group=group)
        return told

    agree(name, rank, cause, gather)

    def opening(pointer: Any) -> int:
        status = int(binding.new_id(pointer)) if rank == 0 else 0
        told: list[Any] = [(status, str(core.mesh_tell(pointer, "opening")))]
        dist.broadcast_object_list(told, src=dist.get_global_rank(group or dist.group.WORLD, 0), group=group)
        status, text = told[0]
        if status:
            raise rejection(status, f"{name}: {text}")
        words = struct.unpack(f"={ID_WORDS}q", bytes.fromhex(text))
        return int(binding.open(pointer, rank, *numbers, *options, *words))

    return NcclMesh(Handle(numbers, True, opening))


def _load(name: str) -> Any:
    """The part of the binding that uses NCCL, on a machine with a GPU."""
    torch = sys.modules["torch"]
    if not torch.cuda.is_available():
        text = f"{name}: there is no CUDA device for PyTorch, want one for each process, or an MpiMesh"
        raise rejection(Status.UNSUPPORTED, text)
    try:
        torch.cuda.current_stream()  # makes the device's context
        return importlib.import_module("switchyard._nccl")
    except (ImportError, OSError, RuntimeError) as error:
        why = str(error).partition(chr(10))[0]
        raise rejection(Status.UNSUPPORTED, f"{name}: this package has no part for NCCL: {why}") from error
