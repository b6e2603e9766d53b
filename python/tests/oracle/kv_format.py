"""Packed rows of quantised caches: codes looked up in the list of all numbers a type has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .arith import BF16, Array, narrow, widen


@dataclass(frozen=True)
class Format:
    q_type: str  # "e4m3", "e5m2", "int8"; "u4": only inline
    scale_type: str = "f32"  # or "e8m0"; "f16": inline, before the codes of each group
    scales: str = "tensor"  # "row", "block"
    row_bytes: int = 0
    q_off: int = 0
    q_count: int = 0
    group: int = 0
    scale_off: int = 0
    scale_bytes: int = 0
    rope_off: int = 0
    rope_bytes: int = 0

    @property
    def unpacked(self) -> int:
        return self.q_count + self.rope_bytes // 2


FORMATS = {
    "ds32_fp8": Format("e4m3", "f32", "row", 656, 0, 512, 128, 512, 0, 528, 128),
    "pto_int8": Format("int8", "f32", "row", 656, 0, 512, 128, 640, 0, 512, 128),
    "ds4_fp8": Format("e4m3", "e8m0", "block", 576, 0, 448, 64, 0, 8, 448, 128),
    "indexer_fp8": Format("e4m3", "f32", "block", 128, 0, 128, 128, 0, 4),
    "e4m3": Format("e4m3"),
    "e5m2": Format("e5m2"),
    "int8": Format("int8"),
    "q8_0": Format("int8", "f16", "row", 68, 0, 64, 32),  # rows of any number of groups; here of two
    "q4_0": Format("u4", "f16", "row", 36, 0, 64, 32),
}


def minifloat(code: int, exponent_bits: int, mantissa_bits: int, bias: int) -> float:
    """A number of sign, exponent and mantissa; the caller deals with the codes that are none."""
    sign = -1.0 if code >> (exponent_bits + mantissa_bits) else 1.0
    exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = code & ((1 << mantissa_bits) - 1)
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return sign * (1 + mantissa * 2.0**-mantissa_bits) * 2.0 ** (exponent - bias)


def code_values(q_type: str) -> Array:
    """The f32 of all 256 codes."""
    if q_type == "int8":
        return np.arange(256, dtype=np.uint8).view(np.int8).astype(np.float32)
    if q_type == "e4m3":
        return np.array([np.nan if c & 0x7F == 0x7F else minifloat(c, 4, 3, 7) for c in range(256)], np.float32)
    special = {0: np.inf, 1: np.nan, 2: np.nan, 3: np.nan}
    return np.array(
        [minifloat(c, 5, 2, 15) if c >> 2 & 31 != 31 else special[c & 3] * (-1 if c >> 7 else 1) for c in range(256)],
        np.float32,
    )


VALUES = {q_type: code_values(q_type) for q_type in ("e4m3", "e5m2", "int8")}
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0, "int8": 127.0}


def e8m0(code: Any) -> Any:
    """2**(code-127); 255 is NaN. The least is a subnormal f32."""
    return np.float32(np.nan) if code == 255 else np.float32(2.0 ** (int(code) - 127))


def scale_values(raw: Array, fmt: Format) -> Array:
    if fmt.scale_type == "e8m0":
        return np.array([e8m0(c) for c in raw], np.float32)
    return np.ascontiguousarray(raw).view(np.float32)


def unpack_codes(codes: Array, scales: Array, q_type: str, dtype: Any) -> Array:
    group = len(codes) // len(scales)
    with np.errstate(all="ignore"):
        product = VALUES[q_type][codes.view(np.uint8)] * np.repeat(scales, group)
    return narrow(product.astype(np.float32), dtype)


def unpack_inline(row: Array, fmt: Format, dtype: Any) -> Array:
    numbers: list[Any] = []
    for group in np.ascontiguousarray(row[: fmt.row_bytes]).view(np.uint8).reshape(fmt.q_count // 32, -1):
        scale, codes = np.float32(group[:2].copy().view(np.float16)[0]), group[2:].view(np.int8)
        if fmt.q_type == "u4":
            codes = np.concatenate([group[2:] & 15, group[2:] >> 4]).astype(np.int8) - np.int8(8)
        with np.errstate(all="ignore"):
            numbers.append(codes.astype(np.float32) * scale)
    return narrow(np.concatenate(numbers), dtype)


def pack_inline(x: Array, fmt: Format) -> Array:
    """Exact products and sums, each rounded to f32 once; halves are rounded away from zero."""
    groups: list[Any] = []
    largest = np.finfo(np.float32).max
    for numbers in widen(x).reshape(-1, 32):
        bounded = np.clip(np.where(np.isnan(numbers), np.float32(0), numbers), -largest, largest)
        most = np.float32(0)
        for number in bounded:
            most = number if abs(number) > abs(most) else most
        with np.errstate(all="ignore"):
            d = most / np.float32(-8) if fmt.q_type == "u4" else abs(most) / np.float32(127)
            y = (numbers * (np.float32(1) / d if d != 0 else np.float32(0))).astype(np.float32)
            head = np.array([d], np.float32).astype(np.float16).view(np.uint8)
            if fmt.q_type == "u4":
                codes = np.where(np.isnan(y), 8, np.clip(np.trunc(y + np.float32(8.5)), 0, 15)).astype(np.uint8)
                body = codes[:16] | codes[16:] << 4
            else:
                away = np.copysign(np.floor(np.abs(y.astype(np.float64)) + 0.5), y)
                body = np.where(np.isnan(y), 0, np.clip(away, -128, 127)).astype(np.int8).view(np.uint8)
        groups += [head, body]
    return np.concatenate(groups)


def unpack_row(row: Array, record: Array | None, fmt: Format, dtype: Any) -> Array:
    """Bytes of a packed row, and of its scale record where scales stand behind the block, to numbers."""
    if fmt.scale_type == "f16":
        return unpack_inline(row, fmt, dtype)
    n = fmt.q_count // fmt.group
    width = 1 if fmt.scale_type == "e8m0" else 4
    home = row if record is None else record
    scales = scale_values(home[fmt.scale_off : fmt.scale_off + n * width], fmt)
    codes = unpack_codes(row[fmt.q_off : fmt.q_off + fmt.q_count], scales, fmt.q_type, dtype)
    rope = np.ascontiguousarray(row[fmt.rope_off : fmt.rope_off + fmt.rope_bytes]).view(BF16)
    return np.concatenate([codes, rope if dtype == BF16 else narrow(widen(rope), dtype)])


def quantise(x: Array, scale: Any, q_type: str) -> Array:
    """The codes of numbers in f32: the nearest of all there are, of two the even one."""
    with np.errstate(all="ignore"):
        y = (x / scale).astype(np.float32)
    if q_type == "int8":
        z = np.where(np.isnan(y), 0, y.astype(np.float64))
        return np.clip(np.rint(z), -128, 127).astype(np.int8).view(np.uint8)
    last = {"e4m3": 0x7E, "e5m2": 0x7B}[q_type]
    table = VALUES[q_type][: last + 1].astype(np.float64)
    codes = np.zeros(len(y), np.uint8)
    for i, v in enumerate(y):
        if np.isnan(v):
            codes[i] = {"e4m3": 0x7F, "e5m2": 0x7E}[q_type]
            continue
        distance = np.abs(table - min(abs(float(v)), LARGEST[q_type]))
        near = np.flatnonzero(distance == distance.min())
        code = next(c for c in near if len(near) == 1 or c % 2 == 0)
        codes[i] = code | (0x80 if np.signbit(v) else 0)
    return codes


def group_scale(x: Array, fmt: Format) -> tuple[Any, Array]:
    """The scale of a group in f32, and its bytes."""
    finite = np.where(np.isinf(x), np.finfo(np.float32).max, np.abs(x))
    finite = finite[~np.isnan(finite)]
    amax = np.float32(finite.max()) if len(finite) else np.float32(0)
    if fmt.scale_type == "e8m0":
        wanted = np.float32(max(amax, np.float32(1e-4)) / np.float32(LARGEST[fmt.q_type]))
        code = next(c for c in range(255) if float(e8m0(c)) >= float(wanted))
        return e8m0(code), np.array([code], np.uint8)
    if fmt.q_type == "int8":
        scale = np.float32(max(amax, np.float32(1e-8)) / np.float32(127))
    else:
        scale = max(np.float32(amax / np.float32(LARGEST[fmt.q_type])), np.finfo(np.float32).tiny)
    return np.float32(scale), np.array([scale], np.float32).view(np.uint8)


def pack_row(x: Array, fmt: Format) -> tuple[Array, Array]:
    """A packed row and its scale record, as bytes; what belongs to no part is 0."""
    if fmt.scale_type == "f16":
        return pack_inline(x, fmt), np.zeros(0, np.uint8)
    row, record = np.zeros(fmt.row_bytes, np.uint8), np.zeros(fmt.scale_bytes, np.uint8)
    home = row if fmt.scales == "row" else record
    wide = widen(x)
    at = fmt.scale_off
    for g in range(0, fmt.q_count, fmt.group):
        scale, raw = group_scale(wide[g : g + fmt.group], fmt)
        row[fmt.q_off + g : fmt.q_off + g + fmt.group] = quantise(wide[g : g + fmt.group], scale, fmt.q_type)
        home[at : at + len(raw)] = raw
        at += len(raw)
    rope = x[fmt.q_count :] if x.dtype == BF16 else narrow(wide[fmt.q_count :], BF16)
    row[fmt.rope_off : fmt.rope_off + fmt.rope_bytes] = np.ascontiguousarray(rope).view(np.uint8)
    return row, record
