"""Everything of switchyard that needs nothing of its own in JAX; the operators are made of the plain functions."""

from __future__ import annotations

from typing import Any

import switchyard

from .._operator import Operator
from . import cache
from ._functions import function

__all__ = [name for name in vars(switchyard)["__all__"] if name not in cache.__all__]


def is_operator(listed: Any) -> bool:
    return isinstance(getattr(listed, "__globals__", {}).get("operator"), Operator)


for _name in __all__:
    _listed = getattr(switchyard, _name)
    globals()[_name] = function(_listed) if is_operator(_listed) else _listed
