"""The operators without a gradient whose functions in switchyard.torch follow from these: the list of both packages."""

# ruff: noqa: PLC0414 -- the aliases say that a star import takes the names

from .ops.dequantize_rows import dequantize_rows as dequantize_rows
from .ops.kv_select import KvSelect as KvSelect
from .ops.kv_select import kv_select as kv_select
from .ops.kv_slots import kv_slots as kv_slots
from .ops.kv_translate import KvTranslate as KvTranslate
from .ops.kv_translate import kv_translate as kv_translate
from .ops.moe_align_block import MoeAlignBlock as MoeAlignBlock
from .ops.moe_align_block import moe_align_block as moe_align_block
from .ops.moe_convert_indices import moe_convert_indices as moe_convert_indices
from .ops.moe_dispatch_grad_gate import moe_dispatch_grad_gate as moe_dispatch_grad_gate
from .ops.moe_locations import MoeLocations as MoeLocations
from .ops.moe_locations import moe_locations as moe_locations
from .ops.moe_map_physical import MoeMapPhysical as MoeMapPhysical
from .ops.moe_map_physical import moe_map_physical as moe_map_physical
from .ops.moe_pad_map import MoePadMap as MoePadMap
from .ops.moe_pad_map import moe_pad_map as moe_pad_map
from .ops.moe_permute_grad import MoePermuteGrad as MoePermuteGrad
from .ops.moe_permute_grad import moe_permute_grad as moe_permute_grad
from .ops.moe_place import MoePlace as MoePlace
from .ops.moe_place import moe_place as moe_place
from .ops.moe_unpermute_grad import MoeUnpermuteGrad as MoeUnpermuteGrad
from .ops.moe_unpermute_grad import moe_unpermute_grad as moe_unpermute_grad
from .ops.quantize_rows import QuantizeRows as QuantizeRows
from .ops.quantize_rows import quantize_rows as quantize_rows
from .ops.sample_noise import sample_noise as sample_noise
