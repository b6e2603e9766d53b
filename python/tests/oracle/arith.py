"""Numbers as the operator pages define them: one rounding per operation, canonical NaN, exp and noise to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

ml_dtypes = pytest.importorskip("ml_dtypes")  # NumPy's bfloat16, without which nothing here can be compared
Array = np.ndarray[Any, Any]
BF16 = np.dtype(ml_dtypes.bfloat16)
F16 = np.dtype(np.float16)
F32 = np.dtype(np.float32)


class Rejected(Exception):
    """The call must fail with this status, and every output must stay as it was."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


def bits(x: Array) -> Array:
    """The elements as unsigned integers of their size, -0 and NaN payloads included."""
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")


def f32(pattern: int) -> Any:
    """The f32 with these bits."""
    return np.uint32(pattern).view(np.float32)


# ---- Conversion ----


def widen(x: Array) -> Array:
    """Exactly to f32."""
    if x.dtype == BF16:
        wide: Array = (bits(x).astype(np.uint32) << 16).view(np.float32)
        return np.asarray(wide.reshape(x.shape))
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(x).astype(np.float32)


def narrow(x: Array, dtype: np.dtype[Any]) -> Array:
    """From f32 to f32, f16 or bf16, to nearest even; a NaN becomes the canonical one."""
    words = bits(x)
    canonical = 0x7FC00000
    if dtype == BF16:
        u = words.astype(np.uint64)
        words, canonical = (u + 0x7FFF + ((u >> 16) & 1)) >> 16, 0x7FC0
    elif dtype == F16:
        with np.errstate(all="ignore"):
            words, canonical = bits(x.astype(np.float16)), 0x7E00
    found: Array = np.where(np.isnan(x), canonical, words).astype(f"u{dtype.itemsize}").view(dtype)
    return np.asarray(found.reshape(x.shape))


def dot(a: Array, b: Array) -> Any:
    """Sixteen lanes folded by halves, in blocks of 8192 that are added in order."""
    total = np.float32(0)
    with np.errstate(all="ignore"):
        for start in range(0, len(a), 8192):
            lanes = np.zeros(16, np.float32)
            for j in range(start, min(start + 8192, len(a))):
                lanes[j % 16] += a[j] * b[j]
            width = 8
            while width:
                lanes[:width] += lanes[width : 2 * width]
                width //= 2
            total += lanes[0]
    return total


# ---- Fused multiply-add, exp, weights ----


def fma(a: Any, b: Any, c: Any) -> Array:
    """a*b + c of f32 numbers with one rounding to f32.

    The product is exact in f64. The sum is rounded to odd there, by its exact error, so that the second rounding sees
    on which side of a tie the true sum lies.
    """
    p = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    c = np.asarray(c, np.float64)
    s = p + c
    other = s - p
    error = (p - (s - other)) + (c - other)
    even = (s.view(np.int64) & 1) == 0
    away = np.where(error > 0, np.inf, -np.inf)
    return np.asarray(np.where((error != 0) & even, np.nextafter(s, away), s).astype(np.float32))


def exp(t: Array) -> Array:
    """e**t for t <= 0 as an exact sequence of f32 operations; 0 below -86 and for NaN."""
    with np.errstate(all="ignore"):
        live = t >= np.float32(-86)
        t = np.where(live, t, np.float32(0))
        n = fma(t, f32(0x3FB8AA3B), np.float32(12582912)) - np.float32(12582912)
        r = fma(n, -f32(0x3F318000), t)
        r = fma(n, f32(0x395E8083), r)
        c: Any = f32(0x3AB526B0)
        for word in (0x3C091CC7, 0x3D2AAC58, 0x3E2AAA49, 0x3EFFFFFE):
            c = fma(c, r, f32(word))
        y = np.float32(1) + fma(r * r, c, r)
        e: Array = (y.view(np.int32) + (n.astype(np.int32) << 23)).astype(np.int32).view(np.float32)
        return np.asarray(np.where(live, e, np.float32(0)), np.float32)


def fixed40(e: Array) -> list[int]:
    """Whole numbers of 2**-40, to nearest even. In f64 the product is exact, and so is rint."""
    return [int(v) for v in np.rint(e.astype(np.float64) * 2.0**40)]


def canonical(x: Array) -> Array:
    """NaN is -inf, +inf is the largest finite number, -0 is +0."""
    x = np.where(np.isnan(x), np.float32(-np.inf), x)
    x = np.where(x == np.inf, np.finfo(np.float32).max, x)
    return np.where(x == 0, np.float32(0), x).astype(np.float32)


# ---- Noise ----


def philox(seed: int, counter: tuple[int, int, int, int]) -> list[int]:
    """Philox4x32-10."""
    mask = 0xFFFFFFFF
    k0, k1 = seed & mask, seed >> 32 & mask
    c0, c1, c2, c3 = counter
    for _ in range(10):
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = b >> 32 ^ c1 ^ k0, b & mask, a >> 32 ^ c3 ^ k1, a & mask
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return [c0, c1, c2, c3]


def race_words(seed: int, offset: int, stream: int, n: int) -> list[int]:
    """The words of tokens 0 to n-1."""
    words: list[int] = []
    for c0 in range((n + 3) // 4):
        words += philox(seed, (c0, offset & 0xFFFFFFFF, offset >> 32 & 0xFFFFFFFF, stream & 0xFFFFFFFF))
    return words[:n]


def race_noise(words: list[int]) -> Array:
    """-ln(1 - (word + 1/2) / 2**32) as an exact sequence of f32 operations."""
    s = np.zeros(len(words), np.float32)
    k = np.zeros(len(words), np.float32)
    for i, word in enumerate(words):
        if word < 0x4AFB16DA:
            v = np.float32(np.float32(2 * word + 1) * np.float32(2.0**-33))
            s[i] = v / np.float32(np.float32(2) - v)
        else:
            y = np.float32(np.float32(2 * (word ^ 0xFFFFFFFF) + 1) * np.float32(2.0**-33))
            u = int(y.view(np.uint32))
            j = (u - 0x3F3504F3) >> 23
            mant = f32(u - (j << 23))
            k[i] = -j
            s[i] = np.float32(np.float32(1) - mant) / np.float32(np.float32(1) + mant)
    z = s * s
    g: Any = f32(0x3E18F1FD)
    for word in (0x3E4CAF61, 0x3EAAAABD, 0x3F800000):
        g = fma(g, z, f32(word))
    return fma(k, f32(0x3F317218), (np.float32(2) * s) * g)
