"""Parameters of rows: an array with a value for each, or a Python number for all of them."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from ._sentences import bad, told
from .errors import Status

_64_BITS = (1 << 64) - 1


def count(name: str, field: str, value: Any) -> int:
    """A number of rows, which the binding never sees."""
    try:
        rows = index(value)
    except TypeError:
        raise _refusal(name, field, value, "an integer") from None
    if rows < 0:
        raise bad(Status.VALUE, name, field, f"is {rows}, want 0 or more")
    return rows


def whole(name: str, field: str, value: Any) -> Any:
    """An integer for all rows."""
    if value is None or hasattr(value, "__dlpack__"):
        return value
    try:
        return np.array((index(value),), np.int64)
    except (TypeError, OverflowError):
        raise _refusal(name, field, value, "an integer of 64 bits, or an array") from None


def seed_bits(name: str, field: str, value: Any) -> Any:
    """An integer of which the low 64 bits count."""
    if value is None or hasattr(value, "__dlpack__"):
        return value
    try:
        return np.array((index(value) & _64_BITS,), np.uint64)
    except TypeError:
        raise _refusal(name, field, value, "an integer, or an array") from None


def low_bits(name: str, field: str, value: Any, bits: int) -> int:
    """The low bits of an integer, as the binding takes them: 64 of them as a signed number."""
    try:
        low = index(value) & ((1 << bits) - 1)
    except TypeError:
        raise _refusal(name, field, value, "an integer") from None
    return low - (1 << 64) if low >> 63 else low


def real(name: str, field: str, value: Any) -> Any:
    """A number for all rows; what float32 cannot hold becomes an infinity."""
    if value is None or hasattr(value, "__dlpack__"):
        return value
    try:
        with np.errstate(over="ignore"):
            return np.array((float(value),), np.float32)
    except (TypeError, ValueError, OverflowError):
        raise _refusal(name, field, value, "a number, or an array") from None


def _refusal(name: str, field: str, value: Any, want: str) -> Exception:
    return bad(Status.DTYPE, name, field, f"is {told(value)}, want {want}")
