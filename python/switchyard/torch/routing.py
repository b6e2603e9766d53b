"""The choice of experts for each token, and its forms as maps and lists."""

from __future__ import annotations

from torch import Tensor

import switchyard

from . import _gradients
from ._library import derive

moe_route = derive(
    switchyard.moe_route,
    switchyard.MoeRoute[Tensor],
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
    """,
)


moe_map_from_ids = derive(
    switchyard.moe_map_from_ids,
    switchyard.MoeMapFromIds[Tensor],
    """Convert the expert ids of a router to a map and probs: :func:`switchyard.moe_map_from_ids`.

    Gradients go to ``weights``.

    >>> import torch, switchyard.torch
    >>> switchyard.torch.moe_map_from_ids(torch.tensor([[2, 0]]), torch.tensor([[0.75, 0.25]]), num_experts=3).probs
    tensor([[0.2500, 0.0000, 0.7500]])
    """,
)


moe_ids_from_map = derive(
    switchyard.moe_ids_from_map,
    switchyard.MoeIdsFromMap[Tensor],
    """List the experts of every token of a map, and their weights: :func:`switchyard.moe_ids_from_map`.

    Gradients go to ``probs``.

    >>> import torch, switchyard.torch
    >>> switchyard.torch.moe_ids_from_map(torch.tensor([[True, False, True]]), k=2).ids
    tensor([[0, 2]], dtype=torch.int32)
    """,
)


_gradients.take_rule("moe_map_from_ids")
_gradients.take_rule("moe_ids_from_map")
_gradients.reject("moe_route", "take ids or routing_map from it, and the weights from the logits in torch")
