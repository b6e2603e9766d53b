"""ttnn's names for the exchange between devices: mesh tensors, mappers and composers, and the two operators.

A mesh device here is a mesh inside this process: every shard is a NumPy or PyTorch array, and the exchange moves rows
between them as it would between chips. Signatures and defaults are ttnn's.

>>> import numpy as np
>>> import switchyard.compat.ttnn as ttnn
>>> mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
>>> tokens = np.arange(8, dtype=np.float32).reshape(4, 1, 1, 2)  # two tokens for each of two devices
>>> indices = np.array([0, 1, 1, 0], np.uint16).reshape(4, 1, 1, 1)
>>> mapping = np.eye(2, dtype=np.uint16).reshape(1, 1, 2, 2)  # device e hosts expert e
>>> shard = ttnn.ShardTensorToMesh(mesh_device, dim=0)
>>> output, metadata = ttnn.all_to_all_dispatch(
...     ttnn.from_torch(tokens, device=mesh_device, mesh_mapper=shard),
...     ttnn.from_torch(indices, device=mesh_device, mesh_mapper=shard),
...     ttnn.from_torch(mapping, device=mesh_device, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh_device)),
...     cluster_axis=1,
... )
>>> [array.reshape(4, 2).tolist() for array in ttnn.get_device_tensors(output)]
[[[0.0, 1.0], [0.0, 0.0], [0.0, 0.0], [6.0, 7.0]], [[0.0, 0.0], [2.0, 3.0], [4.0, 5.0], [0.0, 0.0]]]
"""

from ._device import MeshDevice, MeshShape, close_mesh_device, open_mesh_device, synchronize_device
from ._exchange import SwitchyardError, all_to_all_combine, all_to_all_dispatch
from ._tensor import (
    ConcatMesh2dToTensor,
    ConcatMeshToTensor,
    MeshTensor,
    ReplicateTensorToMesh,
    ShardTensor2dMesh,
    ShardTensorToMesh,
    Tensor,
    aggregate_as_tensor,
    deallocate,
    from_torch,
    get_device_tensors,
    to_layout,
    to_torch,
)
from ._words import (
    DRAM_MEMORY_CONFIG,
    L1_MEMORY_CONFIG,
    ROW_MAJOR_LAYOUT,
    TILE_LAYOUT,
    BufferType,
    DataType,
    Layout,
    MemoryConfig,
    SubDeviceId,
    TensorMemoryLayout,
    Topology,
    bfloat16,
    float32,
    int32,
    uint8,
    uint16,
    uint32,
)

__all__ = [
    "DRAM_MEMORY_CONFIG",
    "L1_MEMORY_CONFIG",
    "ROW_MAJOR_LAYOUT",
    "TILE_LAYOUT",
    "BufferType",
    "ConcatMesh2dToTensor",
    "ConcatMeshToTensor",
    "DataType",
    "Layout",
    "MemoryConfig",
    "MeshDevice",
    "MeshShape",
    "MeshTensor",
    "ReplicateTensorToMesh",
    "ShardTensor2dMesh",
    "ShardTensorToMesh",
    "SubDeviceId",
    "SwitchyardError",
    "Tensor",
    "TensorMemoryLayout",
    "Topology",
    "aggregate_as_tensor",
    "all_to_all_combine",
    "all_to_all_dispatch",
    "bfloat16",
    "close_mesh_device",
    "deallocate",
    "float32",
    "from_torch",
    "get_device_tensors",
    "int32",
    "open_mesh_device",
    "synchronize_device",
    "to_layout",
    "to_torch",
    "uint8",
    "uint16",
    "uint32",
]
