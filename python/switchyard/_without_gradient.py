"""The operators without a gradient whose functions in switchyard.torch follow from these: the list of both packages."""

from .ops.dequantize_rows import dequantize_rows
from .ops.kv_select import KvSelect, kv_select
from .ops.kv_slots import kv_slots
from .ops.kv_translate import KvTranslate, kv_translate
from .ops.moe_align_block import MoeAlignBlock, moe_align_block
from .ops.moe_convert_indices import moe_convert_indices
from .ops.moe_dispatch_grad_gate import moe_dispatch_grad_gate
from .ops.moe_locations import MoeLocations, moe_locations
from .ops.moe_map_physical import MoeMapPhysical, moe_map_physical
from .ops.moe_pad_map import MoePadMap, moe_pad_map
from .ops.moe_permute_grad import MoePermuteGrad, moe_permute_grad
from .ops.moe_place import MoePlace, moe_place
from .ops.moe_unpermute_grad import MoeUnpermuteGrad, moe_unpermute_grad
from .ops.quantize_rows import QuantizeRows, quantize_rows
from .ops.sample_noise import sample_noise

__all__ = [
    "KvSelect",
    "KvTranslate",
    "MoeAlignBlock",
    "MoeLocations",
    "MoeMapPhysical",
    "MoePadMap",
    "MoePermuteGrad",
    "MoePlace",
    "MoeUnpermuteGrad",
    "QuantizeRows",
    "dequantize_rows",
    "kv_select",
    "kv_slots",
    "kv_translate",
    "moe_align_block",
    "moe_convert_indices",
    "moe_dispatch_grad_gate",
    "moe_locations",
    "moe_map_physical",
    "moe_pad_map",
    "moe_permute_grad",
    "moe_place",
    "moe_unpermute_grad",
    "quantize_rows",
    "sample_noise",
]
