"""ttnn's dispatch of tokens to the devices of their experts, as a program for ttnn writes it; with NumPy arrays."""

import numpy as np

from switchyard.compat import ttnn

mesh_shape = (2, 4)
mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(*mesh_shape))
devices, experts, select_experts_k, batch, seq, hidden = 8, 16, 2, 8, 1, 4
random = np.random.default_rng(0)
tokens = random.standard_normal((batch, 1, seq, hidden)).astype(np.float32)
expert_indices = random.integers(0, experts, (batch, 1, seq, select_experts_k)).astype(np.uint16)
expert_mapping = np.zeros((1, 1, experts, devices), np.uint16)
for expert in range(experts):
    expert_mapping[0, 0, expert, expert // (experts // devices)] = 1

over_columns = ttnn.ShardTensor2dMesh(mesh_device, dims=(None, 0), mesh_shape=mesh_shape)
replicated = ttnn.ShardTensor2dMesh(mesh_device, dims=(None, None), mesh_shape=mesh_shape)
placed = {"device": mesh_device, "layout": ttnn.ROW_MAJOR_LAYOUT, "memory_config": ttnn.DRAM_MEMORY_CONFIG}

output_tensor, metadata_tensor = ttnn.all_to_all_dispatch(
    ttnn.from_torch(tokens, dtype=ttnn.float32, mesh_mapper=over_columns, **placed),
    ttnn.from_torch(expert_indices, dtype=ttnn.uint16, mesh_mapper=over_columns, **placed),
    ttnn.from_torch(expert_mapping, dtype=ttnn.uint16, mesh_mapper=replicated, **placed),
    cluster_axis=1,
    num_links=1,
    topology=ttnn.Topology.Linear,
    memory_config=ttnn.DRAM_MEMORY_CONFIG,
)
ttnn.synchronize_device(mesh_device)

for device, tensor in enumerate(ttnn.get_device_tensors(output_tensor)):
    rows = ttnn.to_torch(tensor)
    chosen = [b for b in range(batch) if any(e // 2 == device for e in expert_indices[b, 0, 0])]
    assert [b for b in range(batch) if rows[0, b].any()] == chosen
    assert (rows[0, chosen] == tokens[chosen, 0]).all()
    print(f"device {device} hosts experts {2 * device} and {2 * device + 1} and has the rows of tokens {chosen}")
ttnn.close_mesh_device(mesh_device)
