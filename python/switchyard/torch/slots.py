"""Tokens in expert slots of fixed capacity."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._sentences import bad
from ..errors import Status
from ..ops import moe_capacity as _moe_capacity
from ..ops import moe_combine as _moe_combine
from ..ops import moe_dispatch as _moe_dispatch
from ..ops import moe_dispatch_grad_gate as _moe_dispatch_grad_gate
from ..ops import moe_locations as _moe_locations
from ..ops.moe_dispatch import MoeDispatch
from ..ops.moe_locations import MoeLocations
from . import _gradients, _library
from ._library import Given, define, function, op, overloaded

_dispatch = define(_moe_dispatch.operator, MoeDispatch[Tensor])
_combine = define(_moe_combine.operator, Tensor)
gate_gradient = define(_moe_dispatch_grad_gate.operator, Tensor)
_locations = define(_moe_locations.operator, MoeLocations[Tensor])
_capacity = define(_moe_capacity.operator, Tensor, writes=False)


@overloaded(_moe_dispatch.moe_dispatch)
def moe_dispatch(given: Given, out: Any) -> Any:
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
    if out is not None and out is given[3]:  # a compiled graph would read a copy
        text = "is input itself, want another tensor, or switchyard.moe_dispatch"
        raise bad(Status.ALIAS, "moe_dispatch", "out", text)
    if given[-1] is not None:
        return _dispatch(given, out)
    return _dispatch(given, None if out is None else (out, None))[0]


@function(_moe_combine.moe_combine)
def moe_combine(given: Given, out: Any) -> Tensor:
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
    """
    return _combine(given, out)


moe_dispatch_grad_data = moe_combine


@function(_moe_dispatch_grad_gate.moe_dispatch_grad_gate)
def moe_dispatch_grad_gate(given: Given, out: Any) -> Tensor:
    """Compute the gradient of gates: :func:`switchyard.moe_dispatch_grad_gate`. It has no gradient itself.

    >>> import torch, switchyard.torch
    >>> indices, locations = torch.tensor([[0, 0, 0], [1, 0, -1]], dtype=torch.int32)
    >>> rows, grad = torch.tensor([[1.], [2], [3]]), torch.tensor([[5.], [7]])
    >>> switchyard.torch.moe_dispatch_grad_gate(indices, locations, rows, grad, num_experts=1, capacity=2)
    tensor([ 7., 10.,  0.])
    """
    return gate_gradient(given, out)


@function(_moe_locations.moe_locations)
def moe_locations(given: Given, out: Any) -> MoeLocations[Tensor]:
    """Give every choice its slot inside the expert it names: :func:`switchyard.moe_locations`.

    >>> import torch, switchyard.torch
    >>> switchyard.torch.moe_locations(torch.tensor([0, 1, 0], dtype=torch.int32), num_experts=2).locations
    tensor([0, 0, 1], dtype=torch.int32)
    """
    return _locations(given, out)


@function(_moe_capacity.moe_capacity)
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
    valid = (indices >= 0) & (indices < num_experts) & (locations >= 0) & (locations < capacity)
    named = torch.where(valid, indices.long() * capacity + locations, slots).reshape(-1)
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
    _library.run(_moe_combine.operator, given, (made,))
    return made


def _fake_row_gradient(
    grad: Tensor, gates: Tensor | None, indices: Tensor, locations: Tensor, num_experts: int, capacity: int
) -> Tensor:
    _library.reject_device("moe_combine_grad", (grad, gates, indices, locations))
    return grad.new_empty((num_experts * capacity, grad.shape[1]))


def _last_on_slot(indices: Tensor, locations: Tensor, num_experts: int, capacity: int) -> Tensor:
    """The locations, with -1 for a sample whose slot a later one overwrote."""
    slots = num_experts * capacity
    valid = (indices >= 0) & (indices < num_experts) & (locations >= 0) & (locations < capacity)
    named = torch.where(valid, indices.long() * capacity + locations, slots)
    sample = torch.arange(named.shape[0], device=named.device)
    last = named.new_full((slots + 1,), -1).scatter_reduce(0, named, sample, "amax")
    return torch.where(last[named] == sample, locations, -1)


def _keep_dispatch(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    gates, indices, locations, rows, ctx.num_experts, ctx.capacity, _, ctx.unique_slots, row_format = inputs
    for field, tensor in (("input", rows), ("gates", rows if gates is None else gates)):
        _gradients.end_at_codes(ctx, "moe_dispatch", field, tensor, row_format, output[1])
    needed = gates is not None and gates.requires_grad
    ctx.save_for_backward(gates, indices, locations, rows if needed else None)


def _dispatch_backward(ctx: Any, grad: Tensor | None, _: Any) -> Any:
    gates, indices, locations, rows = ctx.saved_tensors
    if grad is None:
        return (None,) * 9
    sizes = (ctx.num_experts, ctx.capacity)
    grad_gates = grad_rows = None
    if not ctx.unique_slots:
        locations = _last_on_slot(indices, locations, *sizes)
    if ctx.needs_input_grad[0]:
        grad_gates = gate_gradient((indices, locations, rows, grad, *sizes, gates.dtype))
    if ctx.needs_input_grad[3]:
        grad_rows = op("moe_combine")(gates, indices, locations, grad, *sizes)
    return grad_gates, None, None, grad_rows, None, None, None, None, None


def _keep_combine(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    gates, indices, locations, expert_out, ctx.num_experts, ctx.capacity = inputs
    needed = gates is not None and gates.requires_grad
    ctx.save_for_backward(gates, indices, locations, expert_out if needed else None)


def _combine_backward(ctx: Any, grad: Tensor | None) -> Any:
    gates, indices, locations, expert_out = ctx.saved_tensors
    if grad is None:
        return (None,) * 6
    sizes = (ctx.num_experts, ctx.capacity)
    grad_gates = grad_rows = None
    if ctx.needs_input_grad[0]:
        grad_gates = gate_gradient((indices, locations, grad, expert_out, *sizes, gates.dtype))
    if ctx.needs_input_grad[3]:
        grad_rows = op("moe_combine_grad")(grad, gates, indices, locations, *sizes)
    return grad_gates, None, None, grad_rows, None, None


_library.register(
    "moe_combine_grad",
    "(Tensor grad, Tensor? gates, Tensor indices, Tensor locations, SymInt num_experts, SymInt capacity) -> Tensor",
    _row_gradient,
    _fake_row_gradient,
)
_gradients.register("moe_dispatch", _keep_dispatch, _dispatch_backward)
_gradients.register("moe_combine", _keep_combine, _combine_backward)
_gradients.reject_second("moe_combine_grad", "the gradient of moe_combine or moe_unpermute_ids")
_gradients.reject_second("moe_dispatch_grad_gate")
