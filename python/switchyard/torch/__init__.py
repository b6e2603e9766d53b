"""Switchyard's operators in PyTorch: they work with torch.compile, and have gradients where these are defined."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

try:
    import torch.library as _torch_library  # an empty folder of that name has no library
except ModuleNotFoundError:
    _text = "switchyard.torch needs PyTorch 2.4 or newer, and there is none: pip install torch"
    raise ModuleNotFoundError(_text, name="torch") from None
if not hasattr(_torch_library, "register_autograd"):
    raise ImportError("switchyard.torch needs PyTorch 2.4 or newer, and there is an older one", name="torch")

if _TYPE_CHECKING:
    from .._without_gradient import *  # noqa: F403
    from .cache import *  # noqa: F403
    from .moe import *  # noqa: F403
    from .sampling import *  # noqa: F403
else:
    from .._exports import own as _own
    from . import cache, moe, sampling, without_gradient
    from .without_gradient import *  # noqa: F403

    _own(globals(), cache, moe, sampling, more=without_gradient.__all__)

del _torch_library
