"""Arrays on CUDA devices: new ones, the stream that their library uses now, and waiting for devices."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from . import _arrays
from ._arrays import Framework, NumPy, fast_empty, imported, view
from ._binding import core, last_failure
from .errors import rejection

CUDA = 2  # kDLCUDA


def device_of(array: Any) -> int | None:
    """The number of the CUDA device that an array is on; None for other memory."""
    try:
        kind, number = array.__dlpack_device__()
    except Exception:  # what is wrong with it is found when it is read
        return None
    return int(number) if int(kind) == CUDA else None


class Place(Framework):
    """Arrays of one library on one CUDA device.

    This class is for libraries with DLPack only. They have no stream that could be asked for: calls run in the default
    stream, which waits for the work on their arrays, and results are of the class Tensor with memory of the device.
    """

    def __init__(self, device: int) -> None:
        self.device: int = device

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return core.device_empty(self.device, shape, str(dtype).removeprefix("torch."))

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        made = self.empty(shape, dtype)
        size = 1 if str(dtype) == "bool" else int("".join(filter(str.isdigit, str(dtype).partition("_")[0]))) // 8
        core.copy(made, np.zeros(int(np.prod(shape, dtype=np.int64)) * size, np.uint8))
        return made

    def put(self, array: Any) -> Any:
        """A NumPy array as one of the device."""
        made = self.empty(array.shape, array.dtype)
        core.copy(made, view(np.ascontiguousarray(array)))
        return made

    def view(self, array: Any) -> Any:
        """A tensor over an array whose work is done, or is waited for by the stream."""
        if isinstance(array, core.Tensor):
            return array
        if isinstance(array, np.ndarray):
            return view(array)
        if device_of(array) is None:
            return imported(array)
        try:
            capsule = array.__dlpack__(stream=self.stream() or 1)  # 1 is the default stream in DLPack
        except TypeError:  # it does not know streams
            capsule = array.__dlpack__()
        return core.tensor(capsule)

    def number(self, array: Any) -> int:
        """The int64 that an array holds; waits for it."""
        host = np.empty(1, np.int64)
        core.copy(host, self.view(array), self.stream())
        return int(host[0])


class Imports(Place):
    """A library that takes results over and has no stream, such as JAX: calls wait."""

    takes_over = True
    waits = True

    def __init__(self, device: int, namespace: Any) -> None:
        super().__init__(device)
        self.namespace = namespace
        self.mutable = not namespace.__name__.startswith("jax")

    def finish(self, array: Any) -> Any:
        return None if array is None else self.namespace.from_dlpack(array)


class OnTorch(Place):
    """PyTorch: its stream comes with the tensors."""

    def __init__(self, device: int, base: Any) -> None:
        super().__init__(device)
        self.torch, self.base, self.types = base.torch, base, base.types
        self._there = self.torch.device("cuda", device)
        self._made_here = fast_empty(self.torch, "cuda")
        alone = self._made_here is None or self.torch.cuda.device_count() == 1  # it is the current device
        self.strided = self._made_here if alone else self._strided

    def stream(self) -> int:
        return int(self.torch._C._cuda_getCurrentRawStream(self.device))

    def _strided(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Any:
        if self.torch._C._cuda_getDevice() == self.device:
            return self._made_here(shape, strides, dtype)
        return self.torch.empty_strided(shape, strides, dtype=dtype, device=self._there)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self.torch.empty(shape, dtype=dtype, device=self._there)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self.torch.zeros(shape, dtype=dtype, device=self._there)

    def put(self, array: Any) -> Any:
        return self.torch.from_numpy(array).to(self._there)


class OnCuPy(Place, NumPy):
    """CuPy, whose element types are NumPy's."""

    def __init__(self, device: int, cupy: Any) -> None:
        super().__init__(device)
        self._cupy = cupy
        self._used: dict[int, Any] = {}  # streams by address: contexts name them, so they stay
        _cupy_devices.add(device)

    def stream(self) -> int:
        now = self._cupy.cuda.get_current_stream(self.device)
        self._used.setdefault(now.ptr, now)
        return int(now.ptr)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self._made(self._cupy.empty, shape, dtype)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self._made(self._cupy.zeros, shape, dtype)

    def put(self, array: Any) -> Any:
        return self._made(self._cupy.asarray, array)

    def _made(self, make: Any, *values: Any) -> Any:
        if self._cupy.cuda.runtime.getDevice() == self.device:
            return make(*values)
        with self._cupy.cuda.Device(self.device):
            return make(*values)


def sync(device: int | None = None) -> None:
    """Wait for the work of calls on CUDA devices, and raise the first error that their contents gave.

    A call on a device returns when its work is queued. What it finds wrong in the contents of its arrays is raised by
    the next call in the same stream, or by this function. Its results are unchanged then, and those of the calls after
    it in that stream as well. After replays of a graph this function is the only one that raises their errors.

    Args:
        device: the number of a device; without it all that were used.

    >>> import switchyard
    >>> switchyard.sync()
    """
    for name, wait in (("torch", _wait_for_torch), ("cupy", _wait_for_cupy)):
        if name in sys.modules:
            wait(sys.modules[name], device)
    if status := core.sync(-1 if device is None else device):
        raise rejection(status, *last_failure())


def _wait_for_torch(torch: Any, device: int | None) -> None:
    """Waits for graphs too, which run in other streams than those of their capture."""
    if hasattr(torch, "cuda") and torch.cuda.is_initialized():
        for number in range(torch.cuda.device_count()) if device is None else (device,):
            torch.cuda.synchronize(number)


def _wait_for_cupy(cupy: Any, device: int | None) -> None:
    if _cupy_devices:
        for number in tuple(_cupy_devices) if device is None else (device,):
            cupy.cuda.Device(number).synchronize()


_cupy_devices: set[int] = set()
_arrays.devices = sys.modules[__name__]
