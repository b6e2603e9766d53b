"""Reads the arguments of a call on a mesh into the values the binding takes."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import numpy as np

from .. import _arrays, _binding
from .._binding import core
from .._numbers import integer, is_flag
from .._operator import choose
from .._sentences import bad, shown
from ..errors import Error, Status
from ._handle import Axis, Handle, Routing


def _quickly(array: Any, write: bool) -> Any:
    """A tensor over an array of a common kind; None for other kinds."""
    if type(array) is np.ndarray and (array.flags.writeable or not write):
        with contextlib.suppress(BufferError, RuntimeError, TypeError):
            return core.tensor(array.__dlpack__())
    return None


def _shaped(array: Any) -> Any:
    """The array, or a tensor over one that has no attributes but DLPack's."""
    if _arrays.is_array(array) and not hasattr(array, "shape"):
        with contextlib.suppress(Exception):
            return _arrays.imported(array)
    return array


def whole(name: str, field: str, value: Any) -> int:
    cause = None
    try:
        number = integer(value)
    except Exception as error:  # also for anything that a caller's class raises
        number, cause = 1 << 31, error
    if -(1 << 31) < number < 1 << 31:
        return number
    raise bad(Status.VALUE, name, field, f"is {shown(value)}, want an integer of 32 bits") from cause


def flag(name: str, field: str, value: Any) -> bool:
    if is_flag(value):
        return bool(value)
    raise bad(Status.DTYPE, name, field, f"is {shown(value)}, want True or False")


class Reader:
    """Reads the arguments of one call. An invalid one raises at once; over MPI :meth:`Handle.reject` then rejects the
    call in all processes.
    """

    def __init__(self, handle: Handle, name: str) -> None:
        self.handle, self.name = handle, name
        self.keep: list[Any] = []  # everything that must live until the call is done
        self.xp: Any = _arrays.NUMPY  # the library of the input, where it is

    def bad(self, status: Status, field: str, text: str) -> Error:
        return bad(status, self.name, field, text)

    def shards(self, field: str, value: Any) -> tuple[Any, ...]:
        """The arrays of a field, one for each device of this process."""
        n = self.handle.shards
        if value is None:
            return (None,) * n
        if self.handle.collective:
            return (_shaped(value),)
        if not isinstance(value, (list, tuple)):
            shape = getattr(value, "shape", None)
            if not shape:
                raise self.bad(Status.DTYPE, field, f"is {shown(value)}, want an array for each device")
            value = tuple(value[d] for d in range(n)) if shape[0] == n else range(shape[0])
        if len(value) != n:
            raise self.bad(Status.SHAPE, field, f"has {len(value)} arrays, want {n}, one for each device")
        return tuple(_shaped(array) for array in value)

    def tensors(self, field: str, arrays: tuple[Any, ...], write: bool = False) -> list[Any]:
        """The values of a field: a tensor for each device, or None for each."""
        missing = [d for d, array in enumerate(arrays) if array is None]
        if len(missing) == len(arrays):
            return [None] * len(arrays)
        if missing:
            what = self._of_device(field, missing[0])
            raise self.bad(Status.NULL, what, "is missing, want an array for each device")
        return [self.tensor(field, array, write, d) for d, array in enumerate(arrays)]

    def _of_device(self, field: str, d: int) -> str:
        return field if self.handle.collective else f"{field} of device {d}"

    def tensor(self, field: str, array: Any, write: bool = False, device: int | None = None) -> Any:
        """The value of an array; `device` if the field has one for each."""
        if array is None:
            return None
        read = _quickly(array, write)
        if read is None:
            read = self._tensor(field if device is None else self._of_device(field, device), array, write)
        self.keep += (array, read)
        return read

    def _tensor(self, what: str, array: Any, write: bool) -> Any:
        """The same for other kinds of arrays."""
        if isinstance(array, core.Tensor):
            return array
        why = (_arrays.read_only(array) if write else "") or _arrays.lost(array, "a detached tensor")
        if why:
            raise self.bad(Status.VALUE, what, why)
        if not _arrays.is_array(array):
            raise self.bad(Status.DTYPE, what, f"is {shown(array)}, want an array")
        try:
            return _arrays.view(array) if self.xp.device is None else self.xp.view(array)
        except Exception as error:
            why = str(error).partition("\n")[0]
            raise self.bad(Status.DTYPE, what, f"cannot be read as a tensor: {why}") from error

    def numbers(self, given: dict[str, Any]) -> dict[str, Any]:
        """The fields that are no tensors, of arguments by name, in the order of the binding's table."""
        fields = _scalars(self.name)
        made: dict[str, Any] = fields.copy()
        for name, read in fields.items():
            if read is not None:
                made[name] = read(self.name, name, given[name])
        made["routing"] = self.routing(given["routing"])
        return made

    def routing(self, value: Routing | None) -> Any:
        if value is None:
            return None
        if not isinstance(value, Routing):
            raise self.bad(Status.DTYPE, "routing", f"is {shown(value)}, want one of this mesh")
        if value._handle.pointer is None and value._handle is not self.handle:
            raise self.bad(Status.STATE, "routing", "is of a mesh that is closed, want one of this mesh")
        self.keep.append(value)
        return value._pointer


def _word(name: str, field: str, word: Any) -> Any:
    words = _binding.words(name, field)
    return word if type(word) is str and word in words else words[choose(name, field, words, word)]


def _format(name: str, field: str, value: Any) -> Any:
    return None if value is None else _word(name, field, value)


def _dimension(name: str, field: str, value: Any) -> int:
    return 0 if value is None else whole(name, field, value)


def _axis(name: str, field: str, value: Any) -> Axis:
    if value is None:
        return "none"
    with contextlib.suppress(Exception):
        if integer(value) in (0, 1):
            return integer(value)
    raise bad(Status.VALUE, name, field, f"is {shown(value)}, want None, 0 or 1")


_KINDS = {"enum": _word, "format": _format, "bool": flag, "int": whole, "i64": whole}
_NAMED = {"cluster_axis": _axis, "output_concat_dim": _dimension, "output_shard_dim": _dimension}


@functools.cache
def _scalars(name: str) -> dict[str, Any]:
    """The fields of an operator that are no tensors, and the function that reads each; None for the last one read."""
    fields = (field for field in _binding.table(name) if field.kind != "tensor")
    return {field.name: _NAMED.get(field.name) or _KINDS.get(field.kind) for field in fields}
