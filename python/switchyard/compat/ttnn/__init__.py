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

from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import device as device

if _TYPE_CHECKING:
    from ._device import *  # noqa: F403
    from ._errors import *  # noqa: F403
    from ._exchange import *  # noqa: F403
    from ._host import *  # noqa: F403
    from ._tensor import *  # noqa: F403
    from ._trace import *  # noqa: F403
    from ._words import *  # noqa: F403
else:
    from ..._exports import own as _own
    from . import _device, _errors, _exchange, _host, _tensor, _trace, _words

    _own(globals(), _device, _errors, _exchange, _host, _tensor, _trace, _words, more=["device"])
