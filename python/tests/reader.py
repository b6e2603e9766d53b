"""Examples as strings of bytes: hypothesis draws the bytes, a Reader makes shapes, types and contents of them.

One draw per example keeps 2,000 examples of an operator within seconds. Zero bytes read as the simplest choice, so a
failing example still shrinks to a small one.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any, TypeVar

import numpy as np
import pytest

ml_dtypes = pytest.importorskip("ml_dtypes")
Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
T = TypeVar("T")

Dtype = np.dtype[Any]

F32: Dtype = np.dtype(np.float32)
F16: Dtype = np.dtype(np.float16)
BF16: Dtype = np.dtype(ml_dtypes.bfloat16)
I32: Dtype = np.dtype(np.int32)
I64: Dtype = np.dtype(np.int64)
MAP_TYPES: tuple[Dtype, ...] = (np.dtype(np.bool_), np.dtype(np.int8), np.dtype(np.uint8))
ANY_TYPES: tuple[Dtype, ...] = (
    F32,
    F16,
    BF16,
    *MAP_TYPES,
    *map(np.dtype, (np.int16, np.int32, np.int64, np.uint16, np.uint32, np.uint64, np.float64)),
)

# What 64-bit and 32-bit arithmetic, signs and ends get wrong. Index arrays are given one of these now and then.
NASTY = (-1, -2, 2**31 - 1, 2**31, 2**32, 2**32 + 1, -(2**31), 2**62, 2**63 - 1, -(2**63), 1073741825, 4294967299)


@functools.cache
def floats(dtype: Dtype, kind: str) -> Array:
    """256 numbers of a kind.

    `plain`: of all magnitudes, so that a sum loses bits; `ties`: of few values; `wild`: NaN, infinities, signed zeros
    and subnormals among plain ones; `bits`: any pattern.
    """
    rng = np.random.RandomState(20)
    simple = [0, 1, -1, 2, 0.5, -0.5, 3, 0.25, 16777216, 1, 0.1, -0.1, 1 / 3, 100, -100, 65504]
    plain = np.concatenate([simple, rng.standard_normal(240) * 10.0 ** rng.uniform(-3, 3, 240)]).astype(np.float32)
    if kind == "ties":
        plain = np.resize(np.array([0, 1, -1, 0.5, 1, 2], np.float32), 256)
    with np.errstate(all="ignore"):
        table = plain.astype(dtype)
    words = table.view(f"u{dtype.itemsize}")
    if kind == "bits":
        words[:] = rng.randint(0, 2**16, 256) if dtype.itemsize == 2 else rng.randint(0, 2**32, 256, np.int64)
        words[0] = 0
    if kind in ("wild", "bits"):
        words[3::5] = np.resize(special_words(dtype), len(words[3::5]))
    return table


def special_words(dtype: Dtype) -> Array:
    """NaN quiet and signalling, infinities, zeros, the least and largest subnormals and normals, of both signs."""
    mantissa, width = {F32: (23, 32), F16: (10, 16), BF16: (7, 16)}[dtype]
    inf = (1 << (width - 1)) - (1 << mantissa)
    low = [
        0,
        1,
        (1 << mantissa) - 1,
        1 << mantissa,
        inf - 1,
        inf,
        inf + 1,
        inf | 1 << (mantissa - 1),
        inf | (1 << mantissa) - 1,
    ]
    return np.array(low + [w | 1 << (width - 1) for w in low], f"u{width // 8}")


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, n: int) -> bytes:
        """The next n bytes. What hypothesis did not draw is made of what it drew."""
        while self.at + n > len(self.data):
            self.data += hashlib.blake2b(self.data[-64:] + len(self.data).to_bytes(4, "little")).digest()
        self.at += n
        return self.data[self.at - n : self.at]

    def below(self, n: int) -> int:
        return self.take(1)[0] % n if n <= 256 else int.from_bytes(self.take(4), "little") % n

    def between(self, low: int, high: int) -> int:
        return low + self.below(high - low + 1)

    def chance(self, percent: int) -> bool:
        return self.take(1)[0] * 100 >= (100 - percent) * 256

    def pick(self, *options: T) -> T:
        return options[self.below(len(options))]

    def maybe(self, value: T) -> T | None:
        return value if self.chance(50) else None

    def number64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def floats(self, shape: Shape, dtype: Dtype, kind: str | None = None) -> Array:
        kind = kind or self.pick("plain", "wild", "ties", "bits")
        return floats(dtype, kind)[np.frombuffer(self.take(int(np.prod(shape))), np.uint8)].reshape(shape)

    def bits(self, shape: Shape, dtype: Dtype) -> Array:
        """Any elements at all; bool stays 0 or 1."""
        raw = np.frombuffer(self.take(int(np.prod(shape)) * dtype.itemsize), np.uint8).reshape(-1)
        return (raw & 1 if dtype == np.bool_ else raw.copy()).view(dtype).reshape(shape)

    def ints(self, low: int, high: int, shape: Shape, dtype: Dtype = I64) -> Array:
        n = int(np.prod(shape))
        if high < low:
            return np.zeros(shape, dtype)
        raw = np.frombuffer(self.take(n), np.uint8) if high - low < 256 else np.frombuffer(self.take(4 * n), np.uint32)
        return (low + raw.astype(np.int64) % (high - low + 1)).astype(dtype).reshape(shape)

    def spoil(self, x: Array, percent: int = 12, values: tuple[int, ...] = NASTY) -> Array:
        """Now and then one element becomes a number that does not belong there."""
        if x.size and self.chance(percent):
            wanted = self.pick(*values)
            info = np.iinfo(x.dtype)
            x.reshape(-1)[self.below(x.size)] = wanted if info.min <= wanted <= info.max else -1
        return x

    def routing_map(self, tokens: int, experts: int) -> Array:
        """Sparse or full, any byte but 0 where a token is routed."""
        dtype = self.pick(*MAP_TYPES)
        density = self.pick(30, 60, 90, 100, 10)
        chosen = np.frombuffer(self.take(tokens * experts), np.uint8).reshape(tokens, experts)
        routed = chosen.astype(np.int32) * 100 < density * 256
        if dtype == np.bool_:
            return routed
        return np.where(routed, np.maximum(chosen | 1, 1) if self.chance(30) else 1, 0).astype(np.uint8).view(dtype)
