"""Arrays on a CUDA device, without one: the kernels run on the emulated device of tests/cuda/emulator.

Its library is built with the C tests; SWITCHYARD_EMULATED_CUDA names it.
"""

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from typing import Any

import calls
import numpy as np
import pytest
import test_worked_examples as worked
from test_threads import together

import switchyard
from switchyard import _binding, _device
from switchyard._binding import core

LIBRARY = os.environ.get("SWITCHYARD_EMULATED_CUDA", "")
if not os.path.exists(LIBRARY):
    pytest.skip("libswitchyard_cuda_emulated was not built", allow_module_level=True)

TOKENS = np.array([[10, 11], [20, 21], [30, 31], [40, 41]], np.float32)
MAP = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]], bool)
BAD = np.ones((4, 3), bool)  # every token to three experts, where two are allowed
SENTENCE = "moe_permute: routing_map routes token 0 to 3 experts, want at most 2 (num_out_tokens / tokens)"


@pytest.fixture(autouse=True)
def emulated() -> Iterator[None]:
    switchyard.configure(device_library=LIBRARY)
    yield
    switchyard.sync()
    switchyard.configure(device_library=None, synchronous=False)


class There:
    """An array of a library that has DLPack and nothing else, on CUDA device 0."""

    def __init__(self, array: Any) -> None:
        self.tensor = core.device_empty(0, array.shape, array.dtype.name)
        self.streams = []
        assert core.copy(self.tensor, raw(array)) == 0

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, *, stream: Any = None, **others: Any) -> Any:
        self.streams.append(stream)
        return self.tensor.__dlpack__(**others)


class Described(There):
    """The same with the attributes that array libraries have."""

    def __init__(self, array: Any) -> None:
        super().__init__(array)
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim


class Published(Described):
    """The same of a library with DLPack's table of C functions, as PyTorch has it."""


class Table(ctypes.Structure):
    """DLPackExchangeAPI: version, an older table, five functions."""

    _fields_ = [("version", ctypes.c_uint32 * 2), ("before", ctypes.c_void_p), ("functions", ctypes.c_void_p * 5)]


BYTES = 48  # of a DLTensor
capsules: list[Any] = []  # of the last tensors that were described
streams: list[int] = []  # the devices whose stream was asked for


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
def describe(array: Any, to: int) -> int:
    capsule = (array.tensor if isinstance(array, There) else array).__dlpack__()
    capsules[:] = [*capsules, capsule][-40:]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    ctypes.memmove(to, pointer(capsule, b"dltensor"), BYTES)
    return 0


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
def stream(kind: int, number: int, to: Any) -> int:
    streams.append(number)
    to[0] = None
    return 0


FUNCTIONS = [0, 0, 0, *(ctypes.cast(function, ctypes.c_void_p).value for function in (describe, stream))]
TABLE = Table((1, 1), None, (ctypes.c_void_p * 5)(*FUNCTIONS))  # C keeps its address


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Published arrays are known to the binding as those of PyTorch are, and their results, its own tensors."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    capsule = new(ctypes.addressof(TABLE), b"dlpack_exchange_api", None)
    monkeypatch.setattr(_device.Place, "strided", lambda self, shape, strides, dtype: self.empty(shape, dtype))
    assert core.meet(Published, core.Tensor, capsule, None, None, None)
    yield
    core.meet(Published, core.Tensor, None, None, None, None)  # tensors are read without a table again
    if "torch" in sys.modules:
        _binding.meet(sys.modules["torch"])


class Old(Described):
    """Knows no streams."""

    def __dlpack__(self) -> Any:
        return self.tensor.__dlpack__()


def raw(array: Any) -> Any:
    return np.frombuffer(bytearray(array.tobytes()), np.uint8)


def host(array: Any) -> Any:
    """A copy in CPU memory; values that are no arrays of the device as they are."""
    tensor = array.tensor if isinstance(array, There) else array
    if isinstance(tensor, tuple):
        made = [host(part) for part in tensor]
        return type(tensor)(*made) if hasattr(tensor, "_fields") else tuple(made)
    if not isinstance(tensor, core.Tensor):
        return array
    assert tensor.__dlpack_device__() == (2, 0)
    made = np.empty(tuple(tensor.shape), np.dtype(str(tensor.dtype)))
    flat = made.reshape(-1).view(np.uint8)
    assert core.copy(flat, tensor) == 0
    return made


def there(values: Any) -> Any:
    if isinstance(values, np.ndarray):
        return Described(values)
    if isinstance(values, tuple):
        made = [there(value) for value in values]
        return type(values)(*made) if hasattr(values, "_fields") else tuple(made)
    return {name: there(value) for name, value in values.items()} if isinstance(values, dict) else values


def permute(routing_map: Any = MAP, **others: Any) -> Any:
    return switchyard.moe_permute(Described(TOKENS), Described(routing_map), num_out_tokens=8, **others)


# ---- Every operator ----


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [case for _, case in calls.on_device()], ids=[name for name, _ in calls.on_device()])
def test_bits(case: calls.Case, published: None) -> None:
    wanted = calls.call(case, calls.taken(case, np.copy))
    for kind in (There, Described, Published):
        got = host(calls.call(case, calls.taken(case, kind)))
        assert [w is None or calls.same_bits(g, w) for g, w in zip(got, wanted, strict=True)] == [True] * len(wanted)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("case", "alternative"), [(case, i) for case, i in worked.CASES if case.op not in calls.HOST], ids=worked.identify
)
def test_example(case: Any, alternative: int) -> None:
    """The worked examples and their rejections, which a synchronous call raises itself."""
    switchyard.configure(synchronous=True)
    worked.check(case, alternative, there, host)


def test_what_is_for_the_host() -> None:
    loads = Described(np.array([[4, 3, 2, 1]], np.int64))
    with pytest.raises(switchyard.Error, match="moe_place: loads is on cuda, where this operator is not available"):
        switchyard.moe_place(loads, num_physical=4, devices=2)


# ---- Streams, devices, errors ----


def test_the_stream_of_producers() -> None:
    """They are asked to order their work before the default stream, which is 1 in DLPack."""
    tokens, routing_map = Described(TOKENS), Described(MAP)
    made = switchyard.moe_permute(tokens, routing_map, num_out_tokens=8)
    assert set(tokens.streams) == set(routing_map.streams) == {1}
    again = switchyard.moe_permute(Old(TOKENS), Old(MAP), num_out_tokens=8)
    assert host(again.permuted_tokens).tobytes() == host(made.permuted_tokens).tobytes()
    back = switchyard.moe_unpermute(made.permuted_tokens, made.sorted_indices, num_tokens=4)  # results are arguments
    assert (host(back) == 2 * TOKENS).all()


def test_errors_of_contents() -> None:
    out = permute(probs=Described(np.ones((4, 3), np.float32)))
    before = host(out)
    probs = {"probs": Described(np.ones((4, 3), np.float32)), "out": out}
    assert permute(BAD, **probs) is out  # queued
    with pytest.raises(ValueError) as caught:
        switchyard.sync()
    assert str(caught.value) == SENTENCE
    assert caught.value.fault == switchyard.Fault("ROW_OVERFULL", "routing_map", -1, 0, 3, 2)
    switchyard.sync()
    permute(BAD, **probs)
    with pytest.raises(ValueError) as caught:  # the call before, found by the next one, which is not made
        switchyard.sample(Described(TOKENS))
    assert (str(caught.value), caught.value.fault.limit) == (SENTENCE, 2)
    assert [part is None or part.tobytes() for part in host(out)] == [part is None or part.tobytes() for part in before]
    assert host(switchyard.sample(Described(TOKENS)).token).tolist() == [1] * 4
    switchyard.configure(synchronous=True)
    with pytest.raises(ValueError) as caught:
        permute(BAD, **probs)
    assert str(caught.value) == SENTENCE


def test_calls_in_c(published: None) -> None:
    """Results, errors and references of calls on such arrays."""
    given = Published(TOKENS), Published(MAP)
    wanted = switchyard.moe_permute(TOKENS, MAP, num_out_tokens=8)
    del streams[:]
    out, again = (switchyard.moe_permute(*given, num_out_tokens=8) for _ in range(2))
    for made in (out, again):
        assert type(made) is type(wanted)
        assert all(g is w or calls.same_bits(g, w) for g, w in zip(host(made), wanted, strict=True))
    assert switchyard.moe_permute(*given, num_out_tokens=8, out=out) is out
    assert streams == [0] * 3  # each ran in the stream of its device
    switchyard.moe_permute(given[0], Published(BAD), num_out_tokens=8)
    with pytest.raises(ValueError) as caught:  # the call before, found by the next one
        switchyard.moe_permute(*given, num_out_tokens=8)
    assert str(caught.value) == SENTENCE
    with pytest.raises(ValueError) as caught:
        switchyard.moe_permute(*given, num_out_tokens=13)
    assert str(caught.value) == "moe_permute: num_out_tokens is 13, want 0 to 12"
    with pytest.raises(TypeError, match="probs is 'twice', want an array"):
        switchyard.moe_permute(*given, "twice", num_out_tokens=8)
    with pytest.raises(ValueError, match="out has 1 arrays, want a tuple of 6"):
        switchyard.moe_permute(*given, num_out_tokens=8, out=(out.permuted_tokens,))

    def references() -> list[int]:
        gc.collect()
        del capsules[:]
        held = (given, *given, out, type(out), None, 8, 1000003)
        return [sys.getrefcount(one) for one in held]

    def work() -> None:
        for _ in range(200):
            switchyard.moe_permute(*given, num_out_tokens=8)
            switchyard.moe_permute(*given, num_out_tokens=8, out=out)
            for wrong in ({"num_out_tokens": 1000003}, {"probs": "no", "num_out_tokens": 8}):
                with pytest.raises(switchyard.Error):
                    switchyard.moe_permute(*given, **wrong)

    work()
    before = references()
    work()
    assert max(now - then for now, then in zip(references(), before, strict=True)) < 100


@pytest.mark.parametrize(
    ("tokens", "routing_map", "sentence"),
    [
        (Described, np.copy, "moe_permute: routing_map is in CPU memory, want cuda:0 like tokens"),
        (np.copy, Described, "moe_permute: routing_map is on cuda:0, want CPU memory like tokens"),
    ],
)
def test_devices_are_not_mixed(tokens: Any, routing_map: Any, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        switchyard.moe_permute(tokens(TOKENS), routing_map(MAP), num_out_tokens=8)
    assert str(caught.value) == sentence
    assert caught.value.status == switchyard.Status.DEVICE


def test_parameters_of_rows() -> None:
    """Single numbers are read by the call, lists and NumPy arrays are copied to the device."""
    logits = calls.numbers_of("float32", 4, 50)
    for values in (
        {"top_k": 5, "top_p": 0.9, "temperature": 0.7, "seed": 3, "offset": 9},
        {"top_k": [5, 1, 2, 3], "top_p": [0.9, 0.1, 1.0, 0.5], "seed": [1, 2**63, 3, 2**64 - 1]},
        {"temperature": np.array([0.5, 0.6, 0.7, 0.8]), "seed": np.array([4])},
    ):
        wanted = switchyard.sample(logits, **values)
        assert host(switchyard.sample(Described(logits), **values).token).tolist() == wanted.token.tolist()


def test_several_caches() -> None:
    keys, values = np.arange(8.0)[:, None], 10 * np.arange(8.0)[:, None]
    found = (np.array([3, 0]), np.array([1, 0]))
    wanted = switchyard.kv_gather((keys, values), *found, block_size=2)
    got = host(switchyard.kv_gather(there((keys, values)), *there(found), block_size=2))
    assert [part.tolist() for part in got] == [part.tolist() for part in wanted]
    caches = there((keys, values))
    switchyard.kv_scatter(caches, there(wanted), Described(np.array([7, 6])))
    assert [host(cache)[6:, 0].tolist() for cache in caches] == [w[::-1, 0].tolist() for w in wanted]


def test_threads_take_turns() -> None:
    """All use one context; each gets the sentence of some call that was wrong, and no other thread gets that too."""
    switchyard.configure(synchronous=True)

    def work(i: int) -> list[str]:
        found = []
        for _ in range(20):
            with pytest.raises(switchyard.Error) as caught:
                permute(np.concatenate([MAP[:i], BAD[i:]]))
            found.append(str(caught.value))
        return found

    assert together(work, 4) == [[SENTENCE.replace("token 0", f"token {i}")] * 20 for i in range(4)]
