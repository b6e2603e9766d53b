"""compat.pypto: the calls of PyPTO's documentation, its views, and every rejection in order."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from switchyard.compat import pypto
from switchyard.compat.pypto import experimental


def rows(count: int, width: int = 4, dtype: str = "float32") -> np.ndarray:
    return np.array([[10 * row + column for column in range(width)] for row in range(count)], dtype)


def i32(*values: int) -> np.ndarray:
    return np.array([values], np.int32)


def filled(shape: list[int], dtype: pypto.DataType, values: np.ndarray) -> pypto.Tensor:
    made = pypto.tensor(shape, dtype, "filled")
    made[:] = values
    return made


@pytest.mark.parametrize("dtype", [pypto.DT_FP32, pypto.DT_FP16])
def test_the_documented_call(dtype: pypto.DataType) -> None:
    param = filled([6, 4], dtype, rows(6))
    indices = filled([1, 3], pypto.DT_INT32, i32(0, 4, 3))
    block_table = filled([1, 3], pypto.DT_INT32, i32(0, 2, 1))
    block_size = 2
    axis = -2
    result = pypto.experimental.gather_in_ub(param, indices, block_table, block_size, axis)
    assert isinstance(result, pypto.Tensor)
    assert result.dtype == dtype
    assert result.shape == [3, 4]
    assert result.numpy().tolist() == [[0, 1, 2, 3], [20, 21, 22, 23], [50, 51, 52, 53]]


def test_an_empty_holder_runs_as_documented() -> None:
    param = pypto.tensor([6, 4], pypto.DT_FP32)
    indices = pypto.tensor([1, 3], pypto.DT_INT32)
    block_table = pypto.tensor([1, 3], pypto.DT_INT32)
    result = pypto.experimental.gather_in_ub(param, indices, block_table, 2, -2)
    assert result.numpy().tolist() == [[0.0] * 4] * 3


def test_module_under_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypto", pypto)
    monkeypatch.setitem(sys.modules, "pypto.experimental", experimental)
    space: dict[str, object] = {}
    exec("import pypto\nfrom pypto.experimental import gather_in_l1, gather_in_ub\n", space)
    assert space["gather_in_ub"] is experimental.gather_in_ub


# Rows of the cache and their width, indices, blocks, their size, options, and the rows that are gathered.
GATHERS: list[tuple[Any, ...]] = [
    (8, 4, (0, 2, 5, 3), (2, 0, 1), 2, {}, [[40, 41, 42, 43], [0, 1, 2, 3], [30, 31, 32, 33], [10, 11, 12, 13]]),
    (7, 2, (3, 0, 8, 5, 9, 0), (2, 0, 1, 2), 3, {}, [[0, 1], [60, 61], [50, 51], [20, 21], [60, 61], [60, 61]]),
    (4, 2, (1, -1), (0, 1), 2, {"pad": "zero"}, [[10, 11], [0, 0]]),
    (4, 2, (1, -1), (0, 1), 2, {"pad": "skip"}, [[10, 11], [0, 0]]),
]


@pytest.mark.parametrize(("count", "width", "indices", "table", "size", "options", "want"), GATHERS)
def test_gather_in_ub(count: int, width: int, indices: Any, table: Any, size: int, options: Any, want: Any) -> None:
    got = experimental.gather_in_ub(rows(count, width), i32(*indices), i32(*table), size, -2, **options)
    assert isinstance(got, np.ndarray)  # an array for an array
    assert got.tolist() == want


# Numbers outside, some of which wrap in 32 bits: code, position, value and limit.
OUTSIDE: list[tuple[Any, ...]] = [
    (7, i32(3, 0, 1, -1), i32(2, 0, 1, 2), 3, ("ROW_RANGE", 0, 2, 7, 7)),
    (16, i32(0, 4), i32(0, 1073741825), 4, ("BLOCK_RANGE", 0, 1, 1073741825, 4)),
    (16, np.array([[0, 4294967299]], np.int64), i32(0, 1), 4, ("INDEX_RANGE", 0, 1, 4294967299, 8)),
    (4, i32(0, -1), i32(0, 1), 2, ("INDEX_RANGE", 0, 1, -1, 4)),
]


@pytest.mark.parametrize(("count", "indices", "table", "size", "fault"), OUTSIDE)
def test_outside(count: int, indices: Any, table: Any, size: int, fault: Any) -> None:
    with pytest.raises(IndexError, match="gather_in_ub: ") as caught:
        experimental.gather_in_ub(rows(count, 2), indices, table, size, -2)
    error = caught.value
    assert isinstance(error, pypto.Error)
    assert (error.code, error.batch, error.pos, error.value, error.limit) == fault


@pytest.mark.parametrize("flags", [(False, False), (False, True), (True, False), (True, True)])
def test_gather_in_l1(flags: tuple[bool, bool]) -> None:
    src = np.arange(16, dtype=np.float32).reshape(4, 4)
    for indices, size, want in ((i32(3, 0, 3), 2, [[4, 5], [8, 9], [4, 5]]), (i32(3), 4, [[4, 5, 6, 7]])):
        assert pypto.experimental.gather_in_l1(src, indices, i32(1, 0), 2, size, *flags).tolist() == want


def test_valid_shape_of_indices_says_how_many_count() -> None:
    indices = pypto.from_numpy(i32(1, 3, 99, -7))
    live = pypto.view(indices, [1, 4], [0, 0], valid_shape=[1, 2])
    got = experimental.gather_in_ub(pypto.from_numpy(rows(4, 2)), live, i32(0, 1), 2, -2)
    assert got.numpy().tolist() == [[10, 11], [30, 31], [0, 0], [0, 0]]
    assert got.valid_shape == (2, 2)


def test_valid_shape_of_a_cache_trims_it() -> None:
    cache = pypto.view(pypto.from_numpy(rows(6)), [6, 4], [0, 0], valid_shape=[4, 3])
    got = experimental.gather_in_ub(cache, i32(3), i32(0, 1, 2), 2, -2)
    assert got.numpy().tolist() == [[30, 31, 32, 0]]  # the shape is that of the view, as in PyPTO
    assert got.valid_shape == (1, 3)
    with pytest.raises(pypto.Error) as caught:  # a row past the valid ones does not exist
        experimental.gather_in_ub(cache, i32(4), i32(0, 1, 2), 2, -2)
    assert caught.value.code == "BLOCK_RANGE"


def test_view_is_a_slice_of_the_same_memory() -> None:
    whole = pypto.from_numpy(rows(6))
    part = pypto.view(whole, [2, 2], [3, 1])
    assert part.numpy().tolist() == [[31, 32], [41, 42]]
    part[0, 0] = -1
    assert whole.numpy()[3, 1] == -1
    got = experimental.gather_in_ub(part, i32(1, 0), i32(0), 2, -2)
    assert got.numpy().tolist() == [[41, 42], [-1, 32]]


def test_bits_survive() -> None:
    bits = np.array([[0x7FC1, 0xFF81, 0x8000, 0x0001]], np.uint16)
    param = pypto.from_numpy(bits, dtype=pypto.DT_BF16)
    got = experimental.gather_in_ub(param, i32(0), i32(0), 1, -2)
    assert got.dtype == pypto.DT_BF16
    assert got.numpy().tolist() == bits.tolist()


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    param = torch.tensor(rows(6)).to(torch.bfloat16)
    indices, table = torch.tensor([[0, 4, 3]]), torch.tensor([[0, 2, 1]], dtype=torch.int32)
    got = experimental.gather_in_ub(pypto.from_torch(param, "kv"), pypto.from_torch(indices), table, 2, -2)
    assert got.dtype == pypto.DT_BF16
    assert torch.equal(got.array, param[[0, 2, 5]])
    assert got.numpy().dtype == np.uint16
    assert torch.equal(experimental.gather_in_ub(param, indices, table, 2, -2), param[[0, 2, 5]])
    with pytest.raises(pypto.Error, match="from_torch: tensor is not contiguous"):
        pypto.from_torch(param.T)


def test_tile_shapes_are_kept_and_change_nothing() -> None:
    before = experimental.gather_in_ub(rows(6), i32(0, 4, 3), i32(0, 2, 1), 2, -2).tobytes()
    pypto.set_vec_tile_shapes(1, 1 << 40)
    assert pypto.get_vec_tile_shapes() == [1, 1 << 40]
    assert experimental.gather_in_ub(rows(6), i32(0, 4, 3), i32(0, 2, 1), 2, -2).tobytes() == before
    with pytest.raises(pypto.Error) as caught:
        pypto.set_vec_tile_shapes(-1)
    assert caught.value.code == "BAD_OPTION"
    pypto.set_vec_tile_shapes()


def test_type_numbers() -> None:
    names = """INT4 INT8 INT16 INT32 INT64 FP8 FP16 FP32 BF16 HF4 HF8 UINT8 UINT16 UINT32 UINT64 BOOL DOUBLE FP8E4M3
               FP8E5M2 FP8E8M0 FP4_E2M1X2 FP4_E1M2X2 FP4_E2M1 FP4_E1M2 BOTTOM""".split()
    assert [t.name for t in pypto.DataType] == [f"DT_{name}" for name in names]
    assert [int(t) for t in pypto.DataType] == list(range(25))
    assert all(getattr(pypto, t.name) is t for t in pypto.DataType)


# Every rejection, each argument spoiled together with all that are validated after it: the first must win.
CHAIN = [
    ("NULL_POINTER", "gather_in_ub: param is missing, want a tensor", {"param": None}),
    (
        "BAD_DTYPE",
        "gather_in_ub: indices is DT_FP32, want DT_INT32 or DT_INT64",
        {"indices": np.zeros((3,), np.float32)},
    ),
    (
        "BAD_DTYPE",
        "gather_in_ub: block_table is DT_UINT32, want DT_INT32 or DT_INT64",
        {"block_table": np.zeros(3, "u4")},
    ),
    ("BAD_RANK", "gather_in_ub: param has rank 3, want 2", {"param": np.zeros((2, 0, 4))}),
    ("BAD_SHAPE", "gather_in_ub: indices has shape [3, 1], want [1, 1]", {"indices": np.zeros((3, 1), "i4")}),
    (
        "EMPTY",
        "gather_in_ub: block_table has shape [1, 0], want no extent of 0",
        {"block_table": np.zeros((1, 0), "i4")},
    ),
    ("BAD_AXIS", "gather_in_ub: axis is 0, want -2", {"axis": 0}),
    ("BAD_BLOCK_SIZE", "gather_in_ub: block_size is 0, want an integer of 1 or more", {"block_size": 0}),
    ("BAD_OPTION", "gather_in_ub: pad is 'drop', want error, zero or skip", {"pad": "drop"}),
    ("INDEX_RANGE", "gather_in_ub: ", {"indices": i32(0, 6, 3)}),
]


@pytest.mark.parametrize("first", range(len(CHAIN)))
def test_rejections_in_order(first: int) -> None:
    call: dict[str, object] = {
        "param": rows(6),
        "indices": i32(0, 4, 3),
        "block_table": i32(0, 2, 1),
        "block_size": 2,
        "axis": -2,
        "pad": "error",
    }
    for _, _, spoiled in reversed(CHAIN[first:]):
        call.update(spoiled)
    with pytest.raises(pypto.Error) as caught:
        experimental.gather_in_ub(**call)  # type: ignore[arg-type]
    code, sentence, _ = CHAIN[first]
    assert caught.value.code == code
    assert str(caught.value).startswith(sentence)
    kinds = {"BAD_DTYPE": TypeError, "INDEX_RANGE": IndexError}
    assert isinstance(caught.value, kinds.get(code, ValueError))


def test_l1_rejects_columns_it_has_not() -> None:
    for size in (0, 5):
        with pytest.raises(pypto.Error, match=rf"gather_in_l1: size is {size}, want 1 to 4"):
            experimental.gather_in_l1(rows(6), i32(0), i32(0), 2, size, False, False)


def test_view_rejects_what_leaves_the_tensor() -> None:
    whole = pypto.tensor([6, 4], pypto.DT_FP32)
    for shape, offsets, code in [([6, 4], [1, 0], "BAD_SHAPE"), ([6], [0], "BAD_RANK"), ([2, 2], [-1, 0], "BAD_SHAPE")]:
        with pytest.raises(pypto.Error) as caught:
            pypto.view(whole, shape, offsets)
        assert caught.value.code == code
    with pytest.raises(pypto.Error, match="valid_shape"):
        pypto.view(whole, [2, 2], [0, 0], valid_shape=[3, 2])
