"""The operators without a gradient whose functions in switchyard.torch follow from these: the list of both packages."""

from .ops.dequantize_rows import dequantize_rows
from .ops.moe_align_block import MoeAlignBlock, moe_align_block
from .ops.moe_convert_indices import moe_convert_indices
from .ops.moe_map_physical import MoeMapPhysical, moe_map_physical
from .ops.moe_pad_map import MoePadMap, moe_pad_map
from .ops.moe_place import MoePlace, moe_place
from .ops.quantize_rows import QuantizeRows, quantize_rows

__all__ = [
    "MoeAlignBlock",
    "MoeMapPhysical",
    "MoePadMap",
    "MoePlace",
    "QuantizeRows",
    "dequantize_rows",
    "moe_align_block",
    "moe_convert_indices",
    "moe_map_physical",
    "moe_pad_map",
    "moe_place",
    "quantize_rows",
]
