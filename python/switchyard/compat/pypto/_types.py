"""Element types and formats under PyPTO's names and numbers."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

# PyPTO's element types; the numbers are its own.
DataType = enum.IntEnum(
    "DataType",
    "DT_INT4 DT_INT8 DT_INT16 DT_INT32 DT_INT64 DT_FP8 DT_FP16 DT_FP32 DT_BF16 DT_HF4 DT_HF8 DT_UINT8 DT_UINT16 "
    "DT_UINT32 DT_UINT64 DT_BOOL DT_DOUBLE DT_FP8E4M3 DT_FP8E5M2 DT_FP8E8M0 DT_FP4_E2M1X2 DT_FP4_E1M2X2 "
    "DT_FP4_E2M1 DT_FP4_E1M2 DT_BOTTOM",
    start=0,
)
TileOpFormat = enum.IntEnum("TileOpFormat", "TILEOP_ND TILEOP_NZ", start=0)  # layout of a tensor; here always in rows

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
_BYTES = (DataType.DT_FP8, DataType.DT_HF8, DataType.DT_FP4_E2M1X2, DataType.DT_FP4_E1M2X2)


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
