"""The gradients of operators, by the library's operators in its fixed order: one rule for PyTorch and JAX.

A rule gets a call, the gradients of its results by name, and the functions of an array library: the module `_backward`
of `torch` or `jax`. A call has by name what was kept, None for what was left out, and all scalars; `shape` of inputs;
and `needs`, the inputs with a gradient. A rule returns the gradients of inputs by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Back = Callable[[Any, Any, Any], dict[str, Any]]


class Rule(NamedTuple):
    """The gradients of an operator, and what they need of a call."""

    back: Back
    keep: tuple[str, ...]  # inputs and results
    sizes: tuple[str, ...]  # inputs whose shape is enough


rules: dict[str, Rule] = {}  # of operators


def rule(name: str, keep: str, sizes: str = "") -> Callable[[Back], Back]:
    """Registers the gradients of an operator."""

    def register(back: Back) -> Back:
        rules[name] = Rule(back, tuple(keep.split()), tuple(sizes.split()))
        return back

    return register


# ---- Rows of experts ----


@rule("moe_permute", "sorted_indices routing_map")
def _permute(call: Any, grads: Any, xp: Any) -> dict[str, Any]:
    rows = grads.permuted_tokens if "tokens" in call.needs else None
    row_probs = grads.permuted_probs if "probs" in call.needs else None
    if rows is None and row_probs is None:
        return {}
    indices, routing_map = call.sorted_indices, call.routing_map
    count, experts = routing_map.shape
    if count == 0 or experts == 0:  # an empty map, which moe_permute_grad rejects
        tokens = None if rows is None else xp.zeros((count, rows.shape[1]), rows)
        return {"tokens": tokens, "probs": None if row_probs is None else xp.zeros((count, experts), row_probs)}
    made = xp.run(
        "moe_permute_grad",
        xp.zeros((indices.shape[0], 0), row_probs) if rows is None else rows,
        indices,
        row_probs,
        None if row_probs is None else routing_map,
        experts,
        count,
        call.drop_and_pad,
        call.zero_pad,
    )
    return {"tokens": None if rows is None else made.grad_tokens, "probs": made.grad_probs}


@rule("moe_unpermute", "sorted_indices permuted_tokens routing_map probs")
def _unpermute(call: Any, grads: Any, xp: Any) -> dict[str, Any]:
    rows, routing_map, probs = call.permuted_tokens, call.routing_map, call.probs
    if probs is None:
        rows = routing_map = None  # only weights need them
    elif routing_map is None:  # capacity mode: the row gives the expert, the map is not used
        routing_map = xp.full_map(probs)
    flags = call.drop_and_pad, call.zero_pad
    made = xp.run("moe_unpermute_grad", grads.tokens, call.sorted_indices, rows, routing_map, probs, *flags)
    return {"permuted_tokens": made.grad_permuted_tokens, "probs": made.grad_probs}


@rule("moe_permute_ids", "sorted_indices", "ids")
def _permute_ids(call: Any, grads: Any, xp: Any) -> dict[str, Any]:
    rows, row_probs = grads.permuted_tokens, grads.permuted_probs
    count, choices = call.shape["ids"]
    made: dict[str, Any] = {}

    def summed(rows: Any, count: Any) -> Any:
        return xp.run("moe_unpermute_ids", rows, call.sorted_indices, *[None] * 5, count, call.row_begin, 0, False)

    if "tokens" in call.needs and rows is not None:  # the number of tokens does not follow from empty indices
        made["tokens"] = summed(rows, count) if choices != 0 else xp.zeros((count, rows.shape[1]), rows)
    if "probs" in call.needs and row_probs is not None:  # one slot per "token": each gets the gradient of its row
        made["probs"] = summed(row_probs[:, None], 0).reshape(count, choices)
    return made


@rule("moe_unpermute_ids", "sorted_indices permuted_tokens probs bias bias_ids", "permuted_tokens bias")
def _unpermute_ids(call: Any, grads: Any, xp: Any) -> dict[str, Any]:
    """A row is slot 0 to M-1 of one expert: moe_combine with as many choices as a token has slots. So is a bias."""
    grad, probs, bias_ids, rows = grads.tokens, call.probs, call.bias_ids, call.shape["permuted_tokens"][0]
    count = grad.shape[0]
    of_no_token = 0 if probs is None else probs.shape[1]
    choices = call.sorted_indices.shape[0] // count if count != 0 else of_no_token
    by_choice = call.sorted_indices.reshape(*((choices, count) if call.by_choice else (count, choices)))
    by_choice = by_choice if call.by_choice else by_choice.T
    locations = xp.compact(by_choice - call.row_begin)
    indices, biases = xp.zeros((choices, count), locations), None
    gates: Any = None
    if bias_ids is not None:  # not of rows outside the window
        inside = (by_choice == -1) | ((locations >= 0) & (locations < rows))
        biases = xp.compact(xp.where(inside, bias_ids.T, -1))
        locations = xp.compact(xp.where(by_choice == -1, -1, locations))
    if probs is not None:  # in a type that goes with these rows
        gates = xp.compact((probs if probs.dtype == grad.dtype else xp.cast(probs, xp.float32)).T)

    def gradient(places: Any, most: Any) -> Any:
        live = places if probs is None else xp.compact(xp.where(probs.T == 0, -1, places))
        return xp.row_gradient(grad, gates, indices, live, 1, most)

    def dots(places: Any, rows: Any, most: Any) -> Any:
        return xp.run("moe_dispatch_grad_gate", indices, places, grad, rows, 1, most, gates.dtype)

    made = {"residual": grad, "shared": grad}
    if "permuted_tokens" in call.needs:
        made["permuted_tokens"] = gradient(locations, rows)
    if biases is not None and "bias" in call.needs:
        made["bias"] = gradient(biases, call.shape["bias"][0])
    if probs is not None and "probs" in call.needs:
        of_gates = dots(locations, call.permuted_tokens, rows)
        if biases is not None:
            of_gates = of_gates + dots(biases, call.bias, call.shape["bias"][0])
        made["probs"] = xp.cast(of_gates.T, probs.dtype)
    return made


# ---- Slots of experts ----


def named_slots(xp: Any, indices: Any, locations: Any, experts: Any, capacity: Any) -> Any:
    """The slot that each choice names; one past the end where there is no such slot."""
    valid = (indices >= 0) & (indices < experts) & (locations >= 0) & (locations < capacity)
    return xp.where(valid, xp.wide(indices) * capacity + locations, experts * capacity)


@rule("moe_dispatch", "gates indices locations input")
def _dispatch(call: Any, grads: Any, xp: Any) -> dict[str, Any]:
    gates, indices, locations, grad = call.gates, call.indices, call.locations, grads.dispatch
    if grad is None:
        return {}
    sizes, made = (call.num_experts, call.capacity), {}
    if not call.unique_slots:  # of several samples in a slot only the last was stored
        last = xp.is_last(named_slots(xp, indices, locations, *sizes), sizes[0] * sizes[1] + 1)
        locations = xp.where(last, locations, -1)
    if gates is not None and "gates" in call.needs:
        made["gates"] = xp.run("moe_dispatch_grad_gate", indices, locations, call.input, grad, *sizes, gates.dtype)
    if "input" in call.needs:
        made["input"] = xp.run("moe_combine", gates, indices, locations, grad, *sizes)
    return made


@rule("moe_combine", "gates indices locations expert_out")
def _combine(call: Any, grads: Any, xp: Any) -> dict[str, Any]:
    gates, indices, locations, grad = call.gates, call.indices, call.locations, grads.output
    sizes, made = (call.num_experts, call.capacity), {}
    if gates is not None and "gates" in call.needs:
        made["gates"] = xp.run("moe_dispatch_grad_gate", indices, locations, grad, call.expert_out, *sizes, gates.dtype)
    if "expert_out" in call.needs:
        made["expert_out"] = xp.row_gradient(grad, gates, indices, locations, *sizes)
    return made


# ---- What is only moved ----


@rule("moe_map_from_ids", "ids")
def _map_from_ids(call: Any, grads: Any, xp: Any) -> dict[str, Any]:
    ids, experts = call.ids, call.num_experts
    if grads.probs is None or experts == 0:
        return {}
    named = (ids >= 0) & (ids < experts)
    return {"weights": xp.where(named, xp.take(grads.probs, xp.where(named, ids, 0)), 0)}


@rule("moe_ids_from_map", "ids", "routing_map")
def _ids_from_map(call: Any, grads: Any, xp: Any) -> dict[str, Any]:
    if grads.weights is None:
        return {}
    experts = call.shape["routing_map"][1]
    return {"probs": xp.run("moe_map_from_ids", call.ids, grads.weights, experts, True).probs}


@rule("moe_reorder_chunks", "counts")
def _reorder_chunks(call: Any, grads: Any, xp: Any) -> dict[str, Any]:
    given = {"rows": grads.reordered_rows, "extra": grads.reordered_extra}
    there = {field: grad for field, grad in given.items() if grad is not None and field in call.needs}
    if not there:
        return {}
    first, second = [*there.values(), None][:2]  # a single gradient is passed as `rows`
    return dict(zip(there, xp.run("moe_reorder_chunks", first, call.counts, second, not call.inverse), strict=False))
