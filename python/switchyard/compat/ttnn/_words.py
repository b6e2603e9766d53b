"""Types, layouts and memory configurations under ttnn's names. They are stored and change no result."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any


class DataType(enum.Enum):
    BFLOAT4_B = "bfloat4_b"
    BFLOAT8_B = "bfloat8_b"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FP8_E4M3 = "fp8_e4m3"
    INT8 = "int8"
    INT32 = "int32"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"


bfloat16, float32, int8, int32 = DataType.BFLOAT16, DataType.FLOAT32, DataType.INT8, DataType.INT32
bfloat4_b, bfloat8_b, fp8_e4m3 = DataType.BFLOAT4_B, DataType.BFLOAT8_B, DataType.FP8_E4M3  # names only: see REJECTED
uint8, uint16, uint32 = DataType.UINT8, DataType.UINT16, DataType.UINT32

# Why a tensor of this type is rejected.
REJECTED = {
    bfloat4_b: "a type of whole elements: blocks with one exponent round values",
    bfloat8_b: "a type of whole elements: blocks with one exponent round values",
    fp8_e4m3: "bfloat16 or float32: 8-bit floats are not converted here",
}


Layout = enum.Enum("Layout", "ROW_MAJOR TILE", start=0)
ROW_MAJOR_LAYOUT, TILE_LAYOUT = Layout.ROW_MAJOR, Layout.TILE


Topology = enum.Enum("Topology", "Linear Ring Mesh Torus")


class TensorMemoryLayout(enum.Enum):
    INTERLEAVED = 0
    HEIGHT_SHARDED = 2
    WIDTH_SHARDED = 3
    BLOCK_SHARDED = 4


BufferType = enum.Enum("BufferType", "DRAM L1", start=0)


@dataclass(frozen=True)
class MemoryConfig:
    memory_layout: TensorMemoryLayout = TensorMemoryLayout.INTERLEAVED
    buffer_type: BufferType = BufferType.DRAM


DRAM_MEMORY_CONFIG = MemoryConfig()
L1_MEMORY_CONFIG = MemoryConfig(buffer_type=BufferType.L1)


@dataclass(frozen=True)
class SubDeviceId:
    id: int = 0


class Shape(tuple[int, ...]):
    """Extents of a tensor, or numbers of copies: `Shape((1, 2))`."""


# ---- Objects of the hardware, which is not simulated: stored, without any effect ----


FabricConfig = enum.Enum(
    "FabricConfig",
    "DISABLED FABRIC_1D FABRIC_1D_RING FABRIC_2D FABRIC_2D_TORUS_X FABRIC_2D_TORUS_Y FABRIC_2D_TORUS_XY",
    start=0,
)
FabricReliabilityMode = enum.Enum("FabricReliabilityMode", "STRICT_INIT RELAXED_INIT DYNAMIC_RECONFIG", start=0)
DispatchCoreAxis = enum.Enum("DispatchCoreAxis", "ROW COL", start=0)


@dataclass(frozen=True)
class CoreCoord:
    x: int = 0
    y: int = 0


@dataclass(frozen=True)
class CoreRange:
    start: CoreCoord
    end: CoreCoord


@dataclass(frozen=True)
class CoreRangeSet:
    ranges: Any


@dataclass(frozen=True)
class SubDevice:
    cores: Any


@dataclass(frozen=True)
class GlobalSemaphore:
    cores: Any
    initial_value: int


def create_global_semaphore(
    mesh_device: Any, cores: Any, initial_value: int, *args: Any, **kwargs: Any
) -> GlobalSemaphore:
    """An object that no operator reads."""
    return GlobalSemaphore(cores, initial_value)


def set_fabric_config(fabric_config: FabricConfig, *args: Any, **kwargs: Any) -> None:
    """No effect: rows move inside this process."""


def get_arch_name() -> str:
    """The name of no chip: programs that distinguish chips take neither branch."""
    return "cpu"
