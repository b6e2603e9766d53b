"""How gradients are registered, and what is said where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._sentences import bad
from ..errors import Status, refusal
from ._library import library

DIFFERENTIABLE = (torch.float32, torch.float16, torch.bfloat16)


def register(name: str, setup: Callable[..., None], backward: Callable[..., Any]) -> None:
    """Registers the gradient of an operator. Results that nobody used have None for theirs."""

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.set_materialize_grads(False)
        setup(ctx, inputs, output)

    torch.library.register_autograd(f"switchyard::{name}", backward, setup_context=setup_context, lib=library)


def refuse(name: str, instead: str) -> None:
    """Registers that an operator has no gradient: whoever needs one is told, in the backward pass."""

    def backward(ctx: Any, *grads: Any) -> Any:
        raise refusal(Status.UNSUPPORTED, f"{name} has no gradient: {instead}")

    torch.library.register_autograd(f"switchyard::{name}", backward, lib=library)


def refuse_second(name: str) -> None:
    """The same for operators that are gradients themselves."""
    refuse(name, "want first derivatives only, or the same layer in plain torch")


def refuse_type(name: str, field: str, tensor: Tensor | None) -> None:
    """Refuses a tensor that can be moved but whose gradient could not be added up."""
    if tensor is not None and tensor.requires_grad and tensor.dtype not in DIFFERENTIABLE:
        said = f"is {str(tensor.dtype).removeprefix('torch.')} and requires a gradient"
        raise bad(Status.DTYPE, name, field, f"{said}, want float32, float16 or bfloat16")


def factors(weights: Tensor | None, rows: Tensor) -> Tensor | None:
    """Weights in a type that goes with any rows: their own, where it is that of the rows, else float32."""
    return weights if weights is None or weights.dtype == rows.dtype else weights.to(torch.float32)
