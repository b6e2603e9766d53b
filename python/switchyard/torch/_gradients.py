"""Registers gradients, and errors for operators without one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor

import switchyard

from .. import _functions
from .._gradients import rules
from .._sentences import bad
from ..errors import Status, rejection
from . import _backward
from ._library import library, op, transformed

_C: Any = torch._C
DIFFERENTIABLE = (torch.float32, torch.float16, torch.bfloat16)


def register(name: str, setup: Callable[..., None], backward: Callable[..., Any]) -> None:
    """Registers the gradient of an operator. Unused results have the gradient None."""

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.set_materialize_grads(False)
        setup(ctx, inputs, output)

    torch.library.register_autograd(f"switchyard::{name}", backward, setup_context=setup_context, lib=library)
    transformed[name] = _function(name, setup_context, backward)


Begin = Callable[[Any, Any, Any], Iterable[str] | None]


def take_rule(name: str, begin: Begin | None = None) -> None:
    """Registers the gradient of an operator.

    `begin` looks at a call that is made: its context, its values and results by name; it returns what need not be kept.
    """
    operator, (back, keep, _) = _functions.operator_of(getattr(switchyard, name)), rules[name]
    fields = [*(field.parameter for field in operator.given), *operator.asks]
    results = [field.name for field in operator.outputs]

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        given = dict(zip(fields, inputs, strict=True))
        made = dict(zip(results, output if isinstance(output, (tuple, list)) else (output,), strict=True))
        left_out = begin(ctx, SimpleNamespace(**given), SimpleNamespace(**made)) if begin else ()
        held = {**given, **made}
        ctx.names = [field for field in keep if field not in (left_out or ())]
        ctx.save_for_backward(*(held[field] for field in ctx.names))
        tensors = {field: value for field, value in given.items() if isinstance(value, Tensor)}
        ctx.values = {field: value for field, value in given.items() if field not in tensors}
        ctx.shape = {field: tensor.shape for field, tensor in tensors.items()}

    def backward(ctx: Any, *grads: Any) -> Any:
        if all(grad is None for grad in grads):
            return (None,) * len(fields)
        held = {**dict.fromkeys(keep), **ctx.values, **dict(zip(ctx.names, ctx.saved_tensors, strict=True))}
        needs = {field for field, needed in zip(fields, ctx.needs_input_grad, strict=False) if needed}
        call = SimpleNamespace(**held, shape=ctx.shape, needs=needs)
        made = back(call, SimpleNamespace(**dict(zip(results, grads, strict=True))), _backward)
        return tuple(made.get(field) if field in needs else None for field in fields)

    register(name, setup, backward)


class _Ended:
    """The context of a backward pass, with the saved tensors themselves where their transformation has ended."""

    def __init__(self, ctx: Any) -> None:
        self._ctx, self.saved_tensors = ctx, tuple(map(_unwrapped, ctx.saved_tensors))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)


def _unwrapped(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else _C._functorch.unwrap_if_dead(tensor)


def _function(name: str, setup: Callable[..., None], backward: Callable[..., Any]) -> Callable[..., Any]:
    """The operator with its gradient for the transformations of torch.func. vmap makes one call for each element.

    Values are passed as leaves and a last one that describes them: a function takes no lists of tensors.
    """

    def forward(*leaves: Any) -> Any:
        made = op(name)(*pytree.tree_unflatten(leaves[:-1], leaves[-1]))
        return tuple(made) if isinstance(made, list) else made

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        setup(ctx, tuple(pytree.tree_unflatten(inputs[:-1], inputs[-1])), output)

    def backward_of(ctx: Any, *grads: Any) -> Any:
        return *backward(_Ended(ctx), *map(_unwrapped, grads)), None

    def vmap(info: Any, dims: tuple[Any, ...], *leaves: Any) -> Any:
        def element(i: int) -> Any:
            pairs = zip(leaves, dims, strict=True)
            return forward(*(leaf if dim is None else leaf.select(dim, i) for leaf, dim in pairs))

        each = [element(i) for i in range(info.batch_size)]
        if isinstance(each[0], Tensor):
            return torch.stack(each), 0
        return tuple(torch.stack(found) for found in zip(*each, strict=True)), (0,) * len(each[0])

    members = {"forward": forward, "setup_context": setup_context, "backward": backward_of, "vmap": vmap}
    made: Any = type(name, (torch.autograd.Function,), {of: staticmethod(f) for of, f in members.items()})

    def apply(*values: Any) -> Any:
        leaves, described = pytree.tree_flatten(values)
        return made.apply(*leaves, described)

    return apply


def reject(name: str, instead: str, what: str = "") -> None:
    """Registers that an operator has no gradient: a backward pass that needs one raises an error.

    `what` is in place of a name that is no function here.
    """

    def backward(ctx: Any, *grads: Any) -> Any:
        raise rejection(Status.UNSUPPORTED, f"{what or name} has no gradient: {instead}")

    register(name, lambda *_: None, backward)


def reject_second(name: str, what: str = "") -> None:
    """The same for operators that are gradients themselves."""
    reject(name, "want first derivatives only, or the same layer in plain torch", what)


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
