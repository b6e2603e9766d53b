"""Permutation by expert ids, in any order, all rows or a window of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

import switchyard

from . import _gradients, slots
from ._library import derive, op

moe_permute_ids = derive(
    switchyard.moe_permute_ids,
    switchyard.MoePermuteIds[Tensor],
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
    """,
)


moe_unpermute_ids = derive(
    switchyard.moe_unpermute_ids,
    Tensor,
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
    """,
)


def _begin_permute(ctx: Any, given: Any, made: Any) -> None:
    _gradients.reject_type("moe_permute_ids", "tokens", given.tokens)
    _gradients.end_at_codes(ctx, "moe_permute_ids", "tokens", given.tokens, given.row_format, made.permuted_scales)


@_gradients.rule("moe_permute_ids", "sorted_indices", _begin_permute)
def _permute_back(call: Any, grads: Any) -> dict[str, Any]:
    grad_rows, row_probs, begin = grads.permuted_tokens, grads.permuted_probs, call.row_begin
    made: dict[str, Any] = {}
    if "tokens" in call.needs and grad_rows is not None:
        if call.shape["ids"][1] == 0:  # tokens without slots: their number does not follow from empty indices
            made["tokens"] = grad_rows.new_zeros(call.shape["tokens"])
        else:
            count = call.shape["tokens"][0]
            made["tokens"] = moe_unpermute_ids(grad_rows, call.sorted_indices, num_tokens=count, row_begin=begin)
    if "probs" in call.needs and row_probs is not None:  # one slot per "token": each gets what its row got
        alone = moe_unpermute_ids(row_probs.unsqueeze(1), call.sorted_indices, row_begin=begin)
        made["probs"] = alone.reshape(call.shape["ids"])
    return made


def _begin_unpermute(ctx: Any, given: Any, made: Any) -> Iterable[str]:
    return ("permuted_tokens", "bias") if given.probs is None else ()


@_gradients.rule("moe_unpermute_ids", "sorted_indices permuted_tokens probs bias bias_ids", _begin_unpermute)
def _unpermute_back(call: Any, grads: Any) -> dict[str, Any]:
    """A row is slot 0 to M-1 of one expert: moe_combine with as many choices as a token has slots. So is a bias."""
    grad, probs, bias_ids, rows = grads.tokens, call.probs, call.bias_ids, call.shape["permuted_tokens"][0]
    count = grad.shape[0]
    of_no_token = 0 if probs is None else probs.shape[1]
    choices = call.sorted_indices.shape[0] // count if count != 0 else of_no_token
    by_choice = call.sorted_indices.reshape(choices, count)
    if not call.by_choice:
        by_choice = call.sorted_indices.reshape(count, choices).t()
    locations = (by_choice - call.row_begin).contiguous()
    indices, biases, gates = torch.zeros_like(locations), None, None
    if bias_ids is not None:  # not of rows outside the window
        inside = (by_choice == -1) | ((locations >= 0) & (locations < rows))
        biases = torch.where(inside, bias_ids.t(), -1)
        locations = torch.where(by_choice == -1, -1, locations)
    if probs is not None:
        gates = (probs if probs.dtype == grad.dtype else probs.to(torch.float32)).t().contiguous()

    def gradient(places: Tensor, rows: int) -> Tensor:
        live = places if probs is None else torch.where(probs.t() == 0, -1, places)
        made: Tensor = op("moe_combine_grad")(grad, gates, indices, live.contiguous(), 1, rows)
        return made

    made: dict[str, Any] = {"residual": grad, "shared": grad}
    if "permuted_tokens" in call.needs:
        made["permuted_tokens"] = gradient(locations, rows)
    if biases is not None and "bias" in call.needs:
        made["bias"] = gradient(biases, call.shape["bias"][0])
    if "probs" in call.needs:
        dtype = probs.dtype if probs.dtype == grad.dtype else torch.float32
        dots = slots.gate_gradient((indices, locations, grad, call.permuted_tokens, 1, rows, dtype))
        if biases is not None:
            of_bias = (indices, biases.contiguous(), grad, call.bias, 1, call.shape["bias"][0], dtype)
            dots = dots + slots.gate_gradient(of_bias)
        made["probs"] = dots.t().to(probs.dtype)
    return made
