"""Which operators have a gradient; an error from the others where one is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from .. import _binding
from ..errors import Status, rejection
from ._launch import NARROW, Call, launch


class Arrays(dict[str, Any]):
    """Arrays or scalars by field; None for those that are not there."""

    def __missing__(self, field: str) -> None:
        return None


# The gradients of inputs, from the scalars of the call, what was kept of its inputs and results, and the gradients of
# its results. Both are without those that are not there.
Rule = Callable[[Arrays, Arrays, Arrays], dict[str, Any]]

rules: dict[str, tuple[Rule, tuple[str, ...]]] = {}  # of operators; the second is what they keep


def rule(name: str, keep: str) -> Callable[[Rule], Rule]:
    """Registers the gradient of an operator, and the arrays that it needs."""

    def register(back: Rule) -> Rule:
        rules[name] = (back, tuple(keep.split()))
        return back

    return register


_differentiable: Any = jax.custom_vjp(launch, nondiff_argnums=(0,))


def _run(call: Call, narrow: bool, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The results of a call; with `narrow` those of 64 bits as 32, which JAX has unless jax_enable_x64 is set."""
    made = _differentiable(call, operands)
    return tuple(x.astype(NARROW[x.dtype.name]) if narrow and x.dtype.name in NARROW else x for x in made)


run: Any = jax.jit(_run, static_argnums=(0, 1), inline=True)


def _forward(call: Call, operands: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
    values = tuple(operand.value for operand in operands)
    starts = {output.start for output in call.outputs}
    if call.name in rules and any(operand.perturbed for at, operand in enumerate(operands) if at in starts):
        text = f"{call.name}: out requires a gradient, which would end here: want jax.lax.stop_gradient of it"
        raise rejection(Status.VALUE, text)
    made = _differentiable(call, values)  # not launch: second derivatives go through it
    if call.name not in rules:
        return made, {}
    fields = _binding.fields(call.name)
    positions = (*call.operands, *(output.position for output in call.outputs))
    named = Arrays(zip((fields[at] for at in positions), (*values, *made), strict=True))
    return made, {field: named[field] for field in rules[call.name][1]}


def _backward(call: Call, kept: dict[str, Any], given: tuple[Any, ...]) -> tuple[tuple[Any, ...]]:
    fields = _binding.fields(call.name)
    zero = jax.custom_derivatives.SymbolicZero
    there = [(output, grad) for output, grad in zip(call.outputs, given, strict=True) if not isinstance(grad, zero)]
    if not there:
        return ((None,) * len(call.operands),)
    if call.name not in rules:
        text = f"{call.name} has no gradient: want jax.lax.stop_gradient of its arrays, or a function of jax.numpy"
        raise rejection(Status.UNSUPPORTED, text)
    grads = Arrays((fields[output.position], grad) for output, grad in there)
    scalars = Arrays((fields[at], value) for at, value in call.values().items())
    made = rules[call.name][0](scalars, Arrays(kept), grads)
    return (tuple(made.get(fields[at]) for at in call.operands),)


_differentiable.defvjp(_forward, _backward, symbolic_zeros=True)
