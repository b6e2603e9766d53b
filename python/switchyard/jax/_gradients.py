"""Which operators have a gradient; an error from the others where one is needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax

from .. import _binding
from .._gradients import rules
from ..errors import Status, rejection
from ._launch import NARROW, Call, launch

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
    named = dict(zip((fields[at] for at in positions), (*values, *made), strict=True))
    rule = rules[call.name]
    return made, {field: named.get(field) for field in {*rule.keep, *rule.sizes}}


def _backward(call: Call, kept: dict[str, Any], given: tuple[Any, ...]) -> tuple[tuple[Any, ...]]:
    fields = _binding.fields(call.name)
    zero = jax.custom_derivatives.SymbolicZero
    there = [(output, grad) for output, grad in zip(call.outputs, given, strict=True) if not isinstance(grad, zero)]
    if not there:
        return ((None,) * len(call.operands),)
    if call.name not in rules:
        text = f"{call.name} has no gradient: want jax.lax.stop_gradient of its arrays, or a function of jax.numpy"
        raise rejection(Status.UNSUPPORTED, text)
    from . import _backward as functions

    grads = {**dict.fromkeys(fields), **{fields[output.position]: grad for output, grad in there}}
    held = {**dict.fromkeys(fields), **{fields[at]: value for at, value in call.values().items()}, **kept}
    of_codes = [field for field in fields if field.endswith("_scales") and grads[field] is not None]
    if of_codes or (call.name == "moe_unpermute" and held["row_format"] is not None):
        text = f"{call.name} has no gradient with row_format: want jax.lax.stop_gradient of its arrays"
        raise rejection(Status.UNSUPPORTED, text)
    shape = {field: array.shape for field, array in kept.items() if array is not None}
    values = SimpleNamespace(**held, shape=shape, needs=frozenset(fields))
    made = rules[call.name].back(values, SimpleNamespace(**grads), functions)
    return (tuple(made.get(fields[at]) for at in call.operands),)


_differentiable.defvjp(_forward, _backward, symbolic_zeros=True)
