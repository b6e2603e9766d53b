"""Copies of tokens to the rows of their experts, and the way back: by routing maps and by expert numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

import switchyard.torch as ours

from ._rejections import only, own_words

# ---- By routing maps ----


IDS = {"ids": "indices", "permuted_tokens": "grad_permuted_tokens"}  # names of arguments of operators here


@own_words({})
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


@own_words(
    {
        "grad_permuted_tokens": "permuted_token_out_grad",
        "grad_permuted_probs": "probs_grad",
        "num_experts": "experts_num",
        "num_tokens": "tokens_num",
    }
)
def npu_moe_token_permute_with_routing_map_grad(
    permuted_token_out_grad: Tensor,
    probs_grad: Tensor | None,
    sorted_indices: Tensor,
    routing_map: Tensor | None,
    experts_num: int,
    tokens_num: int,
    drop_and_pad: bool,
) -> tuple[Tensor, Tensor | None]:
    """The gradients of tokens and probs: see moe_permute_grad."""
    made = ours.moe_permute_grad(
        permuted_token_out_grad,
        sorted_indices,
        probs_grad,
        routing_map,
        num_experts=experts_num,
        num_tokens=tokens_num,
        drop_and_pad=drop_and_pad,
    )
    return made.grad_tokens, made.grad_probs


@own_words({})
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
    if not drop_and_pad:
        routing_map = _live_map(sorted_indices, routing_map, probs)
    return ours.moe_unpermute(
        permuted_tokens, sorted_indices, routing_map, probs, num_tokens=restore_shape[0], drop_and_pad=drop_and_pad
    )


@own_words({})
def _npu_moe_token_unpermute_with_routing_map(
    permuted_tokens: Tensor,
    sorted_indices: Tensor,
    restore_shape: Sequence[int],
    *,
    probs: Tensor | None = None,
    routing_map: Tensor | None = None,
    drop_and_pad: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The same, and what a backward pass takes: out_index, permuted_token_id and the weights in the order of the rows.

    Of the four results the tokens have a gradient.
    """
    tokens = npu_moe_token_unpermute_with_routing_map(
        permuted_tokens,
        sorted_indices,
        restore_shape,
        probs=probs,
        routing_map=routing_map,
        drop_and_pad=drop_and_pad,
    )
    place = torch.arange(sorted_indices.shape[0], dtype=torch.int32)
    if drop_and_pad:
        token_id, out_index = sorted_indices.sort(stable=True)
        weights = None
        if probs is not None:
            per_expert = max(place.shape[0] // max(probs.shape[1], 1), 1)
            weights = probs.detach()[sorted_indices.long(), (place // per_expert).long()]
        return tokens, out_index.to(torch.int32), token_id, weights
    choices = place.shape[0] // tokens.shape[0] if tokens.shape[0] else 0
    token_id = place // choices if choices else place
    live_map = _live_map(sorted_indices, routing_map, probs)
    if probs is None or live_map is None or not choices:
        return tokens, sorted_indices.clone(), token_id, None if probs is None else probs.new_zeros(place.shape[0])
    listed = ours.moe_ids_from_map(live_map, probs.detach(), k=choices).weights
    assert listed is not None
    live = sorted_indices.reshape(-1, choices) >= 0
    taken = listed.gather(1, (live.cumsum(1) - 1).clamp(min=0))
    return tokens, sorted_indices.clone(), token_id, torch.where(live, taken, 0).flatten()


@own_words({"grad_tokens": "unpermuted_tokens_grad", "sorted_indices": "out_index"})
def npu_moe_token_unpermute_with_routing_map_grad(
    unpermuted_tokens_grad: Tensor,
    out_index: Tensor,
    permuted_token_id: Tensor,
    routing_map: Tensor | None,
    permuted_tokens: Tensor | None,
    probs: Tensor | None,
    drop_and_pad: bool,
    restore_shape: Sequence[int],
) -> tuple[Tensor, Tensor | None]:
    """The gradients of permuted_tokens and probs: see moe_unpermute_grad. Packed, out_index is sorted_indices."""
    if drop_and_pad:  # the forward call sorted the indices
        indices = torch.full_like(out_index, -2).index_copy(0, out_index.long(), permuted_token_id)
    else:
        indices, routing_map = out_index, _live_map(out_index, routing_map, probs)
    made = ours.moe_unpermute_grad(
        unpermuted_tokens_grad, indices, permuted_tokens, routing_map, probs, drop_and_pad=drop_and_pad
    )
    return made.grad_permuted_tokens, made.grad_probs


def _live_map(sorted_indices: Tensor, routing_map: Tensor | None, probs: Tensor | None) -> Tensor | None:
    """The map without experts of weight 0 whose slot holds no row, where a token has more experts than rows.

    The vendor's packed unpermute has a slot for each expert of the map, and such an expert adds nothing.
    """
    if probs is None or routing_map is None or not routing_map.shape[0] or not sorted_indices.shape[0]:
        return routing_map
    if sorted_indices.shape[0] % routing_map.shape[0] or probs.shape != routing_map.shape:
        return routing_map  # rejected by the operator
    live = sorted_indices.reshape(routing_map.shape[0], -1) >= 0
    routed = routing_map != 0
    slot = routed.cumsum(1) - 1
    empty = ~live.gather(1, slot.clamp(0, live.shape[1] - 1)) & (slot < live.shape[1])
    surplus = routed.sum(1, keepdim=True) > live.sum(1, keepdim=True)
    return routed & ~(empty & surplus & (probs == 0))


# ---- By expert numbers ----


@own_words(IDS)
def npu_moe_token_permute(
    tokens: Tensor, indices: Tensor, num_out_tokens: int | None = None, padded_mode: bool = False
) -> tuple[Tensor, Tensor]:
    """Token rows in the order of their experts, and the row of each slot: see moe_permute_ids."""
    only("npu_moe_token_permute", "padded_mode", padded_mode, False)
    ids = indices.unsqueeze(1) if indices.dim() == 1 else indices
    made = ours.moe_permute_ids(tokens, ids, num_out_tokens=num_out_tokens or 0)
    return made.permuted_tokens, made.sorted_indices


@own_words(IDS)
def npu_moe_token_permute_grad(
    tokens: Tensor,
    grad_permuted_tokens: Tensor,
    indices: Tensor,
    sorted_indices: Tensor,
    padded_mode: bool = False,
) -> Tensor:
    """The gradient of tokens: the sum of their rows."""
    only("npu_moe_token_permute_grad", "padded_mode", padded_mode, False)
    return ours.moe_unpermute_ids(grad_permuted_tokens, sorted_indices, num_tokens=tokens.shape[0])


@own_words({})
def npu_moe_token_unpermute(
    permuted_tokens: Tensor,
    sorted_indices: Tensor,
    probs: Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: Sequence[int] | None = None,
) -> Tensor:
    """Rows returned to their tokens, weighted and added up; one row per token without probs: see moe_unpermute_ids."""
    only("npu_moe_token_unpermute", "padded_mode", padded_mode, False)
    return ours.moe_unpermute_ids(permuted_tokens, sorted_indices, probs)


@own_words({})
def npu_moe_token_unpermute_grad(
    permuted_tokens: Tensor,
    grad_unpermuted_tokens: Tensor,
    sorted_indices: Tensor,
    probs: Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The gradients of permuted_tokens and probs."""
    with torch.enable_grad():
        rows = permuted_tokens.detach().requires_grad_()
        weights = None if probs is None else probs.detach().requires_grad_()
        tokens = npu_moe_token_unpermute(rows, sorted_indices, weights, padded_mode)
        inputs = (rows,) if weights is None else (rows, weights)
        made = torch.autograd.grad(tokens, inputs, grad_unpermuted_tokens)
    return made[0], made[1] if probs is not None else None
