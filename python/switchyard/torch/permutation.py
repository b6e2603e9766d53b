"""Copies of tokens to the rows of their experts, and the way back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

import switchyard

from . import _gradients
from ._library import derive

moe_permute = derive(
    switchyard.moe_permute,
    switchyard.MoePermute[Tensor],
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
    """,
)

moe_unpermute = derive(
    switchyard.moe_unpermute,
    Tensor,
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
    """,
)

moe_permute_grad = derive(
    switchyard.moe_permute_grad,
    switchyard.MoePermuteGrad[Tensor],
    """Compute the gradients of moe_permute: :func:`switchyard.moe_permute_grad`. They have no gradient themselves.

    >>> import torch, switchyard.torch
    >>> indices = torch.tensor([1, 0], dtype=torch.int32)
    >>> switchyard.torch.moe_permute_grad(torch.eye(2), indices, num_experts=2, num_tokens=2).grad_tokens
    tensor([[0., 1.],
            [1., 0.]])
    """,
)

moe_unpermute_grad = derive(
    switchyard.moe_unpermute_grad,
    switchyard.MoeUnpermuteGrad[Tensor],
    """Compute the gradients of moe_unpermute: :func:`switchyard.moe_unpermute_grad`. They have no gradient themselves.

    >>> import torch, switchyard.torch
    >>> indices = torch.tensor([1, 0], dtype=torch.int32)
    >>> switchyard.torch.moe_unpermute_grad(torch.eye(2), indices).grad_permuted_tokens
    tensor([[0., 1.],
            [1., 0.]])
    """,
)


def _begin_permute(ctx: Any, given: Any, made: Any) -> None:
    _gradients.reject_type("moe_permute", "tokens", given.tokens)
    _gradients.end_at_codes(ctx, "moe_permute", "tokens", given.tokens, given.row_format, made.permuted_scales)


def _begin_unpermute(ctx: Any, given: Any, made: Any) -> Iterable[str]:
    if given.probs is not None and given.row_format is not None:
        _gradients.reject_codes("moe_unpermute", "probs", given.probs)
    return ("permuted_tokens",) if given.probs is None else ()


_gradients.take_rule("moe_permute", _begin_permute)
_gradients.take_rule("moe_unpermute", _begin_unpermute)
_gradients.reject_second("moe_permute_grad")
_gradients.reject_second("moe_unpermute_grad")
