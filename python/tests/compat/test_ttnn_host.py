"""compat.ttnn around the exchange: device tensors, submeshes, host operators, traces, and objects without effect."""

import importlib
import sys
from typing import Any

import numpy as np
import pytest

from switchyard.compat import ttnn
from switchyard.errors import Status

KINDS = ["numpy", "torch"]


def array_of(kind: str, values: Any, dtype: str = "float32") -> Any:
    array = np.array(values, dtype)
    return array if kind == "numpy" else pytest.importorskip("torch").from_numpy(array)


def shown(tensor: Any) -> list[Any]:
    return [np.asarray(ttnn.to_torch(t)).tolist() for t in ttnn.get_device_tensors(tensor)]


@pytest.fixture
def pair() -> ttnn.MeshDevice:
    return ttnn.open_mesh_device(ttnn.MeshShape(1, 2))


def over(mesh: ttnn.MeshDevice, array: Any, dim: int = 0, dtype: Any = None) -> ttnn.MeshTensor:
    return ttnn.from_torch(array, dtype=dtype, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=dim))


def exchanged(mesh: ttnn.MeshDevice, x: Any, chosen: Any) -> tuple[ttnn.MeshTensor, ...]:
    """Tokens, their choices, and the mapping of an expert on each device."""
    hosts = np.eye(mesh.get_num_devices(), dtype=np.uint16)[None, None]
    return over(mesh, x), over(mesh, chosen), ttnn.from_torch(hosts, device=mesh)


# ---- Tensors and devices ----


@pytest.mark.parametrize("kind", KINDS)
def test_device_tensors_are_tensors(pair: ttnn.MeshDevice, kind: str) -> None:
    whole = array_of(kind, [[1, 2], [3, 4]])
    tensor = over(pair, whole)
    parts = ttnn.get_device_tensors(tensor)
    assert [type(part) for part in parts] == [ttnn.Tensor, ttnn.Tensor]
    assert [part.shape for part in parts] == [(1, 2), (1, 2)]
    assert [ttnn.to_torch(part, mesh_composer=None).tolist() for part in parts] == [[[1, 2]], [[3, 4]]]
    again = ttnn.aggregate_as_tensor(parts, device=pair)
    assert (ttnn.to_torch(again, mesh_composer=ttnn.ConcatMeshToTensor(pair, dim=0)) == whole).all()
    assert shown(ttnn.aggregate_as_tensor(tensor.shards, device=pair)) == shown(tensor)


@pytest.mark.parametrize("kind", KINDS)
def test_memory_of_devices_is_their_own(pair: ttnn.MeshDevice, kind: str) -> None:
    host = array_of(kind, np.zeros((1, 2, 1, 2)))
    tokens = ttnn.from_torch(host, device=pair, mesh_mapper=ttnn.ReplicateTensorToMesh(pair))
    host[...] = 9
    assert shown(tokens) == [[[[[0, 0]], [[0, 0]]]]] * 2
    ttnn.to_torch(ttnn.get_device_tensors(tokens)[0])[...] = 9
    assert shown(tokens) == [[[[[0, 0]], [[0, 0]]]]] * 2
    metadata = ttnn.from_torch(array_of(kind, np.zeros((1, 2, 1, 1)), "uint16"), device=pair)
    rows, chosen = array_of(kind, [[[[1, 2]]], [[[3, 4]]]]), array_of(kind, [[[[1]]], [[[0]]]], "uint16")
    ttnn.all_to_all_dispatch(*exchanged(pair, rows, chosen), output_tensors=[tokens, metadata])  # replicated buffers
    assert shown(tokens) == [[[[[0, 0]], [[3, 4]]]], [[[[1, 2]], [[0, 0]]]]]


def test_submeshes() -> None:
    mesh = ttnn.open_mesh_device((2, 4))
    part = mesh.create_submesh(ttnn.MeshShape((1, 4)))
    assert part.shape == (1, 4)
    assert part.get_device_ids() == [0, 1, 2, 3]
    assert mesh.create_submesh((2, 2), offset=(0, 1)).get_device_ids() == [1, 2, 5, 6]
    halves = mesh.create_submeshes((2, 2))
    assert [half.get_device_ids() for half in halves] == [[0, 1, 4, 5], [2, 3, 6, 7]]
    with pytest.raises(ValueError, match=r"create_submesh: MeshShape\(\[2, 3\]\) at \[0, 2\], want a part of"):
        mesh.create_submesh((2, 3), offset=(0, 2))
    with pytest.raises(ValueError, match="create_submeshes"):
        mesh.create_submeshes((2, 3))
    tokens = np.arange(8, dtype=np.float32).reshape(4, 1, 1, 2)
    indices = np.array([3, 2, 1, 0], np.uint16).reshape(4, 1, 1, 1)
    there, _ = ttnn.all_to_all_dispatch(*exchanged(part, tokens, indices), cluster_axis=1)
    assert [np.asarray(shard).reshape(4, 2)[3 - d].tolist() for d, shard in enumerate(there.shards)] == [
        [6, 7], [4, 5], [2, 3], [0, 1]]  # fmt: skip


def test_objects_without_effect(pair: ttnn.MeshDevice) -> None:
    grid = pair.compute_with_storage_grid_size()
    cores = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(grid.x - 1, grid.y - 1))})
    manager = pair.create_sub_device_manager([ttnn.SubDevice([cores])], 0)
    pair.load_sub_device_manager(manager)
    pair.set_sub_device_stall_group([ttnn.SubDeviceId(0)])
    pair.reset_sub_device_stall_group()
    pair.clear_loaded_sub_device_manager()
    pair.remove_sub_device_manager(manager)
    assert ttnn.create_global_semaphore(pair, cores, 0) is not None
    assert ttnn.DispatchCoreAxis.COL != ttnn.DispatchCoreAxis.ROW
    names = ["DISABLED", "FABRIC_1D", "FABRIC_1D_RING", "FABRIC_2D"]
    assert all(getattr(ttnn.FabricConfig, name).name == name for name in names)
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    ttnn.apply_device_delay(pair, [[0, 400000]])
    assert ttnn.CoreCoord(1, 2) == ttnn.CoreCoord(1, 2)
    assert ttnn.Device is ttnn.MeshDevice
    assert [mode.name for mode in ttnn.FabricReliabilityMode] == ["STRICT_INIT", "RELAXED_INIT", "DYNAMIC_RECONFIG"]
    assert ttnn.get_arch_name() not in {arch.name.lower() for arch in ttnn.device.Arch}


def test_module_device_is_imported_by_the_vendors_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ttnn, "device", ttnn.device)  # an import of the submodule sets it
    monkeypatch.setitem(sys.modules, "ttnn", ttnn)
    monkeypatch.setitem(sys.modules, "ttnn.device", None)
    del sys.modules["ttnn.device"]
    device = importlib.import_module("ttnn.device")
    assert device.Device is ttnn.Device  # no second copy of the classes
    assert [arch.name for arch in device.Arch] == ["WORMHOLE_B0", "BLACKHOLE", "QUASAR"]


def test_program_cache_counts(pair: ttnn.MeshDevice) -> None:
    pair.enable_program_cache()
    assert pair.num_program_cache_entries() == 0
    given = exchanged(pair, np.ones((2, 1, 1, 2), np.float32), np.zeros((2, 1, 1, 1), np.uint16))
    for _ in range(2):
        there, metadata = ttnn.all_to_all_dispatch(*given)
    assert pair.num_program_cache_entries() == 1
    ttnn.apply_device_delay(pair, [[0, 0]])
    assert pair.num_program_cache_entries() == 2
    for _ in range(2):
        back = ttnn.all_to_all_combine(there, metadata, given[2])  # its new output is cleared by another program
    assert pair.num_program_cache_entries() == 4
    ttnn.all_to_all_combine(there, metadata, given[2], output_tensor=back)
    assert pair.num_program_cache_entries() == 5
    pair.disable_and_clear_program_cache()
    assert pair.num_program_cache_entries() == 0


def test_what_would_change_a_result_is_rejected(pair: ttnn.MeshDevice) -> None:
    whole = np.ones((2, 2), np.float32)
    blocks = "a type of whole elements"
    for dtype, want in {ttnn.bfloat8_b: blocks, ttnn.bfloat4_b: blocks, ttnn.fp8_e4m3: "bfloat16 or float32"}.items():
        with pytest.raises(ttnn.SwitchyardError, match=f"dtype is {dtype.value}, want {want}") as caught:
            ttnn.from_torch(whole, dtype=dtype, device=pair)
        assert caught.value.code == Status.UNSUPPORTED
        with pytest.raises(ttnn.SwitchyardError, match="typecast: dtype is"):
            ttnn.typecast(ttnn.from_torch(whole, device=pair), dtype)
    with pytest.raises(TypeError, match="spec"):
        ttnn.from_torch(whole, spec="any")
    with pytest.raises(TypeError, match="torch_rank"):
        ttnn.to_torch(ttnn.from_torch(whole), torch_rank=1)


def test_metadata_that_differs_names_the_line_to_change() -> None:
    mesh = ttnn.open_mesh_device((1, 2))
    tables = np.array([[0, 1], [1, 1]], np.uint16).reshape(2, 2, 1, 1)
    rows, metadata, mapping = exchanged(mesh, np.ones((2, 2, 1, 2), np.float32), tables)
    with pytest.raises(ttnn.SwitchyardError) as caught:
        ttnn.all_to_all_combine(rows, metadata, mapping, cluster_axis=1)
    assert caught.value.code == Status.MISMATCH
    said = str(caught.value)
    assert "expert_metadata_tensor" in said
    assert "metadata[:1].repeat(2, 1, 1, 1)" in said
    assert ttnn.all_to_all_combine(rows, over(mesh, np.tile(tables[:1], (2, 1, 1, 1))), mapping, cluster_axis=1)


# ---- Operators on the host ----


@pytest.mark.parametrize("kind", KINDS)
def test_shapes(pair: ttnn.MeshDevice, kind: str) -> None:
    whole = np.arange(24, dtype=np.float32).reshape(2, 1, 3, 4)
    tensor = over(pair, array_of(kind, whole))
    checks = [
        (ttnn.reshape(tensor, (1, 1, 4, 3)), lambda x: x.reshape(1, 1, 4, 3)),
        (ttnn.reshape(tensor, shape=ttnn.Shape((2, -1))), lambda x: x.reshape(2, -1)),
        (ttnn.permute(tensor, (3, 1, 2, 0)), lambda x: x.transpose(3, 1, 2, 0)),
        (ttnn.permute(tensor, (0, 1, -1, -2)), lambda x: x.transpose(0, 1, 3, 2)),
        (ttnn.repeat(tensor, ttnn.Shape((2, 1, 1, 3))), lambda x: np.tile(x, (2, 1, 1, 3))),
        (ttnn.repeat(tensor, repeat_dims=(1, 2, 1, 1)), lambda x: np.tile(x, (1, 2, 1, 1))),
        (ttnn.slice(tensor, [0, 0, 1, 0], [1, 1, 3, 3]), lambda x: x[:, :, 1:3, 0:3]),
        (ttnn.slice(tensor, (0, 0, 0, 0), (1, 1, 3, 4), (1, 1, 2, 3)), lambda x: x[:, :, ::2, ::3]),
        (ttnn.concat([tensor, tensor], dim=2), lambda x: np.concatenate([x, x], 2)),
        (ttnn.concat([tensor, tensor], dim=-1), lambda x: np.concatenate([x, x], -1)),
    ]
    for made, wanted in checks:
        for d, part in enumerate(ttnn.get_device_tensors(made)):
            want = wanted(whole[d : d + 1])
            assert part.shape == want.shape
            np.testing.assert_array_equal(np.asarray(ttnn.to_torch(part)), want)
            shard = made.shards[d]
            assert shard.flags.c_contiguous if kind == "numpy" else shard.is_contiguous()
    with pytest.raises(ttnn.SwitchyardError, match="slice: ends is"):
        ttnn.slice(tensor, [0, 0, 0, 0], [1, 1, 3, 5])
    with pytest.raises(ttnn.SwitchyardError, match="repeat: repeat_dims"):
        ttnn.repeat(tensor, (2, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_results_have_memory_of_their_own(pair: ttnn.MeshDevice, kind: str) -> None:
    """Also where all devices share an array, and where an operator changes nothing."""
    tensor = ttnn.from_torch(array_of(kind, [[1, 2]]), device=pair)
    made = [
        ttnn.reshape(tensor, (1, 2)),
        ttnn.permute(tensor, (0, 1)),
        ttnn.slice(tensor, (0, 0), (1, 2)),
        ttnn.typecast(tensor, ttnn.float32),
        ttnn.sum(tensor, 0, keepdim=True),
    ]
    for one in made:
        one.shards[0][...] = 9
        assert shown(one) == [[[9, 9]], [[1, 2]]]
    assert shown(tensor) == [[[1, 2]], [[1, 2]]]


@pytest.mark.parametrize("kind", KINDS)
def test_few_elements_and_small_types(pair: ttnn.MeshDevice, kind: str) -> None:
    empty = ttnn.from_torch(array_of(kind, np.zeros((2, 0))), device=pair)
    assert [ttnn.sum(empty, dim).shape for dim in (0, 1)] == [(0,), (2,)]
    zero = ttnn.from_torch(array_of(kind, [-0.0]), device=pair)
    assert np.signbit(np.asarray(ttnn.all_reduce(zero).shards[0])).all()
    words = ttnn.from_torch(array_of(kind, [[40000, 1], [40000, 2]], "uint16"), device=pair)
    assert shown(ttnn.sum(words, 0)) == [[80000 % 65536, 3]] * 2
    assert shown(ttnn.all_reduce(words))[0] == [[80000 % 65536, 2], [80000 % 65536, 4]]
    assert shown(ttnn.mul(words, words))[0][1] == [40000**2 % 65536, 4]


def test_a_composer_of_another_mesh(pair: ttnn.MeshDevice) -> None:
    tensor = over(pair, np.ones((2, 2), np.float32))
    with pytest.raises(ValueError, match=r"ConcatMesh2dToTensor: mesh_shape is MeshShape\(\[1, 1\]\), want"):
        ttnn.to_torch(tensor, mesh_composer=ttnn.ConcatMesh2dToTensor(pair, (1, 1), (0, 1)))


@pytest.mark.parametrize("kind", KINDS)
def test_arithmetic(pair: ttnn.MeshDevice, kind: str) -> None:
    draw = np.random.default_rng(7)
    x = draw.standard_normal((6, 2, 3)).astype(np.float32)
    w = draw.standard_normal((6, 1, 3)).astype(np.float32)
    tensor, weights = over(pair, array_of(kind, x)), over(pair, array_of(kind, w))
    product = ttnn.mul(tensor, weights, memory_config=ttnn.L1_MEMORY_CONFIG)
    assert product.memory_config() == ttnn.L1_MEMORY_CONFIG
    np.testing.assert_array_equal(np.concatenate(shown(product)), x * w)
    np.testing.assert_array_equal(np.concatenate(shown(ttnn.mul(tensor, 0.3))), x * np.float32(0.3))
    for dims, keep in [(0, True), (0, False), (-1, True), ((0, 2), False), (None, False)]:
        for d, got in enumerate(shown(ttnn.sum(tensor, dim=dims, keepdim=keep))):
            part = x[3 * d : 3 * d + 3]
            axes = tuple(range(3)) if dims is None else (dims,) if isinstance(dims, int) else dims
            moved = np.moveaxis(part, axes, range(len(axes)))
            rest = moved.shape[len(axes) :]
            want = np.zeros(rest, np.float32)
            for one in moved.reshape(-1, *rest):  # in order
                want = want + one
            if keep:
                want = np.expand_dims(want, axes)
            np.testing.assert_array_equal(np.float32(got), want)


def test_sixteen_bits_are_rounded_once(pair: ttnn.MeshDevice) -> None:
    torch = pytest.importorskip("torch")
    x = torch.rand((6, 1, 5), generator=torch.Generator().manual_seed(1)).bfloat16()
    tensor = over(pair, x)
    summed = ttnn.sum(tensor, dim=0, keepdim=True)
    for d, got in enumerate(ttnn.get_device_tensors(summed)):
        part = x[3 * d : 3 * d + 3].float()
        assert torch.equal(ttnn.to_torch(got), ((part[0] + part[1]) + part[2])[None].bfloat16())
    assert summed.dtype == ttnn.bfloat16
    assert torch.equal(ttnn.mul(tensor, tensor).shards[0], (x[:3].float() ** 2).bfloat16())


@pytest.mark.parametrize("kind", KINDS)
def test_typecast(pair: ttnn.MeshDevice, kind: str) -> None:
    tensor = over(pair, array_of(kind, [[1.5], [2.5]]))
    assert ttnn.typecast(tensor, ttnn.int32).dtype == ttnn.int32
    assert shown(ttnn.typecast(tensor, dtype=ttnn.uint16)) == [[[1]], [[2]]]
    assert ttnn.typecast(ttnn.typecast(tensor, ttnn.uint16), ttnn.uint32).dtype == ttnn.uint32


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axis", [0, 1, None])
def test_all_reduce(kind: str, axis: int | None) -> None:
    mesh = ttnn.open_mesh_device((2, 3))
    x = np.random.default_rng(2).standard_normal((6, 4)).astype(np.float32)
    made = ttnn.all_reduce(over(mesh, array_of(kind, x)), cluster_axis=axis, num_links=1, topology=ttnn.Topology.Ring)
    groups = {0: [[0, 3], [1, 4], [2, 5]], 1: [[0, 1, 2], [3, 4, 5]], None: [[0, 1, 2, 3, 4, 5]]}[axis]
    for group in groups:
        want = np.zeros(4, np.float32)
        for device in group:
            want = want + x[device]
        for device in group:
            np.testing.assert_array_equal(np.asarray(made.shards[device])[0], want)
    with pytest.raises(ttnn.SwitchyardError, match="all_reduce: cluster_axis is 2"):
        ttnn.all_reduce(made, cluster_axis=2)


def test_a_layer(pair: ttnn.MeshDevice) -> None:
    """Dispatch, experts that multiply by their number plus 1, combine, weights, sum: as model code calls them."""
    draw = np.random.default_rng(5)
    x = draw.integers(-8, 8, (4, 1, 1, 2)).astype(np.float32)
    chosen = np.array([[0, 1], [1, 0], [0, 1], [1, 0]], np.uint16).reshape(4, 1, 1, 2)
    weights = draw.integers(1, 4, (4, 1, 1, 2)).astype(np.float32)
    *given, mapping = exchanged(pair, x, chosen)
    there, metadata = ttnn.all_to_all_dispatch(*given, mapping, cluster_axis=1)
    tokens = ttnn.to_layout(ttnn.reshape(there, shape=(1, 1, 4, 2)), ttnn.TILE_LAYOUT)
    factors = over(pair, np.array([1, 2], np.float32).reshape(2, 1, 1, 1))
    out = ttnn.mul(ttnn.repeat(tokens, ttnn.Shape((1, 1, 1, 1))), factors)
    out = ttnn.reshape(ttnn.to_layout(out, ttnn.ROW_MAJOR_LAYOUT), shape=(1, 4, 1, 2))
    back = ttnn.all_to_all_combine(out, metadata, mapping, cluster_axis=1)
    scaled = ttnn.mul(back, ttnn.permute(over(pair, weights), (3, 0, 2, 1)))
    summed = ttnn.sum(scaled, dim=0, keepdim=True)
    got = np.concatenate([np.asarray(shard).reshape(2, 2) for shard in summed.shards])
    want = (x[:, 0] * ((chosen + 1.0) * weights).sum(3)[:, :, None, 0]).reshape(4, 2)
    np.testing.assert_array_equal(got, want)


# ---- Traces ----


def test_a_trace_runs_again(pair: ttnn.MeshDevice) -> None:
    """A capture runs its operators; an execution runs them again, on what their inputs then hold."""
    tokens = np.array([[[[1.0, 2]]], [[[3, 4]]]], np.float32)
    x, indices, mapping = exchanged(pair, tokens, np.array([1, 0], np.uint16).reshape(2, 1, 1, 1))
    trace = ttnn.begin_trace_capture(pair, cq_id=0)
    there, metadata = ttnn.all_to_all_dispatch(x, indices, mapping)
    doubled = ttnn.mul(there, 2.0)
    ttnn.end_trace_capture(pair, trace, cq_id=0)
    assert shown(doubled) == [[[[[0, 0]], [[6, 8]]]], [[[[2, 4]], [[0, 0]]]]]
    for shard in x.shards:
        shard[...] += 10
    ttnn.execute_trace(pair, trace, cq_id=0, blocking=False)
    assert shown(doubled) == [[[[[0, 0]], [[26, 28]]]], [[[[22, 24]], [[0, 0]]]]]
    assert [m.flatten().tolist() for m in metadata.shards] == [[1, 0], [1, 0]]
    ttnn.release_trace(pair, trace)
    with pytest.raises(ttnn.SwitchyardError, match="execute_trace: trace 0 has been released") as caught:
        ttnn.execute_trace(pair, trace)
    assert caught.value.code == Status.STATE
    after = shown(ttnn.mul(doubled, 1.0))  # not part of any trace
    assert after == shown(doubled)


def test_a_trace_of_the_mesh_that_is_given(pair: ttnn.MeshDevice) -> None:
    """Tensors without a device; the call names it."""
    arrays = (
        np.ones((1, 1, 1, 2), np.float32),
        np.zeros((1, 1, 1, 1), np.uint16),
        np.eye(2, dtype=np.uint16)[None, None],
    )
    x, indices, mapping = (ttnn.MeshTensor([array.copy(), array.copy()], (1, 2)) for array in arrays)
    trace = ttnn.begin_trace_capture(pair)
    there, _ = ttnn.all_to_all_dispatch(x, indices, mapping, mesh=pair)
    ttnn.end_trace_capture(pair, trace)
    x.shards[0][...] = 5
    ttnn.execute_trace(pair, trace)
    assert there.shards[0].flatten().tolist() == [5, 5, 1, 1]


def test_traces_in_a_wrong_order(pair: ttnn.MeshDevice) -> None:
    trace = ttnn.begin_trace_capture(pair)
    with pytest.raises(ttnn.SwitchyardError, match="a capture is under way"):
        ttnn.begin_trace_capture(pair)
    with pytest.raises(ttnn.SwitchyardError, match="execute_trace: trace 0 is still captured"):
        ttnn.execute_trace(pair, trace)
    ttnn.end_trace_capture(pair, trace)
    with pytest.raises(ttnn.SwitchyardError, match="end_trace_capture: trace 0 is not captured"):
        ttnn.end_trace_capture(pair, trace)
