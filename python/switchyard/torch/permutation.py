"""Copies of tokens to the rows of their experts, and the way back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..ops import moe_permute as _moe_permute
from ..ops import moe_permute_grad as _moe_permute_grad
from ..ops import moe_unpermute as _moe_unpermute
from ..ops import moe_unpermute_grad as _moe_unpermute_grad
from ..ops.moe_permute import MoePermute
from ..ops.moe_permute_grad import MoePermuteGrad
from ..ops.moe_unpermute_grad import MoeUnpermuteGrad
from . import _gradients
from ._library import Given, define, function, op

_permute = define(_moe_permute.operator, MoePermute[Tensor])
_unpermute = define(_moe_unpermute.operator, Tensor)
_permute_grad = define(_moe_permute_grad.operator, MoePermuteGrad[Tensor])
_unpermute_grad = define(_moe_unpermute_grad.operator, MoeUnpermuteGrad[Tensor])


@function(_moe_permute.moe_permute)
def moe_permute(given: Given, out: Any) -> MoePermute[Tensor]:
    """Copy each token row to one row per expert it is routed to: :func:`switchyard.moe_permute`.

    Gradients go to ``tokens``, the sum over their rows, and to ``probs``.

    >>> import torch, switchyard.torch
    >>> tokens = torch.tensor([[10., 11], [20, 21], [30, 31], [40, 41]], requires_grad=True)
    >>> routing_map = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]], dtype=torch.bool)
    >>> rows = switchyard.torch.moe_permute(tokens, routing_map, num_out_tokens=8)
    >>> rows.permuted_tokens[:, 0].tolist()
    [10.0, 30.0, 40.0, 20.0, 30.0, 10.0, 20.0, 40.0]
    >>> rows.permuted_tokens.sum().backward()
    >>> tokens.grad.tolist()
    [[2.0, 2.0], [2.0, 2.0], [2.0, 2.0], [2.0, 2.0]]
    """
    return _permute(given, out)


@function(_moe_unpermute.moe_unpermute)
def moe_unpermute(given: Given, out: Any) -> Tensor:
    """Return permuted rows to their tokens, weighted and added up: :func:`switchyard.moe_unpermute`.

    Gradients go to ``permuted_tokens`` and ``probs``. A weight of exactly 0 gives its row no gradient, because the
    row is not read. ``sorted_indices`` are those of moe_permute: if others name a row twice, only one of its gradients
    is kept.

    >>> import torch, switchyard.torch
    >>> routing_map = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]], dtype=torch.bool)
    >>> rows = switchyard.torch.moe_permute(torch.eye(4), routing_map, num_out_tokens=8)
    >>> probs = (routing_map / 2).requires_grad_()
    >>> tokens = switchyard.torch.moe_unpermute(rows.permuted_tokens, rows.sorted_indices, routing_map, probs)
    >>> torch.equal(tokens, torch.eye(4))
    True
    >>> tokens.sum().backward()
    >>> torch.equal(probs.grad, routing_map.float())
    True
    """
    return _unpermute(given, out)


@function(_moe_permute_grad.moe_permute_grad)
def moe_permute_grad(given: Given, out: Any) -> MoePermuteGrad[Tensor]:
    """Compute the gradients of moe_permute: :func:`switchyard.moe_permute_grad`. They have no gradient themselves.

    >>> import torch, switchyard.torch
    >>> indices = torch.tensor([1, 0], dtype=torch.int32)
    >>> switchyard.torch.moe_permute_grad(torch.eye(2), indices, num_experts=2, num_tokens=2).grad_tokens
    tensor([[0., 1.],
            [1., 0.]])
    """
    return _permute_grad(given, out)


@function(_moe_unpermute_grad.moe_unpermute_grad)
def moe_unpermute_grad(given: Given, out: Any) -> MoeUnpermuteGrad[Tensor]:
    """Compute the gradients of moe_unpermute: :func:`switchyard.moe_unpermute_grad`. They have no gradient themselves.

    >>> import torch, switchyard.torch
    >>> indices = torch.tensor([1, 0], dtype=torch.int32)
    >>> switchyard.torch.moe_unpermute_grad(torch.eye(2), indices).grad_permuted_tokens
    tensor([[0., 1.],
            [1., 0.]])
    """
    return _unpermute_grad(given, out)


def _keep_permute(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    tokens, routing_map, _, _, ctx.drop_and_pad, ctx.zero_pad, row_format = inputs
    _gradients.reject_type("moe_permute", "tokens", tokens)
    _gradients.end_at_codes(ctx, "moe_permute", "tokens", tokens, row_format, output[5])
    ctx.save_for_backward(output[1], routing_map)
    ctx.shape, ctx.dtype = tokens.shape, tokens.dtype


def _permute_backward(ctx: Any, grad_rows: Tensor | None, _: Any, grad_row_probs: Tensor | None, *__: Any) -> Any:
    sorted_indices, routing_map = ctx.saved_tensors
    (count, width), experts = ctx.shape, routing_map.shape[1]
    wants_tokens = ctx.needs_input_grad[0] and grad_rows is not None
    wants_probs = ctx.needs_input_grad[2] and grad_row_probs is not None
    if not (wants_tokens or wants_probs):
        return (None,) * 7
    if count == 0 or experts == 0:  # an empty map, which moe_permute_grad rejects
        made = (
            routing_map.new_zeros((count, width), dtype=ctx.dtype),
            routing_map.new_zeros(routing_map.shape, dtype=ctx.dtype),
        )
    else:
        rows = grad_rows if wants_tokens else sorted_indices.new_zeros((sorted_indices.shape[0], 0), dtype=ctx.dtype)
        made = op("moe_permute_grad")(
            rows,
            sorted_indices,
            grad_row_probs if wants_probs else None,
            routing_map if wants_probs else None,
            experts,
            count,
            ctx.drop_and_pad,
            ctx.zero_pad,
        )
    return made[0] if wants_tokens else None, None, made[1] if wants_probs else None, None, None, None, None


def _keep_unpermute(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    permuted_tokens, sorted_indices, routing_map, probs, _, _, ctx.drop_and_pad, ctx.zero_pad, row_format = inputs
    weighted = probs is not None
    if weighted and row_format is not None:
        _gradients.reject_codes("moe_unpermute", "probs", probs)
    ctx.save_for_backward(sorted_indices, permuted_tokens if weighted else None, routing_map, probs)


def _unpermute_backward(ctx: Any, grad: Tensor | None) -> Any:
    sorted_indices, permuted_tokens, routing_map, probs = ctx.saved_tensors
    if grad is None:
        return (None,) * 9
    if probs is None:
        routing_map = None  # only weights need it
    elif routing_map is None:  # capacity mode: the row gives the expert, the map is not used
        routing_map = torch.ones_like(probs, dtype=torch.bool)
    made = op("moe_unpermute_grad")(
        grad, sorted_indices, permuted_tokens, routing_map, probs, ctx.drop_and_pad, ctx.zero_pad
    )
    return made[0], None, None, None if probs is None else made[1], *(None,) * 5


_gradients.register("moe_permute", _keep_permute, _permute_backward)
_gradients.register("moe_unpermute", _keep_unpermute, _unpermute_backward)
_gradients.reject_second("moe_permute_grad")
_gradients.reject_second("moe_unpermute_grad")
