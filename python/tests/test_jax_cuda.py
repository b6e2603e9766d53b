"""The handler of switchyard.jax for CUDA, without a GPU: XLA's CPU buffers are the memory of the emulated device.

XLA calls a function of this file, which puts a stream and a device into XLA's table of functions and calls the handler.
"""

import ctypes
import functools
import os
from collections.abc import Iterator

import numpy as np
import pytest
from calls import HOST, call, same_bits
from test_jax import FIRST, MAP, TOKENS, in_jax, leaves

import switchyard

jax = pytest.importorskip("jax")
import switchyard.jax as sj  # noqa: E402
from switchyard.jax import _launch  # noqa: E402

LIBRARY = os.environ.get("SWITCHYARD_EMULATED_CUDA", "")
if not (os.path.exists(LIBRARY) and _launch.has_handlers()):
    pytest.skip("the emulated device or the handler was not built", allow_module_level=True)

# Places in XLA_FFI_CallFrame and XLA_FFI_Api, in pointers.
API, STREAM_GET, DEVICE_GET = 2, 10, 23
TARGET = "switchyard_on_the_emulated_device"


class Frame:
    """The functions that XLA calls, and what they keep alive."""

    def __init__(self) -> None:
        self.calls = 0
        handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
        self.run = handler(int(switchyard._binding.core.jax_handler("CUDA", *_launch._version())))
        self.get = (handler(self._stream), handler(self._device))
        self.called = handler(self._called)
        capsule = jax.ffi.pycapsule(ctypes.cast(self.called, ctypes.c_void_p).value)
        jax.ffi.register_ffi_target(TARGET, capsule, platform="cpu")

    def _stream(self, args: int) -> None:
        """XLA_FFI_Stream_Get: the default stream."""
        (ctypes.c_void_p * 4).from_address(args)[3] = 0

    def _device(self, args: int) -> None:
        """XLA_FFI_DeviceOrdinal_Get."""
        ctypes.c_int32.from_address(args + 24).value = 0

    def _called(self, frame: int) -> int | None:
        """Calls the handler with a copy of XLA's table."""
        fields = (ctypes.c_void_p * 3).from_address(frame)
        theirs = fields[API]
        table = ctypes.string_at(theirs, ctypes.c_size_t.from_address(theirs).value)
        ours = (ctypes.c_void_p * (len(table) // 8)).from_buffer_copy(table)
        for place, function in zip((STREAM_GET, DEVICE_GET), self.get, strict=True):
            ours[place] = ctypes.cast(function, ctypes.c_void_p).value
        fields[API] = ctypes.addressof(ours)
        error = self.run(frame)
        fields[API] = theirs
        self.calls += 1
        return error


@pytest.fixture(scope="module")
def frame() -> Frame:
    return Frame()


@pytest.fixture(autouse=True)
def _device(frame: Frame, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_launch, "TARGET", TARGET)
    jax.clear_caches()
    switchyard.configure(device_library=LIBRARY)
    yield
    jax.clear_caches()
    switchyard.sync()
    switchyard.configure(device_library=None)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in FIRST if name not in HOST])
def test_bits(name: str, frame: Frame) -> None:
    case, calls = FIRST[name], frame.calls
    arrays = {field: x for field, x in case.arrays.items() if x is not None}
    found = leaves(jax.block_until_ready(jax.jit(functools.partial(in_jax, case))(arrays)))
    switchyard.sync()
    assert frame.calls > calls
    for got, want in zip(found, leaves(call(case, {f: x.copy() for f, x in arrays.items()})), strict=True):
        assert same_bits(got, want.astype(_launch.NARROW.get(want.dtype.name, want.dtype)))


def test_faults() -> None:
    """Contents are validated on the device: sync raises the error, or the next call."""
    sentence = "moe_permute: routing_map routes token 0 to 3 experts, want at most 2"
    permute = jax.jit(lambda map: sj.moe_permute(TOKENS, map, num_out_tokens=8).permuted_tokens)
    jax.block_until_ready(permute(np.ones((4, 3), bool)))
    with pytest.raises(ValueError, match=f"^{sentence}") as caught:
        switchyard.sync()
    assert isinstance(caught.value, switchyard.Error)
    jax.block_until_ready(permute(np.ones((4, 3), bool)))
    with pytest.raises(ValueError, match=f"INVALID_ARGUMENT: {sentence}"):
        for _ in range(2):  # the fault may be found one call later
            jax.block_until_ready(permute(MAP))
    assert np.asarray(permute(MAP))[:, 0].tolist() == [10, 30, 40, 20, 30, 10, 20, 40]
