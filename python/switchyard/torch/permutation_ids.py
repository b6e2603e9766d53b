"""Permutation by expert ids, in any order, all rows or a window of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

import switchyard

from . import _gradients
from ._library import derive

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


def _begin_unpermute(ctx: Any, given: Any, made: Any) -> Iterable[str]:
    return ("permuted_tokens", "bias") if given.probs is None else ()


_gradients.take_rule("moe_permute_ids", _begin_permute)
_gradients.take_rule("moe_unpermute_ids", _begin_unpermute)
