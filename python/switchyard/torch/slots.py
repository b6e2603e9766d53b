"""Tokens in expert slots of fixed capacity."""

from __future__ import annotations

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

_dispatch = define(operator_of(switchyard.moe_dispatch), switchyard.MoeDispatch[Tensor])
gate_gradient = define(operator_of(switchyard.moe_dispatch_grad_gate), Tensor)
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
    """Give each sample the sum of its choices' rows, each times its gate: :func:`switchyard.moe_combine`.

    Gradients go to ``expert_out`` and ``gates``. Choices that share a slot are added up there, in float32, choice by
    choice and sample by sample.

    >>> import torch, switchyard.torch
    >>> indices, locations = torch.tensor([[1, 0, 1], [0, 0, 0]], dtype=torch.int32)
    >>> rows = torch.tensor([[1.], [2]], requires_grad=True)
    >>> samples = switchyard.torch.moe_combine(indices, locations, rows, num_experts=2, capacity=1)
    >>> samples[:, 0].tolist()
    [2.0, 1.0, 2.0]
    >>> samples.sum().backward()
    >>> rows.grad[:, 0].tolist()
    [1.0, 2.0]
    """,
)


moe_dispatch_grad_data = moe_combine


@function(switchyard.moe_dispatch_grad_gate)
def moe_dispatch_grad_gate(given: Given, out: Any) -> Tensor:
    """Compute the gradient of gates: :func:`switchyard.moe_dispatch_grad_gate`. It has no gradient itself.

    >>> import torch, switchyard.torch
    >>> indices, locations = torch.tensor([[0, 0, 0], [1, 0, -1]], dtype=torch.int32)
    >>> rows, grad = torch.tensor([[1.], [2], [3]]), torch.tensor([[5.], [7]])
    >>> switchyard.torch.moe_dispatch_grad_gate(indices, locations, rows, grad, num_experts=1, capacity=2)
    tensor([ 7., 10.,  0.])
    """
    return gate_gradient(given, out)


moe_locations = derive(
    switchyard.moe_locations,
    switchyard.MoeLocations[Tensor],
    """Give every choice its slot inside the expert it names: :func:`switchyard.moe_locations`.

    >>> import torch, switchyard.torch
    >>> switchyard.torch.moe_locations(torch.tensor([0, 1, 0], dtype=torch.int32), num_experts=2).locations
    tensor([0, 0, 1], dtype=torch.int32)
    """,
)


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
_gradients.reject_second("moe_dispatch_grad_gate")
