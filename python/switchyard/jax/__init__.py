"""Switchyard's operators in JAX: under jit, vmap and grad.

The functions are those of :mod:`switchyard`, with the same parameters, and everything else of it is here too. Arguments
are validated while a function is traced, contents when it runs.

>>> import jax, jax.numpy as jnp, switchyard.jax
>>> routing_map = jnp.array([[1, 0, 1], [0, 1, 1]], bool)
>>> @jax.jit
... def there_and_back(x):
...     rows = switchyard.jax.moe_permute(x, routing_map, num_out_tokens=4)
...     return switchyard.jax.moe_unpermute(10 * rows.permuted_tokens, rows.sorted_indices, num_tokens=2)
>>> there_and_back(jnp.array([[1.0], [2.0]]))[:, 0]
Array([20., 40.], dtype=float32)
>>> jax.grad(lambda x: there_and_back(x).sum())(jnp.ones((2, 1)))[:, 0]
Array([20., 20.], dtype=float32)
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

try:
    import jax.ffi as _jax_ffi
except ModuleNotFoundError:
    _text = "switchyard.jax needs JAX 0.5 or newer, and there is none: pip install jax"
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
