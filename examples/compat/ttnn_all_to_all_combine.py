"""ttnn's combine, which returns the rows of experts to their tokens, as in a program for ttnn; with NumPy arrays."""

import numpy as np

from switchyard.compat import ttnn

mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(1, 4))
devices, experts, select_experts_k, batch, seq, hidden = 4, 8, 2, 8, 1, 4
random = np.random.default_rng(0)
tokens = random.standard_normal((batch, seq, hidden)).astype(np.float32)
expert_indices = np.stack([random.permutation(experts)[:select_experts_k] for _ in range(batch)]).astype(np.uint16)
expert_mapping = np.repeat(np.eye(devices, dtype=np.uint16), experts // devices, axis=0)

# Results of the experts: on every device a row for each of its experts and every token. Expert e multiplies by e + 1.
contributions = np.stack([tokens * (expert + 1) for expert in range(experts)])
metadata = np.broadcast_to(
    expert_indices.reshape(1, batch, seq, select_experts_k), (devices, batch, seq, select_experts_k)
)

shard = ttnn.ShardTensorToMesh(mesh_device, dim=0)
output_tensor = ttnn.all_to_all_combine(
    ttnn.from_torch(contributions, device=mesh_device, mesh_mapper=shard),
    ttnn.from_torch(metadata, device=mesh_device, mesh_mapper=shard),
    ttnn.from_torch(expert_mapping.reshape(1, 1, experts, devices), device=mesh_device),
    local_reduce=False,
    cluster_axis=1,
    num_links=1,
    memory_config=ttnn.L1_MEMORY_CONFIG,
)
result = ttnn.to_torch(output_tensor, mesh_composer=ttnn.ConcatMeshToTensor(mesh_device, dim=1))
print(f"{output_tensor.shape} on each device, {result.shape} together")
for slot in range(select_experts_k):
    factor = expert_indices[:, slot].astype(np.float32) + 1
    assert (result[slot] == tokens * factor[:, None, None]).all()
print("every slot has the row of its expert")
