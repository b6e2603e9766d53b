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
>>> [ttnn.to_torch(tensor).reshape(4, 2).tolist() for tensor in ttnn.get_device_tensors(output)]
[[[0.0, 1.0], [0.0, 0.0], [0.0, 0.0], [6.0, 7.0]], [[0.0, 0.0], [2.0, 3.0], [4.0, 5.0], [0.0, 0.0]]]
"""

from . import device
from ._device import Device, MeshDevice, MeshShape, close_mesh_device, open_mesh_device, synchronize_device
from ._errors import SwitchyardError
from ._exchange import all_to_all_combine, all_to_all_dispatch
from ._host import all_reduce, concat, mul, permute, repeat, reshape, slice, sum, typecast
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
from ._trace import apply_device_delay, begin_trace_capture, end_trace_capture, execute_trace, release_trace
from ._words import (
    DRAM_MEMORY_CONFIG,
    L1_MEMORY_CONFIG,
    ROW_MAJOR_LAYOUT,
    TILE_LAYOUT,
    BufferType,
    CoreCoord,
    CoreRange,
    CoreRangeSet,
    DataType,
    DispatchCoreAxis,
    FabricConfig,
    FabricReliabilityMode,
    GlobalSemaphore,
    Layout,
    MemoryConfig,
    Shape,
    SubDevice,
    SubDeviceId,
    TensorMemoryLayout,
    Topology,
    bfloat4_b,
    bfloat8_b,
    bfloat16,
    create_global_semaphore,
    float32,
    fp8_e4m3,
    get_arch_name,
    int8,
    int32,
    set_fabric_config,
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
    "CoreCoord",
    "CoreRange",
    "CoreRangeSet",
    "DataType",
    "Device",
    "DispatchCoreAxis",
    "FabricConfig",
    "FabricReliabilityMode",
    "GlobalSemaphore",
    "Layout",
    "MemoryConfig",
    "MeshDevice",
    "MeshShape",
    "MeshTensor",
    "ReplicateTensorToMesh",
    "Shape",
    "ShardTensor2dMesh",
    "ShardTensorToMesh",
    "SubDevice",
    "SubDeviceId",
    "SwitchyardError",
    "Tensor",
    "TensorMemoryLayout",
    "Topology",
    "aggregate_as_tensor",
    "all_reduce",
    "all_to_all_combine",
    "all_to_all_dispatch",
    "apply_device_delay",
    "begin_trace_capture",
    "bfloat4_b",
    "bfloat8_b",
    "bfloat16",
    "close_mesh_device",
    "concat",
    "create_global_semaphore",
    "deallocate",
    "device",
    "end_trace_capture",
    "execute_trace",
    "float32",
    "fp8_e4m3",
    "from_torch",
    "get_arch_name",
    "get_device_tensors",
    "int8",
    "int32",
    "mul",
    "open_mesh_device",
    "permute",
    "release_trace",
    "repeat",
    "reshape",
    "set_fabric_config",
    "slice",
    "sum",
    "synchronize_device",
    "to_layout",
    "to_torch",
    "typecast",
    "uint8",
    "uint16",
    "uint32",
]
