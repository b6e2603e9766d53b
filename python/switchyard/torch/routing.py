"""The choice of experts for each token, and its forms as maps and lists."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._operator import choose
from ..ops import moe_align_block as _moe_align_block
from ..ops import moe_convert_indices as _moe_convert_indices
from ..ops import moe_ids_from_map as _moe_ids_from_map
from ..ops import moe_map_from_ids as _moe_map_from_ids
from ..ops import moe_pad_map as _moe_pad_map
from ..ops import moe_route as _moe_route
from ..ops.moe_align_block import MoeAlignBlock
from ..ops.moe_convert_indices import FORMS, IndexForm
from ..ops.moe_ids_from_map import MoeIdsFromMap
from ..ops.moe_map_from_ids import MoeMapFromIds
from ..ops.moe_pad_map import MoePadMap
from ..ops.moe_route import Drop, GroupScore, MoeRoute, Score, SlotOrder
from . import _gradients
from ._library import define

_route = define(
    _moe_route.operator,
    _moe_route.outputs,
    "Tensor logits, Tensor? bias, Tensor? finished, SymInt k, int score, bool softmax_after, SymInt groups, "
    "SymInt top_groups, int group_score, int slot_order, bool renormalize, float eps, float scale, SymInt capacity, "
    "int drop, bool scores",
    MoeRoute,
    when={5: 15},
    extra=1,
)
_map_from_ids = define(
    _moe_map_from_ids.operator,
    _moe_map_from_ids.outputs,
    "Tensor ids, Tensor? weights, SymInt num_experts, bool allow_missing",
    MoeMapFromIds,
    when={1: 1},
)
_ids_from_map = define(
    _moe_ids_from_map.operator,
    _moe_ids_from_map.outputs,
    "Tensor routing_map, Tensor? probs, SymInt k",
    MoeIdsFromMap,
    when={1: 1},
)
_pad_map = define(_moe_pad_map.operator, _moe_pad_map.outputs, "Tensor routing_map, SymInt alignment", MoePadMap)
_align_block = define(
    _moe_align_block.operator,
    _moe_align_block.outputs,
    "Tensor ids, Tensor? expert_map, SymInt num_experts, SymInt block_size, bool allow_missing, bool skip_unmapped",
    MoeAlignBlock,
)
_convert_indices = define(
    _moe_convert_indices.operator,
    _moe_convert_indices.outputs,
    "Tensor sorted_indices, Tensor? expert_offsets, int from_, int to, SymInt num_tokens, SymInt num_rows, SymInt k",
)


def moe_route(
    logits: Tensor,
    bias: Tensor | None = None,
    finished: Tensor | None = None,
    *,
    k: int,
    score: Score = "softmax",
    softmax_after: bool = False,
    groups: int = 0,
    top_groups: int = 0,
    group_score: GroupScore = "max",
    slot_order: SlotOrder = "value",
    renormalize: bool = False,
    eps: float = 0.0,
    scale: float = 1.0,
    capacity: int = 0,
    drop: Drop = "prob",
    scores: bool = False,
    out: MoeRoute[Tensor] | None = None,
) -> MoeRoute[Tensor]:
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
    score_, group_score_, slot_order_, drop_ = _moe_route.numbered(score, group_score, slot_order, drop)
    grouping = (score_, softmax_after, groups, top_groups, group_score_, slot_order_)
    given = (logits, bias, finished, k, *grouping, renormalize, eps, scale, capacity, drop_, scores)
    made: MoeRoute[Tensor] = _route(given, out)
    return made


def moe_map_from_ids(
    ids: Tensor,
    weights: Tensor | None = None,
    *,
    num_experts: int,
    allow_missing: bool = False,
    out: MoeMapFromIds[Tensor] | None = None,
) -> MoeMapFromIds[Tensor]:
    """Convert the expert ids of a router to a map and probs: :func:`switchyard.moe_map_from_ids`.

    Gradients go to ``weights``.

    >>> import torch, switchyard.torch
    >>> switchyard.torch.moe_map_from_ids(torch.tensor([[2, 0]]), torch.tensor([[0.75, 0.25]]), num_experts=3).probs
    tensor([[0.2500, 0.0000, 0.7500]])
    """
    made: MoeMapFromIds[Tensor] = _map_from_ids((ids, weights, num_experts, allow_missing), out)
    return made


def moe_ids_from_map(
    routing_map: Tensor,
    probs: Tensor | None = None,
    *,
    k: int,
    out: MoeIdsFromMap[Tensor] | None = None,
) -> MoeIdsFromMap[Tensor]:
    """List the experts of every token of a map, and their weights: :func:`switchyard.moe_ids_from_map`.

    Gradients go to ``probs``.

    >>> import torch, switchyard.torch
    >>> switchyard.torch.moe_ids_from_map(torch.tensor([[True, False, True]]), k=2).ids
    tensor([[0, 2]], dtype=torch.int32)
    """
    made: MoeIdsFromMap[Tensor] = _ids_from_map((routing_map, probs, k), out)
    return made


def moe_pad_map(
    routing_map: Tensor,
    *,
    alignment: int,
    out: MoePadMap[Tensor] | None = None,
) -> MoePadMap[Tensor]:
    """Route further tokens until every expert's count is a multiple of ``alignment``: :func:`switchyard.moe_pad_map`.

    >>> import torch, switchyard.torch
    >>> routing_map = torch.tensor([[1, 0], [0, 1], [1, 0], [1, 0]], dtype=torch.bool)
    >>> switchyard.torch.moe_pad_map(routing_map, alignment=2).expert_counts
    tensor([4, 2])
    """
    made: MoePadMap[Tensor] = _pad_map((routing_map, alignment), out)
    return made


def moe_align_block(
    ids: Tensor,
    expert_map: Tensor | None = None,
    *,
    num_experts: int,
    block_size: int,
    allow_missing: bool = False,
    skip_unmapped: bool = False,
    out: MoeAlignBlock[Tensor] | None = None,
) -> MoeAlignBlock[Tensor]:
    """List the slots of each expert, padded to whole blocks: :func:`switchyard.moe_align_block`.

    >>> import torch, switchyard.torch
    >>> aligned = switchyard.torch.moe_align_block(torch.tensor([[1], [0], [1]]), num_experts=2, block_size=2)
    >>> aligned.sorted_slots[: aligned.num_padded].tolist()
    [1, 3, 0, 2]
    """
    given = (ids, expert_map, num_experts, block_size, allow_missing, skip_unmapped)
    made: MoeAlignBlock[Tensor] = _align_block(given, out)
    return made


def moe_convert_indices(
    sorted_indices: Tensor,
    expert_offsets: Tensor | None = None,
    *,
    from_: IndexForm = "slot",
    to: IndexForm,
    num_tokens: int,
    num_rows: int = 0,
    k: int = 0,
    out: Tensor | None = None,
) -> Tensor:
    """Convert a permutation to another form: :func:`switchyard.moe_convert_indices`.

    >>> import torch, switchyard.torch
    >>> slots = torch.tensor([0, 5, 3, 6, 1, 4, 2, 7], dtype=torch.int32)
    >>> switchyard.torch.moe_convert_indices(slots, to="row", num_tokens=4).tolist()
    [0, 2, 3, 1, 2, 0, 1, 3]
    """
    forms = (
        choose("moe_convert_indices", "from_", FORMS, from_),
        choose("moe_convert_indices", "to", FORMS, to),
    )
    made: Tensor = _convert_indices((sorted_indices, expert_offsets, *forms, num_tokens, num_rows, k), out)
    return made


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
    made = torch.ops.switchyard.moe_map_from_ids(ids, grad_weights, ctx.num_experts, True)
    return None, made[1], None


_gradients.register("moe_map_from_ids", _keep_map_from_ids, _map_from_ids_backward)
_gradients.register("moe_ids_from_map", _keep_ids_from_map, _ids_from_map_backward)
_gradients.reject("moe_route", "take ids or routing_map from it, and the weights from the logits in torch")
