"""Formats of quantised rows, and what a format says about the results of a call."""

from __future__ import annotations

from math import prod
from typing import Any

FP4 = ("nvfp4", "nvfp4_amax")  # two codes in a byte, groups of 16
INLINE = {"q8_0": 34, "q4_0": 18}  # bytes of 32 numbers and their scale
_POWERS = ("fp8_128_ue8m0", "mxfp8", "mxfp8_floor")  # formats with scales of a byte


def groups(H: Any, row_format: str | None) -> Any:
    """How many scales a row of H numbers has."""
    if row_format == "int8_token":
        return 1
    return H // (16 if row_format in FP4 else 32 if str(row_format).startswith("mxfp8") else 128)


def code_type(xp: Any, format: str) -> Any:
    """Element type of new codes: bytes for 8-bit floats, which not every library has."""
    return xp.dtype("int8" if format == "int8_token" else "uint8")


def scale_type(xp: Any, format: str) -> Any:
    """Element type of new scales."""
    return xp.dtype("uint8" if format in _POWERS or format in FP4 else "float32")


def scale_shape(input: Any, format: str, scale_layout: str) -> tuple[Any, ...]:
    """Shape of the scales of `input`."""
    *rows, hidden = input.shape
    n, per_word = groups(hidden, format), 4 if format in _POWERS else 1
    if scale_layout == "row":
        return (*rows, n)
    words = -(-n // per_word)
    return (words, -(-prod(rows) // 4) * 4, per_word) if scale_layout == "col" else (-(-prod(rows) // 128), words, 512)


def code_shape(input: Any, format: str) -> tuple[Any, ...]:
    """Shape of the codes of `input`."""
    *rows, hidden = input.shape
    if format in FP4:
        return (*rows, hidden // 2)
    return (*rows, hidden // 32 * INLINE[format] if format in INLINE else hidden)


def dense_shape(codes: Any, format: str) -> tuple[Any, ...]:
    """Shape of the numbers of `codes`."""
    *rows, width = codes.shape
    if format in FP4:
        return (*rows, width * 2)
    return (*rows, width // INLINE[format] * 32 if format in INLINE else width)


def scales_apart(format: str) -> bool:
    """Whether scales are an array of their own."""
    return format not in INLINE


def token_type(xp: Any, tokens: Any, row_format: str | None) -> Any:
    """Element type of rows that an operator moves: their own, or that of codes."""
    return tokens.dtype if row_format is None else code_type(xp, row_format)


def input_type(xp: Any, input: Any, row_format: str | None) -> Any:
    """The same of `input`."""
    return token_type(xp, input, row_format)


def moved_scale_type(xp: Any, row_format: str | None) -> Any:
    """Element type of their scales; without a format there are none."""
    return None if row_format is None else scale_type(xp, row_format)


def has_scales(row_format: str | None) -> bool:
    """Whether there are scales."""
    return row_format is not None
