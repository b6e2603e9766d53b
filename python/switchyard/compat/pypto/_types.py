"""Element types and formats under PyPTO's names and numbers."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np


class DataType(enum.IntEnum):
    """PyPTO's element types; the numbers are its own."""

    DT_INT4 = 0
    DT_INT8 = 1
    DT_INT16 = 2
    DT_INT32 = 3
    DT_INT64 = 4
    DT_FP8 = 5
    DT_FP16 = 6
    DT_FP32 = 7
    DT_BF16 = 8
    DT_HF4 = 9
    DT_HF8 = 10
    DT_UINT8 = 11
    DT_UINT16 = 12
    DT_UINT32 = 13
    DT_UINT64 = 14
    DT_BOOL = 15
    DT_DOUBLE = 16
    DT_FP8E4M3 = 17
    DT_FP8E5M2 = 18
    DT_FP8E8M0 = 19
    DT_FP4_E2M1X2 = 20
    DT_FP4_E1M2X2 = 21
    DT_FP4_E2M1 = 22
    DT_FP4_E1M2 = 23
    DT_BOTTOM = 24


class TileOpFormat(enum.IntEnum):
    """Memory layout of a tensor; here always in rows."""

    TILEOP_ND = 0
    TILEOP_NZ = 1


# Types by the names of NumPy, ml_dtypes and PyTorch.
_INTEGERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()
_BY_NAME = {name: DataType[f"DT_{name.upper()}"] for name in _INTEGERS} | {
    "float16": DataType.DT_FP16,
    "float32": DataType.DT_FP32,
    "bfloat16": DataType.DT_BF16,
    "float64": DataType.DT_DOUBLE,
    "float8_e4m3fn": DataType.DT_FP8E4M3,
    "float8_e5m2": DataType.DT_FP8E5M2,
    "float8_e8m0fnu": DataType.DT_FP8E8M0,
}
_NAMES = {dtype: name for name, dtype in _BY_NAME.items()}
# Of no library; the last two are two to a byte.
_BYTES = (
    DataType.DT_FP8,
    DataType.DT_HF8,
    DataType.DT_FP4_E2M1X2,
    DataType.DT_FP4_E1M2X2,
)


def stored_as(dtype: DataType) -> np.dtype[Any] | None:
    """The NumPy type that holds elements of this type; None where an element is no whole bytes.

    NumPy has no small floats: their bits are kept as integers.
    """
    name = "uint8" if dtype in _BYTES else _NAMES.get(dtype, "")
    name = "uint8" if name.startswith("float8") else name.replace("bfloat", "uint")
    return np.dtype(name) if name else None


def torch_name(dtype: DataType) -> str:
    """The name of PyTorch's type for these elements; small floats that it lacks are their bytes."""
    return _NAMES.get(dtype, str(stored_as(dtype)))


def type_of(array: Any) -> DataType | None:
    """The type of an array's elements; None where PyPTO has no such type."""
    return _BY_NAME.get(str(array.dtype).removeprefix("torch."))
