"""The choice of experts for each token, and its forms as maps and lists."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..ops import moe_ids_from_map as _moe_ids_from_map
from ..ops import moe_map_from_ids as _moe_map_from_ids
from ..ops import moe_route as _moe_route
from ..ops.moe_ids_from_map import MoeIdsFromMap
from ..ops.moe_map_from_ids import MoeMapFromIds
from ..ops.moe_route import MoeRoute
from . import _gradients
from ._library import Given, define, function, op

_route = define(_moe_route.operator, MoeRoute[Tensor])
_map_from_ids = define(_moe_map_from_ids.operator, MoeMapFromIds[Tensor])
_ids_from_map = define(_moe_ids_from_map.operator, MoeIdsFromMap[Tensor])


@function(_moe_route.moe_route)
def moe_route(given: Given, out: Any) -> MoeRoute[Tensor]:
    """Pick ``k`` experts for each token from its logits, and compute their weights: :func:`switchyard.moe_route`.

    The weights have no gradient here: a backward pass that reaches them is rejected. To train a router, take ``ids`` or
    ``routing_map`` from here and the weights from the logits in torch.

    >>> import torch, switchyard.torch
    >>> logits = torch.tensor([[2., 1, 0, -1], [0, 0.5, 3, 2.5]], requires_grad=True)
    >>> routed = switchyard.torch.moe_route(logits, k=2)
    >>> routed.ids.tolist()
    [[0, 1], [2, 3]]
    >>> probs = torch.where(routed.routing_map, logits.softmax(-1), 0)  # has a gradient
    >>> bool((probs - routed.probs).abs().max() < 1e-6)
    True
    """
    return _route(given, out)


@function(_moe_map_from_ids.moe_map_from_ids)
def moe_map_from_ids(given: Given, out: Any) -> MoeMapFromIds[Tensor]:
    """Convert the expert ids of a router to a map and probs: :func:`switchyard.moe_map_from_ids`.

    Gradients go to ``weights``.

    >>> import torch, switchyard.torch
    >>> switchyard.torch.moe_map_from_ids(torch.tensor([[2, 0]]), torch.tensor([[0.75, 0.25]]), num_experts=3).probs
    tensor([[0.2500, 0.0000, 0.7500]])
    """
    return _map_from_ids(given, out)


@function(_moe_ids_from_map.moe_ids_from_map)
def moe_ids_from_map(given: Given, out: Any) -> MoeIdsFromMap[Tensor]:
    """List the experts of every token of a map, and their weights: :func:`switchyard.moe_ids_from_map`.

    Gradients go to ``probs``.

    >>> import torch, switchyard.torch
    >>> switchyard.torch.moe_ids_from_map(torch.tensor([[True, False, True]]), k=2).ids
    tensor([[0, 2]], dtype=torch.int32)
    """
    return _ids_from_map(given, out)


def _keep_map_from_ids(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ids, _, ctx.num_experts, _ = inputs
    ctx.save_for_backward(ids)


def _map_from_ids_backward(ctx: Any, _: Any, grad_probs: Tensor | None) -> Any:
    (ids,) = ctx.saved_tensors
    if grad_probs is None or ctx.num_experts == 0:
        return None, None, None, None
    named = (ids >= 0) & (ids < ctx.num_experts)
    found = grad_probs.gather(1, torch.where(named, ids, 0).long())
    return None, torch.where(named, found, 0), None, None


def _keep_ids_from_map(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    routing_map, _, _ = inputs
    ctx.save_for_backward(output[0])
    ctx.num_experts = routing_map.shape[1]


def _ids_from_map_backward(ctx: Any, _: Any, grad_weights: Tensor | None) -> Any:
    (ids,) = ctx.saved_tensors
    if grad_weights is None:
        return None, None, None
    made = op("moe_map_from_ids")(ids, grad_weights, ctx.num_experts, True)
    return None, made[1], None


_gradients.register("moe_map_from_ids", _keep_map_from_ids, _map_from_ids_backward)
_gradients.register("moe_ids_from_map", _keep_ids_from_map, _ids_from_map_backward)
_gradients.reject("moe_route", "take ids or routing_map from it, and the weights from the logits in torch")
