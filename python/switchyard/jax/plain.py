"""The operators that need nothing of their own in JAX: made of the plain functions."""

from __future__ import annotations

import switchyard

from .._operator import Operator
from . import cache
from ._functions import function

__all__ = [
    name
    for name in switchyard.__all__
    if name not in cache.__all__
    and isinstance(getattr(getattr(switchyard, name), "__globals__", {}).get("operator"), Operator)
]

for _name in __all__:
    globals()[_name] = function(getattr(switchyard, _name))
