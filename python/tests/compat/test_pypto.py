"""compat.pypto: the calls of PyPTO's documentation, every rejection in order, and programs around the gathers:
functions that are recorded and run, kernels, loops, assemblies, views.
"""

import collections
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


def test_an_empty_holder_runs_as_documented() -> None:
    param = pypto.tensor([6, 4], pypto.DT_FP32)
    indices = pypto.tensor([1, 3], pypto.DT_INT32)
    block_table = pypto.tensor([1, 3], pypto.DT_INT32)
    result = pypto.experimental.gather_in_ub(param, indices, block_table, 2, -2)
    assert result.numpy().tolist() == [[0.0] * 4] * 3


def test_module_under_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypto", pypto)
    monkeypatch.setitem(sys.modules, "pypto.experimental", experimental)
    space = {}
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
    wide = pypto.view(pypto.from_numpy(rows(4, 2)), [4, 3], [0, 0], valid_shape=[4, 2])
    assert experimental.gather_in_l1(wide, live, i32(0, 1), 2, 3, False, True).shape == [4, 3]


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


# Every rejection, each argument corrupted together with all that are validated after it: the first must win.
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
    call = {
        "param": rows(6),
        "indices": i32(0, 4, 3),
        "block_table": i32(0, 2, 1),
        "block_size": 2,
        "axis": -2,
        "pad": "error",
    }
    for _, _, corrupted in reversed(CHAIN[first:]):
        call.update(corrupted)
    with pytest.raises(pypto.Error) as caught:
        experimental.gather_in_ub(**call)
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


# ---- Programs ----


def gathered(rows: Any, indices: Any, table: Any, block_size: int) -> list[Any]:
    return [rows[int(table[t // block_size]) * block_size + t % block_size] for t in map(int, indices)]


@pypto.options(pass_options={"enable_slice": True})
def program(tokens: int = 8) -> Any:
    """A gather as PyPTO's own test writes it: recorded with tensors that hold nothing, then run with data."""
    torch = pytest.importorskip("torch")
    pypto.runtime._device_init()
    draw = torch.Generator().manual_seed(3)
    buffer = torch.randn((32, 4), generator=draw).half()
    table = torch.randint(0, 8, (1, 3), generator=draw, dtype=torch.int32)
    topk = torch.randint(0, 12, (1, tokens), generator=draw, dtype=torch.int32)
    src = pypto.tensor([32, 4], pypto.DT_FP16, "src")
    offsets = pypto.tensor([1, tokens], pypto.DT_INT32, "offsets")
    pages = pypto.tensor([1, 3], pypto.DT_INT32, "page_table")
    dst = pypto.tensor([tokens, 4], pypto.DT_FP16, "dst")
    with pypto.function("MAIN", src, offsets, pages, dst):
        for _ in pypto.loop(1, name="b0", idx_name="bidx"):
            pypto.set_vec_tile_shapes(32, 64)
            rows = pypto.view(src, [32, 4], [0, 0], valid_shape=[32, 4])
            chosen = pypto.view(offsets, [1, tokens], [0, 0], valid_shape=[1, tokens])
            tmp = pypto.experimental.gather_in_ub(rows, chosen, pages, 4, -2)
            pypto.assemble(tmp, [0, 0], dst)
            del rows, chosen
    for shift in (0, 100):  # it can run again, on other data
        result = torch.zeros((tokens, 4), dtype=torch.float16)
        given = [pypto.from_torch(one, "any") for one in (buffer + shift, topk, table, result)]
        pypto.runtime._device_run_once_data_from_host(*given)
        want = torch.stack(gathered(buffer + shift, topk[0], table[0], 4))
        assert torch.equal(result, want)
    pypto.runtime._device_fini()
    pypto.set_vec_tile_shapes()
    return True


def test_a_recorded_program() -> None:
    assert program()


def test_a_program_of_other_arguments_is_rejected() -> None:
    a, b = pypto.tensor([2, 2], pypto.DT_FP32), pypto.tensor([2, 2], pypto.DT_FP32)
    with pypto.function("MAIN", a, b):
        pypto.assemble(a, [0, 0], b)
    run = pypto.runtime._device_run_once_data_from_host
    two = pypto.from_numpy(np.ones((2, 2), np.float32))
    with pytest.raises(pypto.Error, match="MAIN takes 2 tensors, want as many, not 1"):
        run(two)
    with pytest.raises(pypto.Error, match=r"tensor 1 of MAIN is \[3, 2\] DT_FP32, want \[2, 2\] DT_FP32"):
        run(two, pypto.from_numpy(np.ones((3, 2), np.float32)))
    out = pypto.from_numpy(np.zeros((2, 2), np.float32))
    run(two, out)
    assert out.numpy().tolist() == [[1, 1], [1, 1]]
    with pytest.raises(pypto.Error, match="inside of another"), pypto.function("A", a), pypto.function("B", b):
        pass


def test_a_tail_is_cut_again_when_a_program_runs() -> None:
    x, out = pypto.tensor([3, 2], pypto.DT_FP32), pypto.tensor([4, 2], pypto.DT_FP32)
    with pypto.function("MAIN", x, out):
        for i in pypto.loop(0, 4, 2):
            part = pypto.view(x, [2, 2], [i, 0], valid_shape=[min(2, 3 - i), 2])
            pypto.assemble(part, [i, 0], out)
    data, made = pypto.from_numpy(rows(3, 2)), pypto.from_numpy(np.full((4, 2), 9, np.float32))
    pypto.runtime._device_run_once_data_from_host(data, made)
    assert made.numpy().tolist() == [[0, 1], [10, 11], [20, 21], [9, 9]]  # past the valid rows nothing is written


def test_a_kernel() -> None:
    torch = pytest.importorskip("torch")

    @pypto.frontend.jit(runtime_options={"run_mode": 0})
    def gather(
        cache: pypto.Tensor[[...], pypto.DT_BF16],
        indices: pypto.Tensor[[...], pypto.DT_INT32],
        table: pypto.Tensor[[...], pypto.DT_INT32],
        out: pypto.Tensor[[...], pypto.DT_BF16],
        block_size: int,
    ) -> None:
        assert isinstance(cache, pypto.Tensor)
        out[:] = pypto.experimental.gather_in_ub(cache, indices, table, block_size, -2)

    cache = torch.tensor(rows(6, 4)).bfloat16()
    indices, table = torch.tensor(i32(0, 4, 3)), torch.tensor(i32(0, 2, 1))
    out = torch.zeros(3, 4, dtype=torch.bfloat16)
    assert gather(cache, indices, table, out, 2) is None
    assert torch.equal(out, cache[[0, 2, 5]])

    @pypto.frontend.jit
    def returned(cache: Any, indices: Any, table: Any) -> Any:
        moved = pypto.tensor([3, 4], pypto.DT_BF16)
        moved.move(pypto.experimental.gather_in_ub(cache, indices, table, 2, -2))
        return moved

    made = returned(cache, indices, table)
    assert made.dtype == torch.bfloat16
    assert torch.equal(made, cache[[0, 2, 5]])
    pair = collections.namedtuple("pair", "first second")
    both = pypto.frontend.jit(lambda one: pair(one, 3))(cache)
    assert (both.first is cache, both.second) == (True, 3)
    with pytest.raises(TypeError, match="jit"):
        pypto.frontend.jit(3)


def test_loops() -> None:
    assert list(pypto.loop(3, name="a", idx_name="i")) == [0, 1, 2]
    assert list(pypto.loop(1, 7, 2, parallel=True, submit_before_loop=True)) == [1, 3, 5]
    with pytest.raises(TypeError, match="order"):
        list(pypto.loop(3, order="any"))


def test_options_are_names_only() -> None:
    with pypto.options(name="scope", vec_tile_shapes=[1, 2], debug_options={"any": 1}):
        pass
    with pytest.raises(TypeError, match="precision"):
        pypto.options(precision="low")


# ---- Assemblies ----


def test_assemble() -> None:
    x, y = pypto.from_numpy(np.ones((2, 2), np.float32)), pypto.from_numpy(np.full((2, 2), 2, np.float32))
    out = pypto.tensor([4, 4], pypto.DT_FP32)
    assert pypto.assemble(x, [0, 0], out) is None
    pypto.assemble([(x, [0, 2]), (y, [2, 2])], out, parallel=True)
    want = np.zeros((4, 4), np.float32)
    want[:2] = 1
    want[2:, 2:] = 2
    np.testing.assert_array_equal(out.numpy(), want)
    for offsets, code in [([3, 0], "BAD_SHAPE"), ([0], "BAD_RANK"), ([-1, 0], "BAD_SHAPE")]:
        with pytest.raises(pypto.Error) as caught:
            pypto.assemble(x, offsets, out)
        assert caught.value.code == code
    with pytest.raises(pypto.Error) as caught:
        pypto.assemble([(x, [0, 0]), (pypto.tensor([2, 2], pypto.DT_FP16), [0, 0])], out)
    assert caught.value.code == "BAD_DTYPE"
    np.testing.assert_array_equal(out.numpy(), want)  # a rejected call writes nothing


def test_assemble_between_libraries() -> None:
    torch = pytest.importorskip("torch")
    bits = np.array([[0x7FC1, 0xFF81], [0x8000, 0x0001]], np.uint16)
    out = torch.zeros(2, 2, dtype=torch.bfloat16)
    pypto.assemble(pypto.from_numpy(bits, dtype=pypto.DT_BF16), [0, 0], pypto.from_torch(out))
    assert out.view(torch.int16).numpy().view(np.uint16).tolist() == bits.tolist()
    back = pypto.tensor([2, 2], pypto.DT_BF16)
    pypto.assemble(pypto.from_torch(out), [0, 0], back)
    assert back.numpy().tolist() == bits.tolist()
    for row in (pypto.from_numpy(np.arange(4)[None]), pypto.from_torch(torch.arange(4)[None])):
        pypto.assemble(pypto.view(row, [1, 3], [0, 0]), [0, 1], row)  # a part of the tensor itself
        assert row.numpy().tolist() == [[0, 0, 1, 2]]


# ---- Views ----


def tensor_of(library: str, values: np.ndarray) -> pypto.Tensor:
    if library == "numpy":
        return pypto.from_numpy(values)
    return pypto.from_torch(pytest.importorskip("torch").from_numpy(values))


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_view_past_the_end(library: str) -> None:
    values = np.array([[1, 1, 2, 2, 3, 3, 4, 4]] * 2 + [[1, 1, 2, 2, 5, 5, 6, 6]] * 2, np.float32)
    whole = tensor_of(library, values)
    part = pypto.view(whole, [4, 4], [2, 4], valid_shape=[2, 4])
    assert part.shape == [4, 4]
    assert part.valid_shape == (2, 4)
    assert np.asarray(part.array).tolist() == [[5, 5, 6, 6], [5, 5, 6, 6], [0] * 4, [0] * 4]
    for shape, offsets, valid in [([4, 4], [2, 4], None), ([4, 4], [2, 4], [3, 4]), ([4, 4], [5, 0], [0, 4])]:
        with pytest.raises(pypto.Error) as caught:
            pypto.view(whole, shape, offsets, valid_shape=valid)
        assert caught.value.code == "BAD_SHAPE"


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_view_of_the_bits(library: str) -> None:
    values = np.array([[0.9405094, 0.20237109], [0.99819463, 0.13246714]], np.float32)
    whole = tensor_of(library, values)
    narrow = pypto.view(whole, dtype=pypto.DT_INT8)
    assert narrow.shape == [2, 8]
    assert narrow.dtype == pypto.DT_INT8
    assert np.asarray(narrow.array).tolist() == values.view(np.int8).tolist()
    assert pypto.view(narrow, dtype=pypto.DT_BF16).shape == [2, 4]
    back = pypto.view(pypto.view(narrow, dtype=pypto.DT_BF16), dtype=pypto.DT_FP32)
    assert np.asarray(back.array).tolist() == values.tolist()
    assert whole.view([1, 2], [1, 0]).shape == [1, 2]
    with pytest.raises(pypto.Error, match="3 elements of 1 bytes, want a multiple of 4"):
        pypto.view(pypto.tensor([2, 3], pypto.DT_INT8), dtype=pypto.DT_FP32)
    with pytest.raises(pypto.Error, match="DT_FP4_E2M1"):
        pypto.view(whole, dtype=pypto.DT_FP4_E2M1)
    with pytest.raises(pypto.Error, match="view: shape is None"):
        pypto.view(whole)


def test_results_are_of_the_library_of_the_cache() -> None:
    torch = pytest.importorskip("torch")
    cache = torch.tensor(rows(6, 4)).bfloat16()
    for indices, table in [(i32(0, 4), i32(0, 2, 1)), (torch.tensor(i32(0, 4)), torch.tensor(i32(0, 2, 1)))]:
        for given in (cache, pypto.from_torch(cache)):
            made = experimental.gather_in_ub(given, indices, table, 2, -2)
            array = made.array if isinstance(made, pypto.Tensor) else made
            assert array.dtype == torch.bfloat16
            assert torch.equal(array, cache[[0, 2]])
            assert not isinstance(made, pypto.Tensor) or (made.dtype, made.numpy().dtype) == (pypto.DT_BF16, np.uint16)
    with pytest.raises(pypto.Error, match="from_torch: tensor is not contiguous"):
        pypto.from_torch(cache.T)
