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


def is_flag(value: Any) -> bool:
    """Whether a value is a boolean: flags are nothing else, and numbers are none."""
    return isinstance(value, (bool, np.bool_))


def integer(value: Any) -> int:
    """An integer of any library. Raises whatever a caller's class raises for anything else."""
    if is_flag(value):
        raise TypeError("a boolean is no number")
    return index(value)


def number(value: Any) -> float:
    """A number; text is none."""
    if is_flag(value) or isinstance(value, (str, bytes, bytearray)):
        raise TypeError("no number")
    return float(value)


def count(name: str, field: str, value: Any) -> int:
    """A number of rows, which is not passed to the binding."""
    try:
        rows = integer(value)
    except Exception as error:
        raise rejected(name, field, value, "an integer") from error
    if not 0 <= rows < _HALF:
        want = "0 or more" if rows < 0 else "an integer of 64 bits"
        raise bad(Status.VALUE, name, field, f"is {shown(rows)}, want {want}")
    return rows


def whole(name: str, field: str, value: Any) -> Any:
    """An integer for all rows, or integers of rows."""
    if type(value) is int and -_HALF <= value < _HALF:
        return value  # the binding makes it an array of one element
    if value is None or is_array(value):
        return _with_rows(value)
    try:
        return np.array([integer(number) for number in _listed(value)], np.int64)
    except Exception as error:
        raise rejected(name, field, value, "an integer of 64 bits, or an array", integer) from error


def seed_bits(name: str, field: str, value: Any) -> Any:
    """Integers of 64 bits without a sign: one for all rows, or those of rows."""
    if type(value) is int and 0 <= value < _HALF:
        return value
    if value is None or is_array(value):
        return _with_rows(value)
    if type(value) in (list, tuple):
        try:
            whole_numbers = [integer(one) for one in value]
        except Exception as error:
            raise rejected(name, field, value, "integers", integer) from error
        return np.array([low_bits(name, field, one) for one in whole_numbers], np.int64)
    return low_bits(name, field, value, "an integer, or an array")


def low_bits(name: str, field: str, value: Any, want: str = "an integer") -> int:
    """An integer of 64 bits without a sign, as the binding takes it: as a signed one."""
    try:
        bits = integer(value)
    except Exception as error:
        raise rejected(name, field, value, want) from error
    if not 0 <= bits <= _64_BITS:
        raise bad(Status.VALUE, name, field, f"is {shown(bits)}, want 0 to {_64_BITS}")
    return bits - (1 << 64) if bits >> 63 else bits


def real(name: str, field: str, value: Any) -> Any:
    """A number for all rows, or numbers of rows; numbers beyond float32 become infinities."""
    if type(value) is float:
        return value  # the binding makes it an array of one element
    if value is None or is_array(value):
        return _with_rows(_narrow(value))
    try:
        if type(value) is int:
            return float(value)
        with np.errstate(over="ignore"):
            return np.array([number(one) for one in _listed(value)], np.float32)
    except Exception as error:
        raise rejected(name, field, value, "a number, or an array", number) from error


def _listed(value: Any) -> Any:
    return value if type(value) in (list, tuple) else (value,)


def _with_rows(value: Any) -> Any:
    """An array without dimensions applies to all rows."""
    return value.reshape(1) if getattr(value, "ndim", 1) == 0 else value


def _narrow(value: Any) -> Any:
    """float64 as float32, which operators take; an integer without dimensions is a number too."""
    kind = str(getattr(value, "dtype", "")).removeprefix("torch.")
    if kind != "float64" and ("int" not in kind or getattr(value, "ndim", 1) > 0):
        return value
    if not isinstance(value, np.ndarray):
        return value.float() if hasattr(value, "float") else value.astype("float32")
    with np.errstate(over="ignore"):
        return value.astype(np.float32)


def rejected(name: str, field: str, value: Any, want: str, convert: Any = None) -> Exception:
    """Of a list its first element that is no number."""
    kind = "an integer" if convert is integer else "a number"
    for row, one in enumerate(value if convert is not None and type(value) in (list, tuple) else ()):
        try:
            convert(one)
        except Exception:
            text = f"has {shown(one)} for row {row}, want {kind} for every row"
            return bad(Status.DTYPE, name, field, text, position=row)
    return bad(Status.DTYPE, name, field, f"is {shown(value)}, want {want}")
