"""The operators that need nothing of their own in torch: made of the plain functions."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor

from .. import _without_gradient
from ._library import Given, define, function


def _of(plain: Any) -> Any:
    """The function of the same name for tensors."""
    operator = plain.__globals__["operator"]
    run = define(operator, Tensor if operator.results is tuple else operator.results)

    def body(given: Given, out: Any) -> Any:
        return run(given, out)

    line = (inspect.getdoc(plain) or "").partition("\n")[0].rstrip(".")
    body.__doc__ = f"{line}: :func:`switchyard.{plain.__name__}`, for tensors. There is no gradient."
    return function(plain)(body)


for _name in (__all__ := _without_gradient.__all__):
    _listed = getattr(_without_gradient, _name)
    globals()[_name] = _listed if inspect.isclass(_listed) else _of(_listed)
