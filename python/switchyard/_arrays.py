"""Arrays of any library: which library an argument belongs to, new arrays, and arrays that NumPy does not export."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import numpy as np

from . import _binding
from ._ffi import meet_torch, tvm_ffi
from ._rules import STRIDES
from ._sentences import bad
from .errors import Status

if TYPE_CHECKING:
    import jax
    import torch

FEW = 1 << 15  # elements; torch clears larger tensors on several threads


class SupportsDLPack(Protocol):
    """An array in CPU memory of NumPy, PyTorch, JAX or any other library that supports DLPack."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...


Array = SupportsDLPack

# Results are arrays of the library of the first argument. A bound instead of constraints would give results the element
# type and rank of that argument where the library's type has them (NumPy). NumPy is last: type checkers take the last
# constraint that fits, and a library that is not installed fits everything.
A = TypeVar("A", SupportsDLPack, "torch.Tensor", "jax.Array", "np.ndarray[Any, np.dtype[Any]]")


class Framework:
    """How one library makes arrays. This class is for libraries with DLPack only: results are tensors of tvm-ffi."""

    mutable = True
    device: int | None = None  # the CUDA device of its arrays; None: CPU memory
    elsewhere = False  # whether arrays of the library may be on a device, see `at`
    takes_over = False  # whether results are made by the binding and handed over after the call
    strided: Any = None  # a faster way than `empty`: makes an array of a shape (a tuple), strides and an element type
    int32: Any = tvm_ffi.dtype("int32")
    int64: Any = tvm_ffi.dtype("int64")
    uint32: Any = tvm_ffi.dtype("uint32")
    uint16: Any = tvm_ffi.dtype("uint16")
    uint8: Any = tvm_ffi.dtype("uint8")
    int8: Any = tvm_ffi.dtype("int8")
    float32: Any = tvm_ffi.dtype("float32")
    float16: Any = tvm_ffi.dtype("float16")
    bfloat16: Any = tvm_ffi.dtype("bfloat16")  # None where the library has none
    bool: Any = tvm_ffi.dtype("bool")

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return _binding.empty(tvm_ffi.dtype(str(dtype).removeprefix("torch.")), *shape)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return _binding.zeros(tvm_ffi.dtype(str(dtype).removeprefix("torch.")), *shape)

    def finish(self, array: Any) -> Any:
        return array

    def at(self, array: Any) -> Framework:
        """How the library makes arrays where this one is."""
        return self

    def dtype(self, name: str) -> Any:
        """An element type by its name."""
        return name


class NumPy(Framework):
    int32, int64, uint32 = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.uint32)
    uint16, uint8, int8 = np.dtype(np.uint16), np.dtype(np.uint8), np.dtype(np.int8)
    float32, float16, bool = np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.bool_)
    empty: Any = staticmethod(np.empty)
    zeros: Any = staticmethod(np.zeros)

    @functools.cached_property
    def bfloat16(self) -> Any:
        try:
            import ml_dtypes
        except (ImportError, AttributeError):  # not installed, or built for another NumPy
            return None
        return np.dtype(ml_dtypes.bfloat16)

    def dtype(self, name: str) -> Any:
        if name == "bfloat16" and self.bfloat16 is None:
            raise TypeError("NumPy has no bfloat16 without ml_dtypes")
        return np.dtype(name)


def fast_empty(torch: Any, kind: str) -> Any:
    """The function that compiled graphs of PyTorch make results with, in less than half the time of torch.empty: on the
    current device of a kind, and real ones where a mode would make others. None in a PyTorch without it.
    """
    return getattr(getattr(torch._C._dynamo, "guards", None), f"_empty_strided_{kind}", None)


class Torch(Framework):
    """PyTorch; the program that made the tensor has imported it."""

    elsewhere = True

    def __init__(self, torch: Any) -> None:
        meet_torch()
        self.torch = torch
        self._places: dict[int, Framework] = {}
        self.int32, self.int64, self.uint32 = torch.int32, torch.int64, torch.uint32
        self.uint16, self.uint8, self.int8 = torch.uint16, torch.uint8, torch.int8
        self.float32, self.float16, self.bfloat16 = torch.float32, torch.float16, torch.bfloat16
        self.bool = torch.bool
        self.strided = fast_empty(torch, "cpu")
        self.written = _binding.meet(torch)

    def at(self, array: Any) -> Framework:
        if not array.is_cuda:
            return self
        number = array.get_device()
        found = self._places.get(number)
        if found is None:
            found = self._places[number] = devices.OnTorch(number, self)
        return found

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self.torch.empty(*shape, dtype=dtype)  # with a tuple torch takes twice as long

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        if self.strided is None or prod(shape) > FEW:
            return self.torch.zeros(*shape, dtype=dtype)
        made = self.strided(shape, STRIDES[shape], dtype)
        _binding.clear(made)  # torch.zeros takes up to 4 us more
        return made

    def dtype(self, name: str) -> Any:
        return getattr(self.torch, name)


class ArrayApi(Framework):
    """JAX and other libraries of the array API standard: results are allocated here and handed over by DLPack."""

    elsewhere = True
    takes_over = True

    def __init__(self, namespace: Any) -> None:
        self.namespace = namespace
        self.mutable = not namespace.__name__.startswith("jax")

    def at(self, array: Any) -> Framework:
        return _elsewhere(self, array)

    def finish(self, array: Any) -> Any:
        return None if array is None else self.namespace.from_dlpack(array)


class DLPackAlone(Framework):
    """Libraries without an array namespace, or with one that only CuPy has."""

    elsewhere = True

    def at(self, array: Any) -> Framework:
        return _elsewhere(self, array)


def _elsewhere(xp: Any, array: Any) -> Framework:
    """The same library where an array is."""
    number = devices.device_of(array)
    if number is None:
        return xp  # type: ignore[no-any-return]
    library = type(array).__module__.partition(".")[0]
    place: Any
    if (library, number) not in _places:
        if library == "cupy":
            place = devices.OnCuPy(number, sys.modules["cupy"])
        else:
            place = devices.Imports(number, xp.namespace) if xp.takes_over else devices.Place(number)
        _places[library, number] = place
    return _places[library, number]


devices: Any = None  # the module _device, which needs the classes above
NUMPY: Framework = NumPy()
_places: dict[tuple[str, int], Framework] = {}
known: dict[type, Framework] = {np.ndarray: NUMPY}
PLAIN = frozenset({np.ndarray, type(None), bool, int, float, str})  # types of values without gradient or mask
_simple = set(PLAIN)  # the same of other libraries, as far as they have been seen
_dlpack_alone = DLPackAlone()


def framework(array: Any) -> Framework:
    """The library of an array."""
    found = known.get(type(array))
    return found if found is not None else _learn(array)


def _learn(array: Any) -> Framework:
    kind = type(array)
    torch = sys.modules.get("torch")
    if isinstance(array, np.ndarray):
        found = NUMPY
    elif torch is not None and isinstance(array, torch.Tensor):
        found = next((f for f in known.values() if isinstance(f, Torch)), None) or Torch(torch)
    else:
        found = _namespace(array) or _dlpack_alone
    if is_array(array):
        known[kind] = found
    return found


def is_array(value: Any) -> bool:
    """Whether a value offers DLPack. One whose attributes raise does not."""
    try:
        return hasattr(value, "__dlpack__")
    except Exception:
        return False


def _namespace(array: Any) -> Framework | None:
    """The library of an array with a namespace; None for others, also where the attempt raises."""
    if not is_array(array):
        return None
    try:
        return ArrayApi(array.__array_namespace__())
    except Exception:
        return None


def tell_written(arrays: Sequence[Any]) -> None:
    """Moves the version counter of tensors of PyTorch that were written to, as its own functions do: autograd rejects a
    backward pass that needs what they held before.
    """
    torch = sys.modules.get("torch")
    if torch is not None and (tensors := [a for a in arrays if type(a) not in PLAIN and isinstance(a, torch.Tensor)]):
        cast("Torch", framework(tensors[0])).written(tensors)


def lost(array: Any, gradient: str) -> str:
    """Why an array is rejected: a mask, a gradient or a lazy sign that an operator would drop; "" if it has none.

    `gradient`: what is wanted in place of a tensor that requires one; "" where that does not matter.
    """
    if "numpy.ma" in sys.modules and isinstance(array, np.ma.MaskedArray):  # np.ma would import it
        return "is a masked array, whose mask would be lost, want a plain array, such as its filled()"
    if not isinstance(framework(array), Torch):
        return ""
    if gradient and array.requires_grad:
        return f"requires a gradient, which would end here: want {gradient}"
    lazy = array.is_neg() or array.is_conj()  # the values in memory have other signs
    return "is a lazy conjugate or negation, want resolve_conj().resolve_neg() of it" if lazy else ""


def reject_lost(name: str, values: Sequence[Any], flows: Sequence[int] = (), first: int = 0) -> None:
    """Rejects arrays that hold more than their numbers. `flows`: those whose gradient would be lost, by their index.

    The values are those of a call from the index `first` on.
    """
    if _simple.issuperset(map(type, values)):
        return
    for i, value in enumerate(values):
        if type(value) in _simple:
            continue
        torch = sys.modules.get("torch")
        tracked = i in flows and torch is not None and torch.is_grad_enabled()
        why = lost(value, f"switchyard.torch.{name}, or a detached tensor" if tracked else "")
        if why:
            raise bad(Status.VALUE, name, (*_binding.fields(name), *["out"] * len(values))[first + i], why)
        if not isinstance(framework(value), Torch):
            _simple.add(type(value))


class ByName:
    """Makes arrays of one library from element types of another."""

    def __init__(self, xp: Framework) -> None:
        self._xp = xp

    def __getattr__(self, field: str) -> Any:
        return getattr(self._xp, field)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self._xp.empty(shape, self._xp.dtype(str(dtype).removeprefix("torch.")))

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self._xp.zeros(shape, self._xp.dtype(str(dtype).removeprefix("torch.")))


def view(array: Any) -> Any:
    """A tensor over an array that NumPy does not export through DLPack.

    These are read-only arrays and types of ml_dtypes (bfloat16, float8). Their address, shape and strides are passed
    instead.
    """
    if not isinstance(array, np.ndarray):
        return tvm_ffi.from_dlpack(array)
    if not array.dtype.isnative:
        raise ValueError("the bytes of its elements are in the order of other machines")
    if array.dtype.kind in "OSUMm" or array.dtype.name.startswith("void"):  # tvm-ffi takes seconds to reject it
        raise ValueError(f"unknown dtype `{array.dtype.name}`")
    size = array.itemsize
    if any(stride % size for stride in array.strides):
        raise ValueError("its strides are no multiples of its element")
    address: int = array.__array_interface__["data"][0]
    strides = (stride // size for stride in array.strides)
    return _binding.view(address, tvm_ffi.dtype(array.dtype.name), *array.shape, *strides)
