"""The plain functions, with an operator for JAX in the place of the plain one."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any, TypeVar, cast

from .. import _functions
from ._call import JaxOperator
from ._launch import operators

F = TypeVar("F")


def jax_operator(plain: Any) -> JaxOperator:
    operator = _functions.operator_of(plain)
    operators[operator.name] = operator
    return JaxOperator(operator)


def function(plain: F, **replaced: Any) -> F:
    """A plain function for JAX: the same parameters, defaults and conversions.

    `replaced` are further names of its module that have another meaning here.
    """
    of = cast("Any", plain)
    scope = {**of.__globals__, "operator": jax_operator(plain), **replaced}
    made: Any = FunctionType(of.__code__, scope, of.__name__, of.__defaults__, of.__closure__)
    made.__kwdefaults__, made.__annotations__ = of.__kwdefaults__, of.__annotations__
    line = (inspect.getdoc(plain) or "").partition("\n")[0].rstrip(".")
    made.__doc__ = f"{line}: :func:`switchyard.{of.__name__}`, for JAX."
    made.__module__ = "switchyard.jax"
    return cast("F", made)
