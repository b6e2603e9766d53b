"""The operators that need nothing of their own in torch: made of the plain functions."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor

from .. import _without_gradient
from .._functions import operator_of
from . import _gradients
from ._library import derive


def _of(plain: Any) -> Any:
    """The function of the same name for tensors."""
    results = operator_of(plain).results
    return derive(plain, Tensor if results is tuple else results, "There is no gradient.")


for _name in (__all__ := [name for name in vars(_without_gradient) if not name.startswith("_")]):
    _listed = getattr(_without_gradient, _name)
    globals()[_name] = _listed if inspect.isclass(_listed) else _of(_listed)

for _name in ("moe_permute_grad", "moe_unpermute_grad", "moe_dispatch_grad_gate"):
    _gradients.reject_second(_name)
