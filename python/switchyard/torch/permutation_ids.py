"""Permutation by expert ids, in any order, all rows or a window of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..ops import moe_permute_ids as _moe_permute_ids
from ..ops import moe_unpermute_ids as _moe_unpermute_ids
from ..ops.moe_permute_ids import MoePermuteIds
from . import _gradients, slots
from ._library import Given, define, function, op

_permute = define(_moe_permute_ids.operator, MoePermuteIds[Tensor])
_unpermute = define(_moe_unpermute_ids.operator, Tensor)


@function(_moe_permute_ids.moe_permute_ids)
def moe_permute_ids(given: Given, out: Any) -> MoePermuteIds[Tensor]:
    """Copy each token row to the experts it names: :func:`switchyard.moe_permute_ids`.

    Gradients go to ``tokens``, the sum over the rows that were kept, and to ``probs``.

    >>> import torch, switchyard.torch
    >>> tokens = torch.tensor([[1.], [2], [3]], requires_grad=True)
    >>> ids = torch.tensor([[2, 0], [0, 1], [2, 1]])
    >>> rows = switchyard.torch.moe_permute_ids(tokens, ids, num_out_tokens=4)
    >>> rows.permuted_tokens[:, 0].tolist()
    [1.0, 2.0, 2.0, 3.0]
    >>> rows.permuted_tokens.sum().backward()
    >>> tokens.grad[:, 0].tolist()
    [1.0, 2.0, 1.0]
    """
    return _permute(given, out)


@function(_moe_unpermute_ids.moe_unpermute_ids)
def moe_unpermute_ids(given: Given, out: Any) -> Tensor:
    """Return rows permuted by ids to their tokens: :func:`switchyard.moe_unpermute_ids`.

    Gradients go to ``permuted_tokens``, ``probs``, ``bias``, ``residual`` and ``shared``. A weight of exactly 0 gives
    its row and its bias no gradient, because they are not read.

    >>> import torch, switchyard.torch
    >>> rows = torch.tensor([[1.], [2], [3], [4]], requires_grad=True)
    >>> indices = torch.tensor([3, 0, 1, 2], dtype=torch.int32)
    >>> tokens = switchyard.torch.moe_unpermute_ids(rows, indices, torch.tensor([[0.5, 1], [2, 0]]))
    >>> tokens[:, 0].tolist()
    [3.0, 4.0]
    >>> tokens.sum().backward()
    >>> rows.grad[:, 0].tolist()
    [1.0, 2.0, 0.0, 0.5]
    """
    return _unpermute(given, out)


def _keep_permute(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    tokens, ids, _, _, _, _, ctx.row_begin, _, _, row_format = inputs
    _gradients.reject_type("moe_permute_ids", "tokens", tokens)
    _gradients.end_at_codes(ctx, "moe_permute_ids", "tokens", tokens, row_format, output[5])
    ctx.save_for_backward(output[1])
    ctx.shape, ctx.slots = tokens.shape, ids.shape


def _permute_backward(ctx: Any, grad_rows: Tensor | None, _: Any, grad_row_probs: Tensor | None, *__: Any) -> Any:
    (sorted_indices,) = ctx.saved_tensors
    grad_tokens = grad_probs = None
    if ctx.needs_input_grad[0] and grad_rows is not None:
        count = ctx.shape[0]
        if ctx.slots[1] == 0:  # tokens without slots: their number does not follow from empty indices
            grad_tokens = grad_rows.new_zeros(ctx.shape)
        else:
            grad_tokens = moe_unpermute_ids(grad_rows, sorted_indices, num_tokens=count, row_begin=ctx.row_begin)
    if ctx.needs_input_grad[2] and grad_row_probs is not None:  # one slot per "token": each gets what its row got
        column = grad_row_probs.unsqueeze(1)
        alone = moe_unpermute_ids(column, sorted_indices, row_begin=ctx.row_begin)
        grad_probs = alone.reshape(ctx.slots)
    return grad_tokens, None, grad_probs, None, None, None, None, None, None, None


def _keep_unpermute(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    permuted_tokens, sorted_indices, probs, bias, bias_ids, _, _, _, ctx.row_begin, _, ctx.by_choice = inputs
    weighted = probs is not None
    kept = (sorted_indices, permuted_tokens if weighted else None, probs, bias if weighted else None, bias_ids)
    ctx.save_for_backward(*kept)
    ctx.rows, ctx.biases = permuted_tokens.shape[0], None if bias is None else bias.shape[0]


def _unpermute_backward(ctx: Any, grad: Tensor | None) -> Any:
    """A row is slot 0 to M-1 of one expert: moe_combine with as many choices as a token has slots. So is a bias."""
    sorted_indices, permuted_tokens, probs, bias, bias_ids = ctx.saved_tensors
    if grad is None:
        return (None,) * 11
    count = grad.shape[0]
    of_no_token = 0 if probs is None else probs.shape[1]
    choices = sorted_indices.shape[0] // count if count != 0 else of_no_token
    by_choice = sorted_indices.reshape(choices, count)
    if not ctx.by_choice:
        by_choice = sorted_indices.reshape(count, choices).t()
    locations = (by_choice - ctx.row_begin).contiguous()
    indices = torch.zeros_like(locations)
    biases = None
    if bias_ids is not None:  # not of rows outside the window
        inside = (by_choice == -1) | ((locations >= 0) & (locations < ctx.rows))
        biases = torch.where(inside, bias_ids.t(), -1)
        locations = torch.where(by_choice == -1, -1, locations)
    gates = None
    if probs is not None:
        gates = _gradients.factors(probs, grad)
        gates = None if gates is None else gates.t().contiguous()

    def gradient(places: Tensor, rows: int) -> Tensor:
        live = places if probs is None else torch.where(probs.t() == 0, -1, places)
        made: Tensor = op("moe_combine_grad")(grad, gates, indices, live.contiguous(), 1, rows)
        return made

    grad_rows = gradient(locations, ctx.rows) if ctx.needs_input_grad[0] else None
    grad_bias = gradient(biases, ctx.biases) if biases is not None and ctx.needs_input_grad[3] else None
    grad_probs = None
    if probs is not None and ctx.needs_input_grad[2]:
        dtype = probs.dtype if probs.dtype == grad.dtype else torch.float32
        dots = slots.gate_gradient((indices, locations, grad, permuted_tokens, 1, ctx.rows, dtype))
        if biases is not None:
            dots = dots + slots.gate_gradient((indices, biases.contiguous(), grad, bias, 1, ctx.biases, dtype))
        grad_probs = dots.t().to(probs.dtype)
    added = tuple(grad if ctx.needs_input_grad[i] else None for i in (5, 6))
    return grad_rows, None, grad_probs, grad_bias, None, *added, None, None, None, None


_gradients.register("moe_permute_ids", _keep_permute, _permute_backward)
_gradients.register("moe_unpermute_ids", _keep_unpermute, _unpermute_backward)
