"""Parameters of rows: an array with a value for each row, or a Python number for all rows.

Any exception of a conversion is a rejection: classes of callers may raise what they like.
"""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from ._arrays import is_array
from ._sentences import bad, shown
from .errors import Status

_64_BITS = (1 << 64) - 1
_HALF = 1 << 63


def count(name: str, field: str, value: Any) -> int:
    """A number of rows, which is not passed to the binding."""
    try:
        rows = index(value)
    except Exception as error:
        raise _rejection(name, field, value, "an integer") from error
    if not 0 <= rows < _HALF:
        raise bad(Status.VALUE, name, field, f"is {rows}, want {'0 or more' if rows < 0 else 'an integer of 64 bits'}")
    return rows


def whole(name: str, field: str, value: Any) -> Any:
    """An integer for all rows, or integers of rows."""
    if type(value) is int and -_HALF <= value < _HALF:
        return value  # the binding makes it an array of one element
    if value is None or is_array(value):
        return _with_rows(value)
    try:
        return np.array([index(number) for number in _listed(value)], np.int64)
    except Exception as error:
        raise _rejection(name, field, value, "an integer of 64 bits, or an array") from error


def seed_bits(name: str, field: str, value: Any) -> Any:
    """Integers whose low 64 bits are used."""
    if type(value) is int:
        return value if -_HALF <= value < _HALF else low_bits(name, field, value, 64)
    if value is None or is_array(value):
        return _with_rows(value)
    try:
        return np.array([index(number) & _64_BITS for number in _listed(value)], np.uint64)
    except Exception as error:
        raise _rejection(name, field, value, "an integer, or an array") from error


def low_bits(name: str, field: str, value: Any, bits: int) -> int:
    """The low bits of an integer as the binding takes them: 64 bits as a signed number."""
    try:
        low = index(value) & ((1 << bits) - 1)
    except Exception as error:
        raise _rejection(name, field, value, "an integer") from error
    return low - (1 << 64) if low >> 63 else low


def real(name: str, field: str, value: Any) -> Any:
    """A number for all rows, or numbers of rows; numbers beyond float32 become infinities."""
    if type(value) is float:
        return value  # the binding makes it an array of one element
    if value is None or is_array(value):
        return _narrow(_with_rows(value))
    try:
        if type(value) is int:
            return float(value)
        with np.errstate(over="ignore"):
            return np.array([_float(number) for number in _listed(value)], np.float32)
    except Exception as error:
        raise _rejection(name, field, value, "a number, or an array") from error


def _float(value: Any) -> float:
    if isinstance(value, (str, bytes, bytearray)):
        raise TypeError  # float() reads text
    return float(value)


def _listed(value: Any) -> Any:
    return value if type(value) in (list, tuple) else (value,)


def _with_rows(value: Any) -> Any:
    """An array without dimensions applies to all rows."""
    return value.reshape(1) if getattr(value, "ndim", 1) == 0 else value


def _narrow(value: Any) -> Any:
    """float64 as float32, which operators take."""
    if isinstance(value, np.ndarray):
        if value.dtype != np.float64:
            return value
        with np.errstate(over="ignore"):
            return value.astype(np.float32)
    if str(getattr(value, "dtype", "")).removeprefix("torch.") != "float64":
        return value
    return value.float() if hasattr(value, "float") else value.astype("float32")


def _rejection(name: str, field: str, value: Any, want: str) -> Exception:
    return bad(Status.DTYPE, name, field, f"is {shown(value)}, want {want}")
