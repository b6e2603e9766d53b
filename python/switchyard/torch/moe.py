"""The operators of mixtures of experts."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

import switchyard

from .._functions import operator_of
from .._gradients import named_slots
from .._sentences import bad
from ..errors import Status
from . import _backward, _gradients, _library
from ._library import Given, define, derive, function

# ---- The choice of experts for each token, and its forms as maps and lists ----

moe_route = derive(
    switchyard.moe_route,
    switchyard.MoeRoute[Tensor],
    """The weights have no gradient here: a backward pass that reaches them is rejected. To train a router, take
    ``ids`` or ``routing_map`` from here and the weights from the logits in torch.
    """,
)


moe_map_from_ids = derive(
    switchyard.moe_map_from_ids,
    switchyard.MoeMapFromIds[Tensor],
    "Gradients go to ``weights``.",
)


moe_ids_from_map = derive(
    switchyard.moe_ids_from_map,
    switchyard.MoeIdsFromMap[Tensor],
    "Gradients go to ``probs``.",
)


_gradients.take_rule("moe_map_from_ids")
_gradients.take_rule("moe_ids_from_map")
_gradients.reject("moe_route", "take ids or routing_map from it, and the weights from the logits in torch")


# ---- Copies of tokens to the rows of their experts, and the way back ----

moe_permute = derive(
    switchyard.moe_permute,
    switchyard.MoePermute[Tensor],
    """Gradients go to ``tokens``, the sum over their rows, and to ``probs``.

    >>> import torch, switchyard.torch
    >>> tokens = torch.tensor([[10., 11], [20, 21], [30, 31], [40, 41]], requires_grad=True)
    >>> routing_map = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]], dtype=torch.bool)
    >>> rows = switchyard.torch.moe_permute(tokens, routing_map, num_out_tokens=8)
    >>> rows.permuted_tokens[:, 0].tolist()
    [10.0, 30.0, 40.0, 20.0, 30.0, 10.0, 20.0, 40.0]
    >>> rows.permuted_tokens.sum().backward()
    >>> tokens.grad.tolist()
    [[2.0, 2.0], [2.0, 2.0], [2.0, 2.0], [2.0, 2.0]]
    """,
)

moe_unpermute = derive(
    switchyard.moe_unpermute,
    Tensor,
    """Gradients go to ``permuted_tokens`` and ``probs``. A weight of exactly 0 gives its row no gradient, because the
    row is not read. ``sorted_indices`` are those of moe_permute: if others name a row twice, only one of its gradients
    is kept.
    """,
)


moe_permute_ids = derive(
    switchyard.moe_permute_ids,
    switchyard.MoePermuteIds[Tensor],
    "Gradients go to ``tokens``, the sum over the rows that were kept, and to ``probs``.",
)


moe_unpermute_ids = derive(
    switchyard.moe_unpermute_ids,
    Tensor,
    """Gradients go to ``permuted_tokens``, ``probs``, ``bias``, ``residual`` and ``shared``. A weight of exactly 0
    gives its row and its bias no gradient, because they are not read.
    """,
)


def _begin_permute(name: str, ctx: Any, given: Any, made: Any) -> None:
    _gradients.reject_type(name, "tokens", given.tokens)
    _gradients.end_at_codes(ctx, name, "tokens", given.tokens, given.row_format, made.permuted_scales)


def _begin_unpermute(ctx: Any, given: Any, made: Any) -> Iterable[str]:
    if given.probs is not None and given.row_format is not None:
        _gradients.reject_codes("moe_unpermute", "probs", given.probs)
    return ("permuted_tokens",) if given.probs is None else ()


def _begin_unpermute_ids(ctx: Any, given: Any, made: Any) -> Iterable[str]:
    return ("permuted_tokens", "bias") if given.probs is None else ()


for _name in ("moe_permute", "moe_permute_ids"):
    _gradients.take_rule(_name, functools.partial(_begin_permute, _name))
_gradients.take_rule("moe_unpermute", _begin_unpermute)
_gradients.take_rule("moe_unpermute_ids", _begin_unpermute_ids)


# ---- Rows of a rank before and after an exchange ----

moe_reorder_chunks = derive(
    switchyard.moe_reorder_chunks,
    switchyard.MoeReorderChunks[Tensor],
    "Gradients go to ``rows`` and ``extra``, by the inverse operation.",
)


local_reduce = derive(
    switchyard.local_reduce,
    Tensor,
    "It has no gradient: a backward pass that reaches it is rejected.",
)


_gradients.take_rule("moe_reorder_chunks")
_gradients.reject("local_reduce", "want input.detach(), or moe_unpermute of the rows in expert order")


# ---- Tokens in expert slots of fixed capacity ----

_dispatch = define(operator_of(switchyard.moe_dispatch), switchyard.MoeDispatch[Tensor])
_capacity = define(operator_of(switchyard.moe_capacity), Tensor, writes=False)


@function(switchyard.moe_dispatch)
def moe_dispatch(given: Given, out: Any, input: Tensor, row_format: str | None) -> Any:
    """Write each sample's row, times its gate, into its slot: :func:`switchyard.moe_dispatch`.

    Gradients go to ``input`` and ``gates``. Of several samples in one slot only the last gets a gradient, as its row is
    the one that is kept; with ``unique_slots`` this is not checked. ``out`` may not be ``input`` here.

    >>> import torch, switchyard.torch
    >>> indices, locations = torch.tensor([[1, 0, 1], [0, 0, 0]], dtype=torch.int32)
    >>> rows = torch.tensor([[1.], [2], [3]], requires_grad=True)
    >>> buffer = switchyard.torch.moe_dispatch(indices, locations, rows, num_experts=2, capacity=1)
    >>> buffer[:, 0].tolist()
    [2.0, 3.0]
    >>> buffer.sum().backward()
    >>> rows.grad[:, 0].tolist()
    [0.0, 1.0, 1.0]
    """
    if out is not None and out is input:  # a compiled graph would read a copy
        text = "is input itself, want another tensor, or switchyard.moe_dispatch"
        raise bad(Status.ALIAS, "moe_dispatch", "out", text)
    if row_format is not None:
        return _dispatch(given, out)
    return _dispatch(given, None if out is None else (out, None))[0]


moe_combine = derive(
    switchyard.moe_combine,
    Tensor,
    """Gradients go to ``expert_out`` and ``gates``. Choices that share a slot are added up there, in float32, choice by
    choice and sample by sample.
    """,
)


moe_dispatch_grad_data = moe_combine


@function(switchyard.moe_capacity)
def moe_capacity(given: Given, out: Any) -> int:
    """Compute the number of slots of each expert: :func:`switchyard.moe_capacity`.

    The number is read from memory, as with ``Tensor.item()``, which breaks a compiled graph: call it outside.

    >>> import torch, switchyard.torch
    >>> switchyard.torch.moe_capacity(torch.tensor([4, 4, 2]), num_experts=3)
    4
    """
    return int(_capacity(given).item())


def _row_gradient(
    grad: Tensor, gates: Tensor | None, indices: Tensor, locations: Tensor, num_experts: int, capacity: int
) -> Tensor:
    """The gradient of moe_combine's rows: each slot gets the sum of gate * grad over the choices that name it.

    This is a moe_combine with the roles exchanged: a slot is a sample, and its choices are the samples that named it.
    """
    slots, count = num_experts * capacity, grad.shape[0]
    named = named_slots(_backward, indices, locations, num_experts, capacity).reshape(-1)
    order = torch.argsort(named, stable=True)
    counts = torch.bincount(named, minlength=slots + 1)
    named = named[order]
    rank = torch.arange(named.shape[0], device=named.device) - (counts.cumsum(0) - counts)[named]
    live = named < slots
    place = rank[live] * slots + named[live]
    most = max(int(counts[:slots].max()), 1) if slots else 1
    samples = torch.full((most, slots), -1, dtype=torch.int32, device=grad.device)
    samples.view(-1)[place] = (order[live] % max(count, 1)).to(torch.int32)
    weights = None
    if gates is not None:
        weights = torch.zeros((most, slots), dtype=gates.dtype, device=grad.device)
        weights.view(-1)[place] = gates.reshape(-1)[order[live]]
    made = torch.empty((slots, grad.shape[1]), dtype=grad.dtype, device=grad.device)
    given = (weights, torch.zeros_like(samples), samples, grad, 1, count)
    _library.run(operator_of(switchyard.moe_combine), given, (made,))
    return made


def _fake_row_gradient(
    grad: Tensor, gates: Tensor | None, indices: Tensor, locations: Tensor, num_experts: int, capacity: int
) -> Tensor:
    _library.reject_device("moe_combine_grad", (grad, gates, indices, locations))
    return grad.new_empty((num_experts * capacity, grad.shape[1]))


def _begin_dispatch(ctx: Any, given: Any, made: Any) -> Iterable[str]:
    for field, tensor in (("input", given.input), ("gates", given.gates)):
        if tensor is not None:
            _gradients.end_at_codes(ctx, "moe_dispatch", field, tensor, given.row_format, made.dispatch_scales)
    return _without_gates(given, "input")


def _without_gates(given: Any, rows: str) -> Iterable[str]:
    """Rows are kept for the gradient of gates."""
    return () if given.gates is not None and given.gates.requires_grad else (rows,)


_gradients.take_rule("moe_dispatch", _begin_dispatch)
_gradients.take_rule("moe_combine", lambda _, given, __: _without_gates(given, "expert_out"))
_library.register(
    "moe_combine_grad",
    "(Tensor grad, Tensor? gates, Tensor indices, Tensor locations, SymInt num_experts, SymInt capacity) -> Tensor",
    _row_gradient,
    _fake_row_gradient,
)
_gradients.reject_second("moe_combine_grad", "the gradient of moe_combine or moe_unpermute_ids")
