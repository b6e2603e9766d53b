"""torch_npu's names for the operators of this library, over :mod:`switchyard.torch`: on CPU tensors, with autograd.

>>> import torch
>>> from switchyard.compat import torch_npu
>>> tokens = torch.tensor([[10.0], [20.0], [30.0]])
>>> routing_map = torch.tensor([[1, 0], [1, 1], [0, 1]], dtype=torch.bool)
>>> rows, _, slots = torch_npu.npu_moe_token_permute_with_routing_map(tokens, routing_map, num_out_tokens=6)
>>> rows.flatten().tolist(), slots.tolist()
([10.0, 20.0, 20.0, 30.0, 0.0, 0.0], [0, -1, 1, 2, 3, -1])
"""

try:
    from ... import torch as _torch
except ImportError as _error:
    _text = str(_error).replace("switchyard.torch", __name__)
    raise type(_error)(_text, name="torch") from None

from ._cache import (
    npu_gather_pa_kv_cache,
    npu_gather_pa_kv_cache_functional,
    npu_scatter_pa_kv_cache,
    npu_scatter_pa_kv_cache_functional,
)
from ._permutation import (
    _npu_moe_token_unpermute_with_routing_map,
    npu_moe_token_permute,
    npu_moe_token_permute_grad,
    npu_moe_token_permute_with_routing_map,
    npu_moe_token_permute_with_routing_map_grad,
    npu_moe_token_unpermute,
    npu_moe_token_unpermute_grad,
    npu_moe_token_unpermute_with_routing_map,
    npu_moe_token_unpermute_with_routing_map_grad,
)
from ._routing import (
    npu_moe_finalize_routing,
    npu_moe_gating_top_k,
    npu_moe_gating_top_k_softmax,
    npu_moe_gating_top_k_softmax_v2,
    npu_moe_init_routing_v2,
    npu_moe_re_routing,
)
from ._sampling import npu_top_k_top_p_sample

__all__ = [
    "_npu_moe_token_unpermute_with_routing_map",
    "npu_gather_pa_kv_cache",
    "npu_gather_pa_kv_cache_functional",
    "npu_moe_finalize_routing",
    "npu_moe_gating_top_k",
    "npu_moe_gating_top_k_softmax",
    "npu_moe_gating_top_k_softmax_v2",
    "npu_moe_init_routing_v2",
    "npu_moe_re_routing",
    "npu_moe_token_permute",
    "npu_moe_token_permute_grad",
    "npu_moe_token_permute_with_routing_map",
    "npu_moe_token_permute_with_routing_map_grad",
    "npu_moe_token_unpermute",
    "npu_moe_token_unpermute_grad",
    "npu_moe_token_unpermute_with_routing_map",
    "npu_moe_token_unpermute_with_routing_map_grad",
    "npu_scatter_pa_kv_cache",
    "npu_scatter_pa_kv_cache_functional",
    "npu_top_k_top_p_sample",
]

del _torch
