"""What the rules of gradients need of JAX."""

from __future__ import annotations

import functools
import sys
from typing import Any

import jax
import jax.numpy as jnp

import switchyard

from .._gradients import named_slots
from ._call import JaxOperator
from ._functions import jax_operator

where, float32 = jnp.where, jnp.dtype(jnp.float32)


@functools.cache
def _operator(name: str) -> JaxOperator:
    return jax_operator(getattr(switchyard, name))


def run(name: str, *values: Any) -> Any:
    """The results of an operator."""
    operator = _operator(name)
    n = len(operator.inputs)
    made = operator(values[:n], None, *values[n:])
    return made[0] if operator.plain.results is tuple else made


def zeros(shape: tuple[int, ...], like: Any) -> Any:
    return jnp.zeros(shape, like.dtype)


def full_map(probs: Any) -> Any:
    """A routing map of this shape that is true everywhere."""
    return jnp.ones(probs.shape, bool)


def compact(array: Any) -> Any:
    return array


def cast(array: Any, dtype: Any) -> Any:
    return array.astype(dtype)


def wide(indices: Any) -> Any:
    """Indices for products with sizes."""
    return indices


def take(array: Any, ids: Any) -> Any:
    """The elements of each row."""
    return jnp.take_along_axis(array, ids, 1)


def is_last(named: Any, n: int) -> Any:
    """Which of the numbers below n do not occur again."""
    at = jnp.arange(len(named))
    return jnp.full(n, -1).at[named].max(at)[named] == at


def row_gradient(grad: Any, gates: Any, indices: Any, locations: Any, experts: int, capacity: int) -> Any:
    """The gradient of moe_combine's rows: each slot gets the sum of gate * grad over the choices that name it.

    Round r adds the r-th choice of every slot, in float32. Its product is a moe_combine of one choice; XLA only adds,
    so that nothing is contracted to a fused multiplication.
    """
    slots, count = experts * capacity, grad.shape[0]
    if slots == 0 or indices.size == 0:
        return jnp.zeros((slots, grad.shape[1]), grad.dtype)
    named = named_slots(sys.modules[__name__], indices, locations, experts, capacity).reshape(-1)
    order = jnp.argsort(named, stable=True)
    counts = jnp.bincount(named, length=slots + 1)
    first, counts = (jnp.cumsum(counts) - counts)[:slots], counts[:slots]
    rows, most = grad.astype(jnp.float32), counts.max()
    weights = None if gates is None else gates.astype(jnp.float32).reshape(-1)

    def add(r: Any, total: Any) -> Any:
        choice, live = order[jnp.minimum(first + r, order.size - 1)], r < counts
        sample = jnp.where(live, choice % count, -1).astype(jnp.int32)
        gate = None if weights is None else weights[choice]
        part = run("moe_combine", gate, jnp.zeros_like(sample), sample, rows, 1, count)
        part = jnp.where((part == 0) & (most > 1), 0, part)  # a sum begins with +0, a single product may be -0
        return jnp.where(live[:, None], jnp.where(r == 0, part, total + part), total)

    total = jax.lax.fori_loop(0, most, add, jnp.zeros((slots, grad.shape[1]), jnp.float32))
    return total.astype(grad.dtype)
