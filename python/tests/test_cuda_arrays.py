"""Arrays of CuPy and JAX on a CUDA device: every bit is that of the CPU, in the stream that the library uses."""

from collections.abc import Callable, Iterator
from typing import Any

import calls
import numpy as np
import pytest

import switchyard

BAD = np.ones((4, 3), bool)
SENTENCE = "moe_permute: routing_map routes token 0 to 3 experts, want at most 2"


def cupy() -> Any:
    found = pytest.importorskip("cupy", reason="CuPy is not installed")
    if not found.cuda.is_available():
        pytest.skip("CuPy sees no CUDA device here")
    return found


def jax() -> Any:
    found = pytest.importorskip("jax", reason="jax is not installed")
    try:
        found.devices("cuda")
    except RuntimeError:
        pytest.skip("JAX sees no CUDA device here")
    return found


def to_cupy() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    return cupy().asarray, cupy().asnumpy


def to_jax() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    device = jax().devices("cuda")[0]
    jax().config.update("jax_enable_x64", True)
    return lambda array: jax().device_put(array, device), np.asarray


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    switchyard.sync()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", [to_cupy, to_jax])
@pytest.mark.parametrize("case", [case for _, case in calls.on_device()], ids=[name for name, _ in calls.on_device()])
def test_bits(case: calls.Case, library: Any) -> None:
    there, back = library()
    if case.changes and library is to_jax:
        pytest.skip("arrays of JAX cannot be written to")
    try:
        arrays = calls.taken(case, there)
    except (TypeError, ValueError, NotImplementedError) as error:  # a type that the library does not have
        pytest.skip(str(error).partition("\n")[0])
    wanted = calls.call(case, calls.taken(case, np.copy))
    got = calls.call(case, arrays)
    kind = type(next(iter(arrays.values())))
    assert all(g is None or isinstance(g, kind) for g in got)
    assert [g if g is None else back(g).tobytes() for g in got] == [w if w is None else w.tobytes() for w in wanted]


@pytest.mark.parametrize("library", [to_cupy, to_jax])
def test_errors_of_contents(library: Any) -> None:
    there, _ = library()
    tokens = there(np.ones((4, 2), np.float32))
    with pytest.raises(ValueError, match=SENTENCE):
        switchyard.moe_permute(tokens, there(BAD), num_out_tokens=8)  # with JAX by the call, which waits
        switchyard.sync()


def test_streams_of_cupy() -> None:
    """A call in a stream waits for the work before it there, and that after it waits for the call."""
    xp = cupy()
    tokens, routing_map = xp.zeros((4, 1 << 20), np.float32), xp.asarray(np.arange(12).reshape(4, 3) % 3 < 2)
    xp.cuda.Device(0).synchronize()
    with xp.cuda.Stream(non_blocking=True) as stream:
        for _ in range(50):
            tokens += 1
        made = switchyard.moe_permute(tokens, routing_map, num_out_tokens=8)
        total = made.permuted_tokens.sum(dtype=np.float64)
        stream.synchronize()
    assert float(total) == 50 * 8 * (1 << 20)
