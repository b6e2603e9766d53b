"""Types, layouts and memory configurations under ttnn's names. They are stored and change no result."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class DataType(enum.Enum):
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    INT32 = "int32"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"


bfloat16, float32, int32 = DataType.BFLOAT16, DataType.FLOAT32, DataType.INT32
uint8, uint16, uint32 = DataType.UINT8, DataType.UINT16, DataType.UINT32


class Layout(enum.Enum):
    ROW_MAJOR = 0
    TILE = 1


ROW_MAJOR_LAYOUT, TILE_LAYOUT = Layout.ROW_MAJOR, Layout.TILE


class Topology(enum.Enum):
    Linear = 1
    Ring = 2
    Mesh = 3
    Torus = 4


class TensorMemoryLayout(enum.Enum):
    INTERLEAVED = 0
    HEIGHT_SHARDED = 2
    WIDTH_SHARDED = 3
    BLOCK_SHARDED = 4


class BufferType(enum.Enum):
    DRAM = 0
    L1 = 1


@dataclass(frozen=True)
class MemoryConfig:
    memory_layout: TensorMemoryLayout = TensorMemoryLayout.INTERLEAVED
    buffer_type: BufferType = BufferType.DRAM


DRAM_MEMORY_CONFIG = MemoryConfig()
L1_MEMORY_CONFIG = MemoryConfig(buffer_type=BufferType.L1)


@dataclass(frozen=True)
class SubDeviceId:
    id: int = 0
