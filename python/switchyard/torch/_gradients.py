"""Registers gradients, and errors for operators without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._sentences import bad
from ..errors import Status, rejection
from ._library import library

DIFFERENTIABLE = (torch.float32, torch.float16, torch.bfloat16)


def register(name: str, setup: Callable[..., None], backward: Callable[..., Any]) -> None:
    """Registers the gradient of an operator. Unused results have the gradient None."""

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.set_materialize_grads(False)
        setup(ctx, inputs, output)

    torch.library.register_autograd(f"switchyard::{name}", backward, setup_context=setup_context, lib=library)


def reject(name: str, instead: str) -> None:
    """Registers that an operator has no gradient: a backward pass that needs one raises an error."""

    def backward(ctx: Any, *grads: Any) -> Any:
        raise rejection(Status.UNSUPPORTED, f"{name} has no gradient: {instead}")

    torch.library.register_autograd(f"switchyard::{name}", backward, lib=library)


def reject_second(name: str) -> None:
    """The same for operators that are gradients themselves."""
    reject(name, "want first derivatives only, or the same layer in plain torch")


def reject_type(name: str, field: str, tensor: Tensor | None) -> None:
    """Rejects a tensor of a type that can be moved but whose gradient cannot be summed."""
    if tensor is not None and tensor.requires_grad and tensor.dtype not in DIFFERENTIABLE:
        text = f"is {str(tensor.dtype).removeprefix('torch.')} and requires a gradient"
        raise bad(Status.DTYPE, name, field, f"{text}, want float32, float16 or bfloat16")


def reject_codes(name: str, field: str, tensor: Tensor) -> None:
    """Rejects a tensor whose gradient would need that of codes."""
    if tensor.requires_grad:
        text = "requires a gradient, which codes of row_format do not have, want it detached"
        raise bad(Status.VALUE, name, field, text)


def end_at_codes(ctx: Any, name: str, field: str, tensor: Tensor, row_format: str | None, scales: Tensor) -> None:
    """Rows that become codes have no gradient, and neither have the scales."""
    if row_format is None:
        return
    reject_codes(name, field, tensor)
    ctx.mark_non_differentiable(scales)


def factors(weights: Tensor | None, rows: Tensor) -> Tensor | None:
    """Weights in a type the operator accepts with these rows: their own if it is that of the rows, else float32."""
    return weights if weights is None or weights.dtype == rows.dtype else weights.to(torch.float32)
