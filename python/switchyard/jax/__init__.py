"""Switchyard's operators in JAX: under jit, vmap and grad.

The functions are those of :mod:`switchyard`, with the same parameters, and everything else of it is here too. Arguments
are validated while a function is traced, contents when it runs.

docs/python.md has programs.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

try:
    import jax.ffi as _jax_ffi
except ModuleNotFoundError:
    _text = "switchyard.jax needs JAX 0.10 or newer, and there is none: pip install jax"
    raise ModuleNotFoundError(_text, name="jax") from None

from . import _backward as _backward
from . import plain as _plain
from ._launch import has_handlers
from .cache import kv_blocks, kv_gather, kv_ragged, kv_scatter, moe_capacity

if _TYPE_CHECKING:
    from .. import *  # noqa: F403
    from .._without_gradient import *  # noqa: F403
else:
    from .plain import *  # noqa: F403

__all__ = ["has_handlers", "kv_blocks", "kv_gather", "kv_ragged", "kv_scatter", "moe_capacity"]
__all__ += _plain.__all__

del _jax_ffi
