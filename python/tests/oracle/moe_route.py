"""moe_route: from logits to experts and weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .arith import Array, canonical, exp, fixed40, narrow, widen
from .moe_rows import Outputs, reject_unless

ZERO = np.float32(0)


def softmax(x: Array) -> Array:
    """Of canonical numbers: whole numbers of 2**-40 over their exact sum, one f64 division, one rounding to f32."""
    if len(x) == 0 or x.max() == -np.inf:
        return np.zeros(len(x), np.float32)
    with np.errstate(all="ignore"):
        weights = fixed40(exp((x - x.max()).astype(np.float32)))
    total = float(sum(weights))
    return np.array([np.float32(float(w) / total) for w in weights], np.float32)


def sigmoid(x: Array) -> Array:
    e = exp(-np.abs(x))
    one = np.float32(1)
    return np.asarray(np.where(x >= 0, one / (one + e), e / (one + e)), np.float32)


def kept_groups(v: list[float], groups: int, top_groups: int, group_score: str) -> set[int]:
    size = len(v) // groups
    worth: list[float] = []
    for g in range(groups):
        best = sorted(v[g * size : (g + 1) * size], reverse=True)
        worth.append(best[0] if group_score == "max" or size == 1 else float(np.float32(best[0]) + np.float32(best[1])))
    order = sorted(range(groups), key=lambda g: (-worth[g], g))
    return set(order[:top_groups])


def route_token(
    x: Array,
    s: Array,
    bias: Array | None,
    *,
    k: int,
    softmax_after: bool,
    groups: int,
    top_groups: int,
    group_score: str,
    renormalize: bool,
    eps: float,
    scale: float,
) -> list[tuple[int, Any]]:
    """The winners in order of descending value, with their weights in f32."""
    v = [float(i) for i in canonical(s if bias is None else s + bias)]
    rivals = range(len(v))
    if groups:
        keep = kept_groups(v, groups, top_groups, group_score)
        rivals = [e for e in rivals if e // (len(v) // groups) in keep]  # type: ignore[assignment]
    winners = sorted(rivals, key=lambda e: (-v[e], e))[:k]
    weights = list(softmax(x[winners]) if softmax_after else s[winners])
    weights = [ZERO if w == -np.inf else w for w in weights]
    if renormalize:
        acc = ZERO
        for w in weights:
            acc = np.float32(acc + w)
        total = np.float32(acc + np.float32(eps))
        weights = [ZERO if total == 0 else np.float32(w / total) for w in weights]
    factor = np.float32(scale if scale != 0 else 1)
    return [(e, np.float32(w * factor)) for e, w in zip(winners, weights, strict=True)]


def moe_route(
    logits: Array,
    bias: Array | None = None,
    finished: Array | None = None,
    *,
    k: int,
    score: str = "softmax",
    softmax_after: bool = False,
    groups: int = 0,
    top_groups: int = 0,
    group_score: str = "max",
    slot_order: str = "value",
    renormalize: bool = False,
    eps: float = 0.0,
    scale: float = 0.0,
    capacity: int = 0,
    drop: str = "prob",
) -> Outputs:
    """Weights and probs in f32; narrower outputs are these, rounded once."""
    t_all, e_all = logits.shape
    reject_unless(1 <= k <= e_all and groups >= 0 and capacity >= 0, "VALUE")
    reject_unless(math.isfinite(eps) and eps >= 0 and math.isfinite(scale), "VALUE")
    if groups:
        reject_unless(
            e_all % groups == 0 and 1 <= top_groups <= groups and top_groups * (e_all // groups) >= k, "VALUE"
        )
    ids = np.full((t_all, k), e_all, np.int64)
    weights = np.zeros((t_all, k), np.float32)
    scores = np.zeros((t_all, e_all), np.float32)
    pairs: dict[int, list[tuple[int, Any]]] = {e: [] for e in range(e_all)}
    with np.errstate(all="ignore"):
        for t in range(t_all):
            x = canonical(widen(logits[t]))
            scores[t] = s = softmax(x) if score == "softmax" else sigmoid(x) if score == "sigmoid" else x
            if finished is not None and finished.view(np.uint8)[t]:
                continue
            won = route_token(
                x,
                s,
                bias,
                k=k,
                softmax_after=softmax_after,
                groups=groups,
                top_groups=top_groups,
                group_score=group_score,
                renormalize=renormalize,
                eps=eps,
                scale=scale,
            )
            for e, w in won:
                pairs[e].append((t, w))
            if slot_order == "expert":
                won.sort(key=lambda pair: pair[0])
            ids[t] = [e for e, _ in won]
            weights[t] = [w for _, w in won]
    routing_map = np.zeros((t_all, e_all), np.bool_)
    probs = np.zeros((t_all, e_all), np.float32)
    for e, tokens in pairs.items():
        stay = tokens
        if capacity and drop == "prob":
            stay = sorted(tokens, key=lambda pair: (-float(canonical(pair[1])), pair[0]))[:capacity]
        elif capacity:
            stay = tokens[:capacity]
        for t, w in stay:
            routing_map[t, e] = True
            probs[t, e] = w
    return {
        "ids": ids,
        "weights": narrow(weights, np.dtype(np.float32)),
        "routing_map": routing_map,
        "probs": narrow(probs, np.dtype(np.float32)),
        "counts": np.array([len(pairs[e]) for e in range(e_all)], np.int64),
        "scores": scores,
    }
