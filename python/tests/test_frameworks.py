"""Arrays of NumPy, PyTorch, JAX and of nobody: the same bits from each, results of the caller's library, no copies,
and what an array may not be.
"""

import contextlib
import ctypes
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from calls import BFLOAT16, PAGED, Case, Producer, call, every, numbers_of, same_bits, taken

import switchyard
from switchyard import Error, _arrays
from switchyard._binding import core

# ---- Libraries ----


def foreign(array: Any) -> bool:
    """Whether NumPy has its element type from ml_dtypes."""
    return bool(array.dtype.isbuiltin != 1)


class Library:
    """How one library takes over an array of NumPy and gives it back, to the bit."""

    name = "numpy"
    kind: Any = np.ndarray

    def take(self, array: Any) -> Any:
        return array.copy()

    def give(self, array: Any) -> Any:
        return array

    def wide(self) -> Any:
        """Within it, the library's arrays may have 64 bits."""
        return contextlib.nullcontext()


class Torch(Library):
    name = "torch"

    def __init__(self) -> None:
        self.torch = pytest.importorskip("torch")
        self.kind = self.torch.Tensor

    def take(self, array: Any) -> Any:
        if not foreign(array):
            return self.torch.from_numpy(array.copy())
        if "float8" in array.dtype.name and not hasattr(self.torch.Tensor, "__dlpack_c_exchange_api__"):
            pytest.skip("this PyTorch exports no 8-bit floats")
        unsigned = self.torch.from_numpy(array.view(f"u{array.itemsize}").copy())
        return unsigned.view(getattr(self.torch, array.dtype.name))

    def give(self, array: Any) -> Any:
        name = str(array.dtype).removeprefix("torch.")
        if name == "bfloat16" or name.startswith("float8"):
            unsigned = self.torch.uint16 if name == "bfloat16" else self.torch.uint8
            return array.view(unsigned).numpy().view(name)
        return array.numpy()


class Jax(Library):
    name = "jax"

    def __init__(self) -> None:
        jax = pytest.importorskip("jax")
        self._x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
        self.jnp, self.kind = jax.numpy, jax.Array

    def take(self, array: Any) -> Any:
        with self.wide():
            return self.jnp.array(array)

    def wide(self) -> Any:
        return self._x64(True)

    def give(self, array: Any) -> Any:
        return np.asarray(array)


class Alone(Library):
    """Results are tensors of the binding, which any library takes over."""

    name = "dlpack"

    def __init__(self) -> None:
        self.kind = core.Tensor

    def take(self, array: Any) -> Any:
        by_torch = foreign(array) or array.dtype == bool  # which NumPy, or an old one, does not export
        return Producer(Torch().take(array) if by_torch else array.copy())

    def give(self, array: Any) -> Any:
        try:
            return np.from_dlpack(array)
        except (BufferError, RuntimeError):  # a type that NumPy does not import
            torch = Torch()
            return torch.give(torch.torch.from_dlpack(array))


def installed() -> Iterator[Library]:
    for kind in (Library, Torch, Jax):
        with contextlib.suppress(pytest.skip.Exception):
            yield kind()


@pytest.fixture(params=[Library, Torch, Jax, Alone], ids=lambda kind: kind.name)
def library(request: pytest.FixtureRequest) -> Any:
    return request.param()


# ---- Every operator ----


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in every()])
def test_the_same_bits_from_every_library(case: Case, library: Library) -> None:
    """Results are arrays of the library the arguments are of, with the bits NumPy's have, new or given."""
    if library.name == "jax" and case.changes:
        with pytest.raises(
            ValueError, match=rf"^{case.operator}: (cache|dst) is a read-only jaxlib array, want one that can"
        ):
            call(case, taken(case, library.take))
        return
    want = call(case, taken(case, Library().take))
    given = taken(case, library.take)
    with library.wide():
        got = call(case, given)
    assert len(got) == len(want)
    for ours, numpys, field in zip(got, want, getattr(got, "_fields", case.changes or (case.operator,)), strict=True):
        assert (ours is None) == (numpys is None), field
        if ours is None:
            continue
        assert case.changes or isinstance(ours, library.kind), field
        assert same_bits(library.give(ours), numpys), field
    for field, array in given.items():
        if array is not None and field not in case.changes:
            assert same_bits(library.give(array), case.arrays[field]), f"{field} was changed"
    if library.name in ("numpy", "torch") and case.operator.startswith("moe_") and case.operator != "moe_route":
        for array in got:
            if array is not None:
                array[...] = 0
        out = got if hasattr(got, "_fields") else got[0]
        assert getattr(switchyard, case.operator)(**given, **case.numbers, out=out) is out
        assert all(a is b or same_bits(library.give(a), b) for a, b in zip(got, want, strict=True))


def test_every_operator_has_a_case() -> None:
    """What is not here has no arrays to speak of: sizes and noise."""
    seen = {case.operator for _, case in every()}
    functions = {name for name in switchyard.__all__ if name.startswith(("moe_", "kv_", "sample", "local"))}
    assert functions - seen == {"moe_capacity", "moe_dispatch_grad_data", "sample_noise"}


# ---- Several libraries in one call ----


@pytest.mark.parametrize("first", [Library, Torch, Jax], ids=lambda kind: kind.name)
@pytest.mark.parametrize("shift", [0, 1, 2])
def test_mixed_libraries(first: type[Library], shift: int) -> None:
    """Arrays of three libraries, one after the other; results are of the first argument's, or of that of the rows."""
    others = list(installed())
    for _, case in every():
        if case.changes:
            continue
        want = call(case, case.arrays)
        home, given = first(), {}
        operator = getattr(switchyard, case.operator).__globals__["operator"]
        like = operator.given[operator.leader].name
        for i, (field, array) in enumerate(case.arrays.items()):
            taker = home if field == like else others[(i + shift) % len(others)]
            given[field] = None if array is None else taker.take(array)
        with home.wide():
            got = call(case, given)
        for ours, numpys in zip(got, want, strict=True):
            assert (ours is None) == (numpys is None)
            if ours is not None:
                assert isinstance(ours, home.kind), case.operator
                assert same_bits(home.give(ours), numpys), case.operator


# ---- No copies ----


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """The values of the calls of kv_gather, as the binding reads them."""
    from switchyard.ops import kv_gather

    values = {"calls": []}
    operator = kv_gather.operator

    def watched(given: Any, out: Any, *asked: Any) -> Any:
        read, written, *_ = operator.normal(given, out, None, True)
        made = operator(given, out, *asked)
        values["calls"].append((*read, *(written or made)))
        return made

    monkeypatch.setattr(kv_gather, "operator", watched)
    return values


def address(array: Any) -> int:
    """Where an array has its first element, as the library itself tells it."""
    if isinstance(array, np.ndarray):
        return int(array.ctypes.data)
    return int(array.data_ptr() if hasattr(array, "data_ptr") else array.unsafe_buffer_pointer())


def address_seen(value: Any) -> int:
    """Where the library sees it: the data of the DLTensor that the binding makes of a value."""
    return int(core.address(value if type(value) is core.Tensor else _arrays.view(value)))


@pytest.mark.parametrize("kind", [Library, Torch, Jax], ids=lambda kind: kind.name)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_arrays_are_read_where_they_lie(kind: type[Library], dtype: str, seen: dict[str, list[Any]]) -> None:
    library = kind()
    cache, indices = library.take(numbers_of(dtype, 8, 64)), library.take(np.array([[3, 0], [1, 2]], np.int32))
    table = library.take(PAGED["block_table"])
    got = switchyard.kv_gather(cache, indices, table, block_size=2)
    values = seen["calls"][-1]
    for ours, value in zip((cache, indices, table), values[:3], strict=True):
        assert address_seen(value) == address(ours)
    assert address(got) == address_seen(values[-1]), "the result is where the operator wrote it"


@pytest.mark.parametrize("kind", [Library, Torch], ids=lambda kind: kind.name)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_outputs_are_written_where_they_lie(kind: type[Library], dtype: str, seen: dict[str, list[Any]]) -> None:
    """Outputs may be views with gaps between their rows; what lies between is left alone."""
    library = kind()
    cache, indices = numbers_of(dtype, 8, 6), np.array([3, 0, 2], np.int32)
    wide = library.take(np.full((6, 8), 7, dtype))
    out = wide[1:4, 1:7]
    got = switchyard.kv_gather(
        library.take(cache), library.take(indices), library.take(np.array([2, 0])), block_size=2, out=out
    )
    assert got is out
    assert address_seen(seen["calls"][-1][-1]) == address(out)
    want = np.full((6, 8), 7, dtype)
    want[1:4, 1:7] = cache[[1, 4, 0]]
    assert same_bits(library.give(wide), want)


@pytest.mark.parametrize("kind", [Library, Torch], ids=lambda kind: kind.name)
def test_views_are_read_where_they_lie(kind: type[Library], seen: dict[str, list[Any]]) -> None:
    """Strides of rows, blocks and heads go through as they are."""
    library = kind()
    pool = np.arange(4 * 3 * 2 * 5, dtype=np.float32).reshape(4, 3, 2, 5)
    layer = library.take(pool)[:, 1, :, 1:4]  # pages of three layers in turn, part of each row
    found_by = library.take(np.array([3, 0, 2])), library.take(np.array([2, 0]))
    got = switchyard.kv_gather(layer, *found_by, block_size=2)
    assert address_seen(seen["calls"][-1][0]) == address(layer)
    np.testing.assert_array_equal(library.give(got), pool[:, 1, :, 1:4][[0, 2, 0], [1, 0, 0]], strict=True)


@pytest.mark.parametrize("kind", [Library, Torch], ids=lambda kind: kind.name)
def test_a_call_allocates_next_to_nothing(kind: type[Library]) -> None:
    """Neither Python nor NumPy takes memory for rows of a megabyte when they go where `out` says."""
    library = kind()
    cache = library.take(np.ones((1024, 256), np.float32))
    indices, table = library.take(np.arange(1024)[::-1].copy()), library.take(np.arange(64))
    out = library.take(np.zeros((1024, 256), np.float32))
    logits = library.take(numbers_of("float32", 16, 16384))
    token = switchyard.Sample(library.take(np.zeros(16, np.int64)), *[None] * 6)

    def calls() -> None:
        switchyard.kv_gather(cache, indices, table, block_size=16, out=out)
        switchyard.sample(logits, 50, 0.9, seed=1, out=token)

    calls()
    tracemalloc.start()
    calls()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert library.give(out).all()
    assert peak < 16384  # the array is 64 times as large; tracemalloc's own frames are what there is


# ---- Kinds of arrays ----


def gather(cache: Any, indices: Any = None, table: Any = None, **more: Any) -> Any:
    indices = np.array([3, 0]) if indices is None else indices
    table = np.array([1, 0]) if table is None else table
    return switchyard.kv_gather(cache, indices, table, block_size=2, **more)


CACHE = np.arange(8, dtype=np.float32).reshape(4, 2)
GATHERED = CACHE[[1, 2]]


def said(*given: Any, **more: Any) -> str:
    with pytest.raises((TypeError, ValueError)) as caught:
        gather(*given, **more)
    assert isinstance(caught.value, Error)
    return str(caught.value)


def test_empty_arrays(library: Library) -> None:
    """No rows are no reason to reject, wherever a library lets its empty arrays point."""
    take = library.take
    got = gather(take(CACHE), take(np.zeros((0,), np.int64)), take(np.array([1, 0])))
    assert tuple(got.shape) == (0, 2)
    got = gather(take(CACHE), take(np.zeros((3, 0), np.int64)), take(np.zeros((3, 2), np.int64)))
    assert tuple(got.shape) == (3, 0, 2)
    drawn = switchyard.sample(take(np.zeros((0, 4), np.float32)), top_k=2, seed=1)
    assert tuple(drawn.token.shape) == (0,)
    rows = switchyard.moe_permute(take(np.zeros((0, 2), np.float32)), take(np.zeros((0, 3), bool)), num_out_tokens=0)
    assert tuple(rows.permuted_tokens.shape) == (0, 2)
    assert library.give(rows.expert_offsets).tolist() == [0, 0, 0, 0]


def test_no_dimensions(library: Library) -> None:
    take = library.take
    table = take(np.array([1, 0]))
    assert said(take(CACHE), take(np.array(3)), table) == "kv_gather: indices has rank 0, want 1 to 16"
    assert said(take(np.array(3.0)), take(np.array([3])), table) == "kv_gather: cache has rank 0, want 2 to 16"


def test_read_only_inputs() -> None:
    frozen = [array.copy() for array in (CACHE, np.array([3, 0]), np.array([1, 0]))]
    for array in frozen:
        array.flags.writeable = False
    np.testing.assert_array_equal(gather(*frozen), GATHERED, strict=True)
    narrow = frozen[0].astype(BFLOAT16)
    narrow.flags.writeable = False
    np.testing.assert_array_equal(gather(narrow, *frozen[1:]), GATHERED.astype(BFLOAT16), strict=True)
    by_bytes = np.frombuffer(CACHE.tobytes(), np.float32).reshape(4, 2)
    assert not by_bytes.flags.writeable
    np.testing.assert_array_equal(gather(by_bytes), GATHERED, strict=True)


def negated(array: Any) -> Any:
    torch = pytest.importorskip("torch")
    return torch._neg_view(torch.from_numpy(array.copy()))


# What would be read as other numbers, or lose something: an array of it, and why.
LOST = {
    "swapped bytes": (
        lambda array: array.astype(array.dtype.newbyteorder("S")),
        "cannot be read as a tensor: the bytes of its elements are in the order of other machines",
    ),
    "a mask": (
        lambda array: np.ma.array(array, mask=True),
        "is a masked array, whose mask would be lost, want a plain array, such as its filled()",
    ),
    "a lazy sign": (negated, "is a lazy conjugate or negation, want resolve_conj().resolve_neg() of it"),
}


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("field", ["cache", "indices", "table", "out"])
@pytest.mark.parametrize("kind", LOST)
def test_nothing_is_lost(kind: str, field: str, library: str) -> None:
    plain = {"cache": CACHE, "indices": np.array([3, 0]), "table": np.array([1, 0]), "out": np.zeros_like(GATHERED)}
    take = pytest.importorskip("torch").from_numpy if library == "torch" else np.asarray
    given = {name: take(array) for name, array in plain.items()}
    corrupt, why = LOST[kind]
    name = "block_table" if field == "table" else field
    given[field] = corrupt(plain[field])
    assert said(**given) == f"kv_gather: {name} {why}"
    assert not plain["out"].any()
    if field != "out":
        given.pop("out")
        assert said(**given) == f"kv_gather: {name} {why}"


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_subclasses_of_numpy(tmp_path: Any) -> None:
    """A matrix, a record array, a mapped file: their memory is read, results are plain arrays."""
    mapped = np.memmap(tmp_path / "cache", np.float32, "w+", shape=CACHE.shape)
    mapped[...] = CACHE
    for cache in (np.matrix(CACHE), CACHE.view(np.recarray), mapped):
        got = gather(cache)
        assert type(got) is np.ndarray
        np.testing.assert_array_equal(got, GATHERED, strict=True)
    out = np.memmap(tmp_path / "out", np.float32, "w+", shape=(2, 2))
    assert gather(CACHE, out=out) is out
    np.testing.assert_array_equal(np.fromfile(tmp_path / "out", np.float32).reshape(2, 2), GATHERED)


def test_masks_in_several_caches() -> None:
    masked = np.ma.array(CACHE, mask=True)
    assert "cache is a masked array" in said((CACHE, masked))
    rows, slots = np.zeros((1, 2), np.float32), np.array([0])
    with pytest.raises(ValueError, match="kv_scatter: cache is a masked array"):
        switchyard.kv_scatter((CACHE.copy(), masked), (rows, rows), slots)
    with pytest.raises(ValueError, match="kv_blocks: cache is a masked array"):
        switchyard.kv_blocks(np.array([[0, 1]]), masked, block_size=2)


@pytest.mark.parametrize("dtype", ["O", "S4", "M8[s]", [("a", "f4")]])
def test_elements_no_tensor_has(dtype: Any) -> None:
    assert said(np.zeros((4, 2), dtype)).startswith("kv_gather: cache cannot be read as a tensor: unknown dtype")
    apart = np.zeros(4, [("a", "f4"), ("b", "i1")])["a"][:, None]
    assert said(apart).startswith("kv_gather: cache cannot be read as a tensor: its strides are no multiples of its el")


def test_complex_numbers(library: Library) -> None:
    """They are moved like any others; the library has no number for them, so bare DLPack must bring an output."""
    arrays = [library.take(array) for array in (CACHE.astype(np.complex64), np.array([3, 0]), np.array([1, 0]))]
    if library.name != "dlpack":
        assert same_bits(library.give(gather(*arrays)), GATHERED.astype(np.complex64))
        return
    with pytest.raises(NotImplementedError, match="kv_gather: no result can be made here, want out: "):
        gather(*arrays)
    out = np.zeros((2, 2), np.complex64)
    np.testing.assert_array_equal(gather(*arrays, out=out), GATHERED)


def test_unaligned_arrays() -> None:
    """No alignment is asked for."""
    memory = np.zeros(CACHE.nbytes + 1, np.uint8)
    odd = memory[1:].view(np.float32).reshape(4, 2)
    odd[...] = CACHE
    assert odd.ctypes.data % 4
    np.testing.assert_array_equal(gather(odd), GATHERED, strict=True)
    logits = np.zeros(4 * 40 + 1, np.uint8)[1:].view(np.float32).reshape(1, 40)
    logits[0, 17] = 1
    assert switchyard.sample(logits).token.tolist() == [17]


def test_a_pointer_is_no_array() -> None:
    for wrong in (CACHE.tolist(), memoryview(CACHE), CACHE.ctypes.data, (ctypes.c_float * 8)(), None):
        assert said(wrong).startswith(("kv_gather: cache is", "kv_gather: cache has"))


# ---- Tensors of PyTorch ----


def test_torch_signs_yet_to_be_turned() -> None:
    """conj() and what is derived from it keep the memory and note the sign: the memory alone would be wrong."""
    torch = pytest.importorskip("torch")
    pairs = torch.tensor([[1 + 2j, 3 + 4j]] * 4)
    why = "kv_gather: cache is a lazy conjugate or negation, want resolve_conj().resolve_neg() of it"
    assert pairs.conj().is_conj()
    assert said(pairs.conj()) == why
    assert pairs.conj().imag.is_neg()  # which test_nothing_is_lost has
    assert said((pairs, pairs.conj())) == why
    assert gather(pairs.conj().resolve_conj()).tolist() == [[1 - 2j, 3 - 4j]] * 2
    with pytest.raises(ValueError, match="kv_scatter: src is a lazy conjugate or negation"):
        switchyard.kv_scatter(pairs.clone(), pairs.conj()[:1], torch.tensor([0]))


def test_torch_gradients() -> None:
    torch = pytest.importorskip("torch")
    cache = torch.from_numpy(CACHE.copy()).requires_grad_()
    why = "cache requires a gradient, which would end here: want switchyard.torch.kv_gather, or a detached tensor"
    assert said(cache) == f"kv_gather: {why}"
    assert said((cache.detach(), cache)) == f"kv_gather: {why}"
    assert gather(cache.detach()).tolist() == GATHERED.tolist()
    with torch.no_grad():
        assert gather(cache).tolist() == GATHERED.tolist()
    with pytest.raises(ValueError, match="kv_scatter: cache requires a gradient"):
        switchyard.kv_scatter(cache, torch.ones((1, 2)), torch.tensor([0]))
    assert cache.detach()[0].tolist() == CACHE[0].tolist()


def test_torch_subclasses() -> None:
    """A parameter and a user's own subclass are tensors; results are plain ones."""
    torch = pytest.importorskip("torch")

    class Own(torch.Tensor):
        pass

    for cache in (
        torch.nn.Parameter(torch.from_numpy(CACHE.copy()), requires_grad=False),
        torch.from_numpy(CACHE.copy()).as_subclass(Own),
    ):
        got = gather(cache)
        assert type(got) is torch.Tensor
        assert got.tolist() == GATHERED.tolist()
    with pytest.raises(ValueError, match="cache requires a gradient"):
        gather(torch.from_numpy(CACHE.copy()).as_subclass(Own).requires_grad_())


@pytest.mark.parametrize("kind", ["sparse", "csr", "meta", "mkldnn", "quantised"])
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:.*torch.ao.quantization", "ignore:.*quantize")
def test_torch_tensors_without_rows_in_memory(kind: str, given: bool) -> None:
    torch = pytest.importorskip("torch")
    cache = torch.from_numpy(CACHE.copy())
    made = {
        "sparse": cache.to_sparse,
        "csr": cache.to_sparse_csr,
        "meta": lambda: cache.to("meta"),
        "mkldnn": cache.to_mkldnn,
        "quantised": lambda: torch.quantize_per_tensor(cache, 0.1, 0, torch.quint8),
    }
    try:
        array = made[kind]()
    except RuntimeError:
        pytest.skip(f"this PyTorch has no {kind} tensors")
    out = {"out": torch.zeros((2, 2))} if given else {}
    text = "is on the meta device" if kind == "meta" else "cannot be read as a tensor: "
    assert said(array, **out).startswith(f"kv_gather: cache {text}")
    assert not given or not out["out"].any()


# ---- Arrays of JAX ----


def test_jax_without_64_bits() -> None:
    """Unless it is told otherwise, JAX has no integers of 64 bits: it makes those of results smaller."""
    library = Jax()
    logits = numbers_of("float32", 5, 40)
    got, want = switchyard.sample(library.jnp.asarray(logits), seed=1), switchyard.sample(logits, seed=1)
    assert (str(got.token.dtype), str(want.token.dtype)) == ("int32", "int64")
    np.testing.assert_array_equal(np.asarray(got.token), want.token)


def test_jax_outputs() -> None:
    jnp = pytest.importorskip("jax.numpy")
    out = jnp.zeros((2, 2))
    why = "is a read-only jaxlib array, want one that can be written to"
    assert said(CACHE, out=out) == f"kv_gather: out {why}"
    assert said((CACHE, CACHE), out=(np.zeros((2, 2), np.float32), out)) == f"kv_gather: out {why}"
    assert not np.asarray(out).any()
    scale = jnp.zeros((4, 1))
    with pytest.raises(ValueError, match=f"kv_scatter: scale {why}"):
        switchyard.kv_scatter(np.zeros((4, 2), np.int8), CACHE[:1], np.array([0]), scale, format="int8")


# ---- Results hold their memory ----


def test_results_outlive_everything(library: Library) -> None:
    """The memory of a result is its own: it stays when arguments and views of it are gone."""
    want = np.tile(CACHE, (64, 1))
    made = []
    for _ in range(50):
        cache = library.take(want)
        got = gather(cache, library.take(np.arange(256)), library.take(np.arange(128)))
        made.append(library.give(got)[100:])
        del cache, got
    for rows in made:
        np.testing.assert_array_equal(rows, want[100:], strict=True)
