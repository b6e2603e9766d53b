"""PyPTO's kernels: functions of tensors that are called with arrays."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ._tensor import Tensor, as_tensor, to_torch_array


def jit(
    func: Callable[..., Any] | None = None,
    *,
    host_options: Any = None,
    codegen_options: Any = None,
    pass_options: Any = None,
    runtime_options: Any = None,
    verify_options: Any = None,
    debug_options: Any = None,
    new_ir: bool = True,
    create_new_logical_tensor: bool = False,
) -> Any:
    """A function whose array arguments are tensors inside, in the same memory. It runs at once; options have no effect.

    Tensors that it returns come back as arrays, of PyTorch where an argument is.
    """
    if func is None:
        return jit
    if not inspect.isfunction(func):
        raise TypeError(f"jit: func is a {type(func).__name__}, want a function")

    @functools.wraps(func)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        torch = any(hasattr(one, "is_contiguous") for one in given)
        inner = {name: _tensor(value) for name, value in kwargs.items()}
        made = func(*map(_tensor, args), **inner)
        if isinstance(made, (tuple, list)):
            return getattr(made, "_make", type(made))(_array(one, torch) for one in made)  # _make: of a named tuple
        return _array(made, torch)

    return kernel


def _tensor(value: Any) -> Any:
    is_array = hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, Tensor)
    return as_tensor(value, "jit: argument") if is_array else value


def _array(made: Any, torch: bool) -> Any:
    if not isinstance(made, Tensor):
        return made
    return to_torch_array(made) if torch else made.array
