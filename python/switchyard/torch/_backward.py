"""What the rules of gradients need of PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._library import calls, op

where, float32 = torch.where, torch.float32


def run(name: str, *values: Any) -> Any:
    """The results of an operator."""
    return calls[name](values)


def row_gradient(*values: Any) -> Any:
    """The gradient of moe_combine's rows."""
    return op("moe_combine_grad")(*values)


def zeros(shape: tuple[Any, ...], like: Tensor) -> Tensor:
    return like.new_zeros(shape)


def full_map(probs: Tensor) -> Tensor:
    """A routing map of this shape that is true everywhere."""
    return torch.ones_like(probs, dtype=torch.bool)


def compact(tensor: Tensor) -> Tensor:
    return tensor.contiguous()


def cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype)


def wide(indices: Tensor) -> Tensor:
    """Indices for products with sizes."""
    return indices.long()


def take(tensor: Tensor, ids: Tensor) -> Tensor:
    """The elements of each row."""
    return tensor.gather(1, ids.long())


def is_last(named: Tensor, n: Any) -> Tensor:
    """Which of the numbers below n do not occur again."""
    at = torch.arange(named.shape[0], device=named.device)
    return named.new_full((n,), -1).scatter_reduce(0, named, at, "amax")[named] == at
