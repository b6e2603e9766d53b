"""Meshes of devices, and the two operators that exchange tokens between them.

A :class:`LocalMesh` has all its devices in this process, an :class:`MpiMesh` one in each process of a communicator, and
an :class:`NcclMesh`, of :func:`from_torch_distributed`, one GPU in each process of a group of torch.distributed.
Calls and results are the same, except that a local mesh takes and returns an array for each device.
"""

from ._handle import Request, Routing
from ._mesh import LocalMesh
from ._mpi import MpiMesh
from ._nccl import NcclMesh, from_torch_distributed
from ._results import AllToAllCombine, AllToAllDispatch

__all__ = [
    "AllToAllCombine",
    "AllToAllDispatch",
    "LocalMesh",
    "MpiMesh",
    "NcclMesh",
    "Request",
    "Routing",
    "from_torch_distributed",
]
