"""The gradients, by the library's operators in its fixed order: the bits of switchyard.torch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..errors import Status, rejection
from ..ops import moe_combine as _moe_combine
from ..ops import moe_dispatch_grad_gate as _moe_dispatch_grad_gate
from ..ops import moe_map_from_ids as _moe_map_from_ids
from ..ops import moe_permute_grad as _moe_permute_grad
from ..ops import moe_reorder_chunks as _moe_reorder_chunks
from ..ops import moe_unpermute_grad as _moe_unpermute_grad
from ..ops import moe_unpermute_ids as _moe_unpermute_ids
from ._functions import function, jax_operator
from ._gradients import Arrays, rule

_combine = function(_moe_combine.moe_combine)
_gate_gradient = jax_operator(_moe_dispatch_grad_gate.moe_dispatch_grad_gate)
_map_from_ids = function(_moe_map_from_ids.moe_map_from_ids)
_permute_grad = function(_moe_permute_grad.moe_permute_grad)
_reorder_chunks = function(_moe_reorder_chunks.moe_reorder_chunks)
_unpermute_grad = function(_moe_unpermute_grad.moe_unpermute_grad)
_unpermute_ids = function(_moe_unpermute_ids.moe_unpermute_ids)


def _end_at_codes(name: str, codes: Any) -> None:
    """Rows that are codes have no gradient, and neither have their scales. `codes`: None where there are none."""
    if codes is not None:
        text = f"{name} has no gradient with row_format: want jax.lax.stop_gradient of its arrays"
        raise rejection(Status.UNSUPPORTED, text)


# ---- Rows of experts ----------------------------------------------------------------------------------------------


@rule("moe_permute", "sorted_indices routing_map")
def _permute(scalars: Arrays, kept: Arrays, grads: Arrays) -> dict[str, Any]:
    _end_at_codes("moe_permute", grads["permuted_scales"])
    rows, row_probs, routing_map = grads["permuted_tokens"], grads["permuted_probs"], kept["routing_map"]
    count, experts = routing_map.shape
    if count == 0 or experts == 0:  # an empty map, which moe_permute_grad rejects
        return {} if rows is None else {"tokens": jnp.zeros((count, rows.shape[1]), rows.dtype)}
    made = _permute_grad(
        jnp.zeros((len(kept["sorted_indices"]), 0), row_probs.dtype) if rows is None else rows,
        kept["sorted_indices"],
        row_probs,
        None if row_probs is None else routing_map,
        num_experts=experts,
        num_tokens=count,
        drop_and_pad=scalars["drop_and_pad"],
        zero_pad=scalars["zero_pad"],
    )
    return {"tokens": None if rows is None else made.grad_tokens, "probs": made.grad_probs}


@rule("moe_unpermute", "sorted_indices permuted_tokens routing_map probs")
def _unpermute(scalars: Arrays, kept: Arrays, grads: Arrays) -> dict[str, Any]:
    _end_at_codes("moe_unpermute", scalars["row_format"])
    probs, routing_map = kept["probs"], kept["routing_map"]
    if probs is not None and routing_map is None:  # capacity mode: the row gives the expert, the map is not used
        routing_map = jnp.ones(probs.shape, bool)
    made = _unpermute_grad(
        grads["tokens"],
        kept["sorted_indices"],
        None if probs is None else kept["permuted_tokens"],
        None if probs is None else routing_map,
        probs,
        drop_and_pad=scalars["drop_and_pad"],
        zero_pad=scalars["zero_pad"],
    )
    return {"permuted_tokens": made.grad_permuted_tokens, "probs": made.grad_probs}


@rule("moe_permute_ids", "sorted_indices ids")
def _permute_ids(scalars: Arrays, kept: Arrays, grads: Arrays) -> dict[str, Any]:
    _end_at_codes("moe_permute_ids", grads["permuted_scales"])
    rows, row_probs, begin = grads["permuted_tokens"], grads["permuted_probs"], scalars["row_begin"]
    count, choices = kept["ids"].shape
    made: dict[str, Any] = {}
    if rows is not None and choices == 0:  # the number of tokens does not follow from empty indices
        made["tokens"] = jnp.zeros((count, rows.shape[1]), rows.dtype)
    elif rows is not None:
        made["tokens"] = _unpermute_ids(rows, kept["sorted_indices"], num_tokens=count, row_begin=begin)
    if row_probs is not None:  # one slot per "token": each gets the gradient of its row
        alone = _unpermute_ids(row_probs[:, None], kept["sorted_indices"], row_begin=begin)
        made["probs"] = alone.reshape(count, choices)
    return made


@rule("moe_unpermute_ids", "permuted_tokens sorted_indices probs bias bias_ids")
def _unpermute_by_ids(scalars: Arrays, kept: Arrays, grads: Arrays) -> dict[str, Any]:
    """A row is slot 0 to M-1 of one expert: moe_combine with as many choices as a token has slots. So is a bias."""
    grad, probs, rows, bias = grads["tokens"], kept["probs"], kept["permuted_tokens"], kept["bias"]
    count = grad.shape[0]
    of_no_token = 0 if probs is None else probs.shape[1]
    choices = kept["sorted_indices"].shape[0] // count if count != 0 else of_no_token
    by_choice = kept["sorted_indices"].reshape((choices, count) if scalars["by_choice"] else (count, choices))
    by_choice = by_choice if scalars["by_choice"] else by_choice.T
    locations = by_choice - scalars["row_begin"]
    indices, biases = jnp.zeros_like(locations), None
    if bias is not None:  # not of rows outside the window
        inside = (by_choice == -1) | ((locations >= 0) & (locations < len(rows)))
        biases = jnp.where(inside, kept["bias_ids"].T, -1)
        locations = jnp.where(by_choice == -1, -1, locations)
    made = {"residual": grad, "shared": grad}

    def gradient(places: Any, most: int) -> Any:
        if probs is None:
            return _row_gradient(grad, None, indices, places, 1, most)
        return _row_gradient(grad, probs.T, indices, jnp.where(probs.T == 0, -1, places), 1, most)

    made["permuted_tokens"] = gradient(locations, len(rows))
    if bias is not None:
        made["bias"] = gradient(biases, len(bias))
    if probs is not None:
        dtype = probs.dtype if probs.dtype == grad.dtype else jnp.dtype(jnp.float32)
        (dots,) = _gate_gradient((indices, locations, grad, rows, 1, len(rows)), None, dtype)
        if bias is not None:
            dots = dots + _gate_gradient((indices, biases, grad, bias, 1, len(bias)), None, dtype)[0]
        made["probs"] = dots.T.astype(probs.dtype)
    return made


# ---- Slots of experts ---------------------------------------------------------------------------------------------


def _named(indices: Any, locations: Any, experts: int, capacity: int) -> Any:
    """The slot that each choice names; one past the end where there is no such slot."""
    valid = (indices >= 0) & (indices < experts) & (locations >= 0) & (locations < capacity)
    return jnp.where(valid, indices * capacity + locations, experts * capacity)


@rule("moe_dispatch", "gates indices locations input")
def _dispatch(scalars: Arrays, kept: Arrays, grads: Arrays) -> dict[str, Any]:
    _end_at_codes("moe_dispatch", grads["dispatch_scales"])
    gates, indices, locations, grad = kept["gates"], kept["indices"], kept["locations"], grads["dispatch"]
    sizes = scalars["num_experts"], scalars["capacity"]
    if not scalars["unique_slots"]:  # of several samples in a slot only the last was stored
        named, sample = _named(indices, locations, *sizes), jnp.arange(len(indices))
        last = jnp.full(sizes[0] * sizes[1] + 1, -1).at[named].max(sample)
        locations = jnp.where(last[named] == sample, locations, -1)
    made = {"input": _combine(indices, locations, grad, gates, num_experts=sizes[0], capacity=sizes[1])}
    if gates is not None:
        (made["gates"],) = _gate_gradient((indices, locations, kept["input"], grad, *sizes), None, gates.dtype)
    return made


@rule("moe_combine", "gates indices locations expert_out")
def _combine_back(scalars: Arrays, kept: Arrays, grads: Arrays) -> dict[str, Any]:
    gates, indices, locations, grad = kept["gates"], kept["indices"], kept["locations"], grads["output"]
    sizes = scalars["num_experts"], scalars["capacity"]
    made = {"expert_out": _row_gradient(grad, gates, indices, locations, *sizes)}
    if gates is not None:
        (made["gates"],) = _gate_gradient((indices, locations, grad, kept["expert_out"], *sizes), None, gates.dtype)
    return made


def _row_gradient(grad: Any, gates: Any, indices: Any, locations: Any, experts: int, capacity: int) -> Any:
    """The gradient of moe_combine's rows: each slot gets the sum of gate * grad over the choices that name it.

    Round r adds the r-th choice of every slot, in float32. Its product is a moe_combine of one choice; XLA only adds,
    so that nothing is contracted to a fused multiplication.
    """
    slots, count = experts * capacity, grad.shape[0]
    if slots == 0 or indices.size == 0:
        return jnp.zeros((slots, grad.shape[1]), grad.dtype)
    named = _named(indices, locations, experts, capacity).reshape(-1)
    order = jnp.argsort(named, stable=True)
    counts = jnp.bincount(named, length=slots + 1)
    first, counts = (jnp.cumsum(counts) - counts)[:slots], counts[:slots]
    rows, most = grad.astype(jnp.float32), counts.max()
    weights = None if gates is None else gates.astype(jnp.float32).reshape(-1)

    def add(r: Any, total: Any) -> Any:
        choice, live = order[jnp.minimum(first + r, order.size - 1)], r < counts
        sample = jnp.where(live, choice % count, -1).astype(jnp.int32)
        gate = None if weights is None else weights[choice]
        part = _combine(jnp.zeros_like(sample), sample, rows, gate, num_experts=1, capacity=count)
        part = jnp.where((part == 0) & (most > 1), 0, part)  # a sum begins with +0, a single product may be -0
        return jnp.where(live[:, None], jnp.where(r == 0, part, total + part), total)

    total = jax.lax.fori_loop(0, most, add, jnp.zeros((slots, grad.shape[1]), jnp.float32))
    return total.astype(grad.dtype)


# ---- What is only moved -------------------------------------------------------------------------------------------


@rule("moe_map_from_ids", "ids")
def _map_from(scalars: Arrays, kept: Arrays, grads: Arrays) -> dict[str, Any]:
    ids, grad = kept["ids"], grads["probs"]
    if grad is None or scalars["num_experts"] == 0:
        return {}
    there = (ids >= 0) & (ids < scalars["num_experts"])
    found = jnp.take_along_axis(grad, jnp.where(there, ids, 0), 1)
    return {"weights": jnp.where(there, found, 0)}


@rule("moe_ids_from_map", "ids routing_map")
def _ids_from(scalars: Arrays, kept: Arrays, grads: Arrays) -> dict[str, Any]:
    if grads["weights"] is None:
        return {}
    experts = kept["routing_map"].shape[1]
    made = _map_from_ids(kept["ids"], grads["weights"], num_experts=experts, allow_missing=True)
    return {"probs": made.probs}


@rule("moe_reorder_chunks", "counts")
def _reorder(scalars: Arrays, kept: Arrays, grads: Arrays) -> dict[str, Any]:
    there = [(field, grads[f"reordered_{field}"]) for field in ("rows", "extra")]
    there = [(field, grad) for field, grad in there if grad is not None]
    made = _reorder_chunks(  # a single gradient is passed as `rows`
        there[0][1], kept["counts"], there[1][1] if len(there) > 1 else None, inverse=not scalars["inverse"]
    )
    return {field: array for (field, _), array in zip(there, made, strict=False)}
