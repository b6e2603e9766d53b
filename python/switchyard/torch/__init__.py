"""Switchyard's operators in PyTorch: they work with torch.compile, and have gradients where these are defined."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

try:
    import torch.library as _torch_library  # an empty folder of that name has no library
except ModuleNotFoundError:
    _text = "switchyard.torch needs PyTorch 2.4 or newer, and there is none: pip install torch"
    raise ModuleNotFoundError(_text, name="torch") from None
if not hasattr(_torch_library, "register_autograd"):
    raise ImportError("switchyard.torch needs PyTorch 2.4 or newer, and there is an older one", name="torch")

from .. import _without_gradient
from .cache import kv_blocks, kv_gather, kv_ragged, kv_scatter, kv_slots, kv_translate
from .moe import (
    local_reduce,
    moe_capacity,
    moe_combine,
    moe_dispatch,
    moe_dispatch_grad_data,
    moe_dispatch_grad_gate,
    moe_ids_from_map,
    moe_locations,
    moe_map_from_ids,
    moe_permute,
    moe_permute_grad,
    moe_permute_ids,
    moe_reorder_chunks,
    moe_route,
    moe_unpermute,
    moe_unpermute_grad,
    moe_unpermute_ids,
)
from .sampling import sample, sample_noise, sample_overrides, sample_verify

if _TYPE_CHECKING:
    from .._without_gradient import *  # noqa: F403
else:
    from .without_gradient import *  # noqa: F403

__all__ = [
    "kv_blocks",
    "kv_gather",
    "kv_ragged",
    "kv_scatter",
    "kv_slots",
    "kv_translate",
    "local_reduce",
    "moe_capacity",
    "moe_combine",
    "moe_dispatch",
    "moe_dispatch_grad_data",
    "moe_dispatch_grad_gate",
    "moe_ids_from_map",
    "moe_locations",
    "moe_map_from_ids",
    "moe_permute",
    "moe_permute_grad",
    "moe_permute_ids",
    "moe_reorder_chunks",
    "moe_route",
    "moe_unpermute",
    "moe_unpermute_grad",
    "moe_unpermute_ids",
    "sample",
    "sample_noise",
    "sample_overrides",
    "sample_verify",
]
__all__ += _without_gradient.__all__

del _torch_library
