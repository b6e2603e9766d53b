"""Arrays of any library: which library an argument belongs to, new arrays, and arrays that NumPy does not export."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from . import _binding
from ._binding import core
from ._sentences import bad, library
from .errors import Status

if TYPE_CHECKING:
    import jax
    import torch

Tensor = core.Tensor  # what calls on arrays return whose library has DLPack alone

# Element types by the library's numbers (sy_type), as NumPy and ml_dtypes name them.
NAMES = (
    "",
    *"int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bfloat16 bool".split(),
    *"float8_e4m3fn float8_e5m2 float8_e8m0fnu".split(),
)
_SHORT = "i8 i16 i32 i64 u8 u16 u32 u64 f16 f32 f64 bf16 bool f8_e4m3 f8_e5m2 f8_e8m0"
TYPES = dict(zip(_SHORT.split(), NAMES[1:], strict=True))  # the same by the library's names
BFLOAT16, FOREIGN = NAMES.index("bfloat16"), ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")


class SupportsDLPack(Protocol):
    """An array in CPU memory of NumPy, PyTorch, JAX or any other library that supports DLPack."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...


Array = SupportsDLPack

# Results are arrays of the library of the first argument. A bound instead of constraints would give results the element
# type and rank of that argument where the library's type has them (NumPy). NumPy is last: type checkers take the last
# constraint that fits, and a library that is not installed fits everything.
A = TypeVar("A", SupportsDLPack, "torch.Tensor", "jax.Array", "np.ndarray[Any, np.dtype[Any]]")


class Framework:
    """How one library makes arrays. This class is for libraries with DLPack only: results are of the class Tensor."""

    mutable = True
    device: int | None = None  # the CUDA device of its arrays; None: CPU memory
    elsewhere = False  # whether arrays of the library may be on a device, see `at`
    takes_over = False  # whether results are made by the binding and handed over after the call
    waits = False  # whether a call on a device returns when it has ended
    strided: Any = None  # a faster way than `empty`: makes an array of a shape (a tuple), strides and an element type
    types: tuple[Any, ...] = (None, *NAMES[1:])  # element types by number, None where the library has none

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return core.empty(shape, str(dtype).removeprefix("torch."))

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return core.zeros(shape, str(dtype).removeprefix("torch."))

    def finish(self, array: Any) -> Any:
        return array

    def stream(self) -> int:
        """The stream of calls on a device, a cudaStream_t; 0 is the default stream."""
        return 0

    def view(self, array: Any) -> Any:
        """A Tensor over an array."""
        return view(array)

    def at(self, array: Any) -> Framework:
        """How the library makes arrays where this one is."""
        return self

    def dtype(self, name: str) -> Any:
        """An element type by its name; None: the library has none."""
        return self.types[NAMES.index(name)]


class NumPy(Framework):
    types = (None, *(None if name in FOREIGN else np.dtype(name) for name in NAMES[1:]))
    empty: Any = staticmethod(np.empty)
    zeros: Any = staticmethod(np.zeros)

    def dtype(self, name: str) -> Any:
        found = None if name in FOREIGN else np.dtype(name)
        if found is None and (found := self.types[NAMES.index(name)]) is None:
            try:
                import ml_dtypes

                found = np.dtype(getattr(ml_dtypes, name))
            except (ImportError, AttributeError):  # not installed, an old one, or built for another NumPy
                return None
            NumPy.types = tuple(found if named == name else kind for named, kind in zip(NAMES, self.types, strict=True))
        return found


def fast_empty(torch: Any, kind: str) -> Any:
    """The function that compiled graphs of PyTorch make results with, in less than half the time of torch.empty: on the
    current device of a kind, and real ones where a mode would make others. None in a PyTorch without it.
    """
    return getattr(getattr(torch._C._dynamo, "guards", None), f"_empty_strided_{kind}", None)


class Torch(Framework):
    """PyTorch; the program that made the tensor has imported it."""

    elsewhere = True

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self._places: dict[int, Framework] = {}
        self.types = (None, *(getattr(torch, name, None) for name in NAMES[1:]))
        self.strided = fast_empty(torch, "cpu")

    def at(self, array: Any) -> Framework:
        if not array.is_cuda:
            return self
        number = array.get_device()
        found = self._places.get(number)
        if found is None:
            found = self._places[number] = devices.OnTorch(number, self)
        return found

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self.torch.empty(shape, dtype=dtype)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self.torch.zeros(shape, dtype=dtype)


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
core.meet_arrays(np.ndarray)
core.makers(NUMPY, None)
_places: dict[tuple[str, int], Framework] = {}
known: dict[type, Framework] = {np.ndarray: NUMPY}
PLAIN = frozenset({np.ndarray, type(None), bool, int, float, str})  # types of values without gradient or mask
_simple = set(PLAIN)  # the same of other libraries, as far as they have been seen
_dlpack_alone = DLPackAlone()
_written: list[Any] = []  # the function that moves version counters, once PyTorch is known


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
        found = meet_torch(torch)
    else:
        found = _namespace(array) or _dlpack_alone
    if is_array(array):
        known[kind] = found
    return found


def meet_torch(torch: Any) -> Framework:
    """PyTorch, which _core then knows too."""
    found = next((f for f in known.values() if isinstance(f, Torch)), None)
    if found is None:
        known[torch.Tensor] = found = Torch(torch)
        _written.append(_binding.meet(torch))
        core.makers(None, found)
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
        meet_torch(torch)
        _written[0](tensors)


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


def read_only(array: Any) -> str:
    """Why an array is rejected that is to be written to; "" if it can be."""
    numpys = isinstance(array, np.ndarray)
    fine = array.flags.writeable if numpys else framework(array).mutable
    return "" if fine else f"is a read-only {library(array)} array, want one that can be written to"


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


def type_like(xp: Framework, array: Any) -> Any:
    """The element type of an array, which may be of another library."""
    if framework(array) is framework_of(xp):
        return array.dtype
    name = str(array.dtype).removeprefix("torch.")
    found = xp.dtype(name) if name in NAMES else None
    if found is None:
        raise TypeError(f"there is no {name} in the library of the results")
    return found


def framework_of(xp: Framework) -> Framework:
    """The library of a place."""
    return getattr(xp, "base", xp)


def imported(array: Any) -> Any:
    """A Tensor over an array in CPU memory."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        array = array.detach()
    try:
        capsule = array.__dlpack__(max_version=(1, 0))
    except TypeError:  # an older library
        capsule = array.__dlpack__()
    return core.tensor(capsule)


def view(array: Any) -> Any:
    """A Tensor over an array; address, shape and strides of those that NumPy does not export through DLPack.

    These are read-only arrays of an older NumPy and types of ml_dtypes (bfloat16, float8).
    """
    if not isinstance(array, np.ndarray):
        return imported(array)
    if not array.dtype.isnative:
        raise ValueError("the bytes of its elements are in the order of other machines")
    if array.dtype.kind in "OSUMm":
        raise ValueError(f"unknown dtype `{array.dtype.name}`")
    size = array.itemsize
    if any(stride % size for stride in array.strides):
        raise ValueError("its strides are no multiples of its element")
    address: int = array.__array_interface__["data"][0]
    return core.view(address, array.dtype.name, array.shape, tuple(stride // size for stride in array.strides))
