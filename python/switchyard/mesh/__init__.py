"""Meshes of devices, and the two operators that exchange tokens between them.

A :class:`LocalMesh` has all its devices in this process, an :class:`MpiMesh` one in each process of a communicator, and
an :class:`NcclMesh`, of :func:`from_torch_distributed`, one GPU in each process of a group of torch.distributed.
Calls and results are the same, except that a local mesh takes and returns an array for each device.
"""

from ._handle import Request as Request
from ._handle import Routing as Routing
from ._mesh import LocalMesh as LocalMesh
from ._mpi import MpiMesh as MpiMesh
from ._nccl import NcclMesh as NcclMesh
from ._nccl import from_torch_distributed as from_torch_distributed
from ._results import AllToAllCombine as AllToAllCombine
from ._results import AllToAllDispatch as AllToAllDispatch
