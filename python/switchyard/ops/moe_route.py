from __future__ import annotations

from .._declare import A, Any, Array, Generic, NamedTuple, Operator, _words


class MoeRoute(NamedTuple, Generic[A]):
    """Results of :func:`moe_route`.

    ids: [T, k + S] int32: the experts of each token, then S shared ones; E + S for a finished one, -1: unused.
    weights: [T, k + S]: their weights.
    routing_map: [T, E + S] bool: true where chosen and kept.
    probs: [T, E + S]: the weight there, else 0.
    counts: [E + S] int64: tokens that chose each expert.
    scores: [T, E] float32: score of every expert; None unless requested.
    """

    ids: A
    weights: A
    routing_map: A
    probs: A
    counts: A
    scores: A | None


operator = Operator(
    "moe_route",
    MoeRoute,
    asks={"scores": "scores"},
    likes={"weights": "logits", "probs": "logits"},
    types={"weights": lambda logits: logits.dtype, "probs": lambda logits: logits.dtype},
)


@operator.function
def moe_route(
    logits: A,
    bias: Array | None = None,
    finished: Array | None = None,
    ids_in: Array | None = None,
    ids_rows: Array | None = None,
    expert_scale: Array | None = None,
    shared_logits: Array | None = None,
    *,
    k: int,
    score: _words.MoeRouteScore = "softmax",
    select: _words.MoeRouteSelect = "score",
    softmax_after: bool = False,
    groups: int = 0,
    top_groups: int = 0,
    group_score: _words.MoeRouteGroupScore = "max",
    slot_order: _words.MoeRouteSlotOrder = "value",
    allow_missing: bool = False,
    renormalize: bool = False,
    eps: float = 0.0,
    eps_rule: _words.MoeRouteEpsRule = "add",
    scale: float = 1.0,
    n_shared: int = 0,
    shared_weight: float = 1.0,
    shared_in_sum: bool = False,
    capacity: int = 0,
    drop: _words.MoeRouteDrop = "prob",
    scores: bool = False,
    out: MoeRoute[Any] | None = None,
) -> MoeRoute[A]:
    """Pick ``k`` experts for each token from the logits of its router, and compute their weights.

    Experts are chosen by score plus bias, ties to the lower expert; the weight of an expert is its score. A NaN logit
    counts as -inf. The map and the probs are what :func:`moe_permute` takes. With ``ids_in`` the experts are given, and
    only their weights are computed: the ``ids`` of an earlier call give all results of that call again. The page of
    models has the settings of those in use.

    Args:
        logits: [T, E] float32, float16 or bfloat16.
        bias: [E] float32, added to the scores for the choice only.
        finished: [T] bool, int8 or uint8; tokens where it is not 0 choose no expert.
        ids_in: [T, k] int32, int64, int16, uint16 or uint8: the experts of each token; or [V, k], of which each token
            has a row.
        ids_rows: [T] int32 or int64: that row of ids_in.
        expert_scale: [E] float32: factor of an expert's weight.
        shared_logits: [T, n_shared] float32, float16 or bfloat16: their sigmoid is a factor of the shared weights.
        k: experts per token, 1 to E.
        score: the softmax over all experts, the sigmoid of each logit, the logit itself (``"none"``), or the square
            root of its softplus.
        select: experts are chosen by score plus bias, or by logit plus bias.
        softmax_after: weights are the softmax of the chosen logits, whatever the score that chose them.
        groups: 0, or the number of groups of neighbouring experts.
        top_groups: groups that are kept, 1 to ``groups``; no effect without groups.
        group_score: the score of a group: its largest value, or the sum of its 2, or ``k // top_groups``, largest.
        slot_order: ids and weights by descending value, or by ascending expert, as moe_permute counts them.
        allow_missing: an id of ids_in that is -1, E + S, or all bits set, is an unused slot.
        renormalize: weights are divided by their sum plus ``eps``.
        eps: a finite number of 0 or more.
        eps_rule: weights are divided by sum plus ``eps``, or by the larger of both.
        scale: factor of every weight, after that; 0 means 1.
        n_shared: S, shared experts that every token has, numbered from E on.
        shared_weight: their weight, or the factor of it; 0 means 1.
        shared_in_sum: scores of shared_logits are the shared weights, and take part in ``renormalize``.
        capacity: 0, or the most tokens an expert keeps in ``routing_map`` and ``probs``; nothing else changes.
        drop: with a capacity, an expert keeps its tokens of largest weight, or its first ones.
        scores: return the scores too, for auxiliary losses; no effect with ``out``.
        out: arrays to write to, instead of new ones; None in it leaves an output out. There ids may also be int64,
            the map int8 or uint8, weights and probs of any of the types of the logits.

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
    >>> again = switchyard.moe_route(logits, ids_in=routed.ids, k=2, renormalize=True)
    >>> bool((again.weights == routed.weights).all())
    True
    """
