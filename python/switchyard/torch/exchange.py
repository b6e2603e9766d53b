"""Operators on the rows of a rank before and after an exchange."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..ops import local_reduce as _local_reduce
from ..ops import moe_reorder_chunks as _moe_reorder_chunks
from ..ops.moe_reorder_chunks import MoeReorderChunks
from . import _gradients
from ._library import Given, define, function, op

_reorder_chunks = define(_moe_reorder_chunks.operator, MoeReorderChunks[Tensor])
_reduce = define(_local_reduce.operator, Tensor)


@function(_moe_reorder_chunks.moe_reorder_chunks)
def moe_reorder_chunks(given: Given, out: Any) -> MoeReorderChunks[Tensor]:
    """Group rows by expert after an exchange, or undo it: :func:`switchyard.moe_reorder_chunks`.

    Gradients go to ``rows`` and ``extra``, by the inverse operation.

    >>> import torch, switchyard.torch
    >>> rows, counts = torch.arange(4.0), torch.tensor([[1, 1], [1, 1]])
    >>> switchyard.torch.moe_reorder_chunks(rows, counts).reordered_rows
    tensor([0., 2., 1., 3.])
    """
    return _reorder_chunks(given, out)


@function(_local_reduce.local_reduce)
def local_reduce(given: Given, out: Any) -> Tensor:
    """Add up each token's rows of the experts of one device: :func:`switchyard.local_reduce`.

    It has no gradient: a backward pass that reaches it is rejected.

    >>> import torch, switchyard.torch
    >>> rows = torch.tensor([[[1.], [2]], [[10], [20]]])  # two experts, two tokens
    >>> choices, hosts = torch.tensor([[0, 1], [1, -1]]), torch.ones(2, 1, dtype=torch.uint16)
    >>> switchyard.torch.local_reduce(rows, choices, hosts)[:, 0].tolist()
    [11.0, 20.0]
    """
    return _reduce(given, out)


def _keep_reorder(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, counts, _, ctx.inverse = inputs
    ctx.save_for_backward(counts)


def _reorder_backward(ctx: Any, grad_rows: Tensor | None, grad_extra: Tensor | None, _: Any) -> Any:
    (counts,) = ctx.saved_tensors
    grads = [grad if ctx.needs_input_grad[at] else None for at, grad in ((0, grad_rows), (2, grad_extra))]
    there = [grad for grad in grads if grad is not None]
    if not there:
        return None, None, None, None
    second = there[1] if len(there) > 1 else None  # a single gradient is passed as `rows`
    made = op("moe_reorder_chunks")(there[0], counts, second, not ctx.inverse)
    back = [None if grads[0] is None else made[0], None if grads[1] is None else made[len(there) - 1]]
    return back[0], None, back[1], None


_gradients.register("moe_reorder_chunks", _keep_reorder, _reorder_backward)
_gradients.reject("local_reduce", "want input.detach(), or moe_unpermute of the rows in expert order")
