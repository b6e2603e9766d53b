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


# NumPy types that hold the elements. NumPy has no small floats: their bits are kept as integers.
_STORED: dict[DataType, Any] = {
    DataType.DT_INT8: np.int8,
    DataType.DT_INT16: np.int16,
    DataType.DT_INT32: np.int32,
    DataType.DT_INT64: np.int64,
    DataType.DT_FP8: np.uint8,
    DataType.DT_FP16: np.float16,
    DataType.DT_FP32: np.float32,
    DataType.DT_BF16: np.uint16,
    DataType.DT_HF8: np.uint8,
    DataType.DT_UINT8: np.uint8,
    DataType.DT_UINT16: np.uint16,
    DataType.DT_UINT32: np.uint32,
    DataType.DT_UINT64: np.uint64,
    DataType.DT_BOOL: np.bool_,
    DataType.DT_DOUBLE: np.float64,
    DataType.DT_FP8E4M3: np.uint8,
    DataType.DT_FP8E5M2: np.uint8,
    DataType.DT_FP8E8M0: np.uint8,
    DataType.DT_FP4_E2M1X2: np.uint8,  # two to a byte
    DataType.DT_FP4_E1M2X2: np.uint8,
}

# Names of NumPy's, ml_dtypes' and PyTorch's types.
_BY_NAME: dict[str, DataType] = {
    "int8": DataType.DT_INT8,
    "int16": DataType.DT_INT16,
    "int32": DataType.DT_INT32,
    "int64": DataType.DT_INT64,
    "float16": DataType.DT_FP16,
    "float32": DataType.DT_FP32,
    "bfloat16": DataType.DT_BF16,
    "uint8": DataType.DT_UINT8,
    "uint16": DataType.DT_UINT16,
    "uint32": DataType.DT_UINT32,
    "uint64": DataType.DT_UINT64,
    "bool": DataType.DT_BOOL,
    "float64": DataType.DT_DOUBLE,
    "float8_e4m3fn": DataType.DT_FP8E4M3,
    "float8_e5m2": DataType.DT_FP8E5M2,
    "float8_e8m0fnu": DataType.DT_FP8E8M0,
}


def stored_as(dtype: DataType) -> np.dtype[Any] | None:
    """The NumPy type that holds elements of this type; None where an element is no whole bytes."""
    found = _STORED.get(dtype)
    return None if found is None else np.dtype(found)


def torch_name(dtype: DataType) -> str:
    """The name of PyTorch's type for these elements; small floats that it lacks are their bytes."""
    return next((name for name, found in _BY_NAME.items() if found == dtype), str(stored_as(dtype)))


def type_of(array: Any) -> DataType | None:
    """The type of an array's elements; None where PyPTO has no such type."""
    return _BY_NAME.get(str(array.dtype).removeprefix("torch."))
