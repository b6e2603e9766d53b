"""torch_npu's names for the operators of this library, over :mod:`switchyard.torch`: on CPU tensors, with autograd.

>>> import torch
>>> from switchyard.compat import torch_npu
>>> tokens = torch.tensor([[10.0], [20.0], [30.0]])
>>> routing_map = torch.tensor([[1, 0], [1, 1], [0, 1]], dtype=torch.bool)
>>> rows, _, slots = torch_npu.npu_moe_token_permute_with_routing_map(tokens, routing_map, num_out_tokens=6)
>>> rows.flatten().tolist(), slots.tolist()
([10.0, 20.0, 20.0, 30.0, 0.0, 0.0], [0, -1, 1, 2, 3, -1])
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

import switchyard.torch as ours
from switchyard.errors import Status, rejection

__all__ = [
    "npu_moe_token_permute_with_routing_map",
    "npu_moe_token_permute_with_routing_map_grad",
    "npu_moe_token_unpermute_with_routing_map",
    "npu_top_k_top_p_sample",
]


def npu_moe_token_permute_with_routing_map(
    tokens: Tensor,
    routing_map: Tensor,
    *,
    probs: Tensor | None = None,
    num_out_tokens: int | None = None,
    drop_and_pad: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Token rows grouped by expert, their weights, and the row of each slot: see moe_permute."""
    rows = tokens.shape[0] if num_out_tokens is None else num_out_tokens
    made = ours.moe_permute(tokens, routing_map, probs, num_out_tokens=rows, drop_and_pad=drop_and_pad)
    return made.permuted_tokens, made.permuted_probs, made.sorted_indices


def npu_moe_token_permute_with_routing_map_grad(
    permuted_tokens_grad: Tensor,
    permuted_probs_grad: Tensor | None,
    sorted_indices: Tensor,
    routing_map: Tensor | None,
    experts_num: int,
    tokens_num: int,
    drop_and_pad: bool,
) -> tuple[Tensor, Tensor | None]:
    """The gradients of tokens and probs: see moe_permute_grad."""
    made = ours.moe_permute_grad(
        permuted_tokens_grad,
        sorted_indices,
        permuted_probs_grad,
        routing_map,
        num_experts=experts_num,
        num_tokens=tokens_num,
        drop_and_pad=drop_and_pad,
    )
    return made.grad_tokens, made.grad_probs


def npu_moe_token_unpermute_with_routing_map(
    permuted_tokens: Tensor,
    sorted_indices: Tensor,
    restore_shape: Sequence[int],
    *,
    probs: Tensor | None = None,
    routing_map: Tensor | None = None,
    drop_and_pad: bool = False,
) -> Tensor:
    """Rows returned to their tokens, weighted and added up: see moe_unpermute."""
    return ours.moe_unpermute(
        permuted_tokens, sorted_indices, routing_map, probs, num_tokens=restore_shape[0], drop_and_pad=drop_and_pad
    )


def npu_top_k_top_p_sample(
    logits: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    q: Tensor | None = None,
    eps: float = 1e-8,
    is_need_logits: bool = False,
    top_k_guess: int = 32,
    min_ps: Tensor | None = None,
    ks_max: int = 1024,
    input_is_logits: bool = True,
    post_sample: str = "qSample",
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """The token of each row, and the logits after all filters (empty unless requested): see sample."""
    if post_sample != "qSample" or generator is not None:
        text = f"npu_top_k_top_p_sample: post_sample is {post_sample!r}, generator is {generator}"
        raise rejection(
            Status.UNSUPPORTED, f"{text}, want qSample and None: noise is drawn here from a seed, see sample"
        )
    made = ours.sample(
        logits,
        top_k,
        top_p,
        min_ps,
        q=q,
        noise="none" if q is None else "q",
        eps=eps,
        k_limit=min((ks_max + 7) // 8 * 8, 1024),
        top_k_guess=top_k_guess,
        probs_in=not input_is_logits,
        empty_token=0,
        masked_logits=is_need_logits,
    )
    return made.token, made.masked_logits if made.masked_logits is not None else logits.new_empty(
        0, dtype=torch.float32
    )
