"""torch_npu's names for the operators of this library, over :mod:`switchyard.torch`: on CPU tensors, with autograd.

docs/compat/torch_npu.md has programs.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

try:
    from ... import torch as _torch
except ImportError as _error:
    _text = str(_error).replace("switchyard.torch", __name__)
    raise type(_error)(_text, name="torch") from None

from ._permutation import _npu_moe_token_unpermute_with_routing_map as _npu_moe_token_unpermute_with_routing_map

if _TYPE_CHECKING:
    from ._cache import *  # noqa: F403
    from ._permutation import *  # noqa: F403
    from ._routing import *  # noqa: F403
    from ._sampling import *  # noqa: F403
else:
    from ..._exports import own as _own
    from . import _cache, _permutation, _routing, _sampling

    _own(globals(), _cache, _permutation, _routing, _sampling, more=["_npu_moe_token_unpermute_with_routing_map"])

del _torch
