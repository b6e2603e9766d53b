"""Router logits to the experts of each token."""

from __future__ import annotations

from typing import Any, Generic, Literal

from typing_extensions import NamedTuple

from .._arrays import A, Array
from .._operator import Operator

Score = Literal["softmax", "sigmoid", "none"]
GroupScore = Literal["max", "sum2"]
SlotOrder = Literal["value", "expert"]
Drop = Literal["prob", "position"]


class MoeRoute(NamedTuple, Generic[A]):
    """Results of :func:`moe_route`."""

    ids: A
    """[T, k] int32: the experts of each token; E for a finished one."""
    weights: A
    """[T, k]: their weights."""
    routing_map: A
    """[T, E] bool: true where chosen and kept."""
    probs: A
    """[T, E]: the weight there, else 0."""
    counts: A
    """[E] int64: tokens that chose each expert."""
    scores: A | None
    """[T, E] float32: score of every expert; None unless requested."""


operator = Operator(
    "moe_route",
    MoeRoute,
    asks="scores",
    types={"weights": lambda logits: logits.dtype, "probs": lambda logits: logits.dtype},
    when={"scores": "scores"},
)


def moe_route(
    logits: A,
    bias: Array | None = None,
    finished: Array | None = None,
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
    out: MoeRoute[Any] | None = None,
) -> MoeRoute[A]:
    """Pick ``k`` experts for each token from the logits of its router, and compute their weights.

    Experts are chosen by score plus bias, ties to the lower expert; the weight of an expert is its score. A NaN logit
    counts as -inf. The map and the probs are what :func:`moe_permute` takes.

    Args:
        logits: [T, E] float32, float16 or bfloat16.
        bias: [E] float32, added to the scores for the choice only.
        finished: [T] bool, int8 or uint8; tokens where it is not 0 choose no expert.
        k: experts per token, 1 to E.
        score: the softmax over all experts, the sigmoid of each logit, or the logit itself (``"none"``).
        softmax_after: weights are the softmax of the chosen logits, whatever the score that chose them.
        groups: 0, or the number of groups of neighbouring experts.
        top_groups: groups that are kept, 1 to ``groups``; no effect without groups.
        group_score: the score of a group: its largest value, or the sum of its two largest.
        slot_order: ids and weights by descending value, or by ascending expert, as moe_permute counts them.
        renormalize: weights are divided by their sum plus ``eps``.
        eps: a finite number of 0 or more.
        scale: factor of every weight, after that; 0 means 1.
        capacity: 0, or the most tokens an expert keeps in ``routing_map`` and ``probs``; nothing else changes.
        drop: with a capacity, an expert keeps its tokens of largest weight, or its first ones.
        scores: return the scores too, for auxiliary losses; no effect with ``out``.
        out: arrays to write to, instead of new ones; None in it leaves an output out. There ids may also be int64,
            the map int8 or uint8, weights and probs of any of the types of the logits.

    Returns:
        ids: [T, k] int32: the experts of each token; E for a finished one.
        weights: [T, k]: their weights.
        routing_map: [T, E] bool: true where chosen and kept.
        probs: [T, E]: the weight there, else 0.
        counts: [E] int64: tokens that chose each expert.
        scores: [T, E] float32: score of every expert; None unless requested.

    >>> import numpy as np, switchyard
    >>> logits = np.array([[2, 1, 0, -1], [1, 1, 1, 1], [0, 0.5, 3, 2.5]], np.float32)
    >>> routed = switchyard.moe_route(logits, k=2, renormalize=True)
    >>> routed.ids
    array([[0, 1],
           [0, 1],
           [2, 3]], dtype=int32)
    >>> routed.weights.round(2)
    array([[0.73, 0.27],
           [0.5 , 0.5 ],
           [0.62, 0.38]], dtype=float32)
    >>> routed.counts
    array([2, 2, 1, 1])
    """
    choice: tuple[Any, ...] = (k, score, softmax_after, groups, top_groups, group_score, slot_order)
    return operator((logits, bias, finished, *choice, renormalize, eps, scale, capacity, drop), out, scores)
