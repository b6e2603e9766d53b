"""The local mesh: worked examples, layouts, arrays of other libraries, rejections."""

import copy
import inspect
import pickle
from typing import Any

import numpy as np
import pytest
from calls import Producer
from mesh_examples import E1, E8, EXAMPLES, Example, codes, rows

import switchyard
from switchyard import _binding
from switchyard._binding import core
from switchyard.mesh import AllToAllCombine, AllToAllDispatch, LocalMesh

same = np.testing.assert_array_equal


def all_of(example: Example, dtype: Any = np.float32, index: Any = np.uint16) -> tuple[list[Any], list[Any]]:
    devices = range(example.devices)
    return [example.given(d, dtype) for d in devices], [example.indices(d, index) for d in devices]


# ---- Worked examples ----


@pytest.mark.parametrize("index", ["uint16", "int32", "int64"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_dispatch(name: str, index: str) -> None:
    example = EXAMPLES[name]
    with LocalMesh(*example.mesh) as mesh:
        got = mesh.all_to_all_dispatch(*all_of(example, index=index), example.mapping, **example.dispatch_options)
    for d in range(example.devices):
        same(got.tokens[d], rows(example.tokens[d]), strict=True)
        same(got.metadata[d], np.array(example.metadata[d]).astype(index), strict=True)
        if example.present is not None and example.rows_to is not None:
            same(got.present[d], np.array(example.present[d], bool), strict=True)
            same(got.rows_to[d], np.array(example.rows_to[d]), strict=True)
            same(got.rows_from[d], np.array(example.rows_to).T[d], strict=True)
    assert got.src is got.expert_offsets is None
    assert got.plane_tokens == ()


@pytest.mark.parametrize("routed", [False, True])
@pytest.mark.parametrize("name", EXAMPLES)
def test_combine(name: str, routed: bool) -> None:
    example = EXAMPLES[name]
    results = [rows(example.results[d]) for d in range(example.devices)]
    with LocalMesh(*example.mesh) as mesh:
        routing = mesh.routing()
        assert not routing.filled
        there = mesh.all_to_all_dispatch(*all_of(example), example.mapping, routing=routing, **example.dispatch_options)
        assert routing.filled
        if routed:
            got = mesh.all_to_all_combine(results, routing=routing, local_reduce=example.local_reduce)
        else:
            got = mesh.all_to_all_combine(results, there.metadata, example.mapping, **example.combine_options)
    for d in range(example.devices):
        home = rows(example.output[d])
        same(got.output[d], home, strict=True)
        same(got.written[d], (home[..., 0] != 0).reshape(len(home), -1), strict=True)


def test_short_shapes_and_stacked_arrays() -> None:
    x = np.stack([E1.given(d).reshape(2, 2) for d in range(2)])
    chosen = np.stack([E1.indices(d).reshape(2, 2) for d in range(2)])
    with LocalMesh(1, 2) as mesh:
        got = mesh.all_to_all_dispatch(x, chosen, np.stack([E1.mapping[None]] * 2))
        same(np.stack(got.tokens)[:, :, 0], [[11, 12, 0, 22], [11, 0, 21, 22]])
        home = mesh.all_to_all_combine(
            [rows(E1.results[d]).reshape(2, 4, 2) for d in range(2)], got.metadata, E1.mapping, sum=True
        )
    same(np.stack(home.output)[:, :, 0], [[44, 36], [147, 88]])
    assert home.written is None


def test_packed() -> None:
    with LocalMesh(1, 2) as mesh:
        got = mesh.all_to_all_dispatch(*all_of(E1), E1.mapping, layout="packed")
        assert got.present is got.expert_offsets is None
        assert [x[:, 0].tolist() for x in got.tokens] == [[11, 12, 22], [11, 21, 22]]
        assert [x.tolist() for x in got.src] == [[[0, 0], [0, 1], [1, 1]], [[0, 0], [1, 0], [1, 1]]]
        routing = mesh.routing()
        got = mesh.all_to_all_dispatch(*all_of(E1), E1.mapping, layout="packed", routing=routing, want=())
        assert got.metadata is got.rows_from is got.src is None
        home = mesh.all_to_all_combine(got.tokens, local_reduce=True, routing=routing)
    assert [x[:, 0, :, 0].tolist() for x in home.output] == [[[11, 0], [11, 12]], [[0, 22], [21, 22]]]


def test_expert() -> None:
    with LocalMesh(1, 2) as mesh:
        routing = mesh.routing()
        got = mesh.all_to_all_dispatch(*all_of(E1), E1.mapping, layout="expert", align=2, routing=routing)
        assert [x[:, 0].tolist() for x in got.tokens] == [[11, 12, 22, 0, 12, 0], [11, 21, 22, 0, 21, 0]]
        assert got.src[1].tolist() == [[0, 0, 1], [1, 0, 1], [1, 1, 0], [-1] * 3, [1, 0, 0], [-1] * 3]
        assert [x.tolist() for x in got.expert_counts] == [[3, 1], [3, 1]]
        assert [x.tolist() for x in got.expert_offsets] == [[0, 4, 6], [0, 4, 6]]
        weights = np.array([[[2, 1], [1, 0.5]], [[1, 1], [1, 1]]], np.float32).reshape(2, 1, 1, 2, 2)
        home = mesh.all_to_all_combine(got.tokens, weights=weights, sum=True, routing=routing)
        assert home.output[0].shape == (1, 1, 2, 2)
        assert [x[0, 0, :, 0].tolist() for x in home.output] == [[33, 18], [42, 44]]
        fixed = mesh.all_to_all_dispatch(*all_of(E1), E1.mapping, layout="expert", expert_rows=4, routing=routing)
        again = mesh.all_to_all_dispatch([10 * x for x in all_of(E1)[0]], routing=routing, reuse_routing=True)
        for rows, times in ((fixed.tokens, 1), (again.tokens, 10)):
            want = np.array([[11, 12, 22, 0, 12, 0, 0, 0], [11, 21, 22, 0, 21, 0, 0, 0]])
            same([x[:, 0] for x in rows], times * want)
        assert again.metadata is None
        assert [x.tolist() for x in again.expert_counts] == [[3, 1], [3, 1]]
        assert fixed.src[0].tolist() == [[0, 0, 0], [0, 1, 1], [1, 1, 1], [-1] * 3, [0, 1, 0], *[[-1] * 3] * 3]
        home = mesh.all_to_all_combine(fixed.tokens, weights=weights, sum=True, routing=routing)
        assert [x[0, 0, :, 0].tolist() for x in home.output] == [[33, 18], [42, 44]]
        home = mesh.all_to_all_combine(fixed.tokens, fixed.metadata, E1.mapping, layout="expert", expert_rows=4)
        assert [x[:, 0, :, 0].tolist() for x in home.output] == [[[11, 12], [11, 12]], [[21, 22], [21, 22]]]


def test_planes_travel_with_rows() -> None:
    scales = [np.array([[[[1, 2, 3], [4, 5, 6]]]], np.float16), np.array([[[[7, 8, 9], [10, 11, 12]]]], np.float16)]
    ids = [np.array([[[[1], [2]]]], np.int64), np.array([[[[3], [4]]]], np.int64)]
    with LocalMesh(1, 2) as mesh:
        got = mesh.all_to_all_dispatch(*all_of(E1), E1.mapping, planes=[scales, ids], layout="packed")
        padded = mesh.all_to_all_dispatch(*all_of(E1), E1.mapping, planes=[ids])
    assert [x.ravel().tolist() for x in got.plane_tokens[1]] == [[1, 2, 4], [1, 3, 4]]
    same(got.plane_tokens[0][1], np.array([[1, 2, 3], [7, 8, 9], [10, 11, 12]], np.float16), strict=True)
    assert [x.ravel().tolist() for x in padded.plane_tokens[0]] == [[1, 2, 0, 4], [1, 0, 3, 4]]


def test_token_counts_that_differ() -> None:
    x = [np.array([[11, -11]], np.float32), np.zeros((0, 2), np.float32), rows([31, 32, 33])]
    chosen = [np.array([[2]]), np.zeros((0, 1), np.int64), np.array([[0], [1], [-1]])]
    with LocalMesh(3, 1) as mesh:
        routing = mesh.routing()
        got = mesh.all_to_all_dispatch(x, chosen, np.eye(3, dtype=np.uint16), max_tokens=3, routing=routing)
        assert [t[:, 0].tolist() for t in got.tokens] == [[0, 31, 0, 0], [0, 0, 32, 0], [11, 0, 0, 0]]
        assert got.metadata[1].ravel().tolist() == [2, 0, 1, -1]
        experts = [t[None] for t in got.tokens]
        home = mesh.all_to_all_combine(experts, routing=routing)
        assert [t[0, :, 0].tolist() for t in home.output] == [[11], [], [31, 32, 0]]
        with pytest.raises(TypeError, match="want it, weights or out, which give the number of tokens of this device"):
            mesh.all_to_all_combine(experts, got.metadata, np.eye(3, dtype=np.uint16), max_tokens=3)
        out = AllToAllCombine(tuple(np.empty((1, n, 2), np.float32) for n in (1, 0, 3)))
        mesh.all_to_all_combine(experts, got.metadata, np.eye(3, dtype=np.uint16), max_tokens=3, out=out)
        assert [t[0, :, 0].tolist() for t in out.output] == [[11], [], [31, 32, 0]]


# ---- Arrays ----


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "int8", "float64"])
def test_types_of_rows(dtype: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    with LocalMesh(1, 2) as mesh:
        got = mesh.all_to_all_dispatch(*all_of(E1, kind), E1.mapping)
    for d in range(2):
        assert got.tokens[d].dtype == kind
        same(got.tokens[d].view(np.uint8), rows(E1.tokens[d], kind).view(np.uint8))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("library", ["torch", "jax"])
def test_arrays_of_a_library(library: str, dtype: str) -> None:
    used = pytest.importorskip(library)
    x = np.stack([E1.given(d) for d in range(2)])
    if library == "torch":
        kind, array, x, stack = used.Tensor, used.from_numpy, used.tensor(x).to(getattr(used, dtype)), used.stack
    else:
        kind, array, x, stack = used.Array, used.numpy.asarray, used.numpy.asarray(x, dtype), used.numpy.stack
    chosen, hosts = array(np.stack([E1.indices(d, np.int32) for d in range(2)])), array(E1.mapping)
    weights = array(np.ones((2, 1, 1, 2, 2), np.float32))
    with LocalMesh(1, 2) as mesh:
        routing = mesh.routing()
        got = mesh.all_to_all_dispatch(x, chosen, hosts, layout="expert", routing=routing)
        assert isinstance(got.tokens[0], kind) and got.tokens[0].dtype == x.dtype
        assert got.tokens[0][:, 0].tolist() == [11, 12, 22, 12]
        home = mesh.all_to_all_combine(got.tokens, weights=weights, sum=True, routing=routing)
        assert bool((stack(home.output) == 2 * x).all())
        if library == "torch":
            wrong, why = {"input": x.float().requires_grad_()}, "input of device 0 requires a gradient, which would end"
        else:
            wrong, why = {"out": AllToAllDispatch((x[0], x[1]))}, "tokens of device 0 is a read-only jax"
        with pytest.raises(ValueError, match=why):
            mesh.all_to_all_dispatch(**{"input": x, "expert_indices": chosen, "expert_mapping": hosts, **wrong})


def test_outputs_are_where_the_caller_says() -> None:
    x, chosen = all_of(E1)
    tokens = np.full((2, 1, 2, 2, 2), 7, np.float32)
    out = AllToAllDispatch(tokens, rows_to=[np.zeros(2, np.int64), np.zeros(2, np.int64)])
    with LocalMesh(1, 2) as mesh:
        got = mesh.all_to_all_dispatch(x, chosen, E1.mapping, fill="keep", out=out)
        assert got.metadata is got.present is None
        assert all(np.shares_memory(a, tokens) for a in got.tokens)
        same(tokens[:, 0, :, :, 0], [[[11, 12], [7, 22]], [[11, 7], [21, 22]]])
        assert [list(n) for n in out.rows_to] == [[2, 1], [1, 2]]
        kept = mesh.all_to_all_dispatch(x, chosen, E1.mapping, fill="keep")  # new arrays hold zeros
        same(kept.tokens[0], rows(E1.tokens[0]))
        long = AllToAllDispatch([np.full((9, 2), 7, np.float32) for _ in range(2)])
        mesh.all_to_all_dispatch(x, chosen, E1.mapping, layout="packed", out=long)
    same(long.tokens[1][:, 0], [11, 21, 22, 7, 7, 7, 7, 7, 7])


def test_memory_for_every_device() -> None:
    with LocalMesh(1, 2) as mesh:
        arrays = mesh.alloc((1, 1, 2, 2), np.float32)
        assert [a.shape for a in arrays] == [(1, 1, 2, 2)] * 2
        for d in range(2):
            arrays[d][:] = E1.given(d)
        same(mesh.all_to_all_dispatch(arrays, all_of(E1)[1], E1.mapping).tokens[1], rows(E1.tokens[1]))


def test_arrays_that_dlpack_does_not_take() -> None:
    x, chosen = all_of(E1)
    for array in (*x, *chosen):
        array.flags.writeable = False
    wide = np.zeros((2, 1, 1, 2, 5), np.float32)[..., 1:3]  # rows apart from each other
    wide[:] = np.stack(x)
    with LocalMesh(1, 2) as mesh:
        for given in (x, wide):
            got = mesh.all_to_all_dispatch(given, chosen, E1.mapping)
            same(got.tokens[1], rows(E1.tokens[1]))


def test_libraries_may_be_mixed() -> None:
    torch = pytest.importorskip("torch")
    x, chosen = all_of(E1, index=np.int32)
    ids = [torch.tensor([[[[1], [2]]]]), torch.tensor([[[[3], [4]]]])]
    with LocalMesh(1, 2) as mesh:
        got = mesh.all_to_all_dispatch(x, [torch.from_numpy(c) for c in chosen], E1.mapping, planes=[ids])
        assert all(isinstance(m, np.ndarray) for m in (*got.metadata, *got.plane_tokens[0]))
        same(got.metadata[0], np.array(E1.metadata[0], np.int32), strict=True)
        assert got.plane_tokens[0][0].ravel().tolist() == [1, 2, 0, 4]
        other = mesh.all_to_all_dispatch([torch.from_numpy(a) for a in x], chosen, E1.mapping)
        assert other.metadata[0].dtype == torch.int32


def test_arrays_that_are_dlpack_alone() -> None:
    x, chosen = all_of(E1)
    with LocalMesh(1, 2) as mesh:
        given = [Producer(a) for a in x], [Producer(c) for c in chosen], Producer(E1.mapping)
        got = mesh.all_to_all_dispatch(*given, layout="packed")
        sent = [int(np.from_dlpack(n).sum()) for n in got.rows_from]
    assert [np.from_dlpack(t)[:n, 0].tolist() for t, n in zip(got.tokens, sent, strict=True)] == [
        [11, 12, 22],
        [11, 21, 22],
    ]


# ---- Rejections ----


def corrupted(**more: Any) -> dict[str, Any]:
    x, chosen = all_of(E1)
    return {"input": x, "expert_indices": chosen, "expert_mapping": E1.mapping, **more}


def wrong_choice() -> list[Any]:
    chosen = [E1.indices(0), E1.indices(1)]
    chosen[1][0, 0, 1, 0] = 7
    return chosen


# What Python rejects in its own words, a rejection of the library with each status, and what is found when results are
# made; tests/case has all of the library's.
X = all_of(E1)[0]
DISPATCH_REJECTIONS: list[tuple[str, str, dict[str, Any]]] = [
    ("NULL", "input of device 0 is missing, want a tensor", {"input": None}),
    ("NULL", "input of device 1 is missing, want an array", {"input": [X[0], None]}),
    ("DTYPE", "input is 3, want an array for each device", {"input": 3}),
    ("DTYPE", "input of device 0 is 'x', want an array", {"input": ["x", "y"]}),
    ("SHAPE", "input has 1 arrays, want 2, one for each device", {"input": X[:1]}),
    ("SHAPE", "input has 3 arrays, want 2", {"input": np.zeros((3, 2, 2))}),
    ("VALUE", "is a masked", {"input": [np.ma.masked_equal(x, 11) for x in X]}),
    ("DTYPE", "cannot be read as", {"input": [x.astype(">f4") for x in X]}),
    ("INDEX", "expert_indices of device 1 at token 1, slot 0 is 7, want 0 or more and below 4, or 65535 for none",
     {"expert_indices": wrong_choice()}),
    ("ROUTING", "at expert 0, device 0 is 2, want 0 or 1", {"expert_mapping": 2 * E1.mapping}),
    ("NULL", "expert_mapping of device 0 is missing", {"expert_mapping": None}),
    ("VALUE", "cluster_axis is 2, want None, 0 or 1", {"cluster_axis": 2}),
    ("VALUE", "cluster_axis is 'rows', want None, 0 or 1", {"cluster_axis": "rows"}),
    ("VALUE", "layout is 'flat', want padded, packed or expert", {"layout": "flat"}),
    ("UNSUPPORTED", "memory of device 0 is sharded", {"memory": "sharded"}),
    ("VALUE", "num_planes of device 0 is 4, want 0 to 3", {"planes": [X] * 4}),
    ("VALUE", "want has 'tokens', which is none of metadata, present", {"want": ["tokens"]}),
    ("VALUE", "src of device 0 is given for layout padded", {"want": ["src"]}),
    ("NULL", "routing is NULL and to be reused, want a routing", {"reuse_routing": True}),
    ("DTYPE", "routing is 5, want one of this mesh", {"routing": 5}),
    ("DTYPE", "out is a ndarray, want an AllToAllDispatch", {"out": X[0]}),
    ("CAPACITY", "tokens of device 0 has 2 rows, want at least 3",
     {"layout": "packed", "out": AllToAllDispatch(np.zeros((2, 2, 2), np.float32))}),
]  # fmt: skip


@pytest.mark.parametrize(("status", "sentence", "wrong"), DISPATCH_REJECTIONS)
def test_rejected_dispatch(status: str, sentence: str, wrong: dict[str, Any]) -> None:
    with LocalMesh(1, 2) as mesh:
        with pytest.raises(switchyard.Error) as raised:
            mesh.all_to_all_dispatch(**corrupted(**wrong))
        assert raised.value.status.name == status
        assert str(raised.value).startswith("all_to_all_dispatch: ")
        assert sentence in str(raised.value)
        mesh.all_to_all_dispatch(**corrupted())  # the mesh goes on


def test_rejected_calls_write_nothing() -> None:
    out = AllToAllDispatch(np.full((2, 4, 2), 7, np.float32), metadata=np.full((2, 4, 2), 7, np.uint16))
    with LocalMesh(1, 2) as mesh, pytest.raises(IndexError):
        mesh.all_to_all_dispatch(**corrupted(expert_indices=wrong_choice(), out=out))
    assert (out.tokens == 7).all()
    assert (out.metadata == 7).all()


def test_rejected_outputs() -> None:
    locked = np.zeros((2, 4, 2), np.float32)
    locked.flags.writeable = False
    with LocalMesh(1, 2) as mesh:
        with pytest.raises(ValueError, match="tokens of device 0 is a read-only numpy array, want one that can be"):
            mesh.all_to_all_dispatch(**corrupted(out=AllToAllDispatch(locked)))
        one = np.zeros((1, 2, 2, 2), np.float32)
        with pytest.raises(ValueError, match="tokens of device 1 overlaps tokens of device 0 in memory"):
            mesh.all_to_all_dispatch(**corrupted(out=AllToAllDispatch([one, one])))


def test_rejected_combine() -> None:
    results = [rows(E8.results[d]) for d in range(2)]
    table = [np.array(E8.metadata[d], np.int32) for d in range(2)]
    with LocalMesh(1, 2) as mesh:
        for wrong, kind, sentence in (
            ({"expert_metadata": [table[0], table[0][:, ::-1].copy()]}, RuntimeError, "devices 0 and 1 disagree"),
            ({"expert_metadata": None}, TypeError, "expert_metadata of device 0 is missing"),
            ({"routing": mesh.routing()}, RuntimeError, "routing of device 0 is empty, want one that a dispatch"),
            ({"order": "up"}, ValueError, "order is 'up', want concat or flat"),
        ):
            given = {"input": results, "expert_metadata": table, "expert_mapping": E8.mapping, **wrong}
            with pytest.raises(kind) as raised:
                mesh.all_to_all_combine(**given)
            assert isinstance(raised.value, switchyard.Error)
            assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"rows": 0, "cols": 1}, "mesh.rows is 0, want 1 to 65536"),
        ({"rows": 1, "cols": -2}, "mesh.cols is -2"),
        ({"rows": 300, "cols": 300}, "mesh.cols is 300, want 1 or more, and at most 65536 devices"),
        ({"rows": "2", "cols": 1}, "rows is '2', want an integer of 32 bits"),
        ({"rows": 2**40, "cols": 1}, "rows is 1099511627776, want an integer of 32 bits"),
        ({"rows": 1, "cols": 1, "max_inflight": 129}, "max_inflight is 129, want 0 to 128"),
    ],
)
def test_rejected_meshes(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError) as raised:
        LocalMesh(**wrong)
    assert isinstance(raised.value, switchyard.Error)
    assert sentence in str(raised.value)


def test_calls_that_the_binding_rejects() -> None:
    with LocalMesh(1, 2) as mesh:
        pointer = mesh._handle.pointer
        for sentence in ("f: x is 5, want 6", "f: x is long" + 1000 * ", very long"):
            assert core.mesh_reject(pointer, switchyard.Status.DTYPE, sentence) == switchyard.Status.DTYPE
            said = core.mesh_last(pointer)[0]
            assert sentence.startswith(said)
            assert len(said) >= min(len(sentence), 400)
        for wrong in ((5, 5), ("x", "y"), (5, "x\0y"), (5,)):
            with pytest.raises((TypeError, ValueError)):
                core.mesh_reject(pointer, *wrong)
        mesh.all_to_all_dispatch(**corrupted())


# ---- The header ----


@pytest.mark.parametrize("name", ["dispatch", "combine"])
def test_parameters_are_the_fields(name: str) -> None:
    table = _binding.fields(f"all_to_all_{name}")
    parameters = inspect.signature(getattr(LocalMesh, f"start_{name}")).parameters
    outputs = {"dispatch": AllToAllDispatch, "combine": AllToAllCombine}[name]._fields
    plain = {field.partition("[")[0] for field in table} - {*outputs, "num_planes"}
    assert {*parameters} == {"self", "want", "out", *plain}
    assert inspect.signature(getattr(LocalMesh, f"all_to_all_{name}")).parameters == parameters


@pytest.mark.parametrize("layout", ["padded", "packed", "expert"])
@pytest.mark.parametrize("format", ["fp8_128", "mxfp8", "int8_token"])
def test_codes_are_those_of_quantize_rows(layout: str, format: str) -> None:
    """A dispatch with row_format is one of codes, with their scales as a plane."""
    rng = np.random.default_rng(5)
    rows = tuple(rng.standard_normal((3, 256)).astype(np.float32) for _ in range(2))
    indices = tuple(rng.integers(0, 4, (3, 2)).astype(np.int32) for _ in range(2))
    mapping = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.uint16)
    made = [switchyard.quantize_rows(x, format=format) for x in rows]
    with LocalMesh(1, 2) as mesh:
        fused = mesh.all_to_all_dispatch(rows, indices, mapping, layout=layout, row_format=format)
        apart = mesh.all_to_all_dispatch(
            tuple(m.codes for m in made), indices, mapping, layout=layout, planes=[tuple(m.scales for m in made)]
        )
        assert apart.scale_tokens is None or all(x is None for x in apart.scale_tokens)
    for d in range(2):
        assert (fused.tokens[d].dtype, fused.tokens[d].shape) == (apart.tokens[d].dtype, apart.tokens[d].shape)
        same(fused.tokens[d].view(np.uint8), apart.tokens[d].view(np.uint8))
        same(fused.scale_tokens[d], apart.plane_tokens[0][d], strict=True)


def test_codes_come_home() -> None:
    """E10, and its sums."""
    made = [codes(np.nan_to_num(rows(E8.results[d])[..., 0])) for d in range(E8.devices)]
    with LocalMesh(*E8.mesh) as mesh:
        routing = mesh.routing()
        mesh.all_to_all_dispatch(*all_of(E8), E8.mapping, routing=routing)
        given = {"input": tuple(m[0] for m in made), "input_scales": tuple(m[1] for m in made), "routing": routing}
        home = mesh.all_to_all_combine(**given, row_format="int8_token")
        total = mesh.all_to_all_combine(**given, row_format="int8_token", sum=True)
        out = AllToAllCombine(tuple(np.empty((1, 1, 2, 2), np.float32) for _ in range(2)))
        mesh.all_to_all_combine(**given, row_format="int8_token", sum=True, out=out)
    assert total.output_scales is None
    for d in range(E8.devices):
        want, scales = codes(E8.output[d])
        same(home.output[d], want, strict=True)
        same(home.output_scales[d], scales, strict=True)
        sums = np.array(E8.output[d], np.float32).sum(axis=0)  # [B,S] over slots
        same(out.output[d], rows(sums)[:, None], strict=True)
        same(np.asarray(total.output[d], np.float32), rows(sums)[:, None])


def test_what_belongs_to_a_process_is_not_copied() -> None:
    with LocalMesh(1, 1) as mesh:
        request = mesh.start_dispatch(np.zeros((1, 1, 2)), np.zeros((1, 1, 1), np.int32), np.ones((1, 1), np.uint16))
        for part in (mesh, mesh.routing(), request):
            for made in (pickle.dumps, copy.copy):
                with pytest.raises(TypeError, match=f"^{type(part).__name__}: it is of this process alone, want one"):
                    made(part)
        request.wait()
