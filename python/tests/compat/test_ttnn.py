"""compat.ttnn: worked examples through ttnn's calls, mappers and composers, outputs given, and rejections."""

import inspect
import sys
from typing import Any

import numpy as np
import pytest
from mesh_examples import E1, EXAMPLES, rows

from switchyard.compat import ttnn
from switchyard.errors import Status

STALE = 777.0  # what rows hold that must not be read, or must be kept


def on(mesh: ttnn.MeshDevice, arrays: list[Any]) -> ttnn.MeshTensor:
    return ttnn.MeshTensor(arrays, mesh.shape, device=mesh)


def table(mesh: ttnn.MeshDevice, hosts: list[list[int]]) -> ttnn.MeshTensor:
    """The mapping of experts that live on these devices, one copy for all."""
    mapping = np.zeros((1, 1, len(hosts), mesh.get_num_devices()), np.uint16)
    for expert, devices in enumerate(hosts):
        mapping[0, 0, expert, devices] = 1
    return ttnn.from_torch(mapping, device=mesh, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh))


def u16(values: Any) -> np.ndarray:
    return np.array(values, np.int64).astype(np.uint16)


def heads(tensor: ttnn.MeshTensor) -> list[Any]:
    """The first element of every row of every device; the second must be its negative."""
    for array in tensor.shards:
        assert (array[..., 0] == -array[..., 1]).all()
    return [np.asarray(array)[..., 0].tolist() for array in tensor.shards]


@pytest.fixture
def pair() -> ttnn.MeshDevice:
    return ttnn.open_mesh_device(ttnn.MeshShape(1, 2))


def first_example(mesh: ttnn.MeshDevice) -> tuple[ttnn.MeshTensor, ttnn.MeshTensor, ttnn.MeshTensor]:
    x, indices = (on(mesh, [of(d) for d in range(2)]) for of in (E1.given, E1.indices))
    return x, indices, table(mesh, E1.hosts)


METADATA = E1.metadata[0]


@pytest.mark.parametrize("name", [name for name, example in EXAMPLES.items() if "replica" not in example.options])
def test_exchange(name: str) -> None:
    example = EXAMPLES[name]
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(example.mesh))
    mapping = table(mesh, example.hosts)
    x, indices, made = (
        on(mesh, [of(d) for d in range(example.devices)])
        for of in (example.given, example.indices, lambda d: rows(example.results[d]))
    )
    tokens, metadata = ttnn.all_to_all_dispatch(x, indices, mapping, **example.dispatch_options)
    home = ttnn.all_to_all_combine(made, metadata, mapping, **example.combine_options)
    assert (tokens.shape, tokens.dtype, metadata.dtype) == (tokens.shards[0].shape, ttnn.float32, ttnn.uint16)
    for d in range(example.devices):
        np.testing.assert_array_equal(tokens.shards[d], rows(example.tokens[d]), strict=True)
        np.testing.assert_array_equal(metadata.shards[d], u16(example.metadata[d]), strict=True)
        np.testing.assert_array_equal(home.shards[d], rows(example.output[d]), strict=True)


def test_given_outputs_keep_what_nobody_sends(pair: ttnn.MeshDevice) -> None:
    x, indices, mapping = first_example(pair)
    tokens = on(
        pair, [np.stack([np.full((1, 2, 2), STALE, "f4"), np.full((1, 2, 2), -STALE, "f4")], -1) for _ in range(2)]
    )
    metadata = on(pair, [u16(np.zeros((1, 2, 2, 2))) for _ in range(2)])
    got = ttnn.all_to_all_dispatch(x, indices, mapping, output_tensors=[tokens, metadata])
    assert got[0] is tokens
    assert got[1] is metadata
    assert heads(tokens) == [[[[11, 12], [STALE, 22]]], [[[11, STALE], [21, 22]]]]
    assert metadata.shards[1].tolist() == METADATA
    ttnn.all_to_all_dispatch(x, indices, mapping, output_tensors=[tokens, metadata], fill="zero")
    assert heads(tokens) == [[[[11, 12], [0, 22]]], [[[11, 0], [21, 22]]]]

    y = on(pair, [rows([[[11, 36], [None, 22]]]), rows([[[33, None], [147, 66]]])])
    out = on(pair, [np.tile(np.array([STALE, -STALE], "f4"), (2, 1, 2, 1)) for _ in range(2)])
    assert ttnn.all_to_all_combine(y, metadata, mapping, local_reduce=True, output_tensor=out) is out
    assert heads(out) == [[[[11, STALE]], [[33, 36]]], [[[STALE, 66]], [[147, 22]]]]


def test_dimensions_are_1_and_2(pair: ttnn.MeshDevice) -> None:
    """0 is the operator's default, and an error here; None is the default."""
    x, indices, mapping = first_example(pair)
    tokens, metadata = ttnn.all_to_all_dispatch(x, indices, mapping, output_concat_dim=None)
    y = on(pair, [np.tile(t, (2, 1, 1, 1)) for t in tokens.shards])
    ttnn.all_to_all_combine(y, metadata, mapping, output_shard_dim=None)
    for dim in (0, 3, -1):
        with pytest.raises(ttnn.SwitchyardError, match=f"all_to_all_dispatch: output_concat_dim.* is {dim}, want 1"):
            ttnn.all_to_all_dispatch(x, indices, mapping, output_concat_dim=dim)
        with pytest.raises(ttnn.SwitchyardError, match=f"all_to_all_combine: output_shard_dim.* is {dim}, want 1"):
            ttnn.all_to_all_combine(y, metadata, mapping, output_shard_dim=dim)


def test_hints_change_nothing(pair: ttnn.MeshDevice) -> None:
    x, indices, mapping = first_example(pair)
    want = heads(ttnn.all_to_all_dispatch(x, indices, mapping)[0])
    for topology in [None, *ttnn.Topology]:
        for memory in (ttnn.DRAM_MEMORY_CONFIG, ttnn.L1_MEMORY_CONFIG):
            tokens, _ = ttnn.all_to_all_dispatch(
                x,
                indices,
                mapping,
                num_links=3,
                topology=topology,
                memory_config=memory,
                subdevice_id=ttnn.SubDeviceId(0),
            )
            assert heads(tokens) == want
            assert tokens.memory_config() == memory


def test_the_documented_program_with_torch() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(5)
    mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
    devices, experts, k, batch, seq, hidden = 8, 8, 2, 8, 2, 16
    over_columns = ttnn.ShardTensor2dMesh(mesh_device, mesh_shape=(2, 4), dims=(None, 0))
    like_tokens = {"layout": ttnn.ROW_MAJOR_LAYOUT, "device": mesh_device, "mesh_mapper": over_columns}
    x = torch.randn([batch, 1, seq, hidden], dtype=torch.bfloat16)
    chosen = torch.randint(0, experts, [batch, 1, seq, k], dtype=torch.int16)
    tokens = ttnn.from_torch(x, dtype=ttnn.bfloat16, **like_tokens)
    expert_indices = ttnn.from_torch(chosen, dtype=ttnn.uint16, **like_tokens)
    mapping_torch = torch.zeros([1, 1, experts, devices], dtype=torch.int16)
    for e in range(experts):
        mapping_torch[0, 0, e, e % devices] = 1
    expert_mapping = ttnn.from_torch(
        mapping_torch,
        dtype=ttnn.uint16,
        layout=ttnn.ROW_MAJOR_LAYOUT,
        device=mesh_device,
        mesh_mapper=ttnn.ShardTensor2dMesh(mesh_device, mesh_shape=(2, 4), dims=(None, None)),
    )
    there, metadata = ttnn.all_to_all_dispatch(tokens, expert_indices, expert_mapping, cluster_axis=1, num_links=1)
    ttnn.synchronize_device(mesh_device)
    assert there.shape == (1, batch, seq, hidden)
    assert torch.equal(metadata.shards[5].view(torch.int16), chosen.reshape(1, batch, seq, k))
    back = ttnn.all_to_all_combine(
        there, metadata, expert_mapping, cluster_axis=1, num_links=1
    )  # experts change nothing
    assert back.shape == (k, batch // 4, seq, hidden)
    # Rows 0 and 1 of the mesh host experts 0-3 and 4-7: their slots together are every slot of every token.
    whole = ttnn.to_torch(back, mesh_composer=ttnn.ConcatMesh2dToTensor(mesh_device, (2, 4), dims=(0, 1)))
    halves = whole.reshape(2, k, batch, seq, hidden)
    repeated = (chosen[..., 0] == chosen[..., 1]).reshape(batch, seq)
    for slot in range(k):
        live = x.reshape(batch, seq, hidden).clone()
        if slot == 1:
            live[repeated] = 0  # an expert named twice counts once
        assert torch.equal(halves[0, slot] + halves[1, slot], live)


def test_mappers_and_composers() -> None:
    mesh = ttnn.open_mesh_device((2, 3))
    whole = np.arange(4 * 6 * 2).reshape(4, 6, 2)
    cut = ttnn.from_torch(whole, device=mesh, mesh_mapper=ttnn.ShardTensor2dMesh(mesh, dims=(0, 1), mesh_shape=(2, 3)))
    assert cut.shape == (2, 2, 2)
    assert (cut.shards[4] == whole[2:, 2:4]).all()
    again = ttnn.to_torch(cut, mesh_composer=ttnn.ConcatMesh2dToTensor(mesh, (2, 3), dims=(0, 1)))
    assert (again == whole).all()
    flat = ttnn.from_torch(whole, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=1))
    assert (ttnn.to_torch(flat, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=1)) == whole).all()
    assert len(ttnn.get_device_tensors(flat)) == 6
    with pytest.raises(ValueError, match="dimension 0 has 4 elements, want a multiple of 6"):
        ttnn.from_torch(whole, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0))
    with pytest.raises(ValueError, match="want a mesh_composer"):
        ttnn.to_torch(flat)


def test_signatures() -> None:
    dispatch = inspect.signature(ttnn.all_to_all_dispatch).parameters
    combine = inspect.signature(ttnn.all_to_all_combine).parameters
    names = {
        "all_to_all_dispatch": "input_tensor expert_indices_tensor expert_mapping_tensor cluster_axis output_tensors "
        "num_links topology memory_config subdevice_id output_concat_dim order fill mesh",
        "all_to_all_combine": "input_tensor expert_metadata_tensor expert_mapping_tensor local_reduce output_shard_dim "
        "cluster_axis subdevice_id memory_config output_tensor num_links topology order fill mesh",
    }
    for parameters, wanted in zip((dispatch, combine), names.values(), strict=True):
        assert list(parameters) == wanted.split()
        kinds = [p.kind for p in parameters.values()]
        assert kinds[:3] == [inspect.Parameter.POSITIONAL_OR_KEYWORD] * 3
        assert set(kinds[3:]) == {inspect.Parameter.KEYWORD_ONLY}
    assert (dispatch["output_concat_dim"].default, combine["output_shard_dim"].default) == (1, 1)
    assert combine["local_reduce"].default is False


def test_topologies() -> None:
    assert {t.name: t.value for t in ttnn.Topology} == {"Linear": 1, "Ring": 2, "Mesh": 3, "Torus": 4}


def test_module_under_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ttnn", ttnn)
    space = {}
    exec("import ttnn\nt = ttnn.Topology.Ring\n", space)
    assert space["t"] is ttnn.Topology.Ring


# The call, the code, the sentence, and what the first example has in the place of its arguments.
REJECTED: list[tuple[Any, ...]] = [
    (Status.DTYPE, "input_tensor is a ndarray, want a tensor on a mesh: from_torch makes one",
     lambda e, m: {"input_tensor": e["input_tensor"].shards[0]}),
    (Status.VALUE, "input_tensor has layout TILE, want ROW_MAJOR",
     lambda e, m: {"input_tensor": ttnn.to_layout(e["input_tensor"], ttnn.TILE_LAYOUT)}),
    (Status.MISMATCH, "expert_mapping_tensor is on a MeshShape([2, 2]), want the MeshShape([1, 2]) of the call",
     lambda e, m: {"expert_mapping_tensor": table(ttnn.open_mesh_device((2, 2)), [[0], [1], [2], [3]])}),
    (Status.VALUE, "num_links is 0, want None or 1 or more", lambda e, m: {"num_links": 0}),
    (Status.UNSUPPORTED, None,
     lambda e, m: {"memory_config": ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED)}),
    (Status.ROUTING, "expert_mapping_tensor gives the devices [3, 1] experts, want the same number each: 4 / 2",
     lambda e, m: {"expert_mapping_tensor": table(m, [[0], [0], [0], [1]])}),
    (Status.DTYPE, "expert_mapping_tensor is int32, want uint16",
     lambda e, m: {"expert_mapping_tensor": on(m, [s.astype(np.int32) for s in e["expert_mapping_tensor"].shards])}),
    (Status.VALUE, "cluster_axis is 2, want None, 0 or 1", lambda e, m: {"cluster_axis": 2}),
    (Status.VALUE, "output_tensors has 1 tensors, want 2", lambda e, m: {"output_tensors": [e["input_tensor"]]}),
    (Status.INDEX, None, lambda e, m: {
        "expert_indices_tensor": on(m, [u16([[[[0, 2], [9, 0]]]]), e["expert_indices_tensor"].shards[1]])}),
    (Status.MISMATCH, None, lambda e, m: {"expert_mapping_tensor": on(m, [
        e["expert_mapping_tensor"].shards[0].copy(), e["expert_mapping_tensor"].shards[0][:, :, ::-1].copy()])}),
]  # fmt: skip


@pytest.mark.parametrize(("code", "sentence", "change"), REJECTED)
def test_rejections(pair: ttnn.MeshDevice, code: Status, sentence: str | None, change: Any) -> None:
    names = ("input_tensor", "expert_indices_tensor", "expert_mapping_tensor")
    call = dict(zip(names, first_example(pair), strict=True))
    with pytest.raises(ttnn.SwitchyardError, match=r"^all_to_all_dispatch: ") as caught:
        ttnn.all_to_all_dispatch(**{**call, **change(call, pair)})
    assert isinstance(caught.value, RuntimeError)
    assert caught.value.code == code
    assert sentence is None or str(caught.value) == "all_to_all_dispatch: " + sentence


def test_the_documented_shape_of_combine_is_rejected(pair: ttnn.MeshDevice) -> None:
    documented = on(pair, [np.zeros((1, 2, 1, 2), np.float32)] * 2)
    with pytest.raises(ttnn.SwitchyardError) as caught:
        ttnn.all_to_all_combine(documented, on(pair, [u16(METADATA)] * 2), first_example(pair)[2])
    assert caught.value.code == Status.SHAPE
    assert str(caught.value) == (
        "all_to_all_combine: input_tensor has shape [1, 2, 1, 2] on a device, want [2, 2, 2, hidden]: experts of the "
        "device, batch and sequence of the whole group as in expert_metadata_tensor; a tensor [batch, sequence, 1, "
        "hidden] has no place for the experts"
    )


def test_tables_and_types_that_are_accepted(pair: ttnn.MeshDevice) -> None:
    """Copies of the mapping that are equal, and signed integers, which are taken as bits."""
    x, indices, mapping = first_example(pair)
    signed = on(pair, [i.view(np.int16) for i in indices.shards])
    copies = on(pair, [m.copy() for m in mapping.shards])
    tokens, metadata = ttnn.all_to_all_dispatch(x, signed, copies)
    assert metadata.shards[0].dtype == np.int16
    assert heads(tokens) == [[[[11, 12], [0, 22]]], [[[11, 0], [21, 22]]]]
