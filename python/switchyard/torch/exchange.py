"""Operators on the rows of a rank before and after an exchange."""

from __future__ import annotations

from torch import Tensor

import switchyard

from . import _gradients
from ._library import derive

moe_reorder_chunks = derive(
    switchyard.moe_reorder_chunks,
    switchyard.MoeReorderChunks[Tensor],
    """Group rows by expert after an exchange, or undo it: :func:`switchyard.moe_reorder_chunks`.

    Gradients go to ``rows`` and ``extra``, by the inverse operation.

    >>> import torch, switchyard.torch
    >>> rows, counts = torch.arange(4.0), torch.tensor([[1, 1], [1, 1]])
    >>> switchyard.torch.moe_reorder_chunks(rows, counts).reordered_rows
    tensor([0., 2., 1., 3.])
    """,
)


local_reduce = derive(
    switchyard.local_reduce,
    Tensor,
    """Add up each token's rows of the experts of one device: :func:`switchyard.local_reduce`.

    It has no gradient: a backward pass that reaches it is rejected.

    >>> import torch, switchyard.torch
    >>> rows = torch.tensor([[[1.], [2]], [[10], [20]]])  # two experts, two tokens
    >>> choices, hosts = torch.tensor([[0, 1], [1, -1]]), torch.ones(2, 1, dtype=torch.uint16)
    >>> switchyard.torch.local_reduce(rows, choices, hosts)[:, 0].tolist()
    [11.0, 20.0]
    """,
)


_gradients.take_rule("moe_reorder_chunks")
_gradients.reject("local_reduce", "want input.detach(), or moe_unpermute of the rows in expert order")
