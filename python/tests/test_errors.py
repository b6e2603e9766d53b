"""Calls that cannot be right: the sentence, what it is in numbers, and outputs that hold what they held before."""

import contextlib
import copy
import ctypes
import importlib
import inspect
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calls import every, same_bits, without_ml_dtypes

import switchyard
from switchyard import CommError, Error, Fault, Status, _binding, errors
from switchyard._binding import core

MAP = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]], bool)
PROBS = np.array([[0.5, 0, 0.5], [0, 0.25, 0.75], [0.125, 0.875, 0], [0.625, 0, 0.375]], np.float32)
SORTED = np.array([0, 5, 3, 6, 1, 4, 2, 7], np.int32)
TOKENS = np.arange(8, dtype=np.float32).reshape(4, 2)
ROWS = np.arange(16, dtype=np.float32).reshape(8, 2)
INDICES = np.array([1, 0, 1, 0], np.int32)
LOCATIONS = np.array([0, 0, 1, 2], np.int32)

# A call of every operator that is right; rows of REJECTED corrupt one thing.
VALID: dict[str, dict[str, Any]] = {
    "moe_route": {"logits": PROBS, "k": 2},
    "moe_permute": {"tokens": TOKENS, "routing_map": MAP, "probs": PROBS, "num_out_tokens": 8},
    "moe_unpermute": {"permuted_tokens": ROWS, "sorted_indices": SORTED, "routing_map": MAP, "probs": PROBS},
    "moe_dispatch": {
        "indices": INDICES,
        "locations": LOCATIONS,
        "input": TOKENS,
        "gates": TOKENS[:, 0].copy(),
        "num_experts": 2,
        "capacity": 3,
    },
    "moe_capacity": {"counts": np.array([4, 4, 2]), "samples": 5, "num_experts": 3},
    "kv_gather": {
        "cache": ROWS,
        "indices": np.array([[0, 3], [2, 1]], np.int32),
        "block_table": np.array([[0, 2], [1, 3]], np.int32),
        "block_size": 2,
    },
    "sample_noise": {"n": 4, "seed": 7},
    "sample_overrides": {
        "logits": PROBS,
        "prompt_indptr": np.array([0, 1, 1, 2, 2]),
        "prompt_token": np.array([2, 0]),
        "repetition_penalty": 2.0,
    },
    "sample": {"logits": PROBS, "top_k": np.array([1, 2, 3, 1], np.int32), "seed": 7},
}
for _, case in every():
    VALID.setdefault(case.operator, {**case.arrays, **case.numbers})


def words(operator: str, field: str) -> str:
    """As sentences list them: "a, b or c"."""
    *first, last = [word for word in _binding.words(operator, field) if word is not None]
    return f"{', '.join(first)} or {last}"


OUT = switchyard.moe_permute(**VALID["moe_permute"])
VALID["kv_gather, planes"] = {**VALID["kv_gather"], "cache": (ROWS, ROWS)}
VALID["kv_scatter, planes"] = {"cache": (ROWS.copy(), ROWS.copy()), "src": (ROWS, ROWS), "slots": np.arange(8)}
VALID["kv_blocks, planes"] = {
    "pairs": np.array([[2, 0]]),
    "src": [ROWS[:, None], ROWS[:, None]],
    "dst": (ROWS[:, None].copy(), ROWS[:, None].copy()),
}


def frozen(array: Any) -> Any:
    array = array.copy()
    array.flags.writeable = False
    return array


FORMATS = "want ds32_fp8, pto_int8, ds4_fp8, indexer_fp8, e4m3, e5m2, int8, q8_0, q4_0, nvfp4 or nvfp4_amax"
WHOLE, FLAG = "want an integer of 64 bits", "want True or False"
READ_ONLY = "is a read-only numpy array, want one that can be written to"
SIX = "a tuple of 6: permuted_tokens, sorted_indices, permuted_probs, expert_counts, expert_offsets, permuted_scales"

# What Python rejects in its own words, and what the worked examples, which have rejections of the library, do not have.
REJECTED: list[tuple[str, dict[str, Any], Status, str]] = [
    ("moe_route", {"score": "soft"}, Status.VALUE, f"score is 'soft', want {words('moe_route', 'score')}"),
    ("moe_route", {"group_score": 1}, Status.VALUE, f"group_score is 1, want {words('moe_route', 'group_score')}"),
    ("moe_route", {"slot_order": None}, Status.VALUE, f"slot_order is None, want {words('moe_route', 'slot_order')}"),
    ("moe_route", {"drop": ["prob"]}, Status.VALUE, "drop is a list, want prob or position"),
    ("moe_route", {"eps": "small"}, Status.DTYPE, "eps is 'small', want a number"),
    ("moe_route", {"eps": [1.0]}, Status.DTYPE, "eps is a list, want a number"),
    ("moe_permute", {"tokens": TOKENS[::-1]}, Status.STRIDE, "tokens has row stride -2, want at least 2"),
    ("moe_permute", {"tokens": [[1.0]]}, Status.DTYPE, "tokens is a list, want an array"),
    ("moe_permute", {"tokens": 3}, Status.DTYPE, "tokens is 3, want an array"),
    ("moe_permute", {"probs": object()}, Status.DTYPE, "probs is an object, want an array"),
    ("moe_permute", {"num_out_tokens": 8.0}, Status.DTYPE, f"num_out_tokens is 8.0, {WHOLE}"),
    ("moe_permute", {"num_out_tokens": None}, Status.DTYPE, f"num_out_tokens is None, {WHOLE}"),
    ("moe_permute", {"num_out_tokens": SORTED}, Status.DTYPE, f"num_out_tokens is a ndarray, {WHOLE}"),
    ("moe_permute", {"num_out_tokens": 2**63}, Status.VALUE, f"num_out_tokens is 9223372036854775808, {WHOLE}"),
    ("moe_permute", {"drop_and_pad": "yes"}, Status.DTYPE, f"drop_and_pad is 'yes', {FLAG}"),
    ("moe_permute", {"drop_and_pad": None}, Status.DTYPE, f"drop_and_pad is None, {FLAG}"),
    ("moe_permute", {"out": 8}, Status.VALUE, f"out is 8, want {SIX}; None where one is not wanted"),
    *(("moe_permute", {"out": (*OUT, None)[:n]}, Status.VALUE,
       f"out has {n} arrays, want {SIX}; None where one is not wanted") for n in (0, 1, 2, 3, 5, 7)),
    ("moe_permute", {"out": OUT._replace(permuted_tokens=None)}, Status.NULL,
     "permuted_tokens is missing, want a tensor"),
    ("moe_permute", {"out": OUT._replace(permuted_tokens=1.5)}, Status.DTYPE,
     "permuted_tokens is 1.5, want an array"),
    ("moe_permute", {"out": OUT._replace(expert_counts=OUT.expert_offsets[:3])}, Status.ALIAS,
     "expert_counts overlaps expert_offsets in memory, want separate memory"),
    ("moe_permute", {"out": OUT._replace(sorted_indices=frozen(SORTED))}, Status.VALUE, f"sorted_indices {READ_ONLY}"),
    ("moe_unpermute", {"out": frozen(TOKENS)}, Status.VALUE, f"tokens {READ_ONLY}"),
    ("moe_convert_indices", {"to": "TE"}, Status.VALUE, f"to is 'TE', want {words('moe_convert_indices', 'to')}"),
    ("local_reduce", {"layout": "packed"}, Status.VALUE, "layout is 'packed', want padded or expert"),
    ("kv_gather", {"pad": "no"}, Status.VALUE, "pad is 'no', want error, zero or skip"),
    ("kv_gather", {"cache": ()}, Status.VALUE, "cache is an empty tuple, want one array or more"),
    ("kv_gather", {"format": (None,)}, Status.DTYPE, f"format is a tuple, {FORMATS}"),
    ("kv_gather", {"format": "ds32_fp8", "dtype": "int8", "out": None}, Status.DTYPE,
     "dtype is 'int8', want bfloat16, float16 or float32"),
    ("kv_gather", {"dtype": "float32"}, Status.VALUE,
     "dtype is 'float32', want a format with it: other rows come out as they are"),
    ("kv_gather, planes", {"cache": (ROWS, [1.0]), "out": None}, Status.DTYPE, "cache is a list, want an array"),
    ("kv_gather, planes", {"cache": [ROWS, None]}, Status.NULL, "cache of plane 1 is missing, want a tensor"),
    ("kv_gather, planes", {"cache": (ROWS, ROWS[:4])}, Status.SHAPE,
     "cache of plane 1 has 4 rows, want 8 as in the first plane"),
    ("kv_gather, planes", {"cache": [ROWS] * 257}, Status.VALUE, "cache has 257 values, want at most 256"),
    ("kv_gather, planes", {"format": (None, 8)}, Status.DTYPE, f"format of plane 1 is 8, {FORMATS}"),
    ("kv_gather, planes", {"format": (None, "zz")}, Status.VALUE, f"format of plane 1 is 'zz', {FORMATS}"),
    ("kv_gather, planes", {"format": ("e4m3",)}, Status.VALUE, "format has 1 values, want 2, one for each cache"),
    ("kv_gather, planes", {"scale": (None, 2.5)}, Status.DTYPE, "scale of plane 1 is 2.5, want an array"),
    ("kv_gather, planes", {"global_scale": (None, "x")}, Status.DTYPE, "global_scale of plane 1 is 'x', want an array"),
    ("kv_gather, planes", {"out": (ROWS[:4].reshape(2, 2, 2).copy(), None)}, Status.NULL,
     "out of plane 1 is missing, want a tensor"),
    ("kv_gather, planes", {"out": ROWS[:4].copy()}, Status.VALUE, "out is one array, want 2, one for each cache"),
    ("kv_gather, planes", {"out": (ROWS[:4].copy(),)}, Status.VALUE, "out has 1 values, want 2, one for each cache"),
    ("kv_gather, planes", {"out": (ROWS[:4].reshape(2, 2, 2).copy(), frozen(ROWS[:4].reshape(2, 2, 2)))},
     Status.VALUE, f"out {READ_ONLY}"),
    ("kv_ragged", {"rows": -1}, Status.VALUE, "rows is -1, want 0 or more"),
    ("kv_ragged", {"rows": 2.5}, Status.DTYPE, "rows is 2.5, want an integer"),
    ("kv_ragged", {"layout": "nwd"}, Status.VALUE, f"layout is 'nwd', want {words('kv_ragged', 'layout')}"),
    ("kv_scatter", {"cache": None}, Status.NULL, "cache is missing, want a tensor"),
    ("kv_scatter", {"pad": "zero"}, Status.VALUE, "pad is 'zero', want error or skip"),
    ("kv_scatter", {"format": "fp4"}, Status.VALUE, f"format is 'fp4', {FORMATS}"),
    ("kv_scatter", {"src": (ROWS, ROWS)}, Status.VALUE, "src is several arrays, want one, one for each cache"),
    ("kv_scatter, planes", {"src": ROWS}, Status.VALUE, "src is one array, want 2, one for each cache"),
    ("kv_scatter, planes", {"src": (ROWS,)}, Status.VALUE, "src has 1 values, want 2, one for each cache"),
    ("kv_scatter, planes", {"cache": (ROWS.copy(), frozen(ROWS))}, Status.VALUE, f"cache {READ_ONLY}"),
    ("kv_scatter, planes", {"scale": (None, frozen(np.zeros((8, 1), np.float32))), "format": (None, "int8"),
                            "cache": (ROWS.copy(), np.zeros((8, 2), np.int8))}, Status.VALUE, f"scale {READ_ONLY}"),
    ("kv_blocks", {"cache": None, "src": None, "dst": None}, Status.NULL,
     "cache is missing, want a tensor, or src and dst"),
    ("kv_blocks, planes", {"cache": [ROWS[:, None]] * 257}, Status.VALUE, "cache has 257 values, want at most 256"),
    ("kv_blocks, planes", {"dst": ROWS[:, None].copy()}, Status.VALUE, "dst is one array, want 2, one for each cache"),
    ("kv_blocks, planes", {"dst": (ROWS[:, None].copy(), frozen(ROWS[:, None]))}, Status.VALUE, f"dst {READ_ONLY}"),
    ("sample_noise", {"n": 2.5}, Status.DTYPE, "n is 2.5, want an integer of 64 bits"),
    ("sample_noise", {"seed": 0.5}, Status.DTYPE, "seed is 0.5, want an integer"),
    ("sample_noise", {"stream": -1}, Status.VALUE, "stream is -1, want 0 to 18446744073709551615"),
    ("sample_overrides", {"repetition_penalty": "x"}, Status.DTYPE,
     "repetition_penalty is 'x', want a number, or an array"),
    ("sample", {"top_k": 2.5}, Status.DTYPE, f"top_k is 2.5, {WHOLE}, or an array"),
    ("sample", {"top_k": 1 << 63}, Status.DTYPE, f"top_k is 9223372036854775808, {WHOLE}, or an array"),
    ("sample", {"top_p": "0.5"}, Status.DTYPE, "top_p is '0.5', want a number, or an array"),
    ("sample", {"top_k": [3, None]}, Status.DTYPE, "top_k has None for row 1, want an integer for every row"),
    ("sample", {"top_p": [[0.5], 0.5]}, Status.DTYPE, "top_p has a list for row 0, want a number for every row"),
    ("sample", {"top_p": {}}, Status.DTYPE, "top_p is a dict, want a number, or an array"),
    ("sample", {"seed": [1, "2"]}, Status.DTYPE, "seed has '2' for row 1, want an integer for every row"),
    ("sample", {"seed": 1.5}, Status.DTYPE, "seed is 1.5, want an integer, or an array"),
    ("sample", {"empty_token": 1}, Status.VALUE, "empty_token is 1, want -1 or 0"),
]  # fmt: skip


HEADER = Path(__file__).parents[2] / "include" / "switchyard.h"
CODES = set(re.findall(r"\bSY_FAULT_(\w+)", HEADER.read_text(encoding="utf-8")))


def parts(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def arrays_of(result: Any) -> list[Any]:
    return [a for a in parts(result) if isinstance(a, np.ndarray)]


def function_of(name: str) -> Any:
    return getattr(switchyard, name.partition(",")[0])


@pytest.mark.parametrize(
    ("name", "corrupted", "status", "sentence"), REJECTED, ids=[f"{r[0]}: {r[3]}" for r in REJECTED]
)
def test_rejection(name: str, corrupted: dict[str, Any], status: Status, sentence: str) -> None:
    function, right = function_of(name), VALID[name]
    made = function(**copy.deepcopy(right))
    wrong = {**right, **corrupted}
    given = copy.deepcopy(wrong)
    kept = arrays_of(made)
    for array in kept:
        array.view(np.uint8)[...] = 0x5A

    for out in ({"out": made} if kept else {}, {}):
        with pytest.raises(Error) as caught:
            function(**{**out, **wrong})
        assert str(caught.value) == f"{function.__name__}: {sentence}"
        assert caught.value.status is status
        assert caught.value.fault.code in CODES
        row = re.search(r" for row (\d+)", sentence)
        assert caught.value.fault.position == (int(row[1]) if row else -1)
        of_words = status is Status.VALUE and re.search(r" is .*, want .* or (?!more)\S+$", sentence)
        assert (caught.value.fault.code == "BAD_OPTION") == bool(of_words)
        assert caught.value.fault.argument in sentence
    assert all((array.view(np.uint8) == 0x5A).all() for array in kept)
    for field, value in wrong.items():
        for array, before in zip(parts(value), parts(given[field]), strict=True):
            assert not isinstance(array, np.ndarray) or same_bits(array, before), field


class Raising:
    """Whatever it is taken for, its class raises."""

    def _raise(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("of the caller's class")

    __index__ = __float__ = __bool__ = __len__ = __iter__ = _raise
    __dlpack__ = __dlpack_device__ = __array_namespace__ = _raise


class Hiding:
    """Its attributes raise something else than AttributeError."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


ODD: list[Any] = [None, True, -1, 1 << 64, 10**400, 0.5, float("nan"), "x", b"x", [1, 2], [], (None,) * 2]
ODD += [{}, 1j, len, object()]
ODD += [Raising(), Hiding(), np.zeros((4, 3)), np.array(["a"]), np.array(1), np.bool_(True), np.uint64(1 << 63)]


WAYS = ("switchyard", "tensors", "switchyard.torch", "dispatched", "switchyard.jax")


def in_way(name: str, way: str) -> tuple[Any, Callable[[], dict[str, Any]], Any]:
    """An operator as it is called in a way, what makes the arguments of its right call, and a context for calls."""
    library = {"switchyard.jax": "jax"}.get(way) or ("numpy" if way == "switchyard" else "torch")
    used = pytest.importorskip(library)
    module = {"tensors": "switchyard", "dispatched": "switchyard.torch"}.get(way, way)
    make = used.from_numpy if library == "torch" else np.asarray

    def turned(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(turned(one) for one in value)
        return make(value) if isinstance(value, np.ndarray) else value

    passing = way == "dispatched"  # through PyTorch's dispatcher, which rejects values of other kinds by its schema
    context = used.utils._python_dispatch.BaseTorchDispatchMode() if passing else contextlib.nullcontext()
    call = getattr(importlib.import_module(module), name.partition(",")[0])
    return call, lambda: {field: turned(value) for field, value in copy.deepcopy(VALID[name]).items()}, context


@pytest.mark.filterwarnings("ignore")  # of sample, about numbers without a seed
@pytest.mark.parametrize("way", WAYS[:-1])
@pytest.mark.parametrize("name", VALID)
def test_odd_values_of_every_argument(name: str, way: str) -> None:
    """Of whatever kind a value is: the call accepts it, or raises an Error."""
    function, right, context = in_way(name, way)
    parameters, rejected = inspect.signature(function).parameters, 0
    odd = ODD + ([] if way == "switchyard" else tensors())
    with context:
        for field in parameters:
            for value in odd:
                try:
                    function(**{**right(), field: value})
                except Error as error:
                    assert str(error).startswith(f"{function.__name__}: ")
                    rejected += 1
    assert rejected > 10 * len(parameters)


def tensors() -> list[Any]:
    torch = pytest.importorskip("torch")
    return [torch.ones(4, 3), torch.tensor(1), torch.ones(2, dtype=torch.cfloat), torch.eye(3).to_sparse()]


@pytest.mark.parametrize("word", ["int8\0", "int8\0zzz", "\0int8", "\0", "int8" + 60 * "\0", "int8\ud800"])
def test_words_are_read_to_their_end(word: str) -> None:
    """A NUL inside a string does not end it."""
    at = {"block_table": np.array([0]), "scale": np.ones(1, np.float32), "block_size": 2}
    codes, found = np.zeros((2, 8), np.int8), {**at, "indices": np.array([0, 1])}
    assert said(switchyard.kv_gather, codes, **found, format=word) == f"kv_gather: format is {word!r}, {FORMATS}"
    both = said(switchyard.kv_gather, (codes, codes), **found, format=("int8", word))
    assert both == f"kv_gather: format of plane 1 is {word!r}, {FORMATS}"
    run = {**at, "block_table": np.array([[0]]), "cu_lens": np.array([0, 2])}
    assert said(switchyard.kv_ragged, codes, **run, format=word) == f"kv_ragged: format is {word!r}, {FORMATS}"
    rows, slots = np.zeros((2, 8), np.float32), np.array([0, 1])
    wrong = said(switchyard.kv_scatter, codes, rows, slots, at["scale"], format=word)
    assert wrong == f"kv_scatter: format is {word!r}, {FORMATS}"
    assert said(switchyard.kv_gather, codes, **found, pad=f"zero{word}").startswith("kv_gather: pad is 'zero")
    assert said(switchyard.configure, isa=f"scalar{word}").startswith("configure: isa is 'scalar")


def test_the_binding_reads_words_to_their_end() -> None:
    before = switchyard.info()
    for wrong in ("scalar\0", "scalar\0zzz", "\0", 5):
        with pytest.raises((TypeError, ValueError)):
            core.configure(0, wrong)
    assert switchyard.info() == before
    assert core.describe("sample") and not core.describe("sample\0")


def permute(**changed: Any) -> Any:
    return switchyard.moe_permute(**{**VALID["moe_permute"], **changed})


def said(call: Any, *arguments: Any, **given: Any) -> str:
    with pytest.raises(Error) as caught:
        call(*arguments, **given)
    return str(caught.value)


@pytest.mark.filterwarnings("ignore")  # of sample, about numbers without a seed
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", VALID)
def test_flags_are_booleans_and_numbers_are_not(name: str, way: str) -> None:
    """In every way that an operator can be called; arrays are those of the way."""
    call, right, context = in_way(name, way)
    operator = function_of(name).__globals__["operator"]
    kinds = {field.parameter: "number" if field.per_row else field.kind for field in operator.given}
    kinds |= {asked: "bool" for asked in operator.asks if asked not in ("rows", "dtype")}
    wrongs = {kind: [True] for kind in ("int", "i64", "u32", "u64", "f32", "f64")}
    wrongs |= {"bool": [1, 0, "no", None], "number": [True, np.bool_(False), [True]]}
    with context:
        for field, value in ((f, v) for f, kind in kinds.items() for v in wrongs.get(kind, ())):
            if field in inspect.signature(call).parameters:
                text, begin = said(call, **{**right(), field: value}), f"{call.__name__}: {field}"
                assert text.startswith((f"{begin} is ", f"{begin} has True for row 0")), value


def test_a_tensor_without_data() -> None:
    torch = pytest.importorskip("torch")
    for device in ("cpu", "meta"):
        given = {"logits": torch.zeros(4, 3, device="meta"), "k": 2, "bias": torch.zeros(3, device=device)}
        text = "is on the meta device and has no data, want switchyard.torch.moe_route, or a tensor with data"
        assert said(switchyard.moe_route, **given) == f"moe_route: logits {text}"


def test_numbers_of_any_kind_are_numbers() -> None:
    want = permute()
    for same in (
        permute(num_out_tokens=np.int16(8), drop_and_pad=np.bool_(False)),
        permute(num_out_tokens=np.uint64(8), zero_pad=False),
    ):
        for ours, theirs in zip(arrays_of(same), arrays_of(want), strict=True):
            np.testing.assert_array_equal(ours, theirs, strict=True)
    few = {
        **VALID["moe_dispatch"],
        "num_experts": np.int8(2),
        "capacity": np.int8(100),
    }  # 200 rows: more than int8 holds
    with np.errstate(over="ignore"):
        assert switchyard.moe_dispatch(**few).shape == (200, 2)
    with_float = switchyard.moe_route(PROBS, k=2, eps=np.float64(0.5), renormalize=True)
    with_int = switchyard.moe_route(PROBS, k=2, eps=1, renormalize=True, scale=2)
    np.testing.assert_array_less(with_int.weights, 2 * with_float.weights)


# ---- Devices ----


class Elsewhere:
    """An array that claims to lie on another device: a real capsule, whose device is changed."""

    def __init__(self, array: Any, device: int) -> None:
        self.array, self.device = array, device
        self.shape, self.dtype = array.shape, array.dtype

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, **asked: Any) -> Any:
        capsule = self.array.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        tensor = pointer(capsule, b"dltensor")
        ctypes.c_int32.from_address(tensor + ctypes.sizeof(ctypes.c_void_p)).value = self.device
        return capsule


@pytest.mark.parametrize(
    ("device", "name"),
    [(4, "an OpenCL"), (8, "a Metal"), (10, "a ROCm"), (13, "a CUDA managed"), (14, "an oneAPI")],
)
def test_a_device_is_rejected_by_name(device: int, name: str) -> None:
    why = f"is on {name} device, want CPU memory: the context has no such device"
    with pytest.raises(ValueError) as caught:
        permute(tokens=Elsewhere(TOKENS, device))
    assert str(caught.value) == f"moe_permute: tokens {why}"
    assert isinstance(caught.value, Error)
    assert (caught.value.status, caught.value.fault.argument) == (Status.DEVICE, "tokens")

    out = permute()
    out.permuted_tokens[...] = 9
    assert said(permute, out=out._replace(permuted_tokens=Elsewhere(out.permuted_tokens, device))) == (
        f"moe_permute: permuted_tokens {why}"
    )
    assert (out.permuted_tokens == 9).all()


def test_without_the_library_for_cuda_devices() -> None:
    why = "is on cuda:0, and libswitchyard_cuda.so.0 could not be loaded: /no/such/file.so: cannot open shared object"
    out = permute()
    switchyard.configure(device_library="/no/such/file.so")
    try:
        for field, values in (
            ("tokens", {"tokens": Elsewhere(TOKENS, 2)}),
            ("permuted_tokens", {"out": out._replace(permuted_tokens=Elsewhere(out.permuted_tokens, 2))}),
        ):
            with pytest.raises(NotImplementedError) as caught:
                permute(**values)
            assert str(caught.value).startswith(f"moe_permute: {field} {why}")
            assert (caught.value.status, caught.value.fault.argument) == (Status.UNSUPPORTED, field)
    finally:
        switchyard.configure(device_library=None)


def test_a_wheel_with_the_library_for_cuda_devices_of_another_version(tmp_path, monkeypatch) -> None:
    """switchyard-ops-cuda13 is found by its name; what is in it is loaded, and rejected with one sentence."""
    if list((Path(switchyard.__file__).parent / "lib").glob("libswitchyard_cuda.so*")):
        pytest.skip("this package has its own library for CUDA devices")
    file = tmp_path / "switchyard_ops_cuda13" / "lib" / "libswitchyard_cuda.so.0"
    file.parent.mkdir(parents=True)
    (file.parent.parent / "__init__.py").touch()
    shutil.copy(switchyard.info().library, file)
    monkeypatch.syspath_prepend(tmp_path)
    switchyard.configure(device_library=None)
    try:
        assert switchyard.info().device_library == str(file)
        with pytest.raises(NotImplementedError) as caught:
            permute(tokens=Elsewhere(TOKENS, 2))
        why = f"libswitchyard_cuda.so.0 is of another version, want {switchyard.__version__}"
        assert str(caught.value) == f"moe_permute: tokens is on cuda:0, and {why}"
    finally:
        monkeypatch.undo()
        switchyard.configure(device_library=None)


def test_a_device_without_a_name() -> None:
    assert said(permute, probs=Elsewhere(PROBS, 99)) == (
        "moe_permute: probs is on device type 99, want CPU memory (type 1): the context has no such device"
    )


def test_this_machine_under_any_name() -> None:
    """The producer above is rejected for its device, not for what it is: pinned host memory is read."""
    for device in (1, 3, 11):
        got = permute(tokens=Elsewhere(TOKENS, device), out=permute())
        np.testing.assert_array_equal(got.permuted_tokens, permute().permuted_tokens, strict=True)


# ---- Other libraries ----


def test_arrays_of_two_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """test_frameworks.py mixes those of every operator."""
    torch = pytest.importorskip("torch")
    with monkeypatch.context() as without:  # ml_dtypes, NumPy has no such type for the results
        without_ml_dtypes(without)
        sentence = "probs is a torch array beside numpy ones, want arrays of one library, or out"
        assert said(permute, probs=torch.from_numpy(PROBS).bfloat16()) == f"moe_permute: {sentence}"
    got = permute(probs=torch.from_numpy(PROBS), out=permute())  # where results lie is settled, both are read
    np.testing.assert_array_equal(got.permuted_probs, permute().permuted_probs, strict=True)


# ---- The exception ----


KINDS: dict[type[Exception], str] = {
    TypeError: "NULL DTYPE",
    ValueError: "SHAPE STRIDE VALUE OVERFLOW ALIAS ROUTING CAPACITY DEVICE",
    IndexError: "INDEX",
    RuntimeError: "STATE COMM MISMATCH",
    NotImplementedError: "UNSUPPORTED",
    MemoryError: "NOMEM",
    TimeoutError: "TIMEOUT",
}


@pytest.mark.parametrize("status", [status for status in Status if status])
def test_every_error_is_one_of_pythons_own(status: Status) -> None:
    (kind,) = (kind for kind, names in KINDS.items() if status.name in names.split())
    error = errors.rejection(status, "moe_permute: a sentence", Fault("CODE", "tokens", 1, 2, 3, 4))
    assert isinstance(error, Error)
    assert isinstance(error, kind)
    assert isinstance(error, CommError) == (status in (Status.STATE, Status.COMM, Status.MISMATCH))
    assert type(error).__name__ in ("Error", "CommError")
    assert str(error) == "moe_permute: a sentence"
    assert error.status is status

    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(error, protocol))
        assert type(again) is type(error)
        assert (str(again), again.status, again.fault) == (str(error), error.status, error.fault)


def test_results_of_an_invalid_call_are_not_made() -> None:
    """Also not after a valid one that has the same results."""
    from switchyard.ops.moe_capacity import operator

    counts = np.array([4, 4, 2])
    assert operator.make((counts, 5, 3, 2, -0.5, 1))[0].shape == (1,)
    with pytest.raises(switchyard.Error, match="factor is -inf, want a finite number"):
        operator.make((counts, 5, 3, 2, -np.inf, 1))
