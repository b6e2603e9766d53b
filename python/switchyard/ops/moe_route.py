from __future__ import annotations

from .._declare import A, Any, Array, Generic, NamedTuple, Operator, _words


class MoeRoute(NamedTuple, Generic[A]):
    """Results of :func:`moe_route`.

    weights: [T, k + S], of the type of the logits: their weights.
    probs: [T, E + S], of the type of the logits: the weight there, else 0.
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
        shared_logits: [T, n_shared] float32, float16 or bfloat16: their sigmoid is a factor of the shared weights.
        top_groups: groups that are kept, 1 to ``groups``; no effect without groups.
        renormalize: weights are divided by their sum plus ``eps``.
        n_shared: S, shared experts that every token has, numbered from E on.
        shared_in_sum: scores of shared_logits are the shared weights, and take part in ``renormalize``.
        scores: return the scores too, for auxiliary losses; no effect with ``out``.

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
