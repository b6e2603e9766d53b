"""Arguments of a call on a mesh, as the values the binding takes."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm_ffi

from .. import _arrays
from .._operator import ODD, choose
from ..errors import Error, Status, refusal
from ._handle import Handle, Routing

# Stands for what cannot be read. No field takes it, so that the operator refuses the call in all processes.
_UNREADABLE = _arrays.view(np.zeros(1, np.float64))


def _writable(array: Any) -> bool:
    return array.flags.writeable if isinstance(array, np.ndarray) else _arrays.framework(array).mutable


class Reader:
    """Reads the arguments of one call.

    What is wrong raises at once. In one process of several that would leave the others waiting: there the first
    trouble is kept, and a value that the operator refuses goes on in place of the one that could not be read.
    """

    def __init__(self, handle: Handle, name: str) -> None:
        self.handle, self.name = handle, name
        self.trouble: Exception | None = None
        self.keep: list[Any] = []  # everything that must live until the call is done

    def fail(self, error: Exception) -> None:
        if not self.handle.collective:
            raise error
        self.trouble = self.trouble or error

    def shards(self, field: str, value: Any) -> tuple[Any, ...]:
        """The arrays of a field, one for each device of this process."""
        n = self.handle.shards
        if value is None:
            return (None,) * n
        if self.handle.collective:
            return (value,)
        if not isinstance(value, (list, tuple)):
            shape = getattr(value, "shape", None)
            if not shape:
                said = f"{self.name}: {field} is a {type(value).__name__}"
                raise refusal(Status.DTYPE, f"{said}, want an array for each device")
            value = tuple(value[d] for d in range(n)) if shape[0] == n else range(shape[0])
        if len(value) != n:
            said = f"{self.name}: {field} has {len(value)} arrays"
            raise refusal(Status.SHAPE, f"{said}, want {n}, one for each device")
        return tuple(value)

    def tensors(self, field: str, arrays: tuple[Any, ...], write: bool = False) -> list[Any]:
        """The values of a field: a tensor for each device, or None for each."""
        missing = [d for d, array in enumerate(arrays) if array is None]
        if missing and len(missing) < len(arrays):
            said = f"{self.name}: {field} of device {missing[0]} is missing"
            raise refusal(Status.NULL, f"{said}, want an array for each device")
        return [self.tensor(self._of_device(field, d), array, write) for d, array in enumerate(arrays)]

    def _of_device(self, field: str, d: int) -> str:
        return field if self.handle.collective else f"{field} of device {d}"

    def tensor(self, what: str, array: Any, write: bool = False) -> Any:
        if array is None:
            return None
        try:
            read = self._tensor(what, array, write)
        except Error as error:
            self.fail(error)
            return _UNREADABLE
        self.keep += (array, read)
        return read

    def _tensor(self, what: str, array: Any, write: bool) -> Any:
        if isinstance(array, tvm_ffi.Tensor):
            return array
        if write and not _writable(array):
            library = type(array).__module__.partition(".")[0]
            said = f"{self.name}: {what} is a read-only {library} array"
            raise refusal(Status.VALUE, f"{said}, want one that can be written to")
        if getattr(array, "requires_grad", False):
            said = f"{self.name}: {what} requires a gradient, which would end here"
            raise refusal(Status.VALUE, f"{said}: want a detached tensor")
        if not hasattr(array, "__dlpack__"):
            raise refusal(Status.DTYPE, f"{self.name}: {what} is a {type(array).__name__}, want an array")
        try:
            return tvm_ffi.from_dlpack(array)
        except ODD as error:
            return self._view(what, array, error)

    def _view(self, what: str, array: Any, error: Exception) -> Any:
        """NumPy's arrays that do not pass DLPack's door."""
        try:
            if isinstance(array, np.ndarray):
                return _arrays.view(array)
        except ODD as worse:
            error = worse
        why = str(error).partition("\n")[0]
        raise refusal(Status.DTYPE, f"{self.name}: {what} cannot be read as a tensor: {why}") from error

    def number(self, field: str, value: Any) -> int:
        try:
            number = operator.index(value)
        except TypeError:
            number = -(1 << 31)
        if -(1 << 31) < number < 1 << 31:
            return number
        self.fail(refusal(Status.VALUE, f"{self.name}: {field} is {value!r}, want an integer of 32 bits"))
        return -1

    def word(self, field: str, words: Mapping[str, int], word: str) -> int:
        try:
            return choose(self.name, field, words, word)
        except Error as error:
            self.fail(error)
            return -1

    def dimension(self, field: str, value: int | None) -> int:
        return 0 if value is None else self.number(field, value)

    def axis(self, value: int | None) -> int:
        if value is None or value in (0, 1):
            return 0 if value is None else int(value) + 1
        self.fail(refusal(Status.VALUE, f"{self.name}: cluster_axis is {value!r}, want None, 0 or 1"))
        return -1

    def routing(self, value: Routing | None) -> Any:
        if value is None:
            return None
        if not isinstance(value, Routing):
            said = f"{self.name}: routing is a {type(value).__name__}, want one of this mesh"
            self.fail(refusal(Status.DTYPE, said))
            return None
        if value._handle.pointer is None and value._handle is not self.handle:
            self.fail(refusal(Status.STATE, f"{self.name}: routing is of a mesh that is closed, want one of this mesh"))
            return None
        self.keep.append(value)
        return value._pointer
